/*
 * `cellgate run`: events and decisions between the session and the output. Runs in the command
 * `cellgate`.
 */
#include "cli/run/run.h"
#include "cli/common/args.h"

int cg_run_answer(struct cg_run *run, uint64_t approval, bool accept, const char *reason, struct cg_err *err)
{
        int r;

        if (accept)
                r = cg_approval_accept(run->session, approval, err);
        else
                r = cg_approval_reject(run->session, approval, reason, err);
        return r == CG_E_NOTFOUND ? 0 : r; /* cancelled meanwhile: APPROVAL_CLOSED says so */
}

int cg_run_answer_egress(struct cg_run *run, uint64_t request, enum cg_egress_decision decision,
                         const char *reason, struct cg_err *err)
{
        int r = cg_egress_decide(run->session, request, decision, reason, err);

        return r == CG_E_NOTFOUND ? 0 : r;
}

/* True if a policy has decided about the connection. */
static bool decide_connection(struct cg_run *run, const struct cg_event *e, bool again, int *r,
                              struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        enum cg_egress_decision decision = CG_EGRESS_ALLOW_ONCE;
        struct cg_pol_call call = cg_call_of(e);
        struct cg_approve_verdict v;
        enum cg_approve_answer answer;

        call.again = again;
        answer = cg_approve_judge(run->opts.kernel.approve, &call, &v);
        if (answer == CG_APPROVE_ASK && (run->can_ask || v.policy.rule[0])) {
                cg_approval_share(run->session, cg_event_approval(e), NULL);
                return false;
        }
        if (answer == CG_APPROVE_REFUSE)
                cg_approve_explain_verdict(&why, &call, &v, cg_approve_explain);
        if (answer != CG_APPROVE_ACCEPT)
                decision = CG_EGRESS_DENY_ONCE;
        *r = cg_run_answer_egress(run, cg_event_approval(e), decision,
                                  why.data ?: "host is not on the allow list", err);
        return true;
}

int cg_run_event(struct cg_run *run, struct cg_event *e, bool again, struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        struct cg_approve_verdict v;
        enum cg_approve_answer answer;
        struct cg_pol_call call;
        int r = 0;

        /* No rule is about what servers ask for, and functions. */
        if (cg_event_type(e) == CG_EVENT_SERVER_REQUEST || cg_event_type(e) == CG_EVENT_FUNCTION_CALL ||
            (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST && !decide_connection(run, e, again, &r, err)))
                return run->output->ask(run, e, err);
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                cg_event_free(e);
                return r;
        }
        if (cg_event_type(e) != CG_EVENT_APPROVAL_REQUEST)
                return run->output->event(run, e, err);
        call = cg_call_of(e);
        call.again = again;
        answer = cg_approve_judge(run->opts.kernel.approve, &call, &v);
        if (answer == CG_APPROVE_ASK) {
                cg_approval_share(run->session, cg_event_approval(e), NULL);
                return run->output->ask(run, e, err);
        }
        if (answer == CG_APPROVE_REFUSE)
                cg_approve_explain_verdict(&why, &call, &v, cg_approve_explain);
        r = cg_buf_end(&why, err);
        if (r >= 0)
                r = cg_run_answer(run, cg_event_approval(e), answer == CG_APPROVE_ACCEPT, why.data, err);
        if (r >= 0)
                r = run->output->decided(run, e, answer == CG_APPROVE_ACCEPT, why.data, err);
        cg_event_free(e);
        return r;
}

void cg_run_result(struct cg_run *run, const struct cg_event *e)
{
        static const enum cg_exit statuses[] = {
                [CG_STATUS_OK] = CG_EXIT_OK,
                [CG_STATUS_ERROR] = CG_EXIT_RAISED,
                [CG_STATUS_TIMEOUT] = CG_EXIT_TIMEOUT,
                [CG_STATUS_CANCELLED] = CG_EXIT_CANCELLED,
                [CG_STATUS_KERNEL_DIED] = CG_EXIT_KERNEL_DIED,
        };

        if (cg_event_type(e) != CG_EVENT_RESULT || cg_event_cell(e) != run->cell)
                return;
        run->done = true;
        run->status = statuses[cg_event_status(e)];
        if (run->status == CG_EXIT_RAISED && cg_event_refused(e))
                run->status = CG_EXIT_REFUSED;
}
