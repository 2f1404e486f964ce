/*
 * `cellgate mcp serve`: what its files share.
 *
 * The I/O thread (mcp_serve.c) reads messages, writes messages and answers at once what needs no
 * kernel. Each session has a worker (work.c), which owns its kernel and carries out its tool calls,
 * one after the other, so that it may block in libcellgate while pings, cancellations and other
 * sessions go on. They share the queues of queue.c, under one lock.
 */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <sys/queue.h>
#include <time.h>
#include "base/buf.h"
#include "base/hold.h"
#include "base/log.h"
#include "base/secrets.h"
#include "cellgate.h"
#include "cli/common/approve.h"
#include "cli/common/events.h"
#include "cli/common/images.h"
#include "cli/common/kernel_options.h"
#include "cli/mcp_serve/cut.h"
#include "cli/mcp_serve/structured.h"
#include "mcp/server.h"
#include "sandbox/limit.h"

/* One message of the client, with the id that cellgate-mcp-http gives it. */
#define CG_SERVE_MAX_LINE (CG_MAX_MCP_MESSAGE + 64)
/* Limit of a session's jobs, and of calls that wait: far more than an agent sends at once. */
#define CG_SERVE_MAX_JOBS 64
/*
 * Results of a session's cells that are kept: their number and memory, and how long after they were
 * read. The newest is always kept.
 */
#define CG_SERVE_MAX_KEPT   256u
#define CG_SERVE_KEPT_BYTES ((size_t)16 << 20)
#define CG_SERVE_KEPT_MS    600000
/* Questions about calls that the client shows at once; the others wait for their turn. */
#define CG_SERVE_MAX_OPEN 8u
/* Questions in one result, for clients of the stateless era. */
#define CG_SERVE_MAX_INPUTS 32u
/* The length of a requestState: 128 random bits in hexadecimal. */
#define CG_SERVE_STATE 32u
/* Limit of the output that comes between two calls. */
#define CG_SERVE_BETWEEN_CHARS 5000u
/*
 * Bytes that the client has not read. Above the first no more is read from it, above the second the
 * worker waits.
 */
#define CG_SERVE_STOP_READING ((size_t)16 << 20)
#define CG_SERVE_STOP_WORKING ((size_t)64 << 20)
#define CG_SERVE_MAX_OUT      ((size_t)512 << 20)
/* Characters of one read of a resource. */
#define CG_SERVE_READ_CHARS ((size_t)1000000)
/* Output of a cell that read_output can return. */
#define CG_SERVE_MAX_OUTPUT ((size_t)16 << 20)
/* The last line of a cell's output, for progress. */
#define CG_SERVE_LINE ((size_t)1024)
/* Hexadecimal digits of a session's id, which nobody guesses; sessions that ended and are known. */
#define CG_SERVE_ID           32u
#define CG_SERVE_MAX_ENDED    64u
#define CG_SERVE_MAX_SESSIONS 256

enum cg_serve_toolset {
        CG_SERVE_CORE = 1,
        CG_SERVE_JOBS = 2,
        CG_SERVE_SESSIONS = 4,
        CG_SERVE_FILES = 8,
        CG_SERVE_INSPECT = 16,
        CG_SERVE_APPROVALS = 32, /* alone: who decides runs no code */
        CG_SERVE_HOST = 64,
        CG_SERVE_WEB = 128
};

struct cg_serve_options {
        struct cg_kernel_options kernel;
        int64_t ask_timeout_ms;
        int64_t wait_ms; /* of a call for its cell */
        int64_t idle_ms; /* after which a session ends; 0: never */
        int max_sessions, max_per_client;
        unsigned toolsets; /* bits */
        /*
         * Set by cellgate-mcp-http: the beginning of all ids of sessions, by which it finds this
         * process ("": none); and that a call without session_id gets a session of its own.
         */
        char id_begin[9];
        bool new_sessions;
        bool by_name;             /* and that its clients are told apart by their names */
        char places[128];         /* kernel.approvers, with `place` */
        const char *place;        /* of the toolset approvals, and of those who decide here over HTTP */
        bool compat;              /* the Python package serves */
        const char *print_config; /* a client; NULL: serve */
        const char *web_search;   /* address of a SearXNG server, or SERVER.TOOL; NULL: none */
        bool plain;               /* results have no structuredContent */
        const char *http;         /* the address, by cellgate-mcp-http; NULL: standard input and output */
        bool of_http;             /* an option that means something with http only, */
        bool of_sessions;         /* or with the toolset sessions as well */
};

/*
 * Tool, its name for agents, its toolset, whether it has the parameter session_id, and what begins
 * a call of it (calls.c).
 */
