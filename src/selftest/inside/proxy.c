/*
 * The proxy, the only way out: allowed and denied hosts, and requests that proxy and server could
 * understand differently. Runs inside the sandbox. The scene's host has two listeners on 127.0.0.1:
 * port_allowed, and port_denied, which deniedDomains names; both answer with the Host that they
 * were asked for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define ANSWER_MS 4000
#define SIZE      4096

/* Reply of @n bytes, followed by a NUL. */
struct answer {
        char text[SIZE];
        size_t n;
        bool closed;
};

static unsigned proxy_port(const struct cg_try *t)
{
        const char *url = getenv("HTTP_PROXY"), *colon = url ? strrchr(url, ':') : NULL;

        return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

static int proxy_connect(const struct cg_try *t)
{
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)proxy_port(t)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
                close(fd);
                return -1;
        }
        return fd;
}

/* Reads until @text is in the reply, EOF, or timeout. */
static void receive(int fd, struct answer *a, const char *text)
{
        struct pollfd p = { .fd = fd, .events = POLLIN };

        while (a->n < SIZE - 1 && !(text && cg_has(a->text, a->n, text)) && poll(&p, 1, ANSWER_MS) == 1) {
                ssize_t n = recv(fd, a->text + a->n, SIZE - 1 - a->n, 0);

                if (n <= 0) {
                        a->closed = true;
                        break;
                }
                a->n += (size_t)n;
        }
        a->text[a->n] = '\0';
}

/* Sends @n bytes and reads the whole reply. */
static int ask(const struct cg_try *t, const void *data, size_t n, struct answer *a)
{
        int fd = proxy_connect(t);

        memset(a, 0, sizeof(*a));
        if (fd < 0)
                return -1;
        if (send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n)
                receive(fd, a, "cellgate-selftest");
        close(fd);
        return 0;
}

/* The first line, without control characters. */
static const char *first_line(struct answer *a)
{
        for (size_t i = 0; i < a->n; i++) {
                if (a->text[i] == '\r' || a->text[i] == '\n')
                        a->text[i] = '\0';
                else if (a->text[i] < ' ' || a->text[i] > '~')
                        a->text[i] = '?';
                if (i == 80 || !a->text[i]) {
                        a->text[i] = '\0';
                        break;
                }
        }
        return a->text;
}

/*
 * Held: the proxy refused (4xx). A request that the proxy allowed without an answer (502) is a
 * hole: elsewhere there might be a server.
 */
static enum cg_verdict judge(struct cg_try *t, struct answer *a)
{
        if (cg_has(a->text, a->n, "cellgate-selftest"))
                return cg_hole(t, "it was reached");
        if (!a->n)
                return a->closed ? cg_held(t, "the connection was closed")
                                 : cg_fails(t, "no answer in %d seconds", ANSWER_MS / 1000);
        if (strncmp(a->text, "HTTP/1.1 4", 10) == 0 || strncmp(a->text, "HTTP/1.0 4", 10) == 0)
                return cg_held(t, "%s", first_line(a));
        return cg_hole(t, "not refused: %s", first_line(a));
}

static enum cg_verdict gone(struct cg_try *t, const struct cg_attempt *a)
{
        if (!proxy_port(t))
                return cg_skip(t, "there is no proxy here");
        if (a->allow)
                return cg_fails(t, "the proxy cannot be reached: %s", cg_errno_name(errno));
        return cg_held(t, "there is nothing to connect to");
}

/*
 * @text with %A, %D, %O: the allowed port, the denied one, one that is in no list; %N: a name
 * of the machine's own.
 */
static size_t expand(const struct cg_try *t, const char *text, char *buf, size_t size)
{
        size_t n = 0;

        for (; *text && n < size - 300; text++) {
                static const char *const names[] = { "Aport_allowed", "Dport_denied", "Oport_other",
                                                     "Nloopback_name" };
                const char *name = NULL, *value;

                for (size_t i = 0; text[0] == '%' && i < sizeof(names) / sizeof(names[0]); i++)
                        if (names[i][0] == text[1])
                                name = names[i] + 1;
                value = name ? cg_scene(t, name) : NULL;
                if (!name) {
                        buf[n++] = *text;
                        continue;
                }
                n += (size_t)snprintf(buf + n, size - n, "%s", value ?: "0");
                text++;
        }
        buf[n] = '\0';
        return n;
}

