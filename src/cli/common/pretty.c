/*
 * JSON for a person who must judge it: one member a line, long texts broken where they have a
 * newline, what could deceive the eye shown as an escape. Runs in the command `cellgate`.
 *
 * Nothing is left out but the middle of strings over a limit. That, and the number of blanks in a
 * long run of them, is reported between a closing and an opening quote, where no string can write.
 */
#include "cli/common/pretty.h"

#include <stdint.h>
#include <string.h>
#include "base/text.h"
#include "base/util.h"

/* Lines of a string that is cut: a long text must not push later members out of sight. */
#define SHORT_LINES 8u
/* Longer runs of blanks are folded, because they push what follows out of sight. */
#define MAX_BLANKS 40u
#define MAX_BREAKS 4u
#define MIN_CUT    40u /* less is not left out: the note would be as long */
/* A container that is not longer than this is shown on one line. */
#define ONE_LINE 60u

/* White space of Unicode, and characters that most fonts show as nothing or as a blank. */
static bool is_blank(uint32_t c)
{
        static const struct {
                uint32_t from, to;
        } blanks[] = { { 0x09, 0x0d },     { 0x20, 0x20 },      { 0x85, 0x85 },     { 0xa0, 0xa0 },
                       { 0xad, 0xad },     { 0x115f, 0x1160 },  { 0x1680, 0x1680 }, { 0x180b, 0x180f },
                       { 0x2000, 0x200f }, { 0x2028, 0x202f },  { 0x205f, 0x206f }, { 0x2800, 0x2800 },
                       { 0x3000, 0x3000 }, { 0x3164, 0x3164 },  { 0xfe00, 0xfe0f }, { 0xfeff, 0xfeff },
                       { 0xffa0, 0xffa0 }, { 0xe0000, 0xe0fff } };

        for (size_t i = 0; i < CG_ARRAY_LEN(blanks); i++)
                if (c >= blanks[i].from && c <= blanks[i].to)
                        return true;
        return false;
}

size_t cg_fold_next(cg_fold_char *next, const char *p, const char *end, struct cg_fold *f)
{
        size_t n = next(p, end, &f->c), breaks = 0, blanks = 0;
        const char *at = p;
        uint32_t c = f->c;

        f->blanks = 0;
        if (!n || !is_blank(c))
                return n ? n : p < end;
        for (size_t len = n; len && is_blank(c); len = next(at, end, &c)) {
                breaks += c == '\n';
                blanks++;
                at += len;
        }
        if (blanks <= MAX_BLANKS && breaks <= MAX_BREAKS)
                return n;
        f->blanks = blanks;
        return (size_t)(at - p);
}

void cg_fold_cut(cg_fold_char *next, const char *p, const char *end, size_t max, const char **head,
                 const char **tail)
{
        const char *last[CG_FOLD_TAIL];
        size_t seen = 0, lines = 0;
        struct cg_fold f;

        *head = end;
        for (size_t n; p < end && (n = cg_fold_next(next, p, end, &f)) > 0; p += n) {
                if (*head == end && (seen >= max || lines >= SHORT_LINES))
                        *head = p;
                last[seen++ % CG_FOLD_TAIL] = p;
                lines += !f.blanks && f.c == '\n';
        }
        *tail = *head;
        if (*head < end && seen > CG_FOLD_TAIL && last[seen % CG_FOLD_TAIL] > *head + MIN_CUT)
                *tail = last[seen % CG_FOLD_TAIL];
}

struct pretty {
        struct cg_buf *b;
        size_t string_max;
        const char *const *skip; /* members of the outermost object that are left out; or NULL */
        bool cut, one_line;
        struct cg_err *err;
};

static int indent(struct pretty *p, unsigned depth)
{
        int r = cg_buf_try_adds(p->b, "\n", p->err);

        for (unsigned i = 0; i < depth && r == 0; i++)
                r = cg_buf_try_adds(p->b, "  ", p->err);
        return r;
}

/*
 * One character of a string. An escape for a harmless character (\u0065) is shown as that
 * character, so that a path cannot hide in escapes; any other stays as it was written.
 */
static int put_char(struct pretty *p, const char *at, size_t n, uint32_t cp, bool shown)
{
        if (at[0] != '\\')
                return shown ? cg_buf_try_add(p->b, at, n, p->err)
                             : cg_buf_try_addf(p->b, p->err,
                                               cp < 0x100     ? "\\x%02x"
                                               : cp < 0x10000 ? "\\u%04x"
                                                              : "\\U%08x",
                                               cp);
        if (!shown || cp < 0x20 || cp == '"' || cp == '\\')
                return cg_buf_try_add(p->b, at, n, p->err);
        return cg_json_decode((struct cg_slice){ at, n }, p->b, p->err);
}

