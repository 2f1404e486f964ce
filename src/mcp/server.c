/* The protocol core of an MCP server, in the command line; every byte comes from an MCP client. */
#include "mcp/server.h"

#include "base/json.h"
#include "mcp/ceilings.h"

/* Before the names of members that each request and result of the stateless era has. */
#define META "io.modelcontextprotocol/"
/* The code of an error before the stateless era. */
#define NO_RESOURCE (-32002)
#define MAX_URI     ((size_t)2048)

static const struct {
        const char *name;
        enum cg_mcpd_revision revision;
} revisions[] = {
        /* the first is the answer to an unknown version */
        { "2025-11-25", CG_MCPD_2025_11_25 },
        { "2025-06-18", CG_MCPD_2025_06_18 },
        { "2025-03-26", CG_MCPD_2025_03_26 },
        { "2024-11-05", CG_MCPD_2024_11_05 },
};

void cg_mcpd_init(struct cg_mcpd *s, const struct cg_mcpd_info *info)
{
        *s = (struct cg_mcpd){ .info = info };
}

static int fail(struct cg_buf *out, struct cg_slice id, int code, const char *message, struct cg_err *err)
{
        return cg_rpc_add_error(out, id, code, message, err);
}

/* ---- initialize */

/*
 * "elicitation": {} means forms; {"url": {}} alone means that the client opens web pages and shows
 * no forms. Before 2025-06-18 there was no such thing, and before 2025-11-25 no pages, whatever the
 * client says.
 */
static void read_elicitation(struct cg_mcpd_peer *p, struct cg_slice caps, bool forms, bool pages)
{
        struct cg_slice elicit, form = CG_SLICE_NONE, url = CG_SLICE_NONE;

        p->modes = pages;
        if (!forms || cg_json_member(caps, "elicitation", &elicit, NULL) < 0 || !elicit.p)
                return;
        if (cg_json_member(elicit, "form", &form, NULL) < 0 || cg_json_member(elicit, "url", &url, NULL) < 0)
                return;
        p->can_ask = form.p || !url.p;
        p->can_open = url.p && pages;
}

static void read_client(struct cg_mcpd_peer *p, struct cg_slice client)
{
        cg_auto_free char *text = NULL;
        struct cg_slice name;

        if (client.p && cg_json_member(client, "name", &name, NULL) == 0 && name.p &&
            cg_json_strdup(name, &text, NULL) == 0 && strlen(text) < sizeof(p->client))
                snprintf(p->client, sizeof(p->client), "%s", text);
}

static void add_member(struct cg_buf *b, const char *before, const char *text)
{
        cg_buf_adds(b, before);
        cg_json_quote(b, text, strlen(text));
}

/* {"name": ..., "title": ..., "version": ...} */
static void add_server(struct cg_buf *b, const struct cg_mcpd_info *info)
{
        add_member(b, "{\"name\":", info->name);
        add_member(b, ",\"title\":", info->title);
        add_member(b, ",\"version\":", info->version);
        cg_buf_adds(b, "}");
}

static void add_instructions(struct cg_buf *b, const struct cg_mcpd_info *info)
{
        if (info->instructions)
                add_member(b, ",\"instructions\":", info->instructions);
}

/* Answers the request with the text of @result, which may have failed. */
static int answer(struct cg_buf *out, struct cg_slice id, const struct cg_buf *result, struct cg_err *err)
{
        int r = cg_buf_end(result, err);

        if (r < 0)
                return r;
        return cg_rpc_add_result(out, id, result->data, result->len, err);
}

/* @tasks: as an extension of the stateless era. */
static void add_capabilities(struct cg_buf *b, const struct cg_mcpd_info *info, bool tasks)
{
        cg_buf_adds(b, "\"capabilities\":{\"tools\":{\"listChanged\":false}");
        if (info->templates)
                cg_buf_adds(b, ",\"resources\":{}");
        if (info->logs)
                cg_buf_adds(b, ",\"logging\":{}");
        if (tasks)
                cg_buf_adds(b, ",\"extensions\":{\"" CG_MCPD_TASKS "\":{}}");
        cg_buf_adds(b, "}");
}

