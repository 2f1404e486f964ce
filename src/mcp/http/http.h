/*
 * HTTP requests on the caller's libuv loop, by libcurl's multi interface: nothing blocks, one
 * thread; names are looked up in libcurl's own threads. The process must ignore SIGPIPE.
 *
 * libcurl is loaded when the first cg_http is made: it would add 3.5 ms and 4 MB to the start of a
 * tool server that has stdio servers only.
 *
 * No redirect is followed, no cookie kept, no content decoded; only http and https. Errors and
 * logs name a URL's scheme, host and port, never its path, query or any header. Proxies: those of
 * the request, else http_proxy, HTTPS_PROXY, ALL_PROXY and NO_PROXY of this process; none for http
 * to this machine.
 */
#pragma once

#include <uv.h>
#include "base/addr.h"
#include "base/buf.h"

struct cg_http;     /* the connections, which are kept and reused */
struct cg_http_req; /* one request and its response */

/* CG_E_UNSUPPORTED: libcurl cannot be loaded. */
int cg_http_new(uv_loop_t *loop, struct cg_http **ret, struct cg_err *err);
/* Aborts all requests. Freed from the loop; allowed in a callback. NULL is a no-op. */
struct cg_http *cg_http_free(struct cg_http *h);

/* Members that are not set are 0 or NULL; all but @body are copied. */
struct cg_http_request {
        const char *method; /* NULL: GET, or POST with a body */
        const char *url;
        const char *const *headers; /* "Name: value", NULL-terminated */
        char *body;                 /* malloc()ed: taken, even when the start fails */
        size_t body_skip;           /* bytes at its start that are not sent */
        size_t body_len;            /* with those */
        /*
         * The request may reach the server twice: libcurl repeats it when a kept connection turns
         * out to be closed. Without it such a request fails.
         */
        bool repeatable;
        uint64_t max_body;            /* 0: no limit, for streams */
        int64_t connect_ms;           /* name, connection and TLS; 0: CG_HTTP_CONNECT_MS */
        int64_t idle_ms;              /* without a byte of the response; 0: no limit */
        int64_t total_ms;             /* 0: no limit */
        const char *ca_file;          /* certificates to trust in place of the system's */
        const char *proxy, *no_proxy; /* NULL: of the environment; "": none */
        /*
         * The URL comes from a server at an address of the class @named_by, not from the user:
         * fails (CG_E_INVAL) before it connects to an address that this server may not name. What a
         * proxy connects to is for the proxy to decide.
         */
        bool foreign;
        enum cg_addr_class named_by;
};

struct cg_http_cbs {
        /* The final response's head is complete. May be NULL. */
        void (*head)(void *data, struct cg_http_req *r);
        /* Bytes of its body, as they arrive. */
        void (*body)(void *data, struct cg_http_req *r, const char *p, size_t len);
        /* Once, and last: @err is NULL for a complete response of any status. Then @r is freed. */
        void (*end)(void *data, struct cg_http_req *r, const struct cg_err *err);
};

/* Negative: no callback follows. Never calls back itself. */
int cg_http_start(struct cg_http *h, const struct cg_http_request *q, const struct cg_http_cbs *cbs,
                  void *data, struct cg_http_req **ret, struct cg_err *err);
/* Ends it without any further callback and frees it; allowed in a callback, also in its own. */
void cg_http_abort(struct cg_http_req *r);

/* From head() on. */
int cg_http_status(const struct cg_http_req *r);
/*
 * Value of the @nth (from 0) header of that name in any case; NULL: there are not so many. Trimmed,
 * valid until end() returns.
 */
const char *cg_http_header(const struct cg_http_req *r, const char *name, size_t nth);
/* In end(): the request's body, to send again (returns), from *skip to *len; NULL: it has none. */
char *cg_http_take_body(struct cg_http_req *r, size_t *skip, size_t *len);

/*
 * In head() and end(): the class of the address that it was sent to, by cg_addr_class_here(). Of a
 * name behind a proxy it is not known: CG_ADDR_PUBLIC.
 */
enum cg_addr_class cg_http_peer(const struct cg_http_req *r);

/* ---- URLs */

/* CG_E_INVAL unless it is http or https, with a host, without user and password. */
int cg_http_check_url(const struct cg_http *h, const char *url, struct cg_err *err);
/* @ref resolved against @base, without fragment (returns); checked as above. */
int cg_http_resolve(const struct cg_http *h, const char *base, const char *ref, char **ret,
                    struct cg_err *err);
/* "https://host:443" (returns): lower case, always with the port. */
int cg_http_origin(const struct cg_http *h, const char *url, char **ret, struct cg_err *err);
/* Same scheme, host and port. False where one is no such URL. */
bool cg_http_same_origin(const struct cg_http *h, const char *a, const char *b);
