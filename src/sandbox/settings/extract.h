/*
 * "extract" of a masked credential: a regular expression whose first group is the secret. The
 * language is JavaScript's without flags, as in srt; PCRE2 runs it. Syntax that only PCRE2 has is
 * rejected; syntax that both have with different meanings is translated.
 */
#pragma once

#include "base/util.h"

/* Longest pattern, bytes. Those in use have some dozens. */
#define CG_EXTRACT_MAX 4096

struct cg_extract;

/* CG_E_PARSE: @pattern is not valid. *ret: caller frees. */
int cg_extract_new(const char *pattern, struct cg_extract **ret, struct cg_err *err);
struct cg_extract *cg_extract_free(struct cg_extract *x);

/*
 * Starts with a text, which must live on: UTF-8, or else bytes. All searches in it share one budget
 * of steps (CG_E_LIMIT), since a pattern can take for ever.
 */
int cg_extract_start(struct cg_extract *x, const char *text, size_t len, struct cg_err *err);
/*
 * The next match: 1, and where its first group is (may be empty); 0: there is none. CG_E_INVAL: the
 * group has no part in the match.
 */
int cg_extract_next(struct cg_extract *x, size_t *start, size_t *end, struct cg_err *err);

static inline void cg_extract_freep_(struct cg_extract **x)
{
        cg_extract_free(*x);
}
#define cg_auto_extract CG_CLEANUP(cg_extract_freep_)
