/* A growing byte buffer with a ceiling. Linked into every process. */
#include "base/buf.h"

void cg_buf_init(struct cg_buf *b, size_t max)
{
        *b = (struct cg_buf){ .max = max };
}

void cg_buf_fini(struct cg_buf *b)
{
        free(b->data);
        b->data = NULL;
        b->len = b->cap = 0;
        b->failed = 0;
}

void cg_buf_clear(struct cg_buf *b)
{
        cg_buf_cut(b, 0);
}

void cg_buf_cut(struct cg_buf *b, size_t len)
{
        b->len = len;
        b->failed = 0;
        cg_buf_terminate(b);
}

void cg_buf_fail(struct cg_buf *b, int r)
{
        if (!b->failed)
                b->failed = r;
}

int cg_buf_end(const struct cg_buf *b, struct cg_err *err)
{
        if (b->failed == CG_E_LIMIT)
                return cg_fail(err, CG_E_LIMIT, "buffer would grow over its limit of %zu bytes", b->max);
        if (b->failed)
                return cg_fail(err, b->failed, "buffer of %zu bytes", b->len);
        return 0;
}

int cg_buf_reserve(struct cg_buf *b, size_t n, char **ret, struct cg_err *err)
{
        size_t need, cap;
        char *p;

        if (b->failed)
                return cg_buf_end(b, err);
        if (!cg_size_add(b->len, n, &need) || need > b->max || need == SIZE_MAX)
                return cg_fail(err, CG_E_LIMIT, "buffer would grow over its limit of %zu bytes", b->max);
        if (need + 1 > b->cap) {
                cap = b->cap ?: 256;
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

void cg_buf_terminate(struct cg_buf *b)
{
        if (b->data)
                b->data[b->len] = '\0';
}

int cg_buf_try_add(struct cg_buf *b, const void *data, size_t len, struct cg_err *err)
{
        char *p;
        int r = cg_buf_reserve(b, len, &p, err);

        if (r < 0)
                return r;
        if (len)
                memcpy(p, data, len);
        b->len += len;
        cg_buf_terminate(b);
        return 0;
}

int cg_buf_try_adds(struct cg_buf *b, const char *s, struct cg_err *err)
{
        return cg_buf_try_add(b, s, strlen(s), err);
}

__attribute__((format(printf, 3, 0))) static int add_formatted(struct cg_buf *b, struct cg_err *err,
                                                               const char *fmt, va_list ap)
{
        va_list again;
        char *p;
        int n, r;

        va_copy(again, ap);
        n = vsnprintf(NULL, 0, fmt, again);
        va_end(again);
        if (n < 0)
                return cg_fail(err, CG_E_INVAL, "bad format");
        r = cg_buf_reserve(b, (size_t)n, &p, err);
        if (r < 0)
                return r;
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        b->len += (size_t)n;
        return 0;
}

int cg_buf_try_addf(struct cg_buf *b, struct cg_err *err, const char *fmt, ...)
{
        va_list ap;
        int r;

        va_start(ap, fmt);
        r = add_formatted(b, err, fmt, ap);
        va_end(ap);
        return r;
}

void cg_buf_add(struct cg_buf *b, const void *data, size_t len)
{
        cg_buf_fail(b, cg_buf_try_add(b, data, len, NULL));
}

void cg_buf_adds(struct cg_buf *b, const char *s)
{
        cg_buf_add(b, s, strlen(s));
}

void cg_buf_addf(struct cg_buf *b, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        cg_buf_fail(b, add_formatted(b, NULL, fmt, ap));
        va_end(ap);
}

int cg_buf_end_entry(struct cg_buf *b, size_t start, struct cg_err *err)
{
        int r = cg_buf_end(b, err);

        if (r < 0)
                cg_buf_cut(b, start);
        return r;
}

void cg_buf_consume(struct cg_buf *b, size_t n)
{
        if (n >= b->len) {
                b->len = 0;
        } else {
                memmove(b->data, b->data + n, b->len - n);
                b->len -= n;
        }
        cg_buf_terminate(b);
}

char *cg_buf_steal(struct cg_buf *b, size_t *len)
{
        char *p = NULL;

        if (!b->failed) {
                p = b->data ?: calloc(1, 1);
                if (len)
                        *len = b->len;
                b->data = NULL;
        }
        cg_buf_fini(b);
        return p;
}
