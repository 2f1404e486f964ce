/* Shells: their requests, running cells and interrupts. Any thread. See io.h. */
#include "kernel/io_int.h"

#include "kernel/procs.h"

/* ------------------------------------------------------------------ opening and closing */

int cg_io_open_shell_locked(struct cg_shell *sh, const char *name, struct cg_err *err)
{
        STAILQ_INIT(&sh->queue);
        if (sh->request_fd < 0)
                sh->request_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (sh->request_fd < 0)
                return cg_fail_errno(err, "eventfd");
        cg_io_event_clear(sh->request_fd);
        snprintf(sh->name, sizeof(sh->name), "%s", name);
        sh->used = true;
        sh->closed = false;
        return 0;
}

struct cg_shell *cg_io_find_shell_locked(struct cg_io *io, const char *name)
{
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].used && strcmp(io->shells[i].name, name) == 0)
                        return &io->shells[i];
        return NULL;
}

/* Only the thread of a subshell holds its pointer, and it releases the entry itself. */
struct cg_shell *cg_io_shell(struct cg_io *io, const char *name)
{
        CG_HOLD(&io->lock);

        return cg_io_find_shell_locked(io, name);
}

static int open_subshell_locked(struct cg_io *io, const char *name, struct cg_err *err)
{
        if (strlen(name) >= CG_IO_SHELL_NAME)
                return cg_fail(err, CG_E_LIMIT, "the name of a subshell has at most %d bytes",
                               CG_IO_SHELL_NAME - 1);
        if (cg_io_find_shell_locked(io, name))
                return cg_fail(err, CG_E_EXISTS, "subshell %s already exists", name);
        for (size_t i = FIRST_SUBSHELL; i < CG_IO_MAX_SHELLS; i++)
                if (!io->shells[i].used)
                        return cg_io_open_shell_locked(&io->shells[i], name, err);
        return cg_fail(err, CG_E_LIMIT, "there are already %d subshells: delete one first",
                       CG_IO_MAX_SHELLS - FIRST_SUBSHELL);
}

int cg_io_shell_open(struct cg_io *io, const char *name, struct cg_err *err)
{
        CG_HOLD(&io->lock);

        return open_subshell_locked(io, name, err);
}

void cg_io_shell_gone(struct cg_shell *sh)
{
        struct cg_io *io = sh->io;
        CG_HOLD(&io->lock);

        if (sh - io->shells >= FIRST_SUBSHELL && !sh->cell && STAILQ_EMPTY(&sh->queue))
                sh->used = false;
}

int cg_io_shell_close(struct cg_io *io, const char *name, struct cg_err *err)
{
        struct cg_request *req = cg_request_new(NULL, CG_REQUEST_CLOSE, err);
        struct cg_shell *sh;

        if (!req)
                return CG_E_NOMEM;
        pthread_mutex_lock(&io->lock);
        sh = cg_io_find_shell_locked(io, name);
        if (!sh || sh->closed || sh - io->shells < FIRST_SUBSHELL) {
                sh = NULL;
        } else {
                sh->closed = true;
                cg_io_push_request_locked(sh, req);
        }
        pthread_mutex_unlock(&io->lock);
        if (sh)
                return 0;
        cg_request_free(req);
        return cg_fail(err, CG_E_NOTFOUND, "no such subshell");
}

/* ------------------------------------------------------------------ requests */

struct cg_request *cg_request_new(struct cg_msg *m, enum cg_request_kind kind, struct cg_err *err)
{
        size_t n = m && m->n_frames > 1 ? m->n_frames - 1 : 0;
        struct cg_request *req = calloc(1, sizeof(*req) + n * sizeof(req->frames[0]));

        if (!req) {
                cg_fail(err, CG_E_NOMEM, "request");
                return NULL;
        }
        req->kind = kind;
        req->id = m ? m->id : 0;
        for (; req->n_frames < n; req->n_frames++)
                req->frames[req->n_frames] = CG_STEAL(m->frames[req->n_frames + 1]);
        return req;
}

struct cg_request *cg_request_free(struct cg_request *req)
{
        for (size_t i = 0; req && i < req->n_frames; i++)
                cg_frame_unref(req->frames[i]);
        free(req);
        return NULL;
}

void cg_io_push_request_locked(struct cg_shell *sh, struct cg_request *req)
{
        STAILQ_INSERT_TAIL(&sh->queue, req, entry);
        eventfd_write(sh->request_fd, 1);
}

