/*
 * Files that other programs run or obey: shell start-up files, git's hooks and settings, editors'
 * and agents' settings. A command that may write a workspace must not be able to leave one behind
 * that acts later, outside of any sandbox.
 */
#include "sandbox/settings/rules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/util.h"
#include "sandbox/names.h"
#include "sandbox/present.h"

#define WHY "mandatory"

/*
 * Folders that one search may look into: a workspace with more of them this near its root should
 * say what it needs.
 */
#define FOLDERS_MAX 200000

static const char *const files[] = { ".gitconfig", ".gitmodules",       ".bashrc",  ".bash_profile",
                                     ".zshrc",     ".zprofile",         ".profile", ".ripgreprc",
                                     ".mcp.json",  ".srt-settings.json" };
static const char *const folders[] = { ".vscode", ".idea" };
static const char *const claude_folders[] = { "commands", "agents" };

static bool is_given_back(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; rules->writable_names && i < rules->writable_names->n; i++) {
                if (cg_names_match(rules->writable_names->v[i], path, 0))
                        return true;
        }
        return false;
}

/* @absent_too: it cannot be made either. */
static int deny(struct cg_rules *rules, const char *folder, const char *name, bool is_folder, bool absent_too,
                struct cg_err *err)
{
        char path[PATH_MAX];
        struct cg_place place;
        int n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", name), e;

        if (n < 0 || (size_t)n >= sizeof(path))
                return 0;
        if (is_given_back(rules, path))
                return 0;
        e = cg_place_find(path, &place, err);
        if (e < 0)
                return e;
        for (size_t i = 0; i < place.n_links && e == 0; i++) {
                struct cg_place link = { 0 };

                snprintf(link.path, sizeof(link.path), "%s", place.links[i]);
                e = cg_rules_add(rules, CG_RULE_KEEP, &link, WHY, err);
        }
        if (place.missing)
                place.folder = is_folder;
        if (e == 0 && (absent_too || !place.missing) && cg_rules_may_write(rules, place.path))
                e = cg_rules_add(rules, CG_RULE_DENY_WRITE, &place, WHY, err);
        cg_place_fini(&place);
        return e;
}

/* ---- what git obeys in a repository */

/*
 * Entries below .git/modules and .git/worktrees that are looked at, and how deep modules lie in
 * modules.
 */
#define GIT_ENTRIES_MAX 50000
#define GIT_DEPTH_MAX   16
/* Of a repository's settings. */
#define GIT_CONFIG_MAX (64 << 10)
#define GIT_LINE_MAX   4096

struct git {
        struct cg_rules *rules;
        bool config_too, absent_too;
        size_t entries;
        struct cg_err *err;
};

static int deny_gitdir(struct git *g, const char *path, int depth);

static bool has_head(int dir, const char *name)
{
        char path[NAME_MAX + 8];
        int n = snprintf(path, sizeof(path), "%s/HEAD", name);

        return n > 0 && (size_t)n < sizeof(path) && faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A folder below @path that may be a repository's: 0 or negative. */
typedef int (*git_fn)(struct git *g, int dir, const char *name, const char *path, int depth);

static int each_folder(struct git *g, const char *path, int depth, git_fn fn)
{
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), e = 0;
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *d;

        if (!dir) {
                cg_closep_(&fd);
                return 0; /* there are none */
        }
        while (e == 0 && (d = readdir(dir))) {
                char child[PATH_MAX];
                int n = snprintf(child, sizeof(child), "%s/%s", path, d->d_name);

                if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || n < 0 ||
                    (size_t)n >= sizeof(child))
                        continue;
                if (++g->entries > GIT_ENTRIES_MAX)
                        e = cg_fail(g->err, CG_E_LIMIT,
                                    "sandbox: more than %d entries in %s, whose settings must not be written",
                                    GIT_ENTRIES_MAX, path);
                else if (d->d_type == DT_DIR || d->d_type == DT_UNKNOWN)
                        e = fn(g, dirfd(dir), d->d_name, child, depth);
        }
        closedir(dir);
        return e;
}

