/*
 * The sandbox's settings, from --sandbox FILE or --allow-host. The file (docs/settings.md) often is
 * in the workspace, and decides what the next run may do: so it is hidden from cells, as the file
 * of --mcp is (mcp_file.h). Runs in the command `cellgate`.
 */
#ifndef CG_CLI_COMMON_SETTINGS_FILE_H
#define CG_CLI_COMMON_SETTINGS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/*
 * Reads and checks it, so that a mistake is reported before anything starts, with the file's name,
 * line and column. *ret: its text, for struct cg_session_options and for the caller to free; NULL
 * where @path is NULL.
 */
int cg_settings_file_read(const char *path, char **ret, struct cg_err *err);

/*
 * Settings with the default rules for files that allow these hosts (NULL-terminated). *ret as
 * above; NULL where there is no host.
 */
int cg_settings_for_hosts(const char *const *hosts, char **ret, struct cg_err *err);

/* CG_E_INVAL when @host is not valid in allowedDomains. */
int cg_settings_check_host(const char *host, struct cg_err *err);

/*
 * CG_E_INVAL when options contradict each other: --sandbox (or NULL), @n_hosts of --allow-host,
 * --no-sandbox.
 */
int cg_settings_check_together(const char *sandbox, size_t n_hosts, bool no_sandbox, struct cg_err *err);

#endif
