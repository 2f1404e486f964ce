/*
 * The files of pinned tools. Linked into the tool server and the command line. A file that is
 * damaged, or of a newer version, is an error and never replaced: its server's tools would be
 * accepted anew.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/pins.h"

#define FOLDER "/mcp-tools"
#define FORMAT "cellgate tool pins"

static int folder_path(char path[PATH_MAX], struct cg_err *err)
{
        size_t n;

        if (!cg_make_state_dir(path))
                return cg_fail(err, CG_E_STATE,
                               "neither XDG_STATE_HOME nor HOME names a folder for the pins of tools");
        n = strlen(path);
        if (n + sizeof(FOLDER) + CG_PINS_DIGEST + 40 > PATH_MAX)
                return cg_fail(err, CG_E_LIMIT, "the path of the state folder is too long");
        memcpy(path + n, FOLDER, sizeof(FOLDER));
        if (!cg_make_own_dir(path))
                return cg_fail(err, CG_E_STATE,
                               "%s is not a folder of this user with mode 0700: chmod or remove it", path);
        return 0;
}

int cg_pins_path(const char *server, const char *identity, char path[], size_t size, struct cg_err *err)
{
        cg_auto_buf struct cg_buf both = { .max = (size_t)2 * CG_MAX_SETTINGS };
        char digest[CG_PINS_DIGEST], folder[PATH_MAX];
        int r = cg_buf_add(&both, server, strlen(server) + 1, err);

        if (r == 0)
                r = cg_buf_adds(&both, identity, err);
        if (r == 0)
                r = folder_path(folder, err);
        if (r < 0)
                return r;
        cg_pin_digest(both.data, both.len, digest);
        if ((size_t)snprintf(path, size, "%s/%s.json", folder, digest) >= size)
                return cg_fail(err, CG_E_LIMIT, "the path of the state folder is too long");
        return 0;
}

/* ---- reading */

static int damaged(const char *path, const char *what, struct cg_err *err)
{
        return cg_fail(
                err, CG_E_PARSE,
                "the pins of tools in %s are damaged (%s): remove the file to accept the server's tools as they are now",
                path, what);
}

/* Checks "sha256" and "text" of @j. *has: there is a digest. */
static bool check_pin(const json_t *j, bool *has)
{
        const json_t *sha = json_object_get(j, "sha256"), *text = json_object_get(j, "text");
        char digest[CG_PINS_DIGEST];

        *has = sha != NULL;
        if (!sha)
                return !text;
        if (!json_is_string(sha) || json_string_length(sha) != CG_PINS_DIGEST - 1 ||
            strspn(json_string_value(sha), "0123456789abcdef") != CG_PINS_DIGEST - 1)
                return false;
        if (!text)
                return true;
        if (!json_is_string(text) || json_string_length(text) != strlen(json_string_value(text)))
                return false;
        cg_pin_digest(json_string_value(text), json_string_length(text), digest);
        return strcmp(digest, json_string_value(sha)) == 0;
}

int cg_pins_parse(const char *text, size_t len, const char *path, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *j = NULL;
        const json_t *version, *tools, *pending;
        struct cg_err why;
        const char *name;
        json_t *pin;

        if (cg_json_object(text, len, "the text", &j, &why) < 0)
                return damaged(path, why.msg, err);
        version = json_object_get(j, "version");
        if (strcmp(json_string_value(json_object_get(j, "format")) ?: "", FORMAT) != 0 ||
            !json_is_integer(version))
                return damaged(path, "it has another format", err);
        if (json_integer_value(version) != 1)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "the pins of tools in %s have version %lld, and this cellgate reads version 1: use the cellgate that has written them",
                        path, (long long)json_integer_value(version));
        tools = json_object_get(j, "tools");
        if (!json_is_string(json_object_get(j, "server")) || !json_is_string(json_object_get(j, "program")) ||
            !json_is_object(tools))
                return damaged(path, "a member is missing", err);
        if (json_object_size(tools) > CG_MCP_MAX_TOOLS)
                return damaged(path, "it has too many tools", err);
        json_object_foreach((json_t *)(uintptr_t)tools, name, pin)
        {
                bool accepted, waits = false;

                pending = json_object_get(pin, "pending");
                if (!json_is_object(pin) || !check_pin(pin, &accepted) ||
                    (pending && (!json_is_object(pending) || !check_pin(pending, &waits) || !waits)) ||
                    (!accepted && !waits) || strlen(name) > CG_MAX_NAME)
                        return damaged(path, "the entry of a tool is not valid", err);
        }
        *ret = CG_STEAL(j);
        return 0;
}

int cg_pins_load(const char *path, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        struct stat st;
        size_t len;
        int r;

        if (lstat(path, &st) < 0 && errno == ENOENT)
                return cg_fail(err, CG_E_NOTFOUND, "%s: there are no pins", path);
        r = cg_read_regular(path, CG_PINS_MAX_FILE, &text, &len, err);
        if (r < 0)
                return cg_err_prefix(err, "the pins of tools cannot be read");
        return cg_pins_parse(text, len, path, ret, err);
}

