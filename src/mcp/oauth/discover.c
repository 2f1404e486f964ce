/* See internal.h: cg_oauth_discover(). */
#include "mcp/oauth/internal.h"

#include "mcp/ceilings.h"

#define RESOURCE_PLACE "/.well-known/oauth-protected-resource"
#define AS_PLACE       "/.well-known/oauth-authorization-server"
#define OPENID_PLACE   "/.well-known/openid-configuration"

/* Longest of the well-known places, with room. */
#define URL_SIZE (CG_OAUTH_MAX_URL + 64)

/* No document at this place; the next one is tried. */
#define ABSENT 1

void cg_oauth_response_fini(struct cg_oauth_response *r)
{
        cg_buf_fini(&r->body);
        cg_oauth_challenge_fini(&r->challenge);
}

void cg_oauth_place_fini(struct cg_oauth_place *p)
{
        cg_oauth_resource_fini(&p->resource);
        cg_oauth_as_fini(&p->as);
}

/* Whether the user has named the host of @u: in the definition's URL (*own), or as its "issuer". */
static bool is_named_by_user(const struct cg_oauth_server *s, const struct cg_oauth_url *u, bool *own)
{
        struct cg_oauth_url server, issuer;

        *own = cg_oauth_url_parse(s->url, "server", &server, NULL) == 0 &&
               cg_oauth_url_same_origin(u, &server);
        return *own || (s->config->issuer && cg_oauth_url_parse(s->config->issuer, "", &issuer, NULL) == 0 &&
                        cg_oauth_url_same_origin(u, &issuer));
}

/*
 * A document of a server elsewhere must not lead to services of this machine or of its network,
 * which trust whoever can connect to them. Names are judged when they are connected to.
 */
static int check_place(const struct cg_oauth_server *s, const char *url, const char *what, struct cg_err *err)
{
        struct cg_oauth_url u;
        bool own;
        int r;

        if (!url)
                return 0;
        r = cg_oauth_url_parse(url, what, &u, err);
        if (r < 0 || is_named_by_user(s, &u, &own) || cg_addr_class_may_name(*s->place, u.class))
                return r;
        return cg_fail(
                err, CG_E_INVAL,
                "%s: %s is at %s, which a server at %s cannot name; if this is right, give the URL of the "
                "authorization server as \"issuer\" in \"oauth\" of the definition",
                what, url, cg_addr_class_name(u.class), cg_addr_class_name(*s->place));
}

int cg_oauth_send(const struct cg_oauth_server *s, struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                  struct cg_err *err)
{
        struct cg_oauth_url u;
        bool own;
        int r = check_place(s, q->url, "the URL", err);

        if (r < 0)
                return r;
        r = cg_oauth_url_parse(q->url, "the URL", &u, err);
        if (r < 0)
                return r;
        q->foreign = !is_named_by_user(s, &u, &own);
        q->named_by = *s->place;
        r = s->fetch(s->data, q, ret, err);
        if (r >= 0 && own)
                *s->place = ret->peer;
        return r;
}

static int get_document(const struct cg_oauth_server *s, const char *url, struct cg_oauth_response *doc,
                        struct cg_err *err)
{
        struct cg_oauth_fetch q = { .url = url };
        int r = check_place(s, url, "metadata", err);

        if (r < 0)
                return r;
        r = cg_oauth_send(s, &q, doc, err);
        if (r < 0)
                return r;
        if (doc->status >= 500)
                return cg_fail(err, CG_E_CLOSED, "metadata could not be fetched: HTTP %d", doc->status);
        return doc->status == 200 ? 0 : ABSENT;
}

/* Pages in place of a document count as absent, unless the server has @named the place. */
static int get_resource(const struct cg_oauth_server *s, const char *url, bool named,
                        struct cg_oauth_resource *ret, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response doc = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        CG_CLEANUP(cg_oauth_resource_fini) struct cg_oauth_resource m = { 0 };
        int r = get_document(s, url, &doc, err);

        if (r != 0)
                return r;
        r = cg_oauth_resource_parse(doc.body.data ?: "", doc.body.len, &m, err);
        if (r < 0)
                return r == CG_E_PARSE && !named ? ABSENT : r;
        if (!cg_oauth_resource_covers(m.resource, s->url))
                return cg_fail(
                        err, CG_E_INVAL,
                        "the server's protected resource metadata is for %s: a token for that must not be sent "
                        "here",
                        m.resource);
        r = check_place(s, m.issuer, "authorization server", err);
        if (r < 0)
                return r;
        *ret = CG_TAKE(m);
        return 0;
}

/* Length of the URL's path without slashes at its end. */
static int trimmed_path(const struct cg_oauth_url *u)
{
        int len = (int)u->path_len;

        while (len && u->path[len - 1] == '/')
                len--;
        return len;
}

static int find_resource(const struct cg_oauth_server *s, const char *metadata_url,
                         struct cg_oauth_resource *ret, struct cg_err *err)
{
        struct cg_oauth_url u;
        char url[URL_SIZE];
        int r = cg_oauth_url_parse(s->url, "server", &u, err), path;

        if (r < 0)
                return r;
        if (metadata_url) {
                r = get_resource(s, metadata_url, true, ret, err);
                if (r != ABSENT)
                        return r;
        }
        path = trimmed_path(&u);
        if (path || u.query) {
                snprintf(url, sizeof(url), "%.*s" RESOURCE_PLACE "%.*s%s", (int)u.origin_len, s->url, path,
                         u.path, u.query ? u.query - 1 : "");
                r = get_resource(s, url, false, ret, err);
                if (r != ABSENT)
                        return r;
        }
        snprintf(url, sizeof(url), "%.*s" RESOURCE_PLACE, (int)u.origin_len, s->url);
        return get_resource(s, url, false, ret, err);
}