int cg_io_call_main(struct cg_io *io, struct cg_err *err)
{
        struct cg_request *req = cg_request_new(NULL, CG_REQUEST_CALL, err);

        if (!req)
                return CG_E_NOMEM;
        CG_HOLD(&io->lock);
        cg_io_push_request_locked(&io->shells[MAIN], req);
        return 0;
}

void cg_io_set_control(struct cg_io *io, void (*serve)(void *data), void *data)
{
        CG_HOLD(&io->lock);

        io->control_data = data;
        io->control = serve;
}

/* The control shell has its own thread because it waits for the GIL; the I/O thread must not. */
static void *control_main(void *arg)
{
        struct cg_io *io = arg;
        void (*serve)(void *data);
        sigset_t none;

        sigemptyset(&none); /* threads that it starts must not inherit our mask */
        pthread_sigmask(SIG_SETMASK, &none, NULL);
        pthread_mutex_lock(&io->lock);
        serve = io->control;
        io->control = NULL;
        pthread_mutex_unlock(&io->lock);
        if (serve)
                serve(io->control_data);
        return NULL;
}

/* If the sandbox allows no more threads, only this request is lost. */
bool cg_io_push_control(struct cg_io *io, struct cg_request *req)
{
        pthread_t thread;
        bool start;

        pthread_mutex_lock(&io->lock);
        start = io->control != NULL;
        pthread_mutex_unlock(&io->lock);
        if (start) {
                if (pthread_create(&thread, NULL, control_main, io) != 0)
                        return false;
                pthread_detach(thread);
        }
        pthread_mutex_lock(&io->lock);
        cg_io_push_request_locked(&io->shells[CONTROL], req);
        pthread_cond_signal(&io->control_queued);
        pthread_mutex_unlock(&io->lock);
        return true;
}

int cg_io_request_fd(const struct cg_shell *sh)
{
        return sh->request_fd;
}

/* The next request; NULL: none, or @offer and it is none. */
static struct cg_request *dequeue_locked(struct cg_shell *sh, bool offer)
{
        struct cg_request *req = STAILQ_FIRST(&sh->queue);

        if (!req || (offer && !req->offer))
                return NULL;
        STAILQ_REMOVE_HEAD(&sh->queue, entry);
        if (STAILQ_EMPTY(&sh->queue))
                cg_io_event_clear(sh->request_fd);
        return req;
}

struct cg_request *cg_io_next_request(struct cg_shell *sh)
{
        struct cg_request *req;
        CG_HOLD(&sh->io->lock);

        req = dequeue_locked(sh, false);
        if (req)
                sh->taken = req->id;
        return req;
}

struct cg_request *cg_io_wait_control(struct cg_io *io)
{
        struct cg_shell *sh = &io->shells[CONTROL];
        CG_HOLD(&io->lock);

        while (STAILQ_EMPTY(&sh->queue))
                pthread_cond_wait(&io->control_queued, &io->lock);
        return dequeue_locked(sh, false);
}

struct cg_request *cg_io_next_offer(struct cg_shell *sh)
{
        CG_HOLD(&sh->io->lock);

        return dequeue_locked(sh, true);
}

/* ------------------------------------------------------------------ running cells, interrupts */

static bool is_waiting_locked(const struct cg_shell *sh, uint64_t id)
{
        const struct cg_request *req;

        STAILQ_FOREACH(req, &sh->queue, entry)
                if (req->id == id)
                        return true;
        return sh->taken == id;
}

void cg_io_interrupt_early_locked(struct cg_io *io, uint64_t id)
{
        for (size_t i = 0; id && i < CG_IO_MAX_SHELLS; i++)
                if (i != CONTROL && io->shells[i].used && is_waiting_locked(&io->shells[i], id))
                        io->shells[i].early = id;
}

bool cg_io_cell_begin(struct cg_shell *sh, uint64_t cell, bool allow_stdin)
{
        struct cg_io *io = sh->io;
        uint64_t began = cg_procs_now();
        bool early;
        CG_HOLD(&io->lock);

        early = cell && sh->early == cell;
        sh->taken = sh->early = 0;
        sh->thread = pthread_self();
        sh->began = began;
        sh->cell = cell;
        io->numbers.named_cell = 0;
        sh->open = true;
        sh->input = allow_stdin;
        sh->interrupting = false;
        if (io->exit.shutdown_at_ms &&
            sh == &io->shells[MAIN]) { /* the request to shut down arrived between cells */
                sh->interrupting = true;
                io->interrupt.arrived = false;
                io->interrupt.at_ms = 0;
                io->interrupt.step_ms = INTERRUPT_RETRY_MS;
                cg_io_wake_locked(io);
        }
        return early;
}

