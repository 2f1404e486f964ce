/*
 * `cellgate mcp serve`: which tool calls may run. By rules; where they say `ask`, by the person at
 * the MCP client, through an elicitation request. Anything but a clear yes in time is a no.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/ceilings.h"
#include "base/text.h"
#include "base/util.h"
#include "cli/common/args.h"

/* The server name of our own tools in approval rules. */
#define OWN "cellgate"
/*
 * Lines of the first form, and of each form of a call that does not fit into it: clients cut long
 * messages without saying so.
 */
#define SHOW_LINES 40
#define PART_LINES 100
#define SHOW_MAX   ((size_t)8 << 20)
/* Other calls whose arguments a question shows. */
#define SHOW_OTHERS 20u
/* The most bytes that a form shows of the prompt of input(). */
#define PROMPT_BYTES 2000
/* A kernel has one input() at a time, which has no number of the session's. */
#define INPUT_NUMBER UINT64_MAX

/* The choices of the form. */
#define YES        "approve"
#define ALWAYS     "approve %s from now on" /* cg_approve_scope() */
#define ALL_BEGINS "approve all "
#define ALL        ALL_BEGINS "%zu calls of this tool that wait"
#define NO         "reject"
/* Instead of the accepting choices, while not all was shown. */
#define VIEW        "view all"
#define HOST_ALWAYS "approve this host in this session"
#define HOST_NEVER  "reject this host in this session"

/* ------------------------------------------------------------------ refusals */

/* The text is read by the code in the kernel, by the agent, and by the user who can add a rule. */
static int explain_rule(struct cg_buf *b, const char *server, const char *method, const char *tool,
                        const char *rule, struct cg_err *err)
{
        bool call = strcmp(method, CG_METHOD_CALL) == 0;

        if (rule || strcmp(method, CG_METHOD_EXEC) == 0)
                return cg_approve_explain(b, server, method, tool, rule, err);
        if (cg_buf_try_adds(b, "no approval rule allows ", err) < 0 ||
            cg_approve_name(b, server, method, tool, err) < 0)
                return -1;
        if (!call && cg_approve_is_plain(server))
                return cg_buf_try_addf(b, err, ": start cellgate mcp serve with --approve '%s:%s'", server,
                                       method);
        if (call && cg_approve_is_plain(server) && cg_approve_is_plain(tool))
                return cg_buf_try_addf(
                        b, err,
                        ": start cellgate mcp serve with --approve '%s.%s' (patterns such as '%s.*' work too)",
                        server, tool, server);
        return cg_buf_try_adds(b, ": start cellgate mcp serve with an --approve pattern that matches it",
                               err);
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
        return a->server && a->tool && a->json ? a : ask_free(a);
}

static void end_ask(struct cg_serve_session *s, struct cg_serve_ask *a)
{
        TAILQ_REMOVE(&s->asks, a, entry);
        ask_free(a);
}

/* True if both are calls of the same tool. */
static bool same_tool(const struct cg_serve_ask *a, const struct cg_serve_ask *b)
{
        return a->subject == CG_SERVE_ASK_CALL && b->subject == CG_SERVE_ASK_CALL &&
               strcmp(a->method, CG_METHOD_CALL) == 0 && strcmp(b->method, CG_METHOD_CALL) == 0 &&
               strcmp(a->server, b->server) == 0 && strcmp(a->tool, b->tool) == 0;
}

/* The arguments of the other calls that wait, a line each. Returns their number. */
static int add_others(struct cg_serve_session *s, struct cg_serve_ask *ask, struct cg_buf *b, size_t *n,
                      struct cg_err *err)
{
        const struct cg_serve_ask *a;

        *n = 0;
        ask->all_until = 0;
        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a == ask || a->answered || !same_tool(a, ask))
                        continue;
                ask->all_until = a->approval > ask->all_until ? a->approval : ask->all_until;
                if (++*n == 1 &&
                    cg_buf_try_adds(b, "More calls of this tool wait, with these arguments:\n", err) < 0)
                        return -1;
                if (*n <= SHOW_OTHERS && cg_call_line(a->json, 100, b, err) < 0)
                        return -1;
        }
        return *n > SHOW_OTHERS ? cg_buf_try_addf(b, err, "  and %zu that are not shown\n", *n - SHOW_OTHERS)
                                : 0;
}

