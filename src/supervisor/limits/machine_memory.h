/* The machine's memory, for kernels without a control group. */
#pragma once

struct kernel;
struct sup;

void cg_sup_memory_start(struct sup *s);
/* A kernel starts: the machine's memory is checked while it runs, unless a group limits it. */
void cg_sup_memory_watch(struct kernel *k);
