/*
 * The kernel's input and output: start, I/O thread, crashes, exit. Kernel process. The I/O thread
 * reads the connections and the pipes at descriptors 1 and 2; while another thread waits for the
 * result of a call, that thread reads the connection that the call was sent on. The I/O thread
 * never takes the GIL, so a cell that spins or sleeps in native code cannot stop it. Replies and
 * calls are sent by the thread that makes them, all other output by the I/O thread. See io.h.
 */
#include "kernel/io_int.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include "kernel/crash.h"

/* Time for sending queued output when the process ends. */
#define EXIT_MS 300
/* Content of the page that is zero in forked processes. */
#define ALIVE 0x43474b31u
/* The main thread and the I/O thread. */
#define OWN_THREADS 2

bool cg_io_forked(const struct cg_io *io)
{
        return *(const volatile uint32_t *)io->alive != ALIVE;
}

/* ------------------------------------------------------------------ making and starting */

static void link_init(struct link *l, struct cg_io *io, int listener, const struct cg_wire *wire,
                      unsigned sender, int (*handle)(struct link *l, struct cg_msg *m, struct cg_err *err))
{
        *l = (struct link){ .io = io,
                            .listener = listener,
                            .wire = wire,
                            .sender = sender,
                            .handle = handle,
                            .conn = CG_ZCONN_NONE,
                            .epoll = -1,
                            .fd = -1,
                            .out = STAILQ_HEAD_INITIALIZER(l->out),
                            .queued = TAILQ_HEAD_INITIALIZER(l->queued),
                            .sent = TAILQ_HEAD_INITIALIZER(l->sent) };
}

int cg_io_new(const struct cg_io_config *config, struct cg_io **ret, struct cg_err *err)
{
        struct cg_io *io = calloc(1, sizeof(*io));
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        pthread_mutexattr_t attr;
        uint32_t *alive;
        int r;

        /* Never freed: the process ends by _exit(). */
        if (!io) {
                close(config->kernel_fd);
                close(config->tool_fd);
                close(config->function_fd);
                return cg_fail(err, CG_E_NOMEM, "kernel i/o");
        }
        io->config = *config;
        io->main = pthread_self();
        io->usage.at_ms = cg_now_ms();
        /* Both are held for very short times, so a waiting thread spins before it sleeps. */
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
        pthread_mutex_init(&io->lock, &attr);
        pthread_mutex_init(&io->out_lock, &attr);
        pthread_mutexattr_destroy(&attr);
        pthread_cond_init(&io->control_queued, NULL);
        link_init(&io->kernel, io, config->kernel_fd, &cg_wire_kernel, CG_ROLE_SUPERVISOR,
                  cg_io_on_kernel_msg);
        link_init(&io->calls[TOOLS], io, config->tool_fd, &cg_wire_tool, CG_ROLE_TOOLSERVER,
                  cg_io_on_call_msg);
        link_init(&io->calls[FUNCTIONS], io, config->function_fd, &cg_wire_tool, CG_ROLE_SUPERVISOR,
                  cg_io_on_call_msg);
        io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        io->crash.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        io->spare_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* a cell may use up all descriptors */
        io->capture_epoll = epoll_create1(EPOLL_CLOEXEC);
        if (io->wake_fd < 0 || io->crash.fd < 0 || io->spare_fd < 0 || io->capture_epoll < 0)
                return cg_fail_errno(err, "eventfd");
        for (size_t i = 0; i < CALL_LINKS; i++) {
                io->calls[i].epoll = epoll_create1(EPOLL_CLOEXEC);
                if (io->calls[i].epoll < 0)
                        return cg_fail_errno(err, "epoll_create1");
        }
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                io->shells[i] = (struct cg_shell){ .io = io, .request_fd = -1 };
        if ((r = cg_io_open_shell_locked(&io->shells[MAIN], "", err)) < 0 ||
            (r = cg_io_open_shell_locked(&io->shells[CONTROL], CG_IO_CONTROL, err)) < 0 ||
            (r = cg_io_make_capture(io, &io->capture[0], 0, err)) < 0 ||
            (r = cg_io_make_capture(io, &io->capture[1], CG_FLAG_STDERR, err)) < 0)
                return r;
        alive = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (alive == MAP_FAILED || madvise(alive, page, MADV_WIPEONFORK) < 0)
                return cg_fail_errno(err, "page that detects forks");
        *alive = ALIVE;
        io->alive = alive;
        *ret = io;
        return 0;
}

