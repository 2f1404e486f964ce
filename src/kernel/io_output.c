/* Output and replies: what is queued, and in which order. Any thread. See io.h. */
#include "kernel/io_int.h"

#include <sys/epoll.h>

/* @st: state of a stream of bytes; NULL: @text is valid UTF-8. */
static int write_stream(struct cg_io *io, struct cg_utf8_state *st, uint64_t cell, unsigned flags,
                        const char *text, size_t len, struct cg_err *err)
{
        int64_t due_ms = cg_io_catch_up(io);
        int r = CG_TIMEOUT;
        bool whole = false;

        pthread_mutex_lock(&io->lock);
        if (!cg_io_full_locked(io)) {
                const struct cg_outq_item *tail = io->out.tail;

                cell = cg_io_resolve_locked(io, cell);
                cg_error_lines_add(&io->error_lines, (flags & CG_FLAG_STDERR) != 0, text, len);
                r = st ? cg_outq_bytes(&io->out, st, flags, cell, text, len, due_ms, err)
                       : cg_outq_text(&io->out, flags, cell, text, len, due_ms, err);
                if (!tail)
                        cg_io_wake_locked(io); /* it has to send this text when @due_ms has passed */
                whole = io->out.head != io->out.tail && !io->blocked;
        }
        pthread_mutex_unlock(&io->lock);
        if (whole)
                cg_io_send_now(io);
        return r;
}

int cg_io_write(struct cg_io *io, uint64_t cell, unsigned flags, const char *text, size_t len,
                struct cg_err *err)
{
        return write_stream(io, NULL, cell, flags, text, len, err);
}

int cg_io_write_bytes(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len,
                      struct cg_err *err)
{
        return write_stream(io, &io->buffer_utf8[(flags & CG_FLAG_STDERR) != 0], cell, flags, data, len, err);
}

int cg_io_publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *raw, struct cg_err *err)
{
        int r = cg_io_check_size(m, err);

        if (r < 0)
                return r;
        cg_io_catch_up(io);
        CG_HOLD(&io->lock);
        if (cg_io_full_locked(io)) {
                r = CG_TIMEOUT;
        } else {
                r = cg_io_add_locked(io, m, cg_io_resolve_locked(io, m->id), raw, err);
                /* the reply follows immediately and wakes the thread for both */
                if (m->type != CG_KERNEL_EXECUTE_RESULT)
                        cg_io_wake_locked(io);
        }
        return r;
}

size_t cg_io_error_lines(struct cg_io *io, char lines[CG_ERROR_LINES_MAX])
{
        size_t len;

        cg_io_catch_up(io);
        CG_HOLD(&io->lock);
        len = io->error_lines.len;
        memcpy(lines, io->error_lines.lines, len);
        io->error_lines.len = 0;
        return len;
}

int cg_io_ready(struct cg_io *io, const char *body, size_t len, struct cg_err *err)
{
        struct cg_out m = { .type = CG_KERNEL_KERNEL_READY, .body = body, .body_len = len };
        int r;
        CG_HOLD(&io->lock);

        r = cg_outq_add(&io->out, &m, NULL, err);
        cg_io_wake_locked(io);
        return r;
}

bool cg_io_flush(struct cg_io *io, uint64_t *mark)
{
        bool sent;

        cg_io_catch_up(io);
        pthread_mutex_lock(&io->lock);
        *mark = io->out.added;
        sent = io->sent >= *mark;
        io->out.flush = io->out.head != NULL;
        pthread_mutex_unlock(&io->lock);
        if (sent)
                return true;
        cg_io_send_now(io);
        pthread_mutex_lock(&io->lock);
        sent = io->sent >= *mark;
        pthread_mutex_unlock(&io->lock);
        return sent;
}

/* Not fflush(NULL): it waits for streams locked by another thread, as in a getchar(). */
static void flush_stdio(FILE *f)
{
        if (ftrylockfile(f))
                return;
        fflush_unlocked(f);
        funlockfile(f);
}

/* Queues what is in the pipes now, not later output: a background process may print for ever. */
static void drain(struct cg_io *io)
{
        size_t left[2] = { PIPE_BYTES, PIPE_BYTES };
        struct epoll_event ev[2];

        if (epoll_wait(io->capture_epoll, ev, 2, 0) == 0) /* takes less time than two reads */
                return;
        while (left[0] || left[1]) {
                struct cg_wait *w = NULL;

                pthread_mutex_lock(&io->lock);
                for (int i = 0; i < 2 && !cg_io_full_locked(io); i++) {
                        size_t want = CG_MIN(left[i], 65536);
                        size_t n = cg_io_read_capture_locked(io, &io->capture[i], want);

                        left[i] = n < want ? 0 : left[i] - n;
                }
                if (cg_io_full_locked(io))
                        cg_io_wake_locked(io);
                pthread_mutex_unlock(&io->lock);
                if (left[0] || left[1])
                        w = cg_io_wait_room(io, NULL);
                while (w && cg_wait_once(w) == CG_TIMEOUT)
                        ;
                cg_wait_free(w);
        }
}

int cg_io_reply(struct cg_shell *sh, const struct cg_out *reply, struct cg_err *err)
{
        struct cg_io *io = sh->io;
        uint64_t cell;
        int r = cg_io_check_size(reply, err);

        if (r < 0)
                return r;
        flush_stdio(stdout);
        flush_stdio(stderr);
        drain(io);
        pthread_mutex_lock(&io->lock);
        cell = cg_io_running_locked(io);
        for (int i = 0; i < 2; i++) { /* incomplete UTF-8 sequences */
                unsigned flags = io->capture[i].flags;

                cg_outq_bytes_end(&io->out, &io->capture[i].utf8, flags, cell, 0, NULL);
                cg_outq_bytes_end(&io->out, &io->buffer_utf8[i], flags, cell, 0, NULL);
        }
        r = cg_outq_add(&io->out, reply, NULL, err);
        if (r == 0) {
                cg_io_end_questions_locked(io, sh->cell);
                if (reply->type == CG_KERNEL_EXECUTE_REPLY)
                        io->numbers.last_cell = sh->cell;
                sh->cell = 0;
        }
        io->out.flush = io->out.head != NULL;
        pthread_mutex_unlock(&io->lock);
        cg_io_send_now(io);
        return r;
}

int cg_io_answer(struct cg_io *io, const struct cg_out *reply, struct cg_err *err)
{
        int r = cg_io_check_size(reply, err);

        if (r < 0)
                return r;
        CG_HOLD(&io->lock);
        r = cg_outq_add(&io->out, reply, NULL, err);
        cg_io_flush_locked(io);
        return r;
}
