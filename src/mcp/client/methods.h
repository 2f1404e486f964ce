/* The requests of MCP that a kernel may cause. Linked into the tool server and the command line. */
#pragma once

#include "base/buf.h"
#include "base/slice.h"

enum cg_mcp_method {
        /* wait for the host's approval */
        CG_MCP_TOOLS_CALL,
        CG_MCP_RESOURCES_READ,
        CG_MCP_PROMPTS_GET,
        /* lists: carry nothing that the kernel has chosen */
        CG_MCP_TOOLS_LIST,
        CG_MCP_RESOURCES_LIST,
        CG_MCP_TEMPLATES_LIST,
        CG_MCP_PROMPTS_LIST,
        CG_MCP_N_METHODS,
};

/* Capabilities of a server, as bits. */
enum cg_mcp_offer { CG_MCP_TOOLS = 1, CG_MCP_RESOURCES = 2, CG_MCP_PROMPTS = 4 };

#define CG_MCP_N_CAPABILITIES 3u

struct cg_mcp_capability {
        const char *name; /* the protocol's */
        enum cg_mcp_offer offer;
};

extern const struct cg_mcp_capability cg_mcp_capabilities[CG_MCP_N_CAPABILITIES];

struct cg_mcp_method_spec {
        const char *name;   /* the protocol's */
        const char *what;   /* in messages for people: one, or all of a list */
        const char *member; /* lists: of the result, its elements; NULL: no list */
        enum cg_mcp_offer offer;
};

extern const struct cg_mcp_method_spec cg_mcp_methods[CG_MCP_N_METHODS];

/* The method of a CALL; CG_MCP_N_METHODS: there is none of that name that a kernel may use. */
enum cg_mcp_method cg_mcp_method_find(const char *name);

/*
 * Checks the parameters of a request that is no tools/call, which passed cg_check_call_args():
 * {"uri"}, {"name", "arguments": {NAME: text}}, for lists {}. *name: the URI or the prompt's name
 * (returns); NULL for lists.
 */
int cg_mcp_check_params(enum cg_mcp_method method, struct cg_slice params, char **name, struct cg_err *err);