static void *io_main(void *arg);

int cg_io_start(struct cg_io *io, struct cg_err *err)
{
        cg_auto_fd int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct sigaction sigint;
        sigset_t all, before;
        int r;

        if (sigaction(SIGINT, NULL, &sigint) < 0)
                return cg_fail_errno(err, "SIGINT");
        io->interrupt.sigint = sigint.sa_handler;
        if (null_fd < 0 || dup2(null_fd, 0) < 0)
                return cg_fail_errno(err, "/dev/null");
        /*
         * Its high number enlarges the descriptor table. With more than one thread Linux would wait
         * for an RCU grace period there, about 10 ms of each start.
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
        /* From here on there is no log: descriptors 1 and 2 are the output of cells. */
        for (int i = 0; i < 2; i++) {
                if (dup2(io->capture[i].write_end, i + 1) < 0)
                        return cg_fail_errno(err, "descriptor %d", i + 1);
                close(io->capture[i].write_end);
        }
        /* printf() of C code is line buffered, as at a terminal */
        setvbuf(stdout, NULL, _IOLBF, 0);
        return 0;
}

/* ------------------------------------------------------------------ links */

static struct link *link_of(struct cg_zconn *c)
{
        return (struct link *)(void *)((char *)c - offsetof(struct link, conn));
}

/* A protocol error of a trusted peer is fatal. */
static void on_link_msg(struct cg_zconn *c, struct cg_msg *m)
{
        struct link *l = link_of(c);
        struct cg_err err;

        if (l->handle(l, m, &err) < 0)
                _exit(EXIT_PROTOCOL);
}

static void on_link_end(struct cg_zconn *c, const struct cg_err *err)
{
        if (err->code != CG_E_CLOSED)
                _exit(EXIT_PROTOCOL);
        link_of(c)->lost = true;
}

static struct pollfd link_poll(const struct link *l, bool out)
{
        if (l->conn.fd < 0)
                return (struct pollfd){ .fd = l->listener, .events = POLLIN };
        return (struct pollfd){ .fd = l->conn.fd, .events = (short)(POLLIN | (out ? POLLOUT : 0)) };
}

/* POLLOUT only ends the poll(): io_main() sends next. */
static void link_serve(struct link *l, short events)
{
        static const struct cg_zconn_ops ops = { on_link_msg, on_link_end };

        if (l->conn.fd < 0 && events) {
                int fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd < 0)
                        return;
                pthread_mutex_lock(&l->io->out_lock);
                if (cg_zconn_init(&l->conn, fd, l->wire, l->sender, SIZE_MAX, &ops, NULL) < 0)
                        _exit(EXIT_PROTOCOL);
                cg_zconn_flush(&l->conn);
                pthread_mutex_unlock(&l->io->out_lock);
                events = POLLIN;
        }
        if (l->conn.fd < 0 || !(events & ~POLLOUT))
                return;
        cg_io_read_link(l);
        if (!l->lost)
                return;
        pthread_mutex_lock(&l->io->out_lock);
        cg_zconn_fini(&l->conn);
        l->conn = CG_ZCONN_NONE;
        l->lost = false;
        pthread_mutex_unlock(&l->io->out_lock);
        if (l == &l->io->calls[TOOLS])
                /* Another tool server follows one that has ended; unsent calls wait for it. */
                cg_io_calls_lost(l);
        if (l != &l->io->kernel)
                return; /* without its supervisor the kernel is about to be killed */
        pthread_mutex_lock(&l->io->lock);
        l->io->blocked = false;
        pthread_mutex_unlock(&l->io->lock);
}

