/* Requests to the token endpoint. See internal.h. */
#include "mcp/oauth/internal.h"

#include <string.h>
#include <time.h>
#include "base/base64.h"
#include "base/json.h"
#include "base/util.h"
#include "mcp/ceilings.h"

int64_t cg_oauth_now_s(void)
{
        return (int64_t)time(NULL);
}

static int copy(char **to, const char *from, struct cg_err *err)
{
        *to = from ? strdup(from) : NULL;
        return !from || *to ? 0 : cg_fail(err, CG_E_NOMEM, "OAuth client");
}

int cg_oauth_known_client(const struct cg_oauth_server *s, const json_t *record, const struct cg_oauth_as *as,
                          struct cg_oauth_client *ret, struct cg_err *err)
{
        const json_t *stored = json_object_get(record, "client");
        const char *issuer = json_string_value(json_object_get(stored, "issuer"));
        const char *id = json_string_value(json_object_get(stored, "id"));
        const char *method = json_string_value(json_object_get(stored, "method"));
        int64_t expires = json_integer_value(json_object_get(stored, "expires_at"));
        struct cg_oauth_client c = { 0 };
        int r = 0;

        if (s->config->client_id) {
                const char *its = s->config->issuer;

                /* The server names the issuer, and must not get the secret by that. */
                if (its && strcmp(its, as->issuer) != 0)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "the definition's client is for the \"issuer\" %s, but the server names "
                                "%s: nothing was sent to it",
                                its, as->issuer);
                if (s->config->client_secret && (!its || as->assumed))
                        return cg_fail(err, CG_E_INVAL,
                                       "%s publishes no authorization server metadata: the definition's "
                                       "\"clientSecret\" was not sent to it",
                                       as->issuer);
                r = copy(&c.id, s->config->client_id, err);
                if (r == 0)
                        r = copy(&c.secret, s->config->client_secret, err);
        } else if (as->client_id_documents && s->config->client_metadata_url) {
                c.method = CG_OAUTH_NONE;
                r = copy(&c.id, s->config->client_metadata_url, err);
        } else if (issuer && id && strcmp(issuer, as->issuer) == 0 &&
                   (!expires || expires > cg_oauth_now_s())) {
                /* Credentials of another issuer are never sent to this one. */
                c.method = method ? cg_oauth_method(method) : 0;
                r = copy(&c.id, id, err);
                if (r == 0)
                        r = copy(&c.secret, json_string_value(json_object_get(stored, "secret")), err);
        }
        if (r < 0)
                cg_oauth_client_fini(&c);
        else
                *ret = c;
        return r;
}

/* How @client authenticates: as it was registered, else the safest way that the server has. */
static unsigned choose_method(const struct cg_oauth_as *as, const struct cg_oauth_client *client)
{
        if (client->method && (client->secret || client->method == CG_OAUTH_NONE))
                return client->method;
        if (!client->secret)
                return CG_OAUTH_NONE;
        return as->methods & CG_OAUTH_BASIC  ? CG_OAUTH_BASIC
               : as->methods & CG_OAUTH_POST ? CG_OAUTH_POST
               : as->methods & CG_OAUTH_NONE ? CG_OAUTH_NONE
                                             : CG_OAUTH_BASIC;
}

/* "Basic ..." of the percent-encoded id and secret, RFC 6749 section 2.3.1. */
static int basic_header(const struct cg_oauth_client *client, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf pair = { .max = CG_OAUTH_MAX_FORM };
        char *to;
        int r = cg_oauth_encode(&pair, client->id, err);

        if (r == 0)
                r = cg_buf_try_adds(&pair, ":", err);
        if (r == 0)
                r = cg_oauth_encode(&pair, client->secret, err);
        if (r == 0)
                r = cg_buf_try_adds(b, "Basic ", err);
        if (r == 0)
                r = cg_buf_reserve(b, cg_base64_size(pair.len), &to, err);
        if (r < 0)
                return r;
        cg_base64(to, pair.data, pair.len);
        b->len += cg_base64_size(pair.len);
        cg_buf_terminate(b);
        return 0;
}

int cg_oauth_authenticate(const struct cg_oauth_as *as, const struct cg_oauth_client *client,
                          struct cg_buf *form, struct cg_buf *authorization, struct cg_err *err)
{
        unsigned method = choose_method(as, client);
        int r;

        if (method == CG_OAUTH_BASIC)
                return basic_header(client, authorization, err);
        r = cg_oauth_form_add(form, "client_id", client->id, err);
        return r == 0 && method == CG_OAUTH_POST
                       ? cg_oauth_form_add(form, "client_secret", client->secret, err)
                       : r;
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

int cg_oauth_request_token(const struct cg_oauth_server *s, const struct cg_oauth_place *p,
                           const struct cg_oauth_client *client, struct cg_buf *form, const char *scope,
                           json_t *record, char error[CG_OAUTH_ERROR_SIZE], struct cg_err *err)
{
        struct cg_oauth_response answer = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        cg_auto_buf struct cg_buf authorization = { .max = CG_OAUTH_MAX_FORM };
        struct cg_oauth_token t = { 0 };
        struct cg_oauth_fetch q = { .url = p->as.token_endpoint,
                                    .content_type = "application/x-www-form-urlencoded" };
        bool over;
        int r = 0;

        error[0] = '\0';
        if (scope)
                r = cg_oauth_form_add(form, "scope", scope, err);
        if (r == 0 && p->resource.resource)
                r = cg_oauth_form_add(form, "resource", p->resource.resource, err);
        if (r == 0)
                r = cg_oauth_authenticate(&p->as, client, form, &authorization, err);
        q.body = form->data;
        q.authorization = authorization.len ? authorization.data : NULL;
        if (r == 0)
                r = cg_oauth_send(s, &q, &answer, err);
        if (r == 0 && answer.status != 200 && answer.status != 201) {
                cg_oauth_error_parse(answer.body.data ?: "", answer.body.len, error);
                /* Others, such as a proxy's page, do not end the grant. */
                over = strcmp(error, "invalid_grant") == 0 || strcmp(error, "invalid_client") == 0 ||
                       strcmp(error, "unauthorized_client") == 0;
                r = cg_fail(err, over ? CG_E_STATE : CG_E_CLOSED, "%s answered %d%s%s", p->as.token_endpoint,
                            answer.status, *error ? ", " : "", error);
        }
        if (r == 0)
                r = cg_oauth_token_parse(answer.body.data ?: "", answer.body.len, &t, err);
        if (r == 0)
                r = keep_token(record, p, client, &t, scope, err);
        cg_oauth_token_fini(&t);
        cg_oauth_response_fini(&answer);
        return r;
}
