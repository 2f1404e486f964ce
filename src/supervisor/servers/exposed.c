/* cellgate-supervisor: which paths cells can write, and which words of a definition lead there. */
#include "supervisor/servers/internal.h"

#include <ctype.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/path.h"
#include "base/util.h"
#include "sandbox/plan.h"
#include "sandbox/settings/view.h"

bool cg_sup_file_is_open(const struct check *c, const char *real)
{
        for (size_t i = 0; i < c->n_views; i++)
                if (cg_view_state(&c->views[i].rules, real) == CG_VIEW_WRITE)
                        return true;
        return false;
}

bool cg_sup_file_is_in_write_root(const struct check *c, const char *path)
{
        for (size_t i = 0; i < c->n_views; i++)
                if (cg_rules_may_write(&c->views[i].rules, path))
                        return true;
        return false;
}

bool cg_sup_file_is_exposed(const struct check *c, const char *path)
{
        struct cg_place place;
        bool found;

        if (cg_place_find(path, &place, NULL) < 0)
                return cg_sup_file_is_open(c, path);
        found = cg_sup_file_is_open(c, place.path);
        for (size_t i = 0; i < place.n_links && !found; i++)
                found = cg_sup_file_is_open(c, place.links[i]);
        cg_place_fini(&place);
        return found;
}

bool cg_sup_file_holds_write_root(const struct check *c, const char *folder)
{
        char real[PATH_MAX];

        if (!realpath(folder, real))
                return false;
        for (size_t i = 0; i < c->n_views; i++) {
                const struct cg_rules *rules = &c->views[i].rules;

                for (size_t k = 0; k < rules->n; k++)
                        if (rules->v[k].kind == CG_RULE_ALLOW_WRITE && cg_path_within(rules->v[k].path, real))
                                return true;
        }
        return false;
}

int cg_sup_server_refuse(struct check *c, const char *what, const char *path, const char *why)
{
        cg_auto_free struct check *one = malloc(sizeof(*one));
        char whose[PATH_MAX + 64] = "";

        /* The first view whose cells decide what @path is: of the session itself, or of another. */
        for (size_t i = 0; one && i < c->n_views; i++) {
                *one = *c;
                one->views = &c->views[i];
                one->n_views = 1;
                if (!cg_sup_file_is_exposed(one, path) && !cg_sup_file_holds_write_root(one, path))
                        continue;
                if (one->views->options != c->scope->options)
                        snprintf(whose, sizeof(whose), " (cells of another session, whose workspace is %s)",
                                 one->views->workspace);
                break;
        }
        return cg_fail(c->err, CG_E_INVAL,
                       "MCP server \"%s\": %s %s: %s%s. The server would run outside of the sandbox what "
                       "cells put there. Keep it in a folder that cells cannot write, deny writing there "
                       "(\"denyWrite\" in the settings file), or give the server a \"sandbox\" of its own",
                       c->name, what, path, why, whose);
}

int cg_sup_server_fail(struct check *c, const char *path, const char *why)
{
        return cg_fail(c->err, CG_E_LIMIT,
                       "MCP server \"%s\": whether cells can write its files cannot be checked: %s: %s. Keep "
                       "its program elsewhere, or give the server a \"sandbox\" of its own",
                       c->name, path, why);
}

/* The home folder of the user that "~NAME/..." names. */
static bool named_home(const char *spelled, char ret[PATH_MAX])
{
        char name[64], buf[4096];
        size_t n = strcspn(spelled + 1, "/");
        struct passwd pw, *found = NULL;

        if (spelled[0] != '~' || !n || n >= sizeof(name))
                return false;
        memcpy(name, spelled + 1, n);
        name[n] = '\0';
        return getpwnam_r(name, &pw, buf, sizeof(buf), &found) == 0 && found &&
               snprintf(ret, PATH_MAX, "%s%s", pw.pw_dir, spelled + 1 + n) < PATH_MAX;
}

