/*
 * cellgate-post: sends lines by HTTP. Its parent writes the URL as the first line, then a body with
 * each line, and reads a line for each: empty once a server has taken it (a status of 200 to 299),
 * else the reason why not. One request at a time; it ends with its standard input.
 *
 * A process of its own, since names, connections and servers may take their time: neither an event
 * loop nor the writer of the audit log waits for them.
 */
#include <signal.h>
#include "mcp/http/http.h"

#define TOTAL_MS 10000

struct post {
        uv_loop_t loop;
        struct cg_http *http;
        struct cg_err err;
        bool done, sent;
};

static void on_body(void *data, struct cg_http_req *r, const char *p, size_t len)
{
}

static void on_end(void *data, struct cg_http_req *r, const struct cg_err *err)
{
        struct post *p = data;
        int status = err ? 0 : cg_http_status(r);

        p->done = true;
        p->sent = status >= 200 && status < 300;
        if (err)
                p->err = *err;
        else if (!p->sent)
                cg_fail(&p->err, CG_E_PROTO, "the server answered with status %d", status);
}

static void send_line(struct post *p, const char *url, const char *line)
{
        static const char *const headers[] = { "Content-Type: application/json", NULL };
        static const struct cg_http_cbs cbs = { .body = on_body, .end = on_end };
        struct cg_http_request q = { .url = url,
                                     .headers = headers,
                                     .body = strdup(line),
                                     .body_len = strlen(line),
                                     .repeatable = true,
                                     .max_body = 65536,
                                     .total_ms = TOTAL_MS };
        struct cg_http_req *req;

        p->done = p->sent = false;
        if (!q.body)
                cg_fail(&p->err, CG_E_NOMEM, "request");
        else if (cg_http_start(p->http, &q, &cbs, p, &req, &p->err) == 0)
                while (!p->done)
                        uv_run(&p->loop, UV_RUN_ONCE);
}

static char *read_line(char **line, size_t *size)
{
        ssize_t n = getline(line, size, stdin);

        if (n <= 0 || (*line)[n - 1] != '\n')
                return NULL;
        (*line)[n - 1] = '\0';
        return *line;
}

int main(void)
{
        cg_auto_free char *url = NULL, *line = NULL;
        struct post p = { .sent = false };
        size_t url_size = 0, size = 0;
        int status = 0;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGINT, SIG_IGN); /* of the terminal: it ends with its parent */
        if (!read_line(&url, &url_size) || uv_loop_init(&p.loop) < 0)
                return 1;
        while (status == 0 && read_line(&line, &size)) {
                if (p.http || cg_http_new(&p.loop, &p.http, &p.err) == 0)
                        send_line(&p, url, line);
                for (char *c = p.err.msg; *c; c++)
                        *c = *c == '\n' ? ' ' : *c;
                status = printf("%s\n", p.sent ? "" : p.err.msg) < 0 || fflush(stdout) != 0;
        }
        cg_http_free(p.http);
        uv_run(&p.loop, UV_RUN_DEFAULT);
        uv_loop_close(&p.loop);
        return status;
}
