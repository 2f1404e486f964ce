/* What the supervisor asks for in one spawn request: parsed once, here. Zygote. */
#ifndef CG_KERNEL_SPEC_H
#define CG_KERNEL_SPEC_H

#include <stddef.h>
#include "base/err.h"

struct cg_sandbox;

struct cg_spawn_spec {
        struct cg_sandbox *plan;
        /* of the landlock tier: a folder to make, and to start with; else NULL */
        char *tmp;
        /* for cellgate_kernel: JSON text; has the session's variables */
        char *config;
        size_t config_len;
};

/*
 * Reads the spec from descriptor @fd (borrows) and makes the sandbox's plan of it and @base. *ret:
 * cg_spawn_spec_fini().
 */
int cg_spawn_spec_read(int fd, const struct cg_sandbox *base, struct cg_spawn_spec *ret, struct cg_err *err);
/*
 * Also wipes: a later kernel is a copy of this process and must not find an earlier one's
 * variables.
 */
void cg_spawn_spec_fini(struct cg_spawn_spec *spec);

/* Makes jansson wipe what it frees. Call once, before the first spec. */
void cg_spawn_spec_wipe_json(void);

#endif
