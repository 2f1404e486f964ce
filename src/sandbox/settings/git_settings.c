/*
 * Follows git's settings as git does: see git_settings.h. They are the user's, but the files that
 * they name may be in a write root.
 */
#include "sandbox/settings/git_settings.h"

#include "base/account.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/user_env.h"
#include "sandbox/plan.h"

/* Depth of includes as in git, number of files that settings may come to, and size of each. */
#define GIT_INCLUDES_MAX 10
#define GIT_FILES_MAX    1000
#define GIT_CONFIG_MAX   ((size_t)4 << 20)
/* A value that is longer names no path. */
#define GIT_VALUE_MAX (2 * PATH_MAX)

enum named { NOTHING, FOLDER, FILE_, PROGRAM, INCLUDE, WORK_TREE, OPTIONS };

/* Settings of all repositories have relative paths for each repository, and others once. */
enum which { ALL, RELATIVE, ABSOLUTE };

struct git_reader {
        struct cg_rules *rules;
        enum which which;
        const char *top;          /* NULL: none */
        bool alias;               /* of an alias: a person has to start it */
        char work_tree[PATH_MAX]; /* that the settings of a repository name, or "" */
        size_t files;
        struct cg_err *err;
};

static enum named named_by(const char *section, const char *key, const char *value)
{
        static const struct {
                const char *key;
                enum named to;
        } keys[] = {
                { "hookspath", FOLDER },
                { "templatedir", FOLDER },
                { "attributesfile", FILE_ },
                { "path", FILE_ },
                { "fsmonitor", PROGRAM },
                { "sshcommand", PROGRAM },
                { "askpass", PROGRAM },
                { "editor", PROGRAM },
                { "pager", PROGRAM },
                { "gitproxy", PROGRAM },
                { "program", PROGRAM },
                { "clean", PROGRAM },
                { "smudge", PROGRAM },
                { "process", PROGRAM },
                { "command", PROGRAM },
                { "textconv", PROGRAM },
                { "driver", PROGRAM },
                { "helper", PROGRAM },
                { "external", PROGRAM },
                { "cmd", PROGRAM },
                { "uploadpack", PROGRAM },
                { "receivepack", PROGRAM },
                { "defaultkeycommand", PROGRAM },
                { "difffilter", PROGRAM },
                { "packobjectshook", PROGRAM },
                { "alternaterefscommand", PROGRAM },
                { "recentobjectshook", PROGRAM },
                { "tunnel", PROGRAM },
                { "smtpserver", PROGRAM },
                { "sendmailcmd", PROGRAM },
                { "tocmd", PROGRAM },
                { "cccmd", PROGRAM },
                { "headercmd", PROGRAM },
                { "httpd", PROGRAM },
                { "worktree", WORK_TREE },
        };

        if (strcasecmp(section, "include") == 0 || strcasecmp(section, "includeif") == 0)
                return strcasecmp(key, "path") == 0 ? INCLUDE : NOTHING;
        /* The keys are names of git's commands. */
        if (strcasecmp(section, "pager") == 0)
                return PROGRAM;
        /* Aliases and ways to update a submodule are programs where they begin so. */
        if (value[0] == '!')
                return PROGRAM;
        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                if (strcasecmp(keys[i].key, key) == 0)
                        return keys[i].to;
        return NOTHING;
}

/* ---- paths that settings name */

/* Called for an absolute path that @word of a setting means. 0 or negative. */
typedef int (*path_fn)(struct git_reader *g, const char *path, enum named to, int depth);

static const struct cg_path_base *base_of(const struct cg_rules *rules)
{
        static const struct cg_path_base none;

        return rules->base ?: &none;
}

static int call_joined(struct git_reader *g, const char *folder, const char *rest, path_fn fn, enum named to,
                       int depth)
{
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%s/%s", folder, rest);

        return n > 0 && (size_t)n < sizeof(path) ? fn(g, path, to, depth) : 0;
}

/*
 * Denies the relative path @word of a setting of all repositories at any depth of write roots: each
 * repository that is made later obeys it as well. "*" of the shell stays what it is.
 */
