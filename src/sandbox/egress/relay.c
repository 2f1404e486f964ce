/*
 * The relay of cellgate-egress: the only part that reads a sandbox's bytes, and it can open
 * nothing. What arrives on a listener is HTTP, CONNECT or SOCKS 5 by its first byte; the decider is
 * asked where it may go, and answers with a socket. Here: sandboxes and their listeners, the
 * channel to the decider, time, the loop. What becomes of a connection: relay_int.h.
 */
#include "sandbox/egress/relay_int.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fd.h"

#define BURST 64

/* ---- listeners */

/*
 * The next connection, or -1 with errno. Where there is no network namespace, they come as
 * descriptors (broker.h).
 */
static int next_client(struct listener *l)
{
        struct cg_err err;
        size_t n = 1;
        int fd = -1;
        char byte;
        ssize_t got;

        if (!l->handed)
                return accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        got = cg_recv_fds(l->fd, &byte, 1, &fd, &n, &err);
        if (got == 1 && n == 1)
                return fd;
        errno = got < 0 ? err.sys_errno : ECONNABORTED;
        if (got == 0) {
                uv_poll_stop(&l->poll); /* the sandbox has ended */
                errno = EAGAIN;
        }
        return -1;
}

static void on_listener(uv_poll_t *h, int status, int events)
{
        struct listener *l = h->data;
        struct box *b = l->box;

        for (int i = 0; i < BURST; i++) {
                int fd = cg_relay_has_room(b) ? next_client(l) : -2;

                if (fd >= 0) {
                        cg_conn_add(b, fd);
                        continue;
                }
                /*
                 * Full, or out of descriptors: the others wait in the queue until a connection ends
                 * or time passes.
                 */
                if (fd == -2 || (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)) {
                        l->paused = true;
                        uv_poll_stop(&l->poll);
                }
                return;
        }
}

static void on_listener_closed(uv_handle_t *h)
{
        free(h->data);
}

/* ---- boxes */

