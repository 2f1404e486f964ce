/* Sockets that do not go through the proxy. Runs inside the sandbox. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define WAIT_MS 700

static struct sockaddr_un unix_address(const char *path, socklen_t *len)
{
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        bool abstract = path[0] == '@';

        snprintf(to.sun_path + abstract, sizeof(to.sun_path) - abstract, "%s", path + abstract);
        *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + !abstract);
        return to;
}

static enum cg_verdict unix_connect(struct cg_try *t, const struct cg_attempt *a)
{
        const char *path = cg_scene(t, a->arg);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct sockaddr_un to;
        socklen_t len;

        if (!path)
                return cg_skip(t, "the scene has no %s", a->arg);
        to = unix_address(path, &len);
        return cg_refused(t, fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, len));
}

static enum cg_verdict unix_send(struct cg_try *t, const struct cg_attempt *a)
{
        int sv[2] = { -1, -1 };
        struct sockaddr_un to;
        socklen_t len;

        to = unix_address(cg_scene(t, "unix_dgram"), &len);
        if (a->call[0] && socketpair(AF_UNIX, (int)a->call[0], 0, sv) < 0)
                return cg_refused(t, -1);
        if (!a->call[0])
                sv[0] = socket(AF_UNIX, SOCK_DGRAM, 0);
        return cg_refused(t,
                          sv[0] < 0 ? -1 : sendto(sv[0], "x", 1, MSG_DONTWAIT, (struct sockaddr *)&to, len));
}

/* A stream of a pair whose other end is closed, connected to another socket. */
static enum cg_verdict unix_reconnect(struct cg_try *t, const struct cg_attempt *a)
{
        struct sockaddr_un to;
        socklen_t len;
        int sv[2];

        to = unix_address(cg_scene(t, "unix_stream"), &len);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0)
                return cg_fails(t, "no pair: %s", cg_errno_name(errno));
        close(sv[1]);
        if (connect(sv[0], (struct sockaddr *)&to, len) < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_hole(t, "connected");
}

static enum cg_verdict unix_bind(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un to;
        socklen_t len;
        long r;

        to = unix_address("trap.sock", &len);
        r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&to, len);
        if (r == 0)
                unlink("trap.sock");
        return cg_refused(t, r);
}

static enum cg_verdict pair_works(struct cg_try *t, const struct cg_attempt *a)
{
        char byte = 'x';
        int sv[2];

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0 || write(sv[0], &byte, 1) != 1 ||
            read(sv[1], &byte, 1) != 1)
                return cg_fails(t, "%s", cg_errno_name(errno));
        return cg_works(t, "%s", "");
}

/* ---- Internet */
static socklen_t inet_address(const char *text, unsigned port, struct sockaddr_storage *ret)
{
        struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

        memset(ret, 0, sizeof(*ret));
        if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
                v4->sin_family = AF_INET;
                v4->sin_port = htons((uint16_t)port);
                return sizeof(*v4);
        }
        if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1)
                return 0;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return sizeof(*v6);
}

static bool is_unreachable(int error)
{
        return error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL || error == EPERM ||
               error == EACCES || error == EAFNOSUPPORT;
}

/* No packet may leave, even if nothing replies. @refusal: the host's own address would reply. */
static enum cg_verdict tcp(struct cg_try *t, const char *text, unsigned port, bool refusal)
{
        struct sockaddr_storage to;
        socklen_t len = inet_address(text, port, &to), size = sizeof(int);
        int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
        struct pollfd p = { .fd = fd, .events = POLLOUT };

