/*
 * cellgate-supervisor: which files an MCP server runs. Servers run outside of the sandbox, so
 * nothing that one loads may be what a cell can write: a definition that leads there is refused, or
 * what it leads to becomes read-only in every kernel (a guard).
 *
 * Everything here is decided from the definition alone, before the server starts. What a cell may
 * write later is refused by name, whether it exists yet or not; so a restart finds the same files.
 */
#include "supervisor/servers/internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/util.h"
#include "sandbox/plan.h"
#include "sandbox/settings/git_settings.h"

/* ------------------------------------------------------------------ variables */

/* Names that begin so decide what is run, whatever follows. */
static const char *const code_prefixes[] = {
        "UV_",      "PIP_",   "PIPX_",       "NPM_",  "npm_",   "YARN_",   "PNPM_",   "BUN_",   "DENO_",
        "NODE_",    "PYTHON", "VIRTUAL_ENV", "CONDA", "RUBY",   "GEM_",    "BUNDLE_", "PERL",   "PHP",
        "LUA_",     "JAVA",   "JDK_",        "_JAVA", "MAVEN_", "GRADLE_", "DOTNET_", "LD_",    "GCONV_",
        "OPENSSL_", "GIT_",   "XDG_",        "GO",    "CARGO_", "RUST",    "R_",      "JULIA_", "TCL",
        "BASH_",    "ENV",    "ZDOTDIR",     "HOME",  "SHELL",  "TMPDIR",  "PATH"
};
/* Words in other names: what the server works on. */
static const char data_words[] = "DATA DATABASE DB SQLITE DUCKDB MEMORY WORKSPACE WORKSPACES REPO REPOS "
                                 "REPOSITORY PROJECT ALLOWED OUTPUT OUT LOG LOGS VAULT NOTES DOCS DOCUMENTS "
                                 "DOWNLOAD DOWNLOADS UPLOAD UPLOADS STORAGE INPUT FILES FILESYSTEM";

/* Words that make code of it all the same. */
static const char code_words[] = "PLUGIN PLUGINS EXTENSION EXTENSIONS MODULE MODULES SCRIPT SCRIPTS LIB LIBS "
                                 "LIBRARY "
                                 "COMMAND CMD EXEC EXECUTABLE BIN BINARY PYTHON NODE HOOK HOOKS PRELOAD "
                                 "LOADER "
                                 "STARTUP CONFIG";

static bool is_data_variable(const char *name)
{
        cg_auto_free char *copy = strdup(name);
        char *save = NULL;
        bool data = false;

        for (size_t i = 0; i < CG_ARRAY_LEN(code_prefixes); i++)
                if (strncmp(name, code_prefixes[i], strlen(code_prefixes[i])) == 0)
                        return false;
        for (char *p = copy ? strtok_r(copy, "_", &save) : NULL; p; p = strtok_r(NULL, "_", &save)) {
                if (cg_sup_list_has_word(code_words, p))
                        return false;
                data |= cg_sup_list_has_word(data_words, p);
        }
        return data;
}

static int check_variables(struct check *c)
{
        const char *name;
        json_t *value;
        int r = 0;

        json_object_foreach(json_object_get(c->def, "env"), name, value)
        {
                const char *text = json_string_value(value);
                char found[PATH_MAX], what[200];

                if (!text || strcmp(name, "PATH") == 0 || is_data_variable(name))
                        continue;
                snprintf(what, sizeof(what), "the variable %.100s leads to", name);
                if (cg_sup_text_is_exposed(c, text, found))
                        return cg_sup_server_refuse(c, what, found, "cells can write there");
                /* Most of these folders is no code; guard_start_files() has the rest. */
                if (r == 0 && strcmp(name, "HOME") != 0 && strcmp(name, "TMPDIR") != 0)
                        r = cg_sup_server_search_named(c, what, text);
        }
        return r ?: cg_sup_server_search_pending(c);
}

/*
 * ------------------------------------------------------------------ what interpreters load unasked
 */

