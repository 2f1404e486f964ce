/*
 * A connection (zconn.h) that libuv's loop drives; its peer may be hostile. Linked into supervisor
 * and tool server.
 */
#pragma once

#include <uv.h>
#include "base/zconn.h"

struct cg_zlink;

/* As in zconn.h. */
typedef void (*cg_zlink_msg_cb)(struct cg_zlink *z, struct cg_msg *m);
typedef void (*cg_zlink_end_cb)(struct cg_zlink *z, const struct cg_err *err);

struct cg_zlink {
        struct cg_zconn conn;
        cg_zlink_msg_cb on_msg;
        cg_zlink_end_cb on_end;
        void (*on_closed)(struct cg_zlink *z);
        void *data;
        uv_poll_t poll;
        uv_idle_t idle; /* active while there is work that poll does not report */
        int events, handles;
        bool paused, broken, closing, catching_up;
};

/*
 * Connects to the listener at @path, without waiting. *z must stay where it is until the callback
 * of cg_zlink_close(). @max: bytes that may wait to be written. When it fails *z needs no close.
 */
int cg_zlink_open(struct cg_zlink *z, uv_loop_t *loop, const char *path, const struct cg_wire *wire,
                  unsigned sender, size_t max, cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data,
                  struct cg_err *err);
/* The same with @fd, a non-blocking socket that is connected (takes it, also when this fails). */
int cg_zlink_take(struct cg_zlink *z, uv_loop_t *loop, int fd, const struct cg_wire *wire, unsigned sender,
                  size_t max, cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data, struct cg_err *err);
/*
 * Writes, or keeps a copy until it can be written. Return: 0; CG_TIMEOUT when too much waits
 * already (nothing was sent); CG_E_CLOSED when the peer reads no more; CG_E_LIMIT when the message
 * is over its own table's limits.
 */
int cg_zlink_send(struct cg_zlink *z, const struct cg_out *out, struct cg_err *err);
/* The same with a JSON body; takes @body (even when it fails). */
int cg_zlink_send_json(struct cg_zlink *z, const struct cg_out *out, json_t *body, struct cg_err *err);
/* The same with the raw frames of @m moved out of it. */
int cg_zlink_forward(struct cg_zlink *z, const struct cg_out *out, struct cg_msg *m, struct cg_err *err);
/* Nothing is read or delivered until resumed: the peer's writes block. */
void cg_zlink_pause(struct cg_zlink *z, bool paused);
/*
 * Delivers all messages that have arrived, also while paused, instead of waiting for the loop to do
 * it. Not from inside on_msg.
 */
void cg_zlink_catch_up(struct cg_zlink *z);
/* Drops queued messages; @closed (may be NULL) runs later from the loop: *z may be freed there. */
void cg_zlink_close(struct cg_zlink *z, void (*closed)(struct cg_zlink *z));
