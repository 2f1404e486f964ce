/*
 * IP addresses: text, ranges, and what kind of place an address is. Pure, except for
 * cg_addr_list_own() and cg_addr_class_here(); used by the egress proxy, the settings, and MCP over
 * HTTP.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/err.h"

#define CG_ADDR_TEXT 46 /* INET6_ADDRSTRLEN */

/* An IPv4-mapped IPv6 address (::ffff:a.b.c.d) is held as the IPv4 address it connects to. */
struct cg_addr {
        uint8_t family; /* 4 or 6 */
        uint8_t b[16];  /* network order; the first 4 for IPv4 */
};

/* Dotted quad or IPv6 without brackets and zone, exactly @len bytes. False when it is neither. */
bool cg_addr_parse(const char *s, size_t len, struct cg_addr *ret);
/* False for families other than AF_INET and AF_INET6. */
bool cg_addr_from_sockaddr(const struct sockaddr *sa, struct cg_addr *ret);
/* Returns the length to give to connect(). */
socklen_t cg_addr_to_sockaddr(const struct cg_addr *a, uint16_t port, struct sockaddr_storage *ret);
void cg_addr_text(const struct cg_addr *a, char buf[CG_ADDR_TEXT]);
bool cg_addr_equal(const struct cg_addr *a, const struct cg_addr *b);

/* "10.0.0.0/8", "fc00::/7", "::1". A zone is ignored. */
struct cg_range {
        struct cg_addr addr;
        uint8_t prefix;
};
int cg_range_parse(const char *text, struct cg_range *ret, struct cg_err *err);
bool cg_range_has(const struct cg_range *r, const struct cg_addr *a);

/*
 * The IPv4 address that networks deliver this IPv6 address to: IPv4-compatible (::/96),
 * IPv4-translated (::ffff:0:0:0/96), NAT64's well-known prefix (64:ff9b::/96), 6to4 (2002::/16).
 * False for all others.
 */
bool cg_addr_embedded4(const struct cg_addr *a, struct cg_addr *ret);

/* A refusal names them in this order. */
enum cg_addr_class {
        CG_ADDR_PUBLIC,
        CG_ADDR_LOOPBACK,
        CG_ADDR_UNSPECIFIED,
        CG_ADDR_LINK_LOCAL, /* most instance-metadata services */
        CG_ADDR_MULTICAST,
        CG_ADDR_BROADCAST,
        CG_ADDR_METADATA, /* those elsewhere */
        /* RFC 1918, unique local, shared (RFC 6598), local NAT64, benchmarks, reserved */
        CG_ADDR_PRIVATE,
        CG_ADDR_UNKNOWN, /* of cg_addr_class_here() only: it may be one of this machine's */
};
/* Considers the IPv4 address that @a carries as well. */
enum cg_addr_class cg_addr_class(const struct cg_addr *a);
/*
 * The addresses of this machine's interfaces (returns *own; free()), which takes some 40 us. None
 * where programs may not ask for them: the fixed classes still hold. False, with errno, where they
 * cannot be listed now, as for want of descriptors or memory: nothing must rely on the classes.
 */
bool cg_addr_list_own(struct cg_addr **own, size_t *n);
/*
 * As cg_addr_class(), and CG_ADDR_LOOPBACK for every address of this machine's interfaces: what
 * listens at them trusts this machine's programs.
 */
enum cg_addr_class cg_addr_class_here(const struct cg_addr *a);
/*
 * True if this machine may connect to an address of class @to that a server at an address of class
 * @from has named: public ones, those of the server's own class, and any from this machine.
 */
bool cg_addr_class_may_name(enum cg_addr_class from, enum cg_addr_class to);
/* "a loopback address" */
const char *cg_addr_class_name(enum cg_addr_class c);
