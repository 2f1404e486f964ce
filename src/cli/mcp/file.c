/*
 * The file of MCP servers that `cellgate mcp` reads and changes. Runs in the command `cellgate`. A
 * change keeps all other members and their order.
 */
#include "base/account.h"
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "cli/common/files.h"
#include "cli/mcp/mcp.h"

/* Longest wait for another command that changes the file. */
#define LOCK_MS 5000

static int user_path(char path[PATH_MAX], struct cg_err *err)
{
        const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        char account[PATH_MAX];
        int n = -1;

        if (config && config[0] == '/')
                n = snprintf(path, PATH_MAX, "%s/cellgate/mcp.json", config);
        else if (home && home[0] == '/')
                n = snprintf(path, PATH_MAX, "%s/.config/cellgate/mcp.json", home);
        else if (cg_account_home(account))
                n = snprintf(path, PATH_MAX, "%s/.config/cellgate/mcp.json", account);
        if (n < 0 || n >= PATH_MAX)
                return cg_fail(err, CG_E_INVAL, "neither XDG_CONFIG_HOME nor HOME names a folder for --user");
        return 0;
}

/* All commands that change a file wait for one lock, where no cell can hold it. */
static int lock_changes(struct cg_mcp_config *c, struct cg_err *err)
{
        char path[PATH_MAX + 8];
        int r;

        if (cg_state_folder("mcp-files", path, err) < 0)
                return cg_err_prefix(err, "%s cannot be locked", c->path);
        strcat(path, "/lock");
        r = cg_lock_file(path, LOCK_MS, NULL, &c->lock, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT,
                               "another `cellgate mcp` has kept %s locked for %d s: end it", path,
                               LOCK_MS / 1000);
        return r;
}

/*
 * Opens the file below its folder, in which save() writes it: a cell could put a link into its
 * path at any time. *fd: -1 where the file is absent.
 */
static int open_file(struct cg_mcp_config *c, bool user, bool change, int *fd, struct cg_err *err)
{
        char workspace[PATH_MAX];
        struct stat st;

        *fd = -1;
        if (!change && stat(c->path, &st) < 0) {
                if (errno == ENOENT)
                        return 0;
        } else if (!change && !S_ISREG(st.st_mode)) { /* as in --mcp <(command) */
                *fd = open(c->path, O_RDONLY | O_CLOEXEC);
                if (*fd < 0)
                        return cg_fail_errno(err, "cannot open %s", c->path);
                return 0;
        }
        if (!realpath(".", workspace))
                return cg_fail_errno(err, "the current folder");
        if (cg_mcp_file_folder(c->path, user ? NULL : workspace, change, &c->folder, c->name, err) < 0)
                return -1;
        if (change && lock_changes(c, err) < 0)
                return -1;
        *fd = openat(c->folder, c->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (*fd < 0 && errno == ELOOP)
                return cg_fail(err, CG_E_STATE, "%s is a symbolic link, and is not replaced", c->path);
        if (*fd < 0 && errno != ENOENT)
                return cg_fail_errno(err, "cannot open %s", c->path);
        if (*fd >= 0 && (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode)))
                return cg_fail(err, CG_E_INVAL, "%s is not a regular file", c->path);
        return 0;
}

int cg_mcp_config_load(const char *file, bool user, bool change, struct cg_mcp_config *ret,
                       struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        cg_auto_fd int fd = -1;
        json_t *servers, *other;
        size_t len;

        *ret = (struct cg_mcp_config){ .folder = -1, .lock = -1 };
        if (!file && access(".mcp.json", F_OK) < 0 && access("mcp.json", F_OK) == 0)
                file = "mcp.json";
        snprintf(ret->path, sizeof(ret->path), "%s", file ?: ".mcp.json");
        if (user && user_path(ret->path, err) < 0)
                return -1;
        if (open_file(ret, user, change, &fd, err) < 0)
                return -1;
        if (fd < 0) {
                ret->file = json_pack("{s{}}", "mcpServers");
                ret->absent = true;
        } else if (cg_read_fd(fd, ret->path, CG_MAX_SETTINGS, &text, &len, err) < 0 ||
                   cg_json_object(text, len, ret->path, &ret->file, err) < 0) {
                return -1;
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
        if (c->folder >= 0)
                close(cg_steal_fd(&c->folder));
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

/*
 * Changes the file in place: a sandbox that runs hides this file and no other, so a new one under
 * its name would show its secrets to the cells. Meanwhile the new text is also in the user's state
 * folder.
 */
static int write_in_place(const struct cg_mcp_config *c, const char *text, size_t len, struct cg_err *err)
{
        cg_auto_fd int fd = openat(c->folder, c->name,
                                   O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        char copy[PATH_MAX + 16];
        struct stat st;
        int r;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "cannot write %s", c->path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "%s is not a regular file", c->path);
        if (cg_state_folder("mcp-files", copy, err) < 0 ||
            cg_write_atomically(strcat(copy, "/unfinished"), text, len, 0600, err) < 0)
                return -1;
        r = cg_write_all(fd, text, len, err);
        if (r >= 0 && (ftruncate(fd, (off_t)len) < 0 || fsync(fd) < 0))
                r = cg_fail_errno(err, "cannot write %s", c->path);
        if (r < 0)
                return cg_err_prefix(err, "%s is incomplete now, and %s is what it should contain", c->path,
                                     copy);
        unlink(copy);
        return 0;
}

int cg_mcp_config_save(const struct cg_mcp_config *c, struct cg_err *err)
{
        /* With 15 digits, if enough for all numbers: with 17, 0.1 is 0.10000000000000001. */
        cg_auto_free char *short_text = json_dumps(c->file, JSON_INDENT(2) | JSON_REAL_PRECISION(15)),
                          *long_text = json_dumps(c->file, JSON_INDENT(2)), *text = NULL;
        cg_auto_json json_t *again = json_loads(short_text, JSON_ALLOW_NUL, NULL);
        int len = -1;

        if (short_text && long_text)
                len = asprintf(&text, "%s\n", json_equal(again, c->file) ? short_text : long_text);
        if (len < 0) {
                text = NULL;
                return cg_fail(err, CG_E_NOMEM, "%s", c->path);
        }
        if (!c->absent)
                return write_in_place(c, text, (size_t)len, err);
        return cg_write_atomically_at(c->folder, c->name, text, (size_t)len, 0600, err);
}
