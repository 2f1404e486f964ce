/*
 * cellgate-supervisor: which files an MCP server runs. Servers run outside of the sandbox, so nothing that one loads may be what a cell
 * can write: a definition that leads there is refused, or what it leads to becomes read-only in every kernel (a guard).
 *
 * Everything here is decided from the definition alone, before the server starts. What a cell may write later is refused by name, whether
 * it exists yet or not; so a restart finds the same files.
 */
#include "supervisor/supervisor.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "sandbox/plan.h"
#include "sandbox/session_view.h"
#include "sandbox/view.h"

extern char **environ;

/* Interpreters that name interpreters: env, a script, its interpreter. */
#define CHAIN_MAX 4
#define FIRST_LINE 512

/* Of what belongs to a program. */
#define ENTRIES_MAX 300000
#define DEPTH_MAX 100
/* Guarded folders whose links lead to further ones, one after the other: each takes some 20 KB of stack. */
#define NESTED_MAX 32

/* One definition while it is checked. */
struct check {
        struct session *ss;
        const char *name;
        json_t *def;              /* as it goes to the tool server */
        struct cg_rules rules;    /* of the session's kernels, with the guards so far */
        json_t *guards;           /* paths, for cg_rules_add_guards() */
        char cwd[PATH_MAX];
        bool own_cwd;             /* a private folder: relative names lead nowhere */
        bool defer;               /* relative names are looked at once the folder has been found good */
        bool node;                /* something of it runs in node, which looks for packages in all folders above a script */
        const char *path;         /* PATH, borrowed */
        bool path_is_own;         /* of the definition */
        size_t entries;           /* that were searched for links */
        unsigned int nested;      /* folders that links have led to, one after the other */
        struct cg_buf left_out;   /* entries of the inherited PATH */
        struct cg_err *err;
};

/* ------------------------------------------------------------------ what cells can write */

static bool is_open(const struct check *c, const char *real)
{
        return cg_view_state(&c->rules, real) == CG_VIEW_WRITE;
}

/* Whether cells decide what @path (absolute) is. What cannot be followed counts as theirs only by its spelling. */
static bool is_exposed(const struct check *c, const char *path)
{
        struct cg_place place;
        bool found;

        if (cg_place_find(path, &place, NULL) < 0)
                return is_open(c, path);
        found = is_open(c, place.path);
        for (size_t i = 0; i < place.n_links && !found; i++)
                found = is_open(c, place.links[i]);
        cg_place_fini(&place);
        return found;
}

/* Whether a write root lies in @folder: a program that starts there finds what cells made under a name of their choice. */
static bool holds_write_root(const struct check *c, const char *folder)
{
        char real[PATH_MAX];

        if (!realpath(folder, real))
                return false;
        for (size_t i = 0; i < c->rules.n; i++)
                if (c->rules.v[i].kind == CG_RULE_ALLOW_WRITE && cg_plan_within(c->rules.v[i].path, real))
                        return true;
        return false;
}

/* As the server would open it: ".." is left to the file system, "~" is for shells. */
static int absolute(const struct check *c, const char *spelled, char ret[PATH_MAX])
{
        const char *home = sup_home();
        int n;

        if (spelled[0] == '~' && (spelled[1] == '/' || !spelled[1]) && home)
                n = snprintf(ret, PATH_MAX, "%s%s", home, spelled + 1);
        else
                n = snprintf(ret, PATH_MAX, "%s%s%s", spelled[0] == '/' ? "" : c->cwd, spelled[0] == '/' ? "" : "/", spelled);
        return n < 0 || n >= PATH_MAX ? CG_E_LIMIT : 0;
}

/* @piece of a word, from its first "/" (as in -I/lib, file:///lib, @/file), or as a name below the working folder. */
static bool piece_is_exposed(const struct check *c, const char *piece, char found[PATH_MAX])
{
        const char *slash = strchr(piece, '/');

        if (!*piece || (c->defer && piece[0] != '/' && piece[0] != '~' && !slash))
                return false;
        if (c->defer && piece[0] != '/' && piece[0] != '~')
                return absolute(c, slash, found) == 0 && is_exposed(c, found);
        if ((slash || strncmp(piece, "..", 2) == 0 || !c->own_cwd) && absolute(c, piece, found) == 0 && is_exposed(c, found))
                return true;
        return slash && slash != piece && absolute(c, slash, found) == 0 && is_exposed(c, found);
}

static bool ends_name(char ch)
{
        return !isalnum((unsigned char)ch) && !strchr("._-", ch);
}

/* A write root that stands in @text in letters, whatever is around it: "cd /work && npm start". */
static bool names_root(const struct check *c, const char *text, char found[PATH_MAX])
{
        const char *workspace = json_string_value(json_object_get(c->ss->options, "workspace"));

        for (size_t i = 0; i <= c->rules.n; i++) {
                const char *root = i < c->rules.n ? c->rules.v[i].path : workspace;
                size_t n = strlen(root);

                if ((i < c->rules.n && c->rules.v[i].kind != CG_RULE_ALLOW_WRITE) || n < 2)
                        continue;
                for (const char *p = text; (p = strstr(p, root)); p++) {
                        size_t len = n + strcspn(p + n, " \t\n:;,='\"`|&<>()");

                        if (p[n] && p[n] != '/' && !ends_name(p[n]))
                                continue;
                        if (len < PATH_MAX) {
                                memcpy(found, p, len);
                                found[len] = '\0';
                                if (is_exposed(c, found))
                                        return true;
                        }
                }
        }
        return false;
}

