/* Making, locking, removing. Runs on the host in the process that outlives the sandbox. */
#include "sandbox/mountpoints.h"

#include <sys/file.h>
#include <time.h>

#include "base/fd.h"
#include "sandbox/mountfd.h"
#include "sandbox/plan.h"

/* Retries, and the wait before each, if another process removes the placeholder meanwhile. */
#define TRIES   100
#define WAIT_MS 1

/*
 * Opens the folder of @path and sets *name to the last name. Another sandbox may write there at the
 * same time and replace a folder of the path by a symlink to make this process change a file of the
 * host's. So no symlink is followed (plans have resolved paths), and all later calls use this
 * descriptor.
 */
static int open_parent(const char *path, const char **name)
{
        char folder[PATH_MAX];

        *name = cg_path_base(path);
        cg_path_parent(path, folder);
        return cg_mount_open(folder);
}

static int open_it(int dir, const char *name)
{
        return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
}

static bool is_still_there(int dir, const char *name, int fd)
{
        struct stat named, opened;

        return fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &opened) == 0 &&
               named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

static int make_marked(int dir, const char *name)
{
        static const struct timespec times[2] = { { .tv_sec = CG_PLACEHOLDER_MTIME },
                                                  { .tv_sec = CG_PLACEHOLDER_MTIME } };
        int fd = mkdirat(dir, name, 0555) < 0 ? -1 : open_it(dir, name);

        if (fd < 0)
                return -1;
        /* Regardless of the umask. */
        if (fchmod(fd, 0555) < 0 || futimens(fd, times) < 0) {
                int r = errno;

                close(fd);
                unlinkat(dir, name, AT_REMOVEDIR);
                errno = r;
                return -1;
        }
        return fd;
}

/* 0 with *ret locked, or -1 if it is not a placeholder; 1: retry; negative. */
static int take(const struct cg_plan_placeholder *p, int *ret, struct cg_err *err)
{
        const char *path = p->path, *name;
        cg_auto_fd int dir = open_parent(path, &name);
        cg_auto_fd int fd = dir < 0 ? -1 : open_it(dir, name);
        struct stat st;

        *ret = -1;
        if (dir < 0 && errno == EACCES)
                return 0; /* inaccessible to the caller, and so to the sandbox */
        if (dir < 0)
                return cg_fail_errno(err, "sandbox: the folder of placeholder %s", path);
        if (fd < 0 && errno == ENOENT) {
                fd = make_marked(dir, name);
                if (fd < 0 && errno == EEXIST)
                        return 1;
        } else if (fd < 0) {
                return 0; /* something else is there: the mount will fail */
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: placeholder %s", path);
        if (!cg_placeholder_is(&st))
                return 0;
        /* The process that removes it holds the lock for a moment; no other lock is waited for. */
        if (flock(fd, LOCK_SH | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? 1 : cg_fail_errno(err, "sandbox: placeholder %s", path);
        if (!is_still_there(dir, name, fd))
                return 1;
        *ret = cg_steal_fd(&fd);
        return 0;
}

int cg_placeholders_make(struct cg_sandbox *sb, int **fds, struct cg_err *err)
{
        int *list = calloc(sb->n_placeholders + 1, sizeof(*list)), r = 0;
        const struct cg_plan_placeholder *p;

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "sandbox: placeholders");
        for (size_t i = 0; i < sb->n_placeholders; i++)
                list[i] = -1;
        /* The landlock tier has no mounts. */
        for (size_t i = 0; i < sb->n_placeholders && r == 0 && !sb->grants; i++) {
                p = &sb->placeholders[i];
                if (!p->mount_point)
                        continue;
                for (int n = 0; n < TRIES && (r = take(p, &list[i], err)) > 0; n++)
                        cg_pause_ms(WAIT_MS);
                if (r > 0)
                        r = cg_fail(err, CG_E_STATE,
                                    "sandbox: placeholder %s: it comes and goes, or another program holds a "
                                    "lock on it; remove it",
                                    p->path);
        }
        if (r < 0) {
                cg_placeholders_remove(sb, list);
                return r;
        }
        *fds = list;
        return 0;
}

void cg_placeholders_remove(const struct cg_sandbox *sb, int *fds)
{
        /* In reverse order, since later ones may be in earlier ones. */
        for (size_t i = sb->n_placeholders; i-- > 0;) {
                const char *name;
                cg_auto_fd int dir = -1, own = -1;
                struct stat st;

                if (!sb->placeholders[i].mount_point || (fds && fds[i] < 0))
                        continue;
                dir = open_parent(sb->placeholders[i].path, &name);
                if (fds)
                        own = fds[i];
                else if (dir >= 0)
                        own = open_it(dir, name);
                /* Other users of it hold shared locks; the last one removes it. */
                if (dir >= 0 && own >= 0 && flock(own, LOCK_EX | LOCK_NB) == 0 && fstat(own, &st) == 0 &&
                    cg_placeholder_is(&st) && is_still_there(dir, name, own))
                        unlinkat(dir, name, AT_REMOVEDIR);
        }
        free(fds);
}
