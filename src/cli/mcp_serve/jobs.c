/*
 * `cellgate mcp serve`: how jobs end, and what is answered to the calls that wait for them. A cell
 * and its calls are apart: a call is answered after a while, and the cell goes on; its result is
 * kept. Used by both threads.
 */
#include "cli/mcp_serve/mcp_serve.h"

/* Cells that an error lists. */
#define LISTED_CELLS 20u

/* ------------------------------------------------------------------ answers */

static void set_structured(const struct cg_serve_session *s, uint64_t number, size_t max_chars,
                           struct cg_answer *a)
{
        char id[32];

        cg_answer_set_structured(a, cg_structured_new(max_chars));
        cg_structured_set(cg_answer_structured(a), "session_id", s->id);
        snprintf(id, sizeof(id), "cell-%" PRIu64, number);
        if (number)
                cg_structured_set(cg_answer_structured(a), "execution_id", id);
}

struct cg_answer *cg_serve_cell_answer(const struct cg_serve_session *s, uint64_t number, size_t max_chars)
{
        struct cg_answer *a = cg_answer_new(max_chars);

        if (a && !s->sv->opts.plain)
                set_structured(s, number, max_chars, a);
        return a;
}

void cg_serve_answer_unfinished(struct cg_serve *sv, struct cg_pending *p)
{
        cg_auto_buf struct cg_buf state = { .max = 65536 };
        struct cg_job *job = p->job;
        size_t next = p->from;
        uint64_t n = job->number;
        struct cg_answer *a;

        /* A client that waits for a task gives the agent no turn to use send_input. */
        if (p->task && !cg_serve_agent_input(job->session)) {
                cg_serve_make_task(sv, p);
                return;
        }
        a = cg_serve_cell_answer(job->session, n, p->max_chars);
        if (!a) {
                cg_serve_reply(sv, p, NULL);
                return;
        }
        if (job->state == CG_JOB_RUNNING)
                next = cg_answer_part(a, job->answer, p->from, p->max_chars);
        cg_structured_set(cg_answer_structured(a), "status",
                          job->state == CG_JOB_QUEUED || cg_serve_is_starting(job) ? "queued" : "running");
        cg_serve_add_state(job, &state);
        cg_answer_note(a,
                       "[cellgate: %s. execution_id: cell-%" PRIu64 ". %s goes on; cell_result(execution_id="
                       "\"cell-%" PRIu64 "\", from=%zu) returns the rest]",
                       state.data ?: "the cell has not ended", n,
                       job->tool == CG_SERVE_EXECUTE ? "The cell" : "The installation", n, next);
        job->known = true;
        cg_serve_reply(sv, p, a);
        cg_answer_free(a);
}

bool cg_serve_add_part(struct cg_answer *a, const struct cg_job *job, size_t from, size_t max,
                       const char *more)
{
        size_t next = cg_answer_part(a, job->answer, from, max), all = cg_answer_chars(job->answer);

        if (next >= all)
                return true;
        if (next == from)
                cg_answer_note(a, "[The output was longer; its first %zu MiB are kept]",
                               CG_SERVE_MAX_OUTPUT >> 20);
        else
                cg_answer_note(a, "[Characters %zu to %zu of %zu; %s=%zu) returns more]", from, next, all,
                               more, next);
        return next == from;
}

void cg_serve_answer_done(struct cg_serve *sv, struct cg_pending *p)
{
        struct cg_job *job = p->job;
        struct cg_answer *a = NULL;
        char more[80];

        job->known = true;
        if (p->part) {
                snprintf(more, sizeof(more), "cell_result(execution_id=\"cell-%" PRIu64 "\", from",
                         job->number);
                a = cg_serve_cell_answer(job->session, job->number, p->max_chars);
                cg_structured_copy(cg_answer_structured(a), cg_answer_structured(job->answer), "status");
                if (a && cg_serve_add_part(a, job, p->from, p->max_chars, more)) {
                        cg_answer_rest(a, job->answer);
                        job->read_ms = cg_now_ms();
                }
                cg_serve_reply(sv, p, a);
                cg_answer_free(a);
                return;
        }
        job->read_ms = cg_now_ms();
        /* An installation has no structured result of its own. */
        if (cg_serve_has_schema(p->tool) && !sv->opts.plain && !cg_answer_structured(job->answer))
                set_structured(job->session, job->number, p->max_chars, job->answer);
        cg_serve_reply(sv, p, job->answer);
}

