/*
 * What the parts of the front share. front.c starts and ends it, shell.c runs cells and requests,
 * control.c answers what needs no kernel, events.c takes what the session says, stdin.c asks
 * people. One thread, one loop.
 */
#ifndef CG_JUPYTER_INTERNAL_H
#define CG_JUPYTER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>
#include "base/confirm.h"
#include "base/loop.h"
#include "cellgate.h"
#include "jupyter/connection.h"
#include "jupyter/front.h"
#include "jupyter/iopub.h"
#include "jupyter/message.h"
#include "jupyter/peers.h"

/* Requests that wait, and their bytes; then the shell socket is not read. */
#define MAX_WAITING       4096u
#define MAX_WAITING_BYTES ((size_t)256 << 20)
/* Origins kept for output that comes after the cell's end, as of threads that it started. */
#define MAX_PAST  256u
#define MAX_LANES 64u
/* Questions to which no answer has come, also those that were taken back. */
#define MAX_ASKED 256u

enum kind {
        KIND_UNKNOWN,
        KIND_EXECUTE,
        KIND_RELAY, /* the kernel answers, in order with cells */
        KIND_COMM,  /* the same, and no reply is sent */
        KIND_SIDE,  /* the kernel answers, whatever runs */
        KIND_INFO,
        KIND_CONNECT,
        KIND_INTERRUPT,
        KIND_SHUTDOWN,
};

struct kind_spec {
        const char *type, *reply;
        enum kind kind;
        int64_t timeout_ms; /* for the kernel's answer */
};

/* A request of a client, from its arrival to its idle. */
struct jreq {
        struct jreq *next;
        const struct kind_spec *spec;
        enum cg_jchannel channel;
        struct cg_jmsg *msg;
        struct cg_origin *origin;
        struct lane *lane; /* it runs there; NULL for what runs beside */
        bool begun;        /* busy was sent */
        bool aborted;      /* a cell before it failed */
        bool silent, allow_stdin, stop_on_error;
        bool error_shown;     /* an `error` was published */
        int64_t input_held;   /* the count of its execute_input, which waits; 0: none does */
        bool stays;           /* a comm message that is not offered any more */
        struct cg_jspan code; /* JSON text of it */
        uint64_t arrived_ms;
        char started[64];
};

/* What runs one after the other: the main shell, or a subshell. */
struct lane {
        struct lane *next;
        char *id; /* NULL: the main one */
        struct jreq *queue, **tail;
        struct jreq *running;
        /*
         * the first comm message in the queue, while the kernel may hand it to the cell that runs
         */
        struct jreq *offered;
};

/* Something that a client is asked, or will be once it has answered what stands before. */
struct question {
        struct question *next;
        struct jreq *req;
        struct cg_event *call; /* a tool call or a connection; NULL: input() */
        struct cg_jspan id;    /* the client's identity; owned */
        char *content;         /* of the input_request */
        bool sent;
        /* of a call or connection: */
        bool whole;       /* all of a long call is shown */
        unsigned early;   /* answers that came before anybody could have read it */
        const char *note; /* why it is asked again, or NULL; static */
        int64_t sent_ms;
        struct cg_confirm confirm;
};

/* An input_request that has no answer yet. */
struct asked {
        struct asked *next;
        struct question *q; /* NULL: nobody wants the answer any more */
        struct cg_jspan id; /* owned */
        char msg_id[CG_JMSG_ID];
};

/* FAILED: there is no kernel, and every cell is told why. */
enum front_state { OPENING, OPEN, READY, FAILED, ENDING };

struct front {
        const struct cg_front_options *o;
        struct cg_jconn conn;
        struct cg_jsign sign;
        struct cg_jidentity me;
        void *ctx, *socks[CG_JCHANNELS];
        struct cg_zsock z[CG_JCHANNELS]; /* but for iopub's */
        struct cg_peers peers[CG_JCHANNELS];
        struct cg_iopub iopub;
        uv_loop_t loop;
        struct cg_zloop zl;
        uv_poll_t signals, parent, events;
        uv_async_t opened;
        uv_timer_t hold; /* the first cell waits for a subscriber */
        int signal_fd, parent_fd;
        bool events_on, closing;

        enum front_state state;
        pthread_t opener;
        bool have_opener;
        /* OPENING, OPEN, READY: how far it got; negative: it failed, see opener_err */
        atomic_int opener_step;
        struct cg_err opener_err;
        struct cg_client *client;
        struct cg_session *session;
        char *mcp_failed; /* text for the first cell, or NULL */

