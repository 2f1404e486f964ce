/* HTTP/1.x heads and chunked bodies. Pure; for the part of cellgate-egress that opens nothing. */
#include "sandbox/egress/http.h"

#include "base/text.h"

/* ---- characters */

static bool is_token_byte(unsigned char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct cg_slice t)
{
        for (size_t i = 0; i < t.len; i++)
                if (!is_token_byte((unsigned char)t.p[i]))
                        return false;
        return t.len > 0;
}

/* No control characters; space and tab only with @blanks. Bytes over 127: in paths and reasons. */
static bool is_text(struct cg_slice t, bool blanks)
{
        for (size_t i = 0; i < t.len; i++) {
                unsigned char c = (unsigned char)t.p[i];

                if (c == 0x7f || (c <= ' ' && !(blanks && (c == ' ' || c == '\t'))))
                        return false;
        }
        return true;
}

static bool same(struct cg_slice t, const char *s)
{
        return t.len == strlen(s) && strncasecmp(t.p, s, t.len) == 0;
}

static bool starts_with(struct cg_slice t, const char *s)
{
        size_t n = strlen(s);

        return t.len >= n && strncasecmp(t.p, s, n) == 0;
}

static bool is_blank(char c)
{
        return c == ' ' || c == '\t';
}

static struct cg_slice trim(struct cg_slice t)
{
        while (t.len && is_blank(t.p[0])) {
                t.p++;
                t.len--;
        }
        while (t.len && is_blank(t.p[t.len - 1]))
                t.len--;
        return t;
}

/* Digits alone, at most @max. */
static bool parse_number(struct cg_slice t, uint64_t max, uint64_t *ret)
{
        uint64_t v = 0;

        if (t.len == 0 || t.len > 18)
                return false;
        for (size_t i = 0; i < t.len; i++) {
                if (t.p[i] < '0' || t.p[i] > '9')
                        return false;
                v = v * 10 + (uint64_t)(t.p[i] - '0');
        }
        *ret = v;
        return v <= max;
}

/* ---- heads */

size_t cg_http_head_len(const char *p, size_t len, size_t *scanned)
{
        /* Three bytes back: the end may have been cut in two. */
        size_t from = *scanned > 3 ? *scanned - 3 : 0;
        const char *end = len > from ? memmem(p + from, len - from, "\r\n\r\n", 4) : NULL;

        *scanned = len;
        return end ? (size_t)(end - p) + 4 : 0;
}

static int bad(struct cg_err *err, const char *what)
{
        return cg_fail(err, CG_E_PROTO, "%s", what);
}

/* The next line of a head, without its CRLF. A lone CR or LF never gets further than here. */
static int next_line(const char **p, const char *end, struct cg_slice *ret, struct cg_err *err)
{
        const char *lf = memchr(*p, '\n', (size_t)(end - *p));

        if (!lf || lf == *p || lf[-1] != '\r')
                return bad(err, "a line of the head does not end in CRLF");
        *ret = (struct cg_slice){ *p, (size_t)(lf - 1 - *p) };
        if (memchr(ret->p, '\r', ret->len))
                return bad(err, "a bare CR in the head");
        *p = lf + 1;
        return 0;
}

/* Content-Length and Transfer-Encoding, or one twice: two readers would see two messages. */
static int find_framing(struct cg_http_head *h, struct cg_err *err)
{
        const struct cg_http_field *length = NULL, *coding = NULL;

        for (size_t i = 0; i < h->n_fields; i++) {
                const struct cg_http_field *f = &h->fields[i];

                if (same(f->name, "content-length")) {
                        if (length)
                                return bad(err, "more than one Content-Length");
                        length = f;
                } else if (same(f->name, "transfer-encoding")) {
                        if (coding)
                                return bad(err, "more than one Transfer-Encoding");
                        coding = f;
                }
        }
        if (length && coding)
                return bad(err, "Content-Length together with Transfer-Encoding");
        if (length) {
                h->framing = CG_HTTP_LENGTH;
                if (!parse_number(length->value, UINT64_MAX, &h->length))
                        return bad(err, "Content-Length is not a number");
        } else if (coding) {
                h->framing = CG_HTTP_CHUNKED;
                if (h->minor == 0)
                        return bad(err, "Transfer-Encoding in HTTP/1.0");
                if (!same(coding->value, "chunked"))
                        return bad(err, "a Transfer-Encoding other than chunked");
        }
        return 0;
}

