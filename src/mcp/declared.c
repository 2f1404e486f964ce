/*
 * What clients of the stateless era declare, for the MCP server and for the process that carries
 * its messages over HTTP.
 */
#include "mcp/server.h"

#include "mcp/ceilings.h"

bool cg_mcpd_declares_tasks(struct cg_slice capabilities)
{
        struct cg_slice extensions, tasks;

        return cg_json_find(capabilities, "extensions", &extensions) &&
               cg_json_find(extensions, CG_MCPD_TASKS, &tasks) && tasks.p[0] == '{';
}

bool cg_mcpd_wants_undeclared_tasks(struct cg_slice params)
{
        struct cg_slice wanted, ids, meta, capabilities;

        if (!params.p || !cg_json_find(params, "notifications", &wanted) ||
            !cg_json_find(wanted, "taskIds", &ids))
                return false;
        return !cg_json_find(params, "_meta", &meta) ||
               !cg_json_find(meta, "io.modelcontextprotocol/clientCapabilities", &capabilities) ||
               !cg_mcpd_declares_tasks(capabilities);
}

bool cg_mcpd_is_token(struct cg_slice s)
{
        return s.p && s.len <= CG_MCP_MAX_ID &&
               (s.p[0] == '"' || s.p[0] == '-' || (s.p[0] >= '0' && s.p[0] <= '9'));
}
