/*
 * What the kernel says, until it is written: the captured descriptors, the queue, replies. Any
 * thread runs it. See io.h.
 */
#include "kernel/io_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "base/util.h"

/*
 * Text waits so long for more text of its kind: many prints become one message, and a person still
 * sees it at once.
 */
#define COALESCE_MS 10
/* A write() to a pipe, and the way to it from Python, take longer than this on any machine. */
#define SYSCALL_NS 300
/* So many bytes of small messages are put together for one write. */
#define WRITE_BYTES ((size_t)64 << 10)

/* ------------------------------------------------------------------ captured descriptors */

/* Takes what the pipe holds now, as much as fits @max. Returns the bytes taken. */
size_t read_capture_locked(struct cg_io *io, struct capture *c, size_t max)
{
        size_t total = 0;

        while (total < max) {
                char buf[16384];
                size_t want = max - total < sizeof(buf) ? max - total : sizeof(buf);
                ssize_t n = read(c->read_end, buf, want);

                if (n <= 0)
                        break;
                total += (size_t)n;
                cg_outq_bytes(&io->out, &c->utf8, c->flags, running_locked(io), buf, (size_t)n,
                              cg_now_ms() + COALESCE_MS, NULL);
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
 * What C code and subprocesses wrote before now stands before what Python writes next. A print() is
 * two writes: within the time that no system call fits into, nothing else can have been written.
 */
int64_t catch_up(struct cg_io *io)
{
        struct epoll_event ev[2];
        int64_t now = now_ns(),
                before = atomic_exchange_explicit(&io->caught_up_ns, now, memory_order_relaxed);
        int n;

        if (now - before < SYSCALL_NS)
                return now / 1000000 + COALESCE_MS;
        n = epoll_wait(io->capture_epoll, ev, 2, 0); /* half the time of poll() or read() */
        if (n > 0) {
                pthread_mutex_lock(&io->lock);
                for (int i = 0; i < n && !full_locked(io); i++)
                        read_capture_locked(io, ev[i].data.ptr, PIPE_BYTES);
                pthread_mutex_unlock(&io->lock);
        }
        return now / 1000000 + COALESCE_MS;
}

int make_capture(struct cg_io *io, struct capture *c, unsigned flags, struct cg_err *err)
{
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        c->read_end = fds[0];
        c->write_end = fds[1];
        c->flags = flags;
        /* refused over the user's limit: then it stays at 64 KiB */
        fcntl(fds[1], F_SETPIPE_SZ, PIPE_BYTES);
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ||
            epoll_ctl(io->capture_epoll, EPOLL_CTL_ADD, fds[0], &ev) < 0)
                return cg_fail_errno(err, "captured descriptor");
        return 0;
}

/* ------------------------------------------------------------------ output */

/*
 * By this thread, so that nobody has to be woken for it; what the socket has no room for is left to
 * the I/O thread.
 */
static void send_now(struct cg_io *io)
{
        bool sent = pthread_mutex_trylock(&io->out_lock) == 0;

        if (sent) {
                send_output(io);
                pthread_mutex_unlock(&io->out_lock);
        }
        pthread_mutex_lock(&io->lock);
        /* text that may grow has its timer */
        if (!sent || io->blocked || io->out.flush || io->exiting)
                wake_locked(io);
        pthread_mutex_unlock(&io->lock);
}

int cg_io_write(struct cg_io *io, uint64_t cell, unsigned flags, const char *text, size_t len,
                struct cg_err *err)
{
        const struct cg_outq_item *tail;
        int64_t due_ms = catch_up(io);
        int r = CG_TIMEOUT;
        bool whole = false;

        pthread_mutex_lock(&io->lock);
        if (!full_locked(io)) {
                tail = io->out.tail;
                r = cg_outq_text(&io->out, flags, resolve_locked(io, cell), text, len, due_ms, err);
                if (!tail)
                        wake_locked(io); /* text that has to go out in some milliseconds */
                whole = io->out.head != io->out.tail && !io->blocked;
        }
        pthread_mutex_unlock(&io->lock);
        if (whole)
                send_now(io);
        return r;
}

int cg_io_write_bytes(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len,
                      struct cg_err *err)
{
        struct cg_utf8_state *st = &io->buffer[flags & CG_FLAG_STDERR ? 1 : 0].utf8;
        const struct cg_outq_item *tail;
        int64_t due_ms = catch_up(io);
        int r = CG_TIMEOUT;
        bool whole = false;

        pthread_mutex_lock(&io->lock);
        if (!full_locked(io)) {
                tail = io->out.tail;
                r = cg_outq_bytes(&io->out, st, flags, resolve_locked(io, cell), data, len, due_ms, err);
                if (!tail)
                        wake_locked(io); /* text that has to go out in some milliseconds */
                whole = io->out.head != io->out.tail && !io->blocked;
        }
        pthread_mutex_unlock(&io->lock);
        if (whole)
                send_now(io);
        return r;
}

int add_locked(struct cg_io *io, const struct cg_out *m, uint64_t cell, struct cg_buf *raw,
               struct cg_err *err)
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
        catch_up(io);
        pthread_mutex_lock(&io->lock);
        if (full_locked(io)) {
                r = CG_TIMEOUT;
        } else {
                r = add_locked(io, m, resolve_locked(io, m->id), raw, err);
                /* the reply follows at once, and one wake-up does for both */
                if (m->type != CG_KERNEL_EXECUTE_RESULT)
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

void flush_locked(struct cg_io *io)
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

/*
 * Not fflush(NULL): it waits for streams that another thread holds, a getchar() that never returns
 * among them.
 */
static void flush_stdio(FILE *f)
{
        if (ftrylockfile(f))
                return;
        fflush_unlocked(f);
        funlockfile(f);
}

/*
 * Everything that is in the pipes now. Not what comes later: a process in the background may print
 * for ever.
 */
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
        if (r == 0) {
                end_questions_locked(io, sh->cell);
                if (reply->type == CG_KERNEL_EXECUTE_REPLY)
                        io->last_cell = sh->cell;
                sh->cell = 0;
        }
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

/* ------------------------------------------------------------------ messages that leave */

static void release_item(void *owner)
{
        cg_outq_item_free(owner);
}

static void put_item(struct cg_zconn *c, struct cg_outq_item *it)
{
        struct cg_out out = { .type = it->type,
                              .flags = it->flags,
                              .id = it->cell,
                              .body = it->body,
                              .body_len = it->body_len,
                              .raw = it->data,
                              .raw_len = it->len,
                              .has_raw = it->has_raw,
                              .more = it->more,
                              .n_more = it->n_more };

        if (cg_zconn_put(c, &out, release_item, it, NULL) != 0)
                _exit(EXIT_PROTOCOL);
}

/*
 * Takes from the queue what goes into one write. Returns when text must be looked at again, or -1.
 */
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
int64_t send_output(struct cg_io *io)
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
bool send_calls(struct cg_io *io)
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
                if (t && t->type == CG_TOOL_CALL)
                        io->sent_call = t->id;
                pthread_mutex_unlock(&io->lock);
                if (!t)
                        break;
                out = (struct cg_out){ .type = t->type,
                                       .id = t->id,
                                       .body = t->body,
                                       .body_len = t->body_len,
                                       .raw = t->args,
                                       .raw_len = t->args_len,
                                       .has_raw = t->args != NULL };
                if (cg_zconn_put(c, &out, NULL, NULL, NULL) != 0)
                        _exit(EXIT_PROTOCOL);
                tool_out_free(t);
                cg_zconn_flush(c);
        }
        return cg_zconn_wants_out(c);
}
