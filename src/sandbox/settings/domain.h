/*
 * The entries of network.allowedDomains and network.deniedDomains, understood as srt 0.0.83
 * understands them. Pure: nothing is looked up.
 */
#pragma once

#include "base/host.h"

#define CG_DOMAIN_MESSAGE \
        "Invalid domain pattern. Must be a valid domain (e.g., \"example.com\"), a wildcard (e.g., \"*.example.com\"), or a " \
        "bracketed IPv6 literal (e.g., \"[::1]\", \"[2001:db8::1]:443\"). Overly broad patterns like \"*.com\" or \"*\" are not " \
        "allowed for security reasons. Names with other letters than ASCII's are written as clients send them: xn--..."

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
/* True if the names of @below are among those of @d, whatever the ports. Borrows both. */
bool cg_domain_covers(const struct cg_domain *d, const struct cg_domain *below);
/* The first entry that covers the destination (borrowed), or NULL. */
const struct cg_domain *cg_domains_find(const struct cg_domains *list, const struct cg_host *h,
                                        uint16_t port);
/* The first entry that is this very address: how an address is named explicitly. */
const struct cg_domain *cg_domains_find_addr(const struct cg_domains *d, const struct cg_addr *a,
                                             uint16_t port);
