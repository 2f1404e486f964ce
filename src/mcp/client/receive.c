/* Messages of an MCP server to its client: answers, requests, notifications. */
#include "mcp/client/internal.h"

#include <math.h>
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"

/* ---- answers */

/* The request in flight when there is exactly one, else NULL. */
static struct cg_mcp_req *only_req(const struct cg_mcp_client *c)
{
        struct cg_mcp_req *found = NULL;

        for (struct cg_mcp_req *q = c->reqs; q; q = q->next) {
                if (!q->id)
                        continue;
                if (found)
                        return NULL;
                found = q;
        }
        return found;
}

static struct cg_mcp_req *req_by_id(const struct cg_mcp_client *c, uint64_t id)
{
        struct cg_mcp_req *q = id ? c->reqs : NULL;

        while (q && q->id != id)
                q = q->next;
        return q;
}

/* The kind of a result of revision 2026-07-28. False: it was dealt with. */
static bool is_complete(struct cg_mcp_req *q, struct cg_slice result)
{
        cg_auto_buf struct cg_buf shown = { .max = 1024 };
        struct cg_slice type = CG_SLICE_NONE;

        if (cg_json_kind(result) != '{' || !cg_json_find(result, "resultType", &type) ||
            cg_slice_is(type, "\"complete\""))
                return true;
        if (cg_slice_is(type, "\"input_required\"") && q->kind == CALL) {
                cg_mcp_next_round(q, result);
                return false;
        }
        cg_text_render_as(&shown, type.p, type.len, 100, CG_TEXT_LINE);
        cg_mcp_req_fail(q, "MCP server \"%s\" sent a result of an unknown type: %s", q->c->def->name,
                        cg_buf_str(&shown));
        return false;
}

/*
 * Of a call. Where its headers did not fit the arguments the tools have changed, and nothing ran:
 * it is repeated after a list.
 */
static void finish_with_error(struct cg_mcp_req *q, struct cg_slice error)
{
        char why[600];

        if (!q->c->modern || cg_mcp_error_code(error) != CG_MCP_HEADER_MISMATCH) {
                cg_mcp_req_finish(q, CG_MCP_ERROR, error.p, error.len);
                return;
        }
        cg_mcp_error_text(error, why, sizeof(why));
        q->c->tools.stale = true;
        q->failure = CG_MCP_NOT_RUN;
        cg_mcp_req_fail(q,
                        "MCP server \"%s\" refused the headers of a call: %s; the call was not carried out",
                        q->c->def->name, why);
}

/* No change is announced any more; the server may have restarted. */
static void listening_ended(struct cg_mcp_client *c)
{
        c->subscription.id = 0;
        cg_mcp_tools_changed(c);
        cg_mcp_lists_stale(c);
}

static void on_answer(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_slice payload = m->kind == CG_RPC_ERROR ? m->error : m->result;
        struct cg_mcp_req *q;

        if (m->id_is_number && m->id_number && m->id_number == c->silence.ping_id) {
                c->silence.ping_id = 0;
                return;
        }
        if (!m->id.p && c->handshake.probe_id && !c->handshake.init_id) { /* which is the only one */
                cg_mcp_on_discover(c, m);
                return;
        }
        if (!m->id.p) { /* an error: the server could not read a request */
                char why[600];

                q = only_req(c);
                cg_mcp_error_text(m->error, why, sizeof(why));
                cg_server_log_line(&c->server_log, CG_LOG_WARN, "error without an id", m->error);
                if (q)
                        cg_mcp_req_fail(q, "MCP server \"%s\" answered with an error without an id: %s",
                                        c->def->name, why);
                return;
        }
        if (m->id_is_number && m->id_number && m->id_number == c->handshake.init_id) {
                cg_mcp_on_initialize(c, m);
                return;
        }
        if (m->id_is_number && m->id_number && m->id_number == c->handshake.probe_id) {
                cg_mcp_on_discover(c, m);
                return;
        }
        if (m->id_is_number && m->id_number && m->id_number == c->subscription.id) {
                listening_ended(c);
                return;
        }
        q = m->id_is_number ? req_by_id(c, m->id_number) : NULL;
        if (!q) {
                /*
                 * A number that was used is the late answer to a cancelled request, or a second
                 * answer. With any other id the request in flight would wait for ever.
                 */
                if (!m->id_is_number || m->id_number > c->last_id)
                        q = only_req(c);
                cg_server_log_line(&c->server_log, CG_LOG_WARN,
                                   "answer to nothing that was asked is ignored; its id", m->id);
                if (q)
                        cg_mcp_req_fail(
                                q,
                                "MCP server \"%s\" answered with an id that no request has (JSON-RPC wants the request's own)",
                                c->def->name);
        } else if (c->modern && m->kind == CG_RPC_RESULT && !is_complete(q, m->result)) {
                return;
        } else if (q->kind == LIST) {
                cg_mcp_on_list_answer(q, m);
        } else if (payload.p[0] != '{') {
                cg_mcp_req_fail(q, "MCP server \"%s\": its answer to %s \"%s\" is not an object",
                                c->def->name, cg_mcp_methods[q->method].what, q->tool);
        } else if (m->kind == CG_RPC_ERROR) {
                finish_with_error(q, payload);
        } else {
                c->answered = true;
                cg_mcp_req_finish(q, CG_MCP_OK, payload.p, payload.len);
        }
}

