/* Tunnels of the relay: bytes in both directions, unread; to the host or through another proxy. */
#include "sandbox/egress/relay_int.h"

#include "sandbox/egress/http.h"

#define GATHER_MS 2

void cg_conn_start_tunnel(struct conn *c)
{
        cg_flow_init(&c->out, c->client->fd, c->up->fd, CG_FLOW_ALL, &c->in);
        cg_flow_init(&c->back, c->up->fd, c->client->fd, CG_FLOW_ALL, &c->up_in);
        c->flowing = true;
        if (c->kind == CG_EGRESS_CONNECT)
                cg_buf_try_adds(&c->reply, "HTTP/1.1 200 Connection Established\r\n\r\n", NULL);
        else if (c->kind == CG_EGRESS_SOCKS)
                cg_conn_reply_socks(c, CG_SOCKS_OK);
        cg_buf_fini(&c->head);
        c->state = TUNNEL;
        c->gather = UNDECIDED;
}

/*
 * Many servers write the head of a response and its body in two pieces, the second of them a moment
 * later. Simple clients read once and take the result for the whole; most proxies deliver it so. If
 * the first bytes that come back are a head alone, they wait for the next, or for GATHER_MS. 1:
 * they still wait; 0; -1: the connection is broken.
 */
static int gathers(struct conn *c)
{
        const struct cg_buf *b = &c->up_in;
        bool alone; /* the head of an HTTP response and nothing after it */
        int r;

        if (c->gather == GATHERED)
                return 0;
        r = cg_conn_read_up(c);
        if (r == CG_E_SYS)
                return -1;
        if (r == CG_TIMEOUT && !b->len)
                return 1; /* nothing yet */
        alone = b->len > 16 && b->len < CG_HTTP_REQUEST_MAX && memcmp(b->data, "HTTP/1.", 7) == 0 &&
                memcmp(b->data + b->len - 4, "\r\n\r\n", 4) == 0;
        if (r < 0 || r == CG_CLOSED || !alone) {
                c->gather = GATHERED;
                return 0;
        }
        if (c->gather == UNDECIDED) {
                c->gather = GATHERING;
                if (!uv_is_active((uv_handle_t *)&c->r->gather))
                        uv_timer_start(&c->r->gather, c->r->gather.timer_cb, GATHER_MS, 0);
        }
        return 1;
}

bool cg_conn_step_tunnel(struct conn *c)
{
        struct cg_err err;
        bool moved = false;
        int out, back, wait;

        if (cg_conn_flush(c) < 0) {
                cg_conn_abort(c);
                return false;
        }
        out = cg_flow_run(&c->out, &c->r->common, &moved, &err);
        c->back.want_read = !c->reply.len;
        wait = c->reply.len ? 1 : gathers(c);
        back = wait == 0 ? cg_flow_run(&c->back, &c->r->common, &moved, &err) : 0;
        if (out < 0 || wait < 0 || back < 0) {
                cg_conn_abort(c);
                return false;
        }
        c->out.want_read |= out == CG_TIMEOUT;
        c->back.want_read |= back == CG_TIMEOUT;
        if (moved || !c->deadline_ms)
                cg_conn_active(c);
        if (c->out.done && c->back.done)
                cg_conn_end(c);
        return false;
}

/* ---- another proxy on the way */

void cg_conn_start_parent(struct conn *c, const char *auth)
{
        char to[CG_AUTHORITY_MAX];

        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        /* The request is a flow of its own, without a source. */
        cg_flow_init(&c->out, c->client->fd, c->up->fd, CG_FLOW_COUNTED, &c->in);
        cg_flow_init(&c->back, c->up->fd, c->client->fd, CG_FLOW_COUNTED, &c->up_in);
        c->flowing = true;
        cg_buf_try_addf(&c->out.out, NULL, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to);
        if (auth[0])
                cg_buf_try_addf(&c->out.out, NULL, "Proxy-Authorization: %s\r\n", auth);
        cg_buf_try_adds(&c->out.out, "\r\n", NULL);
        c->state = PARENT;
        c->scanned = 0;
        c->deadline_ms = cg_now_ms() + c->box->options.head_ms;
}

bool cg_conn_step_parent(struct conn *c)
{
        struct cg_http_response resp;
        struct cg_err err = { .msg = "" };
        bool moved = false;
        size_t len;
        int r;

        if (cg_flow_run(&c->out, &c->r->common, &moved, &err) < 0) {
                cg_conn_bad_gateway(c, "the parent proxy closed the connection");
                return true;
        }
        r = cg_conn_read_up(c);
        len = c->up_in.len ? cg_http_head_len(c->up_in.data, c->up_in.len, &c->scanned) : 0;
        if (!len && (r == CG_CLOSED || r < 0)) {
                cg_conn_bad_gateway(c, "the parent proxy closed the connection");
                return true;
        }
        if (!len)
                return r == 0;
        if (cg_http_response_parse(c->up_in.data, len, false, &resp, &err) < 0 || resp.status < 200 ||
            resp.status > 299) {
                cg_conn_bad_gateway(c, err.msg[0] ? err.msg : "the parent proxy refused the connection");
                return true;
        }
        cg_buf_consume(&c->up_in, len);
        cg_conn_stop_flows(c);
        cg_conn_start_tunnel(c);
        return true;
}
