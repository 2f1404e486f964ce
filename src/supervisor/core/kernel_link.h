/* The connection to one kernel. Everything that comes from it is untrusted. */
#pragma once

#include "base/wire.h"
#include "supervisor/core/sup.h"

struct kernel;

/* The session's kernel with this number, or NULL. */
struct kernel *cg_sup_kernel_by_seq(const struct sup *s, uint64_t seq);
/* True once the kernel has been ready, even if it has ended since. */
bool cg_sup_kernel_was_ready(const struct kernel *k);
/* True if its processes have ended, even if that has not been handled yet. */
bool cg_sup_kernel_is_gone(const struct kernel *k);
/* Sends a message; a kernel that does not read its messages is ended. Takes @body. */
void cg_sup_kernel_send(struct kernel *k, const struct cg_out *out, json_t *body);
/* @k may be NULL. */
void cg_sup_kernel_pause(struct kernel *k, bool paused);
/*
 * Handles everything that the kernel has sent, even if the host's window is full, so that a
 * question follows the output that led to it. No-op beyond CG_ASK_UNREAD, where nothing is asked.
 */
void cg_sup_kernel_catch_up(struct kernel *k);
/* Ends a kernel that broke the rule @what, and reports it. */
void cg_sup_kernel_violation(struct kernel *k, const char *what);
/* Kills all processes in the kernel's sandbox, if it runs. */
void cg_sup_kernel_kill(const struct kernel *k);
/* The kernel has closed its connection, most likely because it is ending. */
void cg_sup_kernel_lost(struct kernel *k);
