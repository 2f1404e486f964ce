/* The check of a tool call's arguments as a kernel sends them. */
#pragma once

#include <stddef.h>
#include "base/err.h"

/*
 * Checks that @text is one JSON object that means the same to everybody who reads it: whoever
 * judges the call and the server that runs it must see the same. So beside the grammar (at most
 * CG_MAX_ARGS_DEPTH levels): no name twice in one object, however it is escaped. And no line
 * break: the bytes go unchanged into one line. CG_E_PARSE says what is wrong.
 */
int cg_check_call_args(const char *text, size_t len, struct cg_err *err);
