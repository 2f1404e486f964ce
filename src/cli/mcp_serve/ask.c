/*
 * `cellgate mcp serve`: which tool calls may run. By rules; where they say `ask`, by the person at
 * the MCP client, through an elicitation request. Anything but a clear yes in time is a no.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/common/args.h"

/* The most bytes of a form's params. */
#define FORM_MAX ((size_t)64 << 20)
/* A kernel has one input() at a time, which has no number of the session's. */
#define INPUT_NUMBER UINT64_MAX
#define NOT_ASKED    "the question to the user could not be asked: no memory is left"

/* ------------------------------------------------------------------ refusals */

/* The text is read by the code in the kernel, by the agent, and by the user who can add a rule. */
static void explain_rule(struct cg_buf *b, const char *server, const char *method, const char *tool,
                         const char *rule)
{
        bool call = strcmp(method, CG_METHOD_CALL) == 0, plain = cg_approve_is_plain(server);

        if (rule || strcmp(method, CG_METHOD_EXEC) == 0) {
                cg_approve_explain(b, server, method, tool, rule);
                return;
        }
        cg_buf_adds(b, "no approval rule allows ");
        cg_approve_name(b, server, method, tool);
        if (plain && !call)
                cg_buf_addf(b, ": start cellgate mcp serve with --approve '%s:%s'", server, method);
        else if (plain && cg_approve_is_plain(tool))
                cg_buf_addf(
                        b,
                        ": start cellgate mcp serve with --approve '%s.%s' (patterns such as '%s.*' work too)",
                        server, tool, server);
        else
                cg_buf_adds(b, ": start cellgate mcp serve with an --approve pattern that matches it");
}

/* ------------------------------------------------------------------ questions */

static struct cg_serve_ask *ask_free(struct cg_serve_ask *a)
{
        if (!a)
                return NULL;
        free(a->server);
        free(a->tool);
        free(a->json);
        free(a->reason);
        free(a->result);
        free(a->line);
        free(a);
        return NULL;
}

static struct cg_serve_ask *ask_new(enum cg_serve_subject subject, uint64_t approval, const char *server,
                                    const char *method, const char *tool, const char *json, size_t len)
{
        struct cg_serve_ask *a = calloc(1, sizeof(*a));

        if (!a)
                return NULL;
        a->subject = subject;
        a->approval = approval;
        a->server = strdup(server);
        a->tool = strdup(tool);
        a->method = method;
        a->json = strndup(json, len);
        a->len = len;
        if (!a->server || !a->tool || !a->json)
                return ask_free(a);
        return a;
}

static void end_ask(struct cg_serve_session *s, struct cg_serve_ask *a)
{
        TAILQ_REMOVE(&s->asks, a, entry);
        ask_free(a);
}

/* Sends a question to the client, or leaves it to the result of a call (lock held). */
static int send_ask(struct cg_serve_session *s, struct cg_serve_ask *a)
{
        cg_auto_buf struct cg_buf params = { .max = FORM_MAX };

        a->deadline_ms = cg_now_ms() + s->sv->opts.ask_timeout_ms;
        a->id = 0;
        if (a->by_result) {
                cg_serve_wake(s->sv->io_fd);
                return 0;
        }
        a->id = ++s->sv->last_ask;
        cg_serve_form(s, a, &params);
        if (cg_buf_end(&params, NULL) < 0 ||
            cg_serve_request(s->sv, a->id, "elicitation/create", params.data) < 0)
                return CG_E_NOMEM;
        return 0;
}

static void decide(struct cg_serve_ask *a, bool accept, const char *reason)
{
        a->answered = true;
        a->accept = accept;
        free(a->reason);
        a->reason = strdup(reason);
}

/* Sends the questions about calls whose turn it is (lock held). */
static void send_waiting(struct cg_serve_session *s)
{
        struct cg_serve_ask *a;
        size_t open = 0;

        TAILQ_FOREACH(a, &s->asks, entry)
                open += a->subject == CG_SERVE_ASK_CALL && a->id && !a->answered && !a->by_result;
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (open == CG_SERVE_MAX_OPEN)
                        return;
                if (a->id || a->answered || a->by_agent || a->by_result)
                        continue;
                open++;
                if (send_ask(s, a) < 0)
                        decide(a, false, NOT_ASKED);
        }
}

