/*
 * Definitions of tools as text: the canonical form, its digest, and how two of them differ. Linked
 * into the tool server and the command line; the texts are an MCP server's: untrusted.
 */
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"
#include "mcp/pins/pins.h"

/* ---- the canonical form */

struct pin_member {
        char *key; /* with its quotes; NULL: an element of an array */
        struct cg_slice value;
};

static int order(const void *a, const void *b)
{
        const struct pin_member *x = a, *y = b;

        return strcmp(x->key, y->key);
}

/* Appends the one spelling of a string, ASCII only. */
static int add_string(struct cg_slice literal, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        int r = cg_json_strdup(literal, &text, err);

        return r < 0 ? r : cg_json_try_quote(b, text, strlen(text), err);
}

static bool is_part(struct cg_slice key)
{
        static const char *const parts[] = { "name",        "title",        "description",
                                             "inputSchema", "outputSchema", "annotations" };

        for (size_t i = 0; i < CG_ARRAY_LEN(parts); i++)
                if (cg_slice_is(key, parts[i]))
                        return true;
        return false;
}

/* @depth: levels above; at 0, the tool itself, members that are no part of it are left out. */
static int add_value(struct cg_slice v, unsigned depth, struct cg_buf *b, struct cg_err *err)
{
        char open = cg_json_kind(v);
        struct cg_slice key, value;
        struct pin_member *all = NULL;
        struct cg_json_walk w;
        size_t n = 0, cap = 0;
        int r;

        if (open == '"')
                return add_string(v, b, err);
        if (open != '{' && open != '[')
                return cg_buf_try_add(b, v.p, v.len, err);
        if (depth >= CG_JSON_DEPTH)
                return cg_fail(err, CG_E_LIMIT, "it has over %d levels", CG_JSON_DEPTH);
        r = cg_json_walk_init(&w, v, open, err);
        while (r == 0 && (r = cg_json_walk_next(&w, &key, &value, err)) == 0) {
                struct pin_member m = { .value = cg_json_trim(value) };

                if (open == '{' && depth == 0) {
                        cg_auto_buf struct cg_buf name = { .max = 4096 };

                        if (cg_json_decode(key, &name, NULL) < 0 ||
                            !is_part((struct cg_slice){ name.data ?: "", name.len }))
                                continue;
                }
                if (open == '{') {
                        cg_auto_buf struct cg_buf name = { .max = b->max };

                        r = add_string((struct cg_slice){ key.p - 1, key.len + 2 }, &name, err);
                        m.key = r == 0 ? cg_buf_steal(&name, NULL) : NULL;
                        if (r == 0 && !m.key)
                                r = cg_fail(err, CG_E_NOMEM, "tool");
                        if (r < 0)
                                break;
                }
                if (n == cap) {
                        size_t more = cap ? 2 * cap : 8;
                        struct pin_member *p = realloc(all, more * sizeof(*p));

                        if (!p) {
                                free(m.key);
                                r = cg_fail(err, CG_E_NOMEM, "tool");
                                break;
                        }
                        all = p;
                        cap = more;
                }
                all[n++] = m;
        }
        if (r == CG_JSON_END)
                r = cg_buf_try_add(b, &open, 1, err);
        if (r == 0 && open == '{' && n)
                qsort(all, n, sizeof(*all), order);
        for (size_t i = 0; i < n && r == 0; i++) {
                if (i)
                        r = open == '{' && strcmp(all[i - 1].key, all[i].key) == 0
                                    ? cg_fail(err, CG_E_PARSE, "it has the member %.100s twice", all[i].key)
                                    : cg_buf_try_adds(b, ",", err);
                if (r == 0 && open == '{')
                        r = cg_buf_try_adds(b, all[i].key, err);
                if (r == 0 && open == '{')
                        r = cg_buf_try_adds(b, ":", err);
                if (r == 0)
                        r = add_value(all[i].value, depth + 1, b, err);
        }
        for (size_t i = 0; i < n; i++)
                free(all[i].key);
        free(all);
        return r < 0 ? r : cg_buf_try_adds(b, open == '{' ? "}" : "]", err);
}

int cg_pin_canonical(struct cg_slice tool, struct cg_buf *b, struct cg_err *err)
{
        return add_value(tool, 0, b, err);
}

void cg_pin_digest(const char *text, size_t len, char ret[CG_PINS_DIGEST])
{
        unsigned char digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;

        sha256_init(&sha);
        sha256_update(&sha, len, (const uint8_t *)text);
        sha256_digest(&sha, sizeof(digest), digest);
        cg_hex(ret, digest, sizeof(digest));
}

/* ---- differences */

#define REMOVED "    - "
#define ADDED   "    + "
/* Bytes before and after a difference within a line; and of each text where no more is shown. */
#define CONTEXT 40u
#define EXCERPT 200u

struct diff {
        struct cg_buf path; /* of the value: inputSchema.properties.x[0] */
        struct cg_buf out;
        size_t left_out; /* differences that @out has no room for */
};

