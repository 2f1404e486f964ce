/*
 * JSON for a person who must judge it: one member a line, long texts broken where they have a
 * newline, what could deceive the eye shown as an escape. Runs in the command `cellgate`.
 *
 * Nothing is left out but the middle of strings over a limit. That, and the number of blanks in a
 * long run of them, is reported between a closing and an opening quote, where no string can write.
 */
#include "cli/common/pretty.h"

#include "base/text.h"

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
                return n ?: p < end;
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
        bool one_line;
};

static void indent(struct pretty *p, unsigned depth)
{
        cg_buf_addf(p->b, "\n%*s", (int)depth * 2, "");
}

/*
 * One character of a string. An escape for a harmless character (\u0065) is shown as that
 * character, so that a path cannot hide in escapes; any other stays as it was written.
 */
static void put_char(struct pretty *p, const char *at, size_t n, uint32_t cp, bool shown)
{
        if (at[0] == '\\' && shown && cp >= 0x20 && cp != '"' && cp != '\\')
                cg_buf_fail(p->b, cg_json_decode((struct cg_slice){ at, n }, p->b, NULL));
        else if (at[0] == '\\' || shown)
                cg_buf_add(p->b, at, n);
        else if (cp < 0x100)
                cg_buf_addf(p->b, "\\x%02x", cp);
        else if (cp < 0x10000)
                cg_buf_addf(p->b, "\\u%04x", cp);
        else
                cg_buf_addf(p->b, "\\U%08x", cp);
}

/* The characters between @at and @to. @lines: a newline begins a line. */
static void put_chars(struct pretty *p, const char *at, const char *to, const char *end, bool lines,
                      unsigned depth)
{
        struct cg_text_scan scan = { .next = cg_json_char, .judged = true };
        struct cg_fold f;
        size_t n;

        for (; at < to && (n = cg_fold_next(cg_json_char, at, end, &f)) > 0; at += n) {
                if (f.blanks) {
                        cg_buf_addf(p->b, "\" [%zu blanks] \"", f.blanks);
                        scan.after_letter = false;
                        continue;
                }
                put_char(p, at, n, f.c, cg_text_shown(&scan, at, end, f.c));
                if (f.c == '\n' && lines && at + n < to)
                        indent(p, depth + 1);
        }
}

/* @s: the bytes between the quotes. */
static void put_string(struct pretty *p, struct cg_slice s, unsigned depth)
{
        const char *end = s.p + s.len, *head = end, *tail = end;

        if (p->string_max)
                cg_fold_cut(cg_json_char, s.p, end, p->string_max, &head, &tail);
        cg_buf_adds(p->b, "\"");
        put_chars(p, s.p, head, end, !p->one_line, depth);
        if (tail > head)
                cg_buf_addf(p->b, "\" ... [%zu more bytes not shown] ... \"", (size_t)(tail - head));
        put_chars(p, tail, end, end, false, depth);
        cg_buf_adds(p->b, "\"");
}

static void put_value(struct pretty *p, struct cg_slice v, unsigned depth);

static bool is_skipped(const struct pretty *p, struct cg_slice key)
{
        for (size_t i = 0; p->skip && p->skip[i]; i++)
                if (cg_slice_is(key, p->skip[i]))
                        return true;
        return false;
}

static void put_items(struct pretty *p, struct cg_slice v, unsigned depth)
{
        struct cg_json_walk w;
        struct cg_slice key, value;
        bool outer = p->one_line;
        size_t count = 0;

        cg_buf_add(p->b, v.p, 1);
        p->one_line = outer || (depth && v.len <= ONE_LINE && !memchr(v.p, '\\', v.len));
        cg_json_walk_init(&w, v, v.p[0], NULL);
        while (cg_json_walk_next(&w, &key, &value, NULL) == 0) {
                if (!depth && key.p && is_skipped(p, key))
                        continue;
                if (count++)
                        cg_buf_adds(p->b, p->one_line ? ", " : ",");
                if (!p->one_line)
                        indent(p, depth + 1);
                if (key.p) {
                        put_string(p, key, depth + 1);
                        cg_buf_adds(p->b, ": ");
                }
                put_value(p, value, depth + 1);
        }
        if (count && !p->one_line)
                indent(p, depth);
        p->one_line = outer;
        cg_buf_adds(p->b, v.p[0] == '{' ? "}" : "]");
}

static void put_value(struct pretty *p, struct cg_slice v, unsigned depth)
{
        switch (cg_json_kind(v)) {
        case '{':
        case '[':
                put_items(p, v, depth);
                break;
        case '"':
                put_string(p, (struct cg_slice){ v.p + 1, v.len - 2 }, depth);
                break;
        default:
                cg_buf_add(p->b, v.p, v.len);
        }
}

void cg_pretty_json(struct cg_slice v, size_t string_max, const char *const *skip, struct cg_buf *b)
{
        struct pretty p = { .b = b, .string_max = string_max, .skip = skip };

        put_value(&p, v, 0);
}

void cg_pretty_ascii(struct cg_slice v, struct cg_buf *b)
{
        const char *p = v.p, *end = v.p + v.len, *from = p;

        while (p < end) {
                uint32_t c = 0;
                size_t n;

                if ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f) {
                        p++;
                        continue;
                }
                cg_buf_add(b, from, (size_t)(p - from));
                n = cg_utf8_next((const unsigned char *)p, (size_t)(end - p), &c);
                if (c < 0x20)
                        cg_buf_adds(b, " "); /* valid JSON has controls between tokens only */
                else if (c < 0x10000)
                        cg_buf_addf(b, "\\u%04x", c);
                else
                        cg_buf_addf(b, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                                    0xdc00 + ((c - 0x10000) & 0x3ff));
                p += n ?: 1;
                from = p;
        }
        cg_buf_add(b, from, (size_t)(p - from));
}
