/*
 * iopub: messages to all clients. None is dropped by a full queue; output over the budget is
 * dropped by us, with a notice. Runs in `cellgate jupyter`.
 */
#pragma once

#include "jupyter/loop.h"
#include "base/log.h"
#include "jupyter/message.h"

/* The request that caused a message. Lives as long as output of it may come. */
struct cg_origin {
        unsigned refs;
        uint64_t number;        /* of the cell or request in the session; 0 while it has none */
        bool foreign;           /* another client of the session caused it */
        struct cg_slice header; /* owned */
        size_t output;          /* bytes of streams and displays so far */
        size_t comms;           /* of comm messages */
        unsigned errors;
        bool notified; /* of dropped output */
};

struct cg_origin *cg_origin_new(uint64_t number, struct cg_slice header);
struct cg_origin *cg_origin_ref(struct cg_origin *o);
struct cg_origin *cg_origin_unref(struct cg_origin *o);

struct cg_iopub {
        void *sock;
        struct cg_zsock z;
        const struct cg_jsign *sign;
        struct cg_jidentity *me;
        const struct cg_log *log;
        size_t budget;
        uint64_t welcomed;
        bool joined; /* a client has subscribed */
        void (*on_joined)(void *data);
        void *data;
        struct cg_origin *pending_of; /* the origin of the gathered stream text */
        bool pending_err, has_pending;
        struct cg_buf pending;
        uv_timer_t timer;
        bool timer_on;
        uint64_t flushed_ms;
};

/*
 * A socket of libzmq's @type with the option @mode, whose peers send messages of at most @max
 * bytes. NULL: *err says why.
 */
void *cg_socket_new(void *ctx, int type, int mode, int64_t max, struct cg_err *err);
/* @sock: an XPUB socket with ZMQ_XPUB_MANUAL, bound by the caller (borrows). */
int cg_iopub_init(struct cg_iopub *io, void *sock, struct cg_zloop *zl, const struct cg_jsign *sign,
                  struct cg_jidentity *me, const struct cg_log *log, struct cg_err *err);
/* Stops polling and sends gathered text; the socket is the caller's. */
void cg_iopub_close(struct cg_iopub *io);

/* The origin may be NULL. */
void cg_iopub_status(struct cg_iopub *io, struct cg_origin *o, const char *state);
void cg_iopub_send(struct cg_iopub *io, struct cg_origin *o, const char *type, struct cg_slice content);
/* Counted against the origin's budget. */
void cg_iopub_stream(struct cg_iopub *io, struct cg_origin *o, bool is_err, const char *text, size_t len);
/* Text of ours on standard error, never left out. */
void cg_iopub_notice(struct cg_iopub *io, struct cg_origin *o, const char *text);
/*
 * Content that belongs to @owner, which is taken: release(owner) when it was sent. What may be left
 * out depends on its type.
 */
void cg_iopub_relay(struct cg_iopub *io, struct cg_origin *o, struct cg_jout *out);
/* No event waits any more: stream text goes out now, or very soon if some went out just before. */
void cg_iopub_settle(struct cg_iopub *io);
void cg_iopub_flush(struct cg_iopub *io);
