/*
 * Shared by all modules of cellgate-supervisor: its state, its event loop, and the calls from lower
 * layers to upper ones. One thread, one event loop; all state is reachable from struct sup.
 *
 * The modules by layer; a module calls only those of the same line or of lines above it. It calls
 * others through the tables of functions in struct sup. Folders: core; cells (with commands and
 * artifacts); ask; limits (with denials and costs); network; servers.
 *
 *      sup, remove, oom        this file; folders that are removed off the event loop; OOM counters
 *      host_link               messages to hosts
 *      state                   struct session: what can be asked of it without side effects
 *      audit                   records for the audit log
 *      bus                     events of all sessions, for clients of this user
 *      kernel_link             the connection to one kernel
 *      members                 a session's hosts: events, flow control
 *      jobs                    how many cells and commands run at once
 *      clock                   time limits of cells, which stop while a decision is pending
 *      denials                 refusals of the sandbox, reported to hosts
 *      session_limits, machine_memory  limits of sessions; the machine's memory
 *      masks, doors            masked credentials; forwarded unix sockets and ports
 *      costs                   what cells cost
 *      command, command_server, commands  commands beside cells: one, what starts them, requests
 *      artifacts               files that cells made or changed
 *      asks                    what waits for an answer of a session's host
 *      programs                programs that cells want to start
 *      egress, broker          the egress proxy; the tool server, and calls that it asks about
 *      functions               calls of functions of the host
 *      cells                   cells and requests: queues, time limits, interrupts, results
 *      input                   input() of cells
 *      servers/                definitions of MCP servers, and their files: registration
 *      protected               paths that no kernel may write; what is refused because of them
 *      zygote                  the zygote's process and control socket
 *      kernel                  one kernel's process, from the request to the zygote to its end
 *      spare                   sessions that are started in advance
 *      slots                   the sessions of a node; its end in order
 *      session                 sessions: options, kernels, ends
 *      approvals               questions that other clients than their session's host decide
 *      attach                  hosts that attach to a session of another host
 *      control                 sessions and jobs of all hosts: lists, ends
 *      status                  what the supervisor is used for, and its end on request
 *      host                    connections of hosts: lifelines, HELLO, requests
 *      main
 */
#pragma once

#include <jansson.h>
#include <sys/queue.h>
#include <uv.h>
#include "base/buf.h"
#include "base/ceilings.h"
#include "base/log.h"
#include "sandbox/names/stamps.h"
#include "supervisor/cells/jobs.h"
#include "supervisor/core/bus.h"

struct cg_broker_ops;
struct cg_kernel_ops;
struct cg_session_ops;
struct cg_zygote_ops;

/* ------------------------------------------------------------------ a watched descriptor */

struct watch;
typedef void (*watch_cb)(struct watch *w);

struct watch {
        uv_poll_t poll;
        watch_cb cb, on_closed;
        void *data;
        int fd; /* owned: closed with the watch */
        bool active;
};

/* ------------------------------------------------------------------ the supervisor */

/* Processes that the supervisor starts itself. */
enum cg_sup_child { CG_CHILD_ZYGOTE, CG_CHILD_BROKER, CG_CHILD_EGRESS, CG_CHILD_AUDIT, CG_CHILDREN };

/* The options of the start, and the user as found then. */
struct sup_setup {
        const char *dir;
        int dir_fd; /* O_PATH */
        const char *preload;
        const char *kernel_env; /* that kernels run in; NULL: CG_KERNEL_ENV */
        const char *home;       /* the user's: $HOME, else the account's; NULL: none */
        json_t *env;            /* cg_user_env() of this process */
        json_t *homes;          /* cg_sup_homes() */
        struct cg_stamps home_stamps;
        bool private_mode;
        int64_t linger_ms; /* -1: a shared supervisor that does not end by itself */
        int64_t started_ms;
        struct cg_buf confinement; /* hosts must have the same (base/confinement.h); empty: any */
        size_t want_spares;
        const char *audit_key, *audit_head; /* files, or a URL, for the audit log's writer; NULL: none */
};

/* Calls to upper layers. */
struct sup_upper {
        const struct cg_broker_ops *broker;
        const struct cg_zygote_ops *zygote;
        const struct cg_kernel_ops *kernel;
        const struct cg_session_ops *session;
        void (*stop)(struct sup *s, const char *why); /* ends all sessions */
        /* what other clients than a session's host may decide about has changed */
        void (*asks)(struct sup *s);
};