/* ---- the rest */

static void on_request(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_msg answer = { .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        struct cg_err err;
        char why[200];
        int r;

        if (c->modern) { /* there are none any more, and answers are forbidden */
                cg_server_log_line(&c->server_log, CG_LOG_WARN,
                                   "request that revision 2026-07-28 does not have",
                                   (struct cg_slice){ .p = m->method, .len = strlen(m->method) });
                return;
        }
        if (c->t->ops->unread(c->t) > CG_MCP_MAX_ANSWERS) {
                cg_server_log_line(&c->server_log, CG_LOG_WARN,
                                   "request that is not answered, because it reads no answers",
                                   (struct cg_slice){ .p = m->method, .len = strlen(m->method) });
                return;
        }
        if (cg_mcp_on_server_request(c, m))
                return;
        if (strcmp(m->method, "ping") == 0) {
                r = cg_rpc_add_result(&b, m->id, NULL, 0, &err);
        } else {
                snprintf(why, sizeof(why), "this client does not offer %s", m->method);
                r = cg_rpc_add_error(&b, m->id, CG_RPC_METHOD_NOT_FOUND, why, &err);
        }
        if (r < 0 || cg_mcp_send(c, &answer, &b, &err) < 0)
                cg_server_log_line(&c->server_log, CG_LOG_WARN, "request that cannot be answered",
                                   (struct cg_slice){ .p = m->method, .len = strlen(m->method) });
}

/* In revision 2026-07-28 it names the subscription that it belongs to. */
static bool is_subscribed(const struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_slice meta = CG_SLICE_NONE, id = CG_SLICE_NONE;
        char mine[24];

        if (!c->modern || !cg_json_find(m->params, "_meta", &meta) ||
            !cg_json_find(meta, "io.modelcontextprotocol/subscriptionId", &id))
                return true;
        snprintf(mine, sizeof(mine), "%llu", (unsigned long long)c->subscription.id);
        return cg_slice_is(id, mine);
}

/* The first message of a subscription: which of the changes the server is going to announce. */
static void on_acknowledged(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_slice agreed = CG_SLICE_NONE, tools = CG_SLICE_NONE;

        c->subscription.tools = (c->offered.announces & CG_MCP_TOOLS) && is_subscribed(c, m) &&
                                cg_json_find(m->params, "notifications", &agreed) &&
                                cg_json_find(agreed, "toolsListChanged", &tools) &&
                                cg_slice_is(tools, "true");
}

static bool read_number(struct cg_slice value, double *ret)
{
        char kind = cg_json_kind(value), text[64];

        if (value.len >= sizeof(text) || (kind != '-' && (kind < '0' || kind > '9')))
                return false;
        memcpy(text, value.p, value.len);
        text[value.len] = '\0';
        *ret = strtod(text, NULL);
        return isfinite(*ret);
}

/* Progress of a call in flight; what breaks a rule of the protocol is ignored. */
static void on_progress(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_progress p = { .total = NAN, .message = CG_SLICE_NONE };
        struct cg_slice v = CG_SLICE_NONE;
        struct cg_mcp_req *q = NULL;
        double token, total;

        if (cg_json_find(m->params, "progressToken", &v) && read_number(v, &token) && token >= 1 &&
            token <= (double)c->last_id)
                q = req_by_id(c, (uint64_t)token);
        if (!q || q->kind != CALL) {
                cg_server_log_line(&c->server_log, CG_LOG_DEBUG, "progress of no call under way; its token",
                                   v);
                return;
        }
        v = CG_SLICE_NONE;
        if (!cg_json_find(m->params, "progress", &v) || !read_number(v, &p.progress) ||
            (q->call.has_progress && p.progress <= q->call.progress)) {
                cg_server_log_line(&c->server_log, CG_LOG_DEBUG, "progress that does not increase", v);
                return;
        }
        if (q->call.silent_due_ms) {
                q->call.silent_since_ms = cg_now_ms();
                q->call.silent_due_ms = q->call.silent_since_ms + CG_MCP_SILENT_MS;
        }
        q->call.has_progress = true;
        q->call.progress = p.progress;
        if (cg_json_find(m->params, "total", &v) && read_number(v, &total))
                p.total = total;
        if (cg_json_find(m->params, "message", &v) && cg_json_kind(v) == '"')
                p.message = v;
        if (c->o.progress)
                c->o.progress(q->data, &p);
}

static void on_notification(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        if (strcmp(m->method, "notifications/message") == 0) {
                cg_server_log_line(&c->server_log, CG_LOG_INFO, "message", m->params);
        } else if (strcmp(m->method, "notifications/tools/list_changed") == 0 && is_subscribed(c, m)) {
                if (!c->tools.stale || (c->o.listed && !c->tools.relist_ms))
                        cg_log(c->o.log, CG_LOG_INFO, "MCP server %s: its tools have changed", c->def->name);
                cg_mcp_tools_changed(c);
        } else if (strcmp(m->method, "notifications/subscriptions/acknowledged") == 0) {
                on_acknowledged(c, m);
        } else if (strcmp(m->method, "notifications/cancelled") == 0) {
                struct cg_slice id = CG_SLICE_NONE;

                if (cg_json_find(m->params, "requestId", &id))
                        cg_mcp_on_server_cancelled(c, id);
        } else if (strcmp(m->method, "notifications/progress") == 0) {
                on_progress(c, m);
        } else if (strcmp(m->method, "notifications/resources/list_changed") == 0 && is_subscribed(c, m)) {
                c->lists[CG_MCP_RESOURCES_LIST].stale = c->lists[CG_MCP_TEMPLATES_LIST].stale = true;
        } else if (strcmp(m->method, "notifications/prompts/list_changed") == 0 && is_subscribed(c, m)) {
                c->lists[CG_MCP_PROMPTS_LIST].stale = true;
        } else {
                cg_server_log_line(&c->server_log, CG_LOG_DEBUG, "notification",
                                   (struct cg_slice){ .p = m->method, .len = strlen(m->method) });
        }
}

/* ---- what cannot be read */

/*
 * Fails the request @id; 0: the answer to it may be any, and all requests in flight fail. The
 * server may still work on these.
 */
static void fail_in_flight(struct cg_mcp_client *c, uint64_t id, enum cg_mcp_outcome outcome,
                           const char *cancelled, const char *text)
{
        uint64_t last = c->last_id;
        struct cg_mcp_req *q = c->reqs;

        while (q) {
                if (!q->id || q->id > last || (id && q->id != id)) {
                        q = q->next;
                        continue;
                }
                if (cancelled)
                        cg_mcp_send_cancelled(q, cancelled);
                q->failure = outcome;
                cg_mcp_req_fail(q, "MCP server \"%s\" %s", c->def->name, text);
                q = c->reqs;
        }
}

/* The server waits for an answer to it, and its client for an answer to a call. */
static void refuse_unreadable(struct cg_mcp_client *c, struct cg_slice id, const char *why)
{
        struct cg_mcp_msg answer = { .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 8192 };
        struct cg_err err;

        if (c->modern || c->t->ops->unread(c->t) > CG_MCP_MAX_ANSWERS)
                return;
        if (cg_rpc_add_error(&b, id, CG_RPC_INVALID_REQUEST, why, &err) == 0)
                cg_mcp_send(c, &answer, &b, &err);
}

static void on_unreadable_answer(struct cg_mcp_client *c, struct cg_slice line, uint64_t id, const char *why)
{
        cg_auto_buf struct cg_buf shown = { .max = 0 };
        char text[1024];

        if (cg_server_log_render(c->def, cg_slice_head(line, 200), &shown) < 0)
                cg_buf_clear(&shown);
        snprintf(text, sizeof(text), "sent an answer that cannot be read: %s; it begins with: %.400s%s", why,
                 cg_buf_str(&shown), line.len > 200 ? "..." : "");
        if (id && id == c->silence.ping_id) {
                c->silence.ping_id = 0;
        } else if (id && id == c->subscription.id) {
                listening_ended(c);
        } else if (c->state == STARTING && c->handshake.init_id && (!id || id == c->handshake.init_id)) {
                char failure[1100];

                snprintf(failure, sizeof(failure), "it %s", text);
                cg_mcp_client_start_failed(c, failure);
        } else if (c->state == STARTING && c->handshake.probe_id && (!id || id == c->handshake.probe_id)) {
                cg_auto_buf struct cg_buf error = { .max = 16384 };

                cg_buf_adds(&error, "{\"message\":");
                cg_json_quote(&error, text, strlen(text));
                cg_buf_adds(&error, "}");
                if (!error.failed)
                        cg_mcp_on_discover(c, &(struct cg_rpc){ .kind = CG_RPC_ERROR,
                                                                .error = { error.data, error.len } });
        } else {
                snprintf(text + strlen(text), sizeof(text) - strlen(text),
                         "; whether the request was carried out is not known");
                fail_in_flight(c, id, CG_MCP_FAILED, id ? NULL : "its answer may be one that cannot be read",
                               text);
        }
}

/* @id: of the request in whose response of HTTP it came; 0: none. */
static void on_unreadable(struct cg_mcp_client *c, struct cg_slice text, uint64_t id, bool old,
                          const struct cg_err *err)
{
        struct cg_rpc_unreadable u;

        cg_rpc_inspect(text, &u);
        cg_server_log_line(&c->server_log, CG_LOG_WARN,
                           u.kind == CG_RPC_NO_MESSAGE
                                   ? "line on standard output that is not JSON-RPC is skipped"
                                   : "broken message is skipped",
                           text);
        if (u.kind == CG_RPC_NO_MESSAGE) {
                cg_auto_buf struct cg_buf shown = { .max = 0 };
                size_t n = CG_MIN(text.len, CG_MCP_SKIPPED_SHOWN);

                if (cg_server_log_render(c->def, (struct cg_slice){ text.p, n }, &shown) == 0)
                        snprintf(c->skipped, sizeof(c->skipped), "%s", shown.data);
        }
        if (u.kind == CG_RPC_UNREADABLE_REQUEST && u.id.p && !old)
                refuse_unreadable(c, u.id, err->msg);
        if (u.kind != CG_RPC_UNREADABLE_ANSWER)
                return;
        if (u.id_number)
                id = u.id_number <= c->last_id ? u.id_number : id;
        if (id || (u.certain && !old))
                on_unreadable_answer(c, text, id, err->msg);
}

/* ---- lines */

static void on_message(struct cg_mcp_client *c, struct cg_slice text, uint64_t id, bool old)
{
        struct cg_rpc m;
        struct cg_err err;

        if (cg_rpc_parse(text, &m, &err) < 0) {
                on_unreadable(c, text, id, old, &err);
                return;
        }
        /* Its answer would be one to a request of the new session; it may cancel one of these. */
        if (old && (m.kind == CG_RPC_REQUEST ||
                    (m.kind == CG_RPC_NOTIFICATION && strcmp(m.method, "notifications/cancelled") == 0))) {
                cg_server_log_line(&c->server_log, CG_LOG_DEBUG, "message of a lost session is ignored",
                                   text);
                return;
        }
        switch (m.kind) {
        case CG_RPC_REQUEST:
                on_request(c, &m);
                break;
        case CG_RPC_NOTIFICATION:
                on_notification(c, &m);
                break;
        case CG_RPC_RESULT:
        case CG_RPC_ERROR:
                on_answer(c, &m);
                break;
        }
}

void cg_mcp_on_line(void *data, struct cg_slice line, uint64_t id, bool old)
{
        static const char bom[] = "\xef\xbb\xbf";
        struct cg_mcp_client *c = data;
        const struct cg_transport *t = c->t;
        struct cg_slice one;
        struct cg_json_walk w;
        struct cg_err err;
        int r;

        if (line.len >= 3 && memcmp(line.p, bom, 3) == 0)
                line = (struct cg_slice){ line.p + 3, line.len - 3 };
        line = cg_json_trim(line);
        if (!line.len)
                return;
        c->silence.timeouts = 0; /* it does not hang */
        c->silence.hung_ms = 0;
        if (line.p[0] != '[') {
                on_message(c, line, id, old);
                return;
        }
        /* A batch: revision 2025-03-26 has them, no other. */
        r = cg_json_walk_init(&w, line, '[', &err);
        while (r == 0) {
                r = cg_json_walk_next(&w, NULL, &one, &err);
                if (r == 0)
                        on_message(c, one, id, old);
                if (c->t != t)
                        return;
        }
        if (r < 0)
                on_unreadable(c, line, id, old, &err);
}

bool cg_mcp_waits(void *data, uint64_t id)
{
        const struct cg_mcp_client *c = data;

        return id && (id == c->handshake.init_id || id == c->handshake.probe_id || id == c->subscription.id ||
                      req_by_id(c, id));
}

void cg_mcp_on_unannounced(void *data)
{
        struct cg_mcp_client *c = data;

        c->tools.stale = true; /* not more: streams may end every minute, in sessions that nobody uses */
}

void cg_mcp_on_failed(void *data, uint64_t id, const struct cg_transport_failure *f)
{
        struct cg_mcp_client *c = data;
        struct cg_slice body = cg_json_trim(f->body);
        struct cg_mcp_req *q = req_by_id(c, id);
        struct cg_rpc m;

        if (id == c->handshake.probe_id || id == c->handshake.init_id) {
                cg_mcp_on_handshake_failed(c, id, f);
        } else if (id == c->subscription.id) {
                listening_ended(c);
                cg_log(c->o.log, CG_LOG_INFO, "MCP server %s announces no changes any more: %s", c->def->name,
                       f->text);
        } else if (!q) {
                return;
        } else if (f->session_lost && q->kind == CALL) {
                /* The tools of the new session have not been compared with the pins. */
                if (!f->session_renewed)
                        cg_mcp_renew_session(c);
                q = req_by_id(c, id); /* NULL: the renewal has failed, and all requests with it */
                if (q) {
                        q->failure = CG_MCP_NOT_RUN;
                        cg_mcp_req_fail(q, "MCP server \"%s\": %s; the call was not carried out",
                                        c->def->name, f->text);
                }
        } else if (f->session_lost && !q->pages.sent_again) {
                q->pages.sent_again = true;
                q->id = 0;
                cg_mcp_list_again(q);
                if (!f->session_renewed)
                        cg_mcp_renew_session(c);
                else if (c->state == READY)
                        cg_mcp_send_waiting(c);
        } else if (body.len && cg_rpc_parse(body, &m, NULL) == 0 && m.kind == CG_RPC_ERROR) {
                if (q->kind == LIST)
                        cg_mcp_on_list_answer(q, &m);
                else
                        finish_with_error(q, m.error);
        } else {
                cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, f->text);
        }
}

void cg_mcp_on_too_long(void *data, uint64_t id, const char *why)
{
        struct cg_mcp_client *c = data;
        char text[1024];

        cg_log(c->o.log, CG_LOG_WARN, "MCP server %s sent a %s", c->def->name, why);
        snprintf(text, sizeof(text), "sent an answer that is too long: %s", why);
        fail_in_flight(c, id, CG_MCP_TOO_LARGE, "the answer was too long", text);
}
