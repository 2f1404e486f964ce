/*
 * `cellgate mcp serve`: the worker of a session. It owns the kernel, runs the calls in the order in
 * which they came, and follows its events also between calls, so that threads of the kernel are not
 * blocked by output that nobody reads.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/ceilings.h"
#include "base/util.h"
#include "cli/common/rule_check.h"
#include "mcp/client/def.h"

/* Events handled before questions, cancellations and the end are checked again. */
#define EVENTS_AT_ONCE 256
/* The egress proxy takes no longer limit than a day. */
#define MAX_ASK_MS    86000000
#define MAX_TIMEOUT_S (10 * 365 * 86400.0)
#define LISTED_TOOLS  300u
/* With policy files that have no other rate. */
#define CELLS_PER_MINUTE 120u

/* ------------------------------------------------------------------ events */

static struct cg_answer *sink(struct cg_serve_session *s)
{
        return s->answer ?: s->between;
}

/* The client has cancelled the call that runs: nobody needs to know that it was interrupted. */
static bool abandoned(struct cg_serve_session *s)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return s->answer && !TAILQ_EMPTY(&s->jobs) && TAILQ_FIRST(&s->jobs)->cancelled;
}

static void on_error(struct cg_serve_session *s, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf line = { .max = CG_MAX_BODY };
        struct cg_slice content, lines, v;
        struct cg_json_walk walk;
        const char *json;
        size_t len, n = 0;

        json = cg_event_json(e, &len);
        if (abandoned(s) || cg_json_object_slice(json, len, &content, NULL) < 0)
                return;
        if (!cg_json_find(content, "traceback", &lines))
                lines = CG_SLICE_NONE;
        cg_json_walk_init(&walk, lines, '[', NULL);
        for (; cg_json_walk_next(&walk, NULL, &v, NULL) == 0; n++) {
                cg_buf_clear(&line);
                if (cg_json_string(v, &line, NULL) == 0)
                        cg_answer_lines(sink(s), line.data ?: "", line.len);
        }
        if (n)
                return;
        if (cg_json_find(content, "ename", &v) && cg_json_string(v, &line, NULL) == 0 &&
            cg_json_find(content, "evalue", &v)) {
                cg_buf_adds(&line, ": ");
                cg_json_string(v, &line, NULL);
        }
        if (!line.len)
                cg_buf_adds(&line, "error");
        cg_answer_lines(sink(s), line.data ?: "", line.len);
}

static void remark(struct cg_serve_session *s, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_buf_addf(&b, "[cellgate: %s]", text);
        if (cg_buf_end(&b, NULL) == 0)
                cg_answer_lines(sink(s), b.data, b.len);
}

static void message(struct cg_serve_session *s, enum cg_mcpd_level level, const char *text)
{
        CG_SERVE_HOLD(&s->sv->lock);

        cg_serve_message(s, level, text);
}

/* Files that the cell made or changed. */
static void add_files(struct cg_serve_session *s, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!s->answer)
                return;
        cg_artifacts_text(e, "-", cg_answer_files(s->answer), &b);
        if (b.failed || !b.len)
                return;
        b.data[b.len - 1] = '\0';
        cg_answer_note(s->answer, "Files made or changed:\n\n%s", b.data);
}

/* A denial: a limit was reached. */
static bool is_limit(const struct cg_event *e)
{
        struct cg_slice object, operation;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        return cg_json_object_slice(json, len, &object, NULL) == 0 &&
               cg_json_find(object, "operation", &operation) && cg_slice_is(operation, "\"limit\"");
}

static enum cg_serve_source source_of(const struct cg_event *e)
{
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                return cg_event_is_stderr(e) ? CG_SOURCE_STDERR : CG_SOURCE_STDOUT;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
                return CG_SOURCE_STDOUT;
        case CG_EVENT_EXECUTE_RESULT:
                return CG_SOURCE_RESULT;
        default:
                return CG_SOURCE_OTHER;
        }
}

