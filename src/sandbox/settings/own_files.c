/*
 * Files that run outside of any sandbox: cellgate's own, and those of MCP servers. A sandbox whose
 * write root is above them must not be able to replace them.
 */
#include "sandbox/settings/rules.h"

#include "base/account.h"
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "base/user_env.h"
#include "config.h"
#include "sandbox/plan.h"

/* The whole library folder, not only libcellgate: installed programs search it (RUNPATH). */
static const char *const own_folders[] = { CG_LIBEXECDIR, CG_LIBDIR "/cellgate", CG_DATADIR, CG_KERNEL_ENV };
static const char *const own_others[] = { CG_LIBDIR, CG_BINDIR "/cellgate", CG_BINDIR "/srt" };

/* True if the folder of programs has others, too: then only our programs are read-only. */
static bool shares_bin(void)
{
        cg_auto_dir DIR *dir = opendir(CG_INSTALLED(CG_BINDIR));
        const struct dirent *d;
        bool shared = false;

        while (dir && !shared && (d = readdir(dir)))
                shared = d->d_name[0] != '.' && strcmp(d->d_name, "cellgate") != 0 &&
                         strcmp(d->d_name, "srt") != 0;
        return shared;
}

/*
 * True if cells could write @path, which has no links, by this name or another; with @whole also if
 * they could write something in it.
 */
static bool concerns(const struct cg_rules *rules, const char *path, bool whole)
{
        struct stat st;

        if (cg_rules_may_write(rules, path))
                return true;
        for (size_t i = 0; i < rules->n && whole; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && cg_path_within(rules->v[i].path, path))
                        return true;
        /* hardlinks.c denies the other names of such a file. */
        return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1;
}

/* @whole: also if it has a write root. Links on the way to it are kept. */
static int deny(struct cg_rules *rules, const char *path, bool whole, const char *why, struct cg_err *err)
{
        cg_auto_place struct cg_place place = { .path = "" };
        int r;

        if ((r = cg_place_find(path, &place, err)) < 0 ||
            (r = cg_rules_keep_links(rules, &place, true, why, err)) < 0)
                return r;
        if (place.missing)
                place.folder = path[0] && path[strlen(path) - 1] == '/';
        if (!concerns(rules, place.path, whole))
                return 0;
        return cg_rules_add(rules, CG_RULE_DENY_WRITE, &place, why, err);
}

static int deny_present(struct cg_rules *rules, const char *path, bool whole, struct cg_err *err)
{
        char real[PATH_MAX];

        /* Without links on the way to it, its own place decides. */
        if (!cg_real_path(path, real) || (strcmp(real, path) == 0 && !concerns(rules, path, whole)))
                return 0;
        return deny(rules, path, whole, CG_WHY_OWN, err);
}

int cg_rules_add_own(struct cg_rules *rules, struct cg_err *err)
{
        char exe[PATH_MAX], home[PATH_MAX], lib[PATH_MAX + 64], *slash;
        ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(own_folders) && r == 0; i++)
                r = deny_present(rules, CG_INSTALLED(own_folders[i]), true, err);
        for (size_t i = 0; i < CG_ARRAY_LEN(own_others) && r == 0; i++)
                r = deny_present(rules, CG_INSTALLED(own_others[i]), false, err);
        if (r < 0 || (!shares_bin() && (r = deny_present(rules, CG_INSTALLED(CG_BINDIR), false, err)) < 0))
                return r;
        /* the program that runs, which may be a copy */
        exe[CG_MAX(n, 0)] = '\0';
        if (n > 0)
                r = deny_present(rules, exe, false, err);
        if (r < 0 || !cg_pyvenv_home(CG_INSTALLED(CG_KERNEL_ENV), home, sizeof(home)))
                return r;
        /*
         * The Python that the kernels' environment names as its base: its folder of programs, the
         * library folder beside that, and its standard library also where a write root is in it.
         */
        r = deny_present(rules, home, false, err);
        slash = strrchr(home, '/');
        if (r < 0 || slash == home)
                return r;
        *slash = '\0';
        snprintf(lib, sizeof(lib), "%s/lib", home);
        r = deny_present(rules, lib, false, err);
        snprintf(lib, sizeof(lib), "%s/lib/python%s", home, cg_kernel_env_own_version((char[16]){ "" }));
        return r ?: deny_present(rules, lib, true, err);
}

/* @base: a variable's value; NULL, "" and relative paths name no folder. */
static void add_path(json_t *list, const char *base, const char *rest)
{
        char path[PATH_MAX];
        int n = base && base[0] == '/' ? snprintf(path, sizeof(path), "%s%s", base, rest) : 0;

        if (n > 0 && (size_t)n < sizeof(path))
                json_array_append_new(list, json_string(path));
}

