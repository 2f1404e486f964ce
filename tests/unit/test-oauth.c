/*
 * OAuth without a person: stored tokens, refreshing, client credentials, challenges. Requests go to
 * a function of the test; files are in a folder of the test.
 */
#include <netinet/in.h>
#include <time.h>
#include "mcp/ceilings.h"
#include "mcp/oauth/fetch.h"
#include "mcp/oauth/store.h"
#include "mcp/oauth/oauth.h"
#include "unit.h"

#define URL "https://srv.example/mcp"
#define AS  "https://as.example"

/* The servers. */
static struct {
        const char *issuer;
        const char *endpoint; /* of the metadata; NULL: the issuer's /token */
        const char *token;    /* body of the token endpoint's response */
        enum cg_addr_class peer;
        int status;
        int offline;      /* requests from this one on get no response; 0: none */
        char log[8][512]; /* "URL BODY AUTHORIZATION" of token requests */
        int n_tokens, n;
        int foreign; /* requests to what the server names */
} net;

static int fetch(void *data, const struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                 struct cg_err *err)
{
        char text[2048] = "";

        (void)data;
        ret->peer = net.peer;
        net.foreign += q->foreign;
        if (net.offline && ++net.n >= net.offline)
                return cg_fail(err, CG_E_CLOSED, "no route to host");
        ret->status = 404;
        if (!net.issuer && !q->body)
                return 0; /* nothing is published */
        if (strcmp(q->url, "https://srv.example/.well-known/oauth-protected-resource/mcp") == 0) {
                ret->status = 200;
                snprintf(text, sizeof(text), "{\"resource\":\"%s\",\"authorization_servers\":[\"%s\"]}", URL,
                         net.issuer);
        } else if (strstr(q->url, "/.well-known/oauth-authorization-server")) {
                ret->status = 200;
                snprintf(
                        text, sizeof(text),
                        "{\"issuer\":\"%s\",\"token_endpoint\":\"%s%s\",\"authorization_endpoint\":\"%s/a\"}",
                        net.issuer, net.endpoint ?: net.issuer, net.endpoint ? "" : "/token", net.issuer);
        } else if (q->body) {
                snprintf(net.log[net.n_tokens++ % 8], sizeof(net.log[0]), "%s %s %s", q->url, q->body,
                         q->authorization ? q->authorization : "");
                ret->status = net.status;
                snprintf(text, sizeof(text), "%s", net.token);
        }
        return cg_buf_try_adds(&ret->body, text, err);
}

static struct cg_oauth_config config;
static enum cg_addr_class place;
static const struct cg_oauth_server server = {
        .name = "srv", .url = URL, .config = &config, .fetch = fetch, .place = &place
};

/* Stores a token with @lifetime_s. */
static void store(const char *access, const char *refresh, const char *scope, int lifetime_s)
{
        json_t *j = json_pack("{ss ss s{ss ss ss ss} s{ss ss ss ss* ss* sI}}", "name", "srv", "url", URL,
                              "client", "issuer", AS, "id", "CLIENT", "secret", "SECRET-1", "method",
                              "client_secret_basic", "token", "issuer", AS, "client_id", "CLIENT", "access",
                              access, "refresh", refresh, "scope", scope, "expires_at",
                              (json_int_t)(time(NULL) + lifetime_s));

        assert_non_null(j);
        OK(cg_oauth_store_save(j, &err));
        json_decref(j);
}

static json_t *stored(void)
{
        json_t *j;

        OK(cg_oauth_store_load("srv", URL, &j, &err));
        return j;
}

static void assert_stored(const char *object, const char *key, const char *value)
{
        cg_auto_json json_t *j = stored();
        const char *is = json_string_value(json_object_get(json_object_get(j, object), key));

        if (!value)
                assert_null(is);
        else
                assert_string_equal(is ? is : "(null)", value);
}

static int setup(void **state)
{
        if (enter_folder(state) < 0)
                return -1;
        setenv("XDG_STATE_HOME", test_dir, 1);
        memset(&net, 0, sizeof(net));
        net.issuer = AS;
        place = CG_ADDR_PUBLIC;
        net.status = 200;
        net.token = "{\"access_token\":\"NEW-1\",\"token_type\":\"Bearer\",\"expires_in\":3600}";
        config = (struct cg_oauth_config){ 0 };
        return 0;
}

