/*
 * HTTP requests by libcurl's multi interface. Linked into the tool server and the command line.
 *
 * libcurl's callbacks only store what they get: inside of them no request may be added or removed.
 * The requests' own callbacks run afterwards, from serve(), where everything is allowed.
 */
#include "mcp/http/http.h"

#include <ctype.h>
#include <sys/socket.h>
#include "base/host.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/http/curl.h"
#include "mcp/http/proxy.h"

struct cg_http {
        struct cg_curl curl;
        uv_loop_t *loop;
        CURLM *multi;
        uv_timer_t curl_timer; /* libcurl's */
        uv_timer_t timer;      /* the next deadline of a request, or 0: there is something to serve */
        struct cg_http_req *reqs;
        struct watch *watches;
        unsigned open_handles;
        unsigned depth; /* calls of serve() under way */
        bool closing;
};

struct req_times {
        int64_t idle_ms, idle_since_ms, total_ms, deadline_ms, connect_ms;
};

/* Where it goes. */
struct req_address {
        char *origin;
        bool foreign;
        bool direct;                  /* false: libcurl may connect to a proxy */
        enum cg_addr_class named_by;  /* when it is foreign */
        enum cg_addr_class forbidden; /* the class of an address that was not connected to */
        enum cg_addr_class peer;
};

struct cg_http_req {
        struct cg_http *h;
        struct cg_http_req *next;
        CURL *easy; /* NULL: libcurl is done with it */
        struct curl_slist *headers;
        struct cg_http_cbs cbs;
        void *data;
        char *body;
        size_t body_skip, body_len;
        bool repeatable, attempted;
        long sent_before;   /* bytes, to a proxy, before the first attempt */
        struct cg_buf head; /* the last response's: lines, each ended by NUL */
        struct cg_buf in;   /* of the body: not given out yet */
        uint64_t received, max_body;
        struct req_times times;
        int status;
        bool head_done, head_given, curl_paused, ended, aborted, calling;
        int code; /* 0: complete; else of err */
        struct cg_err err;
        char errbuf[CURL_ERROR_SIZE];
        struct req_address address;
};

/* A connection's descriptor as libcurl wants it watched. */
struct watch {
        uv_poll_t poll;
        struct cg_http *h;
        struct watch *next;
        curl_socket_t fd;
};

static void rearm(struct cg_http *h);

/* ---- failures */

static void fail(struct cg_http_req *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void fail(struct cg_http_req *r, int code, const char *fmt, ...)
{
        char text[sizeof(r->err.msg)];
        va_list ap;

        if (r->code) /* the first reason counts */
                return;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        r->code = cg_fail(&r->err, code, "%s: %s", r->address.origin, text);
}

/* GnuTLS says only that it failed; the reasons are bits of gnutls_certificate_status_t. */
static void describe_gnutls(long bits, char *buf, size_t size)
{
        static const struct {
                long bit;
                const char *text;
        } reasons[] = {
                { 1 << 5, "it was revoked" },
                { 1 << 6, "its issuer is not known (not in the system's certificates, nor in \"caFile\")" },
                { 1 << 7, "its issuer may not issue certificates" },
                { 1 << 8, "it is signed with an insecure algorithm" },
                { 1 << 9, "it is not valid yet" },
                { 1 << 10, "it has expired" },
                { 1 << 14, "it is for another host" },
                { 1 << 17, "it may not be used for a server" },
        };
        size_t n = 0;

        buf[0] = '\0';
        for (size_t i = 0; i < CG_ARRAY_LEN(reasons) && n < size; i++)
                if (bits & reasons[i].bit)
                        n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "; " : "", reasons[i].text);
}

/* The host of an address that a server names leads where that server may not lead this machine. */
static int refuse_place(const struct cg_http_req *r, enum cg_addr_class to, struct cg_err *err)
{
        return cg_fail(
                err, CG_E_INVAL,
                "%s: a server named this address, and it leads to %s, which a server at %s cannot name: nothing was sent",
                r->address.origin, cg_addr_class_name(to), cg_addr_class_name(r->address.named_by));
}

