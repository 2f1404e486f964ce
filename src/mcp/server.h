/*
 * The protocol core of an MCP server of the handshake era (2024-11-05 to 2025-11-25).
 *
 * It takes messages apart, answers what needs no tool (initialize, ping, tools/list, methods that
 * do not exist) and hands the rest to its owner. No input or output, no threads, and no state but
 * what the handshake settled: whoever carries the bytes (standard input and output today) owns it.
 */
#ifndef CG_MCP_SERVER_H
#define CG_MCP_SERVER_H

#include <stdbool.h>
#include "mcp/jsonrpc.h"

/* Who the server is. All borrowed, for the life of the server. */
struct cg_mcpd_info {
        const char *name, *title, *version;
        const char *instructions;      /* for the agent; NULL: none */
        const char *const *tool_names; /* NULL-terminated */
        const char *tools;             /* JSON array text of the tool objects, in the same order */
};

enum cg_mcpd_revision {
        CG_MCPD_NONE = 0,
        CG_MCPD_2024_11_05,
        CG_MCPD_2025_03_26,
        CG_MCPD_2025_06_18,
        CG_MCPD_2025_11_25
};

struct cg_mcpd {
        const struct cg_mcpd_info *info;
        enum cg_mcpd_revision revision; /* CG_MCPD_NONE before initialize */
        char client[100];               /* name that it gives itself; "": none, or a longer one */
        bool can_ask;                   /* the client can show a form (elicitation) */
        bool can_open;                  /* the client can have its user open a page (elicitation) */
};

/* Not of MCP: cellgate-mcp-http asks whether anything would be lost if the server ended. */
#define CG_MCPD_BUSY_METHOD "cellgate/busy"

enum cg_mcpd_kind {
        CG_MCPD_CALL,   /* tools/call of a tool that exists: id, name, arguments, progress_token */
        CG_MCPD_CANCEL, /* notifications/cancelled: id is the request's */
        CG_MCPD_ANSWER, /* to a request of ours: id, and result or error */
        CG_MCPD_BUSY,   /* CG_MCPD_BUSY_METHOD, to be answered: id */
};

/* Spans point into the line. */
struct cg_mcpd_in {
        enum cg_mcpd_kind kind;
        struct cg_slice id;
        const char *name;               /* one of info->tool_names */
        struct cg_slice arguments;      /* one JSON object */
        struct cg_slice progress_token; /* as it stands; CG_SLICE_NONE: no progress is wanted */
        struct cg_slice result, error;
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

/* The answer to a line that was left out because it is too long; @why from cg_lines_next(). */
int cg_mcpd_line_too_long(struct cg_buf *out, const char *why, struct cg_err *err);

#endif