void cg_serve_ask_again(struct cg_serve_session *s)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->id && !a->answered && !a->by_result && send_ask(s, a) < 0)
                        decide(a, false, NOT_ASKED);
        }
}

/* Takes @a, which is among s->asks when this succeeds (lock held). */
static int start_ask(struct cg_serve_session *s, struct cg_serve_ask *a)
{
        if (!a)
                return CG_E_NOMEM;
        a->by_result = s->sv->proto.peer.stateless && !a->by_agent;
        a->since_ms = cg_now_ms();
        a->deadline_ms = a->since_ms + s->sv->opts.ask_timeout_ms;
        if ((a->subject != CG_SERVE_ASK_CALL || a->by_result) && !a->by_agent && send_ask(s, a) < 0) {
                ask_free(a);
                return CG_E_NOMEM;
        }
        TAILQ_INSERT_TAIL(&s->asks, a, entry);
        send_waiting(s);
        return 0;
}

static void explain_mute(struct cg_buf *why, const char *server, const char *method, const char *tool)
{
        cg_buf_adds(why,
                    "the approval rule says ask, but this MCP client cannot ask its user (no elicitation): ");
        explain_rule(why, server, method, tool, NULL);
}

/* Returns the question (stays ours); NULL: it could not be asked, for the reason in @why. */
static struct cg_serve_ask *ask(struct cg_serve_session *s, uint64_t approval, const char *server,
                                const char *method, const char *tool, const char *args, size_t len,
                                const char *line, struct cg_buf *why)
{
        enum cg_serve_subject subject = approval ? CG_SERVE_ASK_CALL : CG_SERVE_ASK_OWN;
        CG_HOLD(&s->sv->lock);
        struct cg_serve_ask *a;

        if (!s->sv->proto.peer.can_ask) {
                explain_mute(why, server, method, tool);
                return NULL;
        }
        a = ask_new(subject, approval, server, method, tool, args, len);
        if (a)
                a->line = strdup(line); /* NULL: not shown */
        if (start_ask(s, a) == 0)
                return a;
        cg_buf_adds(why, NOT_ASKED);
        return NULL;
}

/* ------------------------------------------------------------------ answers */

static char *span_text(struct cg_slice object, const char *key)
{
        struct cg_slice v;
        char *text;

        if (!object.p || cg_json_member(object, key, &v, NULL) < 0 || !v.p ||
            cg_json_strdup(v, &text, NULL) < 0)
                return NULL;
        return text;
}

/* Cancels the request to the client, unless it has been answered (lock held). */
static void take_back(struct cg_serve_session *s, const struct cg_serve_ask *a, const char *why)
{
        char params[160];

        if (a->answered || !a->id || a->by_result)
                return;
        snprintf(params, sizeof(params), "{\"requestId\":%" PRIu64 ",\"reason\":\"%s\"}", a->id, why);
        cg_serve_notify(s->sv, "notifications/cancelled", params);
}

/* Accepts the calls of the same tool that the form of @ask has counted. */
static void accept_all(struct cg_serve_session *s, const struct cg_serve_ask *ask)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->answered || a->approval > ask->all_until || !cg_serve_same_tool(a, ask))
                        continue;
                take_back(s, a, "accepted with another call");
                decide(a, true, "");
        }
}

/*
 * The choice of a form of ours. What is none of the form's choices accepts nothing. False: it is
 * answered by the next part.
 */
static bool read_choice(struct cg_serve_session *s, struct cg_serve_ask *a, const char *decision,
                        const char *reason)
{
        enum cg_serve_choice choice = cg_serve_read_choice(a, decision);
        cg_auto_buf struct cg_buf why = { .max = SIZE_MAX - 1 };

        if (choice == CG_SERVE_CHOICE_VIEW) {
                a->part++;
                if (send_ask(s, a) == 0)
                        return false;
                choice = CG_SERVE_CHOICE_NO;
        }
        cg_buf_adds(&why, "the user rejected it");
        if (reason && *reason)
                cg_buf_addf(&why, ": %s", reason);
        decide(a, choice >= CG_SERVE_CHOICE_YES, why.data ?: "the user rejected it");
        a->always = choice == CG_SERVE_CHOICE_ALWAYS || choice == CG_SERVE_CHOICE_NEVER;
        a->same = choice == CG_SERVE_CHOICE_SAME;
        if (choice == CG_SERVE_CHOICE_ALL)
                accept_all(s, a);
        return true;
}

