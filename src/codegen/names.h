/* Python names for foreign ones: deterministic, and the same whatever the order. */
#pragma once

#include "codegen/read.h"

struct cg_python_name {
        struct cg_slice original;
        struct cg_slice name; /* out; empty when no unique name was found */
        /* out: 0 by the rules alone, more: with a hash of the original appended */
        int level;
};

enum cg_name_kind { CG_NAME_PACKAGE, CG_NAME_MODULE, CG_NAME_FIELD, CG_NAME_RESULT_FIELD };

/*
 * Gives every original a name of its own. Among originals that would get the same name, the one
 * that is that name keeps it and the others get a hash. Modules keep their case, but no two of
 * them differ in nothing else. @reserved: names (sorted) that are taken;
 * may be NULL. False when out of memory.
 */
bool cg_names_assign(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name *names, size_t n,
                     const struct cg_slice *reserved, size_t n_reserved);

/* CamelCase from a hint; never empty, a keyword or a name of generated modules. Not yet unique. */
struct cg_slice cg_class_base(struct cg_arena *a, struct cg_slice hint);

bool cg_is_keyword(struct cg_slice s);
