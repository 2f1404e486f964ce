/*
 * Sessions: one process of `cellgate mcp serve` for each, and the way of its messages. Ids of
 * requests are replaced by numbers of the front's, so that two clients of one session, or one that
 * uses an id again, get their own answers. Runs in the front of cellgate-mcp-http.
 */
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "mcp/server.h"
#include "mcp_http/front.h"

#define READ_SIZE ((size_t)64 << 10)

/* ---- to the session process */

static void on_event(void *data, uint32_t events);

static void watch(struct hf_session *s, int op, bool writable)
{
        struct epoll_event e = { .events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = &s->watch };

        s->writable_wanted = writable;
        if (epoll_ctl(s->f->epoll, op, s->fd, &e) < 0)
                cg_log(&s->f->log, CG_LOG_ERROR, "epoll: %s", strerror(errno));
}

static void flush(struct hf_session *s)
{
        ssize_t n = 1;

        while (s->fd >= 0 && s->written < s->out.len && n > 0) {
                n = send(s->fd, s->out.data + s->written, s->out.len - s->written,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
                s->written += n > 0 ? (size_t)n : 0;
        }
        if (s->written == s->out.len) {
                s->out.len = s->written = 0;
                if (s->out.cap > ((size_t)1 << 20))
                        cg_buf_fini(&s->out);
        }
        if (s->fd >= 0 && s->writable_wanted != (s->out.len > 0))
                watch(s, EPOLL_CTL_MOD, s->out.len > 0);
}

/* Appends @text with @number in the place of each of @old in it, which may be in any order. */
static int add_replaced(struct cg_buf *b, struct cg_slice text, const struct cg_slice old[2],
                        const char *number, struct cg_err *err)
{
        const char *end = text.p + text.len;
        bool second = old && old[1].p && (!old[0].p || old[1].p < old[0].p);

        for (int i = 0; old && i < 2; i++, second = !second) {
                struct cg_slice o = old[second];

                if (!o.p)
                        continue;
                if (cg_buf_try_add(b, text.p, (size_t)(o.p - text.p), err) < 0 ||
                    cg_buf_try_adds(b, number, err) < 0)
                        return -1;
                text.p = o.p + o.len;
        }
        return cg_buf_try_add(b, text.p, (size_t)(end - text.p), err);
}

/* Adds @text as one line, with @number in the places of @old; NULL: unchanged. */
static int send_line(struct hf_session *s, struct cg_slice text, const struct cg_slice old[2],
                     uint64_t number, struct cg_err *err)
{
        size_t before = s->out.len;
        char digits[24];

        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
        if (add_replaced(&s->out, text, old, digits, err) < 0 || cg_buf_try_adds(&s->out, "\n", err) < 0) {
                s->out.len = before;
                return cg_err_prefix(err, "the session does not read");
        }
        /* White space between the values: a string has no line end. */
        for (size_t i = before; i + 1 < s->out.len; i++)
                if (s->out.data[i] == '\n' || s->out.data[i] == '\r')
                        s->out.data[i] = ' ';
        flush(s);
        return 0;
}

static void send_own(struct hf_session *s, const char *text)
{
        struct cg_err err;

        if (send_line(s, (struct cg_slice){ text, strlen(text) }, NULL, 0, &err) < 0)
                cg_log(&s->f->log, CG_LOG_ERROR, "%s", err.msg);
}

/* Tells the process something about the request of @st. */
static void notify(struct hf_session *s, const struct hf_stream *st, const char *method, const char *more)
{
        char text[160];

        snprintf(text, sizeof(text),
                 "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":{\"requestId\":%llu%s}}", method,
                 (unsigned long long)st->number, more);
        send_own(s, text);
}

void cg_hf_session_back(struct hf_session *s)
{
        struct hf_stream *st;

        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->kind != HF_CALL || st->reader || !st->begun || st->ended || st->asked_again || s->sse)
                        continue;
                st->asked_again = true;
                notify(s, st, CG_MCPD_BACK_METHOD, "");
        }
}

/* ---- life */

int cg_hf_tell_monitor(const struct hf_front *f, enum hf_type type, uint64_t number, const char *token,
                       struct cg_err *err)
{
        struct hf_ask a = { .type = type, .session = number };

