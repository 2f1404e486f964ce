/* The state of `cellgate run --json`, and what its files share. */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "cellgate.h"
#include "cli/run/cell_queue.h"

struct cg_run;
struct cg_beside;

/* Requests about variables under way. */
#define CG_JSON_MAX_VARIABLES 64

/* A request about variables that has not been answered. */
struct asked_variables {
        uint64_t number, line;
        char *id; /* JSON text, or NULL */
};

struct json {
        struct cg_buf in; /* an unfinished line */
        uint64_t line;    /* lines read */
        bool skipping;    /* the rest of a line that is too long */
        bool eof;
        struct cg_event **asked; /* questions that wait for the host; their numbers are of one series */
        size_t n_asked;
        int64_t question;   /* number of the last input_request */
        bool question_open; /* it has been neither answered nor taken back */
        struct cg_cell_queue queue;
        /* of the queue; NULL: no cell, or one of the command line */
        struct cg_queued_cell *running;
        bool stay;             /* the run goes on when no cell is left */
        bool failed;           /* the last cell that has ended did not end well */
        bool ending;           /* the host has announced that it sends no more cells */
        bool not_run_reported; /* report_not_run() was called */
        char *line_id;         /* the id in the host's line that is being handled, or NULL */
        uint64_t reset_line;   /* of a reset that was done but not yet reported; 0: none */
        char *reset_id;
        struct cg_beside *beside; /* commands and file operations */
        struct asked_variables variables[CG_JSON_MAX_VARIABLES];
        size_t n_variables;
};

/* ---- json_host.c: lines of the host that are no cells */

struct json *cg_json_of(const struct cg_run *run);
/* A question has been answered or taken back. */
void cg_json_forget(struct json *j, uint64_t approval);
/* Reports that the current line was not understood or came too late. It has decided nothing. */
int cg_json_input_error(struct cg_run *run, const char *text, struct cg_err *err);
/* A host's mistake is answered by an input_error; only a lost session ends the run. */
int cg_json_outcome(struct cg_run *run, int r, const struct cg_err *why, struct cg_err *err);

/* Each follows a line of the host. Negative: the run ends. */
int cg_json_decide(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_decide_egress(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_answer_server(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_function_return(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_add_functions(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_set_variables(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_get_variables(struct cg_run *run, const json_t *o, struct cg_err *err);
int cg_json_cancel(struct cg_run *run, const json_t *cell, struct cg_err *err);
int cg_json_give_input(struct cg_run *run, const json_t *o, struct cg_err *err);

/*
 * ---- json_event.c: lines (docs/cli-json.md), made member by member in a buffer. The first failure
 * stays in the buffer, so that the steps need no checks; cg_json_line_end() reports it.
 */

/* @cell: 0 for no member of this name. */
void cg_json_line_begin(struct cg_buf *l, const char *type, uint64_t cell);
/* The answer to the host's line with this number, and its id (JSON text, or NULL). */
void cg_json_line_answer(struct cg_buf *l, const char *type, const char *id, uint64_t line);
void cg_json_line_string(struct cg_buf *l, const char *name, const char *text, size_t len);
void cg_json_line_text(struct cg_buf *l, const char *name, const char *text);
void cg_json_line_int(struct cg_buf *l, const char *name, int64_t n);
/* JSON text of ours, or NULL for no member. */
void cg_json_line_json(struct cg_buf *l, const char *name, const char *json);
void cg_json_line_bool(struct cg_buf *l, const char *name, bool v);
/* A JSON object from outside. Other text becomes the string "invalid". */
void cg_json_line_object(struct cg_buf *l, const char *name, const char *json, size_t len);
/* Writes the line, unless a step has failed, and frees the buffer. */
int cg_json_line_end(struct cg_run *run, struct cg_buf *l, struct cg_err *err);

/*
 * Members after type and cell; each type of event has its few. @question: the number of the last
 * question of input().
 */
void cg_json_add_event(struct cg_buf *l, const struct cg_event *e, int64_t question);
/* The call that a question is about, as at its decision. */
void cg_json_add_call(struct cg_buf *l, const struct cg_event *e);
/* The members of a result, whether the cell has run or was dropped from the queue. */
void cg_json_add_result(struct cg_buf *l, enum cg_status status, int64_t execution_count, bool refused,
                        const char *text, size_t len);
/* Variables that the cell of this result has changed, where they were asked for. */
void cg_json_add_variables(struct cg_buf *l, const struct cg_event *e);

/*
 * ---- json_beside.c: commands and file operations. File operations, and input that a program
 * does not read yet, wait in threads, so that the host's other lines are followed meanwhile.
 */

int cg_beside_new(struct cg_run *run, struct cg_beside **ret, struct cg_err *err);
/* Not while it has threads: see cg_beside_abandon(). */
struct cg_beside *cg_beside_free(struct cg_beside *b);

/* True if this file handles the line {@name: ...}. */
bool cg_beside_takes(const char *name);
/* Follows the host's line {@name: @o}, number @line. Negative: nothing changed, *why says why. */
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
