/*
 * cellgate-supervisor: folders of files that MCP servers load, and files in them that have further
 * names elsewhere.
 */
#include "supervisor/servers/internal.h"

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

/* True if cells, which have the supervisor's user, could write the file under another name. */
static bool is_changeable(const struct stat *st)
{
        return geteuid() == 0 || st->st_uid == geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH));
}

/* A file with several names. */
struct name {
        dev_t dev;
        ino_t ino;
        nlink_t links;
};

struct tree_walk {
        struct check *c;
        const char *what;
        unsigned int flags;
        bool cut;            /* not all could be searched */
        bool files;          /* regular files with several names are collected, too */
        char path[PATH_MAX]; /* of the current entry */
        struct name *names;
        size_t n_names, cap;
};

#define LENIENT "lenient:"

/* True if @path is in a folder that was searched as a whole; @lenient: by TREE_LENIENT, too. */
static bool was_searched(const struct check *c, const char *path, bool lenient)
{
        const json_t *v;
        size_t i;

        json_array_foreach(c->searched, i, v)
        {
                const char *folder = json_string_value(v);

                if (lenient && strncmp(folder, LENIENT, strlen(LENIENT)) == 0)
                        folder += strlen(LENIENT);
                if (cg_path_within(path, folder))
                        return true;
        }
        return false;
}

/*
 * The target of a symlink is loaded under the name of the link. Checked later, not by recursion:
 * cells decide how many links lead from one folder to the next.
 */
