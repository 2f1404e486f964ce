/* The client of one MCP server over stdio. Linked into the tool server and the command line. */
#include "mcp/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "config.h"
#include "mcp/limits.h"
#include "mcp/names.h"
#include "mcp/stdio_child.h"

enum state {
        IDLE,     /* no process, or one that is being ended */
        STARTING, /* initialize was sent */
        READY,
};

enum req_kind { CALL, LIST };

struct cg_mcp_req {
        struct cg_mcp_client *c;
        struct cg_mcp_req *next;
        enum req_kind kind;
        uint64_t seq;
        uint64_t id;         /* of the JSON-RPC request that is under way; 0: none is */
        int64_t deadline_ms; /* 0: none */
        int64_t timeout_ms;
        cg_mcp_done done;
        void *data;
        char *tool;          /* CALL */
        struct cg_buf line;  /* CALL: params, until it can be sent */
        struct cg_buf tools; /* LIST: elements of all pages */
        char **names;
        size_t n_names, n_tools, cap_names;
        uint64_t *cursors;   /* hashes of the cursors seen */
        size_t n_pages;
};

struct cg_mcp_client {
        uv_loop_t *loop;
        const struct cg_log *log;
        void (*gone)(void *data);
        void *data;
        struct cg_mcp_def *def;
        struct cg_stdio *child;
        unsigned n_children; /* with those that are being ended */
        enum state state;
        bool ending, timer_closed;
        uv_timer_t timer;
        uint64_t last_id, last_seq, init_id;
        int64_t init_deadline_ms, init_timeout_ms;
        bool has_tools; /* what it said in initialize */
        struct cg_mcp_req *reqs;
        char **names;
        size_t n_names;
        bool listed, stale;
        int start_failures; /* in a row */
        int64_t failed_at_ms;
        char last_failure[400];
};

/* Oldest first: the newest is offered, each is accepted. */
static const char *const versions[] = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" };
#define NEWEST versions[CG_ARRAY_LEN(versions) - 1]

static void free_names(char **names, size_t n)
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
        free_names(q->names, q->n_names);
        free(q->cursors);
        free(q);
}

static struct cg_mcp_req *req_new(struct cg_mcp_client *c, enum req_kind kind, int64_t timeout_ms, cg_mcp_done done, void *data)
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

/* One timer for all deadlines: they are few. */
static void rearm(struct cg_mcp_client *c)
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

static void finish(struct cg_mcp_req *q, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        unlink_req(q);
        rearm(q->c);
        q->done(q->data, outcome, bytes, len);
        req_free(q);
}

static __attribute__((format(printf, 2, 3))) void fail_req(struct cg_mcp_req *q, const char *fmt, ...)
{
        char text[4096];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        finish(q, CG_MCP_FAILED, text, strlen(text));
}

/* Those that are there now: a callback may begin new ones, and cancel others of these. */
static void fail_all(struct cg_mcp_client *c, const char *text)
{
        uint64_t last = c->last_seq;
        struct cg_mcp_req *q = c->reqs;

        while (q) {
                if (q->seq <= last) {
                        finish(q, CG_MCP_FAILED, text, strlen(text));
                        q = c->reqs;
                } else {
                        q = q->next;
                }
        }
}

/* ---- sending */

/* Takes the buffer's content. */
static int send_buf(struct cg_mcp_client *c, struct cg_buf *b, struct cg_err *err)
{
        size_t len;
        char *text = cg_buf_steal(b, &len);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "request");
        if (!c->child) {
                free(text);
                return cg_fail(err, CG_E_CLOSED, "it does not run");
        }
        return cg_stdio_send(c->child, text, len, err);
}

static void send_notification(struct cg_mcp_client *c, const char *method, const char *params)
{
        cg_auto_buf struct cg_buf b;
        struct cg_err err;

        cg_buf_init(&b, 8192);
        if (cg_rpc_add_notification(&b, method, params, &err) < 0 || send_buf(c, &b, &err) < 0)
                cg_log(c->log, CG_LOG_DEBUG, "MCP server %s: %s was not sent: %s", c->def->name, method, err.msg);
}