static void on_event(struct cg_serve_session *s, struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        const char *text;
        size_t len;

        cg_structured_event(cg_answer_structured(s->answer), e);
        cg_answer_set_source(sink(s), source_of(e));
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                text = cg_event_text(e, &len);
                cg_answer_text(sink(s), text, len);
                break;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                cg_answer_display(sink(s), e, s->images);
                break;
        case CG_EVENT_ERROR:
                on_error(s, e);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                cg_serve_approve(s, e);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_serve_connect(s, e);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_serve_forward(s, e);
                break;
        case CG_EVENT_DENIED:
                cg_serve_remember_refusal(s, cg_event_text(e, NULL));
                if (is_limit(e))
                        message(s, CG_MCPD_LOG_WARNING, cg_event_text(e, NULL));
                cg_denial_reports_add(&s->denials, e, &b);
                if (b.failed || !b.len)
                        break;
                /* A note while a call runs, so that a flood of output cannot push it out. */
                if (s->answer)
                        cg_answer_note(s->answer, "[cellgate: %s]", b.data);
                else
                        remark(s, b.data);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_serve_withdraw(s, cg_event_approval(e));
                cg_serve_decided_elsewhere(s, cg_event_approval(e), cg_event_text(e, NULL));
                break;
        case CG_EVENT_INPUT_REQUEST:
                if (cg_serve_input(s, e))
                        break;
                remark(s,
                       "input() and getpass() cannot be answered here: give the value in the code, or by --env");
                cg_event_refuse(s->session, e, "", NULL);
                break;
        case CG_EVENT_INPUT_CLOSED:
                cg_serve_input_closed(s);
                break;
        case CG_EVENT_RESULT:
                if (!s->cell || cg_event_cell(e) != s->cell)
                        break;
                cg_serve_input_closed(s);
                s->end.done = true;
                s->end.status = cg_event_status(e);
                free(s->end.text);
                s->end.text = strdup(cg_event_text(e, NULL));
                s->end.death_reported = s->end.status == CG_STATUS_KERNEL_DIED;
                if (s->end.death_reported)
                        message(s, CG_MCPD_LOG_ERROR, s->end.text ?: "");
                add_files(s, e);
                break;
        case CG_EVENT_KERNEL_DIED:
                if (!s->end.death_reported) { /* else the cell's result has said so */
                        message(s, CG_MCPD_LOG_ERROR, cg_event_text(e, NULL));
                        remark(s, cg_event_text(e, NULL));
                }
                s->end.death_reported = false;
                break;
        case CG_EVENT_PROGRESS:
                if (strcmp(cg_event_json(e, NULL), "{}") != 0) /* of a call */
                        cg_serve_tool_progress(s, cg_event_text(e, NULL));
                break;
        case CG_EVENT_NOTICE:
                message(s, CG_MCPD_LOG_NOTICE, cg_event_text(e, NULL));
                remark(s, cg_event_text(e, NULL));
                break;
        case CG_EVENT_REPLY:
                cg_serve_bridge_replied(s->bridge, e);
                break;
        case CG_EVENT_SESSION_CLOSED:
                message(s, CG_MCPD_LOG_ERROR, cg_event_text(e, NULL));
                free(s->lost);
                s->lost = strdup(cg_event_text(e, NULL));
                break;
        default:
                cg_event_refuse(s->session, e, "`cellgate mcp serve` cannot ask this", NULL);
                break;
        }
}

static void drain(struct cg_serve_session *s)
{
        struct cg_event *e;
        struct cg_err err;

        for (int i = 0; i < EVENTS_AT_ONCE && s->session && !s->lost; i++) {
                int r = cg_session_next_event(s->session, 0, &e, &err);

                if (r == CG_TIMEOUT)
                        return;
                if (r == 0) {
                        on_event(s, e);
                        cg_event_free(e);
                } else {
                        s->lost = strdup(r < 0 ? err.msg : "the session has ended");
                }
        }
}

/*
 * Waits for wake-ups, events of the session, and for @fd (-1: none) to be readable; then handles
 * the events, and the questions that are answered or due.
 */
static void wait_once(struct cg_serve_session *s, int fd, int64_t timeout_ms)
{
        struct pollfd p[3] = { { .fd = s->work_fd, .events = POLLIN },
                               { .fd = fd, .events = POLLIN },
                               { .fd = -1, .events = POLLIN } };

        timeout_ms = cg_serve_sooner(timeout_ms, cg_serve_settle(s));
        pthread_mutex_lock(&s->sv->lock);
        timeout_ms = cg_serve_sooner(timeout_ms, cg_serve_answer_due(s->sv, s));
        pthread_mutex_unlock(&s->sv->lock);
        timeout_ms = cg_serve_sooner(timeout_ms, INT32_MAX);
        if (s->session && !s->lost)
                p[2].fd = cg_session_fd(s->session);
        if (poll(p, CG_ARRAY_LEN(p), (int)timeout_ms) < 0 && errno != EINTR)
                return;
        if (p[0].revents)
                cg_serve_woken(s->work_fd);
        drain(s);
        if (s->answer)
                cg_serve_output(s, s->answer);
        cg_serve_settle(s);
}

/* ------------------------------------------------------------------ the session */

