/*
 * cellgate-supervisor: spares, sessions that are started in advance with the options of the session
 * that was opened last. A spare has run one cell of the supervisor's, which causes the page faults
 * of every first cell. A request for a session with the same options gets a spare, which
 * opens at once.
 *
 * A private supervisor's spares belong to its host. Those of a shared one go to any host of this
 * user with the same options: a notebook's kernel that is restarted comes as a new host. Options
 * that have secrets, or a workspace in a file system that may be unmounted, are kept no longer than
 * their host.
 */
#include "supervisor/core/spare.h"

#include "base/json.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/settings/kernel_view.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/servers/protected.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* Spares for other options than the last in a shared supervisor: users have few notebooks open. */
#define MAX_OTHERS 2
/*
 * A spare's start costs as much as any other: it is delayed, so that it does not slow down the
 * first cell of the session that was just opened.
 */
#define DELAY_MS 20
/*
 * A spare that ends by itself is replaced, after a delay that doubles with each in a row. After
 * this many in a row no other is started until the host opens a session again.
 */
#define MAX_DEATHS 6
/* Greater than the number of any cell of a host. */
#define WARM_CELL (UINT64_C(1) << 40)

/* A session that was started in advance; it has no host yet. */
struct spare {
        struct session *session;
        const struct host *host; /* with whose options; NULL: it has ended */
        int workspace;           /* O_PATH */
        bool outdated;           /* the machine's mounts have changed since it was started */
};

struct spares {
        struct spare list[CG_MAX_SPARES]; /* oldest first */
        size_t n;
        json_t *options;   /* of the next ones */
        struct host *host; /* whose session had these options; NULL: it has ended */
        uv_timer_t timer;
        unsigned int deaths; /* spares in a row that ended by themselves */
        struct watch mounts; /* of a shared supervisor: /proc/self/mountinfo */
};

uint64_t cg_sup_spare_view(const struct session *ss)
{
        const char *tier = cg_sup_tier(ss);
        const json_t *hides = json_object_get(ss->options, "hide"), *path;
        cg_auto_json json_t *guards = cg_sup_protected_paths(ss->sup), *masked = json_array();
        const struct cg_settings *s = ss->settings;
        cg_auto_sandbox struct cg_sandbox *plan = NULL;
        /* Certainly the full tier, which needs no search for protected names. */
        bool full = !tier || strcmp(tier, "full") == 0;
        struct cg_path_base base = cg_sup_paths_of(ss, full);
        struct cg_err err;
        size_t i;
        int r;

        if (cg_sandbox_new(&plan, &err) < 0)
                return 0;
        base.homes = cg_sup_homes(ss->sup);
        /* Masked files are part of the view, since one may be replaced. */
        for (i = 0; s && i < s->creds.n_files; i++)
                if (s->creds.files[i].mode == CG_CRED_MASK)
                        json_array_append_new(masked, json_pack("{s:s}", "path", s->creds.files[i].what));
        if (s)
                r = cg_session_view(plan, s, masked, &base, guards, &err);
        else
                r = cg_session_view_default(plan, &base, guards, &err);
        if (r < 0)
                return 0;
        json_array_foreach(hides, i, path)
                if (cg_sandbox_add_hide(plan, json_string_value(path), &err) < 0)
                        return 0;
        return cg_session_view_print(plan);
}

/*
 * Time limits, the audit log and who decides do not change the kernel. The variables of the user
 * change its view of files at most, which is compared by itself (cg_sup_spare_view()).
 */
static bool same_options(const json_t *a, const json_t *b)
{
        static const char *const free_choice[] = { "timeout_ms",     "approval_timeout_ms",
                                                   "user_env",       "audit",
                                                   "deciders",       "approvers",
                                                   "sign_artifacts", "namespace" };
        cg_auto_json json_t *x = json_copy(cg_json_unconst(a)), *y = json_copy(cg_json_unconst(b));

        for (size_t i = 0; i < CG_ARRAY_LEN(free_choice); i++) {
                json_object_del(x, free_choice[i]);
                json_object_del(y, free_choice[i]);
        }
        return json_equal(x, y);
}

static size_t count(const struct sup *s, const json_t *options)
{
        size_t n = 0;

        for (size_t i = 0; i < s->spares->n; i++)
                n += same_options(s->spares->list[i].session->options, options);
        return n;
}