static char *header_now(void)
{
        char *header = NULL;

        OK(cg_oauth_authorization(&server, &header, &err));
        return header;
}

/* No secret in it. */
static void assert_clean(const struct cg_err *err)
{
        static const char *const secrets[] = { "SECRET-1", "OLD-1", "NEW-1", "REFRESH-1", "REFRESH-2" };

        for (size_t i = 0; i < CG_ARRAY_LEN(secrets); i++)
                if (strstr(err->msg, secrets[i]))
                        fail_msg("shown: %s", err->msg);
}

static int challenged(int status, const char *text, const char *refused, char **header, struct cg_err *err)
{
        struct cg_oauth_challenge c = { 0 };
        int r;

        *header = NULL;
        assert_int_equal(cg_oauth_challenge_add(&c, text, err), 0);
        r = cg_oauth_challenged(&server, status, &c, refused, header, err);
        cg_oauth_challenge_fini(&c);
        if (r < 0)
                assert_clean(err);
        return r;
}

TEST_WITH(test_nothing_is_stored, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *again = NULL;

        header = header_now();
        assert_null(header);
        FAILS(CG_E_STATE, "run: cellgate mcp login srv",
              challenged(401, "Bearer scope=r", NULL, &again, &err));
        assert_stored("wanted", "scope", "r");
        assert_int_equal(net.n_tokens, 0);
}

TEST_WITH(test_valid_token_needs_no_request, setup, leave_folder)
{
        cg_auto_free char *header = NULL;

        net.offline = 1;
        store("OLD-1", "REFRESH-1", NULL, 3600);
        header = header_now();
        assert_string_equal(header, "Bearer OLD-1");
        assert_int_equal(net.n, 0);
}

TEST_WITH(test_refresh_before_the_end, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *next = NULL;

        store("OLD-1", "REFRESH-1", "r w", 10);
        header = header_now();
        assert_string_equal(header, "Bearer NEW-1");
        assert_int_equal(net.n_tokens, 1);
        assert_non_null(
                strstr(net.log[0], AS "/token grant_type=refresh_token&refresh_token=REFRESH-1&resource="));
        assert_non_null(strstr(net.log[0], " Basic "));
        assert_null(strstr(net.log[0], "SECRET-1"));
        /* A response without them leaves both as they were. */
        assert_stored("token", "refresh", "REFRESH-1");
        assert_stored("token", "scope", "r w");
        next = header_now();
        assert_string_equal(next, "Bearer NEW-1");
        assert_int_equal(net.n_tokens, 1);
}

TEST_WITH(test_rotation, setup, leave_folder)
{
        cg_auto_free char *header = NULL;

        net.token = "{\"access_token\":\"NEW-1\",\"token_type\":\"bearer\",\"refresh_token\":\"REFRESH-2\"}";
        store("OLD-1", "REFRESH-1", NULL, 3600);
        OK(challenged(401, "Bearer error=\"invalid_token\"", "Bearer OLD-1", &header, &err));
        assert_string_equal(header, "Bearer NEW-1");
        assert_stored("token", "refresh", "REFRESH-2");
}

TEST_WITH(test_token_of_another_process_is_used, setup, leave_folder)
{
        cg_auto_free char *header = NULL;

        store("NEW-1", "REFRESH-2", NULL, 3600);
        OK(challenged(401, "Bearer", "Bearer OLD-1", &header, &err));
        assert_string_equal(header, "Bearer NEW-1");
        assert_int_equal(net.n_tokens, 0);
}

static void *refresh_thread(void *data)
{
        struct cg_err err;
        char *header = NULL;

        (void)data;
        return cg_oauth_authorization(&server, &header, &err) == 0 ? header : NULL;
}

TEST_WITH(test_one_refresh_for_all, setup, leave_folder)
{
        pthread_t threads[8];
        void *header;

        store("OLD-1", "REFRESH-1", NULL, 1);
        for (size_t i = 0; i < CG_ARRAY_LEN(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, refresh_thread, NULL), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(threads); i++) {
                assert_int_equal(pthread_join(threads[i], &header), 0);
                assert_string_equal(header, "Bearer NEW-1");
                free(header);
        }
        assert_int_equal(net.n_tokens, 1);
}

