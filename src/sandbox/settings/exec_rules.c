/*
 * See exec_rules.h. Runs in the supervisor, and where settings are read. Rules are the host's, the
 * question comes from the sandbox. Whatever is unclear is no reason to allow: a rule that allows
 * does not apply then, and one that denies does.
 */
#include "sandbox/settings/exec_rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/json.h"
#include "base/path.h"

#define RULES_MAX 256
/*
 * Cells choose the texts, and the supervisor's loop waits for the answer: all regular expressions
 * of a setting take about 20 ms for a question at most.
 */
#define REGEXES_MAX      64
#define PATTERN_TEXT_MAX 4096
#define STEPS_MAX        5000

enum outcome { NO, YES, UNCLEAR };

static const char *const lists[] = { "deny", "ask", "allow" };
static const enum cg_exec answers[] = { CG_EXEC_DENY, CG_EXEC_ASK, CG_EXEC_ALLOW };

/* ---- reading */

static pcre2_code *compile(const char *text, struct cg_err *err)
{
        char why[128] = "";
        PCRE2_SIZE at;
        int code;
        pcre2_code *re = pcre2_compile((const unsigned char *)text, strlen(text),
                                       PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY,
                                       &code, &at, NULL);

        if (!re) {
                pcre2_get_error_message(code, (unsigned char *)why, sizeof(why));
                cg_fail(err, CG_E_INVAL, "the regular expression \"%.100s\": %s at %zu", text, why,
                        (size_t)at);
        }
        return re;
}

/* @m: a text, {"exact": TEXT} or {"regex": TEXT}. */
static int check_match(const json_t *m, unsigned *regexes, struct cg_err *err)
{
        const char *regex = json_string_value(json_object_get(m, "regex"));
        pcre2_code *re;

        if (json_is_string(m) || (json_object_size(m) == 1 && json_is_string(json_object_get(m, "exact"))))
                return 0;
        if (json_object_size(m) != 1 || !regex)
                return cg_fail(err, CG_E_INVAL,
                               "a text, {\"exact\": TEXT} or {\"regex\": TEXT} is expected for an argument");
        if (++*regexes > REGEXES_MAX)
                return cg_fail(err, CG_E_INVAL, "there are over %d regular expressions", REGEXES_MAX);
        re = compile(regex, err);
        if (!re)
                return CG_E_INVAL;
        pcre2_code_free(re);
        return 0;
}

static int check_rule(const json_t *rule, bool allows, unsigned *regexes, struct cg_err *err)
{
        static const struct {
                const char *key;
                json_type type;
                bool allows;
        } keys[] = { { "program", JSON_STRING, false }, { "argv", JSON_ARRAY, false },
                     { "more", JSON_TRUE, false },      { "line", JSON_NULL, false },
                     { "env", JSON_ARRAY, true },       { "writable", JSON_TRUE, true } };
        const char *key;
        json_t *v, *m;
        size_t i;

        if (!json_is_object(rule))
                return cg_fail(err, CG_E_INVAL, "a rule must be an object");
        json_object_foreach(cg_json_unconst(rule), key, v) {
                size_t k = 0;

                while (k < CG_ARRAY_LEN(keys) && strcmp(keys[k].key, key) != 0)
                        k++;
                if (k == CG_ARRAY_LEN(keys) || (keys[k].allows && !allows))
                        return cg_fail(err, CG_E_INVAL, "a rule of this list has no member \"%.50s\"", key);
                if (keys[k].type == JSON_NULL && check_match(v, regexes, err) < 0)
                        return CG_E_INVAL;
                if (keys[k].type != JSON_NULL && json_typeof(v) != keys[k].type &&
                    !(keys[k].type == JSON_TRUE && json_is_false(v)))
                        return cg_fail(err, CG_E_INVAL, "\"%s\" has another type", key);
        }
        if (!json_object_get(rule, "program") && !json_object_get(rule, "line"))
                return cg_fail(err, CG_E_INVAL, "a rule needs \"program\" or \"line\"");
        if (json_object_get(rule, "line") && json_object_get(rule, "argv"))
                return cg_fail(err, CG_E_INVAL, "a rule has either \"line\" or \"argv\"");
        json_array_foreach(json_object_get(rule, "argv"), i, m) {
                if (check_match(m, regexes, err) < 0)
                        return CG_E_INVAL;
        }
        json_array_foreach(json_object_get(rule, "env"), i, m) {
                if (!json_is_string(m))
                        return cg_fail(err, CG_E_INVAL, "\"env\" must be names of variables");
        }
        return 0;
}