/* Below the home folder; "/" at the end: a folder. */
static const char *const start_files[] = {
        ".local/lib/",
        ".local/bin/",
        ".local/share/uv/",
        ".local/share/pipx/",
        ".local/share/virtualenv/",
        ".local/share/pnpm/",
        ".config/",
        ".cache/uv/",
        ".cache/pip/",
        ".cache/node/",
        ".cache/node-gyp/",
        ".cache/deno/",
        ".cache/pnpm/",
        ".cache/yarn/",
        ".cache/pypoetry/",
        ".cache/ms-playwright/",
        ".cache/puppeteer/",
        ".cache/selenium/",
        ".cache/huggingface/",
        ".cache/torch/",
        ".cache/go-build/",
        ".cache/coursier/",
        ".cache/electron/",
        ".npm/",
        ".npmrc",
        ".pnpm-store/",
        ".node_modules/",
        ".node_libraries/",
        "node_modules/",
        ".yarnrc",
        ".yarnrc.yml",
        ".yarn/",
        ".bunfig.toml",
        ".bun/",
        ".deno/",
        ".nvm/",
        ".volta/",
        ".fnm/",
        ".pyenv/",
        ".pydistutils.cfg",
        ".pip/",
        ".conda/",
        ".condarc",
        ".mambarc",
        ".pixi/",
        ".ipython/",
        ".rbenv/",
        ".gem/",
        ".gemrc",
        ".bundle/",
        ".irbrc",
        ".cargo/",
        ".rustup/",
        "go/",
        ".m2/",
        ".ivy2/",
        ".gradle/",
        ".sbt/",
        ".jbang/",
        ".nuget/",
        ".dotnet/",
        ".julia/",
        ".Rprofile",
        ".Renviron",
        "R/",
        ".sdkman/",
        ".asdf/",
        ".mix/",
        ".hex/",
        ".cpanm/",
        "perl5/",
        ".luarocks/",
        ".docker/",
        ".kube/",
        ".aws/",
        ".ssh/",
        ".psqlrc",
        ".sqliterc",
        ".duckdbrc",
        ".my.cnf",
        ".mongorc.js",
        ".mongoshrc.js",
        ".gdbinit",
        ".curlrc",
        ".wgetrc",
};

static int guard_start_files(struct check *c, const char *home)
{
        char path[PATH_MAX];
        int r = 0;

        for (size_t i = 0; home && home[0] == '/' && i < CG_ARRAY_LEN(start_files) && r == 0; i++)
                if (snprintf(path, sizeof(path), "%s/%s", home, start_files[i]) < (int)sizeof(path) &&
                    cg_sup_file_is_exposed(c, path))
                        r = cg_sup_server_add_guard(c, path);
        return r;
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

        for (size_t i = 0; i < c->n_views && r == 0; i++)
                r = guard_git_settings_of(c, &c->views[i].rules, &base);
        return r;
}

/*
 * node looks for a package in the node_modules of every folder above the script; an optional one
 * may be in none.
 */
static int guard_node_folders(struct check *c)
{
        cg_auto_json json_t *roots = json_deep_copy(c->guards);
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(roots, i, v)
        {
                char at[PATH_MAX], path[PATH_MAX + 16];

                snprintf(at, sizeof(at), "%s", json_string_value(v));
                while (at[1] && r == 0) {
                        cg_sup_path_cut_last(at);
                        snprintf(path, sizeof(path), "%s/node_modules/", at[1] ? at : "");
                        if (cg_sup_file_is_open(c, at) && cg_sup_file_is_exposed(c, path) &&
                            !strstr(at, "/node_modules"))
                                r = cg_sup_server_add_guard(c, path);
                }
        }
        return r;
}

/* ------------------------------------------------------------------ a definition */

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

static int check_cwd(struct check *c)
{
        json_t *cwd = json_object_get(c->def, "cwd");
        const char *text = json_string_value(cwd);

        if (!cwd || json_is_null(cwd) || !text)
                return make_cwd(c); /* of another type: the tool server refuses it */
        if (text[0] != '/')
                return cg_fail(c->err, CG_E_INVAL,
                               "MCP server \"%s\": \"cwd\" must be an absolute path, not "
                               "\"%s\"",
                               c->name, text);
        if (strlen(text) >= sizeof(c->cwd))
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": \"cwd\" is longer than %d bytes",
                               c->name, PATH_MAX);
        snprintf(c->cwd, sizeof(c->cwd), "%s", text);
        return 0;
}

static int check_cwd_place(struct check *c)
{
        if (c->own_cwd)
                return 0;
        if (cg_sup_file_is_exposed(c, c->cwd))
                return cg_sup_server_refuse(
                        c, "it would start in the folder (\"cwd\")", c->cwd,
                        "cells can write there, "
                        "and interpreters look first for modules and settings in the folder that "
                        "they start in");
        if (cg_sup_file_holds_write_root(c, c->cwd))
                return cg_sup_server_refuse(c, "it would start in the folder (\"cwd\")", c->cwd,
                                            "it contains a folder that cells can write");
        return 0;
}

