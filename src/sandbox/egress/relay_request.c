/* A connection of the relay from its first byte to the question where it may go, and the answer. */
#include "sandbox/egress/relay_int.h"

#include "sandbox/egress/http.h"

/* ---- asking */

void cg_conn_ask(struct conn *c)
{
        struct cg_egress_msg m = { .type = CG_EGRESS_ASK,
                                   .box = c->box->number,
                                   .id = c->id,
                                   .port = c->port,
                                   .kind = (uint8_t)c->kind };
        int r;

        memcpy(m.host, c->host.text, sizeof(m.host));
        /* After queued messages: cancelled questions make room for new ones. */
        r = !STAILQ_EMPTY(&c->r->unsent) ? CG_TIMEOUT : cg_egress_msg_send(c->r->chan, &m, NULL, 0, NULL);
        cg_conn_set_to_ask(c, r == CG_TIMEOUT);
        if (r < 0)
                uv_stop(&c->r->loop);
        if (r == CG_TIMEOUT)
                cg_relay_watch(c->r);
}

static void ask(struct conn *c, enum cg_egress_kind kind)
{
        c->kind = kind;
        c->state = ASKED;
        c->deadline_ms = 0; /* the decider's to keep */
        cg_conn_ask(c);
}

/* ---- the first byte, SOCKS */

static bool wait_or_end(struct conn *c, int r)
{
        if (r == CG_CLOSED || r < 0)
                cg_conn_end(c);
        return false;
}

bool cg_conn_step_first(struct conn *c)
{
        static const uint8_t socks4_refusal[8] = { 0, 0x5b };
        int r = c->in.len ? 0 : cg_conn_read(c, AHEAD_MAX);

        if (r != 0)
                return wait_or_end(c, r);
        switch (c->in.data[0]) {
        case 5:
        case 4:
                if (c->box->options.raw_socks) {
                        ask(c, CG_EGRESS_RAW_SOCKS);
                } else if (c->in.data[0] == 5) {
                        c->kind = CG_EGRESS_SOCKS;
                        c->state = SOCKS_REQUEST;
                        c->scanned = 0; /* the greeting comes first */
                } else {
                        c->kind = CG_EGRESS_SOCKS;
                        cg_relay_send(c, CG_EGRESS_NOTE, "SOCKS 4; this proxy speaks SOCKS 5");
                        cg_buf_try_add(&c->reply, socks4_refusal, sizeof(socks4_refusal), NULL);
                        cg_conn_linger(c);
                }
                return true;
        case 0x16:
                c->kind = CG_EGRESS_CONNECT;
                cg_relay_send(c, CG_EGRESS_NOTE, "TLS without CONNECT; this is a proxy");
                cg_conn_end(c);
                return false;
        default:
                if (c->box->options.raw_http)
                        ask(c, CG_EGRESS_RAW_HTTP);
                else
                        c->state = HEAD;
                return true;
        }
}

/* Reads more where the message is not whole. */
static bool socks_more(struct conn *c, int r)
{
        if (r < 0) {
                cg_conn_end(c);
                return false;
        }
        r = cg_conn_read(c, AHEAD_MAX);
        return r == 0 || wait_or_end(c, r);
}

bool cg_conn_step_socks_password(struct conn *c)
{
        static const uint8_t welcome[2] = { 1, 0 };
        size_t used;
        int r = cg_socks_password((const uint8_t *)c->in.data, c->in.len, &used, NULL);

        if (r != 0)
                return socks_more(c, r);
        /* Any name and password: only this sandbox can connect here. */
        cg_buf_consume(&c->in, used);
        cg_buf_try_add(&c->reply, welcome, sizeof(welcome), NULL);
        c->state = SOCKS_REQUEST;
        return true;
}

