/* Unfinished messages of each connection. See peers.h. Runs in `cellgate jupyter`. */
#include "jupyter/peers.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "base/util.h"

/* Interval of the checks. Bytes that arrive between two checks come on top of the limits. */
#define CHECK_MS 250
/* Limit of all new connections of a channel together, in multiples of that of one. */
#define NEW_TOGETHER 2
/* Limit of whole messages that queue up while the front does not read this socket. */
#define BACKLOG ((uint64_t)1 << 30)
/* Heartbeats of ZMTP and the handshake are received, and never read as messages. */
#define SLACK       ((uint64_t)64 << 10)
#define SLACK_PER_S 1024u
/* A frame's head: flags and length. CURVE adds a command's name, nonce, authenticator, flags. */
#define HEAD_SHORT 2u
#define HEAD_LONG  9u
#define CURVE_MORE 33u

/* Linux's struct tcp_info, as far as needed: glibc's ends before, and Linux's header conflicts. */
struct tcp_counts {
        unsigned char before[128];
        uint64_t bytes_received;
};

/* ------------------------------------------------------------------ the list */

static bool cookie_of(int fd, uint64_t *ret)
{
        socklen_t len = sizeof(*ret);

        return getsockopt(fd, SOL_SOCKET, SO_COOKIE, ret, &len) == 0;
}

static struct cg_peer *find(struct cg_peers *p, int fd)
{
        for (size_t i = 0; i < p->n; i++)
                if (p->list[i].fd == fd)
                        return &p->list[i];
        return NULL;
}

static void check_all(uv_timer_t *t);

/* An event has two frames: number and value, then the address. false: there is none. */
static bool take_event(struct cg_peers *p)
{
        unsigned char head[6] = { 0 };
        struct cg_peer *peer;
        uint64_t cookie;
        uint16_t event;
        uint32_t fd;
        char rest[256];

        if (zmq_recv(p->monitor, head, sizeof(head), ZMQ_DONTWAIT) != (int)sizeof(head))
                return false;
        zmq_recv(p->monitor, rest, sizeof(rest), ZMQ_DONTWAIT);
        memcpy(&event, head, sizeof(event));
        memcpy(&fd, head + 2, sizeof(fd));
        peer = find(p, (int)fd); /* of an accepted connection: an old one whose end was not reported */
        if (event == ZMQ_EVENT_DISCONNECTED && peer) {
                *peer = p->list[--p->n];
                if (!p->n)
                        uv_timer_stop(&p->timer);
        }
        if (event != ZMQ_EVENT_ACCEPTED || !cookie_of((int)fd, &cookie))
                return true;
        if (!peer && p->n == CG_PEERS_MAX) {
                if (uv_now(p->zl->loop) - p->warned_ms >= 1000)
                        cg_log(p->log, CG_LOG_WARN,
                               "%s: there are %u connections already, further ones are cut off", p->name,
                               CG_PEERS_MAX);
                p->warned_ms = uv_now(p->zl->loop);
                shutdown((int)fd, SHUT_RDWR);
                return true;
        }
        if (!peer)
                peer = &p->list[p->n++];
        *peer = (struct cg_peer){ .fd = (int)fd, .cookie = cookie, .since_ms = uv_now(p->zl->loop) };
        if (!uv_is_active((uv_handle_t *)&p->timer))
                uv_timer_start(&p->timer, check_all, CHECK_MS, CHECK_MS);
        return true;
}

static void on_event(struct cg_zsock *z)
{
        take_event(z->data);
}

/* ------------------------------------------------------------------ what they send */

struct cg_peer *cg_peers_count_frame(struct cg_peers *p, zmq_msg_t *frame, struct cg_peer *known)
{
        struct cg_peer *peer = known;
        size_t size = zmq_msg_size(frame) + (p->curve ? CURVE_MORE : 0);

        if (!p->open)
                return NULL;
        if (!peer)
                peer = find(p, zmq_msg_get(frame, ZMQ_SRCFD));
        if (!peer) {
                /* libzmq's event about the connection may not have been read yet. */
                while (take_event(p))
                        ;
                cg_zsock_touch(&p->z);
                peer = find(p, zmq_msg_get(frame, ZMQ_SRCFD));
        }
        if (peer)
                peer->delivered += size + (size < 256 ? HEAD_SHORT : HEAD_LONG);
        return peer;
}