#define CG_SERVE_TOOLS(X) \
        X(EXECUTE, "execute_ipython_cell", CORE, true, execute) \
        X(REGISTER, "register_mcp_server", CORE, true, in_turn) \
        X(INSTALL, "install_package", CORE, true, install) \
        X(UNINSTALL, "uninstall_package", CORE, true, in_turn) \
        X(RESET, "reset", CORE, true, in_turn) \
        X(READ_OUTPUT, "read_output", CORE, true, read_output) \
        X(START_CELL, "start_cell", JOBS, true, start) \
        X(CELL_STATUS, "cell_status", JOBS, false, status) \
        X(CELL_RESULT, "cell_result", JOBS, false, result) \
        X(CANCEL_CELL, "cancel_cell", JOBS, false, cancel) \
        X(SEND_INPUT, "send_input", JOBS, false, send_input) \
        X(CREATE_SESSION, "create_session", SESSIONS, false, create) \
        X(LIST_SESSIONS, "list_sessions", SESSIONS, false, list) \
        X(TERMINATE, "terminate_session", SESSIONS, true, terminate) \
        X(BRIDGE, "bridge_data", SESSIONS, false, bridge) \
        X(LIST_FILES, "list_files", FILES, true, in_turn) \
        X(READ_FILE, "read_file", FILES, true, in_turn) \
        X(WRITE_FILE, "write_file", FILES, true, in_turn) \
        X(MOVE_FILE, "move_file", FILES, true, in_turn) \
        X(REMOVE_FILE, "remove_file", FILES, true, in_turn) \
        X(LIST_VARIABLES, "list_variables", INSPECT, true, variables) \
        X(SANDBOX_INFO, "sandbox_info", INSPECT, true, in_turn) \
        X(EXPLAIN, "explain_denial", INSPECT, true, in_turn) \
        X(LIST_APPROVALS, "list_approvals", APPROVALS, false, approver) \
        X(SHOW_APPROVAL, "show_approval", APPROVALS, false, approver) \
        X(DECIDE_APPROVAL, "decide_approval", APPROVALS, false, approver) \
        X(HOST_EXEC, "host_exec", HOST, true, called) \
        X(HOST_FILE_READ, "host_file_read", HOST, true, called) \
        X(HOST_FILE_WRITE, "host_file_write", HOST, true, called) \
        X(HOST_FILE_LIST, "host_file_list", HOST, true, called) \
        X(HOST_FILE_COPY, "host_file_copy", HOST, true, called) \
        X(REQUEST_HOST, "request_host_access", HOST, true, called) \
        X(LIST_HOST, "list_host_access", HOST, true, called) \
        X(FETCH, "fetch_webpage", WEB, true, called) \
        X(BROWSER, "browser_fetch", WEB, true, called) \
        X(SEARCH, "web_search", WEB, true, called)

enum cg_serve_tool {
#define X(tool, name, toolset, session, begin) CG_SERVE_##tool,
        CG_SERVE_TOOLS(X)
#undef X
                CG_SERVE_ARTIFACT, /* resources/read of a file: no tool, but a call that waits for a job */
        CG_SERVE_N_TOOLS
};

struct cg_serve_tool_def {
        const char *name;
        enum cg_serve_toolset toolset;
        bool session; /* has the parameter session_id */
};

/* Sources of a cell's output. */
enum cg_serve_source { CG_SOURCE_OTHER, CG_SOURCE_STDOUT, CG_SOURCE_STDERR, CG_SOURCE_RESULT };

enum cg_job_state {
        CG_JOB_QUEUED,
        CG_JOB_TAKEN,   /* by the worker, which may be blocked: it opens a session, or runs another tool */
        CG_JOB_RUNNING, /* a cell; what it has given so far is the worker's */
        CG_JOB_DONE     /* a cell whose result is kept */
};

/* A cell, or a call of a tool that takes its turn after the cells. */
struct cg_job {
        TAILQ_ENTRY(cg_job) entry;
        struct cg_serve_session *session;
        enum cg_serve_tool tool; /* CG_SERVE_EXECUTE: a cell, also one of start_cell */
        enum cg_job_state state;
        uint64_t number; /* of a cell, in its execution_id */
        char *args;      /* JSON text; NULL: a cell */
        char *code;
        double timeout;
        struct cg_answer *answer;
        struct cg_serve_bridge *bridge; /* of bridge_data */
        char *contents;           /* of CG_SERVE_ARTIFACT: the result without its closing brace; NULL: none */
        int64_t start_ms, end_ms; /* since_ms of its state */
        int64_t read_ms;          /* its result was read; 0: not yet */
        bool cancelled;
        const char *ended_by; /* a call of this tool came after it: it ends, and is answered */
        bool asked_again;     /* its questions, once the client was back */
        bool known;           /* the client has its execution_id or its result */
        struct {
                int64_t ms; /* 0: it is none */
                time_t time;
                char *ignored; /* of the call */
        } task;                /* by which its call was answered, at this time */
};

/* A tools/call that has not been answered, or was answered by questions and is held. */
struct cg_pending {
        TAILQ_ENTRY(cg_pending) entry;
        enum cg_serve_tool tool;
        struct cg_serve_session *session; /* NULL: the tool needs none */
        struct cg_job *job;               /* that it waits for; it lives at least as long */
        bool fresh;                       /* the session was made for it */
        bool own;                         /* the job is of this call: both are cancelled together */
        char *id, *token;                 /* JSON text; token: NULL when no progress is wanted */
        char *ignored; /* about arguments that the tool does not have, and a shared session; NULL: none */
        bool task;     /* at deadline_ms it is answered by a task of the protocol */
        int64_t deadline_ms; /* INT64_MAX: at the job's end */
        bool part;           /* it wants output from one character on, as does the next: */
        size_t from, max_chars;
        int64_t since_ms, progress_ms;
        double progress; /* the last value that was sent */
        char *said;      /* the last text; NULL: none */
        bool stateless;  /* of the stateless era; then: */
        enum cg_mcpd_level log;
        /* such a call whose client can be asked: its arguments; while it is held: */
        char *args; /* NULL: nothing can be asked by its result */
        char state[CG_SERVE_STATE + 1];
        uint64_t first_ask, last_ask;
        struct cg_answer *done; /* of a job that ended meanwhile and is not kept; NULL: none */
};

