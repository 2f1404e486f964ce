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

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/notify/broker.h"
#include "sandbox/notify/doors.h"
#include "sandbox/notify/mediate.h"
#include "sandbox/notify/notify.h"
#include "sandbox/notify/reply.h"

/* Its only descriptors; PROXY_FD and those behind it are the landlock tier's. */
enum {
        STATUS_FD = 0,
        SIGNAL_FD = 1,
        LISTENER_FD = 2,
        DENIED_FD = 3,
        DOORS_FD = 4,
        PROXY_FD = 5,
        FIXED_FDS = PROXY_FD + CG_LANDLOCK_PORTS
};

/*
 * How long the rest of a plan that is off may take to end once it was killed (stuck in the kernel,
 * say, on a dead disk).
 */
#define END_DEADLINE_MS 5000

/* Sends the outcome to the caller, NULL being good news; true when it arrived. */
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

/* What takes no file, while init makes the view. */
static void prepare(const struct cg_spawn *sp)
{
        struct cg_err err = { 0 };
        char go = 0;

        if (sp->prepare_fn && sp->prepare_fn(sp->data, &err) < 0)
                fail(sp, &err);
        if (sp->go_in < 0)
                return;
        if (read(sp->go_in, &go, 1) != 1) /* init has failed, and said so */
                _exit(125);
        close(sp->go_in);
}

static _Noreturn void run_main(const struct cg_spawn *sp)
{
        struct cg_err err = { 0 };

        /* Sockets of other sessions, files, folders of the host's mounts. */
        if (cg_enter_close_others(sp, &err) < 0)
                fail(sp, &err);
        prepare(sp);
        if (cg_enter(sp, &err) < 0)
                fail(sp, &err);
        /* Nobody there to be told means that the caller has ended meanwhile. */
        if (!report(sp->ready_fd, NULL))
                _exit(125);
        close(sp->ready_fd);
        sigprocmask(SIG_SETMASK, &sp->old_mask, NULL);
        _exit(sp->main_fn(sp->data));
}

/*
 * A cgroup namespace has as its root the group that its maker was in: so it comes after the group,
 * not with the clone.
 */
static int enter_group(const struct cg_spawn *sp, struct cg_err *err)
{
        if (!sp->cgroup)
                return 0;
        if (cg_cgroup_join(sp->cgroup, sp->cloned_into, err) < 0)
                return -1;
        if (cg_plan_has_namespaces(sp->sb) && unshare(CLONE_NEWCGROUP) < 0)
                return cg_fail_errno(err, "sandbox: cgroup namespace");
        return 0;
}

/*
 * Half of the machine's memory more than they use, so that the kernel of the machine chooses among
 * them. It is inherited, and inside /proc is read-only. Where the /proc out here cannot be written
 * it stays as it was: nothing depends on it.
 */
static void volunteer_for_oom(void)
{
        static const char score[] = "500";
        cg_auto_fd int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        char now[16] = "";

        if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 &&
            strtol(now, NULL, 10) < strtol(score, NULL, 10) && pwrite(fd, score, sizeof(score) - 1, 0) < 0)
                return;
}

/*
 * What must hold before anything of the sandbox runs. A parent-death signal alone would do for a
 * caller that is killed; the status pipe, whose reader vanishes, also tells of one that was gone
 * before this line.
 */
