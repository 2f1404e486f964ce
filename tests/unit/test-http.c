/*
 * Heads and chunked bodies: what is understood, how it goes on, and everything that two readers
 * could see differently.
 */
#include "sandbox/egress/http.h"
#include "cases.h"

static struct cg_http_request request(const char *text)
{
        struct cg_http_request r;
        struct cg_err err;
        unsigned int status;

        if (cg_http_request_parse(text, strlen(text), &r, &status, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return r;
}

static void refuse(const char *text, unsigned int status)
{
        struct cg_http_request r;
        struct cg_err err = { .code = 0 };
        unsigned int got = 0;

        if (cg_http_request_parse(text, strlen(text), &r, &got, &err) == 0)
                fail_msg("taken: %s", text);
        if (got != status)
                fail_msg("%u, not %u: %s", got, status, text);
        assert_true(err.code < 0 && err.msg[0]);
}

static void assert_text(struct cg_slice t, const char *s)
{
        assert_int_equal(t.len, strlen(s));
        assert_memory_equal(t.p, s, t.len);
}

static void assert_written(const struct cg_http_request *r, bool absolute, const char *auth, const char *want)
{
        cg_auto_buf struct cg_buf b;

        cg_buf_init(&b, 1 << 16);
        assert_int_equal(cg_http_request_write(r, absolute, auth, &b, NULL), 0);
        assert_string_equal(b.data, want);
}

TEST(test_head_len)
{
        static const char text[] = "GET / HTTP/1.1\r\nA: b\r\n\r\nrest";
        size_t scanned = 0, found = 0;

        for (size_t n = 1; n < sizeof(text) && !found; n++)
                found = cg_http_head_len(text, n, &scanned);
        assert_int_equal(found, strlen(text) - 4);
        scanned = 0;
        assert_int_equal(cg_http_head_len("a\n\nb\r\n\r", 7, &scanned), 0);
}

TEST(test_absolute)
{
        struct cg_http_request r = request(
                "GET http://Example.com.:8080/a?b=c HTTP/1.1\r\nHost: evil\r\nX: 1\r\n\r\n");

        assert_false(r.connect);
        assert_string_equal(r.host.text, "example.com");
        assert_int_equal(r.port, 8080);
        assert_text(r.path, "/a?b=c");
        assert_true(r.head.keep_alive);
        assert_int_equal(r.head.framing, CG_HTTP_NO_BODY);
        assert_written(&r, false, NULL,
                       "GET /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nX: 1\r\nConnection: close\r\n\r\n");
        assert_written(&r, true, "Basic eDp5",
                       "GET http://example.com:8080/a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nX: 1\r\n"
                       "Proxy-Authorization: Basic eDp5\r\nConnection: close\r\n\r\n");
        r = request("HEAD HTTP://[::1]?x HTTP/1.0\r\n\r\n");
        assert_true(r.is_head);
        assert_int_equal(r.port, 80);
        assert_false(r.head.keep_alive);
        assert_written(&r, false, NULL, "HEAD /?x HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n");
        r = request("GET http://a.b HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_true(r.head.keep_alive);
        assert_written(&r, false, NULL, "GET / HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n");
}

TEST(test_connect)
{
        struct cg_http_request r = request(
                "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n");

        assert_true(r.connect);
        assert_string_equal(r.host.text, "a.b");
        assert_int_equal(r.port, 443);
        r = request("CONNECT [2001:DB8::1]:65535 HTTP/1.0\r\n\r\n");
        assert_string_equal(r.host.text, "2001:db8::1");
        assert_int_equal(r.port, 65535);
}

TEST(test_hop_by_hop)
{
        struct cg_http_request r = request(
                "POST http://a/ HTTP/1.1\r\nConnection: x-a , close\r\nconnection: X-B\r\n"
                "X-A: 1\r\nx-b: 2\r\n"
                "X-C: 3\r\nProxy-Authorization: Basic x\r\nProxy-Connection: close\r\nTE: trailers\r\n"
                "Keep-Alive: 5\r\nUpgrade: h2c\r\nTrailer: y\r\nExpect: 100-continue\r\n"
                "Content-Length: 00012\r\n\r\n");

        assert_false(r.head.keep_alive);
        assert_int_equal(r.head.length, 12);
        assert_written(
                &r, false, NULL,
                "POST / HTTP/1.1\r\nHost: a\r\nX-C: 3\r\nExpect: 100-continue\r\nContent-Length: 12\r\n"
                "Connection: close\r\n\r\n");
        /* A field that Connection names may not take the framing with it. */
        r = request("POST http://a/ HTTP/1.1\r\nConnection: content-length, transfer-encoding\r\n"
                    "Transfer-Encoding: Chunked\r\n\r\n");
        assert_written(
                &r, false, NULL,
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
}

TEST(test_smuggling)
{
        char text[512];

        EACH_CASE(c, "refused fields")
        {
                snprintf(text, sizeof(text), "POST http://a/ HTTP/1.1\r\n%s\r\n", c.in);
                refuse(text, 400);
        }
        request("POST http://a/ HTTP/1.1\r\nX: \xc3\xbc\tb\r\nTransfer-Encoding:chunked \r\n\r\n");
}

TEST(test_request_lines)
{
        char text[512];

        EACH_CASE(c, "refused request lines")
        {
                snprintf(text, sizeof(text), "%s\r\n\r\n", c.in);
                refuse(text, c.out ? (unsigned int)atoi(c.out) : 400);
        }
}

TEST(test_many_fields)
{
        cg_auto_buf struct cg_buf b;
        struct cg_http_request r;
        unsigned int status;

        cg_buf_init(&b, 1 << 16);
        assert_int_equal(cg_buf_try_adds(&b, "GET http://a/ HTTP/1.1\r\n", NULL), 0);
        for (int i = 0; i < CG_HTTP_FIELDS_MAX; i++)
                assert_int_equal(cg_buf_try_adds(&b, "A: b\r\n", NULL), 0);
        assert_int_equal(cg_buf_try_adds(&b, "\r\n", NULL), 0);
        assert_int_equal(cg_http_request_parse(b.data, b.len, &r, &status, NULL), 0);
        b.len -= 2;
        assert_int_equal(cg_buf_try_adds(&b, "A: b\r\n\r\n", NULL), 0);
        assert_true(cg_http_request_parse(b.data, b.len, &r, &status, NULL) < 0);
}

/* ---- responses */

TEST(test_responses)
{
        static const char *const framings[] = { [CG_HTTP_NO_BODY] = "no body",
                                                [CG_HTTP_LENGTH] = "length",
                                                [CG_HTTP_CHUNKED] = "chunked",
                                                [CG_HTTP_UNTIL_END] = "until end" };

        EACH_CASE(c, "responses")
        {
                cg_auto_buf struct cg_buf b = { .max = 1 << 16 };
                struct cg_http_response r;

                OK(cg_http_response_parse(c.in, c.len, strstr(c.out, "to HEAD"), &r, &err));
                assert_memory_equal(framings[r.head.framing], c.out, strlen(framings[r.head.framing]));
                OK(cg_http_response_write(&r, strstr(c.out, "chunked on"), strstr(c.out, "kept alive"), &b,
                                          &err));
                assert_string_equal(b.data, c.third);
        }
}

TEST(test_bad_responses)
{
        struct cg_http_response r;

        EACH_CASE(c, "refused responses")
        FAILS(ANY_ERROR, "", cg_http_response_parse(c.in, c.len, false, &r, &err));
}

/* ---- chunks */

/*
 * The body, from pieces of @piece bytes; NULL when it is refused or has no end. *left: what follows
 * it.
 */
static const char *dechunk(const char *text, size_t piece, const char **left)
{
        static char body[4096];
        struct cg_chunked c = { .state = 0 };
        size_t n = 0, len = strlen(text);

        for (size_t at = 0; at < len;) {
                size_t used, m = len - at < piece ? len - at : piece;
                struct cg_slice data;
                int r = cg_chunked_next(&c, text + at, m, &used, &data, NULL);

                if (r < 0)
                        return NULL;
                memcpy(body + n, data.p, data.len);
                n += data.len;
                at += used;
                *left = text + at;
                if (r == CG_CHUNKED_END) {
                        body[n] = '\0';
                        return body;
                }
        }
        return NULL;
}

TEST(test_chunks)
{
        const char *left, *body;

        for (size_t piece = 1; piece < 12; piece++) {
                EACH_CASE(c, "chunks of \"hello world\" and NEXT")
                {
                        body = dechunk(c.in, piece, &left);
                        if (!body || strcmp(body, "hello world") != 0 || strcmp(left, "NEXT") != 0)
                                fail_msg("%s in pieces of %zu bytes", body, piece);
                }
                EACH_CASE(c, "refused chunks")
                if (dechunk(c.in, piece, &left))
                        fail_msg("accepted in pieces of %zu bytes", piece);
        }
}

TEST(test_chunk_limits)
{
        struct cg_chunked c = { .state = 0 };
        char text[CG_HTTP_TRAILER_MAX + 64];
        struct cg_slice data;
        size_t used;

        memset(text, 'a', sizeof(text));
        memcpy(text, "5;", 2);
        assert_true(cg_chunked_next(&c, text, CG_HTTP_CHUNK_LINE_MAX + 2, &used, &data, NULL) < 0);
        c = (struct cg_chunked){ .state = 0 };
        memcpy(text, "0\r\na:", 5);
        assert_int_equal(cg_chunked_next(&c, text, CG_HTTP_TRAILER_MAX, &used, &data, NULL), 0);
        assert_true(cg_chunked_next(&c, text + used, sizeof(text) - used, &used, &data, NULL) < 0);
}
