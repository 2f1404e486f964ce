/* Questions of the decider to the host, and the answers that it remembers. */
#include "sandbox/egress/decider_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/util.h"

#define GRANTS_MAX    1024 /* remembered answers of one sandbox; then every question is asked again */
#define QUESTIONS_MAX 32   /* of one sandbox at once: more than a person reads */

struct grant {
        struct grant *next;
        char host[CG_HOST_MAX + 1];
        uint16_t port;
        bool allow;
        char why[CG_POLICY_REASON_MAX + 1];
};

/* ---- answers that are remembered */

void cg_decider_grants_forget(struct box *b)
{
        while (b->grants) {
                struct grant *g = b->grants;

                b->grants = g->next;
                free(g);
        }
        b->n_grants = 0;
}

static const struct grant *find_grant(const struct box *b, const struct cg_host *h, uint16_t port)
{
        for (const struct grant *g = b->grants; g; g = g->next) {
                if (g->port == port && strcmp(g->host, h->text) == 0)
                        return g;
        }
        return NULL;
}

static void remember(struct box *b, const struct question *q, bool allow, const char *why)
{
        struct grant *g = b->n_grants < GRANTS_MAX ? calloc(1, sizeof(*g)) : NULL;

        if (!g)
                return;
        memcpy(g->host, q->host.text, sizeof(g->host));
        g->port = q->port;
        g->allow = allow;
        snprintf(g->why, sizeof(g->why), "%s", why);
        g->next = b->grants;
        b->grants = g;
        b->n_grants++;
}

/* ---- questions */

static void drop_question(struct decider *d, struct question *q)
{
        struct question **p = &d->questions;

        while (*p && *p != q)
                p = &(*p)->next;
        if (*p)
                *p = q->next;
        free(q);
}

/* Nobody waits for the host's answer any more. */
static void tell_cancelled(struct decider *d, const struct question *q)
{
        cg_decider_tell(d, json_pack("{s:s, s:I, s:I}", "type", "egress_cancel", "sandbox", q->box->sandbox,
                                     "id", (json_int_t)q->id));
}

static bool is_wanted(const struct decider *d, const struct question *q)
{
        for (const struct job *j = d->jobs; j; j = j->next) {
                if (j->question == q)
                        return true;
        }
        return false;
}

void cg_decider_question_leave(struct decider *d, struct question *q, bool tell)
{
        if (!q || is_wanted(d, q))
                return;
        if (tell)
                tell_cancelled(d, q);
        drop_question(d, q);
}

static struct question *find_question(struct decider *d, const struct job *j)
{
        struct question *q = d->questions;

        while (q && (q->box != j->box || q->port != j->port || strcmp(q->host.text, j->host.text) != 0))
                q = q->next;
        return q;
}

static size_t count_questions(const struct decider *d, const struct box *b)
{
        size_t n = 0;

        for (const struct question *q = d->questions; q; q = q->next)
                n += q->box == b;
        return n;
}

static struct question *new_question(struct job *j)
{
        struct decider *d = j->d;
        uint32_t timeout_ms = cg_policy_options(j->box->policy)->ask_timeout_ms;
        struct question *q = calloc(1, sizeof(*q));
        json_t *class;

        if (!q)
                return NULL;
        q->id = ++d->next_question;
        q->box = j->box;
        q->host = j->host;
        q->port = j->port;
        q->deadline_ms = cg_now_ms() + timeout_ms;
        q->next = d->questions;
        d->questions = q;
        class = j->host.is_addr ? json_string(cg_addr_class_name(cg_addr_class(&j->host.addr))) : json_null();
        cg_decider_tell(d,
                        json_pack("{s:s, s:I, s:I, s:s, s:i, s:s, s:o, s:I}", "type", "egress_request",
                                  "sandbox", j->box->sandbox, "id", (json_int_t)q->id, "host", j->host.text,
                                  "port", (int)j->port, "protocol", cg_egress_protocols[j->kind], "address",
                                  class, "timeoutMs", (json_int_t)timeout_ms));
        return q;
}

void cg_decider_question_ask(struct job *j)
{
        const struct grant *g = find_grant(j->box, &j->host, j->port);

        if (g) {
                snprintf(j->list, sizeof(j->list), "answers");
                if (g->allow)
                        cg_decider_dial(j);
                else
                        cg_decider_job_answer(j, CG_EGRESS_DENIED, g->why);
                return;
        }
        j->state = ASKING;
        j->question = find_question(j->d, j);
        if (!j->question && count_questions(j->d, j->box) < QUESTIONS_MAX)
                j->question = new_question(j);
        if (!j->question)
                cg_decider_job_answer(j, CG_EGRESS_DENIED, "too many questions are open already");
}

/* Every job that waits for this answer, and the question, are done with. */
static void answer_question(struct decider *d, struct question *q, bool allow, const char *why)
{
        struct job *j = d->jobs;

        while (j) {
                struct job *next = j->next;

                if (j->question == q) {
                        j->question = NULL;
                        snprintf(j->list, sizeof(j->list), "answers");
                        if (allow)
                                cg_decider_dial(j);
                        else
                                cg_decider_job_answer(j, CG_EGRESS_DENIED, why);
                }
                j = next;
        }
        drop_question(d, q);
}

int cg_decider_question_on_answer(struct decider *d, const json_t *m, struct cg_err *err)
{
        struct question *q = d->questions;
        const char *decision, *reason;
        int64_t id;
        bool allow, keep;

        if (cg_json_int(m, "id", 0, &id, err) < 0 || cg_json_str(m, "decision", "", &decision, err) < 0 ||
            cg_json_str(m, "reason", "user denied", &reason, err) < 0)
                return CG_E_PARSE;
        while (q && q->id != id)
                q = q->next;
        if (!q)
                return 0; /* too late: it was refused meanwhile, or nobody wants it any more */
        allow = strcmp(decision, "once") == 0 || strcmp(decision, "session") == 0;
        keep = strcmp(decision, "session") == 0 || strcmp(decision, "never") == 0;
        if (!allow && !keep && strcmp(decision, "no") != 0)
                cg_fail(err, CG_E_INVAL, "answer: the decision is none of once, session, no, never: refused");
        if (keep)
                remember(q->box, q, allow, reason);
        answer_question(d, q, allow, reason);
        return allow || keep || strcmp(decision, "no") == 0 ? 0 : CG_E_INVAL;
}

void cg_decider_questions_expire(struct decider *d, int64_t now_ms)
{
        struct question *q = d->questions;

        while (q) {
                struct question *next = q->next;

                if (now_ms >= q->deadline_ms || !cg_policy_options(q->box->policy)->ask) {
                        tell_cancelled(d, q);
                        answer_question(d, q, false, "nobody has answered in time whether to allow it");
                }
                q = next;
        }
}