static void close_session(struct cg_serve_session *s)
{
        struct cg_session *kernel = s->session;

        pthread_mutex_lock(&s->sv->lock);
        s->session = NULL;
        s->cell = 0;
        pthread_mutex_unlock(&s->sv->lock);
        cg_serve_drop_asks(s);
        s->client = cg_client_close(s->client);
        cg_session_free(kernel);
        free(s->lost);
        s->lost = NULL;
        s->end.death_reported = false;
}

static void report_unavailable(struct cg_serve_session *s, const char *name, const char *why)
{
        struct cg_err err;

        cg_fail(&err, CG_E_STATE, "the MCP server \"%s\" is not there: %s", name, why);
        cg_log(&s->sv->log, CG_LOG_ERROR, "%s", err.msg);
        message(s, CG_MCPD_LOG_ERROR, err.msg);
        remark(s, err.msg);
}

/*
 * Reports to the agent which servers could not be started. Returns their tools (cg_rules_known()).
 */
static json_t *add_servers(struct cg_serve_session *s, json_t *servers)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        char *report = NULL;
        struct cg_err err, late;
        const char *name;
        json_t *one, *known;
        size_t len;

        if (s->lost || !json_object_size(servers) || !(text = cg_json_text(servers, &len)))
                return cg_rules_known(NULL, servers);
        if (cg_session_add_mcp_servers(s->session, text, len, 0, &report, &err) < 0 ||
            cg_json_object(report, strlen(report), "report", &o, &err) < 0) {
                cg_log(&s->sv->log, CG_LOG_ERROR, "no MCP server is there: %s", err.msg);
                cg_fail(&late, CG_E_STATE, "no MCP server is there: %s", err.msg);
                message(s, CG_MCPD_LOG_ERROR, late.msg);
                remark(s, late.msg);
        }
        json_object_foreach(o, name, one)
                if (json_object_get(one, "error"))
                        report_unavailable(s, name, json_string_value(json_object_get(one, "error")));
        known = cg_rules_known(report, servers);
        cg_free(report);
        return known;
}

/*
 * Checks the approval rules once, when the configured servers have been added. If one that refuses
 * matches nothing, this program ends.
 */
static int check_rules(struct cg_serve_session *s, json_t *known, struct cg_err *err)
{
        cg_auto_buf struct cg_buf notes = { .max = CG_MAX_REPORT };
        json_t *own;
        int r = 0;

        pthread_mutex_lock(&s->sv->policy);
        if (s->sv->rules_checked) {
                pthread_mutex_unlock(&s->sv->policy);
                return 0;
        }
        s->sv->rules_checked = true;
        /* Rules decide about these tools only: one about another tool would decide nothing. */
        own = json_pack("[s, s]", cg_serve_tool_defs[CG_SERVE_REGISTER].name,
                        cg_serve_tool_defs[CG_SERVE_INSTALL].name);
        json_object_set_new(known, "cellgate", own);
        r = cg_rules_check(s->approve, known, &notes, err);
        pthread_mutex_unlock(&s->sv->policy);
        for (char *p = notes.data, *line; (line = strsep(&p, "\n")) && p;)
                cg_log(&s->sv->log, CG_LOG_WARN, "%s", line);
        if (r < 0) {
                pthread_mutex_lock(&s->sv->lock);
                s->sv->refused = *err;
                pthread_mutex_unlock(&s->sv->lock);
                cg_serve_wake(s->sv->io_fd);
        }
        return r;
}

static bool is_refused(struct cg_serve_session *s, struct cg_err *err)
{
        CG_SERVE_HOLD(&s->sv->lock);

        if (s->sv->refused.code < 0)
                *err = s->sv->refused;
        return s->sv->refused.code < 0;
}

