/*
 * Shared by the files of the front, from the top down: front.c starts and ends it; control.c and
 * events.c handle the control channel and the session's events; shell.c queues requests and runs
 * cells; local.c answers requests without the kernel; request.c and reply.c do what all requests
 * need; stdin.c asks people; receive.c and info.c need none of the others. One thread, one loop.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include "base/ceilings.h"
#include "base/confirm.h"
#include "base/secrets.h"
#include "cellgate.h"
#include "jupyter/connection.h"
#include "jupyter/front.h"
#include "jupyter/iopub.h"
#include "jupyter/peers.h"

/* Limits of queued requests and their bytes; beyond them the shell socket is not read. */
#define MAX_WAITING       4096u
#define MAX_WAITING_BYTES ((size_t)256 << 20)
/* Origins kept for output that comes after the cell's end, for example of its threads. */
#define MAX_PAST      256u
#define MAX_SUBSHELLS 64u
/* Limit of unanswered questions, cancelled ones included. */
#define MAX_ASKED 256u
/* Calls whose progress is displayed at one time: as many as can be in flight. */
#define MAX_PROGRESS ((unsigned)CG_MAX_CALLS)

enum request_kind {
        KIND_UNKNOWN,
        KIND_EXECUTE,
        KIND_RELAY, /* answered by the kernel, in order with cells */
        KIND_COMM,  /* the same, without a reply */
        KIND_SIDE,  /* answered by the kernel while cells run */
        KIND_INFO,
        KIND_CONNECT,
        KIND_INTERRUPT,
        KIND_SHUTDOWN,
};

struct kind_spec {
        const char *type, *reply;
        enum request_kind kind;
        int64_t timeout_ms; /* for the kernel's answer */
};

/* A request of a client, from its arrival to its idle. */
struct jreq {
        TAILQ_ENTRY(jreq) entry; /* in one list at a time */
        const struct kind_spec *spec;
        enum cg_jchannel channel;
        struct cg_jmsg *msg;
        struct cg_origin *origin;
        struct shell_queue *queue; /* that it runs in; NULL: in none */
        bool in_flight;            /* in the list of that name */
        bool begun;                /* busy was sent */
        bool aborted;              /* a cell before it failed */
        bool silent, allow_stdin, stop_on_error;
        bool error_shown;     /* an `error` was published */
        int64_t input_held;   /* the count of its execute_input, which is held back; 0: it is not */
        bool stays;           /* a comm message that is not offered again */
        struct cg_slice code; /* as JSON text */
        char started[64];
};

TAILQ_HEAD(jreq_list, jreq);

/* Requests that run one after the other: of the main shell, or of a subshell. */
struct shell_queue {
        LIST_ENTRY(shell_queue) entry;
        char *id;                 /* NULL: the main one */
        struct jreq_list waiting; /* oldest first */
        struct jreq *running;
        /* the first queued comm message, while the kernel may give it to the running cell */
        struct jreq *offered;
};

/* A question to a client. A client is asked one at a time. */
struct client_question {
        TAILQ_ENTRY(client_question) link;
        struct jreq *req;
        struct cg_event *call; /* about a tool call or a connection; NULL: input() */
        struct cg_slice id;    /* the client's identity; owned */
        char *content;         /* of the input_request */
        bool sent;
        /* of a call or connection: */
        size_t part;      /* that is shown; 0: the first view */
        bool last;        /* nothing follows what is shown */
        bool all_shown;   /* all parts were, long enough to be read */
        unsigned early;   /* answers that came too fast to be a person's */
        const char *note; /* why it is asked again, static; NULL: it is not */
        int64_t sent_ms;
        struct cg_confirm confirm;
};

/* An input_request that has no answer yet. */
struct sent_question {
        TAILQ_ENTRY(sent_question) link;
        struct client_question *q; /* NULL: it was cancelled */
        struct cg_slice id;        /* owned */
        char msg_id[CG_JMSG_ID];
};

