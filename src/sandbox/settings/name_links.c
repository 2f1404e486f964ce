/* Links with protected names, and links in folders that have them: see name_links.h. */
#include "sandbox/settings/name_links.h"

#include <fnmatch.h>

#include "base/fd.h"
#include "base/path.h"
#include "sandbox/names/names.h"
#include "sandbox/settings/repositories.h"
#include "sandbox/names/stamps.h"

/* Entries of folders with protected names that one search visits, and their depth. */
#define ENTRIES_MAX 2000
#define DEPTH_MAX   3

/*
 * The name @name in @folder, if a link leads to it. Where init decides about names (by_name), a
 * target that does not exist cannot be made.
 */
static int deny_target(struct cg_rules *rules, const char *folder, const char *name, struct cg_err *err)
{
        char path[PATH_MAX];
        struct cg_place place;
        bool linked, is_folder;

        /* A loop of links leads to no file. */
        if (!cg_path_join(path, folder, name) || cg_place_find(path, &place, NULL) < 0)
                return 0;
        linked = place.n_links > 0;
        is_folder = place.folder;
        cg_place_fini(&place);
        return linked ? cg_rules_deny_name(rules, folder, name, is_folder, rules->by_name, err) : 0;
}

/* Names that match the pattern @last in @folder, and later ones, if a link leads to the folder. */
static int deny_matches(struct cg_rules *rules, const char *folder, const char *last, struct cg_err *err)
{
        char pattern[PATH_MAX];
        cg_auto_dir DIR *dir = opendir(folder);
        const struct dirent *d;
        cg_auto_place struct cg_place place = { .path = "" };
        int r = 0;

        while (dir && r == 0 && (d = readdir(dir)))
                if (fnmatch(last, d->d_name, FNM_CASEFOLD | FNM_PERIOD) == 0)
                        r = deny_target(rules, folder, d->d_name, err);
        if (r < 0 || !rules->by_name || cg_place_find(folder, &place, NULL) < 0)
                return r;
        if (place.n_links && cg_rules_may_write(rules, place.path) && !cg_path_is_pattern(place.path) &&
            cg_path_join(pattern, place.path, last))
                return cg_rules_add_pattern(rules, pattern, "mandatory", err);
        return 0;
}

/* True if a write root is @path, or is below it. */
static bool holds_root(const struct cg_rules *rules, const char *path)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && cg_path_within(rules->v[i].path, path))
                        return true;
        return false;
}

/* ---- links in protected folders */

struct search {
        struct cg_present *p;
        struct cg_stamps *stamps;
        size_t left;         /* entries that it may still visit */
        char path[PATH_MAX]; /* of the folder or entry that it is at */
        struct cg_err *err;
};

/*
 * True if the link @name in @dir leads to a file beside or below it: programs that keep several
 * versions of themselves have hundreds of these, and each would cost a search for its target.
 */
static bool leads_out(int dir, const char *name)
{
        char text[PATH_MAX];
        ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);

        if (n <= 0)
                return false;
        text[n] = '\0';
        return text[0] == '/' || strstr(text, "..");
}

static int add_link(struct search *s)
{
        struct cg_present *p = s->p;
        char **v = realloc(p->links, (p->n_links + 1) * sizeof(*v));

        p->links = v ?: p->links;
        if (!v || !(v[p->n_links] = strdup(s->path)))
                return cg_fail(s->err, CG_E_NOMEM, "sandbox: names");
        p->n_links++;
        return 0;
}

static int find_in(struct search *s, int at, const char *name, int depth);

/* @end: the length of the folder's path. */
static int visit(struct search *s, int dir, const struct dirent *d, size_t end, int depth)
{
        int r = 0;

        if (d->d_type == DT_REG || end + strlen(d->d_name) + 2 > sizeof(s->path))
                return 0;
        snprintf(s->path + end, sizeof(s->path) - end, "/%s", d->d_name);
        if (cg_is_folder(dir, d))
                r = depth < DEPTH_MAX ? find_in(s, dir, d->d_name, depth + 1) : 0;
        else if (leads_out(dir, d->d_name))
                r = add_link(s);
        s->path[end] = '\0';
        return r;
}

