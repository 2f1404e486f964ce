/* Parsers of what servers send about OAuth. Linked into the tool server and the command line. */
#include "mcp/oauth/parse.h"

#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"

static bool is_visible(const char *s, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (s[i] < 0x21 || s[i] > 0x7e)
                        return false;
        return true;
}

/* ---- URLs */

/* The host and the port of @url, which begin at @p and end before @end. */
static bool parse_authority(const char *p, const char *end, struct cg_oauth_url *u)
{
        const char *colon = p;

        u->host = p;
        if (p < end && *p == '[') {
                while (colon < end && *colon != ']')
                        colon++;
                if (colon == end || strspn(p + 1, "0123456789abcdefABCDEF:.") < (size_t)(colon - p - 1))
                        return false;
                colon++;
        } else {
                while (colon < end && (strchr("-._", *colon) || (*colon >= '0' && *colon <= '9') ||
                                       (*colon >= 'a' && *colon <= 'z') || (*colon >= 'A' && *colon <= 'Z')))
                        colon++;
        }
        u->host_len = (size_t)(colon - p);
        u->port = u->https ? 443 : 80;
        if (!u->host_len || u->host_len > 255)
                return false;
        if (colon == end)
                return true;
        if (*colon++ != ':' || colon == end || end - colon > 5)
                return false;
        u->port = 0;
        for (; colon < end; colon++) {
                if (*colon < '0' || *colon > '9')
                        return false;
                u->port = u->port * 10 + (unsigned)(*colon - '0');
        }
        return u->port > 0 && u->port <= 65535;
}

int cg_oauth_url_parse(const char *url, const char *what, struct cg_oauth_url *ret, struct cg_err *err)
{
        size_t len = strlen(url), scheme;
        struct cg_oauth_url u = { 0 };
        struct cg_host host;
        const char *end;

        if (len > CG_OAUTH_MAX_URL)
                return cg_fail(err, CG_E_INVAL, "%s: a URL of more than %d bytes", what, CG_OAUTH_MAX_URL);
        if (!is_visible(url, len) || strpbrk(url, "\"<>\\^`{|}"))
                return cg_fail(err, CG_E_INVAL, "%s: a URL with characters that a URL cannot have", what);
        u.https = strncasecmp(url, "https://", 8) == 0;
        if (!u.https && strncasecmp(url, "http://", 7) != 0)
                return cg_fail(err, CG_E_INVAL, "%s: not a URL that begins with https://", what);
        scheme = u.https ? 8 : 7;
        end = url + scheme + strcspn(url + scheme, "/?#");
        if (!parse_authority(url + scheme, end, &u) || strchr(url, '#') ||
            cg_host_parse(u.host, u.host_len, &host, NULL) < 0)
                return cg_fail(err, CG_E_INVAL,
                               "%s: a URL whose host or port is malformed, or that has a user or a fragment",
                               what);
        u.class = cg_host_class(&host);
        if (!u.https && !cg_host_is_this_machine(&host))
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s: a URL that begins with http://; outside of this machine OAuth needs https://",
                        what);
        u.origin_len = (size_t)(end - url);
        u.path = end;
        u.path_len = strcspn(end, "?");
        u.query = end[u.path_len] ? end + u.path_len + 1 : NULL;
        *ret = u;
        return 0;
}

bool cg_oauth_url_same_origin(const struct cg_oauth_url *a, const struct cg_oauth_url *b)
{
        return a->https == b->https && a->port == b->port && a->host_len == b->host_len &&
               strncasecmp(a->host, b->host, a->host_len) == 0;
}

bool cg_oauth_resource_covers(const char *resource, const char *url)
{
        struct cg_oauth_url r, u;
        size_t n;

        if (cg_oauth_url_parse(resource, "resource", &r, NULL) < 0 ||
            cg_oauth_url_parse(url, "server", &u, NULL) < 0 || !cg_oauth_url_same_origin(&r, &u))
                return false;
        if (r.query && (!u.query || strcmp(r.query, u.query) != 0))
                return false;
        n = r.path_len;
        while (n && r.path[n - 1] == '/')
                n--;
        /* "." and ".." could lead out of the path that is compared. */
        return n <= u.path_len && memcmp(r.path, u.path, n) == 0 && (n == u.path_len || u.path[n] == '/') &&
               !memmem(u.path, u.path_len, "/.", 2);
}

/* ---- scopes */

