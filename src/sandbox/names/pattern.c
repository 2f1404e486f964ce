/* Patterns of paths: see pattern.h. */
#include "sandbox/names/pattern.h"

#include <stdio.h>
#include <string.h>

/* The end of the set that starts at @p ("["), or NULL: then "[" is an ordinary character. */
static const char *set_end(const char *p)
{
        const char *close = strchr(p + 1, ']');

        if (!close || close == p + 1)
                return NULL;
        for (const char *q = p + 1; q + 2 < close; q++)
                if (q[1] == '-' && (unsigned char)q[0] > (unsigned char)q[2])
                        return NULL; /* "[z-a]" is text */
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

const char *cg_pattern_match_one(const char *p, char c)
{
        const char *close;

        if (*p == '?')
                return c != '/' ? p + 1 : NULL;
        if (*p == '[' && (close = set_end(p)))
                return c != '/' && set_has(p, close, (unsigned char)c) ? close + 1 : NULL;
        return *p == c ? p + 1 : NULL;
}

/* The kind of the pattern's part that begins at a character. */
enum part {
        PART_ONE,  /* one character of the path */
        PART_STAR, /* any number, but "/" */
        PART_ANY,  /* any number */
        PART_DIRS, /* any number of folders, at the start of a name */
        PART_NAME, /* the same, within a name */
        PART_END,
};

static void add_place(const struct cg_pattern *p, struct cg_pattern_at *to, size_t i)
{
        for (;;) {
                to->bits[i / 64] |= UINT64_C(1) << (i % 64);
                if (p->part[i] != PART_STAR && p->part[i] != PART_ANY && p->part[i] != PART_DIRS)
                        return;
                i = p->next[i]; /* they may match nothing */
        }
}

static void step(const struct cg_pattern *p, struct cg_pattern_at *to, size_t i, char c)
{
        switch ((enum part)p->part[i]) {
        case PART_ONE:
                if (cg_pattern_match_one(p->text + i, c))
                        add_place(p, to, p->next[i]);
                break;
        case PART_STAR:
                if (c != '/')
                        add_place(p, to, i);
                break;
        case PART_ANY:
                add_place(p, to, i);
                break;
        case PART_DIRS:
                add_place(p, to, c == '/' ? i : i + 1);
                break;
        case PART_NAME:
                add_place(p, to, c == '/' ? i - 1 : i);
                break;
        case PART_END:
                break;
        }
}

bool cg_pattern_advance(const struct cg_pattern *p, struct cg_pattern_at *at, const char *text)
{
        uint64_t any = 1;

        for (; *text && any; text++) {
                struct cg_pattern_at to; /* only the words in use are set */

                any = 0;
                memset(to.bits, 0, p->words * sizeof(to.bits[0]));
                for (size_t k = 0; k < p->words; k++)
                        for (uint64_t left = at->bits[k]; left; left &= left - 1)
                                step(p, &to, k * 64 + (size_t)__builtin_ctzll(left), *text);
                for (size_t k = 0; k < p->words; k++)
                        any |= at->bits[k] = to.bits[k];
        }
        return any != 0;
}

bool cg_pattern_init(struct cg_pattern *p, const char *text)
{
        const char *close;

        p->text = text;
        p->len = strlen(text);
        if (p->len >= PATH_MAX)
                return false;
        /* The parts. A star is any number of characters but "/", two are any number. */
        p->words = p->len / 64 + 1;
        p->part[p->len] = PART_END;
        for (size_t i = 0, j; i < p->len; i = j) {
                j = i + 1;
                p->part[i] = PART_ONE;
                if (text[i] == '[' && (close = set_end(text + i)))
                        j = (size_t)(close - text) + 1;
                if (text[i] == '*') {
                        j = i + strspn(text + i, "*");
                        p->part[i] = j == i + 1 ? PART_STAR : PART_ANY;
                }
                if (p->part[i] == PART_ANY && text[j] == '/' && (j < 3 || text[j - 3] == '/')) {
                        p->part[i] = PART_DIRS;
                        p->part[i + 1] = PART_NAME;
                        j++;
                }
                p->next[i] = (uint16_t)j;
        }
        return true;
}

void cg_pattern_start(const struct cg_pattern *p, struct cg_pattern_at *at)
{
        *at = (struct cg_pattern_at){ .bits = { 0 } };
        add_place(p, at, 0);
}

bool cg_pattern_ends(const struct cg_pattern *p, const struct cg_pattern_at *at)
{
        return at->bits[p->len / 64] >> (p->len % 64) & 1;
}

bool cg_pattern_covers(const struct cg_pattern *p, const char *path)
{
        char name[NAME_MAX + 2];
        struct cg_pattern_at at;

        cg_pattern_start(p, &at);
        while (*path) {
                /* "/" and the name after it */
                size_t n = 1 + strcspn(path + 1, "/");

                if (n >= sizeof(name))
                        return false; /* no file has such a name */
                snprintf(name, sizeof(name), "%.*s", (int)n, path);
                if (!cg_pattern_advance(p, &at, name))
                        return false;
                if (cg_pattern_ends(p, &at))
                        return true;
                path += n;
        }
        return false;
}

bool cg_pattern_leads(const struct cg_pattern *p, const char *path)
{
        struct cg_pattern_at above, at;
        const char *last = strrchr(path, '/');
        char folder[PATH_MAX];

        snprintf(folder, sizeof(folder), "%.*s", (int)(last + 1 - path), path);
        cg_pattern_start(p, &above);
        if (!cg_pattern_advance(p, &above, folder))
                return false;
        at = above;
        return cg_pattern_advance(p, &at, last + 1) && cg_pattern_advance(p, &at, "/") &&
               memcmp(at.bits, above.bits, p->words * sizeof(at.bits[0])) != 0;
}