void cg_io_cell_close(struct cg_shell *sh)
{
        CG_HOLD(&sh->io->lock);

        sh->open = false;
        sh->input = false;
        sh->interrupting = false;
}

bool cg_io_take_interrupt(struct cg_io *io)
{
        struct cg_shell *sh = &io->shells[MAIN];
        bool raises;
        int64_t now;

        /*
         * One attempt is a flag and a signal, which Python may handle separately. The second must
         * not interrupt the handling of the first.
         */
        CG_HOLD(&io->lock);
        now = cg_now_ms(); /* the attempt holds the lock until its signal is sent */
        raises = sh->open && (sh->interrupting || now >= io->interrupt.echo_ms);
        io->interrupt.echo_ms = sh->interrupting ? now + INTERRUPT_ECHO_MS : 0;
        sh->interrupting = false;
        return raises;
}

bool cg_io_interrupt_arrived(struct cg_io *io)
{
        struct sigaction now;
        sigset_t pending;
        bool arrived;

        /*
         * An attempt holds the lock until its signal is sent, and a thread has handled all signals
         * sent to it before a system call returns.
         */
        CG_HOLD(&io->lock);
        arrived = !io->shells[MAIN].interrupting || /* it was taken already */
                  (sigpending(&pending) == 0 && !sigismember(&pending, SIGINT) &&
                   sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == io->interrupt.sigint);
        io->interrupt.arrived = arrived;
        return arrived;
}

bool cg_io_repeat_interrupt(struct cg_io *io, bool *subshell)
{
        bool found = false;
        CG_HOLD(&io->lock);

        for (size_t i = 0; !found && i < CG_IO_MAX_SHELLS; i++) {
                struct cg_shell *sh = &io->shells[i];

                found = sh->open && pthread_equal(sh->thread, pthread_self());
                *subshell = i != MAIN;
                if (found && i == MAIN)
                        sh->interrupting = true;
        }
        return found;
}

static bool interrupt_wait_locked(struct cg_shell *sh)
{
        for (const struct cg_wait *w = sh->io->waits; w; w = w->next)
                if (pthread_equal(w->thread, sh->thread)) {
                        sh->interrupting = true;
                        eventfd_write(w->fd, 1);
                }
        return sh->interrupting;
}

bool cg_io_interrupt_subshell(struct cg_io *io, uint64_t cell, struct cg_io_target *ret)
{
        bool found = false;
        size_t running = 0;
        CG_HOLD(&io->lock);

        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                running += io->shells[i].open;
        for (size_t i = FIRST_SUBSHELL; i < CG_IO_MAX_SHELLS; i++) {
                struct cg_shell *sh = &io->shells[i];

                if (!sh->used || !sh->open || sh->cell != cell)
                        continue;
                found = true;
                *ret = (struct cg_io_target){ .thread = sh->thread,
                                              .began = running == 1 ? sh->began : 0,
                                              .waits = interrupt_wait_locked(sh) };
        }
        return found;
}

bool cg_io_take_subshell_interrupt(struct cg_io *io)
{
        bool taken = false;
        CG_HOLD(&io->lock);

        for (size_t i = FIRST_SUBSHELL; !taken && i < CG_IO_MAX_SHELLS; i++) {
                struct cg_shell *sh = &io->shells[i];

                if (sh->used && sh->open && sh->interrupting && pthread_equal(sh->thread, pthread_self())) {
                        sh->interrupting = false;
                        taken = true;
                }
        }
        return taken;
}

struct cg_shell *cg_io_find_asking_locked(struct cg_io *io, uint64_t cell)
{
        uint64_t wanted = cg_io_resolve_locked(io, cell);

        for (size_t i = 0; wanted && i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].cell == wanted && io->shells[i].input)
                        return &io->shells[i];
        return NULL;
}

bool cg_io_may_ask(struct cg_io *io, uint64_t cell)
{
        CG_HOLD(&io->lock);

        return cg_io_find_asking_locked(io, cell) != NULL;
}

uint64_t cg_io_running(struct cg_io *io)
{
        CG_HOLD(&io->lock);

        return cg_io_running_locked(io);
}

void cg_io_set_running(struct cg_io *io, uint64_t cell)
{
        CG_HOLD(&io->lock);

        io->numbers.named_cell = cell;
}
