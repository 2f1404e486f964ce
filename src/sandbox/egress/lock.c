/*
 * How the processes that lock.h names give up what they do not need. Each order is the point:
 * rights that later steps take come last, the system call filter, which denies those steps, at the
 * very end. Names are looked up by the decider after all this: with glibc's own getaddrinfo(), so
 * that a name leads where it leads for every program of this machine (hosts file, nsswitch.conf,
 * resolvers). That takes reading what is in /etc and loading libraries, and nothing that writes.
 */
#include "sandbox/egress/lock.h"

#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "sandbox/steps.h"

/*
 * A sanitizer's runtime makes system calls of its own at any time, and writes its reports to files:
 * then there is neither filter nor Landlock, and the layers say so.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FILTERED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FILTERED 0
#endif
#endif
#ifndef FILTERED
#define FILTERED 1
#endif

#define LOW32        0xffffffffu
#define WANTED_FILES 65536

static int drop_rights(struct cg_err *err)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = { { 0 } };
        struct rlimit l;

        /* A connection is two descriptors, with pipes six. */
        if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
                l.rlim_cur = CG_MIN(l.rlim_max, WANTED_FILES);
                setrlimit(RLIMIT_NOFILE, &l);
        }
        l = (struct rlimit){ 0, 0 };
        if (setrlimit(RLIMIT_CORE, &l) < 0)
                return cg_fail_errno(err, "RLIMIT_CORE");
        /* Processes of the same user must not read this memory, which holds the traffic. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return cg_fail_errno(err, "not dumpable");
        /* An ordinary user has none; root in a container may lack one that the full way takes. */
        if (syscall(SYS_capget, &header, caps) < 0)
                return cg_fail_errno(err, "reading capabilities");
        if (caps[0].effective & (1u << CAP_SETPCAP)) {
                if (cg_caps_drop(false, 0, err) < 0)
                        return -1;
        } else {
                memset(caps, 0, sizeof(caps));
                if (syscall(SYS_capset, &header, caps) < 0)
                        return cg_fail_errno(err, "capabilities");
        }
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "no_new_privs");
        return 0;
}

/* ---- Landlock */

/* Longer than in older headers; older kernels accept it when the rest is zero. */
struct ruleset_attr {
        uint64_t handled_access_fs;
        uint64_t handled_access_net;
        uint64_t scoped;
};
#define NET_BIND    (1ULL << 0)
#define NET_CONNECT (1ULL << 1)
#define SCOPE_ALL   3ULL
#define FS_ABI1     ((1ULL << 13) - 1)
#define FS_READ     (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_EXECUTE)

/* 0; CG_TIMEOUT where the kernel has no Landlock: the filter alone has to do. */
static int restrict_self(const char *const *readable, uint64_t net, struct cg_err *err)
{
        struct ruleset_attr attr = { .handled_access_fs = FS_ABI1 };
        cg_auto_fd int ruleset = -1;
        int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        if (abi < 1 || !FILTERED)
                return CG_TIMEOUT;
        if (abi >= 2)
                attr.handled_access_fs |= 1ULL << 13; /* refer */
        if (abi >= 3)
                attr.handled_access_fs |= 1ULL << 14; /* truncate */
        if (abi >= 5)
                attr.handled_access_fs |= 1ULL << 15; /* ioctl on devices */
        attr.handled_access_net = abi >= 4 ? net : 0;
        attr.scoped = abi >= 6 ? SCOPE_ALL : 0;
        ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
        if (ruleset < 0)
                return cg_fail_errno(err, "Landlock ruleset");
        /* A missing path needs no rule; a path that cannot have one stays closed. */
        for (; *readable; readable++) {
                cg_auto_fd int fd = open(*readable, O_PATH | O_CLOEXEC);
                struct landlock_path_beneath_attr rule = { .allowed_access = FS_READ, .parent_fd = fd };
                struct stat st;

                if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
                        rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
                if (fd >= 0)
                        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
        }
        if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                return cg_fail_errno(err, "Landlock");
        return 0;
}

/* ---- system calls */

static const int both[] = {
        SCMP_SYS(read),         SCMP_SYS(write),        SCMP_SYS(readv),         SCMP_SYS(writev),
        SCMP_SYS(recvfrom),     SCMP_SYS(recvmsg),      SCMP_SYS(recv),          SCMP_SYS(close),
        SCMP_SYS(shutdown),     SCMP_SYS(setsockopt),   SCMP_SYS(getsockopt),    SCMP_SYS(epoll_ctl),
        SCMP_SYS(epoll_wait),   SCMP_SYS(epoll_pwait),  SCMP_SYS(epoll_pwait2),  SCMP_SYS(poll),
        SCMP_SYS(ppoll),        SCMP_SYS(ppoll_time64), SCMP_SYS(clock_gettime), SCMP_SYS(clock_gettime64),
        SCMP_SYS(gettimeofday), SCMP_SYS(munmap),       SCMP_SYS(mremap),        SCMP_SYS(brk),
        SCMP_SYS(madvise),      SCMP_SYS(futex),        SCMP_SYS(futex_time64),  SCMP_SYS(exit_group),
        SCMP_SYS(exit),         SCMP_SYS(rt_sigreturn), SCMP_SYS(sigreturn),     SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigaction), SCMP_SYS(getpid),       SCMP_SYS(gettid),        SCMP_SYS(restart_syscall),
        SCMP_SYS(getrandom),    SCMP_SYS(sched_yield),
};

