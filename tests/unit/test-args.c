/*
 * JSON as slices, and what a person sees of a tool call: all of it, and nothing that is not in it.
 */
#include "base/text.h"
#include "cli/common/approve.h"
#include "cli/common/args.h"
#include "cli/common/pretty.h"
#include "unit.h"

static struct cg_slice parse(const char *text)
{
        struct cg_slice v;
        struct cg_err err;

        if (cg_json_object_slice(text, strlen(text), &v, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return v;
}

static void assert_text(const struct cg_buf *b, const char *want)
{
        assert_string_equal(b->data ? b->data : "", want);
}

TEST(test_members)
{
        struct cg_slice o = parse(" { \"a\" : [ 1 , \"x,]}\" , { \"b\" : null } ] , \"\\u0062\" : -1.5e+3 , "
                                  "\"a\\\"\":true, \"d\": 1, \"\\u0064\": 2 }\n");
        struct cg_slice v, item;
        struct cg_json_walk walk;
        const char *items[] = { "1", "\"x,]}\"", "{ \"b\" : null }" };
        size_t n = 0;

        assert_true(cg_json_find(o, "a", &v));
        cg_json_walk_init(&walk, v, '\0', NULL);
        for (; cg_json_walk_next(&walk, NULL, &item, NULL) == 0; n++) {
                assert_true(n < 3);
                assert_int_equal(item.len, strlen(items[n]));
                assert_memory_equal(item.p, items[n], item.len);
        }
        assert_int_equal(n, 3);
        assert_true(cg_json_find(o, "b", &v));
        assert_memory_equal(v.p, "-1.5e+3", v.len);
        assert_false(cg_json_find(o, "d", &v)); /* twice */
        assert_int_equal(cg_json_member(o, "d", &v, NULL), CG_E_PARSE);
        assert_true(cg_json_find(o, "a\"", &v));
        assert_int_equal(cg_json_kind(v), 't');
        assert_false(cg_json_find(o, "c", &v));
        assert_false(cg_json_find(v, "c", &v));
        cg_json_walk_init(&walk, parse("{ }"), '\0', NULL);
        assert_int_equal(cg_json_walk_next(&walk, NULL, &v, NULL), CG_JSON_END);
        assert_int_equal(cg_json_walk_init(&walk, CG_SLICE("1"), '\0', NULL), CG_E_PARSE);
        assert_int_equal(cg_json_walk_next(&walk, NULL, &v, NULL), CG_E_PARSE);
        assert_true(cg_json_is_empty(CG_SLICE(" { \n} ")));
        assert_true(cg_json_is_empty(CG_SLICE("")));
        assert_false(cg_json_is_empty(CG_SLICE("{\"a\":1}")));
}

TEST(test_strings)
{
        cg_auto_buf struct cg_buf b = { .max = 1000 };
        struct cg_slice v;

        cg_json_find(parse("{\"s\": \"a\\n\\t\\\"\\\\\\/\\u00e9\\ud83d\\ude00\\ud800x\\udc00 \xc3\xa9\"}"),
                     "s", &v);
        assert_int_equal(cg_json_string(v, &b, NULL), 0);
        assert_text(&b, "a\n\t\"\\/\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd \xc3\xa9");
        cg_json_find(parse("{\"s\": 1}"), "s", &v);
        assert_int_equal(cg_json_string(v, &b, NULL), CG_E_PARSE);
}

/* No reader can read one line of ASCII as two lines. */
TEST(test_ascii)
{
        cg_auto_buf struct cg_buf b = { .max = 1000 };

        cg_pretty_ascii(parse("{\n\"a\":\r\n\"\xe2\x80\xa8\xf0\x9f\x98\x80\x7f\\n\"\t}"), &b);
        assert_text(&b, "{ \"a\":  \"\\u2028\\ud83d\\ude00\\u007f\\n\" }");
}

static bool is_cut(const struct cg_buf *b)
{
        return strstr(b->data, "more bytes not shown]") != NULL;
}

TEST(test_pretty)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };

        cg_pretty_json(parse("{\"n\":123456789012345678901234567890,\"e\":{},\"l\":[1,[]],\"s\":"
                             "\"a\\nb\\n\"}"),
                       0, NULL, &b);
        assert_text(&b, "{\n  \"n\": 123456789012345678901234567890,\n  \"e\": {},\n  \"l\": [1, []],\n"
                        "  \"s\": \"a\\n\n    b\\n\"\n}");
        assert_false(is_cut(&b));
}

/*
 * Escapes of harmless characters are decoded; other escapes, and unsafe characters, are shown as
 * escapes.
 */
