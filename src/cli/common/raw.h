/*
 * Looking into JSON text without converting it. Tool arguments and what kernels send may hold
 * numbers of any size, lone surrogates and \u0000, for which jansson refuses a whole text; here
 * values stay slices of the text.
 *
 * Everything here needs text that passed cg_json_check_object(): cg_raw_object() makes sure of it.
 */
#ifndef CG_CLI_COMMON_RAW_H
#define CG_CLI_COMMON_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

/* Deeper than any real content, shallow enough for the recursion that prints it. */
#define CG_RAW_DEPTH 200

struct cg_raw {
        const char *p;
        size_t len;
};

struct cg_raw_iter {
        const char *p, *end;
        bool object;
};

/* The object that @text is; CG_E_PARSE when it is none, or nested deeper than CG_RAW_DEPTH. */
int cg_raw_object(const char *text, size_t len, struct cg_raw *ret, struct cg_err *err);

static inline char cg_raw_kind(struct cg_raw v) /* one of { [ " t f n - 0...9 */
{
        return v.len ? v.p[0] : '\0';
}

/* Members of an object or items of an array, in order; of anything else there are none. */
struct cg_raw_iter cg_raw_items(struct cg_raw container);
/* *key is the member's name with its quotes (untouched for an array). */
bool cg_raw_next(struct cg_raw_iter *it, struct cg_raw *key, struct cg_raw *value);

/* The member called @key; the last one where there are several, as JSON readers take it. */
bool cg_raw_member(struct cg_raw object, const char *key, struct cg_raw *ret);

/*
 * Appends what a string literal says, as UTF-8; half surrogate pairs become U+FFFD. CG_E_PARSE when
 * it is no string.
 */
int cg_raw_string(struct cg_raw v, struct cg_buf *b, struct cg_err *err);

/*
 * Reads one character of a string literal's inside: *cp is its code point (a half surrogate as
 * such), the return value how many bytes it is written in; 0 at the closing quote.
 */
size_t cg_raw_char(const char *p, const char *end, uint32_t *cp);

/*
 * Appends the same value as one line of ASCII: line ends between tokens become blanks, characters
 * over 0x7e escapes. Readers that split at U+2028 or a carriage return see one line as well.
 */
int cg_raw_ascii(struct cg_raw v, struct cg_buf *b, struct cg_err *err);

/* Appends the value in lines with indentation for a person: see pretty.c. */
int cg_raw_pretty(struct cg_raw v, size_t string_max, struct cg_buf *b, bool *cut, struct cg_err *err);

#endif
