/* Questions of the decider to the host, and the answers that it remembers. */
#include "sandbox/egress/decider_int.h"

#include "base/json.h"

#define GRANTS_MAX    1024 /* remembered answers of one sandbox; then every question is asked again */
#define QUESTIONS_MAX 32   /* of one sandbox at once: more than a person reads */

struct grant {
        SLIST_ENTRY(grant) entry;
        char host[CG_HOST_MAX + 1];
        uint16_t port;
        bool allow;
        char why[CG_POLICY_REASON_MAX + 1];
};

void cg_decider_grants_forget(struct box *b)
{
        struct grant *g;

        while ((g = SLIST_FIRST(&b->grants))) {
                SLIST_REMOVE_HEAD(&b->grants, entry);
                free(g);
        }
        b->n_grants = 0;
}

/* Reports to the host that no answer is needed any more. */
static void send_cancelled(struct decider *d, const struct question *q)
{
        cg_decider_send_host(d, json_pack("{s:s, s:I, s:I}", "type", "egress_cancel", "sandbox",
                                          q->box->sandbox, "id", (json_int_t)q->id));
}

void cg_decider_question_leave(struct decider *d, struct question *q, bool notify)
{
        const struct job *j;

        if (!q)
                return;
        LIST_FOREACH(j, &d->jobs, entry)
                if (j->question == q)
                        return;
        if (notify)
                send_cancelled(d, q);
        LIST_REMOVE(q, entry);
        free(q);
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
        LIST_INSERT_HEAD(&d->questions, q, entry);
        class = j->host.is_addr ? json_string(cg_addr_class_name(cg_addr_class(&j->host.addr))) : json_null();
        cg_decider_send_host(d, json_pack("{s:s, s:I, s:I, s:s, s:i, s:s, s:o, s:I}", "type",
                                          "egress_request", "sandbox", j->box->sandbox, "id",
                                          (json_int_t)q->id, "host", j->host.text, "port", (int)j->port,
                                          "protocol", cg_egress_protocols[j->kind], "address", class,
                                          "timeoutMs", (json_int_t)timeout_ms));
        return q;
}

/* @j may be freed. */
static void apply_answer(struct job *j, bool allow, const char *why)
{
        snprintf(j->list, sizeof(j->list), "answers");
        if (allow)
                cg_decider_dial(j);
        else
                cg_decider_job_answer(j, CG_EGRESS_DENIED, why);
}

void cg_decider_question_ask(struct job *j)
{
        struct decider *d = j->d;
        const struct grant *g;
        struct question *q;
        size_t n_open = 0;

        SLIST_FOREACH(g, &j->box->grants, entry) {
                if (g->port == j->port && strcmp(g->host, j->host.text) == 0) {
                        apply_answer(j, g->allow, g->why);
                        return;
                }
        }
        j->state = ASKING;
        LIST_FOREACH(q, &d->questions, entry) {
                if (q->box == j->box && q->port == j->port && strcmp(q->host.text, j->host.text) == 0)
                        break;
                n_open += q->box == j->box;
        }
        j->question = q || n_open >= QUESTIONS_MAX ? q : new_question(j);
        if (!j->question)
                cg_decider_job_answer(j, CG_EGRESS_DENIED, "too many questions are open already");
}

/* Answers every job that waits for @q, and removes it. A denial that came since then counts. */
static void answer_question(struct decider *d, struct question *q, bool allow, const char *why)
{
        for (struct job *j = LIST_FIRST(&d->jobs), *next; j; j = next) {
                next = LIST_NEXT(j, entry);
                if (j->question != q)
                        continue;
                j->question = NULL;
                if (!allow || !cg_decider_job_refuse(j))
                        apply_answer(j, allow, why);
        }
        LIST_REMOVE(q, entry);
        free(q);
}

int cg_decider_question_on_answer(struct decider *d, const json_t *m, struct cg_err *err)
{
        const char *decision, *reason;
        bool allow, keep, valid;
        struct question *q;
        struct grant *g;
        int64_t id;

        if (cg_json_int(m, "id", 0, &id, err) < 0 || cg_json_str(m, "decision", "", &decision, err) < 0 ||
            cg_json_str(m, "reason", "user denied", &reason, err) < 0)
                return CG_E_PARSE;
        LIST_FOREACH(q, &d->questions, entry)
                if (q->id == id)
                        break;
        if (!q)
                return 0; /* too late: it was refused meanwhile, or its jobs are gone */
        allow = strcmp(decision, "once") == 0 || strcmp(decision, "session") == 0;
        keep = strcmp(decision, "session") == 0 || strcmp(decision, "never") == 0;
        valid = allow || keep || strcmp(decision, "no") == 0;
        if (!valid)
                cg_fail(err, CG_E_INVAL, "answer: the decision is none of once, session, no, never: refused");
        g = keep && q->box->n_grants < GRANTS_MAX ? calloc(1, sizeof(*g)) : NULL;
        if (g) {
                memcpy(g->host, q->host.text, sizeof(g->host));
                g->port = q->port;
                g->allow = allow;
                snprintf(g->why, sizeof(g->why), "%s", reason);
                SLIST_INSERT_HEAD(&q->box->grants, g, entry);
                q->box->n_grants++;
        }
        answer_question(d, q, allow, reason);
        return valid ? 0 : CG_E_INVAL;
}

void cg_decider_questions_expire(struct decider *d, int64_t now_ms)
{
        for (struct question *q = LIST_FIRST(&d->questions), *next; q; q = next) {
                next = LIST_NEXT(q, entry);
                if (now_ms >= q->deadline_ms || !cg_policy_options(q->box->policy)->ask) {
                        send_cancelled(d, q);
                        answer_question(d, q, false,
                                        "the question whether to allow it was not answered in time");
                }
        }
}