/* Tells the server that nobody waits for this request any more. initialize must not be cancelled, and never is here. */
static void send_cancelled(struct cg_mcp_req *q, const char *reason)
{
        cg_auto_buf struct cg_buf b;

        if (!q->id || q->c->state != READY)
                return;
        cg_buf_init(&b, 4096);
        if (cg_buf_addf(&b, NULL, "{\"requestId\":%llu,\"reason\":", (unsigned long long)q->id) == 0 &&
            cg_json_quote(&b, reason, strlen(reason), NULL) == 0 && cg_buf_adds(&b, "}", NULL) == 0)
                send_notification(q->c, "notifications/cancelled", b.data);
}

static int send_call(struct cg_mcp_req *q, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b;
        int r;

        cg_buf_init(&b, q->line.max + 256);
        q->id = ++q->c->last_id;
        r = cg_buf_addf(&b, err, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tools/call\",\"params\":",
                        (unsigned long long)q->id);
        if (r == 0)
                r = cg_buf_add(&b, q->line.data, q->line.len, err);
        if (r == 0)
                r = cg_buf_adds(&b, "}\n", err);
        cg_buf_fini(&q->line);
        return r < 0 ? r : send_buf(q->c, &b, err);
}

/* @cursor is a JSON string as the server wrote it, or nothing for the first page. */
static int send_list(struct cg_mcp_req *q, struct cg_span cursor, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b;
        int r;

        cg_buf_init(&b, CG_MCP_MAX_CURSOR + 256);
        q->id = ++q->c->last_id;
        r = cg_buf_addf(&b, err, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"tools/list\",\"params\":{",
                        (unsigned long long)q->id);
        if (r == 0 && cursor.p)
                r = cg_buf_adds(&b, "\"cursor\":", err);
        if (r == 0 && cursor.p)
                r = cg_buf_add(&b, cursor.p, cursor.len, err);
        if (r == 0)
                r = cg_buf_adds(&b, "}}\n", err);
        return r < 0 ? r : send_buf(q->c, &b, err);
}

static int send_req(struct cg_mcp_req *q, struct cg_err *err)
{
        int r = q->kind == CALL ? send_call(q, err) : send_list(q, CG_SPAN_NONE, err);

        /* Its standard input is closed: ended() is on its way with the better reason. */
        return r == CG_E_CLOSED ? 0 : r;
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
        rearm(c);
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

static void start_failed(struct cg_mcp_client *c, const char *why)
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
                start_failed(c, how);
                return;
        }
        cg_log(c->log, CG_LOG_WARN, "MCP server %s: %s", c->def->name, how);
        c->child = NULL;
        drop_child(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" failed in the middle of the call: %s", c->def->name, how);
        fail_all(c, text);
}

static void maybe_free(struct cg_mcp_client *c)
{
        if (!c->ending || !c->timer_closed || c->n_children)
                return;
        if (c->gone)
                c->gone(c->data);
        cg_mcp_def_free(c->def);
        free_names(c->names, c->n_names);
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

static void expire(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        if (c->state == STARTING) {
                fail_req(q, "MCP server \"%s\" did not answer initialize within %lld ms%s", c->def->name,
                         (long long)q->timeout_ms, cg_stdio_last_words(c->child));
                return;
        }
        send_cancelled(q, "timeout");
        if (q->kind == LIST)
                fail_req(q, "MCP server \"%s\" did not list its tools within %lld ms", c->def->name, (long long)q->timeout_ms);
        else
                fail_req(q, "MCP server \"%s\": tool \"%s\" did not answer within %lld ms", c->def->name, q->tool,
                         (long long)q->timeout_ms);
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

                snprintf(why, sizeof(why), "it did not answer initialize within %lld ms%s", (long long)c->init_timeout_ms,
                         cg_stdio_last_words(c->child));
                start_failed(c, why);
        }
        rearm(c);
}

/* ---- initialize */

static int send_initialize(struct cg_mcp_client *c, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b;
        char params[256];
        int r;

        cg_buf_init(&b, 1024);
        snprintf(params, sizeof(params),
                 "{\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"cellgate\",\"version\":\"%s\"}}",
                 NEWEST, CG_VERSION);
        c->init_id = ++c->last_id;
        r = cg_rpc_add_request(&b, c->init_id, "initialize", params, err);
        return r < 0 ? r : send_buf(c, &b, err);
}

static bool version_known(const char *version)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(versions); i++)
                if (strcmp(versions[i], version) == 0)
                        return true;
        return false;
}

