/*
 * cellgate-supervisor: one definition of an MCP server. What leads to where cells write is refused,
 * unless the definition says what it is: "code" becomes read-only in every kernel (a guard), "data"
 * stays writable. What servers inherit, PATH and settings and caches in the home folder, is kept
 * free of what cells write.
 */
#include "supervisor/servers/internal.h"

#include "base/fd.h"
#include "base/json.h"
#include "sandbox/plan.h"
#include "sandbox/settings/git_settings.h"
#include "sandbox/settings/view.h"

/* Paths of "code" and of "data": each of the former is a mount of every kernel. */
#define SAID_MAX 64

/* ------------------------------------------------------------------ "code" and "data" */

/* *place: what @spelled, an element of @key, is. */
static int find_said(struct check *c, const char *key, const json_t *spelled, struct cg_place *place)
{
        const char *text = json_string_value(spelled);
        char path[PATH_MAX];
        int r;

        if (!text || (text[0] != '/' && strncmp(text, "~/", 2) != 0) || strlen(text) >= PATH_MAX)
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": \"%s\" must be an array of absolute paths, not %.200s",
                               c->name, key, text ?: "something else");
        cg_sup_file_absolute(c, text, path);
        r = cg_place_find(path, place, c->err);
        if (r < 0)
                return cg_err_prefix(c->err, "MCP server \"%s\": \"%s\"", c->name, key);
        for (size_t i = 0; i < place->n_links; i++)
                if (cg_sup_file_is_open(c, place->links[i]))
                        return cg_fail(
                                c->err, CG_E_INVAL,
                                "MCP server \"%s\": \"%s\": %s leads through the link %s, which cells can "
                                "write: name what it leads to, %s",
                                c->name, key, path, place->links[i], place->path);
        return 0;
}

static int guard_code(struct check *c, const struct cg_place *place)
{
        char path[PATH_MAX + 2], up[PATH_MAX];

        cg_path_parent(place->path, up);
        if (cg_sup_file_holds_write_root(c, place->path))
                return cg_fail(
                        c->err, CG_E_INVAL,
                        "MCP server \"%s\": \"code\": %s is a folder that cells work in, or holds one: keep the "
                        "program in a folder of its own, and name that",
                        c->name, place->path);
        if (!cg_sup_file_is_open(c, place->path))
                return 0;
        if (!place->missing && !place->folder && cg_sup_file_is_open(c, up))
                return cg_fail(
                        c->err, CG_E_INVAL,
                        "MCP server \"%s\": \"code\": %s is in a folder that cells write, and so would be what it "
                        "imports: keep it in a folder of its own, and name that",
                        c->name, place->path);
        snprintf(path, sizeof(path), "%s%s", place->path, place->missing || place->folder ? "/" : "");
        return cg_sup_server_add_guard(c, path) ?: cg_sup_server_guard_above(c, place->path);
}

static int read_said(struct check *c, const char *key, bool code)
{
        const json_t *list = json_object_get(c->def, key), *v;
        json_t *searched = json_object_get(c->ask, "code");
        size_t i;

        if (list && !json_is_null(list) && (!json_is_array(list) || json_array_size(list) > SAID_MAX))
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": \"%s\" must be an array of at most %d paths", c->name, key,
                               SAID_MAX);
        json_array_foreach(list, i, v) {
                cg_auto_place struct cg_place place = { .path = "" };

                if (find_said(c, key, v, &place) < 0)
                        return -1;
                if (json_array_append_new(code ? searched : c->data, json_string(place.path)) < 0)
                        return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": \"%s\": a path is not UTF-8",
                                       c->name, key);
                if (code && guard_code(c, &place) < 0)
                        return -1;
        }
        return 0;
}

/* ------------------------------------------------------------------ what it inherits */

