/* The tools of one MCP server, listed and called, blocking. Linked into the command line. */
#include "mcp/client/mcp_list.h"

#include <signal.h>
#include <time.h>
#include "mcp/ceilings.h"
#include "mcp/client/client.h"
#include "mcp/client/failure.h"

struct listing {
        struct cg_mcp_client *client;
        struct cg_mcp_tool_call *call; /* NULL: only the list is wanted */
        unsigned lists;                /* before the call */
        char *tools;
        size_t len;
        int code;
        struct cg_err *err;
};

static void keep(struct listing *l, const char *bytes, size_t len)
{
        l->tools = malloc(len + 1);
        l->code = l->tools ? 0 : cg_fail(l->err, CG_E_NOMEM, "answer of an MCP server");
        if (l->tools) {
                memcpy(l->tools, bytes, len);
                l->tools[len] = '\0';
                l->len = len;
        }
}

static void on_done(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len);

/* False: it was listed often enough, or cannot be. */
static bool list_again(struct listing *l)
{
        struct cg_mcp_req *q;

        return ++l->lists < CG_MCP_MAX_STALE_LISTS &&
               cg_mcp_client_list(l->client, 0, false, on_done, l, &q, l->err) == 0;
}

static void on_called(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct listing *l = data;

        if (outcome == CG_MCP_NOT_RUN && list_again(l))
                return;
        if (outcome == CG_MCP_OK || outcome == CG_MCP_ERROR) {
                l->call->error = outcome == CG_MCP_ERROR;
                keep(l, bytes, len);
        } else {
                l->code = cg_mcp_fail_text(l->err, bytes, len);
        }
        cg_mcp_client_end(l->client, "done");
}

static void on_done(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct listing *l = data;
        const struct cg_mcp_tool_call *call = l->call;
        struct cg_mcp_req *q;

        if (outcome == CG_MCP_OK && call && !cg_mcp_client_is_listed(l->client)) {
                if (list_again(l))
                        return;
                l->code = cg_fail(l->err, CG_E_STATE, "its tools change while they are listed");
        } else if (outcome == CG_MCP_OK && call) {
                l->code = cg_pins_check(cg_mcp_client_pins(l->client), call->tool, l->err);
                if (l->code == 0)
                        l->code = cg_mcp_client_call(l->client, call->tool, call->args, call->args_len,
                                                     call->timeout_ms, on_called, l, &q, l->err);
                if (l->code == 0)
                        return;
        } else if (outcome == CG_MCP_OK) {
                keep(l, bytes, len);
        } else {
                l->code = cg_mcp_fail_text(l->err, bytes, len);
        }
        cg_mcp_client_end(l->client, "done");
}

/* Starts the server, lists its tools, calls one of them if @call, ends the server. */
static int use_server(const char *name, const json_t *definition, int64_t timeout_ms,
                      const struct cg_log *log, struct cg_mcp_tool_call *call, char **ret, size_t *len,
                      struct cg_err *err)
{
        struct listing l = { .err = err, .call = call };
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
        if (call)
                r = cg_pins_new(name, def->label, definition, NULL, &o.pins, err);
        if (r < 0) {
                cg_mcp_def_free(def);
                uv_loop_close(&loop);
                return r;
        }
        r = cg_mcp_client_new(&o, def, &l.client, err);
        if (r == 0) {
                /* A server that ends early must not end this process. */
                sigemptyset(&pipe);
                sigaddset(&pipe, SIGPIPE);
                pthread_sigmask(SIG_BLOCK, &pipe, &old);
                r = cg_mcp_client_list(l.client, timeout_ms, false, on_done, &l, &q, err);
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
        if (r < 0) {
                cg_mcp_failure_for_host(NULL, err->msg);
                cg_secrets_redact_with(json_object_get(definition, "secrets"), err->msg);
                return r;
        }
        *ret = l.tools;
        *len = l.len;
        return 0;
}

int cg_mcp_list_tools(const char *name, const json_t *definition, int64_t timeout_ms,
                      const struct cg_log *log, char **ret, size_t *len, struct cg_err *err)
{
        return use_server(name, definition, timeout_ms, log, NULL, ret, len, err);
}

int cg_mcp_call_tool(const char *name, const json_t *definition, const struct cg_log *log,
                     struct cg_mcp_tool_call *call, char **ret, size_t *len, struct cg_err *err)
{
        return use_server(name, definition, 0, log, call, ret, len, err);
}
