/* cellgate-supervisor: what can be asked of a session, and its timers. */
#include "supervisor/core/state.h"

#include "base/language.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/settings.h"

struct cg_path_base cg_sup_paths_of(const struct session *ss, bool by_name)
{
        return (struct cg_path_base){ .cwd = json_string_value(json_object_get(ss->options, "workspace")),
                                      .home = ss->sup->setup.home,
                                      .env = json_object_get(ss->options, "user_env"),
                                      .by_name = by_name,
                                      .by_inode = by_name };
}

struct session *cg_sup_session_by_number(const struct sup *s, uint64_t number)
{
        struct session *ss = s->sessions[number % CG_MAX_SESSIONS];

        return ss && ss->number == number ? ss : NULL;
}

size_t cg_sup_sessions_of(const struct sup *s, const struct host *h)
{
        size_t n = 0;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++)
                n += s->sessions[i] && s->sessions[i]->host == h;
        return n;
}

const char *cg_sup_namespace(const struct session *ss)
{
        return json_string_value(json_object_get(ss->options, "namespace")) ?: "default";
}

void cg_sup_job_id(const struct session *ss, uint64_t id, char buf[CG_JOB_ID])
{
        unsigned long long number = CELL_NUMBER(id);

        if (CELL_SLOT(id))
                snprintf(buf, CG_JOB_ID, "%.*s.%u.%llu", CG_JOB_SESSION, ss->id, CELL_SLOT(id), number);
        else
                snprintf(buf, CG_JOB_ID, "%.*s.%llu", CG_JOB_SESSION, ss->id, number);
}

bool cg_sup_is_sandboxed(const struct session *ss)
{
        return !json_is_false(json_object_get(ss->options, "sandbox"));
}

const char *cg_sup_tier(const struct session *ss)
{
        const char *tier = json_string_value(json_object_get(ss->options, "tier"));

        return tier || !ss->settings ? tier : ss->settings->own.tier;
}

bool cg_sup_terminals_decide(const struct session *ss)
{
        const char *who = json_string_value(json_object_get(ss->options, "deciders"));

        return who && strcmp(who, "user") == 0;
}

bool cg_sup_others_decide(const struct session *ss)
{
        return cg_sup_terminals_decide(ss) || json_object_get(ss->options, "approvers");
}

struct cg_bytes cg_sup_cell_code(const struct session *ss, uint64_t id)
{
        for (const struct shell *l = &ss->queue.main; l; l = l->next)
                if (l->running && l->running->kind == CELL_EXECUTE && l->running->id == id)
                        return cg_frame_bytes(l->running->frames[0]);
        return cg_frame_bytes(NULL);
}

const json_t *cg_sup_exec_setting(const json_t *options)
{
        const json_t *settings = json_object_get(options, "settings");

        return json_object_get(options, "exec")
                       ?: json_object_get(json_object_get(settings, "cellgate"), "exec");
}

enum cg_exec cg_sup_exec(const json_t *options)
{
        enum cg_exec exec;

        if (cg_exec_rules_mode(cg_sup_exec_setting(options), &exec, NULL) < 0)
                return CG_EXEC_DENY;
        /* A script may have started it, or it another program that runs the cells. */
        if (exec == CG_EXEC_ASK &&
            cg_language_kernel(json_string_value(json_object_get(options, "language"))))
                return CG_EXEC_ASK_EACH;
        return exec;
}

uint64_t cg_sup_running_cell(const struct session *ss)
{
        if (ss->queue.main.running && ss->queue.main.running->kind == CELL_EXECUTE)
                return ss->queue.main.running->id;
        return 0;
}

uint64_t *cg_sup_cell_output(struct session *ss, uint64_t id)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next)
                if (l->running && l->running->id == id)
                        return &l->running->output;
        return NULL;
}

static void on_timer_closed(uv_handle_t *h)
{
        struct session *ss = h->data;

        if (--ss->life.open_timers == 0)
                ss->sup->upper.session->release(ss);
}

void cg_sup_timer_init(struct session *ss, uv_timer_t *t, void *data)
{
        uv_timer_init(&ss->sup->loop, t);
        t->data = data;
        ss->life.open_timers++;
}

void cg_sup_timer_close(struct session *ss, uv_timer_t *t)
{
        t->data = ss;
        uv_close((uv_handle_t *)t, on_timer_closed);
}
