/*
 * The verifier of cellgate-mcp-http: decides whether access tokens are valid, and fetches the
 * issuer's keys. It is started by exec, reads no file of the user's but that of --oauth-ca, starts
 * nothing, and has no session; it reads what clients and the issuer send. The monitor passes its
 * answers on.
 *
 * A thread fetches keys. Meanwhile tokens are checked by the keys that are there; only those that
 * need the new ones wait.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <time.h>
#include "base/fd.h"
#include "base/log.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/fetch.h"
#include "mcp_http/front.h"
#include "mcp_http/jwt.h"
#include "sandbox/egress/lock.h"

#define FETCH_MS 10000 /* all requests */
#define RETRY_MS 10000 /* after a failure */
/* Keys are fetched again, so that a token by a key that the issuer has withdrawn is refused. */
#define FRESH_MS   600000
#define UNKNOWN_MS 60000    /* between two fetches because of a token by an unknown key */
#define STALE_MS   86400000 /* keys of an issuer that cannot be reached */
#define GRANT_MS   60000    /* the front asks again then */
/* Tokens that wait for keys; the front and the monitor have fewer questions open. */
#define MAX_WAITING 512u

struct waiting {
        STAILQ_ENTRY(waiting) entry;
        struct hf_ask ask;
};

struct verifier {
        struct hf_verifier_setup setup;
        struct cg_log log;
        struct cg_jwks *keys; /* NULL: none yet */
        int64_t fetched_ms, tried_ms, unknown_ms;
        STAILQ_HEAD(, waiting) waiting;
        unsigned n_waiting;
        /* From its start until it writes to done_fd the thread has the members after this. */
        bool fetching;
        int done_fd;
        struct cg_oauth_net net;
        enum cg_addr_class place;
        struct cg_jwks *result; /* NULL: why */
        struct cg_err why;
};

/* ---- keys */

static void *fetch(void *data)
{
        struct verifier *v = data;
        struct cg_oauth_response doc = { .body = { .max = CG_OAUTH_MAX_DOCUMENT } };
        struct cg_oauth_config config = { .issuer = v->setup.issuer };
        struct cg_oauth_server s = { .name = "issuer",
                                     .url = v->setup.issuer,
                                     .config = &config,
                                     .fetch = cg_oauth_net_fetch,
                                     .data = &v->net,
                                     .place = &v->place };
        uint64_t one = 1;

        v->net.end_ms = cg_now_ms() + FETCH_MS;
        v->result = NULL;
        if (cg_oauth_issuer_keys(&s, &doc, &v->why) == 0)
                cg_jwks_parse(doc.body.data ?: "", doc.body.len, &v->result, &v->why);
        cg_oauth_response_fini(&doc);
        if (write(v->done_fd, &one, sizeof(one)) < 0)
                abort();
        return NULL;
}

static void start_fetch(struct verifier *v)
{
        pthread_t thread;
        int error;

        v->tried_ms = cg_now_ms();
        error = pthread_create(&thread, NULL, fetch, v);
        if (error) {
                cg_log(&v->log, CG_LOG_ERROR, "keys of the issuer: thread: %s", strerror(error));
                return;
        }
        pthread_detach(thread);
        v->fetching = true;
}

static void end_fetch(struct verifier *v)
{
        v->fetching = false;
        if (v->result) {
                cg_jwks_free(v->keys);
                v->keys = CG_STEAL(v->result);
                v->fetched_ms = cg_now_ms();
                return;
        }
        cg_log(&v->log, CG_LOG_ERROR, "no keys of the issuer %s: %s%s", v->setup.issuer, v->why.msg,
               v->keys ? "; those fetched before are used" : "; tokens are refused until it has some");
}

/* ---- tokens */

static void refuse(struct hf_msg *m, int status, const char *why)
{
        m->status = status;
        snprintf(m->why, sizeof(m->why), "%.*s", (int)sizeof(m->why) - 1, why);
}

static void check_claims(const struct verifier *v, const struct cg_buf *claims, struct hf_msg *ret)
{
        struct cg_jwt_rules rules = { .issuer = v->setup.issuer,
                                      .audience = v->setup.audience,
                                      .scope = v->setup.scope,
                                      .approver = v->setup.approver_scope,
                                      .now_s = time(NULL) };
        int64_t valid_s = 0;
        struct cg_err err;
        int r = cg_jwt_claims(claims->data, claims->len, &rules, ret->owner, &valid_s, &err);

        if (r)
                refuse(ret, r == CG_JWT_NO_SCOPE ? MHD_HTTP_FORBIDDEN : MHD_HTTP_UNAUTHORIZED, err.msg);
        ret->life_ms = valid_s * 1000;
        ret->valid_ms = CG_MIN(ret->life_ms, GRANT_MS);
}

