/*
 * A kernel's calls of tools, and requests for resources and prompts, by file. Private to
 * these files; each of them uses those below it.
 *
 *      kernel.c       the kernel's connection: reads its calls
 *      call.c         a call: check, list, ask, run
 *      kept_answer.c  large results, which stay with this process
 *      answer.c       the end of a call, and of the connection
 *      progress.c     tells the host what a call is, and what its server says of its progress
 *      sandbox.c      servers with a sandbox of ours: what it denies, and whom it asks
 */
#pragma once

#include "base/buf.h"
#include "mcp/toolserver/kept.h"
#include "mcp/toolserver/toolserver.h"

enum place { LISTING, ASKING, RUNNING, KEEPING, AT_HOST };

/* The last progress that the server has reported of a call. */
struct ts_progress {
        struct cg_mcp_progress last; /* its message is in @text */
        char *text;
        bool waits; /* to be reported to the host */
        int64_t ms; /* when a value was reported last */
};

struct ts_call {
        struct ts_kernel *kernel;
        struct ts_call *next;
        uint64_t id;
        uint64_t ask;            /* of ASK, or of CALL */
        uint64_t approval, cell; /* the host's numbers, once it has decided */
        enum place place;
        const char *kind; /* of a failure, see docs/wire.md */
        int64_t timeout_ms;
        int64_t run_ms;              /* when it was first given to its server's client */
        bool accepted;               /* by the host */
        bool unreported;             /* its end is to be reported, */
        bool audited;                /* with a digest of its result */
        bool not_run;                /* once already: its server had lost the session */
        unsigned lists;              /* before ASK, or since it was accepted: out of date when they came */
        struct cg_mcp_req *req;      /* LISTING and RUNNING */
        struct ts_call **conversion; /* RUNNING: its place in the conversion of its result, if there is one */
        enum cg_mcp_method method;
        char *server, *tool; /* tool: or the prompt's name, or the resource's URI; NULL: a list */
        struct cg_frame *args;
        struct ts_progress progress;
        /* RUNNING: denials of its server's sandbox before it; see sandbox.c */
        uint64_t denials_before;
        /* RUNNING: an error that waits for that sandbox to report all denials until now */
        char *held;
        size_t held_len;
        enum cg_mcp_outcome held_outcome;
        const struct ts_box *held_by;
        uint64_t held_sync;
};

struct ts_kernel {
        uint64_t number;            /* the supervisor's */
        struct ts_session *session; /* NULL: detached, only waits to be freed */
        struct cg_zlink link;
        struct ts_call *calls;
        unsigned n_calls;
        size_t args_waiting;
        struct cg_kept_list kept;
        char *folder; /* of its socket; no sandbox shows it */
};

/* ---- call.c */

/* Checks a new call of @call->kernel's list, and lists, asks or fails. */
void cg_ts_call_begin(struct ts_call *call);

/* ---- kept_answer.c */

/* Ends the call with a result of which long strings stay here, if there are some. */
void cg_ts_keep_result(struct ts_call *call, const char *bytes, size_t len);
/* Handles RESULT_READ. Return: as on_message() wants it. */
int cg_ts_kept_read(struct ts_kernel *k, const struct cg_msg *m, struct cg_err *err);

/* ---- answer.c */

/* Sends the one answer to a call. A result that cannot be sent becomes a failure that can. */
void cg_ts_kernel_answer(struct ts_kernel *k, uint64_t id, const char *status, const char *kind,
                         const char *raw, size_t len);

/*
 * Reports the end of an accepted call, once. @result: what the server answered, of which the size
 * and the SHA-256 are reported for the audit log; NULL: it gave no result.
 */
void cg_ts_call_report(struct ts_call *call, const char *status, const char *result, size_t len);
/* The same for the call @approval, which had been withdrawn when it was accepted. */
void cg_ts_report_no_call(struct ts_session *s, uint64_t approval);
/* Ends the call with an answer. The kernel may be detached afterwards. */
void cg_ts_call_end(struct ts_call *call, const char *status, const char *raw, size_t len);
/* The same with status "failed"; kind "unavailable" where none is set. */
void cg_ts_call_fail(struct ts_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Withdraws the call from the state it is in: no answer for it is accepted any more. */
void cg_ts_call_withdraw(struct ts_call *call, const char *why);
/* Bytes of the text of a failure. */
#define CG_TS_FAILURE 4608

/* Answers KEEP. */
void cg_ts_send_kept(struct ts_session *s, uint64_t kernel, uint64_t id, const char *status, const char *kind,
                     const char *raw, size_t len);

/* ---- progress.c */

/* Appends `"server", "method", "tool"`: what the call is, as the host is told. */
void cg_ts_add_names(const struct ts_call *call, struct cg_buf *b);
/* Reports the last value, unless the supervisor does not read: then it waits. */
void cg_ts_send_progress(struct ts_call *call);
