/*
 * What the parts of cellgate-supervisor share. One thread, one event loop; all state hangs off
 * struct sup.
 *
 *      host.c      connections of host applications: lifelines, HELLO, requests in, events out
 *      session.c   sessions: their options, kernels and ends
 *      cells.c     cells and requests: queues, time limits, interrupts, results
 *      members.c   who takes part in a session: events to whom they concern, flow control
 *      spare.c     sessions started ahead, so that the next one opens at once
 *      kernel.c    one kernel's process and wire: from the request to the zygote to its end
 *      remove.c    folders that go, off the event loop
 *      zygote.c    the zygote's process and control socket
 *      broker.c    the tool server's process and wire; approvals
 *      limits.c    limits of sessions: how they are held, and what is told when one is reached
 *      egress.c    the egress proxy: which kernel may reach what, questions about connections,
 *                  denials
 */
#ifndef CG_SUPERVISOR_H
#define CG_SUPERVISOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/proc.h"
#include "base/util.h"
#include "base/wire.h"
#include "base/zlink.h"
#include "sandbox/cgroup.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/sandbox.h"
#include "supervisor/oom.h"

struct sup;
struct host;
struct session;
struct kernel;

/* ------------------------------------------------------------------ a watched descriptor */

struct watch;
typedef void (*watch_cb)(struct watch *w);

struct watch {
        uv_poll_t poll;
        watch_cb cb;
        void *data;
        int fd; /* owned: closed with the watch */
        bool active;
};

/* Calls @cb whenever @fd (takes) is readable. */
int watch_start(struct sup *s, struct watch *w, int fd, watch_cb cb, void *data, struct cg_err *err);

/* ------------------------------------------------------------------ processes of ours */

struct zygote {
        struct cg_proc proc;
        struct watch control, pid;
        bool up, ready;
        int closing; /* handles whose close callback is still to come: no successor before */
        char *python, *ipython;
        struct kernel *waiting; /* kernels to be asked for once it is ready */
        int64_t started_ms;
        unsigned quick_deaths;
        bool explained; /* it has said why it does not start; whoever waits has been told */
};

struct broker {
        struct cg_proc proc;
        struct watch pid;
        int lifeline; /* write end; closing it ends the tool server */
        void *sock;
        struct cg_zsock z;
        bool up, ready;
        char path[128];
        unsigned incarnation; /* part of the socket's path */
        int64_t started_ms;
        unsigned quick_deaths;
        int closing;             /* handles whose close callback is still to come */
        bool restart;            /* start a successor then */
        struct ask *asks;        /* calls that wait for a decision */
        struct backlog *backlog; /* messages for a tool server that is not ready yet */
        struct backlog **backlog_tail;
};

/* A session that was started ahead; has no host yet. */
struct spare {
        struct session *session;
        int workspace; /* O_PATH */
        /*
         * which files its sandbox was made to treat in a way of their own: cg_session_view_print()
         */
        uint64_t view;
};

struct egress {
        struct cg_egress *proxy; /* NULL: not needed so far, or it has ended */
        uv_poll_t poll;
        bool polling;
        struct egress_ask *asks;
};

struct sup {
        uv_loop_t loop;
        struct cg_zloop zl;
        void *zmq;
        struct cg_log log;
        const char *dir;
        int dir_fd; /* O_PATH */
        const char *preload;
        const char *kernel_env; /* that kernels run in; NULL: CG_KERNEL_ENV */
        bool private_mode;
        bool stopping;
        struct watch host_listener;
        struct hostlink *links;  /* connections of the host wire */
        uint64_t memory_default; /* of a sandboxed kernel, bytes; 0: not looked at yet */
        size_t n_strangers;      /* of them, those that no host has claimed yet */
        struct watch life;       /* listener of lifelines */
        /* a supervisor that nobody uses ends: a private one at its start, a lingering one always */
        uv_timer_t no_host;
        int64_t linger_ms; /* -1: a shared supervisor that stays */
        uv_signal_t sig_term, sig_int, sig_chld;
        struct host *hosts;
        struct zygote zygote;
        struct broker broker;
        struct egress egress;
        struct session *sessions[CG_MAX_SESSIONS]; /* by number modulo CG_MAX_SESSIONS */
        size_t n_sessions;
        size_t n_removing; /* folders */
        size_t n_retiring; /* kernels that are still ending in order */
        uint64_t next_host, next_session, next_approval, next_kernel, next_request;
        size_t want_spares, n_spares;
        struct spare spares[CG_MAX_SPARES]; /* oldest first */
        json_t *spare_options;              /* of the next ones */
        /* whose session had these options; may be gone in a shared supervisor */
        struct host *spare_host;
        uv_timer_t spare_timer;
        uv_timer_t memory_timer; /* see memory.c */
        /* pidfd of the last kernel that was ended for it; -1: none, or it has given all back */
        int memory_ended;
        uint64_t memory_ended_ms;  /* when, by the loop's clock */
        unsigned int spare_deaths; /* spares in a row that ended by themselves */
};

