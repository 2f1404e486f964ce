/*
 * The client of one MCP server over stdio. Linked into the tool server and the command line. By
 * file: client_int.h.
 */
#include "mcp/client_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "mcp/limits.h"
#include "mcp/names.h"

void cg_mcp_free_names(char **names, size_t n)
{
        for (size_t i = 0; i < n; i++)
                free(names[i]);
        free(names);
}

/* ---- requests */

static void req_free(struct cg_mcp_req *q)
{
        free(q->tool);
        cg_buf_fini(&q->line);
        cg_buf_fini(&q->tools);
        cg_mcp_free_names(q->names, q->n_names);
        free(q->cursors);
        free(q);
}

static struct cg_mcp_req *req_new(struct cg_mcp_client *c, enum req_kind kind, int64_t timeout_ms,
                                  cg_mcp_done done, void *data)
{
        struct cg_mcp_req *q = calloc(1, sizeof(*q));

        if (!q)
                return NULL;
        q->c = c;
        q->kind = kind;
        q->seq = ++c->last_seq;
        q->timeout_ms = timeout_ms;
        q->deadline_ms = timeout_ms ? cg_now_ms() + timeout_ms : 0;
        q->done = done;
        q->data = data;
        cg_buf_init(&q->line, (size_t)CG_MAX_TOOL_ARGS + 65536);
        cg_buf_init(&q->tools, CG_MCP_MAX_LIST);
        return q;
}

static void on_timer(uv_timer_t *t);

void cg_mcp_client_rearm(struct cg_mcp_client *c)
{
        int64_t first = c->state == STARTING ? c->init_deadline_ms : 0, now = cg_now_ms();

        if (c->ending)
                return;
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->deadline_ms && (!first || q->deadline_ms < first))
                        first = q->deadline_ms;
        if (first)
                uv_timer_start(&c->timer, on_timer, first > now ? (uint64_t)(first - now) : 0, 0);
        else
                uv_timer_stop(&c->timer);
}

static void add_req(struct cg_mcp_req *q)
{
        struct cg_mcp_req **p = &q->c->reqs;

        while (*p)
                p = &(*p)->next;
        *p = q;
}

static void unlink_req(struct cg_mcp_req *q)
{
        for (struct cg_mcp_req **p = &q->c->reqs; *p; p = &(*p)->next) {
                if (*p == q) {
                        *p = q->next;
                        return;
                }
        }
}

bool cg_mcp_lists(const struct cg_mcp_client *c)
{
        for (const struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->kind == LIST && q->id)
                        return true;
        return false;
}

struct cg_mcp_req *cg_mcp_waiting_list(const struct cg_mcp_client *c)
{
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->kind == LIST && !q->id)
                        return q;
        return NULL;
}

void cg_mcp_next_list(struct cg_mcp_client *c)
{
        struct cg_mcp_req *q;
        struct cg_err err;

        while (c->state == READY && !c->ending && !c->sharing && !cg_mcp_lists(c) &&
               (q = cg_mcp_waiting_list(c)))
                if (cg_mcp_send_req(q, &err) < 0)
                        cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, err.msg);
}

/* Not the client: that is freed from the event loop. */
static void forget(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;
        bool list = q->kind == LIST && q->id;

        req_free(q);
        if (list)
                cg_mcp_next_list(c);
}

void cg_mcp_req_finish(struct cg_mcp_req *q, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        unlink_req(q);
        cg_mcp_client_rearm(q->c);
        if (q->kind == LIST && outcome != CG_MCP_OK)
                q->c->stale = true;
        q->done(q->data, outcome, bytes, len);
        forget(q);
}

__attribute__((format(printf, 2, 3))) void cg_mcp_req_fail(struct cg_mcp_req *q, const char *fmt, ...)
{
        char text[4096];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        cg_mcp_req_finish(q, CG_MCP_FAILED, text, strlen(text));
}

/* Those that are there now: a callback may begin new ones, and cancel others of these. */
static void fail_all(struct cg_mcp_client *c, const char *text)
{
        uint64_t last = c->last_seq;
        struct cg_mcp_req *q = c->reqs;

        while (q) {
                if (q->seq <= last) {
                        cg_mcp_req_finish(q, CG_MCP_FAILED, text, strlen(text));
                        q = c->reqs;
                } else {
                        q = q->next;
                }
        }
}

/* ---- its ends */

/* The process is of no use any more, for whatever reason. */
static void drop_child(struct cg_mcp_client *c)
{
        struct cg_stdio *child = c->child;

        c->child = NULL;
        c->state = IDLE;
        c->init_id = 0;
        if (child)
                cg_stdio_end(child);
        cg_mcp_client_rearm(c);
}

