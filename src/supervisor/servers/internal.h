/*
 * The check of MCP servers' definitions, by file:
 *   rules.c    what the others share: rules of kernels, lists
 *   exposed.c  which paths cells can write, and which words lead there
 *   tree.c     folders of files: symlinks to elsewhere, files with several names
 *   links.c    the files that belong to a program, and what links lead to
 *   program.c  which program a command runs, and which arguments are code
 *   files.c    one definition: program, arguments, variables and working folder
 *   sandbox.c  a definition with a sandbox of its own
 *   guards.c   registration: runs the check, makes its outcome hold in all kernels
 *
 * The check runs in the loop: no cell is started, no kernel ends and no session opens meanwhile as
 * far as the supervisor knows. So it is bounded in time; what takes longer is refused.
 */
#ifndef CG_SUPERVISOR_SERVERS_INTERNAL_H
#define CG_SUPERVISOR_SERVERS_INTERNAL_H

#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>
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
        struct cg_budget budget;
};

/* One definition while it is checked. */
struct check {
        const struct server_scope *scope;
        const char *name;
        json_t *def;               /* as it goes to the tool server */
        struct server_view *views; /* all of the scope's, or one of them */
        size_t n_views;
        json_t *guards; /* for cg_rules_add_guards() */
        /* [PATH, WHAT, ...]: symlinks whose targets are still to be checked */
        json_t *pending;
        json_t *searched;    /* folders; those with "above:", "visible:", "lenient:" in part */
        unsigned int folder; /* number of its private folder */
        char cwd[PATH_MAX];
        bool own_cwd; /* a private folder: relative names lead nowhere */
        /* relative names are checked once the folder has been found good */
        bool defer;
        /* something of it runs in node, which searches packages in all folders above a script */
        bool node;
        bool linked;            /* files that it loads have names elsewhere as well */
        const char *path;       /* PATH, borrowed */
        bool path_is_own;       /* of the definition */
        size_t entries;         /* of the folder that is searched */
        struct cg_buf left_out; /* entries of the inherited PATH */
        struct cg_err *err;
};

/* ---- exposed.c */

/* True if cells of a view can write @real, which has no symlinks in it. */
bool cg_sup_file_is_open(const struct check *c, const char *real);
/* The same without regard to denials. */
bool cg_sup_file_is_in_write_root(const struct check *c, const char *path);
/*
 * True if cells can change the file that @path (absolute) refers to. A path that cannot be resolved
 * is judged by its spelling.
 */
bool cg_sup_file_is_exposed(const struct check *c, const char *path);
/*
 * True if a write root is in @folder: a program that starts there finds names that cells chose.
 */
bool cg_sup_file_holds_write_root(const struct check *c, const char *folder);
/* @spelled as the server would open it: ".." is left to the file system. CG_E_LIMIT: too long. */
int cg_sup_file_absolute(const struct check *c, const char *spelled, char ret[PATH_MAX]);
/*
 * True if @text, with variables expanded as by a shell, has a path that is exposed. *found is that
 * path.
 */
bool cg_sup_text_is_exposed(const struct check *c, const char *text, char found[PATH_MAX]);
/* @text with variables expanded as by a shell. False: it is longer than @ret may be. */
bool cg_sup_text_expand(const struct check *c, const char *text, struct cg_buf *ret);

/* Fails: cells decide what @path is. @what names it in the definition, @why is the reason. */
int cg_sup_server_refuse(struct check *c, const char *what, const char *path, const char *why);

/* Fails: @path could not be searched, because of @why. */
int cg_sup_server_fail(struct check *c, const char *path, const char *why);

/* ---- tree.c */

/* Enough for any real program, and about a second of work. */
#define SERVER_ENTRIES_MAX 300000
/* The same for a folder that a program may or may not load files from. */
#define SERVER_LENIENT_MAX 100000
#define SERVER_DEPTH_MAX   100

