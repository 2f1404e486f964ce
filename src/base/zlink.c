/* Connections driven by libuv's loop, see zlink.h. Linked into supervisor and tool server. */
#include "base/zlink.h"

#include "base/fd.h"
#include "base/json.h"

/* Reads and messages of one link before the others are served. */
#define BURST 32

static struct cg_zlink *zlink_of(struct cg_zconn *c)
{
        return (struct cg_zlink *)(void *)((char *)c - offsetof(struct cg_zlink, conn));
}

/* ---- events of the loop */

static void on_poll(uv_poll_t *h, int status, int events);
static void on_idle(uv_idle_t *h);

static void update(struct cg_zlink *z)
{
        bool reading = !z->paused && !z->conn.ended && !cg_zconn_holds(&z->conn);
        int events = 0;

        if (z->closing)
                return;
        if (reading && !z->broken)
                events |= UV_READABLE;
        if (cg_zconn_wants_out(&z->conn) && !z->broken)
                events |= UV_WRITABLE;
        if (events != z->events) {
                z->events = events;
                if (events)
                        uv_poll_start(&z->poll, events, on_poll);
                else
                        uv_poll_stop(&z->poll);
        }
        if (reading && (z->conn.again || z->broken))
                uv_idle_start(&z->idle, on_idle);
        else
                uv_idle_stop(&z->idle);
}

static void serve(struct cg_zlink *z)
{
        if (z->closing)
                return;
        cg_zconn_read(&z->conn, BURST, true);
        cg_zconn_opened(&z->conn);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
        struct cg_zlink *z = h->data;

        if (status < 0) {
                /*
                 * libuv has stopped polling because the peer closed the connection. Its last
                 * messages can still be read, and then the end of file.
                 */
                z->broken = true;
                z->conn.deaf = true;
                z->events = 0;
                cg_zconn_drop(&z->conn);
        }
        if (events & UV_WRITABLE)
                cg_zconn_flush(&z->conn);
        if (events & UV_READABLE)
                serve(z);
        update(z);
}

static void on_idle(uv_idle_t *h)
{
        struct cg_zlink *z = h->data;

        serve(z);
        update(z);
}

static void on_conn_msg(struct cg_zconn *c, struct cg_msg *m)
{
        struct cg_zlink *z = zlink_of(c);

        z->on_msg(z, m);
}

static void on_conn_end(struct cg_zconn *c, const struct cg_err *err)
{
        struct cg_zlink *z = zlink_of(c);

        z->on_end(z, err);
}

/* ---- for others */

int cg_zlink_take(struct cg_zlink *z, uv_loop_t *loop, int fd, const struct cg_wire *wire, unsigned sender,
                  size_t max, cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data, struct cg_err *err)
{
        static const struct cg_zconn_ops ops = { on_conn_msg, on_conn_end };
        int r;

        *z = (struct cg_zlink){ .on_msg = on_msg, .on_end = on_end, .data = data };
        r = cg_zconn_init(&z->conn, fd, wire, sender, max, &ops, err);
        if (r < 0)
                return r;
        r = uv_poll_init(loop, &z->poll, fd);
        if (r < 0) {
                cg_zconn_fini(&z->conn);
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        }
        uv_idle_init(loop, &z->idle);
        z->handles = 2;
        z->poll.data = z->idle.data = z;
        cg_zconn_flush(&z->conn);
        update(z);
        return 0;
}

int cg_zlink_open(struct cg_zlink *z, uv_loop_t *loop, const char *path, const struct cg_wire *wire,
                  unsigned sender, size_t max, cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data,
                  struct cg_err *err)
{
        int fd, r = cg_connect_unix_now(path, &fd, err);

        if (r < 0)
                return r;
        return cg_zlink_take(z, loop, fd, wire, sender, max, on_msg, on_end, data, err);
}

/* The first message in the queue is written at once; behind others it waits for its turn. */
static int sent(struct cg_zlink *z, bool first, int r)
{
        if (r == 0 && first)
                cg_zconn_flush(&z->conn);
        if (r == 0)
                update(z);
        return r;
}

static int not_closing(const struct cg_zlink *z, struct cg_err *err)
{
        if (z->closing)
                return cg_fail(err, CG_E_CLOSED, "the connection is closed");
        return 0;
}

int cg_zlink_send(struct cg_zlink *z, const struct cg_out *o, struct cg_err *err)
{
        bool first = !z->conn.first;

        if (not_closing(z, err) < 0)
                return CG_E_CLOSED;
        return sent(z, first, cg_zconn_put(&z->conn, o, NULL, NULL, err));
}

int cg_zlink_send_json(struct cg_zlink *z, const struct cg_out *o, json_t *body, struct cg_err *err)
{
        struct cg_out out = *o;
        cg_auto_free char *text = cg_json_text(body, &out.body_len);

        json_decref(body);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "message");
        out.body = text;
        return cg_zlink_send(z, &out, err);
}

int cg_zlink_forward(struct cg_zlink *z, const struct cg_out *o, struct cg_msg *m, struct cg_err *err)
{
        bool first = !z->conn.first;

        if (not_closing(z, err) < 0)
                return CG_E_CLOSED;
        return sent(z, first, cg_zconn_put_frames(&z->conn, o, m, err));
}

void cg_zlink_pause(struct cg_zlink *z, bool paused)
{
        z->paused = paused;
        if (!z->catching_up && !z->closing)
                z->conn.paused = paused;
        update(z);
}

void cg_zlink_catch_up(struct cg_zlink *z)
{
        if (z->closing || z->conn.serving)
                return;
        z->catching_up = true;
        z->conn.paused = false;
        cg_zconn_catch_up(&z->conn);
        cg_zconn_opened(&z->conn);
        z->catching_up = false;
        if (!z->closing)
                z->conn.paused = z->paused;
        update(z);
}

static void on_handle_closed(uv_handle_t *h)
{
        struct cg_zlink *z = h->data;

        if (--z->handles)
                return;
        cg_zconn_fini(&z->conn);
        if (z->on_closed)
                z->on_closed(z);
}

void cg_zlink_close(struct cg_zlink *z, void (*closed)(struct cg_zlink *z))
{
        if (z->closing)
                return;
        z->closing = true;
        z->conn.paused = true; /* no further messages are delivered, also when called from a callback */
        z->on_closed = closed;
        cg_zconn_drop(&z->conn);
        uv_close((uv_handle_t *)&z->poll, on_handle_closed);
        uv_close((uv_handle_t *)&z->idle, on_handle_closed);
}
