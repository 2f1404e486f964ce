/* Files that a cell made or changed: the member "artifacts" of its RESULT. */
#pragma once

#include <stddef.h>

struct cell;
struct cg_buf;
struct session;

/* The cell @c starts, and its host wants to know. */
void cg_sup_artifacts_begin(struct cell *c);
/*
 * @c has ended: searches for its files. Calls @done(data) once, always within a few seconds, with
 * arguments for cg_sup_artifacts_add(); perhaps before this function returns.
 */
void cg_sup_artifacts_search(struct session *ss, const struct cell *c,
                             void (*done)(void *data, const char *found, size_t len, const char *why),
                             void *data);
/*
 * Adds what was found by the cell @c, an object; with @why (NULL: none), that nothing could be. It
 * is signed if the session's options say so.
 */
void cg_sup_artifacts_add(struct session *ss, const struct cell *c, struct cg_buf *b, const char *found,
                          size_t len, const char *why);
