/* struct session, what can be asked of it, and the tables of calls to session.c. */
#pragma once

#include <jansson.h>
#include <sys/queue.h>
#include <uv.h>
#include "base/secrets.h"
#include "base/wire.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/paths.h"
#include "supervisor/core/shell.h"
#include "supervisor/core/sup.h"

/* Bytes of arguments that may wait for decisions in one session: nobody could judge more. */
#define CG_ASK_BYTES (64u << 20)
/*
 * Limit of the bytes that the host has not read. Questions, and output before them, do not wait for
 * the window, so that they reach a host that decides at once; a kernel that asks and cancels in a
 * loop must not fill the memory of a host that does not read.
 */
#define CG_ASK_UNREAD (CG_EVENT_WINDOW + CG_ASK_BYTES)

struct cg_settings;
struct host;
struct kernel;
struct member;

/*
 * The name of a cell or command for all clients of this user: the first digits of its session's id,
 * then its number, after the slot of its host where that is not 0.
 */
#define CG_JOB_SESSION 12
#define CG_JOB_ID      60

/* See cg_sup_rate_take(); zero at first. */
struct rate {
        int64_t left; /* in thousandths */
        int64_t filled_ms;
};

/* Questions that wait for the session's hosts: asks.c. */
struct asks {
        LIST_HEAD(, ask) list;
        size_t n, bytes;       /* of those that stop the clocks of cells: all but input() */
        size_t open;           /* all */
        uint64_t last;         /* the number of the last one in this session */
        uint64_t newest;       /* that of the last one that stops clocks; 0: none does */
        struct rate undecided; /* questions about programs, but those that the host has decided */
};

/* Denials: denials.c. */
struct session_denials {
        struct rate kernel;  /* those that the kernel has reported */
        struct rate server;  /* those of the sandboxes of MCP servers */
        struct rate program; /* programs that were refused */
        json_t *held;        /* reported at the end of the running cell; NULL: none */
        json_t *told;        /* "OPERATION PATH" of those that the cell's tracebacks explain; NULL: none */
        bool network_told;   /* a traceback explains that there is no network */
        uint64_t unreported; /* not reported one by one: too many, or the host read nothing */
};

/* MCP servers: guards.c, broker.c. */
struct session_servers {
        json_t *servers; /* definitions, kept for a tool server that is started again */
        /* {SERVER: [PATH, ...]}: files of them; see cg_rules_add_guards() */
        json_t *guards;
        json_t *found;      /* {SERVER: what cellgate-search has found} */
        unsigned n_dirs;    /* private folders that they got */
        bool path_reported; /* their missing entries of PATH have been reported */
        uint64_t adding;    /* request that is adding servers; 0 none */
};

/* Starts of kernels: session.c. */
struct session_start {
        uint64_t opening, resetting; /* request to answer once the kernel is ready; 0 none */
        unsigned quick_deaths;
        unsigned lost; /* kernels that ended while they started, since the last that was ready */
        int64_t kernel_ms, timeout_ms;
        uint64_t asked_ns; /* when its host asked for it */
        uv_timer_t timer;
};

/* Cells and requests: cells.c. */
struct session_queue {
        struct shell main;           /* the first of the list of shells */
        struct queued_job job;       /* of the cells that run in all shells */
        struct cell_queue unordered; /* requests that run beside cells */
        size_t n;                    /* that wait */
        int64_t next_count;          /* execution_count of the next cell that stores history */
        uv_timer_t timer;            /* of unordered */
        uint64_t late_output;        /* bytes printed by no running cell since the last cell began */
};

/* The network of cells: egress.c. */
struct session_egress {
        json_t *policy; /* made of the settings; NULL: no network at all */
        /* "NAME=VALUE": the options' variables as the settings leave them, and the proxy's */
        json_t *env;
};

/* Limits, and what counts for them: session_limits.c, costs.c. */
struct session_bounds {
        struct cg_sandbox_limits limits; /* as set by the host or the settings */
        uv_timer_t wall;                 /* the session's time */
        bool wall_runs;
        struct counted counted; /* for the costs of cells */
};

/* From its host's request to its end. */
struct session_life {
        bool opened, ending;
        int64_t opened_ms;    /* when its host got it */
        uint64_t end_request; /* SESSION_END, answered once the kernel has ended */
        int open_timers;
};

/* Cells that its kernel has run. */
struct session_use {
        uint64_t view; /* of the kernel of a spare, see cg_sup_spare_view() */
        bool warming;  /* it was made as a spare, and runs its first cell */
        bool kernel;   /* its kernel has run a cell of a host */
        bool ever;     /* one of its kernels has */
};

/* The folder that it was opened for. */
struct session_folder {
        dev_t dev;
        ino_t ino; /* 0: not known yet */
        int fd;    /* O_PATH, by which its name is found where it was moved; -1 or 0: none */
};