/* True if @root is a folder of settings or caches in @home: ~/.npm, ~/.cache/uv, ~/go. */
static bool is_start_folder(const char *root, const char *home)
{
        static const char *const bases[] = {
                "", "/.cache", "/.config", "/.local", "/.local/share", "/.local/lib", "/.local/state"
        };
        static const char *const visible[] = { "go", "R", "node_modules", "perl5" };
        size_t n = strlen(home);
        char up[PATH_MAX];

        if (!cg_path_within(root, home) || !root[n])
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(visible); i++)
                if (strcmp(root + n + 1, visible[i]) == 0)
                        return true;
        cg_path_parent(root, up);
        for (size_t i = 0; i < CG_ARRAY_LEN(bases); i++)
                if (strcmp(up + n, bases[i]) == 0)
                        return i || root[n + 1] == '.';
        return false;
}

/*
 * A write root that is such a folder becomes read-only. Where cells work in the home folder itself,
 * settings, caches and packages of all programs would be theirs.
 */
static int guard_home_of(struct check *c, const struct server_view *view, const char *home)
{
        char workspace[PATH_MAX], path[PATH_MAX + 2];
        size_t n = view->rules.n;

        if (cg_view_state(&view->rules, home) == CG_VIEW_WRITE &&
            cg_sup_server_unsaid(
                    c, "its home folder is", home,
                    "cells can write there, and programs obey settings in it: give the server another"
                    " HOME in \"env\"",
                    false) < 0)
                return -1;
        for (size_t i = 0; i < n; i++) {
                const char *root = view->rules.v[i].path;
                int r;

                if (view->rules.v[i].kind != CG_RULE_ALLOW_WRITE || !is_start_folder(root, home) ||
                    cg_sup_file_is_data(c, root))
                        continue;
                snprintf(path, sizeof(path), "%s/", root);
                if (!realpath(view->workspace, workspace) || !cg_path_within(workspace, root))
                        r = cg_sup_server_add_guard(c, path);
                else
                        r = cg_sup_server_unsaid(c, "its home folder has settings or caches in", root,
                                                 "cells can write there", true);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int guard_home(struct check *c, const char *home)
{
        char real[PATH_MAX];

        if (!home || home[0] != '/' || !realpath(home, real) || !real[1])
                return 0;
        for (size_t i = 0; i < c->scope->n_views; i++)
                if (guard_home_of(c, &c->scope->views[i], real) < 0)
                        return -1;
        return 0;
}

static int guard_git_settings_of(struct check *c, const struct cg_rules *cells,
                                 const struct cg_path_base *base)
{
        cg_auto_rules struct cg_rules rules = { .base = base };
        char path[PATH_MAX + 1];
        int r;

        for (size_t i = 0; i < cells->n; i++) {
                struct cg_place root = { .folder = cells->v[i].folder };

                if (cells->v[i].kind != CG_RULE_ALLOW_WRITE)
                        continue;
                snprintf(root.path, sizeof(root.path), "%s", cells->v[i].path);
                r = cg_rules_add(&rules, CG_RULE_ALLOW_WRITE, &root, "server", c->err);
                if (r < 0)
                        return r;
        }
        r = cg_git_deny_user(&rules, NULL, c->err);
        for (size_t i = 0; i < rules.n && r == 0; i++) {
                const struct cg_rule *rule = &rules.v[i];

                snprintf(path, sizeof(path), "%s%s", rule->path, rule->folder ? "/" : "");
                if (rule->kind != CG_RULE_ALLOW_WRITE && cg_sup_file_is_open(c, rule->path))
                        r = cg_sup_server_add_guard(c, path);
        }
        return r;
}

/*
 * What git's settings name for a server whose variables differ from those of the user: the rules of
 * kernels protect what the user's own settings name.
 */
static int guard_git_settings(struct check *c, const char *home)
{
        struct cg_path_base base = {
                .cwd = c->cwd, .home = home, .env = json_object_get(c->def, "env"), .by_name = true
        };
        int r = 0;

        for (size_t i = 0; i < c->scope->n_views && r == 0; i++)
                r = guard_git_settings_of(c, &c->scope->views[i].rules, &base);
        return r;
}

static bool next_entry(const char **list, char entry[PATH_MAX])
{
        size_t n = strcspn(*list, ":");

        if (!**list)
                return false;
        snprintf(entry, PATH_MAX, "%.*s", n < PATH_MAX ? (int)n : 0, *list);
        *list += n + ((*list)[n] == ':');
        return true;
}

static void add_entry(struct cg_buf *b, const char *entry)
{
        if (b->len)
                cg_buf_adds(b, ":");
        cg_buf_adds(b, entry);
}

/*
 * Leaves out what leads to where cells write. PATH becomes what is left of it, without entries that
 * mean the working folder. A server that has its variables already keeps them: what cells of a new
 * session write of its PATH, TMPDIR and SHELL becomes read-only for them, or they have no session.
 */
static int set_variables(struct check *c, json_t *inherit)
{
        static const char *const folders[] = { "TMPDIR", "SHELL" };
        json_t *variables = c->path_is_own ? json_object_get(c->def, "env") : inherit;
        cg_auto_buf struct cg_buf path = { .max = (size_t)1 << 20 };
        char entry[PATH_MAX], what[64];
        int r;

        for (const char *list = c->path; next_entry(&list, entry);) {
                bool exposed = entry[0] == '/' && cg_sup_file_is_exposed(c, entry);

                if (entry[0] != '/')
                        continue;
                if (exposed && (c->path_is_own || !c->folder)) {
                        if (cg_sup_server_unsaid(c, "the entry of its \"PATH\",", entry,
                                                 "cells can write there", false) < 0)
                                return -1;
                        exposed = cg_sup_file_is_exposed(c, entry); /* a guard may be there now */
                }
                add_entry(exposed ? &c->left_out : &path, entry);
        }
        if ((r = cg_buf_end(&path, c->err)) < 0 || (r = cg_buf_end(&c->left_out, c->err)) < 0)
                return r;
        json_object_set_new(variables, "PATH", json_string(path.data ?: ""));
        /* The old string is gone. */
        c->path = cg_json_text_of(variables, "PATH");
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                const char *text = json_string_value(json_object_get(inherit, folders[i]));

                if (!text || (text[0] == '/' && !cg_sup_file_is_exposed(c, text)))
                        continue;
                snprintf(what, sizeof(what), "its variable %s leads to", folders[i]);
                if (c->folder)
                        json_object_del(inherit, folders[i]);
                else if (cg_sup_server_unsaid(c, what, text, "cells can write there", false) < 0)
                        return -1;
        }
        return 0;
}

/* ------------------------------------------------------------------ the working folder */

/*
 * A private folder. Package managers look for their settings in the folders above as well, up to
 * one with a project's file; if the runtime folder is in /tmp, other users could put such settings
 * there.
 */
static int make_cwd(struct check *c)
{
        static const char *const ends[] = { "package.json", "{}\n", "uv.toml", "" };
        char path[PATH_MAX + 32];
        int n = snprintf(c->cwd, sizeof(c->cwd), "%s/servers", c->scope->dir);

        mkdir(c->cwd, 0700);
        snprintf(c->cwd + n, sizeof(c->cwd) - (size_t)n, "/%u", c->folder);
        if (mkdir(c->cwd, 0700) < 0)
                return cg_fail_errno(c->err, "cannot make %s", c->cwd);
        for (size_t i = 0; i < CG_ARRAY_LEN(ends); i += 2) {
                cg_auto_fd int fd = -1;

                snprintf(path, sizeof(path), "%s/%s", c->cwd, ends[i]);
                fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                if (fd < 0 || cg_write_all(fd, ends[i + 1], strlen(ends[i + 1]), c->err) < 0)
                        return cg_fail_errno(c->err, "cannot make %s", path);
        }
        c->own_cwd = true;
        /* Relative entries of its sandbox's settings mean the folder that the session works in. */
        if (json_object_set_new(c->def, "cwd", json_string(c->cwd)) < 0 ||
            json_object_set_new(c->def, "base", json_string(c->scope->workspace)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return 0;
}

static int find_cwd(struct check *c)
{
        json_t *cwd = json_object_get(c->def, "cwd");
        const char *text = json_string_value(cwd);

        if (!cwd || json_is_null(cwd) || !text)
                return make_cwd(c); /* of another type: the tool server refuses it */
        if (text[0] != '/')
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": \"cwd\" must be an absolute path, not \"%s\"", c->name,
                               text);
        if (strlen(text) >= sizeof(c->cwd))
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": \"cwd\" is longer than %d bytes",
                               c->name, PATH_MAX);
        snprintf(c->cwd, sizeof(c->cwd), "%s", text);
        /* A later session finds the private folder that the first check has made. */
        c->own_cwd = json_object_get(c->def, "base") != NULL;
        return 0;
}

static int check_cwd(struct check *c)
{
        static const char
                what[] = "it would start in the folder (\"cwd\")",
                writes[] =
                        "cells can write there, and interpreters look first for modules and settings in the"
                        " folder that they start in";

        if (c->own_cwd || cg_sup_file_is_data(c, c->cwd))
                return 0;
        if (cg_sup_file_is_exposed(c, c->cwd))
                return cg_sup_server_unsaid(c, what, c->cwd, writes, true);
        if (cg_sup_file_holds_write_root(c, c->cwd))
                return cg_sup_server_unsaid(c, what, c->cwd, "it contains a folder that cells can write",
                                            true);
        return 0;
}

/* With no working folder of its own a relative name leads nowhere: say so, where one was meant. */
static int check_relative(struct check *c, const char *what, const char *word)
{
        const char *workspace = c->scope->workspace;
        char here[PATH_MAX], path[2 * PATH_MAX];
        const char *folders[] = { workspace, getcwd(here, sizeof(here)) };
        struct stat st;

        if (!c->own_cwd || !word || word[0] == '/' || word[0] == '-' || !*word || !strpbrk(word, "./"))
                return 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                if (!folders[i] || snprintf(path, sizeof(path), "%s/%s", folders[i], word) >= PATH_MAX ||
                    stat(path, &st) < 0 || !S_ISREG(st.st_mode))
                        continue;
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": %s \"%s\" is relative to the folder "
                               "that cellgate was started in, but servers start in a "
                               "folder of their own, which cells cannot write: give the "
                               "whole path, %s",
                               c->name, what, word, path);
        }
        return 0;
}