        snprintf(a.token, sizeof(a.token), "%s", token);
        return cg_send_fds(f->control, &a, cg_hf_ask_size(&a), NULL, 0, err);
}

static void refuse_session(const struct hf_front *f, struct cg_err *err)
{
        const struct hf_session *s, *idlest = NULL;
        int64_t now = cg_now_ms();

        TAILQ_FOREACH(s, &f->sessions, entry) {
                if (!s->n_open && (!idlest || s->used_ms < idlest->used_ms))
                        idlest = s;
        }
        if (!idlest)
                cg_fail(err, CG_E_LIMIT, "all %u sessions (--max-sessions) have a request that runs",
                        f->n_sessions);
        else
                cg_fail(err, CG_E_LIMIT,
                        "all %u sessions (--max-sessions) are in use. The one that was used last the longest time "
                        "ago, %.8s..., was opened %lld s ago and used %lld s ago: end it by DELETE, or wait; "
                        "sessions end after %lld s without a request (--idle)",
                        f->n_sessions, idlest->id, (long long)(now - idlest->since_ms) / 1000,
                        (long long)(now - idlest->used_ms) / 1000, (long long)f->setup.idle_ms / 1000);
}

/* The process of the stateless era counts the sessions of its clients itself. */
static int check_client(const struct hf_front *f, const unsigned char owner[CG_HF_OWNER], const char *client,
                        struct cg_err *err)
{
        const struct hf_session *s, *oldest = NULL;
        int64_t now = cg_now_ms();
        unsigned n = 0;

        TAILQ_FOREACH(s, &f->sessions, entry) {
                if (s->stateless || memcmp(s->who.owner, owner, CG_HF_OWNER) != 0 ||
                    strcmp(s->client, client) != 0)
                        continue;
                oldest = oldest ?: s;
                n++;
        }
        if (n < f->setup.max_per_client)
                return 0;
        return cg_fail(
                err, CG_E_LIMIT,
                "this client has %u sessions, as many as --max-sessions-per-client allows; the oldest, %.8s..., "
                "was opened %lld s ago and used %lld s ago: end it by DELETE, or wait; sessions end after %lld s "
                "without a request (--idle)",
                n, oldest->id, (long long)(now - oldest->since_ms) / 1000,
                (long long)(now - oldest->used_ms) / 1000, (long long)f->setup.idle_ms / 1000);
}

struct hf_session *cg_hf_session_new(struct hf_front *f, const struct hf_who *who, const char *client,
                                     const char *token, bool stateless, struct cg_err *err)
{
        struct hf_session *s;
        int r = cg_fail(err, CG_E_NOMEM, "session");

        if (f->n_sessions >= f->setup.max_sessions) {
                refuse_session(f, err);
                return NULL;
        }
        if (!stateless && check_client(f, who->owner, client, err) < 0)
                return NULL;
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        snprintf(s->client, sizeof(s->client), "%s", client);
        s->f = f;
        s->fd = -1;
        s->watch = (struct hf_watch){ on_event, s };
        s->number = ++f->last_session | (stateless ? CG_HF_STATELESS : 0);
        if (cg_hf_is_approver(who->owner))
                s->number |= CG_HF_APPROVER;
        s->stateless = stateless;
        s->who = *who;
        s->since_ms = s->used_ms = cg_now_ms();
        cg_buf_init(&s->out, HF_MAX_OUT);
        cg_lines_init(&s->in, HF_MAX_LINE);
        TAILQ_INIT(&s->streams);
        TAILQ_INSERT_TAIL(&f->sessions, s, entry);
        f->n_sessions++;
        s->get = cg_hf_stream_new(f, s, HF_GET);
        if (s->get && cg_random_hex(s->id, CG_HF_SESSION / 2, err) == 0)
                r = cg_hf_tell_monitor(f, HF_OPEN, s->number, token, err);
        if (r < 0) {
                cg_hf_session_end(s, "");
                return NULL;
        }
        s->get->can_stream = s->get->begun = true;
        return s;
}