enum cg_serve_subject {
        CG_SERVE_ASK_CALL,       /* of a tool, a resource, a prompt or a program */
        CG_SERVE_ASK_OWN,        /* a tool of our own, whose job waits for the answer */
        CG_SERVE_ASK_CONNECTION, /* that the session asks about */
        CG_SERVE_ASK_SERVER,     /* a form or a page of an MCP server */
        CG_SERVE_ASK_INPUT,      /* input() of the cell that runs; `tool` is its prompt */
};

/* A question to the person at the client (elicitation). */
struct cg_serve_ask {
        TAILQ_ENTRY(cg_serve_ask) entry;
        enum cg_serve_subject subject;
        uint64_t id;         /* of our request; 0: not sent yet */
        bool by_result;      /* it is no request, but a part of a call's result (mrtr.c) */
        uint64_t approval;   /* of the session; 0: CG_SERVE_ASK_OWN */
        uint64_t all_until;  /* the form offers all waiting calls of this tool, up to this approval */
        uint64_t all_id;     /* the id of that form */
        char *server, *tool; /* of a connection "" */
        const char *method;  /* cg_event_method(); static */
        char *json;          /* arguments, connection, or params of the server's request */
        size_t len;
        char *line;     /* of a call: as in struct cg_call; NULL: none */
        size_t part;    /* that the open form shows; 0: the first view */
        bool all_shown; /* the open form can accept */
        int64_t since_ms, deadline_ms;
        int64_t given_ms; /* by_result: to the last call that was answered by it */
        bool answered, accept, timed_out;
        bool by_user; /* it was not accepted by a clear answer */
        bool always;  /* of a connection: for this session, a no as well */
        bool same;    /* the same call is accepted from now on */
        char *reason;
        bool by_agent; /* no form is sent: the tool send_input answers it */
        char *result;  /* the client's answer to a server, the text of input(); NULL: none */
};

/* The folder for installed packages (packages.c). */
struct cg_packages {
        char *path; /* NULL: none */
        int fd;     /* holds the lock that marks it as in use */
};

enum cg_serve_life {
        CG_SERVE_MADE, /* has no worker yet */
        CG_SERVE_LIVES,
        CG_SERVE_ENDS, /* takes no calls any more; its worker ends it */
        CG_SERVE_GONE, /* the worker is about to exit */
};

/* The arguments of create_session (session.c). */
struct cg_serve_given {
        char *name;     /* NULL: none */
        char *folder;   /* in which its cells start; NULL: the workspace */
        char *language; /* of its cells; NULL: the server's */
};

/* The clients of a session, where a process has several (clients.c). */
struct cg_serve_users {
        char opener[sizeof(((struct cg_mcpd_peer *)0)->client)]; /* "": one without a name */
        json_t *others; /* by name; true: the next result says that the session is shared */
};

/* State of the messages to clients whose calls wait (progress.c). */
struct cg_serve_shown {
        size_t chars;             /* of the output of the cell that runs */
        char line[CG_SERVE_LINE]; /* its last line, or the progress of a tool */
        int64_t messages_ms;      /* the time in which messages are counted: */
        unsigned messages, left_out;
};

/* The output of cells and of the tools of a session (events.c). */
struct cg_serve_output {
        struct cg_answer *answer;  /* of the call that runs; NULL: none */
        struct cg_answer *between; /* output that came while none ran, or of a cancelled call */
        struct cg_images *images;
        struct cg_denial_reports denials; /* denials that were reported for this call */
        json_t *refusals;                 /* texts of the last ones, for explain_denial */
};

/* The end of the cell that runs (work.c). */
struct cg_serve_cell_end {
        bool done;
        enum cg_status status;
        char *text;
        bool death_reported;
};

/* A session of the agent: one kernel, its queue, its questions and its worker. */
struct cg_serve_session {
        TAILQ_ENTRY(cg_serve_session) entry;
        struct cg_serve *sv;
        char id[CG_SERVE_ID + 1];
        pthread_t worker;
        int work_fd; /* eventfd that wakes the worker */

        /* guarded by sv->lock */
        enum cg_serve_life life;
        char why[80]; /* it ends or has ended */
        struct cg_serve_given given;
        struct cg_serve_users users;
        int64_t since_ms, used_ms;
        TAILQ_HEAD(cg_jobs, cg_job) jobs; /* oldest first, as the other lists; that of the worker */
        struct cg_jobs kept;              /* cells that have ended */
        size_t n_jobs, n_kept;
        struct cg_serve_shown shown;
        TAILQ_HEAD(, cg_serve_ask) asks;
        /* written by the worker only, so that it may read it without the lock */
        struct cg_session *session;
        uint64_t cell; /* that runs; 0: none */

        /* the worker's */
        struct cg_sandbox_limits limits;
        struct cg_approve *approve; /* with what was approved for this session */
        struct cg_packages packages;
        struct cg_client *client;
        json_t *shared;     /* calls that another terminal may decide (worker): {APPROVAL: [SERVER, TOOL]} */
        json_t *registered; /* servers that the agent has added; added to new kernels, too */
        struct cg_serve_output out;
        struct cg_serve_bridge *bridge; /* that waits for a reply of the kernel; NULL: none */
        struct cg_serve_cell_end end;
        char *lost; /* why the kernel's session has ended; NULL: it has not */
};

/* The last sessions that have ended. */
struct cg_serve_ended {
        struct {
                char id[CG_SERVE_ID + 1], why[80];
        } v[CG_SERVE_MAX_ENDED];
        size_t n; /* since the start */
};

/* The minute that began with its first cell. */
struct cg_serve_rate {
        int64_t since_ms;
        unsigned cells;
};

