/*
 * cellgate-supervisor: the spare, a session that is started ahead with the options of the session that was opened last, by the same host.
 * It has run nothing but one cell of ours, which makes the memory that every first cell needs its own. A session that is asked for
 * with the same options is this one, and opens at once.
 */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <sys/stat.h>

/* A spare's start costs as much as any other: it shall not take its time from the first cell of the session that was just opened. */
#define DELAY_MS 20
/* No cell of a host ever gets this far. */
#define WARM_CELL (UINT64_C(1) << 40)

static const char *workspace_of(const json_t *options)
{
        return json_string_value(json_object_get(options, "workspace")) ?: "";
}

/* The folder that the spare's sandbox shows is still the one with that name, not one that was made in its place. */
static bool same_workspace(const struct sup *s, const json_t *options)
{
        struct stat held, named;

        return fstat(s->spare_workspace, &held) == 0 && held.st_nlink > 0 && stat(workspace_of(options), &named) == 0 &&
               held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static void release_workspace(struct sup *s)
{
        if (s->spare_workspace >= 0)
                close(cg_steal_fd(&s->spare_workspace));
}

static void on_timer(uv_timer_t *t)
{
        struct sup *s = t->data;
        struct cg_err err;
        json_t *options = CG_STEAL(s->spare_options);

        if (options && !s->spare && !s->stopping) {
                s->spare_workspace = open(workspace_of(options), O_PATH | O_CLOEXEC | O_DIRECTORY);
                s->spare = session_make(s, NULL, options, 0, &err);
                if (!s->spare) {
                        cg_log(&s->log, CG_LOG_WARN, "no spare: %s", err.msg);
                        release_workspace(s);
                }
        }
        json_decref(options);
}

void spares_start(struct sup *s)
{
        uv_timer_init(&s->loop, &s->spare_timer);
        s->spare_timer.data = s;
        s->spare_workspace = -1;
}

static void spare_drop(struct sup *s)
{
        struct session *ss = CG_STEAL(s->spare);

        if (ss)
                session_end(ss, NULL);
        json_decref(CG_STEAL(s->spare_options));
        uv_timer_stop(&s->spare_timer);
        s->spare_host = NULL;
        release_workspace(s);
}

void spares_stop(struct sup *s)
{
        spare_drop(s);
}

/* How long to wait, and for what, is no part of what a session is. */
static json_t *essence(const json_t *options)
{
        json_t *o = json_deep_copy(options);

        json_object_del(o, "timeout_ms");
        json_object_del(o, "approval_timeout_ms");
        return o;
}

struct session *spare_take(struct host *h, const json_t *options)
{
        struct sup *s = h->sup;
        struct session *ss = s->spare;
        cg_auto_json json_t *want = NULL, *have = NULL;

        if (!ss || s->spare_host != h || !ss->kernel || ss->kernel->state == K_DEAD)
                return NULL;
        want = essence(options);
        have = essence(ss->options);
        if (!json_equal(want, have))
                return NULL;
        if (!same_workspace(s, options)) {
                spare_drop(s);
                return NULL;
        }
        s->spare = NULL;
        release_workspace(s);
        return ss;
}

void spare_plan(struct session *ss)
{
        struct sup *s = ss->sup;

        if (!s->use_spares || !ss->host || json_array_size(json_object_get(ss->options, "python_path")))
                return; /* folders of the host's own could be replaced meanwhile */
        if (s->spare) {
                cg_auto_json json_t *want = essence(ss->options), *have = essence(s->spare->options);

                if (s->spare_host == ss->host && json_equal(want, have))
                        return;
                spare_drop(s);
        }
        json_decref(s->spare_options);
        s->spare_options = json_deep_copy(ss->options);
        s->spare_host = ss->host;
        uv_update_time(&s->loop);
        uv_timer_start(&s->spare_timer, on_timer, DELAY_MS, 0);
}

void spare_of_host_gone(struct sup *s, const struct host *h)
{
        if (s->spare_host == h)
                spare_drop(s);
}

bool spare_ready(struct session *ss)
{
        struct cg_out out = { .type = CG_KERNEL_EXECUTE_REQUEST, .id = WARM_CELL, .raw = "1", .raw_len = 1, .has_raw = true };

        if (ss->sup->spare != ss)
                return false;
        ss->warming = true;
        kernel_send(ss->kernel, &out, json_pack("{s:b, s:b, s:b}", "silent", 1, "store_history", 0, "allow_stdin", 0));
        return true;
}

bool spare_message(struct session *ss, const struct cg_msg *m)
{
        if (!ss->warming)
                return ss->sup->spare == ss;
        if (m->type == CG_KERNEL_EXECUTE_REPLY && m->id == WARM_CELL) {
                ss->warming = false;
                session_warm(ss);
        }
        return true;
}

bool spare_ended(struct session *ss)
{
        if (ss->sup->spare != ss)
                return false;
        ss->sup->spare = NULL;
        release_workspace(ss->sup);
        session_end(ss, NULL);
        return true;
}
