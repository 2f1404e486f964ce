/*
 * `cellgate mcp serve`: the worker of a session. It owns the kernel and runs the calls in the order
 * in which they came: cells, and the tools that take their turn after them.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <math.h>
#include "base/json.h"

#define MAX_TIMEOUT_S (10 * 365 * 86400.0)
/* With policy files that have no other rate. */
#define CELLS_PER_MINUTE 120u

/* ------------------------------------------------------------------ cells */

/* From here on the worker answers the calls that wait for the cell: its answer grows. */
static void set_running(struct cg_serve_session *s, struct cg_job *job)
{
        CG_HOLD(&s->sv->lock);

        job->state = CG_JOB_RUNNING;
        job->start_ms = cg_now_ms();
        s->shown.chars = 0;
        s->shown.line[0] = '\0';
}

static void set_cell(struct cg_serve_session *s, const struct cg_job *job, uint64_t cell)
{
        CG_HOLD(&s->sv->lock);

        s->cell = cell;
        /* Cancelled after the queue check but before the cell started. */
        if (cell && (job->cancelled || s->sv->stop))
                cg_session_cancel(s->session, cell, NULL);
}

/* The tool that ends the job; NULL: none. */
static const char *ended_by(struct cg_serve_session *s, const struct cg_job *job)
{
        CG_HOLD(&s->sv->lock);

        return job->ended_by;
}

/* A cancelled cell is waited for: it is interrupted, and its output is kept. */
static bool has_ended(struct cg_serve_session *s, const struct cg_job *job)
{
        CG_HOLD(&s->sv->lock);

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
        CG_HOLD(&s->sv->lock);

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
        CG_HOLD(&s->sv->lock);

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
                               cg_text_or(text, "it ran longer than its limit and was interrupted"));
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

        cg_answer_move(a, s->out.between, "[output since the last call:]", "[output of this call:]");
        s->out.answer = a;
        s->end.done = false;
        set_running(s, job);
        if (count_cell(s, &err) < 0 ||
            cg_session_execute(s->session, job->code, strlen(job->code), &o, &cell, &err) < 0) {
                cg_answer_error(a);
                cg_answer_note(a, "The cell was not run: %s", err.msg);
        } else {
                set_cell(s, job, cell);
                while (!s->end.done && !s->lost && !has_ended(s, job))
                        cg_serve_wait(s, -1, -1);
                explain_end(s, job, a);
        }
        set_cell(s, job, 0);
        if (!s->lost && cg_serve_given_up(job))
                cg_serve_refuse_connections(s);
        cg_denial_reports_clear(&s->out.denials);
        s->out.answer = NULL;
}

/* ------------------------------------------------------------------ tools */

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
        const char *own = cg_serve_language(s);
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
            !cg_serve_allowed(s, job, a, err) || cg_serve_ensure_open(s, a, err) < 0)
                return -1;
        if (node)
                cg_serve_install_npm(s, job, requirements, cg_slice_is(scripts, "true"), a);
        else
                cg_serve_install(s, job, requirements, a);
        return 0;
}

static int try_reset(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        cg_serve_drain(s);
        if (s->session && !s->lost && cg_session_reset(s->session, 0, err) < 0) {
                cg_log(&s->sv->log, CG_LOG_WARN, "reset: %s; a new session is started", err->msg);
                cg_serve_close(s);
        }
        if (s->lost)
                cg_serve_close(s);
        if (!s->session && cg_serve_open(s, err) < 0)
                return -1;
        cg_serve_drain(s);
        s->out.between = cg_answer_free(s->out.between);
        s->out.between = cg_answer_new(CG_SERVE_BETWEEN_CHARS);
        cg_serve_send_message(s, CG_MCPD_LOG_INFO, "the kernel was replaced by a new one: reset was called");
        cg_answer_note(a, "The kernel is new: variables and imports are lost; files, installed packages and"
                          " registered MCP servers are still there.");
        return cg_made(s->out.between, "output", err);
}

/* With what the sandbox refuses meanwhile. */
static int try_file(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        int r;

        s->out.answer = a;
        r = cg_serve_file(s, job, a, err);
        cg_serve_drain(s);
        cg_denial_reports_clear(&s->out.denials);
        s->out.answer = NULL;
        return r;
}

static int try_explain(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        int r = cg_serve_explain(s, job, a, err);

        if (r == 1)
                run_cell(s, job, a);
        return r;
}