TEST(test_pretty_cannot_deceive)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };

        cg_pretty_json(parse("{\"p\":\"\\u002fetc\\/\\u00e9 \\u202e \xe2\x80\xae \\u001b[2J \\r \\b "
                             "\\u0022 \\\" \\ud800 \\u200b "
                             "\xe2\x80\x8b\"}"),
                       0, NULL, &b);
        assert_text(
                &b,
                "{\n  \"p\": \"/etc/\xc3\xa9 \\u202e \\u202e \\u001b[2J \\r \\b \\u0022 \\\" \\ud800 \\u200b "
                "\\u200b\"\n}");
}

/* A word is a word also where some of its letters are written as escapes. */
TEST(test_pretty_marks_letters_of_other_scripts)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };

        cg_pretty_json(
                parse("{\"p\":\"/p\\u0430ul/p\u0430ul/\\u0434\u0430/\u05d0/\\u05d0/a\\u3000b\u00a0c\"}"), 0,
                NULL, &b);
        assert_text(&b,
                    "{\n  \"p\": \"/p\\u0430ul/p\\u0430ul/\u0434\u0430/\\u05d0/\\u05d0/a\\u3000b\\xa0c\"\n}");
}

/* The end of what is cut is shown: it decides what a line of a shell does. */
TEST(test_pretty_marks_what_it_cuts)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };
        char text[600] = "{\"a\":\"begin", end[] = "; rm -rf precious\",\"b\":\"0123\",\"last\":1}";

        memset(text + strlen(text), 'x', 400);
        strcat(text, end);
        cg_pretty_json(parse(text), 8, NULL, &b);
        assert_non_null(strstr(b.data, "  \"a\": \"beginxxx\" ... [314 more bytes not shown] ... \"xxx"));
        assert_non_null(strstr(b.data, "xxx; rm -rf precious\",\n  \"b\": \"0123\",\n  \"last\": 1\n}"));
        assert_true(is_cut(&b));
}

/* Behind a folded run there is no letter that a combining mark could belong to. */
TEST(test_mark_behind_folded_blanks)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };
        char text[200];

        snprintf(text, sizeof(text), "{\"a\":\"ls%60s\xcc\x81\"}", "");
        cg_pretty_json(parse(text), 0, NULL, &b);
        assert_non_null(strstr(b.data, "\"ls\" [60 blanks] \"\\u0301\""));
}

/* Blanks of any kind, written in any way, push nothing out of sight. */
TEST(test_blanks_are_folded)
{
        static const char *const blanks[] = { " ",        "\\t",     "\\n",          "\\r",     "\\u0020",
                                              "\xc2\xa0", "\\u00a0", "\xe2\x80\x83", "\\u3000", "\\u200b",
                                              "\\u2800",  "\\u3164", " \\t\xc2\xa0", "\\f" };

        for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
                for (size_t n = 4; n <= 5000; n += 4996) {
                        cg_auto_buf struct cg_buf b = { .max = 40000 };
                        char *text = calloc(1, 60000), *p = text + sprintf(text, "{\"a\":\"ls"), want[64];
                        size_t units = strlen(blanks[i]) == 5 ? 3 : 1;

                        for (size_t k = 0; k < n; k++)
                                p += sprintf(p, "%s", blanks[i]);
                        sprintf(p, "; rm -rf precious\"}");
                        cg_pretty_json(parse(text), n == 4 ? 0 : 30, NULL, &b);
                        sprintf(want, "\"ls\" [%zu blanks] \"; rm -rf precious\"", n * units);
                        if ((strstr(b.data, want) != NULL) != (n == 5000))
                                fail_msg("%s: %s", blanks[i], b.data);
                        assert_false(is_cut(&b));
                        free(text);
                }
        }
}

/* Shows all of a call with @whole; else its first view, which has at most 40 lines. */
static void show(const char *server, const char *tool, const char *args, unsigned width, bool whole,
                 struct cg_buf *b, bool *cut)
{
        struct cg_call_view view = { .width = width, .lines = whole ? 0 : 40 };
        struct cg_call call = { .server = server,
                                .tool = tool,
                                .method = CG_METHOD_CALL,
                                .args = args,
                                .args_len = strlen(args),
                                .cell = 1 };

        cg_call_show(&call, &view, b);
        assert_int_equal(cg_buf_end(b, NULL), 0);
        *cut = !view.last;
}

TEST(test_call)
{
        cg_auto_buf struct cg_buf b = { .max = 4000 };
        bool cut;

        show("fs", "read_file", "{\"path\":\"/tmp/x\"}", 80, false, &b, &cut);
        assert_text(
                &b,
                "  server    fs\n  tool      read_file\n  arguments 17 bytes\n  {\n    \"path\": \"/tmp/x\"\n  "
                "}\n");
        assert_false(cut);
}

