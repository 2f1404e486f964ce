/*
 * The kernel's input and output: its connections, the pipes at descriptors 1 and 2, and the thread
 * that serves them, which never takes the GIL. Other threads append output to one ordered, bounded
 * queue and wait for replies.
 *
 * No function takes or needs the GIL. Release it before calling those that may wait, which say so.
 * A forked child of the kernel must not use any of them but cg_io_forked().
 */
#pragma once

#include <pthread.h>
#include <sys/queue.h>
#include "base/buf.h"
#include "base/wire.h"
#include "kernel/error_lines.h"

struct cg_io;

struct cg_io_config {
        int kernel_fd;   /* listener of the kernel wire (taken, also on failure) */
        int tool_fd;     /* listener of the tool wire (taken, also on failure) */
        int function_fd; /* listener for calls of functions of the host (taken, also on failure) */
        /*
         * Makes the main thread's interpreter call cg_io_interrupt_arrived() soon. @again: sets the
         * interpreter's flag as well. Called by the I/O thread right after it has sent SIGINT.
         */
        void (*interrupt)(struct cg_io *io, bool again);
};

/* Size of the output queue; writers wait while it is larger. */
#define CG_IO_QUEUE_BYTES (4u << 20)

/* Makes the pipes, but starts no thread. The calling thread becomes the main thread. */
int cg_io_new(const struct cg_io_config *config, struct cg_io **ret, struct cg_err *err);
/* Puts the pipes at descriptors 1 and 2 and /dev/null at 0, and starts the I/O thread. */
int cg_io_start(struct cg_io *io, struct cg_err *err);
/* True in a process that the kernel forked. */
bool cg_io_forked(const struct cg_io *io);
/*
 * From now on earlier output is sent (0.3 s at most) before a fatal signal such as SIGSEGV ends the
 * process. faulthandler, which is enabled later, runs before that.
 */
void cg_io_catch_crashes(struct cg_io *io);
/* Sends what is queued (0.3 s at most) and ends the process. Does not return. */
void cg_io_exit(struct cg_io *io, int status) __attribute__((noreturn));

/*
 * ---- requests. A shell runs cells and answers requests one at a time, in its own thread. The name
 * of the main shell is "", that of the control shell, which runs no cells, CG_IO_CONTROL.
 */

struct cg_shell;

#define CG_IO_CONTROL "control"
/* Most shells at a time; each has a thread. */
#define CG_IO_MAX_SHELLS 34
#define CG_IO_SHELL_NAME 40

enum cg_request_kind {
        CG_REQUEST_CELL = 1,  /* frames: code, extra */
        CG_REQUEST_OTHER,     /* frames: content, buffers */
        CG_REQUEST_SHUTDOWN,  /* main shell: run atexit, then cg_io_exit() */
        CG_REQUEST_INTERRUPT, /* control shell: interrupt cell @id of a subshell */
        CG_REQUEST_CLOSE,     /* a subshell: the last request */
        CG_REQUEST_CALL,      /* main shell: from another thread of this process */
};

struct cg_request {
        STAILQ_ENTRY(cg_request) entry;
        enum cg_request_kind kind;
        uint64_t id;
        bool silent, store_history, allow_stdin, warm; /* of a cell */
        bool offer;                                    /* a comm message that only a waiting cell takes */
        char type[40];                                 /* of another request: "complete_request" */
        size_t n_frames;
        struct cg_frame *frames[];
};

/* @serve serves the control shell, in a thread that is started with its first request. */
void cg_io_set_control(struct cg_io *io, void (*serve)(void *data), void *data);

/* The shell, or NULL. It stays valid until the process ends. */
struct cg_shell *cg_io_shell(struct cg_io *io, const char *name);
/* Makes a subshell; its requests are queued from now on. CG_E_LIMIT, CG_E_EXISTS. */
int cg_io_shell_open(struct cg_io *io, const char *name, struct cg_err *err);
/* Queues CG_REQUEST_CLOSE as the last request of the subshell. CG_E_NOTFOUND. */
int cg_io_shell_close(struct cg_io *io, const char *name, struct cg_err *err);
/* Queues CG_REQUEST_CALL for the main shell. */
int cg_io_call_main(struct cg_io *io, struct cg_err *err);
/* Releases the entry of a subshell whose thread ends. */
void cg_io_shell_gone(struct cg_shell *sh);

