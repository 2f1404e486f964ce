/*
 * Large results that stay with the tool server. Their long strings are in a file without a name,
 * and the kernel reads parts of it when its Python needs them. Runs in cellgate-toolserver.
 */
#pragma once

#include "base/buf.h"

struct cg_kept;

/* Results that all kernels keep together. */
struct cg_kept_sum {
        size_t n, bytes;
};

/* Results that one kernel keeps. */
struct cg_kept_list {
        struct cg_kept *first;
        size_t n, bytes;
        struct cg_kept_sum *all;
};

/* Largest size of one more result, in bytes; 0: no more results are kept. */
size_t cg_kept_room(const struct cg_kept_list *list);
/*
 * Writes the long strings of @json, a result object, to @fd, an empty file: *size bytes, @max at
 * most. @out becomes what the kernel gets in place of the result (docs/wire.md, CALL_RESULT). May
 * run in any thread. Return: 0; 1: it has no long strings; negative: *err has CG_E_LIMIT,
 * CG_E_PROTO (it is no JSON), or CG_E_SYS (the disk is full, for example).
 */
int cg_kept_write(int fd, uint64_t id, size_t max, const char *json, size_t len, size_t *size,
                  struct cg_buf *out, struct cg_err *err);
/* Keeps that file as @id (takes @fd, also when it fails). CG_E_LIMIT: there is no room. */
int cg_kept_add(struct cg_kept_list *list, uint64_t id, int fd, size_t size, struct cg_err *err);
bool cg_kept_has(struct cg_kept_list *list, uint64_t id);
/* Reads @length bytes (not 0) from @offset on. CG_E_NOTFOUND: there is no such result or place. */
int cg_kept_read(struct cg_kept_list *list, uint64_t id, uint64_t offset, size_t length, char *buf,
                 struct cg_err *err);
/* No-op if there is no such result. */
void cg_kept_free(struct cg_kept_list *list, uint64_t id);
void cg_kept_free_all(struct cg_kept_list *list);
