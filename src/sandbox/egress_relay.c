/*
 * The relay of cellgate-egress: the only part that reads a sandbox's bytes, and it can open nothing. What arrives on a
 * listener is HTTP, CONNECT or SOCKS 5 by its first byte; the decider is asked where it may go, and answers with a socket.
 *
 * A connection is a list of steps, each of which goes on, waits for an event, or ends it:
 *      FIRST -> SOCKS_* or HEAD -> ASKED -> (PARENT) -> TUNNEL or EXCHANGE (-> HEAD again) -> LINGER
 */
#include "sandbox/egress_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/util.h"
#include "sandbox/egress_flow.h"
#include "sandbox/http.h"
#include "sandbox/socks.h"

#define TICK_MS 100
#define GATHER_MS 2
#define LINGER_MS 2000           /* for a client to read a refusal while it still sends */
#define NEXT_REQUEST_MS 60000    /* a connection without a request under way */
#define AHEAD_MAX (64u << 10)    /* what a client may send before it has an answer: srt's */
#define REPLY_MAX (16u << 10)
#define INTERIM_MAX 16           /* responses of one exchange before the one that counts */
#define HASH 1024
#define BURST 64

enum state { FIRST, SOCKS_PASSWORD, SOCKS_REQUEST, HEAD, ASKED, PARENT, TUNNEL, EXCHANGE, LINGER };

struct relay;
struct conn;

/* A socket and its place in the loop. Freed by the loop, later than the connection. */
struct end {
        uv_poll_t poll;
        struct conn *conn;
        int fd;
        int events;
};

struct listener {
        bool handed; /* not a listener: connections come through it as descriptors, one a datagram */
        uv_poll_t poll;
        struct box *box;
        int fd;
        bool paused;
};

struct box {
        struct box *next;
        struct relay *r;
        uint32_t number;
        struct eg_msg options; /* the decider's message */
        struct listener *listeners[EG_LISTENERS_MAX];
        size_t n_listeners, n_conns;
};

struct conn {
        struct conn *next, **at; /* all */
        struct conn *hash_next;
        struct relay *r;
        struct box *box;
        uint32_t id;
        enum state state;
        enum eg_kind kind;
        bool to_ask;             /* the question is not sent yet */
        bool client_ended;       /* its end was seen: nothing more is read */
        bool half_closed;        /* seen while nothing was read: it may still want the answer */
        int64_t deadline_ms;     /* 0: none */
        struct end *client, *up;
        struct cg_buf in, up_in; /* read, not used */
        struct cg_buf reply;     /* to the client, outside of a flow */
        struct cg_buf head;      /* of the request under way */
        struct cg_host host;
        uint16_t port;
        /* EXCHANGE */
        bool keep, is_head, minor0, response_started, request_broken;
        unsigned int interim;
        size_t scanned;
        struct eg_flow out, back;
        bool flowing;            /* the flows are set up */
        enum { UNDECIDED, GATHERING, GATHERED } gather; /* TUNNEL: the first bytes that come back */
};

struct relay {
        uv_loop_t loop;
        uv_poll_t chan_poll;
        int chan_events;
        uv_timer_t tick, gather;
        int chan;
        struct box *boxes;
        struct conn *conns;
        struct conn *by_id[HASH];
        uint32_t next_id;
        size_t n_to_ask;
        struct eg_flow_common common;
        int status;
};

static void run(struct conn *c);
static void on_listener(uv_poll_t *h, int status, int events);
static void watch_chan(struct relay *r);

/* ---- ends */

static void on_end_closed(uv_handle_t *h)
{
        free(h->data);
}

static struct end *close_end(struct end *e)
{
        if (!e)
                return NULL;
        e->conn = NULL;
        /* Out of the loop first: a descriptor that is closed while it is watched would still be watched. */
        uv_close((uv_handle_t *)&e->poll, on_end_closed);
        close(e->fd);
        return NULL;
}

static void on_end(uv_poll_t *h, int status, int events)
{
        struct end *e = h->data;
        struct conn *c = e->conn;

        if (!c)
                return;
        if (status < 0)
                e->events = 0; /* a reset: the loop has let go of it, and a read or write will say what it is */
        if ((status < 0 || (events & UV_DISCONNECT)) && e == c->client)
                c->half_closed = true;
        run(c);
}

/* Takes @fd, also when it fails. */
static struct end *new_end(struct conn *c, int fd)
{
        static const int on = 1;
        struct end *e = calloc(1, sizeof(*e));

