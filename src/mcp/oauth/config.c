/* The member "oauth" of a server's definition. */
#include "mcp/oauth/oauth.h"

#include "mcp/ceilings.h"

void cg_oauth_config_fini(struct cg_oauth_config *c)
{
        free(c->client_id);
        free(c->client_secret);
        free(c->issuer);
        free(c->client_metadata_url);
        free(c->scopes);
        *c = (struct cg_oauth_config){ 0 };
}

static int bad(const char *server, const char *key, const char *must, struct cg_err *err)
{
        return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": \"oauth\": \"%s\" must be %s", server, key, must);
}

/* A member that is a string of visible ASCII, as ids and secrets are by RFC 6749. */
static int read_text(const char *server, const json_t *oauth, const char *key, char **ret, struct cg_err *err)
{
        const json_t *v = json_object_get(oauth, key);
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);

        if (!v || json_is_null(v))
                return 0;
        if (!s || !n || n > CG_OAUTH_MAX_TOKEN || strlen(s) != n)
                return bad(server, key, "a string that is not empty", err);
        for (size_t i = 0; i < n; i++)
                if (s[i] < 0x20 || s[i] > 0x7e)
                        return bad(server, key, "a string of ASCII characters", err);
        *ret = strdup(s);
        return cg_made(*ret, "MCP server", err);
}

static int read_scopes(const char *server, const json_t *oauth, const char *key, struct cg_oauth_config *c,
                       struct cg_err *err)
{
        const json_t *v = json_object_get(oauth, key), *one = v;
        size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);

        for (size_t i = 0; i < n; i++) {
                if (json_is_array(v))
                        one = json_array_get(v, i);
                if (!json_is_string(one) || strlen(json_string_value(one)) != json_string_length(one) ||
                    cg_oauth_scopes_add(&c->scopes, json_string_value(one), NULL) < 0)
                        return bad(server, key, "an array of scopes, or a string with spaces between them",
                                   err);
        }
        return 0;
}

static int read_all(const char *server, const json_t *oauth, struct cg_oauth_config *c, struct cg_err *err)
{
        const json_t *grant = json_object_get(oauth, "grantType"),
                     *port = json_object_get(oauth, "callbackPort");
        const struct {
                const char *key;
                char **to;
        } texts[] = { { "clientId", &c->client_id },
                      { "clientSecret", &c->client_secret },
                      { "issuer", &c->issuer },
                      { "clientMetadataUrl", &c->client_metadata_url } };
        const char *type = json_string_value(grant);
        struct cg_oauth_url u;
        int r;

        for (size_t i = 0; i < CG_ARRAY_LEN(texts); i++) {
                r = read_text(server, oauth, texts[i].key, texts[i].to, err);
                if (r < 0)
                        return r;
        }
        r = read_scopes(server, oauth, "scopes", c, err);
        if (r < 0)
                return r;
        r = read_scopes(server, oauth, "scope", c, err);
        if (r < 0)
                return r;
        if (c->issuer && (cg_oauth_url_parse(c->issuer, "", &u, NULL) < 0 || u.query))
                return bad(server, "issuer", "the authorization server's URL, which begins with https://",
                           err);
        if (c->client_metadata_url &&
            (cg_oauth_url_parse(c->client_metadata_url, "", &u, NULL) < 0 || !u.https || u.path_len < 2))
                return bad(server, "clientMetadataUrl", "a URL that begins with https:// and has a path",
                           err);
        if (port && !json_is_null(port)) {
                json_int_t n = json_integer_value(port);

                if (!json_is_integer(port) || n < 1 || n > 65535)
                        return bad(server, "callbackPort", "a number from 1 to 65535", err);
                c->callback_port = (int)n;
        }
        if (grant && !json_is_null(grant)) {
                if (!type ||
                    (strcmp(type, "client_credentials") != 0 && strcmp(type, "authorization_code") != 0))
                        return bad(server, "grantType", "\"authorization_code\" or \"client_credentials\"",
                                   err);
                c->client_credentials = strcmp(type, "client_credentials") == 0;
        }
        if (c->client_secret && !c->client_id)
                return bad(server, "clientId", "given with \"clientSecret\"", err);
        /* The MCP server chooses the authorization server: its choice must not get the secret. */
        if (c->client_secret && !c->issuer)
                return bad(server, "issuer",
                           "given with \"clientSecret\": the URL of the authorization "
                           "server that the secret is for",
                           err);
        if (c->client_credentials && !c->client_secret)
                return bad(server, "clientSecret", "given with \"grantType\": \"client_credentials\"", err);
        return 0;
}

int cg_oauth_config_parse(const char *server, const json_t *oauth, struct cg_oauth_config *ret,
                          struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_config_fini) struct cg_oauth_config c = { .off = json_is_false(oauth) };
        int r = 0;

        if (json_is_object(oauth))
                r = read_all(server, oauth, &c, err);
        else if (oauth && !json_is_null(oauth) && !json_is_boolean(oauth))
                r = cg_fail(err, CG_E_INVAL, "MCP server \"%s\": \"oauth\" must be an object, or false",
                            server);
        if (r < 0)
                return r;
        *ret = CG_TAKE(c);
        return 0;
}
