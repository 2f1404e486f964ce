/* Requests to the token endpoint. See internal.h. */
#include "mcp/oauth/internal.h"

#include <time.h>
#include "base/base64.h"
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"

const char *cg_oauth_member(const json_t *record, const char *object, const char *key)
{
        return json_string_value(json_object_get(json_object_get(record, object), key));
}

int64_t cg_oauth_now_s(void)
{
        return (int64_t)time(NULL);
}

int cg_oauth_known_client(const struct cg_oauth_server *s, const json_t *record, const struct cg_oauth_as *as,
                          struct cg_oauth_client *ret, struct cg_err *err)
{
        const char *issuer = cg_oauth_member(record, "client", "issuer");
        const char *method = cg_oauth_member(record, "client", "method");
        int64_t expires = json_integer_value(
                json_object_get(json_object_get(record, "client"), "expires_at"));
        const struct cg_oauth_config *c = s->config;
        const char *id = NULL, *secret = NULL;
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client found = { 0 };

        if (c->client_id) {
                /* The server names the issuer, and must not get the secret by that. */
                if (c->issuer && strcmp(c->issuer, as->issuer) != 0)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "the definition's client is for the \"issuer\" %s, but the server names "
                                "%s: nothing was sent to it",
                                c->issuer, as->issuer);
                if (c->client_secret && (!c->issuer || as->assumed))
                        return cg_fail(err, CG_E_INVAL,
                                       "%s publishes no authorization server metadata: the definition's "
                                       "\"clientSecret\" was not sent to it",
                                       as->issuer);
                id = c->client_id;
                secret = c->client_secret;
        } else if (as->client_id_documents && c->client_metadata_url) {
                found.method = CG_OAUTH_NONE;
                id = c->client_metadata_url;
        } else if (issuer && strcmp(issuer, as->issuer) == 0 && (!expires || expires > cg_oauth_now_s())) {
                /* Credentials of another issuer are never sent to this one. */
                id = cg_oauth_member(record, "client", "id");
                secret = cg_oauth_member(record, "client", "secret");
                found.method = id && method ? cg_oauth_method(method) : 0;
        }
        if (id && (!(found.id = strdup(id)) || (secret && !(found.secret = strdup(secret)))))
                return cg_fail(err, CG_E_NOMEM, "OAuth client");
        *ret = CG_TAKE(found);
        return 0;
}

/* How @client authenticates: as it was registered, else the safest way that the server has. */
static unsigned choose_method(const struct cg_oauth_as *as, const struct cg_oauth_client *client)
{
        if (client->method && (client->secret || client->method == CG_OAUTH_NONE))
                return client->method;
        if (!client->secret)
                return CG_OAUTH_NONE;
        if (as->methods & CG_OAUTH_BASIC)
                return CG_OAUTH_BASIC;
        if (as->methods & CG_OAUTH_POST)
                return CG_OAUTH_POST;
        return as->methods & CG_OAUTH_NONE ? CG_OAUTH_NONE : CG_OAUTH_BASIC;
}

/* "Basic ..." of the percent-encoded id and secret, RFC 6749 section 2.3.1. */
static int basic_header(const struct cg_oauth_client *client, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf pair = { .max = CG_OAUTH_MAX_FORM };

        cg_percent_encode(&pair, client->id, "");
        cg_buf_adds(&pair, ":");
        cg_percent_encode(&pair, client->secret, "");
        if (cg_buf_end(&pair, err) < 0)
                return pair.failed;
        cg_buf_adds(b, "Basic ");
        cg_base64_add(b, pair.data, pair.len);
        return cg_buf_end(b, err);
}

int cg_oauth_authenticate(const struct cg_oauth_as *as, const struct cg_oauth_client *client,
                          struct cg_buf *form, struct cg_buf *authorization, struct cg_err *err)
{
        unsigned method = choose_method(as, client);

        if (method != CG_OAUTH_BASIC)
                cg_oauth_form_add(form, "client_id", client->id);
        if (method == CG_OAUTH_POST)
                cg_oauth_form_add(form, "client_secret", client->secret);
        if (cg_buf_end(form, err) < 0)
                return form->failed;
        return method == CG_OAUTH_BASIC ? basic_header(client, authorization, err) : 0;
}

/* Puts @t in place of the record's token. */
static int keep_token(json_t *record, const struct cg_oauth_place *p, const struct cg_oauth_client *client,
                      const struct cg_oauth_token *t, const char *scope, struct cg_err *err)
{
        const json_t *old = json_object_get(record, "token");
        const char *old_issuer = json_string_value(json_object_get(old, "issuer"));
        const char *refresh = t->refresh, *its = t->scope ?: scope;
        json_t *token;

        /* Without new ones the old refresh token and scopes stay as they were. */
        if (old_issuer && strcmp(old_issuer, p->as.issuer) == 0) {
                refresh = refresh ?: json_string_value(json_object_get(old, "refresh"));
                its = its ?: json_string_value(json_object_get(old, "scope"));
        }
        token = json_pack("{ss ss ss ss* ss* ss* sI}", "issuer", p->as.issuer, "client_id", client->id,
                          "access", t->access, "resource", p->resource.resource, "refresh", refresh, "scope",
                          its, "expires_at",
                          (json_int_t)(t->lifetime_s ? cg_oauth_now_s() + t->lifetime_s : 0));
        if (!token || json_object_set_new(record, "token", token) < 0)
                return cg_fail(err, CG_E_NOMEM, "token");
        return 0;
}

int cg_oauth_post_form(const struct cg_oauth_server *s, const char *url, const struct cg_buf *form,
                       const struct cg_buf *authorization, struct cg_oauth_response *ret, struct cg_err *err)
{
        struct cg_oauth_fetch q = { .url = url,
                                    .body = form->data,
                                    .content_type = "application/x-www-form-urlencoded",
                                    .authorization = authorization->data };

        return cg_oauth_send(s, &q, ret, err);
}

int cg_oauth_request_token(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                           const struct cg_oauth_client *client, struct cg_buf *form, const char *scope,
                           json_t *record, char error[CG_OAUTH_ERROR_SIZE], struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        cg_auto_buf struct cg_buf authorization = { .max = CG_OAUTH_MAX_FORM };
        CG_CLEANUP(cg_oauth_token_fini) struct cg_oauth_token t = { 0 };
        bool over;
        int r;

        error[0] = '\0';
        cg_oauth_form_add(form, "scope", scope);
        cg_oauth_form_add(form, "resource", p->resource.resource);
        r = cg_oauth_authenticate(&p->as, client, form, &authorization, err);
        if (r < 0)
                return r;
        r = cg_oauth_post_form(s, p->as.token_endpoint, form, &authorization, &answer, err);
        if (r < 0)
                return r;
        if (answer.status != 200 && answer.status != 201) {
                cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
                /* Others, such as a proxy's page, do not end the grant. */
                over = strcmp(error, "invalid_grant") == 0 || strcmp(error, "invalid_client") == 0 ||
                       strcmp(error, "unauthorized_client") == 0;
                return cg_fail(err, over ? CG_E_STATE : CG_E_CLOSED, "%s answered %d%s%s",
                               p->as.token_endpoint, answer.status, cg_sep(*error, ", "), error);
        }
        r = cg_oauth_token_parse(answer.body.data ?: "", answer.body.len, &t, err);
        if (r < 0)
                return r;
        return keep_token(record, p, client, &t, scope, err);
}