/* Connections of hosts: host.c. */
struct sup_clients {
        struct watch listener, lifeline_listener;
        LIST_HEAD(host_links, hostlink) links; /* connections of the host wire */
        size_t n_unauthenticated;              /* of them, those that no HELLO has bound to a lifeline yet */
        /* Ends a supervisor without hosts: a private one at its start, a lingering one any time. */
        uv_timer_t no_host;
        struct watch starter; /* of a private supervisor, until its host has connected */
        LIST_HEAD(host_list, host) hosts;
        uint64_t next;
};

/* The slots of `cellgate node`: slots.c. */
struct sup_node {
        size_t slots;        /* sessions of its clients; 0: it is no node */
        size_t client_slots; /* of one client; 0: no such limit */
        uint64_t memory;     /* of which its sessions' memory limits are parts, bytes; 0: of none */
        pid_t starter_pid;   /* `cellgate node` */
        int64_t drain_ms;
        bool draining;
        uv_timer_t drain_timer;
        size_t n_refused, n_starts;
        uint32_t starts_us[512]; /* the last of them */
};

/* The machine's memory: machine_memory.c. */
struct sup_memory {
        uint64_t job;    /* of its Slurm job or node, bytes; 0: it is in none, or all is its own */
        uint64_t room;   /* for all sessions, bytes; 0: not determined yet */
        uint64_t kernel; /* default limit of a sandboxed kernel, bytes; 0: none, or not determined yet */
        uv_timer_t timer;
        /* pidfd of the last kernel that was ended for memory; -1: none, or it has returned all */
        int ended;
        uint64_t ended_ms; /* when, by the loop's clock */
};

/* Requests for the status, which wait until a thread has counted the memory: status.c. */
struct sup_status {
        uv_work_t work;
        uv_timer_t timer;
        bool counting;
        uint64_t counted; /* by the thread */
        uint64_t memory;  /* of the last count, bytes; 0: none has ended */
        struct {
                uint64_t host, request;
        } waiting[64];
        size_t n_waiting;
};

struct sup_unfinished {
        size_t removals; /* of folders */
        size_t resets;   /* of peaks, see costs.c */
        size_t kernels;  /* that are still ending in order */
};

struct sup {
        uv_loop_t loop;
        struct cg_log log;
        struct sup_setup setup;
        struct sup_upper upper;
        bool stopping;
        uv_signal_t sig_term, sig_int, sig_chld;
        pid_t children[CG_CHILDREN]; /* 0: does not run */

        /* Each is defined in its module. */
        struct zygote *zygote;
        struct broker *broker;
        struct audit *audit; /* NULL: no writer runs */
        unsigned audit_gap;  /* records that a writer may not have written before it broke off */
        struct egress *egress;
        struct spares *spares;
        struct jobs jobs;
        struct bus bus;
        struct sup_clients clients;
        struct sup_node node;
        struct sup_memory memory;
        struct sup_status status;

        LIST_HEAD(, registration) registrations; /* of MCP servers whose files are searched */
        uint64_t next_session, next_approval, next_kernel, next_request;
        struct session *sessions[CG_MAX_SESSIONS]; /* by number modulo CG_MAX_SESSIONS */
        size_t n_sessions;
        struct sup_unfinished unfinished;
};

/* Calls @cb whenever @fd (takes) is readable. */
int cg_sup_watch_start(struct sup *s, struct watch *w, int fd, watch_cb cb, void *data, struct cg_err *err);
/*
 * Closes a watch; @on_closed (may be NULL) runs later from the loop. false: it is not active, and
 * @on_closed will not run.
 */
bool cg_sup_watch_close(struct watch *w, watch_cb on_closed);
/* Waits for other events of uv_poll than being readable; 0: for none. */
void cg_sup_watch_for(struct watch *w, int events);
/* Ends all sessions and the event loop. */
void cg_sup_stop(struct sup *s, const char *why);
/* Starts a timer that counts from now, not from the start of the loop's iteration. */
void cg_sup_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms);
/* Reaps children that the supervisor adopted and that have ended, or kills all it adopted. */
void cg_sup_reap_orphans(struct sup *s, bool kill_them);
