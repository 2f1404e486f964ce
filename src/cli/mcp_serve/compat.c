/*
 * `cellgate mcp serve --compat`: hands the command line over to the Python package, whose module
 * cellgate.surfaces has the tools of other servers (docs/surfaces.md).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/installed.h"
#include "base/util.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "config.h"

/* Reports a missing module: only the interpreter knows where its packages are. */
static const char start[] =
        "import sys\n"
        "try:\n"
        "    from cellgate.surfaces.__main__ import main\n"
        "except ModuleNotFoundError as e:\n"
        "    sys.exit(f'cellgate mcp serve: --compat needs the Python module {e.name}, which {sys.executable} does"
        " not have. To install it: pip install \"cellgate[surfaces]\" in an environment, whose program"
        " bin/cellgate then has it; or name an interpreter that has it in CELLGATE_PYTHON')\n"
        "main()\n";

int cg_serve_compat(int argc, char **argv, struct cg_err *err)
{
        const char *python = getenv("CELLGATE_PYTHON"), *built_for = CG_INSTALLED(CG_PACKAGE_PYTHON);
        cg_auto_free const char **words = calloc((size_t)argc + 4, sizeof(*words));

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "options");
        if (!python || !*python)
                python = built_for;
        if (!*python)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "--compat needs the Python package, and this cellgate was built without it: pip"
                        " install \"cellgate[surfaces]\" in an environment, whose program bin/cellgate then"
                        " has it; or name an interpreter that has it in CELLGATE_PYTHON");
        /* -P and no other PYTHONPATH: the current folder is often one that cells can write. */
        if ((*CG_PACKAGE_DIR ? setenv("PYTHONPATH", CG_PACKAGE_DIR, 1) : unsetenv("PYTHONPATH")) < 0)
                return cg_fail_errno(err, "PYTHONPATH");
        words[0] = python;
        words[1] = "-P";
        words[2] = "-c";
        words[3] = start;
        memcpy(words + 4, argv + 1, (size_t)(argc - 1) * sizeof(*words));
        execv(python, (char *const *)(uintptr_t)words);
        return cg_fail_errno(err, "%s", python);
}
