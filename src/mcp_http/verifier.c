/*
 * The verifier of cellgate-mcp-http: decides whether access tokens are valid, and fetches the
 * issuer's keys. It is started by exec, reads no file of the user's and starts nothing, and has no
 * session; it reads what clients and the issuer send. The monitor passes its answers on.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/fetch.h"
#include "mcp_http/front.h"
#include "mcp_http/jwt.h"
#include "sandbox/egress/lock.h"

#define FETCH_MS 10000 /* all requests: clients wait for that long */
#define RETRY_MS 10000 /* after a failure */
/* Keys are fetched again, so that a token by a key that the issuer has withdrawn is refused. */
#define FRESH_MS   600000
#define UNKNOWN_MS 60000    /* between two fetches because of a token by an unknown key */
#define STALE_MS   86400000 /* keys of an issuer that cannot be reached */
#define GRANT_MS   60000    /* the front asks again then */

struct verifier {
        struct hf_verifier_setup setup;
        struct cg_log log;
        struct cg_oauth_net net;
        enum cg_addr_class place;
        struct cg_jwks *keys; /* NULL: none yet */
        int64_t fetched_ms, tried_ms, unknown_ms;
};

static int fetch(struct verifier *v, struct cg_oauth_response *doc, struct cg_err *err)
{
        struct cg_oauth_config config = { .issuer = v->setup.issuer };
        struct cg_oauth_server s = { .name = "issuer",
                                     .url = v->setup.issuer,
                                     .config = &config,
                                     .fetch = cg_oauth_net_fetch,
                                     .data = &v->net,
                                     .place = &v->place };
        struct cg_jwks *keys;

        v->tried_ms = cg_now_ms();
        v->net.end_ms = v->tried_ms + FETCH_MS;
        if (cg_oauth_issuer_keys(&s, doc, err) < 0 ||
            cg_jwks_parse(doc->body.data ?: "", doc->body.len, &keys, err) < 0)
                return -1;
        cg_jwks_free(v->keys);
        v->keys = keys;
        v->fetched_ms = cg_now_ms();
        return 0;
}

static void refresh(struct verifier *v)
{
        struct cg_oauth_response doc = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        struct cg_err err;

        if (fetch(v, &doc, &err) < 0)
                cg_log(&v->log, CG_LOG_ERROR, "no keys of the issuer %s: %s%s", v->setup.issuer, err.msg,
                       v->keys ? "; those fetched before are used"
                               : "; tokens are refused until it has some");
        cg_oauth_response_fini(&doc);
        if (v->keys && cg_now_ms() - v->fetched_ms > STALE_MS)
                v->keys = cg_jwks_free(v->keys);
}

static void refuse(struct hf_msg *m, int status, const char *why)
{
        m->status = status;
        snprintf(m->why, sizeof(m->why), "%.*s", (int)sizeof(m->why) - 1, why);
}

static void verify(struct verifier *v, const char *token, struct hf_msg *ret)
{
        cg_auto_buf struct cg_buf claims = { .max = CG_HF_MAX_JWT };
        struct cg_jwt_rules rules = { .issuer = v->setup.issuer,
                                      .audience = v->setup.audience,
                                      .scope = v->setup.scope,
                                      .approver = v->setup.approver_scope,
                                      .now_s = time(NULL) };
        int64_t now = cg_now_ms(), valid_s = 0;
        struct cg_err err;
        int r;

        if (now - v->tried_ms >= RETRY_MS && (!v->keys || now - v->fetched_ms >= FRESH_MS))
                refresh(v);
        if (!v->keys) {
                refuse(ret, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "tokens cannot be checked, because the keys of their issuer could not be fetched; the "
                       "server's log says why");
                return;
        }
        r = cg_jwt_verify(v->keys, token, &claims, &err);
        if (r == CG_JWT_NO_KEY && (!v->unknown_ms || now - v->unknown_ms >= UNKNOWN_MS)) {
                v->unknown_ms = now;
                refresh(v);
                if (v->keys)
                        r = cg_jwt_verify(v->keys, token, &claims, &err);
        }
        if (r == 0)
                r = cg_jwt_claims(claims.data, claims.len, &rules, ret->owner, &valid_s, &err);
        if (r)
                refuse(ret, r == CG_JWT_NO_SCOPE ? MHD_HTTP_FORBIDDEN : MHD_HTTP_UNAUTHORIZED, err.msg);
        ret->valid_ms = valid_s * 1000 < GRANT_MS ? valid_s * 1000 : GRANT_MS;
}

static int serve(struct verifier *v, struct cg_err *err)
{
        struct hf_ask ask;
        ssize_t n;

        refresh(v);
        while (cg_wait_fd(CG_HF_CONTROL, POLLIN, -1, err) == 0) {
                struct hf_msg answer = { 0 };
                size_t n_fds = 0;

                n = cg_recv_fds(CG_HF_CONTROL, &ask, sizeof(ask), NULL, &n_fds, err);
                if (n == 0) /* the monitor has ended */
                        return 0;
                if (!cg_hf_ask_is_whole(&ask, n))
                        return cg_fail(err, CG_E_PROTO, "a malformed message of the monitor");
                answer.type = ask.type;
                answer.session = ask.session;
                verify(v, ask.token, &answer);
                if (cg_wait_fd(CG_HF_CONTROL, POLLOUT, -1, err) < 0 ||
                    cg_send_fds(CG_HF_CONTROL, &answer, sizeof(answer), NULL, 0, err) < 0)
                        return -1;
        }
        return -1;
}

static int start(struct verifier *v, struct cg_err *err)
{
        char layers[128];
        size_t n_fds = 0;

        if (cg_wait_fd(CG_HF_CONTROL, POLLIN, -1, err) < 0)
                return -1;
        if (cg_recv_fds(CG_HF_CONTROL, &v->setup, sizeof(v->setup), NULL, &n_fds, err) != sizeof(v->setup))
                return cg_fail(err, CG_E_PROTO, "no setup from the monitor");
        if (cg_egress_lock_io_uring(err) < 0 || cg_oauth_net_init(&v->net, err) < 0 ||
            cg_egress_lock_decider(layers, sizeof(layers), err) < 0)
                return -1;
        return serve(v, err);
}

int cg_hf_verifier(void)
{
        struct verifier v = { .log = { .fd = 2, .level = CG_LOG_WARN, .who = "mcp serve" } };
        struct cg_err err;

        signal(SIGPIPE, SIG_IGN);
        prctl(PR_SET_NAME, "cg-mcp-verifier", 0, 0, 0);
        if (close_range(CG_HF_CONTROL + 1, ~0U, 0) == 0 && chdir("/") == 0 && start(&v, &err) == 0)
                return 0;
        cg_log(&v.log, CG_LOG_ERROR, "verifier of tokens: %s", err.msg);
        return 1;
}
