/*
 * The control channel of cellgate-egress with the program that started it: one JSON object after
 * another over an AF_UNIX stream socket, each as four bytes of length (big endian), the object, and
 * a newline that counts. Descriptors travel with the first byte of the message that names them.
 * Messages: docs/egress.md.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"

#define CG_CHAN_MESSAGE_MAX \
        (2u << 20) /* a settings file's network part: settings are at most 1 MiB, escaped twice that */
#define CG_CHAN_QUEUE_MAX (4u << 20)
#define CG_CHAN_FDS_MAX   16

struct cg_chan {
        int fd; /* non-blocking reads and writes whatever its flags are */
        struct cg_buf in, out;
        int fds[CG_CHAN_FDS_MAX]; /* received, not taken yet; close-on-exec */
        size_t n_fds;
};

void cg_chan_init(struct cg_chan *c, int fd);
void cg_chan_fini(struct cg_chan *c); /* closes fd and the descriptors nobody took */

/* Reads what is there. 0; CG_CLOSED at the end; negative. Then take messages until CG_TIMEOUT. */
int cg_chan_read(struct cg_chan *c, struct cg_err *err);
/* The next whole message (returns). CG_TIMEOUT: none is whole; negative: not JSON, too long. */
int cg_chan_next(struct cg_chan *c, json_t **ret, struct cg_err *err);
/* The first @n received descriptors (the caller's now). CG_E_PROTO: there are fewer. */
int cg_chan_take_fds(struct cg_chan *c, size_t n, int *ret, struct cg_err *err);

/* Queues a message (steals it) and writes what it can. CG_E_LIMIT: the other side does not read. */
int cg_chan_send(struct cg_chan *c, json_t *message, struct cg_err *err);
/* The same, with descriptors (the caller's still): waits up to @timeout_ms until all is written. */
int cg_chan_send_fds(struct cg_chan *c, json_t *message, const int *fds, size_t n, int64_t timeout_ms,
                     struct cg_err *err);
/* Writes more of the queue: 0 when it is empty, CG_TIMEOUT when something is left, negative. */
int cg_chan_flush(struct cg_chan *c, struct cg_err *err);
