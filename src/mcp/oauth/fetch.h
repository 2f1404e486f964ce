/*
 * Requests of OAuth over HTTP that block: each runs on a loop of its own, so that any thread may
 * have one of these. Redirects of a GET are followed within its origin only.
 */
#pragma once

#include <stdatomic.h>
#include <uv.h>
#include "mcp/http/http.h"
#include "mcp/oauth/oauth.h"

struct cg_oauth_net {
        const char *ca_file, *proxy, *no_proxy; /* as in struct cg_http_request; borrowed */
        const atomic_bool *stop;                /* ends a request within a second; NULL: never */
        int64_t end_ms;                         /* by cg_now_ms(), the end of all requests; 0: none */
        uv_loop_t loop;
        uv_timer_t timer;
        struct cg_http *http;
};

int cg_oauth_net_init(struct cg_oauth_net *n, struct cg_err *err);
void cg_oauth_net_fini(struct cg_oauth_net *n);
/* A cg_oauth_fetch_fn; @data is the struct cg_oauth_net. */
int cg_oauth_net_fetch(void *data, const struct cg_oauth_fetch *q, struct cg_oauth_response *ret,
                       struct cg_err *err);
