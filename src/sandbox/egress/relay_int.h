/*
 * The relay of cellgate-egress, by file. Private to relay*.c.
 *
 *      relay.c           sandboxes and their listeners, messages of the decider, time, the start
 *      relay_run.c       which step of a connection is next, what it waits for, its deadline
 *      relay_request.c   from the first byte to the question, and what the answer starts
 *      relay_tunnel.c    CONNECT and SOCKS; through another proxy as well
 *      relay_exchange.c  one HTTP request and its response
 *      relay_refuse.c    the reply to a client that gets no connection
 *      relay_conn.c      a connection: its sockets, what is read and written outside of a flow, its
 *                        end
 *      relay_loop.c      messages to the decider, what is waited for
 *
 * Each calls only those below it.
 *
 * A connection is a list of steps, each of which goes on, waits for an event, or ends it: FIRST ->
 *      SOCKS_* or HEAD -> ASKED -> (PARENT) -> TUNNEL or EXCHANGE (-> HEAD again) -> LINGER
 */
#pragma once

#include <sys/queue.h>
#include <uv.h>
#include "base/buf.h"
#include "sandbox/egress/endpoint.h"
#include "sandbox/egress/flow.h"
#include "sandbox/egress/internal.h"
#include "sandbox/egress/socks.h"

#define AHEAD_MAX (64u << 10) /* what a client may send before it has an answer: srt's */
#define HASH      1024
/*
 * Messages to the decider that wait for room in the channel; above it no connection is accepted.
 * Each open connection queues one more at most.
 */
#define UNSENT_MAX 256

enum state { FIRST, SOCKS_PASSWORD, SOCKS_REQUEST, HEAD, ASKED, PARENT, TUNNEL, EXCHANGE, LINGER };

struct relay;
struct conn;
struct listener;

struct box {
        LIST_ENTRY(box) entry;
        struct relay *r;
        uint32_t number;
        struct cg_egress_msg options; /* the decider's message */
        struct listener *listeners[CG_EGRESS_LISTENERS_MAX];
        size_t n_listeners, n_conns;
};

struct listener {
        /* not a listener: connections come through it as descriptors, one a datagram */
        bool handed;
        uv_poll_t poll;
        struct box *box;
        int fd;
        bool paused;
};

struct conn {
        LIST_ENTRY(conn) entry, hash;
        struct relay *r;
        struct box *box;
        uint32_t id;
        enum state state;
        enum cg_egress_kind kind;
        bool to_ask;         /* the question is not sent yet */
        bool client_ended;   /* its end was seen: nothing more is read */
        bool half_closed;    /* seen while nothing was read: it may still wait for the answer */
        int64_t deadline_ms; /* 0: none */
        struct cg_endpoint *client, *up;
        struct cg_buf in, up_in; /* read, not used */
        struct cg_buf reply;     /* to the client, outside of a flow */
        struct cg_buf head;      /* of the request under way */
        struct cg_host host;
        uint16_t port;
        /* EXCHANGE */
        bool keep, is_head, minor0, response_started, request_broken;
        unsigned int interim;
        size_t scanned;
        struct cg_flow out, back;
        bool flowing;                                   /* the flows are set up */
        enum { UNDECIDED, GATHERING, GATHERED } gather; /* TUNNEL: the first bytes that come back */
};

/* A message to the decider for which there was no room. */
struct unsent {
        STAILQ_ENTRY(unsent) entry;
        enum cg_egress_type type;
        uint32_t box, id;
        enum cg_egress_kind kind;
        char text[];
};

struct relay {
        uv_loop_t loop;
        uv_poll_t chan_poll;
        int chan_events;
        uv_poll_cb on_chan, on_listener;
        void (*run)(struct conn *c); /* all steps that can be taken now; @c may be freed */
        uv_timer_t tick, gather;
        int chan;
        LIST_HEAD(, box) boxes;
        LIST_HEAD(, conn) conns, by_id[HASH];
        uint32_t next_id;
        size_t n_to_ask;
        STAILQ_HEAD(, unsent) unsent;
        size_t n_unsent;
        struct cg_flow_common common;
        int status;
};

