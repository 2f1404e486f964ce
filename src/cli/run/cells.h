/* The cells of a run: from -c, from files in percent format, from notebooks. */
#pragma once

#include "base/util.h"

struct cg_cell {
        char *code; /* UTF-8, may contain NULs, which Python reports */
        size_t len;
        int64_t timeout_ms; /* 0: no limit; -1: that of the command line */
        bool variables;     /* the result is to say which were changed */
        bool artifacts;     /* and which files */
        /* of its first line that is not blank, in the .py file; 0: it is not from a file */
        size_t line;
};

struct cg_cells {
        struct cg_cell *v;
        size_t n;
};

#define CG_CELLS_EMPTY ((struct cg_cells){ NULL, 0 })

void cg_cells_fini(struct cg_cells *c);
#define cg_auto_cells CG_CLEANUP(cg_cells_fini)

/* One cell (copies). @what names it in errors: it must be UTF-8 and within CG_MAX_CODE. */
int cg_cells_add(struct cg_cells *c, const char *code, size_t len, const char *what, struct cg_err *err);

/*
 * Python text, split at lines that start with "# %%" or "#%%" (then a blank or the end of the
 * line), as Jupytext and VS Code write them. A cell whose marker says [markdown], [md] or [raw] is
 * left out, and so are cells of blanks only.
 */
int cg_cells_add_py(struct cg_cells *c, const char *text, size_t len, const char *what, struct cg_err *err);

/* A notebook of nbformat 4: its code cells, but for those that are blank. */
int cg_cells_add_ipynb(struct cg_cells *c, const char *text, size_t len, const char *what,
                       struct cg_err *err);

/*
 * The same from a file: .py, .sh, .bash, .ipynb, one with a line "#!", or "-" for text on standard
 * input. *language: that of the session, or NULL, which is set to that of the file.
 */
int cg_cells_add_file(struct cg_cells *c, const char *path, const char **language, struct cg_err *err);
