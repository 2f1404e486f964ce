/*
 * libcellgate: the connection to a supervisor.
 *
 * Threads: one mutex guards all state and the connection. The library's thread sleeps on its
 * socket, the lifeline and an eventfd, and reads; any thread may send under the lock. What the
 * socket has no room for is left to the library's thread.
 *
 * A thread that waits for a session's event reads for the whole client while no other thread does,
 * so that an event wakes one thread instead of two. Meanwhile the socket is not in read_epoll,
 * which the library's thread polls; epoll_ctl() takes effect while it does. When the wait ends, the
 * library's thread reads again, also for the sessions and requests that other threads wait for.
 */
#include "client/internal.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* Messages and reads before the lifeline is checked. */
#define BURST 64

/* ------------------------------------------------------------------ sending */

void cg_client_wake(struct cg_client *c)
{
        eventfd_write(c->wake_fd, 1);
}

int cg_client_send(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err)
{
        struct cg_out with_body = *out;
        cg_auto_free char *text = NULL;
        int r;

        if (c->broken) {
                json_decref(body);
                if (err)
                        *err = c->broken_err;
                return CG_E_CLOSED;
        }
        if (body) {
                with_body.body = text = cg_json_text(body, &with_body.body_len);
                json_decref(body);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "message");
        }
        r = cg_zconn_put(&c->conn, &with_body, NULL, NULL, err);
        if (r == 0)
                cg_zconn_flush(&c->conn);
        if (cg_zconn_wants_out(&c->conn))
                cg_client_wake(c);
        return r;
}

struct timespec cg_client_deadline(int64_t timeout_ms)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec += timeout_ms / 1000;
        t.tv_nsec += (timeout_ms % 1000) * 1000000;
        if (t.tv_nsec >= 1000000000) {
                t.tv_nsec -= 1000000000;
                t.tv_sec++;
        }
        return t;
}

/* Lock held, and released meanwhile. */
static int await_answer(struct cg_client *c, const struct request *q, int64_t timeout_ms, struct cg_err *err)
{
        struct timespec end = cg_client_deadline(timeout_ms);

        while (!q->done && !c->broken)
                if (pthread_cond_timedwait(&c->cond, &c->lock, &end) == ETIMEDOUT)
                        break;
        if (!q->done && !c->broken)
                return cg_fail(err, CG_E_TIMEDOUT, "the supervisor did not answer within %lld ms",
                               (long long)timeout_ms);
        if (q->done && !q->failed)
                return 0;
        if (err)
                *err = q->done ? q->err : c->broken_err;
        return q->done ? q->err.code : CG_E_CLOSED;
}

/* Sends the request @q and waits for its answer. Takes @body. */
static int request(struct cg_client *c, struct request *q, const struct cg_out *as, json_t *body,
                   int64_t timeout_ms, struct cg_err *err)
{
        struct cg_out out = *as;
        int r;
        CG_HOLD(&c->lock);

        out.id = q->id = ++c->next_request;
        q->next = c->requests;
        c->requests = q;
        r = q->to_tools ? CG_TOOLS_OPS(c)->send(c, &out, body, err) : cg_client_send(c, &out, body, err);
        if (r == 0)
                r = await_answer(c, q, timeout_ms, err);
        CG_UNLINK(c->requests, q, next);
        return r;
}

/* The same, of which the caller wants the answer's body only. */
static int request_body(struct cg_client *c, struct request q, const struct cg_out *out, json_t *body,
                        int64_t timeout_ms, char **ret_body, struct cg_err *err)
{
        int r = request(c, &q, out, body, timeout_ms, err);

        if (r == 0 && ret_body && !q.len)
                r = cg_fail(err, CG_E_PROTO, "the answer to a request is that to another one");
        if (r == 0 && ret_body)
                *ret_body = q.body;
        else
                free(q.body);
        return r;
}