static int do_initialize(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf result = { .max = CG_MAX_SETTINGS };
        cg_auto_free char *wanted = NULL;
        struct cg_slice version, caps, client;
        size_t i = 0;

        if (cg_json_member(m->params, "protocolVersion", &version, NULL) < 0 ||
            cg_json_strdup(version, &wanted, NULL) < 0)
                return fail(out, m->id, CG_RPC_INVALID_PARAMS,
                            "initialize needs params.protocolVersion, a string", err);
        while (i < CG_ARRAY_LEN(revisions) && strcmp(revisions[i].name, wanted) != 0)
                i++;
        if (i == CG_ARRAY_LEN(revisions))
                i = 0;
        cg_buf_addf(&result, "{\"protocolVersion\":\"%s\",", revisions[i].name);
        add_capabilities(&result, s->info, false);
        cg_buf_adds(&result, ",\"serverInfo\":");
        add_server(&result, s->info);
        add_instructions(&result, s->info);
        cg_buf_adds(&result, "}");
        s->revision = revisions[i].revision;
        s->handshake = (struct cg_mcpd_peer){ 0 };
        if (cg_json_member(m->params, "capabilities", &caps, NULL) == 0 && caps.p)
                read_elicitation(&s->handshake, caps, s->revision >= CG_MCPD_2025_06_18,
                                 s->revision >= CG_MCPD_2025_11_25);
        if (cg_json_member(m->params, "clientInfo", &client, NULL) == 0)
                read_client(&s->handshake, client);
        s->peer = s->handshake;
        return answer(out, m->id, &result, err);
}

/* ---- the other requests */

/* How long a client may keep what does not change: the tools, and what the server can do. */
#define KEEP_MS 60000

int cg_mcpd_answer(const struct cg_mcpd *s, struct cg_slice id, struct cg_buf *result, int ttl_ms,
                   struct cg_buf *out, struct cg_err *err)
{
        if (s->peer.stateless) {
                cg_buf_addf(result,
                            ",\"resultType\":\"complete\",\"ttlMs\":%d,\"cacheScope\":\"private\","
                            "\"_meta\":{\"" META "serverInfo\":",
                            ttl_ms);
                add_server(result, s->info);
                cg_buf_adds(result, "}");
        }
        cg_buf_adds(result, "}");
        return answer(out, id, result, err);
}

/* A list of one page: @name and @items, JSON array text. */
static int do_list(struct cg_mcpd *s, const struct cg_rpc *m, const char *name, const char *items,
                   struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf result = { .max = CG_MAX_SETTINGS };
        struct cg_slice cursor = CG_SLICE_NONE;

        if (m->params.p && cg_json_member(m->params, "cursor", &cursor, NULL) < 0)
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params is no object", err);
        if (cursor.p && !cg_slice_is(cursor, "null"))
                return fail(out, m->id, CG_RPC_INVALID_PARAMS,
                            "there is no such cursor: the list has one page", err);
        cg_buf_addf(&result, "{\"%s\":%s", name, items);
        return cg_mcpd_answer(s, m->id, &result, KEEP_MS, out, err);
}

static int do_call(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_buf *out, cg_mcpd_fn fn, void *data,
                   struct cg_err *err)
{
        struct cg_mcpd_in in = { .kind = CG_MCPD_CALL, .id = m->id, .arguments = { "{}", 2 } };
        struct cg_slice name, args, meta, token = CG_SLICE_NONE;
        cg_auto_free char *text = NULL;
        char why[160];

