/* What servers send about OAuth: what is found in it, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "mcp/oauth/oauth.h"
#include "unit.h"

static void assert_text(const char *is, const char *should)
{
        if (!should)
                assert_null(is);
        else
                assert_string_equal(is ? is : "(null)", should);
}

TEST(test_urls)
{
        static const char *const good[] = { "https://a.example",    "HTTPS://A.example:8443/x?y=1",
                                            "http://127.0.0.1:1/x", "http://localhost",
                                            "http://[::1]:9/",      "https://[2001:db8::1]/x" };
        static const char *const bad[] = { "",
                                           "a.example",
                                           "ftp://a.example",
                                           "javascript:alert(1)",
                                           "http://a.example",
                                           "http://localhost.evil.example",
                                           "http://127.0.0.1.evil.example/",
                                           "http://128.0.0.1",
                                           "https://",
                                           "https:///x",
                                           "https://user@a.example",
                                           "https://a.example@evil.example",
                                           "https://a.example\\@evil.example",
                                           "https://a.example/#x",
                                           "https://a.example:0",
                                           "https://a.example:65536",
                                           "https://a.example:",
                                           "https://a.example:8a",
                                           "https://[::1",
                                           "https://[evil]/",
                                           "https://a b",
                                           "https://a.example/\r\nX: y",
                                           "https://a\xc3\xa9.example" };
        char long_one[4000] = "https://a.example/";
        struct cg_oauth_url u;
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(good); i++)
                assert_int_equal(cg_oauth_url_parse(good[i], "x", &u, &err), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                if (cg_oauth_url_parse(bad[i], "x", &u, &err) != CG_E_INVAL)
                        fail_msg("accepted: %s", bad[i]);
        memset(long_one + 18, 'x', sizeof(long_one) - 19);
        assert_int_equal(cg_oauth_url_parse(long_one, "x", &u, &err), CG_E_INVAL);
        assert_int_equal(cg_oauth_url_parse("https://A.example:8443/x?y=1", "x", &u, &err), 0);
        assert_int_equal(u.port, 8443);
        assert_int_equal(u.origin_len, strlen("https://A.example:8443"));
        assert_int_equal(u.path_len, 2);
        assert_string_equal(u.query, "y=1");
        assert_int_equal(u.class, CG_ADDR_PUBLIC);
}

TEST(test_urls_of_this_machine_and_its_network)
{
        static const struct {
                const char *url;
                enum cg_addr_class class;
        } cases[] = {
                { "https://127.1/x", CG_ADDR_LOOPBACK },
                { "https://0x7f.1:8443", CG_ADDR_LOOPBACK },
                { "https://2130706433/", CG_ADDR_LOOPBACK },
                { "http://a.LOCALHOST:1/", CG_ADDR_LOOPBACK },
                { "http://127.1/", CG_ADDR_LOOPBACK },
                { "https://[::ffff:127.0.0.1]", CG_ADDR_LOOPBACK },
                { "https://0/", CG_ADDR_UNSPECIFIED },
                { "https://10.0.0.1", CG_ADDR_PRIVATE },
                { "https://[fe80::1]/", CG_ADDR_LINK_LOCAL },
                { "https://localhost.example", CG_ADDR_PUBLIC },
        };
        /* By http only what cannot leave this machine. */
        static const char *const bad[] = { "http://0.0.0.0/",   "http://10.0.0.1/",   "http://[::127.0.0.1]/",
                                           "http://1.2.3.4.5/", "https://1.2.3.4.5/", "https://a..example/" };
        struct cg_oauth_url u;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++)
                if (cg_oauth_url_parse(cases[i].url, "x", &u, NULL) != 0 || u.class != cases[i].class)
                        fail_msg("%s", cases[i].url);
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                if (cg_oauth_url_parse(bad[i], "x", &u, NULL) != CG_E_INVAL)
                        fail_msg("accepted: %s", bad[i]);
}

TEST(test_resource_is_of_this_server)
{
        static const struct {
                const char *resource, *url;
                bool yes;
        } cases[] = {
                { "https://a.example/mcp", "https://a.example/mcp", true },
                { "https://a.example/mcp/", "https://a.example/mcp", true },
                { "https://A.example:443/mcp", "https://a.example/mcp", true },
                { "https://a.example", "https://a.example/mcp", true },
                { "https://a.example/", "https://a.example/mcp/x", true },
                { "https://a.example/m", "https://a.example/mcp", false },
                { "https://a.example/mcp/x", "https://a.example/mcp", false },
                { "https://b.example/mcp", "https://a.example/mcp", false },
                { "https://a.example:8443/mcp", "https://a.example/mcp", false },
                { "http://localhost/mcp", "https://localhost/mcp", false },
                { "https://a.example/mcp?t=1", "https://a.example/mcp?t=2", false },
                { "https://a.example/mcp?t=1", "https://a.example/mcp?t=1", true },
                { "https://a.example/t1", "https://a.example/t1/../t2", false },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++)
                if (cg_oauth_resource_covers(cases[i].resource, cases[i].url) != cases[i].yes)
                        fail_msg("%s for %s", cases[i].resource, cases[i].url);
}

