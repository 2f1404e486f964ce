/*
 * Policies: what depends on time, on repetition, and on what --approve says; and that no rule that
 * denies ever allows more. The table of calls and decisions is in tests/cli/policy_cases.json.
 */
#include "policy/policy.h"
#include "cases.h"

static struct cg_pol *policy(const char *const *texts)
{
        struct cg_pol *p;
        struct cg_err err = { 0 };

        assert_int_equal(cg_pol_new(&p, NULL), 0);
        for (; *texts; texts++)
                if (cg_pol_add(p, "dir/p.json", *texts, strlen(*texts), &err) < 0)
                        fail_msg("%s: %s", err.msg, *texts);
        return p;
}

#define POLICY(...) policy((const char *const[]){ __VA_ARGS__, NULL })

static struct cg_pol_call call_of(const char *server, const char *args)
{
        return (struct cg_pol_call){ .server = server,
                                     .method = CG_METHOD_CALL,
                                     .tool = "t",
                                     .args = args,
                                     .args_len = strlen(args),
                                     .front = "run",
                                     .cell = 1,
                                     .time_s = 1000,
                                     .now_ms = 5 };
}

static struct cg_pol_verdict decide(struct cg_pol *p, const struct cg_pol_call *call)
{
        struct cg_pol_verdict v = { .decision = CG_POL_NONE };

        cg_pol_decide(p, call, false, &v, NULL);
        return v;
}

TEST(test_time)
{
        struct cg_pol *p = POLICY(
                "{\"rules\": [{\"decision\": \"allow\", \"server\": \"a\", \"until\": \"1970-01-01T00:16:40Z\"}]}");
        struct cg_pol_call call = call_of("a", "{}");

        call.time_s = 999;
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        call.time_s = 1000;
        assert_int_equal(decide(p, &call).decision, CG_POL_NONE);
        cg_pol_free(p);
}

TEST(test_rules_about_tools_are_about_no_other_method)
{
        struct cg_pol *p = POLICY("{\"rules\": [{\"decision\": \"allow\", \"server\": \"*\"}]}");
        struct cg_pol_call call = call_of("a", "{}");

        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        call.method = "of a later version";
        assert_int_equal(decide(p, &call).decision, CG_POL_NONE);
        cg_pol_free(p);
}

TEST(test_calls_in_a_minute)
{
        struct cg_pol *p = POLICY("{\"rules\": [{\"decision\": \"allow\", \"server\": \"*\"}], \"budgets\":"
                                  "[{\"id\": \"b\", \"server\": \"a\", \"per\": \"minute\", \"calls\": 2}]}");
        struct cg_pol_call call = call_of("a", "{}");

        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        call.now_ms = 50000;
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        call.now_ms = 60004;
        assert_int_equal(decide(p, &call).decision, CG_POL_DENY);
        assert_string_equal(decide(p, &call).rule,
                            "budget b of p.json: all of 2 calls for each minute are used");
        call.now_ms = 60005; /* the denied calls have not counted */
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        assert_int_equal(decide(p, &call).decision, CG_POL_DENY);
        cg_pol_free(p);
}

/* A question that is decided again when it is its turn does not count twice. */
TEST(test_again)
{
        struct cg_pol *p = POLICY(
                "{\"rules\": [{\"decision\": \"ask\", \"server\": \"*\"}], \"budgets\":"
                "[{\"id\": \"b\", \"server\": \"a\", \"per\": \"session\", \"calls\": 1}]}");
        struct cg_pol_call call = call_of("a", "{}"), again = call;

        again.again = true;
        assert_int_equal(decide(p, &call).decision, CG_POL_ASK);
        assert_int_equal(decide(p, &again).decision, CG_POL_ASK);
        assert_int_equal(decide(p, &call).decision, CG_POL_DENY);
        cg_pol_free(p);
}

