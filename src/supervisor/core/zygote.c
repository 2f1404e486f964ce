/*
 * cellgate-supervisor: the zygote, the process every kernel is forked from. Python never runs in
 * the supervisor.
 */
#include "supervisor/core/zygote.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/proc.h"
#include "config.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/session_limits.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* A zygote's end before this is a quick death; after MAX_QUICK in a row it is not started again. */
#define QUICK_MS  10000
#define MAX_QUICK 3
/* For its orderly end, which kills all kernels. */
#define END_MS 3000
/* Datagrams from the zygote: one reply each, with an error message at most. */
#define REPLY_MAX 65536

struct zygote {
        struct cg_proc proc;
        struct watch control, pid;
        bool up, ready;
        int closing; /* handles whose close callback is still to come: no successor before */
        char *python, *ipython;
        struct kernel *waiting; /* kernels to request once it is ready */
        int64_t started_ms;
        unsigned quick_deaths;
        bool reported_failure; /* it has sent why it does not start; waiting kernels have failed */
};

int cg_sup_zygote_new(struct sup *s, struct cg_err *err)
{
        s->zygote = calloc(1, sizeof(*s->zygote));
        return cg_made(s->zygote, "zygote", err);
}

const char *cg_sup_zygote_python(const struct sup *s)
{
        return s->zygote->python;
}

const char *cg_sup_zygote_ipython(const struct sup *s)
{
        return s->zygote->ipython;
}

static void fail_waiting(struct sup *s, const struct cg_err *err)
{
        while (s->zygote->waiting) {
                struct kernel *k = s->zygote->waiting;

                s->zygote->waiting = k->next_waiting;
                s->upper.zygote->failed(k, err);
        }
}

static void handle_reply(struct sup *s, json_t *o, int *fds, size_t n_fds)
{
        json_int_t seq = json_integer_value(json_object_get(o, "spawned"));
        json_int_t failed = json_integer_value(json_object_get(o, "failed"));
        struct kernel *k = cg_sup_kernel_by_seq(s, (uint64_t)(seq ?: failed));
        struct cg_err err = { .code = CG_E_SYS };

        if (k && seq && n_fds >= 3) {
                bool reports = json_is_true(json_object_get(o, "denials"));
                bool doors = json_is_true(json_object_get(o, "doors"));
                size_t n = 3 + reports; /* these are the kernel's */
                struct cg_spawned spawned = { .pidfd = fds[0],
                                              .status_fd = fds[1],
                                              .commands_fd = fds[2],
                                              .denials_fd = reports ? fds[3] : -1,
                                              .doors_fd = doors ? fds[n] : -1,
                                              .ports = fds + n + doors,
                                              .n_ports = n_fds - n - doors };

                s->upper.zygote->spawned(k, o, &spawned);
                for (size_t i = n; i < n_fds; i++)
                        close(fds[i]);
                return;
        }
        /* the kernel was ended meanwhile: its init is killed */
        if (n_fds)
                cg_pidfd_kill(fds[0], SIGKILL);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        if (!k)
                return;
        cg_fail(&err, (int)json_integer_value(json_object_get(o, "code")), "%s",
                json_string_value(json_object_get(o, "message")) ?: "the zygote gave no reason");
        if (err.code >= 0)
                err.code = CG_E_SYS;
        err.sys_errno = (int)json_integer_value(json_object_get(o, "errno"));
        s->upper.zygote->failed(k, &err);
}

