/*
 * MCP over HTTP: Streamable HTTP of all revisions, and HTTP+SSE of 2024-11-05. Linked into the tool
 * server and the command line.
 *
 * Every message is a POST of its own. Its answer is JSON, a stream of events, or arrives on a
 * stream that a GET has opened. Until 2025-11-25 there are sessions, and a stream that broke off is
 * taken up again at the last event's id. With HTTP+SSE one GET brings all answers, and its first
 * event the address to POST to.
 */
#include "base/text.h"
#include "base/strv.h"
#include "config.h"
#include "mcp/ceilings.h"
#include "mcp/http/http.h"
#include "mcp/jsonrpc.h"
#include "mcp/oauth/work.h"
#include "mcp/http/sse.h"
#include "mcp/client/transport.h"

enum exchange_kind {
        REQUEST, /* POST of a request */
        NOTICE,  /* POST of a notification or a response */
        LISTEN,  /* GET of the messages that belong to no request; with HTTP+SSE of all */
        CLOSE,   /* DELETE of the session */
};

/* A request of HTTP, with those that replace it: redirects, and GETs that go on with its stream. */
struct exchange_login {
        bool unauthorized; /* it was refused, and waits for a token */
        unsigned attempts; /* to get one */
        unsigned token;    /* number of the one that was sent */
};

struct http_exchange {
        struct http_transport *t;
        struct http_exchange *next;
        enum exchange_kind kind;
        uint64_t id;             /* of the JSON-RPC request that it answers */
        struct cg_http_req *req; /* NULL: not started yet, or it waits until due_ms */
        char *body;              /* while there is no req */
        size_t skip, len, cost;
        char **headers; /* of the message */
        bool repeatable, alone, initialize;
        bool resumes;    /* it is a GET now */
        bool busy, dead; /* busy: a callback runs, and frees it afterwards if it is dead */
        bool is_sse, had_event;
        struct exchange_login login;
        unsigned redirects, failures;
        unsigned session;            /* number of the one that it was sent in; 0: none */
        unsigned made_in;            /* number of the one in which it was to be sent */
        bool session_lost;           /* that has ended before it was sent */
        char *url;                   /* where a redirect has led; NULL: that of the transport */
        enum cg_addr_class named_by; /* where the response with that redirect came from */
        int64_t due_ms, get_ms;      /* get_ms: when its last GET was sent */
        struct cg_sse sse;
        struct cg_buf answer;
};

struct http_transport {
        struct cg_transport base;
        struct cg_transport_options o;
        const struct cg_mcp_def *def;
        struct cg_transport_cbs cbs;
        void *data;
        struct cg_http *http;
        uv_timer_t timer;
        struct http_exchange *exchanges;
        char *url;      /* of POSTs; NULL: HTTP+SSE, and the server has not sent it yet */
        char *base_url; /* of GETs */
        bool endpoint;  /* the URL of POSTs comes from the server, at an address of this class */
        enum cg_addr_class endpoint_named_by;
        char *session;
        unsigned sessions; /* how many have been begun */
        char version[16];
        /*
         * The header Authorization; NULL: the definition has none of OAuth. While it is busy
         * nothing is sent: a token is on its way.
         */
        struct cg_oauth_work *oauth;
        unsigned tokens; /* how many it has had */
        bool sse, modern, ending, gone;
};

static void step(struct http_transport *t);
static int launch(struct http_exchange *x, struct cg_err *err);

/* ---- exchanges */

static struct http_exchange *exchange_new(struct http_transport *t, enum exchange_kind kind)
{
        struct http_exchange *x = calloc(1, sizeof(*x)), **p = &t->exchanges;

        if (!x)
                return NULL;
        x->t = t;
        x->kind = kind;
        cg_sse_init(&x->sse, CG_MCP_MAX_LINE);
        cg_buf_init(&x->answer, CG_MCP_MAX_LINE);
        while (*p) /* the order is that of sending */
                p = &(*p)->next;
        *p = x;
        return x;
}

static void exchange_drop(struct http_exchange *x)
{
        CG_UNLINK(x->t->exchanges, x, next);
        if (x->req)
                cg_http_abort(CG_STEAL(x->req));
        x->dead = true;
        if (x->busy)
                return;
        cg_free_list(x->headers);
        free(x->body);
        free(x->url);
        cg_sse_fini(&x->sse);
        cg_buf_fini(&x->answer);
        free(x);
}

/* Ends a callback: true if the exchange was dropped in it. */
static bool leave(struct http_exchange *x)
{
        x->busy = false;
        if (!x->dead)
                return false;
        x->req = NULL;
        exchange_drop(x);
        return true;
}

