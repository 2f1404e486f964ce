/*
 * JSON-RPC 2.0 in lines: framing, finding the parts of a message without parsing its payload, and
 * putting messages together.
 *
 * Both ends use it: the MCP client (tool server, `cellgate gen`) and the MCP server. Payloads
 * (params, result, error) are byte ranges into the line; nothing in them is converted, so what a
 * JSON library would refuse or change passes unharmed.
 */
#pragma once

#include "base/buf.h"
#include "base/json_text.h"

/* ---- messages */

enum cg_rpc_kind { CG_RPC_REQUEST, CG_RPC_NOTIFICATION, CG_RPC_RESULT, CG_RPC_ERROR };

struct cg_rpc {
        enum cg_rpc_kind kind;
        struct cg_slice id; /* as it stands: string or integer; CG_SLICE_NONE: absent or null */
        bool id_is_number;
        uint64_t id_number; /* where the id is an integer from 0 to 2^53 */
        char method[128];   /* requests and notifications */
        struct cg_slice params, result, error;
};

/*
 * Takes one message apart. CG_E_PARSE: not JSON (a log line, for example); CG_E_PROTO: JSON, but no
 * message: a top-level member twice or with an escape in its name, no "jsonrpc": "2.0", neither
 * method nor result nor error, an id of another type.
 */
int cg_rpc_parse(struct cg_slice text, struct cg_rpc *ret, struct cg_err *err);

/*
 * What a text that cg_rpc_parse() refused was meant to be. Found without regard to its values: it
 * may be no JSON, or only the beginning of a message.
 */
struct cg_rpc_unreadable {
        enum {
                CG_RPC_NO_MESSAGE, /* a log line, for example */
                CG_RPC_UNREADABLE_ANSWER,
                CG_RPC_UNREADABLE_REQUEST,
                CG_RPC_UNREADABLE_NOTIFICATION,
        } kind;
        bool certain;       /* it has "jsonrpc": not only an object with an id and a result */
        struct cg_slice id; /* a number or a string; CG_SLICE_NONE: absent, twice or unreadable */
        uint64_t id_number; /* where it is a number from 1 to 2^53; else 0 */
};

void cg_rpc_inspect(struct cg_slice text, struct cg_rpc_unreadable *ret);

/*
 * Each appends one message and its newline, or leaves the buffer, which may be a queue, as it was.
 * @params and @result are JSON text or NULL (none, {}).
 */
int cg_rpc_add_request(struct cg_buf *b, uint64_t id, const char *method, const char *params,
                       struct cg_err *err);
int cg_rpc_add_notification(struct cg_buf *b, const char *method, const char *params, struct cg_err *err);
int cg_rpc_add_result(struct cg_buf *b, struct cg_slice id, const char *result, size_t len,
                      struct cg_err *err);
/* An id of CG_SLICE_NONE becomes null. */
int cg_rpc_add_error(struct cg_buf *b, struct cg_slice id, int code, const char *message, struct cg_err *err);
/* With @data, JSON text. */
int cg_rpc_add_error_data(struct cg_buf *b, struct cg_slice id, int code, const char *message,
                          const char *data, struct cg_err *err);

#define CG_RPC_PARSE_ERROR      (-32700)
#define CG_RPC_INVALID_REQUEST  (-32600)
#define CG_RPC_METHOD_NOT_FOUND (-32601)
#define CG_RPC_INVALID_PARAMS   (-32602)
#define CG_RPC_INTERNAL_ERROR   (-32603)

/* ---- lines */

/*
 * Cuts a stream of bytes into lines. A line over the limit is passed over up to its end, in bounded
 * memory, and reported; the lines after it are intact. CR before LF is cut off.
 */
struct cg_lines {
        struct cg_buf buf;
        size_t max;
        size_t at;      /* first byte not given out yet */
        size_t scanned; /* no newline between at and here */
        size_t skipped; /* bytes passed over of a line that is too long; 0: none */
};

void cg_lines_init(struct cg_lines *l, size_t max);
void cg_lines_fini(struct cg_lines *l);
/* Room for bytes to be read into; spans given out before become invalid. */
int cg_lines_room(struct cg_lines *l, size_t n, char **ret, struct cg_err *err);
void cg_lines_added(struct cg_lines *l, size_t n);
/*
 * 0: *ret is a line, without its end; CG_TIMEOUT: no whole line is there; CG_E_LIMIT: a line was
 * too long, and is left out.
 */
int cg_lines_next(struct cg_lines *l, struct cg_slice *ret, struct cg_err *err);
/* After the stream's end: what stands there without a newline. CG_TIMEOUT: nothing. */
int cg_lines_rest(struct cg_lines *l, struct cg_slice *ret);
