/*
 * Names that programs outside of a sandbox obey, or keep credentials under: one table for kernels
 * and commands. A command that may
 * write a folder must not be able to leave a file there that acts later, outside. Pure text:
 * nothing is looked up in a file system.
 *
 * The principle: what runs by itself on this machine when its user starts a shell, git, an editor,
 * an agent or a package manager in
 * that folder; and what holds credentials. Instructions for agents (CLAUDE.md), and programs that
 * somebody has to start, are neither.
 */
#ifndef CG_SANDBOX_NAMES_H
#define CG_SANDBOX_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum {
        CG_NAME_WRITE = 1, /* cannot be made, changed, renamed or removed, wherever it is */
        CG_NAME_HIDE = 2,  /* cannot be read in the user's home */
        /* nor in the workspace, where it was there when the sandbox was started */
        CG_NAME_BELOW = 4,
};

/* A row of the table. */
struct cg_name {
        /* of names, "/" between them; "*" stands for any characters of one name */
        const char *path;
        const char *by;    /* what obeys it, or whose credentials they are */
        unsigned int what; /* CG_NAME_* */
};

/* All rows; *n gets their number. */
const struct cg_name *cg_names(size_t *n);

/* Longest list of cellgate.writableNames, and longest entry. */
#define CG_NAMES_WRITABLE_MAX 64
#define CG_NAMES_WRITABLE_LEN 128

/*
 * @path is absolute, without symlinks; its first @root bytes are a write root: a name must end
 * below it to count. Names are compared whatever their case, as some file systems do.
 */

/* The row whose name @path has, or lies in; NULL: none. */
const char *cg_names_find(const char *path, size_t root, unsigned int what);
/*
 * A row of CG_NAME_BELOW, all of which are single names: @name is one that is hidden. Templates are
 * not.
 */
bool cg_names_has(const struct cg_name *row, const char *name);
/*
 * The row of which @path is only the beginning (".claude"): what was put there as a whole would
 * bring the rest along.
 */
const char *cg_names_leads(const char *path, size_t root);
/* @path has the name @pattern (as in struct cg_name), or lies in what has it. */
bool cg_names_match(const char *pattern, const char *path, size_t root);

/*
 * The name that protects @path, git's included, as cellgate.writableNames has it; one is assumed
 * to.
 */
const char *cg_names_of(const char *path);

/* ---- git: what it obeys depends on where in a repository it stands */

enum cg_git_part {
        CG_GIT_FREE, /* nothing that git obeys; or not in a repository */
        CG_GIT_SELF, /* ".git" itself: a folder may be made, nothing else */
        CG_GIT_CONFIG,
        /*
                 * config: may come to be what git init and git clone write
                 * (cg_git_config_is_plain())
                 */
        CG_GIT_HOOKS,  /* the folder of hooks, or of submodules or work trees: may be made,
                not moved or linked */
        CG_GIT_SAMPLE, /* an example in the folder of hooks, which git does not run */
        CG_GIT_DENIED,
};

/* What @path is to the repository whose folder is named .git. */
enum cg_git_part cg_git_part(const char *path, size_t root);
/*
 * The same for repositories without a work tree, which may have any name, one after another; *next
 * is 0 at first. *top: length of the path of a folder that could be one, and is if there is a HEAD
 * in it. CG_GIT_FREE: there are no more.
 */
enum cg_git_part cg_git_part_bare(const char *path, size_t root, size_t *next, size_t *top);
/* What init writes before it becomes config begins with this: nobody else makes one. */
#define CG_GIT_CONFIG_FRESH "config.cellgate-"
/* @path lies in a folder named .git. */
bool cg_git_is_within(const char *path, size_t root);

/*
 * A repository's configuration that has git run nothing and read nothing elsewhere: what git init,
 * clone, branch and remote write.
 */
#define CG_GIT_CONFIG_MAX (64u << 10)
bool cg_git_config_is_plain(const char *text, size_t len);

#endif