/* ------------------------------------------------------------------ kept results */

static void forget(struct cg_serve_session *s, struct cg_job *j)
{
        TAILQ_REMOVE(&s->kept, j, entry);
        s->n_kept--;
        cg_serve_drop_held(s->sv, j);
        cg_job_free(j);
}

/* The one to forget first: one that was read, else the oldest. */
static struct cg_job *least_wanted(struct cg_serve_session *s)
{
        struct cg_job *j, *newest = TAILQ_LAST(&s->kept, cg_jobs);

        TAILQ_FOREACH(j, &s->kept, entry)
                if (j->read_ms && j != newest)
                        return j;
        return TAILQ_FIRST(&s->kept);
}

void cg_serve_forget_old(struct cg_serve_session *s)
{
        struct cg_job *j, *next, *newest = TAILQ_LAST(&s->kept, cg_jobs);
        int64_t now = cg_now_ms();
        size_t bytes = 0;

        for (j = TAILQ_FIRST(&s->kept); j && j != newest; j = next) {
                next = TAILQ_NEXT(j, entry);
                if (j->read_ms && now - j->read_ms >= CG_SERVE_KEPT_MS)
                        forget(s, j);
                else
                        bytes += cg_answer_memory(j->answer);
        }
        while (s->n_kept > 1 && (bytes > CG_SERVE_KEPT_BYTES || s->n_kept > CG_SERVE_MAX_KEPT)) {
                j = least_wanted(s);
                bytes -= cg_answer_memory(j->answer);
                forget(s, j);
        }
}

static void keep(struct cg_serve_session *s, struct cg_job *job)
{
        free(job->code);
        job->code = NULL;
        job->end_ms = cg_now_ms();
        TAILQ_INSERT_TAIL(&s->kept, job, entry);
        s->n_kept++;
        cg_serve_forget_old(s);
}

/* The last cells of a session, and those that have not ended. */
static void list_cells(const struct cg_serve_session *s, struct cg_buf *b)
{
        const struct cg_job *j;
        size_t skip = s->n_kept > LISTED_CELLS ? s->n_kept - LISTED_CELLS : 0;

        TAILQ_FOREACH(j, &s->kept, entry) {
                if (skip)
                        skip--;
                else
                        cg_buf_addf(b, "%scell-%" PRIu64, cg_sep(b->len, ", "), j->number);
        }
        TAILQ_FOREACH(j, &s->jobs, entry)
                if (j->number)
                        cg_buf_addf(b, "%scell-%" PRIu64 " (%s)", cg_sep(b->len, ", "), j->number,
                                    j->state == CG_JOB_RUNNING ? "runs" : "queued");
}

/* The number in an execution_id; 0: it has none. */
static uint64_t cell_number(const char *id)
{
        uint64_t n = strncmp(id, "cell-", 5) == 0 ? strtoull(id + 5, NULL, 10) : 0;
        char name[32];

        snprintf(name, sizeof(name), "cell-%" PRIu64, n);
        return strcmp(name, id) == 0 ? n : 0;
}

struct cg_job *cg_serve_session_cell(struct cg_serve_session *s, uint64_t number)
{
        const struct cg_jobs *const lists[] = { &s->jobs, &s->kept };
        struct cg_job *j;

        cg_serve_forget_old(s);
        for (size_t i = 0; i < CG_ARRAY_LEN(lists); i++)
                TAILQ_FOREACH(j, lists[i], entry)
                        if (j->number == number)
                                return j;
        return NULL;
}

