/*
 * `cellgate mcp serve`: the worker. It owns the session, runs the calls in the order in which they
 * came, and follows the session's events also between calls, so that threads of the kernel are not
 * blocked by output that nobody reads.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/ceilings.h"
#include "base/util.h"
#include "cli/common/artifacts.h"
#include "cli/common/pretty.h"
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

static struct cg_answer *sink(struct cg_serve *sv)
{
        return sv->answer ? sv->answer : sv->between;
}

/* The client has cancelled the call that runs: nobody needs to know that it was interrupted. */
static bool abandoned(struct cg_serve *sv)
{
        bool is;

        pthread_mutex_lock(&sv->lock);
        is = sv->answer && !TAILQ_EMPTY(&sv->jobs) && TAILQ_FIRST(&sv->jobs)->cancelled;
        pthread_mutex_unlock(&sv->lock);
        return is;
}

static void on_error(struct cg_serve *sv, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf line = { .max = CG_MAX_BODY };
        struct cg_slice content, lines, v;
        struct cg_json_walk walk;
        const char *json;
        size_t len, n = 0;

        json = cg_event_json(e, &len);
        if (abandoned(sv) || cg_json_object_slice(json, len, &content, NULL) < 0)
                return;
        if (!cg_json_find(content, "traceback", &lines))
                lines = CG_SLICE_NONE;
        cg_json_walk_init(&walk, lines, '[', NULL);
        for (; cg_json_walk_next(&walk, NULL, &v, NULL) == 0; n++) {
                line.len = 0;
                if (cg_json_string(v, &line, NULL) == 0)
                        cg_answer_lines(sink(sv), line.data ? line.data : "", line.len);
        }
        if (n)
                return;
        line.len = 0;
        if (cg_json_find(content, "ename", &v) && cg_json_string(v, &line, NULL) == 0 &&
            cg_buf_adds(&line, ": ", NULL) == 0 && cg_json_find(content, "evalue", &v))
                cg_json_string(v, &line, NULL);
        cg_answer_lines(sink(sv), line.data ? line.data : "error", line.data ? line.len : 5);
}

static void remark(struct cg_serve *sv, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (cg_buf_addf(&b, NULL, "[cellgate: %s]", text) == 0)
                cg_answer_lines(sink(sv), b.data, b.len);
}

/* Files that the cell made or changed. */
static void add_files(struct cg_serve *sv, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!sv->answer || cg_artifacts_text(e, "-", cg_answer_files(sv->answer), &b, NULL) < 0 || !b.len)
                return;
        b.data[b.len - 1] = '\0';
        cg_answer_note(sv->answer, "Files made or changed:\n\n%s", b.data);
}

static void on_event(struct cg_serve *sv, struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        const char *text;
        size_t len;

        cg_structured_event(cg_answer_structured(sv->answer), e);
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                text = cg_event_text(e, &len);
                cg_answer_text(sink(sv), text, len);
                break;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                cg_answer_display(sink(sv), e, sv->images);
                break;
        case CG_EVENT_ERROR:
                on_error(sv, e);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                cg_serve_approve(sv, e);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_serve_connect(sv, e);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_serve_forward(sv, e);
                break;
        case CG_EVENT_DENIED:
                if (cg_denial_reports_add(&sv->denials, e, &b, NULL) < 0 || !b.len)
                        break;
                /* A note while a call runs, so that a flood of output cannot push it out. */
                if (sv->answer)
                        cg_answer_note(sv->answer, "[cellgate: %s]", b.data);
                else
                        remark(sv, b.data);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_serve_withdraw(sv, cg_event_approval(e));
                break;
        case CG_EVENT_INPUT_REQUEST:
                if (cg_serve_input(sv, e))
                        break;
                remark(sv,
                       "input() and getpass() cannot be answered here: give the value in the code, or by --env");
                cg_event_refuse(sv->session, e, "", NULL);
                break;
        case CG_EVENT_INPUT_CLOSED:
                cg_serve_input_closed(sv);
                break;
        case CG_EVENT_RESULT:
                if (!sv->cell || cg_event_cell(e) != sv->cell)
                        break;
                cg_serve_input_closed(sv);
                sv->cell_done = true;
                sv->status = cg_event_status(e);
                free(sv->status_text);
                sv->status_text = strdup(cg_event_text(e, NULL));
                sv->death_reported = sv->status == CG_STATUS_KERNEL_DIED;
                add_files(sv, e);
                break;
        case CG_EVENT_KERNEL_DIED:
                if (!sv->death_reported) /* else the cell's result has said so */
                        remark(sv, cg_event_text(e, NULL));
                sv->death_reported = false;
                break;
        case CG_EVENT_PROGRESS:
                if (strcmp(cg_event_json(e, NULL), "{}") != 0) /* of a call */
                        cg_serve_tool_progress(sv, cg_event_text(e, NULL));
                break;
        case CG_EVENT_NOTICE:
                remark(sv, cg_event_text(e, NULL));
                break;
        case CG_EVENT_SESSION_CLOSED:
                free(sv->lost);
                sv->lost = strdup(cg_event_text(e, NULL));
                break;
        default:
                cg_event_refuse(sv->session, e, "`cellgate mcp serve` cannot ask this", NULL);
                break;
        }
}