static bool words_are_exposed(const struct check *c, const char *text, char found[PATH_MAX])
{
        static const char separators[] = " \t\n:;,='\"`|&<>()";
        cg_auto_free char *copy = strdup(text);
        char *save = NULL;

        if (!copy || piece_is_exposed(c, text, found) || names_root(c, text, found))
                return true;
        for (char *p = strtok_r(copy, separators, &save); p; p = strtok_r(NULL, separators, &save))
                if (piece_is_exposed(c, p, found))
                        return true;
        return false;
}

/* The value that a shell would find; NULL: none. Borrowed. */
static const char *variable(const struct check *c, const char *name)
{
        const char *value = json_string_value(json_object_get(json_object_get(c->def, "env"), name));

        return value ? value : strcmp(name, "HOME") == 0 ? sup_home() : NULL;
}

/* $NAME and ${NAME} by their values, for the shell that may read @text. */
static void expand(const struct check *c, const char *text, struct cg_buf *ret)
{
        while (*text) {
                bool braces = text[0] == '$' && text[1] == '{';
                const char *p = text + 1 + braces, *value = NULL;
                size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
                char name[128];

                if (text[0] == '$' && n && n < sizeof(name)) {
                        snprintf(name, sizeof(name), "%.*s", (int)n, p);
                        value = variable(c, name);
                }
                if (value && cg_buf_adds(ret, value, NULL) == 0)
                        text = p + n + (braces && p[n] == '}');
                else if (cg_buf_add(ret, text++, 1, NULL) < 0)
                        return;
        }
}

/* Whether some path in @text is one that cells decide. */
static bool text_is_exposed(const struct check *c, const char *text, char found[PATH_MAX])
{
        cg_auto_buf struct cg_buf expanded = { .max = (size_t)1 << 20 };

        if (!strchr(text, '$'))
                return words_are_exposed(c, text, found);
        expand(c, text, &expanded);
        return words_are_exposed(c, text, found) || words_are_exposed(c, expanded.data ? expanded.data : "", found);
}

/* ------------------------------------------------------------------ guards */

static int refuse(struct check *c, const char *what, const char *path, const char *why)
{
        return cg_fail(c->err, CG_E_INVAL,
                       "MCP server \"%s\": %s %s: %s. The server would run outside of the sandbox what cells put there. Keep it in a folder that "
                       "cells cannot write, deny writing there (\"denyWrite\" in the settings file), or give the server a \"sandbox\" of its own",
                       c->name, what, path, why);
}

static int add_guard(struct check *c, const char *path)
{
        cg_auto_json json_t *one = json_pack("[s]", path);

        if (!one || json_array_append(c->guards, json_array_get(one, 0)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return cg_rules_add_guards(&c->rules, one, c->err);
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

/* The folder at or above @folder, as long as cells can write it, that has a file @marker. */
static bool marked_root(const struct check *c, const char *folder, const char *marker, char root[PATH_MAX])
{
        snprintf(root, PATH_MAX, "%s", folder);
        while (root[1] && is_open(c, root)) {
                if (has_file(root, marker))
                        return true;
                cut_last(root);
        }
        return false;
}

/*
 * The folder whose files belong to the program or script @path, which is real and open to cells: what it imports lies beside it. *own:
 * it is nothing but the folder that the file lies in.
 */
static void find_root(const struct check *c, const char *path, bool folder, bool js, char root[PATH_MAX], bool *own)
{
        char at[PATH_MAX], up[PATH_MAX];

        snprintf(at, sizeof(at), "%s", path);
        if (!folder)
                cut_last(at);
        *own = false;
        if (node_root(path, root) || marked_root(c, at, "pyvenv.cfg", root) || (js && marked_root(c, at, "package.json", root)))
                return;
        *own = true;
        snprintf(root, PATH_MAX, "%s", at);
        snprintf(up, sizeof(up), "%s", at);
        cut_last(up);
        /* Programs find their libraries beside their folder. */
        if ((!strcmp(base_name(at), "bin") || !strcmp(base_name(at), "libexec")) && is_open(c, up) && !holds_write_root(c, up))
                snprintf(root, PATH_MAX, "%s", up);
}

static int guard_path(struct check *c, const char *what, const char *path);

/* Some file systems leave the type out. */
static unsigned char type_of(int dir, const struct dirent *d)
{
        struct stat st;

        if (d->d_type != DT_UNKNOWN)
                return d->d_type;
        return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN : (unsigned char)IFTODT(st.st_mode);
}

/* Folders below @path, @depth deep, are searched for links: what these lead to is loaded under the name of the link. */
static int guard_links(struct check *c, const char *what, const char *path, int depth)
{
        DIR *dir = opendir(path);
        const struct dirent *d;
        int r = 0;

        if (!dir && errno != ENOENT && errno != ENOTDIR)
                return cg_fail_errno(c->err, "MCP server \"%s\": %s, whose files belong to its program, cannot be searched for links", c->name, path);
        while (dir && r == 0 && (d = readdir(dir))) {
                char child[PATH_MAX];
                unsigned char type;

                if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
                    snprintf(child, sizeof(child), "%s/%s", path, d->d_name) >= (int)sizeof(child))
                        continue;
                if (++c->entries > ENTRIES_MAX)
                        r = cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": more than %d files belong to its program (%s)", c->name, ENTRIES_MAX, path);
                else if ((type = type_of(dirfd(dir), d)) == DT_LNK && is_exposed(c, child))
                        r = guard_path(c, what, child);
                else if (type == DT_DIR && depth == 0)
                        r = cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": folders of its program are more than %d deep (%s)", c->name, DEPTH_MAX, path);
                else if (type == DT_DIR)
                        r = guard_links(c, what, child, depth - 1);
        }
        if (dir)
                closedir(dir);
        return r;
}

