/*
 * cellgate-supervisor: folders of files that MCP servers load, and files in them that have further
 * names elsewhere.
 */
#include "supervisor/server_files_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "base/path.h"
#include "base/util.h"
#include "sandbox/plan.h"

/* How many entries are visited between two checks of the time. */
#define TIME_EVERY 256
/* Files with several names in one folder; of more, some are taken to have names elsewhere. */
#define LINKED_MAX 100000
/* Entries of a folder of programs. */
#define BESIDE_MAX 20000

struct walk {
        struct check *c;
        unsigned int flags;
        tree_visit visit;
        void *data;
        char path[PATH_MAX]; /* of the current entry */
};

static int check_time(const struct check *c)
{
        if (!cg_budget_is_spent(&c->scope->budget))
                return 0;
        return cg_fail(c->err, CG_E_TIMEDOUT,
                       "MCP server \"%s\": the check that cells cannot write its files took too long. Remove "
                       "what it does not need from the folder of its program, or keep that where cells "
                       "cannot write",
                       c->name);
}

/* By errno. */
static int cannot_read(struct check *c, unsigned int flags, const char *path)
{
        if (errno == EACCES && (flags & TREE_LENIENT)) {
                c->linked = true;
                return 0;
        }
        return cg_fail_errno(c->err,
                             "MCP server \"%s\": %s, whose files belong to its program, cannot be "
                             "read",
                             c->name, path);
}

static int walk_folder(struct walk *w, int fd, size_t len, int depth);

/* @len: of the folder's path. Entries that vanish meanwhile are none. */
static int walk_entry(struct walk *w, int dir, const struct dirent *d, size_t len, int depth)
{
        struct check *c = w->c;
        int n = snprintf(w->path + len, sizeof(w->path) - len, "/%s", d->d_name), sub;
        struct stat st;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || n < 0 ||
            (size_t)n >= sizeof(w->path) - len)
                return 0;
        if (++c->entries > SERVER_ENTRIES_MAX && !(w->flags & TREE_LENIENT))
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": more than %d files belong to its program (%s). Keep it "
                               "where cells cannot write, or remove what it does not need",
                               c->name, SERVER_ENTRIES_MAX, w->path);
        if (c->entries % TIME_EVERY == 0 && check_time(c) < 0)
                return c->err->code;
        /* Too many: links are still followed, and files taken for ones with other names. */
        if ((w->flags & TREE_LENIENT) && ++c->lenient > SERVER_LENIENT_MAX) {
                c->linked = true;
                if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
                        return 0;
        }
        if (d->d_type == DT_REG && !(w->flags & TREE_FILES))
                return 0;
        if (fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        if (S_ISLNK(st.st_mode) || (S_ISREG(st.st_mode) && (w->flags & TREE_FILES)))
                return w->visit(c, w->data, w->path, &st);
        if (!S_ISDIR(st.st_mode) || (w->flags & TREE_SHALLOW) ||
            ((w->flags & TREE_VISIBLE) && d->d_name[0] == '.') ||
            ((w->flags & TREE_OUTSIDE) && cg_sup_file_is_open(c, w->path)))
                return 0;
        if (depth == 0 && (w->flags & TREE_LENIENT)) {
                c->linked = true;
                return 0;
        }
        if (depth == 0)
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": folders of its program are more than "
                               "%d deep (%s)",
                               c->name, SERVER_DEPTH_MAX, w->path);
        sub = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
                return walk_folder(w, sub, len + (size_t)n, depth - 1);
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
                return 0;
        return cannot_read(c, w->flags, w->path);
}

static int walk_folder(struct walk *w, int fd, size_t len, int depth)
{
        DIR *dir = fdopendir(fd);
        const struct dirent *d;
        int r = 0;

        if (!dir) {
                close(fd);
                return cg_fail(w->c->err, CG_E_NOMEM, "MCP server");
        }
        while (r == 0 && (errno = 0, d = readdir(dir)))
                r = walk_entry(w, dirfd(dir), d, len, depth);
        w->path[len] = '\0';
        if (r == 0 && !d && errno)
                r = cannot_read(w->c, w->flags, w->path);
        closedir(dir);
        return r;
}

int cg_sup_tree_walk(struct check *c, const char *folder, unsigned int flags, tree_visit visit, void *data)
{
        struct walk w = { .c = c, .flags = flags, .visit = visit, .data = data };
        int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        size_t len = strlen(folder);

        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
                return 0;
        if (fd < 0)
                return cannot_read(c, flags, folder);
        while (len && folder[len - 1] == '/')
                len--;
        if (len >= sizeof(w.path)) {
                close(fd);
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": the path %.200s... is too long",
                               c->name, folder);
        }
        memcpy(w.path, folder, len);
        w.path[len] = '\0';
        return walk_folder(&w, fd, len, SERVER_DEPTH_MAX);
}