int cg_client_request(struct cg_client *c, uint16_t type, uint64_t session, json_t *body, int64_t timeout_ms,
                      struct cg_session *opening, char **ret_body, struct cg_err *err)
{
        return request_body(c, (struct request){ .opening = opening },
                            &(struct cg_out){ .type = type, .session = session }, body, timeout_ms, ret_body,
                            err);
}

int cg_client_request_out(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err)
{
        return request_body(c, (struct request){ 0 }, out, body, c->timeout_ms, NULL, err);
}

int cg_client_request_tools(struct cg_client *c, uint16_t type, uint64_t session, json_t *body,
                            int64_t timeout_ms, char **ret_body, struct cg_err *err)
{
        return request_body(c, (struct request){ .to_tools = true },
                            &(struct cg_out){ .type = type, .session = session }, body, timeout_ms, ret_body,
                            err);
}

int cg_client_request_msg(struct cg_client *c, uint16_t type, json_t *body, struct cg_msg *ret,
                          struct cg_err *err)
{
        struct request q = { .msg = ret };
        int r = request(c, &q, &(struct cg_out){ .type = type }, body, c->timeout_ms, err);

        free(q.body);
        return r;
}

/* ------------------------------------------------------------------ the library's thread */

static void give_event(struct cg_client *c, uint64_t number, struct cg_event *e)
{
        struct cg_session *s;

        if (!e)
                return;
        for (s = c->sessions; s && s->number != number; s = s->next)
                ;
        if (!s)
                cg_event_free(e);
        else if (!c->node)
                cg_session_push(s, e);
        else
                cg_remote_push(s, e, &c->read_err);
}

void cg_client_answer(struct cg_client *c, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct request *q;
        const char *text;

        for (q = c->requests; q && q->id != m->id; q = q->next)
                ;
        if (!q && m->type == CG_HOST_FAILED && m->session && m->id < CG_FIRST_REQUEST)
                give_event(c, m->session,
                           cg_event_text_new(CG_EVENT_SESSION_CLOSED,
                                             "the session ended before the cell was queued"));
        /* The thread that asked for the session has timed out: end the session. */
        if (!q && m->type == CG_HOST_SESSION_OPENED) {
                struct cg_out end = { .type = CG_HOST_SESSION_END,
                                      .session = m->session,
                                      .id = ++c->next_request };

                cg_client_send(c, &end, NULL, NULL);
        }
        if (!q || q->done)
                return; /* the thread has timed out */
        if (m->type == CG_HOST_SESSION_OPENED && q->opening) {
                q->opening->number = m->session;
                q->opening->next = c->sessions;
                c->sessions = q->opening;
        }
        if (m->type == CG_HOST_FAILED) {
                q->failed = true;
                if (cg_msg_json(m, &body, &q->err) == 0) {
                        int code = (int)json_integer_value(json_object_get(body, "code"));

                        cg_fail(&q->err, code < 0 ? code : CG_E_PROTO, "%s",
                                json_string_value(json_object_get(body, "message"))
                                        ?: "the supervisor gave no reason");
                        q->err.sys_errno = (int)json_integer_value(json_object_get(body, "errno"));
                }
        } else if (c->node && m->type != CG_HOST_DONE && cg_msg_json(m, &body, &q->err) < 0) {
                q->failed = true;
        } else {
                text = cg_msg_body(m, &q->len);
                q->body = calloc(1, q->len + 1);
                if (q->body)
                        memcpy(q->body, text, q->len);
                q->failed = !q->body;
                if (q->msg) {
                        *q->msg = *m;
                        *m = CG_MSG_EMPTY; /* the frames are moved */
                }
                if (q->failed)
                        cg_fail(&q->err, CG_E_NOMEM, "answer");
        }
        q->done = true;
        pthread_cond_broadcast(&c->cond);
}