/* ---------------------------------------------------------------- program, arguments, variables */

/*
 * Where a command without "/" is found. Entries that cells can write come last, and then the command
 * is refused: a program that a cell has put into one does not take the place of another.
 */
static void look_up(struct check *c, const char *command, char ret[PATH_MAX])
{
        char entry[PATH_MAX], path[PATH_MAX];

        for (int exposed = 0; exposed < 2 && !ret[0]; exposed++)
                for (const char *list = c->path; !ret[0] && next_entry(&list, entry);)
                        if (entry[0] == '/' && cg_path_join(path, entry, command) &&
                            access(path, X_OK) == 0 && cg_sup_file_is_exposed(c, entry) == (exposed == 1))
                                memcpy(ret, path, strlen(path) + 1);
}

static int check_command(struct check *c)
{
        const char *command = json_string_value(json_object_get(c->def, "command"));
        char found[PATH_MAX] = "";
        int r;

        if (!command || !*command)
                return 0; /* the tool server says what is wrong with it */
        if (strchr(command, '/')) {
                r = check_relative(c, "the command", command);
                if (r < 0)
                        return r;
                if (c->own_cwd && command[0] != '/')
                        return cg_fail(
                                c->err, CG_E_INVAL,
                                "MCP server \"%s\": the command \"%s\" is relative: give its whole path, "
                                "or a \"cwd\"",
                                c->name, command);
                if (cg_sup_file_absolute(c, command, found) < 0)
                        return cg_fail(c->err, CG_E_LIMIT,
                                       "MCP server \"%s\": the path of its program is too long", c->name);
        } else {
                look_up(c, command, found);
        }
        if (!found[0])
                return 0;
        if (cg_sup_file_is_exposed(c, found) &&
            cg_sup_server_unsaid(c, "its program", found,
                                 cg_sup_path_is_present(found)
                                         ? "cells can write there"
                                         : "it does not exist, and cells could create it",
                                 false) < 0)
                return -1;
        json_object_set_new(c->ask, "command", json_string(found));
        json_object_set_new(c->def, "command", json_string(found));
        return 0;
}

