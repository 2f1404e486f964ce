/*
 * `cellgate env`: Python environments for kernels, in the user's data folder or at a path of the
 * user's choice. Checks the command line and lists them; what changes one is in Python
 * (python_stubs/cellgate_kernel/make_env.py). Runs in the command `cellgate`.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/pip.h"
#include "cli/help.h"
#include "config.h"

#define MAX_PACKAGES 256u
#define REQUIREMENTS CG_DATADIR "/kernel-requirements.txt"
#define PROGRAM      CG_PYTHONDIR "/cellgate_kernel/make_env.py"

enum { CREATE = 1, ADD = 2, LIST = 4, REMOVE = 8 };

static int by_name(const void *a, const void *b)
{
        const struct dirent *const *x = a, *const *y = b;

        return strcmp((*x)->d_name, (*y)->d_name);
}

static int list(struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 1 << 20 };
        cg_auto_free char *dir = NULL;
        char path[PATH_MAX], version[64], own[16];
        struct dirent **names = NULL;
        int r = cg_kernel_envs_dir(&dir, err), n;

        if (r < 0)
                return r;
        cg_kernel_env_own_version(own);
        cg_buf_addf(&b, "%-20s Python %-8s %s\n", "(built in)", own, CG_INSTALLED(CG_KERNEL_ENV));
        n = scandir(dir, &names, NULL, NULL);
        if (n > 0)
                qsort(names, (size_t)n, sizeof(*names), by_name);
        for (int i = 0; i < n; i++) {
                if (cg_kernel_env_is_name(names[i]->d_name)) {
                        bool fits;

                        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
                        fits = cg_kernel_env_fits(path, version);
                        cg_buf_addf(&b, "%-20s Python %-8s %s", names[i]->d_name, version[0] ? version : "?",
                                    path);
                        if (!fits)
                                cg_buf_addf(&b, "  (not of Python %s: kernels cannot use it)", own);
                        else if (cg_kernel_env_state(path) == CG_ENV_UNFINISHED)
                                cg_buf_adds(&b, "  (unfinished: `cellgate env add` finishes it)");
                        cg_buf_adds(&b, "\n");
                }
                free(names[i]);
        }
        free(names);
        r = cg_buf_end(&b, err);
        if (r == 0 && cg_cli_print(b.data) != CG_EXIT_OK)
                return cg_fail(err, CG_E_SYS, "standard output cannot be written");
        return r;
}

/* ------------------------------------------------------------------ what changes an environment */

/* Becomes make_env.py. @folder: of the environment @name. */
static int change(const char *what, const char *name, const char *folder, char **packages, size_t n,
                  struct cg_err *err)
{
        const char *const first[] = { CG_INSTALLED(CG_PYTHON),   "-I", "-X", "utf8",
                                      CG_INSTALLED(PROGRAM),     what, name, folder,
                                      CG_INSTALLED(REQUIREMENTS) };
        cg_auto_free const char **argv = calloc(CG_ARRAY_LEN(first) + n + 1, sizeof(*argv));
        cg_auto_free char **env = cg_pip_environment();

        if (!argv || !env)
                return cg_fail(err, CG_E_NOMEM, "environment");
        memcpy(argv, first, sizeof(first));
        memcpy(argv + CG_ARRAY_LEN(first), packages, n * sizeof(*packages));
        umask(022);
        execve(first[0], (char *const *)(uintptr_t)argv, env);
        return cg_fail_errno(err, "%s", first[0]);
}

static int create(const char *name, char **packages, size_t n, struct cg_err *err)
{
        cg_auto_free char *envs = NULL, *folder = NULL;

        if (strchr(name, '/'))
                return change("create", name, name, packages, n, err);
        if (!cg_kernel_env_is_name(name))
                return cg_fail(
                        err, CG_E_INVAL,
                        "\"%s\" is not a name: use at most 64 letters, digits, \"-\", \"_\" and \".\", or a folder with a slash in "
                        "it",
                        name);
        if (cg_kernel_envs_dir(&envs, err) < 0 || cg_make_dirs(envs, 0700, err) < 0)
                return -1;
        if (cg_asprintf(&folder, "path", err, "%s/%s", envs, name) < 0)
                return -1;
        return change("create", name, folder, packages, n, err);
}

static int add(const char *name, char **packages, size_t n, struct cg_err *err)
{
        cg_auto_free char *dir = NULL;
        char version[64];

        if (cg_kernel_env_find(name, &dir, err) < 0)
                return -1;
        if (!cg_kernel_env_fits(dir, version))
                return cg_fail(err, CG_E_INVAL, "%s is not an environment of Python %s%s%s", dir,
                               cg_kernel_env_own_version((char[16]){ "" }), version[0] ? ", but of " : "",
                               version);
        return change("add", name, dir, packages, n, err);
}

static int remove_one(const char *name, struct cg_err *err)
{
        cg_auto_free char *dir = NULL;

        if (cg_kernel_env_find(name, &dir, err) < 0)
                return -1;
        if (!cg_kernel_env_is_ours(dir))
                return cg_fail(err, CG_E_INVAL,
                               "%s was not made by `cellgate env create`: remove it yourself", dir);
        return change("remove", name, dir, (char *[]){ NULL }, 0, err);
}

/* ------------------------------------------------------------------ the command */

static int run_command(int argc, char **argv, struct cg_err *err)
{
        static const char *const names[] = { "create", "add", "list", "remove" };
        const char *what = argv[1];
        int n = argc - 2, most = INT_MAX,
            id = cg_opt_command(names, CG_ARRAY_LEN(names), ~0u, argc, argv, err);

        if (id < 0)
                return id;
        if (id & (LIST | REMOVE))
                most = id == REMOVE;
        if (n < 1 && id != LIST)
                return cg_fail(err, CG_E_INVAL, "%s: which environment? --help says more", what);
        if (n > most)
                return cg_fail(err, CG_E_INVAL, "%s: unexpected argument \"%s\"", what, argv[2 + most]);
        if (id == LIST)
                return list(err);
        if (argv[2][0] == '-')
                return cg_fail(err, CG_E_INVAL, "there is no option \"%s\": --help lists the options",
                               argv[2]);
        if (id == REMOVE)
                return remove_one(argv[2], err);
        if (n - 1 > (int)MAX_PACKAGES)
                return cg_fail(err, CG_E_LIMIT, "at most %u packages at once", MAX_PACKAGES);
        for (int k = 3; k < argc; k++)
                if (argv[k][0] == '-' || !argv[k][0])
                        return cg_fail(err, CG_E_INVAL,
                                       "\"%s\" is not a package: options of pip are set in its own settings"
                                       " (pip.conf, PIP_INDEX_URL, ...)",
                                       argv[k]);
        if (id == CREATE)
                return create(argv[2], argv + 3, (size_t)n - 1, err);
        return add(argv[2], argv + 3, (size_t)n - 1, err);
}

int cg_cli_env(int argc, char **argv)
{
        struct cg_err err;

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
                        return cg_cli_print(CG_HELP_ENV);
        if (run_command(argc, argv, &err) == 0)
                return CG_EXIT_OK;
        return cg_cli_fail("env", &err);
}
