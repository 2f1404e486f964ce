/*
 * HTTP/1.x as a proxy sees it: heads of requests and responses, chunked bodies. Pure, and strict
 * where a second reader could understand something else: no folded lines, no bare CR or LF, no
 * space before a colon, never Content-Length together with Transfer-Encoding or twice, no transfer
 * coding but chunked. Heads are written anew from the parsed fields.
 *
 * A parsed head points into the text it was parsed from.
 */
#pragma once

#include "base/buf.h"
#include "base/slice.h"
#include "sandbox/settings/domain.h"

/* The limit of requests is that of srt (Node); servers set large cookies and policies. */
#define CG_HTTP_REQUEST_MAX  (16u << 10)
#define CG_HTTP_RESPONSE_MAX (64u << 10)
/* Fields of one head: browsers send 20 to 40. */
#define CG_HTTP_FIELDS_MAX 256
/* Names in Connection fields, each compared with each field. */
#define CG_HTTP_OPTIONS_MAX 16
#define CG_HTTP_METHOD_MAX  32
/* The line before a chunk with its extensions; all trailer fields together. */
#define CG_HTTP_CHUNK_LINE_MAX 1024
#define CG_HTTP_TRAILER_MAX    (8u << 10)

enum cg_http_framing {
        CG_HTTP_NO_BODY,
        CG_HTTP_LENGTH,
        CG_HTTP_CHUNKED,
        CG_HTTP_UNTIL_END, /* responses: the connection's end is the body's */
};

struct cg_http_field {
        struct cg_slice name, value;
        bool skip; /* hop by hop, or one that we write ourselves */
};

struct cg_http_head {
        struct cg_http_field fields[CG_HTTP_FIELDS_MAX];
        size_t n_fields;
        uint8_t minor;   /* HTTP/1.minor: 0 or 1 */
        bool keep_alive; /* the sender would go on after this message */
        enum cg_http_framing framing;
        uint64_t length; /* CG_HTTP_LENGTH */
};

struct cg_http_request {
        struct cg_http_head head;
        struct cg_slice method;
        bool connect;
        bool is_head; /* its response has no body */
        struct cg_host host;
        uint16_t port;
        struct cg_slice path; /* with the query; empty: "/". Not for CONNECT */
};

struct cg_http_response {
        struct cg_http_head head;
        unsigned int status;
        struct cg_slice reason;
};

/*
 * Looks for the end of the head that @p starts with: its length, the empty line included; 0 when
 * more is needed. *@scanned (0 at first) is how far was searched before, so that a head that comes
 * byte by byte is not read again for each. The limit is the caller's: what has no end within it is
 * too long.
 */
size_t cg_http_head_len(const char *p, size_t len, size_t *scanned);

/*
 * Parses a whole head. Negative: @ret is not set, and *status is what to answer, 400 for anything
 * unclear, 505 for other versions. Only what a proxy is asked is taken: CONNECT host:port and
 * http://host[:port]/path.
 */
int cg_http_request_parse(const char *p, size_t len, struct cg_http_request *ret, unsigned int *status,
                          struct cg_err *err);
/* @to_head: of a response to a HEAD request. */
int cg_http_response_parse(const char *p, size_t len, bool to_head, struct cg_http_response *ret,
                           struct cg_err *err);

/*
 * Writes the request for the host itself, or (@absolute) for another proxy, with @auth as
 * Proxy-Authorization unless NULL. Host and framing are ours, hop-by-hop fields are gone,
 * "Connection: close" is added.
 */
int cg_http_request_write(const struct cg_http_request *r, bool absolute, const char *auth,
                          struct cg_buf *out, struct cg_err *err);
/* Writes the response; @chunked: the body follows in chunks (@r may have another framing). */
int cg_http_response_write(const struct cg_http_response *r, bool chunked, bool keep_alive,
                           struct cg_buf *out, struct cg_err *err);

/* Compares the Host fields with the request line: 0 if equal, 400 without one, else 421. */
unsigned int cg_http_check_host(const struct cg_http_request *r);
/* Leaves out fields by name: @names one a line, without case; "-", "_" and "." are the same. */
void cg_http_strip(struct cg_http_head *h, const char *names);

/* Appends one chunk; no bytes: nothing. CG_HTTP_LAST_CHUNK ends the body. */
int cg_http_add_chunk(struct cg_buf *out, const char *p, size_t len, struct cg_err *err);
#define CG_HTTP_LAST_CHUNK "0\r\n\r\n"

/* A chunked body, piece by piece. Start with all zero. */
struct cg_chunked {
        int state;
        unsigned int digits;
        size_t line; /* bytes of the line, or of all trailers */
        uint64_t left;
};

#define CG_CHUNKED_END 1
/*
 * Takes some of @p: *used bytes, of which *data (may be empty) belongs to the body. 0: call again
 * with the rest, or with more when nothing is left; CG_CHUNKED_END: the body is whole, what follows
 * @used is not its; CG_E_PROTO.
 */
int cg_chunked_next(struct cg_chunked *c, const char *p, size_t len, size_t *used, struct cg_slice *data,
                    struct cg_err *err);
