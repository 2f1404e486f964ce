/* Making, locking, removing. Runs on the host in the process that outlives the sandbox. */
#include "sandbox/placeholder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/mountfd.h"
#include "sandbox/plan.h"

/* 1980-01-01 00:00:01 UTC: no file system has it by itself, and every one can hold it. */
#define MARK 315532801

/* How often to start again when others remove what we were about to use, and how long to wait before. */
#define TRIES 100
#define WAIT_NS 1000000

/*
 * The folder that @path lies in, opened, and the last name. Another sandbox may write there at the same time: were a
 * folder in the path replaced by a symlink, we would make or remove a file of the host's. So no symlink is followed
 * (plans have resolved paths), and all that follows happens in this folder, wherever it is moved.
 */
static int open_parent(const char *path, const char **name)
{
        char folder[PATH_MAX];
        const char *slash = strrchr(path, '/');

        *name = slash + 1;
        snprintf(folder, sizeof(folder), "%.*s", slash > path ? (int)(slash - path) : 1, path);
        return cg_mount_open(folder);
}

static int open_it(int dir, const char *name)
{
        return openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

/*
 * An empty file is as good as none for whoever reads it on the host, but for one: git wants a path in a repository's commondir, and
 * with this one everything stays where it is.
 */
static const char *content_of(const char *name)
{
        return strcmp(name, "commondir") == 0 ? ".\n" : "";
}

static bool has_content(int fd, const char *want)
{
        char found[8];
        ssize_t n = pread(fd, found, sizeof(found), 0);

        return n >= 0 && (size_t)n == strlen(want) && memcmp(found, want, (size_t)n) == 0;
}

/* All that stat(2) can say. */
static bool looks_marked(const char *name, const struct stat *st)
{
        /* Whoever it belongs to: another user's, in a folder that both may write, goes when that user's sandbox ends. */
        if (st->st_mtim.tv_sec != MARK)
                return false;
        if (S_ISDIR(st->st_mode))
                return (st->st_mode & 07777) == 0555;
        return S_ISREG(st->st_mode) && st->st_size == (off_t)strlen(content_of(name)) && st->st_nlink == 1 &&
               (st->st_mode & 07777) == 0444;
}

/* @fd is what @st was asked about. A command may have made something that looks like one, but not with other content. */
static bool is_marked(const char *name, int fd, const struct stat *st)
{
        return looks_marked(name, st) && (S_ISDIR(st->st_mode) || has_content(fd, content_of(name)));
}

bool cg_placeholder_is(const char *path, const struct stat *st)
{
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        cg_auto_fd int fd = -1;
        struct stat opened;

        if (!looks_marked(name, st))
                return false;
        if (S_ISDIR(st->st_mode) || !content_of(name)[0])
                return true;
        fd = open_it(AT_FDCWD, path);
        return fd >= 0 && fstat(fd, &opened) == 0 && is_marked(name, fd, &opened);
}

static bool is_still_there(int dir, const char *name, int fd)
{
        struct stat named, opened;

        return fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
               named.st_dev == opened.st_dev;
}

static int make_marked(int dir, const char *name, bool folder)
{
        static const struct timespec times[2] = {{.tv_sec = MARK}, {.tv_sec = MARK}};
        int fd = -1;

        if (folder && mkdirat(dir, name, 0555) == 0)
                fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        else if (!folder)
                fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
        if (fd < 0)
                return -1;
        /* Whatever the umask made of it. */
        if ((!folder && cg_write_all(fd, content_of(name), strlen(content_of(name)), NULL) < 0) ||
            fchmod(fd, folder ? 0555 : 0444) < 0 || futimens(fd, times) < 0) {
                int e = errno;

                close(fd);
                unlinkat(dir, name, folder ? AT_REMOVEDIR : 0);
                errno = e;
                return -1;
        }
        return fd;
}

/* 0 with *ret locked, or -1 for what is not ours; 1: start again; negative. */
static int take(const struct cg_plan_placeholder *p, int *ret, struct cg_err *err)
{
        const char *path = p->path, *name;
        cg_auto_fd int dir = open_parent(path, &name);
        cg_auto_fd int fd = dir < 0 ? -1 : open_it(dir, name);
        struct stat st;

        *ret = -1;
        if (dir < 0 && errno == EACCES)
                return 0; /* out of our reach, and so of the sandbox's */
        if (dir < 0)
                return cg_fail_errno(err, "sandbox: the folder of placeholder %s", path);
        if (fd < 0 && errno == ENOENT) {
                fd = make_marked(dir, name, p->folder);
                if (fd < 0 && errno == EEXIST)
                        return 1;
        } else if (fd < 0) {
                return 0; /* something that cannot be read lies there: it is in the way of what is denied as well */
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: placeholder %s", path);
        if (!is_marked(name, fd, &st))
                return 0;
        /* Whoever removes it holds the lock for a moment. Whoever else does, perhaps in another sandbox, is not waited for. */
        if (flock(fd, LOCK_SH | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? 1 : cg_fail_errno(err, "sandbox: placeholder %s", path);
        if (!is_still_there(dir, name, fd))
                return 1;
        *ret = cg_steal_fd(&fd);
        return 0;
}

static int make_one(const struct cg_plan_placeholder *p, int *ret, struct cg_err *err)
{
        for (int i = 0; i < TRIES; i++) {
                int e = take(p, ret, err);

                if (e <= 0)
                        return e;
                nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
        }
        return cg_fail(err, CG_E_STATE, "sandbox: placeholder %s: it comes and goes, or another program holds a lock on it; "
                       "remove it", p->path);
}

int cg_placeholders_make(struct cg_sandbox *sb, int **fds, struct cg_err *err)
{
        int *list = calloc(sb->n_placeholders + 1, sizeof(*list)), e = 0;

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "sandbox: placeholders");
        for (size_t i = 0; i < sb->n_placeholders; i++)
                list[i] = -1;
        /* The landlock tier has no mounts that need something to lie on. */
        for (size_t i = 0; i < sb->n_placeholders && e == 0 && !sb->grants; i++) {
                if (sb->placeholders[i].mount_point)
                        e = make_one(&sb->placeholders[i], &list[i], err);
        }
        if (e < 0) {
                cg_placeholders_remove(sb, list);
                return e;
        }
        *fds = list;
        return 0;
}

static void remove_one(const char *path, int fd)
{
        const char *name;
        cg_auto_fd int dir = open_parent(path, &name);
        cg_auto_fd int own = fd >= 0 ? fd : dir < 0 ? -1 : open_it(dir, name);
        struct stat st;

        /* Others who use it hold shared locks; the last of them removes it. */
        if (dir < 0 || own < 0 || flock(own, LOCK_EX | LOCK_NB) < 0 || fstat(own, &st) < 0 || !is_marked(name, own, &st) ||
            !is_still_there(dir, name, own))
                return;
        unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

void cg_placeholders_remove(const struct cg_sandbox *sb, int *fds)
{
        /* Those in others last made, first removed. */
        for (size_t i = sb->n_placeholders; i-- > 0;) {
                if (sb->placeholders[i].mount_point && (!fds || fds[i] >= 0))
                        remove_one(sb->placeholders[i].path, fds ? fds[i] : -1);
        }
        free(fds);
}
