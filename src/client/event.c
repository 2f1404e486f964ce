/* libcellgate: events, made from messages and read by the host. A kernel's are checked here. */
#include "client/internal.h"

#include "base/text.h"

static const struct {
        uint16_t msg;
        enum cg_event_type type;
        const char *name;
} types[] = {
        { CG_HOST_STREAM, CG_EVENT_STREAM, "stream" },
        { CG_HOST_DISPLAY_DATA, CG_EVENT_DISPLAY_DATA, "display_data" },
        { CG_HOST_UPDATE_DISPLAY_DATA, CG_EVENT_UPDATE_DISPLAY_DATA, "update_display_data" },
        { CG_HOST_EXECUTE_RESULT, CG_EVENT_EXECUTE_RESULT, "execute_result" },
        { CG_HOST_CLEAR_OUTPUT, CG_EVENT_CLEAR_OUTPUT, "clear_output" },
        { CG_HOST_ERROR, CG_EVENT_ERROR, "error" },
        { CG_HOST_APPROVAL_REQUEST, CG_EVENT_APPROVAL_REQUEST, "approval_request" },
        { CG_HOST_APPROVAL_CLOSED, CG_EVENT_APPROVAL_CLOSED, "approval_closed" },
        { CG_HOST_INPUT_REQUEST, CG_EVENT_INPUT_REQUEST, "input_request" },
        { CG_HOST_RESULT, CG_EVENT_RESULT, "result" },
        { CG_HOST_KERNEL_DIED, CG_EVENT_KERNEL_DIED, "kernel_died" },
        { CG_HOST_SESSION_CLOSED, CG_EVENT_SESSION_CLOSED, "session_closed" },
        { CG_HOST_NOTICE, CG_EVENT_NOTICE, "notice" },
        { CG_HOST_EXECUTE_INPUT, CG_EVENT_EXECUTE_INPUT, "execute_input" },
        { CG_HOST_REPLY, CG_EVENT_REPLY, "reply" },
        { CG_HOST_COMM, CG_EVENT_COMM, "comm" },
        { CG_HOST_DEBUG_EVENT, CG_EVENT_DEBUG_EVENT, "debug_event" },
        { CG_HOST_EGRESS_REQUEST, CG_EVENT_EGRESS_REQUEST, "egress_request" },
        { CG_HOST_DENIED, CG_EVENT_DENIED, "denied" },
        { CG_HOST_INPUT_CLOSED, CG_EVENT_INPUT_CLOSED, "input_closed" },
        { CG_HOST_PROGRESS, CG_EVENT_PROGRESS, "progress" },
        { CG_HOST_SERVER_REQUEST, CG_EVENT_SERVER_REQUEST, "server_request" },
        { CG_HOST_COMMAND_OUTPUT, CG_EVENT_COMMAND_OUTPUT, "command_output" },
        { CG_HOST_COMMAND_RESULT, CG_EVENT_COMMAND_RESULT, "command_result" },
        { CG_HOST_FUNCTION_CALL, CG_EVENT_FUNCTION_CALL, "function_call" },
};

static const char *const status_names[] = { "ok", "error", "timeout", "cancelled", "kernel_died" };

CG_API const char *cg_event_type_name(enum cg_event_type t)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++)
                if (types[i].type == t)
                        return types[i].name;
        return "unknown";
}

bool cg_event_asks(const struct cg_event *e)
{
        return e->type == CG_EVENT_APPROVAL_REQUEST || e->type == CG_EVENT_EGRESS_REQUEST ||
               e->type == CG_EVENT_SERVER_REQUEST || e->type == CG_EVENT_FUNCTION_CALL;
}

CG_API const char *cg_status_name(enum cg_status st)
{
        return (size_t)st < CG_ARRAY_LEN(status_names) ? status_names[st] : "unknown";
}

static char *copy(const char *p, size_t len)
{
        char *s = malloc(len + 1);

        if (s) {
                memcpy(s, p, len);
                s[len] = '\0';
        }
        return s;
}

static bool set_text(struct cg_event *e, const char *text)
{
        e->text = strdup(text);
        e->text_len = cg_strlen(e->text);
        return e->text != NULL;
}

