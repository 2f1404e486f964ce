/*
 * The system call filters, ready made: seccomp_rules.c says what they deny and is compiled to
 * filters.h while cellgate is built. Installed in the main process as the last step of enter.c.
 */
#include "sandbox/steps.h"

#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "sandbox/filters.h"

#define WAIT_KILLABLE_RECV (1UL << 5) /* newer than the headers */
#define FILTER(n) \
        { \
                CG_ARRAY_LEN(cg_filter_##n), (struct sock_filter *)cg_filter_##n \
        }

void cg_seccomp_filter(unsigned int flags, struct sock_fprog *ret)
{
        static const struct sock_fprog filters[CG_FILTERS] = {
                FILTER(0),
                FILTER(1),
                FILTER(2),
                FILTER(3),
                FILTER(4),
                FILTER(5),
                FILTER(6),
                FILTER(7),
                FILTER(8),
                FILTER(9),
                FILTER(10),
                FILTER(11),
                FILTER(12),
                FILTER(13),
                FILTER(14),
                FILTER(15),
                [64] = FILTER(64),
                FILTER(65),
                FILTER(66),
                FILTER(67),
                FILTER(68),
                FILTER(69),
                FILTER(70),
                FILTER(71),
                FILTER(72),
                FILTER(73),
                FILTER(74),
                FILTER(75),
                FILTER(76),
                FILTER(77),
                FILTER(78),
                FILTER(79),
                [CG_FILTER_LANDLOCK] = FILTER(16),
                [CG_FILTER_LANDLOCK | CG_FILTER_TCP] = FILTER(48),
        };

        *ret = filters[flags % CG_FILTERS];
}

int cg_seccomp_keep_affinity(struct cg_err *err)
{
        /* The main filter kills calls of other architectures. */
        static struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog prog = { .len = CG_ARRAY_LEN(code), .filter = code };

        return cg_seccomp_install(&prog, err);
}

/* For use without a listener: denied calls fail at once, with EPERM instead of ENOSYS. */
int cg_seccomp_install(const struct sock_fprog *prog, struct cg_err *err)
{
        static const struct sock_filter ask = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
                                        refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
        cg_auto_free struct sock_filter *code = malloc(prog->len * sizeof(*code));
        struct sock_fprog silent = { prog->len, code };

        if (!code)
                return cg_fail(err, CG_E_NOMEM, "sandbox: system call filter");
        for (size_t i = 0; i < prog->len; i++)
                code[i] = memcmp(&prog->filter[i], &ask, sizeof(ask)) != 0 ? prog->filter[i] : refuse;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &silent) < 0)
                return cg_fail_errno(err, "sandbox: installing the system call filter");
        return 0;
}

int cg_seccomp_install_listener(const struct sock_fprog *prog, const struct sock_fprog *silent, int *ret,
                                struct cg_err *err)
{
        /*
         * Signals do not interrupt a call that init has received, which would repeat it (a repeated
         * connect() fails). Linux 5.19.
         */
        long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                          SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV, prog);

        if (fd < 0 && errno == EINVAL)
                fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, prog);
        /* EBUSY: a sandbox around this one has a listener. EINVAL: before Linux 5.0. */
        if (fd < 0 && errno != EBUSY && errno != EINVAL)
                return cg_fail_errno(err, "sandbox: installing the system call filter");
        *ret = (int)fd;
        return fd < 0 ? cg_seccomp_install(silent, err) : 0;
}

int cg_seccomp_install_brokered(const struct sock_fprog *prog, int *listener, struct cg_err *err)
{
        /* Linux 5.19: only fatal signals interrupt a call that waits for the broker. */
        int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                              SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV, prog);

        if (fd < 0)
                return cg_fail_errno(err, "sandbox: the landlock tier's system call filter%s",
                                     errno == EBUSY ? " (a sandbox around this one has a broker already)"
                                                    : "");
        *listener = fd;
        return 0;
}
