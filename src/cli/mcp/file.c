/*
 * The file of MCP servers that `cellgate mcp` reads and changes. Runs in the command `cellgate`. A
 * change keeps all other members and their order.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/text.h"
#include "base/util.h"
#include "cli/common/mcp_file.h"
#include "cli/mcp/mcp.h"

static int user_path(char path[PATH_MAX], struct cg_err *err)
{
        const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        char account[PATH_MAX];
        int n;

        if (!home || home[0] != '/')
                home = cg_account_home(account) ? account : NULL;
        if (config && config[0] == '/')
                n = snprintf(path, PATH_MAX, "%s/cellgate/mcp.json", config);
        else
                n = home ? snprintf(path, PATH_MAX, "%s/.config/cellgate/mcp.json", home) : -1;
        return n > 0 && n < PATH_MAX ? 0
                                     : cg_fail(err, CG_E_INVAL,
                                               "neither XDG_CONFIG_HOME nor HOME names a folder for --user");
}

int cg_mcp_config_load(const char *file, bool user, struct cg_mcp_config *ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL, *real = NULL;
        json_t *servers, *other;
        size_t len;
        int r = 0;

        *ret = (struct cg_mcp_config){ .file = NULL };
        if (user)
                r = user_path(ret->path, err);
        else
                snprintf(ret->path, sizeof(ret->path), "%s",
                         file                             ? file
                         : access(".mcp.json", F_OK) == 0 ? ".mcp.json"
                         : access("mcp.json", F_OK) == 0  ? "mcp.json"
                                                          : ".mcp.json");
        /* A link in the workspace could have been made by a cell. */
        if (r == 0 && !user)
                r = cg_mcp_file_find(ret->path, NULL, &real, err);
        if (r < 0)
                return r;
        if (access(ret->path, F_OK) < 0 && errno == ENOENT) {
                ret->file = json_pack("{s{}}", "mcpServers");
                ret->absent = true;
        } else {
                r = cg_read_file(ret->path, CG_MAX_SETTINGS, &text, &len, err);
                if (r == 0)
                        r = cg_json_object(text, len, ret->path, &ret->file, err);
                if (r < 0)
                        return r;
        }
        /* As cg_json_mcp_servers() finds them. */
        servers = json_object_get(ret->file, "mcpServers");
        other = json_object_get(ret->file, "servers");
        if (!servers && json_is_object(other) && !json_is_string(json_object_get(other, "command")) &&
            !json_is_string(json_object_get(other, "url")))
                servers = other;
        if (!servers && !json_object_size(ret->file)) {
                json_object_set_new(ret->file, "mcpServers", json_object());
                servers = json_object_get(ret->file, "mcpServers");
        }
        ret->servers = servers ?: ret->file;
        if (ret->file && json_is_object(ret->servers))
                return 0;
        cg_mcp_config_fini(ret);
        return cg_fail(err, CG_E_INVAL, "%s: \"mcpServers\" must be an object", ret->path);
}

void cg_mcp_config_fini(struct cg_mcp_config *c)
{
        json_decref(c->file);
        c->file = NULL;
}

int cg_mcp_config_get(const struct cg_mcp_config *c, const char *name, json_t **ret, struct cg_err *err)
{
        *ret = json_object_get(c->servers, name);
        if (json_is_object(*ret))
                return 0;
        return cg_fail(err, CG_E_NOTFOUND,
                       c->absent ? "there is no file %s: `cellgate mcp add` makes it"
                                 : "%s defines no MCP server \"%s\"",
                       c->path, name);
}

int cg_mcp_config_save(const struct cg_mcp_config *c, struct cg_err *err)
{
        cg_auto_free char *text = json_dumps(c->file, JSON_INDENT(2)), *real = realpath(c->path, NULL);
        const char *path = real ?: c->path;
        char fresh[PATH_MAX + 40], folder[PATH_MAX], random[17], *slash;
        cg_auto_fd int fd = -1;
        struct stat st;
        int r = text ? cg_random_hex(random, 8, err) : cg_fail(err, CG_E_NOMEM, "%s", c->path);

        snprintf(folder, sizeof(folder), "%s", path);
        slash = strrchr(folder, '/');
        if (slash && slash != folder) {
                *slash = '\0';
                if (r == 0)
                        r = cg_make_dirs(folder, 0700, err);
        }
        if (r < 0)
                return r;
        snprintf(fresh, sizeof(fresh), "%s.%s", path, random);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "%s", fresh);
        r = cg_write_all(fd, text, strlen(text), err);
        if (r == 0)
                r = cg_write_all(fd, "\n", 1, err);
        if (r == 0 && stat(path, &st) == 0 && fchmod(fd, st.st_mode & 0777) < 0)
                r = cg_fail_errno(err, "%s", fresh);
        if (r == 0 && fsync(fd) < 0)
                r = cg_fail_errno(err, "%s", fresh);
        if (r == 0 && rename(fresh, path) < 0)
                r = cg_fail_errno(err, "%s", path);
        if (r < 0)
                unlink(fresh);
        return r;
}
