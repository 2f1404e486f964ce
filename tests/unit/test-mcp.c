/*
 * Parts of the MCP client: definitions, arguments, names, and the list of a server's tools for
 * programs without a loop.
 */
#include "base/call_args.h"
#include "mcp/client/def.h"
#include "mcp/ceilings.h"
#include "mcp/client/mcp_list.h"
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

static struct cg_mcp_def *define(const char *json, char *const *env)
{
        cg_auto_json json_t *j = NULL;
        struct cg_mcp_def *d = NULL;

        OK(cg_json_object(json, strlen(json), "definition", &j, &err));
        OK(cg_mcp_def_new("srv", j, env, &d, &err));
        return d;
}

TEST(test_definition)
{
        char *env[] = { (char *)"PATH=/bin",
                        (char *)"HOME=/root",
                        (char *)"SECRET=s",
                        (char *)"LC_ALL=C",
                        (char *)"PATHOLOGICAL=1",
                        (char *)"LD_PRELOAD=x",
                        NULL };
        struct cg_mcp_def *d = define(
                "{\"command\":\"cat\",\"args\":[\"-\"],\"env\":{\"K\":\"v\",\"HOME\":\"/h\"},"
                "\"cwd\":\"/\",\"disabled\":false,\"type\":\"stdio\"}",
                env);

        assert_string_equal(d->argv[0], "cat");
        assert_string_equal(d->argv[1], "-");
        assert_null(d->argv[2]);
        assert_string_equal(d->envp[0], "PATH=/bin");
        assert_string_equal(d->envp[1], "LC_ALL=C");
        assert_string_equal(d->envp[2], "K=v");
        assert_string_equal(d->envp[3], "HOME=/h");
        assert_null(d->envp[4]);
        assert_string_equal(d->search_path, "/bin");
        assert_string_equal(d->cwd, "/");
        cg_mcp_def_free(d);

        d = define("{\"command\":\"cat\",\"env\":{\"PATH\":\"/other\"}}", env);
        assert_string_equal(d->search_path, "/other");
        cg_mcp_def_free(d);
}

TEST(test_redaction)
{
        struct cg_mcp_def *d = define("{\"command\":\"cat\",\"env\":{\"T\":\"abcdefgh\",\"U\":\"short\"}}",
                                      NULL);
        char text[] = "abcdefgh is abcdefghabcdefgh, short";

        cg_mcp_def_redact(d, text);
        assert_string_equal(text, "*** is ***, short");
        cg_mcp_def_free(d);
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

/* A server in a line of shell: answers initialize, then tools/list with @list. */
static int list_tools(const char *list, int64_t timeout_ms, char **ret, size_t *len, struct cg_err *err)
{
        cg_auto_json json_t *j = NULL;
        char script[2048];

        snprintf(
                script, sizeof(script),
                "read a; echo 'not json'; printf '%%s\\n' "
                "'{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}}}}'; "
                "read b; read c; %s; cat >/dev/null",
                list);
        j = json_pack("{s:s, s:[s,s], s:s}", "command", "/bin/sh", "args", "-c", script, "era", "legacy");
        assert_non_null(j);
        return cg_mcp_list_tools("srv", j, timeout_ms, NULL, ret, len, err);
}

TEST(test_list)
{
        char *tools;
        size_t len;

        OK(list_tools(
                "printf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[ {\"name\":\"a\"} , 5]}}'",
                0, &tools, &len, &err));
        assert_string_equal(tools, "[{\"name\":\"a\"},5]");
        assert_int_equal(len, strlen(tools));
        free(tools);
}

TEST(test_list_fails)
{
        struct cg_err err = { .code = 0 };
        cg_auto_json json_t *j = json_pack("{s:s}", "command", "/nonexistent");
        char *tools;
        size_t len;

        assert_true(list_tools("echo 'so sad' >&2; exit 5", 0, &tools, &len, &err) < 0);
        assert_non_null(strstr(err.msg, "exit status 5"));
        assert_non_null(strstr(err.msg, "so sad"));
        assert_true(list_tools("sleep 100", 300, &tools, &len, &err) < 0);
        assert_non_null(strstr(err.msg, "300 ms"));
        assert_true(cg_mcp_list_tools("srv", j, 0, NULL, &tools, &len, &err) < 0);
        assert_non_null(strstr(err.msg, "/nonexistent"));
        /* No child is left, and none is a zombie. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}
