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
        struct wanted *v;
        size_t n, entries;
        char path[PATH_MAX]; /* of what is looked at: folders may be as deep as a path is long */
        struct cg_err *err;
};

static int find_wanted(struct search *s)
{
        const struct cg_rules *rules = s->rules;
        struct stat st;

        s->v = calloc(rules->n + 1, sizeof(*s->v));
        if (!s->v)
                return cg_fail(s->err, CG_E_NOMEM, "sandbox: hard links");
        for (size_t i = 0; i < rules->n; i++) {
                const struct cg_rule *r = &rules->v[i];

                if ((r->kind != CG_RULE_DENY_WRITE && r->kind != CG_RULE_DENY_READ) || r->missing || r->folder)
                        continue;
                if (r->kind == CG_RULE_DENY_READ && cg_view_state(rules, r->path) != CG_VIEW_HIDDEN)
                        continue; /* another rule shows it */
                if (lstat(r->path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1)
                        s->v[s->n++] = (struct wanted){.dev = st.st_dev, .ino = st.st_ino, .kind = r->kind};
        }
        return 0;
}

/* Not a part of its caller, which calls itself: a place is large. */
static __attribute__((noinline)) int look_at(struct search *s, const struct stat *st)
{
        struct cg_place place = {0};
        int e = 0;

        snprintf(place.path, sizeof(place.path), "%s", s->path);
        for (size_t i = 0; i < s->n && e == 0; i++) {
                if (s->v[i].ino == st->st_ino && s->v[i].dev == st->st_dev)
                        e = cg_rules_add(s->rules, s->v[i].kind, &place, "another name of a denied file", s->err);
        }
        return e;
}

static int search_folder(struct search *s, int fd, size_t len);

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

        for (size_t i = 0; i < n && e == 0 && s.n; i++) {
                int fd;

                if (rules->v[i].kind != CG_RULE_ALLOW_WRITE || !rules->v[i].folder || !is_outermost(rules, i))
                        continue;
                snprintf(s.path, sizeof(s.path), "%s", rules->v[i].path);
                fd = open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0)
                        e = search_folder(&s, fd, s.path[1] ? strlen(s.path) : 0);
        }
        free(s.v);
        return e;
}
