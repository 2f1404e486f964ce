/*
 * cellgate-supervisor: cells and requests. The main shell and each subshell have a queue and run
 * one of them at a time; every cell ends in exactly one RESULT, every request in exactly one REPLY.
 * A few requests are not queued ("unordered").
 */
#include "supervisor/cells/cells.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/language.h"
#include "supervisor/cells/artifacts.h"
#include "supervisor/ask/asks.h"
#include "supervisor/core/audit.h"
#include "supervisor/cells/clock.h"
#include "supervisor/cells/commands.h"
#include "supervisor/cells/kernel_info.h"
#include "supervisor/limits/costs.h"
#include "supervisor/limits/denials.h"
#include "supervisor/network/egress.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/session_limits.h"
#include "supervisor/core/members.h"
#include "supervisor/ask/programs.h"
#include "supervisor/core/state.h"

/*
 * A cell must end within this time after an interrupt. Then it is interrupted again, because Python
 * drops an exception that is raised in a destructor or a callback of the garbage collector; after
 * the last attempt its kernel is replaced.
 */
#define GRACE_MS       2000
#define GRACE_ATTEMPTS 2
/*
 * How often that time starts again because the host did not read: output that waits for the host
 * may precede the cell's reply.
 */
#define MAX_GRACE_RESTARTS 30
/* Running time of a request without a limit of the host's. */
#define DEFAULT_REQUEST_MS 10000
/* A RESULT without the members of the kernel's reply; its text is an explanation. */
#define RESULT_BYTES  ((size_t)1 << 20)
#define MAX_SHELLS    33
#define MAX_UNORDERED 16

enum request_flag {
        REQUEST_ORDERED = 1,
        REQUEST_UNORDERED = 2,
        REQUEST_OFFERED = 4, /* may be offered, and is not queued then */
};

static const struct {
        const char *type;
        unsigned int flags;
} requests[] = {
        { "kernel_info_request", REQUEST_ORDERED },
        { "complete_request", REQUEST_ORDERED },
        { "inspect_request", REQUEST_ORDERED },
        { "is_complete_request", REQUEST_ORDERED },
        { "history_request", REQUEST_ORDERED },
        { "comm_info_request", REQUEST_ORDERED },
        { "set_variables", REQUEST_ORDERED },
        { "get_variables", REQUEST_ORDERED },
        { "comm_open", REQUEST_ORDERED | REQUEST_OFFERED },
        { "comm_msg", REQUEST_ORDERED | REQUEST_OFFERED },
        { "comm_close", REQUEST_ORDERED | REQUEST_OFFERED },
        { "debug_request", REQUEST_UNORDERED },
        { "usage_request", REQUEST_UNORDERED },
        { "create_subshell_request", REQUEST_UNORDERED },
        { "delete_subshell_request", REQUEST_UNORDERED },
        { "list_subshell_request", REQUEST_UNORDERED },
};

/* ------------------------------------------------------------------ one cell's memory */

static struct cell *cell_free(struct cell *c)
{
        if (!c)
                return NULL;
        for (size_t i = 0; i < c->n_frames; i++)
                cg_frame_unref(c->frames[i]);
        if (c->ended) {
                cg_buf_fini(&c->ended->body);
                cg_msg_fini(&c->ended->reply);
                free(c->ended);
        }
        free(c);
        return NULL;
}

/* Takes the raw frames of @m. */
static struct cell *cell_new(enum cell_kind kind, uint64_t id, struct cg_msg *m, struct cg_err *err)
{
        size_t n = m->n_frames - 1;
        struct cell *c = calloc(1, sizeof(*c) + n * sizeof(c->frames[0]));

        if (!c) {
                cg_fail(err, CG_E_NOMEM, "cell");
                return NULL;
        }
        c->id = id;
        c->kind = kind;
        for (; c->n_frames < n; c->n_frames++)
                c->frames[c->n_frames] = CG_STEAL(m->frames[c->n_frames + 1]);
        return c;
}

static void send_to_kernel(struct session *ss, struct cell *c, uint16_t type, json_t *body)
{
        struct cg_out out = { .type = type, .id = c->id, .has_raw = c->n_frames > 0 };
        struct cg_bytes more[CG_MAX_FRAMES];

        for (size_t i = 0; i < c->n_frames; i++)
                more[i] = cg_frame_bytes(c->frames[i]);
        if (c->n_frames) {
                out.raw = more[0].data;
                out.raw_len = more[0].len;
                out.more = more + 1;
                out.n_more = c->n_frames - 1;
        }
        cg_sup_kernel_send(ss->kernel, &out, body);
}

