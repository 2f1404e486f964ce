/* pip, which runs on the host as the user. See pip.h. */
#include "cli/common/pip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"

extern char **environ;

static bool is_passed_on(const char *variable)
{
        static const char *const dropped[] = { "PIP_TARGET=",   "PIP_USER=",
                                               "PIP_PREFIX=",   "PIP_ROOT=",
                                               "PIP_SRC=",      "PIP_REQUIREMENT=",
                                               "PIP_EDITABLE=", "PIP_NO_BINARY=",
                                               "PIP_DRY_RUN=",  "PIP_REQUIRE_VIRTUALENV=",
                                               "PIP_REPORT=",   "PIP_LOG=",
                                               "PIP_PYTHON=",   "PYTHON" };

        for (size_t i = 0; i < CG_ARRAY_LEN(dropped); i++)
                if (strncmp(variable, dropped[i], strlen(dropped[i])) == 0)
                        return false;
        return true;
}

char **cg_pip_environment(void)
{
        size_t n = 0, kept = 0;
        char **env;

        while (environ[n])
                n++;
        env = calloc(n + 1, sizeof(*env));
        for (size_t i = 0; env && i < n; i++)
                if (is_passed_on(environ[i]))
                        env[kept++] = environ[i];
        return env;
}