static void end_all(struct http_transport *t, const char *how)
{
        char text[2048];

        snprintf(text, sizeof(text), "%s", how);
        cg_mcp_def_redact(t->def, text);
        t->base.ops->end(&t->base);
        t->cbs.ended(t->data, text);
}

#define NOT_KNOWN "whether the request was carried out is not known"

/* The request that the exchange is for has no answer: the exchange is over. */
static void fail(struct http_exchange *x, bool session_lost, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

static void fail(struct http_exchange *x, bool session_lost, const char *fmt, ...)
{
        struct http_transport *t = x->t;
        int status = x->req ? cg_http_status(x->req) : 0;
        struct cg_transport_failure f = { .status = status,
                                          .session_lost = session_lost || x->session_lost,
                                          .session_renewed = x->session != t->sessions };
        cg_auto_buf struct cg_buf body = x->answer;
        uint64_t id = x->kind == REQUEST ? x->id : 0;
        char text[2048];
        bool listens;
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (x->resumes && !strstr(text, NOT_KNOWN)) /* the server has accepted the request before */
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "; " NOT_KNOWN);
        cg_mcp_def_redact(t->def, text);
        if (t->oauth)
                cg_oauth_work_redact(t->oauth, text);
        cg_buf_init(&x->answer, 0);
        if (!x->is_sse && body.len)
                f.body = (struct cg_slice){ body.data, body.len };
        f.text = text;
        listens = t->sse && x->kind == LISTEN;
        exchange_drop(x);
        if (listens && !t->ending) /* HTTP+SSE has one stream: its end is the server's */
                end_all(t, text);
        else if (id && t->cbs.waits(t->data, id))
                t->cbs.failed(t->data, id, &f);
        else if (!t->ending)
                cg_log(t->o.log->log, CG_LOG_DEBUG, "MCP server %s: %s", t->def->name, text);
}

/* ---- answers */

/* Gives a message to the client. False: the exchange, or all of it, is gone. */
static bool deliver(struct http_exchange *x, const char *text, size_t len)
{
        struct http_transport *t = x->t;
        struct cg_slice s = cg_json_trim((struct cg_slice){ text, len });
        bool old = x->session ? x->session != t->sessions : x->kind == REQUEST && x->made_in != t->sessions;

        if (s.len)
                t->cbs.line(t->data, s, x->kind == REQUEST ? x->id : 0, old);
        return !x->dead && !t->ending;
}

/* The address of HTTP+SSE's POSTs. */
static bool on_endpoint(struct http_exchange *x, const char *ref)
{
        struct http_transport *t = x->t;
        struct cg_err err;

        if (t->url)
                return true;
        if (cg_http_resolve(t->http, x->url ?: t->base_url, ref, &t->url, &err) < 0) {
                end_all(t, "its \"endpoint\" event has no usable address");
                return false;
        }
        if (!cg_http_same_origin(t->http, t->base_url, t->url)) {
                char text[600], shown[300];
                cg_auto_free char *origin = NULL;

                cg_http_origin(t->http, t->url, &origin, NULL);
                snprintf(shown, sizeof(shown), "%s", origin ?: "another server");
                snprintf(text, sizeof(text),
                         "its \"endpoint\" event names another server, %s: messages are not sent there",
                         shown);
                end_all(t, text);
                return false;
        }
        t->endpoint = true;
        t->endpoint_named_by = cg_http_peer(x->req);
        step(t);
        return !x->dead && !t->ending;
}

/*
 * A response should end after the answer. Some stay open, or never begin where the answer came on
 * another stream: only a few are kept, the latest, because each has a connection.
 */
static void drop_lingering(struct http_transport *t)
{
        struct http_exchange *x, *next;
        unsigned n = 0;

        for (x = t->exchanges; x; x = x->next)
                n += x->kind == REQUEST && !t->cbs.waits(t->data, x->id);
        for (x = t->exchanges; x && n > CG_HTTP_MAX_LINGERING; x = next) {
                next = x->next;
                if (x->kind == REQUEST && !t->cbs.waits(t->data, x->id)) {
                        exchange_drop(x);
                        n--;
                }
        }
}

