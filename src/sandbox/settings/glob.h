/* Files that match a pattern of the settings (pattern.h). */
#pragma once

#include <stdbool.h>
#include "base/err.h"
#include "sandbox/names/pattern.h"

/* Entries visited for one pattern: one over a whole disk must fail instead of taking an hour. */
#define CG_GLOB_ENTRIES_MAX 1000000
/* Depth of folders below the one in which a pattern begins. */
#define CG_GLOB_DEPTH_MAX 64

/*
 * Calls @found for everything that matches absolute @pattern, in folders reached through symlinks
 * as well: for each path that matches, but for those that differ only in which symlinks lead to a
 * folder where the same can match. Folders that cannot be listed are given to @found with
 * @unlisted, because matches in them are not known. A negative return of @found ends the walk.
 * CG_E_LIMIT: too many entries, or too deep.
 */
typedef int (*cg_glob_fn)(void *data, const char *path, bool unlisted, struct cg_err *err);
int cg_glob_walk(const char *pattern, cg_glob_fn found, void *data, struct cg_err *err);
