/* Comparison of a call with one rule: see policy.h. The call is a hostile program's. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "policy/internal.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/paths.h"

static bool glob(const char *pattern, const char *text)
{
        return cg_pol_glob(pattern, strlen(pattern), text, strlen(text));
}

/* ---- one value */

/* An integer that a double does not hold is no number here: a server may read it exactly. */
static bool number(struct cg_slice v, double *ret)
{
        char text[64];

        if ((cg_json_kind(v) != '-' && !isdigit((unsigned char)cg_json_kind(v))) || v.len >= sizeof(text))
                return false;
        memcpy(text, v.p, v.len);
        text[v.len] = '\0';
        if (v.len > 15 && !strpbrk(text, ".eE"))
                return false;
        *ret = strtod(text, NULL);
        return isfinite(*ret);
}

static enum cg_pol_match match_if(bool matches)
{
        return matches ? CG_MATCH_YES : CG_MATCH_NO;
}

static enum cg_pol_match is_value(const json_t *want, struct cg_slice v, const struct cg_buf *text)
{
        double n;

        switch (json_typeof(want)) {
        case JSON_STRING:
                if (cg_json_kind(v) != '"')
                        return CG_MATCH_UNCLEAR;
                return match_if(json_string_length(want) == text->len &&
                                memcmp(json_string_value(want), cg_buf_str(text), text->len) == 0);
        case JSON_INTEGER:
        case JSON_REAL:
                if (!number(v, &n))
                        return CG_MATCH_UNCLEAR;
                if (n >= json_number_value(want) && n <= json_number_value(want))
                        return CG_MATCH_YES;
                return CG_MATCH_NO;
        case JSON_NULL:
                return cg_slice_is(v, "null") ? CG_MATCH_YES : CG_MATCH_UNCLEAR;
        default:
                if (cg_json_kind(v) != 't' && cg_json_kind(v) != 'f')
                        return CG_MATCH_UNCLEAR;
                return match_if((cg_json_kind(v) == 't') == json_is_true(want));
        }
}

/* Unclear: the value is equal to none and of the type of none. A server may convert it. */
static enum cg_pol_match is_one_of(const json_t *values, struct cg_slice v, const struct cg_buf *text)
{
        enum cg_pol_match best = CG_MATCH_UNCLEAR;
        const json_t *want;
        size_t i;

        json_array_foreach(values, i, want) {
                enum cg_pol_match m = is_value(want, v, text);

                if (m == CG_MATCH_YES)
                        return m;
                best = m == CG_MATCH_NO ? m : best;
        }
        return best;
}

static enum cg_pol_match regex(const pcre2_code *re, const struct cg_buf *text)
{
        pcre2_match_context *limits = pcre2_match_context_create(NULL);
        pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
        int r = PCRE2_ERROR_NOMEMORY;

        if (limits && data) {
                pcre2_set_match_limit(limits, CG_POL_REGEX_STEPS);
                r = pcre2_match(re, (const unsigned char *)(text->data ?: ""), text->len, 0, 0, data, limits);
        }
        pcre2_match_data_free(data);
        pcre2_match_context_free(limits);
        if (r == PCRE2_ERROR_NOMATCH)
                return CG_MATCH_NO;
        return r >= 0 ? CG_MATCH_YES : CG_MATCH_UNCLEAR;
}

bool cg_pol_normal_path(const char *path, char *ret)
{
        size_t n = 0;

        if (path[0] != '/' || strlen(path) >= PATH_MAX)
                return false;
        for (const char *p = path, *end; *p; p = end) {
                p += strspn(p, "/");
                end = p + strcspn(p, "/");
                if (end - p == 2 && p[0] == '.' && p[1] == '.')
                        return false;
                if (end == p || (end - p == 1 && p[0] == '.'))
                        continue;
                ret[n++] = '/';
                memcpy(ret + n, p, (size_t)(end - p));
                n += (size_t)(end - p);
        }
        if (!n)
                ret[n++] = '/';
        ret[n] = '\0';
        return true;
}

/* Spelling and target must both be below the folder; if only one of them is, that is unclear. */
static enum cg_pol_match within(const char *folder, const struct cg_buf *text)
{
        struct cg_place to = { .n_links = 0 }, top = { .n_links = 0 };
        enum cg_pol_match m = CG_MATCH_UNCLEAR;
        char path[PATH_MAX];
        bool spelled, leads;

        if (!text->len || strlen(text->data) != text->len || !cg_pol_normal_path(text->data, path))
                return CG_MATCH_UNCLEAR;
        spelled = cg_path_within(path, folder);
        if (cg_place_find(path, &to, NULL) == 0 && cg_place_find(folder, &top, NULL) == 0) {
                leads = cg_path_within(to.path, top.path);
                if (spelled == leads)
                        m = match_if(leads);
        }
        cg_place_fini(&to);
        cg_place_fini(&top);
        return m;
}

/* Types count, so 1, 1.0 and "1" differ. What this parser refuses, a server may read as something. */
static enum cg_pol_match exact(const json_t *want, struct cg_slice v)
{
        cg_auto_json json_t *found = NULL;

