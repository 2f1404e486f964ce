/* The handshake of an MCP client: initialize, and the requests that waited for it. */
#include "mcp/client_int.h"

#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "base/util.h"
#include "config.h"

/* Oldest first. The newest is offered, all are accepted. */
static const char *const versions[] = { "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25" };
#define NEWEST versions[CG_ARRAY_LEN(versions) - 1]

int cg_mcp_send_initialize(struct cg_mcp_client *c, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b;
        char params[256];
        int r;

        cg_buf_init(&b, 1024);
        snprintf(
                params, sizeof(params),
                "{\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"cellgate\",\"version\":\"%s\"}}",
                NEWEST, CG_VERSION);
        c->init_id = ++c->last_id;
        r = cg_rpc_add_request(&b, c->init_id, "initialize", params, err);
        return r < 0 ? r : cg_mcp_send(c, &b, 0, err);
}

static int read_initialize(struct cg_mcp_client *c, const struct cg_rpc *m, struct cg_err *err)
{
        struct cg_slice version = CG_SLICE_NONE, caps = CG_SLICE_NONE, tools = CG_SLICE_NONE;
        cg_auto_free char *text = NULL;
        size_t v = 0;
        char why[600];

        if (m->kind == CG_RPC_ERROR) {
                cg_mcp_error_text(m->error, why, sizeof(why));
                return cg_fail(err, CG_E_PROTO, "it answered initialize with an error: %s", why);
        }
        if (cg_json_member(m->result, "protocolVersion", &version, err) < 0 ||
            cg_json_member(m->result, "capabilities", &caps, err) < 0)
                return cg_err_prefix(err, "its answer to initialize is broken");
        if (cg_json_strdup(version, &text, NULL) < 0)
                return cg_fail(err, CG_E_PROTO, "its answer to initialize has no protocolVersion");
        while (v < CG_ARRAY_LEN(versions) && strcmp(versions[v], text) != 0)
                v++;
        if (v == CG_ARRAY_LEN(versions)) {
                cg_auto_buf struct cg_buf shown = { .max = 1024 };

                cg_text_render_as(&shown, text, strlen(text), 200, CG_TEXT_LINE, NULL);
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "it speaks version \"%s\" of the protocol; %s to %s are known here",
                               shown.data ? shown.data : "", versions[0], NEWEST);
        }
        c->has_tools = caps.p && cg_json_member(caps, "tools", &tools, NULL) == 0 && tools.p;
        cg_log(c->log, CG_LOG_DEBUG, "MCP server %s is ready, protocol %s", c->def->name, text);
        return 0;
}

void cg_mcp_on_initialize(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        struct cg_mcp_req *q;
        struct cg_err err;

        c->init_id = 0;
        if (read_initialize(c, m, &err) < 0) {
                cg_mcp_client_start_failed(c, err.msg);
                return;
        }
        c->state = READY;
        c->start_failures = 0;
        cg_mcp_send_notification(c, "notifications/initialized", NULL);
        cg_mcp_client_rearm(c);
        /*
         * Sends the requests that waited for the handshake, and the first of the lists. Sending
         * sets the id even when it fails, so the loop terminates.
         */
        while (c->state == READY) {
                bool lists = cg_mcp_lists(c);

                for (q = c->reqs; q && (q->id || (q->kind == LIST && lists)); q = q->next)
                        ;
                if (!q)
                        break;
                if (cg_mcp_send_req(q, &err) < 0)
                        cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, err.msg);
        }
}
