/* HTTP requests of the MCP client, against a server of scripted bytes in a thread. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <time.h>
#include "mcp/http/http.h"
#define CG_OWN_MAIN
#include "cases.h"

/* ---- the server */

static int listener;
static char base[64];
static atomic_int n_connections, n_requests;
static atomic_int n_divided; /* requests whose body did not come with its head */

static void say(int fd, const char *text)
{
        cg_write_all(fd, text, strlen(text), NULL);
}

/* Reads one request with its body. False at end of file. */
static bool read_request(int fd, char *path, char *all, size_t size)
{
        size_t n = 0, length = 0;
        char *end = NULL, *p;

        while (!end) {
                ssize_t got = recv(fd, all + n, size - 1 - n, 0);

                if (got <= 0)
                        return false;
                n += (size_t)got;
                all[n] = '\0';
                end = strstr(all, "\r\n\r\n");
        }
        p = strcasestr(all, "\r\ncontent-length:");
        if (p && p < end)
                length = strtoul(p + 17, NULL, 10);
        atomic_fetch_add(&n_divided, n < (size_t)(end + 4 - all) + length);
        while (n < size - 1 && n < (size_t)(end + 4 - all) + length) {
                ssize_t got = recv(fd, all + n, size - 1 - n, 0);

                if (got <= 0)
                        return false;
                n += (size_t)got;
                all[n] = '\0';
        }
        atomic_fetch_add(&n_requests, 1);
        return sscanf(all, "%*s %63s", path) == 1;
}

/* False: the connection ends. */
static bool answer(int fd, const char *path, const char *request)
{
        static const char filler[65536] = { 'x' };
        char line[256];

        if (strcmp(path, "/ok") == 0) {
                say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-One: 1\r\n\r\nhello");
        } else if (strcmp(path, "/echo") == 0) {
                size_t n = strlen(request);

                snprintf(line, sizeof(line), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
                say(fd, line);
                say(fd, request);
        } else if (strcmp(path, "/401") == 0) {
                say(fd,
                    "HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\nHTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\n"
                    "www-authenticate:   Bearer realm=\"x\"  \r\nContent-Length: 0\r\n\r\n");
        } else if (strcmp(path, "/204") == 0) {
                say(fd, "HTTP/1.1 204 None\r\n\r\n");
        } else if (strcmp(path, "/chunks") == 0) {
                say(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
                usleep(20000);
                say(fd, "3\r\ndef\r\n0\r\nX-Trailer: 1\r\n\r\n");
        } else if (strcmp(path, "/redirect") == 0) {
                say(fd, "HTTP/1.1 307 Go\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n");
        } else if (strcmp(path, "/cut") == 0) {
                say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc");
                return false;
        } else if (strcmp(path, "/close") == 0) {
                return false;
        } else if (strcmp(path, "/garbage") == 0) {
                say(fd, "SSH-2.0-OpenSSH\r\n\r\n");
                return false;
        } else if (strcmp(path, "/head") == 0) {
                say(fd, "HTTP/1.1 200 OK\r\n");
                for (int i = 0; i < 2000; i++)
                        say(fd, "X-Filler: 0123456789012345678901234567890123456789\r\n");
                say(fd, "Content-Length: 0\r\n\r\n");
        } else if (strcmp(path, "/flood") == 0) {
                say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                for (int i = 0; i < 1525; i++) {
                        if (send(fd, filler, sizeof(filler), MSG_NOSIGNAL) < 0)
                                return false;
                }
                return false;
        } else { /* /slow: never */
                char c;

                while (recv(fd, &c, 1, 0) > 0)
                        ;
                return false;
        }
        return true;
}

static void *serve_connection(void *data)
{
        int fd = (int)(intptr_t)data;
        char path[64], *all = malloc(1 << 18);

        while (all && read_request(fd, path, all, 1 << 18) && answer(fd, path, all))
                ;
        free(all);
        close(fd);
        return NULL;
}

static void *serve_all(void *data)
{
        int fd;

        while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                pthread_t t;

                atomic_fetch_add(&n_connections, 1);
                pthread_create(&t, NULL, serve_connection, (void *)(intptr_t)fd);
                pthread_detach(t);
        }
        return NULL;
}

/* ---- name lookups: libcurl's threads call this one */

static atomic_int lookup_ms;
/* The address of every name, in network order; 0: there are no names. */
static atomic_uint lookup_to;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
        in_addr_t to = atomic_load(&lookup_to);
        struct {
                struct addrinfo info;
                struct sockaddr_in address;
        } * a; /* glibc's freeaddrinfo() frees the first member alone */

        usleep((useconds_t)atomic_load(&lookup_ms) * 1000);
        a = to ? calloc(1, sizeof(*a)) : NULL;
        if (!a)
                return EAI_NONAME;
        a->address = (struct sockaddr_in){ .sin_family = AF_INET,
                                           .sin_port = htons((uint16_t)(service ? atoi(service) : 0)),
                                           .sin_addr = { to } };
        a->info = (struct addrinfo){ .ai_family = AF_INET,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_addrlen = sizeof(a->address),
                                     .ai_addr = (struct sockaddr *)&a->address };
        *ret = &a->info;
        return 0;
}

