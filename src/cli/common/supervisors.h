/* The supervisors that this user's commands share (struct cg_client_options, share). */
#ifndef CG_CLI_COMMON_SUPERVISORS_H
#define CG_CLI_COMMON_SUPERVISORS_H

#include "base/err.h"

/*
 * Calls @each for the folder of each, also of those that were killed; stops when it returns other
 * than 0.
 */
int cg_supervisors(int (*each)(const char *address, void *data), void *data, struct cg_err *err);

#endif
