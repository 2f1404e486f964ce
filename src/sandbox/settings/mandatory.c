/*
 * Files that other programs run or obey: shell start-up files, git's hooks and settings, editors'
 * and agents' settings. A command that may write a workspace must not be able to make one that
 * takes effect later, outside of any sandbox.
 */
#include "sandbox/settings/repositories.h"

#include "base/account.h"
#include "base/fd.h"
#include "sandbox/names/names.h"
#include "sandbox/names/present.h"
#include "sandbox/settings/git_settings.h"
#include "sandbox/settings/homes.h"
#include "sandbox/settings/name_links.h"
#include "sandbox/settings/named_programs.h"

/*
 * Folders that one search may visit. A workspace with more of them this near to its root needs
 * settings of its own.
 */
#define FOLDERS_MAX 200000

static const char *const files[] = { ".gitconfig", ".gitmodules",       ".bashrc",  ".bash_profile",
                                     ".zshrc",     ".zprofile",         ".profile", ".ripgreprc",
                                     ".mcp.json",  ".srt-settings.json" };
static const char *const folders[] = { ".vscode", ".idea" };
static const char *const claude_folders[] = { "commands", "agents" };

/* ---- names in a folder */

/* An absent name in it costs one system call; with a link on the way, the link is kept. */
static bool has_no_links(const char *folder)
{
        char real[PATH_MAX];

        return cg_real_path(folder, real) && strcmp(folder, real) == 0;
}

static bool is_absent(const char *folder, const char *name)
{
        char path[PATH_MAX];
        struct stat st;

        return cg_path_join(path, folder, name) && lstat(path, &st) < 0 && errno == ENOENT;
}

/* @present: only names that are there, in a folder without links on the way. */
static int deny_list(struct cg_rules *rules, const char *folder, const char *const *names, size_t n,
                     bool is_folder, bool absent_too, bool present, struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                if (!present || !is_absent(folder, names[i]))
                        r = cg_rules_deny_name(rules, folder, names[i], is_folder, absent_too, err);
        return r;
}

static int deny_names(struct cg_rules *rules, const char *folder, bool absent_too, struct cg_err *err)
{
        bool present = !absent_too && has_no_links(folder);
        char path[PATH_MAX];
        int r;

        if ((r = deny_list(rules, folder, files, CG_ARRAY_LEN(files), false, absent_too, present, err)) < 0 ||
            (r = deny_list(rules, folder, folders, CG_ARRAY_LEN(folders), true, absent_too, present, err)) <
                    0)
                return r;
        if ((present && is_absent(folder, ".claude")) || !cg_path_join(path, folder, ".claude"))
                return 0;
        return deny_list(rules, path, claude_folders, CG_ARRAY_LEN(claude_folders), true, absent_too,
                         present && has_no_links(path), err);
}

/* All names, also those that are not there yet. */
static int deny_in(const struct cg_settings *s, struct cg_rules *rules, const char *folder,
                   struct cg_err *err)
{
        int r = deny_names(rules, folder, true, err);

        if (r < 0)
                return r;
        return cg_rules_deny_repository(rules, folder, ".git", !s->filesystem.allow_git_config, true, err);
}

static int add_present(struct cg_rules *rules, const char *folder, unsigned int what, struct cg_present *p,
                       bool git_config_too, struct cg_err *err)
{
        int r = deny_names(rules, folder, false, err);

        if (r < 0)
                return r;
        if (!cg_homes_get(rules->base->homes, folder, p)) {
                r = cg_present_scan(p, folder, what, NULL, err);
                if (r < 0)
                        return r;
                /* Only links to places that the sandbox may write are denied. */
                if (cg_rules_may_write(rules, NULL) && (r = cg_name_links_find(p, NULL, err)) < 0)
                        return r;
        }
        if ((r = cg_rules_deny_name_links(rules, p, err)) < 0 ||
            (r = cg_rules_deny_named_programs(rules, p, err)) < 0)
                return r;
        return cg_rules_deny_repository(rules, folder, ".git", git_config_too, false, err);
}

int cg_rules_add_present(struct cg_rules *rules, const char *folder, bool git_config_too, struct cg_err *err)
{
        cg_auto_present struct cg_present p = { 0 };

        return add_present(rules, folder, CG_NAME_WRITE, &p, git_config_too, err);
}

int cg_rules_add_homes(struct cg_rules *rules, const char *home, bool git_config_too, struct cg_err *err)
{
        const unsigned int both = CG_NAME_WRITE | CG_NAME_HIDE;
        char account[PATH_MAX];
        int r;

        if (home && (r = add_present(rules, home, both, &rules->homes[0], git_config_too, err)) < 0)
                return r;
        if (!cg_account_home(account) || (home && strcmp(home, account) == 0))
                return 0;
        return add_present(rules, account, both, &rules->homes[1], git_config_too, err);
}

/* ---- existing names below a folder, in upper or lower case */

struct search {
        int depth;
        bool allow_git_config;
        size_t root; /* length of the path where it began */
        struct cg_rules *rules;
        size_t folders;
        struct cg_err *err;
};

static int search_folder(struct search *f, int fd, const char *path, int depth);

