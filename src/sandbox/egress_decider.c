/*
 * The decider of cellgate-egress: may a connection be made, and if so, here it is. Speaks with the host (control channel) and
 * with the relay; reads nothing that a sandbox has written but host names, which it parses itself.
 *
 * A question's way: by name (policy) -> asked of the host, if so set -> looked up, once -> each address vetted -> connected to
 * the vetted address -> the socket goes to the relay. Where the host is gone nothing is answered any more: everything ends.
 */
#include "sandbox/egress_int.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <uv.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "sandbox/egress_chan.h"

#define ADDRS_MAX 16            /* of one name; more are never needed to find one that answers */
#define OWN_MAX 256             /* addresses of this machine */
#define ATTEMPT_MS 10000        /* one address of several */
#define GRANTS_MAX 1024         /* remembered answers of one sandbox; then every question is asked again */
#define QUESTIONS_MAX 32        /* of one sandbox at once: more than a person reads */
#define TICK_MS 100
#define RELAY_MS 10000          /* until another part is ready */
#define BURST 64
#define CONTROL_HIGH (256u << 10) /* the host does not read: no more questions are taken */

struct grant {
        struct grant *next;
        char host[CG_HOST_MAX + 1];
        uint16_t port;
        bool allow;
        char why[CG_POLICY_REASON_MAX + 1];
};

struct box {
        struct box *next;
        uint32_t number;
        json_int_t sandbox; /* the host's name for it */
        struct cg_policy *policy;
        bool has_secrets; /* the injector knows it */
        struct grant *grants;
        size_t n_grants;
        size_t n_jobs;
};

/* Something the host has been asked; jobs that want the same wait for the same answer. */
struct question {
        struct question *next;
        uint32_t id;
        struct box *box;
        struct cg_host host;
        uint16_t port;
        int64_t deadline_ms;
};

enum state { ASKING, LOOKING_UP, CONNECTING, ANSWERING, CANCELLED };

struct decider;

struct job {
        struct job *next;
        struct decider *d;
        struct box *box;
        enum state state;
        uint32_t id;
        enum eg_kind kind;
        struct cg_host host;
        uint16_t port;
        struct question *question;
        uv_getaddrinfo_t lookup;
        bool looking_up;
        bool to_proxy;           /* the address is another proxy's: not vetted */
        uint16_t to_port;
        struct cg_addr addrs[ADDRS_MAX];
        size_t n_addrs, at;
        int fd;
        uv_poll_t *poll;
        int64_t attempt_end_ms, deadline_ms;
        int last_error;
        struct eg_msg answer;
        char list[20], rule[CG_AUTHORITY_MAX + 8]; /* what decided, for the event */
};

struct decider {
        uv_loop_t loop;
        uv_poll_t control_poll, relay_poll, injector_poll;
        int control_events, relay_events; /* what the two wait for now */
        uv_timer_t tick;
        struct cg_chan chan;
        int relay, injector;
        struct box *boxes;
        uint32_t next_box, next_question;
        struct question *questions;
        struct job *jobs;
        bool ended;
        int status;
};

static void job_connect(struct job *j);
static void job_answer(struct job *j, enum eg_result result, const char *why);

/* ---- the end */

static void end(struct decider *d, int status)
{
        if (!d->ended) {
                d->ended = true;
                d->status = status;
        }
        uv_stop(&d->loop);
}

/* What cannot be told to the host cannot be done either. */
static void tell(struct decider *d, json_t *message)
{
        struct cg_err err;

        if (d->ended)
                json_decref(message);
        else if (cg_chan_send(&d->chan, message, &err) < 0)
                end(d, err.sys_errno == EPIPE || err.sys_errno == ECONNRESET ? 0 : 1); /* the host has gone: not a failure */
}

static void tell_error(struct decider *d, json_int_t sandbox, const struct cg_err *err)
{
        tell(d, json_pack("{s:s, s:I, s:i, s:s%}", "type", "error", "sandbox", sandbox, "code", err->code, "message", err->msg,
                          strnlen(err->msg, sizeof(err->msg))));
}

/* ---- polling */

static void on_control(uv_poll_t *h, int status, int events);
static void on_relay(uv_poll_t *h, int status, int events);

static bool host_is_slow(const struct decider *d)
{
        return d->chan.out.len > CONTROL_HIGH;
}

static bool answers_wait(const struct decider *d)
{
        for (const struct job *j = d->jobs; j; j = j->next) {
                if (j->state == ANSWERING)
                        return true;
        }
        return false;
}

static void watch(struct decider *d)
{
        int control = UV_READABLE | (d->chan.out.len ? UV_WRITABLE : 0);
        int relay = (host_is_slow(d) ? 0 : UV_READABLE) | (answers_wait(d) ? UV_WRITABLE : 0);

        if (control != d->control_events)
                uv_poll_start(&d->control_poll, control, on_control);
        /* With no event at all it still tells of an end. */
        if (relay != d->relay_events)
                uv_poll_start(&d->relay_poll, relay ? relay : UV_DISCONNECT, on_relay);
        d->control_events = control;
        d->relay_events = relay;
}

