/* An HTTP exchange of the relay: one request, written anew, and its response; then the next. */
#include "sandbox/egress/relay_int.h"

#include "sandbox/egress/http.h"

#define NEXT_REQUEST_MS 60000 /* a connection without a request under way */
#define INTERIM_MAX     16    /* responses of one exchange before the one that counts */

void cg_conn_start_exchange(struct conn *c, bool to_proxy, const char *auth, bool resized)
{
        struct cg_http_request q;
        enum cg_flow_mode mode;
        unsigned int status;

        /* Cannot fail: the same bytes were parsed before the question. */
        if (cg_http_request_parse(c->head.data, c->head.len, &q, &status, NULL) < 0) {
                cg_conn_end(c);
                return;
        }
        mode = q.head.framing == CG_HTTP_CHUNKED ? CG_FLOW_CHUNKED : CG_FLOW_COUNTED;
        cg_flow_init(&c->out, c->client->fd, c->up->fd, mode, &c->in);
        cg_flow_init(&c->back, c->up->fd, c->client->fd, CG_FLOW_COUNTED, &c->up_in);
        c->flowing = true;
        c->out.left = q.head.length;
        if (resized && q.head.framing == CG_HTTP_LENGTH && q.head.length) {
                c->out.wrap = true;
                q.head.framing = CG_HTTP_CHUNKED;
        }
        c->interim = 0;
        c->state = EXCHANGE;
        c->scanned = 0;
        cg_conn_active(c);
        if (cg_http_request_write(&q, to_proxy, cg_or_null(auth), &c->out.out, NULL) < 0) {
                cg_conn_end(c);
                return;
        }
        cg_buf_fini(&c->head);
}

/* Takes an interim response, or the head of the final one. True: go on; false: wait. */
static bool take_response(struct conn *c)
{
        struct cg_http_response resp;
        struct cg_http_head *h = &resp.head;
        struct cg_err err = { .msg = "" };
        int r = cg_conn_read_up(c);
        size_t len = c->up_in.len ? cg_http_head_len(c->up_in.data, c->up_in.len, &c->scanned) : 0;
        bool chunked;

        if (len == 0) {
                if (r == 0 || r == CG_TIMEOUT)
                        return r == 0;
                cg_conn_bad_gateway(c, r == CG_E_LIMIT
                                               ? "the head of the response is too long"
                                               : "the server closed the connection without a response");
                return true;
        }
        c->scanned = 0;
        if (cg_http_response_parse(c->up_in.data, len, c->is_head, &resp, &err) < 0 || resp.status == 101) {
                cg_conn_bad_gateway(c, err.msg[0] ? err.msg : "the server changed the protocol");
                return true;
        }
        if (resp.status < 200) {
                if (++c->interim <= INTERIM_MAX &&
                    (c->minor0 || cg_http_response_write(&resp, false, true, &c->reply, NULL) == 0)) {
                        cg_buf_consume(&c->up_in, len);
                        return true;
                }
                if (cg_conn_flush(c) < 0 || c->reply.len) {
                        cg_conn_abort(c);
                        return false;
                }
                cg_conn_bad_gateway(c, "the server sends interim responses only");
                return true;
        }

        chunked = h->framing == CG_HTTP_CHUNKED && !c->minor0;
        cg_http_strip(h, c->box->options.text);
        /*
         * A client that still sends a body, or cannot see the end of this one, needs another
         * connection for its next request.
         */
        c->keep = c->keep && c->out.done && h->framing != CG_HTTP_UNTIL_END &&
                  (chunked || h->framing != CG_HTTP_CHUNKED);
        if (h->framing == CG_HTTP_CHUNKED) {
                c->back.mode = CG_FLOW_CHUNKED;
                c->back.plain = !chunked;
                if (!chunked)
                        h->framing = CG_HTTP_UNTIL_END;
        } else if (h->framing == CG_HTTP_UNTIL_END) {
                c->back.mode = CG_FLOW_ALL;
        } else {
                c->back.left = h->length;
        }
        cg_http_response_write(&resp, chunked, c->keep, &c->back.out, NULL);
        c->response_started = true;
        if (c->reply.len) { /* interim responses come first */
                cg_buf_try_add(&c->reply, c->back.out.data, c->back.out.len, NULL);
                c->back.out.len = 0;
                cg_buf_try_add(&c->back.out, c->reply.data, c->reply.len, NULL);
                c->reply.len = 0;
        }
        cg_buf_consume(&c->up_in, len);
        return true;
}

bool cg_conn_step_exchange(struct conn *c)
{
        struct cg_err err;
        bool moved = false;
        int r;

        if (!c->request_broken && !c->out.done) {
                r = cg_flow_run(&c->out, &c->r->common, &moved, &err);
                /* The client's body is malformed: the server must not take a part for the whole. */
                if (r == CG_E_PROTO) {
                        cg_conn_abort(c);
                        return false;
                }
                /* A server may answer and close without having read it all: its answer counts. */
                c->request_broken = r < 0;
                c->out.want_read |= r == CG_TIMEOUT;
                if (c->request_broken)
                        c->out.want_read = c->out.want_write = c->keep = false;
        }
        if (cg_conn_flush(c) < 0) {
                cg_conn_end(c);
                return false;
        }
        if (!c->response_started) {
                if (moved)
                        cg_conn_active(c);
                return take_response(c);
        }
        r = cg_flow_run(&c->back, &c->r->common, &moved, &err);
        if (r < 0) {
                cg_conn_abort(c);
                return false;
        }
        c->back.want_read |= r == CG_TIMEOUT;
        if (moved)
                cg_conn_active(c);
        if (!c->back.done)
                return false;
        if (!c->keep) {
                cg_conn_linger(c);
                return true;
        }
        /* The next request. */
        cg_conn_stop_flows(c);
        c->up = cg_endpoint_close(c->up);
        cg_buf_fini(&c->up_in);
        c->state = HEAD;
        c->scanned = 0;
        c->deadline_ms = cg_now_ms() + (c->in.len ? (int64_t)c->box->options.head_ms : NEXT_REQUEST_MS);
        return true;
}