enum {
        TREE_VISIBLE = 1, /* folders whose names begin with a dot are left out */
        TREE_SHALLOW = 2, /* so are all folders in it */
        /*
         * A folder that is not the program's own: what cannot be read or is too much does not
         * refuse the server. c->linked is set then.
         */
        TREE_LENIENT = 4,
};

/*
 * Both search folders for symlinks, which go to c->pending with @what for
 * cg_sup_server_search_pending(). CG_E_LIMIT, CG_E_TIMEDOUT, CG_E_CLOSED, CG_E_SYS: not all could
 * be searched. What was searched is not searched again.
 */

/* @folder is in write roots of all views. */
int cg_sup_tree_search_inside(struct check *c, const char *what, const char *folder);
/*
 * The file or folder @path is outside of write roots; those in it are left out. Sets c->linked if a
 * file has names that are not in that folder. A single file with several names becomes a guard.
 */
int cg_sup_tree_search_outside(struct check *c, const char *what, const char *path, unsigned int flags);

/* ---- links.c */

/* @path becomes read-only in all views; "/" at its end: a folder that may not exist yet. */
int cg_sup_server_add_guard(struct check *c, const char *path);
/*
 * Protects what belongs to the program or script @path (absolute), and all links on the way to it.
 */
int cg_sup_server_guard_path(struct check *c, const char *what, const char *path);
/* Checks the links that were found so far, with what they lead to. */
int cg_sup_server_search_pending(struct check *c);
/*
 * Searches the folders outside of write roots that @text names (one path, a list as in PYTHONPATH,
 * or a command line), and protects code that it names: links there may lead to where cells write.
 */
int cg_sup_server_search_named(struct check *c, const char *what, const char *text);

/* ---- program.c */

/* One entry of @list, which is like PATH; false at its end. */
bool cg_sup_path_next(const char **list, char entry[PATH_MAX]);
/* True if @text names an installer that links files from a cache into environments. */
bool cg_sup_server_names_linker(const char *text);
/* How a program treats its arguments. */
struct launcher;
/* True if any argument of programs of this kind may be code. */
bool cg_sup_server_runs_code(const struct launcher *l);
/*
 * Finds the program that @command is, puts it into @found ("": none), and protects it with its
 * interpreter. *ret: what its arguments mean. @depth: of interpreters, 0.
 */
int cg_sup_server_check_program(struct check *c, const char *command, const struct launcher **ret,
                                char found[PATH_MAX], int depth);
/* The definition's arguments, for a program with @l. */
int cg_sup_server_check_args(struct check *c, const struct launcher *l);

/* ---- files.c */

/*
 * Checks @definition. Fills @c, which the caller ends with cg_sup_server_check_fini() whatever the
 * outcome: c->def and c->guards are the result. CG_E_INVAL: the definition leads to where cells
 * write. CG_E_LIMIT, CG_E_TIMEDOUT: that could not be found out.
 */
int cg_sup_server_check(struct check *c, const struct server_scope *scope, const char *name,
                        const json_t *definition, unsigned int folder, struct cg_err *err);
void cg_sup_server_check_fini(struct check *c);

/* ---- sandbox.c */

/*
 * True if the server's own sandbox allows more than cells of the first view may do. @why: the
 * difference.
 */
bool cg_sup_server_sandbox_is_wider(const struct check *c, char *why, size_t size);

/* ---- rules.c */

bool cg_sup_path_is_present(const char *path);
/* True if @list, words with a space between them, has @word. */
bool cg_sup_list_has_word(const char *list, const char *word);
/* True if a file may be code by its mode or extension; @settings: or may name code. */
bool cg_sup_path_is_code(const char *path, bool settings);
bool cg_sup_path_is_file(const char *path);
/* Removes the last component. */
void cg_sup_path_cut_last(char *path);

bool cg_sup_list_has(const json_t *list, const json_t *item);
/*
 * The rules of the session's kernels, but for those about PATH. The caller frees them:
 * cg_rules_fini().
 */
int cg_sup_server_rules(const struct session *ss, const json_t *guards, struct cg_rules *ret,
                        struct cg_err *err);

#endif
