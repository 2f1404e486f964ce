/*
 * cellgate-supervisor: serves host applications; starts the zygote and the tool server; holds
 * sessions, routing and approvals. Trusted and small: it runs no Python, speaks no MCP, and relays
 * payloads unread.
 */
#include "supervisor/core/sup.h"

#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "base/confinement.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/user_env.h"
#include "config.h"
#include "supervisor/ask/approvals.h"
#include "supervisor/core/audit.h"
#include "supervisor/ask/broker.h"
#include "supervisor/network/egress.h"
#include "supervisor/core/host.h"
#include "supervisor/core/kernel.h"
#include "supervisor/limits/machine_memory.h"
#include "supervisor/core/session.h"
#include "supervisor/core/slots.h"
#include "supervisor/servers/guards.h"
#include "supervisor/core/spare.h"
#include "supervisor/core/status.h"
#include "supervisor/core/zygote.h"
#include "supervisor/usage.h"

/* Pipe on which the supervisor reports to libcellgate that it serves, or why it does not. */
#define READY_FD 3
/* Kernels get 1 s to end; the rest is for slow machines. */
#define RETIRING_MS 1500

static void close_handle(uv_handle_t *h, void *arg)
{
        if (!uv_is_closing(h))
                uv_close(h, NULL);
}

