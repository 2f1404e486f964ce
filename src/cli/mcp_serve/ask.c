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
#include "base/util.h"
#include "cli/common/args.h"

/* The server name of our own tools in approval rules. */
#define OWN "cellgate"
/* Arguments up to this size are shown in full. Clients cut longer ones without saying so. */
#define SHOW_WHOLE ((size_t)16 << 10)
#define SHOW_MAX   ((size_t)8 << 20)

/* The choices of the form. */
#define YES         "approve"
#define ALWAYS      "approve %s from now on" /* cg_approve_scope() */
#define NO          "reject"
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
        if (cg_buf_adds(b, "no approval rule allows ", err) < 0 ||
            cg_approve_name(b, server, method, tool, err) < 0)
                return -1;
        if (!call && cg_approve_is_plain(server))
                return cg_buf_addf(b, err, ": start cellgate mcp serve with --approve '%s:%s'", server,
                                   method);
        if (call && cg_approve_is_plain(server) && cg_approve_is_plain(tool))
                return cg_buf_addf(
                        b, err,
                        ": start cellgate mcp serve with --approve '%s.%s' (patterns such as '%s.*' work too)",
                        server, tool, server);
        return cg_buf_adds(b, ": start cellgate mcp serve with an --approve pattern that matches it", err);
}

/* ------------------------------------------------------------------ questions */

static struct cg_serve_ask *ask_free(struct cg_serve_ask *a)
{
        if (!a)
                return NULL;
        free(a->server);
        free(a->tool);
        free(a->reason);
        free(a);
        return NULL;
}

static struct cg_serve_ask *ask_new(struct cg_serve *sv, uint64_t approval, const char *server,
                                    const char *method, const char *tool)
{
        struct cg_serve_ask *a = calloc(1, sizeof(*a));

        if (!a)
                return NULL;
        a->approval = approval;
        a->server = strdup(server);
        a->tool = strdup(tool);
        a->method = method;
        a->deadline_ms = cg_now_ms() + sv->opts.ask_timeout_ms;
        return a->server && a->tool ? a : ask_free(a);
}

static void unlink_ask(struct cg_serve *sv, const struct cg_serve_ask *ask)
{
        for (struct cg_serve_ask **p = &sv->asks; *p; p = &(*p)->next) {
                if (*p == ask) {
                        *p = ask->next;
                        return;
                }
        }
}

/* The text of a question. @json: the arguments of a call, or the connection. */
static int describe(const struct cg_serve *sv, const struct cg_serve_ask *a, const char *json, size_t len,
                    struct cg_buf *b, struct cg_err *err)
{
        struct cg_call call = { .server = a->server,
                                .tool = a->tool,
                                .method = a->method,
                                .args = json,
                                .args_len = len,
                                .cell = sv->cell };
        bool cut = false;

        if (a->connection) {
                if (cg_buf_adds(b, "Code of the agent wants to connect to\n  ", err) < 0 ||
                    cg_connection_text(json, b, err) < 0)
                        return -1;
                return cg_buf_adds(b, "\nwhich the sandbox's settings neither allow nor deny.\n", err);
        }
        if ((a->approval ? cg_buf_addf(b, err, "Code of the agent wants to %s:\n", cg_call_title(&call))
                         : cg_buf_adds(b, "The agent asks for something that happens outside the sandbox:\n",
                                       err)) < 0 ||
            cg_call_show(&call, 100, len <= SHOW_WHOLE, b, &cut, err) < 0)
                return -1;
        return cut ? cg_buf_adds(b, "The arguments are not shown whole.\n", err) : 0;
}

