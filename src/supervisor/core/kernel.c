/*
 * cellgate-supervisor: one kernel, from the request to the zygote to its end. Everything that comes
 * from it is untrusted.
 */
#include "supervisor/core/kernel.h"

#include <signal.h>
#include <sys/mman.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/state_dir.h"
#include "config.h"
#include "supervisor/ask/broker.h"
#include "supervisor/cells/commands.h"
#include "supervisor/limits/costs.h"
#include "supervisor/limits/denials.h"
#include "supervisor/network/doors.h"
#include "supervisor/network/egress.h"
#include "supervisor/ask/functions.h"
#include "supervisor/core/host_link.h"
#include "supervisor/ask/programs.h"
#include "supervisor/servers/protected.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/session_limits.h"
#include "supervisor/network/masks.h"
#include "supervisor/limits/machine_memory.h"
#include "supervisor/core/remove.h"
#include "supervisor/core/state.h"

/* Time for functions registered with atexit; the kernel itself waits a little less. */
#define RETIRE_MS 1000
/* Time to read the last messages of a dead kernel, in turn with other events. */
#define DRAIN_MS 30
/* Time for the zygote to send the final counters of the control group, after it has reaped init. */
#define COUNTS_MS 1000
/* Bytes that may wait to be read by a kernel: the largest message, a request, and its envelope. */
#define MAX_UNREAD ((size_t)CG_MAX_DISPLAY + CG_MAX_BODY)
/* The folder of the generated modules inside the sandbox. */
#define LIB_INSIDE "/run/cellgate/lib"

/* The folder for temporary files, and home, of a kernel of the landlock tier. */
#define TMP_PATH 160
static const char *tmp_path(const struct kernel *k, char path[TMP_PATH])
{
        snprintf(path, TMP_PATH, "%s/tmp%llu", k->sup->setup.dir, (unsigned long long)k->seq);
        return path;
}

/* ------------------------------------------------------------------ its end */

static void kernel_free(struct kernel *k)
{
        cg_closep_(&k->sockets.kernel_fd);
        cg_closep_(&k->sockets.tool_fd);
        cg_closep_(&k->sockets.function_fd);
        cg_closep_(&k->status_fd);
        cg_sup_costs_close(k);
        json_decref(k->report.layers);
        json_decref(k->report.landlock_abi);
        free(k->report.tier);
        json_decref(k->guards);
        cg_sup_masks_free(k);
        cg_sup_limits_release(k);
        free(k->report.python);
        free(k->report.ipython);
        free(k);
}

static void closed_one(struct kernel *k)
{
        if (--k->closing == 0)
                kernel_free(k);
}

static void on_link_closed(struct cg_zlink *z)
{
        closed_one(z->data);
}

static void on_handle_closed(uv_handle_t *h)
{
        closed_one(h->data);
}

static void on_watch_closed(struct watch *w)
{
        closed_one(w->data);
}

static void close_timer(struct kernel *k, uv_timer_t *t, bool *open)
{
        if (!*open)
                return;
        *open = false;
        k->closing++;
        t->data = k;
        uv_close((uv_handle_t *)t, on_handle_closed);
}

/* Closes every handle; the last close frees the kernel. */
static void kernel_dispose(struct kernel *k)
{
        char tmp[TMP_PATH];

        k->closing++; /* held until all closes are requested */
        if (k->links.main_open) {
                k->links.main_open = false;
                k->closing++;
                cg_zlink_close(&k->links.main, on_link_closed);
        }
        k->closing += cg_sup_functions_close(k, on_link_closed);
        k->closing += cg_sup_watch_close(&k->pid, on_watch_closed);
        k->closing += cg_sup_watch_close(&k->retiring.status, on_watch_closed);
        k->closing += cg_sup_watch_close(&k->denied, on_watch_closed);
        k->closing += cg_sup_watch_close(&k->programs, on_watch_closed);
        k->closing += cg_sup_watch_close(&k->doors_watch, on_watch_closed);
        cg_sup_doors_close(k);
        cg_sup_commands_close(k, NULL, NULL, NULL);
        close_timer(k, &k->retiring.drain, &k->retiring.drain_open);
        close_timer(k, &k->lost, &k->lost_open);
        close_timer(k, &k->limits.cpu_timer, &k->limits.cpu_timer_open);
        cg_sup_egress_close(k);
        unlink(k->sockets.kernel);
        unlink(k->sockets.tool);
        unlink(k->sockets.function);
        /*
         * The zygote made it, in the landlock tier. Files that ending processes still make in it
         * are removed with the supervisor's own folder.
         */
        cg_sup_remove(k->sup, tmp_path(k, tmp));
        closed_one(k);
}

