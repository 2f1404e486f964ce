/*
 * `cellgate mcp serve --compat` and `cellgate sandboxmcp`: hand the command line over to the Python
 * package, whose module cellgate.surfaces has the tools of other servers (docs/surfaces.md).
 */
#include "base/fd.h"
#include "base/installed.h"
#include "cli/common/cli.h"
#include "cli/common/package.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "config.h"

/* Sandboxes do not see this folder, in which the server of sandboxmcp's tools takes commands. */
static int name_runtime_folder(struct cg_err *err)
{
        char folder[PATH_MAX];

        if (cg_runtime_parent("cellgate", folder, sizeof(folder), err) < 0)
                return -1;
        if (!cg_make_own_dir(folder))
                return cg_fail(err, CG_E_STATE, "%s is not a folder of this user with mode 0700", folder);
        if (setenv("CELLGATE_RUNTIME", folder, 1) < 0)
                return cg_fail_errno(err, "CELLGATE_RUNTIME");
        return 0;
}

static int exec_module(const char *module, const char *command, int argc, char **argv, struct cg_err *err)
{
        cg_auto_free const char **words = calloc((size_t)argc + CG_PACKAGE_WORDS, sizeof(*words));
        int r;

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "options");
        r = cg_package_words(CG_PACKAGE_PLACE, module, command, words, err);
        if (r < 0 || name_runtime_folder(err) < 0)
                return -1;
        /* No other PYTHONPATH: its folders may be ones that cells can write. */
        if ((*CG_PACKAGE_DIR ? setenv("PYTHONPATH", CG_PACKAGE_DIR, 1) : unsetenv("PYTHONPATH")) < 0)
                return cg_fail_errno(err, "PYTHONPATH");
        memcpy(words + CG_PACKAGE_WORDS, argv + 1, (size_t)(argc - 1) * sizeof(*words));
        execv(words[0], (char *const *)(uintptr_t)words);
        return cg_fail_errno(err, "%s", words[0]);
}

int cg_serve_compat(int argc, char **argv, struct cg_err *err)
{
        return exec_module("cellgate.surfaces.__main__", "mcp serve --compat", argc, argv, err);
}

int cg_cli_sandboxmcp(int argc, char **argv)
{
        struct cg_err err;

        exec_module("cellgate.surfaces.commands", "sandboxmcp", argc, argv, &err);
        return cg_cli_fail("sandboxmcp", &err);
}