json_t *cg_own_places(const char *home, const json_t *env)
{
        char runtime[32], account[PATH_MAX];
        const char *const homes[] = { home, cg_account_home(account) };
        json_t *list = json_array();

        snprintf(runtime, sizeof(runtime), "/cellgate-%u/", (unsigned int)geteuid());
        add_path(list, "/tmp", runtime);
        add_path(list, "/var/tmp", runtime);
        add_path(list, cg_user_env_get(env, "XDG_RUNTIME_DIR"), runtime);
        add_path(list, cg_user_env_get(env, "XDG_DATA_HOME"), "/cellgate/");
        add_path(list, cg_user_env_get(env, "XDG_CACHE_HOME"), "/cellgate/");
        add_path(list, cg_user_env_get(env, "XDG_STATE_HOME"), "/cellgate/");
        for (size_t i = 0; i < CG_ARRAY_LEN(homes); i++) {
                if (i && home && homes[i] && strcmp(home, homes[i]) == 0)
                        continue;
                add_path(list, homes[i], "/.local/share/cellgate/");
                add_path(list, homes[i], "/.cache/cellgate/");
                add_path(list, homes[i], "/.local/state/cellgate/");
                add_path(list, homes[i], "/.srt-settings.json");
        }
        return list;
}

int cg_rules_add_places(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err)
{
        cg_auto_json json_t *places = cg_own_places(base->home, base->env);

        return cg_rules_add_guards(rules, places, err);
}

int cg_rules_add_guards(struct cg_rules *rules, const json_t *guards, struct cg_err *err)
{
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(guards, i, v) {
                rules->linked |= json_is_true(v) || (json_is_array(v) && !rules->by_name);
                if (json_is_array(v) && rules->by_inode)
                        rules->folders = v;
                if (r == 0 && json_is_string(v))
                        r = deny(rules, json_string_value(v), false, CG_WHY_GUARD, err);
        }
        return r;
}

bool cg_rule_is_program(const struct cg_rule *rule)
{
        return strcmp(rule->why, CG_WHY_OWN) == 0 || strcmp(rule->why, CG_WHY_GUARD) == 0;
}

static int refuse_workspace(const char *workspace, const char *what, const char *folder, struct cg_err *err)
{
        return cg_fail(err, CG_E_INVAL,
                       "workspace %s: %s in %s, which cells must not change; choose another folder",
                       workspace, what, folder);
}

int cg_own_check_workspace(const char *workspace, const struct cg_path_base *in, struct cg_err *err)
{
        static const char own_programs[] = "cellgate's own programs are",
                          python[] = "the Python that kernels run is";
        static const char *const jupyter[] = { ".jupyter", ".local/share/jupyter" };
        char w[PATH_MAX], own[PATH_MAX], account[PATH_MAX], base[PATH_MAX], path[PATH_MAX + 64];
        const char *const homes[] = { in->home, cg_account_home(account) };
        cg_auto_json json_t *places = cg_own_places(in->home, in->env);
        const json_t *v;
        size_t k;

        if (!cg_real_path(workspace, w))
                return cg_fail_errno(err, "workspace %s", workspace);
        for (size_t i = 0; i < CG_ARRAY_LEN(own_folders); i++)
                if (cg_real_path(CG_INSTALLED(own_folders[i]), own) && cg_path_within(w, own))
                        return refuse_workspace(workspace, own_programs, own, err);
        if (cg_real_path(CG_INSTALLED(CG_LIBDIR), own) && strcmp(w, own) == 0)
                return refuse_workspace(workspace, "cellgate's own library is", own, err);
        if ((cg_real_path(CG_INSTALLED(CG_BINDIR "/cellgate"), own) ||
             cg_real_path(CG_INSTALLED(CG_BINDIR), own)) &&
            strrchr(own, '/') != own) {
                *strrchr(own, '/') = '\0';
                if (strcmp(w, own) == 0)
                        return refuse_workspace(workspace, "the program cellgate itself is", own, err);
        }
        /* Names below a write root do not protect what such a root itself is in. */
        for (size_t i = 0; i < CG_ARRAY_LEN(homes) * CG_ARRAY_LEN(jupyter); i++) {
                snprintf(path, sizeof(path), "%s/%s", homes[i / 2] ?: "", jupyter[i % 2]);
                if (homes[i / 2] && cg_real_path(path, own) && cg_path_within(w, own))
                        return refuse_workspace(workspace, "programs that Jupyter starts are", own, err);
        }
        /* Nor do guards: they are below the write root. */
        json_array_foreach(places, k, v)
                if (cg_real_path(json_string_value(v), own) && cg_path_within(w, own))
                        return refuse_workspace(workspace, "cellgate keeps files of its own", own, err);
        /*
         * The folders of programs and libraries that the kernels' base Python has, and anywhere in
         * its standard library.
         */
        if (!cg_pyvenv_home(CG_INSTALLED(CG_KERNEL_ENV), base, sizeof(base)))
                return 0;
        if (cg_real_path(base, own) && strcmp(w, own) == 0)
                return refuse_workspace(workspace, python, own, err);
        if (!strrchr(base, '/'))
                return 0;
        *strrchr(base, '/') = '\0';
        snprintf(path, sizeof(path), "%s/lib", base);
        if (cg_real_path(path, own) && strcmp(w, own) == 0)
                return refuse_workspace(workspace, python, own, err);
        snprintf(path, sizeof(path), "%s/lib/python%s", base, cg_kernel_env_own_version((char[16]){ "" }));
        if (cg_real_path(path, own) && cg_path_within(w, own))
                return refuse_workspace(workspace, python, own, err);
        return 0;
}
