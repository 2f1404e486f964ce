/*
 * A kernel's connection: its begin, and what the kernel sends. Runs in cellgate-toolserver. A
 * kernel that breaks a rule of the wire is cut off.
 */
#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/call_internal.h"

uint64_t cg_ts_kernel_number(const struct ts_kernel *k)
{
        return k->number;
}

/* ---- calls */

/* The kernel broke the rules of the wire. */
static int violation(struct cg_err *err, const char *what)
{
        return cg_fail(err, CG_E_PROTO, "CALL: %s", what);
}

static int read_call(struct ts_kernel *k, const struct cg_msg *m, const char **server, const char **tool,
                     enum cg_mcp_method *method, int64_t *timeout_ms, json_t **body, struct cg_err *err)
{
        int r = cg_msg_json(m, body, err);
        const char *name = NULL;

        if (r < 0)
                return r;
        if (cg_json_str(*body, "server", NULL, server, err) < 0 ||
            cg_json_str(*body, "tool", NULL, tool, err) < 0 ||
            cg_json_str(*body, "method", cg_mcp_methods[CG_MCP_TOOLS_CALL].name, &name, err) < 0 ||
            cg_json_int(*body, "timeout_ms", 0, timeout_ms, err) < 0)
                return CG_E_PARSE;
        *method = cg_mcp_method_find(name);
        if (*method == CG_MCP_N_METHODS)
                return violation(err, "unknown method");
        if (!*server || !*tool != (*method != CG_MCP_TOOLS_CALL))
                return violation(err, "without server or tool, or with a tool that its method does not have");
        if (strlen(*server) > CG_MAX_NAME || (*tool && strlen(*tool) > CG_MAX_NAME))
                return violation(err, "name over its limit");
        if (*timeout_ms < 0)
                return violation(err, "negative timeout_ms");
        for (const struct ts_call *c = k->calls; c; c = c->next)
                if (c->id == m->id)
                        return violation(err, "its id is in use");
        if (cg_kept_has(&k->kept, m->id))
                return violation(err, "its id is in use");
        return 0;
}

static int on_call(struct ts_kernel *k, struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const char *server = NULL, *tool = NULL;
        enum cg_mcp_method method = CG_MCP_TOOLS_CALL;
        int64_t timeout_ms = 0;
        struct ts_call *call;
        size_t len;
        int r = read_call(k, m, &server, &tool, &method, &timeout_ms, &body, err);

        if (r < 0)
                return r;
        if (k->n_calls >= CG_MAX_CALLS)
                return violation(err, "too many at once");
        cg_msg_raw(m, 0, &len);
        if (k->args_waiting + len > CG_MCP_MAX_ARGS_WAITING) {
                static const char text[] =
                        "the arguments of all calls under way are over 64 MB: let some of them end first";

                cg_ts_kernel_answer(k, m->id, "failed", "unavailable", text, sizeof(text) - 1);
                return 0;
        }
        call = calloc(1, sizeof(*call));
        if (!call)
                return cg_fail(err, CG_E_NOMEM, "call");
        call->server = strdup(server);
        call->tool = cg_strdup(tool);
        call->method = method;
        if (!call->server || (tool && !call->tool)) {
                free(call->server);
                free(call->tool);
                free(call);
                return cg_fail(err, CG_E_NOMEM, "call");
        }
        call->args = CG_STEAL(m->frames[1]);
        call->kernel = k;
        call->id = m->id;
        call->kind = "";
        call->timeout_ms = timeout_ms;
        call->next = k->calls;
        k->calls = call;
        k->n_calls++;
        k->args_waiting += len;
        cg_ts_call_begin(call);
        return 0;
}

/* ---- the connection */

/* The supervisor ends a kernel that broke a rule: it does not see this wire itself. */
static void cut_off(struct ts_kernel *k, const struct cg_err *err)
{
        struct ts_session *s = k->session;
        struct cg_out out = { .type = CG_BROKER_KERNEL_VIOLATION, .session = s->number, .id = k->number };
        char what[601]; /* fits the body even if every byte has to be escaped */

        cg_log(&s->ts->log, CG_LOG_WARN, "session %llu: its kernel broke the rules and is cut off: %s",
               (unsigned long long)s->number, err->msg);
        snprintf(what, sizeof(what), "%.600s", err->msg);
        cg_ts_broker_send_text(s->ts, &out, "what", what);
        cg_ts_kernel_detach(s, "the kernel broke the rules of the wire");
}

static void cancel(struct ts_kernel *k, uint64_t id)
{
        struct ts_call *call = k->calls;

        while (call && (call->id != id || call->place == KEEPING))
                call = call->next;
        if (!call)
                return; /* its result is on the way */
        cg_ts_call_withdraw(call, "the kernel cancelled the call");
        call->kind = "cancelled";
        cg_ts_call_fail(call, "cancelled");
}

void cg_ts_kernel_call(struct ts_session *s, struct cg_msg *m)
{
        struct ts_kernel *k = s->kernel;
        struct cg_err err;

        if (k && on_call(k, m, &err) < 0 && s->kernel == k)
                cut_off(k, &err);
}

void cg_ts_kernel_cancel(struct ts_session *s, uint64_t call)
{
        if (s->kernel)
                cancel(s->kernel, call);
}

static void on_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct ts_kernel *k = z->data;
        struct cg_err err;
        int r = 0;

        if (!k->session)
                return;
        if (m->type == CG_TOOL_CALL) {
                r = on_call(k, m, &err);
        } else if (m->type == CG_TOOL_RESULT_READ) {
                r = cg_ts_kept_read(k, m, &err);
        } else if (m->type == CG_TOOL_RESULT_FREE) {
                cg_kept_free(&k->kept, m->id);
        } else {
                cancel(k, m->id);
        }
        if (r < 0 && k->session)
                cut_off(k, &err);
}

static void on_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct ts_kernel *k = z->data;

        /* A kernel that ends closes its connection; the supervisor knows and will send DETACH. */
        if (k->session && err->code != CG_E_CLOSED)
                cut_off(k, err);
}

int cg_ts_kernel_attach(struct ts_session *s, uint64_t number, const char *path, struct cg_err *err)
{
        struct ts *ts = s->ts;
        struct ts_kernel *k = calloc(1, sizeof(*k));
        struct cg_err mine;
        int r;

        if (!k)
                return cg_fail(err, CG_E_NOMEM, "kernel");
        k->session = s;
        k->number = number;
        k->kept.all = &ts->kept;
        if (!path) {
                s->kernel = k;
                return 0;
        }
        k->folder = strndup(path, strrchr(path, '/') ? (size_t)(strrchr(path, '/') - path) : 0);
        if (!k->folder) {
                free(k);
                return cg_fail(err, CG_E_NOMEM, "kernel");
        }
        r = cg_zlink_open(&k->link, &ts->loop, path, &cg_wire_tool, CG_ROLE_KERNEL, CG_MCP_MAX_KERNEL_QUEUE,
                          on_message, on_link_end, k, &mine);
        if (r < 0) {
                free(k->folder);
                free(k);
                if (r != CG_E_SYS) {
                        if (err)
                                *err = mine;
                        return r;
                }
                /*
                 * It has ended already, or does not accept: it will make no calls, and its end is
                 * the supervisor's matter.
                 */
                cg_log(&ts->log, CG_LOG_WARN, "session %llu: its kernel cannot be reached: %s",
                       (unsigned long long)s->number, mine.msg);
                return 0;
        }
        k->link.conn.max_unsent = CG_MCP_MAX_KERNEL_QUEUE / 2;
        s->kernel = k;
        return 0;
}
