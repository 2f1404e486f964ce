/* The tools of one MCP server, blocking. Linked into the command line. */
#include "mcp/mcp_list.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include "mcp/client.h"

extern char **environ;

struct listing {
        struct cg_mcp_client *client;
        char *tools;
        size_t len;
        int code;
        struct cg_err *err;
};

static void on_done(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct listing *l = data;

        if (outcome == CG_MCP_OK) {
                l->tools = malloc(len + 1);
                l->code = l->tools ? 0 : cg_fail(l->err, CG_E_NOMEM, "tool list");
                if (l->tools) {
                        memcpy(l->tools, bytes, len);
                        l->tools[len] = '\0';
                        l->len = len;
                }
        } else {
                l->code = cg_fail(l->err, CG_E_PROTO, "%.*s", (int)(len < 900 ? len : 900), bytes);
        }
        cg_mcp_client_end(l->client, "done");
}

int cg_mcp_list_tools(const char *name, const json_t *definition, int64_t timeout_ms,
                      const struct cg_log *log, char **ret, size_t *len, struct cg_err *err)
{
        struct listing l = { .err = err };
        struct cg_mcp_client_options o = { .log = log };
        const struct timespec now = { 0 };
        struct cg_mcp_def *def = NULL;
        struct cg_mcp_req *q;
        uv_loop_t loop;
        sigset_t old, pipe;
        int r;

        r = cg_mcp_def_new(name, definition, environ, &def, err);
        if (r < 0)
                return r;
        r = uv_loop_init(&loop);
        if (r < 0) {
                cg_mcp_def_free(def);
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        }
        o.loop = &loop;
        r = cg_mcp_client_new(&o, def, &l.client, err);
        if (r == 0) {
                /* A server that ends early must not end this process. */
                sigemptyset(&pipe);
                sigaddset(&pipe, SIGPIPE);
                pthread_sigmask(SIG_BLOCK, &pipe, &old);
                r = cg_mcp_client_list(l.client, timeout_ms, on_done, &l, &q, err);
                if (r < 0) {
                        l.code = r;
                        cg_mcp_client_end(l.client, "done");
                }
                uv_run(&loop, UV_RUN_DEFAULT); /* until the server has ended and its handles are closed */
                while (!sigismember(&old, SIGPIPE) && sigtimedwait(&pipe, NULL, &now) > 0)
                        ;
                pthread_sigmask(SIG_SETMASK, &old, NULL);
                r = l.code;
        }
        uv_loop_close(&loop);
        if (r < 0)
                return r;
        *ret = l.tools;
        *len = l.len;
        return 0;
}
