/*
 * Access tokens of OAuth that are JWTs (RFC 7519, RFC 9068), and the keys that sign them (RFC
 * 7517). Pure functions over bytes of others; signatures are checked by GnuTLS. Used by the
 * verifier of cellgate-mcp-http only.
 */
#pragma once

#include "base/buf.h"
#include "mcp_http/wire.h"

/* Clocks differ. */
#define CG_JWT_SKEW_S 60

/* Public keys. CG_E_PARSE: no key set; CG_E_NOTFOUND: one without a key that can be used. */
struct cg_jwks;
int cg_jwks_parse(const char *text, size_t len, struct cg_jwks **ret, struct cg_err *err);
struct cg_jwks *cg_jwks_free(struct cg_jwks *k);

/*
 * Checks the signature of @token, of RS256, ES256 or EdDSA (Ed25519), and appends the text of its
 * claims to @claims. CG_JWT_NO_KEY: no key has the id that the token names; err says so as well.
 * Negative: it is no such token.
 */
#define CG_JWT_NO_KEY 1
int cg_jwt_verify(const struct cg_jwks *k, const char *token, struct cg_buf *claims, struct cg_err *err);

struct cg_jwt_rules {
        const char *issuer, *audience;
        const char *scope;    /* all of these, with spaces between; "": none is needed */
        const char *approver; /* instead: whose tokens have all of these decides; "": nobody */
        int64_t now_s;        /* Unix time */
};
/*
 * Whom the claims of a signed token are about, and for how many seconds from now on they hold.
 * CG_JWT_NO_SCOPE: they hold but lack a scope; err says which are needed. Negative: they do not.
 */
#define CG_JWT_NO_SCOPE 2
int cg_jwt_claims(const char *text, size_t len, const struct cg_jwt_rules *rules,
                  unsigned char owner[CG_HF_OWNER], int64_t *valid_s, struct cg_err *err);
