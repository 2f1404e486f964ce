/* src/jupyter/message.c: what is believed, in which order it is looked at, and what goes out. */
#include "jupyter/message.h"
#include "unit.h"

#define KEY    "a key"
#define HEADER "{\"msg_id\":\"m1\",\"msg_type\":\"execute_request\",\"session\":\"s\",\"version\":\"5.3\"}"

static struct cg_slice span(const char *s)
{
        return (struct cg_slice){ s, strlen(s) };
}

/* A message of six frames behind one identity. */
struct sample {
        struct cg_slice f[CG_JMSG_MAX_FRAMES + 2];
        char hex[CG_JSIGN_HEX + 1];
        size_t n;
};

static void make(struct sample *s, const struct cg_jsign *sign, const char *header, const char *content)
{
        *s = (struct sample){ .n = 7 };
        s->f[0] = span("client");
        s->f[1] = span("<IDS|MSG>");
        s->f[3] = span(header);
        s->f[4] = span("{}");
        s->f[5] = span("{}");
        s->f[6] = span(content);
        cg_jsign_make(sign, s->f + 3, s->hex);
        s->f[2] = span(s->hex);
}

static struct cg_jsign keyed(const char *key)
{
        struct cg_jsign sign;

        OK(cg_jsign_init(&sign, key, strlen(key), &err));
        return sign;
}

