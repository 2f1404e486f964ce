/* Calls of functions of the host, on a connection of the kernel of their own. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"
#include "base/zlink.h"

struct kernel;
struct session;

/* Connects to the kernel @k. @on_end: of its connections. */
int cg_sup_functions_open(struct kernel *k, cg_zlink_end_cb on_end, struct cg_err *err);
/* Frees what waits for the kernel. @on_closed runs later from the loop, if true is returned. */
bool cg_sup_functions_close(struct kernel *k, void (*on_closed)(struct cg_zlink *z));

/* ---- calls of broker.c, see struct cg_broker_ops */

/* The tool server has written the modules of these servers: those of functions may be called. */
void cg_sup_functions_added(struct session *ss, const json_t *definitions);
/* KEPT. */
void cg_sup_functions_kept(struct session *ss, struct cg_msg *m);
/* The tool server has ended: large results that it was given go to the kernel as a whole. */
void cg_sup_functions_unkept(struct session *ss);
