/* cellgate-supervisor: whether an MCP server's own sandbox allows it more than cells may do. */
#include "supervisor/servers/internal.h"

#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/proc.h"
#include "base/util.h"
#include "sandbox/settings/view.h"
#include "sandbox/settings/settings.h"
#include "supervisor/core/state.h"

static int own_settings(const json_t *sandbox, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if (json_is_object(sandbox)) {
                *ret = json_incref((json_t *)(uintptr_t)sandbox);
                return 0;
        }
        if (!json_is_string(sandbox) ||
            cg_read_regular(json_string_value(sandbox), CG_MAX_SETTINGS, &text, &len, err) < 0)
                return CG_E_INVAL;
        return cg_json_object(text, len, json_string_value(sandbox), ret, err);
}

/*
 * Keys that allow more, or nothing. Cells may have them where a server does not; every other key of
 * the cells' settings is taken for a restriction.
 */
static const char *const allowing[] = { "allowUnixSockets",
                                        "allowAllUnixSockets",
                                        "allowLocalBinding",
                                        "allowMachLookup",
                                        "deniedDomainReasons",
                                        "allowPlaintextHeaderSet",
                                        "ports",
                                        "privateAddresses",
                                        "writableNames",
                                        "violationLog",
                                        "watchFiles",
                                        "ignoreViolations",
                                        "git",
                                        "enableWeakerNestedSandbox",
                                        "allowNestedUserNamespaces",
                                        "ripgrep",
                                        "seccomp",
                                        "bwrapPath",
                                        "socatPath",
                                        "javaAgentJarPath",
                                        "enableWeakerNetworkIsolation",
                                        "allowAppleEvents",
                                        "allowPty",
                                        "windows",
                                        NULL };

static bool is_in(const char *const *list, const char *key)
{
        for (; *list; list++)
                if (strcmp(*list, key) == 0)
                        return true;
        return false;
}

static bool says_nothing(const json_t *v)
{
        return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v));
}

/*
 * True if the members of @o, except @except (ends with NULL), are as the cells', and with
 * @restricted also if @o has all members of @cells that restrict. If not, *which is a key.
 */
static bool same_but(const json_t *o, const json_t *cells, bool restricted, const char *const *except,
                     const char **which)
{
        const json_t *objects[] = { o, cells };
        const char *key;
        json_t *v;

        for (size_t i = 0; i < 1u + restricted; i++) {
                json_object_foreach((json_t *)(uintptr_t)objects[i], key, v)
                {
                        const json_t *other = json_object_get(objects[1 - i], key);

                        if (says_nothing(v) || is_in(except, key) || json_equal(v, other) ||
                            (i == 1 && says_nothing(other) && is_in(allowing, key)))
                                continue;
                        *which = key;
                        return false;
                }
        }
        return true;
}

static bool network_is_wider(const json_t *own, const json_t *kernel, char *why, size_t size)
{
        static const char *const lists[] = { "allowedDomains", "deniedDomains", NULL };
        json_t *allowed = json_object_get(own, "allowedDomains"), *v;
        const char *which;
        size_t i;

        /* Without hosts that it may reach, restrictions of the cells' connections do not matter. */
        if (!same_but(own, kernel, json_array_size(allowed) > 0, lists, &which)) {
                snprintf(why, size, "network.%s is not as the cells'", which);
                return true;
        }
        json_array_foreach(allowed, i, v) if (!cg_sup_list_has(json_object_get(kernel, "allowedDomains"), v))
        {
                snprintf(why, size, "it may reach %.200s", json_string_value(v) ?: "?");
                return true;
        }
        json_array_foreach(json_object_get(kernel, "deniedDomains"), i,
                           v) if (json_array_size(allowed) &&
                                  !cg_sup_list_has(json_object_get(own, "deniedDomains"), v))
        {
                snprintf(why, size, "%.200s is denied to cells only", json_string_value(v) ?: "?");
                return true;
        }
        return false;
}

