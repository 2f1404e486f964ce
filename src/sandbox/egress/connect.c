/*
 * Standard input and output through a sandbox's proxy, for programs that take a command in place of
 * a connection: ssh's ProxyCommand. Runs inside the sandbox, with its rights; a refusal of the
 * proxy is reported on standard error, in its words.
 */
#include "sandbox/egress/internal.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "sandbox/egress/http.h"

static int fail(const char *what, const char *why)
{
        fprintf(stderr, "cellgate-egress: %s: %s\n", what, why);
        return 1;
}

static int dial(const char *proxy)
{
        static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
        cg_auto_free char *host = strdup(proxy);
        char *colon = host ? strrchr(host, ':') : NULL;
        struct addrinfo *list = NULL;
        int fd = -1;

        if (!colon)
                return -1;
        *colon = '\0';
        if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
                return -1;
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
                fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0)
                        cg_closep_(&fd);
        }
        freeaddrinfo(list);
        return fd;
}

/* The proxy's answer; what follows it is standard output's already. */
static int handshake(int fd, const char *host, const char *port)
{
        char buf[CG_HTTP_REQUEST_MAX];
        const char *open = strchr(host, ':') ? "[" : "", *close = open[0] ? "]" : "";
        int n = snprintf(buf, sizeof(buf), "CONNECT %s%s%s:%s HTTP/1.1\r\nHost: %s%s%s:%s\r\n\r\n", open,
                         host, close, port, open, host, close, port);
        struct cg_http_response r;
        struct cg_err err;
        size_t len = 0, head, scanned = 0;

        if (n < 0 || (size_t)n >= sizeof(buf) || strpbrk(host, "\r\n \t") || strpbrk(port, "\r\n \t"))
                return fail(host, "no host name");
        if (cg_write_all(fd, buf, (size_t)n, &err) < 0)
                return fail("proxy", err.msg);
        while ((head = cg_http_head_len(buf, len, &scanned)) == 0) {
                ssize_t got = len < sizeof(buf) ? read(fd, buf + len, sizeof(buf) - len) : 0;

                if (got <= 0)
                        return fail("proxy", "it closed the connection");
                len += (size_t)got;
        }
        if (cg_http_response_parse(buf, head, false, &r, &err) < 0)
                return fail("proxy", err.msg);
        if (r.status != 200) {
                fprintf(stderr, "cellgate-egress: %s:%s: %.*s (%u)\n", host, port, (int)r.reason.len,
                        r.reason.p, r.status);
                return 1;
        }
        return cg_write_all(STDOUT_FILENO, buf + head, len - head, &err) < 0;
}

/* True when @from has ended. */
static bool copy_some(int from, int to)
{
        char buf[65536];
        ssize_t n = read(from, buf, sizeof(buf));

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return false;
        return n <= 0 || cg_write_all(to, buf, (size_t)n, NULL) < 0;
}

int cg_connect_main(const char *proxy, const char *host, const char *port)
{
        cg_auto_fd int fd = dial(proxy);
        struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
        int r;

        if (fd < 0)
                return fail(proxy, "the sandbox's proxy does not answer");
        r = handshake(fd, host, port);
        if (r)
                return r;
        for (;;) {
                if (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno != EINTR)
                        return 1;
                if (p[0].revents && copy_some(STDIN_FILENO, fd)) {
                        shutdown(fd, SHUT_WR);
                        p[0].fd = -1;
                }
                if (p[1].revents && copy_some(fd, STDOUT_FILENO))
                        return 0;
        }
}