struct hf_session *cg_hf_session_find(const struct hf_front *f, const char *id)
{
        struct hf_session *s;

        TAILQ_FOREACH(s, &f->sessions, entry) {
                if (strcmp(s->id, id) == 0)
                        return s;
        }
        return NULL;
}

struct hf_session *cg_hf_session_stateless(const struct hf_front *f, const unsigned char owner[CG_HF_OWNER])
{
        struct hf_session *s;

        TAILQ_FOREACH(s, &f->sessions, entry) {
                if (s->stateless && memcmp(s->who.owner, owner, CG_HF_OWNER) == 0)
                        return s;
        }
        return NULL;
}

struct hf_session *cg_hf_session_numbered(const struct hf_front *f, uint64_t number)
{
        struct hf_session *s;

        TAILQ_FOREACH(s, &f->sessions, entry) {
                if (s->number == number)
                        return s;
        }
        return NULL;
}

void cg_hf_session_opened(struct hf_front *f, uint64_t number, int fd)
{
        struct hf_session *s = cg_hf_session_numbered(f, number);

        if (!s || s->fd >= 0) { /* ended meanwhile */
                close(fd);
                return;
        }
        s->fd = fd;
        watch(s, EPOLL_CTL_ADD, false);
        flush(s);
}

/* The answer of @st, which is freed where nobody waits for it. */
static void push_answer(struct hf_stream *st, struct cg_slice text)
{
        struct hf_session *s = st->session;

        if (!s || !s->sse) {
                cg_hf_stream_push(st, text, true);
                return;
        }
        cg_hf_stream_push(s->get, text, false);
        cg_hf_stream_free(st);
}

static void fail_request(struct hf_stream *st, const char *why)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        struct cg_slice id = { st->id, strlen(st->id) };

        cg_rpc_add_error(&b, id, CG_RPC_INTERNAL_ERROR, why, NULL);
        push_answer(st, (struct cg_slice){ b.data, b.len ? b.len - 1 : 0 });
}

void cg_hf_session_end(struct hf_session *s, const char *why)
{
        struct hf_front *f = s->f;
        struct hf_stream *st;

        TAILQ_REMOVE(&f->sessions, s, entry);
        f->n_sessions--;
        cg_hf_tell_monitor(f, HF_CLOSE, s->number, "", NULL);
        while ((st = TAILQ_FIRST(&s->streams))) {
                TAILQ_REMOVE(&s->streams, st, entry);
                st->session = NULL;
                if (st->kind != HF_GET && !st->ended)
                        fail_request(st, why);
                st->ended = true;
                if (st->reader)
                        st->wake(st->reader);
                else
                        cg_hf_stream_free(st);
        }
        if (s->fd >= 0)
                close(s->fd);
        cg_buf_fini(&s->out);
        cg_lines_fini(&s->in);
        free(s);
}

void cg_hf_session_ended(struct hf_front *f, uint64_t number, const char *why)
{
        struct hf_session *s = cg_hf_session_numbered(f, number);

        if (s)
                cg_hf_session_end(s, why);
}

/* ---- from the client */

int cg_hf_session_send(struct hf_session *s, const struct cg_rpc *m, struct cg_slice text, struct cg_err *err)
{
        static const char why[] = "the client has cancelled the request";
        bool cancels = m->kind == CG_RPC_NOTIFICATION && strcmp(m->method, "notifications/cancelled") == 0;
        struct cg_slice id = CG_SLICE_NONE;
        struct hf_stream *st;
        int r;

        s->used_ms = cg_now_ms();
        if (!cancels || cg_json_member(m->params, "requestId", &id, NULL) < 0 || !id.p)
                return send_line(s, text, NULL, 0, err);
        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->kind == HF_GET || st->kind == HF_INITIALIZE || st->ended || !cg_slice_is(id, st->id))
                        continue;
                r = send_line(s, text, (struct cg_slice[2]){ id }, st->number, err);
                s->n_open--;
                if (s->sse)
                        cg_hf_stream_free(st);
                else
                        fail_request(st, why);
                return r;
        }
        return 0;
}

