/* See accept.h. Texts of tools are a server's: cg_pin_diff() makes them safe to show. */
#include "mcp/pins/accept.h"

#include <termios.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/pins/pins.h"

/* A change of more lines than a screen has is followed by their number. */
#define LONG 20u

/*
 * All files of servers with that name, and those that cannot be read, which may be of any server:
 * [{"path", "pins"} or {"path", "error"}...] (returns).
 */
static int find_files(const char *server, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *found = json_array(), *paths = NULL;
        char folder[PATH_MAX];
        json_t *path;
        size_t i;
        int r = cg_state_folder(CG_PINS_FOLDER, folder, err);

        if (r < 0)
                return r;
        r = cg_state_files(folder, CG_PINS_MAX_FILES, &paths, err);
        if (r < 0)
                return r;
        json_array_foreach(paths, i, path) {
                cg_auto_json json_t *pins = NULL, *one = NULL;
                struct cg_err why;

                if (cg_pins_load(json_string_value(path), &pins, &why) < 0)
                        one = json_pack("{sO ss}", "path", path, "error", why.msg);
                else if (strcmp(json_string_value(json_object_get(pins, "server")), server) == 0)
                        one = json_pack("{sO sO}", "path", path, "pins", pins);
                else
                        continue;
                if (json_array_append(found, one) < 0)
                        return cg_fail(err, CG_E_NOMEM, "pins of tools");
        }
        *ret = CG_STEAL(found);
        return cg_made(*ret, "pins of tools", err);
}

/* Accepts the pending definition of @tool if it still has @digest. CG_E_STATE: it is another. */
static int store(const char *path, const char *tool, const char *digest, struct cg_err *err)
{
        cg_auto_json json_t *pins = NULL;
        cg_auto_fd int lock = -1;
        cg_auto_buf struct cg_buf shown = { .max = 4096 };
        json_t *pin, *pending, *copy;
        int r = cg_pins_lock(path, CG_PINS_ACCEPT_LOCK_MS, &lock, err);

        if (r < 0)
                return r;
        r = cg_pins_load(path, &pins, err);
        if (r < 0)
                return r;
        pin = json_object_get(json_object_get(pins, "tools"), tool);
        pending = json_object_get(pin, "pending");
        if (!pending || strcmp(json_string_value(json_object_get(pending, "sha256")), digest) != 0) {
                cg_text_render_as(&shown, tool, strlen(tool), 0, CG_TEXT_LINE);
                return cg_fail(err, CG_E_STATE, "tool %s has changed again meanwhile: nothing was accepted",
                               cg_buf_str(&shown));
        }
        copy = json_deep_copy(pending);
        if (!copy || json_object_set_new(json_object_get(pins, "tools"), tool, copy) < 0)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        return cg_pins_save(path, pins, err);
}

/* Reads one line; only "y" and "yes" accept. What was typed before the question does not count. */
static bool says_yes(void)
{
        char line[16], c = '\0';
        size_t n = 0;
        ssize_t r;

        tcflush(0, TCIFLUSH);
        cg_write_all(2, "Accept it? [y/N] ", 17, NULL);
        while ((r = read(0, &c, 1)) == 1 && c != '\n')
                if (n < sizeof(line) - 1)
                        line[n++] = c;
        line[n] = '\0';
        if (r != 1)
                cg_write_all(2, "\n", 1, NULL);
        return r == 1 && (strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0);
}

static int accept_one(struct cg_accept *a, const char *path, const char *program, const char *tool,
                      const json_t *pin, struct cg_err *err)
{
        const json_t *pending = json_object_get(pin, "pending");
        const char *digest = json_string_value(json_object_get(pending, "sha256"));
        cg_auto_buf struct cg_buf b = { .max = 2 * CG_PINS_MAX_SHOWN };
        bool known = json_object_get(pin, "sha256") != NULL;
        struct cg_slice then = CG_SLICE("{}");
        size_t hidden, lines = 0;
        int r;

        if (!pending)
                return 0;
        a->waiting++;
        cg_buf_adds(&b, "Tool ");
        cg_text_render_as(&b, tool, strlen(tool), 0, CG_TEXT_LINE);
        cg_buf_adds(&b, " of MCP server ");
        cg_text_render_as(&b, a->server, strlen(a->server), 0, CG_TEXT_LINE);
        cg_buf_adds(&b, " (");
        cg_text_render_as(&b, program, strlen(program), 0, CG_TEXT_LINE);
        cg_buf_addf(&b, ") %s:\n",
                    known ? "has changed since it was accepted"
                          : "is new, and its name looks like another tool's");
        if (known)
                then = cg_slice_or_none(json_string_value(json_object_get(pin, "text")));
        r = cg_pin_diff(then, cg_slice_or_none(json_string_value(json_object_get(pending, "text"))),
                        CG_PINS_MAX_SHOWN, &b, &hidden, err);
        if (r < 0)
                return r;
        for (const char *p = b.data; (p = strchr(p, '\n')); p++)
                lines++;
        hidden = hidden && !(a->yes && a->tool);
        if (hidden)
                cg_buf_adds(
                        &b,
                        "It is not accepted, since not all of it can be shown. `cellgate mcp accept` with the tool's name and --yes accepts it unseen.\n");
        else if (lines > LONG)
                cg_buf_addf(&b, "The change above has %zu lines.\n", lines - 1);
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        r = cg_write_all(2, b.data, b.len, err);
        if (r < 0 || hidden || (!a->yes && !says_yes()))
                return r;
        r = store(path, tool, digest, err);
        if (r < 0)
                return r;
        a->accepted++;
        return 0;
}

int cg_accept_tools(struct cg_accept *a, struct cg_err *err)
{
        cg_auto_json json_t *files = NULL;
        struct cg_err unread = { .code = 0 };
        const json_t *one;
        size_t i;
        int r = find_files(a->server, &files, err);

        json_array_foreach(files, i, one) {
                const char *path = json_string_value(json_object_get(one, "path")), *tool;
                const json_t *pins = json_object_get(one, "pins"), *pin;

                if (a->file && strcmp(a->file, path) != 0)
                        continue;
                if (!pins && unread.code == 0)
                        cg_fail(&unread, CG_E_PARSE, "%s", json_string_value(json_object_get(one, "error")));
                json_object_foreach(json_object_get(pins, "tools"), tool, pin) {
                        if (r < 0 || (a->tool && strcmp(a->tool, tool) != 0))
                                continue;
                        r = accept_one(a, path, json_string_value(json_object_get(pins, "program")), tool,
                                       pin, err);
                }
        }
        if (r < 0 || unread.code == 0)
                return r;
        if (!a->waiting)
                return cg_fail(err, CG_E_PARSE, "%s", unread.msg);
        /* It may be another server's. */
        cg_write_all(2, unread.msg, strlen(unread.msg), NULL);
        return cg_write_all(2, "\n", 1, err);
}
