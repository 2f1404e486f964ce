/* A node (`cellgate node`): how many sessions it has, figures of their starts, its end in order. */
#pragma once

#include <jansson.h>
#include "base/err.h"

struct host;
struct session;
struct sup;

/* CG_E_BUSY: all slots are in use, or the node is being drained. Counts refusals. */
int cg_sup_slots_check(struct sup *s, struct cg_err *err);
/* The same for one more session of @h, whose share may be in use (CG_E_LIMIT). */
int cg_sup_slots_take(struct host *h, struct cg_err *err);
/* A node runs no cells without a sandbox, and no programs of its clients. CG_E_UNSUPPORTED. */
int cg_sup_slots_allow(const struct sup *s, const char *what, struct cg_err *err);
/* @h may ask for what concerns all clients: on a node only the process that started it. */
bool cg_sup_slots_trusts(const struct host *h);
/* A session has opened for a host, and has ended. */
void cg_sup_slots_opened(struct session *ss);
void cg_sup_slots_ended(struct sup *s);
/* No more sessions; ends the supervisor with the last, or after s->drain_ms (0: no limit). */
void cg_sup_drain(struct sup *s);
/* Members of the status: see cg_client_status(). */
json_t *cg_sup_slots_status(const struct sup *s);