static void fail_by_curl(struct cg_http_req *r, CURLcode code)
{
        const struct cg_curl *c = &r->h->curl;
        /* Where a proxy may be the reason, libcurl's own text has its URL, with the password. */
        const char *text = r->errbuf[0] && !strcasestr(r->errbuf, "proxy") ? r->errbuf
                                                                           : c->easy_strerror(code);
        char why[512];
        long os = 0, verify = 0;

        c->easy_getinfo(r->easy, CURLINFO_OS_ERRNO, &os);
        if (strcasestr(r->errbuf, "unsupported proxy")) {
                fail(r, CG_E_INVAL,
                     "the proxy's URL cannot be used: it begins with http://, https:// or socks5h://; check http_proxy and https_proxy");
                return;
        }
        switch (code) {
        case CURLE_COULDNT_RESOLVE_HOST:
                fail(r, CG_E_NOTFOUND,
                     "the host's name was not found: check the URL and this machine's network");
                return;
        case CURLE_COULDNT_RESOLVE_PROXY:
                fail(r, CG_E_NOTFOUND, "the proxy's name was not found: check http_proxy and https_proxy");
                return;
        case CURLE_COULDNT_CONNECT:
                if (r->address.forbidden) {
                        r->code = refuse_place(r, r->address.forbidden, &r->err);
                        return;
                }
                fail(r, CG_E_SYS, "no connection: %s; is the server running?", os ? strerror((int)os) : text);
                r->err.sys_errno = (int)os;
                return;
        case CURLE_OPERATION_TIMEDOUT: /* the only one of libcurl's own that is used */
                fail(r, CG_E_TIMEDOUT, "no connection within %lld ms", (long long)r->times.connect_ms);
                return;
        case CURLE_PEER_FAILED_VERIFICATION:
                c->easy_getinfo(r->easy, CURLINFO_SSL_VERIFYRESULT, &verify);
                why[0] = '\0';
                if (c->gnutls)
                        describe_gnutls(verify, why, sizeof(why));
                fail(r, CG_E_PROTO, "the server's certificate is not accepted: %s", why[0] ? why : text);
                return;
        case CURLE_SSL_CACERT_BADFILE:
                fail(r, CG_E_INVAL, "the file of trusted certificates (\"caFile\") cannot be used: %s", text);
                return;
        case CURLE_ABORTED_BY_CALLBACK: /* on_attempt() */
                fail(r, CG_E_CLOSED,
                     "the connection was closed before an answer came; whether the request was handled is not known");
                return;
        case CURLE_GOT_NOTHING:
                fail(r, CG_E_CLOSED, "the connection was closed without an answer");
                return;
        case CURLE_PARTIAL_FILE:
        case CURLE_RECV_ERROR:
        case CURLE_SEND_ERROR:
        case CURLE_HTTP2:
        case CURLE_HTTP2_STREAM:
                fail(r, CG_E_CLOSED, "the connection broke off: %s", text);
                return;
        case CURLE_OUT_OF_MEMORY:
                fail(r, CG_E_NOMEM, "out of memory");
                return;
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_BAD_CONTENT_ENCODING:
                fail(r, CG_E_PROTO, "the answer is not HTTP: %s", text);
                return;
        case CURLE_SSL_CONNECT_ERROR:
                fail(r, CG_E_PROTO, "no TLS connection: %s", text);
                return;
        default:
                fail(r, CG_E_SYS, "%s", c->easy_strerror(code));
        }
}

/* ---- libcurl's callbacks of a request */

static size_t on_header(char *p, size_t size, size_t n, void *data)
{
        struct cg_http_req *r = data;
        size_t len = n * size;

        r->times.idle_since_ms = cg_now_ms();
        if (r->head_done) /* trailers, which nothing here needs */
                return len;
        if (len >= 5 && strncasecmp(p, "HTTP/", 5) == 0) /* another head: what came before was 1xx */
                r->head.len = 0;
        while (n && strchr("\r\n \t", p[n - 1]))
                n--;
        if (!n) {
                long status = 0;

                r->h->curl.easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
                r->status = (int)status;
                r->head_done = status >= 200 || status == 101;
                return len;
        }
        if (cg_buf_try_add(&r->head, p, n, NULL) < 0 || cg_buf_try_add(&r->head, "", 1, NULL) < 0) {
                fail(r, CG_E_LIMIT, "the head of the response is over %zu bytes", r->head.max);
                return 0;
        }
        return len;
}

