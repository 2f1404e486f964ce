/*
 * The system call filter: everything is allowed but the calls listed here. A deny list, because a
 * kernel runs whatever people import, and an allow list would break with every new libc.
 * Namespaces, missing capabilities and Landlock are the first layer; the filter removes ways around
 * them, and rarely used, often vulnerable parts of the kernel.
 *
 * Compiled by libseccomp while cellgate is built (seccomp_gen.c). Denials are EPERM, or ENOSYS if
 * programs then fall back to a call that can be checked. Most are notified (init replies EPERM and
 * reports them), but not calls that programs try without need and continue.
 */
#include "sandbox/steps.h"

#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "sandbox/setid.h"

/*
 * Arguments that the kernel reads as 32 bits are compared as 32 bits: socket(0x100000001, ...) is
 * socket(AF_UNIX, ...), and a 64-bit comparison would let it through.
 */
#define LOW32              0xffffffffu
#define ARG_IS(n, value)   SCMP_CMP(n, SCMP_CMP_MASKED_EQ, LOW32, (value))
#define ARG_FROM(n, value) SCMP_CMP(n, SCMP_CMP_GE, (value), 0)
#define ARG_NOT(n, value)  SCMP_CMP(n, SCMP_CMP_NE, (value), 0)
#define ARG_HAS(n, bits)   SCMP_CMP(n, SCMP_CMP_MASKED_EQ, (bits), (bits))

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define UNSHARE_EMPTY_MNTNS 0x00100000 /* newer than the headers; a mount namespace like CLONE_NEWNS */

/* Calls without a name in libseccomp 2.5; numbers from 424 on are the same on all architectures. */
#define NR_OPEN_TREE_ATTR 467
#define NR_FIRST_UNKNOWN  470 /* listns and later calls */
#define NR_LAST_UNKNOWN   511

/* Mounts, roots and other namespaces: init makes the view, once. clone and unshare are below. */
static const int denied_views[] = {
        SCMP_SYS(mount),    SCMP_SYS(umount),    SCMP_SYS(umount2),    SCMP_SYS(pivot_root),
        SCMP_SYS(chroot),   SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen),
        SCMP_SYS(fsconfig), SCMP_SYS(fsmount),   SCMP_SYS(fspick),     SCMP_SYS(mount_setattr),
        NR_OPEN_TREE_ATTR,  SCMP_SYS(setns),
};

/*
 * Denied without a report, since programs do without. node and others try io_uring first; it opens
 * sockets and files without a call that this filter could check. A write by io_submit() may be done
 * when the process runs no more: stopped.h relies on its absence.
 */
static const int denied_silently[] = { SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
                                       SCMP_SYS(io_uring_register), SCMP_SYS(io_setup), SCMP_SYS(io_submit) };

static const int denied[] = {
        /* Another process's memory, registers and descriptors. */
        SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd),
        SCMP_SYS(kcmp), SCMP_SYS(process_madvise),
        /* Keyrings belong to the user, not to the namespace. */
        SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
        /* Files by handle, which bypass path-based checks. */
        SCMP_SYS(open_by_handle_at), SCMP_SYS(name_to_handle_at),
        /* Large, privileged or rarely used parts of the kernel with many past vulnerabilities. */
        SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(fanotify_init),
        SCMP_SYS(fanotify_mark), SCMP_SYS(lookup_dcookie), SCMP_SYS(uselib), SCMP_SYS(modify_ldt),
        SCMP_SYS(vm86), SCMP_SYS(vm86old), SCMP_SYS(_sysctl), SCMP_SYS(sysfs), SCMP_SYS(ustat),
        SCMP_SYS(nfsservctl), SCMP_SYS(remap_file_pages),
        /* Settings of the machine. They need capabilities as well. */
        SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(init_module), SCMP_SYS(finit_module),
        SCMP_SYS(delete_module), SCMP_SYS(create_module), SCMP_SYS(query_module), SCMP_SYS(get_kernel_syms),
        SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl),
        SCMP_SYS(quotactl_fd), SCMP_SYS(syslog), SCMP_SYS(vhangup), SCMP_SYS(iopl), SCMP_SYS(ioperm),
        SCMP_SYS(settimeofday), SCMP_SYS(stime), SCMP_SYS(clock_settime), SCMP_SYS(clock_adjtime),
        SCMP_SYS(adjtimex), SCMP_SYS(sethostname), SCMP_SYS(setdomainname)
};

