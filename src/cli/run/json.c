/*
 * `cellgate run --json`: events as lines on standard output, cells and decisions as lines on
 * standard input. docs/cli-json.md is its description. Runs in the command `cellgate`; the program
 * at the other end is the host, and trusted, but its lines are checked all the same: one that is
 * not understood decides nothing.
 *
 * Every line is ASCII and one JSON object. Text from a kernel or an MCP server is in separate
 * members ("content", "arguments", "text"), so that it can never set a member of ours.
 */
#include "cli/run/run.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "cli/run/cell_queue.h"
#include "cli/run/json_int.h"

/* A cell of the largest size, in JSON that escapes little of it. */
#define MAX_LINE ((size_t)CG_MAX_CODE + CG_MAX_BODY)

static const char input_ended[] = "the host's input has ended: nobody can approve";

/* ------------------------------------------------------------------ events */

/* The host's id of the running cell; NULL: no id, or the event is of no cell or an earlier one. */
static const char *id_of(const struct cg_run *run, uint64_t cell)
{
        const struct cg_queued_cell *c = cg_json_of(run)->running;

        if (!c || !cell || cell != run->cell)
                return NULL;
        return c->id;
}

static int write_event(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        struct cg_buf l;
        const char *artifacts;
        size_t len;

        cg_json_line_begin(&l, cg_event_type_name(cg_event_type(e)), cg_event_cell(e));
        cg_json_line_json(&l, "id", id_of(run, cg_event_cell(e)));
        cg_json_add_event(&l, e, cg_json_of(run)->question);
        if (cg_event_type(e) == CG_EVENT_RESULT && cg_json_of(run)->running &&
            cg_json_of(run)->running->cell.variables)
                cg_json_add_variables(&l, e);
        artifacts = cg_event_artifacts(e, &len);
        if (artifacts)
                cg_json_line_object(&l, "artifacts", artifacts, len);
        return cg_json_line_end(run, &l, err);
}

/* The answer to a line about variables. */
static int write_variables(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct asked_variables a;
        struct cg_buf l;
        const char *content;
        size_t i = 0, len;
        int r;

        while (i < j->n_variables && j->variables[i].number != cg_event_cell(e))
                i++;
        if (i == j->n_variables)
                return 0;
        a = j->variables[i];
        j->variables[i] = j->variables[--j->n_variables];
        content = cg_event_json(e, &len);
        cg_json_line_answer(&l, "variables", a.id, a.line);
        cg_json_line_object(&l, "content", content, len);
        r = cg_json_line_end(run, &l, err);
        free(a.id);
        return r;
}

static int json_event(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        bool asks = cg_event_type(e) == CG_EVENT_INPUT_REQUEST;
        int r;

        if (cg_event_type(e) == CG_EVENT_COMMAND_OUTPUT || cg_event_type(e) == CG_EVENT_COMMAND_RESULT) {
                r = cg_beside_event(j->beside, e, err);
                cg_event_free(e);
                return r;
        }
        if (cg_event_type(e) == CG_EVENT_REPLY) {
                r = write_variables(run, e, err);
                cg_event_free(e);
                return r;
        }
        j->question += asks;
        j->question_open = asks || (j->question_open && cg_event_type(e) != CG_EVENT_INPUT_CLOSED &&
                                    !(cg_event_type(e) == CG_EVENT_RESULT && cg_event_cell(e) == run->cell));
        r = write_event(run, e, err);
        if (cg_event_type(e) == CG_EVENT_APPROVAL_CLOSED)
                cg_json_forget(j, cg_event_approval(e));
        if (r == 0 && asks && j->eof)
                r = cg_session_input(run->session, NULL, 0, err);
        if (cg_event_type(e) == CG_EVENT_RESULT && cg_event_cell(e) == run->cell)
                j->failed = cg_event_status(e) != CG_STATUS_OK;
        cg_run_result(run, e);
        cg_event_free(e);
        return r;
}

static int json_decided(struct cg_run *run, const struct cg_event *e, bool accept, const char *why,
                        struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_begin(&l, "approval_decided", cg_event_cell(e));
        cg_json_line_json(&l, "id", id_of(run, cg_event_cell(e)));
        cg_json_line_bool(&l, "accept", accept);
        if (why)
                cg_json_line_text(&l, "reason", why);
        cg_json_add_call(&l, e);
        return cg_json_line_end(run, &l, err);
}

/* The host's input has ended, or the run was interrupted. */
static int refuse_all(struct cg_run *run, const char *why, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        int r = 0;

        while (j->n_asked) {
                struct cg_event *e = j->asked[--j->n_asked];

                r = CG_MIN(r, cg_event_refuse(run->session, e, why, err));
                cg_event_free(e);
        }
        return r;
}