static int become_init(const struct cg_spawn *sp, struct cg_err *err)
{
        prctl(PR_SET_NAME, "cg-init", 0, 0, 0);
        if (prctl(PR_SET_PDEATHSIG, cg_plan_has_namespaces(sp->sb) ? SIGKILL : SIGTERM, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: end with the caller");
        if (setsid() < 0)
                return cg_fail_errno(err, "sandbox: session of init");
        /* An inherited SIG_IGN would have the kernel reap the main process and lose its status. */
        signal(SIGCHLD, SIG_DFL);
        if (sp->oom_first)
                volunteer_for_oom();
        return enter_group(sp, err);
}

/*
 * libc's own fork, not a raw clone: it puts the thread id it caches, its locks and atfork handlers
 * right.
 */
static pid_t fork_main(const struct cg_spawn *sp, struct cg_err *err)
{
        pid_t pid = fork();

        if (pid == 0)
                run_main(sp);
        return pid < 0 ? cg_fail_errno(err, "sandbox: main process") : pid;
}

/* *main_pid: the main process, where it prepares itself from here on. */
static int make_sandbox(const struct cg_spawn *sp, pid_t *main_pid, struct cg_err *err)
{
        /*
         * A caller that is not dumpable (it holds secrets) leaves /proc/self to root; the maps are
         * written there.
         */
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
         * Where a control group holds the limit, files in memory count in it; where none does,
         * nothing else bounds them.
         */
        if (cg_mounts_apply(sp->sb, sp->oom_first ? sp->sb->limits.memory_bytes : 0, err) < 0)
                return -1;
        if (sp->go_in >= 0 && write(sp->go_out, "g", 1) != 1)
                return cg_fail_errno(err, "sandbox: word to the main process");
        return cg_enter_bounding_set(sp->sb->nested_users && !sp->uid, err);
}

/*
 * Signals of the host that a command's sandbox hands on; it cannot be signalled otherwise. SIGTSTP
 * and SIGCONT are for everything inside, what a terminal sends for the main process's group, the
 * rest for the main process.
 */
static const int handed_on[] = { SIGINT,   SIGQUIT, SIGHUP,  SIGUSR1, SIGUSR2,
                                 SIGWINCH, SIGTSTP, SIGCONT, SIGALRM };

static int make_subreaper(struct cg_err *err)
{
        if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: subreaper");
        return 0;
}

/*
 * They move to their fixed numbers; those that are not there (-1) stay free, and all others are
 * closed.
 */
static int keep_only(int fds[FIXED_FDS])
{
        /* Any of them may have another's number already: out of the way first. */
        for (int i = 0; i < FIXED_FDS; i++) {
                if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIXED_FDS)) < 0)
                        return -1;
        }
        for (int i = 0; i < FIXED_FDS; i++) {
                if (fds[i] >= 0 ? dup2(fds[i], i) < 0 : close_range((unsigned int)i, (unsigned int)i, 0) < 0)
                        return -1;
        }
        return close_range(FIXED_FDS, ~0U, 0);
}

/* Signals as a descriptor, all handlers gone: nothing of the caller's runs here any more. */
static int open_signals(const struct cg_spawn *sp)
{
        sigset_t wanted;

        for (int s = 1; s < NSIG; s++) {
                /*
                 * SIGCHLD is at its default since become_init(); to set it again would discard one
                 * that waits.
                 */
                if (s != SIGCHLD)
                        signal(s, SIG_DFL); /* those that cannot be set need not be */
        }
        sigemptyset(&wanted);
        sigaddset(&wanted, SIGCHLD);
        sigaddset(&wanted, SIGTERM);
        for (size_t i = 0; sp->sb->command && i < CG_ARRAY_LEN(handed_on); i++)
                sigaddset(&wanted, handed_on[i]);
        return signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * Nothing of the caller's may run or stay open here: handlers to default, descriptors closed,
 * rights gone.
 */
static int seal_init(const struct cg_spawn *sp, const int proxies[CG_LANDLOCK_PORTS], struct cg_err *err)
{
        int fds[FIXED_FDS] = { sp->status_fd, open_signals(sp), sp->listener_out, sp->denied_fd,
                               sp->doors_fd };

        memcpy(fds + PROXY_FD, proxies, sizeof(int) * CG_LANDLOCK_PORTS);
        if (fds[SIGNAL_FD] < 0 || keep_only(fds) < 0)
                return cg_fail_errno(err, "sandbox: descriptors of init");
        if (chdir("/") < 0)
                return cg_fail_errno(err, "sandbox: folder of init");
        if (sp->sb->off)
                return 0;
        /*
         * What the main process keeps, too: a call that is asked about is looked at in its caller's
         * memory, which takes as much power. Callers that are not dumpable (gpg-agent) take
         * CAP_SYS_PTRACE.
         */
        if ((sp->sb->grants ? cg_enter_drop_caps_outside(err)
                            : cg_enter_keep_caps(sp->sb->nested_users && !sp->uid,
                                                 cg_mediates(sp->sb) ? 1U << CAP_SYS_PTRACE : 0, err)) < 0)
                return -1;
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? cg_fail_errno(err, "sandbox: no_new_privs") : 0;
}

static void write_status(int wait_status)
{
        struct cg_sandbox_status st = {
                .magic = CG_SANDBOX_STATUS_MAGIC,
                .exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1,
                .signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0,
        };
        ssize_t n = write(STATUS_FD, &st, sizeof(st)); /* a reader that has gone does not want it */

        (void)n;
}

/*
 * All that is left inside: gone, so that the caller need not wait for the end of the namespaces to
 * know it.
 */
static void end_rest(void)
{
        kill(-1, SIGKILL);
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                ;
}

static void drain_signals(void)
{
        struct signalfd_siginfo info;

        while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info))
                ;
}

