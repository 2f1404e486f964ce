/* Masked credentials of a kernel. */
#ifndef CG_SUPERVISOR_NETWORK_MASKS_H
#define CG_SUPERVISOR_NETWORK_MASKS_H

#include "base/err.h"

struct kernel;

/* Reads what the settings mask, for a kernel that is about to be spawned. */
int cg_sup_masks_make(struct kernel *k, struct cg_err *err);
void cg_sup_masks_free(struct kernel *k);

#endif