static size_t on_body(char *p, size_t size, size_t n, void *data)
{
        struct cg_http_req *r = data;

        r->times.idle_since_ms = cg_now_ms();
        if (r->in.len >= CG_HTTP_MAX_HELD) {
                r->curl_paused = true;
                return CURL_WRITEFUNC_PAUSE;
        }
        r->received += n;
        if (r->max_body && r->received > r->max_body) {
                fail(r, CG_E_LIMIT, "the response is over %llu bytes", (unsigned long long)r->max_body);
                return 0;
        }
        if (cg_buf_try_add(&r->in, p, n, NULL) < 0) {
                fail(r, CG_E_NOMEM, "out of memory");
                return 0;
        }
        return n;
}

/*
 * libcurl has looked the name up and is about to connect. Here, and not before, because the answer
 * of another lookup could be another one.
 */
static curl_socket_t on_open(void *data, curlsocktype purpose, struct curl_sockaddr *to)
{
        struct cg_http_req *r = data;
        enum cg_addr_class class;
        struct cg_addr a;

        if (r->address.foreign && r->address.direct) {
                if (!cg_addr_from_sockaddr(&to->addr, &a))
                        return CURL_SOCKET_BAD;
                class = cg_addr_class_here(&a);
                if (!cg_addr_class_may_name(r->address.named_by, class)) {
                        r->address.forbidden = class;
                        return CURL_SOCKET_BAD;
                }
        }
        return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/*
 * libcurl is about to send the request: for the first time, or again because a kept connection
 * turned out to be closed. The server may have handled what was sent before.
 */
static int on_attempt(void *data, char *address, char *local_address, int port, int local_port)
{
        struct cg_http_req *r = data;
        struct cg_addr peer;
        long sent = 0;

        if (r->address.direct && cg_addr_parse(address, strcspn(address, "%"), &peer))
                r->address.peer = cg_addr_class_here(&peer);
        /* A kept connection, which was made for another request, was not checked for this one. */
        if (r->address.foreign && r->address.direct &&
            !cg_addr_class_may_name(r->address.named_by, r->address.peer)) {
                r->code = refuse_place(r, r->address.peer, &r->err);
                return CURL_PREREQFUNC_ABORT;
        }
        r->h->curl.easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &sent);
        if (!r->attempted)
                r->sent_before = sent;
        else if (sent > r->sent_before && r->body && !r->repeatable)
                return CURL_PREREQFUNC_ABORT;
        r->attempted = true;
        return CURL_PREREQFUNC_OK;
}

/* ---- the requests' callbacks */

static void req_free(struct cg_http_req *r)
{
        const struct cg_curl *c = &r->h->curl;

        c->easy_cleanup(r->easy);
        c->slist_free_all(r->headers);
        free(r->body);
        free(r->address.origin);
        cg_buf_fini(&r->head);
        cg_buf_fini(&r->in);
        free(r);
}

/* libcurl has no more to do with it. */
static void detach(struct cg_http_req *r)
{
        r->h->curl.multi_remove_handle(r->h->multi, r->easy);
        r->ended = true;
}

static bool has_news(const struct cg_http_req *r)
{
        if (r->aborted || r->calling)
                return false;
        return (r->head_done && !r->head_given) || r->in.len || r->ended;
}

/* Not inside of libcurl's callbacks. May call on_body(). */
static void unpause_curl(struct cg_http_req *r)
{
        if (r->aborted || r->ended || !r->curl_paused || r->in.len >= CG_HTTP_MAX_HELD)
                return;
        r->curl_paused = false;
        r->h->curl.easy_pause(r->easy, CURLPAUSE_CONT);
}

