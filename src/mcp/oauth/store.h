/*
 * What is stored about the authorization at one MCP server: a JSON object in a file of mode 0600
 * in the state folder (cg_state_dir()), which no sandbox can read. One file for each name and URL
 * of a server, so that two accounts at one server are two names.
 *
 *      "name", "url"       of the server
 *      "client"            {"issuer", "id", "secret", "method", "redirect_uri", "expires_at"}: how
 *                          cellgate is registered; bound to that issuer
 *      "token"             {"issuer", "client_id", "resource", "access", "refresh", "scope",
 *                          "expires_at"}
 *      "wanted"            {"resource_metadata", "scope"}: of the challenge that needs a person
 *      "definition"        the member "oauth" of the server's definition without its secret, for
 *                          `cellgate mcp login NAME` without --mcp
 *
 * Runs in the tool server and in the command `cellgate`; all functions block.
 */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include "base/err.h"

/* The record (returns); one with "name" and "url" only where nothing is stored. */
int cg_oauth_store_load(const char *name, const char *url, json_t **ret, struct cg_err *err);
/*
 * The same, with the right to change it: other processes wait, at most CG_OAUTH_LOCK_MS. *lock: a
 * descriptor whose close gives the right back. @stop: ends the wait (CG_E_CLOSED); NULL: never.
 */
int cg_oauth_store_lock(const char *name, const char *url, const atomic_bool *stop, int *lock, json_t **ret,
                        struct cg_err *err);
/* Replaces what is stored, as a whole. The caller holds the lock. */
int cg_oauth_store_save(const json_t *record, struct cg_err *err);
/* The URLs of the servers of that name that something is stored about: an array (returns). */
int cg_oauth_store_urls(const char *name, json_t **ret, struct cg_err *err);
/* Removes what is stored; absent is fine. The caller holds the lock. */
int cg_oauth_store_remove(const char *name, const char *url, struct cg_err *err);
