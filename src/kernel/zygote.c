/* The zygote's loop: starts and reaps kernels. One thread; no Python of users. See zygote.h. */
#include "kernel/zygote.h"

#include <sys/epoll.h>
#include <sys/queue.h>
#include <signal.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/json.h"
#include "kernel/kernel.h"
#include "kernel/spec.h"
#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"

#define REQUEST_BYTES 4096
/* spec memfd, listener of the kernel wire, listener of the tool wire */
#define REQUEST_FDS 4
/*
 * Time without requests before the warm-up goes on. It takes a tenth of a second of a processor,
 * which a program that runs some cells in one kernel and then ends does not need.
 */
#define WARM_UP_MS 1000
/* Time without requests before completion is prepared. */
#define IDLE_MS 200
/* Kernels that do not wait for the warm-up, without which each takes some MB more. */
#define COLD_FORKS 4
/*
 * Kernels of notebooks that are forked before completion is prepared here, since it takes seconds
 * and some 40 MB: a notebook and its spare prepare it themselves. Those that are forked later, but
 * before that has finished, prepare it at their first completion only: ten notebooks that are
 * opened at once do not each take these 40 MB.
 */
#define NOTEBOOK_FORKS 2

struct child {
        LIST_ENTRY(child) entry;
        json_int_t id; /* of the request */
        pid_t pid;
        int pidfd;
        const char *tier;
        struct cg_cgroup *cgroup; /* NULL: none */
};

struct cg_zygote {
        int control;
        int epoll;
        const struct cg_log *log;
        /* copied for every kernel, so that the system call filter is compiled once */
        struct cg_sandbox *base;
        LIST_HEAD(child_list, child) children;
        bool cold;           /* the warm-up is not finished */
        unsigned cold_forks; /* kernels that were forked before that */
        unsigned notebooks;  /* kernels of notebooks that were requested */
        bool completion;     /* to be prepared while there are no requests */
};

int cg_zygote_new(int control, const struct cg_log *log, struct cg_zygote **ret, struct cg_err *err)
{
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
        struct cg_zygote *z = calloc(1, sizeof(*z));

        if (!z)
                return cg_fail(err, CG_E_NOMEM, "zygote");
        z->control = control;
        z->log = log;
        z->cold = true;
        z->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (z->epoll < 0 || epoll_ctl(z->epoll, EPOLL_CTL_ADD, control, &ev) < 0) {
                cg_fail_errno(err, "control socket");
                cg_zygote_free(z);
                return CG_E_SYS;
        }
        if (cg_sandbox_new(&z->base, err) < 0) {
                cg_zygote_free(z);
                return CG_E_SYS;
        }
        cg_cgroup_tidy(NULL);
        cg_spawn_spec_wipe_json();
        *ret = z;
        return 0;
}

/* Takes @body. */
static int send_json(struct cg_zygote *z, json_t *body, const int *fds, size_t n_fds, struct cg_err *err)
{
        size_t len = 0;
        cg_auto_free char *text = cg_json_text(body, &len);

        json_decref(body);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "reply");
        return cg_send_fds(z->control, text, len, fds, n_fds, err);
}

/* ------------------------------------------------------------------ children */

/* Takes @child->cgroup on success. */
static int add_child(struct cg_zygote *z, json_int_t id, const struct cg_sandbox *plan,
                     const struct cg_sandbox_child *child, struct cg_err *err)
{
        int pidfd = child->init_pidfd;
        struct child *c = calloc(1, sizeof(*c));
        struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

        if (!c)
                return cg_fail(err, CG_E_NOMEM, "kernel's entry");
        if (epoll_ctl(z->epoll, EPOLL_CTL_ADD, pidfd, &ev) < 0) {
                free(c);
                return cg_fail_errno(err, "kernel's entry");
        }
        c->id = id;
        c->pid = child->init_pid;
        c->pidfd = pidfd;
        c->tier = cg_sandbox_tier(plan);
        c->cgroup = child->cgroup;
        LIST_INSERT_HEAD(&z->children, c, entry);
        return 0;
}

