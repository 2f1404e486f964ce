/*
 * What the parts of cellgate-supervisor share. One thread, one event loop; all state hangs off struct sup.
 *
 *      host.c      connections of host applications: lifelines, HELLO, requests in, events out
 *      session.c   sessions: cells, their queue, time limits and results, flow control
 *      spare.c     a session started ahead, so that the next one opens at once
 *      kernel.c    one kernel's process and wire: from the request to the zygote to its end
 *      zygote.c    the zygote's process and control socket
 *      broker.c    the tool server's process and wire; approvals
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
        int closing;     /* handles whose close callback is still to come */
        bool restart;    /* start a successor then */
        struct ask *asks; /* calls that wait for a decision */
        struct backlog *backlog; /* messages for a tool server that is not ready yet */
        struct backlog **backlog_tail;
};

struct sup {
        uv_loop_t loop;
        struct cg_zloop zl;
        void *zmq;
        struct cg_log log;
        const char *dir;
        const char *preload;
        bool private_mode;
        bool stopping;
        void *host_sock;
        struct cg_zsock host_z;
        struct watch life;      /* listener of lifelines */
        uv_timer_t first_host;  /* a private supervisor nobody connects to ends */
        uv_signal_t sig_term, sig_int;
        struct host *hosts;
        struct zygote zygote;
        struct broker broker;
        struct session *sessions[CG_MAX_SESSIONS]; /* by number modulo CG_MAX_SESSIONS */
        size_t n_sessions;
        uint64_t next_session, next_approval, next_kernel, next_request;
        bool use_spares;
        struct session *spare; /* started ahead; has no host yet */
        json_t *spare_options; /* for the next spare, once the timer has run out */
        struct host *spare_host;
        int spare_workspace; /* O_PATH */
        uv_timer_t spare_timer;
};

void sup_stop(struct sup *s, const char *why);

/* ------------------------------------------------------------------ host.c */

struct host {
        struct sup *sup;
        struct host *next;
        struct watch life;
        char token[33];
        bool hello;
        struct cg_route route;
};

int hosts_start(struct sup *s, struct cg_err *err);
void hosts_stop(struct sup *s);
/* Sends to one host; a host that is gone is not an error here: its lifeline tells. Takes @body. */
void host_send(struct host *h, const struct cg_out *out, json_t *body);
void host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m);
/* A text that may have been cut in the middle of a character, as a JSON string: what is not UTF-8 becomes "?". */
json_t *text_json(const char *text);
void host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err);

/* ------------------------------------------------------------------ session.c */

struct cell {
        struct cell *next;
        uint64_t id;
        int64_t timeout_ms; /* 0: none */
        bool silent, allow_stdin;
        char *code;
        size_t len;
};

/* Why the running cell was interrupted. */
enum stop_reason { STOP_NONE, STOP_TIMEOUT, STOP_CANCEL };

struct session {
        struct sup *sup;
        struct host *host;
        uint64_t number;
        char id[33];
        char *dir; /* DIR/sNUMBER, with lib/ */
        json_t *options;
        int64_t approval_timeout_ms, start_timeout_ms;
        json_t *servers; /* definitions, for a tool server that had to be started again */
        uint64_t adding;  /* request that adds servers now; 0 none */
        struct kernel *kernel;
        uint64_t opening, resetting; /* request to answer once the kernel is ready; 0 none */
        bool opened, ending;
        bool warming; /* it was made as a spare, and runs its first cell */
        unsigned quick_deaths;
        int64_t kernel_started_ms;

        struct cell *queue, **queue_tail;
        size_t n_queue;
        struct cell *running;
        enum stop_reason stop;
        bool input_wanted;
        int64_t left_ms;         /* of the running cell's time, while the clock stands */
        int64_t clock_started_ms; /* when it was last started; -1: it stands */
        uv_timer_t clock, grace, start_timer;
        int open_timers;

