/* The channels and frames of a relay. See relay.h. */
#include "relay/relay.h"

#include <endian.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/text.h"

/* Bytes of a channel that may be under way or wait, so that none stops the others. */
#define WINDOW (1u << 20)
/* The most bytes of a frame. */
#define PIECE 65536u
/* While so much waits for the link, nothing is read from channels. */
#define UNSENT_MAX (1u << 20)
/*
 * While so much was sent and not acknowledged, nothing is read from channels either. More than the
 * limit is reached by a side only that goes on sending and acknowledges nothing.
 */
#define KEPT_MAX   (8u << 20)
#define KEPT_LIMIT (4 * (size_t)KEPT_MAX)
/* An ACK is sent after so many bytes. */
#define ACK_BYTES (256u << 10)
/* Silence after which a frame is sent. */
#define PING_MS 5000
/* For what is left at the end. */
#define LAST_MS 5000
#define HEAD    8
/* The log is copied in pieces that a pipe takes once it can be written; at the end, all of it. */
#define LOG_PIECE  4096
#define LOG_PIECES 16

/*
 * CREDIT: its length is a number of bytes. STOP: nobody reads it. OPEN: has a socket's number. ACK:
 * has the number of the byte that is expected next.
 */
enum frame { DATA, END, STOP, CREDIT, OPEN, PING, ACK };

static uint32_t get32(const char *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return be32toh(v);
}

