/*
 * Doors, inside: init replies to connect() and listen() of programs in the sandbox. If some unix
 * sockets are allowed every connect() comes here, since a filter cannot see the socket's family.
 *
 * The caller may change its memory, its descriptors and the file system meanwhile, so nothing is
 * read twice: the socket is copied (pidfd_getfd) and the address read once, a path is opened once,
 * and the file that was opened is checked and connected to. The call never continues in the kernel,
 * which would read everything again.
 */
#include "sandbox/inside/doors.h"

#include <linux/openat2.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/fd.h"
#include "sandbox/mountfd.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"

#define PIDFD_OF_THREAD \
        O_EXCL /* Linux 6.9; before, the process is opened, whose threads mostly share its descriptors */
#define ASK_MS     10000  /* cellgate-egress only checks files */
#define CONNECT_MS 130000 /* how long TCP itself tries */
#define BACKLOG_MS 60000  /* a server that does not accept */
#define CHECK_MS   1000   /* interval of checks whether callers still wait: a killed one is not reported */
#define RETRY_MS   20     /* interval of retries: room in the queue is not reported */

void cg_doors_init(struct cg_doors *d, int sock, unsigned int open)
{
        memset(d, 0, sizeof(*d));
        d->sock = sock;
        d->open = open;
}

/* ---- the caller */

/* A copy of the caller's descriptor @fd, or -errno. */
static int take_socket(const struct seccomp_notif *call, int fd)
{
        pid_t tid = (pid_t)call->pid;
        int pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_OF_THREAD), sock;

        if (pidfd < 0 && errno == EINVAL) {
                pid_t process = cg_caller_process(tid); /* negative where /proc does not show it */

                pidfd = (int)syscall(SYS_pidfd_open, process > 0 ? process : tid, 0);
        }
        if (pidfd < 0)
                return -EPERM;
        sock = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
        if (sock < 0)
                sock = errno == EBADF ? -EBADF : -EPERM;
        close(pidfd);
        return sock;
}

static int option(int sock, int name)
{
        int v = -1;
        socklen_t len = sizeof(v);

        return getsockopt(sock, SOL_SOCKET, name, &v, &len) < 0 ? -1 : v;
}

/* ---- calls that wait */

static void drop_call(struct cg_door_call *c)
{
        int flags = c->blocking ? fcntl(c->sock, F_GETFL) : -1;

        if (flags >= 0)
                fcntl(c->sock, F_SETFL, flags & ~O_NONBLOCK);
        cg_closep_(&c->sock);
        cg_closep_(&c->target);
        c->state = CG_CALL_FREE;
}

static void finish(struct cg_door_call *c, int error)
{
        struct seccomp_notif call = c->call;

        drop_call(c); /* restores blocking mode before the caller continues */
        cg_reply_result(c->notify, &call, -error);
}

static void refuse(struct cg_door_call *c)
{
        struct seccomp_notif call = c->call;

        drop_call(c);
        /* The C library's own attempt before it looks up a user or a group is not reported. */
        if (strcmp(c->path, "/var/run/nscd/socket") == 0 || strcmp(c->path, "/run/nscd/socket") == 0)
                cg_reply_result(c->notify, &call, -EPERM);
        else
                cg_reply_deny(c->notify, &call, EPERM, cg_or_null(c->path));
}

/* Connects without waiting, since init serves other calls as well. */
static void connect_now(struct cg_doors *d, struct cg_door_call *c, const struct sockaddr *a, socklen_t len)
{
        int flags = fcntl(c->sock, F_GETFL), error;

        if (c->state == CG_CALL_FREE || c->state == CG_CALL_ASKED) {
                c->blocking = flags >= 0 && !(flags & O_NONBLOCK);
                if (c->blocking)
                        fcntl(c->sock, F_SETFL, flags | O_NONBLOCK);
        }
        error = cg_error_of(connect(c->sock, a, len));
        if (c->blocking && (error == EINPROGRESS || error == EALREADY)) {
                c->state = CG_CALL_CONNECTING;
                c->deadline_ms = cg_now_ms() + CONNECT_MS;
        } else if (c->blocking && error == EAGAIN && c->target >= 0) {
                if (c->state != CG_CALL_FULL)
                        c->deadline_ms = cg_now_ms() + BACKLOG_MS;
                c->state = CG_CALL_FULL;
        } else {
                finish(c, error);
        }
}

/* Takes @target, which has been checked. */
static void connect_to(struct cg_doors *d, struct cg_door_call *c, int target)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };

        c->target = target;
        snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", target);
        connect_now(d, c, (struct sockaddr *)&a, sizeof(a));
}

/* ---- unix sockets */

