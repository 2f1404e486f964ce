/* The list of rules: adding, asking, freeing. */
#include "sandbox/settings/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/path.h"

void cg_rules_fini(struct cg_rules *rules)
{
        cg_rules_cut(rules, 0);
        free(rules->v);
        *rules = (struct cg_rules){ 0 };
}

void cg_rules_cut(struct cg_rules *rules, size_t n)
{
        while (rules->n > n) {
                rules->n--;
                free(rules->v[rules->n].path);
                free(rules->v[rules->n].data);
        }
}

/* /proc, /sys and /dev of a sandbox are always its own. */
static bool is_pseudo_fs(const char *path)
{
        return cg_path_within(path, "/proc") || cg_path_within(path, "/sys") || cg_path_within(path, "/dev");
}

int cg_rules_add(struct cg_rules *rules, enum cg_rule_kind kind, const struct cg_place *place,
                 const char *why, struct cg_err *err)
{
        struct cg_rule rule = { .kind = kind, .missing = place->missing, .folder = place->folder };

        if (is_pseudo_fs(place->path))
                return 0;
        if (rules->n == CG_RULES_MAX)
                return cg_fail(err, CG_E_LIMIT,
                               "sandbox: the settings come to more than %d paths (the last by %s); name the "
                               "folders that hold them instead",
                               CG_RULES_MAX, why);
        if (rules->n == rules->cap) {
                size_t cap = rules->cap ? rules->cap * 2 : 64;
                struct cg_rule *v = realloc(rules->v, cap * sizeof(*v));

                if (!v)
                        return cg_fail(err, CG_E_NOMEM, "sandbox: rules");
                rules->v = v;
                rules->cap = cap;
        }
        rule.path = strdup(place->path);
        if (!rule.path)
                return cg_fail(err, CG_E_NOMEM, "sandbox: rules");
        snprintf(rule.why, sizeof(rule.why), "%s", why);
        rules->v[rules->n++] = rule;
        return 0;
}

bool cg_rules_may_write(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; i < rules->n; i++) {
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && cg_path_within(path, rules->v[i].path))
                        return true;
        }
        return false;
}
