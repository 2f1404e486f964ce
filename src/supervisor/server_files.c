/*
 * cellgate-supervisor: which files an MCP server runs. Servers run outside of the sandbox, so
 * nothing that one loads may be what a cell can write: a definition that leads there is refused, or
 * what it leads to becomes read-only in every kernel (a guard).
 *
 * Everything here is decided from the definition alone, before the server starts. What a cell may
 * write later is refused by name, whether it exists yet or not; so a restart finds the same files.
 */
#include "supervisor/server_files_int.h"

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

/* Interpreters that name interpreters: env, a script, its interpreter. */
#define CHAIN_MAX 4
/* Of a script: its first line, and what it may start. */
#define SCRIPT_MAX (64u << 10)
/* Folders of write roots that are guarded: each is a mount of every kernel. */
#define GUARDED_MAX 64

/* ------------------------------------------------------------------ guards */

/* The other session whose cells decide what @path is; NULL: those of the session itself do. */
static const struct server_view *other_view(const struct check *c, const char *path)
{
        cg_auto_free struct check *one = malloc(sizeof(*one));

        for (size_t i = 0; one && i < c->n_views; i++) {
                *one = *c;
                one->views = &c->views[i];
                one->n_views = 1;
                if (cg_sup_file_is_exposed(one, path) || cg_sup_file_holds_write_root(one, path))
                        return one->views->options == c->scope->options ? NULL : one->views;
        }
        return NULL;
}

static int refuse(struct check *c, const char *what, const char *path, const char *why)
{
        const struct server_view *other = other_view(c, path);
        char whose[PATH_MAX + 64] = "";

        if (other)
                snprintf(whose, sizeof(whose), " (cells of another session, whose workspace is %s)",
                         other->workspace);
        return cg_fail(c->err, CG_E_INVAL,
                       "MCP server \"%s\": %s %s: %s%s. The server would run outside of the sandbox what "
                       "cells put there. Keep it in a folder that cells cannot write, deny writing there "
                       "(\"denyWrite\" in the settings file), or give the server a \"sandbox\" of its own",
                       c->name, what, path, why, whose);
}