static int open_session(struct cg_serve_session *s, struct cg_err *err)
{
        const char *paths[] = { NULL, NULL };
        struct cg_client_options co = { .size = sizeof(co) };
        struct cg_session_options so = { .size = sizeof(so),
                                         .front = CG_FRONT_MCP,
                                         .workspace = s->sv->workspace,
                                         .working_dir = s->folder,
                                         .env = s->sv->opts.kernel.env,
                                         .python_path = paths,
                                         .settings = s->sv->settings };
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };
        cg_auto_json json_t *known = NULL, *more = NULL;
        struct cg_session *kernel;

        if (is_refused(s, err) || cg_serve_session_prepare(s, err) < 0)
                return -1;
        paths[0] = s->packages.path;
        if (cg_kernel_options_session(&s->sv->opts.kernel, s->sv->workspace, &hides, &so, err) < 0)
                return -1;
        if (s->language)
                so.language = s->language;
        cg_limit_options(&s->limits, &so);
        /* If the client cannot ask its user, each question is refused with that reason. */
        pthread_mutex_lock(&s->sv->lock);
        if (s->sv->proto.peer.can_ask)
                so.server_requests |= CG_SERVER_REQUEST_ELICITATION;
        if (s->sv->proto.peer.can_open)
                so.server_requests |= CG_SERVER_REQUEST_URL;
        pthread_mutex_unlock(&s->sv->lock);
        so.ask_egress = cg_approve_base(s->approve) == CG_APPROVE_ASK ||
                        cg_pol_is_about(cg_approve_policy(s->approve), CG_METHOD_CONNECT);
        if (so.ask_egress) /* ask.c has a shorter limit, and reports it */
                so.approval_timeout_ms = cg_serve_sooner(s->sv->opts.ask_timeout_ms + 5000, MAX_ASK_MS);
        cg_kernel_options_client(&s->sv->opts.kernel, &co);
        co.no_spare = !co.share;
        if (cg_client_open(&co, &s->client, err) < 0)
                return -1;
        if (cg_client_why_private(s->client))
                cg_log(&s->sv->log, CG_LOG_WARN, "private supervisor, since none can be shared: %s",
                       cg_client_why_private(s->client));
        if (cg_session_new(s->client, &so, &kernel, err) < 0) {
                s->client = cg_client_close(s->client);
                return -1;
        }
        pthread_mutex_lock(&s->sv->lock);
        s->session = kernel;
        pthread_mutex_unlock(&s->sv->lock);
        pthread_mutex_lock(&s->sv->policy);
        cg_approve_new_session(s->approve);
        pthread_mutex_unlock(&s->sv->policy);
        known = add_servers(s, s->sv->configured);
        if (known && check_rules(s, known, err) < 0) {
                close_session(s);
                return -1;
        }
        more = add_servers(s, s->registered);
        return 0;
}

/* Replaces a session that has ended, and reports the loss of its state to the agent. */
static int ensure_session(struct cg_serve_session *s, struct cg_answer *a, struct cg_err *err)
{
        drain(s);
        if (s->lost) {
                cg_answer_note(
                        a,
                        "The session had ended (%s), so this ran in a new one: variables and imports are lost.",
                        s->lost);
                close_session(s);
        }
        return s->session ? 0 : open_session(s, err);
}

/* ------------------------------------------------------------------ execute_ipython_cell */

/* From here on the worker answers the calls that wait for the cell: its answer grows. */
static void set_running(struct cg_serve_session *s, struct cg_job *job)
{
        CG_SERVE_HOLD(&s->sv->lock);

        job->state = CG_JOB_RUNNING;
        job->start_ms = cg_now_ms();
        s->output.chars = 0;
        s->output.line[0] = '\0';
}

static void set_cell(struct cg_serve_session *s, const struct cg_job *job, uint64_t cell)
{
        CG_SERVE_HOLD(&s->sv->lock);

        s->cell = cell;
        /* Cancelled after the queue check but before the cell started. */
        if (cell && (job->cancelled || s->sv->stop))
                cg_session_cancel(s->session, cell, NULL);
}

/* The tool that ends the job; NULL: none. */
static const char *ended_by(struct cg_serve_session *s, const struct cg_job *job)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return job->ended_by;
}

/* A cancelled cell is waited for: it is interrupted, and its output is kept. */
static bool has_ended(struct cg_serve_session *s, const struct cg_job *job)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return s->sv->stop || job->ended_by;
}

/*
 * The rate of cells of all sessions, where there is a policy. CG_E_LIMIT: this one is too many. The
 * minute begins with its first cell.
 */
static int count_cell(struct cg_serve_session *s, struct cg_err *err)
{
        const struct cg_pol *p = cg_approve_policy(s->approve);
        unsigned limit = cg_pol_cells_per_minute(p) ?: CELLS_PER_MINUTE;
        int64_t now = cg_now_ms(), left;
        CG_SERVE_HOLD(&s->sv->lock);

        if (cg_pol_is_empty(p))
                return 0;
        left = s->sv->rate.since_ms + 60000 - now;
        if (!s->sv->rate.cells || left <= 0) {
                s->sv->rate.since_ms = now;
                s->sv->rate.cells = 0;
        }
        if (s->sv->rate.cells >= limit)
                return cg_fail(err, CG_E_LIMIT,
                               "the policy allows %u cells a minute (cells_per_minute); try again in %d s",
                               limit, (int)(left / 1000) + 1);
        s->sv->rate.cells++;
        return 0;
}

