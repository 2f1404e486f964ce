/*
 * libuv driving ZeroMQ. ZMQ_FD is edge-triggered and only means that ZMQ_EVENTS must be read again,
 * also after every send and receive. So a socket becomes "dirty" when its ZMQ_FD is readable and
 * whenever its user has sent something. Before the loop sleeps, the prepare handle reads ZMQ_EVENTS
 * of all dirty sockets and calls their callbacks. A socket that still has messages after its turn
 * stays dirty; the idle handle then keeps the loop from sleeping.
 */
#pragma once

#include <stdbool.h>
#include <uv.h>
#include "base/err.h"

struct cg_zsock;

struct cg_zloop {
        uv_loop_t *loop;
        uv_prepare_t prepare;
        /* runs while a socket still has messages: keeps the loop from sleeping */
        uv_idle_t idle;
        /* sockets whose ZMQ_EVENTS must be looked at before the next sleep */
        struct cg_zsock *dirty;
        bool closed;
};

/*
 * Called while a message waits. It handles one message and returns; it is called again while there
 * are more, fairly with the other sockets.
 */
typedef void (*cg_zsock_cb)(struct cg_zsock *z);

struct cg_zsock {
        struct cg_zloop *zl;
        void *sock;
        void *data;
        cg_zsock_cb cb;
        uv_poll_t poll;
        struct cg_zsock *next_dirty;
        bool is_dirty, paused, closing;
};

int cg_zloop_init(struct cg_zloop *zl, uv_loop_t *loop, struct cg_err *err);
/* Closes its own handles; run the loop once more afterwards. */
void cg_zloop_close(struct cg_zloop *zl);

/* Watches @sock (borrows). *z must stay where it is until its closed callback. */
int cg_zsock_init(struct cg_zsock *z, struct cg_zloop *zl, void *sock, cg_zsock_cb cb, void *data,
                  struct cg_err *err);
/* Call after every send on the socket from outside its callback. */
void cg_zsock_touch(struct cg_zsock *z);
/* No callbacks for incoming messages until resumed: this is how a full queue pushes back. */
void cg_zsock_pause(struct cg_zsock *z, bool paused);
/* Stops watching; the loop needs *z until it has run once more. */
void cg_zsock_close(struct cg_zsock *z);