struct cg_event *cg_event_text_new(enum cg_event_type type, const char *text)
{
        struct cg_event *e = calloc(1, sizeof(*e));

        if (!e)
                return NULL;
        e->type = type;
        return set_text(e, text) ? e : cg_event_free(e);
}

/* The first raw frame's bytes, which a NUL follows. The event holds the frame. */
static char *take_frame(struct cg_event *e, struct cg_msg *m, size_t *len)
{
        if (m->n_frames > 1)
                e->held = CG_STEAL(m->frames[1]);
        *len = e->held ? e->held->len : 0;
        return e->held ? e->held->data : copy("", 0);
}

static void free_text(struct cg_event *e, char *text)
{
        if (!e->held || text != e->held->data)
                free(text);
}

/* STREAM: the kernel must send UTF-8; other bytes become U+FFFD, so that hosts can rely on it. */
static bool take_stream(struct cg_event *e, struct cg_msg *m)
{
        struct cg_buf b;
        uint32_t c;
        size_t len;
        const char *p = cg_msg_raw(m, 0, &len);

        if (cg_utf8_valid(p, len)) {
                e->text = take_frame(e, m, &e->text_len);
                return e->text != NULL;
        }
        cg_buf_init(&b, len * 3 + 1);
        for (size_t i = 0; i < len;) {
                size_t n = cg_utf8_next((const unsigned char *)p + i, len - i, &c);

                if (n)
                        cg_buf_add(&b, p + i, n);
                else
                        cg_buf_adds(&b, "\xef\xbf\xbd");
                i += n ?: 1;
        }
        e->text = cg_buf_steal(&b, &e->text_len);
        return e->text != NULL;
}

/* Content that is not a JSON object is replaced by a note. */
static bool take_json(struct cg_event *e, struct cg_msg *m)
{
        struct cg_err err;
        size_t len;
        const char *p = cg_msg_raw(m, 0, &len);

        if (cg_json_check_encodable(p, len, CG_JSON_DEPTH, &err) == 0) {
                e->json = take_frame(e, m, &e->json_len);
                return e->json != NULL;
        }
        e->type = CG_EVENT_NOTICE;
        cg_err_prefix(&err, "the kernel sent %zu bytes of output that cannot be shown", len);
        return set_text(e, err.msg);
}

/* Methods of questions about approval. */
static const char *const methods[] = { "tools/call", "resources/read", "prompts/get", "exec" };
static enum cg_status status_of(const char *name)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(status_names); i++)
                if (strcmp(name, status_names[i]) == 0)
                        return (enum cg_status)i;
        return CG_STATUS_ERROR;
}

/* The frames after the content are moved out of the message. */
static bool take_buffers(struct cg_event *e, struct cg_msg *m)
{
        size_t n = m->n_frames > 2 ? m->n_frames - 2 : 0;

        if (!n)
                return true;
        e->buffers = calloc(n, sizeof(*e->buffers));
        for (; e->buffers && e->n_buffers < n; e->n_buffers++)
                e->buffers[e->n_buffers] = CG_STEAL(m->frames[e->n_buffers + 2]);
        return e->buffers != NULL;
}

/* PROGRESS of a call: the content, and a sentence made of it. */
static bool take_call_progress(struct cg_event *e, const json_t *o)
{
        const char *tool = cg_json_text_of(o, "tool"), *server = cg_json_text_of(o, "server");
        const json_t *progress = json_object_get(o, "progress"), *total = json_object_get(o, "total");
        const char *message = cg_json_text_of(o, "message");
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_text_render_as(&b, server, strlen(server), 0, CG_TEXT_LINE);
        if (*tool)
                cg_buf_adds(&b, ".");
        cg_text_render_as(&b, tool, strlen(tool), 0, CG_TEXT_LINE);
        cg_buf_adds(&b, ": ");
        if (progress)
                cg_buf_addf(&b, "%.10g", json_number_value(progress));
        if (total)
                cg_buf_addf(&b, " of %.10g", json_number_value(total));
        if (*message) /* rendered by the tool server */
                cg_buf_addf(&b, "%s%s", cg_sep(progress, ", "), message);
        e->json = cg_json_text(o, &e->json_len);
        e->text = cg_buf_steal(&b, &e->text_len);
        return e->json && e->text;
}

