/* Secrets in texts: see secrets.h. */
#include "base/secrets.h"

#include <ctype.h>
#include "base/buf.h"
#include "base/text.h"

/* Shorter ones are found as whole words only. */
#define ANYWHERE_MIN 8
#define WORD_MIN     3
/* The least part of a secret that is replaced: from its beginning, and from its middle. */
#define PREFIX_MIN 8
#define PIECE_MIN  16
/* Length and distance of the windows of a text that are looked up in a secret. */
#define GRAM 8

void cg_secrets_fini(struct cg_secrets *s)
{
        for (size_t i = 0; i < s->n; i++) {
                explicit_bzero(s->v[i], strlen(s->v[i]));
                free(s->v[i]);
        }
        free(s->v);
        *s = (struct cg_secrets){ .v = NULL };
}

static int add_one(struct cg_secrets *s, const char *value, size_t len, struct cg_err *err)
{
        if (len < WORD_MIN)
                return 0;
        for (size_t i = 0; i < s->n; i++)
                if (strlen(s->v[i]) == len && memcmp(s->v[i], value, len) == 0)
                        return 0;
        if (!CG_GROW(s->v, s->n, s->cap))
                return cg_fail(err, CG_E_NOMEM, "secrets");
        s->v[s->n] = strndup(value, len);
        if (!s->v[s->n])
                return cg_fail(err, CG_E_NOMEM, "secrets");
        s->n++;
        return 0;
}

/*
 * Adds the characters of @value's base64 that do not depend on the bytes around it, where it begins
 * as byte @shift of a group of three.
 */
static int add_base64(struct cg_secrets *s, const char *value, size_t len, size_t shift, const char *last,
                      struct cg_err *err)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        size_t first = shift ? shift + 1 : 0, end = (shift + len) * 8 / 6;
        cg_auto_free char *text = calloc(1, end + 1);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "secrets");
        for (size_t i = first; i < end; i++) {
                unsigned sextet = 0;

                for (size_t bit = 6 * i; bit < 6 * i + 6; bit++)
                        sextet = sextet << 1 | ((unsigned char)value[bit / 8 - shift] >> (7 - bit % 8) & 1u);
                text[i - first] = sextet < 62 ? letters[sextet] : last[sextet - 62];
        }
        return add_one(s, text, strlen(text), err);
}

static int add_hex(struct cg_secrets *s, const char *value, size_t len, const char *digits,
                   struct cg_err *err)
{
        cg_auto_free char *text = calloc(2, len + 1);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "secrets");
        for (size_t i = 0; i < len; i++) {
                text[2 * i] = digits[(unsigned char)value[i] >> 4];
                text[2 * i + 1] = digits[value[i] & 15];
        }
        return add_one(s, text, 2 * len, err);
}

/* Parts that a server shows by themselves: lines, words, the password of a URL. */
static int add_parts(struct cg_secrets *s, const char *value, struct cg_err *err)
{
        static const char between[] = " \t\r\n=,;\"'";
        const char *host = strstr(value, "://"), *at, *colon;
        int r = 0;

        for (const char *p = value + strspn(value, between); *p && r == 0; p += strspn(p, between)) {
                size_t n = strcspn(p, between);

                if (n >= ANYWHERE_MIN)
                        r = add_one(s, p, n, err);
                p += n;
        }
        if (!host || r < 0)
                return r;
        host += 3;
        at = memchr(host, '@', strcspn(host, "/?#"));
        colon = at ? memchr(host, ':', (size_t)(at - host)) : NULL;
        return colon ? add_one(s, colon + 1, (size_t)(at - colon - 1), err) : 0;
}

bool cg_secrets_has_name(const char *name)
{
        static const char *const words[] = { "token", "secret", "password",  "passwd",
                                             "key",   "auth",   "credential" };

        for (size_t i = 0; i < CG_ARRAY_LEN(words); i++) {
                if (strcasestr(name, words[i]))
                        return true;
        }
        return false;
}