static int visit_link(struct tree_walk *w)
{
        struct check *c = w->c;
        bool exposed = cg_sup_file_is_exposed(c, w->path);
        char real[PATH_MAX];
        struct stat st;

        if (!exposed && (!realpath(w->path, real) || stat(real, &st) < 0 || !S_ISDIR(st.st_mode) ||
                         was_searched(c, real, true)))
                return 0;
        if (json_array_append_new(c->pending, json_string(w->path)) < 0)
                return exposed ? cg_sup_server_refuse(c, w->what, w->path, "its name is not UTF-8") : 0;
        if (json_array_append_new(c->pending, json_string(w->what)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return 0;
}

static int visit_file(struct tree_walk *w, const struct stat *st)
{
        struct name *v;

        if (st->st_nlink < 2 || !is_changeable(st) || w->c->linked)
                return 0;
        if (w->n_names == LINKED_MAX) {
                w->c->linked = true;
                return 0;
        }
        v = cg_grow(w->names, &w->cap, w->n_names, sizeof(*v));
        if (!v)
                return cg_fail(w->c->err, CG_E_NOMEM, "MCP server");
        w->names = v;
        v[w->n_names++] = (struct name){ .dev = st->st_dev, .ino = st->st_ino, .links = st->st_nlink };
        return 0;
}

/* By errno. */
static int cannot_read(struct tree_walk *w)
{
        if (errno == EACCES && (w->flags & TREE_LENIENT)) {
                w->cut = w->c->linked = true;
                return 0;
        }
        return cg_fail_errno(w->c->err,
                             "MCP server \"%s\": %s, whose files belong to its program, cannot be read",
                             w->c->name, w->path);
}

static int walk_folder(struct tree_walk *w, int fd, size_t len, int depth);

/* @len: of the folder's path. Entries that vanish meanwhile are none. */
static int walk_entry(struct tree_walk *w, int dir, const struct dirent *d, size_t len, int depth)
{
        struct check *c = w->c;
        int n = snprintf(w->path + len, sizeof(w->path) - len, "/%s", d->d_name), sub;
        bool lenient = w->flags & TREE_LENIENT;
        struct stat st;

        if (cg_path_is_dots(d->d_name) || n < 0 || (size_t)n >= sizeof(w->path) - len)
                return 0;
        if (++c->entries > SERVER_ENTRIES_MAX && !lenient)
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": more than %d files belong to its program (%s). Keep it "
                               "where cells cannot write, or remove what it does not need",
                               c->name, SERVER_ENTRIES_MAX, w->path);
        if (c->entries % TIME_EVERY == 0 && cg_budget_is_spent(&c->scope->budget))
                return cg_fail(c->err, CG_E_TIMEDOUT,
                               "MCP server \"%s\": the check that cells cannot write its files took too "
                               "long. Remove what it does not need from the folder of its program, or keep "
                               "that where cells cannot write",
                               c->name);
        /* Too many: links are still followed, and files taken for ones with other names. */
        if (lenient && c->entries > SERVER_LENIENT_MAX) {
                w->cut = c->linked = true;
                if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
                        return 0;
        }
        if ((d->d_type == DT_REG && !w->files) || fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        if (S_ISLNK(st.st_mode))
                return visit_link(w);
        if (S_ISREG(st.st_mode))
                return w->files ? visit_file(w, &st) : 0;
        /* A walk for files, which is outside of write roots, leaves those in the folder out. */
        if (!S_ISDIR(st.st_mode) || (w->flags & TREE_SHALLOW) ||
            ((w->flags & TREE_VISIBLE) && d->d_name[0] == '.') ||
            (w->files && cg_sup_file_is_open(c, w->path)))
                return 0;
        if (depth == 0 && lenient) {
                w->cut = c->linked = true;
                return 0;
        }
        if (depth == 0)
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": folders of its program are more than %d deep (%s)",
                               c->name, SERVER_DEPTH_MAX, w->path);
        sub = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
                return walk_folder(w, sub, len + (size_t)n, depth - 1);
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : cannot_read(w);
}

/* Takes @fd. */
static int walk_folder(struct tree_walk *w, int fd, size_t len, int depth)
{
        cg_auto_dir DIR *dir = fdopendir(fd);
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
                r = cannot_read(w);
        return r;
}

/* An absent folder is empty. */
static int walk(struct tree_walk *w, const char *folder)
{
        size_t len = strlen(folder);
        int fd;

        while (len && folder[len - 1] == '/')
                len--;
        if (len >= sizeof(w->path))
                return cg_fail(w->c->err, CG_E_LIMIT, "MCP server \"%s\": the path %.200s... is too long",
                               w->c->name, folder);
        memcpy(w->path, folder, len);
        w->path[len] = '\0';
        fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
                return walk_folder(w, fd, len, SERVER_DEPTH_MAX);
        return errno == ENOENT || errno == ENOTDIR ? 0 : cannot_read(w);
}

int cg_sup_tree_search_inside(struct check *c, const char *what, const char *folder)
{
        struct tree_walk w = { .c = c, .what = what };

        if (json_array_append_new(c->searched, json_string(folder)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return walk(&w, folder);
}

/* ------------------------------------------------------------------ outside of write roots */

static int compare_names(const void *a, const void *b)
{
        const struct name *x = a, *y = b;

        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->dev < y->dev ? -1 : x->dev > y->dev;
}

/*
 * True if all names of the file @path are in its folder, which cells cannot write: then it needs no
 * guard. An example is the Python of some distributions.
 */
static bool has_names_beside_only(const struct check *c, const char *path, const struct stat *file)
{
        char folder[PATH_MAX], *slash;
        const struct dirent *d;
        nlink_t found = 0;
        struct stat st;
        cg_auto_dir DIR *dir = NULL;

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
        return found == file->st_nlink;
}

int cg_sup_tree_search_outside(struct check *c, const char *what, const char *path, unsigned int flags)
{
        const char *visible = flags & TREE_VISIBLE ? "visible:" : "";
        const char *lenient = flags & TREE_LENIENT ? LENIENT : "";
        cg_auto_json json_t *key = json_sprintf("%s%s%s", visible, lenient, path);
        size_t n_searched = json_array_size(c->searched);
        struct tree_walk w = { .c = c, .what = what, .flags = flags, .files = true };
        size_t entries = c->entries;
        struct stat st;
        int r = 0;

        if (was_searched(c, path, flags == TREE_LENIENT) || stat(path, &st) < 0)
                return 0;
        if (!(flags & TREE_SHALLOW)) {
                if (key && cg_sup_list_has(c->searched, key))
                        return 0;
                if (key) /* no UTF-8: it is searched each time */
                        json_array_append(c->searched, key);
        }
        if (!S_ISDIR(st.st_mode)) {
                if (st.st_nlink > 1 && is_changeable(&st) && !has_names_beside_only(c, path, &st))
                        json_array_append_new(c->guards, json_string(path));
                return 0;
        }
        c->entries = 0; /* each folder outside has a budget of its own; the time bounds all */
        r = walk(&w, path);
        c->entries = entries;
        if (w.cut && json_array_size(c->searched) > n_searched)
                json_array_remove(c->searched, n_searched);
        if (w.n_names)
                qsort(w.names, w.n_names, sizeof(*w.names), compare_names);
        /* A file with more names than were found has some elsewhere. */
        for (size_t i = 0, k; r == 0 && !(flags & TREE_SHALLOW) && i < w.n_names && !c->linked; i = k) {
                for (k = i + 1; k < w.n_names && compare_names(&w.names[i], &w.names[k]) == 0;)
                        k++;
                c->linked = k - i < w.names[i].links;
        }
        free(w.names);
        return r;
}