struct session {
        struct sup *sup;
        struct host *host; /* that opened it */
        LIST_HEAD(, member) members;
        uint16_t last_slot;
        uint64_t number;
        char id[33];
        char *dir; /* DIR/sNUMBER, with lib/ */
        json_t *options;
        const char *workspace;        /* of the options */
        struct cg_settings *settings; /* "settings" of the options; NULL: none */
        int64_t approval_timeout_ms;
        struct session_audit *audit; /* NULL: it is not in the audit log */
        struct cg_secrets secrets;   /* of its variables: never in the log, nor in events */
        json_t *functions;           /* of the host: {NAME: {"ask": bool, "tools": {NAME: true}}} */
        struct kernel *kernel;
        struct session_servers mcp;
        struct session_start start;
        struct session_queue queue;
        struct session_egress egress;
        struct session_bounds bounds;
        struct session_denials denials;
        struct asks asks;
        TAILQ_HEAD(, command) commands; /* beside cells: commands.c */
        struct session_jobs jobs;
        struct session_life life;
        bool attachable; /* other hosts can list it and attach to it */
        struct session_use use;
        char *path_notice; /* what its host is told about PATH; NULL: not known yet */
        size_t unread;     /* bytes of events the host has not acknowledged */
        struct session_folder folder;
};

/* Events of a session's kernel; session.c implements them. */
struct cg_kernel_ops {
        void (*ready)(struct session *ss);
        /* No kernel could be started. */
        void (*failed)(struct session *ss, const struct cg_err *err);
        void (*message)(struct session *ss, struct cg_msg *m);
        /* Its processes have ended; @how describes that. @was_ready: it may have run cells. */
        void (*dead)(struct session *ss, const char *how, bool was_ready);
        /* Something else (@how) ended while it started the kernel. */
        void (*start_lost)(struct session *ss, const char *how);
};

/* Calls of lower layers to sessions; session.c implements them. */
struct cg_session_ops {
        /* Makes a session (borrows @options), starts its kernel. NULL and *err: failed at once. */
        struct session *(*make)(struct sup *s, struct host *h, json_t *options, uint64_t request,
                                struct cg_err *err);
        /* See cg_sup_session_end(). */
        void (*end)(struct session *ss, const char *why);
        /* The first cell of a spare has ended. */
        void (*warmed)(struct session *ss);
        /* Replaces a kernel that has run nothing of a host's. */
        void (*renew_kernel)(struct session *ss);
        /*
         * Replaces the kernel; the cell that runs in @l ends with @status and @text, the others as
         * "kernel_died".
         */
        void (*replace_kernel)(struct session *ss, struct shell *l, const char *status, const char *text);
        /* The attached host with that slot has left: its cells end. */
        void (*member_gone)(struct session *ss, uint16_t slot);
        /* A host has read events. */
        void (*room)(struct session *ss);
        /* The last timer is closed: frees the session. */
        void (*release)(struct session *ss);
};

/*
 * What paths of the session's settings are relative to, and which files programs of its client's
 * user obey. Borrows of the session and its supervisor. @by_name: as in struct cg_path_base.
 */
struct cg_path_base cg_sup_paths_of(const struct session *ss, bool by_name);
/* NULL: there is none. */
struct session *cg_sup_session_by_number(const struct sup *s, uint64_t number);
/* The number of sessions that @h has opened; NULL: of spares. */
size_t cg_sup_sessions_of(const struct sup *s, const struct host *h);
/* The cell that runs in the main shell; 0 none. */
uint64_t cg_sup_running_cell(const struct session *ss);
/* Bytes that the cell or request @id has printed; NULL: it does not run. */
uint64_t *cg_sup_cell_output(struct session *ss, uint64_t id);
/* The option "namespace"; "default" without one. */
const char *cg_sup_namespace(const struct session *ss);
bool cg_sup_is_sandboxed(const struct session *ss);
/* The tier that the options, else the settings, ask for; NULL: neither does. */
const char *cg_sup_tier(const struct session *ss);
/* Other clients of this user may decide about its questions: the option "deciders" is "user", */
bool cg_sup_terminals_decide(const struct session *ss);
/* or "approvers" names the places of some. */
bool cg_sup_others_decide(const struct session *ss);
/* The code of the cell with that number on the kernel wire, if it runs. */
struct cg_bytes cg_sup_cell_code(const struct session *ss, uint64_t id);
/* The setting "exec" of a session's options, else of its settings; NULL: none. */
const json_t *cg_sup_exec_setting(const json_t *options);
/* The demanded mode; DENY if it is not valid, which the session's start checks. */
enum cg_exec cg_sup_exec(const json_t *options);
void cg_sup_job_id(const struct session *ss, uint64_t id, char buf[CG_JOB_ID]);
/* A timer of the session, which is freed when all of them are closed. */
void cg_sup_timer_init(struct session *ss, uv_timer_t *t, void *data);
void cg_sup_timer_close(struct session *ss, uv_timer_t *t);
