/*
 * Starts a sandbox and waits until its main process is ready. Runs in the caller: the zygote,
 * or a program that runs a command. The only part that a caller's process sees of the steps inside
 * is one struct cg_ready.
 */
#include "sandbox/steps.h"

#include <linux/sched.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "sandbox/apparmor.h"

static void close_pair(int (*fds)[2])
{
        cg_closep_(&(*fds)[0]);
        cg_closep_(&(*fds)[1]);
}
#define cg_auto_pipe CG_CLEANUP(close_pair)

/* A start takes milliseconds; a mount on a dead network file system may never end. */
#define READY_DEADLINE_MS 30000

/*
 * A clone of a process with threads would have their locks but not the threads. The link count of
 * the task folder is 2 plus the number of threads.
 */
static int check_one_thread(struct cg_err *err)
{
        struct stat st;

        if (stat("/proc/self/task", &st) < 0)
                return cg_fail_errno(err, "sandbox: counting threads");
        if (st.st_nlink != 3)
                return cg_fail(err, CG_E_STATE, "sandbox: the caller has %u threads and must have one",
                               (unsigned int)st.st_nlink - 2);
        return 0;
}

static int compare_ints(const void *a, const void *b)
{
        int x = *(const int *)a, y = *(const int *)b;

        return (x > y) - (x < y);
}

/* keep_fds and the descriptors of @sp, ascending. */
static int make_keep_list(const int *keep_fds, size_t n, struct cg_spawn *sp, struct cg_err *err)
{
        int *list = calloc(n + 3, sizeof(*list));

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "sandbox: list of descriptors");
        for (size_t i = 0; i < n; i++)
                list[i] = keep_fds[i];
        list[n++] = sp->ready_fd;
        if (sp->listener_in >= 0)
                list[n++] = sp->listener_in;
        if (sp->go_in >= 0)
                list[n++] = sp->go_in;
        qsort(list, n, sizeof(*list), compare_ints);
        sp->keep = list;
        sp->n_keep = n;
        return 0;
}

/* Explains the errno of a failed clone. */
static const char *clone_hint(int e)
{
        switch (e) {
        case EPERM:
                if (cg_apparmor_restricts())
                        return CG_APPARMOR_HINT;
                return " (user namespaces are forbidden here: see sysctl kernel.unprivileged_userns_clone, "
                       "or the container's seccomp profile; `cellgate doctor` says which, "
                       "and if the weaker tier \"landlock\" is available)";
        case ENOSPC:
        case EUSERS:
                return " (too many namespaces: see the sysctls user.max_*_namespaces; where they are 0 on purpose, `cellgate doctor` says "
                       "if the weaker tier \"landlock\" is available)";
        case EAGAIN:
                return " (too many processes: see ulimit -u)";
        case ENOSYS: /* as seccomp profiles of Docker and containerd have it for clone3() */
                return " (the container's seccomp profile forbids new namespaces; `cellgate doctor` says if the weaker tier "
                       "\"landlock\" is available)";
        case EINVAL:
                return " (this Linux lacks a namespace: user, mount, pid, net, ipc, uts and cgroup are needed)";
        default:
                return "";
        }
}

/* Starts init, which does not return here. Its pid, or negative on failure. */
static pid_t start(struct cg_spawn *sp, int *pidfd, struct cg_err *err)
{
        struct clone_args args = {
                .flags = CLONE_PIDFD,
                .pidfd = (uint64_t)(uintptr_t)pidfd,
                .exit_signal = SIGCHLD,
        };
        int group = cg_cgroup_clone_fd(sp->cgroup);
        sigset_t all;
        long pid;

        if (cg_plan_has_namespaces(sp->sb))
                args.flags |= CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                              CLONE_NEWUTS | (sp->cgroup ? 0 : CLONE_NEWCGROUP);
        if (group >= 0) {
                args.flags |= CLONE_INTO_CGROUP;
                sp->cloned_into = true;
                args.cgroup = (uint64_t)group;
        }
        /* No handler of the caller may run in the child. */
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, &sp->old_mask);
        pid = syscall(SYS_clone3, &args, sizeof(args));
        /*
         * Containers' filters deny clone3, whose flags they cannot check; the older call has all
         * that is needed.
         */
        if (pid < 0 && errno == ENOSYS) {
                sp->cloned_into = false;
                pid = syscall(SYS_clone, (unsigned long)(args.flags & ~(uint64_t)CLONE_INTO_CGROUP) | SIGCHLD,
                              NULL, pidfd, NULL, NULL);
        }
        if (pid == 0)
                cg_init_run(sp);
        if (pid < 0)
                pid = cg_fail_errno(err, "sandbox: new namespaces%s", clone_hint(errno));
        sigprocmask(SIG_SETMASK, &sp->old_mask, NULL);
        return (pid_t)pid;
}

