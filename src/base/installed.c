/* Paths of this installation's files. See installed.h. */
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
 * Cuts the end of the path of one of cellgate's programs: BASE/bin/NAME,
 * BASE/libexec/cellgate/NAME. "" for all other programs: what is then looked for in the root folder
 * is not there.
 */
static void cut_program(char *base)
{
        static const char *const folders[] = { CG_LIBEXECDIR, CG_BINDIR };
        char *slash = strrchr(base, '/');

        for (size_t i = 0; slash && i < 2; i++) {
                size_t len = strlen(folders[i]);

                if ((size_t)(slash - base) > len && memcmp(slash - len, folders[i], len) == 0) {
                        slash[-(ssize_t)len] = '\0';
                        return;
                }
        }
        base[0] = '\0';
}

const char *cg_installed_with(const char *program, char ret[PATH_MAX], const char *path)
{
        char base[PATH_MAX] = "";
        ssize_t n;

        if (CG_WHEEL && program) {
                snprintf(base, sizeof(base), "%s", program);
                cut_program(base);
        } else if (CG_WHEEL && given[0]) {
                snprintf(base, sizeof(base), "%s", given);
        } else if (CG_WHEEL) {
                n = readlink("/proc/self/exe", base, sizeof(base) - 1);
                base[n > 0 ? n : 0] = '\0';
                cut_program(base);
        }
        /* The package is in an environment, whose folder is above. */
        for (; CG_WHEEL && strncmp(path, "/..", 3) == 0 && base[0]; path += 3)
                *strrchr(base, '/') = '\0';
        if (snprintf(ret, PATH_MAX, "%s%s", base, path) >= PATH_MAX)
                ret[0] = '\0';
        return ret;
}

const char *cg_installed(char ret[PATH_MAX], const char *path)
{
        return cg_installed_with(NULL, ret, path);
}
