/* The sending half of the MCP client. */
#include "mcp/client_int.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "mcp/ceilings.h"

int cg_mcp_send(struct cg_mcp_client *c, struct cg_buf *b, size_t skip, struct cg_err *err)
{
        size_t len;
        char *text = cg_buf_steal(b, &len);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "request");
        if (!c->child) {
                free(text);
                return cg_fail(err, CG_E_CLOSED, "it does not run");
        }
        return cg_stdio_send(c->child, text, skip, len, err);
}

void cg_mcp_send_notification(struct cg_mcp_client *c, const char *method, const char *params)
{
        cg_auto_buf struct cg_buf b;
        struct cg_err err;

        cg_buf_init(&b, 8192);
        if (cg_rpc_add_notification(&b, method, params, &err) < 0 || cg_mcp_send(c, &b, 0, &err) < 0)
                cg_log(c->log, CG_LOG_DEBUG, "MCP server %s: %s was not sent: %s", c->def->name, method,
                       err.msg);
}

void cg_mcp_send_cancelled(struct cg_mcp_req *q, const char *reason)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 };

        if (!q->id || q->c->state != READY)
                return;
        if (cg_buf_addf(&b, NULL, "{\"requestId\":%llu,\"reason\":", (unsigned long long)q->id) == 0 &&
            cg_json_quote(&b, reason, strlen(reason), NULL) == 0 && cg_buf_adds(&b, "}", NULL) == 0)
                cg_mcp_send_notification(q->c, "notifications/cancelled", b.data);
}

int cg_mcp_send_list(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err)
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
        return r < 0 ? r : cg_mcp_send(q->c, &b, 0, err);
}

int cg_mcp_send_req(struct cg_mcp_req *q, struct cg_err *err)
{
        int r;

        if (q->kind == LIST) {
                q->c->stale = false; /* what is announced from here on is about a later list */
                r = cg_mcp_send_list(q, CG_SLICE_NONE, err);
        } else {
                char head[CG_MCP_LINE_GAP + 1];
                size_t n;

                q->id = ++q->c->last_id;
                n = (size_t)snprintf(head, sizeof(head), "{\"jsonrpc\":\"2.0\",\"id\":%llu",
                                     (unsigned long long)q->id);
                memcpy(q->line.data + CG_MCP_LINE_GAP - n, head, n);
                r = cg_mcp_send(q->c, &q->line, CG_MCP_LINE_GAP - n, err);
        }
        /* Its standard input is closed: ended() is on its way with the better reason. */
        return r == CG_E_CLOSED ? 0 : r;
}
