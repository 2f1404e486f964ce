/*
 * The fixture server of MCP's conformance suite: the monitor of cellgate-mcp-http and `cellgate mcp
 * serve`, of the same objects as the installed programs, with the suite's own tools, resources and
 * prompts beside cellgate's. What they do is a table, the JSON file CELLGATE_FIXTURE (fixture.py):
 *
 *     {"tools": [...], "templates": [...], "capabilities": {...},
 *      "methods": {METHOD: {"by": PARAM, "rows": {VALUE: ROW}}}}
 *
 * A ROW may have "needs" (capabilities of the client), "requests" that it is sent, "messages" of
 * the log, and ends by "code", a cell of execute_ipython_cell, or "result". Never installed.
 *
 * It is linked with --wrap for the two calls by which mcp serve uses the core of the protocol, so
 * that the server itself has nothing for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/installed.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "config.h"
#include "mcp/server.h"
#include "mcp_http/monitor.h"

#define META "io.modelcontextprotocol/"
#define MAX  ((size_t)1 << 20)
/* Clients of the older revisions that are asked something at once. */
#define MAX_ASKED 8u

static struct {
        json_t *table, *message; /* message: of the line that is handled */
        struct cg_mcpd_info info;
        const char *names[128];
        char *tools, *templates;
        cg_mcpd_fn fn; /* of mcp serve */
        /* In the older revisions: our requests, and the calls that wait for their answers. */
        struct {
                uint64_t id;
                json_t *message;
        } asked[MAX_ASKED];
} fx;

/* The linker's names of the functions, and of ours in their place. */
void __real_cg_mcpd_init(struct cg_mcpd *s, const struct cg_mcpd_info *info);
void __wrap_cg_mcpd_init(struct cg_mcpd *s, const struct cg_mcpd_info *info);
int __real_cg_mcpd_line(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn,
                        void *data, struct cg_err *err);
int __wrap_cg_mcpd_line(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn,
                        void *data, struct cg_err *err);
const char *__real_cg_installed(char ret[PATH_MAX], const char *path);
const char *__wrap_cg_installed(char ret[PATH_MAX], const char *path);

static const char *string_of(const json_t *object, const char *name)
{
        return json_string_value(json_object_get(object, name)) ?: "";
}

static char *text_of(const json_t *value)
{
        return json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}

/* ---- the table */

static char *joined(const char *array, const char *name)
{
        cg_auto_json json_t *all = json_loads(array, 0, NULL);

        if (json_array_extend(all, json_object_get(fx.table, name)) < 0)
                abort();
        return text_of(all);
}

void __wrap_cg_mcpd_init(struct cg_mcpd *s, const struct cg_mcpd_info *info)
{
        json_t *tool;
        size_t i, n = 0;

        fx.table = json_load_file(getenv("CELLGATE_FIXTURE") ?: "", 0, NULL);
        fx.info = *info;
        for (; info->tool_names[n]; n++)
                fx.names[n] = info->tool_names[n];
        json_array_foreach(json_object_get(fx.table, "tools"), i, tool) {
                if (n + 1 == CG_ARRAY_LEN(fx.names))
                        abort();
                fx.names[n++] = string_of(tool, "name");
        }
        fx.info.tool_names = fx.names;
        fx.info.tools = fx.tools = joined(info->tools, "tools");
        fx.info.templates = fx.templates = joined(info->templates, "templates");
        __real_cg_mcpd_init(s, &fx.info);
}

static json_t *method_of(const json_t *message)
{
        return json_object_get(json_object_get(fx.table, "methods"), string_of(message, "method"));
}

/* The row of the message; NULL: there is none. */
static json_t *row_of(const json_t *message)
{
        json_t *method = method_of(message), *params = json_object_get(message, "params");

        return json_object_get(json_object_get(method, "rows"), string_of(params, string_of(method, "by")));
}

/* ---- what a client has declared */

static json_t *capabilities_of(const json_t *message)
{
        json_t *meta = json_object_get(json_object_get(message, "params"), "_meta");

        return json_object_get(meta, META "clientCapabilities");
}

static bool has_all(json_t *wanted, const json_t *there)
{
        const char *name;
        json_t *more;

        json_object_foreach(wanted, name, more)
                if (!json_object_get(there, name) || !has_all(more, json_object_get(there, name)))
                        return false;
        return true;
}

static int refuse(struct cg_buf *out, struct cg_slice id, json_t *needs, struct cg_err *err)
{
        cg_auto_json json_t *data = json_pack("{s:O}", "requiredCapabilities", needs);
        cg_auto_free char *text = text_of(data);

        return cg_rpc_add_error_data(out, id, CG_MCPD_UNDECLARED, "the client has not declared it", text,
                                     err);
}

/* ---- requests to the client */

static bool is_answered(json_t *requests, const json_t *answers)
{
        const char *key;
        json_t *request;

        json_object_foreach(requests, key, request)
                if (!json_is_object(json_object_get(answers, key)))
                        return false;
        return true;
}