/*
 * Protocols of AF_INET whose kernel module socket() would load: DCCP, L2TP, SCTP, SMC, MPTCP.
 * Programs that try MPTCP (Go's listeners) continue with TCP.
 */
static const unsigned int denied_protocols[] = { 33, 115, 132, 256, 262 };

/*
 * Terminals: TIOCSTI types into a terminal that programs outside read, TIOCLINUX pastes into a
 * console, TIOCSETD loads line disciplines, and TIOCEXCL prevents that other programs open the
 * caller's terminal, also after the sandbox's end; prompts for passwords and approvals do.
 */
static const unsigned int denied_ioctls[] = { TIOCSTI, TIOCLINUX, TIOCSETD, TIOCEXCL };

/*
 * These make, copy and remove folders with their contents by a read-only descriptor, which Landlock
 * does not check. BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY, SNAP_CREATE_V2,
 * SUBVOL_CREATE_V2, SNAP_DESTROY_V2; OCFS2_IOC_REFLINK.
 */
static const unsigned int denied_copies[] = { 0x50009401, 0x5000940e, 0x5000940f, 0x50009417,
                                              0x50009418, 0x5000943f, 0x40186f04 };

#define SOCKET_TYPE_MASK 0xf /* the rest are flags */

/*
 * The landlock tier has no ipc namespace, pid namespace or mounts, which protect the user's
 * programs outside in the full tier: the calls themselves are denied.
 */
static const int denied_without_namespaces[] = {
        SCMP_SYS(shmget),     SCMP_SYS(shmat),   SCMP_SYS(shmctl),    SCMP_SYS(semget), SCMP_SYS(semop),
        SCMP_SYS(semtimedop), SCMP_SYS(semctl),  SCMP_SYS(msgget),    SCMP_SYS(msgsnd), SCMP_SYS(msgrcv),
        SCMP_SYS(msgctl),     SCMP_SYS(mq_open), SCMP_SYS(mq_unlink),
};

/* Extended attributes and flags of files: no right of Landlock. Programs do without. */
#define NR_SETXATTRAT    463
#define NR_REMOVEXATTRAT 466
#define NR_FILE_SETATTR  469
static const int denied_attributes[] = {
        SCMP_SYS(setxattr),    SCMP_SYS(lsetxattr),    SCMP_SYS(fsetxattr),
        SCMP_SYS(removexattr), SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr),
        NR_SETXATTRAT,         NR_REMOVEXATTRAT,       NR_FILE_SETATTR,
};

/* Calls that programs do need: the broker executes them on writable files. */
static const int modes[] = { SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat), 452 /* fchmodat2 */ };
/*
 * The same, but in the full tier mounts keep them from files outside of write roots, so the kernel
 * executes them: there a file has no other owner to be given to, and nobody decides by its times
 * what to run.
 */
static const int owners_and_times[] = {
        SCMP_SYS(chown), SCMP_SYS(fchown), SCMP_SYS(lchown),    SCMP_SYS(fchownat),
        SCMP_SYS(utime), SCMP_SYS(utimes), SCMP_SYS(futimesat), SCMP_SYS(utimensat),
};

/* Executed by init in write roots: see mediate.h. */
static const int mediated[] = {
        SCMP_SYS(creat),    SCMP_SYS(mkdir),     SCMP_SYS(mkdirat), SCMP_SYS(mknod),     SCMP_SYS(mknodat),
        SCMP_SYS(link),     SCMP_SYS(linkat),    SCMP_SYS(symlink), SCMP_SYS(symlinkat), SCMP_SYS(rename),
        SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(unlink),  SCMP_SYS(unlinkat),  SCMP_SYS(rmdir),
        SCMP_SYS(truncate), SCMP_SYS(umask),
};

