/* Programs of the Python package: see package.h. */
#include "cli/common/package.h"

#include <stdlib.h>
#include <string.h>
#include "cli/common/launcher.h"

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
        memcpy(words, (const char *[]){ python, "-P", "-c", CG_PACKAGE_LAUNCHER, folder, module, command },
               CG_PACKAGE_WORDS * sizeof(*words));
        return 0;
}
