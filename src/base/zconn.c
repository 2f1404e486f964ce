/* Connections that speak ZMTP 3 with the NULL mechanism: zconn.h. In all but static processes. */
#include "base/zconn.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "base/util.h"

#define GREETING_LEN 64
#define FLAG_MORE    1
#define FLAG_LONG    2
#define FLAG_COMMAND 4
/* Larger than any part that is read as a whole: the greeting, a command, a header. */
#define IN_SIZE ((size_t)64 << 10)
/* The handshake's READY; others are read and ignored. */
#define MAX_COMMAND 512u
/* Writes to one connection before the others are served, and pieces in one write. */
#define BURST  32
#define PIECES 64
/* Frames from this size on are not copied into the queued message when its owner keeps them. */
#define BIG ((size_t)16 << 10)
/* Cost of a queued message in addition to its bytes, so that empty messages are bounded too. */
#define OUT_COST 256
/* Flags and length of the longest frame head. */
#define HEAD_MAX 9

/* A queued message: its pieces follow each other in the block, or are frames of its owner. */
struct cg_zconn_out {
        struct cg_zconn_out *next;
        size_t len, done;
        void (*release)(void *owner);
        void *owner;
        unsigned char *end; /* of the bytes in the block, while it is filled */
        size_t n;
        struct iovec pieces[];
};

/* ---- writing */

static void out_free(struct cg_zconn_out *o)
{
        if (o->release)
                o->release(o->owner);
        free(o);
}

static void drop_first(struct cg_zconn *c)
{
        struct cg_zconn_out *o = c->first;

        c->first = o->next;
        if (!c->first)
                c->last = &c->first;
        c->queued -= o->len + OUT_COST;
        c->greeting = false;
        out_free(o);
}

void cg_zconn_drop(struct cg_zconn *c)
{
        while (c->first)
                drop_first(c);
}

bool cg_zconn_wants_out(const struct cg_zconn *c)
{
        return c->first && (c->open || c->greeting);
}

bool cg_zconn_holds(const struct cg_zconn *c)
{
        return c->max_unsent && c->queued > c->max_unsent;
}

/* The pieces that can be written now, for one write. */
static size_t gather(const struct cg_zconn *c, struct iovec *v)
{
        size_t n = 0;

        for (const struct cg_zconn_out *o = c->first; o && n < PIECES && (c->open || o == c->first);
             o = o->next) {
                size_t skip = o->done;

                for (size_t i = 0; i < o->n && n < PIECES; i++) {
                        if (skip >= o->pieces[i].iov_len) {
                                skip -= o->pieces[i].iov_len;
                                continue;
                        }
                        v[n].iov_base = (char *)o->pieces[i].iov_base + skip;
                        v[n++].iov_len = o->pieces[i].iov_len - skip;
                        skip = 0;
                }
        }
        return n;
}

void cg_zconn_flush(struct cg_zconn *c)
{
        for (int i = 0; i < BURST && cg_zconn_wants_out(c); i++) {
                struct iovec v[PIECES];
                struct msghdr m = { .msg_iov = v };
                ssize_t n;

                m.msg_iovlen = gather(c, v);
                n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < 0 && errno != EINTR) {
                        if (errno != EPIPE && errno != ECONNRESET)
                                shutdown(c->fd, SHUT_RDWR); /* so that both sides see the end */
                        /*
                         * The peer closed the connection: its last messages are read first, then
                         * the end of file.
                         */
                        c->deaf = true;
                        cg_zconn_drop(c);
                        return;
                }
                while (n >= 0 && c->first) {
                        struct cg_zconn_out *o = c->first;

                        if ((size_t)n < o->len - o->done) {
                                o->done += (size_t)n;
                                break;
                        }
                        n -= (ssize_t)(o->len - o->done);
                        drop_first(c);
                }
        }
}

void cg_zconn_opened(struct cg_zconn *c)
{
        if (c->state != CG_ZCONN_OPEN || c->open)
                return;
        c->open = true;
        cg_zconn_flush(c);
}

static void append(struct cg_zconn *c, struct cg_zconn_out *o)
{
        *c->last = o;
        c->last = &o->next;
        c->queued += o->len + OUT_COST;
}

/* More of the block belongs to the message. */
static void add_bytes(struct cg_zconn_out *o, const void *data, size_t len)
{
        struct iovec *v = o->n ? &o->pieces[o->n - 1] : NULL;

        if (!len)
                return;
        memcpy(o->end, data, len);
        if (v && (unsigned char *)v->iov_base + v->iov_len == o->end)
                v->iov_len += len;
        else
                o->pieces[o->n++] = (struct iovec){ o->end, len };
        o->end += len;
        o->len += len;
}