static const int relay_only[] = {
        SCMP_SYS(accept),
        SCMP_SYS(accept4),
        SCMP_SYS(splice),
        SCMP_SYS(pipe2),
};

/* Secrets stay in memory, where the user may lock as much. */
static const int injector_only[] = {
        SCMP_SYS(splice),
        SCMP_SYS(pipe2),
        SCMP_SYS(mlock),
};

/* Places of files (O_PATH), which Landlock leaves alone; sockets. */
static const int doors_only[] = {
        SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(splice),      SCMP_SYS(pipe2),       SCMP_SYS(connect),
        SCMP_SYS(bind),   SCMP_SYS(listen),  SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(openat2),
        SCMP_SYS(fstat),  SCMP_SYS(fstat64), SCMP_SYS(newfstatat),  SCMP_SYS(fstatat64),
};

/* Looking names up, in threads; connecting. */
static const int decider_only[] = {
        /* sockets */
        SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(sendmmsg),
        SCMP_SYS(recvmmsg),
        /* files, which libc reads to look names up */
        SCMP_SYS(fstat), SCMP_SYS(fstat64), SCMP_SYS(newfstatat), SCMP_SYS(fstatat64), SCMP_SYS(stat),
        SCMP_SYS(stat64), SCMP_SYS(lstat), SCMP_SYS(lstat64), SCMP_SYS(statx), SCMP_SYS(statfs),
        SCMP_SYS(fstatfs), SCMP_SYS(lseek), SCMP_SYS(_llseek), SCMP_SYS(pread64), SCMP_SYS(access),
        SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd),
        SCMP_SYS(getdents64),
        /* threads and memory */
        SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
        SCMP_SYS(getegid), SCMP_SYS(getppid), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
        SCMP_SYS(sigaltstack), SCMP_SYS(sched_getaffinity), SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep),
        SCMP_SYS(clock_nanosleep_time64), SCMP_SYS(eventfd2), SCMP_SYS(time), SCMP_SYS(mmap), SCMP_SYS(mmap2),
        SCMP_SYS(mprotect)
};

/* Collects the first failure, so that the lists below stay lists. */
struct rules {
        scmp_filter_ctx ctx;
        int error;
};

static void allow_if(struct rules *r, int nr, unsigned int n, const struct scmp_arg_cmp *args)
{
        int status = r->error ? 0 : seccomp_rule_add_array(r->ctx, SCMP_ACT_ALLOW, nr, n, args);

        /* A number below zero: a call that this architecture does not have. */
        if (status < 0 && status != -EDOM && nr >= 0)
                r->error = status;
}

static void allow_list(struct rules *r, const int *list, size_t n)
{
        for (size_t i = 0; i < n; i++)
                allow_if(r, list[i], 0, NULL);
}

/* Only the bits of @mask that are in @value. */
static void allow_masked(struct rules *r, int nr, unsigned int arg, uint64_t mask, uint64_t value)
{
        struct scmp_arg_cmp a = SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, value);

        allow_if(r, nr, 1, &a);
}

