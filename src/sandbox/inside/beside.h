/*
 * Protects the processes of commands (commands.h) from calls of the main process and its children
 * that change the limits, priority or processors of another process. All processes inside have one
 * user, so Linux would allow these calls: with a file size limit of 0 bytes, for example, a command
 * writes nothing, and the host trusts its result.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

struct cg_notify;
struct seccomp_notif;

/* Command servers whose processes are protected: their pids, 0 for none. */
#define CG_BESIDE_SERVERS 5

/* Instructions of cg_beside_filter(). */
#define CG_BESIDE_STEPS 35

/*
 * Writes the part of a filter that sends such calls to init if they name another process than the
 * caller. Before and after it the accumulator holds the number of the system call.
 */
void cg_beside_filter(struct sock_filter code[CG_BESIDE_STEPS]);

/* Runs in init. True: replied to the call. False: not such a call, or the filter denies it. */
bool cg_beside_call(struct cg_notify *n, const struct seccomp_notif *call);