static void connect_unix(struct cg_doors *d, struct cg_door_call *c, const struct sockaddr_storage *a,
                         socklen_t len)
{
        const struct sockaddr_un *un = (const struct sockaddr_un *)a;
        size_t n = len > offsetof(struct sockaddr_un, sun_path) ? len - offsetof(struct sockaddr_un, sun_path)
                                                                : 0;
        struct cg_door_msg m = { .type = CG_DOOR_WANT_UNIX };
        char given[sizeof(*a) + 1], link[64];
        int target, type = option(c->sock, SO_TYPE);
        struct stat st;
        ssize_t cwd = 0;

        /*
         * A datagram socket that was received from elsewhere could be connected again, or be used
         * without connect().
         */
        if (type != SOCK_STREAM && type != SOCK_SEQPACKET) {
                refuse(c);
                return;
        }
        if (a->ss_family != AF_UNIX || n > sizeof(un->sun_path)) {
                finish(c, EINVAL);
                return;
        }
        /* Abstract names belong to the network namespace. */
        if (n == 0 || !un->sun_path[0]) {
                connect_now(d, c, (const struct sockaddr *)a, len);
                return;
        }
        memcpy(given, un->sun_path, n);
        given[n] = '\0';
        if (given[0] != '/') {
                snprintf(link, sizeof(link), "/proc/%u/cwd", c->call.pid);
                cwd = c->notify->foreign_proc ? -1 : readlink(link, m.path, sizeof(m.path) - 1);
                if (cwd <= 0 || m.path[0] != '/') {
                        finish(c, EPERM);
                        return;
                }
        }
        if ((size_t)cwd + strlen(given) + 2 > sizeof(m.path)) {
                finish(c, ENAMETOOLONG);
                return;
        }
        snprintf(m.path + cwd, sizeof(m.path) - (size_t)cwd, "%s%s", cwd ? "/" : "", given);
        memcpy(c->path, m.path, strnlen(m.path, sizeof(c->path) - 1)); /* zeroed before */
        /* As the caller's own connect() would open it, in the view that both have. */
        target = cg_open_path(AT_FDCWD, m.path, 0, RESOLVE_NO_MAGICLINKS);
        /* Sockets that were made inside may be used. */
        if (target >= 0 && fstat(target, &st) == 0 && S_ISSOCK(st.st_mode) &&
            cg_unix_listens_here(st.st_dev, st.st_ino)) {
                connect_to(d, c, target);
                return;
        }
        c->missing = cg_error_of(target);
        cg_closep_(&target);
        /* Asks cellgate-egress, which has the list. */
        m.id = c->id = ++d->next_id;
        c->state = CG_CALL_ASKED;
        c->deadline_ms = cg_now_ms() + ASK_MS;
        if (cg_send_fds(d->sock, &m, sizeof(m), NULL, 0, NULL) < 0)
                refuse(c);
}

void cg_doors_connect(struct cg_notify *n, const struct seccomp_notif *call)
{
        uint32_t len = (uint32_t)call->data.args[2];
        struct cg_doors *d = n->doors;
        struct sockaddr_storage a = { .ss_family = AF_UNSPEC };
        struct cg_door_call *c = NULL;
        int sock, error, domain;

        if (!d || !(d->open & CG_DOOR_UNIX)) {
                cg_reply_deny(n, call, EPERM, NULL);
                return;
        }
        sock = take_socket(call, (int)call->data.args[0]);
        if (sock < 0)
                error = sock;
        else if (len > sizeof(a) || len < sizeof(a.ss_family))
                error = -EINVAL;
        else
                error = cg_caller_read(call, call->data.args[1], &a, len);
        if (!cg_caller_waits(n, call)) {
                cg_closep_(&sock);
                return;
        }
        for (size_t i = 0; i < CG_DOORS_WAITING && !error && !c; i++)
                if (d->calls[i].state == CG_CALL_FREE)
                        c = &d->calls[i];
        if (!c) {
                if (sock >= 0)
                        close(sock);
                cg_reply_result(n, call, error ?: -EAGAIN);
                return;
        }
        *c = (struct cg_door_call){ .notify = n, .call = *call, .sock = sock, .target = -1 };
        domain = option(sock, SO_DOMAIN);
        if (domain == AF_UNIX)
                connect_unix(d, c, &a, len);
        else if (domain == AF_INET || domain == AF_INET6)
                connect_now(d, c, (struct sockaddr *)&a, len);
        else if (domain < 0)
                finish(c, ENOTSOCK);
        else
                refuse(c);
}

/* ---- listening */

void cg_doors_listen(struct cg_notify *n, const struct seccomp_notif *call)
{
        struct cg_doors *d = n->doors;
        struct cg_door_msg m = { .type = CG_DOOR_LISTENS };
        cg_auto_fd int sock = -1;
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);
        int error = 0,
            r = d && d->open & CG_DOOR_LISTEN ? take_socket(call, (int)call->data.args[0]) : -EPERM;

        if (r < 0) {
                cg_reply_result(n, call, r);
                return;
        }
        sock = r;
        if (cg_caller_waits(n, call)) {
                error = cg_error_of(listen(sock, (int)call->data.args[1]));
                /* The port is reported to cellgate-egress. */
                if (!error && option(sock, SO_TYPE) == SOCK_STREAM &&
                    getsockname(sock, (struct sockaddr *)&a, &len) == 0) {
                        if (a.ss_family == AF_INET)
                                m.value = ntohs(((struct sockaddr_in *)&a)->sin_port);
                        else if (a.ss_family == AF_INET6)
                                m.value = ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
                        if (m.value)
                                cg_send_fds(d->sock, &m, CG_DOOR_SHORT, NULL, 0, NULL);
                }
        }
        cg_closep_(&sock); /* before the caller continues */
        cg_reply_result(n, call, -error);
}

