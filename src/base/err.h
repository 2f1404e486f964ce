/* The error object's producers. The object itself, struct cg_err, is public: see cellgate.h. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include "cellgate.h"

/* Fills *err (which may be NULL) and returns @code, which must be negative. */
int cg_fail(struct cg_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same with CG_E_SYS; ": strerror(errno)" is appended and errno kept in err->sys_errno. */
int cg_fail_errno(struct cg_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0 if @made, such as a copy, is there; else CG_E_NOMEM about @what. */
static inline int cg_made(bool made, const char *what, struct cg_err *err)
{
        return made ? 0 : cg_fail(err, CG_E_NOMEM, "%s", what);
}

/* Like asprintf(3), but fails with CG_E_NOMEM about @what, and *ret (returns) is NULL then. */
int cg_asprintf(char **ret, const char *what, struct cg_err *err, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* Puts "text: ", what was being done, before the message in *err; returns err->code. */
int cg_err_prefix(struct cg_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