/* The characters between @at and @to. @lines: a newline begins a line. */
static int put_chars(struct pretty *p, const char *at, const char *to, const char *end, bool lines,
                     unsigned depth)
{
        struct cg_text_scan scan = { .next = cg_json_char, .judged = true };
        struct cg_fold f;
        size_t n;

        for (; at < to && (n = cg_fold_next(cg_json_char, at, end, &f)) > 0; at += n) {
                if (f.blanks ? cg_buf_try_addf(p->b, p->err, "\" [%zu blanks] \"", f.blanks) < 0
                             : put_char(p, at, n, f.c, cg_text_shown(&scan, at, end, f.c)) < 0)
                        return -1;
                if (!f.blanks && f.c == '\n' && lines && at + n < to && indent(p, depth + 1) < 0)
                        return -1;
        }
        return 0;
}

/* @s: the bytes between the quotes. */
static int put_string(struct pretty *p, struct cg_slice s, unsigned depth)
{
        const char *end = s.p + s.len, *head = end, *tail = end;

        if (p->string_max)
                cg_fold_cut(cg_json_char, s.p, end, p->string_max, &head, &tail);
        p->cut = p->cut || tail > head;
        if (cg_buf_try_adds(p->b, "\"", p->err) < 0 ||
            put_chars(p, s.p, head, end, !p->one_line, depth) < 0 ||
            (tail > head && cg_buf_try_addf(p->b, p->err, "\" ... [%zu more bytes not shown] ... \"",
                                            (size_t)(tail - head)) < 0) ||
            put_chars(p, tail, end, end, false, depth) < 0)
                return -1;
        return cg_buf_try_adds(p->b, "\"", p->err);
}

static int put_value(struct pretty *p, struct cg_slice v, unsigned depth);

static bool is_skipped(const struct pretty *p, struct cg_slice key)
{
        for (size_t i = 0; p->skip && p->skip[i]; i++)
                if (cg_slice_is(key, p->skip[i]))
                        return true;
        return false;
}

static int put_items(struct pretty *p, struct cg_slice v, unsigned depth)
{
        struct cg_json_walk w;
        struct cg_slice key, value;
        const char open[2] = { v.p[0], '\0' };
        bool outer = p->one_line;
        size_t count = 0;
        int r = cg_buf_try_adds(p->b, open, p->err);

        p->one_line = outer || (depth && v.len <= ONE_LINE && !memchr(v.p, '\\', v.len));

        cg_json_walk_init(&w, v, open[0], NULL);
        while (r == 0 && cg_json_walk_next(&w, &key, &value, NULL) == 0) {
                if (!depth && key.p && is_skipped(p, key))
                        continue;
                if ((count++ && cg_buf_try_adds(p->b, p->one_line ? ", " : ",", p->err) < 0) ||
                    (!p->one_line && indent(p, depth + 1) < 0) ||
                    (key.p && (put_string(p, key, depth + 1) < 0 || cg_buf_try_adds(p->b, ": ", p->err) < 0)))
                        return -1;
                r = put_value(p, value, depth + 1);
        }
        if (r == 0 && count && !p->one_line)
                r = indent(p, depth);
        p->one_line = outer;
        return r < 0 ? r : cg_buf_try_adds(p->b, open[0] == '{' ? "}" : "]", p->err);
}

static int put_value(struct pretty *p, struct cg_slice v, unsigned depth)
{
        switch (cg_json_kind(v)) {
        case '{':
        case '[':
                return put_items(p, v, depth);
        case '"':
                return put_string(p, (struct cg_slice){ v.p + 1, v.len - 2 }, depth);
        default:
                return cg_buf_try_add(p->b, v.p, v.len, p->err);
        }
}

int cg_pretty_json(struct cg_slice v, size_t string_max, const char *const *skip, struct cg_buf *b, bool *cut,
                   struct cg_err *err)
{
        struct pretty p = { .b = b, .string_max = string_max, .skip = skip, .err = err };
        int r = put_value(&p, v, 0);

        *cut = p.cut;
        return r;
}

int cg_pretty_ascii(struct cg_slice v, struct cg_buf *b, struct cg_err *err)
{
        const char *p = v.p, *end = v.p + v.len, *from = p;
        int r = 0;

        while (p < end && r == 0) {
                uint32_t c = 0;
                size_t n;

                if ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f) {
                        p++;
                        continue;
                }
                r = cg_buf_try_add(b, from, (size_t)(p - from), err);
                n = cg_utf8_next((const unsigned char *)p, (size_t)(end - p), &c);
                if (r == 0 && c < 0x20)
                        r = cg_buf_try_adds(b, " ", err); /* valid JSON has controls between tokens only */
                else if (r == 0 && c < 0x10000)
                        r = cg_buf_try_addf(b, err, "\\u%04x", c);
                else if (r == 0)
                        r = cg_buf_try_addf(b, err, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                                            0xdc00 + ((c - 0x10000) & 0x3ff));
                p += n ? n : 1;
                from = p;
        }
        return r < 0 ? r : cg_buf_try_add(b, from, (size_t)(p - from), err);
}
