/*
 * `cellgate mcp serve`: what the I/O thread does with a call: it queues a job for the worker of a
 * session, or answers at once, as about a cell.
 */
#include "cli/mcp_serve/mcp_serve.h"
#include "cli/mcp_serve/texts.h"

#include "mcp/jsonrpc.h"

/* The limits of a cell's text that has no limit of its own, and of an answer about cells. */
#define OUTPUT_CHARS 5000u
#define OWN_CHARS    20000u
/* The limit of a file's part, of a folder's list and of an approval, which are limited before. */
#define FILE_CHARS 4000000u
/* A page of fetch_webpage, with what is around it. */
#define CALLED_CHARS 60000u
#define TIMEOUT_S    120
/* The same for start_cell, which nobody waits for, and for the cell of list_variables. */
#define LONG_TIMEOUT_S 3600
#define LIST_TIMEOUT_S 10

/* ------------------------------------------------------------------ jobs */

int cg_serve_add_job(struct cg_pending *p, struct cg_job *j, size_t max_chars, struct cg_err *err)
{
        struct cg_serve_session *s = p->session;
        bool untrusted = cg_serve_tool_defs[p->tool].toolset == CG_SERVE_WEB;
        bool full = s->n_jobs >= CG_SERVE_MAX_JOBS && p->tool != CG_SERVE_TERMINATE;
        char line[200];

        j->session = s;
        j->start_ms = cg_now_ms();
        if (j->number || j->tool == CG_SERVE_CREATE_SESSION)
                j->answer = cg_serve_cell_answer(s, j->number, max_chars);
        else
                j->answer = cg_answer_new(max_chars);
        if (!j->answer || (!j->args && !j->code) || full) {
                cg_job_free(j);
                if (full)
                        return cg_fail(err, CG_E_LIMIT, "too many cells wait already: wait for some of them");
                return cg_fail(err, CG_E_NOMEM, "no memory is left");
        }
        if (untrusted)
                cg_answer_set_untrusted(j->answer, cg_serve_tool_defs[p->tool].name);
        if (p->fresh) {
                snprintf(
                        line, sizeof(line),
                        "[cellgate: a new session, without earlier variables. To go on in it, give session_id=\"%s\"]",
                        s->id);
                if (untrusted)
                        cg_answer_note(j->answer, "%s", line);
                else
                        cg_answer_lines(j->answer, line, strlen(line));
        }
        TAILQ_INSERT_TAIL(&s->jobs, j, entry);
        s->n_jobs++;
        p->job = j;
        p->own = true;
        cg_serve_wake(s->work_fd);
        return 0;
}

/* The tool limits what it returns itself. */
static bool is_long(enum cg_serve_tool tool)
{
        return cg_serve_tool_defs[tool].toolset & (CG_SERVE_FILES | CG_SERVE_APPROVALS);
}

static int begin_in_turn(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_job *j = calloc(1, sizeof(*j)), *before;

        if (!j)
                return cg_fail(err, CG_E_NOMEM, "no memory is left");
        j->tool = p->tool;
        j->args = strdup(args);
        j->timeout = LIST_TIMEOUT_S; /* of what the tool runs in the kernel */
        if (cg_serve_add_job(p, j, is_long(p->tool) ? FILE_CHARS : OWN_CHARS, err) < 0)
                return -1;
        if (j->tool == CG_SERVE_RESET || j->tool == CG_SERVE_TERMINATE)
                for (before = TAILQ_FIRST(&p->session->jobs); before != j; before = TAILQ_NEXT(before, entry))
                        before->ended_by = cg_serve_tool_defs[j->tool].name;
        return 0;
}

static int begin_approver(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        p->session = sv->own;
        return begin_in_turn(sv, p, args, err);
}

/* May take longer than the call waits: then it has an execution_id, as a cell has. */
static int begin_install(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        if (begin_in_turn(sv, p, args, err) < 0)
                return -1;
        cg_serve_set_wait(sv, p);
        if (p->deadline_ms == INT64_MAX)
                return 0;
        p->job->number = ++sv->last_cell;
        p->max_chars = OWN_CHARS;
        return 0;
}

/* Takes @code. */
static int add_code(struct cg_serve *sv, struct cg_pending *p, char *code, double timeout, struct cg_err *err)
{
        struct cg_job *j = calloc(1, sizeof(*j));

        if (!j) {
                free(code);
                return cg_fail(err, CG_E_NOMEM, "no memory is left");
        }
        j->tool = CG_SERVE_EXECUTE;
        j->timeout = timeout;
        j->code = code;
        j->number = sv->last_cell + 1;
        if (cg_serve_add_job(p, j, p->max_chars, err) < 0)
                return -1;
        sv->last_cell++;
        return 0;
}