static void drain(struct cg_serve *sv)
{
        struct cg_event *e;
        struct cg_err err;

        for (int i = 0; i < EVENTS_AT_ONCE && sv->session && !sv->lost; i++) {
                int r = cg_session_next_event(sv->session, 0, &e, &err);

                if (r == CG_TIMEOUT)
                        return;
                if (r == 0) {
                        on_event(sv, e);
                        cg_event_free(e);
                } else {
                        sv->lost = strdup(r < 0 ? err.msg : "the session has ended");
                }
        }
}

/*
 * Waits for wake-ups, events of the session, and for @fd (-1: none) to be readable; then handles
 * the events, and the questions that are answered or due.
 */
static void wait_once(struct cg_serve *sv, int fd, int64_t timeout_ms)
{
        struct pollfd p[3] = { { .fd = sv->work_fd, .events = POLLIN },
                               { .fd = fd, .events = POLLIN },
                               { .fd = sv->session && !sv->lost ? cg_session_fd(sv->session) : -1,
                                 .events = POLLIN } };
        int64_t next_ms[] = { cg_serve_settle(sv), 0 };

        pthread_mutex_lock(&sv->lock);
        next_ms[1] = cg_serve_answer_due(sv, true);
        pthread_mutex_unlock(&sv->lock);
        for (size_t i = 0; i < CG_ARRAY_LEN(next_ms); i++)
                if (next_ms[i] >= 0 && (timeout_ms < 0 || next_ms[i] < timeout_ms))
                        timeout_ms = next_ms[i];
        if (poll(p, CG_ARRAY_LEN(p), timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms) < 0 &&
            errno != EINTR)
                return;
        if (p[0].revents)
                cg_serve_woken(sv->work_fd);
        drain(sv);
        if (sv->answer)
                cg_serve_output(sv, sv->answer);
        cg_serve_settle(sv);
}

/* ------------------------------------------------------------------ the session */

static void close_session(struct cg_serve *sv)
{
        struct cg_session *s = sv->session;

        pthread_mutex_lock(&sv->lock);
        sv->session = NULL;
        sv->cell = 0;
        pthread_mutex_unlock(&sv->lock);
        cg_serve_drop_asks(sv);
        sv->client = cg_client_close(sv->client);
        cg_session_free(s);
        free(sv->lost);
        sv->lost = NULL;
        sv->death_reported = false;
}

static void report_unavailable(struct cg_serve *sv, const char *name, const char *why)
{
        struct cg_err err;

        cg_fail(&err, CG_E_STATE, "the MCP server \"%s\" is not there: %s", name, why);
        cg_log(&sv->log, CG_LOG_ERROR, "%s", err.msg);
        remark(sv, err.msg);
}

/*
 * Reports to the agent which servers could not be started. Returns their tools (cg_rules_known()).
 */
