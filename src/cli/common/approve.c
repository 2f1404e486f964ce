/* Approval rules. Runs in the command `cellgate`. */
#include "cli/common/approve.h"

#include <time.h>
#include "base/json.h"
#include "base/text.h"

/* Far more than anybody writes; limits the memory of a script that generates rules by mistake. */
#define MAX_RULES 10000

struct rule {
        char *text;         /* as it was given, or SERVER of an always rule */
        char *tool;         /* always rule: the tool; else NULL */
        const char *method; /* always rule; else of SERVER:METHOD, or NULL */
        bool deny;
};

struct cg_approve {
        struct rule *rules;
        size_t n;
        bool base_given, lax, mute;
        enum cg_approve_answer base, def;
        struct cg_pol *policy;
        const char *front, *namespace;
        uint64_t session;          /* number of the one that is open */
        uint64_t last_session;     /* of all copies */
        struct cg_approve *origin; /* of a copy; else NULL */
        bool host_is_ours;         /* the server "host" is the one of docs/host-web.md */
        json_t *granted;           /* patterns of programs of the host; NULL: none */
        json_t *same, *ruled;      /* server, method, tool and arguments of calls; NULL: none */
};

int cg_approve_new(struct cg_approve **ret, struct cg_err *err)
{
        struct cg_approve *a = calloc(1, sizeof(*a));

        if (!a || cg_pol_new(&a->policy, err) < 0) {
                free(a);
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        }
        a->front = "run";
        *ret = a;
        return 0;
}

struct cg_approve *cg_approve_free(struct cg_approve *a)
{
        if (!a)
                return NULL;
        for (size_t i = 0; i < a->n; i++) {
                free(a->rules[i].text);
                free(a->rules[i].tool);
        }
        free(a->rules);
        json_decref(a->granted);
        json_decref(a->same);
        json_decref(a->ruled);
        if (!a->origin)
                cg_pol_free(a->policy);
        free(a);
        return NULL;
}

/* The method with this name in a rule. NULL: rules cannot name it. */
static const char *method_of(const char *name)
{
        static const char *const methods[] = { CG_METHOD_CALL, CG_METHOD_READ, CG_METHOD_GET,
                                               CG_METHOD_EXEC };

        for (size_t i = 0; i < CG_ARRAY_LEN(methods); i++)
                if (strcmp(methods[i], name) == 0)
                        return methods[i];
        return NULL;
}

static bool is_call(const char *method)
{
        return strcmp(method, CG_METHOD_CALL) == 0;
}

/* The end of the pattern of servers: their names have no dot (cg_mcp_check_name()), tools' may. */
static const char *pattern_end(const struct rule *r)
{
        return r->method ? strrchr(r->text, ':') : strchr(r->text, '.');
}

static int push(struct cg_approve *a, const char *text, const char *method, const char *tool, bool deny,
                struct cg_err *err)
{
        struct rule r = { .method = method, .deny = deny };
        struct rule *grown;

        if (a->n >= MAX_RULES)
                return cg_fail(err, CG_E_LIMIT, "more than %d approval rules", MAX_RULES);
        grown = realloc(a->rules, (a->n + 1) * sizeof(*grown));
        if (grown)
                a->rules = grown;
        r.text = strdup(text);
        r.tool = cg_strdup(tool);
        if (!grown || !r.text || (tool && !r.tool)) {
                free(r.text);
                free(r.tool);
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        }
        a->rules[a->n++] = r;
        return 0;
}

int cg_approve_copy(struct cg_approve *a, struct cg_approve **ret, struct cg_err *err)
{
        struct cg_approve *copy = malloc(sizeof(*copy));

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        *copy = *a;
        copy->origin = a;
        copy->rules = NULL;
        copy->n = 0;
        for (size_t i = 0; i < a->n; i++) {
                const struct rule *r = &a->rules[i];

                if (push(copy, r->text, r->method, r->tool, r->deny, err) < 0) {
                        cg_approve_free(copy);
                        return -1;
                }
        }
        *ret = copy;
        return 0;
}

