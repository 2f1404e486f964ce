/*
 * The kernel's input and output; runs in the kernel process. One thread reads both connections and the pipes at descriptors
 * 1 and 2. It holds no GIL, ever: a cell that spins or sleeps in native code cannot stop it. Replies are written by the
 * thread that makes them, whatever else by that thread. See io.h.
 */
#include "kernel/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include "base/json.h"
#include "base/util.h"
#include "base/zconn.h"
#include "kernel/outq.h"
#include "kernel/procs.h"
#include "kernel/usage.h"

/* Text waits so long for more text of its kind: many prints become one message, and a person still sees it at once. */
#define COALESCE_MS 10
/* A write() to a pipe, and the way to it from Python, take longer than this on any machine. */
#define SYSCALL_NS 300
/* What a pipe holds: a subprocess that prints a lot need not wait for us at each line. */
#define PIPE_BYTES (1 << 20)
/*
 * A signal that arrives right before a system call starts is lost on that call: it is sent again until Python has seen
 * it.
 */
#define INTERRUPT_RETRY_MS 10
#define INTERRUPT_RETRY_MAX_MS 200
/* For atexit functions; the supervisor kills after 1 s. */
#define SHUTDOWN_MS 900
/* For output that is still queued when the process ends. */
#define EXIT_MS 300
/* So many bytes of small messages are put together for one write. */
#define WRITE_BYTES ((size_t)64 << 10)
/* Messages and reads of one connection before the other gets a turn. */
#define BURST 32

#define EXIT_PROTOCOL 71

enum wait_kind { WAIT_ROOM, WAIT_PLACE, WAIT_INPUT, WAIT_CALL };

struct cg_wait {
        struct cg_wait *next;
        struct cg_io *io;
        enum wait_kind kind;
        int fd; /* eventfd */
        bool done;
        uint64_t call;
        uint64_t cell;    /* that asks for input */
        pthread_t thread; /* that waits */
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
        int request_fd;    /* eventfd: a request waits */
        bool used;         /* it is one */
        bool closed;       /* takes no more requests */
        pthread_t thread;  /* of the cell that runs */
        struct cg_request *head, *tail;
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
        struct cg_zconn conn; /* the I/O thread reads; whoever holds out_lock writes, opens and closes */
        bool lost;            /* the peer is gone */
};

struct cg_io {
        struct cg_io_config config;
        struct link kernel, tool;
        pthread_mutex_t out_lock; /* taken before the other one */
        pthread_t thread, main;
        int wake_fd; /* eventfd: the I/O thread has something to look at */
        void (*control)(void *data); /* NULL: its thread runs, or there is none yet */
        void *control_data;
        struct capture capture[2];
        int capture_epoll; /* both */
        struct capture buffer[2]; /* only their utf8: bytes written through sys.stdout.buffer */
        const uint32_t *alive;    /* in a page that the kernel of the operating system empties in forked processes */

        pthread_mutex_t lock; /* guards all below */
        bool woken;
        struct cg_outq out;
        bool blocked; /* the kernel wire's socket has no room for what was taken from the queue */
        int64_t caught_up_ns; /* when the pipes were last looked at */
        struct tool_out *tool_head, *tool_tail;
        struct cg_shell shells[CG_IO_MAX_SHELLS];
        struct cg_wait *waits;
        uint64_t next_call;
        size_t calls; /* sent, result not here yet */
        int64_t interrupt_at_ms, interrupt_step_ms; /* of the main shell */
        int64_t shutdown_at_ms; /* 0, or when the process ends in any case */
        bool exiting;
        int exit_status;
        int64_t exit_at_ms;

        /* a thread is about to die of a signal, and waits until what was written before is on its way */
        volatile sig_atomic_t crashing;
        int crash_fd; /* eventfd: it is */

        struct cg_usage usage; /* the I/O thread's own */
};

#define ALIVE 0x43474b31u

/* ------------------------------------------------------------------ small helpers */

static void signal_fd(int fd)
{
        uint64_t one = 1;

        while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
}

static void clear_fd(int fd)
{
        uint64_t n;

        while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
                ;
}

static void wake_locked(struct cg_io *io)
{
        if (io->woken)
                return;
        io->woken = true;
        signal_fd(io->wake_fd);
}

/* After an append: the thread must know of a new message and of text that has to go out in some milliseconds. */
static void appended_locked(struct cg_io *io, const struct cg_outq_item *tail_before)
{
        if (!tail_before || io->out.head != io->out.tail)
                wake_locked(io);
}

static bool full_locked(const struct cg_io *io)
{
        return io->out.bytes >= CG_IO_QUEUE_BYTES;
}

static void signal_waits_locked(struct cg_io *io, enum wait_kind kind)
{
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == kind && !w->done) {
                        w->done = true;
                        signal_fd(w->fd);
                }
}

/* Too large for the wire is the writer's error, and must not become the connection's. */
static int check_size(const struct cg_out *m, struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER];

        return cg_out_header(&cg_wire_kernel, m, header, err);
}

/* Whose output is it that nobody has said a cell of? The main shell's; between its cells that of a subshell. */
static uint64_t running_locked(const struct cg_io *io)
{
        uint64_t cell = io->shells[MAIN].cell;

        for (size_t i = FIRST_SUBSHELL; !cell && i < CG_IO_MAX_SHELLS; i++)
                cell = io->shells[i].cell;
        return cell;
}

static uint64_t resolve_locked(const struct cg_io *io, uint64_t cell)
{
        return cell == CG_IO_RUNNING ? running_locked(io) : cell;
}

bool cg_io_forked(const struct cg_io *io)
{
        return *(const volatile uint32_t *)io->alive != ALIVE;
}

/* ------------------------------------------------------------------ captured descriptors */

/* Takes what the pipe holds now, as much as fits @max. Returns the bytes taken. */
static size_t read_capture_locked(struct cg_io *io, struct capture *c, size_t max)
{
        size_t total = 0;

        while (total < max) {
                char buf[16384];
                size_t want = max - total < sizeof(buf) ? max - total : sizeof(buf);
                ssize_t n = read(c->read_end, buf, want);

                if (n <= 0)
                        break;
                total += (size_t)n;
                cg_outq_bytes(&io->out, &c->utf8, c->flags, running_locked(io), buf, (size_t)n, cg_now_ms() + COALESCE_MS, NULL);
                if ((size_t)n < want)
                        break;
        }
        return total;
}

static int64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * What C code and subprocesses wrote before now stands before what Python writes next. Returns until when this text may
 * wait for more. A print() is two writes: within the time that no system call fits into, nothing else can have been
 * written.
 */
static int64_t catch_up_locked(struct cg_io *io)
{
        struct epoll_event ev[2];
        int64_t now = now_ns(), before = io->caught_up_ns, due_ms = now / 1000000 + COALESCE_MS;
        int n;

        io->caught_up_ns = now;
        if (now - before < SYSCALL_NS)
                return due_ms;
        n = epoll_wait(io->capture_epoll, ev, 2, 0); /* half the time of poll() or read() */
        for (int i = 0; i < n; i++)
                read_capture_locked(io, ev[i].data.ptr, PIPE_BYTES);
        return due_ms;
}

