/*
 * cellgate-supervisor: paths that no kernel may write. The code of the environment that the host
 * has chosen runs in the zygote, outside of any sandbox: a session whose cells could write there,
 * or in its base Python, is refused before the zygote is started with it.
 */
#include "supervisor/servers/protected.h"

#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "config.h"
#include "sandbox/plan.h"
#include "sandbox/settings/homes.h"
#include "sandbox/settings/kernel_view.h"
#include "sandbox/settings/paths.h"
#include "supervisor/servers/internal.h"
#include "supervisor/servers/guards.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* A folder or file that programs outside of the sandbox obey, and the sandbox of the cells. */
struct obeyed {
        const struct cg_sandbox *plan;
        const char *what, *name; /* "policy file", "/a/policy.json" */
        const char *why;         /* it must not be writable, and what to do */
};

/*
 * Refuses @path, a real path, if it or anything in it can be written by cells. Private folders hide
 * what is in them.
 */
static int check_path(const struct obeyed *o, const char *path, struct cg_err *err)
{
        const struct cg_sandbox *plan = o->plan;
        const struct cg_plan_mount *top = cg_plan_mount_at(plan, path);
        bool written = top ? top->kind == CG_PLAN_WRITE : plan->set.root_writable;

        for (size_t i = 0; i < plan->n_mounts && !written; i++)
                written = plan->mounts[i].kind == CG_PLAN_WRITE && cg_path_within(plan->mounts[i].path, path);
        if (!written)
                return 0;
        return cg_fail(err, CG_E_INVAL, "%s %s: cells could write %s, and %s", o->what, o->name, path,
                       o->why);
}

/*
 * Refuses @path, however it is spelled, if cells can write it or redirect a symlink on the way to
 * it: the zygote is started again long after the check.
 */
static int check_spelled(const struct obeyed *o, const char *path, struct cg_err *err)
{
        cg_auto_place struct cg_place place = { .path = "" };
        int r = cg_place_find(path, &place, err);

        if (r < 0)
                return cg_err_prefix(err, "%s %s", o->what, o->name);
        for (size_t i = 0; i < place.n_links; i++)
                if ((r = check_path(o, place.links[i], err)) < 0)
                        return r;
        return check_path(o, place.path, err);
}

/* Refuses the folder of programs @bin of a Python, and the library folder beside it. */
static int check_python(const struct obeyed *o, const char *bin, struct cg_err *err)
{
        char real[PATH_MAX], lib[PATH_MAX + 8];
        int r = check_spelled(o, bin, err);

        if (r < 0 || !realpath(bin, real) || strrchr(real, '/') == real)
                return r;
        snprintf(lib, sizeof(lib), "%.*s/lib", (int)(strrchr(real, '/') - real), real);
        return check_path(o, lib, err);
}

/*
 * The environment, its base Python as pyvenv.cfg spells it, and in a wheel the interpreter, which
 * is a symlink to that Python's or to another one's.
 */
static int check_environment(const struct cg_sandbox *plan, const char *env, struct cg_err *err)
{
        const struct obeyed o = {
                plan, "environment", env,
                "code in it runs outside of the sandbox as well. Use one elsewhere: `cellgate env create NAME` makes it; "
                "or name it in filesystem.denyWrite of the settings of all sessions here"
        };
        char path[PATH_MAX], real[PATH_MAX];
        int r = check_path(&o, env, err);

        if (r < 0)
                return r;
        if (CG_WHEEL && cg_path_join(path, env, "bin/python")) {
                r = check_spelled(&o, path, err);
                if (r < 0)
                        return r;
                if (realpath(path, real)) {
                        *strrchr(real, '/') = '\0';
                        r = check_python(&o, real, err);
                        if (r < 0)
                                return r;
                }
        }
        if (cg_pyvenv_home(env, path, sizeof(path)) && (r = check_python(&o, path, err)) < 0)
                return r;
        for (size_t i = 0; cg_kernel_env_system_packages(env, i, path); i++)
                if ((r = check_spelled(&o, path, err)) < 0)
                        return r;
        return 0;
}

/* The cells of no session may write it. */
static int check_file(const struct session *ss, const struct cg_sandbox *plan, const char *what,
                      const char *path, struct cg_err *err)
{
        const struct obeyed o = { plan, what, path,
                                  "the next session would obey that; move it to another folder" };

        return check_spelled(&o, path, err) ?: cg_sup_server_files_check_others(ss, what, path, err);
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
        cg_auto_dir DIR *dir = cg_kernel_env_packages(env, path) ? opendir(path) : NULL;

        while (dir && !linked && (d = readdir(dir))) {
                const char *end = strrchr(d->d_name, '.');

                snprintf(path, sizeof(path), "%s/METADATA", d->d_name);
                linked = end && strcmp(end, ".dist-info") == 0 && fstatat(dirfd(dir), path, &st, 0) == 0 &&
                         st.st_nlink > 1;
        }
        return linked;
}

json_t *cg_sup_protected_paths(const struct sup *s)
{
        cg_auto_json json_t *places = cg_own_places(s->setup.home, s->setup.env);
        const char *env = s->setup.kernel_env ?: CG_INSTALLED(CG_KERNEL_ENV);
        json_t *list = cg_sup_server_guards(s);
        cg_auto_free char *base = NULL;
        char lib[PATH_MAX] = "/nonexistent";

        json_array_extend(list, places);
        if (s->setup.kernel_env)
                json_array_append_new(list, json_string(env));
        if (cg_kernel_env_base(env, &base, NULL) == 0 && base)
                snprintf(lib, sizeof(lib), "%s/../lib/python%s", base,
                         cg_kernel_env_own_version((char[16]){ "" }));
        if (s->setup.kernel_env && base)
                json_array_append_new(list, json_string(base));
        if (is_linked(env))
                json_array_append_new(list, json_pack("[ss]", env, lib));
        return list;
}

const json_t *cg_sup_homes(struct sup *s)
{
        if (!s->setup.homes || !cg_stamps_hold(&s->setup.home_stamps)) {
                cg_stamps_fini(&s->setup.home_stamps);
                json_decref(s->setup.homes);
                s->setup.homes = cg_homes_scan(s->setup.home, &s->setup.home_stamps);
        }
        return s->setup.homes;
}

int cg_sup_protected_check(const struct session *ss, struct cg_err *err)
{
        const char *env = ss->sup->setup.kernel_env;
        struct cg_path_base base = cg_sup_paths_of(ss, true);
        cg_auto_sandbox struct cg_sandbox *plan = NULL;
        const json_t *files = json_object_get(ss->options, "policy_files"),
                     *kernel = json_object_get(ss->options, "language_spec"), *file;
        size_t i;
        int r = env ? cg_kernel_env_check(env, err) : 0;

        if (r < 0 || !cg_sup_is_sandboxed(ss) ||
            (r = cg_own_check_workspace(ss->workspace, &base, err)) < 0 || (!env && !files && !kernel))
                return r;
        /* Without guards: they protect paths from this session only, not from others. */
        r = cg_sandbox_new(&plan, err);
        if (r < 0)
                return r;
        r = ss->settings ? cg_session_view(plan, ss->settings, NULL, &base, NULL, err)
                         : cg_session_view_default(plan, &base, NULL, err);
        if (r < 0 || (env && (r = check_environment(plan, env, err)) < 0))
                return r;
        json_array_foreach(files, i, file)
                if ((r = check_file(ss, plan, "policy file", json_string_value(file), err)) < 0)
                        return r;
        return kernel ? check_file(ss, plan, "kernelspec", cg_json_text_of(kernel, "file"), err) : 0;
}
