/* The client of one MCP server. Linked into tool server and command line. Files: internal.h. */
#include "mcp/client/internal.h"

#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/client/failure.h"
#include "mcp/client/names.h"

/* ---- its ends */

static void restart(struct cg_mcp_client *c);

static void on_ended(void *data, const char *how)
{
        struct cg_mcp_client *c = data;

        c->t = NULL; /* it is being ended already */
        if (c->state == STARTING) {
                /* Some servers end when they get a request that they do not know. */
                if (c->handshake.probe_id && !c->handshake.init_id && c->def->kind == CG_MCP_STDIO &&
                    c->def->era == CG_MCP_AUTO) {
                        cg_mcp_log_failure(c, CG_LOG_INFO, " did not understand server/discover: ", how);
                        c->handshake.skip_probe = true;
                        restart(c);
                        return;
                }
                c->handshake.skip_probe = false;
                cg_mcp_client_start_failed(c, how);
                return;
        }
        if (c->answered && !c->reqs) { /* some end themselves when they are idle: no failure */
                cg_mcp_log_failure(c, CG_LOG_WARN, ": ", how);
                cg_mcp_drop_server(c);
                return;
        }
        cg_mcp_client_died(c, how);
}

static void on_sandbox(void *data, struct cg_slice line, bool old)
{
        struct cg_mcp_client *c = data;

        if (c->o.sandbox)
                c->o.sandbox(c->o.sandbox_data, line, old);
}

bool cg_mcp_client_send_sandbox(const struct cg_mcp_client *c, const char *line, size_t len)
{
        return c->t && c->t->ops->send_sandbox && c->t->ops->send_sandbox(c->t, line, len);
}

static void maybe_free(struct cg_mcp_client *c)
{
        if (!c->ending || !c->timer_closed || c->n_transports)
                return;
        if (c->o.sandbox_free)
                c->o.sandbox_free(c->o.sandbox_data);
        if (c->o.gone)
                c->o.gone(c->o.data);
        cg_mcp_def_free(c->def);
        cg_mcp_free_names(c->tools.names, c->tools.n_names);
        cg_param_headers_free(c->tools.params);
        cg_mcp_free_names(c->prompts, c->n_prompts);
        for (int i = 0; i < CG_MCP_N_METHODS; i++)
                cg_buf_fini(&c->lists[i].text);
        cg_pins_free(c->o.pins);
        free(c->roots);
        free(c);
}

static void on_gone(void *data)
{
        struct cg_mcp_client *c = data;

        c->n_transports--;
        maybe_free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
        struct cg_mcp_client *c = h->data;

        c->timer_closed = true;
        maybe_free(c);
}

