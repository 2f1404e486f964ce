/* libcellgate: sessions, their cells, events and decisions. */
#include "client/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include "base/language.h"
#include "base/proc.h"
#include "base/text.h"
#include "base/user_env.h"
#include "policy/policy.h"

extern char **environ;

#define DEFAULT_START_MS 30000
/* Longest "startTimeout" that the tool server accepts. */
#define MAX_START_S        3600
#define DEFAULT_SERVERS_MS 60000
/* Time for the supervisor to answer after the time limit of the operation itself. */
#define SLACK_MS 5000
/* The host's reading is acknowledged in pieces of this size: well below the window. */
#define CREDIT_BYTES (256u << 10)

/* ------------------------------------------------------------------ events */

static struct cg_event *pop_event(struct cg_session *s)
{
        struct cg_out credit = { .type = CG_HOST_CREDIT, .session = s->number };
        struct cg_event *e = s->events;

        s->events = e->next;
        e->next = NULL;
        if (!s->events)
                s->events_tail = &s->events;
        cg_session_update_fd(s);
        /* An answer is for the question that the host has received last, not for a queued one. */
        if (e->type == CG_EVENT_INPUT_REQUEST) {
                s->input_wanted = true;
                s->input_cell = e->cell;
                s->input_question = e->question;
        } else if ((e->type == CG_EVENT_RESULT || e->type == CG_EVENT_INPUT_CLOSED) && !e->foreign &&
                   e->cell == s->input_cell) {
                s->input_wanted = false;
        }
        s->uncredited += e->cost;
        s->unread -= CG_MIN(s->unread, e->cost);
        if (s->uncredited >= CREDIT_BYTES && !s->closed) {
                credit.id = s->uncredited;
                s->uncredited = 0;
                cg_client_send(s->client, &credit, NULL, NULL);
        }
        return e;
}

/* Remembers what a policy file leaves to the host, which may refuse it. */
static void leave_to_host(struct cg_session *s, uint64_t id, uint64_t key)
{
        pthread_mutex_lock(&s->client->lock);
        for (struct approval *a = s->approvals; a; a = a->next)
                if (a->id == id)
                        a->policy_key = key;
        pthread_mutex_unlock(&s->client->lock);
}

/* True: the session's policy has decided; the host does not get the event. */
static bool decided_by_policy(struct cg_session *s, const struct cg_event *e)
{
        bool connection = e->type == CG_EVENT_EGRESS_REQUEST;
        cg_auto_buf struct cg_buf why = { .max = 30000 };
        uint64_t key;

        if (!s->policy || e->foreign || (!connection && e->type != CG_EVENT_APPROVAL_REQUEST))
                return false;
        switch (cg_session_policy_judge(s->policy, e, &key, &why)) {
        case CG_POL_ALLOW:
                if (connection)
                        cg_egress_decide(s, e->approval, CG_EGRESS_ALLOW_ONCE, NULL, NULL);
                else
                        cg_approval_accept(s, e->approval, NULL);
                return true;
        case CG_POL_DENY:
                if (connection)
                        cg_egress_decide(s, e->approval, CG_EGRESS_DENY_ONCE, why.data, NULL);
                else
                        cg_session_reject(s, e->type, e->approval, why.data ?: "", why.len, NULL);
                return true;
        default:
                leave_to_host(s, e->approval, key);
                return false;
        }
}

