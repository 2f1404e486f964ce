/*
 * The file of --mcp. It holds commands that run outside the sandbox, and often secrets; and it
 * often lies in the workspace, where cells may write. So it is hidden from them. The file of
 * --sandbox is no different. Runs in the command `cellgate`.
 */
#ifndef CG_CLI_COMMON_MCP_FILE_H
#define CG_CLI_COMMON_MCP_FILE_H

#include "base/err.h"

/*
 * *ret: what a session has to hide, for the caller to free; NULL where there is nothing: @path is
 * NULL, or no regular file. A path that goes through a symbolic link in the workspace is an error:
 * cells could send it elsewhere, and the next run would start what they wrote. @workspace: NULL is
 * the current folder.
 */
int cg_mcp_file_find(const char *path, const char *workspace, char **ret, struct cg_err *err);

#endif