        if (v.len <= CG_POL_TEXT_MAX)
                found = json_loadb(v.p, v.len, JSON_REJECT_DUPLICATES, NULL);
        if (!found)
                return CG_MATCH_UNCLEAR;
        return match_if(json_equal(want, found));
}

static enum cg_pol_match test(const struct cg_pol_condition *c, struct cg_slice v, bool allows)
{
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_TOOL_ARGS };
        bool is_text = cg_json_kind(v) == '"';
        double n;

        if (c->kind == CG_COND_ARGV)
                return cg_pol_match_argv(c->values, v, allows);
        if (c->kind == CG_COND_EXACT)
                return exact(c->values, v);
        if (c->kind == CG_COND_RANGE) {
                if (!number(v, &n))
                        return CG_MATCH_UNCLEAR;
                return match_if(n >= c->min && n <= c->max);
        }
        if (is_text && cg_json_string(v, &text, NULL) < 0)
                return CG_MATCH_UNCLEAR;
        if (c->kind == CG_COND_ENUM)
                return is_one_of(c->values, v, &text);
        if (!is_text || text.len > CG_POL_TEXT_MAX)
                return CG_MATCH_UNCLEAR;
        if (c->kind == CG_COND_REGEX)
                return regex(c->re, &text);
        if (c->kind == CG_COND_WITHIN)
                return within(c->text, &text);
        return match_if(cg_pol_glob(c->text, strlen(c->text), cg_buf_str(&text), text.len));
}

/* ---- the value at a pointer */

static enum cg_pol_match at(const struct cg_pol_condition *c, struct cg_slice v, char *const *token,
                            bool all);

/* All elements, for a rule that allows; else any of them. An empty array has no value there. */
static enum cg_pol_match elements(const struct cg_pol_condition *c, struct cg_slice v, char *const *token,
                                  bool all)
{
        enum cg_pol_match sum = match_if(all);
        struct cg_json_walk walk;
        struct cg_slice one;
        size_t n = 0, wanted = SIZE_MAX;
        char *end;

        if (strcmp(*token, "*") != 0) {
                wanted = strtoul(*token, &end, 10);
                if (*end || !isdigit((unsigned char)**token))
                        return CG_MATCH_UNCLEAR;
        }
        if (cg_json_walk_init(&walk, v, '[', NULL) < 0)
                return CG_MATCH_UNCLEAR;
        for (; cg_json_walk_next(&walk, NULL, &one, NULL) == 0; n++) {
                enum cg_pol_match m;

                if (wanted != SIZE_MAX && n != wanted)
                        continue;
                m = at(c, one, token + 1, all);
                if (wanted != SIZE_MAX)
                        return m;
                if (all ? m < sum : m > sum)
                        sum = m;
        }
        return wanted == SIZE_MAX && n ? sum : CG_MATCH_NO;
}

static enum cg_pol_match at(const struct cg_pol_condition *c, struct cg_slice v, char *const *token, bool all)
{
        struct cg_slice member;

        if (!*token)
                return test(c, v, all);
        if (cg_json_kind(v) == '[')
                return elements(c, v, token, all);
        if (cg_json_kind(v) != '{' || cg_json_member(v, *token, &member, NULL) < 0)
                return CG_MATCH_UNCLEAR;
        return member.p ? at(c, member, token + 1, all) : CG_MATCH_NO;
}

static struct cg_slice arguments(const struct cg_pol_call *call)
{
        return cg_json_trim((struct cg_slice){ call->args, call->args_len });
}

bool cg_pol_number(const struct cg_pol_condition *sum, const struct cg_pol_call *call, double *ret)
{
        struct cg_slice v = arguments(call);

        for (char *const *token = sum->tokens; *token; token++)
                if (cg_json_member(v, *token, &v, NULL) < 0 || !v.p)
                        return false;
        return number(v, ret) && *ret >= 0;
}

/* ---- the rule */

static enum cg_pol_match result(enum cg_pol_match m, char why[CG_POL_RULE_MAX], const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

static enum cg_pol_match result(enum cg_pol_match m, char why[CG_POL_RULE_MAX], const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, CG_POL_RULE_MAX, fmt, ap);
        va_end(ap);
        return m;
}

static enum cg_pol_match match_program(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                       char why[CG_POL_RULE_MAX])
{
        cg_auto_json json_t *question = json_loadb(call->args, call->args_len, JSON_REJECT_DUPLICATES, NULL);
        char name[CG_EXEC_RULE_NAME];

        if (!json_is_object(question))
                return result(CG_MATCH_UNCLEAR, why, "the program cannot be read");
        cg_exec_rules_judge(rule->exec, question, name);
        if (strcmp(name, "default") == 0)
                return result(CG_MATCH_NO, why, "it is another program");
        return CG_MATCH_YES;
}

static enum cg_pol_match match_connection(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                          char why[CG_POL_RULE_MAX])
{
        cg_auto_json json_t *to = json_loadb(call->args, call->args_len, JSON_REJECT_DUPLICATES, NULL);
        const char *host = json_string_value(json_object_get(to, "host"));
        json_int_t port = json_integer_value(json_object_get(to, "port"));
        char name[256];
        size_t n = 0;

