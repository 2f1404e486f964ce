/* cellgate-supervisor: the sessions of a node. See slots.h. */
#include "supervisor/core/slots.h"

#include "supervisor/core/host_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/spare.h"
#include "supervisor/core/state.h"
#include "supervisor/limits/session_limits.h"

static size_t used(const struct sup *s)
{
        return s->n_sessions - cg_sup_sessions_of(s, NULL);
}

static int check(const struct sup *s, struct cg_err *err)
{
        if (s->node.draining)
                return cg_fail(err, CG_E_BUSY, "the node is being drained: it opens no more sessions");
        if (s->node.slots && used(s) >= s->node.slots)
                return cg_fail(err, CG_E_BUSY, "the node is full: all of its %zu slots are in use",
                               s->node.slots);
        return 0;
}

int cg_sup_slots_check(struct sup *s, struct cg_err *err)
{
        uint64_t sum = s->node.memory ? cg_sup_limits_sum(s, NULL) : 0;
        int r = check(s, err);

        if (r == 0 && sum && sum + s->memory.kernel > s->memory.room)
                r = cg_fail(err, CG_E_BUSY,
                            "the node is full: its sessions have memory limits of %llu MiB, of %llu MiB for "
                            "all",
                            (unsigned long long)(sum >> 20), (unsigned long long)(s->memory.room >> 20));
        s->node.n_refused += r < 0;
        return r;
}

int cg_sup_slots_take(struct host *h, struct cg_err *err)
{
        struct sup *s = h->sup;
        int r = check(s, err);

        if (r == 0 && s->node.client_slots && cg_sup_sessions_of(s, h) >= s->node.client_slots)
                r = cg_fail(err, CG_E_LIMIT,
                            "this client has %zu sessions, which are all that the node allows",
                            s->node.client_slots);
        s->node.n_refused += r < 0;
        return r;
}

int cg_sup_slots_allow(const struct sup *s, const char *what, struct cg_err *err)
{
        if (s->node.slots)
                return cg_fail(err, CG_E_UNSUPPORTED, "not on a node: %s", what);
        return 0;
}

bool cg_sup_slots_trusts(const struct host *h)
{
        return !h->sup->node.slots || h->pid == h->sup->node.starter_pid;
}

void cg_sup_slots_opened(struct session *ss)
{
        struct sup *s = ss->sup;

        s->node.starts_us[s->node.n_starts++ % CG_ARRAY_LEN(s->node.starts_us)] = (uint32_t)CG_MIN(
                (uv_hrtime() - ss->start.asked_ns) / 1000, UINT32_MAX);
}

void cg_sup_slots_ended(struct sup *s)
{
        if (s->node.draining && used(s) == 0)
                cg_sup_stop(s, "drained");
}

static void on_drained(uv_timer_t *t)
{
        cg_sup_stop(t->data, "the node was drained, and the time for that is over");
}

void cg_sup_drain(struct sup *s)
{
        char until[64] = "";

        s->node.draining = true;
        if (s->node.drain_ms)
                snprintf(until, sizeof(until), "the session ends in %lld s at the latest; ",
                         (long long)(s->node.drain_ms / 1000));
        cg_log(&s->log, CG_LOG_INFO, "draining: %zu sessions, %lld s", used(s),
               (long long)(s->node.drain_ms / 1000));
        cg_sup_spares_stop(s);
        uv_timer_init(&s->loop, &s->node.drain_timer);
        s->node.drain_timer.data = s;
        if (s->node.drain_ms)
                cg_sup_timer_start(&s->node.drain_timer, on_drained, (uint64_t)s->node.drain_ms);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++)
                if (s->sessions[i] && s->sessions[i]->host)
                        cg_sup_notice(s->sessions[i],
                                      "this node is being drained: %sopen another session elsewhere", until);
        cg_sup_slots_ended(s);
}

static int compare(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

json_t *cg_sup_slots_status(const struct sup *s)
{
        uint32_t sorted[CG_ARRAY_LEN(s->node.starts_us)] = { 0 };
        size_t n = CG_MIN(s->node.n_starts, CG_ARRAY_LEN(sorted)), questions = 0, last = n - (n != 0);
        size_t median = last / 2, p99 = last - last / 100;
        uint64_t limits = s->node.slots ? cg_sup_limits_sum(s, NULL) : 0; /* elsewhere they have no end */

        memcpy(sorted, s->node.starts_us, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++)
                questions += s->sessions[i] ? s->sessions[i]->asks.n : 0;
        return json_pack("{s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:f, s:f}", "sessions", (json_int_t)used(s),
                         "slots", (json_int_t)s->node.slots, "draining", s->node.draining, "questions",
                         (json_int_t)questions, "limits_bytes", (json_int_t)limits, "started",
                         (json_int_t)s->node.n_starts, "refused", (json_int_t)s->node.n_refused,
                         "start_p50_ms", sorted[median] / 1e3, "start_p99_ms", sorted[p99] / 1e3);
}
