/*
 * Texts of failures of MCP servers. They become errors in cells, where nothing of what the
 * definition's variables hold may be seen: a program's path, the address of a server, what a server
 * has written itself (its arguments, mostly). So such a text has a mark: what follows is for the
 * host only.
 */
#pragma once

#include "mcp/client/def.h"

/* No text of a server has this character: those are rendered. */
#define CG_MCP_HOST_ONLY "\x1e"

/* For the host: without secrets (@def may be NULL) and marks. Changed in place, never longer. */
void cg_mcp_failure_for_host(const struct cg_mcp_def *def, char *text);
/*
 * For a cell: up to the mark, without secrets and addresses; what was left out is said. Changed in
 * place, in a buffer of @size bytes. True: the host has to be told the rest.
 */
bool cg_mcp_failure_for_cell(const struct cg_mcp_def *def, char *text, size_t size);
