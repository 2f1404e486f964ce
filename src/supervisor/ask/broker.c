/* cellgate-supervisor: the tool server, and what it asks the hosts of sessions. */
#include "supervisor/ask/broker.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include "base/installed.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/zlink.h"
#include "config.h"
#include "supervisor/ask/asks.h"
#include "supervisor/core/audit.h"
#include "supervisor/cells/clock.h"
#include "supervisor/limits/denials.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

#define QUICK_MS  10000
#define MAX_QUICK 3

struct broker {
        struct cg_proc proc;
        struct watch pid;
        int lifeline; /* write end; closing it ends the tool server */
        struct cg_zlink link;
        bool link_open;
        bool up;
        int64_t started_ms;
        unsigned quick_deaths;
        int closing;  /* handles whose close callback is still to come */
        bool restart; /* start a successor then */
};

int cg_sup_broker_new(struct sup *s, struct cg_err *err)
{
        s->broker = calloc(1, sizeof(*s->broker));
        if (!s->broker)
                return cg_fail(err, CG_E_NOMEM, "tool server");
        s->broker->lifeline = -1;
        return 0;
}

/* Takes @body. Dropped when there is no tool server: its successor gets all from restart(). */
static void broker_send(struct sup *s, const struct cg_out *out, json_t *body)
{
        struct cg_err err;

        if (!s->broker->link_open) {
                json_decref(body);
                return;
        }
        if (cg_zlink_send_json(&s->broker->link, out, body, &err) < 0 && err.code != CG_E_CLOSED) {
                cg_log(&s->log, CG_LOG_ERROR, "cannot send to the tool server: %s", err.msg);
                /* It would wait for the message; its successor gets all state. */
                cg_closep_(&s->broker->lifeline);
        }
}

/* ------------------------------------------------------------------ approvals */

/* Sends an answer to the question @a of the tool server. Takes @body. */
static void answer(const struct ask *a, uint16_t type, json_t *body)
{
        struct cg_out out = { .type = type, .session = a->session->number, .id = a->number };

        broker_send(a->session->sup, &out, body);
}

static void refuse_call(struct ask *a, bool timed_out, const char *why)
{
        answer(a, CG_BROKER_ASK_DECISION,
               json_pack("{s:b, s:b, s:s}", "accept", false, "timed_out", timed_out, "reason", why));
}

static void call_decided(struct ask *a, const struct decision *d)
{
        answer(a, CG_BROKER_ASK_DECISION,
               json_pack("{s:b, s:b, s:s, s:I, s:I, s:b, s:b}", "accept", d->accept, "timed_out",
                         d->timed_out, "reason", d->reason, "approval", (json_int_t)a->id, "cell",
                         (json_int_t)a->cell, "report", true, "audited", a->session->audit != NULL));
        a->session->jobs.calls += d->accept;
        cg_sup_ask_end(a);
}

static const struct ask_type call_ask = { .kind = ASK_CALL,
                                          .request = CG_HOST_APPROVAL_REQUEST,
                                          .has_raw = true,
                                          .names_cell = true,
                                          .decision = CG_HOST_DECISION,
                                          .decided = call_decided,
                                          .refuse = refuse_call,
                                          .late = "nobody decided in time",
                                          .late_event = "nobody decided in time: the call was refused",
                                          .among = ASK_TOOLSERVER,
                                          .max = CG_MAX_CALLS,
                                          .unread = CG_ASK_UNREAD,
                                          .full = "too many calls wait for a decision" };

/* The result of a call that the host carries out: the raw frame of @m, or the failure @why. */
static void call_result(const struct ask *a, const char *body, struct cg_msg *m, const char *why)
{
        struct broker *b = a->session->sup->broker;
        struct cg_out out = { .type = CG_BROKER_CALL_RESULT,
                              .session = a->session->number,
                              .id = a->number,
                              .body = body,
                              .body_len = strlen(body),
                              .raw = why,
                              .raw_len = cg_strlen(why),
                              .has_raw = !m };
        struct cg_err err;

        if (!b->link_open)
                return;
        if ((m ? cg_zlink_forward(&b->link, &out, m, &err) : cg_zlink_send(&b->link, &out, &err)) < 0 &&
            err.code != CG_E_CLOSED) {
                cg_log(&a->session->sup->log, CG_LOG_ERROR, "cannot send to the tool server: %s", err.msg);
                cg_closep_(&b->lifeline);
        }
}