/* false: the descriptor belongs to another connection now. */
static bool unfinished_bytes(const struct cg_peer *peer, uint64_t now_ms, uint64_t *ret)
{
        struct tcp_counts info = { .bytes_received = 0 };
        socklen_t len = sizeof(info);
        uint64_t cookie, known;

        if (!cookie_of(peer->fd, &cookie) || cookie != peer->cookie ||
            getsockopt(peer->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
            len < sizeof(info)) /* Linux before 4.1 */
                return false;
        known = peer->delivered + SLACK + (now_ms - peer->since_ms) / 1000 * SLACK_PER_S;
        *ret = info.bytes_received > known ? info.bytes_received - known : 0;
        return true;
}

/*
 * Resets the connection; libzmq gets an error and drops its frames. After a mere shutdown() it
 * would first read all received bytes, and a peer that goes on sending could make that endless.
 */
static void reset_connection(struct cg_peers *p, const struct cg_peer *peer, uint64_t bytes)
{
        struct sockaddr nobody = { .sa_family = AF_UNSPEC };

        cg_log(p->log, CG_LOG_WARN,
               "%s: a connection has sent %llu bytes of an unfinished message: it is cut off", p->name,
               (unsigned long long)bytes);
        if (connect(peer->fd, &nobody, sizeof(nobody)) < 0)
                shutdown(peer->fd, SHUT_RDWR);
}

static void check_all(uv_timer_t *t)
{
        struct cg_peers *p = t->data;
        uint64_t now = uv_now(p->zl->loop), bytes[CG_PEERS_MAX], together = 0;
        size_t len = sizeof(int);
        int events = 0;
        bool all_read;

        /*
         * If no message is left to be read, all unfinished bytes belong to unfinished messages.
         * Reading ZMQ_EVENTS clears the descriptor's edge, so the owner is woken explicitly.
         */
        cg_zsock_touch(p->owner);
        all_read = zmq_getsockopt(p->sock, ZMQ_EVENTS, &events, &len) == 0 && !(events & ZMQ_POLLIN);
        for (size_t i = 0; i < p->n; i++) {
                const struct cg_peer *peer = &p->list[i];
                uint64_t limit = all_read ? p->limit_proven : BACKLOG;

                if (!peer->proven)
                        limit = p->limit_new;
                bytes[i] = 0;
                if (!unfinished_bytes(peer, now, &bytes[i]))
                        continue;
                if (bytes[i] > limit)
                        reset_connection(p, peer, bytes[i]);
                if (bytes[i] > limit || peer->proven)
                        bytes[i] = 0;
                together += bytes[i];
        }
        /* Resets the largest until the new connections together are within their limit. */
        while (together > p->limit_new * NEW_TOGETHER) {
                size_t most = 0;

                for (size_t i = 1; i < p->n; i++)
                        if (bytes[i] > bytes[most])
                                most = i;
                reset_connection(p, &p->list[most], bytes[most]);
                together -= bytes[most];
                bytes[most] = 0;
        }
}

/* ------------------------------------------------------------------ start and end */

int cg_peers_init(struct cg_peers *p, void *ctx, void *sock, struct cg_zsock *owner, struct cg_zloop *zl,
                  const char *name, uint64_t limit_new, uint64_t limit_proven, bool curve,
                  const struct cg_log *log, struct cg_err *err)
{
        char address[64];
        int zero = 0;

        *p = (struct cg_peers){ .sock = sock,
                                .owner = owner,
                                .zl = zl,
                                .log = log,
                                .name = name,
                                .limit_new = limit_new,
                                .limit_proven = limit_proven,
                                .curve = curve };
        snprintf(address, sizeof(address), "inproc://cellgate-peers-%s", p->name);
        p->monitor = zmq_socket(ctx, ZMQ_PAIR);
        /* No high-water mark: libzmq's own thread would wait for us. */
        if (!p->monitor || zmq_setsockopt(p->monitor, ZMQ_RCVHWM, &zero, sizeof(zero)) < 0 ||
            zmq_setsockopt(p->monitor, ZMQ_LINGER, &zero, sizeof(zero)) < 0 ||
            zmq_socket_monitor(p->sock, address, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) < 0 ||
            zmq_connect(p->monitor, address) < 0)
                return cg_fail(err, CG_E_SYS, "watching connections: %s", zmq_strerror(zmq_errno()));
        if (uv_timer_init(zl->loop, &p->timer) < 0)
                return cg_fail(err, CG_E_SYS, "event loop");
        p->timer.data = p;
        p->open = true;
        return cg_zsock_init(&p->z, zl, p->monitor, on_event, p, err);
}

void cg_peers_close(struct cg_peers *p)
{
        if (!p->open)
                return;
        p->open = false;
        uv_close((uv_handle_t *)&p->timer, NULL);
        cg_zsock_close(&p->z);
}

void cg_peers_fini(struct cg_peers *p)
{
        if (!p->monitor)
                return;
        zmq_socket_monitor(p->sock, NULL, 0);
        zmq_close(p->monitor);
        p->monitor = NULL;
}
