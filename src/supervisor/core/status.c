/* cellgate-supervisor: what it is used for, and its end on request (`cellgate daemon`). */
#include "supervisor/core/status.h"

#include "base/json.h"
#include "config.h"
#include "supervisor/core/host_link.h"
#include "supervisor/limits/oom.h"
#include "supervisor/core/slots.h"
#include "supervisor/core/spare.h"
#include "supervisor/core/state.h"

void cg_sup_status(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_STATUS_IS, .id = m->id };
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
                      "memory_bytes", (json_int_t)cg_oom_share(getpid()), "queue", cg_sup_jobs_status(s),
                      "clients", clients);
        json_object_update_new(o, cg_sup_slots_status(s));
        cg_sup_host_send(h, &out, o);
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
