/*
 * The kernel's input and output; runs in the kernel process. One thread reads both connections and
 * the pipes at descriptors 1 and 2. It holds no GIL, ever: a cell that spins or sleeps in native
 * code cannot stop it. Replies are written by the thread that makes them, whatever else by that
 * thread. See io.h.
 */
#include "kernel/io_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/util.h"
#include "kernel/crash.h"

/* For output that is still queued when the process ends. */
#define EXIT_MS 300
/* Messages and reads of one connection before the other gets a turn. */
#define BURST 32
/* In the page that a forked process finds empty. */
#define ALIVE 0x43474b31u

/* ------------------------------------------------------------------ small helpers */

void signal_fd(int fd)
{
        uint64_t one = 1;

        while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
                ;
}

void clear_fd(int fd)
{
        uint64_t n;

        while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
                ;
}

void wake_locked(struct cg_io *io)
{
        if (io->woken)
                return;
        io->woken = true;
        signal_fd(io->wake_fd);
}

/*
 * After an append: the thread must know of a new message and of text that has to go out in some
 * milliseconds.
 */
void appended_locked(struct cg_io *io, const struct cg_outq_item *tail_before)
{
        if (!tail_before || io->out.head != io->out.tail)
                wake_locked(io);
}

bool full_locked(const struct cg_io *io)
{
        return io->out.bytes >= CG_IO_QUEUE_BYTES;
}

void signal_waits_locked(struct cg_io *io, enum wait_kind kind)
{
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == kind && !w->done) {
                        w->done = true;
                        signal_fd(w->fd);
                }
}

/* Too large for the wire is the writer's error, and must not become the connection's. */
int check_size(const struct cg_out *m, struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER];

        return cg_out_header(&cg_wire_kernel, m, header, err);
}

/*
 * Whose output is it that nobody has said a cell of? The main shell's; between its cells that of a
 * subshell; else that of the last.
 */
uint64_t running_locked(const struct cg_io *io)
{
        uint64_t cell = io->named_cell ? io->named_cell : io->shells[MAIN].cell;

        for (size_t i = FIRST_SUBSHELL; !cell && i < CG_IO_MAX_SHELLS; i++)
                cell = io->shells[i].cell;
        return cell ? cell : io->last_cell;
}

uint64_t resolve_locked(const struct cg_io *io, uint64_t cell)
{
        return cell == CG_IO_RUNNING ? running_locked(io) : cell;
}

bool cg_io_forked(const struct cg_io *io)
{
        return *(const volatile uint32_t *)io->alive != ALIVE;
}

/* ------------------------------------------------------------------ making and starting */

static void link_init(struct link *l, struct cg_io *io, int listener, const struct cg_wire *wire,
                      unsigned sender, int (*handle)(struct cg_io *io, struct cg_msg *m, struct cg_err *err))
{
        *l = (struct link){ .io = io,
                            .listener = listener,
                            .wire = wire,
                            .sender = sender,
                            .handle = handle,
                            .conn = CG_ZCONN_NONE };
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

int open_shell_locked(struct cg_shell *sh, const char *name, struct cg_err *err)
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

/*
 * Both are held for moments only: who finds one taken looks a few times before it sleeps, which
 * would take much longer.
 */
static void init_locks(struct cg_io *io)
{
        pthread_mutexattr_t attr;

        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
        pthread_mutex_init(&io->lock, &attr);
        pthread_mutex_init(&io->out_lock, &attr);
        pthread_mutexattr_destroy(&attr);
}

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
        init_locks(io);
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
        /*
         * Its number is high, and the larger table of descriptors that this takes costs nothing
         * while there is one thread: later Linux would wait for a grace period, some 10 ms of each
         * kernel's start.
         */
        cg_crash_fd();
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
        /* printf() of C code shows line by line, as at a terminal */
        setvbuf(stdout, NULL, _IOLBF, 0);
        return 0;
}

/* ------------------------------------------------------------------ links */

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

/*
 * A tool server that has ended is followed by another, which calls that were not sent yet wait for.
 */
static void link_close(struct link *l)
{
        pthread_mutex_lock(&l->io->out_lock);
        cg_zconn_fini(&l->conn);
        l->conn = CG_ZCONN_NONE;
        l->lost = false;
        pthread_mutex_unlock(&l->io->out_lock);
        if (l == &l->io->tool) {
                calls_lost(l->io);
                return;
        }
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

/* ------------------------------------------------------------------ its loop */

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
/*
 * The one kernel of this process: a signal handler is given no argument. Set once, before the
 * handlers.
 */
static struct cg_io *crash_io;

/*
 * Runs after faulthandler has written its traceback to cg_crash_fd(). Async-signal-safe calls only.
 */
static void on_crash(int sig)
{
        struct cg_io *io = crash_io;

        signal(sig, SIG_DFL);
        cg_crash_show();
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
