/*
 * cellgate-search: the files that belong to the programs and scripts of an MCP server, and the
 * folders of modules that a Python among them has.
 */
#include "search/search.h"

#include "base/fd.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "base/path_glob.h"
#include "sandbox/settings/paths.h"

/* Interpreters that name interpreters: env, a script, its interpreter. */
#define CHAIN_MAX 4
/* Bytes of a script that are read, for its first line and the programs that it names. */
#define SCRIPT_MAX (64u << 10)

static bool has_word(const char *list, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = list; n && (p = strstr(p, word)); p += n)
                if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' '))
                        return true;
        return false;
}

static const char *extension(const char *path)
{
        const char *dot = strrchr(cg_path_base(path), '.');

        return dot ? dot + 1 : "";
}

static bool is_js(const char *path)
{
        return has_word("js mjs cjs ts mts cts jsx tsx", extension(path));
}

/* A file that may be code, by its mode or extension; one without an extension may be a script. */
static bool is_code(const char *path)
{
        return access(path, X_OK) == 0 || is_js(path) || !extension(path)[0] ||
               has_word(
                       "py pyw pyz rb pl pm php sh bash zsh fish lua jar war class wasm so r R jl ps1 groovy kts exs ex "
                       "tcl awk mk go rs",
                       extension(path));
}

/*
 * Installers that link the files of their cache or store into every environment, and what runs
 * programs from these. A program of theirs has files whose other names may be in a write root.
 */