/* With no working folder of its own a relative name leads nowhere: say so, where one was meant. */
static int check_relative(struct check *c, const char *what, const char *word)
{
        const char *workspace = c->scope->workspace;
        char here[PATH_MAX], path[2 * PATH_MAX];
        const char *folders[] = { workspace, getcwd(here, sizeof(here)) };

        if (!c->own_cwd || !word || word[0] == '/' || word[0] == '-' || !*word || !strpbrk(word, "./"))
                return 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                if (!folders[i] || snprintf(path, sizeof(path), "%s/%s", folders[i], word) >= PATH_MAX ||
                    !cg_sup_path_is_file(path))
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

/* A working folder that cells cannot write may have links to where they can. */
static int check_cwd_links(struct check *c)
{
        static const char what[] = "something in its working folder (\"cwd\"),";
        char path[PATH_MAX + 16];
        int r;

        if (c->own_cwd || cg_sup_file_is_exposed(c, c->cwd))
                return 0;
        r = cg_sup_tree_search_outside(c, what, c->cwd, TREE_SHALLOW);
        if (r < 0 || !c->node)
                return r;
        snprintf(path, sizeof(path), "%s/node_modules", c->cwd);
        return cg_sup_tree_search_outside(c, what, path, 0);
}

static void add_entry(struct cg_buf *b, const char *entry)
{
        if (b->len)
                cg_buf_adds(b, ":");
        cg_buf_adds(b, entry);
}

/*
 * Leaves out what leads to where cells write. PATH becomes what is left of it, without entries that
 * mean the working folder.
 */
static int set_variables(struct check *c, json_t *inherit)
{
        static const char *const folders[] = { "TMPDIR", "SHELL" };
        json_t *variables = c->path_is_own ? json_object_get(c->def, "env") : inherit;
        cg_auto_buf struct cg_buf path = { .max = (size_t)1 << 20 };
        char entry[PATH_MAX];
        int r;

        for (const char *list = c->path; cg_sup_path_next(&list, entry);) {
                if (entry[0] != '/')
                        continue;
                if (!cg_sup_file_is_exposed(c, entry))
                        add_entry(&path, entry);
                else if (c->path_is_own)
                        return cg_sup_server_refuse(c, "the entry of its \"PATH\",", entry,
                                                    "cells can write there");
                else
                        add_entry(&c->left_out, entry);
        }
        if ((r = cg_buf_end(&path, c->err)) < 0 || (r = cg_buf_end(&c->left_out, c->err)) < 0)
                return r;
        json_object_set_new(variables, "PATH", json_string(path.data ?: ""));
        /* The old string is gone; the next cells judge what is left of it. */
        c->path = cg_json_text_of(variables, "PATH");
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                const char *text = json_string_value(json_object_get(inherit, folders[i]));

                if (text && (text[0] != '/' || cg_sup_file_is_exposed(c, text)))
                        json_object_del(inherit, folders[i]);
        }
        return 0;
}

static int check_unsandboxed(struct check *c, json_t *inherit)
{
        const char *command = json_string_value(json_object_get(c->def, "command"));
        const char *home = json_string_value(json_object_get(json_object_get(c->def, "env"), "HOME"));
        const json_t *args = json_object_get(c->def, "args");
        const struct launcher *l = NULL;
        char found[PATH_MAX] = "";
        int r;

        c->linked |= cg_sup_server_names_linker(command ?: "");
        for (size_t i = 0; i < json_array_size(args); i++)
                c->linked |= cg_sup_server_names_linker(json_string_value(json_array_get(args, i)) ?: "");
        c->defer = !c->own_cwd && cg_sup_file_is_exposed(c, c->cwd);
        if (!home)
                home = json_string_value(json_object_get(inherit, "HOME"));
        if (command && strchr(command, '/')) {
                r = check_relative(c, "the command", command);
                if (r < 0)
                        return r;
                if (c->own_cwd && command[0] != '/')
                        return cg_fail(
                                c->err, CG_E_INVAL,
                                "MCP server \"%s\": the command \"%s\" is relative: give its whole path, "
                                "or a \"cwd\"",
                                c->name, command);
        }
        if ((command && *command && (r = cg_sup_server_check_program(c, command, &l, found, 0)) < 0) ||
            (l && (r = cg_sup_server_check_args(c, l)) < 0))
                return r;
        for (size_t i = 0; i < json_array_size(args); i++) {
                r = check_relative(c, "the argument", json_string_value(json_array_get(args, i)));
                if (r < 0)
                        return r;
        }
        if ((l && cg_sup_server_runs_code(l) && (r = check_cwd_links(c)) < 0) ||
            (r = cg_sup_server_search_pending(c)) < 0 || (c->node && (r = guard_node_folders(c)) < 0) ||
            /* the folder of a script is one that cells cannot write by now */
            (r = check_cwd_place(c)) < 0)
                return r;
        if (c->defer && l) {
                c->defer = false;
                r = cg_sup_server_check_args(c, l);
                if (r < 0)
                        return r;
        }
        if ((r = cg_sup_server_search_pending(c)) < 0 || (r = guard_start_files(c, home)) < 0 ||
            (r = guard_git_settings(c, home)) < 0 || (r = check_variables(c)) < 0 ||
            /* of the folders that were found since */
            (c->node && (r = guard_node_folders(c)) < 0) || (r = set_variables(c, inherit)) < 0)
                return r;
        if (found[0])
                json_object_set_new(c->def, "command", json_string(found));
        return 0;
}

