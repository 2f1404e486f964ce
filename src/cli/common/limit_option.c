/* --limit NAME=VALUE. Runs in the command `cellgate`. */
#include "cli/common/limit_option.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_ "memoryMb, cores, processes, openFiles, fileMb, outputMb, cpuSeconds, wallSeconds"

int cg_limit_option(struct cg_sandbox_limits *l, const char *value, struct cg_err *err)
{
        const char *equal = strchr(value, '='), *wrong;
        size_t len = equal ? (size_t)(equal - value) : 0;
        char *end = NULL;
        double figure;

        if (!len || !equal[1] || strspn(equal + 1, "0123456789.") != strlen(equal + 1))
                return cg_fail(err, CG_E_INVAL, "--limit needs NAME=NUMBER such as memoryMb=512, not \"%s\"",
                               value);
        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                const char *name = cg_limit_setting(i);

                if (strlen(name) != len || memcmp(name, value, len) != 0)
                        continue;
                figure = strtod(equal + 1, &end);
                wrong = *end ? "Expected number" : cg_limit_set(l, i, figure);
                return wrong ? cg_fail(err, CG_E_INVAL, "--limit %s: %s", value, wrong) : 0;
        }
        return cg_fail(err, CG_E_INVAL, "--limit %s: there is no such limit; limits: " NAMES_, value);
}

void cg_limit_options(const struct cg_sandbox_limits *l, struct cg_session_options *so)
{
#define X(id, field, scale, name, setting, unit, words) so->field = l->field;
        CG_LIMITS_TABLE(X)
#undef X
        so->cli_hints = 1;
}
