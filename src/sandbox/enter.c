/*
 * Drops all privileges that the main process does not need. Runs in the main process, a fork of
 * init, before main_fn. All of it is in cg_enter(), in the order that the steps must have.
 */
#include "sandbox/steps.h"

#include <linux/keyctl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "sandbox/apparmor.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/inside/watch.h"

/* Closes everything but 0, 1, 2 and the list, which is ascending. */
int cg_enter_close_others(const struct cg_spawn *sp, struct cg_err *err)
{
        unsigned int next = 3;

        for (size_t i = 0; i < sp->n_keep; i++) {
                unsigned int fd = (unsigned int)sp->keep[i];

                if (fd > next && close_range(next, fd - 1, 0) < 0)
                        return cg_fail_errno(err, "sandbox: closing descriptors");
                if (fd >= next)
                        next = fd + 1;
        }
        if (close_range(next, ~0U, 0) < 0)
                return cg_fail_errno(err, "sandbox: closing descriptors");
        return 0;
}

static int join_session_keyring(struct cg_err *err)
{
        if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0)
                return 0;
        /*
         * ENOSYS: this Linux has no keys at all. EDQUOT: a user may have 200, and old sandboxes'
         * are freed with a delay. EPERM: a container's filter. seccomp denies every call that could
         * use one, so the shared keyring stays out of reach.
         */
        if (errno == ENOSYS || errno == EDQUOT || errno == EPERM)
                return 0;
        return cg_fail_errno(err, "sandbox: session keyring");
}

static int set_limit(__rlimit_resource_t what, const char *name, uint64_t value, struct cg_err *err)
{
        struct rlimit l;

        if (value == CG_PLAN_NO_LIMIT)
                return 0;
        if (getrlimit(what, &l) < 0)
                return cg_fail_errno(err, "sandbox: %s", name);
        if (value > l.rlim_max)
                value = l.rlim_max; /* never above the caller's own hard limit */
        l.rlim_cur = l.rlim_max = value;
        if (setrlimit(what, &l) < 0)
                return cg_fail_errno(err, "sandbox: %s", name);
        return 0;
}

/*
 * Descriptors in flight between sockets are counted for the user as a whole, against the sender's
 * limit: with a lower limit than the caller's, programs inside cannot use up what the user's other
 * programs may send. Set after this process has sent its own to init: under the lower limit it
 * could not while another sandbox of the user has as many in flight.
 */
static int limit_open_files(const struct cg_sandbox_limits *l, struct cg_err *err)
{
        uint64_t files = l->open_files;
        struct rlimit now;

        if (files != CG_PLAN_NO_LIMIT && getrlimit(RLIMIT_NOFILE, &now) == 0 &&
            now.rlim_max != RLIM_INFINITY && files > now.rlim_max / 2)
                files = now.rlim_max / 2;
        return set_limit(RLIMIT_NOFILE, "RLIMIT_NOFILE", files, err);
}

/* All but that of open files. */
static int set_limits(const struct cg_sandbox_limits *l, struct cg_err *err)
{
        struct rlimit now;

        if (set_limit(RLIMIT_CORE, "RLIMIT_CORE", 0, err) < 0 ||
            set_limit(RLIMIT_NPROC, "RLIMIT_NPROC", l->processes, err) < 0)
                return -1;
        if (l->memory_bytes && set_limit(RLIMIT_DATA, "RLIMIT_DATA", l->memory_bytes, err) < 0)
                return -1;
        if (l->cpu_seconds) {
                /*
                 * SIGXCPU comes first, which explains the end, and SIGKILL, which cannot be
                 * ignored, a second later.
                 */
                if (set_limit(RLIMIT_CPU, "RLIMIT_CPU", l->cpu_seconds + 1, err) < 0)
                        return -1;
                if (getrlimit(RLIMIT_CPU, &now) < 0)
                        return cg_fail_errno(err, "sandbox: RLIMIT_CPU");
                now.rlim_cur = CG_MIN(l->cpu_seconds, now.rlim_max);
                if (setrlimit(RLIMIT_CPU, &now) < 0)
                        return cg_fail_errno(err, "sandbox: RLIMIT_CPU");
        }
        if (l->file_bytes && set_limit(RLIMIT_FSIZE, "RLIMIT_FSIZE", l->file_bytes, err) < 0)
                return -1;
        return 0;
}

/* Limits the process to whole CPUs among the caller's; not to the same ones for every sandbox. */
static int limit_cpus(const struct cg_spawn *sp, struct cg_err *err)
{
        size_t wanted = (size_t)((sp->sb->set.limits.cores_milli + 999) / 1000), n, skip;
        cpu_set_t may, set;

        if (sched_getaffinity(0, sizeof(may), &may) < 0)
                return cg_fail_errno(err, "sandbox: CPUs");
        n = (size_t)CPU_COUNT(&may);
        if (wanted >= n)
                return 0;
        CPU_ZERO(&set);
        skip = sp->first_cpu % n;
        for (size_t i = 0, seen = 0; (size_t)CPU_COUNT(&set) < wanted; i = (i + 1) % CPU_SETSIZE)
                if (CPU_ISSET(i, &may) && seen++ >= skip)
                        CPU_SET(i, &set);
        if (sched_setaffinity(0, sizeof(set), &set) < 0)
                return cg_fail_errno(err, "sandbox: CPUs");
        return 0;
}

