/*
 * Patterns of paths, as settings have them: "*" and "?" within a name, "[abc]" and "[a-z]" one
 * character, two stars any number of characters and folders. No escapes, no negation: "[!a]" is one
 * of "!" and "a". Pure text.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cg_pattern {
        const char *text; /* borrowed */
        size_t len, words;
        unsigned char part[PATH_MAX]; /* the kind of the part that begins at each character */
        uint16_t next[PATH_MAX];      /* position after the part */
};

/* Positions in the pattern that a path can have reached, one bit for each of its characters. */
struct cg_pattern_at {
        uint64_t bits[PATH_MAX / 64];
};

/* False: @text is PATH_MAX bytes or longer. */
bool cg_pattern_init(struct cg_pattern *p, const char *text);
void cg_pattern_start(const struct cg_pattern *p, struct cg_pattern_at *at);
/* Sets @at to the positions after @text; false when nothing that begins like this can match. */
bool cg_pattern_advance(const struct cg_pattern *p, struct cg_pattern_at *at, const char *text);
/* A path that has reached @at matches. */
bool cg_pattern_ends(const struct cg_pattern *p, const struct cg_pattern_at *at);

/* Absolute @path, or a folder above it, matches. */
bool cg_pattern_covers(const struct cg_pattern *p, const char *path);
/*
 * The last name of absolute @path is one that the pattern asks for in a folder, as "b" in a/b/c. A
 * symlink of that name could make files match whose own paths do not.
 */
bool cg_pattern_leads(const struct cg_pattern *p, const char *path);

/*
 * Compares @c with the first part of @pattern: a character, "?" or a set, but not "*". Returns the
 * rest of the pattern; NULL: no match.
 */
const char *cg_pattern_match_one(const char *pattern, char c);