static int check_relative_args(struct check *c)
{
        const json_t *v;
        size_t i;

        json_array_foreach(json_object_get(c->def, "args"), i, v) {
                if (check_relative(c, "the argument", json_string_value(v)) < 0)
                        return -1;
        }
        return 0;
}

static int check_args(struct check *c)
{
        const json_t *args = json_object_get(c->def, "args"), *v;
        char what[PATH_MAX + 32];
        size_t i;

        json_array_foreach(args, i, v) {
                const char *word = json_string_value(v);

                if (!word)
                        return 0; /* the tool server says what is wrong with it */
                snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
                json_array_append(json_object_get(c->ask, "words"), cg_json_unconst(v));
                if (cg_sup_text_check(c, what, word, true) < 0)
                        return -1;
        }
        return 0;
}

/* The home folder is no data: programs obey settings in it. Nor is it searched. */
static int check_env(struct check *c)
{
        const char *name;
        json_t *value;

        json_object_foreach(json_object_get(c->def, "env"), name, value) {
                const char *text = json_string_value(value);
                char what[200];

                if (!text || strcmp(name, "PATH") == 0)
                        continue;
                snprintf(what, sizeof(what), "the variable %.100s leads to", name);
                if (cg_sup_text_check(c, what, text, strcmp(name, "HOME") != 0) < 0)
                        return -1;
        }
        return 0;
}