static int start_in(const struct cg_spawn *sp, struct cg_err *err)
{
        if (chdir(sp->cwd) == 0)
                return 0;
        if (sp->sb->cwd)
                return cg_fail_errno(err, "sandbox: working directory %s", sp->cwd);
        if (chdir("/") < 0)
                return cg_fail_errno(err, "sandbox: working directory /");
        return 0;
}

static int no_new_privs(struct cg_err *err)
{
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: no_new_privs");
        return 0;
}

/* A new session: no controlling terminal, and no signals to the caller's group. */
static int new_session(struct cg_err *err)
{
        if (setsid() < 0)
                return cg_fail_errno(err, "sandbox: new session");
        return 0;
}

/* A plan that is off: the same processes, with limits only. */
static int enter_off(const struct cg_spawn *sp, struct cg_err *err)
{
        struct cg_sandbox_limits l = sp->sb->set.limits;

        /* without a user namespace RLIMIT_NPROC counts all processes of the user */
        if (sp->counted)
                l.processes = CG_PLAN_NO_LIMIT;
        if (sp->affinity && limit_cpus(sp, err) < 0)
                return -1;
        /* No pid namespace ends with init. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: end with init");
        if (new_session(err) < 0 || start_in(sp, err) < 0 || cg_apparmor_leave(NULL, err) < 0 ||
            set_limits(&l, err) < 0)
                return -1;
        return limit_open_files(&l, err);
}

/*
 * Sends descriptors to init. Linux counts those of all the user's processes that are in flight, and
 * compares the number with this process's limit of open files, which the user may have made small.
 */
#define SEND_MS 5000
static int send_to_init(const struct cg_spawn *sp, const char *type, const int *fds, size_t n,
                        struct cg_err *err)
{
        int64_t deadline = cg_now_ms() + SEND_MS;
        struct cg_err why;
        int r;

        while ((r = cg_send_fds(sp->listener_in, type, 1, fds, n, &why)) < 0 &&
               why.sys_errno == ETOOMANYREFS && cg_now_ms() < deadline)
                cg_pause_ms(5);
        if (r < 0 && err)
                *err = why;
        return r;
}

/* *listener stays -1 where another sandbox's listener is around this one. */
static int install_watched(const struct sock_fprog *base, unsigned int watched, int *listener,
                           struct cg_err *err)
{
        struct sock_fprog prog = *base;
        int r = 0;

        if (watched)
                r = cg_watch_filter(base, watched, &prog, err);
        if (r >= 0)
                r = cg_seccomp_install_listener(&prog, base, listener, err);
        if (prog.filter != base->filter)
                free(prog.filter);
        return r;
}

/* The parts of the plan that do not work without a listener. */
static int check_unlistened(const struct cg_spawn *sp, bool names, bool exec, struct cg_err *err)
{
        if (names)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: files that programs outside obey (.git/config, .bashrc...) are protected by a "
                        "listener for system calls, and there is another sandbox's around this one (or Linux is older than 5.0)");
        /* Without a listener every connect() or listen() would fail, so the start fails. */
        if (sp->sb->set.doors & (CG_DOOR_UNIX | CG_DOOR_LISTEN))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: network.allowUnixSockets and allowLocalBinding need a listener for system "
                        "calls, and there is another sandbox's around this one (or Linux is older than 5.0)");
        if (exec)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: exec \"%s\" needs a listener for system calls, and there is another "
                               "sandbox's around this one (or Linux is older than 5.0)",
                               sp->sb->exec >= CG_EXEC_ASK ? "ask" : "deny");
        return 0;
}

/* Sends the listener to init and closes it: a process with the listener can allow denied calls. */
static int install_filter(const struct cg_spawn *sp, struct cg_err *err)
{
        /* Commands beside the main process are the host's own. */
        bool names = cg_mediates(sp->sb), exec = sp->sb->exec != CG_EXEC_ALLOW && !sp->late;
        unsigned int watched = 0, flags = sp->sb->filter_flags;
        struct sock_fprog base;
        int listener = -1, r;

        if (!names)
                flags &= ~(unsigned int)CG_FILTER_NAMES;
        cg_seccomp_filter(flags, &base);
        if (sp->listener_in < 0)
                return cg_seccomp_install(&base, err);
        if (sp->sb->set.watch)
                watched |= CG_WATCH_FILES;
        if (cg_plan_reports_network(sp->sb))
                watched |= CG_WATCH_CONNECT;
        if (exec)
                watched |= CG_WATCH_EXEC;
        if (sp->commands_fd >= 0 && !sp->late)
                watched |= CG_WATCH_BESIDE;
        r = install_watched(&base, watched, &listener, err);
        if (r >= 0)
                r = listener < 0 ? check_unlistened(sp, names, exec, err)
                                 : send_to_init(sp, "l", &listener, 1, err);
        cg_closep_(&listener);
        close(sp->listener_in);
        return r;
}

