/* Processes outside of the sandbox, and pid 1 inside. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* A user that has no processes. */
#define NOBODY 0x7ffffff0

static pid_t canary(const struct cg_try *t)
{
        return (pid_t)cg_scene_number(t, "canary_pid");
}

/* In a container the number of the canary may be that of a process or thread inside as well. */
static enum cg_verdict on_canary(struct cg_try *t, long result)
{
        enum cg_verdict v = result < 0 ? cg_filtered(t, result) : cg_hole(t, "done");

        if (v == CG_HOLE && !cg_is_canary(t) && (result >= 0 || kill(canary(t), 0) == 0))
                return cg_held(t, "that number is another process in here");
        return v;
}

static enum cg_verdict signal_canary(struct cg_try *t, const struct cg_attempt *a)
{
        return on_canary(t, kill(canary(t), 0));
}

static enum cg_verdict queue_canary(struct cg_try *t, const struct cg_attempt *a)
{
        siginfo_t info = { .si_code = SI_QUEUE };

        return on_canary(t, syscall(SYS_rt_tgsigqueueinfo, canary(t), canary(t), 0, &info));
}

static enum cg_verdict pidfd_canary(struct cg_try *t, const struct cg_attempt *a)
{
        long fd = syscall(SYS_pidfd_open, canary(t), 0);

        return on_canary(t, fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
}

/* By signal-driven input, for which the kernel sends the signal. */
static enum cg_verdict owner_canary(struct cg_try *t, const struct cg_attempt *a)
{
        int fds[2];

        return on_canary(t, pipe(fds) < 0 ? -1 : fcntl(fds[0], F_SETOWN, canary(t)));
}

static enum cg_verdict trace_canary(struct cg_try *t, const struct cg_attempt *a)
{
        long r = ptrace((int)a->call[0], canary(t), 0, 0);

        if (r == 0)
                ptrace(PTRACE_DETACH, canary(t), 0, 0);
        return on_canary(t, r);
}

static enum cg_verdict read_memory(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[16];
        struct iovec here = { buf, sizeof(buf) };
        /* NOLINT */
        struct iovec there = { (void *)cg_scene_number(t, "canary_address"), sizeof(buf) };

        return on_canary(t, process_vm_readv(canary(t), &here, 1, &there, 1, 0));
}

static enum cg_verdict write_memory(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[1] = "";
        /* NOLINT */
        struct iovec here = { buf, 1 }, there = { (void *)cg_scene_number(t, "canary_scratch"), 1 };

        return on_canary(t, process_vm_writev(canary(t), &here, 1, &there, 1, 0));
}

static enum cg_verdict take_descriptor(struct cg_try *t, const struct cg_attempt *a)
{
        long fd = syscall(SYS_pidfd_open, canary(t), 0);

        return on_canary(t, fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 60, 0));
}

/* The call on a child of this process: if that is denied, all are. */
static enum cg_verdict take_own_descriptor(struct cg_try *t, const struct cg_attempt *a)
{
        long fd = syscall(SYS_pidfd_open, getpid(), 0);

        return cg_filtered(t, fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 1, 0));
}

static enum cg_verdict schedule_canary(struct cg_try *t, const struct cg_attempt *a)
{
        cpu_set_t set;

        return on_canary(t, sched_getaffinity(canary(t), sizeof(set), &set) < 0
                                    ? -1
                                    : sched_setaffinity(canary(t), sizeof(set), &set));
}

static enum cg_verdict limit_canary(struct cg_try *t, const struct cg_attempt *a)
{
        struct rlimit l;

        return on_canary(t, prlimit(canary(t), RLIMIT_NOFILE, NULL, &l) < 0
                                    ? -1
                                    : prlimit(canary(t), RLIMIT_NOFILE, &l, NULL));
}

static enum cg_verdict nice_canary(struct cg_try *t, const struct cg_attempt *a)
{
        int now = getpriority(PRIO_PROCESS, (id_t)canary(t));

        return on_canary(t, setpriority(PRIO_PROCESS, (id_t)canary(t), now));
}

#define IOPRIO_NONE 0