void sup_stop(struct sup *s, const char *why);
/* The user's home folder: $HOME, else what the system says; NULL: none. */
const char *sup_home(void);
/*
 * Children that lost their parents and fell to us: reaps those that have ended, or kills them all.
 */
void sup_reap_strays(struct sup *s, bool kill_them);

/* ------------------------------------------------------------------ remove.c */

/*
 * Removes a folder (absent is fine) while the loop goes on; our end waits for it. Its path must
 * never be used again.
 */
void sup_remove(struct sup *s, const char *path);

/* ------------------------------------------------------------------ host.c */

struct host {
        uint64_t number; /* never used again */
        struct sup *sup;
        struct host *next;
        struct watch life;
        char token[33];
        /* NULL: no HELLO yet, or it has closed its end; the lifeline tells */
        struct hostlink *link;
};

int hosts_start(struct sup *s, struct cg_err *err);
void hosts_stop(struct sup *s);
/* Sends to one host; a host that is gone is not an error here: its lifeline tells. Takes @body. */
void host_send(struct host *h, const struct cg_out *out, json_t *body);
void host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m);
/*
 * A text that may have been cut in the middle of a character, as a JSON string: what is not UTF-8
 * becomes "?".
 */
json_t *text_json(const char *text);
void host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err);

/* ------------------------------------------------------------------ session.c */

/* A cell or a request, from the host's word to its end. */
struct cell {
        struct cell *next;
        uint64_t id;         /* on the kernel wire: see CELL_SLOT */
        char request[32];    /* type of a request; "" for a cell */
        int64_t timeout_ms;  /* 0: none */
        int64_t deadline_ms; /* of a request in `side` */
        bool silent, allow_stdin, store_history, announce;
        uint64_t output; /* bytes it has printed */
        bool answered;   /* in `side`: the host has its answer, the kernel's is still to come */
        size_t n_frames;
        zmq_msg_t frames[]; /* code and extra, or content and buffers */
};

/* Which host of the session a number on the kernel wire belongs to, and its number there. */
#define CELL_SLOT(id)         ((uint16_t)((id) >> 48))
#define CELL_NUMBER(id)       ((id) & ((UINT64_C(1) << 48) - 1))
#define CELL_ID(slot, number) (((uint64_t)(slot) << 48) | (number))

/* Why what runs was interrupted. */
enum stop_reason { STOP_NONE, STOP_TIMEOUT, STOP_CANCEL, STOP_GONE };

/* The main shell, or a subshell. */
struct lane {
        struct lane *next;
        struct session *ss;
        char subshell[64]; /* "" the main shell */
        struct cell *queue, **queue_tail;
        struct cell *running;
        enum stop_reason stop;
        unsigned interrupts; /* that were sent for it */
        /* how often its grace has started again because the host did not read */
        unsigned holds;
        uint64_t pauses; /* of the kernel, when the grace started */
        /* what runs is a request whose host has been told that it took too long */
        bool abandoned;
        int64_t left_ms;          /* of the running cell's time, while the clock stands */
        int64_t clock_started_ms; /* when it was last started; -1: it stands */
        uv_timer_t clock, grace;
};

/* A host that attached to the session. */
struct member {
        struct member *next;
        struct host *host;
        uint16_t slot;
        size_t unread; /* bytes of events it has not acknowledged */
};

struct session {
        struct sup *sup;
        struct host *host; /* that opened it */
        struct member *members;
        uint16_t last_slot;
        uint64_t number;
        char id[33];
        char *dir; /* DIR/sNUMBER, with lib/ */
        json_t *options;
        int64_t approval_timeout_ms, start_timeout_ms;
        json_t *servers; /* definitions, for a tool server that had to be started again */
        /* {SERVER: [PATH, ...]}: what its MCP servers' programs are; see cg_rules_add_guards() */
        json_t *guards;
        unsigned n_server_dirs; /* private folders that its MCP servers got */
        bool told_path;         /* which entries of PATH they do without */
        uint64_t adding;        /* request that adds servers now; 0 none */
        struct kernel *kernel;
        uint64_t opening, resetting; /* request to answer once the kernel is ready; 0 none */
        bool opened, ending;
        bool warming;         /* it was made as a spare, and runs its first cell */
        bool used;            /* its kernel has run a cell of a host's */
        bool ever_used;       /* one of its kernels has */
        uint64_t end_request; /* SESSION_END, answered once the kernel has ended */
        unsigned quick_deaths;
        /* zygotes that ended while they started its kernel, since the last that was ready */
        unsigned lost_starts;
        int64_t kernel_started_ms;

