/*
 * The client of one MCP server, by file. The way to the server is behind mcp/client/transport.h.
 * Private to these files.
 *
 *      client.c     the server's start and end, what is known of it
 *      request.c    requests: their states, deadlines and ends
 *      handshake.c  the protocol's two eras: server/discover and initialize
 *      list.c       the answers to tools/list and other lists: all pages
 *      receive.c    parses messages of the server and finds their requests
 *      questions.c  what the server asks of its client: roots, and questions to the host
 *      rounds.c     calls that the server answers with questions
 *      send.c       writes messages to the server
 */
#pragma once

#include <uv.h>
#include "base/buf.h"
#include "mcp/ceilings.h"
#include "mcp/client/client.h"
#include "mcp/client/param_headers.h"
#include "mcp/client/transport.h"

enum state {
        IDLE,     /* no server, or one that is being ended */
        STARTING, /* server/discover or initialize was sent */
        READY,
};

enum req_kind { CALL, LIST };

/*
 * A call's line begins with so many spaces. Its version and id, which are known when it is sent,
 * replace the last of them, and the rest is not sent.
 */
#define CG_MCP_LINE_GAP 48

#define CG_MCP_MODERN_VERSION "2026-07-28"

/* The request of a call, and its rounds. */
struct req_call {
        /*
         * The request behind its id, without its end. Kept only where it may be sent again: over
         * HTTP, and from revision 2026-07-28 on.
         */
        struct cg_buf line;
        size_t args_at, args_len; /* its arguments in line */
        struct cg_buf more;       /* answers to the server's questions, and its state */
        unsigned rounds;
        bool has_inputs;         /* the server has asked for something in this round */
        unsigned lists;          /* before this round */
        struct cg_mcp_req *list; /* the one in flight, before this round is sent; NULL: none */
        unsigned n_open;         /* its questions that wait for the host */
        unsigned n_asked;        /* questions to the host, with those of unknown calls */
        bool unanswered;         /* one of them was not answered */
        int64_t left_ms;         /* rest of its time while deadline_ms is suspended; else 0 */
        bool has_progress;
        double progress;                        /* the last value, of the request in flight */
        int64_t silent_since_ms, silent_due_ms; /* without a limit: see CG_MCP_SILENT_MS; 0: none */
};

/* The pages of a list so far. */
struct req_pages {
        struct cg_buf text; /* elements of all pages */
        int64_t until_ms;   /* when it may have changed, by ttlMs; 0: not given */
        bool sent_again;    /* in a new session */
        struct cg_param_headers *params;
        size_t params_size; /* bytes of them */
        char **names;
        size_t n_names, n_tools, cap_names;
        uint64_t *cursors; /* hashes of the cursors seen */
        size_t n;
};

struct cg_mcp_req {
        struct cg_mcp_client *c;
        struct cg_mcp_req *next;
        enum req_kind kind;
        enum cg_mcp_method method;
        uint64_t seq;
        uint64_t n_lists; /* of the client when it was begun */
        uint64_t id;      /* of the JSON-RPC request in flight; 0: none, it waits */
        /*
         * LIST: the client's own, which is sent and has no done(); the others wait for it, and are
         * never sent: a cell that gives up must be nothing that the server notices.
         */
        bool fetch;
        bool cell;           /* a cell has chosen its time limit, or when the list is asked for */
        int64_t due_ms;      /* LIST: it is not fetched for this request before; 0: its time has come */
        int64_t deadline_ms; /* 0: none */
        int64_t timeout_ms;
        enum cg_mcp_outcome failure; /* of cg_mcp_req_fail() */
        cg_mcp_done done;
        void *data;
        char *tool; /* CALL: name of the tool or prompt, or the resource's URI */
        struct req_call call;
        struct req_pages pages;
};

/* Something that the server asks for, until it has its answer. */
struct cg_mcp_question {
        struct cg_mcp_question *next;
        struct cg_mcp_client *c;
        struct cg_mcp_req *q; /* the call that it belongs to; NULL: unknown */
        unsigned kind;        /* CG_MCP_ELICITATION, CG_MCP_SAMPLING; 0: another */
        bool round;           /* it is part of an answer to the call; else a request of the server */
        char *id;             /* JSON text: of the request; of a round: its key without quotes */
        uint64_t number;      /* of ask(); 0: the host is not asked, or has answered */
        int64_t deadline_ms;  /* with a number */
        char *answer;         /* of a round, once it is known */
};

