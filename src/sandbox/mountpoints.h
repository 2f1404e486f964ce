/*
 * Placeholders. A mount needs something to lie on: the folder of a command's private TMPDIR is made
 * in /tmp on the host for as long as the sandbox runs. (Names that must not be made need none:
 * mediate.h.)
 *
 * Each is marked (empty, mode 0555, a modification time that nothing else has) and locked (flock,
 * shared) by whoever uses it. Whoever is done with it removes it when nobody else holds a lock.
 * Locks end with their process, so what a killed process left behind is recognised and removed by
 * the next one that looks, without any register.
 */
#ifndef CG_SANDBOX_MOUNTPOINTS_H
#define CG_SANDBOX_MOUNTPOINTS_H

#include <stdbool.h>
#include <sys/stat.h>
#include "sandbox/sandbox.h"

/* By what lstat(2) says. For all rules a placeholder is not there. */
bool cg_placeholder_is(const struct stat *st);

/*
 * Makes those of @sb and keeps them locked. *fds (returns; one for each, -1 where what is there is
 * no placeholder).
 */
int cg_placeholders_make(struct cg_sandbox *sb, int **fds, struct cg_err *err);
/*
 * Removes those that nobody else uses. @fds: from above, closed and freed here; or NULL, after
 * another process's death.
 */
void cg_placeholders_remove(const struct cg_sandbox *sb, int *fds);

#endif
