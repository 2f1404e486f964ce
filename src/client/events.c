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
        pthread_mutex_lock(&s->client->lock);
        for (struct approval *a = s->approvals; a; a = a->next)
                if (a->id == id)
                        a->policy_key = key;
        pthread_mutex_unlock(&s->client->lock);
}

/* True: the session's policy has decided; the host does not get the event. */
static bool decided_by_policy(struct cg_session *s, const struct cg_event *e)
{
        bool connection = e->type == CG_EVENT_EGRESS_REQUEST;
        cg_auto_buf struct cg_buf why = { .max = 30000 };
        uint64_t key;

        if (!s->policy || e->foreign || (!connection && e->type != CG_EVENT_APPROVAL_REQUEST))
                return false;
        switch (cg_session_policy_judge(s->policy, e, &key, &why)) {
        case CG_POL_ALLOW:
                if (connection)
                        cg_egress_decide(s, e->approval, CG_EGRESS_ALLOW_ONCE, why.data, NULL);
                else
                        cg_approval_accept_by(s, e->approval, why.data, NULL);
                return true;
        case CG_POL_DENY:
                cg_event_refuse(s, e, why.data, NULL);
                return true;
        default:
                leave_to_host(s, e->approval, key);
                return false;
        }
}

static int next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret)
{
        int64_t start = cg_now_ms(), left_ms = timeout_ms;
        int r = CG_TIMEOUT;

        pthread_mutex_lock(&s->client->lock);
        while (left_ms != 0 && !s->events && !s->closed) {
                cg_client_wait_event(s, left_ms);
                if (timeout_ms > 0 && cg_now_ms() - start < timeout_ms)
                        left_ms = timeout_ms - (cg_now_ms() - start);
                else if (timeout_ms > 0)
                        left_ms = 0;
        }
        if (s->events) {
                *ret = pop_event(s);
                r = 0;
        } else if (s->closed) {
                r = CG_CLOSED;
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_session_next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret,
                                 struct cg_err *err)
{
        int64_t end = cg_now_ms() + timeout_ms;
        struct cg_event *e;
        int r;

        if (!s->client)
                return cg_fail(err, CG_E_CLOSED, "the client was closed");
        while ((r = next_event(s, timeout_ms, &e)) == 0) {
                if (!decided_by_policy(s, e)) {
                        *ret = e;
                        return 0;
                }
                cg_event_free(e);
                if (timeout_ms > 0)
                        timeout_ms = CG_MAX(end - cg_now_ms(), 0);
        }
        return r;
}

CG_API int cg_session_fd(const struct cg_session *s)
{
        return s->event_fd;
}