/* True if the user or the agent can be asked for the text of input(). */
static bool can_input(struct cg_serve_session *s)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return s->sv->proto.peer.can_ask || s->sv->opts.toolsets & CG_SERVE_JOBS;
}

/* Says how the cell ended, if not well. */
static void explain_end(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a)
{
        const char *text = s->end.text ?: "";

        if (!s->end.done || s->end.status != CG_STATUS_OK)
                cg_answer_error(a);
        if (!s->end.done && ended_by(s, job))
                cg_serve_drop_asks(s);
        else if (!s->end.done)
                cg_answer_note(a,
                               "The session ended while the cell ran: %s. The next call starts a new one;"
                               " variables and imports are lost.",
                               s->lost ?: "the server is being stopped");
        else if (s->end.status == CG_STATUS_TIMEOUT)
                cg_answer_note(a, "Timed out: %s. For more time pass a larger timeout.",
                               *text ? text : "it ran longer than its limit and was interrupted");
        else if (s->end.status == CG_STATUS_CANCELLED)
                cg_answer_note(a, "Cancelled%s%s.", *text ? ": " : "", text);
        else if (s->end.status == CG_STATUS_KERNEL_DIED)
                cg_answer_note(
                        a,
                        "The cell failed: %s (variables and imports). A fresh kernel takes its place; files,"
                        " installed packages and MCP servers are still there.",
                        text);
}

/* Runs the cell to its end, and explains in @a how it ended. */
static void run_cell(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a)
{
        double seconds = fmin(job->timeout, MAX_TIMEOUT_S);
        struct cg_execute_options o = { .size = sizeof(o),
                                        .timeout_ms = (int64_t)ceil(seconds * 1000),
                                        .allow_stdin = can_input(s),
                                        .silent = job->tool != CG_SERVE_EXECUTE,
                                        .extra = s->sv->opts.plain ? NULL : "{\"variables\":true}",
                                        .artifacts = s->sv->opts.kernel.artifacts };
        struct cg_err err = { 0 };
        uint64_t cell = 0;

        cg_answer_move(a, s->between, "[output since the last call:]", "[output of this call:]");
        s->answer = a;
        s->end.done = false;
        set_running(s, job);
        if (count_cell(s, &err) < 0 ||
            cg_session_execute(s->session, job->code, strlen(job->code), &o, &cell, &err) < 0) {
                cg_answer_error(a);
                cg_answer_note(a, "The cell was not run: %s", err.msg);
        } else {
                set_cell(s, job, cell);
                while (!s->end.done && !s->lost && !has_ended(s, job))
                        wait_once(s, -1, -1);
                explain_end(s, job, a);
        }
        set_cell(s, job, 0);
        if (!s->lost && cg_serve_given_up(job))
                cg_serve_refuse_connections(s);
        cg_denial_reports_clear(&s->denials);
        s->answer = NULL;
}

/* ------------------------------------------------------------------ register_mcp_server */

static void add_line(struct cg_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_line(struct cg_answer *a, const char *fmt, ...)
{
        cg_auto_free char *line = NULL;
        va_list ap;

        va_start(ap, fmt);
        if (vasprintf(&line, fmt, ap) < 0)
                line = NULL;
        va_end(ap);
        if (line)
                cg_answer_lines(a, line, strlen(line));
}

static void list_tools(struct cg_answer *a, const char *name, const char *report)
{
        cg_auto_json json_t *o = json_loads(report ?: "{}", JSON_ALLOW_NUL, NULL);
        json_t *server = json_object_get(o, name), *tools = json_object_get(server, "tools"), *tool;
        const char *package = json_string_value(json_object_get(server, "package"));
        size_t i;

        add_line(a, "Registered \"%s\". Its tools, to be imported as `from %s%s import TOOL`:", name,
                 package && strncmp(package, "mcptools.", 9) == 0 ? "" : "mcptools.", package ?: name);
        json_array_foreach(tools, i, tool) {
                const char *module = json_string_value(json_object_get(tool, "module"));
                const char *original = json_string_value(json_object_get(tool, "tool"));
                const char *status = json_string_value(json_object_get(tool, "status"));

                if (i == LISTED_TOOLS) {
                        add_line(a, "and %zu more", json_array_size(tools) - i);
                        return;
                }
                if (module && *module)
                        add_line(a, "%s", module);
                else if (original)
                        add_line(a, "%s: not usable (%s)", original, status ?: "no module was generated");
        }
}

/* With an audit log, the session is open before: the decision is a record of it. */
static bool allowed(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a,
                    struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };

        if (s->sv->opts.kernel.audit.mode && ensure_session(s, a, err) < 0)
                return false;
        if (cg_serve_allowed(s, job, wait_once, &why))
                return true;
        cg_log(&s->sv->log, CG_LOG_INFO, "refused cellgate.%s: %s", cg_serve_tool_defs[job->tool].name,
               why.data ?: "");
        cg_fail(err, CG_E_STATE, "%s was refused: %s", cg_serve_tool_defs[job->tool].name,
                why.data ?: "no memory");
        return false;
}

