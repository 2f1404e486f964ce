/*
 * The canary of `cellgate selftest`: a process of the same user outside the sandbox, with secrets
 * in its arguments, environment, memory and descriptors. It is also the host that the sandbox's
 * network may or may not reach and, where attempts are made without a sandbox, a proxy that allows
 * everything. Prints ports and addresses on standard output; ends with its input.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "cli/common/cli.h"
#include "selftest/host/selftest.h"

#define IDLE_MS       3000
#define MAX_LISTENERS 8

struct servers {
        struct pollfd fds[MAX_LISTENERS]; /* standard input, UDP, listeners */
        nfds_t n;
};

static int listen_at(struct servers *s, const char *name, const struct sockaddr *at, socklen_t len, int type)
{
        struct sockaddr_storage got;
        socklen_t size = sizeof(got);
        int fd = socket(at->sa_family, type | SOCK_CLOEXEC, 0);

        if (fd < 0 || bind(fd, at, len) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0) ||
            getsockname(fd, (struct sockaddr *)&got, &size) < 0 || s->n == MAX_LISTENERS) {
                cg_closep_(&fd);
                return -1;
        }
        printf("%s=%u\n", name,
               ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                               : ((struct sockaddr_in *)&got)->sin_port));
        s->fds[s->n++] = (struct pollfd){ .fd = fd, .events = POLLIN };
        return 0;
}

static int listen_all(struct servers *s)
{
        static const char *const ports[] = { "port_allowed", "port_denied", "port_other", "port_proxy" };
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        struct ifaddrs *list = NULL;
        char text[INET_ADDRSTRLEN];

        s->fds[s->n++] = (struct pollfd){ .fd = 0, .events = POLLIN };
        if (listen_at(s, "port_udp", (struct sockaddr *)&v4, sizeof(v4), SOCK_DGRAM) < 0)
                return -1;
        for (size_t i = 0; i < CG_ARRAY_LEN(ports); i++)
                if (listen_at(s, ports[i], (struct sockaddr *)&v4, sizeof(v4), SOCK_STREAM) < 0)
                        return -1;
        printf("loopback4=127.0.0.1\n");
        if (listen_at(s, "port_denied6", (struct sockaddr *)&v6, sizeof(v6), SOCK_STREAM) == 0)
                printf("loopback6=::1\n");

        /* The first address of this machine that is not loopback. */
        if (getifaddrs(&list) < 0)
                return 0;
        for (struct ifaddrs *i = list; i; i = i->ifa_next) {
                if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_LOOPBACK))
                        continue;
                memcpy(&v4, i->ifa_addr, sizeof(v4));
                v4.sin_port = 0;
                if (listen_at(s, "port_host", (struct sockaddr *)&v4, sizeof(v4), SOCK_STREAM) == 0) {
                        printf("host_address=%s\n", inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)));
                        break;
                }
        }
        freeifaddrs(list);
        return 0;
}

static ssize_t receive(int fd, char *buf, size_t size)
{
        struct pollfd p = { .fd = fd, .events = POLLIN };

        return poll(&p, 1, IDLE_MS) == 1 ? recv(fd, buf, size, 0) : -1;
}

/* All HTTP requests get the same answer, with the requested Host. SOCKS requests are granted. */
static void answer(int fd)
{
        static const char yes5[] = { 5, 0, 0, 1, 0, 0, 0, 0, 0, 0 }, yes4[] = { 0, 0x5a, 0, 0, 0, 0, 0, 0 };
        char buf[4096], body[4200], head[200];
        ssize_t n;

        while ((n = receive(fd, buf, sizeof(buf) - 1)) > 0) {
                const char *host = NULL;

                buf[n] = '\0';
                if (buf[0] == 4) {
                        send(fd, yes4, sizeof(yes4), MSG_NOSIGNAL);
                        return;
                }
                if (buf[0] == 5) {
                        if (send(fd, "\x05", 2, MSG_NOSIGNAL) == 2 && receive(fd, buf, sizeof(buf)) > 0)
                                send(fd, yes5, sizeof(yes5), MSG_NOSIGNAL);
                        return;
                }
                /* The last one: of two fields, some servers take the second. */
                for (char *p = buf; (p = strcasestr(p, "\nHost:")); p += 6)
                        host = p + 6;
                snprintf(body, sizeof(body), "cellgate-selftest host=%.*s\n",
                         host ? (int)strcspn(host, "\r\n") : 0, host ?: "");
                n = snprintf(head, sizeof(head),
                             "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n",
                             strlen(body));
                if (send(fd, head, (size_t)n, MSG_NOSIGNAL) < 0 ||
                    send(fd, body, strlen(body), MSG_NOSIGNAL) < 0)
                        return;
        }
}

/* A process for each connection, so that none waits for another. */
static void serve(const struct servers *s, int listener)
{
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd >= 0 && fork() == 0) {
                for (nfds_t i = 0; i < s->n; i++)
                        close(s->fds[i].fd);
                answer(fd);
                _exit(0);
        }
        cg_closep_(&fd);
}

/* Returns a datagram's first byte. */
static void echo(int fd)
{
        struct sockaddr_storage from;
        socklen_t len = sizeof(from);
        char byte;

        if (recvfrom(fd, &byte, 1, MSG_DONTWAIT, (struct sockaddr *)&from, &len) == 1)
                sendto(fd, &byte, 1, MSG_DONTWAIT, (struct sockaddr *)&from, len);
}

int cg_canary_main(void)
{
        static char memory[64], scratch[8];
        const char *secret = getenv("CELLGATE_SELFTEST_MEMORY");
        struct servers s = { .n = 0 };
        int n;

        snprintf(memory, sizeof(memory), "%s", secret ?: "");
        signal(SIGCHLD, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        /* Lets any process try, also when Yama lets only parents trace. */
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        if (listen_all(&s) < 0) {
                fprintf(stderr, "cellgate selftest: listening on 127.0.0.1: %s\n", strerror(errno));
                return CG_EXIT_USAGE;
        }
        printf("canary_address=%lu\ncanary_scratch=%lu\nend\n", (unsigned long)memory,
               (unsigned long)scratch);
        fflush(stdout);
        while ((n = poll(s.fds, s.n, -1)) > 0 || errno == EINTR) {
                if (n < 0)
                        continue;
                if (s.fds[0].revents)
                        return 0;
                if (s.fds[1].revents & POLLIN)
                        echo(s.fds[1].fd);
                for (nfds_t i = 2; i < s.n; i++)
                        if (s.fds[i].revents & POLLIN)
                                serve(&s, s.fds[i].fd);
        }
        return 0;
}
