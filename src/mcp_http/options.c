/*
 * The command line of cellgate-mcp-http, which `cellgate mcp serve` makes out of its own:
 *
 *      cellgate-mcp-http --http ADDRESS [OPTIONS] -- cellgate mcp serve ...
 *
 * What follows "--" is a session's command line, checked already and not read here.
 */
#include "mcp_http/options.h"

#include "base/slice.h"
#include "cli/common/listen.h"
#include "cli/common/opts.h"
#include "mcp/oauth/parse.h"

#define MAX_SESSIONS 256
#define IDLE_MS      ((int64_t)1800 * 1000)

enum {
        HTTP = 2,
        TOKEN_FILE,
        APPROVER_TOKEN,
        APPROVER_SCOPE,
        ORIGIN,
        SESSIONS,
        PER_CLIENT,
        IDLE,
        TLS_CERT,
        TLS_KEY,
        PROXY,
        PUBLIC,
        ISSUER,
        CA,
        AUDIENCE,
        SCOPE,
        SSE,
        TIER
};

static const struct cg_opt table[] = {
        { HTTP, 0, "http", "ADDRESS", 0, NULL },
        { TOKEN_FILE, 0, "token-file", "FILE", 0, NULL },
        { APPROVER_TOKEN, 0, "approver-token-file", "FILE", 0, NULL },
        { APPROVER_SCOPE, 0, "approver-scope", "SCOPES", 0, NULL },
        { ORIGIN, 0, "allow-origin", "URL", 0, NULL },
        { SESSIONS, 0, "max-sessions", "N", 0, NULL },
        { PER_CLIENT, 0, "max-sessions-per-client", "N", 0, NULL },
        { IDLE, 0, "idle", "SECONDS", 0, NULL },
        { TLS_CERT, 0, "tls-cert", "FILE", 0, NULL },
        { TLS_KEY, 0, "tls-key", "FILE", 0, NULL },
        { PROXY, 0, "behind-proxy", NULL, 0, NULL },
        { PUBLIC, 0, "public-url", "URL", 0, NULL },
        { ISSUER, 0, "oauth-issuer", "URL", 0, NULL },
        { CA, 0, "oauth-ca", "FILE", 0, NULL },
        { AUDIENCE, 0, "oauth-audience", "URI", 0, NULL },
        { SCOPE, 0, "oauth-scope", "SCOPES", 0, NULL },
        { SSE, 0, "sse", NULL, 0, NULL },
        { TIER, 0, "tier", "TIER", 0, NULL },
};

/* "unix:PATH", "HOST:PORT", or "PORT" of 127.0.0.1. */
static int parse_address(const char *text, struct hf_options *o, struct cg_err *err)
{
        if (strncmp(text, "unix:", 5) == 0 && text[5]) {
                o->path = text + 5;
                o->setup.is_unix = true;
                return 0;
        }
        if (cg_listen_parse("--http", text, &o->host, &o->port, err) < 0)
                return cg_err_prefix(err, "HOST:PORT or unix:PATH");
        snprintf(o->setup.host, sizeof(o->setup.host), "%s", o->host.text);
        return 0;
}

static int add_origin(const char *value, struct hf_setup *s, struct cg_err *err)
{
        const char *host = strstr(value, "://");
        size_t len = strlen(value);

        if (!host || strchr(host + 3, '/') || len > CG_HF_MAX_ORIGIN)
                return cg_fail(err, CG_E_INVAL,
                               "--allow-origin must be as https://example.org, without a path, not \"%s\"",
                               value);
        if (s->n_origins == CG_HF_MAX_ORIGINS)
                return cg_fail(err, CG_E_LIMIT, "--allow-origin: at most %d", CG_HF_MAX_ORIGINS);
        memcpy(s->origins[s->n_origins++], value, len + 1);
        return 0;
}

static int check_url(const char *option, const char *value, struct cg_oauth_url *ret, struct cg_err *err)
{
        if (cg_oauth_url_parse(value, option, ret, err) < 0)
                return -1;
        if (!ret->query && strlen(value) <= CG_HF_MAX_URL)
                return 0;
        return cg_fail(err, CG_E_INVAL, "%s: at most %d bytes, and no query", option, CG_HF_MAX_URL);
}

/* The URL under which clients reach the server. */
static int set_public(const char *value, struct hf_options *o, struct cg_err *err)
{
        struct cg_oauth_url u;
        struct cg_host host;

        if (check_url("--public-url", value, &u, err) < 0 ||
            cg_host_parse(u.host, u.host_len, &host, err) < 0)
                return -1;
        o->public_url = value;
        snprintf(o->setup.public_host, sizeof(o->setup.public_host), "%s", host.text);
        return 0;
}

static int set_text(const char *option, const char *value, char *ret, size_t size, struct cg_err *err)
{
        cg_auto_free char *scopes = NULL;

        if (!*value || strlen(value) >= size || cg_oauth_scopes_add(&scopes, value, NULL) < 0)
                return cg_fail(err, CG_E_INVAL, "%s must have 1 to %zu characters of ASCII, without quotes",
                               option, size - 1);
        strcpy(ret, value);
        return 0;
}

