/* Registration, the flow with a person, and the end of its tokens. See internal.h. */
#include "mcp/oauth/internal.h"

#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include "base/base64.h"
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/store.h"

#define CLIENT_NAME "cellgate"
/* Bytes of the state, and of the PKCE verifier; twice as many characters. */
#define STATE_BYTES    16
#define VERIFIER_BYTES 32

static const char *member(const json_t *record, const char *object, const char *key)
{
        return json_string_value(json_object_get(json_object_get(record, object), key));
}

int cg_oauth_registered_redirect(const struct cg_oauth_server *s, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *record = NULL;
        int r = cg_oauth_store_load(s->name, s->url, &record, err);
        const char *uri = r == 0 ? member(record, "client", "redirect_uri") : NULL;

        *ret = uri ? strdup(uri) : NULL;
        return r == 0 && uri && !*ret ? cg_fail(err, CG_E_NOMEM, "redirect") : r;
}

/* Registers a client for @redirect_uri and puts it into @record. */
static int register_client(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                           const char *redirect_uri, const char *scope, json_t *record,
                           struct cg_oauth_client *ret, struct cg_err *err)
{
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        unsigned methods = p->as.methods;
        unsigned method = methods & CG_OAUTH_NONE    ? CG_OAUTH_NONE
                          : methods & CG_OAUTH_BASIC ? CG_OAUTH_BASIC
                          : methods & CG_OAUTH_POST  ? CG_OAUTH_POST
                                                     : CG_OAUTH_NONE;
        cg_auto_json json_t *j = json_pack("{ss s[s] s[ss] s[s] ss ss ss*}", "client_name", CLIENT_NAME,
                                           "redirect_uris", redirect_uri, "grant_types", "authorization_code",
                                           "refresh_token", "response_types", "code", "application_type",
                                           "native", "token_endpoint_auth_method",
                                           cg_oauth_method_name(method), "scope", scope);
        cg_auto_free char *body = j ? cg_json_text(j, &(size_t){ 0 }) : NULL;
        struct cg_oauth_fetch q = { .url = p->as.registration_endpoint,
                                    .body = body,
                                    .content_type = "application/json" };
        char error[CG_OAUTH_ERROR_SIZE];
        struct cg_oauth_client c = { 0 };
        json_t *stored;
        int r = body ? cg_oauth_send(s, &q, &answer, err) : cg_fail(err, CG_E_NOMEM, "client registration");

        if (r == 0 && answer.status != 200 && answer.status != 201) {
                cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
                r = cg_fail(err, CG_E_STATE, "client registration: %s answered %d%s%s",
                            p->as.registration_endpoint, answer.status, *error ? ", " : "", error);
        }
        if (r == 0)
                r = cg_oauth_client_parse(answer.body.data ?: "", answer.body.len, &c, err);
        cg_oauth_response_fini(&answer);
        if (r < 0)
                return r;
        stored = json_pack("{ss ss ss* ss* ss sI}", "issuer", p->as.issuer, "id", c.id, "secret", c.secret,
                           "method", c.method ? cg_oauth_method_name(c.method) : NULL, "redirect_uri",
                           redirect_uri, "expires_at", (json_int_t)c.expires_s);
        if (!stored || json_object_set_new(record, "client", stored) < 0) {
                cg_oauth_client_fini(&c);
                return cg_fail(err, CG_E_NOMEM, "client registration");
        }
        *ret = c;
        return 0;
}

static int find_client(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                       const char *redirect_uri, const char *scope, json_t *record,
                       struct cg_oauth_client *ret, struct cg_err *err)
{
        const char *registered = member(record, "client", "redirect_uri");
        int r;

        /* A registered client is for its own redirect URI. */
        if (registered && strcmp(registered, redirect_uri) != 0)
                json_object_del(record, "client");
        r = cg_oauth_known_client(s, record, &p->as, ret, err);
        if (r < 0 || ret->id)
                return r;
        if (p->as.registration_endpoint)
                return register_client(s, p, redirect_uri, scope, record, ret, err);
        return cg_fail(
                err, CG_E_STATE,
                "the authorization server %s does not register clients by itself: register one there with the "
                "redirect URI http://127.0.0.1/callback, and put \"oauth\": {\"clientId\": ...} into the "
                "definition of \"%s\"",
                p->as.issuer, s->name);
}

