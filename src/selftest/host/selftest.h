/*
 * `cellgate selftest`: attempts to get out of a sandbox of this machine. Shared by:
 * - selftest.c: options, and the run in a command's sandbox;
 * - report.c: the list of attempts, and the report of each;
 * - scene.c: a temporary folder with the files, settings, sockets, memory and keys of the attempts;
 * - canary.c: the process outside that attempts try to reach, and its servers;
 * - kernel.c: the run in sessions' kernels, and the attempts that only a kernel can make;
 * - mcp.c: an MCP server for it.
 * The attempts themselves are in src/selftest/inside, a program of its own.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "base/proc.h"

struct cg_scene;

enum cg_outcome { CG_OUT_HELD, CG_OUT_HOLE, CG_OUT_WORKS, CG_OUT_FAILS, CG_OUT_SKIP, CG_N_OUTCOMES };

/* One line of the report. */
struct cg_attempt_line {
        const char *name, *group, *layer, *bare, *what; /* borrowed from the list's text */
        bool allow;
        bool kernel;  /* tried in a kernel */
        bool command; /* tried in a command's sandbox */
        bool inside;  /* made by the program inside */
        bool wanted;  /* matches --only */
        bool due;     /* started, and not reported yet */
        /* From within a kernel's process: Python, and the number of calls that reach the tool. */
        const char *python;
        unsigned calls;
        bool may_ask; /* an approval request is expected */
        /* A check after the run: fills @note. */
        enum cg_outcome (*check)(const struct cg_scene *s, char *note, size_t size);
};

struct cg_report {
        bool json, quiet;
        /* the landlock tier, in which programs can do less: failures there count as skipped */
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

/* Attempts that are not made by the program inside. */
struct cg_attempt_table {
        const struct cg_attempt_line *v;
        size_t n;
};

/* All attempts: those of the program inside and of @tables. Those that match @only are wanted. */
int cg_attempts_load(struct cg_attempt_list *l, const struct cg_attempt_table *tables, size_t n_tables,
                     const char *const *only, struct cg_err *err);
struct cg_attempt_list *cg_attempts_free(struct cg_attempt_list *l);
/* --list: the exit status. */
int cg_attempts_print(const struct cg_attempt_list *l, const struct cg_report *r);
/*
 * Marks the attempts that the program inside makes next, in a kernel or a command's sandbox.
 * Returns their number.
 */
size_t cg_attempts_due(struct cg_attempt_list *l, bool kernel);
/* Counts and prints a line of the program inside (changes @line). -1: not about a due attempt. */
int cg_report_take(struct cg_report *r, struct cg_attempt_list *l, const char *where, char *line);
/* Reports the attempts that are still due as failed. Returns their number. */
size_t cg_report_missing(struct cg_report *r, struct cg_attempt_list *l, const char *where, const char *why);

/* Attempts that only a kernel can make (kernel.c), and checks when all is over (scene.c). */
extern const struct cg_attempt_table cg_attempts_kernel, cg_attempts_after;

/* The standard output of a program of ours, which must end with status 0. */
int cg_selftest_output(const char *const *argv, char **ret, struct cg_err *err);

struct cg_scene {
        char dir[PATH_MAX];
        struct cg_buf text; /* parameters of the attempts: lines NAME=VALUE */
        bool bare;          /* --no-sandbox */
        const char *tier;   /* --tier, borrowed; NULL: full */
        struct cg_proc canary;
        /* pipes: the canary writes its ports to canary_out, and ends when canary_in is closed */
        int canary_out;
        int canary_in;
        int terminal; /* the master's end of a terminal */
        char terminal_name[64];
        /* Sockets and a FIFO that nothing inside may reach: a connection or data is a hole. */
        int stream, abstract, dgram, fifo;
        int shm_id, msg_id, sem_id, mqueue;
        long key;
        char secret[33];
};

int cg_scene_make(struct cg_scene *s, bool bare, struct cg_err *err);
/* Removes everything that was made. */
void cg_scene_end(struct cg_scene *s);
/* Appends "layers=" and the layers of a sandbox, the array "layers" of @info, to @out. */
void cg_scene_add_layers(struct cg_buf *out, const json_t *info);
/* DIR/@name into @buf, of PATH_MAX bytes. */
const char *cg_scene_path(const struct cg_scene *s, const char *name, char *buf);
/* PATH with folders in the workspace, one of which does not exist. */
#define CG_SCENE_SEARCH_MAX 10240
const char *cg_scene_search_path(const struct cg_scene *s, char buf[CG_SCENE_SEARCH_MAX]);
/* The settings file of the sandbox; and the file of parameters, last, when they are complete. */
int cg_scene_write_settings(const struct cg_scene *s, struct cg_err *err);
int cg_scene_write(const struct cg_scene *s, struct cg_err *err);
/* Makes the checks of cg_attempts_after. */
void cg_scene_after(const struct cg_scene *s, struct cg_report *r, const struct cg_attempt_list *l);

/* The process that attempts try to reach: `cellgate-cli selftest --canary`. Ends with its stdin. */
int cg_canary_main(void);

/*
 * The MCP server whose calls kernels are to make only when they were approved: `cellgate-cli
 * selftest --mcp-server FILE`.
 */
int cg_selftest_mcp_main(const char *marks);

/*
 * The run in kernels. @signals: readable when it is to be aborted. Negative: attempts could not be
 * made; the outcomes of those that were made are in the report.
 */
int cg_selftest_kernel(struct cg_scene *s, struct cg_attempt_list *l, struct cg_report *r, int signals,
                       struct cg_err *err);
