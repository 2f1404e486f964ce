/* Declarations shared by cgroup.c and cgroup_find.c. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include "sandbox/cgroup.h"

enum {
        CG_CGROUP_MEMORY = 1,
        CG_CGROUP_PIDS = 2,
        CG_CGROUP_CPU = 4,
        CG_CGROUP_USAGE = 8, /* processor time: cpuacct, or every group of version 2 */
        CG_CGROUP_ALL = 15,
};
#define CG_CGROUP_PLACES 4 /* each of the four may be in its own hierarchy */

/* A folder in which a group can be made. */
struct cg_cgroup_place {
        int version;
        unsigned int has;        /* controllers that it has of those wanted */
        unsigned int to_prepare; /* version 2: controllers to enable for child groups first */
        char path[PATH_MAX];
};

struct cg_cgroup_places {
        size_t n;
        struct cg_cgroup_place v[CG_CGROUP_PLACES + 1]; /* one spare element for the search */
};

void cg_cgroup_find(const char *files, unsigned int want, struct cg_cgroup_places *ret);
/*
 * Version 2: enables controllers for child groups, for which a delegated group's own processes are
 * moved to a child.
 */
bool cg_cgroup_prepare(const struct cg_cgroup_place *place);