/*
 * The challenge that a request without a token gets: what it says about metadata and scopes. Its
 * absence is no failure.
 */
static int probe(const struct cg_oauth_server *s, struct cg_oauth_challenge *ret, struct cg_err *err)
{
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        struct cg_oauth_fetch q = { .url = s->url,
                                    .body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
                                    .content_type = "application/json" };
        int r = cg_oauth_send(s, &q, &answer, err);

        if (r == 0) {
                *ret = answer.challenge;
                answer.challenge = (struct cg_oauth_challenge){ 0 };
        }
        cg_oauth_response_fini(&answer);
        /* A body over its limit, such as a stream without end, means that no token is needed. */
        return r == CG_E_LIMIT ? 0 : r;
}

/*
 * Chooses the scopes to ask for: the definition's and the challenge's, else all that the server
 * has, else none, and the authorization server decides. offline_access is for a refresh token.
 */
static int choose_scope(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                        const char *challenge, char **ret, struct cg_err *err)
{
        char *scope = NULL;
        int r = 0;

        if (s->config->scopes)
                r = cg_oauth_scopes_add(&scope, s->config->scopes, err);
        if (r == 0 && challenge)
                r = cg_oauth_scopes_add(&scope, challenge, err);
        if (r == 0 && !scope && p->resource.scopes)
                r = cg_oauth_scopes_add(&scope, p->resource.scopes, err);
        if (r == 0 && scope && p->as.offline_access)
                r = cg_oauth_scopes_add(&scope, "offline_access", err);
        if (r < 0)
                free(scope);
        else
                *ret = scope;
        return r;
}

/* The S256 challenge of RFC 7636: base64url of the digest, without padding. */
static void pkce_challenge(const char *verifier, char ret[64])
{
        unsigned char digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;

        sha256_init(&sha);
        sha256_update(&sha, strlen(verifier), (const uint8_t *)verifier);
        sha256_digest(&sha, sizeof(digest), digest);
        memset(ret, 0, 64);
        cg_base64(ret, digest, sizeof(digest));
        for (char *p = ret; *p; p++)
                *p = (char)(*p == '+' ? '-' : *p == '/' ? '_' : *p == '=' ? '\0' : *p);
}

static int authorization_url(const struct cg_oauth_place *p, const char *client_id, const char *redirect_uri,
                             const char *state, const char *verifier, const char *scope, struct cg_buf *b,
                             struct cg_err *err)
{
        char challenge[64];
        int r = cg_buf_try_adds(b, p->as.authorization_endpoint, err);

        pkce_challenge(verifier, challenge);
        if (r == 0 && !strchr(p->as.authorization_endpoint, '?'))
                r = cg_buf_try_adds(b, "?", err);
        if (r == 0)
                r = cg_oauth_form_add(b, "response_type", "code", err);
        if (r == 0)
                r = cg_oauth_form_add(b, "client_id", client_id, err);
        if (r == 0)
                r = cg_oauth_form_add(b, "redirect_uri", redirect_uri, err);
        if (r == 0)
                r = cg_oauth_form_add(b, "state", state, err);
        if (r == 0)
                r = cg_oauth_form_add(b, "code_challenge", challenge, err);
        if (r == 0)
                r = cg_oauth_form_add(b, "code_challenge_method", "S256", err);
        if (r == 0 && scope)
                r = cg_oauth_form_add(b, "scope", scope, err);
        if (r == 0 && p->resource.resource)
                r = cg_oauth_form_add(b, "resource", p->resource.resource, err);
        return r;
}

