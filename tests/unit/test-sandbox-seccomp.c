/*
 * The system call filter alone, without namespaces and with whatever capabilities the tester has:
 * so it is the filter that answers, and as root even for calls that capabilities guard. Arguments
 * are nonsense: a call that gets through does nothing.
 */
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "sandbox/steps.h"
#define CG_OWN_MAIN
#include "unit.h"

struct call {
        const char *name;
        long nr;
        long a[6];
};

/* Answers of calls, in memory shared with the child that makes them: 0 or errno. */
static int *answers;

static struct sock_fprog filter; /* static data */

static int prepare(void **state)
{
        answers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        *state = NULL;
        cg_seccomp_filter(0, &filter);
        return answers == MAP_FAILED;
}

static int finish(void **state)
{
        *state = NULL;
        munmap(answers, 4096);
        return 0;
}

/* Makes the calls in a child, behind the filter when asked; returns its wait status. */
static int make_calls(const struct call *calls, size_t n, bool filtered)
{
        struct cg_err err = { 0 };
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
                setsid();
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                if (filtered && cg_seccomp_install(&filter, &err) < 0)
                        _exit(100);
                for (size_t i = 0; i < n; i++) {
                        const long *a = calls[i].a;
                        long r = syscall(calls[i].nr, a[0], a[1], a[2], a[3], a[4], a[5]);

                        answers[i] = r < 0 ? errno : 0;
                }
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void expect(const struct call *calls, size_t n, int error)
{
        assert_int_equal(make_calls(calls, n, true), 0);
        for (size_t i = 0; i < n; i++) {
                if (answers[i] != error)
                        fail_msg("%s: %s, not %s", calls[i].name, strerrorname_np(answers[i]),
                                 strerrorname_np(error));
        }
}

#define NONSENSE \
        { \
                -1, -1, -1, -1, -1, -1 \
        }
#define C(n) \
        { \
#n, SYS_##n, NONSENSE \
        }

#define N(n, nr) \
        { \
                n, nr, NONSENSE \
        }

static const struct call denied[] = {
        C(mount),
        C(umount2),
        C(pivot_root),
        C(chroot),
        C(open_tree),
        C(move_mount),
        C(fsopen),
        C(fsconfig),
        C(fsmount),
        C(fspick),
        C(mount_setattr),
        N("open_tree_attr", 467),
        C(setns),
        C(io_uring_setup),
        C(io_uring_enter),
        C(io_uring_register),
        C(io_setup),
        C(io_submit),
        C(ptrace),
        C(process_vm_readv),
        C(process_vm_writev),
        C(pidfd_getfd),
        C(kcmp),
        C(process_madvise),
        C(keyctl),
        C(add_key),
        C(request_key),
        C(open_by_handle_at),
        C(name_to_handle_at),
        C(bpf),
        C(perf_event_open),
        C(userfaultfd),
        C(fanotify_init),
        C(fanotify_mark),
        C(remap_file_pages),
        C(kexec_load),
        C(init_module),
        C(finit_module),
        C(delete_module),
        C(reboot),
        C(swapon),
        C(swapoff),
        C(acct),
        C(quotactl),
        C(quotactl_fd),
        C(syslog),
        C(vhangup),
        C(settimeofday),
        C(clock_settime),
        C(clock_adjtime),
        C(adjtimex),
        C(sethostname),
        C(setdomainname),
        C(lookup_dcookie),
#ifdef SYS_kexec_file_load
        C(kexec_file_load),
#endif
#ifdef __x86_64__
        C(uselib),
        C(modify_ldt),
        C(iopl),
        C(ioperm),
        C(ustat),
        C(sysfs),
#endif
};

TEST(denied_calls)
{
        expect(denied, CG_ARRAY_LEN(denied), EPERM);
}

/*
 * Calls that watch.c lets go on: past the filter, which therefore must have nothing against them
 * but what setid.h says.
 */
#define NO_SETID \
        { \
                -1, ~06000L, ~06000L, ~06000L, -1, -1 \
        }
#define W(n) \
        { \
#n, SYS_##n, NO_SETID \
        }

static const struct call watched[] = {
        W(openat),   W(mkdirat),  W(mknodat),  W(symlinkat), W(linkat),   W(unlinkat), W(renameat2),
        W(fchmodat), W(fchownat), W(truncate), W(execve),    W(execveat),
#ifdef __x86_64__
        W(open),     W(creat),    W(mkdir),    W(mknod),     W(symlink),  W(link),     W(unlink),
        W(rmdir),    W(rename),   W(renameat), W(chmod),     W(chown),    W(lchown),
#endif
};

TEST(watched_calls_are_allowed)
{
        assert_int_equal(make_calls(watched, CG_ARRAY_LEN(watched), true), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(watched); i++) {
                if (answers[i] == EPERM || answers[i] == ENOSYS)
                        fail_msg("%s is denied", watched[i].name);
        }
}

/* The other half: none of them answers EPERM by itself, so the test above can fail. */
TEST(denied_calls_are_there_without_the_filter)
{
        if (geteuid())
                skip(); /* an ordinary user is denied most of them anyway */
        assert_int_equal(make_calls(denied, CG_ARRAY_LEN(denied), false), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied); i++) {
                if (answers[i] == EPERM)
                        fail_msg("%s is EPERM without the filter", denied[i].name);
        }
}