TEST_WITH(test_other_issuer_gets_nothing, setup, leave_folder)
{
        cg_auto_free char *header = NULL;

        net.issuer = "https://evil.example";
        store("OLD-1", "REFRESH-1", NULL, 3600);
        FAILS(CG_E_STATE, "", challenged(401, "Bearer", "Bearer OLD-1", &header, &err));
        assert_int_equal(net.n_tokens, 0);
}

/* What a server may name by where it is: a refused place gets no request. */
TEST_WITH(test_addresses_that_a_server_names, setup, leave_folder)
{
        static const struct {
                const char *host;
                enum cg_addr_class server;
                bool may;
        } cases[] = {
                { "127.1", CG_ADDR_PUBLIC, false },
                { "2130706433", CG_ADDR_PUBLIC, false },
                { "foo.localhost", CG_ADDR_PUBLIC, false },
                { "0.0.0.0", CG_ADDR_PUBLIC, false },
                { "[::ffff:127.0.0.1]", CG_ADDR_PUBLIC, false },
                { "192.168.7.7", CG_ADDR_PUBLIC, false },
                { "169.254.169.254", CG_ADDR_PRIVATE, false },
                { "localhost", CG_ADDR_PRIVATE, false },
                { "10.9.9.9", CG_ADDR_PRIVATE, true },
                { "198.51.100.7", CG_ADDR_PUBLIC, true },
                { "10.9.9.9", CG_ADDR_LOOPBACK, true },
                { "127.0.0.1", CG_ADDR_LOOPBACK, true },
        };

        for (size_t i = 0; i < 2 * CG_ARRAY_LEN(cases); i++) {
                bool may = cases[i / 2].may, as_issuer = i % 2;
                cg_auto_free char *header = NULL;
                char url[64], issuer[64];
                struct cg_err err;
                int r;

                snprintf(url, sizeof(url), "https://%s:8443%s", cases[i / 2].host, as_issuer ? "" : "/t");
                net.issuer = as_issuer ? url : AS;
                net.endpoint = as_issuer ? NULL : url;
                net.peer = cases[i / 2].server;
                net.n_tokens = net.foreign = 0;
                place = CG_ADDR_PUBLIC; /* its first document shows where it is */
                config = (struct cg_oauth_config){ 0 };
                store("OLD-1", "REFRESH-1", NULL, 3600);
                r = challenged(401, "Bearer", "Bearer OLD-1", &header, &err);
                if (may ? r != (as_issuer ? CG_E_STATE : 0) : r != CG_E_INVAL || net.n_tokens)
                        fail_msg("%s for %s: %d", url, cg_addr_class_name(net.peer), r);
                assert_int_equal(net.foreign, as_issuer ? may : 1 + may); /* not the server's own */
                if (may)
                        continue;
                assert_non_null(strstr(err.msg, "as \"issuer\" in \"oauth\""));
                /* as the user's own */
                snprintf(issuer, sizeof(issuer), "https://%s:8443", cases[i / 2].host);
                config.issuer = issuer;
                assert_int_equal(challenged(401, "Bearer", "Bearer OLD-1", &header, &err),
                                 as_issuer ? CG_E_STATE : 0);
                config.issuer = NULL;
        }
}

/* Responses that say nothing about the refresh token, such as a proxy's, change nothing. */
TEST_WITH(test_only_named_errors_end_a_token, setup, leave_folder)
{
        static const struct {
                int status; /* 0: there is no response */
                const char *body;
                bool ends_token, ends_client;
        } cases[] = {
                { 0, "", false, false },
                { 503, "", false, false },
                { 404, "<html>", false, false },
                { 403, "{\"error\":\"access_denied\"}", false, false },
                { 408, "", false, false },
                { 400, "{\"error\":\"invalid_request\"}", false, false },
                { 400, "{\"error\":\"unauthorized_client\"}", true, true },
                { 400, "{\"error\":\"invalid_grant\",\"error_description\":\"REFRESH-1 is revoked\"}", true,
                  false },
                { 401, "{\"error\":\"invalid_client\"}", true, true }, /* it has forgotten the client */
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                cg_auto_free char *header = NULL;

                net.offline = !cases[i].status;
                net.status = cases[i].status;
                net.token = cases[i].body;
                store("OLD-1", "REFRESH-1", NULL, 3600);
                if (cases[i].ends_token)
                        FAILS(CG_E_STATE, "run: cellgate mcp login srv",
                              challenged(401, "Bearer", "Bearer OLD-1", &header, &err));
                else
                        FAILS(CG_E_CLOSED, "no token",
                              challenged(401, "Bearer", "Bearer OLD-1", &header, &err));
                assert_stored("token", "access", cases[i].ends_token ? NULL : "OLD-1");
                assert_stored("token", "refresh", cases[i].ends_token ? NULL : "REFRESH-1");
                assert_stored("client", "id", cases[i].ends_client ? NULL : "CLIENT");
        }
}