struct cg_serve {
        /* constant while the threads run */
        struct cg_serve_options opts;
        struct cg_log log;
        char *workspace, *images;
        char *settings;                /* of the sandbox; NULL: the default policy */
        struct cg_sandbox_limits caps; /* of --limit and the settings */
        json_t *configured;            /* mcpServers of --mcp */
        json_t *texts;                 /* tools.json, with what depends on the options */
        struct cg_secrets secrets;     /* values of --env, which no answer shows */
        int io_fd;                     /* eventfd that wakes the I/O thread */

        pthread_mutex_t policy; /* of all use of policy files, whose budgets all sessions share */
        bool rules_checked;     /* guarded by it */

        /* guarded by lock */
        pthread_mutex_t lock;
        pthread_cond_t room;                                      /* the client has read something, or stop */
        pthread_cond_t gone;                                      /* a session is */
        TAILQ_HEAD(cg_serve_sessions, cg_serve_session) sessions; /* oldest first, as the other lists */
        struct cg_serve_session *own; /* of calls that name none; NULL: it has ended, */
        char own_lost[80];            /* for this reason; "": it has never been */
        struct cg_serve_ended ended;
        TAILQ_HEAD(, cg_pending) pending;
        TAILQ_HEAD(, cg_pending) held; /* calls that were answered by questions */
        size_t n_pending, n_held;
        uint64_t last_cell, last_ask;
        bool has_tokens; /* a call wants progress; set by the I/O thread */
        struct cg_buf out;
        struct cg_mcpd proto;
        struct cg_serve_rate rate;
        bool stop;
        struct cg_err refused; /* why it does not start; code 0: it does */
};

/* The earlier of two times; a negative one means none. */
static inline int64_t cg_serve_sooner(int64_t a_ms, int64_t b_ms)
{
        if (a_ms < 0 || (b_ms >= 0 && b_ms < a_ms))
                return b_ms;
        return a_ms;
}

/* ---- options.c */
int cg_serve_parse(int argc, char **argv, struct cg_serve_options *o, struct cg_err *err);

/* Becomes the Python package's program (compat.c); returns only with an error. */
int cg_serve_compat(int argc, char **argv, struct cg_err *err);
/* Prints how @client starts this program with the options of this command line. */
int cg_serve_print_config(const char *client, int argc, char **argv, struct cg_err *err);

/* Becomes cellgate-mcp-http; returns only when that fails. */
int cg_serve_http(int argc, char **argv, struct cg_err *err);

/* ---- tools.c */
extern const struct cg_serve_tool_def cg_serve_tool_defs[];
/* Names of toolsets with commas between, as bits. CG_E_INVAL names those that there are. */
int cg_serve_read_toolsets(const char *list, unsigned *ret, struct cg_err *err);
/*
 * The tools that the options allow, and their @names; reads sv->texts. Caller frees; NULL when out
 * of memory.
 */
char *cg_serve_tools(struct cg_serve *sv, const char *names[CG_SERVE_N_TOOLS + 1]);
/* For the agent, after cg_serve_tools(). They name the configured servers. */
char *cg_serve_instructions(const struct cg_serve *sv);
/*
 * Appends a sentence about the arguments that the tool does not have; nothing where there are none.
 * Models and other servers' clients add some, and a call that fails for them helps nobody.
 */
int cg_serve_unknown_args(const struct cg_serve *sv, enum cg_serve_tool tool, const char *args,
                          struct cg_buf *b, struct cg_err *err);
/* Its results have structuredContent, unless those of all are plain. */
bool cg_serve_has_schema(enum cg_serve_tool tool);
/* Arguments of a call, checked. CG_E_INVAL says why, for the agent. A string is the caller's. */
int cg_serve_arg_string(const char *args, const char *name, char **ret, struct cg_err *err);
/* *ret is NULL where it is absent or null. */
int cg_serve_arg_optional(const char *args, const char *name, char **ret, struct cg_err *err);
int cg_serve_arg_number(const char *args, const char *name, double def, double *ret, struct cg_err *err);
/* A whole number of @min or more; @max where it is larger. */
int cg_serve_arg_size(const char *args, const char *name, size_t def, size_t min, size_t max, size_t *ret,
                      struct cg_err *err);

/* ---- host_web.c */
/* Adds the servers of the toolsets `host` and `web` to those of --mcp. */
int cg_serve_add_own_servers(struct cg_serve *sv, struct cg_err *err);
/* The code of a cell that calls the tool (returns). */
int cg_serve_call_code(const struct cg_serve *sv, enum cg_serve_tool tool, const char *args, char **ret,
                       struct cg_err *err);

/* ---- queue.c */
void cg_serve_wake(int fd);
/* Clears the wake-ups. */
void cg_serve_woken(int fd);
/* Queues a message of our own (lock held), or nothing when there is no room. */
int cg_serve_notify(struct cg_serve *sv, const char *method, const char *params);
int cg_serve_request(struct cg_serve *sv, uint64_t id, const char *method, const char *params);
/* The call of a request, in the list (lock held); NULL when out of memory, or not there. */
struct cg_pending *cg_serve_add_pending(struct cg_serve *sv, const struct cg_mcpd_in *in);
struct cg_pending *cg_serve_find_pending(struct cg_serve *sv, struct cg_slice id);
void cg_serve_remove_pending(struct cg_serve *sv, struct cg_pending *p);
/*
 * Appends the result of a call whose job is @job (NULL: none), for a client of the stateless era or
 * of another (lock held).
 */
int cg_serve_add_result(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, const char *ignored,
                        bool stateless, struct cg_buf *b);