static bool is_action(const char *action, const char *name)
{
        return action && strcmp(action, name) == 0;
}

/* The answer to a question of ours. False: it is answered by the next part. */
static bool read_answer(struct cg_serve_session *s, struct cg_serve_ask *a, const char *action,
                        struct cg_slice result)
{
        cg_auto_free char *decision = NULL, *reason = NULL;
        struct cg_slice content = CG_SLICE_NONE;

        if (is_action(action, "decline")) {
                decide(a, false, "the user rejected it");
                a->by_user = true;
                return true;
        }
        if (!is_action(action, "accept")) {
                decide(a, false, "the user gave no answer");
                return true;
        }
        if (cg_json_member(result, "content", &content, NULL) < 0)
                content = CG_SLICE_NONE;
        decision = span_text(content, "decision");
        reason = span_text(content, "reason");
        if (!read_choice(s, a, decision ?: "", reason))
                return false;
        a->by_user = !a->accept;
        return true;
}

/* @failed: the client could not ask. */
static void answer_ask(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_slice result,
                       bool failed)
{
        cg_auto_free char *action = span_text(result, "action");
        struct cg_slice content = CG_SLICE_NONE;
        struct cg_serve_ask *other;

        s->used_ms = cg_now_ms();
        cg_serve_wake(s->work_fd);
        if (a->subject == CG_SERVE_ASK_SERVER) {
                decide(a, false, "");
                if (action)
                        a->result = strndup(result.p, result.len);
                return;
        }
        if (a->subject == CG_SERVE_ASK_INPUT) {
                if (is_action(action, "accept") && cg_json_member(result, "content", &content, NULL) == 0)
                        a->result = span_text(content, "text");
                decide(a, a->result != NULL, "the user gave none");
                return;
        }
        if (failed)
                decide(a, false, "the MCP client could not ask the user");
        else if (!read_answer(s, a, action, result))
                return;
        /* The user is there: what has not been shown yet waits for as long from now on. */
        TAILQ_FOREACH(other, &s->asks, entry)
                if (!other->id)
                        other->deadline_ms = cg_now_ms() + s->sv->opts.ask_timeout_ms;
        send_waiting(s);
}

bool cg_serve_answered(struct cg_serve_session *s, const struct cg_mcpd_in *in)
{
        struct cg_serve_ask *a;
        char id[24];

        TAILQ_FOREACH(a, &s->asks, entry) {
                snprintf(id, sizeof(id), "%" PRIu64, a->id);
                if (a->id && !a->answered && !a->by_result && cg_slice_is(in->id, id)) {
                        answer_ask(s, a, in->result, in->error.p != NULL);
                        return true;
                }
        }
        return false;
}

void cg_serve_answered_by(struct cg_serve_session *s, uint64_t id, struct cg_slice result)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->id == id && !a->answered && a->by_result) {
                        answer_ask(s, a, result, false);
                        return;
                }
        }
}

/* Removes and returns a decided question; NULL: none. *next_ms: until the next deadline, or -1. */
static struct cg_serve_ask *take_decided(struct cg_serve_session *s, int64_t *next_ms)
{
        int64_t now = cg_now_ms();
        struct cg_serve_ask *a;

        *next_ms = -1;
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (!a->answered && a->deadline_ms <= now) {
                        take_back(s, a, "no answer in time");
                        decide(a, false,
                               "the user did not answer in time; call it again once they can answer");
                        a->timed_out = true;
                }
                if (a->answered && a->approval) {
                        TAILQ_REMOVE(&s->asks, a, entry);
                        return a;
                }
                if (!a->answered && (*next_ms < 0 || a->deadline_ms - now < *next_ms))
                        *next_ms = a->deadline_ms - now;
        }
        send_waiting(s);
        return NULL;
}

