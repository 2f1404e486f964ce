/* See language.h. */
#include "base/language.h"

#include "base/util.h"

#define JUPYTER "jupyter:"

const char *cg_language_kernel(const char *name)
{
        size_t n = strlen(JUPYTER);

        return name && strncmp(name, JUPYTER, n) == 0 ? name + n : NULL;
}

int cg_language_check(const char *name, struct cg_err *err)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
        const char *kernel = cg_language_kernel(name);

        if (!name || strcmp(name, "python") == 0)
                return 0;
        if (strcmp(name, "shell") == 0 || strcmp(name, "node") == 0)
                return 1;
        if (kernel && *kernel && *kernel != '.' && *kernel != '-' && !kernel[strspn(kernel, allowed)])
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

char *cg_program_find(const char *name, const char *search, char found[PATH_MAX])
{
        cg_auto_free char *path = strdup(search);
        char *rest = path, *folder, *real = NULL;

        snprintf(found, PATH_MAX, "%s", name);
        if (strchr(name, '/'))
                return name[0] == '/' ? program_at(name) : NULL;
        while (!real && rest && (folder = strsep(&rest, ":"))) {
                snprintf(found, PATH_MAX, "%s/%s", folder, name);
                real = folder[0] == '/' ? program_at(found) : NULL;
        }
        return real;
}

int cg_language_find(const char *name, const char *given, char **ret, struct cg_err *err)
{
        bool node = strcmp(name, "node") == 0;
        const char *search = getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin";
        char found[PATH_MAX];

        if (!given && cg_language_kernel(name))
                return cg_fail(err, CG_E_INVAL, "language %s: its kernelspec is missing", name);
        if (given)
                *ret = program_at(given);
        else
                *ret = node ? cg_program_find("node", search, found) : program_at("/bin/bash");
        if (*ret)
                return 0;
        return cg_fail(err, CG_E_NOTFOUND, "language %s: %s is no program", name,
                       given ?: (node ? "`node` in PATH" : "/bin/bash"));
}
