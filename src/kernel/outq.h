/*
 * Queue of the kernel's output, in the order in which it was written. Consecutive text of one
 * stream and cell becomes one message. The caller locks.
 */
#pragma once

#include "base/buf.h"
#include "base/wire.h"

struct cg_outq_item {
        struct cg_outq_item *next;
        uint64_t cell;
        uint16_t type;
        uint16_t flags;
        int64_t due_ms; /* text is held back until then, a line without its end a little longer */
        bool has_raw;
        size_t len, cap; /* of the first raw frame */
        char *data;
        size_t body_len;
        char *body; /* NULL when empty */
        size_t n_more;
        struct cg_bytes *more; /* further raw frames, in one block with their bytes */
        size_t cost;           /* its size in the queue in addition to @len */
};

struct cg_outq {
        struct cg_outq_item *head, *tail;
        size_t bytes;            /* size of all items */
        bool flush;              /* do not hold back text at the end */
        uint64_t added, removed; /* items, ever */
};

/* An incomplete UTF-8 sequence at the end of a stream of bytes. */
struct cg_utf8_state {
        unsigned char pending[4];
        size_t n;
};

void cg_outq_fini(struct cg_outq *q);
/*
 * Appends valid UTF-8 of a stream, split at CG_MAX_STREAM between characters. It is held back until
 * @due_ms.
 */
int cg_outq_text(struct cg_outq *q, unsigned flags, uint64_t cell, const char *text, size_t len,
                 int64_t due_ms, struct cg_err *err);
/* Appends bytes of a stream; invalid UTF-8 becomes U+FFFD. @st keeps an incomplete end. */
int cg_outq_bytes(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                  const char *data, size_t len, int64_t due_ms, struct cg_err *err);
/* No more bytes follow: appends U+FFFD for an incomplete sequence in @st. */
int cg_outq_bytes_end(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                      int64_t due_ms, struct cg_err *err);
/* Appends a message (copies). @raw (may be NULL): taken instead if it holds m->raw. */
int cg_outq_add(struct cg_outq *q, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err);

/*
 * Removes the first message that is not held back (returns; cg_outq_item_free()). NULL: there is
 * none, and *due_ms is when to try again, or -1.
 */
struct cg_outq_item *cg_outq_pop(struct cg_outq *q, int64_t now_ms, int64_t *due_ms);
struct cg_outq_item *cg_outq_item_free(struct cg_outq_item *it);