static void settle_connection(struct cg_serve_session *s, const struct cg_serve_ask *a)
{
        static const enum cg_egress_decision decisions[2][2] = {
                { CG_EGRESS_DENY_ONCE, CG_EGRESS_DENY_SESSION },
                { CG_EGRESS_ALLOW_ONCE, CG_EGRESS_ALLOW_SESSION },
        };

        cg_egress_decide(s->session, a->approval, decisions[a->accept][a->always],
                         a->accept ? NULL : a->reason, NULL);
}

static const char *shared_key(uint64_t approval, char ret[24])
{
        snprintf(ret, 24, "%" PRIu64, approval);
        return ret;
}

void cg_serve_decided_elsewhere(struct cg_serve_session *s, uint64_t approval, const char *why)
{
        static const struct {
                const char *begin, *decision, *rule;
        } ends[] = { { "accepted in another terminal", "accepted", "terminal" },
                     { "refused in another terminal", "rejected", "terminal" },
                     { "accepted by an approver", "accepted", "approver" },
                     { "refused by an approver", "rejected", "approver" } };
        cg_auto_json json_t *call = NULL;
        const char *server, *tool;
        char key[24];

        call = json_incref(json_object_get(s->shared, shared_key(approval, key)));
        json_object_del(s->shared, key);
        if (json_unpack(call, "[ss]", &server, &tool) < 0)
                return;
        for (size_t i = 0; i < CG_ARRAY_LEN(ends); i++)
                if (strncmp(why, ends[i].begin, strlen(ends[i].begin)) == 0)
                        cg_structured_decided(cg_answer_structured(s->out.answer), server, tool,
                                              ends[i].decision, ends[i].rule);
}

static void settle_call(struct cg_serve_session *s, const struct cg_serve_ask *a)
{
        struct cg_pol_call call = {
                .server = a->server, .method = a->method, .tool = a->tool, .args = a->json, .args_len = a->len
        };
        const char *how = a->timed_out ? "expired" : "rejected";
        char key[24];

        json_object_del(s->shared, shared_key(a->approval, key));
        cg_structured_decided(cg_answer_structured(s->out.answer), a->server, a->tool,
                              a->accept ? "accepted" : how, NULL);
        if (a->always) /* failed: asked again */
                cg_approve_always(s->approve, a->server, a->method, a->tool, NULL);
        if (a->same)
                cg_approve_always_same(s->approve, &call, NULL);
        if (a->accept)
                cg_approve_accepted(s->approve, &call);
        if (a->by_user && !a->accept) {
                pthread_mutex_lock(&s->sv->policy);
                cg_approve_refused(s->approve, &call);
                pthread_mutex_unlock(&s->sv->policy);
        }
        if (a->accept)
                cg_approval_accept(s->session, a->approval, NULL);
        else if (a->timed_out)
                cg_approval_expire(s->session, a->approval, a->reason, NULL);
        else
                cg_approval_reject(s->session, a->approval, a->reason, NULL);
}

/* An answer that does not fit the server's form is none. */
static void settle_server(struct cg_serve_session *s, const struct cg_serve_ask *a)
{
        struct cg_err err;

        if (a->result && cg_server_request_answer(s->session, a->approval, a->result, &err) == 0)
                return;
        if (a->result)
                cg_log(&s->sv->log, CG_LOG_WARN, "the answer to the MCP server %s was not passed on: %s",
                       a->server, err.msg);
        cg_server_request_decline(s->session, a->approval, NULL);
}

/* Without a text input() raises EOFError. */
static void settle_input(struct cg_serve_session *s, const struct cg_serve_ask *a)
{
        if (a->accept && a->result) {
                cg_session_input(s->session, a->result, strlen(a->result), NULL);
                return;
        }
        if (s->out.answer)
                cg_answer_note(s->out.answer, "[cellgate: input() got no text: %s]",
                               a->timed_out ? "nobody answered in time" : a->reason);
        cg_session_input(s->session, NULL, 0, NULL);
}

