/*
 * The check of MCP servers' definitions. Servers run outside of the sandbox, so nothing that one
 * loads may be what a cell can write. By file:
 *   exposed.c     which paths cells can write; the refusal of what a definition does not name
 *   texts.c       paths in arguments and variables
 *   definition.c  one definition: "code" and "data", program, arguments, variables, working folder
 *   found.c       what no definition can show, as cellgate-search reports it (src/search)
 *   search.c      runs that program
 *   guards.c      registration: runs these checks, makes their outcome hold in all kernels
 *
 * Everything but the search is decided from the definition alone. What a cell may write later is
 * refused by name, whether it exists yet or not; so a restart finds the same files.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "base/path.h"
#include "sandbox/settings/rules.h"
#include "sandbox/settings/settings.h"

struct session;

/* The rules that say where the cells of one or more sessions write. */
struct server_view {
        const json_t *options; /* of one of the sessions, borrowed */
        const char *workspace; /* of options */
        struct cg_rules rules; /* of their kernels; a check adds its guards, and removes them */
        size_t n_rules;        /* without such guards */
        bool linked;           /* rules.linked without them */
};

/* The context that the definitions of one registration share. */
struct server_scope {
        const json_t *options;     /* the session's, borrowed */
        const char *workspace;     /* of options */
        const char *home;          /* the user's home folder; NULL: unknown */
        const char *dir;           /* the session's private folder */
        struct server_view *views; /* of all cells that the definitions are checked against */
        size_t n_views;
        size_t n_own; /* the first of them: of the session whose definitions these are */
        struct cg_budget budget;
};

/* Paths that cells can write and of which the definition does not say what they are. */
struct unsaid {
        json_t *data;         /* those that "data" may name; NULL: none yet */
        char first[1024];     /* what leads to the first, and why it is refused; "": none */
        bool file;            /* the first is a file: more likely code */
        char code[PATH_MAX];  /* the folder that "code" may name for the first; "": none */
        char whose[PATH_MAX]; /* whose cells write the first, where it is another session */
};

/* One definition while it is checked. */
struct check {
        const struct server_scope *scope;
        const char *name;
        json_t *def;         /* as it goes to the tool server */
        json_t *guards;      /* for cg_rules_add_guards() */
        json_t *data;        /* real paths that "data" names */
        json_t *ask;         /* the request to cellgate-search about this server; NULL: none */
        json_t *named;       /* of ask, {PATH: true}; borrowed */
        unsigned int folder; /* number of its private folder; 0: the server has one already */
        char cwd[PATH_MAX];
        bool own_cwd;           /* a private folder: relative names lead nowhere */
        const char *path;       /* PATH, borrowed */
        bool path_is_own;       /* of the definition */
        const json_t *inherit;  /* variables beside those of the definition, borrowed */
        struct cg_buf left_out; /* entries of the inherited PATH */
        struct unsaid unsaid;
        struct cg_err *err;
};

/* ---- exposed.c */

/* True if cells of a view can write @real, which has no symlinks in it. */
bool cg_sup_file_is_open(const struct check *c, const char *real);
/*
 * True if cells can change the file that @path (absolute) refers to. A path that cannot be resolved
 * is judged by its spelling.
 */
bool cg_sup_file_is_exposed(const struct check *c, const char *path);
/* True if all that makes @path exposed is in what "data" names. */
bool cg_sup_file_is_data(const struct check *c, const char *path);
/*
 * The same for @real, which something that the server loads leads to: a folder that cells work
 * in is data only as a whole, since what is in it may be code.
 */
bool cg_sup_file_is_narrow_data(const struct check *c, const char *real);
/* True if a write root is in @folder: a program that starts there finds names that cells chose. */
bool cg_sup_file_holds_write_root(const struct check *c, const char *folder);
/* @spelled as the server would open it: ".." is left to the file system. CG_E_LIMIT: too long. */
int cg_sup_file_absolute(const struct check *c, const char *spelled, char ret[PATH_MAX]);
bool cg_sup_path_is_present(const char *path);
/*
 * node looks for packages in the node_modules of every folder above @path (real): one that cells
 * could make, or write, becomes read-only.
 */
int cg_sup_server_guard_above(struct check *c, const char *path);
/* @path becomes read-only in all views; "/" at its end: a folder that may not exist yet. */
int cg_sup_server_add_guard(struct check *c, const char *path);
/*
 * Cells decide what @path is, unless "code" (or with @data "data") names it. @what names it in the
 * definition, @why is the reason. cg_sup_server_check_unsaid() fails then, with the line to add.
 * Where only cells of other sessions write, of which its author need not know, it becomes read-only
 * for them, if the folder is not one that they work in.
 */
int cg_sup_server_unsaid(struct check *c, const char *what, const char *path, const char *why, bool data);
int cg_sup_server_check_unsaid(struct check *c);

/* ---- texts.c */

/*
 * Checks the paths in @text, with variables expanded as by a shell: those that are exposed are
 * unsaid, other ones are noted for the search. @data: as for cg_sup_server_unsaid().
 */
int cg_sup_text_check(struct check *c, const char *what, const char *text, bool data);

/* ---- definition.c */

/*
 * Checks @definition. Fills @c, which the caller ends with cg_sup_server_check_fini() whatever the
 * outcome: c->def, c->guards and c->ask are the result. CG_E_INVAL: the definition leads to where
 * cells write.
 */
int cg_sup_server_check(struct check *c, const struct server_scope *scope, const char *name,
                        const json_t *definition, unsigned int folder, struct cg_err *err);
void cg_sup_server_check_fini(struct check *c);

/* ---- found.c */

/*
 * Checks what the search has @found of the server. After cg_sup_server_check(): adds to c->guards.
 * CG_E_INVAL: it leads to where cells write.
 */
int cg_sup_server_check_found(struct check *c, const json_t *found);
