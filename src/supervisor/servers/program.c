/*
 * cellgate-supervisor: which program an MCP server's command runs, by PATH, "#!" and launchers, and
 * which of its arguments are code.
 */
#include "supervisor/servers/internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "sandbox/plan.h"

/* Interpreters that name interpreters: env, a script, its interpreter. */
#define CHAIN_MAX 4
/* Bytes of a script that are read, for its first line and the programs that it names. */
#define SCRIPT_MAX (64u << 10)

bool cg_sup_path_next(const char **list, char entry[PATH_MAX])
{
        size_t n = strcspn(*list, ":");

        if (!**list)
                return false;
        snprintf(entry, PATH_MAX, "%.*s", n < PATH_MAX ? (int)n : 0, *list);
        *list += n + ((*list)[n] == ':');
        return true;
}

/*
 * Where a command without "/" is found. Entries that cells can write come last, and only where it
 * is found in one of them: a program that a cell has put into another does not take the place of
 * the one that the user means.
 */
static int look_up(struct check *c, const char *command, char ret[PATH_MAX])
{
        char entry[PATH_MAX], path[PATH_MAX + 256];
        struct stat first, st;

        ret[0] = '\0';
        for (int exposed = 0; exposed < 2 && !ret[0]; exposed++) {
                for (const char *list = c->path; cg_sup_path_next(&list, entry);) {
                        if (entry[0] != '/' || cg_sup_file_is_exposed(c, entry) != (exposed == 1) ||
                            snprintf(path, sizeof(path), "%s/%s", entry, command) >= PATH_MAX ||
                            access(path, X_OK) < 0)
                                continue;
                        if (!ret[0]) {
                                memcpy(ret, path, strlen(path) + 1);
                                if (!exposed)
                                        return 0;
                        } else if (stat(ret, &first) < 0 || stat(path, &st) < 0 ||
                                   first.st_dev != st.st_dev || first.st_ino != st.st_ino) {
                                return cg_fail(c->err, CG_E_INVAL,
                                               "MCP server \"%s\": the program %s is found in two folders of "
                                               "PATH that cells can write, %s and %s; give its whole path as "
                                               "\"command\"",
                                               c->name, command, ret, path);
                        }
                }
        }
        return 0;
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

static const struct launcher runs_nothing = { .kind = RUNS_NOTHING };

/* By its name, without a version: python3.11 is python. */
static const struct launcher *find_launcher(const char *program)
{
        const char *base = cg_path_base(program);
        char name[64];
        size_t n;

        for (int cut = 0; cut < 2; cut++) {
                snprintf(name, sizeof(name), "%s", base);
                n = strlen(name);
                while (cut && n && (isdigit((unsigned char)name[n - 1]) || strchr(".-", name[n - 1])))
                        name[--n] = '\0';
                for (size_t i = 0; i < CG_ARRAY_LEN(launchers); i++)
                        if (cg_sup_list_has_word(launchers[i].names, name))
                                return &launchers[i];
        }
        return &runs_nothing;
}

/*
 * Installers that link the files of their cache or store into every environment, and what runs
 * programs from these. A program of theirs has files whose other names may be in a write root.
 */
static const char linkers[] = "uv uvx pnpm pnpx bun bunx deno yarn pdm pipx hatch rye poetry pixi conda "
                              "mamba micromamba mise nix";

bool cg_sup_server_names_linker(const char *text)
{
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

        for (const char *p = text; *(p += strcspn(p, letters)); p += strspn(p, letters)) {
                size_t n = strspn(p, letters);
                char word[32];

                if (n >= sizeof(word))
                        continue;
                memcpy(word, p, n);
                word[n] = '\0';
                if (cg_sup_list_has_word(linkers, word))
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
         * A script is protected with the files beside it. That is not enough if the program also
         * searches the folders above.
         */
        if (l->kind != RUNS_PACKAGE && !(l->kind == RUNS_ALL && l->node) &&
            (word[0] == '/' || (!c->own_cwd && !c->defer)) && cg_sup_file_absolute(c, word, path) == 0 &&
            (cg_sup_path_is_file(path) || (l->kind == RUNS_SCRIPT && cg_sup_path_is_present(path))))
                r = cg_sup_server_guard_path(c, what, path);
        if (r < 0)
                return r;
        if (cg_sup_text_is_exposed(c, word, path))
                return cg_sup_server_refuse(c, what, path, "cells can write there");
        return cg_sup_server_search_named(c, what, word);
}

/*
 * A word for the server itself. Folders, and files such as a database, are what it works on. A file
 * that may be a script is protected with its folder or, directly in a write root, refused; settings
 * and the like are read-only by themselves.
 */
static int check_own_word(struct check *c, const char *word)
{
        const char *value = word[0] == '-' && strchr(word, '=') ? strchr(word, '=') + 1 : word;
        char path[PATH_MAX], what[PATH_MAX + 32];

        if (strncmp(value, "file://", 7) == 0)
                value += 7;
        if ((value[0] != '/' && (c->own_cwd || c->defer)) || cg_sup_file_absolute(c, value, path) < 0)
                return 0;
        if (!cg_sup_path_is_file(path)) /* FILE:OBJECT, FILE::NAME, FILE#PART: what is loaded of it */
                path[strcspn(path, ":#?")] = '\0';
        if (!cg_sup_path_is_file(path) || !cg_sup_file_is_exposed(c, path) ||
            !cg_sup_path_is_code(path, true))
                return 0;
        snprintf(what, sizeof(what), "the argument \"%.200s\" leads to", word);
        return cg_sup_server_guard_path(c, what, path);
}

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
                if (cg_sup_list_has_word(code, p))
                        return true;
        return false;
}

/*
 * The value of such an option: folders, or paths that do not exist yet. If it is one file,
 * check_own_word() has judged it.
 */
static int check_code_value(struct check *c, const char *option, const char *value)
{
        char path[PATH_MAX], whole[PATH_MAX], what[PATH_MAX + 32];

        snprintf(what, sizeof(what), "the option \"%.200s\" leads to", option);
        if (!cg_sup_text_is_exposed(c, value, path))
                return cg_sup_server_search_named(c, what, value);
        if (cg_sup_file_absolute(c, value, whole) == 0 && strcmp(whole, path) == 0 &&
            cg_sup_path_is_file(path))
                return 0;
        return cg_sup_server_refuse(c, what, path, "cells can write there");
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
        c->linked |= cg_sup_server_names_linker(line);
        line[strcspn(line, "\n")] = '\0';
        if (depth >= CHAIN_MAX)
                return cg_sup_server_refuse(c, "its program", program,
                                            "too many interpreters name each other");
        word = strtok_r(line + 2, " \t\r", &save);
        if (!word)
                return 0;
        env = strcmp(cg_path_base(word), "env") == 0;
        r = cg_sup_server_check_program(c, word, &l, found, depth + 1);
        while (r == 0 && (word = strtok_r(NULL, " \t\r", &save))) {
                if (env && word[0] != '-' && !strchr(word, '=')) {
                        r = cg_sup_server_check_program(c, word, &l, found, depth + 1);
                        env = false;
                } else if (cg_sup_text_is_exposed(c, word, found)) {
                        r = cg_sup_server_refuse(c, "the first line of its program leads to", found,
                                                 "cells can write "
                                                 "there");
                }
        }
        if (r == 0 && l)
                c->node |= l->node;
        return r;
}

int cg_sup_server_check_program(struct check *c, const char *command, const struct launcher **ret,
                                char found[PATH_MAX], int depth)
{
        char real[PATH_MAX];
        int r = 0;

        *ret = find_launcher(command);
        if (!strchr(command, '/'))
                r = look_up(c, command, found);
        else if (cg_sup_file_absolute(c, command, found) < 0)
                r = cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": the path of its program is too long",
                            c->name);
        if (r < 0 || !found[0])
                return r;
        if (!cg_sup_path_is_present(found) && cg_sup_file_is_exposed(c, found))
                return cg_sup_server_refuse(c, "its program", found,
                                            "it does not exist, and cells could create it");
        if (!realpath(found, real))
                return 0; /* the tool server says what is wrong with it */
        if ((*ret)->kind == RUNS_NOTHING)
                *ret = find_launcher(real);
        c->node |= (*ret)->node && (*ret)->kind == RUNS_SCRIPT;
        r = check_interpreter(c, real, depth);
        return r ?: cg_sup_server_guard_path(c, "its program", found);
}

/* Words that @l obeys, up to its operand and with it; then the server's own. */
int cg_sup_server_check_args(struct check *c, const struct launcher *l)
{
        const json_t *args = json_object_get(c->def, "args");
        bool value = false, last = false;
        const char *option = NULL;
        int r = 0;

        for (size_t i = 0; i < json_array_size(args) && r == 0; i++) {
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
                        l = &runs_nothing;
                } else if (value) {
                        value = false;
                } else if (w[0] == '-' && w[1]) {
                        last = cg_sup_list_has_word(l->last, w);
                        value = !last && !strchr(w, '=') &&
                                (cg_sup_list_has_word(l->values, w) ||
                                 (l->flags[0] != '*' && !cg_sup_list_has_word(l->flags, w)));
                } else if (!cg_sup_list_has_word(l->commands, w)) {
                        c->node |= l->node;
                        if (l->kind == RUNS_PACKAGE && !strchr(w, '@') &&
                            find_launcher(w)->kind != RUNS_NOTHING)
                                r = cg_sup_server_check_program(c, w, &l, found, 0);
                        else
                                l = &runs_nothing;
                }
        }
        return r;
}

bool cg_sup_server_runs_code(const struct launcher *l)
{
        return l->kind != RUNS_NOTHING;
}
