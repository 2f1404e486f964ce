/* libcellgate: sessions and their cells. */
#include "client/internal.h"

#include <sys/eventfd.h>
#include "base/kernelspecs.h"
#include "base/language.h"
#include "base/text.h"
#include "base/user_env.h"

#define DEFAULT_START_MS 30000
/* Longest "startTimeout" that the tool server accepts. */
#define MAX_START_S        3600
#define DEFAULT_SERVERS_MS 60000
/* Time for the supervisor to answer after the time limit of the operation itself. */
#define SLACK_MS 5000

/* ------------------------------------------------------------------ opening and ending */

static json_t *string_list(const char *const *v)
{
        cg_auto_json json_t *a = json_array();

        for (size_t i = 0; v && v[i]; i++)
                if (json_array_append_new(a, json_string(v[i])) < 0) /* not UTF-8 */
                        return NULL;
        return CG_STEAL(a);
}

static int set_text(json_t *o, const char *key, const char *text)
{
        return text ? json_object_set_new(o, key, json_string(text)) : 0;
}

static const char *front_name(enum cg_front front)
{
        if (front == CG_FRONT_JUPYTER)
                return "jupyter";
        return front == CG_FRONT_MCP ? "mcp" : "";
}

int cg_check_variables(const char *const *env, struct cg_err *err)
{
        for (; env && *env; env++)
                if (!strchr(*env, '=') || **env == '=')
                        return cg_fail(err, CG_E_INVAL, "environment entry \"%.100s\" is not NAME=VALUE",
                                       *env);
        return 0;
}

static int set_language(const struct cg_client *c, json_t *req, const struct cg_session_options *o,
                        struct cg_err *err)
{
        const char *given = NULL, *kernel = cg_language_kernel(o->language);
        cg_auto_json json_t *spec = NULL;
        cg_auto_free char *path = NULL;
        int r = cg_language_check(o->language, err);

        if (r <= 0)
                return r;
        if (kernel && c->node)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "language %s: sessions on another machine have no kernels of Jupyter",
                               o->language);
        if (kernel && cg_kernelspec_find(kernel, &spec, err) < 0)
                return -1;
        if (spec)
                given = cg_json_text_of(spec, "program");
        else if (strcmp(o->language, "node") == 0)
                given = o->node;
        if (!c->node && cg_language_find(o->language, given, &path, err) < 0)
                return -1;
        if (set_text(req, "language", o->language) < 0 || set_text(req, "language_path", path ?: given) < 0 ||
            (spec && json_object_set(req, "language_spec", spec) < 0))
                return cg_fail(err, CG_E_INVAL, "language %s: its program must be UTF-8", o->language);
        return 0;
}

static json_t *session_request(const struct cg_client *c, const struct cg_session_options *o,
                               struct cg_err *err)
{
        cg_auto_json json_t *req = json_object(), *user_env = NULL, *settings = NULL, *exec = NULL;
        cg_auto_free char *workspace = NULL;
        char here[PATH_MAX];
        int r = 0;