/* The listener while there is no connection, else the connection. */
static void serve_calls(struct link *l, short events)
{
        if (!events || (l->conn.fd >= 0 && cg_io_take_link(l) < 0))
                return;
        link_serve(l, events);
        if (l->conn.fd >= 0)
                cg_io_give_link(l, l->conn.fd);
}

/* ------------------------------------------------------------------ loop of the I/O thread */

static int64_t sooner(int64_t a, int64_t b)
{
        return a < 0 || (b >= 0 && b < a) ? b : a;
}

/*
 * Releases locks on files before the memory, which takes longer: init reports the end of a process
 * without files as soon as its memory is not in use (inside/stopped.h). Threads of cells might
 * write to other files at the same numbers, so it is done only if there are none.
 */
static void close_files(void)
{
        struct stat st;

        if (stat("/proc/self/task", &st) == 0 && st.st_nlink == 2 + OWN_THREADS)
                close_range(3, ~0U, 0);
}

/* Handles timers that have expired. Returns the time of the next one, or -1. */
static int64_t run_timers(struct cg_io *io)
{
        int64_t now = cg_now_ms(), next = -1;
        CG_HOLD(&io->lock);

        if (io->shells[MAIN].interrupting && !io->interrupt.arrived) {
                if (now >= io->interrupt.at_ms)
                        cg_io_try_interrupt_locked(io, now, true);
                next = io->interrupt.at_ms;
        }
        if (io->exit.shutdown_at_ms && now >= io->exit.shutdown_at_ms)
                _exit(0);
        if (io->exit.shutdown_at_ms)
                next = sooner(next, io->exit.shutdown_at_ms);
        if (io->exit.on && (now >= io->exit.at_ms || (!io->blocked && !io->out.head))) {
                if (io->exit.shutdown_at_ms)
                        close_files();
                _exit(io->exit.status);
        }
        if (io->exit.on)
                next = sooner(next, io->exit.at_ms);
        return next;
}

static void read_captures(struct cg_io *io, short events0, short events1)
{
        CG_HOLD(&io->lock);

        if (events0 & POLLIN)
                cg_io_read_capture_locked(io, &io->capture[0], 65536);
        if (events1 & POLLIN)
                cg_io_read_capture_locked(io, &io->capture[1], 65536);
}

static int poll_timeout(int64_t at)
{
        int64_t left;

        if (at < 0)
                return -1;
        left = at - cg_now_ms();
        return (int)CG_MAX(left, 0);
}

/* Fails where the crashing thread holds the lock: the queued output is lost then. */
static bool lock_for_crash(pthread_mutex_t *lock)
{
        struct timespec end;

        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 1;
        return pthread_mutex_timedlock(lock, &end) == 0;
}

/* Sends what was written before a crash, then stops: the connections are not used again. */
static void send_before_crash(struct cg_io *io)
{
        int64_t end_ms = cg_now_ms() + EXIT_MS / 2;

        if (lock_for_crash(&io->out_lock) && lock_for_crash(&io->lock)) {
                struct pollfd p;

                cg_io_read_captures_locked(io);
                io->out.flush = io->out.head != NULL;
                pthread_mutex_unlock(&io->lock);
                do {
                        cg_io_send_output(io);
                        p = link_poll(&io->kernel, true);
                        p.events &= ~POLLIN;
                } while (io->blocked && cg_now_ms() < end_ms && poll(&p, 1, EXIT_MS / 2) > 0);
        }
        eventfd_write(io->crash.fd, 1);
        for (;;)
                pause();
}

