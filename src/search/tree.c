/* cellgate-search: folders of files that MCP servers load, and what links in them lead to. */
#include "search/search.h"

#include "base/path.h"
#include "sandbox/settings/paths.h"

/* Enough for any real program, and about a second of work. */
#define ENTRIES_MAX 300000
/* The same for a folder that a program may or may not load files from. */
#define LENIENT_MAX 100000
#define DEPTH_MAX   100
/* How many entries are visited between two checks of the time. */
#define TIME_EVERY 256
/* Files with several names in one folder; of more, some are taken to have names elsewhere. */
#define LINKED_MAX 100000
/* Entries of a folder of programs. */
#define BESIDE_MAX 20000
/* Paths that links lead to: the supervisor keeps them. */
#define REACHED_MAX 50000

struct searched {
        char *path;
        unsigned int flags;
        bool cut; /* not all could be searched */
};

/* A file with several names. */
struct name {
        dev_t dev;
        ino_t ino;
        nlink_t links;
};

struct tree_walk {
        struct search *s;
        const char *root;
        unsigned int flags;
        bool cut;            /* not all could be searched */
        bool linked;         /* files have names elsewhere */
        char path[PATH_MAX]; /* of the current entry */
        struct name *names;
        size_t n_names, cap;
};

int cg_search_report(struct search *s, const char *path, const char *via)
{
        if (json_object_get(s->reached, path))
                return 0;
        if (json_object_size(s->reached) >= REACHED_MAX)
                return cg_fail(
                        s->err, CG_E_LIMIT,
                        "links of its program lead to more than %d places (%s): remove what it does not need",
                        REACHED_MAX, path);
        if (json_object_set_new(s->reached, path, json_string(via)) < 0)
                return cg_fail(s->err, CG_E_INVAL, "%s cannot be checked: its name is not UTF-8", path);
        return 0;
}

int cg_search_report_place(struct search *s, const char *path, const char *via)
{
        cg_auto_place struct cg_place place = { .path = "" };

        if (cg_place_find(path, &place, NULL) < 0) /* judged by its spelling */
                return cg_search_report(s, path, via);
        for (size_t i = 0; i < place.n_links; i++)
                if (cg_search_report(s, place.links[i], via) < 0)
                        return -1;
        return cg_search_report(s, place.path, via);
}

static bool is_within(const char *path, const json_t *folders)
{
        const json_t *v;
        size_t i;

        json_array_foreach(folders, i, v) {
                if (cg_path_within(path, json_string_value(v)))
                        return true;
        }
        return false;
}

bool cg_search_in_write_root(const struct search *s, const char *path)
{
        return is_within(path, s->write_roots);
}

bool cg_search_is_data(const struct search *s, const char *path)
{
        return is_within(path, s->data);
}

static bool is_write_root(const struct search *s, const char *path)
{
        const json_t *v;
        size_t i;

        json_array_foreach(s->write_roots, i, v) {
                if (strcmp(path, json_string_value(v)) == 0)
                        return true;
        }
        return false;
}

static bool was_searched(const struct search *s, const char *path, unsigned int flags)
{
        for (size_t i = 0; i < s->n_done; i++) {
                const struct searched *d = &s->done[i];

                if (d->flags == flags && strcmp(d->path, path) == 0)
                        return true;
                if (!d->cut && !(d->flags & TREE_VISIBLE) && (!d->flags || flags & TREE_LENIENT) &&
                    cg_path_within(path, d->path))
                        return true;
        }
        return false;
}

/* ------------------------------------------------------------------ symlinks */

/* One path that a link leads to; of files in the folder itself their folders, which are fewer. */
static int report_target(struct tree_walk *w, const char *path, bool folder)
{
        char from[PATH_MAX], to[PATH_MAX];

        if (!cg_path_within(path, w->root) || folder)
                return cg_search_report(w->s, path, w->path);
        cg_path_parent(w->path, from);
        cg_path_parent(path, to);
        return strcmp(from, to) == 0 ? 0 : cg_search_report(w->s, to, w->path);
}

/*
 * The target of a symlink is loaded under the name of the link. Searched later, not by recursion:
 * cells may have decided how many links lead from one folder to the next. Not inlined into its
 * caller, which is recursive: a place is large.
 */
