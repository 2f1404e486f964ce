/* Limits of sessions: how they are enforced, and the report when one is reached. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "base/wire.h"
#include "sandbox/sandbox.h"

struct kernel;
struct session;
struct sup;

/* Reads the limits of the session's options, and those of its settings that the options lack. */
int cg_sup_limits_check(struct session *ss, struct cg_err *err);
/* The memory limits of all sessions of hosts but @but (may be NULL), added up; bytes. */
uint64_t cg_sup_limits_sum(const struct sup *s, const struct session *but);
/* CG_E_INVAL: a limit is so small that no kernel would start. */
int cg_sup_limits_check_least(const struct session *ss, struct cg_err *err);
/* "; a limit may be too small...", with those that the host has set; "": there are none. */
void cg_sup_limits_explain_start(const struct session *ss, char *buf, size_t size);
/* The limits, for the zygote, which enforces them. */
json_t *cg_sup_limits_spec(const struct session *ss);
/* The limits of @ss, and by which mechanism each is enforced. */
json_t *cg_sup_limits_info(const struct session *ss);
/* @answer: the zygote's. */
void cg_sup_limits_spawned(struct kernel *k, const json_t *answer);
void cg_sup_limits_release(struct kernel *k);
/* @o: the zygote's final counters of the kernel's control group. */
void cg_sup_limits_counted(struct kernel *k, const json_t *o);
/* Returns true if a limit ended the kernel; reports that and describes it in @buf. */
bool cg_sup_limits_end(struct kernel *k, const struct cg_sandbox_status *st, char *buf, size_t size);
/*
 * A cell has ended; when it failed, by this exception (@reply: the protocol's execute_reply).
 * Reports the limits that it reached.
 */
void cg_sup_limits_of_cell(struct session *ss, bool failed, const char *ename, const char *evalue,
                           const char *reply, size_t len);
/*
 * Counts a message of a kernel that is passed on. false: over the limit, not to be passed on. Of
 * errors twice as much is passed on, so that the one that ends a cell is mostly seen.
 */
bool cg_sup_limits_output(struct session *ss, const struct cg_msg *m);
/* The session is open: its time runs. */
void cg_sup_limits_opened(struct session *ss);
