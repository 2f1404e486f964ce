/* File descriptors and files. Linked into every process. */
#include "base/fd.h"

#include <linux/openat2.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include "base/buf.h"
#include "base/text.h"

static int64_t read_clock_ms(clockid_t id)
{
        struct timespec t;

        clock_gettime(id, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t cg_now_ms(void)
{
        return read_clock_ms(CLOCK_MONOTONIC);
}

void cg_pause_ms(int ms)
{
        nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

struct cg_budget cg_budget_start(int64_t cpu_ms, int64_t clock_ms)
{
        return (struct cg_budget){ read_clock_ms(CLOCK_THREAD_CPUTIME_ID) + cpu_ms, cg_now_ms() + clock_ms };
}

bool cg_budget_is_spent(const struct cg_budget *b)
{
        return read_clock_ms(CLOCK_THREAD_CPUTIME_ID) > b->cpu_end_ms || cg_now_ms() > b->end_ms;
}

/* A socket for the address @path, which is copied to @a. */
static int unix_socket(const char *path, int flags, struct sockaddr_un *a, struct cg_err *err)
{
        int fd;

        *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(a->sun_path))
                return cg_fail(err, CG_E_LIMIT, "socket path is too long (%zu bytes, at most %zu): %s",
                               strlen(path), sizeof(a->sun_path) - 1, path);
        memcpy(a->sun_path, path, strlen(path) + 1);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
        if (fd < 0)
                return cg_fail_errno(err, "socket");
        return fd;
}

int cg_listen_unix(const char *path, int backlog, int *ret, struct cg_err *err)
{
        struct sockaddr_un a;
        cg_auto_fd int fd = unix_socket(path, 0, &a, err);

        if (fd < 0)
                return fd;
        if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
                return cg_fail_errno(err, "cannot bind %s", path);
        /* The folder is 0700 already; this keeps the socket closed if somebody opens the folder. */
        if (chmod(path, 0600) < 0)
                return cg_fail_errno(err, "chmod %s", path);
        if (listen(fd, backlog) < 0)
                return cg_fail_errno(err, "cannot listen on %s", path);
        *ret = cg_steal_fd(&fd);
        return 0;
}

/* @timeout_ms: -1 does not wait at all. */
static int connect_unix(const char *path, int64_t timeout_ms, int *ret, struct cg_err *err)
{
        /* Linux applies it to the wait for room in the listener's queue. */
        const struct timeval limit = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 + 1 };
        int flags = timeout_ms < 0 ? SOCK_NONBLOCK : 0;
        struct sockaddr_un a;
        cg_auto_fd int fd = unix_socket(path, flags, &a, err);

        if (fd < 0)
                return fd;
        if (timeout_ms >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
                return cg_fail_errno(err, "socket");
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
                return cg_fail_errno(err, "cannot connect to %s", path);
        if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
                return cg_fail_errno(err, "fcntl");
        *ret = cg_steal_fd(&fd);
        return 0;
}

int cg_connect_unix_now(const char *path, int *ret, struct cg_err *err)
{
        return connect_unix(path, -1, ret, err);
}

int cg_connect_own(const char *path, int64_t timeout_ms, int *ret, struct cg_err *err)
{
        struct ucred cred;
        socklen_t len = sizeof(cred);
        cg_auto_fd int fd = -1;
        int r = connect_unix(path, timeout_ms, &fd, err);

        if (r < 0)
                return r;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != geteuid())
                return cg_fail(err, CG_E_INVAL, "%s is another user's", path);
        *ret = cg_steal_fd(&fd);
        return 0;
}

int cg_send_fds(int sock, const void *data, size_t len, const int *fds, size_t n_fds, struct cg_err *err)
{
        union {
                struct cmsghdr h;
                char space[CMSG_SPACE(sizeof(int) * CG_MAX_FDS)];
        } control = { 0 };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t n;

        if (n_fds > CG_MAX_FDS)
                return cg_fail(err, CG_E_LIMIT, "at most %d descriptors in one message", CG_MAX_FDS);
        if (n_fds) {
                struct cmsghdr *c;

                m.msg_control = control.space;
                m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
                memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }
        do
                n = sendmsg(sock, &m, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return cg_fail_errno(err, "sendmsg");
        return 0;
}

static size_t take_fds(struct msghdr *m, int *fds, size_t room, bool *too_many)
{
        size_t n = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                size_t count;

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < count; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (n < room) {
                                fds[n++] = fd;
                        } else {
                                close(fd);
                                *too_many = true;
                        }
                }
        }
        return n;
}