void cg_mcp_client_end(struct cg_mcp_client *c, const char *why)
{
        if (c->ending)
                return;
        c->ending = true;
        cg_mcp_fail_all(c, CG_MCP_FAILED, why, NULL);
        cg_mcp_drop_server(c);
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* ---- its start */

int cg_mcp_client_check(struct cg_mcp_client *c, struct cg_err *err)
{
        int64_t wait = CG_MCP_MAX_RESTART_MS;

        if (c->ending)
                return cg_fail(err, CG_E_CLOSED, "MCP server \"%s\" is being ended", c->def->name);
        if (c->failing.n < CG_MCP_CRASHES)
                wait = 0;
        else if (c->failing.n < CG_MCP_CRASHES + 6)
                wait = CG_MCP_RESTART_MS << (c->failing.n - CG_MCP_CRASHES);
        if (wait > CG_MCP_MAX_RESTART_MS)
                wait = CG_MCP_MAX_RESTART_MS;
        wait -= cg_now_ms() - c->failing.last_ms;
        if (c->state != IDLE || wait <= 0)
                return 0;
        return cg_fail(err, CG_E_STATE,
                       "MCP server \"%s\" failed %u times in a row and can be started again in %lld s: %s",
                       c->def->name, c->failing.n, (long long)(wait + 999) / 1000, c->failing.last);
}

static int start(struct cg_mcp_client *c, struct cg_err *err)
{
        static const struct cg_transport_cbs cbs = {
                cg_mcp_on_line,        cg_mcp_on_too_long, cg_mcp_waits, cg_mcp_on_failed,
                cg_mcp_on_unannounced, on_sandbox,         on_ended,     on_gone
        };
        const struct cg_transport_options o = {
                .loop = c->o.loop, .def = c->def, .log = &c->server_log, .cbs = &cbs, .data = c
        };
        int r = cg_mcp_client_check(c, err);

        if (r < 0 || c->state != IDLE)
                return r;
        if (c->def->kind == CG_MCP_STDIO)
                r = cg_stdio_start(&o, &c->t, err);
        else
                r = cg_http_transport_start(&o, c->sse, &c->t, err);
        if (r < 0) {
                struct cg_err why = *err;

                r = cg_fail(err, why.code, "MCP server \"%s\" cannot be started: " CG_MCP_HOST_ONLY "%s",
                            c->def->name, why.msg);
                cg_mcp_count_failure(c, err->msg);
                return r;
        }
        c->n_transports++;
        c->state = STARTING;
        c->answered = false;
        c->handshake.init_timeout_ms = cg_mcp_client_start_ms(c, 0);
        c->handshake.init_deadline_ms = cg_now_ms() + c->handshake.init_timeout_ms;
        c->handshake.probed_again = false;
        r = cg_mcp_begin_handshake(c, err);
        if (r < 0)
                cg_mcp_drop_server(c);
        return r;
}

static void restart(struct cg_mcp_client *c)
{
        int64_t timeout_ms = c->handshake.init_timeout_ms, deadline_ms = c->handshake.init_deadline_ms;
        struct cg_err err;

        cg_mcp_drop_server(c);
        if (start(c, &err) < 0) {
                cg_mcp_fail_all(c, CG_MCP_FAILED, err.msg, NULL);
                return;
        }
        c->handshake.init_timeout_ms = timeout_ms; /* of both starts together */
        c->handshake.init_deadline_ms = deadline_ms;
        cg_mcp_client_rearm(c);
}

/*
 * When a list is fetched for a cell that asks now; 0: at once. Whatever the server does, and
 * however often cells ask, each of these times is one bit that a cell can send: to ask before it,
 * or not.
 */
static int64_t due_ms(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        return c->lists[method].asked ? (cg_now_ms() / CG_MCP_RELIST_MS + 1) * CG_MCP_RELIST_MS : 0;
}

/* Sends what can be sent at once. */
static int try_send(struct cg_mcp_req *q, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        int r;

        if (q->due_ms)
                return 0;
        r = start(c, err);
        if (r < 0)
                return r;
        if (q->kind == CALL && cg_mcp_may_send(q))
                return cg_mcp_send_req(q, err);
        if (q->kind == LIST && !c->tools.sharing && !cg_mcp_lists(c, q->method))
                return cg_mcp_fetch_list(q, err);
        return 0;
}

/* Sends it, or lets it wait for the server's start or for other requests. Takes @q. */
static int begin(struct cg_mcp_req *q, struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        struct cg_err mine;
        int r;

        if (q->kind == LIST) {
                q->due_ms = q->cell ? due_ms(c, q->method) : 0;
                c->lists[q->method].asked = true;
        }
        r = try_send(q, &mine);
        if (r < 0) {
                cg_mcp_req_free(q);
                if (err)
                        *err = mine;
                return r;
        }
        if (c->state == STARTING && !q->cell && q->timeout_ms > c->handshake.init_timeout_ms) {
                c->handshake.init_deadline_ms += q->timeout_ms - c->handshake.init_timeout_ms;
                c->handshake.init_timeout_ms = q->timeout_ms;
        }
        cg_mcp_req_add(q);
        cg_mcp_client_rearm(c);
        *ret = q;
        return 0;
}

int cg_mcp_client_list(struct cg_mcp_client *c, int64_t timeout_ms, bool cell, cg_mcp_done done, void *data,
                       struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, CG_MCP_TOOLS_LIST, cg_mcp_client_start_ms(c, timeout_ms),
                                              done, data);

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        q->cell = cell;
        return begin(q, ret, err);
}

