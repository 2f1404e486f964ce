/*
 * Reading tool definitions: memory, a JSON tree, and splitting a tool list.
 *
 * Not jansson, which refuses a whole text for one integer over 63 bits, a lone surrogate or \u0000.
 * Real tool lists contain such things (uint64 bounds, descriptions cut in the middle of an emoji),
 * and the schemas must reach the kernel exactly.
 */
#pragma once

#include "base/slice.h"
#include "base/util.h"

/* Memory that is freed as a whole. After a failed allocation all others return NULL; see failed. */
struct cg_arena_chunk;
struct cg_arena {
        struct cg_arena_chunk *chunks;
        bool failed;
};

void cg_arena_fini(struct cg_arena *a);
void *cg_arena_alloc(struct cg_arena *a, size_t size); /* zeroed; NULL when out of memory */
struct cg_slice cg_arena_copy(struct cg_arena *a, const char *s, size_t n);
#define cg_auto_arena CG_CLEANUP(cg_arena_fini)

enum cg_j_kind { CG_J_NULL, CG_J_FALSE, CG_J_TRUE, CG_J_NUMBER, CG_J_STRING, CG_J_ARRAY, CG_J_OBJECT };

/* One JSON value. Lives in the arena it was read into. */
struct cg_j {
        enum cg_j_kind kind;
        /* string: decoded, UTF-8 with lone surrogates in three bytes; number: as written */
        struct cg_slice text;
        struct cg_slice key; /* member of an object: its key, decoded */
        struct cg_j *parent;
        struct cg_j *next;
        /* members (last of equal keys wins, the others are gone) or items */
        struct cg_j *first, *last;
        struct cg_j **sorted; /* object: its members by key */
        size_t n;             /* members or items */
        size_t index;         /* place in the parent array */
        /* 0 for scalars and empty containers, else 1 + the highest of what it holds */
        unsigned height;
        /* Notes of those who work on the tree; zero at first. */
        void *note_class;
        void *note_type;
        unsigned note_visit;
        size_t note_field;
};

/*
 * Reads exactly one value of at most @depth levels. The bytes must outlive the tree. CG_E_PARSE,
 * CG_E_LIMIT, CG_E_NOMEM.
 */
int cg_j_read(struct cg_arena *a, const char *text, size_t len, unsigned depth, struct cg_j **ret,
              struct cg_err *err);

/* Member of an object; NULL when absent or @o is no object (or NULL). */
struct cg_j *cg_j_get(const struct cg_j *o, struct cg_slice key);
struct cg_j *cg_j_getz(const struct cg_j *o, const char *key);
static inline bool cg_j_is(const struct cg_j *j, enum cg_j_kind kind) /* false for NULL */
{
        return j && j->kind == kind;
}
/* The first element of an array; NULL: it has none, or @j is no array. */
static inline struct cg_j *cg_j_elements(const struct cg_j *j)
{
        return cg_j_is(j, CG_J_ARRAY) ? j->first : NULL;
}
/* The member's text when it is a string that is not empty, else an empty one. */
struct cg_slice cg_j_string(const struct cg_j *o, const char *key);

/*
 * Finds the elements of the tool list by brackets and quotes alone, so that an element that is no
 * JSON costs only itself. *ret: caller frees; points into @text.
 */
int cg_split_tools(const char *text, size_t len, struct cg_slice **ret, size_t *n, struct cg_err *err);

/* The raw "name" of an element that could not be read, without its quotes; empty: none. */
struct cg_slice cg_split_name(struct cg_slice element);
