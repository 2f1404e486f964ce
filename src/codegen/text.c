/*
 * Writing Python and JSON text: the one emitter for foreign text. Runs in trusted processes; what
 * it writes runs in kernels.
 */
#include "codegen/text.h"

#include "base/text.h"
#include "codegen/ceilings.h"

struct cg_slice cg_arena_text(struct cg_arena *a, const struct cg_buf *b)
{
        if (b->failed) {
                a->failed = true;
                return CG_SLICE("");
        }
        return cg_arena_copy(a, b->data, b->len);
}

/* ------------------------------------------------------------------ characters */

uint32_t cg_next_char(struct cg_slice *s)
{
        const unsigned char *p = (const unsigned char *)s->p;
        size_t n = CG_MIN(cg_utf8_length(p[0]), s->len);
        uint32_t c = p[0];

        if (n > 1)
                c &= 0x7fu >> n;
        for (size_t i = 1; i < n; i++)
                c = c << 6 | (p[i] & 63);
        s->p += n;
        s->len -= n;
        return c;
}

size_t cg_count_chars(struct cg_slice s)
{
        size_t n = 0;

        for (size_t i = 0; i < s.len; i++)
                n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
        return n;
}

struct cg_slice cg_cut_chars(struct cg_slice s, size_t max, bool *cut)
{
        struct cg_slice rest = s;

        while (rest.len && max--)
                cg_next_char(&rest);
        *cut = rest.len > 0;
        return (struct cg_slice){ s.p, s.len - rest.len };
}

static bool space(char c)
{
        return c == ' ' || (c >= '\t' && c <= '\r');
}

struct cg_slice cg_trim(struct cg_slice s)
{
        while (s.len && space(s.p[0])) {
                s.p++;
                s.len--;
        }
        while (s.len && space(s.p[s.len - 1]))
                s.len--;
        return s;
}

/*
 * Characters that drive a terminal, reorder text, or cannot be seen: C0, C1, bidirectional, zero
 * width, separators, surrogates, tags.
 */
static bool hidden(uint32_t c)
{
        static const struct {
                uint32_t from, to;
        } ranges[] = {
                { 0x00, 0x08 },       { 0x0b, 0x1f },     { 0x7f, 0x9f },     { 0xad, 0xad },
                { 0x61c, 0x61c },     { 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e },
                { 0x2060, 0x206f },   { 0xd800, 0xdfff }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb },
                { 0xe0000, 0xe007f },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(ranges); i++)
                if (c >= ranges[i].from && c <= ranges[i].to)
                        return true;
        return false;
}

static void put_escape(struct cg_buf *o, const char *backslash, uint32_t c)
{
        if (c < 0x100)
                cg_buf_addf(o, "%sx%02x", backslash, (unsigned)c);
        else if (c < 0x10000)
                cg_buf_addf(o, "%su%04x", backslash, (unsigned)c);
        else
                cg_buf_addf(o, "%sU%08x", backslash, (unsigned)c);
}

/* ------------------------------------------------------------------ Python */

/* Length of the run at the start of @s that needs no escape in either kind of literal. */
static size_t plain(struct cg_slice s)
{
        size_t n = 0;

        while (n < s.len && s.p[n] >= 0x20 && s.p[n] < 0x7f && s.p[n] != '"' && s.p[n] != '\\')
                n++;
        return n;
}

static bool put_plain(struct cg_buf *o, struct cg_slice *s)
{
        size_t n = plain(*s);

        cg_puts(o, (struct cg_slice){ s->p, n });
        s->p += n;
        s->len -= n;
        return s->len > 0;
}

void cg_put_str(struct cg_buf *o, struct cg_slice s)
{
        cg_buf_adds(o, "\"");
        while (put_plain(o, &s)) {
                uint32_t c = cg_next_char(&s);

                if (c == '"')
                        cg_buf_adds(o, "\\\"");
                else if (c == '\\')
                        cg_buf_adds(o, "\\\\");
                else if (c == '\n')
                        cg_buf_adds(o, "\\n");
                else
                        put_escape(o, "\\", c);
        }
        cg_buf_adds(o, "\"");
}