void cg_client_fail_requests(struct cg_client *c, const char *why)
{
        for (struct request *q = c->requests; q; q = q->next) {
                if (!q->to_tools || q->done)
                        continue;
                cg_fail(&q->err, CG_E_CLOSED, "%s", why);
                q->done = q->failed = true;
        }
        pthread_cond_broadcast(&c->cond);
}

static void make_readable(int fd)
{
        if (fd >= 0)
                eventfd_write(fd, 1);
}

void cg_client_break(struct cg_client *c, int code, const char *why)
{
        if (c->broken)
                return;
        c->broken = true;
        cg_fail(&c->broken_err, code, "%s", why);
        cg_session_close_all(c, why);
        make_readable(c->approvals_fd);
        make_readable(c->events_fd);
        pthread_cond_broadcast(&c->cond);
}

static void input_taken(struct cg_client *c, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        int64_t bytes = 0;

        if (cg_msg_json(m, &body, &c->read_err) < 0 ||
            cg_json_int(body, "bytes", 0, &bytes, &c->read_err) < 0)
                return;
        for (struct cg_session *s = c->sessions; s; s = s->next)
                if (s->number == m->session)
                        cg_session_input_taken(s, m->id, (uint64_t)CG_MAX(bytes, 0));
}

/* Called with the lock held; releases it while it builds an event, which may be large. */
static void on_message(struct cg_zconn *conn, struct cg_msg *m)
{
        struct cg_client *c = (struct cg_client *)(void *)((char *)conn - offsetof(struct cg_client, conn));
        struct cg_event *e;

        if (c->read_err.code)
                return;
        switch (m->type) {
        case CG_HOST_WELCOME:
        case CG_HOST_SESSION_OPENED:
        case CG_HOST_SERVERS_ADDED:
        case CG_HOST_SESSIONS:
        case CG_HOST_STATUS_IS:
        case CG_HOST_APPROVALS:
        case CG_HOST_APPROVAL_IS:
        case CG_HOST_JOBS:
        case CG_HOST_EVENTS:
        case CG_HOST_DONE:
        case CG_HOST_FAILED:
                cg_client_answer(c, m);
                return;
        case CG_HOST_APPROVALS_CHANGED:
                make_readable(c->approvals_fd);
                return;
        case CG_HOST_EVENTS_CHANGED:
                make_readable(c->events_fd);
                return;
        case CG_HOST_COMMAND_TAKEN:
                input_taken(c, m);
                return;
        default:
                break;
        }
        pthread_mutex_unlock(&c->lock);
        e = cg_event_from_message(m);
        pthread_mutex_lock(&c->lock);
        if (!e)
                cg_fail(&c->read_err, CG_E_PROTO, "%s could not be read", m->spec->name);
        else if (c->node && cg_remote_check(e, &c->read_err) < 0)
                cg_event_free(e);
        else
                give_event(c, m->session, e);
}

static void on_end(struct cg_zconn *conn, const struct cg_err *err)
{
        struct cg_client *c = (struct cg_client *)(void *)((char *)conn - offsetof(struct cg_client, conn));

        if (!c->read_err.code)
                c->read_err = *err;
}

/* Makes the library's thread wait for the socket, or not. */
static void update_watch(struct cg_client *c)
{
        bool wanted = !c->reader.led && !c->conn.ended && !c->broken;
        struct epoll_event ev = { .events = EPOLLIN };

        if (wanted == c->reader.watched)
                return;
        c->reader.watched = epoll_ctl(c->reader.epoll, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, c->conn.fd,
                                      &ev) == 0 &&
                            wanted;
        if (wanted && !c->reader.watched)
                cg_client_break(c, CG_E_SYS, "the connection to the supervisor cannot be watched (epoll)");
}

