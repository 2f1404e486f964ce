/* The setting "exec": which programs cells may start (docs/settings.md, Programs of cells). */
#ifndef CG_SANDBOX_SETTINGS_EXEC_RULES_H
#define CG_SANDBOX_SETTINGS_EXEC_RULES_H

#include <jansson.h>
#include "sandbox/sandbox.h"

/* *ret: what @setting (NULL: none) demands of the sandbox. CG_E_INVAL: it is no such setting. */
int cg_exec_rules_mode(const json_t *setting, enum cg_exec *ret, struct cg_err *err);

#endif