static void add_frame(struct cg_zconn_out *o, const void *data, size_t len, bool kept, bool more)
{
        unsigned char head[HEAD_MAX] = { more ? FLAG_MORE : 0 };
        bool is_long = len > 255;
        size_t n = 1;

        if (is_long)
                head[0] |= FLAG_LONG;
        for (int shift = is_long ? 56 : 0; shift >= 0; shift -= 8)
                head[n++] = (unsigned char)((uint64_t)len >> shift);
        add_bytes(o, head, n);
        if (!kept) {
                add_bytes(o, data, len);
        } else {
                o->pieces[o->n++] = (struct iovec){ (void *)(uintptr_t)data, len };
                o->len += len;
        }
}

/* The owner keeps raw frames, which follow header and body; large ones are not copied. */
static bool is_kept(void (*release)(void *), size_t i, size_t len)
{
        return release && i >= 2 && len >= BIG;
}

int cg_zconn_put(struct cg_zconn *c, const struct cg_out *out, void (*release)(void *), void *owner,
                 struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER];
        struct cg_bytes frames[CG_MAX_FRAMES + 1];
        struct cg_zconn_out *o;
        size_t n = 0, len = 0, room = 0;
        int r = cg_out_header(c->wire, out, header, err);

        if (r < 0)
                return r;
        frames[n++] = (struct cg_bytes){ header, CG_WIRE_HEADER };
        frames[n++] = (struct cg_bytes){ out->body, out->body_len };
        if (out->has_raw)
                frames[n++] = (struct cg_bytes){ out->raw, out->raw_len };
        for (size_t i = 0; out->has_raw && i < out->n_more; i++)
                frames[n++] = out->more[i];
        for (size_t i = 0; i < n; i++) {
                len += HEAD_MAX + frames[i].len;
                room += HEAD_MAX + (is_kept(release, i, frames[i].len) ? 0 : frames[i].len);
        }
        if (c->deaf || c->fd < 0)
                return cg_fail(err, CG_E_CLOSED, "the peer reads no more");
        if (len + OUT_COST > c->max || c->queued > c->max - len - OUT_COST)
                return CG_TIMEOUT;
        /* Two pieces for a frame: one that its owner keeps has its head in the block. */
        o = malloc(sizeof(*o) + 2 * n * sizeof(o->pieces[0]) + room);
        if (!o)
                return cg_fail(err, CG_E_NOMEM, "message");
        *o = (struct cg_zconn_out){ .release = release, .owner = owner };
        o->end = (unsigned char *)(o->pieces + 2 * n);
        for (size_t i = 0; i < n; i++)
                add_frame(o, frames[i].data, frames[i].len, is_kept(release, i, frames[i].len), i + 1 < n);
        append(c, o);
        return 0;
}

struct moved {
        size_t n;
        struct cg_frame *frames[];
};

static void release_moved(void *owner)
{
        struct moved *v = owner;

        for (size_t i = 0; i < v->n; i++)
                cg_frame_unref(v->frames[i]);
        free(v);
}

int cg_zconn_put_frames(struct cg_zconn *c, const struct cg_out *out, struct cg_msg *m, struct cg_err *err)
{
        size_t n = m->n_frames > 1 ? m->n_frames - 1 : 0;
        struct moved *v = malloc(sizeof(*v) + n * sizeof(v->frames[0]));
        struct cg_bytes more[CG_MAX_FRAMES];
        struct cg_out o = *out;
        int r;

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "message");
        for (v->n = 0; v->n < n; v->n++) {
                v->frames[v->n] = CG_STEAL(m->frames[v->n + 1]);
                more[v->n] = cg_frame_bytes(v->frames[v->n]);
        }
        o.has_raw = n > 0;
        o.raw = n ? more[0].data : NULL;
        o.raw_len = n ? more[0].len : 0;
        o.more = more + 1;
        o.n_more = n ? n - 1 : 0;
        r = cg_zconn_put(c, &o, release_moved, v, err);
        if (r == 0)
                return 0;
        for (size_t i = 0; i < n; i++)
                m->frames[i + 1] = CG_STEAL(v->frames[i]);
        release_moved(v);
        return r;
}

/* ---- reading */

static void use(struct cg_zconn *c, size_t n)
{
        c->in_pos += n;
        if (c->in_pos == c->in_len)
                c->in_pos = c->in_len = 0;
}

