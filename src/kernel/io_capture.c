/* The pipes at descriptors 1 and 2: what C code and subprocesses write. Any thread. See io.h. */
#include "kernel/io_int.h"

#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>

/* Text is held back this long: many prints become one message, and a person sees it at once. */
#define COALESCE_MS 10
/* A write() to a pipe, together with the return to Python, takes longer than this. */
#define SYSCALL_NS 300

int cg_io_make_capture(struct cg_io *io, struct capture *c, unsigned flags, struct cg_err *err)
{
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        c->read_end = fds[0];
        c->write_end = fds[1];
        c->flags = flags;
        /* refused above the user's limit; the pipe then keeps its 64 KiB */
        fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ||
            epoll_ctl(io->capture_epoll, EPOLL_CTL_ADD, fds[0], &ev) < 0)
                return cg_fail_errno(err, "captured descriptor");
        return 0;
}

size_t cg_io_read_capture_locked(struct cg_io *io, struct capture *c, size_t max)
{
        size_t total = 0;

        while (total < max) {
                char buf[16384];
                size_t want = CG_MIN(max - total, sizeof(buf));
                ssize_t n = read(c->read_end, buf, want);

                if (n <= 0)
                        break;
                total += (size_t)n;
                cg_error_lines_add(&io->error_lines, (c->flags & CG_FLAG_STDERR) != 0, buf, (size_t)n);
                cg_outq_bytes(&io->out, &c->utf8, c->flags, cg_io_running_locked(io), buf, (size_t)n,
                              cg_now_ms() + COALESCE_MS, NULL);
                if ((size_t)n < want)
                        break;
        }
        return total;
}

void cg_io_read_captures_locked(struct cg_io *io)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(io->capture); i++)
                cg_io_read_capture_locked(io, &io->capture[i], PIPE_BYTES);
}

/*
 * A print() is two writes. If the previous check was less than one system call ago, nothing else
 * can have been written since.
 */
int64_t cg_io_catch_up(struct cg_io *io)
{
        struct epoll_event ev[2];
        struct timespec t;
        int64_t now, before;
        int n;

        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
        before = atomic_exchange_explicit(&io->caught_up_ns, now, memory_order_relaxed);
        if (now - before < SYSCALL_NS)
                return now / 1000000 + COALESCE_MS;
        n = epoll_wait(io->capture_epoll, ev, 2, 0); /* half the time of poll() or read() */
        if (n > 0) {
                pthread_mutex_lock(&io->lock);
                for (int i = 0; i < n && !cg_io_full_locked(io); i++)
                        cg_io_read_capture_locked(io, ev[i].data.ptr, PIPE_BYTES);
                pthread_mutex_unlock(&io->lock);
        }
        return now / 1000000 + COALESCE_MS;
}
