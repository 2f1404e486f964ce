/*
 * init: pid 1 of the sandbox. Makes the view, forks the main process (before that, when it has
 * something to prepare), then only reaps, reports the main process's end and ends, and with it, by
 * the kernel's hand, everything in its pid namespace.
 *
 * It is a copy of the caller that never runs any of the caller's code again. The sandbox cannot
 * signal it (pid 1), trace or read it (not dumpable), and all that it reads from inside are the
 * numbers of denied system calls (notify.c).
 */
#include "sandbox/steps.h"

#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/proc.h"
#include "sandbox/inside/commands.h"
#include "sandbox/inside/beside.h"
#include "sandbox/inside/broker.h"
#include "sandbox/inside/doors.h"
#include "sandbox/inside/exec.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"
#include "sandbox/inside/stopped.h"

/* Init's descriptors; those from PROXY_FD on are of the landlock tier. */
enum {
        STATUS_FD = 0,
        SIGNAL_FD = 1,
        LISTENER_FD = 2,
        DENIED_FD = 3,
        DOORS_FD = 4,
        COMMANDS_FD = 5,
        PROXY_FD = 6,
        FIXED_FDS = PROXY_FD + CG_LANDLOCK_PORTS
};

/* Time for killed processes to end without a pid namespace (they may hang on a dead disk). */
#define END_DEADLINE_MS 5000

/* Reports the outcome to the caller; @err NULL: success. True if it was sent. */
static bool report(int ready_fd, const struct cg_err *err)
{
        struct cg_ready r = { .ok = !err };

        if (err)
                r.err = *err;
        return write(ready_fd, &r, sizeof(r)) == (ssize_t)sizeof(r);
}

static _Noreturn void fail(const struct cg_spawn *sp, const struct cg_err *err)
{
        report(sp->ready_fd, err);
        _exit(125);
}

/* Preparation that opens no files, run while init makes the view. */
static void prepare(const struct cg_spawn *sp)
{
        struct cg_err err = { 0 };
        char go = 0;

        if (sp->prepare_fn && sp->prepare_fn(sp->data, &err) < 0)
                fail(sp, &err);
        if (sp->go_in < 0)
                return;
        if (read(sp->go_in, &go, 1) != 1) /* init has failed and reported it */
                _exit(125);
        close(sp->go_in);
}

/*
 * Setup before anything of the sandbox runs. The parent-death signal covers a caller that is killed
 * later, the status pipe without a reader one that has ended before this line.
 */
static int become_init(const struct cg_spawn *sp, struct cg_err *err)
{
        static const char score[] = "500"; /* half of the machine's memory */
        char now[16] = "";

        prctl(PR_SET_NAME, "cg-init", 0, 0, 0);
        if (prctl(PR_SET_PDEATHSIG, cg_plan_has_namespaces(sp->sb) ? SIGKILL : SIGTERM, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: end with the caller");
        if (setsid() < 0)
                return cg_fail_errno(err, "sandbox: session of init");
        /* With an inherited SIG_IGN the kernel would reap the main process and lose its status. */
        signal(SIGCHLD, SIG_DFL);
        /*
         * The OOM killer prefers the sandbox's processes. The score is inherited and cannot be
         * changed inside, where /proc is read-only. Failure is ignored.
         */
        if (sp->oom_first) {
                cg_auto_fd int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

                if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 &&
                    strtol(now, NULL, 10) < strtol(score, NULL, 10)) {
                        ssize_t n = pwrite(fd, score, sizeof(score) - 1, 0);

                        (void)n;
                }
        }
        if (!sp->cgroup)
                return 0;
        /*
         * The root of a cgroup namespace is the group of the process that makes it, so it is made
         * after the process has joined its group, not with the clone.
         */
        if (cg_cgroup_join(sp->cgroup, sp->cloned_into, err) < 0)
                return -1;
        if (cg_plan_has_namespaces(sp->sb) && unshare(CLONE_NEWCGROUP) < 0)
                return cg_fail_errno(err, "sandbox: cgroup namespace");
        return 0;
}

/* libc's fork, not a raw clone: it updates the cached thread id, locks and runs atfork handlers. */
static pid_t fork_main(const struct cg_spawn *sp, struct cg_err *err)
{
        pid_t init = getpid(), pid = fork();

        if (pid != 0)
                return pid < 0 ? cg_fail_errno(err, "sandbox: main process") : pid;
        /* Among them sockets of other sessions and folders in the host's mounts. */
        if (cg_enter_close_others(sp, err) < 0)
                fail(sp, err);
        prepare(sp);
        if (cg_enter(sp, err) < 0)
                fail(sp, err);
        /* Without a pid namespace init may have ended before this process was to end with it. */
        if (getppid() != init)
                _exit(125);
        /* On failure the caller has ended meanwhile. */
        if (!report(sp->ready_fd, NULL))
                _exit(125);
        close(sp->ready_fd);
        sigprocmask(SIG_SETMASK, &sp->old_mask, NULL);
        _exit(sp->main_fn(sp->data));
}

/* *main_pid: the main process, if it is started here to prepare itself. */
static int make_sandbox(const struct cg_spawn *sp, pid_t *main_pid, struct cg_err *err)
{
        /* The maps are written to /proc/self, which is root's if the caller is not dumpable. */
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || cg_ns_map_ids(sp->uid, sp->gid, err) < 0)
                return cg_err_prefix(err, "sandbox: user namespace");
        /* For good: the main process has the same user and must not trace or read this one. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: init not dumpable");
        if (sp->go_in >= 0 && (*main_pid = fork_main(sp, err)) < 0)
                return -1;
        if (cg_ns_loopback_up(err) < 0)
                return -1;
        if (sp->ports_fd >= 0 && cg_ns_send_ports(sp, err) < 0)
                return -1;
        /*
         * With a control group files in memory count towards its limit; otherwise only the sizes of
         * tmpfs limit them.
         */
        if (cg_mounts_apply(sp->sb, sp->oom_first ? sp->sb->set.limits.memory_bytes : 0, err) < 0)
                return -1;
        if (sp->go_in >= 0 && write(sp->go_out, "g", 1) != 1)
                return cg_fail_errno(err, "sandbox: word to the main process");
        return cg_caps_drop_bounding(sp->sb->set.nested_users && !sp->uid, err);
}