static void host_call_decided(struct ask *a, const struct decision *d)
{
        if (d->waits || d->accept)
                cg_sup_ask_waits(a, d->waits);
}

static void host_call_returned(struct ask *a, struct cg_msg *m)
{
        cg_auto_free char *body = strdup(cg_msg_body(m, &(size_t){ 0 }));

        call_result(a, body ?: "{}", m, NULL);
        cg_sup_ask_end(a);
}

static void refuse_host_call(struct ask *a, bool timed_out, const char *why)
{
        call_result(a,
                    timed_out ? "{\"status\":\"rejected\",\"kind\":\"approval_timeout\"}"
                              : "{\"status\":\"failed\",\"kind\":\"unavailable\"}",
                    NULL, why);
}

static const struct ask_type at_host_ask = { .kind = ASK_AT_HOST,
                                             .request = CG_HOST_FUNCTION_CALL,
                                             .has_raw = true,
                                             .names_cell = true,
                                             .decision = CG_HOST_DECISION,
                                             .decided = host_call_decided,
                                             .answer = CG_HOST_FUNCTION_RETURN,
                                             .answered = host_call_returned,
                                             .refuse = refuse_host_call,
                                             .late = "nobody decided in time",
                                             .late_event = "nobody decided in time: the call was refused",
                                             .among = ASK_TOOLSERVER,
                                             .max = CG_MAX_CALLS,
                                             .unread = CG_ASK_UNREAD,
                                             .full = "too many calls wait for the host" };

/* Sends the host's answer to a question of an MCP server: @raw, or @body says why there is none. */
static void answer_question(const struct ask *a, json_t *body, const char *raw, size_t len)
{
        struct cg_out out = { .type = CG_BROKER_SERVER_ANSWER,
                              .session = a->session->number,
                              .id = a->number,
                              .raw = raw,
                              .raw_len = len,
                              .has_raw = true };

        broker_send(a->session->sup, &out, body);
}

static void cancel_question(struct ask *a, bool timed_out, const char *why)
{
        answer_question(a, json_pack("{s:s, s:s}", "action", "cancel", "why", why), "", 0);
}

static void question_answered(struct ask *a, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        bool declined = true;
        size_t len;
        const char *raw = cg_msg_raw(m, 0, &len);

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_bool(body, "decline", true, &declined, NULL) < 0 ||
            declined)
                answer_question(a, json_pack("{s:s, s:s}", "action", "decline", "why", "the host declined"),
                                "", 0);
        else
                answer_question(a, json_object(), raw, len);
        cg_sup_ask_end(a);
}

static const struct ask_type question_ask = { .kind = ASK_QUESTION,
                                              .request = CG_HOST_SERVER_REQUEST,
                                              .has_raw = true,
                                              .answer = CG_HOST_SERVER_ANSWER,
                                              .answered = question_answered,
                                              .refuse = cancel_question,
                                              .late = "nobody answered in time",
                                              .late_event = "nobody answered in time",
                                              .among = ASK_QUESTION,
                                              .max = 32,
                                              .unread = CG_ASK_UNREAD,
                                              .full = "too many questions wait for the host" };

bool cg_sup_broker_keep(struct kernel *k, uint64_t call, struct cg_msg *m)
{
        struct broker *b = k->sup->broker;
        char body[64];
        struct cg_out out = {
                .type = CG_BROKER_KEEP, .session = k->session->number, .id = call, .body = body
        };

        out.body_len = (size_t)snprintf(body, sizeof(body), "{\"kernel\":%llu}", (unsigned long long)k->seq);
        return b->link_open && cg_zlink_forward(&b->link, &out, m, NULL) == 0;
}

/* A call that waits for a decision, or a question of an MCP server. */
static void handle_ask(struct session *ss, struct cg_msg *m, const struct ask_type *type)
{
        struct ask question = { .session = ss, .type = type, .number = m->id };
        cg_auto_json json_t *body = NULL;
        int64_t kernel;

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_int(body, "kernel", 0, &kernel, NULL) < 0) {
                type->refuse(&question, false, "the question could not be read");
                return;
        }
        if (!ss->kernel || (int64_t)ss->kernel->seq != kernel)
                return; /* the kernel was replaced, and the tool server has closed the question */
        json_object_del(body, "kernel");
        question.body = CG_STEAL(body);
        question.decided = type == &at_host_ask;
        if (cg_sup_ask(&question, m->frames[1]) && (type == &call_ask || type == &at_host_ask))
                ss->bounds.counted.tool_calls++;
}

