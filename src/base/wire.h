/*
 * Messages between our processes. A table for each wire has a message's number, name, senders and
 * limits. The enums and the checks are made from it, and a test compares it with docs/wire.md.
 *
 * On the wire a message is a ZeroMQ multipart: a header frame of 24 bytes (little endian), a body
 * frame (JSON object text or empty), and up to CG_MAX_FRAMES - 1 raw frames that are relayed
 * unread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/ceilings.h"

/* Roles, as bits. */
enum cg_role {
        CG_ROLE_HOST = 1, /* the host application: libcellgate */
        CG_ROLE_SUPERVISOR = 2,
        CG_ROLE_KERNEL = 4,
        CG_ROLE_TOOLSERVER = 8,
};

struct cg_msg_spec {
        uint16_t type;
        const char *name;
        unsigned senders; /* bits of enum cg_role */
        size_t body_max;  /* bytes of the body; 0: must be empty */
        size_t raw_max;   /* bytes of all raw frames together */
        unsigned raws;    /* exactly so many raw frames; CG_RAWS_ANY: up to CG_MAX_FRAMES - 1 */
};
#define CG_RAWS_ANY 1000u

struct cg_wire {
        const char *name;
        uint8_t number;
        const struct cg_msg_spec *specs;
        size_t n_specs;
};

