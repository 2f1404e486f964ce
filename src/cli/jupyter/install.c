/*
 * `cellgate jupyter install`: writes a kernelspec that starts this very program with these very
 * options.
 */
#include "cli/jupyter/jupyter.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/util.h"
#include "config.h"
#include "jupyter/kernelspec.h"

static int below(const char *prefix, char **ret, struct cg_err *err)
{
        return asprintf(ret, "%s/share/jupyter/kernels", prefix) < 0 ? cg_fail(err, CG_E_NOMEM, "path") : 0;
}

static int kernels_dir(const struct cg_jup_options *o, char **ret, struct cg_err *err)
{
        const char *env = getenv("VIRTUAL_ENV");

        if (o->prefix && !*o->prefix) /* a variable that is not set: not the root folder */
                return cg_fail(err, CG_E_INVAL, "--prefix needs a folder");
        if (o->prefix)
                return below(o->prefix, ret, err);
        if (!o->sys_prefix)
                return cg_kernelspec_user_dir(ret, err);
        env = env && *env ? env : getenv("CONDA_PREFIX");
        if (!env || !*env)
                return cg_fail(err, CG_E_NOTFOUND,
                               "--sys-prefix: no environment is active (VIRTUAL_ENV, CONDA_PREFIX); "
                               "--prefix DIR names one");
        return below(env, ret, err);
}

/*
 * argv of the kernelspec: program, "jupyter", "run", "-f", file, options. The options' names get
 * their dashes.
 */
static int make_argv(const struct cg_jup_options *o, char ***ret, struct cg_err *err)
{
        static const char *const first[] = { "jupyter", "run", "-f", "{connection_file}" };
        char exe[PATH_MAX + 1], **v = calloc(o->n_words + 8, sizeof(*v));
        ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
        size_t n = 0;
        int r = 0;

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "options");
        *ret = v;
        if (len < 0)
                return cg_fail_errno(err, "this program's path");
        exe[len] = '\0';
        v[n++] = strdup(exe);
        for (size_t i = 0; i < CG_ARRAY_LEN(first); i++)
                v[n++] = strdup(first[i]);
        for (size_t i = 0; i < o->n_words; i++) {
                const char *name = o->words[i];
                bool value = strcmp(name, "no-sandbox") != 0;
                char *file = NULL;

                if (strcmp(name, "kernel-env") == 0 && cg_kernel_env_find(o->words[i + 1], &file, err) < 0)
                        return -1;
                if (strcmp(name, "mcp") == 0 || strcmp(name, "sandbox") == 0) {
                        file = realpath(o->words[i + 1], NULL);
                        if (!file)
                                return cg_fail_errno(err, "--%s %s", name, o->words[i + 1]);
                }
                /* One word each, so that a value that begins with a dash stays a value. */
                r |= value ? asprintf(&v[n++], "--%s=%s", name, file ? file : o->words[i + 1])
                           : asprintf(&v[n++], "--%s", name);
                free(file);
                i += value;
        }
        for (size_t i = 0; i < n; i++)
                if (!v[i])
                        r = -1;
        return r < 0 ? cg_fail(err, CG_E_NOMEM, "options") : 0;
}

static void free_argv(char **v)
{
        for (size_t i = 0; v && v[i]; i++)
                free(v[i]);
        free(v);
}

/* Debugging needs debugpy where the kernels' Python looks for packages. */
static bool has_debugger(const char *kernel_env)
{
        cg_auto_free char *path = NULL;
        glob_t found = { 0 };
        bool yes;

        if (asprintf(&path, "%s/lib/python3*/site-packages/debugpy",
                     kernel_env ? kernel_env : CG_INSTALLED(CG_KERNEL_ENV)) < 0) {
                path = NULL;
                return false;
        }
        yes = glob(path, 0, NULL, &found) == 0;

        globfree(&found);
        return yes;
}

int cg_jup_install(const struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        struct cg_kernelspec spec = { .name = o->name ? o->name : "cellgate",
                                      .display_name = o->display_name ? o->display_name : "Python (cellgate)",
                                      .debugger = has_debugger(o->kernel.kernel_env) };
        cg_auto_free char *kernels = NULL, *dir = NULL, *line = NULL, *settings = NULL;
        char **argv = NULL;
        int r = kernels_dir(o, &kernels, err);

        (void)hangs;
        if (r == 0) /* a mistake shows now, not in the log of whatever starts the kernel */
                r = cg_kernel_options_settings(&o->kernel, &settings, err);
        if (r == 0)
                r = make_argv(o, &argv, err);
        spec.argv = (const char *const *)argv;
        if (r == 0)
                r = cg_kernelspec_write(&spec, kernels, CG_INSTALLED(CG_DATADIR "/logos"), &dir, err);
        free_argv(argv);
        if (r < 0)
                return r;
        if (asprintf(&line, "Installed kernelspec %s in %s\n", spec.name, dir) < 0)
                return cg_fail(err, CG_E_NOMEM, "message");
        return cg_cli_print(line) == CG_EXIT_OK ? 0
                                                : cg_fail(err, CG_E_SYS, "standard output cannot be written");
}
