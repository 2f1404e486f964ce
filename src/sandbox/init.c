/*
 * init: pid 1 of the sandbox. Makes the view, forks the main process, then only reaps, reports the main process's end
 * and ends, and with it, by the kernel's hand, everything in its pid namespace.
 *
 * It is a copy of the caller that never runs any of the caller's code again. The sandbox cannot signal it (pid 1),
 * trace or read it (not dumpable), and all that it reads from inside are the numbers of denied system calls (notify.c).
 */
#include "sandbox/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/doors.h"
#include "sandbox/notify.h"

/* Its only descriptors. */
enum { STATUS_FD = 0, SIGNAL_FD = 1, LISTENER_FD = 2, DENIED_FD = 3, DOORS_FD = 4, FIXED_FDS = 5 };

/*
 * How long the rest of a plan that is off may take to end once it was killed (stuck in the kernel, say, on a dead
 * disk).
 */
#define END_DEADLINE_MS 5000

/* Sends the outcome to the caller, NULL being good news; true when it arrived. */
static bool report(int ready_fd, const struct cg_err *err)
{
        struct cg_ready r = {.ok = !err};

        if (err)
                r.err = *err;
        return write(ready_fd, &r, sizeof(r)) == (ssize_t)sizeof(r);
}

static _Noreturn void fail(const struct cg_spawn *sp, const struct cg_err *err)
{
        report(sp->ready_fd, err);
        _exit(125);
}

static _Noreturn void run_main(const struct cg_spawn *sp)
{
        struct cg_err err = {0};

        if (cg_enter(sp, &err) < 0)
                fail(sp, &err);
        /* Nobody there to be told means that the caller has ended meanwhile. */
        if (!report(sp->ready_fd, NULL))
                _exit(125);
        close(sp->ready_fd);
        sigprocmask(SIG_SETMASK, &sp->old_mask, NULL);
        _exit(sp->main_fn(sp->data));
}

/* A cgroup namespace has as its root the group that its maker was in: so it comes after the group, not with the clone. */
static int enter_group(const struct cg_spawn *sp, struct cg_err *err)
{
        if (!sp->cgroup)
                return 0;
        if (cg_cgroup_join(sp->cgroup, err) < 0)
                return -1;
        if (!sp->sb->off && unshare(CLONE_NEWCGROUP) < 0)
                return cg_fail_errno(err, "sandbox: cgroup namespace");
        return 0;
}

/*
 * What must hold before anything of the sandbox runs. A parent-death signal alone would do for a caller that is
 * killed; the status pipe, whose reader vanishes, also tells of one that was gone before this line.
 */
