/* The processes of a kernel, read from /proc: this one and its descendants. Needs no GIL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/proc.h"

/* Most processes that are read; a sandbox has 512 by default. */
#define CG_MAX_PROCESSES 4096

struct cg_process {
        struct cg_proc_stat stat;
        bool ours;
};

/* Reads all visible processes, at most @max, and marks this kernel's. Returns their number. */
size_t cg_procs_read(struct cg_process *list, size_t max);
/* The current time, in the unit of cg_proc_stat.started. */
uint64_t cg_procs_now(void);
/*
 * Sends SIGINT to descendants in this process group that started at @since or later, that is, to
 * what the running cell has started. A terminal would signal the whole group.
 */
void cg_procs_interrupt(uint64_t since);