void cg_sup_kernel_end(struct kernel *k)
{
        if (!k)
                return;
        if (k->state == K_WAITING)
                cg_sup_zygote_forget(k);
        cg_sup_kernel_kill(k);
        cg_sup_programs_close(k, "the kernel ended");
        cg_sup_commands_close(k, k->session, "kernel_died", "the sandbox has ended");
        if (k->session)
                k->session->kernel = NULL;
        k->session = NULL;
        k->state = K_DEAD;
        kernel_dispose(k);
}

static void report_retired(struct kernel *k)
{
        struct cg_out out = { .type = CG_HOST_DONE,
                              .session = k->retiring.session,
                              .id = k->retiring.request };
        struct host *h = cg_sup_host_by_number(k->sup, k->retiring.host);

        if (h && k->retiring.request)
                cg_sup_host_send(h, &out, json_object());
        k->retiring.request = 0;
}

/*
 * Init reports that nothing inside runs or writes any more, at the latest when it has ended all
 * other processes. To free their memory and the namespaces takes longer than all the rest: the host
 * does not wait for that.
 */
static void on_status(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_sandbox_status st;

        if (read(w->fd, &st, sizeof(st)) == (ssize_t)sizeof(st) &&
            (st.magic == CG_SANDBOX_STOPPED_MAGIC || st.magic == CG_SANDBOX_STATUS_MAGIC))
                report_retired(k);
        cg_sup_watch_for(w, 0);
}

static void on_overdue(uv_timer_t *t)
{
        cg_sup_kernel_kill(t->data);
}

void cg_sup_kernel_retire(struct kernel *k, struct host *h, uint64_t session, uint64_t request)
{
        struct cg_out out = { .type = CG_KERNEL_SHUTDOWN_REQUEST };

        cg_sup_programs_close(k, "the kernel ended");
        k->retiring.host = h ? h->number : 0;
        k->retiring.session = session;
        k->retiring.request = request;
        if (k->state != K_READY || k->violation_text[0] || k->lost_open) {
                report_retired(k);
                cg_sup_kernel_end(k);
                return;
        }
        cg_sup_doors_close(k); /* the session's next kernel may want the same ports of this machine */
        cg_sup_kernel_send(k, &out, NULL);
        cg_sup_kernel_pause(k, false); /* its output is discarded now, so it must not block */
        if (cg_sup_is_sandboxed(k->session) && k->status_fd >= 0)
                cg_sup_watch_start(k->sup, &k->retiring.status, cg_steal_fd(&k->status_fd), on_status, k,
                                   NULL);
        k->session->kernel = NULL;
        k->session = NULL;
        k->retiring.on = true;
        k->sup->unfinished.kernels++;
        if (!k->lost_open) { /* sending may have found that the kernel has closed its connection */
                uv_timer_init(&k->sup->loop, &k->lost);
                k->lost.data = k;
                k->lost_open = true;
        }
        cg_sup_timer_start(&k->lost, on_overdue, RETIRE_MS);
}

/* Describes a SIGKILL, whose sender is unknown, by the counters of the OOM killer. */
static void describe_kill(const struct kernel *k, const char *whom, char *buf, size_t size)
{
        uint64_t limit;

        if (k->limits.in_group && k->limits.counts.outer_kills > k->limits.reported.outer_kills) {
                snprintf(
                        buf, size,
                        "out of memory: the system killed %s (SIGKILL) because memory was exhausted outside of the sandbox (of the machine, or of a "
                        "control group that cellgate runs in); no limit of its own was reached",
                        whom);
                return;
        }
        switch (cg_oom_since(&k->limits.oom, &limit)) {
        case CG_OOM_GROUP:
                if (limit)
                        snprintf(buf, size,
                                 "out of memory: the system killed %s (SIGKILL), at its limit of %llu MiB",
                                 whom, (unsigned long long)(limit >> 20));
                else
                        snprintf(buf, size, "out of memory: the system killed %s (SIGKILL)", whom);
                break;
        case CG_OOM_MACHINE:
                snprintf(buf, size,
                         "the system killed %s (SIGKILL), probably because the machine is out of memory",
                         whom);
                break;
        case CG_OOM_NO:
                snprintf(
                        buf, size,
                        "%s was killed by SIGKILL, by its own code or from outside; memory was not the reason",
                        whom);
                break;
        default:
                snprintf(
                        buf, size,
                        "%s was killed by SIGKILL, by its own code or from outside, or the machine is out of memory",
                        whom);
        }
}

