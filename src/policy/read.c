/* Reads policy files: see policy.h. Each error names the place as a JSON pointer. */
#include <math.h>
#include <stdarg.h>
#include <time.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "base/text.h"
#include "policy/internal.h"
#include "sandbox/settings/exec_rules.h"

struct policy_reader {
        struct cg_pol_file *file;
        char at[256]; /* JSON pointer */
        struct cg_err *err;
};

static int fail(struct policy_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int fail(struct policy_reader *r, const char *fmt, ...)
{
        char why[512];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, sizeof(why), fmt, ap);
        va_end(ap);
        return cg_fail(r->err, CG_E_PARSE, "%s: %s%s%s", r->file->name, r->at, r->at[0] ? ": " : "", why);
}

/* Appends a part to the pointer; the result goes to leave(). */
static size_t enter(struct policy_reader *r, const char *key)
{
        size_t n = strlen(r->at);

        snprintf(r->at + n, sizeof(r->at) - n, "/%.80s", key);
        return n;
}

static void leave(struct policy_reader *r, size_t n)
{
        r->at[n] = '\0';
}

/* ---- keys */

enum where { IN_FILE = 1, IN_RULE = 2, IN_BUDGET = 4, IN_CONDITION = 8 };

static const struct key {
        const char *name;
        json_type
                type; /* JSON_NULL: the key's reader checks it; JSON_REAL: any number; JSON_TRUE: a boolean */
        unsigned where;
} keys[] = {
        { "rules", JSON_ARRAY, IN_FILE },
        { "budgets", JSON_ARRAY, IN_FILE },
        { "default", JSON_STRING, IN_FILE },
        { "cells_per_minute", JSON_INTEGER, IN_FILE },
        { "$schema", JSON_STRING, IN_FILE },
        { "description", JSON_STRING, IN_FILE | IN_RULE | IN_BUDGET },
        { "id", JSON_STRING, IN_RULE | IN_BUDGET },
        { "decision", JSON_STRING, IN_RULE },
        { "text", JSON_STRING, IN_RULE | IN_BUDGET },
        { "server", JSON_STRING, IN_RULE | IN_BUDGET },
        { "tool", JSON_STRING, IN_RULE | IN_BUDGET },
        { "method", JSON_STRING, IN_RULE | IN_BUDGET },
        { "arguments", JSON_OBJECT, IN_RULE | IN_BUDGET },
        { "host", JSON_STRING, IN_RULE | IN_BUDGET },
        { "port", JSON_INTEGER, IN_RULE | IN_BUDGET },
        { "program", JSON_STRING, IN_RULE | IN_BUDGET },
        { "argv", JSON_ARRAY, IN_RULE | IN_BUDGET | IN_CONDITION },
        { "more", JSON_TRUE, IN_RULE | IN_BUDGET },
        { "line", JSON_NULL, IN_RULE | IN_BUDGET },
        { "env", JSON_ARRAY, IN_RULE },
        { "writable", JSON_TRUE, IN_RULE },
        { "front", JSON_ARRAY, IN_RULE | IN_BUDGET },
        { "client", JSON_STRING, IN_RULE | IN_BUDGET },
        { "session", JSON_STRING, IN_RULE | IN_BUDGET },
        { "for", JSON_STRING, IN_RULE },
        { "until", JSON_STRING, IN_RULE },
        { "per", JSON_STRING, IN_BUDGET },
        { "calls", JSON_INTEGER, IN_BUDGET },
        { "sum", JSON_STRING, IN_BUDGET },
        { "max", JSON_REAL, IN_BUDGET | IN_CONDITION },
        { "min", JSON_REAL, IN_CONDITION },
        { "equals", JSON_NULL, IN_CONDITION },
        { "enum", JSON_ARRAY, IN_CONDITION },
        { "glob", JSON_STRING, IN_CONDITION },
        { "regex", JSON_STRING, IN_CONDITION },
        { "within", JSON_STRING, IN_CONDITION },
};

