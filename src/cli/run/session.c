/* `cellgate run`: events and decisions between session and output. Part of `cellgate`. */
#include "cli/run/run.h"
#include "cli/common/args.h"

int cg_run_answer(struct cg_run *run, const struct cg_event *e, bool accept, const char *reason,
                  struct cg_err *err)
{
        int r;

        if (!accept)
                return cg_event_refuse(run->session, e, reason, err);
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST)
                r = cg_egress_decide(run->session, cg_event_approval(e), CG_EGRESS_ALLOW_ONCE, reason, err);
        else
                r = cg_approval_accept_by(run->session, cg_event_approval(e), reason, err);
        return r == CG_E_NOTFOUND ? 0 : r; /* cancelled meanwhile: APPROVAL_CLOSED says so */
}

/* A call or connection: the approval rules decide, or leave it to the output. Takes @e. */
static int on_question(struct cg_run *run, struct cg_event *e, bool again, struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        bool connection = cg_event_type(e) == CG_EVENT_EGRESS_REQUEST;
        struct cg_pol_call call = cg_call_of(e);
        struct cg_approve_verdict v;
        enum cg_approve_answer answer;
        int r;

        call.again = again;
        answer = cg_approve_judge(run->opts.kernel.approve, &call, &v);
        if (answer == CG_APPROVE_ASK && (!connection || run->can_ask || v.policy.rule[0])) {
                cg_approval_share(run->session, cg_event_approval(e), NULL);
                return run->output->ask(run, e, err);
        }
        if (answer == CG_APPROVE_ASK)
                cg_buf_adds(&why, "host is not on the allow list");
        else
                cg_approve_explain_verdict(&why, &call, &v, cg_approve_explain);
        r = cg_buf_end(&why, err);
        if (r >= 0)
                r = cg_run_answer(run, e, answer == CG_APPROVE_ACCEPT, why.data, err);
        if (r >= 0 && !connection) /* DENIED reports connections */
                r = run->output->decided(run, e, answer == CG_APPROVE_ACCEPT,
                                         answer == CG_APPROVE_ACCEPT ? NULL : why.data, err);
        cg_event_free(e);
        return r;
}

int cg_run_event(struct cg_run *run, struct cg_event *e, bool again, struct cg_err *err)
{
        switch (cg_event_type(e)) {
        case CG_EVENT_APPROVAL_REQUEST:
        case CG_EVENT_EGRESS_REQUEST:
                return on_question(run, e, again, err);
        case CG_EVENT_SERVER_REQUEST: /* no rule is about what servers ask for, and functions */
        case CG_EVENT_FUNCTION_CALL:
                return run->output->ask(run, e, err);
        default:
                return run->output->event(run, e, err);
        }
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
