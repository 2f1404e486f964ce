/*
 * JSON for a person who must judge it: one member a line, long texts broken where they have a
 * newline, what could deceive the eye shown as an escape. Runs in the command `cellgate`.
 *
 * Nothing is left out but the rest of strings over a limit, and that is said behind the closing
 * quote, where no string can write.
 */
#include "cli/common/raw.h"

#include <stdint.h>
#include "base/text.h"

/* Lines of a string that is cut: a long text must not push the members behind it out of sight. */
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
        cg_auto_buf struct cg_buf plain = { .max = 64 };
        char quoted[20] = "\"";
        int r;

        if (at[0] != '\\')
                return shown ? cg_buf_add(p->b, at, n, p->err)
                             : cg_buf_addf(p->b, p->err,
                                           cp < 0x100     ? "\\x%02x"
                                           : cp < 0x10000 ? "\\u%04x"
                                                          : "\\U%08x",
                                           cp);
        if (!shown || cp < 0x20 || cp == '"' || cp == '\\')
                return cg_buf_add(p->b, at, n, p->err);
        for (size_t i = 0; i < n; i++)
                quoted[i + 1] = at[i];
        quoted[n + 1] = '"';
        r = cg_raw_string((struct cg_raw){ quoted, n + 2 }, &plain, p->err);
        return r < 0 ? r : cg_buf_add(p->b, plain.data, plain.len, p->err);
}

static int put_string(struct pretty *p, struct cg_raw v, size_t max, unsigned depth)
{
        const char *at = v.p + 1, *end = v.p + v.len - 1;
        struct cg_text_scan scan = { .next = cg_raw_char, .judged = true };
        uint32_t cp = 0;
        size_t n, seen = 0, lines = 0;
        int r = cg_buf_adds(p->b, "\"", p->err);

        while (r == 0 && (!max || (seen < max && lines < SHORT_LINES)) &&
               (n = cg_raw_char(at, end, &cp)) > 0) {
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

static int put_value(struct pretty *p, struct cg_raw v, unsigned depth);

static int put_items(struct pretty *p, struct cg_raw v, unsigned depth)
{
        struct cg_raw_iter it = cg_raw_items(v);
        struct cg_raw key = { NULL, 0 }, value;
        const char open[2] = { v.p[0], '\0' };
        size_t count = 0;
        int r = cg_buf_adds(p->b, open, p->err);

        while (r == 0 && cg_raw_next(&it, &key, &value)) {
                if (count++)
                        r = cg_buf_adds(p->b, ",", p->err);
                if (r == 0)
                        r = indent(p, depth + 1);
                if (r == 0 && it.object)
                        r = put_string(p, key, 0, depth + 1);
                if (r == 0 && it.object)
                        r = cg_buf_adds(p->b, ": ", p->err);
                if (r == 0)
                        r = put_value(p, value, depth + 1);
        }
        if (r == 0 && count)
                r = indent(p, depth);
        return r < 0 ? r : cg_buf_adds(p->b, open[0] == '{' ? "}" : "]", p->err);
}

static int put_value(struct pretty *p, struct cg_raw v, unsigned depth)
{
        switch (cg_raw_kind(v)) {
        case '{':
        case '[':
                return put_items(p, v, depth);
        case '"':
                return put_string(p, v, p->string_max, depth);
        default:
                return cg_buf_add(p->b, v.p, v.len, p->err);
        }
}

int cg_raw_pretty(struct cg_raw v, size_t string_max, struct cg_buf *b, bool *cut, struct cg_err *err)
{
        struct pretty p = { .b = b, .string_max = string_max, .err = err };
        int r = put_value(&p, v, 0);

        *cut = p.cut;
        return r;
}
