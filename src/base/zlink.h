/*
 * Our end of a connection to a hostile peer that speaks ZMTP (libzmq's DEALER at its end). Linked into supervisor and tool server.
 *
 * libzmq bounds each frame, and messages that are complete, but not a message that never ends: it would keep all of its frames. Here
 * the wire's table is asked about every frame before memory is taken for it, there is one message at a time, and what nobody takes
 * stays in the socket.
 */
#ifndef CG_BASE_ZLINK_H
#define CG_BASE_ZLINK_H

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>
#include "base/err.h"
#include "base/wire.h"

struct cg_zlink;

/* A message, checked against the table. The frames may be moved out of *m; what is left is dropped afterwards. */
typedef void (*cg_zlink_msg_cb)(struct cg_zlink *z, struct cg_msg *m);
/*
 * Called once, when nothing more will be read: CG_E_PROTO, the peer broke a rule; CG_E_CLOSED, it closed its end (everything before
 * was handed out); CG_E_NOMEM or CG_E_SYS.
 */
typedef void (*cg_zlink_end_cb)(struct cg_zlink *z, const struct cg_err *err);

enum cg_zlink_state { CG_ZLINK_GREETING, CG_ZLINK_HANDSHAKE, CG_ZLINK_OPEN };

struct cg_zlink {
        const struct cg_wire *wire;
        unsigned sender; /* the peer's role */
        cg_zlink_msg_cb on_msg;
        cg_zlink_end_cb on_end;
        void (*on_closed)(struct cg_zlink *z);
        void *data;
        uv_poll_t poll;
        uv_idle_t idle; /* runs while there is something to do that the socket will not tell of */
        int fd, events, handles;
        enum cg_zlink_state state;
        bool serving, paused, again, broken, ended, deaf, closing;

        unsigned char *in; /* what was read and not used yet: in_pos to in_len */
        size_t in_pos, in_len;
        struct cg_msg msg; /* under construction */
        bool has_header, more;
        size_t left;      /* bytes missing of its last frame */
        size_t raw_total; /* bytes of its raw frames */

        struct cg_zlink_out *first, **last;
        size_t queued, max;
};

/*
 * Connects to the listener at @path, without waiting. *z must stay where it is until the callback of cg_zlink_close(). @max: bytes
 * that may wait to be written. When it fails *z needs no close.
 */
int cg_zlink_open(struct cg_zlink *z, uv_loop_t *loop, const char *path, const struct cg_wire *wire, unsigned sender, size_t max,
                  cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data, struct cg_err *err);
/*
 * Writes, or keeps a copy until it can be written. Return: 0; CG_TIMEOUT when too much waits already (nothing was sent);
 * CG_E_CLOSED when the peer reads no more; CG_E_LIMIT when the message is over its own table's limits.
 */
int cg_zlink_send(struct cg_zlink *z, const struct cg_out *out, struct cg_err *err);
/* The same with a JSON body; takes @body (even when it fails). */
int cg_zlink_send_json(struct cg_zlink *z, const struct cg_out *out, json_t *body, struct cg_err *err);
/* Nothing is read or handed out until resumed: the peer's writes block. */
void cg_zlink_pause(struct cg_zlink *z, bool paused);
/* Hands out what has arrived, at most @max messages, instead of waiting for the loop to do it. Not from inside on_msg. */
void cg_zlink_catch_up(struct cg_zlink *z, int max);
/* What waits is dropped; @closed (may be NULL) runs later from the loop: *z may be freed there. */
void cg_zlink_close(struct cg_zlink *z, void (*closed)(struct cg_zlink *z));

#endif
