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

static void run(uv_loop_t *loop, struct listing *l, int64_t timeout_ms)
{
        struct cg_mcp_req *q;
        int r = cg_mcp_client_list(l->client, timeout_ms, on_done, l, &q, l->err);

        if (r < 0) {
                l->code = r;
                cg_mcp_client_end(l->client, "done");
        }
        uv_run(loop, UV_RUN_DEFAULT); /* until the last handle is closed: the server is gone then */
}

/* A server that ends early must not end us. */
static void block_sigpipe(sigset_t *old)
{
        sigset_t s;

        sigemptyset(&s);
        sigaddset(&s, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &s, old);
}

static void unblock_sigpipe(const sigset_t *old)
{
        const struct timespec now = { 0 };
        sigset_t s;

        sigemptyset(&s);
        sigaddset(&s, SIGPIPE);
        if (!sigismember(old, SIGPIPE))
                while (sigtimedwait(&s, NULL, &now) > 0)
                        ;
        pthread_sigmask(SIG_SETMASK, old, NULL);
}

int cg_mcp_list_tools(const char *name, const json_t *definition, int64_t timeout_ms,
                      const struct cg_log *log, char **ret, size_t *len, struct cg_err *err)
{
        struct listing l = { .err = err };
        struct cg_mcp_client_options o = { .log = log };
        struct cg_mcp_def *def = NULL;
        uv_loop_t loop;
        sigset_t old;
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
                block_sigpipe(&old);
                run(&loop, &l, timeout_ms);
                unblock_sigpipe(&old);
                r = l.code;
        }
        uv_loop_close(&loop);
        if (r < 0)
                return r;
        *ret = l.tools;
        *len = l.len;
        return 0;
}
