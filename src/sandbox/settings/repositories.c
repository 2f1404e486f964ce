/*
 * Files that git reads or runs in a repository: settings, hooks, and the files that settings name.
 * A sandbox that may write a work tree must not be able to change these.
 */
#include "sandbox/settings/repositories.h"

#include "base/fd.h"
#include "sandbox/settings/git_settings.h"

/* Entries below .git/modules and .git/worktrees that are visited, and depth of nested modules. */
#define GIT_ENTRIES_MAX 50000
#define GIT_DEPTH_MAX   16
/* Size of a file of settings that is searched for a word, and of a .git file. */
#define GIT_CONFIG_MAX (64 << 10)
#define GIT_LINE_MAX   4096

struct git {
        struct cg_rules *rules;
        bool config_too, absent_too;
        size_t entries;
        struct cg_err *err;
};

static int deny_gitdir(struct git *g, const char *path, int depth);

bool cg_rules_has_head(int dir, const char *name)
{
        char path[NAME_MAX + 8];
        int n = snprintf(path, sizeof(path), "%s/HEAD", name);

        return n > 0 && (size_t)n < sizeof(path) && faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool cg_is_folder(int dir, const struct dirent *d)
{
        struct stat st;

        if (d->d_type != DT_UNKNOWN)
                return d->d_type == DT_DIR;
        return fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Called for a folder below @path: 0 or negative. */
typedef int (*git_fn)(struct git *g, int dir, const char *name, const char *path, int depth);

static int each_folder(struct git *g, const char *path, int depth, git_fn fn)
{
        cg_auto_dir DIR *dir = cg_dir_of(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return 0; /* no such folder */
        while (r == 0 && (d = readdir(dir))) {
                char child[PATH_MAX];

                if (cg_path_is_dots(d->d_name) || !cg_path_join(child, path, d->d_name))
                        continue;
                if (++g->entries > GIT_ENTRIES_MAX)
                        r = cg_fail(g->err, CG_E_LIMIT,
                                    "sandbox: more than %d entries in %s, whose settings must not be written",
                                    GIT_ENTRIES_MAX, path);
                else if (d->d_type == DT_DIR || d->d_type == DT_UNKNOWN)
                        r = fn(g, dirfd(dir), d->d_name, child, depth);
        }
        return r;
}

/* A submodule's repository; its name may have slashes. */
static int deny_module(struct git *g, int dir, const char *name, const char *path, int depth)
{
        if (depth > GIT_DEPTH_MAX)
                return cg_fail(g->err, CG_E_LIMIT, "sandbox: submodules are more than %d deep at %s",
                               GIT_DEPTH_MAX, path);
        if (cg_rules_has_head(dir, name))
                return deny_gitdir(g, path, depth + 1);
        return each_folder(g, path, depth + 1, deny_module);
}

/* The folder of a further work tree, which names the places of settings and hooks. */
static int deny_worktree(struct git *g, int dir, const char *name, const char *path, int depth)
{
        int r = cg_rules_deny_name(g->rules, path, "commondir", false, g->absent_too, g->err);

        if (r < 0 || !g->config_too)
                return r;
        return cg_rules_deny_name(g->rules, path, "config.worktree", false, false, g->err);
}

/* True if git would read a config.worktree: only where config, which is read-only, enables it. */
static bool wants_worktree_config(const char *gitdir)
{
        char path[PATH_MAX], text[GIT_CONFIG_MAX + 1];
        int n = snprintf(path, sizeof(path), "%s/config", gitdir);
        cg_auto_fd int fd = n < 0 || (size_t)n >= sizeof(path)
                                    ? -1
                                    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        ssize_t len = fd < 0 && errno == ENOENT ? 0 : read(fd, text, sizeof(text) - 1);

        /* A file that cannot be read now, because of a lease for example, may enable it. */
        if (len < 0 || len == GIT_CONFIG_MAX)
                return true;
        text[len] = '\0';
        return strcasestr(text, "worktreeConfig") != NULL;
}

/* Reads a regular file without waiting for a FIFO or for another program's lease. */
static bool read_now(const char *path, char *text, size_t size)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        ssize_t n = fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ? -1 : read(fd, text, size - 1);

        text[CG_MAX(n, 0)] = '\0';
        return n > 0;
}

/* Files that settings of the repository @gitdir name, and the user's settings relative to @top. */
static int deny_configs(struct git *g, const char *gitdir, const char *top)
{
        static const char *const names[] = { "config", "config.worktree" };
        char config[PATH_MAX + 32];
        int r;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                snprintf(config, sizeof(config), "%s/%s", gitdir, names[i]);
                r = cg_git_deny_named(g->rules, config, top, g->err);
                if (r < 0)
                        return r;
        }
        return cg_git_deny_user(g->rules, top, g->err);
}

/*
 * @file: the file .git of a work tree, in the folder @top. The repository is elsewhere, but hooks
 * and programs may be named relative to the work tree.
 */
static int deny_worktree_config(struct git *g, const char *file, const char *top)
{
        char text[GIT_LINE_MAX], gitdir[PATH_MAX];
        const char *top_of_link = top;
        int n;

        if (!read_now(file, text, sizeof(text)) || strncmp(text, "gitdir: ", 8) != 0)
                return 0;
        text[8 + strcspn(text + 8, "\r\n")] = '\0';
        if (text[8] == '/')
                top_of_link = "";
        n = snprintf(gitdir, sizeof(gitdir), "%s%s%s", top_of_link, *top_of_link ? "/" : "", text + 8);
        if (n < 0 || (size_t)n + 16 >= sizeof(gitdir))
                return 0;
        n = deny_configs(g, gitdir, top);
        if (n < 0)
                return n;
        /* The repository of further work trees: they are in its folder worktrees. */
        strcat(gitdir, "/../../config");
        return cg_git_deny_named(g->rules, gitdir, top, g->err);
}

/* commondir makes git read other settings and hooks: where it is missing it must not be made. */
static int deny_gitdir(struct git *g, const char *path, int depth)
{
        char below[PATH_MAX];
        int n = snprintf(below, sizeof(below), "%s/worktrees", path), r;

        if (n < 0 || (size_t)n >= sizeof(below))
                return 0;
        if ((r = cg_rules_deny_name(g->rules, path, "hooks", true, g->absent_too, g->err)) < 0 ||
            (r = cg_rules_deny_name(g->rules, path, "commondir", false, g->absent_too, g->err)) < 0)
                return r;
        if (g->config_too &&
            ((r = cg_rules_deny_name(g->rules, path, "config", false, g->absent_too, g->err)) < 0 ||
             (r = cg_rules_deny_name(g->rules, path, "config.worktree", false,
                                     g->absent_too && wants_worktree_config(path), g->err)) < 0))
                return r;
        /* Init protects these at any depth, without a mount, so that git can remove them. */
        if (g->rules->base && !g->rules->base->by_name &&
            (r = cg_rules_deny_name(g->rules, path, "sequencer/opts", false, false, g->err)) < 0)
                return r;
        r = each_folder(g, below, depth, deny_worktree);
        if (r < 0)
                return r;
        snprintf(below, sizeof(below), "%s/modules", path);
        return each_folder(g, below, depth, deny_module);
}

int cg_rules_deny_repository(struct cg_rules *rules, const char *folder, const char *name, bool config_too,
                             bool absent_too, struct cg_err *err)
{
        struct git g = { .rules = rules, .config_too = config_too, .absent_too = absent_too, .err = err };
        char path[PATH_MAX];
        struct stat st;
        int r;

        if (!cg_path_join(path, folder, name))
                return 0;
        if (stat(path, &st) < 0) /* no repository: git init must work */
                return cg_rules_need_open(rules, path, err);
        if (!S_ISDIR(st.st_mode)) {
                /* of a work tree: it names the repository */
                r = cg_rules_deny_name(rules, folder, name, false, true, err);
                return r ?: deny_worktree_config(&g, path, folder);
        }
        r = deny_gitdir(&g, path, 0);
        if (r < 0 || !config_too)
                return r;
        return deny_configs(&g, path, strcasecmp(name, ".git") == 0 ? folder : path);
}

/* ---- repositories at any depth, whose names init protects: files that their settings name */

/* The nearest folders that are searched: docs/names.md. */
#define NESTED_FOLDERS_MAX 300
#define NESTED_ENTRIES_MAX 10000

struct nested {
        struct git g;
        char **folders;
        size_t n, cap, entries;
};

static int add_folder(struct nested *s, const char *path)
{
        char **v;

        if (s->n == NESTED_FOLDERS_MAX)
                return 0;
        v = cg_grow(s->folders, &s->cap, s->n, sizeof(*v));
        if (v)
                s->folders = v;
        if (!v || !(v[s->n] = strdup(path)))
                return cg_fail(s->g.err, CG_E_NOMEM, "sandbox: looking for repositories");
        s->n++;
        return 0;
}

static int search_entry(struct nested *s, int dir, const struct dirent *d, const char *folder)
{
        char path[PATH_MAX];
        struct stat st;

        if (cg_path_is_dots(d->d_name) || !cg_path_join(path, folder, d->d_name))
                return 0;
        if (strcasecmp(d->d_name, ".git") == 0)
                return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
                               ? deny_configs(&s->g, path, folder)
                               : deny_worktree_config(&s->g, path, folder);
        if (strcmp(d->d_name, "HEAD") == 0 && faccessat(dir, "config", F_OK, 0) == 0)
                return deny_configs(&s->g, folder, folder);
        return cg_is_folder(dir, d) && strcmp(d->d_name, "node_modules") != 0 ? add_folder(s, path) : 0;
}

int cg_rules_add_nested(struct cg_rules *rules, struct cg_err *err)
{
        struct nested s = { .g = { .rules = rules, .config_too = true, .err = err } };
        int r = 0;

        for (size_t i = 0; i < rules->n && r == 0; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && rules->v[i].folder && rules->v[i].path[1])
                        r = add_folder(&s, rules->v[i].path);
        for (size_t i = 0; i < s.n && r == 0; i++) {
                char *folder = s.folders[i];
                cg_auto_dir DIR *dir = opendir(folder);
                const struct dirent *d;

                if (!dir && errno == EACCES)
                        r = cg_rules_hide_closed(rules, folder, "mandatory", err);
                while (dir && r == 0 && s.entries++ < NESTED_ENTRIES_MAX && (d = readdir(dir)))
                        r = search_entry(&s, dirfd(dir), d, folder);
        }
        while (s.n)
                free(s.folders[--s.n]);
        free(s.folders);
        return r;
}
