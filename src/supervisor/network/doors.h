/* Doors of kernels' sandboxes: unix sockets and ports that the settings forward. */
#pragma once

#include "base/err.h"

struct kernel;

/* Starts the process that serves the doors of a kernel's sandbox. Borrows @doors_fd and @reach. */
int cg_sup_doors_open(struct kernel *k, int doors_fd, const int *reach, struct cg_err *err);
void cg_sup_doors_close(struct kernel *k);
