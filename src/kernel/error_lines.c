/* See error_lines.h. Runs in the kernel; the text is whatever the programs inside print. */
#include "kernel/error_lines.h"

#include "base/util.h"

/* The C library's texts of errors, without the first letter: its case varies. */
static const struct {
        const char *text;
        unsigned char len, space; /* where its first blank is */
} texts[] = {
        { "ermission denied", 16, 9 },         /* EACCES */
        { "ead-only file system", 20, 8 },     /* EROFS */
        { "o such file or directory", 24, 1 }, /* ENOENT */
        { "peration not permitted", 22, 8 },   /* EPERM */
};

/* The first of the texts; NULL: none. By blanks, since memmem() is slow for what print() writes. */
static const char *find(const char *p, const char *end)
{
        for (const char *at = p; (at = memchr(at, ' ', (size_t)(end - at))); at++) {
                for (size_t i = 0; i < CG_ARRAY_LEN(texts); i++) {
                        size_t before = texts[i].space;

                        if ((size_t)(at - p) >= before && (size_t)(end - at) + before >= texts[i].len &&
                            memcmp(at - before, texts[i].text, texts[i].len) == 0)
                                return at - before;
                }
        }
        return NULL;
}

static void keep(struct cg_error_lines *e, const struct cg_error_part *before, const char *text, size_t len)
{
        size_t n = before ? before->len : 0;

        if (n + len > CG_ERROR_LINE_MAX || e->len + n + len + 1 > sizeof(e->lines))
                return;
        if (n)
                memcpy(e->lines + e->len, before->text, n);
        memcpy(e->lines + e->len + n, text, len);
        e->len += n + len;
        e->lines[e->len++] = '\n';
}

void cg_error_lines_add(struct cg_error_lines *e, int stream, const char *text, size_t len)
{
        struct cg_error_part *part = &e->part[stream];
        const char *p = text, *end = text + len, *hit, *last;

        if (len == 1 && *text == '\n') { /* every other write of print() */
                part->len = 0;
                return;
        }
        while ((hit = find(p, end))) {
                const char *start = memrchr(p, '\n', (size_t)(hit - p));
                const char *stop = memchr(hit, '\n', (size_t)(end - hit));

                start = start ? start + 1 : p;
                stop = stop ?: end;
                keep(e, start == text ? part : NULL, start, (size_t)(stop - start));
                p = stop < end ? stop + 1 : end;
        }
        /* What follows the last line end. A line that is too long keeps its beginning only. */
        last = memrchr(text, '\n', len);
        if (last) {
                part->len = 0;
                text = last + 1;
        }
        len = (size_t)(end - text);
        if (len > sizeof(part->text) - part->len)
                len = sizeof(part->text) - part->len;
        memcpy(part->text + part->len, text, len);
        part->len += len;
}