int cg_pins_find(const char *server, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *found = json_array();
        char folder[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
        const struct dirent *d;
        size_t n = 0;
        DIR *dir;
        int r = found ? folder_path(folder, err) : cg_fail(err, CG_E_NOMEM, "pins of tools");

        if (r < 0)
                return r;
        dir = opendir(folder);
        if (!dir)
                return cg_fail_errno(err, "%s", folder);
        while (r == 0 && n < CG_PINS_MAX_FILES && (d = readdir(dir))) {
                const char *dot = strchr(d->d_name, '.');
                json_t *pins = NULL;

                if (!dot || strcmp(dot, ".json") != 0)
                        continue;
                n++;
                snprintf(path, sizeof(path), "%s/%s", folder, d->d_name);
                r = cg_pins_load(path, &pins, err);
                if (r == 0 && strcmp(json_string_value(json_object_get(pins, "server")), server) == 0)
                        r = json_array_append_new(found, json_pack("{ss sO}", "path", path, "pins", pins));
                json_decref(pins);
        }
        closedir(dir);
        if (r == 0)
                *ret = CG_STEAL(found);
        return r;
}

/* ---- writing */

int cg_pins_lock(const char *path, int *lock, struct cg_err *err)
{
        int64_t end = cg_now_ms() + CG_PINS_LOCK_MS;
        char name[PATH_MAX + 8];
        cg_auto_fd int fd = -1;

        snprintf(name, sizeof(name), "%s.lock", path);
        fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "%s", name);
        /* A wait that ends: flock() itself has no deadline. */
        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK && errno != EINTR)
                        return cg_fail_errno(err, "%s", name);
                if (cg_now_ms() > end)
                        return cg_fail(err, CG_E_TIMEDOUT, "%s: another process has held it for %d s", name,
                                       CG_PINS_LOCK_MS / 1000);
                cg_pause_ms(10);
        }
        *lock = cg_steal_fd(&fd);
        return 0;
}

int cg_pins_save(const char *path, const json_t *pins, struct cg_err *err)
{
        char fresh[PATH_MAX + 40], random[17];
        cg_auto_free char *text = NULL;
        cg_auto_fd int fd = -1;
        json_t *pin;
        const char *name;
        size_t len = 0;
        int r = cg_random_hex(random, 8, err);

        if (r < 0)
                return r;
        text = cg_json_text(pins, &len);
        if (text && len > CG_PINS_MAX_FILE) {
                json_object_foreach(json_object_get(pins, "tools"), name, pin)
                {
                        json_object_del(pin, "text");
                        json_object_del(json_object_get(pin, "pending"), "text");
                }
                free(text);
                text = cg_json_text(pins, &len);
        }
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        if (len > CG_PINS_MAX_FILE)
                return cg_fail(err, CG_E_LIMIT, "the pins of tools are over %zu bytes", CG_PINS_MAX_FILE);
        snprintf(fresh, sizeof(fresh), "%s.%s", path, random);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "%s", fresh);
        r = cg_write_all(fd, text, len, err);
        if (r == 0 && fsync(fd) < 0)
                r = cg_fail_errno(err, "%s", fresh);
        if (r == 0 && rename(fresh, path) < 0)
                r = cg_fail_errno(err, "%s", path);
        if (r < 0)
                unlink(fresh);
        return r;
}

/* The path of a server's last list, beside that of its pins. */
static void list_path(const char *path, char list[PATH_MAX])
{
        snprintf(list, PATH_MAX, "%.*s.list", (int)(strlen(path) - strlen(".json")), path);
}

int cg_pins_load_list(const char *path, char **ret, size_t *len, struct cg_err *err)
{
        char list[PATH_MAX];

        list_path(path, list);
        return cg_read_regular(list, CG_PINS_MAX_LIST, ret, len, err);
}

void cg_pins_save_list(const char *path, const char *tools, size_t len)
{
        char list[PATH_MAX], fresh[PATH_MAX + 40], random[17];
        cg_auto_free char *old = NULL;
        cg_auto_fd int fd = -1;
        size_t n;

        list_path(path, list);
        if (!tools || len > CG_PINS_MAX_LIST) {
                unlink(list);
                return;
        }
        if ((cg_pins_load_list(path, &old, &n, NULL) == 0 && n == len && memcmp(old, tools, n) == 0) ||
            cg_random_hex(random, 8, NULL) < 0)
                return;
        snprintf(fresh, sizeof(fresh), "%s.%s", list, random);
        fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 && (cg_write_all(fd, tools, len, NULL) < 0 || rename(fresh, list) < 0))
                unlink(fresh);
}

int cg_pins_accept(const char *path, const char *tool, const char *digest, struct cg_err *err)
{
        cg_auto_json json_t *pins = NULL;
        cg_auto_fd int lock = -1;
        json_t *pin, *pending, *copy;
        int r = cg_pins_lock(path, &lock, err);

        if (r == 0)
                r = cg_pins_load(path, &pins, err);
        if (r < 0)
                return r;
        pin = json_object_get(json_object_get(pins, "tools"), tool);
        pending = json_object_get(pin, "pending");
        if (!pending || strcmp(json_string_value(json_object_get(pending, "sha256")), digest) != 0)
                return cg_fail(err, CG_E_STATE,
                               "tool \"%s\" has changed again meanwhile: nothing was accepted", tool);
        copy = json_deep_copy(pending);
        if (!copy || json_object_set_new(json_object_get(pins, "tools"), tool, copy) < 0)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        return cg_pins_save(path, pins, err);
}
