/* What a kernel may send as a tool call's arguments. Linked into the tool server. */
#include "mcp/args.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "mcp/limits.h"

/*
 * One pass over text that is known to be valid. The names of all open objects lie in one array of
 * hashes, the innermost last; two different names with one hash would only refuse a call that was
 * made for that.
 */
struct names {
        uint64_t *hashes;
        size_t n, cap;
        size_t first[CG_MCP_MAX_ARGS_DEPTH + 1]; /* of each open container */
        unsigned depth;
};

static uint64_t hash_byte(uint64_t h, unsigned char c)
{
        return (h ^ c) * 0x100000001b3u;
}

/* UTF-8, and for half a pair what UTF-8 would make of it. */
static uint64_t hash_code_point(uint64_t h, uint32_t c)
{
        if (c < 0x80)
                return hash_byte(h, (unsigned char)c);
        if (c < 0x800) {
                h = hash_byte(h, (unsigned char)(0xc0 | c >> 6));
        } else {
                if (c < 0x10000) {
                        h = hash_byte(h, (unsigned char)(0xe0 | c >> 12));
                } else {
                        h = hash_byte(h, (unsigned char)(0xf0 | c >> 18));
                        h = hash_byte(h, (unsigned char)(0x80 | (c >> 12 & 0x3f)));
                }
                h = hash_byte(h, (unsigned char)(0x80 | (c >> 6 & 0x3f)));
        }
        return hash_byte(h, (unsigned char)(0x80 | (c & 0x3f)));
}

static uint32_t hex4(const char *p)
{
        uint32_t v = 0;

        for (int i = 0; i < 4; i++) {
                char c = p[i];

                v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        }
        return v;
}

/* @p is behind the backslash; returns what follows the escape. */
static const char *read_escape(const char *p, uint32_t *c)
{
        static const char letters[] = "bfnrt", values[] = "\b\f\n\r\t";
        const char *found;

        if (*p != 'u') {
                found = strchr(letters, *p);
                *c = (unsigned char)(found ? values[found - letters] : *p);
                return p + 1;
        }
        *c = hex4(p + 1);
        p += 5;
        if (*c >= 0xd800 && *c < 0xdc00 && p[0] == '\\' && p[1] == 'u') {
                uint32_t low = hex4(p + 2);

                if (low >= 0xdc00 && low < 0xe000) {
                        *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
                        p += 6;
                }
        }
        return p;
}

/* @p is behind the opening quote; returns what follows the closing one. */
static const char *read_string(const char *p, uint64_t *ret)
{
        uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

        while (*p != '"') {
                uint32_t c;

                if (*p != '\\') {
                        h = hash_byte(h, (unsigned char)*p++);
                        continue;
                }
                p = read_escape(p + 1, &c);
                h = hash_code_point(h, c);
        }
        *ret = h;
        return p + 1;
}

static int add_name(struct names *s, uint64_t hash, struct cg_err *err)
{
        if (s->n == s->cap) {
                size_t cap = s->cap ? s->cap * 2 : 64;
                uint64_t *p = realloc(s->hashes, cap * sizeof(*p));

                if (!p)
                        return cg_fail(err, CG_E_NOMEM, "arguments");
                s->hashes = p;
                s->cap = cap;
        }
        s->hashes[s->n++] = hash;
        return 0;
}

static int compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* An object is complete: are its names different? */
static int close_container(struct names *s, struct cg_err *err)
{
        size_t first = s->first[s->depth];

        if (s->n - first > 1) {
                qsort(s->hashes + first, s->n - first, sizeof(*s->hashes), compare);
                for (size_t i = first + 1; i < s->n; i++)
                        if (s->hashes[i] == s->hashes[i - 1])
                                return cg_fail(err, CG_E_PARSE, "an object has the same member twice");
        }
        s->n = first;
        s->depth--;
        return 0;
}

static int check_names(struct names *s, const char *p, const char *end, struct cg_err *err)
{
        int r = 0;

        while (p < end && r == 0) {
                uint64_t hash;

                switch (*p) {
                case '{':
                case '[':
                        s->depth++;
                        s->first[s->depth] = s->n;
                        p++;
                        break;
                case '}':
                case ']':
                        r = close_container(s, err);
                        p++;
                        break;
                case '"':
                        p = read_string(p + 1, &hash);
                        while (*p == ' ' || *p == '\t')
                                p++;
                        /* In valid text a string before a colon is a name, and nothing else is. */
                        if (*p == ':')
                                r = add_name(s, hash, err);
                        break;
                default:
                        p++;
                }
        }
        return r;
}

int cg_mcp_check_args(const char *text, size_t len, struct cg_err *err)
{
        struct names s = { .n = 0 };
        int r = cg_json_check_encodable(text, len, CG_MCP_MAX_ARGS_DEPTH, err);

        if (r < 0)
                return r;
        if (memchr(text, '\n', len) || memchr(text, '\r', len))
                return cg_fail(err, CG_E_PARSE,
                               "line breaks between the members: the arguments must stand on one line");
        /* The text ends in '}' or white space, so looking one byte past a string stays inside. */
        r = check_names(&s, text, text + len, err);
        free(s.hashes);
        return r;
}