        if (cg_json_member(m->params, "name", &name, NULL) < 0 ||
            cg_json_member(m->params, "arguments", &args, NULL) < 0 ||
            cg_json_member(m->params, "_meta", &meta, NULL) < 0 || cg_json_strdup(name, &text, NULL) < 0)
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "tools/call needs params with the tool's name",
                            err);
        if (args.p && !cg_slice_is(args, "null"))
                in.arguments = args;
        if (in.arguments.p[0] != '{')
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params.arguments must be an object", err);
        for (size_t i = 0; s->info->tool_names[i] && !in.name; i++)
                if (strcmp(s->info->tool_names[i], text) == 0)
                        in.name = s->info->tool_names[i];
        if (!in.name) {
                snprintf(why, sizeof(why), "there is no tool \"%.100s\"; tools/list tells the names", text);
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, why, err);
        }
        if (meta.p && cg_json_member(meta, "progressToken", &token, NULL) == 0 && cg_mcpd_is_token(token))
                in.progress_token = token;
        if (s->peer.stateless && (cg_json_member(m->params, "requestState", &in.request_state, NULL) < 0 ||
                                  cg_json_member(m->params, "inputResponses", &in.input_responses, NULL) < 0))
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params is no object", err);
        return fn(data, &in, err);
}

int cg_mcpd_no_resource(const struct cg_mcpd *s, const struct cg_mcpd_in *in, const char *why,
                        struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf data = { .max = CG_MAX_BODY };

        cg_buf_addf(&data, "{\"uri\":%.*s}", (int)in->value.len, in->value.p);
        if (cg_buf_end(&data, err) < 0)
                return data.failed;
        return cg_rpc_add_error_data(out, in->id, s->peer.stateless ? CG_RPC_INVALID_PARAMS : NO_RESOURCE,
                                     why, data.data, err);
}

/* resources/list and resources/read, which name @member: a string. */
static int do_resources(const struct cg_rpc *m, enum cg_mcpd_kind kind, const char *member,
                        struct cg_buf *out, cg_mcpd_fn fn, void *data, struct cg_err *err)
{
        struct cg_mcpd_in in = { .kind = kind, .id = m->id };
        char why[80];

        if ((m->params.p && !cg_json_find(m->params, member, &in.value)) || cg_slice_is(in.value, "null"))
                in.value = CG_SLICE_NONE;
        if (in.value.p ? in.value.p[0] == '"' && in.value.len <= MAX_URI : kind == CG_MCPD_RESOURCES)
                return fn(data, &in, err);
        snprintf(why, sizeof(why), "params.%s must be a string of at most %zu bytes", member, MAX_URI);
        return fail(out, m->id, CG_RPC_INVALID_PARAMS, why, err);
}

/* The requests of both eras. */
enum common { LIST_TOOLS, CALL_TOOL, LIST_RESOURCES, LIST_TEMPLATES, READ_RESOURCE, N_COMMON };

static enum common common_of(const struct cg_mcpd *s, const char *method)
{
        static const char *const names[] = { [LIST_TOOLS] = "tools/list",
                                             [CALL_TOOL] = "tools/call",
                                             [LIST_RESOURCES] = "resources/list",
                                             [LIST_TEMPLATES] = "resources/templates/list",
                                             [READ_RESOURCE] = "resources/read" };
        size_t n = s->info->templates ? N_COMMON : LIST_RESOURCES;

        for (size_t i = 0; i < n; i++)
                if (strcmp(names[i], method) == 0)
                        return (enum common)i;
        return N_COMMON;
}

static int do_common(struct cg_mcpd *s, const struct cg_rpc *m, enum common what, struct cg_buf *out,
                     cg_mcpd_fn fn, void *data, struct cg_err *err)
{
        switch (what) {
        case LIST_TOOLS:
                return do_list(s, m, "tools", s->info->tools, out, err);
        case LIST_TEMPLATES:
                return do_list(s, m, "resourceTemplates", s->info->templates, out, err);
        case LIST_RESOURCES:
                return do_resources(m, CG_MCPD_RESOURCES, "cursor", out, fn, data, err);
        case READ_RESOURCE:
                return do_resources(m, CG_MCPD_READ, "uri", out, fn, data, err);
        default:
                return do_call(s, m, out, fn, data, err);
        }
}

