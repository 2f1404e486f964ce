/* Status of the supervisor, and its end on request. */
#pragma once

#include "base/wire.h"

struct host;
struct sup;

void cg_sup_status_start(struct sup *s);
void cg_sup_status(struct host *h, const struct cg_msg *m);
void cg_sup_stop_asked(struct host *h, const struct cg_msg *m);
