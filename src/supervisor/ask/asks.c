/*
 * cellgate-supervisor: questions that wait for an answer of a session's host. Each has a number
 * that the host answers, once; a decision counts only for the kind of question that it is about.
 */
#include "supervisor/ask/asks.h"

#include <sys/random.h>
#include "base/json.h"
#include "supervisor/core/audit.h"
#include "supervisor/cells/clock.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

bool cg_sup_ask_host_reads(const struct session *ss, const struct ask_type *type)
{
        return ss->unread <= type->unread;
}

bool cg_sup_ask_is_answer(uint16_t message)
{
        static const uint16_t answers[] = { CG_HOST_DECISION, CG_HOST_EGRESS_DECISION, CG_HOST_SERVER_ANSWER,
                                            CG_HOST_FUNCTION_RETURN, CG_HOST_INPUT_REPLY };

        for (size_t i = 0; i < CG_ARRAY_LEN(answers); i++)
                if (answers[i] == message)
                        return true;
        return false;
}

static const char *refused(struct session *ss, const struct ask_type *type, size_t len)
{
        if (type->max < SIZE_MAX && cg_sup_asks_count(ss, type->among) >= type->max)
                return type->full;
        if (ss->asks.bytes + len > CG_ASK_BYTES)
                return "too many calls wait for a decision";
        if (!cg_sup_ask_host_reads(ss, type))
                return "the host does not read the session's events";
        /* The decision gives it back: nobody reads questions that cells take back. */
        if (type->kind == ASK_PROGRAM && !cg_sup_rate_take(&ss->asks.undecided))
                return "too many questions have ended before the host could decide: wait a few seconds";
        return NULL;
}

/* Subject and outcome of a question, for the bus. */
static json_t *event_data(const struct ask *a, const struct cg_audit_decision *d)
{
        return json_pack("{s:I, s:O*, s:O*, s:O*, s:O*, s:O*, s:s*, s:s*, s:s*}", "approval",
                         (json_int_t)a->id, "server", json_object_get(a->body, "server"), "tool",
                         json_object_get(a->body, "tool"), "method", json_object_get(a->body, "method"),
                         "host", json_object_get(a->body, "host"), "port", json_object_get(a->body, "port"),
                         "decision", d->decision, "by", d->who, "reason", d->reason);
}

static void report_as(const struct ask *a, enum cg_bus_event type, const struct cg_audit_decision *d)
{
        const char *host = cg_json_text_of(a->body, "host"), *server = cg_json_text_of(a->body, "server");
        const char *tool = cg_json_text_of(a->body, "tool");

        if (*host)
                cg_sup_bus_add(a->session, type, a->running, event_data(a, d), "%s:%lld", host,
                               (long long)json_integer_value(json_object_get(a->body, "port")));
        else
                cg_sup_bus_add(a->session, type, a->running, event_data(a, d), "%s%s%s", server,
                               *server ? "." : "", a->type->kind == ASK_PROGRAM ? "a program" : tool);
}

/* Reports a question, or with a decision its end. A refused program or connection is a denial. */
static void report(const struct ask *a, const struct cg_audit_decision *d)
{
        static const struct {
                unsigned kinds;
                const char *decision;
                enum cg_bus_event type;
        } events[] = {
                { ASK_CONNECT, NULL, CG_BUS_EGRESS_REQUESTED },
                { ASK_CONNECT, "accept", CG_BUS_EGRESS_APPROVED },
                { ASK_CONNECT, "closed", CG_BUS_EGRESS_DENIED },
                { ASK_RUN, NULL, CG_BUS_APPROVAL_REQUESTED },
                { ASK_RUN, "accept", CG_BUS_APPROVAL_DECIDED },
                { ASK_RUN, "reject", CG_BUS_APPROVAL_DECIDED },
                { ASK_RUN, "closed", CG_BUS_APPROVAL_EXPIRED },
                { ASK_CALL, "accept", CG_BUS_TOOL_CALLED },
                { ASK_PROGRAM, "accept", CG_BUS_PROGRAM_STARTED },
                { ASK_FUNCTION, NULL, CG_BUS_TOOL_CALLED },
                { ASK_FUNCTION, "answered", CG_BUS_TOOL_RETURNED },
                { ASK_FUNCTION, "reject", CG_BUS_TOOL_RETURNED },
                { ASK_FUNCTION, "closed", CG_BUS_TOOL_RETURNED },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(events); i++)
                if ((events[i].kinds & a->type->kind) &&
                    (events[i].decision ? d->decision && strcmp(d->decision, events[i].decision) == 0
                                        : !d->decision))
                        report_as(a, events[i].type, d);
}

static int audit(const struct ask *a, struct cg_audit_decision d, struct cg_err *err)
{
        int r;

        d.approval = a->id;
        r = cg_sup_audit_question(a->session, a->body, a->raw, &d, err);
        if (r < 0) /* what is not recorded does not happen */
                d.decision = "reject";
        report(a, &d);
        return r;
}