bool cg_search_names_linker(const char *text)
{
        static const char linkers[] =
                "uv uvx pnpm pnpx bun bunx deno yarn pdm pipx hatch rye poetry pixi conda "
                "mamba micromamba mise nix";
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

/* ------------------------------------------------------------------ what is beside a program */

/* The folder at or above @folder that has a file @marker, on the same side of a write root. */
static bool find_marked(const struct search *s, const char *folder, const char *marker, char root[PATH_MAX])
{
        bool inside = cg_search_in_write_root(s, folder);
        char path[PATH_MAX + 32], at[PATH_MAX];

        for (snprintf(at, sizeof(at), "%s", folder); at[1] && cg_search_in_write_root(s, at) == inside;
             cg_path_parent(root, at)) {
                snprintf(root, PATH_MAX, "%s", at);
                snprintf(path, sizeof(path), "%s/%s", at, marker);
                if (access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

/*
 * The folder whose files belong to the program or script @path, which is real: what it imports is
 * beside it. *own: it is nothing but the folder that the file is in.
 */
static void find_root(const struct search *s, const char *path, char root[PATH_MAX], bool *own)
{
        /* The topmost one: packages import each other all over it. */
        const char *modules = strstr(path, "/node_modules/");
        char at[PATH_MAX];

        *own = false;
        if (modules) {
                snprintf(root, PATH_MAX, "%.*s/node_modules", (int)(modules - path), path);
                return;
        }
        cg_path_parent(path, at);
        if (find_marked(s, at, "pyvenv.cfg", root) ||
            (is_js(path) && find_marked(s, at, "package.json", root)))
                return;
        *own = true;
        snprintf(root, PATH_MAX, "%s", at);
}

/* node searches packages in all folders above a script: one of these may be a link. */
static int search_above(struct search *s, const char *folder)
{
        char at[PATH_MAX], up[PATH_MAX], path[PATH_MAX];
        struct stat st;

        for (snprintf(at, sizeof(at), "%s", folder); at[1]; memcpy(at, up, strlen(up) + 1)) {
                cg_path_parent(at, up);
                if (cg_path_join(path, at, "node_modules") && lstat(path, &st) == 0 &&
                    cg_search_report_place(s, path, path) < 0)
                        return -1;
        }
        return 0;
}

/* @path (real): a program, or with @link a link to one. */
static int search_beside(struct search *s, const char *path, bool link)
{
        char root[PATH_MAX];
        bool own, programs;

        if (!link && cg_search_tree(s, path, 0) < 0)
                return -1;
        find_root(s, path, root, &own);
        /* Programs in a folder of programs do not load what is beside them. */
        programs = strcmp(cg_path_base(root), "bin") == 0 || strcmp(cg_path_base(root), "sbin") == 0;
        if ((!own || (!link && !programs)) &&
            cg_search_tree(s, root, own ? TREE_VISIBLE | TREE_LENIENT : 0) < 0)
                return -1;
        return search_above(s, root);
}

/* ------------------------------------------------------------------ modules of Python */

/* Files that name further folders of modules: *.pth, and what editable installations leave. */
static bool names_folders(const char *name)
{
        size_t n = strlen(name);

        return (n > 4 && strcmp(name + n - 4, ".pth") == 0) ||
               (n > 9 && strcmp(name + n - 9, ".egg-link") == 0) || strncmp(name, "__editable__", 12) == 0;
}

/* One line, or quoted string, of the file @via in @folder. */
static int search_named_folder(struct search *s, const char *folder, const char *line, const char *via)
{
        char path[PATH_MAX], real[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%s%s%s", line[0] == '/' ? "" : folder,
                         line[0] == '/' ? "" : "/", line);

        if (n >= (int)sizeof(path) || (line[0] != '/' && strncmp(line, "..", 2) != 0))
                return 0;
        if (cg_search_report_place(s, path, via) < 0)
                return -1;
        if (realpath(path, real) && !cg_search_is_data(s, real))
                return cg_search_tree(s, real, TREE_LENIENT);
        return 0;
}

static int search_named_in(struct search *s, const char *folder, const char *name)
{
        cg_auto_free char *text = NULL;
        char file[PATH_MAX], *save = NULL;
        struct cg_err why;
        struct stat st;
        size_t len;

        if (!names_folders(name))
                return 0;
        if (!cg_path_join(file, folder, name))
                return cg_fail(s->err, CG_E_LIMIT, "a name in %s is too long", folder);
        if (stat(file, &st) < 0 || !S_ISREG(st.st_mode)) /* nothing that Python could read */
                return 0;
        if (cg_read_regular(file, (size_t)1 << 20, &text, &len, &why) < 0)
                return cg_fail(s->err, CG_E_LIMIT, "%s cannot be checked: %s", file, why.msg);
        for (size_t i = 0; i < len; i++) /* Python reads on after a NUL */
                text[i] = text[i] ?: '\n';
        for (char *p = strtok_r(text, "\r\n'\"", &save); p; p = strtok_r(NULL, "\r\n'\"", &save))
                if (search_named_folder(s, folder, p, file) < 0)
                        return -1;
        return 0;
}

static int search_modules_in(struct search *s, const char *folder)
{
        cg_auto_dir DIR *dir = opendir(folder);
        const struct dirent *d;

        if (!dir && errno == ENOTDIR)
                return 0;
        if (dir && (cg_search_report_place(s, folder, folder) < 0 || cg_search_tree(s, folder, 0) < 0))
                return -1;
        while (dir && (errno = 0, d = readdir(dir)))
                if (search_named_in(s, folder, d->d_name) < 0)
                        return -1;
        if (errno)
                return cg_fail_errno(s->err, "modules of its Python: %s", folder);
        return 0;
}

/* The folders PREFIX/lib/python*\/{site,dist}-packages. */
static int search_modules(struct search *s, const char *prefix)
{
        glob_t g = { .gl_pathc = 0 };
        int r = cg_path_glob(prefix, "/lib/python3*/*-packages", &g);

        if (r == GLOB_NOMATCH)
                return 0;
        if (r)
                return cg_fail(s->err, CG_E_LIMIT, "the folders of modules in %s cannot be listed", prefix);
        for (size_t i = 0; i < g.gl_pathc && r == 0; i++)
                r = search_modules_in(s, g.gl_pathv[i]);
        globfree(&g);
        return r;
}

/* A Python DIR/bin/PROGRAM: its modules; where DIR has a pyvenv.cfg, the Python that this names. */
static int search_python(struct search *s, const char *program)
{
        char folder[PATH_MAX], prefix[PATH_MAX], home[PATH_MAX];
        const json_t *v;
        size_t i;

        if (strncmp(cg_path_base(program), "py", 2) != 0)
                return 0;
        cg_path_parent(program, folder);
        cg_path_parent(folder, prefix);
        if (search_modules(s, cg_path_prefix(prefix)) < 0)
                return -1;
        json_array_foreach(s->prefixes, i, v) {
                if (search_modules(s, json_string_value(v)) < 0)
                        return -1;
        }
        if (!cg_pyvenv_home(prefix, home, sizeof(home)))
                return 0;
        cg_path_parent(home, prefix);
        if (cg_search_report_place(s, home, folder) < 0)
                return -1;
        return search_modules(s, prefix);
}

/* ------------------------------------------------------------------ programs */

/* A command of a first line: a path, or a name in PATH. One that is not found does not start. */
static int search_command(struct search *s, const char *command, int depth)
{
        char path[PATH_MAX];

        if (strchr(command, '/'))
                return command[0] == '/' ? cg_search_program(s, command, depth) : 0;
        for (const char *list = s->path; *list; list += *list == ':') {
                size_t n = strcspn(list, ":");

                if (*list == '/' &&
                    snprintf(path, sizeof(path), "%.*s/%s", (int)n, list, command) < PATH_MAX &&
                    access(path, X_OK) == 0)
                        return cg_search_program(s, path, depth);
                list += n;
        }
        return 0;
}

/* Words after the interpreter's; with @env the first of them is a command. */
static int search_words(struct search *s, const char *program, bool env, char *save, int depth)
{
        for (char *word; (word = strtok_r(NULL, " \t\r", &save));) {
                int r = 0;

                if (env && word[0] != '-' && !strchr(word, '=')) {
                        r = search_command(s, word, depth);
                        env = false;
                } else if (strchr(word, '/')) {
                        r = cg_search_report_place(s, strchr(word, '/'), program);
                }
                if (r < 0)
                        return r;
        }
        return 0;
}

/* "#!" of a script: its interpreter, whose operand it is: all arguments are the script's own. */
static int search_interpreter(struct search *s, const char *program, int depth)
{
        cg_auto_fd int fd = open(program, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        cg_auto_free char *line = calloc(1, SCRIPT_MAX);
        ssize_t n = fd < 0 || !line ? -1 : read(fd, line, SCRIPT_MAX - 1);
        char *word, *save = NULL;

        if (n < 3 || line[0] != '#' || line[1] != '!')
                return 0;
        line[n] = '\0';
        s->linker |= cg_search_names_linker(line);
        line[strcspn(line, "\n")] = '\0';
        if (depth >= CHAIN_MAX)
                return cg_fail(s->err, CG_E_LIMIT, "%s: too many interpreters name each other", program);
        word = strtok_r(line + 2, " \t\r", &save);
        if (!word)
                return 0;
        if (search_command(s, word, depth + 1) < 0)
                return -1;
        return search_words(s, program, strcmp(cg_path_base(word), "env") == 0, save, depth + 1);
}

int cg_search_program(struct search *s, const char *path, int depth)
{
        cg_auto_place struct cg_place place = { .path = "" };

        if (cg_place_find(path, &place, s->err) < 0)
                return -1;
        for (size_t i = 0; i < place.n_links; i++)
                if (cg_search_report(s, place.links[i], path) < 0 ||
                    search_beside(s, place.links[i], true) < 0)
                        return -1;
        if (cg_search_report(s, place.path, path) < 0)
                return -1;
        if (place.missing)
                return 0;
        if (place.folder)
                return cg_search_tree(s, place.path, 0);
        if (search_beside(s, place.path, false) < 0 || search_interpreter(s, place.path, depth) < 0)
                return -1;
        return search_python(s, path);
}

int cg_search_named(struct search *s, const char *path)
{
        char real[PATH_MAX];
        struct stat st;

        if (!realpath(path, real) || !real[1] || stat(real, &st) < 0)
                return 0;
        if (S_ISREG(st.st_mode) && is_code(path))
                return cg_search_program(s, path, 0);
        if (cg_search_report_place(s, path, path) < 0)
                return -1;
        return S_ISDIR(st.st_mode) ? cg_search_tree(s, real, TREE_LENIENT) : 0;
}

int cg_search_code(struct search *s, const char *path)
{
        char real[PATH_MAX];
        struct stat st;

        if (!realpath(path, real) || stat(real, &st) < 0)
                return 0;
        if (!S_ISDIR(st.st_mode))
                return cg_search_program(s, real, 0);
        if (cg_search_tree(s, real, 0) < 0)
                return -1;
        return search_above(s, real);
}

int cg_search_cwd(struct search *s, const char *path)
{
        char real[PATH_MAX], modules[PATH_MAX];

        if (!realpath(path, real) || !real[1])
                return 0;
        if (cg_search_tree(s, real, TREE_SHALLOW) < 0)
                return -1;
        return cg_path_join(modules, real, "node_modules") ? cg_search_tree(s, modules, 0) : 0;
}