static void on_events(struct http_exchange *x, const char *p, size_t len)
{
        struct http_transport *t = x->t;
        struct cg_sse_event e;
        struct cg_err err;
        size_t used;
        int r;

        for (bool on = true; on && len; p += used, len -= used) {
                r = cg_sse_read(&x->sse, p, len, &used, &e, &err);
                if (r < 0) {
                        t->cbs.too_long(t->data, x->id, err.msg);
                        on = !x->dead && !t->ending;
                } else if (r == 1 && strcmp(e.type, "endpoint") == 0 && t->sse && x->kind == LISTEN) {
                        on = on_endpoint(x, e.data);
                } else if (r == 1 && strcmp(e.type, "message") == 0) {
                        x->had_event = true;
                        x->failures = 0;
                        on = deliver(x, e.data, e.len);
                        cg_sse_shrink(&x->sse);
                }
        }
        drop_lingering(t);
}

static bool type_is(const struct cg_http_req *r, const char *type)
{
        const char *v = cg_http_header(r, "Content-Type", 0);
        size_t n = strlen(type);

        return v && strncasecmp(v, type, n) == 0 && (!v[n] || v[n] == ';' || v[n] == ' ' || v[n] == '\t');
}

static bool ok(int status)
{
        return status >= 200 && status < 300;
}

/* A session id is sent back in a header: visible ASCII, says the protocol. */
static int keep_session(struct http_transport *t, const char *id)
{
        size_t n = strlen(id);

        for (size_t i = 0; i < n; i++)
                if ((unsigned char)id[i] < 0x21 || (unsigned char)id[i] > 0x7e)
                        return -1;
        if (!n || n > CG_MCP_MAX_SESSION_ID)
                return -1;
        free(t->session);
        t->session = strdup(id);
        return t->session ? 0 : -1;
}

static void on_head(void *data, struct cg_http_req *r)
{
        struct http_exchange *x = data;
        int status = cg_http_status(r);
        const char *session = cg_http_header(r, "Mcp-Session-Id", 0);

        x->is_sse = ok(status) && type_is(r, "text/event-stream");
        if (x->initialize && ok(status) && session && !x->t->modern && keep_session(x->t, session) < 0) {
                x->busy = true;
                fail(x, false, "its session id is not visible ASCII of at most %u bytes",
                     CG_MCP_MAX_SESSION_ID);
                leave(x);
        }
}

static void drop_too_long(struct http_exchange *x, const char *what, size_t limit)
{
        struct http_transport *t = x->t;
        uint64_t id = x->id;
        struct cg_err err;

        cg_fail(&err, CG_E_LIMIT, "%s of more than %zu bytes", what, limit);
        exchange_drop(x);
        t->cbs.too_long(t->data, id, err.msg);
}

static void on_body(void *data, struct cg_http_req *r, const char *p, size_t len)
{
        struct http_exchange *x = data;
        struct http_transport *t = x->t;
        /* With HTTP+SSE the response to a POST has no answer. */
        bool has_answer = x->kind == REQUEST && ok(cg_http_status(r)) && !t->sse;
        size_t held = len;

        x->busy = true;
        for (const struct http_exchange *y = t->exchanges; y; y = y->next)
                held += y->answer.len + y->sse.data.len;
        if (held > CG_HTTP_MAX_UNFINISHED && x->kind == REQUEST)
                drop_too_long(x, "set of unfinished answers", CG_HTTP_MAX_UNFINISHED);
        else if (held > CG_HTTP_MAX_UNFINISHED && x->kind == LISTEN)
                fail(x, false, "unfinished answers of more than %zu bytes", CG_HTTP_MAX_UNFINISHED);
        else if (x->is_sse && x->kind <= LISTEN)
                on_events(x, p, len);
        else if ((has_answer || (x->kind == REQUEST && x->answer.len < CG_HTTP_MAX_ERROR)) &&
                 cg_buf_try_add(&x->answer, p, len, NULL) < 0)
                drop_too_long(x, "answer", CG_MCP_MAX_LINE);
        leave(x);
}

/* ---- the ends of requests */

