/* Waits for room in the queue, for input and for results of tool calls. See io.h. */
#include "kernel/io_int.h"

#include <poll.h>

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
        w->link_fd = -1;
        pthread_mutex_lock(&io->lock);
        w->fd = io->spare_fd;
        io->spare_fd = -1;
        pthread_mutex_unlock(&io->lock);
        if (w->fd < 0)
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
        struct pollfd p[] = { { .fd = w->fd, .events = POLLIN }, { .fd = w->link_fd, .events = POLLIN } };
        bool done;

        w->link_fd = -1;
        if (w->link && p[1].fd < 0)
                p[1].fd = cg_io_take_link(w->link);
        if (p[1].fd >= 0)
                w->reading = true;
        if (poll(p, CG_ARRAY_LEN(p), -1) > 0) {
                if (p[1].revents)
                        cg_io_read_link(w->link);
                if (p[0].revents)
                        cg_io_event_clear(w->fd);
        }
        if (p[1].fd >= 0) {
                w->reading = false;
                cg_io_give_link(w->link, p[1].fd);
        }
        CG_HOLD(&w->io->lock);
        done = w->done;
        return done ? 0 : CG_TIMEOUT;
}

static struct tool_out *tool_out_new(uint16_t type, uint64_t id, struct cg_bytes body, struct cg_bytes args)
{
        struct tool_out *t = malloc(sizeof(*t) + body.len + args.len);

        if (!t)
                return NULL;
        *t = (struct tool_out){ .type = type, .id = id, .body_len = body.len, .args_len = args.len };
        if (body.len)
                memcpy(t->bytes, body.data, body.len);
        if (args.len)
                memcpy(t->bytes + body.len, args.data, args.len);
        return t;
}

static void push_locked(struct link *l, struct tool_out *t)
{
        STAILQ_INSERT_TAIL(&l->out, t, entry);
        cg_io_wake_locked(l->io);
}

static int add_and_flush_locked(struct cg_io *io, struct cg_out *m, uint64_t cell, struct cg_err *err)
{
        int r = cg_io_add_locked(io, m, cell, NULL, err);

        if (r < 0)
                return r;
        cg_io_flush_locked(io);
        return 0;
}

/* INPUT_REQUEST and INPUT_CANCEL. */
static int add_question_locked(struct cg_io *io, struct cg_out *m, uint64_t cell, uint64_t question,
                               struct cg_err *err)
{
        char body[64];

        m->body = body;
        m->body_len = (size_t)snprintf(body, sizeof(body), "{\"question\":%" PRIu64 "}", question);
        return add_and_flush_locked(io, m, cell, err);
}

struct cg_tool_call *cg_tool_call_free(struct cg_tool_call *c)
{
        if (!c)
                return NULL;
        free(c->message);
        cg_frame_unref(c->result.content);
        free(c);
        return NULL;
}

static void free_result_locked(struct cg_io *io, uint64_t result)
{
        struct tool_out *t = tool_out_new(CG_TOOL_RESULT_FREE, result, (struct cg_bytes){ NULL, 0 },
                                          (struct cg_bytes){ NULL, 0 });

        if (t) /* else it stays until the kernel ends */
                push_locked(&io->calls[TOOLS], t);
}

/* Nobody gets the result of this call. */
static void drop_result_locked(struct cg_io *io, uint64_t call, const char *kind)
{
        if (strcmp(kind, "kept") == 0)
                free_result_locked(io, call);
}

/*
 * Has the peer cancel a sent call. It ends the call when it reads CALL_CANCEL, before it reads a
 * later CALL, so its place is free at once. The other peer counts its own calls.
 */
static bool cancel_sent_locked(struct link *l, const struct cg_tool_call *c)
{
        struct tool_out *t;

        if (c->read)
                return true;
        t = tool_out_new(CG_TOOL_CALL_CANCEL, c->id, (struct cg_bytes){ NULL, 0 },
                         (struct cg_bytes){ NULL, 0 });
        if (!t)
                return false;
        push_locked(l, t);
        l->io->n_sent--;
        return true;
}

/*
 * Cancels those calls of @w in @list that have this key, or any when it is 0. @sent: the connection
 * on which they were sent; else NULL.
 */
static void cancel_in_locked(struct call_list *list, struct link *sent, struct cg_wait *w, uint64_t key)
{
        struct cg_tool_call *c, *next;

        for (c = TAILQ_FIRST(list); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->wait != w || (key && c->key != key))
                        continue;
                if (sent && !cancel_sent_locked(sent, c)) {
                        c->wait = NULL;
                        continue;
                }
                TAILQ_REMOVE(list, c, entry);
                drop_result_locked(w->io, c->id, c->result.kind);
                cg_tool_call_free(c);
        }
}

