/*
 * The system call filter: everything is allowed but what stands here. A deny list, because a kernel
 * runs whatever people import and an allow list would break with every new libc; what it must not
 * reach is kept from it by namespaces, missing capabilities and Landlock first, and this takes away
 * the ways around those and the rarely used, often broken rest.
 *
 * Compiled by libseccomp while cellgate is built (seccomp_gen.c). All denials are EPERM, but ENOSYS
 * where a program then falls back to something that can be checked. Most are told (notify.c says
 * EPERM then); not those that programs try without need and go on.
 */
#include "sandbox/steps.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
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

/* The s390 puts clone()'s flags second. */
#if defined(__s390__)
#define CLONE_FLAGS_ARG 1
#else
#define CLONE_FLAGS_ARG 0
#endif

/* Numbers that libseccomp 2.5 has no name for; from 424 on they are the same everywhere. */
#define NR_OPEN_TREE_ATTR 467
#define NR_FIRST_UNKNOWN  470 /* listns and what comes after it */
#define NR_LAST_UNKNOWN   511

/*
 * Mounts, roots and other namespaces: the file system view is made once, by init. clone and unshare
 * are looked at below.
 */
static const int denied_views[] = {
        SCMP_SYS(mount),    SCMP_SYS(umount),    SCMP_SYS(umount2),    SCMP_SYS(pivot_root),
        SCMP_SYS(chroot),   SCMP_SYS(open_tree), SCMP_SYS(move_mount), SCMP_SYS(fsopen),
        SCMP_SYS(fsconfig), SCMP_SYS(fsmount),   SCMP_SYS(fspick),     SCMP_SYS(mount_setattr),
        NR_OPEN_TREE_ATTR,  SCMP_SYS(setns),
};

/*
 * Not told: node and others try it first and then do without. It opens sockets and files without
 * any call this filter could see.
 */
static const int denied_silently[] = { SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
                                       SCMP_SYS(io_uring_register) };

static const int denied[] = {
        /* Another process's memory, registers and descriptors. */
        SCMP_SYS(ptrace),
        SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev),
        SCMP_SYS(pidfd_getfd),
        SCMP_SYS(kcmp),
        SCMP_SYS(process_madvise),
        /* Keyrings belong to the user, not to the namespace. */
        SCMP_SYS(keyctl),
        SCMP_SYS(add_key),
        SCMP_SYS(request_key),
        /* Files by handle: past every path-based check. */
        SCMP_SYS(open_by_handle_at),
        SCMP_SYS(name_to_handle_at),
        /* Large, privileged or hardly used parts of the kernel with a record of holes. */
        SCMP_SYS(bpf),
        SCMP_SYS(perf_event_open),
        SCMP_SYS(userfaultfd),
        SCMP_SYS(fanotify_init),
        SCMP_SYS(fanotify_mark),
        SCMP_SYS(lookup_dcookie),
        SCMP_SYS(uselib),
        SCMP_SYS(modify_ldt),
        SCMP_SYS(vm86),
        SCMP_SYS(vm86old),
        SCMP_SYS(_sysctl),
        SCMP_SYS(sysfs),
        SCMP_SYS(ustat),
        SCMP_SYS(nfsservctl),
        SCMP_SYS(remap_file_pages),
        /* The machine itself. Capabilities guard these as well. */
        SCMP_SYS(kexec_load),
        SCMP_SYS(kexec_file_load),
        SCMP_SYS(init_module),
        SCMP_SYS(finit_module),
        SCMP_SYS(delete_module),
        SCMP_SYS(create_module),
        SCMP_SYS(query_module),
        SCMP_SYS(get_kernel_syms),
        SCMP_SYS(reboot),
        SCMP_SYS(swapon),
        SCMP_SYS(swapoff),
        SCMP_SYS(acct),
        SCMP_SYS(quotactl),
        SCMP_SYS(quotactl_fd),
        SCMP_SYS(syslog),
        SCMP_SYS(vhangup),
        SCMP_SYS(iopl),
        SCMP_SYS(ioperm),
        SCMP_SYS(settimeofday),
        SCMP_SYS(stime),
        SCMP_SYS(clock_settime),
        SCMP_SYS(clock_adjtime),
        SCMP_SYS(adjtimex),
        SCMP_SYS(sethostname),
        SCMP_SYS(setdomainname),
};