static __attribute__((noinline)) int visit_link(struct tree_walk *w, int dir, const char *name)
{
        cg_auto_place struct cg_place place = { .path = "" };
        struct search *s = w->s;
        char to[PATH_MAX];
        ssize_t n = readlinkat(dir, name, to, sizeof(to) - 1);
        struct stat st;

        to[CG_MAX(n, 0)] = '\0';
        /* Another file of the same folder, as of most links. */
        if (n > 0 && !strchr(to, '/') && fstatat(dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
                return 0;
        if (cg_place_find(w->path, &place, NULL) < 0)
                return cg_search_report(s, w->path, w->path);
        for (size_t i = 0; i < place.n_links; i++)
                if (strcmp(place.links[i], w->path) != 0 && report_target(w, place.links[i], false) < 0)
                        return -1;
        if (report_target(w, place.path, place.folder) < 0)
                return -1;
        if (!place.folder || place.missing || cg_search_is_data(s, place.path) ||
            was_searched(s, place.path, TREE_LENIENT))
                return 0;
        if (!CG_GROW(s->pending, s->n_pending, s->cap_pending) ||
            !(s->pending[s->n_pending] = strdup(place.path)))
                return cg_fail(s->err, CG_E_NOMEM, "search");
        s->n_pending++;
        return 0;
}

int cg_search_pending(struct search *s)
{
        while (s->n_pending) {
                cg_auto_free char *path = s->pending[--s->n_pending];

                if (cg_search_tree(s, path, TREE_LENIENT) < 0)
                        return -1;
        }
        return 0;
}

/* ------------------------------------------------------------------ files with several names */

/* True if cells, which have this process's user, could write the file under another name. */
static bool is_changeable(const struct stat *st)
{
        return geteuid() == 0 || st->st_uid == geteuid() || (st->st_mode & (S_IWGRP | S_IWOTH));
}

static int visit_file(struct tree_walk *w, const struct stat *st)
{
        if (st->st_nlink < 2 || !is_changeable(st) || w->linked)
                return 0;
        if (w->n_names == LINKED_MAX) {
                w->linked = true;
                return 0;
        }
        if (!CG_GROW(w->names, w->n_names, w->cap))
                return cg_fail(w->s->err, CG_E_NOMEM, "search");
        w->names[w->n_names++] = (struct name){ .dev = st->st_dev, .ino = st->st_ino, .links = st->st_nlink };
        return 0;
}

static int compare_names(const void *a, const void *b)
{
        const struct name *x = a, *y = b;

        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->dev < y->dev ? -1 : x->dev > y->dev;
}

/* A file with more names than were found has some elsewhere. */
static void count_names(struct tree_walk *w)
{
        if (w->n_names)
                qsort(w->names, w->n_names, sizeof(*w->names), compare_names);
        for (size_t i = 0, k; i < w->n_names && !w->linked; i = k) {
                for (k = i + 1; k < w->n_names && compare_names(&w->names[i], &w->names[k]) == 0;)
                        k++;
                w->linked = k - i < w->names[i].links;
        }
}

/*
 * True if all names of the file @path are in its folder, which cells cannot write: then it needs no
 * guard. An example is the Python of some distributions.
 */
static bool has_names_beside_only(const struct search *s, const char *path, const struct stat *file)
{
        char folder[PATH_MAX];
        const struct dirent *d;
        nlink_t found = 0;
        struct stat st;
        cg_auto_dir DIR *dir = NULL;

        cg_path_parent(path, folder);
        if (cg_search_in_write_root(s, folder))
                return false;
        dir = opendir(folder);
        for (int i = 0; i < BESIDE_MAX && dir && (d = readdir(dir)); i++)
                found += d->d_ino == file->st_ino &&
                         fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                         st.st_ino == file->st_ino && st.st_dev == file->st_dev;
        return found == file->st_nlink;
}

/* ------------------------------------------------------------------ folders */

/* By errno. */
static int cannot_read(struct tree_walk *w)
{
        if (errno == EACCES && (w->flags & TREE_LENIENT)) {
                w->cut = true;
                return 0;
        }
        return cg_fail_errno(w->s->err, "%s, whose files belong to its program, cannot be read", w->path);
}

static int walk_folder(struct tree_walk *w, int fd, size_t len, int depth);

/* Is there time and room for another entry? Positive: this one is left out. */
static int count_entry(struct tree_walk *w, const struct dirent *d)
{
        bool lenient = w->flags & TREE_LENIENT;
        struct search *s = w->s;

        if (++s->entries > ENTRIES_MAX && !lenient)
                return cg_fail(
                        s->err, CG_E_LIMIT,
                        "more than %d files belong to its program (%s). Keep it in a folder of its own, or"
                        " remove what it does not need",
                        ENTRIES_MAX, w->path);
        if (s->entries % TIME_EVERY == 0 && cg_budget_is_spent(&s->budget))
                return cg_fail(
                        s->err, CG_E_TIMEDOUT,
                        "the check that cells cannot write its files took too long, at %s. Keep large folders"
                        " away from its program, or name those that are no code with \"data\"",
                        w->path);
        if (!lenient || s->entries <= LENIENT_MAX)
                return 0;
        /* Too many: links are still followed. */
        w->cut = true;
        return d->d_type != DT_LNK && d->d_type != DT_UNKNOWN;
}

/* @len: of the folder's path. Entries that vanish meanwhile are none. */
static int walk_entry(struct tree_walk *w, int dir, const struct dirent *d, size_t len, int depth)
{
        int n = snprintf(w->path + len, sizeof(w->path) - len, "/%s", d->d_name), r, sub;
        struct stat st;

        if (cg_path_is_dots(d->d_name) || n < 0 || (size_t)n >= sizeof(w->path) - len)
                return 0;
        r = count_entry(w, d);
        if (r != 0)
                return CG_MIN(r, 0);
        if (fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        if (S_ISLNK(st.st_mode))
                return visit_link(w, dir, d->d_name);
        if (S_ISREG(st.st_mode))
                return visit_file(w, &st);
        if (!S_ISDIR(st.st_mode) || (w->flags & TREE_SHALLOW) ||
            ((w->flags & TREE_VISIBLE) && d->d_name[0] == '.') || is_write_root(w->s, w->path))
                return 0;
        if (depth == 0 && (w->flags & TREE_LENIENT)) {
                w->cut = true;
                return 0;
        }
        if (depth == 0)
                return cg_fail(w->s->err, CG_E_LIMIT, "folders of its program are more than %d deep (%s)",
                               DEPTH_MAX, w->path);
        sub = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
                return walk_folder(w, sub, len + (size_t)n, depth - 1);
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : cannot_read(w);
}

/* Takes @fd. */
static int walk_folder(struct tree_walk *w, int fd, size_t len, int depth)
{
        cg_auto_dir DIR *dir = cg_dir_of(fd);
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return cg_fail(w->s->err, CG_E_NOMEM, "search");
        while (r == 0 && (errno = 0, d = readdir(dir)))
                r = walk_entry(w, dirfd(dir), d, len, depth);
        w->path[len] = '\0';
        if (r == 0 && !d && errno)
                r = cannot_read(w);
        return r;
}

static int walk(struct tree_walk *w)
{
        size_t len = strlen(w->root);
        int fd;

        if (len >= sizeof(w->path))
                return cg_fail(w->s->err, CG_E_LIMIT, "the path %.200s... is too long", w->root);
        memcpy(w->path, w->root, len + 1);
        fd = open(w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
                return walk_folder(w, fd, len, DEPTH_MAX);
        return errno == ENOENT || errno == ENOTDIR ? 0 : cannot_read(w);
}

int cg_search_tree(struct search *s, const char *path, unsigned int flags)
{
        struct tree_walk w = { .s = s, .root = path, .flags = flags };
        size_t at = s->n_done;
        struct stat st;
        int r;

        if (was_searched(s, path, flags) || stat(path, &st) < 0)
                return 0;
        if (!S_ISDIR(st.st_mode)) {
                if (st.st_nlink > 1 && is_changeable(&st) && !has_names_beside_only(s, path, &st))
                        json_array_append_new(s->files, json_string(path));
                return 0;
        }
        if (!CG_GROW(s->done, s->n_done, s->cap_done) || !(s->done[at].path = strdup(path)))
                return cg_fail(s->err, CG_E_NOMEM, "search");
        s->done[at].flags = flags;
        s->done[at].cut = true; /* while it is searched */
        s->n_done++;
        s->entries = 0; /* each folder has a limit of its own; the time bounds all */
        r = walk(&w);
        s->done[at].cut = w.cut || flags & TREE_SHALLOW;
        if (r == 0 && !(flags & TREE_SHALLOW)) {
                count_names(&w);
                if ((w.linked || w.cut) && json_array_append_new(s->linked, json_string(path)) < 0)
                        r = cg_fail(s->err, CG_E_INVAL, "%s cannot be checked: its name is not UTF-8", path);
        }
        free(w.names);
        return r;
}

void cg_search_done_free(struct search *s)
{
        for (size_t i = 0; i < s->n_done; i++)
                free(s->done[i].path);
        for (size_t i = 0; i < s->n_pending; i++)
                free(s->pending[i]);
        free(s->done);
        free(s->pending);
}