static void on_signal(uv_signal_t *h, int signum)
{
        struct sup *s = h->data;

        if (signum == SIGTERM && s->node.slots && !s->node.draining)
                cg_sup_drain(s);
        else
                cg_sup_stop(s, signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void on_child(uv_signal_t *h, int signum)
{
        cg_sup_reap_orphans(h->data, false);
}

/*
 * Reports to the starting process: one JSON line and the end, or nothing when the descriptor is not
 * there. A private supervisor then watches the socket for the end of that process.
 */
static void report_start(struct sup *s, const struct cg_err *err)
{
        cg_auto_json json_t *o = err ? json_pack("{s:i, s:s}", "code", err->code, "error", err->msg)
                                     : json_pack("{s:b}", "ready", 1);
        cg_auto_free char *text = cg_json_text(o, NULL);
        struct cg_err why;
        struct stat st;

        if (!text || fstat(READY_FD, &st) < 0 || !S_ISSOCK(st.st_mode))
                return;
        if (cg_write_all(READY_FD, text, strlen(text), &why) < 0)
                cg_log(&s->log, CG_LOG_WARN, "the starting process reads nothing: %s", why.msg);
        if (err || !s->setup.private_mode)
                close(READY_FD);
        else if (shutdown(READY_FD, SHUT_WR) < 0 || cg_sup_hosts_watch_starter(s, READY_FD, &why) < 0)
                cg_log(&s->log, CG_LOG_WARN, "the starting process is not watched");
}

static void end_sessions(struct sup *s, const char *why)
{
        cg_sup_spares_stop(s);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++)
                if (s->sessions[i])
                        cg_sup_session_end(s->sessions[i], why);
}

static int start(struct sup *s, struct cg_err *err)
{
        const char *limits[CG_JOBS_LIMITS];
        struct stat st;
        int r;

        if (!s->setup.dir)
                return cg_fail(err, CG_E_INVAL, "--dir is missing; see --help");
        if (s->setup.dir[0] != '/')
                return cg_fail(err, CG_E_INVAL, "--dir must be an absolute path, not \"%s\"", s->setup.dir);
        if (strlen(s->setup.dir) > 80)
                return cg_fail(err, CG_E_LIMIT,
                               "--dir is longer than 80 bytes: socket paths below it would be too long");
        if (mkdir(s->setup.dir, 0700) < 0 && errno != EEXIST)
                return cg_fail_errno(err, "cannot make %s", s->setup.dir);
        if (lstat(s->setup.dir, &st) < 0)
                return cg_fail_errno(err, "%s", s->setup.dir);
        if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
                return cg_fail(err, CG_E_INVAL, "%s must be a folder of yours with mode 0700", s->setup.dir);
        s->setup.dir_fd = open(s->setup.dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (s->setup.dir_fd < 0)
                return cg_fail_errno(err, "%s", s->setup.dir);
        r = uv_loop_init(&s->loop);
        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        uv_signal_init(&s->loop, &s->sig_term);
        uv_signal_init(&s->loop, &s->sig_int);
        uv_signal_init(&s->loop, &s->sig_chld);
        s->sig_term.data = s->sig_int.data = s->sig_chld.data = s;
        uv_signal_start(&s->sig_term, on_signal, SIGTERM);
        uv_signal_start(&s->sig_int, on_signal, SIGINT);
        uv_signal_start(&s->sig_chld, on_child, SIGCHLD);
        cg_sup_memory_start(s);
        cg_sup_bus_init(s);
        cg_sup_status_start(s);
        for (size_t i = 0; i < CG_JOBS_LIMITS; i++)
                limits[i] = getenv(cg_sup_jobs_variables[i]);
        if (cg_sup_jobs_init(s, limits, err) < 0 || cg_sup_spares_start(s, err) < 0 ||
            cg_sup_zygote_new(s, err) < 0 || cg_sup_egress_new(s, err) < 0 || cg_sup_broker_new(s, err) < 0)
                return -1;
        if (cg_sup_hosts_start(s, err) < 0 || cg_sup_broker_start(s, err) < 0)
                return -1;
        /* An environment that was chosen is checked first, with the session's workspace. */
        if (!s->setup.kernel_env && cg_sup_zygote_start(s, err) < 0)
                return -1;
        return 0;
}

static void on_waited(uv_timer_t *t)
{
        struct sup *s = t->data;

        s->unfinished.kernels = 0; /* they end with the zygote */
}

/* Ends kernels and processes, and lets close callbacks run, so that everything is freed. */
static void finish(struct sup *s)
{
        struct stat held, named;
        uv_timer_t timer;
        struct cg_err err;

        uv_timer_init(&s->loop, &timer);
        timer.data = s;
        uv_timer_start(&timer, on_waited, RETIRING_MS, 0);
        while (s->unfinished.kernels)
                uv_run(&s->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *)&timer, NULL);
        uv_run(&s->loop, UV_RUN_NOWAIT);

        cg_sup_servers_stop(s);
        cg_sup_hosts_stop(s);
        cg_sup_zygote_stop(s);
        cg_sup_egress_stop(s);
        cg_sup_broker_stop(s);
        cg_sup_audit_stop(s);
        cg_sup_reap_orphans(s, true); /* of kernels whose init was killed */
        uv_walk(&s->loop, close_handle, NULL);
        while (uv_run(&s->loop, UV_RUN_DEFAULT) != 0)
                ;
        uv_loop_close(&s->loop);
        cg_sup_bus_fini(s);
        free(s->spares);
        free(s->zygote);
        free(s->egress);
        free(s->broker);

        /* Meanwhile a successor may have been started in a new folder with the same name. */
        if (s->setup.dir_fd >= 0 && fstat(s->setup.dir_fd, &held) == 0 && lstat(s->setup.dir, &named) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev &&
            cg_remove_tree(s->setup.dir, &err) < 0)
                cg_log(&s->log, CG_LOG_WARN, "%s", err.msg);
}

static int64_t number(const char *option, const char *text, int64_t max)
{
        char *end;
        long long v = strtoll(text, &end, 10);

        if (end == text || *end || v < 0 || v > max) {
                fprintf(stderr, "cellgate-supervisor: --%s must be a number from 0 to %lld, not \"%s\"\n",
                        option, (long long)max, text);
                exit(2);
        }
        return v;
}

static void parse_args(struct sup *s, int argc, char **argv, bool *detach_process, bool *alike)
{
        bool help = false, version = false;
        const char *log_level = NULL;
        int64_t spares = 1, slots = 0, client_slots = 0, memory_mib = 0;
        const struct {
                const char *name, **text;
                bool *flag;
                int64_t *number, max;
        } args[] = {
                { "dir", .text = &s->setup.dir },
                { "preload", .text = &s->setup.preload },
                { "kernel-env", .text = &s->setup.kernel_env },
                { "audit-key", .text = &s->setup.audit_key },
                { "audit-head", .text = &s->setup.audit_head },
                { "log-level", .text = &log_level },
                { "private", .flag = &s->setup.private_mode },
                { "detach", .flag = detach_process },
                { "alike", .flag = alike },
                { "help", .flag = &help },
                { "version", .flag = &version },
                { "spares", .number = &spares, .max = CG_MAX_SPARES },
                { "linger-ms", .number = &s->setup.linger_ms, .max = INT32_MAX },
                { "slots", .number = &slots, .max = CG_MAX_SESSIONS / 2 },
                { "client-slots", .number = &client_slots, .max = CG_MAX_SESSIONS / 2 },
                { "memory", .number = &memory_mib, .max = INT32_MAX },
                { "drain-ms", .number = &s->node.drain_ms, .max = INT32_MAX },
        };
        struct option options[CG_ARRAY_LEN(args) + 1] = { { .name = NULL } };
        int c;

        for (size_t i = 0; i < CG_ARRAY_LEN(args); i++)
                options[i] = (struct option){ args[i].name, args[i].flag ? no_argument : required_argument,
                                              NULL, (int)i };
        while (!help && !version && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (c >= (int)CG_ARRAY_LEN(args))
                        exit(2);
                if (args[c].text)
                        *args[c].text = optarg;
                else if (args[c].flag)
                        *args[c].flag = true;
                else
                        *args[c].number = number(args[c].name, optarg, args[c].max);
        }
        if (help || version)
                exit(printf("%s", help ? CG_SUP_USAGE : "cellgate-supervisor " CG_VERSION "\n") < 0);
        if (optind < argc) {
                fprintf(stderr, "cellgate-supervisor: unexpected argument \"%s\"; see --help\n",
                        argv[optind]);
                exit(2);
        }
        if (log_level)
                s->log.level = atoi(log_level);
        s->setup.want_spares = (size_t)spares;
        s->node.slots = (size_t)slots;
        s->node.client_slots = (size_t)client_slots;
        s->node.memory = (uint64_t)memory_mib << 20;
}

static const char *find_home(void)
{
        const char *home = getenv("HOME");
        const struct passwd *pw;

        if (home && home[0] == '/')
                return home;
        pw = getpwuid(geteuid());
        return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

int main(int argc, char **argv)
{
        const char *job = getenv("SLURM_MEM_PER_NODE"); /* MiB */
        struct sup *s = calloc(1, sizeof(*s));
        struct cg_err err = { 0 };
        bool detach_process = false, alike = false;
        char env[PATH_MAX];
        struct rlimit files;
        int r = 0;
        pid_t pid;

        if (!s)
                return 1;
        s->log = (struct cg_log){ .fd = 2, .level = CG_LOG_WARN, .who = "supervisor" };
        s->setup.dir_fd = -1;
        s->upper.broker = &cg_sup_kernel_broker_ops;
        s->upper.zygote = &cg_sup_kernel_zygote_ops;
        s->upper.kernel = &cg_sup_session_kernel_ops;
        s->upper.session = &cg_sup_session_ops;
        s->upper.stop = end_sessions;
        s->upper.asks = cg_sup_approvals_changed;
        s->setup.linger_ms = -1;
        s->setup.confinement.max = CG_CONFINEMENT_MAX;
        s->setup.started_ms = cg_now_ms();
        s->memory.job = (job ? strtoull(job, NULL, 10) : 0) << 20;
        parse_args(s, argc, argv, &detach_process, &alike);
        s->node.starter_pid = getppid();
        s->setup.home = find_home();
        r = cg_user_env(environ, NULL, &s->setup.env, &err);
        /*
         * A wheel's own environment is an application's, which may import from a workspace: it is
         * checked like one that was chosen.
         */
        if (CG_WHEEL && !s->setup.kernel_env)
                s->setup.kernel_env = cg_kernel_env_default(env);
        if (detach_process) {
                /* Before there is any thread. The starting process still gets the report. */
                pid = fork();
                if (pid != 0)
                        _exit(pid < 0);
                setsid();
                if (chdir("/") < 0)
                        _exit(1);
        }
        signal(SIGPIPE, SIG_IGN);
        if (r == 0 && alike) /* before this process changes its own limits */
                r = cg_confinement(getpid(), &s->setup.confinement, &err);
        /* Thousands of sessions need some descriptors each. */
        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* see cg_sup_reap_orphans() */
#ifndef __SANITIZE_ADDRESS__              /* LeakSanitizer traces its own process */
        prctl(PR_SET_DUMPABLE, 0);        /* its environment may hold secrets of MCP servers */
#endif
        if (r < 0 || start(s, &err) < 0) {
                cg_log(&s->log, CG_LOG_ERROR, "%s", err.msg);
                report_start(s, &err);
                _exit(1); /* what was started ends with its sockets; the folder may be another's */
        }
        report_start(s, NULL);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        finish(s);
        cg_buf_fini(&s->setup.confinement);
        json_decref(s->setup.env);
        json_decref(s->setup.homes);
        cg_stamps_fini(&s->setup.home_stamps);
        free(s);
        return 0;
}