/* ---- HTTP and CONNECT to a->arg, which is not changed */
static enum cg_verdict exchange(struct cg_try *t, const struct cg_attempt *a, const char *method)
{
        char host[600], data[2000];
        struct answer answer;

        expand(t, a->arg, host, sizeof(host));
        if (strcmp(method, "CONNECT") == 0)
                snprintf(data, sizeof(data),
                         "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nGET / HTTP/1.1\r\nHost: tunnel\r\n"
                         "Connection: close\r\n\r\n",
                         host, host);
        else
                snprintf(data, sizeof(data),
                         "%s http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, host,
                         host);
        if (ask(t, data, strlen(data), &answer) < 0)
                return gone(t, a);
        if (!a->allow)
                return judge(t, &answer);
        return cg_works_if(t, cg_has(answer.text, answer.n, "cellgate-selftest"), first_line(&answer));
}

static enum cg_verdict http(struct cg_try *t, const struct cg_attempt *a)
{
        return exchange(t, a, "GET");
}

static enum cg_verdict tunnel(struct cg_try *t, const struct cg_attempt *a)
{
        return exchange(t, a, "CONNECT");
}

/* A whole request, sent unchanged. */
static enum cg_verdict raw(struct cg_try *t, const struct cg_attempt *a)
{
        char data[2000];
        struct answer answer;
        size_t n = expand(t, a->arg, data, sizeof(data));

        for (size_t i = 0; i < n; i++)
                if (data[i] == '\a') /* replaces NUL, which a string cannot contain */
                        data[i] = '\0';
        return ask(t, data, n, &answer) < 0 ? gone(t, a) : judge(t, &answer);
}

/* The server must receive the host that was checked, not that of another field. */
static enum cg_verdict host_field(struct cg_try *t, const struct cg_attempt *a)
{
        char data[2000];
        struct answer answer;
        size_t n = expand(t, a->arg, data, sizeof(data));

        if (ask(t, data, n, &answer) < 0)
                return gone(t, a);
        if (cg_has(answer.text, answer.n, "evil.example"))
                return cg_hole(t, "the server was asked for another host than was checked");
        return cg_held(t, "%s", first_line(&answer));
}

/* A second request on a connection whose first was allowed. */
static enum cg_verdict second_request(struct cg_try *t, const struct cg_attempt *a)
{
        char data[2000];
        struct answer answer = { .n = 0 };
        size_t n = expand(t, "GET http://127.0.0.1:%A/ HTTP/1.1\r\nHost: 127.0.0.1:%A\r\n\r\n", data,
                          sizeof(data));
        int fd = proxy_connect(t);

        if (fd < 0 || send(fd, data, n, MSG_NOSIGNAL) < 0)
                return gone(t, a);
        receive(fd, &answer, "cellgate-selftest");
        if (!cg_has(answer.text, answer.n, "cellgate-selftest"))
                return cg_fails(t, "the first one was not answered: %s", first_line(&answer));
        memset(&answer, 0, sizeof(answer));
        n = expand(t, "GET http://127.0.0.1:%D/ HTTP/1.1\r\nHost: 127.0.0.1:%D\r\nConnection: close\r\n\r\n",
                   data, sizeof(data));
        if (send(fd, data, n, MSG_NOSIGNAL) > 0)
                receive(fd, &answer, "cellgate-selftest");
        close(fd);
        return judge(t, &answer);
}

/* ---- SOCKS */
static const char *const socks_errors[] = {
        "0 granted", "1 failed", "2 not allowed", "3 network unreachable", "4 host unreachable",
        "5 refused", "6 TTL",    "7 command",     "8 address type"
};

/* Sends a greeting without a password, then a request for @n address bytes at port a->arg2. */
static enum cg_verdict socks(struct cg_try *t, const struct cg_attempt *a, unsigned char *request, size_t n)
{
        const unsigned port = (unsigned)cg_scene_number(t, a->arg2);
        unsigned char reply[32] = { 0 };
        int fd = proxy_connect(t), code = -1;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        const char *name;