/* A descriptor that is readable while requests are queued. */
int cg_io_request_fd(const struct cg_shell *sh);
/* The next request or NULL (caller: cg_request_free()). */
struct cg_request *cg_io_next_request(struct cg_shell *sh);
/*
 * Waits for the next request of the control shell, without a descriptor, which a cell could close
 * (caller: cg_request_free()).
 */
struct cg_request *cg_io_wait_control(struct cg_io *io);
/* The next request if it is an offer, else NULL. */
struct cg_request *cg_io_next_offer(struct cg_shell *sh);
struct cg_request *cg_request_free(struct cg_request *req);

/*
 * Between begin and close an INTERRUPT_REQUEST for this cell or request interrupts the calling
 * thread. Until the reply, output without a cell belongs to this cell. True: it was interrupted
 * before and must not run.
 */
bool cg_io_cell_begin(struct cg_shell *sh, uint64_t cell, bool allow_stdin);
void cg_io_cell_close(struct cg_shell *sh);
/*
 * For the SIGINT handler. True: a cell of the main shell runs and can be interrupted. Ends the
 * attempts of the I/O thread.
 */
bool cg_io_take_interrupt(struct cg_io *io);
/*
 * In the main thread, between two bytecodes. True: the SIGINT of the last attempt has reached
 * Python's signal handler, so there are no further attempts: the caller runs the handlers. False:
 * the cell blocks or ignores SIGINT, or native code has replaced the handler.
 */
bool cg_io_interrupt_arrived(struct cg_io *io);
/*
 * An exception that interrupted the calling thread was ignored. True: the thread runs a cell, which
 * the caller interrupts again: with SIGINT, or as the thread of a subshell.
 */
bool cg_io_repeat_interrupt(struct cg_io *io, bool *subshell);
struct cg_io_target {
        pthread_t thread; /* the thread that runs the cell */
        /* it is in cg_wait_once(), which returns; then cg_io_take_subshell_interrupt() is true */
        bool waits;
        /* cg_procs_now() at its start; 0 if other cells run too */
        uint64_t began;
};

/*
 * Interrupts the wait of the subshell that runs @cell. If it does not wait, the caller must raise
 * the exception in its thread. False: no subshell runs @cell. The caller holds the GIL until it has
 * used *ret, because threads make and free their waits with the GIL held.
 */
bool cg_io_interrupt_subshell(struct cg_io *io, uint64_t cell, struct cg_io_target *ret);
/*
 * In a subshell's thread: true once after its wait was interrupted. Call it before cg_wait_free(),
 * also if the wait is done: the interrupt may have arrived after that.
 */
bool cg_io_take_subshell_interrupt(struct cg_io *io);
/*
 * Sends all output written so far, then EXECUTE_REPLY or REPLY; then no cell runs. May wait.
 * CG_E_LIMIT: too large.
 */
int cg_io_reply(struct cg_shell *sh, const struct cg_out *reply, struct cg_err *err);
/* Sends REPLY to a request of the control shell, without reading the pipes. Does not wait. */
int cg_io_answer(struct cg_io *io, const struct cg_out *reply, struct cg_err *err);
/* True if @cell (or CG_IO_RUNNING) may ask for input now. */
bool cg_io_may_ask(struct cg_io *io, uint64_t cell);
/* The cell of output with CG_IO_RUNNING: the running one, else the last; 0 before the first. */
uint64_t cg_io_running(struct cg_io *io);
/* Output with CG_IO_RUNNING belongs to @cell until the next cell or request; 0: as before. */
void cg_io_set_running(struct cg_io *io, uint64_t cell);

/* ---- output, any thread. @cell: the cell it belongs to, or CG_IO_RUNNING */

#define CG_IO_RUNNING UINT64_MAX

/*
 * Appends text to stream @flags (0 or CG_FLAG_STDERR). @text is valid UTF-8. CG_TIMEOUT: the queue
 * is full, wait for room.
 */
int cg_io_write(struct cg_io *io, uint64_t cell, unsigned flags, const char *text, size_t len,
                struct cg_err *err);
/* The same for any bytes: invalid UTF-8 becomes U+FFFD; the next call may complete a sequence. */
int cg_io_write_bytes(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len,
                      struct cg_err *err);
/*
 * Appends a message of the kernel wire, for the cell m->id (copies). @raw (may be NULL): taken
 * instead if it holds m->raw. CG_TIMEOUT: full, wait for room; CG_E_LIMIT: too large.
 */
