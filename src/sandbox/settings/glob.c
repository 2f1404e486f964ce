/* The walk of a pattern. Runs on the host, before a sandbox exists. */
#include "sandbox/settings/glob.h"

#include "sandbox/settings/paths.h"

/*
 * A folder that was walked, and the hash of the positions in the pattern from which it was. A
 * folder has many paths when symlinks lead to it. The matches below it depend on these positions
 * alone, so it is walked once for each set of them, not once for each path.
 */
struct seen {
        dev_t dev;
        ino_t ino;
        uint64_t hash;
};

struct walk {
        struct cg_pattern pattern;
        cg_glob_fn found;
        void *data;
        /* a hash table of 2^n places, at most half full; ino 0 where nothing is */
        struct seen *seen;
        size_t n_seen, cap_seen;
        size_t entries;
        struct cg_err *err;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
        h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
        return h ^ h >> 32;
}

/* The index of @s, or where it is to be inserted. */
static struct seen *seen_slot(const struct walk *w, const struct seen *s)
{
        size_t i = (size_t)mix(mix(s->hash, s->ino), s->dev);

        for (;; i++) {
                struct seen *slot = &w->seen[i & (w->cap_seen - 1)];

                if (!slot->ino || (slot->ino == s->ino && slot->dev == s->dev && slot->hash == s->hash))
                        return slot;
        }
}

/* 1 when this folder was walked already, by another path that leaves the same to match. */
static int note_folder(struct walk *w, const struct stat *st, const struct cg_pattern_at *at)
{
        struct seen s = { st->st_dev, st->st_ino, 0 }, *slot;

        if (w->n_seen * 2 >= w->cap_seen) {
                struct walk bigger = { .cap_seen = w->cap_seen ? w->cap_seen * 2 : 64 };

                bigger.seen = calloc(bigger.cap_seen, sizeof(*bigger.seen));
                if (!bigger.seen)
                        return cg_fail(w->err, CG_E_NOMEM, "pattern %s", w->pattern.text);
                for (size_t i = 0; i < w->cap_seen; i++)
                        if (w->seen[i].ino)
                                *seen_slot(&bigger, &w->seen[i]) = w->seen[i];
                free(w->seen);
                w->seen = bigger.seen;
                w->cap_seen = bigger.cap_seen;
        }
        for (size_t k = 0; k < w->pattern.words; k++)
                s.hash = mix(s.hash, at->bits[k]);
        slot = seen_slot(w, &s);
        if (slot->ino)
                return 1;
        *slot = s;
        w->n_seen += s.ino != 0;
        return 0;
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

/* @at: after @path and "/". */
static int walk_into(struct walk *w, int parent, const char *name, const char *path, size_t depth,
                     const struct cg_pattern_at *at)
{
        cg_auto_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
        char child[PATH_MAX];
        const struct dirent *d;
        struct stat st;
        cg_auto_dir DIR *dir = NULL;
        int r;

        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
                return 0;
        if (fd < 0 && errno == EACCES)
                return w->found(w->data, path, true, w->err);
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(w->err, "%s", path);
        r = note_folder(w, &st, at);
        if (r == 0 && depth > CG_GLOB_DEPTH_MAX)
                r = cg_fail(w->err, CG_E_LIMIT, "pattern %s: folders are more than %d deep at %s",
                            w->pattern.text, CG_GLOB_DEPTH_MAX, path);
        if (r != 0)
                return CG_MIN(r, 0);
        dir = cg_dir_of(cg_steal_fd(&fd));
        if (!dir)
                return cg_fail_errno(w->err, "%s", path);
        while (r == 0 && (d = readdir(dir))) {
                struct cg_pattern_at here = *at;

                if (cg_path_is_dots(d->d_name))
                        continue;
                if (!cg_path_join(child, path, d->d_name))
                        continue; /* no program can name it either */
                if (++w->entries > CG_GLOB_ENTRIES_MAX) {
                        r = cg_fail(w->err, CG_E_LIMIT,
                                    "pattern %s: more than %d entries to look at; name the folder instead",
                                    w->pattern.text, CG_GLOB_ENTRIES_MAX);
                        break;
                }
                if (!cg_pattern_advance(&w->pattern, &here, d->d_name))
                        continue;
                if (cg_pattern_ends(&w->pattern, &here))
                        r = w->found(w->data, child, false, w->err);
                if (r < 0)
                        break;
                if (cg_pattern_advance(&w->pattern, &here, "/") && is_folder(dirfd(dir), d))
                        r = walk_into(w, dirfd(dir), d->d_name, child, depth + 1, &here);
        }
        return r;
}

int cg_glob_walk(const char *pattern, cg_glob_fn found, void *data, struct cg_err *err)
{
        struct walk w = { .found = found, .data = data, .err = err };
        struct cg_pattern_at at;
        size_t n = strcspn(pattern, "*?[");
        char base[PATH_MAX];
        int r;

        if (!cg_pattern_init(&w.pattern, pattern))
                return cg_fail(err, CG_E_LIMIT, "pattern %.200s... is longer than %d bytes", pattern,
                               PATH_MAX);
        /* The walk starts at the folders before the first part with a pattern character. */
        while (n && pattern[n] != '/')
                n--;
        snprintf(base, sizeof(base), "%.*s", n ? (int)n : 1, pattern);
        cg_pattern_start(&w.pattern, &at);
        if (!cg_pattern_advance(&w.pattern, &at, base) ||
            (base[1] && !cg_pattern_advance(&w.pattern, &at, "/")))
                return 0;
        r = walk_into(&w, AT_FDCWD, base, base, 0, &at);
        free(w.seen);
        return r;
}
