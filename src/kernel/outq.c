/* The queue of output: order, coalescing, UTF-8. Kernel process. See outq.h. */
#include "kernel/outq.h"

#include "base/ceilings.h"
#include "base/text.h"

/* Added to the size of each item, so that empty messages cannot fill memory. */
#define ITEM_COST 128
#define FIRST_CAP 512
/*
 * Additional time for a line without its end, because print() writes the end separately and the
 * process may be preempted in between.
 */
#define LINE_MS 40

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

struct cg_outq_item *cg_outq_item_free(struct cg_outq_item *it)
{
        if (it) {
                free(it->data);
                free(it->body);
                free(it->more);
        }
        free(it);
        return NULL;
}

void cg_outq_fini(struct cg_outq *q)
{
        while (q->head) {
                struct cg_outq_item *next = q->head->next;

                cg_outq_item_free(q->head);
                q->head = next;
        }
        *q = (struct cg_outq){ .head = NULL };
}

static struct cg_outq_item *item_new(uint16_t type, uint64_t cell, size_t cap, struct cg_err *err)
{
        struct cg_outq_item *it = calloc(1, sizeof(*it));

        if (it)
                it->data = malloc(cap ?: 1);
        if (!it || !it->data) {
                free(it);
                cg_fail(err, CG_E_NOMEM, "output queue");
                return NULL;
        }
        it->type = type;
        it->cell = cell;
        it->cap = cap;
        it->has_raw = true;
        return it;
}

static void append(struct cg_outq *q, struct cg_outq_item *it)
{
        it->cost = ITEM_COST + it->body_len;
        for (size_t i = 0; i < it->n_more; i++)
                it->cost += it->more[i].len;
        if (q->tail)
                q->tail->next = it;
        else
                q->head = it;
        q->tail = it;
        q->added++;
        q->bytes += it->cost + it->len;
}

static int grow(struct cg_outq_item *it, size_t need, struct cg_err *err)
{
        size_t cap = it->cap;
        char *p;

        if (need <= cap)
                return 0;
        while (cap < need)
                cap *= 2;
        if (cap > CG_MAX_STREAM)
                cap = CG_MAX_STREAM;
        p = realloc(it->data, cap);
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "output queue");
        it->data = p;
        it->cap = cap;
        return 0;
}

/* The number of bytes that fit into @room without splitting a character. */
static size_t fitting(const char *text, size_t len, size_t room)
{
        if (len <= room)
                return len;
        while (room && ((unsigned char)text[room] & 0xc0) == 0x80)
                room--;
        return room;
}

int cg_outq_text(struct cg_outq *q, unsigned flags, uint64_t cell, const char *text, size_t len,
                 int64_t due_ms, struct cg_err *err)
{
        while (len) {
                struct cg_outq_item *it = q->tail;
                size_t n = 0;
                int r;

                /* text of the same stream and cell is continued */
                if (it && it->type == CG_KERNEL_STREAM && it->flags == flags && it->cell == cell)
                        n = fitting(text, len, CG_MAX_STREAM - it->len);
                if (!n) {
                        n = fitting(text, len, CG_MAX_STREAM);
                        it = item_new(CG_KERNEL_STREAM, cell, CG_MAX(n, FIRST_CAP), err);
                        if (!it)
                                return CG_E_NOMEM;
                        it->flags = (uint16_t)flags;
                        it->due_ms = due_ms;
                        append(q, it);
                }
                r = grow(it, it->len + n, err);
                if (r < 0)
                        return r;
                memcpy(it->data + it->len, text, n);
                it->len += n;
                q->bytes += n;
                text += n;
                len -= n;
        }
        return 0;
}

/* Is this an incomplete sequence that more bytes can complete? */
static bool is_prefix(const unsigned char *p, size_t n)
{
        /* The range of a second byte has one of these ends, that of a later one both. */
        static const unsigned char ends[] = { 0x80, 0xbf };
        size_t need = cg_utf8_length(*p);
        uint32_t cp;

        for (size_t i = 0; i < CG_ARRAY_LEN(ends) && n < need; i++) {
                unsigned char whole[] = { ends[i], ends[i], ends[i], ends[i] };

                memcpy(whole, p, n);
                if (cg_utf8_next(whole, need, &cp) == need)
                        return true;
        }
        return false;
}

/* Adds bytes to the pending sequence until it is complete or invalid. Returns how many it used. */
static ssize_t finish_pending(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                              const unsigned char *data, size_t len, int64_t due_ms, struct cg_err *err)
{
        size_t used = 0;

        while (st->n && used < len) {
                const char *out = replacement;
                size_t n = 3;
                uint32_t cp;
                int r;

                st->pending[st->n++] = data[used++];
                if (is_prefix(st->pending, st->n))
                        continue;
                if (cg_utf8_next(st->pending, st->n, &cp) == st->n) {
                        out = (const char *)st->pending;
                        n = st->n;
                } else {
                        used--; /* this byte may begin a new sequence */
                }
                r = cg_outq_text(q, flags, cell, out, n, due_ms, err);
                if (r < 0)
                        return r;
                st->n = 0;
        }
        return (ssize_t)used;
}

