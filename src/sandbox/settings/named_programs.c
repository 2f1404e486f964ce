/* Programs that protected files name: see named_programs.h. Runs on the host, before a sandbox. */
#include "sandbox/settings/named_programs.h"

#include "base/fd.h"
#include "sandbox/names/names.h"
#include "sandbox/plan.h"

/* Bytes of a file that are read, words of a file, and files of a folder of hooks. */
#define TEXT_MAX  (64 << 10)
#define WORDS_MAX 2000
#define HOOKS_MAX 50

/* Files below a project or a home folder that name programs. All are names of the table. */
static const char *const files[] = {
        /* agents and editors */
        ".mcp.json", "mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".cursor/mcp.json",
        ".cursor/hooks.json", ".vscode/mcp.json", ".vscode/tasks.json", ".zed/settings.json",
        ".zed/tasks.json", ".devcontainer.json", ".devcontainer/devcontainer.json", ".gemini/settings.json",
        ".qwen/settings.json", ".codex/config.toml", ".codex/hooks.json", ".kiro/settings/mcp.json",
        ".roo/mcp.json", ".kilocode/mcp.json", ".amazonq/mcp.json", ".junie/mcp/mcp.json",
        ".factory/mcp.json", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json",
        /* hooks of git */
        ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", "hk.pkl", "lefthook.yml",
        ".lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook.json", ".lintstagedrc",
        ".lintstagedrc.json", ".overcommit.yml",
        /* shells and package managers */
        ".envrc", "mise.toml", ".mise.toml", ".yarnrc.yml", ".pnpmfile.cjs"
};

/* Folders whose files are hooks. */
static const char *const folders[] = { ".husky", ".githooks", ".git-hooks", ".git/hooks", ".claude/hooks" };

struct name_reader {
        struct cg_rules *rules;
        const char *folder; /* where relative names begin */
        const char *file;   /* that names them, below @folder */
        bool command;       /* the word is the first one of a command */
        struct cg_err *err;
};

static bool is_script(const char *word)
{
        static const char *const ends[] = { ".js", ".mjs", ".cjs",  ".ts",  ".mts", ".cts", ".py",   ".sh",
                                            ".rb", ".pl",  ".bash", ".ps1", ".php", ".lua", ".fish", ".zsh" };
        const char *dot = strrchr(word, '.');

        for (size_t i = 0; dot && i < CG_ARRAY_LEN(ends); i++)
                if (strcmp(dot, ends[i]) == 0)
                        return true;
        return false;
}

/* The value of @key is the command of a server, a hook or a task. */
static bool is_command(const char *key)
{
        static const char *const keys[] = { "command", "entry", "run", "program" };

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                if (strcasecmp(keys[i], key) == 0)
                        return true;
        return false;
}

/*
 * Denies @path if it is a program: an executable file, a script or the first word of a command. One
 * that does not exist counts if its name has a folder, so that not each word that ends in ".js" is
 * one.
 */
static int deny_program(struct name_reader *f, const char *path, bool has_folder)
{
        struct cg_place place;
        char why[CG_RULES_WHY_MAX];
        struct stat st;
        int r = 0;

        if (cg_place_find(path, &place, NULL) < 0)
                return 0;
        cg_rules_why(why, CG_WHY_NAMED, f->file);
        if (place.missing ? !f->rules->by_name || !has_folder || (!f->command && !is_script(path))
                          : stat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
                                    (!(st.st_mode & 0111) && !is_script(path))) {
                if (place.missing && stat(path, &st) < 0 && errno == EACCES)
                        r = cg_rules_hide_closed(f->rules, path, why, f->err);
                goto out;
        }
        if (cg_rules_may_write(f->rules, place.path))
                r = cg_rules_add(f->rules, CG_RULE_DENY_WRITE, &place, why, f->err);
        if (r == 0)
                r = cg_rules_keep_links(f->rules, &place, false, why, f->err);
out:
        cg_place_fini(&place);
        return r;
}

