/*
 * JSON for a person who must judge it: one member a line, long texts broken where they have a
 * newline, what could deceive the eye shown as an escape. Runs in the command `cellgate`.
 *
 * Nothing is left out but the rest of strings over a limit, which is reported after the closing
 * quote, where no string can write.
 */
#include "cli/common/pretty.h"

#include <stdint.h>
#include "base/text.h"

/* Lines of a string that is cut: a long text must not push later members out of sight. */
#define SHORT_LINES 8u

struct pretty {
        struct cg_buf *b;
        size_t string_max;
        bool cut;
        struct cg_err *err;
};

static int indent(struct pretty *p, unsigned depth)
{
        int r = cg_buf_adds(p->b, "\n", p->err);

        for (unsigned i = 0; i < depth && r == 0; i++)
                r = cg_buf_adds(p->b, "  ", p->err);
        return r;
}

/*
 * One character of a string. An escape for a harmless character (\u0065) is shown as that
 * character, so that a path cannot hide in escapes; any other stays as it was written.
 */
static int put_char(struct pretty *p, const char *at, size_t n, uint32_t cp, bool shown)
{
        if (at[0] != '\\')
                return shown ? cg_buf_add(p->b, at, n, p->err)
                             : cg_buf_addf(p->b, p->err,
                                           cp < 0x100     ? "\\x%02x"
                                           : cp < 0x10000 ? "\\u%04x"
                                                          : "\\U%08x",
                                           cp);
        if (!shown || cp < 0x20 || cp == '"' || cp == '\\')
                return cg_buf_add(p->b, at, n, p->err);
        return cg_json_decode((struct cg_slice){ at, n }, p->b, p->err);
}

/* @s: the bytes between the quotes. */
static int put_string(struct pretty *p, struct cg_slice s, size_t max, unsigned depth)
{
        const char *at = s.p, *end = s.p + s.len;
        struct cg_text_scan scan = { .next = cg_json_char, .judged = true };
        uint32_t cp = 0;
        size_t n, seen = 0, lines = 0;
        int r = cg_buf_adds(p->b, "\"", p->err);

        while (r == 0 && (!max || (seen < max && lines < SHORT_LINES)) &&
               (n = cg_json_char(at, end, &cp)) > 0) {
                r = put_char(p, at, n, cp, cg_text_shown(&scan, at, end, cp));
                at += n;
                seen++;
                lines += cp == '\n';
                if (r == 0 && cp == '\n' && at < end && (!max || lines < SHORT_LINES))
                        r = indent(p, depth + 1);
        }
        if (r == 0)
                r = cg_buf_adds(p->b, "\"", p->err);
        if (r == 0 && at < end) {
                p->cut = true;
                r = cg_buf_addf(p->b, p->err, " ... [%zu more bytes not shown]", (size_t)(end - at));
        }
        return r;
}

static int put_value(struct pretty *p, struct cg_slice v, unsigned depth);

static int put_items(struct pretty *p, struct cg_slice v, unsigned depth)
{
        struct cg_json_walk w;
        struct cg_slice key, value;
        const char open[2] = { v.p[0], '\0' };
        size_t count = 0;
        int r = cg_buf_adds(p->b, open, p->err);

        cg_json_walk_init(&w, v, open[0], NULL);
        while (r == 0 && cg_json_walk_next(&w, &key, &value, NULL) == 0) {
                if (count++)
                        r = cg_buf_adds(p->b, ",", p->err);
                if (r == 0)
                        r = indent(p, depth + 1);
                if (r == 0 && key.p)
                        r = put_string(p, key, 0, depth + 1);
                if (r == 0 && key.p)
                        r = cg_buf_adds(p->b, ": ", p->err);
                if (r == 0)
                        r = put_value(p, value, depth + 1);
        }
        if (r == 0 && count)
                r = indent(p, depth);
        return r < 0 ? r : cg_buf_adds(p->b, open[0] == '{' ? "}" : "]", p->err);
}

static int put_value(struct pretty *p, struct cg_slice v, unsigned depth)
{
        switch (cg_json_kind(v)) {
        case '{':
        case '[':
                return put_items(p, v, depth);
        case '"':
                return put_string(p, (struct cg_slice){ v.p + 1, v.len - 2 }, p->string_max, depth);
        default:
                return cg_buf_add(p->b, v.p, v.len, p->err);
        }
}

int cg_pretty_json(struct cg_slice v, size_t string_max, struct cg_buf *b, bool *cut, struct cg_err *err)
{
        struct pretty p = { .b = b, .string_max = string_max, .err = err };
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
                r = cg_buf_add(b, from, (size_t)(p - from), err);
                n = cg_utf8_next((const unsigned char *)p, (size_t)(end - p), &c);
                if (r == 0 && c < 0x20)
                        r = cg_buf_adds(b, " ", err); /* valid JSON has controls between tokens only */
                else if (r == 0 && c < 0x10000)
                        r = cg_buf_addf(b, err, "\\u%04x", c);
                else if (r == 0)
                        r = cg_buf_addf(b, err, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                                        0xdc00 + ((c - 0x10000) & 0x3ff));
                p += n ? n : 1;
                from = p;
        }
        return r < 0 ? r : cg_buf_add(b, from, (size_t)(p - from), err);
}
