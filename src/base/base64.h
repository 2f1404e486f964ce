/* Base64 with the standard alphabet and padding. */
#pragma once

#include "base/buf.h"

/* Characters for @len bytes; 0 when the number overflows. */
size_t cg_base64_size(size_t len);
/* Writes that many characters to @out, without line breaks and without a NUL. */
void cg_base64(char *out, const void *data, size_t len);
/* Appends them. */
void cg_base64_add(struct cg_buf *b, const void *data, size_t len);

/*
 * Appends the bytes that @text encodes; blanks and line ends are skipped, the padding may be
 * missing. CG_E_PARSE when it is not base64.
 */
int cg_base64_decode(const char *text, size_t len, struct cg_buf *b, struct cg_err *err);
