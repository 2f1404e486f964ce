/* Registration, the flow with a person, and the end of its tokens. See internal.h. */
#include "mcp/oauth/internal.h"

#include <nettle/memops.h>
#include "base/base64.h"
#include "base/json.h"
#include "base/sha256_hex.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/store.h"

#define CLIENT_NAME "cellgate"
/* Bytes of the state, and of the PKCE verifier; twice as many characters. */
#define STATE_BYTES    16
#define VERIFIER_BYTES 32
#define VERIFIER_SIZE  (2 * VERIFIER_BYTES + 1)

int cg_oauth_registered_redirect(const struct cg_oauth_server *s, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *record = NULL;
        const char *uri;
        int r = cg_oauth_store_load(s->name, s->url, &record, err);

        *ret = NULL;
        if (r < 0)
                return r;
        uri = cg_oauth_member(record, "client", "redirect_uri");
        if (uri && !(*ret = strdup(uri)))
                return cg_fail(err, CG_E_NOMEM, "redirect");
        return 0;
}

static unsigned registered_method(unsigned methods)
{
        if (methods & CG_OAUTH_NONE)
                return CG_OAUTH_NONE;
        if (methods & CG_OAUTH_BASIC)
                return CG_OAUTH_BASIC;
        return methods & CG_OAUTH_POST ? CG_OAUTH_POST : CG_OAUTH_NONE;
}

/* Registers a client for @redirect_uri and puts it into @record. */
static int register_client(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                           const char *redirect_uri, const char *scope, json_t *record,
                           struct cg_oauth_client *ret, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client c = { 0 };
        cg_auto_json json_t *j = json_pack(
                "{ss s[s] s[ss] s[s] ss ss ss*}", "client_name", CLIENT_NAME, "redirect_uris", redirect_uri,
                "grant_types", "authorization_code", "refresh_token", "response_types", "code",
                "application_type", "native", "token_endpoint_auth_method",
                cg_oauth_method_name(registered_method(p->as.methods)), "scope", scope);
        cg_auto_free char *body = cg_json_text(j, &(size_t){ 0 });
        struct cg_oauth_fetch q = { .url = p->as.registration_endpoint,
                                    .body = body,
                                    .content_type = "application/json" };
        char error[CG_OAUTH_ERROR_SIZE];
        json_t *stored;
        int r;

        if (!body)
                return cg_fail(err, CG_E_NOMEM, "client registration");
        r = cg_oauth_send(s, &q, &answer, err);
        if (r < 0)
                return r;
        if (answer.status != 200 && answer.status != 201) {
                cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
                return cg_fail(err, CG_E_STATE, "client registration: %s answered %d%s%s",
                               p->as.registration_endpoint, answer.status, cg_sep(*error, ", "), error);
        }
        r = cg_oauth_client_parse(answer.body.data ?: "", answer.body.len, &c, err);
        if (r < 0)
                return r;
        stored = json_pack("{ss ss ss* ss* ss sI}", "issuer", p->as.issuer, "id", c.id, "secret", c.secret,
                           "method", c.method ? cg_oauth_method_name(c.method) : NULL, "redirect_uri",
                           redirect_uri, "expires_at", (json_int_t)c.expires_s);
        if (!stored || json_object_set_new(record, "client", stored) < 0)
                return cg_fail(err, CG_E_NOMEM, "client registration");
        *ret = CG_TAKE(c);
        return 0;
}

static int find_client(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                       const char *redirect_uri, const char *scope, json_t *record,
                       struct cg_oauth_client *ret, struct cg_err *err)
{
        const char *registered = cg_oauth_member(record, "client", "redirect_uri");
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
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        struct cg_oauth_fetch q = { .url = s->url,
                                    .body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
                                    .content_type = "application/json" };
        int r = cg_oauth_send(s, &q, &answer, err);

        /* A body over its limit, such as a stream without end, means that no token is needed. */
        if (r < 0)
                return r == CG_E_LIMIT ? 0 : r;
        *ret = CG_TAKE(answer.challenge);
        return 0;
}

/*
 * Chooses the scopes to ask for: the definition's and the challenge's, else all that the server
 * has, else none, and the authorization server decides. offline_access is for a refresh token.
 */
