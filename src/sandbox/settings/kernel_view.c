/* The view of files that a kernel has by its settings. */
#include "sandbox/settings/kernel_view.h"

#include "base/account.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "sandbox/plan.h"
#include "sandbox/settings/git_settings.h"
#include "sandbox/settings/view.h"

/* Each is a mount. */
#define HOME_MAX 2000

/* @mask: "path", and the fake content in hexadecimal as "data"; without it the file is hidden. */
static int add_mask(struct cg_rules *rules, const struct cg_path_base *base, const json_t *mask,
                    struct cg_err *err)
{
        const char *hex = json_string_value(json_object_get(mask, "data"));
        size_t n = hex ? strlen(hex) / 2 : 0;
        cg_auto_place struct cg_place place = { .path = "" };
        char path[PATH_MAX];
        struct cg_rule *rule;
        int r = cg_path_absolute(base, cg_json_text_of(mask, "path"), path, err);

        if (r < 0 || (r = cg_place_find(path, &place, err)) < 0)
                return r;
        if (place.missing)
                return cg_rules_hide_closed(rules, place.path, "credentials.files", err);
        r = cg_rules_add(rules, hex ? CG_RULE_MASK : CG_RULE_DENY_READ, &place, "credentials.files", err);
        if (r < 0 || !hex)
                return r;
        rule = &rules->v[rules->n - 1];
        rule->data = malloc(n + 1);
        if (!rule->data)
                return cg_fail(err, CG_E_NOMEM, "mask");
        for (size_t i = 0; i < n; i++) {
                int high = cg_hex_digit(hex[2 * i]), low = cg_hex_digit(hex[2 * i + 1]);

                if (high < 0 || low < 0)
                        return cg_fail(err, CG_E_PARSE, "mask: not hexadecimal");
                rule->data[i] = (char)(high << 4 | low);
        }
        rule->data[n] = '\0';
        rule->len = n;
        return 0;
}

/* The workspace, with its links followed, unless it has none: then it is itself or nothing. */
static int add_write(struct cg_sandbox *plan, const struct cg_path_base *base, struct cg_err *err)
{
        int r = cg_sandbox_add_write(plan, base->cwd, err);

        if (r < 0 || !base->real)
                return r;
        for (size_t i = 0; i < plan->n_mounts; i++)
                if (plan->mounts[i].kind == CG_PLAN_WRITE && strcmp(plan->mounts[i].src, base->cwd) == 0)
                        return 0;
        return cg_fail(err, CG_E_STATE, "sandbox: the workspace is not the folder %s any more", base->cwd);
}

int cg_session_view(struct cg_sandbox *plan, const struct cg_settings *s, const json_t *masks,
                    const struct cg_path_base *base, const json_t *guards, struct cg_err *err)
{
        cg_auto_rules struct cg_rules rules = { 0 };
        int r = cg_session_rules(s, base, guards, &rules, err);

        plan->set.by_settings = true;
        for (size_t i = 0; i < json_array_size(masks) && r == 0 && !rules.off; i++)
                r = add_mask(&rules, base, json_array_get(masks, i), err);
        if (r < 0)
                return r;
        /* A workspace in /tmp or another private folder is visible; writable without rules. */
        if (rules.off)
                r = add_write(plan, base, err);
        else if (cg_view_state(&rules, base->cwd) == CG_VIEW_READ)
                r = cg_sandbox_add_bind_ro(plan, base->cwd, base->cwd, err);
        if (r < 0 || (r = cg_view_add(plan, &rules, err)) < 0)
                return r;
        if (base->by_name && !rules.off &&
            (r = cg_sandbox_set_names(plan, s->own.writable_names.v, s->own.writable_names.n,
                                      s->filesystem.allow_git_config, err)) < 0)
                return r;
        if (s->own.has_hide_credentials && !s->own.hide_credentials)
                return 0;
        return cg_sandbox_add_default_hides(plan, base->home, rules.homes, err);
}

/*
 * A home folder has files that the user's shell and desktop run (.profile, .config/autostart, bin),
 * or would run if they existed (.bash_profile). So only existing files and folders may be written
 * whose names begin with no dot and are not in this list; no new ones can be made.
 */
