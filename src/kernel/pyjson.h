/* JSON text of Python objects. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#pragma once

#include "base/buf.h"

/*
 * Appends @value as JSON text that every reader accepts: ASCII, NaN and infinities as null, lone
 * surrogates and NULs as U+FFFD. Bytes become base64 text, scalars of numpy their item(), other
 * objects their repr(). Needs the GIL; runs Python where @value has other than the standard types.
 * 0, or -1 with an exception: ValueError over the buffer's limit.
 */
int cg_pyjson(struct cg_buf *b, PyObject *value);
/*
 * Appends @value as JSON in UTF-8. False where this is not exact, or too long for the buffer: there
 * is something of a type other than just None, bool, int, float, str, list and dict with keys of
 * str, a float that is not finite, half of a surrogate pair, or more levels. Runs no Python.
 */
bool cg_pyjson_exact(struct cg_buf *b, PyObject *value, unsigned levels);
