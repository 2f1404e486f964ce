/*
 * Bytes from one socket to another. At first they are read and written; a direction that carries
 * much goes through a pipe by splice(), where the kernel only moves pages. Nothing is read while
 * what was read before cannot be written: the receiver's slowness becomes the sender's.
 */
#include "sandbox/egress/flow.h"

#include <sys/socket.h>

void cg_flow_init(struct cg_flow *f, int from, int to, enum cg_flow_mode mode, struct cg_buf *before)
{
        *f = (struct cg_flow){ .from = from, .to = to, .mode = mode, .before = before, .pipe = { -1, -1 } };
        /* A chunk's frame has at most 18 bytes; heads go through here as well. */
        cg_buf_init(&f->out, 4 * CG_FLOW_CHUNK + CG_HTTP_RESPONSE_MAX);
}

static void close_pipe(struct cg_flow *f, struct cg_flow_common *c)
{
        if (f->pipe[0] < 0)
                return;
        close(f->pipe[0]);
        close(f->pipe[1]);
        f->pipe[0] = f->pipe[1] = -1;
        c->n_pipes--;
}

void cg_flow_fini(struct cg_flow *f, struct cg_flow_common *c)
{
        close_pipe(f, c);
        cg_buf_fini(&f->out);
}

/* ---- writing */