static int check_rules(const json_t *setting, struct cg_err *err)
{
        const char *key, *base = json_string_value(json_object_get(setting, "default"));
        unsigned regexes = 0;
        json_t *v;

        if (!base || (strcmp(base, "ask") != 0 && strcmp(base, "deny") != 0 && strcmp(base, "allow") != 0))
                return cg_fail(err, CG_E_INVAL, "exec.default must be \"ask\", \"deny\" or \"allow\"");
        json_object_foreach(cg_json_unconst(setting), key, v) {
                const json_t *rule;
                size_t k = 0, i;

                if (strcmp(key, "default") == 0)
                        continue;
                if (strcmp(key, "commands") == 0) {
                        const char *text = json_string_value(v);

                        if (!text || (strcmp(text, "tree") != 0 && strcmp(text, "each") != 0))
                                return cg_fail(err, CG_E_INVAL, "exec.commands must be \"tree\" or \"each\"");
                        continue;
                }
                while (k < CG_ARRAY_LEN(lists) && strcmp(lists[k], key) != 0)
                        k++;
                if (k == CG_ARRAY_LEN(lists) || !json_is_array(v))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "exec has \"default\", \"commands\", and lists \"deny\", \"ask\" and \"allow\"");
                if (json_array_size(v) > RULES_MAX)
                        return cg_fail(err, CG_E_INVAL, "exec.%s has over %d rules", key, RULES_MAX);
                json_array_foreach(v, i, rule) {
                        struct cg_err why;

                        if (check_rule(rule, answers[k] == CG_EXEC_ALLOW, &regexes, &why) < 0)
                                return cg_fail(err, CG_E_INVAL, "exec.%s.%zu: %s", key, i, why.msg);
                }
        }
        return 0;
}

int cg_exec_rules_mode(const json_t *setting, enum cg_exec *ret, struct cg_err *err)
{
        const char *text = json_string_value(setting),
                   *each = json_string_value(json_object_get(setting, "commands"));

        *ret = CG_EXEC_ALLOW;
        if (!setting || (text && strcmp(text, "allow") == 0))
                return 0;
        *ret = CG_EXEC_DENY;
        if (text && strcmp(text, "deny") == 0)
                return 0;
        *ret = each && strcmp(each, "each") == 0 ? CG_EXEC_ASK_EACH : CG_EXEC_ASK;
        if (json_is_object(setting))
                return check_rules(setting, err) < 0 ? CG_E_INVAL : 0;
        if (text && strcmp(text, "ask") == 0)
                return 0;
        return cg_fail(err, CG_E_INVAL, "exec must be \"allow\", \"ask\", \"deny\" or rules");
}

/* ---- deciding */

/* "*" matches any characters, with @path none that is a "/"; "?" one. Length * length steps. */
static bool glob(const char *p, const char *t, bool path)
{
        const char *star = NULL, *from = NULL;

        while (*t) {
                if (*p == '*') {
                        star = ++p;
                        from = t;
                } else if (*p == *t || (*p == '?' && !(path && *t == '/'))) {
                        p++;
                        t++;
                } else if (star && !(path && *from == '/')) {
                        p = star;
                        t = ++from;
                } else {
                        return false;
                }
        }
        while (*p == '*')
                p++;
        return !*p;
}

/* @text: of the question; no string if it is not UTF-8. @globs: a text of the rule is a pattern. */
static enum outcome matches(const json_t *m, const json_t *text, bool globs)
{
        const char *t = json_string_value(text), *exact = json_string_value(json_object_get(m, "exact"));
        pcre2_match_context *limits;
        pcre2_match_data *data;
        pcre2_code *re;
        int r = PCRE2_ERROR_NOMEMORY;

        if (!t ||
            (((globs && json_is_string(m)) || json_object_get(m, "regex")) && strlen(t) > PATTERN_TEXT_MAX))
                return UNCLEAR;
        if (json_is_string(m) && globs)
                return glob(json_string_value(m), t, false) ? YES : NO;
        if (json_is_string(m))
                exact = json_string_value(m);
        if (exact)
                return strcmp(exact, t) == 0 ? YES : NO;
        re = compile(json_string_value(json_object_get(m, "regex")), NULL);
        limits = pcre2_match_context_create(NULL);
        data = re ? pcre2_match_data_create_from_pattern(re, NULL) : NULL;
        if (limits && data) {
                pcre2_set_match_limit(limits, STEPS_MAX);
                r = pcre2_match(re, (const unsigned char *)t, strlen(t), 0, 0, data, limits);
        }
        pcre2_match_data_free(data);
        pcre2_match_context_free(limits);
        pcre2_code_free(re);
        if (r >= 0)
                return YES;
        return r == PCRE2_ERROR_NOMATCH ? NO : UNCLEAR;
}

static enum outcome both(enum outcome a, enum outcome b)
{
        if (a == NO || b == NO)
                return NO;
        return a == UNCLEAR || b == UNCLEAR ? UNCLEAR : YES;
}