/* ------------------------------------------------------------------ ends */

/* Text, because a json_t takes a fifth of the instructions that a short cell costs here. */
static void begin_result(struct session *ss, struct cell *c, const char *status, int64_t count,
                         const char *text, bool refused, struct cg_buf *body)
{
        char costs[COSTS_SIZE];

        cg_sup_egress_drain(ss->sup); /* the cell's denials come before its end */
        cg_sup_denials_drain(ss->kernel);
        cg_sup_denials_cell_ended(ss, c->id);
        cg_sup_costs_end(ss, c, costs);
        cg_buf_init(body, RESULT_BYTES);
        cg_buf_addf(body, "{\"status\":\"%s\",\"execution_count\":%lld,\"refused\":%s,\"text\":", status,
                    (long long)count, cg_bool_text(refused));
        text = text ?: "";
        cg_json_quote(body, text, strlen(text));
        cg_buf_adds(body, costs);
}

/* After the result was sent, which does not wait for it. */
static void add_end_event(struct session *ss, const struct cell *c, const char *status, const char *text)
{
        if (!text || strcmp(status, "error") == 0) /* the words of an exception are output of the cell */
                text = "";
        if (!c->silent)
                cg_sup_bus_execution(ss, c->id, "cell", status, text);
}

static void end_result(struct session *ss, struct cell *c, struct cg_buf *body, struct cg_msg *reply)
{
        struct cg_out out = { .type = CG_HOST_RESULT, .id = c->id, .raw = "", .has_raw = true };

        cg_buf_adds(body, "}");
        if (cg_buf_end(body, NULL) < 0) {
                cg_log(&ss->sup->log, CG_LOG_WARN, "cannot send a result: out of memory");
                return;
        }
        out.body = body->data;
        out.body_len = body->len;
        cg_sup_event(ss, &out, NULL, reply);
        cg_sup_costs_reset(ss, c);
}

static void send_result(struct session *ss, struct cell *c, const char *status, int64_t count,
                        const char *text, bool refused, struct cg_msg *reply)
{
        cg_auto_buf struct cg_buf body;

        begin_result(ss, c, status, count, text, refused, &body);
        if (c->artifacts && c->costs.started_us) { /* its sandbox has ended */
                cg_buf_adds(&body, ",\"artifacts\":");
                cg_sup_artifacts_add(ss, c, &body, "", 0, text);
        }
        end_result(ss, c, &body, reply);
        add_end_event(ss, c, status, text);
}

/* The Python exception that a status is shown as. */
static const char *error_name(const char *status)
{
        if (strcmp(status, "timeout") == 0)
                return "TimeoutError";
        return strcmp(status, "cancelled") == 0 ? "KeyboardInterrupt" : "KernelDied";
}

/* Sends a REPLY in place of the kernel's. */
static void send_error_reply(struct session *ss, const struct cell *c, const char *status, const char *text)
{
        struct cg_out out = { .type = CG_HOST_REPLY, .id = c->id, .has_raw = true };
        cg_auto_json json_t *content = json_pack("{s:s, s:s, s:o, s:[]}", "status", "error", "ename",
                                                 error_name(status), "evalue", cg_sup_text_json(text),
                                                 "traceback");
        cg_auto_free char *raw = cg_json_text(content, &out.raw_len);

        out.raw = raw ?: "{}";
        cg_sup_event_to_host(ss, &out,
                             json_pack("{s:s, s:o}", "status", status, "text", cg_sup_text_json(text)), NULL);
}

/* @count: execution_count of a cell that ran; 0 for one that did not. */
static void end_unanswered(struct session *ss, struct cell *c, const char *status, int64_t count,
                           const char *text)
{
        if (c->kind == CELL_REQUEST)
                send_error_reply(ss, c, status, text);
        else
                send_result(ss, c, status, count, text, false, NULL);
}

/* ------------------------------------------------------------------ shells */

static void on_clock(uv_timer_t *t);
static void on_grace(uv_timer_t *t);
static void on_job(void *data);
static void run_next(struct shell *l);

static void shell_init(struct shell *l, struct session *ss, const char *subshell)
{
        l->ss = ss;
        TAILQ_INIT(&l->queue);
        l->clock_started_ms = -1;
        l->on_clock = on_clock;
        snprintf(l->subshell, sizeof(l->subshell), "%s", subshell);
        cg_sup_timer_init(ss, &l->clock, l);
        cg_sup_timer_init(ss, &l->grace, l);
}

