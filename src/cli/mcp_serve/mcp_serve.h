/*
 * `cellgate mcp serve`: what its files share.
 *
 * Two threads. The I/O thread (mcp_serve.c) reads messages, writes messages and answers at once
 * what needs no kernel. The worker (work.c) owns the session and carries out tool calls, one after
 * the other, so that it may block in libcellgate while pings and cancellations are still answered.
 * They share the queues of queue.c, under one lock.
 */
#ifndef CG_CLI_MCP_SERVE_MCP_SERVE_H
#define CG_CLI_MCP_SERVE_MCP_SERVE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/secrets.h"
#include "cellgate.h"
#include "cli/common/approve.h"
#include "cli/common/denials.h"
#include "cli/common/images.h"
#include "cli/common/kernel_options.h"
#include "cli/mcp_serve/cut.h"
#include "cli/mcp_serve/structured.h"
#include "mcp/server.h"

/*
 * One message of the client: a cell of CG_MAX_CODE in which every other character needs an escape.
 */
#define CG_SERVE_MAX_LINE ((size_t)32 << 20)
/* Limit of queued calls: far more than an agent sends at once. */
#define CG_SERVE_MAX_JOBS 64
/* Questions about calls that the client shows at once; the others wait for their turn. */
#define CG_SERVE_MAX_OPEN 8u
/* Limit of the output that comes between two calls. */
#define CG_SERVE_BETWEEN_CHARS 5000u
/*
 * Bytes that the client has not read. Above the first no more is read from it, above the second the
 * worker waits.
 */
#define CG_SERVE_STOP_READING ((size_t)16 << 20)
#define CG_SERVE_STOP_WORKING ((size_t)64 << 20)
#define CG_SERVE_MAX_OUT      ((size_t)512 << 20)
/* Output of a cell that read_output can return. */
#define CG_SERVE_MAX_OUTPUT ((size_t)16 << 20)

struct cg_serve_options {
        struct cg_kernel_options kernel;
        int64_t ask_timeout_ms;
        const char *print_config; /* a client; NULL: serve */
        bool plain;               /* results have no structuredContent */
};

/* In the order of cg_serve_tool_names. */
enum cg_serve_tool {
        CG_SERVE_EXECUTE,
        CG_SERVE_REGISTER,
        CG_SERVE_INSTALL,
        CG_SERVE_RESET,
        CG_SERVE_READ_OUTPUT
};

/* A tools/call that has not been answered. The first of the queue runs. */
struct cg_job {
        TAILQ_ENTRY(cg_job) entry;
        enum cg_serve_tool tool;
        char *id, *token, *args; /* JSON text; token: NULL when no progress is wanted */
        int64_t since_ms, progress_ms;
        double progress; /* the last value that was sent */
        bool running, cancelled;
        bool reset; /* a call of reset came after it: it ends, and is answered */
};

enum cg_serve_subject {
        CG_SERVE_ASK_CALL,       /* of a tool, a resource, a prompt or a program */
        CG_SERVE_ASK_OWN,        /* a tool of our own, whose job waits for the answer */
        CG_SERVE_ASK_CONNECTION, /* that the session asks about */
        CG_SERVE_ASK_SERVER,     /* a form or a page of an MCP server */
};

/* A question to the person at the client (elicitation). */
struct cg_serve_ask {
        TAILQ_ENTRY(cg_serve_ask) entry;
        enum cg_serve_subject subject;
        uint64_t id;         /* of our request; 0: not sent yet */
        uint64_t approval;   /* of the session; 0: CG_SERVE_ASK_OWN */
        uint64_t all_until;  /* the form offers all waiting calls of this tool, up to this approval */
        char *server, *tool; /* of a connection "" */
        const char *method;  /* cg_event_method(); static */
        char *json;          /* arguments, connection, or params of the server's request */
        size_t len;
        size_t part;    /* that the open form shows; 0: the first view */
        bool all_shown; /* the open form can accept */
        int64_t deadline_ms;
        bool answered, accept, timed_out;
        bool always; /* of a connection: for this session, a no as well */
        char *reason;
        char *result; /* CG_SERVE_ASK_SERVER: the client's answer; NULL: none */
};

/* The folder for installed packages (packages.c). */
struct cg_packages {
        char *path; /* NULL: none */
        int fd;     /* holds the lock that marks it as in use */
};

struct cg_serve {
        /* constant while the threads run */
        struct cg_serve_options opts;
        struct cg_log log;
        char *workspace;
        char *settings; /* of the sandbox; NULL: the default policy */
        struct cg_packages packages;
        struct cg_secrets secrets; /* values of --env, which no answer shows */
        int io_fd, work_fd;        /* eventfds that wake the I/O thread and the worker */

