/*
 * The tool `echo` of echo_server.c and echo_http.c: it returns its text. So cheap that what is
 * measured is the way to it.
 */
#include <jansson.h>
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

/* The answer to a message (returns); NULL where there is none: a notification, or no JSON-RPC. */
static json_t *reply_to(const char *message, size_t len)
{
        json_t *request = json_loadb(message, len, 0, NULL), *id = json_object_get(request, "id"),
               *reply = NULL;
        const char *method = json_string_value(json_object_get(request, "method"));

        if (id && method) {
                json_t *result = answer(method, json_object_get(request, "params"));

                if (result)
                        reply = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
                else
                        reply = json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error",
                                          "code", -32601, "message", "no such method");
        }
        json_decref(request);
        return reply;
}