static int json_ask(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct cg_event **grown;
        int r;

        if (j->eof) {
                r = cg_event_refuse(run->session, e, input_ended, err);
                if (r == 0 && cg_event_type(e) == CG_EVENT_APPROVAL_REQUEST) /* DENIED reports connections */
                        r = json_decided(run, e, false, input_ended, err);
                cg_event_free(e);
                return r;
        }
        grown = realloc(j->asked, (j->n_asked + 1) * sizeof(*grown));
        if (!grown) {
                cg_event_free(e);
                return cg_fail(err, CG_E_NOMEM, "approvals");
        }
        j->asked = grown;
        j->asked[j->n_asked++] = e;
        return write_event(run, e, err);
}

/* ------------------------------------------------------------------ cells, interrupts, resets */

/* A cell that was in the queue ends without having run. Takes @c. */
static int drop(struct cg_run *run, struct cg_queued_cell *c, const char *why, struct cg_err *err)
{
        struct cg_buf l;
        int r;

        cg_json_line_answer(&l, "result", c->id, c->line);
        cg_json_add_result(&l, CG_STATUS_CANCELLED, 0, false, why, strlen(why));
        r = cg_json_line_end(run, &l, err);
        cg_queued_cell_free(c);
        return r;
}

static int drop_all(struct cg_run *run, const char *why, struct cg_err *err)
{
        struct cg_queued_cell *c;
        int r = 0;

        while (r == 0 && (c = cg_cell_queue_take(&cg_json_of(run)->queue, NULL)))
                r = drop(run, c, why, err);
        return r;
}