static bool has_type(const json_t *v, json_type type)
{
        switch (type) {
        case JSON_NULL:
                return true;
        case JSON_REAL:
                return json_is_number(v);
        case JSON_TRUE:
                return json_is_boolean(v);
        default:
                return json_typeof(v) == type;
        }
}

static int unknown(struct policy_reader *r, const char *name, unsigned where)
{
        const char *best = NULL;
        size_t least = 4; /* further away, a suggestion is a guess */

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++) {
                size_t d = keys[i].where & where ? cg_text_distance(name, keys[i].name, NULL) : least;

                if (d < least) {
                        least = d;
                        best = keys[i].name;
                }
        }
        if (best)
                return fail(r, "there is no such key; the nearest one is \"%s\"", best);
        return fail(r, "there is no such key here");
}

static int check_keys(struct policy_reader *r, const json_t *o, unsigned where)
{
        static const char *const types[] = {
                [JSON_OBJECT] = "an object",       [JSON_ARRAY] = "an array", [JSON_STRING] = "a text",
                [JSON_INTEGER] = "a whole number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true or false",
                [JSON_FALSE] = "true or false"
        };
        const char *name;
        json_t *v;

        if (!json_is_object(o))
                return fail(r, "an object is expected");
        json_object_foreach(cg_json_unconst(o), name, v) {
                size_t mark = enter(r, name), i = 0;

                while (i < CG_ARRAY_LEN(keys) &&
                       (!(keys[i].where & where) || strcmp(keys[i].name, name) != 0))
                        i++;
                if (i == CG_ARRAY_LEN(keys))
                        return unknown(r, name, where);
                if (!has_type(v, keys[i].type))
                        return fail(r, "%s is expected", types[keys[i].type]);
                leave(r, mark);
        }
        return 0;
}

static const char *text_of(const json_t *o, const char *key)
{
        return json_string_value(json_object_get(o, key));
}

/* The place of the text at @key in @words, where "" is no word, or @def where it is absent. */
static int word(struct policy_reader *r, const json_t *o, const char *key, const char *const *words, int def,
                int *ret)
{
        const char *text = text_of(o, key);
        char all[128] = "";
        size_t n = 0;

        *ret = def;
        if (!text)
                return 0;
        for (int i = 0; words[i]; i++) {
                if (!*words[i])
                        continue;
                if (strcmp(words[i], text) == 0) {
                        *ret = i;
                        return 0;
                }
                n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", cg_sep(n, ", "), words[i]);
        }
        enter(r, key);
        return fail(r, "it must be one of %s", all);
}

/* A pattern of names, or NULL. */
static int pattern(struct policy_reader *r, const json_t *o, const char *key, const char **ret)
{
        *ret = text_of(o, key);
        if (!*ret || (**ret && strlen(*ret) <= CG_POL_GLOB_MAX))
                return 0;
        enter(r, key);
        return fail(r, "a pattern has 1 to %u bytes", CG_POL_GLOB_MAX);
}

/* ---- conditions */

/* "": all of the arguments. */
static int read_pointer(struct policy_reader *r, struct cg_pol_condition *c, const char *pointer)
{
        size_t n = 0;

        c->pointer = cg_text_or(pointer, "object");
        if (strlen(pointer) > CG_POL_GLOB_MAX)
                return fail(r, "a JSON pointer has at most %u bytes", CG_POL_GLOB_MAX);
        if (*pointer && *pointer != '/')
                return fail(r, "a JSON pointer begins with \"/\": \"/%s\"?", pointer);
        for (const char *p = pointer; *p; p++)
                n += *p == '/';
        c->tokens = calloc(n + 1, sizeof(*c->tokens));
        if (!c->tokens)
                return cg_fail(r->err, CG_E_NOMEM, "policy");
        if (!n)
                return 0;
        n = 0;
        for (const char *p = pointer + 1, *end;; p = end + 1) {
                char *to = calloc(1, strlen(p) + 1);

                end = p + strcspn(p, "/");
                c->tokens[n++] = to;
                if (!to)
                        return cg_fail(r->err, CG_E_NOMEM, "policy");
                for (; p < end; p++) {
                        if (*p == '~' && p[1] != '0' && p[1] != '1')
                                return fail(r, "in a JSON pointer ~ is written ~0, and / in a name ~1");
                        if (*p == '~')
                                *to++ = *++p == '0' ? '~' : '/';
                        else
                                *to++ = *p;
                }
                if (!*end)
                        return 0;
        }
}

