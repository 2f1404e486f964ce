/* See language.h. */
#include "base/language.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

int cg_language_check(const char *name, struct cg_err *err)
{
        if (!name || strcmp(name, "python") == 0)
                return 0;
        if (strcmp(name, "shell") == 0 || strcmp(name, "node") == 0)
                return 1;
        return cg_fail(err, CG_E_INVAL, "the language \"%.50s\" is not known: " CG_LANGUAGES, name);
}

/* The program without symlinks (returns), or NULL. */
static char *program_at(const char *path)
{
        char *real = realpath(path, NULL);
        struct stat st;

        if (real && stat(real, &st) == 0 && S_ISREG(st.st_mode) && access(real, X_OK) == 0)
                return real;
        free(real);
        return NULL;
}

static char *search_path(const char *name)
{
        cg_auto_free char *path = strdup(getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin");
        char *rest = path, *folder, *found = NULL;
        char file[PATH_MAX];

        while (!found && rest && (folder = strsep(&rest, ":"))) {
                snprintf(file, sizeof(file), "%s/%s", folder, name);
                found = folder[0] == '/' ? program_at(file) : NULL;
        }
        return found;
}

int cg_language_find(const char *name, const char *given, char **ret, struct cg_err *err)
{
        bool node = strcmp(name, "node") == 0;

        if (given)
                *ret = program_at(given);
        else
                *ret = node ? search_path("node") : program_at("/bin/bash");
        if (*ret)
                return 0;
        return cg_fail(err, CG_E_NOTFOUND, "language %s: %s is no program", name,
                       given ?: (node ? "`node` in PATH" : "/bin/bash"));
}