/*
 * Protocols of AF_INET whose kernel module a mere socket() call would load: DCCP, L2TP, SCTP, SMC,
 * MPTCP. Programs that try MPTCP (Go's listeners) go on with TCP.
 */
static const unsigned int denied_protocols[] = { 33, 115, 132, 256, 262 };

/*
 * Flags of clone() and unshare() that make a namespace. CLONE_NEWTIME is part of clone()'s signal
 * number: unshare only.
 */
static const unsigned int namespace_flags[] = {
        CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET,
};

/*
 * Terminals: TIOCSTI types into a terminal that somebody outside reads, TIOCLINUX pastes into a
 * console, TIOCSETD loads line disciplines, TIOCEXCL has nobody open the caller's terminal any
 * more, long after the sandbox's end: who asks for a password or an approval does.
 */
static const unsigned int denied_ioctls[] = { TIOCSTI, TIOCLINUX, TIOCSETD, TIOCEXCL };

/*
 * Folders made, copied and removed with what is in them, by a descriptor that is only read:
 * Landlock is not asked about them. BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY,
 * SNAP_CREATE_V2, SUBVOL_CREATE_V2, SNAP_DESTROY_V2; OCFS2_IOC_REFLINK.
 */
static const unsigned int denied_copies[] = { 0x50009401, 0x5000940e, 0x5000940f, 0x50009417,
                                              0x50009418, 0x5000943f, 0x40186f04 };

#define SOCKET_TYPE_MASK 0xf /* the rest are flags */

/*
 * The landlock tier has no ipc namespace, no pid namespace and no mounts: what these keep from the
 * host's programs of the same user is denied by its call.
 */
static const int denied_without_namespaces[] = {
        SCMP_SYS(shmget),     SCMP_SYS(shmat),   SCMP_SYS(shmctl),    SCMP_SYS(semget), SCMP_SYS(semop),
        SCMP_SYS(semtimedop), SCMP_SYS(semctl),  SCMP_SYS(msgget),    SCMP_SYS(msgsnd), SCMP_SYS(msgrcv),
        SCMP_SYS(msgctl),     SCMP_SYS(mq_open), SCMP_SYS(mq_unlink),
};

/*
 * Extended attributes of files, and other flags, which Landlock does not know and no program needs
 * to go on.
 */
#define NR_SETXATTRAT    463
#define NR_REMOVEXATTRAT 466
#define NR_FILE_SETATTR  469
static const int denied_attributes[] = {
        SCMP_SYS(setxattr),    SCMP_SYS(lsetxattr),    SCMP_SYS(fsetxattr),
        SCMP_SYS(removexattr), SCMP_SYS(lremovexattr), SCMP_SYS(fremovexattr),
        NR_SETXATTRAT,         NR_REMOVEXATTRAT,       NR_FILE_SETATTR,
};

/* Those that programs do need: the broker does them where files may be written. */
static const int brokered[] = {
        SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat),  452 /* fchmodat2 */,
        SCMP_SYS(chown), SCMP_SYS(fchown), SCMP_SYS(lchown),    SCMP_SYS(fchownat),
        SCMP_SYS(utime), SCMP_SYS(utimes), SCMP_SYS(futimesat), SCMP_SYS(utimensat),
};

/* Done by init in write roots: see mediate.h. */
static const int mediated[] = {
        SCMP_SYS(creat),    SCMP_SYS(mkdir),     SCMP_SYS(mkdirat), SCMP_SYS(mknod),     SCMP_SYS(mknodat),
        SCMP_SYS(link),     SCMP_SYS(linkat),    SCMP_SYS(symlink), SCMP_SYS(symlinkat), SCMP_SYS(rename),
        SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(unlink),  SCMP_SYS(unlinkat),  SCMP_SYS(rmdir),
        SCMP_SYS(truncate), SCMP_SYS(umask),
};

