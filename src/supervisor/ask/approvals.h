/*
 * Questions that other clients of the same user decide, in sessions whose host allows it (the
 * option "deciders"). No process in a sandbox can connect to the supervisor.
 */
#pragma once

#include "base/wire.h"

struct host;
struct sup;

/* APPROVALS_LIST, APPROVAL_SHOW and APPROVAL_DECIDE of @h. */
void cg_sup_approvals_list(struct host *h, const struct cg_msg *m);
void cg_sup_approval_show(struct host *h, const struct cg_msg *m);
void cg_sup_approval_decide(struct host *h, const struct cg_msg *m);
/* Sends APPROVALS_CHANGED to each host that has read the list since the last one. */
void cg_sup_approvals_changed(struct sup *s);