/* Calls of request.c and questions.c to files above them. */
struct cg_mcp_question_ops {
        void (*call_ended)(struct cg_mcp_client *c, const struct cg_mcp_req *q);
        void (*server_gone)(struct cg_mcp_client *c);
        void (*expire)(struct cg_mcp_client *c, int64_t now_ms);
        void (*send_round)(struct cg_mcp_req *q);
};

/* A list of resources, templates or prompts. */
struct kept_list {
        struct cg_buf text;
        int64_t until_ms;  /* by ttlMs; 0: until a change is announced */
        bool known, stale; /* stale: as that of the tools, below */
        bool asked;        /* once at least */
};

/* server/discover and initialize: handshake.c. */
struct mcp_handshake {
        bool skip_probe;   /* the server ended when it was sent server/discover */
        bool probed_again; /* in this handshake */
        uint64_t probe_id, init_id;
        int64_t probe_deadline_ms; /* 0: none */
        int64_t init_deadline_ms, init_timeout_ms;
        void (*probe_expired)(struct cg_mcp_client *c);
};

/* From the server's answer to initialize. */
struct mcp_offers {
        bool tools, known;
        unsigned offers, announces; /* bits of enum cg_mcp_offer; announces: changes of these lists */
};

/* The subscription to changes. */
struct mcp_subscription {
        uint64_t id;
        int64_t since_ms;
        bool tools; /* the server has confirmed that it announces changes of the tools */
};

/* The list of the tools: list.c. */
struct mcp_tools {
        char **names;
        size_t n_names;
        struct cg_param_headers *params; /* arguments that are repeated in headers */
        /* stale: announced as changed since the last list was asked for, or that failed */
        bool listed, stale;
        uint64_t n_lists;            /* so far */
        int64_t listed_ms, valid_ms; /* of the last list, and how long it is valid */
        int64_t relist_ms;           /* when it is listed anew without a request; 0: not */
        bool sharing;                /* a list is being given to all requests that wait for one */
};

/* A server that has stopped answering: request.c. */
struct mcp_silence {
        unsigned timeouts;   /* of requests in a row: it has written nothing since */
        int64_t hung_ms;     /* when it is ended if it writes nothing and is not busy; 0: not */
        uint64_t doubted_id; /* the last request before hung_ms was set */
        uint64_t ping_id;
};

/* Failures of its start, or ends without being asked. */
struct mcp_failures {
        unsigned n; /* in a row */
        int64_t last_ms;
        char last[400];
};

/* Calls of lower files to upper ones. */
struct mcp_upper {
        /* Ends the server and starts it anew, with what is known of it now; requests wait on. */
        void (*restart)(struct cg_mcp_client *c);
        void (*relist)(struct cg_mcp_client *c);                   /* lists the tools without a request */
        int (*start)(struct cg_mcp_client *c, struct cg_err *err); /* unless it runs */
        const struct cg_mcp_question_ops *questions;
};

struct cg_mcp_client {
        struct cg_mcp_client_options o; /* but for the workspace; takes the pins */
        struct cg_mcp_def *def;
        struct cg_transport *t;
        struct cg_server_log server_log;
        unsigned n_transports; /* with those that are being ended */
        enum state state;
        bool modern; /* revision 2026-07-28; decided in the handshake */
        bool sse;    /* it is reached by HTTP+SSE */
        struct mcp_handshake handshake;
        struct mcp_offers offered;
        struct mcp_subscription subscription;
        struct mcp_tools tools;
        struct mcp_silence silence;
        struct mcp_failures failing;
        struct mcp_upper upper;
        /* the last text of the server that was no message, rendered; "": none */
        char skipped[4 * CG_MCP_SKIPPED_SHOWN];
        bool ending, timer_closed;
        uv_timer_t timer;
        uint64_t last_id, last_seq;
        struct cg_mcp_req *reqs;
        struct cg_mcp_question *questions;
        char *roots; /* the result of roots/list; NULL: not offered */
        struct kept_list lists[CG_MCP_N_METHODS];
        char **prompts; /* names */
        size_t n_prompts;
        bool sending;  /* requests that wait are being sent */
        bool answered; /* a call, since its start */
        int64_t ready_at_ms;
};

