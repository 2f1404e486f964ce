/*
 * Requests that wait for an answer of a session's own host: calls and programs that want to run,
 * questions of MCP servers and of their sandboxes, connections, calls of functions of the host.
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

/* DECISION or EGRESS_DECISION of a host; a refusal if it could not be read. */
struct decision {
        bool accept, timed_out; /* timed_out: not accepted, because nobody decided in time */
        const char *answer;     /* of EGRESS_DECISION: a word of `cellgate sandbox --ask` */
        const char *reason;     /* borrowed; "": none */
};

/* Bits, for searches. */
enum ask_kind {
        ASK_CALL = 1,        /* of the tool server: may this call run? */
        ASK_QUESTION = 2,    /* of an MCP server */
        ASK_MAY_RUN = 4,     /* of a kernel: may this function be called? */
        ASK_FUNCTION = 8,    /* of a kernel: the function is called, and the host carries it out */
        ASK_HOST = 16,       /* of an MCP server's sandbox: may it connect to this host? */
        ASK_CONNECTION = 32, /* of the egress proxy: may the kernel connect to this host? */
        ASK_PROGRAM = 64,    /* of a sandbox's init: may this program start? */
};
#define ASK_TOOLSERVER (ASK_CALL | ASK_QUESTION | ASK_HOST)
#define ASK_KERNEL     (ASK_MAY_RUN | ASK_FUNCTION)
#define ASK_ALL        (~0u)

struct ask;

/* A kind of question, of the module that asks it. The hooks end the ask. */
struct ask_type {
        enum ask_kind kind;
        uint16_t decision; /* message of the host for decided(): DECISION or EGRESS_DECISION; 0: none */
        void (*decided)(struct ask *a, const struct decision *d);
        uint16_t answer; /* message of the host for answered(); 0: none */
        void (*answered)(struct ask *a, struct cg_msg *m);
        void (*expire)(struct ask *a); /* NULL: it has no time limit here */
};

struct ask {
        LIST_ENTRY(ask) entry;
        struct session *session;
        const struct ask_type *type;
        uint64_t approval; /* the number the host knows */
        uint64_t number;   /* the number that the process knows which asks */
        uint64_t running;  /* the cell that ran in the main shell; 0: none */
        uint64_t cell;     /* the host's number of it; 0: none, or another host's */
        size_t bytes;
        uv_timer_t timer;
        bool timer_open;
        /* ASK_KERNEL */
        char *server, *tool;
        int64_t timeout_ms;
        struct cg_frame *args; /* ASK_MAY_RUN */
        json_t *denial;        /* ASK_PROGRAM: of its refusal, without the reason */
};

/* The reason why the host is asked nothing more, of @len bytes; NULL: it may be. */
const char *cg_sup_ask_refused(const struct session *ss, size_t len);
/*
 * Makes an ask with a number of its own and the running cell. Its time is the session's, or
 * @timeout_ms where that is shorter (0: none). NULL: out of memory.
 */
struct ask *cg_sup_ask_new(struct session *ss, const struct ask_type *type, uint64_t number, size_t bytes,
                           int64_t timeout_ms);
/*
 * Sends it to the host as @out, with the raw frames of @m (NULL: none), which are moved out of it.
 * Takes @body.
 */
void cg_sup_ask_host(struct ask *a, const struct cg_out *out, json_t *body, struct cg_msg *m);
/* The host's message @m answers an ask; it is ignored if none waits for it. */
void cg_sup_ask_answered(struct session *ss, struct cg_msg *m);
/* NULL: none of these kinds has the number @number of the process that asks. */
struct ask *cg_sup_ask_find(struct session *ss, uint64_t number, unsigned kinds);
size_t cg_sup_asks_count(const struct session *ss, unsigned kinds);
/* The host has answered it. Its number is never used again. */
void cg_sup_ask_end(struct ask *a);
/* Ends it, and reports to the host that no answer is needed any more. */
void cg_sup_ask_close(struct ask *a, const char *why);
void cg_sup_asks_close(struct session *ss, unsigned kinds, const char *why);

#endif