static void add_decider(struct rules *r)
{
        static const unsigned int families[] = { AF_INET, AF_INET6, AF_NETLINK, AF_UNIX };
        static const uint64_t writing = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
        static const struct scmp_arg_cmp asked[] = { { .arg = 0, .op = SCMP_CMP_EQ },
                                                     { .arg = 2, .op = SCMP_CMP_EQ } };
        static const unsigned int thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;

        for (size_t i = 0; i < CG_ARRAY_LEN(families); i++) {
                allow_masked(r, SCMP_SYS(socket), 0, LOW32, families[i]);
                allow_masked(r, SCMP_SYS(socketpair), 0, LOW32, families[i]);
        }
        allow_masked(r, SCMP_SYS(openat), 2, writing, O_RDONLY);
        allow_masked(r, SCMP_SYS(open), 1, writing, O_RDONLY);
        /* Reading the stack limit, for threads; not setting it. */
        allow_if(r, SCMP_SYS(getrlimit), 0, NULL);
        allow_if(r, SCMP_SYS(ugetrlimit), 0, NULL);
        allow_if(r, SCMP_SYS(prlimit64), 2, asked);
        /* The length of a name server's answer. */
        allow_masked(r, SCMP_SYS(ioctl), 1, LOW32, FIONREAD);
        /* Threads, no processes. clone3() hides its flags: libc goes on with clone() on ENOSYS. */
        allow_masked(r, SCMP_SYS(clone), 0, thread, thread);
        if (!r->error)
                r->error = seccomp_rule_add(r->ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* The calls of one process beyond those in both[]. */
struct calls {
        const int *list;
        size_t n;
        bool sockets; /* of TCP and UDP */
        bool decider;
};

static int filter(const struct calls *calls, struct cg_err *err)
{
        static const unsigned int families[] = { AF_INET, AF_INET6 };
        /* Not F_SETOWN and F_SETSIG, by which the operating system sends signals to any process. */
        static const unsigned int files[] = { F_DUPFD, F_GETFD,         F_SETFD,      F_GETFL,
                                              F_SETFL, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ };
        static const int memory[] = { SCMP_SYS(mmap), SCMP_SYS(mmap2), SCMP_SYS(mprotect) };
        /* EPERM and not death: what a new libc calls in passing may fail, and breaks nothing. */
        struct rules r = { .ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM)) };

        if (!r.ctx)
                return cg_fail(err, CG_E_UNSUPPORTED, "libseccomp does not know this architecture");
        r.error = seccomp_attr_set(r.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        if (!r.error)
                r.error = seccomp_attr_set(r.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
        allow_list(&r, both, CG_ARRAY_LEN(both));
        allow_masked(&r, SCMP_SYS(ioctl), 1, LOW32, FIONBIO);
        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++) {
                allow_masked(&r, SCMP_SYS(fcntl), 1, LOW32, files[i]);
                allow_masked(&r, SCMP_SYS(fcntl64), 1, LOW32, files[i]);
        }
        /* TCP Fast Open connects a listener that was shut down, past connect() and Landlock. */
        allow_masked(&r, SCMP_SYS(sendto), 3, MSG_FASTOPEN, 0);
        allow_masked(&r, SCMP_SYS(sendmsg), 2, MSG_FASTOPEN, 0);
        allow_masked(&r, SCMP_SYS(send), 3, MSG_FASTOPEN, 0);
        /* abort() */
        allow_masked(&r, SCMP_SYS(tgkill), 0, LOW32, (unsigned int)getpid());
        allow_list(&r, calls->list, calls->n);
        if (calls->decider)
                add_decider(&r);
        for (size_t i = 0; calls->sockets && i < CG_ARRAY_LEN(families); i++)
                allow_masked(&r, SCMP_SYS(socket), 0, LOW32, families[i]);
        /* Memory, never of a file that was executable, never code. The decider loads libraries. */
        for (size_t i = 0; !calls->decider && i < CG_ARRAY_LEN(memory); i++)
                allow_masked(&r, memory[i], 2, PROT_EXEC, 0);
        if (!r.error)
                r.error = seccomp_load(r.ctx);
        seccomp_release(r.ctx);
        if (r.error) {
                errno = -r.error;
                return cg_fail_errno(err, "system call filter");
        }
        return 0;
}

/*
 * libuv from 1.45 on batches its calls in an io_uring where it gets one, no variable turns that
 * off, and it aborts when the filter refuses it later. A loop that was made without goes on
 * without.
 */
int cg_egress_lock_io_uring(struct cg_err *err)
{
        scmp_filter_ctx ctx = FILTERED ? seccomp_init(SCMP_ACT_ALLOW) : NULL;
        int r;

        if (!FILTERED)
                return 0;
        if (!ctx)
                return cg_fail(err, CG_E_UNSUPPORTED, "libseccomp does not know this architecture");
        r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup), 0);
        if (!r) /* no_new_privs comes with it */
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        errno = -r;
        if (r)
                return cg_fail_errno(err, "system call filter");
        return 0;
}

/* ---- in order */

int cg_egress_lock_part(enum cg_egress_part part, struct cg_err *err)
{
        static const char *const nothing[] = { NULL };
        static const struct calls parts[] = {
                [CG_EGRESS_RELAY] = { .list = relay_only, .n = CG_ARRAY_LEN(relay_only) },
                [CG_EGRESS_INJECTOR] = { .list = injector_only, .n = CG_ARRAY_LEN(injector_only) },
                [CG_EGRESS_DOORS] = { .list = doors_only, .n = CG_ARRAY_LEN(doors_only), .sockets = true },
        };
        uint64_t net = part == CG_EGRESS_DOORS ? 0 : NET_BIND | NET_CONNECT;

        if (drop_rights(err) < 0 || restrict_self(nothing, net, err) < 0)
                return -1;
        return FILTERED ? filter(&parts[part], err) : 0;
}

int cg_egress_lock_decider(const char *file, char *layers, size_t size, struct cg_err *err)
{
        const char *const readable[] = {
                "/etc",         "/usr",       "/lib",       "/lib64", "/run", "/var/run",
                "/var/lib/sss", "/nix/store", "/gnu/store", file,     NULL,
        };
        static const struct calls calls = { .list = decider_only,
                                            .n = CG_ARRAY_LEN(decider_only),
                                            .decider = true };
        int r;

        if (drop_rights(err) < 0)
                return -1;
        r = restrict_self(readable, NET_BIND, err);
        if (r < 0)
                return r;
        if (FILTERED && filter(&calls, err) < 0)
                return -1;
        snprintf(layers, size, "capabilities no_new_privs%s%s", r == 0 ? " landlock" : "",
                 FILTERED ? " seccomp" : "");
        return 0;
}
