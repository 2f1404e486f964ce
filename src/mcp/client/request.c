/* Requests to an MCP server: their states, deadlines and ends. */
#include "mcp/client/internal.h"

#include <math.h>
#include <stdarg.h>
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/client/failure.h"

/* Bytes of a text that becomes a struct cg_err, with room for what is put before it. */
#define FAILURE_MAX ((size_t)900)

void cg_mcp_free_names(char **names, size_t n)
{
        for (size_t i = 0; i < n; i++)
                free(names[i]);
        free(names);
}

int64_t cg_mcp_client_start_ms(const struct cg_mcp_client *c, int64_t timeout_ms)
{
        return c->def->start_timeout_ms ?: timeout_ms ?: CG_MCP_START_MS;
}

int64_t cg_mcp_client_call_ms(const struct cg_mcp_client *c, int64_t timeout_ms)
{
        return timeout_ms ?: c->def->call_timeout_ms;
}

/* ---- requests */

void cg_mcp_req_free(struct cg_mcp_req *q)
{
        free(q->tool);
        cg_buf_fini(&q->call.line);
        cg_buf_fini(&q->call.more);
        cg_buf_fini(&q->pages.text);
        cg_mcp_free_names(q->pages.names, q->pages.n_names);
        cg_param_headers_free(q->pages.params);
        free(q->pages.cursors);
        free(q);
}

struct cg_mcp_req *cg_mcp_req_new(struct cg_mcp_client *c, enum cg_mcp_method method, int64_t timeout_ms,
                                  cg_mcp_done done, void *data)
{
        struct cg_mcp_req *q = calloc(1, sizeof(*q));

        if (!q)
                return NULL;
        if (timeout_ms > CG_MCP_MAX_TIMEOUT_MS)
                timeout_ms = CG_MCP_MAX_TIMEOUT_MS;
        q->c = c;
        q->kind = cg_mcp_methods[method].member ? LIST : CALL;
        q->method = method;
        q->seq = ++c->last_seq;
        q->n_lists = c->tools.n_lists;
        q->timeout_ms = timeout_ms;
        q->deadline_ms = timeout_ms ? cg_now_ms() + timeout_ms : 0;
        if (q->kind == CALL && !timeout_ms) {
                q->call.silent_since_ms = cg_now_ms();
                q->call.silent_due_ms = q->call.silent_since_ms + CG_MCP_SILENT_MS;
        }
        q->failure = CG_MCP_FAILED;
        q->done = done;
        q->data = data;
        cg_buf_init(&q->call.line, (size_t)CG_MAX_TOOL_ARGS + 65536);
        cg_buf_init(&q->call.more, CG_MCP_MAX_MORE);
        cg_buf_init(&q->pages.text, method == CG_MCP_TOOLS_LIST ? CG_MCP_MAX_LIST : CG_MCP_MAX_KEPT_LIST);
        return q;
}

static void on_timer(uv_timer_t *t);

/*
 * Whether a request within its time may be why the server is silent. Later requests are not: a
 * program that works in order would have reached ping before them.
 */
static bool is_busy(const struct cg_mcp_client *c)
{
        for (const struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->id && q->id <= c->silence.doubted_id)
                        return true;
        return false;
}

/* @at_ms: 0 for never. */
static void sooner(int64_t *first_ms, int64_t at_ms)
{
        if (at_ms && (!*first_ms || at_ms < *first_ms))
                *first_ms = at_ms;
}

/* Only what on_timer() acts on in this state: anything else that is due would keep it running. */
void cg_mcp_client_rearm(struct cg_mcp_client *c)
{
        int64_t first = 0, now = cg_now_ms();

        if (c->ending)
                return;
        if (c->state == STARTING) {
                sooner(&first, c->handshake.init_deadline_ms);
                sooner(&first, c->handshake.probe_deadline_ms);
        }
        if (c->state == READY) {
                sooner(&first, c->tools.relist_ms);
                if (!is_busy(c))
                        sooner(&first, c->silence.hung_ms);
        }
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next) {
                sooner(&first, q->deadline_ms);
                sooner(&first, q->due_ms);
                if (!q->call.n_open)
                        sooner(&first, q->call.silent_due_ms);
        }
        for (const struct cg_mcp_question *n = c->questions; n; n = n->next)
                if (n->number)
                        sooner(&first, n->deadline_ms);
        if (first)
                uv_timer_start(&c->timer, on_timer, (uint64_t)CG_MAX(first - now, 0), 0);
        else
                uv_timer_stop(&c->timer);
}