static void open_box(struct relay *r, const struct cg_egress_msg *m, const int *fds, size_t n)
{
        struct box *b = calloc(1, sizeof(*b));

        if (b) {
                b->r = r;
                b->number = m->box;
                b->options = *m;
                LIST_INSERT_HEAD(&r->boxes, b, entry);
        }
        for (size_t i = 0; i < n; i++) {
                struct listener *l = b && b->n_listeners < CG_EGRESS_LISTENERS_MAX ? calloc(1, sizeof(*l))
                                                                                   : NULL;
                socklen_t len = sizeof(int);
                int listening = 0;

                if (!l || uv_poll_init(&r->loop, &l->poll, fds[i]) < 0) {
                        close(fds[i]);
                        free(l);
                        continue;
                }
                l->poll.data = l;
                l->box = b;
                l->fd = fds[i];
                l->handed = getsockopt(l->fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || !listening;
                b->listeners[b->n_listeners++] = l;
                uv_poll_start(&l->poll, UV_READABLE, on_listener);
        }
}

static void close_box(struct relay *r, struct box *b)
{
        for (size_t i = 0; i < b->n_listeners; i++) {
                uv_close((uv_handle_t *)&b->listeners[i]->poll, on_listener_closed);
                close(b->listeners[i]->fd);
        }
        b->n_listeners = 0;
        for (struct conn *c = LIST_FIRST(&r->conns), *next; c; c = next) {
                next = LIST_NEXT(c, entry);
                if (c->box == b)
                        cg_conn_abort(c);
        }
        LIST_REMOVE(b, entry);
        free(b);
}

/* ---- the decider */

static void on_message(struct relay *r, const struct cg_egress_msg *m, int *fds, size_t n)
{
        struct conn *c;
        struct box *b;

        LIST_FOREACH(b, &r->boxes, entry)
                if (b->number == m->box)
                        break;
        switch (m->type) {
        case CG_EGRESS_BOX_OPEN:
                open_box(r, m, fds, n);
                return;
        case CG_EGRESS_BOX_OPTIONS:
                if (b) {
                        b->options = *m;
                        cg_relay_resume(b);
                }
                return;
        case CG_EGRESS_BOX_CLOSE:
                if (b)
                        close_box(r, b);
                return;
        case CG_EGRESS_ANSWER:
                c = cg_conn_find(r, m->box, m->id);
                if (c) {
                        uint32_t id = c->id;

                        cg_conn_on_answer(c, m, n ? fds[0] : -1);
                        if (cg_conn_is_alive(r, c, id))
                                cg_conn_run(c);
                        return;
                }
                break;
        default:
                break;
        }
        for (size_t i = 0; i < n; i++)
                close(fds[i]);
}

static void on_chan(uv_poll_t *h, int status, int events)
{
        struct relay *r = h->data;
        struct cg_err err;
        struct cg_egress_msg m;
        int received = status < 0 ? CG_CLOSED : 0;

        if (received == 0 && (events & UV_WRITABLE)) {
                struct conn *c;

                cg_relay_send_unsent(r);
                LIST_FOREACH(c, &r->conns, entry) {
                        if (c->to_ask)
                                cg_conn_ask(c);
                        if (c->to_ask || !r->n_to_ask)
                                break;
                }
        }
        for (int i = 0; i < BURST && received == 0; i++) {
                int fds[CG_EGRESS_LISTENERS_MAX];
                size_t n = CG_EGRESS_LISTENERS_MAX;

                received = cg_egress_msg_recv(r->chan, &m, fds, &n, &err);
                if (received == 0)
                        on_message(r, &m, fds, n);
        }
        /* Without the decider nothing goes on. */
        if (received == CG_CLOSED || received < 0) {
                r->status = received < 0;
                uv_stop(&r->loop);
                return;
        }
        cg_relay_watch(r);
}

/* ---- time */

static void on_tick(uv_timer_t *t)
{
        struct relay *r = t->data;
        int64_t now = cg_now_ms();
        struct box *b;

        for (struct conn *c = LIST_FIRST(&r->conns), *next; c; c = next) {
                next = LIST_NEXT(c, entry);
                if (c->deadline_ms && now >= c->deadline_ms)
                        cg_conn_on_deadline(c);
        }
        LIST_FOREACH(b, &r->boxes, entry)
                cg_relay_resume(b);
        if (LIST_EMPTY(&r->conns))
                uv_timer_stop(t);
}

static void on_gather(uv_timer_t *t)
{
        struct relay *r = t->data;

        for (struct conn *c = LIST_FIRST(&r->conns), *next; c; c = next) {
                next = LIST_NEXT(c, entry);
                if (c->state == TUNNEL && c->gather == GATHERING) {
                        c->gather = GATHERED;
                        cg_conn_run(c);
                }
        }
}

/* ---- the beginning */

int cg_relay_run(int chan)
{
        static const struct cg_egress_msg ready = { .type = CG_EGRESS_READY };
        struct relay *r = calloc(1, sizeof(*r));
        struct cg_err err = { .msg = "" };
        struct rlimit l;
        int status = 1;

        if (r)
                r->common.scratch = malloc(CG_FLOW_CHUNK);
        if (!r || !r->common.scratch || uv_loop_init(&r->loop) < 0 ||
            uv_poll_init(&r->loop, &r->chan_poll, chan) < 0 || uv_timer_init(&r->loop, &r->tick) < 0 ||
            uv_timer_init(&r->loop, &r->gather) < 0)
                goto out;
        STAILQ_INIT(&r->unsent);
        r->chan = chan;
        r->tick.timer_cb = on_tick;
        r->gather.timer_cb = on_gather;
        r->on_chan = on_chan;
        r->on_listener = on_listener;
        r->run = cg_conn_run;
        r->chan_poll.data = r->tick.data = r->gather.data = r;
        if (cg_egress_lock_part(CG_EGRESS_RELAY, &err) < 0 ||
            cg_egress_msg_send(chan, &ready, NULL, 0, &err) != 0) {
                dprintf(STDERR_FILENO, "cellgate-egress: relay: %s\n", err.msg);
                goto out;
        }
        /* Half of the descriptors are for pipes, two each. */
        if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur > 4096)
                r->common.max_pipes = 1024;
        else
                r->common.max_pipes = (int)l.rlim_cur / 4;
        cg_relay_watch(r);
        uv_run(&r->loop, UV_RUN_DEFAULT);
        status = r->status;
out:
        if (r)
                free(r->common.scratch);
        free(r);
        return status;
}