TEST_WITH(test_challenge_with_malformed_url, setup, leave_folder)
{
        cg_auto_free char *header = NULL;

        FAILS(CG_E_INVAL, "resource_metadata",
              challenged(401, "Bearer resource_metadata=\"https://srv.example/\xff\"", NULL, &header, &err));
}

/* Which addresses answer, and how, is in the log only. */
TEST_WITH(test_cause_is_not_for_kernels, setup, leave_folder)
{
        struct cg_err cause = { 0 }, err = { 0 };
        struct cg_oauth_server s = server;
        cg_auto_free char *header = NULL;

        s.cause = &cause;
        net.offline = 1;
        store("OLD-1", "REFRESH-1", NULL, 1);
        assert_int_equal(cg_oauth_authorization(&s, &header, &err), CG_E_CLOSED);
        assert_null(strstr(err.msg, "no route"));
        assert_non_null(strstr(cause.msg, "no route"));
}

/* After 403 a request is repeated with another token only. */
TEST_WITH(test_same_token_after_403, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *next = NULL;
        char id[] = "ci", secret[] = "SECRET-1", issuer[] = AS;
        struct cg_err err;

        config = (struct cg_oauth_config){
                .client_credentials = true, .client_id = id, .client_secret = secret, .issuer = issuer
        };
        assert_int_equal(challenged(401, "Bearer", NULL, &header, &err), 0);
        assert_int_equal(challenged(403, "Bearer error=insufficient_scope, scope=b", header, &next, &err),
                         CG_E_INVAL);
        assert_null(next);
        assert_non_null(strstr(err.msg, "same token"));
}

/* A folder that no sandbox would have made and hidden. */
TEST_WITH(test_folder_far_from_what_exists, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *path = NULL, *old = strdup(getenv("XDG_STATE_HOME"));

        assert_true(asprintf(&path, "%s/a/b/c/d", old) > 0);
        setenv("XDG_STATE_HOME", path, 1);
        header = header_now(); /* nothing is stored, which is no failure */
        assert_null(header);
        FAILS(CG_E_NOTFOUND, "no token can be stored", challenged(401, "Bearer", NULL, &header, &err));
        assert_int_equal(access(path, F_OK), -1);
        setenv("XDG_STATE_HOME", old, 1);
}

/* Requests have one deadline for all. */
TEST_WITH(test_deadline, setup, leave_folder)
{
        struct cg_oauth_response answer = { .body = { .max = 1000 } };
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int64_t start = cg_now_ms();
        struct cg_oauth_net n = { .end_ms = start + 200 };
        socklen_t len = sizeof(a);
        struct cg_err err;
        char url[64];

        assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
        assert_int_equal(listen(fd, 8), 0); /* it never answers */
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
        snprintf(url, sizeof(url), "http://127.0.0.1:%d/", ntohs(a.sin_port));
        assert_int_equal(cg_oauth_net_init(&n, &err), 0);
        for (int i = 0; i < 2; i++) {
                assert_true(cg_oauth_net_fetch(&n, &(struct cg_oauth_fetch){ .url = url }, &answer, &err) <
                            0);
                cg_oauth_response_fini(&answer);
        }
        assert_true(cg_now_ms() - start < CG_OAUTH_FETCH_MS / 2);
        assert_int_equal(cg_oauth_net_fetch(
                                 &n,
                                 &(struct cg_oauth_fetch){ .url = url, .body = "{}", .content_type = "x/y" },
                                 &answer, &err),
                         CG_E_TIMEDOUT);
        cg_oauth_net_fini(&n);
        close(fd);
}

