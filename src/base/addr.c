/* IP addresses: text, ranges, classes. In cellgate-egress, readers of settings, MCP over HTTP. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "base/util.h"

static const uint8_t mapped_prefix[12] = { [10] = 0xff, [11] = 0xff };

/* Mapped addresses have one form only, so that no comparison sees two spellings of one place. */
static struct cg_addr from6(const uint8_t b[16])
{
        struct cg_addr a = { .family = 6 };

        if (memcmp(b, mapped_prefix, sizeof(mapped_prefix)) == 0) {
                a.family = 4;
                memcpy(a.b, b + 12, 4);
        } else {
                memcpy(a.b, b, 16);
        }
        return a;
}

bool cg_addr_parse(const char *s, size_t len, struct cg_addr *ret)
{
        char text[CG_ADDR_TEXT];
        uint8_t b[16];

        if (len == 0 || len >= sizeof(text) || memchr(s, '\0', len))
                return false;
        memcpy(text, s, len);
        text[len] = '\0';
        if (inet_pton(AF_INET, text, b) == 1) {
                *ret = (struct cg_addr){ .family = 4 };
                memcpy(ret->b, b, 4);
                return true;
        }
        if (inet_pton(AF_INET6, text, b) != 1)
                return false;
        *ret = from6(b);
        return true;
}

bool cg_addr_from_sockaddr(const struct sockaddr *sa, struct cg_addr *ret)
{
        if (sa->sa_family == AF_INET) {
                struct sockaddr_in in;

                memcpy(&in, sa, sizeof(in));
                *ret = (struct cg_addr){ .family = 4 };
                memcpy(ret->b, &in.sin_addr, 4);
                return true;
        }
        if (sa->sa_family == AF_INET6) {
                struct sockaddr_in6 in6;

                memcpy(&in6, sa, sizeof(in6));
                *ret = from6(in6.sin6_addr.s6_addr);
                return true;
        }
        return false;
}

socklen_t cg_addr_to_sockaddr(const struct cg_addr *a, uint16_t port, struct sockaddr_storage *ret)
{
        memset(ret, 0, sizeof(*ret));
        if (a->family == 4) {
                struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

                memcpy(&in.sin_addr, a->b, 4);
                memcpy(ret, &in, sizeof(in));
                return sizeof(in);
        }
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

        memcpy(&in6.sin6_addr, a->b, 16);
        memcpy(ret, &in6, sizeof(in6));
        return sizeof(in6);
}

void cg_addr_text(const struct cg_addr *a, char buf[CG_ADDR_TEXT])
{
        if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->b, buf, CG_ADDR_TEXT))
                buf[0] = '\0';
}

bool cg_addr_equal(const struct cg_addr *a, const struct cg_addr *b)
{
        return a->family == b->family && memcmp(a->b, b->b, a->family == 4 ? 4 : 16) == 0;
}

int cg_range_parse(const char *text, struct cg_range *ret, struct cg_err *err)
{
        const char *slash = strchr(text, '/');
        size_t len = slash ? (size_t)(slash - text) : strlen(text);
        const char *zone = memchr(text, '%', len);
        /* The prefix counts the written bits: a mapped address has 96 more than what is kept. */
        bool six = memchr(text, ':', len) != NULL;
        unsigned long max = six ? 128 : 32, prefix = max;
        struct cg_addr a;

        if (zone)
                len = (size_t)(zone - text);
        if (!cg_addr_parse(text, len, &a))
                return cg_fail(err, CG_E_INVAL, "\"%s\" is no IP address or CIDR range", text);
        if (slash) {
                size_t n = strspn(slash + 1, "0123456789");

                prefix = n >= 1 && n <= 3 && !slash[1 + n] ? strtoul(slash + 1, NULL, 10) : ULONG_MAX;
                if (prefix > max)
                        return cg_fail(err, CG_E_INVAL, "\"%s\": the part after the slash is not 0 to %lu",
                                       text, max);
        }
        if (six && a.family == 4) {
                if (prefix < 96)
                        return cg_fail(err, CG_E_INVAL, "\"%s\" is more than the IPv4-mapped addresses",
                                       text);
                prefix -= 96;
        }
        *ret = (struct cg_range){ .addr = a, .prefix = (uint8_t)prefix };
        return 0;
}

