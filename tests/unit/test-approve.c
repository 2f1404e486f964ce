/* Approval rules: what decides, and that nothing opens what a ! pattern closed. */
#include "cli/common/approve.h"
#include "cli/common/rule_check.h"
#include "cases.h"

static struct cg_approve *rules(const char *const *list)
{
        struct cg_approve *a;

        assert_int_equal(cg_approve_new(&a, NULL), 0);
        for (; *list; list++)
                assert_int_equal(cg_approve_add(a, *list, NULL), 0);
        return a;
}

#define RULES(...) rules((const char *const[]){ __VA_ARGS__, NULL })

TEST(test_glob)
{
        EACH_CASE(c, "patterns")
        if (cg_pol_glob(c.in, strlen(c.in), c.out, strlen(c.out)) != !strcmp(c.third, "yes"))
                fail_msg("against \"%s\"", c.out);
}

/* Patterns of many stars against long names must not take for ever. */
TEST(test_glob_is_linear)
{
        char pattern[201], text[257];

        for (size_t i = 0; i < 200; i += 2)
                memcpy(pattern + i, "*a", 2);
        memset(text, 'a', 256);
        pattern[199] = 'b';
        assert_false(cg_pol_glob(pattern, 200, text, 256));
}

TEST(test_nothing_said_refuses)
{
        struct cg_approve *a;
        const char *rule = "x";

        assert_int_equal(cg_approve_new(&a, NULL), 0);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "read", &rule), CG_APPROVE_REFUSE);
        assert_null(rule);
        cg_approve_free(a);
}

TEST(test_denial_wins_in_any_order)
{
        struct cg_approve *one = RULES("fs.*", "!fs.write"), *two = RULES("!fs.write", "fs.*", "all");
        const char *rule;

        assert_int_equal(cg_approve_decide(one, "fs", CG_METHOD_CALL, "read", &rule), CG_APPROVE_ACCEPT);
        assert_string_equal(rule, "fs.*");
        assert_int_equal(cg_approve_decide(one, "fs", CG_METHOD_CALL, "write", &rule), CG_APPROVE_REFUSE);
        assert_string_equal(rule, "!fs.write");
        assert_int_equal(cg_approve_decide(two, "fs", CG_METHOD_CALL, "write", &rule), CG_APPROVE_REFUSE);
        assert_int_equal(cg_approve_decide(two, "other", CG_METHOD_CALL, "write", &rule), CG_APPROVE_ACCEPT);
        assert_null(rule);
        cg_approve_free(one);
        cg_approve_free(two);
}

/* Rules about tools do not decide about resources and prompts; those that refuse all tools do. */
TEST(test_methods)
{
        static const char *const answers[] = {
                [CG_APPROVE_ASK] = "ask", [CG_APPROVE_ACCEPT] = "accept", [CG_APPROVE_REFUSE] = "refuse"
        };
        struct cg_approve *all = RULES("all", "!fs.write");

        EACH_CASE(c, "methods")
        {
                struct cg_approve *a = RULES("ask", c.in);
                const char *answer = answers[cg_approve_decide(a, "fs", c.out, c.third, NULL)];

                if (strcmp(answer, c.fourth) != 0)
                        fail_msg("%s for %s", answer, c.out);
                cg_approve_free(a);
        }
        assert_int_equal(cg_approve_decide(all, "fs", CG_METHOD_READ, "", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(all, "fs", CG_METHOD_EXEC, "", NULL), CG_APPROVE_REFUSE);
        assert_int_equal(cg_approve_decide(all, "fs", "of a later version", "", NULL), CG_APPROVE_REFUSE);
        cg_approve_free(all);
}

TEST(test_always_of_a_method)
{
        struct cg_approve *a = RULES("ask");

        assert_int_equal(cg_approve_always(a, "fs", CG_METHOD_READ, "", NULL), 0);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_READ, "", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_GET, "", NULL), CG_APPROVE_ASK);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "", NULL), CG_APPROVE_ASK);
        assert_int_equal(cg_approve_decide(a, "other", CG_METHOD_READ, "", NULL), CG_APPROVE_ASK);
        assert_int_equal(cg_approve_always(a, "fs", "sampling/createMessage", "", NULL), CG_E_INVAL);
        cg_approve_free(a);
}

TEST(test_always_is_literal_and_yields_to_denial)
{
        struct cg_approve *a = RULES("ask", "!fs.write");

        assert_int_equal(cg_approve_always(a, "fs", CG_METHOD_CALL, "*", NULL), 0);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ASK);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "*", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_always(a, "fs", CG_METHOD_CALL, "write", NULL), 0);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "write", NULL), CG_APPROVE_REFUSE);
        cg_approve_free(a);
}

TEST(test_always_ends_with_the_program)
{
        struct cg_approve *a = RULES("ask", "fs.list");

        assert_int_equal(cg_approve_always(a, "fs", CG_METHOD_CALL, "read", NULL), 0);
        assert_int_equal(cg_approve_always(a, "other", CG_METHOD_CALL, "read", NULL), 0);
        cg_approve_forget(a, "fs");
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ASK);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "list", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(a, "other", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ACCEPT);
        cg_approve_free(a);
}