/*
 * Signals of the host that a command's sandbox forwards: SIGTSTP and SIGCONT to all processes
 * inside, signals of a terminal to the main process's group, the others to the main process.
 */
static const int forwarded[] = { SIGINT,   SIGQUIT, SIGHUP,  SIGUSR1, SIGUSR2,
                                 SIGWINCH, SIGTSTP, SIGCONT, SIGALRM };

static int make_subreaper(struct cg_err *err)
{
        if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: subreaper");
        return 0;
}

/* Moves @fds to their fixed numbers (-1: absent) and closes all others. */
static int keep_only(int fds[FIXED_FDS])
{
        /* First to high numbers, since one may have the number of another. */
        for (int i = 0; i < FIXED_FDS; i++)
                if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIXED_FDS)) < 0)
                        return -1;
        for (int i = 0; i < FIXED_FDS; i++)
                if (fds[i] >= 0 ? dup2(fds[i], i) < 0 : close_range((unsigned int)i, (unsigned int)i, 0) < 0)
                        return -1;
        return close_range(FIXED_FDS, ~0U, 0);
}

/* Opens the signal descriptor and resets all handlers: no code of the caller runs any more. */
static int open_signals(const struct cg_spawn *sp)
{
        sigset_t wanted;

        for (int s = 1; s < NSIG; s++) {
                /* SIGCHLD has its default since become_init(): set again, a pending one is lost. */
                if (s != SIGCHLD)
                        signal(s, SIG_DFL); /* some cannot be set, which does not matter */
        }
        sigemptyset(&wanted);
        sigaddset(&wanted, SIGCHLD);
        sigaddset(&wanted, SIGTERM);
        for (size_t i = 0; sp->sb->set.command && i < CG_ARRAY_LEN(forwarded); i++)
                sigaddset(&wanted, forwarded[i]);
        return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Resets handlers, closes descriptors and drops rights of the caller. */
static int seal_init(const struct cg_spawn *sp, const int proxies[CG_LANDLOCK_PORTS], struct cg_err *err)
{
        int fds[FIXED_FDS] = { sp->status_fd,  open_signals(sp), sp->listener_out,
                               sp->denials_fd, sp->doors_fd,     sp->commands_fd };
        unsigned int kept = cg_mediates(sp->sb) ? 1U << CAP_SYS_PTRACE : 0;
        int r;

        memcpy(fds + PROXY_FD, proxies, sizeof(int) * CG_LANDLOCK_PORTS);
        if (fds[SIGNAL_FD] < 0 || keep_only(fds) < 0)
                return cg_fail_errno(err, "sandbox: descriptors of init");
        if (chdir("/") < 0)
                return cg_fail_errno(err, "sandbox: folder of init");
        if (sp->sb->set.off)
                return 0;
        /*
         * Init keeps the capabilities of the main process, which reading a caller's memory
         * requires, and CAP_SYS_PTRACE for callers that are not dumpable (gpg-agent).
         */
        if (sp->sb->grants)
                r = cg_caps_drop_outside(err);
        else
                r = cg_caps_drop(sp->sb->set.nested_users && !sp->uid, kept, err);
        if (r < 0)
                return -1;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: no_new_privs");
        return 0;
}

/* Kills the direct children; their children are reparented to this process when they end. */
static void kill_children(void)
{
        char path[64];
        FILE *f;
        cg_auto_dir DIR *dir = NULL;
        const struct dirent *d;
        int pid;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        f = fopen(path, "re");
        if (f) {
                while (fscanf(f, "%d", &pid) == 1)
                        kill(pid, SIGKILL);
                fclose(f);
                return;
        }
        /* Without the kernel's list of children. */
        dir = opendir("/proc");
        while (dir && (d = readdir(dir))) {
                struct cg_proc_stat stat;

                pid = cg_proc_of_entry(d->d_name);
                if (pid && cg_proc_read_stat(pid, &stat) && stat.parent == getpid())
                        kill(pid, SIGKILL);
        }
}

/*
 * Does what the kernel does at the end of a pid namespace. True if no process is left. Processes
 * that fork and end faster than they are found become children of this process each time, so the
 * search is repeated until a deadline.
 */
static bool end_all(void)
{
        int64_t deadline = cg_now_ms() + END_DEADLINE_MS;

        for (;;) {
                struct pollfd signals = { .fd = SIGNAL_FD, .events = POLLIN };
                struct signalfd_siginfo info;
                int64_t left = deadline - cg_now_ms();
                pid_t pid;

                kill_children();
                while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
                        ;
                if (pid < 0 || left <= 0) /* no children left */
                        return pid < 0;
                poll(&signals, 1, CG_MIN(left, 10));
                while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info))
                        ;
        }
}