static int make_capture(struct cg_io *io, struct capture *c, unsigned flags, struct cg_err *err)
{
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        c->read_end = fds[0];
        c->write_end = fds[1];
        c->flags = flags;
        fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES); /* refused over the user's limit: then it stays at 64 KiB */
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(io->capture_epoll, EPOLL_CTL_ADD, fds[0], &ev) < 0)
                return cg_fail_errno(err, "captured descriptor");
        return 0;
}

/* ------------------------------------------------------------------ making and starting */

static void on_link_msg(struct cg_zconn *c, struct cg_msg *m);
static void on_link_end(struct cg_zconn *c, const struct cg_err *err);

static void link_init(struct link *l, struct cg_io *io, int listener, const struct cg_wire *wire, unsigned sender,
                      int (*handle)(struct cg_io *io, struct cg_msg *m, struct cg_err *err))
{
        *l = (struct link){ .io = io, .listener = listener, .wire = wire, .sender = sender, .handle = handle, .conn = CG_ZCONN_NONE };
}

static int make_alive_page(struct cg_io *io, struct cg_err *err)
{
        size_t size = (size_t)sysconf(_SC_PAGESIZE);
        uint32_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED || madvise(p, size, MADV_WIPEONFORK) < 0)
                return cg_fail_errno(err, "mark for forked processes");
        *p = ALIVE;
        io->alive = p;
        return 0;
}

static int open_shell_locked(struct cg_shell *sh, const char *name, struct cg_err *err)
{
        if (sh->request_fd < 0)
                sh->request_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (sh->request_fd < 0)
                return cg_fail_errno(err, "eventfd");
        clear_fd(sh->request_fd);
        snprintf(sh->name, sizeof(sh->name), "%s", name);
        sh->used = true;
        sh->closed = false;
        return 0;
}

static int on_kernel_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err);
static int on_tool_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err);

int cg_io_new(const struct cg_io_config *config, struct cg_io **ret, struct cg_err *err)
{
        struct cg_io *io = calloc(1, sizeof(*io));
        int r;

        /* Never freed: it lives as long as the process, which leaves by _exit(). */
        if (!io) {
                close(config->kernel_fd);
                close(config->tool_fd);
                return cg_fail(err, CG_E_NOMEM, "kernel i/o");
        }
        io->config = *config;
        io->main = pthread_self();
        io->usage.at_ms = cg_now_ms();
        pthread_mutex_init(&io->lock, NULL);
        pthread_mutex_init(&io->out_lock, NULL);
        link_init(&io->kernel, io, config->kernel_fd, &cg_wire_kernel, CG_ROLE_SUPERVISOR, on_kernel_msg);
        link_init(&io->tool, io, config->tool_fd, &cg_wire_tool, CG_ROLE_TOOLSERVER, on_tool_msg);
        io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        io->crash_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        io->capture_epoll = epoll_create1(EPOLL_CLOEXEC);
        if (io->wake_fd < 0 || io->crash_fd < 0 || io->capture_epoll < 0)
                return cg_fail_errno(err, "eventfd");
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                io->shells[i] = (struct cg_shell){ .io = io, .request_fd = -1 };
        r = open_shell_locked(&io->shells[MAIN], "", err);
        if (r == 0)
                r = open_shell_locked(&io->shells[CONTROL], CG_IO_CONTROL, err);
        if (r < 0)
                return r;
        r = make_capture(io, &io->capture[0], 0, err);
        if (r == 0)
                r = make_capture(io, &io->capture[1], CG_FLAG_STDERR, err);
        if (r == 0)
                r = make_alive_page(io, err);
        if (r == 0)
                *ret = io;
        return r;
}

static void *io_main(void *arg);

int cg_io_start(struct cg_io *io, struct cg_err *err)
{
        cg_auto_fd int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        sigset_t all, before;
        int r;

        if (null_fd < 0 || dup2(null_fd, 0) < 0)
                return cg_fail_errno(err, "/dev/null");
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&io->thread, NULL, io_main, io);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r) {
                errno = r;
                return cg_fail_errno(err, "thread");
        }
        /* From here on nothing can be said in the log any more: what comes is the cells' output. */
        for (int i = 0; i < 2; i++) {
                if (dup2(io->capture[i].write_end, i + 1) < 0)
                        return cg_fail_errno(err, "descriptor %d", i + 1);
                close(io->capture[i].write_end);
        }
        setvbuf(stdout, NULL, _IOLBF, 0); /* printf() of C code shows line by line, as at a terminal */
        return 0;
}

/* ------------------------------------------------------------------ requests */

static struct cg_shell *find_shell_locked(struct cg_io *io, const char *name)
{
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].used && strcmp(io->shells[i].name, name) == 0)
                        return &io->shells[i];
        return NULL;
}

/* A name that is taken stays taken: whoever holds a subshell's pointer is its thread, which gives the place back itself. */
struct cg_shell *cg_io_shell(struct cg_io *io, const char *name)
{
        struct cg_shell *sh;

        pthread_mutex_lock(&io->lock);
        sh = find_shell_locked(io, name);
        pthread_mutex_unlock(&io->lock);
        return sh;
}

static int open_subshell_locked(struct cg_io *io, const char *name, struct cg_err *err)
{
        if (strlen(name) >= CG_IO_SHELL_NAME)
                return cg_fail(err, CG_E_LIMIT, "the name of a subshell has at most %d bytes", CG_IO_SHELL_NAME - 1);
        if (find_shell_locked(io, name))
                return cg_fail(err, CG_E_EXISTS, "there is a subshell %s already", name);
        for (size_t i = FIRST_SUBSHELL; i < CG_IO_MAX_SHELLS; i++)
                if (!io->shells[i].used)
                        return open_shell_locked(&io->shells[i], name, err);
        return cg_fail(err, CG_E_LIMIT, "there are %d subshells already: delete one first", CG_IO_MAX_SHELLS - FIRST_SUBSHELL);
}

int cg_io_shell_open(struct cg_io *io, const char *name, struct cg_err *err)
{
        int r;

        pthread_mutex_lock(&io->lock);
        r = open_subshell_locked(io, name, err);
        pthread_mutex_unlock(&io->lock);
        return r;
}

void cg_io_shell_gone(struct cg_shell *sh)
{
        struct cg_io *io = sh->io;

        pthread_mutex_lock(&io->lock);
        if (sh - io->shells >= FIRST_SUBSHELL && !sh->cell && !sh->head)
                sh->used = false;
        pthread_mutex_unlock(&io->lock);
}

int cg_io_request_fd(const struct cg_shell *sh)
{
        return sh->request_fd;
}

struct cg_request *cg_io_next_request(struct cg_shell *sh)
{
        struct cg_request *req;

