/* The setting "exec": which programs cells may start (docs/settings.md, Programs of cells). */
#pragma once

#include <jansson.h>
#include "sandbox/sandbox.h"

/*
 * *ret: what @setting (NULL: none) demands of the sandbox; of rules it is CG_EXEC_ASK or
 * CG_EXEC_ASK_EACH, and cg_exec_rules_judge() decides. CG_E_INVAL: it is no such setting.
 */
int cg_exec_rules_mode(const json_t *setting, enum cg_exec *ret, struct cg_err *err);

/*
 * What @setting, which has been checked, says about a program; @question as the host gets it.
 * CG_EXEC_ASK where it has no rules. @rule: the rule that decided ("deny.2"), or "default".
 */
#define CG_EXEC_RULE_NAME 32
enum cg_exec cg_exec_rules_judge(const json_t *setting, const json_t *question, char rule[CG_EXEC_RULE_NAME]);