int cg_sup_file_absolute(const struct check *c, const char *spelled, char ret[PATH_MAX])
{
        const char *home = c->scope->home;

        int n;

        if (named_home(spelled, ret))
                return 0;
        if (spelled[0] == '~' && (spelled[1] == '/' || !spelled[1]) && home)
                n = snprintf(ret, PATH_MAX, "%s%s", home, spelled + 1);
        else if (spelled[0] == '/')
                n = snprintf(ret, PATH_MAX, "%s", spelled);
        else
                n = snprintf(ret, PATH_MAX, "%s/%s", c->cwd, spelled);
        return n < 0 || n >= PATH_MAX ? CG_E_LIMIT : 0;
}

/*
 * @piece of a word, from its first "/" (as in -I/lib, file:///lib, @/file), or as a name below the
 * working folder.
 */
static bool piece_is_exposed(const struct check *c, const char *piece, char found[PATH_MAX])
{
        const char *slash = strchr(piece, '/');

        if (!*piece || (c->defer && piece[0] != '/' && piece[0] != '~' && !slash))
                return false;
        if (c->defer && piece[0] != '/' && piece[0] != '~')
                return cg_sup_file_absolute(c, slash, found) == 0 && cg_sup_file_is_exposed(c, found);
        if ((slash || strncmp(piece, "..", 2) == 0 || !c->own_cwd) &&
            cg_sup_file_absolute(c, piece, found) == 0 && cg_sup_file_is_exposed(c, found))
                return true;
        return slash && slash != piece && cg_sup_file_absolute(c, slash, found) == 0 &&
               cg_sup_file_is_exposed(c, found);
}

/* Finds @root as a substring of @text: "cd /work && npm start". */
static bool names_folder(const struct check *c, const char *root, const char *text, char found[PATH_MAX])
{
        size_t n = strlen(root);

        if (n < 2)
                return false;
        for (const char *p = text; (p = strstr(p, root)); p++) {
                size_t len = n + strcspn(p + n, " \t\n:;,='\"`|&<>()");

                if ((p[n] && (isalnum((unsigned char)p[n]) || strchr("._-", p[n]))) || len >= PATH_MAX)
                        continue;
                memcpy(found, p, len);
                found[len] = '\0';
                if (cg_sup_file_is_exposed(c, found))
                        return true;
        }
        return false;
}

static bool words_are_exposed(const struct check *c, const char *text, char found[PATH_MAX])
{
        static const char separators[] = " \t\n:;,='\"`|&<>()";
        cg_auto_free char *copy = strdup(text);
        char *save = NULL;

        if (!copy || piece_is_exposed(c, text, found))
                return true;
        for (size_t i = 0; i < c->n_views; i++) {
                const struct cg_rules *rules = &c->views[i].rules;

                if (names_folder(c, c->views[i].workspace, text, found))
                        return true;
                for (size_t k = 0; k < rules->n; k++)
                        if (rules->v[k].kind == CG_RULE_ALLOW_WRITE &&
                            names_folder(c, rules->v[k].path, text, found))
                                return true;
        }
        for (char *p = strtok_r(copy, separators, &save); p; p = strtok_r(NULL, separators, &save))
                if (piece_is_exposed(c, p, found))
                        return true;
        return false;
}

bool cg_sup_text_expand(const struct check *c, const char *text, struct cg_buf *ret)
{
        const json_t *env = json_object_get(c->def, "env");

        while (*text) {
                bool braces = text[0] == '$' && text[1] == '{';
                const char *p = text + 1 + braces, *value = NULL;
                size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
                char name[128];

                if (text[0] == '$' && n && n < sizeof(name)) {
                        snprintf(name, sizeof(name), "%.*s", (int)n, p);
                        value = json_string_value(json_object_get(env, name));
                        if (!value && strcmp(name, "HOME") == 0)
                                value = c->scope->home;
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

bool cg_sup_text_is_exposed(const struct check *c, const char *text, char found[PATH_MAX])
{
        cg_auto_buf struct cg_buf expanded = { .max = (size_t)1 << 20 };

        if (words_are_exposed(c, text, found))
                return true;
        if (!strchr(text, '$'))
                return false;
        snprintf(found, PATH_MAX, "more than 1 MiB of text, which cannot be searched");
        return !cg_sup_text_expand(c, text, &expanded) || words_are_exposed(c, expanded.data ?: "", found);
}
