/*
 * The MCP server of `cellgate selftest`: one tool, "mark", that appends its text to a file, so that
 * the file lists the calls that were really made. Started by the tool server.
 */

#include "cli/common/cli.h"
#include "selftest/host/selftest.h"

#define MAX_LINE (1u << 20)

static json_t *mark(const char *marks, const json_t *params)
{
        const char *text = json_string_value(json_object_get(json_object_get(params, "arguments"), "text"));
        cg_auto_fd int fd = open(marks, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

        if (fd >= 0)
                dprintf(fd, "%s\n", text ?: "(nothing)");
        return json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text", "marked");
}

static int answer(const char *marks, const char *line, size_t len)
{
        cg_auto_json json_t *request = NULL, *reply = NULL;
        cg_auto_free char *text = NULL;
        const char *method;
        const json_t *params;
        json_t *result;

        if (cg_json_object(line, len, "request", &request, NULL) < 0 ||
            !(method = json_string_value(json_object_get(request, "method"))))
                return -1;
        if (!json_object_get(request, "id"))
                return 0;
        params = json_object_get(request, "params");
        if (strcmp(method, "initialize") == 0)
                result = json_pack("{s:O?, s:{s:{}}, s:{s:s, s:s}}", "protocolVersion",
                                   json_object_get(params, "protocolVersion"), "capabilities", "tools",
                                   "serverInfo", "name", "cellgate-selftest", "version", "1");
        else if (strcmp(method, "tools/list") == 0)
                result = json_pack("{s:[{s:s, s:s, s:{s:s, s:{s:{s:s}}, s:[s]}}]}", "tools", "name", "mark",
                                   "description", "Leaves a mark.", "inputSchema", "type", "object",
                                   "properties", "text", "type", "string", "required", "text");
        else
                result = strcmp(method, "tools/call") == 0 ? mark(marks, params) : json_object();
        reply = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", json_object_get(request, "id"), "result",
                          result);
        text = cg_json_text(reply, &len);
        return text && puts(text) >= 0 ? fflush(stdout) : -1;
}

int cg_selftest_mcp_main(const char *marks)
{
        cg_auto_free char *line = malloc(MAX_LINE);

        while (line && fgets(line, MAX_LINE, stdin))
                if (answer(marks, line, strcspn(line, "\n")) < 0)
                        return CG_EXIT_USAGE;
        return line ? 0 : CG_EXIT_USAGE;
}