static int add_guard(struct check *c, const char *path)
{
        cg_auto_json json_t *one = json_pack("[s]", path);
        int r = 0;

        if (!one || json_array_append(c->guards, json_array_get(one, 0)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        for (size_t i = 0; i < c->n_views && r == 0; i++)
                r = cg_rules_add_guards(&c->views[i].rules, one, c->err);
        return r;
}

static bool has_file(const char *folder, const char *name)
{
        char path[PATH_MAX + 32];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        return access(path, F_OK) == 0;
}

static void cut_last(char *path)
{
        char *slash = strrchr(path, '/');

        if (slash)
                slash[slash == path] = '\0';
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

/* The topmost folder "node_modules" of @path: packages import each other all over it. */
static bool node_root(const char *path, char root[PATH_MAX])
{
        const char *p = strstr(path, "/node_modules/");
        size_t n = p ? (size_t)(p - path) + strlen("/node_modules") : 0;

        if (!p)
                return false;
        memcpy(root, path, n);
        root[n] = '\0';
        return true;
}

/*
 * The folder at or above @folder that has a file @marker; all in between can be written by cells,
 * or none can.
 */
static bool marked_root(const struct check *c, const char *folder, const char *marker, char root[PATH_MAX])
{
        bool open = cg_sup_file_is_open(c, folder);

        snprintf(root, PATH_MAX, "%s", folder);
        while (root[1] && cg_sup_file_is_open(c, root) == open) {
                if (has_file(root, marker))
                        return true;
                cut_last(root);
        }
        return false;
}

/*
 * The folder whose files belong to the program or script @path, which is real: what it imports is
 * beside it. *own: it is nothing but the folder that the file is in.
 */
static void find_root(const struct check *c, const char *path, bool folder, bool js, char root[PATH_MAX],
                      bool *own)
{
        char at[PATH_MAX], up[PATH_MAX];

        snprintf(at, sizeof(at), "%s", path);
        if (!folder)
                cut_last(at);
        *own = false;
        if (node_root(path, root) || marked_root(c, at, "pyvenv.cfg", root) ||
            (js && marked_root(c, at, "package.json", root)))
                return;
        *own = true;
        snprintf(root, PATH_MAX, "%s", at);
        snprintf(up, sizeof(up), "%s", at);
        cut_last(up);
        /* Programs find their libraries beside their folder. */
        if ((strcmp(base_name(at), "bin") == 0 || strcmp(base_name(at), "libexec") == 0) &&
            cg_sup_file_is_open(c, up) && !cg_sup_file_holds_write_root(c, up))
                snprintf(root, PATH_MAX, "%s", up);
}

static int guard_path(struct check *c, const char *what, const char *path);

/* The folder that the symlink @path leads to, unless it was searched already. */
static bool find_folder(const struct check *c, const char *path, char real[PATH_MAX])
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && realpath(path, real) &&
               !cg_sup_tree_was_searched(c, real);
}

/*
 * What a symlink in a folder of the program leads to is loaded under the name of the link. Checked
 * later, not by recursion: cells decide how many links lead from one folder to the next.
 */
static int visit_link(struct check *c, void *data, const char *path, const struct stat *st)
{
        bool exposed = cg_sup_file_is_exposed(c, path);
        char real[PATH_MAX];

        (void)st;
        if (!exposed && !find_folder(c, path, real))
                return 0;
        if (json_array_append_new(c->pending, json_string(path)) < 0)
                return exposed ? refuse(c, data, path, "its name is not UTF-8") : 0;
        return json_array_append_new(c->pending, json_string(data)) < 0
                       ? cg_fail(c->err, CG_E_NOMEM, "MCP server")
                       : 0;
}

static int search_pending(struct check *c)
{
        char real[PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < json_array_size(c->pending) && r == 0; i += 2) {
                const char *path = json_string_value(json_array_get(c->pending, i));
                const char *what = json_string_value(json_array_get(c->pending, i + 1));

                if (cg_sup_file_is_exposed(c, path))
                        r = guard_path(c, what, path);
                else if (find_folder(c, path, real))
                        r = cg_sup_tree_search_outside(c, what, real, TREE_LENIENT, visit_link);
        }
        json_array_clear(c->pending);
        return r;
}

static bool is_file(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/*
 * Searches the folders outside of write roots that @text names (one path, a list as in PYTHONPATH,
 * or a command line), and those of the files that it names: links in them may lead to where cells
 * write.
 */
static int search_named(struct check *c, const char *what, const char *text)
{
        static const char *const separators[] = { ":", ":=", ": \t\n=,;'\"()" };
        char path[PATH_MAX], real[PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(separators); i++) {
                size_t n;

                for (const char *p = text; r == 0 && *(p += strspn(p, separators[i])); p += n) {
                        n = strcspn(p, separators[i]);
                        if (p[0] != '/' || n >= sizeof(path))
                                continue;
                        memcpy(path, p, n);
                        path[n] = '\0';
                        if (!realpath(path, real) || !real[1])
                                continue;
                        r = cg_sup_tree_search_outside(c, what, real, TREE_LENIENT, visit_link);
                        if (r < 0 || !is_file(real))
                                continue;
                        cut_last(real);
                        r = cg_sup_tree_search_outside(c, what, real, TREE_LENIENT | TREE_SHALLOW,
                                                       visit_link);
                }
        }
        return r;
}

/* Whether cells of all views could write in @path but for denials. */
static bool is_in_all_write_roots(const struct check *c, const char *path)
{
        for (size_t i = 0; i < c->n_views; i++)
                if (!cg_rules_may_write(&c->views[i].rules, path))
                        return false;
        return true;
}

/* Adds a folder, with what its symlinks lead to. */
static int guard_folder(struct check *c, const char *what, const char *folder)
{
        int r;

        if (json_array_size(c->guards) >= GUARDED_MAX)
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": links lead from its program through "
                               "more than %d folders that cells write (%s). Keep it "
                               "where cells cannot write",
                               c->name, GUARDED_MAX, folder);
        r = add_guard(c, folder);
        /* Other names of its files in these write roots: hardlinks.c. */
        if (r == 0 && is_in_all_write_roots(c, folder)) {
                if (json_array_append_new(c->searched, json_string(folder)) < 0)
                        return cg_fail(c->err, CG_E_NOMEM, "MCP server");
                return cg_sup_tree_walk(c, folder, 0, visit_link, (void *)(uintptr_t)what);
        }
        return r == 0 ? cg_sup_tree_search_outside(c, what, folder, 0, visit_link) : r;
}

/* node searches packages in all folders above a script. */
static int search_node_folders(struct check *c, const char *what, const char *folder)
{
        cg_auto_json json_t *key = json_pack("s+", "above:", folder); /* no path */
        struct stat st;
        char at[PATH_MAX], path[PATH_MAX + 16];
        int r = 0;

        /* Once: what is found may lead here again. */
        if (!key || cg_sup_list_has(c->searched, key) || json_array_append(c->searched, key) < 0)
                return 0;
        for (snprintf(at, sizeof(at), "%s", folder); at[1] && r == 0; cut_last(at)) {
                snprintf(path, sizeof(path), "%s/node_modules", at);
                if (!cg_sup_file_is_exposed(c, path))
                        continue;
                if (lstat(path, &st) < 0 && cg_sup_file_is_open(c, at)) {
                        /* Optional: cells must not make it. */
                        strcat(path, "/");
                        r = add_guard(c, path);
                } else {
                        r = guard_path(c, what, path);
                }
        }
        return r;
}

/*
 * A program that cells cannot write: what belongs to it may have links to where they can, and its
 * files other names there.
 */
static int search_outside(struct check *c, const char *what, const char *path, bool folder, bool link)
{
        char root[PATH_MAX];
        bool own, programs;
        int r = link ? 0 : cg_sup_tree_search_outside(c, what, path, 0, visit_link);

        find_root(c, path, folder, c->node, root, &own);
        /* Programs in a folder of programs do not load what is beside them. */
        programs = strcmp(base_name(root), "bin") == 0 || strcmp(base_name(root), "sbin") == 0;
        if (r == 0 && (!own || (!link && !programs)) && !cg_sup_file_is_open(c, root))
                r = cg_sup_tree_search_outside(c, what, root, own ? TREE_VISIBLE | TREE_LENIENT : 0,
                                               visit_link);
        return r == 0 && c->node ? search_node_folders(c, what, root) : r;
}

/* Makes what belongs to @path (real) read-only, where cells could write it. */
static int guard(struct check *c, const char *what, const char *path, bool folder, bool link)
{
        char root[PATH_MAX];
        bool own;

        if (!cg_sup_file_is_open(c, path))
                return search_outside(c, what, path, folder, link);
        find_root(c, path, folder, c->node, root, &own);
        if (!cg_sup_file_holds_write_root(c, root))
                return guard_folder(c, what, root);
        /* A link to elsewhere: it stays what it is, and nothing beside it is loaded. */
        if (link && own)
                return add_guard(c, path);
        if (own && !folder)
                return refuse(c, what, path,
                              "it is directly in a folder that cells write, and so would be "
                              "what it imports");
        return refuse(c, what, path, "the folder that it belongs to is one that cells write, or holds one");
}

static int guard_base_of_venv(struct check *c, const char *program);

/* @path (absolute) with all links on the way to it. */
static int guard_path(struct check *c, const char *what, const char *path)
{
        struct cg_place place;
        int r = cg_place_find(path, &place, c->err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < place.n_links && r == 0; i++)
                r = guard(c, what, place.links[i], false, true);
        if (r == 0 && place.missing && cg_sup_file_is_open(c, place.path))
                r = refuse(c, what, place.path, "it does not exist, and cells could create it");
        else if (r == 0 && !place.missing)
                r = guard(c, what, place.path, place.folder, false);
        cg_place_fini(&place);
        return r == 0 ? guard_base_of_venv(c, path) : r;
}

/* Files that name further folders of modules: *.pth, and what editable installations leave. */
static int guard_named_in(struct check *c, const char *folder, const char *name)
{
        size_t n = strlen(name), len;
        char path[PATH_MAX], *save = NULL;
        cg_auto_free char *text = NULL;
        int r = 0;

        if (!(n > 4 && strcmp(name + n - 4, ".pth") == 0) &&
            !(n > 9 && strcmp(name + n - 9, ".egg-link") == 0) && strncmp(name, "__editable__", 12) != 0)
                return 0;
        if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
            cg_read_regular(path, (size_t)1 << 20, &text, &len, NULL) < 0)
                return 0;
        for (char *p = strtok_r(text, "\r\n'\"", &save); p && r == 0; p = strtok_r(NULL, "\r\n'\"", &save)) {
                int len_path = p[0] == '/' ? snprintf(path, sizeof(path), "%s", p)
                                           : snprintf(path, sizeof(path), "%s/%s", folder, p);

                if (len_path < (int)sizeof(path) && (p[0] == '/' || !strncmp(p, "..", 2)) &&
                    (cg_sup_file_is_exposed(c, path) || cg_sup_path_is_present(path)))
                        r = guard_path(c, "a folder of modules of its Python,", path);
        }
        return r;
}

/* The folders PREFIX/lib/python*\/{site,dist}-packages. */
static int guard_modules(struct check *c, const char *prefix)
{
        char pattern[PATH_MAX + 64];
        glob_t g = { .gl_pathc = 0 };
        int r = 0;

        snprintf(pattern, sizeof(pattern), "%s/lib/python3*/*-packages", prefix);
        if (glob(pattern, GLOB_NOSORT, NULL, &g) != 0)
                return 0;
        for (size_t i = 0; i < g.gl_pathc && r == 0; i++) {
                DIR *dir = opendir(g.gl_pathv[i]);
                const struct dirent *d;

                if (!cg_sup_file_is_exposed(c, g.gl_pathv[i]))
                        r = cg_sup_tree_search_outside(c, "the modules of its Python,", g.gl_pathv[i], 0,
                                                       visit_link);
                while (dir && r == 0 && (d = readdir(dir)))
                        r = guard_named_in(c, g.gl_pathv[i], d->d_name);
                if (dir)
                        closedir(dir);
        }
        globfree(&g);
        return r;
}

/* A Python DIR/bin/PROGRAM: its modules; where DIR has a pyvenv.cfg, the Python that this names. */
static int guard_base_of_venv(struct check *c, const char *program)
{
        char folder[PATH_MAX], home[PATH_MAX], user[PATH_MAX + 16];
        int r;

        if (strncmp(base_name(program), "py", 2) != 0)
                return 0;
        snprintf(folder, sizeof(folder), "%s", program);
        cut_last(folder);
        cut_last(folder);
        r = guard_modules(c, folder[1] ? folder : "");
        if (r == 0 && c->scope->home) {
                snprintf(user, sizeof(user), "%s/.local", c->scope->home);
                r = guard_modules(c, user);
        }
        if (r == 0)
                r = guard_modules(c, "/usr/local");
        if (r < 0)
                return r;
        if (!cg_pyvenv_home(folder, home, sizeof(home)))
                return 0;
        if (!cg_sup_file_is_exposed(c, home)) {
                cut_last(home);
                return guard_modules(c, home);
        }
        cut_last(home);
        return guard(c, "the base Python of its program,", home, true, false);
}

/* ------------------------------------------------------------------ PATH */

/* One entry of @list; false at its end. */
static bool next_entry(const char **list, char entry[PATH_MAX])
{
        size_t n = strcspn(*list, ":");

        if (!**list)
                return false;
        snprintf(entry, PATH_MAX, "%.*s", n < PATH_MAX ? (int)n : 0, *list);
        *list += n + ((*list)[n] == ':');
        return true;
}

static bool same_file(const char *a, const char *b)
{
        struct stat x, y;

        return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/*
 * Where a command without "/" is found. Entries that cells can write come last, and only where it
 * is found in one of them: a program that a cell has put into another does not take the place of
 * the one that the user means.
 */
static int look_up(struct check *c, const char *command, char ret[PATH_MAX])
{
        char entry[PATH_MAX], path[PATH_MAX + 256], other[PATH_MAX] = "";
        const char *list;

        for (int exposed = 0; exposed < 2 && !other[0]; exposed++) {
                for (list = c->path; next_entry(&list, entry);) {
                        if (entry[0] != '/' || cg_sup_file_is_exposed(c, entry) != (exposed == 1) ||
                            snprintf(path, sizeof(path), "%s/%s", entry, command) >= PATH_MAX ||
                            access(path, X_OK) < 0)
                                continue;
                        if (other[0] && same_file(other, path))
                                continue;
                        if (other[0])
                                return cg_fail(c->err, CG_E_INVAL,
                                               "MCP server \"%s\": the program %s is "
                                               "found in two folders of PATH that cells "
                                               "can write, %s and %s; give its whole "
                                               "path as \"command\"",
                                               c->name, command, other, path);
                        snprintf(other, sizeof(other), "%.*s", PATH_MAX - 1, path);
                        if (!exposed)
                                break;
                }
        }
        snprintf(ret, PATH_MAX, "%s", other);
        return 0;
}

static int add_entry(struct cg_buf *b, const char *entry, struct cg_err *err)
{
        int r = b->len ? cg_buf_adds(b, ":", err) : 0;

        return r == 0 ? cg_buf_adds(b, entry, err) : r;
}

/* PATH without what cells can write, and without entries that mean the working folder. */
static int clean_path(struct check *c, struct cg_buf *ret)
{
        char entry[PATH_MAX];
        int r = 0;

        for (const char *list = c->path; r == 0 && next_entry(&list, entry);) {
                if (entry[0] != '/')
                        continue;
                if (!cg_sup_file_is_exposed(c, entry))
                        r = add_entry(ret, entry, c->err);
                else if (c->path_is_own)
                        r = refuse(c, "the entry of its \"PATH\",", entry, "cells can write there");
                else
                        r = add_entry(&c->left_out, entry, c->err);
        }
        return r == 0 ? cg_buf_adds(ret, "", c->err) : r;
}

/* ------------------------------------------------------------------ programs that run others */

enum launcher_kind {
        RUNS_NOTHING, /* its arguments are its own */
        RUNS_SCRIPT,  /* its first operand is code: files and folders */
        /* its first operand is a command of its own; settings are searched in folders above */
        RUNS_PACKAGE,
        RUNS_ALL, /* any argument may be code */
};

/* Lists of words. */
static const struct launcher {
        enum launcher_kind kind;
        bool node;
        const char *names;
        const char *values;   /* options that take the next word */
        const char *last;     /* the same, and all words after that are the server's */
        const char *flags;    /* options that take none; "*": all others */
        const char *commands; /* words before the operand */
} launchers[] = {
        { RUNS_SCRIPT, false, "python pypy ipython", "-W -X --check-hash-based-pycs", "-m -c", "*", "" },
        { RUNS_SCRIPT, true, "node nodejs",
          "-r --require --import --loader --experimental-loader -C --conditions --env-file "
          "--env-file-if-exists --openssl-config --icu-data-dir",
          "-e --eval -p --print -pe", "*", "" },
        { RUNS_PACKAGE, true, "npx bunx pnpx",
          "-p --package --prefix --userconfig --globalconfig --cache -w "
          "--workspace --registry",
          "-c --call",
          "-y --yes -n --no --no-install -q --quiet -s --silent --ignore-existing --offline --prefer-offline "
          "--prefer-online -d --verbose",
          "" },
        { RUNS_PACKAGE, false, "uv uvx",
          "--from --with --with-editable --with-requirements -p --python "
          "--directory --project -m",
          "",
          "-q --quiet -v --verbose -n --no-cache --no-cache-dir --offline --isolated --refresh --no-config "
          "--native-tls --no-progress --no-project --active --frozen --locked --no-sync --exact "
          "--managed-python --no-managed-python -U --upgrade --reinstall --no-env-file",
          "run tool x" },
        { RUNS_ALL, true, "npm pnpm yarn bun deno tsx ts-node ts-node-esm nodemon", "", "", "", "" },
        { RUNS_ALL, false,
          "sh bash dash zsh ksh mksh ash fish busybox env nice ionice nohup timeout stdbuf setsid chrt "
          "taskset time unbuffer script xvfb-run sudo doas su runuser flock xargs parallel watch make gmake "
          "ninja just task go cargo dotnet mono java kotlin scala groovy gradle mvn ant ruby irb bundle rake "
          "perl php lua luajit R Rscript julia pwsh tclsh wish expect guile racket runghc stack cabal swift "
          "elixir mix iex erl escript awk gawk mawk gdb poetry hatch pdm rye pipx pipenv conda mamba "
          "micromamba mise direnv nix nix-shell volta fnm rustup ld.so ld-linux-x86-64.so qemu wine strace "
          "ltrace systemd-run firejail bwrap unshare chroot git ssh",
          "", "", "", "" },
};

static bool has_word(const char *list, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = list; n && (p = strstr(p, word)); p += n)
                if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' '))
                        return true;
        return false;
}