TEST(unknown_calls_do_not_exist)
{
        static struct call calls[511 - 470 + 2] = { { "clone3", SYS_clone3, NONSENSE } };

        for (size_t i = 1; i < CG_ARRAY_LEN(calls); i++)
                calls[i] = (struct call){ "a new call", (long)(470 + i - 1), NONSENSE };
        expect(calls, CG_ARRAY_LEN(calls), ENOSYS);
}

TEST(families)
{
        static const struct call allowed[] = {
                { "INET", SYS_socket, { AF_INET, SOCK_STREAM, 0 } },
                { "INET tcp", SYS_socket, { AF_INET, SOCK_STREAM, 6 } },
                { "INET6", SYS_socket, { AF_INET6, SOCK_DGRAM, 0 } },
                { "NETLINK_ROUTE", SYS_socket, { AF_NETLINK, SOCK_RAW, 0 } },
                { "stream pair",
                  SYS_socketpair,
                  { AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0 } },
        };
        static const struct call other[] = {
                { "UNIX, 33 bits", SYS_socket, { 0x100000001, SOCK_STREAM, 0 } },
                { "UNIX, 64 bits", SYS_socket, { (long)0xffffffff00000001, SOCK_STREAM, 0 } },
                { "INET, 33 bits", SYS_socket, { 0x100000002, SOCK_STREAM, 0 } },
                { "NETLINK, 33 bits", SYS_socket, { 0x100000010, SOCK_RAW, 9 } },
                { "NETLINK_AUDIT", SYS_socket, { AF_NETLINK, SOCK_RAW, 9 } },
                { "NETLINK_NETFILTER", SYS_socket, { AF_NETLINK, SOCK_RAW, 12 } },
                { "NETLINK, protocol of 33 bits", SYS_socket, { AF_NETLINK, SOCK_RAW, 0x100000000 } },
                { "SCTP", SYS_socket, { AF_INET, SOCK_STREAM, 132 } },
                { "MPTCP", SYS_socket, { AF_INET6, SOCK_STREAM, 262 } },
                { "datagram pair", SYS_socketpair, { AF_UNIX, SOCK_DGRAM, 0, 0 } },
                { "datagram pair with flags", SYS_socketpair, { AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0 } },
                { "datagram pair, 33 bits", SYS_socketpair, { AF_UNIX, 0x100000000 | SOCK_DGRAM, 0, 0 } },
                { "raw pair", SYS_socketpair, { AF_UNIX, SOCK_RAW, 0, 0 } },
                { "TIPC pair", SYS_socketpair, { AF_TIPC, SOCK_STREAM, 0, 0 } },
        };
        static struct call all[64];

        assert_int_equal(make_calls(allowed, CG_ARRAY_LEN(allowed), true), 0);
        for (size_t i = 0; i + 1 < CG_ARRAY_LEN(allowed); i++)
                assert_int_equal(answers[i], 0);
        /* got as far as the missing array */
        assert_int_equal(answers[CG_ARRAY_LEN(allowed) - 1], EFAULT);
        expect(other, CG_ARRAY_LEN(other), EPERM);
        for (long f = 0; f < (long)CG_ARRAY_LEN(all); f++) {
                bool ok = f == AF_INET || f == AF_INET6 || f == AF_NETLINK;

                all[f] = (struct call){ "family", SYS_socket, { ok ? AF_UNIX : f, SOCK_DGRAM, 0 } };
        }
        expect(all, CG_ARRAY_LEN(all), EPERM);
}

