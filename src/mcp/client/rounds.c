/*
 * Calls that the server answers with questions (revision 2026-07-28, "input required"). The call is
 * sent again with the answers and with the server's state, byte for byte.
 */
#include "mcp/client/internal.h"

#include "base/text.h"
#include "mcp/ceilings.h"

/* Begins all questions of @requests. */
static int ask_all(struct cg_mcp_req *q, struct cg_slice requests, struct cg_err *err)
{
        struct cg_slice key, request;
        struct cg_json_walk w;
        unsigned n = 0;
        int r = cg_json_walk_init(&w, requests, '{', err);

        while (r == 0 && (r = cg_json_walk_next(&w, &key, &request, err)) == 0) {
                if (++n > CG_MCP_MAX_INPUTS)
                        return cg_fail(err, CG_E_LIMIT, "it asks for more than %u things at once",
                                       CG_MCP_MAX_INPUTS);
                r = cg_mcp_ask_round(q, key, request, err);
        }
        return r == CG_JSON_END ? 0 : r;
}

static int begin_round(struct cg_mcp_req *q, struct cg_slice result, struct cg_err *err)
{
        struct cg_slice requests = CG_SLICE_NONE, state = CG_SLICE_NONE;

        if (++q->call.rounds > CG_MCP_MAX_ROUNDS)
                return cg_fail(err, CG_E_LIMIT, "it asked more than %d times", CG_MCP_MAX_ROUNDS);
        q->call.lists = 0;
        cg_buf_clear(&q->call.more);
        if (cg_json_find(result, "requestState", &state)) {
                if (cg_json_kind(state) != '"')
                        return cg_fail(err, CG_E_PROTO, "its \"requestState\" is not a string");
                if (state.len > CG_MCP_MAX_STATE)
                        return cg_fail(err, CG_E_LIMIT,
                                       "its \"requestState\" has %zu bytes, over the limit of %zu", state.len,
                                       CG_MCP_MAX_STATE);
                cg_buf_adds(&q->call.more, ",\"requestState\":");
                cg_buf_add(&q->call.more, state.p, state.len);
                if (cg_buf_end(&q->call.more, err) < 0)
                        return q->call.more.failed;
        }
        q->call.has_inputs = cg_json_find(result, "inputRequests", &requests);
        if (!requests.p && !state.p)
                return cg_fail(err, CG_E_PROTO, "it wants input, but says neither which nor its state");
        return q->call.has_inputs ? ask_all(q, requests, err) : 0;
}

static void fail_round(struct cg_mcp_req *q, const struct cg_err *why)
{
        cg_mcp_req_fail(q, "MCP server \"%s\": %s \"%s\" needs input: %s", q->c->def->name,
                        cg_mcp_methods[q->method].what, q->tool, why->msg);
}

static void on_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct cg_mcp_req *q = data;

        q->call.list = NULL;
        if (outcome == CG_MCP_OK)
                cg_mcp_send_round(q);
        else
                cg_mcp_req_finish(q, outcome, bytes, len);
}

/* Lists the tools, which may have changed while the host answered. Frees @q where that fails. */
static void list_first(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        if (++q->call.lists > CG_MCP_MAX_STALE_LISTS) {
                cg_mcp_req_fail(
                        q, "MCP server \"%s\" has announced changes of its tools during each of %u lists",
                        c->def->name, CG_MCP_MAX_STALE_LISTS);
                return;
        }
        q->call.list = cg_mcp_req_new(c, CG_MCP_TOOLS_LIST, cg_mcp_client_start_ms(c, 0), on_listed, q);
        if (!q->call.list) {
                cg_mcp_req_fail(q, "out of memory: request");
                return;
        }
        cg_mcp_req_add(q->call.list);
        cg_mcp_client_rearm(c);
        cg_mcp_next_list(c);
}

void cg_mcp_send_round(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;
        struct cg_err err;

        if (q->method == CG_MCP_TOOLS_CALL && c->o.pins) {
                if (cg_pins_check(c->o.pins, q->tool, &err) < 0) {
                        cg_mcp_req_fail(q, "%s", err.msg);
                        return;
                }
                if (!cg_mcp_client_is_listed(c)) {
                        list_first(q);
                        return;
                }
        }
        if (q->call.has_inputs)
                cg_mcp_add_round_answers(q, &q->call.more);
        if (cg_buf_end(&q->call.more, &err) < 0)
                fail_round(q, &err);
        else
                cg_mcp_send_waiting(c); /* this one too, if no others have taken its place */
}

void cg_mcp_next_round(struct cg_mcp_req *q, struct cg_slice result)
{
        struct cg_err err;

        q->id = 0; /* it has its answer: nothing is in flight until it is sent again */
        if (begin_round(q, result, &err) < 0)
                fail_round(q, &err);
        else if (!q->call.n_open)
                cg_mcp_send_round(q);
        else
                cg_mcp_send_waiting(q->c); /* others, while it waits for the host */
}
