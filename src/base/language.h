/* The languages of sessions other than Python, and the programs that run their cells. */
#pragma once

#include <limits.h>
#include "base/err.h"

/* For messages and lists of choices. */
#define CG_LANGUAGES "python, shell, node, jupyter:NAME"

/* 0: the session's cells are Python (NULL, "python"); 1: another language; CG_E_INVAL. */
int cg_language_check(const char *name, struct cg_err *err);
/*
 * The program @name without symlinks (caller frees), or NULL; @found is its path before. @name is
 * absolute, or looked up in the absolute folders of @search.
 */
char *cg_program_find(const char *name, const char *search, char found[PATH_MAX]);
/* The NAME of "jupyter:NAME", another kernel of Jupyter (borrowed), or NULL. */
const char *cg_language_kernel(const char *name);
/*
 * The program of the language @name, which is another one than Python: @given, or where that is
 * NULL /bin/bash or the first `node` in absolute folders of PATH; of another kernel of Jupyter it
 * has to be given. *ret: without symlinks (caller frees). CG_E_NOTFOUND.
 */
int cg_language_find(const char *name, const char *given, char **ret, struct cg_err *err);
