/*
 * The file of --mcp. It has commands that run outside the sandbox, and often secrets, and it often
 * is in the workspace, where cells may write. So it is hidden from them, and so is the file of
 * --sandbox. Runs in the command `cellgate`.
 */
#ifndef CG_CLI_COMMON_MCP_FILE_H
#define CG_CLI_COMMON_MCP_FILE_H

#include <limits.h>
#include <stdbool.h>
#include "base/err.h"

/*
 * Opens the folder of the file @path (O_PATH), which stays the same whatever becomes of the path.
 * @name: the file's in it; a link is replaced by the file that it leads to. CG_E_INVAL: @path goes
 * through a symbolic link in @workspace, a real path; NULL: none. @make: folders that are absent
 * are made.
 */
int cg_mcp_file_folder(const char *path, const char *workspace, bool make, int *folder,
                       char name[NAME_MAX + 1], struct cg_err *err);

/*
 * *ret: the path that a session has to hide (caller frees); NULL where @path is NULL or not a
 * regular file. A path that goes through a symbolic link in the workspace is an error: cells could
 * redirect it, and the next run would start the programs of their choice. @workspace: NULL is the
 * current folder.
 */
int cg_mcp_file_find(const char *path, const char *workspace, char **ret, struct cg_err *err);

#endif
