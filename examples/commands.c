/*
 * A command beside the cells of a session, and files of its sandbox: runs the command of its
 * arguments, shows its output and exit status, then writes a file inside and reads it back.
 */
#include <cellgate.h>
#include <stdio.h>
#include <string.h>

/* Runs the command to its end. */
static int run(struct cg_session *session, const char *const *argv, struct cg_err *err)
{
        struct cg_exec_options options = { .size = sizeof(options), .argv = argv, .timeout_ms = 60000 };
        struct cg_event *event;
        uint64_t command;
        int ended = 0, r = cg_session_exec(session, &options, &command, err);

        while (r == 0 && !ended && (r = cg_session_next_event(session, -1, &event, err)) == 0) {
                size_t len;
                const char *text = cg_event_text(event, &len);

                if (cg_event_cell(event) == command && cg_event_type(event) == CG_EVENT_COMMAND_OUTPUT)
                        fwrite(text, 1, len, cg_event_is_stderr(event) ? stderr : stdout);
                if (cg_event_cell(event) == command && cg_event_type(event) == CG_EVENT_COMMAND_RESULT) {
                        printf("%s %s %s\n", cg_status_name(cg_event_status(event)),
                               cg_event_json(event, NULL), text);
                        ended = 1;
                }
                cg_event_free(event);
        }
        return r;
}

int main(int argc, char **argv)
{
        static const char note[] = "written by the host\n";
        struct cg_client *client = NULL;
        struct cg_session *session = NULL;
        struct cg_err err;
        char *back = NULL;
        size_t len = 0;
        int r;

        if (argc < 2) {
                fprintf(stderr, "usage: commands PROGRAM [ARGUMENT]...\n");
                return 2;
        }
        r = cg_client_open(NULL, &client, &err);
        if (r == 0)
                r = cg_session_new(client, NULL, &session, &err);
        if (r == 0)
                r = run(session, (const char *const *)argv + 1, &err);
        if (r == 0)
                r = cg_session_files_write(session, "/tmp/note", 0600, note, strlen(note), 0, &err);
        if (r == 0)
                r = cg_session_files_read(session, "/tmp/note", 0, -1, 0, &back, &len, &err);
        if (r == 0)
                fwrite(back, 1, len, stdout);
        else if (r < 0)
                fprintf(stderr, "commands: %s\n", err.msg);
        cg_free(back);
        cg_session_free(session);
        cg_client_close(client);
        return r != 0;
}
