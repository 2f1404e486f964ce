/*
 * What servers send about OAuth. Beside memory safety: what is accepted holds what the callers rely
 * on. The first byte selects the parser.
 */
#include "mcp/oauth/parse.h"
#include "fuzz.h"

static void must_be_url(const char *url)
{
        struct cg_oauth_url u;

        must(!url || cg_oauth_url_parse(url, "x", &u, NULL) == 0);
}

static void must_be_header(const char *text)
{
        for (; text && *text; text++)
                must(*text > 0x20 && *text < 0x7f);
}

static void check_text(uint8_t which, const char *text)
{
        struct cg_oauth_challenge c = { 0 };
        struct cg_oauth_redirect q = { 0 };
        struct cg_oauth_url u;
        char *set = NULL;

        switch (which) {
        case 0:
                must(cg_oauth_challenge_add(&c, text, NULL) == 0);
                must(c.bearer || (!c.scope && !c.error && !c.resource_metadata));
                cg_oauth_challenge_fini(&c);
                break;
        case 1:
                if (cg_oauth_url_parse(text, "x", &u, NULL) == 0) {
                        must((u.https || u.class == CG_ADDR_LOOPBACK) && u.port && u.host_len &&
                             u.origin_len <= strlen(text));
                        must(u.path == text + u.origin_len && u.path_len <= strlen(u.path));
                        must(cg_oauth_url_same_origin(&u, &u));
                        /* What is sent in a header or shown has no line ends and no escapes. */
                        must_be_header(text);
                }
                break;
        case 2:
                if (cg_oauth_scopes_add(&set, text, NULL) == 0) {
                        must(cg_oauth_scopes_have(set, text) && cg_oauth_scopes_have(set, set));
                        free(set);
                }
                break;
        default:
                if (cg_oauth_redirect_parse(text, strlen(text), &q, NULL) == 0)
                        cg_oauth_redirect_fini(&q);
                break;
        }
}

static void check_document(uint8_t which, const char *text, size_t len)
{
        char error[CG_OAUTH_ERROR_SIZE];
        struct cg_oauth_resource m = { 0 };
        struct cg_oauth_as as = { 0 };
        struct cg_oauth_token t = { 0 };
        struct cg_oauth_client client = { 0 };

        switch (which) {
        case 4:
                if (cg_oauth_resource_parse(text, len, &m, NULL) == 0) {
                        must(m.resource && m.issuer);
                        must_be_url(m.resource);
                        must_be_url(m.issuer);
                        cg_oauth_resource_fini(&m);
                }
                break;
        case 5:
                if (cg_oauth_as_parse(text, len, NULL, &as, NULL) == 0) {
                        must(as.issuer && as.token_endpoint);
                        must_be_url(as.issuer);
                        must_be_url(as.token_endpoint);
                        must_be_url(as.authorization_endpoint);
                        must_be_url(as.registration_endpoint);
                        cg_oauth_as_fini(&as);
                }
                break;
        case 6:
                if (cg_oauth_token_parse(text, len, &t, NULL) == 0) {
                        must(t.access && *t.access && t.lifetime_s >= 0);
                        must_be_header(t.access);
                        cg_oauth_token_fini(&t);
                }
                cg_oauth_error_parse(text, len, error);
                must(strlen(error) < sizeof(error));
                must_be_header(error);
                break;
        default:
                if (cg_oauth_client_parse(text, len, &client, NULL) == 0) {
                        must(client.id && *client.id);
                        cg_oauth_client_fini(&client);
                }
                break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint8_t which = size ? data[0] & 7 : 0;
        size_t len = size ? size - 1 : 0;
        char *text = malloc(len + 1);

        memcpy(text, size ? data + 1 : data, len);
        text[len] = '\0';
        if (which < 4) {
                check_text(which, text);
        } else {
                /* Without a byte behind it: reading over the end is seen. */
                char *exact = malloc(len ? len : 1);

                memcpy(exact, text, len);
                check_document(which, exact, len);
                free(exact);
        }
        free(text);
        return 0;
}
