/* Text from outside: UTF-8, and making it safe to show. */
#pragma once

#include "base/buf.h"

/* Length of the UTF-8 sequence at @p, and its code point; 0: invalid. @left >= 1. */
size_t cg_utf8_next(const unsigned char *p, size_t left, uint32_t *cp);

/* True if all of @text is UTF-8. */
static inline bool cg_utf8_valid(const char *text, size_t len)
{
        uint32_t c;

        for (size_t i = 0, n; i < len; i += n) {
                n = cg_utf8_next((const unsigned char *)text + i, len - i, &c);
                if (!n)
                        return false;
        }
        return true;
}

/* Independent of the locale. */
static inline bool cg_is_digit(char c)
{
        return c >= '0' && c <= '9';
}
static inline char cg_ascii_lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Length of the UTF-8 sequence that begins with the byte @c; 1 also if none does. */
static inline size_t cg_utf8_length(unsigned char c)
{
        return 1 + (size_t)((c >= 0xc0) + (c >= 0xe0) + (c >= 0xf0));
}

/* Writes @c as UTF-8, returns the bytes, at most 4. Surrogates become three, as in WTF-8. */
size_t cg_utf8_put(uint32_t c, char *out);

/*
 * Number of bytes at the start of @p that JSON strings contain without an escape. Checks many at a
 * time, because output and pictures of kernels are megabytes.
 */
size_t cg_json_run(const char *p, size_t len);

/*
 * Edit distance between two names: how many characters must be inserted, removed, replaced or
 * swapped with their neighbour. Compares at most CG_TEXT_DISTANCE_MAX bytes of each. @fold: maps
 * characters that count as equal to one of them; may be NULL.
 */
#define CG_TEXT_DISTANCE_MAX 64
size_t cg_text_distance(const char *a, const char *b, char (*fold)(char c));

/* Purpose of rendered text. */
enum cg_text_for {
        CG_TEXT_OUTPUT, /* output of a program on a terminal: all scripts and blanks are shown */
        CG_TEXT_JUDGED, /* text that somebody decides by, and messages */
        CG_TEXT_LINE,   /* as JUDGED, with newline and tab escaped as well: names, paths, hosts */
};

/*
 * Appends untrusted text with unsafe characters as escapes such as \x1b, \u202e, \U000e0041. All
 * questions, messages and logs use this function or cg_text_shown(). @max: longest output in bytes,
 * 0 for no limit; the number of bytes left out is appended.
 *
 * Escaped always: bytes that are not UTF-8, control characters other than newline and tab, format
 * characters, line and paragraph separators, fillers, variation selectors, private use, and
 * combining marks after the sixth of a letter.
 * Escaped in JUDGED and LINE as well: blanks other than the space; letters and digits with
 * right-to-left direction (they reorder a path); marks without a letter and overlays; full-width
 * and mathematical variants of ASCII and symbols that look like it; unassigned characters; letters
 * of another script than their word's (any but CJK letters in a word with Latin letters, else
 * letters of another script than the first); and words that consist of non-Latin look-alikes of
 * ASCII letters.
 */
void cg_text_render_as(struct cg_buf *b, const char *text, size_t len, size_t max, enum cg_text_for what);
/* As CG_TEXT_JUDGED: cg_render() of the public header. */
void cg_text_render(struct cg_buf *b, const char *text, size_t len, size_t max);

static inline int cg_text_try_render_as(struct cg_buf *b, const char *text, size_t len, size_t max,
                                        enum cg_text_for what, struct cg_err *err)
{
        cg_text_render_as(b, text, len, max, what);
        return cg_buf_end(b, err);
}

static inline int cg_text_try_render(struct cg_buf *b, const char *text, size_t len, size_t max,
                                     struct cg_err *err)
{
        cg_text_render(b, text, len, max);
        return cg_buf_end(b, err);
}

/* The same rules character by character, for text in another encoding than UTF-8. */
struct cg_text_scan {
        /* Reads the character at @p. Returns its bytes; 0: end of the text, or no character. */
        size_t (*next)(const char *p, const char *end, uint32_t *c);
        bool judged;
        /* state of cg_text_shown(), initially zero */
        const char *word_end;
        unsigned script, marks;
        bool all_alike, after_letter;
};

/*
 * Returns true if the character @c at @p may be shown as it is. Must be called for each character
 * of a text, in order. @end: end of the text.
 */
bool cg_text_shown(struct cg_text_scan *s, const char *p, const char *end, uint32_t c);

/* Appends @text with all but letters, digits, "-._~" and the characters of @plain as %XX. */
void cg_percent_encode(struct cg_buf *b, const char *text, const char *plain);

/* Writes @n bytes as 2 * @n lower-case hexadecimal digits and a NUL. */
void cg_hex(char *out, const void *bytes, size_t n);

/* Value of a hexadecimal digit in upper or lower case; -1: not a digit. */
static inline int cg_hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        c |= 0x20;
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Writes @n random bytes, at most 256, as cg_hex() does. */
int cg_random_hex(char *out, size_t n, struct cg_err *err);