TEST(test_repeated)
{
        struct cg_pol *p = POLICY("{\"rules\": [{\"decision\": \"deny\", \"server\": \"a\"},"
                                  "{\"decision\": \"ask\", \"server\": \"b\"}]}");
        struct cg_pol_call a = call_of("a", "{}"), other = call_of("a", "{\"x\":1}"), b = call_of("b", "{}"),
                           near = call_of("b", "{\"x\":1}");

        assert_false(decide(p, &a).repeated);
        assert_true(decide(p, &a).repeated);
        assert_false(decide(p, &other).repeated);
        assert_int_equal(decide(p, &b).decision, CG_POL_ASK);
        assert_int_equal(decide(p, &b).decision, CG_POL_ASK); /* nobody has refused it */
        cg_pol_refuse(p, cg_pol_key(&b));
        assert_int_equal(decide(p, &b).decision, CG_POL_DENY);
        assert_true(decide(p, &b).repeated);
        assert_int_equal(decide(p, &near).decision, CG_POL_ASK);
        for (int i = 0; i < 2000; i++) { /* no more are remembered than there is room for */
                char args[32];
                struct cg_pol_call c;

                snprintf(args, sizeof(args), "{\"n\":%d}", i);
                c = call_of("a", args);
                decide(p, &c);
        }
        assert_false(decide(p, &a).repeated);
        cg_pol_free(p);
}

/* What --approve says stands where no file decides, and what a ! pattern refuses everywhere. */
TEST(test_given)
{
        static const struct {
                const char *server;
                enum cg_pol_decision given;
                bool firm;
                enum cg_pol_decision want;
        } cases[] = {
                { "none", CG_POL_ALLOW, false, CG_POL_ALLOW }, { "none", CG_POL_DENY, false, CG_POL_DENY },
                { "none", CG_POL_DENY, true, CG_POL_DENY },    { "a", CG_POL_DENY, false, CG_POL_ALLOW },
                { "a", CG_POL_DENY, true, CG_POL_DENY },       { "a", CG_POL_ASK, false, CG_POL_ALLOW },
                { "q", CG_POL_ALLOW, false, CG_POL_ASK },      { "q", CG_POL_DENY, true, CG_POL_DENY },
                { "d", CG_POL_ALLOW, false, CG_POL_DENY },     { "d", CG_POL_DENY, true, CG_POL_DENY },
        };
        struct cg_pol *p = POLICY("{\"rules\": [{\"decision\": \"allow\", \"server\": \"a\"},"
                                  "{\"decision\": \"ask\", \"server\": \"q\"},"
                                  "{\"decision\": \"deny\", \"server\": \"d\"}]}");

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                struct cg_pol_call call = call_of(cases[i].server, "{}");
                struct cg_pol_verdict v = { .decision = cases[i].given };

                cg_pol_decide(p, &call, cases[i].firm, &v, NULL);
                if (v.decision != cases[i].want)
                        fail_msg("case %zu: %d", i, (int)v.decision);
        }
        cg_pol_free(p);
}

TEST(test_least_rate)
{
        struct cg_pol *p = POLICY("{\"cells_per_minute\": 7}", "{}", "{\"cells_per_minute\": 3}"),
                      *none = POLICY("{}");

        assert_int_equal(cg_pol_cells_per_minute(p), 3);
        assert_int_equal(cg_pol_cells_per_minute(none), 0);
        cg_pol_free(p);
        cg_pol_free(none);
}

/* ---- rules that are written for a person */

/* One file with a rule for the call added; NULL: there is none. */
static char *with_rule(const char *text, const struct cg_pol_call *call)
{
        struct cg_pol_text file = { .name = "p.json", .text = strdup(text), .len = strlen(text) };
        struct cg_buf b = { .max = 65536 };
        char *rule = NULL;
        struct cg_err err;
        size_t which;
        int r = cg_pol_rule_for(call, &rule, &err);

        if (r == 0)
                r = cg_pol_add_rule(&file, 1, call, rule, &which, &b, &err);
        free(rule);
        free(file.text);
        if (r == 0)
                return cg_buf_steal(&b, NULL);
        cg_buf_fini(&b);
        return NULL;
}

#define ASK "{\"decision\": \"ask\", \"server\": \"a\"}"

TEST(test_rules_are_added_as_late_as_they_can_be)
{
        struct cg_pol_call call = call_of("a", "{\"x\":1}");

        EACH_CASE(c, "with a rule")
        {
                cg_auto_free char *text = with_rule(c.in, &call);

                assert_non_null(text);
                assert_string_equal(text, c.out);
        }
}