/* FAILED: there is no kernel, and every cell fails with the reason. */
enum front_state { OPENING, OPEN, READY, FAILED, ENDING };

/* Opens the session in a thread of its own. */
struct front_opener {
        pthread_t thread;
        bool runs;
        /* OPENING, OPEN or READY; negative: it failed, see err */
        atomic_int step;
        struct cg_err err;
        uv_async_t done;
};

/* Descriptors and timers of the loop. */
struct front_events {
        uv_poll_t signals, parent, session;
        uv_timer_t hold; /* longest wait of the first cell for a subscriber */
        bool hold_over;
        int signal_fd, parent_fd;
};

/* The five sockets, and who is connected to them. */
struct front_sockets {
        void *ctx, *socks[CG_JCHANNELS];
        struct cg_zsock z[CG_JCHANNELS]; /* all but iopub's */
        struct cg_peers peers[CG_JCHANNELS];
        uint64_t rejected_ms; /* when a rejection was logged last */
        unsigned rejected;
};

/* The control channel. */
struct front_control {
        struct shell_queue queue; /* requests to the kernel */
        /* the subshell that runs cells of the control channel; NULL: none yet */
        char *shell;
        uint64_t making;        /* the request that makes it; 0: none */
        struct jreq *held;      /* the cell that waits for it */
        struct cg_slice header; /* of the last request; owned */
        struct jreq_list early; /* requests that came before the session was open */
};

/* Origins of output that may come later, and calls whose progress has a display. */
struct front_past {
        struct cg_origin *origins[MAX_PAST];
        unsigned n;
        struct cg_origin *debug;
        /* by their numbers; the oldest is replaced */
        uint64_t progress[MAX_PROGRESS];
        unsigned n_progress;
};

/* Questions to clients: stdin.c. */
struct front_questions {
        TAILQ_HEAD(question_list, client_question) open; /* both oldest first */
        TAILQ_HEAD(asked_list, sent_question) asked;
        size_t n_asked;
};

/* kernel_info_reply: info.c. */
struct front_info {
        char *content;
        size_t len;
        bool foreign; /* another kernel of Jupyter runs the cells, and answers it itself */
};

struct front {
        const struct cg_front_options *o;
        struct cg_jconn conn;
        struct cg_jsign sign;
        struct cg_jidentity me;
        struct front_sockets sockets;
        struct cg_iopub iopub;
        uv_loop_t loop;
        struct cg_zloop zl;
        struct front_events events;

        enum front_state state;
        struct front_opener opener;
        struct cg_client *client;
        struct cg_session *session;
        struct cg_secrets secrets; /* of the kernel's variables */
        char *mcp_failed;          /* text for the first cell, or NULL */

        struct shell_queue main;
        LIST_HEAD(, shell_queue) subshells;
        /* subshells that clients of this front have made; "": unused */
        char known[MAX_SUBSHELLS][48];
        struct front_control control;
        struct jreq_list in_flight; /* given to the kernel */
        size_t waiting, waiting_bytes;
        struct front_past past;
        struct front_questions questions;
        int64_t count; /* number of the last cell that counted */
        bool death_reported;
        bool restarting; /* the next kernel's process waits for our end */
        struct front_info info;
        struct cg_err end_err; /* why it ended, where that is a failure */
};

/* Ends the loop after this turn. */
static inline void cg_front_stop(struct front *f)
{
        f->state = ENDING;
        uv_stop(&f->loop);
}

/* info.c */
int cg_info_make(struct front *f, struct cg_err *err);
int cg_info_without_kernel(struct front *f, const char *why, struct cg_err *err);
/* The content of a reply of status error. Caller frees; NULL: out of memory, or not UTF-8. */
char *cg_info_error(const char *ename, const char *evalue, size_t *len);

/* receive.c */
/* 0; CG_TIMEOUT: there is no message; negative: it was rejected, and that was logged. */
int cg_front_receive(struct front *f, enum cg_jchannel channel, struct cg_jmsg **ret);