/* Appends the lines of @text, each behind @sign. A blank at the end of a line is escaped. */
static int add_lines(const char *sign, struct cg_slice text, struct cg_buf *b, struct cg_err *err)
{
        const char *p = text.p, *end = text.p + text.len, *nl;
        int r;

        do {
                const char *stop = (nl = memchr(p, '\n', (size_t)(end - p))) ?: end;
                bool blank = stop > p && stop[-1] == ' ';

                r = cg_buf_try_adds(b, sign, err);
                if (r == 0)
                        r = cg_text_try_render_as(b, p, (size_t)(stop - p) - blank, 0, CG_TEXT_LINE, err);
                if (r == 0)
                        r = cg_buf_try_adds(b, blank ? "\\x20\n" : "\n", err);
                p = stop + 1;
        } while (r == 0 && nl);
        return r;
}

/*
 * Appends @json, which is ASCII, with letters in place of their escapes. Control characters and
 * backslashes stay escaped, so that no two texts are the same after cg_text_try_render_as().
 */
static int add_readable(struct cg_slice json, struct cg_buf *b, struct cg_err *err)
{
        const char *p = json.p, *end = json.p + json.len;
        int r = 0;

        while (p < end && r == 0) {
                const char *slash = memchr(p, '\\', (size_t)(end - p)) ?: end;
                char letter[4];
                uint32_t c = 0;
                size_t n;

                r = cg_buf_try_add(b, p, (size_t)(slash - p), err);
                p = slash;
                if (p == end || r < 0)
                        break;
                n = cg_json_char(p, end, &c);
                if (n && c >= 0x80 && (c < 0xd800 || c > 0xdfff))
                        r = cg_buf_try_add(b, letter, cg_utf8_put(c, letter), err);
                else
                        r = cg_buf_try_add(b, p, n ? n : (n = 1), err);
                p += n;
        }
        return r;
}

#define LOOKS_THE_SAME 1

/*
 * Appends the lines of two texts that are not at the same place from the start or the end of the
 * other; of long lines what is around the difference. LOOKS_THE_SAME: nothing was appended, since
 * both sides would be shown alike.
 */
static int add_sides(struct cg_slice then, struct cg_slice now, struct cg_buf *b, struct cg_err *err)
{
        size_t start = b->len, middle, same = 0, tail = 0;
        int r;

        while (same < then.len && same < now.len && then.p[same] == now.p[same])
                same++;
        while (tail < then.len - same && tail < now.len - same &&
               then.p[then.len - 1 - tail] == now.p[now.len - 1 - tail])
                tail++;
        /* Whole lines, or some bytes of context, and no part of a character. */
        for (size_t n = 0; same && (((unsigned char)then.p[same] & 0xc0) == 0x80 ||
                                    (then.p[same - 1] != '\n' && n < CONTEXT));
             n++)
                same--;
        for (size_t n = 0; tail && (((unsigned char)then.p[then.len - tail] & 0xc0) == 0x80 ||
                                    (then.p[then.len - tail] != '\n' && n < CONTEXT));
             n++)
                tail--;
        then = (struct cg_slice){ then.p + same, then.len - same - tail };
        now = (struct cg_slice){ now.p + same, now.len - same - tail };
        r = add_lines(ADDED, then, b, err);
        middle = b->len;
        if (r == 0)
                r = add_lines(ADDED, now, b, err);
        if (r < 0)
                return r;
        if (b->len - middle == middle - start &&
            memcmp(b->data + start, b->data + middle, middle - start) == 0) {
                b->len = start;
                return LOOKS_THE_SAME;
        }
        for (char *p = b->data + start; p < b->data + middle; p = strchr(p, '\n') + 1)
                memcpy(p, REMOVED, strlen(REMOVED));
        return 0;
}

/* Appends one difference: what was and what is at the path; one of them may be absent. */
static int add_difference(struct diff *d, struct cg_slice then, struct cg_slice now, struct cg_err *err)
{
        cg_auto_buf struct cg_buf a = { .max = SIZE_MAX - 1 }, b = { .max = SIZE_MAX - 1 };
        bool strings = cg_json_kind(then) == '"' && cg_json_kind(now) == '"';
        int (*add)(struct cg_slice, struct cg_buf *, struct cg_err *) = strings ? cg_json_string
                                                                                : add_readable;
        size_t before = d->out.len;
        int r = LOOKS_THE_SAME;

        if (d->left_out) {
                d->left_out++;
                return 0;
        }
        while (r == LOOKS_THE_SAME) {
                a.len = b.len = 0;
                d->out.len = before;
                r = add_lines("  ", (struct cg_slice){ d->path.data ?: "", d->path.len }, &d->out, err);
                if (r == 0 && then.p)
                        r = add(then, &a, err);
                if (r == 0 && now.p)
                        r = add(now, &b, err);
                if (r == 0 && then.p && now.p)
                        r = add_sides((struct cg_slice){ a.data ?: "", a.len },
                                      (struct cg_slice){ b.data ?: "", b.len }, &d->out, err);
                else if (r == 0)
                        r = add_lines(then.p ? REMOVED : ADDED,
                                      then.p ? (struct cg_slice){ a.data ?: "", a.len }
                                             : (struct cg_slice){ b.data ?: "", b.len },
                                      &d->out, err);
                add = add_readable;
        }
        if (r == CG_E_LIMIT) {
                d->out.len = before;
                d->left_out = 1;
                return 0;
        }
        return r;
}

