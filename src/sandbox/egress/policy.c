/* Decisions about the network of a sandbox: see policy.h. */
#include "sandbox/egress/policy.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"

#define CONNECTIONS     1024 /* one sandbox; further ones wait in the listener's queue */
#define CONNECTIONS_MAX 8192
#define HEAD_MS         30000
#define IDLE_MS         (30 * 60 * 1000)
#define CONNECT_MS      30000 /* srt's */
#define ASK_MS          60000
#define CREDENTIALS_MAX 600 /* of a parent proxy */
#define MS_MAX          (24 * 60 * 60 * 1000)

struct no_proxy {
        bool all;
        char **suffixes; /* ".a.b": also a.b itself */
        size_t n_suffixes;
        struct cg_range *ranges;
        size_t n_ranges;
};

struct inject {
        struct cg_domains hosts;
        bool has_hosts, resized;
};

struct cg_policy {
        const struct cg_settings_network *net;
        struct cg_settings_network read; /* of cg_policy_read(): net, and the owner of its texts */
        json_t *texts;
        struct inject *injects;
        size_t n_injects;
        struct cg_domains allowed, denied, mitm;
        struct cg_range *ranges;
        size_t n_ranges;
        bool private_ok;
        struct cg_upstream http, https;
        struct no_proxy no_proxy;
        struct cg_policy_options options;
};

static const char deny_listed[] = "a deny-listed address";
static const char listed[] = "a listed address";
static const char own_address[] = "one of this host's addresses";
static const char non_loopback[] = "a non-loopback address";

/* ---- reading */

static int add_domains(struct cg_domains *list, const struct cg_strs *entries, const char *key, bool deny,
                       struct cg_err *err)
{
        for (size_t i = 0; i < entries->n; i++) {
                int r = cg_domains_add(list, entries->v[i], deny, err);

                if (r < 0) {
                        cg_err_prefix(err, "%s", key);
                        return r;
                }
        }
        return 0;
}

static int add_range(struct cg_range **list, size_t *n, const struct cg_range *r, struct cg_err *err)
{
        struct cg_range *v = realloc(*list, (*n + 1) * sizeof(*v));

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "list of address ranges");
        v[(*n)++] = *r;
        *list = v;
        return 0;
}

static int read_uint(const json_t *o, const char *key, int64_t def, int64_t max, uint32_t *ret,
                     struct cg_err *err)
{
        int64_t v;
        int r = cg_json_int(o, key, def, &v, err);

        if (r < 0)
                return r;
        if (v < 1 || v > max)
                return cg_fail(err, CG_E_INVAL, "%s is not 1 to %lld", key, (long long)max);
        *ret = (uint32_t)v;
        return 0;
}

/* The lists of the settings. */
static int read_lists(struct cg_policy *p, struct cg_err *err)
{
        const struct cg_settings_network *net = p->net;
        size_t at = 0;

        if (add_domains(&p->allowed, &net->allowed, "allowedDomains", false, err) < 0 ||
            add_domains(&p->denied, &net->denied, "deniedDomains", true, err) < 0 ||
            add_domains(&p->mitm, &net->mitm_domains, "mitmProxy.domains", false, err) < 0)
                return -1;
        for (size_t i = 0; i < net->denied_addresses.n; i++) {
                struct cg_range range;

                if (cg_range_parse(net->denied_addresses.v[i], &range, err) < 0 ||
                    add_range(&p->ranges, &p->n_ranges, &range, err) < 0)
                        return cg_err_prefix(err, "deniedResolvedAddresses");
        }
        /* The names go to the relay in one message, one a line. */
        for (size_t i = 0; i < net->strip_response_headers.n; i++) {
                const char *s = net->strip_response_headers.v[i];
                size_t n = strlen(s);

                if (strchr(s, '\n') || at + n + 2 > sizeof(p->options.strip))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "stripResponseHeaders: a name has a line end, or all are over %d bytes",
                                CG_POLICY_STRIP_MAX);
                memcpy(p->options.strip + at, s, n);
                at += n;
                p->options.strip[at++] = '\n';
        }
        return 0;
}

