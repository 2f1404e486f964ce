/*
 * Hosts: names, and addresses in any spelling. Pure: nothing is looked up. A host is parsed once:
 * the same text is compared and dialled.
 */
#pragma once

#include "base/addr.h"

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
/* True for this machine alone: a loopback name, 127.0.0.0/8 or ::1. */
bool cg_host_is_this_machine(const struct cg_host *h);
/* The class of an address by cg_addr_class_here(), or of a loopback name; else CG_ADDR_PUBLIC. */
enum cg_addr_class cg_host_class(const struct cg_host *h);
/*
 * "example.com", "[::1]"; with ":PORT" unless @port is @default_port (0: always). @size of
 * CG_AUTHORITY_MAX is enough.
 */
#define CG_AUTHORITY_MAX (CG_HOST_MAX + 9)
void cg_host_authority(const struct cg_host *h, uint16_t port, uint16_t default_port, char *buf, size_t size);
