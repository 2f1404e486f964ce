/* The error object: fixed size, the caller's, needs no freeing. Linked into every process. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A cut message ends in "..." so that nobody takes it for the whole. */
static void mark_cut(struct cg_err *err, int n)
{
        if (n >= (int)sizeof(err->msg))
                memcpy(err->msg + sizeof(err->msg) - 4, "...", 4);
}

int cg_fail(struct cg_err *err, int code, const char *fmt, ...)
{
        va_list ap;

        if (!err)
                return code;
        err->code = code;
        err->sys_errno = 0;
        va_start(ap, fmt);
        mark_cut(err, vsnprintf(err->msg, sizeof(err->msg), fmt, ap));
        va_end(ap);
        return code;
}

int cg_fail_errno(struct cg_err *err, const char *fmt, ...)
{
        int saved = errno;
        char text[sizeof(err->msg)];
        va_list ap;

        if (!err)
                return CG_E_SYS;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        err->code = CG_E_SYS;
        err->sys_errno = saved;
        mark_cut(err, snprintf(err->msg, sizeof(err->msg), "%s: %s", text, strerror(saved)));
        return CG_E_SYS;
}

int cg_asprintf(char **ret, const char *what, struct cg_err *err, const char *fmt, ...)
{
        va_list ap;
        int n;

        va_start(ap, fmt);
        n = vasprintf(ret, fmt, ap);
        va_end(ap);
        if (n >= 0)
                return 0;
        *ret = NULL;
        return cg_fail(err, CG_E_NOMEM, "%s", what);
}

int cg_err_prefix(struct cg_err *err, const char *fmt, ...)
{
        char old[sizeof(err->msg)], text[sizeof(err->msg)];
        va_list ap;

        if (!err)
                return CG_E_SYS;
        memcpy(old, err->msg, sizeof(old));
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        mark_cut(err, snprintf(err->msg, sizeof(err->msg), "%s: %s", text, old));
        return err->code;
}
