/*
 * `cellgate jupyter install`: writes a kernelspec that starts this very program with these very
 * options.
 */
#include "cli/jupyter/jupyter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernelspecs.h"
#include "base/language.h"
#include "base/path_glob.h"
#include "base/util.h"
#include "config.h"
#include "jupyter/kernelspec.h"

static int below(const char *prefix, char **ret, struct cg_err *err)
{
        return cg_asprintf(ret, "path", err, "%s/share/jupyter/kernels", prefix);
}

/* The active environment, or NULL. */
static const char *environment(void)
{
        const char *env = getenv("VIRTUAL_ENV");

        if (!env || !*env)
                env = getenv("CONDA_PREFIX");
        if (!env || !*env)
                return NULL;
        return env;
}

static int kernels_dir(const struct cg_jup_options *o, char **ret, struct cg_err *err)
{
        const char *env = environment();

        if (o->prefix && !*o->prefix) /* a variable that is not set: not the root folder */
                return cg_fail(err, CG_E_INVAL, "--prefix needs a folder");
        if (o->prefix)
                return below(o->prefix, ret, err);
        if (!o->sys_prefix)
                return cg_kernelspec_user_dir(ret, err);
        if (!env)
                return cg_fail(err, CG_E_NOTFOUND,
                               "--sys-prefix: no environment is active (VIRTUAL_ENV, CONDA_PREFIX); "
                               "--prefix DIR names one");
        return below(env, ret, err);
}

/*
 * argv of the kernelspec: program, "jupyter", "run", "-f", file, options. @ret: the caller frees
 * the array; the strings are @exe's and those of @o.
 */
static int make_argv(const struct cg_jup_options *o, char exe[PATH_MAX + 1], const char ***ret,
                     struct cg_err *err)
{
        const char **v = calloc(json_array_size(o->words) + 6, sizeof(*v));
        ssize_t len = readlink("/proc/self/exe", exe, PATH_MAX);
        size_t n = 0, i;
        json_t *word;

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "options");
        *ret = v;
        if (len < 0)
                return cg_fail_errno(err, "this program's path");
        exe[len] = '\0';
        v[n++] = exe;
        v[n++] = "jupyter";
        v[n++] = "run";
        v[n++] = "-f";
        v[n++] = "{connection_file}";
        json_array_foreach(o->words, i, word)
                v[n++] = json_string_value(word);
        return 0;
}

static bool matches(const char *prefix, const char *rest)
{
        glob_t found = { 0 };
        bool yes = cg_path_glob(prefix, rest, &found) == 0;

        globfree(&found);
        return yes;
}

/* Debugging needs debugpy where the kernels' Python looks for packages. */
static bool has_debugger(const char *kernel_env)
{
        return matches(kernel_env ?: CG_INSTALLED(CG_KERNEL_ENV), "/lib/python3*/site-packages/debugpy");
}

/*
 * Jupyter refuses a kernelspec whose provisioner it does not have. The user's folder is that of all
 * Jupyters of this user; that of an environment is most likely its Jupyter's alone.
 */
static bool names_provisioner(const struct cg_jup_options *o)
{
        static const char *const rest[] = { "/lib/python3*/site-packages/cellgate/jupyter_provisioner.py",
                                            "/lib/python3*/dist-packages/cellgate/jupyter_provisioner.py" };
        const char *prefix = o->prefix;

        if (!prefix && o->sys_prefix)
                prefix = environment();
        if (strcmp(o->provisioner, "auto") != 0)
                return strcmp(o->provisioner, "always") == 0;
        return prefix && (matches(prefix, rest[0]) || matches(prefix, rest[1]));
}

int cg_jup_install(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        static const struct {
                const char *option, *name, *display_name, *language;
        } others[] = { { "shell", "cellgate-shell", "Bash (cellgate)", "bash" },
                       { "node", "cellgate-node", "JavaScript (cellgate)", "javascript" } };
        struct cg_kernelspec spec = { .name = o->name ?: "cellgate",
                                      .display_name = o->display_name ?: "Python (cellgate)",
                                      .language = "python",
                                      .subshells = cg_language_check(o->kernel.language, NULL) == 0,
                                      .debugger = has_debugger(o->kernel.kernel_env),
                                      .provisioner = names_provisioner(o) };
        cg_auto_free char *kernels = NULL, *dir = NULL, *line = NULL, *settings = NULL, *name = NULL,
                          *shown = NULL;
        const char *kernel = cg_language_kernel(o->kernel.language);
        cg_auto_json json_t *other = NULL;
        cg_auto_free const char **argv = NULL;
        char exe[PATH_MAX + 1];

        for (size_t i = 0; i < CG_ARRAY_LEN(others); i++) {
                if (!o->kernel.language || strcmp(o->kernel.language, others[i].option) != 0)
                        continue;
                spec.name = o->name ?: others[i].name;
                spec.display_name = o->display_name ?: others[i].display_name;
                spec.language = others[i].language;
                spec.debugger = false;
        }
        if (kernel) {
                if (cg_kernelspec_find(kernel, &other, err) < 0)
                        return -1;
                if (cg_asprintf(&name, "kernelspec", err, "cellgate-%s", kernel) < 0 ||
                    cg_asprintf(&shown, "kernelspec", err, "%s (cellgate)",
                                cg_json_text_of(other, "display_name")) < 0)
                        return -1;
                spec.name = o->name ?: name;
                spec.display_name = o->display_name ?: shown;
                spec.language = cg_json_text_of(other, "language");
                spec.debugger = false;
        }
        if (kernels_dir(o, &kernels, err) < 0)
                return -1;
        /* A mistake shows now, not in the log of whatever starts the kernel. */
        if (cg_kernel_options_settings(&o->kernel, &settings, err) < 0 || make_argv(o, exe, &argv, err) < 0)
                return -1;
        spec.argv = argv;
        if (cg_kernelspec_write(&spec, kernels, CG_INSTALLED(CG_DATADIR "/logos"), &dir, err) < 0)
                return -1;
        if (cg_asprintf(&line, "message", err, "Installed kernelspec %s in %s\n", spec.name, dir) < 0)
                return -1;
        if (cg_cli_print(line) != CG_EXIT_OK)
                return cg_fail(err, CG_E_SYS, "standard output cannot be written");
        return 0;
}
