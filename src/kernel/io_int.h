/*
 * Internals of the kernel's input and output. io.c: start and event loop; io_receive.c: messages
 * that arrive; io_output.c: output and replies; io_waits.c: waits for room, input and tool calls;
 * io_links.c: sending and reading; io_shells.c: requests and running cells; io_capture.c: the pipes
 * at descriptors 1 and 2; io_state.c: what they all use. Two locks: see struct cg_io. Functions
 * whose names end in _locked need `lock` held.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include "base/hold.h"
#include "base/zconn.h"
#include "kernel/io.h"
#include "kernel/outq.h"
#include "kernel/usage.h"

/* Size of a pipe, so that a subprocess that prints much does not wait for each line. */
#define PIPE_BYTES (1 << 20)
/*
 * A signal that arrives right before a system call starts does not interrupt that call: it is sent
 * again until the main thread runs bytecode, where a handler of the cell's own has run as well.
 */
#define INTERRUPT_RETRY_MS     10
#define INTERRUPT_RETRY_MAX_MS 200
#define INTERRUPT_ECHO_MS      20
#define EXIT_PROTOCOL          71

TAILQ_HEAD(call_list, cg_tool_call);

enum wait_kind { WAIT_ROOM, WAIT_SENT, WAIT_INPUT, WAIT_TURN, WAIT_CALL };

struct cg_wait {
        struct cg_wait *next;
        struct cg_io *io;
        enum wait_kind kind;
        struct link *link; /* WAIT_CALL: of the last call */
        bool blocking;     /* WAIT_CALL: its thread waits in cg_wait_once() after each call */
        int link_fd;       /* of @link, if it is taken before the wait; else -1 */
        int fd;            /* eventfd */
        bool done;
        bool reading;      /* WAIT_CALL: the waiting thread has the connection: needs no event */
        uint64_t mark;     /* WAIT_SENT: of cg_io_flush() */
        uint64_t cell;     /* the cell that asks for input */
        uint64_t question; /* number of the INPUT_REQUEST; 0: not sent */
        pthread_t thread;  /* the waiting thread */
        bool eof;
        bool has_raw;
        struct cg_frame *raw;
        struct call_list finished; /* WAIT_CALL: calls with a result */
};

/* A call is in one of three lists: `queued` and `sent` of its link, `finished` of its wait. */
struct cg_tool_call {
        TAILQ_ENTRY(cg_tool_call) entry;
        struct cg_wait *wait;     /* NULL: cancelled, but CALL_CANCEL could not be sent */
        uint64_t id;              /* on the wire */
        uint64_t key;             /* of the caller */
        bool read;                /* RESULT_READ, which does not count */
        struct tool_out *message; /* not sent yet */
        struct cg_tool_call_result result;
};

struct tool_out {
        STAILQ_ENTRY(tool_out) entry;
        uint16_t type;
        uint64_t id;
        size_t body_len, args_len;
        char bytes[]; /* the body, then the arguments of a CALL */
};

struct capture { /* one of the two pipes */
        int write_end, read_end;
        unsigned flags;
        struct cg_utf8_state utf8;
};

struct cg_shell {
        struct cg_io *io;
        char name[CG_IO_SHELL_NAME];
        int request_fd;   /* eventfd: set while requests are queued */
        bool used;        /* this entry is in use */
        bool closed;      /* accepts no more requests */
        pthread_t thread; /* of the running cell */
        STAILQ_HEAD(, cg_request) queue;
        uint64_t taken;    /* the request that was dequeued and has not begun yet; 0: none */
        uint64_t early;    /* the request that was interrupted before it began; 0: none */
        uint64_t cell;     /* the running cell; 0: none */
        bool open;         /* the cell can be interrupted */
        bool input;        /* the cell may ask for input */
        bool interrupting; /* an interrupt is pending */
        uint64_t began;    /* cg_procs_now() */
};

enum { MAIN, CONTROL, FIRST_SUBSHELL };