static void count_start_failure(struct cg_mcp_client *c, const char *why)
{
        int64_t now = cg_now_ms();

        if (now - c->failed_at_ms > CG_MCP_CRASH_WINDOW_MS)
                c->start_failures = 0;
        c->start_failures++;
        c->failed_at_ms = now;
        snprintf(c->last_failure, sizeof(c->last_failure), "%.*s", (int)sizeof(c->last_failure) - 1, why);
}

void cg_mcp_client_start_failed(struct cg_mcp_client *c, const char *why)
{
        char text[4096];

        cg_log(c->log, CG_LOG_WARN, "MCP server %s did not start: %s", c->def->name, why);
        count_start_failure(c, why);
        drop_child(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" did not start: %s", c->def->name, why);
        fail_all(c, text);
}

static void on_child_ended(void *data, const char *how)
{
        struct cg_mcp_client *c = data;
        char text[4096];

        if (c->state == STARTING) {
                c->child = NULL; /* it is being ended already */
                cg_mcp_client_start_failed(c, how);
                return;
        }
        cg_log(c->log, CG_LOG_WARN, "MCP server %s: %s", c->def->name, how);
        c->child = NULL;
        drop_child(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" failed in the middle of the call: %s", c->def->name,
                 how);
        fail_all(c, text);
}

static void maybe_free(struct cg_mcp_client *c)
{
        if (!c->ending || !c->timer_closed || c->n_children)
                return;
        if (c->gone)
                c->gone(c->data);
        cg_mcp_def_free(c->def);
        cg_mcp_free_names(c->names, c->n_names);
        free(c);
}