/* Makes what belongs to @path (real) read-only; nothing where cells cannot write it anyway. */
static int guard(struct check *c, const char *what, const char *path, bool folder, bool link)
{
        char root[PATH_MAX];
        bool own;

        if (!is_open(c, path))
                return 0;
        find_root(c, path, folder, c->node, root, &own);
        if (!holds_write_root(c, root)) {
                int r = add_guard(c, root);

                if (r == 0 && ++c->nested > NESTED_MAX)
                        r = cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": links lead from its program through more than %d folders (%s)",
                                    c->name, NESTED_MAX, root);
                else if (r == 0)
                        r = guard_links(c, what, root, DEPTH_MAX);
                c->nested--;
                return r;
        }
        if (link && own)
                return add_guard(c, path); /* a link to elsewhere: it stays what it is, and nothing beside it is loaded */
        if (own && !folder)
                return refuse(c, what, path, "it lies directly in a folder that cells write, and so would what it imports");
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
        if (r == 0 && place.missing && is_open(c, place.path))
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

        if (!(n > 4 && (strcmp(name + n - 4, ".pth") == 0)) && !(n > 9 && strcmp(name + n - 9, ".egg-link") == 0) &&
            strncmp(name, "__editable__", 12) != 0)
                return 0;
        if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path) ||
            cg_read_regular(path, (size_t)1 << 20, &text, &len, NULL) < 0)
                return 0;
        for (char *p = strtok_r(text, "\r\n'\"", &save); p && r == 0; p = strtok_r(NULL, "\r\n'\"", &save)) {
                int len_path = snprintf(path, sizeof(path), "%s%s%s", p[0] == '/' ? "" : folder, p[0] == '/' ? "" : "/", p);

                if (len_path < (int)sizeof(path) && (p[0] == '/' || !strncmp(p, "..", 2)) && is_exposed(c, path))
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
        char folder[PATH_MAX], home[PATH_MAX], config[PATH_MAX + 16];
        cg_auto_free char *text = NULL;
        size_t len;
        int r;

        if (strncmp(base_name(program), "py", 2) != 0)
                return 0;
        snprintf(folder, sizeof(folder), "%s", program);
        cut_last(folder);
        cut_last(folder);
        r = guard_modules(c, folder[1] ? folder : "");
        if (r == 0 && sup_home()) {
                snprintf(config, sizeof(config), "%s/.local", sup_home());
                r = guard_modules(c, config);
        }
        if (r == 0)
                r = guard_modules(c, "/usr/local");
        if (r < 0)
                return r;
        snprintf(config, sizeof(config), "%s/pyvenv.cfg", folder);
        if (cg_read_regular(config, (size_t)64 << 10, &text, &len, NULL) < 0 || !cg_pyvenv_home(text, home) || !is_exposed(c, home))
                return 0;
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
 * Where a command without "/" is found. Entries that cells can write come last, and only where it is found in one of them: a program
 * that a cell has put into another does not take the place of the one that the user means.
 */
static int look_up(struct check *c, const char *command, char ret[PATH_MAX])
{
        char entry[PATH_MAX], path[PATH_MAX + 256], other[PATH_MAX] = "";
        const char *list;

        for (int exposed = 0; exposed < 2 && !other[0]; exposed++) {
                for (list = c->path; next_entry(&list, entry);) {
                        if (entry[0] != '/' || is_exposed(c, entry) != (exposed == 1) ||
                            snprintf(path, sizeof(path), "%s/%s", entry, command) >= PATH_MAX || access(path, X_OK) < 0)
                                continue;
                        if (other[0] && same_file(other, path))
                                continue;
                        if (other[0])
                                return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": the program %s is found in two folders of PATH that cells can "
                                               "write, %s and %s; give its whole path as \"command\"", c->name, command, other, path);
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
                if (!is_exposed(c, entry))
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
        RUNS_PACKAGE, /* its first operand is a command of its own; settings are searched in folders above */
        RUNS_ALL,     /* any argument may be code */
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
          "-r --require --import --loader --experimental-loader -C --conditions --env-file --env-file-if-exists --openssl-config --icu-data-dir",
          "-e --eval -p --print -pe", "*", "" },
        { RUNS_PACKAGE, true, "npx bunx pnpx", "-p --package --prefix --userconfig --globalconfig --cache -w --workspace --registry", "-c --call",
          "-y --yes -n --no --no-install -q --quiet -s --silent --ignore-existing --offline --prefer-offline --prefer-online -d --verbose", "" },
        { RUNS_PACKAGE, false, "uv uvx", "--from --with --with-editable --with-requirements -p --python --directory --project -m", "",
          "-q --quiet -v --verbose -n --no-cache --no-cache-dir --offline --isolated --refresh --no-config --native-tls --no-progress "
          "--no-project --active --frozen --locked --no-sync --exact --managed-python --no-managed-python -U --upgrade --reinstall --no-env-file",
          "run tool x" },
        { RUNS_ALL, true, "npm pnpm yarn bun deno tsx ts-node ts-node-esm nodemon", "", "", "", "" },
        { RUNS_ALL, false,
          "sh bash dash zsh ksh mksh ash fish busybox env nice ionice nohup timeout stdbuf setsid chrt taskset time unbuffer script xvfb-run "
          "sudo doas su runuser flock xargs parallel watch make gmake ninja just task go cargo dotnet mono java kotlin scala groovy gradle mvn ant "
          "ruby irb bundle rake perl php lua luajit R Rscript julia pwsh tclsh wish expect guile racket runghc stack cabal swift elixir mix iex "
          "erl escript awk gawk mawk gdb poetry hatch pdm rye pipx pipenv conda mamba micromamba mise direnv nix nix-shell volta fnm rustup "
          "ld.so ld-linux-x86-64.so qemu wine strace ltrace systemd-run firejail bwrap unshare chroot git ssh",
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

static bool is_file(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool is_present(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0;
}

/* A word that the program which runs the server obeys. */
static int check_code_word(struct check *c, const struct launcher *l, const char *word)
{
        char path[PATH_MAX], what[PATH_MAX + 32];
        int r = 0;

        snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
        /* A script is protected with what lies beside it; where the program looks further up, that is not enough. */
        if (l->kind != RUNS_PACKAGE && !(l->kind == RUNS_ALL && l->node) && (word[0] == '/' || (!c->own_cwd && !c->defer)) && absolute(c, word, path) == 0 &&
            (is_file(path) || (l->kind == RUNS_SCRIPT && is_present(path))))
                r = guard_path(c, what, path);
        if (r == 0 && text_is_exposed(c, word, path))
                r = refuse(c, what, path, "cells can write there");
        return r;
}

/* What a server is to work on, such as a database, is not run by it. */
static bool is_script(const char *path)
{
        static const char extensions[] = "py pyw pyz js mjs cjs ts mts cts tsx jsx rb pl pm php sh bash zsh fish lua jar war class wasm so r R jl ps1 "
                                         "groovy kts exs ex tcl awk mk go rs json json5 jsonc toml yaml yml ini conf cfg env xml properties";
        const char *dot = strrchr(base_name(path), '.');

        return access(path, X_OK) == 0 || !dot || has_word(extensions, dot + 1);
}

/*
 * A word for the server itself. Folders are what it works on. A file that may be a script is protected with its folder or, directly in a
 * write root, refused; settings and the like are read-only by themselves.
 */
static int check_own_word(struct check *c, const char *word)
{
        const char *value = word[0] == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;
        char path[PATH_MAX], what[PATH_MAX + 32];

        if (strncmp(value, "file://", 7) == 0)
                value += 7;
        if ((value[0] != '/' && (c->own_cwd || c->defer)) || absolute(c, value, path) < 0 || !is_file(path) || !is_script(path) || !is_exposed(c, path))
                return 0;
        snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
        return guard_path(c, what, path);
}

static int check_program(struct check *c, const char *command, const struct launcher **ret, char found[PATH_MAX], int depth);

/* The words of @l, from *i on: those that it obeys, up to its operand and with it. Then the server's own. */
static int check_words(struct check *c, const struct launcher *l, const json_t *args, size_t i)
{
        bool value = false, last = false;
        int r = 0;

        for (; i < json_array_size(args) && r == 0; i++) {
                const char *w = json_string_value(json_array_get(args, i));
                char found[PATH_MAX];

                if (!w)
                        return 0; /* the tool server says what is wrong with it */
                if (l->kind == RUNS_NOTHING) {
                        r = check_own_word(c, w);
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
                        value = !last && !strchr(w, '=') && (has_word(l->values, w) || (l->flags[0] != '*' && !has_word(l->flags, w)));
                } else if (!has_word(l->commands, w)) {
                        c->node |= l->node;
                        if (l->kind == RUNS_PACKAGE && !strchr(w, '@') && find_launcher(w)->kind != RUNS_NOTHING)
                                r = check_program(c, w, &l, found, 0);
                        else
                                l = find_launcher("");
                }
        }
        return r;
}

/* "#!" of a script: protects its interpreter, whose operand it is: all arguments are the script's own. */
static int check_interpreter(struct check *c, const char *program, int depth)
{
        cg_auto_fd int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        char line[FIRST_LINE], found[PATH_MAX], *word, *save = NULL;
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
        const struct launcher *l = NULL;
        bool env;
        int r = 0;

        if (n < 3 || line[0] != '#' || line[1] != '!')
                return 0;
        line[n] = '\0';
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
                } else if (text_is_exposed(c, word, found)) {
                        r = refuse(c, "the first line of its program leads to", found, "cells can write there");
                }
        }
        if (r == 0 && l)
                c->node |= l->node;
        return r;
}

/* Finds the program, and protects it with its interpreter. *ret: what its arguments mean. */
static int check_program(struct check *c, const char *command, const struct launcher **ret, char found[PATH_MAX], int depth)
{
        char real[PATH_MAX];
        int r = 0;

        *ret = find_launcher(command);
        if (strchr(command, '/'))
                r = absolute(c, command, found);
        else
                r = look_up(c, command, found);
        if (r < 0)
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": the path of its program is too long", c->name);
        if (!found[0])
                return 0;
        if (!is_present(found) && is_exposed(c, found))
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
static const char *const code_prefixes[] = { "UV_", "PIP_", "PIPX_", "NPM_", "npm_", "YARN_", "PNPM_", "BUN_", "DENO_", "NODE_", "PYTHON", "VIRTUAL_ENV",
                                             "CONDA", "RUBY", "GEM_", "BUNDLE_", "PERL", "PHP", "LUA_", "JAVA", "JDK_", "_JAVA", "MAVEN_", "GRADLE_",
                                             "DOTNET_", "LD_", "GCONV_", "OPENSSL_", "GIT_", "XDG_", "GO", "CARGO_", "RUST", "R_", "JULIA_", "TCL",
                                             "BASH_", "ENV", "ZDOTDIR", "HOME", "SHELL", "TMPDIR", "PATH" };
/* Words in other names: what the server works on. */
static const char data_words[] = "DATA DATABASE DB SQLITE DUCKDB MEMORY WORKSPACE WORKSPACES REPO REPOS REPOSITORY PROJECT ALLOWED OUTPUT OUT LOG "
                                 "LOGS VAULT NOTES DOCS DOCUMENTS DOWNLOAD DOWNLOADS UPLOAD UPLOADS STORAGE INPUT FILES FILESYSTEM";

static bool is_data_variable(const char *name)
{
        cg_auto_free char *copy = strdup(name);
        char *save = NULL;

        for (size_t i = 0; i < CG_ARRAY_LEN(code_prefixes); i++)
                if (strncmp(name, code_prefixes[i], strlen(code_prefixes[i])) == 0)
                        return false;
        for (char *p = copy ? strtok_r(copy, "_", &save) : NULL; p; p = strtok_r(NULL, "_", &save))
                if (has_word(data_words, p))
                        return true;
        return false;
}

static int check_variables(struct check *c)
{
        const char *name;
        json_t *value;

        json_object_foreach(json_object_get(c->def, "env"), name, value) {
                const char *text = json_string_value(value);
                char found[PATH_MAX], what[200];

                if (!text || strcmp(name, "PATH") == 0 || is_data_variable(name) || !text_is_exposed(c, text, found))
                        continue;
                snprintf(what, sizeof(what), "the variable %.100s leads to", name);
                return refuse(c, what, found, "cells can write there");
        }
        return 0;
}

/* ------------------------------------------------------------------ what interpreters and installers load by themselves */

/* Below the home folder; "/" at the end: a folder. */
static const char *const start_files[] = { ".local/lib/", ".local/bin/", ".local/share/uv/", ".local/share/pipx/", ".local/share/virtualenv/",
                                           ".config/", ".cache/uv/", ".cache/pip/", ".cache/node/", ".cache/deno/", ".cache/pnpm/", ".npm/",
                                           ".npmrc", ".node_modules/", ".node_libraries/", "node_modules/", ".yarnrc", ".yarnrc.yml", ".yarn/",
                                           ".bunfig.toml", ".bun/", ".deno/", ".nvm/", ".volta/", ".fnm/", ".pyenv/", ".pydistutils.cfg", ".pip/",
                                           ".rbenv/", ".gem/", ".bundle/", ".cargo/", ".rustup/", ".m2/", ".gradle/", ".nuget/", ".dotnet/",
                                           ".julia/", ".Rprofile", ".Renviron", ".sdkman/", ".asdf/" };

static int guard_start_files(struct check *c, const char *home)
{
        char path[PATH_MAX];
        int r = 0;

        for (size_t i = 0; home && home[0] == '/' && i < CG_ARRAY_LEN(start_files) && r == 0; i++)
                if (snprintf(path, sizeof(path), "%s/%s", home, start_files[i]) < (int)sizeof(path) && is_exposed(c, path))
                        r = add_guard(c, path);
        return r;
}

/* node looks for a package in the node_modules of every folder above the script; an optional one may be in none. */
static int guard_node_folders(struct check *c)
{
        cg_auto_json json_t *roots = json_deep_copy(c->guards);
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(roots, i, v) {
                char at[PATH_MAX], path[PATH_MAX + 16];

                snprintf(at, sizeof(at), "%s", json_string_value(v));
                while (at[1] && r == 0) {
                        cut_last(at);
                        snprintf(path, sizeof(path), "%s/node_modules/", at[1] ? at : "");
                        if (is_open(c, at) && is_exposed(c, path) && !strstr(at, "/node_modules"))
                                r = add_guard(c, path);
                }
        }
        return r;
}

/* ------------------------------------------------------------------ a definition */

/*
 * A private folder. Package managers look for their settings in the folders above as well, up to one with a project's file; where the
 * runtime folder lies in /tmp, others of the machine could put some there.
 */
static int make_cwd(struct check *c)
{
        static const char *const ends[] = { "package.json", "{}\n", "uv.toml", "" };
        char path[PATH_MAX + 32];
        int n = snprintf(c->cwd, sizeof(c->cwd), "%s/servers", c->ss->dir);

        mkdir(c->cwd, 0700);
        snprintf(c->cwd + n, sizeof(c->cwd) - (size_t)n, "/%u", ++c->ss->n_server_dirs);
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
        return json_object_set_new(c->def, "cwd", json_string(c->cwd)) < 0 ? cg_fail(c->err, CG_E_NOMEM, "MCP server") : 0;
}

static int check_cwd(struct check *c)
{
        json_t *cwd = json_object_get(c->def, "cwd");
        const char *text = json_string_value(cwd);

        if (!cwd || json_is_null(cwd) || !text)
                return make_cwd(c); /* of another type: the tool server refuses it */
        if (text[0] != '/')
                return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": \"cwd\" must be an absolute path, not \"%s\"", c->name, text);
        if (strlen(text) >= sizeof(c->cwd))
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": \"cwd\" is longer than %d bytes", c->name, PATH_MAX);
        snprintf(c->cwd, sizeof(c->cwd), "%s", text);
        return 0;
}