static int add_cell(struct cg_serve *sv, struct cg_pending *p, const char *args, double timeout,
                    struct cg_err *err)
{
        char *code;

        if (cg_serve_arg_number(args, "timeout", timeout, &timeout, err) < 0)
                return -1;
        if (timeout <= 0)
                return cg_fail(err, CG_E_INVAL, "the parameter \"timeout\" must be more than 0 seconds");
        p->max_chars = OUTPUT_CHARS;
        if (p->tool == CG_SERVE_EXECUTE && cg_serve_arg_size(args, "max_output_chars", OUTPUT_CHARS, 0,
                                                             CG_SERVE_MAX_OUTPUT, &p->max_chars, err) < 0)
                return -1;
        if (cg_serve_arg_string(args, "code", &code, err) < 0)
                return -1;
        return add_code(sv, p, code, timeout, err);
}

static int check_python(const struct cg_pending *p, struct cg_err *err)
{
        const char *language = cg_serve_language(p->session);

        if (strcmp(language, "python") == 0)
                return 0;
        return cg_fail(err, CG_E_INVAL, "%s is for sessions of Python; this one's language is %s",
                       cg_serve_tool_defs[p->tool].name, language);
}

/* A call of a tool of the host or the web. */
static int begin_called(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        char *code;

        if (check_python(p, err) < 0 || cg_serve_call_code(sv, p->tool, args, &code, err) < 0)
                return -1;
        p->max_chars = CALLED_CHARS;
        if (add_code(sv, p, code, LONG_TIMEOUT_S, err) < 0)
                return -1;
        cg_serve_set_wait(sv, p);
        return 0;
}

static int begin_execute(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        if (add_cell(sv, p, args, TIMEOUT_S, err) < 0)
                return -1;
        cg_serve_set_wait(sv, p);
        return 0;
}

static int begin_start(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        if (add_cell(sv, p, args, LONG_TIMEOUT_S, err) < 0)
                return -1;
        cg_serve_answer_unfinished(sv, p);
        return 0;
}

static int begin_variables(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_job *j;

        if (check_python(p, err) < 0)
                return -1;
        j = calloc(1, sizeof(*j));
        if (!j)
                return cg_fail(err, CG_E_NOMEM, "no memory is left");
        j->tool = CG_SERVE_LIST_VARIABLES;
        j->timeout = LIST_TIMEOUT_S;
        j->code = strdup("exec(r'''" CG_SERVE_LIST_VARIABLES_PY "''', {})");
        return cg_serve_add_job(p, j, OWN_CHARS, err);
}

/* ------------------------------------------------------------------ answered at once */

/* Answers a call with one text. */
static int say(struct cg_serve *sv, struct cg_pending *p, const char *text)
{
        struct cg_answer *a = cg_answer_new(OWN_CHARS);

        if (a && text)
                cg_answer_note(a, "%s", text);
        cg_serve_reply(sv, p, a);
        cg_answer_free(a);
        return 0;
}

static int begin_status(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_job *job;

        if (cg_serve_find_cell(sv, args, &job, err) < 0)
                return -1;
        if (job->state == CG_JOB_DONE)
                cg_buf_addf(&b,
                            "cell-%" PRIu64
                            " has ended, after %.1f s; cell_result returns its result, with %zu"
                            " characters of output",
                            job->number, (double)(job->end_ms - job->start_ms) / 1000,
                            cg_answer_chars(job->answer));
        else
                cg_serve_add_state(job, &b);
        if (job->state == CG_JOB_RUNNING) {
                cg_buf_addf(&b, "; %zu characters of output so far", job->session->shown.chars);
                if (*job->session->shown.line)
                        cg_buf_addf(&b, ", the last line: %s", job->session->shown.line);
        }
        return say(sv, p, b.data);
}