/* By its name, without a version: python3.11 is python. */
static const struct launcher *find_launcher(const char *program)
{
        static const struct launcher none = { .kind = RUNS_NOTHING };
        const char *base = base_name(program);
        char name[64];
        size_t n;

        for (int cut = 0; cut < 2; cut++) {
                snprintf(name, sizeof(name), "%s", base);
                n = strlen(name);
                while (cut && n && (isdigit((unsigned char)name[n - 1]) || strchr(".-", name[n - 1])))
                        name[--n] = '\0';
                for (size_t i = 0; i < CG_ARRAY_LEN(launchers); i++)
                        if (has_word(launchers[i].names, name))
                                return &launchers[i];
        }
        return &none;
}

/*
 * Installers that link the files of their cache or store into every environment, and what runs
 * programs from these. A program of theirs has files whose other names may be in a write root.
 */
static const char linkers[] = "uv uvx pnpm pnpx bun bunx deno yarn pdm pipx hatch rye poetry pixi conda "
                              "mamba micromamba mise nix";

static bool names_linker(const char *text)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

        for (const char *p = text; *(p += strcspn(p, letters)); p += strspn(p, letters)) {
                size_t n = strspn(p, letters);
                char word[32];

                if (n >= sizeof(word))
                        continue;
                memcpy(word, p, n);
                word[n] = '\0';
                if (has_word(linkers, word))
                        return true;
        }
        return false;
}

