/* A growing byte buffer with a ceiling. */
#ifndef CG_BASE_BUF_H
#define CG_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include "base/err.h"
#include "base/util.h"

/*
 * data is always NUL-terminated behind len once anything was appended (the NUL is not counted), so
 * it can be used as a C string where the content has no NUL. An append beyond max fails with
 * CG_E_LIMIT and leaves the buffer as it was.
 */
struct cg_buf {
        char *data;
        size_t len;
        size_t cap;
        size_t max;
};

void cg_buf_init(struct cg_buf *b, size_t max);
void cg_buf_fini(struct cg_buf *b);
/*
 * Room for @n more bytes; *ret points at it. Follow with b->len += n (and keep the NUL by
 * cg_buf_end()).
 */
int cg_buf_reserve(struct cg_buf *b, size_t n, char **ret, struct cg_err *err);
int cg_buf_add(struct cg_buf *b, const void *data, size_t len, struct cg_err *err);
int cg_buf_adds(struct cg_buf *b, const char *s, struct cg_err *err);
int cg_buf_addf(struct cg_buf *b, struct cg_err *err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void cg_buf_end(struct cg_buf *b);
/* Drops the first n bytes. */
void cg_buf_consume(struct cg_buf *b, size_t n);
/*
 * Returns the data (caller frees; "" allocated when empty) and leaves the buffer empty; NULL when
 * out of memory.
 */
char *cg_buf_steal(struct cg_buf *b, size_t *len);

#define cg_auto_buf CG_CLEANUP(cg_buf_fini)

#endif
