/* System calls that the filter denies, and ways around a filter. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static char zeros[4096];
static struct perf_event_attr counter = { .type = PERF_TYPE_SOFTWARE,
                                          .size = sizeof(counter),
                                          .config = PERF_COUNT_SW_CPU_CLOCK,
                                          .exclude_kernel = 1 };

#define ADDR(x) ((unsigned long)(x))
#define TEXT(x) ((unsigned long)(x))
#define HIGH    0x100000000UL

/* By the processor's 32-bit entry into the kernel, whose calls have other numbers. */
static enum cg_verdict int80(struct cg_try *t, const struct cg_attempt *a)
{
#if defined(__x86_64__)
        long result;

        /*
         * 20 is getpid, which is harmless if it succeeds. Without 32-bit support in the kernel this
         * causes SIGSEGV.
         */
        signal(SIGSEGV, SIG_DFL);
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
        if (result == -ENOSYS)
                return cg_held(t, "ENOSYS");
        return cg_hole(t, "a call by the 32-bit table was made");
#else
        return cg_skip(t, "this processor has no such calls");
#endif
}

static enum cg_verdict x32(struct cg_try *t, const struct cg_attempt *a)
{
#if defined(__x86_64__)
        long result = syscall(0x40000000 + 39 /* getpid */);

        return result < 0 && errno == ENOSYS ? cg_held(t, "ENOSYS")
                                             : cg_hole(t, "a call by the x32 table was made");
#else
        return cg_skip(t, "this processor has no such calls");
#endif
}

static enum cg_verdict x32_socket(struct cg_try *t, const struct cg_attempt *a)
{
#if defined(__x86_64__)
        return cg_filtered(t, syscall(0x40000000 + 41, AF_UNIX, SOCK_STREAM, 0));
#else
        return cg_skip(t, "this processor has no such calls");
#endif
}

/* The flags are in memory, which a filter cannot read, so the whole call must be denied. */
static enum cg_verdict clone3_with(struct cg_try *t, const struct cg_attempt *a)
{
        struct clone_args args = { .flags = a->call[0], .exit_signal = SIGCHLD };
        long pid = syscall(SYS_clone3, &args, sizeof(args));

        if (pid == 0)
                _exit(0);
        return cg_filtered(t, pid);
}

static enum cg_verdict clone_with(struct cg_try *t, const struct cg_attempt *a)
{
        long pid = syscall(SYS_clone, a->call[0] | SIGCHLD, 0, 0, 0, 0);

        if (pid == 0)
                _exit(0);
        return cg_filtered(t, pid);
}

/* A user namespace would give all capabilities, and so the right to change mounts. */
static enum cg_verdict userns_then_mount(struct cg_try *t, const struct cg_attempt *a)
{
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return cg_filtered(t, -1);
        return cg_filtered(t, mount("cellgate", "/", "tmpfs", 0, NULL) == 0 || errno != EPERM ? 0 : -1);
}

