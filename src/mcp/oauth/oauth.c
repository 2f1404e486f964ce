/* The header for the tool server, and its answer to challenges. See internal.h. */
#include "mcp/oauth/internal.h"

#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/store.h"

static int make_header(const json_t *record, char **ret, struct cg_err *err)
{
        const char *access = cg_oauth_member(record, "token", "access");

        *ret = NULL;
        return access ? cg_asprintf(ret, "Authorization", err, "Bearer %s", access) : 0;
}

static bool is_expired(const json_t *record)
{
        int64_t end = json_integer_value(json_object_get(json_object_get(record, "token"), "expires_at"));

        return end && end - CG_OAUTH_EARLY_S < cg_oauth_now_s();
}

/* The form that asks for a token by the client's credentials. *wanted (returns): its scopes. */
static int ask_by_credentials(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                              const char *scope, struct cg_buf *form, char **wanted, struct cg_err *err)
{
        int r = cg_oauth_scopes_add(wanted, s->config->scopes ?: "", err);

        if (r < 0)
                return r;
        if (!scope && !**wanted)
                scope = p->resource.scopes;
        cg_oauth_form_add(form, "grant_type", "client_credentials");
        return cg_oauth_scopes_add(wanted, scope, err);
}

/* The form that refreshes the token of @record, which is only for its own issuer and client. */
static int ask_by_refresh(const json_t *record, const struct cg_oauth_place *p,
                          const struct cg_oauth_client *client, struct cg_buf *form, struct cg_err *err)
{
        const char *issuer = cg_oauth_member(record, "token", "issuer");
        const char *client_id = cg_oauth_member(record, "token", "client_id");

        if (!issuer || strcmp(issuer, p->as.issuer) != 0 || !client->id || !client_id ||
            strcmp(client_id, client->id) != 0)
                return cg_fail(err, CG_E_STATE, "the server's authorization server has changed");
        cg_oauth_form_add(form, "grant_type", "refresh_token");
        cg_oauth_form_add(form, "refresh_token", cg_oauth_member(record, "token", "refresh"));
        return 0;
}

static int request_renewal(const struct cg_oauth_server *s, json_t *record, const struct cg_oauth_place *p,
                           const char *scope, char error[CG_OAUTH_ERROR_SIZE], struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client client = { 0 };
        cg_auto_buf struct cg_buf form = { .max = CG_OAUTH_MAX_FORM };
        cg_auto_free char *wanted = NULL;
        int r = cg_oauth_known_client(s, record, &p->as, &client, err);

        if (r < 0)
                return r;
        if (s->config->client_credentials)
                r = ask_by_credentials(s, p, scope, &form, &wanted, err);
        else
                r = ask_by_refresh(record, p, &client, &form, err);
        if (r < 0)
                return r;
        r = cg_oauth_request_token(s, p, &client, &form, cg_text_or(wanted, NULL), record, error, err);
        if (r < 0)
                return r;
        return cg_oauth_store_save(record, err);
}

/*
 * Refreshes the token of @record, or gets one by the client's credentials, and stores it.
 * CG_E_STATE: neither is possible. @metadata_url, @scope: of the challenge; may be NULL.
 */
static int renew(const struct cg_oauth_server *s, json_t *record, const char *metadata_url, const char *scope,
                 bool may_refresh, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_place_fini) struct cg_oauth_place p = { 0 };
        char error[CG_OAUTH_ERROR_SIZE] = "";
        int r;

        if (!s->config->client_credentials && !(may_refresh && cg_oauth_member(record, "token", "refresh")))
                return cg_fail(err, CG_E_STATE, "a person has to sign in");
        r = cg_oauth_discover(s, metadata_url, &p, err);
        if (r < 0)
                return r;
        r = request_renewal(s, record, &p, scope, error, err);
        if (r == CG_E_STATE && !s->config->client_credentials) {
                /* The server has forgotten this client: the next login registers another. */
                if (strcmp(error, "invalid_client") == 0 || strcmp(error, "unauthorized_client") == 0)
                        json_object_del(record, "client");
                json_object_del(record, "token");
        }
        return r;
}

static int fail_renewal(const struct cg_oauth_server *s, int r, const struct cg_err *why, struct cg_err *err)
{
        if (!s->cause)
                return cg_fail(err, r, "no token: %s", why->msg);
        *s->cause = *why;
        return cg_fail(err, r, "the server's authorization server gave no token; cellgate's log says why");
}

