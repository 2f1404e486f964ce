/*
 * Calls that the server answers with questions (revision 2026-07-28, "input required"). The call is
 * sent again with the answers and with the server's state, byte for byte.
 */
#include "mcp/client_int.h"

#include <string.h>
#include "base/text.h"
#include "base/util.h"
#include "mcp/ceilings.h"

/* Nobody answers here: what can be declined is declined. */
static int add_answer(struct cg_mcp_req *q, struct cg_slice request, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = 1024 };
        struct cg_slice value = CG_SLICE_NONE;
        cg_auto_free char *method = NULL;

        if (!cg_json_find(request, "method", &value) || cg_json_strdup(value, &method, NULL) < 0)
                return cg_fail(err, CG_E_PROTO, "one of its questions has no method");
        if (strcmp(method, "elicitation/create") == 0)
                return cg_buf_adds(b, "{\"action\":\"decline\"}", err);
        if (strcmp(method, "roots/list") == 0)
                return cg_buf_adds(b, "{\"roots\":[]}", err);
        cg_text_render_as(&shown, method, strlen(method), 100, CG_TEXT_LINE, NULL);
        return cg_fail(err, CG_E_UNSUPPORTED, "it needs %s, which this client does not offer",
                       shown.data ? shown.data : "something");
}

static int add_answers(struct cg_mcp_req *q, struct cg_slice requests, struct cg_buf *b, struct cg_err *err)
{
        struct cg_slice key, request;
        struct cg_json_walk w;
        bool first = true;
        int r = cg_json_walk_init(&w, requests, '{', err);

        if (r == 0)
                r = cg_buf_adds(b, ",\"inputResponses\":{", err);
        while (r == 0 && (r = cg_json_walk_next(&w, &key, &request, err)) == 0) {
                r = cg_buf_adds(b, first ? "\"" : ",\"", err);
                if (r == 0)
                        r = cg_buf_add(b, key.p, key.len, err);
                if (r == 0)
                        r = cg_buf_adds(b, "\":", err);
                if (r == 0)
                        r = add_answer(q, request, b, err);
                first = false;
        }
        return r == CG_JSON_END ? cg_buf_adds(b, "}", err) : r;
}

static int prepare(struct cg_mcp_req *q, struct cg_slice result, struct cg_err *err)
{
        struct cg_slice requests = CG_SLICE_NONE, state = CG_SLICE_NONE;
        cg_auto_buf struct cg_buf more;
        int r = 0;

        cg_buf_init(&more, CG_MCP_MAX_STATE);
        if (++q->rounds > CG_MCP_MAX_ROUNDS)
                return cg_fail(err, CG_E_LIMIT, "it asked more than %d times", CG_MCP_MAX_ROUNDS);
        if (cg_json_find(result, "inputRequests", &requests))
                r = add_answers(q, requests, &more, err);
        if (r == 0 && cg_json_find(result, "requestState", &state)) {
                if (cg_json_kind(state) != '"')
                        r = cg_fail(err, CG_E_PROTO, "its \"requestState\" is not a string");
                if (r == 0)
                        r = cg_buf_adds(&more, ",\"requestState\":", err);
                if (r == 0)
                        r = cg_buf_add(&more, state.p, state.len, err);
        }
        if (r == 0 && !requests.p && !state.p)
                r = cg_fail(err, CG_E_PROTO, "it wants input, but says neither which nor its state");
        if (r < 0)
                return r;
        cg_buf_fini(&q->more);
        q->more = more;
        cg_buf_init(&more, 0);
        return 0;
}

void cg_mcp_next_round(struct cg_mcp_req *q, struct cg_slice result)
{
        struct cg_err err;

        /* @result is not read any more when the call is sent. */
        if (prepare(q, result, &err) < 0 || cg_mcp_send_req(q, &err) < 0)
                cg_mcp_req_fail(q, "MCP server \"%s\": tool \"%s\" needs input: %s", q->c->def->name, q->tool,
                                err.msg);
}