        pthread_mutex_lock(&sh->io->lock);
        req = sh->head;
        if (req) {
                sh->head = req->next;
                if (!sh->head) {
                        sh->tail = NULL;
                        clear_fd(sh->request_fd);
                }
        }
        pthread_mutex_unlock(&sh->io->lock);
        return req;
}

static void push_request_locked(struct cg_shell *sh, struct cg_request *req)
{
        if (sh->tail)
                sh->tail->next = req;
        else
                sh->head = req;
        sh->tail = req;
        signal_fd(sh->request_fd);
}

void cg_io_cell_begin(struct cg_shell *sh, uint64_t cell, bool allow_stdin)
{
        struct cg_io *io = sh->io;
        uint64_t began = cg_procs_now();

        pthread_mutex_lock(&io->lock);
        sh->thread = pthread_self();
        sh->began = began;
        sh->cell = cell;
        sh->open = true;
        sh->input = allow_stdin;
        sh->interrupting = false;
        if (io->shutdown_at_ms && sh == &io->shells[MAIN]) { /* it arrived between two cells */
                sh->interrupting = true;
                io->interrupt_at_ms = 0;
                io->interrupt_step_ms = INTERRUPT_RETRY_MS;
                wake_locked(io);
        }
        pthread_mutex_unlock(&io->lock);
}

void cg_io_cell_close(struct cg_shell *sh)
{
        pthread_mutex_lock(&sh->io->lock);
        sh->open = false;
        sh->input = false;
        sh->interrupting = false;
        pthread_mutex_unlock(&sh->io->lock);
}

bool cg_io_take_interrupt(struct cg_io *io)
{
        bool open;

        pthread_mutex_lock(&io->lock);
        open = io->shells[MAIN].open;
        io->shells[MAIN].interrupting = false;
        pthread_mutex_unlock(&io->lock);
        return open;
}

bool cg_io_interrupt_subshell(struct cg_io *io, uint64_t cell, pthread_t *thread, uint64_t *began)
{
        bool found = false;
        size_t running = 0;

        pthread_mutex_lock(&io->lock);
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                running += io->shells[i].open;
        for (size_t i = FIRST_SUBSHELL; i < CG_IO_MAX_SHELLS; i++) {
                struct cg_shell *sh = &io->shells[i];

                if (!sh->used || !sh->open || sh->cell != cell)
                        continue;
                found = true;
                *thread = sh->thread;
                *began = running == 1 ? sh->began : 0;
                for (struct cg_wait *w = io->waits; w; w = w->next)
                        if (pthread_equal(w->thread, sh->thread)) {
                                sh->interrupting = true;
                                signal_fd(w->fd);
                        }
        }
        pthread_mutex_unlock(&io->lock);
        return found;
}

bool cg_io_take_subshell_interrupt(struct cg_io *io)
{
        bool taken = false;

        pthread_mutex_lock(&io->lock);
        for (size_t i = FIRST_SUBSHELL; !taken && i < CG_IO_MAX_SHELLS; i++) {
                struct cg_shell *sh = &io->shells[i];

                if (sh->used && sh->open && sh->interrupting && pthread_equal(sh->thread, pthread_self())) {
                        sh->interrupting = false;
                        taken = true;
                }
        }
        pthread_mutex_unlock(&io->lock);
        return taken;
}

/* The shell that runs this cell and whose user may be asked for input; or NULL. */
static struct cg_shell *find_asking_locked(struct cg_io *io, uint64_t cell)
{
        uint64_t wanted = resolve_locked(io, cell);

        for (size_t i = 0; wanted && i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].cell == wanted && io->shells[i].input)
                        return &io->shells[i];
        return NULL;
}

bool cg_io_may_ask(struct cg_io *io, uint64_t cell)
{
        bool may;

        pthread_mutex_lock(&io->lock);
        may = find_asking_locked(io, cell) != NULL;
        pthread_mutex_unlock(&io->lock);
        return may;
}

uint64_t cg_io_running(struct cg_io *io)
{
        uint64_t cell;

        pthread_mutex_lock(&io->lock);
        cell = running_locked(io);
        pthread_mutex_unlock(&io->lock);
        return cell;
}

/* ------------------------------------------------------------------ output */

int cg_io_write(struct cg_io *io, uint64_t cell, unsigned flags, const char *text, size_t len, struct cg_err *err)
{
        const struct cg_outq_item *tail;
        int64_t due_ms;
        int r = CG_TIMEOUT;

        pthread_mutex_lock(&io->lock);
        if (!full_locked(io)) {
                tail = io->out.tail;
                due_ms = catch_up_locked(io);
                r = cg_outq_text(&io->out, flags, resolve_locked(io, cell), text, len, due_ms, err);
                appended_locked(io, tail);
        }
        pthread_mutex_unlock(&io->lock);
        return r;
}

int cg_io_write_bytes(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len, struct cg_err *err)
{
        struct cg_utf8_state *st = &io->buffer[flags & CG_FLAG_STDERR ? 1 : 0].utf8;
        const struct cg_outq_item *tail;
        int64_t due_ms;
        int r = CG_TIMEOUT;

        pthread_mutex_lock(&io->lock);
        if (!full_locked(io)) {
                tail = io->out.tail;
                due_ms = catch_up_locked(io);
                r = cg_outq_bytes(&io->out, st, flags, resolve_locked(io, cell), data, len, due_ms, err);
                appended_locked(io, tail);
        }
        pthread_mutex_unlock(&io->lock);
        return r;
}

static int add_locked(struct cg_io *io, const struct cg_out *m, uint64_t cell, struct cg_buf *raw, struct cg_err *err)
{
        struct cg_out copy = *m;

        copy.id = cell;
        return cg_outq_add(&io->out, &copy, raw, err);
}

int cg_io_publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err)
{
        int r = check_size(m, err);

        if (r < 0)
                return r;
        pthread_mutex_lock(&io->lock);
        if (full_locked(io)) {
                r = CG_TIMEOUT;
        } else {
                catch_up_locked(io);
                r = add_locked(io, m, resolve_locked(io, m->id), raw, err);
                if (m->type != CG_KERNEL_EXECUTE_RESULT) /* the reply follows at once, and one wake-up does for both */
                        wake_locked(io);
        }
        pthread_mutex_unlock(&io->lock);
        return r;
}

int cg_io_ready(struct cg_io *io, const char *body, size_t len, struct cg_err *err)
{
        struct cg_out m = { .type = CG_KERNEL_KERNEL_READY, .body = body, .body_len = len };
        int r;

        pthread_mutex_lock(&io->lock);
        r = cg_outq_add(&io->out, &m, NULL, err);
        wake_locked(io);
        pthread_mutex_unlock(&io->lock);
        return r;
}

static void flush_locked(struct cg_io *io)
{
        if (!io->out.head)
                return;
        io->out.flush = true;
        wake_locked(io);
}

void cg_io_flush(struct cg_io *io)
{
        pthread_mutex_lock(&io->lock);
        flush_locked(io);
        pthread_mutex_unlock(&io->lock);
}