/* The text of a JSON-RPC error, for people. */
static void error_text(struct cg_span error, char *buf, size_t size)
{
        struct cg_span message = CG_SPAN_NONE;
        cg_auto_free char *text = NULL;

        if (cg_span_member(error, "message", &message, NULL) == 0 && message.p && cg_span_string(message, &text, NULL) == 0)
                snprintf(buf, size, "%s", text);
        else
                snprintf(buf, size, "%.*s", error.len > 500 ? 500 : (int)error.len, error.p);
}

static int read_initialize(struct cg_mcp_client *c, const struct cg_rpc *m, struct cg_err *err)
{
        struct cg_span version = CG_SPAN_NONE, caps = CG_SPAN_NONE, tools = CG_SPAN_NONE;
        cg_auto_free char *text = NULL;
        char why[600];

        if (m->kind == CG_RPC_ERROR) {
                error_text(m->error, why, sizeof(why));
                return cg_fail(err, CG_E_PROTO, "it answered initialize with an error: %s", why);
        }
        if (cg_span_member(m->result, "protocolVersion", &version, err) < 0 ||
            cg_span_member(m->result, "capabilities", &caps, err) < 0)
                return cg_err_prefix(err, "its answer to initialize is broken");
        if (cg_span_string(version, &text, NULL) < 0)
                return cg_fail(err, CG_E_PROTO, "its answer to initialize has no protocolVersion");
        if (!version_known(text))
                return cg_fail(err, CG_E_UNSUPPORTED, "it speaks version \"%.50s\" of the protocol; %s to %s are known here", text,
                               versions[0], NEWEST);
        c->has_tools = caps.p && cg_span_member(caps, "tools", &tools, NULL) == 0 && tools.p;
        cg_log(c->log, CG_LOG_DEBUG, "MCP server %s is ready, protocol %s", c->def->name, text);
        return 0;
}

static struct cg_mcp_req *first_waiting(const struct cg_mcp_client *c)
{
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                if (!q->id)
                        return q;
        return NULL;
}

/* Sends what came before it was ready. Sending sets the id, also when it fails, so this comes to an end. */
static void flush_reqs(struct cg_mcp_client *c)
{
        struct cg_mcp_req *q;
        struct cg_err err;

        while (c->state == READY && (q = first_waiting(c)))
                if (send_req(q, &err) < 0)
                        fail_req(q, "MCP server \"%s\": %s", c->def->name, err.msg);
}

static void on_initialize(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_err err;

        c->init_id = 0;
        if (read_initialize(c, m, &err) < 0) {
                start_failed(c, err.msg);
                return;
        }
        c->state = READY;
        c->start_failures = 0;
        send_notification(c, "notifications/initialized", NULL);
        rearm(c);
        flush_reqs(c);
}

/* ---- tools/list */

static uint64_t hash_bytes(struct cg_span s)
{
        uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

        for (size_t i = 0; i < s.len; i++)
                h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
        return h;
}

static int remember_name(struct cg_mcp_req *q, struct cg_span tool, struct cg_err *err)
{
        struct cg_span name = CG_SPAN_NONE;
        char *text;

        if (q->n_names == q->cap_names) {
                size_t cap = q->cap_names ? q->cap_names * 2 : 64;
                char **p = realloc(q->names, cap * sizeof(*p));

                if (!p)
                        return cg_fail(err, CG_E_NOMEM, "tool names");
                q->names = p;
                q->cap_names = cap;
        }
        /* A name that is no text, or too long, cannot be called; the generator says so to whoever reads its report. */
        if (cg_span_member(tool, "name", &name, NULL) < 0 || cg_span_string(name, &text, NULL) < 0)
                return 0;
        if (strlen(text) > CG_MAX_NAME) {
                free(text);
                return 0;
        }
        q->names[q->n_names++] = text;
        return 0;
}

static int add_tool(struct cg_mcp_req *q, struct cg_span tool, struct cg_err *err)
{
        int r;

        if (q->n_tools == CG_MCP_MAX_TOOLS)
                return cg_fail(err, CG_E_LIMIT, "it lists more than %u tools", CG_MCP_MAX_TOOLS);
        if (q->tools.len + tool.len + 2 > q->tools.max)
                return cg_fail(err, CG_E_LIMIT, "its tool list is over %zu bytes", q->tools.max);
        r = cg_buf_adds(&q->tools, q->n_tools++ ? "," : "[", err);
        if (r == 0)
                r = cg_buf_add(&q->tools, tool.p, tool.len, err);
        return r < 0 ? r : remember_name(q, tool, err);
}

