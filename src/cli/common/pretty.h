/* JSON text for persons and for readers of lines. */
#ifndef CG_CLI_COMMON_PRETTY_H
#define CG_CLI_COMMON_PRETTY_H

#include <stdbool.h>
#include <stddef.h>
#include "base/json_text.h"

/*
 * Both take a value that has been checked to CG_JSON_DEPTH levels.
 *
 * Appends it in lines with indentation, for a person who has to judge it. Strings are cut after
 * @string_max characters (0: never); *cut is set when one was.
 */
int cg_pretty_json(struct cg_slice v, size_t string_max, struct cg_buf *b, bool *cut, struct cg_err *err);

/*
 * Appends it as one line of ASCII: line ends between tokens become blanks, characters over 0x7e
 * escapes. Readers that split at U+2028 or a carriage return see one line as well.
 */
int cg_pretty_ascii(struct cg_slice v, struct cg_buf *b, struct cg_err *err);

#endif