/* --------------------------------------------------------- what cellgate-search looks for */

static int begin_ask(struct check *c)
{
        c->ask = json_pack("{s:[], s:[], s:{}, s:[s]}", "code", "words", "named", "prefixes", "/usr/local");
        c->named = json_object_get(c->ask, "named");
        return cg_made(c->ask, "MCP server", c->err);
}

/* A path that the server may load from, and that cells cannot write. */
static int guard_above(struct check *c, const char *path)
{
        char real[PATH_MAX];

        return realpath(path, real) ? cg_sup_server_guard_above(c, real) : 0;
}

static int end_ask(struct check *c, const char *home)
{
        const char *const prefixes[] = { cg_json_text_of(json_object_get(c->def, "env"), "PYTHONUSERBASE"),
                                         cg_json_text_of(json_object_get(c->def, "env"), "PYTHONHOME") };
        json_t *list = json_object_get(c->ask, "prefixes"), *named = json_array();
        const char *path;
        json_t *v;
        size_t n;

        json_object_foreach(c->named, path, v)
                json_array_append_new(named, json_string(path));
        json_object_set_new(c->ask, "named", named);
        c->named = NULL;
        if (guard_above(c, cg_json_text_of(c->ask, "command")) < 0)
                return -1;
        json_array_foreach(named, n, v) {
                if (guard_above(c, json_string_value(v)) < 0)
                        return -1;
        }
        if (home && home[0] == '/')
                json_array_append_new(list, json_sprintf("%s/.local", home));
        for (size_t i = 0; i < CG_ARRAY_LEN(prefixes); i++)
                if (prefixes[i][0] == '/')
                        json_array_append_new(list, json_string(prefixes[i]));
        json_array_append(json_object_get(c->ask, "words"), json_object_get(c->def, "command"));
        json_object_set_new(c->ask, "path", json_string(c->path));
        if (!c->own_cwd && !cg_sup_file_is_data(c, c->cwd))
                json_object_set_new(c->ask, "cwd", json_string(c->cwd));
        json_object_set(c->ask, "data", c->data);
        return 0;
}

/* ------------------------------------------------------------------ the whole definition */