/* A word that the program which runs the server obeys. */
static int check_code_word(struct check *c, const struct launcher *l, const char *word)
{
        char path[PATH_MAX], what[PATH_MAX + 32];
        int r = 0;

        snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
        /*
         * A script is protected with what lies beside it; where the program looks further up, that
         * is not enough.
         */
        if (l->kind != RUNS_PACKAGE && !(l->kind == RUNS_ALL && l->node) &&
            (word[0] == '/' || (!c->own_cwd && !c->defer)) && cg_sup_file_absolute(c, word, path) == 0 &&
            (is_file(path) || (l->kind == RUNS_SCRIPT && cg_sup_path_is_present(path))))
                r = guard_path(c, what, path);
        if (r == 0 && cg_sup_text_is_exposed(c, word, path))
                return refuse(c, what, path, "cells can write there");
        return r == 0 ? search_named(c, what, word) : r;
}

/* What a server is to work on, such as a database, is not run by it. */
static bool is_script(const char *path)
{
        static const char extensions[] = "py pyw pyz js mjs cjs ts mts cts tsx jsx rb pl pm php sh bash zsh "
                                         "fish lua jar war class wasm so r R jl ps1 groovy kts exs ex tcl "
                                         "awk mk go rs json json5 jsonc toml yaml yml ini conf cfg env xml "
                                         "properties";
        const char *dot = strrchr(base_name(path), '.');

        return access(path, X_OK) == 0 || !dot || has_word(extensions, dot + 1);
}

