/* --policy: see policy_file.h. */
#include "cli/common/policy_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/util.h"
#include "cli/common/mcp_file.h"
#include "sandbox/settings/paths.h"

#define WHY "cells could write it, and the next run would obey that; move it to another folder"

/* The folder that holds all that an entry of allowWrite matches, without links. */
static int root_of(const struct cg_path_base *base, const struct cg_path_entry *entry, struct cg_place *ret,
                   struct cg_err *err)
{
        char path[PATH_MAX];

        if (cg_path_absolute(base, entry->path, path, err) < 0)
                return -1;
        if (!entry->literal && cg_path_is_pattern(path)) {
                path[strcspn(path, "*?[")] = '\0';
                *strrchr(path, '/') = '\0';
        }
        return cg_place_find(path[0] ? path : "/", ret, err);
}

/* CG_E_INVAL: a write root of the settings has the file, or a link of its path. */
static int check_roots(const char *option, const char *path, const char *real, const char *workspace,
                       const struct cg_settings *s, struct cg_err *err)
{
        struct cg_path_base base = { .cwd = workspace, .home = getenv("HOME") };
        char name[NAME_MAX + 1];

        if (s->filesystem.disabled)
                return cg_fail(err, CG_E_INVAL, "--%s %s: filesystem.disabled in the settings: " WHY, option,
                               path);
        for (size_t i = 0; i < s->filesystem.allow_write.n; i++) {
                struct cg_place root = { .n_links = 0 };
                cg_auto_fd int folder = -1;
                int r = root_of(&base, &s->filesystem.allow_write.v[i], &root, err);

                if (r == 0 && cg_path_within(real, root.path))
                        r = cg_fail(err, CG_E_INVAL, "--%s %s is below filesystem.allowWrite: " WHY, option,
                                    path);
                if (r == 0)
                        r = cg_mcp_file_folder(path, root.path, false, &folder, name, err);
                cg_place_fini(&root);
                if (r < 0)
                        return r;
        }
        return 0;
}

int cg_own_file_check(const char *option, const char *path, const char *workspace,
                      const struct cg_settings *s, char **real, struct cg_err *err)
{
        char top[PATH_MAX];
        struct stat st;

        if (stat(path, &st) < 0)
                return cg_fail_errno(err, "--%s %s", option, path);
        if (cg_mcp_file_find(path, workspace, real, err) < 0)
                return -1;
        if (!*real)
                return cg_fail(err, CG_E_INVAL, "--%s %s is no regular file", option, path);
        if (!realpath(workspace, top))
                return cg_fail_errno(err, "workspace %s", workspace);
        if (cg_path_within(*real, top))
                return cg_fail(err, CG_E_INVAL, "--%s %s is in the workspace: " WHY, option, path);
        if (st.st_nlink > 1)
                return cg_fail(err, CG_E_INVAL, "--%s %s has other names (hard links): " WHY, option, path);
        return s ? check_roots(option, path, *real, top, s, err) : 0;
}

int cg_own_folder_check(const char *option, const char *path, const char *workspace,
                        const struct cg_settings *s, struct cg_err *err)
{
        cg_auto_fd int folder = -1;
        char top[PATH_MAX], real[PATH_MAX], name[NAME_MAX + 1], link[64];

        if (!realpath(workspace, top))
                return cg_fail_errno(err, "workspace %s", workspace);
        if (cg_mcp_file_folder(path, top, false, &folder, name, err) < 0)
                return cg_err_prefix(err, "--%s", option);
        snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
        if (!realpath(link, real))
                return cg_fail_errno(err, "--%s %s", option, path);
        if (cg_path_within(real, top))
                return cg_fail(err, CG_E_INVAL, "--%s %s is in the workspace: cells could read or replace it",
                               option, path);
        return s ? check_roots(option, path, real, top, s, err) : 0;
}

int cg_policy_file_read(const char *path, const char *workspace, const struct cg_settings *s, char **text,
                        size_t *len, struct cg_err *err)
{
        cg_auto_free char *real = NULL;

        if (workspace && cg_own_file_check("policy", path, workspace, s, &real, err) < 0)
                return -1;
        return cg_read_regular(real ? real : path, CG_MAX_SETTINGS, text, len, err);
}
