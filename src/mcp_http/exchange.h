/* Requests of HTTP and their responses, for the files of the front that have to do with them. */
#pragma once

#include "mcp_http/front.h"

#define SESSION_HEADER "Mcp-Session-Id"
#define VERSION_HEADER "MCP-Protocol-Version"
#define SERVER_ERROR   (-32000)

struct hf_exchange {
        struct hf_front *f;
        struct hf_conn *conn;
        struct MHD_Connection *c;
        const char *origin;       /* of a page that may read the response */
        struct cg_buf body;       /* counted in f->body_bytes */
        size_t received;          /* more than the body holds: it is too large */
        struct hf_stream *stream; /* that it sends; NULL: none yet */
        bool suspended;
        bool sse; /* to /messages */
        /* OAuth: number of the question to the verifier, and its answer (type 0: none). */
        uint64_t check;
        int64_t check_ms;
        struct hf_msg checked;
        struct hf_who who;
        const char *token_error; /* the end of WWW-Authenticate; NULL: none */
};

struct hf_conn {
        LIST_ENTRY(hf_conn) entry;
        struct hf_watch watch;
        int fd;
        unsigned n_requests;
        int64_t since_ms; /* the start, or the end of the last request */
        bool gone;        /* the client has closed it */
        bool busy;        /* the head of a request has come */
        struct hf_exchange *x;
};

/* ---- response.c */
/* Takes @r. */
enum MHD_Result cg_hf_respond(const struct hf_exchange *x, unsigned status, struct MHD_Response *r);
enum MHD_Result cg_hf_respond_empty(const struct hf_exchange *x, unsigned status);
/* Text of JSON, malloc()ed, is taken. */
enum MHD_Result cg_hf_respond_json(const struct hf_exchange *x, unsigned status, char *text, size_t len,
                                   const char *header, const char *value);
enum MHD_Result cg_hf_refuse_request(const struct hf_exchange *x, struct cg_slice id, unsigned status,
                                     int code, const char *why);
enum MHD_Result cg_hf_refuse(const struct hf_exchange *x, unsigned status, int code, const char *why);
void cg_hf_suspend(struct hf_exchange *x);
/* @data: the exchange, which is resumed if it is suspended. */
void cg_hf_wake(void *data);
/* The exchange sends what the stream has from now on. */
void cg_hf_attach(struct hf_exchange *x, struct hf_stream *st);
enum MHD_Result cg_hf_send_events(struct hf_exchange *x);
/* The stream has something for the client, or not yet. */
enum MHD_Result cg_hf_proceed(struct hf_exchange *x);

/* ---- requests.c */
const char *cg_hf_header(const struct hf_exchange *x, const char *name);
/* One of the types of "Accept: a/b, c/d;q=0.1". */
bool cg_hf_accepts(const struct hf_exchange *x, const char *type);
enum MHD_Result cg_hf_get(struct hf_exchange *x);
enum MHD_Result cg_hf_end_session(struct hf_exchange *x);
/* HTTP+SSE: a session begins and ends with its stream, whose first event says where messages go. */
enum MHD_Result cg_hf_open_sse(struct hf_exchange *x);
enum MHD_Result cg_hf_post(struct hf_exchange *x);
