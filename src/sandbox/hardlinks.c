/*
 * A file with two names is denied under both: a mount lies over a name, and the same file could be written, or read, under another
 * that stands in a write root. None can be made from inside (a mount is a boundary for link(2)), so what is there now is
 * all.
 */
#include "sandbox/rules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/plan.h"
#include "sandbox/view.h"

/* Entries to look at: only where a denied file has further names at all, which is rare. */
#define ENTRIES_MAX 2000000

struct wanted {
        dev_t dev;
        ino_t ino;
        enum cg_rule_kind kind;
};

struct search {
        struct cg_rules *rules;
        struct wanted *v; /* sorted before they are looked for */
        size_t n, cap, entries;
        bool gathering; /* files in folders that must not be written: these are wanted, too */
        char path[PATH_MAX]; /* of what is looked at: folders may be as deep as a path is long */
        struct cg_err *err;
};

static int search_folder(struct search *s, int fd, size_t len);

static int want(struct search *s, const struct stat *st, enum cg_rule_kind kind)
{
        if (!S_ISREG(st->st_mode) || st->st_nlink < 2)
                return 0;
        if (s->n == s->cap) {
                size_t cap = s->cap ? s->cap * 2 : 64;
                struct wanted *v = realloc(s->v, cap * sizeof(*v));

                if (!v)
                        return cg_fail(s->err, CG_E_NOMEM, "sandbox: hard links");
                s->v = v;
                s->cap = cap;
        }
        s->v[s->n++] = (struct wanted){.dev = st->st_dev, .ino = st->st_ino, .kind = kind};
        return 0;
}

static int search_from(struct search *s, const char *path)
{
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        snprintf(s->path, sizeof(s->path), "%s", path);
        return fd < 0 ? 0 : search_folder(s, fd, path[1] ? strlen(path) : 0);
}

static int compare_wanted(const void *a, const void *b)
{
        const struct wanted *x = a, *y = b;

        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        if (x->dev != y->dev)
                return x->dev < y->dev ? -1 : 1;
        return (int)x->kind - (int)y->kind;
}

static int find_wanted(struct search *s)
{
        const struct cg_rules *rules = s->rules;
        struct stat st;
        int e = 0;

        s->gathering = true;
        for (size_t i = 0; i < rules->n && e == 0; i++) {
                const struct cg_rule *r = &rules->v[i];

                if ((r->kind != CG_RULE_DENY_WRITE && r->kind != CG_RULE_DENY_READ) || r->missing)
                        continue;
                if (r->kind == CG_RULE_DENY_READ && cg_view_state(rules, r->path) != CG_VIEW_HIDDEN)
                        continue; /* another rule shows it */
                if (!r->folder && lstat(r->path, &st) == 0)
                        e = want(s, &st, r->kind);
                else if (r->folder && cg_rule_is_program(r))
                        e = search_from(s, r->path);
        }
        s->gathering = false;
        s->entries = 0;
        if (s->n)
                qsort(s->v, s->n, sizeof(*s->v), compare_wanted);
        return e;
}

/* Not a part of its caller, which calls itself: a place is large. */
static __attribute__((noinline)) int look_at(struct search *s, const struct stat *st)
{
        struct cg_place place = {0};
        int e = 0;

        if (s->gathering)
                return want(s, st, CG_RULE_DENY_WRITE);
        snprintf(place.path, sizeof(place.path), "%s", s->path);
        for (int kind = CG_RULE_DENY_WRITE; kind <= CG_RULE_DENY_READ && e == 0; kind++) {
                struct wanted key = {.dev = st->st_dev, .ino = st->st_ino, .kind = (enum cg_rule_kind)kind};

                if (!bsearch(&key, s->v, s->n, sizeof(key), compare_wanted))
                        continue;
                if (kind == CG_RULE_DENY_READ || cg_view_state(s->rules, s->path) == CG_VIEW_WRITE)
                        e = cg_rules_add(s->rules, (enum cg_rule_kind)kind, &place, "another name of a denied file", s->err);
        }
        return e;
}

/* @len: of the folder's path. A folder that may not be looked into is out of the sandbox's reach as well; any other failure is one. */
static int search_entry(struct search *s, int dir, const struct dirent *d, size_t len)
{
        int n = snprintf(s->path + len, sizeof(s->path) - len, "/%s", d->d_name), sub;
        struct stat st;

        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || n < 0 || (size_t)n >= sizeof(s->path) - len)
                return 0;
        if (++s->entries > ENTRIES_MAX)
                return cg_fail(s->err, CG_E_LIMIT, "sandbox: a file that must not be written has several names (hard links), "
                               "and the write roots have more than %d files to look for them in", ENTRIES_MAX);
        if (d->d_type == DT_REG || d->d_type == DT_UNKNOWN) {
                if (fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
                        return look_at(s, &st);
        }
        if (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN)
                return 0;
        sub = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
                return search_folder(s, sub, len + (size_t)n);
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES)
                return 0;
        return cg_fail_errno(s->err, "sandbox: looking for other names (hard links) of files that must not be written, in %.200s", s->path);
}

static int search_folder(struct search *s, int fd, size_t len)
{
        DIR *dir = fdopendir(fd);
        const struct dirent *d;
        int e = 0;

        if (!dir) {
                close(fd);
                return cg_fail(s->err, CG_E_NOMEM, "sandbox: hard links");
        }
        while (e == 0 && (d = readdir(dir)))
                e = search_entry(s, dirfd(dir), d, len);
        closedir(dir);
        return e;
}

/* A write root in another one is looked through with that. */
static bool is_outermost(const struct cg_rules *rules, size_t i)
{
        for (size_t k = 0; k < rules->n; k++) {
                const struct cg_rule *r = &rules->v[k];

                if (k != i && r->kind == CG_RULE_ALLOW_WRITE && cg_plan_within(rules->v[i].path, r->path) &&
                    (strcmp(rules->v[i].path, r->path) != 0 || k < i))
                        return false;
        }
        return true;
}

int cg_rules_add_hardlinks(struct cg_rules *rules, struct cg_err *err)
{
        struct search s = {.rules = rules, .err = err};
        size_t n = rules->n;
        int e = find_wanted(&s);

        for (size_t i = 0; i < n && e == 0 && s.n; i++)
                if (rules->v[i].kind == CG_RULE_ALLOW_WRITE && rules->v[i].folder && is_outermost(rules, i))
                        e = search_from(&s, rules->v[i].path);
        free(s.v);
        return e;
}
