/* Lists of strings that are made one by one, such as arguments, variables and headers. */
#pragma once

#include "base/util.h"

/* Zeroed: empty. A failed addition is kept: cg_strv_take() returns NULL. */
struct cg_strv {
        char **v; /* NULL ends it */
        size_t n, cap;
        bool failed;
};

void cg_strv_fini(struct cg_strv *l);
void cg_strv_addf(struct cg_strv *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The list (returns; cg_free_list()), which is left empty. NULL: out of memory. */
char **cg_strv_take(struct cg_strv *l);

#define cg_auto_strv CG_CLEANUP(cg_strv_fini)
