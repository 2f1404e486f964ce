/* Patterns of "extract": what each finds is what node's String.matchAll() finds. */
#include "sandbox/settings/extract.h"
#include "cases.h"

/* The first groups of all matches, each with "|" behind it. */
static void find(const char *pattern, const char *text, size_t len, char *buf, size_t size)
{
        cg_auto_extract struct cg_extract *x = NULL;
        struct cg_err err;
        size_t start, end, n = 0;
        int r;

        if (cg_extract_new(pattern, &x, &err) < 0)
                fail_msg("%s: %s", pattern, err.msg);
        assert_int_equal(cg_extract_start(x, text, len, &err), 0);
        buf[0] = '\0';
        while ((r = cg_extract_next(x, &start, &end, &err)) > 0)
                n += (size_t)snprintf(buf + n, size - n, "%.*s|", (int)(end - start), text + start);
        if (r < 0)
                fail_msg("%s: %s", pattern, err.msg);
}

TEST(what_is_found)
{
        EACH_CASE(c, "found")
        {
                char buf[200];

                find(c.in, c.out, strlen(c.out), buf, sizeof(buf));
                if (strcmp(buf, c.third) != 0)
                        fail_msg("finds %s", buf);
        }
}

TEST(refused_patterns)
{
        EACH_CASE(c, "refused")
        {
                struct cg_extract *x = NULL;

                FAILS(CG_E_PARSE, c.out, cg_extract_new(c.in, &x, &err));
        }
}

TEST(group_without_a_part)
{
        cg_auto_extract struct cg_extract *x = NULL;
        size_t start, end;

        OK(cg_extract_new("token: (\\S+)?", &x, &err));
        OK(cg_extract_start(x, "token: ", 7, &err));
        FAILS(CG_E_INVAL, "group 1", cg_extract_next(x, &start, &end, &err));
}

/* A pattern that would run for ages ends with an error, and so does one that is too large. */
TEST(limits)
{
        static const char *const patterns[] = {
                "((a+)+)[bc]", /* exponential */
                "((a|a)*)[bc]",         "((((((((((a+)+)+)+)+)+)+)+)+)+)[bc]",
                "([^b]*)[bc]", /* quadratic */
                "(.*)(.*)(.*)(.*)[bc]", "(?=(a*)*[bc])a",
                "(a*)\\1[bc]",          "(?:(?:a|b|ab)*)*?([cd])",
        };
        size_t len = 1 << 20, start, end, step = rounds(1, CG_ARRAY_LEN(patterns));
        char *text = malloc(len), *large = malloc(CG_EXTRACT_MAX + 2);
        struct cg_extract *x = NULL;
        struct cg_err err;

        memset(text, 'a', len);
        for (size_t i = 0; i < CG_ARRAY_LEN(patterns); i += step) {
                cg_auto_extract struct cg_extract *slow = NULL;
                int r;

                assert_int_equal(cg_extract_new(patterns[i], &slow, &err), 0);
                assert_int_equal(cg_extract_start(slow, text, len, &err), 0);
                r = cg_extract_next(slow, &start, &end, &err);
                if (r != 0 && (r != CG_E_LIMIT || !strstr(err.msg, "takes too long")))
                        fail_msg("%s: %d", patterns[i], r);
        }
        memset(large, 'a', CG_EXTRACT_MAX + 1);
        large[0] = '(';
        large[CG_EXTRACT_MAX] = ')';
        large[CG_EXTRACT_MAX + 1] = '\0';
        assert_int_equal(cg_extract_new(large, &x, &err), CG_E_PARSE);
        memset(large, '(', CG_EXTRACT_MAX);
        large[CG_EXTRACT_MAX] = '\0';
        assert_int_equal(cg_extract_new(large, &x, &err), CG_E_PARSE);
        assert_int_equal(cg_extract_new("((((a{200}){200}){200}){200})", &x, &err), CG_E_PARSE);
        free(large);
        free(text);
}

/* A large file and patterns as people write them are within the limits. */
TEST(large_text)
{
        static const char *const patterns[] = { "token:\\s*(\\S+)", "^.*?password\\s*[=:]\\s*\"?([^\"\\s]+)",
                                                "(?:a|b)(token: \\w+)", "(?<=token: )(\\w{3,})",
                                                "(?:^|\\n)\\s*(?:api[_-]?key|token)\\s*[:=]\\s*(\\S+)" };
        size_t len = rounds(1 << 20, 1 << 16), n = 0;
        char *text = malloc(len);

        while (n + 100 < len)
                n += (size_t)sprintf(
                        text + n,
                        "name%zu: some text = \"that\" is long enough to be a line\ntoken: abc%zu\n", n, n);
        for (size_t i = 0; i < CG_ARRAY_LEN(patterns); i++) {
                cg_auto_extract struct cg_extract *x = NULL;
                struct cg_err err;
                size_t start, end;
                int r;

                assert_int_equal(cg_extract_new(patterns[i], &x, &err), 0);
                assert_int_equal(cg_extract_start(x, text, n, &err), 0);
                while ((r = cg_extract_next(x, &start, &end, &err)) > 0)
                        ;
                if (r < 0)
                        fail_msg("%s: %s", patterns[i], err.msg);
        }
        free(text);
}
