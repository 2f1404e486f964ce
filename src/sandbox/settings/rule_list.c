/* The list of rules: additions, queries, cleanup. */
#include "sandbox/settings/rules.h"

#include "base/path.h"
#include "sandbox/names/names.h"
#include "sandbox/plan.h"

void cg_rules_fini(struct cg_rules *rules)
{
        cg_rules_cut(rules, 0);
        free(rules->v);
        for (size_t i = 0; i < rules->n_patterns; i++)
                free(rules->patterns[i].text);
        free(rules->patterns);
        for (size_t i = 0; i < rules->n_programs; i++)
                free(rules->programs[i]);
        free(rules->programs);
        free(rules->unwritten.v);
        for (size_t i = 0; i < CG_PRESENT_HOMES; i++)
                cg_present_fini(&rules->homes[i]);
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

bool cg_rules_is_own(const char *path)
{
        return cg_path_within(path, "/proc") || cg_path_within(path, "/sys") || cg_path_within(path, "/dev");
}

void cg_rules_why(char ret[CG_RULES_WHY_MAX], const char *why, const char *name)
{
        if (!cg_why_is_plain(name) || snprintf(ret, CG_RULES_WHY_MAX, "%s %s", why, name) >= CG_RULES_WHY_MAX)
                snprintf(ret, CG_RULES_WHY_MAX, "%s", why);
}

int cg_rules_add(struct cg_rules *rules, enum cg_rule_kind kind, const struct cg_place *place,
                 const char *why, struct cg_err *err)
{
        struct cg_rule rule = { .kind = kind, .missing = place->missing, .folder = place->folder }, *v;

        if (cg_rules_is_own(place->path))
                return 0;
        if (rules->n == CG_RULES_MAX)
                return cg_fail(err, CG_E_LIMIT,
                               "sandbox: the settings come to more than %d paths (the last by %s); name the "
                               "folders that hold them instead",
                               CG_RULES_MAX, why);
        v = cg_grow(rules->v, &rules->cap, rules->n, sizeof(*v));
        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox: rules");
        rules->v = v;
        if (cg_asprintf(&rule.path, "sandbox: rules", err, "%s", place->path) < 0)
                return -1;
        snprintf(rule.why, sizeof(rule.why), "%s", why);
        rules->v[rules->n++] = rule;
        return 0;
}

int cg_rules_add_pattern(struct cg_rules *rules, const char *text, const char *why, struct cg_err *err)
{
        struct cg_rule_pattern *v = realloc(rules->patterns, (rules->n_patterns + 1) * sizeof(*v));

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox: rules");
        rules->patterns = v;
        v += rules->n_patterns;
        if (cg_asprintf(&v->text, "sandbox: rules", err, "%s", text) < 0)
                return -1;
        snprintf(v->why, sizeof(v->why), "%s", why);
        rules->n_patterns++;
        return 0;
}

int cg_rules_keep_links(struct cg_rules *rules, const struct cg_place *place, bool open, const char *why,
                        struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < place->n_links && r == 0; i++) {
                struct cg_place link = { 0 };

                snprintf(link.path, sizeof(link.path), "%s", place->links[i]);
                if (!open || cg_rules_may_write(rules, link.path))
                        r = cg_rules_add(rules, CG_RULE_KEEP, &link, why, err);
        }
        return r;
}

/* The closed folder above @path that cells could open, or @path if it is one. */
static bool find_closed(const struct cg_rules *rules, const char *path, char ret[PATH_MAX])
{
        cg_auto_place struct cg_place place = { .path = "" };

        return cg_place_find(path, &place, NULL) == 0 && cg_plan_closed_folder(place.path, ret) &&
               cg_rules_may_write(rules, ret);
}

int cg_rules_hide_closed(struct cg_rules *rules, const char *path, const char *why, struct cg_err *err)
{
        struct cg_place place = { .folder = true };

        return find_closed(rules, path, place.path) ? cg_rules_add(rules, CG_RULE_DENY_READ, &place, why, err)
                                                    : 0;
}

int cg_rules_need_open(const struct cg_rules *rules, const char *path, struct cg_err *err)
{
        char closed[PATH_MAX];
        struct stat st;

        if (stat(path, &st) == 0 || errno != EACCES || !find_closed(rules, path, closed))
                return 0;
        return cg_fail(
                err, CG_E_SYS,
                "sandbox: %.300s cannot be read, and what it names must not be written: %.300s is closed "
                "to this user (chmod u+rwx opens it)",
                path, closed);
}

bool cg_rules_may_write(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE &&
                    (!path || cg_path_within(path, rules->v[i].path)))
                        return true;
        return false;
}

bool cg_rules_is_opened(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; rules->writable_names && i < rules->writable_names->n; i++)
                if (cg_names_match(rules->writable_names->v[i], path, 0))
                        return true;
        return false;
}

int cg_rules_deny_name(struct cg_rules *rules, const char *folder, const char *name, bool is_folder,
                       bool absent_too, struct cg_err *err)
{
        char path[PATH_MAX];
        cg_auto_place struct cg_place place = { .path = "" };
        int r;

        if (!cg_path_join(path, folder, name) || cg_rules_is_opened(rules, path))
                return 0;
        if ((r = cg_place_find(path, &place, err)) < 0 ||
            (r = cg_rules_keep_links(rules, &place, false, "mandatory", err)) < 0)
                return r;
        if (place.missing)
                place.folder = is_folder;
        if ((place.missing && !absent_too) || !cg_rules_may_write(rules, place.path))
                return 0;
        return cg_rules_add(rules, CG_RULE_DENY_WRITE, &place, "mandatory", err);
}
