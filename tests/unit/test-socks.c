/* SOCKS 5: whole messages, messages cut anywhere, and what is none. */
#include "sandbox/egress/socks.h"
#include "cases.h"

#define BYTES(s) ((const uint8_t *)(s)), (sizeof(s) - 1)

TEST(test_greeting)
{
        static const char *const methods[] = { [CG_SOCKS_NO_AUTH] = "none",
                                               [CG_SOCKS_PASSWORD] = "password",
                                               [CG_SOCKS_NO_METHOD] = "no method" };
        enum cg_socks_method m;
        size_t used;

        EACH_CASE(c, "greetings")
        {
                assert_int_equal(cg_socks_greeting((const uint8_t *)c.in, c.len, &used, &m, NULL), 0);
                assert_string_equal(methods[m], c.out);
                assert_int_equal(used, atoi(c.third));
        }
        EACH_CASE(c, "parts of greetings")
        assert_int_equal(cg_socks_greeting((const uint8_t *)c.in, c.len, &used, &m, NULL), CG_SOCKS_MORE);
        assert_true(cg_socks_greeting(BYTES("\4\1\0"), &used, &m, NULL) < 0);
}

TEST(test_password)
{
        static const char whole[] = "\1\3srt\4word";
        size_t used;

        for (size_t n = 0; n < sizeof(whole) - 1; n++)
                assert_int_equal(cg_socks_password((const uint8_t *)whole, n, &used, NULL), CG_SOCKS_MORE);
        assert_int_equal(cg_socks_password(BYTES("\1\3srt\4wordX"), &used, NULL), 0);
        assert_int_equal(used, 10);
        assert_int_equal(cg_socks_password(BYTES("\1\0\0"), &used, NULL), 0);
        assert_true(cg_socks_password(BYTES("\5\0\0"), &used, NULL) < 0);
}

TEST(test_requests)
{
        struct cg_socks_request r;
        size_t used;

        EACH_CASE(c, "requests")
        {
                const uint8_t *p = (const uint8_t *)c.in;

                for (size_t n = 0; n < c.len; n++)
                        assert_int_equal(cg_socks_request(p, n, &used, &r, NULL), CG_SOCKS_MORE);
                OK(cg_socks_request(p, c.len, &used, &r, &err));
                assert_int_equal(used, c.len);
                assert_int_equal(r.code, CG_SOCKS_OK);
                assert_string_equal(r.host.text, c.out);
                assert_int_equal(r.port, atoi(c.third));
        }
}

TEST(test_refused)
{
        static const char *const codes[] = { [CG_SOCKS_NO_COMMAND] = "command",
                                             [CG_SOCKS_NO_ADDRESS_TYPE] = "address type",
                                             [CG_SOCKS_NOT_ALLOWED] = "not allowed" };
        struct cg_socks_request r;
        struct cg_err err;
        size_t used;

        EACH_CASE(c, "refused requests")
        {
                err.msg[0] = '\0';
                assert_int_equal(cg_socks_request((const uint8_t *)c.in, c.len, &used, &r, &err), 0);
                assert_string_equal(codes[r.code], c.out);
                assert_true(err.msg[0]);
        }
        assert_true(cg_socks_request(BYTES("\4\1\0\1\1\2\3\4\0\120"), &used, &r, NULL) < 0);
}

TEST(test_reply)
{
        uint8_t buf[CG_SOCKS_REPLY_LEN];

        cg_socks_reply(CG_SOCKS_NOT_ALLOWED, buf);
        assert_memory_equal(buf, "\5\2\0\1\0\0\0\0\0\0", sizeof(buf));
}

TEST(test_ssh_refusal)
{
        static const char banner[] = "SSH-2.0-policy_refusal\r\n";
        cg_auto_buf struct cg_buf b;
        const uint8_t *p;
        size_t packet;

        cg_buf_init(&b, 4096);
        cg_socks_ssh_refusal("no\nSSH", &b);
        assert_int_equal(cg_buf_end(&b, NULL), 0);
        assert_memory_equal(b.data, banner, strlen(banner));
        p = (const uint8_t *)b.data + strlen(banner);
        packet = (size_t)p[2] << 8 | p[3];
        assert_int_equal(strlen(banner) + 4 + packet, b.len);
        assert_int_equal((4 + packet) % 8, 0);
        assert_true(p[4] >= 4);    /* padding */
        assert_int_equal(p[5], 1); /* SSH_MSG_DISCONNECT */
        assert_memory_equal(p + 14, "no SSH", 6);
}