void cg_mcp_req_add(struct cg_mcp_req *q)
{
        struct cg_mcp_req **p = &q->c->reqs;

        while (*p)
                p = &(*p)->next;
        *p = q;
}

static void unlink_req(struct cg_mcp_req *q)
{
        CG_UNLINK(q->c->reqs, q, next);
        if (q->c->silence.hung_ms && q->id && q->id <= q->c->silence.doubted_id)
                q->c->silence.hung_ms = cg_now_ms() + CG_MCP_PING_MS; /* it may have worked on this one */
        if (q->kind == CALL)
                q->c->upper.questions->call_ended(q->c, q);
        if (q->call.list)
                cg_mcp_req_cancel(q->call.list, "the call has ended");
}

bool cg_mcp_lists(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        for (const struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->method == method && q->fetch)
                        return true;
        return false;
}

/* The first request for the list whose time has come; NULL: none. */
static struct cg_mcp_req *waiting_list(const struct cg_mcp_client *c, enum cg_mcp_method method)
{
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->method == method && !q->fetch && !q->due_ms)
                        return q;
        return NULL;
}

bool cg_mcp_client_is_listed(const struct cg_mcp_client *c)
{
        return c->tools.listed && !c->tools.stale && !cg_mcp_lists(c, CG_MCP_TOOLS_LIST) &&
               (c->def->kind == CG_MCP_STDIO || (c->subscription.id && c->subscription.tools) ||
                cg_now_ms() - c->tools.listed_ms < c->tools.valid_ms);
}

bool cg_mcp_may_send(const struct cg_mcp_req *q)
{
        const struct cg_mcp_client *c = q->c;
        unsigned in_flight = 0;

        if (c->state != READY || c->ending || q->id || q->call.n_open || q->call.list)
                return false;
        if (q->kind == LIST)
                return q->fetch;
        if (!c->def->max_concurrency)
                return true;
        for (const struct cg_mcp_req *p = c->reqs; p; p = p->next)
                in_flight += p->kind == CALL && p->id;
        return in_flight < c->def->max_concurrency;
}

/* True if the tool may be another since the call, or its round, was compared with the pins. */
static bool may_have_changed(const struct cg_mcp_req *q)
{
        const struct cg_mcp_client *c = q->c;

        if (q->method != CG_MCP_TOOLS_CALL)
                return false;
        if (!cg_mcp_client_is_listed(c))
                return true;
        if (q->call.rounds)
                return c->o.pins && cg_pins_check(c->o.pins, q->tool, NULL) < 0;
        return q->n_lists != c->tools.n_lists;
}

int cg_mcp_fetch_list(const struct cg_mcp_req *q, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        struct cg_mcp_req *fetch = cg_mcp_req_new(c, q->method, cg_mcp_client_start_ms(c, 0), NULL, NULL);
        int r = 0;

        if (!fetch)
                return cg_fail(err, CG_E_NOMEM, "request");
        fetch->fetch = true;
        if (!q->cell) {
                fetch->timeout_ms = q->timeout_ms;
                fetch->deadline_ms = q->deadline_ms;
        }
        if (c->state == READY) { /* else it is sent when the server has started */
                cg_mcp_listen(c);
                r = cg_mcp_send_req(fetch, err);
        }
        if (r < 0) {
                cg_mcp_req_free(fetch);
                return r;
        }
        cg_mcp_req_add(fetch);
        cg_mcp_client_rearm(c);
        return 0;
}