static int add_page(struct cg_mcp_req *q, struct cg_span tools, struct cg_err *err)
{
        struct cg_span tool;
        struct cg_walk w;
        int r = cg_walk_init(&w, tools, '[', err);

        while (r == 0) {
                r = cg_walk_next(&w, NULL, &tool, err);
                if (r == 0)
                        r = add_tool(q, tool, err);
        }
        return r < 0 ? r : 0;
}

/* Whether the next page may be asked for: a server whose cursors turn in a circle would keep us for ever. */
static int check_cursor(struct cg_mcp_req *q, struct cg_span cursor, struct cg_err *err)
{
        uint64_t h = hash_bytes(cursor), *p;

        if (cursor.p[0] != '"')
                return cg_fail(err, CG_E_PROTO, "nextCursor is not a string");
        if (cursor.len > CG_MCP_MAX_CURSOR)
                return cg_fail(err, CG_E_LIMIT, "nextCursor of %zu bytes", cursor.len);
        for (size_t i = 0; i < q->n_pages; i++)
                if (q->cursors[i] == h)
                        return cg_fail(err, CG_E_PROTO, "tools/list does not come to an end: page %zu has the cursor of page %zu",
                                       q->n_pages + 1, i + 1);
        if (q->n_pages == CG_MCP_MAX_PAGES)
                return cg_fail(err, CG_E_LIMIT, "tools/list has more than %u pages", CG_MCP_MAX_PAGES);
        p = realloc(q->cursors, (q->n_pages + 1) * sizeof(*p));
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "cursors");
        q->cursors = p;
        q->cursors[q->n_pages++] = h;
        return 0;
}

static void list_done(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        if ((!q->n_tools && cg_buf_adds(&q->tools, "[", NULL) < 0) || cg_buf_adds(&q->tools, "]", NULL) < 0) {
                fail_req(q, "MCP server \"%s\": its tool list is too long", c->def->name);
                return;
        }
        free_names(c->names, c->n_names);
        c->names = CG_STEAL(q->names);
        c->n_names = q->n_names;
        q->n_names = 0;
        c->listed = true;
        finish(q, CG_MCP_OK, q->tools.data, q->tools.len);
}

/* CG_WALK_END: that was the last page. */
static int read_page(struct cg_mcp_req *q, const struct cg_rpc *m, struct cg_err *err)
{
        struct cg_span tools = CG_SPAN_NONE, cursor = CG_SPAN_NONE;
        int r = cg_span_member(m->result, "tools", &tools, err);

        if (r == 0)
                r = cg_span_member(m->result, "nextCursor", &cursor, err);
        if (r == 0 && !tools.p)
                r = cg_fail(err, CG_E_PROTO, "the result has no \"tools\"");
        if (r == 0)
                r = add_page(q, tools, err);
        if (r < 0)
                return cg_err_prefix(err, "tools/list");
        if (!cursor.p || cg_span_is(cursor, "null"))
                return CG_WALK_END;
        r = check_cursor(q, cursor, err);
        if (r == 0)
                r = send_list(q, cursor, err);
        return r == CG_E_CLOSED ? 0 : r;
}

static void on_list_answer(struct cg_mcp_req *q, const struct cg_rpc *m)
{
        struct cg_mcp_client *c = q->c;
        struct cg_err err;
        char why[600];
        int r;

        if (m->kind == CG_RPC_ERROR) {
                if (!c->has_tools && !q->n_pages) { /* it offers none, and said so: prompts or resources only */
                        list_done(q);
                        return;
                }
                error_text(m->error, why, sizeof(why));
                fail_req(q, "MCP server \"%s\" answered tools/list with an error: %s", c->def->name, why);
                return;
        }
        r = read_page(q, m, &err);
        if (r < 0)
                fail_req(q, "MCP server \"%s\": %s", c->def->name, err.msg);
        else if (r == CG_WALK_END)
                list_done(q);
}

/* ---- what it says */

