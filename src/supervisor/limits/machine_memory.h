/* The machine's memory, for kernels without a control group. */
#pragma once

struct kernel;
struct sup;

void cg_sup_memory_start(struct sup *s);
/*
 * A kernel has been started: while it runs, the machine's memory is checked, unless a control group
 * limits the kernel.
 */
void cg_sup_memory_watch(struct kernel *k);