static void read_socket(struct cg_client *c)
{
        /* on_message() releases the lock; when the supervisor ends, two threads read */
        while (c->conn.serving)
                pthread_cond_wait(&c->reader.done, &c->lock);
        do
                cg_zconn_read(&c->conn, BURST, true);
        while (c->conn.again && !c->conn.ended && !c->read_err.code);
        cg_zconn_opened(&c->conn);
        pthread_cond_broadcast(&c->reader.done);
        /* The connection's end alone is not reported: the lifeline shows the supervisor's end. */
        if (c->read_err.code && c->read_err.code != CG_E_CLOSED)
                cg_client_break(c, c->read_err.code, c->read_err.msg);
}

void cg_client_wait_event(struct cg_session *s, int64_t timeout_ms)
{
        struct cg_client *c = s->client;
        struct pollfd p[] = { { .fd = c->conn.fd, .events = POLLIN },
                              { .fd = s->event_fd, .events = POLLIN } };
        struct timespec end = cg_client_deadline(timeout_ms);
        int n;

        if (c->reader.led || c->conn.serving || c->conn.ended || c->broken) {
                if (timeout_ms < 0)
                        pthread_cond_wait(&s->cond, &c->lock);
                else
                        pthread_cond_timedwait(&s->cond, &c->lock, &end);
                return;
        }
        c->reader.led = true;
        update_watch(c);
        pthread_mutex_unlock(&c->lock);
        n = poll(p, CG_ARRAY_LEN(p), (int)CG_MIN(timeout_ms, INT_MAX));
        pthread_mutex_lock(&c->lock);
        c->reader.for_session = s;
        if (n > 0 && p[0].revents && !c->broken)
                read_socket(c);
        c->reader.for_session = NULL;
        c->reader.led = false;
        update_watch(c);
}

static bool lifeline_ended(int fd)
{
        char b[64];
        ssize_t n = recv(fd, b, sizeof(b), MSG_DONTWAIT);

        return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void *client_thread(void *arg)
{
        struct cg_client *c = arg;

        pthread_mutex_lock(&c->lock);
        while (!c->stop) {
                bool out = cg_zconn_wants_out(&c->conn) && !c->conn.ended;
                struct pollfd p[] = { { .fd = c->reader.epoll, .events = POLLIN },
                                      { .fd = c->wake_fd, .events = POLLIN },
                                      { .fd = c->broken ? -1 : c->life_fd, .events = POLLIN },
                                      { .fd = out ? c->conn.fd : -1, .events = POLLOUT },
                                      { .fd = -1 } };
                uint64_t n;

                if (c->tools)
                        p[4] = CG_TOOLS_OPS(c)->polled(c);
                update_watch(c);
                pthread_mutex_unlock(&c->lock);
                if (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno != EINTR)
                        abort(); /* bad arguments: a bug of ours */
                if (p[1].revents)
                        eventfd_read(c->wake_fd, &n);
                pthread_mutex_lock(&c->lock);
                if (p[3].revents)
                        cg_zconn_flush(&c->conn);
                if (p[4].revents)
                        CG_TOOLS_OPS(c)->serve(c, p[4].revents);
                if (!c->broken && !c->reader.led && p[0].revents)
                        read_socket(c);
                if (p[2].revents && lifeline_ended(c->life_fd)) {
                        read_socket(c); /* its last messages */
                        cg_client_break(
                                c, CG_E_CLOSED,
                                c->node ? "node_lost: the connection to the node has ended; its log may say why"
                                        : "the supervisor has ended; its log may say why");
                }
        }
        pthread_mutex_unlock(&c->lock);
        return NULL;
}

int cg_client_connected(struct cg_client *c, int fd, struct cg_err *err)
{
        static const struct cg_zconn_ops ops = { on_message, on_end };

        /* The size of requests and cells bounds the output. */
        if (cg_zconn_init(&c->conn, fd, &cg_wire_host, CG_ROLE_SUPERVISOR, SIZE_MAX, &ops, err) < 0)
                return -1;
        if (pthread_create(&c->thread, NULL, client_thread, c) != 0)
                return cg_fail(err, CG_E_SYS, "cannot start a thread");
        c->have_thread = true;
        return 0;
}