static int deny_relative(struct name_reader *f, const char *name)
{
        struct cg_path_base base = { .cwd = f->folder };
        char path[PATH_MAX];

        if (cg_path_absolute(&base, name, path, NULL) < 0)
                return 0;
        return deny_program(f, path, strchr(name, '/') != NULL);
}

/*
 * A word of the file. What is behind its first "/" is tried as well: the folder of the project is
 * often a variable, as in "$CLAUDE_PROJECT_DIR/tools/check.sh".
 */
static int deny_word(struct name_reader *f, const char *word)
{
        const char *slash = strchr(word, '/');
        int r = 0;

        if (strlen(word) < 3 || strstr(word, "node_modules/"))
                return 0;
        if (word[0] == '/')
                r = deny_program(f, word, true);
        else if (word[0] == '~' && word[1] == '/' && f->rules->base && f->rules->base->home) {
                char path[PATH_MAX];

                r = cg_path_absolute(f->rules->base, word, path, NULL) < 0 ? 0 : deny_program(f, path, true);
        } else
                r = deny_relative(f, word);
        if (r == 0 && slash && slash[1])
                r = deny_relative(f, slash + 1 + strspn(slash + 1, "/"));
        return r;
}

static int read_file(struct name_reader *f)
{
        static const char separators[] = " \t\r\n*?\"'`\\,;|&()<>=[]{}:$@#";
        char path[PATH_MAX], *save = NULL;
        cg_auto_free char *text = NULL;
        cg_auto_fd int fd = -1;
        struct stat st;
        size_t words = 0;
        ssize_t n;
        int r = 0;

        f->command = false;
        if (!cg_path_join(path, f->folder, f->file) || cg_rules_is_opened(f->rules, path))
                return 0;
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return cg_rules_need_open(f->rules, path, f->err);
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        text = malloc(TEXT_MAX + 1);
        if (!text)
                return cg_fail(f->err, CG_E_NOMEM, "sandbox: %s", path);
        n = read(fd, text, TEXT_MAX);
        text[CG_MAX(n, 0)] = '\0';
        for (char *word = strtok_r(text, separators, &save); word && r == 0 && words++ < WORDS_MAX;
             word = strtok_r(NULL, separators, &save)) {
                r = deny_word(f, word);
                f->command = is_command(word);
        }
        return r;
}

/*
 * False if @name was not in the folder when it was scanned: no row that begins as @name does, up to
 * a "*", is present.
 */
static bool may_be_there(const struct cg_present *p, const char *name)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);

        for (size_t i = 0; i < n; i++) {
                size_t len;

                if (!(p->rows[i] & CG_NAME_WRITE))
                        continue;
                len = strcspn(rows[i].path, "*");
                if (strncasecmp(rows[i].path, name, len) == 0 &&
                    (rows[i].path[len] || !name[len] || name[len] == '/'))
                        return true;
        }
        return strncmp(name, ".git/", 5) == 0; /* of which the table has no rows */
}

int cg_rules_deny_named_programs(struct cg_rules *rules, const struct cg_present *p, struct cg_err *err)
{
        struct name_reader f = { .rules = rules, .folder = p->folder, .err = err };
        char path[PATH_MAX], name[PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(files) && r == 0; i++) {
                f.file = files[i];
                r = may_be_there(p, f.file) ? read_file(&f) : 0;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(folders) && r == 0; i++) {
                bool there = may_be_there(p, folders[i]) && cg_path_join(path, p->folder, folders[i]);
                cg_auto_dir DIR *dir = there ? opendir(path) : NULL;
                const struct dirent *d;

                for (size_t n = 0; dir && r == 0 && n < HOOKS_MAX && (d = readdir(dir));) {
                        const char *dot = strrchr(d->d_name, '.');

                        if (d->d_name[0] == '.' || (dot && strcmp(dot, ".sample") == 0))
                                continue;
                        snprintf(name, sizeof(name), "%s/%s", folders[i], d->d_name);
                        f.file = name;
                        r = read_file(&f);
                        n++;
                }
        }
        return r;
}