static int check_cwd_place(struct check *c)
{
        if (c->own_cwd)
                return 0;
        if (is_exposed(c, c->cwd))
                return refuse(c, "it would start in the folder (\"cwd\")", c->cwd, "cells can write there, and interpreters look first for modules "
                              "and settings in the folder that they start in");
        if (holds_write_root(c, c->cwd))
                return refuse(c, "it would start in the folder (\"cwd\")", c->cwd, "a folder that cells write lies in it");
        return 0;
}

/* With no working folder of its own a relative name leads nowhere: say so, where one was meant. */
static int check_relative(struct check *c, const char *what, const char *word)
{
        const char *workspace = json_string_value(json_object_get(c->ss->options, "workspace"));
        char here[PATH_MAX], path[2 * PATH_MAX];
        const char *folders[] = { workspace, getcwd(here, sizeof(here)) };

        if (!c->own_cwd || !word || word[0] == '/' || word[0] == '-' || !*word || !strpbrk(word, "./"))
                return 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                if (!folders[i] || snprintf(path, sizeof(path), "%s/%s", folders[i], word) >= PATH_MAX || !is_file(path))
                        continue;
                return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": %s \"%s\" is relative to the folder that cellgate was started in, but servers "
                               "start in a folder of their own, which cells cannot write: give the whole path, %s", c->name, what, word, path);
        }
        return 0;
}