/* ------------------------------------------------------------------ sandboxes of MCP servers */

/* @answer: a word of `cellgate sandbox --ask`. */
static void answer_host(const struct ask *a, const char *word, const char *reason)
{
        answer(a, CG_BROKER_EGRESS_DECISION, json_pack("{s:s, s:s*}", "answer", word, "reason", reason));
}

static void refuse_host(struct ask *a, bool timed_out, const char *why)
{
        answer_host(a, "no", why);
}

static void host_decided(struct ask *a, const struct decision *d)
{
        answer_host(a, d->answer, cg_or_null(d->reason));
        cg_sup_ask_end(a);
}

static const struct ask_type host_ask = { .kind = ASK_HOST,
                                          .request = CG_HOST_EGRESS_REQUEST,
                                          .decision = CG_HOST_EGRESS_DECISION,
                                          .decided = host_decided,
                                          .refuse = refuse_host,
                                          .late = "nobody decided in time",
                                          .late_event = "nobody decided in time",
                                          .among = ASK_HOST,
                                          .max = 32,
                                          .unread = CG_ASK_UNREAD,
                                          .full = "too many questions wait for the host" };

/* A host on no list of the server's sandbox. */
static void handle_egress_ask(struct session *ss, struct cg_msg *m)
{
        struct ask question = { .session = ss, .type = &host_ask, .number = m->id };

        if (cg_msg_json(m, &question.body, NULL) < 0)
                refuse_host(&question, false, "the question could not be read");
        else
                cg_sup_ask(&question, NULL);
}

static void handle_denied(struct session *ss, const struct cg_msg *m)
{
        json_t *body = NULL;

        if (cg_msg_json(m, &body, NULL) == 0)
                cg_sup_denial_report_some(ss, cg_sup_running_cell(ss), body, &ss->denials.server);
}

/* Progress of a call that was accepted. Of a host that does not read, it is dropped. */
static void handle_call_progress(struct session *ss, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct cg_out out = { .type = CG_HOST_PROGRESS };
        int64_t kernel, cell;

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_int(body, "kernel", 0, &kernel, NULL) < 0 ||
            cg_json_int(body, "cell", 0, &cell, NULL) < 0)
                return;
        if (!ss->kernel || (int64_t)ss->kernel->seq != kernel || ss->unread > CG_EVENT_WINDOW)
                return;
        json_object_del(body, "kernel");
        json_object_del(body, "cell");
        out.id = (uint64_t)cell;
        cg_sup_event_to_host(ss, &out, CG_STEAL(body), NULL);
}

static void handle_attached(struct session *ss, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        const char *error = NULL;
        struct cg_err err, unread;

        if (!ss->kernel || ss->kernel->seq != m->id)
                return; /* the kernel has been replaced */
        if (cg_msg_json(m, &body, &unread) < 0)
                error = unread.msg;
        else if (json_object_get(body, "error"))
                error = json_string_value(json_object_get(json_object_get(body, "error"), "message"))
                                ?: "it gave no reason";
        if (error && cg_sup_kernel_is_gone(ss->kernel))
                return; /* the watch of its process reports how it ended */
        if (error) {
                cg_fail(&err, CG_E_SYS, "the tool server cannot reach the kernel: %s", error);
                ss->sup->upper.broker->attach_failed(ss->kernel, &err);
        } else {
                ss->sup->upper.broker->attached(ss->kernel);
        }
}

/* ------------------------------------------------------------------ MCP servers */