        struct lane main;  /* and the others behind it */
        struct cell *side; /* requests that wait for no cell */
        size_t n_queue;
        uint64_t input_cell;    /* a question of it waits for the host; 0 none */
        int64_t input_question; /* the kernel's number of it */
        int64_t next_count;     /* number of the next cell that counts */
        uv_timer_t side_timer, start_timer;
        int open_timers;

        json_t *egress_policy; /* by the settings; NULL: no network at all */
        /* "NAME=VALUE": the options' variables as the settings leave them, and the proxy's */
        json_t *egress_env;
        size_t asks; /* calls and connections waiting for a decision */
        size_t ask_bytes;
        size_t unread;                   /* bytes of events the host has not acknowledged */
        struct cg_sandbox_limits limits; /* all that hold, the defaults included */
        uv_timer_t wall;                 /* the session's time */
        bool wall_runs;
        uint64_t late_output; /* of no cell that runs: since the last cell began */
        dev_t workspace_dev;  /* the folder that it was opened for */
        ino_t workspace_ino;  /* 0: not known yet */
        /* how many more denials the kernel may tell of, in thousandths */
        int64_t denied_tokens, denied_filled_ms;
        /* to be told at the end of the cell that runs, unless its traceback tells it */
        json_t *no_network;
        bool no_network_told;
        /* denials that were too many, or came while the host read nothing */
        uint64_t denied_untold;
};

void session_new(struct host *h, const struct cg_msg *m);
/*
 * Makes a session and starts its kernel. @options (borrows). NULL and *err when that fails at once.
 */
struct session *session_make(struct sup *s, struct host *h, json_t *options, uint64_t request,
                             struct cg_err *err);
/* Gives a started session to @h, whose @request is answered. */
void session_adopt(struct session *ss, struct host *h, json_t *options, uint64_t request);
/* The session, where @h takes part in it. */
struct session *session_find(struct sup *s, const struct host *h, uint64_t number);
void session_message(struct session *ss, struct host *h, struct cg_msg *m);
json_t *session_info(const struct session *ss);
/* Ends it; @why NULL: the host asked (no event), else SESSION_CLOSED. */
void session_end(struct session *ss, const char *why);
void session_of_host_gone(struct sup *s, struct host *h);

