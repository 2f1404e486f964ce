/*
 * The processes of a command in a sandbox:
 *
 *      keeper    the process that was started: creates mount points, starts the sandbox, starts the
 *                egress proxy at the first connection, passes on signals, cleans up, exits with the
 *                command's status
 *      watcher   a copy of the keeper that waits for its end, and cleans up when it was killed
 *      init      pid 1 of the sandbox (init.c), which ends with the keeper
 *      command
 *
 * The watcher has a session of its own, so that a signal that kills the keeper's process group does
 * not reach it; a watcher that is killed is replaced. It is not a parent of the sandbox, so that
 * start and end of a sandbox do not wait for it.
 */
#include "sandbox/command/command.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/ceilings.h"
#include "base/json.h"
#include "sandbox/cgroup.h"
#include "sandbox/egress/client.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/settings/limit_json.h"
#include "sandbox/command/denial.h"
#include "sandbox/command/egress_client.h"
#include "sandbox/mountpoints.h"
#include "sandbox/plan.h"

/* Longest wait for the end of a killed process, which may be stuck in the kernel. */
#define GONE_MS 10000
/* Bytes of the report of entries. */
#define REPORT_MAX (64u << 10)

static const int handed_on[] = { SIGINT,  SIGQUIT,  SIGHUP,  SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT, SIGALRM };

/* ---- the command, inside */

static int exec_command(void *data)
{
        struct cg_command *c = data;
        char *shell[] = { (char *)"bash", (char *)"-c", (char *)"--", (char *)c->shell_text, NULL };
        size_t n = 0;
        char **by_shell;

        sigprocmask(SIG_SETMASK, &c->old_mask, NULL);
        environ = c->env.v;
        if (c->shell_text) {
                execvp("bash", shell);
                shell[0] = (char *)"sh";
                execv("/bin/sh", shell);
                dprintf(2, "cellgate sandbox: neither bash nor /bin/sh can be run: %s\n", strerror(errno));
                return 127;
        }
        execvp(c->argv[0], c->argv);
        if (strchr(c->argv[0], '/')) {
                dprintf(2, "cellgate sandbox: %s: %s\n", c->argv[0], strerror(errno));
                return errno == ENOENT ? 127 : 126;
        }
        /* It may be a shell builtin or keyword; if not, the shell reports the missing command. */
        while (c->argv[n])
                n++;
        by_shell = calloc(n + 5, sizeof(*by_shell));
        if (!by_shell)
                return 126;
        by_shell[0] = (char *)"bash";
        by_shell[1] = (char *)"-c";
        by_shell[2] = (char *)"\"$@\"";
        by_shell[3] = (char *)"bash";
        memcpy(by_shell + 4, c->argv, n * sizeof(*by_shell));
        execvp("bash", by_shell);
        dprintf(2, "cellgate sandbox: %s: command not found\n", c->argv[0]);
        return 127;
}

/* Closes the keeper's copies of standard input and output: readers must see the command's EOF. */
static void leave_stdio(void)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0)
                return;
        dup2(null, 0);
        dup2(null, 1);
        close(null);
}

/* True if there may be a control group to clean up: cheaper to assume than to find out. */
static bool uses_group(const struct cg_sandbox *sb)
{
        struct cg_sandbox_limits l;

        cg_plan_group_limits(sb, &l);
        return l.memory_bytes || l.processes || l.cores_milli || l.cpu_seconds;
}

/* ---- watcher */

/* False: not in time. */
static bool wait_for(int fd, short events)
{
        struct pollfd p = { .fd = fd, .events = events };
        int n;

        while ((n = poll(&p, 1, GONE_MS)) < 0 && errno == EINTR)
                ;
        return n > 0;
}

/*
 * In the landlock tier the killed process is the guard. Init then ends the rest and itself, which
 * closes the writing end of the status pipe.
 */
static void wait_gone(const struct cg_command *c, int pidfd, int status_fd)
{
        wait_for(pidfd, POLLIN);
        if (cg_plan_has_namespaces(c->sb) || status_fd < 0)
                return;
        for (struct cg_sandbox_status st;
             wait_for(status_fd, POLLIN) && read(status_fd, &st, sizeof(st)) > 0;)
                ;
}

/*
 * Removes the folder for temporary files, where it is on the host. Call it when nothing inside runs
 * any more, so that nobody can replace what is removed.
 */
