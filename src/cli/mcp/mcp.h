/* `cellgate mcp`, but for `mcp serve` (cli/mcp_serve/). */
#ifndef CG_CLI_MCP_MCP_H
#define CG_CLI_MCP_MCP_H

#include "mcp/oauth.h"

/* argv[0] is "login" or "logout". */
int cg_cli_mcp_login(int argc, char **argv);
int cg_cli_mcp_logout(int argc, char **argv);

int cg_cli_mcp_accept(int argc, char **argv);

/* ---- listen.c: the redirect of a browser to this machine */

struct cg_listen {
        int fd;
        int port;
        char uri[64]; /* "http://127.0.0.1:PORT/callback" */
};
/* @port: 0: any. CG_E_EXISTS: another program uses it. */
int cg_listen_open(int port, struct cg_listen *ret, struct cg_err *err);
void cg_listen_close(struct cg_listen *l);
/*
 * Waits for the first redirect with @state; others get an error page. Closes the listener.
 * CG_E_TIMEDOUT.
 */
int cg_listen_wait(struct cg_listen *l, const char *state, int64_t timeout_ms, struct cg_oauth_redirect *ret,
                   struct cg_err *err);

#endif
