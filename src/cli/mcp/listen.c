/*
 * The redirect of a browser to this machine, RFC 8252 section 7.3. Any local program, and any page
 * of the browser, can connect: only a GET of the callback with this listener's own host, and then
 * with the login's state, is its answer.
 */
#include <arpa/inet.h>
#include <nettle/memops.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "cli/mcp/mcp.h"

#define HEAD_MAX 16384u
/* Browsers open connections ahead. Of more than these the oldest is closed. */
#define CONNECTIONS 16
#define WRITE_MS    2000

/* The kernel's tables of connections; the second is absent without IPv6. */
static const char *const tables[] = { "/proc/net/tcp", "/proc/net/tcp6" };

struct connection {
        int fd; /* -1: free */
        uint64_t age;
        size_t len;
        char head[HEAD_MAX + 1];
};

int cg_listen_open(int port, struct cg_listen *ret, struct cg_err *err)
{
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr = { htonl(INADDR_LOOPBACK) } };
        cg_auto_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        socklen_t len = sizeof(a);

        if (fd < 0)
                return cg_fail_errno(err, "socket for the redirect");
        if (access(tables[0], R_OK) < 0)
                return cg_fail_errno(err, "%s, which says whose connections to the redirect are", tables[0]);
        /* An earlier login's port may have closed connections. Two listeners are not possible. */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
        if (bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, CONNECTIONS) < 0) {
                if (errno == EADDRINUSE)
                        return cg_fail(err, CG_E_EXISTS, "port %d of 127.0.0.1 is used by another program",
                                       port);
                return cg_fail_errno(err, "port %d of 127.0.0.1", port);
        }
        if (getsockname(fd, (struct sockaddr *)&a, &len) < 0)
                return cg_fail_errno(err, "socket for the redirect");
        ret->port = ntohs(a.sin_port);
        snprintf(ret->uri, sizeof(ret->uri), "http://127.0.0.1:%d/callback", ret->port);
        ret->fd = cg_steal_fd(&fd);
        return 0;
}

void cg_listen_close(struct cg_listen *l)
{
        cg_closep_(&l->fd);
}

static void answer(int fd, const char *status, const char *text)
{
        char page[1024];
        int n = snprintf(page, sizeof(page),
                         "HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n"
                         "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                         "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
                         "X-Content-Type-Options: nosniff\r\n\r\n"
                         "<!doctype html><title>cellgate</title><p>%s</p>\n",
                         status, text);

        if (cg_wait_fd(fd, POLLOUT, WRITE_MS, NULL) == 0 && send(fd, page, (size_t)n, MSG_NOSIGNAL) < 0)
                return; /* the browser is gone */
        shutdown(fd, SHUT_WR);
}

/* True if the head has exactly one field Host, with this listener's own address. */
static bool has_own_host(const char *head, int port)
{
        char host[32];
        const char *p = strcasestr(head, "\r\nhost:");
        size_t n;

        if (!p || strcasestr(p + 2, "\r\nhost:"))
                return false;
        p += 7;
        p += strspn(p, " \t");
        n = strcspn(p, " \t\r\n");
        snprintf(host, sizeof(host), "127.0.0.1:%d", port);
        return n == strlen(host) && memcmp(p, host, n) == 0;
}

/* Answers a complete head. True: it is the redirect with @state, in *ret. */
static bool handle(const struct cg_listen *l, struct connection *c, const char *state,
                   struct cg_oauth_redirect *ret)
{
        static const char path[] = "GET /callback?";
        struct cg_oauth_redirect q = { 0 };
        const char *query = c->head + sizeof(path) - 1;

        if (strncmp(c->head, path, sizeof(path) - 1) != 0 || !has_own_host(c->head, l->port)) {
                answer(c->fd, "404 Not Found", "There is nothing here.");
                return false;
        }
        if (cg_oauth_redirect_parse(query, strcspn(query, " \r\n"), &q, NULL) < 0 || !q.state ||
            strlen(q.state) != strlen(state) || !memeql_sec(q.state, state, strlen(state))) {
                cg_oauth_redirect_fini(&q);
                answer(c->fd, "400 Bad Request", "This is not the answer to the login that is under way.");
                return false;
        }
        answer(c->fd, "200 OK",
               "cellgate has got the answer; the terminal says what came of it. You can close this window.");
        *ret = q;
        return true;
}

/*
 * True if a process of this user, or of root, has the other end. Other users of the machine can
 * read the login's state in the arguments of the browser's process. Only the entry of an
 * established connection names its user: one that is closing is of nobody, which reads as root.
 */
