/* JSON text, read without converting it. Linked into every process. */
#include "base/json_text.h"

#include "base/ceilings.h"
#include "base/text.h"

/* ---- characters and strings */

static bool is_surrogate(uint32_t c)
{
        return c >= 0xd800 && c < 0xe000;
}

/* Reads four hexadecimal digits; -1 when @p has other characters or ends before. */
static int32_t hex4(const char *p, const char *end)
{
        int32_t v = 0;

        if (end - p < 4)
                return -1;
        for (int i = 0; i < 4; i++) {
                char c = (char)(p[i] | 0x20);

                if (p[i] >= '0' && p[i] <= '9')
                        v = v << 4 | (p[i] - '0');
                else if (c >= 'a' && c <= 'f')
                        v = v << 4 | (c - 'a' + 10);
                else
                        return -1;
        }
        return v;
}

/* @p is at "\u". A pair of escapes is one character; half of a pair is returned as it is. */
static size_t unicode_escape(const char *p, const char *end, uint32_t *cp)
{
        int32_t high = hex4(p + 2, end), low = -1;

        if (high < 0)
                return 0;
        *cp = (uint32_t)high;
        if (high < 0xd800 || high > 0xdbff)
                return 6;
        if (end - p >= 12 && p[6] == '\\' && p[7] == 'u')
                low = hex4(p + 8, end);
        if (low < 0xdc00 || low > 0xdfff)
                return 6;
        *cp = 0x10000 + (((uint32_t)high - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        return 12;
}

size_t cg_json_char(const char *p, const char *end, uint32_t *cp)
{
        static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
        const char *found;

        if (p >= end || *p == '"' || (unsigned char)*p < 0x20)
                return 0;
        if (*p != '\\')
                return cg_utf8_next((const unsigned char *)p, (size_t)(end - p), cp);
        if (end - p < 2)
                return 0;
        if (p[1] == 'u')
                return unicode_escape(p, end, cp);
        found = memchr(letters, p[1], sizeof(letters) - 1);
        if (!found)
                return 0;
        *cp = (unsigned char)meanings[found - letters];
        return 2;
}

/* @strict: no NUL and no lone surrogates. */
static int decode(struct cg_slice s, bool strict, struct cg_buf *b, struct cg_err *err)
{
        const char *p = s.p, *end = s.p + s.len;
        char *out;
        /* no character takes more bytes as UTF-8 than in the text */
        int r = cg_buf_reserve(b, s.len + 1, &out, err);

        if (r < 0)
                return r;
        while (p < end) {
                uint32_t c = 0;
                size_t n = cg_json_char(p, end, &c);

                if (!n || (strict && (!c || is_surrogate(c)))) {
                        cg_buf_terminate(b);
                        return cg_fail(err, CG_E_PARSE,
                                       n ? "a NUL or half a surrogate pair in a string" : "not a string");
                }
                out += cg_utf8_put(is_surrogate(c) ? 0xfffd : c, out);
                p += n;
        }
        b->len = (size_t)(out - b->data);
        cg_buf_terminate(b);
        return 0;
}

int cg_json_decode(struct cg_slice s, struct cg_buf *b, struct cg_err *err)
{
        return decode(s, false, b, err);
}

static int unquote(struct cg_slice *s, struct cg_err *err)
{
        if (s->len < 2 || s->p[0] != '"' || s->p[s->len - 1] != '"')
                return cg_fail(err, CG_E_PARSE, "a string is expected");
        *s = (struct cg_slice){ s->p + 1, s->len - 2 };
        return 0;
}

int cg_json_string(struct cg_slice value, struct cg_buf *b, struct cg_err *err)
{
        return unquote(&value, err) < 0 ? CG_E_PARSE : decode(value, false, b, err);
}

int cg_json_strdup(struct cg_slice value, char **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        int r = unquote(&value, err) < 0 ? CG_E_PARSE : decode(value, true, &b, err);

        if (r < 0)
                return r;
        *ret = cg_buf_steal(&b, NULL);
        return cg_made(*ret, "string", err);
}

/* ---- grammar: a recursive-descent scan that converts nothing */

struct json_scan {
        const unsigned char *p, *end, *start;
        unsigned depth;
        bool encodable; /* lone surrogates and numbers beyond every double are refused */
        size_t digits;  /* most characters of an integer */
        const char *why;
};

static bool scan_value(struct json_scan *s);

static bool scan_fail(struct json_scan *s, const char *why)
{
        if (!s->why)
                s->why = why;
        return false;
}

static void scan_space(struct json_scan *s)
{
        while (s->p < s->end && cg_json_is_space((char)*s->p))
                s->p++;
}

static bool scan_string(struct json_scan *s)
{
        s->p++;
        while (s->p < s->end) {
                uint32_t c;
                size_t n;

                s->p += cg_json_run((const char *)s->p, (size_t)(s->end - s->p));
                if (s->p == s->end)
                        break;
                if (*s->p == '"') {
                        s->p++;
                        return true;
                }
                n = cg_json_char((const char *)s->p, (const char *)s->end, &c);
                if (!n && *s->p == '\\' && s->end - s->p == 1)
                        return scan_fail(s, "string is not closed");
                if (!n && *s->p == '\\')
                        return scan_fail(s, s->p[1] == 'u' ? "\\u needs four hexadecimal digits"
                                                           : "unknown escape in a string");
                if (!n)
                        return scan_fail(s, *s->p < 0x20 ? "control character in a string" : "not UTF-8");
                if (s->encodable && is_surrogate(c))
                        return scan_fail(s, "unpaired surrogate: such text has no encoding");
                s->p += n;
        }
        return scan_fail(s, "string is not closed");
}

static bool scan_digits(struct json_scan *s)
{
        const unsigned char *from = s->p;

        while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
                s->p++;
        return s->p > from || scan_fail(s, "a number needs digits");
}

/*
 * Is a number with a fraction or an exponent beyond the largest double? Readers make infinity of
 * it, or refuse the text. Without strtod(), which depends on the host's locale. @p: its first
 * digit.
 */
static bool is_infinite(const unsigned char *p, const unsigned char *end)
{
        static const char largest[] = "17976931348623157";
        char digits[sizeof(largest)] = "00000000000000000";
        long power = 0, exponent = 0;
        bool fraction = false, negative;
        size_t n = 0;

        for (; p < end && (*p | 0x20) != 'e'; p++) {
                if (*p == '.') {
                        fraction = true;
                        continue;
                }
                if (!n && *p == '0') {
                        power -= fraction;
                        continue;
                }
                if (n < sizeof(digits) - 1)
                        digits[n] = (char)*p;
                power += !fraction;
                n++;
        }
        if (!n)
                return false;
        negative = end - p > 1 && p[1] == '-';
        for (; p < end; p++)
                if (*p >= '0' && *p <= '9' && exponent < 100000)
                        exponent = exponent * 10 + (*p - '0');
        /* The value is 0.DIGITS times ten to this power. */
        power += negative ? -exponent : exponent;
        return power > 309 || (power == 309 && strcmp(digits, largest) > 0);
}

static bool scan_number(struct json_scan *s)
{
        const unsigned char *from = s->p;
        bool integer = true;

        if (*s->p == '-')
                s->p++;
        if (s->p < s->end && *s->p == '0')
                s->p++;
        else if (!scan_digits(s))
                return false;
        if (s->p < s->end && *s->p == '.') {
                integer = false;
                s->p++;
                if (!scan_digits(s))
                        return false;
        }
        if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
                integer = false;
                s->p++;
                if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
                        s->p++;
                if (!scan_digits(s))
                        return false;
        }
        if (s->p - from > CG_MAX_NUMBER)
                return scan_fail(s, "a number has more than 1000 characters: send it as a string");
        if (integer)
                s->digits = CG_MAX(s->digits, (size_t)(s->p - from) - (*from == '-'));
        if (s->encodable && !integer && is_infinite(from + (*from == '-'), s->p))
                return scan_fail(s, "a number is too large for a double: send it as a string");
        return true;
}

static bool scan_word(struct json_scan *s, const char *word)
{
        size_t n = strlen(word);

        if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
                return scan_fail(s, "not a JSON value");
        s->p += n;
        return true;
}

static bool scan_member(struct json_scan *s)
{
        if (s->p >= s->end || *s->p != '"')
                return scan_fail(s, "a member's name must be a string");
        if (!scan_string(s))
                return false;
        scan_space(s);
        if (s->p >= s->end || *s->p != ':')
                return scan_fail(s, "':' expected");
        s->p++;
        return scan_value(s);
}

static bool scan_container(struct json_scan *s, unsigned char close, bool (*item)(struct json_scan *))
{
        if (s->depth-- == 0)
                return scan_fail(s, "nested too deeply");
        s->p++;
        scan_space(s);
        if (s->p < s->end && *s->p == close) {
                s->p++;
                s->depth++;
                return true;
        }
        for (;;) {
                scan_space(s);
                if (!item(s))
                        return false;
                scan_space(s);
                if (s->p < s->end && *s->p == ',') {
                        s->p++;
                        continue;
                }
                if (s->p >= s->end || *s->p != close)
                        return scan_fail(s, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
                s->p++;
                s->depth++;
                return true;
        }
}

static bool scan_value(struct json_scan *s)
{
        scan_space(s);
        if (s->p >= s->end)
                return scan_fail(s, "text ends early");
        switch (*s->p) {
        case '{':
                return scan_container(s, '}', scan_member);
        case '[':
                return scan_container(s, ']', scan_value);
        case '"':
                return scan_string(s);
        case 't':
                return scan_word(s, "true");
        case 'f':
                return scan_word(s, "false");
        case 'n':
                return scan_word(s, "null");
        default:
                if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))
                        return scan_number(s);
                return scan_fail(s, "not a JSON value");
        }
}

