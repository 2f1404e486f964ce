/*
 * The files of --policy (docs/policy.md). A file that cells can write is refused: what one wrote
 * would decide about the next run. Runs in the command `cellgate`.
 */
#ifndef CG_CLI_COMMON_POLICY_FILE_H
#define CG_CLI_COMMON_POLICY_FILE_H

#include <stddef.h>
#include "base/err.h"
#include "sandbox/settings/settings.h"

/*
 * Reads it (*text: returns). CG_E_INVAL with the reason: cells of a session with this workspace and
 * these settings (NULL: the default ones) can write it or redirect its path. @workspace: NULL is
 * not known yet.
 */
int cg_policy_file_read(const char *path, const char *workspace, const struct cg_settings *s, char **text,
                        size_t *len, struct cg_err *err);

/*
 * The same check of the file @path of another @option, "audit-key". *real: its path without links
 * (returns).
 */
int cg_own_file_check(const char *option, const char *path, const char *workspace,
                      const struct cg_settings *s, char **real, struct cg_err *err);
/* The same check of the folder of the file @path, which may not be there yet; with links it is. */
int cg_own_folder_check(const char *option, const char *path, const char *workspace,
                        const struct cg_settings *s, struct cg_err *err);

#endif
