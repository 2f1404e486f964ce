/*
 * The server of echo_server.c over HTTP (revision 2025-06-18, answers as JSON), a thread for each
 * connection. Prints its URL.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOOLS \
        "{\"tools\":[{\"name\":\"echo\",\"description\":\"Returns its text.\",\"inputSchema\":{\"type\":\"object\"," \
        "\"properties\":{\"text\":{\"type\":\"string\"}},\"required\":[\"text\"]}}]}"

/* Answers one request, whose body begins at @body. */
static void answer(int fd, const char *body)
{
        static const char *const results[][2] = {
                { "\"initialize\"", "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
                                    "\"serverInfo\":{\"name\":\"echo\",\"version\":\"1\"}}" },
                { "\"tools/list\"", TOOLS },
                { "\"tools/call\"", "{\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}" },
        };
        const char *id = strstr(body, "\"id\":"), *result = NULL;
        char text[1024], out[1280];
        int n;

        for (size_t i = 0; id && i < sizeof(results) / sizeof(results[0]); i++)
                if (strstr(body, results[i][0]))
                        result = results[i][1];
        if (result)
                n = snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":%s}",
                             strtol(id + 5, NULL, 10), result);
        else
                n = snprintf(text, sizeof(text),
                             "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"error\":{\"code\":-32601,"
                             "\"message\":\"no such method\"}}",
                             id ? strtol(id + 5, NULL, 10) : 0);
        if (id)
                n = snprintf(
                        out, sizeof(out),
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                        n, text);
        else
                n = snprintf(out, sizeof(out), "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        send(fd, out, (size_t)n, MSG_NOSIGNAL);
}

static void *serve(void *data)
{
        int fd = (int)(intptr_t)data;
        char in[65536];
        size_t have = 0;

        for (;;) {
                char *end, *p;
                size_t all;
                ssize_t n;

                in[have] = '\0';
                end = strstr(in, "\r\n\r\n");
                p = end ? strcasestr(in, "\r\nContent-Length:") : NULL;
                all = end ? (size_t)(end + 4 - in) + (p && p < end ? strtoul(p + 17, NULL, 10) : 0) : 0;
                if (end && strncmp(in, "GET", 3) == 0) {
                        static const char none[] = "HTTP/1.1 405 None\r\nContent-Length: 0\r\n\r\n";

                        send(fd, none, sizeof(none) - 1, MSG_NOSIGNAL);
                } else if (end && have >= all) {
                        answer(fd, end + 4);
                } else {
                        n = recv(fd, in + have, sizeof(in) - 1 - have, 0);
                        if (n <= 0)
                                break;
                        have += (size_t)n;
                        continue;
                }
                memmove(in, in + all, have - all);
                have -= all;
        }
        close(fd);
        return NULL;
}

int main(void)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(a);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;

        if (listener < 0 || bind(listener, (struct sockaddr *)&a, len) < 0 || listen(listener, 128) < 0 ||
            getsockname(listener, (struct sockaddr *)&a, &len) < 0)
                return 1;
        printf("http://127.0.0.1:%d/mcp\n", ntohs(a.sin_port));
        fflush(stdout);
        while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                pthread_t t;

                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                if (pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) == 0)
                        pthread_detach(t);
        }
        return 0;
}