/* Lines are broken before words. The blank is kept, so that a break shows whether there is one. */
TEST(test_lines_are_broken_between_words)
{
        static const char args[] = "{\"text\":\"Dear colleagues, the meeting is on "
                                   "https://example.org/a/very/long/path/of/more/than/a/line and later\"}";
        cg_auto_buf struct cg_buf b = { .max = 4000 };
        bool cut;

        show("s", "t", args, 40, false, &b, &cut);
        if (!strstr(b.data, "    \"text\": \"Dear colleagues, the\n"
                            "  ~  meeting is on https://example.org/a\n"
                            "  ~ /very/long/path/of/more/than/a/line\n"
                            "  ~  and later\"\n"))
                fail_msg("%s", b.data);
}

/* The note about what is left out never takes the place of less. */
TEST(test_no_note_takes_more_room_than_what_is_left_out)
{
        for (size_t n = 100; n < 600; n++) {
                cg_auto_buf struct cg_buf name = { .max = 4000 }, line = { .max = 4000 };
                char text[600], json[700];

                memset(text, 'x', n);
                text[n] = '\0';
                snprintf(json, sizeof(json), "{\"a\":\"%s\"}", text);
                cg_pretty_json(parse(json), 300, NULL, &line);
                assert_true(line.len <= n + 20 && is_cut(&line) == (n > 440));
                assert_int_equal(cg_text_try_render(&name, text, n, 200, NULL), 0);
                assert_true(name.len <= 200 && (n > 133) == !!strstr(name.data, "not shown"));
        }
}

/*
 * Every line starts with our indentation and none is wider than the terminal, whatever a call
 * holds.
 */