int cg_flow_write(int fd, struct cg_buf *b, struct cg_err *err)
{
        while (b->len) {
                ssize_t n = send(fd, b->data, b->len, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return CG_TIMEOUT;
                if (n < 0)
                        return cg_fail_errno(err, "write");
                cg_buf_consume(b, (size_t)n);
        }
        return 0;
}

/* Writes the buffer and the pipe. 0: all is written; CG_TIMEOUT: the receiver is slow; negative. */
static int flush(struct cg_flow *f, struct cg_err *err)
{
        int r = cg_flow_write(f->to, &f->out, err);

        if (r != 0)
                return r;
        /* Connections are many and mostly idle. */
        cg_buf_fini(&f->out);
        while (f->piped) {
                ssize_t n = splice(f->pipe[0], NULL, f->to, NULL, f->piped,
                                   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return CG_TIMEOUT;
                if (n <= 0)
                        return cg_fail_errno(err, "splice");
                f->piped -= (size_t)n;
        }
        return 0;
}

/* Parses chunks and writes new ones: extensions, trailers and odd framing do not get through. */
static int take_chunks(struct cg_flow *f, const char *p, size_t len, size_t *used, struct cg_err *err)
{
        *used = 0;
        while (*used < len) {
                struct cg_slice data;
                size_t n;
                int status, r = cg_chunked_next(&f->chunked, p + *used, len - *used, &n, &data, err);

                if (r < 0)
                        return r;
                *used += n;
                status = f->plain ? cg_buf_try_add(&f->out, data.p, data.len, err)
                                  : cg_http_add_chunk(&f->out, data.p, data.len, err);
                if (r == CG_CHUNKED_END) {
                        f->source_done = true;
                        if (status == 0 && !f->plain)
                                return cg_buf_try_adds(&f->out, CG_HTTP_LAST_CHUNK, err);
                        return status;
                }
                if (status < 0)
                        return status;
        }
        return 0;
}

/* Passes on what was read, as far as it belongs to this flow: *used. */
static int take(struct cg_flow *f, const char *p, size_t len, size_t *used, struct cg_err *err)
{
        if (f->mode == CG_FLOW_CHUNKED)
                return take_chunks(f, p, len, used, err);
        if (f->mode == CG_FLOW_COUNTED) {
                len = CG_MIN(f->left, len);
                f->left -= len;
                f->source_done = f->left == 0;
        }
        *used = len;
        if (f->wrap) {
                int r = cg_http_add_chunk(&f->out, p, len, err);

                return r == 0 && f->source_done ? cg_buf_try_adds(&f->out, CG_HTTP_LAST_CHUNK, err) : r;
        }
        /* Writes at once what can be, keeps the rest. */
        while (f->out.len == 0 && len) {
                ssize_t n = send(f->to, p, len, MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0)
                        return cg_fail_errno(err, "write");
                p += n;
                len -= (size_t)n;
        }
        return len ? cg_buf_try_add(&f->out, p, len, err) : 0;
}

/* ---- reading */

static int at_end(struct cg_flow *f, struct cg_err *err)
{
        if (f->mode != CG_FLOW_ALL)
                return cg_fail(err, CG_E_PROTO, "the connection ended within a body");
        f->source_done = true;
        return 0;
}

/* The bytes that may be read at once. */
static size_t room_of(const struct cg_flow *f, size_t most)
{
        return f->mode == CG_FLOW_COUNTED ? CG_MIN(f->left, most) : most;
}

static int read_some(struct cg_flow *f, struct cg_flow_common *c, size_t *moved, struct cg_err *err)
{
        size_t used, room = room_of(f, CG_FLOW_CHUNK);
        ssize_t n;
        int r;

        do
                n = recv(f->from, c->scratch, room, 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n < 0)
                return cg_fail_errno(err, "read");
        if (n == 0)
                return at_end(f, err);
        *moved = (size_t)n;
        r = take(f, c->scratch, (size_t)n, &used, err);
        /* Bytes after a chunked body belong to the next message. */
        if (r == 0 && used < (size_t)n)
                r = cg_buf_try_add(f->before, c->scratch + used, (size_t)n - used, err);
        return r;
}

static bool has_pipe(struct cg_flow *f, struct cg_flow_common *c)
{
        if (f->pipe[0] >= 0)
                return true;
        if (f->mode == CG_FLOW_CHUNKED || f->wrap || f->moved < CG_FLOW_SPLICE_AFTER ||
            c->n_pipes >= c->max_pipes)
                return false;
        if (pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
                f->pipe[0] = f->pipe[1] = -1;
                return false;
        }
        /* A user over its share keeps the small one. */
        fcntl(f->pipe[1], F_SETPIPE_SZ, CG_FLOW_PIPE_SIZE);
        c->n_pipes++;
        return true;
}

static int splice_some(struct cg_flow *f, size_t *moved, struct cg_err *err)
{
        size_t room = room_of(f, CG_FLOW_PIPE_SIZE);
        ssize_t n;

        do
                n = splice(f->from, NULL, f->pipe[1], NULL, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return CG_TIMEOUT;
        if (n < 0)
                return cg_fail_errno(err, "splice");
        if (n == 0)
                return at_end(f, err);
        *moved = (size_t)n;
        f->piped += (size_t)n;
        if (f->mode == CG_FLOW_COUNTED) {
                f->left -= (size_t)n;
                f->source_done = f->left == 0;
        }
        return 0;
}

int cg_flow_run(struct cg_flow *f, struct cg_flow_common *c, bool *activity, struct cg_err *err)
{
        size_t turn = 0;

        f->want_read = f->want_write = false;
        while (!f->done) {
                size_t moved = 0;
                int r = flush(f, err);

                if (r == CG_TIMEOUT) {
                        f->want_write = true;
                        return 0;
                }
                if (r < 0)
                        return r;
                if (f->source_done || (f->mode == CG_FLOW_COUNTED && f->left == 0)) {
                        f->done = true;
                        close_pipe(f, c);
                        /* Fails if the receiver is gone: reading from it reports that. */
                        if (f->mode == CG_FLOW_ALL)
                                shutdown(f->to, SHUT_WR);
                        return 0;
                }
                if (turn > CG_FLOW_TURN)
                        return CG_TIMEOUT;
                if (f->before->len) {
                        size_t used, n = CG_MIN(f->before->len, CG_FLOW_CHUNK);

                        moved = f->before->len;
                        r = take(f, f->before->data, n, &used, err);
                        if (r == 0)
                                cg_buf_consume(f->before, used);
                        if (r == 0 && !f->before->len)
                                cg_buf_fini(f->before);
                } else if (has_pipe(f, c)) {
                        r = splice_some(f, &moved, err);
                } else {
                        r = read_some(f, c, &moved, err);
                }
                if (r == CG_TIMEOUT) {
                        f->want_read = true;
                        return 0;
                }
                if (r < 0)
                        return r;
                f->moved += moved;
                turn += moved;
                *activity |= moved > 0;
        }
        return 0;
}
