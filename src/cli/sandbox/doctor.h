/* `cellgate doctor`: tries each feature of this machine that sandboxes need. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cg_doctor_check {
        const char *name;
        const char *what; /* for: what it is needed for */
        bool required;    /* without it there is no sandbox */
        /* needs a user namespace: without those it is not tried */
        bool in_users;
        /* 0; or an errno. Runs in a child; @note: a detail, may stay empty */
        int (*run)(char *note, size_t size);
        const char *advice; /* NULL: that of advise() */
        int error;          /* in place of it, after this one: */
        const char *other;
        const char *(*advise)(void);
};

extern const struct cg_doctor_check cg_doctor_checks[];
extern const size_t cg_doctor_n_checks;
