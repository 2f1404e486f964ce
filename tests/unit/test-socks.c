/* SOCKS 5: whole messages, messages cut anywhere, and what is none. */
#include "sandbox/egress/socks.h"
#include "unit.h"

#define BYTES(s) ((const uint8_t *)(s)), (sizeof(s) - 1)

TEST(test_greeting)
{
        enum cg_socks_method m;
        size_t used;

        assert_int_equal(cg_socks_greeting(BYTES("\5\1\0"), &used, &m, NULL), 0);
        assert_int_equal(m, CG_SOCKS_NO_AUTH);
        assert_int_equal(used, 3);
        assert_int_equal(cg_socks_greeting(BYTES("\5\2\2\0rest"), &used, &m, NULL), 0);
        assert_int_equal(m, CG_SOCKS_NO_AUTH);
        assert_int_equal(used, 4);
        assert_int_equal(cg_socks_greeting(BYTES("\5\2\1\2"), &used, &m, NULL), 0);
        assert_int_equal(m, CG_SOCKS_PASSWORD);
        assert_int_equal(cg_socks_greeting(BYTES("\5\1\1"), &used, &m, NULL), 0);
        assert_int_equal(m, CG_SOCKS_NO_METHOD);
        assert_int_equal(cg_socks_greeting(BYTES("\5\0"), &used, &m, NULL), 0);
        assert_int_equal(m, CG_SOCKS_NO_METHOD);
        assert_int_equal(cg_socks_greeting(BYTES(""), &used, &m, NULL), CG_SOCKS_MORE);
        assert_int_equal(cg_socks_greeting(BYTES("\5"), &used, &m, NULL), CG_SOCKS_MORE);
        assert_int_equal(cg_socks_greeting(BYTES("\5\2\0"), &used, &m, NULL), CG_SOCKS_MORE);
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

static void want_host(const uint8_t *p, size_t len, const char *host, uint16_t port)
{
        struct cg_socks_request r;
        size_t used;

        for (size_t n = 0; n < len; n++)
                assert_int_equal(cg_socks_request(p, n, &used, &r, NULL), CG_SOCKS_MORE);
        assert_int_equal(cg_socks_request(p, len, &used, &r, NULL), 0);
        assert_int_equal(used, len);
        assert_int_equal(r.code, CG_SOCKS_OK);
        assert_string_equal(r.host.text, host);
        assert_int_equal(r.port, port);
}

TEST(test_requests)
{
        want_host(BYTES("\5\1\0\3\7A.b.Cd.\1\273"), "a.b.cd", 443);
        want_host(BYTES("\5\1\0\3\x5"
                        "127.1\0\120"),
                  "127.0.0.1", 80);
        want_host(BYTES("\5\1\0\1\x7f\0\0\1\0\120"), "127.0.0.1", 80);
        want_host(BYTES("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\120"), "::1", 80);
        want_host(BYTES("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1\0\120"), "127.0.0.1", 80);
        want_host(BYTES("\5\1\0\3\3::1\0\120"), "::1", 80);
}

static void want_code(const uint8_t *p, size_t len, enum cg_socks_code code)
{
        struct cg_socks_request r;
        struct cg_err err = { .msg = "" };
        size_t used;

        assert_int_equal(cg_socks_request(p, len, &used, &r, &err), 0);
        assert_int_equal(r.code, code);
        assert_true(err.msg[0]);
}

TEST(test_refused)
{
        struct cg_socks_request r;
        size_t used;

        want_code(BYTES("\5\2\0\1\1\2\3\4\0\120"), CG_SOCKS_NO_COMMAND);
        want_code(BYTES("\5\3\0\1\1\2\3\4\0\120"), CG_SOCKS_NO_COMMAND);
        want_code(BYTES("\5\1\0\2xxxxxxxx"), CG_SOCKS_NO_ADDRESS_TYPE);
        want_code(BYTES("\5\1\0\1\1\2\3\4\0\0"), CG_SOCKS_NOT_ALLOWED);
        want_code(BYTES("\5\1\0\3\0\0\120"), CG_SOCKS_NOT_ALLOWED);
        want_code(BYTES("\5\1\0\3\x15"
                        "evil.com\0.allowed.com\0\120"),
                  CG_SOCKS_NOT_ALLOWED);
        want_code(BYTES("\5\1\0\3\5a\r\nb.\0\120"), CG_SOCKS_NOT_ALLOWED);
        want_code(BYTES("\5\1\0\3\4::1%\0\120"), CG_SOCKS_NOT_ALLOWED);
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