/* ---- command servers (commands.h) */

/*
 * Listeners: of the main process, and of command servers. A server that processes inside have
 * killed is replaced; its listener stays as long as programs that it started run.
 */
#define LISTENERS 5
_Static_assert(LISTENERS == CG_BESIDE_SERVERS, "a command server for each listener but the main process's");

/* The child's part: nothing of init's own stays open. */
static _Noreturn void run_server(const struct cg_spawn *sp, int sock, int listener)
{
        struct cg_spawn late = *sp;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC), keep[] = { sock, listener };

        /* Above init's own, and in ascending order. */
        for (size_t i = 0; i < CG_ARRAY_LEN(keep); i++)
                if (keep[i] >= 0 && (keep[i] = fcntl(keep[i], F_DUPFD_CLOEXEC, FIXED_FDS)) < 0)
                        _exit(125);
        for (int fd = 0; fd < FIXED_FDS; fd++)
                if (fd < 3 ? dup2(null, fd) < 0 : close_range((unsigned int)fd, (unsigned int)fd, 0) < 0)
                        _exit(125);
        late.late = true;
        late.ready_fd = -1;
        late.listener_in = keep[1];
        late.keep = keep;
        late.n_keep = 1 + (listener >= 0);
        if (cg_enter_close_others(&late, NULL) < 0)
                _exit(125);
        cg_command_server_run(&late, keep[0]);
}

/*
 * A message of the caller: an answer about a program, or a request for a command server, which is
 * forked. False: no more will come.
 */