static void handle_servers_done(struct session *ss, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_SERVERS_ADDED, .session = ss->number, .id = m->id };
        cg_auto_json json_t *body = NULL, *added = NULL;
        struct cg_err err;
        int code, r = cg_msg_json(m, &body, &err);
        json_t *error = json_object_get(body, "error"), *report = json_object_get(body, "report"), *one;
        const char *name, *why = json_string_value(json_object_get(error, "message"));

        if (!m->id) { /* definitions that were sent again, to a new tool server */
                if (error)
                        cg_sup_notice(ss, "the MCP servers could not be started again: %s",
                                      why ?: "no reason given");
                json_object_foreach(report, name, one) {
                        why = json_string_value(json_object_get(one, "error"));
                        if (why)
                                cg_sup_notice(ss, "the MCP server \"%s\" could not be started again: %s",
                                              name, why);
                }
                /* It has the state of the old one: only now may the kernel's calls reach it. */
                if (ss->kernel && ss->kernel->state == K_READY)
                        cg_sup_broker_attach(ss->kernel);
                return;
        }
        added = json_incref(json_object_get(ss->mcp.servers, "pending"));
        ss->mcp.adding = 0;
        /* Also after a failure, so that further servers can be added. */
        json_object_del(ss->mcp.servers, "pending");
        if (r == 0 && (error || !report)) {
                code = (int)json_integer_value(json_object_get(error, "code"));
                if (code >= 0)
                        code = CG_E_PROTO;
                r = cg_fail(&err, code, "%s", why ?: "the tool server gave no report");
        }
        if (r < 0) {
                cg_sup_host_failed(ss->host, ss->number, m->id, &err);
                return;
        }
        json_object_foreach(report, name, one)
                if (json_object_get(one, "error"))
                        json_object_del(added, name); /* the server of that name, if any, stays */
        if (added) {
                json_object_update(json_object_get(ss->mcp.servers, "all"), added);
                ss->sup->upper.broker->added(ss, added);
        }
        cg_sup_host_send(ss->host, &out, json_incref(report));
}

static void send_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request)
{
        struct cg_out out = { .type = CG_BROKER_SERVERS, .session = ss->number, .id = request };
        char lib[160];

        snprintf(lib, sizeof(lib), "%s/lib", ss->dir);
        broker_send(ss->sup, &out,
                    json_pack("{s:o, s:s, s:I, s:s, s:O*}", "servers", servers, "out", lib, "timeout_ms",
                              (json_int_t)timeout_ms, "workspace", ss->workspace, "server_requests",
                              json_object_get(ss->options, "server_requests")));
}

void cg_sup_broker_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request)
{
        json_object_set(ss->mcp.servers, "pending", servers);
        ss->mcp.adding = request;
        send_servers(ss, servers, timeout_ms, request);
}

void cg_sup_broker_attach(struct kernel *k)
{
        struct cg_out out = { .type = CG_BROKER_ATTACH, .session = k->session->number, .id = k->seq };

        broker_send(k->sup, &out, json_pack("{s:s}", "path", k->sockets.tool));
}

void cg_sup_broker_detach(struct sup *s, uint64_t session, bool keep_servers)
{
        struct cg_out out = { .type = CG_BROKER_DETACH, .session = session };

        broker_send(s, &out, json_pack("{s:b}", "keep_servers", keep_servers));
}

/* ------------------------------------------------------------------ its process and wire */

static void report_return(struct session *ss, const struct cg_msg *m)
{
        json_t *body = NULL;

        if (cg_msg_json(m, &body, NULL) < 0)
                return;
        if (!*cg_json_text_of(body, "server")) /* withdrawn: its question was reported as such */
                json_decref(body);
        else
                cg_sup_bus_add(ss, CG_BUS_TOOL_RETURNED,
                               (uint64_t)json_integer_value(json_object_get(body, "cell")), body, "%s.%s: %s",
                               cg_json_text_of(body, "server"), cg_json_text_of(body, "tool"),
                               cg_json_text_of(body, "status"));
}

