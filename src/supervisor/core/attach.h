/* Hosts that attach to a session of another host. */
#ifndef CG_SUPERVISOR_CORE_ATTACH_H
#define CG_SUPERVISOR_CORE_ATTACH_H

#include "base/wire.h"

struct host;

void cg_sup_attach(struct host *h, const struct cg_msg *m);
void cg_sup_list(struct host *h, const struct cg_msg *m);

#endif
