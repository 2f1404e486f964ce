/* Command line options: every way to write one, and errors that name it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "base/text.h"
#include "cli/common/opts.h"

enum { CODE = 2, JSON, WORKSPACE };

static const struct cg_opt table[] = {
        { CODE, 'c', "code", "CODE", 0, NULL },
        { JSON, 0, "json", NULL, 0, NULL },
        { WORKSPACE, 0, "workspace", "DIR", 0, NULL },
};

static struct cg_optscan scan(int argc, const char **argv)
{
        return (struct cg_optscan){
                .table = table, .n = 3, .argc = argc, .argv = (char **)(uintptr_t)argv, .i = 1
        };
}

#define WORDS(...) ((const char *[]){ "x", __VA_ARGS__ })
#define SCAN(...)  scan((int)(sizeof(WORDS(__VA_ARGS__)) / sizeof(char *)), WORDS(__VA_ARGS__))

static void expect(struct cg_optscan *o, int id, const char *value)
{
        const char *got = NULL;

        assert_int_equal(cg_opt_next(o, &got, NULL), id);
        if (value)
                assert_string_equal(got, value);
        else
                assert_null(got);
}

static void test_forms(void **state)
{
        struct cg_optscan o = SCAN("-c", "1", "-c2", "--code", "3", "--code=4", "--code=", "--json", "file",
                                   "-", "-c", "--json", "--", "--json");

        (void)state;
        expect(&o, CODE, "1");
        expect(&o, CODE, "2");
        expect(&o, CODE, "3");
        expect(&o, CODE, "4");
        expect(&o, CODE, "");
        expect(&o, JSON, NULL);
        expect(&o, CG_OPT_ARG, "file");
        expect(&o, CG_OPT_ARG, "-");
        expect(&o, CODE, "--json");
        expect(&o, CG_OPT_ARG, "--json");
        expect(&o, CG_OPT_END, NULL);
}

static void expect_error(struct cg_optscan o, const char *says)
{
        const char *value;
        struct cg_err err;

        assert_int_equal(cg_opt_next(&o, &value, &err), CG_E_INVAL);
        if (!strstr(err.msg, says))
                fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
}

static void test_errors(void **state)
{
        (void)state;
        expect_error(SCAN("--wrokspace", "x"), "unknown option --wrokspace: did you mean --workspace?");
        expect_error(SCAN("--workspce=x"), "unknown option --workspce: did you mean --workspace?");
        expect_error(SCAN("-json"), "did you mean --json?");
        expect_error(SCAN("--nothing-like-it"), "unknown option --nothing-like-it: --help");
        expect_error(SCAN("-x"), "unknown option -x");
        expect_error(SCAN("--jso"), "did you mean --json?");
        expect_error(SCAN("-c"), "option -c needs a value");
        expect_error(SCAN("--workspace"), "option --workspace needs a value");
        expect_error(SCAN("--json=1"), "option --json takes no value");
}

static void test_distance(void **state)
{
        char longest[300];

        (void)state;
        assert_int_equal(cg_text_distance("run", "run", NULL), 0);
        assert_int_equal(cg_text_distance("rnu", "run", NULL), 1);
        assert_int_equal(cg_text_distance("", "run", NULL), 3);
        assert_int_equal(cg_text_distance("abcd", "xbc", NULL), 2);
        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(cg_text_distance(longest, "x", NULL), 63);
}

static void test_seconds(void **state)
{
        static const char *const bad[] = { "",     "-1", "1s",    "inf", "nan",         "1e3",
                                           "0x10", ".",  "1.2.3", " 1",  "999999999999" };
        int64_t ms;

        (void)state;
        assert_int_equal(cg_opt_seconds("t", "1.5", &ms, NULL), 0);
        assert_int_equal(ms, 1500);
        assert_int_equal(cg_opt_seconds("t", "0", &ms, NULL), 0);
        assert_int_equal(ms, 0);
        assert_int_equal(cg_opt_seconds("t", "0.0001", &ms, NULL), 0);
        assert_int_equal(ms, 1); /* 0 would be no limit */
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                if (cg_opt_seconds("t", bad[i], &ms, NULL) != CG_E_INVAL)
                        fail_msg("\"%s\" was taken for seconds", bad[i]);
}

static void test_int(void **state)
{
        static const char *const bad[] = { "", "4", "-1", "1x", "99999999999999999999", "1.0" };
        int n;

        (void)state;
        assert_int_equal(cg_opt_int("n", "3", 0, 3, &n, NULL), 0);
        assert_int_equal(n, 3);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(cg_opt_int("n", bad[i], 0, 3, &n, NULL), CG_E_INVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_forms),    cmocka_unit_test(test_errors),
                cmocka_unit_test(test_distance), cmocka_unit_test(test_seconds),
                cmocka_unit_test(test_int),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