static struct spare *find(struct sup *s, const struct session *ss)
{
        for (size_t i = 0; i < s->spares->n; i++)
                if (s->spares->list[i].session == ss)
                        return &s->spares->list[i];
        return NULL;
}

/* Removes @sp from the spares; the session is the caller's. */
static struct session *take(struct sup *s, struct spare *sp)
{
        struct session *ss = sp->session;

        close(sp->workspace);
        s->spares->n--;
        for (; sp < s->spares->list + s->spares->n; sp++)
                sp[0] = sp[1];
        return ss;
}

static void drop(struct sup *s, struct spare *sp)
{
        s->upper.session->end(take(s, sp), NULL);
}

void cg_sup_spares_stop(struct sup *s)
{
        while (s->spares->n)
                drop(s, s->spares->list);
        json_decref(CG_STEAL(s->spares->options));
        uv_timer_stop(&s->spares->timer);
        s->spares->host = NULL;
}

static void on_timer(uv_timer_t *t)
{
        struct sup *s = t->data;
        json_t *options = s->spares->options;
        struct spare *sp = &s->spares->list[s->spares->n];
        struct cg_err err;

        if (!options || s->spares->n >= CG_MAX_SPARES || s->stopping ||
            count(s, options) >= s->setup.want_spares)
                return;
        sp->workspace = open(json_string_value(json_object_get(options, "workspace")),
                             O_PATH | O_CLOEXEC | O_DIRECTORY);
        sp->host = s->spares->host;
        sp->outdated = false;
        sp->session = s->upper.session->make(s, NULL, options, 0, &err);
        if (sp->session) {
                s->spares->n++;
        } else {
                cg_log(&s->log, CG_LOG_WARN, "no spare: %s", err.msg);
                cg_closep_(&sp->workspace);
        }
}

static void arm(struct sup *s)
{
        cg_sup_timer_start(&s->spares->timer, on_timer, (uint64_t)DELAY_MS << s->spares->deaths);
}

/*
 * A sandbox has all mounts of the machine as they were when it started: a file system that is
 * unmounted stays in use, and perhaps unwritten, until the spares of the past have ended.
 */
static void on_mounts_changed(struct watch *w)
{
        struct sup *s = w->data;

        for (size_t i = 0; i < s->spares->n;) {
                struct spare *sp = &s->spares->list[i];

                sp->outdated = true;
                if (sp->host)
                        i++;
                else
                        drop(s, sp);
        }
}

int cg_sup_spares_start(struct sup *s, struct cg_err *err)
{
        int fd;

        s->spares = calloc(1, sizeof(*s->spares));
        if (!s->spares)
                return cg_fail(err, CG_E_NOMEM, "spares");
        uv_timer_init(&s->loop, &s->spares->timer);
        s->spares->timer.data = s;
        if (s->setup.private_mode)
                return 0;
        fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return cg_fail_errno(err, "/proc/self/mountinfo");
        if (cg_sup_watch_start(s, &s->spares->mounts, fd, on_mounts_changed, s, err) < 0)
                return -1;
        cg_sup_watch_for(&s->spares->mounts, UV_PRIORITIZED); /* a change; it is always readable */
        return 0;
}

struct session *cg_sup_spare_take(struct host *h, const json_t *options)
{
        struct sup *s = h->sup;
        struct stat held, named;

        if (s->setup.private_mode && s->spares->host != h)
                return NULL;
        for (size_t i = 0; i < s->spares->n; i++) {
                struct spare *sp = &s->spares->list[i];

                if (!sp->session->kernel || sp->session->kernel->state == K_DEAD ||
                    !same_options(sp->session->options, options))
                        continue;
                s->spares->deaths = 0;
                /* The workspace that its sandbox shows has not been replaced by another folder. */
                if (fstat(sp->workspace, &held) == 0 && held.st_nlink > 0 &&
                    stat(sp->session->workspace, &named) == 0 && held.st_dev == named.st_dev &&
                    held.st_ino == named.st_ino)
                        return take(s, sp);
                drop(s, sp);
                return NULL;
        }
        return NULL;
}

