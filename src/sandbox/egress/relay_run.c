/* Runs the steps of a connection, updates the events that it waits for, handles its deadline. */
#include "sandbox/egress/relay_int.h"

#include <poll.h>
#include <sys/socket.h>

static bool step_linger(struct conn *c)
{
        ssize_t n;

        if (cg_conn_flush(c) < 0) {
                cg_conn_end(c);
                return false;
        }
        if (c->reply.len)
                return true;
        shutdown(c->client->fd, SHUT_WR);
        /* One read at a time, so that nobody can be busy here for ever. */
        n = c->client_ended ? 0 : recv(c->client->fd, c->r->common.scratch, CG_FLOW_CHUNK, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                cg_conn_end(c);
                return false;
        }
        return true;
}

/* Updates the events of both sockets, by the state. */
static void watch(struct conn *c)
{
        int client = 0, up = 0;

        if (c->reply.len)
                client |= UV_WRITABLE;
        switch (c->state) {
        case ASKED:
                if (!c->client_ended && c->in.len < AHEAD_MAX)
                        client |= UV_READABLE;
                break;
        case TUNNEL:
        case EXCHANGE:
                if (c->out.want_read)
                        client |= UV_READABLE;
                if (c->out.want_write)
                        up |= UV_WRITABLE;
                if (c->back.want_read || (c->state == EXCHANGE && !c->response_started))
                        up |= UV_READABLE;
                if (c->back.want_write)
                        client |= UV_WRITABLE;
                /* A client that has gone must not keep a server busy. */
                if (c->state == EXCHANGE && !(client & UV_READABLE) && !c->half_closed)
                        client |= UV_DISCONNECT;
                break;
        case PARENT:
                up |= UV_READABLE;
                if (c->out.want_write)
                        up |= UV_WRITABLE;
                break;
        default:
                if (!c->client_ended)
                        client |= UV_READABLE;
        }
        cg_endpoint_watch(c->client, client);
        cg_endpoint_watch(c->up, up);
}

void cg_conn_run(struct conn *c)
{
        struct relay *r = c->r;
        static bool (*const steps[])(struct conn * c) = {
                [FIRST] = cg_conn_step_first,
                [SOCKS_PASSWORD] = cg_conn_step_socks_password,
                [SOCKS_REQUEST] = cg_conn_step_socks_request,
                [HEAD] = cg_conn_step_head,
                [ASKED] = cg_conn_step_asked,
                [PARENT] = cg_conn_step_parent,
                [TUNNEL] = cg_conn_step_tunnel,
                [EXCHANGE] = cg_conn_step_exchange,
                [LINGER] = NULL,
        };
        struct pollfd p = { .fd = c->client->fd };
        uint32_t id = c->id;

        if (c->half_closed && c->state == EXCHANGE && poll(&p, 1, 0) == 1 &&
            (p.revents & (POLLHUP | POLLERR))) {
                cg_conn_end(c);
                return;
        }
        while (steps[c->state] && steps[c->state](c))
                ;
        if (!cg_conn_is_alive(r, c, id))
                return;
        if (c->state == LINGER ? !step_linger(c) : cg_conn_flush(c) < 0) {
                if (cg_conn_is_alive(r, c, id))
                        cg_conn_end(c);
                return;
        }
        watch(c);
}

void cg_conn_on_deadline(struct conn *c)
{
        if (c->state == HEAD && c->in.len) {
                cg_conn_refuse_request(c, 400, "the request took too long");
                cg_conn_run(c);
        } else if (c->state == EXCHANGE && !c->response_started) {
                cg_conn_bad_gateway(c, "the server did not respond in time");
                cg_conn_run(c);
        } else if (c->state == PARENT) {
                cg_conn_bad_gateway(c, "the parent proxy did not respond in time");
                cg_conn_run(c);
        } else if (c->state == LINGER) {
                cg_conn_end(c);
        } else {
                cg_conn_abort(c);
        }
}
