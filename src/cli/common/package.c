/* Programs of the Python package: see package.h. */
#include "cli/common/package.h"

#include <stdlib.h>
#include <string.h>

/* Runs main() of a module. Reports a missing module: only the interpreter knows its search path. */
static const char launcher[] =
        "import importlib, sys\n"
        "folder, module, command = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)\n"
        "if folder:\n"
        "    sys.path.insert(0, folder)\n"
        "try:\n"
        "    importlib.import_module(module).main()\n"
        "except ModuleNotFoundError as e:\n"
        "    sys.exit(f'cellgate {command} needs the Python module {e.name}, which {sys.executable} does"
        " not have. To install it: pip install \"cellgate[surfaces]\" in an environment, whose program"
        " bin/cellgate then has it; or name an interpreter that has it in CELLGATE_PYTHON')\n";

int cg_package_words(const char *python, const char *folder, const char *module, const char *command,
                     const char *words[CG_PACKAGE_WORDS], struct cg_err *err)
{
        const char *override = getenv("CELLGATE_PYTHON");

        if (override && *override)
                python = override;
        if (!*python)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "the Python package is needed, and this cellgate was built without it: pip"
                        " install \"cellgate[surfaces]\" in an environment, whose program bin/cellgate then"
                        " has it; or name an interpreter that has it in CELLGATE_PYTHON");
        /* -P: the current folder is often one that cells can write. */
        memcpy(words, (const char *[]){ python, "-P", "-c", launcher, folder, module, command },
               CG_PACKAGE_WORDS * sizeof(*words));
        return 0;
}
