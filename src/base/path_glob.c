/* See path_glob.h. */
#include "base/path_glob.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int is_fatal(const char *path, int error)
{
        return error != ENOENT && error != ENOTDIR && (error != EACCES || access(path, X_OK) == 0);
}

int cg_path_glob(const char *dir, const char *rest, glob_t *ret)
{
        char pattern[2 * PATH_MAX + 128];
        size_t n = 0;

        if (strlen(dir) >= PATH_MAX)
                return GLOB_NOMATCH; /* no folder has such a path */
        for (; *dir; pattern[n++] = *dir++)
                if (strchr("*?[\\", *dir))
                        pattern[n++] = '\\';
        snprintf(pattern + n, sizeof(pattern) - n, "%s", rest);
        return glob(pattern, GLOB_NOSORT, is_fatal, ret);
}