/* Earlier approvals and pending answers are about the former program of this name. */
static void forget_server(struct cg_serve_session *s, const char *name)
{
        cg_serve_refuse_calls(s, name);
        cg_approve_forget(s->approve, name);
}

static int try_register(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                        struct cg_err *err)
{
        struct cg_slice args = { job->args, strlen(job->args) }, v = { 0 };
        cg_auto_json json_t *params = NULL, *one = NULL;
        cg_auto_free char *name = NULL, *text = NULL;
        char *report = NULL;
        size_t len;
        bool same;
        int r;

        if (cg_serve_arg_string(job->args, "server_name", &name, err) < 0 || cg_mcp_check_name(name, err) < 0)
                return -1;
        if (strcmp(name, "cellgate") == 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "the name \"cellgate\" is taken: approval rules mean this server's own tools by it");
        if (cg_json_member(args, "server_params", &v, err) < 0)
                return -1;
        if (!v.p)
                return cg_fail(err, CG_E_INVAL, "the parameter \"server_params\" is missing");
        if (cg_json_object(v.p, v.len, "server_params", &params, err) < 0 || !allowed(s, job, a, err))
                return -1;
        one = json_pack("{s:O}", name, params);
        if (one)
                text = cg_json_text(one, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "MCP server %s", name);
        same = json_equal(params,
                          json_object_get(s->registered, name) ?: json_object_get(s->sv->configured, name));
        if (!same)
                forget_server(s, name);
        if (ensure_session(s, a, err) < 0)
                return -1;
        r = cg_session_add_mcp_servers(s->session, text, len, 0, &report, err);
        if (!same)
                forget_server(s, name); /* questions asked about the former program meanwhile */
        if (r >= 0 && json_object_set(s->registered, name, params) == 0)
                list_tools(a, name, report);
        cg_free(report);
        return r;
}

/* ------------------------------------------------------------------ the other tools */

/*
 * Packages for later sessions as well would be those of an environment. The zygote imports what is
 * there, outside of every sandbox: modules of packages that are there already, what their entry
 * points name, and .pth files at each start. No check of a wheel keeps an agent's choice out of
 * that, so its user has to make it.
 */
static int check_keep(const struct cg_serve_session *s, const char *args, struct cg_err *err)
{
        const char *env = s->sv->opts.kernel.kernel_env;
        struct cg_slice text = { args, strlen(args) }, v;

        if (cg_json_member(text, "keep", &v, err) < 0)
                return -1;
        if (!v.p || cg_slice_is(v, "false") || cg_slice_is(v, "null"))
                return 0;
        if (!cg_slice_is(v, "true"))
                return cg_fail(err, CG_E_INVAL, "the parameter \"keep\" must be true or false");
        if (!env)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "keep: true is refused: this server has no environment of the user's for its kernels. "
                        "The user can make one with `cellgate env create NAME PACKAGE`, and start the server "
                        "with --kernel-env NAME; without keep, packages are installed until the session ends");
        return cg_fail(
                err, CG_E_UNSUPPORTED,
                "keep: true is refused: code in an environment of kernels runs outside of the sandbox as "
                "well, so that an agent must not choose it. The user can add packages with `cellgate env "
                "add %s PACKAGE`; without keep, they are installed until the session ends",
                env);
}

static int try_install(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        const char *own = s->language ?: s->sv->opts.kernel.language ?: "python";
        struct cg_slice args = { job->args, strlen(job->args) }, scripts;
        cg_auto_free char *text = NULL, *requirements = NULL, *language = NULL;
        bool node = strcmp(own, "node") == 0;

        if (cg_serve_arg_optional(job->args, "language", &language, err) < 0 ||
            cg_json_member(args, "scripts", &scripts, err) < 0)
                return -1;
        if (language && strcmp(language, own) != 0)
                return cg_fail(err, CG_E_INVAL, "the language of this session is %s, not %s", own, language);
        if (cg_serve_arg_string(job->args, "package_name", &text, err) < 0 ||
            check_keep(s, job->args, err) < 0 ||
            (node ? cg_serve_npm_packages : cg_serve_requirements)(text, &requirements, err) < 0 ||
            !allowed(s, job, a, err) || ensure_session(s, a, err) < 0)
                return -1;
        if (node)
                cg_serve_install_npm(s, job, wait_once, requirements, cg_slice_is(scripts, "true"), a);
        else
                cg_serve_install(s, job, wait_once, requirements, a);
        return 0;
}