        if (fd < 0)
                return gone(t, a);
        request[0] = 5;
        request[1] = a->call[0] ? (unsigned char)a->call[0] : 1;
        request[n++] = (unsigned char)(port >> 8);
        request[n++] = (unsigned char)port;
        if (send(fd, "\x05\x01\x00", 3, MSG_NOSIGNAL) == 3 && poll(&p, 1, ANSWER_MS) == 1 &&
            recv(fd, reply, 2, 0) == 2 && reply[1] == 0 && send(fd, request, n, MSG_NOSIGNAL) == (ssize_t)n &&
            poll(&p, 1, ANSWER_MS) == 1 && recv(fd, reply, sizeof(reply), 0) >= 2)
                code = reply[1];
        close(fd);
        name = code >= 0 && code <= 8 ? socks_errors[code] : "closed";
        if (a->allow)
                return cg_works_if(t, code == 0, name);
        if (code == 0 || (code >= 3 && code <= 6))
                return cg_hole(t, "not refused: %s", name);
        return cg_held(t, "%s", name);
}

/* call[0]: the command (0: CONNECT); \a in a->arg is a NUL. */
static enum cg_verdict socks_name(struct cg_try *t, const struct cg_attempt *a)
{
        size_t n = strlen(a->arg);
        unsigned char request[300] = { [3] = 3, [4] = (unsigned char)n };

        for (size_t i = 0; i < n; i++)
                request[5 + i] = a->arg[i] == '\a' ? 0 : (unsigned char)a->arg[i];
        return socks(t, a, request, 5 + n);
}

static enum cg_verdict socks_address(struct cg_try *t, const struct cg_attempt *a)
{
        bool v6 = strchr(a->arg, ':') != NULL;
        unsigned char request[32] = { [3] = v6 ? 4 : 1 };

        inet_pton(v6 ? AF_INET6 : AF_INET, a->arg, request + 4);
        return socks(t, a, request, v6 ? 20 : 8);
}

/* SOCKS 4 and 4a have no names, or names in another place: they must be rejected. */
static enum cg_verdict socks4(struct cg_try *t, const struct cg_attempt *a)
{
        unsigned char request[64] = { 4, 1 }, reply[8] = { 0 };
        unsigned port = (unsigned)cg_scene_number(t, "port_denied");
        int fd = proxy_connect(t);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        size_t n = 9;

        if (fd < 0)
                return gone(t, a);
        request[2] = (unsigned char)(port >> 8);
        request[3] = (unsigned char)port;
        memcpy(request + 4, a->call[0] ? "\x00\x00\x00\x01" : "\x7f\x00\x00\x01", 4);
        if (a->call[0]) {
                memcpy(request + 9, "127.0.0.1", 10);
                n += 10;
        }
        send(fd, request, n, MSG_NOSIGNAL);
        if (poll(&p, 1, ANSWER_MS) == 1 && recv(fd, reply, sizeof(reply), 0) == 8 && reply[1] == 0x5a)
                return cg_hole(t, "granted");
        return cg_held(t, "refused");
}

/* A name of the machine that is allowed by name and resolves to loopback. */
static enum cg_verdict loopback_name(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_scene(t, "loopback_name")
                       ? a->arg2 ? tunnel(t, a) : http(t, a)
                       : cg_skip(t, "no name with a dot in /etc/hosts resolves to loopback");
}