        struct lane main, *subshells;
        /* names of subshells that the kernel has made for clients of this front; "": free */
        char known[MAX_LANES][48];
        struct lane control; /* what the kernel does for requests of the control channel */
        /* the subshell that runs cells of the control channel; NULL: none yet */
        char *control_shell;
        uint64_t control_making;        /* the request that makes it; 0: none */
        struct jreq *control_held;      /* the cell that waits for it */
        struct cg_jspan control_header; /* of the last request on the control channel; owned */
        struct jreq *flying;            /* given to the kernel */
        struct jreq *early;             /* control requests that came before the session stood */
        size_t waiting, waiting_bytes;
        struct cg_origin *past[MAX_PAST];
        unsigned n_past;
        struct cg_origin *debug_origin;
        struct question *questions; /* both oldest first */
        struct asked *asked;
        size_t n_asked;
        bool kernel_wrote; /* the kernel's code has shown something; never cleared */
        int64_t count;     /* number of the last cell that counted */
        bool death_told, hold_over;
        bool restarting; /* the next process waits for our end */
        char *info;      /* content of kernel_info_reply */
        size_t info_len;
        uint64_t rejected_ms; /* when a rejection was logged last */
        unsigned rejected;
        struct cg_err end_err; /* why it ended, where that is a failure */
};

#define SPAN(s) ((struct cg_jspan){ (s), strlen(s) })

/* front.c */
void front_end(struct front *f);
bool front_ready(const struct front *f);

/* shell.c */
const struct kind_spec *kind_of(const char *type);
void shell_readable(struct cg_zsock *z, int events);
/* A request of the control channel that the kernel answers: takes @r. */
void control_enqueue(struct front *f, struct jreq *r);
/* The reply to the request that made the subshell of the control channel. */
void control_made(struct front *f, const struct cg_event *e);
/* There is another kernel: its subshells are gone. */
void control_forget(struct front *f);
/* Reads what waits on the shell socket into the lanes. */
void shell_drain(struct front *f);
struct jreq *jreq_new(struct front *f, enum cg_jchannel channel, struct cg_jmsg *msg);
void jreq_begin(struct front *f, struct jreq *r);
/* Sends the reply; jreq_finish() follows. */
void jreq_reply(struct front *f, struct jreq *r, struct cg_jspan content);
void jreq_reply_relay(struct front *f, struct jreq *r, struct cg_jout *out);
void jreq_fail(struct front *f, struct jreq *r, const char *ename, const char *evalue);
void jreq_without_kernel(struct front *f, struct jreq *r);
/* idle; takes @r, and runs what waited for it. */
void jreq_finish(struct front *f, struct jreq *r);
/* Hands a KIND_RELAY, KIND_COMM or KIND_SIDE to the kernel; takes @r. */
void jreq_to_kernel(struct front *f, struct jreq *r, struct lane *lane);
struct jreq *flying_find(struct front *f, uint64_t number);
void shell_run(struct front *f);
/* The REPLY about a comm message that was offered. False: @r was not. */
bool shell_offer_reply(struct front *f, struct jreq *r, const struct cg_event *e);
/* A cell failed: what has come until now is not run. */
void shell_abort(struct front *f, struct lane *l);
void shell_end(struct front *f, const char *why);
void shell_free(struct front *f);
/* Log about a message that was not believed, not more often than once a second. */
void reject(struct front *f, enum cg_jchannel channel, const struct cg_err *err);

/* control.c */
void control_readable(struct cg_zsock *z, int events);
void control_early(struct front *f);
/* KIND_INFO, KIND_CONNECT, KIND_INTERRUPT, KIND_SHUTDOWN: answered here; takes @r. */
void answer_local(struct front *f, struct jreq *r);
void interrupt(struct front *f);
int make_info(struct front *f, struct cg_err *err);
int make_info_without_kernel(struct front *f, const char *why, struct cg_err *err);
/* caller frees; NULL: no memory, or no UTF-8 */
char *failed_info(const char *ename, const char *evalue, size_t *len);

/* events.c */
void on_events(uv_poll_t *h, int status, int events);
/* An execute_reply of status error, from us. */
void cell_error(struct front *f, struct jreq *r, const char *ename, const char *evalue, bool show);

/* stdin.c */
void stdin_readable(struct cg_zsock *z, int events);
void ask_input(struct front *f, struct jreq *r, const struct cg_event *e);
/* The cell's input() waits no more. */
void input_closed(struct front *f, const struct jreq *r);
/* Takes @e. */
void judge_call(struct front *f, struct cg_event *e);
/* Takes @e. */
void judge_connection(struct front *f, struct cg_event *e);
void call_closed(struct front *f, uint64_t approval);
/* Questions of a request that has ended are taken back. */
void questions_of_end(struct front *f, const struct jreq *r);
void questions_free(struct front *f);

#endif