/* Reads the child's struct cg_ready. CG_E_CLOSED: it ended without sending one. */
static int wait_ready(int fd, struct cg_err *err)
{
        struct pollfd p = { .fd = fd, .events = POLLIN };
        struct cg_ready r;
        int64_t deadline = cg_now_ms() + READY_DEADLINE_MS;
        ssize_t n;
        int e;

        do {
                int64_t left = deadline - cg_now_ms();

                e = poll(&p, 1, CG_MAX(left, 0));
        } while (e < 0 && errno == EINTR);
        if (e < 0)
                return cg_fail_errno(err, "sandbox: waiting for the main process");
        if (e == 0)
                return cg_fail(err, CG_E_TIMEDOUT, "sandbox: not ready after %d s", READY_DEADLINE_MS / 1000);
        n = read(fd, &r, sizeof(r));
        if (n < 0)
                return cg_fail_errno(err, "sandbox: waiting for the main process");
        if (n != (ssize_t)sizeof(r))
                return cg_fail(err, CG_E_CLOSED,
                               "sandbox: ended before it was ready (killed, or out of memory)");
        if (r.ok)
                return 0;
        if (err)
                *err = r.err;
        return r.err.code < 0 ? r.err.code : CG_E_SYS;
}

/* The sandbox is ready, so they have been sent. */
static int receive_ports(const struct cg_sandbox *sb, int sock, int *ret, struct cg_err *err)
{
        size_t n = CG_SANDBOX_PORTS_MAX;
        ssize_t got;
        char byte;

        for (size_t i = 0; i < CG_SANDBOX_PORTS_MAX; i++)
                ret[i] = -1;
        if (!sb->set.n_ports || sb->set.off)
                return 0;
        got = cg_recv_fds(sock, &byte, 1, ret, &n, err);
        if (got < 0)
                return (int)got;
        if (got == 1 && n == sb->set.n_ports)
                return 0;
        return cg_fail(err, CG_E_CLOSED, "sandbox: its ports did not arrive");
}

static int make_group(struct cg_spawn *sp, enum cg_limit_by by[CG_LIMITS], struct cg_err *err)
{
        struct cg_sandbox_limits l;

        cg_plan_limits_by(sp->sb, by);
        cg_plan_group_limits(sp->sb, &l);
        if (cg_cgroup_new(sp->sb->set.cgroup_files, &l, by, &sp->cgroup, err) < 0)
                return err ? err->code : CG_E_NOMEM;
        sp->oom_first = by[CG_LIMIT_MEMORY] == CG_BY_RLIMIT;
        sp->affinity = by[CG_LIMIT_CORES] == CG_BY_AFFINITY;
        sp->counted = by[CG_LIMIT_PROCESSES] == CG_BY_CGROUP1 || by[CG_LIMIT_PROCESSES] == CG_BY_CGROUP2;
        return 0;
}

/* Adds the reason if a sandbox ended during its start because of its own limit. */
static void explain_group(const struct cg_spawn *sp, const enum cg_limit_by by[CG_LIMITS], struct cg_err *err)
{
        struct cg_limit_counts counts;
        char why[128];

        if (!sp->cgroup || !err)
                return;
        cg_cgroup_counts(sp->cgroup, &counts);
        if (!counts.oom_kills)
                return;
        cg_limit_why(&sp->sb->set.limits, CG_LIMIT_MEMORY, by[CG_LIMIT_MEMORY], why, sizeof(why));
        cg_fail(err, CG_E_LIMIT, "sandbox: %s before anything ran: raise cellgate.limits.memoryMb", why);
}

/*
 * RLIMIT_NPROC counts all processes of the user on this machine: the sandbox's limit is added to
 * the present number, and to init and the main process.
 */
static uint64_t processes_beside(void)
{
        cg_auto_dir DIR *dir = opendir("/proc");
        uint64_t count = 2;
        const struct dirent *d;
        uid_t uid = getuid();

        while (dir && (d = readdir(dir))) {
                char path[300];
                struct stat st;

                if (d->d_name[0] < '1' || d->d_name[0] > '9')
                        continue;
                snprintf(path, sizeof(path), "/proc/%s/task", d->d_name);
                if (stat(path, &st) == 0 && st.st_uid == uid)
                        count += st.st_nlink - 2;
        }
        return count;
}