/* First argument: a process. 0 is the caller itself. */
static const int of_a_process[] = {
        SCMP_SYS(prlimit64),      SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setscheduler),
        SCMP_SYS(sched_setparam), SCMP_SYS(sched_setattr),     SCMP_SYS(migrate_pages),
        SCMP_SYS(move_pages),
};

/*
 * FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION: attributes again, by a
 * file that is only read.
 */
static const unsigned int denied_file_ioctls[] = { 0x40086602, 0x40046602, 0x401c5820, 0x40087602 };

#define IOPRIO_WHO_USER 3
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

/* Collects the first failure, so that the lists below stay lists. */
struct rules {
        scmp_filter_ctx ctx;
        int error; /* 0 or a negative errno */
};

/* Instead of an errno: EPERM, and told. */
#define TOLD 0

static void deny_if(struct rules *r, int syscall_nr, int error, unsigned int n,
                    const struct scmp_arg_cmp *args)
{
        int e;

        if (r->error)
                return;
        e = seccomp_rule_add_array(r->ctx, error == TOLD ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO((uint32_t)error),
                                   syscall_nr, n, args);
        /* EDOM: a call that this architecture does not have */
        if (e < 0 && e != -EDOM)
                r->error = e;
}

static void deny(struct rules *r, int syscall_nr, int error)
{
        deny_if(r, syscall_nr, error, 0, NULL);
}

static void deny_if1(struct rules *r, int syscall_nr, struct scmp_arg_cmp a)
{
        deny_if(r, syscall_nr, TOLD, 1, &a);
}

static void deny_if2(struct rules *r, int syscall_nr, struct scmp_arg_cmp a, struct scmp_arg_cmp b)
{
        deny_if(r, syscall_nr, TOLD, 2, (const struct scmp_arg_cmp[]){ a, b });
}

/*
 * Families: INET, INET6 (the empty network namespace holds them) and NETLINK_ROUTE (getifaddrs).
 * AF_UNIX would reach the sockets of host programs through the file system, AF_VSOCK knows no
 * namespaces, AF_ALG and the others are attack surface.
 */
static void add_sockets(struct rules *r, unsigned int flags)
{
        bool streams = flags & CG_FILTER_ASKED_UNIX && !(flags & CG_FILTER_UNIX_SOCKETS);

        for (unsigned int family = 0; family < AF_MAX; family++) {
                bool inet = family == AF_INET || family == AF_INET6;

                /* Without a network namespace a socket lies in the host's network. */
                if ((flags & CG_FILTER_LANDLOCK ? inet && (flags & CG_FILTER_TCP)
                                                : inet || family == AF_NETLINK) ||
                    (family == AF_UNIX && streams))
                        continue;
                if (!(flags & CG_FILTER_UNIX_SOCKETS) || (family != AF_UNIX && family != AF_VSOCK))
                        deny_if1(r, SCMP_SYS(socket), ARG_IS(0, family));
        }
        /*
         * Streams go nowhere but by connect(), which init is asked about. A datagram socket would
         * by any sendmsg(), whose address a filter cannot see.
         */
        for (unsigned int type = 0; type <= SOCKET_TYPE_MASK && streams; type++) {
                if (type != SOCK_STREAM && type != SOCK_SEQPACKET)
                        deny_if2(r, SCMP_SYS(socket), ARG_IS(0, AF_UNIX),
                                 SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, type));
        }
        if (streams)
                deny(r, SCMP_SYS(connect), TOLD);
        if (flags & CG_FILTER_ASKED_LISTEN)
                deny(r, SCMP_SYS(listen), TOLD);
        /* Families newer than the headers, and every number with anything in its upper half. */
        deny_if1(r, SCMP_SYS(socket), ARG_FROM(0, AF_MAX));
        if (!(flags & CG_FILTER_LANDLOCK))
                deny_if2(r, SCMP_SYS(socket), ARG_IS(0, AF_NETLINK), ARG_NOT(2, 0 /* NETLINK_ROUTE */));
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_protocols); i++)
                deny_if(r, SCMP_SYS(socket), EPERM, 1,
                        (const struct scmp_arg_cmp[]){ ARG_IS(2, denied_protocols[i]) });
}