static void reap(pid_t pid)
{
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

/* Its init has ended, and so has everything inside. */
static void remove_child(struct cg_zygote *z, struct child *c)
{
        LIST_REMOVE(c, entry);
        /* close() alone does not remove it: the supervisor holds the same open file. */
        epoll_ctl(z->epoll, EPOLL_CTL_DEL, c->pidfd, NULL);
        reap(c->pid);
        close(c->pidfd);
        if (c->cgroup) { /* report its counters before it is removed; errors do not matter */
                struct cg_limit_counts counts;
                json_t *body;

                cg_cgroup_counts(c->cgroup, &counts);
                body = json_pack("{s:I, s:I, s:I, s:I, s:I}", "ended", c->id, "oom_kills",
                                 (json_int_t)counts.oom_kills, "outer_kills", (json_int_t)counts.outer_kills,
                                 "forks_denied", (json_int_t)counts.forks_denied, "cpu_ms",
                                 (json_int_t)counts.cpu_ms);
                send_json(z, body, NULL, 0, NULL);
        }
        cg_cgroup_free(c->cgroup);
        free(c);
}

struct cg_zygote *cg_zygote_free(struct cg_zygote *z)
{
        if (!z)
                return NULL;
        struct child *c;

        LIST_FOREACH(c, &z->children, entry)
                cg_sandbox_kill(c->pidfd, c->tier);
        while ((c = LIST_FIRST(&z->children)))
                remove_child(z, c);
        cg_closep_(&z->epoll);
        cg_sandbox_free(z->base);
        free(z);
        return NULL;
}

/* ------------------------------------------------------------------ replies */

int cg_zygote_send_ready(struct cg_zygote *z, const struct cg_py_versions *v, const struct cg_err *failure,
                         struct cg_err *err)
{
        json_t *body;

        if (failure)
                body = json_pack("{s:b, s:i, s:s}", "ready", 0, "code", failure->code, "message",
                                 failure->msg);
        else
                body = json_pack("{s:b, s:s, s:s}", "ready", 1, "python", v->python, "ipython", v->ipython);
        return send_json(z, body, NULL, 0, err);
}

static int send_spawned(struct cg_zygote *z, json_int_t id, const struct cg_sandbox_child *child,
                        const struct cg_sandbox *plan, struct cg_err *err)
{
        const char *const *names = cg_sandbox_layers(plan);
        json_t *layers = json_array(), *by = json_array(), *body;
        struct cg_cgroup_files files = { NULL, NULL, NULL };
        int fds[5 + CG_SANDBOX_PORTS_MAX] = { child->init_pidfd, child->status_fd, child->commands_fd,
                                              child->denials_fd };
        size_t n = child->denials_fd >= 0 ? 4 : 3;
        const char *tier = cg_sandbox_tier(plan);

        for (; names && *names; names++)
                json_array_append_new(layers, json_string(*names));
        for (size_t i = 0; i < CG_LIMITS; i++)
                json_array_append_new(by, json_integer(child->by[i]));
        if (child->cgroup)
                cg_cgroup_paths(child->cgroup, &files);
        body = json_pack("{s:I, s:s, s:i, s:o, s:b, s:b, s:o, s:b, s:{s:s*, s:s*, s:s*}}", "spawned", id,
                         "tier", tier, "pid", (int)child->init_pid, "layers", layers, "denials",
                         child->denials_fd >= 0, "doors", child->doors_fd >= 0, "limits_by", by, "group",
                         child->cgroup != NULL, "counts", "memory", files.memory, "processes",
                         files.processes, "cpu", files.cpu);
        if (strcmp(tier, "landlock") == 0)
                json_object_set_new(body, "landlock_abi", json_integer(cg_landlock_abi()));
        if (child->doors_fd >= 0)
                fds[n++] = child->doors_fd;
        for (size_t i = 0; i < CG_SANDBOX_PORTS_MAX && child->ports[i] >= 0; i++)
                fds[n++] = child->ports[i];
        return send_json(z, body, fds, n, err);
}

/* ------------------------------------------------------------------ requests */

/* The supervisor has closed its end of the control socket. */
static bool has_ended(const struct cg_zygote *z)
{
        return cg_wait_fd(z->control, 0, 0, NULL) == 0;
}

/* The rest of the warm-up, before the forks of kernels that share what it imports. */
static int warm_up(struct cg_zygote *z, struct cg_err *err)
{
        while (z->cold) {
                int r = cg_py_warm_up(err);

                if (r < 0)
                        return r;
                z->cold = r > 0;
                if (has_ended(z))
                        return cg_fail(err, CG_E_CLOSED, "the supervisor has ended");
        }
        return 0;
}

static int fork_kernel(struct cg_zygote *z, const struct cg_spawn_spec *spec, const int *fds,
                       struct cg_sandbox_child *ret, struct cg_err *err)
{
        int keep[] = { fds[1], fds[2], fds[3] };
        struct cg_kernel_start start = { .config = spec->config,
                                         .config_len = spec->config_len,
                                         .kernel_fd = fds[1],
                                         .tool_fd = fds[2],
                                         .function_fd = fds[3],
                                         .plan = spec->plan,
                                         .log = z->log };
        int r;

        cg_sandbox_free_in_init(spec->plan, cg_py_free_in_init);
        cg_py_before_fork();
        /* Fails if this process has a second thread. */
        r = cg_sandbox_spawn_prepared(spec->plan, keep, CG_ARRAY_LEN(keep), cg_kernel_prepare, cg_kernel_main,
                                      &start, ret, err);
        cg_py_after_fork_parent();
        return r;
}

/* On failure *err is sent to the supervisor as the reply. */
static int spawn(struct cg_zygote *z, json_int_t id, bool spare, const int *fds, struct cg_err *err)
{
        cg_auto_spawn_spec struct cg_spawn_spec spec;
        struct cg_sandbox_child child;
        int r = cg_spawn_spec_read(fds[0], z->base, &spec, err);

        if (r < 0)
                return r;
        /* The supervisor removes it. */
        if (spec.tmp && mkdir(spec.tmp, 0700) < 0)
                return cg_fail_errno(err, "folder for temporary files %s", spec.tmp);
        if (z->cold && (spare || z->cold_forks++ >= COLD_FORKS) && (r = warm_up(z, err)) < 0)
                return r;
        if (spec.notebook && z->notebooks++ == NOTEBOOK_FORKS) {
                z->completion = true;
                r = cg_py_plan_completion(err);
                if (r < 0)
                        return r;
        }
        r = fork_kernel(z, &spec, fds, &child, err);
        if (r < 0)
                return r;
        r = add_child(z, id, spec.plan, &child, err);
        if (r < 0) {
                cg_pidfd_kill(child.init_pidfd, SIGKILL);
                reap(child.init_pid);
                close(child.init_pidfd);
                cg_cgroup_free(child.cgroup);
        } else {
                r = send_spawned(z, id, &child, spec.plan, err);
        }
        close(child.status_fd);
        cg_closep_(&child.denials_fd);
        cg_closep_(&child.doors_fd);
        cg_closep_(&child.commands_fd);
        for (size_t i = 0; i < CG_SANDBOX_PORTS_MAX; i++)
                cg_closep_(&child.ports[i]);
        return r;
}

static int obey_request(struct cg_zygote *z, const char *text, size_t len, const int *fds, size_t n_fds,
                        int64_t *id, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        bool spare = false;
        int r;

        if ((r = cg_json_object(text, len, "request", &o, err)) < 0 ||
            (r = cg_json_int(o, "spawn", -1, id, err)) < 0 ||
            (r = cg_json_bool(o, "spare", false, &spare, err)) < 0)
                return r;
        if (*id < 0)
                return cg_fail(err, CG_E_PROTO, "request without \"spawn\"");
        if (n_fds != REQUEST_FDS)
                return cg_fail(err, CG_E_PROTO, "spawn request with %zu descriptors, expected %d", n_fds,
                               REQUEST_FDS);
        return spawn(z, *id, spare, fds, err);
}

/* One request. 0; CG_CLOSED: the supervisor closed its end; negative: the socket is unusable. */
static int serve_request(struct cg_zygote *z, struct cg_err *err)
{
        char text[REQUEST_BYTES];
        int fds[REQUEST_FDS];
        size_t n_fds = REQUEST_FDS;
        int64_t id = 0;
        struct cg_err why;
        ssize_t len = cg_recv_fds(z->control, text, sizeof(text), fds, &n_fds, err);
        int r;

        if (len == 0)
                return CG_CLOSED;
        if (len < 0)
                return (int)len;
        r = obey_request(z, text, (size_t)len, fds, n_fds, &id, &why);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        if (r >= 0)
                return 0;
        if (has_ended(z))
                return CG_CLOSED; /* the supervisor needs no kernel any more */
        cg_log(z->log, CG_LOG_WARN, "no kernel for request %lld: %s", (long long)id, why.msg);
        return send_json(z,
                         json_pack("{s:I, s:i, s:i, s:s}", "failed", (json_int_t)id, "code", why.code,
                                   "errno", why.sys_errno, "message", why.msg),
                         NULL, 0, err);
}

/* One part, so that requests do not wait. Returns the time until the next one; -1: never. */
static int prepare(struct cg_zygote *z)
{
        struct cg_err why;
        int r = z->cold ? cg_py_warm_up(&why) : cg_py_prepare_completion(&why);

        if (z->cold)
                z->cold = r != 0;
        else
                z->completion = r > 0;
        if (r >= 0)
                return r ? 0 : IDLE_MS;
        cg_log(z->log, CG_LOG_WARN, "preparing kernels: %s", why.msg);
        return -1; /* the next request reports it */
}

int cg_zygote_serve(struct cg_zygote *z, struct cg_err *err)
{
        int idle_ms = IDLE_MS; /* 0 once there was time without requests */

        for (;;) {
                struct epoll_event ev[16];
                int n = epoll_wait(z->epoll, ev, CG_ARRAY_LEN(ev), z->cold || z->completion ? idle_ms : -1);
                bool request = false;
                int r;

                if (n < 0 && errno != EINTR)
                        return cg_fail_errno(err, "epoll_wait");
                if (n == 0)
                        idle_ms = prepare(z);
                else
                        idle_ms = z->cold ? WARM_UP_MS : IDLE_MS;
                for (int i = 0; i < n; i++)
                        if (ev[i].data.ptr)
                                remove_child(z, ev[i].data.ptr);
                        else
                                request = true;
                r = request ? serve_request(z, err) : 0;
                /* the supervisor has ended */
                if (r == CG_CLOSED || (r < 0 && err && err->sys_errno == EPIPE))
                        return 0;
                if (r != 0)
                        return r;
        }
}