static void on_child_gone(void *data)
{
        struct cg_mcp_client *c = data;

        c->n_children--;
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
        fail_all(c, why);
        drop_child(c);
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* ---- deadlines */

static void expire(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        if (c->state == STARTING) {
                cg_mcp_req_fail(
                        q,
                        "MCP server \"%s\" did not answer initialize within %lld ms (\"startTimeout\" in its definition, in seconds, "
                        "allows more)%s",
                        c->def->name, (long long)q->timeout_ms, cg_stdio_last_words(c->child));
                return;
        }
        cg_mcp_send_cancelled(q, "timeout");
        if (q->kind == LIST)
                cg_mcp_req_fail(q, "MCP server \"%s\" did not list its tools within %lld ms", c->def->name,
                                (long long)q->timeout_ms);
        else
                cg_mcp_req_fail(q, "MCP server \"%s\": tool \"%s\" did not answer within %lld ms",
                                c->def->name, q->tool, (long long)q->timeout_ms);
}

static struct cg_mcp_req *first_expired(const struct cg_mcp_client *c, int64_t now)
{
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (q->deadline_ms && q->deadline_ms <= now)
                        return q;
        return NULL;
}

static void on_timer(uv_timer_t *t)
{
        struct cg_mcp_client *c = t->data;
        int64_t now = cg_now_ms();
        struct cg_mcp_req *q;

        while ((q = first_expired(c, now)) && !c->ending)
                expire(q);
        if (c->state == STARTING && c->init_deadline_ms <= now && !c->ending) {
                char why[3072];

                snprintf(why, sizeof(why), "it did not answer initialize within %lld ms%s",
                         (long long)c->init_timeout_ms, cg_stdio_last_words(c->child));
                cg_mcp_client_start_failed(c, why);
        }
        cg_mcp_client_rearm(c);
}

/* ---- its start */

int cg_mcp_client_check(struct cg_mcp_client *c, struct cg_err *err)
{
        int64_t since = cg_now_ms() - c->failed_at_ms;

        if (c->ending)
                return cg_fail(err, CG_E_CLOSED, "MCP server \"%s\" is being ended", c->def->name);
        if (c->state != IDLE || c->start_failures < CG_MCP_CRASH_STARTS || since >= CG_MCP_CRASH_WINDOW_MS)
                return 0;
        return cg_fail(err, CG_E_STATE,
                       "MCP server \"%s\" failed to start %d times in a row and is left alone for %lld s: %s",
                       c->def->name, c->start_failures,
                       (long long)(CG_MCP_CRASH_WINDOW_MS - since + 999) / 1000, c->last_failure);
}

static int start(struct cg_mcp_client *c, struct cg_err *err)
{
        static const struct cg_stdio_cbs cbs = { cg_mcp_on_line, cg_mcp_on_too_long, on_child_ended,
                                                 on_child_gone };
        int r = cg_mcp_client_check(c, err);

        if (r < 0 || c->state != IDLE)
                return r;
        r = cg_stdio_start(c->loop, c->def, c->log, &cbs, c, &c->child, err);
        if (r < 0) {
                cg_err_prefix(err, "MCP server \"%s\" cannot be started", c->def->name);
                count_start_failure(c, err->msg);
                return r;
        }
        c->n_children++;
        c->state = STARTING;
        c->init_timeout_ms = cg_mcp_client_start_ms(c, 0);
        c->init_deadline_ms = cg_now_ms() + c->init_timeout_ms;
        r = cg_mcp_send_initialize(c, err);
        if (r < 0)
                drop_child(c);
        return r;
}

/* Sends it, or lets it wait for the server's start. Takes @q. */
static int begin(struct cg_mcp_req *q, struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        struct cg_err mine;
        int r = start(c, &mine);

        if (r == 0 && c->state == READY && !(q->kind == LIST && (c->sharing || cg_mcp_lists(c))))
                r = cg_mcp_send_req(q, &mine);
        if (r < 0) {
                req_free(q);
                if (err)
                        *err = mine;
                return r;
        }
        if (c->state == STARTING && q->timeout_ms > c->init_timeout_ms) {
                c->init_deadline_ms += q->timeout_ms - c->init_timeout_ms;
                c->init_timeout_ms = q->timeout_ms;
        }
        add_req(q);
        cg_mcp_client_rearm(c);
        *ret = q;
        return 0;
}

int cg_mcp_client_list(struct cg_mcp_client *c, int64_t timeout_ms, cg_mcp_done done, void *data,
                       struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_req *q = req_new(c, LIST, cg_mcp_client_start_ms(c, timeout_ms), done, data);

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        return begin(q, ret, err);
}

int cg_mcp_client_call(struct cg_mcp_client *c, const char *tool, const char *args, size_t len,
                       int64_t timeout_ms, cg_mcp_done done, void *data, struct cg_mcp_req **ret,
                       struct cg_err *err)
{
        struct cg_mcp_req *q = req_new(c, CALL, timeout_ms, done, data);
        int r;

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        q->tool = strdup(tool);
        r = q->tool ? cg_buf_adds(&q->line, "{\"name\":", err) : cg_fail(err, CG_E_NOMEM, "request");
        if (r == 0)
                r = cg_json_quote(&q->line, tool, strlen(tool), err);
        if (r == 0)
                r = cg_buf_adds(&q->line, ",\"arguments\":", err);
        if (r == 0)
                r = cg_buf_add(&q->line, args, len, err);
        if (r == 0)
                r = cg_buf_adds(&q->line, "}", err);
        if (r < 0) {
                req_free(q);
                return r;
        }
        return begin(q, ret, err);
}

void cg_mcp_req_cancel(struct cg_mcp_req *q, const char *reason)
{
        struct cg_mcp_client *c = q->c;

        cg_mcp_send_cancelled(q, reason);
        if (q->kind == LIST)
                c->stale = true;
        unlink_req(q);
        cg_mcp_client_rearm(c);
        forget(q);
}

int cg_mcp_client_new(const struct cg_mcp_client_options *o, struct cg_mcp_def *def,
                      struct cg_mcp_client **ret, struct cg_err *err)
{
        struct cg_mcp_client *c = calloc(1, sizeof(*c));

        if (!c) {
                cg_mcp_def_free(def);
                return cg_fail(err, CG_E_NOMEM, "MCP client");
        }
        c->loop = o->loop;
        c->log = o->log;
        c->gone = o->gone;
        c->data = o->data;
        c->def = def;
        c->failed_at_ms = -CG_MCP_CRASH_WINDOW_MS;
        uv_timer_init(c->loop, &c->timer); /* cannot fail */
        c->timer.data = c;
        *ret = c;
        return 0;
}

/* ---- what is known of it */

const char *cg_mcp_client_name(const struct cg_mcp_client *c)
{
        return c->def->name;
}

int64_t cg_mcp_client_start_ms(const struct cg_mcp_client *c, int64_t timeout_ms)
{
        return c->def->start_timeout_ms ? c->def->start_timeout_ms
               : timeout_ms             ? timeout_ms
                                        : CG_MCP_START_MS;
}

const char *cg_mcp_client_program(const struct cg_mcp_client *c)
{
        const char *slash = strrchr(c->def->command, '/');

        return slash ? slash + 1 : c->def->command;
}

bool cg_mcp_client_is_listed(const struct cg_mcp_client *c)
{
        return c->listed && !c->stale && !cg_mcp_lists(c);
}

bool cg_mcp_client_has_tool(const struct cg_mcp_client *c, const char *tool)
{
        for (size_t i = 0; i < c->n_names; i++)
                if (strcmp(c->names[i], tool) == 0)
                        return true;
        return false;
}

int cg_mcp_client_close_names(const struct cg_mcp_client *c, const char *tool, struct cg_buf *b,
                              struct cg_err *err)
{
        return cg_close_names(tool, c->names, c->n_names, b, err);
}
