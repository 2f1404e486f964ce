/*
 * Connects to a server that the policy allows: looks its name up once, vets each address, and
 * connects to one of them. Runs in the decider of cellgate-egress.
 */
#include "sandbox/egress/decider_int.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"

#define ATTEMPT_MS 10000 /* one address of several */
/* Limit for one sandbox, so that others get their turn: libuv lets LOOKUP_THREADS / 2 block. */
#define LOOKUPS_OF_BOX 4

static void job_connect(struct job *j);

/* ---- connecting */

static void unreachable(struct job *j)
{
        char why[128];

        snprintf(why, sizeof(why), "%s", j->last_error ? strerror(j->last_error) : "no address");
        cg_decider_job_answer(j, CG_EGRESS_UNREACHABLE, why);
}

/*
 * Puts the injector between relay and server, for a plain request to a host that may have
 * credentials. 0, also when there is nothing to put back; else an errno.
 */
static int inject(struct job *j)
{
        struct cg_egress_msg m = { .type = CG_EGRESS_INJECT, .box = j->box->number, .id = j->id };
        struct cg_policy_creds creds;
        struct cg_err err;
        int pair[2], r;

        if (!j->box->has_secrets || j->kind != CG_EGRESS_HTTP)
                return 0;
        cg_policy_creds(j->box->policy, &j->host, j->port, &creds);
        if (!creds.any)
                return 0;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return errno;
        memcpy(m.creds, creds.bits, sizeof(m.creds));
        r = cg_decider_send_injector(j->d, &m, (const int[]){ pair[1], j->fd }, 2, &err);
        close(pair[1]);
        if (r < 0) {
                close(pair[0]);
                cg_decider_end(j->d, 1);
                return EPIPE;
        }
        cg_decider_job_stop_connecting(j, false);
        j->fd = pair[0];
        j->answer.resized = creds.resized;
        return 0;
}