/* ---- boxes */

static struct box *find_box(struct decider *d, uint32_t number)
{
        struct box *b = d->boxes;

        while (b && b->number != number)
                b = b->next;
        return b;
}

static struct box *find_sandbox(struct decider *d, json_int_t sandbox)
{
        struct box *b = d->boxes;

        while (b && b->sandbox != sandbox)
                b = b->next;
        return b;
}

static void forget_grants(struct box *b)
{
        while (b->grants) {
                struct grant *g = b->grants;

                b->grants = g->next;
                free(g);
        }
        b->n_grants = 0;
}

static void free_box(struct box *b)
{
        forget_grants(b);
        cg_policy_free(b->policy);
        free(b);
}

static const struct grant *find_grant(const struct box *b, const struct cg_host *h, uint16_t port)
{
        for (const struct grant *g = b->grants; g; g = g->next) {
                if (g->port == port && strcmp(g->host, h->text) == 0)
                        return g;
        }
        return NULL;
}

static void remember(struct box *b, const struct question *q, bool allow, const char *why)
{
        struct grant *g = b->n_grants < GRANTS_MAX ? calloc(1, sizeof(*g)) : NULL;

        if (!g)
                return;
        memcpy(g->host, q->host.text, sizeof(g->host));
        g->port = q->port;
        g->allow = allow;
        snprintf(g->why, sizeof(g->why), "%s", why);
        g->next = b->grants;
        b->grants = g;
        b->n_grants++;
}

static void fill_options(struct eg_msg *m, const struct box *b)
{
        const struct cg_policy_options *o = cg_policy_options(b->policy);

        m->box = b->number;
        m->head_ms = o->limits.head_ms;
        m->idle_ms = o->limits.idle_ms;
        m->connections = o->limits.connections;
        m->raw_http = o->http_proxy_port != 0;
        m->raw_socks = o->socks_proxy_port != 0;
        m->require_host_match = o->require_host_match;
        memcpy(m->text, o->strip, sizeof(o->strip));
}

/* Rare and small: both read all the time, so waiting for room is waiting for a moment. */
static int tell_part(int sock, const char *name, const struct eg_msg *m, const int *fds, size_t n, struct cg_err *err)
{
        int r;

        while ((r = eg_send(sock, m, fds, n, err)) == CG_TIMEOUT) {
                r = cg_wait_fd(sock, POLLOUT, 5000, err);
                if (r != 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "the %s does not read", name);
        }
        return r;
}

static int tell_relay(struct decider *d, const struct eg_msg *m, const int *fds, size_t n, struct cg_err *err)
{
        return tell_part(d->relay, "relay", m, fds, n, err);
}

static int tell_injector(struct decider *d, const struct eg_msg *m, const int *fds, size_t n, struct cg_err *err)
{
        return tell_part(d->injector, "injector", m, fds, n, err);
}

/* @secrets: -1 none. */
static int open_box(struct decider *d, json_int_t sandbox, const json_t *policy, int secrets, const int *fds, size_t n,
                    struct cg_err *err)
{
        struct eg_msg m = {.type = EG_BOX_OPEN};
        size_t n_boxes = 0;
        struct box *b;
        int r;

        for (b = d->boxes; b; b = b->next)
                n_boxes++;
        if (n_boxes >= EG_BOXES_MAX)
                return cg_fail(err, CG_E_LIMIT, "at most %d sandboxes", EG_BOXES_MAX);
        if (find_sandbox(d, sandbox))
                return cg_fail(err, CG_E_EXISTS, "this sandbox is open already");
        b = calloc(1, sizeof(*b));
        if (!b)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        b->sandbox = sandbox;
        b->number = ++d->next_box;
        r = cg_policy_new(policy, &b->policy, err);
        if (r == 0)
                fill_options(&m, b);
        /* The secrets go on unread. They are there before a request can be. */
        if (r == 0 && secrets >= 0)
                r = tell_injector(d, &m, &secrets, 1, err);
        b->has_secrets = r == 0 && secrets >= 0;
        if (r == 0)
                r = tell_relay(d, &m, fds, n, err);
        if (r < 0) {
                free_box(b);
                return r;
        }
        b->next = d->boxes;
        d->boxes = b;
        return 0;
}

static int change_box(struct decider *d, json_int_t sandbox, const json_t *policy, struct cg_err *err)
{
        struct box *b = find_sandbox(d, sandbox);
        struct eg_msg m = {.type = EG_BOX_OPTIONS};
        struct cg_policy *p;
        int r;

        if (!b)
                return cg_fail(err, CG_E_NOTFOUND, "no such sandbox");
        r = cg_policy_new(policy, &p, err);
        if (r < 0)
                return r;
        cg_policy_free(b->policy);
        b->policy = p;
        /* What was answered under other rules is asked again. */
        forget_grants(b);
        fill_options(&m, b);
        return tell_relay(d, &m, NULL, 0, err);
}