/* ---- levels of messages */

static const char *const levels[] = {
        [CG_MCPD_LOG_DEBUG] = "debug",   [CG_MCPD_LOG_INFO] = "info",
        [CG_MCPD_LOG_NOTICE] = "notice", [CG_MCPD_LOG_WARNING] = "warning",
        [CG_MCPD_LOG_ERROR] = "error",   [CG_MCPD_LOG_CRITICAL] = "critical",
        [CG_MCPD_LOG_ALERT] = "alert",   [CG_MCPD_LOG_EMERGENCY] = "emergency"
};

const char *cg_mcpd_level_name(enum cg_mcpd_level level)
{
        return levels[level];
}

/* False: it is no level. */
static bool read_level(struct cg_slice value, enum cg_mcpd_level *ret)
{
        cg_auto_free char *name = NULL;

        if (cg_json_strdup(value, &name, NULL) < 0)
                return false;
        for (size_t i = CG_MCPD_LOG_DEBUG; i < CG_ARRAY_LEN(levels); i++) {
                if (strcmp(levels[i], name) != 0)
                        continue;
                *ret = (enum cg_mcpd_level)i;
                return true;
        }
        return false;
}

#define LEVELS "debug, info, notice, warning, error, critical, alert or emergency"

static int set_level(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_buf *out, struct cg_err *err)
{
        struct cg_slice level;

        if (!m->params.p || !cg_json_find(m->params, "level", &level) ||
            !read_level(level, &s->handshake.log))
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params.level must be " LEVELS, err);
        return cg_rpc_add_result(out, m->id, NULL, 0, err);
}

/* ---- the stateless era */

static int do_discover(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf result = { .max = CG_MAX_SETTINGS };

        cg_buf_adds(&result, "{\"supportedVersions\":[\"" CG_MCPD_STATELESS "\"],");
        add_capabilities(&result, s->info, s->info->tasks);
        add_instructions(&result, s->info);
        return cg_mcpd_answer(s, m->id, &result, KEEP_MS, out, err);
}

static int undeclared_tasks(struct cg_slice id, struct cg_buf *out, struct cg_err *err)
{
        return cg_rpc_add_error_data(
                out, id, CG_MCPD_UNDECLARED, "this is for clients that declare the extension " CG_MCPD_TASKS,
                "{\"requiredCapabilities\":{\"extensions\":{\"" CG_MCPD_TASKS "\":{}}}}", err);
}

static const char *const task_methods[] = { "tasks/get", "tasks/update", "tasks/cancel" };

/* @kind: of the method. */
static int do_task(const struct cg_mcpd *s, const struct cg_rpc *m, enum cg_mcpd_kind kind,
                   struct cg_buf *out, cg_mcpd_fn fn, void *data, struct cg_err *err)
{
        struct cg_mcpd_in in = { .kind = kind, .id = m->id };

        if (!s->peer.tasks)
                return undeclared_tasks(m->id, out, err);
        if (!cg_json_find(m->params, "taskId", &in.value) || in.value.p[0] != '"' || in.value.len > MAX_URI)
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params.taskId must be a string", err);
        if (kind == CG_MCPD_TASK_UPDATE && (!cg_json_find(m->params, "inputResponses", &in.input_responses) ||
                                            in.input_responses.p[0] != '{'))
                return fail(out, m->id, CG_RPC_INVALID_PARAMS, "params.inputResponses must be an object",
                            err);
        return fn(data, &in, err);
}

/* No list can change: the empty set is acknowledged, and stays open. */
static int do_listen(const struct cg_rpc *m, struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf params = { .max = CG_MAX_BODY };

        if (cg_mcpd_wants_undeclared_tasks(m->params))
                return undeclared_tasks(m->id, out, err);
        cg_buf_addf(&params, "{\"_meta\":{\"" META "subscriptionId\":%.*s},\"notifications\":{}}",
                    (int)m->id.len, m->id.p);
        if (cg_buf_end(&params, err) < 0)
                return params.failed;
        return cg_rpc_add_notification(out, "notifications/subscriptions/acknowledged", params.data, err);
}