/* Whether the list may have changed since it was last asked for. */
static inline bool *cg_mcp_list_stale(struct cg_mcp_client *c, enum cg_mcp_method method)
{
        return method == CG_MCP_TOOLS_LIST ? &c->tools.stale : &c->lists[method].stale;
}

/* All lists may have changed: nothing was announced for a while, or this is another process. */
static inline void cg_mcp_lists_stale(struct cg_mcp_client *c)
{
        for (enum cg_mcp_method m = CG_MCP_TOOLS_LIST; m < CG_MCP_N_METHODS; m++)
                *cg_mcp_list_stale(c, m) = true;
}

/* request.c */
struct cg_mcp_req *cg_mcp_req_new(struct cg_mcp_client *c, enum cg_mcp_method method, int64_t timeout_ms,
                                  cg_mcp_done done, void *data);
void cg_mcp_req_free(struct cg_mcp_req *q);
/* Makes it the last of the client's. */
void cg_mcp_req_add(struct cg_mcp_req *q);
/*
 * Fails the requests that exist at the time of the call: a callback may begin new ones, and cancel
 * others of these. @not_sent: the text for those that were never sent, which end with
 * CG_MCP_NOT_SENT; NULL: they end as the others do.
 */
void cg_mcp_fail_all(struct cg_mcp_client *c, enum cg_mcp_outcome outcome, const char *text,
                     const char *not_sent);
/* Ends the process, if there is one; the next request starts another. */
void cg_mcp_drop_server(struct cg_mcp_client *c);
/* The tools may have changed: lists them anew, not more often than every CG_MCP_RELIST_MS. */
void cg_mcp_tools_changed(struct cg_mcp_client *c);
/* Logs @how, as a failure has it, for the host: after the server's name and @what. */
void cg_mcp_log_failure(const struct cg_mcp_client *c, enum cg_log_level level, const char *what,
                        const char *how);
void cg_mcp_count_failure(struct cg_mcp_client *c, const char *why);
/* The server has ended without being asked, or is of no use any more: fails all requests. */
void cg_mcp_client_died(struct cg_mcp_client *c, const char *how);
/* True while the list is being fetched. */
bool cg_mcp_lists(const struct cg_mcp_client *c, enum cg_mcp_method method);
/* Fetches the list that @q waits for. */
int cg_mcp_fetch_list(const struct cg_mcp_req *q, struct cg_err *err);
/* Fetches all lists that are waited for, unless they are being fetched. */
void cg_mcp_next_list(struct cg_mcp_client *c);
/*
 * Whether it can be sent now: lists that are fetched, and at most as many calls as
 * "maxConcurrency" allows. The next one is sent as soon as one has ended, so new calls do not
 * overtake those that wait.
 */
bool cg_mcp_may_send(const struct cg_mcp_req *q);
/* Sends the requests that wait and can be sent; after the start, and when another one has ended. */
void cg_mcp_send_waiting(struct cg_mcp_client *c);
void cg_mcp_free_names(char **names, size_t n);
/* Both free @q. */
void cg_mcp_req_finish(struct cg_mcp_req *q, enum cg_mcp_outcome outcome, const char *bytes, size_t len);
__attribute__((format(printf, 2, 3))) void cg_mcp_req_fail(struct cg_mcp_req *q, const char *fmt, ...);
/* After every change of deadlines. One timer for all of them: they are few. */
void cg_mcp_client_rearm(struct cg_mcp_client *c);
/* Counts it, ends the process and fails every request with @why. */
void cg_mcp_client_start_failed(struct cg_mcp_client *c, const char *why);
#define CG_MCP_HEADER_MISMATCH (-32020) /* of revision 2026-07-28 */
/* The code of a JSON-RPC error; 0: none. */
int cg_mcp_error_code(struct cg_slice error);
/* The text of a JSON-RPC error, for people: one line, made safe (CG_TEXT_LINE). */
void cg_mcp_error_text(struct cg_slice error, char *buf, size_t size);