/* Where the kernel keeps no list of children: all processes whose parent we are. */
static void kill_children_slowly(void)
{
        DIR *dir = opendir("/proc");
        const struct dirent *d;

        while (dir && (d = readdir(dir))) {
                char path[300], text[512];
                const char *rest;
                int fd, parent = 0;
                ssize_t n;

                if (d->d_name[0] < '1' || d->d_name[0] > '9')
                        continue;
                snprintf(path, sizeof(path), "/proc/%s/stat", d->d_name);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
                cg_closep_(&fd);
                if (n <= 0)
                        continue;
                text[n] = '\0';
                rest = strrchr(text, ')');
                if (rest && sscanf(rest, ") %*c %d", &parent) == 1 && parent == (int)getpid())
                        kill((pid_t)strtol(d->d_name, NULL, 10), SIGKILL);
        }
        if (dir)
                closedir(dir);
}

/* Kills the direct children; their children become ours as they die. */
static void kill_children(void)
{
        char path[64];
        FILE *f;
        int pid;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        f = fopen(path, "re");
        if (!f) {
                kill_children_slowly();
                return;
        }
        while (fscanf(f, "%d", &pid) == 1)
                kill(pid, SIGKILL);
        fclose(f);
}

/*
 * Without a pid namespace init has to do what the kernel does at the end of one. True when nothing
 * is left: what forks and ends faster than it is found has become a child of this process each
 * time, and is looked for until its time is over.
 */
static bool end_all(void)
{
        int64_t deadline = cg_now_ms() + END_DEADLINE_MS;

        for (;;) {
                struct pollfd signals = { .fd = SIGNAL_FD, .events = POLLIN };
                int64_t left = deadline - cg_now_ms();
                pid_t pid;

                kill_children();
                while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
                        ;
                if (pid < 0 || left <= 0) /* no child is left */
                        return pid < 0;
                poll(&signals, 1, left < 10 ? (int)left : 10);
                drain_signals();
        }
}

/* Reaps whoever has ended; true when the main process was among them. */
static bool reap(const struct cg_spawn *sp, pid_t main_pid, struct cg_notify *notify,
                 struct cg_mediator *mediator)
{
        int status, main_status = 0;
        pid_t pid;
        bool ended = false;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                cg_mediate_ended(mediator, pid);
                if (pid != main_pid)
                        continue;
                main_status = status;
                ended = true;
        }
        if (ended && sp->sb->grants)
                end_all();
        else if (ended && sp->sb->command && !sp->sb->off)
                end_rest();
        if (ended) {
                cg_reply_report_lost(notify); /* before the status: the reader may stop there */
                write_status(main_status);
        }
        return ended;
}

/*
 * From the host: in a pid namespace a sender whose pid has no number in here; else the guard.
 * Kernel and peers inside say otherwise.
 */
static bool is_from_host(const struct cg_spawn *sp, const struct signalfd_siginfo *info)
{
        return info->ssi_code == SI_USER && info->ssi_pid == (sp->sb->grants ? (uint32_t)getppid() : 0);
}

static void hand_on(const struct cg_spawn *sp, const struct signalfd_siginfo *info, pid_t main_pid)
{
        /* -1 were all that the user has on this machine */
        pid_t all = sp->sb->grants ? -main_pid : -1;
        int sig = (int)info->ssi_signo;

        if (sig == SIGCHLD || !is_from_host(sp, info))
                return;
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

/*
 * Takes what the signal descriptor has; true when SIGTERM was in it. @main_pid: whom to hand
 * signals on to, 0 nobody. Sets *child when SIGCHLD was in it.
 */
static bool take_signals(const struct cg_spawn *sp, pid_t main_pid, bool *child)
{
        struct signalfd_siginfo info;
        bool term = false;

        while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                term |= info.ssi_signo == SIGTERM;
                *child |= info.ssi_signo == SIGCHLD;
                if (main_pid)
                        hand_on(sp, &info, main_pid);
        }
        return term;
}

#define FIRST_DOOR 3 /* in what watch() waits for */

