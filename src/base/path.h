/* Paths as text. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* @path is @dir or is below it; both are absolute and without symlinks. */
bool cg_path_within(const char *path, const char *dir);

/* @folder, an absolute path, as the begin of others: "" for the root. */
static inline const char *cg_path_prefix(const char *folder)
{
        return folder[1] ? folder : "";
}

/* Puts the folder that holds the absolute @path into @ret, of PATH_MAX bytes; that of "/" is "/". */
static inline void cg_path_parent(const char *path, char *ret)
{
        const char *slash = strrchr(path, '/');

        snprintf(ret, PATH_MAX, "%.*s", slash > path ? (int)(slash - path) : 1, path);
}

/* The entries of each folder that are not in it. */
static inline bool cg_path_is_dots(const char *name)
{
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The part behind the last slash, borrowed. */
static inline const char *cg_path_base(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}
