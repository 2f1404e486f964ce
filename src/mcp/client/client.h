/*
 * The client of one MCP server, over stdio or HTTP: starts it when it is needed, handshake,
 * tools/list, tools/call, restart.
 *
 * Runs in the tool server (one for each server of each session) and in `cellgate gen`, on the
 * caller's libuv loop, one thread. Nothing blocks; every request has its end: an answer, a
 * deadline, a cancel, or the end of the server.
 */
#pragma once

#include <uv.h>
#include "base/log.h"
#include "mcp/client/def.h"
#include "mcp/jsonrpc.h"
#include "mcp/client/methods.h"
#include "mcp/pins/pins.h"

struct cg_mcp_client;
struct cg_mcp_req;

enum cg_mcp_outcome {
        /*
         * The bytes are the result object; for a list: one with the elements of all pages, and for
         * tools their array alone.
         */
        CG_MCP_OK,
        CG_MCP_ERROR,  /* the bytes are the JSON-RPC error object */
        CG_MCP_FAILED, /* the bytes are text that says what happened, from here on */
        CG_MCP_TIMEOUT,
        CG_MCP_DIED, /* the server ended after the request was sent */
        CG_MCP_TOO_LARGE,
        /*
         * A call was not carried out, because the server has lost its session. The tools of the
         * next session are not known yet: list them, and check the tool again, before it is called
         * there.
         */
        CG_MCP_NOT_RUN,
        /*
         * A request waited and was not sent: the server has ended, or the tools may have changed.
         * Check the tool again, as above.
         */
        CG_MCP_NOT_SENT,
};

/*
 * The end of a request: from the loop or out of cg_mcp_client_end(), never from the call that began
 * it. The bytes are valid during the call.
 */
typedef void (*cg_mcp_done)(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len);

/* Servers that were found to be legacy, by their definitions' digests: not probed again. */
struct cg_mcp_eras {
        uint64_t legacy[256];
        unsigned n; /* written so far; the oldest is replaced */
};

/* Progress of a call, from the server, or from the client when the server is silent. */
struct cg_mcp_progress {
        double progress;         /* NAN: of the client */
        double total;            /* NAN: unknown */
        struct cg_slice message; /* a JSON string; CG_SLICE_NONE: none */
};

/* Kinds of what a server asks the host for. */
#define CG_MCP_ELICITATION 1u /* forms */
#define CG_MCP_SAMPLING    2u
#define CG_MCP_URL         4u /* elicitation by a web page */

struct cg_mcp_client_options {
        uv_loop_t *loop;
        const struct cg_log *log; /* NULL: none */
        struct cg_mcp_eras *eras; /* shared by clients; NULL: nothing is remembered */
        /* after cg_mcp_client_end(): all is freed, no process is left */
        void (*gone)(void *data);
        void *data;
        /* compared with each list, before its request ends; NULL: any tool is called */
        struct cg_pins *pins;
        /* Each list of its tools, after the pins. NULL: it is not listed without a request. */
        void (*listed)(void *data, struct cg_mcp_client *c, const char *tools, size_t len);
        /* @call: data of cg_mcp_client_call(). Each number of a call is larger than the last. */
        void (*progress)(void *call, const struct cg_mcp_progress *p);
        /* the one root that a server gets whose definition has "roots" (copies); NULL: none */
        const char *workspace;
        /* Requests of servers that ask() handles. Others are not offered, and declined. */
        unsigned handles;
        /*
         * Asks the host. @call: data of the call that it belongs to; NULL: unknown. *number: for
         * cg_mcp_client_answer(), which is called later. Negative: it cannot be asked.
         */
        int (*ask)(void *data, void *call, const char *server, const char *method, struct cg_slice params,
                   uint64_t *number, struct cg_err *err);
        /*
         * A line of the server's own sandbox, see `cellgate sandbox --report`; an empty one: the
         * server ends. @old: of one that ends, beside which another may have been started. NULL:
         * they are dropped.
         */
        void (*sandbox)(void *sandbox_data, struct cg_slice line, bool old);
        void *sandbox_data;
        void (*sandbox_free)(void *sandbox_data); /* when all is gone */
        /* An answer is not wanted any more. */
        void (*ask_closed)(void *data, uint64_t number, const char *why);
};

/* Sends a line to the server's sandbox. False: it has none, or it does not read. */
bool cg_mcp_client_send_sandbox(const struct cg_mcp_client *c, const char *line, size_t len);

/* Takes @def and @o->pins (even when it fails). Starts nothing yet. */
int cg_mcp_client_new(const struct cg_mcp_client_options *o, struct cg_mcp_def *def,
                      struct cg_mcp_client **ret, struct cg_err *err);
/*
 * Fails every request with @why, ends the server in order, frees the client when it is gone. The
 * pointer is dead at once.
 */
void cg_mcp_client_end(struct cg_mcp_client *c, const char *why);