/*
 * Pairs of streams are what asyncio and multiprocessing are made of, and a connected stream cannot
 * be connected again. A datagram pair can be: connect() or sendto() on it reaches any host socket
 * with a path, as socket(AF_UNIX) would. SOCK_RAW is the same thing by another name.
 */
static void add_socketpairs(struct rules *r)
{
        for (unsigned int type = 0; type <= SOCKET_TYPE_MASK; type++) {
                if (type != SOCK_STREAM && type != SOCK_SEQPACKET)
                        deny_if1(r, SCMP_SYS(socketpair),
                                 SCMP_CMP(1, SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, type));
        }
        for (unsigned int family = 0; family < AF_MAX; family++) {
                if (family != AF_UNIX)
                        deny_if1(r, SCMP_SYS(socketpair), ARG_IS(0, family));
        }
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
 * Inside a namespace of its own a process has every capability, and with them most of the kernel's
 * holes.
 */
static void add_namespaces(struct rules *r)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(namespace_flags); i++) {
                deny_if1(r, SCMP_SYS(clone), ARG_HAS(CLONE_FLAGS_ARG, namespace_flags[i]));
                deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, namespace_flags[i]));
        }
        deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, CLONE_NEWTIME));
        deny_if1(r, SCMP_SYS(unshare), ARG_HAS(0, UNSHARE_EMPTY_MNTNS));
        /* Its flags lie in memory, out of a filter's sight. libc goes on with clone() on ENOSYS. */
        deny(r, SCMP_SYS(clone3), ENOSYS);
}

/*
 * TCP that only the broker connects. A socket lies in the host's network: it must not listen, be
 * bound, name interfaces, or send its first bytes with the address that they go to (TCP Fast Open
 * connects without connect()).
 */
static void add_tcp(struct rules *r)
{
        static const struct {
                int nr;
                unsigned int flags_arg;
        } sends[] = { { SCMP_SYS(sendto), 3 }, { SCMP_SYS(sendmsg), 2 }, { SCMP_SYS(sendmmsg), 3 } };
        static const unsigned int type_mask = 0xf;

        for (unsigned int type = 0; type <= type_mask; type++) {
                if (type != SOCK_STREAM)
                        deny_if1(r, SCMP_SYS(socket), SCMP_CMP(1, SCMP_CMP_MASKED_EQ, type_mask, type));
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(sends); i++)
                deny_if1(r, sends[i].nr, ARG_HAS(sends[i].flags_arg, MSG_FASTOPEN));
        deny_if1(r, SCMP_SYS(ioctl), SCMP_CMP(1, SCMP_CMP_MASKED_EQ, 0xffffff00, 0x8900));
        deny(r, SCMP_SYS(bind), TOLD);
        deny(r, SCMP_SYS(listen), TOLD);
        deny(r, SCMP_SYS(connect), TOLD);
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
        /* All processes of a user, init among them, whatever the second argument is. */
        deny_if1(r, SCMP_SYS(setpriority), ARG_IS(0, PRIO_USER));
        deny_if1(r, SCMP_SYS(ioprio_set), ARG_IS(0, IOPRIO_WHO_USER));
        /* Its operations take a process as well, and nothing but virtual machines uses them. */
        deny_if1(r, SCMP_SYS(prctl), ARG_IS(0, PR_SCHED_CORE));
}

