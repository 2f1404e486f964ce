/*
 * `cellgate mcp serve`: the queues of jobs, the calls that wait for their answers, and outgoing
 * messages. Used by both threads. Who takes a call from the list, under the lock, answers it.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/ceilings.h"
#include "base/json.h"

#define RESULT_MAX ((size_t)256 << 20)
/* Files of a cell that its result links; paths are what makes links long. */
#define MAX_LINKED 20u
#define LINKS_MAX  ((size_t)1 << 20)

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

int cg_serve_notify(struct cg_serve *sv, const char *method, const char *params)
{
        int r = cg_rpc_add_notification(&sv->out, method, params, NULL);

        cg_serve_wake(sv->io_fd);
        return r;
}

int cg_serve_request(struct cg_serve *sv, uint64_t id, const char *method, const char *params)
{
        int r = cg_rpc_add_request(&sv->out, id, method, params, NULL);

        cg_serve_wake(sv->io_fd);
        return r;
}

/* ------------------------------------------------------------------ calls */

static struct cg_pending *pending_free(struct cg_pending *p)
{
        if (!p)
                return NULL;
        free(p->id);
        free(p->token);
        free(p->said);
        free(p->ignored);
        free(p->args);
        cg_answer_free(p->done);
        free(p);
        return NULL;
}

struct cg_pending *cg_serve_find_pending(struct cg_serve *sv, struct cg_slice id)
{
        struct cg_pending *p;

        TAILQ_FOREACH(p, &sv->pending, entry)
                if (cg_slice_is(id, p->id))
                        break;
        return p;
}

void cg_serve_remove_pending(struct cg_serve *sv, struct cg_pending *p)
{
        TAILQ_REMOVE(&sv->pending, p, entry);
        sv->n_pending--;
        pending_free(p);
}

struct cg_pending *cg_serve_add_pending(struct cg_serve *sv, const struct cg_mcpd_in *in)
{
        struct cg_pending *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        if (in->id.p)
                p->id = strndup(in->id.p, in->id.len);
        if (in->progress_token.p)
                p->token = strndup(in->progress_token.p, in->progress_token.len);
        p->since_ms = p->progress_ms = cg_now_ms();
        p->stateless = sv->proto.peer.stateless;
        p->log = p->stateless ? sv->proto.peer.log : CG_MCPD_LOG_NONE;
        p->deadline_ms = INT64_MAX;
        while (strcmp(cg_serve_tool_defs[p->tool].name, in->name) != 0)
                p->tool++; /* in->name is one of them */
        if (p->stateless && sv->proto.peer.can_ask && in->arguments.p)
                p->args = strndup(in->arguments.p, in->arguments.len);
        if (!p->id || (in->progress_token.p && !p->token))
                return pending_free(p);
        TAILQ_INSERT_TAIL(&sv->pending, p, entry);
        sv->n_pending++;
        sv->has_tokens |= p->token != NULL;
        return p;
}

void cg_serve_send_result(struct cg_serve *sv, struct cg_slice id, const char *result, size_t len)
{
        struct cg_err err;

        if (cg_rpc_add_result(&sv->out, id, result, len, &err) < 0)
                cg_rpc_add_error(&sv->out, id, CG_RPC_INTERNAL_ERROR, err.msg, NULL);
        cg_serve_wake(sv->io_fd);
}

int cg_serve_add_result(struct cg_serve *sv, struct cg_job *job, struct cg_answer *a, const char *ignored,
                        bool stateless, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf links = { .max = LINKS_MAX };

        if (job && job->number && job->state == CG_JOB_DONE &&
            (stateless || sv->proto.revision >= CG_MCPD_2025_06_18))
                cg_serve_add_parts(job, ",{\"type\":\"resource_link\",", MAX_LINKED, &links);
        if (!a || cg_answer_result(a, ignored, links.data, &sv->secrets, b, NULL) < 0)
                return CG_E_NOMEM;
        if (stateless) {
                b->len--; /* the closing brace */
                cg_buf_adds(b, ",\"resultType\":\"complete\"}");
        }
        return cg_buf_end(b, NULL);
}

