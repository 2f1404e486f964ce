/*
 * cellgate-toolserver's own parts. One process for a supervisor, one thread, a libuv loop.
 *
 *      toolserver.c  main: descriptors, lifeline, the supervisor's messages
 *      broker.c      sending to the supervisor, orderly end, look-ups
 *      session.c     sessions: their MCP servers, and adding servers
 *      kernel.c      a kernel's connection; beside it call.c, progress.c, kept_answer.c, which
 *                    call_internal.h describes
 *      question.c    what MCP servers ask the host for
 */
#pragma once

#include <jansson.h>
#include <uv.h>
#include "base/log.h"
#include "base/zlink.h"
#include "mcp/client/client.h"
#include "mcp/toolserver/kept.h"

/* ---- the process */

struct ts {
        uv_loop_t loop;
        struct cg_log log;
        struct cg_zlink broker;
        struct ts_session *sessions;
        struct cg_mcp_eras eras;
        uint64_t last_serial; /* of servers */
        json_t *unrecorded;   /* pins: cg_pins_new() */
        uint64_t last_ask;
        struct cg_kept_sum kept; /* of all kernels */
        size_t converting;       /* bytes of results that are converted beside the loop */
        uv_poll_t lifeline;
        uv_signal_t sigterm, sigint;
        uv_timer_t end_timer;
        uv_timer_cb on_end; /* of end_timer: ends the sessions */
        void (*on_broker_closed)(struct cg_zlink *z);
        uv_timer_t progress;      /* while servers are being added */
        uv_timer_t call_progress; /* while values of calls wait to be reported */
        uv_timer_t held;          /* since the first of the errors that wait for a sandbox's report */
        bool ending;
        int exit_status;
};

/*
 * Sends on the broker wire, with the raw frames of @frames (may be NULL) moved out of it.
 * Return: 0; CG_E_LIMIT: over its table's limits, or the supervisor does not read and too much
 * waits already; CG_E_CLOSED; any other failure ends the process.
 */
int cg_ts_broker_send(struct ts *ts, const struct cg_out *out, struct cg_msg *frames, struct cg_err *err);
/* The same with the text @b as body, with {@key: @text}, and with {"error": {"code", "message"}}. */
void cg_ts_broker_send_buf(struct ts *ts, const struct cg_out *out, const struct cg_buf *b);
void cg_ts_broker_send_text(struct ts *ts, const struct cg_out *out, const char *key, const char *text);
void cg_ts_broker_send_error(struct ts *ts, const struct cg_out *out, const struct cg_err *why);
/* Begins the orderly end of everything. */
void cg_ts_end(struct ts *ts, int status);
/* Called when a session or a connection that the end waits for has been closed. */
void cg_ts_maybe_stop(struct ts *ts);

/* ---- sessions */

struct ts_server {
        struct ts_server *next;
        struct cg_mcp_client *client; /* its name is the server's */
        struct ts_box *box;           /* the client's; NULL: it has no sandbox of ours */
        uint64_t serial;              /* of the definition that it has */
        char *out_dir;                /* of its modules' package */
        json_t *shown;                /* tools with modules: {NAME: digest} */
        bool refreshing;              /* its modules are being made anew */
        int64_t refreshed_ms, noticed_ms;
        uint64_t failure_noticed; /* digest of the failure that the host was told last */
};

struct ts_session {
        struct ts *ts;
        struct ts_session *next;
        uint64_t number;
        struct ts_server *servers;
        size_t n_servers;
        struct ts_adding *adding; /* SERVERS requests under way */
        struct ts_box *boxes;
        struct ts_kernel *kernel; /* NULL: none is attached */
        unsigned n_clients;       /* with those that are being ended */
        bool remote;              /* its kernel is on another machine: no connection of its own */
        bool ending;              /* forgotten: freed when the last client is gone */
        bool report_detached;
        uint64_t detach_id; /* of the DETACH to answer */
};

/* NULL when there is none. In broker.c, like the next one. */
struct ts_session *cg_ts_session_find(struct ts *ts, uint64_t number);
struct cg_mcp_client *cg_ts_session_client(const struct ts_session *s, const char *server);
struct ts_server *cg_ts_session_server(const struct ts_session *s, const char *server);
/* Makes the session when there is none. */
struct ts_session *cg_ts_session_get(struct ts *ts, uint64_t number, struct cg_err *err);
/* Ends its servers and forgets it; DETACHED follows when all are gone, if @report. */
void cg_ts_session_end(struct ts_session *s, bool report);
/* Handles SERVERS. */
void cg_ts_session_add(struct ts_session *s, const struct cg_msg *m);