/* ---- messages of cellgate-egress */

/* Completes the call that waits for the answer @m. True if @fd was taken. */
static bool take_answer(struct cg_doors *d, const struct cg_door_msg *m, int fd)
{
        for (size_t i = 0; i < CG_DOORS_WAITING; i++) {
                struct cg_door_call *c = &d->calls[i];

                if (c->state != CG_CALL_ASKED || c->id != m->id)
                        continue;
                if (fd >= 0)
                        connect_to(d, c, fd);
                else if (m->value == EPERM && c->missing)
                        finish(c, c->missing); /* no denial: programs try several paths */
                else if (m->value == EPERM)
                        refuse(c);
                else
                        finish(c, m->value ?: ECONNREFUSED);
                return fd >= 0;
        }
        return false;
}

/* False: the connection is closed. */
static bool take_message(struct cg_doors *d)
{
        struct cg_door_msg m, reply = { .type = CG_DOOR_SOCKET };
        struct cg_err err = { 0 };
        size_t n = 1;
        int fd = -1;
        ssize_t len = cg_recv_fds(d->sock, &m, sizeof(m), &fd, &n, &err);

        if (len < 0 && (err.sys_errno == EAGAIN || err.sys_errno == EINTR))
                return true;
        if (len <= 0)
                return false;
        if (!n)
                fd = -1;
        if (len == CG_DOOR_SHORT && m.type == CG_DOOR_WANT_SOCKET) {
                cg_auto_fd int made = m.value == AF_INET || m.value == AF_INET6
                                              ? socket(m.value, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
                                              : -1;

                reply.id = m.id;
                reply.value = cg_error_of(made);
                cg_send_fds(d->sock, &reply, CG_DOOR_SHORT, &made, made >= 0, NULL);
        } else if (len == CG_DOOR_SHORT && m.type == CG_DOOR_UNIX_IS && take_answer(d, &m, fd)) {
                fd = -1;
        }
        cg_closep_(&fd);
        return true;
}

/* ---- in init's loop */

size_t cg_doors_poll(const struct cg_doors *d, struct pollfd fds[CG_DOORS_FDS])
{
        size_t last = 0;

        fds[0] = (struct pollfd){ .fd = d->sock, .events = POLLIN };
        for (size_t i = 0; i < CG_DOORS_WAITING; i++) {
                const struct cg_door_call *c = &d->calls[i];

                fds[i + 1] = (struct pollfd){ .fd = c->state == CG_CALL_CONNECTING ? c->sock : -1,
                                              .events = POLLOUT };
                if (c->state != CG_CALL_FREE)
                        last = i + 1;
        }
        return last + 1;
}

int cg_doors_timeout(const struct cg_doors *d)
{
        int64_t now = cg_now_ms(), left = -1;

        for (size_t i = 0; i < CG_DOORS_WAITING; i++) {
                const struct cg_door_call *c = &d->calls[i];
                int64_t mine = c->state == CG_CALL_FULL ? RETRY_MS : c->deadline_ms - now;

                if (c->state == CG_CALL_FREE)
                        continue;
                if (mine < 0)
                        mine = 0;
                if (mine > CHECK_MS)
                        mine = CHECK_MS;
                if (left < 0 || mine < left)
                        left = mine;
        }
        return (int)left;
}

void cg_doors_work(struct cg_doors *d, const struct pollfd fds[CG_DOORS_FDS])
{
        if (fds[0].revents && d->sock >= 0 && !take_message(d))
                d->sock = -1; /* cellgate-egress has ended: further calls are refused */
        for (size_t i = 0; i < CG_DOORS_WAITING; i++) {
                struct cg_door_call *c = &d->calls[i];
                const struct pollfd *fd = &fds[i + 1];

                if (c->state == CG_CALL_FREE)
                        continue;
                if (!cg_caller_waits(c->notify, &c->call)) /* the caller was interrupted or killed */
                        drop_call(c);
                else if (c->state == CG_CALL_CONNECTING && fd->fd == c->sock && fd->revents)
                        finish(c, option(c->sock, SO_ERROR) & 0xfff);
                else if (cg_now_ms() >= c->deadline_ms)
                        finish(c, ETIMEDOUT);
                else if (c->state == CG_CALL_FULL)
                        connect_to(d, c, c->target);
        }
}
