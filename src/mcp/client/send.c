/* The sending half of the MCP client. */
#include "mcp/client/internal.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "config.h"
#include "mcp/ceilings.h"

int cg_mcp_send(struct cg_mcp_client *c, struct cg_mcp_msg *m, struct cg_buf *b, struct cg_err *err)
{
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
        cg_auto_buf struct cg_buf b;
        struct cg_err err;

        cg_buf_init(&b, 8192);
        if (cg_rpc_add_notification(&b, method, params, &err) < 0 || cg_mcp_send(c, &m, &b, &err) < 0)
                cg_log(c->log, CG_LOG_DEBUG, "MCP server %s: %s was not sent: %s", c->def->name, method,
                       err.msg);
}

void cg_mcp_send_cancelled(struct cg_mcp_req *q, const char *reason)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        struct cg_mcp_client *c = q->c;

        if (!q->id)
                return;
        /*
         * From revision 2026-07-28 on, the end of the stream is the cancellation over HTTP. While a
         * session is renewed there is none to send it in.
         */
        if (c->state == READY && !(c->modern && c->def->kind != CG_MCP_STDIO) &&
            cg_buf_try_addf(&b, NULL, "{\"requestId\":%llu,\"reason\":", (unsigned long long)q->id) == 0 &&
            cg_json_try_quote(&b, reason, strlen(reason), NULL) == 0 && cg_buf_try_adds(&b, "}", NULL) == 0)
                cg_mcp_send_notification(c, "notifications/cancelled", b.data);
        if (c->t && c->t->ops->cancel)
                c->t->ops->cancel(c->t, q->id);
}

int cg_mcp_add_capabilities(const struct cg_mcp_client *c, struct cg_buf *b, struct cg_err *err)
{
        static const char *const elicitation[] = { NULL, "\"elicitation\":{\"form\":{}}",
                                                   "\"elicitation\":{\"url\":{}}",
                                                   "\"elicitation\":{\"form\":{},\"url\":{}}" };
        const char *offers[] = {
                c->roots ? "\"roots\":{}" : NULL,
                elicitation[(c->handles & CG_MCP_ELICITATION ? 1 : 0) + (c->handles & CG_MCP_URL ? 2 : 0)],
                c->handles & CG_MCP_SAMPLING ? "\"sampling\":{}" : NULL
        };
        const char *before = "{";
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(offers) && r == 0; i++) {
                if (!offers[i])
                        continue;
                r = cg_buf_try_addf(b, err, "%s%s", before, offers[i]);
                before = ",";
        }
        return r < 0 ? r : cg_buf_try_adds(b, *before == '{' ? "{}" : "}", err);
}

int cg_mcp_add_meta(const struct cg_mcp_client *c, struct cg_buf *b, bool modern, uint64_t token,
                    struct cg_err *err)
{
        int r = 0;

        if (!modern && !token)
                return 0;
        r = cg_buf_try_adds(b, ",\"_meta\":{", err);
        if (r == 0 && token)
                r = cg_buf_try_addf(b, err, "\"progressToken\":%llu%s", (unsigned long long)token,
                                    modern ? "," : "");
        if (r == 0 && modern)
                r = cg_buf_try_adds(
                        b,
                        "\"io.modelcontextprotocol/protocolVersion\":\"" CG_MCP_MODERN_VERSION
                        "\",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"cellgate\",\"version\":\"" CG_VERSION
                        "\"},\"io.modelcontextprotocol/clientCapabilities\":",
                        err);
        if (r == 0 && modern)
                r = cg_mcp_add_capabilities(c, b, err);
        return r < 0 ? r : cg_buf_try_adds(b, "}", err);
}

int cg_mcp_send_list(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err)
{
        struct cg_mcp_msg m = { .method = cg_mcp_methods[q->method].name, .repeatable = true };
        cg_auto_buf struct cg_buf b;
        int r;

        cg_buf_init(&b, CG_MCP_MAX_CURSOR + 1024);
        m.id = q->id = ++q->c->last_id;
        r = cg_buf_try_addf(&b, err, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":{",
                            (unsigned long long)q->id, m.method);
        if (r == 0 && cursor.p)
                r = cg_buf_try_adds(&b, "\"cursor\":", err);
        if (r == 0 && cursor.p)
                r = cg_buf_try_add(&b, cursor.p, cursor.len, err);
        if (r == 0 && q->c->modern) {
                size_t at = b.len;

                r = cg_mcp_add_meta(q->c, &b, true, 0, err);
                if (r == 0 && !cursor.p) /* no member before it */
                        b.data[at] = ' ';
        }
        if (r == 0)
                r = cg_buf_try_adds(&b, "}}\n", err);
        return r < 0 ? r : cg_mcp_send(q->c, &m, &b, err);
}

