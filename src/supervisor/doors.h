/* Doors of kernels' sandboxes: unix sockets and ports that the settings forward. */
#ifndef CG_SUPERVISOR_DOORS_H
#define CG_SUPERVISOR_DOORS_H

#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"

struct kernel;

/* Starts the process that serves the doors of a kernel's sandbox. Borrows @doors_fd and @reach. */
int cg_sup_doors_open(struct kernel *k, int doors_fd, const int *reach, struct cg_err *err);
void cg_sup_doors_close(struct kernel *k);
/* Whether two sessions with these options would need the same ports of this machine. */
bool cg_sup_doors_are_alone(const json_t *options);

#endif
