/* See strv.h. */
#include "base/strv.h"

#include <stdarg.h>

void cg_strv_fini(struct cg_strv *l)
{
        cg_free_list(l->v);
        *l = (struct cg_strv){ 0 };
}

/* Room for one more string and the end. */
static bool has_room(struct cg_strv *l)
{
        return CG_GROW(l->v, l->n + 1, l->cap);
}

void cg_strv_addf(struct cg_strv *l, const char *fmt, ...)
{
        va_list ap;

        l->failed = l->failed || !has_room(l);
        if (l->failed)
                return;
        va_start(ap, fmt);
        l->failed = vasprintf(&l->v[l->n], fmt, ap) < 0;
        va_end(ap);
        l->n += !l->failed;
        l->v[l->n] = NULL;
}

char **cg_strv_take(struct cg_strv *l)
{
        char **v;

        l->failed = l->failed || !has_room(l);
        if (l->failed) {
                cg_strv_fini(l);
                return NULL;
        }
        l->v[l->n] = NULL;
        v = CG_STEAL(l->v);
        cg_strv_fini(l);
        return v;
}