/* Sends this message to where the response says, and no later one; never to another origin. */
static void redirect(struct http_exchange *x)
{
        struct http_transport *t = x->t;
        const char *location = cg_http_header(x->req, "Location", 0);
        int status = cg_http_status(x->req);
        const char *from = x->kind == LISTEN || x->resumes ? t->base_url : t->url;
        cg_auto_free char *to = NULL, *origin = NULL;
        struct cg_err err;

        if (!location || cg_http_resolve(t->http, x->url ?: from, location, &to, &err) < 0) {
                fail(x, false, "HTTP %d without a usable \"Location\"", status);
                return;
        }
        if (!cg_http_same_origin(t->http, from, to)) {
                cg_http_origin(t->http, to, &origin, NULL);
                fail(x, false,
                     "it redirects to another server, %s: nothing is sent there; if that is right, change \"url\"",
                     origin ?: "?");
                return;
        }
        /* Others than 307 and 308 turn a POST into a GET. */
        if (status != 307 && status != 308 && x->kind != LISTEN && !x->resumes) {
                fail(x, false,
                     "it redirects with HTTP %d, which would lose the message: change \"url\" to the new address",
                     status);
                return;
        }
        if (++x->redirects > CG_HTTP_MAX_REDIRECTS) {
                fail(x, false, "it redirects more than %u times", CG_HTTP_MAX_REDIRECTS);
                return;
        }
        free(x->url);
        x->url = CG_STEAL(to);
        x->named_by = cg_http_peer(x->req);
        x->body = cg_http_take_body(x->req, &x->skip, &x->len);
        x->req = NULL;
        if (launch(x, &err) < 0)
                fail(x, false, "%s", err.msg);
}

/*
 * After 401, and after 403 for want of a scope: gets a token and sends the same again. False: that
 * is no way, or has been tried often enough.
 */
static bool authorize(struct http_exchange *x)
{
        struct http_transport *t = x->t;
        int status = cg_http_status(x->req);
        struct cg_oauth_challenge challenge = { 0 };
        enum cg_addr_class place;
        const char *value;
        struct cg_err err;
        int r = 0;

        if ((status != 401 && status != 403) || !t->oauth || t->ending ||
            x->login.attempts >= CG_OAUTH_MAX_ATTEMPTS)
                return false;
        for (size_t i = 0; (value = cg_http_header(x->req, "WWW-Authenticate", i)); i++)
                cg_oauth_challenge_add(&challenge, value, NULL);
        /* Without a challenge it may be OAuth of 2025-03-26. */
        value = cg_http_header(x->req, "WWW-Authenticate", 0);
        if ((value && !challenge.bearer) ||
            (status == 403 && (!challenge.error || strcmp(challenge.error, "insufficient_scope") != 0))) {
                cg_oauth_challenge_fini(&challenge);
                return false;
        }
        x->login.attempts++;
        place = cg_http_peer(x->req);
        x->body = cg_http_take_body(x->req, &x->skip, &x->len);
        x->req = NULL;
        x->answer.len = 0;
        x->login.unauthorized = true;
        if (x->login.token != t->tokens) /* another request has got one in the meantime */
                x->login.unauthorized = false;
        else if (!cg_oauth_work_is_busy(t->oauth))
                r = cg_oauth_work_begin(t->oauth, status, &challenge, place, &err);
        cg_oauth_challenge_fini(&challenge);
        if (r < 0)
                fail(x, false, "%s", err.msg);
        else
                step(t);
        return true;
}

/* The token is there, or is not to be had. */
static void on_authorized(void *data, const struct cg_err *err)
{
        struct http_transport *t = data;
        struct http_exchange *x;

        t->tokens += !err;
        do { /* a callback may drop others */
                for (x = t->exchanges; x && !x->login.unauthorized; x = x->next)
                        ;
                if (x) {
                        x->login.unauthorized = false;
                        if (err)
                                fail(x, false, "%s", err->msg);
                }
        } while (x);
        step(t);
}

/* Whether the response has an answer to the exchange's own request. */
static bool is_answered(const struct http_exchange *x)
{
        struct cg_slice body = cg_json_trim((struct cg_slice){ x->answer.data, x->answer.len });
        struct cg_rpc m;

        return body.len && cg_rpc_parse(body, &m, NULL) == 0 &&
               (m.kind == CG_RPC_RESULT || m.kind == CG_RPC_ERROR) && m.id_is_number && m.id_number == x->id;
}