static int check_relative_command(struct check *c, const char *command)
{
        int r = check_relative(c, "the command", command);

        if (r == 0 && c->own_cwd && command[0] != '/')
                r = cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": the command \"%s\" is relative: give its whole path, or a \"cwd\"", c->name, command);
        return r;
}

static int check_relative_words(struct check *c)
{
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(json_object_get(c->def, "args"), i, v)
                if (r == 0)
                        r = check_relative(c, "the argument", json_string_value(v));
        return r;
}

/* The variables that a server has from its host: by the host itself, where it shares the supervisor with others. */
static json_t *inherited(const json_t *def)
{
        json_t *given = json_object_get(def, "inherit"), *all;

        if (json_is_object(given))
                return json_deep_copy(given);
        all = json_object();
        for (char **v = environ; *v; v++) {
                char name[64];
                size_t n = strcspn(*v, "=");

                if (!(*v)[n] || n >= sizeof(name) || !cg_proc_env_passes(*v))
                        continue;
                memcpy(name, *v, n);
                name[n] = '\0';
                json_object_set_new(all, name, json_string(*v + n + 1));
        }
        return all;
}

/* Leaves out what leads to where cells write; PATH becomes what is left of it. */
static int set_variables(struct check *c, json_t *inherit)
{
        static const char *const folders[] = { "TMPDIR", "SHELL" };
        cg_auto_buf struct cg_buf path;
        int r;

        cg_buf_init(&path, (size_t)1 << 20);
        r = clean_path(c, &path);
        if (r < 0)
                return r;
        json_object_set_new(c->path_is_own ? json_object_get(c->def, "env") : inherit, "PATH", json_string(path.data ? path.data : ""));
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++) {
                const char *text = json_string_value(json_object_get(inherit, folders[i]));

                if (text && (text[0] != '/' || is_exposed(c, text)))
                        json_object_del(inherit, folders[i]);
        }
        return 0;
}

