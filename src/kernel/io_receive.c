/* Messages that arrive. I/O thread. See io.h. */
#include "kernel/io_int.h"

#include "base/json.h"
#include "kernel/procs.h"

/* For atexit functions; the supervisor kills after 1 s. */
#define SHUTDOWN_MS 900
/* Characters of subshell names that we make; errors repeat no others. */
#define SHELL_CHARACTERS "0123456789abcdef"

static void take_raw_locked(struct cg_wait *w, struct cg_msg *m)
{
        if (m->n_frames > 1) {
                w->raw = CG_STEAL(m->frames[1]);
                w->has_raw = true;
        }
        w->done = true;
        eventfd_write(w->fd, 1);
}

/* An error reply, made without Python. */
static int refuse(struct cg_io *io, const struct cg_msg *m, const char *ename, const char *evalue,
                  struct cg_err *err)
{
        struct cg_out out = { .type = CG_KERNEL_REPLY, .id = m->id, .has_raw = true };
        char text[512], content[512];
        int r;

        out.raw = text;
        out.raw_len = (size_t)snprintf(text, sizeof(text),
                                       "{\"status\":\"error\",\"ename\":\"%s\",\"evalue\":\"%s\"}", ename,
                                       evalue);
        if (m->type == CG_KERNEL_EXECUTE_REQUEST) {
                out.type = CG_KERNEL_EXECUTE_REPLY;
                out.body = text;
                out.body_len = out.raw_len;
                out.raw = content;
                out.raw_len = (size_t)snprintf(content, sizeof(content),
                                               "{\"ename\":\"%s\",\"evalue\":\"%s\",\"traceback\":[]}", ename,
                                               evalue);
        }
        CG_HOLD(&io->lock);
        r = cg_outq_add(&io->out, &out, NULL, err);
        cg_io_flush_locked(io);
        return r;
}

/*
 * Queues @req (takes) for the shell that the message names. 0: queued, or answered with an error;
 * negative: protocol error.
 */
static int push_to_shell(struct cg_io *io, const struct cg_msg *m, const json_t *body, struct cg_request *req,
                         struct cg_err *err)
{
        json_t *id = json_object_get(body, "subshell"); /* borrowed */
        const char *name = id && !json_is_null(id) ? json_string_value(id) : "";
        char why[128];
        struct cg_shell *sh;

        if (!name) {
                cg_request_free(req);
                return cg_fail(err, CG_E_PROTO, "\"subshell\" is not a string");
        }
        pthread_mutex_lock(&io->lock);
        sh = cg_io_find_shell_locked(io, name);
        if (sh && (sh->closed || sh == &io->shells[CONTROL]))
                sh = NULL;
        if (sh)
                cg_io_push_request_locked(sh, req);
        pthread_mutex_unlock(&io->lock);
        if (sh)
                return 0;
        cg_request_free(req);
        snprintf(why, sizeof(why), "Unknown subshell_id '%.*s'", (int)strspn(name, SHELL_CHARACTERS), name);
        return refuse(io, m, "UnknownSubshellError", why, err);
}

static int on_execute(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        struct cg_request *req = cg_request_new(m, CG_REQUEST_CELL, err);

        if (!req)
                return CG_E_NOMEM;
        if (cg_json_bool(body, "silent", false, &req->silent, err) < 0 ||
            cg_json_bool(body, "store_history", true, &req->store_history, err) < 0 ||
            cg_json_bool(body, "allow_stdin", false, &req->allow_stdin, err) < 0 ||
            cg_json_bool(body, "warm", false, &req->warm, err) < 0) {
                cg_request_free(req);
                return CG_E_PROTO;
        }
        return push_to_shell(io, m, body, req, err);
}

static int on_request(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        /* Requests of the control shell, which do not wait for cells. */
        static const char *const control[] = { "debug_request", "create_subshell_request",
                                               "delete_subshell_request", "list_subshell_request" };
        struct cg_request *req;
        size_t i = 0;
        const char *type;
        int r = cg_json_str(body, "type", NULL, &type, err);

        if (r < 0)
                return r;
        if (!type || strlen(type) >= sizeof(req->type) || m->n_frames < 2)
                return cg_fail(err, CG_E_PROTO, "REQUEST without a type or content");
        if (strcmp(type, "usage_request") == 0) {
                /* Read from /proc in this thread, because Python code may hold the GIL for ever. */
                cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY };
                struct cg_out out = { .type = CG_KERNEL_REPLY, .id = m->id, .has_raw = true };

                r = cg_usage_json(&io->usage, &b, err);
                if (r < 0)
                        return r;
                out.raw = b.data;
                out.raw_len = b.len;
                return cg_io_answer(io, &out, err);
        }
        req = cg_request_new(m, CG_REQUEST_OTHER, err);
        if (!req)
                return CG_E_NOMEM;
        snprintf(req->type, sizeof(req->type), "%s", type);
        req->offer = json_is_true(json_object_get(body, "offer"));
        while (i < CG_ARRAY_LEN(control) && strcmp(type, control[i]) != 0)
                i++;
        if (i == CG_ARRAY_LEN(control))
                return push_to_shell(io, m, body, req, err);
        if (cg_io_push_control(io, req))
                return 0;
        cg_request_free(req);
        return refuse(
                io, m, "RuntimeError",
                "cannot start a thread for this request: the cells have used up their limit of processes",
                err);
}