/* ------------------------------------------------------------------ the whole definition */

/* Forgets what the check of the definition has found so far. */
static void begin_again(struct check *c)
{
        for (size_t i = 0; i < c->scope->n_views; i++) {
                struct server_view *v = &c->scope->views[i];

                cg_rules_cut(&v->rules, v->n_rules);
                v->rules.linked = v->linked;
        }
        json_array_clear(c->pending);
        json_array_clear(c->searched);
        c->entries = 0;
}

/*
 * A server with a sandbox of its own may run what cells can write, where that sandbox allows no
 * more than those cells may do.
 */
static int check_sandboxed(struct check *c, const json_t *inherit)
{
        const char *inherited = cg_json_text_of(inherit, "PATH");

        for (size_t i = 0; i < c->scope->n_views; i++) {
                cg_auto_json json_t *copy = json_deep_copy(inherit);
                struct cg_err first;
                char why[600];
                int r;

                begin_again(c);
                c->views = &c->scope->views[i];
                c->n_views = 1;
                if (!c->path_is_own)
                        c->path = inherited;
                r = check_unsandboxed(c, copy);
                first = *c->err;
                if (!c->path_is_own)
                        c->path = inherited; /* not the copy's, which goes now */
                if (r < 0 && r != CG_E_INVAL)
                        return r;
                if (r < 0 && cg_sup_server_sandbox_is_wider(c, why, sizeof(why)))
                        return cg_fail(c->err, CG_E_INVAL,
                                       "%s. The sandbox that it has allows more than the "
                                       "cells': %s",
                                       first.msg, why);
        }
        return 0;
}

static int check_definition(struct check *c)
{
        json_t *given = json_object_get(c->def, "inherit");
        cg_auto_json json_t *inherit = json_is_object(given) ? json_deep_copy(given) : cg_json_passed_env(),
                            *untouched = json_deep_copy(inherit);
        json_t *handed_on = inherit;
        const json_t *sandbox = json_object_get(c->def, "sandbox");
        const char *ca_file = json_string_value(json_object_get(c->def, "caFile"));
        int r;

        if (!json_object_get(c->def, "command")) { /* nothing is started: an address, or an error */
                if (ca_file && ca_file[0] == '/' && cg_sup_file_is_exposed(c, ca_file))
                        return cg_fail(
                                c->err, CG_E_INVAL,
                                "MCP server \"%s\": \"caFile\" %s: cells can write there, and could make this "
                                "server trust others. Keep it in a folder that cells cannot write",
                                c->name, ca_file);
                return 0;
        }
        c->path = json_string_value(json_object_get(json_object_get(c->def, "env"), "PATH"));
        c->path_is_own = c->path != NULL;
        if (!c->path)
                c->path = cg_json_text_of(inherit, "PATH");
        if (json_is_string(sandbox) && json_string_value(sandbox)[0] == '/' &&
            cg_sup_file_is_exposed(c, json_string_value(sandbox)) &&
            cg_sup_server_add_guard(c, json_string_value(sandbox)) < 0)
                return CG_E_NOMEM;
        r = check_unsandboxed(c, inherit);
        if (r == CG_E_INVAL && sandbox && !json_is_null(sandbox)) {
                r = check_sandboxed(c, untouched);
                handed_on = untouched;
        }
        if (!c->path_is_own)
                c->path = "";
        if (r < 0)
                return r;
        json_object_set(c->def, "inherit", handed_on);
        return 0;
}

/* The longest time for a question about a host, seconds; as for kernels (egress.c). */
#define ASK_MAX_S (24 * 60 * 60)

/* What the session's options say about the sandboxes of its servers. */
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
        int r;

        *c = (struct check){ .scope = scope,
                             .name = name,
                             .folder = folder,
                             .err = err,
                             .views = scope->views,
                             .n_views = scope->n_views,
                             .def = json_deep_copy(definition),
                             .guards = json_array(),
                             .pending = json_array(),
                             .searched = json_array() };
        cg_buf_init(&c->left_out, (size_t)1 << 20);
        if (!c->def || !c->guards || !c->pending || !c->searched)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = check_cwd(c);
        if (r < 0)
                return r;
        /* Each definition records all its guards, whoever else has them. */
        begin_again(c);
        if ((c->n_views && (r = check_definition(c)) < 0) || (r = add_context(c)) < 0)
                return r;
        if (c->linked && json_array_append_new(c->guards, json_true()) < 0)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        return 0;
}

void cg_sup_server_check_fini(struct check *c)
{
        json_decref(c->def);
        json_decref(c->guards);
        json_decref(c->pending);
        json_decref(c->searched);
        cg_buf_fini(&c->left_out);
}