static int deny_everywhere(struct git_reader *g, const char *word)
{
        const struct cg_path_base base = { .cwd = "/" };
        char path[PATH_MAX], pattern[PATH_MAX + 2], why[CG_RULES_WHY_MAX];

        if (g->alias || !g->rules->by_name || cg_path_absolute(&base, word, path, NULL) < 0 ||
            cg_rules_is_opened(g->rules, path))
                return 0;
        cg_rules_why(why, CG_WHY_GIT, path + 1);
        for (char *p = path; (p = strchr(p, '['));)
                *p = '?';
        snprintf(pattern, sizeof(pattern), "**%s", cg_path_prefix(path));
        return cg_rules_add_pattern(g->rules, pattern, why, g->err);
}

/* A path as git reads it: "~/" is HOME, and in a login shell with another HOME the account's. */
static int each_path(struct git_reader *g, const char *base, const char *word, path_fn fn, enum named to,
                     int depth)
{
        static const char optional[] = ":(optional)";
        const char *home = base_of(g->rules)->home, *rest;
        char other[PATH_MAX];
        int r;

        if (to != PROGRAM && strncmp(word, optional, strlen(optional)) == 0)
                word += strlen(optional);
        rest = strchr(word, '/');
        if (!word[0])
                return 0;
        if (word[0] != '/' && (word[0] != '~' || !rest)) {
                if (to != INCLUDE && g->which == ABSOLUTE)
                        return to == FOLDER || to == FILE_ || rest ? deny_everywhere(g, word) : 0;
                if (!base)
                        return 0;
                return call_joined(g, base, word, fn, to, depth);
        }
        if (g->which == RELATIVE && to != INCLUDE)
                return 0;
        if (word[0] == '/')
                return call_joined(g, "", word + strspn(word, "/"), fn, to, depth);
        if (word[1] != '/')
                return cg_named_home(word + 1, (size_t)(rest - word - 1), other)
                               ? call_joined(g, other, rest + 1, fn, to, depth)
                               : 0;
        if (home && (r = call_joined(g, home, rest + 1, fn, to, depth)) < 0)
                return r;
        if (!cg_account_home(other) || (home && strcmp(home, other) == 0))
                return 0;
        return call_joined(g, other, rest + 1, fn, to, depth);
}

static int deny(struct git_reader *g, const char *path, enum named to, int depth)
{
        struct stat st;
        char folder[PATH_MAX], *slash;

        /* Only the words of a command that are files. */
        if (to == PROGRAM && stat(path, &st) < 0)
                return errno == EACCES ? cg_rules_hide_closed(g->rules, path, "mandatory", g->err) : 0;
        if (to == PROGRAM && !S_ISREG(st.st_mode))
                return 0;
        snprintf(folder, sizeof(folder), "%s", path);
        slash = strrchr(folder, '/');
        *slash = '\0';
        return cg_rules_deny_name(g->rules, folder[0] ? folder : "/", slash + 1, to == FOLDER, true, g->err);
}

/* The first word of a command, and others that are spelled as paths, must not be made either. */
static int deny_program(struct git_reader *g, const char *path, enum named to, int depth)
{
        struct stat st;

        if (lstat(path, &st) < 0 && errno == ENOENT && g->rules->base && g->rules->base->by_name)
                to = FILE_;
        return deny(g, path, to, depth);
}

/* @word of a command: of those that may be paths also what does not exist yet. */
static int deny_word(struct git_reader *g, const char *word, bool first)
{
        bool path = strchr(word, '/') &&
                    (first || strchr("/~", word[0]) || !strncmp(word, "./", 2) || !strncmp(word, "../", 3));

        return each_path(g, g->top, word, path ? deny_program : deny, PROGRAM, 0);
}

/* Quoted words, which may have spaces, and all words. */
static int deny_words(struct git_reader *g, char *value)
{
        static const char separators[] = " \t'\"!;|&()<>=";
        char quoted[GIT_VALUE_MAX], *save = NULL;
        bool first = true;
        int r = 0;

        for (const char *p = value, *end; r == 0 && (p = strpbrk(p, "'\"")); p = end + 1) {
                end = strchr(p + 1, *p);
                if (!end)
                        break;
                snprintf(quoted, sizeof(quoted), "%.*s", (int)(end - p - 1), p + 1);
                r = deny_word(g, quoted, p == value);
        }
        for (char *word = strtok_r(value, separators, &save); word && r == 0;
             word = strtok_r(NULL, separators, &save)) {
                r = deny_word(g, word, first);
                first = false;
        }
        return r;
}