int cg_approve_add(struct cg_approve *a, const char *rule, struct cg_err *err)
{
        const char *pattern = rule[0] == '!' ? rule + 1 : rule;
        const char *dot = strchr(pattern, '.'), *colon = strrchr(pattern, ':'), *method;
        static const char *const words[] = {
                [CG_APPROVE_REFUSE] = "none", [CG_APPROVE_ACCEPT] = "all", [CG_APPROVE_ASK] = "ask"
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(words); i++) {
                if (strcmp(rule, words[i]) != 0)
                        continue;
                if (a->base_given && a->base != (enum cg_approve_answer)i)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "approval rule \"%s\" contradicts an earlier one: give one of ask, none and all",
                                rule);
                a->base_given = true;
                a->base = (enum cg_approve_answer)i;
                return 0;
        }
        /*
         * "filesystem" alone could mean a server or a tool: a rule about approvals must not be
         * guessed at.
         */
        method = !dot && colon && colon != pattern ? method_of(colon + 1) : NULL;
        if (method && !is_call(method) && strcmp(method, CG_METHOD_EXEC) != 0)
                return push(a, rule, method, NULL, rule[0] == '!', err);
        if (!dot || dot == pattern || !dot[1])
                return cg_fail(err, CG_E_INVAL,
                               "approval rule \"%s\" is neither ask, none, all nor SERVER.TOOL such as "
                               "filesystem.read_* or !filesystem.*, nor SERVER:" CG_METHOD_READ
                               " or SERVER:" CG_METHOD_GET,
                               rule);
        return push(a, rule, NULL, NULL, rule[0] == '!', err);
}

void cg_approve_set_default(struct cg_approve *a, enum cg_approve_answer def)
{
        a->def = def;
        if (!a->base_given)
                a->base = def;
}

enum cg_approve_answer cg_approve_base(const struct cg_approve *a)
{
        return a->base;
}

bool cg_approve_rule(const struct cg_approve *a, size_t i, struct cg_approve_parts *ret)
{
        const struct rule *r;
        const char *end;

        if (i >= a->n || a->rules[i].tool) /* those of cg_approve_always() come later */
                return false;
        r = &a->rules[i];
        *ret = (struct cg_approve_parts){
                .text = r->text, .deny = r->deny, .server = r->text + r->deny, .method = r->method
        };
        end = pattern_end(r);
        ret->server_len = (size_t)(end - ret->server);
        ret->tools = r->method ? NULL : end + 1;
        return true;
}

void cg_approve_set_lax(struct cg_approve *a)
{
        a->lax = true;
}

bool cg_approve_is_lax(const struct cg_approve *a)
{
        return a->lax;
}

bool cg_approve_may_last(const char *method, const char *tool)
{
        cg_auto_json json_t *question = NULL;

        return strcmp(method, CG_METHOD_EXEC) != 0 ||
               (cg_json_object(tool, strlen(tool), "question", &question, NULL) == 0 &&
                json_is_false(json_object_get(question, "writable")));
}

int cg_approve_always(struct cg_approve *a, const char *server, const char *method, const char *tool,
                      struct cg_err *err)
{
        const char *known = method_of(method);

        if (!known)
                return cg_fail(err, CG_E_INVAL, "approval rules know no method \"%s\"", method);
        if (!cg_approve_may_last(method, tool))
                return cg_fail(err, CG_E_INVAL, "cells can change this program: it is asked about each time");
        return push(a, server, known, tool, false, err);
}

static json_t *call_names(const struct cg_pol_call *call)
{
        return json_pack("[s, s, s, s%]", call->server, call->method, call->tool, call->args, call->args_len);
}

static int remember(json_t **calls, const struct cg_pol_call *call, struct cg_err *err)
{
        *calls = *calls ?: json_array();
        if (json_array_size(*calls) >= MAX_RULES || json_array_append_new(*calls, call_names(call)) < 0)
                return cg_fail(err, CG_E_LIMIT, "this call cannot be accepted for later");
        return 0;
}

int cg_approve_always_same(struct cg_approve *a, const struct cg_pol_call *call, struct cg_err *err)
{
        return remember(&a->same, call, err);
}

int cg_approve_ruled(struct cg_approve *a, const struct cg_pol_call *call, struct cg_err *err)
{
        return remember(&a->ruled, call, err);
}

bool cg_approve_has_arguments(const char *method)
{
        return strcmp(method, CG_METHOD_EXEC) != 0;
}

static bool is_one_of(const json_t *calls, const struct cg_pol_call *call)
{
        cg_auto_json json_t *names = calls ? call_names(call) : NULL;
        const json_t *accepted;
        size_t i;

        json_array_foreach(calls, i, accepted)
                if (names && json_equal(accepted, names))
                        return true;
        return false;
}

void cg_approve_forget(struct cg_approve *a, const char *server)
{
        size_t n = 0;

        for (size_t i = json_array_size(a->same); i-- > 0;)
                if (strcmp(json_string_value(json_array_get(json_array_get(a->same, i), 0)), server) == 0)
                        json_array_remove(a->same, i);

        for (size_t i = 0; i < a->n; i++) {
                if (a->rules[i].tool && strcmp(a->rules[i].text, server) == 0) {
                        free(a->rules[i].text);
                        free(a->rules[i].tool);
                } else {
                        a->rules[n++] = a->rules[i];
                }
        }
        a->n = n;
        if (strcmp(server, "host") == 0) {
                a->host_is_ours = false;
                json_decref(CG_STEAL(a->granted));
        }
}