        if (fd < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        if (connect(fd, (struct sockaddr *)&to, len) < 0)
                error = errno;
        if (error == EINPROGRESS && poll(&p, 1, WAIT_MS) == 1 &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                error = errno;
        if (is_unreachable(error) || (refusal && error == ECONNREFUSED))
                return cg_held(t, "%s", cg_errno_name(error));
        if (error)
                return cg_hole(t, "packets leave: %s",
                               error == EINPROGRESS ? "no answer yet" : cg_errno_name(error));
        return cg_hole(t, "connected");
}

static enum cg_verdict tcp_to(struct cg_try *t, const struct cg_attempt *a)
{
        return tcp(t, a->arg, (unsigned)a->call[0], false);
}

/* Listeners of the test, on the host's addresses. */
static enum cg_verdict tcp_to_host(struct cg_try *t, const struct cg_attempt *a)
{
        const char *address = cg_scene(t, a->arg);
        unsigned port = (unsigned)cg_scene_number(t, a->arg2);

        if (!address || !port)
                return cg_skip(t, "this machine has no such address");
        return tcp(t, address, port, true);
}

static enum cg_verdict udp_to(struct cg_try *t, const struct cg_attempt *a)
{
        struct sockaddr_storage to;
        socklen_t len = inet_address(a->arg, (unsigned)a->call[0], &to);
        int fd = socket(to.ss_family, SOCK_DGRAM, 0);

        if (fd < 0 || sendto(fd, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&to, len) < 0)
                return cg_hole_if(t, !is_unreachable(errno), cg_errno_name(errno), cg_errno_name(errno));
        return cg_hole(t, "a packet left");
}

static enum cg_verdict udp_to_host(struct cg_try *t, const struct cg_attempt *a)
{
        struct sockaddr_storage to;
        socklen_t len = inet_address("127.0.0.1", (unsigned)cg_scene_number(t, "port_udp"), &to);
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        char byte;

        if (fd < 0 || connect(fd, (struct sockaddr *)&to, len) < 0 || send(fd, "x", 1, 0) < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        if (poll(&p, 1, WAIT_MS) == 1 && recv(fd, &byte, 1, 0) == 1)
                return cg_hole(t, "it answered");
        return cg_held(t, "no answer");
}

/* The machine's resolvers, queried directly: a name can carry a secret out. */
static enum cg_verdict dns(struct cg_try *t, const struct cg_attempt *a)
{
        static const unsigned char question[] =
                "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x08selftest\x07"
                "example\x00\x00\x01\x00\x01";
        char buf[8192], *save = NULL, address[64];
        long n = cg_slurp("/etc/resolv.conf", buf, sizeof(buf));
        int asked = 0;

        for (char *line = n < 0 ? NULL : strtok_r(buf, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
                struct sockaddr_storage to;
                socklen_t len;
                int fd;

                if (sscanf(line, "nameserver %63s", address) != 1 || !(len = inet_address(address, 53, &to)))
                        continue;
                asked++;
                fd = socket(to.ss_family, SOCK_DGRAM, 0);
                if (fd >= 0 && connect(fd, (struct sockaddr *)&to, len) == 0 &&
                    send(fd, question, sizeof(question) - 1, 0) > 0) {
                        struct pollfd p = { .fd = fd, .events = POLLIN };

                        if (poll(&p, 1, WAIT_MS) == 0 || recv(fd, buf, sizeof(buf), 0) > 0)
                                return cg_hole(t, "a question left for %s", address);
                }
        }
        if (asked)
                return cg_held(t, "%d resolvers, none within reach", asked);
        return cg_held(t, "there is no resolver");
}

/* One dump as by getifaddrs(), which must show loopback only. */
static enum cg_verdict links(struct cg_try *t, const struct cg_attempt *a)
{
        struct {
                struct nlmsghdr h;
                struct rtgenmsg g;
        } ask = { .h = { .nlmsg_len = sizeof(ask),
                         .nlmsg_type = RTM_GETLINK,
                         .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), n_links = 0;
        _Alignas(struct nlmsghdr) char buf[65536];
        ssize_t n;

        if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0)
                return a->allow ? cg_fails(t, "%s", cg_errno_name(errno)) : cg_filtered(t, -1);
        while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
                struct nlmsghdr *h;

                for (size_t at = 0; at + sizeof(*h) <= (size_t)n; at += NLMSG_ALIGN(h->nlmsg_len)) {
                        h = (struct nlmsghdr *)(void *)(buf + at);
                        if (h->nlmsg_len < sizeof(*h))
                                break;
                        if (h->nlmsg_type == NLMSG_DONE) {
                                n = 0;
                                break;
                        }
                        n_links += h->nlmsg_type == RTM_NEWLINK;
                }
                if (n == 0)
                        break;
        }
        if (a->allow)
                return cg_works_if(t, n_links, "no interface is shown");
        return n_links > 1 ? cg_hole(t, "%d interfaces", n_links) : cg_held(t, "only loopback");
}

static enum cg_verdict own_loopback(struct cg_try *t, const struct cg_attempt *a)
{
        struct sockaddr_storage to;
        socklen_t len = inet_address(a->arg, 0, &to);
        int server = socket(to.ss_family, SOCK_STREAM, 0), client = socket(to.ss_family, SOCK_STREAM, 0);

        if (server < 0 || bind(server, (struct sockaddr *)&to, len) < 0 || listen(server, 1) < 0 ||
            getsockname(server, (struct sockaddr *)&to, &len) < 0 ||
            connect(client, (struct sockaddr *)&to, len) < 0)
                return errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT
                               ? cg_skip(t, "%s", cg_errno_name(errno))
                               : cg_fails(t, "%s", cg_errno_name(errno));
        return cg_works(t, "%s", "");
}

static const struct cg_attempt attempts[] = {
/* EINVAL: denied by a profile of Docker or containerd. The others: this Linux has none of it. */
#define FAMILY_(name, layer, who, what, ...) \
        CG_DENY(name, layer, cg_try_call, what, .bare = CG_BARE_##who, .call = { SYS_socket, __VA_ARGS__ }, \
                .also = { EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EINVAL })
#define FAMILY(name, who, what, ...) FAMILY_(name, "seccomp", who, what, __VA_ARGS__)
        FAMILY("socket-unix-stream", ALL, "AF_UNIX sockets", AF_UNIX, SOCK_STREAM, 0),
        FAMILY("socket-unix-dgram", ALL, "AF_UNIX datagrams", AF_UNIX, SOCK_DGRAM, 0),
        FAMILY("socket-vsock", MACHINE, "AF_VSOCK, which knows no namespaces", AF_VSOCK, SOCK_STREAM, 0),
        FAMILY("socket-packet", ROOT, "AF_PACKET", AF_PACKET, SOCK_RAW, 0),
        FAMILY("socket-bluetooth", MACHINE, "AF_BLUETOOTH", AF_BLUETOOTH, SOCK_RAW, 0),
        FAMILY("socket-alg", MACHINE, "AF_ALG, the kernel's cryptography", AF_ALG, SOCK_SEQPACKET, 0),
        FAMILY("socket-key", MACHINE, "AF_KEY", AF_KEY, SOCK_RAW, 2),
        FAMILY("socket-can", MACHINE, "AF_CAN", AF_CAN, SOCK_RAW, 1),
        FAMILY("socket-tipc", MACHINE, "AF_TIPC", AF_TIPC, SOCK_STREAM, 0),
        FAMILY("socket-xdp", MACHINE, "AF_XDP", AF_XDP, SOCK_RAW, 0),
        FAMILY("socket-rds", MACHINE, "AF_RDS", AF_RDS, SOCK_SEQPACKET, 0),
        FAMILY("netlink-uevent", ALL, "netlink: the kernel's device events", AF_NETLINK, SOCK_RAW,
               NETLINK_KOBJECT_UEVENT),
        FAMILY("netlink-sockets", MACHINE, "netlink: other processes' sockets", AF_NETLINK, SOCK_RAW,
               NETLINK_SOCK_DIAG),
        FAMILY("netlink-audit", MACHINE, "netlink: audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT),
        FAMILY("netlink-netfilter", MACHINE, "netlink: firewall rules", AF_NETLINK, SOCK_RAW,
               NETLINK_NETFILTER),
        FAMILY("netlink-generic", ALL, "netlink: generic, with all that registers there", AF_NETLINK,
               SOCK_RAW, NETLINK_GENERIC),
        FAMILY("netlink-xfrm", MACHINE, "netlink: IPsec", AF_NETLINK, SOCK_RAW, NETLINK_XFRM),
        FAMILY("socket-sctp", MACHINE, "SCTP: a socket call that would load a module", AF_INET, SOCK_STREAM,
               132),
        FAMILY("socket-mptcp", MACHINE, "MPTCP", AF_INET, SOCK_STREAM, 262),
        FAMILY_("socket-raw", "capabilities|seccomp", ROOT, "raw IP sockets", AF_INET, SOCK_RAW, 1),
#undef FAMILY
#undef FAMILY_
#define UNIX(name, layer, run, what, ...) \
        CG_DENY(name, layer, run, what, .also = { ECONNREFUSED }, __VA_ARGS__)
        UNIX("unix-path", "seccomp", unix_connect, "a host program's socket by its path",
             .arg = "unix_stream"),
        UNIX("unix-abstract", "seccomp|net|landlock", unix_connect, "a host program's abstract socket",
             .arg = "unix_abstract"),
        UNIX("unix-docker", "seccomp", unix_connect, "the container engine's or session bus's socket",
             .bare = CG_BARE_MACHINE, .arg = "unix_known"),
        UNIX("unix-datagram", "seccomp", unix_send, "a datagram to a host program's socket"),
        UNIX("unix-pair-datagram", "seccomp", unix_send, "the same from a pair of datagram sockets",
             .call = { SOCK_DGRAM }),
        UNIX("unix-pair-raw", "seccomp", unix_send, "the same from a pair of SOCK_RAW", .call = { SOCK_RAW }),
#undef UNIX
        CG_DENY("unix-pair-reconnect", "seccomp", unix_reconnect, "a stream of a pair, connected again",
                .bare = CG_BARE_NONE),
        CG_DENY("unix-bind", "seccomp", unix_bind, "a socket in the workspace for host programs"),
        CG_ALLOW("unix-pair", pair_works, "a pair of streams can be used"),
#define NET(name, run, what, ...) CG_DENY(name, "net|seccomp|broker", run, what, __VA_ARGS__)
        NET("tcp-host-loopback", tcp_to_host, "a listener on the host's 127.0.0.1", .arg = "loopback4",
            .arg2 = "port_denied"),
        NET("tcp-host-loopback6", tcp_to_host, "a listener on the host's ::1", .bare = CG_BARE_MACHINE,
            .arg = "loopback6", .arg2 = "port_denied6"),
        NET("tcp-host-address", tcp_to_host, "a listener on the host's own address", .bare = CG_BARE_MACHINE,
            .arg = "host_address", .arg2 = "port_host"),
        NET("tcp-metadata", tcp_to, "a cloud's metadata service", .bare = CG_BARE_MACHINE,
            .arg = "169.254.169.254", .call = { 80 }),
        NET("tcp-outside", tcp_to, "an address of the Internet", .bare = CG_BARE_MACHINE, .arg = "192.0.2.1",
            .call = { 443 }),
        NET("tcp-outside6", tcp_to, "an IPv6 address", .bare = CG_BARE_MACHINE, .arg = "2001:db8::1",
            .call = { 443 }),
        NET("udp-host", udp_to_host, "a UDP service on the host's loopback"),
        NET("udp-dns", udp_to, "a name server anywhere", .bare = CG_BARE_MACHINE, .arg = "192.0.2.53",
            .call = { 53 }),
        NET("udp-multicast", udp_to, "everybody in the local network", .bare = CG_BARE_MACHINE,
            .arg = "224.0.0.251", .call = { 5353 }),
        NET("dns-resolver", dns, "the machine's name servers", .bare = CG_BARE_MACHINE),
        NET("netlink-links", links, "the host's interfaces by netlink", .bare = CG_BARE_MACHINE),
#undef NET
        CG_ALLOW("netlink-route", links, "own interfaces can be listed"),
        CG_ALLOW("tcp-own-loopback", own_loopback, "a server of its own on 127.0.0.1", .arg = "127.0.0.1"),
        CG_ALLOW("tcp-own-loopback6", own_loopback, "a server of its own on ::1", .arg = "::1"),
};

CG_TABLE(sockets, "sockets");
