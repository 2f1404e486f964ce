/* See exec_rules.h. Runs in the supervisor, and where settings are read. */
#include "sandbox/settings/exec_rules.h"

#include <string.h>

#include "base/util.h"

int cg_exec_rules_mode(const json_t *setting, enum cg_exec *ret, struct cg_err *err)
{
        const char *text = json_string_value(setting);

        if (!setting || (text && strcmp(text, "allow") == 0))
                *ret = CG_EXEC_ALLOW;
        else if (text && strcmp(text, "deny") == 0)
                *ret = CG_EXEC_DENY;
        else if (text && strcmp(text, "ask") == 0)
                *ret = CG_EXEC_ASK;
        else
                return cg_fail(err, CG_E_INVAL, "exec must be \"allow\", \"ask\" or \"deny\"");
        return 0;
}