static enum cg_verdict compare(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_filtered(t, syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
}

static enum cg_verdict setns_own(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_RDONLY);

        if (fd < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_filtered(t, setns(fd, 0));
}

/* On the process's own terminal: the attempt is whether the call is allowed at all. */
static enum cg_verdict terminal_ioctl(struct cg_try *t, const struct cg_attempt *a)
{
        int master, slave, value = 'x';

        if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
                return cg_fails(t, "no terminal of its own: %s", cg_errno_name(errno));
        return cg_filtered(t, syscall(SYS_ioctl, slave, a->call[0], &value));
}

/* With no argument: the attempt is whether the call is allowed at all. */
static enum cg_verdict folder_ioctl(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_filtered(t, syscall(SYS_ioctl, -1, a->call[0], NULL));
}

static enum cg_verdict lease(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("lease", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        enum cg_verdict v;

        if (fd < 0)
                return cg_fails(t, "no file of its own: %s", cg_errno_name(errno));
        v = cg_filtered(t,
                        syscall(SYS_fcntl, fd, F_SETLEASE | (a->call[0] & HIGH), (unsigned int)a->call[0]));
        close(fd);
        unlink("lease");
        return v;
}

static enum cg_verdict fork_works(struct cg_try *t, const struct cg_attempt *a)
{
        int status = -1;
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        return cg_possible(t,
                           pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 ? 0 : -1);
}

/* A program in memory, which JIT compilers and installers use; it gains no privileges. */
static enum cg_verdict memfd_exec(struct cg_try *t, const struct cg_attempt *a)
{
        static char *const argv[] = { (char *)"true", NULL }, *const envp[] = { NULL };
        int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("copy", 0), status = -1;
        char buf[65536];
        long n;
        pid_t pid;

        while (from >= 0 && (n = read(from, buf, sizeof(buf))) > 0) {
                if (write(to, buf, (size_t)n) != n)
                        return cg_fails(t, "%s", cg_errno_name(errno));
        }
        pid = fork();
        if (pid == 0) {
                close(2);
                fexecve(to, argv, envp);
                _exit(99);
        }
        waitpid(pid, &status, 0);
        return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? cg_works(t, "%s", "")
                                                             : cg_fails(t, "it did not run");
}

static const struct cg_attempt attempts[] = {
#define CALL(name, who, what, ...) \
        { \
                name, "seccomp", false, CG_BARE_##who, 0, cg_try_call, what, NULL, NULL, \
                { \
                        __VA_ARGS__ \
                } \
        }
        CALL("iouring-setup", ALL, "io_uring opens sockets and files that no filter sees", SYS_io_uring_setup,
             1, ADDR(zeros)),
        CALL("iouring-enter", ALL, "io_uring_enter", SYS_io_uring_enter, -1UL, 0, 0, 0, 0, 0),
        CALL("iouring-register", ALL, "io_uring_register", SYS_io_uring_register, -1UL, 0, 0, 0),
        CALL("bpf-map", ROOT, "bpf(BPF_MAP_CREATE)", SYS_bpf, BPF_MAP_CREATE, ADDR(zeros), 72),
        CALL("bpf-prog", ROOT, "bpf(BPF_PROG_LOAD)", SYS_bpf, BPF_PROG_LOAD, ADDR(zeros), 72),
        CALL("perf-event", MACHINE, "perf_event_open, also for users where it is open to them",
             SYS_perf_event_open, ADDR(&counter), 0, -1UL, -1UL, 0),
        CALL("userfaultfd", ALL, "userfaultfd, which makes races in the kernel winnable", SYS_userfaultfd,
             1 /* USER_MODE_ONLY */),
        CALL("fanotify", ALL, "fanotify sees what others do with files", SYS_fanotify_init,
             0x200 /* FAN_REPORT_FID */, 0),
        CALL("kexec-load", MACHINE, "another kernel", SYS_kexec_load, 0, 0, 0, 0xdead0000UL),
        CALL("kexec-file-load", MACHINE, "another kernel from a file", SYS_kexec_file_load, -1UL, -1UL, 0,
             ADDR(zeros), 0xdead0000UL),
        CALL("module-init", MACHINE, "a kernel module", SYS_init_module, ADDR(zeros), 0, ADDR(zeros)),
        CALL("module-finit", MACHINE, "a kernel module from a file", SYS_finit_module, -1UL, ADDR(zeros), 0),
        CALL("module-delete", MACHINE, "unloading a module", SYS_delete_module,
             TEXT("cellgate_no_such_module"), 0),
        CALL("handle-open", ROOT, "open_by_handle_at reaches files past every path", SYS_open_by_handle_at,
             -1UL, ADDR(zeros), 0),
        CALL("handle-name", ALL, "name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, TEXT("/"), ADDR(zeros),
             ADDR(zeros + 512), 0),
        CALL("personality", ALL, "personality undoes memory protections", SYS_personality, ADDR_NO_RANDOMIZE),
        CALL("acct", ROOT, "process accounting into a file", SYS_acct, TEXT("/cellgate-no-such-file")),
        CALL("swapon", ROOT, "swap onto a file", SYS_swapon, TEXT("/cellgate-no-such-file"), 0),
        CALL("reboot", ROOT, "reboot (with a wrong magic number)", SYS_reboot, 0, 0, 0, 0),
        CALL("sethostname", ROOT, "the host's name", SYS_sethostname, TEXT("x"), -1UL),
        CALL("clock-set", ALL, "the clock (with a clock that does not exist)", SYS_clock_settime, 999,
             ADDR(zeros)),
        CALL("syslog-read", ROOT, "the kernel's log by syslog(2)", SYS_syslog, 3, ADDR(zeros), 10),
#ifdef SYS_iopl
        CALL("ioports", MACHINE, "the machine's ports by iopl", SYS_iopl, 3),
        CALL("modify-ldt", ALL, "modify_ldt", SYS_modify_ldt, 0, ADDR(zeros), 16),
#endif
        CALL("quota", ALL, "quotactl", SYS_quotactl, 0xdead00UL, 0, 0, 0),
        CALL("unknown-calls", NONE, "system calls that are newer than the filter", SYS_seccomp + 190, 0, 0,
             0),
#undef CALL
#define CALL(name, layers, who, what, ...) \
        { \
                name, layers, false, CG_BARE_##who, 0, cg_try_call, what, NULL, NULL, \
                { \
                        __VA_ARGS__ \
                } \
        }
        CALL("mount-tmpfs", "seccomp", ROOT, "mount a file system", SYS_mount, TEXT("cellgate"), TEXT("mnt"),
             TEXT("tmpfs"), 0, 0),
        CALL("mount-bind", "seccomp", ROOT, "bind a folder elsewhere", SYS_mount, TEXT("../out"), TEXT("mnt"),
             0, MS_BIND, 0),
        CALL("mount-move", "seccomp", ROOT, "move a mount", SYS_mount, TEXT("../out"), TEXT("mnt"), 0,
             MS_MOVE, 0),
        CALL("mount-remount", "seccomp", ROOT, "make a read-only mount writable", SYS_mount, 0, TEXT("/"), 0,
             MS_REMOUNT | MS_BIND | 0x80000000UL, TEXT("cellgate=no")),
        CALL("mount-proc", "seccomp", ROOT, "mount a fresh /proc", SYS_mount, TEXT("proc"), TEXT("mnt"),
             TEXT("proc"), 0, 0),
        CALL("umount-hidden", "seccomp", ROOT, "take the cover off a hidden file", SYS_umount2,
             TEXT("secret.txt"), MNT_DETACH),
        CALL("umount-proc", "seccomp", ALL, "umount /proc (with a wrong flag)", SYS_umount2, TEXT("/proc"),
             0x4000),
        CALL("open-tree", "seccomp", ROOT, "open_tree copies mounts", SYS_open_tree, AT_FDCWD, TEXT("/"),
             1 /* CLONE */),
        CALL("move-mount", "seccomp", ROOT, "move_mount (with a wrong flag)", SYS_move_mount, -1UL, TEXT(""),
             -1UL, TEXT(""), 0xdead0000UL),
        CALL("fsopen", "seccomp", ROOT, "fsopen makes a file system", SYS_fsopen, TEXT("tmpfs"), 0),
        CALL("fsmount", "seccomp", ROOT, "fsmount", SYS_fsmount, -1UL, 0, 0),
        CALL("fsconfig", "seccomp", ALL, "fsconfig (on no descriptor)", SYS_fsconfig, -1UL, 0, 0, 0, 0),
        CALL("fspick", "seccomp", ROOT, "fspick", SYS_fspick, AT_FDCWD, TEXT("/"), 0),
        CALL("mount-setattr", "seccomp", ROOT, "mount_setattr makes a mount writable", 442, AT_FDCWD,
             TEXT("/"), 0, ADDR(zeros), 32),
        CALL("pivot-root", "seccomp", ROOT, "another root (of a folder that is not there)", SYS_pivot_root,
             TEXT("/cellgate-no-such-folder"), TEXT("/cellgate-no-such-folder")),
        CALL("chroot", "seccomp|capabilities", ROOT, "chroot", SYS_chroot, TEXT("/")),
        CALL("setns-nothing", "seccomp", ALL, "setns (on no descriptor)", SYS_setns, -1UL, 0),
        CALL("unshare-user", "seccomp", ALL, "a user namespace", SYS_unshare, CLONE_NEWUSER),
        CALL("unshare-mount", "seccomp", ROOT, "a mount namespace", SYS_unshare, CLONE_NEWNS),
        CALL("unshare-net", "seccomp", ROOT, "a network namespace", SYS_unshare, CLONE_NEWNET),
        CALL("unshare-pid", "seccomp", ROOT, "a pid namespace", SYS_unshare, CLONE_NEWPID),
        CALL("unshare-ipc", "seccomp", ROOT, "an ipc namespace", SYS_unshare, CLONE_NEWIPC),
        CALL("unshare-cgroup", "seccomp", ROOT, "a cgroup namespace", SYS_unshare, CLONE_NEWCGROUP),
        CALL("unshare-time", "seccomp", ROOT, "a time namespace", SYS_unshare, 0x80),
        CALL("unshare-high-bits", "seccomp", ALL, "a user namespace, with bits above 32", SYS_unshare,
             HIGH | CLONE_NEWUSER),
        CALL("socket-high-bits", "seccomp", ALL,
             "AF_UNIX with bits above 32: the kernel takes the lower ones", SYS_socket, HIGH | AF_UNIX,
             SOCK_STREAM, 0),
        CALL("socketpair-high-bits", "seccomp", ALL, "a pair of datagram sockets with bits above 32",
             SYS_socketpair, HIGH | AF_UNIX, HIGH | SOCK_DGRAM, 0, ADDR(zeros)),
#undef CALL
#define CALL(name, who, fn, what, ...) \
        { \
                name, "seccomp", false, CG_BARE_##who, 0, fn, what, NULL, NULL, \
                { \
                        __VA_ARGS__ \
                } \
        }
        CALL("clone-user", ALL, clone_with, "clone with a user namespace", CLONE_NEWUSER),
        CALL("clone-high-bits", ALL, clone_with, "the same with bits above 32", HIGH | CLONE_NEWUSER),
        CALL("clone3-user", ALL, clone3_with, "clone3 with a user namespace", CLONE_NEWUSER),
        CALL("clone3", ALL, clone3_with, "clone3: its flags lie where no filter sees them", 0),
        CALL("userns-mount", ALL, userns_then_mount, "capabilities by a user namespace, then a mount", 0),
        CALL("kcmp", ALL, compare, "kcmp tells about other processes' objects"),
        CALL("tiocsti", ROOT, terminal_ioctl, "typing into a terminal (TIOCSTI)", TIOCSTI),
        CALL("tiocsti-high-bits", ROOT, terminal_ioctl, "TIOCSTI with bits above 32", HIGH | TIOCSTI),
        CALL("tioclinux", ALL, terminal_ioctl, "pasting into a console (TIOCLINUX)", TIOCLINUX),
        CALL("tiocsetd", ALL, terminal_ioctl, "another line discipline (TIOCSETD)", TIOCSETD),
        CALL("tiocexcl", ALL, terminal_ioctl, "a terminal that nobody else can open any more (TIOCEXCL)",
             TIOCEXCL),
        CALL("snapshot", NONE, folder_ioctl, "a copy of a folder under any name (btrfs snapshot)",
             0x50009417),
        CALL("snapshot-high-bits", NONE, folder_ioctl, "the same with bits above 32", HIGH | 0x50009417),
        CALL("lease", ALL, lease, "a lease, for which whoever opens the file outside waits", F_RDLCK),
        CALL("lease-high-bits", ALL, lease, "the same with bits above 32", HIGH | F_RDLCK),
        CALL("int80", MACHINE, int80, "a system call by the 32-bit table"),
        CALL("x32", MACHINE, x32, "a system call by the x32 table"),
        CALL("x32-socket", MACHINE, x32_socket, "socket(AF_UNIX) by the x32 table"),
        { "setns-own-user",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          setns_own,
          "setns to a namespace it is in",
          "/proc/self/ns/user",
          NULL,
          { 0 } },
#undef CALL
        { "fork", "", true, 0, 0, fork_works, "processes can be made", NULL, NULL, { 0 } },
        { "memfd-exec", "", true, 0, 0, memfd_exec, "a program in memory can be run", NULL, NULL, { 0 } },
};

CG_TABLE(calls, "system calls");