/* Other clients that list what waits get another list. */
static void changed(struct ask *a)
{
        if (a->key)
                a->session->sup->upper.asks(a->session->sup);
}

static void on_timeout(uv_timer_t *t)
{
        struct ask *a = t->data;

        a->type->refuse(a, true, a->type->late);
        cg_sup_ask_close(a, a->type->late_event);
}

/* The time is the session's, or that of the function where it is shorter. */
static void start_timer(struct ask *a)
{
        int64_t limit_ms = a->session->approval_timeout_ms;
        int64_t own_ms = a->type->kind == ASK_FUNCTION ? a->timeout_ms : 0;

        if (own_ms > 0 && (limit_ms <= 0 || own_ms < limit_ms))
                limit_ms = own_ms;
        if (limit_ms <= 0 || !a->type->late || a->decided)
                return;
        if (!a->timer_open)
                uv_timer_init(&a->session->sup->loop, &a->timer);
        a->timer.data = a;
        a->timer_open = true;
        cg_sup_timer_start(&a->timer, on_timeout, (uint64_t)limit_ms);
}

static bool is_counted(const struct ask *a)
{
        return a->type->kind != ASK_INPUT &&
               !a->decided; /* the clock of a cell runs while it waits for input */
}

/* The list has changed, or what of it is decided. */
static void update_clocks(struct session *ss)
{
        const struct ask *a = LIST_FIRST(&ss->asks.list); /* the newest */

        while (a && !is_counted(a))
                a = LIST_NEXT(a, entry);
        ss->asks.newest = a ? a->nth : 0;
        cg_sup_asks_changed(ss);
}

static void send_question(struct ask *a, struct cg_frame *raw)
{
        struct cg_out out = { .type = a->type->request, .id = a->id };
        cg_auto_msg struct cg_msg m = { .n_frames = 2, .frames = { NULL, cg_frame_ref(raw) } };

        cg_sup_event_to_host(a->session, &out, json_incref(a->body), a->type->has_raw ? &m : NULL);
        update_clocks(a->session);
        report(a, &(struct cg_audit_decision){ .decision = NULL });
}

struct ask *cg_sup_ask(const struct ask *question, struct cg_frame *raw)
{
        struct ask draft = *question, *a = NULL;
        struct session *ss = draft.session;
        size_t len = cg_frame_bytes(raw).len;
        const char *why = refused(ss, draft.type, len);

        draft.running = cg_sup_running_cell(ss);
        draft.cell = CELL_SLOT(draft.running) == 0 ? draft.running : 0;
        if (draft.type->names_cell)
                json_object_set_new(draft.body, "cell", json_integer((json_int_t)draft.cell));
        if (!why && draft.body)
                a = malloc(sizeof(*a));
        if (!a) {
                if (draft.type->refuse)
                        draft.type->refuse(&draft, false, why ?: "out of memory");
                cg_sup_audit_question(
                        ss, draft.body, raw,
                        &(struct cg_audit_decision){ .decision = "reject", .reason = why ?: "out of memory" },
                        NULL);
                json_decref(draft.body);
                json_decref(draft.denial);
                return NULL;
        }
        *a = draft;
        a->nth = ++ss->asks.last;
        a->asked_ms = cg_now_ms();
        a->raw = ss->audit || cg_sup_others_decide(ss) ? cg_frame_ref(raw) : NULL;
        if (!a->id)
                a->id = ++ss->sup->next_approval;
        if (is_counted(a)) {
                a->bytes = len;
                ss->asks.n++;
                ss->asks.bytes += len;
        }
        ss->asks.open++;
        LIST_INSERT_HEAD(&ss->asks.list, a, entry);
        start_timer(a);
        send_question(a, raw);
        return a;
}

void cg_sup_ask_waits(struct ask *a, bool waits)
{
        if (a->decided != waits)
                return;
        a->decided = !waits;
        if (waits)
                a->session->asks.n++;
        else
                a->session->asks.n--;
        if (waits)
                start_timer(a);
        else if (a->timer_open)
                uv_timer_stop(&a->timer);
        update_clocks(a->session);
}

void cg_sup_ask_next(struct ask *a, const struct ask_type *type, struct cg_frame *raw)
{
        changed(a);
        a->key = 0; /* it has been decided */
        a->type = type;
        a->id = ++a->session->sup->next_approval;
        start_timer(a);
        send_question(a, raw);
}

/* Negative: the decision of @by to accept cannot be recorded; *d refuses from now on. */
static int record(const struct ask *a, struct decision *d, const char *who, const struct host *by,
                  struct cg_err *err)
{
        struct cg_audit_decision made = {
                .decision = d->accept ? "accept" : "reject", .reason = d->reason, .who = who, .by = by
        };

        if (audit(a, made, err) == 0)
                return 0;
        *d = (struct decision){ .answer = "no", .reason = err->msg };
        return -1;
}