TEST_WITH(test_step_up, setup, leave_folder)
{
        static const char more[] = "Bearer error=\"insufficient_scope\", scope=\"w\"";
        cg_auto_free char *header = NULL;
        struct cg_err err;

        store("OLD-1", "REFRESH-1", "r", 3600);
        assert_int_equal(challenged(403, more, "Bearer OLD-1", &header, &err), CG_E_STATE);
        assert_non_null(strstr(err.msg, "more rights"));
        assert_stored("wanted", "scope", "r w");
        assert_stored("token", "access", "OLD-1"); /* it stays good for other tools */
        assert_int_equal(net.n_tokens, 0);
        /* A server that refuses what it has granted: nobody is sent round in circles. */
        store("OLD-1", "REFRESH-1", "r w", 3600);
        assert_int_equal(challenged(403, more, "Bearer OLD-1", &header, &err), CG_E_INVAL);
        assert_null(strstr(err.msg, "cellgate mcp login"));
        /* Other refusals are the server's answer. */
        assert_int_equal(challenged(403, "Bearer", "Bearer OLD-1", &header, &err), CG_E_INVAL);
}

TEST_WITH(test_client_credentials, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *next = NULL;
        char id[] = "ci", secret[] = "SECRET-1", scopes[] = "a", issuer[] = AS, srv[] = "https://srv.example";
        struct cg_err err;

        config = (struct cg_oauth_config){ .client_credentials = true,
                                           .client_id = id,
                                           .client_secret = secret,
                                           .issuer = issuer,
                                           .scopes = scopes };
        assert_int_equal(challenged(401, "Bearer", NULL, &header, &err), 0);
        assert_string_equal(header, "Bearer NEW-1");
        assert_non_null(strstr(net.log[0], "grant_type=client_credentials&scope=a&resource="));
        assert_stored("token", "scope", "a");
        /* more scopes without a person */
        net.token = "{\"access_token\":\"NEW-2\",\"token_type\":\"Bearer\"}";
        assert_int_equal(challenged(403, "Bearer error=insufficient_scope, scope=b", header, &next, &err), 0);
        assert_string_equal(next, "Bearer NEW-2");
        assert_non_null(strstr(net.log[1], "scope=a%20b"));
        free(CG_STEAL(next));
        net.status = 401;
        net.token = "{\"error\":\"invalid_client\"}";
        assert_int_equal(challenged(401, "Bearer", "Bearer NEW-2", &next, &err), CG_E_STATE);
        assert_non_null(strstr(err.msg, "invalid_client"));
        assert_null(strstr(err.msg, "cellgate mcp login"));
        /* Another issuer, and a server that publishes nothing, get no secret. */
        net.n_tokens = 0;
        net.issuer = "https://evil.example";
        assert_int_equal(challenged(401, "Bearer", "Bearer NEW-2", &next, &err), CG_E_INVAL);
        net.issuer = NULL;
        config.issuer = srv;
        assert_int_equal(challenged(401, "Bearer", "Bearer NEW-2", &next, &err), CG_E_INVAL);
        assert_int_equal(net.n_tokens, 0);
}

TEST_WITH(test_switched_off, setup, leave_folder)
{
        cg_auto_free char *header = NULL, *next = NULL;

        store("OLD-1", "REFRESH-1", NULL, 3600);
        config.off = true;
        header = header_now();
        assert_null(header);
        FAILS(CG_E_INVAL, "", challenged(401, "Bearer", NULL, &next, &err));
}

TEST_WITH(test_damaged_file, setup, leave_folder)
{
        cg_auto_free char *text = NULL, *header = NULL;
        char path[4096];
        struct cg_err err;
        FILE *p;

        store("OLD-1", "REFRESH-1", NULL, 3600);
        snprintf(path, sizeof(path),
                 "cd '%s/cellgate/mcp-login' && echo '{\"token\": OLD-1' > \"$(ls *.json)\"",
                 getenv("XDG_STATE_HOME"));
        p = popen(path, "r"); /* NOLINT(cert-env33-c) */
        assert_non_null(p);
        pclose(p);
        assert_int_equal(cg_oauth_authorization(&server, &header, &err), CG_E_PARSE);
        assert_clean(&err);
        assert_non_null(strstr(err.msg, "damaged"));
}