static void expect_refused(struct cg_jsign *sign, const struct sample *s, const char *why)
{
        struct cg_jparsed m;
        struct cg_err err = { 0 };
        int r = cg_jmsg_parse(sign, s->f, s->n, &m, &err);

        if (r == 0) { /* it can be answered */
                assert_true(m.bad[0]);
                snprintf(err.msg, sizeof(err.msg), "%s", m.bad);
                cg_jparsed_fini(&m);
        }
        if (!strstr(err.msg, why))
                fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

static void expect_accepted(struct cg_jsign *sign, const struct sample *s)
{
        struct cg_jparsed m;
        struct cg_err err = { 0 };

        if (cg_jmsg_parse(sign, s->f, s->n, &m, &err) < 0)
                fail_msg("refused: %s", err.msg);
        if (m.bad[0])
                fail_msg("bad: %s", m.bad);
        cg_jparsed_fini(&m);
}

TEST(wrong_signatures)
{
        struct cg_jsign sign = keyed(KEY), other = keyed("another key");
        struct sample s;

        make(&s, &other, HEADER, "{}");
        expect_refused(&sign, &s, "signature is wrong");
        make(&s, &sign, HEADER, "{}");
        s.f[2].len = 0;
        expect_refused(&sign, &s, "0 bytes instead of 64");
        make(&s, &sign, HEADER, "{}");
        s.f[2].len = 63;
        expect_refused(&sign, &s, "63 bytes");
        make(&s, &sign, HEADER, "{}");
        s.hex[63] = s.hex[63] == '0' ? '1' : '0';
        expect_refused(&sign, &s, "signature is wrong");
        for (int part = 3; part < 7; part++) { /* each part is signed */
                make(&s, &sign, HEADER, "{}");
                s.f[part] = span("{ }");
                expect_refused(&sign, &s, "signature is wrong");
        }
        make(&s, &sign, HEADER, "{}");
        expect_accepted(&sign, &s);
        cg_jsign_fini(&sign);
        cg_jsign_fini(&other);
}

/*
 * Nothing of a message is parsed before its signature was right: the error is about the signature,
 * not about JSON.
 */
TEST(signature_comes_before_parsing)
{
        struct cg_jsign sign = keyed(KEY), other = keyed("another key");
        struct sample s;

        make(&s, &other, "{not json", "[[[[");
        expect_refused(&sign, &s, "signature is wrong");
        make(&s, &sign, "{not json", "{}");
        expect_refused(&sign, &s, "JSON");
        cg_jsign_fini(&sign);
        cg_jsign_fini(&other);
}

static void numbered(struct sample *s, const struct cg_jsign *sign, unsigned i, char content[32])
{
        snprintf(content, 32, "{\"n\":%u}", i);
        make(s, sign, HEADER, content);
}

/*
 * As many as the ring holds are remembered; the one that fell out first is the first that could
 * come again.
 */
TEST(replayed)
{
        struct cg_jsign sign = keyed(KEY);
        /* Under valgrind, 65,536 signatures take too long, and none takes the place of another. */
        unsigned n = (unsigned)rounds(CG_JMSG_REPLAY, 1000);
        char content[32];
        struct sample s;

        for (unsigned i = 0; i < n; i++) {
                numbered(&s, &sign, i, content);
                expect_accepted(&sign, &s);
        }
        for (unsigned i = 0; i < n; i += 997) {
                numbered(&s, &sign, i, content);
                expect_refused(&sign, &s, "replayed");
        }
        if (n < CG_JMSG_REPLAY) {
                cg_jsign_fini(&sign);
                return;
        }
        numbered(&s, &sign, CG_JMSG_REPLAY, content);
        expect_accepted(&sign, &s);
        numbered(&s, &sign, 0, content);
        expect_accepted(&sign, &s); /* took the place of 1 */
        numbered(&s, &sign, 1, content);
        expect_accepted(&sign, &s);
        numbered(&s, &sign, 3, content);
        expect_refused(&sign, &s, "replayed");
        numbered(&s, &sign, CG_JMSG_REPLAY, content);
        expect_refused(&sign, &s, "replayed");
        cg_jsign_fini(&sign);
}

/* A message that was refused must not use up the digest of the real one. */
TEST(refused_is_not_remembered)
{
        struct cg_jsign sign = keyed(KEY);
        struct sample s, bad;

        make(&s, &sign, HEADER, "{}");
        bad = s;
        bad.f[2] = span(s.hex);
        bad.f[6] = span("{ }");
        expect_refused(&sign, &bad, "signature is wrong");
        expect_accepted(&sign, &s);
        cg_jsign_fini(&sign);
}

TEST(frames)
{
        struct cg_jsign sign = keyed("");
        struct sample s;

        make(&s, &sign, HEADER, "{}");
        s.n = 0;
        expect_refused(&sign, &s, "no delimiter");
        for (size_t n = 2; n < 7; n++) {
                s.n = n;
                expect_refused(&sign, &s, "at least 5 are needed");
        }
        s.n = 7;
        expect_accepted(&sign, &s);
        for (; s.n < 7 + CG_JMSG_MAX_BUFFERS; s.n++)
                s.f[s.n] = span("b");
        expect_accepted(&sign, &s);
        s.f[s.n++] = span("b");
        expect_refused(&sign, &s, "buffers");
        s.n = CG_JMSG_MAX_FRAMES + 1;
        expect_refused(&sign, &s, "frames");
}

TEST(identities)
{
        struct cg_jsign sign = keyed("");
        struct sample s, many = { .n = 0 };

        make(&s, &sign, HEADER, "{}");
        for (size_t i = 0; i < CG_JMSG_MAX_IDS; i++)
                many.f[many.n++] = span("id");
        memcpy(many.f + many.n, s.f + 1, 6 * sizeof(s.f[0]));
        many.n += 6;
        expect_accepted(&sign, &many);
        for (size_t i = many.n++; i > 0; i--)
                many.f[i] = many.f[i - 1];
        expect_refused(&sign, &many, "no delimiter");
}

TEST(headers)
{
        static const struct {
                const char *header, *why;
        } cases[] = {
                { "{}", "no msg_type" },
                { "[]", "object" },
                { "", "JSON" },
                { "{\"msg_type\":5}", "must be a string" },
                { "{\"msg_type\":\"x\",\"msg_id\":[]}", "must be a string" },
                { "{\"msg_type\":\"x\\u0000y\"}", "NUL" },
                { "{\"msg_type\":\"x\"} {}", "" },
                { "{\"msg_type\":\"\xff\"}", "UTF-8" },
        };
        struct cg_jsign sign = keyed("");
        struct sample s;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                make(&s, &sign, cases[i].header, "{}");
                expect_refused(&sign, &s, cases[i].why);
        }
}