/* No list can change: the stream stays open, and empty. */
static int listen_to_nothing(struct hf_stream *st, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY };

        if (cg_buf_try_addf(
                    &b, err,
                    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{"
                    "\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s},\"notifications\":{}}}",
                    st->id) < 0)
                return -1;
        st->session->n_open++;
        cg_hf_stream_push(st, (struct cg_slice){ b.data, b.len }, false);
        return 0;
}

int cg_hf_session_request(struct hf_stream *st, const struct cg_rpc *m, struct cg_slice text,
                          struct cg_err *err)
{
        struct hf_session *s = st->session;
        struct cg_slice meta = CG_SLICE_NONE, token = CG_SLICE_NONE, old[2] = { m->id };

        if (m->params.p && cg_json_find(m->params, "_meta", &meta))
                cg_json_find(meta, "progressToken", &token);
        if (!cg_mcpd_is_token(token)) /* the session process ignores it as well */
                token = CG_SLICE_NONE;
        st->number = ++s->f->last_request;
        st->id = strndup(m->id.p, m->id.len);
        st->token = token.p ? strndup(token.p, token.len) : NULL;
        if (!st->id || (token.p && !st->token))
                return cg_fail(err, CG_E_NOMEM, "request");
        if (st->kind == HF_LISTEN)
                return listen_to_nothing(st, err);
        /* Two clients of the stateless era may choose the same token. */
        if (st->stateless)
                old[1] = token;
        if (send_line(s, text, old, st->number, err) < 0)
                return -1;
        s->n_open++;
        s->used_ms = cg_now_ms();
        /* A question of a cell that outlived its call, for a client that does not listen by GET. */
        if (st->kind == HF_CALL && st->can_stream && !s->get->reader)
                cg_hf_stream_move(s->get, st);
        if (st->kind == HF_CALL && st->can_stream)
                cg_hf_session_back(s);
        return 0;
}

/* Nobody waits for the answer any more, nor can resume the stream. */
static void drop(struct hf_stream *st)
{
        struct hf_session *s = st->session;

        if (s && !st->ended) {
                s->n_open--;
                /* In the stateless era, to go away is to cancel; before, it is not. */
                notify(s, st, "notifications/cancelled", st->stateless ? "" : ",\"" CG_MCPD_GONE "\":true");
        }
        cg_hf_stream_free(st);
}

/* Drops the oldest stream that has ended, where there are more than can be resumed. */
static void trim_kept(struct hf_session *s)
{
        struct hf_stream *st, *first = NULL;
        unsigned n = 0;

        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->kind == HF_GET || st->reader || !st->ended)
                        continue;
                first = first ?: st;
                n++;
        }
        if (n > HF_MAX_KEPT_STREAMS)
                drop(first);
}

void cg_hf_session_leave(struct hf_stream *st)
{
        struct hf_session *s = st->session;

        st->reader = NULL;
        st->since_ms = cg_now_ms();
        if (s && ((st->kind == HF_INITIALIZE && !st->ended) || (s->sse && st == s->get))) {
                cg_hf_session_end(s, "the client has gone");
        } else if (!s || !st->begun || st->stateless || (st->ended && st->f->event_bytes > HF_MAX_ALL_KEPT)) {
                drop(st);
        } else {
                cg_hf_stream_trim(st); /* it can be resumed: cg_hf_session_tick() ends it */
                st->asked_again = false;
                if (s->get->reader)
                        cg_hf_session_back(s);
                trim_kept(s);
        }
}

/* A cell may go on after its call was answered. */
static void ask_busy(struct hf_session *s)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY };

        s->asked = ++s->f->last_request;
        if (cg_rpc_add_request(&b, s->asked, CG_MCPD_BUSY_METHOD, NULL, NULL) == 0)
                send_line(s, (struct cg_slice){ b.data, b.len - 1 }, NULL, 0, NULL);
}

static void on_busy(struct hf_session *s, struct cg_slice result)
{
        int64_t now = cg_now_ms();
        struct cg_slice busy = CG_SLICE_NONE;

        s->asked = 0;
        if (cg_json_find(result, "busy", &busy) && cg_slice_is(busy, "true"))
                s->used_ms = now;
        else if (!s->n_open && now - s->used_ms >= s->f->setup.idle_ms)
                cg_hf_session_end(s, "the session was idle for too long");
}

