/* Command line options: every way to write one, and errors that name it. */
#include <time.h>
#include "base/text.h"
#include "cli/common/opts.h"
#include "unit.h"

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

TEST(test_forms)
{
        struct cg_optscan o = SCAN("-c", "1", "-c2", "--code", "3", "--code=4", "--code=", "--json", "file",
                                   "-", "-c", "--json", "--", "--json");

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

struct places {
        const char *code;
        bool json;
        int64_t ms;
        int n;
};

TEST(test_places)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(CODE, struct places, code),
                CG_OPT_PLACE(JSON, struct places, json),
        };
        static const struct cg_opt_place numbers[] = {
                CG_OPT_PLACE_SECONDS(CODE, "--code", struct places, ms),
                CG_OPT_PLACE_INT(WORKSPACE, "--workspace", struct places, n, 1, 3),
        };
        struct cg_optscan o = SCAN("--json", "file", "-c", "1", "--workspace", "x");
        struct cg_optscan last = SCAN("-c1.5", "--workspace=3", "--workspace=4");
        struct places p = { .n = 0 };
        const char *value;
        struct cg_err err;

        assert_int_equal(cg_opt_read(&o, places, 2, &p, &value, NULL), CG_OPT_ARG);
        assert_string_equal(value, "file");
        assert_true(p.json && !p.code);
        assert_int_equal(cg_opt_read(&o, places, 2, &p, &value, NULL), WORKSPACE);
        assert_string_equal(value, "x");
        assert_string_equal(p.code, "1");
        assert_int_equal(cg_opt_read(&o, places, 2, &p, &value, NULL), CG_OPT_END);
        assert_int_equal(cg_opt_read(&last, numbers, 2, &p, &value, &err), CG_E_INVAL);
        assert_string_equal(err.msg, "--workspace needs a number from 1 to 3, not \"4\"");
        assert_int_equal(p.ms, 1500);
        assert_int_equal(p.n, 3);
}

TEST(test_distance)
{
        char longest[300];

        assert_int_equal(cg_text_distance("run", "run", NULL), 0);
        assert_int_equal(cg_text_distance("rnu", "run", NULL), 1);
        assert_int_equal(cg_text_distance("", "run", NULL), 3);
        assert_int_equal(cg_text_distance("abcd", "xbc", NULL), 2);
        memset(longest, 'x', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        assert_int_equal(cg_text_distance(longest, "x", NULL), 63);
}

TEST(test_seconds)
{
        static const char *const bad[] = { "",     "-1", "1s",    "inf", "nan",         "1e3",
                                           "0x10", ".",  "1.2.3", " 1",  "999999999999" };
        int64_t ms;

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

TEST(test_since)
{
        static const struct {
                const char *text;
                int64_t seconds; /* before now */
        } before[] = { { "0", 0 },     { "90", 90 },     { "90s", 90 }, { "30m", 1800 },
                       { "2h", 7200 }, { "7d", 604800 }, { "1.5m", 90 } };
        static const char *const bad[] = { "",    "x",   "1x",    "-1",         "@",           "@1h",
                                           "@-1", "nan", "1e300", "2026-13-01", "2026-11-24T", "yesterday",
                                           "1hh" };
        struct tm day = { .tm_year = 126, .tm_mon = 10, .tm_mday = 24, .tm_isdst = -1 }, later = day;
        int64_t ms, from, to;

        later.tm_hour = 9;
        later.tm_min = 30;
        assert_int_equal(cg_opt_since("@1700000000", &ms, NULL), 0);
        assert_int_equal(ms, 1700000000000);
        assert_int_equal(cg_opt_since("2026-11-24", &ms, NULL), 0);
        assert_int_equal(ms, (int64_t)mktime(&day) * 1000);
        assert_int_equal(cg_opt_since("2026-11-24T09:30", &ms, NULL), 0);
        assert_int_equal(ms, (int64_t)mktime(&later) * 1000);
        assert_int_equal(cg_opt_since("1969-01-01", &ms, NULL), 0);
        assert_int_equal(ms, 1); /* 0 would be all that is kept */
        assert_int_equal(cg_opt_since("999999d", &ms, NULL), 0);
        assert_int_equal(ms, 1);
        for (size_t i = 0; i < CG_ARRAY_LEN(before); i++) {
                from = time(NULL);
                assert_int_equal(cg_opt_since(before[i].text, &ms, NULL), 0);
                to = time(NULL) + 1;
                assert_in_range(ms, (from - before[i].seconds) * 1000, (to - before[i].seconds) * 1000);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                if (cg_opt_since(bad[i], &ms, NULL) != CG_E_INVAL)
                        fail_msg("\"%s\" was taken for a time", bad[i]);
}

TEST(test_int)
{
        static const char *const bad[] = { "", "4", "-1", "1x", "99999999999999999999", "1.0" };
        int n;

        assert_int_equal(cg_opt_int("n", "3", 0, 3, &n, NULL), 0);
        assert_int_equal(n, 3);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(cg_opt_int("n", bad[i], 0, 3, &n, NULL), CG_E_INVAL);
}
