/*
 * A host that asks about every tool call: approve MCP.json CODE
 *
 * MCP.json is the "mcpServers" file of MCP clients. Each call is shown and runs only after a "y" on
 * standard input; everything that came from the kernel or a server is made safe for the terminal by
 * cg_render() first. Exit status: 0; 1 the cell failed; 2 it could not be run.
 */
#include <cellgate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static char *read_file(const char *path, size_t *len)
{
        FILE *f = fopen(path, "rb");
        char *text = malloc(1 << 20);

        *len = f && text ? fread(text, 1, 1 << 20, f) : 0;
        if (f)
                fclose(f);
        if (*len)
                return text;
        free(text);
        return NULL;
}

/* Untrusted text behind a word of ours; what is left out at the end is counted. */
static void print_safe(const char *what, const char *text, size_t len, size_t max)
{
        char *shown;

        if (cg_render(text, len, max, &shown, NULL) < 0)
                return;
        printf("%s%s", what, shown);
        cg_free(shown);
}

/* Only "y" is a yes: anything else, and the end of the input, is a no. */
static int ask(struct cg_session *s, const struct cg_event *e, struct cg_err *err)
{
        char answer[100] = "";
        const char *args;
        size_t len;

        args = cg_event_arguments(e, &len);
        print_safe("\n[approve] server ", cg_event_server(e), strlen(cg_event_server(e)), 300);
        print_safe("\n[approve] method ", cg_event_method(e), strlen(cg_event_method(e)), 300);
        print_safe("\n[approve] tool   ", cg_event_tool(e), strlen(cg_event_tool(e)), 300);
        print_safe("\n[approve] args   ", args, len, 4000);
        printf("\n[approve] run it? (y/n) ");
        fflush(stdout);
        /* keys that were pressed before the question are no answer to it */
        tcflush(STDIN_FILENO, TCIFLUSH);
        if (fgets(answer, sizeof(answer), stdin) && strcmp(answer, "y\n") == 0)
                return cg_approval_accept(s, cg_event_approval(e), err);
        return cg_approval_reject(s, cg_event_approval(e), "the person at the terminal said no", err);
}

static int handle(struct cg_session *s, struct cg_event *e, struct cg_err *err)
{
        const char *text;
        size_t len;
        int r;

        switch (cg_event_type(e)) {
        case CG_EVENT_APPROVAL_REQUEST:
                r = ask(s, e, err);
                return r == CG_E_NOTFOUND ? 0 : r; /* it was taken back while the person thought */
        case CG_EVENT_STREAM:
        case CG_EVENT_NOTICE:
        case CG_EVENT_KERNEL_DIED:
                text = cg_event_text(e, &len);
                print_safe("", text, len, 0);
                return 0;
        case CG_EVENT_EXECUTE_RESULT:
                text = cg_event_mime(e, "text/plain", &len);
                if (text)
                        print_safe("", text, len, 0);
                puts("");
                return 0;
        case CG_EVENT_ERROR: /* {"ename", "evalue", "traceback"}: a real host would parse it */
                text = cg_event_json(e, &len);
                print_safe("the cell raised: ", text, len, 300);
                puts("");
                return 0;
        default:
                return 0;
        }
}

/* Returns the cell's status, or negative. */
static int run(struct cg_session *s, const char *code, struct cg_err *err)
{
        int r = cg_session_execute(s, code, strlen(code), NULL, NULL, err);
        int status = -1;

        while (r == 0 && status < 0) {
                struct cg_event *e;

                r = cg_session_next_event(s, -1, &e, err);
                if (r != 0)
                        break;
                r = handle(s, e, err);
                if (cg_event_type(e) == CG_EVENT_RESULT)
                        status = (int)cg_event_status(e);
                cg_event_free(e);
        }
        return r == 0 ? status : -1;
}

int main(int argc, char **argv)
{
        struct cg_err err = { .msg = "the session ended early" };
        struct cg_client *client = NULL;
        struct cg_session *session = NULL;
        char *servers = NULL;
        size_t len;
        int status = -1;

        if (argc != 3 || !(servers = read_file(argv[1], &len))) {
                fprintf(stderr, "usage: approve MCP.json CODE\n");
                return 2;
        }
        if (cg_client_open(NULL, &client, &err) == 0 && cg_session_new(client, NULL, &session, &err) == 0 &&
            cg_session_add_mcp_servers(session, servers, len, 0, NULL, &err) == 0)
                status = run(session, argv[2], &err);
        if (status < 0)
                fprintf(stderr, "approve: %s\n", err.msg);
        cg_session_free(session);
        cg_client_close(client);
        free(servers);
        return status < 0 ? 2 : status != CG_STATUS_OK;
}