static const struct cg_attempt attempts[] = {
#define ALLOW(name, run, what, arg_, ...) CG_ALLOW(name, run, what, .arg = arg_, __VA_ARGS__)
        ALLOW("proxy-http", http, "an allowed host by HTTP", "127.0.0.1:%A"),
        ALLOW("proxy-connect", tunnel, "an allowed host by CONNECT", "127.0.0.1:%A"),
        ALLOW("proxy-name", http, "an allowed name", "localhost:%A"),
        ALLOW("proxy-canonical", http, "another spelling of an allowed address", "127.1:%A"),
        ALLOW("proxy-socks", socks_address, "an allowed host by SOCKS 5", "127.0.0.1",
              .arg2 = "port_allowed"),
        ALLOW("proxy-socks-name", socks_name, "an allowed name by SOCKS 5", "localhost",
              .arg2 = "port_allowed"),
#undef ALLOW
#define DENY(name, run, what, arg_, ...) CG_DENY(name, "proxy", run, what, .arg = arg_, __VA_ARGS__)
        DENY("proxy-denied-http", http, "a denied host by HTTP", "127.0.0.1:%D"),
        DENY("proxy-denied-connect", tunnel, "a denied host by CONNECT", "127.0.0.1:%D"),
        DENY("proxy-denied-socks", socks_address, "a denied host by SOCKS 5", "127.0.0.1",
             .arg2 = "port_denied"),
        DENY("proxy-denied-socks-name", socks_name, "the same as a name", "127.0.0.1", .arg2 = "port_denied"),
        DENY("proxy-other-port", http, "another port of an allowed host", "127.0.0.1:%O"),
        DENY("proxy-unlisted", http, "a host on no list", "unlisted.selftest.invalid"),
        DENY("proxy-unlisted-connect", tunnel, "the same by CONNECT", "unlisted.selftest.invalid:443"),
        DENY("proxy-unlisted-socks", socks_name, "the same by SOCKS 5", "unlisted.selftest.invalid",
             .arg2 = "port_allowed"),
        DENY("proxy-own-port", tunnel, "the proxy itself", "127.0.0.1:3128"),
        DENY("proxy-decimal", http, "a denied address as one number", "2130706433:%D"),
        DENY("proxy-octal", http, "in octal", "0177.0.0.1:%D"),
        DENY("proxy-octal-one", tunnel, "in octal, as one number", "017700000001:%D"),
        DENY("proxy-hex", http, "in hexadecimal", "0x7f.0.0.1:%D"),
        DENY("proxy-hex-one", tunnel, "in hexadecimal, as one number", "0x7f000001:%D"),
        DENY("proxy-short", http, "with parts left out", "127.1:%D"),
        DENY("proxy-zeros", http, "with leading zeros", "127.000.000.001:%D"),
        DENY("proxy-mapped", http, "as IPv4-mapped IPv6", "[::ffff:127.0.0.1]:%D"),
        DENY("proxy-mapped-hex", tunnel, "the same in hexadecimal", "[::ffff:7f00:1]:%D"),
        DENY("proxy-mapped-long", tunnel, "the same in full", "[0:0:0:0:0:ffff:7f00:0001]:%D"),
        DENY("proxy-compatible", http, "as IPv4-compatible IPv6", "[::127.0.0.1]:%D"),
        DENY("proxy-nat64", http, "by NAT64", "[64:ff9b::7f00:1]:%D"),
        DENY("proxy-6to4", http, "by 6to4", "[2002:7f00:1::1]:%D"),
        DENY("proxy-zone", http, "with a zone", "[::ffff:127.0.0.1%25x.selftest.example]:%D"),
        DENY("proxy-trailing-dot", http, "with a trailing dot", "127.0.0.1.:%D"),
        DENY("proxy-unspecified", http, "0.0.0.0, which is loopback", "0.0.0.0:%D"),
        DENY("proxy-unspecified6", http, "the same in IPv6", "[::]:%D"),
        DENY("proxy-zero", tunnel, "the same as one number", "0:%D"),
        DENY("proxy-loopback-other", http, "another address of loopback", "127.9.8.7:%D"),
        DENY("proxy-localhost", http, "localhost, at a port that is not allowed", "localhost:%D"),
        DENY("proxy-localhost-case", http, "in other letters, with a dot", "LocalHost.:%D"),
        DENY("proxy-localhost-sub", http, "a name below localhost", "x.localhost:%D"),
        DENY("proxy-wild-deny", http, "a denied name below an allowed pattern", "bad.selftest.example"),
        DENY("proxy-wild-deny-case", http, "the same in other letters", "BAD.SelfTest.Example."),
        DENY("proxy-wild-itself", http, "the name that a pattern is below of", "selftest.example"),
        DENY("proxy-wild-prefix", http, "an allowed pattern as the beginning of another name",
             "x.selftest.example.evil.invalid"),
        DENY("proxy-wild-suffix", http, "a name that only ends like it", "evilselftest.example"),
        DENY("proxy-userinfo", http, "an allowed host before an @", "127.0.0.1:%A@127.0.0.1:%D"),
        DENY("proxy-userinfo-connect", tunnel, "the same by CONNECT", "127.0.0.1:%A@127.0.0.1:%D"),
        DENY("proxy-backslash", http, "an allowed host after a backslash", "127.0.0.1:%D\\@127.0.0.1:%A"),
        DENY("proxy-hash", http, "an allowed host after a #", "127.0.0.1:%D#@127.0.0.1:%A"),
        DENY("proxy-nul", raw, "a NUL within the host",
             "CONNECT 127.0.0.1:%D\a.selftest.example:443 HTTP/1.1\r\n\r\n"),
        DENY("proxy-tab", raw, "a tab within the host",
             "GET http://127.0.0.1:%D\t.selftest.example/ HTTP/1.1\r\n\r\n"),
        DENY("proxy-relative", raw, "a request for the proxy itself, with a Host field",
             "GET / HTTP/1.1\r\nHost: 127.0.0.1:%D\r\n\r\n"),
        DENY("proxy-file-url", raw, "a file: URL", "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"),
        DENY("proxy-ftp-url", raw, "an ftp: URL", "GET ftp://127.0.0.1:%D/ HTTP/1.1\r\nHost: x\r\n\r\n"),
        DENY("proxy-two-lengths", raw, "two lengths of one body",
             "POST http://127.0.0.1:%A/ HTTP/1.1\r\nHost: 127.0.0.1:%A\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nxxxxx"),
        DENY("proxy-length-and-chunks", raw, "a length and chunks",
             "POST http://127.0.0.1:%A/ HTTP/1.1\r\nHost: 127.0.0.1:%A\r\nContent-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        DENY("proxy-folded-field", raw, "a field that continues on the next line",
             "GET http://127.0.0.1:%A/ HTTP/1.1\r\nHost: 127.0.0.1:%A\r\n evil: 127.0.0.1:%D\r\n\r\n"),
        DENY("proxy-bare-newline", raw, "a line that ends with a newline only",
             "GET http://127.0.0.1:%A/ HTTP/1.1\nHost: 127.0.0.1:%A\r\n\r\n"),
        DENY("proxy-host-field", host_field, "another host in the Host field",
             "GET http://127.0.0.1:%A/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        DENY("proxy-host-twice", host_field, "two Host fields",
             "GET http://127.0.0.1:%A/ HTTP/1.1\r\nHost: 127.0.0.1:%A\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        DENY("proxy-second-request", second_request, "a denied host on a connection that was allowed", NULL),
        DENY("proxy-socks-mapped", socks_address, "SOCKS 5: an IPv4-mapped address", "::ffff:127.0.0.1",
             .arg2 = "port_denied"),
        DENY("proxy-socks-any", socks_address, "SOCKS 5: 0.0.0.0", "0.0.0.0", .arg2 = "port_denied"),
        DENY("proxy-socks-decimal", socks_name, "SOCKS 5: an address as one number", "2130706433",
             .arg2 = "port_denied"),
        DENY("proxy-socks-nul", socks_name, "SOCKS 5: a NUL within the name", "127.0.0.1\a.selftest.example",
             .arg2 = "port_denied"),
        DENY("proxy-socks-zone", socks_name, "SOCKS 5: a zone", "::ffff:127.0.0.1%x.selftest.example",
             .arg2 = "port_denied"),
        DENY("proxy-socks-newline", socks_name, "SOCKS 5: a line end within the name",
             "127.0.0.1\r\nX: y.selftest.example", .arg2 = "port_denied"),
        DENY("proxy-socks-empty", socks_name, "SOCKS 5: an empty name", "", .arg2 = "port_denied"),
        DENY("meta-http", http, "a cloud's metadata service", "169.254.169.254"),
        DENY("meta-connect", tunnel, "the same by CONNECT", "169.254.169.254:80"),
        DENY("meta-socks", socks_address, "the same by SOCKS 5", "169.254.169.254", .arg2 = "port_80"),
        DENY("meta-decimal", http, "as one number", "2852039166"),
        DENY("meta-octal", http, "in octal", "0251.0376.0251.0376"),
        DENY("meta-mapped", http, "as IPv6", "[::ffff:a9fe:a9fe]"),
        DENY("meta-ipv6", http, "its IPv6 address", "[fd00:ec2::254]"),
        DENY("meta-google", http, "by its name", "metadata.google.internal"),
        DENY("meta-alibaba", http, "another cloud's", "100.100.100.200"),
        DENY("proxy-socks-bind", socks_name, "SOCKS 5: listening on the host", "localhost",
             .arg2 = "port_allowed", .call = { 2 }),
        DENY("proxy-socks-udp", socks_name, "SOCKS 5: UDP", "localhost", .arg2 = "port_allowed",
             .call = { 3 }),
        DENY("proxy-socks4", socks4, "SOCKS 4", NULL),
        DENY("proxy-socks4a", socks4, "SOCKS 4a, with a name", NULL, .call = { 1 }),
        DENY("proxy-rebinding", loopback_name, "an allowed name that resolves to loopback", "%N:%O",
             .bare = CG_BARE_MACHINE),
        DENY("proxy-rebinding-connect", loopback_name, "the same by CONNECT", "%N:%O",
             .bare = CG_BARE_MACHINE, .arg2 = "tunnel"),
#undef DENY
};

CG_TABLE(proxy, "the proxy");