/* The attempts on pid 1 set present values, or a user without processes: success does no harm. */
static enum cg_verdict nice_init(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_filtered(t, setpriority((__priority_which_t)a->call[0], (id_t)a->call[1],
                                          getpriority(PRIO_PROCESS, 1)));
}

static enum cg_verdict io_priority_of_init(struct cg_try *t, const struct cg_attempt *a)
{
        long now = syscall(SYS_ioprio_get, 1, 1);

        return cg_filtered(t, syscall(SYS_ioprio_set, a->call[0], a->call[1], now < 0 ? IOPRIO_NONE : now));
}

static enum cg_verdict schedule_init(struct cg_try *t, const struct cg_attempt *a)
{
        struct sched_param p = { 0 };
        int policy = sched_getscheduler(1);

        sched_getparam(1, &p);
        return cg_filtered(t, sched_setscheduler(1, policy < 0 ? SCHED_OTHER : policy, &p));
}

static enum cg_verdict schedule_param_of_init(struct cg_try *t, const struct cg_attempt *a)
{
        struct sched_param p = { 0 };

        sched_getparam(1, &p);
        return cg_filtered(t, sched_setparam(1, &p));
}

static enum cg_verdict schedule_attr_of_init(struct cg_try *t, const struct cg_attempt *a)
{
        uint32_t attr[12] = { sizeof(attr) }; /* struct sched_attr; its first member is its size */

        syscall(SYS_sched_getattr, 1, attr, sizeof(attr), 0);
        return cg_filtered(t, syscall(SYS_sched_setattr, 1, attr, 0));
}

static enum cg_verdict affinity_of_init(struct cg_try *t, const struct cg_attempt *a)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        sched_getaffinity(1, sizeof(set), &set);
        return cg_filtered(t, sched_setaffinity(1, sizeof(set), &set));
}

/* By a descriptor of pid 1. */
static enum cg_verdict by_pidfd_of_init(struct cg_try *t, const struct cg_attempt *a)
{
        long fd = syscall(SYS_pidfd_open, 1, 0);

        return cg_filtered(t, fd < 0 ? -1
                                     : syscall((long)a->call[0], fd, a->call[1], a->call[2], a->call[3], 0));
}

/* Changes of the process itself and its children. */
static enum cg_verdict own_priorities(struct cg_try *t, const struct cg_attempt *a)
{
        cpu_set_t set;
        struct rlimit l;
        struct sched_param p = { 0 };
        pid_t pid = fork(), who[] = { 0, getpid(), pid };
        const char *failed = NULL;

        if (pid < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        if (pid == 0)
                for (;;)
                        pause();
        for (size_t i = 0; i < sizeof(who) / sizeof(who[0]) && !failed; i++)
                if (setpriority(PRIO_PROCESS, (id_t)who[i], 5) < 0 || setpriority(PRIO_PGRP, 0, 5) < 0)
                        failed = "nice";
                else if (syscall(SYS_ioprio_set, 1, who[i], IOPRIO_NONE) < 0)
                        failed = "ionice";
                else if (sched_getaffinity(who[i], sizeof(set), &set) < 0 ||
                         sched_setaffinity(who[i], sizeof(set), &set) < 0)
                        failed = "taskset";
                else if (sched_setscheduler(who[i], SCHED_BATCH, &p) < 0)
                        failed = "chrt";
                else if (prlimit(who[i], RLIMIT_CORE, NULL, &l) < 0 ||
                         prlimit(who[i], RLIMIT_CORE, &l, NULL) < 0)
                        failed = "prlimit";
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (failed)
                return cg_fails(t, "%s: %s", failed, cg_errno_name(errno));
        return cg_works(t, "%s", "");
}

/* Writable address space of the size of the machine's memory, which succeeds without a limit. */
static enum cg_verdict all_memory(struct cg_try *t, const struct cg_attempt *a)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        return cg_skip(t, "a sanitizer takes more");
#else
        size_t size = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                       0);

        if (p == MAP_FAILED)
                return cg_hole_if(t, errno != ENOMEM, cg_errno_name(errno), "ENOMEM");
        munmap(p, size);
        return cg_hole(t, "all of the machine's memory can be used");
#endif
}