/* ---- jobs */

static void on_poll_closed(uv_handle_t *h)
{
        free(h);
}

static void stop_connecting(struct job *j, bool keep_fd)
{
        if (j->poll) {
                uv_close((uv_handle_t *)j->poll, on_poll_closed);
                j->poll = NULL;
        }
        if (!keep_fd)
                cg_closep_(&j->fd);
}

static void free_job(struct job *j)
{
        struct job **p = &j->d->jobs;

        while (*p && *p != j)
                p = &(*p)->next;
        if (*p)
                *p = j->next;
        stop_connecting(j, false);
        if (j->box)
                j->box->n_jobs--;
        free(j);
}

/* A lookup cannot be taken back: the job stays until it returns. */
static void drop_job(struct job *j)
{
        j->state = CANCELLED;
        j->question = NULL;
        stop_connecting(j, false);
        if (!j->looking_up)
                free_job(j);
}

static void drop_question(struct decider *d, struct question *q)
{
        struct question **p = &d->questions;

        while (*p && *p != q)
                p = &(*p)->next;
        if (*p)
                *p = q->next;
        free(q);
}

/* Nobody waits for the host's answer any more. */
static void tell_cancelled(struct decider *d, const struct question *q)
{
        tell(d, json_pack("{s:s, s:I, s:I}", "type", "egress_cancel", "sandbox", q->box->sandbox, "id", (json_int_t)q->id));
}

static bool is_wanted(const struct decider *d, const struct question *q)
{
        for (const struct job *j = d->jobs; j; j = j->next) {
                if (j->question == q)
                        return true;
        }
        return false;
}

static void cancel_job(struct job *j)
{
        struct decider *d = j->d;
        struct question *q = j->question;

        drop_job(j);
        if (q && !is_wanted(d, q)) {
                tell_cancelled(d, q);
                drop_question(d, q);
        }
}

static void close_box(struct decider *d, struct box *b)
{
        struct eg_msg m = {.type = EG_BOX_CLOSE, .box = b->number};
        struct job *j = d->jobs;
        struct cg_err err;

        while (j) {
                struct job *next = j->next;

                if (j->box == b) {
                        struct question *q = j->question;

                        b->n_jobs--;
                        j->box = NULL;
                        drop_job(j);
                        if (q && !is_wanted(d, q))
                                drop_question(d, q);
                }
                j = next;
        }
        for (struct box **p = &d->boxes; *p; p = &(*p)->next) {
                if (*p == b) {
                        *p = b->next;
                        break;
                }
        }
        if (tell_relay(d, &m, NULL, 0, &err) < 0 || (b->has_secrets && tell_injector(d, &m, NULL, 0, &err) < 0))
                end(d, 1);
        free_box(b);
}

/* ---- events */

static const char *const protocols[] = {
        [EG_HTTP] = "http",
        [EG_CONNECT] = "connect",
        [EG_SOCKS] = "socks",
        [EG_RAW_HTTP] = "http-proxy",
        [EG_RAW_SOCKS] = "socks-proxy",
};

static void how_to_allow(const struct job *j, enum eg_result result, char *buf, size_t size)
{
        char to[CG_AUTHORITY_MAX];

        buf[0] = '\0';
        cg_host_authority(&j->host, j->port, 0, to, sizeof(to));
        if (result == EG_DENIED && strcmp(j->list, "deniedDomains") == 0)
                snprintf(buf, size, "remove \"%s\" from network.deniedDomains", j->rule);
        else if (result == EG_DENIED)
                snprintf(buf, size, "add \"%s\" to network.allowedDomains", to);
        else if (result == EG_DENIED_ADDRESS)
                snprintf(buf, size, "add the address that it resolves to, with :%u, to network.allowedDomains", j->port);
        else if (result == EG_DENIED_TUNNEL)
                snprintf(buf, size, "remove network.refuseOpaqueTunnels");
}

/* Text that may have been cut in the middle of a character. */
static json_t *text_or_null(const char *s)
{
        size_t n = strlen(s);
        json_t *j = NULL;

        for (size_t cut = 0; n && !j && cut < 4 && cut < n; cut++)
                j = json_stringn(s, n - cut);
        return j ? j : json_null();
}