static bool take_request(const struct cg_spawn *sp, struct cg_notify notify[LISTENERS],
                         pid_t servers[LISTENERS], struct cg_execs *execs)
{
        struct cg_command_server_ready failed = { .ok = 0 };
        int sock = -1, pair[2] = { -1, -1 }, slot = -1;
        size_t n = 1;
        struct cg_exec_message m;
        struct cg_err err;
        ssize_t got;
        pid_t pid = -1;

        got = cg_recv_fds(COMMANDS_FD, &m, sizeof(m), &sock, &n, &err);
        if (got <= 0)
                return got < 0 && (err.sys_errno == EAGAIN || err.sys_errno == EINTR);
        if (got == (ssize_t)sizeof(m) && execs->sb)
                cg_execs_answer(execs, &m);
        if (n != 1)
                return true;
        for (int i = 1; i < LISTENERS && slot < 0; i++)
                slot = notify[i].sock < 0 && notify[i].listener < 0 ? i : -1;
        if (slot < 0)
                cg_fail(&failed.err, CG_E_LIMIT,
                        "commands: processes in the sandbox have ended what starts them too often; reset the session");
        else if (sp->listener_out >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                cg_fail_errno(&failed.err, "commands: socket");
        else if ((pid = fork()) == 0)
                run_server(sp, sock, pair[0]);
        else if (pid < 0)
                cg_fail_errno(&failed.err, "commands: fork");
        if (failed.err.code < 0) {
                cg_send_fds(sock, &failed, sizeof(failed), NULL, 0, NULL);
                cg_closep_(&pair[1]);
        } else {
                notify[slot].sock = pair[1];
                servers[slot] = pid;
        }
        cg_closep_(&pair[0]);
        cg_closep_(&sock);
        return true;
}

static void send_status(struct cg_sandbox_status st, struct cg_notify notify[LISTENERS])
{
        ssize_t n;

        for (size_t i = 0; i < LISTENERS; i++)
                cg_reply_report_lost(&notify[i]); /* before the status: the reader may stop there */
        n = write(STATUS_FD, &st, sizeof(st));    /* fails if the reader has ended */
        (void)n;
}

/*
 * No process with the main process's filter can start another one or return to its code. Before
 * Linux 6.11 this is reported when they have been reaped, and nothing is found here.
 */
static void report_stopped(pid_t main_pid, struct cg_notify notify[LISTENERS])
{
        if (cg_stopped_check(main_pid))
                send_status((struct cg_sandbox_status){ .magic = CG_SANDBOX_STOPPED_MAGIC }, notify);
}

/* Reaps children; true if the main process was one. */
static bool reap(const struct cg_spawn *sp, pid_t main_pid, struct cg_notify notify[LISTENERS],
                 pid_t servers[LISTENERS], struct cg_mediator *mediator, struct cg_execs *execs)
{
        struct cg_sandbox_status report = { .magic = CG_SANDBOX_STATUS_MAGIC, .exit_code = -1 };
        int status, main_status = 0;
        bool ended = false;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG | (execs->sb ? __WALL : 0))) > 0) {
                if (cg_execs_status(execs, pid, status))
                        continue;
                cg_mediate_child_ended(mediator, pid);
                for (size_t i = 0; i < LISTENERS; i++)
                        servers[i] = servers[i] == pid ? 0 : servers[i];
                if (pid != main_pid)
                        continue;
                main_status = status;
                ended = true;
        }
        if (!ended)
                return false;
        if (sp->sb->grants) {
                end_all();
        } else if (!sp->sb->set.off) {
                /*
                 * Ends all others, so that the caller need not wait for the end of the namespaces,
                 * which takes longer than all the rest.
                 */
                kill(-1, SIGKILL);
                while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                        ;
        }
        if (WIFEXITED(main_status))
                report.exit_code = WEXITSTATUS(main_status);
        else if (WIFSIGNALED(main_status))
                report.signal = WTERMSIG(main_status);
        send_status(report, notify);
        return true;
}

/*
 * Reads the signal descriptor; true if SIGTERM was received. @main_pid: the process that signals
 * are forwarded to; 0: none. Sets *child if SIGCHLD was received.
 */
static bool take_signals(const struct cg_spawn *sp, pid_t main_pid, bool *child)
{
        /* In a pid namespace the host's pid is 0; in the landlock tier the sender is the guard. */
        uint32_t host = sp->sb->grants ? (uint32_t)getppid() : 0;
        /* -1 would be all processes of the user on this machine */
        pid_t all = sp->sb->grants ? -main_pid : -1;
        struct signalfd_siginfo info;
        bool term = false;

        while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                int sig = (int)info.ssi_signo;

                term |= sig == SIGTERM;
                *child |= sig == SIGCHLD;
                if (!main_pid || sig == SIGCHLD || info.ssi_code != SI_USER || info.ssi_pid != host)
                        continue;
                switch (sig) {
                case SIGTSTP:
                        kill(all, SIGSTOP);
                        break;
                case SIGCONT:
                        kill(all, SIGCONT);
                        break;
                case SIGINT:
                case SIGQUIT:
                case SIGHUP:
                case SIGWINCH:
                        kill(-main_pid, sig);
                        break;
                default:
                        kill(main_pid, sig);
                }
        }
        return term;
}

