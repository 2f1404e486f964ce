/* pip, which runs on the host as the user. See pip.h. */
#include "cli/common/pip.h"

#include "base/util.h"

char **cg_pip_environment(void)
{
        static const char *const dropped[] = { "PIP_TARGET=",   "PIP_USER=",
                                               "PIP_PREFIX=",   "PIP_ROOT=",
                                               "PIP_SRC=",      "PIP_REQUIREMENT=",
                                               "PIP_EDITABLE=", "PIP_NO_BINARY=",
                                               "PIP_DRY_RUN=",  "PIP_REQUIRE_VIRTUALENV=",
                                               "PIP_REPORT=",   "PIP_LOG=",
                                               "PIP_PYTHON=",   "PYTHON" };
        size_t n = 0, kept = 0, k;
        char **env;

        while (environ[n])
                n++;
        env = calloc(n + 1, sizeof(*env));
        for (size_t i = 0; env && i < n; i++) {
                for (k = 0; k < CG_ARRAY_LEN(dropped); k++)
                        if (strncmp(environ[i], dropped[k], strlen(dropped[k])) == 0)
                                break;
                if (k == CG_ARRAY_LEN(dropped))
                        env[kept++] = environ[i];
        }
        return env;
}