/* Reserved address space without use must work: allocators of numpy, pyarrow and Java need it. */
static enum cg_verdict reserve_memory(struct cg_try *t, const struct cg_attempt *a)
{
        size_t size = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) * 2;
        void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        long result = p == MAP_FAILED ? -1 : munmap(p, size);

        return cg_possible(t, result);
}

/* Inherited descriptors other than 0, 1 and 2. */
static enum cg_verdict inherited(struct cg_try *t, const struct cg_attempt *a)
{
        char path[64], target[300];

        for (int fd = 3; fd < 4096; fd++) {
                ssize_t n;

                if (fcntl(fd, F_GETFD) < 0)
                        continue;
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                n = readlink(path, target, sizeof(target) - 1);
                target[n < 0 ? 0 : n] = '\0';
                return cg_hole(t, "descriptor %d: %.200s", fd, target);
        }
        return cg_held(t, "only 0, 1 and 2");
}

/* A process that leaves session, group and parent, with a lock that the host checks later. */
static enum cg_verdict stray(struct cg_try *t, const struct cg_attempt *a)
{
        int ready[2];
        char byte;

        if (pipe(ready) < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        if (fork() == 0) {
                setsid();
                if (fork() == 0) {
                        int fd = open("stray.lock", O_RDWR);

                        setsid();
                        signal(SIGTERM, SIG_IGN);
                        signal(SIGHUP, SIG_IGN);
                        for (int i = 0; i < 3; i++)
                                close(i);
                        flock(fd, LOCK_EX);
                        if (write(fd, "x", 1) == 1 && write(ready[1], "x", 1) == 1)
                                sleep(20);
                        _exit(0);
                }
                _exit(0);
        }
        close(ready[1]);
        if (read(ready[0], &byte, 1) == 1)
                return cg_works(t, "left behind; see \"after-processes\"");
        return cg_fails(t, "it did not start");
}

static enum cg_verdict own_child(struct cg_try *t, const struct cg_attempt *a)
{
        int status = 0;
        pid_t pid = fork();