static int check_unsandboxed(struct check *c, json_t *inherit)
{
        const char *command = json_string_value(json_object_get(c->def, "command"));
        const char *home = json_string_value(json_object_get(json_object_get(c->def, "env"), "HOME"));
        const struct launcher *l = NULL;
        char found[PATH_MAX] = "";
        int r = 0;

        c->defer = !c->own_cwd && is_exposed(c, c->cwd);
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
        if (r == 0 && c->node)
                r = guard_node_folders(c);
        if (r == 0)
                r = check_cwd_place(c); /* the folder of a script is one that cells cannot write by now */
        if (r == 0 && c->defer && l) {
                c->defer = false;
                r = check_words(c, l, json_object_get(c->def, "args"), 0);
        }
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

/* ------------------------------------------------------------------ a server in a sandbox of its own */

static int settings_of(const json_t *o, struct cg_settings **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        return text ? cg_settings_parse(text, len, "sandbox settings", 0, ret, err) : cg_fail(err, CG_E_NOMEM, "sandbox settings");
}

static int own_settings(const json_t *sandbox, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if (json_is_object(sandbox)) {
                *ret = json_incref((json_t *)(uintptr_t)sandbox);
                return 0;
        }
        if (!json_is_string(sandbox) || cg_read_regular(json_string_value(sandbox), CG_MAX_SETTINGS, &text, &len, err) < 0)
                return CG_E_INVAL;
        return cg_json_object(text, len, json_string_value(sandbox), ret, err);
}

static bool list_has(const json_t *list, const json_t *item)
{
        const json_t *v;
        size_t i;

        json_array_foreach((json_t *)(uintptr_t)list, i, v)
                if (json_equal(v, item))
                        return true;
        return false;
}

/* All members but @except, which NULL ends, are as in @other, or say nothing. */
static bool same_but(const json_t *o, const json_t *other, const char *const *except, const char **which)
{
        const char *key;
        json_t *v;

        json_object_foreach((json_t *)(uintptr_t)o, key, v) {
                bool skip = json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) || json_equal(v, json_object_get(other, key));

                for (size_t i = 0; except[i]; i++)
                        skip |= strcmp(except[i], key) == 0;
                if (!skip) {
                        *which = key;
                        return false;
                }
        }
        return true;
}

static bool network_is_wider(const json_t *own, const json_t *kernel, char *why, size_t size)
{
        static const char *const lists[] = { "allowedDomains", "deniedDomains", NULL };
        json_t *allowed = json_object_get(own, "allowedDomains"), *v;
        const char *which;
        size_t i;

        if (!same_but(own, kernel, lists, &which)) {
                snprintf(why, size, "network.%s is not as the cells'", which);
                return true;
        }
        json_array_foreach(allowed, i, v)
                if (!list_has(json_object_get(kernel, "allowedDomains"), v)) {
                        snprintf(why, size, "it may reach %.200s", json_string_value(v) ?: "?");
                        return true;
                }
        json_array_foreach(json_object_get(kernel, "deniedDomains"), i, v)
                if (json_array_size(allowed) && !list_has(json_object_get(own, "deniedDomains"), v)) {
                        snprintf(why, size, "%.200s is denied to cells only", json_string_value(v) ?: "?");
                        return true;
                }
        return false;
}

