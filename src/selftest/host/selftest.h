/*
 * `cellgate selftest`: attempts to get out of a sandbox of this machine. What its parts share:
 *      selftest.c         options, the run in a command's sandbox report.c  the table of attempts,
 *      what is said of each scene.c   a throw-away folder with files, settings, sockets, memory and
 *      keys that attempts are about canary.c  the process outside that attempts try to reach;
 *      servers kernel.c  the same in a session's kernel, and what only a kernel can try; mcp.c: a
 *      server for it
 * The attempts themselves are in src/selftest, a program of its own.
 */
#ifndef CG_SELFTEST_HOST_SELFTEST_H
#define CG_SELFTEST_HOST_SELFTEST_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/proc.h"

/* One line of the report. */
struct cg_attempt_line {
        const char *name, *group, *layer, *bare, *what; /* borrowed from the list's text */
        bool allow;
        /* to be tried in a kernel as well, or only there */
        bool kernel;
        bool command;
        bool inside; /* made by the program inside */
        bool wanted;
        bool due; /* is being tried */
};

enum cg_outcome { CG_OUT_HELD, CG_OUT_HOLE, CG_OUT_WORKS, CG_OUT_FAILS, CG_OUT_SKIP, CG_N_OUTCOMES };

struct cg_report {
        bool json, quiet;
        /*
         * the landlock tier, in which programs can do less: what fails there is not tried, not
         * wrong
         */
        bool weak;
        size_t width;
        size_t n[CG_N_OUTCOMES];
};

#define CG_SELFTEST_HELPER CG_LIBEXECDIR "/cellgate-selftest"

/* Prints one attempt's line and counts it. @where: "sandbox" or "kernel". */
void cg_report_line(struct cg_report *r, const struct cg_attempt_line *a, const char *where,
                    enum cg_outcome o, const char *note);

/* Prints the sum: the exit status. */
int cg_report_sum(const struct cg_report *r);

struct cg_attempt_list {
        char *text;
        struct cg_attempt_line *v;
        size_t n;
};

/* All attempts there are; wanted are those that match @only. */
int cg_attempts_load(struct cg_attempt_list *l, const char *const *only, struct cg_err *err);
struct cg_attempt_list *cg_attempts_free(struct cg_attempt_list *l);
/* --list: the exit status. */
int cg_attempts_print(const struct cg_attempt_list *l, const struct cg_report *r);
struct cg_attempt_line *cg_attempt_named(const struct cg_attempt_list *l, const char *name);
/*
 * Marks those that the program inside is to try now, in a kernel or in a command's sandbox; how
 * many.
 */
size_t cg_attempts_due(struct cg_attempt_list *l, bool kernel);
/* How many of these have said nothing yet. */
size_t cg_attempts_left(const struct cg_attempt_list *l);
/*
 * A line that it printed (changes it): counted and printed; -1 when it is none of those that are
 * due.
 */
int cg_report_take(struct cg_report *r, struct cg_attempt_list *l, const char *where, char *line);
/* What is still due was not tried: never a success. How many. */
size_t cg_report_missing(struct cg_report *r, struct cg_attempt_list *l, const char *where, const char *why);

/* What is tried in a kernel only, and what is looked at afterwards. */
extern const struct cg_attempt_line cg_attempts_kernel[], cg_attempts_after[];
extern const size_t cg_n_attempts_kernel, cg_n_attempts_after;

/* The standard output of a program of ours, which must end with status 0. */
int cg_selftest_output(char *const *argv, char **ret, struct cg_err *err);

struct cg_scene {
        char dir[PATH_MAX];
        struct cg_buf text; /* what the attempts are told: lines NAME=VALUE */
        bool bare;          /* --no-sandbox */
        const char *tier;   /* --tier, borrowed; NULL: full */
        struct cg_proc canary;
        /* pipe: the canary's port numbers; closing its other end, canary_in, ends it */
        int canary_out;
        int canary_in;
        int terminal; /* the master's end of a terminal */
        char terminal_name[64];
        /*
         * What waits for somebody from inside: anything that comes is a hole that an attempt did
         * not notice itself.
         */
        int stream, abstract, dgram, fifo;
        int shm_id, msg_id, sem_id, mqueue;
        long key;
        char secret[33];
};

int cg_scene_make(struct cg_scene *s, bool bare, struct cg_err *err);
/* Whatever there is of it, removed. */
void cg_scene_end(struct cg_scene *s);
/* A value that attempts are told, or NULL; the text is the scene's until it changes. */
int cg_scene_set(struct cg_scene *s, struct cg_err *err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/* DIR/@name into @buf, of PATH_MAX bytes. */
const char *cg_scene_path(const struct cg_scene *s, const char *name, char *buf);
/* The settings of the sandbox, as a file; and the scene's text, last of all, when all is known. */
int cg_scene_write_settings(const struct cg_scene *s, struct cg_err *err);
int cg_scene_write(const struct cg_scene *s, struct cg_err *err);
/* Looks at what was left when all is over. */
void cg_scene_after(const struct cg_scene *s, struct cg_report *r, const struct cg_attempt_list *l);

/*
 * The process that attempts are about: `cellgate-cli selftest --canary`. Ends with its standard
 * input.
 */
int cg_canary_main(void);

/*
 * The MCP server whose calls kernels are to make only when they were approved: `cellgate-cli
 * selftest --mcp-server FILE`.
 */
int cg_selftest_mcp_main(const char *marks);

/*
 * In kernels. @signals: readable when this is to end. An error is what kept attempts from being
 * made at all; what came of each is in the report.
 */
int cg_selftest_kernel(struct cg_scene *s, struct cg_attempt_list *l, struct cg_report *r, int signals,
                       struct cg_err *err);

/* @name matches one of the patterns, or there are none. */
bool cg_selftest_matches(const char *const *only, const char *name);

#endif