static bool matches(const struct rule *r, const char *server, const char *method, const char *tool)
{
        const char *pattern = r->text + r->deny, *end = pattern_end(r), *tools;

        if (r->tool)
                return strcmp(r->text, server) == 0 && strcmp(r->method, method) == 0 &&
                       strcmp(r->tool, tool) == 0;
        if (!end || !cg_pol_glob(pattern, (size_t)(end - pattern), server, strlen(server)))
                return false;
        tools = end + 1;
        if (r->method)
                return strcmp(r->method, method) == 0;
        if (is_call(method))
                return cg_pol_glob(tools, strlen(tools), tool, strlen(tool));
        /* A rule about tools accepts nothing else; one that refuses all tools refuses all else. */
        return r->deny && strchr(tools, '*') && tools[strspn(tools, "*?")] == '\0';
}

enum cg_approve_answer cg_approve_decide(const struct cg_approve *a, const char *server, const char *method,
                                         const char *tool, const char **rule)
{
        const struct rule *accepting = NULL;

        if (rule)
                *rule = NULL;
        for (size_t i = 0; i < a->n; i++) {
                const struct rule *r = &a->rules[i];

                if (!matches(r, server, method, tool))
                        continue;
                if (r->deny) {
                        if (rule)
                                *rule = r->text;
                        return CG_APPROVE_REFUSE;
                }
                accepting = accepting ?: r;
        }
        if (!accepting && a->base == CG_APPROVE_ACCEPT && !cg_pol_is_mcp(method))
                return a->def == CG_APPROVE_ASK ? CG_APPROVE_ASK : CG_APPROVE_REFUSE;
        if (!accepting)
                return a->base;
        if (rule)
                *rule = accepting->tool ? "always" : accepting->text;
        return CG_APPROVE_ACCEPT;
}

/* ---- policy files */

struct cg_pol *cg_approve_policy(const struct cg_approve *a)
{
        return a->policy;
}

void cg_approve_set_front(struct cg_approve *a, const char *front)
{
        a->front = front;
}

void cg_approve_set_namespace(struct cg_approve *a, const char *name)
{
        a->namespace = name;
}

void cg_approve_new_session(struct cg_approve *a)
{
        a->session = ++(a->origin ?: a)->last_session;
        json_decref(CG_STEAL(a->granted));
}

void cg_approve_set_mute(struct cg_approve *a, bool mute)
{
        a->mute = mute;
}

/* Numbers of cells begin again in each session. */
struct cg_pol_call cg_approve_complete(const struct cg_approve *a, const struct cg_pol_call *call)
{
        struct cg_pol_call c = *call;

        c.front = a->front;
        c.session = a->namespace;
        if (c.cell)
                c.cell |= a->session << 32;
        c.time_s = time(NULL);
        c.now_ms = cg_now_ms();
        return c;
}

void cg_approve_set_servers(struct cg_approve *a, const json_t *file, const char *cellgate)
{
        static const char *const own[] = { "mcp", "serve", "--compat", "host" };
        cg_auto_json json_t *servers = NULL;
        const json_t *host, *args;
        const char *command;
        size_t n = 0;

        a->host_is_ours = false;
        if (cg_json_mcp_servers(file, &servers, NULL) < 0)
                return;
        host = json_object_get(servers, "host");
        args = json_object_get(host, "args");
        command = json_string_value(json_object_get(host, "command")) ?: "";
        while (n < CG_ARRAY_LEN(own) && strcmp(json_string_value(json_array_get(args, n)) ?: "", own[n]) == 0)
                n++;
        /* mcp serve gives the installed one variables; by its name, only without any (PATH). */
        a->host_is_ours = n == CG_ARRAY_LEN(own) &&
                          (strcmp(command, cellgate) == 0 ||
                           (strcmp(command, "cellgate") == 0 && !json_object_get(host, "env")));
}

void cg_approve_accepted(struct cg_approve *a, const struct cg_pol_call *call)
{
        cg_auto_json json_t *args = NULL;

        if (!a->host_is_ours || strcmp(call->server, "host") != 0 ||
            strcmp(call->tool, "request_host_access") != 0)
                return;
        args = json_loadb(call->args, call->args_len, JSON_REJECT_DUPLICATES, NULL);
        a->granted = a->granted ?: json_array();
        json_array_append(a->granted, json_object_get(args, "pattern")); /* failed: asked again */
}

static bool is_granted(const struct cg_approve *a, const struct cg_pol_call *call)
{
        const json_t *pattern;
        size_t i;

        json_array_foreach(a->granted, i, pattern) {
                if (json_is_string(pattern) && cg_pol_granted(json_string_value(pattern), call))
                        return true;
        }
        return false;
}

