/* See fetch.h. */
#include "mcp/oauth/fetch.h"

#include "mcp/ceilings.h"

/* One request under way. */
struct exchange {
        struct cg_oauth_net *n;
        struct cg_http_req *req;
        struct cg_oauth_response *response;
        char *location;
        bool ended;
        int r;
        struct cg_err *err;
};

int cg_oauth_net_init(struct cg_oauth_net *n, struct cg_err *err)
{
        int r;

        if (uv_loop_init(&n->loop) < 0)
                return cg_fail(err, CG_E_SYS, "event loop for OAuth");
        uv_timer_init(&n->loop, &n->timer);
        r = cg_http_new(&n->loop, &n->http, err);
        if (r < 0) {
                n->http = NULL;
                cg_oauth_net_fini(n);
        }
        return r;
}

void cg_oauth_net_fini(struct cg_oauth_net *n)
{
        n->http = cg_http_free(n->http);
        uv_close((uv_handle_t *)&n->timer, NULL);
        uv_run(&n->loop, UV_RUN_DEFAULT);
        uv_loop_close(&n->loop);
}

static void on_head(void *data, struct cg_http_req *req)
{
        struct exchange *x = data;
        const char *value;

        x->response->status = cg_http_status(req);
        for (size_t i = 0; (value = cg_http_header(req, "WWW-Authenticate", i)); i++)
                cg_oauth_challenge_add(&x->response->challenge, value, NULL);
        x->response->peer = cg_http_peer(req);
        value = cg_http_header(req, "Location", 0);
        x->location = cg_strdup(value);
}

static void on_body(void *data, struct cg_http_req *req, const char *p, size_t len)
{
        struct exchange *x = data;

        if (x->r == 0)
                x->r = cg_buf_try_add(&x->response->body, p, len, x->err);
}

static void on_end(void *data, struct cg_http_req *req, const struct cg_err *err)
{
        struct exchange *x = data;

        x->req = NULL;
        x->ended = true;
        if (err && x->r == 0)
                x->r = cg_fail(x->err, err->code, "%s", err->msg);
        uv_stop(&x->n->loop);
}

static void on_tick(uv_timer_t *t)
{
        struct exchange *x = t->data;

        if (!x->n->stop || !atomic_load(x->n->stop) || !x->req)
                return;
        cg_http_abort(x->req);
        x->req = NULL;
        x->ended = true;
        x->r = cg_fail(x->err, CG_E_CLOSED, "cancelled");
        uv_stop(&x->n->loop);
}

/*
 * One request. *location (returns): where the response redirects; NULL: nowhere. @hop: the URL
 * comes from a response of the class @ret->peer.
 */
static int exchange(struct cg_oauth_net *n, const struct cg_oauth_fetch *q, const char *url, bool hop,
                    struct cg_oauth_response *ret, char **location, struct cg_err *err)
{
        static const struct cg_http_cbs cbs = { .head = on_head, .body = on_body, .end = on_end };
        struct exchange x = { .n = n, .response = ret, .err = err };
        cg_auto_free char *type = NULL, *authorization = NULL;
        /* A server that wants no token may answer with a stream. */
        const char *headers[4] = { q->body ? "Accept: application/json, text/event-stream"
                                           : "Accept: application/json" };
        struct cg_http_request request = { .url = url,
                                           .headers = headers,
                                           .max_body = CG_OAUTH_MAX_DOCUMENT,
                                           .connect_ms = CG_OAUTH_CONNECT_MS,
                                           .total_ms = CG_OAUTH_FETCH_MS,
                                           .ca_file = n->ca_file,
                                           .proxy = n->proxy,
                                           .no_proxy = n->no_proxy,
                                           .foreign = q->foreign || hop,
                                           .named_by = q->foreign ? q->named_by : ret->peer };
        size_t n_headers = 1;
        int r;

        if (q->body) {
                if (cg_asprintf(&type, "request", err, "Content-Type: %s", q->content_type) < 0)
                        return -1;
                headers[n_headers++] = type;
        }
        if (q->authorization) {
                if (cg_asprintf(&authorization, "request", err, "Authorization: %s", q->authorization) < 0)
                        return -1;
                headers[n_headers++] = authorization;
        }
        if (q->body) {
                request.body = strdup(q->body);
                request.body_len = strlen(q->body);
                if (!request.body)
                        return cg_fail(err, CG_E_NOMEM, "request");
        }
        if (n->end_ms) {
                int64_t left = n->end_ms - cg_now_ms();

                if (left <= 0) {
                        free(request.body);
                        return cg_fail(err, CG_E_TIMEDOUT, "the authorization took longer than %d s",
                                       CG_OAUTH_WORK_MS / 1000);
                }
                request.total_ms = CG_MIN(left, request.total_ms);
        }
        n->timer.data = &x;
        r = cg_http_start(n->http, &request, &cbs, &x, &x.req, err);
        if (r < 0)
                return r;
        uv_timer_start(&n->timer, on_tick, 500, 500);
        while (!x.ended)
                uv_run(&n->loop, UV_RUN_DEFAULT);
        uv_timer_stop(&n->timer);
        if (x.r < 0)
                free(x.location);
        else
                *location = x.location;
        return x.r;
}

int cg_oauth_net_fetch(void *data, const struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                       struct cg_err *err)
{
        cg_auto_free char *url = strdup(q->url);
        struct cg_oauth_net *n = data;

        for (unsigned hops = 0;; hops++) {
                cg_auto_free char *location = NULL, *next = NULL;
                int r = url ? exchange(n, q, url, hops > 0, ret, &location, err)
                            : cg_fail(err, CG_E_NOMEM, "request");

                if (r < 0 || q->body || !location || ret->status < 301 || ret->status > 308 ||
                    ret->status == 304)
                        return r;
                if (hops == CG_OAUTH_MAX_REDIRECTS)
                        return cg_fail(err, CG_E_LIMIT, "more than %d redirects", CG_OAUTH_MAX_REDIRECTS);
                /* Elsewhere could be a service that only this machine reaches. */
                if (cg_http_resolve(n->http, url, location, &next, NULL) < 0 ||
                    !cg_http_same_origin(n->http, url, next))
                        return 0;
                free(url);
                url = CG_STEAL(next);
                cg_oauth_response_fini(ret);
                ret->status = 0;
        }
}