static void on_control(struct watch *w)
{
        struct sup *s = w->data;
        struct zygote *z = s->zygote;
        char text[REPLY_MAX];
        int fds[CG_MAX_FDS];
        size_t n_fds = CG_MAX_FDS;
        cg_auto_json json_t *o = NULL;
        struct kernel *k;
        struct cg_err err;
        ssize_t n = cg_recv_fds(w->fd, text, sizeof(text), fds, &n_fds, &err);

        if (n < 0) {
                if (err.sys_errno != EAGAIN)
                        cg_log(&s->log, CG_LOG_ERROR, "zygote: %s", err.msg);
                return;
        }
        if (n == 0) /* end of file: the watch of its process handles that */
                return;
        if (cg_json_object(text, (size_t)n, "zygote's message", &o, &err) < 0) {
                cg_log(&s->log, CG_LOG_ERROR, "%s", err.msg);
                for (size_t i = 0; i < n_fds; i++)
                        close(fds[i]);
                return;
        }
        if (json_object_get(o, "ended")) { /* the final counters of a kernel's control group */
                k = cg_sup_kernel_by_seq(s, (uint64_t)json_integer_value(json_object_get(o, "ended")));
                if (!k)
                        return;
                cg_sup_limits_counted(k, o);
                s->upper.zygote->counted(k);
        } else if (json_is_true(json_object_get(o, "ready"))) {
                free(z->python);
                free(z->ipython);
                z->python = strdup(cg_json_text_of(o, "python"));
                z->ipython = strdup(cg_json_text_of(o, "ipython"));
                z->ready = true;
                cg_log(&s->log, CG_LOG_INFO, "zygote ready after %lld ms: Python %s, IPython %s",
                       (long long)(cg_now_ms() - z->started_ms), z->python, z->ipython);
                while ((k = z->waiting)) {
                        z->waiting = k->next_waiting;
                        k->next_waiting = NULL;
                        s->upper.zygote->spawn(k);
                }
        } else if (json_is_false(json_object_get(o, "ready"))) {
                /* It exits by itself now. Waiting kernels fail; the next request starts another. */
                cg_fail(&err, CG_E_STATE, "kernels cannot be started: %s",
                        json_string_value(json_object_get(o, "message")) ?: "the zygote gave no reason");
                /* Sessions that wait for a kernel report it. */
                z->reported_failure = z->waiting != NULL;
                cg_log(&s->log, z->waiting ? CG_LOG_INFO : CG_LOG_ERROR, "%s", err.msg);
                fail_waiting(s, &err);
        } else {
                handle_reply(s, o, fds, n_fds);
        }
}

static void start_for_waiting(struct sup *s)
{
        struct zygote *z = s->zygote;
        struct cg_err err;

        if (cg_now_ms() - z->started_ms >= QUICK_MS)
                z->quick_deaths = 0;
        if (z->quick_deaths >= MAX_QUICK) {
                cg_fail(&err, CG_E_CLOSED,
                        "the zygote, which all kernels are forked from, ended %d times in a row; its log says "
                        "why; it is tried again 10 s after the last time",
                        MAX_QUICK);
                fail_waiting(s, &err);
        } else if (cg_sup_zygote_start(s, &err) < 0) {
                fail_waiting(s, &err);
        }
}

static void on_watch_closed(struct watch *w)
{
        struct sup *s = w->data;

        if (--s->zygote->closing == 0 && s->zygote->waiting && !s->stopping)
                start_for_waiting(s);
}

static void close_watches(struct zygote *z)
{
        z->up = z->ready = false;
        z->closing += cg_sup_watch_close(&z->control, on_watch_closed);
        z->closing += cg_sup_watch_close(&z->pid, on_watch_closed);
}

static void on_zygote_end(struct watch *w)
{
        struct sup *s = w->data;
        struct zygote *z = s->zygote;
        char how[64] = "ended";
        int status = 0;

        if (waitpid(z->proc.pid, &status, WNOHANG) != z->proc.pid)
                return;
        cg_proc_describe(status, how, sizeof(how));
        z->proc = CG_PROC_NONE; /* its pidfd belongs to the watch */
        s->children[CG_CHILD_ZYGOTE] = 0;
        close_watches(z);
        if (s->stopping)
                return;
        z->quick_deaths = cg_now_ms() - z->started_ms < QUICK_MS ? z->quick_deaths + 1 : 0;
        cg_log(&s->log, z->reported_failure ? CG_LOG_INFO : CG_LOG_ERROR, "the zygote ended (%s)", how);
        z->reported_failure = false;
        /*
         * Kernels that were requested or starting end with it: their sessions request new ones from
         * the next zygote. The kernels are new ones: what the old zygote made of its last request
         * may still hold the old ones' sockets.
         */
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct kernel *k = s->sessions[i] ? s->sessions[i]->kernel : NULL;

                if (k && k->state != K_WAITING && !cg_sup_kernel_was_ready(k))
                        s->upper.kernel->start_lost(s->sessions[i],
                                                    "the zygote, which all kernels are forked from, ended");
        }
}