static int read_options(struct cg_policy *p, const json_t *o, struct cg_err *err)
{
        const json_t *limits = json_object_get(o, "limits");
        struct cg_policy_options *opt = &p->options;
        struct cg_policy_limits *l = &opt->limits;
        const char *events;

        if (cg_json_bool(o, "privateAddresses", false, &p->private_ok, err) < 0 ||
            cg_json_bool(o, "ask", false, &opt->ask, err) < 0 ||
            cg_json_str(o, "events", "all", &events, err) < 0 ||
            read_uint(o, "askTimeoutMs", ASK_MS, MS_MAX, &opt->ask_timeout_ms, err) < 0)
                return -1;
        opt->all_events = strcmp(events, "all") == 0;
        if (!opt->all_events && strcmp(events, "denied") != 0)
                return cg_fail(err, CG_E_INVAL, "events is neither \"all\" nor \"denied\"");
        if (limits && !json_is_object(limits))
                return cg_fail(err, CG_E_INVAL, "limits is not an object");
        if (read_uint(limits, "connections", CONNECTIONS, CONNECTIONS_MAX, &l->connections, err) < 0 ||
            read_uint(limits, "headMs", HEAD_MS, MS_MAX, &l->head_ms, err) < 0 ||
            read_uint(limits, "idleMs", IDLE_MS, MS_MAX, &l->idle_ms, err) < 0 ||
            read_uint(limits, "connectMs", CONNECT_MS, MS_MAX, &l->connect_ms, err) < 0)
                return -1;
        return 0;
}

/* ---- other proxies */

/* %XX to bytes, in place of @len bytes; what is no such sequence stays. Returns the new length. */
static size_t percent_decode(char *s, size_t len)
{
        size_t n = 0;

        for (size_t i = 0; i < len; i++) {
                if (s[i] == '%' && i + 2 < len && cg_hex_digit(s[i + 1]) >= 0 &&
                    cg_hex_digit(s[i + 2]) >= 0) {
                        s[n++] = (char)(cg_hex_digit(s[i + 1]) << 4 | cg_hex_digit(s[i + 2]));
                        i += 2;
                } else {
                        s[n++] = s[i];
                }
        }
        return n;
}

/* "user:password" before the "@" */
static int set_auth(struct cg_upstream *u, const char *s, size_t len, struct cg_err *err)
{
        cg_auto_free char *copy = strndup(s, len);
        char *colon;
        size_t n;

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "parent proxy");
        colon = strchr(copy, ':');
        if (!colon)
                len = percent_decode(copy, len);
        else {
                size_t user = percent_decode(copy, (size_t)(colon - copy));
                size_t word = percent_decode(colon + 1, len - (size_t)(colon + 1 - copy));

                copy[user] = ':';
                memmove(copy + user + 1, colon + 1, word);
                len = user + 1 + word;
        }
        if (len > CREDENTIALS_MAX)
                return cg_fail(err, CG_E_LIMIT, "parent proxy: user and password are over %d bytes",
                               CREDENTIALS_MAX);
        n = cg_base64_size(len);
        u->auth = malloc(6 + n + 1);
        if (!u->auth)
                return cg_fail(err, CG_E_NOMEM, "parent proxy");
        memcpy(u->auth, "Basic ", 6);
        cg_base64(u->auth + 6, copy, len);
        u->auth[6 + n] = '\0';
        return 0;
}

/*
 * "http://user:password@host:port", the scheme may be missing. The URL is not repeated in messages:
 * it may hold a password.
 */
static int read_upstream(struct cg_upstream *u, const char *url, const char *what, struct cg_err *err)
{
        const char *scheme = strstr(url, "://"), *rest = scheme ? scheme + 3 : url, *at, *port;
        size_t len = strcspn(rest, "/?#");
        struct cg_host h;
        char *end;
        unsigned long v = 80;

        if (scheme && strncasecmp(url, "https://", 8) == 0)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "%s: a parent proxy is spoken to in HTTP only; give it as http://host:port",
                               what);
        if (scheme && strncasecmp(url, "http://", 7) != 0)
                return cg_fail(err, CG_E_INVAL, "%s is not an http:// URL", what);
        at = memrchr(rest, '@', len);
        if (at) {
                int r = set_auth(u, rest, (size_t)(at - rest), err);

                if (r < 0)
                        return r;
                len -= (size_t)(at + 1 - rest);
                rest = at + 1;
        }
        port = memrchr(rest, ':', len);
        if (port && !memchr(port, ']', len - (size_t)(port - rest))) {
                v = strtoul(port + 1, &end, 10);
                if (end != rest + len || v == 0 || v > 65535)
                        return cg_fail(err, CG_E_INVAL, "%s: the port is not 1 to 65535", what);
                len = (size_t)(port - rest);
        }
        if (cg_host_parse(rest, len, &h, err) < 0) {
                cg_err_prefix(err, "%s", what);
                return CG_E_INVAL;
        }
        memcpy(u->host, h.text, sizeof(u->host));
        u->port = (uint16_t)v;
        return 0;
}