/* Answers resources/read, whose file was read by a job. */
static void reply_artifact(struct cg_serve *sv, const struct cg_pending *p)
{
        cg_auto_json json_t *args = p->job ? json_loads(p->job->args, 0, NULL) : NULL;
        const char *uri = json_string_value(json_object_get(args, "uri")) ?: "";
        cg_auto_buf struct cg_buf value = { .max = CG_MAX_BODY }, b = { .max = RESULT_MAX };
        struct cg_mcpd_in in = { .id = { p->id, strlen(p->id) } };
        struct cg_mcpd proto = sv->proto;

        /* Requests of both eras may have come since. */
        proto.peer.stateless = p->stateless;
        if (p->job && p->job->contents) {
                cg_buf_adds(&b, p->job->contents);
                if (cg_mcpd_answer(&proto, in.id, &b, 0, &sv->out, NULL) == 0)
                        return;
        }
        cg_json_quote(&value, uri, strlen(uri));
        in.value = (struct cg_slice){ value.data ?: "\"\"", value.data ? value.len : 2 };
        cg_mcpd_no_resource(
                &proto, &in,
                "Resource not found: the file cannot be read, or has changed since its cell ended", &sv->out,
                NULL);
}

void cg_serve_reply(struct cg_serve *sv, struct cg_pending *p, struct cg_answer *a)
{
        static const char failed[] = "{\"content\":[{\"type\":\"text\",\"text\":\"no memory is"
                                     " left\"}],\"isError\":true}";
        cg_auto_buf struct cg_buf b = { .max = RESULT_MAX };
        struct cg_slice id = { p->id, strlen(p->id) };

        if (p->tool == CG_SERVE_ARTIFACT)
                reply_artifact(sv, p);
        else if (cg_serve_add_result(sv, p->job, a, p->ignored, p->stateless, &b) == 0)
                cg_serve_send_result(sv, id, b.data, b.len);
        else
                cg_serve_send_result(sv, id, failed, sizeof(failed) - 1);
        cg_serve_remove_pending(sv, p);
}

/* ------------------------------------------------------------------ calls that are held */

void cg_serve_free_held(struct cg_serve *sv, struct cg_pending *p)
{
        TAILQ_REMOVE(&sv->held, p, entry);
        sv->n_held--;
        pending_free(p);
}

void cg_serve_held_ends(struct cg_serve *sv, struct cg_job *job)
{
        struct cg_pending *p;

        TAILQ_FOREACH(p, &sv->held, entry) {
                if (p->job != job || job->number)
                        continue;
                p->job = NULL;
                p->session = NULL;
                p->done = CG_STEAL(job->answer);
        }
}

void cg_serve_drop_held(struct cg_serve *sv, const struct cg_job *job)
{
        struct cg_pending *p, *next;

        for (p = TAILQ_FIRST(&sv->held); p; p = next) {
                next = TAILQ_NEXT(p, entry);
                if (!job || p->job == job)
                        cg_serve_free_held(sv, p);
        }
}

/* ------------------------------------------------------------------ jobs */

struct cg_serve_session *cg_serve_session_of(struct cg_serve *sv, const char *id)
{
        struct cg_serve_session *s;

        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (s->life == CG_SERVE_LIVES && strcmp(s->id, id) == 0)
                        return s;
        return NULL;
}

struct cg_job *cg_job_free(struct cg_job *j)
{
        if (!j)
                return NULL;
        free(j->args);
        free(j->code);
        free(j->contents);
        cg_answer_free(j->answer);
        cg_serve_bridge_free(j->bridge);
        free(j->task.ignored);
        free(j);
        return NULL;
}

size_t cg_serve_count_before(const struct cg_job *job)
{
        const struct cg_job *j;
        size_t n = 0;

        for (j = TAILQ_FIRST(&job->session->jobs); j && j != job; j = TAILQ_NEXT(j, entry))
                n++;
        return n;
}

struct cg_job *cg_serve_next_job(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);
        struct cg_job *j = TAILQ_FIRST(&s->jobs);

        if (!j || s->sv->stop)
                return NULL;
        j->state = CG_JOB_TAKEN;
        return j;
}

void cg_serve_drop_jobs(struct cg_serve_session *s)
{
        struct cg_jobs *const lists[] = { &s->jobs, &s->kept };

        for (size_t i = 0; i < CG_ARRAY_LEN(lists); i++) {
                while (!TAILQ_EMPTY(lists[i])) {
                        struct cg_job *j = TAILQ_FIRST(lists[i]);

                        TAILQ_REMOVE(lists[i], j, entry);
                        cg_serve_drop_held(s->sv, j);
                        cg_job_free(j);
                }
        }
}

bool cg_serve_given_up(const struct cg_job *job)
{
        struct cg_serve *sv = job->session->sv;
        CG_HOLD(&sv->lock);

        return sv->stop || job->cancelled || job->ended_by;
}
