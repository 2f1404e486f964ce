/*
 * The hosts that a sandbox may reach: a policy as plain data, and its three decisions. Pure: text
 * in, decisions out.
 *
 *      cg_policy_decide()   by name, before anything is looked up
 *      cg_policy_vet()      by address, for each that a name resolved to
 *      cg_policy_route()    directly, or through another proxy
 */
#pragma once

#include <jansson.h>
#include "sandbox/settings/domain.h"
#include "sandbox/settings/settings.h"

/* Ceilings. The settings' reader limits the lists. */
#define CG_POLICY_REASON_MAX 500  /* srt's */
#define CG_POLICY_STRIP_MAX  1024 /* bytes of all names in stripResponseHeaders */
#define CG_POLICY_CREDS_MAX  256  /* masked credentials: a bit each in messages */

/* A parent proxy. */
struct cg_upstream {
        char host[CG_HOST_MAX + 1]; /* empty: none */
        uint16_t port;
        char *auth; /* "Basic ..." or NULL */
};

struct cg_policy;

/*
 * A policy is the settings' network object (@net, borrowed for the policy's whole life) and members
 * that settings do not have (@own): "ask" (bool), "askTimeoutMs", "privateAddresses" (bool),
 * "events" ("all", "denied"), "limits" {"connections", "headMs", "idleMs", "connectMs"},
 * "parentProxy" (as in settings; used where these have none), "inject" (a list, in the order of the
 * secrets' credentials: {"hosts": domains, without it allowedDomains; "resized": a secret is
 * shorter than its fake}). CG_E_INVAL or CG_E_UNSUPPORTED (an https parent proxy). Caller frees.
 */
int cg_policy_new(const struct cg_settings_network *net, const json_t *own, struct cg_policy **ret,
                  struct cg_err *err);
/* The same of one object: the members of @own, and "network" as it is in a settings file. */
int cg_policy_read(json_t *o, struct cg_policy **ret, struct cg_err *err);
struct cg_policy *cg_policy_free(struct cg_policy *p);

struct cg_policy_limits {
        uint32_t connections; /* at once */
        uint32_t head_ms;     /* for a request's head, or a SOCKS greeting */
        uint32_t idle_ms;     /* without a byte either way */
        uint32_t connect_ms;  /* from the decision to a connection */
};

struct cg_policy_options {
        bool ask;
        uint32_t ask_timeout_ms;
        bool all_events;
        char strip[CG_POLICY_STRIP_MAX]; /* names of response fields, one a line */
        struct cg_policy_limits limits;
};
const struct cg_policy_options *cg_policy_options(const struct cg_policy *p);
const struct cg_settings_network *cg_policy_network(const struct cg_policy *p);

enum cg_verdict { CG_VERDICT_ALLOW, CG_VERDICT_DENY, CG_VERDICT_ASK };

struct cg_decision {
        enum cg_verdict verdict;
        const char *list; /* "allowedDomains", "deniedDomains" or NULL */
        /* the entry that decided, as written, or NULL (borrowed from the policy) */
        const char *rule;
        const char *why; /* srt's words, or the entry's own reason */
};
void cg_policy_decide(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                      struct cg_decision *ret);

/*
 * May a connection for @h go to @a, one of the addresses that it resolved to? NULL: yes; else the
 * reason against it ("a loopback address"). @own: the addresses of this machine. A destination that
 * is an address is not vetted: that was decided by name.
 */
const char *cg_policy_vet(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                          const struct cg_addr *a, const struct cg_addr *own, size_t n_own);
/* The order in which several reasons of cg_policy_vet() are named. */
int cg_policy_vet_rank(const char *why);

/* The masked credentials that @h may have, a bit each. */
struct cg_policy_creds {
        uint8_t bits[CG_POLICY_CREDS_MAX / 8];
        bool any;
        bool resized; /* putting one back may change a body's length */
};
void cg_policy_creds(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                     struct cg_policy_creds *ret);

enum cg_route { CG_ROUTE_DIRECT, CG_ROUTE_PARENT, CG_ROUTE_MITM };
/* @tunnel: CONNECT or SOCKS. *up (borrowed) is set for PARENT, *path for MITM (a socket's). */
enum cg_route cg_policy_route(const struct cg_policy *p, const struct cg_host *h, bool tunnel,
                              const struct cg_upstream **up, const char **path);
