/*
 * The files of pinned tools. Linked into the tool server and the command line. A file that is
 * damaged, or of a newer version, is an error and never replaced: its server's tools would be
 * accepted anew.
 */
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "mcp/ceilings.h"
#include "mcp/pins/pins.h"

#define FORMAT "cellgate tool pins"

int cg_pins_path(const char *key, char path[], size_t size, struct cg_err *err)
{
        char folder[PATH_MAX];
        int r = cg_state_folder(CG_PINS_FOLDER, folder, err);

        if (r < 0)
                return cg_err_prefix(err, "the pins of tools cannot be stored");
        if ((size_t)snprintf(path, size, "%s/%s.json", folder, key) >= size)
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
        char digest[CG_SHA256_HEX];

        *has = sha != NULL;
        if (!sha)
                return !text;
        if (!json_is_string(sha) || json_string_length(sha) != CG_SHA256_HEX - 1 ||
            strspn(json_string_value(sha), "0123456789abcdef") != CG_SHA256_HEX - 1)
                return false;
        if (!text)
                return true;
        if (!json_is_string(text) || json_string_length(text) != strlen(json_string_value(text)))
                return false;
        cg_sha256_hex(json_string_value(text), json_string_length(text), digest);
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
        json_object_foreach(cg_json_unconst(tools), name, pin) {
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

/* ---- writing */

int cg_pins_lock(const char *path, int64_t timeout_ms, int *lock, struct cg_err *err)
{
        char name[PATH_MAX + 8];
        int r;

        snprintf(name, sizeof(name), "%s.lock", path);
        r = cg_lock_file(name, timeout_ms, NULL, lock, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "%s: another process has held it for %lld ms", name,
                               (long long)timeout_ms);
        return r;
}

int cg_pins_save(const char *path, const json_t *pins, struct cg_err *err)
{
        size_t len = 0;
        cg_auto_free char *text = cg_json_text(pins, &len);
        const char *name;
        json_t *pin;

        if (text && len > CG_PINS_MAX_FILE) {
                json_object_foreach(json_object_get(pins, "tools"), name, pin) {
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
        return cg_write_atomically(path, text, len, 0600, err);
}

/* The path of a server's last list, beside that of its pins. */
static void list_path(const char *path, char list[PATH_MAX])
{
        snprintf(list, PATH_MAX, "%s", path);
        memcpy(list + strlen(list) - strlen(".json"), ".list", strlen(".list"));
}

int cg_pins_load_list(const char *path, char **ret, size_t *len, struct cg_err *err)
{
        char list[PATH_MAX];

        list_path(path, list);
        return cg_read_regular(list, CG_PINS_MAX_LIST, ret, len, err);
}

void cg_pins_save_list(const char *path, const char *tools, size_t len)
{
        cg_auto_free char *old = NULL;
        char list[PATH_MAX];
        size_t n;

        list_path(path, list);
        if (!tools || len > CG_PINS_MAX_LIST)
                unlink(list);
        else if (cg_pins_load_list(path, &old, &n, NULL) < 0 || n != len || memcmp(old, tools, n) != 0)
                cg_write_cache(list, tools, len, 0600, NULL);
}
