/* cellgate-supervisor: sessions. Cells wait in a queue and run one at a time; each ends in exactly one RESULT. */
#include "supervisor/supervisor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* After an interrupt a cell has so long; then its kernel is replaced. */
#define GRACE_MS 2000
/* A kernel that dies sooner than this after its start, so many times in a row, ends its session. */
#define QUICK_MS 2000
#define MAX_QUICK 5
#define DEFAULT_START_MS 30000
/* What an event costs beside its bytes, so that many tiny ones are bounded as well. */
#define EVENT_COST 64

static void run_next(struct session *ss);

/* ------------------------------------------------------------------ sending events */

static void pause_if_full(struct session *ss)
{
        kernel_pause(ss->kernel, ss->unread >= CG_EVENT_WINDOW);
}

void session_sent(struct session *ss, size_t bytes)
{
        ss->unread += bytes + EVENT_COST;
        pause_if_full(ss);
}

static void send_text(struct session *ss, uint16_t type, uint64_t cell, const char *text)
{
        struct cg_out out = { .type = type, .session = ss->number, .id = cell };

        host_send(ss->host, &out, json_pack("{s:o}", "text", text_json(text)));
        session_sent(ss, strlen(text));
}

void session_notice(struct session *ss, const char *fmt, ...)
{
        char text[1000];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        send_text(ss, CG_HOST_NOTICE, ss->running ? ss->running->id : 0, text);
}

static void send_result(struct session *ss, uint64_t cell, const char *status, int64_t count, const char *text, bool refused)
{
        struct cg_out out = { .type = CG_HOST_RESULT, .session = ss->number, .id = cell };

        host_send(ss->host, &out, json_pack("{s:s, s:I, s:o, s:b}", "status", status, "execution_count", (json_int_t)count,
                                            "text", text_json(text ? text : ""), "refused", refused));
        session_sent(ss, text ? strlen(text) : 0);
}

static void send_done(struct session *ss, uint64_t request)
{
        struct cg_out out = { .type = CG_HOST_DONE, .session = ss->number, .id = request };

        host_send(ss->host, &out, json_object());
}

/* ------------------------------------------------------------------ the cell's clock */

static void on_clock(uv_timer_t *t);

static void clock_start(struct session *ss)
{
        if (!ss->running || !ss->running->timeout_ms || ss->clock_started_ms >= 0 || ss->stop != STOP_NONE)
                return;
        ss->clock_started_ms = cg_now_ms();
        uv_update_time(&ss->sup->loop);
        uv_timer_start(&ss->clock, on_clock, (uint64_t)(ss->left_ms > 0 ? ss->left_ms : 1), 0);
}

static void clock_stop(struct session *ss)
{
        if (ss->clock_started_ms < 0)
                return;
        uv_timer_stop(&ss->clock);
        ss->left_ms -= cg_now_ms() - ss->clock_started_ms;
        ss->clock_started_ms = -1;
}

void session_asks_changed(struct session *ss)
{
        if (ss->asks)
                clock_stop(ss);
        else
                clock_start(ss);
}

static void on_grace(uv_timer_t *t);

/* Interrupts the running cell; a second call while that is under way changes nothing. */
static void stop_cell(struct session *ss, enum stop_reason why)
{
        struct cg_out out = { .type = CG_KERNEL_INTERRUPT_REQUEST, .id = ss->running->id };

        if (ss->stop != STOP_NONE)
                return;
        ss->stop = why;
        clock_stop(ss);
        kernel_send(ss->kernel, &out, NULL);
        uv_update_time(&ss->sup->loop);
        uv_timer_start(&ss->grace, on_grace, GRACE_MS, 0);
}

static void on_clock(uv_timer_t *t)
{
        struct session *ss = t->data;

        ss->clock_started_ms = -1;
        ss->left_ms = 0;
        if (ss->running)
                stop_cell(ss, STOP_TIMEOUT);
}

static const char *stop_status(const struct session *ss)
{
        return ss->stop == STOP_TIMEOUT ? "timeout" : "cancelled";
}

/* ------------------------------------------------------------------ cells */

static void cell_free(struct cell *c)
{
        if (c)
                free(c->code);
        free(c);
}

/* The one place where a cell ends. */
static void finish_cell(struct session *ss, const char *status, int64_t count, const char *text, bool refused)
{
        struct cell *c = ss->running;

        clock_stop(ss);
        uv_timer_stop(&ss->grace);
        ss->running = NULL;
        ss->stop = STOP_NONE;
        ss->input_wanted = false;
        send_result(ss, c->id, status, count, text, refused);
        cell_free(c);
}

