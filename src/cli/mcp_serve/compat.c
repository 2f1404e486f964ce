/*
 * `cellgate mcp serve --compat` and `cellgate sandboxmcp`: hand the command line over to the Python
 * package, whose module cellgate.surfaces has the tools of other servers (docs/surfaces.md).
 */
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/util.h"
#include "cli/common/cli.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "config.h"

/* Reports a missing module: only the interpreter knows where its packages are. */
static const char start[] =
        "import importlib, sys\n"
        "module, command = sys.argv.pop(1), sys.argv.pop(1)\n"
        "try:\n"
        "    main = importlib.import_module(module).main\n"
        "except ModuleNotFoundError as e:\n"
        "    sys.exit(f'cellgate {command} needs the Python module {e.name}, which {sys.executable} does"
        " not have. To install it: pip install \"cellgate[surfaces]\" in an environment, whose program"
        " bin/cellgate then has it; or name an interpreter that has it in CELLGATE_PYTHON')\n"
        "main()\n";

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
        const char *python = getenv("CELLGATE_PYTHON"), *built_for = CG_INSTALLED(CG_PACKAGE_PYTHON);
        cg_auto_free const char **words = calloc((size_t)argc + 6, sizeof(*words));

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "options");
        if (!python || !*python)
                python = built_for;
        if (!*python)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "the Python package is needed, and this cellgate was built without it: pip"
                        " install \"cellgate[surfaces]\" in an environment, whose program bin/cellgate then"
                        " has it; or name an interpreter that has it in CELLGATE_PYTHON");
        if (name_runtime_folder(err) < 0)
                return -1;
        /* -P and no other PYTHONPATH: the current folder is often one that cells can write. */
        if ((*CG_PACKAGE_DIR ? setenv("PYTHONPATH", CG_PACKAGE_DIR, 1) : unsetenv("PYTHONPATH")) < 0)
                return cg_fail_errno(err, "PYTHONPATH");
        memcpy(words, (const char *[]){ python, "-P", "-c", start, module, command }, 6 * sizeof(*words));
        memcpy(words + 6, argv + 1, (size_t)(argc - 1) * sizeof(*words));
        execv(python, (char *const *)(uintptr_t)words);
        return cg_fail_errno(err, "%s", python);
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