static bool is_scope_char(char c)
{
        return c > 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* The next scope of @p (advanced behind it); *len 0: no more. */
static const char *next_scope(const char **p, size_t *len)
{
        const char *s = *p + strspn(*p, " ");

        *len = strcspn(s, " ");
        *p = s + *len;
        return s;
}

static bool has_scope(const char *set, const char *scope, size_t len)
{
        const char *s;
        size_t n;

        while (set && (s = next_scope(&set, &n), n))
                if (n == len && memcmp(s, scope, n) == 0)
                        return true;
        return false;
}

int cg_oauth_scopes_add(char **set, const char *more, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_OAUTH_MAX_SCOPES };
        const char *s;
        char *all;
        size_t n;

        if (!more)
                return 0;
        for (const char *p = more; *p; p++)
                if (*p != ' ' && !is_scope_char(*p))
                        return cg_fail(err, CG_E_PARSE, "a scope has characters that scopes cannot have");
        cg_buf_adds(&b, *set ?: "");
        while (s = next_scope(&more, &n), n) {
                if (has_scope(b.data, s, n))
                        continue;
                if (b.len)
                        cg_buf_adds(&b, " ");
                cg_buf_add(&b, s, n);
        }
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        all = cg_buf_steal(&b, NULL);
        if (!all)
                return cg_fail(err, CG_E_NOMEM, "scopes");
        free(*set);
        *set = all;
        return 0;
}

bool cg_oauth_scopes_have(const char *set, const char *wanted)
{
        const char *s;
        size_t n;

        while (s = next_scope(&wanted, &n), n)
                if (!has_scope(set, s, n))
                        return false;
        return true;
}

/* ---- WWW-Authenticate */

void cg_oauth_challenge_fini(struct cg_oauth_challenge *c)
{
        free(c->resource_metadata);
        free(c->scope);
        free(c->error);
        *c = (struct cg_oauth_challenge){ 0 };
}