/* The text of a question, or of its part. Sets a->all_shown. */
static int describe(const struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *b,
                    struct cg_err *err)
{
        struct cg_call_view view = { .width = 100,
                                     .lines = a->part ? PART_LINES : SHOW_LINES,
                                     .part = a->part };
        struct cg_call call = { .server = a->server,
                                .tool = a->tool,
                                .method = a->method,
                                .args = a->json,
                                .args_len = a->len,
                                .cell = s->cell };

        if (a->subject == CG_SERVE_ASK_CONNECTION) {
                a->all_shown = true;
                if (cg_buf_try_adds(b, "Code of the agent wants to connect to\n  ", err) < 0 ||
                    cg_connection_text(a->json, b, err) < 0)
                        return -1;
                return cg_buf_try_adds(b, "\nwhich the sandbox's settings neither allow nor deny.\n", err);
        }
        if ((a->approval
                     ? cg_buf_try_addf(b, err, "Code of the agent wants to %s:\n", cg_call_title(&call))
                     : cg_buf_try_adds(b, "The agent asks for something that happens outside the sandbox:\n",
                                       err)) < 0 ||
            cg_call_show(&call, &view, b, err) < 0)
                return -1;
        a->all_shown = view.last;
        if (a->part)
                return cg_buf_try_addf(b, err, "Part %zu of %zu.\n", a->part, view.parts);
        if (view.last)
                return 0;
        return cg_buf_try_adds(b,
                               "Not all is shown. \"" VIEW
                               "\" shows it in parts, and after the last one it can be"
                               " approved.\n",
                               err);
}

/* May "from now on" be the answer? */
static bool may_last(const struct cg_serve_ask *a)
{
        return a->subject == CG_SERVE_ASK_CALL && cg_approve_may_last(a->method, a->tool);
}

/* The choices, as items of a JSON array. */
static int add_choices(const struct cg_serve_ask *a, size_t others, struct cg_buf *b)
{
        cg_buf_try_adds(b, a->all_shown ? "\"" YES "\"," : "\"" VIEW "\",", NULL);
        if (a->all_shown && others)
                cg_buf_try_addf(b, NULL, "\"" ALL "\",", others + 1);
        if (a->subject == CG_SERVE_ASK_CONNECTION)
                cg_buf_try_adds(b, "\"" HOST_ALWAYS "\",\"" HOST_NEVER "\",", NULL);
        else if (a->all_shown && may_last(a))
                cg_buf_try_addf(b, NULL, "\"" ALWAYS "\",", cg_approve_scope(a->method));
        return cg_buf_try_adds(b, "\"" NO "\"", NULL);
}

static const char *form_mode(const struct cg_serve_session *s)
{
        return s->sv->proto.peer.modes ? "\"mode\":\"form\"," : "";
}

/* Our own question, as params of elicitation/create. */
static int own_form(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *params)
{
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX };
        size_t others = 0;

        if (describe(s, a, &message, NULL) < 0 ||
            (a->all_shown && add_others(s, a, &message, &others, NULL) < 0) ||
            cg_buf_try_addf(&message, NULL, "Without an answer within %lld s it is refused.\n",
                            (long long)s->sv->opts.ask_timeout_ms / 1000) < 0 ||
            cg_buf_try_addf(params, NULL, "{%s\"message\":", form_mode(s)) < 0 ||
            cg_json_try_quote(params, message.data, message.len, NULL) < 0 ||
            cg_buf_try_adds(params,
                            ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
                            "\"decision\":{\"type\":\"string\",\"title\":\"Decision\",\"enum\":[",
                            NULL) < 0 ||
            add_choices(a, others, params) < 0)
                return -1;
        /* A required choice: some clients accept a form without fields by themselves. */
        return cg_buf_try_adds(params,
                               "]},\"reason\":{\"type\":\"string\",\"title\":\"Reason\","
                               "\"description\":\"For the agent, when rejected\"}},"
                               "\"required\":[\"decision\"]}}",
                               NULL);
}