int cg_sandbox_spawn(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                     int (*main_fn)(void *data), void *data, struct cg_sandbox_child *ret, struct cg_err *err)
{
        return cg_sandbox_spawn_prepared(sb, keep_fds, n_keep, NULL, main_fn, data, ret, err);
}

int cg_sandbox_spawn_prepared(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                              int (*prepare_fn)(void *data, struct cg_err *err), int (*main_fn)(void *data),
                              void *data, struct cg_sandbox_child *ret, struct cg_err *err)
{
        struct cg_spawn sp = { .sb = sb,
                               .uid = geteuid(),
                               .gid = getegid(),
                               .prepare_fn = prepare_fn,
                               .main_fn = main_fn,
                               .data = data };
        char cwd[PATH_MAX];
        cg_auto_pipe int ready[2] = { -1, -1 }, status[2] = { -1, -1 }, ports[2] = { -1, -1 },
                         listener[2] = { -1, -1 }, denied[2] = { -1, -1 }, doors[2] = { -1, -1 },
                         commands[2] = { -1, -1 }, go[2] = { -1, -1 };
        cg_auto_fd int pidfd = -1;
        pid_t pid;
        int r;

        r = check_one_thread(err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n_keep; i++) {
                if (fcntl(keep_fds[i], F_GETFD) < 0)
                        return cg_fail(err, CG_E_INVAL, "sandbox: descriptor %d to be kept is not open",
                                       keep_fds[i]);
        }
        if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "sandbox: pipes");
        if (sb->set.n_ports && !sb->set.off &&
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ports) < 0)
                return cg_fail_errno(err, "sandbox: socket for ports");
        if ((sb->set.report_denials || sb->grants) && !sb->set.off &&
            (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, listener) < 0 ||
             socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, denied) < 0))
                return cg_fail_errno(err, "sandbox: sockets for denied calls");
        if (sb->set.doors && !sb->set.off &&
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, doors) < 0)
                return cg_fail_errno(err, "sandbox: socket for doors");
        if (sb->commands &&
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, commands) < 0)
                return cg_fail_errno(err, "sandbox: socket for commands");
        if (prepare_fn && cg_plan_has_namespaces(sb) && pipe2(go, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "sandbox: pipes");
        sp.go_in = go[0];
        sp.go_out = go[1];
        sp.doors_fd = doors[1];
        sp.commands_fd = commands[1];
        sp.listener_in = listener[0];
        sp.listener_out = listener[1];
        sp.denials_fd = denied[1];
        sp.ready_fd = ready[1];
        if (make_keep_list(keep_fds, n_keep, &sp, err) < 0)
                return CG_E_NOMEM;
        sp.status_fd = status[1];
        sp.ports_fd = ports[1];
        sp.cwd = sb->cwd;
        if (!sp.cwd)
                sp.cwd = getcwd(cwd, sizeof(cwd)) && cwd[0] == '/' ? cwd : "/";
        sp.first_cpu = (size_t)cg_now_ms();
        if (sb->grants)
                sp.processes_beside = processes_beside();
        r = make_group(&sp, ret->by, err);
        if (r < 0) {
                free(sp.keep);
                return r;
        }
        pid = start(&sp, &pidfd, err);
        free(sp.keep);
        if (pid < 0) {
                cg_cgroup_free(sp.cgroup);
                return pid;
        }
        cg_closep_(&ready[1]); /* otherwise there would be no EOF */
        r = wait_ready(ready[0], err);
        if (r == 0)
                r = receive_ports(sb, ports[0], ret->ports, err);
        if (r < 0) {
                syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
                explain_group(&sp, ret->by, err);
                cg_cgroup_free(sp.cgroup);
                return r;
        }
        cg_cgroup_joined(sp.cgroup);
        ret->cgroup = sp.cgroup;
        ret->init_pid = pid;
        ret->init_pidfd = cg_steal_fd(&pidfd);
        ret->status_fd = cg_steal_fd(&status[0]);
        ret->denials_fd = cg_steal_fd(&denied[0]);
        ret->doors_fd = cg_steal_fd(&doors[0]);
        ret->commands_fd = cg_steal_fd(&commands[0]);
        return 0;
}
