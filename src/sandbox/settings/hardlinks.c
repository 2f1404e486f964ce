/*
 * Hard links. A denied file is denied under all names that it has in write roots: a mount covers
 * one name only. No further name can be made from inside, because link(2) does not cross mounts.
 * Where init decides about files that are written (cg_rules.by_inode), only the names of hidden
 * files are searched for.
 *
 * Where programs that run outside of the sandbox may have files with further names
 * (cg_rules.linked), every file of a write root that has a name outside of the write roots is
 * denied.
 */
#include "sandbox/settings/rules.h"

#include "base/path.h"
#include "sandbox/plan.h"
#include "sandbox/settings/view.h"

/*
 * Entries of write roots that are visited, and the processor time for it: only where a denied file
 * has further names at all, which is rare. A kernel's start and the supervisor's loop wait for
 * this.
 */
#define ENTRIES_MAX 500000
#define SEARCH_MS   5000
#define TIME_EVERY  1024
/* Names of files with several names that are kept in memory, 32 bytes each. */
#define WANTED_MAX 500000
/* Names that are denied. Each is a mount of every kernel, and is compared with each path. */
#define DENIED_MAX 512

#define COPY_THEM \
        "copy files instead of linking them (uv: UV_LINK_MODE=copy, pnpm: package-import-method=copy), " \
        "or name their folders in \"denyWrite\" of the settings file"

struct wanted {
        dev_t dev;
        ino_t ino;
        enum cg_rule_kind kind;
        nlink_t links;
};

enum stage {
        GATHER_DENIED, /* files in folders that must not be written */
        GATHER_SHARED, /* all files with several names, to count these */
        DENY_NAMES,    /* the files that were gathered */
};

struct search {
        struct cg_rules *rules;
        struct wanted *v; /* sorted before DENY_NAMES */
        size_t n, cap, entries, denied;
        struct cg_budget budget;
        enum stage stage;
        char path[PATH_MAX]; /* of the current entry: folders may be as deep as a path is long */
        struct cg_err *err;
};

static int search_folder(struct search *s, int fd, size_t len);

static int want(struct search *s, const struct stat *st, enum cg_rule_kind kind)
{
        struct wanted *v;

        if (!S_ISREG(st->st_mode) || st->st_nlink < 2)
                return 0;
        if (s->rules->by_inode && s->stage == GATHER_DENIED && kind == CG_RULE_DENY_WRITE)
                return cg_inodes_add(&s->rules->unwritten, st->st_dev, st->st_ino, s->err);
        if (s->n == WANTED_MAX)
                return cg_fail(s->err, CG_E_LIMIT,
                               "sandbox: more than %d files in write roots, or in "
                               "folders that must not be written, have several names "
                               "(hard links), %s among them; " COPY_THEM,
                               WANTED_MAX, s->path);
        v = cg_grow(s->v, &s->cap, s->n, sizeof(*v));
        if (!v)
                return cg_fail(s->err, CG_E_NOMEM, "sandbox: hard links");
        s->v = v;
        s->v[s->n++] = (struct wanted){
                .dev = st->st_dev, .ino = st->st_ino, .kind = kind, .links = st->st_nlink
        };
        return 0;
}

/* @path: of a folder that this user may not read. */
static int hide_unread(struct search *s, const char *path)
{
        if (s->stage != (s->rules->linked ? GATHER_SHARED : DENY_NAMES))
                return 0;
        return cg_rules_hide_closed(s->rules, path, CG_WHY_LINK, s->err);
}