static bool files_are_wider(const struct check *c, const struct cg_settings *s, char *why, size_t size)
{
        struct cg_path_base base = { .cwd = json_string_value(json_object_get(c->def, "base")) ?: c->cwd,
                                     .home = c->scope->home };
        const json_t *hide = json_object_get(c->views[0].options, "hide"), *v;
        const struct cg_rules *cells = &c->views[0].rules;
        struct cg_rules rules = { .off = false };
        const char *workspace = c->views[0].workspace;
        char path[PATH_MAX + 8];
        bool wider = true;
        struct cg_err err;
        size_t i;

        if (cg_rules_make(s, &base, &rules, &err) < 0) {
                snprintf(why, size, "its settings: %.400s", err.msg);
                return true;
        }
        if (rules.off) {
                snprintf(why, size, "its files are not restricted");
                goto end;
        }
        for (i = 0; i < rules.n; i++)
                if (rules.v[i].kind == CG_RULE_ALLOW_WRITE && strcmp(rules.v[i].why, "default") != 0 &&
                    !cg_sup_file_is_open(c, rules.v[i].path)) {
                        snprintf(why, size, "it may write %.400s", rules.v[i].path);
                        goto end;
                }
        for (i = 0; i < cells->n; i++)
                if (cells->v[i].kind == CG_RULE_DENY_READ &&
                    cg_view_state(cells, cells->v[i].path) == CG_VIEW_HIDDEN &&
                    cg_view_state(&rules, cells->v[i].path) != CG_VIEW_HIDDEN) {
                        snprintf(why, size, "it may read %.400s", cells->v[i].path);
                        goto end;
                }
        json_array_foreach((json_t *)(uintptr_t)hide, i,
                           v) if (cg_sup_path_is_present(json_string_value(v)) &&
                                  cg_view_state(&rules, json_string_value(v)) != CG_VIEW_HIDDEN)
        {
                snprintf(why, size, "it may read %.400s", json_string_value(v));
                goto end;
        }
        snprintf(path, sizeof(path), "%s/.env", workspace);
        if (!json_object_get(c->views[0].options, "settings") && cg_sup_path_is_present(path) &&
            cg_view_state(&rules, path) != CG_VIEW_HIDDEN) {
                snprintf(why, size, "it may read %.400s", path);
                goto end;
        }
        wider = false;
end:
        cg_rules_fini(&rules);
        return wider;
}

bool cg_sup_server_sandbox_is_wider(const struct check *c, char *why, size_t size)
{
        static const char *const sections[] = { "network", "filesystem", "cellgate", "credentials", NULL };
        static const char *const harmless[] = { "limits", "hideCredentials", "exec", NULL };
        const json_t *kernel = json_object_get(c->views[0].options, "settings"), *hide;
        cg_auto_json json_t *own = NULL;
        cg_auto_settings struct cg_settings *s = NULL;
        const char *which, *name;
        struct cg_err err;
        json_t *v;

        if (own_settings(json_object_get(c->def, "sandbox"), &own, &err) < 0 ||
            cg_settings_read(own, "sandbox settings", 0, &s, &err) < 0) {
                snprintf(why, size, "its settings: %.400s", err.msg);
                return true;
        }
        if (!same_but(own, kernel, true, sections, &which) ||
            !same_but(json_object_get(own, "cellgate"), json_object_get(kernel, "cellgate"), true, harmless,
                      &which)) {
                snprintf(why, size, "\"%s\" is not as the cells'", which);
                return true;
        }
        if (cg_sup_exec(c->views[0].options) != CG_EXEC_ALLOW) {
                snprintf(why, size, "it may start programs, which cells may not");
                return true;
        }
        hide = json_object_get(json_object_get(kernel, "cellgate"), "hideCredentials");
        if (!json_is_false(hide) &&
            !json_is_true(json_object_get(json_object_get(own, "cellgate"), "hideCredentials"))) {
                snprintf(why, size,
                         "it may read credentials, unless it has \"cellgate\": {\"hideCredentials\": "
                         "true}");
                return true;
        }
        json_object_foreach(json_object_get(c->def, "env"), name, v) if (!cg_proc_env_passes(name))
        {
                snprintf(why, size, "it has the variable %.100s, which cells do not have", name);
                return true;
        }
        return network_is_wider(json_object_get(own, "network"), json_object_get(kernel, "network"), why,
                                size) ||
               files_are_wider(c, s, why, size);
}