int64_t cg_serve_settle(struct cg_serve_session *s)
{
        static void (*const settle[])(struct cg_serve_session *, const struct cg_serve_ask *) = {
                [CG_SERVE_ASK_CALL] = settle_call,
                [CG_SERVE_ASK_CONNECTION] = settle_connection,
                [CG_SERVE_ASK_SERVER] = settle_server,
                [CG_SERVE_ASK_INPUT] = settle_input,
        };
        struct cg_serve_ask *a;
        int64_t next_ms;

        for (;; ask_free(a)) {
                pthread_mutex_lock(&s->sv->lock);
                a = take_decided(s, &next_ms);
                pthread_mutex_unlock(&s->sv->lock);
                if (!a)
                        return next_ms;
                /* The session may have closed the request meanwhile: errors are ignored. */
                settle[a->subject](s, a);
        }
}

/* Nobody can be asked (lock held). */
static bool is_mute(const struct cg_serve_session *s)
{
        return !s->sv->proto.peer.can_ask && !cg_kernel_options_shares(&s->sv->opts.kernel);
}

static enum cg_approve_answer judge(struct cg_serve_session *s, struct cg_pol_call *call,
                                    struct cg_approve_verdict *v)
{
        char client[sizeof(s->sv->proto.peer.client)];
        enum cg_approve_answer answer;

        pthread_mutex_lock(&s->sv->lock);
        memcpy(client, s->sv->proto.peer.client, sizeof(client));
        cg_approve_set_mute(s->approve, is_mute(s));
        pthread_mutex_unlock(&s->sv->lock);
        if (client[0])
                call->client = client;
        pthread_mutex_lock(&s->sv->policy);
        answer = cg_approve_judge(s->approve, call, v);
        pthread_mutex_unlock(&s->sv->policy);
        return answer;
}

static const char *rule_of(const struct cg_approve_verdict *v, const char *none)
{
        if (v->policy.rule[0])
                return v->policy.rule;
        return v->rule ?: none;
}

/* True if only other terminals can be asked: the question stays open until they decide. */
static bool only_elsewhere(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);

        return !s->sv->proto.peer.can_ask && cg_kernel_options_shares(&s->sv->opts.kernel);
}

void cg_serve_approve(struct cg_serve_session *s, struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 }, name = { .max = 65536 };
        struct cg_pol_call call = cg_call_of(e);
        uint64_t approval = cg_event_approval(e);
        struct cg_approve_verdict v;
        const char *shown;
        char key[24];

        cg_approve_name(&name, call.server, call.method, call.tool);
        shown = name.data ?: call.server;
        switch (judge(s, &call, &v)) {
        case CG_APPROVE_ACCEPT:
                cg_log(&s->sv->log, CG_LOG_INFO, "accepted %s by %s%s", shown,
                       v.policy.rule[0] ? "" : "rule ", rule_of(&v, "all"));
                cg_structured_decided(cg_answer_structured(s->out.answer), call.server, call.tool, "accepted",
                                      rule_of(&v, "all"));
                cg_approve_explain_verdict(&why, &call, &v, explain_rule);
                cg_approval_accept_by(s->session, approval, why.data, NULL);
                return;
        case CG_APPROVE_ASK:
                cg_approval_share(s->session, approval, NULL);
                json_object_set_new(s->shared, shared_key(approval, key),
                                    json_pack("[ss]", call.server, call.tool));
                if (only_elsewhere(s))
                        return;
                if (ask(s, approval, call.server, call.method, call.tool, call.args, call.args_len,
                        cg_event_text(e, NULL), &why))
                        return;
                json_object_del(s->shared, key);
                break;
        default:
                cg_approve_explain_verdict(&why, &call, &v, explain_rule);
        }
        cg_log(&s->sv->log, CG_LOG_INFO, "refused %s: %s", shown, why.data);
        if (cg_buf_end(&why, NULL) == 0)
                cg_serve_remember_refusal(s, why.data);
        cg_structured_decided(cg_answer_structured(s->out.answer), call.server, call.tool, "rejected",
                              rule_of(&v, "none"));
        cg_approval_reject(s->session, approval, why.data, NULL);
}

