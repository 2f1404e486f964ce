/*
 * `cellgate run`: what its parts share. run.c sets up and loops, text.c and json.c are its two
 * faces.
 */
#ifndef CG_CLI_RUN_RUN_H
#define CG_CLI_RUN_RUN_H

#include <poll.h>
#include <stdbool.h>
#include "cellgate.h"
#include "cli/common/approve.h"
#include "cli/run/cells.h"
#include "cli/common/cli.h"
#include "cli/common/kernel_options.h"
#include "cli/common/screen.h"

struct cg_run_options {
        struct cg_kernel_options kernel;
        struct cg_cells cells;
        const char *file;
        int64_t timeout_ms;
        bool json;
        bool stay; /* with json: the host says when the run ends */
};

struct cg_run;

/*
 * How a run shows what happens and who decides what no rule decides. Events come in order. A
 * function that fails ends the run.
 */
struct cg_face {
        /* The session is open; its MCP servers come next. */
        int (*opened)(struct cg_run *run, struct cg_err *err);
        /* @report: what cg_session_add_mcp_servers() returned. */
        int (*servers)(struct cg_run *run, const char *report, struct cg_err *err);
        /* An event to show. Takes @e. */
        int (*event)(struct cg_run *run, struct cg_event *e, struct cg_err *err);
        /*
         * The next cell to run after those of the command line (borrowed until the next call), when
         * no cell runs. NULL: none; *wait: there may be one later, so the run goes on. The member
         * may be NULL: there is never one.
         */
        int (*next)(struct cg_run *run, const struct cg_cell **cell, bool *wait, struct cg_err *err);
        /* A cell has been sent to the session; run->cell is its number. May be NULL. */
        int (*started)(struct cg_run *run, struct cg_err *err);
        /* A call that a rule decided; @why is the explanation of a refusal, else NULL. */
        int (*decided)(struct cg_run *run, const struct cg_event *e, bool accept, const char *why,
                       struct cg_err *err);
        /* A call or a connection that somebody must be asked about. Takes @e. */
        int (*ask)(struct cg_run *run, struct cg_event *e, struct cg_err *err);
        /* The person pressed ^C: questions that stand are answered with no. */
        void (*interrupted)(struct cg_run *run);
        /*
         * What else to wait for: *fd is -1 for nothing; *events_too: false while no further events
         * of the session can be taken; *timeout_ms: longest time until tick(), -1 for none.
         */
        void (*wait)(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms);
        int (*readable)(struct cg_run *run, struct cg_err *err);
        /* When the time is over, and once a second where standard error is a terminal. */
        int (*tick)(struct cg_run *run, struct cg_err *err);
        /* The process is about to _exit(). Runs in a signal handler. May be NULL. */
        void (*abandon)(const struct cg_run *run);
        /* Something went wrong that ends the run with @status. */
        void (*failed)(struct cg_run *run, const struct cg_err *err, int status);
        void (*free)(struct cg_run *run);
};

struct cg_run {
        struct cg_run_options opts;
        struct cg_screen screen;
        struct cg_client *client;
        struct cg_session *session;
        const struct cg_face *face;
        void *face_data;
        char *settings; /* of the sandbox; NULL: the default policy */
        bool allow_stdin;
        bool can_ask;  /* the face has somebody to ask about connections */
        size_t index;  /* of the cell that runs, in opts.cells */
        uint64_t cell; /* its number in the session; 0 while none runs */
        int64_t started_ms;
        bool done;  /* its result has come */
        bool died;  /* KERNEL_DIED was shown already */
        int signal; /* that ends the run; 0 none */
        /* when it ends whether or not the cell does (cg_now_ms()); 0: when the cell does */
        int64_t end_ms;
        int status; /* what the program will exit with */
};

/*
 * Set up the face: on failure nothing needs to be undone but by run->face->free, when run->face is
 * set.
 */
int cg_run_text_init(struct cg_run *run, struct cg_err *err);
int cg_run_json_init(struct cg_run *run, struct cg_err *err);

/* Answers a call. A call that waits no more is no error. */
int cg_run_answer(struct cg_run *run, uint64_t approval, bool accept, const char *reason, struct cg_err *err);

/* Answers a question about a connection. One that waits no more is no error. */
int cg_run_answer_egress(struct cg_run *run, uint64_t request, enum cg_egress_decision decision,
                         const char *reason, struct cg_err *err);

/*
 * An event of the session: calls that a rule decides are answered, all else goes to the face. Takes
 * @e.
 */
int cg_run_event(struct cg_run *run, struct cg_event *e, struct cg_err *err);

/*
 * The face has shown this event: if it is the running cell's RESULT, the cell is done. Other events
 * are ignored.
 */
void cg_run_result(struct cg_run *run, const struct cg_event *e);

/* The command line. 0; negative with what is wrong. Free with cg_run_options_fini() in any case. */
int cg_run_parse(int argc, char **argv, struct cg_run_options *o, struct cg_err *err);
void cg_run_options_fini(struct cg_run_options *o);

extern const char cg_run_help[];

#endif
