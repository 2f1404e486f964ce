/*
 * How two definitions of a tool differ, as text. Linked into the tool server and the command line;
 * the texts are an MCP server's: untrusted.
 */
#include "base/json.h"
#include "base/text.h"
#include "mcp/pins/pins.h"

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

static void diff_fini(struct diff *d)
{
        cg_buf_fini(&d->path);
        cg_buf_fini(&d->out);
}

/* Appends the lines of @text, each behind @sign. A blank at the end of a line is escaped. */
static void add_lines(const char *sign, struct cg_slice text, struct cg_buf *b)
{
        const char *p = text.p, *end = text.p + text.len, *nl;

        do {
                const char *stop = (nl = memchr(p, '\n', (size_t)(end - p))) ?: end;
                bool blank = stop > p && stop[-1] == ' ';

                cg_buf_adds(b, sign);
                cg_text_render_as(b, p, (size_t)(stop - p) - blank, 0, CG_TEXT_LINE);
                cg_buf_adds(b, blank ? "\\x20\n" : "\n");
                p = stop + 1;
        } while (nl);
}

/*
 * Appends @json, which is ASCII, with letters in place of their escapes. Control characters and
 * backslashes stay escaped, so that no two texts are the same after cg_text_render_as().
 */
static void add_readable(struct cg_slice json, struct cg_buf *b)
{
        const char *p = json.p, *end = json.p + json.len;

        while (p < end) {
                const char *slash = memchr(p, '\\', (size_t)(end - p)) ?: end;
                char letter[4];
                uint32_t c = 0;
                size_t n;

                cg_buf_add(b, p, (size_t)(slash - p));
                p = slash;
                if (p == end)
                        return;
                n = cg_json_char(p, end, &c) ?: 1;
                if (c >= 0x80 && (c < 0xd800 || c > 0xdfff))
                        cg_buf_add(b, letter, cg_utf8_put(c, letter));
                else
                        cg_buf_add(b, p, n);
                p += n;
        }
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
        add_lines(ADDED, then, b);
        middle = b->len;
        add_lines(ADDED, now, b);
        if (cg_buf_end(b, err) < 0)
                return b->failed;
        if (b->len - middle == middle - start &&
            memcmp(b->data + start, b->data + middle, middle - start) == 0)
                return LOOKS_THE_SAME;
        for (char *p = b->data + start; p < b->data + middle; p = strchr(p, '\n') + 1)
                memcpy(p, REMOVED, strlen(REMOVED));
        return 0;
}

/* @as_string: shown without quotes and escapes. Nothing is appended for an absent value. */
static int add_shown(struct cg_slice v, bool as_string, struct cg_buf *b, struct cg_err *err)
{
        if (v.p && as_string)
                return cg_json_string(v, b, err);
        if (v.p)
                add_readable(v, b);
        return cg_buf_end(b, err);
}

static int try_difference(struct diff *d, struct cg_slice then, struct cg_slice now, bool strings,
                          struct cg_err *err)
{
        cg_auto_buf struct cg_buf a = { .max = SIZE_MAX - 1 }, b = { .max = SIZE_MAX - 1 };
        int r = cg_buf_end(&d->path, err);

        if (r < 0)
                return r;
        add_lines("  ", cg_buf_slice(&d->path), &d->out);
        r = add_shown(then, strings, &a, err);
        if (r < 0)
                return r;
        r = add_shown(now, strings, &b, err);
        if (r < 0)
                return r;
        if (then.p && now.p)
                return add_sides(cg_buf_slice(&a), cg_buf_slice(&b), &d->out, err);
        if (then.p)
                add_lines(REMOVED, cg_buf_slice(&a), &d->out);
        else
                add_lines(ADDED, cg_buf_slice(&b), &d->out);
        return cg_buf_end(&d->out, err);
}

/* Appends one difference: what was and what is at the path; one of them may be absent. */
static int add_difference(struct diff *d, struct cg_slice then, struct cg_slice now, struct cg_err *err)
{
        bool strings = cg_json_kind(then) == '"' && cg_json_kind(now) == '"';
        size_t before = d->out.len;
        int r = 0;

        if (!d->left_out)
                r = try_difference(d, then, now, strings, err);
        if (r == LOOKS_THE_SAME) { /* as strings; their JSON text differs also where it is shown */
                cg_buf_cut(&d->out, before);
                r = try_difference(d, then, now, false, err);
        }
        if (d->left_out || r == CG_E_LIMIT || r == LOOKS_THE_SAME) {
                cg_buf_cut(&d->out, before);
                d->left_out++;
                return 0;
        }
        return r;
}

