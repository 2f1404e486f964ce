/*
 * Calls of the main process and its children that change the limits, priority or processors of
 * another process, where commands run beside them (commands.h). All processes inside have one user,
 * so Linux allows these calls on a command's processes as well: with a limit of files of 0 bytes it
 * would write nothing, and the host would take its result for the truth.
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
 * Writes the part of a filter that hands such calls on another process than the caller's to init.
 * It begins and ends with the number of the call as the accumulator.
 */
void cg_beside_filter(struct sock_filter code[CG_BESIDE_STEPS]);

/* In init. False: not such a call, or a rule of the filter denies it. Else it was replied to. */
bool cg_beside_call(struct cg_notify *n, const struct seccomp_notif *call);