void cg_sup_cells_init(struct session *ss)
{
        ss->queue.next_count = 1;
        TAILQ_INIT(&ss->queue.unordered);
        cg_sup_job_init(&ss->queue.job, ss, false, on_job, ss);
        shell_init(&ss->queue.main, ss, "");
        cg_sup_timer_init(ss, &ss->queue.timer, ss);
}

void cg_sup_cells_close_timers(struct session *ss)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next) {
                cg_sup_timer_close(ss, &l->clock);
                cg_sup_timer_close(ss, &l->grace);
        }
        cg_sup_timer_close(ss, &ss->queue.timer);
}

void cg_sup_cells_release(struct session *ss)
{
        while (ss->queue.main.next) {
                struct shell *l = ss->queue.main.next;

                ss->queue.main.next = l->next;
                free(l);
        }
}

/*
 * Returns the shell with that name. Shells live as long as the session; an idle one takes another
 * name when there are too many.
 */
static struct shell *get_shell(struct session *ss, const char *subshell, struct cg_err *err)
{
        struct shell *l, *idle = NULL;
        size_t n = 0;

        for (l = &ss->queue.main; l; l = l->next, n++) {
                if (strcmp(l->subshell, subshell) == 0)
                        return l;
                if (l != &ss->queue.main && !l->running && TAILQ_EMPTY(&l->queue))
                        idle = l;
        }
        if (strlen(subshell) >= sizeof(l->subshell)) {
                cg_fail(err, CG_E_INVAL, "\"%.40s...\" is not a subshell", subshell);
                return NULL;
        }
        if (n >= MAX_SHELLS && idle) {
                snprintf(idle->subshell, sizeof(idle->subshell), "%s", subshell);
                return idle;
        }
        l = n >= MAX_SHELLS ? NULL : calloc(1, sizeof(*l));
        if (!l) {
                cg_fail(err, CG_E_LIMIT, "cells run in %d subshells already", MAX_SHELLS - 1);
                return NULL;
        }
        shell_init(l, ss, subshell);
        l->next = ss->queue.main.next;
        ss->queue.main.next = l;
        return l;
}

/* ------------------------------------------------------------------ interrupts */

static void send_interrupt(struct shell *l)
{
        struct cg_out out = { .type = CG_KERNEL_INTERRUPT_REQUEST, .id = l->running->id };

        l->interrupts++;
        l->pauses = l->ss->kernel ? l->ss->kernel->links.pauses : 0;
        cg_sup_timer_start(&l->grace, on_grace, GRACE_MS);
        cg_sup_kernel_send(l->ss->kernel, &out, NULL);
        /* Nothing else ends the wait of a thread for a program. */
        cg_sup_programs_interrupted(l->ss, out.id);
}

/* Interrupts the running cell; a second call before it ends changes nothing. */
static void stop_running(struct shell *l, enum stop_reason why)
{
        if (l->running->ended) { /* not interrupted, but its files are not searched for any more */
                cg_sup_commands_end_own(l->ss, l, "cancelled");
                return;
        }
        if (l->stop != STOP_NONE && !l->timed_out)
                return;
        l->stop = why;
        l->interrupts = l->grace_restarts = 0;
        cg_sup_clock_stop(l);
        send_interrupt(l);
}

static void on_clock(uv_timer_t *t)
{
        struct shell *l = t->data;

        l->clock_started_ms = -1;
        l->left_ms = 0;
        if (l->running)
                stop_running(l, STOP_TIMEOUT);
}

static const char *stop_status(const struct shell *l)
{
        return l->stop == STOP_TIMEOUT ? "timeout" : "cancelled";
}

/* ------------------------------------------------------------------ running */

/* Ends the session's job if it has none any more: no cell runs, nor waits for its turn. */
static void settle_job(struct session *ss)
{
        bool waits = ss->queue.job.state == JOB_WAITS;

        for (const struct shell *l = &ss->queue.main; l; l = l->next) {
                const struct cell *c = waits && !l->running ? TAILQ_FIRST(&l->queue) : l->running;

                if (c && c->kind == CELL_EXECUTE)
                        return;
        }
        cg_sup_job_end(&ss->queue.job);
}