int cg_oauth_authorization(const struct cg_oauth_server *s, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *record = NULL, *locked = NULL;
        cg_auto_fd int lock = -1;
        struct cg_err why = { 0 };
        int r;

        *ret = NULL;
        if (s->config->off)
                return 0;
        r = cg_oauth_store_load(s->name, s->url, &record, err);
        if (r < 0)
                return r;
        if (!is_expired(record))
                return make_header(record, ret, err);
        if (!cg_oauth_member(record, "token", "refresh"))
                return 0; /* the server's challenge says what is needed */
        r = cg_oauth_store_lock(s->name, s->url, s->stop, &lock, &locked, err);
        if (r < 0)
                return r;
        /* Another process may have refreshed it in the meantime. */
        if (is_expired(locked)) {
                r = renew(s, locked, NULL, NULL, true, &why);
                if (r == CG_E_STATE)
                        return cg_oauth_store_save(locked, err);
                if (r < 0)
                        return fail_renewal(s, r, &why, err);
        }
        return make_header(locked, ret, err);
}

/* Stores the scopes that a person has to agree to, for `cellgate mcp login`. */
static int store_wanted(const struct cg_oauth_server *s, json_t *record,
                        const struct cg_oauth_challenge *challenge, const char *scope, struct cg_err *err)
{
        const struct cg_oauth_config *c = s->config;
        json_t *wanted = json_pack("{ss* ss*}", "resource_metadata", challenge->resource_metadata, "scope",
                                   scope);
        json_t *definition = json_pack("{ss* ss* ss* ss*}", "clientId", c->client_id, "issuer", c->issuer,
                                       "clientMetadataUrl", c->client_metadata_url, "scopes", c->scopes);

        if (definition && c->callback_port)
                json_object_set_new(definition, "callbackPort", json_integer(c->callback_port));
        if (definition && c->client_secret)
                json_object_set_new(definition, "hasSecret", json_true());
        if (json_object_set_new(record, "wanted", wanted) < 0 ||
            json_object_set_new(record, "definition", definition) < 0)
                return cg_fail(err, CG_E_NOMEM, "stored authorization");
        return cg_oauth_store_save(record, err);
}

int cg_oauth_challenged(const struct cg_oauth_server *s, int status,
                        const struct cg_oauth_challenge *challenge, const char *refused, char **ret,
                        struct cg_err *err)
{
        bool step_up = status == 403 && challenge->error &&
                       strcmp(challenge->error, "insufficient_scope") == 0;
        cg_auto_free char *scope = NULL, *current = NULL;
        cg_auto_json json_t *record = NULL;
        cg_auto_fd int lock = -1;
        struct cg_err why = { 0 };
        struct cg_oauth_url u;
        const char *granted;
        int r;

        *ret = NULL;
        if (s->config->off || (status == 403 && !step_up))
                return cg_fail(err, CG_E_INVAL, "it refused the request (HTTP %d)", status);
        if (challenge->resource_metadata &&
            cg_oauth_url_parse(challenge->resource_metadata, "the challenge's resource_metadata", &u, err) <
                    0)
                return CG_E_INVAL;
        r = cg_oauth_store_lock(s->name, s->url, s->stop, &lock, &record, err);
        if (r < 0)
                return r;
        r = make_header(record, &current, err);
        if (r < 0)
                return r;
        granted = cg_oauth_member(record, "token", "scope");
        /* Another process has got one since the request was sent. */
        if (current && (!refused || strcmp(current, refused) != 0) && !is_expired(record)) {
                *ret = CG_STEAL(current);
                return 0;
        }
        if (step_up && challenge->scope && cg_oauth_scopes_have(granted, challenge->scope))
                return cg_fail(err, CG_E_INVAL,
                               "it refused the request for want of the scope \"%s\", which "
                               "the token has: the account may lack this permission",
                               challenge->scope);
        if ((step_up && (r = cg_oauth_scopes_add(&scope, granted ?: "", &why)) < 0) ||
            (r = cg_oauth_scopes_add(&scope, challenge->scope, &why)) < 0)
                return fail_renewal(s, r, &why, err);
        r = renew(s, record, challenge->resource_metadata, scope, !step_up, &why);
        if (r == CG_E_STATE && !s->config->client_credentials) {
                r = store_wanted(s, record, challenge, scope, err);
                if (r < 0)
                        return r;
                return cg_fail(
                        err, CG_E_STATE, "HTTP %d: the server wants %s; run: cellgate mcp login %s%s", status,
                        step_up ? "more rights than were granted" : "a bearer token", s->name,
                        step_up ? ""
                                : " (or give a header \"Authorization\" in the definition's \"headers\")");
        }
        if (r < 0)
                return fail_renewal(s, r, &why, err);
        r = make_header(record, ret, err);
        if (r < 0)
                return r;
        /* A part of a tool may have run before 403: nothing is repeated for nothing. */
        if (step_up && refused && strcmp(*ret, refused) == 0) {
                free(*ret);
                *ret = NULL;
                return cg_fail(
                        err, CG_E_INVAL,
                        "HTTP 403: it wants more rights, and the authorization server gave the same token");
        }
        return 0;
}
