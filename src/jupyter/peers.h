/*
 * The tcp connections of a socket, and the bytes of unfinished messages on each. libzmq keeps all
 * frames of a message until the last one has come, for any peer, and none of its options limits
 * their number. So its connections are measured from outside: the bytes that the system has
 * received, less those of the messages that were read, are held by libzmq. A connection over its
 * limit is reset. docs/jupyter.md has the reason. Runs in `cellgate jupyter`.
 *
 * Clients of ipc sockets are not measured: only this user's programs reach them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <zmq.h>
#include "base/log.h"
#include "jupyter/loop.h"

/* Limit of connections of one channel. Further ones are closed. */
#define CG_PEERS_MAX 512u

struct cg_peer {
        int fd;          /* libzmq's, never read here */
        uint64_t cookie; /* identifies the connection, since descriptors are reused */
        uint64_t since_ms;
        uint64_t delivered; /* wire bytes of the messages that were read */
        bool proven;        /* a message was signed with our key */
};

struct cg_peers {
        void *sock, *monitor;
        struct cg_zsock *owner; /* of sock; borrowed */
        struct cg_zsock z;      /* of monitor */
        struct cg_zloop *zl;
        uv_timer_t timer;
        const struct cg_log *log;
        const char *name;
        uint64_t limit_new, limit_proven;
        bool curve, open;
        uint64_t warned_ms; /* when too many connections were logged last */
        struct cg_peer list[CG_PEERS_MAX];
        size_t n;
};

/*
 * Measures @sock, which is bound later and served by @owner. @limit_new: unfinished bytes that a
 * connection may have before it has proven that it has our key; @limit_proven: and afterwards.
 */
int cg_peers_init(struct cg_peers *p, void *ctx, void *sock, struct cg_zsock *owner, struct cg_zloop *zl,
                  const char *name, uint64_t limit_new, uint64_t limit_proven, bool curve,
                  const struct cg_log *log, struct cg_err *err);
/* Counts a frame that was read. Returns the connection that it came from, or NULL. */
struct cg_peer *cg_peers_count_frame(struct cg_peers *p, zmq_msg_t *frame, struct cg_peer *known);
void cg_peers_close(struct cg_peers *p);
/* After cg_peers_close(), and before the socket is closed. */
void cg_peers_fini(struct cg_peers *p);