/* The line of `sh -c LINE`. NULL: the program is none, or has other arguments. */
static const json_t *line_of(const json_t *argv, const char *program)
{
        static const char *const shells[] = { "sh", "bash", "dash", "zsh" };
        const char *own = json_string_value(json_array_get(argv, 0)),
                   *option = json_string_value(json_array_get(argv, 1)),
                   *end = json_string_value(json_array_get(argv, 2));
        size_t n = json_array_size(argv);
        unsigned found = 0;

        for (size_t i = 0; own && i < CG_ARRAY_LEN(shells); i++)
                found |= (strcmp(cg_path_base(own), shells[i]) == 0) |
                         (strcmp(cg_path_base(program), shells[i]) == 0) << 1;
        if (found != 3 || !option || strcmp(option, "-c") != 0)
                return NULL;
        if (n == 4 && end && strcmp(end, "--") == 0)
                return json_array_get(argv, 3);
        return n == 3 ? json_array_get(argv, 2) : NULL;
}

/* True if the shell @own may run a file in the home folder, where cells write, before its line. */
static bool reads_startup_file(const char *own, const char *program, const json_t *question)
{
        const char *input = json_string_value(json_object_get(question, "stdin"));

        /* A login shell: ~/.profile. zsh: ~/.zshenv. Bash with a socket, as of rshd: ~/.bashrc. */
        return own[0] == '-' || strcmp(cg_path_base(program), "zsh") == 0 ||
               (strcmp(cg_path_base(own), "sh") != 0 && (!input || strcmp(input, "socket") == 0));
}

/* Further conditions of a rule that allows. */
static bool may_allow(const json_t *rule, const json_t *question, const char *program)
{
        const json_t *argv = json_object_get(question, "argv"), *env = json_object_get(question, "env"), *v,
                     *name;
        const char *own = json_string_value(json_array_get(argv, 0));
        size_t i, k;

        if (!json_is_false(json_object_get(question, "writable")) &&
            !json_is_true(json_object_get(rule, "writable")))
                return false;
        /* Programs with several names do what the first argument says. */
        if (!json_object_get(rule, "argv") && !json_object_get(rule, "line") &&
            (!own || (strcmp(own, program) != 0 && strcmp(own, cg_path_base(program)) != 0)))
                return false;
        if (json_object_get(rule, "line") && (!own || reads_startup_file(own, program, question)))
                return false;
        json_array_foreach(argv, i, v)
                if (!json_is_string(v))
                        return false;
        for (int unset = 0; unset < 2; unset++) {
                json_array_foreach(json_object_get(env, unset ? "unset" : "set"), i, v) {
                        const char *text = json_string_value(v);
                        cg_auto_free char *own_name = text ? strndup(text, strcspn(text, "=")) : NULL;
                        bool listed = false;

                        json_array_foreach(json_object_get(rule, "env"), k, name)
                                listed |= own_name && glob(json_string_value(name), own_name, false);
                        if (!listed)
                                return false;
                }
        }
        return true;
}

static enum outcome applies(const json_t *rule, const json_t *question, bool allows)
{
        const json_t *argv = json_object_get(question, "argv"), *want = json_object_get(rule, "argv"),
                     *line = json_object_get(rule, "line"), *m;
        const char *program = json_string_value(json_object_get(question, "program")),
                   *pattern = json_string_value(json_object_get(rule, "program"));
        enum outcome r = YES;
        size_t i;

        if (!program)
                return UNCLEAR;
        if (pattern && !glob(pattern, program, true))
                return NO;
        if (line) {
                const json_t *own = line_of(argv, program);

                r = own ? matches(line, own, false) : NO;
        }
        if (want &&
            (json_array_size(want) > json_array_size(argv) ||
             (json_array_size(want) < json_array_size(argv) && !json_is_true(json_object_get(rule, "more")))))
                return NO;
        json_array_foreach(want, i, m)
                r = both(r, matches(m, json_array_get(argv, i), true));
        return r == YES && allows && !may_allow(rule, question, program) ? NO : r;
}

enum cg_exec cg_exec_rules_judge(const json_t *setting, const json_t *question, char name[CG_EXEC_RULE_NAME])
{
        const char *base = json_string_value(json_object_get(setting, "default"));
        bool unclear = !json_is_string(json_object_get(question, "program"));
        const json_t *rule;
        size_t i;

        snprintf(name, CG_EXEC_RULE_NAME, "default");
        if (!json_is_object(setting))
                return CG_EXEC_ASK;
        json_array_foreach(json_object_get(question, "argv"), i, rule)
                unclear |= !json_is_string(rule);
        for (size_t k = 0; k < CG_ARRAY_LEN(lists); k++) {
                bool allows = answers[k] == CG_EXEC_ALLOW;

                json_array_foreach(json_object_get(setting, lists[k]), i, rule) {
                        enum outcome r = applies(rule, question, allows);

                        if (r == YES || (r == UNCLEAR && !allows)) {
                                snprintf(name, CG_EXEC_RULE_NAME, "%s.%zu", lists[k], i);
                                return answers[k];
                        }
                }
        }
        if (base && strcmp(base, "allow") == 0)
                return unclear ? CG_EXEC_ASK : CG_EXEC_ALLOW;
        return base && strcmp(base, "deny") == 0 ? CG_EXEC_DENY : CG_EXEC_ASK;
}
