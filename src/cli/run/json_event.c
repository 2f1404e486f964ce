/*
 * Members of lines of `cellgate run --json` about events of a session (docs/cli-json.md).
 */
#include "cli/run/json_event.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cli/common/args.h"
#include "cli/common/costs.h"
#include "cli/common/denials.h"

/* Up to this size a call's arguments are described in full; else as in a first view. */
#define SHOW_WHOLE ((size_t)64 << 10)
#define SHOW_WIDTH 100
#define SHOW_LINES 40

void cg_json_add_call(struct cg_json_line *l, const struct cg_event *e)
{
        const char *args;
        size_t len;

        cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
        cg_json_line_string(l, "server", cg_event_server(e), strlen(cg_event_server(e)));
        if (*cg_event_method(e))
                cg_json_line_string(l, "method", cg_event_method(e), strlen(cg_event_method(e)));
        cg_json_line_string(l, "tool", cg_event_tool(e), strlen(cg_event_tool(e)));
        args = cg_event_arguments(e, &len);
        cg_json_line_object(l, "arguments", args, len);
}

/* Text of a call or connection that is safe to print, the same as at the terminal. */
static void add_shown(struct cg_json_line *l, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 8 };
        struct cg_call call = { .cell = cg_event_cell(e) };
        struct cg_call_view view = { .width = SHOW_WIDTH, .last = true };

        if (l->r < 0)
                return;
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                l->r = cg_connection_text(cg_event_json(e, NULL), &b, &l->err);
        } else {
                call.server = cg_event_server(e);
                call.tool = cg_event_tool(e);
                call.method = cg_event_method(e);
                call.args = cg_event_arguments(e, &call.args_len);
                view.lines = call.args_len <= SHOW_WHOLE ? 0 : SHOW_LINES;
                l->r = cg_call_show(&call, &view, &b, &l->err);
        }
        cg_json_line_string(l, "shown", b.data ? b.data : "", b.len);
        cg_json_line_bool(l, "shown_whole", view.last);
}

void cg_json_add_result(struct cg_json_line *l, enum cg_status status, int64_t execution_count, bool refused,
                        const char *text, size_t len)
{
        const char *name = cg_status_name(status);

        cg_json_line_string(l, "status", name, strlen(name));
        cg_json_line_int(l, "execution_count", execution_count);
        cg_json_line_bool(l, "refused", refused);
        cg_json_line_string(l, "text", text, len);
}

void cg_json_add_variables(struct cg_json_line *l, const struct cg_event *e)
{
        cg_auto_json json_t *content = NULL;
        cg_auto_free char *text = NULL;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (l->r < 0 || len <= 2)
                return;
        content = json_loadb(json, len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(json_object_get(content, "variables")))
                return;
        text = json_dumps(json_object_get(content, "variables"), JSON_COMPACT);
        if (!text)
                l->r = cg_fail(&l->err, CG_E_NOMEM, "variables");
        else
                cg_json_line_object(l, "variables", text, strlen(text));
}

static void add_costs(struct cg_json_line *l, const struct cg_event *e)
{
        cg_auto_json json_t *costs = cg_costs_object(e);
        cg_auto_free char *text = costs ? json_dumps(costs, JSON_COMPACT) : NULL;

        cg_json_line_json(l, "costs", text);
}

void cg_json_add_event(struct cg_json_line *l, const struct cg_event *e, int64_t question)
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
        case CG_EVENT_PROGRESS:
                cg_json_line_string(l, "text", text, len);
                if (json_len > 2) /* of a call */
                        cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_DENIED:
                cg_json_line_string(l, "text", text, len);
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
                break;
        }
}