/* A server's question: its params, with a message that says who asks. */
static int server_form(const struct cg_serve_ask *a, struct cg_buf *params)
{
        static const char *const members[] = { "mode", "requestedSchema", "url", "elicitationId" };
        struct cg_slice object = { a->json, a->len }, v;
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX };

        if (cg_buf_try_adds(&message, "The MCP server ", NULL) < 0 ||
            cg_name_render(&message, a->server, NULL) < 0 || cg_buf_try_adds(&message, " asks: ", NULL) < 0)
                return -1;
        if (cg_json_find(object, "message", &v) && cg_json_string(v, &message, NULL) < 0)
                return -1;
        if (cg_buf_try_adds(params, "{\"message\":", NULL) < 0 ||
            cg_json_try_quote(params, message.data, message.len, NULL) < 0)
                return -1;
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++) {
                if (cg_json_find(object, members[i], &v) &&
                    (cg_buf_try_addf(params, NULL, ",\"%s\":", members[i]) < 0 ||
                     cg_buf_try_add(params, v.p, v.len, NULL) < 0))
                        return -1;
        }
        return cg_buf_try_adds(params, "}", NULL);
}

/*
 * input() of the cell. The prompt is the agent's or worse, and forms show it to a person who trusts
 * cellgate: the text says whose it is.
 */
static int input_form(const struct cg_serve_session *s, const struct cg_serve_ask *a, struct cg_buf *params)
{
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX };

        if (cg_buf_try_adds(&message,
                            "Code of the agent waits for text, which it and the agent can read: enter no"
                            " passwords. Nothing is approved by it. Its prompt:\n",
                            NULL) < 0 ||
            cg_text_try_render(&message, a->tool, strlen(a->tool), PROMPT_BYTES, NULL) < 0 ||
            cg_buf_try_addf(params, NULL, "{%s\"message\":", form_mode(s)) < 0 ||
            cg_json_try_quote(params, message.data, message.len, NULL) < 0)
                return -1;
        return cg_buf_try_adds(params,
                               ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
                               "\"text\":{\"type\":\"string\",\"title\":\"Text\"}},\"required\":[\"text\"]}}",
                               NULL);
}

int cg_serve_form(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *params)
{
        if (a->subject == CG_SERVE_ASK_SERVER)
                return server_form(a, params);
        if (a->subject == CG_SERVE_ASK_INPUT)
                return input_form(s, a, params);
        return own_form(s, a, params);
}

/* Sends a question to the client, or leaves it to the result of a call (lock held). */
static int send_ask(struct cg_serve_session *s, struct cg_serve_ask *a)
{
        cg_auto_buf struct cg_buf params = { .max = SHOW_MAX * 7 };

        a->deadline_ms = cg_now_ms() + s->sv->opts.ask_timeout_ms;
        a->id = 0;
        if (a->by_result) {
                cg_serve_wake(s->sv->io_fd);
                return 0;
        }
        a->id = ++s->sv->last_ask;
        if (cg_serve_form(s, a, &params) < 0 ||
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
        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (open == CG_SERVE_MAX_OPEN)
                        return;
                if (a->id || a->answered || a->by_agent || a->by_result)
                        continue;
                open++;
                if (send_ask(s, a) < 0)
                        decide(a, false, "the question to the user could not be asked: no memory is left");
        }
}

void cg_serve_ask_again(struct cg_serve_session *s)
{
        struct cg_serve_ask *a;

        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->id && !a->answered && !a->by_result && send_ask(s, a) < 0)
                        decide(a, false, "the question to the user could not be asked: no memory is left");
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

