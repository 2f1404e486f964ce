/*
 * The protocol core of an MCP server: of the handshake era (2024-11-05 to 2025-11-25), and of the
 * stateless era (2026-07-28), whose requests say in their _meta what the handshake said before. A
 * client may use both at any time: some shake hands after a successful server/discover.
 *
 * It takes messages apart, answers what needs no tool (initialize, ping, server/discover,
 * tools/list, methods that do not exist) and hands the rest to its owner. No input or output, no
 * threads, and no state but what the handshake settled: whoever carries the bytes owns it.
 */
#pragma once

#include "mcp/jsonrpc.h"

/* Who the server is. All borrowed, for the life of the server. */
struct cg_mcpd_info {
        const char *name, *title, *version;
        const char *instructions;      /* for the agent; NULL: none */
        const char *const *tool_names; /* NULL-terminated */
        const char *tools;             /* JSON array text of the tool objects, in the same order */
        const char *templates;         /* the same of resource templates; NULL: it has no resources */
        bool logs;                     /* it sends notifications/message */
        bool tasks;                    /* its calls may become tasks, for clients that can have some */
};

enum cg_mcpd_revision {
        CG_MCPD_NONE = 0,
        CG_MCPD_2024_11_05,
        CG_MCPD_2025_03_26,
        CG_MCPD_2025_06_18,
        CG_MCPD_2025_11_25
};

/* Levels of notifications/message; a client that names none gets no messages. */
enum cg_mcpd_level {
        CG_MCPD_LOG_NONE = 0,
        CG_MCPD_LOG_DEBUG,
        CG_MCPD_LOG_INFO,
        CG_MCPD_LOG_NOTICE,
        CG_MCPD_LOG_WARNING,
        CG_MCPD_LOG_ERROR,
        CG_MCPD_LOG_CRITICAL,
        CG_MCPD_LOG_ALERT,
        CG_MCPD_LOG_EMERGENCY
};

/* As in the protocol. */
const char *cg_mcpd_level_name(enum cg_mcpd_level level);

struct cg_mcpd_peer {
        bool stateless;         /* it is of the stateless era: nothing can be requested of it */
        bool modes;             /* its forms have a mode */
        bool can_ask;           /* it can show a form (elicitation) */
        bool can_open;          /* it can have its user open a page (elicitation) */
        bool tasks;             /* a call's result may be a task, which it asks about (CG_MCPD_TASKS) */
        enum cg_mcpd_level log; /* the least that it wants; in the stateless era of this request */
        char client[100];       /* name that it gives itself; "": none, or a longer one */
};

struct cg_mcpd {
        const struct cg_mcpd_info *info;
        enum cg_mcpd_revision revision; /* of the handshake; CG_MCPD_NONE before initialize */
        struct cg_mcpd_peer handshake;
        struct cg_mcpd_peer peer; /* of the last request */
};

/* The revision of the stateless era. */
#define CG_MCPD_STATELESS "2026-07-28"
/* The extension of tasks, of the stateless era. */
#define CG_MCPD_TASKS "io.modelcontextprotocol/tasks"
/* Codes of errors: the version is not supported; the client has not declared what this needs. */
#define CG_MCPD_BAD_VERSION (-32022)
#define CG_MCPD_UNDECLARED  (-32021)

/*
 * Not of MCP. By this variable cellgate-mcp-http says how the ids of all sessions of the process
 * begin, with "s" behind it that each call without session_id gets a session of its own, and with
 * "n" that its clients are told apart by the names that they give themselves; by
 * the next one the place at which clients with its second token decide, if there are any; by
 * CG_MCPD_REQUEST in the _meta of a message which request of the stateless era it belongs to; by
 * this member of notifications/cancelled that the client has gone and not cancelled anything; by
 * this method it asks whether anything would be lost if the server ended; and by this notification
 * it says of a request that the client reads another stream than its own.
 */
