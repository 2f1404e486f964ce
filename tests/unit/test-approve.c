/* Approval rules: what decides, and that nothing opens what a ! pattern closed. */
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "cli/common/approve.h"
#include "cli/common/rule_check.h"
#include "unit.h"

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
        static const struct {
                const char *pattern, *text;
                bool want;
        } cases[] = {
                { "", "", true },
                { "", "a", false },
                { "a", "a", true },
                { "a", "ab", false },
                { "ab", "a", false },
                { "*", "", true },
                { "*", "anything", true },
                { "a*", "a", true },
                { "a*", "ba", false },
                { "*a", "bba", true },
                { "*a", "bab", false },
                { "a*b*c", "aXbYc", true },
                { "a*b*c", "aXbY", false },
                { "read_*", "read_file", true },
                { "read_*", "xread_file", false },
                { "**", "x", true },
                { "?", "x", true },
                { "?", "", false },
                { "?", "xy", false },
                { "?", "\xc3\xa9", true },
                { "??", "\xc3\xa9", false },
                { "?", "\xff", true },
                { "[a]", "a", false },
                { "[a]", "[a]", true },
                { "a.b", "axb", false },
                { "A", "a", false },
                { "\\*", "\\x", true },
                { "\\*", "*", false },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
                if (cg_pol_glob(cases[i].pattern, strlen(cases[i].pattern), cases[i].text,
                                strlen(cases[i].text)) != cases[i].want)
                        fail_msg("\"%s\" against \"%s\"", cases[i].pattern, cases[i].text);
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
        static const struct {
                const char *rule, *method, *tool;
                enum cg_approve_answer want;
        } cases[] = {
                { "fs.*", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "*.*", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "fs.resources/read", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "fs.resources/read", CG_METHOD_CALL, "resources/read", CG_APPROVE_ACCEPT },
                { "fs:resources/read", CG_METHOD_READ, "", CG_APPROVE_ACCEPT },
                { "fs:resources/read", CG_METHOD_GET, "", CG_APPROVE_ASK },
                { "fs:resources/read", CG_METHOD_CALL, "resources/read", CG_APPROVE_ASK },
                { "fs:resources/read", CG_METHOD_CALL, "", CG_APPROVE_ASK },
                { "*:prompts/get", CG_METHOD_GET, "", CG_APPROVE_ACCEPT },
                { "other:prompts/get", CG_METHOD_GET, "", CG_APPROVE_ASK },
                { "!fs:prompts/get", CG_METHOD_GET, "", CG_APPROVE_REFUSE },
                { "!fs:prompts/get", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "!fs.*", CG_METHOD_GET, "", CG_APPROVE_REFUSE },
                { "!*.*", CG_METHOD_READ, "", CG_APPROVE_REFUSE },
                { "!fs.r*", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "!fs.?*", CG_METHOD_READ, "", CG_APPROVE_REFUSE },
                { "!f?.*?", CG_METHOD_GET, "", CG_APPROVE_REFUSE },
                { "!fs.**", CG_METHOD_GET, "", CG_APPROVE_REFUSE },
                { "!fs.??", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "!fs.?*_", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "fs.?*", CG_METHOD_READ, "", CG_APPROVE_ASK },
                { "!other.*", CG_METHOD_READ, "", CG_APPROVE_ASK },
        };
        static const char *const invalid[] = { "fs:tools/call", ":resources/read", "fs:resources/list",
                                               "fs:*" };
        struct cg_approve *all = RULES("all", "!fs.write");

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                struct cg_approve *a = RULES("ask", cases[i].rule);

                if (cg_approve_decide(a, "fs", cases[i].method, cases[i].tool, NULL) != cases[i].want)
                        fail_msg("%s for %s", cases[i].rule, cases[i].method);
                cg_approve_free(a);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(invalid); i++)
                assert_int_equal(cg_approve_add(all, invalid[i], NULL), CG_E_INVAL);
        assert_int_equal(cg_approve_decide(all, "fs", CG_METHOD_READ, "", NULL), CG_APPROVE_ACCEPT);
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
        static const char *const bad[] = { "",     "!",   "fs", "!fs",  ".x", "fs.",
                                           "!fs.", "!.x", "*",  "!all", "All" };
        struct cg_approve *a = RULES("ask");
        struct cg_err err;

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                if (cg_approve_add(a, bad[i], &err) != CG_E_INVAL)
                        fail_msg("\"%s\" was taken for a rule", bad[i]);
        assert_int_equal(cg_approve_add(a, "ask", NULL), 0);
        assert_int_equal(cg_approve_add(a, "all", &err), CG_E_INVAL);
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
        static const struct {
                const char *rule, *want;
        } cases[] = {
                { "filesystem.read_file", NULL },
                { "filesystem.write_*", NULL },
                { "filesystem.read?file", NULL },
                { "filesystem.a.b", NULL },
                { "*.create_issue", NULL },
                { "git*.*", NULL },
                { "empty.*", NULL },
                { "*.*", NULL },
                { "filesystem:resources/read", NULL },
                { "down:prompts/get", NULL },
                { "filesytem.write_file", "no MCP server filesytem; did you mean %sfilesystem.write_file?" },
                { "FileSystem.write_file", "did you mean %sfilesystem.write_file?" },
                { "filesytem.wirte_file", "did you mean %sfilesystem.write_file?" },
                { "filesytem:resources/read", "did you mean %sfilesystem:resources/read?" },
                { "filesystem.wirte_file", "has no tool wirte_file; did you mean %sfilesystem.write_file?" },
                { "filesystem.wirte_*", "did you mean %sfilesystem.write_file?" },
                { "filesystem.list_dir", "did you mean %sfilesystem.list-dir?" },
                { "git*.creat_issue",
                  "no MCP server git* has a tool creat_issue; did you mean %sgithub.create_issue?" },
                { "*.creat_issue", "could not be checked: the MCP server down did not start" },
                { "fs.write_file", "did you mean %sfilesystem.write_file?" },
                { "githb.*", "did you mean %sgithub.*?" },
                { "slack.*", "the MCP servers are filesystem, github, down, empty" },
                { "filesystem.zzzzzzzz", "its tools are read_file, write_file, list-dir, a.b" },
                { "empty.x", "the MCP server empty has no tool x" },
                { "down.read", "could not be checked: the MCP server down did not start" },
                { "x\x1b[2J.read", "x\\x1b[2J" },
        };
        cg_auto_json json_t *known = json_loads(servers, 0, NULL);

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                for (unsigned how = 0; how < 3; how++) { /* accepts; refuses; refuses, and rules are lax */
                        cg_auto_buf struct cg_buf notes = { .max = 4096 };
                        bool unknown = cases[i].want && strstr(cases[i].want, "did not start");
                        char rule[100], want[200];
                        struct cg_err err = { .msg = "" };
                        struct cg_approve *a;
                        bool stops = how == 1 && cases[i].want && !unknown;

                        snprintf(rule, sizeof(rule), "%s%s", how ? "!" : "", cases[i].rule);
                        a = rules((const char *const[]){ rule, "ask", NULL });
                        if (how == 2)
                                cg_approve_set_lax(a);
                        cg_approve_always(a, "gone", CG_METHOD_CALL, "tool", NULL);
                        if (cg_rules_check(a, known, &notes, &err) != (stops ? CG_E_INVAL : 0))
                                fail_msg("%s: %s", rule, err.msg);
                        if (!cases[i].want) {
                                assert_int_equal(notes.len, 0);
                        } else {
                                const char *said = stops ? err.msg : notes.data;
                                const char *at = strstr(cases[i].want, "%s");

                                snprintf(want, sizeof(want), "%.*s%s%s", at ? (int)(at - cases[i].want) : 0,
                                         cases[i].want, at && how ? "!" : "", at ? at + 2 : cases[i].want);
                                if (!said || !strstr(said, want))
                                        fail_msg("%s: not \"%s\": %s", rule, want, said);
                                assert_null(strchr(said, '\x1b'));
                                assert_int_equal(strstr(said, "start with --lax-rules") != NULL, stops);
                        }
                        cg_approve_free(a);
                }
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