static void cancel_queue(struct session *ss, const char *text)
{
        while (ss->queue) {
                struct cell *c = ss->queue;

                ss->queue = c->next;
                ss->n_queue--;
                send_result(ss, c->id, "cancelled", 0, text, false);
                cell_free(c);
        }
        ss->queue_tail = &ss->queue;
}

static void run_next(struct session *ss)
{
        struct cg_out out = { .type = CG_KERNEL_EXECUTE_REQUEST, .has_raw = true };
        struct cell *c = ss->queue;

        if (ss->running || !c || !ss->kernel || ss->kernel->state != K_READY || ss->warming)
                return;
        ss->queue = c->next;
        if (!ss->queue)
                ss->queue_tail = &ss->queue;
        ss->n_queue--;
        c->next = NULL;
        ss->running = c;
        ss->stop = STOP_NONE;
        ss->left_ms = c->timeout_ms;
        ss->clock_started_ms = -1;
        out.id = c->id;
        out.raw = c->code;
        out.raw_len = c->len;
        kernel_send(ss->kernel, &out, json_pack("{s:b, s:b, s:b}", "silent", c->silent, "store_history", !c->silent,
                                                "allow_stdin", c->allow_stdin));
        session_asks_changed(ss);
}

static void handle_execute(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct cell *c = NULL;
        const char *code;
        struct cg_err err;

        if (ss->n_queue >= CG_MAX_QUEUE) {
                cg_fail(&err, CG_E_LIMIT, "%d cells wait already", CG_MAX_QUEUE);
                goto fail;
        }
        c = calloc(1, sizeof(*c));
        if (!c) {
                cg_fail(&err, CG_E_NOMEM, "cell");
                goto fail;
        }
        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "timeout_ms", 0, &c->timeout_ms, &err) < 0 ||
            cg_json_bool(body, "silent", false, &c->silent, &err) < 0 ||
            cg_json_bool(body, "allow_stdin", false, &c->allow_stdin, &err) < 0)
                goto fail;
        code = cg_msg_raw(m, 0, &c->len);
        c->code = malloc(c->len + 1);
        if (!c->code) {
                cg_fail(&err, CG_E_NOMEM, "cell");
                goto fail;
        }
        memcpy(c->code, code, c->len);
        c->code[c->len] = '\0';
        c->id = m->id;
        *ss->queue_tail = c;
        ss->queue_tail = &c->next;
        ss->n_queue++;
        run_next(ss);
        return;
fail:
        cell_free(c);
        send_result(ss, m->id, "cancelled", 0, err.msg, false);
}

static void handle_cancel(struct session *ss, uint64_t id)
{
        if (ss->running && (id == 0 || ss->running->id == id)) {
                stop_cell(ss, STOP_CANCEL);
                return;
        }
        for (struct cell **p = &ss->queue; *p; p = &(*p)->next) {
                struct cell *c = *p;

                if (c->id != id)
                        continue;
                *p = c->next;
                if (!c->next)
                        ss->queue_tail = p;
                ss->n_queue--;
                send_result(ss, c->id, "cancelled", 0, "cancelled before it ran", false);
                cell_free(c);
                return;
        }
}

/* ------------------------------------------------------------------ what the kernel says */

static const struct {
        uint16_t kernel, host;
} relayed[] = {
        { CG_KERNEL_STREAM, CG_HOST_STREAM },
        { CG_KERNEL_DISPLAY_DATA, CG_HOST_DISPLAY_DATA },
        { CG_KERNEL_UPDATE_DISPLAY_DATA, CG_HOST_UPDATE_DISPLAY_DATA },
        { CG_KERNEL_EXECUTE_RESULT, CG_HOST_EXECUTE_RESULT },
        { CG_KERNEL_CLEAR_OUTPUT, CG_HOST_CLEAR_OUTPUT },
        { CG_KERNEL_ERROR, CG_HOST_ERROR },
        { CG_KERNEL_INPUT_REQUEST, CG_HOST_INPUT_REQUEST },
};

