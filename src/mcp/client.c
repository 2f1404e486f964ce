/*
 * The client of one MCP server over stdio. Linked into the tool server and the command line. By
 * file: client_int.h.
 */
#include "mcp/client_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/names.h"

/* ---- its ends */

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
        cg_mcp_drop_child(c);
        snprintf(text, sizeof(text), "MCP server \"%s\" failed in the middle of the call: %s", c->def->name,
                 how);
        cg_mcp_fail_all(c, text);
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
        cg_mcp_fail_all(c, why);
        cg_mcp_drop_child(c);
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
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
                cg_mcp_count_start_failure(c, err->msg);
                return r;
        }
        c->n_children++;
        c->state = STARTING;
        c->init_timeout_ms = cg_mcp_client_start_ms(c, 0);
        c->init_deadline_ms = cg_now_ms() + c->init_timeout_ms;
        r = cg_mcp_send_initialize(c, err);
        if (r < 0)
                cg_mcp_drop_child(c);
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
                cg_mcp_req_free(q);
                if (err)
                        *err = mine;
                return r;
        }
        if (c->state == STARTING && q->timeout_ms > c->init_timeout_ms) {
                c->init_deadline_ms += q->timeout_ms - c->init_timeout_ms;
                c->init_timeout_ms = q->timeout_ms;
        }
        cg_mcp_req_add(q);
        cg_mcp_client_rearm(c);
        *ret = q;
        return 0;
}

int cg_mcp_client_list(struct cg_mcp_client *c, int64_t timeout_ms, cg_mcp_done done, void *data,
                       struct cg_mcp_req **ret, struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, LIST, cg_mcp_client_start_ms(c, timeout_ms), done, data);

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        return begin(q, ret, err);
}

int cg_mcp_client_call(struct cg_mcp_client *c, const char *tool, const char *args, size_t len,
                       int64_t timeout_ms, cg_mcp_done done, void *data, struct cg_mcp_req **ret,
                       struct cg_err *err)
{
        struct cg_mcp_req *q = cg_mcp_req_new(c, CALL, timeout_ms, done, data);
        size_t tool_len = strlen(tool);
        char *room;
        int r;

        if (!q)
                return cg_fail(err, CG_E_NOMEM, "request");
        q->tool = strdup(tool);
        r = q->tool ? 0 : cg_fail(err, CG_E_NOMEM, "request");
        /* Room for the whole line, so that the arguments are not moved again. */
        if (r == 0)
                r = cg_buf_reserve(&q->line, CG_MCP_LINE_GAP + len + 6 * tool_len + 64, &room, err);
        if (r == 0)
                r = cg_buf_addf(&q->line, err,
                                "%*s,\"method\":\"tools/call\",\"params\":{\"name\":", CG_MCP_LINE_GAP, "");
        if (r == 0)
                r = cg_json_quote(&q->line, tool, tool_len, err);
        if (r == 0)
                r = cg_buf_adds(&q->line, ",\"arguments\":", err);
        if (r == 0)
                r = cg_buf_add(&q->line, args, len, err);
        if (r == 0)
                r = cg_buf_adds(&q->line, "}}\n", err);
        if (r < 0) {
                cg_mcp_req_free(q);
                return r;
        }
        return begin(q, ret, err);
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
