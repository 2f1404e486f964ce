/* libcellgate: functions of the host that cells call. */
#include "client/internal.h"

/* The supervisor writes modules, and starts nothing. */
#define ADD_MS 60000
/* Levels of a result around the host's value. */
#define WRAP_DEPTH 1

CG_API int cg_session_add_functions(struct cg_session *s, const char *name, const char *tools, size_t len,
                                    const struct cg_functions_options *opts, char **ret, struct cg_err *err)
{
        struct cg_functions_options o = { 0 };
        cg_auto_free char *report = NULL;
        json_t *definition;
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_functions_options", err) < 0)
                return CG_E_INVAL;
        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        if (len > CG_MAX_FUNCTIONS_TEXT)
                return cg_fail(err, CG_E_LIMIT, "the functions' definitions are longer than %u bytes",
                               CG_MAX_FUNCTIONS_TEXT);
        if (o.ask && s->client->node) {
                r = cg_remote_ask_functions(s, name, err);
                if (r < 0)
                        return r;
                o.ask = 0;
        }
        definition = json_pack("{s:s%, s:b}", "host_functions", tools, len, "ask", o.ask != 0);
        definition = json_pack("{s:{s:o}, s:I}", "servers", name, definition, "timeout_ms",
                               (json_int_t)ADD_MS);
        if (!definition)
                return cg_fail(err, CG_E_INVAL,
                               "the name and the functions' definitions must be UTF-8 without NUL");
        r = cg_client_request(s->client, CG_HOST_SERVERS_ADD, s->number, definition, ADD_MS + 6000, NULL,
                              &report, err);
        if (r < 0 || (s->client->node && (r = cg_remote_check_report(name, report, err)) < 0))
                return r;
        if (ret)
                *ret = CG_STEAL(report);
        return 0;
}

/* The result of MCP that returns @data as @outcome says. */
static int make_result(enum cg_function_outcome outcome, const char *data, size_t len, struct cg_buf *b,
                       struct cg_err *err)
{
        struct cg_slice text = { data, len };
        size_t end = 0;
        int r;

        switch (outcome) {
        case CG_FUNCTION_VALUE:
                r = cg_json_skip(data, len, CG_JSON_DEPTH - WRAP_DEPTH, &end, err);
                if (r < 0)
                        return r;
                if (cg_json_trim((struct cg_slice){ data + end, len - end }).len)
                        return cg_fail(err, CG_E_PARSE, "the value ends at byte %zu, and more follows", end);
                cg_buf_adds(b, "{\"content\":[],\"structuredContent\":");
                cg_buf_add(b, data, end);
                cg_buf_adds(b, "}");
                break;
        case CG_FUNCTION_RESULT:
                r = cg_json_check_object(data, len, CG_JSON_DEPTH, err);
                if (r < 0)
                        return r;
                if (cg_json_member(text, "content", &text, err) < 0 || cg_json_kind(text) != '[')
                        return cg_fail(err, CG_E_INVAL, "a result of MCP has \"content\", an array, once");
                cg_buf_add(b, data, len);
                break;
        case CG_FUNCTION_ERROR:
                cg_buf_adds(b, "{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":");
                cg_json_quote(b, data, len);
                cg_buf_adds(b, "}]}");
                break;
        default:
                return cg_fail(err, CG_E_INVAL, "%d is no outcome of a function", (int)outcome);
        }
        return cg_buf_end(b, err);
}

CG_API int cg_function_return(struct cg_session *s, uint64_t call, enum cg_function_outcome outcome,
                              const char *data, size_t len, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_FUNCTION_RETURN, .id = call, .has_raw = true };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_TOOL_RESULT };
        int r;

        if (outcome == CG_FUNCTION_REFUSED)
                return cg_session_decide(s, CG_EVENT_FUNCTION_CALL, call, false, data, len, false, err);
        r = make_result(outcome, data, len, &b, err);
        if (r < 0)
                return r;
        out.raw = b.data;
        out.raw_len = b.len;
        return cg_session_send_decision(s, &out, CG_EVENT_FUNCTION_CALL, NULL, err);
}
