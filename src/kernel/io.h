/*
 * The kernel's input and output: both connections, the pipes behind file descriptors 1 and 2, and
 * one thread that serves them and never needs the GIL. The kernel's other threads put output into
 * one ordered, bounded queue and wait here for replies.
 *
 * No function takes or needs the GIL; those that may wait say so: call them with the GIL released.
 * After a fork of the kernel the child must not use any of it: cg_io_forked() tells.
 */
#ifndef CG_KERNEL_IO_H
#define CG_KERNEL_IO_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/wire.h"

struct cg_io;

struct cg_io_config {
        int kernel_fd; /* listener of the kernel wire (taken, also on failure) */
        int tool_fd;   /* listener of the tool wire (taken, also on failure) */
        /* makes the interpreter run its SIGINT handler soon; called in the I/O thread */
        void (*interrupt)(void);
};

/* Output waiting to be sent, in bytes: a writer waits beyond it. */
#define CG_IO_QUEUE_BYTES (4u << 20)

/* Makes the pipes; starts no thread yet. The caller becomes the main thread. */
int cg_io_new(const struct cg_io_config *config, struct cg_io **ret, struct cg_err *err);
/* Puts the pipes at descriptors 1 and 2 and /dev/null at 0, and starts the I/O thread. */
int cg_io_start(struct cg_io *io, struct cg_err *err);
/* True in a process that the kernel forked. */
bool cg_io_forked(const struct cg_io *io);
/*
 * From now on a fatal signal (SIGSEGV and its like) first sends what was written before it, 0.3 s
 * at most. Python's faulthandler, set up after this, writes its traceback before that.
 */
void cg_io_catch_crashes(struct cg_io *io);
/* Sends what is queued (0.3 s at most) and ends the process. Does not return. */
void cg_io_exit(struct cg_io *io, int status) __attribute__((noreturn));

/*
 * ---- requests. A shell runs cells and answers requests one at a time, in its own thread. The main
 * shell has the name "", subshells have those that they were made with, and the control shell,
 * which never waits for a cell, is CG_IO_CONTROL.
 */

struct cg_shell;

#define CG_IO_CONTROL "control"
/* Shells that exist at once: each is a thread. */
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
        struct cg_request *next;
        enum cg_request_kind kind;
        uint64_t id;
        bool silent, store_history, allow_stdin, warm; /* of a cell */
        bool offer;    /* of a comm message: for a cell that waits, and not afterwards */
        char type[40]; /* of another request: "complete_request" */
        size_t n_frames;
        zmq_msg_t frames[];
};

/*
 * @serve serves the control shell; it is called in a thread that is made when it is needed first.
 */
void cg_io_set_control(struct cg_io *io, void (*serve)(void *data), void *data);

/* A shell that exists, or NULL. It stays valid for the life of the process. */
struct cg_shell *cg_io_shell(struct cg_io *io, const char *name);
/* Makes a subshell: from now on its requests wait for it. CG_E_LIMIT, CG_E_EXISTS. */
int cg_io_shell_open(struct cg_io *io, const char *name, struct cg_err *err);
/*
 * It takes no more requests, and the last one that waits is CG_REQUEST_CLOSE. CG_E_NOTFOUND when
 * there is no such subshell.
 */
int cg_io_shell_close(struct cg_io *io, const char *name, struct cg_err *err);
/* The main shell gets CG_REQUEST_CALL. */
int cg_io_call_main(struct cg_io *io, struct cg_err *err);
/* Its thread ends: its place is free. */
void cg_io_shell_gone(struct cg_shell *sh);

/* Descriptor that is readable while a request waits. */
int cg_io_request_fd(const struct cg_shell *sh);
/* The next request or NULL (caller: cg_request_free()). */
struct cg_request *cg_io_next_request(struct cg_shell *sh);
/* The same where the next request is an offer, else NULL. */
struct cg_request *cg_io_next_offer(struct cg_shell *sh);
struct cg_request *cg_request_free(struct cg_request *req);

/*
 * Between begin and close an INTERRUPT_REQUEST of this cell or request reaches the calling thread.
 * Output without a cell of its own is this cell's until the reply. True when one has come before:
 * then the cell shall not run.
 */
bool cg_io_cell_begin(struct cg_shell *sh, uint64_t cell, bool allow_stdin);
void cg_io_cell_close(struct cg_shell *sh);
/*
 * True when a SIGINT handler that runs now may raise: a cell of the main shell runs. Tells the I/O
 * thread that the interrupt has arrived.
 */
bool cg_io_take_interrupt(struct cg_io *io);
struct cg_io_target {
        pthread_t thread; /* that runs the cell */
        /* in cg_wait_once(), which returns: it calls cg_io_take_subshell_interrupt() */
        bool waits;
        /* since when it runs, as cg_procs_now(); 0 when it is not the only cell that runs */
        uint64_t began;
};

