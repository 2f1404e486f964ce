/* libcellgate: answers to the questions of sessions. */
#include "client/internal.h"

CG_API int cg_approval_share(struct cg_session *s, uint64_t approval, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_APPROVAL_SHARE, .id = approval };
        int r = cg_session_enter(s, err);

        if (r < 0)
                return r;
        out.session = s->number;
        r = CG_E_NOTFOUND;
        if (cg_session_find_approval(s, CG_EVENT_APPROVAL_REQUEST, approval, err) ||
            cg_session_find_approval(s, CG_EVENT_EGRESS_REQUEST, approval, err))
                r = cg_client_send(s->client, &out, NULL, err);
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

/* The longest reason, whose JSON fits into a decision also if each byte is escaped. */
#define REASON_MAX 10000

/* Returns a reason cut at REASON_MAX; NULL where there is none or it is not UTF-8. */
static json_t *reason_json(const char *reason, size_t len)
{
        len = reason ? strnlen(reason, CG_MIN(len, REASON_MAX + 1)) : 0;
        if (len > REASON_MAX)
                for (len = REASON_MAX; len > 0 && (reason[len] & 0xc0) == 0x80; len--)
                        ;
        return len ? json_stringn(reason, len) : NULL;
}

int cg_session_decide(struct cg_session *s, enum cg_event_type of, uint64_t id, bool accept,
                      const char *reason, size_t len, bool timed_out, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_DECISION, .id = id };
        json_t *body = json_pack("{s:b, s:b, s:o*}", "accept", accept, "timed_out", timed_out, "reason",
                                 reason_json(reason, len));

        return cg_session_send_decision(s, &out, of, body, err);
}

CG_API int cg_approval_accept(struct cg_session *s, uint64_t approval, struct cg_err *err)
{
        return cg_approval_accept_by(s, approval, NULL, err);
}

CG_API int cg_approval_accept_by(struct cg_session *s, uint64_t approval, const char *by, struct cg_err *err)
{
        int r = cg_session_enter(s, err);
        bool accepted;

        if (r < 0)
                return r;
        accepted = cg_remote_accept(s, approval);
        pthread_mutex_unlock(&s->client->lock);
        if (accepted)
                return 0;
        return cg_session_decide(s, CG_EVENT_APPROVAL_REQUEST, approval, true, by, SIZE_MAX, false, err);
}

/* The same call is not asked about again in a session with policy files. */
static void remember_refusal(struct cg_session *s, uint64_t id)
{
        const struct approval *a;
        uint64_t key = 0;

        if (!s->policy || cg_session_enter(s, NULL) < 0)
                return;
        a = cg_session_find_approval(s, CG_EVENT_APPROVAL_REQUEST, id, NULL);
        if (a)
                key = a->policy_key;
        pthread_mutex_unlock(&s->client->lock);
        if (key)
                cg_session_policy_refused(s->policy, key);
}

CG_API int cg_approval_reject(struct cg_session *s, uint64_t approval, const char *reason, struct cg_err *err)
{
        remember_refusal(s, approval);
        return cg_session_decide(s, CG_EVENT_APPROVAL_REQUEST, approval, false, reason, SIZE_MAX, false, err);
}

CG_API int cg_approval_expire(struct cg_session *s, uint64_t approval, const char *reason, struct cg_err *err)
{
        return cg_session_decide(s, CG_EVENT_APPROVAL_REQUEST, approval, false, reason, SIZE_MAX, true, err);
}

CG_API int cg_egress_decide(struct cg_session *s, uint64_t request, enum cg_egress_decision decision,
                            const char *reason, struct cg_err *err)
{
        static const char *const answers[] = { "once", "session", "no", "never" };
        struct cg_out out = { .type = CG_HOST_EGRESS_DECISION, .id = request };
        json_t *body;

        if ((size_t)decision >= CG_ARRAY_LEN(answers))
                return cg_fail(err, CG_E_INVAL, "%d is not a decision about a connection", (int)decision);
        body = json_pack("{s:s, s:o*}", "answer", answers[decision], "reason", reason_json(reason, SIZE_MAX));
        return cg_session_send_decision(s, &out, CG_EVENT_EGRESS_REQUEST, body, err);
}

