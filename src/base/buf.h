/* A growing byte buffer with a ceiling. */
#pragma once

#include <stdarg.h>
#include "base/slice.h"
#include "base/util.h"

/*
 * data is always NUL-terminated behind len once anything was appended (the NUL is not counted), so
 * it can be used as a C string where the content has no NUL.
 */
struct cg_buf {
        char *data;
        size_t len;
        size_t cap;
        size_t max;
        int failed; /* code of the first append that failed, or 0 */
};

void cg_buf_init(struct cg_buf *b, size_t max);
void cg_buf_fini(struct cg_buf *b);

/*
 * For a text that is made by many appends and is worth nothing without one of them. A failed append
 * is kept: all further ones do nothing, cg_buf_end() reports it, and cg_buf_steal() returns NULL.
 */
void cg_buf_add(struct cg_buf *b, const void *data, size_t len);
void cg_buf_adds(struct cg_buf *b, const char *s);
void cg_buf_addf(struct cg_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Keeps the failure @r of another step, unless it is 0 or there is one already. */
void cg_buf_fail(struct cg_buf *b, int r);
/* Returns the first failure: CG_E_LIMIT when the text grew over max, CG_E_NOMEM; else 0. */
int cg_buf_end(const struct cg_buf *b, struct cg_err *err);

/*
 * For a buffer that outlives a failure, such as a queue. An append beyond max fails with CG_E_LIMIT
 * and leaves the buffer as it was.
 */
int cg_buf_try_add(struct cg_buf *b, const void *data, size_t len, struct cg_err *err);
int cg_buf_try_adds(struct cg_buf *b, const char *s, struct cg_err *err);
int cg_buf_try_addf(struct cg_buf *b, struct cg_err *err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
/*
 * Ends an entry of a queue that was begun at @start: CG_E_LIMIT, CG_E_NOMEM when an append to it
 * has failed; then the queue is as it was before.
 */
int cg_buf_end_entry(struct cg_buf *b, size_t start, struct cg_err *err);
/* Room for @n more bytes at *ret. Then b->len += n (the NUL is kept by cg_buf_terminate()). */
int cg_buf_reserve(struct cg_buf *b, size_t n, char **ret, struct cg_err *err);
void cg_buf_terminate(struct cg_buf *b);
/* Empties the buffer and forgets a failure. The memory is kept. */
void cg_buf_clear(struct cg_buf *b);
/* Shortens the buffer to @len bytes, no more than it has, and forgets a failure. */
void cg_buf_cut(struct cg_buf *b, size_t len);
/* Drops the first n bytes. */
void cg_buf_consume(struct cg_buf *b, size_t n);
/*
 * Returns the data (caller frees; "" allocated when empty) and leaves the buffer empty; NULL when
 * out of memory, or when an append has failed.
 */
char *cg_buf_steal(struct cg_buf *b, size_t *len);

/* The text so far, "" where nothing was appended; borrowed until the next append. */
static inline const char *cg_buf_str(const struct cg_buf *b)
{
        return b->data ?: "";
}

static inline struct cg_slice cg_buf_slice(const struct cg_buf *b)
{
        return (struct cg_slice){ cg_buf_str(b), b->len };
}

#define cg_auto_buf CG_CLEANUP(cg_buf_fini)