        if (cg_check_variables(o->env, err) < 0 ||
            (!c->node && cg_user_env(environ, getcwd(here, sizeof(here)), &user_env, err) < 0))
                return NULL;
        workspace = c->node ? strdup("") : realpath(o->workspace ?: ".", NULL);
        if (!workspace) {
                cg_fail_errno(err, "workspace %s", o->workspace ?: ".");
                return NULL;
        }
        if ((o->deciders == CG_DECIDERS_USER || o->approvers) && !c->found) {
                cg_fail(err, CG_E_UNSUPPORTED,
                        "other clients can decide only in the supervisor that this user's programs share, which is not used here%s%s",
                        c->why_private ? ": " : "", c->why_private ?: "");
                return NULL;
        }
        if (o->settings && strlen(o->settings) > CG_MAX_SETTINGS / 2) {
                cg_fail(err, CG_E_LIMIT, "the sandbox settings are longer than %u bytes",
                        CG_MAX_SETTINGS / 2);
                return NULL;
        }
        if (o->settings &&
            cg_json_object(o->settings, strlen(o->settings), "sandbox settings", &settings, err) < 0)
                return NULL;
        if (o->exec && o->exec[0] == '{' && cg_json_object(o->exec, strlen(o->exec), "exec", &exec, err) < 0)
                return NULL;
        if (set_language(c, req, o, err) < 0)
                return NULL;
        /* Also fails for text that is not UTF-8: json_string() returns NULL. */
        r |= set_text(req, "workspace", workspace);
        if (user_env)
                r |= json_object_set(req, "user_env", user_env);
        r |= set_text(req, "working_dir", o->working_dir);
        r |= set_text(req, "front", front_name(o->front));
        r |= set_text(req, "tier", o->tier);
        r |= set_text(req, "audit", o->audit);
        r |= json_object_set_new(req, "sign_artifacts", json_boolean(o->sign_artifacts));
        r |= set_text(req, "deciders", o->deciders == CG_DECIDERS_USER ? "user" : NULL);
        r |= set_text(req, "approvers", o->approvers);
        r |= set_text(req, "namespace", o->namespace_name);
        if (exec)
                r |= json_object_set(req, "exec", exec);
        else
                r |= set_text(req, "exec", o->exec);
        r |= json_object_set_new(req, "env", string_list(o->env));
        r |= json_object_set_new(req, "python_path", string_list(o->python_path));
        r |= json_object_set_new(req, "hide", string_list(o->hide));
        if (settings)
                r |= json_object_set(req, "settings", settings);
        r |= json_object_set_new(req, "ask_egress", json_boolean(o->ask_egress));
        r |= json_object_set_new(req, "sandbox", json_boolean(o->sandbox != CG_SANDBOX_OFF));
        /* As with a private supervisor; notebooks' kernels are for other clients as well. */
        r |= json_object_set_new(req, "attachable", json_boolean(!c->found || o->front == CG_FRONT_JUPYTER));
        r |= json_object_set_new(req, "color", json_boolean(o->color));
        r |= json_object_set_new(req, "cli_hints", json_boolean(o->cli_hints));
        r |= json_object_set_new(req, "server_requests", json_integer((json_int_t)o->server_requests));
        r |= json_object_set_new(req, "timeout_ms", json_integer(o->timeout_ms));
        r |= json_object_set_new(req, "approval_timeout_ms", json_integer(o->approval_timeout_ms));
#define X(id, field, scale, name, setting, unit, words) \
        r |= json_object_set_new(req, #field, \
                                 json_integer((json_int_t)CG_MIN((uint64_t)o->field, INT64_MAX)));
        CG_LIMITS_TABLE(X)
#undef X
        if (r < 0) {
                cg_fail(err, CG_E_INVAL,
                        "workspace, working_dir, env, exec, python_path and hide must be UTF-8");
                return NULL;
        }
        if (c->node && cg_remote_request(c, o, req, err) < 0)
                return NULL;
        return CG_STEAL(req);
}

static void session_release(struct cg_session *s)
{
        CG_FREE_ALL(s->events, next, cg_event_free);
        CG_FREE_ALL(s->inputs, next, free);
        CG_FREE_ALL(s->approvals, next, cg_approval_free);
        cg_closep_(&s->event_fd);
        cg_session_policy_free(s->policy);
        cg_remote_free(s);
        pthread_cond_destroy(&s->cond);
        free(s->id);
        free(s->info);
        free(s);
}

static struct cg_session *session_alloc(struct cg_client *c)
{
        struct cg_session *s = calloc(1, sizeof(*s));
        pthread_condattr_t attr;

        if (!s)
                return NULL;
        s->client = c;
        s->events_tail = &s->events;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&s->cond, &attr);
        pthread_condattr_destroy(&attr);
        s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (s->event_fd >= 0)
                return s;
        session_release(s);
        return NULL;
}

CG_FREEP(session_freep, struct cg_session *, cg_session_free)

/* Sends the request @type and waits for the session. Takes @req. */
static int open_session(struct cg_client *c, uint16_t type, json_t *req, int64_t timeout_ms,
                        struct cg_session **ret, struct cg_err *err)
{
        CG_CLEANUP(session_freep) struct cg_session *s = session_alloc(c);
        cg_auto_free char *body = NULL;
        cg_auto_json json_t *o = NULL;
        const char *id;
        int r;