static void remove_tmp(const struct cg_command *c)
{
        if (c->tmp_on_host)
                cg_remove_tree(c->tmp, NULL);
}

/*
 * Ends with the keeper, or is killed by it when there is nothing left to do. Where the keeper has
 * sent no init the command never ran: its main process waits for the keeper's go-ahead.
 */
static _Noreturn void watch_over(const struct cg_command *c, int sock)
{
        struct pollfd end = { .fd = 3 }; /* the message is read after the keeper's end */
        int init[2] = { -1, -1 };
        size_t n = 2;
        char byte;

        setsid(); /* cannot fail for a process that was just forked */
        prctl(PR_SET_NAME, "cg-watcher", 0, 0, 0);
        /* No descriptor of the keeper but the socket: a copy of a pipe would delay its EOF. */
        leave_stdio();
        dup2(0, 2);
        if (sock != end.fd)
                dup2(sock, end.fd);
        close_range((unsigned int)end.fd + 1, ~0U, 0);
        while (poll(&end, 1, -1) < 0 && errno == EINTR)
                ;
        /* The sandbox's init must have ended before the cleanup. */
        if (cg_recv_fds(end.fd, &byte, 1, init, &n, NULL) == 1 && init[0] >= 0) {
                cg_pidfd_kill(init[0], SIGKILL);
                wait_gone(c, init[0], init[1]);
        }
        cg_placeholders_remove(c->sb, NULL);
        if (uses_group(c->sb))
                cg_cgroup_tidy(NULL);
        remove_tmp(c);
        _exit(0);
}

/* ---- keeper */

struct keeper {
        struct cg_command *c;
        int watcher; /* socket; ends with it */
        pid_t watcher_pid;
        int signals;
        struct cg_sandbox_child child;
        int *placeholders;
        int64_t deadline_ms; /* 0: none */
        int64_t look_ms;     /* when to check the processor time; 0: never */
        bool all_gone;       /* nothing runs inside any more but init */
        bool init_gone;      /* landlock tier: killed, and the guard is ending the rest */
        struct cg_egress_client egress;
        int stderr_flags; /* of standard error at the start; -1: unknown */
        struct cg_doors_process doors;
        struct cg_denial_log denials;
        int secrets;           /* for the proxy; -1: none */
        struct cg_buf control; /* a piece of a line of the control channel */
        bool control_worked;   /* it has delivered */
};

