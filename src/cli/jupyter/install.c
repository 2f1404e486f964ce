/*
 * `cellgate jupyter install`: checks the command line. The kernelspec, which starts this very
 * program with these very options, is written by cellgate_kernel/install_kernelspec.py.
 */
#include "cli/jupyter/jupyter.h"

#include "base/installed.h"
#include "base/json.h"
#include "base/kernelspecs.h"
#include "base/language.h"
#include "config.h"
#include "jupyter/message.h"

#define PROGRAM CG_PYTHONDIR "/cellgate_kernel/install_kernelspec.py"

/* Becomes the program. @folder: of Jupyter's data, or a prefix; "" for the active environment. */
static int exec_python(const struct cg_jup_options *o, const char *options, const char *folder,
                       struct cg_err *err)
{
        const char *python = CG_INSTALLED(CG_PYTHON), *other = getenv("CELLGATE_PYTHON"),
                   *env = o->kernel.kernel_env ?: CG_INSTALLED(CG_KERNEL_ENV),
                   *logos = CG_INSTALLED(CG_DATADIR "/logos");
        char exe[PATH_MAX + 1];
        const char *first[] = { python,  "-I",   "-S", "-X",  "utf8", CG_INSTALLED(PROGRAM),
                                options, folder, env,  logos, exe };
        cg_auto_free const char **argv = calloc(CG_ARRAY_LEN(first) + json_array_size(o->words) + 1,
                                                sizeof(*argv));
        ssize_t len = readlink("/proc/self/exe", exe, PATH_MAX);
        json_t *word;
        size_t i;

        if (!argv)
                return cg_fail(err, CG_E_NOMEM, "options");
        if (len < 0)
                return cg_fail_errno(err, "this program's path");
        exe[len] = '\0';
        /* A wheel that was installed with --user has none beside it; its front names one. */
        if (access(python, X_OK) < 0 && other && *other)
                first[0] = other;
        memcpy(argv, first, sizeof(first));
        json_array_foreach(o->words, i, word)
                argv[CG_ARRAY_LEN(first) + i] = json_string_value(word);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        return cg_fail_errno(err, "%s", argv[0]);
}

int cg_jup_install(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        const char *language = o->kernel.language, *kernel = cg_language_kernel(language), *where = "prefix";
        cg_auto_free char *data = NULL, *settings = NULL, *text = NULL;
        cg_auto_json json_t *spec = NULL, *other = NULL, *options = NULL;

        if (kernel && cg_kernelspec_find(kernel, &spec, err) < 0)
                return -1;
        if (kernel)
                other = json_pack("[O, O]", json_object_get(spec, "display_name"),
                                  json_object_get(spec, "language"));
        if (o->prefix && !*o->prefix) /* a variable that is not set: not the root folder */
                return cg_fail(err, CG_E_INVAL, "--prefix needs a folder");
        if (!o->prefix)
                where = o->sys_prefix ? "environment" : "user";
        if (strcmp(where, "user") == 0 && cg_jupyter_data_dir(&data, err) < 0)
                return -1;
        /* A mistake shows now, not in the log of whatever starts the kernel. */
        if (cg_kernel_options_settings(&o->kernel, &settings, err) < 0)
                return -1;
        options = json_pack("{s:s, s:s?, s:s?, s:s?, s:O?, s:b, s:s, s:s}", "where", where, "name", o->name,
                            "display_name", o->display_name, "kernel", kernel ?: language, "other", other,
                            "subshells", cg_language_check(language, NULL) == 0, "provisioner",
                            o->provisioner, "protocol", CG_JUPYTER_PROTOCOL);
        text = options ? json_dumps(options, JSON_COMPACT) : NULL;
        if (!text)
                return cg_fail(err, CG_E_INVAL, "a kernelspec's texts must be UTF-8");
        return exec_python(o, text, o->prefix ?: data ?: "", err);
}