/* Takes the running cell out of @l. The caller sends the result. */
static struct cell *take_running(struct shell *l)
{
        struct cell *c = l->running;
        struct ask *input;

        cg_sup_clock_stop(l);
        uv_timer_stop(&l->grace);
        l->running = NULL;
        l->stop = STOP_NONE;
        l->timed_out = false;
        input = cg_sup_ask_any(l->ss, ASK_INPUT);
        if (input && input->id == c->id)
                cg_sup_ask_end(input);
        settle_job(l->ss);
        return c;
}

static struct cell *pop(struct shell *l, struct cell *c)
{
        TAILQ_REMOVE(&l->queue, c, entry);
        l->ss->queue.n--;
        return c;
}

/* A member that is left out where it has its default. */
static json_t *only_if(bool set, json_t *value)
{
        return set ? value : NULL;
}

/* A cell may run once the session has its turn. */
static bool may_run(struct session *ss)
{
        struct queued_job *j = &ss->queue.job;

        return j->state == JOB_NONE ? cg_sup_job_take(j) : j->state != JOB_WAITS;
}

static void run_next(struct shell *l)
{
        struct cg_out out = { .type = CG_HOST_EXECUTE_INPUT, .raw = "", .has_raw = true };
        const char *subshell = cg_or_null(l->subshell);
        cg_auto_json json_t *body = NULL;
        struct session *ss = l->ss;
        struct cg_bytes code;
        struct cell *c;

        if (l->running || TAILQ_EMPTY(&l->queue) || !ss->kernel || ss->kernel->state != K_READY ||
            ss->use.warming)
                return;
        c = TAILQ_FIRST(&l->queue);
        if (c->kind == CELL_EXECUTE && !may_run(ss))
                return;
        l->running = pop(l, c);
        ss->use.kernel = ss->use.ever = true;
        ss->queue.late_output = 0;
        l->stop = STOP_NONE;
        l->timed_out = false;
        l->left_ms = c->timeout_ms;
        l->last_ask = ss->asks.last;
        l->clock_started_ms = -1;
        /* No event of the cell may be sent before its EXECUTE_INPUT below. */
        cg_sup_costs_begin(ss, c);
        if (c->artifacts)
                cg_sup_artifacts_begin(c);
        if (c->kind == CELL_REQUEST)
                send_to_kernel(ss, c, CG_KERNEL_REQUEST,
                               json_pack("{s:s, s:s*}", "type", c->request, "subshell", subshell));
        else
                send_to_kernel(ss, c, CG_KERNEL_EXECUTE_REQUEST,
                               json_pack("{s:o*, s:o*, s:o*, s:s*}", "silent",
                                         only_if(c->silent, json_true()), "store_history",
                                         only_if(!c->store_history, json_false()), "allow_stdin",
                                         only_if(c->allow_stdin, json_true()), "subshell", subshell));
        if (c->kind == CELL_EXECUTE && !c->silent && (c->announce || !LIST_EMPTY(&ss->members))) {
                out.id = c->id;
                body = json_pack("{s:I}", "execution_count", (json_int_t)ss->queue.next_count);
                if (c->announce)
                        cg_sup_event_to_host(ss, &out, json_incref(body), NULL);
                if (!LIST_EMPTY(&ss->members)) {
                        code = cg_frame_bytes(c->frames[0]);
                        out.raw = code.data;
                        out.raw_len = code.len;
                        cg_sup_event_to_others(ss, &out, json_incref(body));
                }
        }
        cg_sup_clock_start(l);
        if (c->kind == CELL_EXECUTE && !c->silent)
                cg_sup_bus_execution(ss, c->id, "cell", NULL, ""); /* while the kernel works */
}

void cg_sup_cells_run(struct session *ss)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next)
                run_next(l);
}

static void on_job(void *data)
{
        cg_sup_cells_run(data);
        settle_job(data); /* its kernel may not be ready */
}

static void enqueue(struct shell *l, struct cell *c)
{
        c->queued_ms = cg_now_ms();
        TAILQ_INSERT_TAIL(&l->queue, c, entry);
        l->ss->queue.n++;
        run_next(l);
}

/* ------------------------------------------------------------------ requests of hosts */