static void describe_end(struct kernel *k, char *buf, size_t size)
{
        struct cg_sandbox_status st;
        ssize_t n;

        do
                n = k->status_fd < 0 ? -1 : read(k->status_fd, &st, sizeof(st));
        while (n == sizeof(st) && st.magic == CG_SANDBOX_STOPPED_MAGIC);
        if (n != sizeof(st) || st.magic != CG_SANDBOX_STATUS_MAGIC)
                st = (struct cg_sandbox_status){ .magic = 0 };
        if (k->violation_text[0])
                snprintf(buf, size, "it was ended because it broke a rule: %s", k->violation_text);
        else if (cg_sup_limits_end(k, &st, buf, size))
                return;
        else if (!st.magic)
                describe_kill(k, "everything in its sandbox", buf, size);
        else if (st.signal == SIGKILL)
                describe_kill(k, "it", buf, size);
        else if (st.signal)
                snprintf(buf, size, "killed by SIG%s", sigabbrev_np(st.signal) ?: "?");
        else
                snprintf(buf, size, "it exited by itself with status %d (os._exit, or a library)",
                         st.exit_code);
}

static void on_drained(uv_timer_t *t)
{
        struct kernel *k = t->data;
        struct session *ss = k->session;
        bool was_ready = cg_sup_kernel_was_ready(k);
        char how[400];

        /*
         * Its processes have ended: their last messages fit into the socket's buffer, and the end
         * of the connection follows.
         */
        if (k->links.main_open && !k->links.main.conn.ended)
                cg_zlink_catch_up(&k->links.main);
        describe_end(k, how, sizeof(how));
        cg_sup_denials_drain(k);
        cg_sup_programs_close(k, "the kernel ended");
        cg_sup_commands_close(k, ss, "kernel_died", how);
        k->session = NULL;
        if (ss)
                ss->kernel = NULL;
        kernel_dispose(k);
        if (ss)
                ss->sup->upper.kernel->dead(ss, how, was_ready);
}

static void on_kernel_end(struct watch *w)
{
        struct kernel *k = w->data;

        if (k->state == K_DEAD)
                return;
        k->state = K_DEAD;
        uv_poll_stop(&w->poll);
        if (k->retiring.on) {
                k->sup->unfinished.kernels--;
                report_retired(k);
                kernel_dispose(k);
                return;
        }
        cg_sup_kernel_pause(k, false);
        uv_timer_init(&k->sup->loop, &k->retiring.drain);
        k->retiring.drain.data = k;
        k->retiring.drain_open = true;
        uv_timer_start(&k->retiring.drain, on_drained,
                       k->limits.in_group && !k->limits.has_counts ? COUNTS_MS : DRAIN_MS, 0);
}

static void kernel_counted(struct kernel *k)
{
        k->limits.has_counts = true;
        if (k->retiring.drain_open && k->state == K_DEAD)
                uv_timer_start(&k->retiring.drain, on_drained, DRAIN_MS, 0);
}

/* ------------------------------------------------------------------ its wire */

static void maybe_ready(struct kernel *k)
{
        if (k->state != K_BOOTING || !cg_sup_kernel_was_ready(k))
                return;
        k->state = K_READY;
        cg_sup_costs_open(k);
        k->sup->upper.kernel->ready(k->session);
}

