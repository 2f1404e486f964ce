/* Sessions that are started in advance, so that the next one opens at once. */
#ifndef CG_SUPERVISOR_SPARE_H
#define CG_SUPERVISOR_SPARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct host;
struct session;
struct sup;

int cg_sup_spares_start(struct sup *s, struct cg_err *err);
void cg_sup_spares_stop(struct sup *s);
/*
 * The spare, when it is what @h asks for, started or still starting; it is the caller's then. Else
 * NULL. Before anything of the host runs in it, the caller must check cg_sup_spare_view_holds()
 * with *view.
 */
struct session *cg_sup_spare_take(struct host *h, const json_t *options, uint64_t *view);
/* false: a secret has been added or replaced since, which the sandbox would not hide. */
bool cg_sup_spare_view_holds(const struct session *ss, uint64_t view);
/* The kernel of @ss was replaced; it need not be a spare. */
void cg_sup_spare_renewed(struct session *ss);
/* @ss has opened: plans a spare with its options. */
void cg_sup_spare_plan(struct session *ss);
void cg_sup_spares_host_gone(struct sup *s, const struct host *h);
/* Session event hooks for spares. Return true if the event was consumed. */
bool cg_sup_spare_ready(struct session *ss);
bool cg_sup_spare_message(struct session *ss, const struct cg_msg *m);
bool cg_sup_spare_ended(struct session *ss);

#endif