/* A status that is not 2xx. */
static void refused(struct http_exchange *x)
{
        struct http_transport *t = x->t;
        int status = cg_http_status(x->req);
        cg_auto_buf struct cg_buf shown = { .max = 4096 };
        const char *challenge = cg_http_header(x->req, "WWW-Authenticate", 0);
        const char *wait = cg_http_header(x->req, "Retry-After", 0);
        size_t digits = wait ? strspn(wait, "0123456789") : 0;

        if (!digits || digits > 6 || wait[digits]) /* a date, or nonsense */
                wait = NULL;
        if (status >= 300 && status < 400 && status != 304) {
                redirect(x);
                return;
        }
        if (authorize(x))
                return;
        if (x->resumes) {
                x->answer.len = 0; /* about the GET */
                fail(x, false,
                     "its stream of events ended before the answer and cannot be taken up again (HTTP %d)",
                     status);
                return;
        }
        if (status == 404 && x->session && !is_answered(x)) {
                fail(x, true, "the server has forgotten the session (HTTP 404)");
                return;
        }
        if (x->answer.len &&
            cg_server_log_render(t->def, cg_slice_head(cg_buf_slice(&x->answer), 300), &shown) < 0)
                cg_buf_clear(&shown);
        if (status == 401)
                fail(x, false,
                     "HTTP 401: the server wants %s; give a header \"Authorization\" in the definition's \"headers\"",
                     challenge && strncasecmp(challenge, "Bearer", 6) == 0 ? "a bearer token"
                                                                           : "credentials");
        else if (wait)
                fail(x, false, "HTTP %d (it can be called again in %s s)%s%.300s", status, wait,
                     shown.len ? ": " : "", cg_buf_str(&shown));
        else
                fail(x, false, "HTTP %d%s%.300s", status, shown.len ? ": " : "", cg_buf_str(&shown));
}

/*
 * Waits as long as the server says, else @default_ms. From the second GET on at least
 * CG_MCP_RETRY_MS are between two: the loop is that of all sessions.
 */
static void wait_to_resume(struct http_exchange *x, int64_t default_ms)
{
        x->due_ms = cg_now_ms() + (x->sse.retry_ms >= 0 ? x->sse.retry_ms : default_ms);
        if (x->get_ms && x->due_ms < x->get_ms + CG_MCP_RETRY_MS)
                x->due_ms = x->get_ms + CG_MCP_RETRY_MS;
        step(x->t);
}

/* The stream of a request has ended without its answer: goes on with it, if that is possible. */
static bool resume(struct http_exchange *x)
{
        struct http_transport *t = x->t;

        if (t->modern || t->sse || t->ending || !cg_sse_last_id(&x->sse) || x->failures >= CG_MCP_MAX_RETRIES)
                return false;
        x->failures++;
        x->resumes = true;
        x->req = NULL;
        wait_to_resume(x, CG_MCP_RETRY_MS);
        return true;
}

static void on_request_end(struct http_exchange *x, const struct cg_err *err)
{
        struct http_transport *t = x->t;
        bool awaited = t->cbs.waits(t->data, x->id);
        int status = cg_http_status(x->req);

        if ((err || x->is_sse) && awaited && resume(x))
                return;
        if (err) {
                fail(x, false, "%s", err->msg);
        } else if (!ok(status)) {
                refused(x);
        } else if (t->sse) {
                exchange_drop(x); /* the answer comes on the stream */
        } else if (x->is_sse) {
                if (awaited)
                        fail(x, false, "its stream of events ended before the answer; " NOT_KNOWN);
                else
                        exchange_drop(x);
        } else if (type_is(x->req, "application/json")) {
                uint64_t id = x->id;

                if (deliver(x, x->answer.data ?: "", x->answer.len) && t->cbs.waits(t->data, id))
                        fail(x, false, "its response (HTTP %d) has no answer to the request", status);
                else if (!x->dead)
                        exchange_drop(x);
        } else {
                const char *type = cg_http_header(x->req, "Content-Type", 0);
                cg_auto_buf struct cg_buf shown = { .max = 1024 };

                if (type)
                        cg_text_render_as(&shown, type, strlen(type), 100, CG_TEXT_LINE);
                fail(x, false,
                     "HTTP %d with content of the type \"%s\" is no answer of an MCP server: check the \"url\"",
                     status, cg_buf_str(&shown));
        }
}

/* The stream for the server's own messages. */
static void on_listen_end(struct http_exchange *x, const struct cg_err *err)
{
        struct http_transport *t = x->t;
        int status = cg_http_status(x->req);

        if (!err && status >= 300 && status < 400) {
                redirect(x);
                return;
        }
        if (t->sse) {
                if (err)
                        fail(x, false, "its stream of events broke off: %s", err->msg);
                else if (!ok(status))
                        refused(x);
                else
                        fail(x, false, "%s",
                             x->is_sse ? "it closed its stream of events"
                                       : "it sent no stream of events: check the \"url\"");
                return;
        }
        if (!err && !ok(status)) {
                x->due_ms = cg_now_ms(); /* for may_launch() */
                if (authorize(x))
                        return;
        }
        if (x->is_sse)
                t->cbs.unannounced(t->data);
        /* 405 and any other refusal: the server has no such stream. */
        if ((!err && !x->is_sse) || (!x->had_event && x->failures >= CG_MCP_MAX_RETRIES)) {
                exchange_drop(x);
                return;
        }
        x->failures = x->had_event ? 1 : x->failures + 1;
        if (x->had_event) /* its token was accepted */
                x->login.attempts = 0;
        x->had_event = false;
        x->req = NULL;
        wait_to_resume(x, CG_MCP_RETRY_MS << x->failures);
}

