/* Compares paths with the table of names.h, and with git's files. */
#include "sandbox/names/names.h"

#include <ctype.h>
#include <fnmatch.h>

#include "base/text.h"

/*
 * Letters that case-insensitive file systems (ext4 with casefold, shares of macOS) fold to ASCII:
 * Unicode's full case folding without ignorable code points.
 */
static const struct {
        unsigned int first, last;
        const char *as;
} folds[] = {
        { 0xad, 0xad, "" },        { 0xdf, 0xdf, "ss" },     { 0x17f, 0x17f, "s" },
        { 0x34f, 0x34f, "" },      { 0x61c, 0x61c, "" },     { 0x115f, 0x1160, "" },
        { 0x17b4, 0x17b5, "" },    { 0x180b, 0x180f, "" },   { 0x1e9e, 0x1e9e, "ss" },
        { 0x200b, 0x200f, "" },    { 0x202a, 0x202e, "" },   { 0x2060, 0x206f, "" },
        { 0x212a, 0x212a, "k" },   { 0x3164, 0x3164, "" },   { 0xfb00, 0xfb00, "ff" },
        { 0xfb01, 0xfb01, "fi" },  { 0xfb02, 0xfb02, "fl" }, { 0xfb03, 0xfb03, "ffi" },
        { 0xfb04, 0xfb04, "ffl" }, { 0xfb05, 0xfb06, "st" }, { 0xfe00, 0xfe0f, "" },
        { 0xfeff, 0xfeff, "" },    { 0xffa0, 0xffa0, "" },   { 0xfff0, 0xfff8, "" },
        { 0xe0000, 0xe0fff, "" },
};

/*
 * Folds @name as such file systems do, except for ASCII capitals. An invalid byte of UTF-8 is one
 * character, and is not folded. Return: length in @to.
 */
static size_t folded(const char *name, size_t len, char to[NAME_MAX + 1])
{
        size_t n = 0;

        for (size_t at = 0, used; at < len; at += used) {
                const unsigned char *u = (const unsigned char *)name + at;
                const char *as = NULL;
                unsigned int c;

                used = 1 + (u[0] >= 0xc0) + (u[0] >= 0xe0) + (u[0] >= 0xf0);
                c = used == 1 ? 0 : u[0] & (0x7f >> used);
                for (size_t i = 1; i < used; i++) {
                        if (i >= len - at || (u[i] & 0xc0) != 0x80) {
                                c = 0;
                                used = 1;
                        } else {
                                c = c << 6 | (u[i] & 0x3f);
                        }
                }
                for (size_t i = 0; i < CG_ARRAY_LEN(folds) && c && !as; i++)
                        as = c >= folds[i].first && c <= folds[i].last ? folds[i].as : NULL;
                if (as)
                        n = (size_t)(stpcpy(to + n, as) - to);
                else
                        n = (size_t)((char *)mempcpy(to + n, name + at, used) - to);
        }
        return n;
}

/*
 * Functions with buffers, which are zeroed at each call (-ftrivial-auto-var-init), stay out of the
 * path that each row takes.
 */
