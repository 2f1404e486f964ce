/* Registration of MCP servers: the files that they run become read-only in all kernels. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include "base/err.h"

struct session;
struct sup;

/* The files of all sessions' MCP servers, which no kernel may write: a JSON array (returns). */
json_t *cg_sup_server_guards(const struct sup *s);
/*
 * Checks that nothing that @servers (borrows) load can be written by cells, makes that hold in all
 * kernels, and hands those that pass to the tool server; it or a failure answers @request. Kernels
 * that run and could write such files are replaced if they have run nothing of a host's; else the
 * server is refused. A process searches folders meanwhile. @ss may have ended on return. Negative:
 * nothing was begun.
 */
int cg_sup_servers_register(struct session *ss, const json_t *servers, int64_t timeout_ms, uint64_t request,
                            struct cg_err *err);
/* The session ends: its cells may have written what a search that goes on will find. */
void cg_sup_servers_session_ends(const struct session *ss);
/* Ends the searches. */
void cg_sup_servers_stop(struct sup *s);
/* CG_E_INVAL: the workspace is where cellgate's own programs or an MCP server's are. */
int cg_sup_server_files_check_workspace(const struct session *ss, struct cg_err *err);
/* CG_E_INVAL: cells of a session other than @ss could write @path, which is a @what. */
int cg_sup_server_files_check_others(const struct session *ss, const char *what, const char *path,
                                     struct cg_err *err);