/* From kernel.c: */
void session_kernel_ready(struct session *ss);
void session_warm(struct session *ss); /* from spare.c: its first cell has ended */
void session_kernel_failed(struct session *ss, const struct cg_err *err);
void session_kernel_message(struct session *ss, struct cg_msg *m);
void session_kernel_dead(struct session *ss, const char *how);
/* From zygote.c: it has ended, and the kernel was not ready yet. */
void session_start_lost(struct session *ss);
/* Replaces a kernel that has run nothing of a host's by one with the guards of now. */
void session_renew_kernel(struct session *ss);
/* From broker.c: the first call that waits stops the cell's clock, the last starts it again. */
void session_asks_changed(struct session *ss);
void session_notice(struct session *ss, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Timers whose data is @data; the session's memory goes with the last of them. */
void session_timer_init(struct session *ss, uv_timer_t *t, void *data);
void session_timer_close(struct session *ss, uv_timer_t *t);
/* From cells.c: a cell of @l did not react to its interrupt. */
void session_replace_kernel(struct session *ss, struct lane *l, const char *status, const char *text);

/* ------------------------------------------------------------------ kernel_env.c */

/*
 * Checks the chosen environment, where there is one, for a session. CG_E_INVAL, CG_E_STATE: it is
 * refused.
 */
int kernel_env_check(const struct session *ss, struct cg_err *err);
/*
 * Paths that no kernel may change: server_guards(), and environments of kernels, whether this
 * supervisor uses them or not. Caller frees.
 */
json_t *session_guards(const struct sup *s);

/* ------------------------------------------------------------------ members.c */

/*
 * Sends an event to whom it concerns: @event->id is a number of the kernel wire, @m (may be NULL)
 * has its raw frames, which are moved out of it. Takes @body.
 */
void session_event(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m);
/* Only to the host whose cell it is about; only to the others. Take @body. */
void session_event_to_host(struct session *ss, const struct cg_out *event, json_t *body);
void session_event_to_others(struct session *ss, const struct cg_out *event, json_t *body);
/* Counts an event's bytes against the window of the host that opened the session. */
void session_sent(struct session *ss, size_t bytes);
void session_credit(struct session *ss, struct member *mb, uint64_t bytes);
void session_pause_if_full(struct session *ss);
/* NULL: @h has not attached (it may have opened the session). */
struct member *session_member(struct session *ss, const struct host *h);
void session_attach(struct host *h, const struct cg_msg *m);
/* @why NULL: the host knows. */
void session_detach(struct session *ss, struct member *mb, const char *why);
void session_list(struct host *h, const struct cg_msg *m);

/* ------------------------------------------------------------------ cells.c */

void cells_init(struct session *ss);
void cells_close_timers(struct session *ss);
void cells_release(struct session *ss);
/* Requests of hosts; @id is that of the kernel wire. */
void cells_execute(struct session *ss, uint64_t id, struct cg_msg *m);
void cells_request(struct session *ss, uint64_t id, struct cg_msg *m);
/* @running: whatever runs in the main shell, instead of @id. */
void cells_cancel(struct session *ss, uint64_t id, bool running);
void cells_of_slot_end(struct session *ss, uint16_t slot);
/* Starts what can be started. */
void cells_run(struct session *ss);
/* The cell that runs in the main shell; 0 none. */
uint64_t cells_running(const struct session *ss);
/* What the cell or request @id has printed, while it runs; NULL: it does not. */
uint64_t *cells_output(struct session *ss, uint64_t id);
/* What the kernel says. */
void cells_execute_reply(struct session *ss, struct cg_msg *m);
void cells_request_reply(struct session *ss, struct cg_msg *m);
bool cells_may_ask(struct session *ss, uint64_t id);
/*
 * It asks its user something, waits for its turn to, or says that it goes on: the host's interrupt
 * has reached it, and it goes on. Limits, and the end of its host, still end it.
 */
void cells_asks(struct session *ss, uint64_t id);
/* The kernel is gone: what ran ends with @status and @text, what waited is cancelled. */
void cells_end_all(struct session *ss, const char *status, const char *text, const char *queued);
void cells_end_replaced(struct session *ss, struct lane *l, const char *status, const char *text);

/* ------------------------------------------------------------------ server_guards.c */

/*
 * What no kernel of this supervisor may write: the programs of all sessions' MCP servers, a JSON
 * array (returns).
 */
json_t *server_guards(const struct sup *s);
/*
 * Checks that nothing that @servers (borrows) load can be written by cells, makes that hold in all
 * kernels, and hands those that pass to the tool server; it or a failure answers @request. Kernels
 * that run and could write such files are replaced if they have run nothing of a host's; else the
 * server is refused. Takes a few seconds at most, in which the loop stands: nothing of a session
 * changes meanwhile. @ss may have ended on return. Negative: nothing was begun.
 */
int servers_register(struct session *ss, const json_t *servers, int64_t timeout_ms, uint64_t request,
                     struct cg_err *err);
/* CG_E_INVAL: the workspace is where cellgate's own programs or an MCP server's are. */
int server_files_check_workspace(const struct session *ss, struct cg_err *err);

/* ------------------------------------------------------------------ spare.c */

void spares_start(struct sup *s);
void spares_stop(struct sup *s);
/*
 * The spare, when it is what @h asks for, started or still starting; it is the caller's then. Else
 * NULL. Before anything of the host runs in it, the caller must see that spare_view_holds() of
 * *view.
 */
struct session *spare_take(struct host *h, const json_t *options, uint64_t *view);
/* Not when a secret has come since, or was saved anew: it would not be hidden. */
bool spare_view_holds(const struct session *ss, uint64_t view);
/* The kernel of @ss was replaced; it need not be a spare. */
void spare_renewed(struct session *ss);
/* @ss has opened: soon there shall be a spare like it. */
void spare_plan(struct session *ss);
void spare_of_host_gone(struct sup *s, const struct host *h);
/* Session event hooks for spares. Return true if the event was consumed. */
bool spare_ready(struct session *ss);
bool spare_message(struct session *ss, const struct cg_msg *m);
bool spare_ended(struct session *ss);

/* ------------------------------------------------------------------ kernel.c */

enum kernel_state { K_WAITING, K_SPAWNING, K_BOOTING, K_READY, K_DEAD };

struct kernel {
        struct sup *sup;
        struct session *session; /* NULL: orphaned, being ended */
        struct kernel *next_waiting;
        uint64_t seq;
        enum kernel_state state;
        bool got_ready, attached, has_egress, debugger;
        bool retiring;        /* its session has ended; it runs what was registered with atexit */
        uint64_t retire_host; /* number of who is told of its end; may be gone by then; 0 nobody */
        uint64_t retired_session, retire_request;
        char kernel_path[128], tool_path[128];
        int kernel_listener, tool_listener; /* until handed to the zygote */
        struct cg_zlink link;
        bool link_open;
        uint64_t pauses; /* how often it was not read because its host did not read */
        struct watch pid, denied;
        struct cg_oom oom; /* how the counters stood when it was started */
        int status_fd;
        uv_timer_t drain, lost;
        bool drain_open, lost_open;
        int closing; /* handles whose close callback is still to come */
        json_t *layers;
        json_t *landlock_abi; /* a number; NULL outside of the landlock tier */
        char *tier;
        char *python, *ipython;
        enum cg_limit_by by[CG_LIMITS]; /* how each limit is held */
        bool in_group, has_counts, cpu_over, memory_over;
        struct cg_cgroup_files files; /* what a control group counts; NULL each: nothing */
        /* the last word of the group, and what has been told of */
        struct cg_limit_counts counts, told;
        uv_timer_t look; /* at the processor time */
        bool look_open;
        const char *violation; /* which rule it broke */
        char violation_text[256];
        /*
         * Where the settings mask credentials: what goes to the zygote in the place of the
         * session's own, and to the egress proxy
         */
        json_t *masked_env, *masked_files, *inject;
        json_t *guards; /* what it was started with: server_guards() */
        int secrets;    /* -1: none */
        struct cg_doors_process doors;
        struct watch doors_said;
};

/* Starts a kernel for the session; the outcome comes through session_kernel_*(). */
int kernel_start(struct session *ss, struct cg_err *err);
/* Asks the zygote, which must be ready. */
void kernel_spawn(struct kernel *k);
/*
 * @answer: the zygote's. Takes the descriptors (@denied_fd may be -1); @doors_fd (-1: none),
 * @ports: listeners for the egress proxy, then for cellgate.ports.reach (borrowed).
 */
void kernel_spawned(struct kernel *k, const json_t *answer, int pidfd, int status_fd, int denied_fd,
                    int doors_fd, const int *ports, size_t n_ports);
void kernel_spawn_failed(struct kernel *k, const struct cg_err *err);
void kernel_attached(struct kernel *k);
/* It has been; it may have ended since. */
bool kernel_was_ready(const struct kernel *k);
/* Its processes have ended, whether that has been noticed or not. */
bool kernel_is_gone(const struct kernel *k);
/* What its group has counted is known. */
void kernel_counted(struct kernel *k);
/*
 * Handles what it has sent already, as far as the host's window allows: a question comes behind the
 * output that led to it.
 */
void kernel_catch_up(struct kernel *k);
/* Ends it (SIGKILL to its init) and forgets it; its session gets no more from it. */
void kernel_end(struct kernel *k);
/*
 * Lets it run what its cells have registered with atexit, 1 s at most, then ends it; DONE goes to
 * @h (may be NULL) for @request of @session. Its session gets no more from it.
 */
void kernel_retire(struct kernel *k, struct host *h, uint64_t session, uint64_t request);
/* Sends on its wire; a kernel that does not take it is ended. Takes @body. */
void kernel_send(struct kernel *k, const struct cg_out *out, json_t *body);
void kernel_pause(struct kernel *k, bool paused);
/* Ends a kernel that broke a rule, and says which. */
void kernel_violation(struct kernel *k, const char *what);

/* ------------------------------------------------------------------ memory.c */

void memory_start(struct sup *s);
/*
 * A kernel has been started: while it runs, the machine's memory is looked at, unless a group holds
 * what it may have.
 */
void memory_watch(struct kernel *k);

/* ------------------------------------------------------------------ denied.c */

/*
 * Something was refused, for @cell (0: none is known): an object as sandbox/denial.h has them
 * (takes).
 */
void session_denied(struct session *ss, uint64_t cell, json_t *denial);
/* Hears of the kernel's denied system calls; takes @fd. */
int denied_open(struct kernel *k, int fd, struct cg_err *err);
/* A kernel's own word about a denial. */
void denied_said(struct session *ss, const struct cg_msg *m);
/* Takes those that have been told so far; @k may be NULL. */
void denied_hear(struct kernel *k);
/* A cell has ended: what waits for that is told. */
void denied_cell_ended(struct session *ss, uint64_t cell);
/* ------------------------------------------------------------------ limits.c */

/* From the session's options; where they name none, from the settings. */
int limits_check(struct session *ss, struct cg_err *err);
void limits_settings(struct session *ss, const struct cg_sandbox_limits *settings);
/* CG_E_INVAL: a limit is so small that no kernel would start. After limits_settings(). */
int limits_check_least(const struct session *ss, struct cg_err *err);
/* "; a limit may be too small...", of those that the host has set; "" where there is none. */
void limits_explain_start(const struct session *ss, char *buf, size_t size);
/* For the zygote, which holds them. */
json_t *limits_spec(const struct session *ss);
/* Of @ss, and by which mechanism each is held. */
json_t *limits_info(const struct session *ss);
/* @answer: the zygote's. */
void limits_spawned(struct kernel *k, const json_t *answer);
void limits_release(struct kernel *k);
/* The zygote's last word of a kernel's group. */
void limits_counted(struct sup *s, const json_t *o);
/* A kernel has ended. true: by a limit, which is told; @buf says which. */
bool limits_end(struct kernel *k, const struct cg_sandbox_status *st, char *buf, size_t size);
/*
 * A cell has ended; when it failed, by this exception (@reply: the protocol's execute_reply). Tells
 * of limits that it ran into.
 */
void limits_of_cell(struct session *ss, bool failed, const char *ename, const char *evalue, const char *reply,
                    size_t len);
/* Output of a kernel. false: it is over the limit, and not to be passed on. */
bool limits_output(struct session *ss, const struct cg_msg *m);
/* The session is open: its time runs. */
void limits_opened(struct session *ss);

/* ------------------------------------------------------------------ egress.c */

/* What the session's settings mean for its network; they are checked as a whole. */
int egress_check(struct session *ss, struct cg_err *err);
/* The sandbox's listening sockets (borrows) become the proxy's. */
/*
 * doors.c: the process that keeps the doors of a kernel's sandbox, where its settings open any.
 * @doors_fd, @reach: borrowed.
 */
int doors_open(struct kernel *k, int doors_fd, const int *reach, struct cg_err *err);
void doors_close(struct kernel *k);
/* Would two sessions with these options want the same ports of this machine? */
bool doors_are_alone(const json_t *options);
/* masks.c: reads what the settings mask, for a kernel that is about to be spawned. */
int masks_make(struct kernel *k, struct cg_err *err);
void masks_free(struct kernel *k);
int egress_open(struct kernel *k, const int *ports, size_t n, struct cg_err *err);
void egress_close(struct kernel *k);
/*
 * Takes what the proxy has said so far. It tells of a denial before the program inside hears of it.
 */
void egress_hear(struct sup *s);
void egress_decide(struct session *ss, const struct cg_msg *m);
/* The kernel is gone: nobody waits for these answers any more. */
void egress_drop_asks(struct session *ss, const char *why);
void egress_stop(struct sup *s);

/* ------------------------------------------------------------------ zygote.c */

int zygote_start(struct sup *s, struct cg_err *err);
void zygote_stop(struct sup *s);
/* Sends a kernel's request, now or when the zygote is ready. */
void zygote_want(struct kernel *k);
void zygote_forget(struct kernel *k);
/* @fds: spec, kernel listener, tool listener */
int zygote_request(struct sup *s, uint64_t seq, const int fds[3], struct cg_err *err);
struct kernel *kernel_by_seq(struct sup *s, uint64_t seq);

/* ------------------------------------------------------------------ broker.c */

int broker_start(struct sup *s, struct cg_err *err);
void broker_stop(struct sup *s);
void broker_attach(struct kernel *k);
void broker_detach(struct sup *s, uint64_t session, bool keep_servers);
/*
 * Takes @servers. The answer goes to the host as SERVERS_ADDED or FAILED of @request; 0: to nobody.
 */
void broker_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request);
void broker_decide(struct session *ss, uint64_t approval, bool accept, const char *reason);
/* Closes all of a session's open approvals; the tool server hears of it by DETACH. */
void broker_drop_asks(struct session *ss, const char *why);

#endif