static void report(struct job *j, enum eg_result result, const char *why)
{
        bool allowed = result != EG_DENIED && result != EG_DENIED_ADDRESS && result != EG_DENIED_TUNNEL;
        char line[CG_AUTHORITY_MAX + CG_POLICY_REASON_MAX + 64], address[CG_ADDR_TEXT] = "";
        json_t *m;

        if (!j->box || (allowed && !cg_policy_options(j->box->policy)->all_events))
                return;
        if (allowed && j->n_addrs && j->at < j->n_addrs && !j->to_proxy)
                cg_addr_text(&j->addrs[j->at], address);
        m = json_pack("{s:s, s:I, s:s, s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o}", "type", "decision", "sandbox", j->box->sandbox,
                      "operation", "network-outbound", "protocol", protocols[j->kind], "host", j->host.text, "port", (int)j->port,
                      "allowed", allowed, "list", text_or_null(j->list), "rule", text_or_null(j->rule), "why", text_or_null(why),
                      "address", text_or_null(address));
        if (!m)
                return;
        if (!allowed) {
                snprintf(line, sizeof(line), "deny network-outbound %s:%u (%s)", j->host.text, j->port, why);
                json_object_set_new(m, "how", text_or_null(j->answer.extra));
                json_object_set_new(m, "line", text_or_null(line));
        } else if (result == EG_UNREACHABLE) {
                json_object_set_new(m, "error", text_or_null(why));
        }
        tell(j->d, m);
}

/* ---- answers */

/* True when the job is gone. */
static bool send_answer(struct job *j)
{
        struct decider *d = j->d;
        struct cg_err err;
        int r = eg_send(d->relay, &j->answer, &j->fd, j->fd >= 0 ? 1 : 0, &err);

        if (r == CG_TIMEOUT)
                return false;
        if (r < 0)
                end(d, 1);
        free_job(j);
        return true;
}

static void job_answer(struct job *j, enum eg_result result, const char *why)
{
        struct eg_msg *m = &j->answer;

        stop_connecting(j, result == EG_CONNECTED || result == EG_CONNECTED_PROXY);
        j->question = NULL;
        j->state = ANSWERING;
        m->type = EG_ANSWER;
        m->box = j->box->number;
        m->id = j->id;
        m->result = (uint8_t)result;
        snprintf(m->text, sizeof(m->text), "%s", why);
        if (result != EG_CONNECTED_PROXY)
                how_to_allow(j, result, m->extra, sizeof(m->extra));
        report(j, result, why);
        send_answer(j);
}

/* ---- connecting */

static void unreachable(struct job *j)
{
        char why[128];

        snprintf(why, sizeof(why), "%s", j->last_error ? strerror(j->last_error) : "no address");
        job_answer(j, EG_UNREACHABLE, why);
}

/*
 * A plain request to a host that may have credentials: the injector comes between, and the relay gets a socket that leads to it. 0,
 * also when there is nothing to put back.
 */
static int inject(struct job *j)
{
        struct eg_msg m = {.type = EG_INJECT, .box = j->box->number, .id = j->id};
        struct cg_policy_creds creds;
        struct cg_err err;
        int pair[2], r;

        if (!j->box->has_secrets || j->kind != EG_HTTP)
                return 0;
        cg_policy_creds(j->box->policy, &j->host, j->port, &creds);
        if (!creds.any)
                return 0;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return errno;
        memcpy(m.creds, creds.bits, sizeof(m.creds));
        r = tell_injector(j->d, &m, (const int[]){pair[1], j->fd}, 2, &err);
        close(pair[1]);
        if (r < 0) {
                close(pair[0]);
                end(j->d, 1);
                return EPIPE;
        }
        stop_connecting(j, false);
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
                stop_connecting(j, false);
                j->last_error = error;
                unreachable(j);
                return;
        }
        job_answer(j, j->to_proxy && j->kind < EG_RAW_HTTP ? EG_CONNECTED_PROXY : EG_CONNECTED, "");
}

static void next_address(struct job *j, int error)
{
        stop_connecting(j, false);
        j->last_error = error;
        j->at++;
        job_connect(j);
}

/* Looks how the attempt has ended; goes on to the next address when it has failed. */
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

        (void)events;
        if (status < 0)
                next_address(j, -status);
        else
                attempt_done(j);
        watch(h->loop->data);
}

static int wait_for_connection(struct job *j)
{
        int r;

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

/* 0: connected or on the way; else errno. */
static int attempt(struct job *j)
{
        struct sockaddr_storage sa;
        socklen_t len = cg_addr_to_sockaddr(&j->addrs[j->at], j->to_port, &sa);
        struct pollfd now;

        j->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (j->fd < 0)
                return errno;
        if (connect(j->fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)
                return errno;
        /* On the same machine it is there already. */
        now = (struct pollfd){.fd = j->fd, .events = POLLOUT};
        if (poll(&now, 1, 0) == 1) {
                attempt_done(j);
                return 0;
        }
        return wait_for_connection(j);
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
                stop_connecting(j, false);
                j->last_error = error;
                j->at++;
        }
        unreachable(j);
}

static void connect_unix(struct job *j, const char *path)
{
        struct cg_err err;

        if (cg_connect_unix_now(path, &j->fd, &err) < 0) {
                j->last_error = err.sys_errno;
                unreachable(j);
                return;
        }
        connected(j);
}

/* ---- looking up */

static size_t own_addresses(struct cg_addr *ret, size_t room)
{
        struct ifaddrs *list;
        size_t n = 0;

        /* Without them the fixed classes still hold. */
        if (getifaddrs(&list) < 0)
                return 0;
        for (struct ifaddrs *i = list; i && n < room; i = i->ifa_next) {
                if (i->ifa_addr && cg_addr_from_sockaddr(i->ifa_addr, &ret[n]))
                        n++;
        }
        freeifaddrs(list);
        return n;
}

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
        struct cg_addr own[OWN_MAX];
        const char *whys[ADDRS_MAX];
        size_t n_own, kept = 0, n_whys = 0;
        char why[400];

        if (j->to_proxy || j->host.is_addr)
                return true;
        n_own = own_addresses(own, OWN_MAX);
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
        job_answer(j, EG_DENIED_ADDRESS, why);
        return false;
}

