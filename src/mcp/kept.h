/*
 * Large results that stay with the tool server. Their long strings are in a file without a name,
 * and the kernel reads parts of it when its Python needs them. Runs in cellgate-toolserver.
 */
#ifndef CG_MCP_KEPT_H
#define CG_MCP_KEPT_H

#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

/* One result. A list of them belongs to one kernel. */
struct cg_kept;

/*
 * Keeps the long strings of @json, a result object, as @id, in a file in @folder. @out becomes what
 * the kernel gets in place of the result (docs/wire.md, CALL_RESULT). Return: 0; 1: it has no long
 * strings; CG_E_LIMIT: over the limits of the list or of a message; CG_E_PROTO: it is no JSON.
 */
int cg_kept_add(struct cg_kept **list, const char *folder, uint64_t id, const char *json, size_t len,
                struct cg_buf *out, struct cg_err *err);
bool cg_kept_has(const struct cg_kept *list, uint64_t id);
/* Reads @length bytes (not 0) from @offset on. CG_E_NOTFOUND: there is no such result or place. */
int cg_kept_read(const struct cg_kept *list, uint64_t id, uint64_t offset, size_t length, char *buf,
                 struct cg_err *err);
/* No-op if there is no such result. */
void cg_kept_free(struct cg_kept **list, uint64_t id);
void cg_kept_free_all(struct cg_kept **list);

#endif
