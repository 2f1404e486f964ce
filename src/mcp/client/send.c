/* The sending half of the MCP client. */
#include "mcp/client/internal.h"

#include "base/json.h"
#include "config.h"
#include "mcp/ceilings.h"

int cg_mcp_send(struct cg_mcp_client *c, struct cg_mcp_msg *m, struct cg_buf *b, struct cg_err *err)
{
        if (cg_buf_end(b, err) < 0)
                return b->failed;
        m->text = cg_buf_steal(b, &m->len);
        if (!m->text)
                return cg_fail(err, CG_E_NOMEM, "request");
        if (!c->t) {
                free(m->text);
                return cg_fail(err, CG_E_CLOSED, "it does not run");
        }
        return c->t->ops->send(c->t, m, err);
}

void cg_mcp_send_notification(struct cg_mcp_client *c, const char *method, const char *params)
{
        struct cg_mcp_msg m = { .method = method,
                                .repeatable = true,
                                .alone = strcmp(method, "notifications/initialized") == 0 };
        cg_auto_buf struct cg_buf b = { .max = 8192 };
        struct cg_err err;

        if (cg_rpc_add_notification(&b, method, params, &err) < 0 || cg_mcp_send(c, &m, &b, &err) < 0)
                cg_log(c->o.log, CG_LOG_DEBUG, "MCP server %s: %s was not sent: %s", c->def->name, method,
                       err.msg);
}

void cg_mcp_send_cancelled(struct cg_mcp_req *q, const char *reason)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        struct cg_mcp_client *c = q->c;

        if (!q->id)
                return;
        cg_buf_addf(&b, "{\"requestId\":%llu,\"reason\":", (unsigned long long)q->id);
        cg_json_quote(&b, reason, strlen(reason));
        cg_buf_adds(&b, "}");
        /*
         * From revision 2026-07-28 on, the end of the stream is the cancellation over HTTP. While a
         * session is renewed there is none to send it in.
         */
        if (c->state == READY && !(c->modern && c->def->kind != CG_MCP_STDIO) && !b.failed)
                cg_mcp_send_notification(c, "notifications/cancelled", b.data);
        if (c->t && c->t->ops->cancel)
                c->t->ops->cancel(c->t, q->id);
}

void cg_mcp_add_capabilities(const struct cg_mcp_client *c, struct cg_buf *b)
{
        bool forms = c->o.handles & CG_MCP_ELICITATION, pages = c->o.handles & CG_MCP_URL;
        const char *before = "";

        cg_buf_adds(b, "{");
        if (c->roots) {
                cg_buf_adds(b, "\"roots\":{}");
                before = ",";
        }
        if (forms || pages) {
                cg_buf_addf(b, "%s\"elicitation\":{%s", before, forms ? "\"form\":{}" : "");
                if (pages)
                        cg_buf_adds(b, forms ? ",\"url\":{}" : "\"url\":{}");
                cg_buf_adds(b, "}");
                before = ",";
        }
        if (c->o.handles & CG_MCP_SAMPLING)
                cg_buf_addf(b, "%s\"sampling\":{}", before);
        cg_buf_adds(b, "}");
}

void cg_mcp_add_meta(const struct cg_mcp_client *c, struct cg_buf *b, bool modern, uint64_t token)
{
        if (!modern && !token)
                return;
        cg_buf_adds(b, ",\"_meta\":{");
        if (token)
                cg_buf_addf(b, "\"progressToken\":%llu%s", (unsigned long long)token, cg_sep(modern, ","));
        if (modern) {
                cg_buf_adds(
                        b,
                        "\"io.modelcontextprotocol/protocolVersion\":\"" CG_MCP_MODERN_VERSION
                        "\",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"cellgate\",\"version\":\"" CG_VERSION
                        "\"},\"io.modelcontextprotocol/clientCapabilities\":");
                cg_mcp_add_capabilities(c, b);
        }
        cg_buf_adds(b, "}");
}

int cg_mcp_send_list(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err)
{
        struct cg_mcp_msg m = { .method = cg_mcp_methods[q->method].name, .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = CG_MCP_MAX_CURSOR + 1024 };
        size_t at;

        m.id = q->id = ++q->c->last_id;
        cg_buf_addf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":{",
                    (unsigned long long)q->id, m.method);
        if (cursor.p)
                cg_buf_addf(&b, "\"cursor\":%.*s", (int)cursor.len, cursor.p);
        at = b.len;
        cg_mcp_add_meta(q->c, &b, q->c->modern, 0);
        if (!cursor.p && b.len > at) /* no member before it */
                b.data[at] = ' ';
        cg_buf_adds(&b, "}}\n");
        return cg_mcp_send(q->c, &m, &b, err);
}

