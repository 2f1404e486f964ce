/* Cells out of Python files and notebooks, broken ones included. */
#include "cli/run/cells.h"
#include "cases.h"

/* The cells, with "|" behind each, until the next call. */
static const char *joined(const struct cg_cells *c)
{
        static char text[400];
        size_t n = 0;

        text[0] = '\0';
        for (size_t i = 0; i < c->n; i++) {
                assert_int_equal(c->v[i].len, strlen(c->v[i].code));
                n += (size_t)snprintf(text + n, sizeof(text) - n, "%s|", c->v[i].code);
        }
        return text;
}

TEST(test_files)
{
        EACH_CASE(f, "files")
        {
                cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;

                OK(cg_cells_add_py(&c, f.in, f.len, "x.py", &err));
                assert_string_equal(joined(&c), f.out);
        }
}

TEST(test_nul_reaches_python)
{
        cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;

        assert_int_equal(cg_cells_add_py(&c, "a\0b", 3, "x.py", NULL), 0);
        assert_int_equal(c.n, 1);
        assert_int_equal(c.v[0].len, 3);
}

TEST(test_notebooks)
{
        EACH_CASE(f, "notebooks")
        {
                cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;

                OK(cg_cells_add_ipynb(&c, f.in, f.len, "x.ipynb", &err));
                assert_string_equal(joined(&c), f.out);
        }
        EACH_CASE(f, "no notebooks")
        {
                cg_auto_cells struct cg_cells c = CG_CELLS_EMPTY;

                FAILS(ANY_ERROR, f.out, cg_cells_add_ipynb(&c, f.in, f.len, "x.ipynb", &err));
                FAILS(ANY_ERROR, "x.ipynb", cg_cells_add_ipynb(&c, f.in, f.len, "x.ipynb", &err));
        }
}
