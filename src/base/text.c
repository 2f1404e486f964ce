/* Text from outside. Linked into every process. */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

size_t cg_utf8_next(const unsigned char *p, size_t left, uint32_t *cp)
{
        size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                   : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        uint32_t c;

        if (!n || n > left)
                return 0;
        c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (p[i] & 0x3f);
        }
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
                return 0;
        *cp = c;
        return n;
}

#define EACH(byte) (0x0101010101010101u * (byte))
/* Not 0 when a byte of @w is below @n, at most 0x80: bytes of 0x80 and more are not. */
#define BELOW(w, n) (((w) - EACH(n)) & ~(w) & EACH(0x80u))

static uint64_t word_at(const char *p)
{
        uint64_t w;

        memcpy(&w, p, sizeof(w));
        return w;
}

size_t cg_ascii_run(const char *p, size_t len)
{
        size_t i = 0;

        while (len - i >= sizeof(uint64_t) && !(word_at(p + i) & EACH(0x80u)))
                i += sizeof(uint64_t);
        while (i < len && (unsigned char)p[i] < 0x80)
                i++;
        return i;
}

#ifdef __SSE2__
/* So many bytes at the start are plain, by sixteen; *stop: the next of them are not all. */
static size_t json_run_fast(const char *p, size_t len, bool *stop)
{
        size_t i = 0;

        *stop = false;
        for (; len - i >= 16; i += 16) {
                __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
                __m128i low = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20)); /* signed: 0x80 and more too */
                __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
                int found = _mm_movemask_epi8(_mm_or_si128(low, _mm_or_si128(quote, slash)));

                if (found) {
                        *stop = true;
                        return i + (size_t)__builtin_ctz((unsigned)found);
                }
        }
        return i;
}
#else
static size_t json_run_fast(const char *p, size_t len, bool *stop)
{
        *stop = false;
        return 0;
}
#endif

size_t cg_json_run(const char *p, size_t len)
{
        bool stop;
        size_t i = json_run_fast(p, len, &stop);

        if (stop)
                return i;
        for (; len - i >= sizeof(uint64_t); i += sizeof(uint64_t)) {
                uint64_t w = word_at(p + i);

                if ((w & EACH(0x80u)) | BELOW(w, 0x20u) | BELOW(w ^ EACH('"'), 1u) | BELOW(w ^ EACH('\\'), 1u))
                        break;
        }
        while (i < len && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x80 && p[i] != '"' && p[i] != '\\')
                i++;
        return i;
}

/* What a terminal or a reader could be fooled by: it is shown as an escape. */
static const struct {
        uint32_t from, to;
} unsafe[] = {
        { 0x00, 0x08 }, { 0x0b, 0x1f }, { 0x7f, 0x9f },     /* controls, but newline and tab */
        { 0xad, 0xad }, { 0x34f, 0x34f }, { 0x61c, 0x61c }, /* soft hyphen, grapheme joiner, Arabic letter mark */
        { 0x115f, 0x1160 }, { 0x17b4, 0x17b5 }, { 0x180b, 0x180f }, /* fillers that show as nothing */
        { 0x200b, 0x200f }, { 0x2028, 0x202e },             /* zero width, separators, bidirectional embedding */
        { 0x2060, 0x206f }, { 0x2800, 0x2800 }, { 0x3164, 0x3164 }, /* joiners, isolates, blank Braille, filler */
        { 0xd800, 0xf8ff },                                 /* surrogates, private use */
        { 0xfe00, 0xfe0f }, { 0xfeff, 0xfeff }, { 0xffa0, 0xffa0 }, { 0xfff0, 0xffff }, /* variation, BOM, specials */
        { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },         /* invisible format controls */
        { 0x40000, 0x10ffff },                              /* unassigned, tags, variation supplement, private planes */
};

static bool is_unsafe(uint32_t c)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(unsafe); i++)
                if (c >= unsafe[i].from && c <= unsafe[i].to)
                        return true;
        return false;
}

static int render_one(struct cg_buf *b, const unsigned char *p, size_t n, uint32_t c, struct cg_err *err)
{
        if (!n)
                return cg_buf_addf(b, err, "\\x%02x", *p);
        if (!is_unsafe(c))
                return cg_buf_add(b, p, n, err);
        if (c < 0x100)
                return cg_buf_addf(b, err, "\\x%02x", c);
        return cg_buf_addf(b, err, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

int cg_text_render(struct cg_buf *b, const char *text, size_t len, size_t max, struct cg_err *err)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t start = b->len, i = 0;
        int r = 0;

        /* 64 bytes are kept for the note about what was left out, and 10 for one escape. */
        while (i < len && r == 0) {
                uint32_t c = 0;
                size_t n = cg_utf8_next(p + i, len - i, &c);

                if (max && b->len - start + 74 > max)
                        return cg_buf_addf(b, err, "... [%zu more bytes not shown]", len - i);
                r = render_one(b, p + i, n, c, err);
                i += n ? n : 1;
        }
        return r;
}
