/*
 * OAuth for MCP servers over HTTP: the client's side of the protocol's authorization, revisions
 * 2025-03-26 to 2026-07-28. docs/oauth.md describes it for users.
 *
 * All functions block: the tool server runs them in threads (work.h), the command
 * `cellgate mcp login` in its only one. Requests go through struct cg_oauth_server's fetch().
 * Tokens and secrets appear in no error.
 */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include "mcp/oauth/parse.h"

/* The member "oauth" of a definition. Zeroed: nothing is given. */
struct cg_oauth_config {
        bool off;                /* "oauth": false: a 401 is the server's answer, and no more */
        bool client_credentials; /* "grantType": "client_credentials": no person signs in */
        char *client_id, *client_secret;
        char *issuer;              /* of the authorization server that knows the client; NULL: not given */
        char *client_metadata_url; /* "clientMetadataUrl": URL of a client id metadata document */
        char *scopes;              /* "scopes", an array or a string; or "scope" */
        int callback_port;         /* "callbackPort"; 0: any */
};
/* @oauth: NULL or null: nothing is given. CG_E_INVAL names @server and the member. */
int cg_oauth_config_parse(const char *server, const json_t *oauth, struct cg_oauth_config *ret,
                          struct cg_err *err);
void cg_oauth_config_fini(struct cg_oauth_config *c);

/* ---- requests */

struct cg_oauth_fetch {
        const char *url;
        const char *body;          /* NULL: GET */
        const char *content_type;  /* of @body */
        const char *authorization; /* header value; NULL: none */
        /* As in struct cg_http_request; set by cg_oauth_send(). */
        bool foreign;
        enum cg_addr_class named_by;
};
struct cg_oauth_response {
        int status;
        struct cg_buf body; /* at most CG_OAUTH_MAX_DOCUMENT */
        struct cg_oauth_challenge challenge;
        enum cg_addr_class peer; /* as cg_http_peer() */
};
void cg_oauth_response_fini(struct cg_oauth_response *r);
/*
 * Negative: no response. @ret is zeroed by the caller, and freed by it in any case. Redirects of a
 * GET within its origin are followed, others are responses.
 */
typedef int (*cg_oauth_fetch_fn)(void *data, const struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                                 struct cg_err *err);

/* A server; all borrowed. */
struct cg_oauth_server {
        const char *name, *url;
        const struct cg_oauth_config *config;
        cg_oauth_fetch_fn fetch;
        void *data;              /* of fetch() */
        const atomic_bool *stop; /* ends a wait for other processes; NULL: never */
        /*
         * Where the server is, as far as its responses have shown it: what it may name
         * (cg_addr_class_may_name()). Changed by cg_oauth_send().
         */
        enum cg_addr_class *place;
        /*
         * Gets why no token can be had, for the log: errors that kernels see do not say it, because
         * the server could have this machine ask any address. NULL: errors say it.
         */
        struct cg_err *cause;
};

/*
 * The key set of the authorization server whose issuer is @s->url; @ret as for fetch().
 * CG_E_NOTFOUND: it publishes none.
 */
int cg_oauth_issuer_keys(const struct cg_oauth_server *s, struct cg_oauth_response *ret, struct cg_err *err);

/* ---- without a person */

/*
 * Value of the header Authorization for requests to the server; NULL: none is known, and the
 * server may not need one. A token whose life ends is refreshed first. The caller frees it.
 */
int cg_oauth_authorization(const struct cg_oauth_server *s, char **ret, struct cg_err *err);

/*
 * After a response 401 or 403 with @challenge to a request with the header value @refused (NULL:
 * none): another value, with which the request may be sent again. CG_E_STATE: a person has to sign
 * in; the message says how. Any other failure: it cannot be had. The caller limits its attempts to
 * CG_OAUTH_MAX_ATTEMPTS for each request.
 */
#define CG_OAUTH_MAX_ATTEMPTS 3
int cg_oauth_challenged(const struct cg_oauth_server *s, int status,
                        const struct cg_oauth_challenge *challenge, const char *refused, char **ret,
                        struct cg_err *err);

/* ---- with a person */

struct cg_oauth_login {
        const char *redirect_uri;
        /*
         * Shows @url to the person and waits for the redirect with @state; *ret gets its
         * parameters. Redirects with another state are not its answer.
         */
        int (*authorize)(void *data, const char *url, const char *state, struct cg_oauth_redirect *ret,
                         struct cg_err *err);
        void *data;
};
/* Signs in and stores the token. *scope (returns, may be NULL): what the token is for. */
int cg_oauth_login(const struct cg_oauth_server *s, const struct cg_oauth_login *login, char **scope,
                   struct cg_err *err);
/*
 * Asks the authorization server to end the tokens of @record, the refresh token first (RFC 7009).
 * *some (returns): it has ended at least one. CG_E_UNSUPPORTED: it announces no way to do that.
 */
int cg_oauth_revoke(const struct cg_oauth_server *s, const json_t *record, bool *some, struct cg_err *err);
/* The redirect URI of the registered client, for the same port again (returns); NULL: none. */
int cg_oauth_registered_redirect(const struct cg_oauth_server *s, char **ret, struct cg_err *err);
