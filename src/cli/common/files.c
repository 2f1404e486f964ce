/* The files of the command line, kept from the cells: see files.h. */
#include "cli/common/files.h"

#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "sandbox/settings/paths.h"
#include "sandbox/settings/read.h"

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
        if (!path || path[0] == '{' || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        workspace = workspace ?: ".";
        if (!realpath(workspace, folder))
                return cg_fail_errno(err, "workspace %s", workspace);
        if (cg_mcp_file_folder(path, folder, false, &dir, name, err) < 0)
                return CG_E_INVAL;
        snprintf(found, sizeof(found), "/proc/self/fd/%d", dir);
        if (!realpath(found, folder))
                return cg_fail_errno(err, "%s", path);
        return cg_asprintf(ret, path, err, "%s/%s", cg_path_prefix(folder), name);
}

int cg_mcp_file_read(const char *path, char **text, size_t *len, struct cg_err *err)
{
        cg_auto_json json_t *check = NULL;

        if (!path)
                return 0;
        if (cg_read_file(path, CG_MAX_SETTINGS, text, len, err) < 0 ||
            cg_json_object(*text, *len, path, &check, err) < 0)
                return -1;
        if (*len >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0)
                memset(*text, ' ', 3);
        return 0;
}

/* ---- --sandbox and --allow-host */

int cg_settings_file_read(const char *path, char **ret, struct cg_err *err)
{
        cg_auto_settings struct cg_settings *s = NULL;
        cg_auto_free char *text = NULL;
        size_t len;

        *ret = NULL;
        if (!path)
                return 0;
        if (path[0] == '{') {
                text = strdup(path);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "settings");
                len = strlen(text);
                path = "--sandbox";
        } else if (cg_read_file(path, CG_MAX_SETTINGS / 2, &text, &len, err) < 0) {
                return -1;
        }
        /* As strict as the supervisor, which reads it again: an unknown key is an error. */
        if (cg_settings_parse(text, len, path, 0, &s, err) < 0)
                return -1;
        *ret = CG_STEAL(text);
        return 0;
}

int cg_settings_check_host(const char *host, struct cg_err *err)
{
        const char *why = cg_check_allowed_domain(host), *name = strstr(host, "://");

        if (name && name[3])
                return cg_fail(err, CG_E_INVAL, "--allow-host takes a host, no URL: --allow-host %.*s",
                               (int)strcspn(name + 3, "/?#"), name + 3);
        if (why)
                return cg_fail(err, CG_E_INVAL, "--allow-host %s: %s", host, why);
        return 0;
}

int cg_settings_for_hosts(const char *const *hosts, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *list = json_array(), *o = NULL;
        size_t len;

        *ret = NULL;
        if (!hosts || !hosts[0])
                return 0;
        for (; *hosts; hosts++)
                json_array_append_new(list, json_string(*hosts));
        o = json_pack("{s:{s:O, s:[]}, s:{s:[s], s:[s], s:[]}}", "network", "allowedDomains", list,
                      "deniedDomains", "filesystem", "denyRead", ".env", "allowWrite", ".", "denyWrite");
        if (o)
                *ret = cg_json_text(o, &len);
        return cg_made(*ret, "settings", err);
}

int cg_profile_add(const char *name, struct cg_profiles *profiles, struct cg_err *err)
{
        static const char *const names[] = { "basic", "data_science", "network", "filesystem" };
        char *variable = profiles->variable;
        size_t len, size = sizeof(profiles->variable);

        if (!profiles->bits)
                snprintf(variable, size, "CELLGATE_PROFILES=basic");
        profiles->bits |= CG_PROFILE_BASIC;
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (strcmp(name, names[i]) != 0)
                        continue;
                len = strlen(variable);
                if (!(profiles->bits & 1u << i))
                        snprintf(variable + len, size - len, " %s", name);
                profiles->bits |= 1u << i;
                return 0;
        }
        return cg_fail(err, CG_E_INVAL, "--profile %s: basic, data_science, network or filesystem", name);
}

int cg_settings_for_profiles(unsigned profiles, const char *const *hosts, const char *env, char **ret,
                             struct cg_err *err)
{
        char own[PATH_MAX], modules[PATH_MAX], base[PATH_MAX] = "";
        const char *home = getenv("HOME") ?: "/";
        cg_auto_json json_t *list = json_array(), *o = NULL;
        size_t len;

        for (; hosts && *hosts; hosts++)
                json_array_append_new(list, json_string(*hosts));
        env = env ?: cg_kernel_env_default(own);
        if (cg_pyvenv_home(env, base, sizeof(base)) && strrchr(base, '/'))
                *strrchr(base, '/') = '\0'; /* the folder of bin */
        if (cg_path_within(home, base))
                *base = '\0'; /* a Python in ~/bin must not show the home folder */
        o = json_pack("{s:{s:O, s:[]}, s:{s:[s, s, s, s, s, s, s], s:[s, s, s, s], s:[], s:[]},"
                      " s:{s:b, s:s, s:{s:i}}}",
                      "network", "allowedDomains", list, "deniedDomains", "filesystem", "denyRead", ".env",
                      "~", "/home", "/root", "/srv", "/mnt", "/media", "allowRead", ".", env,
                      cg_text_or(base, env), cg_kernel_modules(modules), "allowWrite", "denyWrite",
                      "cellgate", "networkOff", !(profiles & CG_PROFILE_NETWORK), "exec", "deny", "limits",
                      "processes", profiles & CG_PROFILE_DATA_SCIENCE ? 256 : 64);
        if (o && profiles & CG_PROFILE_FILESYSTEM)
                json_array_append_new(json_object_get(json_object_get(o, "filesystem"), "allowWrite"),
                                      json_string("."));
        if (o)
                *ret = cg_json_text(o, &len);
        return cg_made(*ret, "settings", err);
}

/* ---- --policy, and other files that cells must not write */

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
        return cg_place_find(cg_text_or(path, "/"), ret, err);
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
                CG_CLEANUP(cg_place_fini) struct cg_place root = { .n_links = 0 };
                cg_auto_fd int folder = -1;

                if (root_of(&base, &s->filesystem.allow_write.v[i], &root, err) < 0)
                        return -1;
                if (cg_path_within(real, root.path))
                        return cg_fail(err, CG_E_INVAL, "--%s %s is below filesystem.allowWrite: " WHY,
                                       option, path);
                if (cg_mcp_file_folder(path, root.path, false, &folder, name, err) < 0)
                        return -1;
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
        if (!s)
                return 0;
        return check_roots(option, path, *real, top, s, err);
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
        if (!s)
                return 0;
        return check_roots(option, path, real, top, s, err);
}

int cg_policy_file_read(const char *path, const char *workspace, const struct cg_settings *s, char **text,
                        size_t *len, struct cg_err *err)
{
        cg_auto_free char *real = NULL;

        if (workspace && cg_own_file_check("policy", path, workspace, s, &real, err) < 0)
                return -1;
        return cg_read_regular(real ?: path, CG_MAX_SETTINGS, text, len, err);
}