static bool files_are_wider(const struct check *c, const struct cg_settings *s, char *why, size_t size)
{
        struct cg_path_base base = { .cwd = c->cwd, .home = sup_home() };
        const json_t *hide = json_object_get(c->ss->options, "hide"), *v;
        struct cg_rules rules = { .off = false };
        const char *workspace = json_string_value(json_object_get(c->ss->options, "workspace"));
        char path[PATH_MAX + 8];
        bool wider = true;
        struct cg_err err;
        size_t i;

        if (cg_rules_make(s, &base, &rules, &err) < 0) {
                snprintf(why, size, "its settings: %.400s", err.msg);
                return true;
        }
        if (rules.off) {
                snprintf(why, size, "its files are not restricted");
                goto end;
        }
        for (i = 0; i < rules.n; i++)
                if (rules.v[i].kind == CG_RULE_ALLOW_WRITE && strcmp(rules.v[i].why, "default") != 0 && !is_open(c, rules.v[i].path)) {
                        snprintf(why, size, "it may write %.400s", rules.v[i].path);
                        goto end;
                }
        for (i = 0; i < c->rules.n; i++)
                if (c->rules.v[i].kind == CG_RULE_DENY_READ && cg_view_state(&c->rules, c->rules.v[i].path) == CG_VIEW_HIDDEN &&
                    cg_view_state(&rules, c->rules.v[i].path) != CG_VIEW_HIDDEN) {
                        snprintf(why, size, "it may read %.400s", c->rules.v[i].path);
                        goto end;
                }
        json_array_foreach((json_t *)(uintptr_t)hide, i, v)
                if (is_present(json_string_value(v)) && cg_view_state(&rules, json_string_value(v)) != CG_VIEW_HIDDEN) {
                        snprintf(why, size, "it may read %.400s", json_string_value(v));
                        goto end;
                }
        snprintf(path, sizeof(path), "%s/.env", workspace);
        if (!json_object_get(c->ss->options, "settings") && is_present(path) && cg_view_state(&rules, path) != CG_VIEW_HIDDEN) {
                snprintf(why, size, "it may read %.400s", path);
                goto end;
        }
        wider = false;
end:
        cg_rules_fini(&rules);
        return wider;
}

/* Whether what a cell could make the server run could do more than the cell itself. */
static bool is_wider(const struct check *c, char *why, size_t size)
{
        static const char *const sections[] = { "network", "filesystem", "cellgate", "credentials", NULL };
        static const char *const harmless[] = { "limits", "hideCredentials", NULL };
        const json_t *kernel = json_object_get(c->ss->options, "settings"), *hide;
        cg_auto_json json_t *own = NULL;
        cg_auto_settings struct cg_settings *s = NULL;
        const char *which, *name;
        struct cg_err err;
        json_t *v;

        if (own_settings(json_object_get(c->def, "sandbox"), &own, &err) < 0 || settings_of(own, &s, &err) < 0) {
                snprintf(why, size, "its settings: %.400s", err.msg);
                return true;
        }
        if (!same_but(own, kernel, sections, &which) ||
            !same_but(json_object_get(own, "cellgate"), json_object_get(kernel, "cellgate"), harmless, &which)) {
                snprintf(why, size, "\"%s\" is not as the cells'", which);
                return true;
        }
        hide = json_object_get(json_object_get(kernel, "cellgate"), "hideCredentials");
        if (!json_is_false(hide) && !json_is_true(json_object_get(json_object_get(own, "cellgate"), "hideCredentials"))) {
                snprintf(why, size, "it may read credentials, unless \"cellgate\": {\"hideCredentials\": true} stands there");
                return true;
        }
        json_object_foreach(json_object_get(c->def, "env"), name, v)
                if (!cg_proc_env_passes(name)) {
                        snprintf(why, size, "it has the variable %.100s, which cells have not", name);
                        return true;
                }
        return network_is_wider(json_object_get(own, "network"), json_object_get(kernel, "network"), why, size) ||
               files_are_wider(c, s, why, size);
}

static int check_definition(struct check *c)
{
        cg_auto_json json_t *inherit = inherited(c->def), *untouched = json_deep_copy(inherit);
        const json_t *sandbox = json_object_get(c->def, "sandbox");
        char why[600];
        int r;

        c->path = json_string_value(json_object_get(json_object_get(c->def, "env"), "PATH"));
        c->path_is_own = c->path != NULL;
        if (!c->path)
                c->path = json_string_value(json_object_get(inherit, "PATH")) ?: "";
        if (json_is_string(sandbox) && json_string_value(sandbox)[0] == '/' && is_exposed(c, json_string_value(sandbox)) &&
            add_guard(c, json_string_value(sandbox)) < 0)
                return CG_E_NOMEM;
        r = check_unsandboxed(c, inherit);
        if (r == CG_E_INVAL && sandbox && !json_is_null(sandbox)) {
                if (is_wider(c, why, sizeof(why))) {
                        struct cg_err first = *c->err;

                        return cg_fail(c->err, CG_E_INVAL, "%s. The sandbox that it has allows more than the cells': %s", first.msg, why);
                }
                r = 0;
                json_object_set(c->def, "inherit", untouched);
        } else if (r == 0) {
                json_object_set(c->def, "inherit", inherit);
        }
        return r;
}

/* ------------------------------------------------------------------ sessions */

static bool is_sandboxed(const struct session *ss)
{
        return !json_is_false(json_object_get(ss->options, "sandbox"));
}

static int rules_of(const struct session *ss, const json_t *guards, struct cg_rules *ret, struct cg_err *err)
{
        const json_t *o = json_object_get(ss->options, "settings");
        cg_auto_settings struct cg_settings *s = NULL;

        if (o && settings_of(o, &s, err) < 0)
                return CG_E_INVAL;
        return cg_session_rules(s, json_string_value(json_object_get(ss->options, "workspace")), sup_home(), guards, true, ret, err);
}

json_t *server_guards(const struct sup *s)
{
        json_t *all = json_array(), *of_server, *v;
        const char *name;
        size_t k;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                json_object_foreach(s->sessions[i] ? s->sessions[i]->guards : NULL, name, of_server) {
                        json_array_foreach(of_server, k, v)
                                if (!list_has(all, v))
                                        json_array_append(all, v);
                }
        }
        return all;
}