/* ---- certificates: libcurl with GnuTLS calls this one, and no other of a folder */

static int trusted_folders;

int gnutls_certificate_set_x509_trust_dir(void *credentials, const char *folder, int type);

int gnutls_certificate_set_x509_trust_dir(void *credentials, const char *folder, int type)
{
        return ++trusted_folders;
}

/* ---- the client */

struct seen {
        struct cg_http_req *r;
        int heads, ends, status;
        bool failed;
        enum cg_addr_class peer;
        struct cg_err err;
        char body[70000];
        size_t len, total;
        char one[64];
        bool abort_in_head, abort_in_body;
};

static uv_loop_t loop;
static struct cg_http *http;
static const struct cg_http_cbs cbs;

static void get(struct seen *s, const char *path)
{
        char url[128];
        struct cg_http_request q = { .url = url, .proxy = "" };

        snprintf(url, sizeof(url), "%s%s", base, path);
        OK(cg_http_start(http, &q, &cbs, s, &s->r, &err));
}

static void on_head(void *data, struct cg_http_req *r)
{
        struct seen *s = data;

        s->heads++;
        s->status = cg_http_status(r);
        snprintf(s->one, sizeof(s->one), "%s", cg_http_header(r, "x-ONE", 0) ?: "");
        if (s->abort_in_head)
                cg_http_abort(r);
}

static void on_body(void *data, struct cg_http_req *r, const char *p, size_t len)
{
        struct seen *s = data;
        size_t room = sizeof(s->body) - 1 - s->len;

        memcpy(s->body + s->len, p, len < room ? len : room);
        s->len += len < room ? len : room;
        s->total += len;
        if (s->abort_in_body)
                cg_http_abort(r);
}

static void on_end(void *data, struct cg_http_req *r, const struct cg_err *err)
{
        struct seen *s = data;

        s->ends++;
        s->failed = err;
        s->peer = cg_http_peer(r);
        if (err)
                s->err = *err;
        cg_http_abort(r); /* does nothing */
}

static const struct cg_http_cbs cbs = { on_head, on_body, on_end };

static int setup(void **state)
{
        uv_loop_init(&loop);
        return cg_http_new(&loop, &http, NULL);
}

static int teardown(void **state)
{
        http = cg_http_free(http);
        uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop);
}

static void on_timer(uv_timer_t *t)
{
        uv_stop(t->loop);
}