static int try_uninstall(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                         struct cg_err *err)
{
        if (ensure_session(s, a, err) < 0)
                return -1;
        return cg_serve_uninstall(s, job, wait_once, a, err);
}

static int try_reset(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        drain(s);
        if (s->session && !s->lost && cg_session_reset(s->session, 0, err) < 0) {
                cg_log(&s->sv->log, CG_LOG_WARN, "reset: %s; a new session is started", err->msg);
                close_session(s);
        }
        if (s->lost)
                close_session(s);
        if (!s->session && open_session(s, err) < 0)
                return -1;
        drain(s);
        s->between = cg_answer_free(s->between);
        s->between = cg_answer_new(CG_SERVE_BETWEEN_CHARS);
        message(s, CG_MCPD_LOG_INFO, "the kernel was replaced by a new one: reset was called");
        cg_answer_note(a, "The kernel is new: variables and imports are lost; files, installed packages and"
                          " registered MCP servers are still there.");
        return cg_made(s->between, "output", err);
}

/* With what the sandbox refuses meanwhile. */
static int try_file(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        int r;

        if (ensure_session(s, a, err) < 0)
                return -1;
        s->answer = a;
        r = cg_serve_file(s, job, a, err);
        drain(s);
        cg_denial_reports_clear(&s->denials);
        s->answer = NULL;
        return r;
}

static int try_artifact(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                        struct cg_err *err)
{
        if (ensure_session(s, a, err) < 0)
                return -1;
        return cg_serve_read_artifact(s, job, err);
}

static int try_info(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        if (ensure_session(s, a, err) < 0)
                return -1;
        return cg_serve_sandbox_info(s, a, err);
}

static int try_explain(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        int r = ensure_session(s, a, err);

        if (r == 0)
                r = cg_serve_explain(s, job, a, err);
        if (r == 1)
                run_cell(s, job, a);
        return r;
}

/* The second session goes on with the job. 1: it has it; 0: nobody waits for it. */
static int hand_over(struct cg_serve_session *s, struct cg_job *job, struct cg_err *err)
{
        CG_SERVE_HOLD(&s->sv->lock);
        struct cg_serve_session *to = cg_serve_session_of(s->sv, cg_serve_bridge_to(job->bridge));
        struct cg_pending *p;

        if (job->cancelled || job->ended_by)
                return 0;
        if (!to)
                return cg_fail(err, CG_E_NOTFOUND, "no such session: \"%s\" has ended",
                               cg_serve_bridge_to(job->bridge));
        TAILQ_REMOVE(&s->jobs, job, entry);
        s->n_jobs--;
        s->used_ms = cg_now_ms();
        job->session = to;
        job->state = CG_JOB_QUEUED;
        TAILQ_INSERT_TAIL(&to->jobs, job, entry);
        to->n_jobs++;
        TAILQ_FOREACH(p, &s->sv->pending, entry)
                if (p->job == job)
                        p->session = to;
        cg_serve_wake(to->work_fd);
        return 1;
}

/* One half of bridge_data: reads variables of the session, or sets them. */
static int try_bridge(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        bool sets = cg_serve_bridge_has_data(job->bridge);

        if (ensure_session(s, a, err) < 0 || cg_serve_bridge_send(s, job->bridge, err) < 0)
                return -1;
        s->bridge = job->bridge;
        while (cg_serve_bridge_waits(s->bridge) && !s->lost && !cg_serve_given_up(job))
                wait_once(s, -1, -1);
        s->bridge = NULL;
        if (cg_serve_bridge_waits(job->bridge))
                return cg_fail(err, CG_E_STATE, "the data was not copied: %s",
                               s->lost ?: "the call was cancelled");
        if (cg_serve_bridge_result(job->bridge, sets ? a : NULL, err) < 0)
                return -1;
        return sets ? 0 : hand_over(s, job, err);
}

/* A session that nobody can name ends at once. */
static int try_create(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        if (cg_serve_session_configure(s, job->args, err) == 0 && open_session(s, err) == 0) {
                if (!cg_serve_given_up(job)) {
                        cg_answer_note(a, "session_id: %s", s->id);
                        return 0;
                }
                cg_fail(err, CG_E_STATE, "The session was not opened: the call was cancelled.");
        }
        pthread_mutex_lock(&s->sv->lock);
        cg_serve_session_end(s, "it was not opened");
        pthread_mutex_unlock(&s->sv->lock);
        return -1;
}