/* Not fflush(NULL): it waits for streams that another thread holds, a getchar() that never returns among them. */
static void flush_stdio(FILE *f)
{
        if (ftrylockfile(f))
                return;
        fflush_unlocked(f);
        funlockfile(f);
}

/* Everything that is in the pipes now. Not what comes later: a process in the background may print for ever. */
static void drain(struct cg_io *io)
{
        size_t left[2] = { PIPE_BYTES, PIPE_BYTES };

        while (left[0] || left[1]) {
                struct cg_wait *w = NULL;

                pthread_mutex_lock(&io->lock);
                for (int i = 0; i < 2 && !full_locked(io); i++) {
                        size_t want = left[i] < 65536 ? left[i] : 65536;
                        size_t n = read_capture_locked(io, &io->capture[i], want);

                        left[i] = n < want ? 0 : left[i] - n;
                }
                if (full_locked(io))
                        wake_locked(io);
                pthread_mutex_unlock(&io->lock);
                if (left[0] || left[1])
                        w = cg_io_wait_room(io, NULL);
                while (w && cg_wait_once(w) == CG_TIMEOUT)
                        ;
                cg_wait_free(w);
        }
}

static void end_sequences_locked(struct cg_io *io)
{
        uint64_t cell = running_locked(io);

        for (int i = 0; i < 2; i++) {
                unsigned flags = io->capture[i].flags;

                cg_outq_bytes_end(&io->out, &io->capture[i].utf8, flags, cell, 0, NULL);
                cg_outq_bytes_end(&io->out, &io->buffer[i].utf8, flags, cell, 0, NULL);
        }
}

static int64_t send_output(struct cg_io *io);

/* By this thread, so that nobody has to be woken for it; what the socket has no room for is left to the I/O thread. */
static void send_now(struct cg_io *io)
{
        bool sent = pthread_mutex_trylock(&io->out_lock) == 0;

        if (sent) {
                send_output(io);
                pthread_mutex_unlock(&io->out_lock);
        }
        pthread_mutex_lock(&io->lock);
        if (!sent || io->blocked || io->out.head || io->exiting)
                wake_locked(io);
        pthread_mutex_unlock(&io->lock);
}

int cg_io_reply(struct cg_shell *sh, const struct cg_out *reply, struct cg_err *err)
{
        struct cg_io *io = sh->io;
        int r = check_size(reply, err);

        if (r < 0)
                return r;
        flush_stdio(stdout);
        flush_stdio(stderr);
        drain(io);
        pthread_mutex_lock(&io->lock);
        end_sequences_locked(io);
        r = cg_outq_add(&io->out, reply, NULL, err);
        if (r == 0)
                sh->cell = 0;
        io->out.flush = io->out.head != NULL;
        pthread_mutex_unlock(&io->lock);
        send_now(io);
        return r;
}

int cg_io_answer(struct cg_io *io, const struct cg_out *reply, struct cg_err *err)
{
        int r = check_size(reply, err);

        if (r < 0)
                return r;
        pthread_mutex_lock(&io->lock);
        r = cg_outq_add(&io->out, reply, NULL, err);
        flush_locked(io);
        pthread_mutex_unlock(&io->lock);
        return r;
}

/* ------------------------------------------------------------------ waiting */

static struct cg_wait *wait_new(struct cg_io *io, enum wait_kind kind, struct cg_err *err)
{
        struct cg_wait *w = calloc(1, sizeof(*w));

        if (!w) {
                cg_fail(err, CG_E_NOMEM, "wait");
                return NULL;
        }
        w->io = io;
        w->thread = pthread_self();
        w->kind = kind;
        w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->fd < 0) {
                cg_fail_errno(err, "eventfd");
                free(w);
                return NULL;
        }
        return w;
}

static void register_locked(struct cg_wait *w)
{
        w->next = w->io->waits;
        w->io->waits = w;
}

int cg_wait_once(struct cg_wait *w)
{
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        bool done;

        if (poll(&p, 1, -1) > 0)
                clear_fd(w->fd);
        pthread_mutex_lock(&w->io->lock);
        done = w->done;
        pthread_mutex_unlock(&w->io->lock);
        return done ? 0 : CG_TIMEOUT;
}

static int push_tool_locked(struct cg_io *io, uint16_t type, uint64_t id, const char *body, size_t body_len,
                            const void *args, size_t args_len, struct cg_err *err);

struct cg_wait *cg_wait_free(struct cg_wait *w)
{
        if (!w)
                return NULL;
        pthread_mutex_lock(&w->io->lock);
        for (struct cg_wait **p = &w->io->waits; *p; p = &(*p)->next)
                if (*p == w) {
                        *p = w->next;
                        break;
                }
        if (w->kind == WAIT_CALL && !w->done) /* its result still comes, and frees its place */
                push_tool_locked(w->io, CG_TOOL_CALL_CANCEL, w->call, "", 0, NULL, 0, NULL);
        pthread_mutex_unlock(&w->io->lock);
        if (w->has_raw)
                zmq_msg_close(&w->raw);
        close(w->fd);
        free(w);
        return NULL;
}

struct cg_wait *cg_io_wait_room(struct cg_io *io, struct cg_err *err)
{
        struct cg_wait *w = wait_new(io, WAIT_ROOM, err);

        if (!w)
                return NULL;
        pthread_mutex_lock(&io->lock);
        register_locked(w);
        if (!full_locked(io))
                signal_waits_locked(io, WAIT_ROOM);
        else
                wake_locked(io);
        pthread_mutex_unlock(&io->lock);
        return w;
}

int cg_io_input(struct cg_io *io, uint64_t cell, const char *content, size_t len, struct cg_wait **ret, struct cg_err *err)
{
        struct cg_shell *sh;
        struct cg_out m = { .type = CG_KERNEL_INPUT_REQUEST, .raw = content, .raw_len = len, .has_raw = true };
        struct cg_wait *w;
        int r;

        if (len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "prompt of %zu bytes", len);
        w = wait_new(io, WAIT_INPUT, err);
        if (!w)
                return err ? err->code : CG_E_SYS;
        pthread_mutex_lock(&io->lock);
        sh = find_asking_locked(io, cell);
        if (sh) {
                catch_up_locked(io);
                w->cell = sh->cell;
                r = add_locked(io, &m, sh->cell, NULL, err);
        } else {
                r = cg_fail(err, CG_E_STATE, "this cell may not ask for input");
        }
        if (r == 0) {
                register_locked(w);
                flush_locked(io);
        }
        pthread_mutex_unlock(&io->lock);
        if (r < 0)
                cg_wait_free(w);
        else
                *ret = w;
        return r;
}

const char *cg_wait_text(const struct cg_wait *w, size_t *len)
{
        *len = 0;
        if (w->eof || !w->has_raw)
                return NULL;
        *len = zmq_msg_size(&w->raw);
        return zmq_msg_data((zmq_msg_t *)(uintptr_t)&w->raw);
}

