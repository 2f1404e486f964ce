/* A growing byte buffer with a ceiling. Linked into every process. */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

void cg_buf_init(struct cg_buf *b, size_t max)
{
        *b = (struct cg_buf){ .max = max };
}

void cg_buf_fini(struct cg_buf *b)
{
        free(b->data);
        b->data = NULL;
        b->len = b->cap = 0;
}

int cg_buf_reserve(struct cg_buf *b, size_t n, char **ret, struct cg_err *err)
{
        size_t need, cap;
        char *p;

        if (!cg_size_add(b->len, n, &need) || need > b->max || need == SIZE_MAX)
                return cg_fail(err, CG_E_LIMIT, "buffer would grow over its limit of %zu bytes", b->max);
        if (need + 1 > b->cap) {
                cap = b->cap ? b->cap : 256;
                while (cap < need + 1)
                        cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
                p = realloc(b->data, cap);
                if (!p)
                        return cg_fail(err, CG_E_NOMEM, "buffer of %zu bytes", cap);
                b->data = p;
                b->cap = cap;
        }
        *ret = b->data + b->len;
        return 0;
}

void cg_buf_end(struct cg_buf *b)
{
        if (b->data)
                b->data[b->len] = '\0';
}

int cg_buf_add(struct cg_buf *b, const void *data, size_t len, struct cg_err *err)
{
        char *p;
        int r = cg_buf_reserve(b, len, &p, err);

        if (r < 0)
                return r;
        if (len)
                memcpy(p, data, len);
        b->len += len;
        cg_buf_end(b);
        return 0;
}

int cg_buf_adds(struct cg_buf *b, const char *s, struct cg_err *err)
{
        return cg_buf_add(b, s, strlen(s), err);
}

int cg_buf_addf(struct cg_buf *b, struct cg_err *err, const char *fmt, ...)
{
        va_list ap;
        char *p;
        int n, r;

        va_start(ap, fmt);
        n = vsnprintf(NULL, 0, fmt, ap);
        va_end(ap);
        if (n < 0)
                return cg_fail(err, CG_E_INVAL, "bad format");
        r = cg_buf_reserve(b, (size_t)n, &p, err);
        if (r < 0)
                return r;
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
        b->len += (size_t)n;
        return 0;
}

void cg_buf_consume(struct cg_buf *b, size_t n)
{
        if (n >= b->len) {
                b->len = 0;
        } else {
                memmove(b->data, b->data + n, b->len - n);
                b->len -= n;
        }
        cg_buf_end(b);
}

char *cg_buf_steal(struct cg_buf *b, size_t *len)
{
        char *p = b->data ? b->data : calloc(1, 1);

        if (len)
                *len = b->len;
        b->data = NULL;
        b->len = b->cap = 0;
        return p;
}
