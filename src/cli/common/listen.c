/* Addresses at which a program listens. See listen.h. */
#include "cli/common/listen.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include "base/slice.h"
#include "cli/common/opts.h"

#define BACKLOG 128

int cg_listen_parse(const char *option, const char *text, struct cg_host *host, uint16_t *port,
                    struct cg_err *err)
{
        const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
        struct cg_slice name = CG_SLICE("127.0.0.1");
        int n;

        if (colon)
                name = (struct cg_slice){ text, (size_t)(colon - text) };
        if (cg_opt_int("the port", digits, 0, 65535, &n, err) < 0 ||
            cg_host_parse(name.p, name.len, host, err) < 0)
                return cg_err_prefix(err, "%s must be HOST:PORT, not \"%s\"", option, text);
        if (cg_host_is_loopback_name(host) && cg_host_parse("127.0.0.1", 9, host, err) < 0)
                return -1;
        if (!host->is_addr)
                return cg_fail(err, CG_E_INVAL,
                               "%s %s: give an address of this machine, as 192.0.2.1:%d, or 0.0.0.0 for all",
                               option, text, n);
        *port = (uint16_t)n;
        return 0;
}

int cg_listen_tcp(const char *option, const struct cg_host *host, uint16_t *port, int *ret,
                  struct cg_err *err)
{
        struct sockaddr_storage a;
        socklen_t len = cg_addr_to_sockaddr(&host->addr, *port, &a);
        cg_auto_fd int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        char where[CG_AUTHORITY_MAX];
        int one = 1;

        cg_host_authority(host, *port, 0, where, sizeof(where));
        /* SO_REUSEADDR: a former server's connections in TIME_WAIT do not block the port. */
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
            bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, BACKLOG) < 0 ||
            getsockname(fd, (struct sockaddr *)&a, &len) < 0)
                return cg_fail_errno(err, "%s %s", option, where);
        /* The port is at the same place for both families. */
        *port = ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
        *ret = cg_steal_fd(&fd);
        return 0;
}
