/* Waits for room in the queue, for input and for results of tool calls. See io.h. */
#include "kernel/io_int.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/util.h"

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
                cg_io_event_clear(w->fd);
        pthread_mutex_lock(&w->io->lock);
        done = w->done;
        pthread_mutex_unlock(&w->io->lock);
        return done ? 0 : CG_TIMEOUT;
}

static int push_tool_locked(struct cg_io *io, uint16_t type, uint64_t id, const char *body, size_t body_len,
                            const void *args, size_t args_len, struct cg_err *err)
{
        struct tool_out *t = malloc(sizeof(*t) + body_len + args_len);

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "tool call");
        *t = (struct tool_out){ .type = type, .id = id, .body_len = body_len, .args_len = args_len };
        memcpy(t->bytes, body, body_len);
        if (args_len)
                memcpy(t->bytes + body_len, args, args_len);
        if (io->tool_tail)
                io->tool_tail->next = t;
        else
                io->tool_head = t;
        io->tool_tail = t;
        cg_io_wake_locked(io);
        return 0;
}

/* INPUT_REQUEST and INPUT_CANCEL. */
static int add_question_locked(struct cg_io *io, struct cg_out *m, uint64_t cell, uint64_t question,
                               struct cg_err *err)
{
        char body[64];
        int r;

        m->body = body;
        m->body_len = (size_t)snprintf(body, sizeof(body), "{\"question\":%" PRIu64 "}", question);
        r = cg_io_add_locked(io, m, cell, NULL, err);
        if (r == 0)
                cg_io_flush_locked(io);
        return r;
}

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
        if (w->kind == WAIT_CALL && !w->done) /* its result still arrives, and ends the call */
                push_tool_locked(w->io, CG_TOOL_CALL_CANCEL, w->call, "", 0, NULL, 0, NULL);
        if (w->question && !w->done) {
                struct cg_out m = { .type = CG_KERNEL_INPUT_CANCEL };

                /* if it cannot be sent, the next question replaces this one */
                add_question_locked(w->io, &m, w->cell, w->question, NULL);
                cg_io_end_waits_locked(w->io, WAIT_TURN);
        }
        pthread_mutex_unlock(&w->io->lock);
        cg_frame_unref(w->raw);
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
        if (!cg_io_full_locked(io))
                cg_io_end_waits_locked(io, WAIT_ROOM);
        else
                cg_io_wake_locked(io);
        pthread_mutex_unlock(&io->lock);
        return w;
}

static int add_wait_locked(struct cg_io *io, uint64_t cell, struct cg_err *err)
{
        struct cg_out m = { .type = CG_KERNEL_INPUT_WAIT };
        int r = cg_io_add_locked(io, &m, cell, NULL, err);

        if (r == 0)
                cg_io_flush_locked(io);
        return r;
}

void cg_io_goes_on(struct cg_io *io, uint64_t cell)
{
        const struct cg_shell *sh;

        pthread_mutex_lock(&io->lock);
        sh = cg_io_find_asking_locked(io, cell);
        if (sh)
                add_wait_locked(io, sh->cell, NULL);
        pthread_mutex_unlock(&io->lock);
}

int cg_io_input(struct cg_io *io, uint64_t cell, const char *content, size_t len, struct cg_wait **ret,
                struct cg_err *err)
{
        struct cg_shell *sh;
        struct cg_out m = {
                .type = CG_KERNEL_INPUT_REQUEST, .raw = content, .raw_len = len, .has_raw = true
        };
        const struct cg_wait *open;
        struct cg_wait *w;
        int r;

        if (len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "prompt of %zu bytes", len);
        w = wait_new(io, WAIT_INPUT, err);
        if (!w)
                return err ? err->code : CG_E_SYS;
        cg_io_catch_up(io);
        pthread_mutex_lock(&io->lock);
        sh = cg_io_find_asking_locked(io, cell);
        open = io->waits;
        while (open && !(open->kind == WAIT_INPUT && !open->done))
                open = open->next;
        w->cell = sh ? sh->cell : 0;
        if (!sh) {
                r = cg_fail(err, CG_E_STATE, "this cell may not ask for input");
        } else if (open) {
                /*
                 * One question at a time, from whichever thread: the user could not tell them
                 * apart. Other threads wait in cg_wait_once(), where an interrupt reaches them.
                 */
                r = add_wait_locked(io, w->cell, err);
                if (r == 0) {
                        w->kind = WAIT_TURN;
                        r = CG_TIMEOUT;
                }
        } else {
                r = add_question_locked(io, &m, w->cell, io->last_question + 1, err);
                if (r == 0)
                        w->question = ++io->last_question;
        }
        if (r >= 0)
                register_locked(w);
        pthread_mutex_unlock(&io->lock);
        if (r < 0)
                cg_wait_free(w);
        else
                *ret = w;
        return r;
}

void cg_io_end_questions_locked(struct cg_io *io, uint64_t cell)
{
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == WAIT_INPUT && !w->done && w->cell == cell) {
                        w->eof = w->done = true;
                        cg_io_event_set(w->fd);
                        cg_io_end_waits_locked(io, WAIT_TURN);
                }
}

const char *cg_wait_text(const struct cg_wait *w, size_t *len)
{
        struct cg_bytes text = cg_frame_bytes(w->raw);

        *len = 0;
        if (w->eof || !w->has_raw)
                return NULL;
        *len = text.len;
        return text.data;
}

int cg_io_call(struct cg_io *io, const char *body, size_t body_len, const void *args, size_t len,
               struct cg_wait **ret, struct cg_err *err)
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
                w->call = ++io->last_call;
                r = push_tool_locked(io, CG_TOOL_CALL, w->call, body, body_len, args, len, err);
                io->calls += r == 0;
                /* Output of the cell is sent before the question about the call. */
                cg_io_read_captures_locked(io);
                cg_io_flush_locked(io);
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
        struct cg_bytes content = cg_frame_bytes(w->raw);

        *data = content.data;
        *len = content.len;
        return w->status;
}