static int bad_version(const struct cg_rpc *m, struct cg_slice version, struct cg_buf *out,
                       struct cg_err *err)
{
        cg_auto_buf struct cg_buf data = { .max = CG_MAX_BODY };

        if (version.len > CG_MCP_MAX_ID)
                version = (struct cg_slice){ "null", 4 };
        cg_buf_addf(&data, "{\"supported\":[\"" CG_MCPD_STATELESS "\"],\"requested\":%.*s}", (int)version.len,
                    version.p);
        if (cg_buf_end(&data, err) < 0)
                return data.failed;
        return cg_rpc_add_error_data(out, m->id, CG_MCPD_BAD_VERSION,
                                     "this version of the protocol is not supported without a handshake",
                                     data.data, err);
}

/* Handles a request that says itself what its client can do. */
static int do_stateless(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_slice meta, struct cg_buf *out,
                        cg_mcpd_fn fn, void *data, struct cg_err *err)
{
        cg_auto_free char *version = NULL;
        struct cg_slice text = CG_SLICE_NONE, caps = CG_SLICE_NONE, client = CG_SLICE_NONE, level;
        enum common what = common_of(s, m->method);

        if (!cg_json_find(meta, META "protocolVersion", &text) || cg_json_strdup(text, &version, NULL) < 0 ||
            !cg_json_find(meta, META "clientCapabilities", &caps) || caps.p[0] != '{')
                return fail(out, m->id, CG_RPC_INVALID_PARAMS,
                            "params._meta needs " META "protocolVersion, a string, and " META
                            "clientCapabilities, an object",
                            err);
        if (strcmp(version, CG_MCPD_STATELESS) != 0)
                return bad_version(m, text, out, err);
        s->peer = (struct cg_mcpd_peer){ .stateless = true };
        read_elicitation(&s->peer, caps, true, true);
        s->peer.tasks = s->info->tasks && cg_mcpd_declares_tasks(caps);
        if (cg_json_find(meta, META "clientInfo", &client))
                read_client(&s->peer, client);
        if (cg_json_find(meta, META "logLevel", &level) && !read_level(level, &s->peer.log))
                return fail(out, m->id, CG_RPC_INVALID_PARAMS,
                            "params._meta." META "logLevel must be " LEVELS, err);
        if (strcmp(m->method, "server/discover") == 0)
                return do_discover(s, m, out, err);
        if (what != N_COMMON)
                return do_common(s, m, what, out, fn, data, err);
        if (strcmp(m->method, "subscriptions/listen") == 0)
                return do_listen(m, out, err);
        for (unsigned i = 0; s->info->tasks && i < CG_ARRAY_LEN(task_methods); i++)
                if (strcmp(m->method, task_methods[i]) == 0)
                        return do_task(s, m, CG_MCPD_TASK_GET + i, out, fn, data, err);
        return fail(out, m->id, CG_RPC_METHOD_NOT_FOUND, "there is no such method in " CG_MCPD_STATELESS,
                    err);
}

/* ---- messages */

