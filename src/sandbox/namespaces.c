/* Setup of new namespaces: user maps, loopback interface, ports. Runs in init. */
#include "sandbox/steps.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "sandbox/apparmor.h"

static int write_file(const char *path, const char *text, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd >= 0 && write(fd, text, strlen(text)) >= 0)
                return 0;
        /* AppArmor allows the namespace, but without capabilities in it. */
        if ((errno == EACCES || errno == EPERM) && cg_apparmor_restricts()) {
                errno = EPERM;
                return cg_fail_errno(err, "sandbox: new user namespace%s", CG_APPARMOR_HINT);
        }
        return cg_fail_errno(err, "sandbox: writing %s", path);
}

/*
 * Maps the caller's own ids to themselves, all others to nobody. setgroups is disabled, since
 * leaving a group could give access.
 */
int cg_ns_map_ids(uid_t uid, gid_t gid, struct cg_err *err)
{
        char text[64];

        if (write_file("/proc/self/setgroups", "deny", err) < 0)
                return -1;
        snprintf(text, sizeof(text), "%u %u 1", uid, uid);
        if (write_file("/proc/self/uid_map", text, err) < 0)
                return -1;
        snprintf(text, sizeof(text), "%u %u 1", gid, gid);
        return write_file("/proc/self/gid_map", text, err);
}

/* Loopback is the only interface; programs inside reach each other at 127.0.0.1 and ::1. */
int cg_ns_loopback_up(struct cg_err *err)
{
        cg_auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq req = { .ifr_flags = IFF_UP };

        memcpy(req.ifr_name, "lo", sizeof("lo"));
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
                return cg_fail_errno(err, "sandbox: loopback interface");
        return 0;
}

/* Connections that wait while the proxy starts or is busy. */
#define BACKLOG 1024

/* Listens at all addresses of both families, or only of IPv4 if IPv6 is disabled. */
static int listen_at(uint16_t port)
{
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                                   .sin6_port = htons(port),
                                   .sin6_addr = IN6ADDR_ANY_INIT };
        struct sockaddr_in v4 = { .sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_ANY) };
        cg_auto_fd int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int off = 0;

        if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
            bind(fd, (struct sockaddr *)&v6, sizeof(v6)) == 0 && listen(fd, BACKLOG) == 0)
                return cg_steal_fd(&fd);
        cg_closep_(&fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&v4, sizeof(v4)) < 0 || listen(fd, BACKLOG) < 0)
                return -1;
        return cg_steal_fd(&fd);
}

int cg_ns_send_ports(const struct cg_spawn *sp, struct cg_err *err)
{
        int fds[CG_SANDBOX_PORTS_MAX] = { 0 }, r = 0;
        size_t n = 0;

        for (; n < sp->sb->set.n_ports && r == 0; n++) {
                fds[n] = listen_at(sp->sb->set.ports[n]);
                if (fds[n] < 0)
                        r = cg_fail_errno(err, "sandbox: port %u", sp->sb->set.ports[n]);
        }
        if (r >= 0)
                r = cg_send_fds(sp->ports_fd, "p", 1, fds, n, err);
        while (n--)
                cg_closep_(&fds[n]);
        return r;
}