void cg_mcp_next_list(struct cg_mcp_client *c)
{
        struct cg_mcp_req *q;
        struct cg_err err;

        for (enum cg_mcp_method m = CG_MCP_TOOLS_LIST; m < CG_MCP_N_METHODS; m++)
                while (c->state != IDLE && !c->ending && !c->tools.sharing && !cg_mcp_lists(c, m) &&
                       (q = waiting_list(c, m)))
                        if (cg_mcp_fetch_list(q, &err) < 0)
                                cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, err.msg);
}

void cg_mcp_send_waiting(struct cg_mcp_client *c)
{
        struct cg_mcp_req *q = c->reqs;
        struct cg_err err;

        if (c->sending) /* by a callback of this loop, which goes on */
                return;
        c->sending = true;
        while (q) {
                if (!cg_mcp_may_send(q)) {
                        q = q->next;
                        continue;
                }
                if (may_have_changed(q)) {
                        if (!q->call.rounds) /* else it has been sent before */
                                q->failure = CG_MCP_NOT_SENT;
                        cg_mcp_req_fail(
                                q,
                                "MCP server \"%s\" may have changed its tools while the call waited; it was not sent",
                                c->def->name);
                } else if (cg_mcp_send_req(q, &err) < 0) {
                        cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, err.msg);
                }
                q = c->reqs; /* the callback may have changed the list */
        }
        c->sending = false;
}

/*
 * Ends all requests that wait for the list as it has ended, except those that came after it was
 * asked for where it has changed since: they need another one.
 */
static void share_list(const struct cg_mcp_req *fetch, enum cg_mcp_outcome outcome, const char *bytes,
                       size_t len)
{
        struct cg_mcp_client *c = fetch->c;
        bool *stale = cg_mcp_list_stale(c, fetch->method);
        uint64_t last = c->last_seq;
        struct cg_mcp_req *q = c->reqs;

        *stale |= outcome != CG_MCP_OK;
        c->tools.sharing = true;
        while (q) {
                if (q->method != fetch->method || q->seq > last ||
                    (outcome == CG_MCP_OK && *stale && q->seq > fetch->seq)) {
                        q = q->next;
                        continue;
                }
                cg_mcp_req_finish(q, outcome, bytes, len);
                q = c->reqs; /* the callback may have changed the list */
        }
        c->tools.sharing = false;
}

/* The client is freed later, from the event loop. */
void cg_mcp_req_finish(struct cg_mcp_req *q, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct cg_mcp_client *c = q->c;

        unlink_req(q);
        cg_mcp_client_rearm(c);
        if (q->fetch)
                share_list(q, outcome, bytes, len);
        else
                q->done(q->data, outcome, bytes, len);
        cg_mcp_req_free(q);
        cg_mcp_next_list(c);
        cg_mcp_send_waiting(c);
}

__attribute__((format(printf, 2, 3))) void cg_mcp_req_fail(struct cg_mcp_req *q, const char *fmt, ...)
{
        char text[4096];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        cg_mcp_req_finish(q, q->failure, text, strlen(text));
}

/* Only requests that exist now: a callback may begin new ones, and cancel others. */
void cg_mcp_fail_all(struct cg_mcp_client *c, enum cg_mcp_outcome outcome, const char *text,
                     const char *not_sent)
{
        uint64_t last = c->last_seq;
        struct cg_mcp_req *q = c->reqs;

        while (q) {
                if (q->seq > last) {
                        q = q->next;
                        continue;
                }
                if (not_sent && !q->id && !q->call.rounds && !cg_mcp_lists(c, q->method))
                        cg_mcp_req_finish(q, CG_MCP_NOT_SENT, not_sent, strlen(not_sent));
                else
                        cg_mcp_req_finish(q, outcome, text, strlen(text));
                q = c->reqs;
        }
}

/* It is of no use any more, for whatever reason. */
void cg_mcp_drop_server(struct cg_mcp_client *c)
{
        struct cg_transport *t = c->t;

        c->t = NULL;
        cg_mcp_lists_stale(c);
        c->state = IDLE;
        c->handshake.init_id = c->handshake.probe_id = c->subscription.id = 0;
        c->silence.ping_id = 0;
        c->handshake.probe_deadline_ms = c->silence.hung_ms = c->tools.relist_ms = 0;
        c->silence.timeouts = 0;
        c->upper.questions->server_gone(c);
        if (t)
                t->ops->end(t);
        cg_mcp_client_rearm(c);
}

