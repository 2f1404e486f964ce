/*
 * Minimal host: open a client and a session, run a cell, print its events. Build: cc minimal.c
 * $(pkg-config --cflags --libs cellgate)
 */
#include <cellgate.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
        const char *code = "import math\nprint('factorials')\n[math.factorial(n) for n in range(8)]";
        struct cg_client *client = NULL;
        struct cg_session *session = NULL;
        struct cg_event *event;
        struct cg_err err;
        int done = 0;

        if (cg_client_open(NULL, &client, &err) < 0 || cg_session_new(client, NULL, &session, &err) < 0 ||
            cg_session_execute(session, code, strlen(code), NULL, NULL, &err) < 0) {
                fprintf(stderr, "minimal: %s\n", err.msg);
                done = -1;
        }
        while (!done && cg_session_next_event(session, -1, &event, &err) == 0) {
                const char *value = cg_event_mime(event, "text/plain", NULL);

                if (cg_event_type(event) == CG_EVENT_STREAM)
                        fputs(cg_event_text(event, NULL), stdout);
                if (value)
                        puts(value);
                done = cg_event_type(event) == CG_EVENT_RESULT;
                if (done)
                        printf("%s\n", cg_status_name(cg_event_status(event)));
                cg_event_free(event);
        }
        cg_session_free(session);
        cg_client_close(client);
        return done != 1;
}
