/*
 * Command line options: tables, from which the help is made too, and errors that name the option
 * and suggest the nearest one.
 */
#pragma once

#include "base/util.h"

/* Without letter and name: an argument, which only the help lists by its value. */
struct cg_opt {
        int id;            /* at least 2 */
        char letter;       /* 'c' for -c; 0 for none */
        const char *name;  /* "workspace" for --workspace; NULL for none */
        const char *value; /* name of its value in messages; NULL when it takes none */
        unsigned commands; /* bits of the commands that have it; 0: all that use the table */
        const char *help;  /* long lines are wrapped */
};

struct cg_optscan {
        const struct cg_opt *table;
        size_t n;
        unsigned command; /* one bit; 0 where the table has none */
        int argc;
        char **argv;
        int i;                      /* next word; start at 1 */
        bool dashes;                /* "--" was seen: all further words are arguments */
        const struct cg_opt *found; /* the option of the last cg_opt_next(); NULL for an argument */
};

enum { CG_OPT_END = 0, CG_OPT_ARG = 1 };

/* Goes through a command line from the word @first on. */
#define CG_OPT_SCAN(table_, command_, argc_, argv_, first) \
        ((struct cg_optscan){ .table = (table_), \
                              .n = CG_ARRAY_LEN(table_), \
                              .command = (command_), \
                              .argc = (argc_), \
                              .argv = (argv_), \
                              .i = (first) })

/*
 * Next option or argument. Return: an option's id with its value in *value (borrowed from argv;
 * NULL where it takes none); CG_OPT_ARG with the word; CG_OPT_END; negative: CG_E_INVAL.
 * Understood: --name VALUE, --name=VALUE, -x VALUE, -xVALUE. There are no abbreviations: a script
 * must not change its meaning when an option is added.
 */
int cg_opt_next(struct cg_optscan *o, const char **value, struct cg_err *err);

/* @command: a bit, or more: the option is one of any of them. */
bool cg_opt_is_of(const struct cg_opt *opt, unsigned command);

enum cg_opt_kind {
        CG_OPT_WORD = 0, /* a const char *, or a bool where the option takes no value */
        CG_OPT_SECONDS,  /* an int64_t of milliseconds */
        CG_OPT_INT,      /* an int from @min to @max, or an unsigned where @min is not negative */
};

/* An option that is only stored, at @offset. @name: for errors, of the kinds that have some. */
struct cg_opt_place {
        int id;
        size_t offset;
        enum cg_opt_kind kind;
        const char *name;
        int min, max;
};

#define CG_OPT_PLACE(id_, type, member) \
        { \
                .id = (id_), .offset = offsetof(type, member) \
        }
#define CG_OPT_PLACE_SECONDS(id_, name_, type, member) \
        { \
                .id = (id_), .offset = offsetof(type, member), .kind = CG_OPT_SECONDS, .name = (name_) \
        }
#define CG_OPT_PLACE_INT(id_, name_, type, member, min_, max_) \
        { \
                .id = (id_), .offset = offsetof(type, member), .kind = CG_OPT_INT, .name = (name_), \
                .min = (min_), .max = (max_) \
        }

/* Stores the option in @options (borrows @value). Return: 0; 1: it has no place; CG_E_INVAL. */
int cg_opt_store(const struct cg_opt_place *places, size_t n, int id, const char *value, void *options,
                 struct cg_err *err);

/* cg_opt_next() for the options that have no place in @places; those that have one are stored. */
int cg_opt_read(struct cg_optscan *o, const struct cg_opt_place *places, size_t n, void *options,
                const char **value, struct cg_err *err);

/*
 * Finds the command of a group, argv[1]. Returns its bit: 1 << its place in @names, if it is one of
 * @commands; 0: --help or -h. CG_E_INVAL: it is none; *err names it and lists those that there are.
 */
int cg_opt_command(const char *const *names, size_t n, unsigned commands, int argc, char **argv,
                   struct cg_err *err);

/*
 * Prints the help of @command on standard output: @text, a file of src/cli/help, with a line or
 * more for each of its options in the place of the line "{options}". Returns the exit status.
 */
int cg_opt_help(const struct cg_opt *table, size_t n, unsigned command, const char *text);

/*
 * Seconds such as "1.5" as milliseconds; "0" is 0. CG_E_INVAL for anything else, also negative
 * numbers and over 10 years.
 */
int cg_opt_seconds(const char *what, const char *text, int64_t *ret_ms, struct cg_err *err);

/*
 * The value of --since as Unix time, at least 1 ms: 90, 90s, 30m, 12h, 7d before now; a date in the
 * local time zone, also with hours and minutes; or @SECONDS.
 */
int cg_opt_since(const char *text, int64_t *ret_ms, struct cg_err *err);

/* A whole number from @min to @max. */
int cg_opt_int(const char *what, const char *text, int min, int max, int *ret, struct cg_err *err);
