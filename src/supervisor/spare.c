/*
 * cellgate-supervisor: spares, sessions that are started ahead with the options of the session that
 * was opened last. A spare has run nothing but one cell of ours, which makes the memory that every
 * first cell needs its own. A session that is asked for with the same options is one of these, and
 * opens at once.
 *
 * A private supervisor's spares belong to its host. Those of a shared one are for whoever of this
 * user asks for the same next: a notebook's kernel that is restarted comes as a new host.
 */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "sandbox/settings/kernel_view.h"

/*
 * Spares for other options than the last that a shared supervisor keeps: people have a few
 * notebooks open.
 */
#define MAX_OTHERS 2
/*
 * A spare's start costs as much as any other: it shall not take its time from the first cell of the
 * session that was just opened.
 */
#define DELAY_MS 20
/*
 * A spare that ends by itself has a successor, after a delay that doubles with each in a row. After
 * this many in a row something is wrong that a further start will not mend: there is none until the
 * host opens a session again.
 */
#define MAX_DEATHS 6
/* No cell of a host ever gets this far. */
#define WARM_CELL (UINT64_C(1) << 40)

static const char *workspace_of(const json_t *options)
{
        return json_string_value(json_object_get(options, "workspace")) ?: "";
}

/*
 * The folder that the spare's sandbox shows is still the one with that name, not one that was made
 * in its place.
 */
static bool same_workspace(const struct spare *sp)
{
        struct stat held, named;

        return fstat(sp->workspace, &held) == 0 && held.st_nlink > 0 &&
               stat(workspace_of(sp->session->options), &named) == 0 && held.st_dev == named.st_dev &&
               held.st_ino == named.st_ino;
}

static int add_hides(struct cg_sandbox *plan, const json_t *options, struct cg_err *err)
{
        json_t *list = json_object_get(options, "hide"), *v;
        int r = 0;
        size_t i;

        json_array_foreach(list, i, v)
        {
                if (r == 0)
                        r = cg_sandbox_add_hide(plan, json_string_value(v), err);
        }
        return r;
}

/* Files that a kernel sees masked: one that was saved anew is another. */
static json_t *masked_files(const struct cg_settings *s)
{
        json_t *list = json_array();

        for (size_t i = 0; i < s->creds.n_files; i++)
                if (s->creds.files[i].mode == CG_CRED_MASK)
                        json_array_append_new(list, json_pack("{s:s}", "path", s->creds.files[i].what));
        return list;
}

/* The full tier for certain: then names need not be looked for. */
static bool is_full(const json_t *options)
{
        const json_t *own = json_object_get(json_object_get(options, "settings"), "cellgate");
        const char *tier = json_string_value(json_object_get(options, "tier"));

        if (!tier)
                tier = json_string_value(json_object_get(own, "tier"));
        return !tier || strcmp(tier, "full") == 0;
}

/* What a kernel's sandbox would come to now; 0 when that cannot be told. */
static uint64_t view_of(const struct sup *sup, const json_t *options)
{
        cg_auto_json json_t *guards = session_guards(sup);
        json_t *o = json_object_get(options, "settings");
        cg_auto_settings struct cg_settings *s = NULL;
        cg_auto_free char *text = o ? cg_json_text(o, NULL) : NULL;
        cg_auto_json json_t *masked = NULL;
        struct cg_sandbox *plan = NULL;
        uint64_t print = 0;
        bool full = is_full(options);
        struct cg_err err;
        int r = o && !text ? -1 : cg_sandbox_new(&plan, &err);

        if (r == 0 && o)
                r = cg_settings_parse(text, strlen(text), "sandbox settings", 0, &s, &err);
        if (r == 0 && o)
                masked = masked_files(s);
        if (r == 0 && o)
                r = cg_session_view(plan, s, masked, workspace_of(options), sup_home(), guards, full, &err);
        else if (r == 0)
                r = cg_session_view_default(plan, workspace_of(options), sup_home(), guards, full, &err);
        if (r == 0)
                r = add_hides(plan, options, &err);
        if (r == 0)
                print = cg_session_view_print(plan);
        cg_sandbox_free(plan);
        return print;
}

bool spare_view_holds(const struct session *ss, uint64_t view)
{
        return json_is_false(json_object_get(ss->options, "sandbox")) ||
               (view && view == view_of(ss->sup, ss->options));
}

/* How long to wait, and for what, is no part of what a session is. */
static json_t *essence(const json_t *options)
{
        json_t *o = json_deep_copy(options);

        json_object_del(o, "timeout_ms");
        json_object_del(o, "approval_timeout_ms");
        return o;
}

static bool same_options(const json_t *a, const json_t *b)
{
        cg_auto_json json_t *x = essence(a), *y = essence(b);

        return json_equal(x, y);
}

static size_t count(const struct sup *s, const json_t *options)
{
        size_t n = 0;

        for (size_t i = 0; i < s->n_spares; i++)
                n += same_options(s->spares[i].session->options, options);
        return n;
}

static struct spare *find(struct sup *s, const struct session *ss)
{
        for (size_t i = 0; i < s->n_spares; i++)
                if (s->spares[i].session == ss)
                        return &s->spares[i];
        return NULL;
}

/* No spare any more; the session is the caller's. */
static struct session *take(struct sup *s, struct spare *sp)
{
        struct session *ss = sp->session;

        close(sp->workspace);
        s->n_spares--;
        for (; sp < s->spares + s->n_spares; sp++)
                sp[0] = sp[1];
        return ss;
}

