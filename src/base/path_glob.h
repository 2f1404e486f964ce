/* Files whose paths match a pattern below a folder. Linked into every process. */
#pragma once

#include <glob.h>

/*
 * As glob(), for @dir, which is no pattern, with the pattern @rest behind it. GLOB_ABORTED: a
 * folder cannot be listed, though it can be searched for names.
 */
int cg_path_glob(const char *dir, const char *rest, glob_t *ret);
