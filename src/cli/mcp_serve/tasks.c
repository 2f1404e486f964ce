/*
 * `cellgate mcp serve`: the protocol's tasks, an extension of 2026-07-28. A call of a client that
 * declares it is answered by a task where its cell takes longer, or asks something. The task is the
 * cell: its state, its questions and its result are those that jobs.c and ask.c have. The taskId
 * contains the session's id, which is secret, and is good for the clients of that session only.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

/* Most cells have ended by then. Whoever declares tasks loses nothing by an early one. */
#define TASK_MS 2000
/* A result, and the questions of a cell. */
#define TASK_MAX ((size_t)320 << 20)

void cg_serve_set_wait(struct cg_serve *sv, struct cg_pending *p)
{
        p->task = sv->proto.peer.tasks;
        if (p->task)
                p->deadline_ms = p->since_ms + CG_MIN(sv->opts.wait_ms, TASK_MS);
        else if (sv->opts.toolsets & CG_SERVE_JOBS)
                p->deadline_ms = p->since_ms + sv->opts.wait_ms;
}

static struct cg_job *find_task(struct cg_serve *sv, struct cg_slice value)
{
        char session[CG_SERVE_ID + 1] = "", known[CG_SERVE_TASK_ID];
        cg_auto_free char *id = NULL;
        struct cg_serve_session *s;
        struct cg_job *job;
        uint64_t number = 0;

        if (cg_json_strdup(value, &id, NULL) < 0 ||
            sscanf(id, "%32[0-9a-f]-%" SCNu64, session, &number) != 2 ||
            !(s = cg_serve_session_of(sv, session)) || !cg_serve_is_users(s))
                return NULL;
        job = cg_serve_session_cell(s, number);
        if (!job || !job->task.ms)
                return NULL;
        cg_serve_task_id(job, known);
        return strcmp(known, id) == 0 ? job : NULL;
}

/* The first question of the task at or after @a that its client may answer; NULL: there is none. */
static struct cg_serve_ask *next_question(const struct cg_serve *sv, const struct cg_job *job,
                                          struct cg_serve_ask *a)
{
        if (job != TAILQ_FIRST(&job->session->jobs) || !sv->proto.peer.can_ask)
                return NULL;
        while (a && (a->answered || !a->by_result))
                a = TAILQ_NEXT(a, entry);
        return a;
}

static void get_task(struct cg_serve *sv, struct cg_job *job, struct cg_buf *b)
{
        struct cg_serve_ask *a = next_question(sv, job, TAILQ_FIRST(&job->session->asks));

        cg_buf_adds(b, "{\"resultType\":\"complete\",");
        if (job->state == CG_JOB_DONE && job->cancelled) {
                cg_serve_add_task(job, "cancelled", b);
        } else if (job->state == CG_JOB_DONE) {
                cg_serve_add_task(job, "completed", b);
                cg_buf_adds(b, ",\"result\":");
                cg_buf_fail(b, cg_serve_add_result(sv, job, job->answer, job->task.ignored, true, b));
                job->read_ms = cg_now_ms();
        } else if (a) {
                cg_serve_add_task(job, "input_required", b);
                cg_buf_adds(b, ",\"inputRequests\":{");
                for (unsigned n = 0; a && n < CG_SERVE_MAX_INPUTS; n++) {
                        cg_serve_add_question(job->session, a, b);
                        a = next_question(sv, job, TAILQ_NEXT(a, entry));
                }
                cg_buf_adds(b, "}");
        } else {
                cg_serve_add_task(job, "working", b);
        }
        cg_buf_adds(b, "}");
}

/* Ignores answers to questions that are not open. */
static void update_task(struct cg_serve *sv, struct cg_job *job, struct cg_slice answers)
{
        struct cg_serve_ask *a = TAILQ_FIRST(&job->session->asks);
        struct cg_slice value;
        char key[24];

        while ((a = next_question(sv, job, a))) {
                snprintf(key, sizeof(key), "q%" PRIu64, a->id);
                if (a->id && cg_json_find(answers, key, &value))
                        cg_serve_answered_by(job->session, a->id, value);
                a = TAILQ_NEXT(a, entry);
        }
}

int cg_serve_task(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = TASK_MAX };
        struct cg_job *job = find_task(sv, in->value);

        if (!job)
                return cg_rpc_add_error(
                        &sv->out, in->id, CG_RPC_INVALID_PARAMS,
                        "there is no such task: the taskId is wrong, its session has ended, or its result was"
                        " dropped, after its ttlMs or to make room for later ones",
                        err);
        job->session->used_ms = cg_now_ms();
        if (in->kind == CG_MCPD_TASK_GET) {
                get_task(sv, job, &b);
        } else {
                if (in->kind == CG_MCPD_TASK_UPDATE)
                        update_task(sv, job, in->input_responses);
                else if (job->state != CG_JOB_DONE)
                        cg_serve_cancel_job(job);
                cg_buf_adds(&b, "{\"resultType\":\"complete\"}");
        }
        if (cg_buf_end(&b, err) < 0)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INTERNAL_ERROR, "no memory is left", err);
        cg_serve_send_result(sv, in->id, b.data, b.len);
        return 0;
}