/* Cancels call @key of @w, or all when it is 0. */
static void cancel_locked(struct cg_wait *w, uint64_t key)
{
        cancel_in_locked(&w->finished, NULL, w, key);
        for (struct link *l = w->io->calls; l < w->io->calls + CALL_LINKS; l++) {
                cancel_in_locked(&l->queued, NULL, w, key);
                cancel_in_locked(&l->sent, l, w, key);
        }
}

struct cg_wait *cg_wait_free(struct cg_wait *w)
{
        if (!w)
                return NULL;
        if (w->link_fd >= 0)
                cg_io_give_link(w->link, w->link_fd);
        pthread_mutex_lock(&w->io->lock);
        CG_UNLINK(w->io->waits, w, next);
        if (w->kind == WAIT_CALL)
                cancel_locked(w, 0);
        if (w->question && !w->done) {
                struct cg_out m = { .type = CG_KERNEL_INPUT_CANCEL };

                /* if it cannot be sent, the next question replaces this one */
                add_question_locked(w->io, &m, w->cell, w->question, NULL);
                cg_io_end_waits_locked(w->io, WAIT_TURN);
        }
        if (w->io->spare_fd < 0)
                w->io->spare_fd = cg_steal_fd(&w->fd);
        pthread_mutex_unlock(&w->io->lock);
        cg_frame_unref(w->raw);
        cg_closep_(&w->fd);
        free(w);
        return NULL;
}

struct cg_wait *cg_io_wait_room(struct cg_io *io, struct cg_err *err)
{
        struct cg_wait *w = wait_new(io, WAIT_ROOM, err);

        if (!w)
                return NULL;
        CG_HOLD(&io->lock);
        register_locked(w);
        if (!cg_io_full_locked(io))
                cg_io_end_waits_locked(io, WAIT_ROOM);
        else
                cg_io_wake_locked(io);
        return w;
}

struct cg_wait *cg_io_wait_sent(struct cg_io *io, uint64_t mark, struct cg_err *err)
{
        struct cg_wait *w = wait_new(io, WAIT_SENT, err);

        if (!w)
                return NULL;
        w->mark = mark;
        CG_HOLD(&io->lock);
        register_locked(w);
        if (io->sent >= mark)
                cg_io_end_wait_locked(w);
        return w;
}

static int add_wait_locked(struct cg_io *io, uint64_t cell, struct cg_err *err)
{
        struct cg_out m = { .type = CG_KERNEL_INPUT_WAIT };

        return add_and_flush_locked(io, &m, cell, err);
}

