/* Sessions that are started in advance, so that the next one opens at once. */
#pragma once

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
 * NULL. Before anything of the host runs in it, the caller must compare its view.
 */
struct session *cg_sup_spare_take(struct host *h, const json_t *options);
/*
 * Fingerprint of the files that a kernel's sandbox would treat specially if it started now: a
 * secret that was added or replaced since would not be hidden. 0: unknown.
 */
uint64_t cg_sup_spare_view(const struct session *ss);
/* @ss has opened: plans a spare with its options. */
void cg_sup_spare_plan(struct session *ss);
/* The folders that the spares keep in use (returns). */
json_t *cg_sup_spare_workspaces(const struct sup *s);
void cg_sup_spares_host_gone(struct sup *s, const struct host *h);
/* Session event hooks for spares. Return true if the event was consumed. */
bool cg_sup_spare_ready(struct session *ss);
bool cg_sup_spare_message(struct session *ss, const struct cg_msg *m);
bool cg_sup_spare_ended(struct session *ss);