/* Keeps those whose capability, the first word of their method, the client has. */
static int ask_by_result(struct cg_serve *sv, struct cg_slice id, const json_t *message, json_t *row,
                         struct cg_err *err)
{
        cg_auto_json json_t *result = json_pack("{s:s, s:{}, s:s}", "resultType", "input_required",
                                                "inputRequests", "requestState", "fixture");
        cg_auto_free char *text = NULL;
        json_t *request;
        const char *key;

        json_object_foreach(json_object_get(row, "requests"), key, request) {
                const char *method = string_of(request, "method");
                cg_auto_free char *capability = strndup(method, strcspn(method, "/"));

                if (json_object_get(capabilities_of(message), capability))
                        json_object_set(json_object_get(result, "inputRequests"), key, request);
        }
        text = text_of(result);
        return cg_rpc_add_result(&sv->out, id, text, strlen(text), err);
}

/* The first of them; the call goes on with its answer. */
static int ask(struct cg_serve *sv, const json_t *message, json_t *row)
{
        json_t *request = json_object_iter_value(json_object_iter(json_object_get(row, "requests")));
        cg_auto_free char *params = text_of(json_object_get(request, "params"));

        for (size_t i = 0; i < MAX_ASKED; i++) {
                if (fx.asked[i].message)
                        continue;
                fx.asked[i].id = ++sv->last_ask;
                fx.asked[i].message = json_deep_copy(message);
                return cg_serve_request(sv, fx.asked[i].id, string_of(request, "method"), params);
        }
        abort();
}

/* ---- the end of a request */

static void send_messages(struct cg_serve *sv, const char *id, const json_t *row)
{
        bool stateless = sv->proto.peer.stateless;
        enum cg_mcpd_level wanted = stateless ? sv->proto.peer.log : sv->proto.handshake.log;
        json_t *text;
        size_t i;

        if (!json_object_get(row, "unasked") && (wanted == CG_MCPD_LOG_NONE || wanted > CG_MCPD_LOG_INFO))
                return;
        json_array_foreach(json_object_get(row, "messages"), i, text) {
                cg_auto_json json_t *params = json_pack("{s:s, s:O}", "level", "info", "data", text);
                cg_auto_free char *all = NULL;

                if (stateless)
                        json_object_set_new(
                                params, "_meta",
                                json_pack("{s:o}", CG_MCPD_REQUEST, json_loads(id, JSON_DECODE_ANY, NULL)));
                all = text_of(params);
                cg_serve_notify(sv, "notifications/message", all);
        }
}

/* @text (taken) with @value in each place of "{NAME}". */
static char *expand(char *text, const char *name, const json_t *value)
{
        cg_auto_free char *quoted = text_of(value), *place = NULL, *old = text;
        cg_auto_buf struct cg_buf b = { .max = MAX };
        const char *p = text, *next;

        if (asprintf(&place, "{%s}", name) < 0)
                abort();
        for (; (next = strstr(p, place)); p = next + strlen(place)) {
                cg_buf_add(&b, p, (size_t)(next - p));
                cg_buf_add(&b, quoted + 1, strlen(quoted) - 2);
        }
        cg_buf_adds(&b, p);
        return cg_buf_steal(&b, NULL);
}

static int send_result(struct cg_mcpd *s, struct cg_slice id, const json_t *row, json_t *arguments,
                       struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = MAX };
        cg_auto_free char *text = text_of(json_object_get(row, "result"));
        const char *name;
        json_t *value;

        json_object_foreach(arguments, name, value)
                if (json_is_string(value))
                        text = expand(text, name, value);
        cg_buf_add(&b, text, strlen(text) - 1);
        return cg_mcpd_answer(s, id, &b, 0, out, err);
}

/* The call becomes one of execute_ipython_cell. */
static int run_cell(struct cg_serve *sv, const struct cg_mcpd_in *in, const json_t *row, json_t *known,
                    struct cg_err *err)
{
        cg_auto_free char *json = text_of(known), *literal = NULL, *code = NULL, *arguments = NULL;
        cg_auto_json json_t *text = json_string(json), *call = NULL;
        struct cg_mcpd_in cell = *in;

        literal = text_of(text);
        if (asprintf(&code, "import json\narguments = json.loads(%s)\n%s", literal, string_of(row, "code")) <
            0)
                abort();
        call = json_pack("{s:s}", "code", code);
        arguments = text_of(call);
        if (json_object_get(row, "requests")) /* the state was of ask_by_result() */
                cell.request_state = cell.input_responses = CG_SLICE_NONE;
        cell.name = cg_serve_tool_defs[CG_SERVE_EXECUTE].name;
        cell.arguments = (struct cg_slice){ arguments, strlen(arguments) };
        return fx.fn(sv, &cell, err);
}

/*
 * @in: of a call; NULL: another request, or a call that was answered. @answer: to ask(); NULL:
 * none.
 */
