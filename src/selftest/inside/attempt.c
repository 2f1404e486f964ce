/* Verdicts, the scene, and the attempts that several tables share. Runs inside the sandbox. */
#include "selftest/inside/attempt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define N(array) (sizeof(array) / sizeof((array)[0]))

#define VERDICT(name, value) \
        enum cg_verdict name(struct cg_try *t, const char *fmt, ...) \
        { \
                va_list ap; \
                va_start(ap, fmt); \
                vsnprintf(t->note, sizeof(t->note), fmt, ap); \
                va_end(ap); \
                return value; \
        }

VERDICT(cg_held, CG_HELD)
VERDICT(cg_hole, CG_HOLE)
VERDICT(cg_works, CG_WORKS)
VERDICT(cg_fails, CG_FAILS)
VERDICT(cg_skip, CG_SKIP)

const char *cg_errno_name(int error)
{
        const char *name = strerrorname_np(error);

        return name ?: "an unknown error";
}

enum cg_verdict cg_hole_if(struct cg_try *t, bool hole, const char *note, const char *held)
{
        if (hole)
                return cg_hole(t, "%s", note);
        return cg_held(t, "%s", held);
}

enum cg_verdict cg_works_if(struct cg_try *t, bool works, const char *note)
{
        if (works)
                return cg_works(t, "%s", "");
        return cg_fails(t, "%s", note);
}

const char *cg_error_or(long result, const char *text)
{
        return result < 0 ? cg_errno_name(errno) : text;
}

static bool is_one_of(const int *errors, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (errors[i] && errors[i] == errno)
                        return true;
        return false;
}

enum cg_verdict cg_filtered(struct cg_try *t, long result)
{
        static const int denials[] = { EPERM, EACCES, ENOSYS };

        if (result >= 0)
                return cg_hole(t, "done");
        if (is_one_of(denials, N(denials)) || is_one_of(t->attempt->also, N(t->attempt->also)))
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_hole(t, "the call was reached: %s", cg_errno_name(errno));
}

enum cg_verdict cg_refused(struct cg_try *t, long result)
{
        static const int denials[] = { EROFS, ENOENT, EXDEV, EBUSY, ENOTDIR };

        if (result < 0 && is_one_of(denials, N(denials)))
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_filtered(t, result);
}

enum cg_verdict cg_possible(struct cg_try *t, long result)
{
        return cg_works_if(t, result >= 0, cg_errno_name(errno));
}

/* The scene is a few dozen lines, so a linear search suffices. */
const char *cg_scene(const struct cg_try *t, const char *name)
{
        size_t n = strlen(name);

        for (const char *line = t->scene; *line; line = *line ? line + 1 : line) {
                const char *end = strchrnul(line, '\n');

                if (strncmp(line, name, n) == 0 && line[n] == '=')
                        return strndup(line + n + 1, (size_t)(end - line) - n - 1);
                line = end;
        }
        return NULL;
}

unsigned long cg_scene_number(const struct cg_try *t, const char *name)
{
        const char *value = cg_scene(t, name);

        return value ? strtoul(value, NULL, 0) : 0;
}

static bool is_word_of(const char *list, const char *word, size_t n)
{
        while (*list) {
                size_t len = strcspn(list, " ");

                if (len == n && memcmp(list, word, n) == 0)
                        return true;
                list += len + (list[len] == ' ');
        }
        return false;
}

bool cg_scene_lacks(const struct cg_try *t, const char *layer)
{
        const char *layers = cg_scene(t, "layers");

        while (layers && *layer) {
                size_t n = strcspn(layer, "|");

                if (is_word_of(layers, layer, n))
                        return false;
                layer += n + (layer[n] == '|');
        }
        return layers;
}

long cg_slurp(const char *path, char *buf, size_t size)
{
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        long n = 0, r = 1;

        while (fd >= 0 && r > 0 && (size_t)n < size - 1) {
                r = read(fd, buf + n, size - 1 - (size_t)n);
                if (r > 0)
                        n += r;
        }
        cg_drop(fd, NULL);
        buf[n] = '\0';
        return fd < 0 || (r < 0 && n == 0) ? -1 : n;
}

bool cg_has(const char *buf, size_t len, const char *text)
{
        return memmem(buf, len, text, strlen(text)) != NULL;
}

