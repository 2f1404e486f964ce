/* Text from outside. Linked into every process. */
#include "base/text.h"

#include <sys/random.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

size_t cg_utf8_next(const unsigned char *p, size_t left, uint32_t *cp)
{
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = cg_utf8_length(p[0]);
        uint32_t c;

        if (n > left || (p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4)
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

size_t cg_utf8_put(uint32_t c, char *out)
{
        static const unsigned char marks[] = { 0, 0, 0xc0, 0xe0, 0xf0 }; /* by length */
        size_t n = 1 + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);

        for (size_t i = n; --i; c >>= 6)
                out[i] = (char)(0x80 | (c & 0x3f));
        out[0] = (char)(marks[n] | c);
        return n;
}

#define EACH(byte) (0x0101010101010101u * (byte))
/* Nonzero if a byte of @w is less than @n, which is at most 0x80. */
#define BELOW(w, n) (((w)-EACH(n)) & ~(w)&EACH(0x80u))

static uint64_t word_at(const char *p)
{
        uint64_t w;

        memcpy(&w, p, sizeof(w));
        return w;
}

#ifdef __SSE2__
/* Length of the unescaped prefix in steps of 16 bytes; *stop: an escape follows. */
static size_t json_run_fast(const char *p, size_t len, bool *stop)
{
        size_t i = 0;

        *stop = false;
        for (; len - i >= 16; i += 16) {
                __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
                /* a signed comparison: true for 0x80 and above as well */
                __m128i low = _mm_cmplt_epi8(v, _mm_set1_epi8(0x20));
                __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                        slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
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

                if ((w & EACH(0x80u)) | BELOW(w, 0x20u) | BELOW(w ^ EACH('"'), 1u) |
                    BELOW(w ^ EACH('\\'), 1u))
                        break;
        }
        while (i < len && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x80 && p[i] != '"' &&
               p[i] != '\\')
                i++;
        return i;
}

static size_t min2(size_t a, size_t b)
{
        return CG_MIN(a, b);
}

size_t cg_text_distance(const char *a, const char *b, char (*fold)(char c))
{
        char x[CG_TEXT_DISTANCE_MAX], y[CG_TEXT_DISTANCE_MAX];
        size_t d[CG_TEXT_DISTANCE_MAX + 1][CG_TEXT_DISTANCE_MAX + 1];
        size_t n = strnlen(a, CG_TEXT_DISTANCE_MAX), m = strnlen(b, CG_TEXT_DISTANCE_MAX);

        for (size_t i = 0; i <= n; i++)
                d[i][0] = i;
        for (size_t j = 0; j <= m; j++)
                d[0][j] = j;
        for (size_t i = 0; i < n; i++)
                x[i] = fold ? fold(a[i]) : a[i];
        for (size_t j = 0; j < m; j++)
                y[j] = fold ? fold(b[j]) : b[j];
        for (size_t i = 1; i <= n; i++)
                for (size_t j = 1; j <= m; j++) {
                        d[i][j] = min2(min2(d[i - 1][j], d[i][j - 1]) + 1,
                                       d[i - 1][j - 1] + (x[i - 1] != y[j - 1]));
                        if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
                                d[i][j] = min2(d[i][j], d[i - 2][j - 2] + 1);
                }
        return d[n][m];
}

/* ------------------------------------------------------------------ escaping for display */

/* Character classes of text_table.h. Classes from LETTER on are numbers of scripts. */
enum { PLAIN, HIDDEN, JUDGED, MARK, LETTER, LATIN, CJK, LOOKALIKE = 0x400 };
#define CLASS_BITS 11

#include "base/text_table.h"

/* Combining marks per letter. Burmese uses five; long stacks overlap other lines. */
#define MAX_MARKS 6u
/* The note about what was left out (at most 64 bytes), and one escape. */
#define TAIL_MAX 74

static unsigned class_of(uint32_t c)
{
        size_t low = 0, high = CG_ARRAY_LEN(text_table);

        while (high - low > 1) {
                size_t mid = low + (high - low) / 2;

                if (text_table[mid] >> CLASS_BITS <= c)
                        low = mid;
                else
                        high = mid;
        }
        return text_table[low] & ((1u << CLASS_BITS) - 1);
}

static bool is_letter(unsigned class)
{
        return class >= LETTER;
}

static unsigned script_of(unsigned class)
{
        return class & ~(unsigned)LOOKALIKE;
}

/* Finds the end and the script of the word at @p, and if it has only look-alikes of ASCII. */
static void begin_word(struct cg_text_scan *s, const char *p, const char *end)
{
        size_t n;
        uint32_t c;

        s->script = 0;
        s->all_alike = true;
        while (p < end && (n = s->next(p, end, &c)) > 0) {
                unsigned class = class_of(c), script = script_of(class);

                if (!is_letter(class) && class != MARK)
                        break;
                if (is_letter(class) && script != LETTER) {
                        s->all_alike = s->all_alike && (class & LOOKALIKE);
                        if (script == LATIN || !s->script)
                                s->script = script;
                }
                p += n;
        }
        s->word_end = p;
}

/* True if the letter's script is not its word's, or the word has only look-alikes of ASCII. */
static bool letter_deceives(const struct cg_text_scan *s, unsigned class)
{
        unsigned script = script_of(class);

        if (script == LETTER)
                return false;
        if (s->script == LATIN && script == CJK)
                return class & LOOKALIKE;
        if (script != s->script)
                return true;
        return script != LATIN && script != CJK && s->all_alike;
}

bool cg_text_shown(struct cg_text_scan *s, const char *p, const char *end, uint32_t c)
{
        unsigned class;
        bool after_letter = s->after_letter;

        if (c < 0x80) {
                s->after_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
                s->marks = 0;
                if (s->judged && s->after_letter && p >= s->word_end)
                        begin_word(s, p, end);
                return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
        }
        class = class_of(c);
        if (class == MARK)
                return ++s->marks <= MAX_MARKS && (after_letter || !s->judged);
        s->after_letter = is_letter(class);
        s->marks = 0;
        if (class == HIDDEN || !s->judged)
                return class != HIDDEN;
        if (!is_letter(class))
                return class != JUDGED;
        if (p >= s->word_end)
                begin_word(s, p, end);
        return !letter_deceives(s, class);
}

static size_t next_utf8(const char *p, const char *end, uint32_t *c)
{
        return cg_utf8_next((const unsigned char *)p, (size_t)(end - p), c);
}

static void add_escape(struct cg_buf *b, const char *p, size_t n, uint32_t c)
{
        if (!n)
                cg_buf_addf(b, "\\x%02x", (unsigned char)*p);
        else if (c < 0x100)
                cg_buf_addf(b, "\\x%02x", c);
        else if (c < 0x10000)
                cg_buf_addf(b, "\\u%04x", c);
        else
                cg_buf_addf(b, "\\U%08x", c);
}

void cg_text_render_as(struct cg_buf *b, const char *text, size_t len, size_t max, enum cg_text_for what)
{
        /* A mark before the first letter may belong to an earlier call's letter: escape it. */
        struct cg_text_scan s = { .next = next_utf8, .judged = what != CG_TEXT_OUTPUT, .marks = MAX_MARKS };
        const char *end = text + len;
        size_t start = b->len;

        for (const char *p = text; p < end && !b->failed;) {
                uint32_t c = 0;
                size_t n = next_utf8(p, end, &c);

                if (max && b->len - start + TAIL_MAX > max && end - p > 6) { /* 6 bytes always fit */
                        cg_buf_addf(b, "... [%zu more bytes not shown]", (size_t)(end - p));
                        return;
                }
                if (n && cg_text_shown(&s, p, end, c) && !(what == CG_TEXT_LINE && c < 0x20))
                        cg_buf_add(b, p, n);
                else
                        add_escape(b, p, n, c);
                p += n ?: 1;
        }
}

void cg_text_render(struct cg_buf *b, const char *text, size_t len, size_t max)
{
        cg_text_render_as(b, text, len, max, CG_TEXT_JUDGED);
}

void cg_percent_encode(struct cg_buf *b, const char *text, const char *plain)
{
        for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
                if ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    strchr("-._~", *p) || strchr(plain, *p))
                        cg_buf_add(b, p, 1);
                else
                        cg_buf_addf(b, "%%%02X", *p);
        }
}

void cg_hex(char *out, const void *bytes, size_t n)
{
        static const char digits[] = "0123456789abcdef";
        const unsigned char *p = bytes;

        for (size_t i = 0; i < n; i++) {
                *out++ = digits[p[i] >> 4];
                *out++ = digits[p[i] & 15];
        }
        *out = '\0';
}

int cg_random_hex(char *out, size_t n, struct cg_err *err)
{
        unsigned char raw[256];

        if (n > sizeof(raw) || getrandom(raw, n, 0) != (ssize_t)n)
                return cg_fail_errno(err, "random numbers");
        cg_hex(out, raw, n);
        explicit_bzero(raw, sizeof(raw));
        return 0;
}