/* NO_PROXY: "*", ranges, addresses, ends of names. Ports and malformed ranges are ignored. */
static int read_no_proxy(struct no_proxy *np, const char *text, struct cg_err *err)
{
        cg_auto_free char *copy = strdup(text);
        char *save = NULL, *s;
        int r = copy ? 0 : cg_fail(err, CG_E_NOMEM, "noProxy");

        for (s = copy ? strtok_r(copy, ", \t", &save) : NULL; s && r == 0;
             s = strtok_r(NULL, ", \t", &save)) {
                struct cg_range range;
                char **v, *colon;

                if (strcmp(s, "*") == 0) {
                        np->all = true;
                        continue;
                }
                if (s[0] == '[') {
                        s++;
                        s[strcspn(s, "]")] = '\0';
                }
                if (cg_range_parse(s, &range, NULL) == 0) {
                        r = add_range(&np->ranges, &np->n_ranges, &range, err);
                        continue;
                }
                if (strchr(s, '/'))
                        continue;
                colon = strrchr(s, ':');
                if (colon && colon[1 + strspn(colon + 1, "0123456789")] == '\0')
                        *colon = '\0';
                if (strncmp(s, "*.", 2) == 0)
                        s++;
                for (char *c = s; *c; c++)
                        *c = cg_ascii_lower(*c);
                v = realloc(np->suffixes, (np->n_suffixes + 1) * sizeof(*v));
                if (!v)
                        return cg_fail(err, CG_E_NOMEM, "noProxy");
                np->suffixes = v;
                v[np->n_suffixes] = strdup(s);
                if (!v[np->n_suffixes++])
                        return cg_fail(err, CG_E_NOMEM, "noProxy");
        }
        return r;
}

/* The settings' parent proxy, else that of the host's environment. */
static int read_parent(struct cg_policy *p, const json_t *o, struct cg_err *err)
{
        const struct cg_settings_network *net = p->net;
        const json_t *from_env = net->has_parent ? NULL : json_object_get(o, "parentProxy");
        const char *http = net->parent_http, *https = net->parent_https, *no_proxy = net->parent_no_proxy;
        int r = 0;

        if (from_env && (cg_json_str(from_env, "http", NULL, &http, err) < 0 ||
                         cg_json_str(from_env, "https", NULL, &https, err) < 0 ||
                         cg_json_str(from_env, "noProxy", NULL, &no_proxy, err) < 0))
                return -1;
        if (http)
                r = read_upstream(&p->http, http, "parentProxy.http", err);
        if (r == 0 && (https || http))
                r = read_upstream(&p->https, https ?: http, "parentProxy.https", err);
        return r == 0 && no_proxy ? read_no_proxy(&p->no_proxy, no_proxy, err) : r;
}

static int read_injects(struct cg_policy *p, const json_t *o, struct cg_err *err)
{
        const json_t *a = json_object_get(o, "inject");
        size_t n = json_array_size(a);

        if (!a)
                return 0;
        if (!json_is_array(a) || n > CG_POLICY_CREDS_MAX)
                return cg_fail(err, CG_E_INVAL, "inject is not a list of at most %d entries",
                               CG_POLICY_CREDS_MAX);
        p->injects = calloc(n + 1, sizeof(*p->injects));
        if (!p->injects)
                return cg_fail(err, CG_E_NOMEM, "inject");
        while (p->n_injects < n) {
                const json_t *entry = json_array_get(a, p->n_injects),
                             *hosts = json_object_get(entry, "hosts");
                struct inject *to = &p->injects[p->n_injects++];
                int r = json_is_object(entry) ? cg_json_bool(entry, "resized", false, &to->resized, err)
                                              : cg_fail(err, CG_E_INVAL, "an entry is not an object");

                to->has_hosts = hosts != NULL;
                for (size_t i = 0; i < json_array_size(hosts) && r == 0; i++) {
                        const char *host = json_string_value(json_array_get(hosts, i));

                        r = host ? cg_domains_add(&to->hosts, host, false, err)
                                 : cg_fail(err, CG_E_INVAL, "a host is not a string");
                }
                if (r < 0) {
                        cg_err_prefix(err, "inject");
                        return CG_E_INVAL;
                }
        }
        return 0;
}