enum cg_verdict cg_try_call(struct cg_try *t, const struct cg_attempt *a)
{
        const unsigned long *c = a->call;

        return cg_filtered(t, syscall((long)c[0], c[1], c[2], c[3], c[4], c[5], c[6]));
}

enum cg_verdict cg_try_open_write(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, open(a->arg, O_WRONLY | O_NONBLOCK | O_NOCTTY));
}

enum cg_verdict cg_try_open_read(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        char byte;

        return cg_refused(t, fd < 0 ? -1 : read(fd, &byte, 1));
}

enum cg_verdict cg_try_reopen(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, (int)a->call[0] | O_CLOEXEC);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return cg_refused(t, fd < 0 ? -1 : open(path, (int)a->call[1]));
}

void cg_drop(int fd, const char *path)
{
        int e = errno;

        if (fd >= 0)
                close(fd);
        if (path)
                unlink(path);
        errno = e;
}

int cg_make(const char *path)
{
        int fd = open(path, O_WRONLY | O_CREAT, 0644);

        cg_drop(fd, NULL);
        return fd < 0 ? -1 : 0;
}

long cg_write_to(int fd, const char *text)
{
        if (fd < 0)
                return -1;
        return write(fd, text, strlen(text));
}

long cg_append(const char *path)
{
        int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK);
        long n = cg_write_to(fd, "x");

        cg_drop(fd, NULL);
        return n;
}

enum cg_verdict cg_try_append(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, cg_append(a->arg));
}

/* Changes by a descriptor, which may be for reading. */
static int change_by_fd(enum cg_change change, const char *path)
{
        /* version 2; read, write and execute for the owner, read and execute for the others */
        static const unsigned char acl[] = { 2, 0, 0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 4,   0,
                                             5, 0, 255, 255, 255, 255, 32, 0, 5,   0,   255, 255, 255, 255 };
        int fd = open(path, O_RDONLY | O_CLOEXEC), r, flags = 0;

        if (fd < 0)
                return -1;
        switch (change) {
        case CG_FCHMOD:
                r = fchmod(fd, 0755);
                break;
        case CG_ACCESS_LIST:
                r = fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0);
                break;
        default:
                r = ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ? -1 : ioctl(fd, FS_IOC_SETFLAGS, &flags);
        }
        cg_drop(fd, NULL);
        return r;
}

int cg_change(enum cg_change change, const char *from, const char *to)
{
        struct stat st;

        switch (change) {
        case CG_MAKE:
                return cg_make(from);
        case CG_REMOVE:
                return unlink(from);
        case CG_MKDIR:
                return mkdir(from, 0755);
        case CG_RMDIR:
                return rmdir(from);
        case CG_MKFIFO:
                return mkfifo(from, 0644);
        case CG_TRUNCATE:
                if (stat(from, &st) < 0)
                        return -1;
                return truncate(from, st.st_size);
        case CG_CHMOD:
                return chmod(from, 0755);
        case CG_TIMES:
                return utimensat(AT_FDCWD, from, NULL, 0);
        case CG_ATTRIBUTE:
                return setxattr(from, "user.cellgate", "x", 1, 0);
        case CG_RENAME:
                return rename(from, to);
        case CG_EXCHANGE:
                return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
        case CG_LINK:
                return link(from, to);
        case CG_SYMLINK:
                return symlink(from, to);
        default:
                return change_by_fd(change, from);
        }
}

static void undo(enum cg_change change, const char *from, const char *to)
{
        switch (change) {
        case CG_MAKE:
        case CG_MKFIFO:
                unlink(from);
                break;
        case CG_REMOVE:
                cg_make(from);
                break;
        case CG_MKDIR:
                rmdir(from);
                break;
        case CG_RMDIR:
                mkdir(from, 0755);
                break;
        case CG_CHMOD:
        case CG_FCHMOD:
        case CG_ACCESS_LIST:
                chmod(from, 0644);
                break;
        case CG_RENAME:
                rename(to, from);
                break;
        case CG_EXCHANGE:
                cg_change(change, from, to);
                break;
        case CG_LINK:
        case CG_SYMLINK:
                unlink(to);
                break;
        default:
                break;
        }
}

enum cg_verdict cg_try_change(struct cg_try *t, const struct cg_attempt *a)
{
        const struct cg_attempt next = { .arg = a->at };
        bool fresh = strcmp(a->arg, "fresh") == 0 || (a->arg2 && strcmp(a->arg2, "fresh") == 0);
        enum cg_verdict v;
        int r;