static void set_nonblocking(int fd)
{
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static size_t unsent(const struct cg_link *r)
{
        return r->kept.len - r->sent;
}

static void put_frame(struct cg_link *r, uint32_t channel, enum frame type, uint32_t len, const void *data)
{
        uint32_t head[] = { htobe32(channel), htobe32((uint32_t)type << 24 | len) };

        r->is_line = false;
        cg_buf_add(&r->kept, head, sizeof(head));
        if (data)
                cg_buf_add(&r->kept, data, len);
}

/* ------------------------------------------------------------------ channels */

static struct cg_link_channel *find(struct cg_link *r, uint32_t number)
{
        for (size_t i = 0; i < CG_LINK_CHANNELS; i++)
                if (r->channels[i].used && r->channels[i].number == number)
                        return &r->channels[i];
        return NULL;
}

/* Takes @fd (-1: nobody reads or writes it). NULL: too many. */
static struct cg_link_channel *add(struct cg_link *r, uint32_t number, int fd)
{
        struct cg_link_channel *c = r->channels;

        while (c < r->channels + CG_LINK_CHANNELS && c->used)
                c++;
        if (c == r->channels + CG_LINK_CHANNELS) {
                cg_closep_(&fd);
                return NULL;
        }
        if (fd >= 0)
                set_nonblocking(fd);
        *c = (struct cg_link_channel){ .used = true, .number = number, .fd = fd, .room = WINDOW };
        cg_buf_init(&c->out, WINDOW);
        r->next = number + 1;
        return c;
}

static void release(struct cg_link_channel *c)
{
        cg_closep_(&c->fd);
        cg_buf_fini(&c->out);
        c->used = false;
}

/* Writes all queued data; then cg_link_run() ends. */
static void begin_end(struct cg_link *r)
{
        if (!r->end_ms)
                r->end_ms = cg_now_ms() + LAST_MS;
}

static void end_reading(struct cg_link *r, struct cg_link_channel *c)
{
        if (c->read_end)
                return;
        c->read_end = true;
        put_frame(r, c->number, END, 0, NULL);
        if (c->number < CG_LINK_FIRST)
                begin_end(r);
        if (c->number == CG_LINK_WIRE)
                r->end_at = r->base + r->kept.len;
}

static void give_credit(struct cg_link *r, struct cg_link_channel *c, size_t n)
{
        c->owed += (uint32_t)n;
        if (c->owed < WINDOW / 4)
                return;
        put_frame(r, c->number, CREDIT, c->owed, NULL);
        c->owed = 0;
}

static void put_ack(struct cg_link *r)
{
        uint64_t number = htobe64(r->received);

        put_frame(r, 0, ACK, sizeof(number), &number);
        r->told = r->received;
}

/* Nobody reads @c here: its writer at the other side is told. */
static void stop(struct cg_link *r, struct cg_link_channel *c)
{
        if (c->stopped)
                return;
        c->stopped = true;
        give_credit(r, c, c->out.len - c->written);
        cg_buf_clear(&c->out);
        c->written = 0;
        put_frame(r, c->number, STOP, 0, NULL);
        if (c->number < CG_LINK_FIRST)
                begin_end(r);
}

/* Writes @data; returns how much was taken. Nothing, and stop(), where nobody reads it. */
static size_t write_some(struct cg_link *r, struct cg_link_channel *c, const char *data, size_t len)
{
        ssize_t n = len ? send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

        if (n < 0 && errno != EAGAIN && errno != EINTR)
                stop(r, c);
        if (n <= 0)
                return 0;
        give_credit(r, c, (size_t)n);
        return (size_t)n;
}

static void flush(struct cg_link *r, struct cg_link_channel *c)
{
        if (c->out.len > c->written)
                c->written += write_some(r, c, c->out.data + c->written, c->out.len - c->written);
        if (c->stopped || c->written == c->out.len) {
                cg_buf_clear(&c->out);
                c->written = 0;
        }
}

/* Sockets that the host has sent: each becomes a channel. */
static void take_sockets(struct cg_link *r)
{
        struct cg_link_channel *life = find(r, CG_LINK_LIFE);

        while (!life->read_end) {
                char number[8];
                size_t n_fds = 1;
                struct cg_err err;
                int fd = -1;
                ssize_t n = cg_recv_fds(life->fd, number, sizeof(number), &fd, &n_fds, &err);
                uint32_t channel = r->next;

                if (n < 0 && err.sys_errno == EAGAIN)
                        return;
                if (n < 0 && err.code == CG_E_LIMIT) /* no room for a descriptor: its command fails */
                        continue;
                if (n != sizeof(number) || n_fds != 1) { /* the host has ended */
                        cg_closep_(&fd);
                        end_reading(r, life);
                        return;
                }
                if (add(r, channel, fd)) /* else the command says that its socket is missing */
                        put_frame(r, channel, OPEN, sizeof(number), number);
        }
}

static void read_channel(struct cg_link *r, struct cg_link_channel *c)
{
        CG_UNINITIALIZED char piece[PIECE];
        ssize_t n;

        if (r->host && c->number == CG_LINK_LIFE) {
                take_sockets(r);
                return;
        }
        n = recv(c->fd, piece, CG_MIN(c->room, PIECE), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                end_reading(r, c);
                return;
        }
        /* A socket is sent before the request that needs it, and arrives before that. */
        if (r->host && c->number == CG_LINK_WIRE)
                take_sockets(r);
        c->room -= (uint32_t)n;
        put_frame(r, c->number, DATA, (uint32_t)n, piece);
}

/* ------------------------------------------------------------------ frames */

static int violation(const char *what, struct cg_err *err)
{
        return cg_fail(err, CG_E_PROTO, "the other relay broke the protocol: %s", what);
}

/* At the node: a socket of the host. The supervisor gets the other end of a pair. */
static void open_socket(struct cg_link *r, uint32_t number, const char *data)
{
        const struct cg_link_channel *life = find(r, CG_LINK_LIFE);
        int fds[2] = { -1, -1 };
        struct cg_link_channel *c;
        struct cg_err err;
        bool sent;

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                fds[0] = fds[1] = -1;
        sent = fds[1] >= 0 && cg_send_fds(life->fd, data, 8, &fds[1], 1, &err) >= 0;
        cg_closep_(&fds[1]);
        if (!sent)
                cg_closep_(&fds[0]);
        c = add(r, number, fds[0]);
        if (c && !sent) { /* the command says that its socket is missing */
                stop(r, c);
                end_reading(r, c);
        }
}

static int take_data(struct cg_link *r, struct cg_link_channel *c, const char *data, size_t len,
                     struct cg_err *err)
{
        size_t n = 0;

        if (c->write_end || c->out.len - c->written + c->owed + len > WINDOW)
                return violation("more than it was allowed to send", err);
        if (!c->out.len && !c->stopped)
                n = write_some(r, c, data, len);
        if (c->stopped) {
                give_credit(r, c, len - n);
                return 0;
        }
        if (c->written && c->out.len + len - n > WINDOW) {
                cg_buf_consume(&c->out, c->written);
                c->written = 0;
        }
        return cg_buf_try_add(&c->out, data + n, len - n, err);
}

/* The other side has all bytes before the @number-th. */
static int acknowledge(struct cg_link *r, uint64_t number, struct cg_err *err)
{
        if (number > r->base + r->sent)
                return violation("it has received what was not sent", err);
        if (number > r->base + r->acked)
                r->acked = (size_t)(number - r->base);
        if (r->acked < UNSENT_MAX && r->acked < r->kept.len)
                return 0;
        cg_buf_consume(&r->kept, r->acked);
        r->base += r->acked;
        r->sent -= r->acked;
        r->acked = 0;
        return 0;
}

static int take_frame(struct cg_link *r, uint32_t number, enum frame type, uint32_t len, const char *data,
                      struct cg_err *err)
{
        struct cg_link_channel *c = find(r, number);

        switch (type) {
        case PING:
                return 0;
        case ACK:
                if (len != 8)
                        return violation("an acknowledgement of another length", err);
                return acknowledge(r, (uint64_t)get32(data) << 32 | get32(data + 4), err);
        case OPEN:
                if (r->host || number < r->next || len != 8)
                        return violation("a channel that cannot be opened", err);
                open_socket(r, number, data);
                return 0;
        case CREDIT:
                if (c && len > WINDOW - c->room)
                        return violation("more taken than was sent", err);
                if (c)
                        c->room += len;
                return 0;
        case STOP:
                if (c && c->fd >= 0)
                        shutdown(c->fd, SHUT_RD); /* its writer gets EPIPE */
                if (c)
                        end_reading(r, c);
                return 0;
        case END:
                if (!c || c->write_end)
                        return violation("a channel that ended twice", err);
                c->write_end = true;
                if (number < CG_LINK_FIRST) {
                        put_ack(r); /* the other side waits for it */
                        begin_end(r);
                }
                return 0;
        case DATA:
                return c ? take_data(r, c, data, len, err) : violation("bytes of no channel", err);
        }
        return violation("a frame of no known type", err);
}

static int take_frames(struct cg_link *r, struct cg_err *err)
{
        size_t at = 0;
        int ret = 0;

        while (ret == 0 && r->got.len - at >= HEAD) {
                const char *p = r->got.data + at;
                uint32_t word = get32(p + 4), len = word & 0xffffff;
                enum frame type = (enum frame)(word >> 24);
                uint32_t bytes = type == CREDIT ? 0 : len;

                if (bytes > PIECE)
                        return violation("a frame that is too long", err);
                if (r->got.len - at - HEAD < bytes)
                        break;
                ret = take_frame(r, get32(p), type, len, p + HEAD, err);
                at += HEAD + bytes;
        }
        cg_buf_consume(&r->got, at);
        return ret;
}

/* ------------------------------------------------------------------ the link */

/* CG_CLOSED: the other side has closed it. */
static int read_link(struct cg_link *r, struct cg_err *err)
{
        char *room;
        int code = cg_buf_reserve(&r->got, PIECE, &room, err);
        ssize_t n;

        if (code < 0)
                return code;
        n = read(r->in, room, PIECE);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0)
                return CG_CLOSED;
        r->got.len += (size_t)n;
        r->received += (size_t)n;
        r->heard_ms = cg_now_ms();
        return 0;
}

