/*
 * cellgate-supervisor: paths that no kernel may write. The code of the environment that the host
 * has chosen runs in the zygote, outside of any sandbox: a session whose cells could write there,
 * or in its base Python, is refused before the zygote is started with it.
 */
#include "supervisor/protected.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "base/util.h"
#include "config.h"
#include "sandbox/plan.h"
#include "sandbox/settings/kernel_view.h"
#include "supervisor/server_files_int.h"
#include "supervisor/server_guards.h"
#include "supervisor/state.h"
#include "supervisor/sup.h"

/*
 * Refuses @path, a real path, if it or anything in it can be written by cells. Private folders hide
 * what is in them.
 */
static int check_path(const struct session *ss, const struct cg_sandbox *plan, const char *path,
                      struct cg_err *err)
{
        const struct cg_plan_mount *top = cg_plan_mount_at(plan, path);
        bool written = false;

        for (size_t i = 0; i < plan->n_mounts && !written; i++) {
                const struct cg_plan_mount *m = &plan->mounts[i];

                written = m->kind == CG_PLAN_WRITE && cg_path_within(m->path, path);
        }
        if (!written && !(top ? top->kind == CG_PLAN_WRITE : plan->root_writable))
                return 0;
        return cg_fail(
                err, CG_E_INVAL,
                "environment %s: cells could write %s, and code in it runs outside of the sandbox as well. Use one "
                "elsewhere: `cellgate env create NAME` makes it; or name it in filesystem.denyWrite of the settings of all sessions here",
                ss->sup->kernel_env, path);
}

/*
 * True if an installer (uv, conda) made the environment of hard links to a cache: then the METADATA
 * of each package is one. The other files are not examined, because this runs for every kernel.
 */
static bool is_linked(const char *env)
{
        char path[PATH_MAX];
        const struct dirent *d;
        bool linked = false;
        struct stat st;
        DIR *dir;

        snprintf(path, sizeof(path), "%s/lib/python" CG_PYTHON_VERSION "/site-packages", env);
        dir = opendir(path);
        while (dir && !linked && (d = readdir(dir))) {
                const char *end = strrchr(d->d_name, '.');

                snprintf(path, sizeof(path), "%s/METADATA", d->d_name);
                linked = end && strcmp(end, ".dist-info") == 0 && fstatat(dirfd(dir), path, &st, 0) == 0 &&
                         st.st_nlink > 1;
        }
        if (dir)
                closedir(dir);
        return linked;
}

json_t *cg_sup_protected_paths(const struct sup *s)
{
        cg_auto_json json_t *places = cg_own_places(cg_sup_home());
        json_t *list = cg_sup_server_guards(s);
        cg_auto_free char *base = NULL;

        json_array_extend(list, places);
        if (s->kernel_env)
                json_array_append_new(list, json_string(s->kernel_env));
        if (s->kernel_env && cg_kernel_env_base(s->kernel_env, &base, NULL) == 0 && base)
                json_array_append_new(list, json_string(base));
        if (is_linked(s->kernel_env ? s->kernel_env : CG_INSTALLED(CG_KERNEL_ENV)) &&
            !cg_sup_list_has(list, json_true()))
                json_array_append_new(list, json_true());
        return list;
}

int cg_sup_protected_check(const struct session *ss, struct cg_err *err)
{
        const char *env = ss->sup->kernel_env, *home = cg_sup_home();
        const struct cg_settings *s = ss->settings;
        cg_auto_json json_t *places = NULL;
        cg_auto_free char *base = NULL;
        struct cg_sandbox *plan = NULL;
        char lib[PATH_MAX + 8], real[PATH_MAX], own[PATH_MAX];
        const json_t *place;
        size_t i;
        int r = env ? cg_kernel_env_check(env, err) : 0;

        if (r < 0 || !cg_sup_is_sandboxed(ss))
                return r;
        /*
         * A place of cellgate's own must not be a workspace: it would be as if it were not
         * protected.
         */
        places = realpath(ss->workspace, real) ? cg_own_places(home) : NULL;
        json_array_foreach(places, i, place)
        {
                if (realpath(json_string_value(place), own) && cg_path_within(real, own))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "workspace %s: cellgate keeps files of its own in %s, which cells must not change; "
                                "choose another folder",
                                ss->workspace, own);
        }
        if (!env)
                return 0;
        /* Without guards: they protect paths from this session only, not from others. */
        r = cg_sandbox_new(&plan, err);
        if (r == 0)
                r = s ? cg_session_view(plan, s, NULL, ss->workspace, home, NULL, true, err)
                      : cg_session_view_default(plan, ss->workspace, home, NULL, true, err);
        if (r == 0)
                r = check_path(ss, plan, env, err);
        if (r == 0)
                r = cg_kernel_env_base(env, &base, err);
        if (r == 0 && base)
                r = check_path(ss, plan, base, err);
        if (r == 0 && base && strrchr(base, '/') != base) {
                snprintf(lib, sizeof(lib), "%.*s/lib", (int)(strrchr(base, '/') - base), base);
                r = check_path(ss, plan, lib, err);
        }
        cg_sandbox_free(plan);
        return r;
}
