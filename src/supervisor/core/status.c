/* cellgate-supervisor: what it is used for, and its end on request (`cellgate daemon`). */
#include "supervisor/core/status.h"

#include "base/json.h"
#include "config.h"
#include "supervisor/core/host_link.h"
#include "supervisor/limits/oom.h"
#include "supervisor/core/slots.h"
#include "supervisor/core/spare.h"
#include "supervisor/core/state.h"

/* Longest wait for a count, which takes some ms for each process. Then the last one is sent. */
#define COUNT_MS 1000

static void answer(struct host *h, uint64_t request)
{
        struct cg_out out = { .type = CG_HOST_STATUS_IS, .id = request };
        const struct sup *s = h->sup;
        json_t *clients = json_array(), *o;
        const struct host *other;

        LIST_FOREACH(other, &s->clients.hosts, entry)
                json_array_append_new(clients,
                                      json_pack("{s:i, s:I, s:b}", "pid", (int)other->pid, "sessions",
                                                (json_int_t)cg_sup_sessions_of(s, other), "own", other == h));
        o = json_pack("{s:s, s:i, s:s, s:I, s:o*, s:s*, s:s*, s:I, s:o, s:I, s:o, s:o}", "version",
                      CG_VERSION, "pid", (int)getpid(), "address", s->setup.dir, "uptime_ms",
                      (json_int_t)(cg_now_ms() - s->setup.started_ms), "linger_ms",
                      s->setup.linger_ms >= 0 ? json_integer(s->setup.linger_ms) : NULL, "kernel_env",
                      s->setup.kernel_env, "preload", s->setup.preload, "spares",
                      (json_int_t)cg_sup_sessions_of(s, NULL), "spare_workspaces", cg_sup_spare_workspaces(s),
                      "memory_bytes", (json_int_t)s->status.memory, "queue", cg_sup_jobs_status(s), "clients",
                      clients);
        json_object_update_new(o, cg_sup_slots_status(s));
        cg_sup_host_send(h, &out, o);
}

static void answer_all(struct sup *s)
{
        struct host *h;

        for (size_t i = 0; i < s->status.n_waiting; i++) {
                h = cg_sup_host_by_number(s, s->status.waiting[i].host);
                if (h)
                        answer(h, s->status.waiting[i].request);
        }
        s->status.n_waiting = 0;
        uv_timer_stop(&s->status.timer);
}

/* Runs in a thread of the pool. */
static void on_count(uv_work_t *w)
{
        struct sup *s = w->data;

        s->status.counted = cg_oom_share(getpid());
}

static void on_counted(uv_work_t *w, int status)
{
        struct sup *s = w->data;

        s->status.counting = false;
        s->status.memory = s->status.counted;
        answer_all(s);
}

static void on_count_timer(uv_timer_t *t)
{
        struct sup *s = t->data;

        if (s->status.memory) /* else only the count itself is an answer */
                answer_all(s);
}

void cg_sup_status_start(struct sup *s)
{
        uv_timer_init(&s->loop, &s->status.timer);
        s->status.timer.data = s->status.work.data = s;
}

void cg_sup_status(struct host *h, const struct cg_msg *m)
{
        struct sup *s = h->sup;
        struct sup_status *st = &s->status;

        if (!st->counting)
                st->counting = uv_queue_work(&s->loop, &st->work, on_count, on_counted) == 0;
        if (!st->counting || st->n_waiting == CG_ARRAY_LEN(st->waiting)) {
                answer(h, m->id);
                return;
        }
        st->waiting[st->n_waiting].host = h->number;
        st->waiting[st->n_waiting++].request = m->id;
        if (!uv_is_active((uv_handle_t *)&st->timer))
                cg_sup_timer_start(&st->timer, on_count_timer, COUNT_MS);
}

void cg_sup_stop_asked(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_DONE, .id = m->id };
        cg_auto_json json_t *body = NULL;
        struct sup *s = h->sup;
        size_t others = 0;
        struct cg_err err;
        struct host *other;
        bool force;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_bool(body, "force", false, &force, &err) < 0) {
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        LIST_FOREACH(other, &s->clients.hosts, entry)
                others += other != h ? cg_sup_sessions_of(s, other) : 0;
        if (others && !force) {
                cg_fail(&err, CG_E_STATE, "%zu session%s of other clients would end", others,
                        others == 1 ? "" : "s");
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        cg_sup_host_send(h, &out, json_object());
        cg_sup_stop(s, "`cellgate daemon stop`");
}