/* The list in a Connection field, or in Proxy-Connection, which some clients send instead. */
static int read_options(struct cg_http_head *h, struct cg_slice list, bool names_fields, size_t *n,
                        struct cg_err *err)
{
        while (list.len) {
                const char *comma = memchr(list.p, ',', list.len);
                size_t len = comma ? (size_t)(comma - list.p) : list.len;
                struct cg_slice option = trim((struct cg_slice){ list.p, len });

                if (option.len && ++*n > CG_HTTP_OPTIONS_MAX)
                        return bad(err, "too many names in Connection");
                if (same(option, "close"))
                        h->keep_alive = false;
                else if (same(option, "keep-alive") && h->minor == 0)
                        h->keep_alive = true;
                for (size_t i = 0; names_fields && option.len && i < h->n_fields; i++) {
                        struct cg_http_field *f = &h->fields[i];

                        if (f->name.len == option.len && strncasecmp(f->name.p, option.p, option.len) == 0)
                                f->skip = true;
                }
                len += comma != NULL;
                list.p += len;
                list.len -= len;
        }
        return 0;
}

/* Marks the fields that do not go on, and finds out whether the connection is kept. */
static int mark_fields(struct cg_http_head *h, struct cg_err *err)
{
        /* Hop-by-hop fields, and fields that the proxy writes itself. */
        static const char *const skipped[] = {
                "connection",
                "keep-alive",
                "proxy-authenticate",
                "proxy-authorization",
                "proxy-connection",
                "te",
                "trailer",
                "transfer-encoding",
                "upgrade",
                "content-length",
                "host",
        };
        size_t n = 0;

        h->keep_alive = h->minor == 1;
        for (size_t i = 0; i < h->n_fields; i++) {
                struct cg_http_field *f = &h->fields[i];
                bool connection = same(f->name, "connection");

                for (size_t k = 0; k < CG_ARRAY_LEN(skipped) && !f->skip; k++)
                        f->skip = same(f->name, skipped[k]);
                if (connection || same(f->name, "proxy-connection")) {
                        int r = read_options(h, f->value, connection, &n, err);

                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

/* Parses all that follows the first line: the fields, the framing of the body, the connection. */
static int parse_fields(const char *p, const char *end, struct cg_http_head *h, struct cg_err *err)
{
        int r;

        for (;;) {
                struct cg_http_field *f = &h->fields[h->n_fields];
                struct cg_slice line;
                const char *colon;

                r = next_line(&p, end, &line, err);
                if (r < 0)
                        return r;
                if (line.len == 0)
                        break;
                if (h->n_fields == CG_HTTP_FIELDS_MAX)
                        return bad(err, "too many header fields");
                if (is_blank(line.p[0]))
                        return bad(err, "a header field is folded over lines");
                colon = memchr(line.p, ':', line.len);
                if (!colon)
                        return bad(err, "a header field has no colon");
                f->name = (struct cg_slice){ line.p, (size_t)(colon - line.p) };
                f->value = trim((struct cg_slice){ colon + 1, line.len - f->name.len - 1 });
                f->skip = false;
                if (!is_token(f->name))
                        return bad(err, "the name of a header field has a character that no name has");
                if (!is_text(f->value, true))
                        return bad(err, "the value of a header field has a control character");
                h->n_fields++;
        }
        if (p != end)
                return bad(err, "something follows the head's empty line");
        r = find_framing(h, err);
        return r ?: mark_fields(h, err);
}

/* "HTTP/1.1". Positive: a version that exists, but that this is not for. */
static int parse_version(struct cg_slice t, uint8_t *minor)
{
        if (t.len != 8 || memcmp(t.p, "HTTP/", 5) != 0 || t.p[5] < '0' || t.p[5] > '9' || t.p[6] != '.' ||
            t.p[7] < '0' || t.p[7] > '9')
                return -1;
        if (t.p[5] != '1' || t.p[7] > '1')
                return 1;
        *minor = (uint8_t)(t.p[7] - '0');
        return 0;
}

/* ---- requests */

/* "host:port"; without a port when @port has a value already. */
static int parse_authority(struct cg_slice t, struct cg_host *host, uint16_t *port, struct cg_err *err)
{
        const char *close = t.len && t.p[0] == '[' ? memchr(t.p, ']', t.len) : NULL;
        const char *from = close ?: t.p;
        const char *colon = memchr(from, ':', t.len - (size_t)(from - t.p));
        size_t host_len = colon ? (size_t)(colon - t.p) : t.len;
        uint64_t v = *port;

        if (memchr(t.p, '@', t.len))
                return bad(err, "user and password in a URL are not for a proxy");
        if (colon && (colon[1] == '0' ||
                      !parse_number((struct cg_slice){ colon + 1, t.len - host_len - 1 }, 65535, &v)))
                return bad(err, "the port is not 1 to 65535");
        if (v == 0)
                return bad(err, "the port is missing");
        *port = (uint16_t)v;
        return cg_host_parse(t.p, host_len, host, err);
}

int cg_http_request_parse(const char *p, size_t len, struct cg_http_request *ret, unsigned int *status,
                          struct cg_err *err)
{
        const char *at = p, *first, *last;
        struct cg_slice line, target;
        size_t n = 7; /* "http://" */
        int r;

        *status = 400;
        memset(ret, 0, sizeof(*ret));
        r = next_line(&at, p + len, &line, err);
        if (r < 0)
                return r;
        first = memchr(line.p, ' ', line.len);
        last = memrchr(line.p, ' ', line.len);
        if (!first || first == last)
                return bad(err, "the request line is not METHOD TARGET HTTP/1.1");
        ret->method = (struct cg_slice){ line.p, (size_t)(first - line.p) };
        target = (struct cg_slice){ first + 1, (size_t)(last - first - 1) };
        r = parse_version((struct cg_slice){ last + 1, line.len - (size_t)(last + 1 - line.p) },
                          &ret->head.minor);
        if (r < 0 || !is_token(ret->method) || ret->method.len > CG_HTTP_METHOD_MAX || target.len == 0 ||
            !is_text(target, false))
                return bad(err, "the request line is not METHOD TARGET HTTP/1.1");
        if (r > 0) {
                *status = 505;
                return bad(err, "this proxy speaks HTTP/1.0 and HTTP/1.1");
        }
        /* Methods are case-sensitive: "connect" opens no tunnel. */
        ret->connect = ret->method.len == 7 && memcmp(ret->method.p, "CONNECT", 7) == 0;
        ret->is_head = ret->method.len == 4 && memcmp(ret->method.p, "HEAD", 4) == 0;
        if (!ret->connect) {
                if (starts_with(target, "https://"))
                        return bad(err, "https URLs go through a CONNECT tunnel");
                if (!starts_with(target, "http://"))
                        return bad(err, "this is a proxy: it takes CONNECT host:port and http://host/path");
                while (n < target.len && !memchr("/?#\\", target.p[n], 4))
                        n++;
                ret->path = (struct cg_slice){ target.p + n, target.len - n };
                if (memchr(target.p, '#', target.len) || (ret->path.len && ret->path.p[0] == '\\'))
                        return bad(err, "the URL has a character that no URL in a request has");
                ret->port = 80;
                target = (struct cg_slice){ target.p + 7, n - 7 };
        }
        if ((r = parse_authority(target, &ret->host, &ret->port, err)) < 0 ||
            (r = parse_fields(at, p + len, &ret->head, err)) < 0)
                return r;
        if (ret->connect && (ret->head.framing == CG_HTTP_CHUNKED || ret->head.length))
                return bad(err, "CONNECT with a body");
        return 0;
}

/* ---- responses */

int cg_http_response_parse(const char *p, size_t len, bool to_head, struct cg_http_response *ret,
                           struct cg_err *err)
{
        struct cg_http_head *h = &ret->head;
        const char *at = p;
        struct cg_slice line;
        uint64_t status;
        int r;

        memset(ret, 0, sizeof(*ret));
        r = next_line(&at, p + len, &line, err);
        if (r < 0)
                return r;
        if (line.len < 12 || parse_version((struct cg_slice){ line.p, 8 }, &h->minor) != 0 ||
            line.p[8] != ' ' || !parse_number((struct cg_slice){ line.p + 9, 3 }, 999, &status) ||
            status < 100 || (line.len > 12 && line.p[12] != ' '))
                return bad(err, "the status line is not HTTP/1.1 NNN REASON");
        ret->status = (unsigned int)status;
        if (line.len > 13)
                ret->reason = (struct cg_slice){ line.p + 13, line.len - 13 };
        if (!is_text(ret->reason, true))
                return bad(err, "the status line has a control character");
        r = parse_fields(at, p + len, h, err);
        if (r < 0)
                return r;
        if (h->framing == CG_HTTP_NO_BODY)
                h->framing = CG_HTTP_UNTIL_END;
        if (!to_head && status >= 200 && status != 204 && status != 304)
                return 0;
        /* No body follows. Its length is worth passing on, which chunks cannot announce. */
        for (size_t i = 0; i < h->n_fields; i++)
                if (status >= 200 && status != 204 && same(h->fields[i].name, "content-length"))
                        h->fields[i].skip = false;
        h->framing = CG_HTTP_NO_BODY;
        h->length = 0;
        return 0;
}

unsigned int cg_http_check_host(const struct cg_http_request *r)
{
        size_t n = 0;

        for (size_t i = 0; i < r->head.n_fields; i++) {
                const struct cg_http_field *f = &r->head.fields[i];
                struct cg_host h;
                uint16_t port = r->connect ? 443 : 80;

                if (!same(f->name, "host"))
                        continue;
                if (++n > 1 || parse_authority(f->value, &h, &port, NULL) < 0 ||
                    strcmp(h.text, r->host.text) != 0 || port != r->port)
                        return 421;
        }
        return n || r->head.minor == 0 ? 0 : 400;
}

static char fold(char c)
{
        return c == '_' || c == '.' ? '-' : cg_ascii_lower(c);
}

static bool same_folded(struct cg_slice a, const char *b, size_t len)
{
        for (size_t i = 0; i < a.len && i < len; i++)
                if (fold(a.p[i]) != fold(b[i]))
                        return false;
        return a.len == len;
}

void cg_http_strip(struct cg_http_head *h, const char *names)
{
        while (*names) {
                size_t len = strcspn(names, "\n");

                for (size_t i = 0; i < h->n_fields; i++)
                        if (same_folded(h->fields[i].name, names, len))
                                h->fields[i].skip = true;
                names += len;
                names += *names == '\n';
        }
}

/* ---- writing */

static int add_fields(struct cg_buf *out, const struct cg_http_head *h, struct cg_err *err)
{
        int r = 0;

        for (const struct cg_http_field *f = h->fields; r == 0 && f < h->fields + h->n_fields; f++)
                if (!f->skip)
                        r = cg_buf_try_addf(out, err, "%.*s: %.*s\r\n", (int)f->name.len, f->name.p,
                                            (int)f->value.len, f->value.p);
        return r;
}

static int add_framing(struct cg_buf *out, enum cg_http_framing framing, uint64_t length, struct cg_err *err)
{
        if (framing == CG_HTTP_LENGTH)
                return cg_buf_try_addf(out, err, "Content-Length: %llu\r\n", (unsigned long long)length);
        if (framing == CG_HTTP_CHUNKED)
                return cg_buf_try_adds(out, "Transfer-Encoding: chunked\r\n", err);
        return 0;
}

int cg_http_request_write(const struct cg_http_request *r, bool absolute, const char *auth,
                          struct cg_buf *out, struct cg_err *err)
{
        const char *slash = r->path.len == 0 || r->path.p[0] != '/' ? "/" : "";
        char authority[CG_AUTHORITY_MAX], origin[CG_AUTHORITY_MAX + 8] = "";
        int status;

        cg_host_authority(&r->host, r->port, 80, authority, sizeof(authority));
        if (absolute)
                snprintf(origin, sizeof(origin), "http://%s", authority);
        if ((status = cg_buf_try_addf(out, err, "%.*s %s%s%.*s HTTP/1.1\r\nHost: %s\r\n", (int)r->method.len,
                                      r->method.p, origin, slash, (int)r->path.len, r->path.p ?: "",
                                      authority)) < 0 ||
            (status = add_fields(out, &r->head, err)) < 0 ||
            (status = add_framing(out, r->head.framing, r->head.length, err)) < 0 ||
            (auth && (status = cg_buf_try_addf(out, err, "Proxy-Authorization: %s\r\n", auth)) < 0))
                return status;
        return cg_buf_try_adds(out, "Connection: close\r\n\r\n", err);
}

int cg_http_response_write(const struct cg_http_response *r, bool chunked, bool keep_alive,
                           struct cg_buf *out, struct cg_err *err)
{
        enum cg_http_framing framing = chunked ? CG_HTTP_CHUNKED : r->head.framing;
        const char *connection = keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
        int status;

        if ((status = cg_buf_try_addf(out, err, "HTTP/1.1 %u %.*s\r\n", r->status, (int)r->reason.len,
                                      r->reason.p ?: "")) < 0 ||
            (status = add_fields(out, &r->head, err)) < 0 ||
            ((chunked || framing == CG_HTTP_LENGTH) &&
             (status = add_framing(out, framing, r->head.length, err)) < 0) ||
            /* An interim response ends nothing. */
            (r->status >= 200 && (status = cg_buf_try_adds(out, connection, err)) < 0))
                return status;
        return cg_buf_try_adds(out, "\r\n", err);
}

/* ---- chunks */

int cg_http_add_chunk(struct cg_buf *out, const char *p, size_t len, struct cg_err *err)
{
        int r;

        if (!len)
                return 0;
        if ((r = cg_buf_try_addf(out, err, "%zx\r\n", len)) < 0 || (r = cg_buf_try_add(out, p, len, err)) < 0)
                return r;
        return cg_buf_try_adds(out, "\r\n", err);
}

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LINE, TRAILER_LF, END_LF, DONE };

/* One byte outside of a chunk's data. */
static int step(struct cg_chunked *c, char b, struct cg_err *err)
{
        bool text = ((unsigned char)b >= 0x20 && b != 0x7f) || b == '\t';

        if (++c->line > (c->state >= TRAILER ? CG_HTTP_TRAILER_MAX : CG_HTTP_CHUNK_LINE_MAX))
                return bad(err, "a chunk's line or trailer is too long");
        switch (c->state) {
        case SIZE:
                if ((b >= '0' && b <= '9') || (b >= 'a' && b <= 'f') || (b >= 'A' && b <= 'F')) {
                        if (++c->digits > 15)
                                return bad(err, "a chunk is too large");
                        c->left = c->left * 16 + (uint64_t)(b <= '9' ? b - '0' : (b | 0x20) - 'a' + 10);
                        return 0;
                }
                if (c->digits == 0 || (b != '\r' && b != ';'))
                        return bad(err, "the size of a chunk is not a hexadecimal number");
                c->state = b == '\r' ? SIZE_LF : EXTENSION;
                return 0;
        case EXTENSION:
        case TRAILER_LINE:
                if (b == '\r')
                        c->state = c->state == EXTENSION ? SIZE_LF : TRAILER_LF;
                else if (!text)
                        return bad(err, "a control character between chunks");
                return 0;
        case DATA_CR:
                c->state = DATA_LF;
                return b == '\r' ? 0 : bad(err, "a chunk is longer than it says");
        case TRAILER:
                if (b != '\r' && !is_token_byte((unsigned char)b))
                        return bad(err, "the bytes after the last chunk are not a trailer");
                c->state = b == '\r' ? END_LF : TRAILER_LINE;
                return 0;
        default: /* all that wait for LF */
                break;
        }
        if (b != '\n')
                return bad(err, "a bare CR between chunks");
        if (c->state == SIZE_LF) {
                c->state = c->left ? DATA : TRAILER;
                c->line = 0;
        } else if (c->state == DATA_LF) {
                *c = (struct cg_chunked){ .state = SIZE };
        } else {
                c->state = c->state == TRAILER_LF ? TRAILER : DONE;
        }
        return 0;
}

int cg_chunked_next(struct cg_chunked *c, const char *p, size_t len, size_t *used, struct cg_slice *data,
                    struct cg_err *err)
{
        *used = 0;
        *data = (struct cg_slice){ p, 0 };
        while (*used < len && c->state != DONE) {
                int r;

                if (c->state == DATA) {
                        size_t n = len - *used < c->left ? len - *used : (size_t)c->left;

                        *data = (struct cg_slice){ p + *used, n };
                        *used += n;
                        c->left -= n;
                        if (c->left == 0) {
                                c->state = DATA_CR;
                                c->line = 0;
                        }
                        return 0;
                }
                r = step(c, p[(*used)++], err);
                if (r < 0)
                        return r;
        }
        return c->state == DONE ? CG_CHUNKED_END : 0;
}
