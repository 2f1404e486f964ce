/* See path.h. */
#include "base/path.h"

#include <string.h>

bool cg_path_within(const char *path, const char *dir)
{
        size_t n = strlen(dir);

        if (n == 1)
                return true; /* "/" */
        return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}
