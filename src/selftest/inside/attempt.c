/* Verdicts, the scene, and the attempts that several tables share. Runs inside the sandbox. */
#include "selftest/inside/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

        return name ? name : "an unknown error";
}

enum cg_verdict cg_filtered(struct cg_try *t, long result)
{
        if (result >= 0)
                return cg_hole(t, "done");
        if (errno == EPERM || errno == EACCES || errno == ENOSYS)
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_hole(t, "the call was reached: %s", cg_errno_name(errno));
}

enum cg_verdict cg_refused(struct cg_try *t, long result)
{
        if (result < 0 &&
            (errno == EROFS || errno == ENOENT || errno == EXDEV || errno == EBUSY || errno == ENOTDIR))
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_filtered(t, result);
}

enum cg_verdict cg_possible(struct cg_try *t, long result)
{
        return result >= 0 ? cg_works(t, "%s", "") : cg_fails(t, "%s", cg_errno_name(errno));
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
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), e;
        long n = 0, r = 1;

        while (fd >= 0 && r > 0 && (size_t)n < size - 1) {
                r = read(fd, buf + n, size - 1 - (size_t)n);
                if (r > 0)
                        n += r;
        }
        e = errno;
        if (fd >= 0)
                close(fd);
        errno = e;
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

enum cg_verdict cg_try_append(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOFOLLOW);

        return cg_refused(t, fd < 0 ? -1 : write(fd, "x", 1));
}

long cg_append(const char *path)
{
        int fd = open(path, O_WRONLY | O_APPEND);
        long n = fd < 0 ? -1 : write(fd, "x", 1);
        int error = errno;

        if (fd >= 0)
                close(fd);
        errno = error;
        return n;
}

bool cg_race_goes_on(const struct timespec *start)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000 < 300;
}

static void swap_for_ever(const char *name, const char *victim)
{
        for (;;) {
                unlink(name);
                close(open(name, O_WRONLY | O_CREAT, 0644));
                unlink(name);
                if (symlink(victim, name) < 0)
                        _exit(1);
        }
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
        if (pid == 0)
                swap_for_ever(name, a->arg);
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
        const char *secret = cg_scene(t, a->arg2);
        char buf[4096];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        if (!secret)
                return cg_skip(t, "the scene has no %s", a->arg2);
        if (n > 0 && cg_has(buf, (size_t)n, secret))
                return cg_hole(t, "its content was read");
        return n < 0 ? cg_held(t, "%s", cg_errno_name(errno)) : cg_held(t, "what is there is something else");
}