static void on_broker_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct cg_out progress = { .type = CG_HOST_PROGRESS };
        struct sup *s = z->data;
        cg_auto_json json_t *body = NULL;
        const char *text;
        size_t len;
        struct session *ss;
        struct ask *a = NULL;

        if (m->type == CG_BROKER_TOOLD_READY) {
                cg_log(&s->log, CG_LOG_INFO, "tool server ready after %lld ms",
                       (long long)(cg_now_ms() - s->broker->started_ms));
                return;
        }
        ss = cg_sup_session_by_number(s, m->session);
        if (!ss)
                return; /* the session has ended; the tool server has not read DETACH yet */
        switch (m->type) {
        case CG_BROKER_ATTACHED:
                handle_attached(ss, m);
                break;
        case CG_BROKER_SERVERS_DONE:
                handle_servers_done(ss, m);
                break;
        case CG_BROKER_PROGRESS:
                if (cg_msg_json(m, &body, NULL) == 0 && cg_json_str(body, "text", NULL, &text, NULL) == 0 &&
                    text)
                        cg_sup_event_to_host(ss, &progress,
                                             json_pack("{s:o}", "text", cg_sup_text_json(text)), NULL);
                break;
        case CG_BROKER_SERVER_REQUEST:
                handle_ask(ss, m, &question_ask);
                break;
        case CG_BROKER_DENIED:
                handle_denied(ss, m);
                break;
        case CG_BROKER_EGRESS_ASK:
                handle_egress_ask(ss, m);
                break;
        case CG_BROKER_CALL_PROGRESS:
                handle_call_progress(ss, m);
                break;
        case CG_BROKER_CALL_ENDED:
                text = cg_msg_body(m, &len);
                cg_sup_audit_call_ended(ss, text, len);
                report_return(ss, m);
                ss->jobs.calls -= ss->jobs.calls > 0;
                cg_sup_jobs_answers(ss);
                break;
        case CG_BROKER_NOTICE:
                if (cg_msg_json(m, &body, NULL) == 0 && cg_json_str(body, "text", NULL, &text, NULL) == 0 &&
                    text)
                        cg_sup_event_text(ss, CG_HOST_NOTICE, cg_sup_running_cell(ss), text);
                break;
        case CG_BROKER_ASK:
        case CG_BROKER_CALL:
                if (ss->kernel)
                        cg_sup_kernel_catch_up(ss->kernel);
                handle_ask(ss, m, m->type == CG_BROKER_ASK ? &call_ask : &at_host_ask);
                break;
        case CG_BROKER_ASK_CLOSED:
                if (cg_msg_json(m, &body, NULL) < 0 || cg_json_str(body, "why", "cancelled", &text, NULL) < 0)
                        text = "cancelled";
                a = cg_sup_ask_find(ss, m->id, ASK_TOOLSERVER);
                if (a)
                        cg_sup_ask_close(a, text);
                break;
        case CG_BROKER_KEPT:
                s->upper.broker->kept(ss, m);
                break;
        case CG_BROKER_KERNEL_VIOLATION:
                if (cg_msg_json(m, &body, NULL) < 0 || cg_json_str(body, "what", NULL, &text, NULL) < 0 ||
                    !text)
                        text = "it broke a rule of the tool wire";
                if (ss->kernel && ss->kernel->seq == m->id)
                        cg_sup_kernel_violation(ss->kernel, text);
                break;
        default:
                break;
        }
}

/* The watch of its process reports how it ended. One that broke a rule is made to end. */
static void on_broker_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct sup *s = z->data;

        if (err->code != CG_E_CLOSED)
                cg_log(&s->log, CG_LOG_ERROR, "tool server: %s", err->msg);
        cg_closep_(&s->broker->lifeline);
}

static void restart(struct sup *s);

/* A successor uses the same handles of struct broker: it starts when the last of them is closed. */
static void closed_one(struct sup *s)
{
        if (--s->broker->closing == 0 && s->broker->restart && !s->stopping)
                restart(s);
}

static void on_watch_closed(struct watch *w)
{
        closed_one(w->data);
}

static void on_link_closed(struct cg_zlink *z)
{
        closed_one(z->data);
}

static void close_broker(struct broker *b)
{
        b->closing += cg_sup_watch_close(&b->pid, on_watch_closed);
        if (b->link_open) {
                b->closing++;
                cg_zlink_close(&b->link, on_link_closed);
                b->link_open = false;
        }
        cg_closep_(&b->lifeline);
        b->up = false;
}