static int read_regex(struct policy_reader *r, struct cg_pol_condition *c, const char *text)
{
        char why[128] = "";
        PCRE2_SIZE at;
        int code;

        if (++r->file->n_regexes > CG_POL_REGEXES_MAX)
                return fail(r, "there are over %u regular expressions", CG_POL_REGEXES_MAX);
        c->kind = CG_COND_REGEX;
        c->re = pcre2_compile((const unsigned char *)text, strlen(text),
                              PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY, &code,
                              &at, NULL);
        if (c->re)
                return 0;
        pcre2_get_error_message(code, (unsigned char *)why, sizeof(why));
        return fail(r, "the regular expression: %s at %zu", why, (size_t)at);
}

static bool is_exact(const json_t *v)
{
        return !json_is_number(v) || fabs(json_number_value(v)) < 1e15;
}

static int read_values(struct policy_reader *r, struct cg_pol_condition *c, json_t *values)
{
        const json_t *v;
        size_t i;

        c->kind = CG_COND_ENUM;
        c->values = values;
        if (!json_array_size(values))
                return fail(r, "there is no value");
        json_array_foreach(values, i, v) {
                if (json_is_object(v) || json_is_array(v) || !is_exact(v))
                        return fail(r, "a text, true, false, null or a number below 1e15 is expected");
        }
        return 0;
}

static int read_range(struct policy_reader *r, struct cg_pol_condition *c, const json_t *o)
{
        const json_t *min = json_object_get(o, "min"), *max = json_object_get(o, "max");

        c->kind = CG_COND_RANGE;
        c->min = min ? json_number_value(min) : -INFINITY;
        c->max = max ? json_number_value(max) : INFINITY;
        if ((min && !is_exact(min)) || (max && !is_exact(max)) || c->min > c->max)
                return fail(r, "min and max must be below 1e15, and min not over max");
        return 0;
}

static int read_within(struct policy_reader *r, struct cg_pol_condition *c, const char *folder)
{
        char normal[PATH_MAX];

        c->kind = CG_COND_WITHIN;
        c->text = folder;
        if (cg_pol_normal_path(folder, normal) && strcmp(normal, folder) == 0)
                return 0;
        return fail(r, "\"within\" is an absolute path without \"..\", \".\" and double or last slashes");
}

static int read_argv(struct policy_reader *r, struct cg_pol_condition *c, const json_t *patterns)
{
        const json_t *v;
        size_t i;

        c->kind = CG_COND_ARGV;
        c->values = patterns;
        json_array_foreach(patterns, i, v) {
                if (!json_string_length(v) || json_string_length(v) > CG_POL_GLOB_MAX)
                        return fail(r, "a pattern has 1 to %u bytes", CG_POL_GLOB_MAX);
        }
        if (i && strcmp(json_string_value(json_array_get(patterns, 0)), CG_POL_MORE) != 0)
                return 0;
        return fail(r, "argv begins with a pattern of the program");
}

/* One more member or element would get around a rule that denies or asks. */
static int read_exact(struct policy_reader *r, struct cg_pol_condition *c, const json_t *value, bool allows)
{
        c->kind = CG_COND_EXACT;
        c->values = value;
        if (allows)
                return 0;
        return fail(r, "\"equals\" with an object or array needs \"decision\": \"allow\"");
}

