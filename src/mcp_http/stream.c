/*
 * Streams of server-sent events: what a client has not got yet, and for a short time what it has
 * got, so that it can resume after a broken connection. Runs in the front of cellgate-mcp-http.
 */
#include "mcp_http/front.h"

struct hf_stream *cg_hf_stream_new(struct hf_front *f, struct hf_session *s, enum hf_stream_kind kind)
{
        struct hf_stream *st = calloc(1, sizeof(*st));

        if (!st)
                return NULL;
        st->f = f;
        st->session = s;
        st->kind = kind;
        st->since_ms = cg_now_ms();
        TAILQ_INIT(&st->events);
        TAILQ_INSERT_TAIL(&s->streams, st, entry);
        return st;
}

static void drop_event(struct hf_stream *st, struct hf_event *e)
{
        TAILQ_REMOVE(&st->events, e, entry);
        st->bytes -= e->len;
        st->f->event_bytes -= e->len;
        free(e);
}

void cg_hf_stream_free(struct hf_stream *st)
{
        while (!TAILQ_EMPTY(&st->events))
                drop_event(st, TAILQ_FIRST(&st->events));
        if (st->session)
                TAILQ_REMOVE(&st->session->streams, st, entry);
        free(st->id);
        free(st->token);
        free(st->answer);
        free(st);
}

static void wake(struct hf_stream *st)
{
        if (st->reader)
                st->wake(st->reader);
}

/* Ids are "STREAM-EVENT": unique in the session. Without a @text it says when to come back. */
static void add_event(struct hf_stream *st, struct cg_slice text)
{
        char head[80];
        size_t n = (size_t)snprintf(head, sizeof(head),
                                    "id: %llu-%llu\n%sdata: ", (unsigned long long)st->number,
                                    (unsigned long long)st->last + 1, text.len ? "" : "retry: 1000\n");
        struct hf_event *e = malloc(sizeof(*e) + n + text.len + 2);

        if (!e) {
                st->ended = st->slow = true;
                return;
        }
        e->number = ++st->last;
        e->len = n + text.len + 2;
        memcpy(e->text, head, n);
        memcpy(e->text + n, text.p, text.len);
        memcpy(e->text + n + text.len, "\n\n", 2);
        TAILQ_INSERT_TAIL(&st->events, e, entry);
        if (!st->next)
                st->next = e;
        else if (st->unread > HF_MAX_UNREAD)
                st->slow = true;
        st->bytes += e->len;
        st->unread += e->len;
        st->f->event_bytes += e->len;
}

/* Removes the first event, also if it was not sent. */
static void drop_first(struct hf_stream *st)
{
        struct hf_event *e = TAILQ_FIRST(&st->events);

        if (e == st->next) {
                st->unread -= e->len - st->at;
                st->next = TAILQ_NEXT(e, entry);
                st->at = 0;
        }
        st->dropped = e->number;
        drop_event(st, e);
}

void cg_hf_stream_trim(struct hf_stream *st)
{
        struct hf_event *e, *last = TAILQ_LAST(&st->events, hf_events);

        /* An answer is kept whatever its length, since nothing else has it. */
        while ((e = TAILQ_FIRST(&st->events)) && e != last && (e != st->next || !st->reader) &&
               st->bytes > HF_MAX_KEPT)
                drop_first(st);
}

/* First comes an id, by which the client can resume. Older clients would parse the data. */
static void begin(struct hf_stream *st)
{
        if (st->primes && !st->begun)
                add_event(st, (struct cg_slice){ "", 0 });
        st->begun = true;
}

void cg_hf_stream_push(struct hf_stream *st, struct cg_slice text, bool last)
{
        st->ended |= last;
        if (last && !st->begun) {
                st->answer = malloc(text.len + 1);
                st->slow = !st->answer;
                if (st->answer)
                        memcpy(st->answer, text.p, text.len);
                st->answer_len = text.len;
        } else {
                begin(st);
                add_event(st, text);
                cg_hf_stream_trim(st);
        }
        wake(st);
}

void cg_hf_stream_move(struct hf_stream *from, struct hf_stream *to)
{
        while (from->next) {
                const struct hf_event *e = TAILQ_FIRST(&from->events);
                const char *data = memchr(e->text, ' ', e->len), *end = e->text + e->len - 2;

                data = (const char *)memchr(data + 1, ' ', (size_t)(end - data)) +
                       1; /* behind "id: 0-1\ndata: " */
                if (e == from->next)
                        cg_hf_stream_push(to, (struct cg_slice){ data, (size_t)(end - data) }, false);
                drop_first(from);
        }
}

void cg_hf_stream_begin(struct hf_stream *st)
{
        begin(st);
        st->ping = true;
        wake(st);
}

ssize_t cg_hf_stream_read(struct hf_stream *st, char *buf, size_t max)
{
        struct hf_event *e = st->next;
        char comment[80];
        size_t n;

        if (st->slow)
                return -2;
        if ((!e && st->ended) || (st->over && !st->at))
                return -1;
        if (!e && !st->ping)
                return 0;
        st->since_ms = cg_now_ms();
        /* Between two events only. */
        if (st->ping && !st->at && max >= sizeof(comment)) {
                n = (size_t)(st->lost ? snprintf(comment, sizeof(comment),
                                                 ": %llu events are no longer kept\n\n",
                                                 (unsigned long long)st->lost)
                                      : snprintf(comment, sizeof(comment), ": keepalive\n\n"));
                st->ping = false;
                st->lost = 0;
                memcpy(buf, comment, n);
                return (ssize_t)n;
        }
        if (!e)
                return 0;
        n = CG_MIN(e->len - st->at, max);
        memcpy(buf, e->text + st->at, n);
        st->at += n;
        st->unread -= n;
        if (st->at == e->len) {
                st->next = TAILQ_NEXT(e, entry);
                st->at = 0;
                cg_hf_stream_trim(st);
        }
        return (ssize_t)n;
}

bool cg_hf_stream_resume(struct hf_stream *st, uint64_t after)
{
        struct hf_event *e = TAILQ_FIRST(&st->events);

        if (after > st->last)
                return false;
        st->lost = after < st->dropped ? st->dropped - after : 0;
        st->ping = st->lost > 0;
        while (e && e->number <= after)
                e = TAILQ_NEXT(e, entry);
        st->next = e;
        st->at = st->unread = 0;
        for (; e; e = TAILQ_NEXT(e, entry))
                st->unread += e->len;
        st->slow = false;
        return true;
}