ssize_t cg_recv_fds(int sock, void *data, size_t size, int *fds, size_t *n_fds, struct cg_err *err)
{
        union {
                struct cmsghdr h;
                char space[CMSG_SPACE(sizeof(int) * CG_MAX_FDS)];
        } control;
        struct iovec iov = { .iov_base = data, .iov_len = size };
        struct msghdr m = { .msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.space,
                            .msg_controllen = sizeof(control.space) };
        size_t room = *n_fds;
        bool too_many = false;
        ssize_t n;

        do
                n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return cg_fail_errno(err, "recvmsg");
        *n_fds = take_fds(&m, fds, room, &too_many);
        if (too_many || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
                for (size_t i = 0; i < *n_fds; i++)
                        close(fds[i]);
                *n_fds = 0;
                return cg_fail(err, CG_E_LIMIT, "message of more than %zu bytes or %zu descriptors", size,
                               room);
        }
        return n;
}

int cg_pidfd_open(pid_t pid, struct cg_err *err)
{
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);

        if (fd < 0)
                return cg_fail_errno(err, "pidfd_open");
        return fd;
}

pid_t cg_pidfd_pid(int pidfd)
{
        cg_auto_free char *text = NULL;
        const char *line;
        char path[48];
        size_t len;
        long pid;

        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        if (cg_read_file(path, 4096, &text, &len, NULL) < 0)
                return 0;
        line = strstr(text, "\nPid:");
        pid = line ? strtol(line + 5, NULL, 10) : 0;
        return pid > 0 ? (pid_t)pid : 0;
}