static int write_link(struct cg_link *r, struct cg_err *err)
{
        /* srun keeps what is no whole line. */
        if (unsent(r) && !r->is_line)
                put_frame(r, 0, PING, 1, "\n");
        r->is_line = true;
        while (unsent(r)) {
                ssize_t n = write(r->out, r->kept.data + r->sent, unsent(r));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return 0;
                if (n < 0)
                        return cg_fail_errno(err, "the connection to the other side");
                r->sent += (size_t)n;
                r->said_ms = cg_now_ms();
        }
        return r->renew ? 0 : acknowledge(r, r->base + r->sent, err);
}

int cg_link_send_line(const struct cg_link *r, json_t *o, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_LINK_LINE_MAX };
        cg_auto_free char *text = NULL;
        size_t len = 0;
        int flags = fcntl(r->out, F_GETFL), ret;

        text = cg_json_text(o, &len);
        json_decref(o);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "first line");
        cg_buf_adds(&b, CG_LINK_LINE);
        cg_buf_add(&b, text, len);
        cg_buf_adds(&b, "\n");
        ret = cg_buf_end(&b, err);
        if (ret < 0)
                return ret;
        fcntl(r->out, F_SETFL, flags & ~O_NONBLOCK);
        ret = cg_write_all(r->out, b.data, b.len, err);
        fcntl(r->out, F_SETFL, flags);
        return ret;
}