static int send_call(struct cg_mcp_req *q, struct cg_err *err)
{
        struct cg_mcp_client *c = q->c;
        struct cg_mcp_msg m = { .method = cg_mcp_methods[q->method].name };
        cg_auto_buf struct cg_buf b = q->line, name = { .max = 2 * CG_MCP_MAX_URI };
        char **headers = NULL;
        char head[CG_MCP_LINE_GAP + 1];
        size_t n;
        int r = 0;

        m.id = q->id = ++c->last_id;
        q->has_progress = false;                         /* the id is the token of a new series */
        if (c->modern || c->def->kind != CG_MCP_STDIO) { /* it may have to be sent again */
                cg_buf_init(&b, q->line.max + q->more.len);
                r = cg_buf_try_add(&b, q->line.data, q->line.len, err);
        } else {
                cg_buf_init(&q->line, 0);
        }
        if (r == 0 && q->more.len)
                r = cg_buf_try_add(&b, q->more.data, q->more.len, err);
        if (r == 0)
                r = cg_mcp_add_meta(c, &b, c->modern, q->id, err);
        if (r == 0)
                r = cg_buf_try_adds(&b, "}}\n", err);
        if (r == 0 && c->modern && c->def->kind != CG_MCP_STDIO) {
                r = cg_param_headers_encode(&name, q->tool, err);
                if (r == 0 && q->method == CG_MCP_TOOLS_CALL)
                        r = cg_param_headers_make(c->params, q->tool,
                                                  (struct cg_slice){ q->line.data + q->args_at, q->args_len },
                                                  &headers, err);
        }
        if (r < 0)
                return r;
        m.name = name.data;
        m.headers = (const char *const *)headers;
        n = (size_t)snprintf(head, sizeof(head), "{\"jsonrpc\":\"2.0\",\"id\":%llu",
                             (unsigned long long)q->id);
        m.skip = CG_MCP_LINE_GAP - n;
        memcpy(b.data + m.skip, head, n);
        r = cg_mcp_send(c, &m, &b, err);
        for (size_t i = 0; headers && headers[i]; i++)
                free(headers[i]);
        free(headers);
        return r;
}

int cg_mcp_send_req(struct cg_mcp_req *q, struct cg_err *err)
{
        int r;

        /* Many servers have tools without the capability. */
        if (cg_mcp_methods[q->method].offer != CG_MCP_TOOLS && q->c->knows_offers &&
            !(q->c->offers & cg_mcp_methods[q->method].offer))
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
        struct cg_err err;
        int r;

        if (c->state == IDLE || !c->modern || !c->announces || c->listen_id)
                return;
        cg_mcp_lists_stale(c); /* changes since the end of the last subscription were not announced */
        if (now - c->listened_ms < CG_MCP_LISTEN_MS)
                return;
        c->listened_ms = now;
        c->tools_announced = false;
        m.id = c->listen_id = ++c->last_id;
        r = cg_buf_try_addf(&b, NULL,
                            "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"subscriptions/listen\","
                            "\"params\":{\"notifications\":{",
                            (unsigned long long)m.id);
        for (size_t i = 0; i < CG_MCP_N_CAPABILITIES && r == 0; i++) {
                if (!(c->announces & cg_mcp_capabilities[i].offer))
                        continue;
                r = cg_buf_try_addf(&b, NULL, "%s\"%sListChanged\":true", comma, cg_mcp_capabilities[i].name);
                comma = ",";
        }
        if (r < 0 || cg_buf_try_adds(&b, "}", NULL) < 0 || cg_mcp_add_meta(c, &b, true, 0, NULL) < 0 ||
            cg_buf_try_adds(&b, "}}\n", NULL) < 0 || cg_mcp_send(c, &m, &b, &err) < 0)
                c->listen_id = 0;
}