/* send.c */
/* Takes the content of @b and sends it, as @m says. Fails also when an append to @b has. */
int cg_mcp_send(struct cg_mcp_client *c, struct cg_mcp_msg *m, struct cg_buf *b, struct cg_err *err);
/* The object of what this client offers to the server. */
void cg_mcp_add_capabilities(const struct cg_mcp_client *c, struct cg_buf *b);
/*
 * The member "_meta" with a comma in front: what every request of revision 2026-07-28 says
 * (@modern), and @token, by which the server reports progress (0: none).
 */
void cg_mcp_add_meta(const struct cg_mcp_client *c, struct cg_buf *b, bool modern, uint64_t token);
void cg_mcp_send_notification(struct cg_mcp_client *c, const char *method, const char *params);
/* Sends notifications/cancelled. The protocol forbids it for initialize, never cancelled here. */
void cg_mcp_send_cancelled(struct cg_mcp_req *q, const char *reason);
/* @cursor is a JSON string as the server wrote it, or nothing for the first page. */
int cg_mcp_send_list(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err);
/* A call, or the first page of a list. Sets the id, also when it fails. */
int cg_mcp_send_req(struct cg_mcp_req *q, struct cg_err *err);
/* Subscribes again to changes of the lists, where the subscription has ended. */
void cg_mcp_listen(struct cg_mcp_client *c);

/* handshake.c */
/* Sends server/discover or initialize. */
int cg_mcp_begin_handshake(struct cg_mcp_client *c, struct cg_err *err);
/* Answers and failures of these two requests. */
void cg_mcp_on_discover(struct cg_mcp_client *c, const struct cg_rpc *m);
void cg_mcp_on_initialize(struct cg_mcp_client *c, const struct cg_rpc *m);
void cg_mcp_on_handshake_failed(struct cg_mcp_client *c, uint64_t id, const struct cg_transport_failure *f);
/* The server has forgotten the session: another one is begun, unless that is under way. */
void cg_mcp_renew_session(struct cg_mcp_client *c);

/* list.c */
void cg_mcp_on_list_answer(struct cg_mcp_req *q, const struct cg_rpc *m);
/* Forgets the pages that have come: the list begins anew. */
void cg_mcp_list_again(struct cg_mcp_req *q);

/* questions.c */
int cg_mcp_make_roots(const char *workspace, char **ret, struct cg_err *err);
/* A request of the server, until 2025-11-25. False: it is not offered; the caller answers. */
bool cg_mcp_on_server_request(struct cg_mcp_client *c, const struct cg_rpc *m);
/* The server does not want an answer to its request @id any more. */
void cg_mcp_on_server_cancelled(struct cg_mcp_client *c, struct cg_slice id);
/* One question of a round: answers it, or asks the host. */
int cg_mcp_ask_round(struct cg_mcp_req *q, struct cg_slice key, struct cg_slice request, struct cg_err *err);
/* Appends all answers of the round, and forgets them. */
void cg_mcp_add_round_answers(struct cg_mcp_req *q, struct cg_buf *b);
/* Ends the questions whose time is over. */
void cg_mcp_questions_expire(struct cg_mcp_client *c, int64_t now_ms);
/* The call has ended: its questions end, and those of no known call once none is in flight. */
void cg_mcp_questions_of_call(struct cg_mcp_client *c, const struct cg_mcp_req *q);
/* The server is gone, and its requests with it. */
void cg_mcp_questions_of_server(struct cg_mcp_client *c);

/* rounds.c */
/*
 * The server needs input before it can answer the call (revision 2026-07-28). Once all of it is
 * there, the call is sent again with the server's state. Frees @q where that fails.
 */
void cg_mcp_next_round(struct cg_mcp_req *q, struct cg_slice result);
/*
 * All questions of the round have their answers. The tool is compared with its pin again, after a
 * list if it may have changed meanwhile. Frees @q where that fails.
 */
void cg_mcp_send_round(struct cg_mcp_req *q);

/* receive.c */
/* Callbacks of struct cg_transport_cbs; @data: the client. */
void cg_mcp_on_line(void *data, struct cg_slice line, uint64_t id, bool old);
void cg_mcp_on_too_long(void *data, uint64_t id, const char *why);
bool cg_mcp_waits(void *data, uint64_t id);
void cg_mcp_on_unannounced(void *data);
void cg_mcp_on_failed(void *data, uint64_t id, const struct cg_transport_failure *f);