/* The line in r->got that begins as it must, and the one after it; NULL: it has not come whole. */
static char *find_line(struct cg_link *r, char **next)
{
        char *p = r->got.data, *end = p + r->got.len, *newline;

        for (; p && p < end; p = newline + 1) {
                newline = memchr(p, '\n', (size_t)(end - p));
                if (!newline)
                        return NULL;
                *next = newline + 1;
                if (strncmp(p, CG_LINK_LINE, sizeof(CG_LINK_LINE) - 1) == 0)
                        return p + sizeof(CG_LINK_LINE) - 1;
        }
        return NULL;
}

/* Says what came instead of the line. */
static int no_line(const struct cg_link *r, int code, const char *how, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 };

        cg_text_render_as(&b, cg_buf_str(&r->got), CG_MIN(r->got.len, 300), 0, CG_TEXT_LINE);
        return cg_fail(err, code, "%s%s%s", how, b.len ? "; it printed: " : "", cg_buf_str(&b));
}

int cg_link_read_line(struct cg_link *r, int life, int64_t timeout_ms, json_t **ret, struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms, left;
        char *line, *next;
        int code;

        cg_buf_init(&r->got, CG_LINK_LINE_MAX + PIECE);
        while (!(line = find_line(r, &next))) {
                struct pollfd p[] = { { .fd = r->in, .events = POLLIN },
                                      { .fd = life, .events = POLLRDHUP } };

                left = end - cg_now_ms();
                if (left <= 0)
                        return no_line(r, CG_E_TIMEDOUT, "no relay of cellgate answered in time", err);
                if (poll(p, CG_ARRAY_LEN(p), (int)CG_MIN(left, 60000)) < 0 && errno != EINTR)
                        return cg_fail_errno(err, "poll");
                if (p[1].revents)
                        return cg_fail(err, CG_E_CLOSED, "the host has ended");
                if (!p[0].revents)
                        continue;
                if (r->got.len > CG_LINK_LINE_MAX)
                        return no_line(r, CG_E_PROTO, "the other side is no relay of cellgate", err);
                code = read_link(r, err);
                if (code == CG_CLOSED)
                        return no_line(r, CG_E_CLOSED, "it ended before a relay of cellgate answered", err);
                if (code < 0)
                        return code;
        }
        code = cg_json_object(line, (size_t)(next - line), "the other relay's first line", ret, err);
        cg_buf_consume(&r->got, (size_t)(next - r->got.data));
        return code;
}

/* ------------------------------------------------------------------ the loop */

/* Else, in the end, the supervisor has, whose last messages may come after the lifeline's end. */
static bool host_ended(const struct cg_link *r)
{
        const struct cg_link_channel *life = &r->channels[CG_LINK_LIFE];

        return r->host ? life->read_end : life->write_end;
}

/* Everything that can still come has come, is written, and is known to have arrived. */
static bool is_done(const struct cg_link *r)
{
        const struct cg_link_channel *wire = &r->channels[CG_LINK_WIRE];
        bool last = r->host ? wire->write_end || r->closed
                            : wire->read_end && r->base + r->acked >= r->end_at;

        for (size_t i = 0; i < CG_LINK_CHANNELS; i++)
                if (r->channels[i].used && r->channels[i].out.len)
                        return false;
        return !unsent(r) && (host_ended(r) || last);
}