static void on_addresses(struct job *j, const struct addrinfo *list)
{
        for (const struct addrinfo *a = list; a && j->n_addrs < ADDRS_MAX; a = a->ai_next) {
                if (a->ai_addr && cg_addr_from_sockaddr(a->ai_addr, &j->addrs[j->n_addrs]))
                        j->n_addrs++;
        }
        if (vet(j))
                job_connect(j);
}

static void on_lookup(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
        struct job *j = req->data;
        struct decider *d = j->d; /* the job, and the request in it, may be gone below */
        char why[160];

        j->looking_up = false;
        if (j->state == CANCELLED) {
                free_job(j);
        } else if (status < 0) {
                snprintf(why, sizeof(why), "the name could not be resolved: %s", uv_strerror(status));
                job_answer(j, EG_UNREACHABLE, why);
        } else {
                on_addresses(j, list);
        }
        uv_freeaddrinfo(list);
        watch(d);
}

static void look_up(struct job *j, const char *name)
{
        static const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        int r;

        j->state = LOOKING_UP;
        j->lookup.data = j;
        r = uv_getaddrinfo(&j->d->loop, &j->lookup, on_lookup, name, NULL, &hints);
        if (r < 0)
                job_answer(j, EG_UNREACHABLE, uv_strerror(r));
        else
                j->looking_up = true;
}

/* localhost is loopback by definition, whatever a resolver says. */
static void set_loopback(struct job *j)
{
        static const struct cg_addr v4 = {.family = 4, .b = {127, 0, 0, 1}}, v6 = {.family = 6, .b = {[15] = 1}};

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
                look_up(j, h->text);
                return;
        }
        if (vet(j))
                job_connect(j);
}

static void go(struct job *j)
{
        const struct cg_policy_options *o = cg_policy_options(j->box->policy);
        const struct cg_upstream *up;
        struct cg_host h;
        const char *path;

        j->deadline_ms = cg_now_ms() + o->limits.connect_ms;
        if (o->refuse_opaque_tunnels && (j->kind == EG_CONNECT || j->kind == EG_SOCKS)) {
                job_answer(j, EG_DENIED_TUNNEL, "this proxy does not tunnel CONNECTs it cannot inspect");
                return;
        }
        switch (cg_policy_route(j->box->policy, &j->host, j->kind != EG_HTTP, &up, &path)) {
        case CG_ROUTE_DIRECT:
                go_to(j, &j->host, j->port);
                return;
        case CG_ROUTE_MITM:
                j->to_proxy = true;
                connect_unix(j, path);
                return;
        case CG_ROUTE_PARENT:
                j->to_proxy = true;
                snprintf(j->answer.extra, sizeof(j->answer.extra), "%s", up->auth ? up->auth : "");
                if (cg_host_parse(up->host, strlen(up->host), &h, NULL) == 0)
                        go_to(j, &h, up->port);
                else
                        unreachable(j);
                return;
        }
}

/* An external proxy in place of this one: what it lets through is its own affair. */
static void go_raw(struct job *j)
{
        const struct cg_policy_options *o = cg_policy_options(j->box->policy);

        j->deadline_ms = cg_now_ms() + o->limits.connect_ms;
        j->to_port = j->kind == EG_RAW_HTTP ? o->http_proxy_port : o->socks_proxy_port;
        j->port = j->to_port;
        j->to_proxy = true;
        snprintf(j->host.text, sizeof(j->host.text), "127.0.0.1");
        set_loopback(j);
        if (j->to_port)
                job_connect(j);
        else
                job_answer(j, EG_DENIED, "there is no external proxy");
}

/* ---- asking */

static struct question *find_question(struct decider *d, const struct job *j)
{
        struct question *q = d->questions;

        while (q && (q->box != j->box || q->port != j->port || strcmp(q->host.text, j->host.text) != 0))
                q = q->next;
        return q;
}

static size_t count_questions(const struct decider *d, const struct box *b)
{
        size_t n = 0;

        for (const struct question *q = d->questions; q; q = q->next)
                n += q->box == b;
        return n;
}

static struct question *new_question(struct job *j)
{
        struct decider *d = j->d;
        uint32_t timeout_ms = cg_policy_options(j->box->policy)->ask_timeout_ms;
        struct question *q = calloc(1, sizeof(*q));
        json_t *class;