void cg_mcp_count_failure(struct cg_mcp_client *c, const char *why)
{
        c->failing.last_ms = cg_now_ms();
        if (c->ready_at_ms && c->failing.last_ms - c->ready_at_ms >= CG_MCP_WORKED_MS)
                c->failing.n = 0;
        c->ready_at_ms = 0;
        c->failing.n++;
        c->sse = c->def->kind == CG_MCP_SSE; /* a guess of HTTP+SSE is forgotten */
        snprintf(c->failing.last, sizeof(c->failing.last), "%.*s", (int)sizeof(c->failing.last) - 1, why);
}

void cg_mcp_log_failure(const struct cg_mcp_client *c, enum cg_log_level level, const char *what,
                        const char *how)
{
        char text[4096];

        snprintf(text, sizeof(text), "%s", how);
        cg_mcp_failure_for_host(c->def, text);
        cg_log(c->o.log, level, "MCP server %s%s%s", c->def->name, what, text);
}

void cg_mcp_client_died(struct cg_mcp_client *c, const char *how)
{
        char text[4096], not_sent[4096];

        cg_mcp_log_failure(c, CG_LOG_WARN, ": ", how);
        if (c->def->kind == CG_MCP_STDIO)
                cg_mcp_count_failure(c, how);
        cg_mcp_drop_server(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" failed in the middle of the call: %s", c->def->name,
                 how);
        snprintf(not_sent, sizeof(not_sent), "MCP server \"%s\" failed before the request was sent: %s",
                 c->def->name, how);
        cg_mcp_fail_all(c, CG_MCP_DIED, text, not_sent);
}

void cg_mcp_client_start_failed(struct cg_mcp_client *c, const char *why)
{
        static const char *const ours[] = { "it ended (", "it did not answer initialize within " };
        /* How a program ended may be told, up to what it wrote. All else may be its own words. */
        bool marked = strchr(why, CG_MCP_HOST_ONLY[0]) != NULL;
        char reason[4096], text[4096 + CG_MAX_NAME + 64];

        for (size_t i = 0; i < CG_ARRAY_LEN(ours); i++)
                marked |= strncmp(why, ours[i], strlen(ours[i])) == 0;
        snprintf(reason, sizeof(reason), "%s%s", marked ? "" : CG_MCP_HOST_ONLY, why);
        cg_mcp_log_failure(c, CG_LOG_WARN, " did not start: ", why);
        cg_mcp_count_failure(c, reason);
        cg_mcp_drop_server(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" did not start: %s", c->def->name, reason);
        cg_mcp_fail_all(c, CG_MCP_FAILED, text, NULL);
}

void cg_mcp_tools_changed(struct cg_mcp_client *c)
{
        c->tools.stale = true;
        cg_mcp_client_list_later(c);
}

void cg_mcp_client_list_later(struct cg_mcp_client *c)
{
        int64_t due = c->tools.listed_ms + CG_MCP_RELIST_MS, now = cg_now_ms();

        if (!c->o.listed || c->state != READY || c->tools.relist_ms)
                return;
        c->tools.relist_ms = CG_MAX(due, now);
        cg_mcp_client_rearm(c);
}

int cg_mcp_fail_text(struct cg_err *err, const char *text, size_t len)
{
        const char *end = len > FAILURE_MAX ? memchr(text, '\n', FAILURE_MAX) : NULL, *rest;

        if (!end)
                return cg_fail(err, CG_E_PROTO, "%.*s", (int)CG_MIN(len, FAILURE_MAX), text);
        /* The end of what a server wrote says most: the beginning of it is left out. */
        rest = text + len - (FAILURE_MAX - (size_t)(end - text));
        rest = memchr(rest, '\n', (size_t)(text + len - rest)) ?: text + len;
        return cg_fail(err, CG_E_PROTO, "%.*s%.*s", (int)(end - text), text, (int)(text + len - rest), rest);
}

