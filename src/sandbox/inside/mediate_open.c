/* Opening and truncating files: see mediate_int.h. Runs in init. */
#include "sandbox/inside/mediate_int.h"

#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "sandbox/inside/caller.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"

/* Interval at which a FIFO's opener checks if its caller still waits: that is not reported. */
#define HELPER_CHECK_US 200000

/* O_TRUNC comes after the caller has the descriptor: without room for one, nothing changes. */
static bool is_truncate_deferred(int flags)
{
        return flags & O_TRUNC && ((flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR);
}

/*
 * Gives @fd, opened without O_TRUNC if that is done later, to the caller, and closes it unless that
 * fails. @mode: the file's. Init's copy of a program is closed before the caller continues, since
 * the caller may close its own and execute the file. Others cannot be executed before their mode is
 * changed, which init does; so the caller continues with its descriptor, which saves two switches
 * between the processes.
 */
static int install_fd(struct cg_med_call *call, int *fd, int flags, mode_t mode)
{
        struct seccomp_notif_addfd add = { .id = call->notif->id,
                                           .srcfd = (uint32_t)*fd,
                                           .newfd_flags = (uint32_t)(flags & O_CLOEXEC) };
        bool truncate = false;
        struct statx st;
        int r = 0;

        if (is_truncate_deferred(flags) && statx(*fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) == 0) {
                truncate = S_ISREG(st.stx_mode);
                /*
                 * Checked first, as the kernel does: nobody can close the caller's descriptor once
                 * it has one.
                 */
                if (truncate && (st.stx_attributes & STATX_ATTR_APPEND))
                        r = -EPERM;
        }
        if (r == 0 && !truncate && !(mode & 0111)) {
                add.flags = SECCOMP_ADDFD_FLAG_SEND;
                if (ioctl(call->notify->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) >= 0) {
                        cg_closep_(fd);
                        return CG_MED_ANSWERED;
                }
                r = errno == EINVAL ? 0 : -errno; /* before Linux 5.14 */
                add.flags = 0;
        }
        if (r == 0) {
                r = ioctl(call->notify->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
                r = cg_result(r);
        }
        /* Fails now only if the disk or its quota does; then the caller's descriptor stays open. */
        if (r >= 0 && truncate && ftruncate(*fd, 0) < 0)
                r = -errno;
        if (r >= 0)
                cg_closep_(fd);
        return r;
}

static void on_alarm(int sig)
{
}

/* Runs in a child of init, since the other end of a FIFO may never be opened. */
static _Noreturn void wait_for_open(struct cg_med_call *call, const char *path, int flags)
{
        struct sigaction sa = { .sa_handler = on_alarm };
        struct itimerval every = { .it_interval.tv_usec = HELPER_CHECK_US,
                                   .it_value.tv_usec = HELPER_CHECK_US };
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
                if (!cg_caller_waits(call->notify, call->notif))
                        _exit(0);
                /* A pending signal that would interrupt the caller's own call. */
                status = cg_caller_status(call->tid, "\nSigPnd:", text);
                if (status &&
                    sscanf(status, "%llx ShdPnd: %llx SigBlk: %llx", &pending, &shared, &blocked) == 3 &&
                    (pending | shared) & ~blocked)
                        break;
        }
        r = fd < 0 ? -errno : install_fd(call, &fd, flags, 0111);
        cg_reply_result(call->notify, call->notif, r);
        _exit(0);
}

static int open_in_child(struct cg_med_call *call, int fd, int flags)
{
        char path[48];
        bool room = false;
        pid_t pid;

        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++)
                room |= call->mediator->helpers[i] == 0;
        if (!room)
                return -EAGAIN;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        pid = fork();
        if (pid < 0)
                return -EAGAIN;
        if (pid == 0)
                wait_for_open(call, path, flags);
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++) {
                if (call->mediator->helpers[i] == 0) {
                        call->mediator->helpers[i] = pid;
                        break;
                }
        }
        return CG_MED_ANSWERED;
}