static int on_input_reply(struct cg_io *io, struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        bool eof = false;
        int64_t question;

        if (cg_json_bool(body, "eof", false, &eof, err) < 0 ||
            cg_json_int(body, "question", 0, &question, err) < 0)
                return CG_E_PROTO;
        CG_HOLD(&io->lock);
        for (struct cg_wait *w = io->waits; w; w = w->next)
                if (w->kind == WAIT_INPUT && !w->done && w->cell == m->id &&
                    w->question == (uint64_t)question) {
                        w->eof = eof;
                        take_raw_locked(w, m);
                        cg_io_end_waits_locked(io, WAIT_TURN);
                        break;
                }
        return 0;
}

/* Makes system calls fail with EINTR, the interpreter run its handler, and wakes cg_wait_once(). */
void cg_io_try_interrupt_locked(struct cg_io *io, int64_t now, bool again)
{
        pthread_kill(io->main, SIGINT);
        io->config.interrupt(io, again);
        for (struct cg_wait *w = io->waits; w; w = w->next)
                eventfd_write(w->fd, 1);
        io->interrupt.at_ms = now + io->interrupt.step_ms;
        io->interrupt.step_ms *= 2;
        if (io->interrupt.step_ms > INTERRUPT_RETRY_MAX_MS)
                io->interrupt.step_ms = INTERRUPT_RETRY_MAX_MS;
}

static void start_interrupt_locked(struct cg_io *io)
{
        io->shells[MAIN].interrupting = true;
        io->interrupt.step_ms = INTERRUPT_RETRY_MS;
        io->interrupt.arrived = false;
        cg_io_try_interrupt_locked(io, cg_now_ms(), false);
}

/*
 * The message is sent once, so a cell that has not begun yet is marked. Python can interrupt its
 * main thread from any thread, other threads only with the GIL held. Child processes are signalled
 * as at a terminal: subprocess.run() waits for them.
 */
static int on_interrupt(struct cg_io *io, struct cg_msg *m, struct cg_err *err)
{
        const struct cg_shell *target = NULL;
        struct cg_request *req;
        uint64_t began = 0;

        pthread_mutex_lock(&io->lock);
        for (size_t i = 0; i < CG_IO_MAX_SHELLS; i++)
                if (io->shells[i].open && io->shells[i].cell == m->id)
                        target = &io->shells[i];
        if (target)
                began = target->began;
        else
                cg_io_interrupt_early_locked(io, m->id);
        if (target == &io->shells[MAIN])
                start_interrupt_locked(io);
        pthread_mutex_unlock(&io->lock);
        if (!target)
                return 0;
        if (target == &io->shells[MAIN]) {
                cg_procs_interrupt(began);
                return 0;
        }
        req = cg_request_new(m, CG_REQUEST_INTERRUPT, err);
        if (!req)
                return CG_E_NOMEM;
        if (!cg_io_push_control(io, req)) /* does not happen: this thread made the subshell */
                cg_request_free(req);
        return 0;
}

static int on_shutdown(struct cg_io *io, struct cg_err *err)
{
        struct cg_request *req = cg_request_new(NULL, CG_REQUEST_SHUTDOWN, err);

        if (!req)
                return CG_E_NOMEM;
        CG_HOLD(&io->lock);
        io->exit.shutdown_at_ms = cg_now_ms() + SHUTDOWN_MS;
        cg_io_push_request_locked(&io->shells[MAIN], req);
        if (io->shells[MAIN].open)
                start_interrupt_locked(io);
        return 0;
}

/*
 * Only the end of the connection comes after the last call to this tool server and before the first
 * one to the next.
 */
void cg_io_calls_lost(struct link *l)
{
        static const char text[] =
                "the tool server ended before it answered; whether the tool ran is not known. "
                "It has been started again: later calls work";
        struct cg_tool_call *c;
        struct tool_out *t;
        CG_HOLD(&l->io->lock);

        while ((t = STAILQ_FIRST(&l->out))) { /* about calls that this tool server knew */
                STAILQ_REMOVE_HEAD(&l->out, entry);
                free(t);
        }
        while ((c = TAILQ_FIRST(&l->sent))) {
                struct cg_frame *content = cg_frame_new(sizeof(text) - 1);

                if (content) /* else out of memory: without a text */
                        memcpy(content->data, text, sizeof(text) - 1);
                cg_io_end_call_locked(l, c->id, "failed", "died", content);
        }
}

int cg_io_on_kernel_msg(struct link *l, struct cg_msg *m, struct cg_err *err)
{
        struct cg_io *io = l->io;
        cg_auto_json json_t *body = NULL;
        int r = cg_msg_json(m, &body, err);

        if (r < 0)
                return r;
        switch (m->type) {
        case CG_KERNEL_EXECUTE_REQUEST:
                return on_execute(io, m, body, err);
        case CG_KERNEL_REQUEST:
                return on_request(io, m, body, err);
        case CG_KERNEL_INPUT_REPLY:
                return on_input_reply(io, m, body, err);
        case CG_KERNEL_INTERRUPT_REQUEST:
                return on_interrupt(io, m, err);
        case CG_KERNEL_SHUTDOWN_REQUEST:
                return on_shutdown(io, err);
        default:
                return cg_fail(err, CG_E_PROTO, "%s is not for the kernel", m->spec->name);
        }
}

int cg_io_on_call_msg(struct link *l, struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const char *status, *kind;
        int r;

        if ((r = cg_msg_json(m, &body, err)) < 0 ||
            (r = cg_json_str(body, "status", "failed", &status, err)) < 0 ||
            (r = cg_json_str(body, "kind", "", &kind, err)) < 0)
                return r;
        CG_HOLD(&l->io->lock);
        cg_io_end_call_locked(l, m->id, status, kind, CG_STEAL(m->frames[1]));
        return 0;
}