static int choose_scope(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                        const char *challenge, char **ret, struct cg_err *err)
{
        cg_auto_free char *scope = NULL;
        int r;

        r = cg_oauth_scopes_add(&scope, s->config->scopes, err);
        if (r < 0)
                return r;
        r = cg_oauth_scopes_add(&scope, challenge, err);
        if (r < 0)
                return r;
        r = cg_oauth_scopes_add(&scope, scope ? NULL : p->resource.scopes, err);
        if (r < 0)
                return r;
        if (scope && p->as.offline_access)
                r = cg_oauth_scopes_add(&scope, "offline_access", err);
        *ret = CG_STEAL(scope);
        return r;
}

/* The S256 challenge of RFC 7636: base64url of the digest, without padding. */
static void pkce_challenge(const char *verifier, char ret[64])
{
        unsigned char digest[SHA256_DIGEST_SIZE];

        cg_sha256(verifier, strlen(verifier), digest);
        memset(ret, 0, 64);
        cg_base64(ret, digest, sizeof(digest));
        ret[strcspn(ret, "=")] = '\0';
        for (char *p = ret; (p = strpbrk(p, "+/")); p++)
                *p = *p == '+' ? '-' : '_';
}

static void authorization_url(const struct cg_oauth_place *p, const char *client_id, const char *redirect_uri,
                              const char *state, const char *verifier, const char *scope, struct cg_buf *b)
{
        char challenge[64];

        pkce_challenge(verifier, challenge);
        cg_buf_adds(b, p->as.authorization_endpoint);
        if (!strchr(p->as.authorization_endpoint, '?'))
                cg_buf_adds(b, "?");
        cg_oauth_form_add(b, "response_type", "code");
        cg_oauth_form_add(b, "client_id", client_id);
        cg_oauth_form_add(b, "redirect_uri", redirect_uri);
        cg_oauth_form_add(b, "state", state);
        cg_oauth_form_add(b, "code_challenge", challenge);
        cg_oauth_form_add(b, "code_challenge_method", "S256");
        cg_oauth_form_add(b, "scope", scope);
        cg_oauth_form_add(b, "resource", p->resource.resource);
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

static void wipe_verifier(char (*verifier)[VERIFIER_SIZE])
{
        explicit_bzero(*verifier, sizeof(*verifier));
}

/* From the URL that the person opens to the token in @record. */
static int authorize(const struct cg_oauth_server *s, const struct cg_oauth_login *login,
                     const struct cg_oauth_place *p, const struct cg_oauth_client *client, const char *scope,
                     json_t *record, struct cg_err *err)
{
        cg_auto_buf struct cg_buf url = { .max = CG_OAUTH_MAX_FORM }, form = { .max = CG_OAUTH_MAX_FORM };
        CG_CLEANUP(cg_oauth_redirect_fini) struct cg_oauth_redirect redirect = { 0 };
        char state[2 * STATE_BYTES + 1], error[CG_OAUTH_ERROR_SIZE];
        CG_CLEANUP(wipe_verifier) char verifier[VERIFIER_SIZE] = "";
        int r = cg_random_hex(state, STATE_BYTES, err);

        if (r < 0 || (r = cg_random_hex(verifier, VERIFIER_BYTES, err)) < 0)
                return r;
        authorization_url(p, client->id, login->redirect_uri, state, verifier, scope, &url);
        r = cg_buf_end(&url, err);
        if (r < 0)
                return r;
        r = login->authorize(login->data, url.data, state, &redirect, err);
        if (r < 0)
                return r;
        r = check_redirect(&redirect, state, &p->as, err);
        if (r < 0)
                return r;
        cg_oauth_form_add(&form, "grant_type", "authorization_code");
        cg_oauth_form_add(&form, "code", redirect.code);
        cg_oauth_form_add(&form, "redirect_uri", login->redirect_uri);
        cg_oauth_form_add(&form, "code_verifier", verifier);
        /* An earlier token is replaced whole, with its refresh token and its scopes. */
        json_object_del(record, "token");
        r = cg_oauth_request_token(s, p, client, &form, NULL, record, error, err);
        if (r < 0)
                return r;
        /* By RFC 6749 a response without scope means: what was asked for. */
        if (scope && !cg_oauth_member(record, "token", "scope") &&
            json_object_set_new(json_object_get(record, "token"), "scope", json_string(scope)) < 0)
                return cg_fail(err, CG_E_NOMEM, "token");
        return 0;
}

int cg_oauth_login(const struct cg_oauth_server *s, const struct cg_oauth_login *login, char **scope,
                   struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_challenge_fini) struct cg_oauth_challenge challenge = { 0 };
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client client = { 0 };
        CG_CLEANUP(cg_oauth_place_fini) struct cg_oauth_place p = { 0 };
        cg_auto_json json_t *record = NULL, *now = NULL;
        cg_auto_free char *asked = NULL;
        cg_auto_fd int lock = -1;
        const char *granted;
        int r = cg_oauth_store_load(s->name, s->url, &record, err);

        if (r < 0)
                return r;
        /* The scopes may be known; the server's address class, and so what it may name, is not. */
        r = probe(s, &challenge, err);
        if (r < 0)
                return r;
        r = cg_oauth_discover(
                s, cg_oauth_member(record, "wanted", "resource_metadata") ?: challenge.resource_metadata, &p,
                err);
        if (r < 0)
                return r;
        if (!p.as.authorization_endpoint)
                return cg_fail(err, CG_E_UNSUPPORTED, "the authorization server %s has no page to sign in at",
                               p.as.issuer);
        if (!p.as.s256)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "the authorization server %s does not announce PKCE with S256: codes could be stolen on "
                        "their way, so cellgate does not sign in there",
                        p.as.issuer);
        r = choose_scope(s, &p, cg_oauth_member(record, "wanted", "scope") ?: challenge.scope, &asked, err);
        if (r < 0)
                return r;
        r = find_client(s, &p, login->redirect_uri, asked, record, &client, err);
        if (r < 0)
                return r;
        r = authorize(s, login, &p, &client, asked, record, err);
        if (r < 0)
                return r;
        /* The lock is not held while a person signs in; the newer login wins. */
        r = cg_oauth_store_lock(s->name, s->url, s->stop, &lock, &now, err);
        if (r < 0)
                return r;
        json_object_del(record, "wanted");
        r = cg_oauth_store_save(record, err);
        if (r < 0 || !scope)
                return r;
        granted = cg_oauth_member(record, "token", "scope");
        *scope = cg_strdup(granted);
        return 0;
}

