/* Denials of the sandbox, reported to the session's hosts. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct kernel;
struct rate;
struct session;

/* Reports a denial during @cell (0: none known): an object of sandbox/command/denial.h (takes). */
void cg_sup_denial_report(struct session *ss, uint64_t cell, json_t *denial);
/* The same within @rate. False: beyond it; only counted, and the next report says how many were. */
bool cg_sup_denial_report_some(struct session *ss, uint64_t cell, json_t *denial, struct rate *rate);
/* Watches the reports of the kernel's init about system calls; takes @fd. */
int cg_sup_denials_open(struct kernel *k, int fd, struct cg_err *err);
/* A kernel's own report of a denial. */
void cg_sup_denial_from_kernel(struct session *ss, const struct cg_msg *m);
/* Handles the reports of init that have arrived; @k may be NULL. */
void cg_sup_denials_drain(struct kernel *k);
/* A cell has ended: sends the reports that waited for that. */
void cg_sup_denials_cell_ended(struct session *ss, uint64_t cell);
