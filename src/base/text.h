/* Text from outside: UTF-8, and making it safe to show. */
#ifndef CG_BASE_TEXT_H
#define CG_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

/* Length of the UTF-8 sequence at @p and its code point; 0 when the bytes are no such sequence. @left >= 1. */
size_t cg_utf8_next(const unsigned char *p, size_t left, uint32_t *cp);

/* cg_render() of the public header, into a buffer. */
int cg_text_render(struct cg_buf *b, const char *text, size_t len, size_t max, struct cg_err *err);

#endif
