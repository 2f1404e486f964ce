/* The processes of a kernel, found in /proc: this one and its descendants. Needs no GIL. */
#ifndef CG_KERNEL_PROCS_H
#define CG_KERNEL_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Processes that are looked at: a sandbox has 512 by default. */
#define CG_MAX_PROCESSES 4096

struct cg_process {
        pid_t pid, parent, group;
        uint64_t ticks;   /* of processor time, its own and that of children it has waited for */
        uint64_t started; /* in ticks since the machine's start */
        bool ours;
};

/* All that can be seen, at most @max; those of this kernel are marked. Returns how many. */
size_t cg_procs_read(struct cg_process *list, size_t max);
/* Now, in the unit of `started`. */
uint64_t cg_procs_now(void);
/*
 * SIGINT to descendants in this process's group that have started since then: what a terminal does,
 * but for what the running cell has started only.
 */
void cg_procs_interrupt(uint64_t since);
/* The start of a small file as text. False when it cannot be read. */
bool cg_procs_text(const char *path, char *buf, size_t size);

#endif
