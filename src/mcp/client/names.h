/* Suggestions for misspelt names. */
#pragma once

#include "base/buf.h"

/*
 * Appends up to three of @names that are close to @wanted as `"a", "b"`, the closest first; nothing
 * where none is.
 */
void cg_close_names(const char *wanted, char *const *names, size_t n, struct cg_buf *b);