/* Connections for calls: of MCP servers' tools, and of functions of the host. */
enum { TOOLS, FUNCTIONS, CALL_LINKS };

struct link { /* our end of a wire: the peer connects to an inherited listener */
        struct cg_io *io;
        int listener;
        const struct cg_wire *wire;
        unsigned sender;
        int (*handle)(struct link *l, struct cg_msg *m, struct cg_err *err);
        /* read by the I/O thread, or see cg_io_take_link(); written, opened, closed: out_lock */
        struct cg_zconn conn;
        bool lost; /* the peer has closed the connection */

        /* of a connection for calls; `lock` protects all but epoll */
        int epoll;                   /* has the connection while nobody reads it */
        int fd;                      /* the same; -1: none, or a thread reads it */
        STAILQ_HEAD(, tool_out) out; /* all but CALL, which wait in `queued` */
        struct call_list queued;     /* in the order of the calls */
        struct call_list sent;
};

/* An interrupt of the main shell: kept up until it has arrived. */
struct io_interrupt {
        int64_t at_ms, step_ms;
        int64_t echo_ms;     /* until then a SIGINT may belong to a handled interrupt */
        bool arrived;        /* no further attempt is needed */
        void (*sigint)(int); /* Python's handler */
};

/* The end of the process. */
struct io_exit {
        int64_t shutdown_at_ms; /* 0, or when it ends in any case */
        bool on;
        int status;
        int64_t at_ms;
};

struct io_numbers {
        uint64_t last_cell;     /* that ended */
        uint64_t named_cell;    /* cg_io_set_running() */
        uint64_t last_call;     /* of a CALL */
        uint64_t last_question; /* of an INPUT_REQUEST */
};

/* A thread is about to die of a signal and waits until earlier output is sent. */
struct io_crash {
        volatile sig_atomic_t waits;
        int fd; /* eventfd: the output is sent */
};

struct cg_io {
        struct cg_io_config config;
        struct link kernel, calls[CALL_LINKS];
        pthread_mutex_t out_lock; /* taken before the other one */
        pthread_t thread, main;
        int wake_fd;                 /* eventfd: wakes the I/O thread */
        void (*control)(void *data); /* NULL: not set yet, or its thread runs */
        void *control_data;
        struct capture capture[2];
        int capture_epoll;                   /* the read ends of both */
        _Atomic int64_t caught_up_ns;        /* when they were last checked */
        struct cg_utf8_state buffer_utf8[2]; /* of bytes written through sys.stdout.buffer */
        const uint32_t *alive; /* in a page that is zero in forked processes (MADV_WIPEONFORK) */

        pthread_mutex_t lock; /* protects all members below */
        bool woken;
        struct cg_outq out;
        uint64_t sent; /* items of `out` that are in the socket, ever */
        bool blocked;  /* the socket of the kernel wire is full; dequeued messages wait in conn */
        size_t n_sent; /* calls, on both connections: CG_MAX_CALLS at most */
        struct cg_shell shells[CG_IO_MAX_SHELLS];
        pthread_cond_t control_queued; /* a request of the control shell was queued */
        struct io_numbers numbers;
        struct cg_wait *waits;
        int spare_fd; /* eventfd of a former wait, for the next one, possibly set; -1: none */
        struct io_interrupt interrupt;
        struct io_exit exit;
        struct io_crash crash;

        struct cg_usage usage; /* used by the I/O thread only */

        struct cg_error_lines error_lines; /* protected by the lock; large, so behind all others */
};

/* io_state.c */
void cg_io_event_clear(int fd);
/* Makes the I/O thread's poll() return. */
void cg_io_wake_locked(struct cg_io *io);
void cg_io_end_wait_locked(struct cg_wait *w);
void cg_io_end_waits_locked(struct cg_io *io, enum wait_kind kind);
bool cg_io_full_locked(const struct cg_io *io);
/* CG_E_LIMIT: too large for the wire. That fails the caller and must not end the connection. */
int cg_io_check_size(const struct cg_out *m, struct cg_err *err);
int cg_io_add_locked(struct cg_io *io, const struct cg_out *m, uint64_t cell, struct cg_buf *raw,
                     struct cg_err *err);
