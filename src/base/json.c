/* JSON helpers. Linked into every process. */
#include "base/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/limits.h"
#include "base/proc.h"
#include "base/text.h"

int cg_json_object(const char *text, size_t len, const char *what, json_t **ret, struct cg_err *err)
{
        json_error_t e;
        json_t *j;

        /* a byte order mark: editors write it */
        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
                text += 3;
                len -= 3;
        }
        j = json_loadb(text, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
        if (!j)
                return cg_fail(err, CG_E_PARSE, "%s is not valid JSON: line %d, column %d: %s", what, e.line,
                               e.column, e.text);
        if (!json_is_object(j)) {
                json_decref(j);
                return cg_fail(err, CG_E_PARSE, "%s must be a JSON object", what);
        }
        *ret = j;
        return 0;
}

int cg_json_str(const json_t *o, const char *key, const char *def, const char **ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_string(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be a string", key);
        if (v && json_string_length(v) != strlen(json_string_value(v)))
                return cg_fail(err, CG_E_PARSE, "\"%s\" contains a NUL character", key);
        *ret = v ? json_string_value(v) : def;
        return 0;
}

int cg_json_int(const json_t *o, const char *key, int64_t def, int64_t *ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_integer(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be an integer", key);
        *ret = v ? json_integer_value(v) : def;
        return 0;
}

int cg_json_bool(const json_t *o, const char *key, bool def, bool *ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_boolean(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be true or false", key);
        *ret = v ? json_is_true(v) : def;
        return 0;
}

char *cg_json_text(const json_t *j, size_t *len)
{
        char *s = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

        if (s && len)
                *len = strlen(s);
        return s;
}

static int quote_char(struct cg_buf *b, uint32_t c, struct cg_err *err)
{
        char one = (char)c;

        if (c == '"' || c == '\\')
                return cg_buf_addf(b, err, "\\%c", one);
        if (c >= 0x20 && c < 0x7f)
                return cg_buf_add(b, &one, 1, err);
        if (c == '\n')
                return cg_buf_adds(b, "\\n", err);
        if (c < 0x10000)
                return cg_buf_addf(b, err, "\\u%04x", c);
        c -= 0x10000;
        return cg_buf_addf(b, err, "\\u%04x\\u%04x", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

int cg_json_quote(struct cg_buf *b, const char *s, size_t len, struct cg_err *err)
{
        const unsigned char *p = (const unsigned char *)s;
        int r = cg_buf_adds(b, "\"", err);

        for (size_t i = 0; i < len && r == 0;) {
                uint32_t c = 0xfffd;
                size_t n = cg_utf8_next(p + i, len - i, &c);

                r = quote_char(b, c, err);
                i += n ? n : 1;
        }
        return r < 0 ? r : cg_buf_adds(b, "\"", err);
}

/* ---- the checker: a small recursive-descent scan that converts nothing */

struct scan {
        const unsigned char *p, *end, *start;
        unsigned depth;
        bool encodable; /* lone surrogates are refused */
        const char *why;
};

static bool scan_value(struct scan *s);

static bool scan_fail(struct scan *s, const char *why)
{
        if (!s->why)
                s->why = why;
        return false;
}

static void scan_space(struct scan *s)
{
        while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
                s->p++;
}

static bool is_hex(unsigned char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The UTF-16 code unit at @p, an escape \uXXXX that has been checked. */
static unsigned code_unit(const unsigned char *p)
{
        unsigned v = 0;

        for (int i = 2; i < 6; i++)
                v = v << 4 | (p[i] <= '9' ? p[i] - (unsigned)'0' : (p[i] | 0x20u) - 'a' + 10u);
        return v;
}

/*
 * Whether the escape at @p is one half of a surrogate pair without the other. *n: the length of
 * what was read.
 */
static bool is_lone_surrogate(const unsigned char *p, const unsigned char *end, size_t *n)
{
        unsigned first = code_unit(p);

        *n = 6;
        if (first < 0xd800 || first > 0xdfff)
                return false;
        if (first > 0xdbff || end - p < 12 || p[6] != '\\' || p[7] != 'u')
                return true;
        for (int i = 8; i < 12; i++)
                if (!is_hex(p[i]))
                        return true;
        *n = 12;
        return code_unit(p + 6) < 0xdc00 || code_unit(p + 6) > 0xdfff;
}

static bool scan_escape(struct scan *s)
{
        size_t n;

        s->p++;
        if (s->p >= s->end)
                return scan_fail(s, "string is not closed");
        if (*s->p == 'u') {
                if (s->end - s->p < 5)
                        return scan_fail(s, "\\u needs four hexadecimal digits");
                for (int i = 1; i <= 4; i++)
                        if (!is_hex(s->p[i]))
                                return scan_fail(s, "\\u needs four hexadecimal digits");
                if (s->encodable && is_lone_surrogate(s->p - 1, s->end, &n))
                        return scan_fail(s,
                                         "half of a surrogate pair stands alone: such text has no encoding");
                s->p += s->encodable ? n - 1 : 5;
                return true;
        }
        if (!memchr("\"\\/bfnrt", *s->p, 8))
                return scan_fail(s, "unknown escape in a string");
        s->p++;
        return true;
}

static bool scan_string(struct scan *s)
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
                if (*s->p == '\\') {
                        if (!scan_escape(s))
                                return false;
                        continue;
                }
                if (*s->p < 0x20)
                        return scan_fail(s, "control character in a string");
                n = cg_utf8_next(s->p, (size_t)(s->end - s->p), &c);
                if (!n)
                        return scan_fail(s, "not UTF-8");
                s->p += n;
        }
        return scan_fail(s, "string is not closed");
}

static bool scan_digits(struct scan *s)
{
        const unsigned char *from = s->p;

        while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
                s->p++;
        return s->p > from || scan_fail(s, "a number needs digits");
}

static bool scan_any_number(struct scan *s)
{
        if (*s->p == '-')
                s->p++;
        if (s->p < s->end && *s->p == '0')
                s->p++;
        else if (!scan_digits(s))
                return false;
        if (s->p < s->end && *s->p == '.') {
                s->p++;
                if (!scan_digits(s))
                        return false;
        }
        if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
                s->p++;
                if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
                        s->p++;
                return scan_digits(s);
        }
        return true;
}

static bool scan_number(struct scan *s)
{
        const unsigned char *from = s->p;

        if (!scan_any_number(s))
                return false;
        return s->p - from <= CG_MAX_NUMBER ||
               scan_fail(s, "a number has more than 1000 characters: send it as a string");
}

static bool scan_word(struct scan *s, const char *word)
{
        size_t n = strlen(word);

        if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
                return scan_fail(s, "not a JSON value");
        s->p += n;
        return true;
}

static bool scan_member(struct scan *s)
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

static bool scan_container(struct scan *s, unsigned char close, bool (*item)(struct scan *))
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

static bool scan_value(struct scan *s)
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

static int check_object(struct scan s, size_t len, struct cg_err *err)
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
        return check_object((struct scan){ .start = (const unsigned char *)text, .depth = depth }, len, err);
}

int cg_json_check_encodable(const char *text, size_t len, unsigned depth, struct cg_err *err)
{
        return check_object(
                (struct scan){ .start = (const unsigned char *)text, .depth = depth, .encodable = true }, len,
                err);
}

int cg_json_skip(const char *text, size_t len, unsigned depth, size_t *ret, struct cg_err *err)
{
        struct scan s = { .start = (const unsigned char *)text, .depth = depth };

        s.p = s.start;
        s.end = s.start + len;
        if (!scan_value(&s))
                return cg_fail(err, CG_E_PARSE, "not valid JSON at byte %zu: %s", (size_t)(s.p - s.start),
                               s.why);
        *ret = (size_t)(s.p - s.start);
        return 0;
}

int cg_json_mcp_servers(const json_t *file, json_t **ret, struct cg_err *err)
{
        const json_t *servers = json_object_get(file, "mcpServers"),
                     *other = json_object_get(file, "servers");
        const char *name;
        json_t *def, *list;

        if (servers && !json_is_object(servers))
                return cg_fail(err, CG_E_INVAL, "\"mcpServers\" must be an object");
        /* A server may be named "servers": then its definition has a command. */
        if (!servers && json_is_object(other) && !json_is_string(json_object_get(other, "command")) &&
            !json_is_string(json_object_get(other, "url")))
                servers = other;
        if (!servers)
                servers = file;
        list = json_object();
        json_object_foreach((json_t *)(uintptr_t)servers, name, def)
        {
                if (json_is_true(json_object_get(def, "disabled")) ||
                    json_is_false(json_object_get(def, "enabled")))
                        continue;
                if (json_object_set(list, name, def) < 0) {
                        json_decref(list);
                        return cg_fail(err, CG_E_NOMEM, "MCP servers");
                }
        }
        *ret = list;
        return list ? 0 : cg_fail(err, CG_E_NOMEM, "MCP servers");
}

json_t *cg_json_passed_env(void)
{
        json_t *all = json_object();

        for (char **v = environ; all && *v; v++) {
                char name[64];
                size_t n = strcspn(*v, "=");

                if (!(*v)[n] || n >= sizeof(name) || !cg_proc_env_passes(*v))
                        continue;
                memcpy(name, *v, n);
                name[n] = '\0';
                json_object_set_new(all, name, json_string(*v + n + 1));
        }
        return all;
}
