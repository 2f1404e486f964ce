/* The command `cellgate`: its table of subcommands, exit statuses and what they share. */
#pragma once

#include <jansson.h>
#include "cellgate.h"

/*
 * Exit statuses; the --help of each command says the same. A name that is not found is an error of
 * the command line (2), but 1 of what ends by itself: questions, sessions, jobs.
 */
enum cg_exit {
        CG_EXIT_OK = 0,
        CG_EXIT_RAISED = 1, /* a cell raised; gen: a tool was rejected */
        CG_EXIT_USAGE = 2,  /* command line, settings, or output that could not be written */
        CG_EXIT_KERNEL_DIED = 3,
        CG_EXIT_REFUSED = 4, /* a refused tool call that the cell did not catch */
        CG_EXIT_TIMEOUT = 124,
        CG_EXIT_CANCELLED = 130,
        /* the reader of standard output has exited: the status that a shell reports for SIGPIPE */
        CG_EXIT_PIPE = 141,
};

/* argv[0] is the subcommand's name. Returns the exit status. */
typedef int (*cg_cli_run_fn)(int argc, char **argv);

struct cg_cli_command {
        const char *name; /* at most 10 characters */
        cg_cli_run_fn run;
        const char *what; /* at most 87, for `cellgate --help`; NULL: another line names it */
};

int cg_cli_run(int argc, char **argv);
int cg_cli_approvals(int argc, char **argv);
int cg_cli_config(int argc, char **argv);
int cg_cli_daemon(int argc, char **argv);
int cg_cli_runtimes(int argc, char **argv);
int cg_cli_env(int argc, char **argv);
int cg_cli_events(int argc, char **argv);
int cg_cli_gen(int argc, char **argv);
/* queue, session and job */
int cg_cli_jobs(int argc, char **argv);
int cg_cli_sandboxmcp(int argc, char **argv);
int cg_cli_policy(int argc, char **argv);
int cg_cli_mcp(int argc, char **argv);
int cg_cli_mcp_serve(int argc, char **argv);
int cg_cli_jupyter(int argc, char **argv);
int cg_cli_doctor(int argc, char **argv);
int cg_cli_selftest(int argc, char **argv);
int cg_cli_sandbox(int argc, char **argv); /* returns the command's exit status */

/* Prints "cellgate NAME: TEXT", escaped where unsafe, on standard error. Returns CG_EXIT_USAGE. */
int cg_cli_fail(const char *command, const struct cg_err *err);

/* Prints help on standard output: CG_EXIT_OK, or CG_EXIT_USAGE when it cannot be written. */
int cg_cli_print(const char *text);
/* The same for a text that may have failed. */
struct cg_buf;
int cg_cli_print_buf(const struct cg_buf *b);

/*
 * Prints JSON in ASCII on lines of its own; @flags are those of json_dumps(). NULL fails. With
 * --json a list is an array, with JSON_INDENT(2), or in an object with further members; what goes
 * on is an object in each line. Durations are "..._ms", times Unix seconds.
 */
int cg_cli_print_json(const json_t *o, size_t flags);

/* The end of a plural. */
static inline const char *cg_cli_s(long long n)
{
        return n == 1 ? "" : "s";
}
