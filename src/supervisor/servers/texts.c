/*
 * cellgate-supervisor: paths in the arguments and variables of an MCP server. Any text may have
 * some, in lists, in options and in lines for a shell: each part that leads to where cells write
 * counts as one.
 */
#include "supervisor/servers/internal.h"

#include <ctype.h>
#include "base/json.h"

/* From whole lines to the words of a shell. */
static const char *const separators[] = { "\n", ":", ":=", " \t\n:;,='\"`|&<>()#" };

#define ANY_SEPARATOR (separators[CG_ARRAY_LEN(separators) - 1])

/* One text while it is checked. */
struct checked_text {
        struct check *c;
        const char *what;
        bool data;
};

/* True if @key has @path, or a folder above it, and what follows that has no separators. */
static bool is_said(const struct check *c, const char *key, const char *path)
{
        const json_t *v;
        size_t i;

        json_array_foreach(json_object_get(c->def, key), i, v) {
                size_t n = strlen(json_string_value(v));

                if (strncmp(path, json_string_value(v), n) == 0 && (!path[n] || path[n] == '/') &&
                    !path[n + strcspn(path + n, ANY_SEPARATOR)])
                        return true;
        }
        return false;
}

/* True if "/a /b" is no path: its first part with a separator is not there. */
static bool is_absent(const char *path)
{
        char part[PATH_MAX];
        struct stat st;
        size_t n = 0;

        while (path[n += strcspn(path + n, ANY_SEPARATOR)]) {
                n += strcspn(path + n, "/");
                snprintf(part, sizeof(part), "%.*s", (int)n, path);
                if (lstat(part, &st) < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG))
                        return true;
        }
        return false;
}

/* @path is absolute. Positive: it is one path as a whole, whose parts lead nowhere. */
static int check_path(struct checked_text *t, const char *path)
{
        struct check *c = t->c;
        char folder[PATH_MAX];

        if (!is_said(c, "data", path) && is_absent(path))
                return 0; /* its parts are paths */
        if (cg_sup_file_is_exposed(c, path)) {
                if (t->data && cg_sup_file_is_data(c, path))
                        return is_said(c, "data", path);
                return cg_sup_server_unsaid(c, t->what, path, "cells can write there", t->data) < 0 ? -1 : 1;
        }
        snprintf(folder, sizeof(folder), "%s", path);
        if (!cg_sup_path_is_present(folder) && folder[strcspn(folder, "*?#")]) {
                /* the folder of a pattern: /opt/lib/?.lua */
                folder[strcspn(folder, "*?#")] = '\0';
                *strrchr(folder, '/') = '\0';
        }
        if (t->data && cg_sup_path_is_present(folder) && !cg_sup_file_is_data(c, folder) &&
            json_object_set_new(c->named, folder, json_true()) < 0)
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": %s %s cannot be checked: its name is not UTF-8", c->name,
                               t->what, folder);
        return is_said(c, "code", path);
}

/*
 * @piece of a text, from its first "/" (as in -I/lib, file:///lib, @/file), or as a name below the
 * working folder.
 */
static int check_piece(struct checked_text *t, const char *piece)
{
        const char *slash = strchr(piece, '/');
        bool rooted = piece[0] == '/' || piece[0] == '~';
        char path[PATH_MAX];
        int r = 0;

        if (!*piece)
                return 0;
        if ((rooted || strncmp(piece, "..", 2) == 0 || !t->c->own_cwd) &&
            cg_sup_file_absolute(t->c, piece, path) == 0)
                r = check_path(t, path);
        if (r == 0 && slash && !rooted && cg_sup_file_absolute(t->c, slash, path) == 0)
                r = check_path(t, path);
        return r;
}

/* @text and its parts, by separators[@level] and those that follow. */
static int check_parts(struct checked_text *t, const char *text, size_t level)
{
        cg_auto_free char *copy = NULL;
        char *save = NULL;
        int r = check_piece(t, text);

        if (r != 0 || level == CG_ARRAY_LEN(separators))
                return r;
        copy = strdup(text);
        if (!copy)
                return cg_fail(t->c->err, CG_E_NOMEM, "MCP server");
        for (char *p = strtok_r(copy, separators[level], &save); p && r == 0;
             p = strtok_r(NULL, separators[level], &save))
                r = CG_MIN(check_parts(t, p, level + 1), 0);
        return r;
}

/* Finds @root, whose name may have separators, in @text: "cd /my work && npm start". */
static int check_folder(struct checked_text *t, const char *root, const char *text)
{
        size_t n = strlen(root);
        char path[PATH_MAX];

        if (n < 2)
                return 0;
        for (const char *p = text; (p = strstr(p, root)); p++) {
                size_t len = n + strcspn(p + n, ANY_SEPARATOR);

                if ((p[n] && (isalnum((unsigned char)p[n]) || strchr("._-", p[n]))) || len >= PATH_MAX)
                        continue;
                memcpy(path, p, len);
                path[len] = '\0';
                if (cg_sup_file_is_exposed(t->c, path) && !(t->data && cg_sup_file_is_data(t->c, path)) &&
                    cg_sup_server_unsaid(t->c, t->what, path, "cells can write there", t->data) < 0)
                        return -1;
        }
        return 0;
}

static int check_text(struct checked_text *t, const char *text)
{
        const struct server_scope *scope = t->c->scope;
        int r = check_parts(t, text, 0);

        if (r != 0) /* nothing but one path */
                return CG_MIN(r, 0);
        for (size_t i = 0; i < scope->n_views && r == 0; i++) {
                const struct cg_rules *rules = &scope->views[i].rules;

                r = check_folder(t, scope->views[i].workspace, text);
                for (size_t k = 0; k < rules->n && r == 0; k++)
                        if (rules->v[k].kind == CG_RULE_ALLOW_WRITE)
                                r = check_folder(t, rules->v[k].path, text);
        }
        return r;
}

/* @text with variables expanded as by a shell. False: it is longer than @ret may be. */
static bool expand(const struct check *c, const char *text, struct cg_buf *ret)
{
        const json_t *env = json_object_get(c->def, "env");

        while (*text) {
                bool braces = text[0] == '$' && text[1] == '{';
                const char *p = text + 1 + braces, *value = NULL;
                size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
                char name[128];

                if (text[0] == '$' && n && n < sizeof(name)) {
                        snprintf(name, sizeof(name), "%.*s", (int)n, p);
                        value = json_string_value(json_object_get(env, name)
                                                          ?: json_object_get(c->inherit, name));
                }
                if (value) {
                        cg_buf_adds(ret, value);
                        text = p + n + (braces && p[n] == '}');
                } else {
                        cg_buf_add(ret, text++, 1);
                }
        }
        return cg_buf_end(ret, NULL) == 0;
}

int cg_sup_text_check(struct check *c, const char *what, const char *text, bool data)
{
        cg_auto_buf struct cg_buf expanded = { .max = (size_t)1 << 20 };
        struct checked_text t = { .c = c, .what = what, .data = data };
        int r = check_text(&t, text);

        if (r < 0 || !strchr(text, '$'))
                return r;
        if (!expand(c, text, &expanded))
                return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": %s more than 1 MiB of text", c->name,
                               what);
        return check_text(&t, expanded.data ?: "");
}
