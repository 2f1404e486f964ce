/*
 * Command line options: one table for each command, and errors that name the option and suggest the
 * nearest one.
 */
#ifndef CG_CLI_COMMON_OPTS_H
#define CG_CLI_COMMON_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct cg_opt {
        int id;            /* at least 2 */
        char letter;       /* 'c' for -c; 0 for none */
        const char *name;  /* "workspace" for --workspace; NULL for none */
        const char *value; /* name of its value in messages; NULL when it takes none */
};

struct cg_optscan {
        const struct cg_opt *table;
        size_t n;
        int argc;
        char **argv;
        int i;       /* next word; start at 1 */
        bool dashes; /* "--" was seen: all further words are arguments */
};

enum { CG_OPT_END = 0, CG_OPT_ARG = 1 };

/*
 * Next option or argument. Return: an option's id with its value in *value (borrowed from argv;
 * NULL where it takes none); CG_OPT_ARG with the word; CG_OPT_END; negative: CG_E_INVAL.
 * Understood: --name VALUE, --name=VALUE, -x VALUE, -xVALUE. There are no abbreviations: a script
 * must not change its meaning when an option is added.
 */
int cg_opt_next(struct cg_optscan *o, const char **value, struct cg_err *err);

/*
 * Seconds such as "1.5" as milliseconds; "0" is 0. CG_E_INVAL for anything else, also negative
 * numbers and over 10 years.
 */
int cg_opt_seconds(const char *what, const char *text, int64_t *ret_ms, struct cg_err *err);

/* A whole number from @min to @max. */
int cg_opt_int(const char *what, const char *text, int min, int max, int *ret, struct cg_err *err);

#endif