static void tool_out_free(struct tool_out *t)
{
        free(t->body);
        free(t->args);
        free(t);
}

static void *copy(const void *p, size_t len)
{
        void *c = malloc(len ? len : 1);

        if (c && len)
                memcpy(c, p, len);
        return c;
}

static int push_tool_locked(struct cg_io *io, uint16_t type, uint64_t id, const char *body, size_t body_len,
                            const void *args, size_t args_len, struct cg_err *err)
{
        struct tool_out *t = calloc(1, sizeof(*t));

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "tool call");
        t->type = type;
        t->id = id;
        t->body = copy(body, body_len);
        t->body_len = body_len;
        t->args = args ? copy(args, args_len) : NULL;
        t->args_len = args_len;
        if (!t->body || (args && !t->args)) {
                tool_out_free(t);
                return cg_fail(err, CG_E_NOMEM, "tool call");
        }
        if (io->tool_tail)
                io->tool_tail->next = t;
        else
                io->tool_head = t;
        io->tool_tail = t;
        wake_locked(io);
        return 0;
}

int cg_io_call(struct cg_io *io, const char *body, size_t body_len, const void *args, size_t len, struct cg_wait **ret,
               struct cg_err *err)
{
        struct cg_wait *w;
        int r = CG_TIMEOUT;

        if (body_len > 4096)
                return cg_fail(err, CG_E_LIMIT, "names of server and tool are too long");
        if (len > CG_MAX_TOOL_ARGS)
                return cg_fail(err, CG_E_LIMIT, "arguments of %zu bytes are over the limit of %u", len,
                               CG_MAX_TOOL_ARGS);
        w = wait_new(io, WAIT_CALL, err);
        if (!w)
                return err ? err->code : CG_E_SYS;
        pthread_mutex_lock(&io->lock);
        if (io->calls >= CG_MAX_CALLS) {
                w->kind = WAIT_PLACE;
        } else {
                w->call = ++io->next_call;
                r = push_tool_locked(io, CG_TOOL_CALL, w->call, body, body_len, args, len, err);
                io->calls += r == 0;
                /* What the cell wrote before is seen before the question. */
                read_capture_locked(io, &io->capture[0], PIPE_BYTES);
                read_capture_locked(io, &io->capture[1], PIPE_BYTES);
                flush_locked(io);
        }
        if (r >= 0)
                register_locked(w);
        pthread_mutex_unlock(&io->lock);
        if (r < 0) {
                w->kind = WAIT_PLACE; /* nothing was sent: nothing to cancel */
                cg_wait_free(w);
        } else {
                *ret = w;
        }
        return r;
}

const char *cg_wait_result(const struct cg_wait *w, const void **data, size_t *len)
{
        *data = w->has_raw ? zmq_msg_data((zmq_msg_t *)(uintptr_t)&w->raw) : "";
        *len = w->has_raw ? zmq_msg_size(&w->raw) : 0;
        return w->status;
}

/* ------------------------------------------------------------------ the I/O thread: messages that arrive */

static void take_raw_locked(struct cg_wait *w, struct cg_msg *m)
{
        if (m->n_frames > 1) {
                zmq_msg_init(&w->raw);
                zmq_msg_move(&w->raw, &m->frames[1]);
                w->has_raw = true;
        }
        w->done = true;
        signal_fd(w->fd);
}

/* The message's raw frames are moved into it. */
static struct cg_request *request_new(struct cg_msg *m, enum cg_request_kind kind, struct cg_err *err)
{
        size_t n = m && m->n_frames > 1 ? m->n_frames - 1 : 0;
        struct cg_request *req = calloc(1, sizeof(*req) + n * sizeof(req->frames[0]));

        if (!req) {
                cg_fail(err, CG_E_NOMEM, "request");
                return NULL;
        }
        req->kind = kind;
        req->id = m ? m->id : 0;
        for (; req->n_frames < n; req->n_frames++) {
                zmq_msg_init(&req->frames[req->n_frames]);
                zmq_msg_move(&req->frames[req->n_frames], &m->frames[req->n_frames + 1]);
        }
        return req;
}

struct cg_request *cg_request_free(struct cg_request *req)
{
        for (size_t i = 0; req && i < req->n_frames; i++)
                zmq_msg_close(&req->frames[i]);
        free(req);
        return NULL;
}

/* The thread of the control shell: it waits for the GIL as any thread does, which the I/O thread must not. */
static void *control_main(void *arg)
{
        struct cg_io *io = arg;
        void (*serve)(void *data);
        sigset_t none;

        sigemptyset(&none); /* what it starts must not inherit our mask */
        pthread_sigmask(SIG_SETMASK, &none, NULL);
        pthread_mutex_lock(&io->lock);
        serve = io->control;
        io->control = NULL;
        pthread_mutex_unlock(&io->lock);
        if (serve)
                serve(io->control_data);
        return NULL;
}

static int enqueue_control(struct cg_io *io, struct cg_request *req, struct cg_err *err)
{
        pthread_t thread;
        bool start;

        pthread_mutex_lock(&io->lock);
        push_request_locked(&io->shells[CONTROL], req);
        start = io->control != NULL;
        pthread_mutex_unlock(&io->lock);
        if (!start)
                return 0;
        errno = pthread_create(&thread, NULL, control_main, io);
        if (errno)
                return cg_fail_errno(err, "thread of the control shell");
        pthread_detach(thread);
        return 0;
}

int cg_io_call_main(struct cg_io *io, struct cg_err *err)
{
        struct cg_request *req = request_new(NULL, CG_REQUEST_CALL, err);

        if (!req)
                return CG_E_NOMEM;
        pthread_mutex_lock(&io->lock);
        push_request_locked(&io->shells[MAIN], req);
        pthread_mutex_unlock(&io->lock);
        return 0;
}

void cg_io_set_control(struct cg_io *io, void (*serve)(void *data), void *data)
{
        pthread_mutex_lock(&io->lock);
        io->control_data = data;
        io->control = serve;
        pthread_mutex_unlock(&io->lock);
}

int cg_io_shell_close(struct cg_io *io, const char *name, struct cg_err *err)
{
        struct cg_request *req = request_new(NULL, CG_REQUEST_CLOSE, err);
        struct cg_shell *sh;

        if (!req)
                return CG_E_NOMEM;
        pthread_mutex_lock(&io->lock);
        sh = find_shell_locked(io, name);
        if (!sh || sh->closed || sh - io->shells < FIRST_SUBSHELL) {
                sh = NULL;
        } else {
                sh->closed = true;
                push_request_locked(sh, req);
        }
        pthread_mutex_unlock(&io->lock);
        if (sh)
                return 0;
        cg_request_free(req);
        return cg_fail(err, CG_E_NOTFOUND, "there is no such subshell");
}