/* Returns the question (stays ours); NULL: it could not be asked, for the reason in @why. */
static struct cg_serve_ask *ask(struct cg_serve_session *s, uint64_t approval, const char *server,
                                const char *method, const char *tool, const char *args, size_t len,
                                struct cg_buf *why)
{
        struct cg_serve_ask *a = NULL;

        pthread_mutex_lock(&s->sv->lock);
        if (!s->sv->proto.peer.can_ask) {
                cg_buf_try_adds(
                        why,
                        "the approval rule says ask, but this MCP client cannot ask its user (no elicitation): ",
                        NULL);
                explain_rule(why, server, method, tool, NULL, NULL);
        } else {
                a = ask_new(approval ? CG_SERVE_ASK_CALL : CG_SERVE_ASK_OWN, approval, server, method, tool,
                            args, len);
                if (start_ask(s, a) < 0) {
                        a = NULL;
                        cg_buf_try_adds(why, "the question to the user could not be asked: no memory is left",
                                        NULL);
                }
        }
        pthread_mutex_unlock(&s->sv->lock);
        return a;
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

        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->answered || a->approval > ask->all_until || !same_tool(a, ask))
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
        cg_auto_free char *why = NULL;
        char always[120];

        if (!a->all_shown && strcmp(decision, VIEW) == 0) {
                a->part++;
                if (send_ask(s, a) == 0)
                        return false;
        }
        if (asprintf(&why, "the user rejected it%s%s", reason && *reason ? ": " : "", reason ? reason : "") <
            0)
                why = NULL;
        decide(a, a->all_shown && strcmp(decision, YES) == 0, why ? why : "the user rejected it");
        if (!a->all_shown)
                return true;
        if (a->subject == CG_SERVE_ASK_CONNECTION) {
                a->always = strcmp(decision, HOST_ALWAYS) == 0 || strcmp(decision, HOST_NEVER) == 0;
                a->accept = a->accept || strcmp(decision, HOST_ALWAYS) == 0;
        } else if (a->subject == CG_SERVE_ASK_CALL) {
                snprintf(always, sizeof(always), ALWAYS, cg_approve_scope(a->method));
                a->always = may_last(a) && strcmp(decision, always) == 0;
                a->accept = a->accept || a->always;
                if (a->all_until && strncmp(decision, ALL_BEGINS, strlen(ALL_BEGINS)) == 0) {
                        a->accept = true;
                        accept_all(s, a);
                }
        }
        return true;
}

/* @failed: the client could not ask. */
static void answer_ask(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_slice result,
                       bool failed)
{
        cg_auto_free char *action = span_text(result, "action"), *decision = NULL, *reason = NULL;
        struct cg_slice content = CG_SLICE_NONE;
        struct cg_serve_ask *other;

        s->used_ms = cg_now_ms();
        cg_serve_wake(s->work_fd);
        if (a->subject == CG_SERVE_ASK_SERVER) {
                decide(a, false, "");
                a->result = action ? strndup(result.p, result.len) : NULL;
                return;
        }
        if (a->subject == CG_SERVE_ASK_INPUT) {
                if (action && strcmp(action, "accept") == 0 &&
                    cg_json_member(result, "content", &content, NULL) == 0)
                        a->result = span_text(content, "text");
                decide(a, a->result != NULL, "the user gave none");
                return;
        }
        if (!action || strcmp(action, "accept") != 0) {
                bool declined = action && strcmp(action, "decline") == 0;

                decide(a, false,
                       failed     ? "the MCP client could not ask the user"
                       : declined ? "the user rejected it"
                                  : "the user gave no answer");
                a->by_user = declined;
        } else {
                if (cg_json_member(result, "content", &content, NULL) < 0)
                        content = CG_SLICE_NONE;
                decision = span_text(content, "decision");
                reason = span_text(content, "reason");
                if (!read_choice(s, a, decision ? decision : "", reason))
                        return;
                a->by_user = !a->accept;
        }
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

        TAILQ_FOREACH(a, &s->asks, entry)
        {
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

        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->id == id && !a->answered && a->by_result) {
                        answer_ask(s, a, result, false);
                        return;
                }
        }
}

