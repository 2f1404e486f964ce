/* The connection to one kernel. Everything that comes from it is untrusted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/wire.h"
#include "supervisor/core/sup.h"

struct kernel;

/* The kernel of a session with that number; NULL: there is none. */
struct kernel *cg_sup_kernel_by_seq(const struct sup *s, uint64_t seq);
/* It has been ready; it may have ended since. */
bool cg_sup_kernel_was_ready(const struct kernel *k);
/* Its processes have ended, whether that has been noticed or not. */
bool cg_sup_kernel_is_gone(const struct kernel *k);
/* Sends on its wire; a kernel that does not take the message is ended. Takes @body. */
void cg_sup_kernel_send(struct kernel *k, const struct cg_out *out, json_t *body);
/* @k may be NULL. */
void cg_sup_kernel_pause(struct kernel *k, bool paused);
/*
 * Handles all that it has sent already, whatever the host's window, so that a question comes after
 * the output that led to it. Not beyond CG_ASK_UNREAD, where nothing is asked.
 */
void cg_sup_kernel_catch_up(struct kernel *k);
/* Ends a kernel that broke a rule, and reports which. */
void cg_sup_kernel_violation(struct kernel *k, const char *what);
/* Ends everything inside, if it runs. */
void cg_sup_kernel_kill(const struct kernel *k);
/* Its end of the connection is closed: most likely it is ending. */
void cg_sup_kernel_lost(struct kernel *k);
