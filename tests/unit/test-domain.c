/*
 * Addresses, hosts and domain entries: each spelling that is understood beside the one next to it
 * that is not.
 */
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "sandbox/egress/domain.h"
#include "unit.h"

static struct cg_host host(const char *text)
{
        struct cg_host h;
        struct cg_err err;

        if (cg_host_parse(text, strlen(text), &h, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return h;
}

static void refuse_host(const char *text, size_t len)
{
        struct cg_host h;
        struct cg_err err = { .code = 0 };

        if (cg_host_parse(text, len, &h, &err) == 0)
                fail_msg("taken: %.*s as %s", (int)len, text, h.text);
        assert_int_equal(err.code, CG_E_INVAL);
        assert_non_null(strstr(err.msg, "malformed host"));
}

TEST(test_names)
{
        static const char *const same[][2] = {
                { "Example.COM", "example.com" },
                { "a.b.", "a.b" },
                { "localhost", "localhost" },
                { "nodot", "nodot" },
                { "_dmarc.a-b.c", "_dmarc.a-b.c" },
                { "XN--BCHER-KVA.example", "xn--bcher-kva.example" },
                { "0xzz.com", "0xzz.com" },
                { "1.2.3.4.com", "1.2.3.4.com" },
                { "a.0xg", "a.0xg" },
        };
        char label[70];

        for (size_t i = 0; i < CG_ARRAY_LEN(same); i++) {
                struct cg_host h = host(same[i][0]);

                assert_string_equal(h.text, same[i][1]);
                assert_false(h.is_addr);
        }
        memset(label, 'a', sizeof(label));
        assert_false(host("a").is_addr);
        refuse_host(label, 64);
        assert_int_equal(cg_host_parse(label, 63, &(struct cg_host){ .is_addr = false }, NULL), 0);
}

TEST(test_refused_names)
{
        static const char *const bad[] = {
                "",
                ".",
                "..",
                "a..b",
                ".a",
                "a..",
                "a b",
                "a/b",
                "a\\b",
                "a@b",
                "a:b",
                "a%b",
                "a%00.b",
                "a\r\n.b",
                "b\xc3\xbc"
                "cher.de",
                "[a.b]",
                "[127.0.0.1]",
                "[",
                "[]",
                "[::1",
                "::1]",
                "a,b",
                "a*b",
                "*.a.b",
                "a?b",
                "a#b",
                "a\tb",
        };
        char longest[300];

        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                refuse_host(bad[i], strlen(bad[i]));
        refuse_host("evil.com\0.allowed.com", 21);
        for (size_t i = 0; i < sizeof(longest); i++)
                longest[i] = i % 2 ? '.' : 'a';
        refuse_host(longest, 255);
        assert_int_equal(cg_host_parse(longest, 253, &(struct cg_host){ .is_addr = false }, NULL), 0);
}

TEST(test_addresses)
{
        static const char *const same[][2] = {
                { "127.0.0.1", "127.0.0.1" },
                { "127.1", "127.0.0.1" },
                { "0x7f.1", "127.0.0.1" },
                { "0x7F.0.0.1", "127.0.0.1" },
                { "0177.0.0.01", "127.0.0.1" },
                { "2130706433", "127.0.0.1" },
                { "017700000001", "127.0.0.1" },
                { "127.0.0.1.", "127.0.0.1" },
                { "1.2.3", "1.2.0.3" },
                { "1.65536", "1.1.0.0" },
                { "0x", "0.0.0.0" },
                { "0", "0.0.0.0" },
                { "0xffffffff", "255.255.255.255" },
                { "2852039166", "169.254.169.254" },
                { "::1", "::1" },
                { "[::1]", "::1" },
                { "[0:0:0:0:0:0:0:1]", "::1" },
                { "[2001:DB8::A]", "2001:db8::a" },
                { "[::ffff:127.0.0.1]", "127.0.0.1" },
                { "::ffff:7f00:1", "127.0.0.1" },
                { "[::7f00:1]", "::127.0.0.1" },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(same); i++) {
                struct cg_host h = host(same[i][0]);

                assert_string_equal(h.text, same[i][1]);
                assert_true(h.is_addr);
        }
}

TEST(test_refused_addresses)
{
        static const char *const bad[] = {
                "256.256.256.256",
                "1.2.3.4.5",
                "1.2.3.256",
                "256.1",
                "0x100.1",
                "08",
                "1.2.3.09",
                "4294967296",
                "0x1ffffffff",
                "99999999999999999999999999",
                "a.1",
                "foo.0x1",
                "1..2",
                "::1%lo",
                "[fe80::1%25eth0]",
                "::ffff:1.2.3.4%x.allowed.com",
                ":::",
                "1:2",
                "[1.2.3.4]",
                "12345::",
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                refuse_host(bad[i], strlen(bad[i]));
}

TEST(test_loopback_names)
{
        struct cg_host yes[] = { host("localhost"), host("LOCALHOST."), host("a.localhost") };
        struct cg_host no[] = { host("localhost.com"), host("alocalhost"), host("127.0.0.1") };

        for (size_t i = 0; i < 3; i++) {
                assert_true(cg_host_is_loopback_name(&yes[i]));
                assert_false(cg_host_is_loopback_name(&no[i]));
        }
}

TEST(test_authority)
{
        struct cg_host name = host("a.b"), six = host("[::1]");
        char buf[CG_AUTHORITY_MAX];

        cg_host_authority(&name, 80, 80, buf, sizeof(buf));
        assert_string_equal(buf, "a.b");
        cg_host_authority(&name, 81, 80, buf, sizeof(buf));
        assert_string_equal(buf, "a.b:81");
        cg_host_authority(&six, 443, 0, buf, sizeof(buf));
        assert_string_equal(buf, "[::1]:443");
}

/* ---- entries */

TEST(test_entries_taken)
{
        static const char *const good[] = {
                "localhost",      "localhost:8080", "a.b",          "A.B",     "*.a.b",
                "*.a.b:443",      "1.2.3.4",        "1.2.3.4:1",    "[::1]",   "[2001:db8::1]:65535",
                "[fe80::1%eth0]", "127.1",          "[1.2.3.4]:80", "*.*.com",
        };
        struct cg_domains d = { .n = 0 };
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(good); i++) {
                if (cg_domains_add(&d, good[i], false, &err) < 0)
                        fail_msg("%s", err.msg);
                assert_string_equal(d.v[i].entry, good[i]);
        }
        assert_int_equal(cg_domains_add(&d, "*", true, &err), 0);
        assert_int_equal(cg_domains_add(&d, "*:22", true, &err), 0);
        cg_domains_fini(&d);
}

TEST(test_entries_refused)
{
        static const char *const bad[] = {
                "",
                "*",
                "*:22",
                "*.com",
                "*.",
                "*..a.b",
                "*.a..b",
                "*.a.b.",
                "*a.b",
                "a.*.b",
                "nodot",
                "Localhost",
                ".a.b",
                "a.b.",
                "http://a.b",
                "a.b/c",
                "a.b:0",
                "a.b:080",
                "a.b:65536",
                "a.b:",
                "a.b:x",
                "a.b:443:1",
                "::1",
                "::1:443",
                "2001:db8::1:443",
                "[::1",
                "[::1]x",
                "[::1]:0",
                "[:::]",
                "[]",
                "evil.com:443.allowed.com",
                "[*]",
                "a.b:99999999999",
                "[*.a.b::]",
                "b\xc3\xbc"
                "cher.a.b",
                "*.b\xc3\xbc"
                "cher.a",
                "x\xe2\x80\x8b.a.b",
                "a\xe3\x80\x82"
                "b.c",
        };
        struct cg_domains d = { .n = 0 };
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++) {
                err.msg[0] = '\0';
                if (cg_domains_add(&d, bad[i], false, &err) == 0)
                        fail_msg("taken: %s", bad[i]);
                assert_non_null(strstr(err.msg, "Invalid domain pattern"));
        }
        assert_int_equal(d.n, 0);
        assert_true(cg_domains_add(&d, "*.com", true, &err) < 0);
        assert_true(cg_domains_add(&d,
                                   "b\xc3\xbc"
                                   "cher.a.b",
                                   true, &err) < 0);
        cg_domains_fini(&d);
}

static bool covers(const char *entry, bool deny, const char *dest, uint16_t port)
{
        struct cg_domains d = { .n = 0 };
        struct cg_host h = host(dest);
        bool found;

        assert_int_equal(cg_domains_add(&d, entry, deny, NULL), 0);
        found = cg_domains_find(&d, &h, port) != NULL;
        cg_domains_fini(&d);
        return found;
}

TEST(test_matching)
{
        assert_true(covers("a.b", false, "A.b.", 1));
        assert_false(covers("a.b", false, "x.a.b", 1));
        assert_true(covers("A.B:443", false, "a.b", 443));
        assert_false(covers("a.b:443", false, "a.b", 80));
        assert_true(covers("*.a.b", false, "x.a.b", 1));
        assert_true(covers("*.A.b", false, "x.y.a.b", 1));
        assert_false(covers("*.a.b", false, "a.b", 1));
        assert_false(covers("*.a.b", false, "xa.b", 1));
        assert_false(covers("*.a.b", false, "x.a.b.evil.com", 1));
        assert_false(covers("*.0.1", false, "127.0.0.1", 1));
        assert_true(covers("127.0.0.1", false, "0x7f.1", 1));
        assert_true(covers("127.0.0.1", false, "[::ffff:127.0.0.1]", 1));
        assert_false(covers("127.0.0.1", false, "127.0.0.2", 1));
        assert_true(covers("[::ffff:127.0.0.1]", false, "127.0.0.1", 1));
        assert_true(covers("[0:0::1]", false, "::1", 1));
        assert_false(covers("[::1]:80", false, "::1", 81));
        assert_true(covers("*", true, "anything", 1));
        assert_true(covers("*", true, "1.2.3.4", 1));
        assert_true(covers("*:22", true, "a.b", 22));
        assert_false(covers("*:22", true, "a.b", 23));
        /* In an unusual form: denies, allows nothing. */
        assert_true(covers("127.1", true, "127.0.0.1", 1));
        assert_false(covers("127.1", false, "127.0.0.1", 1));
}

TEST(test_first_entry_wins)
{
        struct cg_domains d = { .n = 0 };
        struct cg_host h = host("x.a.b"), addr = host("10.1.2.3");

        assert_int_equal(cg_domains_add(&d, "*.a.b:80", false, NULL), 0);
        assert_int_equal(cg_domains_add(&d, "x.a.b", false, NULL), 0);
        assert_int_equal(cg_domains_add(&d, "10.1.2.3:5", false, NULL), 0);
        assert_string_equal(cg_domains_find(&d, &h, 80)->entry, "*.a.b:80");
        assert_string_equal(cg_domains_find(&d, &h, 81)->entry, "x.a.b");
        assert_non_null(cg_domains_find_addr(&d, &addr.addr, 5));
        assert_null(cg_domains_find_addr(&d, &addr.addr, 6));
        cg_domains_fini(&d);
}

/* ---- addresses */

TEST(test_ranges)
{
        static const struct {
                const char *range, *in, *out;
        } c[] = {
                { "10.0.0.0/8", "10.255.0.1", "11.0.0.0" },
                { "10.1.2.3", "10.1.2.3", "10.1.2.4" },
                { "192.168.1.128/25", "192.168.1.255", "192.168.1.127" },
                { "fc00::/7", "fdff::1", "fe00::1" },
                { "::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0" },
                { "0.0.0.0/0", "8.8.8.8", "::8" },
                { "::/0", "::8", "8.8.8.8" },
                { "fe80::1%eth0", "fe80::1", "fe80::2" },
        };
        static const char *const bad[] = {
                "",    "10.0.0.0/33", "10.0.0.0/",         "10.0.0.0/8x", "10.0.0.0/-1",  "::/129",
                "a.b", "10.0.0/8",    "::ffff:1.2.3.4/95", "[::1]",       "10.0.0.0/0008"
        };
        struct cg_range r;
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(c); i++) {
                struct cg_host in = host(c[i].in), out = host(c[i].out);

                assert_int_equal(cg_range_parse(c[i].range, &r, NULL), 0);
                assert_true(cg_range_has(&r, &in.addr));
                assert_false(cg_range_has(&r, &out.addr));
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                assert_int_equal(cg_range_parse(bad[i], &r, &err), CG_E_INVAL);
}

TEST(test_classes)
{
        static const struct {
                const char *addr;
                enum cg_addr_class class;
        } c[] = {
                { "127.255.0.1", CG_ADDR_LOOPBACK },
                { "::1", CG_ADDR_LOOPBACK },
                { "::ffff:127.0.0.1", CG_ADDR_LOOPBACK },
                { "64:ff9b::7f00:1", CG_ADDR_LOOPBACK },
                { "2002:7f00:1::", CG_ADDR_LOOPBACK },
                { "::7f00:1", CG_ADDR_LOOPBACK },
                { "::ffff:0:7f00:1", CG_ADDR_LOOPBACK },
                { "0.1.2.3", CG_ADDR_UNSPECIFIED },
                { "::", CG_ADDR_UNSPECIFIED },
                { "169.254.169.254", CG_ADDR_LINK_LOCAL },
                { "fe80::1", CG_ADDR_LINK_LOCAL },
                { "64:ff9b::a9fe:a9fe", CG_ADDR_LINK_LOCAL },
                { "224.0.0.1", CG_ADDR_MULTICAST },
                { "ff02::1", CG_ADDR_MULTICAST },
                { "255.255.255.255", CG_ADDR_BROADCAST },
                { "100.100.100.200", CG_ADDR_METADATA },
                { "168.63.129.16", CG_ADDR_METADATA },
                { "192.0.0.192", CG_ADDR_METADATA },
                { "fd00:ec2::254", CG_ADDR_METADATA },
                { "fd20:ce::254", CG_ADDR_METADATA },
                { "fd00:c1::a9fe:a9fe", CG_ADDR_METADATA },
                { "fd00:42::42", CG_ADDR_METADATA },
                { "fd00:a9fe:a9fe::1", CG_ADDR_METADATA },
                { "fd00:100::100:200", CG_ADDR_METADATA },
                { "10.0.0.1", CG_ADDR_PRIVATE },
                { "172.31.0.1", CG_ADDR_PRIVATE },
                { "192.168.0.1", CG_ADDR_PRIVATE },
                { "100.64.0.1", CG_ADDR_PRIVATE },
                { "fd00::1", CG_ADDR_PRIVATE },
                { "64:ff9b:1::1", CG_ADDR_PRIVATE },
                { "2002:a00:1::", CG_ADDR_PRIVATE },
                { "8.8.8.8", CG_ADDR_PUBLIC },
                { "172.32.0.1", CG_ADDR_PUBLIC },
                { "2606:4700::1", CG_ADDR_PUBLIC },
                { "64:ff9b::808:808", CG_ADDR_PUBLIC },
                { "128.0.0.1", CG_ADDR_PUBLIC },
                { "100.100.100.201", CG_ADDR_PRIVATE },
                { "168.63.129.17", CG_ADDR_PUBLIC },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(c); i++) {
                struct cg_host h = host(c[i].addr);

                if (cg_addr_class(&h.addr) != c[i].class)
                        fail_msg("%s is %s", c[i].addr, cg_addr_class_name(cg_addr_class(&h.addr)));
        }
}

TEST(test_sockaddr)
{
        static const char *const texts[] = { "1.2.3.4", "2001:db8::1" };

        for (size_t i = 0; i < 2; i++) {
                struct cg_host h = host(texts[i]);
                struct sockaddr_storage sa;
                struct cg_addr back;

                assert_true(cg_addr_to_sockaddr(&h.addr, 80, &sa) > 0);
                assert_true(cg_addr_from_sockaddr((struct sockaddr *)&sa, &back));
                assert_true(cg_addr_equal(&h.addr, &back));
        }
}