static void end(struct cg_zconn *c, const struct cg_err *err)
{
        c->ended = true;
        c->in_pos = c->in_len = 0;
        cg_msg_fini(&c->msg);
        c->ops->on_end(c, err);
}

/* The frame under construction has all its bytes. */
static void frame_done(struct cg_zconn *c, int *messages)
{
        if (c->more)
                return;
        c->has_header = false;
        ++*messages;
        c->ops->on_msg(c, &c->msg);
        cg_msg_fini(&c->msg);
}

static unsigned char *missing(struct cg_zconn *c)
{
        struct cg_frame *f = c->msg.frames[c->msg.n_frames - 1];

        return (unsigned char *)f->data + (f->len - c->left);
}

static int parse_command(struct cg_zconn *c, const unsigned char *p, size_t n, size_t size,
                         struct cg_err *err)
{
        static const char ready[] = "\5READY";

        if (size > MAX_COMMAND)
                return cg_fail(err, CG_E_PROTO, "%s wire: command of %zu bytes", c->wire->name, size);
        if (n < size)
                return 0;
        if (c->state == CG_ZCONN_HANDSHAKE) {
                if (size < sizeof(ready) - 1 || memcmp(p, ready, sizeof(ready) - 1) != 0)
                        return cg_fail(err, CG_E_PROTO, "%s wire: the handshake failed", c->wire->name);
                c->state = CG_ZCONN_OPEN;
        }
        return 1;
}

/* Handles the head of a frame, and all of a command or of a message's header. */
static int parse_frame(struct cg_zconn *c, const unsigned char *p, size_t n, int *messages,
                       struct cg_err *err)
{
        size_t head = p[0] & FLAG_LONG ? HEAD_MAX : 2;
        bool more = p[0] & FLAG_MORE;
        struct cg_msg *m = &c->msg;
        uint64_t size = 0;
        int r;

        if (p[0] & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND) || (p[0] & FLAG_COMMAND && more))
                return cg_fail(err, CG_E_PROTO, "%s wire: frame with flags %#x", c->wire->name, p[0]);
        if (!(p[0] & FLAG_COMMAND) && c->state != CG_ZCONN_OPEN)
                return cg_fail(err, CG_E_PROTO, "%s wire: a message before the end of the handshake",
                               c->wire->name);
        if (n < head)
                return 0;
        for (size_t i = 1; i < head; i++)
                size = size << 8 | p[i];
        if (p[0] & FLAG_COMMAND) {
                r = parse_command(c, p + head, n - head, size, err);
                if (r > 0)
                        use(c, head + size);
                return r;
        }
        if (!c->has_header) {
                if (size == CG_WIRE_HEADER && n - head < size)
                        return 0;
                r = cg_msg_start(m, c->wire, c->sender, p + head, size, err);
                if (r < 0)
                        return r;
                if (!more)
                        return cg_fail(err, CG_E_PROTO, "message without a body");
                c->has_header = true;
                c->raw_total = 0;
                use(c, head + size);
                return 1;
        }
        /* The table is asked before memory is allocated; the bytes follow. */
        r = cg_msg_check_frame(m, m->n_frames, size, c->raw_total, more, err);
        if (r < 0)
                return r;
        m->frames[m->n_frames] = size ? cg_frame_new(size) : NULL;
        if (size && !m->frames[m->n_frames])
                return cg_fail(err, CG_E_NOMEM, "message of %zu bytes", (size_t)size);
        if (m->n_frames)
                c->raw_total += size;
        m->n_frames++;
        c->left = size;
        c->more = more;
        use(c, head);
        if (!size)
                frame_done(c, messages);
        return 1;
}

/* Handles one piece of the bytes read: 1; 0 when it is not complete; negative. */
static int parse(struct cg_zconn *c, int *messages, struct cg_err *err)
{
        static const unsigned char null_mechanism[20] = "NULL";
        const unsigned char *p = c->in + c->in_pos;
        size_t n = c->in_len - c->in_pos;

        if (!n)
                return 0;
        if (c->left) {
                if (n > c->left)
                        n = c->left;
                memcpy(missing(c), p, n);
                c->left -= n;
                use(c, n);
                if (!c->left)
                        frame_done(c, messages);
                return 1;
        }
        if (c->state == CG_ZCONN_GREETING) {
                if (n < GREETING_LEN)
                        return 0;
                if (p[0] != 0xff || p[9] != 0x7f || p[10] < 3 ||
                    memcmp(p + 12, null_mechanism, sizeof(null_mechanism)) != 0)
                        return cg_fail(err, CG_E_PROTO, "%s wire: not a greeting of ZMTP 3", c->wire->name);
                c->state = CG_ZCONN_HANDSHAKE;
                use(c, GREETING_LEN);
                return 1;
        }
        return parse_frame(c, p, n, messages, err);
}