static int search_from(struct search *s, const char *path)
{
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return errno == EACCES ? hide_unread(s, path) : 0;
        snprintf(s->path, sizeof(s->path), "%s", path);
        return search_folder(s, fd, path[1] ? strlen(path) : 0);
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
        int r = 0;

        s->stage = GATHER_DENIED;
        for (size_t i = 0; i < rules->n && r == 0; i++) {
                const struct cg_rule *rule = &rules->v[i];

                if ((rule->kind != CG_RULE_DENY_WRITE && rule->kind != CG_RULE_DENY_READ) || rule->missing)
                        continue;
                if (rule->kind == CG_RULE_DENY_READ && cg_view_state(rules, rule->path) != CG_VIEW_HIDDEN)
                        continue; /* another rule shows it */
                if (!rule->folder && lstat(rule->path, &st) == 0)
                        r = want(s, &st, rule->kind);
                else if (rule->folder && cg_rule_is_program(rule))
                        r = search_from(s, rule->path);
        }
        s->entries = 0;
        return r;
}

/*
 * The virtual environment or the topmost node_modules that @path is in, if cells could replace it
 * as a whole. Installers link all files of such a folder, which are too many to deny each.
 */
static bool find_environment(const struct cg_rules *rules, const char *path, char ret[PATH_MAX])
{
        static const char modules[] = "/node_modules";
        char at[PATH_MAX], marker[PATH_MAX + 16], *slash;
        bool found = false;

        snprintf(at, sizeof(at), "%s", path);
        while ((slash = strrchr(at, '/')) && slash != at) {
                size_t n;

                *slash = '\0';
                n = strlen(at);
                snprintf(marker, sizeof(marker), "%.*s", (int)(strrchr(at, '/') - at), at);
                if (!cg_rules_may_write(rules, marker))
                        break;
                snprintf(marker, sizeof(marker), "%s/pyvenv.cfg", at);
                if ((n >= sizeof(modules) && strcmp(at + n - (sizeof(modules) - 1), modules) == 0) ||
                    access(marker, F_OK) == 0) {
                        memcpy(ret, at, n + 1);
                        found = true;
                }
        }
        return found;
}

static int deny_name(struct search *s, enum cg_rule_kind kind)
{
        struct cg_place place = { 0 };

        place.folder = kind == CG_RULE_DENY_WRITE && s->rules->linked &&
                       find_environment(s->rules, s->path, place.path);
        if (!place.folder)
                snprintf(place.path, sizeof(place.path), "%s", s->path);
        if (++s->denied > DENIED_MAX)
                return cg_fail(s->err, CG_E_LIMIT,
                               "sandbox: more than %d files in write roots, %s among "
                               "them, are other names (hard links) of files that must "
                               "not be written; " COPY_THEM,
                               DENIED_MAX, s->path);
        return cg_rules_add(s->rules, kind, &place, CG_WHY_LINK, s->err);
}

/* Not inlined into its caller, which is recursive: a place is large. */
static __attribute__((noinline)) int check_file(struct search *s, const struct stat *st)
{
        int r = 0;

        if (s->stage != DENY_NAMES)
                return want(s, st, CG_RULE_DENY_WRITE);
        if (st->st_nlink < 2)
                return 0;
        for (int kind = CG_RULE_DENY_WRITE; kind <= CG_RULE_DENY_READ && r == 0; kind++) {
                struct wanted key = { .dev = st->st_dev, .ino = st->st_ino, .kind = (enum cg_rule_kind)kind };

                if (!bsearch(&key, s->v, s->n, sizeof(key), compare_wanted))
                        continue;
                if (kind == CG_RULE_DENY_READ || cg_view_state(s->rules, s->path) == CG_VIEW_WRITE)
                        r = deny_name(s, (enum cg_rule_kind)kind);
        }
        return r;
}

/*
 * @len: of the folder's path. One below that this user may not search is hidden; any other failure
 * is an error. Takes @fd.
 */
