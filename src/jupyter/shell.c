/*
 * Shell requests. They are queued here, not in the library, so that a failed cell aborts exactly
 * those that had arrived before it failed, and each subshell has its own queue. Runs in `cellgate
 * jupyter`.
 */
#include "jupyter/internal.h"

#include "base/json.h"

/* Longest wait for a subscriber, so that the first cell's output is not lost. */
#define HOLD_MS 200

/* ------------------------------------------------------------------ to the kernel */

static void mark_in_flight(struct front *f, struct jreq *r, struct shell_queue *queue, uint64_t number)
{
        r->origin->number = number;
        r->queue = queue;
        if (queue)
                queue->running = r;
        TAILQ_INSERT_HEAD(&f->in_flight, r, entry);
        r->in_flight = true;
}

static void add_extra(struct cg_buf *b, const char *name, struct cg_slice value)
{
        if (cg_json_is_empty(value))
                return;
        cg_buf_addf(b, ",\"%s\":", name);
        cg_buf_add(b, value.p, value.len);
}

static int send_request(struct front *f, struct jreq *r, struct shell_queue *queue, bool offer,
                        uint64_t *number, struct cg_err *err)
{
        cg_auto_buf struct cg_buf changed = { .max = CG_JMSG_MAX_BYTES * 2 };
        struct cg_buffer buffers[CG_JMSG_MAX_BUFFERS];
        struct cg_request_options o = { .size = sizeof(o),
                                        .timeout_ms = r->spec->timeout_ms,
                                        .subshell = queue ? queue->id : NULL,
                                        .buffers = buffers,
                                        .n_buffers = r->msg->m.n_buffers,
                                        .offer = offer };
        const struct cg_jparsed *m = &r->msg->m;
        struct cg_slice content = m->content;

        for (size_t i = 0; i < m->n_buffers; i++) {
                struct cg_slice b = cg_jmsg_frame(r->msg, m->first_buffer + i);

                buffers[i] = (struct cg_buffer){ b.p, b.len };
        }
        if (r->spec->kind == KIND_COMM) {
                /*
                 * The kernel reads header and metadata of a comm message in its content. Members of
                 * the content itself come later, so they count.
                 */
                const char *open = memchr(content.p, '{', content.len);
                size_t left = content.len - (size_t)(open + 1 - content.p);

                cg_buf_adds(&changed, "{\"header\":");
                cg_buf_add(&changed, m->header.p, m->header.len);
                add_extra(&changed, "metadata", m->metadata);
                if (!cg_json_is_empty(content))
                        cg_buf_adds(&changed, ",");
                cg_buf_add(&changed, open + 1, left);
                if (cg_buf_end(&changed, err) < 0)
                        return CG_E_NOMEM;
                content = cg_buf_slice(&changed);
        }
        return cg_session_request(f->session, r->spec->type, content.p, content.len, &o, number, err);
}

static void send_to_kernel(struct front *f, struct jreq *r, struct shell_queue *queue)
{
        struct cg_err err;
        uint64_t number;
        int n = send_request(f, r, queue, false, &number, &err);

        if (strcmp(r->spec->type, "debug_request") == 0) {
                cg_origin_unref(f->past.debug);
                f->past.debug = cg_origin_ref(r->origin);
        }
        if (n == 0)
                mark_in_flight(f, r, queue, number);
        cg_jreq_begin(f, r); /* after the kernel has got it; its events are handled later */
        if (n < 0)
                cg_jreq_end_with_error(f, r, n == CG_E_INVAL ? "BadRequest" : "RequestError", err.msg);
}

/* ------------------------------------------------------------------ cells */