        /* guarded by lock */
        pthread_mutex_t lock;
        pthread_cond_t room;       /* the client has read something, or stop */
        pthread_cond_t gone;       /* worker_gone */
        TAILQ_HEAD(, cg_job) jobs; /* oldest first */
        size_t n_jobs;
        struct cg_buf out;
        struct cg_mcpd proto;
        TAILQ_HEAD(, cg_serve_ask) asks; /* oldest first */
        uint64_t last_ask;
        /* written by the worker only, so that it may read it without the lock */
        struct cg_session *session;
        uint64_t cell; /* that runs; 0: none */
        bool stop, worker_gone;
        bool refused; /* it does not start, for the reason start_err */
        struct cg_err start_err;

        /* the worker's */
        struct cg_client *client;
        struct cg_images *images;
        json_t *configured;               /* mcpServers of --mcp */
        json_t *registered;               /* servers that the agent has added; added to new sessions, too */
        struct cg_answer *answer;         /* of the call that runs; NULL: none */
        struct cg_answer *between;        /* output that came while none ran, or of a cancelled call */
        struct cg_buf output;             /* of the last cell whose output was cut */
        struct cg_denial_reports denials; /* denials that were reported for this call */
        bool cell_done, death_reported, rules_checked;
        enum cg_status status;
        char *status_text;
        char *lost; /* why the session has ended; NULL: it has not */
};

/* ---- options.c */
/* Prints the help; returns the exit status. */
int cg_serve_help(void);
int cg_serve_parse(int argc, char **argv, struct cg_serve_options *o, struct cg_err *err);
void cg_serve_options_fini(struct cg_serve_options *o);

/* ---- print_config.c */
int cg_serve_check_client(const char *client, struct cg_err *err);
/* Prints how @client starts this program with the options of this command line. */
int cg_serve_print_config(const char *client, int argc, char **argv, struct cg_err *err);

/* ---- tools.c */
extern const char *const cg_serve_tool_names[];
/*
 * The tools, and instructions for the agent, which name the configured servers. @settings: the
 * sandbox has settings of its own. Caller frees; NULL when out of memory.
 */
char *cg_serve_tools(bool settings, bool plain);
char *cg_serve_instructions(const json_t *configured, bool settings);
/*
 * Appends a sentence about the arguments that the tool does not have; nothing where there are none.
 * Models and other servers' clients add some, and a call that fails for them helps nobody.
 */
int cg_serve_unknown_args(enum cg_serve_tool tool, const char *args, struct cg_buf *b, struct cg_err *err);
/*
 * Arguments of a call, checked. CG_E_INVAL says what is wrong, for the agent. A string is the
 * caller's to free.
 */
int cg_serve_arg_string(const char *args, const char *name, char **ret, struct cg_err *err);
int cg_serve_arg_number(const char *args, const char *name, double def, double *ret, struct cg_err *err);

/* ---- queue.c */
void cg_serve_wake(int fd);
/* Clears the wake-ups. */
void cg_serve_woken(int fd);
/* Queues a message of our own (lock held), or nothing when there is no room. */
int cg_serve_notify(struct cg_serve *sv, const char *method, const char *params);
int cg_serve_request(struct cg_serve *sv, uint64_t id, const char *method, const char *params);
/* Queues a call (I/O thread; lock held). Answers at once when the queue is full. */
int cg_serve_call(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);
/* The client has cancelled the request @id (lock held). */
void cg_serve_cancel(struct cg_serve *sv, struct cg_slice id);
/* Sends progress of the calls that want it, where due (lock held). Returns whether any wants it. */
bool cg_serve_progress(struct cg_serve *sv);
/* Sends progress of the running call with @text, of a tool that its code calls, if it is wanted. */
void cg_serve_tool_progress(struct cg_serve *sv, const char *text);
/* The worker: the next job (borrows), NULL when there is none now. */
struct cg_job *cg_serve_next_job(struct cg_serve *sv);
/*
 * The worker: answers a job with a result (JSON text) and frees it. Waits while the client does not
 * read. Returns false if it was cancelled: then nothing is sent.
 */
bool cg_serve_finish_job(struct cg_serve *sv, struct cg_job *job, const char *result, size_t len);
/* Frees all jobs. */
void cg_serve_drop_jobs(struct cg_serve *sv);
/* True if the job was cancelled, reset was called after it, or the server is being stopped. */
bool cg_serve_given_up(struct cg_serve *sv, const struct cg_job *job);