/* @expected: what its issuer must be; NULL: anything of the same origin as @url. */
static int get_as(const struct cg_oauth_server *s, const char *url, const char *expected,
                  struct cg_oauth_as *ret, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_response_fini)
        struct cg_oauth_response doc = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        CG_CLEANUP(cg_oauth_as_fini) struct cg_oauth_as m = { 0 };
        const struct {
                char *const *url;
                const char *what;
        } places[] = { { &m.authorization_endpoint, "authorization endpoint" },
                       { &m.token_endpoint, "token endpoint" },
                       { &m.registration_endpoint, "registration endpoint" } };
        struct cg_oauth_url a, b;
        int r = get_document(s, url, &doc, err);

        if (r != 0)
                return r;
        r = cg_oauth_as_parse(doc.body.data ?: "", doc.body.len, expected, &m, err);
        if (r < 0)
                return r == CG_E_PARSE ? ABSENT : r;
        if (!expected && cg_oauth_url_parse(m.issuer, "issuer", &a, err) == 0 &&
            cg_oauth_url_parse(url, "metadata", &b, err) == 0 && !cg_oauth_url_same_origin(&a, &b))
                return cg_fail(err, CG_E_INVAL,
                               "the server's authorization server metadata is of another issuer, %s",
                               m.issuer);
        for (size_t i = 0; i < CG_ARRAY_LEN(places) && r == 0; i++)
                r = check_place(s, *places[i].url, places[i].what, err);
        if (r < 0)
                return r;
        if (check_place(s, m.revocation_endpoint, "revocation endpoint", NULL) < 0) {
                free(m.revocation_endpoint); /* login and refresh do not need it */
                m.revocation_endpoint = NULL;
        }
        *ret = CG_TAKE(m);
        return 0;
}

static int find_as(const struct cg_oauth_server *s, const char *issuer, const char *expected,
                   struct cg_oauth_as *ret, struct cg_err *err)
{
        struct cg_oauth_url u;
        char urls[3][URL_SIZE];
        int r = cg_oauth_url_parse(issuer, "issuer", &u, err), n = 2, origin, path;

        if (r < 0)
                return r;
        origin = (int)u.origin_len;
        path = trimmed_path(&u);
        snprintf(urls[0], URL_SIZE, "%.*s" AS_PLACE "%.*s", origin, issuer, path, u.path);
        snprintf(urls[1], URL_SIZE, "%.*s" OPENID_PLACE "%.*s", origin, issuer, path, u.path);
        if (path)
                snprintf(urls[n++], URL_SIZE, "%.*s%.*s" OPENID_PLACE, origin, issuer, path, u.path);
        for (int i = 0; i < n; i++) {
                r = get_as(s, urls[i], expected, ret, err);
                if (r != ABSENT)
                        return r;
        }
        return ABSENT;
}

static int make_as(const char *origin, struct cg_oauth_as *ret, struct cg_err *err)
{
        struct cg_oauth_as m = { .methods = CG_OAUTH_NONE | CG_OAUTH_BASIC | CG_OAUTH_POST,
                                 .s256 = true,
                                 .assumed = true };

        static const char what[] = "authorization server";

        if (cg_asprintf(&m.issuer, what, err, "%s", origin) < 0 ||
            cg_asprintf(&m.authorization_endpoint, what, err, "%s/authorize", origin) < 0 ||
            cg_asprintf(&m.token_endpoint, what, err, "%s/token", origin) < 0 ||
            cg_asprintf(&m.registration_endpoint, what, err, "%s/register", origin) < 0) {
                cg_oauth_as_fini(&m);
                return -1;
        }
        *ret = m;
        return 0;
}

/* The server that publishes no protected resource metadata. */
static int discover_own(const struct cg_oauth_server *s, struct cg_oauth_as *ret, struct cg_err *err)
{
        char origin[URL_SIZE];
        struct cg_oauth_url u;
        int r = cg_oauth_url_parse(s->url, "server", &u, err);

        if (r < 0)
                return r;
        snprintf(origin, sizeof(origin), "%.*s", (int)u.origin_len, s->url);
        r = find_as(s, origin, NULL, ret, err);
        return r == ABSENT ? make_as(origin, ret, err) : r;
}

int cg_oauth_discover(const struct cg_oauth_server *s, const char *metadata_url, struct cg_oauth_place *ret,
                      struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_place_fini) struct cg_oauth_place p = { 0 };
        int r = find_resource(s, metadata_url, &p.resource, err);

        if (r < 0)
                return r;
        if (r == ABSENT) {
                r = discover_own(s, &p.as, err);
        } else {
                r = find_as(s, p.resource.issuer, p.resource.issuer, &p.as, err);
                if (r == ABSENT)
                        return cg_fail(err, CG_E_NOTFOUND,
                                       "the authorization server %s publishes no metadata",
                                       p.resource.issuer);
        }
        if (r < 0)
                return r;
        *ret = CG_TAKE(p);
        return 0;
}

int cg_oauth_issuer_keys(const struct cg_oauth_server *s, struct cg_oauth_response *ret, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_as_fini) struct cg_oauth_as as = { 0 };
        int r = find_as(s, s->url, s->url, &as, err);

        if (r < 0)
                return r;
        if (!as.jwks_uri)
                return cg_fail(err, CG_E_NOTFOUND, "it publishes no metadata with a \"jwks_uri\"");
        r = get_document(s, as.jwks_uri, ret, err);
        if (r == ABSENT)
                return cg_fail(err, CG_E_NOTFOUND,
                               "it publishes no keys at the \"jwks_uri\" of its metadata");
        return r;
}
