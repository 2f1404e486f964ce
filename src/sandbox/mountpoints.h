/*
 * Placeholders: mount points that are made on the host while the sandbox runs. There is one kind,
 * the folder of a command's private TMPDIR in /tmp. (Names that must not be made need none:
 * mediate.h.)
 *
 * A placeholder is marked (empty, mode 0555, a modification time that nothing else has) and locked
 * (flock, shared) by each process that uses it; the last of them removes it. Locks end with their
 * process, so a placeholder that a killed process left is recognized by its mark and removed by the
 * next user, without a register.
 */
#ifndef CG_SANDBOX_MOUNTPOINTS_H
#define CG_SANDBOX_MOUNTPOINTS_H

#include <stdbool.h>
#include <sys/stat.h>
#include "sandbox/sandbox.h"

/* By the result of lstat(2). Rules treat a placeholder as missing. */
bool cg_placeholder_is(const struct stat *st);

/*
 * Makes those of @sb and keeps them locked. *fds (returns): one for each; -1 if the existing file
 * is not a placeholder.
 */
int cg_placeholders_make(struct cg_sandbox *sb, int **fds, struct cg_err *err);
/*
 * Removes those that no other process uses. @fds: from cg_placeholders_make() (takes); NULL: after
 * the death of the process that had them.
 */
void cg_placeholders_remove(const struct cg_sandbox *sb, int *fds);

#endif