/* A submodule's repository; its name may have slashes. */
static int deny_module(struct git *g, int dir, const char *name, const char *path, int depth)
{
        if (depth > GIT_DEPTH_MAX)
                return cg_fail(g->err, CG_E_LIMIT, "sandbox: submodules are more than %d deep at %s",
                               GIT_DEPTH_MAX, path);
        return has_head(dir, name) ? deny_gitdir(g, path, depth + 1)
                                   : each_folder(g, path, depth + 1, deny_module);
}

/* A further work tree's folder: says where settings and hooks are. */
static int deny_worktree(struct git *g, int dir, const char *name, const char *path, int depth)
{
        int e = deny(g->rules, path, "commondir", false, g->absent_too, g->err);

        (void)dir;
        (void)name;
        (void)depth;
        return e == 0 && g->config_too ? deny(g->rules, path, "config.worktree", false, false, g->err) : e;
}

/*
 * Whether git would read config.worktree if it were there: only where config asks for it, and that
 * cannot be written.
 */
static bool wants_worktree_config(const char *gitdir)
{
        char path[PATH_MAX], text[GIT_CONFIG_MAX + 1];
        int n = snprintf(path, sizeof(path), "%s/config", gitdir);
        cg_auto_fd int fd = n < 0 || (size_t)n >= sizeof(path)
                                    ? -1
                                    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t len = fd < 0 && errno == ENOENT ? 0 : read(fd, text, sizeof(text) - 1);

        /* What cannot be read now (another program's lease, say) may say anything. */
        if (len < 0 || len == GIT_CONFIG_MAX)
                return true;
        text[len] = '\0';
        return strcasestr(text, "worktreeConfig") != NULL;
}

/*
 * ---- what a repository's settings lead to: they are the user's, but what they name can lie where
 * a sandbox writes
 */

enum leads { NOWHERE, FOLDER, FILE_, PROGRAM };

/* Settings that include settings that include... */
#define GIT_INCLUDES_MAX 8

static enum leads leads_to(const char *key)
{
        static const struct {
                const char *key;
                enum leads to;
        } keys[] = {
                { "hookspath", FOLDER },    { "templatedir", FOLDER }, { "attributesfile", FILE_ },
                { "path", FILE_ },          { "fsmonitor", PROGRAM },  { "sshcommand", PROGRAM },
                { "askpass", PROGRAM },     { "editor", PROGRAM },     { "pager", PROGRAM },
                { "gitproxy", PROGRAM },    { "program", PROGRAM },    { "clean", PROGRAM },
                { "smudge", PROGRAM },      { "process", PROGRAM },    { "command", PROGRAM },
                { "textconv", PROGRAM },    { "driver", PROGRAM },     { "helper", PROGRAM },
                { "external", PROGRAM },    { "cmd", PROGRAM },        { "uploadpack", PROGRAM },
                { "receivepack", PROGRAM },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++) {
                if (!strcasecmp(keys[i].key, key))
                        return keys[i].to;
        }
        return NOWHERE;
}

static int deny_led(struct git *g, const char *base, const char *name, enum leads to)
{
        const char *home = getenv("HOME");
        char path[PATH_MAX];
        struct stat st;
        int n;

        if (name[0] == '/')
                n = snprintf(path, sizeof(path), "%s", name);
        else if (name[0] == '~' && name[1] == '/' && home)
                n = snprintf(path, sizeof(path), "%s%s", home, name + 1);
        else
                n = snprintf(path, sizeof(path), "%s/%s", base, name);
        if (!name[0] || n < 0 || (size_t)n >= sizeof(path))
                return 0;
        /* Of a command's words those that are files. */
        if (to == PROGRAM && (stat(path, &st) < 0 || !S_ISREG(st.st_mode)))
                return 0;
        /* A path by itself: "deny" puts the two together. */
        return deny(g->rules, "/", path + strspn(path, "/"), to == FOLDER, true, g->err);
}

