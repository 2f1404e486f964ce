/* Opening files for writing, and making them: see mediate_int.h. */
#include "sandbox/notify/mediate_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/notify/caller.h"
#include "sandbox/notify/notify.h"
#include "sandbox/notify/reply.h"

/*
 * Interval at which the opener of a FIFO checks whether its caller still waits: that is not
 * reported.
 */
#define HELPER_LOOK_US 200000

/*
 * O_TRUNC is done after the caller has the descriptor: if there is no room for one, the file must
 * be unchanged.
 */
static bool truncates_later(int flags)
{
        return flags & O_TRUNC && ((flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR);
}

/*
 * Gives @fd (takes), opened without O_TRUNC if that is done later, to the caller. Init's copy is
 * closed before the caller continues, since the caller may close its own and execute the file;
 * SECCOMP_ADDFD_FLAG_SEND would let it continue earlier.
 */
static int caller_fd(struct cg_med_call *c, int *fd, int flags)
{
        struct seccomp_notif_addfd add = { .id = c->c->id,
                                           .srcfd = (uint32_t)*fd,
                                           .newfd_flags = (uint32_t)(flags & O_CLOEXEC) };
        bool truncate = false;
        struct statx st;
        int r = 0;

        if (truncates_later(flags) && statx(*fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) == 0) {
                truncate = S_ISREG(st.stx_mode);
                /*
                 * Checked first, as the kernel does: nobody can close the caller's descriptor once
                 * it has one.
                 */
                if (truncate && (st.stx_attributes & STATX_ATTR_APPEND))
                        r = -EPERM;
        }
        if (r == 0) {
                r = ioctl(c->n->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
                r = r < 0 ? -errno : r;
        }
        /* Fails now only if the disk or its quota does; then the caller's descriptor stays open. */
        if (r >= 0 && truncate && ftruncate(*fd, 0) < 0)
                r = -errno;
        cg_closep_(fd);
        return r;
}

static void wake_up(int sig)
{
        (void)sig;
}

/* Runs in a child of init, since the other end of a FIFO may never be opened. */
static _Noreturn void wait_open(struct cg_med_call *c, const char *path, int flags)
{
        struct sigaction sa = { .sa_handler = wake_up };
        struct itimerval every = { .it_interval.tv_usec = HELPER_LOOK_US,
                                   .it_value.tv_usec = HELPER_LOOK_US };
        unsigned long long pending = 0, shared = 0, blocked = 0;
        char text[CG_CALLER_STATUS_MAX];
        const char *status;
        sigset_t none;
        int fd, r;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        sigaction(SIGALRM, &sa, NULL);
        if (setitimer(ITIMER_REAL, &every, NULL) < 0)
                _exit(1);
        for (;;) {
                fd = open(path, flags | O_NOCTTY | O_CLOEXEC);
                if (fd >= 0 || errno != EINTR)
                        break;
                if (!cg_caller_waits(c->n, c->c))
                        _exit(0);
                /* A pending signal that would interrupt the caller's own call. */
                status = cg_caller_status(c->tid, "\nSigPnd:", text);
                if (status &&
                    sscanf(status, "%llx ShdPnd: %llx SigBlk: %llx", &pending, &shared, &blocked) == 3 &&
                    (pending | shared) & ~blocked)
                        break;
        }
        r = fd < 0 ? -errno : caller_fd(c, &fd, flags);
        cg_reply_result(c->n, c->c, r);
        _exit(0);
}

static int open_waiting(struct cg_med_call *c, int fd, int flags)
{
        char path[48];
        bool room = false;
        pid_t pid;

        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++)
                room |= c->m->helpers[i] == 0;
        if (!room)
                return -EAGAIN;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        pid = fork();
        if (pid < 0)
                return -EAGAIN;
        if (pid == 0)
                wait_open(c, path, flags);
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++) {
                if (c->m->helpers[i] == 0) {
                        c->m->helpers[i] = pid;
                        break;
                }
        }
        return CG_MED_ANSWERED;
}

/* Opens an existing file that is not a folder or a symlink. */
static int open_present(struct cg_med_call *c, const struct cg_med_where *w, const struct stat *st, int flags)
{
        int plain = flags & ~(O_CREAT | O_EXCL | (truncates_later(flags) ? O_TRUNC : 0));
        int r = cg_med_judge(c, w, CG_MED_CHANGE);
        cg_auto_fd int fd = -1;

        if (r < 0)
                return r;
        if (S_ISFIFO(st->st_mode) && (flags & O_ACCMODE) == O_WRONLY && !(flags & O_NONBLOCK)) {
                fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                return fd < 0 ? -errno : open_waiting(c, fd, plain);
        }
        fd = openat(w->dir, w->name, plain | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 && errno == EWOULDBLOCK && !(flags & O_NONBLOCK)) { /* another program's lease */
                fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                return fd < 0 ? -errno : open_waiting(c, fd, plain);
        }
        if (fd < 0)
                return -errno;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, plain & ~O_NONBLOCK) < 0)
                return -errno;
        return caller_fd(c, &fd, flags);
}

