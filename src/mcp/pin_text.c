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
#include "mcp/ceilings.h"
#include "mcp/pins.h"

/* ---- the canonical form */

struct pin_member {
        char *key; /* with its quotes; NULL: an element of an array */
        struct cg_slice value;
        size_t at;
};

/* By name, and copies of one name in their order. */
static int order(const void *a, const void *b)
{
        const struct pin_member *x = a, *y = b;
        int r = strcmp(x->key, y->key);

        return r ? r : (x->at > y->at) - (x->at < y->at);
}

/*
 * One spelling of a string. One with a NUL or a lone surrogate keeps its own, since its text would
 * be the same as another's.
 */
static int add_string(struct cg_slice literal, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_free char *text = NULL;

        if (cg_json_strdup(literal, &text, NULL) < 0)
                return cg_buf_add(b, literal.p, literal.len, err);
        return cg_json_quote(b, text, strlen(text), err);
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
                return cg_buf_add(b, v.p, v.len, err);
        if (depth >= CG_JSON_DEPTH)
                return cg_fail(err, CG_E_LIMIT, "it has over %d levels", CG_JSON_DEPTH);
        r = cg_json_walk_init(&w, v, open, err);
        while (r == 0 && (r = cg_json_walk_next(&w, &key, &value, err)) == 0) {
                struct pin_member m = { .value = cg_json_trim(value), .at = n };

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
                r = cg_buf_add(b, &open, 1, err);
        if (r == 0 && open == '{' && n)
                qsort(all, n, sizeof(*all), order);
        for (size_t i = 0; i < n && r == 0; i++) {
                if (i)
                        r = cg_buf_adds(b, ",", err);
                if (r == 0 && open == '{')
                        r = cg_buf_adds(b, all[i].key, err);
                if (r == 0 && open == '{')
                        r = cg_buf_adds(b, ":", err);
                if (r == 0)
                        r = add_value(all[i].value, depth + 1, b, err);
        }
        for (size_t i = 0; i < n; i++)
                free(all[i].key);
        free(all);
        return r < 0 ? r : cg_buf_adds(b, open == '{' ? "}" : "]", err);
}

int cg_pin_canonical(struct cg_slice tool, struct cg_buf *b, struct cg_err *err)
{
        size_t before = b->len;
        int r = add_value(tool, 0, b, err);

        if (r < 0 && r != CG_E_NOMEM) {
                b->len = before;
                r = cg_buf_add(b, tool.p, tool.len, err);
        }
        return r;
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

struct diff {
        struct cg_buf *b;
        unsigned lines, left_out;
};

/* One line, or a part of a text of several lines: "- " and "+ " begin what was and what is. */
static void add_line(struct diff *d, const char *sign, const char *text, size_t len)
{
        if (d->lines >= CG_PINS_DIFF_LINES) {
                d->left_out++;
                return;
        }
        d->lines++;
        cg_buf_adds(d->b, sign, NULL);
        cg_text_render_as(d->b, text, len, CG_PINS_DIFF_LINE, CG_TEXT_LINE, NULL);
        cg_buf_adds(d->b, "\n", NULL);
}

/*
 * The lines of a text that are not at the same place from the start or the end of the other; long
 * lines from shortly before the first character that differs.
 */
static void diff_text(struct diff *d, const char *then, const char *now)
{
        size_t a = strlen(then), b = strlen(now), same = 0, tail = 0;

        while (same < a && same < b && then[same] == now[same])
                same++;
        while (tail < a - same && tail < b - same && then[a - 1 - tail] == now[b - 1 - tail])
                tail++;
        /* Whole lines, or 40 characters of context, and no half of a character. */
        for (size_t context = 0;
             same && (((unsigned char)then[same] & 0xc0) == 0x80 || (then[same - 1] != '\n' && context < 40));
             context++)
                same--;
        for (size_t context = 0; tail && (((unsigned char)then[a - tail] & 0xc0) == 0x80 ||
                                          (then[a - tail] != '\n' && context < 40));
             context++)
                tail--;
        for (int side = 0; side < 2; side++) {
                const char *p = (side ? now : then) + same, *end = (side ? now + b : then + a) - tail;

                while (p < end) {
                        const char *nl = memchr(p, '\n', (size_t)(end - p));
                        size_t len = (size_t)((nl ?: end) - p);

                        add_line(d, side ? "    + " : "    - ", p, len);
                        p += len + (nl != NULL);
                }
        }
}

static void diff_leaf(struct diff *d, const char *sign, const json_t *v)
{
        cg_auto_free char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);

        add_line(d, sign, text ?: "?", text ? strlen(text) : 1);
}

/* @path: "inputSchema.properties.x". Recurses at most as deep as jansson parses. */
static void diff_value(struct diff *d, const char *path, const json_t *then, const json_t *now)
{
        char below[1024];
        const json_t *v;
        const char *key;
        size_t i;

        if (then && now && json_equal(then, now))
                return;
        if (json_is_object(then) && json_is_object(now)) {
                json_object_foreach((json_t *)(uintptr_t)then, key, v)
                {
                        snprintf(below, sizeof(below), "%s%s%s", path, *path ? "." : "", key);
                        diff_value(d, below, v, json_object_get(now, key));
                }
                json_object_foreach((json_t *)(uintptr_t)now, key, v)
                {
                        snprintf(below, sizeof(below), "%s%s%s", path, *path ? "." : "", key);
                        if (!json_object_get(then, key))
                                diff_value(d, below, NULL, v);
                }
                return;
        }
        if (json_is_array(then) && json_is_array(now) && json_array_size(then) == json_array_size(now)) {
                json_array_foreach(then, i, v)
                {
                        snprintf(below, sizeof(below), "%s[%zu]", path, i);
                        diff_value(d, below, v, json_array_get(now, i));
                }
                return;
        }
        add_line(d, "  ", path, strlen(path));
        if (json_is_string(then) && json_is_string(now)) {
                diff_text(d, json_string_value(then), json_string_value(now));
                return;
        }
        if (then)
                diff_leaf(d, "    - ", then);
        if (now)
                diff_leaf(d, "    + ", now);
}

void cg_pin_diff(const char *then, const char *now, struct cg_buf *b)
{
        static const int flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
        cg_auto_json json_t *old = then ? json_loads(then, flags, NULL) : NULL;
        cg_auto_json json_t *new = now ? json_loads(now, flags, NULL) : NULL;
        struct diff d = { .b = b };
        size_t before = b->len;

        if (!then || !now) {
                cg_buf_adds(b, "  the texts are too long to be kept: what has changed is not known\n", NULL);
                return;
        }
        if (old && new)
                diff_value(&d, "", old, new);
        if (b->len == before) { /* numbers and strings that jansson does not tell apart, or not read */
                add_line(&d, "    - ", then, strlen(then));
                add_line(&d, "    + ", now, strlen(now));
        }
        if (d.left_out)
                cg_buf_addf(b, NULL, "  and %u more lines\n", d.left_out);
}
