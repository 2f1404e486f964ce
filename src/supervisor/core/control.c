/*
 * cellgate-supervisor: sessions and jobs of all hosts. Nothing here shows what they contain: the
 * user's other programs see who uses the supervisor, and can end it, as they can end processes.
 */
#include "supervisor/core/control.h"

#include "base/json.h"
#include "supervisor/cells/cells.h"
#include "supervisor/cells/commands.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/session.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* NULL in a slot without a session that a host has. */
static struct session *session_at(const struct sup *s, size_t i)
{
        struct session *ss = s->sessions[i];

        return ss && ss->host && ss->life.opened && !ss->life.ending ? ss : NULL;
}

static json_t *describe(const struct session *ss)
{
        const char *language = json_string_value(json_object_get(ss->options, "language"));
        json_t *jobs = json_array();

        cg_sup_cells_list(ss, jobs);
        cg_sup_commands_list(ss, jobs);
        return json_pack("{s:s, s:s, s:s, s:s, s:O*, s:I, s:b, s:I, s:o}", "id", ss->id, "workspace",
                         ss->workspace, "namespace", cg_sup_namespace(ss), "language", language ?: "python",
                         "front", json_object_get(ss->options, "front"), "pid", (json_int_t)ss->host->pid,
                         "sandbox", cg_sup_is_sandboxed(ss), "uptime_ms",
                         (json_int_t)(cg_now_ms() - ss->life.opened_ms), "jobs", jobs);
}

void cg_sup_jobs_list(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_JOBS, .id = m->id };
        json_t *list = json_array();

        for (size_t i = 0; i < CG_MAX_SESSIONS && !h->place[0]; i++) {
                const struct session *ss = session_at(h->sup, i);

                if (ss)
                        json_array_append_new(list, describe(ss));
        }
        cg_sup_host_send(h, &out, json_pack("{s:o}", "sessions", list));
}

static void end_session(struct host *h, struct session *ss)
{
        char why[120];

        snprintf(why, sizeof(why), "process %d of this user has ended it (cellgate session kill)",
                 (int)h->pid);
        cg_sup_session_end(ss, why);
}

static int kill_session(struct host *h, const char *id, struct cg_err *err)
{
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = session_at(h->sup, i);

                if (!ss || strcmp(ss->id, id) != 0)
                        continue;
                end_session(h, ss);
                return 0;
        }
        return cg_fail(err, CG_E_NOTFOUND, "the supervisor has no session %.40s", id);
}

/* True: @id is a job of the session, in the form of cg_sup_job_id(); *ret is its number. */
static bool parse_job(const struct session *ss, const char *id, uint64_t *ret)
{
        unsigned long long slot = 0, number;
        char *end, same[CG_JOB_ID];

        if (strncmp(id, ss->id, CG_JOB_SESSION) != 0 || id[CG_JOB_SESSION] != '.')
                return false;
        number = strtoull(id + CG_JOB_SESSION + 1, &end, 10);
        if (*end == '.') {
                slot = number;
                number = strtoull(end + 1, &end, 10);
        }
        if (*end || slot > UINT16_MAX)
                return false;
        *ret = CELL_ID(slot, number);
        cg_sup_job_id(ss, *ret, same);
        return strcmp(same, id) == 0;
}

static int cancel_job(struct host *h, const char *id, struct cg_err *err)
{
        uint64_t number;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = session_at(h->sup, i);

                if (!ss || !parse_job(ss, id, &number) ||
                    !(cg_sup_cells_cancel(ss, number, false) || cg_sup_commands_cancel(ss, number)))
                        continue;
                cg_sup_notice(ss, "process %d of this user has cancelled the job %s (cellgate job cancel)",
                              (int)h->pid, id);
                return 0;
        }
        return cg_fail(err, CG_E_NOTFOUND, "no job %.60s runs or waits", id);
}

static void end_one(struct host *h, const struct cg_msg *m,
                    int (*end)(struct host *h, const char *id, struct cg_err *err))
{
        struct cg_out out = { .type = CG_HOST_DONE, .id = m->id };
        cg_auto_json json_t *body = NULL;
        const char *id = "";
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "id", "", &id, &err) < 0 ||
            end(h, id, &err) < 0)
                cg_sup_host_failed(h, 0, m->id, &err);
        else
                cg_sup_host_send(h, &out, json_object());
}

void cg_sup_session_kill(struct host *h, const struct cg_msg *m)
{
        end_one(h, m, kill_session);
}

void cg_sup_job_cancel(struct host *h, const struct cg_msg *m)
{
        end_one(h, m, cancel_job);
}
