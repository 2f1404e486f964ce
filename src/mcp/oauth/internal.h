/*
 * OAuth by file. Private to this folder.
 *
 *      parse.c      what servers send: pure functions
 *      discover.c   where the authorization server is, and what it offers
 *      token.c      requests to the token endpoint, and what is stored of their responses
 *      oauth.c      the header for the tool server, and its answer to challenges
 *      login.c      registration, the flow with a person, and the end of its tokens
 *      store.c      the files
 *      fetch.c      requests over HTTP that block
 *      work.c       all of it for the tool server's loop
 *      config.c     the member "oauth" of definitions
 */
#pragma once

#include "mcp/oauth/oauth.h"

/*
 * As the server's fetch(), which no other caller has. CG_E_INVAL: @q's URL is neither the
 * definition's nor of its "issuer", and leads to an address that this server may not name.
 */
int cg_oauth_send(const struct cg_oauth_server *s, struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                  struct cg_err *err);

struct cg_oauth_place {
        struct cg_oauth_resource resource; /* resource.resource: NULL: the server publishes none */
        struct cg_oauth_as as;
};
/*
 * In this order: protected resource metadata at @metadata_url (of a challenge; NULL: none), at the
 * well-known place for the server's path, at the one for its origin. Then the metadata of the
 * authorization server that it names. A server without protected resource metadata is its own
 * authorization server (2025-03-26), with /authorize, /token and /register where it publishes
 * nothing at all.
 */
int cg_oauth_discover(const struct cg_oauth_server *s, const char *metadata_url, struct cg_oauth_place *ret,
                      struct cg_err *err);
void cg_oauth_place_fini(struct cg_oauth_place *p);

/*
 * The client that the definition or @record has for that issuer; *ret is zeroed where there is
 * none. CG_E_INVAL: the definition's client is for another issuer.
 */
int cg_oauth_known_client(const struct cg_oauth_server *s, const json_t *record, const struct cg_oauth_as *as,
                          struct cg_oauth_client *ret, struct cg_err *err);

/*
 * Adds what proves the client to a request at an endpoint of @as: to @form, or as the value of the
 * header Authorization. Fails also when an earlier append to @form has.
 */
int cg_oauth_authenticate(const struct cg_oauth_as *as, const struct cg_oauth_client *client,
                          struct cg_buf *form, struct cg_buf *authorization, struct cg_err *err);

/* Sends @form to @url; @authorization: empty: without that header. */
int cg_oauth_post_form(const struct cg_oauth_server *s, const char *url, const struct cg_buf *form,
                       const struct cg_buf *authorization, struct cg_oauth_response *ret, struct cg_err *err);

/*
 * Sends @form, which has its grant and the parameters of that, and stores the token in @record.
 * @scope: what is asked for; NULL: what the server gives. CG_E_STATE: the grant or the client is
 * not accepted (any more); *error says why. Fails also when an append to @form has.
 */
int cg_oauth_request_token(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                           const struct cg_oauth_client *client, struct cg_buf *form, const char *scope,
                           json_t *record, char error[CG_OAUTH_ERROR_SIZE], struct cg_err *err);

/* A string of the object @object in a stored record; NULL: absent. */
const char *cg_oauth_member(const json_t *record, const char *object, const char *key);
/* Unix time in seconds. */
int64_t cg_oauth_now_s(void);