void cg_put_doc(struct cg_buf *o, struct cg_slice s, unsigned indent, size_t max)
{
        size_t all = cg_count_chars(s);
        char before = '"', first;
        uint32_t c;
        bool cut;

        /* An indent would move the tab stops: help() expands tabs before it removes the indent. */
        if (s.len && memchr(s.p, '\t', s.len))
                indent = 0;
        s = cg_cut_chars(s, max, &cut);
        cg_buf_adds(o, "\"\"\"");
        for (;; before = first) {
                size_t n = plain(s);

                if (n)
                        before = s.p[n - 1];
                if (!put_plain(o, &s))
                        break;
                first = *s.p;
                c = cg_next_char(&s);
                if (c == '\r' && s.len && *s.p == '\n')
                        c = cg_next_char(&s);
                if (c == '\n') {
                        /* empty lines get no white space */
                        cg_buf_adds(o, "\n");
                        if (s.len && *s.p != '\n' && *s.p != '\r')
                                cg_buf_addf(o, "%*s", (int)indent, "");
                } else if (c == '\t') {
                        cg_buf_adds(o, "\\t");
                } else if (c == '\\') {
                        cg_buf_adds(o, "\\\\");
                } else if (c == '"') {
                        /* next to another one, or at an end, it could end the docstring */
                        cg_buf_adds(o, before == '"' || !s.len || *s.p == '"' ? "\\\"" : "\"");
                } else {
                        put_escape(o, hidden(c) ? "\\\\" : "\\", c);
                }
        }
        if (cut)
                cg_buf_addf(o, "... (cut: %zu characters in all)", all);
        cg_buf_adds(o, "\"\"\"");
}

void cg_put_folded(struct cg_buf *o, struct cg_slice s, size_t max)
{
        bool cut, gap = false;

        s = cg_cut_chars(cg_trim(s), max, &cut);
        for (size_t i = 0; i < s.len; i++) {
                if (space(s.p[i])) {
                        gap = true;
                        continue;
                }
                cg_put_if(o, gap, " ");
                gap = false;
                cg_puts(o, (struct cg_slice){ s.p + i, 1 });
        }
        cg_put_if(o, cut, "...");
}

/* ------------------------------------------------------------------ JSON */

static void put_json_str(struct cg_buf *o, struct cg_slice s, bool encodable)
{
        cg_buf_adds(o, "\"");
        while (put_plain(o, &s)) {
                uint32_t c = cg_next_char(&s);

                if (encodable && c >= 0xd800 && c <= 0xdfff)
                        c = 0xfffd;
                if (c == '"' || c == '\\')
                        cg_buf_addf(o, "\\%c", (int)c);
                else if (c == '\n')
                        cg_buf_adds(o, "\\n");
                else if (c < 0x10000)
                        cg_buf_addf(o, "\\u%04x", (unsigned)c);
                else
                        cg_buf_addf(o, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                                    (unsigned)(0xdc00 | (c & 0x3ff)));
        }
        cg_buf_adds(o, "\"");
}

void cg_put_json_str(struct cg_buf *o, struct cg_slice s)
{
        put_json_str(o, s, false);
}

void cg_put_json_text(struct cg_buf *o, struct cg_slice s)
{
        put_json_str(o, s, true);
}

static void put_json_number(struct cg_buf *o, struct cg_slice n)
{
        /*
         * Python refuses integers of more than 4300 digits, and with them the whole file; such a
         * number acts as infinite.
         */
        if (n.len > CG_GEN_MAX_NUMBER)
                cg_buf_adds(o, n.p[0] == '-' ? "-1e999" : "1e999");
        else
                cg_puts(o, n);
}

void cg_put_json(struct cg_buf *o, const struct cg_j *j)
{
        static const char *const words[] = {
                [CG_J_NULL] = "null", [CG_J_FALSE] = "false", [CG_J_TRUE] = "true"
        };
        bool object = j->kind == CG_J_OBJECT;

        if (j->kind <= CG_J_TRUE) {
                cg_buf_adds(o, words[j->kind]);
                return;
        }
        if (j->kind == CG_J_NUMBER || j->kind == CG_J_STRING) {
                (j->kind == CG_J_NUMBER ? put_json_number : cg_put_json_str)(o, j->text);
                return;
        }
        cg_buf_adds(o, object ? "{" : "[");
        for (const struct cg_j *m = j->first; m; m = m->next) {
                cg_put_if(o, m != j->first, ",");
                if (object) {
                        cg_put_json_str(o, m->key);
                        cg_buf_adds(o, ":");
                }
                cg_put_json(o, m);
        }
        cg_buf_adds(o, object ? "}" : "]");
}