static void handle_reply(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        const char *status = NULL, *ename, *evalue;
        char text[1200];
        int64_t count;
        bool refused, failed;
        struct cg_err err;

        if (!ss->running || ss->running->id != m->id) {
                kernel_violation(ss->kernel, "EXECUTE_REPLY for a cell that does not run");
                return;
        }
        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "status", NULL, &status, &err) < 0 ||
            cg_json_str(body, "ename", "", &ename, &err) < 0 || cg_json_str(body, "evalue", "", &evalue, &err) < 0 ||
            cg_json_int(body, "execution_count", 0, &count, &err) < 0 ||
            cg_json_bool(body, "refused", false, &refused, &err) < 0 || !status) {
                kernel_violation(ss->kernel, status ? err.msg : "EXECUTE_REPLY without a status");
                return;
        }
        failed = strcmp(status, "ok") != 0;
        if (failed && ss->stop == STOP_TIMEOUT)
                snprintf(text, sizeof(text), "the cell ran longer than its limit of %.3g s (waiting for approvals excluded) and was "
                         "interrupted", (double)ss->running->timeout_ms / 1000);
        else if (failed)
                snprintf(text, sizeof(text), "%s: %s", ename, evalue);
        else
                text[0] = '\0';
        finish_cell(ss, !failed ? "ok" : ss->stop != STOP_NONE ? stop_status(ss) : "error", count, text, failed && refused);
        run_next(ss);
}

void session_kernel_message(struct session *ss, struct cg_msg *m)
{
        struct cg_out out = { .session = ss->number, .id = m->id, .flags = m->flags & CG_FLAG_STDERR };
        size_t len;

        if (spare_message(ss, m))
                return;
        if (m->type == CG_KERNEL_EXECUTE_REPLY) {
                handle_reply(ss, m);
                return;
        }
        if (m->type == CG_KERNEL_INPUT_REQUEST) {
                if (!ss->running || ss->running->id != m->id || !ss->running->allow_stdin || ss->input_wanted) {
                        kernel_violation(ss->kernel, "INPUT_REQUEST that is not allowed now");
                        return;
                }
                ss->input_wanted = true;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(relayed); i++) {
                if (relayed[i].kernel == m->type) {
                        out.type = relayed[i].host;
                        cg_msg_raw(m, 0, &len);
                        host_forward(ss->host, &out, m);
                        session_sent(ss, len);
                        return;
                }
        }
}

static void answer_start(struct session *ss, const struct cg_err *err)
{
        struct kernel *k = ss->kernel;
        uint64_t request = ss->opening ? ss->opening : ss->resetting;
        struct cg_out out = { .type = CG_HOST_SESSION_OPENED, .session = ss->number, .id = request };

        uv_timer_stop(&ss->start_timer);
        if (!request)
                return;
        if (err)
                host_failed(ss->host, ss->number, request, err);
        else if (ss->opening)
                host_send(ss->host, &out, json_pack("{s:s, s:{s:b, s:O, s:s, s:s}}", "id", ss->id, "info", "sandbox",
                                                    !json_is_false(json_object_get(ss->options, "sandbox")), "layers", k->layers,
                                                    "python", k->python, "ipython", k->ipython));
        else
                send_done(ss, request);
        ss->opening = ss->resetting = 0;
}

void session_kernel_ready(struct session *ss)
{
        bool first = !ss->opened;

        answer_start(ss, NULL);
        ss->opened = true;
        if (spare_ready(ss))
                return;
        if (first)
                spare_plan(ss);
        pause_if_full(ss);
        run_next(ss);
}

void session_warm(struct session *ss)
{
        if (!ss->host)
                return;
        answer_start(ss, NULL);
        spare_plan(ss);
        run_next(ss);
}

void session_kernel_failed(struct session *ss, const struct cg_err *err)
{
        bool first = !ss->opened;
        char text[1100];

        if (spare_ended(ss)) {
                cg_log(&ss->sup->log, CG_LOG_WARN, "no spare: %s", err->msg);
                return;
        }
        answer_start(ss, err);
        snprintf(text, sizeof(text), "no kernel could be started: %s", err->msg);
        session_end(ss, first ? NULL : text);
}

static void start_again(struct session *ss)
{
        struct cg_err err;

        broker_detach(ss->sup, ss->number, true);
        if (kernel_start(ss, &err) < 0)
                session_kernel_failed(ss, &err);
}