static void on_call_answer(struct cg_mcp_req *q, const struct cg_rpc *m)
{
        struct cg_span s = m->kind == CG_RPC_ERROR ? m->error : m->result;

        if (s.p[0] != '{')
                fail_req(q, "MCP server \"%s\": its answer to tool \"%s\" is not an object", q->c->def->name, q->tool);
        else
                finish(q, m->kind == CG_RPC_ERROR ? CG_MCP_ERROR : CG_MCP_OK, s.p, s.len);
}

/* The one request that is under way; NULL where there are none or several. */
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

/* "I could not read that", about whatever it was. */
static void on_error_without_id(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_req *q = only_req(c);
        char why[600];

        error_text(m->error, why, sizeof(why));
        cg_stdio_log_line(c->child, CG_LOG_WARN, "error without an id", m->error);
        if (q)
                fail_req(q, "MCP server \"%s\" answered with an error without an id: %s", c->def->name, why);
}

/*
 * An answer with an id that no request ever had: whoever waits for its own would wait for ever. A number that was given is the late
 * answer to a request that was given up, or a second one.
 */
static void on_unknown_id(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_req *q = m->id_is_number && m->id_number <= c->last_id ? NULL : only_req(c);

        cg_stdio_log_line(c->child, CG_LOG_WARN, "answer to nothing that was asked is ignored; its id", m->id);
        if (q)
                fail_req(q, "MCP server \"%s\" answered with an id that no request has (JSON-RPC wants the request's own)", c->def->name);
}

static struct cg_mcp_req *req_by_id(const struct cg_mcp_client *c, uint64_t id)
{
        struct cg_mcp_req *q = id ? c->reqs : NULL;

        while (q && q->id != id)
                q = q->next;
        return q;
}

static void on_answer(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_req *q;

        if (!m->id.p) {
                on_error_without_id(c, m);
                return;
        }
        if (m->id_is_number && m->id_number && m->id_number == c->init_id) {
                on_initialize(c, m);
                return;
        }
        q = m->id_is_number ? req_by_id(c, m->id_number) : NULL;
        if (!q)
                on_unknown_id(c, m);
        else if (q->kind == LIST)
                on_list_answer(q, m);
        else
                on_call_answer(q, m);
}

static void on_request(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        cg_auto_buf struct cg_buf b;
        struct cg_err err;
        char why[200];
        int r;

        cg_buf_init(&b, 4096);
        if (strcmp(m->method, "ping") == 0) {
                r = cg_rpc_add_result(&b, m->id, NULL, 0, &err);
        } else {
                snprintf(why, sizeof(why), "this client does not offer %s", m->method);
                r = cg_rpc_add_error(&b, m->id, CG_RPC_METHOD_NOT_FOUND, why, &err);
        }
        if (r == 0)
                r = send_buf(c, &b, &err);
        if (r < 0)
                cg_stdio_log_line(c->child, CG_LOG_WARN, "request that cannot be answered",
                                  (struct cg_span){ .p = m->method, .len = strlen(m->method) });
}

static void on_notification(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        if (strcmp(m->method, "notifications/message") == 0) {
                cg_stdio_log_line(c->child, CG_LOG_INFO, "message", m->params);
        } else if (strcmp(m->method, "notifications/tools/list_changed") == 0) {
                if (!c->stale)
                        cg_log(c->log, CG_LOG_INFO, "MCP server %s: its tools have changed; the wrappers stay as they are",
                               c->def->name);
                c->stale = true;
        } else {
                cg_log(c->log, CG_LOG_DEBUG, "MCP server %s: %s", c->def->name, m->method);
        }
}