/* ---- ask.c */
/* Waits on behalf of the worker, which handles its events meanwhile; @fd: -1 for none. */
typedef void (*cg_serve_wait_fn)(struct cg_serve *sv, int fd, int64_t timeout_ms);
/* Decides a call of the running cell, or asks (worker). */
void cg_serve_approve(struct cg_serve *sv, struct cg_event *e);
/* Asks about a connection, or refuses it (worker). */
void cg_serve_connect(struct cg_serve *sv, struct cg_event *e);
/* Passes a request of an MCP server on to the client, or declines it (worker). */
void cg_serve_forward(struct cg_serve *sv, struct cg_event *e);
/* Refuses the calls of @server that are asked about: another program gets its name (worker). */
void cg_serve_refuse_calls(struct cg_serve *sv, const char *server);
/* The call was cancelled: refuses the connections that are still asked about (worker). */
void cg_serve_refuse_connections(struct cg_serve *sv);
/* APPROVAL_CLOSED: cancels the question (worker). */
void cg_serve_withdraw(struct cg_serve *sv, uint64_t approval);
/*
 * Carries out answers, and refuses what was not answered in time. Returns milliseconds to the next
 * deadline or -1.
 */
int64_t cg_serve_settle(struct cg_serve *sv);
/* An answer came (I/O thread; lock held). */
void cg_serve_answered(struct cg_serve *sv, const struct cg_mcpd_in *in);
/*
 * Decides whether this tool of our own may run; false: *why says how to allow it. Where rules say
 * ask, calls @wait_fn until the user has answered.
 */
bool cg_serve_allowed(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      struct cg_buf *why);
/* The session has ended: drops the questions about calls of its cells. */
void cg_serve_drop_asks(struct cg_serve *sv);

/* ---- work.c */
void *cg_serve_worker(void *data);

/* ---- answer.c */
struct cg_answer;
/* Text beyond @max_chars (and some more) is left out in the middle. NULL: out of memory. */
struct cg_answer *cg_answer_new(size_t max_chars);
struct cg_answer *cg_answer_free(struct cg_answer *a);
/* The result for programs (takes), which is not collected by this module; NULL: none. */
void cg_answer_set_structured(struct cg_answer *a, struct cg_structured *cell);
struct cg_structured *cg_answer_structured(struct cg_answer *a);
/* Output as it comes. What cannot be kept for lack of memory is counted as left out. */
void cg_answer_text(struct cg_answer *a, const char *text, size_t len);
/* The same on lines of its own. */
void cg_answer_lines(struct cg_answer *a, const char *text, size_t len);
/* A remark of ours after the output, never cut. */
void cg_answer_note(struct cg_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A display or result with all it has: text, image. @im may be NULL: nothing is saved. */
void cg_answer_display(struct cg_answer *a, struct cg_event *e, struct cg_images *im);
/* The list of saved images, each as "(PATH)"; NULL: none. */
const char *cg_answer_files(const struct cg_answer *a);
void cg_answer_error(struct cg_answer *a);
/* Moves the text of @from to @to, between the lines @before and @after, if not NULL. */
void cg_answer_move(struct cg_answer *to, struct cg_answer *from, const char *before, const char *after);
/* Takes the whole output (up to CG_SERVE_MAX_OUTPUT) into @ret if the result has it cut. */
void cg_answer_take_output(struct cg_answer *a, struct cg_buf *ret);
/* Adds @max characters of @output from the character @start on, and says how to get more. */
void cg_answer_page(struct cg_answer *a, const struct cg_buf *output, size_t start, size_t max);
/* The CallToolResult, in whose texts @secrets are "***". */
int cg_answer_result(struct cg_answer *a, const struct cg_secrets *secrets, struct cg_buf *b,
                     struct cg_err *err);

/* ---- install.c */
/* A name with extras and versions, nothing else. CG_E_INVAL says what is wrong. */
int cg_serve_check_requirement(const char *text, struct cg_err *err);
/* install_package, after it was allowed (worker). */
void cg_serve_install(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      const char *requirement, struct cg_answer *a);

/* ---- fonts.c */
/*
 * After an installation: makes matplotlib's list of fonts where that is new. A failure is logged
 * (worker).
 */
void cg_serve_list_fonts(struct cg_serve *sv);

/* ---- packages.c */
/* Makes the folder for installed packages; removes those of servers that ended without doing so. */
int cg_packages_init(struct cg_packages *p, struct cg_err *err);
void cg_packages_fini(struct cg_packages *p);

#endif
