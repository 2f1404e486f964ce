/* Rules that are written for a person, and files with one more of them: see policy.h. */
#include "base/ceilings.h"
#include "base/json.h"
#include "policy/internal.h"

/* Names of servers and tools are patterns in a rule. */
static bool is_literal(const char *name)
{
        return name[strcspn(name, "*?")] == '\0' && strlen(name) <= CG_POL_GLOB_MAX;
}

int cg_pol_rule_for(const struct cg_pol_call *call, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *args = json_loadb(call->args, call->args_len, JSON_REJECT_DUPLICATES, NULL);
        cg_auto_json json_t *rule = NULL;
        bool tool = strcmp(call->method, CG_METHOD_CALL) == 0;

        if (!json_is_object(args) || !is_literal(call->server) || !is_literal(call->tool) ||
            (call->session && !is_literal(call->session)))
                return cg_fail(err, CG_E_UNSUPPORTED, "no rule can name exactly this call");
        if (cg_pol_is_host_exec(call))
                return cg_fail(err, CG_E_UNSUPPORTED, "cells may change what a program of the host runs");
        rule = json_pack("{s:s, s:s, s:s*, s:s*, s:{s:{s:O}}, s:[s], s:s*}", "decision", "allow", "server",
                         call->server, "tool", tool ? call->tool : NULL, "method", tool ? NULL : call->method,
                         "arguments", "", "equals", args, "front", call->front, "session", call->session);
        if (rule)
                *ret = json_dumps(rule, JSON_ENSURE_ASCII);
        if (!rule || !*ret)
                return cg_fail(err, CG_E_NOMEM, "rule");
        if (strlen(*ret) <= CG_POL_TEXT_MAX)
                return 0;
        free(*ret);
        return cg_fail(err, CG_E_LIMIT, "the rule would be longer than %u bytes", CG_POL_TEXT_MAX);
}

/* Appends @text with @rule as rule number @n, or as the last one. Returns how many there were. */
static size_t insert(const char *text, size_t len, const char *rule, size_t n, struct cg_buf *b)
{
        const char *at = text + strcspn(text, "{") + 1, *end = text + len, *before = "\n  \"rules\": [";
        struct cg_slice all = cg_json_trim((struct cg_slice){ text, len }), rules, one;
        const char *after = cg_json_is_empty(all) ? "]\n" : "],";
        struct cg_json_walk walk;
        size_t i = 0;

        if (cg_json_find(all, "rules", &rules) && cg_json_walk_init(&walk, rules, '[', NULL) == 0) {
                at = rules.p + 1;
                before = after = "";
                for (; cg_json_walk_next(&walk, NULL, &one, NULL) == 0; i++) {
                        if (i < n) {
                                at = one.p + one.len;
                                before = ",\n    ";
                        } else if (i == n) {
                                at = one.p;
                                before = "";
                                after = ",\n    ";
                        }
                }
        }
        cg_buf_add(b, text, (size_t)(at - text));
        cg_buf_addf(b, "%s%s%s", before, rule, after);
        cg_buf_add(b, at, (size_t)(end - at));
        return i;
}

/* About the call, if the file @which has the rule as number @n; n_files: none has it. */
static enum cg_pol_decision decision_with(const struct cg_pol_text *files, size_t n_files, size_t which,
                                          size_t n, const char *rule, const struct cg_pol_call *call)
{
        cg_auto_buf struct cg_buf changed = { .max = CG_MAX_SETTINGS };
        struct cg_pol_verdict v = { .decision = CG_POL_ASK };
        cg_auto_pol struct cg_pol *p = NULL;
        struct cg_err err;

        if (which < n_files)
                insert(files[which].text, files[which].len, rule, n, &changed);
        if (cg_buf_end(&changed, &err) < 0 || cg_pol_new(&p, &err) < 0)
                return CG_POL_DENY;
        for (size_t i = 0; i < n_files; i++) {
                const struct cg_pol_text *f = &files[i];

                if (i == which ? cg_pol_add(p, f->name, changed.data, changed.len, &err) < 0
                               : cg_pol_add(p, f->name, f->text, f->len, &err) < 0)
                        return CG_POL_DENY;
        }
        cg_pol_decide(p, call, false, &v, NULL);
        return v.decision;
}

static bool allows(const struct cg_pol_text *files, size_t n_files, size_t which, size_t n, const char *rule,
                   const struct cg_pol_call *call)
{
        return decision_with(files, n_files, which, n, rule, call) == CG_POL_ALLOW;
}

int cg_pol_add_rule(const struct cg_pol_text *files, size_t n_files, const struct cg_pol_call *call,
                    const char *rule, size_t *which, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf unused = { .max = CG_MAX_SETTINGS };
        size_t low = 0, high, middle;

        /* A rule that denies, perhaps since the question, must not come behind the new one. */
        if (decision_with(files, n_files, n_files, 0, rule, call) != CG_POL_ASK)
                return cg_fail(err, CG_E_STATE, "the files do not ask about this call any more");
        for (*which = 0; *which < n_files; ++*which)
                if (allows(files, n_files, *which, 0, rule, call))
                        break;
        if (*which == n_files)
                return cg_fail(err, CG_E_UNSUPPORTED, "no rule in one of the files would allow this call");
        high = insert(files[*which].text, files[*which].len, rule, 0, &unused);
        while (low < high) {
                middle = (low + high + 1) / 2;
                if (allows(files, n_files, *which, middle, rule, call))
                        low = middle;
                else
                        high = middle - 1;
        }
        insert(files[*which].text, files[*which].len, rule, low, b);
        return cg_buf_end(b, err);
}