static int search_folder(struct search *s, int fd, size_t len)
{
        cg_auto_dir DIR *dir = cg_dir_of(fd);
        const struct dirent *d;
        struct stat st;
        int r = 0, n, sub;

        if (!dir)
                return cg_fail(s->err, CG_E_NOMEM, "sandbox: hard links");
        while (r == 0 && (d = readdir(dir))) {
                n = snprintf(s->path + len, sizeof(s->path) - len, "/%s", d->d_name);
                if (cg_path_is_dots(d->d_name) || n < 0 || (size_t)n >= sizeof(s->path) - len ||
                    (!len && cg_rules_is_own(s->path)))
                        continue;
                if (++s->entries > ENTRIES_MAX ||
                    (s->entries % TIME_EVERY == 0 && cg_budget_is_spent(&s->budget))) {
                        r = cg_fail(s->err, CG_E_LIMIT,
                                    "sandbox: files that must not be written have several "
                                    "names (hard links), and the search for these among the "
                                    "files of write roots ended after %zu entries (limits: "
                                    "%d, and %d s), at %.300s; allow writing in a smaller "
                                    "folder, " COPY_THEM,
                                    s->entries, ENTRIES_MAX, SEARCH_MS / 1000, s->path);
                        break;
                }
                if ((d->d_type == DT_REG || d->d_type == DT_UNKNOWN) &&
                    fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
                        r = check_file(s, &st);
                        continue;
                }
                if (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN)
                        continue;
                sub = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (sub >= 0)
                        r = search_folder(s, sub, len + (size_t)n);
                else if (errno == EACCES)
                        r = hide_unread(s, s->path);
                else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                        r = cg_fail_errno(
                                s->err,
                                "sandbox: search for other names (hard links) of files that must not be "
                                "written, in %.200s",
                                s->path);
        }
        return r;
}

/* A write root in another one is searched with that one. */
static bool is_outermost(const struct cg_rules *rules, size_t i)
{
        for (size_t k = 0; k < rules->n; k++) {
                const struct cg_rule *r = &rules->v[k];

                if (k != i && r->kind == CG_RULE_ALLOW_WRITE && cg_path_within(rules->v[i].path, r->path) &&
                    (strcmp(rules->v[i].path, r->path) != 0 || k < i))
                        return false;
        }
        return true;
}

/* Visits all write roots, single files among them as well; @n: number of rules to consider. */
static int search_write_roots(struct search *s, size_t n)
{
        const struct cg_rules *rules = s->rules;
        struct stat st;
        int r = 0;

        s->entries = 0;
        for (size_t i = 0; i < n && r == 0; i++) {
                if (rules->v[i].kind != CG_RULE_ALLOW_WRITE || !is_outermost(rules, i))
                        continue;
                if (rules->v[i].folder) {
                        r = search_from(s, rules->v[i].path);
                } else if (lstat(rules->v[i].path, &st) == 0 && S_ISREG(st.st_mode)) {
                        snprintf(s->path, sizeof(s->path), "%s", rules->v[i].path);
                        r = check_file(s, &st);
                }
        }
        return r;
}

/* Keeps of the entries from @first on (one for each name) the files that have names elsewhere. */
static void keep_shared(struct search *s, size_t first)
{
        struct wanted *v = s->v + first;
        size_t n = s->n - first, kept = 0;

        if (n)
                qsort(v, n, sizeof(*v), compare_wanted);
        for (size_t i = 0, k; i < n; i = k) {
                for (k = i + 1; k < n && v[k].ino == v[i].ino && v[k].dev == v[i].dev;)
                        k++;
                if (k - i < v[i].links)
                        v[kept++] = v[i];
        }
        s->n = first + kept;
}

int cg_rules_add_hardlinks(struct cg_rules *rules, struct cg_err *err)
{
        struct search s = { .rules = rules, .err = err, .budget = cg_budget_start(SEARCH_MS, 2 * SEARCH_MS) };
        size_t n = rules->n, first;
        int r = find_wanted(&s);

        first = s.n;
        if (r >= 0 && rules->linked) {
                s.stage = GATHER_SHARED;
                r = search_write_roots(&s, n);
                keep_shared(&s, first);
        }
        if (r >= 0 && s.n) {
                qsort(s.v, s.n, sizeof(*s.v), compare_wanted);
                s.stage = DENY_NAMES;
                r = search_write_roots(&s, n);
        }
        free(s.v);
        return r;
}