int cg_io_publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err);
/* Sends KERNEL_READY. */
int cg_io_ready(struct cg_io *io, const char *body, size_t len, struct cg_err *err);
/*
 * Sends all output so far, also what is in the pipes. False: some waits for room in the socket;
 * cg_io_wait_sent() with *mark waits until it is sent.
 */
bool cg_io_flush(struct cg_io *io, uint64_t *mark);

/* Copies and forgets the lines of the output that report a refused file. Return: their length. */
size_t cg_io_error_lines(struct cg_io *io, char lines[CG_ERROR_LINES_MAX]);

/* ---- waits, made by the functions below and ended by cg_wait_free() */

struct cg_wait;

/*
 * Waits, possibly for ever. 0: done; CG_TIMEOUT: woken by a signal or an interrupt: check for
 * these, then call again.
 */
int cg_wait_once(struct cg_wait *w);
struct cg_wait *cg_wait_free(struct cg_wait *w);

/* Waits for room in the queue. NULL with *err: out of descriptors. */
struct cg_wait *cg_io_wait_room(struct cg_io *io, struct cg_err *err);
/* Waits until the output before @mark is sent (cg_io_flush()). The same errors. */
struct cg_wait *cg_io_wait_sent(struct cg_io *io, uint64_t mark, struct cg_err *err);

/*
 * Sends INPUT_REQUEST; *ret waits for the reply, and cg_wait_free() before that cancels the
 * question. CG_TIMEOUT: another question is open, and *ret waits for its end: free it, then call
 * again. CG_E_STATE: the cell may not ask for input.
 */
int cg_io_input(struct cg_io *io, uint64_t cell, const char *content, size_t len, struct cg_wait **ret,
                struct cg_err *err);
/* Sends INPUT_WAIT if the cell may ask: it was interrupted and continues. */
void cg_io_goes_on(struct cg_io *io, uint64_t cell);
/* After cg_wait_once() returned 0: the text (borrowed until cg_wait_free()); NULL: end of file. */
const char *cg_wait_text(const struct cg_wait *w, size_t *len);

/*
 * ---- tool calls. A wait for calls has any number of them; its descriptor is readable when some
 * have a result. CG_MAX_CALLS are sent at a time, the others follow in order. cg_wait_free()
 * cancels calls that have no result.
 */

struct cg_tool_call;

struct cg_tool_call_result { /* CALL_RESULT, see docs/wire.md */
        char status[24], kind[24];
        struct cg_frame *content;
};

/* @blocking: the caller uses cg_wait_once(), which returns when at least one call has a result. */
struct cg_wait *cg_io_calls(struct cg_io *io, bool blocking, struct cg_err *err);
int cg_calls_fd(const struct cg_wait *w);
/*
 * Queues CALL (copies), which the caller calls @key (not 0). @function: of a function of the host,
 * which the supervisor gets. Call cg_io_flush() before, so that output precedes the question about
 * the call. CG_E_LIMIT: too large.
 */
int cg_io_call(struct cg_wait *w, bool function, uint64_t key, struct cg_bytes body, struct cg_bytes args,
               struct cg_err *err);
/* Sends RESULT_READ; ends like a call. */
int cg_io_read_result(struct cg_wait *w, uint64_t result, uint64_t offset, size_t length, struct cg_err *err);
/* Sends RESULT_FREE. */
void cg_io_free_result(struct cg_io *io, uint64_t result);
/* Cancels these calls, and sends no queued one meanwhile. Their results are dropped. */
void cg_io_cancel(struct cg_wait *w, const uint64_t *keys, size_t n);
/*
 * The calls that have a result (caller: cg_tool_call_free() for each). NULL: none, and the
 * descriptor is not readable any more.
 */
struct cg_tool_call *cg_wait_results(struct cg_wait *w);
/* Some of them, from @first on (takes): they are the next ones again. */
void cg_wait_put_back(struct cg_wait *w, struct cg_tool_call *first);
struct cg_tool_call *cg_tool_call_next(const struct cg_tool_call *c);
/* Its result (borrowed) and key. */
const struct cg_tool_call_result *cg_tool_call_result(const struct cg_tool_call *c, uint64_t *key);
/* Frees what the tool server keeps of its result, which nobody gets. */
void cg_tool_call_drop_kept(struct cg_io *io, const struct cg_tool_call *c);
struct cg_tool_call *cg_tool_call_free(struct cg_tool_call *c);