/* Calls whose first argument is a process; 0 is the caller. */
static const int of_a_process[] = {
        SCMP_SYS(prlimit64),      SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setscheduler),
        SCMP_SYS(sched_setparam), SCMP_SYS(sched_setattr),     SCMP_SYS(migrate_pages),
        SCMP_SYS(move_pages),
};

/*
 * FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION: attributes by a read-
 * only descriptor.
 */
static const unsigned int denied_file_ioctls[] = { 0x40086602, 0x40046602, 0x401c5820, 0x40087602 };

#define IOPRIO_WHO_USER 3
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

/* Collects the first error, so that callers need not check each rule. */
struct rules {
        scmp_filter_ctx ctx;
        int error; /* 0 or a negative errno */
};

/* In place of an errno: EPERM with a report. */
#define REPORTED 0

static void deny_if(struct rules *r, int syscall_nr, int error, unsigned int n,
                    const struct scmp_arg_cmp *args)
{
        int e;

        if (r->error)
                return;
        e = seccomp_rule_add_array(r->ctx,
                                   error == REPORTED ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO((uint32_t)error),
                                   syscall_nr, n, args);
        /* EDOM: this architecture does not have the call */
        if (e < 0 && e != -EDOM)
                r->error = e;
}

static void deny(struct rules *r, int syscall_nr, int error)
{
        deny_if(r, syscall_nr, error, 0, NULL);
}

#define DENY_EACH(r, list, error) deny_each((r), (list), CG_ARRAY_LEN(list), (error))
static void deny_each(struct rules *r, const int *list, size_t n, int error)
{
        for (size_t i = 0; i < n; i++)
                deny(r, list[i], error);
}

static void deny_if1(struct rules *r, int syscall_nr, struct scmp_arg_cmp a)
{
        deny_if(r, syscall_nr, REPORTED, 1, &a);
}

static void deny_if2(struct rules *r, int syscall_nr, struct scmp_arg_cmp a, struct scmp_arg_cmp b)
{
        deny_if(r, syscall_nr, REPORTED, 2, (const struct scmp_arg_cmp[]){ a, b });
}

/*
 * Allowed families: INET, INET6 (confined by the empty network namespace) and NETLINK_ROUTE
 * (getifaddrs). AF_UNIX would reach sockets of host programs through the file system, AF_VSOCK has
 * no namespaces, AF_ALG and the others are attack surface.
 */
