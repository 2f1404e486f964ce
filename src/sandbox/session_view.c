/* Settings to what a kernel sees. */
#include "sandbox/session_view.h"

#include <stdio.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "sandbox/placeholder.h"
#include "sandbox/plan.h"
#include "sandbox/view.h"

/* As without settings, unless they say otherwise. */
static bool hides_credentials(const struct cg_settings *s)
{
        return !json_is_false(json_object_get(json_object_get(s->root, "cellgate"), "hideCredentials"));
}

static int unhex(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Fake content; in the rule, which owns it. */
static int read_data(const char *hex, struct cg_rule *rule, struct cg_err *err)
{
        size_t n = strlen(hex) / 2;

        rule->data = malloc(n + 1);
        if (!rule->data)
                return cg_fail(err, CG_E_NOMEM, "mask");
        for (size_t i = 0; i < n; i++) {
                int high = unhex(hex[2 * i]), low = unhex(hex[2 * i + 1]);

                if (high < 0 || low < 0)
                        return cg_fail(err, CG_E_PARSE, "mask: not hexadecimal");
                rule->data[i] = (char)(high << 4 | low);
        }
        rule->data[n] = '\0';
        rule->len = n;
        return 0;
}

static int add_mask(struct cg_rules *rules, const struct cg_path_base *base, const json_t *mask, struct cg_err *err)
{
        const char *hex = json_string_value(json_object_get(mask, "data"));
        char path[PATH_MAX];
        struct cg_place place;
        int e = cg_path_absolute(base, json_string_value(json_object_get(mask, "path")) ?: "", path, err);

        if (e == 0)
                e = cg_place_find(path, &place, err);
        if (e < 0)
                return e;
        if (!place.missing)
                e = cg_rules_add(rules, hex ? CG_RULE_MASK : CG_RULE_DENY_READ, &place, "credentials.files", err);
        if (e == 0 && !place.missing && hex)
                e = read_data(hex, &rules->v[rules->n - 1], err);
        cg_place_fini(&place);
        return e;
}

int cg_session_view(struct cg_sandbox *plan, const struct cg_settings *s, const json_t *masks, const char *workspace, const char *home,
                    struct cg_err *err)
{
        struct cg_path_base base = {.cwd = workspace, .home = home};
        struct cg_rules rules = {0};
        int e = cg_rules_make(s, &base, &rules, err);

        plan->by_settings = true;
        for (size_t i = 0; i < json_array_size(masks) && e == 0 && !rules.off; i++)
                e = add_mask(&rules, &base, json_array_get(masks, i), err);
        /* A workspace that lies in a private place, such as /tmp, is there all the same; without rules it may be written. */
        if (e == 0 && rules.off)
                e = cg_sandbox_add_write(plan, workspace, err);
        else if (e == 0 && cg_view_state(&rules, workspace) == CG_VIEW_READ)
                e = cg_sandbox_add_bind_ro(plan, workspace, workspace, err);
        if (e == 0)
                e = cg_view_add(plan, &rules, err);
        cg_rules_fini(&rules);
        if (e == 0 && hides_credentials(s))
                e = cg_sandbox_add_default_hides(plan, home, err);
        return e;
}

/* What stands in the workspace and is obeyed by programs outside of it cannot be changed. */
static int add_present(struct cg_sandbox *plan, const char *workspace, struct cg_err *err)
{
        struct cg_rules rules = {0};
        struct cg_place place;
        int e = cg_place_find(workspace, &place, err);

        if (e == 0) {
                e = cg_rules_add(&rules, CG_RULE_ALLOW_WRITE, &place, "workspace", err);
                if (e == 0)
                        e = cg_rules_add_present(&rules, place.path, err);
                if (e == 0)
                        e = cg_rules_add_hardlinks(&rules, err);
                if (e == 0)
                        e = cg_view_add(plan, &rules, err);
                cg_place_fini(&place);
        }
        cg_rules_fini(&rules);
        return e;
}

int cg_session_view_default(struct cg_sandbox *plan, const char *workspace, const char *home, struct cg_err *err)
{
        cg_auto_free char *dotenv = NULL;
        int e = cg_sandbox_add_write(plan, workspace, err);

        if (e == 0)
                e = add_present(plan, workspace, err);
        if (e == 0)
                e = cg_sandbox_add_default_hides(plan, home, err);
        if (e == 0 && asprintf(&dotenv, "%s/.env", workspace) < 0) {
                dotenv = NULL;
                return cg_fail(err, CG_E_NOMEM, "sandbox: view");
        }
        return e == 0 ? cg_sandbox_add_hide(plan, dotenv, err) : e;
}

/* FNV-1a */
static uint64_t mix(uint64_t h, const void *data, size_t len)
{
        for (size_t i = 0; i < len; i++)
                h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
        return h;
}

static uint64_t mix_path(uint64_t h, int kind, const char *path)
{
        struct {
                uint64_t dev, ino;
        } id = {0};
        struct stat st;

        if (lstat(path, &st) == 0 && !cg_placeholder_is(path, &st)) {
                id.dev = st.st_dev;
                id.ino = st.st_ino;
        }
        h = mix(h, &kind, sizeof(kind));
        h = mix(h, path, strlen(path) + 1);
        return mix(h, &id, sizeof(id));
}

uint64_t cg_session_view_print(const struct cg_sandbox *plan)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < plan->n_mounts; i++)
                h = mix_path(h, (int)plan->mounts[i].kind, plan->mounts[i].path);
        for (size_t i = 0; i < plan->n_hides; i++)
                h = mix_path(h, -1, plan->hides[i]);
        return h;
}

int cg_session_view_tidy(const struct cg_settings *s, const char *workspace, const char *home, struct cg_err *err)
{
        struct cg_sandbox *plan = NULL;
        int e = cg_sandbox_new(&plan, err);

        if (e == 0 && s)
                e = cg_session_view(plan, s, NULL, workspace, home, err);
        else if (e == 0)
                e = cg_session_view_default(plan, workspace, home, err);
        if (e == 0)
                cg_placeholders_remove(plan, NULL);
        cg_sandbox_free(plan);
        return e;
}
