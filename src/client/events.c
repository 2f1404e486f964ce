/* libcellgate: reading the events of a session, after its policy files have decided. */
#include "client/internal.h"

#include "policy/policy.h"

/* The host's reading is acknowledged in pieces of this size: well below the window. */
#define CREDIT_BYTES (256u << 10)

static struct cg_event *pop_event(struct cg_session *s)
{
        struct cg_out credit = { .type = CG_HOST_CREDIT, .session = s->number };
        struct cg_event *e = s->events;

        s->events = e->next;
        e->next = NULL;
        if (!s->events)
                s->events_tail = &s->events;
        cg_session_update_fd(s);
        /* An answer is for the question that the host has received last, not for a queued one. */
        if (e->type == CG_EVENT_INPUT_REQUEST) {
                s->input_wanted = true;
                s->input_cell = e->cell;
                s->input_question = e->question;
        } else if ((e->type == CG_EVENT_RESULT || e->type == CG_EVENT_INPUT_CLOSED) && !e->foreign &&
                   e->cell == s->input_cell) {
                s->input_wanted = false;
        }
        s->uncredited += e->of_host ? 0 : e->cost;
        s->unread -= CG_MIN(s->unread, e->cost);
        if (s->uncredited >= CREDIT_BYTES && !s->closed) {
                credit.id = s->uncredited;
                s->uncredited = 0;
                cg_client_send(s->client, &credit, NULL, NULL);
        }
        return e;
}

/* Remembers what a policy file leaves to the host, which may refuse it. */
static void leave_to_host(struct cg_session *s, uint64_t id, uint64_t key)
{
        struct approval *a;
        CG_HOLD(&s->client->lock);

        a = cg_session_approval(s, id);
        if (a)
                a->policy_key = key;
}

/* Returns 1 when the session's policy has decided, so that the host does not get the event. */
static int decide_by_policy(struct cg_session *s, const struct cg_event *e, struct cg_err *err)
{
        bool connection = e->type == CG_EVENT_EGRESS_REQUEST;
        cg_auto_buf struct cg_buf why = { .max = 30000 };
        uint64_t key;
        int r;

        if (!s->policy || e->foreign || (!connection && e->type != CG_EVENT_APPROVAL_REQUEST))
                return 0;
        switch (cg_session_policy_judge(s->policy, e, &key, &why)) {
        case CG_POL_ALLOW:
                r = connection ? cg_egress_decide(s, e->approval, CG_EGRESS_ALLOW_ONCE, why.data, err)
                               : cg_approval_accept_by(s, e->approval, why.data, err);
                break;
        case CG_POL_DENY:
                r = cg_event_refuse(s, e, why.data, err);
                break;
        default:
                leave_to_host(s, e->approval, key);
                return 0;
        }
        return r < 0 && r != CG_E_NOTFOUND ? r : 1; /* NOTFOUND: the question has ended meanwhile */
}

/* The rest of a wait that ends at @end; -1 and 0 are for ever and not at all. */
static int64_t rest_ms(int64_t timeout_ms, int64_t end)
{
        return timeout_ms > 0 ? CG_MAX(end - cg_now_ms(), 0) : timeout_ms;
}

CG_API int cg_session_next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret,
                                 struct cg_err *err)
{
        int64_t end = cg_now_ms() + CG_MIN(timeout_ms, CG_MAX_WAIT_MS);
        struct cg_event *e;
        int r;

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        for (;;) {
                pthread_mutex_lock(&s->client->lock);
                while (!s->events && !s->closed && rest_ms(timeout_ms, end) != 0)
                        cg_client_wait_event(s, rest_ms(timeout_ms, end));
                e = s->events ? pop_event(s) : NULL;
                r = s->closed ? CG_CLOSED : CG_TIMEOUT;
                pthread_mutex_unlock(&s->client->lock);
                if (!e)
                        return r;
                r = decide_by_policy(s, e, err);
                if (r == 0) {
                        *ret = e;
                        return 0;
                }
                cg_event_free(e);
                if (r < 0)
                        return r;
        }
}

CG_API int cg_session_fd(const struct cg_session *s)
{
        return s->event_fd;
}
