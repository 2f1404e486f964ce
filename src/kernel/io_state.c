/* State that all parts of the kernel's input and output share: events, queue, current cell. */
#include "kernel/io_int.h"

void cg_io_event_clear(int fd)
{
        uint64_t n;

        eventfd_read(fd, &n);
}

void cg_io_wake_locked(struct cg_io *io)
{
        if (io->woken)
                return;
        io->woken = true;
        eventfd_write(io->wake_fd, 1);
}

void cg_io_end_wait_locked(struct cg_wait *w)
{
        w->done = true;
        eventfd_write(w->fd, 1);
}

void cg_io_end_waits_locked(struct cg_io *io, enum wait_kind kind)
{
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == kind && !w->done)
                        cg_io_end_wait_locked(w);
}

bool cg_io_full_locked(const struct cg_io *io)
{
        return io->out.bytes >= CG_IO_QUEUE_BYTES;
}

int cg_io_check_size(const struct cg_out *m, struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER];

        return cg_out_header(&cg_wire_kernel, m, header, err);
}

int cg_io_add_locked(struct cg_io *io, const struct cg_out *m, uint64_t cell, struct cg_buf *raw,
                     struct cg_err *err)
{
        struct cg_out copy = *m;

        copy.id = cell;
        return cg_outq_add(&io->out, &copy, raw, err);
}

void cg_io_flush_locked(struct cg_io *io)
{
        if (!io->out.head)
                return;
        io->out.flush = true;
        cg_io_wake_locked(io);
}

uint64_t cg_io_running_locked(const struct cg_io *io)
{
        uint64_t cell = io->numbers.named_cell ?: io->shells[MAIN].cell;

        for (size_t i = FIRST_SUBSHELL; !cell && i < CG_IO_MAX_SHELLS; i++)
                cell = io->shells[i].cell;
        return cell ?: io->numbers.last_cell;
}

uint64_t cg_io_resolve_locked(const struct cg_io *io, uint64_t cell)
{
        return cell == CG_IO_RUNNING ? cg_io_running_locked(io) : cell;
}