int cg_pidfd_kill(int pidfd, int sig)
{
        return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

int cg_wait_fd(int fd, short events, int64_t timeout_ms, struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms;

        for (;;) {
                struct pollfd p = { .fd = fd, .events = events };
                int64_t left = timeout_ms < 0 ? -1 : CG_MAX(end - cg_now_ms(), 0);
                int n = poll(&p, 1, (int)CG_MIN(left, 1000000));

                if (n > 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return cg_fail_errno(err, "poll");
                if (n == 0 && timeout_ms >= 0 && cg_now_ms() >= end)
                        return CG_TIMEOUT;
        }
}

int cg_write_all(int fd, const void *data, size_t len, struct cg_err *err)
{
        const char *p = data;

        while (len) {
                ssize_t n = write(fd, p, len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cg_fail_errno(err, "write");
                p += n;
                len -= (size_t)n;
        }
        return 0;
}

int cg_pipe_to_file(int pipe, int fd, size_t n, struct cg_err *err)
{
        char data[16 << 10];

        while (n) {
                ssize_t r = splice(pipe, NULL, fd, NULL, n, SPLICE_F_MOVE);

                if (r < 0 && errno == EINVAL) { /* with O_APPEND, and in some file systems */
                        r = read(pipe, data, CG_MIN(n, sizeof(data)));
                        if (r > 0 && cg_write_all(fd, data, (size_t)r, err) < 0)
                                return -1;
                }
                if (r < 0 && errno != EINTR)
                        return cg_fail_errno(err, "write");
                if (r == 0)
                        return cg_fail(err, CG_E_CLOSED, "write: the pipe has ended");
                n -= r > 0 ? (size_t)r : 0;
        }
        return 0;
}

int cg_read_fd_within(int fd, const char *what, size_t max, int64_t timeout_ms, char **ret, size_t *len,
                      struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms;
        cg_auto_buf struct cg_buf b = { .max = max };
        char *p;

        for (;;) {
                size_t room = CG_MIN(max - b.len, 65536);
                char extra;
                ssize_t n;
                int r = timeout_ms < 0 ? 0 : cg_wait_fd(fd, POLLIN, CG_MAX(end - cg_now_ms(), 0), err);

                if (r != 0)
                        return r;
                if (!room) { /* The buffer is full: check for further data. */
                        n = read(fd, &extra, 1);
                        if (n > 0)
                                return cg_fail(err, CG_E_LIMIT, "%s is longer than %zu bytes", what, max);
                } else {
                        if (cg_buf_reserve(&b, room, &p, err) < 0)
                                return -1;
                        n = read(fd, p, room);
                }
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cg_fail_errno(err, "cannot read %s", what);
                if (n == 0)
                        break;
                b.len += (size_t)n;
        }
        cg_buf_terminate(&b);
        p = cg_buf_steal(&b, len);
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "%s", what);
        *ret = p;
        return 0;
}

int cg_read_fd(int fd, const char *what, size_t max, char **ret, size_t *len, struct cg_err *err)
{
        return cg_read_fd_within(fd, what, max, -1, ret, len, err);
}

static int replace_file(int dir, const char *path, const void *text, size_t len, unsigned mode, bool wait,
                        struct cg_err *err)
{
        char fresh[PATH_MAX], random[17];
        cg_auto_fd int fd = -1;
        int r = cg_random_hex(random, 8, err);

        if (r < 0)
                return r;
        if (snprintf(fresh, sizeof(fresh), "%s.%s", path, random) >= (int)sizeof(fresh))
                return cg_fail(err, CG_E_LIMIT, "the path %s is too long", path);
        fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "%s", fresh);
        r = cg_write_all(fd, text, len, err);
        if (r == 0 && (fchmod(fd, mode) < 0 || (wait && fsync(fd) < 0)))
                r = cg_fail_errno(err, "%s", fresh);
        if (r == 0 && renameat(dir, fresh, dir, path) < 0)
                r = cg_fail_errno(err, "%s", path);
        if (r < 0)
                unlinkat(dir, fresh, 0);
        return r;
}

int cg_write_atomically(const char *path, const void *text, size_t len, unsigned mode, struct cg_err *err)
{
        return replace_file(AT_FDCWD, path, text, len, mode, true, err);
}

int cg_write_atomically_at(int dir, const char *path, const void *text, size_t len, unsigned mode,
                           struct cg_err *err)
{
        return replace_file(dir, path, text, len, mode, true, err);
}

int cg_write_cache(const char *path, const void *text, size_t len, unsigned mode, struct cg_err *err)
{
        return replace_file(AT_FDCWD, path, text, len, mode, false, err);
}

int cg_lock_fd(int fd, int64_t timeout_ms, const atomic_bool *stop, struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms;

        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK && errno != EINTR)
                        return cg_fail_errno(err, "flock");
                if (cg_now_ms() >= end)
                        return CG_TIMEOUT;
                if (stop && atomic_load(stop))
                        return cg_fail(err, CG_E_CLOSED, "cancelled");
                cg_pause_ms(10);
        }
        return 0;
}

int cg_lock_file(const char *path, int64_t timeout_ms, const atomic_bool *stop, int *ret, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (fd < 0)
                return cg_fail_errno(err, "%s", path);
        r = cg_lock_fd(fd, timeout_ms, stop, err);
        if (r == 0)
                *ret = cg_steal_fd(&fd);
        return r;
}

int cg_read_file(const char *path, size_t max, char **ret, size_t *len, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return cg_fail_errno(err, "cannot open %s", path);
        return cg_read_fd(fd, path, max, ret, len, err);
}

int cg_read_regular(const char *path, size_t max, char **ret, size_t *len, struct cg_err *err)
{
        /* O_NONBLOCK: a FIFO would have the caller wait for its writer. */
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "cannot open %s", path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "%s is not a regular file", path);
        return cg_read_fd(fd, path, max, ret, len, err);
}

/* Absolute, and has no empty part, ".", ".." or "/" at its end. */
static bool is_plain(const char *path)
{
        size_t n = strlen(path);

        return path[0] == '/' && n > 1 && n < PATH_MAX && path[n - 1] != '/' && path[n - 1] != '.' &&
               !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../");
}

