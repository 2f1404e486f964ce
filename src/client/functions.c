/* libcellgate: functions of the host that cells call. */
#include "client/internal.h"

#include <string.h>

/* The supervisor writes modules, and starts nothing. */
#define ADD_MS 60000
/* Levels of a result around the host's value. */
#define WRAP_DEPTH 1

CG_API int cg_session_add_functions(struct cg_session *s, const char *name, const char *tools, size_t len,
                                    const struct cg_functions_options *opts, char **ret, struct cg_err *err)
{
        struct cg_functions_options o = { 0 };
        json_t *definition;

        if (opts && (opts->size < sizeof(size_t) || opts->size > sizeof(o)))
                return cg_fail(err, CG_E_INVAL, "set opts->size to sizeof(struct cg_functions_options)");
        if (opts)
                memcpy(&o, opts, opts->size);
        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        if (len > CG_MAX_FUNCTIONS_TEXT)
                return cg_fail(err, CG_E_LIMIT, "the functions' definitions are longer than %u bytes",
                               CG_MAX_FUNCTIONS_TEXT);
        definition = json_pack("{s:s%, s:b}", "host_functions", tools, len, "ask", o.ask != 0);
        definition = json_pack("{s:{s:o}, s:I}", "servers", name, definition, "timeout_ms",
                               (json_int_t)ADD_MS);
        if (!definition)
                return cg_fail(err, CG_E_INVAL,
                               "the name and the functions' definitions must be UTF-8 without NUL");
        return cg_client_request(s->client, CG_HOST_SERVERS_ADD, s->number, definition, ADD_MS + 6000, NULL,
                                 ret, err);
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
                if (r == 0 && cg_json_trim((struct cg_slice){ data + end, len - end }).len)
                        r = cg_fail(err, CG_E_PARSE, "the value ends at byte %zu, and more follows", end);
                if (r == 0)
                        r = cg_buf_try_adds(b, "{\"content\":[],\"structuredContent\":", err);
                if (r == 0)
                        r = cg_buf_try_add(b, data, end, err);
                return r < 0 ? r : cg_buf_try_adds(b, "}", err);
        case CG_FUNCTION_RESULT:
                r = cg_json_check_object(data, len, CG_JSON_DEPTH, err);
                if (r == 0 && (cg_json_member(text, "content", &text, err) < 0 || cg_json_kind(text) != '['))
                        r = cg_fail(err, CG_E_INVAL, "a result of MCP has \"content\", an array, once");
                return r < 0 ? r : cg_buf_try_add(b, data, len, err);
        case CG_FUNCTION_ERROR:
                r = cg_buf_try_adds(b, "{\"isError\":true,\"content\":[{\"type\":\"text\",\"text\":", err);
                if (r == 0)
                        r = cg_json_try_quote(b, data, len, err);
                return r < 0 ? r : cg_buf_try_adds(b, "}]}", err);
        default:
                return cg_fail(err, CG_E_INVAL, "%d is no outcome of a function", (int)outcome);
        }
}

CG_API int cg_function_return(struct cg_session *s, uint64_t call, enum cg_function_outcome outcome,
                              const char *data, size_t len, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_FUNCTION_RETURN, .id = call, .has_raw = true };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_TOOL_RESULT };
        int r;

        if (outcome == CG_FUNCTION_REFUSED)
                return cg_session_reject(s, CG_EVENT_FUNCTION_CALL, call, data, len, err);
        r = make_result(outcome, data, len, &b, err);
        if (r == 0)
                r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        if (cg_session_find_approval(s, CG_EVENT_FUNCTION_CALL, call, err)) {
                cg_session_forget_approval(s, call);
                out.session = s->number;
                out.raw = b.data;
                out.raw_len = b.len;
                r = cg_client_send(s->client, &out, NULL, err);
        } else {
                r = CG_E_NOTFOUND;
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}