/* An answer that needs no Python. */
static int refuse(struct cg_io *io, const struct cg_msg *m, const char *ename, const char *evalue, struct cg_err *err)
{
        struct cg_out out = { .type = CG_KERNEL_REPLY, .id = m->id, .has_raw = true };
        char text[512];
        int r;

        out.raw = out.body = text;
        out.raw_len = (size_t)snprintf(text, sizeof(text), "{\"status\":\"error\",\"ename\":\"%s\",\"evalue\":\"%s\"}",
                                       ename, evalue);
        if (m->type == CG_KERNEL_EXECUTE_REQUEST) {
                out.type = CG_KERNEL_EXECUTE_REPLY;
                out.body_len = out.raw_len;
                out.raw_len = 0;
        }
        pthread_mutex_lock(&io->lock);
        r = cg_outq_add(&io->out, &out, NULL, err);
        flush_locked(io);
        pthread_mutex_unlock(&io->lock);
        return r;
}

/* Hands @req (taken) to the shell that the message names. 0: it waits there, or was answered; negative: the protocol is broken. */
static int enqueue_for(struct cg_io *io, const struct cg_msg *m, const json_t *body, struct cg_request *req, struct cg_err *err)
{
        json_t *id = json_object_get(body, "subshell"); /* borrowed */
        const char *name = id && !json_is_null(id) ? json_string_value(id) : "";
        struct cg_shell *sh;

        if (!name) {
                cg_request_free(req);
                return cg_fail(err, CG_E_PROTO, "\"subshell\" is not a string");
        }
        pthread_mutex_lock(&io->lock);
        sh = find_shell_locked(io, name);
        if (sh && (sh->closed || sh == &io->shells[CONTROL]))
                sh = NULL;
        if (sh)
                push_request_locked(sh, req);
        pthread_mutex_unlock(&io->lock);
        if (sh)
                return 0;
        cg_request_free(req);
        return refuse(io, m, "SubshellNotFound", "there is no such subshell: it was deleted, or never created", err);
}

static int on_execute(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        struct cg_request *req = request_new(m, CG_REQUEST_CELL, err);

        if (!req)
                return CG_E_NOMEM;
        if (cg_json_bool(body, "silent", false, &req->silent, err) < 0 ||
            cg_json_bool(body, "store_history", true, &req->store_history, err) < 0 ||
            cg_json_bool(body, "allow_stdin", false, &req->allow_stdin, err) < 0) {
                cg_request_free(req);
                return CG_E_PROTO;
        }
        return enqueue_for(io, m, body, req, err);
}

/* Does this request not wait for cells? */
static bool for_control(const char *type)
{
        static const char *const types[] = { "debug_request", "create_subshell_request", "delete_subshell_request",
                                             "list_subshell_request" };

        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++)
                if (strcmp(type, types[i]) == 0)
                        return true;
        return false;
}

/* From /proc, here and now: whatever runs Python, also code that holds the GIL for ever, is not asked. */
static int answer_usage(struct cg_io *io, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b;
        struct cg_out out = { .type = CG_KERNEL_REPLY, .id = m->id, .has_raw = true };
        int r;

        cg_buf_init(&b, CG_MAX_BODY);
        r = cg_usage_json(&io->usage, &b, err);
        if (r < 0)
                return r;
        out.raw = b.data;
        out.raw_len = b.len;
        return cg_io_answer(io, &out, err);
}

static int on_request(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        struct cg_request *req;
        const char *type;
        int r = cg_json_str(body, "type", NULL, &type, err);

        if (r == 0 && (!type || strlen(type) >= sizeof(req->type) || m->n_frames < 2))
                r = cg_fail(err, CG_E_PROTO, "REQUEST without a type or content");
        if (r < 0)
                return r;
        if (strcmp(type, "usage_request") == 0)
                return answer_usage(io, m, err);
        req = request_new(m, CG_REQUEST_OTHER, err);
        if (!req)
                return CG_E_NOMEM;
        snprintf(req->type, sizeof(req->type), "%s", type);
        return for_control(type) ? enqueue_control(io, req, err) : enqueue_for(io, m, body, req, err);
}

static int on_input_reply(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        bool eof = false;

        if (cg_json_bool(body, "eof", false, &eof, err) < 0)
                return CG_E_PROTO;
        pthread_mutex_lock(&io->lock);
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == WAIT_INPUT && !w->done && w->cell == m->id) {
                        w->eof = eof;
                        take_raw_locked(w, m);
                        break;
                }
        pthread_mutex_unlock(&io->lock);
        return 0;
}

/* One attempt: the interpreter's flag, EINTR for a system call, and a nudge for those that wait here. */
static void poke_locked(struct cg_io *io, int64_t now)
{
        io->config.interrupt();
        pthread_kill(io->main, SIGINT);
        for (struct cg_wait *w = io->waits; w; w = w->next)
                signal_fd(w->fd);
        io->interrupt_at_ms = now + io->interrupt_step_ms;
        io->interrupt_step_ms *= 2;
        if (io->interrupt_step_ms > INTERRUPT_RETRY_MAX_MS)
                io->interrupt_step_ms = INTERRUPT_RETRY_MAX_MS;
}

static void start_interrupt_locked(struct cg_io *io)
{
        io->shells[MAIN].interrupting = true;
        io->interrupt_step_ms = INTERRUPT_RETRY_MS;
        poke_locked(io, cg_now_ms());
}

/*
 * Python interrupts its main thread from anywhere, other threads only where the GIL is held. subprocess.run() waits for its child, which
 * at a terminal would get the signal too.
 */
static int on_interrupt(struct cg_io *io, struct cg_msg *m, struct cg_err *err)
{
        const struct cg_shell *target = NULL;
        struct cg_request *req;
        uint64_t began = 0;

        pthread_mutex_lock(&io->lock);
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].open && io->shells[i].cell == m->id)
                        target = &io->shells[i];
        if (target)
                began = target->began;
        if (target == &io->shells[MAIN])
                start_interrupt_locked(io);
        pthread_mutex_unlock(&io->lock);
        if (!target)
                return 0;
        if (target == &io->shells[MAIN]) {
                cg_procs_interrupt(began);
                return 0;
        }
        req = request_new(m, CG_REQUEST_INTERRUPT, err);
        return req ? enqueue_control(io, req, err) : CG_E_NOMEM;
}

static int on_shutdown(struct cg_io *io, struct cg_err *err)
{
        struct cg_request *req = request_new(NULL, CG_REQUEST_SHUTDOWN, err);

        if (!req)
                return CG_E_NOMEM;
        pthread_mutex_lock(&io->lock);
        io->shutdown_at_ms = cg_now_ms() + SHUTDOWN_MS;
        push_request_locked(&io->shells[MAIN], req);
        if (io->shells[MAIN].open)
                start_interrupt_locked(io);
        pthread_mutex_unlock(&io->lock);
        return 0;
}

