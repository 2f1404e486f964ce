/* `cellgate mcp`, but for `mcp serve` (cli/mcp_serve/). */
#pragma once

#include <jansson.h>
#include <linux/limits.h>
#include "mcp/oauth/oauth.h"

/* argv[0] is "login" or "logout". */
int cg_cli_mcp_login(int argc, char **argv);

/* argv[0] is "add", "list", "show", "remove", "tools" or "call". */
int cg_cli_mcp_servers(int argc, char **argv);

/* ---- file.c: the file of MCP servers */

struct cg_mcp_config {
        char path[PATH_MAX];     /* as it was given, for messages */
        int folder;              /* it is in this one when it is changed; -1: it is not */
        char name[NAME_MAX + 1]; /* in the folder */
        int lock;                /* of all such files; -1: it is not changed */
        json_t *file;            /* all of it */
        json_t *servers;         /* where the definitions are in it (borrowed) */
        bool absent;             /* there is no such file yet */
};
/*
 * @file: NULL: the one of this folder, or of the user where @user. Absent is an empty one. @change:
 * it will be saved, and other processes that change it wait until cg_mcp_config_fini().
 */
int cg_mcp_config_load(const char *file, bool user, bool change, struct cg_mcp_config *ret,
                       struct cg_err *err);
void cg_mcp_config_fini(struct cg_mcp_config *c);
/* The definition of @name (borrowed). CG_E_NOTFOUND. */
int cg_mcp_config_get(const struct cg_mcp_config *c, const char *name, json_t **ret, struct cg_err *err);
/* Writes the file; running sandboxes that hide it still do. */
int cg_mcp_config_save(const struct cg_mcp_config *c, struct cg_err *err);

/* ---- listen.c: the redirect of a browser to this machine */

struct cg_listen {
        int fd;
        int port;
        char uri[64]; /* "http://127.0.0.1:PORT/callback" */
};
/* @port: 0: any. CG_E_EXISTS: another program uses it. */
int cg_listen_open(int port, struct cg_listen *ret, struct cg_err *err);
void cg_listen_close(struct cg_listen *l);
/* Waits for the first redirect with @state, then closes; others get an error. CG_E_TIMEDOUT. */
int cg_listen_wait(struct cg_listen *l, const char *state, int64_t timeout_ms, struct cg_oauth_redirect *ret,
                   struct cg_err *err);