static void on_end(void *data, struct cg_http_req *r, const struct cg_err *err)
{
        struct http_exchange *x = data;
        struct http_transport *t = x->t;
        bool alone = x->alone;

        x->busy = true;
        switch (x->kind) {
        case REQUEST:
                on_request_end(x, err);
                break;
        case LISTEN:
                on_listen_end(x, err);
                break;
        case NOTICE:
                if (err)
                        fail(x, false, "%s", err->msg);
                else if (!ok(cg_http_status(r)))
                        refused(x);
                else
                        exchange_drop(x);
                break;
        case CLOSE:
                if (!err && cg_http_status(r) >= 300 && cg_http_status(r) < 400)
                        redirect(x);
                else
                        exchange_drop(x);
                break;
        }
        if (!x->dead && x->req == r) /* it goes on, and libcurl's part of it is over */
                x->req = NULL;
        leave(x);
        if (alone || t->ending)
                step(t);
}

/* ---- sending */

static void make_headers(struct http_exchange *x, bool get, struct cg_strv *h)
{
        struct http_transport *t = x->t;
        const char *last_id = get && !t->sse ? cg_sse_last_id(&x->sse) : NULL;

        cg_strv_addf(h, "User-Agent: cellgate/%s", CG_VERSION);
        if (x->kind != CLOSE)
                cg_strv_addf(h, "Accept: %s",
                             get ? "text/event-stream" : "application/json, text/event-stream");
        if (!get && x->body)
                cg_strv_addf(h, "Content-Type: application/json");
        if (t->version[0] && !x->initialize)
                cg_strv_addf(h, "MCP-Protocol-Version: %s", t->version);
        x->session = 0;
        if (t->session && !x->initialize && !t->modern) {
                cg_strv_addf(h, "Mcp-Session-Id: %s", t->session);
                x->session = t->sessions;
        }
        x->login.token = t->tokens;
        if (t->oauth && cg_oauth_work_header(t->oauth))
                cg_strv_addf(h, "Authorization: %s", cg_oauth_work_header(t->oauth));
        if (last_id)
                cg_strv_addf(h, "Last-Event-ID: %s", last_id);
        for (size_t i = 0; !get && x->headers && x->headers[i]; i++)
                cg_strv_addf(h, "%s", x->headers[i]);
        for (size_t i = 0; t->def->headers[i]; i++)
                cg_strv_addf(h, "%s", t->def->headers[i]);
}

/* Starts its request of HTTP: the first one, or one that goes on with it. */
static int launch(struct http_exchange *x, struct cg_err *err)
{
        static const struct cg_http_cbs cbs = { on_head, on_body, on_end };
        struct http_transport *t = x->t;
        bool get = x->kind == LISTEN || x->resumes;
        struct cg_http_request q = { .method = x->kind == CLOSE ? "DELETE" : "POST",
                                     .url = x->url ?: t->url,
                                     .repeatable = get || x->repeatable,
                                     .total_ms = x->kind == NOTICE ? CG_MCP_NOTICE_MS : 0,
                                     .ca_file = t->def->ca_file,
                                     .proxy = t->def->proxy,
                                     .no_proxy = t->def->no_proxy,
                                     /* The server chose the path, but not for a service here. */
                                     .foreign = x->url || (!get && t->endpoint),
                                     .named_by = x->url ? x->named_by : t->endpoint_named_by };
        cg_auto_strv struct cg_strv list = { .v = NULL };

        x->due_ms = 0;
        /* It waited for a token, or was redirected: in another session it is checked anew. */
        x->session_lost = x->kind == REQUEST && !x->repeatable && !x->resumes && x->made_in != t->sessions;
        if (x->session_lost)
                return cg_fail(err, CG_E_STATE, "the server has forgotten the session before it was sent");
        make_headers(x, get, &list);
        if (list.failed)
                return cg_fail(err, CG_E_NOMEM, "HTTP request");
        q.headers = (const char *const *)list.v;
        if (get) { /* a new stream, with what is known of the old one */
                q.method = "GET";
                q.url = x->url ?: t->base_url;
                cg_buf_clear(&x->answer);
                x->is_sse = false;
                x->get_ms = cg_now_ms();
                cg_sse_restart(&x->sse);
        } else if (x->body) {
                q.body = CG_STEAL(x->body);
                q.body_skip = x->skip;
                q.body_len = x->len;
        }
        return cg_http_start(t->http, &q, &cbs, x, &x->req, err);
}