static void settle(struct cg_link_channel *c)
{
        if (c->write_end && !c->out.len && !c->stopped && !c->shut && c->fd >= 0) {
                shutdown(c->fd, SHUT_WR);
                c->shut = true;
        }
        if (c->number >= CG_LINK_FIRST && c->read_end && c->write_end && !c->out.len)
                release(c);
}

static bool reads(const struct cg_link *r, const struct cg_link_channel *c)
{
        if (!c->used || c->read_end || !c->room || unsent(r) > UNSENT_MAX ||
            r->kept.len - r->acked > KEPT_MAX)
                return false;
        return !r->end_ms || (!r->host && c->number == CG_LINK_WIRE);
}

static int poll_timeout(const struct cg_link *r)
{
        int64_t until = r->heard_ms + CG_LINK_LOST_MS;

        if (!unsent(r)) /* else the next one is sent when it can be written */
                until = CG_MIN(until, r->said_ms + PING_MS);
        if (r->end_ms)
                until = CG_MIN(until, r->end_ms);
        return (int)CG_MAX(until - cg_now_ms(), 0);
}

int cg_link_resume(struct cg_link *r, int in, int out, uint64_t received, const struct cg_buf *got,
                   struct cg_err *err)
{
        if (received < r->base + r->acked || received > r->base + r->sent)
                return violation("it goes on at another place", err);
        cg_closep_(&r->in);
        cg_closep_(&r->out);
        r->in = in;
        r->out = out;
        set_nonblocking(in);
        set_nonblocking(out);
        r->told = r->received; /* by the line */
        r->received += got->len;
        cg_buf_add(&r->got, got->data, got->len);
        r->sent = (size_t)(received - r->base);
        r->heard_ms = r->said_ms = cg_now_ms();
        if (r->end_ms)
                r->end_ms = r->heard_ms + LAST_MS;
        return acknowledge(r, received, err);
}

static bool can_renew(const struct cg_link *r)
{
        return r->renew && !host_ended(r) && !r->channels[CG_LINK_WIRE].write_end;
}

/* The link is lost with @ret: 0 where another one takes its place. */
static int lose(struct cg_link *r, int ret, struct cg_err *err)
{
        if (!can_renew(r))
                return ret;
        ret = r->renew(r, true, err);
        if (ret < 0)
                return ret;
        return take_frames(r, err);
}

/* Data of the link, or its end. */
static int hear(struct cg_link *r, bool ready, struct cg_err *err)
{
        int ret = ready ? read_link(r, err) : 0;

        if (!ready && !r->closed && cg_now_ms() >= r->heard_ms + CG_LINK_LOST_MS)
                ret = lose(r,
                           cg_fail(err, CG_E_TIMEDOUT, "nothing came from the other side for %d s",
                                   CG_LINK_LOST_MS / 1000),
                           err);
        else if (ret == CG_CLOSED)
                ret = lose(r, CG_CLOSED, err);
        if (ret != CG_CLOSED)
                return ret < 0 ? ret : take_frames(r, err);
        r->closed = true;
        begin_end(r);
        return r->host ? 0 : CG_CLOSED;
}

static void serve(struct cg_link *r, struct cg_link_channel *c, const struct pollfd *p)
{
        if (!c->used)
                return;
        if ((p->revents & (POLLIN | POLLHUP | POLLERR)) && (p->events & POLLIN) && !c->read_end)
                read_channel(r, c);
        flush(r, c);
        settle(c);
}

/* Drops what nobody takes, as that of a link that is lost. */
static void copy_log(struct cg_link *r)
{
        char text[LOG_PIECE];
        ssize_t n = read(r->log, text, sizeof(text));

        if (n <= 0)
                cg_closep_(&r->log);
        else if (cg_wait_fd(STDERR_FILENO, POLLOUT, 0, NULL) == 0)
                cg_write_all(STDERR_FILENO, text, (size_t)n, NULL);
}

