/*
 * cellgate-supervisor: functions of the host that cells call.
 *
 * A kernel sends these calls on a connection to the supervisor, which speaks the tool wire. The
 * tool server writes the modules and keeps large results, but takes no part in calls. The kernel is
 * hostile: it names a function, and everything else is decided here and by the host, which gets the
 * exact bytes of the arguments. Each call gets exactly one CALL_RESULT.
 */
#include "supervisor/ask/functions.h"

#include <stdarg.h>
#include "base/call_args.h"
#include "base/json.h"
#include "base/json_text.h"
#include "supervisor/ask/asks.h"
#include "supervisor/ask/broker.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/state.h"

/*
 * Bytes of results that a kernel has not read: two of the largest. What comes on top becomes a
 * short failure. Above half of it the kernel's calls wait.
 */
#define MAX_QUEUE ((size_t)2 * CG_MAX_TOOL_RESULT)

/* A result that the tool server may keep; the kernel waits for what it gets in its place. */
struct large_result {
        LIST_ENTRY(large_result) entry;
        uint64_t call;
        struct cg_frame *frame;
};

/* ------------------------------------------------------------------ results */

/* Sends the result of @call: the raw frame of @m, which is moved out of it, or else @text. */
static void answer(struct kernel *k, uint64_t call, const char *status, const char *kind, struct cg_msg *m,
                   const char *text)
{
        char body[96];
        struct cg_out out = { .type = CG_TOOL_CALL_RESULT, .id = call, .body = body, .has_raw = true };
        struct cg_err err;
        int r;

        if (!k || !k->links.calls_open)
                return;
        out.body_len = (size_t)snprintf(body, sizeof(body), "{\"status\":\"%.20s\",\"kind\":\"%.20s\"}",
                                        status, kind);
        if (m) {
                r = cg_zlink_forward(&k->links.calls, &out, m, &err);
        } else {
                out.raw = text;
                out.raw_len = strlen(text);
                r = cg_zlink_send(&k->links.calls, &out, &err);
        }
        if (r == CG_TIMEOUT && m)
                answer(k, call, "failed", "too_large", NULL,
                       "the result could not be delivered: too many others have not been read yet");
        else if (r == CG_TIMEOUT)
                cg_sup_kernel_violation(k, "it does not read the results of its calls");
        else if (r < 0 && r != CG_E_CLOSED)
                cg_sup_kernel_violation(k, err.msg);
}

static __attribute__((format(printf, 3, 4))) void fail(struct kernel *k, uint64_t call, const char *fmt, ...)
{
        char text[2048];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        answer(k, call, "failed", "unavailable", NULL, text);
}

static void answer_whole(struct kernel *k, struct large_result *r)
{
        cg_auto_msg struct cg_msg m = { .n_frames = 2, .frames = { NULL, r->frame } };

        LIST_REMOVE(r, entry);
        answer(k, r->call, "ok", "", &m, NULL);
        free(r);
}

/* Gives a large result to the tool server. False: it goes to the kernel as a whole. */
static bool keep(struct kernel *k, uint64_t call, struct cg_msg *m)
{
        struct large_result *r = malloc(sizeof(*r));

        if (!r)
                return false;
        *r = (struct large_result){ .call = call, .frame = cg_frame_ref(m->frames[1]) };
        if (!cg_sup_broker_keep(k, call, m)) {
                cg_frame_unref(r->frame);
                free(r);
                return false;
        }
        LIST_INSERT_HEAD(&k->links.large_results, r, entry);
        return true;
}

static void returned(struct ask *a, struct cg_msg *m)
{
        struct session *ss = a->session;
        uint64_t call = a->number;
        struct cg_err err;
        size_t len;
        const char *result = cg_msg_raw(m, 0, &len);

        cg_sup_ask_end(a);
        if (len > CG_KEPT_RESULT && ss->kernel && keep(ss->kernel, call, m))
                return;
        /* The tool server checks larger ones, which take longer. */
        if (len <= CG_KEPT_RESULT && cg_json_check_object(result, len, CG_JSON_DEPTH, &err) < 0) {
                char text[sizeof(err.msg) + 64];

                snprintf(text, sizeof(text), "the host's result cannot be read: %s", err.msg);
                answer(ss->kernel, call, "failed", "protocol", NULL, text);
                return;
        }
        answer(ss->kernel, call, "ok", "", m, NULL);
}

void cg_sup_functions_kept(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct kernel *k = ss->kernel;
        const char *status, *kind;
        struct large_result *r = k ? LIST_FIRST(&k->links.large_results) : NULL;
        int64_t number;

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_int(body, "kernel", 0, &number, NULL) < 0 ||
            cg_json_str(body, "status", "", &status, NULL) < 0 ||
            cg_json_str(body, "kind", "", &kind, NULL) < 0)
                return;
        while (r && r->call != m->id)
                r = LIST_NEXT(r, entry);
        if (!r || (int64_t)k->seq != number)
                return; /* the kernel was replaced */
        if (strcmp(status, "whole") == 0) {
                answer_whole(k, r);
                return;
        }
        LIST_REMOVE(r, entry);
        cg_frame_unref(r->frame);
        free(r);
        answer(k, m->id, status, kind, m, NULL);
}

