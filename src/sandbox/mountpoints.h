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
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include "sandbox/sandbox.h"

/* 1980-01-01 00:00:01 UTC: no file system uses it as a default, and all can store it. */
#define CG_PLACEHOLDER_MTIME 315532801

/*
 * By the result of lstat(2). Rules treat a placeholder as missing. The owner does not matter:
 * another user's placeholder is removed when that user's sandbox ends.
 */
static inline bool cg_placeholder_is(const struct stat *st)
{
        return S_ISDIR(st->st_mode) && st->st_mtim.tv_sec == CG_PLACEHOLDER_MTIME &&
               (st->st_mode & 07777) == 0555;
}

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
