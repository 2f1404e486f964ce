/* Where the files of this installation are. See installed.h. */
#include "base/installed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "config.h"

static char given[PATH_MAX];

void cg_installed_below(const char *base)
{
        snprintf(given, sizeof(given), "%s", base);
}

/*
 * Cuts the end of the name of the running program: BASE/bin/NAME, BASE/libexec/cellgate/NAME. ""
 * for all other programs: what is then looked for in the root folder is not there.
 */
static void find_base(char base[PATH_MAX])
{
        static const char *const folders[] = { CG_LIBEXECDIR, CG_BINDIR };
        ssize_t n = readlink("/proc/self/exe", base, PATH_MAX - 1);
        char *slash;

        base[n > 0 ? n : 0] = '\0';
        slash = strrchr(base, '/');
        for (size_t i = 0; slash && i < 2; i++) {
                size_t len = strlen(folders[i]);

                if ((size_t)(slash - base) > len && memcmp(slash - len, folders[i], len) == 0) {
                        slash[-(ssize_t)len] = '\0';
                        return;
                }
        }
        base[0] = '\0';
}

const char *cg_installed(char ret[PATH_MAX], const char *path)
{
        char base[PATH_MAX] = "";

        if (CG_WHEEL && given[0])
                snprintf(base, sizeof(base), "%s", given);
        else if (CG_WHEEL)
                find_base(base);
        /* The package is in an environment, whose folder is above. */
        for (; CG_WHEEL && strncmp(path, "/..", 3) == 0 && base[0]; path += 3)
                *strrchr(base, '/') = '\0';
        if (snprintf(ret, PATH_MAX, "%s%s", base, path) >= PATH_MAX)
                ret[0] = '\0';
        return ret;
}