        if (!e || uv_poll_init(&c->r->loop, &e->poll, fd) < 0) {
                close(fd);
                free(e);
                return NULL;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        e->poll.data = e;
        e->conn = c;
        e->fd = fd;
        return e;
}

static void watch_end(struct end *e, int events)
{
        if (!e || e->events == events)
                return;
        e->events = events;
        if (events)
                uv_poll_start(&e->poll, events, on_end);
        else
                uv_poll_stop(&e->poll);
}

/* ---- connections */

static void resume_listeners(struct box *b)
{
        for (size_t i = 0; i < b->n_listeners; i++) {
                if (b->listeners[i]->paused && b->n_conns < b->options.connections) {
                        b->listeners[i]->paused = false;
                        uv_poll_start(&b->listeners[i]->poll, UV_READABLE, on_listener);
                }
        }
}

static void forget_id(struct conn *c)
{
        struct conn **p = &c->r->by_id[c->id % HASH];

        while (*p && *p != c)
                p = &(*p)->hash_next;
        if (*p)
                *p = c->hash_next;
}

static void send_cancel(struct conn *c)
{
        struct eg_msg m = {.type = EG_CANCEL, .box = c->box->number, .id = c->id};

        /* Where there is no room the answer will find nobody: the same, later. */
        eg_send(c->r->chan, &m, NULL, 0, NULL);
}

static void stop_flows(struct conn *c)
{
        if (!c->flowing)
                return;
        eg_flow_fini(&c->out, &c->r->common);
        eg_flow_fini(&c->back, &c->r->common);
        c->flowing = false;
}

static void set_to_ask(struct conn *c, bool yes)
{
        if (c->to_ask != yes)
                c->r->n_to_ask += yes ? 1 : -1u;
        c->to_ask = yes;
}

static void end_conn(struct conn *c)
{
        struct box *b = c->box;

        if (c->state == ASKED && !c->to_ask)
                send_cancel(c);
        set_to_ask(c, false);
        stop_flows(c);
        c->client = close_end(c->client);
        c->up = close_end(c->up);
        cg_buf_fini(&c->in);
        cg_buf_fini(&c->up_in);
        cg_buf_fini(&c->reply);
        cg_buf_fini(&c->head);
        forget_id(c);
        *c->at = c->next;
        if (c->next)
                c->next->at = c->at;
        free(c);
        b->n_conns--;
        resume_listeners(b);
}

/* So that the client sees a break and not an end. */
static void abort_conn(struct conn *c)
{
        static const struct linger at_once = {.l_onoff = 1};

        if (c->client)
                setsockopt(c->client->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        end_conn(c);
}

static void new_id(struct conn *c)
{
        struct relay *r = c->r;

        c->id = ++r->next_id;
        c->hash_next = r->by_id[c->id % HASH];
        r->by_id[c->id % HASH] = c;
}

static void add_conn(struct box *b, int fd)
{
        struct relay *r = b->r;
        struct conn *c = calloc(1, sizeof(*c));

        if (!c) {
                close(fd);
                return;
        }
        c->r = r;
        c->box = b;
        cg_buf_init(&c->in, AHEAD_MAX + EG_CHUNK);
        cg_buf_init(&c->up_in, CG_HTTP_RESPONSE_MAX + EG_CHUNK);
        cg_buf_init(&c->reply, REPLY_MAX);
        cg_buf_init(&c->head, CG_HTTP_REQUEST_MAX);
        c->next = r->conns;
        c->at = &r->conns;
        if (r->conns)
                r->conns->at = &c->next;
        r->conns = c;
        if (!uv_is_active((uv_handle_t *)&r->tick))
                uv_timer_start(&r->tick, r->tick.timer_cb, TICK_MS, TICK_MS);
        b->n_conns++;
        new_id(c);
        c->client = new_end(c, fd);
        c->deadline_ms = cg_now_ms() + b->options.head_ms;
        if (!c->client)
                end_conn(c);
        else
                run(c);
}

/* The next connection, or -1 with errno. Where there is no network namespace, they come as descriptors (broker.h). */
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
                uv_poll_stop(&l->poll); /* its sandbox has ended */
                errno = EAGAIN;
        }
        return -1;
}

static void on_listener(uv_poll_t *h, int status, int events)
{
        struct listener *l = h->data;
        struct box *b = l->box;

        (void)status;
        (void)events;
        for (int i = 0; i < BURST; i++) {
                int fd = b->n_conns < b->options.connections ? next_client(l) : -2;

                if (fd >= 0) {
                        add_conn(b, fd);
                        continue;
                }
                /* Full, or out of descriptors: the others wait in the queue until a connection ends or time passes. */
                if (fd == -2 || (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)) {
                        l->paused = true;
                        uv_poll_stop(&l->poll);
                }
                return;
        }
}

/* ---- reading and replying */

/* 0: something new is in c->in; CG_TIMEOUT: nothing yet; CG_CLOSED: nothing more, ever; negative. */
static int read_client(struct conn *c, size_t limit)
{
        ssize_t n;

        if (c->client_ended)
                return CG_CLOSED;
        if (c->in.len >= limit)
                return CG_TIMEOUT;
        do
                n = recv(c->client->fd, c->r->common.scratch, limit - c->in.len < EG_CHUNK ? limit - c->in.len : EG_CHUNK, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n < 0)
                return CG_E_SYS;
        if (n == 0) {
                c->client_ended = true;
                return CG_CLOSED;
        }
        return cg_buf_add(&c->in, c->r->common.scratch, (size_t)n, NULL);
}