/* Starts a successor and sends it all state of the old one; calls in flight have failed. */
static void restart(struct sup *s)
{
        struct cg_err err;

        s->broker->restart = false;
        if (cg_sup_broker_start(s, &err) < 0) {
                cg_sup_stop(s, err.msg);
                return;
        }
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = s->sessions[i];
                json_t *all;
                bool ready;

                if (!ss)
                        continue;
                if (ss->mcp.adding) {
                        json_object_del(ss->mcp.servers, "pending");
                        cg_fail(&err, CG_E_CLOSED,
                                "the tool server ended while it added the MCP servers; it was started again: try again");
                        cg_sup_host_failed(ss->host, ss->number, ss->mcp.adding, &err);
                        ss->mcp.adding = 0;
                }
                ss->jobs.calls = 0;
                cg_sup_asks_close(ss, ASK_TOOLSERVER, "the tool server ended");
                cg_sup_jobs_answers(ss);
                s->upper.broker->unkept(ss);
                all = json_object_get(ss->mcp.servers, "all");
                if (json_object_size(all))
                        send_servers(ss, json_deep_copy(all), 60000, 0);
                ready = ss->kernel && ss->kernel->state == K_READY;
                /* A kernel whose servers are added again is attached after that; its calls wait. */
                if ((ready && !json_object_size(all)) || (ss->kernel && ss->kernel->state == K_BOOTING))
                        cg_sup_broker_attach(ss->kernel);
                cg_sup_notice(
                        ss, "the tool server ended and was started again: tool calls under way have failed");
        }
}

static void on_broker_end(struct watch *w)
{
        struct sup *s = w->data;
        struct broker *b = s->broker;
        char how[64] = "ended";
        int status = 0;

        if (waitpid(b->proc.pid, &status, WNOHANG) != b->proc.pid)
                return;
        cg_proc_describe(status, how, sizeof(how));
        b->proc = CG_PROC_NONE; /* its pidfd belongs to the watch */
        s->children[CG_CHILD_BROKER] = 0;
        /* MCP servers, if the tool server was killed with its guard (mcp/toolserver/guard.c). */
        cg_sup_reap_orphans(s, true);
        b->restart = true;
        b->quick_deaths = cg_now_ms() - b->started_ms < QUICK_MS ? b->quick_deaths + 1 : 0;
        close_broker(b);
        if (s->stopping)
                return;
        cg_log(&s->log, CG_LOG_ERROR, "the tool server ended (%s)", how);
        if (b->quick_deaths >= MAX_QUICK)
                cg_sup_stop(s, "the tool server ended again and again; its log says why");
}

int cg_sup_broker_start(struct sup *s, struct cg_err *err)
{
        struct broker *b = s->broker;
        char level[16];
        const char *argv[] = { "cellgate-toolserver", "--log-level", level, NULL };
        cg_auto_fd int ours = -1, theirs = -1, life = -1;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { s->log.fd, 2 }, { -1, 3 }, { -1, 4 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-toolserver"), argv,
                                                environ, fds, .new_session = true);
        int pair[2];

        b->started_ms = cg_now_ms();
        snprintf(level, sizeof(level), "%d", s->log.level);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return cg_fail_errno(err, "tool server: socketpair");
        ours = pair[0];
        fds[3].fd = theirs = pair[1];
        if (pipe2(pair, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "tool server: pipe");
        fds[4].fd = life = pair[0];
        b->lifeline = pair[1];
        if (cg_proc_spawn(&spec, &b->proc, err) < 0)
                return cg_err_prefix(err, "tool server");
        b->up = true;
        s->children[CG_CHILD_BROKER] = b->proc.pid;
        if (cg_sup_watch_start(s, &b->pid, b->proc.pidfd, on_broker_end, s, err) < 0)
                return -1;
        /* No limit: calls and sessions are bounded, and the tool server is trusted. */
        if (cg_zlink_take(&b->link, &s->loop, cg_steal_fd(&ours), &cg_wire_broker, CG_ROLE_TOOLSERVER,
                          SIZE_MAX, on_broker_message, on_broker_link_end, s, err) < 0)
                return -1;
        b->link_open = true;
        return 0;
}

void cg_sup_broker_stop(struct sup *s)
{
        struct broker *b = s->broker;
        struct cg_proc proc = b->proc;

        cg_closep_(&b->lifeline);
        if (b->up && proc.pidfd >= 0) {
                /* It ends its MCP servers in order, which takes 4 s at most. */
                proc.pidfd = fcntl(proc.pidfd, F_DUPFD_CLOEXEC, 3);
                b->proc = CG_PROC_NONE;
                s->children[CG_CHILD_BROKER] = 0;
                if (cg_proc_wait(&proc, 6000, NULL, NULL) != 0) {
                        cg_proc_end(&proc, true, 0);
                        cg_sup_reap_orphans(s, true);
                }
        }
        close_broker(b);
}
