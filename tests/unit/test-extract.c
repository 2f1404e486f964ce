/* Patterns of "extract": what each finds is what node's String.matchAll() finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "sandbox/settings/extract.h"
#include "rounds.h"
#include "unit.h"

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

static const struct {
        const char *pattern, *text, *found;
} finds[] = {
        { "t=(\\d+)", "t=12 t=ab t=3", "12|3|" },
        { "(?:key|token)=(\\S+)", "key=a token=b other=c", "a|b|" },
        { "<(.+?)>", "<a><b>", "a|b|" },
        { "<(.*?)>", "<><b>", "|b|" },
        { "(a{2,3}?)", "aaaa", "aa|aa|" },
        { "(?<value>x)y", "xy", "x|" },
        { "(?<=pw:)(\\w+)", "pw:abc pw:d", "abc|d|" },
        { "(?<!no)(x)", "nox x", "x|" },
        { "(?=(ab))a", "abab", "ab|ab|" },
        { "(x)(?!y)", "xy xz", "x|" },
        { "(['\"])?(?:v)", "'v", "'|" },
        { "(a)\\1b", "aab ab", "a|" },
        { "(?<q>['\"])x\\k<q>", "'x' \"x'", "'|" },
        { "(?:(z)|q)*?b()", "b", NULL }, /* the group has no part in it */
        /* No flags: the ends are those of the text, and "." stops at every line end. */
        { "^(a)", "a\na", "a|" },
        { "(a)$", "a\na\n", "" },
        { "(a)$", "a\na", "a|" },
        { "k=(.*)", "k=1\r\nk=2\xe2\x80\xa8k=3", "1|2|3|" },
        { "k=([^]*)", "k=1\n2", "1\n2|" },
        { "(a[])|(b)", "a", "" },
        /* White space and words are JavaScript's: \s is Unicode's, \w and \d are ASCII. */
        { "(\\S+)",
          "a\xc2\xa0"
          "b\xe2\x80\x83"
          "c\xef\xbb\xbf"
          "d e",
          "a|b|c|d|e|" },
        { "([\\S]+)", "a\xc2\xa0\xf0\x9f\x98\x80", "a|\xf0\x9f\x98\x80|" },
        { "([^\\s=]+)=",
          "a\xc2\xa0"
          "b=",
          "b|" },
        { "(\\w+)",
          "a\xc3\xa9"
          "b",
          "a|b|" },
        { "(\\d+)",
          "1\xd9\xa1"
          "2",
          "1|2|" },
        { "(.)", "\xc3\xa9x", "\xc3\xa9|x|" },
        { "([\xc3\xa9])", "\xc3\xa9\xc3\xa8", "\xc3\xa9|" },
        /* Spellings that PCRE2 would take otherwise. */
        { "([\\w-.]+)", "a-b.c", "a-b.c|" },
        { "([.-\\d]+)", "1-2.", "1-2.|" },
        { "([[:alpha:]]+)", "a:]", ":]|" },
        { "([a[b]+)", "[ab", "[ab|" },
        { "(a{,2})", "a{,2}", "a{,2}|" },
        { "({a})", "{a}", "{a}|" },
        { "(\\u00e9\\x41\\v?)",
          "\xc3\xa9"
          "A\x0b",
          "\xc3\xa9"
          "A\x0b|" },
        { "(\\/\\-\\_)", "/-_", "/-_|" },
        { "([\\b])", "\b", "\b|" },
        { "\\b(a)\\B", "ab a", "a|" },
        { "(#a b)", "#a b", "#a b|" },
        { "(\\cJ)", "\n", "\n|" },
        { "()", "ab", "|||" },
        { "(x*)", "axb",
          "|x||"
          "|" },
        /* Not UTF-8: bytes. */
        { "(\\S+)", "\xff\xfe a", "\xff\xfe|a|" },
        { "t=(.+)", "t=\xff\xc3", "\xff\xc3|" },
};