static void on_relisted(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        /* on_listed() was called. After a failure the next call lists again, and reports it. */
}

static void relist(struct cg_mcp_client *c)
{
        struct cg_mcp_req *q;

        c->tools.relist_ms = 0;
        cg_mcp_listen(c);
        if (cg_mcp_lists(c, CG_MCP_TOOLS_LIST)) /* it may have begun before the change */
                c->tools.relist_ms = cg_now_ms() + CG_MCP_RELIST_MS;
        else
                cg_mcp_client_list(c, 0, false, on_relisted, c, &q, NULL);
}

int cg_mcp_client_list_other(struct cg_mcp_client *c, enum cg_mcp_method method, int64_t timeout_ms,
                             cg_mcp_done done, void *data, struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, method, timeout_ms ?: cg_mcp_client_start_ms(c, 0), done,
                                              data);

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        q->cell = true;
        return begin(q, ret, err);
}

/* Begins a call whose line, but for the end of its objects, was made. Takes @q. */
static int begin_call(struct cg_mcp_req *q, const char *name, int64_t timeout_ms, struct cg_mcp_req **ret,
                      struct cg_err *err)
{
        int r = cg_buf_end(&q->call.line, err);

        q->cell = timeout_ms;
        q->tool = strdup(name);
        if (r == 0 && !q->tool)
                r = cg_fail(err, CG_E_NOMEM, "request");
        if (r == 0)
                return begin(q, ret, err);
        cg_mcp_req_free(q);
        return r;
}

int cg_mcp_client_request(struct cg_mcp_client *c, enum cg_mcp_method method, const char *name,
                          const char *params, size_t len, int64_t timeout_ms, cg_mcp_done done, void *data,
                          struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, method, cg_mcp_client_call_ms(c, timeout_ms), done, data);
        struct cg_slice members = cg_json_trim((struct cg_slice){ params, len });

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        cg_buf_addf(&q->call.line, "%*s,\"method\":\"%s\",\"params\":", CG_MCP_LINE_GAP, "",
                    cg_mcp_methods[method].name);
        cg_buf_add(&q->call.line, members.p,
                   members.len - 1); /* the end of the object comes when it is sent */
        return begin_call(q, name, timeout_ms, ret, err);
}

int cg_mcp_client_call(struct cg_mcp_client *c, const char *tool, const char *args, size_t len,
                       int64_t timeout_ms, cg_mcp_done done, void *data, struct cg_mcp_req **ret,
                       struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, CG_MCP_TOOLS_CALL, cg_mcp_client_call_ms(c, timeout_ms),
                                              done, data);
        size_t tool_len = strlen(tool);
        char *room;

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        /* Room for the whole line, so that the arguments are not moved again. */
        cg_buf_fail(&q->call.line,
                    cg_buf_reserve(&q->call.line, CG_MCP_LINE_GAP + len + 6 * tool_len + 128, &room, NULL));
        cg_buf_addf(&q->call.line, "%*s,\"method\":\"tools/call\",\"params\":{\"name\":", CG_MCP_LINE_GAP,
                    "");
        cg_json_quote(&q->call.line, tool, tool_len);
        cg_buf_adds(&q->call.line, ",\"arguments\":");
        q->call.args_at = q->call.line.len;
        q->call.args_len = len;
        cg_buf_add(&q->call.line, args, len);
        return begin_call(q, tool, timeout_ms, ret, err);
}

