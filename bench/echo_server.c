/*
 * The simplest MCP server over stdio: one tool, `echo`, that returns its text. A child of the tool
 * server, of ipybox's tool server, or of bench_api itself; so cheap that what is measured is the
 * way to it.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools[] =
        "{\"tools\": [{\"name\": \"echo\", \"description\": \"Returns its text.\", \"inputSchema\": {\"type\": \"object\","
        " \"properties\": {\"text\": {\"type\": \"string\"}}, \"required\": [\"text\"]}}]}";

static json_t *initialize(const json_t *params)
{
        const char *version = json_string_value(json_object_get(params, "protocolVersion"));

        return json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}}", "protocolVersion", version ? version : "2025-06-18",
                         "capabilities", "tools", "serverInfo", "name", "echo", "version", "1");
}

static json_t *call(const json_t *params)
{
        const json_t *arguments = json_object_get(params, "arguments");
        const char *text = json_string_value(json_object_get(arguments, "text"));

        return json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text", text ? text : "");
}

/* The result of a request; NULL for a method that this server does not have. */
static json_t *answer(const char *method, const json_t *params)
{
        if (strcmp(method, "initialize") == 0)
                return initialize(params);
        if (strcmp(method, "tools/list") == 0)
                return json_loads(tools, 0, NULL);
        if (strcmp(method, "tools/call") == 0)
                return call(params);
        if (strcmp(method, "ping") == 0)
                return json_object();
        return NULL;
}

static void serve_line(const char *line)
{
        json_t *request = json_loads(line, 0, NULL), *id = json_object_get(request, "id"), *reply;
        const char *method = json_string_value(json_object_get(request, "method"));

        if (id && method) {
                json_t *result = answer(method, json_object_get(request, "params"));

                if (result)
                        reply = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
                else
                        reply = json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error",
                                          "code", -32601, "message", "no such method");
                json_dumpf(reply, stdout, JSON_COMPACT);
                putchar('\n');
                fflush(stdout);
                json_decref(reply);
        }
        json_decref(request);
}

int main(void)
{
        char *line = NULL;
        size_t size = 0;

        while (getline(&line, &size, stdin) > 0)
                serve_line(line);
        free(line);
        return 0;
}