/* Writes what is for the link. CG_CLOSED: the end. */
static int say(struct cg_link *r, struct cg_err *err)
{
        int ret = r->closed || r->mute ? 0 : write_link(r, err);

        if (ret < 0) {
                ret = lose(r, CG_CLOSED, err);
                r->mute = ret == CG_CLOSED; /* what was sent before its end can still be read */
        }
        if (r->closed || r->mute) {
                r->base += r->kept.len;
                cg_buf_clear(&r->kept);
                r->sent = r->acked = 0;
                r->said_ms = cg_now_ms();
        }
        return CG_MIN(ret, 0);
}

static struct pollfd watched(bool on, int fd, short events)
{
        return (struct pollfd){ .fd = on ? fd : -1, .events = events };
}

/* One round. CG_CLOSED: the end. */
static int step(struct cg_link *r, struct cg_err *err)
{
        struct pollfd p[CG_LINK_CHANNELS + 4], *in = &p[CG_LINK_CHANNELS], *out = in + 1, *listener = in + 2,
                                               *log = in + 3;
        int ret;

        for (size_t i = 0; i < CG_LINK_CHANNELS; i++) {
                const struct cg_link_channel *c = &r->channels[i];
                bool read = reads(r, c), write = c->used && c->out.len;

                p[i] = watched(read || write, c->fd, (short)(POLLIN * read | POLLOUT * write));
        }
        *in = watched(!r->closed, r->in, POLLIN);
        *out = watched(unsent(r), r->out, POLLOUT);
        *listener = watched(can_renew(r), r->listener, POLLIN);
        *log = watched(r->log > 0, r->log, POLLIN);
        if (poll(p, CG_ARRAY_LEN(p), poll_timeout(r)) < 0) {
                if (errno == EINTR)
                        return 0;
                return cg_fail_errno(err, "poll");
        }
        if (log->revents)
                copy_log(r);
        ret = listener->revents ? r->renew(r, false, err) : CG_TIMEOUT;
        if (ret >= 0)
                ret = hear(r, in->revents && ret == CG_TIMEOUT, err);
        for (size_t i = 0; i < CG_LINK_CHANNELS; i++)
                serve(r, &r->channels[i], &p[i]);
        if (ret != 0)
                return ret;
        if (cg_now_ms() >= r->said_ms + PING_MS && !unsent(r))
                put_frame(r, 0, PING, 0, NULL);
        if (r->renew && r->received - r->told >= ACK_BYTES)
                put_ack(r);
        ret = say(r, err);
        if (ret == 0 && r->end_ms && is_done(r))
                return CG_CLOSED;
        if (ret == 0 && r->end_ms && cg_now_ms() >= r->end_ms)
                ret = lose(r, CG_CLOSED, err);
        return ret ?: cg_buf_end(&r->kept, err);
}

int cg_link_run(struct cg_link *r, int life, int wire, struct cg_err *err)
{
        bool told;
        int ret;

        cg_buf_init(&r->kept, KEPT_LIMIT);
        r->received = r->got.len;
        add(r, CG_LINK_LIFE, life);
        add(r, CG_LINK_WIRE, wire);
        set_nonblocking(r->in);
        set_nonblocking(r->out);
        r->heard_ms = r->said_ms = cg_now_ms();
        ret = take_frames(r, err);
        while (ret == 0)
                ret = step(r, err);
        told = r->channels[CG_LINK_LIFE].read_end || r->channels[CG_LINK_LIFE].write_end;
        for (size_t i = 0; i < CG_LINK_CHANNELS; i++)
                if (r->channels[i].used)
                        release(&r->channels[i]);
        if (ret < 0 || told)
                return CG_MIN(ret, 0);
        return cg_fail(err, CG_E_CLOSED, "the other side has ended");
}

void cg_link_fini(struct cg_link *r)
{
        for (int i = 0; i < LOG_PIECES && r->log > 0 && cg_wait_fd(r->log, POLLIN, 0, NULL) == 0; i++)
                copy_log(r);
        cg_closep_(&r->in);
        cg_closep_(&r->out);
        if (r->log > 0)
                close(r->log);
        cg_buf_fini(&r->got);
        cg_buf_fini(&r->kept);
}