/* May it be sent now? With HTTP+SSE once the address is known, and none beside a lone one. */
static bool may_launch(const struct http_exchange *x)
{
        const struct http_transport *t = x->t;

        if (x->req || (x->due_ms && x->due_ms > cg_now_ms()) || (t->oauth && cg_oauth_work_is_busy(t->oauth)))
                return false;
        if (x->kind == LISTEN || x->kind == CLOSE || x->resumes)
                return x->kind != LISTEN || t->sse || x->due_ms;
        if (!t->url)
                return false;
        for (const struct http_exchange *y = t->exchanges; y != x; y = y->next)
                if (y->alone)
                        return false;
        return true;
}

static void on_timer_closed(uv_handle_t *h)
{
        struct http_transport *t = h->data;

        t->cbs.gone(t->data);
        free(t->url);
        free(t->base_url);
        free(t->session);
        free(t);
}

static void on_timer(uv_timer_t *h)
{
        struct http_transport *t = h->data;

        while (t->ending && t->exchanges)
                exchange_drop(t->exchanges); /* what did not end in time */
        step(t);
}

/* Called after every change: starts what may start, and arms the timer for what may later. */
static void step(struct http_transport *t)
{
        int64_t first = 0, now = cg_now_ms();
        struct http_exchange *x;
        struct cg_err err;

        if (t->gone)
                return;
        do {
                for (x = t->exchanges; x && !may_launch(x); x = x->next)
                        ;
                if (x && launch(x, &err) < 0)
                        fail(x, false, "%s", err.msg);
        } while (x);
        if (t->ending && !t->exchanges) {
                t->gone = true;
                t->oauth = cg_oauth_work_free(t->oauth);
                t->http = cg_http_free(t->http);
                uv_close((uv_handle_t *)&t->timer, on_timer_closed);
                return;
        }
        /* The timer is the limit of an end. While a token is on its way on_authorized() follows. */
        if (t->ending || (t->oauth && cg_oauth_work_is_busy(t->oauth)))
                return;
        for (x = t->exchanges; x; x = x->next)
                if (!x->req && x->due_ms && (!first || x->due_ms < first))
                        first = x->due_ms;
        if (first)
                uv_timer_start(&t->timer, on_timer, (uint64_t)CG_MAX(first - now, 0), 0);
}

/* ---- the interface */

static size_t unread(const struct cg_transport *base)
{
        const struct http_transport *t = (const struct http_transport *)base;
        size_t n = 0;

        for (const struct http_exchange *x = t->exchanges; x; x = x->next)
                n += x->cost;
        return n;
}

static int copy_headers(struct http_exchange *x, const struct cg_mcp_msg *m, struct cg_err *err)
{
        cg_auto_strv struct cg_strv list = { .v = NULL };

        if (x->t->modern && m->method) {
                cg_strv_addf(&list, "Mcp-Method: %s", m->method);
                if (m->name)
                        cg_strv_addf(&list, "Mcp-Name: %s", m->name);
        }
        for (size_t i = 0; m->headers && m->headers[i]; i++)
                cg_strv_addf(&list, "%s", m->headers[i]);
        x->headers = cg_strv_take(&list);
        return cg_made(x->headers, "HTTP request", err);
}

static int send_message(struct cg_transport *base, const struct cg_mcp_msg *m, struct cg_err *err)
{
        struct http_transport *t = (struct http_transport *)base;
        enum exchange_kind kind = m->id ? REQUEST : NOTICE;
        struct http_exchange *x = t->ending ? NULL : exchange_new(t, kind);
        size_t waiting = unread(base);
        int r;

        if (!x) {
                free(m->text);
                if (t->ending)
                        return cg_fail(err, CG_E_CLOSED, "it is being ended");
                return cg_fail(err, CG_E_NOMEM, "HTTP request");
        }
        x->id = m->id;
        x->body = m->text;
        x->skip = m->skip;
        x->len = m->len;
        x->repeatable = m->repeatable;
        x->made_in = t->sessions;
        x->alone = m->alone;
        x->initialize = m->method && strcmp(m->method, "initialize") == 0;
        x->cost = m->id ? 0 : m->len + CG_MCP_POST_COST;
        r = copy_headers(x, m, err);
        if (r >= 0 && waiting > CG_MCP_MAX_SENDQ)
                r = cg_fail(err, CG_E_LIMIT, "it does not accept messages");
        if (r >= 0 && may_launch(x))
                r = launch(x, err);
        if (r < 0)
                exchange_drop(x);
        return r;
}

