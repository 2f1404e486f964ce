/* ZeroMQ sockets in libuv's loop. Linked into what serves Jupyter. */
#include "jupyter/loop.h"

#include <zmq.h>
#include "base/util.h"

/* Messages handled for one socket before the other sockets are served. */
#define BURST 32

static void mark_dirty(struct cg_zsock *z)
{
        if (z->is_dirty || z->closing)
                return;
        z->is_dirty = true;
        z->next_dirty = z->zl->dirty;
        z->zl->dirty = z;
}

static bool is_readable(struct cg_zsock *z)
{
        int events = 0;
        size_t size = sizeof(events);

        /* Also of a paused socket: else its ZMQ_FD stays readable, and the loop never sleeps. */
        if (zmq_getsockopt(z->sock, ZMQ_EVENTS, &events, &size) < 0)
                return false;
        return !z->paused && (events & ZMQ_POLLIN);
}

/* Handles up to BURST messages; the socket stays dirty when there are more. */
static void serve(struct cg_zsock *z)
{
        for (int i = 0; i < BURST && !z->closing; i++) {
                if (!is_readable(z))
                        return;
                z->cb(z);
        }
        mark_dirty(z);
}

static void on_idle(uv_idle_t *h)
{
        /* an active idle handle makes the loop poll without a timeout */
}

static void on_prepare(uv_prepare_t *h)
{
        struct cg_zloop *zl = h->data;
        struct cg_zsock *list = zl->dirty;

        zl->dirty = NULL;
        while (list) {
                struct cg_zsock *z = list;

                list = z->next_dirty;
                z->next_dirty = NULL;
                z->is_dirty = false;
                /* A callback may close a later entry: only the loop's close phase frees it. */
                if (!z->closing)
                        serve(z);
        }
        if (zl->dirty)
                uv_idle_start(&zl->idle, on_idle);
        else
                uv_idle_stop(&zl->idle);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
        mark_dirty(h->data);
}

int cg_zloop_init(struct cg_zloop *zl, uv_loop_t *loop, struct cg_err *err)
{
        int r;

        *zl = (struct cg_zloop){ .loop = loop };
        uv_prepare_init(loop, &zl->prepare); /* neither can fail */
        uv_idle_init(loop, &zl->idle);
        zl->prepare.data = zl;
        zl->idle.data = zl;
        r = uv_prepare_start(&zl->prepare, on_prepare);
        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        /* These handles must not keep the loop running by themselves. */
        uv_unref((uv_handle_t *)&zl->prepare);
        uv_unref((uv_handle_t *)&zl->idle);
        return 0;
}

void cg_zloop_close(struct cg_zloop *zl)
{
        if (zl->closed)
                return;
        zl->closed = true;
        uv_close((uv_handle_t *)&zl->prepare, NULL);
        uv_close((uv_handle_t *)&zl->idle, NULL);
}

int cg_zsock_init(struct cg_zsock *z, struct cg_zloop *zl, void *sock, cg_zsock_cb cb, void *data,
                  struct cg_err *err)
{
        size_t size = sizeof(int);
        int fd, r;

        *z = (struct cg_zsock){ .zl = zl, .cb = cb, .data = data };
        if (zmq_getsockopt(sock, ZMQ_FD, &fd, &size) < 0)
                return cg_fail_errno(err, "ZMQ_FD");
        r = uv_poll_init(zl->loop, &z->poll, fd);
        z->poll.data = z;
        if (r >= 0) {
                z->sock = sock; /* from here on there is a handle to close */
                r = uv_poll_start(&z->poll, UV_READABLE, on_poll);
        }
        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        mark_dirty(z);
        return 0;
}

void cg_zsock_touch(struct cg_zsock *z)
{
        mark_dirty(z);
}

void cg_zsock_pause(struct cg_zsock *z, bool paused)
{
        z->paused = paused;
        if (!paused)
                mark_dirty(z);
}

void cg_zsock_close(struct cg_zsock *z)
{
        if (z->closing || !z->sock)
                return;
        CG_UNLINK(z->zl->dirty, z, next_dirty);
        z->is_dirty = false;
        z->closing = true;
        uv_close((uv_handle_t *)&z->poll, NULL);
}