/* Appends the name of a member or the index of an element to the path. */
static int add_step(struct cg_buf *path, struct cg_slice key, size_t index, struct cg_err *err)
{
        int r = 0;

        if (!key.p)
                return cg_buf_try_addf(path, err, "[%zu]", index);
        if (path->len)
                r = cg_buf_try_adds(path, ".", err);
        for (size_t i = 0; i < key.len; i++)
                if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-$", key.p[i]))
                        return r < 0 ? r
                                     : add_readable((struct cg_slice){ key.p - 1, key.len + 2 }, path, err);
        return r < 0 ? r : cg_buf_try_add(path, key.p, key.len, err);
}

/* Compares two values in canonical form, whose levels were counted. */
static int diff_value(struct diff *d, struct cg_slice then, struct cg_slice now, struct cg_err *err)
{
        char open = cg_json_kind(then);
        struct cg_slice key[2] = { CG_SLICE_NONE, CG_SLICE_NONE }, value[2];
        struct cg_json_walk w[2];
        size_t length = d->path.len;
        int r = 0, more[2] = { 0, 0 };

        if (then.p && now.p && cg_slice_eq(then, now))
                return 0;
        if (!then.p || !now.p || (open != '{' && open != '[') || cg_json_kind(now) != open)
                return add_difference(d, then, now, err);
        for (int i = 0; i < 2 && r == 0; i++) {
                r = cg_json_walk_init(&w[i], i ? now : then, open, err);
                if (r == 0)
                        r = more[i] = cg_json_walk_next(&w[i], &key[i], &value[i], err);
                r = r < 0 ? r : 0;
        }
        for (size_t n = 0; r == 0 && (more[0] == 0 || more[1] == 0); n++) {
                /* With their quotes, as add_value() has sorted them. */
                int side = more[0] ? 1 : more[1] ? -1 : 0;

                if (side == 0 && open == '{')
                        side = cg_slice_cmp((struct cg_slice){ key[0].p - 1, key[0].len + 2 },
                                            (struct cg_slice){ key[1].p - 1, key[1].len + 2 });
                r = add_step(&d->path, key[side > 0], n, err);
                if (r == 0)
                        r = diff_value(d, side <= 0 ? value[0] : CG_SLICE_NONE,
                                       side >= 0 ? value[1] : CG_SLICE_NONE, err);
                d->path.len = length;
                for (int i = 0; i < 2 && r == 0; i++) {
                        if (i ? side >= 0 : side <= 0)
                                r = more[i] = cg_json_walk_next(&w[i], &key[i], &value[i], err);
                        r = r < 0 ? r : 0;
                }
        }
        cg_buf_terminate(&d->path);
        return r;
}

int cg_pin_diff(struct cg_slice then, struct cg_slice now, size_t max, struct cg_buf *b, size_t *left_out,
                struct cg_err *err)
{
        struct diff d = { .path = { .max = SIZE_MAX - 1 }, .out = { .max = max } };
        size_t from = 0;
        int r = 0;

        *left_out = 1;
        if (!now.p)
                return cg_buf_try_adds(
                        b, "  the new definition was not kept, since it is too long: it cannot be shown\n",
                        err);
        if (!then.p) {
                r = cg_buf_try_adds(
                        b,
                        "  the accepted definition was not kept, since it was too long; this is the whole new one:\n",
                        err);
                then = CG_SLICE("{}");
        }
        if (r == 0 && (cg_json_check_object(then.p, then.len, CG_JSON_DEPTH, NULL) < 0 ||
                       cg_json_check_object(now.p, now.len, CG_JSON_DEPTH, NULL) < 0))
                r = add_difference(&d, then, now, err);
        else if (r == 0)
                r = diff_value(&d, then, now, err);
        if (r == 0)
                r = cg_buf_try_add(b, d.out.data, d.out.len, err);
        if (r == 0 && d.left_out) {
                while (from < then.len && from < now.len && then.p[from] == now.p[from])
                        from++;
                r = cg_buf_try_addf(b, err, "  %zu %s not shown; the definitions first differ at byte %zu:\n",
                                    d.left_out, d.left_out == 1 ? "difference is" : "differences are", from);
                from -= from < CONTEXT ? from : CONTEXT;
                for (int i = 0; i < 2 && r == 0; i++) {
                        struct cg_slice s = i ? now : then;
                        size_t n = s.len - from;

                        r = add_lines(i ? ADDED : REMOVED,
                                      (struct cg_slice){ s.p + from, n < EXCERPT ? n : EXCERPT }, b, err);
                }
        }
        *left_out = d.left_out;
        cg_buf_fini(&d.path);
        cg_buf_fini(&d.out);
        return r;
}
