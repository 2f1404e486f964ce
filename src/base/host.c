/*
 * Names and addresses of hosts, as URLs and settings have them. Pure but for cg_host_class().
 * Linked into cellgate-egress, the programs that read settings, and MCP over HTTP.
 */
#include "base/host.h"

#include "base/text.h"

#define LABEL_MAX 63

/* One part of an IPv4 address: decimal, octal after "0", hexadecimal after "0x" (alone: 0). */
static bool parse_number(const char *s, size_t len, uint64_t *ret)
{
        unsigned int base = 10;
        uint64_t v = 0;

        if (len == 0)
                return false;
        if (len >= 2 && s[0] == '0') {
                size_t prefix = s[1] == 'x' ? 2 : 1;

                base = prefix == 2 ? 16 : 8;
                s += prefix;
                len -= prefix;
        }
        for (size_t i = 0; i < len; i++) {
                unsigned int d = (unsigned int)cg_hex_digit(s[i]); /* of no digit the largest */

                if (d >= base)
                        return false;
                /* Saturate: anything above UINT32_MAX is rejected anyway. */
                if (v <= UINT32_MAX)
                        v = v * base + d;
        }
        *ret = v;
        return true;
}

/* All forms of inet_aton(): the last of one to four parts fills the bytes that are left. */
static bool parse_aton(const char *name, struct cg_addr *ret)
{
        uint64_t parts[4], v = 0;
        size_t n = 0;

        for (const char *p = name;; n++) {
                size_t len = strcspn(p, ".");

                if (n == 4 || !parse_number(p, len, &parts[n]))
                        return false;
                p += len;
                if (*p++ == '\0')
                        break;
        }
        for (size_t i = 0; i < n; i++) {
                if (parts[i] > 255)
                        return false;
                v |= parts[i] << (24 - 8 * i);
        }
        if (parts[n] >= (uint64_t)1 << (32 - 8 * n))
                return false;
        v |= parts[n];
        *ret = (struct cg_addr){
                .family = 4, .b = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v }
        };
        return true;
}

static struct cg_host host_of_addr(const struct cg_addr *a)
{
        struct cg_host h = { .is_addr = true, .addr = *a };

        cg_addr_text(a, h.text);
        return h;
}

static int malformed(struct cg_err *err, const char *why)
{
        return cg_fail(err, CG_E_INVAL, "malformed host: %s", why);
}

int cg_host_parse(const char *s, size_t len, struct cg_host *ret, struct cg_err *err)
{
        struct cg_host h = { .is_addr = false };
        struct cg_addr a;
        bool brackets = len >= 2 && s[0] == '[' && s[len - 1] == ']';
        const char *label;
        uint64_t number;

        if (brackets) {
                s++;
                len -= 2;
        }
        if (len && memchr(s, ':', len)) {
                if (!cg_addr_parse(s, len, &a))
                        return malformed(err, "it is no IPv6 address (a zone is not allowed)");
                *ret = host_of_addr(&a);
                return 0;
        }
        if (brackets)
                return malformed(err, "brackets are for IPv6 addresses");
        if (len && s[len - 1] == '.')
                len--;
        if (len == 0 || len > CG_HOST_MAX)
                return malformed(err, len ? "it is too long" : "it is empty");
        for (size_t i = 0; i < len; i++) {
                char c = cg_ascii_lower(s[i]);

                if (!cg_is_digit(c) && (c < 'a' || c > 'z') && c != '.' && c != '-' && c != '_')
                        return malformed(err, "it has a character that no host name has");
                h.text[i] = c;
        }
        for (label = h.text;; label++) {
                size_t n = strcspn(label, ".");

                if (n == 0 || n > LABEL_MAX)
                        return malformed(err, "a label is empty or too long");
                if (!label[n])
                        break;
                label += n;
        }
        /*
         * A last label of digits, or one that reads as a hexadecimal number, makes the whole an
         * IPv4 address or nothing at all.
         */
        if (!label[strspn(label, "0123456789")] || parse_number(label, strlen(label), &number)) {
                if (!parse_aton(h.text, &a))
                        return malformed(err, "it is no IPv4 address");
                h = host_of_addr(&a);
        }
        *ret = h;
        return 0;
}

bool cg_domain_is_below(const char *name, const char *base)
{
        size_t n = strlen(name), m = strlen(base);

        return n > m + 1 && name[n - m - 1] == '.' && strcmp(name + n - m, base) == 0;
}

bool cg_host_is_loopback_name(const struct cg_host *h)
{
        return strcmp(h->text, "localhost") == 0 || cg_domain_is_below(h->text, "localhost");
}

bool cg_host_is_this_machine(const struct cg_host *h)
{
        /* IPv6 addresses that carry one of 127.0.0.0/8 are sent to a gateway. */
        static const struct cg_addr loopback6 = { .family = 6, .b = { [15] = 1 } };

        if (!h->is_addr)
                return cg_host_is_loopback_name(h);
        return h->addr.family == 4 ? h->addr.b[0] == 127 : cg_addr_equal(&h->addr, &loopback6);
}

enum cg_addr_class cg_host_class(const struct cg_host *h)
{
        if (h->is_addr)
                return cg_addr_class_here(&h->addr);
        return cg_host_is_loopback_name(h) ? CG_ADDR_LOOPBACK : CG_ADDR_PUBLIC;
}

void cg_host_authority(const struct cg_host *h, uint16_t port, uint16_t default_port, char *buf, size_t size)
{
        bool six = h->is_addr && h->addr.family == 6;
        int n = snprintf(buf, size, six ? "[%s]" : "%s", h->text);

        if (port != default_port && n > 0 && (size_t)n < size)
                snprintf(buf + n, size - (size_t)n, ":%u", port);
}