void cg_serve_explain_call(struct cg_serve_session *s, struct cg_pol_call *call, const char *shown,
                           struct cg_buf *b)
{
        bool connection = strcmp(call->method, CG_METHOD_CONNECT) == 0, mute;
        struct cg_approve_verdict v;

        pthread_mutex_lock(&s->sv->lock);
        mute = is_mute(s);
        pthread_mutex_unlock(&s->sv->lock);
        call->again = true; /* it counts in no budget */
        call->args_len = strlen(call->args);
        switch (judge(s, call, &v)) {
        case CG_APPROVE_ACCEPT:
                cg_buf_addf(b, "%s is allowed by %s", shown, rule_of(&v, "all"));
                return;
        case CG_APPROVE_ASK:
                if (connection && !v.policy.rule[0] && cg_approve_base(s->approve) != CG_APPROVE_ASK)
                        cg_buf_adds(b, "host is not on the allow list");
                else if (mute)
                        explain_mute(b, call->server, call->method, call->tool);
                else
                        cg_buf_addf(b, "%s needs the user's approval, which is asked for when it is used",
                                    shown);
                return;
        default:
                cg_approve_explain_verdict(b, call, &v, explain_rule);
        }
}

/* Asks the user about a connection. Returns why that is not possible; NULL: it is done. */
static const char *ask_connection(struct cg_serve_session *s, uint64_t request, const char *json)
{
        cg_approval_share(s->session, request, NULL);
        if (only_elsewhere(s))
                return NULL;
        CG_HOLD(&s->sv->lock);
        if (!s->sv->proto.peer.can_ask)
                return "host is not on the allow list, and this MCP client cannot ask its user (no elicitation)";
        if (start_ask(s, ask_new(CG_SERVE_ASK_CONNECTION, request, "", "", "", json, strlen(json))) < 0)
                return NOT_ASKED;
        return NULL;
}

void cg_serve_connect(struct cg_serve_session *s, struct cg_event *e)
{
        cg_auto_buf struct cg_buf reason = { .max = 65536 };
        struct cg_pol_call call = cg_call_of(e);
        uint64_t request = cg_event_approval(e);
        struct cg_approve_verdict v;
        enum cg_approve_answer answer;
        const char *why = NULL;

        call.cell = s->cell; /* the event names none */
        answer = judge(s, &call, &v);
        if (answer == CG_APPROVE_ACCEPT) {
                cg_approve_explain_verdict(&reason, &call, &v, explain_rule);
                cg_egress_decide(s->session, request, CG_EGRESS_ALLOW_ONCE, reason.data, NULL);
                return;
        }
        if (answer == CG_APPROVE_REFUSE) {
                cg_approve_explain_verdict(&reason, &call, &v, explain_rule);
                cg_egress_decide(s->session, request, CG_EGRESS_DENY_ONCE, reason.data, NULL);
                return;
        }
        if (!v.policy.rule[0] && cg_approve_base(s->approve) != CG_APPROVE_ASK)
                why = "host is not on the allow list";
        else
                why = ask_connection(s, request, call.args);
        if (why)
                cg_egress_decide(s->session, request, CG_EGRESS_DENY_ONCE, why, NULL);
}

void cg_serve_forward(struct cg_serve_session *s, struct cg_event *e)
{
        struct cg_slice object, params;
        const char *json;
        int r = CG_E_PROTO;
        size_t len;

        json = cg_event_json(e, &len);
        if (cg_json_object_slice(json, len, &object, NULL) == 0 && cg_json_find(object, "params", &params)) {
                CG_HOLD(&s->sv->lock);
                r = start_ask(s, ask_new(CG_SERVE_ASK_SERVER, cg_event_approval(e), cg_event_server(e), "",
                                         "", params.p, params.len));
        }
        if (r < 0)
                cg_server_request_decline(s->session, cg_event_approval(e), NULL);
}