/* Answers a call and frees it (lock held). @a: NULL when out of memory. */
void cg_serve_reply(struct cg_serve *sv, struct cg_pending *p, struct cg_answer *a);
void cg_serve_send_result(struct cg_serve *sv, struct cg_slice id, const char *result, size_t len);
/* Frees a call that is held (lock held). */
void cg_serve_free_held(struct cg_serve *sv, struct cg_pending *p);
/* The job ends, or is forgotten (NULL: all are): sees to the calls held for it (lock held). */
void cg_serve_held_ends(struct cg_serve *sv, struct cg_job *job);
void cg_serve_drop_held(struct cg_serve *sv, const struct cg_job *job);
/* The session of this id that takes calls; NULL: there is none (lock held). */
struct cg_serve_session *cg_serve_session_of(struct cg_serve *sv, const char *id);
/* The jobs before @job (lock held). */
size_t cg_serve_count_before(const struct cg_job *job);
/* The worker: the next job (borrows), NULL when there is none now. */
struct cg_job *cg_serve_next_job(struct cg_serve_session *s);
/* Frees its jobs. */
void cg_serve_drop_jobs(struct cg_serve_session *s);
struct cg_job *cg_job_free(struct cg_job *j);
/* True if the job was cancelled, a later call ends it, or the server is being stopped. */
bool cg_serve_given_up(const struct cg_job *job);

/* ---- session.c */
/* One more session (returns a borrowed one; lock held). CG_E_LIMIT: there are as many as may be. */
int cg_serve_session_new(struct cg_serve *sv, struct cg_serve_session **ret, struct cg_err *err);
/* Frees it, which has no worker (lock held). */
void cg_serve_session_remove(struct cg_serve_session *s);
/* Lets its worker end it (lock held). */
void cg_serve_session_end(struct cg_serve_session *s, const char *why);
/* Its images and packages, before its first kernel (worker). */
int cg_serve_session_prepare(struct cg_serve_session *s, struct cg_err *err);
/* Takes the arguments of create_session (worker). CG_E_INVAL or CG_E_LIMIT says what is refused. */
int cg_serve_session_configure(struct cg_serve_session *s, const char *args, struct cg_err *err);
/* The language of its cells (borrowed). */
const char *cg_serve_language(const struct cg_serve_session *s);

/* Something was refused in the session (worker). */
void cg_serve_remember_refusal(struct cg_serve_session *s, const char *text);
/* sandbox_info, with a session open (worker). */
int cg_serve_sandbox_info(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                          struct cg_err *err);

/* ---- bridge.c */
/* Reads the arguments; @to: the id of the second session. */
int cg_serve_bridge_new(const char *args, const char *to, struct cg_serve_bridge **ret, struct cg_err *err);
/* True if the variables have been read and can be set. */
bool cg_serve_bridge_has_data(const struct cg_serve_bridge *b);
struct cg_serve_bridge *cg_serve_bridge_free(struct cg_serve_bridge *b);
const char *cg_serve_bridge_to(const struct cg_serve_bridge *b);
/* Requests the variables from the kernel, or sets them; it answers with REPLY (worker). */
int cg_serve_bridge_send(struct cg_serve_session *s, struct cg_serve_bridge *b, struct cg_err *err);
bool cg_serve_bridge_waits(const struct cg_serve_bridge *b);
/* The kernel has replied. @a: NULL if variables were read. */
int cg_serve_bridge_result(struct cg_serve_bridge *b, struct cg_answer *a, struct cg_err *err);
/* Takes a REPLY of the kernel, if it is for @b (may be NULL; worker). */
void cg_serve_bridge_replied(struct cg_serve_bridge *b, const struct cg_event *e);

/* ---- explain.c */
/* explain_denial (worker). 1: job->code is a cell that does it. */
int cg_serve_explain(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err);

/* ---- clients.c */
/* The client of the last request has made it, or shares it (lock held). */
bool cg_serve_is_users(const struct cg_serve_session *s);
/* Appends a sentence for this client where others have begun to share the session (lock held). */
void cg_serve_add_shared(struct cg_serve_session *s, struct cg_buf *b);
/* The call names the session: CG_E_STATE says why its client may not (lock held). */
int cg_serve_check_client(struct cg_serve_session *s, const char *args, struct cg_err *err);

/* ---- sessions.c */
/* Starts its worker, which opens a kernel when it is needed (lock held). Frees it on failure. */
int cg_serve_session_start(struct cg_serve_session *s, struct cg_err *err);
/*
 * Sets @p's session: that of the argument @name; without it the own one, which is made anew if
 * it has ended, or a new one (lock held).
 */
int cg_serve_find_session(struct cg_serve *sv, const char *args, const char *name, struct cg_pending *p,
                          struct cg_err *err);
/* Ends idle sessions, frees gone ones (I/O thread; lock held). Milliseconds to the next, or -1. */
int64_t cg_serve_sessions_tick(struct cg_serve *sv);
/* Frees all, whose workers are gone. */
void cg_serve_sessions_fini(struct cg_serve *sv);
/* Appends what the agent may know of all sessions, a line each (lock held). */
void cg_serve_list_sessions(const struct cg_serve *sv, struct cg_buf *b);

/* ---- calls.c */
/* Queues a job, for whose end @p waits (I/O thread; lock held). Takes @j. */
int cg_serve_add_job(struct cg_pending *p, struct cg_job *j, size_t max_chars, struct cg_err *err);
/* Answers a call, or queues what it asks for (I/O thread; lock held). */
int cg_serve_call(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);
/*
 * The client has cancelled the request @id, or only @gone: then a cell goes on, and its result is
 * kept for cell_result (lock held).
 */