static size_t token_len(const char *p)
{
        return strspn(p, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

/* Appends the token or quoted string at @p to @b; returns its length, 0 when malformed. */
static size_t value_at(const char *p, struct cg_buf *b)
{
        const char *start = p;

        if (*p != '"') {
                cg_buf_add(b, p, token_len(p));
                return b->len;
        }
        for (p++; *p && *p != '"'; p++) {
                if (*p == '\\' && p[1])
                        p++;
                cg_buf_add(b, p, 1);
        }
        return *p == '"' && !b->failed ? (size_t)(p + 1 - start) : 0;
}

static int keep_param(struct cg_oauth_challenge *c, const char *name, size_t n, struct cg_buf *value,
                      struct cg_err *err)
{
        const struct {
                const char *name;
                char **to;
        } params[] = { { "resource_metadata", &c->resource_metadata },
                       { "scope", &c->scope },
                       { "error", &c->error } };

        for (size_t i = 0; i < CG_ARRAY_LEN(params) && value->len; i++) {
                if (strlen(params[i].name) != n || strncasecmp(name, params[i].name, n) != 0 || *params[i].to)
                        continue;
                *params[i].to = cg_buf_steal(value, NULL);
                return cg_made(*params[i].to, "challenge", err);
        }
        return 0;
}

int cg_oauth_challenge_add(struct cg_oauth_challenge *c, const char *value, struct cg_err *err)
{
        bool in_bearer = false, found = c->bearer;
        const char *p = value;

        for (;;) {
                cg_auto_buf struct cg_buf text = { .max = CG_OAUTH_MAX_SCOPES };
                const char *name = p += strspn(p, " \t,"), *after;
                size_t n = token_len(p), length;
                int r;

                if (!n)
                        return 0;
                p += n;
                after = p + strspn(p, " \t");
                if (*after != '=') {
                        /* A scheme. Only the first Bearer challenge counts. */
                        in_bearer = !found && n == 6 && strncasecmp(name, "Bearer", n) == 0;
                        found = found || in_bearer;
                        c->bearer = found;
                        /* Credentials that are no parameters, as of Negotiate: with "/" or "=" at the end. */
                        n = strspn(after,
                                   "+/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
                        length = n + strspn(after + n, "=");
                        if (n && p != after && (after[length] == ',' || !after[length]))
                                p = after + length;
                        continue;
                }
                after++;
                after += strspn(after, " \t");
                length = value_at(after, &text);
                if (!length)
                        return 0;
                p = after + length;
                r = in_bearer ? keep_param(c, name, n, &text, err) : 0;
                if (r < 0)
                        return r;
        }
}

/* ---- documents */

/* A document. After a failure, which r keeps, the functions that take members do nothing. */
struct document {
        json_t *j;
        const char *what;
        int r;
        struct cg_err *err;
};

static void document_fini(struct document *d)
{
        json_decref(d->j);
}

/* @secret: the parser's message, which could quote the text, is not shown. */
static struct document parse_document(const char *text, size_t len, const char *what, bool secret,
                                      struct cg_err *err)
{
        struct document d = { .what = what, .err = err };

        d.r = cg_json_object(text, len, what, &d.j, err);
        if (secret && d.r == CG_E_PARSE)
                cg_fail(err, CG_E_PARSE, "%s: not a JSON object", what);
        return d;
}

/*
 * A copy of the string member @key in *ret; absent leaves NULL, which is an error when @needed.
 * Longer than @max, control characters, or no string: CG_E_PARSE.
 */
static void take_str(struct document *d, const char *key, size_t max, bool needed, char **ret)
{
        const json_t *v = json_object_get(d->j, key);
        const char *s = json_string_value(v);
        size_t len = json_string_length(v);

        if (d->r < 0 || ((!v || json_is_null(v)) && !needed))
                return;
        if (!s || !len || len > max || strlen(s) != len) {
                d->r = cg_fail(d->err, CG_E_PARSE, "%s: \"%s\" is not a string of 1 to %zu bytes", d->what,
                               key, max);
                return;
        }
        for (size_t i = 0; i < len && d->r == 0; i++)
                if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
                        d->r = cg_fail(d->err, CG_E_PARSE, "%s: \"%s\" has control characters", d->what, key);
        if (d->r == 0 && !(*ret = strdup(s)))
                d->r = cg_fail(d->err, CG_E_NOMEM, "%s", d->what);
}

static void take_url(struct document *d, const char *key, bool needed, char **ret)
{
        struct cg_oauth_url u;
        char name[80];

        take_str(d, key, CG_OAUTH_MAX_URL, needed, ret);
        snprintf(name, sizeof(name), "%s: \"%s\"", d->what, key);
        if (d->r == 0 && *ret)
                d->r = cg_oauth_url_parse(*ret, name, &u, d->err);
}

/* The same for a URL that can be done without: one that may not be used is left out. */
static void take_spare_url(const struct document *d, const char *key, char **ret)
{
        struct document own = { .j = d->j, .what = d->what };

        take_url(&own, key, false, ret);
        if (own.r < 0) {
                free(*ret);
                *ret = NULL;
        }
}

/* A string without NUL. */
static bool is_text(const json_t *v)
{
        return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v);
}

static bool lists(const json_t *j, const char *key, const char *value)
{
        const json_t *v;
        size_t i;

        json_array_foreach(json_object_get(j, key), i, v) {
                if (json_is_string(v) && strcmp(json_string_value(v), value) == 0)
                        return true;
        }
        return false;
}

void cg_oauth_resource_fini(struct cg_oauth_resource *r)
{
        free(r->resource);
        free(r->issuer);
        free(r->scopes);
        *r = (struct cg_oauth_resource){ 0 };
}

int cg_oauth_resource_parse(const char *text, size_t len, struct cg_oauth_resource *ret, struct cg_err *err)
{
        static const char what[] = "protected resource metadata";
        CG_CLEANUP(document_fini) struct document d = parse_document(text, len, what, false, err);
        CG_CLEANUP(cg_oauth_resource_fini) struct cg_oauth_resource m = { 0 };
        const json_t *v, *servers;
        struct cg_oauth_url u;
        size_t i;
        int r;

        take_url(&d, "resource", true, &m.resource);
        if (d.r < 0)
                return d.r;
        servers = json_object_get(d.j, "authorization_servers");
        if (!json_array_size(servers))
                return cg_fail(err, CG_E_PARSE, "%s: it names no authorization server", what);
        v = json_array_get(servers, 0);
        if (!is_text(v))
                return cg_fail(err, CG_E_PARSE, "%s: \"authorization_servers\" has no URLs", what);
        r = cg_oauth_url_parse(json_string_value(v), "authorization server", &u, err);
        if (r < 0)
                return r;
        m.issuer = strdup(json_string_value(v));
        if (!m.issuer)
                return cg_fail(err, CG_E_NOMEM, "%s", what);
        json_array_foreach(json_object_get(d.j, "scopes_supported"), i, v) {
                r = cg_oauth_scopes_add(&m.scopes, is_text(v) ? json_string_value(v) : NULL, err);
                if (r < 0)
                        return r;
        }
        *ret = CG_TAKE(m);
        return 0;
}

static const struct {
        unsigned method;
        const char *name;
} methods[] = { { CG_OAUTH_NONE, "none" },
                { CG_OAUTH_BASIC, "client_secret_basic" },
                { CG_OAUTH_POST, "client_secret_post" } };

unsigned cg_oauth_method(const char *name)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(methods); i++)
                if (strcmp(methods[i].name, name) == 0)
                        return methods[i].method;
        return 0;
}