static json_t *add_servers(struct cg_serve *sv, json_t *servers)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        char *report = NULL;
        struct cg_err err, late;
        const char *name;
        json_t *one, *known;
        size_t len;

        if (sv->lost || !json_object_size(servers) || !(text = cg_json_text(servers, &len)))
                return cg_rules_known(NULL, servers);
        if (cg_session_add_mcp_servers(sv->session, text, len, 0, &report, &err) < 0 ||
            cg_json_object(report, strlen(report), "report", &o, &err) < 0) {
                cg_log(&sv->log, CG_LOG_ERROR, "no MCP server is there: %s", err.msg);
                cg_fail(&late, CG_E_STATE, "no MCP server is there: %s", err.msg);
                remark(sv, late.msg);
        }
        json_object_foreach(o, name, one) if (json_object_get(one, "error"))
                report_unavailable(sv, name, json_string_value(json_object_get(one, "error")));
        known = cg_rules_known(report, servers);
        cg_free(report);
        return known;
}

/*
 * Checks the approval rules once, when the configured servers have been added. If one that refuses
 * matches nothing, this program ends.
 */
static int check_rules(struct cg_serve *sv, json_t *known, struct cg_err *err)
{
        cg_auto_buf struct cg_buf notes = { .max = CG_MAX_REPORT };
        json_t *own = json_array();
        int r;

        sv->rules_checked = true;
        for (size_t i = 0; i < CG_SERVE_N_TOOLS; i++)
                json_array_append_new(own, json_string(cg_serve_tool_defs[i].name));
        json_object_set_new(known, "cellgate", own);
        r = cg_rules_check(sv->opts.kernel.approve, known, &notes, err);
        for (char *p = notes.data, *line; (line = strsep(&p, "\n")) && p;)
                cg_log(&sv->log, CG_LOG_WARN, "%s", line);
        if (r < 0) {
                pthread_mutex_lock(&sv->lock);
                sv->start_err = *err;
                sv->refused = true;
                pthread_mutex_unlock(&sv->lock);
                cg_serve_wake(sv->io_fd);
        }
        return r;
}

static int open_session(struct cg_serve *sv, struct cg_err *err)
{
        const char *paths[] = { sv->packages.path, NULL };
        struct cg_client_options co = { .size = sizeof(co) };
        struct cg_session_options so = { .size = sizeof(so),
                                         .front = CG_FRONT_MCP,
                                         .workspace = sv->workspace,
                                         .env = sv->opts.kernel.env,
                                         .python_path = paths,
                                         .settings = sv->settings };
        struct cg_kernel_hides hides;
        cg_auto_json json_t *known = NULL, *more = NULL;
        struct cg_session *s;
        int r = cg_kernel_options_session(&sv->opts.kernel, sv->workspace, &hides, &so, err);

        if (sv->refused) {
                cg_kernel_hides_fini(&hides);
                *err = sv->start_err;
                return -1;
        }
        /* If the client cannot ask its user, each question is refused with that reason. */
        pthread_mutex_lock(&sv->lock);
        so.server_requests = (sv->proto.can_ask ? CG_SERVER_REQUEST_ELICITATION : 0) |
                             (sv->proto.can_open ? CG_SERVER_REQUEST_URL : 0);
        pthread_mutex_unlock(&sv->lock);
        so.ask_egress = cg_approve_base(sv->opts.kernel.approve) == CG_APPROVE_ASK ||
                        cg_pol_is_about(cg_approve_policy(sv->opts.kernel.approve), CG_METHOD_CONNECT);
        if (so.ask_egress) /* ask.c has a shorter limit, and reports it */
                so.approval_timeout_ms = sv->opts.ask_timeout_ms < MAX_ASK_MS ? sv->opts.ask_timeout_ms + 5000
                                                                              : MAX_ASK_MS;

        cg_kernel_options_client(&sv->opts.kernel, &co);
        co.no_spare = !co.share;
        if (r == 0)
                r = cg_client_open(&co, &sv->client, err);
        if (r == 0 && cg_client_why_private(sv->client))
                cg_log(&sv->log, CG_LOG_WARN, "private supervisor, since none can be shared: %s",
                       cg_client_why_private(sv->client));
        if (r == 0) {
                r = cg_session_new(sv->client, &so, &s, err);
                if (r < 0)
                        sv->client = cg_client_close(sv->client);
        }
        cg_kernel_hides_fini(&hides);
        if (r < 0)
                return -1;
        pthread_mutex_lock(&sv->lock);
        sv->session = s;
        cg_approve_new_session(sv->opts.kernel.approve);
        pthread_mutex_unlock(&sv->lock);
        known = add_servers(sv, sv->configured);
        if (!sv->rules_checked && known && check_rules(sv, known, err) < 0) {
                close_session(sv);
                return -1;
        }
        more = add_servers(sv, sv->registered);
        return 0;
}