/* One callback, after which anything may have changed; @r may be freed. */
static void deliver(struct cg_http_req *r)
{
        r->calling = true;
        if (r->head_done && !r->head_given) {
                r->head_given = true;
                if (r->cbs.head)
                        r->cbs.head(r->data, r);
        } else if (r->in.len) {
                struct cg_buf in = r->in;

                cg_buf_init(&r->in, in.max);
                r->cbs.body(r->data, r, in.data, in.len);
                if (!r->aborted && !r->in.data) { /* its memory is used again */
                        in.len = 0;
                        r->in = in;
                } else {
                        cg_buf_fini(&in);
                }
                unpause_curl(r);
        } else {
                CG_UNLINK(r->h->reqs, r, next);
                r->aborted = true;
                r->cbs.end(r->data, r, r->code ? &r->err : NULL);
        }
        r->calling = false;
        if (r->aborted)
                req_free(r);
}

static void read_results(struct cg_http *h)
{
        struct CURLMsg *m;
        int left;

        while ((m = h->curl.multi_info_read(h->multi, &left))) {
                struct cg_http_req *r = NULL;
                CURLcode code = m->data.result;

                if (m->msg != CURLMSG_DONE)
                        continue;
                for (r = h->reqs; r && r->easy != m->easy_handle; r = r->next)
                        ;
                if (!r) /* a callback has aborted it */
                        continue;
                if (code != CURLE_OK)
                        fail_by_curl(r, code);
                detach(r);
        }
}

/* Called after everything that libcurl did. */
static void serve(struct cg_http *h)
{
        struct cg_http_req *r;

        if (h->depth || h->closing)
                return;
        h->depth++;
        do {
                read_results(h);
                for (r = h->reqs; r && !has_news(r); r = r->next)
                        ;
                if (r)
                        deliver(r);
        } while (r && !h->closing);
        h->depth--;
        rearm(h);
}

/* ---- times */

static int64_t deadline(const struct cg_http_req *r)
{
        int64_t idle = r->times.idle_since_ms + r->times.idle_ms;

        if (r->ended)
                return 0;
        if (!r->times.idle_ms || r->curl_paused || (r->times.deadline_ms && r->times.deadline_ms < idle))
                return r->times.deadline_ms;
        return idle;
}

static void on_timer(uv_timer_t *t)
{
        struct cg_http *h = t->data;
        int64_t now = cg_now_ms();

        for (struct cg_http_req *r = h->reqs; r; r = r->next) {
                int64_t at = deadline(r);

                if (!at || at > now)
                        continue;
                if (at == r->times.deadline_ms)
                        fail(r, CG_E_TIMEDOUT, "no complete answer within %lld ms",
                             (long long)r->times.total_ms);
                else
                        fail(r, CG_E_TIMEDOUT, "nothing was received for %lld ms",
                             (long long)r->times.idle_ms);
                detach(r);
        }
        serve(h);
}

static void rearm(struct cg_http *h)
{
        int64_t first = 0, now = cg_now_ms();

        if (h->closing)
                return;
        for (const struct cg_http_req *r = h->reqs; r; r = r->next) {
                int64_t at = has_news(r) ? now : deadline(r);

                if (at && (!first || at < first))
                        first = at;
        }
        if (first)
                uv_timer_start(&h->timer, on_timer, (uint64_t)CG_MAX(first - now, 0), 0);
        else
                uv_timer_stop(&h->timer);
}

/* ---- libcurl and the loop */

static void on_handle_closed(struct cg_http *h)
{
        if (--h->open_handles || !h->closing)
                return;
        free(h);
}

static void on_watch_closed(uv_handle_t *handle)
{
        struct watch *w = handle->data;
        struct cg_http *h = w->h;

        free(w);
        on_handle_closed(h);
}

static void close_watch(struct watch *w)
{
        CG_UNLINK(w->h->watches, w, next);
        uv_close((uv_handle_t *)&w->poll, on_watch_closed);
}