const char *cg_oauth_method_name(unsigned method)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(methods); i++)
                if (methods[i].method == method)
                        return methods[i].name;
        return "none";
}

void cg_oauth_as_fini(struct cg_oauth_as *as)
{
        free(as->issuer);
        free(as->authorization_endpoint);
        free(as->token_endpoint);
        free(as->registration_endpoint);
        free(as->revocation_endpoint);
        free(as->jwks_uri);
        *as = (struct cg_oauth_as){ 0 };
}

int cg_oauth_as_parse(const char *text, size_t len, const char *issuer, struct cg_oauth_as *ret,
                      struct cg_err *err)
{
        static const char what[] = "authorization server metadata",
                          methods_key[] = "token_endpoint_auth_methods_supported";
        CG_CLEANUP(document_fini) struct document d = parse_document(text, len, what, false, err);
        CG_CLEANUP(cg_oauth_as_fini) struct cg_oauth_as m = { 0 };

        take_url(&d, "issuer", true, &m.issuer);
        if (d.r == 0 && issuer && strcmp(m.issuer, issuer) != 0)
                return cg_fail(err, CG_E_INVAL, "%s: its issuer is %s, not %s, for which it was fetched",
                               what, m.issuer, issuer);
        take_url(&d, "authorization_endpoint", false, &m.authorization_endpoint);
        take_url(&d, "token_endpoint", true, &m.token_endpoint);
        take_url(&d, "registration_endpoint", false, &m.registration_endpoint);
        if (d.r < 0)
                return d.r;
        take_spare_url(&d, "revocation_endpoint", &m.revocation_endpoint); /* only a logout would use it */
        take_spare_url(&d, "jwks_uri", &m.jwks_uri);                       /* clients do not need it */
        for (size_t i = 0; i < CG_ARRAY_LEN(methods); i++)
                if (lists(d.j, methods_key, methods[i].name))
                        m.methods |= methods[i].method;
        if (!json_object_get(d.j, methods_key))
                m.methods = CG_OAUTH_BASIC; /* the default of RFC 8414 */
        m.s256 = lists(d.j, "code_challenge_methods_supported", "S256");
        m.client_id_documents = json_is_true(json_object_get(d.j, "client_id_metadata_document_supported"));
        m.sends_iss = json_is_true(json_object_get(d.j, "authorization_response_iss_parameter_supported"));
        m.offline_access = lists(d.j, "scopes_supported", "offline_access");
        *ret = CG_TAKE(m);
        return 0;
}

void cg_oauth_client_fini(struct cg_oauth_client *c)
{
        free(c->id);
        free(c->secret);
        *c = (struct cg_oauth_client){ 0 };
}

int cg_oauth_client_parse(const char *text, size_t len, struct cg_oauth_client *ret, struct cg_err *err)
{
        CG_CLEANUP(document_fini)
        struct document d = parse_document(text, len, "client registration", true, err);
        CG_CLEANUP(cg_oauth_client_fini) struct cg_oauth_client c = { 0 };
        cg_auto_free char *method = NULL;

        take_str(&d, "client_id", CG_OAUTH_MAX_TOKEN, true, &c.id);
        take_str(&d, "client_secret", CG_OAUTH_MAX_TOKEN, false, &c.secret);
        take_str(&d, "token_endpoint_auth_method", 64, false, &method);
        if (d.r < 0)
                return d.r;
        if (method && !(c.method = cg_oauth_method(method)))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "%s: the client has to authenticate by %s, which is not supported", d.what,
                               method);
        c.expires_s = json_integer_value(json_object_get(d.j, "client_secret_expires_at"));
        *ret = CG_TAKE(c);
        return 0;
}

void cg_oauth_token_fini(struct cg_oauth_token *t)
{
        free(t->access);
        free(t->refresh);
        free(t->scope);
        *t = (struct cg_oauth_token){ 0 };
}

