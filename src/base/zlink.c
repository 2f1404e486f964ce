/* Our end of a connection to a hostile peer that speaks ZMTP 3 with the NULL mechanism. Linked into supervisor and tool server. */
#include "base/zlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"

#define GREETING_LEN 64
#define FLAG_MORE 1
#define FLAG_LONG 2
#define FLAG_COMMAND 4
/* Larger than anything that is waited for as a whole: the greeting, a command, a header. */
#define IN_SIZE ((size_t)64 << 10)
/* The handshake's READY; others are read and ignored. */
#define MAX_COMMAND 512u
/* Reads and messages, or writes, of one link before the others get a turn. */
#define BURST 32
/* What a waiting message costs beside its bytes, so that many empty ones are bounded too. */
#define OUT_COST 256
/* Flags and length of the longest frame head. */
#define HEAD_MAX 9

struct cg_zlink_out {
        struct cg_zlink_out *next;
        size_t len, done;
        unsigned char bytes[];
};

static void serve(struct cg_zlink *z, int budget, bool count_reads);

/* ---- writing */

static void drop_first(struct cg_zlink *z)
{
        struct cg_zlink_out *o = z->first;

        z->first = o->next;
        if (!z->first)
                z->last = &z->first;
        z->queued -= o->len + OUT_COST;
        free(o);
}

static void drop_all(struct cg_zlink *z)
{
        while (z->first)
                drop_first(z);
}

static void flush(struct cg_zlink *z)
{
        for (int i = 0; i < BURST && z->first; i++) {
                struct cg_zlink_out *o = z->first;
                ssize_t n = send(z->fd, o->bytes + o->done, o->len - o->done, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < 0 && errno != EINTR) {
                        /* Its end will be read, behind what it has sent. */
                        z->deaf = true;
                        drop_all(z);
                        return;
                }
                if (n > 0)
                        o->done += (size_t)n;
                if (o->done == o->len)
                        drop_first(z);
        }
}

static struct cg_zlink_out *out_new(struct cg_zlink *z, size_t len)
{
        struct cg_zlink_out *o = malloc(sizeof(*o) + len);

        if (!o)
                return NULL;
        o->next = NULL;
        o->len = len;
        o->done = 0;
        *z->last = o;
        z->last = &o->next;
        z->queued += len + OUT_COST;
        return o;
}

static size_t frame_size(size_t len)
{
        return len + (len > 255 ? HEAD_MAX : 2);
}

static unsigned char *put_frame(unsigned char *p, const void *data, size_t len, bool more)
{
        *p++ = (unsigned char)((more ? FLAG_MORE : 0) | (len > 255 ? FLAG_LONG : 0));
        for (int shift = len > 255 ? 56 : 0; shift >= 0; shift -= 8)
                *p++ = (unsigned char)((uint64_t)len >> shift);
        if (len)
                memcpy(p, data, len);
        return p + len;
}

/* ---- what the loop watches */

static void on_poll(uv_poll_t *h, int status, int events);
static void on_idle(uv_idle_t *h);

static void update(struct cg_zlink *z)
{
        bool reading = !z->paused && !z->ended;
        int events = 0;

        if (z->closing)
                return;
        if (reading && !z->broken)
                events |= UV_READABLE;
        if (z->first && !z->broken)
                events |= UV_WRITABLE;
        if (events != z->events) {
                z->events = events;
                if (events)
                        uv_poll_start(&z->poll, events, on_poll);
                else
                        uv_poll_stop(&z->poll);
        }
        if (reading && (z->again || z->broken))
                uv_idle_start(&z->idle, on_idle);
        else
                uv_idle_stop(&z->idle);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
        struct cg_zlink *z = h->data;

        if (status < 0) {
                /* libuv has stopped watching: the peer is gone. What it sent can still be read, and then its end. */
                z->broken = true;
                z->deaf = true;
                z->events = 0;
                drop_all(z);
        }
        if (events & UV_WRITABLE)
                flush(z);
        if (events & UV_READABLE)
                serve(z, BURST, true);
        update(z);
}