/*
 * Removes a decided question from the list and returns it; NULL: none. *next_ms: time until the
 * next deadline, or -1.
 */
static struct cg_serve_ask *take_decided(struct cg_serve_session *s, int64_t *next_ms)
{
        int64_t now = cg_now_ms();
        struct cg_serve_ask *a;

        *next_ms = -1;
        TAILQ_FOREACH(a, &s->asks, entry)
        {
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
        enum cg_egress_decision d = a->accept ? CG_EGRESS_ALLOW_ONCE : CG_EGRESS_DENY_ONCE;

        if (a->always)
                d = a->accept ? CG_EGRESS_ALLOW_SESSION : CG_EGRESS_DENY_SESSION;
        cg_egress_decide(s->session, a->approval, d, a->reason, NULL);
}

static const char *shared_key(uint64_t approval, char ret[24])
{
        snprintf(ret, 24, "%" PRIu64, approval);
        return ret;
}

void cg_serve_decided_elsewhere(struct cg_serve_session *s, uint64_t approval, const char *why)
{
        cg_auto_json json_t *call = NULL;
        const char *server, *tool, *decision = NULL;
        char key[24];

        call = json_incref(json_object_get(s->shared, shared_key(approval, key)));
        json_object_del(s->shared, key);
        if (strncmp(why, "accepted in another terminal", 28) == 0)
                decision = "accepted";
        else if (strncmp(why, "refused in another terminal", 27) == 0)
                decision = "rejected";
        if (decision && json_unpack(call, "[ss]", &server, &tool) == 0)
                cg_structured_decided(cg_answer_structured(s->answer), server, tool, decision, "terminal");
}

static void settle_call(struct cg_serve_session *s, const struct cg_serve_ask *a)
{
        struct cg_pol_call call = {
                .server = a->server, .method = a->method, .tool = a->tool, .args = a->json, .args_len = a->len
        };
        const char *refused = a->timed_out ? "expired" : "rejected";
        char key[24];

        json_object_del(s->shared, shared_key(a->approval, key));
        cg_structured_decided(cg_answer_structured(s->answer), a->server, a->tool,
                              a->accept ? "accepted" : refused, NULL);
        if (a->always) /* failed: asked again */
                cg_approve_always(s->approve, a->server, a->method, a->tool, NULL);
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
        const char *text = a->accept ? a->result : NULL;

        if (!text && s->answer)
                cg_answer_note(s->answer, "[cellgate: input() got no text: %s]",
                               a->timed_out ? "nobody answered in time" : a->reason);
        cg_session_input(s->session, text, text ? strlen(text) : 0, NULL);
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

static enum cg_approve_answer judge(struct cg_serve_session *s, struct cg_pol_call *call,
                                    struct cg_approve_verdict *v)
{
        char client[sizeof(s->sv->proto.peer.client)];
        enum cg_approve_answer answer;

        pthread_mutex_lock(&s->sv->lock);
        memcpy(client, s->sv->proto.peer.client, sizeof(client));
        cg_approve_set_mute(s->approve, !s->sv->proto.peer.can_ask && !s->sv->opts.kernel.decide_elsewhere);
        pthread_mutex_unlock(&s->sv->lock);
        call->client = client[0] ? client : NULL;
        pthread_mutex_lock(&s->sv->policy);
        answer = cg_approve_judge(s->approve, call, v);
        pthread_mutex_unlock(&s->sv->policy);
        return answer;
}

static const char *rule_of(const struct cg_approve_verdict *v, const char *none)
{
        return v->policy.rule[0] ? v->policy.rule : v->rule ?: none;
}

/* True if only other terminals can be asked: the question stays open until they decide. */
static bool only_elsewhere(struct cg_serve_session *s)
{
        bool can_ask;

        pthread_mutex_lock(&s->sv->lock);
        can_ask = s->sv->proto.peer.can_ask;
        pthread_mutex_unlock(&s->sv->lock);
        return !can_ask && s->sv->opts.kernel.decide_elsewhere;
}

void cg_serve_approve(struct cg_serve_session *s, struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 }, name = { .max = 65536 };
        struct cg_pol_call call = cg_call_of(e);
        uint64_t approval = cg_event_approval(e);
        struct cg_approve_verdict v;
        char key[24];

        cg_approve_name(&name, call.server, call.method, call.tool, NULL);
        switch (judge(s, &call, &v)) {
        case CG_APPROVE_ACCEPT:
                cg_log(&s->sv->log, CG_LOG_INFO, "accepted %s by %s%s", name.data ?: call.server,
                       v.policy.rule[0] ? "" : "rule ", rule_of(&v, "all"));
                cg_structured_decided(cg_answer_structured(s->answer), call.server, call.tool, "accepted",
                                      rule_of(&v, "all"));
                cg_approval_accept(s->session, approval, NULL);
                return;
        case CG_APPROVE_ASK:
                cg_approval_share(s->session, approval, NULL);
                json_object_set_new(s->shared, shared_key(approval, key),
                                    json_pack("[ss]", call.server, call.tool));
                if (only_elsewhere(s))
                        return;
                if (ask(s, approval, call.server, call.method, call.tool, call.args, call.args_len, &why))
                        return;
                json_object_del(s->shared, key);
                break;
        default:
                cg_approve_explain_verdict(&why, &call, &v, explain_rule, NULL);
        }
        cg_log(&s->sv->log, CG_LOG_INFO, "refused %s: %s", name.data ?: call.server, why.data);
        cg_structured_decided(cg_answer_structured(s->answer), call.server, call.tool, "rejected",
                              rule_of(&v, "none"));
        cg_approval_reject(s->session, approval, why.data, NULL);
}

/* Asks the user about a connection. Returns why that is not possible; NULL: it is done. */
static const char *ask_connection(struct cg_serve_session *s, uint64_t request, const char *json)
{
        const char *why = NULL;

        cg_approval_share(s->session, request, NULL);
        if (only_elsewhere(s))
                return NULL;
        pthread_mutex_lock(&s->sv->lock);
        if (!s->sv->proto.peer.can_ask)
                why = "host is not on the allow list, and this MCP client cannot ask its user (no elicitation)";
        else if (start_ask(s, ask_new(CG_SERVE_ASK_CONNECTION, request, "", "", "", json, strlen(json))) < 0)
                why = "the question to the user could not be asked: no memory is left";
        pthread_mutex_unlock(&s->sv->lock);
        return why;
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
                cg_egress_decide(s->session, request, CG_EGRESS_ALLOW_ONCE, NULL, NULL);
                return;
        }
        if (answer == CG_APPROVE_ASK && !v.policy.rule[0] && cg_approve_base(s->approve) != CG_APPROVE_ASK)
                why = "host is not on the allow list";
        else if (answer == CG_APPROVE_ASK)
                why = ask_connection(s, request, call.args);
        else if (cg_approve_explain_verdict(&reason, &call, &v, explain_rule, NULL) == 0)
                why = reason.data;
        if (why || answer != CG_APPROVE_ASK)
                cg_egress_decide(s->session, request, CG_EGRESS_DENY_ONCE, why, NULL);
}