static int check_object(struct json_scan s, size_t len, struct cg_err *err)
{
        s.p = s.start;
        s.end = s.start + len;
        scan_space(&s);
        if (s.p >= s.end || *s.p != '{')
                return cg_fail(err, CG_E_PARSE, "not a JSON object");
        if (scan_value(&s)) {
                scan_space(&s);
                if (s.p == s.end)
                        return 0;
                s.why = "text after the object";
        }
        return cg_fail(err, CG_E_PARSE, "not valid JSON at byte %zu: %s", (size_t)(s.p - s.start), s.why);
}

int cg_json_check_object(const char *text, size_t len, unsigned depth, struct cg_err *err)
{
        return check_object((struct json_scan){ .start = (const unsigned char *)text, .depth = depth }, len,
                            err);
}

int cg_json_check_encodable(const char *text, size_t len, unsigned depth, struct cg_err *err)
{
        return check_object(
                (struct json_scan){ .start = (const unsigned char *)text, .depth = depth, .encodable = true },
                len, err);
}

static int skip(struct json_scan *s, const char *text, const char *end, size_t *ret, struct cg_err *err)
{
        s->start = s->p = (const unsigned char *)text;
        s->end = (const unsigned char *)end;
        if (!scan_value(s))
                return cg_fail(err, CG_E_PARSE, "not valid JSON at byte %zu: %s", (size_t)(s->p - s->start),
                               s->why);
        *ret = (size_t)(s->p - s->start);
        return 0;
}