/* Replaces a session that has ended, and reports the loss of its state to the agent. */
static int ensure_session(struct cg_serve *sv, struct cg_answer *a, struct cg_err *err)
{
        drain(sv);
        if (sv->lost) {
                cg_answer_note(
                        a,
                        "The session had ended (%s), so this ran in a new one: variables and imports are lost.",
                        sv->lost);
                close_session(sv);
        }
        return sv->session ? 0 : open_session(sv, err);
}

/* ------------------------------------------------------------------ execute_ipython_cell */

/* From here on the worker answers the calls that wait for the cell: its answer grows. */
static void set_running(struct cg_serve *sv, struct cg_job *job)
{
        pthread_mutex_lock(&sv->lock);
        job->state = CG_JOB_RUNNING;
        job->start_ms = cg_now_ms();
        sv->chars = 0;
        sv->line[0] = '\0';
        pthread_mutex_unlock(&sv->lock);
}

static void set_cell(struct cg_serve *sv, const struct cg_job *job, uint64_t cell)
{
        pthread_mutex_lock(&sv->lock);
        sv->cell = cell;
        /* Cancelled after the queue check but before the cell started. */
        if (cell && (job->cancelled || sv->stop))
                cg_session_cancel(sv->session, cell, NULL);
        pthread_mutex_unlock(&sv->lock);
}

static bool stopping(struct cg_serve *sv)
{
        bool stop;

        pthread_mutex_lock(&sv->lock);
        stop = sv->stop;
        pthread_mutex_unlock(&sv->lock);
        return stop;
}

static bool was_reset(struct cg_serve *sv, const struct cg_job *job)
{
        bool reset;

        pthread_mutex_lock(&sv->lock);
        reset = job->reset;
        pthread_mutex_unlock(&sv->lock);
        return reset;
}

/* A cancelled cell is waited for: it is interrupted, and its output is kept. */
static bool has_ended(struct cg_serve *sv, const struct cg_job *job)
{
        return stopping(sv) || was_reset(sv, job);
}

/*
 * The rate of cells, where there is a policy. CG_E_LIMIT: this one is too many. The minute begins
 * with its first cell.
 */
static int count_cell(struct cg_serve *sv, struct cg_err *err)
{
        const struct cg_pol *p = cg_approve_policy(sv->opts.kernel.approve);
        unsigned limit = cg_pol_cells_per_minute(p) ?: CELLS_PER_MINUTE;
        int64_t now = cg_now_ms(), left = sv->minute_ms + 60000 - now;

        if (cg_pol_is_empty(p))
                return 0;
        if (!sv->cells_in_minute || left <= 0) {
                sv->minute_ms = now;
                sv->cells_in_minute = 0;
        } else if (sv->cells_in_minute >= limit) {
                return cg_fail(err, CG_E_LIMIT,
                               "the policy allows %u cells a minute (cells_per_minute); try again in %d s",
                               limit, (int)(left / 1000) + 1);
        }
        sv->cells_in_minute++;
        return 0;
}

/* True if the user or the agent can be asked for the text of input(). */
static bool can_input(struct cg_serve *sv)
{
        bool can;

        pthread_mutex_lock(&sv->lock);
        can = sv->proto.can_ask || sv->opts.toolsets & CG_SERVE_JOBS;
        pthread_mutex_unlock(&sv->lock);
        return can;
}

