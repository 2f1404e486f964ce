/*
 * A function of the host that cells call: functions
 *
 * A cell calls `ask_host.upper` with texts. No MCP server and no other process takes part: the call
 * is an event, and this program returns the value. Exit status: 0; 1 the cell failed; 2 it could
 * not be run.
 */
#include <cellgate.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tools[] =
        "[{\"name\": \"upper\", \"description\": \"Makes letters large.\","
        "  \"inputSchema\": {\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\"}}, \"required\": [\"text\"]},"
        "  \"outputSchema\": {\"type\": \"string\"}}]";

static const char code[] = "from mcptools.ask_host import upper\n"
                           "print([upper.run(text=t) for t in ('one', 'two')])\n"
                           "upper.run(text='no')";

/* A real host would parse the arguments, {"text": "..."}: they come from the sandbox. */
static int call(struct cg_session *s, const struct cg_event *e, struct cg_err *err)
{
        const char *args, *value, *end;
        char text[100];
        size_t len;

        args = cg_event_arguments(e, &len);
        value = strncmp(args, "{\"text\":\"", 9) == 0 ? args + 8 : NULL;
        end = value ? strchr(value + 1, '"') : NULL;
        if (!end || (size_t)(end - value) + 2 > sizeof(text) || memchr(value, '\\', (size_t)(end - value)))
                return cg_function_return(s, cg_event_approval(e), CG_FUNCTION_ERROR, "not that", 8, err);
        if (strncmp(value, "\"no\"", 4) == 0)
                return cg_function_return(s, cg_event_approval(e), CG_FUNCTION_REFUSED, "not no", 6, err);
        len = (size_t)(end + 1 - value);
        for (size_t i = 0; i < len; i++)
                text[i] = (char)toupper((unsigned char)value[i]);
        return cg_function_return(s, cg_event_approval(e), CG_FUNCTION_VALUE, text, len, err);
}

/* Returns the cell's status, or negative. */
static int run(struct cg_session *s, struct cg_err *err)
{
        int r = cg_session_execute(s, code, strlen(code), NULL, NULL, err), status = -1;

        while (r == 0 && status < 0) {
                struct cg_event *e;

                r = cg_session_next_event(s, -1, &e, err);
                if (r != 0)
                        break;
                if (cg_event_type(e) == CG_EVENT_FUNCTION_CALL)
                        r = call(s, e, err);
                if (r == CG_E_NOTFOUND) /* it was cancelled meanwhile */
                        r = 0;
                if (cg_event_type(e) == CG_EVENT_STREAM)
                        fputs(cg_event_text(e, NULL), stdout);
                if (cg_event_type(e) == CG_EVENT_ERROR)
                        puts(cg_event_json(e, NULL));
                if (cg_event_type(e) == CG_EVENT_RESULT)
                        status = (int)cg_event_status(e);
                cg_event_free(e);
        }
        return r == 0 ? status : -1;
}

int main(void)
{
        struct cg_err err = { .msg = "the session ended early" };
        struct cg_client *client = NULL;
        struct cg_session *session = NULL;
        int status = -1;

        if (cg_client_open(NULL, &client, &err) == 0 && cg_session_new(client, NULL, &session, &err) == 0 &&
            cg_session_add_functions(session, "ask_host", tools, strlen(tools), NULL, NULL, &err) == 0)
                status = run(session, &err);
        if (status < 0)
                fprintf(stderr, "functions: %s\n", err.msg);
        cg_session_free(session);
        cg_client_close(client);
        return status < 0 ? 2 : status != CG_STATUS_OK;
}