static void drop(struct sup *s, struct spare *sp)
{
        session_end(take(s, sp), NULL);
}

static void drop_all(struct sup *s)
{
        while (s->n_spares)
                drop(s, s->spares);
        json_decref(CG_STEAL(s->spare_options));
        uv_timer_stop(&s->spare_timer);
        s->spare_host = NULL;
}

/* The oldest come first. */
static void drop_others(struct sup *s, const json_t *options, size_t keep)
{
        size_t others = s->n_spares - count(s, options);

        for (size_t i = 0; i < s->n_spares && others > keep;) {
                if (same_options(s->spares[i].session->options, options)) {
                        i++;
                } else {
                        drop(s, &s->spares[i]);
                        others--;
                }
        }
}

static void start(struct sup *s, json_t *options)
{
        struct spare *sp = &s->spares[s->n_spares];
        struct cg_err err;

        sp->view = view_of(s, options);
        sp->workspace = open(workspace_of(options), O_PATH | O_CLOEXEC | O_DIRECTORY);
        sp->session = session_make(s, NULL, options, 0, &err);
        if (sp->session) {
                s->n_spares++;
        } else {
                cg_log(&s->log, CG_LOG_WARN, "no spare: %s", err.msg);
                if (sp->workspace >= 0)
                        close(sp->workspace);
        }
}

static void on_timer(uv_timer_t *t)
{
        struct sup *s = t->data;

        if (s->spare_options && s->n_spares < CG_MAX_SPARES && !s->stopping &&
            count(s, s->spare_options) < s->want_spares)
                start(s, s->spare_options);
}

static void arm(struct sup *s)
{
        uv_update_time(&s->loop);
        uv_timer_start(&s->spare_timer, on_timer, (uint64_t)DELAY_MS << s->spare_deaths, 0);
}

void spares_start(struct sup *s)
{
        uv_timer_init(&s->loop, &s->spare_timer);
        s->spare_timer.data = s;
}

void spares_stop(struct sup *s)
{
        drop_all(s);
}

struct session *spare_take(struct host *h, const json_t *options, uint64_t *view)
{
        struct sup *s = h->sup;

        if (s->private_mode && s->spare_host != h)
                return NULL;
        for (size_t i = 0; i < s->n_spares; i++) {
                struct spare *sp = &s->spares[i];

                if (!sp->session->kernel || sp->session->kernel->state == K_DEAD ||
                    !same_options(sp->session->options, options))
                        continue;
                *view = sp->view;
                s->spare_deaths = 0;
                if (same_workspace(sp))
                        return take(s, sp);
                drop(s, sp);
                return NULL;
        }
        return NULL;
}

void spare_plan(struct session *ss)
{
        struct sup *s = ss->sup;

        if (!s->want_spares || !ss->host || json_array_size(json_object_get(ss->options, "python_path")))
                return; /* folders of the host's own could be replaced meanwhile */
        if (doors_are_alone(ss->options))
                return; /* two kernels cannot listen at the same ports of this machine */
        if (s->private_mode && s->spare_host != ss->host)
                drop_all(s);
        drop_others(s, ss->options, s->private_mode ? 0 : MAX_OTHERS);
        json_decref(s->spare_options);
        s->spare_options = json_deep_copy(ss->options);
        s->spare_host = ss->host;
        s->spare_deaths = 0;
        if (count(s, ss->options) < s->want_spares)
                arm(s);
}

void spare_of_host_gone(struct sup *s, const struct host *h)
{
        if (s->spare_host != h)
                return;
        if (s->private_mode)
                drop_all(s);
        s->spare_host = NULL;
}

void spare_renewed(struct session *ss)
{
        struct spare *sp = find(ss->sup, ss);

        if (sp)
                sp->view = view_of(ss->sup, ss->options);
}

bool spare_ready(struct session *ss)
{
        static const struct cg_bytes none = { "", 0 };
        struct cg_out out = { .type = CG_KERNEL_EXECUTE_REQUEST,
                              .id = WARM_CELL,
                              .raw = "1",
                              .raw_len = 1,
                              .has_raw = true,
                              .more = &none,
                              .n_more = 1 };

        if (!find(ss->sup, ss))
                return false;
        ss->warming = true;
        kernel_send(ss->kernel, &out,
                    json_pack("{s:b, s:b, s:b, s:b}", "silent", 1, "store_history", 0, "allow_stdin", 0,
                              "warm", 1));
        return true;
}

bool spare_message(struct session *ss, const struct cg_msg *m)
{
        if (!ss->warming)
                return find(ss->sup, ss) != NULL;
        if (m->type == CG_KERNEL_EXECUTE_REPLY && m->id == WARM_CELL) {
                ss->warming = false;
                session_warm(ss);
                if (find(ss->sup, ss)) /* perhaps more are wanted */
                        arm(ss->sup);
        }
        return true;
}

bool spare_ended(struct session *ss)
{
        struct sup *s = ss->sup;
        struct spare *sp = find(s, ss);

        if (!sp)
                return false;
        drop(s, sp);
        /*
         * spare_plan() may have counted it while its end was not known yet, so the successor is
         * started from here.
         */
        if (++s->spare_deaths < MAX_DEATHS)
                arm(s);
        else
                cg_log(&s->log, CG_LOG_WARN,
                       "%d spare kernels in a row ended by themselves: no other is started until "
                       "the next session opens",
                       MAX_DEATHS);
        return true;
}