/*
 * A word for the server itself. Folders are what it works on. A file that may be a script is
 * protected with its folder or, directly in a write root, refused; settings and the like are
 * read-only by themselves.
 */
static int check_own_word(struct check *c, const char *word)
{
        const char *value = word[0] == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;
        char path[PATH_MAX], what[PATH_MAX + 32];

        if (strncmp(value, "file://", 7) == 0)
                value += 7;
        if ((value[0] != '/' && (c->own_cwd || c->defer)) || cg_sup_file_absolute(c, value, path) < 0)
                return 0;
        if (!is_file(path)) /* FILE:OBJECT, FILE::NAME, FILE#PART: what is loaded of it */
                path[strcspn(path, ":#?")] = '\0';
        if (!is_file(path) || !is_script(path) || !cg_sup_file_is_exposed(c, path))
                return 0;
        snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
        return guard_path(c, what, path);
}

static int check_program(struct check *c, const char *command, const struct launcher **ret,
                         char found[PATH_MAX], int depth);

/* An option whose value is code, whatever program it is for: --app-dir, --plugins, --chdir. */
static bool is_code_option(const char *word)
{
        static const char code[] = "app chdir cwd pythonpath plugin plugins module modules extension "
                                   "extensions "
                                   "require import preload lib libs script scripts hook hooks venv "
                                   "executable rcfile";
        char name[128], *save = NULL;

        if (word[0] != '-')
                return false;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
        for (char *p = strtok_r(name, "-_.", &save); p; p = strtok_r(NULL, "-_.", &save))
                if (has_word(code, p))
                        return true;
        return false;
}