static const char *const runs[] = { "bin",       "sbin",       "go",         "perl5",      "node_modules",
                                    "anaconda3", "miniconda3", "miniforge3", "mambaforge", "micromamba" };

static bool is_open(int dir, const char *name)
{
        struct stat st;

        if (name[0] == '.')
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(runs); i++)
                if (strcmp(name, runs[i]) == 0)
                        return false;
        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && st.st_uid == geteuid();
}

static int allow_open(struct cg_rules *rules, const char *home, struct cg_err *err)
{
        cg_auto_dir DIR *dir = opendir(home);
        const struct dirent *d;
        struct cg_place place;
        char path[PATH_MAX];
        size_t n = 0;
        int r = 0;

        if (!dir)
                return cg_fail_errno(err, "sandbox: workspace %s", home);
        while (r == 0 && (d = readdir(dir))) {
                if (!is_open(dirfd(dir), d->d_name) ||
                    snprintf(path, sizeof(path), "%s/%s", home, d->d_name) >= (int)sizeof(path))
                        continue;
                if (++n > HOME_MAX) {
                        r = cg_fail(
                                err, CG_E_LIMIT,
                                "sandbox: the workspace is the home folder %s, and more than %d files and folders are "
                                "in it: choose a folder of its own",
                                home, HOME_MAX);
                        break;
                }
                r = cg_place_find(path, &place, err);
                if (r == 0 && !place.missing)
                        r = cg_rules_add(rules, CG_RULE_ALLOW_WRITE, &place, "workspace", err);
                cg_place_fini(&place);
        }
        return r;
}

/* The whole disk holds the homes of all users, wherever they are. */
static enum cg_holds_home holds_home(const char *workspace, const char *home)
{
        char h[PATH_MAX];

        if (!workspace[1])
                return CG_IS_ABOVE_HOME;
        if (!home || !realpath(home, h) || !cg_path_within(h, workspace))
                return CG_HOLDS_NO_HOME;
        return strcmp(h, workspace) == 0 ? CG_IS_HOME : CG_IS_ABOVE_HOME;
}

enum cg_holds_home cg_session_view_holds_home(const char *workspace, const char *home)
{
        char w[PATH_MAX], account[PATH_MAX];
        enum cg_holds_home by_variable, by_account;

        if (!realpath(workspace, w))
                return CG_HOLDS_NO_HOME;
        by_variable = holds_home(w, home);
        by_account = holds_home(w, cg_account_home(account));
        return CG_MAX(by_account, by_variable);
}

static int add_workspace(struct cg_rules *rules, const struct cg_place *place, enum cg_holds_home holds,
                         struct cg_err *err)
{
        if (holds == CG_IS_HOME)
                return allow_open(rules, place->path, err);
        return cg_rules_add(rules, CG_RULE_ALLOW_WRITE, place, "workspace", err);
}

/* Denies changing files of the workspace that programs outside obey. */
static int default_rules(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err)
{
        enum cg_holds_home holds = cg_session_view_holds_home(base->cwd, base->home);
        cg_auto_place struct cg_place place = { .path = "" };
        int r = cg_place_find(base->cwd, &place, err);

        if (r < 0 || (r = cg_place_check(&place, base, err)) < 0 || holds == CG_IS_ABOVE_HOME)
                return r;
        if ((r = add_workspace(rules, &place, holds, err)) < 0 ||
            (r = cg_rules_add_present(rules, place.path, true, err)) < 0 ||
            (!base->by_name && (r = cg_rules_add_found(rules, place.path, err)) < 0) ||
            (r = cg_rules_add_homes(rules, base->home, true, err)) < 0 ||
            (r = cg_git_deny_user(rules, NULL, err)) < 0 || (r = cg_git_deny_variables(rules, err)) < 0 ||
            (r = cg_rules_add_path_folders(rules, err)) < 0 || (r = cg_rules_add_nested(rules, err)) < 0)
                return r;
        return cg_rules_add_own(rules, err);
}