TEST(test_challenges)
{
        static const struct {
                const char *header;
                bool bearer;
                const char *metadata, *scope, *error;
        } cases[] = {
                { "Bearer", true, NULL, NULL, NULL },
                { "bearer resource_metadata=\"https://a/x\", scope=\"a b\"", true, "https://a/x", "a b",
                  NULL },
                { "Bearer error=insufficient_scope , SCOPE = \"x\"", true, NULL, "x", "insufficient_scope" },
                { "Basic realm=\"a, Bearer scope=\\\"no\\\"\", Bearer scope=\"yes\"", true, NULL, "yes",
                  NULL },
                { "Negotiate YWJj/+==, Bearer scope=s, DPoP algs=\"ES256\", scope=\"not\"", true, NULL, "s",
                  NULL },
                { "DPoP scope=\"not\", error=\"no\"", false, NULL, NULL, NULL },
                { "Bearer scope=\"a\", Bearer scope=\"b\", resource_metadata=\"https://b\"", true, NULL, "a",
                  NULL },
                { "Bearer scope=\"a\", scope=\"b\"", true, NULL, "a", NULL },
                { "Bearer realm=\"q\\\"x\",scope=a", true, NULL, "a", NULL },
                { "Bearer scope=\"open", true, NULL, NULL, NULL },
                { "", false, NULL, NULL, NULL },
                { ", , ,", false, NULL, NULL, NULL },
                { "=,=\"", false, NULL, NULL, NULL },
        };
        struct cg_oauth_challenge c = { 0 };
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                assert_int_equal(cg_oauth_challenge_add(&c, cases[i].header, &err), 0);
                if (c.bearer != cases[i].bearer)
                        fail_msg("%s", cases[i].header);
                assert_text(c.resource_metadata, cases[i].metadata);
                assert_text(c.scope, cases[i].scope);
                assert_text(c.error, cases[i].error);
                cg_oauth_challenge_fini(&c);
        }
        /* several header lines */
        assert_int_equal(cg_oauth_challenge_add(&c, "Basic realm=x", &err), 0);
        assert_int_equal(cg_oauth_challenge_add(&c, "Bearer scope=first", &err), 0);
        assert_int_equal(cg_oauth_challenge_add(&c, "Bearer scope=second, error=e", &err), 0);
        assert_text(c.scope, "first");
        assert_text(c.error, NULL);
        cg_oauth_challenge_fini(&c);
}

TEST(test_scopes)
{
        char *set = NULL;
        struct cg_err err;

        assert_int_equal(cg_oauth_scopes_add(&set, "b  a b ", &err), 0);
        assert_string_equal(set, "b a");
        assert_int_equal(cg_oauth_scopes_add(&set, "c a ab", &err), 0);
        assert_string_equal(set, "b a c ab");
        assert_int_equal(cg_oauth_scopes_add(&set, "x\ny", &err), CG_E_PARSE);
        assert_int_equal(cg_oauth_scopes_add(&set, "x\"y", &err), CG_E_PARSE);
        assert_string_equal(set, "b a c ab");
        assert_true(cg_oauth_scopes_have(set, "ab b"));
        assert_true(cg_oauth_scopes_have(set, ""));
        assert_false(cg_oauth_scopes_have(set, "b d"));
        assert_false(cg_oauth_scopes_have(NULL, "b"));
        free(set);
}

static int resource(const char *text, struct cg_oauth_resource *m)
{
        struct cg_err err;

        return cg_oauth_resource_parse(text, strlen(text), m, &err);
}