void cg_sup_cells_execute(struct session *ss, uint64_t id, struct cg_msg *m)
{
        struct cell none = { .id = id }, *c = NULL;
        cg_auto_json json_t *body = NULL;
        const char *subshell;
        struct shell *l;
        struct cg_err err;

        if (ss->queue.n >= ss->sup->jobs.max_queue) {
                cg_sup_jobs_refuse(ss, ss->queue.n, "cells of the session wait already", &err);
                goto fail;
        }
        if (cg_sup_audit_request(ss, id, m, &err) < 0)
                goto fail;
        c = cell_new(CELL_EXECUTE, id, m, &err);
        if (!c || cg_msg_json(m, &body, &err) < 0 ||
            cg_json_int(body, "timeout_ms", 0, &c->timeout_ms, &err) < 0 ||
            cg_json_bool(body, "silent", false, &c->silent, &err) < 0 ||
            cg_json_bool(body, "allow_stdin", false, &c->allow_stdin, &err) < 0 ||
            cg_json_bool(body, "store_history", !c->silent, &c->store_history, &err) < 0 ||
            cg_json_bool(body, "announce", false, &c->announce, &err) < 0 ||
            cg_json_bool(body, "artifacts", false, &c->artifacts, &err) < 0 ||
            cg_json_str(body, "subshell", "", &subshell, &err) < 0)
                goto fail;
        if (c->silent)
                c->store_history = false;
        c->artifacts = c->artifacts || cg_sup_audit_signs(ss);
        l = get_shell(ss, subshell, &err);
        if (!l)
                goto fail;
        enqueue(l, c);
        return;
fail:
        send_result(ss, &none, "cancelled", 0, err.msg, false, NULL);
        cell_free(c);
}

static void on_unordered_timer(uv_timer_t *t);

static void arm_unordered_timer(struct session *ss)
{
        const struct cell *c;
        int64_t first = 0, left;

        TAILQ_FOREACH(c, &ss->queue.unordered, entry)
                if (!first || c->deadline_ms < first)
                        first = c->deadline_ms;
        uv_timer_stop(&ss->queue.timer);
        if (!first)
                return;
        left = first - cg_now_ms();
        cg_sup_timer_start(&ss->queue.timer, on_unordered_timer, (uint64_t)CG_MAX(left, 0));
}

static void on_unordered_timer(uv_timer_t *t)
{
        struct session *ss = t->data;
        int64_t now = cg_now_ms();
        struct cell *c;

        TAILQ_FOREACH(c, &ss->queue.unordered, entry) {
                if (c->deadline_ms > now)
                        continue;
                if (!c->answered)
                        send_error_reply(ss, c, "timeout", "the kernel did not answer in time");
                c->answered = true; /* kept: a late reply is not a violation */
                c->deadline_ms = INT64_MAX;
        }
        arm_unordered_timer(ss);
}

void cg_sup_cells_request(struct session *ss, uint64_t id, struct cg_msg *m)
{
        struct cell none = { .id = id, .kind = CELL_REQUEST }, *c = NULL, *o;
        cg_auto_json json_t *body = NULL;
        const char *type, *subshell;
        unsigned int flags = 0;
        bool offer = false;
        struct shell *l;
        size_t n = 0;
        struct cg_err err;

        if (m->n_frames < 2) {
                cg_fail(&err, CG_E_INVAL, "a request needs a content");
                goto fail;
        }
        if (ss->queue.n >= ss->sup->jobs.max_queue) {
                cg_sup_jobs_refuse(ss, ss->queue.n, "cells and requests of the session wait already", &err);
                goto fail;
        }
        c = cell_new(CELL_REQUEST, id, m, &err);
        if (!c || cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "type", "", &type, &err) < 0 ||
            cg_json_str(body, "subshell", "", &subshell, &err) < 0 ||
            cg_json_int(body, "timeout_ms", 0, &c->timeout_ms, &err) < 0 ||
            cg_json_bool(body, "offer", false, &offer, &err) < 0)
                goto fail;
        for (size_t i = 0; i < CG_ARRAY_LEN(requests); i++) {
                if (strcmp(requests[i].type, type) == 0) {
                        c->request = requests[i].type;
                        flags = requests[i].flags;
                }
        }
        if (offer && !(flags & REQUEST_OFFERED)) {
                cg_fail(&err, CG_E_INVAL, "%s cannot be offered: comm messages can", type);
                goto fail;
        }
        if (!c->request) {
                cg_fail(&err, CG_E_INVAL, "\"%.40s\" is not a request", type);
                goto fail;
        }
        if (c->timeout_ms <= 0)
                c->timeout_ms = DEFAULT_REQUEST_MS;
        if (!offer && !(flags & REQUEST_UNORDERED)) {
                l = get_shell(ss, subshell, &err);
                if (!l)
                        goto fail;
                enqueue(l, c);
                return;
        }
        TAILQ_FOREACH(o, &ss->queue.unordered, entry)
                n++;
        if (n >= MAX_UNORDERED || !ss->kernel || ss->kernel->state != K_READY) {
                send_error_reply(ss, c, "cancelled",
                                 n >= MAX_UNORDERED ? "too many such requests are under way"
                                                    : "no kernel runs at the moment");
                cell_free(c);
                return;
        }
        c->deadline_ms = cg_now_ms() + CG_MIN(c->timeout_ms, INT64_MAX / 2);
        TAILQ_INSERT_HEAD(&ss->queue.unordered, c, entry);
        cg_sup_costs_shared(ss);
        send_to_kernel(ss, c, CG_KERNEL_REQUEST,
                       json_pack("{s:s, s:s*, s:b}", "type", c->request, "subshell", cg_or_null(subshell),
                                 "offer", offer));
        arm_unordered_timer(ss);
        return;
