/* Connections of host applications. */
#ifndef CG_SUPERVISOR_HOST_H
#define CG_SUPERVISOR_HOST_H

#include "base/err.h"

struct sup;

int cg_sup_hosts_start(struct sup *s, struct cg_err *err);
void cg_sup_hosts_stop(struct sup *s);

#endif
