/* Tiers: which ones the machine supports, the landlock tier's plan, and layers. In the caller. */
#include <sys/wait.h>

#include "base/fd.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/steps.h"

static int do_nothing(void *data)
{
        return 0;
}

/* 0 if the full tier works here; otherwise *err says what is missing. */
static int try_full(struct cg_err *err)
{
        cg_auto_sandbox struct cg_sandbox *sb = NULL;
        struct cg_sandbox_child child;
        int r;

        if ((r = cg_sandbox_new_command(0, &sb, err)) < 0 || (r = cg_sandbox_set_cwd(sb, "/", err)) < 0 ||
            (r = cg_sandbox_spawn(sb, NULL, 0, do_nothing, NULL, &child, err)) < 0)
                return r;
        cg_pidfd_kill(child.init_pidfd, SIGKILL);
        close(child.init_pidfd);
        close(child.status_fd);
        while (waitpid(child.init_pid, NULL, 0) < 0 && errno == EINTR)
                ;
        return 0;
}

int cg_tier_decide(struct cg_tier_choice *choice, struct cg_err *err)
{
        struct cg_err full = { 0 }, landlock = { 0 };
        char has[32] = "none";
        int abi;

        if (choice->tier == CG_TIER_FULL)
                return 0;
        if (choice->tier == CG_TIER_AUTO && try_full(&full) == 0) {
                choice->tier = CG_TIER_FULL;
                return 0;
        }
        abi = cg_landlock_abi();
        if (abi >= CG_TIER_LANDLOCK_ABI) {
                choice->tier = CG_TIER_LANDLOCK;
                return 0;
        }
        if (abi >= 0)
                snprintf(has, sizeof(has), "ABI %d", abi);
        cg_fail(&landlock, CG_E_UNSUPPORTED,
                "sandbox: the landlock tier needs Landlock ABI %d (Linux 6.12 with landlock in lsm=); this "
                "machine has %s",
                CG_TIER_LANDLOCK_ABI, has);
        if (choice->tier == CG_TIER_LANDLOCK)
                return cg_fail(err, CG_E_UNSUPPORTED, "%s", landlock.msg);
        return cg_fail(err, CG_E_UNSUPPORTED,
                       "no tier of the sandbox is available here. full: %s. landlock: %s", full.msg,
                       landlock.msg);
}

int cg_sandbox_set_landlock(struct cg_sandbox *sb, enum cg_deny_rules deny_rules, const char *private_dir,
                            struct cg_err *err)
{
        int r;

        if (sb->set.off)
                return cg_fail(err, CG_E_STATE, "sandbox: it is off");
        /* Settings that the landlock tier does not have are errors. */
        if (sb->set.nested_users)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: allowNestedUserNamespaces needs the full tier");
        if (sb->set.all_unix)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: allowAllUnixSockets needs the full tier: the landlock tier has no unix sockets");
        if (sb->set.doors || sb->set.n_ports > CG_LANDLOCK_PORTS)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: allowUnixSockets, allowLocalBinding and cellgate.ports need the full tier: the "
                        "landlock tier has no network of its own that doors could lead from");
        r = cg_grants_make(sb, deny_rules, private_dir, &sb->grants, err);
        if (r < 0)
                return r;
        sb->names = false; /* the broker does not handle such calls */
        cg_seccomp_filter(CG_FILTER_LANDLOCK | (sb->set.n_ports ? CG_FILTER_TCP : 0), &sb->filter);
        return 0;
}

const char *cg_sandbox_tier(const struct cg_sandbox *sb)
{
        if (sb->set.off)
                return "off";
        return sb->grants ? "landlock" : "full";
}

const char *const *cg_sandbox_layers(const struct cg_sandbox *sb)
{
#define LAYERS \
        "user", "mount", "pid", "net", "ipc", "uts", "cgroup", "capabilities", "no_new_privs", "rlimits", \
                "landlock", "seccomp"
        /* Indexes: a process limit has an effect; names are protected. */
        static const char *const on[2][2][15] = {
                { { LAYERS, NULL }, { LAYERS, "names", NULL } },
                { { LAYERS, "process_limit", NULL }, { LAYERS, "process_limit", "names", NULL } },
        };
        static const char *const off[] = { "rlimits", NULL };
        static const char *const landlock[] = { "landlock",     "seccomp", "broker", "capabilities",
                                                "no_new_privs", "rlimits", NULL };

        if (sb->set.off)
                return off;
        if (sb->grants)
                return landlock;
        return on[geteuid() || cg_plan_has_own_pid_max()][cg_mediates(sb)];
}
