/* The walk of a pattern. Runs on the host, before a sandbox exists. */
#include "sandbox/settings/glob.h"

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
#include "sandbox/settings/paths.h"

/*
 * The end of the set that starts at @p ("["), or NULL when there is none: then "[" is a character
 * like others.
 */
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

const char *cg_glob_match_one(const char *p, char c)
{
        const char *close;

        if (*p == '?')
                return c != '/' ? p + 1 : NULL;
        if (*p == '[' && (close = set_end(p)))
                return c != '/' && set_has(p, close, (unsigned char)c) ? close + 1 : NULL;
        return *p == c ? p + 1 : NULL;
}

/* ---- the walk */

/*
 * Positions in the pattern that a path can have reached, one bit for each of its characters. A
 * folder has many paths when symlinks lead to it. The matches below it depend on these positions
 * alone, so it is walked once for each set of them, not once for each path.
 */
struct places {
        uint64_t bits[PATH_MAX / 64];
};

/* The kind of the pattern's part that begins at a character. */
enum part {
        PART_ONE,  /* one character of the path */
        PART_STAR, /* any number, but "/" */
        PART_ANY,  /* any number */
        PART_DIRS, /* any number of folders, at the start of a name */
        PART_NAME, /* the same, within a name */
        PART_END,
};

/* A folder that was walked, and from which places. @hash: of the places. */
struct seen {
        dev_t dev;
        ino_t ino;
        uint64_t hash;
};

struct walk {
        const char *pattern;
        size_t len, words;
        unsigned char part[PATH_MAX]; /* enum part of each character */
        uint16_t next[PATH_MAX];      /* position after the part */
        cg_glob_fn found;
        void *data;
        /* a hash table of 2^n places, at most half full; ino 0 where nothing is */
        struct seen *seen;
        size_t n_seen, cap_seen;
        size_t entries;
        struct cg_err *err;
};

static void add_place(const struct walk *w, struct places *to, size_t i)
{
        for (;;) {
                to->bits[i / 64] |= UINT64_C(1) << (i % 64);
                if (w->part[i] != PART_STAR && w->part[i] != PART_ANY && w->part[i] != PART_DIRS)
                        return;
                i = w->next[i]; /* they may match nothing */
        }
}

static void step(const struct walk *w, struct places *to, size_t i, char c)
{
        switch ((enum part)w->part[i]) {
        case PART_ONE:
                if (cg_glob_match_one(w->pattern + i, c))
                        add_place(w, to, w->next[i]);
                break;
        case PART_STAR:
                if (c != '/')
                        add_place(w, to, i);
                break;
        case PART_ANY:
                add_place(w, to, i);
                break;
        case PART_DIRS:
                add_place(w, to, c == '/' ? i : i + 1);
                break;
        case PART_NAME:
                add_place(w, to, c == '/' ? i - 1 : i);
                break;
        case PART_END:
                break;
        }
}

