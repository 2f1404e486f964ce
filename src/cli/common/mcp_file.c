/* The files of --mcp and --sandbox, kept from the cells. Runs in the command `cellgate`. */
#include "cli/common/mcp_file.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/util.h"

static bool is_within(const char *path, const char *dir)
{
        size_t n = strlen(dir);

        return !dir[1] || (strncmp(path, dir, n) == 0 && (path[n] == '/' || !path[n]));
}

static bool is_link(const char *path)
{
        struct stat st;

        return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/*
 * Whether the parent folder of @path, or one below it, belongs to the workspace. @path is cut and
 * put together again.
 */
static bool stands_in(char *path, const char *workspace)
{
        char folder[PATH_MAX], *slash = strrchr(path, '/');
        const char *parent = !slash ? "." : slash == path ? "/" : path;
        bool found;

        if (slash && slash != path)
                *slash = '\0';
        found = realpath(parent, folder) && is_within(folder, workspace);
        if (slash)
                *slash = '/';
        return found;
}

/* Looks at @path from its first component to the whole. */
static int check_links(const char *path, const char *workspace, struct cg_err *err)
{
        cg_auto_free char *copy = strdup(path);

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "%s", path);
        for (char *p = copy + strspn(copy, "/"); *p; p += strspn(p, "/")) {
                char *end = p + strcspn(p, "/"), c = *end;

                *end = '\0';
                if (is_link(copy) && stands_in(copy, workspace))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "%s: %s is a symbolic link in the workspace: cells could lead it to a file of"
                                " theirs, and the next run would obey that; give the file itself",
                                path, copy);
                *end = c;
                p = end;
        }
        return 0;
}

int cg_mcp_file_find(const char *path, const char *workspace, char **ret, struct cg_err *err)
{
        cg_auto_free char *real = NULL;
        char folder[PATH_MAX];
        struct stat st;

        *ret = NULL;
        /* A pipe, as in --mcp <(command), is read once and has no name. */
        if (!path || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        real = realpath(path, NULL);
        if (!real)
                return cg_fail_errno(err, "%s", path);
        if (!realpath(workspace ? workspace : ".", folder))
                return cg_fail_errno(err, "workspace %s", workspace ? workspace : ".");
        if (check_links(path, folder, err) < 0)
                return CG_E_INVAL;
        *ret = CG_STEAL(real);
        return 0;
}