static int deny_value(struct git *g, const char *base, char *value, enum leads to)
{
        static const char separators[] = " \t'!;|&()<>=";
        char *save = NULL;
        int e = 0;

        if (to != PROGRAM)
                return deny_led(g, base, value, to);
        for (char *word = strtok_r(value, separators, &save); word && e == 0;
             word = strtok_r(NULL, separators, &save))
                e = deny_led(g, base, word, to);
        return e;
}

/* The value in the line @p, as git reads it: without quotes, and without a comment behind it. */
static void take_value(const char *p, char value[GIT_LINE_MAX])
{
        bool quoted = false;
        size_t n = 0;

        for (p += strspn(p, " \t"); *p && n + 1 < GIT_LINE_MAX && (quoted || (*p != '#' && *p != ';')); p++) {
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
 * What is a file and can be read at once: nobody waits for a FIFO, or for another program's lease.
 */
static bool read_now(const char *path, char *text, size_t size)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        ssize_t n = fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ? -1 : read(fd, text, size - 1);

        text[n > 0 ? n : 0] = '\0';
        return n > 0;
}

/* @top: where programs are run and hooks looked for. */
static int deny_leads(struct git *g, const char *config, const char *top, int depth)
{
        cg_auto_free char *text = depth > GIT_INCLUDES_MAX ? NULL : malloc(GIT_CONFIG_MAX + 1);
        char folder[PATH_MAX], *save = NULL;
        bool includes = false;
        int e = 0;

        if (!text || !read_now(config, text, GIT_CONFIG_MAX + 1))
                return 0;
        snprintf(folder, sizeof(folder), "%s", config);
        *strrchr(folder, '/') = '\0';
        for (char *line = strtok_r(text, "\n", &save); line && e == 0; line = strtok_r(NULL, "\n", &save)) {
                char value[GIT_LINE_MAX], *p = line + strspn(line, " \t\r"), *end;
                enum leads to;

                if (*p == '[') {
                        includes = !strncasecmp(p + 1, "include", 7);
                        end = strchr(p, ']');
                        p = end ? end + 1 + strspn(end + 1, " \t\r") : p + strlen(p);
                }
                end = strchr(p, '=');
                if (!end)
                        continue;
                take_value(end + 1, value);
                end = p + strcspn(p, " \t=");
                *end = '\0';
                to = leads_to(p);
                if (to != NOWHERE)
                        e = deny_value(g, to == FILE_ && includes ? folder : top, value, to);
                if (e == 0 && to == FILE_ && includes && value[0] && value[0] != '~') {
                        char next[PATH_MAX];

                        if (snprintf(next, sizeof(next), "%s%s%s", value[0] == '/' ? "" : folder,
                                     value[0] == '/' ? "" : "/", value) < (int)sizeof(next))
                                e = deny_leads(g, next, top, depth + 1);
                }
        }
        return e;
}

/* Of the repository @gitdir, and the user's own, which hold for all. */
static int deny_what_config_names(struct git *g, const char *gitdir, const char *top)
{
        const char *home = getenv("HOME");
        char config[PATH_MAX + 32];
        int e;

        snprintf(config, sizeof(config), "%s/config", gitdir);
        e = deny_leads(g, config, top, 0);
        snprintf(config, sizeof(config), "%s/.gitconfig", home ?: "");
        if (e == 0 && home)
                e = deny_leads(g, config, top, 0);
        snprintf(config, sizeof(config), "%s/.config/git/config", home ?: "");
        return e == 0 && home ? deny_leads(g, config, top, 0) : e;
}

/*
 * @file: a work tree's, in the folder @top. The repository lies elsewhere, but hooks and programs
 * may be named relative to the work tree.
 */
static int deny_what_worktree_names(struct git *g, const char *file, const char *top)
{
        char text[GIT_LINE_MAX], gitdir[PATH_MAX];
        int n;

        if (!read_now(file, text, sizeof(text)) || strncmp(text, "gitdir: ", 8) != 0)
                return 0;
        text[8 + strcspn(text + 8, "\r\n")] = '\0';
        n = snprintf(gitdir, sizeof(gitdir), "%s%s%s", text[8] == '/' ? "" : top, text[8] == '/' ? "" : "/",
                     text + 8);
        if (n < 0 || (size_t)n + 8 >= sizeof(gitdir))
                return 0;
        n = deny_what_config_names(g, gitdir, top);
        strcat(gitdir, "/../..");
        return n == 0 ? deny_what_config_names(g, gitdir, top) : n;
}

/* commondir leads git to other settings and hooks: where it is missing it must not be made. */
static int deny_gitdir(struct git *g, const char *path, int depth)
{
        char below[PATH_MAX];
        int n = snprintf(below, sizeof(below), "%s/worktrees", path), e;

        if (n < 0 || (size_t)n >= sizeof(below))
                return 0;
        e = deny(g->rules, path, "hooks", true, g->absent_too, g->err);
        if (e == 0)
                e = deny(g->rules, path, "commondir", false, g->absent_too, g->err);
        if (e == 0 && g->config_too)
                e = deny(g->rules, path, "config", false, g->absent_too, g->err);
        if (e == 0 && g->config_too)
                e = deny(g->rules, path, "config.worktree", false,
                         g->absent_too && wants_worktree_config(path), g->err);
        if (e == 0)
                e = each_folder(g, below, depth, deny_worktree);
        snprintf(below, sizeof(below), "%s/modules", path);
        return e == 0 ? each_folder(g, below, depth, deny_module) : e;
}

static int deny_git(struct cg_rules *rules, const char *folder, const char *name, bool config_too,
                    bool absent_too, struct cg_err *err)
{
        struct git g = { .rules = rules, .config_too = config_too, .absent_too = absent_too, .err = err };
        char path[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", name);

        if (n < 0 || (size_t)n >= sizeof(path) || stat(path, &st) < 0)
                return 0; /* no repository: git init must work */
        if (!S_ISDIR(st.st_mode)) {
                /* a worktree's: it says where the repository is */
                int e = deny(rules, folder, name, false, true, err);

                return e == 0 ? deny_what_worktree_names(&g, path, folder) : e;
        }
        n = deny_gitdir(&g, path, 0);
        return n == 0 && config_too
                       ? deny_what_config_names(&g, path, !strcasecmp(name, ".git") ? folder : path)
                       : n;
}

/* ---- names in a folder */

/*
 * What is absent in such a folder is passed over by one system call; with a link on the way the
 * link itself has to be kept.
 */
static bool has_no_links(const char *folder)
{
        char real[PATH_MAX];

        return cg_real_path(folder, real) && !strcmp(folder, real);
}

static bool is_absent(const char *folder, const char *name)
{
        char path[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", name);

        return n > 0 && (size_t)n < sizeof(path) && lstat(path, &st) < 0 && errno == ENOENT;
}

/* @present: only names that are there, in a folder without links on the way. */
static int deny_list(struct cg_rules *rules, const char *folder, const char *const *names, size_t n,
                     bool is_folder, bool absent_too, bool present, struct cg_err *err)
{
        int e = 0;

        for (size_t i = 0; i < n && e == 0; i++) {
                if (!present || !is_absent(folder, names[i]))
                        e = deny(rules, folder, names[i], is_folder, absent_too, err);
        }
        return e;
}

static int deny_names(struct cg_rules *rules, const char *folder, bool absent_too, struct cg_err *err)
{
        bool present = !absent_too && has_no_links(folder);
        int e = deny_list(rules, folder, files, CG_ARRAY_LEN(files), false, absent_too, present, err);
        char path[PATH_MAX];

        if (e == 0)
                e = deny_list(rules, folder, folders, CG_ARRAY_LEN(folders), true, absent_too, present, err);
        if (e < 0 || (present && is_absent(folder, ".claude")))
                return e;
        snprintf(path, sizeof(path), "%s/.claude", folder[1] ? folder : "");
        return deny_list(rules, path, claude_folders, CG_ARRAY_LEN(claude_folders), true, absent_too,
                         present && has_no_links(path), err);
}

/* All names, also those that are not there yet. */
static int deny_in(const struct cg_settings *s, struct cg_rules *rules, const char *folder,
                   struct cg_err *err)
{
        int e = deny_names(rules, folder, true, err);

        return e == 0 ? deny_git(rules, folder, ".git", !s->filesystem.allow_git_config, true, err) : e;
}

/*
 * One row of the table in @folder, whose last name may be a pattern: what a link leads to has
 * another name, and is denied by its path.
 */
static int deny_if_link(struct cg_rules *rules, const char *folder, const char *row, struct cg_err *err)
{
        char path[PATH_MAX], real[PATH_MAX];
        struct stat st;
        int n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", row);

        if (n < 0 || (size_t)n >= sizeof(path) || !cg_real_path(path, real) || !strcmp(path, real) ||
            stat(real, &st) < 0)
                return 0;
        return deny(rules, folder, row, S_ISDIR(st.st_mode), false, err);
}

static int deny_links_like(struct cg_rules *rules, const char *folder, const char *row, struct cg_err *err)
{
        const char *slash = strrchr(row, '/'), *last = slash ? slash + 1 : row;
        char path[PATH_MAX], name[PATH_MAX];
        const struct dirent *d;
        DIR *dir;
        int e = 0;

        snprintf(path, sizeof(path), "%s/%.*s", folder, (int)(last - row), row);
        dir = opendir(path);
        while (dir && e == 0 && (d = readdir(dir))) {
                if (fnmatch(last, d->d_name, FNM_CASEFOLD | FNM_PERIOD) != 0)
                        continue;
                snprintf(name, sizeof(name), "%.*s%s", (int)(last - row), row, d->d_name);
                e = deny_if_link(rules, folder, name, err);
        }
        if (dir)
                closedir(dir);
        return e;
}

/*
 * Names in @folder that are links into a write root, as a home's often are into a folder of
 * settings: files there are obeyed by another name than their own.
 */
static int deny_links(struct cg_rules *rules, const char *folder, struct cg_err *err)
{
        cg_auto_free bool *present = NULL;
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        int e = cg_names_present(folder, CG_NAME_WRITE, &present, err);

        for (size_t i = 0; i < n && e == 0; i++) {
                if (present[i])
                        e = strchr(rows[i].path, '*') ? deny_links_like(rules, folder, rows[i].path, err)
                                                      : deny_if_link(rules, folder, rows[i].path, err);
        }
        return e;
}

int cg_rules_add_present(struct cg_rules *rules, const char *folder, bool git_config_too, struct cg_err *err)
{
        int e = deny_names(rules, folder, false, err);

        if (e == 0)
                e = deny_links(rules, folder, err);
        return e == 0 ? deny_git(rules, folder, ".git", git_config_too, false, err) : e;
}

int cg_rules_add_homes(struct cg_rules *rules, const char *home, bool git_config_too, struct cg_err *err)
{
        char account[PATH_MAX];
        int e = home ? cg_rules_add_present(rules, home, git_config_too, err) : 0;

        if (e == 0 && cg_account_home(account) && (!home || strcmp(home, account) != 0))
                e = cg_rules_add_present(rules, account, git_config_too, err);
        return e;
}

/* ---- below a folder: what exists, whatever its case */

struct search {
        const struct cg_settings *s;
        size_t root; /* length of the path where it began; 0 for "/" */
        struct cg_rules *rules;
        size_t folders;
        struct cg_err *err;
};

static int search_folder(struct search *f, int fd, const char *path, int depth);

/* ".git", or a repository without a work tree, as it is usually named. */
static bool is_git(const char *name)
{
        size_t n = strlen(name);

        return n >= 4 && !strcasecmp(name + n - 4, ".git");
}

/* A folder in a folder that is @depth below where the search started. */
static int search_child(struct search *f, int dir, const char *name, const char *folder, int depth)
{
        char path[PATH_MAX];
        int fd, n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", name);

        if (n < 0 || (size_t)n >= sizeof(path))
                return 0;
        if (is_git(name) && (has_head(dir, name) || !strcasecmp(name, ".git")))
                return has_head(dir, name) ? deny_git(f->rules, folder, name,
                                                      !f->s->filesystem.allow_git_config, true, f->err)
                                           : 0;
        /* ".claude" is looked into at any depth: what is obeyed lies in it. */
        if (!strcmp(name, "node_modules") || (depth >= f->s->search_depth && !cg_names_leads(path, f->root)))
                return 0;
        if (++f->folders > FOLDERS_MAX)
                return cg_fail(f->err, CG_E_LIMIT,
                               "sandbox: more than %d folders to look through for files that must not be "
                               "written (%s); a smaller mandatoryDenySearchDepth looks less deep",
                               FOLDERS_MAX, path);
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return 0; /* gone, or not ours to look into: then not the sandbox's either */
        return search_folder(f, fd, path, depth + 1);
}

static bool is_folder(int dir, const struct dirent *d)
{
        struct stat st;

        if (d->d_type != DT_UNKNOWN)
                return d->d_type == DT_DIR;
        return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* A name of the table, in the folder @path. */
static bool is_obeyed(const struct search *f, const char *path, const char *name)
{
        char full[PATH_MAX];
        int n = snprintf(full, sizeof(full), "%s/%s", path[1] ? path : "", name);

        return n > 0 && (size_t)n < sizeof(full) && cg_names_find(full, f->root, CG_NAME_WRITE);
}

static int search_folder(struct search *f, int fd, const char *path, int depth)
{
        DIR *dir = fdopendir(fd);
        const struct dirent *d;
        int e = 0;

        if (!dir) {
                close(fd);
                return cg_fail(f->err, CG_E_NOMEM, "sandbox: looking through %s", path);
        }
        while (e == 0 && (d = readdir(dir))) {
                if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
                        continue;
                if (is_obeyed(f, path, d->d_name))
                        e = deny(f->rules, path, d->d_name, is_folder(dirfd(dir), d), true, f->err);
                else if (is_folder(dirfd(dir), d))
                        e = search_child(f, dirfd(dir), d->d_name, path, depth);
                else if (!strcasecmp(d->d_name, ".git"))
                        e = deny(f->rules, path, d->d_name, false, true, f->err);
        }
        closedir(dir);
        return e;
}

static int search(const struct cg_settings *s, struct cg_rules *rules, const char *path, struct cg_err *err)
{
        struct search f = { .s = s, .root = path[1] ? strlen(path) : 0, .rules = rules, .err = err };
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return 0;
        return search_folder(&f, fd, path, 1);
}

/*
 * Where nothing is searched through, at the top of a whole disk, the names in it are denied all the
 * same.
 */
static bool is_searched(const char *path)
{
        return path[1] != '\0';
}

static int protect(const struct cg_settings *s, struct cg_rules *rules, const char *folder, bool absent_too,
                   struct cg_err *err)
{
        int e = absent_too ? deny_in(s, rules, folder, err) : 0;

        return e == 0 && is_searched(folder) ? search(s, rules, folder, err) : e;
}

int cg_rules_add_found(struct cg_rules *rules, const char *folder, struct cg_err *err)
{
        const struct cg_settings s = { .search_depth = CG_SEARCH_DEPTH };

        return protect(&s, rules, folder, false, err);
}

/* Who could write the settings would be free the next time. */
static int deny_settings(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err)
{
        char path[PATH_MAX], *slash;
        int e;

        if (!base->settings)
                return 0;
        e = cg_path_absolute(base, base->settings, path, err);
        if (e < 0)
                return e;
        slash = strrchr(path, '/');
        if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0 || !slash[1])
                return 0;
        *slash = '\0';
        return deny(rules, slash == path ? "/" : path, slash + 1, false, false, err);
}

/* ---- repositories at any depth, of which init keeps the names: what their settings name */

/* The nearest folders that are looked through: docs/names.md. */
#define NESTED_FOLDERS_MAX 300
#define NESTED_ENTRIES_MAX 10000

struct nested {
        struct git g;
        char **folders;
        size_t n, cap, entries;
};

static int add_folder(struct nested *s, const char *path)
{
        if (s->n == NESTED_FOLDERS_MAX)
                return 0;
        if (s->n == s->cap) {
                size_t cap = s->cap ? s->cap * 2 : 64;
                char **v = realloc(s->folders, cap * sizeof(*v));

                if (!v)
                        return cg_fail(s->g.err, CG_E_NOMEM, "sandbox: looking for repositories");
                s->folders = v;
                s->cap = cap;
        }
        s->folders[s->n] = strdup(path);
        return s->folders[s->n++] ? 0 : cg_fail(s->g.err, CG_E_NOMEM, "sandbox: looking for repositories");
}

static int search_entry(struct nested *s, int dir, const struct dirent *d, const char *folder)
{
        char path[PATH_MAX];
        struct stat st;

        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", d->d_name) >= sizeof(path))
                return 0;
        if (!strcasecmp(d->d_name, ".git"))
                return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
                               ? deny_what_config_names(&s->g, path, folder)
                               : deny_what_worktree_names(&s->g, path, folder);
        if (!strcmp(d->d_name, "HEAD") && faccessat(dir, "config", F_OK, 0) == 0)
                return deny_what_config_names(&s->g, folder, folder);
        return is_folder(dir, d) && strcmp(d->d_name, "node_modules") != 0 ? add_folder(s, path) : 0;
}

int cg_rules_add_nested(struct cg_rules *rules, struct cg_err *err)
{
        struct nested s = { .g = { .rules = rules, .config_too = true, .err = err } };
        int e = 0;

        for (size_t i = 0; i < rules->n && e == 0; i++) {
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && rules->v[i].folder &&
                    is_searched(rules->v[i].path))
                        e = add_folder(&s, rules->v[i].path);
        }
        for (size_t i = 0; i < s.n && e == 0; i++) {
                char *folder = s.folders[i];
                DIR *dir = opendir(folder);
                const struct dirent *d;

                while (dir && e == 0 && s.entries++ < NESTED_ENTRIES_MAX && (d = readdir(dir)))
                        e = search_entry(&s, dirfd(dir), d, folder);
                if (dir)
                        closedir(dir);
        }
        while (s.n)
                free(s.folders[--s.n]);
        free(s.folders);
        return e;
}

/*
 * Init keeps names from being made and changed at any depth; what stands at the top is covered
 * beside that.
 */
static int add_tops(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *rules,
                    size_t n, struct cg_err *err)
{
        int e = 0;

        if (base->home)
                e = cg_rules_add_homes(rules, base->home, !s->filesystem.allow_git_config, err);
        for (size_t i = 0; i < n && e == 0; i++) {
                char root[PATH_MAX];

                if (rules->v[i].kind != CG_RULE_ALLOW_WRITE || !rules->v[i].folder)
                        continue;
                snprintf(root, sizeof(root), "%s", rules->v[i].path);
                e = cg_rules_add_present(rules, root, !s->filesystem.allow_git_config, err);
        }
        return e == 0 && !s->filesystem.allow_git_config ? cg_rules_add_nested(rules, err) : e;
}

int cg_rules_add_mandatory(const struct cg_settings *s, const struct cg_path_base *base,
                           struct cg_rules *rules, struct cg_err *err)
{
        size_t n = rules->n;
        int e = deny_settings(rules, base, err);

        if (e == 0 && base->by_name)
                return add_tops(s, base, rules, n, err);
        if (e == 0 && cg_rules_may_write(rules, base->cwd))
                e = protect(s, rules, base->cwd, true, err);
        if (e == 0 && base->home && strcmp(base->home, base->cwd) != 0 &&
            cg_rules_may_write(rules, base->home))
                e = deny_in(s, rules, base->home, err);
        /*
         * Write roots elsewhere: what is there. Placeholders for what is not belong into a project
         * and a home only.
         */
        for (size_t i = 0; i < n && e == 0; i++) {
                char root[PATH_MAX];

                if (rules->v[i].kind != CG_RULE_ALLOW_WRITE || !rules->v[i].folder ||
                    !strcmp(rules->v[i].path, base->cwd))
                        continue;
                snprintf(root, sizeof(root), "%s", rules->v[i].path);
                e = protect(s, rules, root, false, err);
        }
        return e;
}