void session_kernel_dead(struct session *ss, const char *how)
{
        struct cg_err err;
        char text[700];

        if (spare_ended(ss))
                return;
        broker_drop_asks(ss, "the kernel ended");
        if (!ss->opened || ss->resetting) {
                cg_fail(&err, CG_E_CLOSED, "the kernel ended while it started: %s", how);
                session_kernel_failed(ss, &err);
                return;
        }
        ss->quick_deaths = cg_now_ms() - ss->kernel_started_ms < QUICK_MS && !ss->running ? ss->quick_deaths + 1 : 0;
        snprintf(text, sizeof(text), "the kernel ended: %s; its state is lost", how);
        if (ss->running)
                finish_cell(ss, "kernel_died", 0, text, false);
        cancel_queue(ss, "the kernel ended before this cell ran");
        send_text(ss, CG_HOST_KERNEL_DIED, 0, text);
        if (ss->quick_deaths >= MAX_QUICK)
                session_end(ss, "its kernels end again and again right after they start");
        else
                start_again(ss);
}

/* The cell did not react to its interrupt. */
static void on_grace(uv_timer_t *t)
{
        struct session *ss = t->data;
        char text[300];

        if (!ss->running || !ss->kernel)
                return;
        if (ss->stop == STOP_TIMEOUT)
                snprintf(text, sizeof(text), "the cell ran longer than its limit of %.3g s and did not react to the interrupt "
                         "within %d s: its kernel was replaced, its state is lost", (double)ss->running->timeout_ms / 1000,
                         GRACE_MS / 1000);
        else
                snprintf(text, sizeof(text), "the cell did not react to the interrupt within %d s: its kernel was replaced, its "
                         "state is lost", GRACE_MS / 1000);
        kernel_end(ss->kernel);
        broker_drop_asks(ss, "the kernel was replaced");
        finish_cell(ss, stop_status(ss), 0, text, false);
        cancel_queue(ss, "the kernel was replaced before this cell ran");
        start_again(ss);
}

/* ------------------------------------------------------------------ requests of the host */

static void on_start_timeout(uv_timer_t *t)
{
        struct session *ss = t->data;
        struct cg_err err;

        cg_fail(&err, CG_E_TIMEDOUT, "the kernel did not start in time; the supervisor's log may say why");
        kernel_end(ss->kernel);
        session_kernel_failed(ss, &err);
}

static void arm_start_timer(struct session *ss, int64_t timeout_ms)
{
        uv_update_time(&ss->sup->loop);
        uv_timer_start(&ss->start_timer, on_start_timeout, (uint64_t)(timeout_ms > 0 ? timeout_ms : DEFAULT_START_MS), 0);
}

static void handle_reset(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        int64_t timeout_ms = 0;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "timeout_ms", 0, &timeout_ms, &err) < 0) {
                host_failed(ss->host, ss->number, m->id, &err);
                return;
        }
        if (ss->resetting) {
                cg_fail(&err, CG_E_STATE, "a reset is under way");
                host_failed(ss->host, ss->number, m->id, &err);
                return;
        }
        kernel_end(ss->kernel);
        broker_drop_asks(ss, "the session was reset");
        if (ss->running)
                finish_cell(ss, "cancelled", 0, "the session was reset", false);
        cancel_queue(ss, "the session was reset");
        ss->quick_deaths = 0;
        ss->resetting = m->id;
        arm_start_timer(ss, timeout_ms);
        start_again(ss);
}

static void handle_servers(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        json_t *servers;
        int64_t timeout_ms;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "timeout_ms", 60000, &timeout_ms, &err) < 0)
                goto fail;
        servers = json_object_get(body, "servers");
        if (!json_is_object(servers)) {
                cg_fail(&err, CG_E_INVAL, "\"servers\" must be an object");
                goto fail;
        }
        if (json_object_size(servers) + json_object_size(json_object_get(ss->servers, "all")) > CG_MAX_SERVERS) {
                cg_fail(&err, CG_E_LIMIT, "at most %d MCP servers in a session", CG_MAX_SERVERS);
                goto fail;
        }
        if (json_object_get(ss->servers, "pending")) {
                cg_fail(&err, CG_E_STATE, "MCP servers are being added already");
                goto fail;
        }
        broker_servers(ss, json_incref(servers), timeout_ms > 0 ? timeout_ms : 60000, m->id);
        return;
fail:
        host_failed(ss->host, ss->number, m->id, &err);
}

static void handle_decision(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        const char *reason = "";
        bool accept = false;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_bool(body, "accept", false, &accept, &err) < 0 ||
            cg_json_str(body, "reason", "", &reason, &err) < 0) {
                accept = false;
                reason = "the host's decision could not be read";
        }
        broker_decide(ss, m->id, accept, reason);
}

