/*
 * How processes that read foreign bytes give up what they do not need: those of cellgate-egress,
 * and the front of cellgate-mcp-http.
 */
#pragma once

#include <stddef.h>
#include "base/err.h"

/* In each process with a loop of libuv, before the loop is created. */
int cg_egress_lock_io_uring(struct cg_err *err);
/*
 * Gives everything up that the process does not need, in order. CG_EGRESS_RELAY: all but accepting,
 * reading and writing with the sockets that it has. *layers: names of what holds, space between.
 * @file: one more file that it reads; NULL: none.
 */
enum cg_egress_part { CG_EGRESS_RELAY, CG_EGRESS_INJECTOR, CG_EGRESS_DOORS };
int cg_egress_lock_part(enum cg_egress_part part, struct cg_err *err);
int cg_egress_lock_decider(const char *file, char *layers, size_t size, struct cg_err *err);