        if (!host || strlen(host) >= sizeof(name) || port < 1 || port > 65535)
                return result(CG_MATCH_UNCLEAR, why, "the host cannot be read");
        for (; host[n]; n++)
                name[n] = (char)tolower((unsigned char)host[n]);
        n -= n > 0 && name[n - 1] == '.';
        if (!cg_pol_glob(rule->host, strlen(rule->host), name, n))
                return result(CG_MATCH_NO, why, "the host is not %.80s", rule->host);
        if (rule->port && rule->port != port)
                return result(CG_MATCH_NO, why, "it is another port");
        return CG_MATCH_YES;
}

static enum cg_pol_match match_call(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                    char why[CG_POL_RULE_MAX])
{
        if (rule->server && !glob(rule->server, call->server))
                return result(CG_MATCH_NO, why, "the server is not %.80s", rule->server);
        if (rule->method && strcmp(rule->method, call->method) != 0)
                return result(CG_MATCH_NO, why, "the method is not %.80s", rule->method);
        if (rule->tool && strcmp(call->method, CG_METHOD_CALL) != 0)
                return result(CG_MATCH_NO, why, "it calls no tool");
        if (rule->tool && !glob(rule->tool, call->tool))
                return result(CG_MATCH_NO, why, "the tool is not %.80s", rule->tool);
        return CG_MATCH_YES;
}

bool cg_pol_has_front(const json_t *fronts, const char *front)
{
        const json_t *v;
        size_t i;

        json_array_foreach(fronts, i, v)
                if (strcmp(json_string_value(v), front) == 0)
                        return true;
        return !fronts;
}

/* A pattern of a text also matches a shell's line that goes on: "cat *" matches "cat x; id". */
static bool is_line(const struct cg_pol_condition *c, const struct cg_pol_call *call)
{
        cg_auto_json json_t *args = NULL, *words = NULL;
        const char *line;

        if ((c->kind != CG_COND_GLOB && c->kind != CG_COND_REGEX) || strcmp(c->pointer, "/command") != 0 ||
            !cg_pol_is_host_exec(call))
                return false;
        args = json_loadb(call->args, call->args_len, 0, NULL);
        line = json_string_value(json_object_get(args, "command"));
        words = line ? cg_pol_words(line, false) : NULL;
        return !words;
}

static enum cg_pol_match match_conditions(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                          char why[CG_POL_RULE_MAX])
{
        enum cg_pol_match sum = CG_MATCH_YES;

        for (size_t i = 0; i < rule->n_conditions; i++) {
                const struct cg_pol_condition *c = &rule->conditions[i];
                bool allows = rule->decision == CG_POL_ALLOW;
                enum cg_pol_match m = at(c, arguments(call), c->tokens, allows);

                if (m == CG_MATCH_YES && allows && is_line(c, call))
                        m = CG_MATCH_UNCLEAR;
                if (m == CG_MATCH_NO)
                        return result(m, why, "the argument %.80s does not fit", c->pointer);
                if (m == CG_MATCH_UNCLEAR)
                        sum = result(m, why, "the argument %.80s cannot be judged", c->pointer);
        }
        return sum;
}

bool cg_pol_is_mcp(const char *method)
{
        return strcmp(method, CG_METHOD_CALL) == 0 || strcmp(method, CG_METHOD_READ) == 0 ||
               strcmp(method, CG_METHOD_GET) == 0;
}

enum cg_pol_match cg_pol_matches(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                 bool unreadable, char why[CG_POL_RULE_MAX])
{
        bool exec = strcmp(call->method, CG_METHOD_EXEC) == 0,
             connect = strcmp(call->method, CG_METHOD_CONNECT) == 0;
        enum cg_pol_match m;

        if (exec != (rule->exec != NULL) || connect != (rule->host != NULL) ||
            cg_pol_is_mcp(call->method) != (!rule->exec && !rule->host))
                return result(CG_MATCH_NO, why, "it is about something else");
        if (!cg_pol_has_front(rule->fronts, call->front))
                return result(CG_MATCH_NO, why, "it is for another front");
        if (rule->client && (!call->client || !glob(rule->client, call->client)))
                return result(CG_MATCH_NO, why, "it is for another client");
        if (rule->session && !glob(rule->session, call->session ?: "default"))
                return result(CG_MATCH_NO, why, "it is for other sessions");
        if (rule->until_s && call->time_s >= rule->until_s)
                return result(CG_MATCH_NO, why, "its time is over");
        if (rule->granted &&
            (rule->grant == CG_GRANT_ONCE ||
             (rule->grant == CG_GRANT_CELL && (rule->granted_cell != call->cell || !call->cell))))
                return result(CG_MATCH_NO, why, "it has been used");
        if (exec)
                return match_program(rule, call, why);
        if (connect)
                return match_connection(rule, call, why);
        m = match_call(rule, call, why);
        if (m != CG_MATCH_YES)
                return m;
        if (unreadable && (rule->n_conditions || rule->decision == CG_POL_ALLOW))
                return result(CG_MATCH_UNCLEAR, why, "the arguments cannot be read");
        return match_conditions(rule, call, why);
}