/* Time without calls after which init frees memory: the main process starts before that. */
#define FREE_MS 20

/* Indices in watch()'s pollfds. */
enum { STATUS_POLL, SIGNAL_POLL, COMMANDS_POLL, FIRST_LISTENER, FIRST_DOOR = FIRST_LISTENER + LISTENERS };

/*
 * Init's loop, until the main process, the caller or (landlock tier) the guard has ended, or (plan
 * off) SIGTERM is received.
 */
static void watch(const struct cg_spawn *sp, pid_t main_pid, pid_t guard_pid)
{
        /* A pipe's write end reports POLLERR when its last reader is closed. */
        struct pollfd fds[FIRST_DOOR + CG_DOORS_FDS] = { { .fd = STATUS_FD },
                                                         { .fd = SIGNAL_FD, .events = POLLIN },
                                                         { .fd = sp->commands_fd >= 0 ? COMMANDS_FD : -1,
                                                           .events = POLLIN } };
        struct cg_broker broker = { .sb = sp->sb, .proxies = PROXY_FD };
        pid_t servers[LISTENERS] = { 0 };
        struct cg_mediator mediator;
        struct cg_notify notify[LISTENERS];
        struct cg_doors doors;
        struct cg_execs execs;
        /* The main process may have ended before there was a signal descriptor to report it. */
        bool child = true;
        void (*free_memory)(void) = sp->sb->free_in_init;

        cg_mediate_init(&mediator, sp->sb);
        cg_doors_init(&doors, sp->doors_fd >= 0 ? DOORS_FD : -1, sp->sb->set.doors);
        for (size_t i = 0; i < LISTENERS; i++) {
                cg_notify_init(&notify[i], i == 0 && sp->listener_out >= 0 ? LISTENER_FD : -1, DENIED_FD,
                               sp->sb->set.weak_proc && !sp->sb->grants);
                if (sp->sb->grants)
                        notify[i].broker = &broker;
                notify[i].doors = &doors;
                notify[i].watch = sp->sb->set.watch ? sp->sb : NULL;
                notify[i].watch_network = cg_plan_reports_network(sp->sb);
                notify[i].mediator = &mediator;
        }
        cg_execs_init(&execs, sp->sb, &notify[0], sp->commands_fd >= 0 ? COMMANDS_FD : -1, main_pid,
                      sp->affinity);
        notify[0].execs = execs.sb ? &execs : NULL;
        notify[0].servers = servers;
        while (!child || !reap(sp, main_pid, notify, servers, &mediator, &execs)) {
                int timeout = cg_doors_timeout(&doors), ask = cg_execs_timeout(&execs), n;
                bool term;

                if (timeout < 0 || (ask >= 0 && ask < timeout))
                        timeout = ask;
                if (timeout < 0 && free_memory)
                        timeout = FREE_MS;
                for (size_t i = 0; i < LISTENERS; i++)
                        fds[FIRST_LISTENER + i] = cg_notify_poll(&notify[i]);
                n = poll(fds, FIRST_DOOR + cg_doors_poll(&doors, fds + FIRST_DOOR), timeout);
                if (n < 0) {
                        if (errno != EINTR)
                                return;
                        continue;
                }
                if (n == 0 && free_memory) {
                        free_memory();
                        free_memory = NULL;
                }
                if (fds[STATUS_POLL].revents & (POLLERR | POLLHUP | POLLNVAL))
                        return;
                /* In a pid namespace SIGTERM can only come from processes inside. */
                child = false;
                term = fds[SIGNAL_POLL].revents &&
                       take_signals(sp, sp->sb->set.command && !sp->sb->set.off ? main_pid : 0, &child);
                if (term && sp->sb->set.off)
                        return;
                /* SIGTERM has reported its end, which may have been before this loop. */
                if (sp->sb->grants && getppid() != guard_pid)
                        return;
                if (sp->sb->set.report_stopped && !child &&
                    (fds[FIRST_LISTENER].revents & (POLLIN | POLLHUP)) == POLLHUP)
                        report_stopped(main_pid, notify);
                for (size_t i = 0; i < LISTENERS; i++)
                        cg_notify_work(&notify[i], &fds[FIRST_LISTENER + i]);
                cg_doors_work(&doors, fds + FIRST_DOOR);
                if (fds[COMMANDS_POLL].revents && !take_request(sp, notify, servers, &execs))
                        fds[COMMANDS_POLL].fd = -1;
                if (ask >= 0)
                        cg_execs_tick(&execs);
        }
}

