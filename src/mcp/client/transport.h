/*
 * How the MCP client reaches a server: a child process with lines (stdio_child.c), or HTTP
 * (http_transport.c). Everything happens on the caller's libuv loop, nothing blocks, one thread.
 */
#pragma once

#include <uv.h>
#include "base/slice.h"
#include "mcp/client/server_log.h"

struct cg_transport;

/* One message to the server. */
struct cg_mcp_msg {
        uint64_t id;        /* of a request; 0: a notification or a response */
        const char *method; /* NULL: a response */
        const char *name;   /* of the tool, or NULL: the header Mcp-Name of revision 2026-07-28 */
        /* more headers "Name: value" over HTTP; NULL-terminated, or NULL */
        const char *const *headers;
        bool repeatable;  /* the server may get it twice */
        bool alone;       /* later messages wait until the server has received it */
        char *text;       /* malloc()ed: taken, even when sending fails */
        size_t skip, len; /* the bytes from skip to len are sent */
};

/* A request got no answer, and the server goes on. */
struct cg_transport_failure {
        int status;           /* of HTTP; 0: there was no response */
        bool session_lost;    /* the server does not know the session any more, and has not run it */
        bool session_renewed; /* and another one has been begun since it was sent */
        struct cg_slice body; /* of the response; CG_SLICE_NONE: empty */
        const char *text;     /* what happened, and what to do */
};

struct cg_transport_cbs {
        /*
         * A message of the server; valid during the call. @id: of the request in whose response it
         * is; 0: none. @old: of a session that is lost. Ids of the server's own requests are those
         * of its session.
         */
        void (*line)(void *data, struct cg_slice text, uint64_t id, bool old);
        /* A message over the limit was left out; @id: of the request it answers, 0: unknown. */
        void (*too_long)(void *data, uint64_t id, const char *why);
        /* Whether this request's answer is still awaited. */
        bool (*waits)(void *data, uint64_t id);
        void (*failed)(void *data, uint64_t id, const struct cg_transport_failure *f);
        /* The stream for the server's own messages has ended: what changed is not announced. */
        void (*unannounced)(void *data);
        /*
         * A line of the server's own sandbox, which reports to us (`cellgate sandbox --report`);
         * never one of the server. An empty one: it takes no answers any more. @old: it came later.
         */
        void (*sandbox)(void *data, struct cg_slice line, bool old);
        /*
         * The server ended, or stopped listening or talking, without being asked to. @how says what
         * happened, with its last words on standard error. No line follows; what is left of it is
         * being ended.
         */
        void (*ended)(void *data, const char *how);
        /* All of it is gone, and it is about to be freed. Always the last. */
        void (*gone)(void *data);
};

struct cg_transport_ops {
        /* CG_E_LIMIT: the server does not read. CG_E_CLOSED: ended() is on its way. */
        int (*send)(struct cg_transport *t, const struct cg_mcp_msg *m, struct cg_err *err);
        /* The request's answer is not wanted any more. NULL: nothing to do. */
        void (*cancel)(struct cg_transport *t, uint64_t id);
        /* The protocol's revision is known; NULL: it is asked for next. NULL op: nothing to do. */
        void (*negotiated)(struct cg_transport *t, const char *version, bool modern);
        /* Bytes sent, and what they cost, which the server has not read. */
        size_t (*unread)(const struct cg_transport *t);
        /* Its last words on standard error with an introduction, or ""; valid until the next call. */
        const char *(*last_words)(struct cg_transport *t);
        /* Sends a line to the server's sandbox. False: it has none, or it does not read. */
        bool (*send_sandbox)(struct cg_transport *t, const char *line, size_t len);
        /* Ends it in order. Only gone() is called back after this. May be called again. */
        void (*end)(struct cg_transport *t);
};

struct cg_transport {
        const struct cg_transport_ops *ops;
};

struct cg_transport_options {
        uv_loop_t *loop;
        const struct cg_mcp_def *def; /* borrowed until gone() */
        struct cg_server_log *log;    /* borrowed until gone() */
        const struct cg_transport_cbs *cbs;
        void *data;
};

/* When these fail, there is no callback. */
int cg_stdio_start(const struct cg_transport_options *o, struct cg_transport **ret, struct cg_err *err);
/* @sse: HTTP+SSE of revision 2024-11-05, else Streamable HTTP. */
int cg_http_transport_start(const struct cg_transport_options *o, bool sse, struct cg_transport **ret,
                            struct cg_err *err);
