/* The environment of kernels, and the paths that no kernel can write. */
#ifndef CG_SUPERVISOR_KERNEL_ENV_H
#define CG_SUPERVISOR_KERNEL_ENV_H

#include <jansson.h>
#include "base/err.h"

struct session;
struct sup;

/*
 * Checks the chosen environment, where there is one, for a session. CG_E_INVAL, CG_E_STATE: it is
 * refused.
 */
int cg_sup_kernel_env_check(const struct session *ss, struct cg_err *err);
/*
 * Paths that no kernel may change: cg_sup_server_guards(), and environments of kernels, whether
 * this supervisor uses them or not. Returns.
 */
json_t *cg_sup_guards(const struct sup *s);

#endif
