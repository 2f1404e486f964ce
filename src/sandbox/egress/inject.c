/*
 * The injector of cellgate-egress: replaces fakes by the real values of masked credentials. It
 * works between the relay and a server that may have them, as the decider has found, and is the
 * only part that knows them:
 *
 *      relay ── request, with a fake ──> injector ── with the secret ──> server
 *            <── response, unchanged ───          <─────────────────────
 *
 * It searches the fields of the request's head and its body for the bytes of fakes. The head ends
 * at an empty line; the framing of the body is the one that the relay wrote: a body that may change
 * its length comes in chunks, and goes on in others.
 */
#include "sandbox/egress/internal.h"

#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/buf.h"
#include "sandbox/egress/client.h"
#include "sandbox/egress/endpoint.h"
#include "sandbox/egress/flow.h"

/* The relay's heads: a client's, with a host, credentials of a parent proxy and the framing. */
#define HEAD_MAX  (2 * CG_HTTP_REQUEST_MAX)
#define FAKE_LEN  (sizeof(CG_EGRESS_FAKE) - 1)
#define MAX_PIPES 256
#define BURST     64

struct secret {
        uint32_t cred;
        const char *fake, *real;
        size_t fake_len, real_len;
        bool in_fields; /* the real value fits into a field: nothing in it ends a line */
};

struct box {
        LIST_ENTRY(box) entry;
        uint32_t number;
        char *mem; /* CG_EGRESS_SECRETS_BYTES, locked where that is allowed */
        struct secret *v;
        size_t n;
};

struct injector;
struct link;

enum state { HEAD, COUNTED, CHUNKED, DONE };

struct link {
        LIST_ENTRY(link) entry;
        struct injector *in;
        const struct box *box;
        uint8_t creds[CG_POLICY_CREDS_MAX / 8];
        struct cg_endpoint *relay, *server;
        enum state state;
        size_t scanned; /* HEAD */
        uint64_t left;  /* COUNTED */
        struct cg_chunked chunked;
        /* read, not replaced yet: the head, or the beginning of a fake */
        struct cg_buf hold;
        struct cg_buf out;  /* to the server */
        struct cg_buf none; /* nothing of the response was read before */
        struct cg_flow back;
};

struct injector {
        uv_loop_t loop;
        uv_poll_t chan_poll;
        int chan, status;
        LIST_HEAD(, box) boxes;
        LIST_HEAD(, link) links;
        struct cg_flow_common common;
};

/* ---- secrets */

static int index_secrets(struct box *b, size_t len)
{
        for (size_t at = 0; at < len;) {
                struct cg_egress_secret head;
                struct secret *s = &b->v[b->n];

                if (len - at < sizeof(head) || b->n == CG_EGRESS_SECRETS_MAX)
                        return -1;
                memcpy(&head, b->mem + at, sizeof(head));
                at += sizeof(head);
                if (head.cred >= CG_POLICY_CREDS_MAX || head.fake_len < FAKE_LEN ||
                    head.fake_len > CG_EGRESS_SECRET_MAX || head.real_len > head.fake_len ||
                    len - at < head.fake_len + head.real_len)
                        return -1;
                *s = (struct secret){ .cred = head.cred,
                                      .fake = b->mem + at,
                                      .fake_len = head.fake_len,
                                      .real_len = head.real_len };
                s->real = s->fake + s->fake_len;
                s->in_fields = true;
                for (size_t i = 0; i < s->real_len; i++) {
                        unsigned char c = (unsigned char)s->real[i];

                        if ((c < 0x20 && c != '\t') || c == 0x7f)
                                s->in_fields = false;
                }
                if (memcmp(s->fake, CG_EGRESS_FAKE, FAKE_LEN) != 0)
                        return -1;
                at += s->fake_len + s->real_len;
                b->n++;
        }
        return 0;
}

static void free_box(struct box *b)
{
        if (b->mem) {
                explicit_bzero(b->mem, CG_EGRESS_SECRETS_BYTES);
                munmap(b->mem, CG_EGRESS_SECRETS_BYTES);
        }
        free(b->v);
        free(b);
}