/* The greeting, until c->scanned is set; then the request. */
bool cg_conn_step_socks_request(struct conn *c)
{
        const uint8_t *p = (const uint8_t *)c->in.data;
        struct cg_socks_request q;
        struct cg_err err;
        size_t used;
        int r;

        if (!c->scanned) {
                enum cg_socks_method method;
                uint8_t reply[2] = { 5 };

                r = cg_socks_greeting(p, c->in.len, &used, &method, NULL);
                if (r != 0)
                        return socks_more(c, r);
                cg_buf_consume(&c->in, used);
                reply[1] = (uint8_t)method;
                cg_buf_try_add(&c->reply, reply, sizeof(reply), NULL);
                c->scanned = 1;
                if (method == CG_SOCKS_NO_METHOD)
                        cg_conn_linger(c);
                else if (method == CG_SOCKS_PASSWORD)
                        c->state = SOCKS_PASSWORD;
                return true;
        }
        r = cg_socks_request(p, c->in.len, &used, &q, &err);
        if (r != 0)
                return socks_more(c, r);
        cg_buf_consume(&c->in, used);
        if (q.code != CG_SOCKS_OK) {
                cg_relay_send(c, CG_EGRESS_NOTE, err.msg);
                cg_conn_reply_socks(c, q.code);
                cg_conn_linger(c);
                return true;
        }
        c->host = q.host;
        c->port = q.port;
        ask(c, CG_EGRESS_SOCKS);
        return true;
}

/* ---- HTTP */

bool cg_conn_step_head(struct conn *c)
{
        struct cg_http_request q;
        struct cg_err err = { .msg = "" };
        unsigned int status, host;
        size_t len;
        int r;

        /* Before a request line there may be empty lines: some clients send one after a body. */
        while (c->in.len >= 2 && c->in.data[0] == '\r' && c->in.data[1] == '\n') {
                cg_buf_consume(&c->in, 2);
                c->scanned = 0;
        }
        len = c->in.len ? cg_http_head_len(c->in.data, c->in.len, &c->scanned) : 0;
        if (!len && c->in.len < CG_HTTP_REQUEST_MAX) {
                r = cg_conn_read(c, AHEAD_MAX);
                return r == 0 || wait_or_end(c, r);
        }
        c->is_head = false;
        c->kind = CG_EGRESS_HTTP;
        if (!len || len > CG_HTTP_REQUEST_MAX) {
                cg_conn_refuse_request(c, 431, "the head of a request is at most 16 kB");
                return true;
        }
        c->scanned = 0;
        if (cg_http_request_parse(c->in.data, len, &q, &status, &err) < 0) {
                cg_conn_refuse_request(c, status, err.msg);
                return true;
        }
        host = c->box->options.require_host_match && !q.connect ? cg_http_check_host(&q) : 0;
        if (host) {
                cg_conn_refuse_request(
                        c, host, "the Host field is missing or names another host than the request line");
                return true;
        }
        c->host = q.host;
        c->port = q.port;
        c->is_head = q.is_head;
        c->keep = q.head.keep_alive && !q.connect;
        c->minor0 = q.head.minor == 0;
        c->response_started = c->request_broken = false;
        c->head.len = 0;
        if (cg_buf_try_add(&c->head, c->in.data, len, NULL) < 0) {
                cg_conn_end(c);
                return false;
        }
        cg_buf_consume(&c->in, len);
        ask(c, q.connect ? CG_EGRESS_CONNECT : CG_EGRESS_HTTP);
        return true;
}

/* ---- answers */

/*
 * Reads ahead. The end of a tunnel's client cancels the question; an HTTP client may have only
 * finished its request.
 */
bool cg_conn_step_asked(struct conn *c)
{
        int r = cg_conn_read(c, AHEAD_MAX);

        if (r < 0 || (r == CG_CLOSED && c->kind != CG_EGRESS_HTTP)) {
                cg_conn_end(c);
                return false;
        }
        return r == 0;
}

void cg_conn_on_answer(struct conn *c, const struct cg_egress_msg *m, int fd)
{
        bool proxy = m->result == CG_EGRESS_CONNECTED_PROXY;

        if (m->result != CG_EGRESS_CONNECTED && !proxy) {
                cg_conn_refuse(c, m);
                return;
        }
        c->up = fd >= 0 ? cg_conn_new_end(c, fd) : NULL;
        if (!c->up)
                cg_conn_bad_gateway(c, "out of descriptors or memory");
        else if (c->kind == CG_EGRESS_HTTP)
                cg_conn_start_exchange(c, proxy, m->extra, m->resized);
        else if (proxy)
                cg_conn_start_parent(c, m->extra);
        else
                cg_conn_start_tunnel(c);
}