/* SERVER_REQUEST: the content is the body, and the server's params byte for byte. */
static bool take_server_request(struct cg_event *e, const struct cg_msg *m, const json_t *o)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY + 65536 };
        json_int_t call = json_integer_value(json_object_get(o, "call"));
        const char *params, *method = cg_json_text_of(o, "method");
        size_t len;

        params = cg_msg_raw(m, 0, &len);
        e->approval = m->id;
        e->cell = (uint64_t)json_integer_value(json_object_get(o, "cell"));
        e->server = strdup(cg_json_text_of(o, "server"));
        if (!e->server || cg_json_check_encodable(params, len, CG_JSON_PARAMS_DEPTH, NULL) < 0)
                return false;
        cg_buf_adds(&b, "{\"server\":");
        cg_json_quote(&b, e->server, strlen(e->server));
        cg_buf_adds(&b, ",\"method\":");
        cg_json_quote(&b, method, strlen(method));
        if (call)
                cg_buf_addf(&b, ",\"call\":%lld", (long long)call);
        cg_buf_adds(&b, ",\"params\":");
        cg_buf_add(&b, params, len);
        cg_buf_adds(&b, "}");
        e->json = cg_buf_steal(&b, &e->json_len);
        return e->json != NULL;
}

/* Figures without a member are 0. */
static struct cg_costs costs_of(const json_t *o)
{
        struct cg_costs c = { .size = sizeof(c), .shared = json_is_true(json_object_get(o, "shared")) };
        const struct {
                const char *name;
                int64_t *to;
        } members[] = {
                { "wall_us", &c.wall_us },           { "cpu_us", &c.cpu_us },
                { "memory_bytes", &c.memory_bytes }, { "written_bytes", &c.written_bytes },
                { "tool_calls", &c.tool_calls },     { "commands", &c.commands },
                { "connections", &c.connections },   { "denials", &c.denials },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                *members[i].to = json_integer_value(json_object_get(o, members[i].name));
        return c;
}

/* Messages whose body is the supervisor's own. */
static bool take_body(struct cg_event *e, struct cg_msg *m)
{
        cg_auto_json json_t *o = NULL;
        const char *raw, *text;
        struct cg_err err;
        size_t len;

        if (cg_msg_json(m, &o, &err) < 0)
                return false;
        raw = cg_msg_raw(m, 0, &len);
        text = cg_json_text_of(o, "text");
        switch (e->type) {
        case CG_EVENT_APPROVAL_REQUEST:
        case CG_EVENT_FUNCTION_CALL:
                e->args = take_frame(e, m, &e->args_len);
                e->server = strdup(cg_json_text_of(o, "server"));
                e->tool = strdup(cg_json_text_of(o, "tool"));
                for (size_t i = 0; i < CG_ARRAY_LEN(methods); i++)
                        if (strcmp(cg_json_text_of(o, "method"), methods[i]) == 0)
                                e->method = methods[i];
                e->approval = m->id;
                e->cell = (uint64_t)json_integer_value(json_object_get(o, "cell"));
                e->json = cg_json_text(o, &e->json_len);
                return e->args && e->server && e->tool && e->json &&
                       set_text(e, cg_json_text_of(o, "line")) &&
                       (e->method || e->type == CG_EVENT_FUNCTION_CALL);
        case CG_EVENT_APPROVAL_CLOSED:
                e->approval = m->id;
                e->cell = 0;
                return set_text(e, cg_json_text_of(o, "why"));
        case CG_EVENT_EGRESS_REQUEST:
                e->approval = m->id;
                e->cell = 0;
                break;
        case CG_EVENT_SERVER_REQUEST:
                return take_server_request(e, m, o);
        case CG_EVENT_PROGRESS:
                if (json_object_get(o, "call"))
                        return take_call_progress(e, o);
                break;
        case CG_EVENT_COMMAND_RESULT:
                e->status = status_of(cg_json_text_of(o, "status"));
                json_object_del(o, "status");
                break;
        case CG_EVENT_EXECUTE_INPUT:
                e->execution_count = json_integer_value(json_object_get(o, "execution_count"));
                return take_stream(e, m);
        case CG_EVENT_RESULT:
        case CG_EVENT_REPLY:
                e->status = status_of(cg_json_text_of(o, "status"));
                e->execution_count = json_integer_value(json_object_get(o, "execution_count"));
                e->refused = json_is_true(json_object_get(o, "refused"));
                if (json_object_get(o, "costs"))
                        e->costs = costs_of(json_object_get(o, "costs"));
                if (json_object_get(o, "artifacts")) {
                        e->artifacts = cg_json_text(json_object_get(o, "artifacts"), &e->artifacts_len);
                        if (!e->artifacts)
                                return false;
                }
                /* Content that is not encodable JSON is replaced by an error. */
                if (len && cg_json_check_encodable(raw, len, CG_JSON_DEPTH, &err) < 0) {
                        raw = "{\"status\": \"error\", \"ename\": \"BadReply\", \"evalue\": \"the kernel's reply cannot be shown\", "
                              "\"traceback\": []}";
                        len = strlen(raw);
                }
                if (len) {
                        e->json = copy(raw, len);
                        e->json_len = len;
                }
                return (!len || e->json) && take_buffers(e, m) && set_text(e, text);
        default:
                break;
        }
        if (!set_text(e, text))
                return false;
        json_object_del(o, "text"); /* follows the content */
        e->json = cg_json_text(o, &e->json_len);
        return e->json != NULL;
}

static bool fill(struct cg_event *e, struct cg_msg *m)
{
        cg_auto_json json_t *o = NULL;

        e->cell = m->id;
        e->is_stderr = m->flags & CG_FLAG_STDERR;
        e->foreign = m->flags & CG_FLAG_FOREIGN;
        e->own_window = m->flags & CG_FLAG_OWN_WINDOW;
        switch (e->type) {
        case CG_EVENT_STREAM:
                return take_stream(e, m);
        case CG_EVENT_COMMAND_OUTPUT:
                e->text = take_frame(e, m, &e->text_len);
                return e->text != NULL;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
        case CG_EVENT_CLEAR_OUTPUT:
        case CG_EVENT_ERROR:
        case CG_EVENT_INPUT_REQUEST:
                if (cg_msg_json(m, &o, NULL) < 0)
                        return false;
                e->question = json_integer_value(json_object_get(o, "question"));
                return take_json(e, m);
        case CG_EVENT_DEBUG_EVENT:
                return take_json(e, m);
        case CG_EVENT_COMM:
                return take_json(e, m) && take_buffers(e, m);
        default:
                return take_body(e, m);
        }
}

struct cg_event *cg_event_from_message(struct cg_msg *m)
{
        struct cg_event *e;
        size_t i;