static void on_timer_closed(uv_handle_t *handle)
{
        on_handle_closed(handle->data);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
        struct watch *w = p->data;
        struct cg_http *h = w->h; /* @w may be gone afterwards */
        int running, bits = 0;

        if (events & UV_READABLE)
                bits |= CURL_CSELECT_IN;
        if (events & UV_WRITABLE)
                bits |= CURL_CSELECT_OUT;
        if (status < 0)
                bits |= CURL_CSELECT_ERR;
        h->curl.multi_socket_action(h->multi, w->fd, bits, &running);
        serve(h);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *assigned)
{
        struct cg_http *h = data;
        struct watch *w = assigned;
        int events = 0;

        if (what == CURL_POLL_REMOVE) {
                if (w) {
                        close_watch(w);
                        h->curl.multi_assign(h->multi, fd, NULL);
                }
                return 0;
        }
        if (!w) {
                w = calloc(1, sizeof(*w));
                if (!w || uv_poll_init_socket(h->loop, &w->poll, fd) < 0) {
                        free(w);
                        return -1;
                }
                w->h = h;
                w->fd = fd;
                w->poll.data = w;
                w->next = h->watches;
                h->watches = w;
                h->open_handles++;
                h->curl.multi_assign(h->multi, fd, w);
        }
        if (what & CURL_POLL_IN)
                events |= UV_READABLE;
        if (what & CURL_POLL_OUT)
                events |= UV_WRITABLE;
        return uv_poll_start(&w->poll, events, on_poll) < 0 ? -1 : 0;
}

static void on_curl_timer(uv_timer_t *t)
{
        struct cg_http *h = t->data;
        int running;

        h->curl.multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        serve(h);
}

static int on_curl_timeout(CURLM *multi, long ms, void *data)
{
        struct cg_http *h = data;

        if (h->closing)
                return 0;
        if (ms < 0)
                uv_timer_stop(&h->curl_timer);
        else
                uv_timer_start(&h->curl_timer, on_curl_timer, (uint64_t)ms, 0);
        return 0;
}

int cg_http_new(uv_loop_t *loop, struct cg_http **ret, struct cg_err *err)
{
        cg_auto_free struct cg_http *h = calloc(1, sizeof(*h));
        int r;

        if (!h)
                return cg_fail(err, CG_E_NOMEM, "HTTP");
        r = cg_curl_load(&h->curl, err);
        if (r < 0)
                return r;
        h->multi = h->curl.multi_init();
        if (!h->multi)
                return cg_fail(err, CG_E_NOMEM, "HTTP");
        h->loop = loop;
        h->curl.multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
        h->curl.multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
        h->curl.multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_curl_timeout);
        h->curl.multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
        h->curl.multi_setopt(h->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CG_HTTP_MAX_CONNECTIONS);
        uv_timer_init(loop, &h->curl_timer); /* these cannot fail */
        uv_timer_init(loop, &h->timer);
        h->curl_timer.data = h->timer.data = h;
        h->open_handles = 2;
        *ret = CG_STEAL(h);
        return 0;
}

struct cg_http *cg_http_free(struct cg_http *h)
{
        if (!h || h->closing)
                return NULL;
        while (h->reqs)
                cg_http_abort(h->reqs);
        h->closing = true;
        h->curl.multi_cleanup(h->multi);
        while (h->watches)
                close_watch(h->watches);
        uv_close((uv_handle_t *)&h->curl_timer, on_timer_closed);
        uv_close((uv_handle_t *)&h->timer, on_timer_closed);
        return NULL;
}

/* ---- requests */

static bool header_is_valid(const char *line)
{
        const char *colon = strchr(line, ':');

        if (!colon || colon == line)
                return false;
        for (const char *p = line; p < colon; p++)
                if (!isalnum((unsigned char)*p) && !strchr("!#$%&'*+-.^_`|~", *p))
                        return false;
        for (const char *p = colon; *p; p++)
                if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
                        return false;
        return true;
}

static int add_header(struct cg_http_req *r, const char *line, struct cg_err *err)
{
        const char *colon = strchr(line, ':');
        cg_auto_free char *empty = NULL;
        struct curl_slist *list;

        if (!header_is_valid(line)) /* the value may be a secret */
                return cg_fail(err, CG_E_INVAL,
                               "header \"%.*s\": its name or value has a character that HTTP forbids",
                               colon ? (int)CG_MIN(colon - line, 64) : 0, line);
        /* "Name:" would remove a header of libcurl's own; it writes "Name;" for an empty one. */
        if (!colon[1 + strspn(colon + 1, " \t")] && strcasecmp(line, "Expect:") != 0) {
                empty = strndup(line, (size_t)(colon - line) + 1);
                if (empty)
                        empty[colon - line] = ';';
                line = empty;
        }
        list = line ? r->h->curl.slist_append(r->headers, line) : NULL;
        if (!list)
                return cg_fail(err, CG_E_NOMEM, "HTTP request");
        r->headers = list;
        return 0;
}