/* Runs the cell to its end, and explains in @a how it ended. */
static void run_cell(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a)
{
        const char *text;
        double seconds = job->timeout < MAX_TIMEOUT_S ? job->timeout : MAX_TIMEOUT_S;
        struct cg_execute_options o = { .size = sizeof(o),
                                        .timeout_ms = (int64_t)ceil(seconds * 1000),
                                        .allow_stdin = can_input(sv),
                                        .extra = sv->opts.plain ? NULL : "{\"variables\":true}",
                                        .artifacts = sv->opts.kernel.artifacts };
        struct cg_err err = { 0 };
        uint64_t cell = 0;

        cg_answer_move(a, sv->between, "[output since the last call:]", "[output of this call:]");
        sv->answer = a;
        sv->cell_done = false;
        set_running(sv, job);
        if (count_cell(sv, &err) < 0 ||
            cg_session_execute(sv->session, job->code, strlen(job->code), &o, &cell, &err) < 0) {
                cg_answer_error(a);
                cg_answer_note(a, "The cell was not run: %s", err.msg);
        } else {
                set_cell(sv, job, cell);
                while (!sv->cell_done && !sv->lost && !has_ended(sv, job))
                        wait_once(sv, -1, -1);
                text = sv->status_text ? sv->status_text : "";
                if (!sv->cell_done || sv->status != CG_STATUS_OK)
                        cg_answer_error(a);
                if (!sv->cell_done && was_reset(sv, job))
                        cg_serve_drop_asks(sv);
                else if (!sv->cell_done)
                        cg_answer_note(
                                a,
                                "The session ended while the cell ran: %s. The next call starts a new one;"
                                " variables and imports are lost.",
                                sv->lost ? sv->lost : "the server is being stopped");
                else if (sv->status == CG_STATUS_TIMEOUT)
                        cg_answer_note(a, "Timed out: %s. For more time pass a larger timeout.",
                                       *text ? text : "it ran longer than its limit and was interrupted");
                else if (sv->status == CG_STATUS_CANCELLED)
                        cg_answer_note(a, "Cancelled%s%s.", *text ? ": " : "", text);
                else if (sv->status == CG_STATUS_KERNEL_DIED)
                        cg_answer_note(
                                a,
                                "The cell failed: %s (variables and imports). A fresh kernel takes its place; files,"
                                " installed packages and MCP servers are still there.",
                                text);
        }
        set_cell(sv, job, 0);
        if (!sv->lost && cg_serve_given_up(sv, job))
                cg_serve_refuse_connections(sv);
        cg_denial_reports_clear(&sv->denials);
        sv->answer = NULL;
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
        cg_auto_json json_t *o = report ? json_loads(report, JSON_ALLOW_NUL, NULL) : NULL;
        json_t *server = json_object_get(o, name), *tools = json_object_get(server, "tools"), *tool;
        const char *package = json_string_value(json_object_get(server, "package"));
        size_t i;

        add_line(a, "Registered \"%s\". Its tools, to be imported as `from %s%s import TOOL`:", name,
                 package && strncmp(package, "mcptools.", 9) == 0 ? "" : "mcptools.",
                 package ? package : name);
        json_array_foreach(tools, i, tool)
        {
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
                        add_line(a, "%s: not usable (%s)", original,
                                 status ? status : "no module was generated");
        }
}

static bool allowed(struct cg_serve *sv, const struct cg_job *job, struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };

        if (cg_serve_allowed(sv, job, wait_once, &why))
                return true;
        cg_log(&sv->log, CG_LOG_INFO, "refused cellgate.%s: %s", cg_serve_tool_defs[job->tool].name,
               why.data ? why.data : "");
        cg_fail(err, CG_E_STATE, "%s was refused: %s", cg_serve_tool_defs[job->tool].name,
                why.data ? why.data : "no memory");
        return false;
}

/* Earlier approvals and pending answers are about the former program of this name. */
static void forget_server(struct cg_serve *sv, const char *name)
{
        cg_serve_refuse_calls(sv, name);
        cg_approve_forget(sv->opts.kernel.approve, name);
}

