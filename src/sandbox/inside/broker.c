/*
 * See broker.h. Runs in init: without Landlock and filter, as the caller's own user without
 * capabilities, like the processes it serves.
 */
#include "sandbox/inside/broker.h"

#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <utime.h>

#include "base/fd.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/mountfd.h"
#include "sandbox/inside/access.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"
#include "sandbox/plan.h"
#include "sandbox/setid.h"

/* Longest wait for a connection to itself through the loopback interface. */
#define LOOPBACK_MS 1000
/* Connections of other programs to the listening port that are dropped before giving up. */
#define FOREIGN_MAX 64

struct broker_call {
        const struct cg_broker *broker; /* NULL in the full tier */
        struct cg_mediator *mediator;   /* of the full tier, where names are protected; else NULL */
        struct cg_notify *notify;
        const struct seccomp_notif *notif;
        bool denied;         /* by a rule of the sandbox: it is reported */
        const char *setting; /* that rule's; NULL: a protected name */
        char path[PATH_MAX]; /* what was denied, where that is a path */
};

/* ---- the caller: its memory, its descriptors */

/* 0 or -errno. */
static int read_memory(const struct broker_call *c, uint64_t at, void *buf, size_t len)
{
        int r = cg_caller_read(c->notif, at, buf, len);

        if (r < 0)
                return r;
        return cg_caller_waits(c->notify, c->notif) ? 0 : -ESRCH;
}

/* Paths by which libc names a descriptor where a call takes paths. In init "self" would be init. */
static bool is_own_fd(const char *path, int *fd)
{
        static const char *const ways[] = { "/proc/self/fd/", "/dev/fd/", "/proc/thread-self/fd/" };

        for (size_t i = 0; i < CG_ARRAY_LEN(ways); i++) {
                const char *number = path + strlen(ways[i]);
                size_t n;

                if (strncmp(path, ways[i], strlen(ways[i])) != 0)
                        continue;
                n = strspn(number, "0123456789");
                if (!n || n > 9 || number[n])
                        return false;
                *fd = (int)strtol(number, NULL, 10);
                return true;
        }
        return false;
}

/* Opens (O_PATH) the file of the arguments: that descriptor is checked, then changed. Or -errno. */
static int open_target(struct broker_call *c, int dirfd, uint64_t at, int flags)
{
        char path[PATH_MAX];
        int base, fd;

        if (c->mediator)
                return cg_mediate_open_target(c->mediator, c->notify, c->notif, dirfd, at, flags, c->path);
        fd = at ? cg_caller_read_path(c->notif, at, path) : 0;
        if (fd == 0 && at && !cg_caller_waits(c->notify, c->notif))
                fd = -ESRCH;
        if (fd < 0)
                return fd;
        if (!at || (!path[0] && (flags & AT_EMPTY_PATH)))
                return cg_caller_open(c->notify, c->notif, dirfd);
        if (is_own_fd(path, &fd))
                return cg_caller_open(c->notify, c->notif, fd);
        base = path[0] == '/' ? AT_FDCWD : cg_caller_open(c->notify, c->notif, dirfd);
        if (base < 0 && base != AT_FDCWD)
                return base;
        fd = cg_open_path(base, path, flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0, RESOLVE_NO_MAGICLINKS);
        if (fd < 0)
                fd = -errno;
        if (base >= 0)
                close(base);
        return fd;
}

/* ---- attributes of files */

/* The arguments of all these calls. */
struct change {
        int dirfd;
        uint64_t path; /* 0: dirfd itself */
        int flags;
        enum { MODE, OWNER, TIMES } what;
        mode_t mode;
        uid_t uid;
        gid_t gid;
        struct timespec times[2];
        bool now;
};