/*
 * In the folder @name of @at, whose path is @s->path. Without readdir(), whose streams take as much
 * time as all the rest.
 */
static int find_in(struct search *s, int at, const char *name, int depth)
{
        _Alignas(struct dirent) char room[4096];
        size_t end = strlen(s->path);
        cg_auto_fd int dir = -1;
        ssize_t n;
        int r = 0;

        if (s->stamps)
                cg_stamps_add(s->stamps, s->path);
        dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        while (dir >= 0 && s->left && (n = getdents64(dir, room, sizeof(room))) > 0) {
                const struct dirent *d;

                for (ssize_t i = 0; i < n && s->left; i += d->d_reclen) {
                        d = (const void *)(room + i);
                        if (cg_path_is_dots(d->d_name))
                                continue;
                        s->left--;
                        r = visit(s, dir, d, end, depth);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

int cg_name_links_find(struct cg_present *p, struct cg_stamps *stamps, struct cg_err *err)
{
        struct search s = { .p = p, .stamps = stamps, .left = ENTRIES_MAX, .err = err };
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                if (p->rows[i] & CG_NAME_WRITE && !strchr(rows[i].path, '*') &&
                    cg_path_join(s.path, p->folder, rows[i].path))
                        r = find_in(&s, AT_FDCWD, s.path, 1);
        if (r == 0 && cg_path_join(s.path, p->folder, ".git/hooks"))
                r = find_in(&s, AT_FDCWD, s.path, 1);
        return r;
}

/* A link to a whole write root is not followed: nothing could be written then. */
static int deny_link(struct cg_rules *rules, const char *path, struct cg_err *err)
{
        const char *slash = strrchr(path, '/');
        char folder[PATH_MAX];
        struct cg_place place;
        int r = 0;

        if (cg_place_find(path, &place, NULL) < 0)
                return 0;
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        if (place.link && cg_rules_may_write(rules, place.path) && !holds_root(rules, place.path))
                r = cg_rules_deny_name(rules, folder, slash + 1, place.folder, rules->by_name, err);
        cg_place_fini(&place);
        return r;
}

/* Links in a folder with protected names that is closed now were not found. */
static int need_folder(const struct cg_rules *rules, const struct cg_present *p, const char *row,
                       struct cg_err *err)
{
        char path[PATH_MAX];
        struct stat st;

        if (!cg_path_join(path, p->folder, row) || lstat(path, &st) == 0 || errno != EACCES)
                return 0;
        return cg_rules_need_open(rules, path, err);
}

int cg_rules_deny_name_links(struct cg_rules *rules, const struct cg_present *p, struct cg_err *err)
{
        size_t n;
        const struct cg_name *rows = cg_names(&n);
        char path[PATH_MAX]; /* not in the loop: the compiler clears it there */
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++) {
                const char *row = rows[i].path, *slash = strrchr(row, '/');

                if (!(p->rows[i] & CG_NAME_WRITE) || !(p->rows[i] & CG_PRESENT_LINK))
                        continue;
                if ((r = need_folder(rules, p, row, err)) < 0)
                        return r;
                if (strchr(row, '*')) {
                        snprintf(path, sizeof(path), "%s/%.*s", p->folder, slash ? (int)(slash - row) : 0,
                                 row);
                        r = deny_matches(rules, path, slash ? slash + 1 : row, err);
                } else {
                        r = deny_target(rules, p->folder, row, err);
                }
        }
        if (r < 0 || (r = deny_target(rules, p->folder, ".git/config", err)) < 0 ||
            (r = deny_target(rules, p->folder, ".git/hooks", err)) < 0)
                return r;
        for (size_t i = 0; i < p->n_links && r == 0; i++)
                r = deny_link(rules, p->links[i], err);
        return r;
}
