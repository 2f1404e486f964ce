/*
 * A child process that speaks in lines: how the MCP client reaches a stdio server.
 *
 * The child leads a session and process group of its own, so that wrappers (npx, uvx) and what they
 * start can be ended whole. Everything happens on the caller's libuv loop, nothing blocks, one
 * thread.
 */
#ifndef CG_MCP_STDIO_CHILD_H
#define CG_MCP_STDIO_CHILD_H

#include <uv.h>
#include "base/log.h"
#include "mcp/def.h"
#include "mcp/jsonrpc.h"

struct cg_stdio;

struct cg_stdio_cbs {
        /* A line of its standard output; valid during the call. */
        void (*line)(void *data, struct cg_slice line);
        /* A line over the limit was left out. */
        void (*too_long)(void *data, const char *why);
        /*
         * It ended, or stopped listening or talking, without being asked to. @how says what
         * happened, with its last words on standard error. No line follows; what is left of it is
         * being ended.
         */
        void (*ended)(void *data, const char *how);
        /* No process of its group is left, and it is about to be freed. Always the last. */
        void (*gone)(void *data);
};

/*
 * Starts it. The definition is borrowed until gone(). Where this fails nothing is called back.
 */
int cg_stdio_start(uv_loop_t *loop, const struct cg_mcp_def *def, const struct cg_log *log,
                   const struct cg_stdio_cbs *cbs, void *data, struct cg_stdio **ret, struct cg_err *err);
/*
 * Queues the bytes from @skip to @len for its standard input (takes @text, also when it fails).
 * CG_E_LIMIT: it does not read.
 */
int cg_stdio_send(struct cg_stdio *s, char *text, size_t skip, size_t len, struct cg_err *err);
/* Bytes of that, and what they cost, which it has not read. */
size_t cg_stdio_unread(const struct cg_stdio *s);
/*
 * Ends it in order: closes its standard input, SIGTERM to the group after 2 s, SIGKILL after 2
 * more; each step early when it has ended. Only gone() is called back after this. May be called
 * again.
 */
void cg_stdio_end(struct cg_stdio *s);
/* Logs a line that it wrote: rendered safe, cut, without secrets, and not too often. */
void cg_stdio_log_line(struct cg_stdio *s, enum cg_log_level level, const char *what, struct cg_slice line);
/*
 * Its last words on standard error as ": its last output: ..." or "" (borrowed, until the next
 * line).
 */
const char *cg_stdio_last_words(struct cg_stdio *s);

#endif