static bool is_out_of_reach(int error)
{
        return error == ENOENT || error == ENOTDIR || error == EACCES || error == ENAMETOOLONG;
}

bool cg_real_path(const char *path, char ret[PATH_MAX])
{
        static const char gone[] = " (deleted)";
        const struct open_how no_links = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
        cg_auto_fd int fd = -1;
        char link[40];
        size_t len;
        ssize_t n;

        /* Most have no links on the way, and a look into /proc costs as much as all the rest. */
        if (is_plain(path)) {
                fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &no_links, sizeof(no_links));
                if (fd >= 0) {
                        strcpy(ret, path);
                        return true;
                }
                if (is_out_of_reach(errno))
                        return false;
        }
        fd = open(path, O_PATH | O_CLOEXEC);
        if (fd < 0 && (is_out_of_reach(errno) || errno == ELOOP))
                return false;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = fd < 0 ? -1 : readlink(link, ret, PATH_MAX - 1);
        len = n > 0 ? (size_t)n : 0;
        ret[len] = '\0';
        /* There is no /proc, no free descriptor, or the file was removed meanwhile. */
        if (ret[0] != '/' || len == PATH_MAX - 1 ||
            (len >= sizeof(gone) && !strcmp(ret + len - (sizeof(gone) - 1), gone)))
                return realpath(path, ret) != NULL;
        return true;
}

bool cg_make_own_dir(const char *path)
{
        struct stat st;

        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return false;
        return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
}

int cg_runtime_parent(const char *prefix, char *buf, size_t size, struct cg_err *err)
{
        const char *base = getenv("XDG_RUNTIME_DIR");
        struct stat st;
        int n;

        /*
         * A long base would push socket paths over their limit of 107 bytes. In a base that others
         * can write to, they could replace our folder by theirs.
         */
        if (!base || base[0] != '/' || strlen(base) > 60 || stat(base, &st) < 0 || !S_ISDIR(st.st_mode) ||
            st.st_uid != geteuid() || ((st.st_mode & 022) && !(st.st_mode & S_ISVTX)) ||
            access(base, W_OK) < 0)
                base = "/tmp";
        n = snprintf(buf, size, "%s/%s-%u", base, prefix, (unsigned)geteuid());
        if (n < 0 || (size_t)n >= size)
                return cg_fail(err, CG_E_LIMIT, "path of the runtime folder is too long");
        return 0;
}

int cg_make_runtime_dir(const char *prefix, char *buf, size_t size, struct cg_err *err)
{
        if (cg_runtime_parent(prefix, buf, size - 8, err) < 0)
                return -1;
        /* When another user has taken the name, the folder is made next to it. */
        strcat(buf, cg_make_own_dir(buf) ? "/XXXXXX" : "-XXXXXX");
        if (!mkdtemp(buf))
                return cg_fail_errno(
                        err, "cannot make the runtime folder %s (set XDG_RUNTIME_DIR to a folder of yours)",
                        buf);
        return 0;
}

/* An account such as "nobody" has none, on purpose. */
static bool is_in_missing_home(const char *path)
{
        const char *home = getenv("HOME");
        size_t n = home ? strlen(home) : 0;
        struct stat st;

        while (n && home[n - 1] == '/')
                n--;
        return n && strncmp(path, home, n) == 0 && (path[n] == '/' || !path[n]) && stat(home, &st) < 0 &&
               errno == ENOENT;
}

int cg_make_dirs(const char *path, unsigned mode, struct cg_err *err)
{
        cg_auto_free char *copy = strdup(path);

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "%s", path);
        if (is_in_missing_home(path))
                return cg_fail(
                        err, CG_E_NOTFOUND,
                        "cannot make the folder %s: the home folder (HOME) is missing and cellgate makes "
                        "none; set HOME to one that exists",
                        path);
        for (char *p = copy + 1; *p; p++) {
                if (*p != '/')
                        continue;
                *p = '\0';
                if (mkdir(copy, mode) < 0 && errno != EEXIST)
                        return cg_fail_errno(err, "cannot make the folder %s", copy);
                *p = '/';
        }
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
                return cg_fail_errno(err, "cannot make the folder %s", copy);
        return 0;
}