/* ---- the text of settings */

/* The value in the line @p, as git reads it: without quotes and without a trailing comment. */
static void parse_value(const char *p, char value[GIT_VALUE_MAX])
{
        bool quoted = false;
        size_t n = 0;

        for (p += strspn(p, " \t"); *p && n + 1 < GIT_VALUE_MAX && (quoted || (*p != '#' && *p != ';'));
             p++) {
                if (*p == '"') {
                        quoted = !quoted;
                        continue;
                }
                if (*p == '\\' && p[1])
                        p++;
                value[n++] = *p;
        }
        while (n && strchr(" \t\r", value[n - 1]))
                n--;
        value[n] = '\0';
}

/*
 * The next line of *@at, in place: a backslash at its end continues it, unless it is in a comment.
 * NULL: no more.
 */
static char *next_line(char **at)
{
        char *line = *at, *to = line;
        bool quoted = false, comment = false;
        const char *p = line;

        if (!*p)
                return NULL;
        while (*p && *p != '\n') {
                size_t end = p[0] == '\\' && !comment ? 1 + (p[1] == '\r') : 0;

                if (end && p[end] == '\n') {
                        p += end + 1;
                        continue;
                }
                if (end && p[1])
                        *to++ = *p++;
                else if (*p == '"')
                        quoted = !quoted && !comment;
                else
                        comment |= !quoted && (*p == '#' || *p == ';');
                *to++ = *p++;
        }
        *at = (char *)(uintptr_t)p + (*p == '\n');
        *to = '\0';
        return line;
}

static int read_file(struct git_reader *g, const char *file, enum named to, int depth);

static int note_work_tree(struct git_reader *g, const char *path, enum named to, int depth)
{
        snprintf(g->work_tree, sizeof(g->work_tree), "%s", path);
        return 0;
}

/* @file: of the setting, for includes; NULL: of a variable. */
static int read_entry(struct git_reader *g, const char *section, const char *key, char *value,
                      const char *file, int depth)
{
        enum named to = named_by(section, key, value);
        char folder[PATH_MAX];
        const char *base = file ? folder : NULL;
        int r;

        g->alias = strcasecmp(section, "alias") == 0;
        snprintf(folder, sizeof(folder), "%s", file ?: "");
        if (file)
                *strrchr(folder, '/') = '\0';
        switch (to) {
        case NOTHING:
                return 0;
        case PROGRAM:
                return deny_words(g, value);
        case WORK_TREE:
                return g->which == ALL ? each_path(g, folder, value, note_work_tree, to, depth) : 0;
        case INCLUDE:
                if (g->which != RELATIVE && (r = each_path(g, base, value, deny, to, depth)) < 0)
                        return r;
                return each_path(g, base, value, read_file, to, depth + 1);
        default:
                return each_path(g, g->top, value, deny, to, depth);
        }
}

static int read_text(struct git_reader *g, char *text, const char *file, int depth)
{
        static const char mark[] = "\xef\xbb\xbf"; /* byte order mark */
        char section[32] = "", value[GIT_VALUE_MAX], *line;
        int r = 0;

        text += strncmp(text, mark, 3) == 0 ? 3 : 0;
        while (r == 0 && (line = next_line(&text))) {
                char *p = line + strspn(line, " \t\r"), *end;

                if (*p == '[') {
                        bool quoted = false;

                        snprintf(section, sizeof(section), "%.*s", (int)strcspn(p + 1, " \t.]\""), p + 1);
                        for (end = p; *end && (*end != ']' || quoted); end++)
                                if (*end == '\\' && end[1])
                                        end++;
                                else if (*end == '"')
                                        quoted = !quoted;
                        p = end + (*end == ']');
                        p += strspn(p, " \t\r");
                }
                end = strchr(p, '=');
                if (!end)
                        continue;
                parse_value(end + 1, value);
                p[strcspn(p, " \t=")] = '\0';
                r = read_entry(g, section, p, value, file, depth);
        }
        return r;
}