/* ---- deadlines */

/*
 * A request was not answered in time: the server is busy, or hangs. It is ended by the timer, and
 * started again by the next request, unless it writes something before. Not while it may work on
 * another request: to end a call that somebody has approved is worse than to notice late.
 */
static void check_health(struct cg_mcp_client *c)
{
        struct cg_mcp_msg m = { .method = "ping", .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 1024 };

        c->silence.timeouts++;
        if (c->silence.hung_ms || (c->modern && c->silence.timeouts < CG_MCP_MAX_TIMEOUTS))
                return;
        c->silence.hung_ms = cg_now_ms() + CG_MCP_PING_MS; /* also where it does not read */
        c->silence.doubted_id = c->last_id;
        if (c->modern || c->silence.ping_id)
                return;
        m.id = c->silence.ping_id = ++c->last_id;
        if (cg_rpc_add_request(&b, m.id, m.method, NULL, NULL) == 0)
                cg_mcp_send(c, &m, &b, NULL);
}

static void on_hung(struct cg_mcp_client *c)
{
        char how[CG_MCP_STDERR_SHOWN + 256];

        if (c->modern)
                snprintf(
                        how, sizeof(how),
                        "it has not answered %u requests in a row, has written nothing for %d s, and is ended%s",
                        c->silence.timeouts, CG_MCP_PING_MS / 1000, c->t->ops->last_words(c->t));
        else
                snprintf(how, sizeof(how),
                         "it has answered neither a request in time nor ping within %d s and is ended%s",
                         CG_MCP_PING_MS / 1000, c->t->ops->last_words(c->t));
        cg_mcp_client_died(c, how);
}

static void expire(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        q->failure = CG_MCP_TIMEOUT;
        cg_mcp_send_cancelled(q, "timeout");
        if (c->state == STARTING) {
                cg_mcp_req_fail(
                        q,
                        "MCP server \"%s\" did not answer initialize within %lld ms (\"startTimeout\" in its definition, in seconds, "
                        "allows more)%s",
                        c->def->name, (long long)q->timeout_ms, c->t->ops->last_words(c->t));
                return;
        }
        if (q->kind == CALL && !q->id && !q->call.rounds) {
                cg_mcp_req_fail(
                        q,
                        "MCP server \"%s\": %s \"%s\" was not sent within %lld ms: others were under way, and "
                        "\"maxConcurrency\" in its definition is %u",
                        c->def->name, cg_mcp_methods[q->method].what, q->tool, (long long)q->timeout_ms,
                        c->def->max_concurrency);
                return;
        }
        if (c->def->kind == CG_MCP_STDIO && (q->kind == CALL || q->fetch))
                check_health(c);
        if (q->kind == LIST)
                cg_mcp_req_fail(q, "MCP server \"%s\" did not list its %s within %lld ms", c->def->name,
                                cg_mcp_methods[q->method].what, (long long)q->timeout_ms);
        else
                cg_mcp_req_fail(q, "MCP server \"%s\": %s \"%s\" did not answer within %lld ms", c->def->name,
                                cg_mcp_methods[q->method].what, q->tool, (long long)q->timeout_ms);
}

/* Lists that cells have asked for, see CG_MCP_RELIST_MS. */
static void begin_due_lists(struct cg_mcp_client *c, int64_t now)
{
        struct cg_mcp_req *q = c->reqs;
        struct cg_err err;

        while (q && !c->ending) {
                if (!q->due_ms || q->due_ms > now) {
                        q = q->next;
                        continue;
                }
                q->due_ms = 0;
                if (c->upper.start(c, &err) < 0) {
                        cg_mcp_req_fail(q, "%s", err.msg);
                        q = c->reqs; /* the callback may have changed the list */
                }
        }
        cg_mcp_next_list(c);
}

/*
 * Nobody may wait for ever without knowing for what. A call whose question the host has not
 * answered is not reported: the host knows.
 */