#define CG_MCPD_HTTP_SESSION "CELLGATE_HTTP_SESSION"
#define CG_MCPD_HTTP_PLACE   "CELLGATE_HTTP_PLACE"
#define CG_MCPD_REQUEST      "cellgate/request"
#define CG_MCPD_GONE         "cellgate/gone"
#define CG_MCPD_BUSY_METHOD  "cellgate/busy"
#define CG_MCPD_BACK_METHOD  "cellgate/back"

enum cg_mcpd_kind {
        CG_MCPD_CALL,        /* tools/call of a tool that exists: id, name, arguments, progress_token */
        CG_MCPD_CANCEL,      /* notifications/cancelled: id is the request's */
        CG_MCPD_GONE_CLIENT, /* the same, with CG_MCPD_GONE */
        CG_MCPD_BACK,        /* CG_MCPD_BACK_METHOD: id is the request's */
        CG_MCPD_ANSWER,      /* to a request of ours: id, and result or error */
        CG_MCPD_BUSY,        /* CG_MCPD_BUSY_METHOD, to be answered: id */
        CG_MCPD_RESOURCES,   /* resources/list: id, and value is the cursor or CG_SLICE_NONE */
        CG_MCPD_READ,        /* resources/read: id, and value is the URI */
        /* tasks/get, update, cancel of a client that has declared tasks: id, value is the taskId */
        CG_MCPD_TASK_GET,
        CG_MCPD_TASK_UPDATE, /* input_responses: an object */
        CG_MCPD_TASK_CANCEL,
};

/* Spans point into the line. */
struct cg_mcpd_in {
        enum cg_mcpd_kind kind;
        struct cg_slice id;
        const char *name;               /* one of info->tool_names */
        struct cg_slice arguments;      /* one JSON object */
        struct cg_slice progress_token; /* as it stands; CG_SLICE_NONE: no progress is wanted */
        struct cg_slice result, error;
        /* of CG_MCPD_CALL in the stateless era, and of CG_MCPD_TASK_UPDATE; else CG_SLICE_NONE */
        struct cg_slice request_state, input_responses;
        struct cg_slice value; /* a JSON string */
};

/* Returns 0, or negative to end cg_mcpd_line() with that. */
typedef int (*cg_mcpd_fn)(void *data, const struct cg_mcpd_in *in, struct cg_err *err);

void cg_mcpd_init(struct cg_mcpd *s, const struct cg_mcpd_info *info);

/*
 * Handles one line. What can be answered at once is appended to @out, messages with their newlines;
 * @fn is called for the rest, in order. A line that is no message is answered with an error, and is
 * no failure. Return: 0; negative: out of memory, or what @fn returned.
 */
int cg_mcpd_line(struct cg_mcpd *s, struct cg_slice line, struct cg_buf *out, cg_mcpd_fn fn, void *data,
                 struct cg_err *err);

/*
 * The owner's answer to the last request: @result is the text of an object without its closing
 * brace, and is completed. @ttl_ms: how long a client may keep it.
 */
int cg_mcpd_answer(const struct cg_mcpd *s, struct cg_slice id, struct cg_buf *result, int ttl_ms,
                   struct cg_buf *out, struct cg_err *err);
/* The answer to CG_MCPD_READ of what is not there. */
int cg_mcpd_no_resource(const struct cg_mcpd *s, const struct cg_mcpd_in *in, const char *why,
                        struct cg_buf *out, struct cg_err *err);

/* ---- declared.c */
/* The clientCapabilities of a request have CG_MCPD_TASKS. */
bool cg_mcpd_declares_tasks(struct cg_slice capabilities);
/*
 * Whether the params of subscriptions/listen want the states of tasks and are of a client that has
 * not declared tasks, which must be an error.
 */
bool cg_mcpd_wants_undeclared_tasks(struct cg_slice params);
/* A string or a number of a length that may be a progressToken. */
bool cg_mcpd_is_token(struct cg_slice s);

/* The answer to a line that was left out because it is too long; @why from cg_lines_next(). */
int cg_mcpd_line_too_long(struct cg_buf *out, const char *why, struct cg_err *err);