/*
 * What belongs to a server, together with that of one of this name that runs until the new one has started. Kernels must be able to start
 * with all guards that there are then.
 */
static int keep_guards(struct session *ss, const char *name, json_t *guards, struct cg_err *err)
{
        cg_auto_json json_t *all = server_guards(ss->sup);
        struct cg_rules rules = { .off = false };
        int r = 0;

        if (json_object_get(json_object_get(ss->servers, "all"), name) && json_array_extend(guards, json_object_get(ss->guards, name)) < 0)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        if (json_array_size(guards)) {
                if (json_array_extend(all, guards) < 0)
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
                r = rules_of(ss, all, &rules, err);
                cg_rules_fini(&rules);
        }
        return r < 0 ? r : json_object_set(ss->guards, name, guards) < 0 ? cg_fail(err, CG_E_NOMEM, "MCP server") : 0;
}

int server_files_check(struct session *ss, const char *name, const json_t *definition, json_t **ret, struct cg_err *err)
{
        struct check c = { .ss = ss, .name = name, .def = json_deep_copy(definition), .guards = json_array(), .err = err };
        int r;

        cg_buf_init(&c.left_out, (size_t)1 << 20);
        r = c.def && c.guards ? check_cwd(&c) : cg_fail(err, CG_E_NOMEM, "MCP server");
        if (r == 0 && is_sandboxed(ss))
                r = rules_of(ss, NULL, &c.rules, err); /* each definition records all its guards, whoever else has them */
        if (r == 0 && is_sandboxed(ss) && !c.rules.off)
                r = check_definition(&c);
        if (r == 0 && c.left_out.len && !ss->told_path) {
                ss->told_path = true;
                session_notice(ss, "MCP servers do without the entries of PATH that cells can write: %.*s", (int)c.left_out.len, c.left_out.data);
        }
        if (r == 0)
                r = keep_guards(ss, name, c.guards, err);
        if (r == 0)
                *ret = json_incref(c.def);
        json_decref(c.def);
        json_decref(c.guards);
        cg_buf_fini(&c.left_out);
        cg_rules_fini(&c.rules);
        return r;
}

/* The first of @guards that the session's running kernel can write; NULL: none. */
static const char *open_guard(const struct session *ss, const json_t *guards, struct cg_err *err)
{
        const char *workspace = json_string_value(json_object_get(ss->options, "workspace"));
        const char *found = NULL;
        struct cg_rules rules;
        bool near = json_object_get(ss->options, "settings") != NULL;
        char real[PATH_MAX];
        const json_t *v;
        size_t i;

        json_array_foreach((json_t *)(uintptr_t)guards, i, v)
                near |= realpath(workspace, real) && cg_plan_within(json_string_value(v), real);
        if (!near)
                return NULL;
        if (rules_of(ss, ss->kernel->guards, &rules, err) < 0)
                return workspace;
        json_array_foreach((json_t *)(uintptr_t)guards, i, v) {
                struct check c = { .rules = rules };

                if (!found && !list_has(ss->kernel->guards, v) && is_exposed(&c, json_string_value(v)))
                        found = json_string_value(v);
        }
        cg_rules_fini(&rules);
        return found;
}

/* Whether denials in write roots hold in the session's kernel: the landlock tier has them with ":freeze" only. */
static bool holds_denials(const struct session *ss)
{
        const char *tier = json_string_value(json_object_get(ss->options, "tier"));

        if (!tier)
                tier = json_string_value(json_object_get(json_object_get(json_object_get(ss->options, "settings"), "cellgate"), "tier"));
        return !ss->kernel->tier || strcmp(ss->kernel->tier, "landlock") != 0 || (tier && strstr(tier, ":freeze"));
}

int server_files_close(struct session *ss, struct cg_err *err)
{
        cg_auto_json json_t *guards = server_guards(ss->sup);
        struct session *renew[CG_MAX_SESSIONS];
        size_t n = 0;

        if (!json_array_size(guards))
                return 0;
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *x = ss->sup->sessions[i];
                const char *path;

                if (!x || !x->kernel || x->kernel->state == K_WAITING || !is_sandboxed(x) || !(path = open_guard(x, guards, err)))
                        continue;
                /* A reset does not undo what they wrote. */
                if (x->ever_used)
                        return cg_fail(err, CG_E_STATE,
                                       "%s, which the server runs, could be written by cells of %s, and some have run already: add the server "
                                       "before the first cell, when the session begins, or keep its program where cells cannot write", path,
                                       x == ss ? "this session" : "another session");
                if (!holds_denials(x))
                        return cg_fail(err, CG_E_UNSUPPORTED,
                                       "%s, which the server runs, lies where cells write, and the landlock tier cannot keep them from it: keep the "
                                       "program elsewhere, or choose \"landlock:freeze\"", path);
                renew[n++] = x;
        }
        for (size_t i = 0; i < n; i++)
                session_renew_kernel(renew[i]);
        return 0;
}

int server_files_check_workspace(const struct session *ss, struct cg_err *err)
{
        cg_auto_json json_t *guards = server_guards(ss->sup);
        const char *workspace = json_string_value(json_object_get(ss->options, "workspace"));
        char real[PATH_MAX], guarded[PATH_MAX];
        json_t *v;
        size_t i;

        if (!is_sandboxed(ss))
                return 0;
        if (!realpath(workspace, real))
                return cg_fail_errno(err, "workspace %s", workspace);
        json_array_foreach(guards, i, v)
                if (realpath(json_string_value(v), guarded) && cg_plan_within(real, guarded))
                        return cg_fail(err, CG_E_INVAL, "workspace %s: an MCP server of another session runs from %s, which cells must not change; "
                                       "choose another folder", workspace, guarded);
        return cg_own_check_workspace(workspace, err);
}