        if (!q)
                return NULL;
        q->id = ++d->next_question;
        q->box = j->box;
        q->host = j->host;
        q->port = j->port;
        q->deadline_ms = cg_now_ms() + timeout_ms;
        q->next = d->questions;
        d->questions = q;
        class = j->host.is_addr ? json_string(cg_addr_class_name(cg_addr_class(&j->host.addr))) : json_null();
        tell(d, json_pack("{s:s, s:I, s:I, s:s, s:i, s:s, s:o, s:I}", "type", "egress_request", "sandbox", j->box->sandbox, "id",
                          (json_int_t)q->id, "host", j->host.text, "port", (int)j->port, "protocol", protocols[j->kind],
                          "address", class, "timeoutMs", (json_int_t)timeout_ms));
        return q;
}

static void ask(struct job *j)
{
        const struct grant *g = find_grant(j->box, &j->host, j->port);

        if (g) {
                snprintf(j->list, sizeof(j->list), "answers");
                if (g->allow)
                        go(j);
                else
                        job_answer(j, EG_DENIED, g->why);
                return;
        }
        j->state = ASKING;
        j->question = find_question(j->d, j);
        if (!j->question && count_questions(j->d, j->box) < QUESTIONS_MAX)
                j->question = new_question(j);
        if (!j->question)
                job_answer(j, EG_DENIED, "too many questions are open already");
}

/* Every job that waits for this answer, and the question, are done with. */
static void answer_question(struct decider *d, struct question *q, bool allow, const char *why)
{
        struct job *j = d->jobs;

        while (j) {
                struct job *next = j->next;

                if (j->question == q) {
                        j->question = NULL;
                        snprintf(j->list, sizeof(j->list), "answers");
                        if (allow)
                                go(j);
                        else
                                job_answer(j, EG_DENIED, why);
                }
                j = next;
        }
        drop_question(d, q);
}

static void decide(struct job *j)
{
        struct cg_decision dec;

        cg_policy_decide(j->box->policy, &j->host, j->port, &dec);
        snprintf(j->list, sizeof(j->list), "%s", dec.list ? dec.list : "");
        snprintf(j->rule, sizeof(j->rule), "%s", dec.rule ? dec.rule : "");
        if (dec.verdict == CG_VERDICT_ALLOW)
                go(j);
        else if (dec.verdict == CG_VERDICT_ASK)
                ask(j);
        else
                job_answer(j, EG_DENIED, dec.why);
}

/* ---- the relay */

static void refuse(struct decider *d, const struct eg_msg *m, const char *why)
{
        struct eg_msg a = {.type = EG_ANSWER, .box = m->box, .id = m->id, .result = EG_DENIED};
        struct cg_err err;

        snprintf(a.text, sizeof(a.text), "%s", why);
        if (tell_relay(d, &a, NULL, 0, &err) < 0)
                end(d, 1);
}

static void on_ask(struct decider *d, const struct eg_msg *m)
{
        struct box *b = find_box(d, m->box);
        struct cg_host host = {.is_addr = false};
        struct job *j;

        if (!b || m->kind >= EG_KINDS || (m->kind < EG_RAW_HTTP && m->port == 0)) {
                refuse(d, m, "sandbox policy unavailable");
                return;
        }
        /* Twice as many as there can be connections: lookups go on for those that have been given up. */
        if (b->n_jobs >= 2 * (size_t)cg_policy_options(b->policy)->limits.connections) {
                refuse(d, m, "too many lookups are under way already");
                return;
        }
        if (m->kind < EG_RAW_HTTP && cg_host_parse(m->host, strlen(m->host), &host, NULL) < 0) {
                refuse(d, m, "malformed host");
                return;
        }
        j = calloc(1, sizeof(*j));
        if (!j) {
                refuse(d, m, "out of memory");
                return;
        }
        j->d = d;
        j->box = b;
        j->id = m->id;
        j->kind = (enum eg_kind)m->kind;
        j->host = host;
        j->port = m->port;
        j->fd = -1;
        j->next = d->jobs;
        d->jobs = j;
        b->n_jobs++;
        if (!uv_is_active((uv_handle_t *)&d->tick))
                uv_timer_start(&d->tick, d->tick.timer_cb, TICK_MS, TICK_MS);
        if (j->kind >= EG_RAW_HTTP)
                go_raw(j);
        else
                decide(j);
}

static void on_cancel(struct decider *d, const struct eg_msg *m)
{
        for (struct job *j = d->jobs; j; j = j->next) {
                if (j->box && j->box->number == m->box && j->id == m->id && j->state != CANCELLED) {
                        cancel_job(j);
                        return;
                }
        }
}

