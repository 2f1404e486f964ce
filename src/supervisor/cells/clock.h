/* The time limit of running cells; rates of what cells cause. */
#pragma once

#include <stdbool.h>

struct rate;
struct session;
struct shell;

/* Starts the running cell's clock, unless it has no time limit or a question of its time waits. */
void cg_sup_clock_start(struct shell *l);
void cg_sup_clock_stop(struct shell *l);
/*
 * ss->asks has changed: clocks are stopped while a decision is pending, and a cell that waits does
 * not count as running.
 */
void cg_sup_asks_changed(struct session *ss);
/* Takes one. False: none is left, now. */
bool cg_sup_rate_take(struct rate *r);
/* Gives one back. */
void cg_sup_rate_give(struct rate *r);
