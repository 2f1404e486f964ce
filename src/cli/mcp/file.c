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

/* Longest wait for another command that changes the file. */
#define LOCK_MS 5000

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

/*
 * Resolves the path once: a cell could make a link later. @change: also locks the folder against
 * other changes.
 */
static int resolve(struct cg_mcp_config *c, bool user, bool change, struct cg_err *err)
{
        cg_auto_free char *real = NULL;
        char folder[PATH_MAX] = ".";
        const char *slash;
        struct stat st;
        int r = 0;

        /* A link in the workspace could have been made by a cell. */
        if (!user && cg_mcp_file_find(c->path, NULL, &real, err) < 0)
                return CG_E_INVAL;
        if (!real)
                real = realpath(c->path, NULL);
        snprintf(c->real, sizeof(c->real), "%s", real ?: c->path);
        if (!change)
                return 0;
        slash = strrchr(c->real, '/');
        if (slash)
                snprintf(folder, sizeof(folder), "%.*s", slash == c->real ? 1 : (int)(slash - c->real),
                         c->real);
        r = slash && slash != c->real ? cg_make_dirs(folder, 0700, err) : 0;
        if (r < 0)
                return r;
        c->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (c->lock < 0)
                return cg_fail_errno(err, "%s", folder);
        r = cg_lock_fd(c->lock, LOCK_MS, NULL, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT,
                               "another process has kept %s locked for %d s, to change a file there: end it",
                               folder, LOCK_MS / 1000);
        if (r == 0 && lstat(c->real, &st) == 0 && S_ISLNK(st.st_mode))
                return cg_fail(err, CG_E_STATE, "%s: %s is a symbolic link, and is not replaced", c->path,
                               c->real);
        return r;
}

int cg_mcp_config_load(const char *file, bool user, bool change, struct cg_mcp_config *ret,
                       struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        json_t *servers, *other;
        size_t len;
        int r = 0;

        *ret = (struct cg_mcp_config){ .lock = -1 };
        if (user)
                r = user_path(ret->path, err);
        else
                snprintf(ret->path, sizeof(ret->path), "%s",
                         file                             ? file
                         : access(".mcp.json", F_OK) == 0 ? ".mcp.json"
                         : access("mcp.json", F_OK) == 0  ? "mcp.json"
                                                          : ".mcp.json");
        if (r == 0)
                r = resolve(ret, user, change, err);
        if (r < 0)
                return r;
        if (access(ret->real, F_OK) < 0 && errno == ENOENT) {
                ret->file = json_pack("{s{}}", "mcpServers");
                ret->absent = true;
        } else {
                r = cg_read_file(ret->real, CG_MAX_SETTINGS, &text, &len, err);
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
        if (c->lock >= 0)
                close(cg_steal_fd(&c->lock));
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
        /* With 15 digits, if enough for all numbers: with 17, 0.1 is 0.10000000000000001. */
        cg_auto_free char *short_text = json_dumps(c->file, JSON_INDENT(2) | JSON_REAL_PRECISION(15)),
                          *long_text = json_dumps(c->file, JSON_INDENT(2)), *text = NULL;
        cg_auto_json json_t *again = short_text ? json_loads(short_text, JSON_ALLOW_NUL, NULL) : NULL;
        struct stat st;
        int len = -1;

        if (short_text && long_text)
                len = asprintf(&text, "%s\n", json_equal(again, c->file) ? short_text : long_text);
        if (len < 0) {
                text = NULL;
                return cg_fail(err, CG_E_NOMEM, "%s", c->path);
        }
        return cg_write_atomically(c->real, text, (size_t)len,
                                   lstat(c->real, &st) == 0 && S_ISREG(st.st_mode) ? st.st_mode & 0777 : 0600,
                                   err);
}