static void add_sockets(struct rules *r, unsigned int flags)
{
        bool streams = flags & CG_FILTER_ASKED_UNIX && !(flags & CG_FILTER_UNIX_SOCKETS);

        for (unsigned int family = 0; family < AF_MAX; family++) {
                bool inet = family == AF_INET || family == AF_INET6;

                /* Without a network namespace a socket is in the host's network. */
                if ((flags & CG_FILTER_LANDLOCK ? inet && (flags & CG_FILTER_TCP)
                                                : inet || family == AF_NETLINK) ||
                    (family == AF_UNIX && streams))
                        continue;
                if (!(flags & CG_FILTER_UNIX_SOCKETS) || (family != AF_UNIX && family != AF_VSOCK))
                        deny_if1(r, SCMP_SYS(socket), ARG_IS(0, family));
        }
        /*
         * A stream socket needs connect(), which is notified. A datagram socket can use sendmsg(),
         * whose address a filter cannot read.
         */
        for (unsigned int type = 0; type <= SOCKET_TYPE_MASK && streams; type++) {
                if (type != SOCK_STREAM && type != SOCK_SEQPACKET)
                        deny_if2(r, SCMP_SYS(socket), ARG_IS(0, AF_UNIX),
                                 SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, type));
        }
        if (streams)
                deny(r, SCMP_SYS(connect), REPORTED);
        if (flags & CG_FILTER_ASKED_LISTEN)
                deny(r, SCMP_SYS(listen), REPORTED);
        /* Families newer than the headers, and numbers with bits in the upper half. */
        deny_if1(r, SCMP_SYS(socket), ARG_FROM(0, AF_MAX));
        if (!(flags & CG_FILTER_LANDLOCK))
                deny_if2(r, SCMP_SYS(socket), ARG_IS(0, AF_NETLINK), ARG_NOT(2, 0 /* NETLINK_ROUTE */));
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_protocols); i++)
                deny_if(r, SCMP_SYS(socket), EPERM, 1,
                        (const struct scmp_arg_cmp[]){ ARG_IS(2, denied_protocols[i]) });
        if (flags & CG_FILTER_UNIX_SOCKETS)
                return;
        /*
         * asyncio and multiprocessing use pairs of streams, and a connected stream cannot be
         * connected again. A datagram pair can be: connect() or sendto() on it reaches any host
         * socket with a path, as with socket(AF_UNIX). SOCK_RAW is the same as SOCK_DGRAM there.
         */
        for (unsigned int type = 0; type <= SOCKET_TYPE_MASK; type++) {
                if (type != SOCK_STREAM && type != SOCK_SEQPACKET)
                        deny_if1(r, SCMP_SYS(socketpair),
                                 SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, type));
        }
        for (unsigned int family = 0; family < AF_MAX; family++)
                if (family != AF_UNIX)
                        deny_if1(r, SCMP_SYS(socketpair), ARG_IS(0, family));
        deny_if1(r, SCMP_SYS(socketpair), ARG_FROM(0, AF_MAX));
}

/* See setid.h. */
static void add_setid(struct rules *r)
{
        static const unsigned int makes[] = { O_CREAT, CG_O_TMPFILE }, bits[] = { S_ISUID, S_ISGID };

        for (size_t i = 0; i < CG_ARRAY_LEN(cg_setid_calls); i++) {
                const struct cg_setid_call *c = &cg_setid_calls[i];

                for (size_t b = 0; b < CG_ARRAY_LEN(bits); b++) {
                        if (c->flags < 0)
                                deny_if1(r, c->nr, ARG_HAS((unsigned int)c->mode, bits[b]));
                        for (size_t m = 0; m < CG_ARRAY_LEN(makes) && c->flags >= 0; m++)
                                deny_if2(r, c->nr, ARG_HAS((unsigned int)c->flags, makes[m]),
                                         ARG_HAS((unsigned int)c->mode, bits[b]));
                }
        }
        deny(r, SCMP_SYS(openat2), ENOSYS);
}

/*
 * init has the same user, so without these rules a process inside could limit it (RLIMIT_CPU 1 ends
 * it, and the sandbox), give it the lowest priority or move it to another processor. In a pid
 * namespace init is number 1 and its process group has no number; in the landlock tier every other
 * number may be one of the host's processes.
 */
static void add_other_processes(struct rules *r, unsigned int flags)
{
        struct scmp_arg_cmp first = ARG_IS(0, 1), second = ARG_IS(1, 1);

        if (flags & CG_FILTER_LANDLOCK) {
                first = (struct scmp_arg_cmp)ARG_NOT(0, 0);
                second = (struct scmp_arg_cmp)ARG_NOT(1, 0);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(of_a_process); i++)
                deny_if1(r, of_a_process[i], first);
        deny_if1(r, SCMP_SYS(setpriority), second);
        deny_if1(r, SCMP_SYS(ioprio_set), second);
        /* All processes of a user, including init, for any second argument. */
        deny_if1(r, SCMP_SYS(setpriority), ARG_IS(0, PRIO_USER));
        deny_if1(r, SCMP_SYS(ioprio_set), ARG_IS(0, IOPRIO_WHO_USER));
        /* Its operations take a process as well, and only virtual machines use them. */
        deny_if1(r, SCMP_SYS(prctl), ARG_IS(0, PR_SCHED_CORE));
}