static void connected(struct job *j)
{
        static const int on = 1;
        int error;

        setsockopt(j->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(j->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        error = inject(j);
        if (error) {
                cg_decider_job_stop_connecting(j, false);
                j->last_error = error;
                unreachable(j);
                return;
        }
        cg_decider_job_answer(j,
                              j->to_proxy && j->kind < CG_EGRESS_RAW_HTTP ? CG_EGRESS_CONNECTED_PROXY
                                                                          : CG_EGRESS_CONNECTED,
                              "");
}

static void next_address(struct job *j, int error)
{
        cg_decider_job_stop_connecting(j, false);
        j->last_error = error;
        j->at++;
        job_connect(j);
}

/* Handles the end of an attempt; goes on to the next address when it has failed. */
static void attempt_done(struct job *j)
{
        int error = 0;
        socklen_t len = sizeof(error);

        if (getsockopt(j->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                error = errno;
        if (error)
                next_address(j, error);
        else
                connected(j);
}

static void on_connect(uv_poll_t *h, int status, int events)
{
        struct job *j = h->data;

        if (status < 0)
                next_address(j, -status);
        else
                attempt_done(j);
        cg_decider_watch(h->loop->data);
}

/* 0: connected or on the way; else errno. */
static int attempt(struct job *j)
{
        struct sockaddr_storage sa;
        socklen_t len = cg_addr_to_sockaddr(&j->addrs[j->at], j->to_port, &sa);
        struct pollfd now;
        int r;

        j->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (j->fd < 0)
                return errno;
        if (connect(j->fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)
                return errno;
        /* A connection to this machine is complete at once. */
        now = (struct pollfd){ .fd = j->fd, .events = POLLOUT };
        if (poll(&now, 1, 0) == 1) {
                attempt_done(j);
                return 0;
        }
        j->poll = calloc(1, sizeof(*j->poll));
        if (!j->poll)
                return ENOMEM;
        r = uv_poll_init(&j->d->loop, j->poll, j->fd);
        if (r < 0) {
                free(j->poll);
                j->poll = NULL;
                return -r;
        }
        j->poll->data = j;
        r = uv_poll_start(j->poll, UV_WRITABLE, on_connect);
        return r < 0 ? -r : 0;
}

static void job_connect(struct job *j)
{
        j->state = CONNECTING;
        while (j->at < j->n_addrs) {
                int error;

                j->attempt_end_ms = cg_now_ms() + ATTEMPT_MS;
                error = cg_now_ms() < j->deadline_ms ? attempt(j) : ETIMEDOUT;
                if (error == 0)
                        return;
                cg_decider_job_stop_connecting(j, false);
                j->last_error = error;
                j->at++;
        }
        unreachable(j);
}

/* ---- looking up */

/* "resolved to a loopback address / a private address": every class once, in a fixed order. */
static void describe(const char *const *whys, size_t n, char *buf, size_t size)
{
        int at = snprintf(buf, size, "resolved to"), last = -1;

        for (;;) {
                const char *next = NULL;

                for (size_t i = 0; i < n; i++) {
                        int rank = cg_policy_vet_rank(whys[i]);

                        if (rank > last && (!next || rank < cg_policy_vet_rank(next)))
                                next = whys[i];
                }
                if (!next || at < 0 || (size_t)at >= size)
                        return;
                at += snprintf(buf + at, size - (size_t)at, "%s %s", last < 0 ? "" : " /", next);
                last = cg_policy_vet_rank(next);
        }
}

/* Keeps the addresses that may be used; answers when none is left. */
static bool vet(struct job *j)
{
        cg_auto_free struct cg_addr *own = NULL;
        const char *whys[ADDRS_MAX];
        size_t n_own = 0, kept = 0, n_whys = 0;
        char why[400];

        if (j->to_proxy || j->host.is_addr)
                return true;
        if (!cg_addr_list_own(&own, &n_own)) {
                snprintf(why, sizeof(why), "this machine's own addresses cannot be listed: %s; try again",
                         strerror(errno));
                cg_decider_job_answer(j, CG_EGRESS_UNREACHABLE, why);
                return false;
        }
        for (size_t i = 0; i < j->n_addrs; i++) {
                const char *w = cg_policy_vet(j->box->policy, &j->host, j->port, &j->addrs[i], own, n_own);

                if (w)
                        whys[n_whys++] = w;
                else
                        j->addrs[kept++] = j->addrs[i];
        }
        j->n_addrs = kept;
        if (kept || n_whys == 0)
                return true;
        describe(whys, n_whys, why, sizeof(why));
        cg_decider_job_answer(j, CG_EGRESS_DENIED_ADDRESS, why);
        return false;
}

static void on_lookup(uv_getaddrinfo_t *req, int status, struct addrinfo *list);

/* Starts lookups of @b, the oldest first. Callers may be walking the jobs: none is freed. */
static void start_lookups(struct decider *d, struct box *b)
{
        static const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };

        while (b->n_lookups < LOOKUPS_OF_BOX) {
                struct job *j, *oldest = NULL;
                int r;

                LIST_FOREACH(j, &d->jobs, entry)
                        if (j->box == b && j->state == LOOKING_UP && !j->looking_up)
                                oldest = j;
                if (!oldest)
                        return;
                oldest->lookup.data = oldest;
                r = uv_getaddrinfo(&d->loop, &oldest->lookup, on_lookup, oldest->name, NULL, &hints);
                if (r < 0) { /* as if the last address were tried: cg_decider_dial_expire() answers */
                        oldest->state = CONNECTING;
                        oldest->deadline_ms = 0;
                } else {
                        oldest->looking_up = true;
                        b->n_lookups++;
                }
        }
}

static void on_lookup(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
        struct job *j = req->data;
        struct decider *d = j->d; /* the job, and the request in it, may be freed below */
        struct box *b = j->box;
        char why[160];

        j->looking_up = false;
        if (b)
                b->n_lookups--;
        if (j->state == CANCELLED) {
                cg_decider_job_free(j);
        } else if (status < 0) {
                snprintf(why, sizeof(why), "the name could not be resolved: %s", uv_strerror(status));
                cg_decider_job_answer(j, CG_EGRESS_UNREACHABLE, why);
        } else {
                for (const struct addrinfo *a = list; a && j->n_addrs < ADDRS_MAX; a = a->ai_next)
                        if (a->ai_addr && cg_addr_from_sockaddr(a->ai_addr, &j->addrs[j->n_addrs]))
                                j->n_addrs++;
                if (!cg_decider_job_refuse(j) && vet(j))
                        job_connect(j);
        }
        uv_freeaddrinfo(list);
        if (b)
                start_lookups(d, b);
        cg_decider_watch(d);
}

/* localhost is loopback by definition; no resolver is asked. */
static void set_loopback(struct job *j)
{
        static const struct cg_addr v4 = { .family = 4, .b = { 127, 0, 0, 1 } },
                                    v6 = { .family = 6, .b = { [15] = 1 } };

        j->addrs[0] = v4;
        j->addrs[1] = v6;
        j->n_addrs = 2;
}

static void go_to(struct job *j, const struct cg_host *h, uint16_t port)
{
        j->to_port = port;
        if (h->is_addr) {
                j->addrs[0] = h->addr;
                j->n_addrs = 1;
        } else if (cg_host_is_loopback_name(h)) {
                set_loopback(j);
        } else {
                j->state = LOOKING_UP;
                snprintf(j->name, sizeof(j->name), "%s", h->text);
                start_lookups(j->d, j->box);
                return;
        }
        if (vet(j))
                job_connect(j);
}

void cg_decider_dial(struct job *j)
{
        const struct cg_policy *p = j->box->policy;
        const struct cg_upstream *up;
        struct cg_host h;
        struct cg_err err;
        const char *path;

        j->deadline_ms = cg_now_ms() + cg_policy_options(p)->limits.connect_ms;
        if (cg_policy_network(p)->refuse_opaque_tunnels &&
            (j->kind == CG_EGRESS_CONNECT || j->kind == CG_EGRESS_SOCKS)) {
                cg_decider_job_answer(j, CG_EGRESS_DENIED_TUNNEL,
                                      "this proxy does not tunnel CONNECTs it cannot inspect");
                return;
        }
        switch (cg_policy_route(p, &j->host, j->kind != CG_EGRESS_HTTP, &up, &path)) {
        case CG_ROUTE_DIRECT:
                go_to(j, &j->host, j->port);
                return;
        case CG_ROUTE_MITM:
                j->to_proxy = true;
                if (cg_connect_unix_now(path, &j->fd, &err) < 0) {
                        j->last_error = err.sys_errno;
                        unreachable(j);
                } else {
                        connected(j);
                }
                return;
        case CG_ROUTE_PARENT:
                j->to_proxy = true;
                snprintf(j->answer.extra, sizeof(j->answer.extra), "%s", up->auth ?: "");
                if (cg_host_parse(up->host, strlen(up->host), &h, NULL) == 0)
                        go_to(j, &h, up->port);
                else
                        unreachable(j);
                return;
        }
}

void cg_decider_dial_raw(struct job *j)
{
        const struct cg_settings_network *net = cg_policy_network(j->box->policy);

        j->deadline_ms = cg_now_ms() + cg_policy_options(j->box->policy)->limits.connect_ms;
        j->to_port = (uint16_t)(j->kind == CG_EGRESS_RAW_HTTP ? net->http_proxy_port : net->socks_proxy_port);
        j->port = j->to_port;
        j->to_proxy = true;
        snprintf(j->host.text, sizeof(j->host.text), "127.0.0.1");
        set_loopback(j);
        if (j->to_port)
                job_connect(j);
        else
                cg_decider_job_answer(j, CG_EGRESS_DENIED, "there is no external proxy");
}

void cg_decider_dial_expire(struct decider *d, int64_t now_ms)
{
        for (struct job *j = LIST_FIRST(&d->jobs), *next; j; j = next) {
                next = LIST_NEXT(j, entry);
                if (j->state == CONNECTING && (now_ms >= j->attempt_end_ms || now_ms >= j->deadline_ms)) {
                        next_address(j, ETIMEDOUT);
                } else if (j->state == LOOKING_UP && now_ms >= j->deadline_ms &&
                           j->answer.type != CG_EGRESS_ANSWER) {
                        /* The lookup cannot be cancelled; its job waits for it. */
                        struct cg_egress_msg m = { .type = CG_EGRESS_ANSWER,
                                                   .box = j->box->number,
                                                   .id = j->id,
                                                   .result = CG_EGRESS_UNREACHABLE };

                        snprintf(m.text, sizeof(m.text), "the name was not resolved in time");
                        cg_decider_job_report(j, CG_EGRESS_UNREACHABLE, m.text);
                        if (cg_decider_send_relay(d, &m, NULL, 0, NULL) < 0)
                                cg_decider_end(d, 1);
                        cg_decider_job_drop(j);
                }
        }
}
