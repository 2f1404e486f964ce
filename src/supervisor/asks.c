/*
 * cellgate-supervisor: what waits for an answer of a session's host. Each becomes an approval with
 * a number of its own; only the session's own host answers it, once.
 */
#include "supervisor/asks.h"

#include <stdlib.h>
#include "base/json.h"
#include "base/util.h"
#include "supervisor/clock.h"
#include "supervisor/host_link.h"
#include "supervisor/members.h"
#include "supervisor/state.h"
#include "supervisor/sup.h"

const char *cg_sup_ask_refused(const struct session *ss, size_t len)
{
        if (ss->ask_bytes + len > CG_ASK_BYTES)
                return "too many calls wait for a decision";
        return ss->unread > CG_ASK_UNREAD ? "the host does not read the session's events" : NULL;
}

static void on_timeout(uv_timer_t *t)
{
        struct ask *a = t->data;

        a->type->expire(a);
}

struct ask *cg_sup_ask_new(struct session *ss, const struct ask_type *type, uint64_t number, size_t bytes,
                           int64_t timeout_ms)
{
        struct ask *a = calloc(1, sizeof(*a));
        int64_t limit_ms = ss->approval_timeout_ms;

        if (!a)
                return NULL;
        if (timeout_ms > 0 && (limit_ms <= 0 || timeout_ms < limit_ms))
                limit_ms = timeout_ms;
        a->session = ss;
        a->type = type;
        a->number = number;
        a->approval = ++ss->sup->next_approval;
        a->running = cg_sup_running_cell(ss);
        a->cell = CELL_SLOT(a->running) == 0 ? a->running : 0;
        a->bytes = bytes;
        LIST_INSERT_HEAD(&ss->ask_list, a, entry);
        ss->asks++;
        ss->ask_bytes += bytes;
        if (limit_ms > 0 && type->expire) {
                uv_timer_init(&ss->sup->loop, &a->timer);
                a->timer.data = a;
                a->timer_open = true;
                cg_sup_timer_start(&a->timer, on_timeout, (uint64_t)limit_ms);
        }
        return a;
}

void cg_sup_ask_host(struct ask *a, const struct cg_out *message, json_t *body, struct cg_msg *m)
{
        struct session *ss = a->session;
        struct cg_out out = *message;
        cg_auto_free char *text = cg_json_text(body, &out.body_len);

        json_decref(body);
        out.session = ss->number;
        out.id = a->approval;
        out.body = text;
        if (m)
                cg_sup_host_forward(ss->host, &out, m);
        else
                cg_sup_host_send(ss->host, &out, NULL);
        cg_sup_count_unread(ss, out.body_len + a->bytes);
        cg_sup_asks_changed(ss);
}

static void decided(struct ask *a, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct decision d;

        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_bool(body, "accept", false, &d.accept, NULL) < 0 ||
            cg_json_bool(body, "timed_out", false, &d.timed_out, NULL) < 0 ||
            cg_json_str(body, "answer", "no", &d.answer, NULL) < 0 ||
            cg_json_str(body, "reason", "", &d.reason, NULL) < 0)
                d = (struct decision){ .answer = "no", .reason = "the host's decision could not be read" };
        a->type->decided(a, &d);
}

void cg_sup_ask_answered(struct session *ss, struct cg_msg *m)
{
        struct ask *a;

        LIST_FOREACH(a, &ss->ask_list, entry)
                if (a->approval == m->id)
                        break;
        if (a && a->type->decision == m->type)
                decided(a, m);
        else if (a && a->type->answer == m->type)
                a->type->answered(a, m);
}

struct ask *cg_sup_ask_find(struct session *ss, uint64_t number, unsigned kinds)
{
        struct ask *a;

        LIST_FOREACH(a, &ss->ask_list, entry)
                if (a->number == number && (a->type->kind & kinds))
                        break;
        return a;
}

size_t cg_sup_asks_count(const struct session *ss, unsigned kinds)
{
        const struct ask *a;
        size_t n = 0;

        LIST_FOREACH(a, &ss->ask_list, entry)
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
        ss->asks--;
        ss->ask_bytes -= a->bytes;
        cg_sup_asks_changed(ss);
        free(a->server);
        free(a->tool);
        cg_frame_unref(a->args);
        json_decref(a->denial);
        if (a->timer_open)
                uv_close((uv_handle_t *)&a->timer, on_timer_closed);
        else
                free(a);
}

void cg_sup_ask_close(struct ask *a, const char *why)
{
        cg_sup_approval_closed(a->session, a->approval, why);
        cg_sup_ask_end(a);
}

void cg_sup_asks_close(struct session *ss, unsigned kinds, const char *why)
{
        struct ask *next;

        for (struct ask *a = LIST_FIRST(&ss->ask_list); a; a = next) {
                next = LIST_NEXT(a, entry);
                if (a->type->kind & kinds)
                        cg_sup_ask_close(a, why);
        }
}