/* The second session goes on with the job. 1: it has it; 0: nobody waits for it. */
static int hand_over(struct cg_serve_session *s, struct cg_job *job, struct cg_err *err)
{
        CG_HOLD(&s->sv->lock);
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

        if (cg_serve_bridge_send(s, job->bridge, err) < 0)
                return -1;
        s->bridge = job->bridge;
        while (cg_serve_bridge_waits(s->bridge) && !s->lost && !cg_serve_given_up(job))
                cg_serve_wait(s, -1, -1);
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
        if (cg_serve_session_configure(s, job->args, err) == 0 && cg_serve_open(s, err) == 0) {
                if (!cg_serve_given_up(job)) {
                        cg_answer_note(a, "session_id: %s", s->id);
                        return 0;
                }
                cg_fail(err, CG_E_STATE, "The session was not opened: the call was cancelled.");
        }
        CG_HOLD(&s->sv->lock);
        cg_serve_session_end(s, "it was not opened");
        return -1;
}

static int try_terminate(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                         struct cg_err *err)
{
        cg_serve_close(s);
        cg_answer_note(a, "The session has ended. Its variables, results and installed packages are lost;"
                          " files are still there.");
        return 0;
}

/* ------------------------------------------------------------------ the thread */

static int run_execute(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        if (!ended_by(s, job))
                run_cell(s, job, a);
        return 0;
}

static void run_job(struct cg_serve_session *s, struct cg_job *job)
{
        /* @open: with the session open. */
        static const struct {
                int (*run)(struct cg_serve_session *, struct cg_job *, struct cg_answer *, struct cg_err *);
                bool open;
        } tools[] = {
                [CG_SERVE_EXECUTE] = { run_execute, true },
                [CG_SERVE_REGISTER] = { cg_serve_register, false },
                [CG_SERVE_INSTALL] = { try_install, false },
                [CG_SERVE_UNINSTALL] = { cg_serve_uninstall, true },
                [CG_SERVE_RESET] = { try_reset, false },
                [CG_SERVE_CREATE_SESSION] = { try_create, false },
                [CG_SERVE_TERMINATE] = { try_terminate, false },
                [CG_SERVE_BRIDGE] = { try_bridge, true },
                [CG_SERVE_LIST_FILES... CG_SERVE_REMOVE_FILE] = { try_file, true },
                [CG_SERVE_LIST_VARIABLES] = { run_execute, true },
                [CG_SERVE_SANDBOX_INFO] = { cg_serve_sandbox_info, true },
                [CG_SERVE_EXPLAIN] = { try_explain, true },
                [CG_SERVE_LIST_APPROVALS... CG_SERVE_DECIDE_APPROVAL] = { cg_serve_approver, false },
                [CG_SERVE_ARTIFACT] = { cg_serve_read_artifact, true },
        };
        bool bridge = job->tool == CG_SERVE_BRIDGE;
        struct cg_err err;
        const char *by;
        int r = 0;

        if (!ended_by(s, job) &&
            (!tools[job->tool].open || (r = cg_serve_ensure_open(s, job->answer, &err)) >= 0))
                r = tools[job->tool].run(s, job, job->answer, &err);
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
        CG_HOLD(&s->sv->lock);

        return s->sv->stop || (s->life != CG_SERVE_LIVES && TAILQ_EMPTY(&s->jobs));
}

/* A session of the connection from its beginning: it is opened ahead of the first call. */
static bool opens_ahead(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);

        return s->sv->own == s && !s->lost && !(s->sv->opts.toolsets & CG_SERVE_APPROVALS);
}

bool cg_serve_knows_client(const struct cg_serve *sv)
{
        return sv->proto.revision != CG_MCPD_NONE || sv->proto.peer.stateless;
}

static bool initialized(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);

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
                cg_serve_wait(s, -1, -1);
        if (opens_ahead(s) && !ending(s) && cg_serve_open(s, &err) < 0)
                cg_log(&s->sv->log, CG_LOG_ERROR, "no session yet: %s", err.msg);
        while (!ending(s)) {
                job = cg_serve_next_job(s);
                if (job)
                        run_job(s, job);
                else
                        cg_serve_wait(s, -1, -1);
        }
        cg_serve_close(s);
        cg_denial_reports_clear(&s->out.denials);
        free(s->end.text);
        CG_HOLD(&s->sv->lock);
        s->life = CG_SERVE_GONE;
        pthread_cond_signal(&s->sv->gone);
        cg_serve_wake(s->sv->io_fd);
        return NULL;
}
