/*
 * cellgate-search: which files an MCP server loads that its definition does not show: what links
 * lead to, interpreters of scripts, and folders of modules that Python's own files name. A process
 * of its own, since large folders and slow file systems may take their time.
 *
 * What it finds does not depend on which folders cells can write now: the supervisor compares it
 * with the folders of each session, also of those that open later (supervisor/servers). By file:
 *   main.c   the request and the answer
 *   roots.c  programs, scripts, folders of modules
 *   tree.c   folders: symlinks to elsewhere, files with several names
 */
#pragma once

#include <jansson.h>
#include "base/util.h"

/* The search for one server. */
struct search {
        const json_t *write_roots; /* of all cells, real paths; nothing in them is searched */
        const json_t *data;        /* real paths that are no code; borrowed */
        const json_t *prefixes;    /* further ones of Python's modules; borrowed */
        const char *path;          /* PATH, borrowed */
        json_t *reached;           /* {PATH: where it was found}; paths without symlinks */
        json_t *linked;            /* [FOLDER]: files in it have names elsewhere */
        json_t *files;             /* [FILE]: a file with several names */
        bool linker;               /* an installer that links files from a cache */
        struct searched *done;
        size_t n_done, cap_done;
        char **pending; /* folders outside that links lead to */
        size_t n_pending, cap_pending;
        size_t entries; /* of the folder that is searched */
        struct cg_budget budget;
        struct cg_err *err;
};

/* ---- tree.c */

enum {
        TREE_VISIBLE = 1, /* folders whose names begin with a dot are left out */
        TREE_SHALLOW = 2, /* so are all folders in it */
        /*
         * A folder that is not the program's own: what cannot be read or is too much is no error,
         * and files are taken to have names elsewhere.
         */
        TREE_LENIENT = 4,
};

/* The path (without symlinks) is one that the server loads from; @via: where it was found. */
int cg_search_report(struct search *s, const char *path, const char *via);
/* The same for all links on the way to absolute @path, and for what they lead to. */
int cg_search_report_place(struct search *s, const char *path, const char *via);
bool cg_search_in_write_root(const struct search *s, const char *path);
/* @path is real. */
bool cg_search_is_data(const struct search *s, const char *path);
/*
 * Searches the file or folder @path (real) for symlinks and files with several names; an absent one
 * is empty. CG_E_LIMIT, CG_E_TIMEDOUT, CG_E_CLOSED, CG_E_SYS: not all could be searched.
 */
int cg_search_tree(struct search *s, const char *path, unsigned int flags);
/* The folders that links have led to so far. */
int cg_search_pending(struct search *s);
/* Frees the lists of folders. */
void cg_search_done_free(struct search *s);

/* ---- roots.c */

/* True if @text names an installer that links files from a cache into environments. */
bool cg_search_names_linker(const char *text);
/* A program or script, with what belongs to it. @depth: of interpreters, 0. */
int cg_search_program(struct search *s, const char *path, int depth);
/* A path that the definition names. */
int cg_search_named(struct search *s, const char *path);
/* A path that the definition says is code. */
int cg_search_code(struct search *s, const char *path);
int cg_search_cwd(struct search *s, const char *path);