/* A folder in a folder that is @depth below where the search started. */
static int search_child(struct search *f, int dir, const char *name, const char *folder, const char *path,
                        int depth)
{
        int fd;

        /* ".git", or a repository without a work tree, which may have any name */
        if (cg_rules_has_head(dir, name))
                return cg_rules_deny_repository(f->rules, folder, name, !f->allow_git_config, true, f->err);
        if (strcasecmp(name, ".git") == 0)
                return 0;
        /* ".claude" is searched at any depth: names of the table are in it. */
        if (strcmp(name, "node_modules") == 0 || (depth >= f->depth && !cg_names_leads(path, f->root)))
                return 0;
        if (++f->folders > FOLDERS_MAX)
                return cg_fail(f->err, CG_E_LIMIT,
                               "sandbox: more than %d folders to look through for files that must not be "
                               "written (%s); a smaller mandatoryDenySearchDepth looks less deep",
                               FOLDERS_MAX, path);
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* A folder that was removed, or that this user cannot read: the sandbox cannot either. */
        return fd < 0 ? 0 : search_folder(f, fd, path, depth + 1);
}

/* Takes @fd. */
static int search_folder(struct search *f, int fd, const char *path, int depth)
{
        cg_auto_dir DIR *dir = cg_dir_of(fd);
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return cg_fail(f->err, CG_E_NOMEM, "sandbox: looking through %s", path);
        while (r == 0 && (d = readdir(dir))) {
                char child[PATH_MAX];

                if (cg_path_is_dots(d->d_name) || !cg_path_join(child, path, d->d_name))
                        continue;
                if (cg_names_find(child, f->root, CG_NAME_WRITE))
                        r = cg_rules_deny_name(f->rules, path, d->d_name, cg_is_folder(dirfd(dir), d), true,
                                               f->err);
                else if (cg_is_folder(dirfd(dir), d))
                        r = search_child(f, dirfd(dir), d->d_name, path, child, depth);
                else if (strcasecmp(d->d_name, ".git") == 0)
                        r = cg_rules_deny_name(f->rules, path, d->d_name, false, true, f->err);
        }
        return r;
}

/* Names below @folder. At the top of a whole disk there is no search. */
static int search(struct cg_rules *rules, const char *folder, int depth, bool allow_git_config,
                  struct cg_err *err)
{
        struct search f = { .depth = depth,
                            .allow_git_config = allow_git_config,
                            .root = strlen(folder),
                            .rules = rules,
                            .err = err };
        int fd = folder[1] ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

        return fd < 0 ? 0 : search_folder(&f, fd, folder, 1);
}

int cg_rules_add_found(struct cg_rules *rules, const char *folder, struct cg_err *err)
{
        return search(rules, folder, CG_SEARCH_DEPTH, false, err);
}

/* A sandbox that could write its settings would be unrestricted the next time. */
static int deny_settings(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err)
{
        char path[PATH_MAX], *slash;
        int r;

        if (!base->settings)
                return 0;
        r = cg_path_absolute(base, base->settings, path, err);
        if (r < 0)
                return r;
        slash = strrchr(path, '/');
        if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0 || !slash[1])
                return 0;
        *slash = '\0';
        return cg_rules_deny_name(rules, slash == path ? "/" : path, slash + 1, false, false, err);
}

int cg_rules_add_mandatory(const struct cg_settings *s, const struct cg_path_base *base,
                           struct cg_rules *rules, struct cg_err *err)
{
        bool config_too = !s->filesystem.allow_git_config;
        size_t n = rules->n;
        int r;

        if ((r = deny_settings(rules, base, err)) < 0 || (r = cg_git_deny_user(rules, NULL, err)) < 0 ||
            (r = cg_git_deny_variables(rules, err)) < 0)
                return r;

        /*
         * Existing names at the top are denied, with what they lead to. Init protects names at any
         * depth (by_name); elsewhere names are searched for. In the working folder and the home
         * absent names are denied, too; placeholders for these belong into a project and a home
         * only.
         */
        if (base->home && (r = cg_rules_add_homes(rules, base->home, config_too, err)) < 0)
                return r;
        if (!base->by_name && cg_rules_may_write(rules, base->cwd) &&
            ((r = deny_in(s, rules, base->cwd, err)) < 0 ||
             (r = search(rules, base->cwd, s->search_depth, !config_too, err)) < 0))
                return r;
        if (!base->by_name && base->home && strcmp(base->home, base->cwd) != 0 &&
            cg_rules_may_write(rules, base->home) && (r = deny_in(s, rules, base->home, err)) < 0)
                return r;
        for (size_t i = 0; i < n; i++) {
                char root[PATH_MAX];

                if (rules->v[i].kind != CG_RULE_ALLOW_WRITE || !rules->v[i].folder)
                        continue;
                snprintf(root, sizeof(root), "%s", rules->v[i].path);
                r = cg_rules_add_present(rules, root, config_too, err);
                if (r < 0)
                        return r;
                if (!base->by_name && strcmp(root, base->cwd) != 0 &&
                    (r = search(rules, root, s->search_depth, !config_too, err)) < 0)
                        return r;
        }
        return config_too ? cg_rules_add_nested(rules, err) : 0;
}