fail:
        send_error_reply(ss, &none, "cancelled", err.msg);
        cell_free(c);
}

static void drop_queued(struct shell *l, struct cell *c, const char *text)
{
        end_unanswered(l->ss, pop(l, c), "cancelled", 0, text);
        cell_free(c);
        settle_job(l->ss);
}

bool cg_sup_cells_cancel(struct session *ss, uint64_t id, bool running)
{
        if (running) {
                if (ss->queue.main.running)
                        stop_running(&ss->queue.main, STOP_CANCEL);
                return ss->queue.main.running;
        }
        for (struct shell *l = &ss->queue.main; l; l = l->next) {
                if (l->running && l->running->id == id) {
                        stop_running(l, STOP_CANCEL);
                        return true;
                }
                for (struct cell *c = TAILQ_FIRST(&l->queue); c; c = TAILQ_NEXT(c, entry)) {
                        if (c->id == id) {
                                drop_queued(l, c, "cancelled before it ran");
                                run_next(l); /* what was behind it may have waited for its turn */
                                return true;
                        }
                }
        }
        return false;
}

static void list_cell(const struct session *ss, const struct cell *c, const char *state, int64_t since_ms,
                      json_t *list)
{
        char id[CG_JOB_ID];

        if (c->kind != CELL_EXECUTE)
                return;
        cg_sup_job_id(ss, c->id, id);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "id", id, "kind", "cell", "state",
                                              state, "ms", (json_int_t)(cg_now_ms() - since_ms)));
}

void cg_sup_cells_list(const struct session *ss, json_t *list)
{
        const char *running = ss->queue.job.state == JOB_PAUSED ? "paused" : "running";
        const struct cell *c;

        for (const struct shell *l = &ss->queue.main; l; l = l->next) {
                if (l->running)
                        list_cell(ss, l->running, running, l->running->costs.started_us / 1000, list);
                TAILQ_FOREACH(c, &l->queue, entry)
                        list_cell(ss, c, "waiting", c->queued_ms, list);
        }
}

void cg_sup_cells_member_gone(struct session *ss, uint16_t slot)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next) {
                struct cell *c = TAILQ_FIRST(&l->queue);

                while (c) {
                        if (CELL_SLOT(c->id) != slot) {
                                c = TAILQ_NEXT(c, entry);
                                continue;
                        }
                        drop_queued(l, c, "its client has disconnected");
                        c = TAILQ_FIRST(&l->queue); /* the result may have detached others */
                }
                if (l->running && !l->running->ended && CELL_SLOT(l->running->id) == slot) {
                        stop_running(l, STOP_GONE);
                        l->stop = STOP_GONE; /* also if its host had interrupted it already */
                }
                run_next(l);
        }
}

/* ------------------------------------------------------------------ messages of the kernel */

static struct shell *shell_running(struct session *ss, uint64_t id, enum cell_kind kind)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next)
                if (l->running && !l->running->ended && l->running->id == id && l->running->kind == kind)
                        return l;
        return NULL;
}

static void on_artifacts(void *data, const char *found, size_t len, const char *why)
{
        struct shell *l = data;
        struct session *ss = l->ss;
        struct cell *c = take_running(l);
        struct cg_buf *body = &c->ended->body;

        cg_buf_adds(body, ",\"artifacts\":");
        cg_sup_artifacts_add(ss, c, body, found, len, why);
        end_result(ss, c, body, &c->ended->reply);
        cell_free(c);
        if (ss->kernel && ss->kernel->commands) /* else its sandbox ends */
                run_next(l);
}