/* Runs the loop until the request has ended, at most @ms. */
static void run(const struct seen *s, unsigned ms)
{
        uv_timer_t t;
        int64_t end = cg_now_ms() + ms;

        uv_timer_init(&loop, &t);
        uv_timer_start(&t, on_timer, 5, 5);
        while (!(s && s->ends) && cg_now_ms() < end)
                uv_run(&loop, UV_RUN_DEFAULT);
        uv_close((uv_handle_t *)&t, NULL);
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void run_ok(const struct seen *s)
{
        run(s, 5000);
        assert_true(s->ends == 1 && !s->failed);
}

static void start(struct seen *s, struct cg_http_request *q)
{
        q->proxy = "";
        OK(cg_http_start(http, q, &cbs, s, &s->r, &err));
}

static void start_and_run(struct seen *s, struct cg_http_request *q)
{
        start(s, q);
        run(s, 5000);
}

static void start_ok(struct seen *s, struct cg_http_request *q)
{
        start(s, q);
        run_ok(s);
}

static char *url_of(const char *path)
{
        static char url[128];

        snprintf(url, sizeof(url), "%s%s", base, path);
        return url;
}

/* ---- tests */

TEST_WITH(test_get, setup, teardown)
{
        struct seen s = { 0 };

        get(&s, "/ok");
        assert_int_equal(s.ends, 0);
        run(&s, 5000);
        assert_int_equal(s.heads, 1);
        assert_int_equal(s.ends, 1);
        assert_false(s.failed);
        assert_int_equal(s.status, 200);
        assert_string_equal(s.body, "hello");
        assert_string_equal(s.one, "1");
}

TEST_WITH(test_post_sends_headers_and_body, setup, teardown)
{
        static const char *const headers[] = { "X-Key: v", "X-Empty:", "Content-Type: application/json",
                                               NULL };
        struct cg_http_request q = { .url = url_of("/echo"),
                                     .headers = headers,
                                     .body = strdup("   {}"),
                                     .body_skip = 3,
                                     .body_len = 5 };
        struct seen s = { 0 };

        start_ok(&s, &q);
        assert_non_null(strstr(s.body, "POST /echo HTTP/1.1\r\n"));
        assert_non_null(strstr(s.body, "\r\nX-Key: v\r\n"));
        assert_non_null(strstr(s.body, "\r\nX-Empty:\r\n"));
        assert_non_null(strstr(s.body, "\r\nContent-Length: 2\r\n"));
        assert_non_null(strstr(s.body, "\r\n\r\n{}"));
        assert_null(strcasestr(s.body, "\r\nExpect"));
        assert_null(strcasestr(s.body, "\r\nCookie"));
}

/* Two writes would wake the server twice. */
TEST_WITH(test_small_body_is_written_with_its_head, setup, teardown)
{
        int before = atomic_load(&n_divided);

        for (int i = 0; i < 50; i++) {
                struct cg_http_request q = { .url = url_of("/ok"), .body = strdup("{}"), .body_len = 2 };
                struct seen s = { 0 };

                start_ok(&s, &q);
        }
        assert_int_equal(atomic_load(&n_divided), before);
}

TEST_WITH(test_large_body, setup, teardown)
{
        struct cg_http_request q = { .url = url_of("/echo"), .body = malloc(200000), .body_len = 200000 };
        struct seen s = { 0 };

        memset(q.body, 'x', q.body_len);
        start_ok(&s, &q);
        assert_true(s.total > 200000);
}

static void on_end_401(void *data, struct cg_http_req *r, const struct cg_err *err)
{
        struct seen *s = data;

        assert_null(err);
        assert_int_equal(cg_http_status(r), 401);
        assert_string_equal(cg_http_header(r, "WWW-Authenticate", 0), "Basic");
        assert_string_equal(cg_http_header(r, "WWW-Authenticate", 1), "Bearer realm=\"x\"");
        assert_null(cg_http_header(r, "WWW-Authenticate", 2));
        assert_null(cg_http_header(r, "WWW", 0));
        assert_null(cg_http_header(r, "X-Early", 0));
        s->ends++;
}

TEST_WITH(test_repeated_headers, setup, teardown)
{
        struct cg_http_cbs only_end = { .body = on_body, .end = on_end_401 };
        struct cg_http_request q = { .url = url_of("/401"), .proxy = "" };
        struct seen s = { 0 };

        assert_int_equal(cg_http_start(http, &q, &only_end, &s, &s.r, NULL), 0);
        run(&s, 5000);
        assert_int_equal(s.ends, 1);
}

TEST_WITH(test_bodies, setup, teardown)
{
        struct seen chunks = { 0 }, none = { 0 }, redirect = { 0 };

        get(&chunks, "/chunks");
        get(&none, "/204");
        get(&redirect, "/redirect");
        run(&chunks, 5000);
        run(&none, 5000);
        run(&redirect, 5000);
        assert_string_equal(chunks.body, "abcdef");
        assert_int_equal(none.status, 204);
        assert_int_equal(none.heads, 1);
        assert_int_equal(redirect.status, 307); /* not followed */
}

/* A request that the server may have handled is not sent twice by libcurl, unless it may be. */
TEST_WITH(test_closed_connection_does_not_repeat, setup, teardown)
{
        struct cg_http_request q = { .url = url_of("/close"), .body = strdup("{}"), .body_len = 2 };
        struct seen first = { 0 }, s = { 0 };
        int before;

        get(&first, "/ok");
        run(&first, 5000);
        before = atomic_load(&n_requests);
        start_and_run(&s, &q);
        assert_true(s.failed);
        assert_int_equal(s.err.code, CG_E_CLOSED);
        assert_int_equal(atomic_load(&n_requests), before + 1);

        memset(&first, 0, sizeof(first));
        memset(&s, 0, sizeof(s));
        get(&first, "/ok");
        run(&first, 5000);
        before = atomic_load(&n_requests);
        q.body = strdup("{}");
        q.repeatable = true;
        start_and_run(&s, &q);
        assert_true(s.failed);
        assert_int_equal(atomic_load(&n_requests), before + 2);
}

TEST_WITH(test_broken_answers, setup, teardown)
{
        struct seen cut = { 0 }, closed = { 0 }, garbage = { 0 }, head = { 0 };
        struct cg_http_request q = { .url = url_of("/head") };

        get(&cut, "/cut");
        get(&closed, "/close");
        get(&garbage, "/garbage");
        start(&head, &q);
        run(&cut, 5000);
        run(&closed, 5000);
        run(&garbage, 5000);
        run(&head, 5000);
        assert_true(cut.failed);
        assert_string_equal(cut.body, "abc");
        assert_int_equal(cut.err.code, CG_E_CLOSED);
        assert_int_equal(closed.err.code, CG_E_CLOSED);
        assert_int_equal(garbage.err.code, CG_E_PROTO);
        assert_int_equal(head.err.code, CG_E_LIMIT);
        assert_int_equal(head.heads, 0);
}

TEST_WITH(test_times, setup, teardown)
{
        struct cg_http_request idle = { .url = url_of("/slow"), .idle_ms = 100 }, total = idle;
        struct seen a = { 0 }, b = { 0 };

        total.idle_ms = 0;
        total.total_ms = 150;
        start(&a, &idle);
        start(&b, &total);
        run(&a, 5000);
        run(&b, 5000);
        assert_int_equal(a.err.code, CG_E_TIMEDOUT);
        assert_int_equal(b.err.code, CG_E_TIMEDOUT);
        assert_non_null(strstr(a.err.msg, "100 ms"));
        assert_non_null(strstr(b.err.msg, "150 ms"));
}

/* Neither a lookup nor its end delays the loop. */
TEST_WITH(test_lookups_do_not_block, setup, teardown)
{
        struct cg_http_request q = { .url = "http://name.invalid/", .connect_ms = 100 };
        struct seen s = { 0 }, t = { 0 }, ok = { 0 };
        int64_t before = cg_now_ms();

        atomic_store(&lookup_ms, 2000);
        start_and_run(&s, &q);
        assert_int_equal(s.err.code, CG_E_TIMEDOUT);
        start(&t, &q);
        get(&ok, "/ok");
        run(&ok, 5000);
        cg_http_abort(t.r);
        assert_true(cg_now_ms() - before < 1000);
        assert_false(ok.failed);

        atomic_store(&lookup_ms, 0);
        memset(&s, 0, sizeof(s));
        q.url = "http://other.invalid/";
        q.connect_ms = 5000;
        start_and_run(&s, &q);
        assert_int_equal(s.err.code, CG_E_NOTFOUND);
}

TEST_WITH(test_abort, setup, teardown)
{
        struct seen a = { .abort_in_head = true }, b = { .abort_in_body = true }, c = { 0 }, d = { 0 };

        get(&a, "/ok");
        get(&b, "/ok");
        get(&c, "/slow");
        get(&d, "/ok");
        cg_http_abort(d.r);
        run(NULL, 100);
        cg_http_abort(c.r);
        run(NULL, 50);
        assert_int_equal(a.heads, 1);
        assert_int_equal(a.total, 0);
        assert_int_equal(b.total, 5);
        assert_int_equal(a.ends + b.ends + c.ends + d.ends, 0);
        assert_int_equal(d.heads, 0);
}

TEST_WITH(test_methods_without_a_body, setup, teardown)
{
        struct cg_http_request post = { .url = url_of("/echo"), .method = "POST" },
                               head = { .method = "HEAD" };
        struct seen s = { 0 };

        start_ok(&s, &post);
        assert_memory_equal(s.body, "POST /echo ", 11);
        assert_non_null(strcasestr(s.body, "\r\nContent-Length: 0\r\n"));
        head.url = url_of("/ok");
        s = (struct seen){ 0 };
        start_ok(&s, &head);
        assert_int_equal(s.status, 200);
        assert_int_equal(s.total, 0);
}

TEST_WITH(test_body_limit, setup, teardown)
{
        struct cg_http_request q = { .url = url_of("/flood"), .max_body = 1000000 };
        struct seen s = { 0 };

        start_and_run(&s, &q);
        assert_int_equal(s.err.code, CG_E_LIMIT);
        assert_true(s.total <= 1000000);
}

TEST_WITH(test_bad_requests, setup, teardown)
{
        struct seen s = { 0 };

        EACH_CASE(c, "refused URLs")
        {
                struct cg_http_request q = { .url = c.in, .body = strdup("x"), .body_len = 1 };

                assert_true(cg_http_start(http, &q, &cbs, &s, &s.r, NULL) != 0);
        }
        EACH_CASE(c, "refused headers")
        {
                const char *headers[] = { c.in, NULL };
                struct cg_http_request q = { .url = "http://x/", .headers = headers };

                FAILS(CG_E_INVAL, "", cg_http_start(http, &q, &cbs, &s, &s.r, &err));
        }
}

TEST_WITH(test_urls, setup, teardown)
{
        EACH_CASE(c, "resolved")
        {
                cg_auto_free char *got = NULL;

                assert_int_equal(cg_http_resolve(http, c.in, c.out, &got, NULL) < 0, !c.third);
                if (c.third)
                        assert_string_equal(got, c.third);
        }
        EACH_CASE(c, "origins")
        assert_int_equal(cg_http_same_origin(http, c.in, c.out), !strcmp(c.third, "same"));
}

/* Requests under way, a lookup and a kept connection: all of it ends with cg_http. */
TEST_WITH(test_end_with_requests, setup, teardown)
{
        struct seen a = { 0 }, b = { 0 }, c = { 0 };
        struct cg_http_request q = { .url = "http://name.invalid/" };

        get(&a, "/ok");
        run(&a, 5000);
        atomic_store(&lookup_ms, 300);
        get(&b, "/slow");
        start(&c, &q);
        run(NULL, 50);
        atomic_store(&lookup_ms, 0);
}

/* Spellings of addresses that a server elsewhere names: refused before anything is looked up. */
TEST_WITH(test_named_addresses, setup, teardown)
{
        EACH_CASE(c, "named addresses")
        {
                char url[128];
                struct cg_http_request q = { .url = url, .proxy = "", .foreign = true };
                int before = atomic_load(&n_connections);
                struct seen s = { 0 };

                while (strcmp(cg_addr_class_name(q.named_by), c.out) != 0)
                        q.named_by++;
                snprintf(url, sizeof(url), "http://%s%s/ok", c.in, strrchr(base, ':'));
                if (!strcmp(c.third, "yes")) {
                        OK(cg_http_start(http, &q, &cbs, &s, &s.r, &err));
                        run_ok(&s);
                        continue;
                }
                FAILS(CG_E_INVAL, "nothing was sent", cg_http_start(http, &q, &cbs, &s, &s.r, &err));
                assert_int_equal(atomic_load(&n_connections), before);
        }
}

/* A name is judged by the address that is connected to, also on a kept connection. */
TEST_WITH(test_named_names, setup, teardown)
{
        char url[128];
        struct cg_http_request q = { .url = url, .foreign = true, .named_by = CG_ADDR_PUBLIC };
        struct seen elsewhere = { 0 }, own = { 0 }, kept = { 0 }, here = { 0 };
        int before = atomic_load(&n_connections), requests = atomic_load(&n_requests);

        snprintf(url, sizeof(url), "http://rebound.example%s/ok", strrchr(base, ':'));
        atomic_store(&lookup_to, htonl(INADDR_LOOPBACK));
        start_and_run(&elsewhere, &q);
        assert_int_equal(elsewhere.err.code, CG_E_INVAL);
        assert_non_null(strstr(elsewhere.err.msg, "leads to a loopback address, which a server at a public"));
        assert_int_equal(atomic_load(&n_connections), before);
        /* the user's own URL */
        q.foreign = false;
        start_ok(&own, &q);
        assert_int_equal(own.peer, CG_ADDR_LOOPBACK);
        q.foreign = true;
        start_and_run(&kept, &q);
        assert_int_equal(kept.err.code, CG_E_INVAL);
        q.named_by = own.peer;
        start_ok(&here, &q);
        /* libcurl closes a connection that was refused */
        assert_int_equal(atomic_load(&n_connections), before + 2);
        assert_int_equal(atomic_load(&n_requests), requests + 2);
        atomic_store(&lookup_to, 0);
}

/* Which names go directly is decided as libcurl does it: only there the address can be judged. */
TEST_WITH(test_named_names_and_proxies, setup, teardown)
{
        atomic_store(&lookup_to, htonl(INADDR_LOOPBACK));
        EACH_CASE(c, "names without a proxy")
        {
                struct cg_http_request q = {
                        .url = "http://rebound.example:1/ok", .proxy = base, .no_proxy = c.in, .foreign = true
                };
                struct seen s = { 0 };

                assert_int_equal(cg_http_start(http, &q, &cbs, &s, &s.r, NULL), 0);
                run(&s, 5000);
                if (!strcmp(c.out, "yes") ? s.failed || s.peer != CG_ADDR_PUBLIC : s.err.code != CG_E_INVAL)
                        fail_msg("%s", s.failed ? s.err.msg : "sent");
        }
        atomic_store(&lookup_to, 0);
}

/* By http a proxy would get the headers of a request to this machine unencrypted. */
TEST_WITH(test_no_proxy_for_this_machine, setup, teardown)
{
        EACH_CASE(c, "through the proxy")
        {
                struct cg_http_request q = { .url = c.in, .proxy = "http://user:pw@proxy.invalid:1" };
                struct seen s = { 0 };

                assert_int_equal(cg_http_start(http, &q, &cbs, &s, &s.r, NULL), 0);
                run(&s, 5000);
                assert_true(s.failed);
                if (!strstr(s.err.msg, "the proxy's name") == !strcmp(c.out, "yes"))
                        fail_msg("%s", s.err.msg);
        }
}

TEST_WITH(test_proxy_is_not_shown, setup, teardown)
{
        EACH_CASE(c, "proxies")
        {
                struct cg_http_request q = { .url = "https://name.invalid/", .proxy = c.in };
                struct seen s = { 0 };

                assert_int_equal(cg_http_start(http, &q, &cbs, &s, &s.r, NULL), 0);
                run(&s, 5000);
                assert_true(s.failed);
                assert_null(strstr(s.err.msg, "topsecret"));
        }
}

/* A file of certificates is trusted alone, without the folder that is libcurl's default. */
TEST_WITH(test_no_folder_of_certificates, setup, teardown)
{
        static const char system_file[] = "/etc/ssl/certs/ca-certificates.crt";
        char url[128];
        struct cg_http_request q = { .url = url, .ca_file = system_file, .total_ms = 300 };
        struct seen s[2] = { { 0 }, { 0 } };

        if (access(system_file, R_OK) < 0)
                skip();
        snprintf(url, sizeof(url), "https%s/ok", base + strlen("http"));
        start(&s[0], &q);
        run(&s[0], 5000);
        q.ca_file = NULL;
        start(&s[1], &q);
        run(&s[1], 5000);
        assert_true(s[0].failed && s[1].failed);
        assert_int_equal(trusted_folders, 0);
}

int main(int argc, char **argv)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        socklen_t len = sizeof(a);
        pthread_t t;

        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&a, len) < 0 || listen(listener, 64) < 0 ||
            getsockname(listener, (struct sockaddr *)&a, &len) < 0 ||
            pthread_create(&t, NULL, serve_all, NULL))
                return 1;
        snprintf(base, sizeof(base), "http://127.0.0.1:%d", ntohs(a.sin_port));
        signal(SIGPIPE, SIG_IGN);
        cg_cases_path = argc > 1 ? argv[1] : NULL;
        return cg_run_tests(NULL, NULL);
}
