/*
 * What servers send about OAuth: challenges, metadata documents, token and registration responses.
 * Pure functions over bytes of others, each with limits; nothing is fetched, and nothing
 * of this machine read but its own addresses.
 */
#pragma once

#include "base/addr.h"
#include "base/buf.h"

/* ---- URLs */

/* Parts of an absolute http or https URL; slices of the text. */
struct cg_oauth_url {
        bool https;
        enum cg_addr_class class; /* by cg_host_class(): a name is not looked up */
        unsigned port;
        const char *host, *path, *query; /* path: "" or from "/" on, up to the "?"; query: NULL none */
        size_t host_len, path_len;
        size_t origin_len; /* bytes of the text before the path */
};

/*
 * CG_E_INVAL: @what is no URL that OAuth may use: only https, and http on this machine
 * (cg_host_is_this_machine()); a host, no
 * user, no fragment, only ASCII characters of URLs, at most CG_OAUTH_MAX_URL bytes.
 */
int cg_oauth_url_parse(const char *url, const char *what, struct cg_oauth_url *ret, struct cg_err *err);
bool cg_oauth_url_same_origin(const struct cg_oauth_url *a, const struct cg_oauth_url *b);
/*
 * True if the metadata's resource identifier @resource stands for the server at @url: the same
 * origin, and a path that is the URL's or one above it.
 */
bool cg_oauth_resource_covers(const char *resource, const char *url);

/* ---- scopes: names separated by one space each */

/*
 * Adds the scopes of @more (NULL: none) that the set does not have (@set: NULL is empty; replaced).
 * CG_E_PARSE: characters that no scope has; CG_E_LIMIT.
 */
int cg_oauth_scopes_add(char **set, const char *more, struct cg_err *err);
/* True if @set (may be NULL) has all scopes of @wanted. */
bool cg_oauth_scopes_have(const char *set, const char *wanted);

/* ---- WWW-Authenticate */

struct cg_oauth_challenge {
        bool bearer; /* there is a challenge of the scheme Bearer: the rest is of the first one */
        char *resource_metadata, *scope, *error; /* NULL: not given */
};

/*
 * Reads one header value with any number of challenges; a Bearer challenge that an earlier call
 * found is kept. Malformed parts are skipped. CG_E_NOMEM only.
 */
int cg_oauth_challenge_add(struct cg_oauth_challenge *c, const char *value, struct cg_err *err);
void cg_oauth_challenge_fini(struct cg_oauth_challenge *c);

/* ---- documents; _fini() copes with zeroed structs */

/* Protected resource metadata, RFC 9728. */
struct cg_oauth_resource {
        char *resource;
        char *issuer; /* the first authorization server */
        char *scopes; /* scopes_supported; NULL: not given */
};
int cg_oauth_resource_parse(const char *text, size_t len, struct cg_oauth_resource *ret, struct cg_err *err);
void cg_oauth_resource_fini(struct cg_oauth_resource *r);

/* Methods of a client to authenticate at the token endpoint. */
enum {
        CG_OAUTH_NONE = 1,
        CG_OAUTH_BASIC = 2, /* client_secret_basic */
        CG_OAUTH_POST = 4,  /* client_secret_post */
};
/* 0: a method that is not supported. */
unsigned cg_oauth_method(const char *name);
const char *cg_oauth_method_name(unsigned method);

/* Authorization server metadata, RFC 8414, or the OpenID provider's. */
struct cg_oauth_as {
        char *issuer, *authorization_endpoint, *token_endpoint;
        char *registration_endpoint; /* NULL: none */
        char *revocation_endpoint;   /* RFC 7009; NULL: none */
        char *jwks_uri;              /* the keys of its tokens; NULL: none */
        unsigned methods;            /* CG_OAUTH_* */
        bool s256;                   /* PKCE with SHA-256 */
        bool client_id_documents;    /* a client id may be the URL of a metadata document */
        bool sends_iss;              /* RFC 9207 */
        bool offline_access;         /* the scope of that name is supported */
        bool assumed;                /* no metadata is published: the endpoints are 2025-03-26's */
};
/*
 * CG_E_PARSE: not such a document; CG_E_INVAL: one that must not be used. @issuer: what the
 * document's issuer must equal, byte by byte; NULL: not compared.
 */
int cg_oauth_as_parse(const char *text, size_t len, const char *issuer, struct cg_oauth_as *ret,
                      struct cg_err *err);
void cg_oauth_as_fini(struct cg_oauth_as *as);

/* A client's registration, RFC 7591. */
struct cg_oauth_client {
        char *id, *secret; /* secret: NULL none */
        unsigned method;   /* CG_OAUTH_*; 0: the response does not say */
        int64_t expires_s; /* of the secret, Unix time; 0: never */
};
int cg_oauth_client_parse(const char *text, size_t len, struct cg_oauth_client *ret, struct cg_err *err);
void cg_oauth_client_fini(struct cg_oauth_client *c);

struct cg_oauth_token {
        char *access, *refresh, *scope; /* refresh, scope: NULL: not given */
        int64_t lifetime_s;             /* 0: not given */
};
int cg_oauth_token_parse(const char *text, size_t len, struct cg_oauth_token *ret, struct cg_err *err);
void cg_oauth_token_fini(struct cg_oauth_token *t);
/*
 * The "error" of a failed response, such as "invalid_grant", "" when there is none or it is
 * malformed. It consists of letters, digits, "_", "-" and ".".
 */
#define CG_OAUTH_ERROR_SIZE 64
void cg_oauth_error_parse(const char *text, size_t len, char ret[CG_OAUTH_ERROR_SIZE]);

/* ---- the redirect after authorization */

/* Decoded parameters of a query; NULL: absent. */
struct cg_oauth_redirect {
        char *code, *state, *iss, *error;
};
/* CG_E_PARSE: malformed, or a parameter is repeated. */
int cg_oauth_redirect_parse(const char *query, size_t len, struct cg_oauth_redirect *ret, struct cg_err *err);
void cg_oauth_redirect_fini(struct cg_oauth_redirect *r);

/*
 * Appends "&" unless at the start or behind "?", then NAME=VALUE with VALUE percent-encoded. @value:
 * NULL: nothing is appended.
 */
void cg_oauth_form_add(struct cg_buf *b, const char *name, const char *value);