static void on_kernel_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct kernel *k = z->data;
        cg_auto_json json_t *body = NULL;
        struct cg_err err;

        if (!k->session)
                return;
        if (!k->got_ready && m->type != CG_KERNEL_KERNEL_READY) {
                cg_sup_kernel_violation(k, "a message before KERNEL_READY");
                return;
        }
        if (m->type != CG_KERNEL_KERNEL_READY) {
                k->sup->upper.kernel->message(k->session, m);
                return;
        }
        if (k->got_ready) {
                cg_sup_kernel_violation(k, "KERNEL_READY sent twice");
                return;
        }
        k->got_ready = true;
        /* Versions come from the zygote, not from the kernel. */
        if (cg_msg_json(m, &body, &err) < 0 ||
            cg_json_bool(body, "debugger", false, &k->report.debugger, &err) < 0)
                cg_sup_kernel_violation(k, err.msg);
        maybe_ready(k);
}

static void on_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        if (err->code == CG_E_CLOSED)
                cg_sup_kernel_lost(z->data);
        else
                cg_sup_kernel_violation(z->data, err->msg);
}

static void kernel_attached(struct kernel *k)
{
        k->attached = true;
        maybe_ready(k);
}

/* ------------------------------------------------------------------ its start */

/*
 * Folders of Python code are bound and named by their own names: a mount cannot be made at a
 * symlink, and a link to one may lie in a folder that is private inside.
 */
static const char *own_name(const char *path, char real[PATH_MAX])
{
        return realpath(path, real) ? real : path;
}

static void add_bind(json_t *list, const char *path)
{
        char real[PATH_MAX];

        path = own_name(path, real);
        json_array_append_new(list, json_pack("[ss]", path, path));
}

static void kernel_spawn_failed(struct kernel *k, const struct cg_err *err)
{
        struct session *ss = k->session;

        cg_sup_kernel_end(k);
        if (ss)
                ss->sup->upper.kernel->failed(ss, err);
}

/* The specification goes in a memfd: an environment can be larger than a datagram. */
static int spec_fd(struct kernel *k, int *ret, struct cg_err *err)
{
        struct session *ss = k->session;
        const struct sup *s = k->sup;
        bool sandbox = cg_sup_is_sandboxed(ss);
        const json_t *options = ss->options, *path;
        static const char *const exec[] = { [CG_EXEC_ALLOW] = NULL,
                                            [CG_EXEC_DENY] = "deny",
                                            [CG_EXEC_ASK] = "ask",
                                            [CG_EXEC_ASK_EACH] = "each" };
        json_t *binds = json_array(), *hides = json_deep_copy(json_object_get(options, "hide"));
        json_t *python_path = json_array();
        char state[PATH_MAX];
        json_t *env = k->masks.env ?: ss->egress.env;
        const char *slash = strrchr(s->setup.dir, '/');
        size_t len = slash ? (size_t)(slash - s->setup.dir) : 0, i;
        char lib[160], tmp[TMP_PATH], real[PATH_MAX], user[32];
        int n = snprintf(user, sizeof(user), "/cellgate-%u", (unsigned)geteuid());
        cg_auto_json json_t *spec = NULL;
        cg_auto_free char *text = NULL;
        cg_auto_fd int fd = -1;

        if (!env)
                env = json_object_get(options, "env");
        snprintf(lib, sizeof(lib), "%s/lib", ss->dir);
        json_array_append_new(binds, json_pack("[ss]", lib, LIB_INSIDE));
        /* Needed if they are below a folder that is private inside, such as /tmp. */
        if (!CG_WHEEL) {
                add_bind(binds, CG_INSTALLED(CG_PYTHONDIR));
        } else if (cg_kernel_env_module(s->setup.kernel_env, real, NULL) == 0) {
                *strrchr(real, '/') = '\0';
                add_bind(binds, real);
        }
        add_bind(binds, s->setup.kernel_env ?: CG_INSTALLED(CG_KERNEL_ENV));
        json_array_foreach(json_object_get(options, "python_path"), i, path) {
                add_bind(binds, json_string_value(path));
                json_array_append_new(python_path, json_string(own_name(json_string_value(path), real)));
        }
        json_array_append_new(python_path, json_string(sandbox ? LIB_INSIDE : lib));

        /* Hide all supervisors' folders of this user, in one folder: a workspace may contain it. */
        if (!hides)
                hides = json_array();
        if (len < (size_t)n || memcmp(s->setup.dir + len - n, user, (size_t)n) != 0)
                len = strlen(s->setup.dir);
        json_array_append_new(hides, json_stringn(s->setup.dir, len));
        if (s->setup.audit_key)
                json_array_append_new(hides, json_string(s->setup.audit_key));
        if (s->setup.audit_head && s->setup.audit_head[0] == '/')
                json_array_append_new(hides, json_string(s->setup.audit_head));
        if (cg_make_state_dir(state) && json_array_append_new(hides, json_string(state)) < 0) {
                json_decref(hides);
                hides = NULL; /* a name that is not UTF-8: json_pack() fails, and the kernel does not start */
        }

        spec = json_pack(
                "{s:I, s:s, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:O*, s:O*, s:O*, s:O*, s:b, s:s*, s:O*, s:O*, s:s, s:O*, s:O*, s:s*, s:s*, s:O*, s:O*, s:O*}",
                "session", (json_int_t)ss->number, "workspace", ss->workspace, "env",
                env ? json_incref(env) : json_array(), "sandbox", sandbox, "color",
                json_is_true(json_object_get(options, "color")), "limits", cg_sup_limits_spec(ss), "bind_ro",
                binds, "hide", hides, "python_path", python_path, "working_dir",
                json_object_get(options, "working_dir"), "front", json_object_get(options, "front"),
                "settings", json_object_get(options, "settings"), "masks", k->masks.files, "ports",
                ss->egress.policy != NULL, "home", ss->sup->setup.home, "user_env",
                json_object_get(options, "user_env"), "tier", json_object_get(options, "tier"), "tmp",
                tmp_path(k, tmp), "guards", k->guards, "homes", cg_sup_homes(k->sup), "kernel_env",
                s->setup.kernel_env, "exec", exec[cg_sup_exec(options)], "language",
                json_object_get(options, "language"), "language_path",
                json_object_get(options, "language_path"), "language_spec",
                json_object_get(options, "language_spec"));
        text = cg_json_text(spec, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "kernel's specification");
        fd = memfd_create("cellgate-spec", MFD_CLOEXEC);
        if (fd < 0)
                return cg_fail_errno(err, "memfd_create");
        if (cg_write_all(fd, text, len, err) < 0 || lseek(fd, 0, SEEK_SET) < 0)
                return -1;
        *ret = cg_steal_fd(&fd);
        return 0;
}