static int apply_landlock_and_filter(const struct cg_spawn *sp, int pins[CG_LANDLOCK_PINS], size_t *n_pins,
                                     int *listener, struct cg_err *err)
{
        struct sock_fprog watching = { .filter = NULL };
        const struct sock_fprog *filter = &sp->sb->filter;
        int r = cg_landlock_apply_tier(sp->sb, pins, n_pins, err);

        if (r < 0)
                return r;
        if (sp->sb->exec != CG_EXEC_ALLOW && !sp->late) {
                r = cg_watch_filter(filter, CG_WATCH_EXEC, &watching, err);
                if (r < 0)
                        return r;
                filter = &watching;
        }
        r = cg_seccomp_install_brokered(filter, listener, err);
        free(watching.filter);
        return r;
}

/* The listener is sent away: no process inside may reply for the broker. */
static int send_pins_and_listener(const struct cg_spawn *sp, const int *pins, size_t n, int listener,
                                  struct cg_err *err)
{
        for (size_t sent = 0; sent < n; sent += CG_MAX_FDS) {
                int r = send_to_init(sp, "p", pins + sent, CG_MIN(n - sent, CG_MAX_FDS), err);

                if (r < 0)
                        return r;
        }
        return send_to_init(sp, "l", &listener, 1, err);
}

static int enter_landlock(const struct cg_spawn *sp, struct cg_err *err)
{
        struct cg_sandbox_limits limits = sp->sb->set.limits;
        int pins[CG_LANDLOCK_PINS], listener = -1, r;
        size_t n = 0;

        if (new_session(err) < 0 || join_session_keyring(err) < 0 || start_in(sp, err) < 0)
                return -1;
        if (limits.processes != CG_PLAN_NO_LIMIT)
                limits.processes += sp->processes_beside;
        if (set_limits(&limits, err) < 0 || (sp->affinity && limit_cpus(sp, err) < 0))
                return -1;
        if (!sp->late && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: dumpable");
        if (cg_caps_drop_outside(err) < 0 || no_new_privs(err) < 0)
                return -1;
        if (sp->affinity && cg_seccomp_keep_affinity(err) < 0)
                return -1;
        /* Watching lets calls continue, which would bypass the broker. */
        if (sp->sb->set.watch)
                return cg_fail(err, CG_E_UNSUPPORTED, "sandbox: watchFiles works in the full tier only");
        /* Last, Landlock and the filter: they deny calls that the steps above make. */
        r = apply_landlock_and_filter(sp, pins, &n, &listener, err);
        if (r >= 0)
                r = send_pins_and_listener(sp, pins, n, listener, err);
        while (n)
                close(pins[--n]);
        cg_closep_(&listener);
        close(sp->listener_in);
        return r < 0 ? r : limit_open_files(&limits, err);
}

/* Layers apply to the installing thread and its children: the main process must have one thread. */
static int check_one_thread(struct cg_err *err)
{
        struct stat st;

        if (stat("/proc/self/task", &st) < 0)
                return cg_fail_errno(err, "sandbox: counting threads");
        if (st.st_nlink != 3)
                return cg_fail(err, CG_E_STATE,
                               "sandbox: a thread was started before the layers were put on");
        return 0;
}

int cg_enter(const struct cg_spawn *sp, struct cg_err *err)
{
        if (sp->prepare_fn && check_one_thread(err) < 0)
                return -1;
        if (sp->sb->set.off)
                return enter_off(sp, err);
        if (sp->sb->grants)
                return enter_landlock(sp, err);

        if (new_session(err) < 0)
                return -1;
        /* Before seccomp, which denies keyctl. The user's keys are not for the sandbox. */
        if (join_session_keyring(err) < 0)
                return -1;
        /* Leaves the caller's folder in covered mounts for the same path in the new mounts. */
        if (start_in(sp, err) < 0)
                return -1;
        if (set_limits(&sp->sb->set.limits, err) < 0 || (sp->affinity && limit_cpus(sp, err) < 0))
                return -1;
        /*
         * init is not dumpable and its copy inherited that; without it a process cannot use its own
         * /proc/self/fd.
         */
        if (!sp->late && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: dumpable");
        /* After the limits and mounts, which need them. */
        if (!sp->late && cg_caps_drop_bounding(sp->sb->set.nested_users && !sp->uid, err) < 0)
                return -1;
        if ((sp->late ? cg_caps_set(sp->sb->set.nested_users && !sp->uid, 0, err)
                      : cg_caps_drop(sp->sb->set.nested_users && !sp->uid, 0, err)) < 0)
                return -1;
        /* No program can regain privileges; Landlock and seccomp without capabilities need it. */
        if (no_new_privs(err) < 0)
                return -1;
        /* Opens the write roots by name, in the complete view, with the sandbox's rights. */
        if (cg_landlock_apply(sp->sb, err) < 0)
                return -1;
        if (sp->affinity && cg_seccomp_keep_affinity(err) < 0)
                return -1;
        /* It denies calls that the steps above make. */
        if (install_filter(sp, err) < 0)
                return -1;
        return limit_open_files(&sp->sb->set.limits, err);
}
