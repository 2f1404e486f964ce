/*
 * The client of one MCP server, by file. Private to client*.c.
 *
 *      client.c            the server's start and end, what is known of it
 *      client_request.c    requests: their states, deadlines and ends
 *      client_handshake.c  initialize
 *      client_list.c       the answers to tools/list: all pages
 *      client_receive.c    parses messages of the server and finds their requests
 *      client_send.c       writes messages to the server
 */
#ifndef CG_MCP_CLIENT_INT_H
#define CG_MCP_CLIENT_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/buf.h"
#include "mcp/client.h"
#include "mcp/stdio_child.h"

enum state {
        IDLE,     /* no process, or one that is being ended */
        STARTING, /* initialize was sent */
        READY,
};

enum req_kind { CALL, LIST };

/*
 * A call's line begins with so many spaces. Its version and id, which are known when it is sent,
 * replace the last of them, and the rest is not sent.
 */
#define CG_MCP_LINE_GAP 48

struct cg_mcp_req {
        struct cg_mcp_client *c;
        struct cg_mcp_req *next;
        enum req_kind kind;
        uint64_t seq;
        uint64_t id;         /* of the JSON-RPC request in flight; 0: none */
        int64_t deadline_ms; /* 0: none */
        int64_t timeout_ms;
        cg_mcp_done done;
        void *data;
        char *tool;          /* CALL */
        struct cg_buf line;  /* CALL: the request behind its id, until it can be sent */
        struct cg_buf tools; /* LIST: elements of all pages */
        char **names;
        size_t n_names, n_tools, cap_names;
        uint64_t *cursors; /* hashes of the cursors seen */
        size_t n_pages;
};

struct cg_mcp_client {
        uv_loop_t *loop;
        const struct cg_log *log;
        void (*gone)(void *data);
        void *data;
        struct cg_mcp_def *def;
        struct cg_stdio *child;
        unsigned n_children; /* with those that are being ended */
        enum state state;
        bool ending, timer_closed;
        uv_timer_t timer;
        uint64_t last_id, last_seq, init_id;
        int64_t init_deadline_ms, init_timeout_ms;
        bool has_tools; /* from its answer to initialize */
        struct cg_mcp_req *reqs;
        char **names;
        size_t n_names;
        /* stale: announced as changed since the last list was asked for, or that failed */
        bool listed, stale;
        bool sharing;       /* a list is being given to all requests that wait for one */
        int start_failures; /* in a row */
        int64_t failed_at_ms;
        char last_failure[400];
};

/* client_request.c */
struct cg_mcp_req *cg_mcp_req_new(struct cg_mcp_client *c, enum req_kind kind, int64_t timeout_ms,
                                  cg_mcp_done done, void *data);
void cg_mcp_req_free(struct cg_mcp_req *q);
/* Makes it the last of the client's. */
void cg_mcp_req_add(struct cg_mcp_req *q);
/*
 * Fails the requests that exist at the time of the call: a callback may begin new ones, and cancel
 * others of these.
 */
void cg_mcp_fail_all(struct cg_mcp_client *c, const char *text);
/* Ends the process, if there is one; the next request starts another. */
void cg_mcp_drop_child(struct cg_mcp_client *c);
void cg_mcp_count_start_failure(struct cg_mcp_client *c, const char *why);
/* True while a list request is in flight; further ones wait for it. */
bool cg_mcp_lists(const struct cg_mcp_client *c);
/* The first list request that has not been sent; NULL: none. */
struct cg_mcp_req *cg_mcp_waiting_list(const struct cg_mcp_client *c);
/* Sends the next list request, unless one is in flight. */
void cg_mcp_next_list(struct cg_mcp_client *c);
void cg_mcp_free_names(char **names, size_t n);
/* Both free @q. */
void cg_mcp_req_finish(struct cg_mcp_req *q, enum cg_mcp_outcome outcome, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void cg_mcp_req_fail(struct cg_mcp_req *q, const char *fmt, ...);
/* After every change of deadlines. One timer for all of them: they are few. */
void cg_mcp_client_rearm(struct cg_mcp_client *c);
/* Counts it, ends the process and fails every request with @why. */
void cg_mcp_client_start_failed(struct cg_mcp_client *c, const char *why);
/* The text of a JSON-RPC error, for people: one line, made safe (CG_TEXT_LINE). */
void cg_mcp_error_text(struct cg_slice error, char *buf, size_t size);

/* client_send.c */
/* Takes the content of @b and sends it without its first @skip bytes. */
int cg_mcp_send(struct cg_mcp_client *c, struct cg_buf *b, size_t skip, struct cg_err *err);
void cg_mcp_send_notification(struct cg_mcp_client *c, const char *method, const char *params);
/*
 * Sends notifications/cancelled. The protocol forbids to cancel initialize; it is never cancelled
 * here.
 */
void cg_mcp_send_cancelled(struct cg_mcp_req *q, const char *reason);
/* @cursor is a JSON string as the server wrote it, or nothing for the first page. */
int cg_mcp_send_list(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err);
/* A call, or the first page of a list. Sets the id, also when it fails. */
int cg_mcp_send_req(struct cg_mcp_req *q, struct cg_err *err);

/* client_handshake.c */
int cg_mcp_send_initialize(struct cg_mcp_client *c, struct cg_err *err);
/* The answer to it. */
void cg_mcp_on_initialize(struct cg_mcp_client *c, const struct cg_rpc *m);

/* client_list.c */
void cg_mcp_on_list_answer(struct cg_mcp_req *q, const struct cg_rpc *m);

/* client_receive.c */
/* Callbacks of struct cg_stdio_cbs; @data: the client. */
void cg_mcp_on_line(void *data, struct cg_slice line);
void cg_mcp_on_too_long(void *data, const char *why);

#endif