/* Appends the name of a member or the index of an element to the path. */
static void add_step(struct cg_buf *path, struct cg_slice key, size_t index)
{
        static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-$";

        if (!key.p) {
                cg_buf_addf(path, "[%zu]", index);
                return;
        }
        if (path->len)
                cg_buf_adds(path, ".");
        for (size_t i = 0; i < key.len; i++)
                if (!strchr(plain, key.p[i])) {
                        add_readable((struct cg_slice){ key.p - 1, key.len + 2 }, path);
                        return;
                }
        cg_buf_add(path, key.p, key.len);
}

/* One of two values whose members are compared in order. */
struct diff_side {
        struct cg_json_walk w;
        struct cg_slice key, value; /* of the next member */
        bool ended;
};

static int next(struct diff_side *s, struct cg_err *err)
{
        int r = cg_json_walk_next(&s->w, &s->key, &s->value, err);

        s->ended = r != 0;
        return CG_MIN(r, 0);
}

static int begin(struct diff_side *s, struct cg_slice v, struct cg_err *err)
{
        int r = cg_json_walk_init(&s->w, v, cg_json_kind(v), err);

        return r < 0 ? r : next(s, err);
}

/* Below 0: the next member is one of @a alone; above 0: of @b alone; 0: of both. */
static int order_of_sides(const struct diff_side *a, const struct diff_side *b)
{
        if (a->ended || b->ended)
                return a->ended - b->ended;
        if (!a->key.p)
                return 0;
        /* With their quotes, as read_members() has sorted them. */
        return cg_slice_cmp((struct cg_slice){ a->key.p - 1, a->key.len + 2 },
                            (struct cg_slice){ b->key.p - 1, b->key.len + 2 });
}

/* Compares two values in canonical form, whose levels were counted. */
static int diff_value(struct diff *d, struct cg_slice then, struct cg_slice now, struct cg_err *err)
{
        char open = cg_json_kind(then);
        struct diff_side a = { 0 }, b = { 0 };
        size_t length = d->path.len;
        int r;

        if (then.p && now.p && cg_slice_eq(then, now))
                return 0;
        if (!then.p || !now.p || (open != '{' && open != '[') || cg_json_kind(now) != open)
                return add_difference(d, then, now, err);
        r = begin(&a, then, err);
        if (r == 0)
                r = begin(&b, now, err);
        for (size_t n = 0; r == 0 && !(a.ended && b.ended); n++) {
                int side = order_of_sides(&a, &b);

                add_step(&d->path, side > 0 ? b.key : a.key, n);
                r = diff_value(d, side <= 0 ? a.value : CG_SLICE_NONE, side >= 0 ? b.value : CG_SLICE_NONE,
                               err);
                cg_buf_cut(&d->path, length);
                if (r == 0 && side <= 0)
                        r = next(&a, err);
                if (r == 0 && side >= 0)
                        r = next(&b, err);
        }
        return r;
}

static struct cg_slice excerpt(struct cg_slice s, size_t from)
{
        return cg_slice_head((struct cg_slice){ s.p + from, s.len - from }, EXCERPT);
}

/* Appends how many differences are not shown, and the texts around the first byte that differs. */
static void add_left_out(size_t left_out, struct cg_slice then, struct cg_slice now, struct cg_buf *b)
{
        size_t from = 0;

        while (from < then.len && from < now.len && then.p[from] == now.p[from])
                from++;
        cg_buf_addf(b, "  %zu %s not shown; the definitions first differ at byte %zu:\n", left_out,
                    left_out == 1 ? "difference is" : "differences are", from);
        from -= CG_MIN(from, CONTEXT);
        add_lines(REMOVED, excerpt(then, from), b);
        add_lines(ADDED, excerpt(now, from), b);
}

int cg_pin_diff(struct cg_slice then, struct cg_slice now, size_t max, struct cg_buf *b, size_t *left_out,
                struct cg_err *err)
{
        CG_CLEANUP(diff_fini) struct diff d = { .path = { .max = SIZE_MAX - 1 }, .out = { .max = max } };
        int r;

        *left_out = 1;
        if (!now.p) {
                cg_buf_adds(b,
                            "  the new definition was not kept, since it is too long: it cannot be shown\n");
                return cg_buf_end(b, err);
        }
        if (!then.p) {
                cg_buf_adds(
                        b,
                        "  the accepted definition was not kept, since it was too long; this is the whole new one:\n");
                then = CG_SLICE("{}");
        }
        if (cg_json_check_object(then.p, then.len, CG_JSON_DEPTH, NULL) < 0 ||
            cg_json_check_object(now.p, now.len, CG_JSON_DEPTH, NULL) < 0)
                r = add_difference(&d, then, now, err);
        else
                r = diff_value(&d, then, now, err);
        if (r < 0)
                return r;
        cg_buf_add(b, d.out.data, d.out.len);
        if (d.left_out)
                add_left_out(d.left_out, then, now, b);
        *left_out = d.left_out;
        return cg_buf_end(b, err);
}