void cg_serve_cancel(struct cg_serve *sv, struct cg_slice id, bool gone);
/* The stream of the request @id broke off, and the client reads another one (lock held). */
void cg_serve_back(struct cg_serve *sv, struct cg_slice id);

/* ---- state.c */
/* A cell that waits for its session (lock held). */
bool cg_serve_is_starting(const struct cg_job *job);
/* The state of a cell that has not ended, in words for the agent (lock held). */
void cg_serve_add_state(const struct cg_job *job, struct cg_buf *b);
#define CG_SERVE_TASK_ID 64u
void cg_serve_task_id(const struct cg_job *job, char ret[CG_SERVE_TASK_ID]);
/* Appends the members that each task has (lock held). */
void cg_serve_add_task(const struct cg_job *job, const char *status, struct cg_buf *b);
/* Answers a call by a task, which is its job, and frees the call (lock held). */
void cg_serve_make_task(struct cg_serve *sv, struct cg_pending *p);

/* ---- jobs.c */
/*
 * Answers the calls that have waited long enough (lock held): @worker: for the cell that runs in
 * this session; NULL: for other cells. Returns milliseconds to the next, or -1.
 */
int64_t cg_serve_answer_due(struct cg_serve *sv, const struct cg_serve_session *worker);
/* Answers a call whose cell has ended, or one whose cell has not (lock held). */
void cg_serve_answer_done(struct cg_serve *sv, struct cg_pending *p);
void cg_serve_answer_unfinished(struct cg_serve *sv, struct cg_pending *p);
/*
 * Adds a part of a cell's output, and says how to get @more: the beginning of a call. Returns
 * whether it ends with the output.
 */
bool cg_serve_add_part(struct cg_answer *a, const struct cg_job *job, size_t from, size_t max,
                       const char *more);
/* An answer about the cell @number, 0: of the session only; NULL: out of memory. */
struct cg_answer *cg_serve_cell_answer(const struct cg_serve_session *s, uint64_t number, size_t max_chars);
/* The cell of the argument execution_id, of any session (lock held). The error names some. */
int cg_serve_find_cell(struct cg_serve *sv, const char *args, struct cg_job **ret, struct cg_err *err);
/* Interrupts the job that the worker has, or ends another (lock held). */
void cg_serve_cancel_job(struct cg_job *job);
/* The worker: answers the calls of its job, keeps a cell. Waits while the client does not read. */
void cg_serve_finish_job(struct cg_serve_session *s, struct cg_job *job);

/* A cell of this session; NULL: there is none, or its result is kept no more (lock held). */
struct cg_job *cg_serve_session_cell(struct cg_serve_session *s, uint64_t number);
/* Frees results that are kept no more (lock held). */
void cg_serve_forget_old(struct cg_serve_session *s);

/* ---- resources.c */
/* Answer resources/list and resources/read (I/O thread; lock held). */
int cg_serve_list_resources(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);
int cg_serve_read_resource(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);

/* ---- artifact.c */
/* Reads the file of a CG_SERVE_ARTIFACT, with a session open (worker). */
int cg_serve_read_artifact(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                           struct cg_err *err);
/* Bytes at the beginning that are text, as in read_file; 0: none is. @to_end: there are no more. */
size_t cg_serve_text_of(const char *data, size_t len, bool to_end);

/* ---- links.c */
/* The URI of a part of the output of a cell that has ended. */
#define CG_SERVE_URI 100u
void cg_serve_uri(const struct cg_job *job, enum cg_serve_source part, char ret[CG_SERVE_URI]);
/* CG_SOURCE_OTHER: it is no name of a part. */
enum cg_serve_source cg_serve_part_of(const char *name);
/*
 * Appends an object for each part of which something was cut, and for at most @max_files files of
 * the cell: @begin, and members.
 */
void cg_serve_add_parts(const struct cg_job *job, const char *begin, size_t max_files, struct cg_buf *b);

/* ---- progress.c */
/*
 * Sends progress of the calls that want it, where due (I/O thread; lock held). Returns milliseconds
 * to the next, or -1.
 */
int64_t cg_serve_progress(struct cg_serve *sv);
/* Text about the answer that the running cell waits for; false: for none (lock held). */
bool cg_serve_waits(const struct cg_serve_session *s, struct cg_buf *b);
/* Sends a message about the session to the clients that want those of @level (lock held). */
void cg_serve_message(struct cg_serve_session *s, enum cg_mcpd_level level, const char *text);
/* A line of progress, of a tool that the cell calls (worker). */
void cg_serve_tool_progress(struct cg_serve_session *s, const char *text);
/* The cell has new output (worker). */
void cg_serve_output(struct cg_serve_session *s, const struct cg_answer *a);

/* ---- ask.c */
/* Decides a call of the running cell, or asks (worker). */
void cg_serve_approve(struct cg_serve_session *s, struct cg_event *e);
/* Appends what would be decided about a call, named @shown, which is not made (worker). */
void cg_serve_explain_call(struct cg_serve_session *s, struct cg_pol_call *call, const char *shown,
                           struct cg_buf *b);