/* Takes @a, which is among sv->asks when this succeeds (lock held). */
static int send_ask(struct cg_serve *sv, struct cg_serve_ask *a, const char *json, size_t len)
{
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX }, params = { .max = SHOW_MAX * 7 };
        char always[120];
        const char *more = a->connection ? ",\"" HOST_ALWAYS "\",\"" HOST_NEVER "\""
                           : a->approval ? always
                                         : "";

        snprintf(always, sizeof(always), ",\"" ALWAYS "\"", cg_approve_scope(a->method));
        a->id = ++sv->last_ask;
        /* A required choice: some clients accept a form without fields by themselves. */
        if (describe(sv, a, json, len, &message, NULL) < 0 ||
            cg_buf_addf(&params, NULL, "{%s\"message\":",
                        sv->proto.revision >= CG_MCPD_2025_11_25 ? "\"mode\":\"form\"," : "") < 0 ||
            cg_json_quote(&params, message.data, message.len, NULL) < 0 ||
            cg_buf_addf(&params, NULL,
                        ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
                        "\"decision\":{\"type\":\"string\",\"title\":\"Decision\","
                        "\"enum\":[\"" YES "\"%s,\"" NO "\"]},"
                        "\"reason\":{\"type\":\"string\",\"title\":\"Reason\","
                        "\"description\":\"For the agent, when rejected\"}},"
                        "\"required\":[\"decision\"]}}",
                        more) < 0 ||
            cg_serve_request(sv, a->id, "elicitation/create", params.data) < 0) {
                ask_free(a);
                return CG_E_NOMEM;
        }
        a->next = sv->asks;
        sv->asks = a;
        return 0;
}

/* Returns the question (stays ours); NULL: it could not be asked, for the reason in @why. */
static struct cg_serve_ask *ask(struct cg_serve *sv, uint64_t approval, const char *server,
                                const char *method, const char *tool, const char *args, size_t len,
                                struct cg_buf *why)
{
        struct cg_serve_ask *a = NULL;

        pthread_mutex_lock(&sv->lock);
        if (!sv->proto.can_ask) {
                cg_buf_adds(
                        why,
                        "the approval rule says ask, but this MCP client cannot ask its user (no elicitation): ",
                        NULL);
                explain_rule(why, server, method, tool, NULL, NULL);
        } else {
                a = ask_new(sv, approval, server, method, tool);
                if (a && send_ask(sv, a, args, len) < 0)
                        a = NULL;
                if (!a)
                        cg_buf_adds(why, "the question to the user could not be asked: no memory is left",
                                    NULL);
        }
        pthread_mutex_unlock(&sv->lock);
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

void cg_serve_answered(struct cg_serve *sv, const struct cg_mcpd_in *in)
{
        cg_auto_free char *action = NULL, *decision = NULL, *reason = NULL;
        struct cg_slice content = CG_SLICE_NONE;
        struct cg_serve_ask *a = sv->asks;
        char id[24], always[120];

        for (; a; a = a->next) {
                snprintf(id, sizeof(id), "%" PRIu64, a->id);
                if (!a->answered && cg_slice_is(in->id, id))
                        break;
        }
        if (!a) /* to a cancelled question, or to none of ours */
                return;
        a->answered = true;
        cg_serve_wake(sv->work_fd);
        action = span_text(in->result, "action");
        if (!action || strcmp(action, "accept") != 0) {
                bool declined = action && strcmp(action, "decline") == 0;

                a->reason = strdup(in->error.p ? "the MCP client could not ask the user"
                                   : declined  ? "the user rejected it"
                                               : "the user gave no answer");
                return;
        }
        if (cg_json_member(in->result, "content", &content, NULL) < 0)
                content = CG_SLICE_NONE;
        decision = span_text(content, "decision");
        reason = span_text(content, "reason");
        if (a->connection) {
                a->accept = decision && strcmp(decision, HOST_ALWAYS) == 0;
                a->always = a->accept || (decision && strcmp(decision, HOST_NEVER) == 0);
        } else {
                snprintf(always, sizeof(always), ALWAYS, cg_approve_scope(a->method));
                a->accept = a->always = a->approval && decision && strcmp(decision, always) == 0;
        }
        a->accept = a->accept || (decision && strcmp(decision, YES) == 0);
        if (asprintf(&a->reason, "the user rejected it%s%s", reason && *reason ? ": " : "",
                     reason ? reason : "") < 0)
                a->reason = NULL;
}

/* Cancels the request to the client, unless it has been answered (lock held). */
static void take_back(struct cg_serve *sv, const struct cg_serve_ask *a, const char *why)
{
        char params[160];

        if (a->answered)
                return;
        snprintf(params, sizeof(params), "{\"requestId\":%" PRIu64 ",\"reason\":\"%s\"}", a->id, why);
        cg_serve_notify(sv, "notifications/cancelled", params);
}

/*
 * Removes a decided question from the list and returns it; NULL: none. *next_ms: time until the
 * next deadline, or -1.
 */
static struct cg_serve_ask *take_decided(struct cg_serve *sv, int64_t *next_ms)
{
        int64_t now = cg_now_ms();