static void on_message(struct cg_mcp_client *c, struct cg_span text)
{
        struct cg_rpc m;
        struct cg_err err;

        if (cg_rpc_parse(text, &m, &err) < 0) {
                struct cg_mcp_req *q = err.code == CG_E_PROTO ? req_by_id(c, cg_rpc_broken_answer(text)) : NULL;

                cg_stdio_log_line(c->child, CG_LOG_WARN,
                                  err.code == CG_E_PARSE ? "line on standard output that is not JSON-RPC is skipped"
                                                         : "broken message is skipped", text);
                if (q)
                        fail_req(q, "MCP server \"%s\" sent a broken answer: %s", c->def->name, err.msg);
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

/* A batch: revision 2025-03-26 has them, no other. */
static void on_batch(struct cg_mcp_client *c, struct cg_span text)
{
        const struct cg_stdio *child = c->child;
        struct cg_span one;
        struct cg_walk w;
        int r = cg_walk_init(&w, text, '[', NULL);

        while (r == 0) {
                r = cg_walk_next(&w, NULL, &one, NULL);
                if (r == 0)
                        on_message(c, one);
                if (c->child != child)
                        return;
        }
        if (r < 0)
                cg_stdio_log_line(c->child, CG_LOG_WARN, "line on standard output that is not JSON-RPC is skipped", text);
}

static void on_line(void *data, struct cg_span line)
{
        struct cg_mcp_client *c = data;

        line = cg_span_trim(line);
        if (!line.len)
                return;
        if (line.p[0] == '[')
                on_batch(c, line);
        else
                on_message(c, line);
}

/* What was in it is not known, so nobody can tell whose answer it was: all that wait for one are told. */
static void on_too_long(void *data, const char *why)
{
        struct cg_mcp_client *c = data;
        uint64_t last = c->last_seq;
        struct cg_mcp_req *q = c->reqs;

        cg_log(c->log, CG_LOG_WARN, "MCP server %s sent a %s", c->def->name, why);
        while (q) {
                if (!q->id || q->seq > last) {
                        q = q->next;
                        continue;
                }
                send_cancelled(q, "the answer was too long");
                fail_req(q, "MCP server \"%s\" sent an answer that is too long: %s", c->def->name, why);
                q = c->reqs;
        }
}

/* ---- its start */

int cg_mcp_client_check(struct cg_mcp_client *c, struct cg_err *err)
{
        int64_t since = cg_now_ms() - c->failed_at_ms;

        if (c->ending)
                return cg_fail(err, CG_E_CLOSED, "MCP server \"%s\" is being ended", c->def->name);
        if (c->state != IDLE || c->start_failures < CG_MCP_CRASH_STARTS || since >= CG_MCP_CRASH_WINDOW_MS)
                return 0;
        return cg_fail(err, CG_E_STATE, "MCP server \"%s\" failed to start %d times in a row and is left alone for %lld s: %s",
                       c->def->name, c->start_failures, (long long)(CG_MCP_CRASH_WINDOW_MS - since + 999) / 1000, c->last_failure);
}

static int start(struct cg_mcp_client *c, struct cg_err *err)
{
        static const struct cg_stdio_cbs cbs = { on_line, on_too_long, on_child_ended, on_child_gone };
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
        c->init_timeout_ms = CG_MCP_START_MS;
        c->init_deadline_ms = cg_now_ms() + c->init_timeout_ms;
        r = send_initialize(c, err);
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

        if (r == 0 && c->state == READY)
                r = send_req(q, &mine);
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
        rearm(c);
        *ret = q;
        return 0;
}

int cg_mcp_client_list(struct cg_mcp_client *c, int64_t timeout_ms, cg_mcp_done done, void *data, struct cg_mcp_req **ret,
                       struct cg_err *err)
{
        struct cg_mcp_req *q = req_new(c, LIST, timeout_ms ? timeout_ms : CG_MCP_START_MS, done, data);

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        c->stale = false; /* what is announced from here on is about a later list */
        return begin(q, ret, err);
}

int cg_mcp_client_call(struct cg_mcp_client *c, const char *tool, const char *args, size_t len, int64_t timeout_ms,
                       cg_mcp_done done, void *data, struct cg_mcp_req **ret, struct cg_err *err)
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

        send_cancelled(q, reason);
        unlink_req(q);
        req_free(q);
        rearm(c);
}

int cg_mcp_client_new(const struct cg_mcp_client_options *o, struct cg_mcp_def *def, struct cg_mcp_client **ret,
                      struct cg_err *err)
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

const char *cg_mcp_client_name(const struct cg_mcp_client *c)
{
        return c->def->name;
}

bool cg_mcp_client_is_listed(const struct cg_mcp_client *c)
{
        return c->listed && !c->stale;
}

bool cg_mcp_client_has_tool(const struct cg_mcp_client *c, const char *tool)
{
        for (size_t i = 0; i < c->n_names; i++)
                if (strcmp(c->names[i], tool) == 0)
                        return true;
        return false;
}

int cg_mcp_client_close_names(const struct cg_mcp_client *c, const char *tool, struct cg_buf *b, struct cg_err *err)
{
        return cg_close_names(tool, c->names, c->n_names, b, err);
}