/* ---- host wire: libcellgate <-> supervisor. See docs/wire.md for the meaning of each. */
#define H               CG_ROLE_HOST
#define S               CG_ROLE_SUPERVISOR
#define CG_HOST_MSGS(X) /* name               no  senders body limit       raw limit            raws */ \
        X(HELLO, 1, H, 4096, 0, 0) \
        X(WELCOME, 2, S, 65536, 0, 0) \
        X(SESSION_NEW, 10, H, CG_MAX_SETTINGS, 0, 0) \
        X(SESSION_OPENED, 11, S, 65536, 0, 0) \
        X(SESSION_RESET, 12, H, 4096, 0, 0) \
        X(SESSION_END, 13, H, 0, 0, 0) \
        X(SERVERS_ADD, 14, H, CG_MAX_SETTINGS, 0, 0) \
        X(SERVERS_ADDED, 15, S, CG_MAX_REPORT, 0, 0) \
        X(DONE, 16, S, 65536, 0, 0) \
        X(FAILED, 17, S, 65536, 0, 0) \
        X(SESSION_ATTACH, 18, H, 4096, 0, 0) \
        X(SESSION_LIST, 19, H, 0, 0, 0) \
        X(EXECUTE, 20, H, 4096, CG_MAX_CODE, 2) \
        X(CANCEL, 21, H, 0, 0, 0) \
        X(DECISION, 22, H, 65536, 0, 0) \
        X(INPUT_REPLY, 23, H, 4096, CG_MAX_BODY, 1) \
        X(CREDIT, 24, H, 0, 0, 0) \
        X(REQUEST, 25, H, 4096, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(EGRESS_DECISION, 26, H, 65536, 0, 0) \
        X(SERVER_ANSWER, 27, H, 4096, CG_MAX_BODY, 1) \
        X(FUNCTION_RETURN, 28, H, 4096, CG_MAX_TOOL_RESULT, 1) \
        X(EXEC, 31, H, 4096, CG_MAX_COMMAND_TEXT, 1) \
        X(COMMAND_INPUT, 32, H, 0, CG_MAX_COMMAND_INPUT, 1) \
        X(COMMAND_CONTROL, 33, H, 4096, 0, 0) \
        X(SESSIONS, 30, S, CG_MAX_REPORT, 0, 0) \
        X(STATUS, 34, H, 0, 0, 0) \
        X(STATUS_IS, 35, S, CG_MAX_REPORT, 0, 0) \
        X(STOP, 36, H, 4096, 0, 0) \
        X(STREAM, 40, S, 0, CG_MAX_STREAM, 1) \
        X(DISPLAY_DATA, 41, S, 0, CG_MAX_DISPLAY, 1) \
        X(UPDATE_DISPLAY_DATA, 42, S, 0, CG_MAX_DISPLAY, 1) \
        X(EXECUTE_RESULT, 43, S, 0, CG_MAX_DISPLAY, 1) \
        X(CLEAR_OUTPUT, 44, S, 0, 4096, 1) \
        X(ERROR, 45, S, 0, CG_MAX_BODY, 1) \
        X(APPROVAL_REQUEST, 46, S, 65536, CG_MAX_TOOL_ARGS, 1) \
        X(APPROVAL_CLOSED, 47, S, 4096, 0, 0) \
        X(INPUT_REQUEST, 48, S, 4096, CG_MAX_BODY, 1) \
        X(RESULT, 49, S, CG_MAX_BODY, CG_MAX_DISPLAY, 1) \
        X(KERNEL_DIED, 50, S, 65536, 0, 0) \
        X(SESSION_CLOSED, 51, S, 65536, 0, 0) \
        X(NOTICE, 52, S, 65536, 0, 0) \
        X(EXECUTE_INPUT, 53, S, 4096, CG_MAX_CODE, 1) \
        X(REPLY, 54, S, 65536, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(COMM, 55, S, 0, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(DEBUG_EVENT, 56, S, 0, CG_MAX_BODY, 1) \
        X(EGRESS_REQUEST, 57, S, 65536, 0, 0) \
        X(DENIED, 58, S, 65536, 0, 0) \
        X(INPUT_CLOSED, 59, S, 4096, 0, 0) \
        X(PROGRESS, 60, S, 65536, 0, 0) \
        X(SERVER_REQUEST, 61, S, 4096, CG_MAX_BODY, 1) \
        X(FUNCTION_CALL, 62, S, 65536, CG_MAX_TOOL_ARGS, 1) \
        X(APPROVALS_LIST, 63, H, 0, 0, 0) \
        X(APPROVALS, 64, S, CG_MAX_REPORT, 0, 0) \
        X(APPROVALS_CHANGED, 65, S, 0, 0, 0) \
        X(APPROVAL_SHOW, 66, H, 4096, 0, 0) \
        X(APPROVAL_IS, 67, S, 65536, CG_MAX_APPROVAL_TEXT, 2) \
        X(APPROVAL_DECIDE, 68, H, 65536, 0, 0) \
        X(APPROVAL_SHARE, 69, H, 0, 0, 0) \
        X(COMMAND_OUTPUT, 70, S, 0, CG_MAX_STREAM, 1) \
        X(COMMAND_TAKEN, 71, S, 4096, 0, 0) \
        X(COMMAND_RESULT, 72, S, 65536, 0, 0) \
        X(JOBS_LIST, 73, H, 0, 0, 0) \
        X(JOBS, 74, S, CG_MAX_REPORT, 0, 0) \
        X(SESSION_KILL, 75, H, 4096, 0, 0) \
        X(JOB_CANCEL, 76, H, 4096, 0, 0) \
        X(EVENTS_GET, 77, H, 4096, 0, 0) \
        X(EVENTS, 78, S, CG_MAX_REPORT, 0, 0) \
        X(EVENTS_CHANGED, 79, S, 0, 0, 0) \
        X(EVENT_ADD, 80, H, 16384, 0, 0) \
        X(OWN_DECIDED, 81, H, 65536, CG_MAX_TOOL_ARGS, 1)

/*
 * ---- kernel wire: supervisor <-> kernel. Types and contents of the Jupyter protocol; content
 * travels as the raw frame.
 */
#define K CG_ROLE_KERNEL
#define CG_KERNEL_MSGS(X) \
        X(KERNEL_READY, 1, K, 65536, 0, 0) \
        X(EXECUTE_REQUEST, 10, S, 4096, CG_MAX_CODE, 2) \
        X(EXECUTE_REPLY, 11, K, CG_MAX_BODY, CG_MAX_DISPLAY, 1) \
        X(STREAM, 12, K, 0, CG_MAX_STREAM, 1) \
        X(DISPLAY_DATA, 13, K, 0, CG_MAX_DISPLAY, 1) \
        X(UPDATE_DISPLAY_DATA, 14, K, 0, CG_MAX_DISPLAY, 1) \
        X(EXECUTE_RESULT, 15, K, 0, CG_MAX_DISPLAY, 1) \
        X(CLEAR_OUTPUT, 16, K, 0, 4096, 1) \
        X(ERROR, 17, K, 0, CG_MAX_BODY, 1) \
        X(INPUT_REQUEST, 18, K, 4096, CG_MAX_BODY, 1) \
        X(INPUT_REPLY, 19, S, 4096, CG_MAX_BODY, 1) \
        X(INTERRUPT_REQUEST, 20, S, 0, 0, 0) \
        X(SHUTDOWN_REQUEST, 21, S, 0, 0, 0) \
        X(REQUEST, 23, S, 4096, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(REPLY, 24, K, 4096, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(COMM, 25, K, 0, CG_MAX_DISPLAY, CG_RAWS_ANY) \
        X(DEBUG_EVENT, 26, K, 0, CG_MAX_BODY, 1) \
        X(DENIED, 27, K, 0, 16384, 1) \
        X(INPUT_CANCEL, 28, K, 4096, 0, 0) \
        X(INPUT_WAIT, 29, K, 0, 0, 0)

/*
 * ---- tool wire: kernel <-> tool server; a second connection, kernel <-> supervisor, is for calls
 * of functions of the host
 */
#define T CG_ROLE_TOOLSERVER
#define CG_TOOL_MSGS(X) \
        X(CALL, 1, K, 4096, CG_MAX_TOOL_ARGS, 1) \
        X(CALL_RESULT, 2, T | S, 4096, CG_MAX_TOOL_RESULT, 1) \
        X(CALL_CANCEL, 3, K, 0, 0, 0) \
        X(RESULT_READ, 4, K, 4096, 0, 0) \
        X(RESULT_PART, 5, T, 4096, CG_MAX_RESULT_PART, 1) \
        X(RESULT_FREE, 6, K, 0, 0, 0)

/*
 * ---- broker wire: supervisor <-> tool server; libcellgate in the supervisor's place where the
 * kernels are on another machine
 */
#define CG_BROKER_MSGS(X) \
        X(TOOLD_READY, 1, T, 4096, 0, 0) \
        X(ATTACH, 2, S, 8192, 0, 0) \
        X(ATTACHED, 3, T, 4096, 0, 0) \
        X(DETACH, 4, S, 4096, 0, 0) \
        X(DETACHED, 5, T, 0, 0, 0) \
        X(SERVERS, 6, S, CG_MAX_ALL_SETTINGS, 0, 0) \
        X(SERVERS_DONE, 7, T, CG_MAX_REPORT, 0, 0) \
        X(ASK, 8, T, 4096, CG_MAX_TOOL_ARGS, 1) \
        X(ASK_DECISION, 9, S, 65536, 0, 0) \
        X(ASK_CLOSED, 10, T, 4096, 0, 0) \
        X(KERNEL_VIOLATION, 11, T, 4096, 0, 0) \
        X(PROGRESS, 12, T, 65536, 0, 0) \
        X(NOTICE, 13, T, 65536, 0, 0) \
        X(CALL_PROGRESS, 14, T, 65536, 0, 0) \
        X(SERVER_REQUEST, 15, T, 4096, CG_MAX_BODY, 1) \
        X(SERVER_ANSWER, 16, S, 4096, CG_MAX_BODY, 1) \
        X(KEEP, 18, S, 4096, CG_MAX_TOOL_RESULT, 1) \
        X(KEPT, 19, T, 4096, CG_MAX_TOOL_RESULT, 1) \
        X(DENIED, 20, T, 65536, 0, 0) \
        X(EGRESS_ASK, 21, T, 65536, 0, 0) \
        X(EGRESS_DECISION, 22, S, 65536, 0, 0) \
        X(CALL_ENDED, 23, T, 16384, 0, 0) \
        X(CALL, 24, S | T, 65536, CG_MAX_TOOL_ARGS, 1) \
        X(CALL_RESULT, 25, S | T, 4096, CG_MAX_TOOL_RESULT, 1) \
        X(CALL_CANCEL, 26, S, 0, 0, 0)

#define CG_MSG_ENUM_HOST(name, no, ...) CG_HOST_##name = no,
enum cg_host_msg { CG_HOST_MSGS(CG_MSG_ENUM_HOST) };
#define CG_MSG_ENUM_KERNEL(name, no, ...) CG_KERNEL_##name = no,
enum cg_kernel_msg { CG_KERNEL_MSGS(CG_MSG_ENUM_KERNEL) };
#define CG_MSG_ENUM_TOOL(name, no, ...) CG_TOOL_##name = no,
enum cg_tool_msg { CG_TOOL_MSGS(CG_MSG_ENUM_TOOL) };
#define CG_MSG_ENUM_BROKER(name, no, ...) CG_BROKER_##name = no,
enum cg_broker_msg { CG_BROKER_MSGS(CG_MSG_ENUM_BROKER) };
#undef H
#undef S
#undef K
#undef T

extern const struct cg_wire cg_wire_host, cg_wire_kernel, cg_wire_tool, cg_wire_broker;

/* STREAM's flags. */
#define CG_FLAG_STDERR 1u
/* Flag of events on the host wire: the event is about a cell of another host. */
#define CG_FLAG_FOREIGN 2u

/* Flag of a command's events: they do not count as unread events of the session. */
#define CG_FLAG_OWN_WINDOW 4u

/* Version of all wires together: supervisor and library must agree. */
#define CG_WIRE_VERSION 5

struct cg_bytes {
        const void *data;
        size_t len;
};

/*
 * The bytes of a received frame, shared by reference; a NUL follows them. NULL is a frame of no
 * bytes. The count is not atomic: all references to a frame belong to one thread at a time.
 */
struct cg_frame {
        size_t len;
        unsigned refs;
        char data[];
};

/* Uninitialized bytes, with one reference. NULL when out of memory. */
struct cg_frame *cg_frame_new(size_t len);
struct cg_frame *cg_frame_ref(struct cg_frame *f);
/* Drops a reference. NULL is a no-op. Returns NULL. */
struct cg_frame *cg_frame_unref(struct cg_frame *f);

static inline struct cg_bytes cg_frame_bytes(const struct cg_frame *f)
{
        return f ? (struct cg_bytes){ f->data, f->len } : (struct cg_bytes){ "", 0 };
}

struct cg_msg {
        const struct cg_msg_spec *spec; /* NULL: nothing received */
        uint16_t type;
        uint16_t flags;
        /* number of the session; 0 where the connection identifies it or there is none */
        uint64_t session;
        uint64_t id;     /* cell, request, call or approval: see docs/wire.md */
        size_t n_frames; /* body and raw frames */
        struct cg_frame *frames[CG_MAX_FRAMES];
};

#define CG_MSG_EMPTY ((struct cg_msg){ .spec = NULL })

void cg_msg_fini(struct cg_msg *m);
#define cg_auto_msg CG_CLEANUP(cg_msg_fini)

const char *cg_msg_body(const struct cg_msg *m, size_t *len);
/* i-th raw frame; "" and 0 where there is none */
const char *cg_msg_raw(const struct cg_msg *m, size_t i, size_t *len);
/* The body as an object: CG_E_PROTO when it is not one. An empty body is {}. */
int cg_msg_json(const struct cg_msg *m, json_t **ret, struct cg_err *err);

/* A message to send: header fields, and the body as text (borrowed). */
struct cg_out {
        uint16_t type;
        uint16_t flags;
        uint64_t session;
        uint64_t id;
        const char *body;
        size_t body_len;
        const void *raw; /* one raw frame (copied); has_raw says whether there is one */
        size_t raw_len;
        bool has_raw;
        /* raw frames after that one (borrowed, copied); only with has_raw */
        const struct cg_bytes *more;
        size_t n_more;
};

/*
 * For readers of frames, in this order: cg_msg_start() with the header frame, then
 * cg_msg_check_frame() for each frame before it is read: the @index-th (0 is the body) of @size
 * bytes after raw frames of @raw_before bytes together; @more: another frame follows.
 * Return: 0, or CG_E_PROTO when the message breaks a rule of the table: version, wire, type, may
 * @sender send it, sizes, number of frames.
 */
#define CG_WIRE_HEADER 24
int cg_msg_start(struct cg_msg *m, const struct cg_wire *wire, unsigned sender, const unsigned char *header,
                 size_t len, struct cg_err *err);
int cg_msg_check_frame(const struct cg_msg *m, size_t index, size_t size, size_t raw_before, bool more,
                       struct cg_err *err);
/*
 * For writers of frames: checks the message and makes its header. CG_E_LIMIT: the message is over
 * its own table's limits.
 */
int cg_out_header(const struct cg_wire *wire, const struct cg_out *out, unsigned char header[CG_WIRE_HEADER],
                  struct cg_err *err);
