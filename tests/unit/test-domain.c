/*
 * Addresses, hosts and domain entries: each spelling that is understood beside the one next to it
 * that is not.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include "sandbox/settings/domain.h"
#include "cases.h"

static struct cg_host host(const char *text)
{
        struct cg_host h;

        OK(cg_host_parse(text, strlen(text), &h, &err));
        return h;
}

static void refuse_host(const char *text, size_t len)
{
        struct cg_host h;

        FAILS(CG_E_INVAL, "malformed host", cg_host_parse(text, len, &h, &err));
}

TEST(test_names)
{
        struct cg_host h;
        char label[70], longest[300];

        EACH_CASE(c, "names")
        {
                h = host(c.in);
                if (strcmp(h.text, c.out) != 0 || h.is_addr)
                        fail_msg("%s", h.text);
        }
        EACH_CASE(c, "refused names")
        refuse_host(c.in, c.len);
        memset(label, 'a', sizeof(label));
        assert_false(host("a").is_addr);
        refuse_host(label, 64);
        OK(cg_host_parse(label, 63, &h, &err));
        for (size_t i = 0; i < sizeof(longest); i++)
                longest[i] = i % 2 ? '.' : 'a';
        refuse_host(longest, 255);
        OK(cg_host_parse(longest, 253, &h, &err));
}

TEST(test_addresses)
{
        EACH_CASE(c, "addresses")
        {
                struct cg_host h = host(c.in);

                if (strcmp(h.text, c.out) != 0 || !h.is_addr)
                        fail_msg("%s", h.text);
        }
        EACH_CASE(c, "refused addresses")
        refuse_host(c.in, c.len);
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

TEST(test_entries)
{
        struct cg_domains d = { .n = 0 };

        EACH_CASE(c, "entries")
        {
                OK(cg_domains_add(&d, c.in, false, &err));
                assert_string_equal(d.v[d.n - 1].entry, c.in);
        }
        EACH_CASE(c, "entries to deny")
        OK(cg_domains_add(&d, c.in, true, &err));
        cg_domains_fini(&d);
        EACH_CASE(c, "refused entries")
        FAILS(CG_E_INVAL, "Invalid domain pattern", cg_domains_add(&d, c.in, false, &err));
        EACH_CASE(c, "refused entries to deny")
        FAILS(CG_E_INVAL, "", cg_domains_add(&d, c.in, true, &err));
        assert_int_equal(d.n, 0);
        cg_domains_fini(&d);
}

TEST(test_matching)
{
        EACH_CASE(c, "matching")
        {
                struct cg_domains d = { .n = 0 };
                struct cg_host h = host(c.out);

                OK(cg_domains_add(&d, c.in, strstr(c.fourth, "denied"), NULL));
                if (!cg_domains_find(&d, &h, (uint16_t)atoi(c.third)) != !strncmp(c.fourth, "not ", 4))
                        fail_msg("%s is not %s", c.out, c.fourth);
                cg_domains_fini(&d);
        }
}

TEST(test_first_entry_wins)
{
        struct cg_domains d = { .n = 0 };
        struct cg_host h = host("x.a.b"), addr = host("10.1.2.3");

        OK(cg_domains_add(&d, "*.a.b:80", false, NULL));
        OK(cg_domains_add(&d, "x.a.b", false, NULL));
        OK(cg_domains_add(&d, "10.1.2.3:5", false, NULL));
        assert_string_equal(cg_domains_find(&d, &h, 80)->entry, "*.a.b:80");
        assert_string_equal(cg_domains_find(&d, &h, 81)->entry, "x.a.b");
        assert_non_null(cg_domains_find_addr(&d, &addr.addr, 5));
        assert_null(cg_domains_find_addr(&d, &addr.addr, 6));
        cg_domains_fini(&d);
}

/* ---- addresses */

TEST(test_ranges)
{
        struct cg_range r;

        EACH_CASE(c, "ranges")
        {
                struct cg_host inside = host(c.out), outside = host(c.third);

                OK(cg_range_parse(c.in, &r, &err));
                if (!cg_range_has(&r, &inside.addr) || cg_range_has(&r, &outside.addr))
                        fail_msg("%s, but not %s", c.out, c.third);
        }
        EACH_CASE(c, "refused ranges")
        FAILS(CG_E_INVAL, "", cg_range_parse(c.in, &r, &err));
}

TEST(test_classes)
{
        EACH_CASE(c, "classes")
        {
                struct cg_host h = host(c.in);
                const char *class = cg_addr_class_name(cg_addr_class(&h.addr));

                if (strcmp(class, c.out) != 0)
                        fail_msg("%s", class);
        }
}

/* This machine's only address; getifaddrs() fails with @list_error. */
static struct sockaddr_in own_address = { .sin_family = AF_INET };
static int list_error;

int getifaddrs(struct ifaddrs **list)
{
        static struct ifaddrs one = { .ifa_addr = (struct sockaddr *)&own_address };

        *list = &one;
        errno = list_error;
        return list_error ? -1 : 0;
}

void freeifaddrs(struct ifaddrs *list)
{
}

static enum cg_addr_class class_here(const char *address, int error)
{
        struct cg_host h = host(address);

        list_error = error;
        inet_pton(AF_INET, "10.1.2.3", &own_address.sin_addr);
        return cg_addr_class_here(&h.addr);
}

TEST(test_classes_here)
{
        assert_int_equal(class_here("10.1.2.3", 0), CG_ADDR_LOOPBACK);
        assert_int_equal(class_here("10.1.2.4", 0), CG_ADDR_PRIVATE);
        assert_int_equal(class_here("10.1.2.3", EAFNOSUPPORT), CG_ADDR_PRIVATE);
        assert_int_equal(class_here("10.1.2.4", EMFILE), CG_ADDR_UNKNOWN);
        assert_int_equal(class_here("1.2.3.4", ENOMEM), CG_ADDR_UNKNOWN);
        assert_int_equal(class_here("127.0.0.2", EMFILE), CG_ADDR_LOOPBACK);
        for (int c = CG_ADDR_PUBLIC; c <= CG_ADDR_UNKNOWN; c++) {
                bool from_here = c == CG_ADDR_LOOPBACK || c == CG_ADDR_UNSPECIFIED;

                assert_int_equal(cg_addr_class_may_name(c, CG_ADDR_UNKNOWN), from_here);
                assert_int_equal(cg_addr_class_may_name(CG_ADDR_UNKNOWN, c), c == CG_ADDR_PUBLIC);
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
