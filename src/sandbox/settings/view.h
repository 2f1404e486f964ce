/* Rules about paths become mounts of a plan. Pure: nothing is looked up. */
#pragma once

#include "sandbox/settings/rules.h"
#include "sandbox/sandbox.h"

enum cg_view_state {
        CG_VIEW_READ,  /* can be read */
        CG_VIEW_WRITE, /* and written */
        CG_VIEW_HIDDEN,
};

/*
 * The state of @path by the rules:
 *
 *      read    decided by the nearest rule at or above it: denyRead hides, allowRead and allowWrite
 *              show; at one path allowRead wins over denyRead, and denyRead over allowWrite
 *      write   an allowWrite at or above it, and no denyWrite anywhere at or above it
 */
enum cg_view_state cg_view_state(const struct cg_rules *rules, const char *path);

/* Adds the mounts and placeholders for these states. */
int cg_view_add(struct cg_sandbox *sb, const struct cg_rules *rules, struct cg_err *err);