/* Writes what can be; negative when the client is gone. */
static int flush_reply(struct conn *c)
{
        while (c->reply.len) {
                ssize_t n = send(c->client->fd, c->reply.data, c->reply.len, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : CG_E_SYS;
                cg_buf_consume(&c->reply, (size_t)n);
        }
        return 0;
}

/* The reply is the last thing: then what the client still sends is thrown away until it has ended, or for a moment. */
static void linger(struct conn *c)
{
        stop_flows(c);
        c->up = close_end(c->up);
        cg_buf_fini(&c->in);
        c->state = LINGER;
        c->deadline_ms = cg_now_ms() + LINGER_MS;
}

static bool step_linger(struct conn *c)
{
        ssize_t n;

        if (flush_reply(c) < 0) {
                end_conn(c);
                return false;
        }
        if (c->reply.len)
                return true;
        shutdown(c->client->fd, SHUT_WR);
        /* One read at a time, so that nobody can be busy here for ever. */
        n = c->client_ended ? 0 : recv(c->client->fd, c->r->common.scratch, EG_CHUNK, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                end_conn(c);
                return false;
        }
        return true;
}

/* ---- refusals */

static const char *phrase_of(unsigned int status)
{
        switch (status) {
        case 400:
                return "Bad Request";
        case 403:
                return "Forbidden";
        case 421:
                return "Misdirected Request";
        case 431:
                return "Request Header Fields Too Large";
        case 505:
                return "HTTP Version Not Supported";
        default:
                return "Bad Gateway";
        }
}

/* A status line has printable ASCII only, and not too much of it. */
static void safe_phrase(const char *s, char *buf, size_t size)
{
        size_t n = 0;

        for (; s[n] && n + 1 < size; n++)
                buf[n] = s[n] >= ' ' && s[n] <= '~' ? s[n] : '?';
        buf[n] = '\0';
}

/* @phrase: NULL for the usual one; @mark: of X-Proxy-Error, or NULL. */
static void respond(struct conn *c, unsigned int status, const char *phrase, const char *mark, const char *body)
{
        char words[CG_POLICY_REASON_MAX + 1];

        safe_phrase(phrase ? phrase : phrase_of(status), words, sizeof(words));
        cg_buf_addf(&c->reply, NULL, "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\n", status, words);
        if (mark)
                cg_buf_addf(&c->reply, NULL, "X-Proxy-Error: %s\r\n", mark);
        cg_buf_addf(&c->reply, NULL, "Content-Length: %zu\r\nConnection: close\r\n\r\n", strlen(body));
        if (!c->is_head)
                cg_buf_adds(&c->reply, body, NULL);
        linger(c);
}

static void socks_reply(struct conn *c, enum cg_socks_code code)
{
        uint8_t reply[CG_SOCKS_REPLY_LEN];

        cg_socks_reply(code, reply);
        cg_buf_add(&c->reply, reply, sizeof(reply), NULL);
}

static void refuse_socks(struct conn *c, const struct eg_msg *m)
{
        switch ((enum eg_result)m->result) {
        case EG_DENIED:
                /* ssh says what it is told; of a SOCKS code it says nothing. */
                socks_reply(c, c->port == 22 ? CG_SOCKS_OK : CG_SOCKS_NOT_ALLOWED);
                if (c->port == 22)
                        cg_socks_ssh_refusal(m->text, &c->reply, NULL);
                break;
        case EG_DENIED_ADDRESS:
                socks_reply(c, CG_SOCKS_NOT_ALLOWED);
                break;
        case EG_DENIED_TUNNEL:
                socks_reply(c, CG_SOCKS_FAILED);
                break;
        default:
                socks_reply(c, CG_SOCKS_UNREACHABLE);
        }
        linger(c);
}

/* The words of srt first; then what it was and how it is allowed, for whoever reads further. */
static void refuse_http(struct conn *c, const struct eg_msg *m)
{
        char body[3072], to[CG_AUTHORITY_MAX];
        const char *how = m->extra;
        bool tunnel = c->kind == EG_CONNECT;

        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        switch ((enum eg_result)m->result) {
        case EG_DENIED:
                snprintf(body, sizeof(body), "Connection blocked by network allowlist\n%s: %s%s%s\n", to, m->text,
                         how[0] ? "; to allow it, " : "", how);
                respond(c, 403, tunnel ? m->text : NULL, "blocked-by-allowlist", body);
                return;
        case EG_DENIED_ADDRESS:
                snprintf(body, sizeof(body), "Connection to %s blocked: %s\n", c->host.text, m->text);
                respond(c, 403, tunnel ? m->text : NULL, "blocked-by-sandbox-runtime", body);
                return;
        case EG_DENIED_TUNNEL:
                snprintf(body, sizeof(body), "%s\n", m->text);
                respond(c, 403, NULL, "blocked-by-sandbox-runtime", body);
                return;
        default:
                snprintf(body, sizeof(body), "Bad Gateway\n%s: %s\n", to, m->text);
                respond(c, 502, NULL, NULL, body);
        }
}

static void bad_gateway(struct conn *c, const char *why)
{
        char body[512], to[CG_AUTHORITY_MAX];

        if (c->kind == EG_SOCKS) {
                socks_reply(c, CG_SOCKS_UNREACHABLE);
                linger(c);
                return;
        }
        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        snprintf(body, sizeof(body), "Bad Gateway\n%s: %s\n", to, why);
        respond(c, 502, NULL, NULL, body);
}

/* Something was refused that the decider never hears of as a question. */
static void note(struct conn *c, const char *why)
{
        struct eg_msg m = {.type = EG_NOTE, .box = c->box->number, .id = c->id, .kind = (uint8_t)c->kind};

        snprintf(m.text, sizeof(m.text), "%s", why);
        eg_send(c->r->chan, &m, NULL, 0, NULL); /* a full channel loses it: the client is told anyway */
}

/* ---- asking */

static void send_ask(struct conn *c)
{
        struct eg_msg m = {.type = EG_ASK, .box = c->box->number, .id = c->id, .port = c->port, .kind = (uint8_t)c->kind};
        int r;

        memcpy(m.host, c->host.text, sizeof(m.host));
        r = eg_send(c->r->chan, &m, NULL, 0, NULL);
        set_to_ask(c, r == CG_TIMEOUT);
        if (r < 0)
                uv_stop(&c->r->loop);
        if (r == CG_TIMEOUT)
                watch_chan(c->r);
}

static void ask(struct conn *c, enum eg_kind kind)
{
        c->kind = kind;
        c->state = ASKED;
        c->deadline_ms = 0; /* the decider's to keep */
        send_ask(c);
}

/* ---- steps before there is a connection. True: run the next step at once */

static bool wait_or_end(struct conn *c, int r)
{
        if (r == CG_CLOSED || r < 0)
                end_conn(c);
        return false;
}

static bool step_first(struct conn *c)
{
        static const uint8_t socks4_refusal[8] = {0, 0x5b};
        int r = c->in.len ? 0 : read_client(c, AHEAD_MAX);

        if (r != 0)
                return wait_or_end(c, r);
        switch (c->in.data[0]) {
        case 5:
        case 4:
                if (c->box->options.raw_socks) {
                        ask(c, EG_RAW_SOCKS);
                } else if (c->in.data[0] == 5) {
                        c->kind = EG_SOCKS;
                        c->state = SOCKS_REQUEST;
                        c->scanned = 0; /* the greeting comes first */
                } else {
                        c->kind = EG_SOCKS;
                        note(c, "SOCKS 4; this proxy speaks SOCKS 5");
                        cg_buf_add(&c->reply, socks4_refusal, sizeof(socks4_refusal), NULL);
                        linger(c);
                }
                return true;
        case 0x16:
                c->kind = EG_CONNECT;
                note(c, "TLS without CONNECT; this is a proxy");
                end_conn(c);
                return false;
        default:
                if (c->box->options.raw_http)
                        ask(c, EG_RAW_HTTP);
                else
                        c->state = HEAD;
                return true;
        }
}

/* Reads more where the message is not whole. */
static bool socks_more(struct conn *c, int r)
{
        if (r < 0) {
                end_conn(c);
                return false;
        }
        r = read_client(c, AHEAD_MAX);
        return r == 0 ? true : wait_or_end(c, r);
}

/* The greeting: c->scanned is 0 until it has been read. */
static bool socks_greeting(struct conn *c)
{
        enum cg_socks_method method;
        uint8_t reply[2] = {5};
        size_t used;
        int r = cg_socks_greeting((const uint8_t *)c->in.data, c->in.len, &used, &method, NULL);

        if (r != 0)
                return socks_more(c, r);
        cg_buf_consume(&c->in, used);
        reply[1] = (uint8_t)method;
        cg_buf_add(&c->reply, reply, sizeof(reply), NULL);
        c->scanned = 1;
        if (method == CG_SOCKS_NO_METHOD)
                linger(c);
        else if (method == CG_SOCKS_PASSWORD)
                c->state = SOCKS_PASSWORD;
        return true;
}

static bool step_socks_password(struct conn *c)
{
        static const uint8_t welcome[2] = {1, 0};
        size_t used;
        int r = cg_socks_password((const uint8_t *)c->in.data, c->in.len, &used, NULL);

        if (r != 0)
                return socks_more(c, r);
        /* Whatever it says: only this sandbox can connect here. */
        cg_buf_consume(&c->in, used);
        cg_buf_add(&c->reply, welcome, sizeof(welcome), NULL);
        c->state = SOCKS_REQUEST;
        return true;
}

static bool step_socks_request(struct conn *c)
{
        struct cg_socks_request q;
        struct cg_err err;
        size_t used;
        int r;

        if (!c->scanned)
                return socks_greeting(c);
        r = cg_socks_request((const uint8_t *)c->in.data, c->in.len, &used, &q, &err);
        if (r != 0)
                return socks_more(c, r);
        cg_buf_consume(&c->in, used);
        if (q.code != CG_SOCKS_OK) {
                note(c, err.msg);
                socks_reply(c, q.code);
                linger(c);
                return true;
        }
        c->host = q.host;
        c->port = q.port;
        ask(c, EG_SOCKS);
        return true;
}

/* Before a request line there may be empty lines, of which some clients leave one behind a body. */
static void skip_empty_lines(struct conn *c)
{
        while (c->in.len >= 2 && c->in.data[0] == '\r' && c->in.data[1] == '\n') {
                cg_buf_consume(&c->in, 2);
                c->scanned = 0;
        }
}

static void refuse_request(struct conn *c, unsigned int status, const char *why)
{
        char body[1200];

        snprintf(body, sizeof(body), "%s\n", why);
        note(c, why);
        respond(c, status, NULL, NULL, body);
}

static bool take_request(struct conn *c, size_t len)
{
        struct cg_http_request q;
        struct cg_err err = {.msg = ""};
        unsigned int status, host;

        c->is_head = false;
        c->kind = EG_HTTP;
        if (cg_http_request_parse(c->in.data, len, &q, &status, &err) < 0) {
                refuse_request(c, status, err.msg);
                return true;
        }
        host = c->box->options.require_host_match && !q.connect ? cg_http_check_host(&q) : 0;
        if (host) {
                refuse_request(c, host, "the Host field is missing or names another host than the request line");
                return true;
        }
        c->host = q.host;
        c->port = q.port;
        c->is_head = q.is_head;
        c->keep = q.head.keep_alive && !q.connect;
        c->minor0 = q.head.minor == 0;
        c->response_started = c->request_broken = false;
        c->head.len = 0;
        if (cg_buf_add(&c->head, c->in.data, len, NULL) < 0) {
                end_conn(c);
                return false;
        }
        cg_buf_consume(&c->in, len);
        ask(c, q.connect ? EG_CONNECT : EG_HTTP);
        return true;
}

static bool step_head(struct conn *c)
{
        size_t len;
        int r;

        skip_empty_lines(c);
        len = c->in.len ? cg_http_head_len(c->in.data, c->in.len, &c->scanned) : 0;
        if (len > CG_HTTP_REQUEST_MAX || (!len && c->in.len >= CG_HTTP_REQUEST_MAX)) {
                c->is_head = false;
                c->kind = EG_HTTP;
                refuse_request(c, 431, "the head of a request is at most 16 kB");
                return true;
        }
        if (len) {
                c->scanned = 0;
                return take_request(c, len);
        }
        r = read_client(c, AHEAD_MAX);
        return r == 0 ? true : wait_or_end(c, r);
}

static bool is_tunnel(const struct conn *c)
{
        return c->kind != EG_HTTP;
}

/* A client that has gone does not want to know any more; one that has only finished its HTTP request does. */
static bool step_asked(struct conn *c)
{
        int r = read_client(c, AHEAD_MAX);

        if (r < 0 || (r == CG_CLOSED && is_tunnel(c))) {
                end_conn(c);
                return false;
        }
        return r == 0;
}

/* ---- tunnels */

static void start_tunnel(struct conn *c)
{
        eg_flow_init(&c->out, c->client->fd, c->up->fd, EG_FLOW_ALL, &c->in);
        eg_flow_init(&c->back, c->up->fd, c->client->fd, EG_FLOW_ALL, &c->up_in);
        c->flowing = true;
        if (c->kind == EG_CONNECT)
                cg_buf_adds(&c->reply, "HTTP/1.1 200 Connection Established\r\n\r\n", NULL);
        else if (c->kind == EG_SOCKS)
                socks_reply(c, CG_SOCKS_OK);
        cg_buf_fini(&c->head);
        c->state = TUNNEL;
        c->gather = UNDECIDED;
}

static void active(struct conn *c)
{
        c->deadline_ms = (int64_t)uv_now(&c->r->loop) + c->box->options.idle_ms;
}

/* 0: something new is in c->up_in; CG_TIMEOUT; CG_CLOSED; negative. */
static int read_up(struct conn *c)
{
        ssize_t n;

        if (c->up_in.len >= CG_HTTP_RESPONSE_MAX)
                return CG_E_LIMIT;
        do
                n = recv(c->up->fd, c->r->common.scratch, EG_CHUNK, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n <= 0)
                return n == 0 ? CG_CLOSED : CG_E_SYS;
        return cg_buf_add(&c->up_in, c->r->common.scratch, (size_t)n, NULL);
}

/* The head of an HTTP response and nothing of what follows it. */
static bool is_head_alone(const struct cg_buf *b)
{
        return b->len > 16 && b->len < CG_HTTP_REQUEST_MAX && memcmp(b->data, "HTTP/1.", 7) == 0 &&
               memcmp(b->data + b->len - 4, "\r\n\r\n", 4) == 0;
}

/*
 * Many servers write the head of a response and its body in two pieces, the second of them a moment later. Simple clients read
 * once and take what that gives for the whole; behind most proxies it is. So the first bytes that come back, when they are a
 * head alone, wait for what follows, or for GATHER_MS. Nobody else is delayed. 1: they still wait; 0; -1: the connection is broken.
 */
static int gathers(struct conn *c)
{
        int r;

        if (c->gather == GATHERED)
                return 0;
        r = read_up(c);
        if (r == CG_E_SYS)
                return -1;
        if (r == CG_TIMEOUT && !c->up_in.len)
                return 1; /* nothing yet */
        if (r < 0 || r == CG_CLOSED || !is_head_alone(&c->up_in)) {
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

static bool step_tunnel(struct conn *c)
{
        struct cg_err err;
        bool moved = false;
        int out, back, wait;

        if (flush_reply(c) < 0) {
                abort_conn(c);
                return false;
        }
        out = eg_flow_run(&c->out, &c->r->common, &moved, &err);
        c->back.want_read = !c->reply.len;
        wait = c->reply.len ? 1 : gathers(c);
        back = wait == 0 ? eg_flow_run(&c->back, &c->r->common, &moved, &err) : wait < 0 ? wait : 0;
        if (out < 0 || back < 0) {
                abort_conn(c);
                return false;
        }
        c->out.want_read |= out == CG_TIMEOUT;
        c->back.want_read |= back == CG_TIMEOUT;
        if (moved || !c->deadline_ms)
                active(c);
        if (c->out.done && c->back.done) {
                end_conn(c);
                return false;
        }
        return false;
}

/* ---- another proxy on the way */

static bool start_parent(struct conn *c, const char *auth)
{
        char to[CG_AUTHORITY_MAX];

        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        /* The request is a flow of its own, without a source. */
        eg_flow_init(&c->out, c->client->fd, c->up->fd, EG_FLOW_COUNTED, &c->in);
        eg_flow_init(&c->back, c->up->fd, c->client->fd, EG_FLOW_COUNTED, &c->up_in);
        c->flowing = true;
        cg_buf_addf(&c->out.out, NULL, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to);
        if (auth[0])
                cg_buf_addf(&c->out.out, NULL, "Proxy-Authorization: %s\r\n", auth);
        cg_buf_adds(&c->out.out, "\r\n", NULL);
        c->state = PARENT;
        c->scanned = 0;
        c->deadline_ms = cg_now_ms() + c->box->options.head_ms;
        return true;
}

static bool step_parent(struct conn *c)
{
        struct cg_http_response resp;
        struct cg_err err = {.msg = ""};
        bool moved = false;
        size_t len;
        int r;

        if (eg_flow_run(&c->out, &c->r->common, &moved, &err) < 0) {
                bad_gateway(c, "the parent proxy closed the connection");
                return true;
        }
        r = read_up(c);
        len = c->up_in.len ? cg_http_head_len(c->up_in.data, c->up_in.len, &c->scanned) : 0;
        if (!len && (r == CG_CLOSED || r < 0)) {
                bad_gateway(c, "the parent proxy closed the connection");
                return true;
        }
        if (!len)
                return r == 0;
        if (cg_http_response_parse(c->up_in.data, len, false, &resp, &err) < 0 || resp.status < 200 || resp.status > 299) {
                bad_gateway(c, err.msg[0] ? err.msg : "the parent proxy refused the connection");
                return true;
        }
        cg_buf_consume(&c->up_in, len);
        stop_flows(c);
        start_tunnel(c);
        return true;
}

/* ---- HTTP exchanges */

/* @resized: a body may change its length on its way to the server, so it cannot be announced. */
static bool start_exchange(struct conn *c, bool to_proxy, const char *auth, bool resized)
{
        struct cg_http_request q;
        enum eg_flow_mode mode;
        unsigned int status;

        /* It has been parsed before: the same bytes are the same request. */
        if (cg_http_request_parse(c->head.data, c->head.len, &q, &status, NULL) < 0) {
                end_conn(c);
                return false;
        }
        mode = q.head.framing == CG_HTTP_CHUNKED ? EG_FLOW_CHUNKED : EG_FLOW_COUNTED;
        eg_flow_init(&c->out, c->client->fd, c->up->fd, mode, &c->in);
        eg_flow_init(&c->back, c->up->fd, c->client->fd, EG_FLOW_COUNTED, &c->up_in);
        c->flowing = true;
        c->out.left = q.head.length;
        if (resized && q.head.framing == CG_HTTP_LENGTH && q.head.length) {
                c->out.wrap = true;
                q.head.framing = CG_HTTP_CHUNKED;
        }
        c->interim = 0;
        c->state = EXCHANGE;
        c->scanned = 0;
        active(c);
        if (cg_http_request_write(&q, to_proxy, auth[0] ? auth : NULL, &c->out.out, NULL) < 0) {
                end_conn(c);
                return false;
        }
        cg_buf_fini(&c->head);
        return true;
}

/* The response's head goes on, and its body begins. */
static void start_response(struct conn *c, struct cg_http_response *resp)
{
        struct cg_http_head *h = &resp->head;
        bool chunked = h->framing == CG_HTTP_CHUNKED && !c->minor0;

        cg_http_strip(h, c->box->options.text);
        /* Whoever still sends a body, or could not see where this one ends, gets another connection next time. */
        c->keep = c->keep && c->out.done && h->framing != CG_HTTP_UNTIL_END && (chunked || h->framing != CG_HTTP_CHUNKED);
        switch (h->framing) {
        case CG_HTTP_CHUNKED:
                c->back.mode = EG_FLOW_CHUNKED;
                c->back.plain = !chunked;
                break;
        case CG_HTTP_UNTIL_END:
                c->back.mode = EG_FLOW_ALL;
                break;
        default:
                c->back.left = h->length;
        }
        if (h->framing == CG_HTTP_CHUNKED && !chunked)
                h->framing = CG_HTTP_UNTIL_END;
        cg_http_response_write(resp, chunked, c->keep, &c->back.out, NULL);
        c->response_started = true;
}

/* True: go on; false: wait. */
static bool take_response(struct conn *c)
{
        struct cg_http_response resp;
        struct cg_err err = {.msg = ""};
        int r = read_up(c);
        size_t len = c->up_in.len ? cg_http_head_len(c->up_in.data, c->up_in.len, &c->scanned) : 0;

        if (len == 0) {
                if (r == 0 || r == CG_TIMEOUT)
                        return r == 0;
                bad_gateway(c, r == CG_E_LIMIT ? "the head of the response is too long"
                            : "the server closed the connection without a response");
                return true;
        }
        c->scanned = 0;
        if (cg_http_response_parse(c->up_in.data, len, c->is_head, &resp, &err) < 0 || resp.status == 101) {
                bad_gateway(c, err.msg[0] ? err.msg : "the server changed the protocol");
                return true;
        }
        if (resp.status < 200) {
                if (++c->interim > INTERIM_MAX ||
                    (!c->minor0 && cg_http_response_write(&resp, false, true, &c->reply, NULL) < 0)) {
                        if (flush_reply(c) < 0 || c->reply.len) {
                                abort_conn(c);
                                return false;
                        }
                        bad_gateway(c, "the server sends interim responses only");
                        return true;
                }
        } else {
                start_response(c, &resp);
                if (c->reply.len) { /* interim responses come first */
                        cg_buf_add(&c->reply, c->back.out.data, c->back.out.len, NULL);
                        c->back.out.len = 0;
                        cg_buf_add(&c->back.out, c->reply.data, c->reply.len, NULL);
                        c->reply.len = 0;
                }
        }
        cg_buf_consume(&c->up_in, len);
        return true;
}

static bool next_request(struct conn *c)
{
        stop_flows(c);
        c->up = close_end(c->up);
        cg_buf_fini(&c->up_in);
        c->state = HEAD;
        c->scanned = 0;
        c->deadline_ms = cg_now_ms() + (c->in.len ? (int64_t)c->box->options.head_ms : NEXT_REQUEST_MS);
        return true;
}

static bool run_request(struct conn *c, bool *moved)
{
        struct cg_err err;
        int r;

        if (c->request_broken || c->out.done)
                return true;
        r = eg_flow_run(&c->out, &c->r->common, moved, &err);
        if (r == CG_E_PROTO) {
                /* The client's own body makes no sense: the server must not take a part for the whole. */
                abort_conn(c);
                return false;
        }
        /* A server may answer and close without having read it all: its answer counts. */
        c->request_broken = r < 0;
        c->out.want_read |= r == CG_TIMEOUT;
        if (c->request_broken)
                c->out.want_read = c->out.want_write = c->keep = false;
        return true;
}

static bool step_exchange(struct conn *c)
{
        struct cg_err err;
        bool moved = false;
        int r;

        if (!run_request(c, &moved))
                return false;
        if (flush_reply(c) < 0) {
                end_conn(c);
                return false;
        }
        if (!c->response_started) {
                if (moved)
                        active(c);
                return take_response(c);
        }
        r = eg_flow_run(&c->back, &c->r->common, &moved, &err);
        if (r < 0) {
                abort_conn(c);
                return false;
        }
        c->back.want_read |= r == CG_TIMEOUT;
        if (moved)
                active(c);
        if (!c->back.done)
                return false;
        if (c->keep)
                return next_request(c);
        linger(c);
        return true;
}

/* ---- answers */

static void on_answer(struct conn *c, const struct eg_msg *m, int fd)
{
        bool proxy = m->result == EG_CONNECTED_PROXY;

        if (m->result != EG_CONNECTED && !proxy) {
                if (c->kind == EG_SOCKS)
                        refuse_socks(c, m);
                else if (c->kind == EG_RAW_SOCKS)
                        end_conn(c);
                else
                        refuse_http(c, m);
                return;
        }
        c->up = fd >= 0 ? new_end(c, fd) : NULL;
        if (!c->up)
                bad_gateway(c, "out of descriptors or memory");
        else if (c->kind == EG_HTTP)
                start_exchange(c, proxy, m->extra, m->resized);
        else if (proxy)
                start_parent(c, m->extra);
        else
                start_tunnel(c);
}

static struct conn *find_conn(struct relay *r, uint32_t box, uint32_t id)
{
        struct conn *c = r->by_id[id % HASH];

        while (c && (c->id != id || c->box->number != box))
                c = c->hash_next;
        return c && c->state == ASKED && !c->to_ask ? c : NULL;
}

/* ---- running */

/* What is waited for now, from the state. */
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
        watch_end(c->client, client);
        watch_end(c->up, up);
}

static bool is_gone(const struct conn *c)
{
        struct pollfd p = {.fd = c->client->fd};

        return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

static bool step(struct conn *c)
{
        switch (c->state) {
        case FIRST:
                return step_first(c);
        case SOCKS_PASSWORD:
                return step_socks_password(c);
        case SOCKS_REQUEST:
                return step_socks_request(c);
        case HEAD:
                return step_head(c);
        case ASKED:
                return step_asked(c);
        case PARENT:
                return step_parent(c);
        case TUNNEL:
                return step_tunnel(c);
        case EXCHANGE:
                return step_exchange(c);
        case LINGER:
                return false;
        }
        return false;
}

static bool is_alive(struct relay *r, const struct conn *c, uint32_t id)
{
        for (const struct conn *x = r->by_id[id % HASH]; x; x = x->hash_next) {
                if (x == c && x->id == id)
                        return true;
        }
        return false;
}

static void run(struct conn *c)
{
        struct relay *r = c->r;
        uint32_t id = c->id;

        if (c->half_closed && c->state == EXCHANGE && is_gone(c)) {
                end_conn(c);
                return;
        }
        while (step(c))
                ;
        if (!is_alive(r, c, id))
                return;
        if (c->state == LINGER ? !step_linger(c) : flush_reply(c) < 0) {
                if (is_alive(r, c, id))
                        end_conn(c);
                return;
        }
        watch(c);
}

/* ---- the decider */

static bool is_listening(int fd)
{
        int yes = 0;
        socklen_t len = sizeof(yes);

        return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) == 0 && yes;
}

static void open_box(struct relay *r, const struct eg_msg *m, const int *fds, size_t n)
{
        struct box *b = calloc(1, sizeof(*b));

        if (b) {
                b->r = r;
                b->number = m->box;
                b->options = *m;
                b->next = r->boxes;
                r->boxes = b;
        }
        for (size_t i = 0; i < n; i++) {
                struct listener *l = b && b->n_listeners < EG_LISTENERS_MAX ? calloc(1, sizeof(*l)) : NULL;

                if (!l || uv_poll_init(&r->loop, &l->poll, fds[i]) < 0) {
                        close(fds[i]);
                        free(l);
                        continue;
                }
                l->poll.data = l;
                l->box = b;
                l->fd = fds[i];
                l->handed = !is_listening(l->fd);
                b->listeners[b->n_listeners++] = l;
                uv_poll_start(&l->poll, UV_READABLE, on_listener);
        }
}

static void on_listener_closed(uv_handle_t *h)
{
        free(h->data);
}

static void close_listener(struct listener *l)
{
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        close(l->fd);
}

static void close_box(struct relay *r, struct box *b)
{
        struct conn *c = r->conns;

        for (size_t i = 0; i < b->n_listeners; i++)
                close_listener(b->listeners[i]);
        b->n_listeners = 0;
        while (c) {
                struct conn *next = c->next;

                if (c->box == b)
                        abort_conn(c);
                c = next;
        }
        for (struct box **p = &r->boxes; *p; p = &(*p)->next) {
                if (*p == b) {
                        *p = b->next;
                        break;
                }
        }
        free(b);
}

static struct box *find_box(struct relay *r, uint32_t number)
{
        struct box *b = r->boxes;

        while (b && b->number != number)
                b = b->next;
        return b;
}

static void on_message(struct relay *r, const struct eg_msg *m, int *fds, size_t n)
{
        struct box *b = m->type == EG_BOX_OPEN ? NULL : find_box(r, m->box);
        struct conn *c;

        switch (m->type) {
        case EG_BOX_OPEN:
                open_box(r, m, fds, n);
                return;
        case EG_BOX_OPTIONS:
                if (b) {
                        b->options = *m;
                        resume_listeners(b);
                }
                return;
        case EG_BOX_CLOSE:
                if (b)
                        close_box(r, b);
                return;
        case EG_ANSWER:
                c = find_conn(r, m->box, m->id);
                if (c) {
                        uint32_t id = c->id;

                        on_answer(c, m, n ? fds[0] : -1);
                        if (is_alive(r, c, id))
                                run(c);
                        return;
                }
                break;
        default:
                break;
        }
        for (size_t i = 0; i < n; i++)
                close(fds[i]);
}

static void ask_again(struct relay *r)
{
        for (struct conn *c = r->conns; c && r->n_to_ask; c = c->next) {
                if (c->to_ask)
                        send_ask(c);
                if (c->to_ask)
                        return;
        }
}

static void on_chan(uv_poll_t *h, int status, int events)
{
        struct relay *r = h->data;
        struct cg_err err;
        struct eg_msg m;
        int e = status < 0 ? CG_CLOSED : 0;

        if (e == 0 && (events & UV_WRITABLE))
                ask_again(r);
        for (int i = 0; i < BURST && e == 0; i++) {
                int fds[EG_LISTENERS_MAX];
                size_t n = EG_LISTENERS_MAX;

                e = eg_recv(r->chan, &m, fds, &n, &err);
                if (e == 0)
                        on_message(r, &m, fds, n);
        }
        /* Nobody decides any more: nothing goes on. */
        if (e == CG_CLOSED || e < 0) {
                r->status = e < 0;
                uv_stop(&r->loop);
                return;
        }
        watch_chan(r);
}

static void watch_chan(struct relay *r)
{
        int events = UV_READABLE | (r->n_to_ask ? UV_WRITABLE : 0);

        if (events != r->chan_events)
                uv_poll_start(&r->chan_poll, events, on_chan);
        r->chan_events = events;
}

/* ---- time */

static void on_deadline(struct conn *c)
{
        if (c->state == HEAD && c->in.len) {
                refuse_request(c, 400, "the request took too long");
                run(c);
        } else if (c->state == EXCHANGE && !c->response_started) {
                bad_gateway(c, "the server did not respond in time");
                run(c);
        } else if (c->state == PARENT) {
                bad_gateway(c, "the parent proxy did not respond in time");
                run(c);
        } else if (c->state == LINGER) {
                end_conn(c);
        } else {
                abort_conn(c);
        }
}

static void on_tick(uv_timer_t *t)
{
        struct relay *r = t->data;
        int64_t now = cg_now_ms();
        struct conn *c = r->conns;

        while (c) {
                struct conn *next = c->next;

                if (c->deadline_ms && now >= c->deadline_ms)
                        on_deadline(c);
                c = next;
        }
        for (struct box *b = r->boxes; b; b = b->next)
                resume_listeners(b);
        if (!r->conns)
                uv_timer_stop(t);
}

static void on_gather(uv_timer_t *t)
{
        struct relay *r = t->data;
        struct conn *c = r->conns;

        while (c) {
                struct conn *next = c->next;

                if (c->state == TUNNEL && c->gather == GATHERING) {
                        c->gather = GATHERED;
                        run(c);
                }
                c = next;
        }
}

/* ---- the beginning */

/* Half of the descriptors are for sockets. */
static int pipes_for_all(void)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == RLIM_INFINITY || l.rlim_cur > 4096)
                return 1024;
        return (int)l.rlim_cur / 4;
}

