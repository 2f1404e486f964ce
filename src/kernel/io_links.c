/* The connections: sending, and reading by any thread. See io_int.h. */
#include "kernel/io_int.h"

#include <sys/epoll.h>

/* Small messages are combined into writes of this size. */
#define WRITE_BYTES ((size_t)64 << 10)
/* Messages and reads of one connection before others are served. */
#define BURST 32

/* ------------------------------------------------------------------ sending */

static void release_item(void *owner)
{
        cg_outq_item_free(owner);
}

/*
 * Dequeues messages for one write, when the former are written. Returns when to check held back
 * text again, or -1.
 */
static int64_t take_output(struct cg_io *io)
{
        int64_t due = -1;
        CG_HOLD(&io->lock);

        io->sent = io->out.removed; /* the connection has written all of them */
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == WAIT_SENT && !w->done && w->mark <= io->sent)
                        cg_io_end_wait_locked(w);
        while (io->kernel.conn.queued < WRITE_BYTES) {
                struct cg_outq_item *it = cg_outq_pop(&io->out, cg_now_ms(), &due);
                struct cg_out out;

                if (!it)
                        break;
                out = (struct cg_out){ .type = it->type,
                                       .flags = it->flags,
                                       .id = it->cell,
                                       .body = it->body,
                                       .body_len = it->body_len,
                                       .raw = it->data,
                                       .raw_len = it->len,
                                       .has_raw = it->has_raw,
                                       .more = it->more,
                                       .n_more = it->n_more };
                if (cg_zconn_put(&io->kernel.conn, &out, release_item, it, NULL) != 0)
                        _exit(EXIT_PROTOCOL);
        }
        if (io->out.bytes < CG_IO_QUEUE_BYTES / 2)
                cg_io_end_waits_locked(io, WAIT_ROOM);
        return due;
}

int64_t cg_io_send_output(struct cg_io *io)
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
        CG_HOLD(&io->lock);
        io->blocked = cg_zconn_wants_out(c);
        return due;
}

/* The next message of a connection for calls (caller: free()); a CALL only below CG_MAX_CALLS. */
static struct tool_out *next_call_message_locked(struct link *l)
{
        struct tool_out *t = STAILQ_FIRST(&l->out);
        struct cg_tool_call *c = TAILQ_FIRST(&l->queued);

        if (t) {
                STAILQ_REMOVE_HEAD(&l->out, entry);
                return t;
        }
        if (!c || l->io->n_sent >= CG_MAX_CALLS)
                return NULL;
        TAILQ_REMOVE(&l->queued, c, entry);
        TAILQ_INSERT_HEAD(&l->sent, c, entry);
        l->io->n_sent++;
        return CG_STEAL(c->message);
}

bool cg_io_send_calls(struct link *l)
{
        struct cg_zconn *c = &l->conn;

        cg_zconn_flush(c);
        while (c->open && !c->deaf && !c->first) {
                struct tool_out *t;
                struct cg_out out;

                pthread_mutex_lock(&l->io->lock);
                t = next_call_message_locked(l);
                pthread_mutex_unlock(&l->io->lock);
                if (!t)
                        break;
                out = (struct cg_out){ .type = t->type,
                                       .id = t->id,
                                       .body = t->bytes,
                                       .body_len = t->body_len,
                                       .raw = t->bytes + t->body_len,
                                       .raw_len = t->args_len,
                                       .has_raw = t->type == CG_TOOL_CALL };
                if (cg_zconn_put(c, &out, free, t, NULL) != 0)
                        _exit(EXIT_PROTOCOL);
                cg_zconn_flush(c);
        }
        return cg_zconn_wants_out(c);
}

void cg_io_send_now(struct cg_io *io)
{
        bool sent = pthread_mutex_trylock(&io->out_lock) == 0, calls_wait = false;

        if (sent) {
                cg_io_send_output(io);
                for (size_t i = 0; i < CALL_LINKS; i++)
                        calls_wait |= cg_io_send_calls(&io->calls[i]);
                pthread_mutex_unlock(&io->out_lock);
        }
        pthread_mutex_lock(&io->lock);
        /* text that may grow has its timer */
        if (!sent || calls_wait || io->blocked || io->out.flush || io->exit.on)
                cg_io_wake_locked(io);
        pthread_mutex_unlock(&io->lock);
}

/* ------------------------------------------------------------------ reading */

void cg_io_read_link(struct link *l)
{
        do
                cg_zconn_read(&l->conn, BURST, true);
        while (l->conn.again && !l->lost);
        if (l->conn.open)
                return;
        pthread_mutex_lock(&l->io->out_lock);
        cg_zconn_opened(&l->conn);
        pthread_mutex_unlock(&l->io->out_lock);
        pthread_mutex_lock(&l->io->lock);
        cg_io_wake_locked(l->io); /* it sends what has waited for the connection */
        pthread_mutex_unlock(&l->io->lock);
}

int cg_io_take_link(struct link *l)
{
        int fd;
        CG_HOLD(&l->io->lock);

        fd = l->fd;
        l->fd = -1;
        if (fd >= 0)
                epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
        return fd;
}

void cg_io_give_link(struct link *l, int fd)
{
        struct epoll_event ev = { .events = EPOLLIN };
        CG_HOLD(&l->io->lock);

        l->fd = fd;
        if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
                _exit(EXIT_PROTOCOL);
}
