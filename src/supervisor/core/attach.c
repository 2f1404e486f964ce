/* cellgate-supervisor: hosts that attach to a session of another host, and the list of sessions. */
#include "supervisor/core/attach.h"

#include "base/json.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/members.h"
#include "supervisor/core/session.h"
#include "supervisor/core/state.h"

void cg_sup_attach(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_SESSION_OPENED, .id = m->id };
        cg_auto_json json_t *body = NULL;
        struct session *ss = NULL;
        const char *id = "";
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "id", "", &id, &err) < 0)
                goto fail;
        for (size_t i = 0; i < CG_MAX_SESSIONS && !ss; i++) {
                struct session *x = h->sup->sessions[i];

                if (x && x->host && x->life.opened && !x->life.ending && x->attachable &&
                    strcmp(x->id, id) == 0)
                        ss = x;
        }
        if (!ss) {
                cg_fail(&err, CG_E_NOTFOUND, "the supervisor has no session %.40s", id);
                goto fail;
        }
        if (!cg_sup_member_new(ss, h, &err))
                goto fail;
        cg_log(&h->sup->log, CG_LOG_INFO, "host %.8s attached to session %llu", h->token,
               (unsigned long long)ss->number);
        out.session = ss->number;
        cg_sup_host_send(h, &out, json_pack("{s:s, s:o}", "id", ss->id, "info", cg_sup_session_info(ss)));
        return;
fail:
        cg_sup_host_failed(h, 0, m->id, &err);
}

void cg_sup_list(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_SESSIONS, .id = m->id };
        json_t *list = json_array();

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = h->sup->sessions[i];

                if (!ss || !ss->host || !ss->life.opened || ss->life.ending ||
                    (!ss->attachable && ss->host != h))
                        continue;
                json_array_append_new(
                        list,
                        json_pack("{s:s, s:s, s:b, s:s, s:b, s:b}", "id", ss->id, "workspace", ss->workspace,
                                  "sandbox", cg_sup_is_sandboxed(ss), "python",
                                  ss->kernel && ss->kernel->report.python ? ss->kernel->report.python : "",
                                  "running", cg_sup_running_cell(ss) != 0, "own", ss->host == h));
        }
        cg_sup_host_send(h, &out, json_pack("{s:o}", "sessions", list));
}