/* @at behind @text; false when nothing that begins like this can match. */
static bool advance(const struct walk *w, struct places *at, const char *text)
{
        uint64_t any = 1;

        for (; *text && any; text++) {
                struct places to = { .bits = { 0 } };

                any = 0;
                for (size_t k = 0; k < w->words; k++) {
                        for (uint64_t left = at->bits[k]; left; left &= left - 1)
                                step(w, &to, k * 64 + (size_t)__builtin_ctzll(left), *text);
                }
                for (size_t k = 0; k < w->words; k++)
                        any |= at->bits[k] = to.bits[k];
        }
        return any != 0;
}

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
static int note_folder(struct walk *w, const struct stat *st, const struct places *at)
{
        struct seen s = { st->st_dev, st->st_ino, 0 }, *slot;

        if (w->n_seen * 2 >= w->cap_seen) {
                struct walk bigger = { .cap_seen = w->cap_seen ? w->cap_seen * 2 : 64 };

                bigger.seen = calloc(bigger.cap_seen, sizeof(*bigger.seen));
                if (!bigger.seen)
                        return cg_fail(w->err, CG_E_NOMEM, "pattern %s", w->pattern);
                for (size_t i = 0; i < w->cap_seen; i++) {
                        if (w->seen[i].ino)
                                *seen_slot(&bigger, &w->seen[i]) = w->seen[i];
                }
                free(w->seen);
                w->seen = bigger.seen;
                w->cap_seen = bigger.cap_seen;
        }
        for (size_t k = 0; k < w->words; k++)
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
                     const struct places *at)
{
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK), r;
        char child[PATH_MAX];
        const struct dirent *d;
        struct stat st;
        DIR *dir;

        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
                return 0;
        if (fd < 0 && errno == EACCES)
                return w->found(w->data, path, true, w->err);
        if (fd < 0 || fstat(fd, &st) < 0) {
                r = cg_fail_errno(w->err, "%s", path);
                cg_closep_(&fd);
                return r;
        }
        r = note_folder(w, &st, at);
        if (r == 0 && depth > CG_GLOB_DEPTH_MAX)
                r = cg_fail(w->err, CG_E_LIMIT, "pattern %s: folders are more than %d deep at %s", w->pattern,
                            CG_GLOB_DEPTH_MAX, path);
        if (r != 0) {
                cg_closep_(&fd);
                return r < 0 ? r : 0;
        }
        dir = fdopendir(fd);
        if (!dir) {
                r = cg_fail_errno(w->err, "%s", path);
                close(fd);
                return r;
        }
        while (r == 0 && (d = readdir(dir))) {
                struct places here = *at;

                if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
                        continue;
                if (!cg_path_join(child, path, d->d_name))
                        continue; /* no program can name it either */
                if (++w->entries > CG_GLOB_ENTRIES_MAX) {
                        r = cg_fail(w->err, CG_E_LIMIT,
                                    "pattern %s: more than %d entries to look at; name the folder instead",
                                    w->pattern, CG_GLOB_ENTRIES_MAX);
                        break;
                }
                if (!advance(w, &here, d->d_name))
                        continue;
                if (here.bits[w->len / 64] >> (w->len % 64) & 1)
                        r = w->found(w->data, child, false, w->err);
                if (r < 0)
                        break;
                r = advance(w, &here, "/") && is_folder(fd, d)
                            ? walk_into(w, fd, d->d_name, child, depth + 1, &here)
                            : 0;
        }
        closedir(dir);
        return r;
}

int cg_glob_walk(const char *pattern, cg_glob_fn found, void *data, struct cg_err *err)
{
        struct walk w = {
                .pattern = pattern, .len = strlen(pattern), .found = found, .data = data, .err = err
        };
        struct places at = { .bits = { 0 } };
        size_t depth = 0, n = strcspn(pattern, "*?[");
        char base[PATH_MAX];
        const char *close;
        int r;

        if (w.len >= sizeof(base))
                return cg_fail(err, CG_E_LIMIT, "pattern %.200s... is longer than %d bytes", pattern,
                               PATH_MAX);
        /* The parts. A star is any number of characters but "/", two are any number. */
        w.words = w.len / 64 + 1;
        w.part[w.len] = PART_END;
        for (size_t i = 0, j; i < w.len; i = j) {
                j = i + 1;
                w.part[i] = PART_ONE;
                if (pattern[i] == '[' && (close = set_end(pattern + i)))
                        j = (size_t)(close - pattern) + 1;
                if (pattern[i] == '*') {
                        j = i + strspn(pattern + i, "*");
                        w.part[i] = j == i + 1 ? PART_STAR : PART_ANY;
                }
                if (w.part[i] == PART_ANY && pattern[j] == '/' && (j < 3 || pattern[j - 3] == '/')) {
                        w.part[i] = PART_DIRS;
                        w.part[i + 1] = PART_NAME;
                        j++;
                }
                w.next[i] = (uint16_t)j;
        }
        /* The walk starts at the folders before the first part with a pattern character. */
        while (n && pattern[n] != '/')
                n--;
        snprintf(base, sizeof(base), "%.*s", n ? (int)n : 1, n ? pattern : "/");
        for (const char *p = base; base[1] && *p; p++)
                depth += *p == '/';
        add_place(&w, &at, 0);
        if (!advance(&w, &at, base) || (base[1] && !advance(&w, &at, "/")))
                return 0;
        r = walk_into(&w, AT_FDCWD, base, base, depth, &at);
        free(w.seen);
        return r;
}
