/* Lines of `cellgate run --json`, and their members about events of a session: docs/cli-json.md. */
#include "cli/run/json_int.h"

#include "base/json.h"
#include "cli/common/args.h"
#include "cli/common/events.h"
#include "cli/common/pretty.h"
#include "cli/run/run.h"

/* Up to this size a call's arguments are described in full; else as in a first view. */
#define SHOW_WHOLE ((size_t)64 << 10)
#define SHOW_WIDTH 100
#define SHOW_LINES 40

void cg_json_line_begin(struct cg_buf *l, const char *type, uint64_t cell)
{
        cg_buf_init(l, SIZE_MAX - 1);
        cg_buf_addf(l, "{\"type\":\"%s\"", type);
        if (cell)
                cg_buf_addf(l, ",\"cell\":%" PRIu64, cell);
}

void cg_json_line_answer(struct cg_buf *l, const char *type, const char *id, uint64_t line)
{
        cg_json_line_begin(l, type, 0);
        cg_json_line_json(l, "id", id);
        cg_json_line_int(l, "line", (int64_t)line);
}

void cg_json_line_string(struct cg_buf *l, const char *name, const char *text, size_t len)
{
        cg_buf_addf(l, ",\"%s\":", name);
        cg_json_quote(l, text, len);
}

void cg_json_line_text(struct cg_buf *l, const char *name, const char *text)
{
        cg_json_line_string(l, name, text, strlen(text));
}

void cg_json_line_int(struct cg_buf *l, const char *name, int64_t n)
{
        cg_buf_addf(l, ",\"%s\":%" PRId64, name, n);
}

void cg_json_line_json(struct cg_buf *l, const char *name, const char *json)
{
        if (json)
                cg_buf_addf(l, ",\"%s\":%s", name, json);
}

void cg_json_line_bool(struct cg_buf *l, const char *name, bool v)
{
        cg_json_line_json(l, name, cg_bool_text(v));
}

void cg_json_line_object(struct cg_buf *l, const char *name, const char *json, size_t len)
{
        struct cg_slice v;

        if (cg_json_object_slice(json, len, &v, NULL) < 0) {
                cg_json_line_string(l, "invalid", json, len);
                return;
        }
        cg_buf_addf(l, ",\"%s\":", name);
        cg_pretty_ascii(v, l);
}

int cg_json_line_end(struct cg_run *run, struct cg_buf *l, struct cg_err *err)
{
        int r;

        cg_buf_adds(l, "}\n");
        r = cg_buf_end(l, err);
        if (r == 0)
                cg_screen_write(&run->screen, 1, l->data, l->len);
        cg_buf_fini(l);
        return r;
}

void cg_json_add_call(struct cg_buf *l, const struct cg_event *e)
{
        const char *args;
        size_t len;

        cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
        cg_json_line_text(l, "server", cg_event_server(e));
        if (*cg_event_method(e))
                cg_json_line_text(l, "method", cg_event_method(e));
        cg_json_line_text(l, "tool", cg_event_tool(e));
        args = cg_event_arguments(e, &len);
        cg_json_line_object(l, "arguments", args, len);
}

/* Text of a call or connection that is safe to print, the same as at the terminal. */
static void add_shown(struct cg_buf *l, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 8 };
        struct cg_call_view view = { .width = SHOW_WIDTH, .last = true };

        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                cg_connection_text(cg_event_json(e, NULL), &b);
        } else {
                struct cg_call call = cg_call_asked(e);

                if (call.args_len > SHOW_WHOLE)
                        view.lines = SHOW_LINES;
                cg_call_show(&call, &view, &b);
        }
        cg_buf_fail(l, b.failed);
        cg_json_line_string(l, "shown", b.data ?: "", b.len);
        cg_json_line_bool(l, "shown_whole", view.last);
}

void cg_json_add_result(struct cg_buf *l, enum cg_status status, int64_t execution_count, bool refused,
                        const char *text, size_t len)
{
        const char *name = cg_status_name(status);

        cg_json_line_text(l, "status", name);
        cg_json_line_int(l, "execution_count", execution_count);
        cg_json_line_bool(l, "refused", refused);
        cg_json_line_string(l, "text", text, len);
}

void cg_json_add_variables(struct cg_buf *l, const struct cg_event *e)
{
        cg_auto_json json_t *content = NULL;
        cg_auto_free char *text = NULL;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (len <= 2)
                return;
        content = json_loadb(json, len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(json_object_get(content, "variables")))
                return;
        text = json_dumps(json_object_get(content, "variables"), JSON_COMPACT);
        cg_buf_fail(l, text ? 0 : CG_E_NOMEM);
        if (text)
                cg_json_line_object(l, "variables", text, strlen(text));
}

static void add_costs(struct cg_buf *l, const struct cg_event *e)
{
        cg_auto_json json_t *costs = cg_costs_object(e);
        cg_auto_free char *text = json_dumps(costs, JSON_COMPACT);

        cg_json_line_json(l, "costs", text);
}

void cg_json_add_event(struct cg_buf *l, const struct cg_event *e, int64_t question)
{
        const char *text, *json;
        size_t len, json_len;

        text = cg_event_text(e, &len);
        json = cg_event_json(e, &json_len);
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                cg_json_line_string(l, "name", cg_event_is_stderr(e) ? "stderr" : "stdout", 6);
                cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_EXECUTE_RESULT:
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_CLEAR_OUTPUT:
        case CG_EVENT_ERROR:
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_INPUT_REQUEST:
        case CG_EVENT_INPUT_CLOSED:
                cg_json_line_int(l, "question", question);
                if (cg_event_type(e) == CG_EVENT_INPUT_REQUEST)
                        cg_json_line_object(l, "content", json, json_len);
                else
                        cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                cg_json_add_call(l, e);
                add_shown(l, e);
                break;
        case CG_EVENT_FUNCTION_CALL:
                cg_json_add_call(l, e);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_object(l, "content", json, json_len);
                add_shown(l, e);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_RESULT:
                cg_json_add_result(l, cg_event_status(e), cg_event_execution_count(e), cg_event_refused(e),
                                   text, len);
                add_costs(l, e);
                break;
        default:
                cg_json_line_string(l, "text", text, len);
                if (json_len > 2)
                        cg_json_line_object(l, "content", json, json_len);
                break;
        }
}