static int apply(struct broker_call *c, struct change *ch)
{
        cg_auto_fd int fd = -1;
        int r = open_target(c, ch->dirfd, ch->path, ch->flags);
        char link[48];
        struct stat st;
        ssize_t n;

        if (r < 0)
                return r;
        fd = r;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (!c->path[0]) {
                n = readlink(link, c->path, sizeof(c->path) - 1);
                c->path[CG_MAX(n, 0)] = '\0';
                if (n < 0) /* ENAMETOOLONG: no rule can be applied to it */
                        return -errno;
        }
        if (c->mediator)
                c->denied = !cg_mediate_may_change(c->mediator, fd, c->path, &c->setting);
        else
                c->denied = c->path[0] != '/' ||
                            (c->broker && cg_grants_state(c->broker->sb->grants, c->path) != CG_GRANT_WRITE);
        if (c->denied)
                return -EACCES;
        switch (ch->what) {
        case MODE:
                if (fstat(fd, &st) < 0)
                        return -errno;
                if (S_ISLNK(st.st_mode))
                        return -EOPNOTSUPP;
                ch->mode &= 07777;
                c->denied = ch->mode & S_ISUID || (ch->mode & S_ISGID && !S_ISDIR(st.st_mode));
                if (c->denied)
                        return -EPERM;
                c->denied = c->mediator && S_ISREG(st.st_mode) && !(st.st_mode & 0111) &&
                            !cg_mediate_may_run(c->mediator, c->path, S_IFREG | ch->mode);
                c->setting = CG_WHY_PATH;
                if (c->denied)
                        return -EACCES;
                r = (int)syscall(CG_SYS_FCHMODAT2, fd, "", ch->mode, AT_EMPTY_PATH);
                if (r < 0 && (errno == ENOSYS || errno == EPERM)) /* before Linux 6.6, or in a container */
                        r = chmod(link, ch->mode);
                return cg_result(r);
        case OWNER:
                return cg_result(fchownat(fd, "", ch->uid, ch->gid, AT_EMPTY_PATH));
        default:
                return cg_result(syscall(SYS_utimensat, fd, "", ch->now ? NULL : ch->times, AT_EMPTY_PATH));
        }
}

static int do_mode(struct broker_call *c)
{
        const uint64_t *a = (const uint64_t *)c->notif->data.args;
        struct change ch = { .what = MODE, .dirfd = AT_FDCWD };
        cg_auto_fd int fd = -1;

        switch (c->notif->data.nr) {
#ifdef SYS_chmod
        case SYS_chmod:
                ch.path = a[0];
                ch.mode = (mode_t)a[1];
                break;
#endif
        case SYS_fchmod:
                ch.dirfd = (int)a[0];
                ch.mode = (mode_t)a[1];
                if (ch.dirfd < 0)
                        return -EBADF;
                if (c->mediator)
                        fd = cg_mediate_take_writer(c->mediator, c->notify, c->notif, ch.dirfd, ch.mode);
                if (fd < 0)
                        return apply(c, &ch);
                return cg_result(fchmod(fd, ch.mode));
        default: /* fchmodat, which has no flags, and fchmodat2 */
                ch.dirfd = (int)a[0];
                ch.path = a[1];
                ch.mode = (mode_t)a[2];
                ch.flags = c->notif->data.nr == SYS_fchmodat ? 0 : (int)a[3];
        }
        return ch.path ? apply(c, &ch) : -EFAULT;
}

static int do_owner(struct broker_call *c)
{
        const uint64_t *a = (const uint64_t *)c->notif->data.args;
        struct change ch = {
                .what = OWNER, .dirfd = AT_FDCWD, .path = a[0], .uid = (uid_t)a[1], .gid = (gid_t)a[2]
        };

        switch (c->notif->data.nr) {
#ifdef SYS_lchown
        case SYS_lchown:
                ch.flags = AT_SYMLINK_NOFOLLOW;
                break;
#endif
        case SYS_fchown:
                ch.dirfd = (int)a[0];
                ch.path = 0;
                return ch.dirfd < 0 ? -EBADF : apply(c, &ch);
        case SYS_fchownat:
                ch = (struct change){ .what = OWNER,
                                      .dirfd = (int)a[0],
                                      .path = a[1],
                                      .uid = (uid_t)a[2],
                                      .gid = (gid_t)a[3],
                                      .flags = (int)a[4] };
                break;
        default:
                break;
        }
        return ch.path ? apply(c, &ch) : -EFAULT;
}

/* Times in seconds and microseconds, of the older calls. */
static int read_timevals(const struct broker_call *c, uint64_t at, struct change *ch)
{
        struct timeval tv[2];
        int r = at ? read_memory(c, at, tv, sizeof(tv)) : 0;

        ch->now = !at;
        for (size_t i = 0; i < 2 && at && r == 0; i++) {
                if (tv[i].tv_usec < 0 || tv[i].tv_usec >= 1000000)
                        return -EINVAL;
                ch->times[i] = (struct timespec){ .tv_sec = tv[i].tv_sec, .tv_nsec = tv[i].tv_usec * 1000 };
        }
        return r;
}