void cg_sup_cells_execute_reply(struct session *ss, struct cg_msg *m)
{
        struct shell *l = shell_running(ss, m->id, CELL_EXECUTE);
        cg_auto_json json_t *body = NULL;
        const char *status = NULL, *ename, *evalue, *raw;
        char text[1200] = "";
        size_t raw_len;
        int64_t count, next, commands;
        struct ended_cell *ended;
        bool refused, failed;
        struct cell *c;
        struct cg_err err;

        if (!l) {
                cg_sup_kernel_violation(ss->kernel, "EXECUTE_REPLY for a cell that does not run");
                return;
        }
        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "status", NULL, &status, &err) < 0 ||
            cg_json_str(body, "ename", "", &ename, &err) < 0 ||
            cg_json_str(body, "evalue", "", &evalue, &err) < 0 ||
            cg_json_int(body, "execution_count", 0, &count, &err) < 0 ||
            cg_json_int(body, "next", 0, &next, &err) < 0 ||
            cg_json_int(body, "commands", 0, &commands, &err) < 0 ||
            cg_json_bool(body, "refused", false, &refused, &err) < 0 || !status) {
                cg_sup_kernel_violation(ss->kernel, status ? err.msg : "EXECUTE_REPLY without a status");
                return;
        }
        if (commands < 0 || count < 0 || count == INT64_MAX || next < 0) {
                cg_sup_kernel_violation(ss->kernel, "EXECUTE_REPLY with a number out of range");
                return;
        }
        l->running->costs.commands = commands;
        if (next || count)
                ss->queue.next_count = next ?: count + 1;
        failed = strcmp(status, "ok") != 0;
        if (failed && l->stop == STOP_TIMEOUT)
                snprintf(
                        text, sizeof(text),
                        "the cell ran longer than its limit of %.3g s (waiting for approvals excluded) and was "
                        "interrupted",
                        (double)l->running->timeout_ms / 1000);
        else if (failed)
                snprintf(text, sizeof(text), "%s: %s", ename, evalue);
        raw = cg_msg_raw(m, 0, &raw_len);
        cg_sup_limits_of_cell(ss, failed, ename, evalue, raw, raw_len);
        status = "ok";
        if (failed)
                status = l->stop != STOP_NONE ? stop_status(l) : "error";
        ended = l->running->artifacts ? calloc(1, sizeof(*ended)) : NULL;
        if (ended) {
                begin_result(ss, l->running, status, count, text, failed && refused, &ended->body);
                add_end_event(ss, l->running, status, text);
                /* It stays the one that runs until its files are found. */
                cg_sup_clock_stop(l);
                uv_timer_stop(&l->grace);
                ended->reply = *m;
                m->n_frames = 0;
                l->running->ended = ended;
                cg_sup_artifacts_search(ss, l->running, on_artifacts, l);
                return;
        }
        c = take_running(l);
        send_result(ss, c, status, count, text, failed && refused, m);
        cell_free(c);
        run_next(l);
}

static void send_kernel_info(struct session *ss, struct cg_out *out, const char *name, struct cg_msg *m)
{
        cg_auto_json json_t *info = cg_sup_kernel_info(name, cg_frame_bytes(m->frames[1]));
        cg_auto_free char *text = cg_json_text(info, &out->raw_len);

        out->has_raw = true;
        out->raw = text ?: "{}";
        cg_sup_event_to_host(ss, out, json_pack("{s:s}", "status", "ok"), NULL);
}

void cg_sup_cells_request_reply(struct session *ss, struct cg_msg *m)
{
        struct shell *l = shell_running(ss, m->id, CELL_REQUEST);
        struct cg_out out = { .type = CG_HOST_REPLY, .id = m->id };
        const char *kernel;
        struct cell *c;
        bool answered;

        if (m->n_frames < 2) {
                cg_sup_kernel_violation(ss->kernel, "REPLY without a content");
                return;
        }
        if (l) {
                answered = l->timed_out;
                c = take_running(l);
        } else {
                c = TAILQ_FIRST(&ss->queue.unordered);
                while (c && c->id != m->id)
                        c = TAILQ_NEXT(c, entry);
                if (!c) {
                        cg_sup_kernel_violation(ss->kernel, "REPLY to a request that was not made");
                        return;
                }
                TAILQ_REMOVE(&ss->queue.unordered, c, entry);
                answered = c->answered;
        }
        kernel = cg_language_kernel(json_string_value(json_object_get(ss->options, "language")));
        if (!answered && kernel && strcmp(c->request, "kernel_info_request") == 0)
                send_kernel_info(ss, &out, kernel, m);
        else if (!answered)
                cg_sup_event(ss, &out, json_pack("{s:s}", "status", "ok"), m);
        cell_free(c);
        if (l)
                run_next(l);
        else
                arm_unordered_timer(ss);
}