static int try_register(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
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
        if (cg_json_object(v.p, v.len, "server_params", &params, err) < 0 || !allowed(sv, job, err))
                return -1;
        one = json_pack("{s:O}", name, params);
        text = one ? cg_json_text(one, &len) : NULL;
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "MCP server %s", name);
        r = ensure_session(sv, a, err);
        same = json_equal(params,
                          json_object_get(sv->registered, name) ?: json_object_get(sv->configured, name));
        if (r == 0 && !same)
                forget_server(sv, name);
        if (r == 0)
                r = cg_session_add_mcp_servers(sv->session, text, len, 0, &report, err);
        if (!same)
                forget_server(sv, name); /* questions asked about the former program meanwhile */
        if (r == 0 && json_object_set(sv->registered, name, params) == 0)
                list_tools(a, name, report);
        cg_free(report);
        return r;
}

/* ------------------------------------------------------------------ the other tools */

static int try_install(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_free char *text = NULL, *requirements = NULL;

        if (cg_serve_arg_string(job->args, "package_name", &text, err) < 0 ||
            cg_serve_requirements(text, &requirements, err) < 0 || !allowed(sv, job, err) ||
            ensure_session(sv, a, err) < 0)
                return -1;
        cg_serve_install(sv, job, wait_once, requirements, a);
        return 0;
}

static int try_reset(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        drain(sv);
        if (sv->session && !sv->lost && cg_session_reset(sv->session, 0, err) < 0) {
                cg_log(&sv->log, CG_LOG_WARN, "reset: %s; a new session is started", err->msg);
                close_session(sv);
        }
        if (sv->lost)
                close_session(sv);
        if (!sv->session && open_session(sv, err) < 0)
                return -1;
        drain(sv);
        sv->between = cg_answer_free(sv->between);
        sv->between = cg_answer_new(CG_SERVE_BETWEEN_CHARS);
        cg_answer_note(a, "The kernel is new: variables and imports are lost; files, installed packages and"
                          " registered MCP servers are still there.");
        return sv->between ? 0 : cg_fail(err, CG_E_NOMEM, "output");
}

/* ------------------------------------------------------------------ the thread */

static int run_execute(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        if (ensure_session(sv, a, err) < 0)
                return -1;
        if (!was_reset(sv, job))
                run_cell(sv, job, a);
        return 0;
}

static void run_job(struct cg_serve *sv, struct cg_job *job)
{
        static int (*const tries[])(struct cg_serve *, struct cg_job *, struct cg_answer *,
                                    struct cg_err *) = {
                [CG_SERVE_EXECUTE] = run_execute,
                [CG_SERVE_REGISTER] = try_register,
                [CG_SERVE_INSTALL] = try_install,
                [CG_SERVE_RESET] = try_reset,
        };
        struct cg_err err;
        int r = was_reset(sv, job) ? 0 : tries[job->tool](sv, job, job->answer, &err);

        if (was_reset(sv, job)) {
                cg_answer_error(job->answer);
                cg_answer_note(job->answer, "Ended, because reset was called meanwhile.");
        }
        if (r < 0) {
                cg_answer_error(job->answer);
                cg_answer_note(job->answer, "%s", err.msg);
        }
        cg_serve_finish_job(sv, job);
}

static bool initialized(struct cg_serve *sv)
{
        bool is;

        pthread_mutex_lock(&sv->lock);
        is = sv->proto.revision != CG_MCPD_NONE;
        pthread_mutex_unlock(&sv->lock);
        return is;
}

void *cg_serve_worker(void *data)
{
        struct cg_serve *sv = data;
        struct cg_job *job;
        struct cg_err err;

        /*
         * Opened ahead of the first call, as soon as it is known what the client can ask its user.
         * If this fails, each call tries again and reports why.
         */
        while (!stopping(sv) && !initialized(sv))
                wait_once(sv, -1, -1);
        if (!stopping(sv) && open_session(sv, &err) < 0)
                cg_log(&sv->log, CG_LOG_ERROR, "no session yet: %s", err.msg);
        while (!stopping(sv)) {
                job = cg_serve_next_job(sv);
                if (job)
                        run_job(sv, job);
                else
                        wait_once(sv, -1, -1);
        }
        close_session(sv);
        cg_denial_reports_clear(&sv->denials);
        free(sv->status_text);
        pthread_mutex_lock(&sv->lock);
        sv->worker_gone = true;
        pthread_cond_signal(&sv->gone);
        pthread_mutex_unlock(&sv->lock);
        cg_serve_wake(sv->io_fd);
        return NULL;
}