static int read_condition(struct policy_reader *r, struct cg_pol_condition *c, const char *pointer, json_t *o,
                          bool allows)
{
        json_t *equals = json_object_get(o, "equals"), *list;
        bool range = json_object_get(o, "min") || json_object_get(o, "max");

        if (check_keys(r, o, IN_CONDITION) < 0)
                return -1;
        if (!*pointer && !json_is_object(equals))
                return fail(r, "the arguments together have \"equals\" with an object as their condition");
        if (read_pointer(r, c, pointer) < 0)
                return -1;
        if (json_object_size(o) !=
            (range && json_object_get(o, "min") && json_object_get(o, "max") ? 2u : 1u))
                return fail(r,
                            "a condition has one of equals, enum, glob, regex, within, argv, or min and max");
        if (json_is_object(equals) || json_is_array(equals))
                return read_exact(r, c, equals, allows);
        if (equals) { /* becomes a list of one value, which the file owns */
                list = json_pack("[O]", equals);
                if (!list || json_object_set_new(o, "enum", list) < 0)
                        return cg_fail(r->err, CG_E_NOMEM, "policy");
        }
        if (json_object_get(o, "enum"))
                return read_values(r, c, json_object_get(o, "enum"));
        if (range)
                return read_range(r, c, o);
        if (text_of(o, "regex"))
                return read_regex(r, c, text_of(o, "regex"));
        if (json_object_get(o, "argv"))
                return read_argv(r, c, json_object_get(o, "argv"));
        if (text_of(o, "within"))
                return read_within(r, c, text_of(o, "within"));
        c->kind = CG_COND_GLOB;
        return pattern(r, o, "glob", &c->text);
}

static int read_conditions(struct policy_reader *r, struct cg_pol_rule *rule, const json_t *o)
{
        size_t n = json_object_size(o), mark = enter(r, "arguments"), inner;
        const char *pointer;
        json_t *v;

        if (n > CG_POL_CONDITIONS_MAX)
                return fail(r, "there are over %u conditions", CG_POL_CONDITIONS_MAX);
        rule->conditions = calloc(n + 1, sizeof(*rule->conditions));
        if (!rule->conditions)
                return cg_fail(r->err, CG_E_NOMEM, "policy");
        json_object_foreach(cg_json_unconst(o), pointer, v) {
                inner = enter(r, pointer);
                if (read_condition(r, &rule->conditions[rule->n_conditions++], pointer, v,
                                   rule->decision == CG_POL_ALLOW) < 0)
                        return -1;
                leave(r, inner);
        }
        leave(r, mark);
        return 0;
}

/* ---- rules and budgets */

/* The keys about a program, as a setting of one rule: see exec_rules.h. */
static int read_program(struct policy_reader *r, struct cg_pol_rule *rule, const json_t *o)
{
        static const char *const lists[] = { "ask", "allow", "ask", "deny" }, *const names[] = {
                "program", "argv", "more", "line", "env", "writable"
        };
        cg_auto_json json_t *own = json_object();
        enum cg_exec mode;
        struct cg_err why;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (json_object_get(o, names[i]))
                        json_object_set(own, names[i], json_object_get(o, names[i]));
        if (!json_object_size(own))
                return 0;
        rule->exec = json_pack("{s:s, s:[O]}", "default", "ask", lists[rule->decision], own);
        if (!rule->exec)
                return cg_fail(r->err, CG_E_NOMEM, "policy");
        if (cg_exec_rules_mode(rule->exec, &mode, &why) < 0)
                return fail(r, "%s", why.msg);
        return 0;
}

static int read_until(struct policy_reader *r, struct cg_pol_rule *rule, const char *text)
{
        struct tm tm = { .tm_isdst = 0 };
        const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) : "";

        if (!end || *end)
                return fail(r, "until is a time in UTC such as 2026-12-31T18:00:00Z");
        if (text)
                rule->until_s = timegm(&tm);
        return 0;
}