bool cg_serve_input(struct cg_serve_session *s, const struct cg_event *e)
{
        cg_auto_free char *prompt = NULL;
        struct cg_slice object, password = CG_SLICE_NONE;
        struct cg_serve_ask *a;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (!s->cell || cg_event_cell(e) != s->cell || cg_json_object_slice(json, len, &object, NULL) < 0)
                return false;
        /* The protocol forbids forms for passwords, and an agent should have none. */
        if (cg_json_find(object, "password", &password) && cg_slice_is(password, "true"))
                return false;
        prompt = span_text(object, "prompt");
        a = ask_new(CG_SERVE_ASK_INPUT, INPUT_NUMBER, "", "", prompt ?: "", "", 0);
        CG_HOLD(&s->sv->lock);
        if (a)
                a->by_agent = !s->sv->proto.peer.can_ask;
        return start_ask(s, a) == 0;
}

void cg_serve_input_closed(struct cg_serve_session *s)
{
        cg_serve_withdraw(s, INPUT_NUMBER);
}

struct cg_serve_ask *cg_serve_agent_input(const struct cg_serve_session *s)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &s->asks, entry)
                if (a->by_agent && !a->answered)
                        break;
        return a;
}

void cg_serve_send_input(struct cg_serve_session *s, struct cg_serve_ask *a, char *text)
{
        a->result = text;
        decide(a, true, "");
        cg_serve_wake(s->work_fd);
}

/* A traceback of the interrupted code often keeps its connection, and so the question, open. */
void cg_serve_refuse_connections(struct cg_serve_session *s)
{
        struct cg_serve_ask *a;

        pthread_mutex_lock(&s->sv->lock);
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->subject != CG_SERVE_ASK_CONNECTION || a->answered)
                        continue;
                take_back(s, a, "the call was cancelled");
                decide(a, false, "the call was cancelled");
        }
        pthread_mutex_unlock(&s->sv->lock);
        cg_serve_settle(s);
}

void cg_serve_refuse_calls(struct cg_serve_session *s, const char *server)
{
        static const char why[] = "another program was registered as this MCP server";
        struct cg_serve_ask *a;

        pthread_mutex_lock(&s->sv->lock);
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->subject != CG_SERVE_ASK_CALL || strcmp(a->server, server) != 0)
                        continue;
                take_back(s, a, why);
                /* an answer that has arrived is about the former program as well */
                decide(a, false, why);
                a->always = a->same = false;
        }
        pthread_mutex_unlock(&s->sv->lock);
        cg_serve_settle(s);
}

void cg_serve_withdraw(struct cg_serve_session *s, uint64_t approval)
{
        struct cg_serve_ask *a;
        CG_HOLD(&s->sv->lock);

        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->approval == approval) {
                        take_back(s, a, "the call was cancelled");
                        end_ask(s, a);
                        break;
                }
        }
        send_waiting(s);
}

/* Questions about our own tools are kept: the worker waits for each of them. */
void cg_serve_drop_asks(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);
        struct cg_serve_ask *a, *next;

        for (a = TAILQ_FIRST(&s->asks); a; a = next) {
                next = TAILQ_NEXT(a, entry);
                if (!a->approval)
                        continue;
                take_back(s, a, "the session has ended");
                end_ask(s, a);
        }
        json_object_clear(s->shared);
}

/* ------------------------------------------------------------------ our own tools */

enum cg_approve_answer cg_serve_judge_own(struct cg_serve_session *s, struct cg_pol_call *call,
                                          struct cg_buf *why)
{
        struct cg_approve_verdict v;
        enum cg_approve_answer answer = judge(s, call, &v);

        if (answer != CG_APPROVE_ASK)
                cg_approve_explain_verdict(why, call, &v, explain_rule);
        return answer;
}

struct cg_serve_ask *cg_serve_ask_own(struct cg_serve_session *s, const struct cg_pol_call *call,
                                      struct cg_buf *why)
{
        return ask(s, 0, call->server, call->method, call->tool, call->args, call->args_len, "", why);
}

bool cg_serve_ask_own_end(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *why)
{
        bool accept = a->answered && a->accept;

        take_back(s, a, "the call was cancelled");
        if (!accept)
                cg_buf_adds(why, a->reason ?: "it was cancelled");
        end_ask(s, a);
        return accept;
}