void cg_hf_session_tick(struct hf_session *s, int64_t now)
{
        struct hf_stream *st, *next;

        for (st = TAILQ_FIRST(&s->streams); st; st = next) {
                int64_t age = now - st->since_ms;

                next = TAILQ_NEXT(st, entry);
                /* A call that was accepted is answered. */
                if (st->reader && now >= s->who.until_ms && (st->kind == HF_GET || st->kind == HF_LISTEN)) {
                        st->over = true;
                        st->wake(st->reader);
                } else if (st->reader && st->can_stream && !st->ended && age >= HF_KEEPALIVE_MS) {
                        st->since_ms = now;
                        cg_hf_stream_begin(st);
                } else if (!st->reader && st->kind != HF_GET && !s->sse &&
                           age >= (st->ended ? HF_KEPT_MS : HF_GONE_MS)) {
                        drop(st);
                }
        }
        if (s->n_open || s->get->reader)
                s->used_ms = now;
        else if (now - s->used_ms >= s->f->setup.idle_ms + HF_BUSY_MS)
                cg_hf_session_end(s, "the session was idle for too long");
        else if (now - s->used_ms >= s->f->setup.idle_ms && !s->asked)
                ask_busy(s);
}

/* ---- from the session process */

/* The status that an error of the stateless era comes with. */
static unsigned status_of(struct cg_slice error)
{
        struct cg_slice code = CG_SLICE_NONE;

        if (!cg_json_find(error, "code", &code))
                return MHD_HTTP_OK;
        if (cg_slice_is(code, "-32601"))
                return MHD_HTTP_NOT_FOUND;
        if (cg_slice_is(code, "-32602") || cg_slice_is(code, "-32022") || cg_slice_is(code, "-32021"))
                return MHD_HTTP_BAD_REQUEST;
        return MHD_HTTP_OK;
}

static struct hf_stream *find_request(struct hf_session *s, uint64_t number)
{
        struct hf_stream *st;

        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->kind != HF_GET && !st->ended && st->number == number)
                        return st;
        }
        return NULL;
}

/* Bytes of answers and events that are not read. An answer alone counts until all of it is. */
static size_t unread(const struct hf_session *s)
{
        const struct hf_stream *st;
        size_t n = 0;

        TAILQ_FOREACH(st, &s->streams, entry)
                n += st->begun ? st->unread : st->answer_len;
        return n;
}

static void answer(struct hf_session *s, struct hf_stream *st, const struct cg_rpc *m, struct cg_slice line)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        size_t head = (size_t)(m->id.p - line.p);
        bool refused;

        s->n_open--;
        s->used_ms = cg_now_ms();
        if (line.len > HF_SMALL_ANSWER && unread(s) > HF_MAX_ANSWERS) {
                fail_request(st, "256 MiB of answers of this session are not read: read them, then ask again "
                                 "(cell_result, or the task)");
                return;
        }
        if (cg_buf_try_add(&b, line.p, head, NULL) < 0 || cg_buf_try_adds(&b, st->id, NULL) < 0 ||
            cg_buf_try_add(&b, m->id.p + m->id.len, line.len - head - m->id.len, NULL) < 0) {
                fail_request(st, "no memory is left for the answer");
                return;
        }
        if (st->stateless && m->kind == CG_RPC_ERROR)
                st->status = status_of(m->error);
        refused = st->kind == HF_INITIALIZE && m->kind == CG_RPC_ERROR;
        push_answer(st, (struct cg_slice){ b.data, b.len });
        if (refused)
                cg_hf_session_end(s, "the session was not initialized");
}

static bool wants(const struct hf_stream *st, bool progress, struct cg_slice token)
{
        char number[24];

        snprintf(number, sizeof(number), "%llu", (unsigned long long)st->number);
        if (progress && st->stateless)
                return cg_slice_is(token, number);
        if (progress)
                return st->token && cg_slice_is(token, st->token);
        return st->kind == HF_CALL;
}

static bool is_log(const struct cg_rpc *m)
{
        return m->kind == CG_RPC_NOTIFICATION && strcmp(m->method, "notifications/message") == 0;
}