enum cg_approve_answer cg_approve_judge(struct cg_approve *a, const struct cg_pol_call *call,
                                        struct cg_approve_verdict *v)
{
        static const enum cg_pol_decision given[] = { [CG_APPROVE_REFUSE] = CG_POL_DENY,
                                                      [CG_APPROVE_ACCEPT] = CG_POL_ALLOW,
                                                      [CG_APPROVE_ASK] = CG_POL_ASK };
        static const enum cg_approve_answer answers[] = { [CG_POL_NONE] = CG_APPROVE_REFUSE,
                                                          [CG_POL_ALLOW] = CG_APPROVE_ACCEPT,
                                                          [CG_POL_ASK] = CG_APPROVE_ASK,
                                                          [CG_POL_DENY] = CG_APPROVE_REFUSE };
        struct cg_pol_call c = cg_approve_complete(a, call);
        enum cg_approve_answer own = CG_APPROVE_ASK; /* connections: the front decides */

        *v = (struct cg_approve_verdict){ .rule = NULL };
        if (strcmp(c.method, CG_METHOD_CONNECT) != 0)
                own = cg_approve_decide(a, c.server, c.method, c.tool, &v->rule);
        if (own == CG_APPROVE_ASK && is_one_of(a->same, &c)) {
                own = CG_APPROVE_ACCEPT;
                v->rule = "always, with the same arguments";
        }
        if (own == CG_APPROVE_ASK && is_granted(a, &c)) {
                own = CG_APPROVE_ACCEPT;
                v->rule = "request_host_access";
        }
        v->policy.decision = given[own];
        /* Only a pattern refuses what a file allows. */
        cg_pol_decide(a->policy, &c, own == CG_APPROVE_REFUSE && v->rule, &v->policy, NULL);
        if (v->policy.decision == CG_POL_ASK && is_one_of(a->ruled, &c)) {
                v->policy = (struct cg_pol_verdict){ .decision = CG_POL_ALLOW };
                v->rule = "added at a question";
        }
        if (v->policy.decision == CG_POL_ASK && a->mute && v->policy.rule[0]) {
                v->mute = true;
                v->policy.decision = CG_POL_DENY;
        }
        return answers[v->policy.decision];
}

void cg_approve_refused(struct cg_approve *a, const struct cg_pol_call *call)
{
        struct cg_pol_call c = cg_approve_complete(a, call);

        if (!cg_pol_is_empty(a->policy))
                cg_pol_refuse(a->policy, cg_pol_key(&c));
}

void cg_approve_explain_verdict(struct cg_buf *b, const struct cg_pol_call *call,
                                const struct cg_approve_verdict *v, cg_approve_explain_fn by_rule)
{
        if (!v->policy.rule[0] && v->policy.decision == CG_POL_ALLOW)
                cg_buf_addf(b, "rule %s", v->rule ?: "all");
        else if (!v->policy.rule[0])
                by_rule(b, call->server, call->method, call->tool, v->rule);
        cg_buf_fail(b, cg_pol_explain(b, &v->policy, v->mute, NULL));
}

bool cg_approve_is_plain(const char *s)
{
        return *s &&
               strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == strlen(s);
}

void cg_approve_name(struct cg_buf *b, const char *server, const char *method, const char *tool)
{
        cg_auto_json json_t *question = NULL;
        const char *command = NULL;

        if (strcmp(method, CG_METHOD_EXEC) == 0) {
                if (cg_json_object(tool, strlen(tool), "question", &question, NULL) == 0)
                        command = json_string_value(json_object_get(question, "command"));
                command = command ?: "a program";
                cg_text_render_as(b, command, strlen(command), 2048, CG_TEXT_LINE);
                return;
        }
        cg_text_render_as(b, server, strlen(server), 0, CG_TEXT_LINE);
        if (is_call(method)) {
                cg_buf_adds(b, ".");
                cg_text_render_as(b, tool, strlen(tool), 0, CG_TEXT_LINE);
        } else {
                cg_buf_addf(b, ":%s", method);
        }
}

void cg_approve_explain(struct cg_buf *b, const char *server, const char *method, const char *tool,
                        const char *rule)
{
        if (rule) {
                cg_buf_adds(b, "refused by the approval rule ");
                cg_text_render(b, rule, strlen(rule), 0);
                return;
        }
        cg_buf_adds(b, "no approval rule allows ");
        cg_approve_name(b, server, method, tool);
        if (strcmp(method, CG_METHOD_EXEC) == 0)
                cg_buf_adds(b, " (--approve ask would ask; --exec allow lets cells start all programs)");
        else if (!cg_approve_is_plain(server))
                return;
        else if (!is_call(method))
                cg_buf_addf(b, " (--approve %s:%s would)", server, method);
        else if (cg_approve_is_plain(tool))
                cg_buf_addf(b, " (--approve %s.%s would)", server, tool);
}
