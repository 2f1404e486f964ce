/*
 * JSON text, read without converting it: the grammar, one level of members or elements, strings.
 *
 * Values stay slices of the text. jansson refuses a whole text for an integer over 63 bits, a lone
 * surrogate escape or \u0000; real arguments, results and tool lists contain all of these.
 */
#pragma once

#include "base/buf.h"
#include "base/slice.h"

/* ---- grammar */

/*
 * Checks that @text is exactly one JSON object: RFC 8259 grammar, at most @depth levels, with white
 * space around it allowed. Numbers of any size, lone surrogate escapes and \u0000 are fine: nothing
 * is converted. CG_E_PARSE says where.
 */
int cg_json_check_object(const char *text, size_t len, unsigned depth, struct cg_err *err);
/*
 * As cg_json_check_object(), and no lone surrogate escapes: programs that decode them cannot print
 * or encode the text. Nor numbers such as 1e999, which programs read as infinity or not at all.
 */
int cg_json_check_encodable(const char *text, size_t len, unsigned depth, struct cg_err *err);

/* The same for the one JSON value at the start of @text; *ret: its end, leading space included. */
int cg_json_skip(const char *text, size_t len, unsigned depth, size_t *ret, struct cg_err *err);

/* Deeper than any real content, shallow enough for recursion over it. */
#define CG_JSON_DEPTH 200
/* Depth limit of the params of a server's request: events and JSON lines wrap them twice. */
#define CG_JSON_PARAMS_DEPTH (CG_JSON_DEPTH - 2)

/* Checks an object of at most CG_JSON_DEPTH levels; *ret: without the white space around it. */
int cg_json_object_slice(const char *text, size_t len, struct cg_slice *ret, struct cg_err *err);

static inline bool cg_json_is_space(char c)
{
        return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* @s without JSON's white space at both ends. */
struct cg_slice cg_json_trim(struct cg_slice s);

/* First character of a value, which says what it is: one of { [ " t f n - 0...9. '\0': no value. */
static inline char cg_json_kind(struct cg_slice value)
{
        return value.len ? value.p[0] : '\0';
}

/* True for {} and for text of length 0. */
bool cg_json_is_empty(struct cg_slice object);

/* ---- one level of members or elements */

struct cg_json_walk {
        const char *p, *end, *start;
        char close; /* '}' for an object */
        bool first;
        /* May be set after cg_json_walk_init(). */
        unsigned depth; /* most levels of a value */
        bool encodable; /* check the values as cg_json_check_encodable() does */
        size_t digits;  /* the most that an integer in the values so far has */
};

/* Nesting of a value, unless it is set. The check recurses: about 200 bytes of stack a level. */
#define CG_JSON_WALK_DEPTH 4096u

#define CG_JSON_END 1 /* no further member or element */

/*
 * Starts to walk over the members of the object, or the elements of the array, that @text is.
 * @open: '{' or '['; '\0' for either. Each value is checked as it is passed, and only white space
 * may follow the end: a walk that returned CG_JSON_END has seen valid JSON. After a failure the
 * walk can be used, and fails at once.
 */
int cg_json_walk_init(struct cg_json_walk *w, struct cg_slice text, char open, struct cg_err *err);
/*
 * 0; CG_JSON_END; CG_E_PARSE. *key (may be NULL): the bytes of the name between its quotes, with
 * its escapes; CG_SLICE_NONE for an element of an array.
 */
int cg_json_walk_next(struct cg_json_walk *w, struct cg_slice *key, struct cg_slice *value,
                      struct cg_err *err);

/*
 * Value of the member @key of the object @text, however the name is escaped; CG_SLICE_NONE when
 * absent. CG_E_PARSE when @text is no valid object or has that member twice.
 */
int cg_json_member(struct cg_slice text, const char *key, struct cg_slice *ret, struct cg_err *err);
/* True when cg_json_member() finds the member; else *ret is left as it is. */
bool cg_json_find(struct cg_slice text, const char *key, struct cg_slice *ret);

/* ---- strings */

/*
 * Reads one character of a string: *cp is its code point (of a lone surrogate escape the
 * surrogate), the return value the number of bytes that it takes in the text. 0 at the closing
 * quote, at @end, and where the bytes are no character of a JSON string.
 */
size_t cg_json_char(const char *p, const char *end, uint32_t *cp);

/*
 * Appends the text of a string as UTF-8; @s are the bytes between its quotes. Lone surrogates
 * become U+FFFD. CG_E_PARSE when @s is not the inside of a string.
 */
int cg_json_decode(struct cg_slice s, struct cg_buf *b, struct cg_err *err);
/* The same for a string with its quotes. CG_E_PARSE also when @value is no string. */
int cg_json_string(struct cg_slice value, struct cg_buf *b, struct cg_err *err);
/*
 * The text of the string @value, NUL-terminated (returns). CG_E_PARSE: no string, or one with a NUL
 * or a lone surrogate.
 */
int cg_json_strdup(struct cg_slice value, char **ret, struct cg_err *err);