static int do_times(struct broker_call *c)
{
        const uint64_t *a = (const uint64_t *)c->notif->data.args;
        struct change ch = { .what = TIMES, .dirfd = AT_FDCWD, .path = a[0] };
#ifdef SYS_utime
        struct utimbuf b = { 0 };
#endif
        int r;

        switch (c->notif->data.nr) {
#ifdef SYS_utime
        case SYS_utime:
                r = a[1] ? read_memory(c, a[1], &b, sizeof(b)) : 0;
                ch.now = !a[1];
                ch.times[0].tv_sec = b.actime;
                ch.times[1].tv_sec = b.modtime;
                break;
#endif
#ifdef SYS_utimes
        case SYS_utimes:
                r = read_timevals(c, a[1], &ch);
                break;
#endif
#ifdef SYS_futimesat
        case SYS_futimesat:
                ch.dirfd = (int)a[0];
                ch.path = a[1];
                r = read_timevals(c, a[2], &ch);
                break;
#endif
        default: /* utimensat, whose path may be NULL */
                ch.dirfd = (int)a[0];
                ch.path = a[1];
                ch.flags = (int)a[3];
                ch.now = !a[2];
                r = a[2] ? read_memory(c, a[2], ch.times, sizeof(ch.times)) : 0;
        }
        if (r == 0 && !ch.path && ch.dirfd < 0)
                return ch.dirfd == AT_FDCWD ? -EFAULT : -EBADF;
        return r ?: apply(c, &ch);
}

/* ---- connections */

union address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        char space[128];
};

/* The index of the proxy's port that @a names, or the -errno of an empty network. */
static int find_port(const struct cg_broker *b, const union address *a, size_t len)
{
        uint16_t port;
        bool loopback;

        if (a->any.sa_family == AF_INET && len >= sizeof(a->v4)) {
                port = ntohs(a->v4.sin_port);
                loopback = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
        } else if (a->any.sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6) - sizeof(uint32_t)) {
                port = ntohs(a->v6.sin6_port);
                loopback = IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr) ||
                           (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr) && a->v6.sin6_addr.s6_addr[12] == 127);
        } else {
                return -EAFNOSUPPORT;
        }
        for (size_t i = 0; i < b->sb->set.n_ports && loopback; i++)
                if (b->sb->set.ports[i] == port)
                        return (int)i;
        return loopback ? -ECONNREFUSED : -ENETUNREACH;
}

/*
 * Both ends of one TCP connection, which no other program has. Not a socketpair: programs set TCP
 * options on their socket and ask for its address.
 */
static int tcp_pair(int *client, int *server)
{
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) },
                           own = { 0 };
        cg_auto_fd int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        cg_auto_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        socklen_t len = sizeof(at), own_len = sizeof(own);
        int64_t deadline;

        if (listener < 0 || fd < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
            listen(listener, 8) < 0 || getsockname(listener, (struct sockaddr *)&at, &len) < 0)
                return -1;
        if (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0 && errno != EINPROGRESS)
                return -1;
        if (getsockname(fd, (struct sockaddr *)&own, &own_len) < 0)
                return -1;
        /* Connections of other programs are dropped. */
        deadline = cg_now_ms() + LOOPBACK_MS;
        for (int i = 0; i < FOREIGN_MAX; i++) {
                int64_t left = deadline - cg_now_ms();
                struct pollfd p = { .fd = listener, .events = POLLIN };
                struct sockaddr_in peer = { 0 };
                cg_auto_fd int other = -1;

                len = sizeof(peer);
                if (left <= 0 || poll(&p, 1, (int)left) <= 0)
                        return -1;
                other = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (other >= 0 && peer.sin_port == own.sin_port &&
                    peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
                        *client = cg_steal_fd(&fd);
                        *server = cg_steal_fd(&other);
                        return 0;
                }
        }
        return -1;
}

/* Flags of the caller's descriptor; fdinfo includes O_CLOEXEC. */
static int descriptor_flags(const struct broker_call *c, int fd)
{
        char name[32], text[256];
        unsigned int flags = 0;
        const char *line;

        snprintf(name, sizeof(name), "fdinfo/%d", fd);
        cg_caller_proc_text((pid_t)c->notif->pid, name, text, sizeof(text));
        line = strstr(text, "flags:");
        if (!line || sscanf(line, "flags: %o", &flags) != 1)
                return -EBADF;
        return (int)(flags & (O_NONBLOCK | O_CLOEXEC));
}

