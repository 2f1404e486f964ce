/*
 * `cellgate mcp serve`: the queues of tool calls and of outgoing messages. Used by both threads.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/util.h"

/* Clients give up after 60 s without progress, some earlier. */
#define PROGRESS_MS 3000

void cg_serve_wake(int fd)
{
        uint64_t one = 1;

        if (write(fd, &one, sizeof(one)) < 0)
                errno = 0; /* the counter is full: it is readable */
}

void cg_serve_woken(int fd)
{
        uint64_t n;

        if (read(fd, &n, sizeof(n)) < 0)
                errno = 0; /* there was no wake-up */
}

/* Removes a message that was written in part. */
static void roll_back(struct cg_serve *sv, size_t len)
{
        sv->out.len = len;
        cg_buf_end(&sv->out);
}

int cg_serve_notify(struct cg_serve *sv, const char *method, const char *params)
{
        size_t before = sv->out.len;
        int r = cg_rpc_add_notification(&sv->out, method, params, NULL);

        if (r < 0)
                roll_back(sv, before);
        cg_serve_wake(sv->io_fd);
        return r;
}

int cg_serve_request(struct cg_serve *sv, uint64_t id, const char *method, const char *params)
{
        size_t before = sv->out.len;
        int r = cg_rpc_add_request(&sv->out, id, method, params, NULL);

        if (r < 0)
                roll_back(sv, before);
        cg_serve_wake(sv->io_fd);
        return r;
}

static struct cg_job *job_free(struct cg_job *j)
{
        if (!j)
                return NULL;
        free(j->id);
        free(j->token);
        free(j->args);
        free(j);
        return NULL;
}

static struct cg_job *find(struct cg_serve *sv, struct cg_slice id)
{
        struct cg_job *j;

        TAILQ_FOREACH(j, &sv->jobs, entry)
        if (cg_slice_is(id, j->id))
                break;
        return j;
}

static void remove_job(struct cg_serve *sv, struct cg_job *j)
{
        TAILQ_REMOVE(&sv->jobs, j, entry);
        sv->n_jobs--;
        job_free(j);
}

int cg_serve_call(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        struct cg_job *j;

        if (find(sv, in->id))
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_REQUEST,
                                        "a request with this id is being worked on", err);
        if (sv->n_jobs >= CG_SERVE_MAX_JOBS)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INTERNAL_ERROR,
                                        "too many calls wait already: await some of them", err);
        j = calloc(1, sizeof(*j));
        if (!j)
                return cg_fail(err, CG_E_NOMEM, "call");
        j->id = in->id.p ? strndup(in->id.p, in->id.len) : NULL;
        j->token = in->progress_token.p ? strndup(in->progress_token.p, in->progress_token.len) : NULL;
        j->args = in->arguments.p ? strndup(in->arguments.p, in->arguments.len) : NULL;
        j->since_ms = j->progress_ms = cg_now_ms();
        while (strcmp(cg_serve_tool_names[j->tool], in->name) != 0)
                j->tool++; /* in->name is one of them */
        if (!j->id || !j->args || (in->progress_token.p && !j->token)) {
                job_free(j);
                return cg_fail(err, CG_E_NOMEM, "call");
        }
        if (j->tool == CG_SERVE_RESET) {
                struct cg_job *before;

                TAILQ_FOREACH(before, &sv->jobs, entry)
                before->reset = true;
        }
        TAILQ_INSERT_TAIL(&sv->jobs, j, entry);
        sv->n_jobs++;
        cg_serve_wake(sv->work_fd);
        return 0;
}

void cg_serve_cancel(struct cg_serve *sv, struct cg_slice id)
{
        struct cg_job *j = find(sv, id);

        if (!j)
                return; /* answered already: the two messages crossed */
        if (!j->running) {
                remove_job(sv, j);
                return;
        }
        j->cancelled = true;
        if (sv->session && sv->cell)
                cg_session_cancel(sv->session, sv->cell, NULL);
        cg_serve_wake(sv->work_fd);
}

/* Begins the params of notifications/progress. The value is the call's seconds; it always grows. */
static int begin_progress(struct cg_job *j, struct cg_buf *b)
{
        double elapsed = (double)(cg_now_ms() - j->since_ms) / 1000;

        j->progress = elapsed > j->progress ? elapsed : j->progress + 0.001;
        return cg_buf_addf(b, NULL, "{\"progressToken\":%s,\"progress\":%.3f,\"message\":", j->token,
                           j->progress);
}