/* Returns true when it needs keys that are being fetched; @waited: that it has waited for them. */
static bool verify(struct verifier *v, const char *token, bool waited, struct hf_msg *ret)
{
        cg_auto_buf struct cg_buf claims = { .max = CG_HF_MAX_JWT };
        int64_t now = cg_now_ms();
        struct cg_err err;
        int r;

        if (!v->fetching && now - v->tried_ms >= RETRY_MS && (!v->keys || now - v->fetched_ms >= FRESH_MS))
                start_fetch(v);
        if (v->keys && now - v->fetched_ms > STALE_MS)
                v->keys = cg_jwks_free(v->keys);
        if (!v->keys) {
                refuse(ret, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "tokens cannot be checked, because the keys of their issuer could not be fetched; the "
                       "server's log says why");
                return v->fetching && !waited;
        }
        r = cg_jwt_verify(v->keys, token, &claims, &err);
        if (r == CG_JWT_NO_KEY && !v->fetching && !waited &&
            (!v->unknown_ms || now - v->unknown_ms >= UNKNOWN_MS)) {
                v->unknown_ms = now;
                start_fetch(v);
        }
        if (r)
                refuse(ret, MHD_HTTP_UNAUTHORIZED, err.msg);
        else
                check_claims(v, &claims, ret);
        return r == CG_JWT_NO_KEY && v->fetching && !waited;
}

/* Answers, or waits for keys. */
static int take(struct verifier *v, const struct hf_ask *ask, bool waited, struct cg_err *err)
{
        struct hf_msg answer = { .type = ask->type, .session = ask->session };
        struct waiting *w;

        if (verify(v, ask->token, waited, &answer) && v->n_waiting < MAX_WAITING &&
            (w = malloc(sizeof(*w)))) {
                w->ask = *ask;
                STAILQ_INSERT_TAIL(&v->waiting, w, entry);
                v->n_waiting++;
                return 0;
        }
        if (cg_wait_fd(CG_HF_CONTROL, POLLOUT, -1, err) < 0)
                return -1;
        return cg_send_fds(CG_HF_CONTROL, &answer, sizeof(answer), NULL, 0, err);
}

static int take_waiting(struct verifier *v, struct cg_err *err)
{
        struct waiting *w;
        int r = 0;

        while (r == 0 && (w = STAILQ_FIRST(&v->waiting))) {
                STAILQ_REMOVE_HEAD(&v->waiting, entry);
                v->n_waiting--;
                r = take(v, &w->ask, true, err);
                free(w);
        }
        return r;
}

static int serve(struct verifier *v, struct cg_err *err)
{
        struct pollfd p[] = { { .fd = CG_HF_CONTROL, .events = POLLIN },
                              { .fd = v->done_fd, .events = POLLIN } };
        struct hf_ask ask;
        uint64_t count;
        ssize_t n;

        start_fetch(v);
        for (;;) {
                size_t n_fds = 0;

                if (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno != EINTR)
                        return cg_fail_errno(err, "poll");
                if (p[1].revents && read(v->done_fd, &count, sizeof(count)) == sizeof(count)) {
                        end_fetch(v);
                        if (take_waiting(v, err) < 0)
                                return -1;
                }
                if (!p[0].revents)
                        continue;
                n = cg_recv_fds(CG_HF_CONTROL, &ask, sizeof(ask), NULL, &n_fds, err);
                if (n == 0) /* the monitor has ended */
                        return 0;
                if (!cg_hf_ask_is_whole(&ask, n))
                        return cg_fail(err, CG_E_PROTO, "a malformed message of the monitor");
                if (take(v, &ask, false, err) < 0)
                        return -1;
        }
}

static int start(struct verifier *v, struct cg_err *err)
{
        char layers[128];
        size_t n_fds = 0;

        if (cg_wait_fd(CG_HF_CONTROL, POLLIN, -1, err) < 0)
                return -1;
        if (cg_recv_fds(CG_HF_CONTROL, &v->setup, sizeof(v->setup), NULL, &n_fds, err) != sizeof(v->setup))
                return cg_fail(err, CG_E_PROTO, "no setup from the monitor");
        v->setup.ca_file[sizeof(v->setup.ca_file) - 1] = '\0';
        if (v->setup.ca_file[0])
                v->net.ca_file = v->setup.ca_file;
        v->done_fd = eventfd(0, EFD_CLOEXEC);
        if (v->done_fd < 0)
                return cg_fail_errno(err, "eventfd");
        if (cg_egress_lock_io_uring(err) < 0 || cg_oauth_net_init(&v->net, err) < 0 ||
            cg_egress_lock_decider(v->net.ca_file, layers, sizeof(layers), err) < 0)
                return -1;
        return serve(v, err);
}

int cg_hf_verifier(void)
{
        struct verifier v = { .log = { .fd = 2, .level = CG_LOG_WARN, .who = "mcp serve" } };
        struct cg_err err;

        STAILQ_INIT(&v.waiting);
        signal(SIGPIPE, SIG_IGN);
        prctl(PR_SET_NAME, "cg-mcp-verifier", 0, 0, 0);
        if (close_range(CG_HF_CONTROL + 1, ~0U, 0) == 0 && chdir("/") == 0 && start(&v, &err) == 0)
                return 0;
        cg_log(&v.log, CG_LOG_ERROR, "verifier of tokens: %s", err.msg);
        return 1;
}