int cg_serve_find_cell(struct cg_serve *sv, const char *args, struct cg_job **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf known = { .max = 65536 };
        cg_auto_free char *id = NULL;
        struct cg_serve_session *s;
        struct cg_job *j = NULL;
        uint64_t n;

        if (cg_serve_arg_string(args, "execution_id", &id, err) < 0)
                return -1;
        n = cell_number(id);
        TAILQ_FOREACH(s, &sv->sessions, entry) {
                if (s->life != CG_SERVE_LIVES || !cg_serve_is_users(s))
                        continue;
                j = n ? cg_serve_session_cell(s, n) : NULL;
                if (j) {
                        s->used_ms = cg_now_ms();
                        *ret = j;
                        return 0;
                }
                list_cells(s, &known);
        }
        if (n && n <= sv->last_cell)
                return cg_fail(
                        err, CG_E_NOTFOUND,
                        "the result of %s was dropped: results are kept until they were read and %d minutes"
                        " more, but %zu MiB and %u cells of a session at most, and end with it. Known: %s",
                        id, CG_SERVE_KEPT_MS / 60000, CG_SERVE_KEPT_BYTES >> 20, CG_SERVE_MAX_KEPT,
                        known.data ?: "none");
        return cg_fail(err, CG_E_NOTFOUND, "there is no execution_id \"%.100s\". Known: %s", id,
                       known.data ?: "none");
}

/* ------------------------------------------------------------------ the end of jobs */

static void end_job(struct cg_job *job)
{
        struct cg_serve_session *s = job->session;
        struct cg_serve *sv = s->sv;
        struct cg_pending *p, *next;
        /* The id of an installation is only told where its call was answered before its end. */
        bool named = job->known || job->tool == CG_SERVE_EXECUTE;

        TAILQ_REMOVE(&s->jobs, job, entry);
        s->n_jobs--;
        s->used_ms = cg_now_ms();
        job->state = CG_JOB_DONE;
        for (p = TAILQ_FIRST(&sv->pending); p; p = next) {
                next = TAILQ_NEXT(p, entry);
                if (p->job == job)
                        cg_serve_answer_done(sv, p);
        }
        cg_serve_held_ends(sv, job);
        if (job->number && job->known && named)
                keep(s, job);
        else
                cg_job_free(job);
}

void cg_serve_cancel_job(struct cg_job *job)
{
        struct cg_serve_session *s = job->session;

        job->cancelled = true;
        if (job->state == CG_JOB_QUEUED) {
                cg_answer_error(job->answer);
                cg_answer_note(job->answer, "Cancelled before it started.");
                end_job(job);
                return;
        }
        if (s->session && s->cell)
                cg_session_cancel(s->session, s->cell, NULL);
        cg_serve_wake(s->work_fd);
}

int64_t cg_serve_answer_due(struct cg_serve *sv, const struct cg_serve_session *worker)
{
        int64_t now = cg_now_ms(), next_ms = -1;
        struct cg_pending *p, *next;
        /* The agent must answer first: until then nothing changes. */
        bool waits_for_agent = worker && cg_serve_agent_input(worker);

        for (p = TAILQ_FIRST(&sv->pending); p; p = next) {
                next = TAILQ_NEXT(p, entry);
                if (p->deadline_ms == INT64_MAX ||
                    (p->job->state == CG_JOB_RUNNING ? p->session : NULL) != worker)
                        continue;
                if (p->deadline_ms <= now || waits_for_agent)
                        cg_serve_answer_unfinished(sv, p);
                else if (next_ms < 0 || p->deadline_ms - now < next_ms)
                        next_ms = p->deadline_ms - now;
        }
        return next_ms;
}

void cg_serve_finish_job(struct cg_serve_session *s, struct cg_job *job)
{
        struct cg_serve *sv = s->sv;
        CG_HOLD(&sv->lock);
        const struct cg_pending *p;

        while (sv->out.len > CG_SERVE_STOP_WORKING && !sv->stop)
                pthread_cond_wait(&sv->room, &sv->lock);
        TAILQ_FOREACH(p, &sv->pending, entry)
                if (p->job == job)
                        break;
        /* Its call was cancelled, and nobody can ask for it: the next call shows the output. */
        if (job->code && job->number && !job->known && !p)
                cg_answer_move(s->out.between, job->answer, NULL, NULL);
        end_job(job);
        cg_serve_wake(sv->io_fd);
}