int cg_secrets_add(struct cg_secrets *s, const char *value, struct cg_err *err)
{
        size_t len = strlen(value);
        int r = add_one(s, value, len, err);

        if (r < 0 || len < ANYWHERE_MIN)
                return r;
        r = add_parts(s, value, err);
        for (size_t shift = 0; shift < 3 && r == 0; shift++) {
                r = add_base64(s, value, len, shift, "+/", err);
                if (r == 0)
                        r = add_base64(s, value, len, shift, "-_", err);
        }
        if (r == 0)
                r = add_hex(s, value, len, "0123456789abcdef", err);
        if (r != 0)
                return r;
        return add_hex(s, value, len, "0123456789ABCDEF", err);
}

int cg_secrets_add_env(struct cg_secrets *s, const char *const *env, struct cg_err *err)
{
        for (; env && *env; env++) {
                const char *value = strchr(*env, '=');
                cg_auto_free char *name = value ? strndup(*env, (size_t)(value - *env)) : NULL;

                if (name && cg_secrets_has_name(name) && strlen(value + 1) >= ANYWHERE_MIN &&
                    cg_secrets_add(s, value + 1, err) < 0)
                        return -1;
        }
        return 0;
}

int cg_secrets_add_all(struct cg_secrets *s, const json_t *values, struct cg_err *err)
{
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(values, i, v)
                if (r == 0 && json_is_string(v))
                        r = cg_secrets_add(s, json_string_value(v), err);
        return r;
}

/* ---- finding them */

/* The value of @n hexadecimal digits; -1: they are none. */
static int hex_value(const char *p, size_t n)
{
        int value = 0;

        for (size_t i = 0; i < n; i++) {
                int digit = cg_hex_digit(p[i]);

                if (digit < 0)
                        return -1;
                value = value << 4 | digit;
        }
        return value;
}

/* Bytes of the escape at @p for @byte, as in a URL, JSON or a string of Python; 0: none. */
static size_t escape_of(const char *p, unsigned char byte)
{
        static const char named[] = "n\nt\tr\rb\bf\f", plain[] = "\\\"'/";

        if (p[0] == '%' && hex_value(p + 1, 2) == byte)
                return 3;
        if (p[0] == '+' && byte == ' ')
                return 1;
        if (p[0] != '\\')
                return 0;
        if (p[1] == 'x' && hex_value(p + 2, 2) == byte)
                return 4;
        if (p[1] == 'u' && hex_value(p + 2, 4) == byte)
                return 6;
        if (byte && strchr(plain, byte))
                return p[1] == (char)byte ? 2 : 0;
        for (size_t i = 0; named[i]; i += 2)
                if (p[1] == named[i] && byte == (unsigned char)named[i + 1])
                        return 2;
        return 0;
}

/* Bytes at @p that are the beginning of @secret; *of: how many of the secret's. */
static size_t match(const char *p, const char *secret, bool escaped, size_t *of)
{
        const char *from = p;
        size_t i = 0;

        for (; secret[i]; i++) {
                size_t n = escaped ? escape_of(p, (unsigned char)secret[i]) : 0;

                if (!n && *p != secret[i])
                        break;
                p += n ?: 1;
        }
        *of = i;
        return (size_t)(p - from);
}

static bool is_word(char c)
{
        return isalnum((unsigned char)c) || c == '_';
}

/* @least: bytes of a secret's beginning that are replaced. */
static void mark_matches(const char *text, size_t len, const char *secret, size_t least, char *marks)
{
        size_t n = strlen(secret), found, of;

        for (size_t i = 0; i < len; i++) {
                if (text[i] != secret[0] && !strchr("%\\+", text[i]))
                        continue;
                for (int escaped = 0; escaped < 2; escaped++) {
                        found = match(text + i, secret, escaped, &of);
                        if (n < ANYWHERE_MIN &&
                            (of < n || (i && is_word(text[i - 1])) || is_word(text[i + found])))
                                continue;
                        if (of == n || of >= least)
                                memset(marks + i, 1, found);
                }
        }
}