static int send_call(struct cg_mcp_req *q, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        struct cg_mcp_msg m = { .method = cg_mcp_methods[q->method].name };
        cg_auto_buf struct cg_buf b = q->call.line, name = { .max = 2 * CG_MCP_MAX_URI };
        bool http = c->def->kind != CG_MCP_STDIO;
        cg_auto_list char **headers = NULL;
        char head[CG_MCP_LINE_GAP + 1];
        size_t n;
        int r;

        m.id = q->id = ++c->last_id;
        q->call.has_progress = false; /* the id is the token of a new series */
        if (c->modern || http) {      /* it may have to be sent again */
                cg_buf_init(&b, q->call.line.max + q->call.more.len);
                cg_buf_add(&b, q->call.line.data, q->call.line.len);
        } else {
                cg_buf_init(&q->call.line, 0);
        }
        cg_buf_add(&b, q->call.more.data, q->call.more.len);
        cg_mcp_add_meta(c, &b, c->modern, q->id);
        cg_buf_adds(&b, "}}\n");
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        if (c->modern && http) {
                cg_param_headers_encode(&name, q->tool);
                if (cg_buf_end(&name, err) < 0)
                        return name.failed;
        }
        if (c->modern && http && q->method == CG_MCP_TOOLS_CALL) {
                r = cg_param_headers_make(
                        c->tools.params, q->tool,
                        (struct cg_slice){ q->call.line.data + q->call.args_at, q->call.args_len }, &headers,
                        err);
                if (r < 0)
                        return r;
        }
        m.name = name.data;
        m.headers = (const char *const *)headers;
        n = (size_t)snprintf(head, sizeof(head), "{\"jsonrpc\":\"2.0\",\"id\":%llu",
                             (unsigned long long)q->id);
        m.skip = CG_MCP_LINE_GAP - n;
        memcpy(b.data + m.skip, head, n);
        return cg_mcp_send(c, &m, &b, err);
}

int cg_mcp_send_req(struct cg_mcp_req *q, struct cg_err *err)
{
        int r;

        /* Many servers have tools without the capability. */
        if (cg_mcp_methods[q->method].offer != CG_MCP_TOOLS && q->c->offered.known &&
            !(q->c->offered.offers & cg_mcp_methods[q->method].offer))
                return cg_fail(err, CG_E_UNSUPPORTED, "it does not offer %s", cg_mcp_methods[q->method].name);
        if (q->kind == LIST) {
                /* what is announced from here on is about a later list */
                *cg_mcp_list_stale(q->c, q->method) = false;
                r = cg_mcp_send_list(q, CG_SLICE_NONE, err);
        } else {
                r = send_call(q, err);
        }
        /* Its standard input is closed: ended() is on its way with the better reason. */
        return r == CG_E_CLOSED ? 0 : r;
}

/* Modern servers announce changes of their lists to those who listen; legacy ones to everybody. */
void cg_mcp_listen(struct cg_mcp_client *c)
{
        struct cg_mcp_msg m = { .method = "subscriptions/listen", .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = 2048 };
        int64_t now = cg_now_ms();
        const char *comma = "";

        if (c->state == IDLE || !c->modern || !c->offered.announces || c->subscription.id)
                return;
        cg_mcp_lists_stale(c); /* changes since the end of the last subscription were not announced */
        if (now - c->subscription.since_ms < CG_MCP_LISTEN_MS)
                return;
        c->subscription.since_ms = now;
        c->subscription.tools = false;
        m.id = c->subscription.id = ++c->last_id;
        cg_buf_addf(&b,
                    "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"subscriptions/listen\","
                    "\"params\":{\"notifications\":{",
                    (unsigned long long)m.id);
        for (size_t i = 0; i < CG_MCP_N_CAPABILITIES; i++) {
                if (!(c->offered.announces & cg_mcp_capabilities[i].offer))
                        continue;
                cg_buf_addf(&b, "%s\"%sListChanged\":true", comma, cg_mcp_capabilities[i].name);
                comma = ",";
        }
        cg_buf_adds(&b, "}");
        cg_mcp_add_meta(c, &b, true, 0);
        cg_buf_adds(&b, "}}\n");
        if (cg_mcp_send(c, &m, &b, NULL) < 0)
                c->subscription.id = 0;
}