/*
 * Init keeps the working directories of callers. It is notified of changes, and of processes that
 * share theirs and threads that do not; all of these calls continue.
 */
static void add_folders(struct rules *r)
{
        deny(r, SCMP_SYS(chdir), REPORTED);
        deny(r, SCMP_SYS(fchdir), REPORTED);
        deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, CLONE_FS));
        deny_if1(r, SCMP_SYS(clone),
                 SCMP_CMP(CG_CLONE_FLAGS_ARG, SCMP_CMP_MASKED_EQ, CLONE_FS | CLONE_THREAD, CLONE_FS));
        deny_if1(r, SCMP_SYS(clone),
                 SCMP_CMP(CG_CLONE_FLAGS_ARG, SCMP_CMP_MASKED_EQ, CLONE_FS | CLONE_THREAD, CLONE_THREAD));
}

static void add_rules(struct rules *r, unsigned int flags)
{
        static const unsigned int writes[] = { O_WRONLY, O_RDWR, O_CREAT, O_TRUNC };

        DENY_EACH(r, denied, REPORTED);
        DENY_EACH(r, denied_silently, EPERM);
        if (!(flags & CG_FILTER_NESTED_USERS))
                DENY_EACH(r, denied_views, REPORTED);
        /*
         * With nested user namespaces root keeps CAP_SETFCAP, and may be root outside: other users
         * could use the capabilities that it gives to a file in the workspace. An access control
         * list, which is an attribute, changes a file's mode: mediate.h.
         */
        if (flags & (CG_FILTER_NESTED_USERS | CG_FILTER_NAMES))
                DENY_EACH(r, denied_attributes, EOPNOTSUPP);
        /* Calls newer than this list fail with ENOSYS. */
        for (int nr = NR_FIRST_UNKNOWN; nr <= NR_LAST_UNKNOWN; nr++)
                deny(r, nr, ENOSYS);
        add_setid(r);
        if (flags & CG_FILTER_NAMES) {
                DENY_EACH(r, mediated, REPORTED);
                DENY_EACH(r, modes, REPORTED);
                /* Opening for reading is not notified. */
                for (size_t i = 0; i < CG_ARRAY_LEN(writes); i++) {
                        deny_if1(r, SCMP_SYS(open), ARG_HAS(1, writes[i]));
                        deny_if1(r, SCMP_SYS(openat), ARG_HAS(2, writes[i]));
                }
        }
        add_sockets(r, flags);
        if (!(flags & CG_FILTER_NESTED_USERS)) {
                /*
                 * In its own user namespace a process has all capabilities, and access to most of
                 * the kernel's vulnerabilities.
                 */
                for (unsigned int flag = 1; flag; flag <<= 1) {
                        if (!(flag & CG_CLONE_NAMESPACES))
                                continue;
                        deny_if1(r, SCMP_SYS(clone), ARG_HAS(CG_CLONE_FLAGS_ARG, flag));
                        deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, flag));
                }
                /* Part of clone()'s signal number. */
                deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, CLONE_NEWTIME));
                deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, UNSHARE_EMPTY_MNTNS));
                /* Its flags are in memory, unreadable for a filter. On ENOSYS libc uses clone(). */
                deny(r, SCMP_SYS(clone3), ENOSYS);
                if (flags & CG_FILTER_NAMES)
                        add_folders(r);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_ioctls); i++)
                deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_ioctls[i]));
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_copies); i++)
                deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_copies[i]));
        /* A lease on a readable file makes every program outside that opens it wait for 45 s. */
        deny_if1(r, SCMP_SYS(fcntl), ARG_IS(1, F_SETLEASE));
        /* Only the query is allowed: some personalities disable memory protections. */
        deny_if1(r, SCMP_SYS(personality), ARG_NOT(0, LOW32));
        add_other_processes(r, flags);
        if (flags & CG_FILTER_LANDLOCK) {
                DENY_EACH(r, denied_without_namespaces, REPORTED);
                DENY_EACH(r, denied_attributes, EOPNOTSUPP);
                DENY_EACH(r, modes, REPORTED);
                DENY_EACH(r, owners_and_times, REPORTED);
                for (size_t i = 0; i < CG_ARRAY_LEN(denied_file_ioctls); i++)
                        deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_file_ioctls[i]));
        }
        if (!(flags & CG_FILTER_TCP))
                return;
        /*
         * TCP sockets that only the broker connects. They are in the host's network, so they must
         * not listen, be bound, name interfaces, or connect by sending to an address (TCP Fast
         * Open).
         */
        for (unsigned int type = 0; type <= SOCKET_TYPE_MASK; type++) {
                if (type != SOCK_STREAM)
                        deny_if1(r, SCMP_SYS(socket),
                                 SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, type));
        }
        deny_if1(r, SCMP_SYS(sendto), ARG_HAS(3, MSG_FASTOPEN));
        deny_if1(r, SCMP_SYS(sendmsg), ARG_HAS(2, MSG_FASTOPEN));
        deny_if1(r, SCMP_SYS(sendmmsg), ARG_HAS(3, MSG_FASTOPEN));
        deny_if1(r, SCMP_SYS(ioctl), SCMP_CMP(1, SCMP_CMP_MASKED_EQ, 0xffffff00, 0x8900));
        deny(r, SCMP_SYS(bind), REPORTED);
        deny(r, SCMP_SYS(listen), REPORTED);
        deny(r, SCMP_SYS(connect), REPORTED);
}