        if (fresh && cg_make("fresh") < 0)
                return cg_refused(t, -1);
        r = cg_change(a->change, a->arg, a->arg2);
        if (r < 0 && a->then && a->change == CG_SYMLINK)
                return cg_fails(t, "no link of its own: %s", cg_errno_name(errno));
        if (r < 0 && errno == ENOENT && a->change >= CG_TRUNCATE && a->change <= CG_FLAGS)
                return cg_fails(t, "the scene has no %s", a->arg);
        v = r == 0 && a->then ? a->then(t, &next) : cg_refused(t, r);
        if (r == 0)
                undo(a->change, a->arg, a->arg2);
        if (fresh)
                unlink("fresh");
        return v;
}

bool cg_race_goes_on(const struct timespec *start)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000 < 300;
}

/* One process replaces a name by a link and back, the other opens the name for writing. */
enum cg_verdict cg_try_link_race(struct cg_try *t, const struct cg_attempt *a)
{
        static const char name[] = "race";
        struct timespec start;
        struct stat before, after;
        long tries = 0;
        pid_t pid;

        if (stat(a->arg, &before) < 0)
                return cg_fails(t, "the scene has no %s", a->arg);
        pid = fork();
        if (pid == 0) {
                for (;;) {
                        unlink(name);
                        close(open(name, O_WRONLY | O_CREAT, 0644));
                        unlink(name);
                        if (symlink(a->arg, name) < 0)
                                _exit(1);
                }
        }
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start); tries++)
                cg_append(name);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(name);
        if (stat(a->arg, &after) < 0 || after.st_size != before.st_size)
                return cg_hole(t, "%s was written", a->arg);
        return cg_held(t, "%ld tries", tries);
}

enum cg_verdict cg_try_create(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_WRONLY | O_CREAT | O_EXCL, 0644);
        enum cg_verdict v = fd < 0 && errno == EEXIST ? cg_refused(t, open(a->arg, O_WRONLY))
                                                      : cg_refused(t, fd);

        if (fd >= 0)
                unlink(a->arg);
        return v;
}

enum cg_verdict cg_try_leak(struct cg_try *t, const struct cg_attempt *a)
{
        const char *name = a->arg2 ?: "hidden_content", *secret = cg_scene(t, name);
        char buf[4096];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        if (!secret)
                return cg_skip(t, "the scene has no %s", name);
        if (n > 0 && cg_has(buf, (size_t)n, secret))
                return cg_hole(t, "its content was read");
        return cg_held(t, "%s", cg_error_or(n, "it has other content"));
}

enum cg_verdict cg_try_list(struct cg_try *t, const struct cg_attempt *a)
{
        DIR *d = opendir(a->arg);
        struct dirent *e;

        if (!d)
                return cg_refused(t, -1);
        while ((e = readdir(d)))
                if (!is_word_of(". ..", e->d_name, strlen(e->d_name)) &&
                    !(a->arg2 && is_word_of(a->arg2, e->d_name, strlen(e->d_name))))
                        return cg_hole(t, "%s has %.100s", a->arg, e->d_name);
        return cg_held(t, "%s", a->arg2 ? "only harmless names" : "empty");
}

enum cg_verdict cg_try_write(struct cg_try *t, const struct cg_attempt *a)
{
        long r = cg_make(a->arg) < 0 ? -1 : cg_append(a->arg);
        enum cg_verdict v = cg_possible(t, r);

        unlink(a->arg);
        return v;
}

enum cg_verdict cg_try_readable(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[4096];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        if (n == 0)
                return cg_fails(t, "it is empty");
        return cg_possible(t, n);
}

const char *cg_canary_path(const struct cg_try *t, const char *name)
{
        static char path[64];

        snprintf(path, sizeof(path), "/proc/%lu/%s", cg_scene_number(t, "canary_pid"), name);
        return path;
}

bool cg_is_canary(const struct cg_try *t)
{
        const char *wanted = cg_scene(t, "canary_argument");
        char buf[4096];
        long n = cg_slurp(cg_canary_path(t, "cmdline"), buf, sizeof(buf));

        return n > 0 && wanted && cg_has(buf, (size_t)n, wanted);
}
