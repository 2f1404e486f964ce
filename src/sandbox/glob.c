/* Matching and walking. Runs on the host, before a sandbox exists. */
#include "sandbox/glob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* The end of the set that starts at @p ("["), or NULL when there is none: then "[" is a character like others. */
static const char *set_end(const char *p)
{
        const char *close = strchr(p + 1, ']');

        if (!close || close == p + 1)
                return NULL;
        for (const char *q = p + 1; q + 2 < close; q++) {
                if (q[1] == '-' && (unsigned char)q[0] > (unsigned char)q[2])
                        return NULL; /* "[z-a]" is text */
        }
        return close;
}

static bool set_has(const char *p, const char *close, unsigned char c)
{
        for (p++; p < close; p++) {
                if (p + 2 < close && p[1] == '-') {
                        if (c >= (unsigned char)p[0] && c <= (unsigned char)p[2])
                                return true;
                        p += 2;
                } else if (c == (unsigned char)*p) {
                        return true;
                }
        }
        return false;
}

/* One character of the pattern but a star against one of the path; the pattern's next, or NULL. */
static const char *match_one(const char *p, char c)
{
        const char *close;

        if (*p == '?')
                return c != '/' ? p + 1 : NULL;
        if (*p == '[' && (close = set_end(p)))
                return c != '/' && set_has(p, close, (unsigned char)c) ? close + 1 : NULL;
        return *p == c ? p + 1 : NULL;
}

/*
 * The usual matcher with two places to come back to: the last star within a name, and the last pair of stars. Going back to the
 * last of each is enough, so the time is at most the product of the lengths.
 */
bool cg_glob_match(const char *pattern, const char *path)
{
        const char *star = NULL, *star_at = NULL, *all = NULL, *all_at = NULL, *p = pattern, *s = path, *next;

        for (;;) {
                if (p[0] == '*' && p[1] == '*') {
                        while (*p == '*')
                                p++;
                        /* Two stars and "/" are any number of folders, none included. */
                        all = *p == '/' && (p - pattern < 3 || p[-3] == '/') ? p + 1 : p;
                        all_at = s;
                        star = NULL;
                        p = all;
                        continue;
                }
                if (*p == '*') {
                        star = ++p;
                        star_at = s;
                        continue;
                }
                if (!*s && !*p)
                        return true;
                if (*s && *p && (next = match_one(p, *s))) {
                        p = next;
                        s++;
                        continue;
                }
                if (star && *star_at && *star_at != '/') {
                        s = ++star_at;
                        p = star;
                        continue;
                }
                if (!all || !*all_at)
                        return false;
                /* Behind "**" and "/" a match starts at the start of a name only. */
                for (all_at++; all[-1] == '/' && *all_at && all_at[-1] != '/'; all_at++)
                        ;
                s = all_at;
                p = all;
                star = NULL;
        }
}

/* ---- the walk */

struct seen {
        dev_t dev;
        ino_t ino;
};

struct walk {
        const char *pattern;
        size_t free_depth; /* parts of the pattern before the first with two stars: below them everything is looked at */
        cg_glob_fn found;
        void *data;
        struct seen *seen;
        size_t n_seen, cap_seen;
        size_t entries;
        struct cg_err *err;
};

/* 1 when this folder was walked already, by another name. */
static int note_folder(struct walk *w, const struct stat *st)
{
        struct seen *more;

        for (size_t i = w->n_seen; i-- > 0;) {
                if (w->seen[i].ino == st->st_ino && w->seen[i].dev == st->st_dev)
                        return 1;
        }
        if (w->n_seen == w->cap_seen) {
                w->cap_seen = w->cap_seen ? w->cap_seen * 2 : 64;
                more = realloc(w->seen, w->cap_seen * sizeof(*more));
                if (!more)
                        return cg_fail(w->err, CG_E_NOMEM, "pattern %s", w->pattern);
                w->seen = more;
        }
        w->seen[w->n_seen++] = (struct seen){st->st_dev, st->st_ino};
        return 0;
}

/* Whether something below folder @path, @depth parts deep, can match. */
static bool may_lie_below(const struct walk *w, const char *path, size_t depth)
{
        char head[PATH_MAX];
        const char *end = w->pattern;

        if (depth > w->free_depth)
                return true;
        for (size_t i = 0; i <= depth; i++) {
                end = strchr(end, '/');
                if (!end)
                        return false;
                end++;
        }
        /* The pattern's first parts against the whole of the path. */
        if ((size_t)(end - w->pattern) > sizeof(head))
                return false;
        memcpy(head, w->pattern, (size_t)(end - w->pattern) - 1);
        head[end - w->pattern - 1] = '\0';
        return cg_glob_match(head, path);
}