/* Reads once; a large frame is not copied. 0; CG_TIMEOUT when nothing can be read; negative. */
static int fill(struct cg_zconn *c, int *messages, struct cg_err *err)
{
        bool direct = c->left >= IN_SIZE && !c->in_len;
        unsigned char *to;
        size_t room;
        ssize_t n;

        if (c->in_pos) {
                memmove(c->in, c->in + c->in_pos, c->in_len - c->in_pos);
                c->in_len -= c->in_pos;
                c->in_pos = 0;
        }
        to = direct ? missing(c) : c->in + c->in_len;
        room = direct ? c->left : IN_SIZE - c->in_len;
        do
                n = recv(c->fd, to, room, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n == 0 || (n < 0 && errno == ECONNRESET))
                return cg_fail(err, CG_E_CLOSED, "it closed its connection of the %s wire", c->wire->name);
        if (n < 0)
                return cg_fail_errno(err, "%s wire", c->wire->name);
        c->drained = (size_t)n < room;
        c->received += (uint64_t)n;
        if (!direct) {
                c->in_len += (size_t)n;
        } else {
                c->left -= (size_t)n;
                if (!c->left)
                        frame_done(c, messages);
        }
        return 0;
}

/* Reads from the socket until so many bytes were received, ever. */
static void read_until(struct cg_zconn *c, int budget, bool count_reads, uint64_t until)
{
        struct cg_err err = { 0 };
        int used = 0;

        if (c->serving)
                return;
        c->serving = true;
        c->again = true;
        c->drained = false;
        while (used < budget && !c->paused && !c->ended && !cg_zconn_holds(c)) {
                int r = parse(c, &used, &err);

                /* a short read has emptied the socket: poll reports further data */
                if (r == 0) {
                        r = c->drained || c->received >= until ? CG_TIMEOUT : fill(c, &used, &err);
                        if (r == CG_TIMEOUT) {
                                c->again = false;
                                break;
                        }
                        used += count_reads;
                }
                if (r < 0)
                        end(c, &err);
        }
        c->serving = false;
}

void cg_zconn_read(struct cg_zconn *c, int budget, bool count_reads)
{
        read_until(c, budget, count_reads, UINT64_MAX);
}

void cg_zconn_catch_up(struct cg_zconn *c)
{
        int waiting = 0;

        ioctl(c->fd, SIOCINQ, &waiting);
        read_until(c, INT_MAX, false, c->received + (uint64_t)waiting);
}

/* ---- its beginning and end */

int cg_zconn_init(struct cg_zconn *c, int fd, const struct cg_wire *wire, unsigned sender, size_t max,
                  const struct cg_zconn_ops *ops, struct cg_err *err)
{
        static const unsigned char greeting[GREETING_LEN] = { 0xff, 0,    0, 0, 0,   0,   0,   0,
                                                              1,    0x7f, 3, 0, 'N', 'U', 'L', 'L' };
        /* and the NUL */
        static const char ready[] = "\5READY"
                                    "\13Socket-Type"
                                    "\0\0\0\6"
                                    "DEALER"
                                    "\10Identity"
                                    "\0\0\0";
        static const unsigned char head[2] = { FLAG_COMMAND, sizeof(ready) };
        struct cg_zconn_out *o = malloc(sizeof(*o) + sizeof(o->pieces[0]) + sizeof(greeting) + sizeof(head) +
                                        sizeof(ready));

        *c = (struct cg_zconn){ .wire = wire, .sender = sender, .max = max, .ops = ops, .fd = fd };
        c->last = &c->first;
        c->in = malloc(IN_SIZE);
        if (!c->in || !o) {
                free(o);
                cg_zconn_fini(c);
                return cg_fail(err, CG_E_NOMEM, "connection");
        }
        *o = (struct cg_zconn_out){ .end = (unsigned char *)(o->pieces + 1) };
        add_bytes(o, greeting, sizeof(greeting));
        add_bytes(o, head, sizeof(head));
        add_bytes(o, ready, sizeof(ready));
        append(c, o);
        c->greeting = true;
        return 0;
}

void cg_zconn_fini(struct cg_zconn *c)
{
        if (c->fd < 0)
                return;
        cg_zconn_drop(c);
        cg_msg_fini(&c->msg);
        free(CG_STEAL(c->in));
        close(cg_steal_fd(&c->fd));
}