TEST(namespaces)
{
        static const long flags[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                      CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };
        static struct call calls[2 * CG_ARRAY_LEN(flags) + 3];
        static const struct call allowed[] = { { "unshare(CLONE_FILES)", SYS_unshare, { CLONE_FILES } },
                                               { "unshare(CLONE_FS)", SYS_unshare, { CLONE_FS } } };
        size_t n = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(flags); i++) {
                calls[n++] = (struct call){ "unshare", SYS_unshare, { flags[i] | CLONE_FS } };
                /*
                 * CLONE_THREAD without CLONE_VM: nonsense, so that nothing is cloned where this
                 * fails
                 */
                calls[n++] = (struct call){ "clone", SYS_clone, { flags[i] | CLONE_THREAD } };
        }
        calls[n++] = (struct call){ "unshare, 33 bits", SYS_unshare, { 0x100000000 | CLONE_NEWUSER } };
        calls[n++] = (struct call){ "unshare(CLONE_NEWTIME)", SYS_unshare, { 0x80 } };
        calls[n++] = (struct call){ "unshare(empty mount namespace)", SYS_unshare, { 0x100000 } };
        expect(calls, n, EPERM);
        expect(allowed, CG_ARRAY_LEN(allowed), 0);
}

/* A user that has no processes. */
#define NOBODY 0x7ffffff0

TEST(small_print)
{
        static const struct call refused[] = {
                { "TIOCSTI", SYS_ioctl, { 0, TIOCSTI, 0 } },
                { "TIOCSTI, 33 bits", SYS_ioctl, { 0, 0x100000000 | TIOCSTI, 0 } },
                { "TIOCLINUX", SYS_ioctl, { 0, TIOCLINUX, 0 } },
                { "TIOCSETD", SYS_ioctl, { 0, TIOCSETD, 0 } },
                { "TIOCEXCL", SYS_ioctl, { 0, TIOCEXCL, 0 } },
                { "snapshot of a folder", SYS_ioctl, { -1, 0x50009401, 0 } },
                { "a folder within", SYS_ioctl, { -1, 0x5000940e, 0 } },
                { "a folder removed", SYS_ioctl, { -1, 0x5000940f, 0 } },
                { "snapshot, second kind", SYS_ioctl, { -1, 0x50009417, 0 } },
                { "snapshot, 33 bits", SYS_ioctl, { -1, 0x150009417, 0 } },
                { "a folder within, second kind", SYS_ioctl, { -1, 0x50009418, 0 } },
                { "a folder removed, second kind", SYS_ioctl, { -1, 0x5000943f, 0 } },
                { "copy of a file", SYS_ioctl, { -1, 0x40186f04, 0 } },
                { "lease", SYS_fcntl, { 0, F_SETLEASE, F_RDLCK } },
                { "lease, 33 bits", SYS_fcntl, { 0, 0x100000000 | F_SETLEASE, F_WRLCK } },
                { "personality(READ_IMPLIES_EXEC)", SYS_personality, { 0x0400000 } },
                { "personality(0)", SYS_personality, { 0 } },
                { "prlimit of init", SYS_prlimit64, { 1, 7, 0, 0 } },
                { "prlimit of init, 33 bits", SYS_prlimit64, { 0x100000001, 7, 0, 0 } },
                { "affinity of init", SYS_sched_setaffinity, { 1, 0, 0 } },
                { "affinity of init, 33 bits", SYS_sched_setaffinity, { 0x100000001, 0, 0 } },
                { "scheduler of init", SYS_sched_setscheduler, { 1, -1, 0 } },
                { "scheduling parameters of init", SYS_sched_setparam, { 1, 0 } },
                { "scheduling attributes of init", SYS_sched_setattr, { 1, 0, 0 } },
                { "pages of init", SYS_migrate_pages, { 1, 0, 0, 0 } },
                { "pages of init, move_pages", SYS_move_pages, { 1, 0, 0, 0, 0, 0 } },
                { "priority of init", SYS_setpriority, { -1, 1, 0 } },
                { "priority of init, 33 bits", SYS_setpriority, { -1, 0x100000001, 0 } },
                { "priority of a user", SYS_setpriority, { PRIO_USER, NOBODY, 0 } },
                { "priority of a user, 33 bits", SYS_setpriority, { 0x100000000 | PRIO_USER, NOBODY, 0 } },
                { "io priority of init", SYS_ioprio_set, { -1, 1, 0 } },
                { "core scheduling", SYS_prctl, { 62, 0, 1, 0, 0 } },
                { "io priority of a user", SYS_ioprio_set, { 3, NOBODY, 0 } },
        };
        static const struct call allowed[] = {
                { "personality query", SYS_personality, { 0xffffffff } },
                { "prlimit of itself", SYS_prlimit64, { 0, 7, 0, 0 } },
                { "priority of itself", SYS_setpriority, { PRIO_PROCESS, 0, 1 } },
                { "priority of its group", SYS_setpriority, { PRIO_PGRP, 0, 1 } },
                { "io priority of itself", SYS_ioprio_set, { 1, 0, 0 } },
                { "getpid", SYS_getpid, { 0 } },
                { "getting a lease", SYS_fcntl, { 0, F_GETLEASE, 0 } },
        };

        expect(refused, CG_ARRAY_LEN(refused), EPERM);
        expect(allowed, CG_ARRAY_LEN(allowed), 0);
}

