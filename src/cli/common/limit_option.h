/* --limit NAME=VALUE, of all commands that start kernels. Runs in the command `cellgate`. */
#ifndef CG_CLI_COMMON_LIMIT_OPTION_H
#define CG_CLI_COMMON_LIMIT_OPTION_H

#include "cellgate.h"
#include "sandbox/limit.h"

/*
 * The names and figures of cellgate.limits in a settings file. CG_E_INVAL with what is wrong, and
 * the names that there are.
 */
int cg_limit_option(struct cg_sandbox_limits *l, const char *value, struct cg_err *err);
/* They override those of the settings. */
void cg_limit_options(const struct cg_sandbox_limits *l, struct cg_session_options *so);

#endif
