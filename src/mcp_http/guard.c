/*
 * Who may send a request: checked on each one, before its body is read. Host and Origin keep web
 * pages out, whatever name they have given to this machine's address (DNS rebinding); the token or
 * the socket's peer keeps other users out. Runs in the front of cellgate-mcp-http.
 */
#include <nettle/memops.h>
#include <sys/socket.h>
#include "base/sha256_hex.h"
#include "mcp_http/front.h"

/* Without the port. An address in brackets has colons of its own. */
static size_t host_len(const char *authority)
{
        const char *colon = strrchr(authority, ':'), *bracket = strrchr(authority, ']');

        return colon && (!bracket || colon > bracket) ? (size_t)(colon - authority) : strlen(authority);
}

static bool is_ours(const struct hf_front *f, const char *authority)
{
        struct cg_host h;

        return cg_host_parse(authority, host_len(authority), &h, NULL) == 0 &&
               (cg_host_is_this_machine(&h) || strcmp(h.text, f->setup.host) == 0 ||
                strcmp(h.text, f->setup.public_host) == 0);
}

static bool origin_allowed(const struct hf_front *f, const char *origin)
{
        const char *host = strstr(origin, "://");

        for (uint32_t i = 0; i < f->setup.n_origins; i++)
                if (strcmp(f->setup.origins[i], origin) == 0)
                        return true;
        return host && (strncmp(origin, "http:", 5) == 0 || strncmp(origin, "https:", 6) == 0) &&
               is_ours(f, host + 3);
}

const char *cg_hf_bearer(struct MHD_Connection *c)
{
        const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");

        if (!value || strncasecmp(value, "Bearer ", 7) != 0)
                return "";
        return value + 7 + strspn(value + 7, " ");
}

/* Their place is by the digest, which nobody can choose to meet another one's. */
static unsigned char digest(const char *token, unsigned char ret[CG_HF_OWNER])
{
        cg_sha256(token, strlen(token), ret);
        return ret[0];
}

/* By the digest, since the token itself is the monitor's. */
static bool is_approver(const struct hf_front *f, const char *value)
{
        static const unsigned char none[sizeof(f->setup.approver)];
        unsigned char key[CG_HF_OWNER];

        digest(value, key);
        return memcmp(f->setup.approver, none, sizeof(none)) != 0 &&
               memeql_sec(key, f->setup.approver, sizeof(key));
}

static bool has_token(const struct hf_front *f, const char *value)
{
        size_t len = strlen(f->setup.token);

        return len && strlen(value) == len && memeql_sec(value, f->setup.token, len);
}

int cg_hf_grant_find(const struct hf_front *f, const char *token, struct hf_who *who, const char **why)
{
        unsigned char key[CG_HF_OWNER];
        const struct hf_grant *g = &f->grants[digest(token, key)];

        if (!*token || strlen(token) > CG_HF_MAX_JWT) {
                *why = *token ? "the token has more than 8,192 bytes"
                              : "the header \"Authorization: Bearer TOKEN\" is missing, with a token of the "
                                "authorization server that the header WWW-Authenticate of this response leads to";
                return MHD_HTTP_UNAUTHORIZED;
        }
        if (g->check_ms <= cg_now_ms() || memcmp(g->token, key, sizeof(key)) != 0)
                return HF_ASK;
        *who = g->who;
        return 0;
}

void cg_hf_grant_keep(struct hf_front *f, const char *token, const struct hf_msg *m, struct hf_who *who)
{
        unsigned char key[CG_HF_OWNER];
        struct hf_grant *g = &f->grants[digest(token, key)];

        who->until_ms = cg_now_ms() + m->life_ms;
        memcpy(who->owner, m->owner, CG_HF_OWNER);
        memcpy(g->token, key, sizeof(key));
        g->who = *who;
        g->check_ms = cg_now_ms() + m->valid_ms;
}

static bool is_own_user(const struct hf_front *f, struct MHD_Connection *c)
{
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct ucred peer = { .uid = (uid_t)-1 };
        socklen_t len = sizeof(peer);

        return info && getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
               peer.uid == f->uid;
}

int cg_hf_guard(const struct hf_front *f, struct MHD_Connection *c, const char *method, bool open,
                struct hf_who *who, const char **origin, const char **why)
{
        const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host"),
                   *page = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");

        if (f->n_conns > HF_MAX_CONNECTIONS) {
                *why = "there are too many connections";
                return MHD_HTTP_SERVICE_UNAVAILABLE;
        }
        if (!host || !is_ours(f, host)) {
                *why = "the Host header names neither this machine's loopback nor the address of --http";
                return MHD_HTTP_MISDIRECTED_REQUEST;
        }
        if (page && !origin_allowed(f, page)) {
                *why = "pages of this Origin may not use the server; --allow-origin allows them";
                return MHD_HTTP_FORBIDDEN;
        }
        *origin = page;
        if (f->setup.is_unix && !is_own_user(f, c)) {
                *why = "the server belongs to another user";
                return MHD_HTTP_FORBIDDEN;
        }
        /* A browser asks without credentials whether it may send them. */
        if (open || strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0)
                return 0;
        if (f->setup.metadata[0])
                return cg_hf_grant_find(f, cg_hf_bearer(c), who, why);
        if (is_approver(f, cg_hf_bearer(c))) {
                cg_hf_set_approver(who->owner, true);
                return 0;
        }
        if (f->setup.is_unix || has_token(f, cg_hf_bearer(c)))
                return 0;
        *why = "the header \"Authorization: Bearer TOKEN\" is missing or wrong; the token is in the file that "
               "the server named when it started (--token-file)";
        return MHD_HTTP_UNAUTHORIZED;
}