TEST(test_resource_metadata)
{
        struct cg_oauth_resource m = { 0 };

        assert_int_equal(
                resource("{\"resource\":\"https://a/mcp\",\"authorization_servers\":[\"https://as/t\",\"x\"],"
                         "\"scopes_supported\":[\"r\",\"w\"]}",
                         &m),
                0);
        assert_string_equal(m.resource, "https://a/mcp");
        assert_string_equal(m.issuer, "https://as/t");
        assert_string_equal(m.scopes, "r w");
        cg_oauth_resource_fini(&m);
        assert_int_equal(resource("<html>", &m), CG_E_PARSE);
        assert_int_equal(resource("[]", &m), CG_E_PARSE);
        assert_int_equal(resource("{\"authorization_servers\":[\"https://as\"]}", &m), CG_E_PARSE);
        assert_int_equal(resource("{\"resource\":\"https://a\"}", &m), CG_E_PARSE);
        assert_int_equal(resource("{\"resource\":\"https://a\",\"authorization_servers\":[1]}", &m),
                         CG_E_PARSE);
        assert_int_equal(
                resource("{\"resource\":\"https://a\",\"authorization_servers\":[\"http://as\"]}", &m),
                CG_E_INVAL);
        assert_int_equal(
                resource("{\"resource\":\"https://a\\u0000b\",\"authorization_servers\":[\"https://as\"]}",
                         &m),
                CG_E_PARSE);
}

static int server(const char *text, const char *issuer, struct cg_oauth_as *m)
{
        struct cg_err err;

        return cg_oauth_as_parse(text, strlen(text), issuer, m, &err);
}

TEST(test_server_metadata)
{
        struct cg_oauth_as m = { 0 };

        assert_int_equal(
                server("{\"issuer\":\"https://as\",\"authorization_endpoint\":\"https://as/a\",\"token_endpoint\":"
                       "\"https://as/t\",\"code_challenge_methods_supported\":[\"plain\",\"S256\"],"
                       "\"token_endpoint_auth_methods_supported\":[\"private_key_jwt\",\"client_secret_post\"],"
                       "\"authorization_response_iss_parameter_supported\":true,"
                       "\"scopes_supported\":[\"offline_access\"]}",
                       "https://as", &m),
                0);
        assert_true(m.s256 && m.sends_iss && m.offline_access && !m.client_id_documents);
        assert_int_equal(m.methods, CG_OAUTH_POST);
        assert_null(m.registration_endpoint);
        cg_oauth_as_fini(&m);
        assert_int_equal(server("{\"issuer\":\"https://as\",\"token_endpoint\":\"https://as/t\"}", NULL, &m),
                         0);
        assert_int_equal(m.methods, CG_OAUTH_BASIC);
        assert_false(m.s256);
        cg_oauth_as_fini(&m);
        /* Simple string comparison: no normalisation. */
        assert_int_equal(
                server("{\"issuer\":\"https://as/\",\"token_endpoint\":\"https://as/t\"}", "https://as", &m),
                CG_E_INVAL);
        assert_int_equal(
                server("{\"issuer\":\"https://AS\",\"token_endpoint\":\"https://as/t\"}", "https://as", &m),
                CG_E_INVAL);
        assert_int_equal(server("{\"issuer\":\"https://as\"}", "https://as", &m), CG_E_PARSE);
        assert_int_equal(
                server("{\"issuer\":\"https://as\",\"token_endpoint\":\"http://as/t\"}", "https://as", &m),
                CG_E_INVAL);
        assert_int_equal(server("{\"issuer\":\"https://as\",\"token_endpoint\":\"https://as/t\","
                                "\"authorization_endpoint\":\"file:///etc/passwd\"}",
                                "https://as", &m),
                         CG_E_INVAL);
}

TEST(test_tokens)
{
        static const char *const bad[] = {
                "SECRETSECRET",
                "{\"access_token\":\"SECRETSECRET\"}",
                "{\"access_token\":\"SECRETSECRET\",\"token_type\":\"mac\"}",
                "{\"access_token\":\"SECRET SECRET\",\"token_type\":\"bearer\"}",
                "{\"access_token\":\"SECRET\\r\\nX: SECRET\",\"token_type\":\"bearer\"}",
                "{\"access_token\":\"\",\"token_type\":\"bearer\"}",
                "{\"access_token\":1,\"token_type\":\"bearer\"}",
                "{\"access_token\":\"SECRETSECRET\",\"token_type\":\"bearer\",\"refresh_token\":{}}",
                "{\"access_token\":\"SECRETSECRET\",\"token_type\":\"bearer\" SECRETSECRET",
        };
        static const char good[] = "{\"access_token\":\"abc\",\"token_type\":\"bearer\",\"expires_in\":3600,"
                                   "\"refresh_token\":\"r\",\"scope\":\"a b a\"}";
        struct cg_oauth_token t = { 0 };
        char error[CG_OAUTH_ERROR_SIZE];
        struct cg_err err;

        assert_int_equal(cg_oauth_token_parse(good, sizeof(good) - 1, &t, &err), 0);
        assert_string_equal(t.access, "abc");
        assert_string_equal(t.refresh, "r");
        assert_string_equal(t.scope, "a b");
        assert_int_equal(t.lifetime_s, 3600);
        cg_oauth_token_fini(&t);
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++) {
                if (cg_oauth_token_parse(bad[i], strlen(bad[i]), &t, &err) >= 0)
                        fail_msg("accepted: %s", bad[i]);
                if (strstr(err.msg, "SECRET"))
                        fail_msg("shown: %s", err.msg);
        }
        cg_oauth_error_parse("{\"error\":\"invalid_grant\"}", 25, error);
        assert_string_equal(error, "invalid_grant");
        cg_oauth_error_parse("{\"error\":\"a b\"}", 15, error);
        assert_string_equal(error, "");
        cg_oauth_error_parse("x", 1, error);
        assert_string_equal(error, "");
}