void cg_serve_forward(struct cg_serve_session *s, struct cg_event *e)
{
        struct cg_slice object, params;
        const char *json;
        size_t len;
        int r;

        json = cg_event_json(e, &len);
        r = cg_json_object_slice(json, len, &object, NULL);
        if (r == 0 && !cg_json_find(object, "params", &params))
                r = CG_E_PROTO;
        pthread_mutex_lock(&s->sv->lock);
        if (r == 0)
                r = start_ask(s, ask_new(CG_SERVE_ASK_SERVER, cg_event_approval(e), cg_event_server(e), "",
                                         "", params.p, params.len));
        pthread_mutex_unlock(&s->sv->lock);
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
        int r;

        json = cg_event_json(e, &len);
        if (!s->cell || cg_event_cell(e) != s->cell || cg_json_object_slice(json, len, &object, NULL) < 0)
                return false;
        /* The protocol forbids forms for passwords, and an agent should have none. */
        if (cg_json_find(object, "password", &password) && cg_slice_is(password, "true"))
                return false;
        prompt = span_text(object, "prompt");
        a = ask_new(CG_SERVE_ASK_INPUT, INPUT_NUMBER, "", "", prompt ? prompt : "", "", 0);
        pthread_mutex_lock(&s->sv->lock);
        if (a)
                a->by_agent = !s->sv->proto.peer.can_ask;
        r = start_ask(s, a);
        pthread_mutex_unlock(&s->sv->lock);
        return r == 0;
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

/*
 * A traceback of the interrupted code often keeps its connection open: without this the question
 * would stay open.
 */
void cg_serve_refuse_connections(struct cg_serve_session *s)
{
        struct cg_serve_ask *a;

        pthread_mutex_lock(&s->sv->lock);
        TAILQ_FOREACH(a, &s->asks, entry)
        {
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
        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->subject != CG_SERVE_ASK_CALL || strcmp(a->server, server) != 0)
                        continue;
                take_back(s, a, why);
                /* an answer that has arrived is about the former program as well */
                decide(a, false, why);
                a->always = false;
        }
        pthread_mutex_unlock(&s->sv->lock);
        cg_serve_settle(s);
}

