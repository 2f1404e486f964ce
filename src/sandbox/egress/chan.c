/* The control channel of cellgate-egress, both ends. */
#include "sandbox/egress/chan.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/json.h"

#define HEADER    4
#define READ_SIZE 65536

void cg_chan_init(struct cg_chan *c, int fd)
{
        *c = (struct cg_chan){ .fd = fd };
        cg_buf_init(&c->in, CG_CHAN_MESSAGE_MAX + HEADER + READ_SIZE);
        cg_buf_init(&c->out, CG_CHAN_QUEUE_MAX);
}

void cg_chan_fini(struct cg_chan *c)
{
        for (size_t i = 0; i < c->n_fds; i++)
                close(c->fds[i]);
        c->n_fds = 0;
        cg_closep_(&c->fd);
        cg_buf_fini(&c->in);
        cg_buf_fini(&c->out);
}

int cg_chan_read(struct cg_chan *c, struct cg_err *err)
{
        union {
                struct cmsghdr h;
                char space[CMSG_SPACE(sizeof(int) * CG_CHAN_FDS_MAX)];
        } control;
        struct iovec iov = { .iov_len = READ_SIZE };
        struct msghdr m = { .msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.space,
                            .msg_controllen = sizeof(control.space) };
        bool too_many;
        char *p;
        ssize_t n;

        if (cg_buf_reserve(&c->in, READ_SIZE, &p, err) < 0)
                return CG_E_LIMIT;
        iov.iov_base = p;
        do
                n = recvmsg(c->fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
                return 0;
        if (n < 0 && errno != ECONNRESET)
                return cg_fail_errno(err, "control channel");
        if (n <= 0)
                return CG_CLOSED;
        c->in.len += (size_t)n;
        cg_buf_terminate(&c->in);
        too_many = (m.msg_flags & MSG_CTRUNC) != 0;
        for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
                bool rights = h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS;
                size_t n_fds = rights ? (h->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

                for (size_t i = 0; i < n_fds; i++) {
                        int fd;

                        memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
                        if (c->n_fds < CG_CHAN_FDS_MAX) {
                                c->fds[c->n_fds++] = fd;
                        } else {
                                close(fd);
                                too_many = true;
                        }
                }
        }
        if (too_many)
                return cg_fail(err, CG_E_LIMIT, "control channel: more than %d descriptors", CG_CHAN_FDS_MAX);
        return 0;
}

int cg_chan_next(struct cg_chan *c, json_t **ret, struct cg_err *err)
{
        const uint8_t *p = (const uint8_t *)c->in.data;
        size_t len;
        int r;

        if (c->in.len < HEADER)
                return CG_TIMEOUT;
        len = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (len > CG_CHAN_MESSAGE_MAX)
                return cg_fail(err, CG_E_LIMIT, "control channel: a message of %zu bytes, at most %u", len,
                               CG_CHAN_MESSAGE_MAX);
        if (c->in.len < HEADER + len)
                return CG_TIMEOUT;
        r = cg_json_object(c->in.data + HEADER, len, "control message", ret, err);
        cg_buf_consume(&c->in, HEADER + len);
        return r;
}

int cg_chan_take_fds(struct cg_chan *c, size_t n, int *ret, struct cg_err *err)
{
        if (n > c->n_fds)
                return cg_fail(err, CG_E_PROTO, "control channel: %zu descriptors are named and %zu came", n,
                               c->n_fds);
        memcpy(ret, c->fds, n * sizeof(int));
        c->n_fds -= n;
        memmove(c->fds, c->fds + n, c->n_fds * sizeof(int));
        return 0;
}

static int queue(struct cg_chan *c, json_t *message, struct cg_err *err)
{
        cg_auto_json json_t *m = message;
        size_t len = 0;
        cg_auto_free char *text = cg_json_text(m, &len);
        uint8_t header[HEADER];
        char *room;

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "control message");
        if (len + 1 > CG_CHAN_MESSAGE_MAX)
                return cg_fail(err, CG_E_LIMIT, "control message of %zu bytes", len);
        for (size_t i = 0; i < HEADER; i++)
                header[i] = (uint8_t)((len + 1) >> (8 * (HEADER - 1 - i)));
        if (cg_buf_reserve(&c->out, HEADER + len + 1, &room, err) < 0)
                return CG_E_LIMIT;
        cg_buf_try_add(&c->out, header, HEADER, NULL);
        cg_buf_try_add(&c->out, text, len, NULL);
        return cg_buf_try_add(&c->out, "\n", 1, NULL);
}

int cg_chan_flush(struct cg_chan *c, struct cg_err *err)
{
        while (c->out.len) {
                ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
                        return CG_TIMEOUT;
                if (n < 0)
                        return cg_fail_errno(err, "control channel");
                cg_buf_consume(&c->out, (size_t)n);
        }
        return 0;
}

int cg_chan_send(struct cg_chan *c, json_t *message, struct cg_err *err)
{
        int r = queue(c, message, err);

        if (r < 0)
                return r;
        r = cg_chan_flush(c, err);
        return CG_MIN(r, 0);
}

static int flush_all(struct cg_chan *c, int64_t deadline_ms, struct cg_err *err)
{
        for (;;) {
                int64_t left = deadline_ms - cg_now_ms();
                int r = cg_chan_flush(c, err);

                if (r <= 0)
                        return r;
                r = cg_wait_fd(c->fd, POLLOUT, CG_MAX(left, 0), err);
                if (r < 0)
                        return r;
                if (r == CG_TIMEOUT)
                        return cg_fail(err, CG_E_TIMEDOUT, "control channel: the other side does not read");
        }
}

int cg_chan_send_fds(struct cg_chan *c, json_t *message, const int *fds, size_t n, int64_t timeout_ms,
                     struct cg_err *err)
{
        int64_t deadline = cg_now_ms() + timeout_ms;
        int r = flush_all(c, deadline, err);

        if (r != 0) {
                json_decref(message);
                return r;
        }
        r = queue(c, message, err);
        if (r < 0)
                return r;
        if (n) {
                r = cg_send_fds(c->fd, c->out.data, 1, fds, n, err);
                if (r != 0)
                        return r;
                cg_buf_consume(&c->out, 1);
        }
        return flush_all(c, deadline, err);
}
