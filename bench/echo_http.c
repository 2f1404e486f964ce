/*
 * The simplest MCP server over Streamable HTTP, with the tool of echo_tool.h; started by bench/run.
 * It prints its port and ends with its standard input.
 */
#include "echo_tool.h"
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>

/* The body of a POST, as far as it has come. */
struct body {
        char data[65536];
        size_t len;
};

static enum MHD_Result respond(struct MHD_Connection *c, unsigned status, char *text)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(text ? strlen(text) : 0, text,
                                                                 MHD_RESPMEM_MUST_FREE);
        enum MHD_Result sent;

        MHD_add_response_header(r, "Content-Type", "application/json");
        sent = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return sent;
}

static enum MHD_Result serve(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *data, size_t *len, void **state)
{
        struct body *b = *state;
        json_t *reply;
        char *text;

        (void)arg, (void)url, (void)version;
        if (!b) {
                *state = calloc(1, sizeof(*b));
                return *state ? MHD_YES : MHD_NO;
        }
        if (*len > 0) {
                if (*len > sizeof(b->data) - b->len)
                        return MHD_NO;
                memcpy(b->data + b->len, data, *len);
                b->len += *len;
                *len = 0;
                return MHD_YES;
        }
        if (strcmp(method, "POST") != 0)
                return respond(c, MHD_HTTP_METHOD_NOT_ALLOWED, NULL);
        reply = reply_to(b->data, b->len);
        if (!reply)
                return respond(c, MHD_HTTP_ACCEPTED, NULL);
        text = json_dumps(reply, JSON_COMPACT);
        json_decref(reply);
        return respond(c, MHD_HTTP_OK, text);
}

static void completed(void *arg, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
        (void)arg, (void)c, (void)code;
        free(*state);
}

int main(void)
{
        struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
                                                serve, NULL, MHD_OPTION_NOTIFY_COMPLETED, completed, NULL,
                                                MHD_OPTION_END);
        const union MHD_DaemonInfo *info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT) : NULL;

        if (!info) {
                fputs("echo_http: no server can be started\n", stderr);
                return 1;
        }
        printf("%u\n", (unsigned)info->port);
        fflush(stdout);
        while (getchar() != EOF)
                ;
        MHD_stop_daemon(d);
        return 0;
}