static void on_idle(uv_idle_t *h)
{
        struct cg_zlink *z = h->data;

        serve(z, BURST, true);
        update(z);
}

/* ---- reading */

static void use(struct cg_zlink *z, size_t n)
{
        z->in_pos += n;
        if (z->in_pos == z->in_len)
                z->in_pos = z->in_len = 0;
}

static void end(struct cg_zlink *z, const struct cg_err *err)
{
        z->ended = true;
        z->in_pos = z->in_len = 0;
        cg_msg_fini(&z->msg);
        z->on_end(z, err);
}

/* The frame under construction has all its bytes. */
static void frame_done(struct cg_zlink *z, int *messages)
{
        if (z->more)
                return;
        z->has_header = false;
        ++*messages;
        z->on_msg(z, &z->msg);
        cg_msg_fini(&z->msg);
}

static unsigned char *missing(struct cg_zlink *z)
{
        zmq_msg_t *f = &z->msg.frames[z->msg.n_frames - 1];

        return (unsigned char *)zmq_msg_data(f) + (zmq_msg_size(f) - z->left);
}

static int parse_greeting(struct cg_zlink *z, const unsigned char *p, size_t n, struct cg_err *err)
{
        static const unsigned char null_mechanism[20] = "NULL";

        if (n < GREETING_LEN)
                return 0;
        if (p[0] != 0xff || p[9] != 0x7f || p[10] < 3 || memcmp(p + 12, null_mechanism, sizeof(null_mechanism)) != 0)
                return cg_fail(err, CG_E_PROTO, "%s wire: not a greeting of ZMTP 3", z->wire->name);
        z->state = CG_ZLINK_HANDSHAKE;
        use(z, GREETING_LEN);
        return 1;
}

static int parse_command(struct cg_zlink *z, const unsigned char *p, size_t n, size_t size, struct cg_err *err)
{
        static const char ready[] = "\5READY";

        if (size > MAX_COMMAND)
                return cg_fail(err, CG_E_PROTO, "%s wire: command of %zu bytes", z->wire->name, size);
        if (n < size)
                return 0;
        if (z->state == CG_ZLINK_HANDSHAKE) {
                if (size < sizeof(ready) - 1 || memcmp(p, ready, sizeof(ready) - 1) != 0)
                        return cg_fail(err, CG_E_PROTO, "%s wire: the handshake failed", z->wire->name);
                z->state = CG_ZLINK_OPEN;
        }
        return 1;
}

static int start_frame(struct cg_zlink *z, size_t size, bool more, struct cg_err *err)
{
        struct cg_msg *m = &z->msg;
        int r = cg_msg_check_frame(m, m->n_frames, size, z->raw_total, more, err);

        if (r < 0)
                return r;
        if (zmq_msg_init_size(&m->frames[m->n_frames], size) < 0)
                return cg_fail(err, CG_E_NOMEM, "message of %zu bytes", size);
        if (m->n_frames)
                z->raw_total += size;
        m->n_frames++;
        z->left = size;
        z->more = more;
        return 0;
}

static int start_message(struct cg_zlink *z, const unsigned char *p, size_t size, bool more, struct cg_err *err)
{
        int r = cg_msg_start(&z->msg, z->wire, z->sender, p, size, err);

        if (r < 0)
                return r;
        if (!more)
                return cg_fail(err, CG_E_PROTO, "message without a body");
        z->has_header = true;
        z->raw_total = 0;
        return 1;
}