        size_t asks;       /* calls waiting for a decision */
        size_t ask_bytes;
        size_t unread;     /* bytes of events the host has not acknowledged */
};

void session_new(struct host *h, const struct cg_msg *m);
/* Makes a session and starts its kernel. @options (borrows). NULL and *err when that fails at once. */
struct session *session_make(struct sup *s, struct host *h, json_t *options, uint64_t request, struct cg_err *err);
/* Gives a started session to @h, whose @request is answered. */
void session_adopt(struct session *ss, struct host *h, json_t *options, uint64_t request);
struct session *session_find(struct sup *s, const struct host *h, uint64_t number);
void session_message(struct session *ss, struct cg_msg *m);
/* Ends it; @why NULL: the host asked (no event), else SESSION_CLOSED. */
void session_end(struct session *ss, const char *why);
void session_of_host_gone(struct sup *s, struct host *h);

/* From kernel.c: */
void session_kernel_ready(struct session *ss);
void session_warm(struct session *ss); /* from spare.c: its first cell has ended */
void session_kernel_failed(struct session *ss, const struct cg_err *err);
void session_kernel_message(struct session *ss, struct cg_msg *m);
void session_kernel_dead(struct session *ss, const char *how);
/* From broker.c: the first call that waits stops the cell's clock, the last starts it again. */
void session_asks_changed(struct session *ss);
void session_notice(struct session *ss, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Counts an event's bytes against the window. */
void session_sent(struct session *ss, size_t bytes);

/* ------------------------------------------------------------------ spare.c */

void spares_start(struct sup *s);
void spares_stop(struct sup *s);
/* The spare, when it is what @h asks for, started or still starting; it is the caller's then. Else NULL. */
struct session *spare_take(struct host *h, const json_t *options);
/* @ss has opened: soon there shall be a spare like it. */
void spare_plan(struct session *ss);
void spare_of_host_gone(struct sup *s, const struct host *h);
/* For session.c: things that happen to a session that may be the spare. true: it is, and this was all there is to do. */
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
        bool got_ready, attached;
        char kernel_path[128], tool_path[128];
        int kernel_listener, tool_listener; /* until handed to the zygote */
        struct cg_zlink link;
        bool link_open;
        struct watch pid;
        int status_fd;
        uv_timer_t drain, lost;
        bool drain_open, lost_open;
        int closing; /* handles whose close callback is still to come */
        json_t *layers;
        char *python, *ipython;
        const char *violation; /* which rule it broke */
        char violation_text[256];
};

/* Starts a kernel for the session; the outcome comes through session_kernel_*(). */
int kernel_start(struct session *ss, struct cg_err *err);
/* Asks the zygote, which must be ready. */
void kernel_spawn(struct kernel *k);
void kernel_spawned(struct kernel *k, json_t *layers, int pidfd, int status_fd);
void kernel_spawn_failed(struct kernel *k, const struct cg_err *err);
void kernel_attached(struct kernel *k);
/* Handles what it has sent already, as far as the host's window allows: a question comes behind the output that led to it. */
void kernel_catch_up(struct kernel *k);
/* Ends it (SIGKILL to its init) and forgets it; its session gets no more from it. */
void kernel_end(struct kernel *k);
/* Sends on its wire; a kernel that does not take it is ended. Takes @body. */
void kernel_send(struct kernel *k, const struct cg_out *out, json_t *body);
void kernel_pause(struct kernel *k, bool paused);
/* Ends a kernel that broke a rule, and says which. */
void kernel_violation(struct kernel *k, const char *what);

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
/* Takes @servers. The answer goes to the host as SERVERS_ADDED or FAILED of @request; 0: to nobody. */
void broker_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request);
void broker_decide(struct session *ss, uint64_t approval, bool accept, const char *reason);
/* Closes all of a session's open approvals; the tool server hears of it by DETACH. */
void broker_drop_asks(struct session *ss, const char *why);

#endif