TEST(test_names_with_dots)
{
        struct cg_approve *a = RULES("a.*"), *b = RULES("a.b.c"), *c = RULES("*.read");

        assert_int_equal(cg_approve_decide(a, "a", CG_METHOD_CALL, "b.c", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(a, "a.b", CG_METHOD_CALL, "c", NULL), CG_APPROVE_REFUSE);
        /* no server has such a name */
        assert_int_equal(cg_approve_decide(b, "a.b", CG_METHOD_CALL, "c", NULL), CG_APPROVE_REFUSE);
        assert_int_equal(cg_approve_decide(b, "a", CG_METHOD_CALL, "b.c", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(b, "a", CG_METHOD_CALL, "b", NULL), CG_APPROVE_REFUSE);
        assert_int_equal(cg_approve_decide(c, "x", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ACCEPT);
        assert_int_equal(cg_approve_decide(c, "x", CG_METHOD_CALL, "y.read", NULL), CG_APPROVE_REFUSE);
        cg_approve_free(a);
        cg_approve_free(b);
        cg_approve_free(c);
}

TEST(test_bad_rules)
{
        struct cg_approve *a = RULES("ask");

        EACH_CASE(c, "no rules")
        FAILS(CG_E_INVAL, "", cg_approve_add(a, c.in, &err));
        assert_int_equal(cg_approve_add(a, "ask", NULL), 0);
        FAILS(CG_E_INVAL, "", cg_approve_add(a, "all", &err));
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ASK);
        cg_approve_free(a);
}

TEST(test_default_only_where_nothing_was_said)
{
        struct cg_approve *a = RULES("none"), *b = RULES("x.y");

        cg_approve_set_default(a, CG_APPROVE_ASK);
        cg_approve_set_default(b, CG_APPROVE_ASK);
        assert_int_equal(cg_approve_decide(a, "fs", CG_METHOD_CALL, "read", NULL), CG_APPROVE_REFUSE);
        assert_int_equal(cg_approve_decide(b, "fs", CG_METHOD_CALL, "read", NULL), CG_APPROVE_ASK);
        cg_approve_free(a);
        cg_approve_free(b);
}

TEST(test_explanations_are_safe)
{
        cg_auto_buf struct cg_buf plain = { .max = 1000 }, odd = { .max = 1000 }, rule = { .max = 1000 };

        cg_approve_explain(&plain, "fs", CG_METHOD_CALL, "read_file", NULL);
        assert_string_equal(plain.data,
                            "no approval rule allows fs.read_file (--approve fs.read_file would)");
        cg_approve_explain(&odd, "fs", CG_METHOD_CALL, "x'; rm -rf ~ #\x1b[2J", NULL);
        assert_null(strstr(odd.data, "--approve"));
        assert_null(strchr(odd.data, '\x1b'));
        cg_approve_explain(&rule, "fs", CG_METHOD_CALL, "read", "!fs.*");
        assert_string_equal(rule.data, "refused by the approval rule !fs.*");
}

/*
 * @want: a part of the message; NULL: the rule is right. Notes are about rules that do not stop it.
 */
TEST(test_rules_that_match_nothing)
{
        static const char servers[] = "{\"filesystem\":[\"read_file\",\"write_file\",\"list-dir\",\"a.b\"],"
                                      "\"github\":[\"create_issue\"],\"down\":null,\"empty\":[]}";
        cg_auto_json json_t *known = json_loads(servers, 0, NULL);

        EACH_CASE(c, "rules of servers")
        for (unsigned how = 0; how < 3; how++) { /* accepts; refuses; refuses, and rules are lax */
                cg_auto_buf struct cg_buf notes = { .max = 4096 };
                bool unknown = c.out && strstr(c.out, "did not start");
                char rule[100], want[200];
                struct cg_err err = { .msg = "" };
                struct cg_approve *a;
                bool stops = how == 1 && c.out && !unknown;

                snprintf(rule, sizeof(rule), "%s%s", how ? "!" : "", c.in);
                a = rules((const char *const[]){ rule, "ask", NULL });
                if (how == 2)
                        cg_approve_set_lax(a);
                cg_approve_always(a, "gone", CG_METHOD_CALL, "tool", NULL);
                if (cg_rules_check(a, known, &notes, &err) != (stops ? CG_E_INVAL : 0))
                        fail_msg("%s: %s", rule, err.msg);
                if (!c.out) {
                        assert_int_equal(notes.len, 0);
                } else {
                        const char *said = stops ? err.msg : notes.data;
                        const char *at = strchr(c.out, '@');

                        snprintf(want, sizeof(want), "%.*s%s%s", at ? (int)(at - c.out) : 0, c.out,
                                 at && how ? "!" : "", at ? at + 1 : c.out);
                        if (!said || !strstr(said, want))
                                fail_msg("%s: not \"%s\": %s", rule, want, said);
                        assert_null(strchr(said, '\x1b'));
                        assert_int_equal(strstr(said, "start with --lax-rules") != NULL, stops);
                }
                cg_approve_free(a);
        }
}

/* Several wrong rules: the first is named, and the reason of no other is lost. */
TEST(test_several_rules_that_match_nothing)
{
        cg_auto_json json_t *known = json_loads("{\"fs\":[\"read\"]}", 0, NULL);
        cg_auto_buf struct cg_buf notes = { .max = 4096 };
        struct cg_approve *a = rules((const char *const[]){ "sf.x", "!fx.read", "!fs.raed", NULL });
        struct cg_err err;

        assert_int_equal(cg_rules_check(a, known, &notes, &err), CG_E_INVAL);
        assert_non_null(strstr(err.msg, "!fx.read refuses nothing"));
        assert_non_null(strstr(err.msg, "Correct the rules"));
        assert_non_null(strstr(notes.data, "sf.x accepts nothing"));
        assert_non_null(strstr(notes.data, "!fs.raed refuses nothing"));
        cg_approve_free(a);
}