        if (!s) {
                json_decref(req);
                return cg_fail(err, CG_E_NOMEM, "session");
        }
        r = cg_client_request(c, type, 0, req, timeout_ms, s, &body, err);
        if (r < 0)
                return r;
        if (cg_json_object(body, strlen(body), "SESSION_OPENED", &o, err) < 0 ||
            cg_json_str(o, "id", "", &id, err) < 0)
                return CG_E_PROTO;
        if (!json_is_object(json_object_get(o, "info")))
                return cg_fail(err, CG_E_PROTO, "SESSION_OPENED has no \"info\"");
        s->id = strdup(id);
        s->info = cg_json_text(json_object_get(o, "info"), NULL);
        if (!s->id || !s->info)
                return cg_fail(err, CG_E_NOMEM, "session");
        *ret = CG_STEAL(s);
        return 0;
}

CG_FREEP(policy_freep, struct session_policy *, cg_session_policy_free)

int cg_take_options(const void *opts, void *to, size_t size, const char *name, struct cg_err *err)
{
        size_t given;

        if (!opts)
                return 0;
        memcpy(&given, opts, sizeof(given));
        if (given < sizeof(given) || given > size)
                return cg_fail(err, CG_E_INVAL, "set opts->size to sizeof(struct %s)", name);
        memcpy(to, opts, given);
        return 0;
}

CG_API int cg_session_new(struct cg_client *c, const struct cg_session_options *opts, struct cg_session **ret,
                          struct cg_err *err)
{
        struct cg_session_options o = { 0 };
        cg_auto_json json_t *files = json_array();
        CG_CLEANUP(policy_freep) struct session_policy *policy = NULL;
        struct cg_err unread = { 0 };
        json_t *req;
        int r;

        err = err ?: &unread;
        if (cg_take_options(opts, &o, sizeof(o), "cg_session_options", err) < 0)
                return CG_E_INVAL;
        if (o.policies && o.policies[0] &&
            (cg_session_policy_new(&o, files, &policy, err) < 0 ||
             cg_session_policy_apply(policy, &o, err) < 0))
                return err->code;
        req = session_request(c, &o, err);
        if (!req)
                return err->code;
        if (policy && !c->node) /* else no cell can write them */
                json_object_set(req, "policy_files", files);
        r = open_session(c, CG_HOST_SESSION_NEW, req, cg_ms_or(o.timeout_ms, DEFAULT_START_MS) + SLACK_MS,
                         ret, err);
        if (r < 0)
                return r;
        (*ret)->policy = CG_STEAL(policy);
        (*ret)->server_requests = o.server_requests;
        if (o.ask_egress)
                (*ret)->ask_s = o.approval_timeout_ms > 0 ? (o.approval_timeout_ms + 999) / 1000
                                                          : 24 * 60 * 60;
        return 0;
}

CG_API int cg_session_attach(struct cg_client *c, const char *id, struct cg_session **ret, struct cg_err *err)
{
        json_t *req = json_pack("{s:s}", "id", id);

        if (!req)
                return cg_fail(err, CG_E_INVAL, "a session's id is hexadecimal");
        return open_session(c, CG_HOST_SESSION_ATTACH, req, c->timeout_ms, ret, err);
}

/* @ret: the array "sessions" of the reply, which errors call @name. */
static int read_sessions(struct cg_client *c, uint16_t type, const char *name, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        cg_auto_free char *body = NULL;
        int r = cg_client_request(c, type, 0, NULL, c->timeout_ms, NULL, &body, err);

        if (r < 0)
                return r;
        if (cg_json_object(body, strlen(body), name, &o, err) < 0)
                return CG_E_PROTO;
        if (!json_is_array(json_object_get(o, "sessions")))
                return cg_fail(err, CG_E_PROTO, "%s has no \"sessions\"", name);
        *ret = cg_json_text(json_object_get(o, "sessions"), NULL);
        return cg_made(*ret, "sessions", err);
}

CG_API int cg_client_jobs(struct cg_client *c, char **ret, struct cg_err *err)
{
        return read_sessions(c, CG_HOST_JOBS_LIST, "JOBS", ret, err);
}

CG_API int cg_client_sessions(struct cg_client *c, char **ret, struct cg_err *err)
{
        return read_sessions(c, CG_HOST_SESSION_LIST, "SESSIONS", ret, err);
}

