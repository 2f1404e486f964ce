/*
 * `cellgate mcp serve`: questions to clients of the stateless era (2026-07-28), of which nothing
 * can be requested. A call is answered by questions ("resultType": "input_required") and comes
 * again with the answers, perhaps in another connection. Meanwhile it is held, and its cell is
 * paused.
 *
 * A requestState is the random name of a held call. It is good for one answer, which must be of the
 * same tool with the same arguments; all else about the call is known here, so that there is
 * nothing to encrypt.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"
#include "base/text.h"

/* After the first question, for more of the same cell: they are shown together. */
#define GATHER_MS 20
/* Held calls; above that the oldest is dropped, whose questions then end by their time limit. */
#define MAX_HELD 64u
/* Held calls of cell_result about one cell. */
#define MAX_HELD_OF_JOB 4u
/* All questions of one result. */
#define INPUTS_MAX ((size_t)64 << 20)

/*
 * Whether @p is answered by this question: nobody has got it yet, or @p came after it was given to
 * another call. Such a client may have lost that call's state, for example with its process, or may
 * show the form: both states stay good, and the first answer counts.
 */
static bool wants(const struct cg_pending *p, const struct cg_serve_ask *a)
{
        if (!a->by_result || a->answered)
                return false;
        /* One that does not wait only looks. */
        return !a->id || (a->given_ms <= p->since_ms && p->deadline_ms > cg_now_ms());
}

void cg_serve_add_question(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *b)
{
        if (!a->id) {
                a->id = ++s->sv->last_ask;
                a->deadline_ms = cg_now_ms() + s->sv->opts.ask_timeout_ms;
        }
        if (b->len && b->data[b->len - 1] != '{')
                cg_buf_adds(b, ",");
        cg_buf_addf(b, "\"q%" PRIu64 "\":{\"method\":\"elicitation/create\",\"params\":", a->id);
        cg_serve_form(s, a, b);
        cg_buf_adds(b, "}");
}

/* Their ids are those from p->first_ask to p->last_ask. */
static void add_questions(struct cg_pending *p, struct cg_buf *b)
{
        struct cg_serve_session *s = p->session;
        struct cg_serve_ask *a;
        unsigned n = 0;

        p->first_ask = UINT64_MAX;
        p->last_ask = 0;
        cg_buf_adds(b, "{\"resultType\":\"input_required\",\"inputRequests\":{");
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (n == CG_SERVE_MAX_INPUTS || !wants(p, a))
                        continue;
                cg_serve_add_question(s, a, b);
                a->given_ms = cg_now_ms();
                a->deadline_ms = a->given_ms + s->sv->opts.ask_timeout_ms;
                p->first_ask = CG_MIN(p->first_ask, a->id);
                p->last_ask = CG_MAX(p->last_ask, a->id);
                n++;
        }
        cg_buf_addf(b, "},\"requestState\":\"%s\"}", p->state);
}

/* The oldest call of cell_result about a cell makes room: no other calls are dropped for them. */
static void limit_held(struct cg_serve *sv, const struct cg_job *job)
{
        struct cg_pending *held, *oldest = NULL;
        unsigned n = 0;

        TAILQ_FOREACH(held, &sv->held, entry) {
                if (held->job != job || held->own)
                        continue;
                oldest = oldest ?: held;
                n++;
        }
        if (n > MAX_HELD_OF_JOB)
                cg_serve_free_held(sv, oldest);
}

/* Out of memory, the questions wait for the next call, or for their time limit. */
static void ask_by(struct cg_serve *sv, struct cg_pending *p)
{
        cg_auto_buf struct cg_buf b = { .max = INPUTS_MAX };

        cg_buf_fail(&b, cg_random_hex(p->state, CG_SERVE_STATE / 2, NULL));
        if (!b.failed)
                add_questions(p, &b);
        if (cg_buf_end(&b, NULL) < 0) {
                cg_log(&sv->log, CG_LOG_ERROR, "the questions of a cell were not sent: no memory is left");
                return;
        }
        cg_serve_send_result(sv, (struct cg_slice){ p->id, strlen(p->id) }, b.data, b.len);
        TAILQ_REMOVE(&sv->pending, p, entry);
        sv->n_pending--;
        TAILQ_INSERT_TAIL(&sv->held, p, entry);
        p->job->known = true;
        sv->n_held++;
        limit_held(sv, p->job);
        if (sv->n_held > MAX_HELD)
                cg_serve_free_held(sv, TAILQ_FIRST(&sv->held));
}

/* A call of the session that its questions answer, *ret being the first; NULL: there is none. */
static struct cg_pending *find_asking(const struct cg_serve_session *s, const struct cg_serve_ask **ret)
{
        const struct cg_job *job = TAILQ_FIRST(&s->jobs);
        struct cg_pending *p;

        TAILQ_FOREACH(p, &s->sv->pending, entry) {
                if (!p->args || !job || p->job != job)
                        continue;
                TAILQ_FOREACH(*ret, &s->asks, entry) {
                        if (wants(p, *ret))
                                return p;
                }
        }
        return NULL;
}

