/* What servers send about OAuth: what is found in it, and what is refused. */
#include "mcp/oauth/oauth.h"
#include "cases.h"

static void assert_text(const char *is, const char *should)
{
        assert_string_equal(is ? is : "-", should ? should : "-");
}

TEST(test_urls)
{
        char long_one[4000] = "https://a.example/";
        struct cg_oauth_url u;

        EACH_CASE(c, "URLs")
        OK(cg_oauth_url_parse(c.in, "x", &u, &err));
        EACH_CASE(c, "refused URLs")
        FAILS(CG_E_INVAL, "", cg_oauth_url_parse(c.in, "x", &u, &err));
        EACH_CASE(c, "classes")
        {
                OK(cg_oauth_url_parse(c.in, "x", &u, &err));
                assert_string_equal(cg_addr_class_name(u.class), c.out);
        }
        memset(long_one + 18, 'x', sizeof(long_one) - 19);
        FAILS(CG_E_INVAL, "", cg_oauth_url_parse(long_one, "x", &u, &err));
        OK(cg_oauth_url_parse("https://A.example:8443/x?y=1", "x", &u, &err));
        assert_int_equal(u.port, 8443);
        assert_int_equal(u.origin_len, strlen("https://A.example:8443"));
        assert_int_equal(u.path_len, 2);
        assert_string_equal(u.query, "y=1");
        assert_int_equal(u.class, CG_ADDR_PUBLIC);
}

TEST(test_resource_is_of_this_server)
{
        EACH_CASE(c, "resources")
        if (cg_oauth_resource_covers(c.in, c.out) != !strcmp(c.third, "yes"))
                fail_msg("for %s", c.out);
}

TEST(test_challenges)
{
        struct cg_oauth_challenge c = { 0 };

        EACH_CASE(k, "challenges")
        {
                OK(cg_oauth_challenge_add(&c, k.in, &err));
                if (!c.bearer)
                        assert_string_equal(k.out, "no bearer");
                else
                        assert_text(c.resource_metadata, k.out);
                assert_text(c.scope, k.third);
                assert_text(c.error, k.fourth);
                cg_oauth_challenge_fini(&c);
        }
        /* several header lines */
        OK(cg_oauth_challenge_add(&c, "Basic realm=x", &err));
        OK(cg_oauth_challenge_add(&c, "Bearer scope=first", &err));
        OK(cg_oauth_challenge_add(&c, "Bearer scope=second, error=e", &err));
        assert_text(c.scope, "first");
        assert_text(c.error, NULL);
        cg_oauth_challenge_fini(&c);
}

TEST(test_scopes)
{
        char *set = NULL;

        OK(cg_oauth_scopes_add(&set, "b  a b ", &err));
        assert_string_equal(set, "b a");
        OK(cg_oauth_scopes_add(&set, "c a ab", &err));
        assert_string_equal(set, "b a c ab");
        FAILS(CG_E_PARSE, "", cg_oauth_scopes_add(&set, "x\ny", &err));
        FAILS(CG_E_PARSE, "", cg_oauth_scopes_add(&set, "x\"y", &err));
        assert_string_equal(set, "b a c ab");
        assert_true(cg_oauth_scopes_have(set, "ab b"));
        assert_true(cg_oauth_scopes_have(set, ""));
        assert_false(cg_oauth_scopes_have(set, "b d"));
        assert_false(cg_oauth_scopes_have(NULL, "b"));
        free(set);
}

TEST(test_resource_metadata)
{
        struct cg_oauth_resource m = { 0 };

        EACH_CASE(c, "resource metadata")
        {
                OK(cg_oauth_resource_parse(c.in, c.len, &m, &err));
                assert_string_equal(m.resource, c.out);
                assert_string_equal(m.issuer, c.third);
                assert_string_equal(m.scopes, c.fourth);
                cg_oauth_resource_fini(&m);
        }
        EACH_CASE(c, "refused resource metadata")
        FAILS(cg_case_code(c.out), "", cg_oauth_resource_parse(c.in, c.len, &m, &err));
}

TEST(test_server_metadata)
{
        static const char least[] = "{\"issuer\":\"https://as\",\"token_endpoint\":\"https://as/t\"}";
        struct cg_oauth_as m = { 0 };

        EACH_CASE(c, "server metadata")
        {
                OK(cg_oauth_as_parse(c.in, c.len, "https://as", &m, &err));
                assert_true(m.s256 && m.sends_iss && m.offline_access && !m.client_id_documents);
                assert_int_equal(m.methods, CG_OAUTH_POST);
                assert_null(m.registration_endpoint);
                cg_oauth_as_fini(&m);
        }
        OK(cg_oauth_as_parse(least, strlen(least), NULL, &m, &err));
        assert_int_equal(m.methods, CG_OAUTH_BASIC);
        assert_false(m.s256);
        cg_oauth_as_fini(&m);
        EACH_CASE(c, "refused server metadata")
        FAILS(cg_case_code(c.out), "", cg_oauth_as_parse(c.in, c.len, "https://as", &m, &err));
}

TEST(test_tokens)
{
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
        EACH_CASE(c, "refused tokens")
        {
                assert_true(cg_oauth_token_parse(c.in, c.len, &t, &err) < 0);
                assert_null(strstr(err.msg, "SECRET"));
        }
        cg_oauth_error_parse("{\"error\":\"invalid_grant\"}", 25, error);
        assert_string_equal(error, "invalid_grant");
        cg_oauth_error_parse("{\"error\":\"a b\"}", 15, error);
        assert_string_equal(error, "");
        cg_oauth_error_parse("x", 1, error);
        assert_string_equal(error, "");
}

TEST(test_redirects)
{
        static const char good[] = "code=a%2Fb&x=1&state=s&iss=https%3A%2F%2Fas";
        struct cg_oauth_redirect q = { 0 };

        OK(cg_oauth_redirect_parse(good, strlen(good), &q, &err));
        assert_text(q.code, "a/b");
        assert_text(q.state, "s");
        assert_text(q.iss, "https://as");
        assert_text(q.error, NULL);
        cg_oauth_redirect_fini(&q);
        OK(cg_oauth_redirect_parse("", 0, &q, &err));
        assert_null(q.code);
        EACH_CASE(c, "refused redirects")
        FAILS(CG_E_PARSE, "", cg_oauth_redirect_parse(c.in, c.len, &q, &err));
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
        EACH_CASE(k, "refused definitions")
        {
                assert_int_equal(config(k.in, &c, &err), CG_E_INVAL);
                if (!strstr(err.msg, k.out) || !strstr(err.msg, "\"srv\"") || strstr(err.msg, "TOPSECRET"))
                        fail_msg("%s", err.msg);
        }
}