int cg_session_say_path_folders(const struct cg_settings *s, const struct cg_path_base *base,
                                struct cg_buf *ret, struct cg_err *err)
{
        cg_auto_rules struct cg_rules rules = { .base = base, .by_name = base->by_name };
        enum cg_holds_home holds = s ? CG_HOLDS_NO_HOME : cg_session_view_holds_home(base->cwd, base->home);
        cg_auto_place struct cg_place place = { .path = "" };
        int r = s ? cg_rules_make_roots(s, base, &rules, err) : cg_place_find(base->cwd, &place, err);

        if (r < 0)
                return r;
        if (!s && holds != CG_IS_ABOVE_HOME && (r = add_workspace(&rules, &place, holds, err)) < 0)
                return r;
        if (!rules.off && (r = cg_rules_add_path_folders(&rules, err)) < 0)
                return r;
        cg_rules_say_path_folders(&rules, "cells", ret);
        return cg_buf_end(ret, err);
}

int cg_session_rules(const struct cg_settings *s, const struct cg_path_base *base, const json_t *guards,
                     struct cg_rules *ret, struct cg_err *err)
{
        cg_auto_rules struct cg_rules rules = { .base = base,
                                                .by_name = base->by_name,
                                                .by_inode = base->by_inode };
        int r = s ? cg_rules_make(s, base, &rules, err) : default_rules(&rules, base, err);

        if (r < 0)
                return r;
        if (!rules.off &&
            ((r = cg_rules_add_guards(&rules, guards, err)) < 0 ||
             ((!s || json_array_size(guards)) && (r = cg_rules_add_hardlinks(&rules, err)) < 0)))
                return r;
        rules.base = NULL;
        *ret = rules;
        rules = (struct cg_rules){ 0 };
        return 0;
}

int cg_session_view_default(struct cg_sandbox *plan, const struct cg_path_base *base, const json_t *guards,
                            struct cg_err *err)
{
        cg_auto_rules struct cg_rules rules = { 0 };
        char real[PATH_MAX];
        int r = cg_session_rules(NULL, base, guards, &rules, err);

        if (r < 0)
                return r;
        if (cg_session_view_holds_home(base->cwd, base->home) == CG_HOLDS_NO_HOME)
                r = add_write(plan, base, err);
        /* It is visible, also in a folder of which the sandbox has its own, such as /tmp. */
        else if (realpath(base->cwd, real) && real[1])
                r = cg_sandbox_add_bind_ro(plan, real, real, err);
        if (r < 0 || (r = cg_view_add(plan, &rules, err)) < 0 ||
            (base->by_name && (r = cg_sandbox_set_names(plan, NULL, 0, false, err)) < 0) ||
            (r = cg_sandbox_add_default_hides(plan, base->home, rules.homes, err)) < 0)
                return r;
        return cg_sandbox_add_hides_below(plan, base->cwd, err);
}

uint64_t cg_session_view_print(const struct cg_sandbox *plan)
{
        uint64_t h = CG_FNV1A;

        for (size_t i = 0; i < plan->n_mounts; i++) {
                const char *path = plan->mounts[i].path;
                int kind = (int)plan->mounts[i].kind;
                struct {
                        uint64_t dev, ino;
                } id = { 0 };
                struct stat st;

                if (lstat(path, &st) == 0) {
                        id.dev = st.st_dev;
                        id.ino = st.st_ino;
                }
                h = cg_fnv1a(h, &kind, sizeof(kind));
                h = cg_fnv1a(h, path, strlen(path) + 1);
                h = cg_fnv1a(h, &id, sizeof(id));
        }
        for (size_t i = 0; i < plan->n_patterns; i++)
                h = cg_fnv1a(h, plan->patterns[i].text, strlen(plan->patterns[i].text) + 1);
        for (size_t i = 0; i < plan->n_programs; i++)
                h = cg_fnv1a(h, plan->programs[i], strlen(plan->programs[i]) + 1);
        for (size_t i = 0; plan->linked[i]; i++)
                h = cg_fnv1a(h, plan->linked[i], strlen(plan->linked[i]) + 1);
        h = cg_fnv1a(h, plan->unwritten.v, plan->unwritten.n * sizeof(*plan->unwritten.v));
        return h;
}