/* The tool server is gone, and with it the answers: whoever waits for one is told so. */
static void on_calls_lost(struct cg_io *io)
{
        static const char text[] = "the tool server ended before it answered; whether the tool ran is not known. "
                                   "It has been started again: later calls work";

        pthread_mutex_lock(&io->lock);
        for (struct cg_wait *w = io->waits; w; w = w->next) {
                if (w->kind != WAIT_CALL || w->done)
                        continue;
                snprintf(w->status, sizeof(w->status), "failed");
                w->has_raw = zmq_msg_init_size(&w->raw, sizeof(text) - 1) == 0;
                if (w->has_raw)
                        memcpy(zmq_msg_data(&w->raw), text, sizeof(text) - 1);
                w->done = true;
                signal_fd(w->fd);
        }
        io->calls = 0;
        signal_waits_locked(io, WAIT_PLACE);
        pthread_mutex_unlock(&io->lock);
}

static int on_kernel_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        int r = cg_msg_json(m, &body, err);

        if (r < 0)
                return r;
        switch (m->type) {
        case CG_KERNEL_EXECUTE_REQUEST:
                return on_execute(io, m, body, err);
        case CG_KERNEL_REQUEST:
                return on_request(io, m, body, err);
        case CG_KERNEL_INPUT_REPLY:
                return on_input_reply(io, m, body, err);
        case CG_KERNEL_INTERRUPT_REQUEST:
                return on_interrupt(io, m, err);
        case CG_KERNEL_CALLS_LOST:
                on_calls_lost(io);
                return 0;
        case CG_KERNEL_SHUTDOWN_REQUEST:
                return on_shutdown(io, err);
        default:
                return cg_fail(err, CG_E_PROTO, "%s has no meaning here", m->spec->name);
        }
}

static int on_tool_msg(struct cg_io *io, struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const char *status;
        int r = cg_msg_json(m, &body, err);

        if (r == 0)
                r = cg_json_str(body, "status", "failed", &status, err);
        if (r < 0)
                return r;
        pthread_mutex_lock(&io->lock);
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == WAIT_CALL && w->call == m->id && !w->done) {
                        snprintf(w->status, sizeof(w->status), "%s", status);
                        take_raw_locked(w, m);
                        break;
                }
        if (io->calls)
                io->calls--;
        signal_waits_locked(io, WAIT_PLACE);
        pthread_mutex_unlock(&io->lock);
        return 0;
}

static struct link *link_of(struct cg_zconn *c)
{
        return (struct link *)(void *)((char *)c - offsetof(struct link, conn));
}

/* A break of the protocol by our trusted side is the end. */
static void on_link_msg(struct cg_zconn *c, struct cg_msg *m)
{
        struct link *l = link_of(c);
        struct cg_err err;

        if (l->handle(l->io, m, &err) < 0)
                _exit(EXIT_PROTOCOL);
}

static void on_link_end(struct cg_zconn *c, const struct cg_err *err)
{
        if (err->code != CG_E_CLOSED)
                _exit(EXIT_PROTOCOL);
        link_of(c)->lost = true;
}

static void link_accept(struct link *l)
{
        static const struct cg_zconn_ops ops = { on_link_msg, on_link_end };
        int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
                return;
        pthread_mutex_lock(&l->io->out_lock);
        if (cg_zconn_init(&l->conn, fd, l->wire, l->sender, SIZE_MAX, &ops, NULL) < 0)
                _exit(EXIT_PROTOCOL);
        cg_zconn_flush(&l->conn);
        pthread_mutex_unlock(&l->io->out_lock);
}

/* A tool server that has ended is followed by another. */
static void link_close(struct link *l)
{
        pthread_mutex_lock(&l->io->out_lock);
        cg_zconn_fini(&l->conn);
        l->conn = CG_ZCONN_NONE;
        l->lost = false;
        pthread_mutex_unlock(&l->io->out_lock);
        if (l != &l->io->kernel)
                return;
        pthread_mutex_lock(&l->io->lock);
        l->io->blocked = false;
        pthread_mutex_unlock(&l->io->lock);
}