/* ---- kernels and calls */

/*
 * @number: the supervisor's number of the kernel, which messages about it repeat. @path: NULL for a
 * kernel on another machine, whose calls come and are answered on the broker wire.
 */
int cg_ts_kernel_attach(struct ts_session *s, uint64_t number, const char *path, struct cg_err *err);
/* Cancels its calls (the host of those that wait gets @why) and closes the connection. */
void cg_ts_kernel_detach(struct ts_session *s, const char *why);
/* Fails the calls of @server that wait for a decision: the host was asked about another program. */
void cg_ts_calls_replaced(struct ts_session *s, const char *server);
/*
 * Handles ASK_DECISION. @approval, @cell: the host's numbers, which reports about the call repeat.
 * @report: CALL_ENDED is to follow an acceptance; @audited: with a digest.
 */
void cg_ts_call_decide(struct ts_session *s, uint64_t ask, uint64_t approval, uint64_t cell, bool accept,
                       bool timed_out, bool report, bool audited, const char *reason);
/* Handle CALL and CALL_CANCEL of a kernel on another machine. */
void cg_ts_kernel_call(struct ts_session *s, struct cg_msg *m);
void cg_ts_kernel_cancel(struct ts_session *s, uint64_t call);
/* Handles CALL_RESULT: of a call that the host carries out. */
void cg_ts_call_returned(struct ts_session *s, const struct cg_msg *m, const json_t *body);
/* Handles KEEP: a large result of a function, of a call of the kernel with that number. */
void cg_ts_keep(struct ts_session *s, uint64_t kernel, const struct cg_msg *m);
/* Numbers of the call @data for its kernel and for the host (0: it has not decided). */
void cg_ts_call_numbers(const void *data, uint64_t *kernel, uint64_t *approval, uint64_t *cell);
uint64_t cg_ts_kernel_number(const struct ts_kernel *k);

/* A box's synced(): ends the calls of its server (@box NULL: all) whose errors wait for that. */
void cg_ts_calls_synced(struct ts_session *s, const struct ts_box *box, uint64_t number);

/* ---- questions of servers */

/* ask() and ask_closed() of a client; @data: its session. */
int cg_ts_question(void *data, void *call, const char *server, const char *method, struct cg_slice params,
                   uint64_t *number, struct cg_err *err);
void cg_ts_question_closed(void *data, uint64_t number, const char *why);
/* Handles SERVER_ANSWER. */
int cg_ts_question_answered(struct ts_session *s, const struct cg_msg *m, const json_t *body,
                            struct cg_err *err);

/* ---- sandbox.c: servers with a sandbox of ours */

/*
 * Of the server with this definition (borrowed). @synced: the sandbox has reported what it had
 * denied at cg_ts_box_sync(), up to that number. NULL: out of memory.
 */
struct ts_box *cg_ts_box_new(struct ts_session *s, const struct cg_mcp_def *def,
                             void (*synced)(struct ts_session *s, const struct ts_box *box, uint64_t number));
/* @client: whose box it is, which frees it. */
void cg_ts_box_of(struct ts_box *box, const struct cg_mcp_client *client);
/* Callbacks of struct cg_mcp_client_options; @data: a box. */
void cg_ts_box_line(void *data, struct cg_slice line, bool old);
void cg_ts_box_free(void *data);
/* How many denials there were so far. NULL is a server without such a sandbox: none. */
uint64_t cg_ts_box_denials(const struct ts_box *box);
/*
 * Asks the sandbox to report what it has denied until now; synced() follows with *number or a
 * larger one. False: there is nobody to ask.
 */
bool cg_ts_box_sync(struct ts_box *box, uint64_t *number);
/* Appends what was denied after the first @before, as sentences; nothing: nothing was. */
void cg_ts_box_add_denials(const struct ts_box *box, uint64_t before, struct cg_buf *b);
/* Handles EGRESS_DECISION. */
void cg_ts_box_decided(struct ts_session *s, uint64_t number, const char *answer, const char *reason);

/* A server has reported progress of the call @data. */
void cg_ts_call_progress(void *data, const struct cg_mcp_progress *p);
