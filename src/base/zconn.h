/*
 * A connection between two of our processes that speaks ZMTP 3 (NULL) as a DEALER, without a loop
 * or a thread of its own: its owner waits for the socket, reads and writes. libzmq's DEALER can
 * talk to it.
 *
 * libzmq is not used because it bounds each frame, and complete messages, but not a message that
 * never ends: it would keep all of its frames. Here every frame is checked against the wire's table
 * before memory is allocated for it, there is one message at a time, and bytes that nobody takes
 * stay in the socket. libzmq also hands each message to a thread of its own and back, which takes
 * longer than all other steps together.
 *
 * Threads: one may read while another writes; each of the two sides needs a lock where several
 *          threads use it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "base/wire.h"

enum cg_zconn_state { CG_ZCONN_GREETING, CG_ZCONN_HANDSHAKE, CG_ZCONN_OPEN };

struct cg_zconn;

struct cg_zconn_ops {
        /* A message, checked against the table. Frames may be moved out; the others are dropped. */
        void (*on_msg)(struct cg_zconn *c, struct cg_msg *m);
        /*
         * Once, when nothing more will be read: CG_E_PROTO, the peer broke a rule; CG_E_CLOSED, it
         * closed its end (everything before was delivered); CG_E_NOMEM or CG_E_SYS.
         */
        void (*on_end)(struct cg_zconn *c, const struct cg_err *err);
};

struct cg_zconn {
        const struct cg_wire *wire;
        unsigned sender; /* the peer's role */
        const struct cg_zconn_ops *ops;
        int fd; /* -1: closed */

        /* reading */
        enum cg_zconn_state state;
        bool serving, again, drained, ended;
        bool paused;       /* set by its owner: nothing is delivered */
        unsigned char *in; /* bytes read and not parsed yet: in_pos to in_len */
        size_t in_pos, in_len;
        uint64_t received; /* bytes, ever */
        struct cg_msg msg; /* under construction */
        bool has_header, more;
        size_t left;      /* bytes missing of its last frame */
        size_t raw_total; /* bytes of its raw frames */

        /* writing */
        /* the handshake is done: messages may follow. libzmq loses those that come with it */
        bool open;
        bool greeting; /* our part of the handshake has not been written completely */
        bool deaf;     /* the peer reads no more */
        struct cg_zconn_out *first, **last;
        size_t queued, max;
        size_t max_unsent; /* nothing is delivered while more bytes are queued; 0: no limit */
};

#define CG_ZCONN_NONE ((struct cg_zconn){ .fd = -1 })

/*
 * @fd: a connected socket, non-blocking (takes it, also when this fails). @max: bytes that may wait
 * to be written.
 */
int cg_zconn_init(struct cg_zconn *c, int fd, const struct cg_wire *wire, unsigned sender, size_t max,
                  const struct cg_zconn_ops *ops, struct cg_err *err);
/* Closes and frees what it holds. Not from inside of a callback. */
void cg_zconn_fini(struct cg_zconn *c);

/*
 * Delivers up to @budget messages (and, if @count_reads, reads as many times). c->again afterwards:
 * there may be more, which poll() does not report.
 */
void cg_zconn_read(struct cg_zconn *c, int budget, bool count_reads);
/* Delivers the messages that are in the socket now, and none that comes meanwhile. */
void cg_zconn_catch_up(struct cg_zconn *c);

/*
 * Queues a message. Large raw frames are not copied where @release is given: release(@owner) is
 * called once they are written, or at once.
 * Return: 0; CG_TIMEOUT when too much waits already; CG_E_CLOSED when the peer reads no more;
 * CG_E_LIMIT when the message is over its own table's limits; other than with 0 @owner stays the
 * caller's.
 */
int cg_zconn_put(struct cg_zconn *c, const struct cg_out *out, void (*release)(void *owner), void *owner,
                 struct cg_err *err);
/* The same with the raw frames of @m moved out of it (when 0 is returned). */
int cg_zconn_put_frames(struct cg_zconn *c, const struct cg_out *out, struct cg_msg *m, struct cg_err *err);
/* Writes what the socket takes. */
void cg_zconn_flush(struct cg_zconn *c);
/* After reading, with the writing side's lock: sends queued messages once the handshake is done. */
void cg_zconn_opened(struct cg_zconn *c);
/* True while nothing is delivered because the peer has to read first. */
bool cg_zconn_holds(const struct cg_zconn *c);
/* True if there are bytes to write once the socket has room. */
bool cg_zconn_wants_out(const struct cg_zconn *c);
/* Drops what waits to be written. */
void cg_zconn_drop(struct cg_zconn *c);