static struct pollfd link_poll(const struct link *l, bool out)
{
        if (l->conn.fd < 0)
                return (struct pollfd){ .fd = l->listener, .events = POLLIN };
        return (struct pollfd){ .fd = l->conn.fd, .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
}

/* Room to write is used by whoever sends next, this thread, at once. */
static void link_serve(struct link *l, short events)
{
        if (l->conn.fd < 0 && events) {
                link_accept(l);
                events = POLLIN;
        }
        if (l->conn.fd < 0 || !(events & ~POLLOUT))
                return;
        do
                cg_zconn_read(&l->conn, BURST, true);
        while (l->conn.again && !l->lost);
        if (!l->conn.open) {
                pthread_mutex_lock(&l->io->out_lock);
                cg_zconn_opened(&l->conn);
                pthread_mutex_unlock(&l->io->out_lock);
        }
        if (l->lost)
                link_close(l);
}

/* ------------------------------------------------------------------ the I/O thread: messages that leave */

static void release_item(void *owner)
{
        cg_outq_item_free(owner);
}

static void put_item(struct cg_zconn *c, struct cg_outq_item *it)
{
        struct cg_out out = { .type = it->type, .flags = it->flags, .id = it->cell, .body = it->body, .body_len = it->body_len,
                              .raw = it->data, .raw_len = it->len, .has_raw = it->has_raw, .more = it->more,
                              .n_more = it->n_more };

        if (cg_zconn_put(c, &out, release_item, it, NULL) != 0)
                _exit(EXIT_PROTOCOL);
}

/* Takes from the queue what goes into one write. Returns when text must be looked at again, or -1. */
static int64_t take_output(struct cg_io *io)
{
        int64_t due = -1;

        pthread_mutex_lock(&io->lock);
        while (io->kernel.conn.queued < WRITE_BYTES) {
                struct cg_outq_item *it = cg_outq_pop(&io->out, cg_now_ms(), &due);

                if (!it)
                        break;
                put_item(&io->kernel.conn, it);
        }
        if (io->out.bytes < CG_IO_QUEUE_BYTES / 2)
                signal_waits_locked(io, WAIT_ROOM);
        pthread_mutex_unlock(&io->lock);
        return due;
}

/* Sends what can be sent; out_lock is held. Returns when text must be looked at again, or -1. */
static int64_t send_output(struct cg_io *io)
{
        struct cg_zconn *c = &io->kernel.conn;
        int64_t due = -1;

        cg_zconn_flush(c);
        while (c->open && !c->deaf && !c->first) {
                due = take_output(io);
                if (!c->first)
                        break;
                cg_zconn_flush(c);
        }
        pthread_mutex_lock(&io->lock);
        io->blocked = cg_zconn_wants_out(c);
        pthread_mutex_unlock(&io->lock);
        return due;
}

/* The same for the tool wire; returns whether something waits for room. */
static bool send_calls(struct cg_io *io)
{
        struct cg_zconn *c = &io->tool.conn;

        cg_zconn_flush(c);
        while (c->open && !c->deaf && !c->first) {
                struct tool_out *t;
                struct cg_out out;

                pthread_mutex_lock(&io->lock);
                t = io->tool_head;
                if (t && !(io->tool_head = t->next))
                        io->tool_tail = NULL;
                pthread_mutex_unlock(&io->lock);
                if (!t)
                        break;
                out = (struct cg_out){ .type = t->type, .id = t->id, .body = t->body, .body_len = t->body_len,
                                       .raw = t->args, .raw_len = t->args_len, .has_raw = t->args != NULL };
                if (cg_zconn_put(c, &out, NULL, NULL, NULL) != 0)
                        _exit(EXIT_PROTOCOL);
                tool_out_free(t);
                cg_zconn_flush(c);
        }
        return cg_zconn_wants_out(c);
}

/* ------------------------------------------------------------------ the I/O thread: its loop */

static int64_t sooner(int64_t a, int64_t b)
{
        return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Timers that have come are acted upon. Returns the next one, or -1. */
static int64_t timers(struct cg_io *io)
{
        int64_t now = cg_now_ms(), next = -1;

        pthread_mutex_lock(&io->lock);
        if (io->shells[MAIN].interrupting && now >= io->interrupt_at_ms)
                poke_locked(io, now);
        if (io->shells[MAIN].interrupting)
                next = io->interrupt_at_ms;
        if (io->shutdown_at_ms && now >= io->shutdown_at_ms)
                _exit(0);
        if (io->shutdown_at_ms)
                next = sooner(next, io->shutdown_at_ms);
        if (io->exiting && (now >= io->exit_at_ms || (!io->blocked && !io->out.head)))
                _exit(io->exit_status);
        if (io->exiting)
                next = sooner(next, io->exit_at_ms);
        pthread_mutex_unlock(&io->lock);
        return next;
}

static void read_captures(struct cg_io *io, short events0, short events1)
{
        const struct cg_outq_item *tail;

        pthread_mutex_lock(&io->lock);
        tail = io->out.tail;
        if (events0 & POLLIN)
                read_capture_locked(io, &io->capture[0], 65536);
        if (events1 & POLLIN)
                read_capture_locked(io, &io->capture[1], 65536);
        appended_locked(io, tail);
        pthread_mutex_unlock(&io->lock);
}

static int poll_timeout(int64_t at)
{
        int64_t left;

        if (at < 0)
                return -1;
        left = at - cg_now_ms();
        return left < 0 ? 0 : (int)left;
}

/* Takes a lock unless the crashing thread holds it: then what is queued is lost with it. */
static bool lock_for_crash(pthread_mutex_t *lock)
{
        struct timespec end;

        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 1;
        return pthread_mutex_timedlock(lock, &end) == 0;
}

static void write_last_words(struct cg_io *io)
{
        int64_t end_ms = cg_now_ms() + EXIT_MS / 2;
        struct pollfd p;

        read_capture_locked(io, &io->capture[0], PIPE_BYTES);
        read_capture_locked(io, &io->capture[1], PIPE_BYTES);
        io->out.flush = io->out.head != NULL;
        pthread_mutex_unlock(&io->lock);
        do {
                send_output(io);
                p = link_poll(&io->kernel, true);
                p.events &= ~POLLIN;
        } while (io->blocked && cg_now_ms() < end_ms && poll(&p, 1, EXIT_MS / 2) > 0);
}

/* Sends everything that was written before a crash. No other use of the connections follows. */
static void send_last_words(struct cg_io *io)
{
        if (lock_for_crash(&io->out_lock) && lock_for_crash(&io->lock))
                write_last_words(io);
        signal_fd(io->crash_fd);
        for (;;)
                pause();
}

static void *io_main(void *arg)
{
        struct cg_io *io = arg;

        for (;;) {
                bool full, out, tool_out;
                struct pollfd p[5];
                int64_t next;

                pthread_mutex_lock(&io->out_lock);
                next = send_output(io);
                tool_out = send_calls(io);
                pthread_mutex_unlock(&io->out_lock);
                next = sooner(next, timers(io));
                pthread_mutex_lock(&io->lock);
                full = full_locked(io);
                out = io->blocked;
                pthread_mutex_unlock(&io->lock);
                p[0] = link_poll(&io->kernel, out);
                p[1] = link_poll(&io->tool, tool_out);
                p[2] = (struct pollfd){ .fd = io->wake_fd, .events = POLLIN };
                p[3] = (struct pollfd){ .fd = io->capture[0].read_end, .events = POLLIN };
                p[4] = (struct pollfd){ .fd = io->capture[1].read_end, .events = POLLIN };
                /* A full queue pushes back: the pipes fill, and who writes into them waits. */
                if (poll(p, full ? 3 : 5, poll_timeout(next)) < 0 && errno != EINTR)
                        _exit(EXIT_PROTOCOL);
                if (io->crashing)
                        send_last_words(io);
                if (p[2].revents) {
                        clear_fd(io->wake_fd);
                        pthread_mutex_lock(&io->lock);
                        io->woken = false;
                        pthread_mutex_unlock(&io->lock);
                }
                if (!full && (p[3].revents || p[4].revents))
                        read_captures(io, p[3].revents, p[4].revents);
                link_serve(&io->kernel, p[0].revents);
                link_serve(&io->tool, p[1].revents);
        }
        return NULL;
}

/* ------------------------------------------------------------------ crashes */

#ifndef __SANITIZE_ADDRESS__ /* it has handlers of its own, whose reports are wanted */
/* The one kernel of this process: a signal handler is given no argument. Set once, before the handlers. */
static struct cg_io *crash_io;

/* Runs after faulthandler has written its traceback to descriptor 2. Async-signal-safe calls only. */
static void on_crash(int sig)
{
        struct cg_io *io = crash_io;

        signal(sig, SIG_DFL);
        if (!cg_io_forked(io) && !pthread_equal(pthread_self(), io->thread) && !io->crashing) {
                struct pollfd p = { .fd = io->crash_fd, .events = POLLIN };

                io->crashing = 1;
                signal_fd(io->wake_fd);
                while (poll(&p, 1, EXIT_MS) < 0 && errno == EINTR)
                        ;
        }
        raise(sig);
}

void cg_io_catch_crashes(struct cg_io *io)
{
        static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
        struct sigaction act = { .sa_handler = on_crash, .sa_flags = SA_NODEFER | SA_ONSTACK };

        crash_io = io;
        for (size_t i = 0; i < CG_ARRAY_LEN(signals); i++)
                sigaction(signals[i], &act, NULL);
}
#else
void cg_io_catch_crashes(struct cg_io *io)
{
}
#endif

void cg_io_exit(struct cg_io *io, int status)
{
        if (cg_io_forked(io))
                _exit(status);
        pthread_mutex_lock(&io->lock);
        read_capture_locked(io, &io->capture[0], PIPE_BYTES);
        read_capture_locked(io, &io->capture[1], PIPE_BYTES);
        io->exiting = true;
        io->exit_status = status;
        io->exit_at_ms = cg_now_ms() + EXIT_MS;
        flush_locked(io);
        wake_locked(io);
        pthread_mutex_unlock(&io->lock);
        for (;;)
                pause();
}
