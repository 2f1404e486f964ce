/*
 * The state of `cellgate run --json`, and the host's lines that are no cells. Private to json.c and
 * json_host.c.
 */
#ifndef CG_CLI_RUN_JSON_INT_H
#define CG_CLI_RUN_JSON_INT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "cellgate.h"
#include "cli/run/cell_queue.h"

/* Requests about variables under way. */
#define CG_JSON_MAX_VARIABLES 64

/*
 * A request that waits for the host's decision. Calls and connections share one series of numbers.
 */
struct asked {
        uint64_t id;
        enum cg_event_type type; /* of the event that asked */
};

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
        struct asked *asked;
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

struct cg_run;

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

#endif