void cg_io_flush_locked(struct cg_io *io);
/* The cell of output without one: the main shell's, else that of a subshell, else the last. */
uint64_t cg_io_running_locked(const struct cg_io *io);
uint64_t cg_io_resolve_locked(const struct cg_io *io, uint64_t cell);

/* io_capture.c */
int cg_io_make_capture(struct cg_io *io, struct capture *c, unsigned flags, struct cg_err *err);
/* Queues what the pipe holds now, @max bytes at most. Returns the number of bytes. */
size_t cg_io_read_capture_locked(struct cg_io *io, struct capture *c, size_t max);
/* The same for both pipes, without a limit. */
void cg_io_read_captures_locked(struct cg_io *io);
/*
 * Queues what was written to the pipes before now, so that it precedes what Python writes next.
 * Returns the time until which new text may be held back.
 */
int64_t cg_io_catch_up(struct cg_io *io);

/* io_links.c */
/*
 * Sends output and calls from this thread, which saves waking another one; what does not fit into
 * the sockets is left to the I/O thread.
 */
void cg_io_send_now(struct cg_io *io);
/* Sends what can be sent; out_lock is held. Returns when to check held back text again, or -1. */
int64_t cg_io_send_output(struct cg_io *io);
/* The same for a connection for calls; returns true if a message waits for room in the socket. */
bool cg_io_send_calls(struct link *l);
/* Reads all that has arrived. */
void cg_io_read_link(struct link *l);
/*
 * A thread that makes a call and waits for it reads the connection itself from before the call is
 * sent, unless another thread does: a result then wakes one thread, and not the I/O thread first.
 * Taking the connection removes it from l->epoll, where the I/O thread waits for it; this takes
 * effect while it waits. Only the I/O thread accepts and closes connections. Return: the
 * descriptor, for cg_io_give_link(); or -1.
 */
int cg_io_take_link(struct link *l);
void cg_io_give_link(struct link *l, int fd);

/* io_shells.c */
int cg_io_open_shell_locked(struct cg_shell *sh, const char *name, struct cg_err *err);
struct cg_shell *cg_io_find_shell_locked(struct cg_io *io, const char *name);
/* @m may be NULL; its raw frames are moved into the request. */
struct cg_request *cg_request_new(struct cg_msg *m, enum cg_request_kind kind, struct cg_err *err);
void cg_io_push_request_locked(struct cg_shell *sh, struct cg_request *req);
/* Queues @req for the control shell. False when its thread cannot be started: @req is not taken. */
bool cg_io_push_control(struct cg_io *io, struct cg_request *req);
/* The shell that runs this cell, if the cell may ask for input; else NULL. */
struct cg_shell *cg_io_find_asking_locked(struct cg_io *io, uint64_t cell);
/* Interrupts a request that is queued, or was taken and has not begun: it begins interrupted. */
void cg_io_interrupt_early_locked(struct cg_io *io, uint64_t id);

/* io_waits.c */
/* Ends sent call @id (takes @content); ignored if there is none: it was cancelled. */
void cg_io_end_call_locked(struct link *l, uint64_t id, const char *status, const char *kind,
                           struct cg_frame *content);
/* The cell's reply ends its questions: threads that wait for an answer get the end of file. */
void cg_io_end_questions_locked(struct cg_io *io, uint64_t cell);

/* io_receive.c */
/* One attempt to interrupt the main shell. @again: not the first one for this interrupt. */
void cg_io_try_interrupt_locked(struct cg_io *io, int64_t now, bool again);
/* The connection to the tool server has ended. */
void cg_io_calls_lost(struct link *l);
int cg_io_on_kernel_msg(struct link *l, struct cg_msg *m, struct cg_err *err);
int cg_io_on_call_msg(struct link *l, struct cg_msg *m, struct cg_err *err);