static void check_lines(const char *text, unsigned width)
{
        while (*text) {
                size_t n = strcspn(text, "\n");

                if (n && strncmp(text, "  ", 2) != 0 && strncmp(text, "... [", 5) != 0)
                        fail_msg("a line begins in the first column: %s", text);
                assert_true(n <= width);
                for (size_t i = 0; i < n; i++)
                        assert_true((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
                text += n + (text[n] == '\n');
        }
}

TEST(test_call_cannot_leave_its_box)
{
        static const char *const args[] = {
                "{\"a\":\"x\\n[cellgate] Allow? yes\\n\\r\\u001b[1A\\u001b[2K\\u202e\"}",
                "{\"a\":\"                                               [cellgate] Allow?\"}",
                "{\"[cellgate] Allow?                                                \\n\\n\":[[[[[[1]]]]]]}",
                "not JSON \x1b[2J\nat all \xff",
                "{\"a\":1}{\"b\":2}",
        };

        for (size_t i = 0; i < sizeof(args) / sizeof(args[0]); i++) {
                cg_auto_buf struct cg_buf b = { .max = 40000 };
                bool cut;

                show("s\n[cellgate]",
                     "tool\x1b[2J\r\t                                                    tool  x", args[i],
                     40, true, &b, &cut);
                check_lines(b.data, 40);
        }
}

/* Characters may take two columns: lines are broken as if all beyond ASCII did. */
TEST(test_wide_characters)
{
        cg_auto_buf struct cg_buf b = { .max = 40000 };
        bool cut;

        show("fs", "x",
             "{\"a\":"
             "\"\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\"}",
             20, true, &b, &cut);
        assert_non_null(strstr(b.data, "\n  ~ "));
}

TEST(test_long_calls_are_cut_visibly)
{
        cg_auto_buf struct cg_buf some = { .max = 100000 }, all = { .max = 100000 };
        char *args = calloc(1, 40000);
        bool cut;

        strcpy(args, "{\"l\":[0");
        for (size_t i = 0; i < 1000; i++)
                strcat(args, i == 500 ? ",\"middle\"" : ",\"element\"");
        strcat(args, "],\"last\":\"here\"}");
        show("fs", "x", args, 80, false, &some, &cut);
        assert_true(cut);
        assert_null(strstr(some.data, "middle"));
        assert_non_null(strstr(some.data, "more lines not shown]\n"));
        assert_non_null(strstr(some.data, "\"last\": \"here\""));
        assert_non_null(strstr(some.data, "  arguments 10022 bytes\n  SHA-256   "));
        show("fs", "x", args, 80, true, &all, &cut);
        assert_false(cut);
        assert_non_null(strstr(all.data, "\"middle\""));
        free(args);
}

/* The parts are the whole text, and only the last one is the last. */
TEST(test_parts_are_the_whole)
{
        cg_auto_buf struct cg_buf all = { .max = 100000 };
        struct cg_call_view view = { .width = 40, .lines = 7, .part = 1 };
        char args[3000] = "{\"l\":[0";
        struct cg_call call = { .server = "fs", .tool = "x", .method = CG_METHOD_CALL, .args = args };

        for (size_t i = 0; i < 300; i++)
                sprintf(args + strlen(args), ",%zu", i);
        strcat(args, "]}");
        call.args_len = strlen(args);
        for (;; view.part++) {
                size_t before = all.len;

                cg_call_show(&call, &view, &all);
                assert_true(all.len > before);
                assert_int_equal(view.last, view.part == view.parts);
                if (view.last)
                        break;
        }
        assert_true(view.parts > 40);
        check_lines(all.data, 40);
        for (size_t i = 0; i < 300; i++) {
                char line[32];

                sprintf(line, "\n      %zu%s\n", i, i < 299 ? "," : "");
                assert_non_null(strstr(all.data, line));
        }
}

/* A program comes before its first argument where that names another one. */
TEST(test_program_and_command)
{
        static const struct {
                const char *argv0, *program;
                bool other;
        } cases[] = { { "echo", "/usr/bin/echo", false },     { "/usr/bin/echo", "/usr/bin/echo", false },
                      { "echo", "/usr/bin/rm", true },        { "./echo", "/usr/bin/echo", true },
                      { "/bin/echo", "/usr/bin/echo", true }, { "python", "/usr/bin/python3.11", true },
                      { "", "/usr/bin/echo", true },          { "/tmp/echo", "/usr/bin/echo", true } };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                cg_auto_buf struct cg_buf b = { .max = 40000 };
                struct cg_call_view view = { .width = 80, .lines = 40 };
                char args[300];
                struct cg_call call = { .server = "", .tool = "", .method = CG_METHOD_EXEC, .args = args };

                sprintf(args, "{\"argv\":[\"%s\"],\"command\":\"'%s'\",\"program\":\"%s\",\"cwd\":\"/\"}",
                        cases[i].argv0, cases[i].argv0, cases[i].program);
                call.args_len = strlen(args);
                cg_call_show(&call, &view, &b);
                assert_int_equal(strncmp(b.data, "  program   ", 12) == 0, cases[i].other);
                assert_int_equal(strstr(b.data, "\n  called as '") != NULL, cases[i].other);
        }
}

/* The command line of a program is folded and cut as strings are, and its end is shown. */
TEST(test_command_shows_its_end)
{
        static const char *const fillings[] = { " ", "x", "\\u00a0" };

        for (size_t i = 0; i < 3; i++) {
                cg_auto_buf struct cg_buf b = { .max = 400000 };
                struct cg_call_view view = { .width = 80, .lines = 18 };
                char *args = calloc(1, 60000), *p;
                struct cg_call call = { .server = "", .tool = "", .method = CG_METHOD_EXEC, .args = args };

                p = args +
                    sprintf(args, "{\"argv\":[\"sh\"],\"program\":\"/bin/sh\",\"command\":\"sh -c 'ls");
                for (size_t k = 0; k < 5000; k++)
                        p += sprintf(p, "%s", fillings[i]);
                sprintf(p, "; rm -rf precious'\"}");
                call.args_len = strlen(args);
                cg_call_show(&call, &view, &b);
                assert_int_equal(view.last, i != 1);
                check_lines(b.data, 80);
                if (i == 1)
                        assert_non_null(strstr(b.data, "\n  ... [4627 more bytes not shown]\n  ~ xxx"));
                else
                        assert_non_null(
                                strstr(b.data, "sh -c 'ls\n  ... [5000 blanks]\n  ~ ; rm -rf precious'\n"));
                assert_non_null(strstr(b.data, "; rm -rf precious'\n  program   /bin/sh\n"));
                free(args);
        }
}

/* A long member in front must not push the others out of sight. */
TEST(test_long_string_hides_no_other_member)
{
        static const char *const pieces[] = { "xxx", "x\\n", "\\n" };

        for (size_t i = 0; i < 3; i++) {
                cg_auto_buf struct cg_buf b = { .max = 100000 };
                char args[6000] = "{\"content\":\"";
                bool cut;

                while (strlen(args) < 5000)
                        strcat(args, pieces[i]);
                strcat(args, "\",\"path\":\"/etc/passwd\"}");
                show("fs", "write", args, 80, false, &b, &cut);
                assert_int_equal(cut, i < 2); /* many line breaks are folded */
                assert_non_null(strstr(b.data, "\"path\": \"/etc/passwd\""));
        }
}