/* False: a host that only libcurl can read, such as a name that is not ASCII. */
static bool read_host(const struct cg_curl *c, const char *url, bool *https, struct cg_host *ret)
{
        CURLU *u = c->url();
        char *scheme = NULL, *host = NULL;
        bool is = u && c->url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  c->url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  c->url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                  cg_host_parse(host, strlen(host), ret, NULL) == 0;

        if (is)
                *https = strcmp(scheme, "https") == 0;
        c->free(scheme);
        c->free(host);
        c->url_cleanup(u);
        return is;
}

/*
 * Decides about the proxy, for names in libcurl's place: only a connection that surely is the
 * server's own can be judged by its address. CG_E_INVAL: the URL may not be named.
 */
static int choose_route(struct cg_http_req *r, struct cg_http_request *q, struct cg_err *err)
{
        struct cg_host h;
        bool https;

        if (!read_host(&r->h->curl, q->url, &https, &h))
                return r->address.foreign ? cg_fail(err, CG_E_INVAL, "%s: malformed host", r->address.origin)
                                          : 0;
        /* By http a proxy would get the headers of a request to this machine unencrypted. */
        if (!https && cg_host_is_this_machine(&h))
                q->proxy = "";
        r->address.peer = cg_host_class(&h);
        if (r->address.foreign && !cg_addr_class_may_name(r->address.named_by, r->address.peer))
                return refuse_place(r, r->address.peer, err);
        if (h.is_addr) /* checked; whether it is in no_proxy is for libcurl to say */
                return 0;
        q->proxy = cg_http_proxy_of(https, &h, q->proxy, q->no_proxy);
        q->no_proxy = "";
        r->address.direct = !*q->proxy;
        return 0;
}

/* The first failure counts: no option is left out in silence. */
#define SET(option, value) \
        do { \
                if (code == CURLE_OK) \
                        code = c->easy_setopt(r->easy, option, value); \
        } while (0)

static CURLcode set_options(struct cg_http_req *r, const struct cg_http_request *q)
{
        const struct cg_curl *c = &r->h->curl;
        const char *usual = r->body ? "POST" : "GET", *method = q->method ?: usual;
        CURLcode code = CURLE_OK;

        SET(CURLOPT_PRIVATE, r);
        SET(CURLOPT_ERRORBUFFER, r->errbuf);
        SET(CURLOPT_URL, q->url);
        SET(CURLOPT_PROTOCOLS_STR, "http,https");
        SET(CURLOPT_FOLLOWLOCATION, 0L);
        SET(CURLOPT_NOSIGNAL, 1L);
        SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
        SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
        SET(CURLOPT_HTTPHEADER, r->headers);
        SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
        SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)r->times.connect_ms);
        SET(CURLOPT_TCP_NODELAY, 1L);
        SET(CURLOPT_TCP_KEEPALIVE, 1L);
        /* Without it libcurl waits for the thread of a name lookup that is given up. */
        SET(CURLOPT_QUICK_EXIT, 1L);
        SET(CURLOPT_HEADERFUNCTION, on_header);
        SET(CURLOPT_HEADERDATA, r);
        SET(CURLOPT_WRITEFUNCTION, on_body);
        SET(CURLOPT_WRITEDATA, r);
        SET(CURLOPT_PREREQFUNCTION, on_attempt);
        SET(CURLOPT_PREREQDATA, r);
        SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
        SET(CURLOPT_OPENSOCKETDATA, r);
        /* Not by a callback: then libcurl would write the head and a small body one by one. */
        if (r->body || strcmp(method, "POST") == 0) {
                SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(r->body_len - r->body_skip));
                SET(CURLOPT_POSTFIELDS, r->body ? r->body + r->body_skip : "");
        }
        SET(CURLOPT_CUSTOMREQUEST, method);
        if (strcmp(method, "HEAD") == 0)
                SET(CURLOPT_NOBODY, 1L);
        /*
         * Without the system's folder, which Debian's libcurl trusts beside any file, and of which
         * GnuTLS reads every file for each connection: 20 ms, in which the loop serves nobody.
         */
        if (q->ca_file || c->bundle[0]) {
                SET(CURLOPT_CAINFO, q->ca_file ?: c->bundle);
                SET(CURLOPT_CAPATH, (char *)NULL);
        }
        if (q->proxy)
                SET(CURLOPT_PROXY, q->proxy);
        if (q->no_proxy)
                SET(CURLOPT_NOPROXY, q->no_proxy);
        return code;
}