bool cg_range_has(const struct cg_range *r, const struct cg_addr *a)
{
        unsigned int whole = r->prefix / 8u, rest = r->prefix % 8u;

        if (r->addr.family != a->family || memcmp(r->addr.b, a->b, whole) != 0)
                return false;
        return rest == 0 || ((r->addr.b[whole] ^ a->b[whole]) >> (8 - rest)) == 0;
}

bool cg_addr_embedded4(const struct cg_addr *a, struct cg_addr *ret)
{
        static const uint8_t translated[12] = { [8] = 0xff, [9] = 0xff };
        static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
        static const uint8_t compatible[12] = { 0 };
        size_t at = 12;

        if (a->family != 6)
                return false;
        if (a->b[0] == 0x20 && a->b[1] == 0x02)
                at = 2;
        else if (memcmp(a->b, translated, 12) != 0 && memcmp(a->b, nat64, 12) != 0 &&
                 memcmp(a->b, compatible, 12) != 0)
                return false;
        *ret = (struct cg_addr){ .family = 4 };
        memcpy(ret->b, a->b + at, 4);
        return true;
}

#define V4(b0, b1, b2, b3, n, k) \
        { \
                { { .family = 4, .b = { b0, b1, b2, b3 } }, n }, k \
        }
#define V6(n, k, ...) \
        { \
                { { .family = 6, .b = { __VA_ARGS__ } }, n }, k \
        }

static const struct {
        struct cg_range range;
        enum cg_addr_class class;
} classes[] = {
        V4(127, 0, 0, 0, 8, CG_ADDR_LOOPBACK),
        V6(128, CG_ADDR_LOOPBACK, [15] = 1),
        V4(0, 0, 0, 0, 8, CG_ADDR_UNSPECIFIED), /* connects to the machine itself */
        V6(128, CG_ADDR_UNSPECIFIED, 0),
        V4(169, 254, 0, 0, 16, CG_ADDR_LINK_LOCAL),
        V6(10, CG_ADDR_LINK_LOCAL, 0xfe, 0x80),
        V4(224, 0, 0, 0, 4, CG_ADDR_MULTICAST),
        V6(8, CG_ADDR_MULTICAST, 0xff),
        V4(255, 255, 255, 255, 32, CG_ADDR_BROADCAST),
        /* Alibaba Cloud */
        V4(100, 100, 100, 200, 32, CG_ADDR_METADATA),
        /* Azure's host agent */
        V4(168, 63, 129, 16, 32, CG_ADDR_METADATA),
        /* Oracle Cloud, classic */
        V4(192, 0, 0, 192, 32, CG_ADDR_METADATA),
        /* AWS: ::254 and others */
        V6(32, CG_ADDR_METADATA, 0xfd, 0x00, 0x0e, 0xc2),
        /* Google Cloud */
        V6(128, CG_ADDR_METADATA, 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54),
        /* Oracle Cloud */
        V6(128, CG_ADDR_METADATA, 0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe),
        /* Scaleway */
        V6(128, CG_ADDR_METADATA, 0xfd, 0x00, 0x00, 0x42, [15] = 0x42),
        /* Akamai */
        V6(128, CG_ADDR_METADATA, 0xfd, 0x00, 0xa9, 0xfe, 0xa9, 0xfe, [15] = 0x01),
        /* Alibaba Cloud */
        V6(128, CG_ADDR_METADATA, 0xfd, 0x00, 0x01, 0x00, [12] = 0x01, 0x00, 0x02, 0x00),
        V4(10, 0, 0, 0, 8, CG_ADDR_PRIVATE),
        V4(172, 16, 0, 0, 12, CG_ADDR_PRIVATE),
        V4(192, 168, 0, 0, 16, CG_ADDR_PRIVATE),
        V4(100, 64, 0, 0, 10, CG_ADDR_PRIVATE),
        V4(192, 0, 0, 0, 24, CG_ADDR_PRIVATE),
        V4(198, 18, 0, 0, 15, CG_ADDR_PRIVATE),
        V4(240, 0, 0, 0, 4, CG_ADDR_PRIVATE),
        V6(7, CG_ADDR_PRIVATE, 0xfc),
        /* site-local, withdrawn but still routed */
        V6(10, CG_ADDR_PRIVATE, 0xfe, 0xc0),
        /* NAT64 of the site: leads to any IPv4 address */
        V6(48, CG_ADDR_PRIVATE, 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01),
};

