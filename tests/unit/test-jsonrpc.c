/* JSON-RPC messages and lines: what is found, what is refused, what passes unread. */
#include "mcp/jsonrpc.h"
#include "mcp/ceilings.h"
#include "cases.h"

static struct cg_slice span(const char *text)
{
        return (struct cg_slice){ .p = text, .len = strlen(text) };
}

static void assert_span(struct cg_slice s, const char *text)
{
        assert_non_null(s.p);
        assert_int_equal(s.len, strlen(text));
        assert_memory_equal(s.p, text, s.len);
}

static struct cg_rpc parse(const char *text)
{
        struct cg_rpc m;
        struct cg_err err;

        if (cg_rpc_parse(span(text), &m, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return m;
}

static void refuse(const char *text, int code)
{
        struct cg_rpc m;

        FAILS(code, " ", cg_rpc_parse(span(text), &m, &err));
}

TEST(test_kinds)
{
        struct cg_rpc m = parse("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");

        assert_int_equal(m.kind, CG_RPC_REQUEST);
        assert_true(m.id_is_number);
        assert_int_equal(m.id_number, 7);
        assert_string_equal(m.method, "ping");
        assert_null(m.params.p);

        m = parse(" { \"method\" : \"notifications\\/x\" , \"params\" : [ 1 ] , \"jsonrpc\":\"2.0\" } ");
        assert_int_equal(m.kind, CG_RPC_NOTIFICATION);
        assert_string_equal(m.method, "notifications/x"); /* PHP writes slashes so */
        assert_span(m.params, "[ 1 ]");

        m = parse("{\"result\":{ \"a\":1 },\"id\":\"x\\\"y\",\"jsonrpc\":\"2.0\"}");
        assert_int_equal(m.kind, CG_RPC_RESULT);
        assert_span(m.result, "{ \"a\":1 }");
        assert_span(m.id, "\"x\\\"y\"");
        assert_false(m.id_is_number);

        m = parse("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1}}");
        assert_int_equal(m.kind, CG_RPC_ERROR);
        assert_null(m.id.p);
        assert_span(m.error, "{\"code\":1}");
        EACH_CASE(c, "kinds")
        assert_int_equal(parse(c.in).kind, strcmp(c.out, "error") ? CG_RPC_RESULT : CG_RPC_ERROR);
}

TEST(test_payload_is_not_parsed)
{
        char text[256];

        EACH_CASE(c, "payloads")
        {
                snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}", c.in);
                assert_span(parse(text).result, c.in);
        }
}

TEST(test_not_json)
{
        EACH_CASE(c, "no JSON")
        refuse(c.in, CG_E_PARSE);
        EACH_CASE(c, "no messages")
        refuse(c.in, CG_E_PROTO);
}

TEST(test_inspect)
{
        static const char *const kinds[] = { [CG_RPC_NO_MESSAGE] = "no message",
                                             [CG_RPC_UNREADABLE_ANSWER] = "answer",
                                             [CG_RPC_UNREADABLE_REQUEST] = "request",
                                             [CG_RPC_UNREADABLE_NOTIFICATION] = "notification" };
        struct cg_rpc_unreadable u;

        EACH_CASE(c, "unreadable")
        {
                cg_rpc_inspect(cg_slice_of(c.in), &u);
                if (strcmp(kinds[u.kind], c.out) != 0 || u.id_number != strtoull(c.third, NULL, 10) ||
                    (u.kind != CG_RPC_NO_MESSAGE && u.certain != !strcmp(c.fourth, "certain")))
                        fail_msg("%s, id %llu", kinds[u.kind], (unsigned long long)u.id_number);
        }
}

TEST(test_long_ids_and_methods)
{
        char text[1024], id[400];

        memset(id, '1', sizeof(id));
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%.20s,\"result\":{}}", id);
        assert_false(parse(text).id_is_number); /* no id of ours, and no overflow */
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":-5,\"result\":{}}");
        assert_false(parse(text).id_is_number);
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"id\":%.300s,\"result\":{}}", id);
        refuse(text, CG_E_PROTO);
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"method\":\"%.127s\"}", id);
        assert_int_equal(strlen(parse(text).method), 127);
        snprintf(text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"method\":\"%.128s\"}", id);
        refuse(text, CG_E_PROTO);
}