static void handle_input(struct session *ss, struct cg_msg *m)
{
        struct cg_out out = { .type = CG_KERNEL_INPUT_REPLY, .id = m->id, .has_raw = true };

        if (!ss->input_wanted || !ss->running || ss->running->id != m->id)
                return;
        ss->input_wanted = false;
        out.body = cg_msg_body(m, &out.body_len);
        out.raw = cg_msg_raw(m, 0, &out.raw_len);
        kernel_send(ss->kernel, &out, NULL);
}

static void handle_credit(struct session *ss, uint64_t bytes)
{
        ss->unread = bytes < ss->unread ? ss->unread - (size_t)bytes : 0;
        pause_if_full(ss);
}

void session_message(struct session *ss, struct cg_msg *m)
{
        switch (m->type) {
        case CG_HOST_EXECUTE:
                handle_execute(ss, m);
                break;
        case CG_HOST_CANCEL:
                handle_cancel(ss, m->id);
                break;
        case CG_HOST_DECISION:
                handle_decision(ss, m);
                break;
        case CG_HOST_INPUT_REPLY:
                handle_input(ss, m);
                break;
        case CG_HOST_CREDIT:
                handle_credit(ss, m->id);
                break;
        case CG_HOST_SESSION_RESET:
                handle_reset(ss, m);
                break;
        case CG_HOST_SERVERS_ADD:
                handle_servers(ss, m);
                break;
        case CG_HOST_SESSION_END:
                send_done(ss, m->id);
                session_end(ss, NULL);
                break;
        default:
                break;
        }
}

/* ------------------------------------------------------------------ life */

static void session_release(struct session *ss)
{
        struct cg_err err;

        if (ss->dir && cg_remove_tree(ss->dir, &err) < 0)
                cg_log(&ss->sup->log, CG_LOG_WARN, "%s", err.msg);
        json_decref(ss->options);
        json_decref(ss->servers);
        free(ss->dir);
        free(ss);
}

static void on_timer_closed(uv_handle_t *h)
{
        struct session *ss = h->data;

        if (--ss->open_timers == 0)
                session_release(ss);
}

static void init_timers(struct session *ss)
{
        uv_timer_t *timers[] = { &ss->clock, &ss->grace, &ss->start_timer };

        for (size_t i = 0; i < CG_ARRAY_LEN(timers); i++) {
                uv_timer_init(&ss->sup->loop, timers[i]);
                timers[i]->data = ss;
                ss->open_timers++;
        }
}

static void close_timers(struct session *ss)
{
        uv_close((uv_handle_t *)&ss->clock, on_timer_closed);
        uv_close((uv_handle_t *)&ss->grace, on_timer_closed);
        uv_close((uv_handle_t *)&ss->start_timer, on_timer_closed);
}

void session_end(struct session *ss, const char *why)
{
        struct sup *s = ss->sup;

        if (ss->ending)
                return;
        ss->ending = true;
        broker_drop_asks(ss, "the session ended");
        kernel_end(ss->kernel);
        if (ss->running)
                finish_cell(ss, "cancelled", 0, "the session ended", false);
        cancel_queue(ss, "the session ended");
        if (why)
                send_text(ss, CG_HOST_SESSION_CLOSED, 0, why);
        broker_detach(s, ss->number, false);
        s->sessions[ss->number % CG_MAX_SESSIONS] = NULL;
        s->n_sessions--;
        cg_log(&s->log, CG_LOG_INFO, "session %llu ended%s%s", (unsigned long long)ss->number, why ? ": " : "", why ? why : "");
        close_timers(ss);
}

void session_of_host_gone(struct sup *s, struct host *h)
{
        spare_of_host_gone(s, h);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = s->sessions[i];

                if (ss && ss->host == h) {
                        ss->host = NULL;
                        session_end(ss, NULL);
                }
        }
}

struct session *session_find(struct sup *s, const struct host *h, uint64_t number)
{
        struct session *ss = s->sessions[number % CG_MAX_SESSIONS];

        return ss && ss->number == number && ss->host == h ? ss : NULL;
}

static int take_number(struct session *ss, struct cg_err *err)
{
        struct sup *s = ss->sup;

        if (s->n_sessions >= CG_MAX_SESSIONS - 1)
                return cg_fail(err, CG_E_LIMIT, "%zu sessions are open, no more are possible", s->n_sessions);
        do
                ss->number = ++s->next_session;
        while (s->sessions[ss->number % CG_MAX_SESSIONS]);
        return 0;
}

static int make_id(struct session *ss, struct cg_err *err)
{
        unsigned char raw[16];

        if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
                return cg_fail_errno(err, "getrandom");
        for (size_t i = 0; i < sizeof(raw); i++)
                sprintf(ss->id + 2 * i, "%02x", raw[i]);
        return 0;
}

