/*
 * The system call filters, ready made: seccomp_rules.c says what they deny and is compiled to filters.h while cellgate is built.
 * Installed in the main process as the last step of enter.c.
 */
#include "sandbox/steps.h"

#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/filters.h"

#define FILTER(n) {CG_ARRAY_LEN(cg_filter_##n), (struct sock_filter *)cg_filter_##n}

void cg_seccomp_filter(unsigned int flags, struct sock_fprog *ret)
{
        static const struct sock_fprog filters[CG_FILTERS] = {FILTER(0), FILTER(1), FILTER(2), FILTER(3)};

        *ret = filters[flags % CG_FILTERS];
}

int cg_seccomp_install(const struct sock_fprog *prog, struct cg_err *err)
{
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, prog) < 0)
                return cg_fail_errno(err, "sandbox: installing the system call filter");
        return 0;
}