static int begin_result(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        double wait_s = (double)sv->opts.wait_ms / 1000, wanted_s;
        struct cg_job *job;
        size_t max;

        if (cg_serve_find_cell(sv, args, &job, err) < 0 ||
            cg_serve_arg_number(args, "wait", wait_s, &wanted_s, err) < 0 ||
            cg_serve_arg_size(args, "from", 0, 0, CG_SERVE_MAX_OUTPUT, &p->from, err) < 0 ||
            cg_serve_arg_size(args, "max_output_chars", 0, 1, CG_SERVE_MAX_OUTPUT, &max, err) < 0)
                return -1;
        if (wanted_s < 0)
                return cg_fail(err, CG_E_INVAL, "the parameter \"wait\" must be 0 or more seconds");
        p->job = job;
        p->session = job->session;
        p->max_chars = max ?: OUTPUT_CHARS;
        p->part = max || p->from;
        p->deadline_ms = p->since_ms + (int64_t)(CG_MIN(wanted_s, wait_s) * 1000);
        if (job->state == CG_JOB_DONE)
                cg_serve_answer_done(sv, p);
        else
                cg_serve_wake(job->session->work_fd);
        return 0;
}

static int begin_cancel(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_job *job;
        bool queued;

        if (cg_serve_find_cell(sv, args, &job, err) < 0)
                return -1;
        if (job->state == CG_JOB_DONE)
                return say(sv, p, "The cell has ended already; cell_result returns its result.");
        job->known = true;
        queued = job->state == CG_JOB_QUEUED;
        cg_serve_cancel_job(job);
        return say(sv, p,
                   queued ? "The cell was removed from the queue."
                          : "The cell is being interrupted; cell_result returns its result.");
}

static int begin_send_input(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_serve_ask *a;
        struct cg_job *job;
        char *text;

        if (cg_serve_find_cell(sv, args, &job, err) < 0)
                return -1;
        a = cg_serve_agent_input(job->session);
        if (!a || job->state != CG_JOB_RUNNING)
                return cg_fail(err, CG_E_STATE,
                               "the cell does not wait for input from you; cell_status says what it does");
        if (cg_serve_arg_string(args, "text", &text, err) < 0)
                return -1;
        cg_serve_send_input(job->session, a, text);
        return say(sv, p, "The cell has got the text; cell_result returns its result.");
}

static int begin_read_output(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        size_t start, max;
        struct cg_answer *a;
        struct cg_job *job;

        if (cg_serve_arg_size(args, "start", 0, 0, CG_SERVE_MAX_OUTPUT, &start, err) < 0 ||
            cg_serve_arg_size(args, "max_output_chars", OUTPUT_CHARS, 1, CG_SERVE_MAX_OUTPUT, &max, err) < 0)
                return -1;
        job = TAILQ_LAST(&p->session->kept, cg_jobs);
        while (job && !cg_answer_is_cut(job->answer))
                job = TAILQ_PREV(job, cg_jobs, entry);
        if (!job)
                return say(sv, p, "No output of a cell was cut.");
        if (start >= cg_answer_chars(job->answer))
                return say(sv, p, "There is no more output.");
        a = cg_answer_new(max);
        if (a)
                cg_serve_add_part(a, job, start, max, "read_output(start");
        cg_serve_reply(sv, p, a);
        cg_answer_free(a);
        return 0;
}

static int begin_create(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_serve_session *s;

        if (cg_serve_session_new(sv, &s, err) < 0 || cg_serve_session_start(s, err) < 0)
                return -1;
        p->session = s;
        if (begin_in_turn(sv, p, args, err) == 0)
                return 0;
        cg_serve_session_end(s, "it was not opened");
        return -1;
}

static int begin_list(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };

        cg_serve_list_sessions(sv, &b);
        return say(sv, p, b.data);
}

static int begin_terminate(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        cg_auto_free char *id = NULL;

        if (cg_serve_arg_string(args, "session_id", &id, err) < 0 || begin_in_turn(sv, p, args, err) < 0)
                return -1;
        cg_serve_session_end(p->session, "terminate_session was called");
        return 0;
}

static int begin_bridge(struct cg_serve *sv, struct cg_pending *p, const char *args, struct cg_err *err)
{
        struct cg_job *j = calloc(1, sizeof(*j));

        if (!j)
                return cg_fail(err, CG_E_NOMEM, "no memory is left");
        j->tool = CG_SERVE_BRIDGE;
        j->args = strdup("{}");
        if (cg_serve_find_session(sv, args, "to_session", p, err) < 0 ||
            cg_serve_bridge_new(args, p->session->id, &j->bridge, err) < 0 ||
            (!cg_serve_bridge_has_data(j->bridge) &&
             cg_serve_find_session(sv, args, "from_session", p, err) < 0)) {
                cg_job_free(j);
                return -1;
        }
        return cg_serve_add_job(p, j, OWN_CHARS, err);
}