static int handle(struct cg_serve *sv, const json_t *message, json_t *row, const struct cg_mcpd_in *in,
                  const char *answer, struct cg_err *err)
{
        json_t *params = json_object_get(message, "params"), *needs = json_object_get(row, "needs"),
               *requests = json_object_get(row, "requests"), *given = json_object_get(params, "arguments"),
               *answers = json_object_get(params, "inputResponses");
        cg_auto_free char *id = text_of(json_object_get(message, "id"));
        cg_auto_json json_t *known = json_object();
        struct cg_slice number = { id, strlen(id) };
        bool stateless = sv->proto.peer.stateless;

        if (needs && stateless && !has_all(needs, capabilities_of(message)))
                return refuse(&sv->out, number, needs, err);
        if (stateless && !is_answered(requests, answers))
                return ask_by_result(sv, number, message, row, err);
        if (!stateless && requests && !answer)
                return ask(sv, message, row);
        json_object_update(known, given);
        if (answers && requests)
                json_object_set(known, "answers", answers);
        if (answer)
                json_object_set_new(known, "answer", json_string(answer));
        send_messages(sv, id, row);
        if (in && json_object_get(row, "code"))
                return run_cell(sv, in, row, known, err);
        return send_result(&sv->proto, number, row, known, &sv->out, err);
}

/* In the place of on_message() of mcp serve. */
static int on_message(void *data, const struct cg_mcpd_in *in, struct cg_err *err)
{
        struct cg_serve *sv = data;
        json_t *row = row_of(fx.message);

        if (in->kind == CG_MCPD_CALL || in->kind == CG_MCPD_RESOURCES || in->kind == CG_MCPD_READ)
                return row ? handle(sv, fx.message, row, in, NULL, err) : fx.fn(data, in, err);
        for (size_t i = 0; in->kind == CG_MCPD_ANSWER && i < MAX_ASKED; i++) {
                cg_auto_json json_t *call = NULL;
                cg_auto_free char *answer = NULL;
                char id[24];

                snprintf(id, sizeof(id), "%llu", (unsigned long long)fx.asked[i].id);
                if (!fx.asked[i].message || !cg_slice_is(in->id, id))
                        continue;
                call = CG_STEAL(fx.asked[i].message);
                answer = in->result.p ? strndup(in->result.p, in->result.len) : strdup("an error");
                return handle(sv, call, row_of(call), NULL, answer, err);
        }
        return fx.fn(data, in, err);
}

/* The answer to initialize or server/discover, with more capabilities. */
static int more_capabilities(const struct cg_buf *answer, struct cg_buf *out, struct cg_err *err)
{
        static const char before[] = "\"capabilities\":{";
        const char *p = strstr(cg_buf_str(answer), before);
        cg_auto_free char *more = text_of(json_object_get(fx.table, "capabilities"));

        if (!p)
                return cg_buf_try_add(out, answer->data, answer->len, err);
        p += sizeof(before) - 1;
        return cg_buf_try_addf(out, err, "%.*s%.*s,%s", (int)(p - answer->data), answer->data,
                               (int)strlen(more) - 2, more + 1, p);
}

/* The core does not know the methods that mcp serve has no use for. */
static bool is_own(const json_t *message)
{
        static const char *const core[] = { "tools/call", "resources/list", "resources/read" };

        for (size_t i = 0; i < CG_ARRAY_LEN(core); i++)
                if (strcmp(string_of(message, "method"), core[i]) == 0)
                        return false;
        return row_of(message) != NULL;
}

int __wrap_cg_mcpd_line(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn,
                        void *data, struct cg_err *err)
{
        cg_auto_json json_t *message = json_loadb(line.p, line.len, JSON_ALLOW_NUL, NULL);
        cg_auto_buf struct cg_buf answer = { .max = MAX };
        const char *method = string_of(message, "method");

        fx.message = message;
        fx.fn = fn;
        if (is_own(message)) {
                s->peer = s->handshake;
                s->peer.stateless = capabilities_of(message) != NULL;
                return handle(data, message, row_of(message), NULL, NULL, err);
        }
        if (strcmp(method, "initialize") != 0 && strcmp(method, "server/discover") != 0)
                return __real_cg_mcpd_line(s, line, out, on_message, data, err);
        if (__real_cg_mcpd_line(s, line, &answer, on_message, data, err) < 0)
                return -1;
        return more_capabilities(&answer, out, err);
}

/* ---- the two programs */

/* The processes of sessions are this program. */
const char *__wrap_cg_installed(char ret[PATH_MAX], const char *path)
{
        ssize_t n;

        if (strcmp(path, CG_BINDIR "/cellgate") != 0 || getenv(CG_MCPD_HTTP_SESSION))
                return __real_cg_installed(ret, path);
        n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
        ret[n > 0 ? n : 0] = '\0';
        return ret;
}

/* Called like cellgate-mcp-http by `cellgate mcp serve --http`. */
int main(int argc, char **argv)
{
        static const struct cg_log log = { .fd = 2, .level = CG_LOG_WARN, .who = "fixture" };
        struct hf_options o;
        struct cg_err err;

        if (getenv(CG_MCPD_HTTP_SESSION))
                return cg_cli_mcp(argc - 1, argv + 1);
        if (cg_hf_parse(argc, argv, &o, &err) < 0)
                return cg_cli_fail("fixture", &err);
        return cg_hf_monitor(&o, &log);
}