void cg_policy_creds(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                     struct cg_policy_creds *ret)
{
        *ret = (struct cg_policy_creds){ .any = false };
        for (size_t i = 0; i < p->n_injects; i++) {
                const struct inject *in = &p->injects[i];
                /*
                 * Without a port: entries of injectHosts have none. A host that was only allowed
                 * by an answer is on no list.
                 */
                bool may = in->has_hosts ? cg_domains_find(&in->hosts, h, 0)
                                         : cg_domains_find(&p->allowed, h, port);

                if (!may)
                        continue;
                ret->bits[i / 8] |= (uint8_t)(1u << (i % 8));
                ret->any = true;
                ret->resized |= in->resized;
        }
}

/* Takes @p. */
static int make_policy(struct cg_policy *p, const json_t *own, struct cg_policy **ret, struct cg_err *err)
{
        struct cg_err mine = { .code = 0 };

        if (read_lists(p, &mine) < 0 || read_options(p, own, &mine) < 0 || read_parent(p, own, &mine) < 0 ||
            read_injects(p, own, &mine) < 0) {
                cg_policy_free(p);
                if (err)
                        *err = mine;
                return mine.code ?: CG_E_INVAL;
        }
        *ret = p;
        return 0;
}

int cg_policy_new(const struct cg_settings_network *net, const json_t *own, struct cg_policy **ret,
                  struct cg_err *err)
{
        struct cg_policy *p = calloc(1, sizeof(*p));

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "network policy");
        p->net = net;
        return make_policy(p, own, ret, err);
}

int cg_policy_read(json_t *o, struct cg_policy **ret, struct cg_err *err)
{
        struct cg_policy *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "network policy");
        r = json_is_object(json_object_get(o, "network"))
                    ? cg_settings_read_network(json_object_get(o, "network"), &p->read, err)
                    : cg_fail(err, CG_E_INVAL, "the network policy has no object \"network\"");
        if (r < 0) {
                free(p);
                return r;
        }
        p->net = &p->read;
        p->texts = json_incref(o);
        return make_policy(p, o, ret, err);
}

struct cg_policy *cg_policy_free(struct cg_policy *p)
{
        if (!p)
                return NULL;
        cg_domains_fini(&p->allowed);
        cg_domains_fini(&p->denied);
        cg_domains_fini(&p->mitm);
        cg_settings_network_fini(&p->read);
        json_decref(p->texts);
        free(p->ranges);
        free(p->http.auth);
        free(p->https.auth);
        for (size_t i = 0; i < p->no_proxy.n_suffixes; i++)
                free(p->no_proxy.suffixes[i]);
        free(p->no_proxy.suffixes);
        free(p->no_proxy.ranges);
        for (size_t i = 0; i < p->n_injects; i++)
                cg_domains_fini(&p->injects[i].hosts);
        free(p->injects);
        free(p);
        return NULL;
}

const struct cg_settings_network *cg_policy_network(const struct cg_policy *p)
{
        return p->net;
}

const struct cg_policy_options *cg_policy_options(const struct cg_policy *p)
{
        return &p->options;
}

/* ---- by name */

void cg_policy_decide(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                      struct cg_decision *ret)
{
        static const struct cg_addr loopback4 = { .family = 4, .b = { 127, 0, 0, 1 } },
                                    loopback6 = { .family = 6, .b = { [15] = 1 } };
        const struct cg_domain *d = cg_domains_find(&p->denied, h, port);
        struct cg_addr v4;

        *ret = (struct cg_decision){ .verdict = CG_VERDICT_DENY, .why = "host is not on the allow list" };
        /* An address that carries another (NAT64, 6to4) is denied with it, in every spelling. */
        if (!d && h->is_addr && cg_addr_embedded4(&h->addr, &v4))
                d = cg_domains_find_addr(&p->denied, &v4, port);
        /* Linux connects to loopback instead. */
        if (!d && h->is_addr && cg_addr_class(&h->addr) == CG_ADDR_UNSPECIFIED)
                d = cg_domains_find_addr(&p->denied, h->addr.family == 4 ? &loopback4 : &loopback6, port);
        if (d) {
                ret->list = "deniedDomains";
                ret->rule = d->entry;
                ret->why = "host is on the deny list";
                for (size_t i = 0; i < p->net->n_reasons; i++) {
                        if (strcmp(p->net->reasons[i].entry, d->entry) == 0) {
                                ret->why = p->net->reasons[i].text;
                                break;
                        }
                }
                return;
        }
        d = cg_domains_find(&p->allowed, h, port);
        if (d) {
                ret->verdict = CG_VERDICT_ALLOW;
                ret->list = "allowedDomains";
                ret->rule = d->entry;
                ret->why = "host is on the allow list";
        } else if (!p->net->strict_allowlist && p->options.ask) {
                ret->verdict = CG_VERDICT_ASK;
        }
}