/*
 * The tree may have been made by a hostile program, with folders nested deeper than PATH_MAX and
 * without permissions. Folders are therefore not removed by recursion: files are unlinked,
 * subfolders are moved into the topmost folder and emptied there.
 */
struct tree {
        int top;
        dev_t dev;
        unsigned long moved; /* names given to moved folders so far */
        /* deadline: another process may create files as fast as they are removed */
        int64_t end_ms;
        bool late;
};

static bool is_late(struct tree *t)
{
        if (!t->late && cg_now_ms() >= t->end_ms)
                t->late = true;
        return t->late;
}

static bool is_dots(const char *name)
{
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* True when it is gone; errno is EISDIR for a folder that is not empty. */
static bool remove_entry(int dir, const char *name)
{
        if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
                return true;
        if (errno != EISDIR)
                return false;
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
                return true;
        errno = EISDIR;
        return false;
}

/* A failure shows in the call that follows. */
static void unlock(int dir, const char *name)
{
        int e = fchmodat(dir, name, 0700, AT_SYMLINK_NOFOLLOW);

        (void)e;
}

static bool move_up(struct tree *t, int dir, const char *name)
{
        char to[40];

        unlock(dir, name); /* moving a folder changes its "..", which needs write permission on it */
        do
                snprintf(to, sizeof(to), ".cellgate-%lu", t->moved++);
        while (renameat(dir, name, t->top, to) < 0 &&
               (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) && !is_late(t));
        return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* Empties a folder of the topmost one: unlinks its files, moves its subfolders up. */
static bool remove_folder(struct tree *t, const char *name)
{
        const struct dirent *d;
        bool all = true;
        struct stat st;
        DIR *dir;
        int fd;

        unlock(t->top, name);
        fd = openat(t->top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != t->dev || !(dir = fdopendir(fd))) {
                cg_closep_(&fd);
                return false;
        }
        while ((d = readdir(dir)) && !is_late(t)) {
                if (!is_dots(d->d_name) && !remove_entry(fd, d->d_name))
                        all &= errno == EISDIR && move_up(t, fd, d->d_name);
        }
        closedir(dir);
        return unlinkat(t->top, name, AT_REMOVEDIR) == 0 && all;
}

/* Goes through the topmost folder once; returns the number of entries that were removed. */
static size_t remove_pass(struct tree *t, DIR *dir, bool *left)
{
        const struct dirent *d;
        size_t gone = 0;

        *left = false;
        rewinddir(dir);
        while ((d = readdir(dir)) && !is_late(t)) {
                if (is_dots(d->d_name))
                        continue;
                if (remove_entry(t->top, d->d_name) || (errno == EISDIR && remove_folder(t, d->d_name)))
                        gone++;
                else
                        *left = true;
        }
        return gone;
}

int cg_remove_tree(const char *path, struct cg_err *err)
{
        return cg_remove_tree_within(path, CG_REMOVE_MS, err);
}

int cg_remove_tree_within(const char *path, int64_t timeout_ms, struct cg_err *err)
{
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct tree t = { .top = fd, .end_ms = cg_now_ms() + timeout_ms };
        struct stat st;
        DIR *dir;
        bool left;

        if (fd < 0 && errno == EACCES) {
                unlock(AT_FDCWD, path);
                t.top = fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (fd < 0 && (errno == ENOENT || ((errno == ENOTDIR || errno == ELOOP) && unlink(path) == 0)))
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0 || !(dir = fdopendir(fd))) {
                cg_closep_(&fd);
                return cg_fail_errno(err, "cannot remove %s", path);
        }
        t.dev = st.st_dev;
        unlock(AT_FDCWD, path);
        while (remove_pass(&t, dir, &left) && !t.late)
                ;
        closedir(dir);
        if (rmdir(path) < 0 && errno != ENOENT && t.late)
                return cg_fail(
                        err, CG_E_TIMEDOUT,
                        "cannot remove %s in %lld s: it has too many files, or another process still makes files in it",
                        path, (long long)timeout_ms / 1000);
        if (rmdir(path) < 0 && errno != ENOENT)
                return cg_fail_errno(err, "cannot remove %s", path);
        return 0;
}