int cg_json_skip(const char *text, size_t len, unsigned depth, size_t *ret, struct cg_err *err)
{
        struct json_scan s = { .depth = depth };

        return skip(&s, text, text + len, ret, err);
}

int cg_json_object_slice(const char *text, size_t len, struct cg_slice *ret, struct cg_err *err)
{
        int r = cg_json_check_object(text, len, CG_JSON_DEPTH, err);

        if (r == 0)
                *ret = cg_json_trim((struct cg_slice){ text, len });
        return r;
}

/* ---- one level */

struct cg_slice cg_json_trim(struct cg_slice s)
{
        while (s.len && cg_json_is_space(s.p[0])) {
                s.p++;
                s.len--;
        }
        while (s.len && cg_json_is_space(s.p[s.len - 1]))
                s.len--;
        return s;
}

bool cg_json_is_empty(struct cg_slice object)
{
        object = cg_json_trim(object);
        if (!object.len)
                return true;
        return object.len >= 2 && object.p[0] == '{' && object.p[object.len - 1] == '}' &&
               !cg_json_trim((struct cg_slice){ object.p + 1, object.len - 2 }).len;
}

static void skip_space(struct cg_json_walk *w)
{
        while (w->p < w->end && cg_json_is_space(*w->p))
                w->p++;
}

static int walk_fail(const struct cg_json_walk *w, const char *why, struct cg_err *err)
{
        return cg_fail(err, CG_E_PARSE, "not valid JSON at byte %zu: %s", (size_t)(w->p - w->start), why);
}