static __attribute__((noinline)) bool has_wildcard_name(const char *pattern, size_t plen, const char *name,
                                                        size_t len)
{
        char p[NAME_MAX + 1], n[NAME_MAX + 1];

        if (len > NAME_MAX || plen > NAME_MAX)
                return false;
        memcpy(p, pattern, plen);
        p[plen] = '\0';
        memcpy(n, name, len);
        n[len] = '\0';
        return fnmatch(p, n, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
}

static bool has_plain_name(const char *pattern, size_t plen, const char *name, size_t len)
{
        const char *star;
        size_t behind;

        /* Some file systems ignore trailing dots and spaces. */
        while (len > 1 && (name[len - 1] == '.' || name[len - 1] == ' '))
                len--;
        star = memchr(pattern, '*', plen);
        if (!star)
                return plen == len && strncasecmp(pattern, name, len) == 0;
        behind = plen - 1 - (size_t)(star - pattern);
        if (star == pattern && !memchr(star + 1, '*', behind))
                return len >= behind && strncasecmp(star + 1, name + len - behind, behind) == 0;
        if (isalnum((unsigned char)pattern[plen - 1]) &&
            (!len || cg_ascii_lower(pattern[plen - 1]) != cg_ascii_lower(name[len - 1])))
                return false;
        return has_wildcard_name(pattern, plen, name, len);
}

static __attribute__((noinline)) bool has_folded_name(const char *pattern, size_t plen, const char *name,
                                                      size_t len)
{
        char plain[NAME_MAX + 1];

        len = folded(name, len, plain);
        return has_plain_name(pattern, plen, plain, len);
}

static bool has_name(const char *pattern, size_t plen, const char *name, size_t len)
{
        bool ascii = true;

        for (size_t i = 0; i < len && ascii; i++)
                ascii = (unsigned char)name[i] < 0x80;
        if (ascii || len > NAME_MAX)
                return has_plain_name(pattern, plen, name, len);
        return has_folded_name(pattern, plen, name, len);
}

/* Fast path: @name may match the first name of @pattern, of which two characters are compared. */
static inline bool may_begin(const char *pattern, const char *name)
{
        if ((unsigned char)name[0] >= 0x80 || (name[0] && (unsigned char)name[1] >= 0x80))
                return true; /* has_name() decides */
        if (pattern[0] == '.')
                return name[0] == '.' &&
                       (pattern[1] == '*' || cg_ascii_lower(pattern[1]) == cg_ascii_lower(name[1]));
        return pattern[0] == '*' || (cg_ascii_lower(pattern[0]) == cg_ascii_lower(name[0]) &&
                                     (!isalnum((unsigned char)pattern[1]) ||
                                      cg_ascii_lower(pattern[1]) == cg_ascii_lower(name[1])));
}

enum fit { NO, BEGINS, WHOLE };

/* Matches @pattern with the names of @path from @at on. *end: end of the last name compared. */
static enum fit fits_at(const char *pattern, const char *at, const char **end)
{
        for (;;) {
                size_t plen = strcspn(pattern, "/"), len = strcspn(at, "/");

                if (!has_name(pattern, plen, at, len))
                        return NO;
                pattern += plen;
                at += len;
                *end = at;
                if (!*pattern)
                        return WHOLE;
                if (!*at)
                        return BEGINS;
                pattern++;
                at++;
        }
}

/* Matches @pattern at each name of @path; BEGINS only at the end of the path. */
static bool fits(const char *pattern, const char *path, size_t root, enum fit want)
{
        const char *end = path;

        for (const char *at = path; (at = strchr(at, '/'));) {
                at++;
                if (may_begin(pattern, at) && fits_at(pattern, at, &end) == want &&
                    (size_t)(end - path) > root)
                        return true;
        }
        return false;
}

/* Part of a Python environment: pip writes it, and only programs of the environment read it. */
static const char of_environment[] = "etc/jupyter/jupyter_*_config.d";

static const char *find_row(const char *path, size_t root, unsigned int what, enum fit want)
{
        for (const char *end, *at = path; (at = strchr(at, '/'));) {
                bool ascii = (unsigned char)*++at < 0x80;
                size_t n;
                const struct cg_name *rows = ascii && *at != '.' ? cg_names_plain(&n) : cg_names(&n);

                for (size_t i = 0; i < n; i++) {
                        const char *row = rows[i].path;

                        if (rows[i].what & what && may_begin(row, at) && fits_at(row, at, &end) == want &&
                            (size_t)(end - path) > root &&
                            (strncmp(row, "jupyter_", 8) != 0 || !fits(of_environment, path, root, WHOLE)))
                                return row;
                }
        }
        return NULL;
}

bool cg_names_match(const char *pattern, const char *path, size_t root)
{
        return fits(pattern, path, root, WHOLE);
}

const char *cg_names_find(const char *path, size_t root, unsigned int what)
{
        return find_row(path, root, what, WHOLE);
}

bool cg_names_has(const struct cg_name *row, const char *name)
{
        /* Templates of ".env", which hold no values. */
        static const char *const templates[] = { ".example", ".sample",   ".template",
                                                 ".dist",    ".defaults", ".schema" };
        size_t len = strlen(name);

        if (!may_begin(row->path, name) || !has_name(row->path, strlen(row->path), name, len))
                return false;
        for (size_t i = 0; strncmp(row->path, ".env", 4) == 0 && i < CG_ARRAY_LEN(templates); i++) {
                size_t n = strlen(templates[i]);

                if (len > n && strncasecmp(name + len - n, templates[i], n) == 0)
                        return false;
        }
        return true;
}

const char *cg_names_leads(const char *path, size_t root)
{
        return find_row(path, root, CG_NAME_WRITE, BEGINS);
}

/* ---- git */

static bool is(const char *name, size_t len, const char *want)
{
        /* Folding keeps an ASCII letter at the beginning. */
        if (len && (unsigned char)name[0] < 0x80 && cg_ascii_lower(name[0]) != cg_ascii_lower(want[0]))
                return false;
        return has_name(want, strlen(want), name, len);
}

/* Names that may only be folders. */
static bool is_fixed(const char *name, size_t len)
{
        return is(name, len, "hooks") || is(name, len, "modules") || is(name, len, "worktrees") ||
               is(name, len, "remotes") || is(name, len, "branches") || is(name, len, "sequencer");
}

static bool is_obeyed(const char *name, size_t len)
{
        return is(name, len, "config.worktree") || is(name, len, "commondir") ||
               is(name, len, CG_GIT_CONFIG_FRESH "*");
}

/* Options of a cherry-pick or revert that is to be continued; one names a program. */
static bool is_options(const char *rest, const char *last)
{
        const char *above = last > rest ? last - 1 : rest;

        while (above > rest && above[-1] != '/')
                above--;
        return last > rest && is(last, strlen(last), "opts") &&
               is(above, (size_t)(last - 1 - above), "sequencer");
}

/* Classifies a path in the repository's own folder. Branches may have any name. */
static enum cg_git_part part_within(const char *rest)
{
        const char *last = strrchr(rest, '/');
        size_t len = strcspn(rest, "/");

        if (is(rest, len, "refs") || is(rest, len, "logs") || is(rest, len, "objects"))
                return CG_GIT_FREE;
        /* Old remotes by files, with any address. git init makes the folders. */
        if (is(rest, len, "remotes") || is(rest, len, "branches"))
                return rest[len] ? CG_GIT_DENIED : CG_GIT_HOOKS;
        for (const char *p = rest; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
                size_t n = strcspn(p, "/");

                if (!is(p, n, "hooks"))
                        continue;
                if (!p[n])
                        return CG_GIT_HOOKS;
                p += n + 1;
                n = strlen(p);
                if (!strchr(p, '/') && n > 7 && strcmp(p + n - 7, ".sample") == 0)
                        return CG_GIT_SAMPLE;
                return CG_GIT_DENIED;
        }
        last = last ? last + 1 : rest;
        if (is(last, strlen(last), "config") || is_options(rest, last))
                return CG_GIT_CONFIG;
        if (is_obeyed(last, strlen(last)))
                return CG_GIT_DENIED;
        return is_fixed(last, strlen(last)) ? CG_GIT_HOOKS : CG_GIT_FREE;
}

/* The first .git in @path from @from on that ends below the root; NULL: none. */
static const char *find_dot_git(const char *path, const char *from, size_t root)
{
        for (const char *at = from; (at = strchr(at, '/'));) {
                size_t len = strcspn(++at, "/");

                /* "git~1": the short name on Windows file systems */
                if ((is(at, len, ".git") || is(at, len, "git~1")) && (size_t)(at + len - path) > root)
                        return at;
        }
        return NULL;
}

bool cg_git_is_within(const char *path, size_t root)
{
        return find_dot_git(path, path, root) != NULL;
}

enum cg_git_part cg_git_part(const char *path, size_t root)
{
        enum cg_git_part part = CG_GIT_FREE;

        /* A repository may be in the branches of another. */
        for (const char *git = path; part == CG_GIT_FREE && (git = find_dot_git(path, git, root));) {
                size_t len = strcspn(git, "/");

                part = git[len] ? part_within(git + len + 1) : CG_GIT_SELF;
        }
        return part;
}

enum cg_git_part cg_git_part_bare(const char *path, size_t root, size_t *next, size_t *top)
{
        const char *last = strrchr(path, '/') + 1, *at = path + (*next ? *next : root);

        while ((at = strchr(at, '/'))) {
                size_t len = strcspn(++at, "/");

                if (is_fixed(at, len) || (at == last && (is(at, len, "config") || is_obeyed(at, len)))) {
                        *top = (size_t)(at - 1 - path);
                        *next = (size_t)(at - path);
                        return part_within(at);
                }
        }
        return CG_GIT_FREE;
}

const char *cg_names_of(const char *path)
{
        const char *name = cg_names_find(path, 0, CG_NAME_WRITE);
        enum cg_git_part part;
        size_t next = 0, top;

        if (!name)
                name = cg_names_leads(path, 0);
        if (name)
                return name;
        part = cg_git_part(path, 0);
        if (part == CG_GIT_FREE)
                part = cg_git_part_bare(path, 0, &next, &top);
        if ((part == CG_GIT_CONFIG || part == CG_GIT_HOOKS) && strstr(path, "/sequencer"))
                return ".git/sequencer";
        if (part == CG_GIT_CONFIG)
                return ".git/config";
        if (part == CG_GIT_HOOKS || part == CG_GIT_SAMPLE || (part == CG_GIT_DENIED && strstr(path, "hooks")))
                return ".git/hooks";
        return ".git";
}
