/* JSON text for persons and for readers of lines. */
#pragma once

#include "base/json_text.h"

/* Reads a character: cg_json_char(), or the same for text in another encoding. */
typedef size_t cg_fold_char(const char *p, const char *end, uint32_t *c);

/* Characters that are shown of the end of a text that is cut. */
#define CG_FOLD_TAIL 100u

struct cg_fold {
        uint32_t c;    /* the character */
        size_t blanks; /* not 0: a run of so many blanks, too long to be shown */
};

/*
 * Reads a character, or a run of blanks (white space of any kind, and what looks like it) that
 * would push the text behind it out of sight. Returns its length in bytes; 0 at the end.
 */
size_t cg_fold_next(cg_fold_char *next, const char *p, const char *end, struct cg_fold *f);

/*
 * Where a text is cut: what is between *head and *tail is left out, and begins after @max
 * characters or 8 lines. *head is @end if all fits, and *tail is *head if nothing is left out.
 */
void cg_fold_cut(cg_fold_char *next, const char *p, const char *end, size_t max, const char **head,
                 const char **tail);

/*
 * Both take a value that has been checked to CG_JSON_DEPTH levels.
 *
 * Appends it in lines with indentation, for a person who has to judge it. Of strings with more than
 * @string_max characters (0: no limit) the middle is left out. @skip: names of
 * members of @v that are left out, which the caller shows, up to NULL; or NULL.
 */
void cg_pretty_json(struct cg_slice v, size_t string_max, const char *const *skip, struct cg_buf *b);

/*
 * Appends it as one line of ASCII: line ends between tokens become blanks, characters over 0x7e
 * escapes. Readers that split at U+2028 or a carriage return see one line as well.
 */
void cg_pretty_ascii(struct cg_slice v, struct cg_buf *b);
