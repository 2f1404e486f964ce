/* Logs what an MCP server says: rendered safe, cut, without secrets, and not too often. */
#pragma once

#include "base/log.h"
#include "base/slice.h"
#include "mcp/client/def.h"

struct cg_server_log {
        const struct cg_log *log; /* NULL: none */
        const struct cg_mcp_def *def;
        int64_t since_ms; /* lines logged in this second, and left out */
        unsigned lines, dropped;
};

void cg_server_log_line(struct cg_server_log *l, enum cg_log_level level, const char *what,
                        struct cg_slice line);
/* Foreign text made safe to show, without the definition's secrets; at most 16 kB of it. */
int cg_server_log_render(const struct cg_mcp_def *def, struct cg_slice text, struct cg_buf *b);
