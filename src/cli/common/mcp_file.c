/* The files of --mcp and --sandbox, kept from the cells. Runs in the command `cellgate`. */
#include "cli/common/mcp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/util.h"

/* True also where this is not known. */
static bool is_inside(int folder, const char *workspace)
{
        char link[64], path[PATH_MAX];
        size_t len = strlen(workspace);
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
        n = readlink(link, path, sizeof(path) - 1);
        if (n < 0)
                return true;
        path[n] = '\0';
        return !workspace[1] || (strncmp(path, workspace, len) == 0 && (path[len] == '/' || !path[len]));
}

int cg_mcp_file_folder(const char *path, const char *workspace, bool make, int *folder,
                       char name[NAME_MAX + 1], struct cg_err *err)
{
        const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
        cg_auto_fd int dir = open(path[0] == '/' ? "/" : ".", flags);
        char link[NAME_MAX + 64], real[PATH_MAX];
        const char *p = path + strspn(path, "/"), *end;
        struct stat st;
        bool is_link;

        if (dir < 0)
                return cg_fail_errno(err, "%s", path);
        for (;; p = end + strspn(end, "/")) {
                bool inside = workspace && is_inside(dir, workspace);
                int next;

                end = p + strcspn(p, "/");
                if (end - p > NAME_MAX)
                        return cg_fail(err, CG_E_INVAL, "%s: a name in it is too long", path);
                if (end == p)
                        return cg_fail(err, CG_E_INVAL, "%s is a folder", path);
                snprintf(name, NAME_MAX + 1, "%.*s", (int)(end - p), p);
                is_link = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
                if (is_link && inside)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "%s: %.*s is a symbolic link in the workspace: cells could lead it to a file of"
                                " theirs, and the next run would obey that; give the file itself",
                                path, (int)(end - path), path);
                if (!*end)
                        break;
                /* O_NOFOLLOW: a cell could make the link now */
                next = openat(dir, name, flags | (inside ? O_NOFOLLOW : 0));
                if (next < 0 && errno == ENOENT && make && mkdirat(dir, name, 0700) == 0)
                        next = openat(dir, name, flags | O_NOFOLLOW);
                if (next < 0)
                        return cg_fail_errno(err, "%s: %.*s", path, (int)(end - path), path);
                close(dir);
                dir = next;
        }
        snprintf(link, sizeof(link), "/proc/self/fd/%d/%s", dir, name);
        if (is_link && realpath(link, real)) /* no component of it is a link, or becomes one */
                return cg_mcp_file_folder(real, "/", false, folder, name, err);
        *folder = cg_steal_fd(&dir);
        return 0;
}

int cg_mcp_file_find(const char *path, const char *workspace, char **ret, struct cg_err *err)
{
        char folder[PATH_MAX], name[NAME_MAX + 1], found[64];
        cg_auto_fd int dir = -1;
        struct stat st;

        *ret = NULL;
        /* A pipe, as in --mcp <(command), is read once and has no name. */
        if (!path || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        if (!realpath(workspace ? workspace : ".", folder))
                return cg_fail_errno(err, "workspace %s", workspace ? workspace : ".");
        if (cg_mcp_file_folder(path, folder, false, &dir, name, err) < 0)
                return CG_E_INVAL;
        snprintf(found, sizeof(found), "/proc/self/fd/%d", dir);
        if (!realpath(found, folder))
                return cg_fail_errno(err, "%s", path);
        if (asprintf(ret, "%s/%s", folder[1] ? folder : "", name) < 0) {
                *ret = NULL;
                return cg_fail(err, CG_E_NOMEM, "%s", path);
        }
        return 0;
}