TEST(test_many_members)
{
        struct cg_buf b;

        cg_buf_init(&b, 1 << 20);
        cg_buf_try_adds(&b, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}", NULL);
        for (unsigned i = 3; i < CG_MCP_MAX_MEMBERS; i++)
                cg_buf_try_addf(&b, NULL, ",\"m%u\":1", i);
        cg_buf_try_adds(&b, "}", NULL);
        assert_int_equal(parse(b.data).kind, CG_RPC_RESULT);
        b.data[b.len - 1] = ',';
        cg_buf_try_adds(&b, "\"one more\":1}", NULL);
        refuse(b.data, CG_E_PROTO);
        cg_buf_fini(&b);
}

TEST(test_depth)
{
        struct cg_buf b;

        for (unsigned depth = CG_JSON_WALK_DEPTH; depth <= CG_JSON_WALK_DEPTH + 1; depth++) {
                cg_buf_init(&b, 1 << 20);
                cg_buf_try_adds(&b, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":", NULL);
                for (unsigned i = 0; i < depth; i++)
                        cg_buf_try_adds(&b, "[", NULL);
                for (unsigned i = 0; i < depth; i++)
                        cg_buf_try_adds(&b, "]", NULL);
                cg_buf_try_adds(&b, "}", NULL);
                if (depth == CG_JSON_WALK_DEPTH)
                        assert_int_equal(parse(b.data).result.len, 2 * depth);
                else
                        refuse(b.data, CG_E_PARSE);
                cg_buf_fini(&b);
        }
}

TEST(test_walk_limits)
{
        struct cg_slice value;
        struct cg_json_walk w;

        OK(cg_json_walk_init(&w, span("[-12, 1.23456, [123, 1e5], [[\"\\ud800\"]], [[[]]]]"), '[', NULL));
        w.depth = 2;
        for (int i = 0; i < 4; i++)
                assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), 0);
        assert_int_equal(w.digits, 3);
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_walk_init(&w, span("[\"\\ud800\"]"), '[', NULL), 0);
        w.encodable = true;
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), CG_E_PARSE);
}

TEST(test_walk_array)
{
        static const char *const values[] = { "1", "\"a,b\"", "[2, 3]", "{\"x\":[]}", "null" };
        struct cg_slice key, value;
        struct cg_json_walk w;

        OK(cg_json_walk_init(&w, span(" [ 1 ,\"a,b\",[2, 3] , {\"x\":[]},null ] "), '[', NULL));
        for (size_t i = 0; i < CG_ARRAY_LEN(values); i++) {
                assert_int_equal(cg_json_walk_next(&w, &key, &value, NULL), 0);
                assert_null(key.p);
                assert_span(value, values[i]);
        }
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), CG_JSON_END);
        assert_int_equal(cg_json_walk_init(&w, span("[]"), '[', NULL), 0);
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), CG_JSON_END);
        assert_int_equal(cg_json_walk_init(&w, span("{}"), '[', NULL), CG_E_PARSE);
        assert_int_equal(cg_json_walk_init(&w, CG_SLICE_NONE, '[', NULL), CG_E_PARSE);
        assert_int_equal(cg_json_walk_init(&w, span("[1,]"), '[', NULL), 0);
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), 0);
        assert_int_equal(cg_json_walk_next(&w, NULL, &value, NULL), CG_E_PARSE);
}

