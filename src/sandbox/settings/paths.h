/*
 * Paths as settings spell them, and their targets. Reads the file system, changes nothing.
 * Runs in the program that reads settings, on the host.
 */
#pragma once

#include <jansson.h>
#include "base/path.h"
#include "base/util.h"

/* Base of relative spellings. Both absolute; where home is NULL, "~" is an ordinary name. */
struct cg_path_base {
        const char *cwd;
        const char *home;
        /* the file that the settings were read from; NULL: none, or of no matter */
        const char *settings;
        bool real;           /* no symlink leads to cwd: one that is there now was put there since */
        bool by_name;        /* names are protected by init (mediate.h): no search for them is needed */
        bool by_inode;       /* and files whatever their names are */
        const json_t *env;   /* base/user_env.h; NULL: not known */
        const json_t *homes; /* homes.h; NULL: not scanned */
};

/*
 * The absolute spelling: "~" and the current folder put in front, empty parts, "." and ".." taken
 * out by the letter, no "/" at the end. CG_E_LIMIT when longer than PATH_MAX.
 */
int cg_path_absolute(const struct cg_path_base *base, const char *spelled, char ret[PATH_MAX],
                     struct cg_err *err);

/* @folder/@name; false when it is too long. */
bool cg_path_join(char ret[PATH_MAX], const char *folder, const char *name);
/* Reads as a pattern: has "*", "?" or "[". */
bool cg_path_is_pattern(const char *path);
/* Cuts a "/" + two stars off the end: a folder and all in it. */
void cg_path_strip_all(char *path);

/* Links that one path may lead through; the kernel's own limit. */
#define CG_PATH_LINKS 40

struct cg_place {
        char path[PATH_MAX]; /* without symlinks; nothing exists from `missing` on */
        /* where in path the first part starts that is not there; 0: all is there */
        size_t missing;
        bool folder; /* it is a folder */
        bool link;   /* the last part of the spelling is a symlink */
        /* symlinks on the way, each without symlinks above it; freed by cg_place_fini() */
        char *links[CG_PATH_LINKS];
        size_t n_links;
};

/*
 * Follows absolute @path up to the first part that does not exist, also after a dangling link.
 * CG_E_LIMIT: a loop. CG_E_SYS: another failure.
 */
int cg_place_find(const char *path, struct cg_place *ret, struct cg_err *err);
/* CG_E_STATE: the place was reached by a symlink where @base has none. */
int cg_place_check(const struct cg_place *place, const struct cg_path_base *base, struct cg_err *err);
void cg_place_fini(struct cg_place *place);
#define cg_auto_place CG_CLEANUP(cg_place_fini)