/* ---- the landlock tier */

/* One socket for each of the plan's ports: by it the broker sends connections to the proxy. */
static int send_proxies(const struct cg_spawn *sp, int mine[CG_LANDLOCK_PORTS], struct cg_err *err)
{
        int fds[CG_LANDLOCK_PORTS], r = 0;
        size_t n = 0;

        for (; n < sp->sb->set.n_ports && r == 0; n++) {
                int pair[2] = { -1, -1 };

                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                        r = cg_fail_errno(err, "sandbox: way to the proxy");
                mine[n] = pair[0];
                fds[n] = pair[1];
        }
        if (r >= 0 && n)
                r = cg_send_fds(sp->ports_fd, "p", 1, fds, n, err);
        while (n--)
                cg_closep_(&fds[n]);
        return r;
}

/*
 * The guard is the process whose pid the caller has. If it is killed init ends all processes
 * inside; if init is killed they are reparented to the guard, which ends them. Without a pid
 * namespace one process is not enough.
 */
static _Noreturn void guard(const struct cg_spawn *sp, pid_t init)
{
        struct pollfd p = { .fd = SIGNAL_FD, .events = POLLIN };
        struct signalfd_siginfo info;
        struct cg_err err;
        int fds[FIXED_FDS];
        bool ended = false;
        pid_t pid;

        prctl(PR_SET_NAME, "cg-guard", 0, 0, 0);
        memset(fds, -1, sizeof(fds));
        fds[SIGNAL_FD] = open_signals(sp);
        if (fds[SIGNAL_FD] < 0 || keep_only(fds) < 0 || chdir("/") < 0 || cg_caps_drop_outside(&err) < 0 ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                _exit(125); /* init ends with it, without a status */
        while (!ended) {
                while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info))
                        if (info.ssi_signo != SIGCHLD)
                                kill(init, (int)info.ssi_signo);
                while (!ended && (pid = waitpid(-1, NULL, WNOHANG)) > 0)
                        ended = pid == init;
                if (!ended && poll(&p, 1, -1) < 0 && errno != EINTR)
                        _exit(125);
        }
        while (!end_all())
                ;
        _exit(0);
}

/* Forks: returns in the child, which is init. */
static int fork_guard(const struct cg_spawn *sp, struct cg_err *err)
{
        pid_t self = getpid(), pid;

        /* For good: the main process has the same user and must not trace or read these. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
            make_subreaper(err) < 0)
                return cg_fail_errno(err, "sandbox: guard");
        pid = fork();
        if (pid < 0)
                return cg_fail_errno(err, "sandbox: init");
        if (pid > 0)
                guard(sp, pid);
        if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || getppid() != self || setsid() < 0)
                return cg_fail_errno(err, "sandbox: init");
        return make_subreaper(err);
}

/* *pid: the main process, where it was forked to prepare something. */
static int make_tier(const struct cg_spawn *sp, int proxies[CG_LANDLOCK_PORTS], pid_t *pid,
                     struct cg_err *err)
{
        int r;

        if (sp->sb->set.off)
                return make_subreaper(err);
        if (!sp->sb->grants)
                return make_sandbox(sp, pid, err);
        r = fork_guard(sp, err);
        return r ?: send_proxies(sp, proxies, err);
}

_Noreturn void cg_init_run(const struct cg_spawn *sp)
{
        int proxies[CG_LANDLOCK_PORTS] = { -1, -1, -1, -1 };
        struct cg_err err = { 0 };
        pid_t pid = 0, guard_pid = getpid(); /* in the landlock tier the cloned process is the guard */

        if (become_init(sp, &err) < 0 || (cg_plan_traces(sp->sb) && cg_execs_check(&err) < 0) ||
            make_tier(sp, proxies, &pid, &err) < 0)
                fail(sp, &err);
        if (!pid && (pid = fork_main(sp, &err)) < 0)
                fail(sp, &err);
        if (seal_init(sp, proxies, &err) < 0)
                fail(sp, &err);
        watch(sp, pid, guard_pid);
        if (sp->sb->set.off)
                end_all();
        while (sp->sb->grants && !end_all())
                ;
        _exit(0);
}