static int revoke_one(const struct cg_oauth_server *s, const struct cg_oauth_as *as,
                      const struct cg_oauth_client *client, const char *token, const char *kind,
                      struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        cg_auto_buf struct cg_buf form = { .max = CG_OAUTH_MAX_FORM },
                                  authorization = { .max = CG_OAUTH_MAX_FORM };
        char error[CG_OAUTH_ERROR_SIZE];
        int r;

        cg_oauth_form_add(&form, "token", token);
        cg_oauth_form_add(&form, "token_type_hint", kind);
        r = cg_oauth_authenticate(as, client, &form, &authorization, err);
        if (r < 0)
                return r;
        r = cg_oauth_post_form(s, as->revocation_endpoint, &form, &authorization, &answer, err);
        if (r < 0 || answer.status == 200)
                return r;
        cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
        return cg_fail(err, CG_E_STATE, "%s answered %d%s%s", as->revocation_endpoint, answer.status,
                       cg_sep(*error, ", "), error);
}

int cg_oauth_revoke(const struct cg_oauth_server *s, const json_t *record, bool *some, struct cg_err *err)
{
        static const char *const kinds[][2] = { { "refresh", "refresh_token" },
                                                { "access", "access_token" } };
        CG_CLEANUP(cg_oauth_challenge_fini) struct cg_oauth_challenge challenge = { 0 };
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client client = { 0 };
        CG_CLEANUP(cg_oauth_place_fini) struct cg_oauth_place p = { 0 };
        const char *issuer = cg_oauth_member(record, "token", "issuer"), *token;
        int r, one;

        *some = false;
        r = probe(s, &challenge, err);
        if (r < 0)
                return r;
        r = cg_oauth_discover(s, challenge.resource_metadata, &p, err);
        if (r < 0)
                return r;
        /* Tokens of another issuer are never sent to this one. */
        if (!issuer || strcmp(issuer, p.as.issuer) != 0)
                return cg_fail(err, CG_E_INVAL, "they are of %s, and the server names %s now",
                               issuer ?: "no issuer", p.as.issuer);
        if (!p.as.revocation_endpoint)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "the authorization server %s does not offer to revoke tokens", p.as.issuer);
        r = cg_oauth_known_client(s, record, &p.as, &client, err);
        if (r < 0)
                return r;
        if (!client.id)
                return cg_fail(err, CG_E_STATE, "the registration of their client at %s has ended",
                               p.as.issuer);
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++) {
                token = cg_oauth_member(record, "token", kinds[i][0]);
                if (!token)
                        continue;
                /* The first failure is reported. */
                one = revoke_one(s, &p.as, &client, token, kinds[i][1], r < 0 ? NULL : err);
                *some = *some || one == 0;
                if (r == 0)
                        r = one;
        }
        return r;
}
