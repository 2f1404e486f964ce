/*
 * Names that programs outside of a sandbox obey, or keep credentials under: one table for kernels
 * and commands. A command that may write a folder must not be able to leave a file there that acts
 * later, outside. Pure text: nothing is looked up in a file system. names.c has the table,
 * names_match.c the comparisons.
 *
 * The principle: what runs by itself on this machine when its user starts a shell, git, an editor,
 * an agent or a package manager in that folder; and what holds credentials. Instructions for agents
 * (CLAUDE.md), and programs that somebody has to start, are neither.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
        CG_NAME_WRITE = 1, /* cannot be made, changed, renamed or removed, in any folder */
        CG_NAME_HIDE = 2,  /* cannot be read in the user's home */
        /* nor in the workspace, if it existed when the sandbox was started */
        CG_NAME_BELOW = 4,
};

/* A row of the table. */
struct cg_name {
        /* names separated by "/"; "*" matches any characters of one name */
        const char *path;
        unsigned int what; /* CG_NAME_* */
};

/* All rows; *n is set to their number. */
const struct cg_name *cg_names(size_t *n);
/* Rows at its end, whose paths do not begin with a dot: the others match no such name. */
const struct cg_name *cg_names_plain(size_t *n);

/* Maximum number of entries of cellgate.writableNames, and of bytes of one. */
#define CG_NAMES_WRITABLE_MAX 64
#define CG_NAMES_WRITABLE_LEN 128

/*
 * @path is absolute and without symlinks; its first @root bytes are a write root, and only names
 * that end below it count. Names are compared without case, as on some file systems.
 */

/* The row whose name @path has or is below; NULL: none. */
const char *cg_names_find(const char *path, size_t root, unsigned int what);
/* @name is hidden by @row of CG_NAME_BELOW, which are single names. Templates are not hidden. */
bool cg_names_has(const struct cg_name *row, const char *name);
/* The row of which @path is the beginning (".claude"): a folder moved there could hold the rest. */
const char *cg_names_leads(const char *path, size_t root);
/* @path has the name @pattern (as in struct cg_name) or is below it. */
bool cg_names_match(const char *pattern, const char *path, size_t root);

/* The name that protects @path, git's included, as in cellgate.writableNames; there must be one. */
const char *cg_names_of(const char *path);

/* ---- git, which obeys files by their place in a repository */

enum cg_git_part {
        CG_GIT_FREE, /* git does not obey it, or not in a repository */
        CG_GIT_SELF, /* ".git" itself: only a folder may be made */
        CG_GIT_CONFIG,
        /*
         * config, and sequencer/opts: may get contents that git init, clone and revert write
         * (cg_git_config_is_plain())
         */
        CG_GIT_HOOKS,  /* folder of hooks, submodules or work trees: may be made, not moved or linked */
        CG_GIT_SAMPLE, /* an example in the folder of hooks, which git does not run */
        CG_GIT_DENIED,
};

/* The meaning of @path in a repository whose folder is named .git. */
enum cg_git_part cg_git_part(const char *path, size_t root);
/*
 * The same for repositories without a work tree, whose folder may have any name: iterates over
 * candidates, with *next 0 at first. *top: length of the candidate's path, which is a repository if
 * it has a HEAD. CG_GIT_FREE: no more.
 */
enum cg_git_part cg_git_part_bare(const char *path, size_t root, size_t *next, size_t *top);
/* Prefix of the temporary file that init renames to config. */
#define CG_GIT_CONFIG_FRESH "config.cellgate-"
/* @path is in a folder named .git. */
bool cg_git_is_within(const char *path, size_t root);

/*
 * @text is a configuration with which git runs no program and reads no other file, as git init,
 * clone, branch, remote, cherry-pick and revert write it.
 */
#define CG_GIT_CONFIG_MAX (64u << 10)
bool cg_git_config_is_plain(const char *text, size_t len);