void cg_sup_functions_unkept(struct session *ss)
{
        while (ss->kernel && !LIST_EMPTY(&ss->kernel->links.large_results))
                answer_whole(ss->kernel, LIST_FIRST(&ss->kernel->links.large_results));
}

/* ------------------------------------------------------------------ questions to the host */

static void refuse(struct ask *a, bool timed_out, const char *why)
{
        const char *kind = "unavailable", *status = "failed";

        if (timed_out && a->type->kind == ASK_MAY_RUN) {
                kind = "approval_timeout";
                status = "rejected";
        } else if (timed_out) {
                kind = "timeout";
        }
        answer(a->session->kernel, a->number, status, kind, NULL, why);
}

static void rejected(struct ask *a, const struct decision *d)
{
        answer(a->session->kernel, a->number, "rejected", d->timed_out ? "approval_timeout" : "rejected",
               NULL, d->reason);
        cg_sup_ask_end(a);
}

/* The host may also reject a call that it was given to carry out. */
static void function_decided(struct ask *a, const struct decision *d)
{
        if (!d->accept)
                rejected(a, d);
}

static const struct ask_type function_ask = { .kind = ASK_FUNCTION,
                                              .request = CG_HOST_FUNCTION_CALL,
                                              .has_raw = true,
                                              .names_cell = true,
                                              .decision = CG_HOST_DECISION,
                                              .decided = function_decided,
                                              .answer = CG_HOST_FUNCTION_RETURN,
                                              .answered = returned,
                                              .refuse = refuse,
                                              .late = "the function did not return in time",
                                              .late_event = "the function did not return in time",
                                              .max = SIZE_MAX,
                                              .unread = CG_ASK_UNREAD };

static void may_run_decided(struct ask *a, const struct decision *d)
{
        struct cg_frame *args = CG_STEAL(a->args);

        json_object_del(a->body, "method");
        if (d->accept)
                cg_sup_ask_next(a, &function_ask, args);
        else
                rejected(a, d);
        cg_frame_unref(args);
}

static const struct ask_type may_run_ask = { .kind = ASK_MAY_RUN,
                                             .request = CG_HOST_APPROVAL_REQUEST,
                                             .has_raw = true,
                                             .names_cell = true,
                                             .decision = CG_HOST_DECISION,
                                             .decided = may_run_decided,
                                             .refuse = refuse,
                                             .late = "nobody decided in time",
                                             .late_event = "nobody decided in time: the call was refused",
                                             .max = SIZE_MAX,
                                             .unread = CG_ASK_UNREAD };

/* ------------------------------------------------------------------ messages of the kernel */

/* The rules whose breach ends the kernel. */
static int check_call(struct kernel *k, const struct cg_msg *m, const json_t *body, const char **server,
                      const char **tool, int64_t *timeout_ms, struct cg_err *err)
{
        const struct large_result *result;
        int r;

        if ((r = cg_json_str(body, "server", NULL, server, err)) < 0 ||
            (r = cg_json_str(body, "tool", NULL, tool, err)) < 0 ||
            (r = cg_json_int(body, "timeout_ms", 0, timeout_ms, err)) < 0)
                return r;
        if (!*server || !*tool || strlen(*server) > CG_MAX_NAME || strlen(*tool) > CG_MAX_NAME)
                return cg_fail(err, CG_E_PROTO, "CALL: without server or tool, or a name over its limit");
        if (*timeout_ms < 0)
                return cg_fail(err, CG_E_PROTO, "CALL: negative timeout_ms");
        LIST_FOREACH(result, &k->links.large_results, entry)
                if (result->call == m->id)
                        return cg_fail(err, CG_E_PROTO, "CALL: its id is in use");
        if (cg_sup_ask_find(k->session, m->id, ASK_KERNEL))
                return cg_fail(err, CG_E_PROTO, "CALL: its id is in use");
        if (cg_sup_asks_count(k->session, ASK_KERNEL) >= CG_MAX_CALLS)
                return cg_fail(err, CG_E_PROTO, "CALL: too many at once");
        return 0;
}

static void start_call(struct session *ss, struct cg_msg *m, const char *server, const char *tool,
                       int64_t timeout_ms, bool ask_first)
{
        json_t *body = json_pack("{s:s, s:s*, s:s}", "server", server, "method",
                                 ask_first ? "tools/call" : NULL, "tool", tool);
        struct ask *a = cg_sup_ask(&(struct ask){ .session = ss,
                                                  .type = ask_first ? &may_run_ask : &function_ask,
                                                  .number = m->id,
                                                  .body = body,
                                                  .timeout_ms = timeout_ms },
                                   m->frames[1]);

        if (a && ask_first)
                a->args = cg_frame_ref(m->frames[1]);
        ss->bounds.counted.tool_calls += a != NULL;
}