/* The calls that a rule or a budget is about. */
static int read_subject(struct policy_reader *r, struct cg_pol_rule *rule, const json_t *o, bool budget)
{
        const json_t *port = json_object_get(o, "port"), *v;
        size_t i;

        rule->id = text_of(o, "id");
        rule->text = text_of(o, "text");
        rule->method = text_of(o, "method");
        rule->fronts = json_object_get(o, "front");
        rule->port = json_integer_value(port);
        if (pattern(r, o, "server", &rule->server) < 0 || pattern(r, o, "tool", &rule->tool) < 0 ||
            pattern(r, o, "host", &rule->host) < 0 || pattern(r, o, "client", &rule->client) < 0 ||
            pattern(r, o, "session", &rule->session) < 0 || read_program(r, rule, o) < 0 ||
            read_conditions(r, rule, json_object_get(o, "arguments")) < 0)
                return -1;
        json_array_foreach(rule->fronts, i, v) {
                if (!json_is_string(v))
                        return fail(r, "front is a list of run, mcp serve, jupyter, api");
        }
        if (!!rule->server + !!rule->host + !!rule->exec != 1)
                return fail(r, "a %s is about one of server, host, and program or line",
                            budget ? "budget" : "rule");
        if (!rule->server && (rule->tool || rule->method || rule->n_conditions))
                return fail(r, "tool, method and arguments need server");
        if (port && (!rule->host || rule->port < 1 || rule->port > 65535))
                return fail(r, "port is from 1 to 65535, and needs host");
        if (rule->host && strpbrk(rule->host, "ABCDEFGHIJKLMNOPQRSTUVWXYZ/: "))
                return fail(r, "host is a name or address in lower case");
        if (rule->method && !cg_pol_is_mcp(rule->method))
                return fail(r, "method is " CG_METHOD_CALL ", " CG_METHOD_READ " or " CG_METHOD_GET);
        if (rule->tool && rule->method && strcmp(rule->method, CG_METHOD_CALL) != 0)
                return fail(r, "only " CG_METHOD_CALL " has a tool");
        return 0;
}

static int read_rule(struct policy_reader *r, struct cg_pol_rule *rule, json_t *o)
{
        static const char *const decisions[] = { [CG_POL_NONE] = "", "allow", "ask", "deny", NULL },
                                 *const grants[] = { "session", "cell", "once", NULL };
        int decision, grant;

        if (check_keys(r, o, IN_RULE) < 0 || word(r, o, "decision", decisions, CG_POL_NONE, &decision) < 0 ||
            word(r, o, "for", grants, CG_GRANT_SESSION, &grant) < 0)
                return -1;
        rule->decision = (enum cg_pol_decision)decision;
        rule->grant = (enum cg_pol_grant)grant;
        if (!decision)
                return fail(r, "a rule needs \"decision\": \"allow\", \"ask\" or \"deny\"");
        if (decision != CG_POL_ALLOW && (text_of(o, "for") || text_of(o, "until")))
                return fail(r, "only what is allowed ends: for and until need \"decision\": \"allow\"");
        if (read_until(r, rule, text_of(o, "until")) < 0)
                return -1;
        return read_subject(r, rule, o, false);
}

static int read_budget(struct policy_reader *r, struct cg_pol_rule *b, json_t *o)
{
        static const char *const pers[] = { "session", "cell", "minute", NULL };
        const json_t *max = json_object_get(o, "max");
        const char *sum = text_of(o, "sum");
        int per;

        b->decision = CG_POL_DENY; /* what is unclear counts */
        if (check_keys(r, o, IN_BUDGET) < 0 || word(r, o, "per", pers, -1, &per) < 0 ||
            read_subject(r, b, o, true) < 0)
                return -1;
        b->per = (enum cg_pol_per)per;
        b->calls = json_integer_value(json_object_get(o, "calls"));
        b->max = json_number_value(max);
        if (per < 0 || !b->id || !b->id[0])
                return fail(r, "a budget needs an id and per: session, cell or minute");
        if (!sum != !max || (sum && !*sum) || (!sum && !json_object_get(o, "calls")))
                return fail(r, "a budget needs calls, or sum and max, or all of these");
        if (b->calls < 0 || b->max < 0 || !is_exact(max) || (sum && !b->server))
                return fail(r, "calls and max are at least 0, and sum needs server");
        b->calls = json_object_get(o, "calls") ? b->calls : INT64_MAX;
        return sum ? read_pointer(r, &b->sum, sum) : 0;
}

