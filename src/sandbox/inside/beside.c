/* See beside.h. */
#include "sandbox/inside/beside.h"

#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/proc.h"
#include "base/util.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"

/* @target: the argument that names the process; its value 0 is the caller. */
static const struct {
        int nr, target;
} calls[] = {
        { SYS_prlimit64, 0 },      { SYS_sched_setaffinity, 0 }, { SYS_sched_setscheduler, 0 },
        { SYS_sched_setparam, 0 }, { SYS_sched_setattr, 0 },     { SYS_setpriority, 1 },
        { SYS_ioprio_set, 1 },
};

_Static_assert(CG_BESIDE_STEPS == 5 * CG_ARRAY_LEN(calls), "instructions for each call");

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LOW_HALF 4
#else
#define LOW_HALF 0
#endif

void cg_beside_filter(struct sock_filter code[CG_BESIDE_STEPS])
{
        const unsigned int nr = offsetof(struct seccomp_data, nr), args = offsetof(struct seccomp_data, args);

        for (size_t i = 0; i < CG_ARRAY_LEN(calls); i++) {
                const struct sock_filter steps[] = {
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)calls[i].nr, 0, 4),
                        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                 args + 8 * (unsigned int)calls[i].target + LOW_HALF),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
                        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, nr),
                };

                memcpy(code + i * CG_ARRAY_LEN(steps), steps, sizeof(steps));
        }
}

/*
 * EPERM: @pid, a process or thread, is a command server or a descendant of one; or an ancestor
 * ended meanwhile, so that this is not known. ESRCH: there is none; by the time of the call its
 * number could be that of a command's process. 0: another process.
 */
static int refusal(const struct cg_notify *n, pid_t pid)
{
        struct cg_proc_stat stat;

        for (pid_t ancestor = pid; ancestor > 1; ancestor = stat.parent) {
                for (size_t i = 0; i < CG_BESIDE_SERVERS; i++)
                        if (n->servers[i] == ancestor)
                                return EPERM;
                if (!cg_proc_read_stat(ancestor, &stat))
                        return ancestor == pid ? ESRCH : EPERM;
        }
        return 0;
}

/* The same for all processes of a group; EPERM as well if /proc cannot be read. */
static int refusal_of_group(const struct cg_notify *n, pid_t group)
{
        cg_auto_dir DIR *dir = opendir("/proc");
        const struct dirent *d;
        int error = dir ? ESRCH : EPERM;

        while (error != EPERM && (d = readdir(dir))) {
                struct cg_proc_stat stat;
                pid_t pid = cg_proc_of_entry(d->d_name);

                if (pid && cg_proc_read_stat(pid, &stat) && stat.group == group)
                        error = refusal(n, pid) == EPERM ? EPERM : 0;
        }
        return error;
}

/* True if the first argument of setpriority is @prio, or that of ioprio_set @ioprio. */
static bool which_is(const struct seccomp_notif *call, int prio, int ioprio)
{
        int nr = call->data.nr, which = (int)call->data.args[0];

        return (nr == SYS_setpriority && which == prio) || (nr == SYS_ioprio_set && which == ioprio);
}

bool cg_beside_call(struct cg_notify *n, const struct seccomp_notif *call)
{
        bool group = which_is(call, PRIO_PGRP, IOPRIO_WHO_PGRP);
        bool user = which_is(call, PRIO_USER, IOPRIO_WHO_USER);
        bool has_servers = false;
        size_t i = 0;
        pid_t target;
        int error = 0;

        while (i < CG_ARRAY_LEN(calls) && calls[i].nr != call->data.nr)
                i++;
        if (!n->servers || i == CG_ARRAY_LEN(calls))
                return false;
        /* Denied by the filter: others in the landlock tier, init, all processes of a user. */
        target = (pid_t)call->data.args[calls[i].target];
        if (n->broker || user || target == 1)
                return false;
        for (size_t k = 0; k < CG_BESIDE_SERVERS; k++)
                has_servers = has_servers || n->servers[k];
        /* The arguments are numbers, which cannot change between this check and the call. */
        if ((pid_t)call->pid != target && n->foreign_proc)
                error = has_servers ? EPERM : 0;
        else if ((pid_t)call->pid != target)
                error = group ? refusal_of_group(n, target) : refusal(n, target);
        if (error == EPERM)
                cg_reply_deny(n, call, EPERM, NULL);
        else if (error)
                cg_reply_result(n, call, -error);
        else
                cg_reply_continue(n, call);
        return true;
}
