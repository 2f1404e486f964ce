/* A range of bytes in a text that somebody else owns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct cg_slice {
        const char *p; /* NULL: there is no such text */
        size_t len;
};

#define CG_SLICE_NONE  ((struct cg_slice){ .p = NULL })
#define CG_SLICE(text) ((struct cg_slice){ (text), sizeof(text) - 1 }) /* of a literal */

static inline struct cg_slice cg_slice_of(const char *s)
{
        return (struct cg_slice){ s, strlen(s) };
}

/* CG_SLICE_NONE where @s is NULL. */
static inline struct cg_slice cg_slice_or_none(const char *s)
{
        return s ? cg_slice_of(s) : CG_SLICE_NONE;
}

/* The first @len bytes, if there are so many. */
static inline struct cg_slice cg_slice_head(struct cg_slice s, size_t len)
{
        return s.len > len ? (struct cg_slice){ s.p, len } : s;
}

static inline bool cg_slice_eq(struct cg_slice a, struct cg_slice b)
{
        return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

/* By bytes, the shorter first where one begins with the other. */
static inline int cg_slice_cmp(struct cg_slice a, struct cg_slice b)
{
        size_t n = a.len < b.len ? a.len : b.len;
        int r = n ? memcmp(a.p, b.p, n) : 0;

        return r ?: (a.len > b.len) - (a.len < b.len);
}

/* For qsort() and bsearch(). */
static inline int cg_slice_order(const void *a, const void *b)
{
        return cg_slice_cmp(*(const struct cg_slice *)a, *(const struct cg_slice *)b);
}

static inline bool cg_slice_is(struct cg_slice s, const char *text)
{
        return s.p && cg_slice_eq(s, cg_slice_of(text));
}

/* True if @word is one of those in @list, with @separator between them. */
static inline bool cg_slice_has_word(struct cg_slice list, char separator, const char *word)
{
        for (const char *p = list.p, *end = list.p + list.len, *stop; p < end; p = stop + 1) {
                stop = (const char *)memchr(p, separator, (size_t)(end - p)) ?: end;
                if (cg_slice_is((struct cg_slice){ p, (size_t)(stop - p) }, word))
                        return true;
        }
        return false;
}

/* The number after @name ("VmHWM:") at the start of a line of a /proc file; -1: there is none. */
static inline int64_t cg_number_after(const char *text, const char *name)
{
        const char *at = text;

        while ((at = strstr(at, name)) && at > text && at[-1] != '\n')
                at++;
        return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}