/*
 * The value of such an option: a folder, or a path that does not exist yet. Files:
 * check_own_word().
 */
static int check_code_value(struct check *c, const char *option, const char *value)
{
        char path[PATH_MAX], what[PATH_MAX + 32];

        snprintf(what, sizeof(what), "the option \"%.200s\" leads to", option);
        if (!cg_sup_text_is_exposed(c, value, path))
                return search_named(c, what, value);
        return is_file(path) ? 0 : refuse(c, what, path, "cells can write there");
}

/*
 * The words of @l, from *i on: those that it obeys, up to its operand and with it. Then the
 * server's own.
 */
static int check_words(struct check *c, const struct launcher *l, const json_t *args, size_t i)
{
        bool value = false, last = false;
        const char *option = NULL;
        int r = 0;

        for (; i < json_array_size(args) && r == 0; i++) {
                const char *w = json_string_value(json_array_get(args, i));
                char found[PATH_MAX];

                if (!w)
                        return 0; /* the tool server says what is wrong with it */
                if (l->kind == RUNS_NOTHING) {
                        r = check_own_word(c, w);
                        if (r == 0 && is_code_option(w) && strchr(w, '='))
                                r = check_code_value(c, w, strchr(w, '=') + 1);
                        else if (r == 0 && option)
                                r = check_code_value(c, option, w);
                        option = is_code_option(w) && !strchr(w, '=') ? w : NULL;
                        continue;
                }
                r = check_code_word(c, l, w);
                if (r < 0 || l->kind == RUNS_ALL)
                        continue;
                if (last) {
                        l = find_launcher("");
                } else if (value) {
                        value = false;
                } else if (w[0] == '-' && w[1]) {
                        last = has_word(l->last, w);
                        value = !last && !strchr(w, '=') &&
                                (has_word(l->values, w) || (l->flags[0] != '*' && !has_word(l->flags, w)));
                } else if (!has_word(l->commands, w)) {
                        c->node |= l->node;
                        if (l->kind == RUNS_PACKAGE && !strchr(w, '@') &&
                            find_launcher(w)->kind != RUNS_NOTHING)
                                r = check_program(c, w, &l, found, 0);
                        else
                                l = find_launcher("");
                }
        }
        return r;
}

/*
 * "#!" of a script: protects its interpreter, whose operand it is: all arguments are the script's
 * own.
 */
static int check_interpreter(struct check *c, const char *program, int depth)
{
        cg_auto_fd int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        cg_auto_free char *line = calloc(1, SCRIPT_MAX);
        char found[PATH_MAX], *word, *save = NULL;
        ssize_t n = fd < 0 || !line ? -1 : read(fd, line, SCRIPT_MAX - 1);
        const struct launcher *l = NULL;
        bool env;
        int r = 0;

        if (n < 3 || line[0] != '#' || line[1] != '!')
                return 0;
        line[n] = '\0';
        c->linked |= names_linker(line);
        line[strcspn(line, "\n")] = '\0';
        if (depth >= CHAIN_MAX)
                return refuse(c, "its program", program, "too many interpreters name each other");
        word = strtok_r(line + 2, " \t\r", &save);
        if (!word)
                return 0;
        env = strcmp(base_name(word), "env") == 0;
        r = check_program(c, word, &l, found, depth + 1);
        while (r == 0 && (word = strtok_r(NULL, " \t\r", &save))) {
                if (env && word[0] != '-' && !strchr(word, '=')) {
                        r = check_program(c, word, &l, found, depth + 1);
                        env = false;
                } else if (cg_sup_text_is_exposed(c, word, found)) {
                        r = refuse(c, "the first line of its program leads to", found,
                                   "cells can write "
                                   "there");
                }
        }
        if (r == 0 && l)
                c->node |= l->node;
        return r;
}