/*
 * Interrupts the wait of the subshell that runs @cell. False when none does. Where it does not
 * wait, the caller must raise the exception in its thread. Threads make and free their waits with
 * the GIL held; the caller holds it until it has used *ret.
 */
bool cg_io_interrupt_subshell(struct cg_io *io, uint64_t cell, struct cg_io_target *ret);
/*
 * In the subshell's thread: true once after its wait was interrupted. Call it before
 * cg_wait_free(), also when the wait is done: the interrupt may have arrived later.
 */
bool cg_io_take_subshell_interrupt(struct cg_io *io);
/*
 * Everything written so far by anyone, then EXECUTE_REPLY or REPLY, then no cell runs. May wait.
 * CG_E_LIMIT: too large.
 */
int cg_io_reply(struct cg_shell *sh, const struct cg_out *reply, struct cg_err *err);
/* REPLY to a request of the control shell: at once. */
int cg_io_answer(struct cg_io *io, const struct cg_out *reply, struct cg_err *err);
/* May @cell (or CG_IO_RUNNING) ask for input now? */
bool cg_io_may_ask(struct cg_io *io, uint64_t cell);
/*
 * The cell that output with CG_IO_RUNNING belongs to: the one that runs, else that which ran last;
 * 0 before the first.
 */
uint64_t cg_io_running(struct cg_io *io);
/* Until the next cell or request begins, it belongs to @cell; 0: takes that back. */
void cg_io_set_running(struct cg_io *io, uint64_t cell);

/* ---- output, any thread. @cell: whose it is; CG_IO_RUNNING: of the one that runs */

#define CG_IO_RUNNING UINT64_MAX

/*
 * Appends text of stream @flags (0 or CG_FLAG_STDERR). @text is valid UTF-8. CG_TIMEOUT: the queue
 * is full, wait for room.
 */
int cg_io_write(struct cg_io *io, uint64_t cell, unsigned flags, const char *text, size_t len,
                struct cg_err *err);
/*
 * The same for bytes of any kind: what is not UTF-8 becomes U+FFFD, a sequence may be continued by
 * the next call.
 */
int cg_io_write_bytes(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len,
                      struct cg_err *err);
/*
 * Appends a message of the kernel wire, of the cell m->id. @raw: where it holds m->raw it is taken,
 * and not copied (may be NULL). CG_TIMEOUT: full, wait for room; CG_E_LIMIT: larger than allowed.
 */
int cg_io_publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err);
/* KERNEL_READY. */
int cg_io_ready(struct cg_io *io, const char *body, size_t len, struct cg_err *err);
/* Sends now what else would wait some milliseconds for more. */
void cg_io_flush(struct cg_io *io);

/* ---- waiting: one per wait, made by the functions below and ended by cg_wait_free() */

struct cg_wait;

/*
 * Waits. 0: what was waited for has happened; CG_TIMEOUT: woken for another reason (a signal, an
 * interrupt): check signals, then call again. May wait for ever.
 */
int cg_wait_once(struct cg_wait *w);
struct cg_wait *cg_wait_free(struct cg_wait *w);

/* Until the queue has room again. NULL and *err when out of descriptors. */
struct cg_wait *cg_io_wait_room(struct cg_io *io, struct cg_err *err);

/*
 * Sends INPUT_REQUEST and waits for the reply; cg_wait_free() before it came takes the question
 * back. CG_TIMEOUT: another question is open, *ret is a wait for its end: free it, then call again.
 * CG_E_STATE when the cell's request does not allow it.
 */
int cg_io_input(struct cg_io *io, uint64_t cell, const char *content, size_t len, struct cg_wait **ret,
                struct cg_err *err);
/* Sends INPUT_WAIT where the cell may ask: an interrupt has reached it, and it goes on. */
void cg_io_goes_on(struct cg_io *io, uint64_t cell);
/*
 * After cg_wait_once() returned 0: the text (borrowed until cg_wait_free()), NULL for end of file.
 */
const char *cg_wait_text(const struct cg_wait *w, size_t *len);

/*
 * Sends CALL. CG_TIMEOUT: CG_MAX_CALLS are under way, *ret is a wait for a free place: free it,
 * then call again.
 */
int cg_io_call(struct cg_io *io, const char *body, size_t body_len, const void *args, size_t len,
               struct cg_wait **ret, struct cg_err *err);
/* After cg_wait_once() returned 0: the status ("ok", ...; borrowed) and the content. */
const char *cg_wait_result(const struct cg_wait *w, const void **data, size_t *len);
/* A call that is given up before its result came: cg_wait_free() sends CALL_CANCEL by itself. */

#endif