static int request_by_id(struct cg_client *c, uint16_t type, const char *id, struct cg_err *err)
{
        json_t *body = json_pack("{s:s}", "id", id);

        if (!body)
                return cg_fail(err, CG_E_INVAL, "an id must be UTF-8");
        return cg_client_request(c, type, 0, body, c->timeout_ms, NULL, NULL, err);
}

CG_API int cg_client_session_kill(struct cg_client *c, const char *id, struct cg_err *err)
{
        return request_by_id(c, CG_HOST_SESSION_KILL, id, err);
}

CG_API int cg_client_job_cancel(struct cg_client *c, const char *id, struct cg_err *err)
{
        return request_by_id(c, CG_HOST_JOB_CANCEL, id, err);
}

CG_API struct cg_session *cg_session_free(struct cg_session *s)
{
        struct cg_client *c = s ? s->client : NULL;

        if (!s)
                return NULL;
        if (c && s->number) {
                pthread_mutex_lock(&c->lock);
                if (c->tools)
                        CG_TOOLS_OPS(c)->end(s);
                pthread_mutex_unlock(&c->lock);
                cg_client_request(c, CG_HOST_SESSION_END, s->number, NULL, SLACK_MS, NULL, NULL, NULL);
                pthread_mutex_lock(&c->lock);
                CG_UNLINK(c->sessions, s, next);
                pthread_mutex_unlock(&c->lock);
        }
        session_release(s);
        return NULL;
}

CG_API const char *cg_session_id(const struct cg_session *s)
{
        return s->id;
}

CG_API const char *cg_session_info(const struct cg_session *s)
{
        return s->info;
}

CG_API int cg_session_reset(struct cg_session *s, int64_t timeout_ms, struct cg_err *err)
{
        int64_t ms = cg_ms_or(timeout_ms, DEFAULT_START_MS);

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        return cg_client_request(s->client, CG_HOST_SESSION_RESET, s->number,
                                 json_pack("{s:I}", "timeout_ms", (json_int_t)ms), ms + SLACK_MS, NULL, NULL,
                                 err);
}

/* ------------------------------------------------------------------ MCP servers */

/* A definition that cannot be read becomes {"invalid": reason}: the other servers start. */
static int expand_servers(const struct cg_client *c, const json_t *servers, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *out = json_object();
        char where[CG_MAX_NAME + 32];
        json_t *def, *expanded;
        struct cg_err why;
        const char *name;

        json_object_foreach(cg_json_unconst(servers), name, def) {
                snprintf(where, sizeof(where), "MCP server \"%.200s\"", name);
                if (json_is_object(def)) {
                        expanded = cg_json_expand_server(def, where, &why);
                } else {
                        expanded = NULL;
                        cg_fail(&why, CG_E_INVAL, "%s: its definition must be an object", where);
                }
                if (!expanded)
                        expanded = json_pack("{s:s}", "invalid", why.msg);
                else if (c->shared) /* it has the variables of its starter */
                        json_object_set_new(expanded, "inherit", cg_json_passed_env());
                if (!expanded || json_object_set_new(out, name, expanded) < 0)
                        return cg_fail(err, CG_E_NOMEM, "MCP servers");
        }
        *ret = CG_STEAL(out);
        return 0;
}

CG_API int cg_session_add_mcp_servers(struct cg_session *s, const char *json, size_t len, int64_t timeout_ms,
                                      char **ret, struct cg_err *err)
{
        int64_t ms = cg_ms_or(timeout_ms, DEFAULT_SERVERS_MS);
        cg_auto_json json_t *o = NULL, *servers = NULL;
        json_t *expanded, *def;
        int64_t longest_ms = ms;
        const char *name;
        int r;

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        if (len > CG_MAX_SETTINGS)
                return cg_fail(err, CG_E_LIMIT, "the MCP servers' definitions are longer than %u bytes",
                               CG_MAX_SETTINGS);
        r = cg_json_object(json, len, "the MCP servers' definition", &o, err);
        if (r < 0)
                return r;
        r = cg_json_mcp_servers(o, &servers, err);
        if (r < 0)
                return r;
        r = expand_servers(s->client, servers, &expanded, err);
        if (r < 0)
                return r;
        json_object_foreach(expanded, name, def) {
                double own_s = json_number_value(json_object_get(def, "startTimeout"));

                if (own_s > 0 && own_s <= MAX_START_S && own_s * 1000 > (double)longest_ms)
                        longest_ms = (int64_t)(own_s * 1000);
        }
        /* Servers start in parallel: the timeout does not depend on their number. */
        if (s->client->node)
                return cg_tools_add(s, expanded, ms, longest_ms + 6 * SLACK_MS, ret, err);
        return cg_client_request(s->client, CG_HOST_SERVERS_ADD, s->number,
                                 json_pack("{s:o, s:I}", "servers", expanded, "timeout_ms", (json_int_t)ms),
                                 longest_ms + 6 * SLACK_MS, NULL, ret, err);
}