static void decided(struct ask *a, const struct host *by, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct decision d;
        struct cg_err err;

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_bool(body, "accept", false, &d.accept, NULL) < 0 ||
            cg_json_bool(body, "timed_out", false, &d.timed_out, NULL) < 0 ||
            cg_json_bool(body, "waits", false, &d.waits, NULL) < 0 ||
            cg_json_str(body, "answer", "no", &d.answer, NULL) < 0 ||
            cg_json_str(body, "reason", "", &d.reason, NULL) < 0)
                d = (struct decision){ .answer = "no", .reason = "the host's decision could not be read" };
        if (m->type == CG_HOST_EGRESS_DECISION) /* what is recorded is what the connection gets */
                d.accept = strcmp(d.answer, "once") == 0 || strcmp(d.answer, "session") == 0;
        record(a, &d, "host", by, &err);
        a->type->decided(a, &d);
}

int cg_sup_ask_decide(struct ask *a, const struct host *by, struct decision d, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_APPROVAL_CLOSED, .id = a->id };
        bool remote = by->place[0] != '\0';
        int r = record(a, &d, remote ? "approver" : "terminal", by, err);
        const char *how = d.accept ? "accepted" : "refused";

        /* Before what follows from it: a function of the host is called under a new number. */
        cg_sup_event_to_host(a->session, &out,
                             json_pack("{s:o}", "why",
                                       json_sprintf("%s %s (process %lld)", how,
                                                    remote ? "by an approver" : "in another terminal",
                                                    (long long)by->pid)),
                             NULL);
        a->type->decided(a, &d);
        return r;
}

void cg_sup_ask_answered(struct session *ss, const struct host *h, uint64_t id, struct cg_msg *m)
{
        struct cg_audit_decision made = { .decision = "answered", .reason = "", .who = "host", .by = h };
        struct ask *a;

        /* The number of a cell that asks for input may be that of an approval as well. */
        LIST_FOREACH(a, &ss->asks.list, entry)
                if (a->id == id && (a->type->decision == m->type || a->type->answer == m->type))
                        break;
        if (a && a->type->decision == m->type) {
                decided(a, h, m);
                return;
        }
        if (!a)
                return;
        if (m->type == CG_HOST_FUNCTION_RETURN)
                made.result = m->frames[1];
        audit(a, made, NULL);
        a->type->answered(a, m);
}

void cg_sup_ask_share(struct session *ss, uint64_t id)
{
        struct ask *a;

        LIST_FOREACH(a, &ss->asks.list, entry)
                if (a->id == id && (a->type->kind & ASK_DECIDABLE) && a->type->decided)
                        break;
        if (!a || a->key || !cg_sup_others_decide(ss))
                return;
        /* Without random bytes only the session's host decides. */
        if (getrandom(&a->key, sizeof(a->key), GRND_NONBLOCK) != sizeof(a->key))
                a->key = 0;
        changed(a);
}

struct ask *cg_sup_ask_find(struct session *ss, uint64_t number, unsigned kinds)
{
        struct ask *a;

        LIST_FOREACH(a, &ss->asks.list, entry)
                if (a->number == number && (a->type->kind & kinds))
                        break;
        return a;
}

struct ask *cg_sup_ask_any(struct session *ss, unsigned kinds)
{
        struct ask *a;

        LIST_FOREACH(a, &ss->asks.list, entry)
                if (a->type->kind & kinds)
                        break;
        return a;
}

size_t cg_sup_asks_count(const struct session *ss, unsigned kinds)
{
        const struct ask *a;
        size_t n = 0;

        LIST_FOREACH(a, &ss->asks.list, entry)
                n += (a->type->kind & kinds) != 0;
        return n;
}

static void on_timer_closed(uv_handle_t *h)
{
        free(h->data);
}

void cg_sup_ask_end(struct ask *a)
{
        struct session *ss = a->session;

        LIST_REMOVE(a, entry);
        changed(a);
        ss->asks.open--;
        ss->asks.n -= is_counted(a);
        ss->asks.bytes -= a->bytes;
        update_clocks(ss);
        json_decref(a->body);
        cg_frame_unref(a->args);
        cg_frame_unref(a->raw);
        json_decref(a->denial);
        if (a->timer_open)
                uv_close((uv_handle_t *)&a->timer, on_timer_closed);
        else
                free(a);
}

void cg_sup_ask_close(struct ask *a, const char *why)
{
        uint16_t own = a->type->closed;
        struct cg_out out = { .type = own ?: CG_HOST_APPROVAL_CLOSED, .id = a->id };

        audit(a, (struct cg_audit_decision){ .decision = "closed", .reason = why ?: "" }, NULL);
        cg_sup_event_to_host(a->session, &out,
                             own ? json_incref(a->body) : json_pack("{s:o}", "why", cg_sup_text_json(why)),
                             NULL);
        cg_sup_ask_end(a);
}

void cg_sup_asks_close(struct session *ss, unsigned kinds, const char *why)
{
        struct ask *a;

        while ((a = cg_sup_ask_any(ss, kinds)))
                cg_sup_ask_close(a, why);
}