/* ---- by address */

static bool in_ranges(const struct cg_range *v, size_t n, const struct cg_addr *a,
                      const struct cg_addr *carried)
{
        for (size_t i = 0; i < n; i++)
                if (cg_range_has(&v[i], a) || (carried && cg_range_has(&v[i], carried)))
                        return true;
        return false;
}

const char *cg_policy_vet(const struct cg_policy *p, const struct cg_host *h, uint16_t port,
                          const struct cg_addr *a, const struct cg_addr *own, size_t n_own)
{
        static const uint8_t loopback6[16] = { [15] = 1 };
        struct cg_addr v4;
        /* The carried address only adds denials: no exception, and nothing becomes loopback. */
        const struct cg_addr *carried = cg_addr_embedded4(a, &v4) ? &v4 : NULL;
        enum cg_addr_class class;

        if (h->is_addr)
                return NULL;
        if (cg_domains_find_addr(&p->denied, a, port) ||
            (carried && cg_domains_find_addr(&p->denied, carried, port)))
                return deny_listed;
        /* An address that is listed may be reached by name as well. */
        if (cg_domains_find_addr(&p->allowed, a, port))
                return NULL;
        class = cg_addr_class(a);
        if (cg_host_is_loopback_name(h)) {
                /* Not one that merely carries a loopback address: those lead to a gateway. */
                bool loopback = a->family == 4 ? a->b[0] == 127 : memcmp(a->b, loopback6, 16) == 0;

                return loopback ? NULL : non_loopback;
        }
        if (class != CG_ADDR_PUBLIC && (class != CG_ADDR_PRIVATE || !p->private_ok))
                return cg_addr_class_name(class);
        if (in_ranges(p->ranges, p->n_ranges, a, carried))
                return listed;
        for (size_t i = 0; i < n_own; i++)
                if (cg_addr_equal(&own[i], a) || (carried && cg_addr_equal(&own[i], carried)))
                        return own_address;
        return NULL;
}

int cg_policy_vet_rank(const char *why)
{
        if (why == deny_listed)
                return 0;
        for (int c = CG_ADDR_LOOPBACK; c <= CG_ADDR_PRIVATE; c++)
                if (strcmp(why, cg_addr_class_name((enum cg_addr_class)c)) == 0)
                        return c;
        if (why == listed)
                return 50;
        return why == own_address ? 51 : 52;
}

/* ---- routes */

enum cg_route cg_policy_route(const struct cg_policy *p, const struct cg_host *h, bool tunnel,
                              const struct cg_upstream **up, const char **path)
{
        const struct cg_upstream *u = tunnel ? &p->https : &p->http;
        const struct no_proxy *np = &p->no_proxy;

        /* 0: entries of mitmProxy.domains have no port. */
        if (p->net->mitm_socket && cg_domains_find(&p->mitm, h, 0)) {
                *path = p->net->mitm_socket;
                return CG_ROUTE_MITM;
        }
        if (!u->host[0] || np->all || strcmp(h->text, "localhost") == 0)
                return CG_ROUTE_DIRECT;
        if (h->is_addr && (cg_addr_class(&h->addr) == CG_ADDR_LOOPBACK ||
                           in_ranges(np->ranges, np->n_ranges, &h->addr, NULL)))
                return CG_ROUTE_DIRECT;
        for (size_t i = 0; i < np->n_suffixes; i++) {
                /* "example.com" and ".example.com" both mean the name itself and all below it. */
                const char *suffix = np->suffixes[i] + (np->suffixes[i][0] == '.');

                if (strcmp(h->text, suffix) == 0 || cg_domain_is_below(h->text, suffix))
                        return CG_ROUTE_DIRECT;
        }
        *up = u;
        return CG_ROUTE_PARENT;
}
