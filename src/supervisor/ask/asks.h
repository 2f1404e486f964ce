/*
 * Questions that wait for an answer of a session's host: calls and programs that want to run,
 * requests of MCP servers and of their sandboxes, connections, calls of functions of the host, and
 * input() of cells.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>
#include "base/wire.h"

struct host;
struct session;

/* DECISION or EGRESS_DECISION of a host; a refusal if it could not be read. */
struct decision {
        bool accept, timed_out; /* timed_out: not accepted, because nobody decided in time */
        bool waits;             /* not yet: the host has begun to ask about a call of its server */
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
        ASK_AT_HOST = 256,   /* of the tool server: the host's own one carries this call out */
        ASK_INPUT = 128,     /* of a cell: input(), answered by the host that sent the cell */
};
/* May this run, and may this connect? Other clients may decide about both. */
#define ASK_RUN        (ASK_CALL | ASK_MAY_RUN | ASK_PROGRAM)
#define ASK_CONNECT    (ASK_HOST | ASK_CONNECTION)
#define ASK_DECIDABLE  (ASK_RUN | ASK_CONNECT)
#define ASK_TOOLSERVER (ASK_CALL | ASK_QUESTION | ASK_HOST | ASK_AT_HOST)
#define ASK_KERNEL     (ASK_MAY_RUN | ASK_FUNCTION)
/* All but input(), which the result of its cell ends. */
#define ASK_APPROVALS (~(unsigned)ASK_INPUT)

struct ask;

/* A kind of question, of the module that asks it. */
struct ask_type {
        enum ask_kind kind;
        uint16_t request;  /* event that asks the host */
        bool has_raw;      /* the event has a raw frame */
        bool names_cell;   /* the body of the event gets "cell" */
        uint16_t decision; /* message of the host for decided(); 0: none */
        uint16_t answer;   /* message of the host for answered(); 0: none */
        /* Both end the ask, or leave it open. */
        void (*decided)(struct ask *a, const struct decision *d);
        void (*answered)(struct ask *a, struct cg_msg *m);
        /* Refuses it without an answer of the host. NULL: nobody waits. */
        void (*refuse)(struct ask *a, bool timed_out, const char *why);
        /* the reason after its time, and the text of APPROVAL_CLOSED; NULL: no limit here */
        const char *late, *late_event;
        uint16_t closed; /* event that withdraws it, with its body; 0: APPROVAL_CLOSED */
        /*
         * Refused with @full once @max of the kinds @among wait (SIZE_MAX: the asking module has a
         * limit), and while the host has not read more than @unread bytes of the session's events.
         * Programs and connections may ask beyond the window: a cell that tries in a loop must not
         * fill the memory of a host that does not read.
         */
        unsigned among;
        size_t max, unread;
        const char *full;
};

struct ask {
        LIST_ENTRY(ask) entry;
        struct session *session;
        const struct ask_type *type;
        uint64_t id;     /* that the host knows: an approval number, or of ASK_INPUT the cell */
        uint64_t number; /* the number that the process knows which asks */
        /* random, the name for other clients of this user; 0: not shared with them */
        uint64_t key;
        int64_t asked_ms;
        uint64_t nth;     /* of the session's questions */
        uint64_t running; /* the cell that ran in the main shell; 0: none */
        uint64_t cell;    /* the host's number of it; 0: none, or another host's */
        bool decided;     /* ASK_AT_HOST: the host does not ask (any more) */
        json_t *body;     /* of the event */
        size_t bytes;     /* of its raw frame */
        uv_timer_t timer;
        bool timer_open;
        int64_t timeout_ms;    /* ASK_KERNEL: the time of the function; 0: none */
        struct cg_frame *args; /* ASK_MAY_RUN */
        struct cg_frame *raw;  /* for the audit log and other clients; NULL: none */
        json_t *denial;        /* ASK_PROGRAM: of its refusal, without the reason */
};

/*
 * Asks the host, with the raw frame @raw (borrowed). The caller sets session, type and number of
 * @question, `body` and `denial`, which are taken, and where they matter id and timeout_ms.
 * Return: the ask; NULL: its refuse() was called, because a limit is reached.
 */
struct ask *cg_sup_ask(const struct ask *question, struct cg_frame *raw);
/* Asks the host another question in its place, under a new number. */
void cg_sup_ask_next(struct ask *a, const struct ask_type *type, struct cg_frame *raw);
/* ASK_AT_HOST: the host waits for a decision, or not. Only this time is not the cell's. */
void cg_sup_ask_waits(struct ask *a, bool waits);
/* The host has read enough of the session's events for one more question of @type. */
bool cg_sup_ask_host_reads(const struct session *ss, const struct ask_type *type);
/* Messages of hosts that answer a question: cg_sup_ask_answered(). */
bool cg_sup_ask_is_answer(uint16_t message);
/*
 * The message @m of @h answers an ask; it is ignored if none waits for it. @id: its number with
 * the slot of the host, so that each host answers only its own.
 */
void cg_sup_ask_answered(struct session *ss, const struct host *h, uint64_t id, struct cg_msg *m);
/* The host's rules leave it open: other clients may decide, if the session's option allows it. */
void cg_sup_ask_share(struct session *ss, uint64_t id);
/*
 * Another client of this user, @by, decides about an ask with a key; the session's host gets
 * APPROVAL_CLOSED. Negative: it was refused instead, since the decision cannot be recorded.
 */
int cg_sup_ask_decide(struct ask *a, const struct host *by, struct decision d, struct cg_err *err);
/* NULL: none of these kinds has the number @number of the process that asks. */
struct ask *cg_sup_ask_find(struct session *ss, uint64_t number, unsigned kinds);
/* Any of these kinds; NULL: there is none. */
struct ask *cg_sup_ask_any(struct session *ss, unsigned kinds);
size_t cg_sup_asks_count(const struct session *ss, unsigned kinds);
/* The host has answered it. An approval number is never used again. */
void cg_sup_ask_end(struct ask *a);
/* Ends it, and reports to the host that no answer is needed any more. */
void cg_sup_ask_close(struct ask *a, const char *why);
void cg_sup_asks_close(struct session *ss, unsigned kinds, const char *why);