static int64_t ask_of_session(struct cg_serve_session *s)
{
        const struct cg_serve_ask *a;
        struct cg_pending *p = find_asking(s, &a);
        int64_t left_ms;

        if (!p)
                return -1;
        if (p->task) {
                cg_serve_make_task(s->sv, p);
                return -1;
        }
        left_ms = a->since_ms + GATHER_MS - cg_now_ms();
        if (left_ms > 0)
                return left_ms;
        ask_by(s->sv, p);
        return GATHER_MS; /* another call may want them, too */
}

int64_t cg_serve_ask_by_result(struct cg_serve *sv)
{
        struct cg_serve_session *s;
        int64_t next_ms = -1, left_ms;

        TAILQ_FOREACH(s, &sv->sessions, entry) {
                left_ms = ask_of_session(s);
                if (left_ms >= 0 && (next_ms < 0 || left_ms < next_ms))
                        next_ms = left_ms;
        }
        return next_ms;
}

/* ------------------------------------------------------------------ the second call */

static struct cg_pending *find_held(struct cg_serve *sv, struct cg_slice state)
{
        cg_auto_free char *text = NULL;
        struct cg_pending *p;

        if (cg_json_strdup(state, &text, NULL) < 0)
                return NULL;
        TAILQ_FOREACH(p, &sv->held, entry)
                if (strcmp(p->state, text) == 0)
                        break;
        return p;
}

/* Clients may write the same arguments in another way. */
static bool same_call(const struct cg_pending *p, const struct cg_mcpd_in *in)
{
        cg_auto_json json_t *a = json_loads(p->args, JSON_ALLOW_NUL, NULL),
                            *b = json_loadb(in->arguments.p, in->arguments.len, JSON_ALLOW_NUL, NULL);

        return strcmp(cg_serve_tool_defs[p->tool].name, in->name) == 0 && a && json_equal(a, b);
}

/* Answers to other questions than those of this call are none. */
static void read_answers(const struct cg_pending *p, struct cg_slice answers)
{
        struct cg_serve_ask *a;
        struct cg_slice value;
        char key[24];

        TAILQ_FOREACH(a, &p->session->asks, entry) {
                snprintf(key, sizeof(key), "q%" PRIu64, a->id);
                if (a->id >= p->first_ask && a->id <= p->last_ask && cg_json_find(answers, key, &value))
                        cg_serve_answered_by(p->session, a->id, value);
        }
}

/* A question without an answer is asked again, under another key. */
static void ask_again(const struct cg_pending *p)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &p->session->asks, entry) {
                if (a->by_result && a->id >= p->first_ask && a->id <= p->last_ask && !a->answered)
                        a->id = 0;
        }
}

/* The call waits again, under its new id. */
static int wait_again(struct cg_serve *sv, struct cg_pending *p, const struct cg_mcpd_in *in)
{
        char *id = strndup(in->id.p, in->id.len);
        bool waits = p->deadline_ms != INT64_MAX;

        if (!id)
                return -1;
        TAILQ_REMOVE(&sv->held, p, entry);
        sv->n_held--;
        TAILQ_INSERT_TAIL(&sv->pending, p, entry);
        sv->n_pending++;
        free(p->id);
        p->id = id;
        free(p->token);
        p->token = NULL;
        if (in->progress_token.p)
                p->token = strndup(in->progress_token.p, in->progress_token.len);
        sv->has_tokens |= p->token != NULL;
        p->log = sv->proto.peer.log;
        p->state[0] = '\0';
        p->since_ms = p->progress_ms = cg_now_ms();
        p->progress = 0;
        if (waits)
                p->deadline_ms = p->since_ms + sv->opts.wait_ms;
        return 0;
}

int cg_serve_resume(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        struct cg_pending *p = find_held(sv, in->request_state);

        if (!p)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_PARAMS,
                                        "this requestState names no call that waits: it was used already, or "
                                        "what it asked about is over",
                                        err);
        if (!same_call(p, in))
                return cg_rpc_add_error(
                        &sv->out, in->id, CG_RPC_INVALID_PARAMS,
                        "this requestState belongs to another call: repeat the tool's name and "
                        "arguments as they were",
                        err);
        if (in->input_responses.p && in->input_responses.p[0] != '{')
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_PARAMS,
                                        "params.inputResponses must be an object", err);
        if (p->job && in->input_responses.p)
                read_answers(p, in->input_responses);
        if (p->job)
                ask_again(p);
        if (wait_again(sv, p, in) < 0)
                return cg_fail(err, CG_E_NOMEM, "call");
        if (p->done)
                cg_serve_reply(sv, p, p->done);
        else if (p->job->state == CG_JOB_DONE)
                cg_serve_answer_done(sv, p);
        else
                cg_serve_wake(p->session->work_fd);
        return 0;
}