TEST(test_an_added_rule_allows_the_very_same_call)
{
        struct cg_pol_call call = call_of("a", "{\"x\":1}"), other;
        char *text = with_rule("{\"rules\": [" ASK "]}", &call);
        struct cg_pol *p;

        assert_non_null(text);
        p = POLICY(text);
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        call.args = "{ \"\\u0078\" : 1 }";
        call.args_len = strlen(call.args);
        assert_int_equal(decide(p, &call).decision, CG_POL_ALLOW);
        EACH_CASE(c, "other calls")
        {
                other = call_of("a", c.in);
                if (decide(p, &other).decision != CG_POL_ASK)
                        fail_msg("not asked about");
        }
        other = call_of("a", "{\"x\":1}");
        other.tool = "T";
        assert_int_equal(decide(p, &other).decision, CG_POL_ASK);
        other.tool = "t";
        other.front = "mcp serve";
        assert_int_equal(decide(p, &other).decision, CG_POL_ASK);
        other.front = "run";
        other.method = CG_METHOD_READ;
        other.tool = "";
        assert_int_equal(decide(p, &other).decision, CG_POL_ASK);
        other = call_of("aa", "{\"x\":1}");
        assert_int_equal(decide(p, &other).decision, CG_POL_NONE);
        cg_pol_free(p);
        free(text);
}

TEST(test_what_no_rule_can_name_has_none)
{
        struct cg_pol_call call = call_of("a*", "{}");

        assert_null(with_rule("{}", &call));
        call.server = "a";
        call.tool = "t?";
        assert_null(with_rule("{}", &call));
        EACH_CASE(c, "no rule")
        {
                call = call_of("a", c.in);
                if (with_rule("{}", &call))
                        fail_msg("there is a rule");
        }
        call = call_of("host", "{\"command\":\"make\"}");
        call.tool = "host_exec";
        assert_null(with_rule("{}", &call));
        call = call_of("a", "{}");
        assert_null(with_rule("{\"rules\": [{\"decision\": \"deny\", \"server\": \"a\"}]}", &call));
        assert_null(with_rule("{\"default\": \"deny\"}", &call));
        assert_null(with_rule("{\"rules\": [{\"decision\": \"allow\", \"server\": \"a\"}]}", &call));
        assert_null(with_rule("{\"budgets\": [{\"id\": \"b\", \"server\": \"a\", \"per\": \"session\", "
                              "\"calls\": 0}]}",
                              &call));
}

/* ---- properties, of random policies and calls */

static const char *const subjects[] = {
        "\"server\": \"*\"",
        "\"server\": \"a\"",
        "\"server\": \"a\", \"tool\": \"t*\"",
        "\"server\": \"?\", \"tool\": \"u\"",
        "\"server\": \"a\", \"arguments\": {\"/x\": {\"equals\": 1}}",
        "\"server\": \"a\", \"arguments\": {\"/x\": {\"max\": 5}}",
        "\"server\": \"*\", \"arguments\": {\"/x\": {\"glob\": \"/srv/*\"}}",
        "\"server\": \"*\", \"arguments\": {\"/x\": {\"regex\": \"(a+)+[bc]\"}}",
        "\"server\": \"b\", \"arguments\": {\"/x\": {\"within\": \"/srv\"}, \"/y\": {\"enum\": [1, \"a\"]}}",
        "\"server\": \"b\", \"method\": \"resources/read\"",
        "\"server\": \"b\", \"front\": [\"jupyter\"]",
};
/* Of rules that allow only. */
static const char *const exact[] = {
        "\"server\": \"a\", \"tool\": \"t\", \"arguments\": {\"\": {\"equals\": {\"x\": 1}}}",
        "\"server\": \"*\", \"arguments\": {\"\": {\"equals\": {}}, \"/x\": {\"equals\": [1]}}",
        "\"server\": \"*\", \"arguments\": {\"/x\": {\"equals\": [1]}}",
};
static const char *const arguments[] = {
        "{}",
        "{\"x\":1}",
        "{\"x\":7}",
        "{\"x\":\"/srv/a\"}",
        "{\"x\":\"/srv/../a\",\"y\":1}",
        "{\"x\":\"/srv/a\",\"y\":\"a\"}",
        "{\"x\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
        "{\"x\":\"aab\"}",
        "{\"x\":[1],\"y\":null}",
        "{\"x\":1,\"x\":1}",
        "[]",
};
static const char *const defaults[] = { "none", "none", "ask", "deny" };