static int check_program(struct check *c)
{
        json_t *given = json_object_get(c->def, "inherit"), *env = json_object_get(c->def, "env");
        cg_auto_json json_t *inherit = json_is_object(given) ? json_deep_copy(given) : cg_json_passed_env();
        const json_t *sandbox = json_object_get(c->def, "sandbox");
        const char *home = json_string_value(json_object_get(env, "HOME"));

        c->inherit = inherit;
        c->path = json_string_value(json_object_get(env, "PATH"));
        c->path_is_own = c->path != NULL;
        if (!c->path)
                c->path = cg_json_text_of(inherit, "PATH");
        if (!home)
                home = json_string_value(json_object_get(inherit, "HOME"));
        if (json_is_string(sandbox) && json_string_value(sandbox)[0] == '/' &&
            cg_sup_file_is_exposed(c, json_string_value(sandbox)) &&
            cg_sup_server_add_guard(c, json_string_value(sandbox)) < 0)
                return -1;
        if (begin_ask(c) < 0 || read_said(c, "data", false) < 0 || read_said(c, "code", true) < 0)
                return -1;
        if (check_cwd(c) < 0 || check_command(c) < 0 || check_args(c) < 0 || guard_home(c, home) < 0 ||
            guard_git_settings(c, home) < 0 || check_env(c) < 0)
                return -1;
        if ((c->scope->n_views && set_variables(c, inherit) < 0) || cg_sup_server_check_unsaid(c) < 0 ||
            check_relative_args(c) < 0 || end_ask(c, home) < 0)
                return -1;
        c->path = ""; /* that of inherit, perhaps */
        c->inherit = NULL;
        json_object_set(c->def, "inherit", inherit);
        return 0;
}

/* A server with an address starts no program: only its file of authorities is checked. */
static int check_url(struct check *c)
{
        const char *file = json_string_value(json_object_get(c->def, "caFile"));

        if (!file || file[0] != '/' || !cg_sup_file_is_exposed(c, file))
                return 0;
        return cg_fail(c->err, CG_E_INVAL,
                       "MCP server \"%s\": \"caFile\" %s: cells can write there, and could make this "
                       "server trust others. Keep it in a folder that cells cannot write",
                       c->name, file);
}

/* The longest time for a question about a host, seconds; as for kernels (egress.c). */
#define ASK_MAX_S (24 * 60 * 60)

/* The session's options about the sandboxes of its servers. */
static int add_context(struct check *c)
{
        json_t *hide = json_object_get(c->scope->options, "hide");
        int64_t timeout_ms = 0, ask_s = ASK_MAX_S;

        if (hide && json_object_set(c->def, "hide", hide) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        if (!json_is_true(json_object_get(c->scope->options, "ask_egress")))
                return 0;
        cg_json_int(c->scope->options, "approval_timeout_ms", 0, &timeout_ms, NULL);
        if (timeout_ms > 0 && timeout_ms < ask_s * 1000)
                ask_s = (timeout_ms + 999) / 1000;
        if (json_object_set_new(c->def, "ask", json_integer(ask_s)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return 0;
}

int cg_sup_server_check(struct check *c, const struct server_scope *scope, const char *name,
                        const json_t *definition, unsigned int folder, struct cg_err *err)
{
        *c = (struct check){ .scope = scope,
                             .name = name,
                             .folder = folder,
                             .err = err,
                             .def = json_deep_copy(definition),
                             .guards = json_array(),
                             .data = json_array() };
        cg_buf_init(&c->left_out, (size_t)1 << 20);
        if (!c->def || !c->guards || !c->data)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        /* Each definition records all its guards, whoever else has them. */
        for (size_t i = 0; i < scope->n_views; i++) {
                struct server_view *v = &scope->views[i];

                cg_rules_cut(&v->rules, v->n_rules);
                v->rules.linked = v->linked;
        }
        if (json_object_get(c->def, "command")) {
                if (find_cwd(c) < 0 || check_program(c) < 0)
                        return -1;
        } else if (check_url(c) < 0) {
                return -1;
        }
        return add_context(c);
}

void cg_sup_server_check_fini(struct check *c)
{
        json_decref(c->def);
        json_decref(c->guards);
        json_decref(c->data);
        json_decref(c->ask);
        json_decref(c->unsaid.data);
        cg_buf_fini(&c->left_out);
}