static int read_list(struct policy_reader *r, const char *key, struct cg_pol_rule **ret, size_t *n,
                     int (*read_one)(struct policy_reader *, struct cg_pol_rule *, json_t *))
{
        json_t *list = json_object_get(r->file->root, key), *one;
        size_t i, mark = enter(r, key);

        if (json_array_size(list) > CG_POL_RULES_MAX)
                return fail(r, "there are over %u", CG_POL_RULES_MAX);
        *ret = calloc(json_array_size(list) + 1, sizeof(**ret));
        if (!*ret)
                return cg_fail(r->err, CG_E_NOMEM, "policy");
        json_array_foreach(list, i, one) {
                char index[24];
                size_t inner;

                snprintf(index, sizeof(index), "%zu", i);
                inner = enter(r, index);
                ++*n;
                if (read_one(r, &(*ret)[i], one) < 0)
                        return -1;
                leave(r, inner);
        }
        leave(r, mark);
        return 0;
}

static int read_file(struct policy_reader *r)
{
        static const char *const bases[] = { [CG_POL_NONE] = "none",
                                             [CG_POL_ALLOW] = "",
                                             [CG_POL_ASK] = "ask",
                                             [CG_POL_DENY] = "deny",
                                             NULL };
        const json_t *cells = json_object_get(r->file->root, "cells_per_minute");
        int base;

        if (check_keys(r, r->file->root, IN_FILE) < 0 ||
            word(r, r->file->root, "default", bases, CG_POL_NONE, &base) < 0)
                return -1;
        r->file->base = (enum cg_pol_decision)base;
        r->file->cells_per_minute = (unsigned)json_integer_value(cells);
        if (cells && (json_integer_value(cells) < 1 || json_integer_value(cells) > 1000000))
                return fail(r, "cells_per_minute is from 1 to 1000000");
        if (read_list(r, "rules", &r->file->rules, &r->file->n_rules, read_rule) < 0)
                return -1;
        return read_list(r, "budgets", &r->file->budgets, &r->file->n_budgets, read_budget);
}

/* ---- policies */

static void condition_fini(struct cg_pol_condition *c)
{
        cg_free_list(c->tokens);
        pcre2_code_free(c->re);
}

static void rules_free(struct cg_pol_rule *rules, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                for (size_t k = 0; k < rules[i].n_conditions; k++)
                        condition_fini(&rules[i].conditions[k]);
                condition_fini(&rules[i].sum);
                free(rules[i].conditions);
                json_decref(rules[i].exec);
        }
        free(rules);
}

static void file_fini(struct cg_pol_file *f)
{
        rules_free(f->rules, f->n_rules);
        rules_free(f->budgets, f->n_budgets);
        json_decref(f->root);
        free(f->name);
        *f = (struct cg_pol_file){ .name = NULL };
}

int cg_pol_new(struct cg_pol **ret, struct cg_err *err)
{
        struct cg_pol *p = calloc(1, sizeof(*p));

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "policy");
        *ret = p;
        return 0;
}

struct cg_pol *cg_pol_free(struct cg_pol *p)
{
        if (!p)
                return NULL;
        for (size_t i = 0; i < p->n; i++)
                file_fini(&p->files[i]);
        free(p);
        return NULL;
}

int cg_pol_add(struct cg_pol *p, const char *name, const char *text, size_t len, struct cg_err *err)
{
        struct policy_reader r = { .err = err };
        json_error_t why;
        struct cg_err deep;
        int res;

        if (p->n == CG_POL_FILES_MAX)
                return cg_fail(err, CG_E_LIMIT, "there are over %u policy files", CG_POL_FILES_MAX);
        r.file = &p->files[p->n];
        r.file->name = strdup(name);
        r.file->root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
        if (!r.file->name)
                res = cg_fail(err, CG_E_NOMEM, "policy");
        else if (!r.file->root)
                res = cg_fail(err, CG_E_PARSE, "%s:%d:%d: %s", name, why.line, why.column, why.text);
        else if (len > CG_MAX_SETTINGS || cg_json_check_object(text, len, 16, &deep) < 0)
                res = fail(&r, "a policy is an object of at most %u bytes, nested at most 16 deep",
                           CG_MAX_SETTINGS);
        else
                res = read_file(&r);
        if (res < 0)
                file_fini(r.file);
        else
                p->n++;
        return res < 0 ? CG_E_PARSE : 0;
}