int cg_sup_zygote_start(struct sup *s, struct cg_err *err)
{
        struct zygote *z = s->zygote;
        char level[16];
        const char *program = CG_INSTALLED(CG_KERNEL_PROGRAM);
        const char *argv[20] = { "cellgate-kernel" };
        size_t n = 1;
        cg_auto_fd int ours = -1, theirs = -1;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { s->log.fd, 2 }, { -1, 3 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(program, argv, NULL, fds, .cwd = "/", .new_session = true,
                                                .die_with_parent = true);
        char python[PATH_MAX + 16], script[PATH_MAX + 64], runtime[PATH_MAX], tmp[128];
        /* /tmp may be a workspace: cells could change temporary files of preloaded modules. */
        char *const env[] = { tmp, NULL };
        int pair[2], big = 1 << 20;

        snprintf(tmp, sizeof(tmp), "TMPDIR=%s", s->setup.dir);
        spec.envp = env;
        if (CG_WHEEL) { /* isolated: no variable, no user's packages and no current folder takes part */
                if (cg_kernel_env_module(s->setup.kernel_env, script, err) < 0)
                        return -1;
                strcpy(strrchr(script, '/'), "/cellgate_kernel/__main__.py");
                snprintf(python, sizeof(python), "%s/bin/python", s->setup.kernel_env);
                spec.path = argv[0] = python;
                argv[n++] = "-I";
                argv[n++] = "-X";
                argv[n++] = "utf8";
                argv[n++] = script;
                argv[n++] = "--runtime"; /* the module may be another installation's */
                argv[n++] = cg_installed(runtime, "");
        }
        snprintf(level, sizeof(level), "%d", s->log.level);
        argv[n++] = "--zygote";
        argv[n++] = "--log-level";
        argv[n++] = level;
        if (s->setup.preload) {
                argv[n++] = "--preload";
                argv[n++] = s->setup.preload;
        }
        if (s->setup.kernel_env) {
                argv[n++] = "--kernel-env";
                argv[n++] = s->setup.kernel_env;
        }
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "socketpair");
        ours = pair[0];
        theirs = pair[1];
        setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
        fds[3].fd = theirs;
        z->started_ms = cg_now_ms();
        if (cg_proc_spawn(&spec, &z->proc, err) < 0)
                return cg_err_prefix(err, "zygote");
        z->up = true;
        s->children[CG_CHILD_ZYGOTE] = z->proc.pid;
        if (cg_sup_watch_start(s, &z->control, cg_steal_fd(&ours), on_control, s, err) < 0 ||
            cg_sup_watch_start(s, &z->pid, z->proc.pidfd, on_zygote_end, s, err) < 0)
                return -1;
        return 0;
}

void cg_sup_zygote_stop(struct sup *s)
{
        struct zygote *z = s->zygote;

        /* The end of its control socket makes it exit and kill all kernels. */
        if (z->up) {
                shutdown(z->control.fd, SHUT_RDWR);
                if (cg_wait_fd(z->proc.pidfd, POLLIN, END_MS, NULL) != 0) {
                        cg_pidfd_kill(z->proc.pidfd, SIGKILL);
                        cg_wait_fd(z->proc.pidfd, POLLIN, END_MS, NULL);
                }
                waitpid(z->proc.pid, NULL, WNOHANG);
                z->proc = CG_PROC_NONE;
                s->children[CG_CHILD_ZYGOTE] = 0;
        }
        close_watches(z);
        free(z->python);
        free(z->ipython);
        z->python = z->ipython = NULL;
}

void cg_sup_zygote_want(struct kernel *k)
{
        struct sup *s = k->sup;
        struct zygote *z = s->zygote;
        struct kernel **p;

        if (z->ready) {
                s->upper.zygote->spawn(k);
                return;
        }
        for (p = &z->waiting; *p; p = &(*p)->next_waiting)
                ;
        *p = k;
        k->next_waiting = NULL;
        if (!z->up && z->closing == 0)
                start_for_waiting(s);
}

void cg_sup_zygote_forget(struct kernel *k)
{
        for (struct kernel **p = &k->sup->zygote->waiting; *p; p = &(*p)->next_waiting) {
                if (*p == k) {
                        *p = k->next_waiting;
                        return;
                }
        }
}

int cg_sup_zygote_request(struct sup *s, uint64_t seq, bool spare, const int fds[4], struct cg_err *err)
{
        char text[64];
        int n = snprintf(text, sizeof(text), "{\"spawn\": %llu, \"spare\": %s}", (unsigned long long)seq,
                         cg_bool_text(spare));

        return cg_send_fds(s->zygote->control.fd, text, (size_t)n, fds, 4, err);
}
