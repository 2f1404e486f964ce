/*
 * `cellgate mcp serve`: the sessions of the process. Calls that name none use its own one; the
 * toolset `sessions` makes more. The I/O thread starts and frees them, each worker ends its own.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/common/args.h"
#include "cli/common/cli.h"

/* ------------------------------------------------------------------ beginning and end */

int cg_serve_session_start(struct cg_serve_session *s, struct cg_err *err)
{
        s->life = CG_SERVE_LIVES;
        errno = pthread_create(&s->worker, NULL, cg_serve_worker, s);
        if (!errno)
                return 0;
        cg_fail_errno(err, "thread");
        cg_serve_session_remove(s);
        return -1;
}

/* Its worker takes the lock no more. */
static void bury(struct cg_serve_session *s)
{
        struct cg_serve *sv = s->sv;
        size_t i = sv->ended.n++ % CG_SERVE_MAX_ENDED;

        pthread_join(s->worker, NULL);
        memcpy(sv->ended.v[i].id, s->id, sizeof(s->id));
        memcpy(sv->ended.v[i].why, s->why, sizeof(s->why));
        cg_serve_session_remove(s);
}

void cg_serve_sessions_fini(struct cg_serve *sv)
{
        struct cg_serve_session *s;

        while ((s = TAILQ_FIRST(&sv->sessions))) {
                if (s->life == CG_SERVE_MADE)
                        cg_serve_session_remove(s);
                else
                        bury(s);
        }
}

/* Time that is left to a session; 0: it ends now; -1: it does not end by itself. */
static int64_t idle_left(const struct cg_serve_session *s, int64_t now)
{
        const struct cg_serve_ask *a;
        int64_t left = s->used_ms + s->sv->opts.idle_ms - now;

        if (!s->sv->opts.idle_ms || s->life != CG_SERVE_LIVES || !TAILQ_EMPTY(&s->jobs))
                return -1;
        TAILQ_FOREACH(a, &s->asks, entry)
                if (!a->answered)
                        return -1;
        return CG_MAX(left, 0);
}

int64_t cg_serve_sessions_tick(struct cg_serve *sv)
{
        struct cg_serve_session *s, *next;
        int64_t now = cg_now_ms(), left, next_ms = -1;
        char why[80];

        for (s = TAILQ_FIRST(&sv->sessions); s; s = next) {
                next = TAILQ_NEXT(s, entry);
                left = idle_left(s, now);
                if (left == 0) {
                        snprintf(why, sizeof(why), "it was idle for %g s (--idle)",
                                 (double)sv->opts.idle_ms / 1000);
                        cg_serve_session_end(s, why);
                } else if (left > 0 && (next_ms < 0 || left < next_ms)) {
                        next_ms = left;
                }
                if (s->life == CG_SERVE_GONE)
                        bury(s);
        }
        return next_ms;
}

/* ------------------------------------------------------------------ finding */

/* Why a session of this id has ended, or is about to; NULL: there was none. */
static const char *why_ended(const struct cg_serve *sv, const char *id)
{
        const struct cg_serve_session *s;

        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (strcmp(s->id, id) == 0)
                        return s->why;
        for (size_t i = 0; i < CG_SERVE_MAX_ENDED && i < sv->ended.n; i++)
                if (strcmp(sv->ended.v[i].id, id) == 0)
                        return sv->ended.v[i].why;
        return NULL;
}

static int make_fresh(struct cg_serve *sv, const char *name, struct cg_pending *p, struct cg_err *err)
{
        static const bool begins[CG_SERVE_N_TOOLS] = { [CG_SERVE_EXECUTE] = true,
                                                       [CG_SERVE_START_CELL] = true,
                                                       [CG_SERVE_REGISTER] = true,
                                                       [CG_SERVE_INSTALL] = true };

        if (!begins[p->tool])
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" is missing", name);
        if (cg_serve_session_new(sv, &p->session, err) < 0 || cg_serve_session_start(p->session, err) < 0)
                return -1;
        p->fresh = true;
        return 0;
}

static int find_own(struct cg_serve *sv, struct cg_serve_session **ret, struct cg_err *err)
{
        if (!sv->own && cg_serve_session_new(sv, &sv->own, err) < 0)
                return -1;
        *ret = sv->own;
        if (sv->own->life != CG_SERVE_MADE)
                return 0;
        sv->own->lost = strdup(sv->own_lost);
        return cg_serve_session_start(sv->own, err);
}

int cg_serve_find_session(struct cg_serve *sv, const char *args, const char *name, struct cg_pending *p,
                          struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, v;
        cg_auto_free char *id = NULL;
        struct cg_serve_session *s;
        const char *why, *how = "leave session_id out";

        if (cg_json_member(text, name, &v, err) < 0)
                return -1;
        if (!v.p || cg_slice_is(v, "null")) {
                if (sv->opts.new_sessions)
                        return make_fresh(sv, name, p, err);
                if (find_own(sv, &p->session, err) < 0)
                        return -1;
                p->session->used_ms = cg_now_ms();
                return 0;
        }
        if (cg_serve_arg_string(args, name, &id, err) < 0)
                return -1;
        s = cg_serve_session_of(sv, id);
        if (s) {
                if (cg_serve_check_client(s, args, err) < 0)
                        return -1;
                s->used_ms = cg_now_ms();
                p->session = s;
                return 0;
        }
        if (sv->opts.new_sessions)
                how = "leave session_id out for a new one";
        if (sv->opts.toolsets & CG_SERVE_SESSIONS)
                how = "list_sessions names the sessions that there are, create_session makes one";
        why = why_ended(sv, id);
        if (why)
                return cg_fail(err, CG_E_NOTFOUND,
                               "no such session: \"%s\" has ended: %s. Its variables are lost; %s", id, why,
                               how);
        return cg_fail(err, CG_E_NOTFOUND, "no such session: \"%.100s\"; %s", id, how);
}

void cg_serve_list_sessions(const struct cg_serve *sv, struct cg_buf *b)
{
        const struct cg_serve_session *s;
        int64_t now = cg_now_ms();
        const char *folder;
        size_t n;

        TAILQ_FOREACH(s, &sv->sessions, entry) {
                if (s->life != CG_SERVE_LIVES || !cg_serve_is_users(s))
                        continue;
                cg_buf_addf(b, "%s%s", cg_sep(b->len, "\n"), s->id);
                if (s == sv->own)
                        cg_buf_adds(b, " (calls without session_id)");
                if (s->given.name) {
                        cg_buf_adds(b, " ");
                        cg_json_quote(b, s->given.name, strlen(s->given.name));
                }
                n = s->n_jobs;
                if (n)
                        cg_buf_addf(b, ": %zu call%s running or queued", n, cg_cli_s((long long)n));
                else
                        cg_buf_addf(b, ": idle for %lld s", (long long)(now - s->used_ms) / 1000);
                cg_buf_addf(b, ", %s, in ", cg_serve_language(s));
                folder = s->given.folder ?: sv->workspace;
                cg_name_render(b, folder);
        }
        if (!b->len)
                cg_buf_adds(b, "There is no session; the next call without session_id opens one.");
}