static int walk_folder(struct walk *w, int fd, const char *path, size_t depth);

static int walk_into(struct walk *w, int dir, const char *name, const char *path, size_t depth)
{
        int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;
        int e;

        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
                return 0;
        if (fd < 0 && errno == EACCES)
                return w->found(w->data, path, true, w->err);
        if (fd < 0 || fstat(fd, &st) < 0) {
                e = cg_fail_errno(w->err, "%s", path);
                cg_closep_(&fd);
                return e;
        }
        e = note_folder(w, &st);
        if (e == 0 && depth > CG_GLOB_DEPTH_MAX)
                e = cg_fail(w->err, CG_E_LIMIT, "pattern %s: folders are more than %d deep at %s", w->pattern, CG_GLOB_DEPTH_MAX,
                            path);
        if (e != 0) {
                cg_closep_(&fd);
                return e < 0 ? e : 0;
        }
        return walk_folder(w, fd, path, depth); /* takes fd */
}

static bool is_folder(int dir, const struct dirent *d)
{
        struct stat st;

        if (d->d_type == DT_DIR)
                return true;
        if (d->d_type != DT_LNK && d->d_type != DT_UNKNOWN)
                return false;
        return fstatat(dir, d->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

static int look_at(struct walk *w, int dir, const struct dirent *d, const char *folder, size_t depth)
{
        char path[PATH_MAX];
        int n, e = 0;

        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
                return 0;
        n = snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", d->d_name);
        if (n < 0 || (size_t)n >= sizeof(path))
                return 0; /* no program can name it either */
        if (++w->entries > CG_GLOB_ENTRIES_MAX)
                return cg_fail(w->err, CG_E_LIMIT, "pattern %s: more than %d entries to look at; name the folder instead",
                               w->pattern, CG_GLOB_ENTRIES_MAX);
        if (cg_glob_match(w->pattern, path)) {
                e = w->found(w->data, path, false, w->err);
                if (e < 0)
                        return e;
        }
        if (!may_lie_below(w, path, depth + 1) || !is_folder(dir, d))
                return 0;
        return walk_into(w, dir, d->d_name, path, depth + 1);
}

static int walk_folder(struct walk *w, int fd, const char *path, size_t depth)
{
        DIR *dir = fdopendir(fd);
        const struct dirent *d;
        int e = 0;

        if (!dir) {
                e = cg_fail_errno(w->err, "%s", path);
                close(fd);
                return e;
        }
        while (e == 0 && (d = readdir(dir)))
                e = look_at(w, dirfd(dir), d, path, depth);
        closedir(dir);
        return e;
}

/* The folders before the first part with a pattern character, and how many parts stand before the first with two stars. */
static size_t split(struct walk *w, char base[PATH_MAX])
{
        const char *glob = w->pattern + strcspn(w->pattern, "*?["), *stars = strstr(w->pattern, "**"), *p = glob;
        size_t depth = 0, n;

        while (p > w->pattern && *p != '/')
                p--;
        n = (size_t)(p - w->pattern);
        memcpy(base, w->pattern, n);
        base[n] = '\0';
        if (!n)
                memcpy(base, "/", 2);
        for (const char *q = w->pattern; *q && (!stars || q < stars); q++)
                w->free_depth += *q == '/';
        w->free_depth = stars ? w->free_depth - 1 : SIZE_MAX;
        for (p = base; base[1] && *p; p++)
                depth += *p == '/';
        return depth;
}

int cg_glob_walk(const char *pattern, cg_glob_fn found, void *data, struct cg_err *err)
{
        struct walk w = {.pattern = pattern, .found = found, .data = data, .err = err};
        char base[PATH_MAX];
        size_t depth;
        int e;

        if (strlen(pattern) >= sizeof(base))
                return cg_fail(err, CG_E_LIMIT, "pattern %.200s... is longer than %d bytes", pattern, PATH_MAX);
        depth = split(&w, base);
        e = walk_into(&w, AT_FDCWD, base, base, depth);
        free(w.seen);
        return e;
}