static int on_call(struct kernel *k, struct cg_msg *m, struct cg_err *err)
{
        struct session *ss = k->session;
        cg_auto_json json_t *body = NULL;
        const char *server = NULL, *tool = NULL;
        int64_t timeout_ms = 0;
        const json_t *set;
        struct cg_err why;
        size_t len;
        const char *args = cg_msg_raw(m, 0, &len);
        int r;

        if ((r = cg_msg_json(m, &body, err)) < 0 ||
            (r = check_call(k, m, body, &server, &tool, &timeout_ms, err)) < 0)
                return r;
        set = json_object_get(ss->functions, server);
        if (!set)
                fail(k, m->id, "the host has no functions \"%s\" in this session", server);
        else if (!json_object_get(json_object_get(set, "tools"), tool))
                fail(k, m->id, "\"%s\", functions of the host, has no tool \"%s\"", server, tool);
        else if (cg_check_call_args(args, len, &why) < 0)
                fail(k, m->id, "the arguments cannot be sent: %s", why.msg);
        else
                start_call(ss, m, server, tool, timeout_ms, json_is_true(json_object_get(set, "ask")));
        return 0;
}

static void on_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct kernel *k = z->data;
        struct cg_err err;
        struct ask *a;

        /* Earlier output comes first. */
        if (k->session)
                cg_sup_kernel_catch_up(k);
        if (!k->session || k->violation_text[0])
                return;
        if (k->state != K_READY) {
                cg_sup_kernel_violation(k, "a call before KERNEL_READY");
        } else if (m->type == CG_TOOL_CALL) {
                if (on_call(k, m, &err) < 0)
                        cg_sup_kernel_violation(k, err.msg);
        } else if (m->type == CG_TOOL_CALL_CANCEL) {
                a = cg_sup_ask_find(k->session, m->id, ASK_KERNEL);
                if (!a)
                        return; /* its result is on the way */
                answer(k, m->id, "failed", "cancelled", NULL, "cancelled");
                cg_sup_ask_close(a, "the kernel cancelled the call");
        } else {
                cg_sup_kernel_violation(k, "a message about kept results, which the tool server has");
        }
}

/* ------------------------------------------------------------------ sets of functions */

/* {NAME: true} of an array of definitions. */
static json_t *names_of(const json_t *text)
{
        json_t *names = json_object();
        struct cg_slice tool, name;
        struct cg_json_walk w;

        if (cg_json_walk_init(&w, (struct cg_slice){ json_string_value(text), json_string_length(text) }, '[',
                              NULL) < 0)
                return names;
        while (cg_json_walk_next(&w, NULL, &tool, NULL) == 0) {
                cg_auto_free char *s = NULL;

                name = CG_SLICE_NONE;
                if (cg_json_member(tool, "name", &name, NULL) == 0 && cg_json_strdup(name, &s, NULL) == 0)
                        json_object_set_new_nocheck(names, s, json_true());
        }
        return names;
}

void cg_sup_functions_added(struct session *ss, const json_t *definitions)
{
        const char *name;
        json_t *one;

        json_object_foreach(cg_json_unconst(definitions), name, one) {
                const json_t *text = json_object_get(one, "host_functions");
                struct ask *next;

                if (!json_is_string(text))
                        continue;
                for (struct ask *a = LIST_FIRST(&ss->asks.list); a; a = next) {
                        next = LIST_NEXT(a, entry);
                        if (!(a->type->kind & ASK_KERNEL) ||
                            strcmp(json_string_value(json_object_get(a->body, "server")), name) != 0)
                                continue;
                        fail(ss->kernel, a->number,
                             "the functions \"%s\" were replaced by others before this call ended", name);
                        cg_sup_ask_close(a, "its functions were replaced by others");
                }
                json_object_del(ss->functions, name);
                json_object_set_new(ss->functions, name,
                                    json_pack("{s:b, s:o}", "ask", json_is_true(json_object_get(one, "ask")),
                                              "tools", names_of(text)));
        }
}

/* ------------------------------------------------------------------ the connection */

int cg_sup_functions_open(struct kernel *k, cg_zlink_end_cb on_end, struct cg_err *err)
{
        int r = cg_zlink_open(&k->links.calls, &k->sup->loop, k->sockets.function, &cg_wire_tool,
                              CG_ROLE_KERNEL, MAX_QUEUE, on_message, on_end, k, err);

        if (r < 0)
                return r;
        k->links.calls.conn.max_unsent = MAX_QUEUE / 2;
        k->links.calls_open = true;
        return 0;
}

bool cg_sup_functions_close(struct kernel *k, void (*on_closed)(struct cg_zlink *z))
{
        bool open = k->links.calls_open;

        while (!LIST_EMPTY(&k->links.large_results)) {
                struct large_result *r = LIST_FIRST(&k->links.large_results);

                LIST_REMOVE(r, entry);
                cg_frame_unref(r->frame);
                free(r);
        }
        k->links.calls_open = false;
        if (open)
                cg_zlink_close(&k->links.calls, on_closed);
        return open;
}