int cg_json_walk_init(struct cg_json_walk *w, struct cg_slice text, char open, struct cg_err *err)
{
        const char *p = text.p ?: "";

        *w = (struct cg_json_walk){ .p = p,
                                    .start = p,
                                    .end = p + text.len,
                                    .close = '}',
                                    .first = true,
                                    .depth = CG_JSON_WALK_DEPTH };
        skip_space(w);
        if (w->p == w->end || (*w->p != '{' && *w->p != '[') || (open && *w->p != open)) {
                w->end = w->p;
                return walk_fail(w, open == '[' ? "an array is expected" : "an object is expected", err);
        }
        if (*w->p++ == '[')
                w->close = ']';
        return 0;
}

/* One value, without the space around it. */
static int take_value(struct cg_json_walk *w, struct cg_slice *ret, struct cg_err *err)
{
        struct json_scan s = { .depth = w->depth, .encodable = w->encodable };
        size_t n;
        int r;

        skip_space(w);
        r = skip(&s, w->p, w->end, &n, err);
        if (r < 0) {
                cg_err_prefix(err, "in the value at byte %zu", (size_t)(w->p - w->start));
                return r;
        }
        w->digits = CG_MAX(w->digits, s.digits);
        *ret = (struct cg_slice){ w->p, n };
        w->p += n;
        return 0;
}

static int take_key(struct cg_json_walk *w, struct cg_slice *ret, struct cg_err *err)
{
        struct cg_slice name;

        skip_space(w);
        if (w->p == w->end || *w->p != '"')
                return walk_fail(w, "a member's name must be a string", err);
        if (take_value(w, &name, err) < 0)
                return CG_E_PARSE;
        skip_space(w);
        if (w->p == w->end || *w->p != ':')
                return walk_fail(w, "':' expected", err);
        w->p++;
        if (ret)
                *ret = (struct cg_slice){ name.p + 1, name.len - 2 };
        return 0;
}

int cg_json_walk_next(struct cg_json_walk *w, struct cg_slice *key, struct cg_slice *value,
                      struct cg_err *err)
{
        skip_space(w);
        if (w->p < w->end && *w->p == w->close) {
                w->p++;
                skip_space(w);
                return w->p == w->end ? CG_JSON_END : walk_fail(w, "text after the end", err);
        }
        if (!w->first) {
                if (w->p == w->end || *w->p != ',')
                        return walk_fail(w, w->close == '}' ? "',' or '}' expected" : "',' or ']' expected",
                                         err);
                w->p++;
        }
        w->first = false;
        if (w->close == '}') {
                int r = take_key(w, key, err);

                if (r < 0)
                        return r;
        } else if (key) {
                *key = CG_SLICE_NONE;
        }
        return take_value(w, value, err);
}

/* Compares the decoded name: "\u0069d" is "id". */
static bool name_is(struct cg_slice name, const char *key)
{
        const char *p = name.p, *end = name.p + name.len;

        if (!memchr(p, '\\', name.len))
                return cg_slice_is(name, key);
        while (p < end) {
                char utf8[4];
                uint32_t c = 0;
                size_t n = cg_json_char(p, end, &c), size = cg_utf8_put(c, utf8);

                if (!n || !c || strncmp(key, utf8, size) != 0)
                        return false;
                key += size;
                p += n;
        }
        return !*key;
}

int cg_json_member(struct cg_slice text, const char *key, struct cg_slice *ret, struct cg_err *err)
{
        struct cg_slice name, value, found = CG_SLICE_NONE;
        struct cg_json_walk w;
        int r = cg_json_walk_init(&w, text, '{', err);

        while (r == 0) {
                r = cg_json_walk_next(&w, &name, &value, err);
                if (r != 0 || !name_is(name, key))
                        continue;
                if (found.p)
                        return cg_fail(err, CG_E_PARSE, "the member \"%s\" occurs twice", key);
                found = value;
        }
        if (r < 0)
                return r;
        *ret = found;
        return 0;
}

bool cg_json_find(struct cg_slice text, const char *key, struct cg_slice *ret)
{
        struct cg_slice v;

        if (cg_json_member(text, key, &v, NULL) < 0 || !v.p)
                return false;
        *ret = v;
        return true;
}
