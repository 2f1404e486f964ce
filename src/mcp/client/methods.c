/* The requests of MCP that a kernel may cause: their names and parameters. */
#include "mcp/client/methods.h"

#include "base/json_text.h"
#include "mcp/ceilings.h"

const struct cg_mcp_capability cg_mcp_capabilities[CG_MCP_N_CAPABILITIES] = {
        { "tools", CG_MCP_TOOLS },
        { "resources", CG_MCP_RESOURCES },
        { "prompts", CG_MCP_PROMPTS },
};

const struct cg_mcp_method_spec cg_mcp_methods[CG_MCP_N_METHODS] = {
        [CG_MCP_TOOLS_CALL] = { "tools/call", "tool", NULL, CG_MCP_TOOLS },
        [CG_MCP_RESOURCES_READ] = { "resources/read", "resource", NULL, CG_MCP_RESOURCES },
        [CG_MCP_PROMPTS_GET] = { "prompts/get", "prompt", NULL, CG_MCP_PROMPTS },
        [CG_MCP_TOOLS_LIST] = { "tools/list", "tools", "tools", CG_MCP_TOOLS },
        [CG_MCP_RESOURCES_LIST] = { "resources/list", "resources", "resources", CG_MCP_RESOURCES },
        [CG_MCP_TEMPLATES_LIST] = { "resources/templates/list", "resource templates", "resourceTemplates",
                                    CG_MCP_RESOURCES },
        [CG_MCP_PROMPTS_LIST] = { "prompts/list", "prompts", "prompts", CG_MCP_PROMPTS },
};

enum cg_mcp_method cg_mcp_method_find(const char *name)
{
        int i = 0;

        /* A kernel has the list of the tools as its generated modules. */
        while (i < CG_MCP_N_METHODS && (i == CG_MCP_TOOLS_LIST || strcmp(cg_mcp_methods[i].name, name) != 0))
                i++;
        return (enum cg_mcp_method)i;
}

static int check_arguments(struct cg_slice arguments, struct cg_err *err)
{
        struct cg_json_walk w;
        struct cg_slice value;
        int r = cg_json_walk_init(&w, arguments, '{', err);

        while (r == 0 && (r = cg_json_walk_next(&w, NULL, &value, err)) == 0)
                if (cg_json_kind(value) != '"')
                        return cg_fail(err, CG_E_INVAL, "an argument of the prompt is not a string");
        return CG_MIN(r, 0);
}

int cg_mcp_check_params(enum cg_mcp_method method, struct cg_slice params, char **name, struct cg_err *err)
{
        static const char *const members[CG_MCP_N_METHODS] = {
                [CG_MCP_RESOURCES_READ] = "uri", [CG_MCP_PROMPTS_GET] = "name"
        };
        const char *wanted = members[method] ?: "";
        size_t max = method == CG_MCP_RESOURCES_READ ? CG_MCP_MAX_URI : CG_MAX_NAME;
        cg_auto_free char *text = NULL;
        struct cg_json_walk w;
        struct cg_slice key, value;
        int r = cg_json_walk_init(&w, params, '{', err);

        /* The client adds members of its own: an escaped name must not be one of them. */
        while (r == 0 && (r = cg_json_walk_next(&w, &key, &value, err)) == 0) {
                if (!text && cg_slice_is(key, wanted)) {
                        r = cg_json_strdup(value, &text, err);
                        if (r == 0 && (!*text || strlen(text) > max))
                                r = cg_fail(err, CG_E_INVAL, "\"%s\" has no or more than %zu bytes", wanted,
                                            max);
                } else if (method == CG_MCP_PROMPTS_GET && cg_slice_is(key, "arguments")) {
                        r = check_arguments(value, err);
                } else {
                        r = cg_fail(err, CG_E_INVAL, "%s has no parameter \"%.*s\"",
                                    cg_mcp_methods[method].name, (int)CG_MIN(key.len, 100), key.p);
                }
        }
        if (r < 0)
                return r;
        if (*wanted && !text)
                return cg_fail(err, CG_E_INVAL, "%s without \"%s\"", cg_mcp_methods[method].name, wanted);
        *name = CG_STEAL(text);
        return 0;
}
