/* The tools of one MCP server, without an event loop (`cellgate gen NAME -- COMMAND`). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/log.h"

/*
 * cg_mcp_list_tools() - start a server, list its tools, end it
 * @name:       for messages
 * @definition: {"command", "args", "env", "cwd"} (borrows)
 * @timeout_ms: for start and list; 0: 60 s. Ending it takes up to 6 s more.
 * @log:        what the server says on standard error goes there; NULL: nowhere
 * @ret:        JSON array of the tool objects of all pages, as the server wrote them (returns;
 *              free())
 * Return: 0; negative. No process is left in either case.
 * Threads: any, each with its own server; SIGPIPE is blocked meanwhile in this thread alone.
 */
int cg_mcp_list_tools(const char *name, const json_t *definition, int64_t timeout_ms,
                      const struct cg_log *log, char **ret, size_t *len, struct cg_err *err);

struct cg_mcp_tool_call {
        const char *tool;
        const char *args; /* one JSON object, checked by cg_check_call_args() (borrows) */
        size_t args_len;
        int64_t timeout_ms; /* of the call; 0: none */
        bool error;         /* set: the server has answered with a JSON-RPC error object */
};

/*
 * cg_mcp_call_tool() - the same, and call one tool, if its definition is the accepted one
 * @ret: the result, or the error object, as the server wrote it (returns; free())
 */
int cg_mcp_call_tool(const char *name, const json_t *definition, const struct cg_log *log,
                     struct cg_mcp_tool_call *call, char **ret, size_t *len, struct cg_err *err);
