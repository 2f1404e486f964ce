/*
 * Who is connected over tcp, and how much of what each has sent is no message yet. libzmq keeps all
 * frames of a message until its last one has come, whoever sends them and however many, and no
 * option of it bounds that. So its connections are watched from the side: what the system has
 * received on one, less what was read from the socket, is what libzmq holds; who makes it hold too
 * much is cut off. Runs in `cellgate jupyter`.
 *
 * Clients of ipc sockets are not watched: only this user's programs reach them.
 */
#ifndef CG_JUPYTER_PEERS_H
#define CG_JUPYTER_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zmq.h>
#include "base/log.h"
#include "base/loop.h"

/*
 * Connections of one channel. Further ones are cut off, so that those that are there keep theirs.
 */
#define CG_PEERS_MAX 512u

struct cg_peer {
        int fd;          /* libzmq's: looked at, never read */
        uint64_t cookie; /* the system's name for the connection: descriptors are used again */
        uint64_t since_ms;
        uint64_t delivered; /* bytes on the wire of the messages that were read */
        bool proven;        /* one of them was signed with our key */
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
        uint64_t told_ms; /* that there are too many */
        struct cg_peer list[CG_PEERS_MAX];
        size_t n;
};

/*
 * Watches @sock, which is to be bound later, and served by @owner from then on. @limit_new: bytes
 * that a connection may have under way before it has proven that it has our key; @limit_proven: and
 * afterwards.
 */
int cg_peers_init(struct cg_peers *p, void *ctx, void *sock, struct cg_zsock *owner, struct cg_zloop *zl,
                  const char *name, uint64_t limit_new, uint64_t limit_proven, bool curve,
                  const struct cg_log *log, struct cg_err *err);
/* A frame was read. Returns the connection that it came from, or NULL. */
struct cg_peer *cg_peers_took(struct cg_peers *p, zmq_msg_t *frame, struct cg_peer *known);
void cg_peers_close(struct cg_peers *p);
/* After it, and before the socket's own end. */
void cg_peers_fini(struct cg_peers *p);

#endif