/* ------------------------------------------------------------------ hard links */

struct name {
        dev_t dev;
        ino_t ino;
        nlink_t links;
};

struct names {
        struct name *v;
        size_t n, cap;
        tree_visit link; /* for symlinks */
        const char *what;
};

/* Whether cells, which have the supervisor's user, could write the file under another name. */
static bool is_changeable(const struct stat *st)
{
        return geteuid() == 0 || st->st_uid == geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH));
}

static int visit_outside(struct check *c, void *data, const char *path, const struct stat *st)
{
        struct names *names = data;
        size_t cap = names->cap ? names->cap * 2 : 256;
        struct name *v;

        if (S_ISLNK(st->st_mode))
                return names->link(c, (void *)(uintptr_t)names->what, path, st);
        if (st->st_nlink < 2 || !is_changeable(st) || c->linked)
                return 0;
        if (names->n == LINKED_MAX) {
                c->linked = true;
                return 0;
        }
        if (names->n == names->cap) {
                v = realloc(names->v, cap * sizeof(*v));
                if (!v)
                        return cg_fail(c->err, CG_E_NOMEM, "MCP server");
                names->v = v;
                names->cap = cap;
        }
        names->v[names->n++] = (struct name){ .dev = st->st_dev, .ino = st->st_ino, .links = st->st_nlink };
        return 0;
}

static int compare_names(const void *a, const void *b)
{
        const struct name *x = a, *y = b;

        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->dev < y->dev ? -1 : x->dev > y->dev;
}

/* Whether some file has more names than were found. */
static bool has_names_elsewhere(struct names *names)
{
        bool found = false;

        if (names->n)
                qsort(names->v, names->n, sizeof(*names->v), compare_names);
        for (size_t i = 0, k; i < names->n && !found; i = k) {
                for (k = i + 1; k < names->n && compare_names(&names->v[i], &names->v[k]) == 0;)
                        k++;
                found = k - i < names->v[i].links;
        }
        return found;
}

bool cg_sup_tree_was_searched(const struct check *c, const char *path)
{
        const json_t *v;
        size_t i;

        json_array_foreach(c->searched, i, v) if (cg_path_within(path, json_string_value(v))) return true;
        return false;
}

/* Returns whether it was none so far. */
static bool add_searched(struct check *c, const char *path, unsigned int flags)
{
        cg_auto_json json_t *key = json_sprintf("%s%s", flags & TREE_VISIBLE ? "visible:" : "", path);

        if (key && cg_sup_list_has(c->searched, key))
                return false;
        if (key) /* no UTF-8: it is searched each time */
                json_array_append(c->searched, key);
        return true;
}

/*
 * Whether all names of the file @path are in its folder, which cells cannot write: then it needs no
 * guard. So it is with the Python of some distributions.
 */
static bool has_names_beside_only(const struct check *c, const char *path, const struct stat *file)
{
        char folder[PATH_MAX], *slash;
        const struct dirent *d;
        nlink_t found = 0;
        struct stat st;
        DIR *dir;

        snprintf(folder, sizeof(folder), "%s", path);
        slash = strrchr(folder, '/');
        if (!slash)
                return false;
        slash[slash == folder] = '\0';
        if (cg_sup_file_is_in_write_root(c, folder))
                return false;
        dir = opendir(folder);
        for (int i = 0; i < BESIDE_MAX && dir && (d = readdir(dir)); i++)
                found += d->d_ino == file->st_ino &&
                         fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                         st.st_ino == file->st_ino && st.st_dev == file->st_dev;
        if (dir)
                closedir(dir);
        return found == file->st_nlink;
}

int cg_sup_tree_search_outside(struct check *c, const char *what, const char *path, unsigned int flags,
                               tree_visit link)
{
        struct names names = { .link = link, .what = what };
        size_t entries = c->entries;
        struct stat st;
        int r = 0;

        if (cg_sup_tree_was_searched(c, path) || stat(path, &st) < 0)
                return 0;
        if (!(flags & TREE_SHALLOW) && !add_searched(c, path, flags))
                return 0;
        if (!S_ISDIR(st.st_mode)) {
                if (st.st_nlink > 1 && is_changeable(&st) && !has_names_beside_only(c, path, &st))
                        json_array_append_new(c->guards, json_string(path));
                return 0;
        }
        c->entries = 0; /* each folder outside has a budget of its own; the time bounds all */
        r = cg_sup_tree_walk(c, path, flags | TREE_FILES | TREE_OUTSIDE, visit_outside, &names);
        c->entries = entries;
        if (r == 0 && !c->linked && !(flags & TREE_SHALLOW))
                c->linked = has_names_elsewhere(&names);
        free(names.v);
        return r;
}
