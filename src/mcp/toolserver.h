/*
 * cellgate-toolserver's own parts. One process for a supervisor, one thread (ZeroMQ has its own): a
 * libuv loop.
 *
 *      toolserver.c   main: descriptors, lifeline, the supervisor's messages
 *      ts_broker.c    sending to the supervisor, orderly end, look-ups
 *      ts_chan.c      the broker wire's socket, with a bounded queue for what cannot be sent yet
 *      ts_session.c   sessions: their MCP servers, and adding servers
 *      ts_call.c      a kernel's connection and its tool calls: check, ask, run, answer
 */
#ifndef CG_MCP_TOOLSERVER_H
#define CG_MCP_TOOLSERVER_H

#include <uv.h>
#include "base/log.h"
#include "base/loop.h"
#include "base/wire.h"
#include "base/zlink.h"
#include "mcp/client.h"

/* ---- a socket that never blocks */

struct ts_chan {
        struct cg_zsock z;
        void *sock;
        const struct cg_wire *wire;
        const struct cg_log *log;
        void (*on_in)(struct ts_chan *ch); /* a message waits: receive one */
        void (*on_closed)(struct ts_chan *ch);
        void *data;
        struct ts_item *first, **last;
        size_t queued, max;
};

/* Takes @sock, also when it fails. */
int cg_ts_chan_init(struct ts_chan *ch, struct cg_zloop *zl, void *sock, const struct cg_wire *wire,
                    size_t max, struct cg_err *err);
/*
 * Sends, or queues. The body and raw frame are copied. CG_E_LIMIT: the message is over its table's
 * limits, or the peer does not read and the queue is full: nothing was sent.
 */
int cg_ts_chan_send(struct ts_chan *ch, const struct cg_out *out, struct cg_err *err);
/* What is queued is dropped. on_closed() follows from the loop; the struct must stay until then. */
void cg_ts_chan_close(struct ts_chan *ch);

/* ---- the process */

struct ts {
        uv_loop_t loop;
        struct cg_zloop zloop;
        struct cg_log log;
        void *zctx;
        struct ts_chan broker;
        struct ts_session *sessions;
        unsigned n_links; /* open connections: the broker's and the kernels' */
        uint64_t last_ask;
        uv_poll_t lifeline;
        uv_signal_t sigterm, sigint;
        uv_timer_t end_timer;
        uv_timer_cb on_end;  /* of end_timer: ends the sessions */
        uv_timer_t progress; /* while servers are being added */
        bool ending;
        int exit_status;
};

/*
 * Sends on the broker wire; a failure that is not the message's own fault ends the process. 0, or
 * CG_E_LIMIT.
 */
int cg_ts_broker_send(struct ts *ts, const struct cg_out *out, struct cg_err *err);
/* Begins the orderly end of everything. */
void cg_ts_end(struct ts *ts, int status);
/* Called when a session or a socket that the end waits for has been closed. */
void cg_ts_maybe_stop(struct ts *ts);

/* ---- sessions */

struct ts_server {
        struct ts_server *next;
        struct cg_mcp_client *client; /* its name is the server's */
};

struct ts_session {
        struct ts *ts;
        struct ts_session *next;
        uint64_t number;
        struct ts_server *servers;
        size_t n_servers;
        struct ts_adding *adding; /* SERVERS requests under way */
        struct ts_kernel *kernel; /* NULL: none is attached */
        unsigned n_clients;       /* with those that are being ended */
        bool ending;              /* forgotten: freed when the last client is gone */
        bool tell_detached;
        uint64_t detach_id; /* of the DETACH to answer */
};

/* NULL when there is none. Both in ts_broker.c. */
struct ts_session *cg_ts_session_find(struct ts *ts, uint64_t number);
struct cg_mcp_client *cg_ts_session_client(const struct ts_session *s, const char *server);
/* Makes the session when there is none. */
struct ts_session *cg_ts_session_get(struct ts *ts, uint64_t number, struct cg_err *err);
/* Ends its servers and forgets it; DETACHED follows when all are gone, if @tell. */
void cg_ts_session_end(struct ts_session *s, bool tell);
/* Reports servers that do not answer yet; its timer runs while there are some. */
void cg_ts_session_progress(uv_timer_t *t);
/* Handles SERVERS. */
void cg_ts_session_add(struct ts_session *s, const struct cg_msg *m);

/* ---- kernels and calls */

/* @number: the supervisor's, which goes back with what is said about this kernel. */
int cg_ts_kernel_attach(struct ts_session *s, uint64_t number, const char *path, struct cg_err *err);
/*
 * Cancels its calls (@why is told to the host of those that wait for a decision) and closes the
 * connection.
 */
void cg_ts_kernel_detach(struct ts_session *s, const char *why);
/* Fails the calls of @server that wait for a decision: the host was asked about another program. */
void cg_ts_calls_replaced(struct ts_session *s, const char *server);
/* Handles ASK_DECISION. */
void cg_ts_call_decide(struct ts_session *s, uint64_t ask, bool accept, const char *reason);

#endif