/* Asks about a connection, or refuses it (worker). */
void cg_serve_connect(struct cg_serve_session *s, struct cg_event *e);
/* Passes a request of an MCP server on to the client, or declines it (worker). */
void cg_serve_forward(struct cg_serve_session *s, struct cg_event *e);
/* Asks for the text of input(). False: nobody can be asked (worker). */
bool cg_serve_input(struct cg_serve_session *s, const struct cg_event *e);
/* input() wants no answer any more (worker). */
void cg_serve_input_closed(struct cg_serve_session *s);
/* The input() that send_input answers; NULL: there is none (lock held). */
struct cg_serve_ask *cg_serve_agent_input(const struct cg_serve_session *s);
/* Answers it with @text (takes; lock held). */
void cg_serve_send_input(struct cg_serve_session *s, struct cg_serve_ask *a, char *text);
/* Refuses the calls of @server that are asked about: another program gets its name (worker). */
void cg_serve_refuse_calls(struct cg_serve_session *s, const char *server);
/* The call was cancelled: refuses the connections that are still asked about (worker). */
void cg_serve_refuse_connections(struct cg_serve_session *s);
/* APPROVAL_CLOSED: cancels the question (worker). */
void cg_serve_withdraw(struct cg_serve_session *s, uint64_t approval);
/* The event's text, for the result: another terminal may have decided about the call (worker). */
void cg_serve_decided_elsewhere(struct cg_serve_session *s, uint64_t approval, const char *why);
/*
 * Carries out answers, and refuses what was not answered in time. Returns milliseconds to the next
 * deadline or -1.
 */
int64_t cg_serve_settle(struct cg_serve_session *s);
/*
 * An answer came: by its request, or to the question @id by a result (I/O thread; lock held).
 * False: to no question of this session.
 */
bool cg_serve_answered(struct cg_serve_session *s, const struct cg_mcpd_in *in);
void cg_serve_answered_by(struct cg_serve_session *s, uint64_t id, struct cg_slice result);
/* Sends the open questions again: answers to what the client was asked before decide nothing. */
void cg_serve_ask_again(struct cg_serve_session *s);
/* Decides by rules about a tool of our own, unless they say ask; why, or by which rule (worker). */
enum cg_approve_answer cg_serve_judge_own(struct cg_serve_session *s, struct cg_pol_call *call,
                                          struct cg_buf *why);
/* Asks about it (borrows; worker). NULL: it could not be asked, for the reason in @why. */
struct cg_serve_ask *cg_serve_ask_own(struct cg_serve_session *s, const struct cg_pol_call *call,
                                      struct cg_buf *why);
/* Ends the question, and returns the answer; anything but yes has a reason (lock held). */
bool cg_serve_ask_own_end(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *why);
/* The session has ended: drops the questions about calls of its cells. */
void cg_serve_drop_asks(struct cg_serve_session *s);

/* ---- form.c */
/* Appends a question as params of elicitation/create (lock held). */
void cg_serve_form(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *params);
/* Those from YES on accept. ALWAYS, NEVER: also the same later. */
enum cg_serve_choice {
        CG_SERVE_CHOICE_NO,
        CG_SERVE_CHOICE_NEVER,
        CG_SERVE_CHOICE_VIEW,
        CG_SERVE_CHOICE_YES,
        CG_SERVE_CHOICE_ALWAYS,
        CG_SERVE_CHOICE_SAME, /* always, with the same arguments */
        CG_SERVE_CHOICE_ALL,  /* the other calls of this tool as well */
};
/* NO: what the form of @a does not offer. */
enum cg_serve_choice cg_serve_read_choice(const struct cg_serve_ask *a, const char *decision);
/* True if both are calls of the same tool. */
bool cg_serve_same_tool(const struct cg_serve_ask *a, const struct cg_serve_ask *b);

/* ---- mrtr.c */
/*
 * Answers a call by the questions of its job, where such wait (I/O thread; lock held). Returns
 * milliseconds until it is to be called again, or -1.
 */
int64_t cg_serve_ask_by_result(struct cg_serve *sv);
/* Appends a question to an object of such, and gives it an id unless it has one (lock held). */
void cg_serve_add_question(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *b);
/* A call that has a requestState: a held one comes again with answers (I/O thread; lock held). */
int cg_serve_resume(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);

/* ---- tasks.c */
/* Sets how long a call waits for its job, and what answers it then (I/O thread; lock held). */
void cg_serve_set_wait(struct cg_serve *sv, struct cg_pending *p);
/* tasks/get, tasks/update or tasks/cancel (I/O thread; lock held). */
int cg_serve_task(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err);

/* ---- events.c */
/* Handles the events that there are (worker). */
void cg_serve_drain(struct cg_serve_session *s);
/*
 * Waits for wake-ups, events of the session, and for @fd (-1: none) to be readable; then handles
 * the events, and the questions that are answered or due (worker).
 */
void cg_serve_wait(struct cg_serve_session *s, int fd, int64_t timeout_ms);
/* A remark on a line of its own in the output (worker). */
void cg_serve_remark(struct cg_serve_session *s, const char *text);
/* cg_serve_message() without the lock held (worker). */
void cg_serve_send_message(struct cg_serve_session *s, enum cg_mcpd_level level, const char *text);

/* ---- kernel.c */
/* Opens the session of libcellgate (worker). */
int cg_serve_open(struct cg_serve_session *s, struct cg_err *err);
/* The same, unless it is open. Tells the agent that the state of one that has ended is lost. */
int cg_serve_ensure_open(struct cg_serve_session *s, struct cg_answer *a, struct cg_err *err);
void cg_serve_close(struct cg_serve_session *s);

/* ---- allow.c */
/*
 * Decides whether this tool of our own may run, and waits where rules say ask; false: the error
 * says how to allow it. With an audit log, the session is open before: the decision is a record of
 * it.
 */
bool cg_serve_allowed(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a,
                      struct cg_err *err);

/* ---- register.c */
int cg_serve_register(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                      struct cg_err *err);

/* ---- work.c */
/* It is known what the client can ask its user (lock held). */
bool cg_serve_knows_client(const struct cg_serve *sv);
/* @data: the session. */
void *cg_serve_worker(void *data);