/* A text of GRAM bytes at every place of a part's length is in the part, wherever it begins. */
static void mark_pieces(const char *text, size_t len, const char *secret, char *marks)
{
        size_t n = strlen(secret);

        for (size_t i = 0; n >= PIECE_MIN && i + GRAM <= len; i += GRAM) {
                const char *at = memmem(secret, n, text + i, GRAM);
                size_t before = 0, after = GRAM;

                if (!at)
                        continue;
                while (before < i && at - before > secret &&
                       text[i - before - 1] == at[-(ptrdiff_t)before - 1])
                        before++;
                while (i + after < len && at[after] && text[i + after] == at[after])
                        after++;
                if (before + after >= PIECE_MIN)
                        memset(marks + i - before, 1, before + after);
        }
}

/* A part of a character would leave text that is no UTF-8. */
static void mark_whole_characters(const char *text, size_t len, char *marks)
{
        for (size_t i = 0, n; i < len; i += n) {
                n = 1;
                while (i + n < len && ((unsigned char)text[i + n] & 0xc0) == 0x80)
                        n++;
                if (n > 1 && memchr(marks + i, 1, n))
                        memset(marks + i, 1, n);
        }
}

void cg_secrets_redact(const struct cg_secrets *s, char *text)
{
        size_t len = strlen(text), to = 0;
        cg_auto_free char *marks = s->n ? calloc(1, len + 1) : NULL;

        if (!s->n)
                return;
        if (!marks) { /* out of memory: nothing of it is shown */
                *text = '\0';
                return;
        }
        for (size_t i = 0; i < s->n; i++) {
                mark_matches(text, len, s->v[i], s->whole ? SIZE_MAX : PREFIX_MIN, marks);
                if (!s->whole)
                        mark_pieces(text, len, s->v[i], marks);
        }
        mark_whole_characters(text, len, marks);
        for (size_t i = 0; i < len; i++) {
                if (!marks[i]) {
                        text[to++] = text[i];
                } else if (i == 0 || !marks[i - 1]) {
                        memcpy(text + to, "***", 3);
                        to += 3;
                }
        }
        text[to] = '\0';
}

void cg_secrets_redact_buf(const struct cg_secrets *s, struct cg_buf *text)
{
        size_t to = 0;

        for (size_t at = 0, len; s->n && at < text->len; at += len + 1) {
                len = strlen(text->data + at);
                cg_secrets_redact(s, text->data + at);
                memmove(text->data + to, text->data + at, strlen(text->data + at));
                to += strlen(text->data + at);
                if (at + len < text->len)
                        text->data[to++] = '\0';
        }
        text->len = s->n ? to : text->len;
        cg_buf_terminate(text);
}

void cg_secrets_redact_with(const json_t *values, char *text)
{
        cg_auto_secrets struct cg_secrets s = { .v = NULL };

        if (cg_secrets_add_all(&s, values, NULL) < 0)
                *text = '\0'; /* out of memory: nothing of it is shown */
        else
                cg_secrets_redact(&s, text);
}

/* Without memory nothing of the text is shown. */
static json_t *redacted(const struct cg_secrets *s, const json_t *text)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX };

        cg_buf_add(&b, json_string_value(text), json_string_length(text));
        if (cg_buf_end(&b, NULL) < 0)
                return json_null();
        cg_secrets_redact_buf(s, &b);
        return json_stringn(cg_buf_str(&b), b.len) ?: json_null();
}

void cg_secrets_redact_json(const struct cg_secrets *s, json_t *v)
{
        const char *key;
        json_t *item;
        void *next;
        size_t i;

        if (!s->n)
                return;
        json_array_foreach(v, i, item) {
                if (json_is_string(item))
                        json_array_set_new(v, i, redacted(s, item));
                else
                        cg_secrets_redact_json(s, item);
        }
        json_object_foreach_safe(v, next, key, item) {
                if (json_is_string(item))
                        json_object_set_new(v, key, redacted(s, item));
                else
                        cg_secrets_redact_json(s, item);
        }
}