/* Settings that exist and cannot be read are an error: what they name would be unprotected. */
static int read_file(struct git_reader *g, const char *file, enum named to, int depth)
{
        cg_auto_free char *text = NULL;
        struct cg_err err = { 0 };
        struct stat st;
        size_t len;

        if (depth > GIT_INCLUDES_MAX)
                return 0;
        if (stat(file, &st) < 0)
                return cg_rules_need_open(g->rules, file, g->err);
        if (!S_ISREG(st.st_mode))
                return 0;
        if (++g->files > GIT_FILES_MAX)
                return cg_fail(g->err, CG_E_LIMIT,
                               "sandbox: git's settings include more than %d files (%s), and what they name "
                               "must not be written",
                               GIT_FILES_MAX, file);
        if (cg_read_regular(file, GIT_CONFIG_MAX, &text, &len, &err) == 0)
                return read_text(g, text, file, depth);
        if (err.sys_errno == EACCES || err.sys_errno == EPERM || err.sys_errno == ENOENT)
                return 0; /* nor can git */
        return cg_fail(g->err, err.code,
                       "sandbox: git's settings, and what they name must not be written: %s", err.msg);
}

int cg_git_deny_named(struct cg_rules *rules, const char *file, const char *top, struct cg_err *err)
{
        struct git_reader g = { .rules = rules, .which = ALL, .top = top, .err = err };
        int r = read_file(&g, file, INCLUDE, 0);

        if (r < 0 || !g.work_tree[0])
                return r;
        /* The work tree may be another folder than that of the repository. */
        g.top = g.work_tree;
        return read_file(&g, file, INCLUDE, 0);
}

/* ---- settings that apply to all repositories */

/* Settings in variables: GIT_CONFIG_KEY_n and GIT_CONFIG_VALUE_n. */
static int read_variables(struct git_reader *g, const json_t *env)
{
        char name[40], key[128], value[GIT_VALUE_MAX];
        int r = 0;

        for (unsigned int i = 0; i < CG_USER_ENV_PAIRS && r == 0; i++) {
                const char *k, *v, *dot;

                snprintf(name, sizeof(name), "GIT_CONFIG_KEY_%u", i);
                k = cg_user_env_get(env, name);
                snprintf(name, sizeof(name), "GIT_CONFIG_VALUE_%u", i);
                v = cg_user_env_get(env, name);
                dot = k ? strrchr(k, '.') : NULL;
                if (!dot || !v || snprintf(value, sizeof(value), "%s", v) >= (int)sizeof(value))
                        continue;
                snprintf(key, sizeof(key), "%.*s", (int)strcspn(k, "."), k);
                r = read_entry(g, key, dot + 1, value, NULL, 0);
        }
        return r;
}

/* $XDG_CONFIG_HOME/git, which cannot be made either. */
static int deny_xdg(struct git_reader *g, const char *xdg)
{
        if (xdg && xdg[0] == '/' && g->which != RELATIVE)
                return cg_rules_deny_name(g->rules, xdg, "git", true, true, g->err);
        return 0;
}

static int read_joined(struct git_reader *g, const char *folder, const char *name)
{
        return folder && folder[0] == '/' ? call_joined(g, folder, name, read_file, INCLUDE, 0) : 0;
}

/* A file that a variable names, which cannot be made either. */
static int read_named(struct git_reader *g, const char *file)
{
        int r;

        if (!file)
                return 0;
        if (g->which == ABSOLUTE && (r = each_path(g, NULL, file, deny, FOLDER, 0)) < 0)
                return r;
        return file[0] == '/' ? read_file(g, file, INCLUDE, 0) : 0;
}

/*
 * The repository that GIT_DIR names, which may be elsewhere. What its settings name begins in
 * GIT_WORK_TREE, or else in the working folder.
 */