static int next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret)
{
        int64_t start = cg_now_ms(), left_ms = timeout_ms;
        int r = CG_TIMEOUT;

        pthread_mutex_lock(&s->client->lock);
        while (left_ms != 0 && !s->events && !s->closed) {
                cg_client_wait_event(s, left_ms);
                if (timeout_ms > 0 && cg_now_ms() - start < timeout_ms)
                        left_ms = timeout_ms - (cg_now_ms() - start);
                else if (timeout_ms > 0)
                        left_ms = 0;
        }
        if (s->events) {
                *ret = pop_event(s);
                r = 0;
        } else if (s->closed) {
                r = CG_CLOSED;
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_session_next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret,
                                 struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms;
        struct cg_event *e;
        int r;

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        while ((r = next_event(s, timeout_ms, &e)) == 0) {
                if (!decided_by_policy(s, e)) {
                        *ret = e;
                        return 0;
                }
                cg_event_free(e);
                if (timeout_ms > 0)
                        timeout_ms = CG_MAX(end - cg_now_ms(), 0);
        }
        return r;
}

CG_API int cg_session_fd(const struct cg_session *s)
{
        return s->event_fd;
}

/* ------------------------------------------------------------------ opening and ending */

static json_t *string_list(const char *const *v)
{
        json_t *a = json_array();

        for (size_t i = 0; v && v[i]; i++) {
                json_t *s = json_string(v[i]);

                if (!s) { /* not UTF-8 */
                        json_decref(a);
                        return NULL;
                }
                json_array_append_new(a, s);
        }
        return a;
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

/* Returns the first entry that is no NAME=VALUE; NULL: there is none. */
static const char *bad_variable(const char *const *env)
{
        for (; env && *env; env++)
                if (!strchr(*env, '=') || **env == '=')
                        return *env;
        return NULL;
}

/* Sets the language and its program, which the host chooses; a node finds its own. */
static int set_language(const struct cg_client *c, json_t *req, const struct cg_session_options *o,
                        struct cg_err *err)
{
        cg_auto_free char *path = NULL;
        int r = cg_language_check(o->language, err);
        const char *given = r > 0 && strcmp(o->language, "node") == 0 ? o->node : NULL;

        if (r <= 0)
                return r;
        if (!c->node && cg_language_find(o->language, given, &path, err) < 0)
                return -1;
        if (set_text(req, "language", o->language) < 0 || set_text(req, "language_path", path ?: given) < 0)
                return cg_fail(err, CG_E_INVAL, "language %s: its program must be UTF-8", o->language);
        return 0;
}

static json_t *session_request(const struct cg_client *c, const struct cg_session_options *o,
                               struct cg_err *err)
{
        cg_auto_json json_t *req = json_object(), *settings = NULL, *exec = NULL;
        cg_auto_free char *workspace = NULL;
        char here[PATH_MAX];
        int r = 0;

        if (bad_variable(o->env)) {
                cg_fail(err, CG_E_INVAL, "environment entry \"%.100s\" is not NAME=VALUE",
                        bad_variable(o->env));
                return NULL;
        }
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
        r |= json_object_set_new(req, "user_env", cg_user_env(environ, getcwd(here, sizeof(here))));
        r |= set_text(req, "working_dir", o->working_dir);
        r |= set_text(req, "front", front_name(o->front));
        r |= set_text(req, "tier", o->tier);
        r |= set_text(req, "audit", o->audit);
        r |= set_text(req, "deciders", o->deciders == CG_DECIDERS_USER ? "user" : NULL);
        r |= set_text(req, "approvers", o->approvers);
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
        return c->node && cg_remote_request(c, o, req, err) < 0 ? NULL : CG_STEAL(req);
}

static void session_release(struct cg_session *s)
{
        while (s->events) {
                struct cg_event *e = s->events;

                s->events = e->next;
                cg_event_free(e);
        }
        while (s->inputs) {
                struct command_input *i = s->inputs;

                s->inputs = i->next;
                free(i);
        }
        while (s->approvals) {
                struct approval *a = s->approvals;

                s->approvals = a->next;
                cg_approval_free(a);
        }
        if (s->event_fd >= 0)
                close(s->event_fd);
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
                return -1;
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
            (cg_session_policy_new(o.policies, files, &policy, err) < 0 ||
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
        return 0;
}

CG_API int cg_session_attach(struct cg_client *c, const char *id, struct cg_session **ret, struct cg_err *err)
{
        json_t *req = json_pack("{s:s}", "id", id);

        if (!req)
                return cg_fail(err, CG_E_INVAL, "a session's id is hexadecimal");
        return open_session(c, CG_HOST_SESSION_ATTACH, req, c->timeout_ms, ret, err);
}

CG_API int cg_client_sessions(struct cg_client *c, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        cg_auto_free char *body = NULL;
        int r = cg_client_request(c, CG_HOST_SESSION_LIST, 0, NULL, c->timeout_ms, NULL, &body, err);

        if (r < 0)
                return r;
        if (cg_json_object(body, strlen(body), "SESSIONS", &o, err) < 0)
                return CG_E_PROTO;
        *ret = cg_json_text(json_object_get(o, "sessions"), NULL);
        return cg_made(*ret, "sessions", err);
}

CG_API struct cg_session *cg_session_free(struct cg_session *s)
{
        struct cg_client *c = s ? s->client : NULL;

        if (!s)
                return NULL;
        if (c && s->number) {
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

        json_object_foreach((json_t *)(uintptr_t)servers, name, def)
        {
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
        if (s->client->node)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "MCP servers would run, with their secrets, on the other machine: not with "
                               "connect. Give the session functions of this host instead");
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
        json_object_foreach(expanded, name, def)
        {
                double own_s = json_number_value(json_object_get(def, "startTimeout"));

                if (own_s > 0 && own_s <= MAX_START_S && own_s * 1000 > (double)longest_ms)
                        longest_ms = (int64_t)(own_s * 1000);
        }
        /* Servers start in parallel: the timeout does not depend on their number. */
        return cg_client_request(s->client, CG_HOST_SERVERS_ADD, s->number,
                                 json_pack("{s:o, s:I}", "servers", expanded, "timeout_ms", (json_int_t)ms),
                                 longest_ms + 6 * SLACK_MS, NULL, ret, err);
}

/* ------------------------------------------------------------------ cells and decisions */

/* Locks and checks that the session lives. */
int cg_session_enter(struct cg_session *s, struct cg_err *err)
{
        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        pthread_mutex_lock(&s->client->lock);
        if (!s->closed)
                return 0;
        pthread_mutex_unlock(&s->client->lock);
        return cg_fail(err, CG_E_CLOSED, "the session has ended");
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

/* Sends a message of the session. Takes @body. */
static int send_message(struct cg_session *s, struct cg_out *out, json_t *body, struct cg_err *err)
{
        int r = cg_session_enter(s, err);

        if (r < 0) {
                json_decref(body);
                return r;
        }
        out->session = s->number;
        r = cg_client_send(s->client, out, body, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

/* Sends a cell or a request. Takes @body. */
static int send_cell(struct cg_session *s, struct cg_out *out, json_t *body, uint64_t *number,
                     struct cg_err *err)
{
        int r = body ? cg_session_enter(s, err) : cg_fail(err, CG_E_INVAL, "a subshell's id must be UTF-8");

        if (r < 0) {
                json_decref(body);
                return r;
        }
        r = cg_session_send_numbered(s, out, body, number, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
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
        body = json_pack("{s:o*, s:o*, s:o*, s:o*, s:o*, s:s*}", "silent", o.silent ? json_true() : NULL,
                         "allow_stdin", o.allow_stdin ? json_true() : NULL, "store_history",
                         o.no_history ? json_false() : NULL, "announce", o.announce ? json_true() : NULL,
                         "artifacts", o.artifacts ? json_true() : NULL, "subshell",
                         o.subshell && *o.subshell ? o.subshell : NULL);
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
        static const char *const types[] = { "complete_request",
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

        return send_message(s, &out, NULL, err);
}

struct approval *cg_session_find_approval(struct cg_session *s, enum cg_event_type type, uint64_t id,
                                          struct cg_err *err)
{
        const char *what = type == CG_EVENT_EGRESS_REQUEST ? "connection" : "call";
        struct approval *a = s->approvals;

        while (a && (a->id != id || a->type != type))
                a = a->next;
        if (!a && type == CG_EVENT_SERVER_REQUEST)
                cg_fail(err, CG_E_NOTFOUND, "no MCP server waits for answer %llu (any more)",
                        (unsigned long long)id);
        else if (!a)
                cg_fail(err, CG_E_NOTFOUND, "no %s waits for decision %llu (any more)", what,
                        (unsigned long long)id);
        return a;
}

/* ------------------------------------------------------------------ commands */

static void add_text(struct cg_buf *b, const char *text)
{
        cg_buf_add(b, text, strlen(text) + 1);
}

/* Returns their number. */
static json_int_t add_texts(struct cg_buf *b, const char *const *list)
{
        json_int_t n = 0;

        for (; list && list[n]; n++)
                add_text(b, list[n]);
        return n;
}

CG_API int cg_session_exec(struct cg_session *s, const struct cg_exec_options *opts, uint64_t *command,
                           struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_EXEC, .has_raw = true };
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_COMMAND_TEXT };
        cg_auto_free struct command_input *input = NULL;
        struct cg_exec_options o = { 0 };
        json_int_t argc, envc;
        json_t *body;
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_exec_options", err) < 0)
                return CG_E_INVAL;
        if (!o.argv || !o.argv[0] || !o.argv[0][0])
                return cg_fail(err, CG_E_INVAL, "a command needs a program");
        if (!o.rows != !o.columns)
                return cg_fail(err, CG_E_INVAL, "a terminal needs rows and columns");
        if (bad_variable(o.env))
                return cg_fail(err, CG_E_INVAL, "environment entry \"%.100s\" is not NAME=VALUE",
                               bad_variable(o.env));
        add_text(&text, o.cwd ?: "");
        argc = add_texts(&text, o.argv);
        envc = add_texts(&text, o.env);
        if (text.failed)
                return cg_fail(err, CG_E_LIMIT,
                               "arguments, variables and folder of a command have more than %u bytes",
                               CG_MAX_COMMAND_TEXT);
        if ((o.input || o.rows) && !(input = calloc(1, sizeof(*input))))
                return cg_fail(err, CG_E_NOMEM, "command");
        out.raw = text.data;
        out.raw_len = text.len;
        body = json_pack("{s:I, s:I, s:I, s:i, s:i, s:b}", "argc", argc, "envc", envc, "timeout_ms",
                         (json_int_t)cg_ms_or(o.timeout_ms, 0), "rows", (int)o.rows, "columns",
                         (int)o.columns, "input", input != NULL);
        r = cg_session_enter(s, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        r = cg_session_send_numbered(s, &out, body, command, err);
        if (r >= 0 && input) {
                input->number = out.id;
                input->next = s->inputs;
                s->inputs = CG_STEAL(input);
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

static struct command_input *input_of(const struct cg_session *s, uint64_t number)
{
        struct command_input *i = s->inputs;

        while (i && i->number != number)
                i = i->next;
        return i;
}

/* Lock held. Waits until something may have changed; not 0: that took too long. */
static int wait_input(struct cg_session *s, int64_t timeout_ms, const struct timespec *end)
{
        if (timeout_ms == 0)
                return ETIMEDOUT;
        if (timeout_ms < 0)
                return pthread_cond_wait(&s->cond, &s->client->lock);
        return pthread_cond_timedwait(&s->cond, &s->client->lock, end);
}

CG_API int cg_command_write(struct cg_session *s, uint64_t command, const void *data, size_t len,
                            int64_t timeout_ms, struct cg_err *err)
{
        struct cg_out out = {
                .type = CG_HOST_COMMAND_INPUT, .id = command, .raw = data, .raw_len = len, .has_raw = true
        };
        struct timespec end = cg_client_deadline(timeout_ms);
        struct command_input *input;
        int r, waited = 0;

        if (len > CG_MAX_COMMAND_INPUT)
                return cg_fail(err, CG_E_LIMIT, "more than %u bytes of input at once", CG_MAX_COMMAND_INPUT);
        r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        while ((input = input_of(s, command)) && !s->closed && !waited &&
               len > CG_MAX_COMMAND_INPUT - input->waiting)
                waited = wait_input(s, timeout_ms, &end);
        out.session = s->number;
        if (!input || s->closed)
                r = cg_fail(err, CG_E_NOTFOUND, "no command %llu with input runs",
                            (unsigned long long)command);
        else if (waited)
                r = CG_TIMEOUT;
        else if ((r = cg_client_send(s->client, &out, NULL, err)) == 0)
                input->waiting += len;
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_command_signal(struct cg_session *s, uint64_t command, int sig, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_CONTROL, .id = command };

        return send_message(s, &out, json_pack("{s:i}", "signal", sig), err);
}

CG_API int cg_command_resize(struct cg_session *s, uint64_t command, uint16_t rows, uint16_t columns,
                             struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_CONTROL, .id = command };

        return send_message(s, &out, json_pack("{s:i, s:i}", "rows", (int)rows, "columns", (int)columns),
                            err);
}

/* ------------------------------------------------------------------ decisions */

int cg_session_send_decision(struct cg_session *s, struct cg_out *out, enum cg_event_type of, json_t *body,
                             struct cg_err *err)
{
        int r = cg_session_enter(s, err);

        if (r < 0) {
                json_decref(body);
                return r;
        }
        if (cg_session_find_approval(s, of, out->id, err)) {
                cg_session_forget_approval(s, out->id);
                out->session = s->number;
                r = cg_client_send(s->client, out, body, err);
        } else {
                json_decref(body);
                r = CG_E_NOTFOUND;
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_approval_share(struct cg_session *s, uint64_t approval, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_APPROVAL_SHARE, .id = approval };
        int r = cg_session_enter(s, err);

        if (r < 0)
                return r;
        out.session = s->number;
        r = CG_E_NOTFOUND;
        if (cg_session_find_approval(s, CG_EVENT_APPROVAL_REQUEST, approval, err) ||
            cg_session_find_approval(s, CG_EVENT_EGRESS_REQUEST, approval, err))
                r = cg_client_send(s->client, &out, NULL, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_approval_accept(struct cg_session *s, uint64_t approval, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_DECISION, .id = approval };
        bool accepted;
        int r;

        if (s->client && s->client->node) {
                r = cg_session_enter(s, err);
                if (r < 0)
                        return r;
                accepted = cg_remote_accept(s, approval);
                pthread_mutex_unlock(&s->client->lock);
                if (accepted)
                        return 0;
        }
        return cg_session_send_decision(s, &out, CG_EVENT_APPROVAL_REQUEST,
                                        json_pack("{s:b, s:s}", "accept", true, "reason", ""), err);
}

static int reject(struct cg_session *s, enum cg_event_type of, uint64_t id, const char *reason, size_t len,
                  bool timed_out, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_DECISION, .id = id };
        json_t *body = json_pack("{s:b, s:b, s:s%}", "accept", false, "timed_out", timed_out, "reason",
                                 reason, CG_MIN(len, 30000));

        if (!body) /* the decision counts also if its reason is not UTF-8 */
                body = json_pack("{s:b, s:b}", "accept", false, "timed_out", timed_out);
        return cg_session_send_decision(s, &out, of, body, err);
}

int cg_session_reject(struct cg_session *s, enum cg_event_type of, uint64_t id, const char *reason,
                      size_t len, struct cg_err *err)
{
        return reject(s, of, id, reason, len, false, err);
}

/* The same call is not asked about again in a session with policy files. */
static void remember_refusal(struct cg_session *s, uint64_t id)
{
        const struct approval *a;
        uint64_t key = 0;

        if (!s->policy || cg_session_enter(s, NULL) < 0)
                return;
        a = cg_session_find_approval(s, CG_EVENT_APPROVAL_REQUEST, id, NULL);
        if (a)
                key = a->policy_key;
        pthread_mutex_unlock(&s->client->lock);
        if (key)
                cg_session_policy_refused(s->policy, key);
}

CG_API int cg_approval_reject(struct cg_session *s, uint64_t approval, const char *reason, struct cg_err *err)
{
        reason = reason ?: "";
        remember_refusal(s, approval);
        return reject(s, CG_EVENT_APPROVAL_REQUEST, approval, reason, strlen(reason), false, err);
}

CG_API int cg_approval_expire(struct cg_session *s, uint64_t approval, const char *reason, struct cg_err *err)
{
        reason = reason ?: "";
        return reject(s, CG_EVENT_APPROVAL_REQUEST, approval, reason, strlen(reason), true, err);
}

CG_API int cg_egress_decide(struct cg_session *s, uint64_t request, enum cg_egress_decision decision,
                            const char *reason, struct cg_err *err)
{
        static const char *const answers[] = { "once", "session", "no", "never" };
        struct cg_out out = { .type = CG_HOST_EGRESS_DECISION, .id = request };
        json_t *body;

        if ((size_t)decision >= CG_ARRAY_LEN(answers))
                return cg_fail(err, CG_E_INVAL, "%d is not a decision about a connection", (int)decision);
        body = json_pack("{s:s, s:s*}", "answer", answers[decision], "reason", reason);
        if (!body) /* the decision counts also if its reason is not UTF-8 */
                body = json_pack("{s:s}", "answer", answers[decision]);
        return cg_session_send_decision(s, &out, CG_EVENT_EGRESS_REQUEST, body, err);
}

static int check_server_answer(struct cg_session *s, uint64_t number, json_t *result, struct cg_err *err)
{
        cg_auto_free char *request = NULL;
        const struct approval *a;
        int r = cg_session_enter(s, err);

        if (r < 0)
                return r;
        a = cg_session_find_approval(s, CG_EVENT_SERVER_REQUEST, number, err);
        request = a ? strdup(a->request) : NULL;
        pthread_mutex_unlock(&s->client->lock);
        if (!a)
                return CG_E_NOTFOUND;
        return request ? cg_server_answer_check(request, result, err) : cg_fail(err, CG_E_NOMEM, "answer");
}

/* @result NULL: declined. */
static int send_server_answer(struct cg_session *s, uint64_t number, json_t *result, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_SERVER_ANSWER, .id = number, .raw = "", .has_raw = true };
        cg_auto_free char *text = NULL;
        int r;

        if (result) {
                r = check_server_answer(s, number, result, err);
                if (r < 0)
                        return r;
                out.raw = text = cg_json_text(result, &out.raw_len);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "answer");
                if (out.raw_len > CG_MAX_BODY)
                        return cg_fail(err, CG_E_LIMIT, "the answer has %zu bytes, over the limit of %u",
                                       out.raw_len, CG_MAX_BODY);
        }
        return cg_session_send_decision(s, &out, CG_EVENT_SERVER_REQUEST,
                                        json_pack("{s:b}", "decline", !result), err);
}

CG_API int cg_server_request_answer(struct cg_session *s, uint64_t number, const char *result,
                                    struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        size_t len = strlen(result);
        int r;

        if (len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "the answer has %zu bytes, over the limit of %u", len,
                               CG_MAX_BODY);
        r = cg_json_object(result, len, "the answer", &o, err);
        return r < 0 ? r : send_server_answer(s, number, o, err);
}

CG_API int cg_server_request_decline(struct cg_session *s, uint64_t number, struct cg_err *err)
{
        return send_server_answer(s, number, NULL, err);
}

CG_API int cg_session_input(struct cg_session *s, const char *text, size_t len, struct cg_err *err)
{
        struct cg_out out = {
                .type = CG_HOST_INPUT_REPLY, .raw = text ?: "", .raw_len = text ? len : 0, .has_raw = true
        };
        int r;

        if (text && len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "the input is longer than %u bytes", CG_MAX_BODY);
        r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        if (!s->input_wanted) {
                r = cg_fail(err, CG_E_STATE, "the cell does not wait for input");
        } else {
                s->input_wanted = false;
                out.session = s->number;
                out.id = s->input_cell;
                r = cg_client_send(s->client, &out,
                                   json_pack("{s:b, s:I}", "eof", text == NULL, "question",
                                             (json_int_t)s->input_question),
                                   err);
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_event_refuse(struct cg_session *s, const struct cg_event *e, const char *reason,
                           struct cg_err *err)
{
        int r = 0;

        reason = reason ?: "";
        switch (e->type) {
        case CG_EVENT_APPROVAL_REQUEST:
        case CG_EVENT_FUNCTION_CALL:
                r = cg_session_reject(s, e->type, e->approval, reason, strlen(reason), err);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                r = cg_egress_decide(s, e->approval, CG_EGRESS_DENY_ONCE, reason, err);
                break;
        case CG_EVENT_SERVER_REQUEST:
                r = cg_server_request_decline(s, e->approval, err);
                break;
        case CG_EVENT_INPUT_REQUEST:
                r = cg_session_input(s, NULL, 0, err);
                break;
        default:
                break;
        }
        return r == CG_E_NOTFOUND || r == CG_E_STATE ? 0 : r;
}