/* Before 2.6 libseccomp writes programs to descriptors only: uses a file in memory. */
static int export_program(scmp_filter_ctx ctx, struct sock_fprog *ret, struct cg_err *err)
{
        cg_auto_fd int fd = memfd_create("seccomp", MFD_CLOEXEC);
        cg_auto_free struct sock_filter *code = NULL;
        struct stat st;
        int r;

        if (fd < 0)
                return cg_fail_errno(err, "sandbox: memory for the system call filter");
        r = seccomp_export_bpf(ctx, fd);
        if (r < 0) {
                errno = -r;
                return cg_fail_errno(err, "sandbox: compiling the system call filter");
        }
        if (fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: size of the system call filter");
        if (st.st_size == 0 || st.st_size % (off_t)sizeof(*code) ||
            st.st_size / (off_t)sizeof(*code) > BPF_MAXINSNS)
                return cg_fail(err, CG_E_LIMIT, "sandbox: the system call filter has %lld bytes",
                               (long long)st.st_size);
        code = malloc((size_t)st.st_size);
        if (!code)
                return cg_fail(err, CG_E_NOMEM, "sandbox: system call filter");
        if (pread(fd, code, (size_t)st.st_size, 0) != st.st_size)
                return cg_fail_errno(err, "sandbox: reading the system call filter");
        ret->len = (unsigned short)((size_t)st.st_size / sizeof(*code));
        ret->filter = CG_STEAL(code);
        return 0;
}

int cg_seccomp_compile(unsigned int flags, struct sock_fprog *ret, struct cg_err *err)
{
        struct rules r = { .ctx = seccomp_init(SCMP_ACT_ALLOW) };
        int result;

        /* The build machine may not support all that the filter uses. */
        seccomp_api_set(5);
        if (!r.ctx)
                return cg_fail(err, CG_E_UNSUPPORTED, "sandbox: libseccomp does not know this architecture");
        /*
         * 32-bit and x32 calls have other numbers, so processes that use them are killed. The
         * default would kill one thread only.
         */
        r.error = seccomp_attr_set(r.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        /*
         * A tree, not a list, because the kernel runs the filter for each call's number when it is
         * installed (0.13 ms less).
         */
        if (!r.error)
                r.error = seccomp_attr_set(r.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
        add_rules(&r, flags);
        if (r.error) {
                errno = -r.error;
                result = cg_fail_errno(err, "sandbox: system call filter");
        } else {
                result = export_program(r.ctx, ret, err);
        }
        seccomp_release(r.ctx);
        return result;
}