int cg_http_start(struct cg_http *h, const struct cg_http_request *q, const struct cg_http_cbs *cbs,
                  void *data, struct cg_http_req **ret, struct cg_err *err)
{
        struct cg_http_req *r = calloc(1, sizeof(*r));
        struct cg_http_request routed = *q;
        CURLcode code = CURLE_OK;
        CURLMcode mcode = CURLM_OK;
        int e = 0;

        if (!r) {
                free(q->body);
                return cg_fail(err, CG_E_NOMEM, "HTTP request");
        }
        r->h = h;
        r->cbs = *cbs;
        r->data = data;
        r->body = q->body;
        r->body_len = r->body ? q->body_len : 0;
        r->body_skip = r->body ? q->body_skip : 0;
        r->repeatable = q->repeatable;
        r->address.foreign = q->foreign;
        r->address.named_by = q->named_by;
        r->max_body = q->max_body;
        r->times.connect_ms = q->connect_ms ?: CG_HTTP_CONNECT_MS;
        r->times.idle_ms = q->idle_ms;
        r->times.total_ms = q->total_ms;
        r->times.idle_since_ms = cg_now_ms();
        r->times.deadline_ms = q->total_ms ? r->times.idle_since_ms + q->total_ms : 0;
        cg_buf_init(&r->head, CG_HTTP_MAX_HEAD);
        cg_buf_init(&r->in, 2 * CG_HTTP_MAX_HELD);
        if (h->closing)
                e = cg_fail(err, CG_E_CLOSED, "HTTP is being ended");
        if (e == 0)
                e = cg_http_check_url(h, q->url, err);
        if (e == 0)
                e = cg_http_origin(h, q->url, &r->address.origin, err);
        if (e == 0)
                e = choose_route(r, &routed, err);
        for (size_t i = 0; e == 0 && q->headers && q->headers[i]; i++)
                e = add_header(r, q->headers[i], err);
        if (e == 0) /* else a body over 1 MB waits a second for "100 Continue" */
                e = add_header(r, "Expect:", err);
        r->easy = e == 0 ? h->curl.easy_init() : NULL;
        if (e == 0 && !r->easy)
                e = cg_fail(err, CG_E_NOMEM, "HTTP request");
        if (e == 0)
                code = set_options(r, &routed);
        if (e == 0 && code == CURLE_OK)
                mcode = h->curl.multi_add_handle(h->multi, r->easy);
        if (code != CURLE_OK || mcode != CURLM_OK)
                e = cg_fail(err, CG_E_SYS, "%s: %s", r->address.origin,
                            code != CURLE_OK ? h->curl.easy_strerror(code) : h->curl.multi_strerror(mcode));
        if (e < 0) {
                req_free(r);
                return e;
        }
        r->next = h->reqs;
        h->reqs = r;
        rearm(h);
        *ret = r;
        return 0;
}

void cg_http_abort(struct cg_http_req *r)
{
        if (r->aborted)
                return;
        r->aborted = true;
        CG_UNLINK(r->h->reqs, r, next);
        if (!r->ended)
                detach(r);
        if (!r->calling)
                req_free(r);
}

int cg_http_status(const struct cg_http_req *r)
{
        return r->status;
}

const char *cg_http_header(const struct cg_http_req *r, const char *name, size_t nth)
{
        size_t len = strlen(name);

        for (const char *p = r->head.data; p && p < r->head.data + r->head.len; p += strlen(p) + 1) {
                if (strncasecmp(p, name, len) != 0 || p[len] != ':' || nth--)
                        continue;
                p += len + 1;
                return p + strspn(p, " \t");
        }
        return NULL;
}

