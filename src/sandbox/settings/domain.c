/* Domain entries. Pure; linked into cellgate-egress and into the programs that read settings. */
#include "sandbox/settings/domain.h"

#include "base/text.h"

/* 1 to 65535 without a leading zero. */
static bool parse_port(const char *s, size_t len, uint16_t *ret)
{
        unsigned long v = 0;

        if (len == 0 || len > 5 || s[0] == '0')
                return false;
        for (size_t i = 0; i < len; i++) {
                if (!cg_is_digit(s[i]))
                        return false;
                v = v * 10 + (unsigned long)(s[i] - '0');
        }
        *ret = (uint16_t)v;
        return v <= 65535;
}

/*
 * Cuts ":PORT" and brackets off. False for colons elsewhere: an IPv6 address without brackets could
 * be one with a port.
 */
static bool split(const char *entry, const char **host, size_t *len, bool *brackets, uint16_t *port)
{
        const char *colon;

        *port = 0;
        *brackets = entry[0] == '[';
        if (*brackets) {
                const char *close = strchr(entry, ']');

                if (!close ||
                    (close[1] && (close[1] != ':' || !parse_port(close + 2, strlen(close + 2), port))))
                        return false;
                *host = entry + 1;
                *len = strcspn(*host, "]%"); /* without a zone */
                return true;
        }
        colon = strchr(entry, ':');
        *host = entry;
        *len = colon ? (size_t)(colon - entry) : strlen(entry);
        return !colon || (!strchr(colon + 1, ':') && parse_port(colon + 1, strlen(colon + 1), port));
}

/*
 * A domain as srt defines it: at least one dot, none at the ends or beside another. No name has the
 * other characters, so the entry would match nothing, not even what it is to deny. Nor has a name
 * bytes beyond ASCII: clients send such names as xn--...
 */
static bool is_domain(const char *s)
{
        size_t n = strlen(s);

        for (const char *p = s; *p; p++)
                if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || strchr("/:%@\\?#*", *p))
                        return false;
        return n && strchr(s, '.') && s[0] != '.' && s[n - 1] != '.' && !strstr(s, "..");
}

/*
 * Sets kind and address. @d->host is the entry without brackets and port, as it was written:
 * "Localhost" is no entry. False: it is none that @deny allows.
 */
static bool classify(struct cg_domain *d, bool brackets, bool deny)
{
        struct cg_host h;

        if (brackets || cg_addr_parse(d->host, strlen(d->host), &d->addr)) {
                d->kind = CG_DOMAIN_ADDR;
                /* A colon outside of brackets would begin a port. */
                return brackets == (strchr(d->host, ':') != NULL) &&
                       cg_addr_parse(d->host, strlen(d->host), &d->addr);
        }
        if (strcmp(d->host, "*") == 0) {
                d->kind = CG_DOMAIN_ANY;
                return deny;
        }
        if (strncmp(d->host, "*.", 2) == 0) {
                d->kind = CG_DOMAIN_BELOW;
                memmove(d->host, d->host + 2, strlen(d->host + 2) + 1);
                return is_domain(d->host);
        }
        d->kind = CG_DOMAIN_NAME;
        if (strcmp(d->host, "localhost") != 0 && !is_domain(d->host))
                return false;
        /* No destination is named 127.1, but it denies the address: denying too much is safe. */
        if (deny && cg_host_parse(d->host, strlen(d->host), &h, NULL) == 0 && h.is_addr) {
                d->kind = CG_DOMAIN_ADDR;
                d->addr = h.addr;
        }
        return true;
}

static void free_domain(struct cg_domain *d)
{
        free(d->entry);
        free(d->host);
        *d = (struct cg_domain){ .entry = NULL };
}

int cg_domains_add(struct cg_domains *list, const char *entry, bool deny, struct cg_err *err)
{
        struct cg_domain d = { .entry = NULL }, *v;
        const char *host;
        size_t len;
        bool brackets;

        if (!split(entry, &host, &len, &brackets, &d.port))
                return cg_fail(err, CG_E_INVAL, "\"%s\": %s", entry, CG_DOMAIN_MESSAGE);
        d.entry = strdup(entry);
        d.host = strndup(host, len);
        v = realloc(list->v, (list->n + 1) * sizeof(*v));
        if (v)
                list->v = v;
        if (!d.entry || !d.host || !v) {
                free_domain(&d);
                return cg_fail(err, CG_E_NOMEM, "domain entry");
        }
        if (!classify(&d, brackets, deny)) {
                free_domain(&d);
                return cg_fail(err, CG_E_INVAL, "\"%s\": %s", entry, CG_DOMAIN_MESSAGE);
        }
        for (char *c = d.host; *c; c++)
                *c = cg_ascii_lower(*c);
        list->v[list->n++] = d;
        return 0;
}

void cg_domains_fini(struct cg_domains *d)
{
        for (size_t i = 0; i < d->n; i++)
                free_domain(&d->v[i]);
        free(d->v);
        *d = (struct cg_domains){ .n = 0 };
}

bool cg_domain_covers(const struct cg_domain *d, const struct cg_domain *below)
{
        if (d->kind == below->kind && strcmp(d->host, below->host) == 0)
                return true;
        return d->kind == CG_DOMAIN_BELOW && below->kind != CG_DOMAIN_ADDR &&
               cg_domain_is_below(below->host, d->host);
}

const struct cg_domain *cg_domains_find(const struct cg_domains *list, const struct cg_host *h, uint16_t port)
{
        for (size_t i = 0; i < list->n; i++) {
                const struct cg_domain *d = &list->v[i];
                bool found = false;

                if (d->port && d->port != port)
                        continue;
                switch (d->kind) {
                case CG_DOMAIN_ANY:
                        found = true;
                        break;
                case CG_DOMAIN_NAME:
                        found = !h->is_addr && strcmp(d->host, h->text) == 0;
                        break;
                case CG_DOMAIN_BELOW:
                        found = !h->is_addr && cg_domain_is_below(h->text, d->host);
                        break;
                case CG_DOMAIN_ADDR:
                        found = h->is_addr && cg_addr_equal(&d->addr, &h->addr);
                }
                if (found)
                        return d;
        }
        return NULL;
}

const struct cg_domain *cg_domains_find_addr(const struct cg_domains *d, const struct cg_addr *a,
                                             uint16_t port)
{
        for (size_t i = 0; i < d->n; i++) {
                const struct cg_domain *e = &d->v[i];

                if (e->kind == CG_DOMAIN_ADDR && (!e->port || e->port == port) && cg_addr_equal(&e->addr, a))
                        return e;
        }
        return NULL;
}