static int start_loop(struct relay *r, int chan)
{
        int e = uv_loop_init(&r->loop);

        r->chan = chan;
        if (e == 0)
                e = uv_poll_init(&r->loop, &r->chan_poll, chan);
        if (e == 0)
                e = uv_timer_init(&r->loop, &r->tick);
        if (e == 0)
                e = uv_timer_init(&r->loop, &r->gather);
        r->tick.timer_cb = on_tick;
        r->gather.timer_cb = on_gather;
        r->chan_poll.data = r->tick.data = r->gather.data = r;
        return e;
}

int eg_relay_run(int chan)
{
        static const struct eg_msg ready = {.type = EG_READY};
        struct relay *r = calloc(1, sizeof(*r));
        struct cg_err err = {.msg = ""};
        int status = 1;

        if (r)
                r->common.scratch = malloc(EG_CHUNK);
        if (!r || !r->common.scratch || start_loop(r, chan) < 0)
                goto out;
        if (eg_lock_relay(&err) < 0 || eg_send(chan, &ready, NULL, 0, &err) != 0) {
                dprintf(STDERR_FILENO, "cellgate-egress: relay: %s\n", err.msg);
                goto out;
        }
        r->common.max_pipes = pipes_for_all();
        watch_chan(r);
        uv_run(&r->loop, UV_RUN_DEFAULT);
        status = r->status;
out:
        if (r)
                free(r->common.scratch);
        free(r);
        return status;
}
