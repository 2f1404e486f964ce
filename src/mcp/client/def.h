/* The definition of one MCP server: how the host says to start it. Never seen by a kernel. */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "base/secrets.h"
#include "mcp/oauth/oauth.h"

/* Descriptor of settings that are part of the definition. */
#define CG_MCP_SANDBOX_FD 3
/* Descriptor for denials and questions about hosts: the control channel of `cellgate sandbox`. */
#define CG_MCP_CONTROL_FD      4
#define CG_MCP_CONTROL_FD_TEXT "4"

enum cg_mcp_kind {
        CG_MCP_STDIO,
        CG_MCP_HTTP,      /* Streamable HTTP; HTTP+SSE where the server is that old */
        CG_MCP_HTTP_ONLY, /* Streamable HTTP, as the definition says */
        CG_MCP_SSE,       /* HTTP+SSE of revision 2024-11-05 */
        CG_MCP_FUNCTIONS, /* no server: functions of the host, which the supervisor passes on */
        CG_MCP_AT_HOST,   /* a server of the host, on another machine: the supervisor passes calls on */
};

/* Which of the protocol's two eras: mcp/client/handshake.c. */
enum cg_mcp_era {
        CG_MCP_AUTO,   /* found out */
        CG_MCP_LEGACY, /* initialize: 2024-11-05 to 2025-11-25 */
        CG_MCP_MODERN, /* stateless: 2026-07-28 */
};

struct cg_mcp_def {
        char *name;  /* as registered */
        char *label; /* what may be shown of it: the program, or the URL's scheme and host */
        enum cg_mcp_kind kind;
        enum cg_mcp_era era;
        uint64_t digest;          /* of the definition: the same for the same one */
        int64_t call_timeout_ms;  /* "timeout"; 0: not given */
        unsigned max_concurrency; /* "maxConcurrency"; 0: not given */
        bool eager;               /* "start": "eager": it is started when it is added */
        bool roots;               /* "roots": it learns the session's workspace */
        char *note;               /* for the log: what of the definition has no effect; NULL: nothing */

        /* ---- HTTP */
        char *url;
        char **headers; /* "Name: value", NULL-terminated */
        char *ca_file;
        char *proxy, *no_proxy; /* of "env"; NULL: not given */
        /* off also where "headers" has an Authorization: a token would contradict it */
        struct cg_oauth_config oauth;

        /* ---- stdio; cleared for HTTP */
        char *command;
        /*
         * NULL-terminated; of the program to start: the command's, or the sandbox's with the
         * command behind it
         */
        char **argv;
        /* program that runs the command in a sandbox; NULL: none */
        char *sandbox;
        /* its settings, to be read from descriptor CG_MCP_SANDBOX_FD; NULL: they are in a file */
        char *sandbox_text;
        bool reports;              /* it runs in a sandbox of ours, which has a socket at CG_MCP_CONTROL_FD */
        char **envp;               /* the whole environment of the server, NULL-terminated */
        char *search_path;         /* where a command without a slash is looked for; NULL: nowhere */
        char *cwd;                 /* NULL: ours */
        int64_t start_timeout_ms;  /* "startTimeout"; 0: not said */
        struct cg_secrets secrets; /* values of env, of headers and of variables */
};

/*
 * Reads the keys of docs/mcp-servers.md; "inherit", "base", "hide" and "ask" are the supervisor's.
 * "sandbox" is an absolute path of a settings file (docs/settings.md) or such an object itself.
 * Other members are ignored: clients have many. Each error names the server and the member.
 * "startTimeout" is in seconds; "timeout", which limits a call, too, but in milliseconds above
 * 3600: clients differ. "inherit", {"NAME": "VALUE"}, takes the place of what the server would
 * inherit. Of the "env" of an HTTP server only the variables of proxies are used.
 * "secrets" are values that must not be shown (cg_json_expand_server()).
 * Of "base", "hide" and "ask", which the supervisor adds, and which are for sandboxed servers only,
 * "base" is the folder where relative entries of the sandbox's settings begin (absent: where the
 * server starts), "hide" are files that the sandbox hides, and "ask" is the time in seconds for
 * questions about hosts (absent: nobody is asked).
 * @environ_: environment to take HOME LOGNAME PATH SHELL TERM USER LANG LC_* TMPDIR from; nothing
 *            else of it is passed on.
 */
int cg_mcp_def_new(const char *name, const json_t *definition, char *const *environ_, struct cg_mcp_def **ret,
                   struct cg_err *err);
/* That of what the host carries out: CG_MCP_FUNCTIONS or CG_MCP_AT_HOST. */
int cg_mcp_def_of_host(const char *name, enum cg_mcp_kind kind, struct cg_mcp_def **ret, struct cg_err *err);
struct cg_mcp_def *cg_mcp_def_free(struct cg_mcp_def *d);

/*
 * A server's name: 1 to CG_MAX_NAME bytes that can stand in a path, a log line, an approval prompt
 * and a rule; not "cellgate".
 */
int cg_mcp_check_name(const char *name, struct cg_err *err);

/* Replaces the definition's secrets in @text (changed in place, never longer) by "***". */
void cg_mcp_def_redact(const struct cg_mcp_def *d, char *text);
