/* Looking into JSON text without converting it. Runs in the command `cellgate`. */
#include "cli/common/raw.h"

#include <string.h>
#include "base/json.h"
#include "base/text.h"

int cg_raw_object(const char *text, size_t len, struct cg_raw *ret, struct cg_err *err)
{
        int r = cg_json_check_object(text, len, CG_RAW_DEPTH, err);

        if (r < 0)
                return r;
        while (strchr(" \t\r\n", *text)) {
                text++;
                len--;
        }
        while (strchr(" \t\r\n", text[len - 1]))
                len--;
        *ret = (struct cg_raw){ text, len };
        return 0;
}

static const char *skip_space(const char *p, const char *end)
{
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
                p++;
        return p;
}

/* @p is at the opening quote; returns behind the closing one. */
static const char *skip_string(const char *p, const char *end)
{
        for (p++; p < end && *p != '"'; p++)
                if (*p == '\\')
                        p++;
        return p < end ? p + 1 : end;
}

static const char *skip_value(const char *p, const char *end)
{
        size_t depth = 0;

        do {
                if (*p == '"') {
                        p = skip_string(p, end);
                        continue;
                }
                if (*p == '{' || *p == '[')
                        depth++;
                else if (*p == '}' || *p == ']')
                        depth--;
                p++;
        } while (p < end && (depth || (*p != ',' && *p != '}' && *p != ']')));
        while (strchr(" \t\r\n", p[-1]))
                p--;
        return p;
}

struct cg_raw_iter cg_raw_items(struct cg_raw c)
{
        char kind = cg_raw_kind(c);

        if (kind != '{' && kind != '[')
                return (struct cg_raw_iter){ c.p, c.p, false };
        return (struct cg_raw_iter){ c.p + 1, c.p + c.len - 1, kind == '{' };
}

bool cg_raw_next(struct cg_raw_iter *it, struct cg_raw *key, struct cg_raw *value)
{
        const char *p = skip_space(it->p, it->end), *from;

        if (p < it->end && *p == ',')
                p = skip_space(p + 1, it->end);
        if (p >= it->end)
                return false;
        if (it->object) {
                from = p;
                p = skip_string(p, it->end);
                if (key)
                        *key = (struct cg_raw){ from, (size_t)(p - from) };
                p = skip_space(p, it->end);
                p = skip_space(p + 1, it->end); /* behind the colon */
        }
        from = p;
        it->p = skip_value(p, it->end);
        *value = (struct cg_raw){ from, (size_t)(it->p - from) };
        return true;
}

static unsigned hex4(const char *p)
{
        unsigned v = 0;

        for (int i = 0; i < 4; i++) {
                char c = p[i];

                v = v << 4 | (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return v;
}

static size_t escaped_char(const char *p, const char *end, uint32_t *cp)
{
        static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
        const char *found;

        if (p[1] != 'u') {
                found = strchr(from, p[1]);
                *cp = (unsigned char)(found ? to[found - from] : p[1]);
                return 2;
        }
        *cp = hex4(p + 2);
        if (*cp >= 0xd800 && *cp < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
                uint32_t low = hex4(p + 8);

                if (low >= 0xdc00 && low < 0xe000) {
                        *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
                        return 12;
                }
        }
        return 6;
}

size_t cg_raw_char(const char *p, const char *end, uint32_t *cp)
{
        if (p >= end || *p == '"')
                return 0;
        if (*p == '\\')
                return escaped_char(p, end, cp);
        return cg_utf8_next((const unsigned char *)p, (size_t)(end - p), cp);
}

static size_t put_utf8(uint32_t c, char out[4])
{
        if (c < 0x80) {
                out[0] = (char)c;
                return 1;
        }
        if (c < 0x800) {
                out[0] = (char)(0xc0 | c >> 6);
                out[1] = (char)(0x80 | (c & 0x3f));
                return 2;
        }
        if (c < 0x10000) {
                out[0] = (char)(0xe0 | c >> 12);
                out[1] = (char)(0x80 | (c >> 6 & 0x3f));
                out[2] = (char)(0x80 | (c & 0x3f));
                return 3;
        }
        out[0] = (char)(0xf0 | c >> 18);
        out[1] = (char)(0x80 | (c >> 12 & 0x3f));
        out[2] = (char)(0x80 | (c >> 6 & 0x3f));
        out[3] = (char)(0x80 | (c & 0x3f));
        return 4;
}

int cg_raw_string(struct cg_raw v, struct cg_buf *b, struct cg_err *err)
{
        const char *p = v.p + 1, *end = v.p + v.len;
        uint32_t cp;
        size_t n;
        char *out;
        int r;

        if (cg_raw_kind(v) != '"')
                return cg_fail(err, CG_E_PARSE, "not a string");
        /* no character takes more bytes as UTF-8 than as it is written */
        r = cg_buf_reserve(b, v.len, &out, err);
        if (r < 0)
                return r;
        while ((n = cg_raw_char(p, end, &cp)) > 0) {
                out += put_utf8(cp >= 0xd800 && cp < 0xe000 ? 0xfffd : cp, out);
                p += n;
        }
        b->len = (size_t)(out - b->data);
        cg_buf_end(b);
        return 0;
}

bool cg_raw_member(struct cg_raw object, const char *key, struct cg_raw *ret)
{
        struct cg_raw_iter it = cg_raw_items(object);
        struct cg_raw k = { NULL, 0 }, v;
        bool found = false;

        if (!it.object)
                return false;
        while (cg_raw_next(&it, &k, &v)) {
                cg_auto_buf struct cg_buf name = { .max = SIZE_MAX - 1 };

                /* Out of memory reads as another name: the member then counts as missing. */
                if (cg_raw_string(k, &name, NULL) < 0 || name.len != strlen(key) ||
                    memcmp(name.data, key, name.len) != 0)
                        continue;
                *ret = v;
                found = true;
        }
        return found;
}

int cg_raw_ascii(struct cg_raw v, struct cg_buf *b, struct cg_err *err)
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