static int open_new(struct cg_med_call *c, const struct cg_med_where *w, int flags, mode_t mode)
{
        cg_auto_fd int fd = -1;
        int r = cg_med_judge(c, w, CG_MED_MAKE);
        struct stat made, st;

        if (r < 0)
                return r;
        cg_med_take_umask(c);
        /* O_EXCL does not follow symlinks. */
        fd = openat(w->dir, w->name, (flags & ~O_TRUNC) | O_CREAT | O_EXCL | O_NOCTTY | O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        r = fstat(fd, &made) < 0 ? -errno : cg_med_recheck(c, w, CG_MED_MAKE, 0);
        if (r < 0)
                return r;
        r = caller_fd(c, &fd, flags & ~O_TRUNC);
        /* The caller had no room for the descriptor: removes the new file, if it is still there. */
        if (r < 0 && fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == made.st_ino &&
            st.st_dev == made.st_dev)
                unlinkat(w->dir, w->name, 0);
        return r;
}

static int open_tmpfile(struct cg_med_call *c, int dirfd, uint64_t at, int flags, mode_t mode)
{
        struct cg_med_where w = CG_MED_NOWHERE;
        char path[PATH_MAX];
        cg_auto_fd int base = -1, dir = -1, fd = -1;
        bool ok;

        if (!cg_med_read_text(c, at, path))
                return CG_MED_CONTINUE;
        base = cg_med_base_for(c, dirfd, path, &ok);
        if (!ok)
                return CG_MED_CONTINUE;
        dir = cg_open_path(base >= 0 ? base : AT_FDCWD, path, O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
        if (dir < 0)
                dir = cg_med_walk_from(c, base, path, true);
        if (dir < 0)
                return CG_MED_CONTINUE;
        cg_med_path_of(dir, w.path);
        if (cg_mediate_region(c->m->sb, w.path, &w.root) == CG_REGION_NATIVE)
                return CG_MED_CONTINUE;
        cg_med_take_umask(c);
        fd = openat(dir, ".", flags | O_CLOEXEC, mode);
        return fd < 0 ? -errno : caller_fd(c, &fd, flags & ~O_TRUNC);
}

/* Opens a file without a name by its descriptor, as the kernel would; O_CREAT finds it. */
static int open_nameless(struct cg_med_call *c, int fd, const struct cg_med_where *was, int flags)
{
        int plain = flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW | (truncates_later(flags) ? O_TRUNC : 0)), r;
        char path[48];
        cg_auto_fd int opened = -1;

        if (was->region == CG_REGION_NATIVE || ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)))
                return CG_MED_CONTINUE;
        r = cg_med_judge(c, was, CG_MED_CHANGE);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        opened = open(path, plain | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (opened < 0 || (!(flags & O_NONBLOCK) && fcntl(opened, F_SETFL, plain & ~O_NONBLOCK) < 0))
                return -errno;
        return caller_fd(c, &opened, flags);
}

int cg_med_open_at(struct cg_med_call *c, int dirfd, uint64_t at, int flags, mode_t mode)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        int r = CG_MED_CONTINUE;

        /* The kernel rejects the last two before it looks up the file. */
        if (flags & O_PATH || (flags & (O_CREAT | O_TMPFILE)) == (O_CREAT | O_DIRECTORY) ||
            (flags & O_TMPFILE) == (O_TMPFILE & ~O_DIRECTORY))
                return CG_MED_CONTINUE;
        if ((flags & O_TMPFILE) == O_TMPFILE)
                return open_tmpfile(c, dirfd, at, flags, mode);
        if (!cg_med_find(c, dirfd, at, &w))
                return cg_med_not_found(c, &w);
        for (int i = 0; i < CG_MED_LINKS_MAX; i++) {
                size_t len = strlen(w.name);
                bool slash = w.name[len - 1] == '/';
                struct cg_med_where was = CG_MED_NOWHERE;
                cg_auto_fd int nameless = -1;
                struct stat st;

                if (slash)
                        return CG_MED_CONTINUE; /* a folder, which cannot be written */
                if (fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (w.region == CG_REGION_NATIVE)
                                return CG_MED_CONTINUE;
                        if (errno != ENOENT || !(flags & O_CREAT))
                                return -errno;
                        r = open_new(c, &w, flags, mode);
                        if (r == -EEXIST && !(flags & O_EXCL))
                                continue;
                        return r;
                }
                if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
                        return w.region == CG_REGION_NATIVE ? CG_MED_CONTINUE : -EEXIST;
                if (S_ISDIR(st.st_mode))
                        return CG_MED_CONTINUE;
                if (!S_ISLNK(st.st_mode)) {
                        if (w.region == CG_REGION_NATIVE ||
                            ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)))
                                return CG_MED_CONTINUE;
                        r = open_present(c, &w, &st, flags);
                        /* Removed meanwhile by another sandbox or a program outside. */
                        if (r == -ENOENT && flags & O_CREAT && cg_caller_waits(c->n, c->c))
                                continue;
                        return r;
                }
                if (flags & O_NOFOLLOW)
                        return CG_MED_CONTINUE;
                nameless = cg_med_open_nameless(c, &w, &was);
                if (nameless >= 0)
                        return open_nameless(c, nameless, &was, flags);
                if (!cg_med_follow(c, &w))
                        return CG_MED_CONTINUE;
                r = CG_MED_CONTINUE;
        }
        return r;
}
