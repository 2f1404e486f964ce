/*
 * Folders of PATH that are in write roots: shells and other programs outside of the sandbox look
 * for programs there, so a sandbox could put a program under any name there.
 */
#include "sandbox/settings/rules.h"

#include "base/user_env.h"
#include "sandbox/plan.h"

/* "FOLDER/NAME", or "NAME" at the top: as cg_names_match() finds it in @path. */
static const char *short_name(const char *path)
{
        const char *last = strrchr(path, '/'), *above = last;

        while (above > path && above[-1] != '/')
                above--;
        return above > path ? above : last + 1;
}

static bool is_rule(const struct cg_rule *rule)
{
        return rule->kind == CG_RULE_DENY_WRITE && strncmp(rule->why, CG_WHY_PATH, strlen(CG_WHY_PATH)) == 0;
}

static int add_folder(struct cg_rules *rules, const struct cg_place *place, struct cg_err *err)
{
        char why[CG_RULES_WHY_MAX];

        for (size_t i = 0; i < rules->n; i++)
                if (is_rule(&rules->v[i]) && strcmp(rules->v[i].path, place->path) == 0)
                        return 0;
        cg_rules_why(why, CG_WHY_PATH, short_name(place->path));
        return cg_rules_add(rules, CG_RULE_DENY_WRITE, place, why, err);
}

static bool is_write_root(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && strcmp(rules->v[i].path, path) == 0)
                        return true;
        return false;
}

static int add_programs(struct cg_rules *rules, const char *path, struct cg_err *err)
{
        char **v;

        for (size_t i = 0; i < rules->n_programs; i++)
                if (strcmp(rules->programs[i], path) == 0)
                        return 0;
        v = realloc(rules->programs, (rules->n_programs + 1) * sizeof(*v));
        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox: rules");
        rules->programs = v;
        if (cg_asprintf(&v[rules->n_programs], "sandbox: rules", err, "%s", path) < 0)
                return -1;
        rules->n_programs++;
        return 0;
}

/*
 * A write root itself stays writable, but for programs. All other folders are read-only, and where
 * init decides they cannot be made.
 */
static int deny_folder(struct cg_rules *rules, const char *path, struct cg_err *err)
{
        cg_auto_place struct cg_place place = { .path = "" };
        int r;

        if (cg_rules_is_opened(rules, path))
                return 0;
        if (cg_place_find(path, &place, NULL) < 0)
                return 0; /* a loop of links, for example: nothing is found there */
        r = cg_rules_keep_links(rules, &place, true, CG_WHY_PATH, err);
        if (r < 0 || (place.missing ? !rules->by_name : !place.folder) ||
            !cg_rules_may_write(rules, place.path) || cg_rules_is_opened(rules, place.path))
                return r;
        if (is_write_root(rules, place.path))
                return add_programs(rules, place.path, err);
        place.folder = true;
        return add_folder(rules, &place, err);
}

/* An entry, at most one for each folder that it is relative to. */
static int deny_entry(struct cg_rules *rules, const char *entry, struct cg_err *err)
{
        const char *bases[] = { rules->base->cwd, cg_user_env_get(rules->base->env, CG_USER_ENV_CWD), NULL };
        char path[PATH_MAX];
        int r = 0;

        if (entry[0] == '/')
                return deny_folder(rules, entry, err);
        if (entry[0] == '~' && (!entry[1] || entry[1] == '/')) { /* bash expands it */
                bases[0] = rules->base->home;
                bases[1] = NULL;
                entry++;
        }
        for (size_t i = 0; bases[i] && r == 0; i++) {
                int n = snprintf(path, sizeof(path), "%s/%s", bases[i], entry);

                if (n > 0 && (size_t)n < sizeof(path))
                        r = deny_folder(rules, path, err);
        }
        return r;
}

int cg_rules_add_path_folders(struct cg_rules *rules, struct cg_err *err)
{
        const char *list = cg_user_env_get(rules->base->env, "PATH");
        char entry[PATH_MAX];
        int r = 0;

        while (list && r == 0) {
                const char *end = strchr(list, ':');
                size_t n = end ? (size_t)(end - list) : strlen(list);

                if (n < sizeof(entry)) {
                        memcpy(entry, list, n);
                        entry[n] = '\0';
                        r = deny_entry(rules, entry, err);
                }
                list = end ? end + 1 : NULL;
        }
        return r;
}

void cg_rules_say_path_folders(const struct cg_rules *rules, const char *who, struct cg_buf *ret)
{
        const char *first = NULL;

        for (size_t i = 0; i < rules->n; i++) {
                const char *path = rules->v[i].path;

                if (!is_rule(&rules->v[i]))
                        continue;
                if (first) {
                        cg_buf_addf(ret, ", %s", path);
                        continue;
                }
                cg_buf_addf(ret, "%s cannot write %s", who, path);
                first = path;
        }
        for (size_t i = 0; i < rules->n_programs; i++) {
                if (!i && !first)
                        cg_buf_addf(ret, "%s cannot put programs", who);
                else if (!i)
                        cg_buf_adds(ret, ", nor put programs");
                cg_buf_addf(ret, "%s %s", i ? " or" : " directly into", rules->programs[i]);
                first = first ?: rules->programs[i];
        }
        if (!first)
                return;
        cg_buf_addf(
                ret,
                ": these folders are in PATH, and programs there run outside of the sandbox. To allow it: "
                "add \"%s\" to cellgate.writableNames of a settings file",
                short_name(first));
}