/* How long its start and list may take: by its definition, else @timeout_ms, else the default. */
int64_t cg_mcp_client_start_ms(const struct cg_mcp_client *c, int64_t timeout_ms);
/* How long a call may take: @timeout_ms, or where that is 0 by its definition; 0: no limit. */
int64_t cg_mcp_client_call_ms(const struct cg_mcp_client *c, int64_t timeout_ms);
const char *cg_mcp_client_name(const struct cg_mcp_client *c);
/* Borrowed. */
const struct cg_mcp_def *cg_mcp_client_def(const struct cg_mcp_client *c);

/* 0: the server may be started now; negative with the reason while its starts keep failing. */
int cg_mcp_client_check(struct cg_mcp_client *c, struct cg_err *err);

/*
 * Lists the tools, all pages, and remembers their names; starts the server when it does not run.
 * @timeout_ms: for all of it; 0: CG_MCP_START_MS. @cell: a cell has chosen to ask now, and nobody
 * was asked: all but the first list begin at multiples of CG_MCP_RELIST_MS only. Negative (and
 * @done is never called): it cannot be started; *err says why.
 */
int cg_mcp_client_list(struct cg_mcp_client *c, int64_t timeout_ms, bool cell, cg_mcp_done done, void *data,
                       struct cg_mcp_req **ret, struct cg_err *err);

/* Lists the tools without a request, for listed(): some seconds after the last list. */
void cg_mcp_client_list_later(struct cg_mcp_client *c);

/*
 * Calls a tool with exactly the bytes @args: one JSON object, checked by the caller, without CR and
 * LF (copies). It waits while "maxConcurrency" others are under way.
 * @timeout_ms: chosen by a cell, so it gives the server's start no more time; 0: by its
 * definition, else none. Negative: as above.
 */
int cg_mcp_client_call(struct cg_mcp_client *c, const char *tool, const char *args, size_t len,
                       int64_t timeout_ms, cg_mcp_done done, void *data, struct cg_mcp_req **ret,
                       struct cg_err *err);

/*
 * Sends resources/read or prompts/get with exactly the members of @params, one JSON object as
 * above; @name: the URI or the prompt's name in it. For the rest as cg_mcp_client_call().
 */
int cg_mcp_client_request(struct cg_mcp_client *c, enum cg_mcp_method method, const char *name,
                          const char *params, size_t len, int64_t timeout_ms, cg_mcp_done done, void *data,
                          struct cg_mcp_req **ret, struct cg_err *err);

/*
 * Lists resources, templates or prompts for a cell, all pages, and keeps the list. @timeout_ms: 0:
 * as long as its start may take. For the rest as cg_mcp_client_list() with @cell.
 */
int cg_mcp_client_list_other(struct cg_mcp_client *c, enum cg_mcp_method method, int64_t timeout_ms,
                             cg_mcp_done done, void *data, struct cg_mcp_req **ret, struct cg_err *err);
/* The kept list (borrowed); CG_SLICE_NONE: there is none, or it may have changed since. */
struct cg_slice cg_mcp_client_kept_list(const struct cg_mcp_client *c, enum cg_mcp_method method);
/* False: the list may have changed unnoticed: no changes are announced, and no ttlMs was given. */
bool cg_mcp_client_reports_changes(const struct cg_mcp_client *c, enum cg_mcp_method method);
/* Whether the kept list of prompts has this name. */
bool cg_mcp_client_has_prompt(const struct cg_mcp_client *c, const char *name);
/* False: the server has said what it offers, and this is not among it. */
bool cg_mcp_client_offers(const struct cg_mcp_client *c, enum cg_mcp_method method);

/*
 * Gives the request up; done() is not called. The pointer is dead afterwards, as it is after
 * done(). The server is notified of calls; a list runs on.
 */
void cg_mcp_req_cancel(struct cg_mcp_req *q, const char *reason);

/*
 * The text of a request that has failed, as an error. Of what the server wrote to standard error,
 * the last lines that fit.
 */
int cg_mcp_fail_text(struct cg_err *err, const char *text, size_t len);

/*
 * The host's answer to a question: a JSON object, or NULL: @action ("decline", "cancel") because of
 * @why. False: there is no such question.
 */
bool cg_mcp_client_answer(struct cg_mcp_client *c, uint64_t number, const char *result, size_t len,
                          const char *action, const char *why);

/*
 * Whether the tools are known: listed, and not announced as changed since. Of a server over HTTP
 * that announces nothing, for as long as its list is valid.
 */
bool cg_mcp_client_is_listed(const struct cg_mcp_client *c);
/* Without the subscription to changes all lists count as changed. The next list subscribes. */
void cg_mcp_client_check_subscription(struct cg_mcp_client *c);
bool cg_mcp_client_has_tool(const struct cg_mcp_client *c, const char *tool);
/* Its pins (borrowed), or NULL. */
struct cg_pins *cg_mcp_client_pins(const struct cg_mcp_client *c);
/* Appends up to three names of tools or prompts like @name as `"a", "b"`, if any is close. */
void cg_mcp_client_close_names(const struct cg_mcp_client *c, enum cg_mcp_method method, const char *name,
                               struct cg_buf *b);