/* Finds the program, and protects it with its interpreter. *ret: what its arguments mean. */
static int check_program(struct check *c, const char *command, const struct launcher **ret,
                         char found[PATH_MAX], int depth)
{
        char real[PATH_MAX];
        int r = 0;

        *ret = find_launcher(command);
        if (strchr(command, '/'))
                r = cg_sup_file_absolute(c, command, found);
        else
                r = look_up(c, command, found);
        if (r < 0)
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": the path of its program is too long",
                               c->name);
        if (!found[0])
                return 0;
        if (!cg_sup_path_is_present(found) && cg_sup_file_is_exposed(c, found))
                return refuse(c, "its program", found, "it does not exist, and cells could create it");
        if (!realpath(found, real))
                return 0; /* the tool server says what is wrong with it */
        if ((*ret)->kind == RUNS_NOTHING)
                *ret = find_launcher(real);
        c->node |= (*ret)->node && (*ret)->kind == RUNS_SCRIPT;
        r = check_interpreter(c, real, depth);
        return r == 0 ? guard_path(c, "its program", found) : r;
}

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
                if (has_word(code_words, p))
                        return false;
                data |= has_word(data_words, p);
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
                        return refuse(c, what, found, "cells can write there");
                /* Too much in these is no code: guard_start_files(). */
                if (r == 0 && strcmp(name, "HOME") != 0 && strcmp(name, "TMPDIR") != 0)
                        r = search_named(c, what, text);
        }
        return r == 0 ? search_pending(c) : r;
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
                        r = add_guard(c, path);
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
                        cut_last(at);
                        snprintf(path, sizeof(path), "%s/node_modules/", at[1] ? at : "");
                        if (cg_sup_file_is_open(c, at) && cg_sup_file_is_exposed(c, path) &&
                            !strstr(at, "/node_modules"))
                                r = add_guard(c, path);
                }
        }
        return r;
}

/* ------------------------------------------------------------------ a definition */

/*
 * A private folder. Package managers look for their settings in the folders above as well, up to
 * one with a project's file; where the runtime folder lies in /tmp, others of the machine could put
 * some there.
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
        return json_object_set_new(c->def, "cwd", json_string(c->cwd)) < 0
                       ? cg_fail(c->err, CG_E_NOMEM, "MCP server")
                       : 0;
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
                return refuse(c, "it would start in the folder (\"cwd\")", c->cwd,
                              "cells can write there, "
                              "and interpreters look first for modules and settings in the folder that "
                              "they start in");
        if (cg_sup_file_holds_write_root(c, c->cwd))
                return refuse(c, "it would start in the folder (\"cwd\")", c->cwd,
                              "a folder that cells "
                              "write lies in it");
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
                    !is_file(path))
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
        r = cg_sup_tree_search_outside(c, what, c->cwd, TREE_SHALLOW, visit_link);
        snprintf(path, sizeof(path), "%s/node_modules", c->cwd);
        return r == 0 && c->node ? cg_sup_tree_search_outside(c, what, path, 0, visit_link) : r;
}

static int check_relative_command(struct check *c, const char *command)
{
        int r = check_relative(c, "the command", command);

        if (r == 0 && c->own_cwd && command[0] != '/')
                r = cg_fail(c->err, CG_E_INVAL,
                            "MCP server \"%s\": the command \"%s\" is relative: give its "
                            "whole path, or a \"cwd\"",
                            c->name, command);
        return r;
}

static int check_relative_words(struct check *c)
{
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(json_object_get(c->def, "args"), i, v) if (r == 0)
                r = check_relative(c, "the argument", json_string_value(v));
        return r;
}

/* Leaves out what leads to where cells write; PATH becomes what is left of it. */
static int set_variables(struct check *c, json_t *inherit)
{
        static const char *const folders[] = { "TMPDIR", "SHELL" };
        json_t *variables = c->path_is_own ? json_object_get(c->def, "env") : inherit;
        cg_auto_buf struct cg_buf path;
        int r;

        cg_buf_init(&path, (size_t)1 << 20);
        r = clean_path(c, &path);
        if (r < 0)
                return r;
        json_object_set_new(variables, "PATH", json_string(path.data ? path.data : ""));
        /* The old string is gone; the next cells judge what is left of it. */
        c->path = json_string_value(json_object_get(variables, "PATH")) ?: "";
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                const char *text = json_string_value(json_object_get(inherit, folders[i]));

                if (text && (text[0] != '/' || cg_sup_file_is_exposed(c, text)))
                        json_object_del(inherit, folders[i]);
        }
        return 0;
}

static bool args_name_linker(const struct check *c)
{
        const json_t *v;
        size_t i;

        json_array_foreach(json_object_get(c->def, "args"), i,
                           v) if (json_is_string(v) && names_linker(json_string_value(v))) return true;
        return false;
}