/* One frame's head and, where it is waited for as a whole, the frame. */
static int parse_frame(struct cg_zlink *z, const unsigned char *p, size_t n, int *messages, struct cg_err *err)
{
        size_t head = p[0] & FLAG_LONG ? HEAD_MAX : 2;
        bool more = p[0] & FLAG_MORE;
        uint64_t size = 0;
        int r;

        if (p[0] & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND) || (p[0] & FLAG_COMMAND && more))
                return cg_fail(err, CG_E_PROTO, "%s wire: frame with flags %#x", z->wire->name, p[0]);
        if (!(p[0] & FLAG_COMMAND) && z->state != CG_ZLINK_OPEN)
                return cg_fail(err, CG_E_PROTO, "%s wire: a message before the end of the handshake", z->wire->name);
        if (n < head)
                return 0;
        for (size_t i = 1; i < head; i++)
                size = size << 8 | p[i];
        if (p[0] & FLAG_COMMAND) {
                r = parse_command(z, p + head, n - head, size, err);
        } else if (!z->has_header) {
                if (size == CG_WIRE_HEADER && n - head < size)
                        return 0;
                r = start_message(z, p + head, size, more, err);
        } else {
                r = start_frame(z, size, more, err);
                if (r < 0)
                        return r;
                use(z, head);
                if (!size)
                        frame_done(z, messages);
                return 1;
        }
        if (r > 0)
                use(z, head + size);
        return r;
}

/* Handles one piece of what was read: 1; 0 when it is not complete; negative. */
static int parse(struct cg_zlink *z, int *messages, struct cg_err *err)
{
        const unsigned char *p = z->in + z->in_pos;
        size_t n = z->in_len - z->in_pos;

        if (!n)
                return 0;
        if (z->left) {
                if (n > z->left)
                        n = z->left;
                memcpy(missing(z), p, n);
                z->left -= n;
                use(z, n);
                if (!z->left)
                        frame_done(z, messages);
                return 1;
        }
        if (z->state == CG_ZLINK_GREETING)
                return parse_greeting(z, p, n, err);
        return parse_frame(z, p, n, messages, err);
}