/* stdin.c */
void cg_stdin_readable(struct cg_zsock *z);
void cg_stdin_ask_input(struct front *f, struct jreq *r, const struct cg_event *e);
/* The kernel has cancelled the cell's input(). */
void cg_stdin_input_closed(struct front *f, const struct jreq *r);
/* Decides about a call or connection of @r (NULL: unknown), or asks its client. Takes @e. */
void cg_stdin_judge(struct front *f, struct jreq *r, struct cg_event *e);
void cg_stdin_call_closed(struct front *f, uint64_t approval);
/* Cancels the questions of a request that has ended. */
void cg_stdin_request_ended(struct front *f, const struct jreq *r);
void cg_stdin_free(struct front *f);

/* reply.c */
/* Sends the reply; cg_jreq_finish() follows. */
void cg_jreq_reply(struct front *f, struct jreq *r, struct cg_slice content);
void cg_jreq_reply_relay(struct front *f, struct jreq *r, struct cg_jout *out);
void cg_jreq_fail(struct front *f, struct jreq *r, const char *ename, const char *evalue);
/* The execute_reply; @json: the kernel's own reply, whose members are added unread. */
void cg_jreq_cell_reply(struct front *f, struct jreq *r, bool ok, int64_t count, struct cg_slice json,
                        const char *ename, const char *evalue);
/* Publishes an `error` of ours. */
void cg_jreq_show_error(struct front *f, struct cg_origin *o, const char *ename, const char *evalue);

/* request.c */
/* Takes @msg; NULL: out of memory. */
struct jreq *cg_jreq_new(struct front *f, enum cg_jchannel channel, struct cg_jmsg *msg);
/* Publishes `busy`, once. */
void cg_jreq_begin(struct front *f, struct jreq *r);
/* Publishes `idle`; takes @r. */
void cg_jreq_finish(struct front *f, struct jreq *r);
/* busy, a reply of status error, and idle; takes @r. */
void cg_jreq_end_with_error(struct front *f, struct jreq *r, const char *ename, const char *evalue);
/* The request with this number that the kernel has, or NULL. */
struct jreq *cg_in_flight_find(struct front *f, uint64_t number);
/* Remembers an origin for output that comes later; takes @o. */
void cg_front_add_past(struct front *f, struct cg_origin *o);
void cg_queue_free_if_idle(struct front *f, struct shell_queue *q);

/* local.c */
/*
 * Begins a request of any kind and ends it; takes @r. KIND_INFO, KIND_CONNECT, KIND_INTERRUPT and
 * KIND_SHUTDOWN get their answers.
 */
void cg_local_answer(struct front *f, struct jreq *r);
void cg_local_interrupt(struct front *f);

/* shell.c */
void cg_shell_readable(struct cg_zsock *z);
/* Starts the requests that can run. */
void cg_shell_run(struct front *f);
/* The REPLY about a comm message that was offered. False: @r was not offered. */
bool cg_shell_offer_reply(struct front *f, struct jreq *r, const struct cg_event *e);
/* A cell has failed: aborts the cells of @q that have arrived by now. */
void cg_shell_abort(struct front *f, struct shell_queue *q);
/* Answers all requests with the error KernelEnded. */
void cg_shell_end(struct front *f, const char *why);
void cg_shell_free(struct front *f);
/* A request of the control channel that the kernel answers: takes @r. */
void cg_control_enqueue(struct front *f, struct jreq *r);
/* The reply to the request that made the subshell of the control channel. */
void cg_control_made(struct front *f, const struct cg_event *e);
/* Forgets the subshells of a kernel that was replaced. */
void cg_control_forget(struct front *f);

/* control.c */
void cg_control_readable(struct cg_zsock *z);
/* Handles the control requests that came before the session was open. */
void cg_control_early(struct front *f);

/* events.c */
void cg_events_readable(uv_poll_t *h, int status, int events);