/* The issuer is compared first: nothing of a response of another server is shown. */
static int check_redirect(const struct cg_oauth_redirect *q, const char *state, const struct cg_oauth_as *as,
                          struct cg_err *err)
{
        if (!q->state || strlen(q->state) != strlen(state) || !memeql_sec(q->state, state, strlen(state)))
                return cg_fail(err, CG_E_PROTO, "the redirect is not the answer to this login");
        if (q->iss ? strcmp(q->iss, as->issuer) != 0 : as->sends_iss)
                return cg_fail(
                        err, CG_E_PROTO,
                        "the redirect %s, so it may be of another authorization server than %s: nothing was "
                        "sent to it",
                        q->iss ? "names another issuer" : "names no issuer, which this server announces",
                        as->issuer);
        if (q->error)
                return cg_fail(err, CG_E_STATE, "the authorization server refused: %.100s", q->error);
        if (!q->code || !*q->code)
                return cg_fail(err, CG_E_PROTO, "the redirect has no code");
        return 0;
}

/* From the URL that the person opens to the token in @record. */
static int authorize(const struct cg_oauth_server *s, const struct cg_oauth_login *login,
                     const struct cg_oauth_place *p, const struct cg_oauth_client *client, const char *scope,
                     json_t *record, struct cg_err *err)
{
        cg_auto_buf struct cg_buf url = { .max = CG_OAUTH_MAX_FORM }, form = { .max = CG_OAUTH_MAX_FORM };
        char state[2 * STATE_BYTES + 1], verifier[2 * VERIFIER_BYTES + 1], error[CG_OAUTH_ERROR_SIZE];
        struct cg_oauth_redirect redirect = { 0 };
        int r = cg_random_hex(state, STATE_BYTES, err);

        if (r == 0)
                r = cg_random_hex(verifier, VERIFIER_BYTES, err);
        if (r == 0)
                r = authorization_url(p, client->id, login->redirect_uri, state, verifier, scope, &url, err);
        if (r == 0)
                r = login->authorize(login->data, url.data, state, &redirect, err);
        if (r == 0)
                r = check_redirect(&redirect, state, &p->as, err);
        if (r == 0)
                r = cg_buf_try_adds(&form, "grant_type=authorization_code", err);
        if (r == 0)
                r = cg_oauth_form_add(&form, "code", redirect.code, err);
        if (r == 0)
                r = cg_oauth_form_add(&form, "redirect_uri", login->redirect_uri, err);
        if (r == 0)
                r = cg_oauth_form_add(&form, "code_verifier", verifier, err);
        if (r == 0) {
                /* An earlier token is replaced whole, with its refresh token and its scopes. */
                json_object_del(record, "token");
                r = cg_oauth_request_token(s, p, client, &form, NULL, record, error, err);
        }
        /* By RFC 6749 a response without scope means: what was asked for. */
        if (r == 0 && scope && !member(record, "token", "scope") &&
            json_object_set_new(json_object_get(record, "token"), "scope", json_string(scope)) < 0)
                r = cg_fail(err, CG_E_NOMEM, "token");
        explicit_bzero(verifier, sizeof(verifier));
        cg_oauth_redirect_fini(&redirect);
        return r;
}

int cg_oauth_login(const struct cg_oauth_server *s, const struct cg_oauth_login *login, char **scope,
                   struct cg_err *err)
{
        cg_auto_json json_t *record = NULL, *now = NULL;
        struct cg_oauth_challenge challenge = { 0 };
        struct cg_oauth_client client = { 0 };
        struct cg_oauth_place p = { 0 };
        cg_auto_free char *asked = NULL;
        cg_auto_fd int lock = -1;
        const char *metadata_url;
        int r = cg_oauth_store_load(s->name, s->url, &record, err);