/* A cell has set a limit of open files below the number of those that io_main() waits for. */
static void poll_singly(struct pollfd *p, size_t n)
{
        static const struct timespec pause = { .tv_nsec = 5000000 };

        nanosleep(&pause, NULL);
        for (size_t i = 0; i < n; i++)
                if (poll(&p[i], 1, 0) < 0 && errno != EINTR)
                        _exit(EXIT_PROTOCOL);
}

static void *io_main(void *arg)
{
        struct cg_io *io = arg;

        for (;;) {
                bool full, out, call_out[CALL_LINKS];
                size_t n;
                struct pollfd p[4 + 2 * CALL_LINKS], *calls = p + 2, *captures = calls + 2 * CALL_LINKS;
                int64_t next;

                pthread_mutex_lock(&io->out_lock);
                next = cg_io_send_output(io);
                for (size_t i = 0; i < CALL_LINKS; i++)
                        call_out[i] = cg_io_send_calls(&io->calls[i]);
                pthread_mutex_unlock(&io->out_lock);
                next = sooner(next, run_timers(io));
                pthread_mutex_lock(&io->lock);
                full = cg_io_full_locked(io);
                out = io->blocked;
                pthread_mutex_unlock(&io->lock);
                p[0] = link_poll(&io->kernel, out);
                p[1] = (struct pollfd){ .fd = io->wake_fd, .events = POLLIN };
                for (size_t i = 0; i < CALL_LINKS; i++) {
                        const struct link *l = &io->calls[i];

                        calls[2 * i] = link_poll(l, false);
                        if (l->conn.fd >= 0)
                                calls[2 * i].fd = l->epoll;
                        calls[2 * i + 1] = (struct pollfd){ .fd = call_out[i] ? l->conn.fd : -1,
                                                            .events = POLLOUT };
                }
                captures[0] = (struct pollfd){ .fd = io->capture[0].read_end, .events = POLLIN };
                captures[1] = (struct pollfd){ .fd = io->capture[1].read_end, .events = POLLIN };
                /* While the queue is full the pipes are not read, and their writers block. */
                n = CG_ARRAY_LEN(p) - (full ? 2 : 0);
                if (poll(p, n, poll_timeout(next)) < 0 && errno != EINTR)
                        poll_singly(p, n);
                if (io->crash.waits)
                        send_before_crash(io);
                if (p[1].revents) {
                        cg_io_event_clear(io->wake_fd);
                        pthread_mutex_lock(&io->lock);
                        io->woken = false;
                        pthread_mutex_unlock(&io->lock);
                }
                if (!full && (captures[0].revents || captures[1].revents))
                        read_captures(io, captures[0].revents, captures[1].revents);
                link_serve(&io->kernel, p[0].revents);
                for (size_t i = 0; i < CALL_LINKS; i++)
                        serve_calls(&io->calls[i], calls[2 * i].revents);
        }
        return NULL;
}

/* ------------------------------------------------------------------ crashes */

#ifndef __SANITIZE_ADDRESS__ /* has its own handlers, whose reports are wanted */
/* For on_crash(), as signal handlers have no argument. Set once, before the handlers. */
static struct cg_io *crash_io;

/* Called after faulthandler has written to cg_crash_fd(). Async-signal-safe calls only. */
static void on_crash(int sig)
{
        struct cg_io *io = crash_io;

        signal(sig, SIG_DFL);
        cg_crash_show();
        if (!cg_io_forked(io) && !pthread_equal(pthread_self(), io->thread) && !io->crash.waits) {
                struct pollfd p = { .fd = io->crash.fd, .events = POLLIN };

                io->crash.waits = 1;
                eventfd_write(io->wake_fd, 1);
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
        cg_io_read_captures_locked(io);
        io->exit.on = true;
        io->exit.status = status;
        io->exit.at_ms = cg_now_ms() + EXIT_MS;
        cg_io_flush_locked(io);
        cg_io_wake_locked(io);
        pthread_mutex_unlock(&io->lock);
        for (;;)
                pause();
}