static int apply(struct hf_options *o, int id, const char *value, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(TOKEN_FILE, struct hf_options, token_file),
                CG_OPT_PLACE(APPROVER_TOKEN, struct hf_options, approver_token),
                CG_OPT_PLACE(TLS_CERT, struct hf_options, tls_cert),
                CG_OPT_PLACE(TLS_KEY, struct hf_options, tls_key),
                CG_OPT_PLACE(PROXY, struct hf_options, behind_proxy),
                CG_OPT_PLACE(SSE, struct hf_options, setup.sse),
                CG_OPT_PLACE_INT(SESSIONS, "--max-sessions", struct hf_options, setup.max_sessions, 1,
                                 MAX_SESSIONS),
                CG_OPT_PLACE_INT(PER_CLIENT, "--max-sessions-per-client", struct hf_options,
                                 setup.max_per_client, 1, MAX_SESSIONS),
        };
        int r = cg_opt_store(places, CG_ARRAY_LEN(places), id, value, o, err);

        if (r <= 0)
                return r;
        switch (id) {
        case HTTP:
                return parse_address(value, o, err);
        case APPROVER_SCOPE:
                return set_text("--approver-scope", value, o->verifier.approver_scope,
                                sizeof(o->verifier.approver_scope), err);
        case TIER: /* without ":freeze" and the like; the process of a session checks it */
                snprintf(o->setup.tier, sizeof(o->setup.tier), "%.*s",
                         (int)strspn(value, "abcdefghijklmnopqrstuvwxyz"), value);
                return 0;
        case PUBLIC:
                return set_public(value, o, err);
        case ISSUER:
                if (check_url("--oauth-issuer", value, &(struct cg_oauth_url){ 0 }, err) < 0)
                        return -1;
                strcpy(o->verifier.issuer, value);
                return 0;
        case CA: /* the verifier is in another folder */
                if (!realpath(value, o->verifier.ca_file) || access(value, R_OK) < 0)
                        return cg_fail_errno(err, "--oauth-ca %s", value);
                return 0;
        case AUDIENCE:
                return set_text("--oauth-audience", value, o->verifier.audience, sizeof(o->verifier.audience),
                                err);
        case SCOPE:
                return set_text("--oauth-scope", value, o->verifier.scope, sizeof(o->verifier.scope), err);
        case ORIGIN:
                return add_origin(value, &o->setup, err);
        case IDLE:
                r = cg_opt_seconds("--idle", value, &o->setup.idle_ms, err);
                if (r < 0 || o->setup.idle_ms)
                        return r;
                return cg_fail(err, CG_E_INVAL, "--idle must be more than 0");
        default:
                return cg_fail(err, CG_E_INVAL, "this program is started by `cellgate mcp serve --http`");
        }
}

static int check(const struct hf_options *o, struct cg_err *err)
{
        const struct hf_verifier_setup *v = &o->verifier;
        bool remote = !o->path && !cg_host_is_this_machine(&o->host),
             any = remote && cg_addr_class(&o->host.addr) == CG_ADDR_UNSPECIFIED;

        if (!o->tls_cert != !o->tls_key)
                return cg_fail(err, CG_E_INVAL, "--tls-cert and --tls-key belong together");
        if (o->tls_cert && o->path)
                return cg_fail(err, CG_E_INVAL, "--tls-cert is for ports: a Unix socket needs no TLS");
        if ((v->audience[0] || v->scope[0] || v->approver_scope[0] || v->ca_file[0]) && !v->issuer[0])
                return cg_fail(
                        err, CG_E_INVAL,
                        "--oauth-audience, --oauth-scope, --oauth-ca and --approver-scope need --oauth-issuer");
        if ((o->token_file || o->approver_token) && v->issuer[0])
                return cg_fail(err, CG_E_INVAL, "%s and --oauth-issuer contradict each other",
                               o->token_file ? "--token-file" : "--approver-token-file");
        if (remote && !o->tls_cert && !o->behind_proxy)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "--http %s: an address that is not loopback needs TLS: give --tls-cert and "
                               "--tls-key, or --behind-proxy where a proxy has TLS; or use "
                               "`ssh -L %d:127.0.0.1:%d`",
                               o->host.text, o->port, o->port);
        if (remote && !v->issuer[0])
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "--http %s: an address that is not loopback needs --oauth-issuer, the "
                        "authorization server whose tokens say who sends a request; a token file is for "
                        "this machine's users",
                        o->host.text);
        if (v->issuer[0] && !o->public_url && (any || o->behind_proxy || o->path))
                return cg_fail(
                        err, CG_E_INVAL,
                        "--oauth-issuer needs --public-url https://HOST/mcp here: clients get tokens for "
                        "the URL under which they reach the server");
        return 0;
}

int cg_hf_parse(int argc, char **argv, struct hf_options *o, struct cg_err *err)
{
        struct cg_optscan scan = { .table = table, .n = CG_ARRAY_LEN(table), .argv = argv, .i = 1 };
        const char *value = NULL;
        int id = CG_OPT_END;

        *o = (struct hf_options){
                .setup = { .max_sessions = 32, .max_per_client = 8, .idle_ms = IDLE_MS, .tier = "full" }
        };
        while (scan.argc < argc && strcmp(argv[scan.argc], "--") != 0)
                scan.argc++;
        o->words = argv + scan.argc + (scan.argc < argc);
        while ((id = cg_opt_next(&scan, &value, err)) > CG_OPT_END)
                if (apply(o, id, value, err) < 0)
                        return -1;
        if (id == CG_OPT_END && (!o->words[0] || !(o->path || o->setup.host[0])))
                return apply(o, CG_OPT_ARG, "", err);
        return id == CG_OPT_END ? check(o, err) : id;
}