static int execute(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct cg_err why;

        if (j->ending)
                return cg_json_input_error(run, "no cell is accepted after {\"end\"}", err);
        if (cg_cell_queue_add(&j->queue, o, j->line, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        j->stay = true;
        return 0;
}

/* true, {} or an object with no other member than @name. */
static bool is_plain(const json_t *v, const char *name)
{
        return json_is_true(v) ||
               (json_is_object(v) && json_object_size(v) == (json_object_get(v, name) != NULL));
}

static int interrupt_cell(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        const json_t *id = json_object_get(o, "id"), *all = json_object_get(o, "all");
        const char *name = j->line_id;
        struct cg_queued_cell *c;
        struct cg_err why;

        if (!(is_plain(o, "id") || is_plain(o, "all")) || (id && !name) || (all && !json_is_true(all)))
                return cg_json_input_error(
                        run,
                        "to interrupt is {\"interrupt\": {}}, {\"interrupt\": {\"id\": ID}} or "
                        "{\"interrupt\": {\"all\": true}}",
                        err);
        if (all && drop_all(run, "interrupted before it ran", err) < 0)
                return -1;
        if (name && !(j->running && j->running->id && strcmp(j->running->id, name) == 0)) {
                c = cg_cell_queue_take(&j->queue, name);
                if (!c)
                        return cg_json_input_error(run, "no cell with this id runs or waits", err);
                return drop(run, c, "interrupted before it ran", err);
        }
        if (run->cell && !run->done)
                return cg_json_outcome(run, cg_session_cancel(run->session, run->cell, &why), &why, err);
        return all ? 0 : cg_json_input_error(run, "no cell runs", err);
}

static int write_reset(struct cg_run *run, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct cg_buf l;

        cg_json_line_answer(&l, "reset", j->reset_id, j->reset_line);
        free(j->reset_id);
        j->reset_id = NULL;
        j->reset_line = 0;
        return cg_json_line_end(run, &l, err);
}

/* The kernel is replaced now. The answer comes after the events of the old kernel's cell. */
static int reset(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct cg_err why;

        if (!is_plain(o, "id") || (json_object_get(o, "id") && !j->line_id))
                return cg_json_input_error(run, "to reset is {\"reset\": {}} or {\"reset\": {\"id\": ID}}",
                                           err);
        if (j->reset_line && write_reset(run, err) < 0) /* each one is answered */
                return -1;
        if (drop_all(run, "the kernel was reset before it ran", err) < 0)
                return -1;
        if (cg_session_reset(run->session, 0, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        j->reset_id = CG_STEAL(j->line_id);
        j->reset_line = j->line;
        return 0;
}

static int end(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        if (!is_plain(o, ""))
                return cg_json_input_error(run, "to end is {\"end\": {}}", err);
        cg_json_of(run)->ending = true;
        return 0;
}

static int json_note(struct cg_run *run, const char *text, struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_begin(&l, "notice", 0);
        cg_json_line_text(&l, "text", text);
        return cg_json_line_end(run, &l, err);
}

/* Reports that cells of the command line were not run, once. */
static int report_not_run(struct cg_run *run, struct cg_err *err)
{
        static const char text[] = "a cell of the command line failed: the cells after it are not run";

        cg_json_of(run)->not_run_reported = true;
        if (!cg_json_of(run)->failed || run->index + 1 >= run->opts.cells.n)
                return 0;
        return json_note(run, text, err);
}

/* Called between two cells. */
static int json_next(struct cg_run *run, const struct cg_cell **cell, bool *wait, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        /* A reset dropped what was queued before it: what is queued now is for the new kernel. */
        bool failed = j->running && j->running->stop_on_error && j->failed && !j->reset_line;

        j->running = cg_queued_cell_free(j->running);
        *cell = NULL;
        *wait = false;
        if (failed && drop_all(run, "not run: an earlier cell failed", err) < 0)
                return -1;
        if (j->reset_line && write_reset(run, err) < 0)
                return -1;
        if (!j->stay)
                return 0;
        if (!j->not_run_reported && report_not_run(run, err) < 0)
                return -1;
        j->running = cg_cell_queue_take(&j->queue, NULL);
        if (j->running)
                *cell = &j->running->cell;
        *wait = (!j->ending && !j->eof) || cg_beside_busy(j->beside) || j->n_variables;
        return 0;
}

static int json_started(struct cg_run *run, struct cg_err *err)
{
        const struct cg_queued_cell *c = cg_json_of(run)->running;
        struct cg_buf l;

        if (!c)
                return 0;
        cg_json_line_begin(&l, "started", run->cell);
        cg_json_line_json(&l, "id", c->id);
        cg_json_line_int(&l, "line", (int64_t)c->line);
        return cg_json_line_end(run, &l, err);
}

/* A line about commands or files. */
static int beside(struct cg_run *run, const char *name, const json_t *v, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        struct cg_err why;

        if (j->ending)
                return cg_json_input_error(
                        run, "no command and no file operation is accepted after {\"end\"}", err);
        if (cg_beside_take(j->beside, name, v, j->line, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        j->stay = true;
        return 0;
}

static int take_line(struct cg_run *run, const char *text, size_t len, struct cg_err *err)
{
        static const struct {
                const char *name;
                int (*take)(struct cg_run *run, const json_t *v, struct cg_err *err);
        } commands[] = {
                { "execute", execute },
                { "interrupt", interrupt_cell },
                { "reset", reset },
                { "end", end },
                { "cancel", cg_json_cancel },
                { "add_functions", cg_json_add_functions },
                { "set_variables", cg_json_set_variables },
                { "get_variables", cg_json_get_variables },
        };
        cg_auto_json json_t *o = NULL;
        struct cg_err why;
        const char *name;
        size_t i = 0;
        json_t *v;
        int r;

        if (strspn(text, " \t\r") == len)
                return 0;
        if (cg_json_object(text, len, "the line", &o, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        if (json_object_get(o, "approval") && json_object_get(o, "egress"))
                return cg_json_decide_egress(run, o, err);
        if (json_object_get(o, "approval") && json_object_get(o, "return"))
                return cg_json_function_return(run, o, err);
        if (json_object_get(o, "approval") && (json_object_get(o, "result") || json_object_get(o, "decline")))
                return cg_json_answer_server(run, o, err);
        if (json_object_get(o, "approval"))
                return cg_json_decide(run, o, err);
        if (json_object_get(o, "input"))
                return cg_json_give_input(run, o, err);
        name = json_object_size(o) == 1 ? json_object_iter_key(json_object_iter(o)) : "";
        v = json_object_get(o, name);
        while (i < CG_ARRAY_LEN(commands) && strcmp(commands[i].name, name) != 0)
                i++;
        if (i == CG_ARRAY_LEN(commands) && !cg_beside_takes(name))
                return cg_json_input_error(
                        run,
                        "the line is none of {\"execute\"}, {\"interrupt\"}, {\"reset\"}, {\"end\"}, {\"approval\", \"accept\"}, "
                        "{\"approval\", \"egress\"}, {\"approval\", \"result\"}, {\"approval\", \"return\"}, {\"add_functions\"}, {\"set_variables\"}, {\"get_variables\"}, {\"cancel\"}, {\"input\"}, and those about commands "
                        "(\"exec\"...) and files (\"file_list\"...)",
                        err);
        cg_json_of(run)->line_id = cg_cell_id(json_object_get(v, "id"));
        r = i < CG_ARRAY_LEN(commands) ? commands[i].take(run, v, err) : beside(run, name, v, err);
        free(cg_json_of(run)->line_id);
        cg_json_of(run)->line_id = NULL;
        return r;
}

/* Takes what was read up to a newline, or the end of file. */
static int end_line(struct cg_run *run, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        int r = 0;

        j->line++;
        if (j->skipping)
                r = cg_json_input_error(run, "the line is too long", err);
        else if (j->in.len)
                r = take_line(run, j->in.data, j->in.len, err);
        j->skipping = false;
        cg_buf_consume(&j->in, j->in.len);
        return r;
}

/* Fail closed: without the host nothing can be approved. */
static int end_input(struct cg_run *run, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        int r = 0;

        if (j->in.len)
                r = end_line(run, err);
        j->eof = true;
        cg_beside_input_ended(j->beside);
        if (r >= 0)
                r = refuse_all(run, input_ended, err);
        if (r >= 0)
                (void)cg_session_input(run->session, NULL, 0, NULL); /* fails where no cell waits for input */
        return r;
}

static int json_readable(struct cg_run *run, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        char chunk[65536];
        ssize_t n = read(0, chunk, sizeof(chunk)), len;
        int r = 0;

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0)
                return end_input(run, err);
        for (ssize_t i = 0; i < n && r == 0;) {
                char *newline = memchr(chunk + i, '\n', (size_t)(n - i));

                len = (newline ?: chunk + n) - chunk - i;
                if (!j->skipping && cg_buf_try_add(&j->in, chunk + i, (size_t)len, NULL) < 0)
                        j->skipping = true;
                if (newline)
                        r = end_line(run, err);
                i += len + 1;
        }
        return r;
}

/* ------------------------------------------------------------------ start, loop and end */

/* The first line: version and session. */
static int json_opened(struct cg_run *run, struct cg_err *err)
{
        const char *id = cg_session_id(run->session), *info = cg_session_info(run->session);
        struct cg_buf l;

        cg_json_line_begin(&l, "session", 0);
        cg_json_line_text(&l, "version", cg_version());
        cg_json_line_text(&l, "session", id);
        cg_json_line_object(&l, "info", info, strlen(info));
        return cg_json_line_end(run, &l, err);
}

static int json_servers(struct cg_run *run, const char *report, struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_begin(&l, "mcp_servers", 0);
        cg_json_line_object(&l, "servers", report, strlen(report));
        return cg_json_line_end(run, &l, err);
}

static void json_interrupted(struct cg_run *run)
{
        refuse_all(run, "cancelled", NULL);
}

static void json_wait(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms)
{
        *fd = cg_json_of(run)->eof ? -1 : 0;
        *events_too = true;
        *timeout_ms = -1;
}

static void json_failed(struct cg_run *run, const struct cg_err *err, int status)
{
        struct cg_buf l;

        cg_json_line_begin(&l, "failed", 0);
        cg_json_line_int(&l, "status", status);
        cg_json_line_text(&l, "text", err->msg);
        cg_json_line_end(run, &l, NULL);
        cg_cli_fail("run", err);
}

static int json_woken(struct cg_run *run, struct cg_err *err)
{
        return cg_beside_woken(cg_json_of(run)->beside, err);
}

static bool json_leave(struct cg_run *run)
{
        return cg_beside_abandon(cg_json_of(run)->beside);
}

static void json_free(struct cg_run *run)
{
        struct json *j = cg_json_of(run);

        cg_buf_fini(&j->in);
        cg_cell_queue_fini(&j->queue);
        cg_queued_cell_free(j->running);
        cg_beside_free(j->beside);
        while (j->n_variables)
                free(j->variables[--j->n_variables].id);
        free(j->reset_id);
        while (j->n_asked)
                cg_event_free(j->asked[--j->n_asked]);
        free(j->asked);
        free(j);
        run->output_data = NULL;
}

static const struct cg_run_output json_output = {
        .opened = json_opened,
        .servers = json_servers,
        .note = json_note,
        .event = json_event,
        .decided = json_decided,
        .next = json_next,
        .started = json_started,
        .ask = json_ask,
        .interrupted = json_interrupted,
        .wait = json_wait,
        .readable = json_readable,
        .woken = json_woken,
        .leave = json_leave,
        .failed = json_failed,
        .free = json_free,
};

int cg_run_json_init(struct cg_run *run, struct cg_err *err)
{
        struct json *j = calloc(1, sizeof(*j));

        if (!j)
                return cg_fail(err, CG_E_NOMEM, "run");
        if (cg_beside_new(run, &j->beside, err) < 0) {
                free(j);
                return -1;
        }
        run->wake_fd = cg_beside_fd(j->beside);
        cg_buf_init(&j->in, MAX_LINE);
        cg_cell_queue_init(&j->queue);
        j->stay = run->opts.stay;
        j->not_run_reported = !run->opts.cells.n;
        run->output_data = j;
        run->output = &json_output;
        run->allow_stdin = true;
        run->can_ask = true;
        /* lines for a program, also when a person looks on: they are ASCII */
        run->screen.tty[1] = false;
        cg_approve_set_default(run->opts.kernel.approve, CG_APPROVE_ASK);
        return 0;
}
