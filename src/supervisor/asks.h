/*
 * What waits for an answer of a session's own host: calls that want to run, questions of MCP
 * servers and of their sandboxes, calls of functions of the host.
 */
#ifndef CG_SUPERVISOR_ASKS_H
#define CG_SUPERVISOR_ASKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>
#include "base/wire.h"

struct session;

/* DECISION of a host. */
struct decision {
        bool accept, timed_out; /* timed_out: not accepted, because nobody decided in time */
        const char *reason;     /* borrowed; never NULL */
};

/* Bits, for searches. */
enum ask_kind {
        ASK_CALL = 1,     /* of the tool server: may this call run? */
        ASK_QUESTION = 2, /* of an MCP server */
        ASK_MAY_RUN = 4,  /* of a kernel: may this function be called? */
        ASK_HOST = 16,    /* of an MCP server's sandbox: may it connect to this host? */
        ASK_FUNCTION = 8, /* of a kernel: the function is called, and the host carries it out */
};
#define ASK_TOOLSERVER (ASK_CALL | ASK_QUESTION | ASK_HOST)
#define ASK_KERNEL     (ASK_MAY_RUN | ASK_FUNCTION)

struct ask {
        LIST_ENTRY(ask) entry;
        struct session *session;
        enum ask_kind kind;
        uint64_t approval; /* the number the host knows */
        uint64_t number;   /* the number the tool server knows, or the kernel */
        uint64_t cell;     /* the host's number of it; 0: none, or another host's */
        size_t bytes;
        void (*expire)(struct ask *a);
        uv_timer_t timer;
        bool timer_open;
        /* ASK_KERNEL */
        char *server, *tool;
        int64_t timeout_ms;
        struct cg_frame *args; /* ASK_MAY_RUN */
};

/* The reason why the host is asked nothing more, of @len bytes; NULL: it may be. */
const char *cg_sup_ask_refused(const struct session *ss, size_t len);
/*
 * Makes an ask with a number of its own and the running cell. Its time is the session's, or
 * @timeout_ms where that is shorter (0: none); then @expire ends it. NULL: out of memory.
 */
struct ask *cg_sup_ask_new(struct session *ss, enum ask_kind kind, uint64_t number, size_t bytes,
                           int64_t timeout_ms, void (*expire)(struct ask *a));
/* Sends it to the host as @type with the raw frames of @m moved out of it. Takes @body. */
void cg_sup_ask_host(struct ask *a, uint16_t type, json_t *body, struct cg_msg *m);
/* NULL: none of these kinds has the host's number @approval. */
struct ask *cg_sup_ask_find(struct session *ss, uint64_t approval, unsigned kinds);
size_t cg_sup_asks_count(const struct session *ss, unsigned kinds);
/* The host has answered it. Its number is never used again. */
void cg_sup_ask_end(struct ask *a);
/* Ends it, and reports to the host that no answer is needed any more. */
void cg_sup_ask_close(struct ask *a, const char *why);
void cg_sup_asks_close(struct session *ss, unsigned kinds, const char *why);

#endif
