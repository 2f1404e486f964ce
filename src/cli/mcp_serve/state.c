/*
 * `cellgate mcp serve`: what a cell that a call waits for does, as a text for the agent, and as a
 * task of the protocol for its client. Used by both threads, under the lock.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

#define POLL_MS   1000
#define STATE_MAX ((size_t)1 << 20)

bool cg_serve_is_starting(const struct cg_job *job)
{
        return job->state == CG_JOB_TAKEN && job->tool == CG_SERVE_EXECUTE;
}

void cg_serve_add_state(const struct cg_job *job, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf waits = { .max = 65536 };
        double seconds = (double)(cg_now_ms() - job->start_ms) / 1000;
        size_t before = cg_serve_count_before(job);

        cg_buf_addf(b, "cell-%" PRIu64 " ", job->number);
        if (before) {
                cg_buf_addf(b, "is queued for %.0f s, with %zu before it", seconds, before);
        } else if (job->state == CG_JOB_QUEUED || cg_serve_is_starting(job)) {
                cg_buf_adds(b, "is about to start");
        } else {
                cg_buf_addf(b, "runs for %.0f s%s", seconds,
                            job->cancelled ? " and has been interrupted" : "");
                if (cg_serve_waits(job->session, &waits))
                        cg_buf_addf(b, ", %s", waits.data);
        }
}

/* ------------------------------------------------------------------ tasks */

void cg_serve_task_id(const struct cg_job *job, char ret[CG_SERVE_TASK_ID])
{
        snprintf(ret, CG_SERVE_TASK_ID, "%s-%" PRIu64, job->session->id, job->number);
}

static void add_time(struct cg_buf *b, const char *name, time_t t)
{
        char text[32];
        struct tm tm;

        gmtime_r(&t, &tm);
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
        cg_buf_addf(b, ",\"%s\":\"%s\"", name, text);
}

void cg_serve_add_task(const struct cg_job *job, const char *status, struct cg_buf *b)
{
        const struct cg_serve *sv = job->session->sv;
        cg_auto_buf struct cg_buf state = { .max = 65536 };
        int64_t now = cg_now_ms(), kept_ms = CG_SERVE_KEPT_MS;
        time_t updated = time(NULL);
        char id[CG_SERVE_TASK_ID];

        if (sv->opts.idle_ms)
                kept_ms = CG_MIN(kept_ms, sv->opts.idle_ms);
        cg_serve_task_id(job, id);
        cg_buf_addf(b, "\"taskId\":\"%s\",\"status\":\"%s\"", id, status);
        if (job->state == CG_JOB_DONE) {
                updated -= (now - job->end_ms) / 1000;
        } else {
                cg_serve_add_state(job, &state);
                cg_secrets_redact_buf(&sv->secrets, &state);
                cg_buf_adds(b, ",\"statusMessage\":");
                cg_json_quote(b, state.data ?: "", state.len);
        }
        add_time(b, "createdAt", job->task.time);
        add_time(b, "lastUpdatedAt", CG_MAX(updated, job->task.time));
        /* From its creation on: it is kept for as long from now on. */
        cg_buf_addf(b, ",\"ttlMs\":%" PRId64 ",\"pollIntervalMs\":%d", now - job->task.ms + kept_ms, POLL_MS);
}

void cg_serve_make_task(struct cg_serve *sv, struct cg_pending *p)
{
        cg_auto_buf struct cg_buf b = { .max = STATE_MAX };
        struct cg_job *job = p->job;

        job->task.ms = cg_now_ms();
        job->task.time = time(NULL);
        job->task.ignored = CG_STEAL(p->ignored);
        job->known = true;
        cg_buf_adds(&b, "{\"resultType\":\"task\",");
        cg_serve_add_task(job, "working", &b);
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, NULL) < 0) {
                cg_serve_reply(sv, p, NULL);
                return;
        }
        cg_serve_send_result(sv, (struct cg_slice){ p->id, strlen(p->id) }, b.data, b.len);
        cg_serve_remove_pending(sv, p);
}