        for (i = 0; i < CG_ARRAY_LEN(types) && types[i].msg != m->type; i++)
                ;
        if (i == CG_ARRAY_LEN(types))
                return NULL;
        e = calloc(1, sizeof(*e));
        if (!e)
                return NULL;
        e->type = types[i].type;
        for (size_t f = 0; f < m->n_frames; f++)
                e->cost += cg_frame_bytes(m->frames[f]).len;
        e->cost += 64;
        return fill(e, m) ? e : cg_event_free(e);
}

struct cg_event *cg_event_question_about(struct cg_event *e)
{
        struct cg_event *q = calloc(1, sizeof(*q));

        if (!q)
                return NULL;
        q->type = CG_EVENT_APPROVAL_REQUEST;
        q->method = methods[0];
        q->cell = e->cell;
        q->approval = e->approval;
        q->json_len = e->json_len;
        q->args_len = e->args_len;
        q->server = strdup(e->server);
        q->tool = strdup(e->tool);
        q->json = copy(e->json, e->json_len);
        q->args = copy(e->args, e->args_len);
        if (!q->server || !q->tool || !q->json || !q->args)
                return cg_event_free(q);
        q->cost = e->cost;
        e->cost = 0;
        return q;
}

CG_API struct cg_event *cg_event_free(struct cg_event *e)
{
        if (!e)
                return NULL;
        free_text(e, e->text);
        free_text(e, e->json);
        free_text(e, e->args);
        free(e->artifacts);
        cg_frame_unref(e->held);
        free(e->server);
        free(e->tool);
        for (size_t i = 0; i < e->n_buffers; i++)
                cg_frame_unref(e->buffers[i]);
        free(e->buffers);
        json_decref(e->parsed);
        free(e);
        return NULL;
}

CG_API enum cg_event_type cg_event_type(const struct cg_event *e)
{
        return e->type;
}

CG_API uint64_t cg_event_cell(const struct cg_event *e)
{
        return e->cell;
}

CG_API int cg_event_is_stderr(const struct cg_event *e)
{
        return e->is_stderr;
}

CG_API const char *cg_event_text(const struct cg_event *e, size_t *len)
{
        if (len)
                *len = e->text ? e->text_len : 0;
        return e->text ?: "";
}

CG_API const char *cg_event_json(const struct cg_event *e, size_t *len)
{
        if (len)
                *len = e->json ? e->json_len : 2;
        return e->json ?: "{}";
}

CG_API const char *cg_event_artifacts(const struct cg_event *e, size_t *len)
{
        if (len)
                *len = e->artifacts_len;
        return e->artifacts;
}

CG_API const char *cg_event_mime(struct cg_event *e, const char *mime, size_t *len)
{
        const json_t *v;

        /*
         * A bundle that jansson cannot hold (an integer over 63 bits somewhere) stays readable
         * through cg_event_json().
         */
        if (!e->parsed && e->json)
                e->parsed = json_loadb(e->json, e->json_len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        v = json_object_get(json_object_get(e->parsed, "data"), mime);
        if (!json_is_string(v))
                return NULL;
        if (len)
                *len = json_string_length(v);
        return json_string_value(v);
}

CG_API enum cg_status cg_event_status(const struct cg_event *e)
{
        return e->status;
}

CG_API int64_t cg_event_execution_count(const struct cg_event *e)
{
        return e->execution_count;
}

CG_API int cg_event_foreign(const struct cg_event *e)
{
        return e->foreign;
}

CG_API size_t cg_event_n_buffers(const struct cg_event *e)
{
        return e->n_buffers;
}

CG_API const void *cg_event_buffer(const struct cg_event *e, size_t i, size_t *len)
{
        struct cg_bytes b = { NULL, 0 };

        if (i < e->n_buffers)
                b = cg_frame_bytes(e->buffers[i]);
        if (len)
                *len = b.len;
        return b.data;
}

CG_API int cg_event_refused(const struct cg_event *e)
{
        return e->refused;
}

CG_API int cg_event_costs(const struct cg_event *e, struct cg_costs *ret)
{
        size_t size = ret->size;

        if (size < sizeof(size_t) || size > sizeof(e->costs))
                return CG_E_INVAL;
        if (!e->costs.size)
                return CG_E_NOTFOUND;
        memcpy(ret, &e->costs, size);
        ret->size = size;
        return 0;
}

CG_API uint64_t cg_event_approval(const struct cg_event *e)
{
        return e->approval;
}

CG_API const char *cg_event_server(const struct cg_event *e)
{
        return e->server ?: "";
}

CG_API const char *cg_event_tool(const struct cg_event *e)
{
        return e->tool ?: "";
}

CG_API const char *cg_event_method(const struct cg_event *e)
{
        return e->method ?: "";
}

CG_API const char *cg_event_arguments(const struct cg_event *e, size_t *len)
{
        if (len)
                *len = e->args ? e->args_len : 0;
        return e->args ?: "";
}

CG_API int cg_render(const char *text, size_t len, size_t max, char **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };
        char *p;

        cg_text_render(&b, text, len, max ? CG_MAX(max, 64) : 0);
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        p = cg_buf_steal(&b, NULL);
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "text");
        *ret = p;
        return 0;
}
