/* Costs of each cell: the member "costs" of its RESULT. */
#pragma once

/* For the member: its name and nine of at most 20 digits, 15 letters and 4 signs. */
#define COSTS_SIZE 512

struct cell;
struct kernel;
struct session;

/* For a kernel that has run nothing of a host's yet. Figures that cannot be read are left out. */
void cg_sup_costs_open(struct kernel *k);
void cg_sup_costs_close(struct kernel *k);
/* The cell or request @c starts. */
void cg_sup_costs_begin(struct session *ss, struct cell *c);
/* Something else starts in the session while cells run. */
void cg_sup_costs_shared(struct session *ss);
/* Of a cell that ends: `,"costs":{...}` behind the members of its RESULT; "": it has not run. */
void cg_sup_costs_end(const struct session *ss, struct cell *c, char buf[COSTS_SIZE]);
/* After that: an earlier peak of memory must not hide those of the next cells. */
void cg_sup_costs_reset(struct session *ss, const struct cell *c);