static int request_spawn(struct kernel *k, struct cg_err *err)
{
        cg_auto_fd int spec = -1;
        int r;

        if ((r = cg_sup_masks_make(k, err)) < 0 || (r = spec_fd(k, &spec, err)) < 0)
                return r;
        return cg_sup_zygote_request(
                k->sup, k->seq, !k->session->host,
                (int[]){ spec, k->sockets.kernel_fd, k->sockets.tool_fd, k->sockets.function_fd }, err);
}

static void kernel_spawn(struct kernel *k)
{
        struct cg_err err = { 0 };

        k->state = K_SPAWNING;
        json_decref(k->guards);
        k->guards = cg_sup_protected_paths(k->sup);
        if (request_spawn(k, &err) >= 0 || err.sys_errno == EPIPE || err.sys_errno == ECONNRESET)
                return; /* where the zygote has ended, the watch of its process starts another one */
        kernel_spawn_failed(k, &err);
}

static void kernel_spawned(struct kernel *k, const json_t *answer, struct cg_spawned *fds)
{
        int pidfd = fds->pidfd, denials_fd = fds->denials_fd;
        size_t n_proxy = k->session->egress.policy ? 2 : 0;
        struct cg_err err;

        k->report.layers = json_incref(json_object_get(answer, "layers"));
        k->report.landlock_abi = json_incref(json_object_get(answer, "landlock_abi"));
        k->report.tier = strdup(cg_json_text_of(answer, "tier"));
        cg_sup_limits_spawned(k, answer);
        k->status_fd = fds->status_fd;
        cg_oom_mark(cg_pidfd_pid(pidfd), &k->limits.oom);
        /* The zygote's copies are in the kernel now; ours would only keep the sockets alive. */
        close(cg_steal_fd(&k->sockets.kernel_fd));
        close(cg_steal_fd(&k->sockets.tool_fd));
        close(cg_steal_fd(&k->sockets.function_fd));
        k->state = K_BOOTING;
        if (cg_sup_watch_start(k->sup, &k->pid, pidfd, on_kernel_end, k, &err) < 0) {
                cg_closep_(&denials_fd);
                cg_closep_(&fds->commands_fd);
                goto fail;
        }
        cg_sup_memory_watch(k);
        if (cg_sup_exec(k->session->options) >= CG_EXEC_ASK &&
            cg_sup_programs_open(k, fds->commands_fd, &err) < 0) {
                cg_closep_(&denials_fd);
                cg_closep_(&fds->commands_fd);
                goto fail;
        }
        if (cg_sup_commands_open(k, fds->commands_fd, &err) < 0) {
                cg_closep_(&denials_fd);
                goto fail;
        }
        if (denials_fd >= 0 && cg_sup_denials_open(k, denials_fd, &err) < 0)
                goto fail;
        if (n_proxy && fds->n_ports && cg_sup_egress_open(k, fds->ports, n_proxy, &err) < 0)
                goto fail;
        if (fds->doors_fd >= 0 && cg_sup_doors_open(k, fds->doors_fd, fds->ports + n_proxy, &err) < 0)
                goto fail;
        k->report.python = strdup(cg_sup_zygote_python(k->sup) ?: "");
        k->report.ipython = strdup(cg_sup_zygote_ipython(k->sup) ?: "");
        k->links.main_open = cg_zlink_open(&k->links.main, &k->sup->loop, k->sockets.kernel, &cg_wire_kernel,
                                           CG_ROLE_KERNEL, MAX_UNREAD, on_kernel_message, on_link_end, k,
                                           &err) == 0;
        if (!k->links.main_open || cg_sup_functions_open(k, on_link_end, &err) < 0) {
                if (err.code != CG_E_SYS || err.sys_errno != ECONNREFUSED)
                        goto fail;
                cg_sup_kernel_lost(k); /* it has ended already: the watch of its process reports how */
        }
        cg_sup_broker_attach(k);
        return;
fail:
        kernel_spawn_failed(k, &err);
}

