/*
 * What the parts of the kernel's input and output share. io.c starts it and has the loop,
 * io_output.c writes, io_receive.c takes what arrives, io_shells.c has the requests and what runs,
 * io_waits.c those that wait for something. Two locks: see struct cg_io. Functions whose names end
 * in _locked are called with `lock` held.
 */
#ifndef CG_KERNEL_IO_INT_H
#define CG_KERNEL_IO_INT_H

#include <pthread.h>
#include <signal.h>
#include "base/zconn.h"
#include "kernel/io.h"
#include "kernel/outq.h"
#include "kernel/usage.h"

/* What a pipe holds: a subprocess that prints a lot need not wait for us at each line. */
#define PIPE_BYTES (1 << 20)
/*
 * A signal that arrives right before a system call starts is lost on that call: it is sent again
 * until Python has seen it.
 */
#define INTERRUPT_RETRY_MS     10
#define INTERRUPT_RETRY_MAX_MS 200
#define INTERRUPT_ECHO_MS      20
#define EXIT_PROTOCOL          71

enum wait_kind { WAIT_ROOM, WAIT_PLACE, WAIT_INPUT, WAIT_TURN, WAIT_CALL };

struct cg_wait {
        struct cg_wait *next;
        struct cg_io *io;
        enum wait_kind kind;
        int fd; /* eventfd */
        bool done;
        uint64_t call;
        uint64_t cell;     /* that asks for input */
        uint64_t question; /* the INPUT_REQUEST's number; 0: not sent */
        pthread_t thread;  /* that waits */
        char status[24];
        bool eof;
        bool has_raw;
        zmq_msg_t raw;
};

struct tool_out {
        struct tool_out *next;
        uint16_t type;
        uint64_t id;
        char *body;
        size_t body_len;
        void *args;
        size_t args_len;
};

struct capture { /* one of the two pipes */
        int write_end, read_end;
        unsigned flags;
        struct cg_utf8_state utf8;
};

struct cg_shell {
        struct cg_io *io;
        char name[CG_IO_SHELL_NAME];
        int request_fd;   /* eventfd: a request waits */
        bool used;        /* it is one */
        bool closed;      /* takes no more requests */
        pthread_t thread; /* of the cell that runs */
        struct cg_request *head, *tail;
        uint64_t taken;    /* the request that was taken out and has not begun yet; 0: none */
        uint64_t early;    /* the request that was interrupted before it began; 0: none */
        uint64_t cell;     /* that runs; 0: none */
        bool open;         /* an interrupt may reach it */
        bool input;        /* it may ask for input */
        bool interrupting; /* an interrupt is under way */
        uint64_t began;    /* cg_procs_now() */
};

enum { MAIN, CONTROL, FIRST_SUBSHELL };

struct link { /* our end of a wire: the peer connects to a listener that we inherited */
        struct cg_io *io;
        int listener;
        const struct cg_wire *wire;
        unsigned sender;
        int (*handle)(struct cg_io *io, struct cg_msg *m, struct cg_err *err);
        /* the I/O thread reads; whoever holds out_lock writes, opens and closes */
        struct cg_zconn conn;
        bool lost; /* the peer is gone */
};

struct cg_io {
        struct cg_io_config config;
        struct link kernel, tool;
        pthread_mutex_t out_lock; /* taken before the other one */
        pthread_t thread, main;
        int wake_fd;                 /* eventfd: the I/O thread has something to look at */
        void (*control)(void *data); /* NULL: its thread runs, or there is none yet */
        void *control_data;
        struct capture capture[2];
        int capture_epoll;            /* both */
        _Atomic int64_t caught_up_ns; /* when they were last looked at */
        struct capture buffer[2];     /* only their utf8: bytes written through sys.stdout.buffer */
        /* in a page that the kernel of the operating system empties in forked processes */
        const uint32_t *alive;

        pthread_mutex_t lock; /* guards all below */
        bool woken;
        struct cg_outq out;
        bool blocked; /* the kernel wire's socket has no room for what was taken from the queue */
        struct tool_out *tool_head, *tool_tail;
        struct cg_shell shells[CG_IO_MAX_SHELLS];
        uint64_t last_cell;  /* that has ended */
        uint64_t named_cell; /* cg_io_set_running() */
        struct cg_wait *waits;
        /* the last ones: of all, and of those that were sent */
        uint64_t next_call, sent_call;
        uint64_t last_question;                     /* number of the last INPUT_REQUEST */
        size_t calls;                               /* sent, result not here yet */
        int64_t interrupt_at_ms, interrupt_step_ms; /* of the main shell */
        /* until then a SIGINT may be the rest of an attempt that was heard */
        int64_t interrupt_echo_ms;
        int64_t shutdown_at_ms; /* 0, or when the process ends in any case */
        bool exiting;
        int exit_status;
        int64_t exit_at_ms;

        /*
         * a thread is about to die of a signal, and waits until what was written before is on its
         * way
         */
        volatile sig_atomic_t crashing;
        int crash_fd; /* eventfd: it is */

        struct cg_usage usage; /* the I/O thread's own */
};

/* io.c */
void signal_fd(int fd);
void clear_fd(int fd);
void wake_locked(struct cg_io *io);
/* After an append to the queue whose last item was @tail_before. */
void appended_locked(struct cg_io *io, const struct cg_outq_item *tail_before);
bool full_locked(const struct cg_io *io);
void signal_waits_locked(struct cg_io *io, enum wait_kind kind);
int check_size(const struct cg_out *m, struct cg_err *err);
/* Whose output is it that nobody has said a cell of? */
uint64_t running_locked(const struct cg_io *io);
uint64_t resolve_locked(const struct cg_io *io, uint64_t cell);
int open_shell_locked(struct cg_shell *sh, const char *name, struct cg_err *err);

/* io_output.c */
/* Takes what the pipe holds now, as much as fits @max. Returns the bytes taken. */
size_t read_capture_locked(struct cg_io *io, struct capture *c, size_t max);
/*
 * What was written to the pipes before now stands before what Python writes next. Returns until
 * when text may wait for more.
 */
int64_t catch_up(struct cg_io *io);
int make_capture(struct cg_io *io, struct capture *c, unsigned flags, struct cg_err *err);
int add_locked(struct cg_io *io, const struct cg_out *m, uint64_t cell, struct cg_buf *raw,
               struct cg_err *err);
void flush_locked(struct cg_io *io);
/* Sends what can be sent; out_lock is held. Returns when text must be looked at again, or -1. */
int64_t send_output(struct cg_io *io);
/* The same for the tool wire; returns whether something waits for room. */
bool send_calls(struct cg_io *io);

/* io_shells.c */
struct cg_shell *find_shell_locked(struct cg_io *io, const char *name);
void push_request_locked(struct cg_shell *sh, struct cg_request *req);
/* The shell that runs this cell and whose user may be asked for input; or NULL. */
struct cg_shell *find_asking_locked(struct cg_io *io, uint64_t cell);
/*
 * An interrupt of a request that waits, or has been taken and has not begun: it is remembered for
 * its beginning.
 */
void interrupt_early_locked(struct cg_io *io, uint64_t id);

/* io_waits.c */
/*
 * The cell's reply ends its questions: threads that still wait for an answer read the end of file.
 */
void end_questions_locked(struct cg_io *io, uint64_t cell);
void tool_out_free(struct tool_out *t);

/* io_receive.c */
/* One attempt to interrupt the main shell. */
void poke_locked(struct cg_io *io, int64_t now);
/* The connection to the tool server has ended. */
void calls_lost(struct cg_io *io);
int on_kernel_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err);
int on_tool_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err);

#endif
