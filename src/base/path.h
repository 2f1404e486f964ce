/* Paths as text. */
#ifndef CG_BASE_PATH_H
#define CG_BASE_PATH_H

#include <stdbool.h>

/* @path is @dir or is below it; both are absolute and without symlinks. */
bool cg_path_within(const char *path, const char *dir);

#endif