static int redirect(const char *query, struct cg_oauth_redirect *q)
{
        struct cg_err err;

        return cg_oauth_redirect_parse(query, strlen(query), q, &err);
}

TEST(test_redirects)
{
        struct cg_oauth_redirect q = { 0 };

        assert_int_equal(redirect("code=a%2Fb&x=1&state=s&iss=https%3A%2F%2Fas", &q), 0);
        assert_text(q.code, "a/b");
        assert_text(q.state, "s");
        assert_text(q.iss, "https://as");
        assert_text(q.error, NULL);
        cg_oauth_redirect_fini(&q);
        assert_int_equal(redirect("", &q), 0);
        assert_null(q.code);
        assert_int_equal(redirect("code=a&code=b", &q), CG_E_PARSE);
        assert_int_equal(redirect("code", &q), CG_E_PARSE);
        assert_int_equal(redirect("code=%", &q), CG_E_PARSE);
        assert_int_equal(redirect("code=%0a", &q), CG_E_PARSE);
        assert_int_equal(redirect("code=%00", &q), CG_E_PARSE);
        assert_int_equal(redirect("error=%1b[2J&state=x", &q), CG_E_PARSE);
}

static int config(const char *text, struct cg_oauth_config *c, struct cg_err *err)
{
        json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
        int r = cg_oauth_config_parse("srv", j, c, err);

        json_decref(j);
        return r;
}

TEST(test_definitions)
{
        static const char *const bad[][2] = {
                { "1", "\"oauth\"" },
                { "{\"clientId\":1}", "\"clientId\"" },
                { "{\"clientId\":\"a\\nb\"}", "\"clientId\"" },
                { "{\"clientSecret\":\"TOPSECRET\"}", "\"clientId\"" },
                { "{\"clientId\":\"a\",\"clientSecret\":\"TOPSECRET\"}", "\"issuer\"" },
                { "{\"clientId\":\"a\",\"issuer\":\"http://as.example\"}", "\"issuer\"" },
                { "{\"clientId\":\"a\",\"issuer\":\"https://as.example/?x\"}", "\"issuer\"" },
                { "{\"scopes\":[1]}", "\"scopes\"" },
                { "{\"callbackPort\":70000}", "\"callbackPort\"" },
                { "{\"clientMetadataUrl\":\"http://x/y\"}", "\"clientMetadataUrl\"" },
                { "{\"clientMetadataUrl\":\"https://x\"}", "\"clientMetadataUrl\"" },
                { "{\"grantType\":\"password\"}", "\"grantType\"" },
                { "{\"grantType\":\"client_credentials\",\"clientId\":\"a\"}", "\"clientSecret\"" },
        };
        struct cg_oauth_config c = { 0 };
        struct cg_err err;

        assert_int_equal(config("null", &c, &err), 0);
        assert_int_equal(config("false", &c, &err), 0);
        assert_true(c.off);
        assert_int_equal(
                config("{\"clientId\":\"a\",\"clientSecret\":\"b\",\"issuer\":\"https://as\",\"scopes\":[\"x\",\"y\"],\"scope\":\"y z\","
                       "\"callbackPort\":8080,\"unknown\":{}}",
                       &c, &err),
                0);
        assert_string_equal(c.client_id, "a");
        assert_string_equal(c.scopes, "x y z");
        assert_int_equal(c.callback_port, 8080);
        cg_oauth_config_fini(&c);
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++) {
                assert_int_equal(config(bad[i][0], &c, &err), CG_E_INVAL);
                if (!strstr(err.msg, bad[i][1]) || !strstr(err.msg, "\"srv\"") ||
                    strstr(err.msg, "TOPSECRET"))
                        fail_msg("%s: %s", bad[i][0], err.msg);
        }
}
