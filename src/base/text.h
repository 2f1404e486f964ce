/* Text from outside: UTF-8, and making it safe to show. */
#ifndef CG_BASE_TEXT_H
#define CG_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

/* Length of the UTF-8 sequence at @p and its code point; 0 when the bytes are no such sequence. @left >= 1. */
size_t cg_utf8_next(const unsigned char *p, size_t left, uint32_t *cp);

/* How many bytes at the start of @p are ASCII; and how many of these stand in a JSON string as they are. Eight at a time:
 * a kernel's output and pictures pass here by the megabyte. */
size_t cg_ascii_run(const char *p, size_t len);
size_t cg_json_run(const char *p, size_t len);

/* cg_render() of the public header, into a buffer. */
int cg_text_render(struct cg_buf *b, const char *text, size_t len, size_t max, struct cg_err *err);

#endif
