/* Hosts that attach to a session of another host. */
#pragma once

#include "base/wire.h"

struct host;

void cg_sup_attach(struct host *h, const struct cg_msg *m);
void cg_sup_list(struct host *h, const struct cg_msg *m);