static int make_dir(struct session *ss, struct cg_err *err)
{
        char path[160];

        if (asprintf(&ss->dir, "%s/s%llu", ss->sup->dir, (unsigned long long)ss->number) < 0) {
                ss->dir = NULL;
                return cg_fail(err, CG_E_NOMEM, "session");
        }
        snprintf(path, sizeof(path), "%s/lib", ss->dir);
        if (mkdir(ss->dir, 0700) < 0 || mkdir(path, 0755) < 0)
                return cg_fail_errno(err, "cannot make %s", path);
        return 0;
}

static int check_strings(const json_t *o, const char *key, struct cg_err *err)
{
        json_t *list = json_object_get(o, key), *v;
        size_t i;

        if (list && !json_is_array(list))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be a list", key);
        json_array_foreach(list, i, v)
                if (!json_is_string(v))
                        return cg_fail(err, CG_E_INVAL, "\"%s\" must be a list of strings", key);
        return 0;
}

static int check_options(struct session *ss, struct cg_err *err)
{
        static const char *const numbers[] = { "memory_bytes", "processes", "file_bytes" };
        const char *workspace;
        struct stat st;
        int64_t n;

        if (cg_json_str(ss->options, "workspace", NULL, &workspace, err) < 0)
                return -1;
        if (!workspace || workspace[0] != '/')
                return cg_fail(err, CG_E_INVAL, "\"workspace\" must be an absolute path");
        if (stat(workspace, &st) < 0)
                return cg_fail_errno(err, "workspace %s", workspace);
        if (!S_ISDIR(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "workspace %s is not a folder", workspace);
        for (size_t i = 0; i < CG_ARRAY_LEN(numbers); i++)
                if (cg_json_int(ss->options, numbers[i], 0, &n, err) < 0)
                        return -1;
        if (cg_json_int(ss->options, "approval_timeout_ms", 0, &ss->approval_timeout_ms, err) < 0 ||
            cg_json_int(ss->options, "timeout_ms", 0, &ss->start_timeout_ms, err) < 0 ||
            check_strings(ss->options, "env", err) < 0 || check_strings(ss->options, "python_path", err) < 0 ||
            check_strings(ss->options, "hide", err) < 0)
                return -1;
        return 0;
}

struct session *session_make(struct sup *s, struct host *h, json_t *options, uint64_t request, struct cg_err *err)
{
        struct session *ss = calloc(1, sizeof(*ss));

        if (!ss) {
                cg_fail(err, CG_E_NOMEM, "session");
                return NULL;
        }
        ss->sup = s;
        ss->host = h;
        ss->queue_tail = &ss->queue;
        ss->clock_started_ms = -1;
        ss->opening = request;
        ss->options = json_incref(options);
        ss->servers = json_pack("{s:{}}", "all");
        if (!ss->servers || check_options(ss, err) < 0 || take_number(ss, err) < 0 || make_id(ss, err) < 0 ||
            make_dir(ss, err) < 0) {
                session_release(ss);
                return NULL;
        }
        s->sessions[ss->number % CG_MAX_SESSIONS] = ss;
        s->n_sessions++;
        init_timers(ss);
        arm_start_timer(ss, ss->start_timeout_ms);
        if (kernel_start(ss, err) < 0) {
                ss->opening = 0; /* the caller says it */
                session_end(ss, NULL);
                return NULL;
        }
        return ss;
}

void session_adopt(struct session *ss, struct host *h, json_t *options, uint64_t request)
{
        struct cg_err err;

        ss->host = h;
        ss->opening = request;
        json_decref(ss->options);
        ss->options = json_incref(options);
        if (check_options(ss, &err) < 0) { /* the workspace may have gone since */
                answer_start(ss, &err);
                session_end(ss, NULL);
                return;
        }
        if (!ss->opened || ss->warming)
                return; /* answered when it is ready */
        answer_start(ss, NULL);
        spare_plan(ss);
}

void session_new(struct host *h, const struct cg_msg *m)
{
        cg_auto_json json_t *options = NULL;
        struct session *spare;
        struct cg_err err;

        if (cg_msg_json(m, &options, &err) < 0) {
                host_failed(h, 0, m->id, &err);
                return;
        }
        spare = spare_take(h, options);
        if (spare)
                session_adopt(spare, h, options, m->id);
        else if (!session_make(h->sup, h, options, m->id, &err))
                host_failed(h, 0, m->id, &err);
}