int cg_oauth_token_parse(const char *text, size_t len, struct cg_oauth_token *ret, struct cg_err *err)
{
        CG_CLEANUP(document_fini) struct document d = parse_document(text, len, "token response", true, err);
        CG_CLEANUP(cg_oauth_token_fini) struct cg_oauth_token t = { 0 };
        cg_auto_free char *type = NULL, *scope = NULL;
        int r;

        take_str(&d, "access_token", CG_OAUTH_MAX_TOKEN, true, &t.access);
        if (d.r == 0 && !is_visible(t.access, strlen(t.access)))
                return cg_fail(err, CG_E_PARSE,
                               "%s: the access token has characters that a header cannot have", d.what);
        take_str(&d, "token_type", 32, true, &type);
        if (d.r == 0 && strcasecmp(type, "Bearer") != 0)
                return cg_fail(err, CG_E_UNSUPPORTED, "%s: only tokens of the type Bearer are supported",
                               d.what);
        take_str(&d, "refresh_token", CG_OAUTH_MAX_TOKEN, false, &t.refresh);
        /* An empty scope is a common mistake, and the same as none. */
        if (json_string_length(json_object_get(d.j, "scope")))
                take_str(&d, "scope", CG_OAUTH_MAX_SCOPES, false, &scope);
        if (d.r < 0)
                return d.r;
        r = cg_oauth_scopes_add(&t.scope, scope, err);
        if (r < 0)
                return r;
        t.lifetime_s = (int64_t)json_number_value(json_object_get(d.j, "expires_in"));
        if (t.lifetime_s < 0 || t.lifetime_s > CG_OAUTH_MAX_LIFETIME_S)
                t.lifetime_s = 0;
        *ret = CG_TAKE(t);
        return 0;
}

void cg_oauth_error_parse(const char *text, size_t len, char ret[CG_OAUTH_ERROR_SIZE])
{
        cg_auto_json json_t *j = NULL;
        const char *s;
        size_t n;

        ret[0] = '\0';
        if (cg_json_object(text, len, "response", &j, NULL) < 0)
                return;
        s = json_string_value(json_object_get(j, "error"));
        n = json_string_length(json_object_get(j, "error"));
        if (s && n < CG_OAUTH_ERROR_SIZE &&
            strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n)
                memcpy(ret, s, n + 1);
}

/* ---- the redirect after authorization */

void cg_oauth_redirect_fini(struct cg_oauth_redirect *r)
{
        free(r->code);
        free(r->state);
        free(r->iss);
        free(r->error);
        *r = (struct cg_oauth_redirect){ 0 };
}

/* NULL: malformed, or bytes that are no visible ASCII. */
static char *decode(const char *s, size_t len)
{
        cg_auto_free char *to = calloc(len + 1, 1);
        char *w = to;

        for (size_t i = 0; to && i < len; i++) {
                int c = (unsigned char)s[i];

                if (c == '%') {
                        if (i + 2 >= len || cg_hex_digit(s[i + 1]) < 0 || cg_hex_digit(s[i + 2]) < 0)
                                return NULL;
                        c = cg_hex_digit(s[i + 1]) << 4 | cg_hex_digit(s[i + 2]);
                        i += 2;
                } else if (c == '+') {
                        c = ' ';
                }
                if (c < 0x20 || c > 0x7e)
                        return NULL;
                *w++ = (char)c;
        }
        return CG_STEAL(to);
}

int cg_oauth_redirect_parse(const char *query, size_t len, struct cg_oauth_redirect *ret, struct cg_err *err)
{
        CG_CLEANUP(cg_oauth_redirect_fini) struct cg_oauth_redirect q = { 0 };
        const struct {
                const char *name;
                char **to;
        } params[] = { { "code", &q.code }, { "state", &q.state }, { "iss", &q.iss }, { "error", &q.error } };
        const char *p = query, *end = query + len;

        while (p < end) {
                const char *stop = memchr(p, '&', (size_t)(end - p)) ?: end;
                const char *eq = memchr(p, '=', (size_t)(stop - p)) ?: stop;

                for (size_t i = 0; i < CG_ARRAY_LEN(params); i++) {
                        if (strlen(params[i].name) != (size_t)(eq - p) ||
                            memcmp(params[i].name, p, (size_t)(eq - p)) != 0)
                                continue;
                        if (*params[i].to || eq == stop ||
                            !(*params[i].to = decode(eq + 1, (size_t)(stop - eq - 1))))
                                return cg_fail(err, CG_E_PARSE,
                                               "the redirect's parameter \"%s\" is malformed or repeated",
                                               params[i].name);
                }
                p = stop + 1;
        }
        *ret = CG_TAKE(q);
        return 0;
}

void cg_oauth_form_add(struct cg_buf *b, const char *name, const char *value)
{
        if (!value)
                return;
        if (b->len && b->data[b->len - 1] != '?')
                cg_buf_adds(b, "&");
        cg_buf_addf(b, "%s=", name);
        cg_percent_encode(b, value, "");
}