static int become_init(const struct cg_spawn *sp, struct cg_err *err)
{
        prctl(PR_SET_NAME, "cg-init", 0, 0, 0);
        if (prctl(PR_SET_PDEATHSIG, sp->sb->off ? SIGTERM : SIGKILL, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: end with the caller");
        if (setsid() < 0)
                return cg_fail_errno(err, "sandbox: session of init");
        /* An inherited SIG_IGN would have the kernel reap the main process and lose its status. */
        signal(SIGCHLD, SIG_DFL);
        return enter_group(sp, err);
}

static int make_sandbox(const struct cg_spawn *sp, struct cg_err *err)
{
        /* A caller that is not dumpable (it holds secrets) leaves /proc/self to root; the maps are written there. */
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || cg_ns_map_ids(sp->uid, sp->gid, err) < 0)
                return cg_err_prefix(err, "sandbox: user namespace");
        /* For good: the main process has the same user and must not trace or read this one. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: init not dumpable");
        if (cg_ns_loopback_up(err) < 0)
                return -1;
        if (sp->ports_fd >= 0 && cg_ns_send_ports(sp, err) < 0)
                return -1;
        if (cg_mounts_apply(sp->sb, err) < 0)
                return -1;
        return cg_enter_bounding_set(sp->sb->nested_users && !sp->uid, err);
}

/*
 * Signals of the host that a command's sandbox hands on; it cannot be signalled otherwise. SIGTSTP and SIGCONT are for everything
 * inside, what a terminal sends for the main process's group, the rest for the main process.
 */
static const int handed_on[] = {SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT, SIGALRM};

static int make_subreaper(struct cg_err *err)
{
        if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: subreaper");
        return 0;
}

/* They move to their fixed numbers; those that are not there (-1) stay free, and all others are closed. */
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

/* Nothing of the caller's may run or stay open here: handlers to default, descriptors closed, rights gone. */
static int seal_init(const struct cg_spawn *sp, struct cg_err *err)
{
        sigset_t wanted;
        int fds[FIXED_FDS];

        for (int s = 1; s < NSIG; s++) {
                /* SIGCHLD is at its default since become_init(); to set it again would discard one that waits. */
                if (s != SIGCHLD)
                        signal(s, SIG_DFL); /* those that cannot be set need not be */
        }
        sigemptyset(&wanted);
        sigaddset(&wanted, SIGCHLD);
        sigaddset(&wanted, SIGTERM);
        for (size_t i = 0; sp->sb->command && i < CG_ARRAY_LEN(handed_on); i++)
                sigaddset(&wanted, handed_on[i]);
        fds[STATUS_FD] = sp->status_fd;
        fds[SIGNAL_FD] = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
        fds[LISTENER_FD] = sp->listener_out;
        fds[DENIED_FD] = sp->denied_fd;
        fds[DOORS_FD] = sp->doors_fd;
        if (fds[SIGNAL_FD] < 0 || keep_only(fds) < 0)
                return cg_fail_errno(err, "sandbox: descriptors of init");
        if (chdir("/") < 0)
                return cg_fail_errno(err, "sandbox: folder of init");
        if (sp->sb->off)
                return 0;
        if (cg_enter_drop_caps(false, err) < 0)
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

/* All that is left inside: gone, so that the caller need not wait for the end of the namespaces to know it. */
static void end_rest(void)
{
        kill(-1, SIGKILL);
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                ;
}

/* Reaps whoever has ended; true when the main process was among them. */
static bool reap(const struct cg_spawn *sp, pid_t main_pid, struct cg_notify *notify)
{
        int status, main_status = 0;
        pid_t pid;
        bool ended = false;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (pid != main_pid)
                        continue;
                main_status = status;
                ended = true;
        }
        if (ended && sp->sb->command && !sp->sb->off)
                end_rest();
        if (ended) {
                cg_notify_finish(notify); /* whoever reads the status may read no more afterwards */
                write_status(main_status);
        }
        return ended;
}

static void hand_on(const struct signalfd_siginfo *info, pid_t main_pid)
{
        int sig = (int)info->ssi_signo;

        /* From the host: a sender whose pid has no number in here. Kernel and peers inside say otherwise. */
        if (sig == SIGCHLD || info->ssi_code != SI_USER || info->ssi_pid != 0)
                return;
        switch (sig) {
        case SIGTSTP:
                kill(-1, SIGSTOP);
                break;
        case SIGCONT:
                kill(-1, SIGCONT);
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

/* Takes what the signal descriptor has; true when SIGTERM was in it. @main_pid: whom to hand signals on to, 0 nobody. */
static bool take_signals(pid_t main_pid)
{
        struct signalfd_siginfo info;
        bool term = false;

        while (read(SIGNAL_FD, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                term |= info.ssi_signo == SIGTERM;
                if (main_pid)
                        hand_on(&info, main_pid);
        }
        return term;
}

#define FIRST_DOOR 3 /* in what watch() waits for */

/* Until the main process has ended, the caller is gone, or (plan off) somebody says SIGTERM. */
static void watch(const struct cg_spawn *sp, pid_t main_pid)
{
        /* A pipe's writing end reports POLLERR, unasked, when its last reader is gone. */
        struct pollfd fds[FIRST_DOOR + CG_DOORS_FDS] = {{.fd = STATUS_FD}, {.fd = SIGNAL_FD, .events = POLLIN}};
        struct cg_notify notify;
        struct cg_doors doors;

        cg_notify_init(&notify, sp->listener_out >= 0 ? LISTENER_FD : -1, DENIED_FD, sp->sb->weak_proc);
        cg_doors_init(&doors, &notify, sp->doors_fd >= 0 ? DOORS_FD : -1, sp->sb->doors);
        /* The main process may have ended before there was a signal descriptor to tell. */
        while (!reap(sp, main_pid, &notify)) {
                fds[2] = cg_notify_poll(&notify);
                if (poll(fds, FIRST_DOOR + cg_doors_poll(&doors, fds + FIRST_DOOR), cg_doors_timeout(&doors)) < 0 && errno != EINTR)
                        return;
                if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL))
                        return;
                /* Inside a pid namespace a SIGTERM can only be one that the sandbox sent. */
                if (take_signals(sp->sb->command && !sp->sb->off ? main_pid : 0) && sp->sb->off)
                        return;
                cg_notify_work(&notify, &fds[2]);
                cg_doors_work(&doors, fds + FIRST_DOOR);
        }
}

/* Kills the direct children; their children become ours as they die. */
static void kill_children(void)
{
        char path[64];
        FILE *f;
        int pid;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        f = fopen(path, "re");
        if (!f)
                return;
        while (fscanf(f, "%d", &pid) == 1)
                kill(pid, SIGKILL);
        fclose(f);
}

/* Without a pid namespace init has to do what the kernel does at the end of one. */
static void end_all(void)
{
        int64_t deadline = cg_now_ms() + END_DEADLINE_MS;

        for (;;) {
                struct pollfd signals = {.fd = SIGNAL_FD, .events = POLLIN};
                int64_t left = deadline - cg_now_ms();
                pid_t pid;

                kill_children();
                while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
                        ;
                if (pid < 0 || left <= 0) /* no child is left */
                        return;
                poll(&signals, 1, (int)left);
                take_signals(0);
        }
}

_Noreturn void cg_init_run(const struct cg_spawn *sp)
{
        struct cg_err err = {0};
        pid_t pid;

        if (become_init(sp, &err) < 0 || (sp->sb->off ? make_subreaper(&err) : make_sandbox(sp, &err)) < 0)
                fail(sp, &err);
        /* libc's own fork, not a raw clone: it puts the thread id it caches, its locks and atfork handlers right. */
        pid = fork();
        if (pid == 0)
                run_main(sp);
        if (pid < 0) {
                cg_fail_errno(&err, "sandbox: main process");
                fail(sp, &err);
        }
        if (seal_init(sp, &err) < 0)
                fail(sp, &err);
        watch(sp, pid);
        if (sp->sb->off)
                end_all();
        _exit(0);
}
