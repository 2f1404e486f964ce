/* See error_lines.h. Runs in the kernel; the text is whatever the programs inside print. */
#include "kernel/error_lines.h"

#include <string.h>
#include "base/util.h"

/* The C library's texts of errors, without the first letter: its case varies. */
static const char *const texts[] = {
        "ermission denied",         /* EACCES */
        "ead-only file system",     /* EROFS */
        "o such file or directory", /* ENOENT */
};

#define SHORTEST 16

/* The first of the texts; NULL: none is there. */
static const char *find(const char *p, const char *end)
{
        const char *first = NULL;

        if (end - p < SHORTEST) /* most writes of print() */
                return NULL;
        for (size_t i = 0; i < CG_ARRAY_LEN(texts) && p < end; i++) {
                const char *hit = memmem(p, (size_t)((first ?: end) - p), texts[i], strlen(texts[i]));

                if (hit)
                        first = hit;
        }
        return first;
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
