/* `cellgate mcp serve`: texts of which the middle is left out. See cut.h. */
#include "cli/mcp_serve/cut.h"

/* Ceiling of a text's limit: 16 MB of UTF-8, more than any agent reads. */
#define MAX_CHARS ((size_t)4000000)
/* The end is kept in a buffer that is cut when it has grown by this much over what is wanted. */
#define TAIL_SLACK ((size_t)64 << 10)
/* Fewer characters are not left out of a text that may have any: the note would be as long. */
#define MIN_CUT ((size_t)200)

static bool starts_char(char c)
{
        return ((unsigned char)c & 0xc0) != 0x80;
}

size_t cg_cut_count(const char *text, size_t len)
{
        size_t n = 0;

        for (size_t i = 0; i < len; i++)
                n += starts_char(text[i]);
        return n;
}

size_t cg_cut_place(const struct cg_buf *b, size_t from, size_t n)
{
        size_t i = from;

        while (i < b->len && (!starts_char(b->data[i]) || n-- > 0))
                i++;
        return i;
}

void cg_cut_init(struct cg_cut *c, size_t max_chars, size_t keep)
{
        size_t shown;

        if (max_chars > MAX_CHARS)
                max_chars = MAX_CHARS;
        *c = (struct cg_cut){ .tail_max = max_chars / 2, .min_cut = max_chars ? MIN_CUT : 0 };
        c->head_max = max_chars - c->tail_max;
        shown = (max_chars + c->min_cut) * 4 + 1;
        cg_buf_init(&c->tail, c->tail_max * 4 + TAIL_SLACK * 2);
        cg_buf_init(&c->whole, CG_MAX(keep, shown));
}

void cg_cut_fini(struct cg_cut *c)
{
        cg_buf_fini(&c->whole);
        cg_buf_fini(&c->tail);
}

void cg_cut_clear(struct cg_cut *c)
{
        c->whole.len = c->tail.len = c->total = 0;
        c->full = false;
}

/* Keeps the last tail_max characters. */
static void trim_tail(struct cg_cut *c)
{
        size_t i = c->tail.len, n = 0;

        while (i > 0 && n < c->tail_max)
                n += starts_char(c->tail.data[--i]);
        cg_buf_consume(&c->tail, i);
}

/* The beginning, up to a character that does not fit. */
static void add_whole(struct cg_cut *c, const char *text, size_t len)
{
        size_t space = c->whole.max - 1 - c->whole.len;

        if (c->full)
                return;
        c->full = len > space;
        if (c->full)
                len = space;
        while (c->full && len > 0 && !starts_char(text[len]))
                len--;
        c->full |= cg_buf_try_add(&c->whole, text, len, NULL) < 0;
}

void cg_cut_add(struct cg_cut *c, const char *text, size_t len)
{
        size_t piece;

        c->total += cg_cut_count(text, len);
        add_whole(c, text, len);
        for (; len; text += piece, len -= piece) {
                piece = CG_MIN(len, TAIL_SLACK);
                if (c->tail.len + piece > c->tail_max * 4 + TAIL_SLACK)
                        trim_tail(c);
                if (cg_buf_try_add(&c->tail, text, piece, NULL) < 0)
                        return; /* counted, and so reported as left out */
        }
}

/* The bytes of the beginning that are shown, and the characters: all, if nothing is left out. */
static size_t shown_head(const struct cg_cut *c, size_t *chars)
{
        size_t len = c->whole.len;

        if (c->total > c->head_max + c->tail_max + c->min_cut)
                len = cg_cut_place(&c->whole, 0, c->head_max);
        *chars = cg_cut_count(c->whole.data, len);
        return len;
}

void cg_cut_left_out(const struct cg_cut *c, size_t *begin, size_t *end)
{
        size_t chars, n = 0, i = c->tail.len;

        *begin = shown_head(c, &chars);
        *end = chars == c->total ? *begin : SIZE_MAX;
        if (c->full || chars == c->total)
                return;
        while (i > 0 && n < c->tail_max)
                n += starts_char(c->tail.data[--i]);
        *end = c->whole.len - (c->tail.len - i);
}

bool cg_cut_is_cut(const struct cg_cut *c)
{
        size_t chars;

        shown_head(c, &chars);
        return chars != c->total;
}

size_t cg_cut_memory(const struct cg_cut *c)
{
        return c->whole.cap + c->tail.cap;
}

void cg_cut_render(struct cg_cut *c, bool readable, struct cg_buf *b)
{
        size_t chars, left, len = shown_head(c, &chars);

        cg_buf_add(b, c->whole.data, len);
        if (chars == c->total)
                return;
        trim_tail(c);
        left = c->total - chars - cg_cut_count(c->tail.data, c->tail.len);
        if (len && c->whole.data[len - 1] != '\n')
                cg_buf_adds(b, "\n");
        cg_buf_addf(
                b, "[Output truncated: exceeded %zu character limit, %zu of %zu characters are left out here",
                c->head_max + c->tail_max, left, c->total);
        if (readable)
                cg_buf_addf(b, ". read_output(start=%zu) returns them; better print just the part you need",
                            chars);
        cg_buf_adds(b, "]\n");
        cg_buf_add(b, c->tail.data, c->tail.len);
}
