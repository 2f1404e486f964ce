/*
 * Commands and file operations of `cellgate run --json`: the host's lines, and events
 * (docs/cli-json.md). File operations, and input that a program does not read yet, wait in threads
 * of their own, so that the host's other lines are followed meanwhile.
 */
#ifndef CG_CLI_RUN_JSON_BESIDE_H
#define CG_CLI_RUN_JSON_BESIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "cellgate.h"

struct cg_run;
struct cg_beside;

int cg_beside_new(struct cg_run *run, struct cg_beside **ret, struct cg_err *err);
/* Not while it has threads: see cg_beside_abandon(). */
struct cg_beside *cg_beside_free(struct cg_beside *b);

/* True if this file handles the line {@name: ...}. */
bool cg_beside_takes(const char *name);
/*
 * Follows the host's line {@name: @o}, the one with number @line. Negative: it changed nothing, and
 * *why says why.
 */
int cg_beside_take(struct cg_beside *b, const char *name, const json_t *o, uint64_t line, struct cg_err *why);

/* Writes an event of a command. */
int cg_beside_event(struct cg_beside *b, const struct cg_event *e, struct cg_err *err);

/* Readable when cg_beside_woken() has results of threads to write. */
int cg_beside_fd(const struct cg_beside *b);
int cg_beside_woken(struct cg_beside *b, struct cg_err *err);

/* A command or an operation has not ended. */
bool cg_beside_busy(const struct cg_beside *b);
/* The host sends no more: ends the input of commands. */
void cg_beside_input_ended(struct cg_beside *b);
/*
 * The process is about to end. True: threads still use the session, so that it cannot be freed;
 * their unfinished files outside were removed.
 */
bool cg_beside_abandon(struct cg_beside *b);

#endif
