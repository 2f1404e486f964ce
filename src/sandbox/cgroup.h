/*
 * A control group for one sandbox: version 2 where a subtree is delegated to the caller, version 1
 * where its controllers may be written, else none. Always below the caller's own group, so that no
 * limit of the caller's is left behind.
 *
 *      the caller        cg_cgroup_new()      makes it and sets its limits, before there is a
 *        process to put in clone3            CLONE_INTO_CGROUP  version 2; for version 1 init
 *        cg_cgroup_join()     puts itself in, first of all; then it makes the cgroup namespace,
 *        with the group as its root
 *      the caller        cg_cgroup_counts(), cg_cgroup_free() once init has ended
 *
 * The process that makes a group locks its folder (flock). A lock ends with its process, so the
 * groups of killed processes are recognised and removed by cg_cgroup_tidy(), without a register.
 */
#pragma once

#include <stdbool.h>
#include "sandbox/limit.h"

struct cg_cgroup;

/* @files: folder with files like those of /proc/self that name the groups; NULL: /proc/self. */

/*
 * Makes a group with those limits of @l that a group can enforce: memory, processes, cores; it also
 * counts processor time. Sets their elements of by[]. *ret is NULL if no group could be made, which
 * is not an error.
 */
int cg_cgroup_new(const char *files, const struct cg_sandbox_limits *l, enum cg_limit_by by[CG_LIMITS],
                  struct cg_cgroup **ret, struct cg_err *err);
/* Sets by[] as cg_cgroup_new() would, without making a group. */
void cg_cgroup_probe(const char *files, const struct cg_sandbox_limits *l, enum cg_limit_by by[CG_LIMITS]);

/* Folder of a version 2 group for clone3(CLONE_INTO_CGROUP), or -1. */
int cg_cgroup_clone_fd(const struct cg_cgroup *g);
/* In the child: the calling thread, which must be the only one, joins the group. */
/* @cloned_into: the clone has put it into its version 2 group. */
int cg_cgroup_join(const struct cg_cgroup *g, bool cloned_into, struct cg_err *err);
/* In the caller, once the child has joined: closes what is needed to join. */
void cg_cgroup_joined(struct cg_cgroup *g);

void cg_cgroup_counts(const struct cg_cgroup *g, struct cg_limit_counts *ret);
/*
 * Paths of the files with the counts, for another process of the same user: memory events,
 * processes, processor time; NULL if missing. Valid as long as @g.
 */
struct cg_cgroup_files {
        const char *memory, *processes, *cpu;
};
void cg_cgroup_paths(const struct cg_cgroup *g, struct cg_cgroup_files *ret);
void cg_cgroup_read(const struct cg_cgroup_files *f, struct cg_limit_counts *ret);

/* Removes the group, if no process is in it. NULL is allowed; returns NULL. */
struct cg_cgroup *cg_cgroup_free(struct cg_cgroup *g);

/* Removes groups without processes whose makers have ended. */
void cg_cgroup_tidy(const char *files);