/* ---- answer.c */
struct cg_answer;
/* Text beyond @max_chars (and some more) is left out in the middle. NULL: out of memory. */
struct cg_answer *cg_answer_new(size_t max_chars);
struct cg_answer *cg_answer_free(struct cg_answer *a);
/* The result for programs (takes; NULL: none). Output that was there before is its stdout. */
void cg_answer_set_structured(struct cg_answer *a, struct cg_structured *cell);
struct cg_structured *cg_answer_structured(struct cg_answer *a);
/* Sets that of the output that comes next. */
void cg_answer_set_source(struct cg_answer *a, enum cg_serve_source source);
/* Bytes of one source that are kept, and those of them that the result does not show. */
size_t cg_answer_source_bytes(const struct cg_answer *a, enum cg_serve_source source, size_t *cut);
/* Appends them. */
void cg_answer_add_source(const struct cg_answer *a, enum cg_serve_source source, struct cg_buf *b);
/* Not all of the output is kept. */
bool cg_answer_is_dropped(const struct cg_answer *a);
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
/* The output is text of @tool (borrows) from elsewhere, and marked as such where it is shown. */
void cg_answer_set_untrusted(struct cg_answer *a, const char *tool);
/* Appends @text of the answer's output, with that mark. */
void cg_answer_mark(const struct cg_answer *a, const char *text, size_t len, struct cg_buf *b);
void cg_answer_error(struct cg_answer *a);
/* The text is shown byte for byte, as a block of its own before the remarks. */
void cg_answer_exact(struct cg_answer *a);
/* Moves the text of @from to @to, between the lines @before and @after, if not NULL. */
void cg_answer_move(struct cg_answer *to, struct cg_answer *from, const char *before, const char *after);
/* Characters of output, also those that are not kept; and whether the result has some left out. */
size_t cg_answer_chars(const struct cg_answer *a);
bool cg_answer_is_cut(const struct cg_answer *a);
size_t cg_answer_memory(const struct cg_answer *a);
/* The last line of the output that is not empty; its beginning where it is longer than @size. */
void cg_answer_last_line(const struct cg_answer *a, char *ret, size_t size);
/*
 * Adds to @to the output from the character @from on, @max characters at most. Returns the
 * character after it, which is that of @from or cg_answer_chars() when nothing more is kept.
 */
size_t cg_answer_part(struct cg_answer *to, const struct cg_answer *a, size_t from, size_t max);
/* Adds to @to all but the output: notes, files, images, the error. */
void cg_answer_rest(struct cg_answer *to, const struct cg_answer *a);
/*
 * The CallToolResult, in whose texts @secrets are "***". @note: after its own, about this call
 * alone; NULL: none. @links: blocks, each with a comma before it; NULL: none.
 */
int cg_answer_result(struct cg_answer *a, const char *note, const char *links,
                     const struct cg_secrets *secrets, struct cg_buf *b, struct cg_err *err);

/* ---- install.c */
/*
 * The words that pip is called with, without needless blanks (returns): names with extras and
 * versions, and URLs. CG_E_INVAL says what is wrong.
 */
int cg_serve_requirements(const char *text, char **ret, struct cg_err *err);
/* install_package, after it was allowed, with a session open (worker). Changes @requirements. */
void cg_serve_install(struct cg_serve_session *s, const struct cg_job *job, char *requirements,
                      struct cg_answer *a);
/* Opens a sandbox that may write in @folder alone, and connect to @hosts as well as cells may. */
int cg_serve_package_sandbox(struct cg_serve_session *s, const char *folder, json_t *hosts,
                             struct cg_session **ret, struct cg_err *err);
/* Runs a program there. Returns NULL, or why it did not succeed. */
const char *cg_serve_package_run(struct cg_serve_session *s, const struct cg_job *job,
                                 struct cg_session *kernel, const char *const *argv, const char *const *env,
                                 struct cg_answer *a);
/* Runs Python outside of a sandbox, isolated, where no file of the user is taken for a module. */
int cg_serve_package_python(struct cg_serve_session *s, const struct cg_job *job, const char *const *words,
                            struct cg_buf *out, struct cg_err *err);
/* uninstall_package, with a session open (worker). */
int cg_serve_uninstall(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err);

/* ---- npm.c */
/* The packages that npm is called with (returns). CG_E_INVAL says what is wrong. */
int cg_serve_npm_packages(const char *text, char **ret, struct cg_err *err);
/* install_package for node, once it was allowed, in an open session (worker). Changes @packages. */
void cg_serve_install_npm(struct cg_serve_session *s, const struct cg_job *job, char *packages, bool scripts,
                          struct cg_answer *a);

/* ---- files.c */

/*
 * The absolute path (returns) of the argument @name, @given, which must be below @base without
 * "..". The file is not looked at.
 */
int cg_serve_path_below(const char *base, const char *name, const char *given, char **ret,
                        struct cg_err *err);
/* A tool of the toolset files, with a session open (worker). */
int cg_serve_file(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a,
                  struct cg_err *err);

/* ---- approver.c */
/* A tool of the toolset approvals (worker). */
int cg_serve_approver(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                      struct cg_err *err);

/* ---- fonts.c */
/* After an installation: makes matplotlib's font list if that is new. Logs a failure (worker). */
void cg_serve_list_fonts(struct cg_serve_session *s);

/* ---- packages.c */
/* Makes the folder for installed packages; removes those of servers that ended without doing so. */
int cg_packages_init(struct cg_packages *p, struct cg_err *err);
void cg_packages_fini(struct cg_packages *p);
