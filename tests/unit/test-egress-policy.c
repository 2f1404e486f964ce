/*
 * Destinations that a policy allows by name, by address and by route; invalid policies. Each allow
 * has its deny.
 */
#include "sandbox/egress/policy.h"
#include "cases.h"

/* The proxy's policy of a text in which the members of settings and of the policy are mixed. */
static json_t *read_flat(const char *text)
{
        static const char *const own[] = { "ask",    "askTimeoutMs", "events",          "inject",
                                           "limits", "parentProxy",  "privateAddresses" };
        json_t *net, *ret = json_object();
        struct cg_err err;

        if (cg_json_object(text, strlen(text), "policy", &net, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        for (size_t i = 0; i < CG_ARRAY_LEN(own); i++) {
                if (json_object_get(net, own[i]))
                        json_object_set(ret, own[i], json_object_get(net, own[i]));
                json_object_del(net, own[i]);
        }
        if (!json_object_get(net, "allowedDomains"))
                json_object_set_new(net, "allowedDomains", json_array());
        if (!json_object_get(net, "deniedDomains"))
                json_object_set_new(net, "deniedDomains", json_array());
        json_object_set_new(ret, "network", net);
        return ret;
}

static struct cg_policy *policy(const char *text)
{
        cg_auto_json json_t *o = read_flat(text);
        struct cg_policy *p = NULL;
        struct cg_err err;

        if (cg_policy_read(o, &p, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return p;
}

static struct cg_host host(const char *text)
{
        struct cg_host h;

        assert_int_equal(cg_host_parse(text, strlen(text), &h, NULL), 0);
        return h;
}

static enum cg_verdict decide(const struct cg_policy *p, const char *to, uint16_t port, struct cg_decision *d)
{
        struct cg_host h = host(to);

        cg_policy_decide(p, &h, port, d);
        assert_non_null(d->why);
        return d->verdict;
}

TEST(test_by_name)
{
        struct cg_policy *p = policy("{\"allowedDomains\": [\"*.a.b:443\", \"c.d\"],"
                                     "\"deniedDomains\": [\"x.a.b\", \"*:22\", \"127.0.0.1\"],"
                                     "\"deniedDomainReasons\": {\"*:22\": \"no ssh\", \"c.d\": \"never\"}}");
        struct cg_decision d;

        assert_int_equal(decide(p, "y.a.b", 443, &d), CG_VERDICT_ALLOW);
        assert_string_equal(d.rule, "*.a.b:443");
        assert_string_equal(d.list, "allowedDomains");
        assert_int_equal(decide(p, "y.a.b", 80, &d), CG_VERDICT_DENY);
        assert_string_equal(d.why, "host is not on the allow list");
        assert_null(d.rule);
        assert_int_equal(decide(p, "x.a.b", 443, &d), CG_VERDICT_DENY);
        assert_string_equal(d.why, "host is on the deny list");
        assert_string_equal(d.list, "deniedDomains");
        assert_int_equal(decide(p, "c.d", 21, &d), CG_VERDICT_ALLOW);
        assert_int_equal(decide(p, "c.d", 22, &d), CG_VERDICT_DENY);
        assert_string_equal(d.why, "no ssh");
        /* An address that contains a denied one is denied. */
        assert_int_equal(decide(p, "[64:ff9b::7f00:1]", 80, &d), CG_VERDICT_DENY);
        assert_string_equal(d.rule, "127.0.0.1");
        cg_policy_free(p);
}

static const char *vet(const struct cg_policy *p, const char *name, uint16_t port, const char *addr)
{
        static const struct cg_addr own = { .family = 4, .b = { 8, 8, 4, 4 } };
        struct cg_host h = host(name), a = host(addr);

        return cg_policy_vet(p, &h, port, &a.addr, &own, 1);
}

TEST(test_by_address)
{
        static const char *const all[][2] = {
                { "addresses: exceptions",
                  "{\"allowedDomains\": [\"10.0.0.1:80\", \"127.0.0.1\"], \"deniedDomains\": [\"9.9.9.9\"],"
                  "\"deniedResolvedAddresses\": [\"7.0.0.0/8\"]}" },
                { "addresses: none", "{}" },
                { "addresses: private", "{\"privateAddresses\": true}" },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(all); i++) {
                struct cg_policy *p = policy(all[i][1]);

                EACH_CASE(c, all[i][0])
                {
                        const char *why = vet(p, c.in, (uint16_t)atoi(c.out), c.third);

                        assert_string_equal(why ? why : "allowed", c.fourth ? c.fourth : "allowed");
                }
                cg_policy_free(p);
        }
}

TEST(test_order_of_reasons)
{
        assert_true(cg_policy_vet_rank("a deny-listed address") >= 0);
        assert_true(cg_policy_vet_rank("a loopback address") < cg_policy_vet_rank("a private address"));
        assert_true(cg_policy_vet_rank("a private address") <
                    cg_policy_vet_rank("one of this host's addresses"));
}

static enum cg_route route(const struct cg_policy *p, const char *to, bool tunnel,
                           const struct cg_upstream **up)
{
        struct cg_host h = host(to);
        const char *path = NULL;
        enum cg_route r = cg_policy_route(p, &h, tunnel, up, &path);

        assert_true((r == CG_ROUTE_MITM) == (path != NULL));
        return r;
}

TEST(test_routes)
{
        struct cg_policy *p = policy(
                "{\"parentProxy\": {\"http\": \"http://u%40:p%3a@proxy.corp:3129\","
                "\"https\": \"other.corp:8080\","
                "\"noProxy\": \"intern.corp, .dot.corp,*.star.corp,10.0.0.0/8,[::2]:80,port.corp:8080\"},"
                "\"mitmProxy\": {\"socketPath\": \"/run/m\", \"domains\": [\"*.m.corp\"]}}");
        struct cg_policy *all = policy("{\"parentProxy\": {\"http\": \"http://a.b\", \"noProxy\": \"*\"}}");
        struct cg_policy *https = policy("{\"parentProxy\": {\"https\": \"http://[::1]:1/\"}}");
        static const char *const direct[] = { "localhost",   "127.9.9.9",     "::1",      "10.1.2.3",
                                              "intern.corp", "x.intern.corp", "dot.corp", "x.dot.corp",
                                              "star.corp",   "x.star.corp",   "::2",      "port.corp" };
        const struct cg_upstream *up;

        assert_int_equal(route(p, "x.y", false, &up), CG_ROUTE_PARENT);
        assert_string_equal(up->host, "proxy.corp");
        assert_int_equal(up->port, 3129);
        assert_string_equal(up->auth, "Basic dUA6cDo=");
        assert_int_equal(route(p, "x.y", true, &up), CG_ROUTE_PARENT);
        assert_string_equal(up->host, "other.corp");
        assert_null(up->auth);
        assert_int_equal(route(p, "a.m.corp", true, &up), CG_ROUTE_MITM);
        for (size_t i = 0; i < CG_ARRAY_LEN(direct); i++)
                assert_int_equal(route(p, direct[i], true, &up), CG_ROUTE_DIRECT);
        assert_int_equal(route(p, "xintern.corp", true, &up), CG_ROUTE_PARENT);
        assert_int_equal(route(all, "x.y", true, &up), CG_ROUTE_DIRECT);
        /* As curl: an https proxy alone is not for plain HTTP. */
        assert_int_equal(route(https, "x.y", false, &up), CG_ROUTE_DIRECT);
        assert_int_equal(route(https, "x.y", true, &up), CG_ROUTE_PARENT);
        cg_policy_free(p);
        cg_policy_free(all);
        cg_policy_free(https);
}

TEST(test_options)
{
        struct cg_policy *p = policy(
                "{\"httpProxyPort\": 8080, \"stripResponseHeaders\": [\"set-cookie\", \"x\"],"
                "\"events\": \"denied\","
                "\"limits\": {\"connections\": 7, \"headMs\": 100}}");
        const struct cg_policy_options *o = cg_policy_options(p);

        assert_int_equal(cg_policy_network(p)->http_proxy_port, 8080);
        assert_int_equal(cg_policy_network(p)->socks_proxy_port, 0);
        assert_string_equal(o->strip, "set-cookie\nx\n");
        assert_false(o->all_events);
        assert_int_equal(o->limits.connections, 7);
        assert_int_equal(o->limits.head_ms, 100);
        assert_true(o->limits.idle_ms > 60000);
        cg_policy_free(p);
}

TEST(test_refused)
{
        EACH_CASE(c, "refused")
        {
                cg_auto_json json_t *o = read_flat(c.in);
                struct cg_policy *p = NULL;

                FAILS(c.third ? cg_case_code(c.third) : ANY_ERROR, c.out, cg_policy_read(o, &p, &err));
        }
}