/* Opens an existing file that is not a folder or a symlink. */
static int open_existing(struct cg_med_call *call, const struct cg_path_arg *arg, const struct stat *st,
                         int flags)
{
        int open_flags = flags & ~(O_CREAT | O_EXCL | (is_truncate_deferred(flags) ? O_TRUNC : 0));
        int r = cg_med_decide(call, arg, CG_OP_MODIFY);
        cg_auto_fd int fd = -1;
        char path[48];
        bool leased;

        if (r < 0)
                return r;
        if (S_ISFIFO(st->st_mode) && (flags & O_ACCMODE) == O_WRONLY && !(flags & O_NONBLOCK)) {
                fd = openat(arg->dir, arg->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0)
                        return -errno;
                return open_in_child(call, fd, open_flags);
        }
        fd = openat(arg->dir, arg->name,
                    (open_flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        leased = fd < 0 && errno == EWOULDBLOCK && !(flags & O_NONBLOCK); /* by another program */
        if (leased)
                fd = openat(arg->dir, arg->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        /* The file that is open: another sandbox may have given the name to another one. */
        if (cg_med_is_linked(call->mediator, fd, ""))
                return cg_med_deny(call, arg, CG_WHY_LINK);
        if (leased)
                return open_in_child(call, fd, open_flags);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (open_flags & O_TRUNC && S_ISREG(st->st_mode) && truncate(path, 0) < 0)
                return -errno;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, open_flags & ~O_NONBLOCK) < 0)
                return -errno;
        return install_fd(call, &fd, flags, st->st_mode);
}

static int open_new(struct cg_med_call *call, const struct cg_path_arg *arg, int flags, mode_t mode)
{
        cg_auto_fd int fd = -1;
        int r = cg_med_decide(call, arg, CG_OP_CREATE);
        struct stat made, st;

        if (r == 0)
                r = cg_med_decide_program(call, arg, S_IFREG | mode, 1);
        if (r == CG_MED_DENIED && cg_med_exists(arg))
                return -EEXIST;
        if (r == CG_MED_DENIED) {
                int file = cg_med_new_worktree_file(call, arg, mode, &fd);

                if (file != CG_MED_UNKNOWN)
                        return file < 0 ? file : install_fd(call, &fd, flags, mode);
        }
        if (r < 0)
                return r;
        cg_med_apply_umask(call, mode);
        /* O_EXCL does not follow symlinks. */
        fd = openat(arg->dir, arg->name, (flags & ~O_TRUNC) | O_CREAT | O_EXCL | O_NOCTTY | O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        r = cg_med_check_created(call, arg, CG_OP_CREATE, 0);
        if (r < 0)
                return r;
        r = install_fd(call, &fd, flags & ~O_TRUNC, mode);
        /* The caller had no room for the descriptor: removes the new file, if it is still there. */
        if (r < 0 && r != CG_MED_ANSWERED && fstat(fd, &made) == 0 &&
            fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == made.st_ino &&
            st.st_dev == made.st_dev)
                unlinkat(arg->dir, arg->name, 0);
        return r;
}

static int open_tmpfile(struct cg_med_call *call, int dirfd, uint64_t addr, int flags, mode_t mode)
{
        struct cg_path_arg arg = CG_PATH_ARG_NONE;
        char path[PATH_MAX];
        cg_auto_fd int dir = -1, fd = -1;
        bool ok;
        int base;

        if (!cg_med_read_path(call, addr, path))
                return CG_MED_CONTINUE;
        base = cg_med_open_base(call, dirfd, path, &ok);
        if (!ok || !cg_caller_waits(call->notify, call->notif))
                return CG_MED_CONTINUE;
        dir = cg_open_path(base >= 0 ? base : AT_FDCWD, path, O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
        if (dir < 0)
                dir = cg_med_resolve(call, base, path, true);
        if (dir < 0)
                return CG_MED_CONTINUE;
        cg_med_fd_path(dir, arg.path);
        if (cg_mediate_region(call->mediator->sb, arg.path, &arg.root) == CG_REGION_NATIVE)
                return CG_MED_CONTINUE;
        cg_med_apply_umask(call, mode);
        fd = openat(dir, ".", flags | O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        return install_fd(call, &fd, flags & ~O_TRUNC, mode);
}

/* Opens a file without a name by its descriptor, as the kernel would; O_CREAT finds it. */
static int open_unlinked(struct cg_med_call *call, int fd, const struct cg_path_arg *former, int flags)
{
        int open_flags = flags &
                         ~(O_CREAT | O_EXCL | O_NOFOLLOW | (is_truncate_deferred(flags) ? O_TRUNC : 0)),
            r;
        char path[48];
        cg_auto_fd int opened = -1;
        struct stat st;

        if (former->region == CG_REGION_NATIVE || ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)))
                return CG_MED_CONTINUE;
        r = cg_med_decide(call, former, CG_OP_MODIFY);
        if (r < 0)
                return r;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        opened = open(path, open_flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (opened < 0 || fstat(opened, &st) < 0 ||
            (!(flags & O_NONBLOCK) && fcntl(opened, F_SETFL, open_flags & ~O_NONBLOCK) < 0))
                return -errno;
        return install_fd(call, &opened, flags, st.st_mode);
}

/* If @arg is a link to such a file. CG_MED_UNKNOWN: it is not. */
static int open_link_to_unlinked(struct cg_med_call *call, const struct cg_path_arg *arg, int flags)
{
        struct cg_path_arg former = CG_PATH_ARG_NONE;
        cg_auto_fd int fd = cg_med_open_unlinked(call, arg, &former);

        return fd < 0 ? CG_MED_UNKNOWN : open_unlinked(call, fd, &former, flags);
}

int cg_med_openat(struct cg_med_call *call, int dirfd, uint64_t addr, int flags, mode_t mode)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;
        int r = CG_MED_CONTINUE;

        /* The kernel rejects the last two before it looks up the file. */
        if (flags & O_PATH || (flags & (O_CREAT | O_TMPFILE)) == (O_CREAT | O_DIRECTORY) ||
            (flags & O_TMPFILE) == (O_TMPFILE & ~O_DIRECTORY))
                return CG_MED_CONTINUE;
        if ((flags & O_TMPFILE) == O_TMPFILE)
                return open_tmpfile(call, dirfd, addr, flags, mode);
        if (!cg_med_lookup(call, dirfd, addr, &arg))
                return cg_med_lookup_error(call, &arg);
        for (int i = 0; i < CG_MED_LINKS_MAX; i++) {
                size_t len = strlen(arg.name);
                bool slash = arg.name[len - 1] == '/';
                struct stat st;

                if (slash)
                        return CG_MED_CONTINUE; /* a folder, which cannot be written */
                if (flags & O_CREAT && arg.region != CG_REGION_NATIVE) {
                        r = open_new(call, &arg, flags, mode);
                        if (r != -EEXIST || flags & O_EXCL)
                                return r;
                }
                if (fstatat(arg.dir, arg.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (arg.region == CG_REGION_NATIVE)
                                return cg_med_continue(call, &arg);
                        if (errno != ENOENT || !(flags & O_CREAT))
                                return -errno;
                        continue; /* removed meanwhile */
                }
                if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
                        return CG_MED_CONTINUE;
                if (S_ISDIR(st.st_mode))
                        return CG_MED_CONTINUE;
                if (!S_ISLNK(st.st_mode)) {
                        if (arg.region == CG_REGION_NATIVE ||
                            ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)))
                                return cg_med_continue(call, &arg);
                        r = open_existing(call, &arg, &st, flags);
                        /* Removed meanwhile by another sandbox or a program outside. */
                        if (r == -ENOENT && flags & O_CREAT && cg_caller_waits(call->notify, call->notif))
                                continue;
                        return r;
                }
                if (flags & O_NOFOLLOW)
                        return CG_MED_CONTINUE;
                r = open_link_to_unlinked(call, &arg, flags);
                if (r != CG_MED_UNKNOWN)
                        return r;
                if (!cg_med_follow_link(call, &arg))
                        return CG_MED_CONTINUE;
                r = CG_MED_CONTINUE;
        }
        return r;
}

int cg_med_truncate(struct cg_med_call *call, uint64_t addr, int64_t size)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;

        if (size < 0)
                return -EINVAL; /* the kernel rejects it before it looks up the file */
        if (!cg_med_lookup(call, AT_FDCWD, addr, &arg))
                return CG_MED_CONTINUE;
        for (int i = 0; i < CG_MED_LINKS_MAX; i++) {
                struct rlimit most;
                cg_auto_fd int fd = -1;
                struct stat st;
                int r;

                if (arg.name[strlen(arg.name) - 1] == '/' ||
                    fstatat(arg.dir, arg.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return CG_MED_CONTINUE;
                if (S_ISLNK(st.st_mode)) {
                        if (!cg_med_follow_link(call, &arg))
                                return CG_MED_CONTINUE;
                        continue;
                }
                if (!S_ISREG(st.st_mode) || arg.region == CG_REGION_NATIVE)
                        return cg_med_continue(call, &arg);
                r = cg_med_decide(call, &arg, CG_OP_MODIFY);
                if (r < 0)
                        return r;
                fd = openat(arg.dir, arg.name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0)
                        return -errno;
                if (cg_med_is_linked(call->mediator, fd, ""))
                        return cg_med_deny(call, &arg, CG_WHY_LINK);
                /* The caller's own limit: init has none. Unreadable: the file does not grow. */
                if (size > st.st_size && prlimit(call->tid, RLIMIT_FSIZE, NULL, &most) < 0)
                        return -errno;
                if (size > st.st_size && (uint64_t)size > most.rlim_cur) {
                        /*
                         * In this order: a signal could interrupt the call, which would start
                         * again.
                         */
                        cg_reply_result(call->notify, call->notif, -EFBIG);
                        syscall(SYS_tkill, call->tid, SIGXFSZ);
                        return CG_MED_ANSWERED;
                }
                return cg_med_result(ftruncate(fd, (off_t)size));
        }
        return CG_MED_CONTINUE;
}