static bool is_own_peer(const struct cg_listen *l, const struct sockaddr_in *peer)
{
        char v4[64], v6[128], self[17], line[512];
        unsigned from = peer->sin_addr.s_addr, from_port = ntohs(peer->sin_port), to = htonl(INADDR_LOOPBACK);
        bool own = false;

        snprintf(self, sizeof(self), "%u", (unsigned)geteuid());
        /* The kernel prints an address's words in memory order. IPv6 sockets can reach IPv4. */
        snprintf(v4, sizeof(v4), " %08X:%04X %08X:%04X %02X ", from, from_port, to, (unsigned)l->port,
                 TCP_ESTABLISHED);
        snprintf(v6, sizeof(v6), " %024X%08X:%04X %024X%08X:%04X %02X ", htonl(0xffff), from, from_port,
                 htonl(0xffff), to, (unsigned)l->port, TCP_ESTABLISHED);
        for (size_t i = 0; i < CG_ARRAY_LEN(tables) && !own; i++) {
                FILE *p = fopen(tables[i], "re");

                while (p && !own && fgets(line, sizeof(line), p)) {
                        const char *rest = strstr(line, v4) ?: strstr(line, v6);
                        char uid[17];

                        /* queues, timer, retransmissions, user */
                        if (rest && sscanf(rest, "%*s %*s %*s %*s %*s %*s %16s", uid) == 1)
                                own = strcmp(uid, "0") == 0 || strcmp(uid, self) == 0;
                }
                if (p)
                        fclose(p);
        }
        return own;
}

static void accept_one(const struct cg_listen *l, struct connection *all, uint64_t age)
{
        struct sockaddr_in peer = { 0 };
        socklen_t len = sizeof(peer);
        int fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct connection *c = all;

        if (fd < 0)
                return;
        if (!is_own_peer(l, &peer)) {
                close(fd);
                return;
        }
        for (int i = 0; i < CONNECTIONS && c->fd >= 0; i++)
                if (all[i].fd < 0 || all[i].age < c->age)
                        c = &all[i];
        cg_closep_(&c->fd);
        c->fd = fd;
        c->age = age;
        c->len = 0;
}

/* True: the redirect with @state has come. */
static bool read_some(const struct cg_listen *l, struct connection *c, const char *state,
                      struct cg_oauth_redirect *ret)
{
        ssize_t n = recv(c->fd, c->head + c->len, HEAD_MAX - c->len, 0);
        bool found = false;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return false;
        if (n > 0) {
                c->len += (size_t)n;
                c->head[c->len] = '\0';
                if (!strstr(c->head, "\r\n\r\n") && c->len < HEAD_MAX && strlen(c->head) == c->len)
                        return false;
                if (strstr(c->head, "\r\n\r\n"))
                        found = handle(l, c, state, ret);
        }
        cg_closep_(&c->fd);
        return found;
}

/* 0; CG_TIMEOUT: no redirect with @state has come by @end_ms. */
static int wait_redirect(const struct cg_listen *l, struct connection *all, const char *state, int64_t end_ms,
                         struct cg_oauth_redirect *ret, struct cg_err *err)
{
        struct pollfd fds[CONNECTIONS + 1] = { { .fd = l->fd, .events = POLLIN } };
        int64_t left;

        for (uint64_t age = 0; (left = end_ms - cg_now_ms()) > 0;) {
                for (int i = 0; i < CONNECTIONS; i++)
                        fds[i + 1] = (struct pollfd){ .fd = all[i].fd, .events = POLLIN };
                if (poll(fds, CONNECTIONS + 1, (int)CG_MIN(left, INT32_MAX)) < 0) {
                        if (errno != EINTR)
                                return cg_fail_errno(err, "waiting for the redirect");
                        continue;
                }
                for (int i = 0; i < CONNECTIONS; i++)
                        if (fds[i + 1].revents && read_some(l, &all[i], state, ret))
                                return 0;
                if (fds[0].revents)
                        accept_one(l, all, ++age);
        }
        return CG_TIMEOUT;
}

int cg_listen_wait(struct cg_listen *l, const char *state, int64_t timeout_ms, struct cg_oauth_redirect *ret,
                   struct cg_err *err)
{
        cg_auto_free struct connection *all = calloc(CONNECTIONS, sizeof(*all));
        int r;

        if (!all)
                return cg_fail(err, CG_E_NOMEM, "connections");
        for (int i = 0; i < CONNECTIONS; i++)
                all[i].fd = -1;
        r = wait_redirect(l, all, state, cg_now_ms() + timeout_ms, ret, err);
        cg_listen_close(l);
        for (int i = 0; i < CONNECTIONS; i++)
                cg_closep_(&all[i].fd);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "nobody signed in within %lld s",
                               (long long)(timeout_ms / 1000));
        return r;
}