void cg_sup_spare_plan(struct session *ss)
{
        struct sup *s = ss->sup;
        size_t others, keep = s->setup.private_mode ? 0 : MAX_OTHERS;

        if (!s->setup.want_spares || !ss->host ||
            json_array_size(json_object_get(ss->options, "python_path")))
                return; /* the host could replace these folders */
        if (ss->settings && cg_doors_on_host(ss->settings))
                return; /* two kernels cannot listen at the same ports of this machine */
        if (s->setup.private_mode && s->spares->host != ss->host)
                cg_sup_spares_stop(s);
        /* Spares for other options; the oldest come first. */
        others = s->spares->n - count(s, ss->options);
        for (size_t i = 0; i < s->spares->n && others > keep;) {
                if (same_options(s->spares->list[i].session->options, ss->options)) {
                        i++;
                } else {
                        drop(s, &s->spares->list[i]);
                        others--;
                }
        }
        json_decref(s->spares->options);
        s->spares->options = json_deep_copy(ss->options);
        s->spares->host = ss->host;
        s->spares->deaths = 0;
        if (count(s, ss->options) < s->setup.want_spares)
                arm(s);
}

/* Variables, credentials and proxies' passwords; with settings that were not read, anything. */
static bool has_secrets(const json_t *options)
{
        const json_t *settings = json_object_get(options, "settings");

        return json_array_size(json_object_get(options, "env")) || json_object_get(settings, "credentials") ||
               json_object_get(json_object_get(settings, "network"), "parentProxy");
}

static bool mount_of(const char *path, uint64_t *ret)
{
        struct statx st;

        if (!path || statx(AT_FDCWD, path, 0, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
                return false;
        *ret = st.stx_mnt_id;
        return true;
}

/*
 * The workspace is in a file system that the user may want to unmount: other than those of the
 * machine, of the home folder and of temporary files.
 */
static bool is_mounted_apart(const struct sup *s, const json_t *options)
{
        const char *const kept[] = { "/", s->setup.home, "/tmp", "/var/tmp" };
        uint64_t mount, other;

        if (!mount_of(json_string_value(json_object_get(options, "workspace")), &mount))
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(kept); i++)
                if (mount_of(kept[i], &other) && other == mount)
                        return false;
        return true;
}

/* A spare with these options ends with its host. */
static bool ends_with_host(const struct sup *s, const json_t *options)
{
        return has_secrets(options) || is_mounted_apart(s, options);
}

json_t *cg_sup_spare_workspaces(const struct sup *s)
{
        json_t *list = json_array();

        for (size_t i = 0; i < s->spares->n; i++)
                json_array_append_new(list, json_string(s->spares->list[i].session->workspace));
        return list;
}

void cg_sup_spares_host_gone(struct sup *s, const struct host *h)
{
        struct spares *all = s->spares;

        for (size_t i = 0; i < all->n;) {
                struct spare *sp = &all->list[i];

                if (sp->host == h && (sp->outdated || ends_with_host(s, sp->session->options))) {
                        drop(s, sp);
                        continue;
                }
                if (sp->host == h)
                        sp->host = NULL;
                i++;
        }
        if (all->host != h)
                return;
        if (s->setup.private_mode)
                cg_sup_spares_stop(s);
        if (ends_with_host(s, all->options))
                json_decref(CG_STEAL(all->options));
        all->host = NULL;
}

bool cg_sup_spare_ready(struct session *ss)
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
        ss->use.warming = true;
        cg_sup_kernel_send(ss->kernel, &out,
                           json_pack("{s:b, s:b, s:b, s:b}", "silent", 0, "store_history", 1, "allow_stdin",
                                     0, "warm", 1));
        return true;
}

bool cg_sup_spare_message(struct session *ss, const struct cg_msg *m)
{
        if (!ss->use.warming)
                return find(ss->sup, ss) != NULL;
        if (m->type == CG_KERNEL_EXECUTE_REPLY && m->id == WARM_CELL) {
                ss->use.warming = false;
                ss->sup->upper.session->warmed(ss);
                if (find(ss->sup, ss)) /* perhaps more are wanted */
                        arm(ss->sup);
        }
        return true;
}

bool cg_sup_spare_ended(struct session *ss)
{
        struct sup *s = ss->sup;
        struct spare *sp = find(s, ss);

        if (!sp)
                return false;
        drop(s, sp);
        /*
         * cg_sup_spare_plan() may have counted it while its end was not known yet, so the successor
         * is started from here.
         */
        if (++s->spares->deaths < MAX_DEATHS)
                arm(s);
        else
                cg_log(&s->log, CG_LOG_WARN,
                       "%d spare kernels in a row ended by themselves: no other is started until "
                       "the next session opens",
                       MAX_DEATHS);
        return true;
}
