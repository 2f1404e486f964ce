/* Commands that hosts run beside cells, in the sandbox of a session's kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct kernel;
struct session;

/* The host's requests; @id: as in struct cell. */
void cg_sup_commands_exec(struct session *ss, uint64_t id, const struct cg_msg *m);
void cg_sup_commands_input(struct session *ss, uint64_t id, const struct cg_msg *m);
void cg_sup_commands_control(struct session *ss, uint64_t id, const struct cg_msg *m);
/*
 * Runs a built-in operation of the supervisor's own: @argc arguments in @texts, after the folder.
 * Calls @done(data) once, after @timeout_ms at the latest, with its output, at most @max bytes;
 * @why: NULL, or why it has failed.
 */
void cg_sup_commands_own(struct session *ss, const char *texts, size_t len, uint32_t argc, size_t max,
                         int64_t timeout_ms,
                         void (*done)(void *data, const char *out, size_t len, const char *why), void *data);
/* Ends the operation of @data, which calls its done(). */
void cg_sup_commands_end_own(struct session *ss, const void *data, const char *why);
/* Appends those that run or wait. */
void cg_sup_commands_list(const struct session *ss, json_t *list);
/* Ends all its processes. False: there is no such command. */
bool cg_sup_commands_cancel(struct session *ss, uint64_t id);
/* The host with that slot has left. */
void cg_sup_commands_member_gone(struct session *ss, uint16_t slot);
/* The host has read events. */
void cg_sup_commands_room(struct session *ss);

/* The sandbox is there: takes its cg_sandbox_child.commands_fd, and starts commands that wait. */
int cg_sup_commands_open(struct kernel *k, int fd, struct cg_err *err);
/* The sandbox ends: the commands in it of @ss (NULL: none) end with @status (by name) and @why. */
void cg_sup_commands_close(struct kernel *k, struct session *ss, const char *status, const char *why);
/* No sandbox comes any more: also those that wait end. */
void cg_sup_commands_end_all(struct session *ss, const char *status, const char *why);