/* Length of the valid text at the start. */
static size_t valid_run(const unsigned char *p, size_t len)
{
        size_t i = 0;

        while (i < len) {
                uint64_t word;
                uint32_t cp;
                size_t n;

                if (len - i >= sizeof(word)) { /* eight ASCII characters at once */
                        memcpy(&word, p + i, sizeof(word));
                        if (!(word & 0x8080808080808080u)) {
                                i += sizeof(word);
                                continue;
                        }
                }
                n = cg_utf8_next(p + i, len - i, &cp);
                if (!n)
                        break;
                i += n;
        }
        return i;
}

int cg_outq_bytes(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                  const char *data, size_t len, int64_t due_ms, struct cg_err *err)
{
        const unsigned char *p = (const unsigned char *)data, *end = p + len;
        ssize_t used = finish_pending(q, st, flags, cell, p, len, due_ms, err);

        if (used < 0)
                return (int)used;
        p += used;
        while (p < end) {
                size_t left = (size_t)(end - p), n = valid_run(p, left);
                int r = cg_outq_text(q, flags, cell, (const char *)p, n, due_ms, err);

                if (r < 0)
                        return r;
                p += n;
                left -= n;
                if (!left)
                        break;
                if (is_prefix(p, left)) {
                        memcpy(st->pending, p, left);
                        st->n = left;
                        break;
                }
                r = cg_outq_text(q, flags, cell, replacement, 3, due_ms, err);
                if (r < 0)
                        return r;
                p++;
        }
        return 0;
}

int cg_outq_bytes_end(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                      int64_t due_ms, struct cg_err *err)
{
        if (!st->n)
                return 0;
        st->n = 0;
        return cg_outq_text(q, flags, cell, replacement, 3, due_ms, err);
}

/* One block: the array of frames, then their bytes. */
static int copy_frames(struct cg_outq_item *it, const struct cg_bytes *more, size_t n, struct cg_err *err)
{
        size_t size = n * sizeof(*more);
        char *p;

        for (size_t i = 0; i < n; i++)
                if (!cg_size_add(size, more[i].len, &size))
                        return cg_fail(err, CG_E_LIMIT, "output queue");
        it->more = malloc(size);
        if (!it->more)
                return cg_fail(err, CG_E_NOMEM, "output queue");
        p = (char *)(it->more + n);
        for (size_t i = 0; i < n; i++) {
                it->more[i] = (struct cg_bytes){ p, more[i].len };
                if (more[i].len)
                        memcpy(p, more[i].data, more[i].len);
                p += more[i].len;
        }
        it->n_more = n;
        return 0;
}

static int copy_body(struct cg_outq_item *it, const struct cg_out *m, struct cg_err *err)
{
        if (!m->body_len)
                return 0;
        it->body = malloc(m->body_len);
        if (!it->body)
                return cg_fail(err, CG_E_NOMEM, "output queue");
        it->body_len = m->body_len;
        memcpy(it->body, m->body, m->body_len);
        return 0;
}

int cg_outq_add(struct cg_outq *q, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err)
{
        bool take = raw && raw->len && m->raw == raw->data;
        struct cg_outq_item *it = item_new(m->type, m->id, take ? 0 : m->raw_len, err);

        if (!it)
                return CG_E_NOMEM;
        it->flags = m->flags;
        it->has_raw = m->has_raw;
        if (m->raw_len && !take)
                memcpy(it->data, m->raw, m->raw_len);
        it->len = m->raw_len;
        if (copy_body(it, m, err) < 0 || (m->n_more && copy_frames(it, m->more, m->n_more, err) < 0)) {
                cg_outq_item_free(it);
                return CG_E_NOMEM;
        }
        if (take) {
                free(it->data);
                it->data = cg_buf_steal(raw, NULL);
        }
        append(q, it);
        return 0;
}

struct cg_outq_item *cg_outq_pop(struct cg_outq *q, int64_t now_ms, int64_t *due_ms)
{
        struct cg_outq_item *it = q->head;

        *due_ms = -1;
        if (!it)
                return NULL;
        /* Text at the end of the queue is held back: until it is due, a line without end longer. */
        if (it == q->tail && it->type == CG_KERNEL_STREAM && !q->flush && it->len < CG_MAX_STREAM) {
                bool ended = it->len && (it->data[it->len - 1] == '\n' || it->data[it->len - 1] == '\r');
                int64_t until = now_ms < it->due_ms || ended ? it->due_ms : it->due_ms + LINE_MS;

                if (now_ms < until) {
                        *due_ms = until;
                        return NULL;
                }
        }
        q->head = it->next;
        if (!q->head) {
                q->tail = NULL;
                q->flush = false;
        }
        q->removed++;
        q->bytes -= it->cost + it->len;
        it->next = NULL;
        return it;
}
