/* System calls that the filter denies, and ways around a filter. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
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

#define HIGH     0x100000000UL
#define SNAPSHOT 0x50009417UL /* BTRFS_IOC_SNAP_CREATE_V2 */

/* By the processor's 32-bit entry into the kernel, whose calls have other numbers. */
static enum cg_verdict int80(struct cg_try *t, const struct cg_attempt *a)
{
#if defined(__x86_64__)
        long result;

        /* 20 is getpid, harmless if it succeeds. Without 32-bit support it causes SIGSEGV. */
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

        return cg_hole_if(t, result >= 0 || errno != ENOSYS, "a call by the x32 table was made", "ENOSYS");
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

        while (from >= 0 && (n = read(from, buf, sizeof(buf))) > 0)
                if (write(to, buf, (size_t)n) != n)
                        return cg_fails(t, "%s", cg_errno_name(errno));
        pid = fork();
        if (pid == 0) {
                close(2);
                fexecve(to, argv, envp);
                _exit(99);
        }
        waitpid(pid, &status, 0);
        return cg_works_if(t, WIFEXITED(status) && WEXITSTATUS(status) == 2, "it did not run");
}

static const struct cg_attempt attempts[] = {
#define CALL_BY(name, layer, who, run, what, ...) \
        CG_DENY(name, layer, run, what, .bare = CG_BARE_##who, .call = { __VA_ARGS__ })
#define CALL(name, who, what, ...) CALL_BY(name, "seccomp", who, cg_try_call, what, __VA_ARGS__)
        CALL("iouring-setup", ALL, "io_uring opens sockets and files that no filter sees", SYS_io_uring_setup,
             1, CG_ADDR(zeros)),
        CALL("iouring-enter", ALL, "io_uring_enter", SYS_io_uring_enter, -1UL, 0, 0, 0, 0, 0),
        CALL("iouring-register", ALL, "io_uring_register", SYS_io_uring_register, -1UL, 0, 0, 0),
        CALL("aio-setup", ALL, "io_setup: writes that outlast the process", SYS_io_setup, 1, 0),
        CALL("bpf-map", ROOT, "bpf(BPF_MAP_CREATE)", SYS_bpf, BPF_MAP_CREATE, CG_ADDR(zeros), 72),
        CALL("bpf-prog", ROOT, "bpf(BPF_PROG_LOAD)", SYS_bpf, BPF_PROG_LOAD, CG_ADDR(zeros), 72),
        CALL("perf-event", MACHINE, "perf_event_open, also for users where it is open to them",
             SYS_perf_event_open, CG_ADDR(&counter), 0, -1UL, -1UL, 0),
        CALL("userfaultfd", ALL, "userfaultfd, which makes races in the kernel winnable", SYS_userfaultfd,
             1 /* USER_MODE_ONLY */),
        CALL("fanotify", ALL, "fanotify reports file accesses of other processes", SYS_fanotify_init,
             0x200 /* FAN_REPORT_FID */, 0),
        CALL("kexec-load", MACHINE, "another kernel", SYS_kexec_load, 0, 0, 0, 0xdead0000UL),
        CALL("kexec-file-load", MACHINE, "another kernel from a file", SYS_kexec_file_load, -1UL, -1UL, 0,
             CG_ADDR(zeros), 0xdead0000UL),
        CALL("module-init", MACHINE, "a kernel module", SYS_init_module, CG_ADDR(zeros), 0, CG_ADDR(zeros)),
        CALL("module-finit", MACHINE, "a kernel module from a file", SYS_finit_module, -1UL, CG_ADDR(zeros),
             0),
        CALL("module-delete", MACHINE, "unloading a module", SYS_delete_module,
             CG_ADDR("cellgate_no_such_module"), 0),
        CALL("handle-open", ROOT, "open_by_handle_at reaches files past every path", SYS_open_by_handle_at,
             -1UL, CG_ADDR(zeros), 0),
        CALL("handle-name", ALL, "name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, CG_ADDR("/"),
             CG_ADDR(zeros), CG_ADDR(zeros + 512), 0),
        CALL("personality", ALL, "personality undoes memory protections", SYS_personality, ADDR_NO_RANDOMIZE),
        CALL("acct", ROOT, "process accounting into a file", SYS_acct, CG_ADDR("/cellgate-no-such-file")),
        CALL("swapon", ROOT, "swap onto a file", SYS_swapon, CG_ADDR("/cellgate-no-such-file"), 0),
        CALL("reboot", ROOT, "reboot (with a wrong magic number)", SYS_reboot, 0, 0, 0, 0),
        CALL("sethostname", ROOT, "the host's name", SYS_sethostname, CG_ADDR("x"), -1UL),
        CALL("clock-set", ALL, "the clock (with a clock that does not exist)", SYS_clock_settime, 999,
             CG_ADDR(zeros)),
        CALL("syslog-read", ROOT, "the kernel's log by syslog(2)", SYS_syslog, 3, CG_ADDR(zeros), 10),
#ifdef SYS_iopl
        CALL("ioports", MACHINE, "the machine's ports by iopl", SYS_iopl, 3),
        CALL("modify-ldt", ALL, "modify_ldt", SYS_modify_ldt, 0, CG_ADDR(zeros), 16),
#endif
        CALL("quota", ALL, "quotactl", SYS_quotactl, 0xdead00UL, 0, 0, 0),
        CALL("unknown-calls", NONE, "system calls that are newer than the filter", SYS_seccomp + 190, 0, 0,
             0),
        CALL("mount-tmpfs", ROOT, "mount a file system", SYS_mount, CG_ADDR("cellgate"), CG_ADDR("mnt"),
             CG_ADDR("tmpfs"), 0, 0),
        CALL("mount-bind", ROOT, "bind a folder elsewhere", SYS_mount, CG_ADDR("../out"), CG_ADDR("mnt"), 0,
             MS_BIND, 0),
        CALL("mount-move", ROOT, "move a mount", SYS_mount, CG_ADDR("../out"), CG_ADDR("mnt"), 0, MS_MOVE, 0),
        CALL("mount-remount", ROOT, "make a read-only mount writable", SYS_mount, 0, CG_ADDR("/"), 0,
             MS_REMOUNT | MS_BIND | 0x80000000UL, CG_ADDR("cellgate=no")),
        CALL("mount-proc", ROOT, "mount a fresh /proc", SYS_mount, CG_ADDR("proc"), CG_ADDR("mnt"),
             CG_ADDR("proc"), 0, 0),
        CALL("umount-hidden", ROOT, "take the cover off a hidden file", SYS_umount2, CG_ADDR("secret.txt"),
             MNT_DETACH),
        CALL("umount-proc", ALL, "umount /proc (with a wrong flag)", SYS_umount2, CG_ADDR("/proc"), 0x4000),
        CALL("open-tree", ROOT, "open_tree copies mounts", SYS_open_tree, AT_FDCWD, CG_ADDR("/"),
             1 /* CLONE */),
        CALL("move-mount", ROOT, "move_mount (with a wrong flag)", SYS_move_mount, -1UL, CG_ADDR(""), -1UL,
             CG_ADDR(""), 0xdead0000UL),
        CALL("fsopen", ROOT, "fsopen makes a file system", SYS_fsopen, CG_ADDR("tmpfs"), 0),
        CALL("fsmount", ROOT, "fsmount", SYS_fsmount, -1UL, 0, 0),
        CALL("fsconfig", ALL, "fsconfig (on no descriptor)", SYS_fsconfig, -1UL, 0, 0, 0, 0),
        CALL("fspick", ROOT, "fspick", SYS_fspick, AT_FDCWD, CG_ADDR("/"), 0),
        CALL("mount-setattr", ROOT, "mount_setattr makes a mount writable", 442, AT_FDCWD, CG_ADDR("/"), 0,
             CG_ADDR(zeros), 32),
        CALL("pivot-root", ROOT, "another root (of a folder that is not there)", SYS_pivot_root,
             CG_ADDR("/cellgate-no-such-folder"), CG_ADDR("/cellgate-no-such-folder")),
        CALL_BY("chroot", "seccomp|capabilities", ROOT, cg_try_call, "chroot", SYS_chroot, CG_ADDR("/")),
        CALL("setns-nothing", ALL, "setns (on no descriptor)", SYS_setns, -1UL, 0),
        CALL("unshare-user", ALL, "a user namespace", SYS_unshare, CLONE_NEWUSER),
        CALL("unshare-mount", ROOT, "a mount namespace", SYS_unshare, CLONE_NEWNS),
        CALL("unshare-net", ROOT, "a network namespace", SYS_unshare, CLONE_NEWNET),
        CALL("unshare-pid", ROOT, "a pid namespace", SYS_unshare, CLONE_NEWPID),
        CALL("unshare-ipc", ROOT, "an ipc namespace", SYS_unshare, CLONE_NEWIPC),
        CALL("unshare-cgroup", ROOT, "a cgroup namespace", SYS_unshare, CLONE_NEWCGROUP),
        CALL("unshare-time", ROOT, "a time namespace", SYS_unshare, 0x80),
        CALL("unshare-high-bits", ALL, "a user namespace, with bits above 32", SYS_unshare,
             HIGH | CLONE_NEWUSER),
        CALL("socket-high-bits", ALL, "AF_UNIX with bits above 32: the kernel takes the lower ones",
             SYS_socket, HIGH | AF_UNIX, SOCK_STREAM, 0),
        CALL("socketpair-high-bits", ALL, "a pair of datagram sockets with bits above 32", SYS_socketpair,
             HIGH | AF_UNIX, HIGH | SOCK_DGRAM, 0, CG_ADDR(zeros)),
        CALL_BY("clone-user", "seccomp", ALL, clone_with, "clone with a user namespace", CLONE_NEWUSER),
        CALL_BY("clone-high-bits", "seccomp", ALL, clone_with, "the same with bits above 32",
                HIGH | CLONE_NEWUSER),
        CALL_BY("clone3-user", "seccomp", ALL, clone3_with, "clone3 with a user namespace", CLONE_NEWUSER),
        CALL_BY("clone3", "seccomp", ALL, clone3_with, "clone3: a filter cannot read its flags", 0),
        CALL_BY("userns-mount", "seccomp", ALL, userns_then_mount,
                "capabilities by a user namespace, then a mount", 0),
        CALL("kcmp", ALL, "kcmp compares objects of processes", SYS_kcmp, 0, 0, 0, 0, 0),
        CALL_BY("tiocsti", "seccomp", ROOT, terminal_ioctl, "typing into a terminal (TIOCSTI)", TIOCSTI),
        CALL_BY("tiocsti-high-bits", "seccomp", ROOT, terminal_ioctl, "TIOCSTI with bits above 32",
                HIGH | TIOCSTI),
        CALL_BY("tioclinux", "seccomp", ALL, terminal_ioctl, "pasting into a console (TIOCLINUX)", TIOCLINUX),
        CALL_BY("tiocsetd", "seccomp", ALL, terminal_ioctl, "another line discipline (TIOCSETD)", TIOCSETD),
        CALL_BY("tiocexcl", "seccomp", ALL, terminal_ioctl, "exclusive use of a terminal (TIOCEXCL)",
                TIOCEXCL),
        CALL("snapshot", NONE, "a copy of a folder under any name (btrfs snapshot)", SYS_ioctl, -1UL,
             SNAPSHOT, 0),
        CALL("snapshot-high-bits", NONE, "the same with bits above 32", SYS_ioctl, -1UL, HIGH | SNAPSHOT, 0),
        CALL_BY("lease", "seccomp", ALL, lease, "a lease, which delays programs outside that open the file",
                F_RDLCK),
        CALL_BY("lease-high-bits", "seccomp", ALL, lease, "the same with bits above 32", HIGH | F_RDLCK),
        CALL_BY("int80", "seccomp", MACHINE, int80, "a system call by the 32-bit table"),
        CALL_BY("x32", "seccomp", MACHINE, x32, "a system call by the x32 table"),
        CALL_BY("x32-socket", "seccomp", MACHINE, x32_socket, "socket(AF_UNIX) by the x32 table"),
        CG_DENY("setns-own-user", "seccomp", setns_own, "setns to a namespace it is in",
                .arg = "/proc/self/ns/user"),
#undef CALL
#undef CALL_BY
        CG_ALLOW("fork", fork_works, "processes can be made"),
        CG_ALLOW("memfd-exec", memfd_exec, "a program in memory can be run"),
};

CG_TABLE(calls, "system calls");