void cg_io_goes_on(struct cg_io *io, uint64_t cell)
{
        const struct cg_shell *sh;
        CG_HOLD(&io->lock);

        sh = cg_io_find_asking_locked(io, cell);
        if (sh)
                add_wait_locked(io, sh->cell, NULL);
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
                r = add_question_locked(io, &m, w->cell, io->numbers.last_question + 1, err);
                if (r == 0)
                        w->question = ++io->numbers.last_question;
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
                        w->eof = true;
                        cg_io_end_wait_locked(w);
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

struct cg_wait *cg_io_calls(struct cg_io *io, bool blocking, struct cg_err *err)
{
        struct cg_wait *w = wait_new(io, WAIT_CALL, err);

        if (!w)
                return NULL;
        TAILQ_INIT(&w->finished);
        w->blocking = blocking;
        if (blocking) { /* for interrupts of the waiting thread */
                pthread_mutex_lock(&io->lock);
                register_locked(w);
                pthread_mutex_unlock(&io->lock);
        }
        return w;
}

int cg_calls_fd(const struct cg_wait *w)
{
        return w->fd;
}

int cg_io_call(struct cg_wait *w, bool function, uint64_t key, struct cg_bytes body, struct cg_bytes args,
               struct cg_err *err)
{
        struct cg_io *io = w->io;
        struct link *l = &io->calls[function ? FUNCTIONS : TOOLS];
        struct cg_tool_call *c;

        if (body.len > 4096)
                return cg_fail(err, CG_E_LIMIT, "names of server and tool are too long");
        if (args.len > CG_MAX_TOOL_ARGS)
                return cg_fail(err, CG_E_LIMIT, "arguments of %zu bytes are over the limit of %u", args.len,
                               CG_MAX_TOOL_ARGS);
        c = calloc(1, sizeof(*c));
        if (c)
                c->message = tool_out_new(CG_TOOL_CALL, 0, body, args);
        if (!c || !c->message) {
                free(c);
                return cg_fail(err, CG_E_NOMEM, "tool call");
        }
        c->wait = w;
        c->key = key;
        w->link = l;
        pthread_mutex_lock(&io->lock);
        c->id = c->message->id = ++io->numbers.last_call;
        TAILQ_INSERT_TAIL(&l->queued, c, entry);
        pthread_mutex_unlock(&io->lock);
        if (w->blocking) /* before the call is sent: its result may come at once */
                w->link_fd = cg_io_take_link(l);
        cg_io_send_now(io);
        return 0;
}

int cg_io_read_result(struct cg_wait *w, uint64_t result, uint64_t offset, size_t length, struct cg_err *err)
{
        struct cg_io *io = w->io;
        struct link *l = &io->calls[TOOLS];
        struct cg_tool_call *c = calloc(1, sizeof(*c));
        struct tool_out *t;
        char body[128];
        int n = snprintf(body, sizeof(body), "{\"result\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"length\":%zu}",
                         result, offset, length);

        t = tool_out_new(CG_TOOL_RESULT_READ, 0, (struct cg_bytes){ body, (size_t)n },
                         (struct cg_bytes){ NULL, 0 });
        if (!c || !t) {
                free(c);
                free(t);
                return cg_fail(err, CG_E_NOMEM, "reading a result");
        }
        c->wait = w;
        c->key = 1;
        c->read = true;
        w->link = l;
        CG_HOLD(&io->lock);
        c->id = t->id = ++io->numbers.last_call;
        TAILQ_INSERT_HEAD(&l->sent, c, entry);
        push_locked(l, t);
        return 0;
}

void cg_io_free_result(struct cg_io *io, uint64_t result)
{
        CG_HOLD(&io->lock);

        free_result_locked(io, result);
}

void cg_io_end_call_locked(struct link *l, uint64_t id, const char *status, const char *kind,
                           struct cg_frame *content)
{
        struct cg_io *io = l->io;
        struct cg_tool_call *c = TAILQ_FIRST(&l->sent);

        while (c && c->id != id)
                c = TAILQ_NEXT(c, entry);
        if (!c || !c->wait)
                drop_result_locked(io, id, kind);
        if (!c) {
                cg_frame_unref(content);
                return;
        }
        TAILQ_REMOVE(&l->sent, c, entry);
        io->n_sent -= !c->read;
        snprintf(c->result.status, sizeof(c->result.status), "%s", status);
        snprintf(c->result.kind, sizeof(c->result.kind), "%s", kind);
        c->result.content = content;
        if (c->wait) {
                TAILQ_INSERT_TAIL(&c->wait->finished, c, entry);
                c->wait->done = true;
                if (!c->wait->reading)
                        eventfd_write(c->wait->fd, 1);
        } else {
                cg_tool_call_free(c);
        }
        if (!TAILQ_EMPTY(&io->calls[TOOLS].queued) || !TAILQ_EMPTY(&io->calls[FUNCTIONS].queued))
                cg_io_wake_locked(io);
}

void cg_io_cancel(struct cg_wait *w, const uint64_t *keys, size_t n)
{
        CG_HOLD(&w->io->lock);

        for (size_t i = 0; i < n; i++)
                if (keys[i])
                        cancel_locked(w, keys[i]);
}

struct cg_tool_call *cg_wait_results(struct cg_wait *w)
{
        struct cg_tool_call *c;
        CG_HOLD(&w->io->lock);

        c = TAILQ_FIRST(&w->finished);
        if (!c)
                cg_io_event_clear(w->fd);
        TAILQ_INIT(&w->finished);
        w->done = false;
        return c;
}

void cg_wait_put_back(struct cg_wait *w, struct cg_tool_call *first)
{
        struct call_list again = TAILQ_HEAD_INITIALIZER(again);
        struct cg_tool_call *next;
        CG_HOLD(&w->io->lock);

        for (; first; first = next) {
                next = TAILQ_NEXT(first, entry);
                TAILQ_INSERT_TAIL(&again, first, entry);
        }
        TAILQ_CONCAT(&again, &w->finished, entry);
        TAILQ_CONCAT(&w->finished, &again, entry);
        cg_io_end_wait_locked(w);
}

struct cg_tool_call *cg_tool_call_next(const struct cg_tool_call *c)
{
        return TAILQ_NEXT(c, entry);
}

const struct cg_tool_call_result *cg_tool_call_result(const struct cg_tool_call *c, uint64_t *key)
{
        *key = c->key;
        return &c->result;
}

void cg_tool_call_drop_kept(struct cg_io *io, const struct cg_tool_call *c)
{
        CG_HOLD(&io->lock);

        drop_result_locked(io, c->id, c->result.kind);
}