int cg_sup_kernel_start(struct session *ss, struct cg_err *err)
{
        struct sup *s = ss->sup;
        struct kernel *k = calloc(1, sizeof(*k));

        if (!k)
                return cg_fail(err, CG_E_NOMEM, "kernel");
        k->sup = s;
        k->session = ss;
        k->seq = ++s->next_kernel;
        k->sockets.kernel_fd = k->sockets.tool_fd = k->sockets.function_fd = k->status_fd = k->secrets = -1;
        k->costs.stat_fd = k->costs.io_fd = k->costs.status_fd = k->costs.clear_fd = -1;
        k->doors = CG_DOORS_PROCESS_NONE;
        snprintf(k->sockets.kernel, sizeof(k->sockets.kernel), "%s/k%llu", s->setup.dir,
                 (unsigned long long)k->seq);
        snprintf(k->sockets.tool, sizeof(k->sockets.tool), "%s/t%llu", s->setup.dir,
                 (unsigned long long)k->seq);
        snprintf(k->sockets.function, sizeof(k->sockets.function), "%s/f%llu", s->setup.dir,
                 (unsigned long long)k->seq);
        if (cg_listen_unix(k->sockets.kernel, 4, &k->sockets.kernel_fd, err) < 0 ||
            cg_listen_unix(k->sockets.tool, 4, &k->sockets.tool_fd, err) < 0 ||
            cg_listen_unix(k->sockets.function, 4, &k->sockets.function_fd, err) < 0) {
                unlink(k->sockets.kernel);
                unlink(k->sockets.tool);
                unlink(k->sockets.function);
                kernel_free(k);
                return err ? err->code : -1;
        }
        ss->kernel = k;
        ss->start.kernel_ms = cg_now_ms();
        cg_sup_zygote_want(k);
        return 0;
}

const struct cg_broker_ops cg_sup_kernel_broker_ops = {
        .attached = kernel_attached,
        .attach_failed = kernel_spawn_failed,
        .added = cg_sup_functions_added,
        .kept = cg_sup_functions_kept,
        .unkept = cg_sup_functions_unkept,
};

const struct cg_zygote_ops cg_sup_kernel_zygote_ops = {
        .spawn = kernel_spawn,
        .spawned = kernel_spawned,
        .failed = kernel_spawn_failed,
        .counted = kernel_counted,
};