void cg_serve_withdraw(struct cg_serve_session *s, uint64_t approval)
{
        struct cg_serve_ask *a;

        pthread_mutex_lock(&s->sv->lock);
        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->approval == approval) {
                        take_back(s, a, "the call was cancelled");
                        end_ask(s, a);
                        break;
                }
        }
        send_waiting(s);
        pthread_mutex_unlock(&s->sv->lock);
}

/* Questions about our own tools are kept: the worker waits for each of them. */
void cg_serve_drop_asks(struct cg_serve_session *s)
{
        struct cg_serve_ask *a, *next;

        pthread_mutex_lock(&s->sv->lock);
        for (a = TAILQ_FIRST(&s->asks); a; a = next) {
                next = TAILQ_NEXT(a, entry);
                if (!a->approval)
                        continue;
                take_back(s, a, "the session has ended");
                end_ask(s, a);
        }
        pthread_mutex_unlock(&s->sv->lock);
        json_object_clear(s->shared);
}

/* ------------------------------------------------------------------ our own tools */

bool cg_serve_allowed(struct cg_serve_session *s, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      struct cg_buf *why)
{
        const char *tool = cg_serve_tool_defs[job->tool].name;
        struct cg_pol_call call = { .server = OWN,
                                    .method = CG_METHOD_CALL,
                                    .tool = tool,
                                    .args = job->args,
                                    .args_len = strlen(job->args) };
        struct cg_approve_verdict v;
        enum cg_approve_answer answer = judge(s, &call, &v);
        struct cg_serve_ask *a;
        bool accept;

        if (answer == CG_APPROVE_ACCEPT)
                return true;
        if (answer != CG_APPROVE_ASK) {
                cg_approve_explain_verdict(why, &call, &v, explain_rule, NULL);
                return false;
        }
        a = ask(s, 0, OWN, CG_METHOD_CALL, tool, job->args, strlen(job->args), why);
        if (!a)
                return false;
        pthread_mutex_lock(&s->sv->lock);
        while (!a->answered && !s->sv->stop && !job->cancelled && !job->ended_by) {
                pthread_mutex_unlock(&s->sv->lock);
                wait_fn(s, -1, -1); /* also ends the question at its deadline */
                pthread_mutex_lock(&s->sv->lock);
        }
        accept = a->answered && a->accept;
        take_back(s, a, "the call was cancelled");
        TAILQ_REMOVE(&s->asks, a, entry);
        pthread_mutex_unlock(&s->sv->lock);
        if (!accept)
                cg_buf_try_adds(why, a->reason ? a->reason : "it was cancelled", NULL);
        ask_free(a);
        return accept;
}
