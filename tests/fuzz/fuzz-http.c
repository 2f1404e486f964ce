/*
 * HTTP/1.x from a sandbox or a server. Beside memory safety it checks that a request
 * which goes on is understood again as the same request, that no field of ours or of this hop only
 * is left in it, and that chunks mean the same however they are cut.
 */
#include <strings.h>
#include "sandbox/egress/http.h"
#include "fuzz.h"

static size_t count(const struct cg_http_head *h, const char *name)
{
        size_t n = 0;

        for (size_t i = 0; i < h->n_fields; i++)
                n += h->fields[i].name.len == strlen(name) &&
                     strncasecmp(h->fields[i].name.p, name, strlen(name)) == 0;
        return n;
}

static void again(const struct cg_http_request *r)
{
        cg_auto_buf struct cg_buf b;
        struct cg_http_request s;
        unsigned int status;
        struct cg_err err;
        size_t scanned = 0;

        cg_buf_init(&b, 1 << 20);
        must(cg_http_request_write(r, true, NULL, &b, &err) == 0);
        must(cg_http_head_len(b.data, b.len, &scanned) == b.len);
        /* One field may be too many now. */
        if (cg_http_request_parse(b.data, b.len, &s, &status, &err) < 0) {
                must(r->head.n_fields + 3 > CG_HTTP_FIELDS_MAX);
                return;
        }
        must(strcmp(r->host.text, s.host.text) == 0 && r->port == s.port);
        must(r->head.framing == s.head.framing && r->head.length == s.head.length);
        must(!s.head.keep_alive);
        must(count(&s.head, "host") == 1 && count(&s.head, "connection") == 1);
        must(count(&s.head, "proxy-authorization") == 0 && count(&s.head, "upgrade") == 0 &&
             count(&s.head, "te") == 0);
        must(count(&s.head, "transfer-encoding") + count(&s.head, "content-length") ==
             (r->head.framing != CG_HTTP_NO_BODY));
}

static void request(const char *p, size_t len)
{
        struct cg_http_request r;
        unsigned int status = 0;
        struct cg_err err = { .msg = "" };

        if (cg_http_request_parse(p, len, &r, &status, &err) < 0) {
                must((status == 400 || status == 505) && err.msg[0]);
                return;
        }
        must(r.port > 0 && r.host.text[0]);
        must(!(count(&r.head, "content-length") && count(&r.head, "transfer-encoding")));
        status = cg_http_check_host(&r);
        must(status == 0 || status == 421 || (status == 400 && count(&r.head, "host") == 0));
        if (!r.connect)
                again(&r);
}

static void response(const char *p, size_t len, bool to_head)
{
        cg_auto_buf struct cg_buf b;
        struct cg_http_response r, s;
        struct cg_err err = { .msg = "" };

        cg_buf_init(&b, 1 << 20);
        if (cg_http_response_parse(p, len, to_head, &r, &err) < 0) {
                must(err.msg[0]);
                return;
        }
        cg_http_strip(&r.head, "set-cookie\nx_a\n");
        must(cg_http_response_write(&r, r.head.framing == CG_HTTP_CHUNKED, false, &b, &err) == 0);
        if (cg_http_response_parse(b.data, b.len, to_head, &s, &err) < 0) {
                must(r.head.n_fields + 2 > CG_HTTP_FIELDS_MAX);
                return;
        }
        must(r.status == s.status && r.head.framing == s.head.framing && r.head.length == s.head.length);
}

/* Hash over the body in pieces of @piece bytes, and over how it ended. */
static uint64_t chunks(const char *p, size_t len, size_t piece)
{
        struct cg_chunked c = { .state = 0 };
        uint64_t h = 1;
        size_t at = 0;

        while (at < len) {
                size_t used, n = len - at < piece ? len - at : piece;
                struct cg_slice data;
                int r = cg_chunked_next(&c, p + at, n, &used, &data, NULL);

                if (r < 0)
                        return h * 31 + 7;
                must(used > 0 && used <= n && data.p >= p + at && data.p + data.len <= p + at + used);
                for (size_t i = 0; i < data.len; i++)
                        h = h * 31 + (unsigned char)data.p[i];
                at += used;
                if (r == CG_CHUNKED_END)
                        return h * 31 + at;
        }
        return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* A copy without a byte behind it: reading over the end is seen. */
        char *exact = malloc(size ? size : 1);
        size_t scanned = 0, len, by_bytes = 0;

        memcpy(exact, data, size);
        len = cg_http_head_len(exact, size, &scanned);
        scanned = 0;
        for (size_t n = 1; n <= size && !by_bytes; n++)
                by_bytes = cg_http_head_len(exact, n, &scanned);
        must(len == by_bytes && len <= size);
        if (!len)
                len = size;
        request(exact, len);
        response(exact, len, false);
        response(exact, len, true);
        must(chunks(exact, size, size ? size : 1) == chunks(exact, size, 1));
        must(chunks(exact, size, 3) == chunks(exact, size, 7));
        free(exact);
        return 0;
}