bool cg_sup_cells_allows_stdin(struct session *ss, uint64_t id)
{
        const struct shell *l = shell_running(ss, id, CELL_EXECUTE);

        return l && l->running->allow_stdin;
}

void cg_sup_cells_wait_for_input(struct session *ss, uint64_t id)
{
        struct shell *l = shell_running(ss, id, CELL_EXECUTE);

        if (!l || l->stop != STOP_CANCEL)
                return;
        uv_timer_stop(&l->grace);
        l->stop = STOP_NONE;
        cg_sup_clock_start(l);
}

/* ------------------------------------------------------------------ ends of kernels */

static void end_shell(struct shell *l, const char *status, const char *text, const char *queued)
{
        struct session *ss = l->ss;
        struct cell *c;

        if (l->running && l->running->ended) {
                cg_sup_commands_end_own(ss, l, text);
        } else if (l->running) {
                bool reported = l->timed_out;

                c = take_running(l);
                if (!reported)
                        end_unanswered(ss, c, status, ss->queue.next_count, text);
                cell_free(c);
        }
        while ((c = TAILQ_FIRST(&l->queue)))
                drop_queued(l, c, queued);
}

void cg_sup_cells_end_all(struct session *ss, const char *status, const char *text, const char *queued)
{
        struct cell *c;

        for (struct shell *l = &ss->queue.main; l; l = l->next)
                end_shell(l, status, text, queued);
        while ((c = TAILQ_FIRST(&ss->queue.unordered))) {
                TAILQ_REMOVE(&ss->queue.unordered, c, entry);
                if (!c->answered)
                        end_unanswered(ss, c, status, 0, text);
                cell_free(c);
        }
        uv_timer_stop(&ss->queue.timer);
        ss->queue.next_count = 1;
}

/*
 * The running cell did not react to its interrupt. A request is answered and its kernel kept; for a
 * cell the kernel is replaced.
 */
static void on_grace(uv_timer_t *t)
{
        struct shell *l = t->data;
        struct session *ss = l->ss;
        struct kernel *k = ss->kernel;
        enum stop_reason why = l->stop;
        char text[300], limit[64] = "";
        bool paused;

        if (!l->running || !k)
                return;
        /* Reading from the kernel paused since the interrupt, because the host did not read. */
        paused = k->links.main.paused || k->links.pauses != l->pauses;
        l->pauses = k->links.pauses;
        if (paused && l->grace_restarts++ < MAX_GRACE_RESTARTS) {
                cg_sup_timer_start(&l->grace, on_grace, GRACE_MS);
                return;
        }
        if (l->running->kind == CELL_REQUEST && why == STOP_TIMEOUT) {
                send_error_reply(ss, l->running, "timeout", "the kernel did not answer in time");
                l->timed_out = true;
                return;
        }
        if (l->interrupts < GRACE_ATTEMPTS) {
                send_interrupt(l);
                return;
        }
        if (why == STOP_TIMEOUT)
                snprintf(limit, sizeof(limit), "ran longer than its limit of %.3g s and ",
                         (double)l->running->timeout_ms / 1000);
        snprintf(
                text, sizeof(text),
                "the cell %sdid not react to %d interrupts within %d s: its kernel was replaced, its state is"
                " lost",
                limit, GRACE_ATTEMPTS, GRACE_ATTEMPTS * GRACE_MS / 1000);
        ss->sup->upper.session->replace_kernel(ss, l, stop_status(l), text);
}

void cg_sup_cells_end_replaced(struct session *ss, struct shell *l, const char *status, const char *text)
{
        static const char queued[] = "the kernel was replaced before this cell ran";

        end_shell(l, status, text, queued);
        cg_sup_cells_end_all(ss, "kernel_died",
                             "the kernel was replaced, because another cell did not react to its interrupt",
                             queued);
}
