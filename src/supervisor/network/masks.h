/* Masked credentials of a kernel. */
#pragma once

#include "base/err.h"

struct kernel;
struct session;

/* Reports to the bus that a kernel of the session has masked credentials, if it has. */
void cg_sup_masks_report(struct session *ss);
/* Reads what the settings mask, for a kernel that is about to be spawned. */
int cg_sup_masks_make(struct kernel *k, struct cg_err *err);
void cg_sup_masks_free(struct kernel *k);
