/*
 * Accepting changed tools of MCP servers: `cellgate mcp accept`, and `cellgate run` at a terminal.
 * Runs in the command `cellgate`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

struct cg_accept {
        const char *server;
        const char *file; /* of the pins; NULL: all of the server's */
        const char *tool; /* NULL: all that wait */
        bool yes;         /* accepts without a question; where not all can be shown, only @tool */
        size_t waiting, accepted;
};

/*
 * Shows on standard error how each tool that waits for acceptance has changed, asks on standard
 * input, and stores what is accepted. Counts in @a.
 */
int cg_accept_tools(struct cg_accept *a, struct cg_err *err);