static void report_silent(struct cg_mcp_req *q, int64_t now)
{
        struct cg_mcp_client *c = q->c;
        cg_auto_buf struct cg_buf json = { .max = 8192 };
        struct cg_mcp_progress p = { .progress = NAN, .total = NAN };
        int64_t silent_ms = now - q->call.silent_since_ms;
        const char *state = q->id || q->call.rounds ? "no answer" : "not sent";
        char text[1200];

        if (!q->call.silent_due_ms || q->call.silent_due_ms > now || q->call.n_open)
                return;
        q->call.silent_due_ms = now + silent_ms;
        snprintf(text, sizeof(text),
                 "%s for %lld s, and the call has no time limit (\"timeout\" in the server's definition sets "
                 "one; an interrupt ends the wait)%s%s",
                 c->state == READY ? state : "the server has not started", (long long)(silent_ms / 1000),
                 c->skipped[0] ? "; the last text of the server that was no message: " : "", c->skipped);
        cg_json_quote(&json, text, strlen(text));
        if (!c->o.progress || json.failed)
                return;
        p.message = (struct cg_slice){ json.data, json.len };
        c->o.progress(q->data, &p);
}

static void on_timer(uv_timer_t *t)
{
        struct cg_mcp_client *c = t->data;
        int64_t now = cg_now_ms();
        struct cg_mcp_req *q;

        for (q = c->reqs; q && !c->ending;) {
                if (!q->deadline_ms || q->deadline_ms > now) {
                        q = q->next;
                        continue;
                }
                expire(q);
                q = c->reqs; /* the callback may have changed the list */
        }
        for (q = c->reqs; q && !c->ending; q = q->next)
                report_silent(q, now);
        begin_due_lists(c, now);
        if (c->state == READY && c->silence.hung_ms && c->silence.hung_ms <= now && !is_busy(c) && !c->ending)
                on_hung(c);
        c->upper.questions->expire(c, now);
        if (c->state == READY && c->tools.relist_ms && c->tools.relist_ms <= now && !c->ending)
                c->upper.relist(c);
        if (c->state == STARTING && c->handshake.probe_deadline_ms && c->handshake.probe_deadline_ms <= now &&
            !c->ending)
                c->handshake.probe_expired(c);
        if (c->state == STARTING && c->handshake.init_deadline_ms <= now && !c->ending) {
                char why[CG_MCP_STDERR_SHOWN + 256];

                snprintf(why, sizeof(why), "it did not answer initialize within %lld ms%s",
                         (long long)c->handshake.init_timeout_ms, c->t->ops->last_words(c->t));
                cg_mcp_client_start_failed(c, why);
        }
        cg_mcp_client_rearm(c);
}

void cg_mcp_req_cancel(struct cg_mcp_req *q, const char *reason)
{
        struct cg_mcp_client *c = q->c;

        cg_mcp_send_cancelled(q, reason);
        unlink_req(q);
        cg_mcp_client_rearm(c);
        cg_mcp_req_free(q);
        cg_mcp_send_waiting(c);
}

int cg_mcp_error_code(struct cg_slice error)
{
        struct cg_slice code = CG_SLICE_NONE;
        char text[16];

        if (!cg_json_find(error, "code", &code) || code.len >= sizeof(text))
                return 0;
        memcpy(text, code.p, code.len);
        text[code.len] = '\0';
        return (int)strtol(text, NULL, 10);
}

void cg_mcp_error_text(struct cg_slice error, char *buf, size_t size)
{
        cg_auto_buf struct cg_buf shown = { .max = 8 * size };
        struct cg_slice message = CG_SLICE_NONE;
        cg_auto_free char *text = NULL;

        if (cg_json_member(error, "message", &message, NULL) < 0 || !message.p ||
            cg_json_strdup(message, &text, NULL) < 0)
                text = strndup(error.p, CG_MIN(error.len, 500));
        /* One line: it becomes part of messages that begin with our mark. */
        if (text)
                cg_text_render_as(&shown, text, strlen(text), size - 1, CG_TEXT_LINE);
        snprintf(buf, size, "%s", cg_buf_str(&shown));
}
