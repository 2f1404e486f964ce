/*
 * `cellgate mcp serve`: the result of a cell for programs (structuredContent), beside its text. The
 * schema is in tools.c. All functions take NULL for results that nobody wants; what cannot be kept
 * for lack of memory is left out.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "base/secrets.h"
#include "cellgate.h"

struct cg_structured;

/* Files of a cell of at most this size are resources. */
#define CG_STRUCTURED_MAX_FILE (16 << 20)

/* @max_chars: of each of its texts. NULL: out of memory. */
struct cg_structured *cg_structured_new(size_t max_chars);
struct cg_structured *cg_structured_free(struct cg_structured *s);
void cg_structured_event(struct cg_structured *s, struct cg_event *e);
/* An image of the cell that was saved as @path: the search for its files may have been earlier. */
void cg_structured_image(struct cg_structured *s, const char *path);
/* A decision about a call of the cell. @rule: that decided; NULL: the user, or the base rule. */
void cg_structured_decided(struct cg_structured *s, const char *server, const char *tool,
                           const char *decision, const char *rule);
void cg_structured_set(struct cg_structured *s, const char *name, const char *value);
/* The files of the cell that it has so far (borrowed); NULL: none. */
json_t *cg_structured_artifacts(const struct cg_structured *s);
/* @text in place of all that the cell has written. */
void cg_structured_replace(struct cg_structured *s, const char *text, size_t len);
/* Copies the member @name, if @from has it. */
void cg_structured_copy(struct cg_structured *to, const struct cg_structured *from, const char *name);
/* Copies all that is known of the cell once it has ended, but for its texts. */
void cg_structured_copy_end(struct cg_structured *to, const struct cg_structured *from);
/* Of its texts. */
size_t cg_structured_memory(const struct cg_structured *s);
/*
 * Appends it as a member of the CallToolResult, without @secrets. @error: the call failed, which is
 * the status where the cell has none; @notes may be NULL. A failure may also be kept in @b.
 */
int cg_structured_add(struct cg_structured *s, bool error, const char *notes,
                      const struct cg_secrets *secrets, struct cg_buf *b, struct cg_err *err);