/* Until the main process has ended, the caller is gone, or (plan off) somebody says SIGTERM. */
static void watch(const struct cg_spawn *sp, pid_t main_pid)
{
        /* A pipe's writing end reports POLLERR, unasked, when its last reader is gone. */
        struct pollfd fds[FIRST_DOOR + CG_DOORS_FDS] = { { .fd = STATUS_FD },
                                                         { .fd = SIGNAL_FD, .events = POLLIN } };
        struct cg_broker broker = { .sb = sp->sb, .proxies = PROXY_FD };
        pid_t parent = getppid();
        struct cg_mediator mediator;
        struct cg_notify notify;
        struct cg_doors doors;
        /* The main process may have ended before there was a signal descriptor to report it. */
        bool child = true;

        cg_notify_init(&notify, sp->listener_out >= 0 ? LISTENER_FD : -1, DENIED_FD,
                       sp->sb->weak_proc && !sp->sb->grants);
        cg_doors_init(&doors, &notify, sp->doors_fd >= 0 ? DOORS_FD : -1, sp->sb->doors);
        if (sp->sb->grants)
                notify.broker = &broker;
        notify.watch = sp->sb->watch ? sp->sb : NULL;
        notify.watch_network = cg_plan_tells_network(sp->sb);
        cg_mediate_init(&mediator, sp->sb);
        notify.mediator = &mediator;
        while (!child || !reap(sp, main_pid, &notify, &mediator)) {
                bool term;

                fds[2] = cg_notify_poll(&notify);
                if (poll(fds, FIRST_DOOR + cg_doors_poll(&doors, fds + FIRST_DOOR),
                         cg_doors_timeout(&doors)) < 0) {
                        if (errno != EINTR)
                                return;
                        continue;
                }
                if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL))
                        return;
                /* Inside a pid namespace a SIGTERM can only be one that the sandbox sent. */
                child = false;
                term = fds[1].revents &&
                       take_signals(sp, sp->sb->command && !sp->sb->off ? main_pid : 0, &child);
                if (term && sp->sb->off)
                        return;
                /* the guard was killed: that is the order to end */
                if (sp->sb->grants && getppid() != parent)
                        return;
                cg_notify_work(&notify, &fds[2]);
                cg_doors_work(&doors, fds + FIRST_DOOR);
        }
}

/* ---- the landlock tier */

/*
 * One socket for each of the plan's ports: connections come to the proxy as descriptors, made by
 * the broker.
 */
static int send_proxies(const struct cg_spawn *sp, int mine[CG_LANDLOCK_PORTS], struct cg_err *err)
{
        int fds[CG_LANDLOCK_PORTS], e = 0;
        size_t n = 0;

        for (; n < sp->sb->n_ports && e == 0; n++) {
                int pair[2] = { -1, -1 };

                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                        e = cg_fail_errno(err, "sandbox: way to the proxy");
                mine[n] = pair[0];
                fds[n] = pair[1];
        }
        if (e == 0 && n)
                e = cg_send_fds(sp->ports_fd, "p", 1, fds, n, err);
        while (n--)
                cg_closep_(&fds[n]);
        return e;
}

/* What ends and signals mean to the guard. True when init has ended. */
static bool guard_hears(pid_t init)
{
        struct signalfd_siginfo info;
        pid_t pid;

        while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                if (info.ssi_signo != SIGCHLD)
                        kill(init, (int)info.ssi_signo);
        }
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
                if (pid == init)
                        return true;
        }
        return false;
}

/*
 * The process that the caller knows. Killed, it leaves init to end all that runs inside; and where
 * init is killed, all that comes to this process, which ends it: without a pid namespace no single
 * process can be trusted to be the last.
 */
static _Noreturn void guard(const struct cg_spawn *sp, pid_t init)
{
        struct pollfd p = { .fd = SIGNAL_FD, .events = POLLIN };
        struct cg_err err;
        int fds[FIXED_FDS];

        prctl(PR_SET_NAME, "cg-guard", 0, 0, 0);
        memset(fds, -1, sizeof(fds));
        fds[SIGNAL_FD] = open_signals(sp);
        if (fds[SIGNAL_FD] < 0 || keep_only(fds) < 0 || chdir("/") < 0 ||
            cg_enter_drop_caps_outside(&err) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                _exit(125); /* init ends with it, and the caller hears no more */
        while (!guard_hears(init)) {
                if (poll(&p, 1, -1) < 0 && errno != EINTR)
                        _exit(125);
        }
        while (!end_all())
                ;
        _exit(0);
}

/* Goes on in a child, which is init. */
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

static int make(const struct cg_spawn *sp, int *proxies, pid_t *main_pid, struct cg_err *err)
{
        if (sp->sb->off)
                return make_subreaper(err);
        if (!sp->sb->grants)
                return make_sandbox(sp, main_pid, err);
        return fork_guard(sp, err) < 0 ? -1 : send_proxies(sp, proxies, err);
}

_Noreturn void cg_init_run(const struct cg_spawn *sp)
{
        int proxies[CG_LANDLOCK_PORTS] = { -1, -1, -1, -1 };
        struct cg_err err = { 0 };
        pid_t pid = 0;

        if (become_init(sp, &err) < 0 || make(sp, proxies, &pid, &err) < 0)
                fail(sp, &err);
        if (!pid && (pid = fork_main(sp, &err)) < 0)
                fail(sp, &err);
        if (seal_init(sp, proxies, &err) < 0)
                fail(sp, &err);
        watch(sp, pid);
        if (sp->sb->off)
                end_all();
        while (sp->sb->grants && !end_all())
                ;
        _exit(0);
}
