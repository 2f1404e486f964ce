/* Suggestions for misspelt names. */
#pragma once

#include "base/buf.h"

/* Appends up to three @names close to @wanted as `"a", "b"`, the closest first, if any. */
void cg_close_names(const char *wanted, char *const *names, size_t n, struct cg_buf *b);