static int do_connect(struct broker_call *c)
{
        const uint64_t *a = (const uint64_t *)c->notif->data.args;
        struct seccomp_notif_addfd add = { .id = c->notif->id, .flags = SECCOMP_ADDFD_FLAG_SETFD };
        cg_auto_fd int client = -1, server = -1, copy = -1;
        union address addr = { .space = { 0 } };
        int port, flags, fd = (int)a[0], r;
        struct stat st;

        copy = fd < 0 ? -EBADF : cg_caller_open(c->notify, c->notif, fd);
        if (copy < 0)
                return copy;
        if (fstat(copy, &st) < 0 || !S_ISSOCK(st.st_mode))
                return -ENOTSOCK;
        cg_closep_(&copy);
        if (a[2] < sizeof(sa_family_t) || a[2] > sizeof(addr))
                return -EINVAL;
        r = read_memory(c, a[1], addr.space, (size_t)a[2]);
        if (r < 0)
                return r;
        port = find_port(c->broker, &addr, (size_t)a[2]);
        c->denied = port == -ENETUNREACH;
        if (port < 0)
                return port;
        flags = descriptor_flags(c, fd);
        if (flags < 0)
                return flags;
        if (tcp_pair(&client, &server) < 0)
                return -ECONNREFUSED;
        /* The proxy's end first: if it ended or its queue is full, the connection is refused. */
        if (cg_send_fds(c->broker->proxies + port, "c", 1, &server, 1, NULL) < 0)
                return -ECONNREFUSED;
        if (!(flags & O_NONBLOCK) && fcntl(client, F_SETFL, 0) < 0)
                return -errno;
        add.srcfd = (uint32_t)client;
        add.newfd = (uint32_t)fd;
        add.newfd_flags = (uint32_t)(flags & O_CLOEXEC);
        return ioctl(c->notify->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : 0;
}

/* ---- calls */

static const struct broker_handler {
        int nr;
        int (*run)(struct broker_call *c); /* 0 or -errno */
} handlers[] = {
#ifdef SYS_chmod
        { SYS_chmod, do_mode },      { SYS_chown, do_owner },    { SYS_lchown, do_owner },
#endif
#ifdef SYS_utime
        { SYS_utime, do_times },
#endif
#ifdef SYS_utimes
        { SYS_utimes, do_times },
#endif
#ifdef SYS_futimesat
        { SYS_futimesat, do_times },
#endif
        { SYS_fchmod, do_mode },     { SYS_fchmodat, do_mode },  { CG_SYS_FCHMODAT2, do_mode },
        { SYS_fchown, do_owner },    { SYS_fchownat, do_owner }, { SYS_utimensat, do_times },
        { SYS_connect, do_connect },
};

static void answer(struct broker_call *c, int r)
{
        struct cg_path_denial p = { .path = c->path,
                                    .access = CG_ACCESS_WRITE,
                                    .rule = c->setting ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NAME,
                                    .setting = c->setting };

        if (c->denied && !(c->mediator && r == -EACCES)) {
                cg_reply_deny(c->notify, c->notif, -r, cg_or_null(c->path));
                return;
        }
        if (c->denied)
                cg_reply_report(c->notify, c->notif, &p);
        cg_reply_result(c->notify, c->notif, r);
}

/* NULL: not one of the broker's calls. */
static const struct broker_handler *find_handler(int nr)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(handlers); i++)
                if (handlers[i].nr == nr)
                        return &handlers[i];
        return NULL;
}

void cg_broker_mode(struct cg_notify *n, const struct seccomp_notif *call)
{
        static const char *const what[] = { "ns/mnt", "root" };
        struct broker_call c = { .notify = n, .notif = call, .denied = n->foreign_proc };
        struct stat its, own;
        char path[48];

        /* The caller must have init's mounts and root, so that a path means the same to both. */
        for (size_t i = 0; i < CG_ARRAY_LEN(what) && !c.denied; i++) {
                snprintf(path, sizeof(path), "/proc/%d/%s", (int)call->pid, what[i]);
                c.denied = stat(path, &its) < 0;
                if (c.denied)
                        break;
                snprintf(path, sizeof(path), "/proc/self/%s", what[i]);
                c.denied = stat(path, &own) < 0 || its.st_dev != own.st_dev || its.st_ino != own.st_ino;
        }
        answer(&c, c.denied ? -EPERM : do_mode(&c));
}

bool cg_broker_attributes(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call)
{
        struct broker_call c = { .mediator = m, .notify = n, .notif = call };
        const struct broker_handler *h = m->sb ? find_handler(call->data.nr) : NULL;

        if (!h || h->run != do_mode)
                return false;
        answer(&c, h->run(&c));
        return true;
}

bool cg_broker_handle(const struct cg_broker *b, struct cg_notify *n, const struct seccomp_notif *call)
{
        struct broker_call c = { .broker = b, .notify = n, .notif = call };
        const struct broker_handler *h = find_handler(call->data.nr);

        if (!h)
                return false;
        answer(&c, h->run(&c));
        return true;
}