/* Refused before there was a host to ask about. The text is the relay's own, not the sandbox's. */
static void on_note(struct decider *d, const struct eg_msg *m)
{
        struct box *b = find_box(d, m->box);
        char text[sizeof(m->text)];

        if (!b)
                return;
        snprintf(text, sizeof(text), "%s", m->text);
        for (char *c = text; *c; c++)
                *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
        tell(d, json_pack("{s:s, s:I, s:s, s:s, s:n, s:i, s:b, s:n, s:n, s:s, s:s}", "type", "decision", "sandbox", b->sandbox,
                          "operation", "network-outbound", "protocol", m->kind < EG_KINDS ? protocols[m->kind] : "?", "host",
                          "port", 0, "allowed", 0, "list", "rule", "why", text, "how", "send a request that a proxy takes"));
}

static void on_relay_message(struct decider *d, const struct eg_msg *m)
{
        switch (m->type) {
        case EG_ASK:
                on_ask(d, m);
                return;
        case EG_CANCEL:
                on_cancel(d, m);
                return;
        case EG_NOTE:
                on_note(d, m);
                return;
        default:
                end(d, 1);
        }
}

static void send_waiting_answers(struct decider *d)
{
        struct job *j = d->jobs;

        while (j) {
                struct job *next = j->next;

                if (j->state == ANSWERING && !send_answer(j))
                        return;
                j = next;
        }
}

static void on_relay(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err = {.code = 0};
        struct eg_msg m;
        int r = status < 0 ? CG_CLOSED : 0;

        if (r == 0 && (events & UV_WRITABLE))
                send_waiting_answers(d);
        for (int i = 0; i < BURST && r == 0 && !host_is_slow(d) && !d->ended; i++) {
                int fds[1];
                size_t n = 0;

                r = eg_recv(d->relay, &m, fds, &n, &err);
                if (r == 0)
                        on_relay_message(d, &m);
        }
        if (r == CG_CLOSED || r < 0) {
                cg_fail(&err, CG_E_CLOSED, "the relay has ended");
                tell_error(d, 0, &err);
                end(d, 1);
        }
        watch(d);
}

/* ---- the host */

static int on_open(struct decider *d, const json_t *m, json_int_t sandbox, struct cg_err *err)
{
        int fds[EG_LISTENERS_MAX + 1];
        bool secrets = false;
        int64_t n;
        int r = cg_json_int(m, "listeners", 0, &n, err);

        if (r == 0 && (n < 1 || n > EG_LISTENERS_MAX))
                r = cg_fail(err, CG_E_INVAL, "open: 1 to %d listeners", EG_LISTENERS_MAX);
        if (r == 0)
                r = cg_json_bool(m, "secrets", false, &secrets, err);
        if (r == 0)
                r = cg_chan_take_fds(&d->chan, (size_t)n + secrets, fds, err);
        if (r < 0)
                return r;
        r = open_box(d, sandbox, json_object_get(m, "policy"), secrets ? fds[n] : -1, fds, (size_t)n, err);
        for (int64_t i = 0; i < n + secrets; i++)
                close(fds[i]);
        if (r == 0)
                tell(d, json_pack("{s:s, s:I}", "type", "opened", "sandbox", sandbox));
        return r;
}

static int on_answer(struct decider *d, const json_t *m, struct cg_err *err)
{
        struct question *q = d->questions;
        const char *decision, *reason;
        int64_t id;
        bool allow, keep;

        if (cg_json_int(m, "id", 0, &id, err) < 0 || cg_json_str(m, "decision", "", &decision, err) < 0 ||
            cg_json_str(m, "reason", "user denied", &reason, err) < 0)
                return CG_E_PARSE;
        while (q && q->id != id)
                q = q->next;
        if (!q)
                return 0; /* too late: it was refused meanwhile, or nobody wants it any more */
        allow = strcmp(decision, "once") == 0 || strcmp(decision, "session") == 0;
        keep = strcmp(decision, "session") == 0 || strcmp(decision, "never") == 0;
        if (!allow && !keep && strcmp(decision, "no") != 0)
                cg_fail(err, CG_E_INVAL, "answer: the decision is none of once, session, no, never: refused");
        if (keep)
                remember(q->box, q, allow, reason);
        answer_question(d, q, allow, reason);
        return allow || keep || strcmp(decision, "no") == 0 ? 0 : CG_E_INVAL;
}

static int on_control_message(struct decider *d, const json_t *m, struct cg_err *err)
{
        const char *type;
        int64_t sandbox;
        struct box *b;
        int r;

        if (cg_json_str(m, "type", "", &type, err) < 0 || cg_json_int(m, "sandbox", 0, &sandbox, err) < 0)
                return CG_E_PARSE;
        if (strcmp(type, "answer") == 0) {
                r = on_answer(d, m, err);
        } else if (strcmp(type, "open") == 0) {
                r = on_open(d, m, sandbox, err);
        } else if (strcmp(type, "policy") == 0) {
                r = change_box(d, sandbox, json_object_get(m, "policy"), err);
        } else if (strcmp(type, "close") == 0) {
                b = find_sandbox(d, sandbox);
                if (b)
                        close_box(d, b);
                r = 0;
        } else {
                r = cg_fail(err, CG_E_PROTO, "unknown control message");
        }
        if (r < 0)
                tell_error(d, sandbox, err);
        /* A host that is only wrong is told; one that cannot be understood is not the host. */
        return r == CG_E_PROTO ? r : 0;
}