/* Carry out a call, or set what it waits for. CG_E_INVAL, CG_E_NOTFOUND: why, for the agent. */
static int (*const begin[])(struct cg_serve *, struct cg_pending *, const char *args, struct cg_err *) = {
#define X(tool, name, toolset, session, begin) begin_##begin,
        CG_SERVE_TOOLS(X)
#undef X
};

/* ------------------------------------------------------------------ messages */

static void reply_error(struct cg_serve *sv, struct cg_pending *p, const char *why)
{
        struct cg_answer *a = cg_answer_new(0);

        if (a) {
                if (cg_serve_has_schema(p->tool) && !sv->opts.plain)
                        cg_answer_set_structured(a, cg_structured_new(0));
                cg_answer_error(a);
                cg_answer_note(a, "%s", why);
        }
        cg_serve_reply(sv, p, a);
        cg_answer_free(a);
}

/* The session of the call, or of the cell that it is about, may be shared since the last call. */
static void add_shared(const struct cg_pending *p, struct cg_serve *sv, const char *args, struct cg_buf *b)
{
        struct cg_serve_session *s = p->session;
        struct cg_job *job;

        if (!s && cg_serve_tool_defs[p->tool].toolset == CG_SERVE_JOBS &&
            cg_serve_find_cell(sv, args, &job, NULL) == 0)
                s = job->session;
        if (!s)
                return;
        if (b->len)
                cg_buf_adds(b, "\n");
        cg_serve_add_shared(s, b);
}

int cg_serve_call(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        cg_auto_buf struct cg_buf ignored = { .max = 4096 };
        cg_auto_free char *args = in->arguments.p ? strndup(in->arguments.p, in->arguments.len) : NULL;
        struct cg_pending *p;
        bool wrong = false;
        struct cg_err why;

        if (cg_serve_find_pending(sv, in->id))
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_REQUEST,
                                        "a request with this id is being worked on", err);
        if (sv->n_pending >= CG_SERVE_MAX_JOBS)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INTERNAL_ERROR,
                                        "too many calls wait already: await some of them", err);
        if (in->request_state.p)
                return cg_serve_resume(sv, in, err);
        p = args ? cg_serve_add_pending(sv, in) : NULL;
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "call");
        cg_serve_unknown_args(sv, p->tool, args, &ignored, NULL);
        if (cg_serve_tool_defs[p->tool].session && cg_serve_find_session(sv, args, "session_id", p, &why) < 0)
                wrong = true;
        add_shared(p, sv, args, &ignored);
        if (ignored.len)
                p->ignored = cg_buf_steal(&ignored, NULL);
        if (wrong || begin[p->tool](sv, p, args, &why) < 0) {
                if (p->fresh)
                        cg_serve_session_end(p->session, "its call was wrong");
                reply_error(sv, p, why.msg);
        }
        return 0;
}

/*
 * Its session was made for it and has done nothing else: most likely nobody has learned its id,
 * which comes with a result.
 */
static bool leaves_session(const struct cg_pending *p)
{
        const struct cg_serve_session *s = p->session;

        return p->fresh && p->job == TAILQ_FIRST(&s->jobs) && s->n_jobs == 1 && s->n_kept == 0;
}

void cg_serve_back(struct cg_serve *sv, struct cg_slice id)
{
        const struct cg_pending *p = cg_serve_find_pending(sv, id);

        if (!p || !p->own || p->job != TAILQ_FIRST(&p->job->session->jobs))
                return;
        p->job->asked_again = true;
        cg_serve_ask_again(p->job->session);
}

void cg_serve_cancel(struct cg_serve *sv, struct cg_slice id, bool gone)
{
        struct cg_pending *p = cg_serve_find_pending(sv, id);
        struct cg_job *own;

        if (!p)
                return; /* answered already: the two messages crossed */
        /* The protocol forbids an answer to a cancelled request. */
        own = p->own ? p->job : NULL;
        /* Nobody learns its id. */
        if (own && p->tool == CG_SERVE_CREATE_SESSION)
                cg_serve_session_end(own->session, "its creation was cancelled");
        else if (own && leaves_session(p))
                cg_serve_session_end(own->session, "its first call was cancelled");
        cg_serve_remove_pending(sv, p);
        if (own && own->number && gone && (sv->opts.toolsets & CG_SERVE_JOBS)) {
                own->known = true;
                if (own == TAILQ_FIRST(&own->session->jobs) && !own->asked_again)
                        cg_serve_ask_again(own->session);
        } else if (own) {
                cg_serve_cancel_job(own);
        }
}