static int try_terminate(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                         struct cg_err *err)
{
        close_session(s);
        cg_answer_note(a, "The session has ended. Its variables, results and installed packages are lost;"
                          " files are still there.");
        return 0;
}

/* ------------------------------------------------------------------ the thread */

static int run_execute(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        if (ensure_session(s, a, err) < 0)
                return -1;
        if (!ended_by(s, job))
                run_cell(s, job, a);
        return 0;
}

static void run_job(struct cg_serve_session *s, struct cg_job *job)
{
        static int (*const tries[])(struct cg_serve_session *, struct cg_job *, struct cg_answer *,
                                    struct cg_err *) = {
                [CG_SERVE_EXECUTE] = run_execute,
                [CG_SERVE_REGISTER] = try_register,
                [CG_SERVE_INSTALL] = try_install,
                [CG_SERVE_UNINSTALL] = try_uninstall,
                [CG_SERVE_RESET] = try_reset,
                [CG_SERVE_CREATE_SESSION] = try_create,
                [CG_SERVE_TERMINATE] = try_terminate,
                [CG_SERVE_BRIDGE] = try_bridge,
                [CG_SERVE_LIST_FILES] = try_file,
                [CG_SERVE_READ_FILE] = try_file,
                [CG_SERVE_WRITE_FILE] = try_file,
                [CG_SERVE_MOVE_FILE] = try_file,
                [CG_SERVE_REMOVE_FILE] = try_file,
                [CG_SERVE_LIST_VARIABLES] = run_execute,
                [CG_SERVE_SANDBOX_INFO] = try_info,
                [CG_SERVE_EXPLAIN] = try_explain,
                [CG_SERVE_LIST_APPROVALS] = cg_serve_approver,
                [CG_SERVE_SHOW_APPROVAL] = cg_serve_approver,
                [CG_SERVE_DECIDE_APPROVAL] = cg_serve_approver,
                [CG_SERVE_ARTIFACT] = try_artifact,
        };
        bool bridge = job->tool == CG_SERVE_BRIDGE;
        struct cg_err err;
        const char *by;
        int r = 0;

        if (!ended_by(s, job))
                r = tries[job->tool](s, job, job->answer, &err);
        if (bridge && r > 0)
                return; /* the job is another session's */
        by = ended_by(s, job);
        if (by) {
                cg_answer_error(job->answer);
                cg_answer_note(job->answer, "Ended, because %s was called meanwhile.", by);
        }
        if (r < 0) {
                cg_answer_error(job->answer);
                cg_answer_note(job->answer, "%s", err.msg);
        }
        cg_serve_finish_job(s, job);
}

/* No more jobs come. */
static bool ending(struct cg_serve_session *s)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return s->sv->stop || (s->life != CG_SERVE_LIVES && TAILQ_EMPTY(&s->jobs));
}

/* A session of the connection from its beginning: it is opened ahead of the first call. */
static bool opens_ahead(struct cg_serve_session *s)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return s->sv->own == s && !s->lost && !(s->sv->opts.toolsets & CG_SERVE_APPROVALS);
}

bool cg_serve_knows_client(const struct cg_serve *sv)
{
        return sv->proto.revision != CG_MCPD_NONE || sv->proto.peer.stateless;
}

static bool initialized(struct cg_serve_session *s)
{
        CG_SERVE_HOLD(&s->sv->lock);

        return cg_serve_knows_client(s->sv);
}

void *cg_serve_worker(void *data)
{
        struct cg_serve_session *s = data;
        struct cg_job *job;
        struct cg_err err;

        /*
         * As soon as it is known what the client can ask its user. If this fails, each call tries
         * again and reports why.
         */
        while (!ending(s) && !initialized(s))
                wait_once(s, -1, -1);
        if (opens_ahead(s) && !ending(s) && open_session(s, &err) < 0)
                cg_log(&s->sv->log, CG_LOG_ERROR, "no session yet: %s", err.msg);
        while (!ending(s)) {
                job = cg_serve_next_job(s);
                if (job)
                        run_job(s, job);
                else
                        wait_once(s, -1, -1);
        }
        close_session(s);
        cg_denial_reports_clear(&s->denials);
        free(s->end.text);
        pthread_mutex_lock(&s->sv->lock);
        s->life = CG_SERVE_GONE;
        pthread_cond_signal(&s->sv->gone);
        cg_serve_wake(s->sv->io_fd);
        pthread_mutex_unlock(&s->sv->lock);
        return NULL;
}