static enum cg_addr_class class_of(const struct cg_addr *a)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(classes); i++) {
                if (cg_range_has(&classes[i].range, a))
                        return classes[i].class;
        }
        return CG_ADDR_PUBLIC;
}

enum cg_addr_class cg_addr_class(const struct cg_addr *a)
{
        enum cg_addr_class c = class_of(a);
        struct cg_addr v4;

        if (c == CG_ADDR_PUBLIC && cg_addr_embedded4(a, &v4))
                return class_of(&v4);
        return c;
}

bool cg_addr_list_own(struct cg_addr **own, size_t *n)
{
        struct ifaddrs *list;
        size_t room = 1;

        *own = NULL;
        *n = 0;
        if (getifaddrs(&list) < 0)
                return errno == EAFNOSUPPORT || errno == EPROTONOSUPPORT || errno == EPERM ||
                       errno == EACCES || errno == ENOSYS;
        for (struct ifaddrs *i = list; i; i = i->ifa_next)
                room++;
        *own = calloc(room, sizeof(**own));
        for (struct ifaddrs *i = list; i && *own; i = i->ifa_next)
                *n += i->ifa_addr && cg_addr_from_sockaddr(i->ifa_addr, *own + *n);
        freeifaddrs(list);
        errno = ENOMEM;
        return *own;
}

enum cg_addr_class cg_addr_class_here(const struct cg_addr *a)
{
        enum cg_addr_class c = cg_addr_class(a);
        cg_auto_free struct cg_addr *own = NULL;
        size_t n;

        if (c == CG_ADDR_LOOPBACK)
                return c;
        if (!cg_addr_list_own(&own, &n))
                return CG_ADDR_UNKNOWN;
        for (size_t i = 0; i < n; i++)
                if (cg_addr_equal(&own[i], a))
                        return CG_ADDR_LOOPBACK;
        return c;
}

bool cg_addr_class_may_name(enum cg_addr_class from, enum cg_addr_class to)
{
        /* 0.0.0.0 connects to this machine. */
        return to == CG_ADDR_PUBLIC || (to == from && to != CG_ADDR_UNKNOWN) || from == CG_ADDR_LOOPBACK ||
               from == CG_ADDR_UNSPECIFIED;
}

const char *cg_addr_class_name(enum cg_addr_class c)
{
        static const char *const names[] = {
                [CG_ADDR_PUBLIC] = "a public address",
                [CG_ADDR_LOOPBACK] = "a loopback address",
                [CG_ADDR_UNSPECIFIED] = "an unspecified address",
                [CG_ADDR_LINK_LOCAL] = "a link-local address",
                [CG_ADDR_MULTICAST] = "a multicast address",
                [CG_ADDR_BROADCAST] = "the broadcast address",
                [CG_ADDR_METADATA] = "a cloud metadata address",
                [CG_ADDR_PRIVATE] = "a private address",
                [CG_ADDR_UNKNOWN] = "an address that cannot be compared with this machine's now",
        };

        return names[c];
}