/* The landlock tier's. */
static void add_landlock(struct rules *r, unsigned int flags)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_without_namespaces); i++)
                deny(r, denied_without_namespaces[i], TOLD);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_attributes); i++)
                deny(r, denied_attributes[i], EOPNOTSUPP);
        for (size_t i = 0; i < CG_ARRAY_LEN(brokered); i++)
                deny(r, brokered[i], TOLD);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_file_ioctls); i++)
                deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_file_ioctls[i]));
        if (flags & CG_FILTER_TCP)
                add_tcp(r);
}

/* Opening for reading is not looked at. */
static void add_mediated(struct rules *r)
{
        static const unsigned int writes[] = { O_WRONLY, O_RDWR, O_CREAT, O_TRUNC };

        for (size_t i = 0; i < CG_ARRAY_LEN(mediated); i++)
                deny(r, mediated[i], TOLD);
        for (size_t i = 0; i < CG_ARRAY_LEN(brokered); i++)
                deny(r, brokered[i], TOLD);
        for (size_t i = 0; i < CG_ARRAY_LEN(writes); i++) {
                deny_if1(r, SCMP_SYS(open), ARG_HAS(1, writes[i]));
                deny_if1(r, SCMP_SYS(openat), ARG_HAS(2, writes[i]));
        }
}

static void add_rules(struct rules *r, unsigned int flags)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(denied); i++)
                deny(r, denied[i], TOLD);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_silently); i++)
                deny(r, denied_silently[i], EPERM);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_views) && !(flags & CG_FILTER_NESTED_USERS); i++)
                deny(r, denied_views[i], TOLD);
        /*
         * Root keeps CAP_SETFCAP then, and root of a namespace may be root outside, too:
         * capabilities that it gives to a file in the workspace would be any other user's. And an
         * access list, which is an attribute, is a file's mode: mediate.h.
         */
        for (size_t i = 0;
             i < CG_ARRAY_LEN(denied_attributes) && flags & (CG_FILTER_NESTED_USERS | CG_FILTER_NAMES); i++)
                deny(r, denied_attributes[i], EOPNOTSUPP);
        /* What the author of this list could not know: newer calls do not exist. */
        for (int nr = NR_FIRST_UNKNOWN; nr <= NR_LAST_UNKNOWN; nr++)
                deny(r, nr, ENOSYS);
        add_setid(r);
        if (flags & CG_FILTER_NAMES)
                add_mediated(r);
        add_sockets(r, flags);
        if (!(flags & CG_FILTER_UNIX_SOCKETS))
                add_socketpairs(r);
        if (!(flags & CG_FILTER_NESTED_USERS))
                add_namespaces(r);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_ioctls); i++)
                deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_ioctls[i]));
        for (size_t i = 0; i < CG_ARRAY_LEN(denied_copies); i++)
                deny_if1(r, SCMP_SYS(ioctl), ARG_IS(1, denied_copies[i]));
        /*
         * A lease on a file that is only read has every program outside that opens the file wait,
         * 45 s each time.
         */
        deny_if1(r, SCMP_SYS(fcntl), ARG_IS(1, F_SETLEASE));
        /* Only the question what it is: some personalities undo memory protections. */
        deny_if1(r, SCMP_SYS(personality), ARG_NOT(0, LOW32));
        add_other_processes(r, flags);
        if (flags & CG_FILTER_LANDLOCK)
                add_landlock(r, flags);
}

/* libseccomp writes programs to descriptors only (before 2.6): through memory and back. */
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

        /*
         * The machine that builds need not be able to do all that the filter asks of the one that
         * runs it.
         */
        seccomp_api_set(5);
        if (!r.ctx)
                return cg_fail(err, CG_E_UNSUPPORTED, "sandbox: libseccomp does not know this architecture");
        /*
         * 32-bit and x32 calls have other numbers: what uses them ends. The default would end one
         * thread only.
         */
        r.error = seccomp_attr_set(r.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        /*
         * A tree, not a list: the kernel runs the filter once for each call's number when it is
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
