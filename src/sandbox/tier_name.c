/* The names of tiers, and how a tier is ended. Linked into every program that reads settings. */
#include <signal.h>

#include "base/fd.h"
#include "sandbox/sandbox.h"

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

void cg_sandbox_kill(int init_pidfd, const char *tier)
{
        if (strcmp(tier, "off") != 0) {
                cg_pidfd_kill(init_pidfd, SIGKILL);
                return;
        }
        cg_pidfd_kill(init_pidfd, SIGTERM);
        cg_pidfd_kill(init_pidfd, SIGCONT); /* processes inside can have stopped it */
}
