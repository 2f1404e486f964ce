/*
 * Finds the owner of a unix socket in the file system: the kernel reports which network namespace
 * the socket bound there belongs to. One of the sandbox's namespace was made inside. Runs in init.
 */
#include "sandbox/inside/doors.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

#include "base/util.h"

#define REPLY_MAX 65536

static bool is_this(const struct nlmsghdr *h, dev_t dev, ino_t ino)
{
        size_t at = NLMSG_LENGTH(sizeof(struct unix_diag_msg));
        struct rtattr a;

        for (; at + sizeof(a) <= h->nlmsg_len; at += RTA_ALIGN(a.rta_len)) {
                const char *p = (const char *)h + at;
                struct unix_diag_vfs v;

                memcpy(&a, p, sizeof(a));
                if (a.rta_len < sizeof(a) || a.rta_len > h->nlmsg_len - at)
                        return false;
                if (a.rta_type != UNIX_DIAG_VFS || a.rta_len < RTA_LENGTH(sizeof(v)))
                        continue;
                memcpy(&v, p + RTA_LENGTH(0), sizeof(v));
                /* The kernel's own format of device numbers; inode numbers are cut to 32 bits. */
                return (v.udiag_vfs_dev >> 20) == major(dev) && (v.udiag_vfs_dev & 0xfffff) == minor(dev) &&
                       v.udiag_vfs_ino == (uint32_t)ino;
        }
        return false;
}

bool cg_unix_listens_here(dev_t dev, ino_t ino)
{
        static const struct {
                struct nlmsghdr h;
                struct unix_diag_req r;
        } request = {
                .h = { .nlmsg_len = sizeof(request),
                       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
                .r = { .sdiag_family = AF_UNIX,
                       .udiag_states = 1u << TCP_LISTEN,
                       .udiag_show = UDIAG_SHOW_VFS },
        };
        static const struct timeval soon = { .tv_sec = 2 };
        char buf[REPLY_MAX] __attribute__((aligned(8)));
        bool found = false, done = false;
        int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

        if (fd < 0)
                return false;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
        done = send(fd, &request, sizeof(request), 0) != (ssize_t)sizeof(request);
        while (!done) {
                ssize_t n = recv(fd, buf, sizeof(buf), 0);
                const struct nlmsghdr *h;

                if (n <= 0)
                        break;
                for (size_t at = 0; at + sizeof(*h) <= (size_t)n && !done; at += NLMSG_ALIGN(h->nlmsg_len)) {
                        h = (const void *)(buf + at);
                        done = h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR ||
                               h->nlmsg_len < sizeof(*h) || h->nlmsg_len > (size_t)n - at;
                        found |= !done && is_this(h, dev, ino);
                }
        }
        close(fd);
        return found;
}
