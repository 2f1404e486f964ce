/* Cells out of Python files and notebooks, broken ones included. */
#include "cli/run/cells.h"
#include "unit.h"

/* Splits and compares; the list ends in NULL. */
static void check_py(const char *text, const char *const *want)
{
        cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;
        size_t n = 0;

        assert_int_equal(cg_cells_add_py(&c, text, strlen(text), "x.py", NULL), 0);
        for (; want[n]; n++) {
                assert_true(n < c.n);
                assert_string_equal(c.v[n].code, want[n]);
                assert_int_equal(c.v[n].len, strlen(want[n]));
        }
        assert_int_equal(c.n, n);
}

#define CHECK_PY(text, ...) check_py(text, (const char *const[]){ __VA_ARGS__, NULL })

TEST(test_percent)
{
        CHECK_PY("a = 1\nb = 2\n", "a = 1\nb = 2\n");
        CHECK_PY("a\n# %%\nb\n# %% title\nc", "a\n", "b\n", "c");
        CHECK_PY("# %%\na\n#%%\nb\n", "a\n", "b\n");
        CHECK_PY("# %%\na\n# %% [markdown]\n# t\n# %% more [md]\n# t\n# %% [raw] x\n# t\n# %%\nb\n", "a\n",
                 "b\n");
        CHECK_PY("a\n# %% [markdown]\ntext\n", "a\n");
        CHECK_PY("# %%%% sub\na\n# %%\tb\nc\n", "a\n", "c\n");
        CHECK_PY("# %%\r\na\r\n# %%\r\nb\r\n", "a\r\n", "b\r\n");
        CHECK_PY("\xef\xbb\xbf# %%\na\n", "a\n");
}

TEST(test_no_marker)
{
        static const char text[] = "#%%time\na\n# %%bash\n  # %%\nx = '# %%'\n##%%\n# % %\n";

        CHECK_PY(text, text);
}

TEST(test_blank_cells_are_left_out)
{
        const char *none[] = { NULL };

        check_py("", none);
        check_py("\n \t\n# %%\n\n# %%\n", none);
        CHECK_PY("# %%\n\n# %%\n# only a comment\n", "# only a comment\n");
}

TEST(test_nul_reaches_python)
{
        cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;

        assert_int_equal(cg_cells_add_py(&c, "a\0b", 3, "x.py", NULL), 0);
        assert_int_equal(c.n, 1);
        assert_int_equal(c.v[0].len, 3);
}

#define BOOK(cells) "{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {}, \"cells\": [" cells "]}"

static void check_book(const char *text, const char *const *want)
{
        cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;
        size_t n = 0;

        OK(cg_cells_add_ipynb(&c, text, strlen(text), "x.ipynb", &err));
        for (; want[n]; n++) {
                assert_true(n < c.n);
                assert_string_equal(c.v[n].code, want[n]);
        }
        assert_int_equal(c.n, n);
}

#define CHECK_BOOK(text, ...) check_book(text, (const char *const[]){ __VA_ARGS__, NULL })

TEST(test_notebook)
{
        CHECK_BOOK(
                BOOK("{\"cell_type\": \"code\", \"source\": \"a = 1\\nb\"},"
                     "{\"cell_type\": \"markdown\", \"source\": [\"# hi\"]},"
                     "{\"cell_type\": \"raw\"},"
                     "{\"cell_type\": \"code\", \"source\": [\"c\\n\", \"d \\u00e9 \\ud83d\\ude00\"]},"
                     "{\"cell_type\": \"code\", \"source\": []}, {\"cell_type\": \"code\", \"source\": \"  \\n\"}"),
                "a = 1\nb", "c\nd \xc3\xa9 \xf0\x9f\x98\x80");
}

/* Outputs hold what a JSON library may choke on; it is not our business. */
TEST(test_notebook_with_strange_outputs)
{
        CHECK_BOOK(
                BOOK("{\"cell_type\": \"code\", \"source\": \"a\", \"outputs\": [123456789012345678901234567890, "
                     "1e999, \"\\ud800\", "
                     "\"\\u0000\", {\"source\": \"no\"}]}"),
                "a");
}

TEST(test_bad_notebooks)
{
        static const struct {
                const char *text, *says;
        } cases[] = {
                { "", "x.ipynb" },
                { "{\n \"cells\": [,]}", "line 2" },
                { "[]", "JSON object" },
                { "{}", "nbformat" },
                { "{\"nbformat\": 3, \"worksheets\": []}", "format 3" },
                { "{\"nbformat\": \"4\", \"cells\": []}", "format" },
                { "{\"nbformat\": 4}", "cells" },
                { "{\"nbformat\": 4, \"cells\": {}}", "cells" },
                { BOOK("1"), "cell 1" },
                { BOOK("{\"cell_type\": \"code\", \"source\": \"a\"}, {\"source\": \"b\"}"), "cell 2" },
                { BOOK("{\"cell_type\": \"code\"}"), "source" },
                { BOOK("{\"cell_type\": \"code\", \"source\": 1}"), "source" },
                { BOOK("{\"cell_type\": \"code\", \"source\": [\"a\", 1]}"), "not a string" },
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;
                struct cg_err err = { .msg = "" };

                if (cg_cells_add_ipynb(&c, cases[i].text, strlen(cases[i].text), "x.ipynb", &err) >= 0)
                        fail_msg("read as a notebook: %s", cases[i].text);
                if (!strstr(err.msg, cases[i].says) || !strstr(err.msg, "x.ipynb"))
                        fail_msg("%s: %s", cases[i].text, err.msg);
        }
}
