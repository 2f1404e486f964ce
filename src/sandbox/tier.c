/*
 * Tiers: their names, which of them the machine supports, the plan of the landlock tier, and the
 * layers of each. Runs in the caller.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/notify/mediate.h"
#include "sandbox/steps.h"

int cg_tier_parse(const char *text, struct cg_tier_choice *ret, struct cg_err *err)
{
        static const char *const tiers[] = {
                [CG_TIER_FULL] = "full", [CG_TIER_LANDLOCK] = "landlock", [CG_TIER_AUTO] = "auto"
        };
        static const char *const deny_rules[] = { [CG_DENY_RULES_REFUSE] = ":refuse",
                                                  [CG_DENY_RULES_FREEZE] = ":freeze",
                                                  [CG_DENY_RULES_ACCEPT] = ":accept" };
        struct cg_tier_choice c = { .deny_rules = CG_DENY_RULES_REFUSE };
        size_t n = strcspn(text, ":"), d = 0;

        while (c.tier < CG_ARRAY_LEN(tiers) &&
               (strlen(tiers[c.tier]) != n || strncmp(tiers[c.tier], text, n) != 0))
                c.tier++;
        while (text[n] && d < CG_ARRAY_LEN(deny_rules) && strcmp(deny_rules[d], text + n) != 0)
                d++;
        if (c.tier == CG_ARRAY_LEN(tiers) || d == CG_ARRAY_LEN(deny_rules) ||
            (c.tier == CG_TIER_FULL && text[n]))
                return cg_fail(
                        err, CG_E_INVAL,
                        "tier \"%.40s\" is none of full, landlock, auto; the latter two may be followed by :refuse, "
                        ":freeze or :accept",
                        text);
        c.deny_rules = d;
        *ret = c;
        return 0;
}

static int do_nothing(void *data)
{
        return 0;
}

int cg_tier_try_full(struct cg_err *err)
{
        struct cg_sandbox *sb = NULL;
        struct cg_sandbox_child child;
        int r = cg_sandbox_new_command(0, &sb, err);

        if (r == 0)
                r = cg_sandbox_set_cwd(sb, "/", err);
        if (r == 0)
                r = cg_sandbox_spawn(sb, NULL, 0, do_nothing, NULL, &child, err);
        if (r == 0) {
                cg_pidfd_kill(child.init_pidfd, SIGKILL);
                close(child.init_pidfd);
                close(child.status_fd);
                while (waitpid(child.init_pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        cg_sandbox_free(sb);
        return r;
}

int cg_tier_decide(struct cg_tier_choice *choice, struct cg_err *err)
{
        static const char needs[] =
                "sandbox: the landlock tier needs Landlock ABI %d (Linux 6.12 with landlock in lsm=); this "
                "machine has %s%.0d";
        struct cg_err full = { 0 }, landlock = { 0 };
        int abi;

        if (choice->tier == CG_TIER_FULL)
                return 0;
        if (choice->tier == CG_TIER_AUTO && cg_tier_try_full(&full) == 0) {
                choice->tier = CG_TIER_FULL;
                return 0;
        }
        abi = cg_landlock_abi();
        if (abi >= CG_TIER_LANDLOCK_ABI) {
                choice->tier = CG_TIER_LANDLOCK;
                return 0;
        }
        cg_fail(&landlock, CG_E_UNSUPPORTED, needs, CG_TIER_LANDLOCK_ABI, abi < 0 ? "none" : "ABI ",
                abi < 0 ? 0 : abi);
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

        if (sb->off)
                return cg_fail(err, CG_E_STATE, "sandbox: it is off");
        /* Settings that the landlock tier does not have are errors. */
        if (sb->nested_users)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: allowNestedUserNamespaces needs the full tier");
        if (sb->all_unix)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: allowAllUnixSockets needs the full tier: the landlock tier has no unix sockets");
        if (sb->doors || sb->n_ports > CG_LANDLOCK_PORTS)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: allowUnixSockets, allowLocalBinding and cellgate.ports need the full tier: the "
                        "landlock tier has no network of its own that doors could lead from");
        r = cg_grants_make(sb, deny_rules, private_dir, &sb->grants, err);
        if (r < 0)
                return r;
        sb->names = false; /* the broker does not handle such calls */
        cg_seccomp_filter(CG_FILTER_LANDLOCK | (sb->n_ports ? CG_FILTER_TCP : 0), &sb->filter);
        return 0;
}

const char *cg_sandbox_tier(const struct cg_sandbox *sb)
{
        return sb->off ? "off" : sb->grants ? "landlock" : "full";
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

        if (sb->off)
                return off;
        if (sb->grants)
                return landlock;
        return on[geteuid() || cg_plan_has_own_pid_max()][cg_mediates(sb)];
}
