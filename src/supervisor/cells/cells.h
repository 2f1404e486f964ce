/* Cells and requests: queues, interrupts, results. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/wire.h"

struct session;
struct shell;

void cg_sup_cells_init(struct session *ss);
void cg_sup_cells_close_timers(struct session *ss);
void cg_sup_cells_release(struct session *ss);
/* Requests of hosts; @id is that of the kernel wire. */
void cg_sup_cells_execute(struct session *ss, uint64_t id, struct cg_msg *m);
void cg_sup_cells_request(struct session *ss, uint64_t id, struct cg_msg *m);
/* @running: whatever runs in the main shell, instead of @id. False: there is none. */
bool cg_sup_cells_cancel(struct session *ss, uint64_t id, bool running);
/* Ends all cells of the host with that slot. */
void cg_sup_cells_member_gone(struct session *ss, uint16_t slot);
/* Starts what can be started. */
void cg_sup_cells_run(struct session *ss);
/* Appends those that run or wait. */
void cg_sup_cells_list(const struct session *ss, json_t *list);
/* Messages of the kernel. */
void cg_sup_cells_execute_reply(struct session *ss, struct cg_msg *m);
void cg_sup_cells_request_reply(struct session *ss, struct cg_msg *m);
bool cg_sup_cells_allows_stdin(struct session *ss, uint64_t id);
/*
 * Cell @id waits for input, or has reported that it goes on: a cancelling interrupt has reached it,
 * so the time that it had to end is over. Limits, and the end of its host, still end it.
 */
void cg_sup_cells_wait_for_input(struct session *ss, uint64_t id);
/* The kernel has ended: running cells end with @status and @text, queued ones are cancelled. */
void cg_sup_cells_end_all(struct session *ss, const char *status, const char *text, const char *queued);
/* The kernel was replaced because of the cell in @l, which ends with @status and @text. */
void cg_sup_cells_end_replaced(struct session *ss, struct shell *l, const char *status, const char *text);
