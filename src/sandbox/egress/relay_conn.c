/*
 * A connection of the relay: its two sockets and their place in the loop, what is read and written
 * outside of a flow, and its end.
 */
#include "sandbox/egress/relay_int.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define TICK_MS   100
#define LINGER_MS 2000 /* for a client to read a refusal while it still sends */
#define REPLY_MAX (16u << 10)

/* ---- ends */

static void on_end(uv_poll_t *h, int status, int events)
{
        struct cg_endpoint *e = h->data;
        struct conn *c = e->owner;

        if (!c)
                return;
        if (status < 0)
                e->events = 0; /* a reset: the next read or write fails with its error */
        if ((status < 0 || (events & UV_DISCONNECT)) && e == c->client)
                c->half_closed = true;
        c->r->run(c);
}

struct cg_endpoint *cg_conn_new_end(struct conn *c, int fd)
{
        static const int on = 1;
        struct cg_endpoint *e = cg_endpoint_new(&c->r->loop, fd, c, on_end);

        if (e)
                setsockopt(e->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return e;
}

/* ---- connections */

void cg_conn_stop_flows(struct conn *c)
{
        if (!c->flowing)
                return;
        cg_flow_fini(&c->out, &c->r->common);
        cg_flow_fini(&c->back, &c->r->common);
        c->flowing = false;
}

void cg_conn_set_to_ask(struct conn *c, bool yes)
{
        if (c->to_ask != yes)
                c->r->n_to_ask += yes ? 1 : -1u;
        c->to_ask = yes;
}

void cg_conn_end(struct conn *c)
{
        struct box *b = c->box;

        if (c->state == ASKED && !c->to_ask)
                cg_relay_send(c, CG_EGRESS_CANCEL, "");
        cg_conn_set_to_ask(c, false);
        cg_conn_stop_flows(c);
        c->client = cg_endpoint_close(c->client);
        c->up = cg_endpoint_close(c->up);
        cg_buf_fini(&c->in);
        cg_buf_fini(&c->up_in);
        cg_buf_fini(&c->reply);
        cg_buf_fini(&c->head);
        LIST_REMOVE(c, hash);
        LIST_REMOVE(c, entry);
        free(c);
        b->n_conns--;
        cg_relay_resume(b);
}

void cg_conn_abort(struct conn *c)
{
        static const struct linger at_once = { .l_onoff = 1 };

        if (c->client)
                setsockopt(c->client->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        cg_conn_end(c);
}

void cg_conn_add(struct box *b, int fd)
{
        struct relay *r = b->r;
        struct conn *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->r = r;
        c->box = b;
        cg_buf_init(&c->in, AHEAD_MAX + CG_FLOW_CHUNK);
        cg_buf_init(&c->up_in, CG_HTTP_RESPONSE_MAX + CG_FLOW_CHUNK);
        cg_buf_init(&c->reply, REPLY_MAX);
        cg_buf_init(&c->head, CG_HTTP_REQUEST_MAX);
        c->id = ++r->next_id;
        LIST_INSERT_HEAD(&r->conns, c, entry);
        LIST_INSERT_HEAD(&r->by_id[c->id % HASH], c, hash);
        if (!uv_is_active((uv_handle_t *)&r->tick))
                uv_timer_start(&r->tick, r->tick.timer_cb, TICK_MS, TICK_MS);
        b->n_conns++;
        c->client = cg_conn_new_end(c, fd);
        c->deadline_ms = cg_now_ms() + b->options.head_ms;
        if (!c->client)
                cg_conn_end(c);
        else
                c->r->run(c);
}

struct conn *cg_conn_find(struct relay *r, uint32_t box, uint32_t id)
{
        struct conn *c;

        LIST_FOREACH(c, &r->by_id[id % HASH], hash)
                if (c->id == id && c->box->number == box)
                        return c->state == ASKED && !c->to_ask ? c : NULL;
        return NULL;
}

bool cg_conn_is_alive(struct relay *r, const struct conn *c, uint32_t id)
{
        const struct conn *x;

        LIST_FOREACH(x, &r->by_id[id % HASH], hash)
                if (x == c && x->id == id)
                        return true;
        return false;
}

/* ---- reading and replying */

int cg_conn_read(struct conn *c, size_t limit)
{
        ssize_t n;

        if (c->client_ended)
                return CG_CLOSED;
        if (c->in.len >= limit)
                return CG_TIMEOUT;
        do
                n = recv(c->client->fd, c->r->common.scratch, CG_MIN(limit - c->in.len, CG_FLOW_CHUNK), 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n < 0)
                return CG_E_SYS;
        if (n == 0) {
                c->client_ended = true;
                return CG_CLOSED;
        }
        return cg_buf_try_add(&c->in, c->r->common.scratch, (size_t)n, NULL);
}

int cg_conn_read_up(struct conn *c)
{
        ssize_t n;

        if (c->up_in.len >= CG_HTTP_RESPONSE_MAX)
                return CG_E_LIMIT;
        do
                n = recv(c->up->fd, c->r->common.scratch, CG_FLOW_CHUNK, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n <= 0)
                return n == 0 ? CG_CLOSED : CG_E_SYS;
        return cg_buf_try_add(&c->up_in, c->r->common.scratch, (size_t)n, NULL);
}

int cg_conn_flush(struct conn *c)
{
        int r = cg_flow_write(c->client->fd, &c->reply, NULL);

        return r == CG_TIMEOUT ? 0 : r;
}

void cg_conn_active(struct conn *c)
{
        c->deadline_ms = (int64_t)uv_now(&c->r->loop) + c->box->options.idle_ms;
}

void cg_conn_linger(struct conn *c)
{
        cg_conn_stop_flows(c);
        c->up = cg_endpoint_close(c->up);
        cg_buf_fini(&c->in);
        c->state = LINGER;
        c->deadline_ms = cg_now_ms() + LINGER_MS;
}