char *cg_http_take_body(struct cg_http_req *r, size_t *skip, size_t *len)
{
        *skip = r->body_skip;
        *len = r->body_len;
        return CG_STEAL(r->body);
}

enum cg_addr_class cg_http_peer(const struct cg_http_req *r)
{
        return r->address.peer;
}

/* ---- URLs */

/* Parses @url, or resolves it against what @u holds. */
static int parse(const struct cg_curl *c, CURLU *u, const char *url, struct cg_err *err)
{
        char *scheme = NULL, *host = NULL, *user = NULL, *password = NULL;
        int r = 0;

        if (!u)
                return cg_fail(err, CG_E_NOMEM, "URL");
        for (const unsigned char *p = (const unsigned char *)url; *p; p++)
                if (*p <= 0x20 || *p == 0x7f)
                        return cg_fail(err, CG_E_INVAL, "the URL has a blank or a control character");
        if (c->url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
                return cg_fail(err, CG_E_INVAL, "it is not a URL (https://host/path)");
        c->url_get(u, CURLUPART_SCHEME, &scheme, 0);
        c->url_get(u, CURLUPART_HOST, &host, 0);
        c->url_get(u, CURLUPART_USER, &user, 0);
        c->url_get(u, CURLUPART_PASSWORD, &password, 0);
        if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
                r = cg_fail(err, CG_E_INVAL, "the URL must begin with http:// or https://");
        else if (!host || !*host)
                r = cg_fail(err, CG_E_INVAL, "the URL has no host");
        else if (user || password)
                r = cg_fail(err, CG_E_INVAL, "the URL has a user or a password: give them as a header");
        c->free(scheme);
        c->free(host);
        c->free(user);
        c->free(password);
        return r;
}

int cg_http_check_url(const struct cg_http *h, const char *url, struct cg_err *err)
{
        CURLU *u = h->curl.url();
        int r = parse(&h->curl, u, url, err);

        h->curl.url_cleanup(u);
        return r;
}

int cg_http_resolve(const struct cg_http *h, const char *base, const char *ref, char **ret,
                    struct cg_err *err)
{
        const struct cg_curl *c = &h->curl;
        CURLU *u = c->url();
        char *text = NULL;
        int r = parse(c, u, base, err);

        if (r == 0)
                r = parse(c, u, ref, err);
        if (r == 0 && (c->url_set(u, CURLUPART_FRAGMENT, NULL, 0) != CURLUE_OK ||
                       c->url_get(u, CURLUPART_URL, &text, 0) != CURLUE_OK))
                r = cg_fail(err, CG_E_INVAL, "it is not a URL");
        if (r == 0) {
                *ret = strdup(text);
                if (!*ret)
                        r = cg_fail(err, CG_E_NOMEM, "URL");
        }
        c->free(text);
        c->url_cleanup(u);
        return r;
}

int cg_http_origin(const struct cg_http *h, const char *url, char **ret, struct cg_err *err)
{
        const struct cg_curl *c = &h->curl;
        CURLU *u = c->url();
        char *scheme = NULL, *host = NULL, *port = NULL;
        int r = parse(c, u, url, err);

        if (r == 0 && (c->url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
                       c->url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
                       c->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK))
                r = cg_fail(err, CG_E_INVAL, "it is not a URL");
        if (r == 0) {
                for (char *p = host; *p; p++)
                        *p = (char)tolower((unsigned char)*p);
                r = cg_asprintf(ret, "URL", err, "%s://%s:%s", scheme, host, port);
        }
        c->free(scheme);
        c->free(host);
        c->free(port);
        c->url_cleanup(u);
        return r;
}

bool cg_http_same_origin(const struct cg_http *h, const char *a, const char *b)
{
        cg_auto_free char *x = NULL, *y = NULL;

        return cg_http_origin(h, a, &x, NULL) == 0 && cg_http_origin(h, b, &y, NULL) == 0 &&
               strcmp(x, y) == 0;
}