        /* What is wanted may be known; where the server is, and so what it may name, is not. */
        if (r == 0)
                r = probe(s, &challenge, err);
        metadata_url = member(record, "wanted", "resource_metadata") ?: challenge.resource_metadata;
        if (r == 0)
                r = cg_oauth_discover(s, metadata_url, &p, err);
        if (r == 0 && !p.as.authorization_endpoint)
                r = cg_fail(err, CG_E_UNSUPPORTED, "the authorization server %s has no page to sign in at",
                            p.as.issuer);
        if (r == 0 && !p.as.s256)
                r = cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "the authorization server %s does not announce PKCE with S256: codes could be stolen on "
                        "their way, so cellgate does not sign in there",
                        p.as.issuer);
        if (r == 0)
                r = choose_scope(s, &p, member(record, "wanted", "scope") ?: challenge.scope, &asked, err);
        if (r == 0)
                r = find_client(s, &p, login->redirect_uri, asked, record, &client, err);
        if (r == 0)
                r = authorize(s, login, &p, &client, asked, record, err);
        /* The lock is not held while a person signs in; the newer login wins. */
        if (r == 0)
                r = cg_oauth_store_lock(s->name, s->url, s->stop, &lock, &now, err);
        if (r == 0) {
                json_object_del(record, "wanted");
                r = cg_oauth_store_save(record, err);
        }
        if (r == 0 && scope) {
                const char *granted = member(record, "token", "scope");

                *scope = granted ? strdup(granted) : NULL;
        }
        cg_oauth_client_fini(&client);
        cg_oauth_place_fini(&p);
        cg_oauth_challenge_fini(&challenge);
        return r;
}

static int revoke_one(const struct cg_oauth_server *s, const struct cg_oauth_as *as,
                      const struct cg_oauth_client *client, const char *token, const char *kind,
                      struct cg_err *err)
{
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        cg_auto_buf struct cg_buf form = { .max = CG_OAUTH_MAX_FORM },
                                  authorization = { .max = CG_OAUTH_MAX_FORM };
        struct cg_oauth_fetch q = { .url = as->revocation_endpoint,
                                    .content_type = "application/x-www-form-urlencoded" };
        char error[CG_OAUTH_ERROR_SIZE];
        int r = cg_oauth_form_add(&form, "token", token, err);

        if (r == 0)
                r = cg_oauth_form_add(&form, "token_type_hint", kind, err);
        if (r == 0)
                r = cg_oauth_authenticate(as, client, &form, &authorization, err);
        q.body = form.data;
        q.authorization = authorization.len ? authorization.data : NULL;
        if (r == 0)
                r = cg_oauth_send(s, &q, &answer, err);
        if (r == 0 && answer.status != 200) {
                cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
                r = cg_fail(err, CG_E_STATE, "%s answered %d%s%s", q.url, answer.status, *error ? ", " : "",
                            error);
        }
        cg_oauth_response_fini(&answer);
        return r;
}

int cg_oauth_revoke(const struct cg_oauth_server *s, const json_t *record, bool *some, struct cg_err *err)
{
        static const char *const kinds[][2] = { { "refresh", "refresh_token" },
                                                { "access", "access_token" } };
        const char *issuer = member(record, "token", "issuer"), *token;
        struct cg_oauth_challenge challenge = { 0 };
        struct cg_oauth_client client = { 0 };
        struct cg_oauth_place p = { 0 };
        struct cg_err why;
        int r = probe(s, &challenge, err), one;
        bool ready;

        *some = false;
        if (r == 0)
                r = cg_oauth_discover(s, challenge.resource_metadata, &p, err);
        /* Tokens of another issuer are never sent to this one. */
        if (r == 0 && (!issuer || strcmp(issuer, p.as.issuer) != 0))
                r = cg_fail(err, CG_E_INVAL, "they are of %s, and the server names %s now",
                            issuer ?: "no issuer", p.as.issuer);
        if (r == 0 && !p.as.revocation_endpoint)
                r = cg_fail(err, CG_E_UNSUPPORTED,
                            "the authorization server %s does not offer to revoke tokens", p.as.issuer);
        if (r == 0)
                r = cg_oauth_known_client(s, record, &p.as, &client, err);
        if (r == 0 && !client.id)
                r = cg_fail(err, CG_E_STATE, "the registration of their client at %s has ended", p.as.issuer);
        ready = r == 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds) && ready; i++)
                if ((token = member(record, "token", kinds[i][0]))) {
                        one = revoke_one(s, &p.as, &client, token, kinds[i][1], &why);
                        *some = *some || one == 0;
                        if (one < 0 && r == 0) { /* the first failure is reported */
                                r = one;
                                if (err)
                                        *err = why;
                        }
                }
        cg_oauth_client_fini(&client);
        cg_oauth_place_fini(&p);
        cg_oauth_challenge_fini(&challenge);
        return r;
}