        *next_ms = -1;
        for (struct cg_serve_ask *a = sv->asks; a; a = a->next) {
                if (!a->answered && a->deadline_ms <= now) {
                        take_back(sv, a, "no answer in time");
                        a->answered = true;
                        a->reason = strdup("the user did not answer in time");
                }
                if (a->answered && a->approval) {
                        unlink_ask(sv, a);
                        return a;
                }
                if (!a->answered && (*next_ms < 0 || a->deadline_ms - now < *next_ms))
                        *next_ms = a->deadline_ms - now;
        }
        return NULL;
}

int64_t cg_serve_settle(struct cg_serve *sv)
{
        struct cg_serve_ask *a;
        int64_t next_ms;

        for (;; ask_free(a)) {
                pthread_mutex_lock(&sv->lock);
                a = take_decided(sv, &next_ms);
                pthread_mutex_unlock(&sv->lock);
                if (!a)
                        return next_ms;
                /* The session may have closed the request meanwhile: errors are ignored. */
                if (a->connection) {
                        enum cg_egress_decision d = a->always ? (a->accept ? CG_EGRESS_ALLOW_SESSION
                                                                           : CG_EGRESS_DENY_SESSION)
                                                              : (a->accept ? CG_EGRESS_ALLOW_ONCE
                                                                           : CG_EGRESS_DENY_ONCE);

                        cg_egress_decide(sv->session, a->approval, d, a->reason, NULL);
                        continue;
                }
                if (a->always) /* failed: asked again */
                        cg_approve_always(sv->opts.kernel.approve, a->server, a->method, a->tool, NULL);
                if (a->accept)
                        cg_approval_accept(sv->session, a->approval, NULL);
                else
                        cg_approval_reject(sv->session, a->approval, a->reason, NULL);
        }
}

void cg_serve_approve(struct cg_serve *sv, struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        const char *server = cg_event_server(e), *method = cg_event_method(e), *tool = cg_call_subject(e),
                   *rule, *args;
        cg_auto_buf struct cg_buf name = { .max = 65536 };
        uint64_t approval = cg_event_approval(e);
        size_t len;

        cg_approve_name(&name, server, method, tool, NULL);
        switch (cg_approve_decide(sv->opts.kernel.approve, server, method, tool, &rule)) {
        case CG_APPROVE_ACCEPT:
                cg_log(&sv->log, CG_LOG_INFO, "accepted %s by rule %s", name.data ?: server,
                       rule ? rule : "all");
                cg_approval_accept(sv->session, approval, NULL);
                return;
        case CG_APPROVE_ASK:
                args = cg_event_arguments(e, &len);
                if (ask(sv, approval, server, method, tool, args, len, &why))
                        return;
                break;
        default:
                explain_rule(&why, server, method, tool, rule, NULL);
        }
        cg_log(&sv->log, CG_LOG_INFO, "refused %s: %s", name.data ?: server, why.data);
        cg_approval_reject(sv->session, approval, why.data, NULL);
}

void cg_serve_connect(struct cg_serve *sv, struct cg_event *e)
{
        const char *json = cg_event_json(e, NULL),
                   *why = "the question to the user could not be asked: no memory is left";
        uint64_t request = cg_event_approval(e);
        struct cg_serve_ask *a = NULL;

        pthread_mutex_lock(&sv->lock);
        if (!sv->proto.can_ask)
                why = "host is not on the allow list, and this MCP client cannot ask its user (no elicitation)";
        else if ((a = ask_new(sv, request, "", "", "")))
                a->connection = true;
        if (a && send_ask(sv, a, json, strlen(json)) < 0)
                a = NULL;
        pthread_mutex_unlock(&sv->lock);
        if (!a)
                cg_egress_decide(sv->session, request, CG_EGRESS_DENY_ONCE, why, NULL);
}

/*
 * A traceback of the interrupted code often keeps its connection open: without this the question
 * would stay open.
 */
void cg_serve_refuse_connections(struct cg_serve *sv)
{
        pthread_mutex_lock(&sv->lock);
        for (struct cg_serve_ask *a = sv->asks; a; a = a->next) {
                if (!a->connection || a->answered)
                        continue;
                take_back(sv, a, "the call was cancelled");
                a->answered = true;
                a->reason = strdup("the call was cancelled");
        }
        pthread_mutex_unlock(&sv->lock);
        cg_serve_settle(sv);
}

void cg_serve_refuse_calls(struct cg_serve *sv, const char *server)
{
        static const char why[] = "another program was registered as this MCP server";

        pthread_mutex_lock(&sv->lock);
        for (struct cg_serve_ask *a = sv->asks; a; a = a->next) {
                if (a->connection || !a->approval || strcmp(a->server, server) != 0)
                        continue;
                take_back(sv, a, why);
                free(a->reason);
                a->reason = strdup(why);
                /* an answer that has arrived is about the former program as well */
                a->accept = a->always = false;
                a->answered = true;
        }
        pthread_mutex_unlock(&sv->lock);
        cg_serve_settle(sv);
}

void cg_serve_withdraw(struct cg_serve *sv, uint64_t approval)
{
        pthread_mutex_lock(&sv->lock);
        for (struct cg_serve_ask *a = sv->asks; a; a = a->next) {
                if (a->approval == approval) {
                        take_back(sv, a, "the call was cancelled");
                        unlink_ask(sv, a);
                        ask_free(a);
                        break;
                }
        }
        pthread_mutex_unlock(&sv->lock);
}

/* Questions about our own tools are kept: the worker waits for each of them. */
void cg_serve_drop_asks(struct cg_serve *sv)
{
        pthread_mutex_lock(&sv->lock);
        for (struct cg_serve_ask **p = &sv->asks; *p;) {
                struct cg_serve_ask *a = *p;

                if (!a->approval) {
                        p = &a->next;
                        continue;
                }
                take_back(sv, a, "the session has ended");
                *p = a->next;
                ask_free(a);
        }
        pthread_mutex_unlock(&sv->lock);
}

/* ------------------------------------------------------------------ our own tools */

bool cg_serve_allowed(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      struct cg_buf *why)
{
        const char *tool = cg_serve_tool_names[job->tool], *rule;
        enum cg_approve_answer answer = cg_approve_decide(sv->opts.kernel.approve, OWN, CG_METHOD_CALL, tool,
                                                          &rule);
        struct cg_serve_ask *a;
        bool accept;

        if (answer == CG_APPROVE_ACCEPT)
                return true;
        if (answer != CG_APPROVE_ASK) {
                explain_rule(why, OWN, CG_METHOD_CALL, tool, rule, NULL);
                return false;
        }
        a = ask(sv, 0, OWN, CG_METHOD_CALL, tool, job->args, strlen(job->args), why);
        if (!a)
                return false;
        pthread_mutex_lock(&sv->lock);
        while (!a->answered && !sv->stop && !job->cancelled) {
                pthread_mutex_unlock(&sv->lock);
                wait_fn(sv, -1, -1); /* also ends the question at its deadline */
                pthread_mutex_lock(&sv->lock);
        }
        accept = a->answered && a->accept;
        take_back(sv, a, "the call was cancelled");
        unlink_ask(sv, a);
        pthread_mutex_unlock(&sv->lock);
        if (!accept)
                cg_buf_adds(why, a->reason ? a->reason : "it was cancelled", NULL);
        ask_free(a);
        return accept;
}
