/* The check of a kernel's arguments of a tool call. Linked into supervisor and tool server. */
#include "base/call_args.h"

#include "base/ceilings.h"
#include "base/json_text.h"
#include "base/text.h"

/*
 * State of one pass over valid text. The hashes of the names of all open objects are in one array,
 * the innermost last. A collision of two names only refuses a call that was built for it.
 */
struct names {
        uint64_t *hashes;
        size_t n, cap;
        size_t first[CG_MAX_ARGS_DEPTH + 1]; /* index of the first name of each open container */
        unsigned depth;
};

/*
 * Hash (FNV-1a) of the name that the string at @p spells; *after: what follows its closing quote.
 * @p is the first byte after the opening quote.
 */
static uint64_t hash_name(const char *p, const char *end, const char **after)
{
        uint64_t h = CG_FNV1A;
        uint32_t c = 0;
        size_t n;

        while ((n = cg_json_char(p, end, &c)) > 0) {
                char utf8[4];

                h = cg_fnv1a(h, utf8, cg_utf8_put(c, utf8));
                p += n;
        }
        *after = p + 1;
        return h;
}

static int add_name(struct names *s, uint64_t hash, struct cg_err *err)
{
        if (!CG_GROW(s->hashes, s->n, s->cap))
                return cg_fail(err, CG_E_NOMEM, "arguments");
        s->hashes[s->n++] = hash;
        return 0;
}

static int compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* Checks the names of an object at its end. */
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
                        hash = hash_name(p + 1, end, &p);
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

int cg_check_call_args(const char *text, size_t len, struct cg_err *err)
{
        struct names s = { .n = 0 };
        int r = cg_json_check_encodable(text, len, CG_MAX_ARGS_DEPTH, err);

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
