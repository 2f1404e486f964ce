/*
 * Output of the kernel that waits to be sent, in the order in which it was written. Consecutive
 * text of one stream and cell becomes one message. A plain data structure: its user locks.
 */
#ifndef CG_KERNEL_OUTQ_H
#define CG_KERNEL_OUTQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/wire.h"

struct cg_outq_item {
        struct cg_outq_item *next;
        uint64_t cell;
        uint16_t type;
        uint16_t flags;
        int64_t due_ms; /* text may still grow until then, a line without its end a little longer */
        bool has_raw;
        size_t len, cap; /* of the first raw frame */
        char *data;
        size_t body_len;
        char *body; /* NULL when empty */
        size_t n_more;
        struct cg_bytes *more; /* further raw frames, one block with what they point to */
        size_t cost;           /* what it counts in the queue beside @len */
};

struct cg_outq {
        struct cg_outq_item *head, *tail;
        size_t bytes; /* of everything in the queue, with a share for each item */
        bool flush;   /* text at the end shall not wait to grow */
};

/* What a stream of bytes ended with: the beginning of a UTF-8 sequence. */
struct cg_utf8_state {
        unsigned char pending[4];
        size_t n;
};

void cg_outq_fini(struct cg_outq *q);
/*
 * Text of a stream, valid UTF-8, split at CG_MAX_STREAM between characters. It may grow until
 * @due_ms.
 */
int cg_outq_text(struct cg_outq *q, unsigned flags, uint64_t cell, const char *text, size_t len,
                 int64_t due_ms, struct cg_err *err);
/*
 * Bytes of a stream: what is not UTF-8 becomes U+FFFD. A sequence that is not complete yet waits in
 * @st.
 */
int cg_outq_bytes(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                  const char *data, size_t len, int64_t due_ms, struct cg_err *err);
/* No more bytes follow: a sequence that waits in @st never completes. */
int cg_outq_bytes_end(struct cg_outq *q, struct cg_utf8_state *st, unsigned flags, uint64_t cell,
                      int64_t due_ms, struct cg_err *err);
/*
 * A whole message (copies all of it, but what @raw holds, where that is m->raw: it is taken then;
 * may be NULL).
 */
int cg_outq_add(struct cg_outq *q, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err);

/*
 * The first message that need not wait any more, taken out (caller: cg_outq_item_free()); else
 * NULL, *due_ms: -1 or when to look again.
 */
struct cg_outq_item *cg_outq_pop(struct cg_outq *q, int64_t now_ms, int64_t *due_ms);
struct cg_outq_item *cg_outq_item_free(struct cg_outq_item *it);

#endif