/*
 * Progress, and a message of the stateless era, belong to the request with their @token, all else
 * to the call that runs, the oldest one, or to the stream of GET, and to a stream that broke off
 * only where there is no other. NULL: the client does not read it.
 */
static struct hf_stream *find_stream(struct hf_session *s, const struct cg_rpc *m, struct cg_slice token)
{
        bool progress = (m->kind == CG_RPC_NOTIFICATION &&
                         strcmp(m->method, "notifications/progress") == 0) ||
                        (is_log(m) && token.p);
        struct hf_stream *st, *left = NULL;
        bool called = false;

        if (s->sse)
                return s->get;
        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->ended || st->kind == HF_GET)
                        continue;
                called |= st->kind == HF_CALL;
                if (!st->can_stream || !wants(st, progress, token))
                        continue;
                if (st->reader)
                        return st;
                left = left ?: st;
        }
        return progress || (called && !s->get->reader) ? left : s->get;
}

static void on_line(struct hf_session *s, struct cg_slice line)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        struct cg_slice token = CG_SLICE_NONE, meta;
        struct hf_stream *st;
        struct cg_err err;
        struct cg_rpc m;

        if (cg_rpc_parse(line, &m, &err) < 0) {
                cg_log(&s->f->log, CG_LOG_ERROR, "a session process sent no message: %s", err.msg);
                return;
        }
        if (m.kind == CG_RPC_RESULT || m.kind == CG_RPC_ERROR) {
                st = m.id_is_number ? find_request(s, m.id_number) : NULL;
                if (s->asked && m.id_is_number && m.id_number == s->asked)
                        on_busy(s, m.result);
                else if (st) /* or it was cancelled meanwhile */
                        answer(s, st, &m, line);
                return;
        }
        if (m.params.p)
                cg_json_find(m.params, "progressToken", &token);
        if (is_log(&m) && cg_json_find(m.params, "_meta", &meta))
                cg_json_find(meta, CG_MCPD_REQUEST, &token);
        st = find_stream(s, &m, token);
        if (st && st->stateless && token.p) {
                if (add_replaced(&b, line, (struct cg_slice[2]){ token }, is_log(&m) ? st->id : st->token,
                                 NULL) == 0)
                        cg_hf_stream_push(st, (struct cg_slice){ b.data, b.len }, false);
        } else if (st) {
                cg_hf_stream_push(st, line, false);
        } else if (m.kind == CG_RPC_REQUEST &&
                   cg_rpc_add_error(&b, m.id, CG_RPC_INTERNAL_ERROR,
                                    "the client reads no events: it accepts no "
                                    "text/event-stream and has opened no stream by GET",
                                    &err) == 0) {
                b.data[b.len - 1] = '\0';
                send_own(s, b.data);
        }
}

/* The monitor says how it has ended, and then the session ends. */
static void close_fd(struct hf_session *s)
{
        close(s->fd);
        s->fd = -1;
        cg_hf_tell_monitor(s->f, HF_CLOSE, s->number, "", NULL);
}

static void on_event(void *data, uint32_t events)
{
        struct hf_session *s = data;
        struct hf_front *f = s->f;
        uint64_t number = s->number;
        struct cg_slice line;
        struct cg_err err;
        char *room;
        ssize_t n;
        int r;

        if (events & EPOLLOUT)
                flush(s);
        if (!(events & ~(uint32_t)EPOLLOUT))
                return;
        if (cg_lines_room(&s->in, READ_SIZE, &room, &err) < 0) {
                cg_hf_session_end(s, err.msg);
                return;
        }
        n = recv(s->fd, room, READ_SIZE, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                close_fd(s);
                return;
        }
        cg_lines_added(&s->in, (size_t)n);
        while ((r = cg_lines_next(&s->in, &line, &err)) != CG_TIMEOUT) {
                if (r == 0)
                        on_line(s, line);
                else
                        cg_log(&f->log, CG_LOG_ERROR, "a session process: %s", err.msg);
                if (!cg_hf_session_numbered(f, number)) /* this message has ended it */
                        return;
        }
}
