/* Parts of the MCP client: arguments of calls, and names that are meant. */
#include "base/call_args.h"
#include "mcp/ceilings.h"
#include "mcp/client/names.h"
#include "cases.h"

static int args(const char *text)
{
        return cg_check_call_args(text, strlen(text), NULL);
}

TEST(test_args)
{
        EACH_CASE(c, "arguments")
        assert_int_equal(args(c.in), 0);
        EACH_CASE(c, "refused arguments")
        if (args(c.in) != CG_E_PARSE)
                fail_msg("accepted");
}

/* Not one byte behind the text is read. */
TEST(test_args_are_not_terminated)
{
        static const char text[] = "{\"a\":\"b\"}";
        char *p = malloc(sizeof(text) - 1);

        memcpy(p, text, sizeof(text) - 1);
        assert_int_equal(cg_check_call_args(p, sizeof(text) - 1, NULL), 0);
        free(p);
}

TEST(test_args_depth)
{
        struct cg_buf b;

        for (unsigned depth = CG_MAX_ARGS_DEPTH; depth <= CG_MAX_ARGS_DEPTH + 1; depth++) {
                cg_buf_init(&b, 1 << 20);
                for (unsigned i = 0; i < depth; i++)
                        cg_buf_try_adds(&b, i + 1 < depth ? "{\"a\":" : "{", NULL);
                for (unsigned i = 0; i < depth; i++)
                        cg_buf_try_adds(&b, "}", NULL);
                assert_int_equal(args(b.data), depth == CG_MAX_ARGS_DEPTH ? 0 : CG_E_PARSE);
                cg_buf_fini(&b);
        }
}

static void close_names(const char *wanted, const char *expected)
{
        char *const names[] = { (char *)"read_file", (char *)"write_file", (char *)"list_directory",
                                (char *)"read_multiple_files", (char *)"search" };
        struct cg_buf b;

        cg_buf_init(&b, 4096);
        cg_close_names(wanted, names, CG_ARRAY_LEN(names), &b);
        assert_int_equal(cg_buf_end(&b, NULL), 0);
        assert_string_equal(b.data ? b.data : "", expected);
        cg_buf_fini(&b);
}

TEST(test_close_names)
{
        close_names("readfile", "\"read_file\"");
        close_names("Read-File", "\"read_file\"");
        close_names("write_fil", "\"write_file\"");
        close_names("directory", "\"list_directory\"");
        close_names("utterly_else", "");
        close_names("", "");
}