/* ------------------------------------------------------------------ cells and decisions */

int cg_session_enter_with(struct cg_session *s, json_t *body, struct cg_err *err)
{
        int r = cg_session_enter(s, err);

        if (r < 0)
                json_decref(body);
        return r;
}

/* Locks and checks that the session lives. */
int cg_session_enter(struct cg_session *s, struct cg_err *err)
{
        int r;

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        pthread_mutex_lock(&s->client->lock);
        if (!s->closed)
                return 0;
        r = cg_fail(err, CG_E_CLOSED, "%s",
                    s->client->broken_err.code == CG_E_PROTO ? s->client->broken_err.msg
                                                             : "the session has ended");
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

int cg_session_send_numbered(struct cg_session *s, struct cg_out *out, json_t *body, uint64_t *number,
                             struct cg_err *err)
{
        int r;

        out->session = s->number;
        out->id = s->next_cell + 1;
        r = cg_client_send(s->client, out, body, err);
        if (r != 0)
                return r;
        s->next_cell++;
        if (number)
                *number = out->id;
        return 0;
}

int cg_session_send(struct cg_session *s, struct cg_out *out, json_t *body, struct cg_err *err)
{
        int r = cg_session_enter_with(s, body, err);

        if (r < 0)
                return r;
        out->session = s->number;
        r = cg_client_send(s->client, out, body, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

/* Sends a cell or a request. Takes @body. */
static int send_cell(struct cg_session *s, struct cg_out *out, json_t *body, uint64_t *number,
                     struct cg_err *err)
{
        int r;

        if (!body)
                return cg_fail(err, CG_E_INVAL, "a subshell's id must be UTF-8");
        r = cg_session_enter_with(s, body, err);
        if (r < 0)
                return r;
        r = cg_session_send_numbered(s, out, body, number, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

static json_t *true_if(int on)
{
        return on ? json_true() : NULL;
}

CG_API int cg_session_execute(struct cg_session *s, const char *code, size_t len,
                              const struct cg_execute_options *opts, uint64_t *cell, struct cg_err *err)
{
        struct cg_bytes extra = { "", 0 };
        struct cg_out out = { .type = CG_HOST_EXECUTE,
                              .raw = code,
                              .raw_len = len,
                              .has_raw = true,
                              .more = &extra,
                              .n_more = 1 };
        struct cg_execute_options o = { 0 };
        json_t *body;
        uint32_t c;
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_execute_options", err) < 0)
                return CG_E_INVAL;
        if (len > CG_MAX_CODE)
                return cg_fail(err, CG_E_LIMIT, "the cell has %zu bytes, at most %u are possible", len,
                               CG_MAX_CODE);
        for (size_t i = 0, n; i < len; i += n) {
                n = cg_utf8_next((const unsigned char *)code + i, len - i, &c);
                if (!n)
                        return cg_fail(err, CG_E_INVAL, "the cell is not UTF-8 at byte %zu", i);
        }
        if (o.extra) {
                extra = (struct cg_bytes){ o.extra, strlen(o.extra) };
                if (len + extra.len > CG_MAX_CODE)
                        return cg_fail(err, CG_E_LIMIT,
                                       "cell and extra have %zu bytes, at most %u are possible",
                                       len + extra.len, CG_MAX_CODE);
                r = cg_json_check_object(extra.data, extra.len, CG_JSON_DEPTH, err);
                if (r < 0)
                        return cg_err_prefix(err, "extra"), r;
        }
        /* Without members that have their default: a third less work for the supervisor. */
        body = json_pack("{s:o*, s:o*, s:o*, s:o*, s:o*, s:s*}", "silent", true_if(o.silent), "allow_stdin",
                         true_if(o.allow_stdin), "store_history", o.no_history ? json_false() : NULL,
                         "announce", true_if(o.announce), "artifacts", true_if(o.artifacts), "subshell",
                         cg_text_or(o.subshell, NULL));
        if (body && o.timeout_ms > 0 &&
            json_object_set_new(body, "timeout_ms", json_integer(o.timeout_ms)) < 0) {
                json_decref(body);
                return cg_fail(err, CG_E_NOMEM, "cell");
        }
        return send_cell(s, &out, body, cell, err);
}

CG_API int cg_session_request(struct cg_session *s, const char *type, const char *content, size_t len,
                              const struct cg_request_options *opts, uint64_t *number, struct cg_err *err)
{
        static const char *const types[] = { "kernel_info_request",
                                             "complete_request",
                                             "inspect_request",
                                             "is_complete_request",
                                             "history_request",
                                             "comm_info_request",
                                             "set_variables",
                                             "get_variables",
                                             "comm_open",
                                             "comm_msg",
                                             "comm_close",
                                             "debug_request",
                                             "usage_request",
                                             "create_subshell_request",
                                             "delete_subshell_request",
                                             "list_subshell_request" };
        struct cg_out out = { .type = CG_HOST_REQUEST, .raw = content, .raw_len = len, .has_raw = true };
        struct cg_request_options o = { 0 };
        struct cg_bytes more[CG_MAX_FRAMES];
        size_t total = len;
        bool known = false;
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_request_options", err) < 0)
                return CG_E_INVAL;
        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++)
                known = known || strcmp(types[i], type) == 0;
        if (!known)
                return cg_fail(err, CG_E_INVAL, "\"%.40s\" is not a request that a kernel answers", type);
        if (o.n_buffers > CG_MAX_FRAMES - 3)
                return cg_fail(err, CG_E_LIMIT, "at most %d buffers are possible", CG_MAX_FRAMES - 3);
        for (size_t i = 0; i < o.n_buffers; i++) {
                if (!cg_size_add(total, o.buffers[i].len, &total))
                        total = SIZE_MAX;
                more[i] = (struct cg_bytes){ o.buffers[i].data, o.buffers[i].len };
        }
        if (total > CG_MAX_DISPLAY)
                return cg_fail(err, CG_E_LIMIT, "the request has %zu bytes, at most %u are possible", total,
                               CG_MAX_DISPLAY);
        r = cg_json_check_object(content, len, CG_JSON_DEPTH, err);
        if (r < 0)
                return cg_err_prefix(err, "request"), r;
        out.more = more;
        out.n_more = o.n_buffers;
        return send_cell(s, &out,
                         json_pack("{s:s, s:I, s:s, s:b}", "type", type, "timeout_ms",
                                   (json_int_t)cg_ms_or(o.timeout_ms, 0), "subshell", o.subshell ?: "",
                                   "offer", o.offer != 0),
                         number, err);
}

CG_API int cg_session_cancel(struct cg_session *s, uint64_t cell, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_CANCEL, .id = cell };

        return cg_session_send(s, &out, NULL, err);
}

struct approval *cg_session_find_approval(struct cg_session *s, enum cg_event_type type, uint64_t id,
                                          struct cg_err *err)
{
        struct approval *a = s->approvals;

        while (a && (a->id != id || a->type != type))
                a = a->next;
        if (!a)
                cg_fail(err, CG_E_NOTFOUND, "no %s with number %llu waits (any more)",
                        cg_event_type_name(type), (unsigned long long)id);
        return a;
}

int cg_session_send_decision(struct cg_session *s, struct cg_out *out, enum cg_event_type of, json_t *body,
                             struct cg_err *err)
{
        struct approval *a;
        int r = cg_session_enter_with(s, body, err);

        if (r < 0)
                return r;
        a = cg_session_find_approval(s, of, out->id, err);
        out->session = s->number;
        if (!a) {
                json_decref(body);
                r = CG_E_NOTFOUND;
        } else if (a->asked) {
                r = CG_TOOLS_OPS(s->client)->decided(s, a, out, body, err);
        } else {
                r = cg_client_send(s->client, out, body, err);
                if (r == 0) /* otherwise it can still be decided */
                        cg_session_forget_approval(s, out->id);
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}