/*
 * Modes of files that run with the rights of their owner or group. Nothing is at the paths'
 * addresses.
 */
TEST(set_id_modes)
{
        static const struct call refused[] = {
                { "openat", SYS_openat, { -1, -1, O_CREAT, 04755 } },
                { "openat, group", SYS_openat, { -1, -1, O_CREAT | O_RDWR, 02755 } },
                { "openat, bits above", SYS_openat, { -1, -1, 0x100000000 | O_CREAT, 0x100000000 | 04755 } },
                { "openat, O_TMPFILE", SYS_openat, { -1, -1, O_TMPFILE | O_RDWR, 04755 } },
                { "openat, O_TMPFILE without O_DIRECTORY",
                  SYS_openat,
                  { -1, -1, O_TMPFILE & ~O_DIRECTORY, 06000 } },
                { "mknodat", SYS_mknodat, { -1, -1, 0104755, 0 } },
                { "fchmod", SYS_fchmod, { -1, 04000 } },
                { "fchmod, group", SYS_fchmod, { -1, 02755 } },
                { "fchmodat", SYS_fchmodat, { -1, -1, 06755 } },
                { "fchmodat2", 452, { -1, -1, 04755, 0 } },
#ifdef __x86_64__
                { "open", SYS_open, { -1, O_CREAT, 04755 } },
                { "open, O_TMPFILE", SYS_open, { -1, O_TMPFILE | O_RDWR, 02755 } },
                { "creat", SYS_creat, { -1, 04755 } },
                { "mknod", SYS_mknod, { -1, 0104755, 0 } },
                { "chmod", SYS_chmod, { -1, 04755 } },
                { "chmod, bits above", SYS_chmod, { -1, (long)0xffffffff00000000 | 02000 } },
#endif
        };
        static const struct call allowed[] = {
                /* The kernel does not read the mode, whatever the register contains. */
                { "openat of what is there", SYS_openat, { -1, -1, O_RDWR, 06755 } },
                { "openat of a folder", SYS_openat, { -1, -1, O_DIRECTORY, 06755 } },
                { "openat", SYS_openat, { -1, -1, O_CREAT | O_RDWR, 01777 } },
                { "openat, O_TMPFILE", SYS_openat, { -1, -1, O_TMPFILE | O_RDWR, 01777 } },
                { "mknodat", SYS_mknodat, { -1, -1, 0101777, 0 } },
                { "mkdirat", SYS_mkdirat, { -1, -1, 06755 } },
                { "fchmodat", SYS_fchmodat, { -1, -1, 01777 } },
#ifdef __x86_64__
                { "open", SYS_open, { -1, O_RDONLY, 06755 } },
                { "chmod", SYS_chmod, { -1, 0755 } },
#endif
        };
        static const struct call hidden[] = { { "openat2", SYS_openat2, NONSENSE } };

        expect(refused, CG_ARRAY_LEN(refused), EPERM);
        expect(allowed, CG_ARRAY_LEN(allowed), EFAULT);
        expect(hidden, 1, ENOSYS);
}

#ifdef __x86_64__
TEST(x32_is_killed)
{
        static const struct call call[] = { { "x32 getpid", 0x40000000 + SYS_getpid, { 0 } } };

        assert_int_equal(WTERMSIG(make_calls(call, 1, true)), SIGSYS);
}
#endif

int main(void)
{
        return cg_run_tests(prepare, finish);
}