#define PICK(list) (list)[(size_t)rand() % (sizeof(list) / sizeof((list)[0]))]

/* A file of rules; one more that denies is put in at @extra. Both have the same rules otherwise. */
static void random_file(char *without, char *with, size_t size)
{
        int n = rand() % 6, extra = rand() % (n + 1);
        const char *base = PICK(defaults);
        size_t a, b;

        a = (size_t)snprintf(without, size, "{\"default\": \"%s\", \"rules\": [", base);
        b = (size_t)snprintf(with, size, "%s", without);
        for (int i = 0; i <= n; i++) {
                static const char *const decisions[] = { "allow", "allow", "ask", "deny" };
                const char *decision, *subject;
                char rule[300];

                if (i == extra)
                        b += (size_t)snprintf(with + b, size - b, "%s{\"decision\": \"deny\", %s}",
                                              i ? "," : "", PICK(subjects));
                if (i == n)
                        break;
                decision = PICK(decisions);
                subject = strcmp(decision, "allow") == 0 && rand() % 4 == 0 ? PICK(exact) : PICK(subjects);
                snprintf(rule, sizeof(rule), "{\"decision\": \"%s\", %s}", decision, subject);
                a += (size_t)snprintf(without + a, size - a, "%s%s", i ? "," : "", rule);
                b += (size_t)snprintf(with + b, size - b, "%s%s", i || !extra ? "," : "", rule);
        }
        snprintf(without + a, size - a, "]}");
        snprintf(with + b, size - b, "]}");
}

static struct cg_pol_call random_call(void)
{
        static const char *const servers[] = { "a", "b", "c" }, *const tools[] = { "t", "u", "tt" },
                                 *const methods[] = { CG_METHOD_CALL, CG_METHOD_CALL, CG_METHOD_READ };
        struct cg_pol_call call = call_of(PICK(servers), PICK(arguments));

        call.method = PICK(methods);
        call.tool = strcmp(call.method, CG_METHOD_CALL) == 0 ? PICK(tools) : "";
        return call;
}

static enum cg_pol_decision decide_once(const struct cg_pol_call *call, const char *one, const char *two)
{
        struct cg_pol *p = two ? POLICY(one, two) : POLICY(one);
        enum cg_pol_decision d = decide(p, call).decision;

        cg_pol_free(p);
        return d;
}

TEST(test_properties)
{
        static char a[4096], b[4096], a_more[4096], b_more[4096];
        size_t n = rounds(20000, 300);
        unsigned seen[4] = { 0 };

        srand(23);
        for (size_t i = 0; i < n; i++) {
                struct cg_pol_call call = random_call();
                enum cg_pol_decision first, second, both;

                random_file(a, a_more, sizeof(a));
                random_file(b, b_more, sizeof(b));
                first = decide_once(&call, a, NULL);
                second = decide_once(&call, b, NULL);
                both = decide_once(&call, a, b);
                seen[first]++;
                if (decide_once(&call, a_more, NULL) < first)
                        fail_msg("a rule that denies allows more: %s and %s for %s", a, a_more, call.args);
                if (both != (first > second ? first : second))
                        fail_msg("not the strictest: %s and %s for %s", a, b, call.args);
                if (decide_once(&call, a, b_more) < both)
                        fail_msg("a rule that denies allows more: %s beside %s for %s", b_more, a, call.args);
                if ((call.args[0] == '[' || strcmp(call.args, "{\"x\":1,\"x\":1}") == 0) &&
                    both == CG_POL_ALLOW)
                        fail_msg("allowed unread: %s and %s for %s", a, b, call.args);
        }
        for (size_t i = 0; i < 4; i++)
                assert_true(seen[i] > n / 100); /* nothing was only seen in theory */
}