static int check_server_answer(struct cg_session *s, uint64_t number, json_t *result, struct cg_err *err)
{
        cg_auto_free char *request = NULL;
        const struct approval *a;
        int r = cg_session_enter(s, err);

        if (r < 0)
                return r;
        a = cg_session_find_approval(s, CG_EVENT_SERVER_REQUEST, number, err);
        request = a ? strdup(a->request) : NULL;
        pthread_mutex_unlock(&s->client->lock);
        if (!a)
                return CG_E_NOTFOUND;
        if (!request)
                return cg_fail(err, CG_E_NOMEM, "answer");
        return cg_server_answer_check(request, result, err);
}

/* @result NULL: declined. */
static int send_server_answer(struct cg_session *s, uint64_t number, json_t *result, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_SERVER_ANSWER, .id = number, .raw = "", .has_raw = true };
        cg_auto_free char *text = NULL;
        int r;

        if (result) {
                r = check_server_answer(s, number, result, err);
                if (r < 0)
                        return r;
                out.raw = text = cg_json_text(result, &out.raw_len);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "answer");
                if (out.raw_len > CG_MAX_BODY)
                        return cg_fail(err, CG_E_LIMIT, "the answer has %zu bytes, over the limit of %u",
                                       out.raw_len, CG_MAX_BODY);
        }
        return cg_session_send_decision(s, &out, CG_EVENT_SERVER_REQUEST,
                                        json_pack("{s:b}", "decline", !result), err);
}

CG_API int cg_server_request_answer(struct cg_session *s, uint64_t number, const char *result,
                                    struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        size_t len = strlen(result);
        int r;

        if (len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "the answer has %zu bytes, over the limit of %u", len,
                               CG_MAX_BODY);
        r = cg_json_object(result, len, "the answer", &o, err);
        if (r < 0)
                return r;
        return send_server_answer(s, number, o, err);
}

CG_API int cg_server_request_decline(struct cg_session *s, uint64_t number, struct cg_err *err)
{
        return send_server_answer(s, number, NULL, err);
}

CG_API int cg_session_input(struct cg_session *s, const char *text, size_t len, struct cg_err *err)
{
        struct cg_out out = {
                .type = CG_HOST_INPUT_REPLY, .raw = text ?: "", .raw_len = text ? len : 0, .has_raw = true
        };
        int r;

        if (text && len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "the input is longer than %u bytes", CG_MAX_BODY);
        r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        if (!s->input_wanted) {
                r = cg_fail(err, CG_E_STATE, "the cell does not wait for input");
        } else {
                s->input_wanted = false;
                out.session = s->number;
                out.id = s->input_cell;
                r = cg_client_send(s->client, &out,
                                   json_pack("{s:b, s:I}", "eof", text == NULL, "question",
                                             (json_int_t)s->input_question),
                                   err);
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_event_refuse(struct cg_session *s, const struct cg_event *e, const char *reason,
                           struct cg_err *err)
{
        int r = 0;

        switch (e->type) {
        case CG_EVENT_APPROVAL_REQUEST:
        case CG_EVENT_FUNCTION_CALL:
                r = cg_session_decide(s, e->type, e->approval, false, reason, SIZE_MAX, false, err);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                r = cg_egress_decide(s, e->approval, CG_EGRESS_DENY_ONCE, reason, err);
                break;
        case CG_EVENT_SERVER_REQUEST:
                r = cg_server_request_decline(s, e->approval, err);
                break;
        case CG_EVENT_INPUT_REQUEST:
                r = cg_session_input(s, NULL, 0, err);
                break;
        default:
                break;
        }
        return r == CG_E_NOTFOUND || r == CG_E_STATE ? 0 : r;
}
