/*
 * src/policy/match.c on foreign arguments: those that are no call are never allowed, and where a
 * rule allows, the same rule as one that denies does so, too.
 */
#include "base/call_args.h"
#include "policy/policy.h"
#include "fuzz.h"

#define CONDITIONS \
        "\"server\": \"s\", \"arguments\": {\"/p\": {\"within\": \"/usr/lib\"}, \"/g\": {\"glob\": \"a*b?\"}," \
        "\"/r\": {\"regex\": \"(a+)+[bc]\"}, \"/n\": {\"min\": -1, \"max\": 1.5}, \"/e\": {\"enum\": [1, \"a\", true, null]}," \
        "\"/l/*/q\": {\"equals\": 1}}"

static struct cg_pol *policy(const char *text)
{
        struct cg_pol *p;

        if (cg_pol_new(&p, NULL) < 0 || cg_pol_add(p, "p", text, strlen(text), NULL) < 0)
                abort();
        return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct cg_pol *allow, *deny, *sum;
        static uint64_t cell;
        struct cg_pol_call call = { .server = "s",
                                    .method = CG_METHOD_CALL,
                                    .tool = "t",
                                    .args = (const char *)data,
                                    .args_len = size,
                                    .front = "run" };
        struct cg_pol_verdict a = { .decision = CG_POL_NONE }, d = a, s = a;

        if (!allow) {
                allow = policy("{\"rules\": [{\"decision\": \"allow\", " CONDITIONS "}]}");
                deny = policy("{\"rules\": [{\"decision\": \"deny\", " CONDITIONS "}]}");
                sum = policy(
                        "{\"rules\": [{\"decision\": \"allow\", \"server\": \"s\"}], \"budgets\":"
                        "[{\"id\": \"b\", \"server\": \"s\", \"per\": \"cell\", \"sum\": \"/n\", \"max\": 5}]}");
        }
        cg_pol_decide(allow, &call, false, &a, NULL);
        cg_pol_decide(deny, &call, false, &d, NULL);
        call.cell = ++cell; /* each is the first of its cell */
        cg_pol_decide(sum, &call, false, &s, NULL);
        if ((a.decision == CG_POL_ALLOW || s.decision == CG_POL_ALLOW) &&
            cg_check_call_args(call.args, call.args_len, NULL) < 0)
                abort();
        if (a.decision == CG_POL_ALLOW && d.decision != CG_POL_DENY)
                abort();
        return 0;
}