static int do_request(struct cg_mcpd *s, const struct cg_rpc *m, struct cg_buf *out, cg_mcpd_fn fn,
                      void *data, struct cg_err *err)
{
        enum common what = common_of(s, m->method);
        struct cg_slice meta = CG_SLICE_NONE, version;

        if (strcmp(m->method, CG_MCPD_BUSY_METHOD) == 0)
                return fn(data, &(struct cg_mcpd_in){ .kind = CG_MCPD_BUSY, .id = m->id }, err);
        if (m->params.p && !cg_json_find(m->params, "_meta", &meta))
                meta = CG_SLICE_NONE;
        if (strcmp(m->method, "server/discover") == 0 ||
            (meta.p && cg_json_find(meta, META "protocolVersion", &version)))
                return do_stateless(s, m, meta, out, fn, data, err);
        s->peer = s->handshake;
        if (strcmp(m->method, "initialize") == 0)
                return do_initialize(s, m, out, err);
        if (strcmp(m->method, "ping") == 0)
                return cg_rpc_add_result(out, m->id, NULL, 0, err);
        if (what != N_COMMON && s->revision == CG_MCPD_NONE)
                return fail(out, m->id, CG_RPC_INVALID_REQUEST, "not initialized: send initialize first",
                            err);
        if (what != N_COMMON)
                return do_common(s, m, what, out, fn, data, err);
        if (s->info->logs && strcmp(m->method, "logging/setLevel") == 0)
                return set_level(s, m, out, err);
        return fail(out, m->id, CG_RPC_METHOD_NOT_FOUND, "there is no such method here", err);
}

static int do_message(struct cg_mcpd *s, struct cg_slice text, struct cg_buf *out, cg_mcpd_fn fn, void *data,
                      struct cg_err *err)
{
        struct cg_mcpd_in in = { .kind = CG_MCPD_ANSWER };
        struct cg_slice gone;
        struct cg_err why;
        struct cg_rpc m;
        int r = cg_rpc_parse(text, &m, &why);

        if (r == CG_E_PARSE)
                return fail(out, CG_SLICE_NONE, CG_RPC_PARSE_ERROR, why.msg, err);
        if (r < 0)
                return fail(out, CG_SLICE_NONE, CG_RPC_INVALID_REQUEST, why.msg, err);
        if (m.kind == CG_RPC_REQUEST)
                return do_request(s, &m, out, fn, data, err);
        if (m.kind == CG_RPC_NOTIFICATION) {
                in.kind = strcmp(m.method, CG_MCPD_BACK_METHOD) == 0 ? CG_MCPD_BACK : CG_MCPD_CANCEL;
                if ((in.kind == CG_MCPD_CANCEL && strcmp(m.method, "notifications/cancelled") != 0) ||
                    cg_json_member(m.params, "requestId", &in.id, NULL) < 0 || !in.id.p)
                        return 0;
                if (in.kind == CG_MCPD_CANCEL && cg_json_find(m.params, CG_MCPD_GONE, &gone))
                        in.kind = CG_MCPD_GONE_CLIENT;
                return fn(data, &in, err);
        }
        in.id = m.id;
        in.result = m.result;
        in.error = m.error;
        return in.id.p ? fn(data, &in, err) : 0;
}

/* Batches existed in one protocol version only. Each message is answered by itself. */
static int do_batch(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn, void *data,
                    struct cg_err *err)
{
        struct cg_slice value;
        struct cg_json_walk w;
        struct cg_err why;
        int r = cg_json_walk_init(&w, line, '[', &why), handled = 0;

        if (s->revision != CG_MCPD_2025_03_26)
                return fail(out, CG_SLICE_NONE, CG_RPC_INVALID_REQUEST,
                            "batches are not part of this protocol version", err);
        while (r == 0 && handled == 0) {
                r = cg_json_walk_next(&w, NULL, &value, &why);
                if (r == 0)
                        handled = do_message(s, value, out, fn, data, err);
        }
        if (r < 0)
                return fail(out, CG_SLICE_NONE, CG_RPC_PARSE_ERROR, why.msg, err);
        return handled;
}

int cg_mcpd_line(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn, void *data,
                 struct cg_err *err)
{
        line = cg_json_trim(line);
        if (!line.len)
                return 0;
        if (line.p[0] == '[')
                return do_batch(s, line, out, fn, data, err);
        return do_message(s, line, out, fn, data, err);
}

int cg_mcpd_line_too_long(struct cg_buf *out, const char *why, struct cg_err *err)
{
        return fail(out, CG_SLICE_NONE, CG_RPC_INVALID_REQUEST, why, err);
}
