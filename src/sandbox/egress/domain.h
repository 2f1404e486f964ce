/*
 * Host names and the entries of network.allowedDomains and network.deniedDomains, understood as srt
 * 0.0.83 understands them. Pure: nothing is looked up. A host is parsed once: the same text is
 * compared and dialled.
 */
#ifndef CG_SANDBOX_EGRESS_DOMAIN_H
#define CG_SANDBOX_EGRESS_DOMAIN_H

#include "sandbox/egress/addr.h"

#define CG_HOST_MAX 253 /* of a name in DNS */

/* A destination as somebody asked for it, in its one canonical spelling. */
struct cg_host {
        /* lower case, no trailing dot; an address as cg_addr_text() writes it */
        char text[CG_HOST_MAX + 1];
        bool is_addr;
        struct cg_addr addr; /* when it is an address, whatever its spelling was */
};

/*
 * Takes a name, an IPv6 address with or without brackets, or IPv4 in any form that inet_aton()
 * takes (127.1, 0x7f.0.0.1, 017700000001), which becomes that address. CG_E_INVAL:
 * empty or too long, a zone ("%eth0"), any byte outside of A-Z a-z 0-9 . _ -, empty labels, or a
 * last label that is a number in what is no IPv4 address. Internationalised names come as xn--...:
 * clients send them so, and a byte over 127 is refused.
 */
int cg_host_parse(const char *s, size_t len, struct cg_host *ret, struct cg_err *err);
/* "a.b" is below "b". Both are lower case. */
bool cg_domain_is_below(const char *name, const char *base);
/* localhost and names under .localhost: loopback by definition (RFC 6761). */
bool cg_host_is_loopback_name(const struct cg_host *h);
/*
 * "example.com", "[::1]"; with ":PORT" unless @port is @default_port (0: always). @size of
 * CG_AUTHORITY_MAX is enough.
 */
#define CG_AUTHORITY_MAX (CG_HOST_MAX + 9)
void cg_host_authority(const struct cg_host *h, uint16_t port, uint16_t default_port, char *buf, size_t size);

enum cg_domain_kind {
        CG_DOMAIN_ANY,   /* "*": in deniedDomains only */
        CG_DOMAIN_NAME,  /* this name */
        CG_DOMAIN_BELOW, /* "*.x.y": every name below, not x.y itself, never an address */
        CG_DOMAIN_ADDR,
};

struct cg_domain {
        enum cg_domain_kind kind;
        char *entry; /* as written */
        char *host;  /* lower case; without "*." */
        struct cg_addr addr;
        uint16_t port; /* 0: every port */
};

struct cg_domains {
        struct cg_domain *v;
        size_t n;
};

/*
 * Adds one entry (copies): "localhost", "a.b", "*.a.b", "192.0.2.1", "[2001:db8::1]", each with
 * ":PORT" or without; with @deny also "*". Anything else is CG_E_INVAL with srt's explanation. An
 * IPv4 address in an unusual form (127.1) denies that address, but allows nothing.
 */
int cg_domains_add(struct cg_domains *d, const char *entry, bool deny, struct cg_err *err);
void cg_domains_fini(struct cg_domains *d);
/* The first entry that covers the destination (borrowed), or NULL. */
const struct cg_domain *cg_domains_find(const struct cg_domains *list, const struct cg_host *h,
                                        uint16_t port);
/* The first entry that is this very address: how an address is named explicitly. */
const struct cg_domain *cg_domains_find_addr(const struct cg_domains *d, const struct cg_addr *a,
                                             uint16_t port);

#endif