static int start_cell(struct front *f, struct jreq *r, struct shell_queue *queue, struct cg_err *err)
{
        cg_auto_buf struct cg_buf extra = { .max = CG_JMSG_MAX_BYTES };
        cg_auto_json json_t *fields = NULL;
        struct cg_slice content = r->msg->m.content, expressions;
        struct cg_execute_options o = { .size = sizeof(o) };
        const json_t *code, *wanted;
        bool store_history;
        json_error_t e;
        uint64_t number;
        int n;

        /* DECODE_INT_AS_REAL: a number too large for jansson must not make the cell fail. */
        fields = json_loadb(content.p, content.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
        if (!fields)
                return cg_fail(err, CG_E_INVAL, "the content cannot be read: %s", e.text);
        code = json_object_get(fields, "code");
        wanted = json_object_get(fields, "user_expressions");
        if (!json_is_string(code))
                return cg_fail(err, CG_E_INVAL, "\"code\" must be a string");
        if (cg_json_bool(fields, "silent", false, &r->silent, err) < 0 ||
            cg_json_bool(fields, "store_history", !r->silent, &store_history, err) < 0 ||
            cg_json_bool(fields, "allow_stdin", false, &r->allow_stdin, err) < 0 ||
            cg_json_bool(fields, "stop_on_error", true, &r->stop_on_error, err) < 0)
                return CG_E_INVAL;
        if (wanted && !json_is_object(wanted))
                return cg_fail(err, CG_E_INVAL, "\"user_expressions\" must be an object");
        if (cg_json_member(content, "user_expressions", &expressions, err) < 0)
                return CG_E_INVAL;
        n = cg_json_member(content, "code", &r->code, err);
        if (n < 0)
                return n;

        /*
         * The request's header, which widgets look for, expressions, metadata, the last control
         * request's header: as the client spelled them.
         */
        cg_buf_adds(&extra, "{\"header\":");
        cg_buf_add(&extra, r->msg->m.header.p, r->msg->m.header.len);
        add_extra(&extra, "user_expressions", expressions);
        add_extra(&extra, "metadata", r->msg->m.metadata);
        add_extra(&extra, "control", f->control.header);
        cg_buf_adds(&extra, "}");
        if (cg_buf_end(&extra, err) < 0)
                return CG_E_NOMEM;
        o.silent = r->silent;
        o.announce = !r->silent;
        o.allow_stdin = r->allow_stdin;
        o.no_history = !store_history;
        o.extra = extra.data;
        o.subshell = queue == &f->control.queue ? f->control.shell : queue->id;
        n = cg_session_execute(f->session, json_string_value(code), json_string_length(code), &o, &number,
                               err);
        if (n == 0)
                mark_in_flight(f, r, queue, number);
        return n;
}

static void run_cell(struct front *f, struct jreq *r, struct shell_queue *queue);

void cg_control_made(struct front *f, const struct cg_event *e)
{
        struct jreq *r = CG_STEAL(f->control.held);
        cg_auto_json json_t *reply = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *name = json_string_value(json_object_get(reply, "subshell_id"));

        f->control.making = 0;
        f->control.queue.running = NULL;
        f->control.shell = cg_strdup(name);
        if (!r)
                return;
        if (f->control.shell) {
                run_cell(f, r, &f->control.queue);
                return;
        }
        cg_jreq_end_with_error(f, r, "CellError",
                               "the kernel could not make a subshell for cells of the control channel");
}

void cg_control_forget(struct front *f)
{
        free(f->control.shell);
        f->control.shell = NULL;
}

static void run_cell(struct front *f, struct jreq *r, struct shell_queue *queue)
{
        char content[128];
        struct cg_err err;
        int n;

        if (r->aborted) {
                cg_jreq_begin(f, r);
                snprintf(content, sizeof(content), "{\"status\":\"aborted\",\"execution_count\":%" PRId64 "}",
                         f->count);
                cg_jreq_reply(f, r, cg_slice_of(content));
                cg_jreq_finish(f, r);
                return;
        }
        if (queue == &f->control.queue && !f->control.shell) {
                /*
                 * A cell of the control channel runs beside those of the main shell, in a subshell
                 * that no client sees. It is made first.
                 */
                struct cg_request_options o = { .size = sizeof(o) };
                struct cg_slice hidden = CG_SLICE("{\"hidden\":true}");

                if (cg_session_request(f->session, "create_subshell_request", hidden.p, hidden.len, &o,
                                       &f->control.making, &err) == 0)
                        f->control.held = f->control.queue.running = r;
                else
                        cg_jreq_end_with_error(f, r, "CellError", err.msg);
                return;
        }
        if (f->mcp_failed) {
                cg_jreq_begin(f, r);
                cg_iopub_notice(&f->iopub, r->origin, f->mcp_failed);
                free(f->mcp_failed);
                f->mcp_failed = NULL;
        }
        n = start_cell(f, r, queue, &err);
        cg_jreq_begin(f, r); /* after the kernel has got it; its events are handled later */
        if (n < 0)
                cg_jreq_end_with_error(f, r, n == CG_E_INVAL || n == CG_E_PARSE ? "BadRequest" : "CellError",
                                       err.msg);
}

/* ------------------------------------------------------------------ queues */

static void run_one(struct front *f, struct shell_queue *q, struct jreq *r)
{
        enum request_kind kind = r->spec->kind;
        char why[sizeof(f->opener.err.msg) + 64];

        r->queue = NULL;
        if (f->state == FAILED &&
            (kind == KIND_EXECUTE || kind == KIND_RELAY || kind == KIND_COMM || kind == KIND_SIDE)) {
                snprintf(why, sizeof(why), "%s; restart the kernel to try again", f->opener.err.msg);
                cg_jreq_end_with_error(f, r, "KernelNotStarted", why);
                return;
        }
        if (kind == KIND_INFO && f->info.foreign && f->state == READY)
                kind = KIND_RELAY;
        switch (kind) {
        case KIND_EXECUTE:
                run_cell(f, r, q);
                break;
        case KIND_RELAY:
        case KIND_COMM:
                send_to_kernel(f, r, q);
                break;
        case KIND_SIDE:
                send_to_kernel(f, r, q == &f->control.queue ? q : NULL);
                break;
        default:
                cg_local_answer(f, r);
        }
}

static bool is_full(const struct front *f)
{
        return f->waiting >= MAX_WAITING || f->waiting_bytes >= MAX_WAITING_BYTES;
}

static void hold_over(uv_timer_t *t)
{
        struct front *f = t->data;

        f->events.hold_over = true;
        cg_shell_run(f);
}

static bool can_run(struct front *f, const struct jreq *r)
{
        if (r->spec->kind == KIND_INFO && !f->info.foreign)
                return f->state >= OPEN;
        if (f->state != READY && f->state != FAILED)
                return false;
        if (f->iopub.joined || f->events.hold_over || r->spec->kind != KIND_EXECUTE)
                return true;
        /* Without a subscriber yet: the client of the first cell will probably subscribe. */
        if (!uv_is_active((uv_handle_t *)&f->events.hold))
                uv_timer_start(&f->events.hold, hold_over, HOLD_MS, 0);
        return false;
}

static void unqueue(struct front *f, struct shell_queue *q, struct jreq *r)
{
        TAILQ_REMOVE(&q->waiting, r, entry);
        f->waiting--;
        f->waiting_bytes -= r->msg->bytes;
}

static void queue_run(struct front *f, struct shell_queue *q)
{
        struct jreq *r;

        while (!q->running && (r = TAILQ_FIRST(&q->waiting)) && r != q->offered && f->state != ENDING &&
               can_run(f, r)) {
                unqueue(f, q, r);
                run_one(f, q, r);
        }
}

/*
 * A running cell may `await` a widget's message that is queued after other cells. Only the kernel
 * knows if it does: it takes the message while such a cell runs, or replies "later".
 */
static void queue_offer(struct front *f, struct shell_queue *q)
{
        struct jreq *r;
        uint64_t number;

        if (f->state != READY || q->offered || !q->running || q->running->spec->kind != KIND_EXECUTE ||
            !q->running->origin->number)
                return;
        TAILQ_FOREACH(r, &q->waiting, entry)
                if (r->spec->kind == KIND_COMM)
                        break;
        if (!r || r->stays)
                return;
        if (send_request(f, r, q, true, &number, NULL) < 0) {
                r->stays = true;
                return;
        }
        r->origin->number = number;
        q->offered = r;
}

bool cg_shell_offer_reply(struct front *f, struct jreq *r, const struct cg_event *e)
{
        struct shell_queue *q = &f->main;
        struct cg_slice text, status;

        if (q->offered != r)
                LIST_FOREACH(q, &f->subshells, entry)
                        if (q->offered == r)
                                break;
        if (!q)
                return false;
        q->offered = NULL;
        text.p = cg_event_json(e, &text.len);
        r->stays = cg_event_status(e) != CG_STATUS_OK;
        if (r->stays || (cg_json_find(text, "status", &status) && status.len == 7 &&
                         memcmp(status.p, "\"later\"", 7) == 0)) {
                r->origin->number = 0;
                return true;
        }
        unqueue(f, q, r);
        cg_jreq_begin(f, r); /* where it had no output: every request has its busy and idle */
        cg_jreq_finish(f, r);
        return true;
}

void cg_shell_run(struct front *f)
{
        struct shell_queue *q, *next;
        bool full;

        queue_run(f, &f->main);
        queue_offer(f, &f->main);
        queue_run(f, &f->control.queue);
        for (q = LIST_FIRST(&f->subshells); q; q = next) {
                next = LIST_NEXT(q, entry);
                queue_run(f, q);
                queue_offer(f, q);
                cg_queue_free_if_idle(f, q);
        }
        /* While the queues are full, clients block, as with a slow network. */
        full = is_full(f);
        if (f->state != ENDING && full != f->sockets.z[CG_JSHELL].paused)
                cg_zsock_pause(&f->sockets.z[CG_JSHELL], full);
}

/* The queue of a subshell; made when it is first used. The kernel checks if the subshell exists. */
static struct shell_queue *queue_find(struct front *f, const char *id)
{
        struct shell_queue *q;
        size_t n = 0;

        if (!id || !*id)
                return &f->main;
        LIST_FOREACH(q, &f->subshells, entry) {
                if (strcmp(q->id, id) == 0)
                        return q;
                n++;
        }
        q = n < MAX_SUBSHELLS ? calloc(1, sizeof(*q)) : NULL;
        if (!q)
                return NULL;
        q->id = strdup(id);
        if (!q->id) {
                free(q);
                return NULL;
        }
        TAILQ_INIT(&q->waiting);
        LIST_INSERT_HEAD(&f->subshells, q, entry);
        return q;
}

static void push(struct front *f, struct shell_queue *q, struct jreq *r)
{
        TAILQ_INSERT_TAIL(&q->waiting, r, entry);
        f->waiting++;
        f->waiting_bytes += r->msg->bytes;
}

/* The control channel is always read, so that interrupts and shutdown are never blocked. */
void cg_control_enqueue(struct front *f, struct jreq *r)
{
        if (is_full(f)) {
                cg_jreq_end_with_error(f, r, "RequestError", "too many requests wait");
                return;
        }
        push(f, &f->control.queue, r);
        cg_shell_run(f);
}

/* CG_TIMEOUT: none waits */
static int receive(struct front *f)
{
        struct shell_queue *q;
        struct cg_jmsg *msg;
        struct jreq *r;
        int n = cg_front_receive(f, CG_JSHELL, &msg);

        if (n != 0)
                return n;
        if (f->state == ENDING) {
                cg_jmsg_free(msg);
                return 0;
        }
        r = cg_jreq_new(f, CG_JSHELL, msg);
        if (!r) {
                cg_log(&f->o->log, CG_LOG_ERROR, "out of memory: a request was lost");
                return 0;
        }
        if (msg->m.bad[0]) {
                cg_jreq_end_with_error(f, r, "BadRequest", msg->m.bad);
                return 0;
        }
        /* not queued after the cell that it is to interrupt */
        if (r->spec->kind == KIND_INTERRUPT) {
                cg_local_answer(f, r);
                return 0;
        }
        q = queue_find(f, r->msg->m.subshell);
        if (q)
                push(f, q, r);
        else
                cg_jreq_end_with_error(f, r, "BadRequest", "too many subshells are in use");
        return 0;
}

void cg_shell_abort(struct front *f, struct shell_queue *q)
{
        struct jreq *r;

        while (!is_full(f) && receive(f) != CG_TIMEOUT)
                ;
        cg_zsock_touch(&f->sockets.z[CG_JSHELL]);
        TAILQ_FOREACH(r, &q->waiting, entry)
                r->aborted = r->aborted || r->spec->kind == KIND_EXECUTE;
}

void cg_shell_readable(struct cg_zsock *z)
{
        struct front *f = z->data;

        if (receive(f) == 0)
                cg_shell_run(f);
}

/* ------------------------------------------------------------------ end */

static void end_queue(struct front *f, struct shell_queue *q, const char *why)
{
        struct jreq *r;

        q->offered = NULL;
        while ((r = TAILQ_FIRST(&q->waiting))) {
                TAILQ_REMOVE(&q->waiting, r, entry);
                r->queue = NULL;
                cg_jreq_end_with_error(f, r, "KernelEnded", why);
        }
}

void cg_shell_end(struct front *f, const char *why)
{
        struct shell_queue *q;
        struct jreq *r;

        while ((r = TAILQ_FIRST(&f->in_flight))) {
                r->queue = NULL;
                cg_jreq_end_with_error(f, r, "KernelEnded", why);
        }
        if (f->control.held) {
                r = CG_STEAL(f->control.held);
                cg_jreq_end_with_error(f, r, "KernelEnded", why);
        }
        f->main.running = f->control.queue.running = NULL;
        end_queue(f, &f->main, why);
        end_queue(f, &f->control.queue, why);
        LIST_FOREACH(q, &f->subshells, entry) {
                q->running = NULL;
                end_queue(f, q, why);
        }
}

void cg_shell_free(struct front *f)
{
        struct shell_queue *q;

        while ((q = LIST_FIRST(&f->subshells))) {
                LIST_REMOVE(q, entry);
                free(q->id);
                free(q);
        }
        for (unsigned i = 0; i < MAX_PAST; i++)
                f->past.origins[i] = cg_origin_unref(f->past.origins[i]);
        f->past.debug = cg_origin_unref(f->past.debug);
        cg_control_forget(f);
        free((char *)(uintptr_t)f->control.header.p);
}
