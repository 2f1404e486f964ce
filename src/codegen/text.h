/*
 * Writing Python and JSON text: the only functions through which a server's text gets into a
 * generated file.
 *
 * In Python source a server's text is either a string literal (cg_put_str: exactly the same string
 * for Python) or a docstring (cg_put_doc: for a reader; what could drive a terminal or hide text is
 * made visible). Both are pure ASCII. There are no comments, raw strings or f-strings with foreign
 * text.
 */
#pragma once

#include "base/buf.h"
#include "codegen/read.h"

/* The text so far, in @a; "" and a->failed after a failure. */
struct cg_slice cg_arena_text(struct cg_arena *a, const struct cg_buf *b);

/* Trusted or sanitised text, as it is. */
static inline void cg_put_if(struct cg_buf *o, bool when, const char *s)
{
        if (when)
                cg_buf_adds(o, s);
}
/* A slice without NUL bytes for "%.*s". */
#define CG_SHOWN(s) (int)(s).len, (s).p
static inline void cg_puts(struct cg_buf *o, struct cg_slice s)
{
        cg_buf_add(o, s.p, s.len);
}

/* The next code point, surrogates included; shortens @s, which is not empty and from the reader. */
uint32_t cg_next_char(struct cg_slice *s);
size_t cg_count_chars(struct cg_slice s);
/* The first @max characters; *cut: there were more. */
struct cg_slice cg_cut_chars(struct cg_slice s, size_t max, bool *cut);
struct cg_slice cg_trim(struct cg_slice s);

/* Python string literal in double quotes. */
void cg_put_str(struct cg_buf *o, struct cg_slice s);
/*
 * Docstring in triple quotes; further lines are indented by @indent. CR LF becomes LF; cut after
 * @max characters, with a note.
 */
void cg_put_doc(struct cg_buf *o, struct cg_slice s, unsigned indent, size_t max);
/*
 * Raw text for one line of a docstring that is put together first: white space folded, cut after
 * @max characters ("...").
 */
void cg_put_folded(struct cg_buf *o, struct cg_slice s, size_t max);
/* JSON string, ASCII; lone surrogates as escapes. */
void cg_put_json_str(struct cg_buf *o, struct cg_slice s);
/* The same with U+FFFD for lone surrogates, which parsers of other programs refuse. */
void cg_put_json_text(struct cg_buf *o, struct cg_slice s);
/* Compact JSON, ASCII, numbers as they were written; @j->height must be bounded by the caller. */
void cg_put_json(struct cg_buf *o, const struct cg_j *j);