static void on_control(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err = {.code = 0};
        int r = 0;

        if (events & UV_WRITABLE)
                r = cg_chan_flush(&d->chan, &err) < 0 ? CG_CLOSED : 0;
        if (status < 0)
                r = CG_CLOSED;
        if (r == 0 && (events & UV_READABLE))
                r = cg_chan_read(&d->chan, &err);
        while (r == 0 && !d->ended) {
                cg_auto_json json_t *m = NULL;

                r = cg_chan_next(&d->chan, &m, &err);
                if (r == 0)
                        r = on_control_message(d, m, &err);
        }
        if (r == CG_CLOSED) {
                end(d, 0);
                return;
        }
        if (r < 0) {
                tell_error(d, 0, &err);
                end(d, 1);
                return;
        }
        watch(d);
}

/* ---- time */

static void on_tick(uv_timer_t *t)
{
        struct decider *d = t->data;
        int64_t now = cg_now_ms();
        struct question *q = d->questions;
        struct job *j;

        while (q) {
                struct question *next = q->next;

                if (now >= q->deadline_ms) {
                        tell_cancelled(d, q);
                        answer_question(d, q, false, "nobody has answered in time whether to allow it");
                }
                q = next;
        }
        j = d->jobs; /* only now: an answer above may have ended some */
        while (j) {
                struct job *next = j->next;

                if (j->state == CONNECTING && (now >= j->attempt_end_ms || now >= j->deadline_ms)) {
                        next_address(j, ETIMEDOUT);
                } else if (j->state == LOOKING_UP && now >= j->deadline_ms && j->answer.type != EG_ANSWER) {
                        /* The lookup goes on; its job only waits for it. */
                        struct eg_msg m = {.type = EG_ASK, .box = j->box->number, .id = j->id};

                        m.type = EG_ANSWER;
                        m.result = EG_UNREACHABLE;
                        snprintf(m.text, sizeof(m.text), "the name was not resolved in time");
                        report(j, EG_UNREACHABLE, m.text);
                        if (tell_relay(d, &m, NULL, 0, NULL) < 0)
                                end(d, 1);
                        drop_job(j);
                }
                j = next;
        }
        if (!d->jobs)
                uv_timer_stop(&d->tick);
        watch(d);
}

/* ---- the beginning */

/* The injector says nothing after its first word: this is its end. */
static void on_injector(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err;

        (void)status;
        (void)events;
        cg_fail(&err, CG_E_CLOSED, "the injector has ended");
        tell_error(d, 0, &err);
        end(d, 1);
}

static int start_loop(struct decider *d, int control, int relay, int injector)
{
        int r = uv_loop_init(&d->loop);

        d->loop.data = d;
        d->relay = relay;
        d->injector = injector;
        cg_chan_init(&d->chan, control);
        if (r == 0)
                r = uv_poll_init(&d->loop, &d->control_poll, control);
        if (r == 0)
                r = uv_poll_init(&d->loop, &d->relay_poll, relay);
        if (r == 0)
                r = uv_poll_init(&d->loop, &d->injector_poll, injector);
        if (r == 0)
                r = uv_timer_init(&d->loop, &d->tick);
        d->control_poll.data = d->relay_poll.data = d->injector_poll.data = d->tick.data = d;
        d->tick.timer_cb = on_tick;
        return r;
}

/* Nobody may connect before they are what they should be. */
static int wait_for_part(int sock, const char *name, struct cg_err *err)
{
        struct eg_msg m;
        size_t n_fds = 0;

        if (cg_wait_fd(sock, POLLIN, RELAY_MS, err) != 0 || eg_recv(sock, &m, NULL, &n_fds, err) != 0 || m.type != EG_READY)
                return cg_fail(err, CG_E_CLOSED, "the %s could not be locked down", name);
        return 0;
}

int eg_decider_run(int control, int relay, int injector)
{
        struct decider d = {.control_events = -1, .relay_events = -1};
        struct cg_err err = {.code = 0};
        char layers[128];
        int r = start_loop(&d, control, relay, injector);

        if (r < 0)
                return 1;
        if (eg_lock_decider(layers, sizeof(layers), &err) < 0 || wait_for_part(relay, "relay", &err) < 0 ||
            wait_for_part(injector, "injector", &err) < 0) {
                tell_error(&d, 0, &err);
                return 1;
        }
        tell(&d, json_pack("{s:s, s:s}", "type", "ready", "layers", layers));
        watch(&d);
        uv_poll_start(&d.injector_poll, UV_READABLE | UV_DISCONNECT, on_injector);
        if (!d.ended)
                uv_run(&d.loop, UV_RUN_DEFAULT);
        return d.status;
}