static const struct cg_mcp_question_ops question_ops = { cg_mcp_questions_of_call, cg_mcp_questions_of_server,
                                                         cg_mcp_questions_expire, cg_mcp_send_round };

int cg_mcp_client_new(const struct cg_mcp_client_options *o, struct cg_mcp_def *def,
                      struct cg_mcp_client **ret, struct cg_err *err)
{
        struct cg_mcp_client *c = calloc(1, sizeof(*c));

        if (!c || (def->roots && cg_mcp_make_roots(o->workspace, &c->roots, err) < 0)) {
                free(c);
                cg_mcp_def_free(def);
                cg_pins_free(o->pins);
                return cg_fail(err, CG_E_NOMEM, "MCP client");
        }
        c->o = *o;
        c->def = def;
        c->upper.restart = restart;
        c->upper.relist = relist;
        c->upper.start = start;
        c->sse = def->kind == CG_MCP_SSE;
        c->server_log = (struct cg_server_log){ .log = o->log, .def = def };
        if (def->url && strncasecmp(def->url, "http://", 7) == 0 && def->headers[0] &&
            strncasecmp(def->url + 7, "localhost", 9) != 0 && strncmp(def->url + 7, "127.", 4) != 0 &&
            strncmp(def->url + 7, "[::1]", 5) != 0)
                cg_log(c->o.log, CG_LOG_WARN,
                       "MCP server %s: its headers are sent unencrypted: use https:// if they are secret",
                       def->name);
        if (def->note)
                cg_log(c->o.log, CG_LOG_WARN, "MCP server %s: %s", def->name, def->note);
        c->upper.questions = &question_ops;
        uv_timer_init(c->o.loop, &c->timer); /* cannot fail */
        c->timer.data = c;
        *ret = c;
        return 0;
}

/* ---- what is known of it */

const char *cg_mcp_client_name(const struct cg_mcp_client *c)
{
        return c->def->name;
}

const struct cg_mcp_def *cg_mcp_client_def(const struct cg_mcp_client *c)
{
        return c->def;
}

void cg_mcp_client_check_subscription(struct cg_mcp_client *c)
{
        if (c->state == READY && c->modern && c->offered.announces && !c->subscription.id)
                cg_mcp_lists_stale(c);
}

struct cg_pins *cg_mcp_client_pins(const struct cg_mcp_client *c)
{
        return c->o.pins;
}

bool cg_mcp_client_has_tool(const struct cg_mcp_client *c, const char *tool)
{
        for (size_t i = 0; i < c->tools.n_names; i++)
                if (strcmp(c->tools.names[i], tool) == 0)
                        return true;
        return false;
}

struct cg_slice cg_mcp_client_kept_list(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        const struct kept_list *l = &c->lists[method];

        if (!l->known || l->stale || (l->until_ms && l->until_ms <= cg_now_ms()) || cg_mcp_lists(c, method))
                return CG_SLICE_NONE;
        return (struct cg_slice){ l->text.data, l->text.len };
}

bool cg_mcp_client_reports_changes(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        return (c->offered.announces & cg_mcp_methods[method].offer) || c->lists[method].until_ms;
}

bool cg_mcp_client_has_prompt(const struct cg_mcp_client *c, const char *name)
{
        for (size_t i = 0; i < c->n_prompts; i++)
                if (strcmp(c->prompts[i], name) == 0)
                        return true;
        return false;
}

bool cg_mcp_client_offers(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        return !c->offered.known || (c->offered.offers & cg_mcp_methods[method].offer);
}

void cg_mcp_client_close_names(const struct cg_mcp_client *c, enum cg_mcp_method method, const char *name,
                               struct cg_buf *b)
{
        if (method == CG_MCP_PROMPTS_GET)
                cg_close_names(name, c->prompts, c->n_prompts, b);
        else
                cg_close_names(name, c->tools.names, c->tools.n_names, b);
}