TEST(test_member)
{
        struct cg_slice s;

        assert_int_equal(cg_json_member(span("{\"a\":1,\"b\": \"x\" }"), "b", &s, NULL), 0);
        assert_span(s, "\"x\"");
        assert_int_equal(cg_json_member(span("{\"a\":1}"), "b", &s, NULL), 0);
        assert_null(s.p);
        assert_int_equal(cg_json_member(span("{\"b\":1,\"b\":1}"), "b", &s, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_member(span("{\"b\":1"), "b", &s, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_member(span("[1]"), "b", &s, NULL), CG_E_PARSE);
}

TEST(test_string)
{
        char *text;

        assert_int_equal(cg_json_strdup(span("\"a\\u00e9\\n\""), &text, NULL), 0);
        assert_string_equal(text, "a\xc3\xa9\n");
        free(text);
        assert_int_equal(cg_json_strdup(span("\"a\\u0000\""), &text, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_strdup(span("\"\\ud800\""), &text, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_strdup(span("5"), &text, NULL), CG_E_PARSE);
        assert_int_equal(cg_json_strdup(CG_SLICE_NONE, &text, NULL), CG_E_PARSE);
}

/* ---- lines */

static void feed(struct cg_lines *l, const char *text, size_t len)
{
        char *p;

        assert_int_equal(cg_lines_room(l, len, &p, NULL), 0);
        memcpy(p, text, len);
        cg_lines_added(l, len);
}

static void assert_line(struct cg_lines *l, const char *text)
{
        struct cg_slice s;

        assert_int_equal(cg_lines_next(l, &s, NULL), 0);
        assert_span(s, text);
}

TEST(test_lines)
{
        struct cg_lines l;
        struct cg_slice s;

        cg_lines_init(&l, 10);
        feed(&l, "ab", 2);
        assert_int_equal(cg_lines_next(&l, &s, NULL), CG_TIMEOUT);
        feed(&l, "c\r\n\nxy\nz", 8);
        assert_line(&l, "abc");
        assert_line(&l, "");
        assert_line(&l, "xy");
        assert_int_equal(cg_lines_next(&l, &s, NULL), CG_TIMEOUT);
        feed(&l, "\n123456789\r\n", 12);
        assert_line(&l, "z");
        assert_line(&l, "123456789");
        assert_int_equal(cg_lines_rest(&l, &s), CG_TIMEOUT);
        feed(&l, "rest", 4);
        assert_int_equal(cg_lines_next(&l, &s, NULL), CG_TIMEOUT);
        assert_int_equal(cg_lines_rest(&l, &s), 0);
        assert_span(s, "rest");
        assert_int_equal(cg_lines_rest(&l, &s), CG_TIMEOUT);
        cg_lines_fini(&l);
}

TEST(test_long_lines)
{
        struct cg_lines l;
        struct cg_slice s;

        cg_lines_init(&l, 10);
        feed(&l, "0123456789\n", 11);
        assert_line(&l, "0123456789");
        /* Whole, in one read. */
        feed(&l, "0123456789a\nok\n", 15);
        FAILS(CG_E_LIMIT, "11 bytes", cg_lines_next(&l, &s, &err));
        assert_line(&l, "ok");
        /* In pieces: nothing of it is kept. */
        for (int i = 0; i < 100000; i++) {
                feed(&l, "0123456789abcdef", 16);
                assert_int_equal(cg_lines_next(&l, &s, NULL), CG_TIMEOUT);
                assert_true(l.buf.cap < 1024);
        }
        assert_int_equal(cg_lines_rest(&l, &s), CG_TIMEOUT);
        feed(&l, "xx\nfine\n", 8);
        FAILS(CG_E_LIMIT, "1600002 bytes", cg_lines_next(&l, &s, &err));
        assert_line(&l, "fine");
        cg_lines_fini(&l);
}

TEST(test_buffer_shrinks)
{
        struct cg_lines l;
        struct cg_slice s;
        char *big = malloc(4 << 20);

        memset(big, 'x', 4 << 20);
        big[(4 << 20) - 1] = '\n';
        cg_lines_init(&l, 8 << 20);
        feed(&l, big, 4 << 20);
        assert_int_equal(cg_lines_next(&l, &s, NULL), 0);
        assert_int_equal(s.len, (4 << 20) - 1);
        feed(&l, "a\n", 2);
        assert_line(&l, "a");
        assert_true(l.buf.cap < 4096);
        cg_lines_fini(&l);
        free(big);
}