static void cancel(struct cg_transport *base, uint64_t id)
{
        struct http_transport *t = (struct http_transport *)base;

        for (struct http_exchange *x = t->exchanges; x; x = x->next) {
                if (x->kind == REQUEST && x->id == id) {
                        exchange_drop(x);
                        return;
                }
        }
}

static void negotiated(struct cg_transport *base, const char *version, bool modern)
{
        struct http_transport *t = (struct http_transport *)base;
        struct http_exchange *x;

        snprintf(t->version, sizeof(t->version), "%s", version ?: "");
        t->modern = modern;
        if (!version) { /* what comes is another session */
                free(t->session);
                t->session = NULL;
                t->sessions++;
                for (x = t->exchanges; x && !t->sse; x = x->next) {
                        if (x->kind == LISTEN) {
                                exchange_drop(x);
                                break;
                        }
                }
        }
        if (!version || modern || t->sse)
                return;
        for (x = t->exchanges; x; x = x->next)
                if (x->kind == LISTEN)
                        return;
        x = exchange_new(t, LISTEN);
        if (x) { /* after the notification "initialized" */
                x->due_ms = cg_now_ms() + 1;
                step(t);
        }
}

static const char *last_words(struct cg_transport *base)
{
        return "";
}

static void end(struct cg_transport *base)
{
        struct http_transport *t = (struct http_transport *)base;
        struct http_exchange *x = t->exchanges, *next;
        struct cg_err err;

        if (t->ending)
                return;
        t->ending = true;
        for (; x; x = next) {
                next = x->next;
                if (x->kind != NOTICE || !x->req)
                        exchange_drop(x);
        }
        if (t->session && t->url) {
                x = exchange_new(t, CLOSE);
                if (x && launch(x, &err) < 0)
                        exchange_drop(x);
        }
        /* From the loop: nothing is freed inside of a callback. */
        uv_timer_start(&t->timer, on_timer, t->exchanges ? CG_MCP_GRACE_MS : 0, 0);
}

static int prepare(struct http_transport *t, struct cg_err *err)
{
        const struct cg_oauth_work_options oauth = { .loop = t->o.loop,
                                                     .name = t->def->name,
                                                     .url = t->def->url,
                                                     .ca_file = t->def->ca_file,
                                                     .proxy = t->def->proxy,
                                                     .no_proxy = t->def->no_proxy,
                                                     .config = &t->def->oauth,
                                                     .log = t->o.log->log,
                                                     .done = on_authorized,
                                                     .data = t };
        int r = cg_http_check_url(t->http, t->def->url, err);

        if (r < 0)
                return r;
        t->base_url = strdup(t->def->url);
        t->url = t->sse ? NULL : strdup(t->def->url);
        if (!t->base_url || (!t->sse && !t->url))
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        if (t->def->oauth.off)
                return 0;
        r = cg_oauth_work_new(&oauth, &t->oauth, err);
        if (r < 0)
                return r;
        return cg_oauth_work_begin(t->oauth, 0, NULL, CG_ADDR_PUBLIC, err);
}

int cg_http_transport_start(const struct cg_transport_options *o, bool sse, struct cg_transport **ret,
                            struct cg_err *err)
{
        static const struct cg_transport_ops ops = { .send = send_message,
                                                     .cancel = cancel,
                                                     .negotiated = negotiated,
                                                     .unread = unread,
                                                     .last_words = last_words,
                                                     .end = end };
        cg_auto_free struct http_transport *t = calloc(1, sizeof(*t));
        struct http_exchange *x = NULL;
        int r;

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        t->base.ops = &ops;
        t->o = *o;
        t->def = o->def;
        t->cbs = *o->cbs;
        t->data = o->data;
        t->sse = sse;
        r = cg_http_new(o->loop, &t->http, err);
        if (r < 0)
                return r;
        r = prepare(t, err);
        if (r >= 0 && sse)
                x = exchange_new(t, LISTEN);
        if (x && may_launch(x))
                r = launch(x, err);
        if (r < 0) {
                if (x)
                        exchange_drop(x);
                cg_oauth_work_free(t->oauth);
                free(t->url);
                free(t->base_url);
                cg_http_free(t->http);
                return r;
        }
        uv_timer_init(o->loop, &t->timer);
        t->timer.data = t;
        *ret = &CG_STEAL(t)->base;
        return 0;
}