static int open_box(struct injector *in, uint32_t number, int fd)
{
        struct box *b = calloc(1, sizeof(*b));
        size_t len = 0;
        ssize_t n = 0;
        void *mem;

        if (!b)
                return -1;
        b->number = number;
        b->v = calloc(CG_EGRESS_SECRETS_MAX, sizeof(*b->v));
        mem = mmap(NULL, CG_EGRESS_SECRETS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        b->mem = mem == MAP_FAILED ? NULL : mem;
        while (b->v && b->mem && len < CG_EGRESS_SECRETS_BYTES) {
                n = read(fd, b->mem + len, CG_EGRESS_SECRETS_BYTES - len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                len += (size_t)n;
        }
        if (!b->v || !b->mem || n < 0 || index_secrets(b, len) < 0) {
                free_box(b);
                return -1;
        }
        /* Keeps secrets out of swap. Failure is accepted: the user may have a low limit. */
        (void)mlock(b->mem, len);
        LIST_INSERT_HEAD(&in->boxes, b, entry);
        return 0;
}

/* The secret whose fake begins at @p; *part: there may be one, were there more bytes. */
static const struct secret *at_fake(const struct link *l, const char *p, size_t len, bool field, bool *part)
{
        *part = false;
        for (size_t i = 0; i < l->box->n; i++) {
                const struct secret *s = &l->box->v[i];
                size_t n = CG_MIN(len, s->fake_len);

                if (!(l->creds[s->cred / 8] & 1u << (s->cred % 8)) || (field && !s->in_fields) ||
                    memcmp(p, s->fake, n) != 0)
                        continue;
                if (n == s->fake_len)
                        return s;
                *part = true;
        }
        return NULL;
}

/*
 * Copies @p to @out with fakes replaced. @last: nothing follows. Returns how much of it is done
 * with (all when @last); negative.
 */
static ssize_t replace(const struct link *l, const char *p, size_t len, bool field, bool last,
                       struct cg_buf *out)
{
        static const struct secret one = { .real_len = 1, .fake_len = 1 };
        size_t at = 0;

        while (at < len) {
                const char *f = memmem(p + at, len - at, CG_EGRESS_FAKE, FAKE_LEN);
                size_t plain = f ? (size_t)(f - p) : len;
                const struct secret *s = NULL;
                bool part = false;

                /* The end may be the beginning of a fake: it waits for more bytes. */
                if (!f && !last) {
                        plain -= CG_MIN(len - at, FAKE_LEN - 1);
                        while (plain < len && memcmp(p + plain, CG_EGRESS_FAKE, len - plain) != 0)
                                plain++;
                }
                if (cg_buf_try_add(out, p + at, plain - at, NULL) < 0)
                        return -1;
                at = plain;
                if (!f)
                        break;
                s = at_fake(l, f, len - at, field, &part);
                if (!s && part && !last)
                        break;
                if (!s)
                        s = &one; /* not a fake: its first byte stays */
                if (cg_buf_try_add(out, s->real ?: f, s->real_len, NULL) < 0)
                        return -1;
                at += s->fake_len;
        }
        return (ssize_t)at;
}

/* ---- requests */

static int put_data(struct link *l, const struct cg_buf *data, bool last)
{
        if (l->state != CHUNKED)
                return cg_buf_try_add(&l->out, data->data, data->len, NULL);
        if (cg_http_add_chunk(&l->out, data->data, data->len, NULL) < 0)
                return -1;
        return last ? cg_buf_try_adds(&l->out, CG_HTTP_LAST_CHUNK, NULL) : 0;
}

/* Moves the body bytes in @hold to @out, but for the beginning of a fake at their end. */
static int put_body(struct link *l, bool last)
{
        cg_auto_buf struct cg_buf data;
        ssize_t used;
        int r;

        cg_buf_init(&data, SIZE_MAX / 2);
        used = replace(l, l->hold.data, l->hold.len, false, last, &data);
        if (used < 0)
                return -1;
        cg_buf_consume(&l->hold, (size_t)used);
        r = put_data(l, &data, last);
        if (last)
                l->state = DONE;
        if (data.data)
                explicit_bzero(data.data, data.len);
        return r;
}

static int take_body(struct link *l, const char *p, size_t len)
{
        if (l->state == COUNTED) {
                if (len > l->left)
                        len = (size_t)l->left;
                l->left -= len;
                if (cg_buf_try_add(&l->hold, p, len, NULL) < 0)
                        return -1;
                return put_body(l, l->left == 0);
        }
        if (l->state != CHUNKED)
                return 0; /* bytes after the request are ignored */
        while (len) {
                struct cg_slice data;
                size_t used;
                int r = cg_chunked_next(&l->chunked, p, len, &used, &data, NULL);

                if (r < 0 || cg_buf_try_add(&l->hold, data.p, data.len, NULL) < 0)
                        return -1;
                if (r == CG_CHUNKED_END)
                        return put_body(l, true);
                p += used;
                len -= used;
        }
        return put_body(l, false);
}

/*
 * Copies the head to @l->out with fakes replaced in the values of its fields. The request line
 * stays as it is, because servers and proxies write URLs to their logs, and so do the fields'
 * names, which they write to their errors.
 */
static int put_head(struct link *l, const char *head, size_t len)
{
        const char *end = head + len, *value;

        for (const char *line = head, *next; line < end; line = next) {
                next = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1; /* it ends with one */
                value = line == head ? NULL : memchr(line, ':', (size_t)(next - line));
                if (!value)
                        value = next;
                if (cg_buf_try_add(&l->out, line, (size_t)(value - line), NULL) < 0 ||
                    replace(l, value, (size_t)(next - value), true, true, &l->out) < 0)
                        return -1;
        }
        return 0;
}

/* The response to TRACE is the request; TRACK is IIS's name for it. */
static bool is_echoed(const char *head)
{
        return strncasecmp(head, "TRACE ", 6) == 0 || strncasecmp(head, "TRACK ", 6) == 0;
}

static int take_head(struct link *l, const char *p, size_t len)
{
        static const char length[] = "\r\nContent-Length: ", chunked[] = "\r\nTransfer-Encoding: chunked\r\n";
        cg_auto_buf struct cg_buf rest = { .max = SIZE_MAX / 2 };
        const char *head, *found;
        size_t n;

        if (cg_buf_try_add(&l->hold, p, len, NULL) < 0 || !l->hold.data) /* never: gcc cannot see that */
                return -1;
        head = l->hold.data;
        n = cg_http_head_len(head, l->hold.len, &l->scanned);
        if (!n)
                return l->hold.len > HEAD_MAX ? -1 : 0;
        /*
         * The framing that the relay has written. No field of a client's can look the same: the
         * relay leaves those out.
         */
        l->state = DONE;
        found = memmem(head, n, length, sizeof(length) - 1);
        if (found)
                l->left = strtoull(found + sizeof(length) - 1, NULL, 10); /* ends at CR */
        if (l->left)
                l->state = COUNTED;
        else if (memmem(head, n, chunked, sizeof(chunked) - 1))
                l->state = CHUNKED;
        if (is_echoed(head))
                memset(l->creds, 0, sizeof(l->creds));
        if (put_head(l, head, n) < 0 || cg_buf_try_add(&rest, head + n, l->hold.len - n, NULL) < 0)
                return -1;
        l->hold.len = 0;
        return rest.len ? take_body(l, rest.data, rest.len) : 0;
}

/* ---- links */

static void wipe(struct cg_buf *b)
{
        if (b->data)
                explicit_bzero(b->data, b->cap);
        cg_buf_fini(b);
}

static void end_link(struct link *l)
{
        cg_flow_fini(&l->back, &l->in->common);
        l->relay = cg_endpoint_close(l->relay);
        l->server = cg_endpoint_close(l->server);
        wipe(&l->hold);
        wipe(&l->out);
        LIST_REMOVE(l, entry);
        free(l);
}

static void run(struct link *l)
{
        char *scratch = l->in->common.scratch;
        bool moved = false;
        int r = 0, server = 0, relay = UV_DISCONNECT;

        /* The request, as far as it comes and the server takes it. */
        for (int turn = 0; turn < BURST && r == 0; turn++) {
                ssize_t n;

                r = cg_flow_write(l->server->fd, &l->out, NULL);
                if (r == CG_TIMEOUT) {
                        r = 0;
                        break;
                }
                if (r < 0)
                        l->state = DONE; /* a server that reads no more may still answer */
                r = 0;
                wipe(&l->out);
                if (l->state == DONE)
                        break;
                n = recv(l->relay->fd, scratch, CG_FLOW_CHUNK, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n <= 0)
                        r = -1;
                else if (l->state == HEAD)
                        r = take_head(l, scratch, (size_t)n);
                else
                        r = take_body(l, scratch, (size_t)n);
        }
        if (r == 0 && !l->back.done)
                r = cg_flow_run(&l->back, &l->in->common, &moved, NULL);
        if (r < 0) {
                end_link(l);
                return;
        }
        l->back.want_read |= r == CG_TIMEOUT;
        if (l->state != DONE && !l->out.len)
                relay |= UV_READABLE;
        if (l->back.want_write)
                relay |= UV_WRITABLE;
        if (l->out.len)
                server |= UV_WRITABLE;
        if (l->back.want_read)
                server |= UV_READABLE;
        cg_endpoint_watch(l->relay, relay);
        cg_endpoint_watch(l->server, server);
}

static void on_end(uv_poll_t *h, int status, int events)
{
        struct cg_endpoint *e = h->data;
        struct link *l = e->owner;

        if (!l)
                return;
        if (status < 0)
                e->events = 0; /* the next read or write fails with its error */
        /* The relay closes its end when the client has gone, or has all of the answer. */
        if (e == l->relay && (events & UV_DISCONNECT) && !(events & UV_READABLE))
                end_link(l);
        else
                run(l);
}

/* Takes both descriptors. */
static void new_link(struct injector *in, const struct cg_egress_msg *m, int relay, int server)
{
        struct link *l = calloc(1, sizeof(*l));
        const struct box *b;

        if (!l) {
                close(relay);
                close(server);
                return;
        }
        l->in = in;
        LIST_FOREACH(b, &in->boxes, entry)
                if (b->number == m->box)
                        break;
        l->box = b;
        memcpy(l->creds, m->creds, sizeof(l->creds));
        cg_buf_init(&l->hold, HEAD_MAX + CG_EGRESS_SECRET_MAX + 2 * CG_FLOW_CHUNK);
        cg_buf_init(&l->out, HEAD_MAX + CG_EGRESS_SECRET_MAX + 4 * CG_FLOW_CHUNK);
        cg_buf_init(&l->none, CG_FLOW_CHUNK);
        cg_flow_init(&l->back, server, relay, CG_FLOW_ALL, &l->none);
        LIST_INSERT_HEAD(&in->links, l, entry);
        l->relay = cg_endpoint_new(&l->in->loop, relay, l, on_end);
        l->server = cg_endpoint_new(&l->in->loop, server, l, on_end);
        if (!l->relay || !l->server || !l->box)
                end_link(l);
        else
                run(l);
}

/* ---- the decider */

/* A malformed message is fatal: a fake that was left in place is hard to debug. */
static int on_message(struct injector *in, const struct cg_egress_msg *m, int *fds, size_t n)
{
        struct box *b;
        int r = -1;

        if (m->type == CG_EGRESS_INJECT && n == 2) {
                new_link(in, m, fds[0], fds[1]);
                return 0;
        }
        if (m->type == CG_EGRESS_BOX_OPEN && n == 1)
                r = open_box(in, m->box, fds[0]);
        if (m->type == CG_EGRESS_BOX_CLOSE) {
                r = 0;
                LIST_FOREACH(b, &in->boxes, entry)
                        if (b->number == m->box)
                                break;
                for (struct link *l = LIST_FIRST(&in->links), *next; b && l; l = next) {
                        next = LIST_NEXT(l, entry);
                        if (l->box == b)
                                end_link(l);
                }
                if (b) {
                        LIST_REMOVE(b, entry);
                        free_box(b);
                }
        }
        for (size_t i = 0; i < n; i++)
                close(fds[i]);
        return r;
}

static void on_chan(uv_poll_t *h, int status, int events)
{
        struct injector *in = h->data;
        int r = status < 0 ? CG_CLOSED : 0;

        for (int i = 0; i < BURST && r == 0; i++) {
                int fds[2];
                size_t n = 2;
                struct cg_egress_msg m;

                r = cg_egress_msg_recv(in->chan, &m, fds, &n, NULL) ?: on_message(in, &m, fds, n);
        }
        if (r == CG_CLOSED || r < 0) {
                in->status = r < 0;
                uv_stop(&in->loop);
        }
}

int cg_inject_run(int chan)
{
        static const struct cg_egress_msg ready = { .type = CG_EGRESS_READY };
        struct injector *in = calloc(1, sizeof(*in));
        struct cg_err err = { .msg = "" };

        if (in)
                in->common = (struct cg_flow_common){ .scratch = malloc(CG_FLOW_CHUNK),
                                                      .max_pipes = MAX_PIPES };
        if (!in || !in->common.scratch || uv_loop_init(&in->loop) < 0 ||
            uv_poll_init(&in->loop, &in->chan_poll, chan) < 0)
                return 1;
        in->chan = chan;
        in->chan_poll.data = in;
        if (cg_egress_lock_part(CG_EGRESS_INJECTOR, &err) < 0 ||
            cg_egress_msg_send(chan, &ready, NULL, 0, &err) != 0) {
                dprintf(STDERR_FILENO, "cellgate-egress: injector: %s\n", err.msg);
                return 1;
        }
        uv_poll_start(&in->chan_poll, UV_READABLE | UV_DISCONNECT, on_chan);
        uv_run(&in->loop, UV_RUN_DEFAULT);
        return in->status;
}