TEST(what_is_found)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(finds); i++) {
                char buf[200];

                if (!finds[i].found)
                        continue;
                find(finds[i].pattern, finds[i].text, strlen(finds[i].text), buf, sizeof(buf));
                if (strcmp(buf, finds[i].found) != 0)
                        fail_msg("%s finds %s, not %s", finds[i].pattern, buf, finds[i].found);
        }
}

TEST(refused_patterns)
{
        static const struct {
                const char *pattern, *why;
        } patterns[] = {
                { "no group", "capturing group" },
                { "(?:a)", "capturing group" },
                { "[(]", "capturing group" },
                { "\\(a\\)", "capturing group" },
                { "(?=a)", "capturing group" },
                { "", "capturing group" },
                { "(", "valid regular expression" },
                { "(a", "valid regular expression" },
                { "a)(b)", "valid regular expression" },
                { "*(a)", "valid regular expression" },
                { "(a)\\", "end of pattern" },
                { "[(a)", "Unterminated" },
                { "([b-a])", "valid" },
                { "(a)**", "Nothing to repeat" },
                { "(a{2,1})", "valid" },
                { "(?<1>a)", "Invalid capture group name" },
                { "(?<n>a)(?<n>b)", "valid" },
                { "(a)\\k<m>", "valid" },
                { "(a)\\2", "not there" },
                { "(a)\\01", "octal" },
                { "([\\1])", "octal" },
                /* PCRE2's alone */
                { "(a++)", "Nothing to repeat" },
                { "(a*+)", "Nothing to repeat" },
                { "(a?+)", "Nothing to repeat" },
                { "(a{2}+)", "Nothing to repeat" },
                { "(?>a)(b)", "Invalid group" },
                { "(?|(a)|(b))", "Invalid group" },
                { "(?i)(a)", "Invalid group" },
                { "(?i:(a))", "Invalid group" },
                { "(a(?R)?)", "Invalid group" },
                { "(?#x)(a)", "Invalid group" },
                { "(?P<n>a)", "Invalid group" },
                { "(?'n'a)", "Invalid group" },
                { "(?(1)a)(b)", "Invalid group" },
                { "(?C1)(a)", "Invalid group" },
                { "(*UTF)(a)", "Nothing to repeat" },
                { "(a(*COMMIT))", "Nothing to repeat" },
                { "(*LIMIT_MATCH=4000000000)(a)", "Nothing" },
                { "\\A(a)", "\\A is nothing special" },
                { "(a)\\z", "\\z is" },
                { "a\\K(b)", "\\K is" },
                { "(\\Qa\\E)", "\\Q is" },
                { "(\\h)", "\\h is" },
                { "(\\R)", "\\R is" },
                { "(\\X)", "\\X is" },
                { "(\\C)", "\\C is" },
                { "(\\p{L})", "\\p is" },
                { "(\\N)", "\\N is" },
                { "\\G(a)", "\\G is" },
                { "(a)\\g1", "\\g is" },
                { "(\\e)", "\\e is" },
                { "([\\B])", "\\B is" },
                { "(?<=a+)(b)", "lookbehind" },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(patterns); i++) {
                struct cg_extract *x = NULL;
                struct cg_err err;

                if (cg_extract_new(patterns[i].pattern, &x, &err) == 0)
                        fail_msg("accepted: %s", patterns[i].pattern);
                if (err.code != CG_E_PARSE || !strstr(err.msg, patterns[i].why))
                        fail_msg("%s: %s", patterns[i].pattern, err.msg);
        }
}

TEST(group_without_a_part)
{
        cg_auto_extract struct cg_extract *x = NULL;
        struct cg_err err;
        size_t start, end;

        assert_int_equal(cg_extract_new("token: (\\S+)?", &x, &err), 0);
        assert_int_equal(cg_extract_start(x, "token: ", 7, &err), 0);
        assert_int_equal(cg_extract_next(x, &start, &end, &err), CG_E_INVAL);
        assert_non_null(strstr(err.msg, "group 1"));
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
        size_t len = 1 << 20, start, end, step = rounds(1, 6);
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
        size_t len = 1 << 20, n = 0;
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
