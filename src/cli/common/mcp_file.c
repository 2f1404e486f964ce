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

/*
 * CG_E_INVAL when a component of @path is a symbolic link whose parent folder is in @workspace, a
 * real path.
 */
static int check_links(const char *path, const char *workspace, struct cg_err *err)
{
        cg_auto_free char *copy = strdup(path);
        size_t n = strlen(workspace);

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "%s", path);
        for (char *p = copy + strspn(copy, "/"); *p; p += strspn(p, "/")) {
                char *end = p + strcspn(p, "/"), c = *end, *slash, folder[PATH_MAX];
                bool inside = false;
                struct stat st;

                *end = '\0';
                if (lstat(copy, &st) == 0 && S_ISLNK(st.st_mode)) {
                        slash = strrchr(copy, '/');
                        if (slash && slash != copy)
                                *slash = '\0';
                        inside = realpath(!slash          ? "."
                                          : slash == copy ? "/"
                                                          : copy,
                                          folder) &&
                                 (!workspace[1] ||
                                  (strncmp(folder, workspace, n) == 0 && (folder[n] == '/' || !folder[n])));
                        if (slash)
                                *slash = '/';
                }
                if (inside)
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
