/*
 * `cellgate run`: what its files share. run.c opens the session and runs the event loop; text.c
 * and json.c are its two outputs; session.c passes events and decisions between an output and the
 * session.
 */
#pragma once

#include <poll.h>
#include "cellgate.h"
#include "cli/common/approve.h"
#include "base/proc.h"
#include "cli/run/cells.h"
#include "cli/common/cli.h"
#include "cli/common/kernel_options.h"
#include "cli/common/screen.h"

struct cg_run_options {
        struct cg_kernel_options kernel;
        struct cg_cells cells;
        const char *file;
        const char *sync; /* the folder of --sync; NULL: none */
        int64_t timeout_ms;
        bool json;
        bool stay;                /* with json: the host says when the run ends */
        unsigned server_requests; /* with json: bits of enum cg_server_requests */
};

struct cg_run;

/*
 * How a run shows events, and how it asks about calls and connections that no rule decides. Events
 * are passed in order. A function that fails ends the run.
 */
struct cg_run_output {
        /* The session is open; its MCP servers are not added yet. May be NULL. */
        int (*opened)(struct cg_run *run, struct cg_err *err);
        /* @report: what cg_session_add_mcp_servers() returned. */
        int (*servers)(struct cg_run *run, const char *report, struct cg_err *err);
        /* A remark about the start. */
        int (*note)(struct cg_run *run, const char *text, struct cg_err *err);
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
        /* A rule has decided about a call; @why explains a refusal, else NULL. */
        int (*decided)(struct cg_run *run, const struct cg_event *e, bool accept, const char *why,
                       struct cg_err *err);
        /* No rule decides about this call or connection. Takes @e. */
        int (*ask)(struct cg_run *run, struct cg_event *e, struct cg_err *err);
        /* The run was interrupted: open questions are answered with no. */
        void (*interrupted)(struct cg_run *run);
        /*
         * The events that the loop waits for besides signals. *fd: read by readable(), -1 for none;
         * *events_too: false while no further events of the session can be taken; *timeout_ms:
         * longest time until tick(), -1 for none.
         */
        void (*wait)(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms);
        int (*readable)(struct cg_run *run, struct cg_err *err);
        /* After *timeout_ms, and once a second where standard error is a terminal. May be NULL. */
        int (*tick)(struct cg_run *run, struct cg_err *err);
        /* run->wake_fd is readable. May be NULL where that is -1. */
        int (*woken)(struct cg_run *run, struct cg_err *err);
        /*
         * The run has ended. True: threads of the output still use the session, so that it cannot
         * be freed, and the process ends as it is. May be NULL.
         */
        bool (*leave)(struct cg_run *run);
        /* The process is about to _exit(). Runs in a signal handler. May be NULL. */
        void (*abandon)(const struct cg_run *run);
        /* Reports the error that ends the run with @status. */
        void (*failed)(struct cg_run *run, const struct cg_err *err, int status);
        void (*free)(struct cg_run *run);
};

struct cg_run {
        struct cg_run_options opts;
        struct cg_screen screen;
        struct cg_client *client;
        struct cg_session *session;
        const struct cg_run_output *output;
        void *output_data;
        char *settings; /* of the sandbox; NULL: the default policy */
        char *servers;  /* text of the file of MCP servers, read once; NULL: none */
        size_t servers_len;
        bool allow_stdin;
        bool can_ask;  /* the output can ask about connections */
        int wake_fd;   /* the output's own, for woken(); -1: none */
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

/* Set run->output and run->output_data. On failure, call run->output->free() if output is set. */
int cg_run_text_init(struct cg_run *run, struct cg_err *err);
int cg_run_json_init(struct cg_run *run, struct cg_err *err);

/* session.c */
/*
 * Answers the question @e, once. @reason: of a refusal, or the rule that accepts. One that has been
 * cancelled meanwhile is no error.
 */
int cg_run_answer(struct cg_run *run, const struct cg_event *e, bool accept, const char *reason,
                  struct cg_err *err);

/*
 * Handles an event of the session: answers calls that a rule decides, passes everything else to the
 * output. Takes @e. @again: it was held back by the output's ask(), and counts in no budget.
 */
int cg_run_event(struct cg_run *run, struct cg_event *e, bool again, struct cg_err *err);

/* Called for each event that was shown: the RESULT of the running cell ends it. */
void cg_run_result(struct cg_run *run, const struct cg_event *e);

/* sync.c */
/* The process of --sync: python/cellgate/_sync.py. */
struct cg_run_sync {
        struct cg_proc proc;
        int fd;              /* its input, whose end is the end of the run; -1: it does not run */
        char path[PATH_MAX]; /* of the copy, on the other machine */
};

/* Copies the folder, and makes the copy the workspace. */
int cg_run_sync_start(struct cg_run_options *o, struct cg_run_sync *s, struct cg_err *err);
/* Waits until what has changed in the copy was brought back. */
int cg_run_sync_end(struct cg_run_sync *s, struct cg_err *err);

/* The command line. 0; negative with what is wrong. Free with cg_run_options_fini() in any case. */
int cg_run_parse(int argc, char **argv, struct cg_run_options *o, struct cg_err *err);
void cg_run_options_fini(struct cg_run_options *o);