/* Reads once; a large frame without a copy. 0; CG_TIMEOUT when nothing is there; negative. */
static int fill(struct cg_zlink *z, int *messages, struct cg_err *err)
{
        bool direct = z->left >= IN_SIZE && !z->in_len;
        unsigned char *to;
        size_t room;
        ssize_t n;

        if (z->in_pos) {
                memmove(z->in, z->in + z->in_pos, z->in_len - z->in_pos);
                z->in_len -= z->in_pos;
                z->in_pos = 0;
        }
        to = direct ? missing(z) : z->in + z->in_len;
        room = direct ? z->left : IN_SIZE - z->in_len;
        do
                n = recv(z->fd, to, room, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return cg_fail(err, CG_E_CLOSED, "it closed its connection of the %s wire", z->wire->name);
        if (n < 0)
                return cg_fail_errno(err, "%s wire", z->wire->name);
        if (!direct) {
                z->in_len += (size_t)n;
        } else {
                z->left -= (size_t)n;
                if (!z->left)
                        frame_done(z, messages);
        }
        return 0;
}

/* Hands out up to @budget messages (and, if @count_reads, reads as many times). */
static void serve(struct cg_zlink *z, int budget, bool count_reads)
{
        struct cg_err err = { 0 };
        int used = 0;

        if (z->serving)
                return;
        z->serving = true;
        z->again = true;
        while (used < budget && !z->paused && !z->ended && !z->closing) {
                int r = parse(z, &used, &err);

                if (r == 0) {
                        r = fill(z, &used, &err);
                        if (r == CG_TIMEOUT) {
                                z->again = false;
                                break;
                        }
                        used += count_reads;
                }
                if (r < 0)
                        end(z, &err);
        }
        z->serving = false;
}

/* ---- for others */

static int start_handshake(struct cg_zlink *z, struct cg_err *err)
{
        static const unsigned char greeting[GREETING_LEN] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L' };
        static const char ready[] = "\5READY" "\13Socket-Type" "\0\0\0\6" "DEALER" "\10Identity" "\0\0\0"; /* and the NUL */
        struct cg_zlink_out *o = out_new(z, sizeof(greeting) + 2 + sizeof(ready));

        if (!o)
                return cg_fail(err, CG_E_NOMEM, "connection");
        memcpy(o->bytes, greeting, sizeof(greeting));
        o->bytes[GREETING_LEN] = FLAG_COMMAND;
        o->bytes[GREETING_LEN + 1] = sizeof(ready);
        memcpy(o->bytes + GREETING_LEN + 2, ready, sizeof(ready));
        return 0;
}

int cg_zlink_open(struct cg_zlink *z, uv_loop_t *loop, const char *path, const struct cg_wire *wire, unsigned sender, size_t max,
                  cg_zlink_msg_cb on_msg, cg_zlink_end_cb on_end, void *data, struct cg_err *err)
{
        cg_auto_free unsigned char *in = malloc(IN_SIZE);
        cg_auto_fd int fd = -1;
        int r;

        *z = (struct cg_zlink){ .wire = wire, .sender = sender, .max = max, .on_msg = on_msg, .on_end = on_end, .data = data };
        z->last = &z->first;
        if (!in)
                return cg_fail(err, CG_E_NOMEM, "connection");
        r = cg_connect_unix_now(path, &fd, err);
        if (r == 0)
                r = start_handshake(z, err);
        if (r < 0)
                return r;
        r = uv_poll_init(loop, &z->poll, fd);
        if (r < 0) {
                drop_all(z);
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        }
        uv_idle_init(loop, &z->idle);
        z->handles = 2;
        z->poll.data = z->idle.data = z;
        z->fd = cg_steal_fd(&fd);
        z->in = CG_STEAL(in);
        flush(z);
        update(z);
        return 0;
}

int cg_zlink_send(struct cg_zlink *z, const struct cg_out *o, struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER], *p;
        size_t len = frame_size(sizeof(header)) + frame_size(o->body_len) + (o->has_raw ? frame_size(o->raw_len) : 0);
        struct cg_zlink_out *out;
        int r = cg_out_header(z->wire, o, header, err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < o->n_more; i++)
                len += frame_size(o->more[i].len);
        if (z->deaf || z->closing)
                return cg_fail(err, CG_E_CLOSED, "the peer reads no more");
        if (z->queued + len + OUT_COST > z->max)
                return CG_TIMEOUT;
        out = out_new(z, len);
        if (!out)
                return cg_fail(err, CG_E_NOMEM, "message");
        p = put_frame(out->bytes, header, sizeof(header), true);
        p = put_frame(p, o->body, o->body_len, o->has_raw);
        if (o->has_raw)
                p = put_frame(p, o->raw, o->raw_len, o->n_more > 0);
        for (size_t i = 0; i < o->n_more; i++)
                p = put_frame(p, o->more[i].data, o->more[i].len, i + 1 < o->n_more);
        if (z->first == out)
                flush(z);
        update(z);
        return 0;
}

int cg_zlink_send_json(struct cg_zlink *z, const struct cg_out *o, json_t *body, struct cg_err *err)
{
        struct cg_out out = *o;
        cg_auto_free char *text = body ? cg_json_text(body, &out.body_len) : NULL;

        json_decref(body);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "message");
        out.body = text;
        return cg_zlink_send(z, &out, err);
}

void cg_zlink_pause(struct cg_zlink *z, bool paused)
{
        z->paused = paused;
        update(z);
}

void cg_zlink_catch_up(struct cg_zlink *z, int max)
{
        serve(z, max, false);
        update(z);
}

static void on_handle_closed(uv_handle_t *h)
{
        struct cg_zlink *z = h->data;

        if (--z->handles)
                return;
        close(cg_steal_fd(&z->fd));
        free(CG_STEAL(z->in));
        cg_msg_fini(&z->msg);
        if (z->on_closed)
                z->on_closed(z);
}

void cg_zlink_close(struct cg_zlink *z, void (*closed)(struct cg_zlink *z))
{
        if (z->closing)
                return;
        z->closing = true;
        z->on_closed = closed;
        drop_all(z);
        uv_close((uv_handle_t *)&z->poll, on_handle_closed);
        uv_close((uv_handle_t *)&z->idle, on_handle_closed);
}