static int check_unsandboxed(struct check *c, json_t *inherit)
{
        const char *command = json_string_value(json_object_get(c->def, "command"));
        const char *home = json_string_value(json_object_get(json_object_get(c->def, "env"), "HOME"));
        const struct launcher *l = NULL;
        char found[PATH_MAX] = "";
        int r = 0;

        c->linked |= names_linker(command ?: "") || args_name_linker(c);
        c->defer = !c->own_cwd && cg_sup_file_is_exposed(c, c->cwd);
        if (!home)
                home = json_string_value(json_object_get(inherit, "HOME"));
        if (command && strchr(command, '/'))
                r = check_relative_command(c, command);
        if (r == 0 && command && *command)
                r = check_program(c, command, &l, found, 0);
        if (r == 0 && l)
                r = check_words(c, l, json_object_get(c->def, "args"), 0);
        if (r == 0)
                r = check_relative_words(c);
        if (r == 0 && l && l->kind != RUNS_NOTHING)
                r = check_cwd_links(c);
        if (r == 0)
                r = search_pending(c);
        if (r == 0 && c->node)
                r = guard_node_folders(c);
        if (r == 0)
                r = check_cwd_place(c); /* the folder of a script is one that cells cannot write by now */
        if (r == 0 && c->defer && l) {
                c->defer = false;
                r = check_words(c, l, json_object_get(c->def, "args"), 0);
        }
        if (r == 0)
                r = search_pending(c);
        if (r == 0)
                r = guard_start_files(c, home);
        if (r == 0)
                r = check_variables(c);
        if (r == 0)
                r = set_variables(c, inherit);
        if (r == 0 && found[0])
                json_object_set_new(c->def, "command", json_string(found));
        return r;
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
        c->entries = c->lenient = 0;
}

/*
 * A server with a sandbox of its own may run what cells can write, where that sandbox allows no
 * more than those cells may do.
 */
static int check_sandboxed(struct check *c, const json_t *inherit)
{
        const char *inherited = json_string_value(json_object_get(inherit, "PATH")) ?: "";
        int r = 0;

        for (size_t i = 0; i < c->scope->n_views && r == 0; i++) {
                cg_auto_json json_t *copy = json_deep_copy(inherit);
                struct cg_err first;
                char why[600];

                begin_again(c);
                c->views = &c->scope->views[i];
                c->n_views = 1;
                if (!c->path_is_own)
                        c->path = inherited;
                r = check_unsandboxed(c, copy);
                first = *c->err;
                if (!c->path_is_own)
                        c->path = inherited; /* not the copy's, which goes now */
                if (r == CG_E_INVAL && cg_sup_server_sandbox_is_wider(c, why, sizeof(why)))
                        return cg_fail(c->err, CG_E_INVAL,
                                       "%s. The sandbox that it has allows more than the "
                                       "cells': %s",
                                       first.msg, why);
                if (r == CG_E_INVAL)
                        r = 0;
        }
        return r;
}

static int check_definition(struct check *c)
{
        json_t *given = json_object_get(c->def, "inherit");
        cg_auto_json json_t *inherit = json_is_object(given) ? json_deep_copy(given) : cg_json_passed_env(),
                            *untouched = json_deep_copy(inherit);
        json_t *handed_on = inherit;
        const json_t *sandbox = json_object_get(c->def, "sandbox");
        int r;

        c->path = json_string_value(json_object_get(json_object_get(c->def, "env"), "PATH"));
        c->path_is_own = c->path != NULL;
        if (!c->path)
                c->path = json_string_value(json_object_get(inherit, "PATH")) ?: "";
        if (json_is_string(sandbox) && json_string_value(sandbox)[0] == '/' &&
            cg_sup_file_is_exposed(c, json_string_value(sandbox)) &&
            add_guard(c, json_string_value(sandbox)) < 0)
                return CG_E_NOMEM;
        r = check_unsandboxed(c, inherit);
        if (r == CG_E_INVAL && sandbox && !json_is_null(sandbox)) {
                r = check_sandboxed(c, untouched);
                handed_on = untouched;
        }
        if (!c->path_is_own)
                c->path = "";
        if (r == 0)
                json_object_set(c->def, "inherit", handed_on);
        return r;
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
        r = c->def && c->guards && c->pending && c->searched ? check_cwd(c)
                                                             : cg_fail(err, CG_E_NOMEM, "MCP server");
        /* Each definition records all its guards, whoever else has them. */
        if (r == 0) {
                begin_again(c);
                r = c->n_views ? check_definition(c) : 0;
        }
        if (r == 0 && c->linked && json_array_append_new(c->guards, json_true()) < 0)
                r = cg_fail(err, CG_E_NOMEM, "MCP server");
        return r;
}

void cg_sup_server_check_fini(struct check *c)
{
        json_decref(c->def);
        json_decref(c->guards);
        json_decref(c->pending);
        json_decref(c->searched);
        cg_buf_fini(&c->left_out);
}
