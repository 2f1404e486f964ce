/* The content of a spawn request of the supervisor. Zygote. */
#pragma once

#include "base/util.h"

struct cg_sandbox;

struct cg_spawn_spec {
        struct cg_sandbox *plan;
        /* landlock tier: the folder for temporary files, not made yet; else NULL */
        char *tmp;
        bool notebook; /* its kernel serves a Jupyter front-end */
        /* for cellgate_kernel: JSON text with the session's variables */
        char *config;
        size_t config_len;
};

/*
 * Reads the spec from descriptor @fd (borrows) and makes the sandbox's plan of it and @base. *ret:
 * cg_spawn_spec_fini().
 */
int cg_spawn_spec_read(int fd, const struct cg_sandbox *base, struct cg_spawn_spec *ret, struct cg_err *err);
/* Also wipes the memory: later kernels are forked from this process and must not read it. */
void cg_spawn_spec_fini(struct cg_spawn_spec *spec);
#define cg_auto_spawn_spec CG_CLEANUP(cg_spawn_spec_fini)

/* Makes jansson wipe what it frees. Call once, before the first spec. */
void cg_spawn_spec_wipe_json(void);