static int start_watcher(struct keeper *k, struct cg_err *err)
{
        int socks[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
                return cg_fail_errno(err, "sandbox: watcher");
        k->watcher_pid = fork();
        if (k->watcher_pid < 0) {
                cg_fail_errno(err, "sandbox: watcher");
                close(socks[0]);
                close(socks[1]);
                return CG_E_SYS;
        }
        if (k->watcher_pid == 0) {
                close(socks[0]);
                watch_over(k->c, socks[1]);
        }
        close(socks[1]);
        k->watcher = socks[0];
        return 0;
}

static void send_watcher(const struct keeper *k)
{
        const int fds[2] = { k->child.init_pidfd, k->child.status_fd };

        /* The status pipe's reader is the full tier's lifeline: only the keeper has it there. */
        if (k->watcher >= 0)
                cg_send_fds(k->watcher, "i", 1, fds, 2 - cg_plan_has_namespaces(k->c->sb), NULL);
}

/* The watcher was killed: starts another one. */
static void replace_watcher(struct keeper *k)
{
        struct cg_err err = { 0 };

        waitpid(k->watcher_pid, NULL, 0);
        cg_closep_(&k->watcher);
        if (start_watcher(k, &err) < 0)
                dprintf(2, "cellgate sandbox: %s\n", err.msg);
        else
                send_watcher(k);
}

static void end_sandbox(struct keeper *k)
{
        if (k->child.init_pid <= 0)
                return;
        if (k->init_gone)
                wait_for(k->child.init_pidfd, POLLIN);
        cg_pidfd_kill(k->child.init_pidfd, SIGKILL);
        if (!k->all_gone)
                wait_gone(k->c, k->child.init_pidfd, k->child.status_fd);
        waitpid(k->child.init_pid, NULL, WNOHANG);
        k->child.init_pid = 0;
}

static void report_limit(struct keeper *k, enum cg_limit limit, const char *what)
{
        json_t *o = cg_limit_denial(&k->c->settings->own.limits, limit, CG_SAID_SETTINGS, k->child.by[limit],
                                    what);

        if (o)
                cg_denial_log_add(&k->denials, o);
}

/* Reports limits that only a group's counts show. Once, after the last process inside has ended. */
static void report_counts(struct keeper *k)
{
        struct cg_limit_counts counts;
        char what[100];

        cg_cgroup_counts(k->child.cgroup, &counts);
        if (counts.oom_kills) {
                snprintf(what, sizeof(what), "%llu process%s ended", (unsigned long long)counts.oom_kills,
                         counts.oom_kills == 1 ? " was" : "es were");
                report_limit(k, CG_LIMIT_MEMORY, what);
        }
        if (counts.forks_denied) {
                snprintf(what, sizeof(what), "%llu more %s refused", (unsigned long long)counts.forks_denied,
                         counts.forks_denied == 1 ? "was" : "were");
                report_limit(k, CG_LIMIT_PROCESSES, what);
        }
}

/* The command's exit status, as init reports it; 137 when init itself was killed. */
static int read_status(struct keeper *k)
{
        const struct cg_sandbox_limits *l = &k->c->settings->own.limits;
        struct cg_sandbox_status st = { 0 };
        ssize_t n;

        do
                n = read(k->child.status_fd, &st, sizeof(st));
        while (n < 0 && errno == EINTR);
        k->all_gone = n == (ssize_t)sizeof(st) && st.magic == CG_SANDBOX_STATUS_MAGIC;
        k->init_gone = !k->all_gone && !cg_plan_has_namespaces(k->c->sb);
        if (!k->all_gone)
                return 137;
        if (!st.signal)
                return st.exit_code;
        if (st.signal == SIGXCPU && l->cpu_seconds)
                report_limit(k, CG_LIMIT_CPU_TIME, "the command was ended");
        if (st.signal == SIGXFSZ && l->file_bytes)
                report_limit(k, CG_LIMIT_FILE_SIZE, "the command was ended");
        return 128 + st.signal;
}

/* Milliseconds until @when_ms, -1 where that is 0 (never). */
static int time_left(int64_t when_ms)
{
        int64_t left;

        if (!when_ms)
                return -1;
        left = when_ms - cg_now_ms();
        if (left < 0)
                return 0;
        return (int)CG_MIN(left, 1000000);
}

/* Checks the time limits. True: the command is to end, with *status. */
static bool out_of_time(struct keeper *k, int *status)
{
        uint64_t limit_ms = k->c->settings->own.limits.cpu_seconds * 1000;
        struct cg_limit_counts counts;

        if (time_left(k->deadline_ms) == 0) {
                report_limit(k, CG_LIMIT_WALL_TIME, "the command was ended");
                *status = 124;
                return true;
        }
        if (time_left(k->look_ms) != 0)
                return false;
        cg_cgroup_counts(k->child.cgroup, &counts);
        if (counts.cpu_ms >= limit_ms) {
                report_limit(k, CG_LIMIT_CPU_TIME, "the command was ended");
                *status = 128 + SIGXCPU;
                return true;
        }
        /*
         * The next check is when all CPUs together could have used the rest, so a limit that is far
         * away costs nothing.
         */
        k->look_ms = cg_now_ms() + cg_limit_next_look_ms(limit_ms - counts.cpu_ms);
        return false;
}

static void read_denials(struct keeper *k)
{
        struct cg_sandbox_denial d;
        int r = CG_CLOSED;

        while (k->child.denials_fd >= 0 && (r = cg_denial_recv(k->child.denials_fd, &d)) == 0) {
                json_t *o = cg_denial_of_call(&d, true, true);

                if (o)
                        cg_denial_log_add(&k->denials, o);
                else
                        k->denials.more += d.lost;
        }
        if (r == CG_CLOSED)
                cg_closep_(&k->child.denials_fd);
}

/*
 * ---- the control channel: one JSON object a line: whole settings, of which "network" is handed
 * on, or with --ask the answer to a question
 */

/*
 * The host wants to know what was denied until now: for an error that the command has just written,
 * all of that is reported before the answer.
 */
static bool answer_sync(struct keeper *k, const char *line, size_t len)
{
        cg_auto_json json_t *m = NULL, *o = NULL;
        cg_auto_free char *text = NULL;

        if (!k->c->report || cg_json_object(line, len, "request", &m, NULL) < 0 ||
            strcmp(cg_json_text_of(m, "type"), "sync") != 0)
                return false;
        read_denials(k);
        cg_egress_client_read_events(&k->egress);
        o = json_pack("{s:s, s:O*}", "type", "synced", "id", json_object_get(m, "id"));
        text = cg_json_text(o, &len);
        if (text) {
                text[len++] = '\n'; /* in the place of the NUL */
                send(k->c->control_fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        return true;
}

static void control_line(struct keeper *k, const char *line, size_t len)
{
        cg_auto_settings struct cg_settings *s = NULL;
        struct cg_err err = { 0 };
        json_t *policy;

        if (strspn(line, " \t\r") == len || answer_sync(k, line, len) ||
            cg_egress_client_answer(&k->egress, line, len))
                return;
        if (cg_settings_parse(line, len, "update", CG_SETTINGS_LENIENT, &s, &err) < 0 ||
            cg_egress_policy(s, k->c->host_env, &policy, &err) < 0) {
                dprintf(2, "Invalid config on control fd %d: ignored, previous config still in force\n",
                        k->c->control_fd);
                cg_denial_log_debug(&k->denials, "Invalid config on control fd (ignored): %s", err.msg);
                return;
        }
        cg_denial_log_debug(&k->denials, "Config updated from control fd: %.*s", (int)len, line);
        if (k->c->proxy)
                cg_egress_client_change(&k->egress, cg_command_policy(k->c, policy));
        else
                json_decref(policy);
}

/*
 * Nobody can be asked any more. The last settings stay in force, as in srt; but a control socket is
 * the host itself, as srt's proxies are: when it has ended, the command has no network.
 */
static void control_close(struct keeper *k)
{
        cg_egress_client_stop_asking(&k->egress);
        if (k->c->control_socket) {
                k->denials.control = -1;
                cg_egress_client_fini(&k->egress);
                if (k->c->proxy)
                        dprintf(2, "cellgate sandbox: the control socket was closed: no network any more\n");
        }
        cg_closep_(&k->c->control_fd);
}

/* False when the channel failed before it delivered anything: then its command is not to run on. */
static bool control_read(struct keeper *k)
{
        char *room, *end;
        ssize_t n;
        struct cg_err err = { 0 };

        if (cg_buf_reserve(&k->control, 65536, &room, &err) < 0) {
                dprintf(2,
                        "Error reading control fd %d: a line is too long. The control channel is closed; no further "
                        "updates will be applied.\n",
                        k->c->control_fd);
                control_close(k);
                return true;
        }
        n = read(k->c->control_fd, room, 65536);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return true;
        /* A caller that ends while a question is unread: the end of the socket, which is a no. */
        if (n < 0 && errno == ECONNRESET && (k->c->ask_seconds || k->c->control_socket))
                n = 0;
        if (n > 0) {
                k->control_worked = true;
                k->control.len += (size_t)n;
                cg_buf_terminate(&k->control);
                while (k->control.len && (end = memchr(k->control.data, '\n', k->control.len))) {
                        size_t len = (size_t)(end - k->control.data);

                        *end = '\0';
                        control_line(k, k->control.data, len);
                        cg_buf_consume(&k->control, len + 1);
                }
                return true;
        }
        if (n < 0 && !k->control_worked) {
                dprintf(2,
                        "Error: control fd %d failed before delivering an update: %s. Refusing to run the command without the "
                        "control channel it asks for.\n",
                        k->c->control_fd, strerror(errno));
                return false;
        }
        if (n < 0)
                dprintf(2,
                        "Error reading control fd %d: %s. The control channel is closed; no further updates will be applied.\n",
                        k->c->control_fd, strerror(errno));
        /* The end of the channel is no error. */
        if (n == 0 && k->control.len)
                control_line(k, k->control.data, k->control.len);
        control_close(k);
        return true;
}

/* ---- signals */

static void take_signals(struct keeper *k)
{
        struct signalfd_siginfo info;

        while (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                cg_pidfd_kill(k->child.init_pidfd, (int)info.ssi_signo);
                if (info.ssi_signo != SIGTSTP)
                        continue;
                /* Ctrl-Z: the command stops, then the keeper. */
                raise(SIGSTOP);
                cg_pidfd_kill(k->child.init_pidfd, SIGCONT);
        }
}

/* Reports unix sockets and ports that cannot be served as the settings say. */
static void read_doors(struct keeper *k)
{
        const char *line;

        while ((line = cg_doors_read_report(&k->doors)))
                dprintf(2, "cellgate sandbox: %s\n", line);
        if (k->doors.reports < 0 && k->doors.proc.pidfd >= 0 && !cg_doors_reap(&k->doors))
                dprintf(2,
                        "cellgate sandbox: unix sockets and ports outside of the sandbox are not reachable any more\n");
}

/* The keeper's own descriptors in the poll set, before those of the proxy. */
#define FIXED_FDS 6

/* Runs until the command has ended, or its time is over. Returns the exit status. */
static int watch(struct keeper *k)
{
        struct pollfd fds[FIXED_FDS + CG_EGRESS_CLIENT_FDS] = {
                { .fd = k->child.status_fd, .events = POLLIN }, { .fd = k->signals, .events = POLLIN }
        };

        for (;;) {
                int n, status, wait = time_left(k->deadline_ms), look = time_left(k->look_ms);

                if (wait < 0 || (look >= 0 && look < wait))
                        wait = look;
                fds[2] = (struct pollfd){ .fd = k->c->control_fd, .events = POLLIN };
                fds[3] = (struct pollfd){ .fd = k->watcher };
                fds[4] = (struct pollfd){ .fd = k->child.denials_fd, .events = POLLIN };
                fds[5] = (struct pollfd){ .fd = k->doors.reports, .events = POLLIN };
                cg_egress_client_poll(&k->egress, fds + FIXED_FDS);
                n = poll(fds, CG_ARRAY_LEN(fds), wait);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return 125;
                if (fds[0].revents)
                        return read_status(k);
                if (out_of_time(k, &status))
                        return status;
                if (fds[1].revents)
                        take_signals(k);
                if (fds[2].revents && !control_read(k))
                        return 1;
                if (fds[3].revents)
                        replace_watcher(k);
                if (fds[4].revents)
                        read_denials(k);
                if (fds[5].revents)
                        read_doors(k);
                cg_egress_client_dispatch(&k->egress, fds + FIXED_FDS);
        }
}

/* The command as one line, as ignoreViolations are compared with it. */
static void command_line(const struct cg_command *c, char *buf, size_t size)
{
        size_t n = 0;

        buf[0] = '\0';
        if (c->shell_text) {
                snprintf(buf, size, "%s", c->shell_text);
                return;
        }
        for (size_t i = 0; c->argv[i] && n + 1 < size; i++) {
                int len = snprintf(buf + n, size - n, "%s%s", cg_sep(i, " "), c->argv[i]);

                n += CG_MAX(len, 0);
        }
}

static int start_doors(struct keeper *k, struct cg_err *err)
{
        int *reach = k->child.ports + (k->c->proxy ? 2 : 0), r;

        r = cg_doors_start(k->c->settings, &k->c->base, &k->c->rules, k->child.doors_fd, reach, &k->doors,
                           err);
        /* From here on only that process has them: when it ends, connections are refused. */
        cg_closep_(&k->child.doors_fd);
        for (size_t i = 0; i < k->c->settings->own.n_reach; i++)
                cg_closep_(&reach[i]);
        return r;
}

/* A fresh socket has room for it, or the host does without. */
static void report_entries(const struct cg_command *c)
{
        cg_auto_json json_t *o = json_pack("{s:s, s:s, s:o}", "type", "entries", "base", c->base.cwd,
                                           "entries", cg_command_entries(c));
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text || len > REPORT_MAX)
                return;
        text[len++] = '\n'; /* in the place of the NUL */
        send(c->control_fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int start(struct keeper *k, struct cg_err *err)
{
        const char *log_path = k->c->settings->own.violation_log;
        sigset_t set;
        int log = -1, r;

        sigemptyset(&set);
        for (size_t i = 0; i < CG_ARRAY_LEN(handed_on); i++)
                sigaddset(&set, handed_on[i]);
        sigprocmask(SIG_BLOCK, &set, &k->c->old_mask);
        k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (k->signals < 0)
                return cg_fail_errno(err, "sandbox: signals");
        k->stderr_flags = fcntl(2, F_GETFL);
        /*
         * Opened on the host, before anything runs that could put something else there. A FIFO that
         * an earlier command has put there is not waited for.
         */
        if (log_path) {
                log = open(log_path,
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
                           0600);
                if (log < 0)
                        return cg_fail_errno(err, "violation log %s", log_path);
        }
        cg_denial_log_init(&k->denials, k->c->settings, k->c->base.home, log, k->c->debug);
        if (k->c->control_socket)
                k->denials.control = k->c->control_fd;
        k->denials.with_text = k->c->report;
        if (k->c->report)
                report_entries(k->c);
        command_line(k->c, k->denials.command, sizeof(k->denials.command));
        if (k->c->proxy && (r = cg_masks_secrets(&k->c->masks, k->c->settings, &k->secrets, err)) < 0)
                return r;
        /* Before there is anything to clean up. The sandbox itself ends with this process. */
        if ((k->c->sb->n_placeholders || uses_group(k->c->sb) || k->c->tmp_on_host) &&
            (r = start_watcher(k, err)) < 0)
                return r;
        if (k->c->tmp_on_host && mkdir(k->c->tmp, 0700) < 0) {
                r = cg_fail_errno(err, "sandbox: folder for temporary files %s", k->c->tmp);
                k->c->tmp_on_host = false; /* not ours to remove */
                return r;
        }
        if ((r = cg_placeholders_make(k->c->sb, &k->placeholders, err)) < 0 ||
            (r = cg_sandbox_spawn(k->c->sb, NULL, 0, exec_command, k->c, &k->child, err)) < 0)
                return r;
        send_watcher(k);
        /* Groups of keepers that were killed with their watchers; the command runs already. */
        if (k->child.cgroup)
                cg_cgroup_tidy(NULL);
        if (k->c->proxy)
                cg_egress_client_init(&k->egress, k->child.ports, CG_STEAL(k->c->policy),
                                      cg_steal_fd(&k->secrets), k->c->ask_seconds ? k->c->control_fd : -1,
                                      &k->denials);
        if (cg_doors_any(k->c->settings) && (r = start_doors(k, err)) < 0)
                return r;
        leave_stdio();
        if (k->c->settings->own.limits.wall_seconds)
                k->deadline_ms = cg_now_ms() + (int64_t)k->c->settings->own.limits.wall_seconds * 1000;
        if (k->child.by[CG_LIMIT_CPU_TIME] == CG_BY_CGROUP1 ||
            k->child.by[CG_LIMIT_CPU_TIME] == CG_BY_CGROUP2)
                k->look_ms = cg_now_ms();
        return 0;
}

int cg_command_run(struct cg_command *c, struct cg_err *err)
{
        struct keeper k = { .c = c,
                            .watcher = -1,
                            .signals = -1,
                            .stderr_flags = -1,
                            .child = { .init_pidfd = -1, .status_fd = -1, .denials_fd = -1, .doors_fd = -1 },
                            .egress = { .ports = { -1, -1 }, .secrets = -1, .ask_fd = -1 },
                            .denials = { .log = -1, .control = -1 },
                            .secrets = -1,
                            .doors = CG_DOORS_PROCESS_NONE };
        int status = 1;

        cg_buf_init(&k.control, CG_MAX_SETTINGS + 65536 + 2);
        if (start(&k, err) == 0)
                status = watch(&k);

        /* A group is empty, and its counts are final, when init has ended, too. */
        if (k.child.cgroup) {
                k.all_gone = false;
                end_sandbox(&k);
                report_counts(&k);
                k.child.cgroup = cg_cgroup_free(k.child.cgroup);
        }
        /*
         * The command shares the flags of standard error with the caller: one that it has made
         * non-blocking would lose lines.
         */
        if (k.stderr_flags >= 0)
                fcntl(2, F_SETFL, k.stderr_flags);
        read_denials(&k);
        cg_egress_client_read_events(&k.egress);
        if (!c->quiet)
                cg_denial_log_summary(&k.denials);
        cg_denial_log_fini(&k.denials);

        if (!k.all_gone)
                end_sandbox(&k);
        if (k.placeholders)
                cg_placeholders_remove(c->sb, k.placeholders);
        if (k.all_gone || k.child.init_pid <= 0)
                remove_tmp(c);
        /* Killed and not waited for: it has nothing left to do. */
        if (k.watcher_pid > 0) {
                kill(k.watcher_pid, SIGKILL);
                waitpid(k.watcher_pid, NULL, WNOHANG);
        }
        end_sandbox(&k);
        cg_doors_end(&k.doors);
        cg_closep_(&k.child.doors_fd);
        cg_closep_(&k.secrets);
        cg_egress_client_fini(&k.egress);
        cg_buf_fini(&k.control);
        return status;
}