static char *nested(size_t depth)
{
        char *p = malloc(depth * 2 + 16);
        size_t n = 5;

        assert_non_null(p);
        memcpy(p, "{\"a\":", n);
        memset(p + n, '[', depth);
        memset(p + n + depth, ']', depth);
        strcpy(p + n + depth * 2, "}");
        return p;
}

TEST(limits)
{
        struct cg_jsign sign = keyed("");
        cg_auto_free char *deep = nested(100000), *fine = nested(CG_JSON_DEPTH - 1),
                          *over = nested(CG_JSON_DEPTH);
        cg_auto_free char *header = malloc(CG_JMSG_MAX_HEADER + 100), *big = malloc(CG_JMSG_MAX_BYTES + 1);
        struct sample s;

        make(&s, &sign, HEADER, fine);
        expect_accepted(&sign, &s);
        make(&s, &sign, HEADER, over);
        expect_refused(&sign, &s, "content");
        make(&s, &sign, HEADER, deep);
        expect_refused(&sign, &s, "deeply");
        make(&s, &sign, deep, "{}");
        expect_refused(&sign, &s, "header");
        memset(header, ' ', CG_JMSG_MAX_HEADER + 99);
        memcpy(header, HEADER, strlen(HEADER));
        header[CG_JMSG_MAX_HEADER + 1] = '\0';
        make(&s, &sign, header, "{}");
        expect_refused(&sign, &s, "header has more");
        memset(big, ' ', CG_JMSG_MAX_BYTES);
        big[CG_JMSG_MAX_BYTES] = '\0';
        make(&s, &sign, HEADER, "{}");
        s.f[s.n++] = span(big);
        expect_refused(&sign, &s, "bytes");
}

/* Each byte at each place of a word and behind it: exactly those that JSON wants escaped are. */
TEST(quoting_at_any_place)
{
        for (unsigned c = 0; c < 256; c++) {
                for (size_t at = 0; at < 19; at++) {
                        cg_auto_buf struct cg_buf b = { .max = 1000 };
                        bool special = c < 0x20 || c == '"' || c == '\\';
                        char text[19];

                        memset(text, 'x', sizeof(text));
                        text[at] = (char)c;
                        cg_json_escape_utf8(&b, text, sizeof(text));
                        assert_int_equal(b.len > sizeof(text), special);
                        if (!special)
                                assert_memory_equal(b.data, text, sizeof(text));
                        else
                                assert_int_equal(b.data[at], '\\');
                        assert_int_equal(b.data[b.len - 1] == 'x', special ? at < 18 : at < 18 || c == 'x');
                }
        }
}

/* ------------------------------------------------------------------ through sockets */

TEST(too_many_frames_are_dropped)
{
        struct cg_jsign sign = keyed("");
        void *ctx = zmq_ctx_new(), *a = zmq_socket(ctx, ZMQ_DEALER), *b = zmq_socket(ctx, ZMQ_DEALER);
        struct cg_jout out = { .type = "status" };
        struct cg_jidentity me;
        struct cg_jmsg *m;

        assert_int_equal(cg_jidentity_init(&me, NULL), 0);
        assert_int_equal(zmq_bind(a, "inproc://x"), 0);
        assert_int_equal(zmq_connect(b, "inproc://x"), 0);
        for (int i = 0; i < 5000; i++)
                assert_int_equal(zmq_send(a, "x", 1, i < 4999 ? ZMQ_SNDMORE : 0), 1);
        OK(cg_jmsg_send(a, &sign, &me, &out, NULL, &err));
        FAILS(ANY_ERROR, "frames", cg_jmsg_recv(b, &sign, NULL, &m, &err));
        OK(cg_jmsg_recv(b, &sign, NULL, &m, &err)); /* the next message is whole */
        cg_jmsg_free(m);
        zmq_close(a);
        zmq_close(b);
        zmq_ctx_term(ctx);
}