static int read_git_dir(struct git_reader *g, const json_t *env)
{
        const char *dir = cg_user_env_get(env, "GIT_DIR"), *tree = cg_user_env_get(env, "GIT_WORK_TREE");
        const char *cwd = cg_user_env_get(env, CG_USER_ENV_CWD);
        const struct cg_path_base base = { .cwd = cwd ?: g->rules->base->cwd };
        char top[PATH_MAX], path[PATH_MAX], config[PATH_MAX];

        if (!dir || cg_path_absolute(&base, tree ?: ".", top, NULL) < 0 ||
            cg_path_absolute(&base, dir, path, NULL) < 0 || !cg_path_join(config, path, "config"))
                return 0;
        return cg_git_deny_named(g->rules, config, top, g->err);
}

int cg_git_deny_user(struct cg_rules *rules, const char *top, struct cg_err *err)
{
        struct git_reader g = { .rules = rules, .which = top ? RELATIVE : ABSOLUTE, .top = top, .err = err };
        const json_t *env = base_of(rules)->env;
        const char *home = base_of(rules)->home, *xdg = cg_user_env_get(env, "XDG_CONFIG_HOME");
        char account[PATH_MAX];
        const char *const homes[] = { home, cg_account_home(account) };
        int r;

        if ((r = read_file(&g, "/etc/gitconfig", INCLUDE, 0)) < 0 ||
            (r = read_file(&g, "/usr/local/etc/gitconfig", INCLUDE, 0)) < 0)
                return r;
        /* Also those that a variable replaces: the user's other shells may not have it. */
        for (size_t i = 0; i < CG_ARRAY_LEN(homes); i++) {
                if (i && home && homes[i] && strcmp(home, homes[i]) == 0)
                        continue;
                if ((r = read_joined(&g, homes[i], ".gitconfig")) < 0 ||
                    (r = read_joined(&g, homes[i], ".config/git/config")) < 0)
                        return r;
        }
        if ((r = deny_xdg(&g, xdg)) < 0 || (r = read_joined(&g, xdg, "git/config")) < 0 ||
            (r = read_named(&g, cg_user_env_get(env, "GIT_CONFIG_SYSTEM"))) < 0 ||
            (r = read_named(&g, cg_user_env_get(env, "GIT_CONFIG_GLOBAL"))) < 0 ||
            (!top && env && (r = read_git_dir(&g, env)) < 0))
                return r;
        return read_variables(&g, env);
}

/* ---- other variables */

/*
 * Lists with colons and options of interpreters: paths right behind a letter ("-r/x", "-I/x"), and
 * behind ":" and "=". Not those of Java's properties, most of which are data.
 */
static int deny_options(struct git_reader *g, char *value)
{
        char *outer = NULL, *inner = NULL, *part;
        int r = 0;

        for (char *word = strtok_r(value, " \t", &outer); word; word = strtok_r(NULL, " \t", &outer)) {
                bool folder = strncmp(word, "-I", 2) == 0 || strncmp(word, "-Mlib=", 6) == 0;

                if (strncmp(word, "-D", 2) == 0)
                        continue;
                if (word[0] == '-' && word[1] && word[2] && strchr("/~.", word[2]))
                        word += 2;
                for (part = strtok_r(word, ":=,@", &inner); part && r == 0;
                     part = strtok_r(NULL, ":=,@", &inner))
                        if (folder && strchr("/~.", part[0]))
                                r = each_path(g, NULL, part, deny, FOLDER, 0);
                        else if (!folder && part[0] != '-' && strchr(part, '/'))
                                r = deny_word(g, part, false);
        }
        return r;
}

int cg_git_deny_variables(struct cg_rules *rules, struct cg_err *err)
{
        static const struct {
                const char *name;
                enum named to;
        } variables[] = {
#define X(name, to) { name, to },
                CG_USER_ENV_NAMED(X)
#undef X
        };
        const json_t *env = base_of(rules)->env;
        struct git_reader g = { .rules = rules, .which = ABSOLUTE, .err = err };
        char value[GIT_VALUE_MAX];
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(variables) && r == 0; i++) {
                const char *v = cg_user_env_get(env, variables[i].name);

                if (!v || snprintf(value, sizeof(value), "%s", v) >= (int)sizeof(value))
                        continue;
                if (variables[i].to == OPTIONS)
                        r = deny_options(&g, value);
                else if (variables[i].to == PROGRAM)
                        r = deny_words(&g, value);
                else
                        r = each_path(&g, NULL, value, deny, variables[i].to, 0);
        }
        return r;
}