void cg_serve_tool_progress(struct cg_serve *sv, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_job *j;

        pthread_mutex_lock(&sv->lock);
        j = TAILQ_FIRST(&sv->jobs);
        if (j && j->running && j->token && !j->cancelled && begin_progress(j, &b) == 0 &&
            cg_json_quote(&b, text, strlen(text), NULL) == 0 && cg_buf_adds(&b, "}", NULL) == 0) {
                j->progress_ms = cg_now_ms();
                cg_serve_notify(sv, "notifications/progress", b.data);
        }
        pthread_mutex_unlock(&sv->lock);
        cg_serve_wake(sv->io_fd);
}

bool cg_serve_progress(struct cg_serve *sv)
{
        int64_t now = cg_now_ms();
        size_t before = 0, asks = 0;
        const struct cg_serve_ask *a;
        struct cg_job *j;
        bool any = false;

        TAILQ_FOREACH(a, &sv->asks, entry)
        asks += !a->answered;
        for (j = TAILQ_FIRST(&sv->jobs); j; j = TAILQ_NEXT(j, entry), before++) {
                cg_auto_buf struct cg_buf b = { .max = 4096 };
                double elapsed;
                int r;

                if (!j->token || j->cancelled)
                        continue;
                any = true;
                if (now - j->progress_ms < PROGRESS_MS)
                        continue;
                j->progress_ms = now;
                elapsed = (double)(now - j->since_ms) / 1000;
                r = begin_progress(j, &b);
                if (r == 0 && before)
                        r = cg_buf_addf(&b, NULL, "\"waiting, %zu call%s before it, %.0f s", before,
                                        before == 1 ? "" : "s", elapsed);
                else if (r == 0)
                        r = cg_buf_addf(&b, NULL, "\"running, %.0f s", elapsed);
                if (r == 0 && !before && asks)
                        r = cg_buf_addf(&b, NULL, ", %zu approval%s pending", asks, asks == 1 ? "" : "s");
                if (r == 0 && cg_buf_adds(&b, "\"}", NULL) == 0)
                        cg_serve_notify(sv, "notifications/progress",
                                        b.data); /* lost: repaired by the next */
        }
        return any;
}

struct cg_job *cg_serve_next_job(struct cg_serve *sv)
{
        struct cg_job *j;

        pthread_mutex_lock(&sv->lock);
        j = sv->stop ? NULL : TAILQ_FIRST(&sv->jobs);
        if (j)
                j->running = true;
        pthread_mutex_unlock(&sv->lock);
        return j;
}

bool cg_serve_finish_job(struct cg_serve *sv, struct cg_job *job, const char *result, size_t len)
{
        struct cg_slice id = { job->id, strlen(job->id) };
        struct cg_err err;
        size_t before;
        bool answered;

        pthread_mutex_lock(&sv->lock);
        while (sv->out.len > CG_SERVE_STOP_WORKING && !sv->stop)
                pthread_cond_wait(&sv->room, &sv->lock);
        before = sv->out.len;
        /* The protocol forbids an answer to a cancelled request. */
        answered = !job->cancelled;
        if (answered && cg_rpc_add_result(&sv->out, id, result, len, &err) < 0) {
                roll_back(sv, before);
                if (cg_rpc_add_error(&sv->out, id, CG_RPC_INTERNAL_ERROR, err.msg, NULL) < 0)
                        roll_back(sv, before);
        }
        remove_job(sv, job);
        pthread_mutex_unlock(&sv->lock);
        cg_serve_wake(sv->io_fd);
        return answered;
}

void cg_serve_drop_jobs(struct cg_serve *sv)
{
        while (!TAILQ_EMPTY(&sv->jobs))
                remove_job(sv, TAILQ_FIRST(&sv->jobs));
}

bool cg_serve_given_up(struct cg_serve *sv, const struct cg_job *job)
{
        bool up;

        pthread_mutex_lock(&sv->lock);
        up = sv->stop || job->cancelled || job->reset;
        pthread_mutex_unlock(&sv->lock);
        return up;
}
