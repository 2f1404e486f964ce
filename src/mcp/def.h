/*
 * The definition of one MCP server: what the host says about how to start it. Never seen by a
 * kernel.
 */
#ifndef CG_MCP_DEF_H
#define CG_MCP_DEF_H

#include <jansson.h>
#include "base/buf.h"
#include "base/err.h"

/* Where a sandbox finds settings that stand in the definition itself. */
#define CG_MCP_SANDBOX_FD 3

struct cg_mcp_def {
        char *name; /* as registered */
        char *command;
        /*
         * NULL-terminated; of the program to start: the command's, or the sandbox's with the
         * command behind it
         */
        char **argv;
        /* program that runs the command in a sandbox; NULL: none (static text) */
        const char *sandbox;
        /* its settings, to be read from descriptor CG_MCP_SANDBOX_FD; NULL: they are in a file */
        char *sandbox_text;
        char **envp;              /* the whole environment of the server, NULL-terminated */
        char *search_path;        /* where a command without a slash is looked for; NULL: nowhere */
        char *cwd;                /* NULL: ours */
        int64_t start_timeout_ms; /* "startTimeout"; 0: not said */
        /* values of the definition's env that must not be shown; NULL-terminated */
        char **secrets;
};

/*
 * Reads {"command", "args", "env", "cwd", "sandbox"}; the last is an absolute path of a settings
 * file (docs/settings.md) or such an object itself. Other members (clients have many: "disabled",
 * "autoApprove", ...) are ignored, but a definition of another transport is CG_E_UNSUPPORTED. Each
 * error names the server and the member. "startTimeout" is in seconds. "inherit", {"NAME":
 * "VALUE"}, takes the place of what the server would inherit.
 * @environ_: environment to take HOME LOGNAME PATH SHELL TERM USER LANG LC_* TMPDIR from; nothing
 *            else of it is passed on.
 */
int cg_mcp_def_new(const char *name, const json_t *definition, char *const *environ_, struct cg_mcp_def **ret,
                   struct cg_err *err);
struct cg_mcp_def *cg_mcp_def_free(struct cg_mcp_def *d);

/*
 * A server's name: 1 to CG_MAX_NAME bytes that can stand in a path, a log line, an approval prompt
 * and a rule; not "cellgate".
 */
int cg_mcp_check_name(const char *name, struct cg_err *err);

/* Replaces the definition's secrets in @text (changed in place, never longer) by "***". */
void cg_mcp_def_redact(const struct cg_mcp_def *d, char *text);

#endif