/* relay_loop.c */
/* Another connection of this sandbox may be accepted. */
bool cg_relay_has_room(const struct box *b);
/* Resumes listeners that were paused, where there is room. */
void cg_relay_resume(struct box *b);
/* Sends a message about @c to the decider, or queues it. */
void cg_relay_send(struct conn *c, enum cg_egress_type type, const char *text);
/* Sends what is queued, as far as there is room. */
void cg_relay_send_unsent(struct relay *r);
/* Updates what the channel to the decider waits for. */
void cg_relay_watch(struct relay *r);

/* relay_conn.c */
/* Takes @fd, also when it fails. */
struct cg_endpoint *cg_conn_new_end(struct conn *c, int fd);
/* A client: takes @fd. */
void cg_conn_add(struct box *b, int fd);
void cg_conn_end(struct conn *c);
/* Ends it with a reset, which the client cannot mistake for the end of the data. */
void cg_conn_abort(struct conn *c);
/* True if @c still exists and is the connection @id. */
bool cg_conn_is_alive(struct relay *r, const struct conn *c, uint32_t id);
/* The connection that waits for the answer to this question, or NULL. */
struct conn *cg_conn_find(struct relay *r, uint32_t box, uint32_t id);
/* 0: something new is in c->in; CG_TIMEOUT: nothing yet; CG_CLOSED: nothing more; negative. */
int cg_conn_read(struct conn *c, size_t limit);
/* 0: something new is in c->up_in; CG_TIMEOUT; CG_CLOSED; negative. */
int cg_conn_read_up(struct conn *c);
/* Writes c->reply, as far as the socket takes it; negative when the client has gone. */
int cg_conn_flush(struct conn *c);
void cg_conn_stop_flows(struct conn *c);
/* Bytes have moved: its time begins anew. */
void cg_conn_active(struct conn *c);
/* After the reply, what the client still sends is discarded until it ends, or for a moment. */
void cg_conn_linger(struct conn *c);
void cg_conn_set_to_ask(struct conn *c, bool yes);

/* relay_run.c: @c may be freed */
void cg_conn_run(struct conn *c);
void cg_conn_on_deadline(struct conn *c);

/* relay_request.c */
/* Sends the question, or marks that it is to be sent when there is room. */
void cg_conn_ask(struct conn *c);
/* Takes @fd; -1 none. @c may be freed. */
void cg_conn_on_answer(struct conn *c, const struct cg_egress_msg *m, int fd);

/* Steps. True: run the next one at once; false: wait, or @c was freed. */
bool cg_conn_step_first(struct conn *c);
bool cg_conn_step_socks_password(struct conn *c);
bool cg_conn_step_socks_request(struct conn *c);
bool cg_conn_step_head(struct conn *c);
bool cg_conn_step_asked(struct conn *c);

/* relay_tunnel.c; @auth: for the proxy, or "" */
void cg_conn_start_tunnel(struct conn *c);
void cg_conn_start_parent(struct conn *c, const char *auth);
bool cg_conn_step_tunnel(struct conn *c);
bool cg_conn_step_parent(struct conn *c);

/* relay_exchange.c */
/* @resized: a body may change its length on its way to the server, so it cannot be announced. */
void cg_conn_start_exchange(struct conn *c, bool to_proxy, const char *auth, bool resized);
bool cg_conn_step_exchange(struct conn *c);

/* relay_refuse.c */
/* Sends the decider's answer in the client's protocol; @c may be freed. */
void cg_conn_refuse(struct conn *c, const struct cg_egress_msg *m);
/* Refuses a request that is never asked about. */
void cg_conn_refuse_request(struct conn *c, unsigned int status, const char *why);
void cg_conn_bad_gateway(struct conn *c, const char *why);
void cg_conn_reply_socks(struct conn *c, enum cg_socks_code code);