        if (pid == 0)
                for (;;)
                        pause();
        if (pid < 0 || kill(pid, SIGKILL) < 0 || waitpid(pid, &status, 0) != pid)
                return cg_fails(t, "%s", cg_errno_name(errno));
        return cg_works_if(t, WIFSIGNALED(status), "it ended by itself");
}

static struct rlimit limit;
static const struct sched_param priority = { .sched_priority = 1 };

static const struct cg_attempt attempts[] = {
#define OUTSIDE(name, layer, run, what, ...) \
        CG_DENY(name, layer, run, what, .also = { ESRCH }, .call = { __VA_ARGS__ })
        OUTSIDE("kill-outside", "pid|landlock", signal_canary, "a signal to a process outside"),
        OUTSIDE("sigqueue-outside", "pid|landlock", queue_canary, "a queued signal to a thread outside"),
        OUTSIDE("pidfd-outside", "pid|landlock", pidfd_canary, "a signal by a pidfd"),
        OUTSIDE("sigio-outside", "pid|landlock", owner_canary, "a signal by F_SETOWN"),
        OUTSIDE("vm-read-outside", "seccomp", read_memory, "process_vm_readv"),
        OUTSIDE("vm-write-outside", "seccomp", write_memory, "process_vm_writev"),
        OUTSIDE("pidfd-getfd-outside", "seccomp", take_descriptor, "a descriptor of a process outside"),
        OUTSIDE("ptrace-attach", "seccomp", trace_canary, "tracing a process outside", PTRACE_SEIZE),
        OUTSIDE("affinity-outside", "pid|seccomp", schedule_canary, "the cores of a process outside"),
        OUTSIDE("prlimit-outside", "pid|seccomp", limit_canary, "the limits of a process outside"),
        OUTSIDE("nice-outside", "pid|seccomp", nice_canary, "the priority of a process outside"),
#undef OUTSIDE
        CG_DENY("pidfd-getfd", "seccomp", take_own_descriptor, "pidfd_getfd on the process itself"),
        CG_DENY("signal-init", "landlock", cg_try_call, "a signal to pid 1", .bare = CG_BARE_ROOT,
                .call = { SYS_kill, 1, 0 }),
#define INIT(name, who, run, what, ...) \
        CG_DENY(name, "seccomp", run, what, .bare = CG_BARE_##who, .call = { __VA_ARGS__ })
        INIT("ptrace-me", ALL, cg_try_call, "ptrace by the parent", SYS_ptrace, PTRACE_TRACEME, 0, 0, 0),
        INIT("ptrace-init", MACHINE, cg_try_call, "tracing pid 1", SYS_ptrace, PTRACE_SEIZE, 1, 0, 0),
        INIT("prlimit-init", ROOT, cg_try_call, "the limits of pid 1", SYS_prlimit64, 1, RLIMIT_CPU, 0,
             CG_ADDR(&limit)),
        INIT("init-nice", ROOT, nice_init, "the priority of pid 1", PRIO_PROCESS, 1),
        INIT("init-nice-high-bits", ROOT, cg_try_call,
             "the same, with something in the upper half of its number", SYS_setpriority,
             0x100000000 | PRIO_PROCESS, 0x100000001, 0),
        INIT("init-nice-group", ROOT, nice_init, "the priority of pid 1's process group", PRIO_PGRP, 1),
        INIT("init-nice-user", ALL, nice_init, "the priority of all processes of a user", PRIO_USER, NOBODY),
        INIT("init-ionice", ROOT, io_priority_of_init, "the input and output priority of pid 1", 1, 1),
        INIT("init-ionice-group", ROOT, io_priority_of_init, "the same of its process group", 2, 1),
        INIT("init-ionice-user", ALL, io_priority_of_init, "the same of all processes of a user", 3, NOBODY),
        INIT("init-scheduler", ROOT, schedule_init, "the scheduling policy of pid 1"),
        INIT("init-scheduler-param", ROOT, schedule_param_of_init, "the parameters of that policy"),
        INIT("init-scheduler-attr", ROOT, schedule_attr_of_init, "the same by sched_setattr"),
        INIT("init-affinity", ROOT, affinity_of_init, "the cores of pid 1"),
        INIT("init-core-sched", MACHINE, cg_try_call, "the core scheduling group of pid 1", SYS_prctl,
             62 /* PR_SCHED_CORE */, 2 /* SHARE_TO */, 1, 0),
        INIT("init-migrate-pages", MACHINE, cg_try_call, "the memory nodes of pid 1's pages",
             SYS_migrate_pages, 1, 0, 0, 0),
        INIT("init-move-pages", MACHINE, cg_try_call, "the same by move_pages", SYS_move_pages, 1, 0, 0, 0, 0,
             0),
        INIT("init-kcmp", MACHINE, cg_try_call, "comparing pid 1's descriptors with one's own", SYS_kcmp, 1,
             1, 0, 0, 0),
        INIT("init-madvise", MACHINE, by_pidfd_of_init, "advice about pid 1's memory", SYS_process_madvise, 0,
             0, 21 /* MADV_PAGEOUT */),
        INIT("init-getfd", MACHINE, by_pidfd_of_init, "a descriptor of pid 1", SYS_pidfd_getfd, 0, 0, 0),
#undef INIT
        CG_DENY("memory-of-the-machine", "rlimits", all_memory, "more memory than half of the machine's",
                .in = CG_IN_KERNEL),
        CG_ALLOW("memory-reserved", reserve_memory, "address space that is reserved and not used"),
        CG_ALLOW("own-priorities", own_priorities,
                 "priorities, cores and limits of a program and its children"),
        CG_DENY("realtime", "capabilities", cg_try_call, "a priority that starves the machine",
                .bare = CG_BARE_ROOT, .call = { SYS_sched_setscheduler, 0, SCHED_FIFO, CG_ADDR(&priority) }),
        CG_DENY("nice-negative", "capabilities", cg_try_call, "a larger share of the processor",
                .bare = CG_BARE_ROOT, .call = { SYS_setpriority, PRIO_PROCESS, 0, -5UL }),
        CG_DENY("fds-inherited", "descriptors", inherited, "open descriptors of the caller",
                .in = CG_IN_COMMAND),
        CG_ALLOW("kill-own-child", own_child, "a child of its own can be ended"),
        CG_ALLOW("stray-process", stray, "a process that tries to outlive the sandbox", .in = CG_IN_COMMAND),
};

CG_TABLE(processes, "processes");
