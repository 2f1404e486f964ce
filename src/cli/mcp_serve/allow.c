/*
 * `cellgate mcp serve`: decides whether a tool of its own may run, by rules or by the user's
 * answer, for which the worker waits.
 */
#include "cli/mcp_serve/mcp_serve.h"

/* The server name of our own tools in approval rules. */
#define OWN "cellgate"

/* Asks the user, and waits for the answer or the job's end. */
static bool ask_user(struct cg_serve_session *s, const struct cg_job *job, const struct cg_pol_call *call,
                     struct cg_buf *why)
{
        struct cg_serve_ask *a = cg_serve_ask_own(s, call, why);
        bool accept;

        if (!a)
                return false;
        pthread_mutex_lock(&s->sv->lock);
        while (!a->answered && !s->sv->stop && !job->cancelled && !job->ended_by) {
                pthread_mutex_unlock(&s->sv->lock);
                cg_serve_wait(s, -1, -1); /* also ends the question at its deadline */
                pthread_mutex_lock(&s->sv->lock);
        }
        accept = cg_serve_ask_own_end(s, a, why);
        pthread_mutex_unlock(&s->sv->lock);
        return accept;
}

/* Where there is an audit log, an acceptance counts only if it is recorded. */
static bool decide(struct cg_serve_session *s, const struct cg_job *job, const char *tool, struct cg_buf *why)
{
        struct cg_pol_call call = { .server = OWN,
                                    .method = CG_METHOD_CALL,
                                    .tool = tool,
                                    .args = job->args,
                                    .args_len = strlen(job->args) };
        enum cg_approve_answer answer = cg_serve_judge_own(s, &call, why);
        bool accept = answer == CG_APPROVE_ACCEPT;
        struct cg_err err;

        if (answer == CG_APPROVE_ASK)
                accept = ask_user(s, job, &call, why);
        if (!s->sv->opts.kernel.audit.mode || !s->session ||
            cg_session_own_decision(s->session, OWN, tool, job->args, call.args_len, accept, cg_buf_str(why),
                                    &err) == 0)
                return accept;
        if (!accept)
                return false;
        cg_buf_clear(why);
        cg_buf_addf(why, "it cannot be recorded: %s", err.msg);
        return false;
}

bool cg_serve_allowed(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a,
                      struct cg_err *err)
{
        const char *tool = cg_serve_tool_defs[job->tool].name;
        cg_auto_buf struct cg_buf why = { .max = 65536 };

        if (s->sv->opts.kernel.audit.mode && cg_serve_ensure_open(s, a, err) < 0)
                return false;
        if (decide(s, job, tool, &why))
                return true;
        cg_log(&s->sv->log, CG_LOG_INFO, "refused cellgate.%s: %s", tool, why.data ?: "");
        cg_fail(err, CG_E_STATE, "%s was refused: %s", tool, why.data ?: "no memory");
        return false;
}
