/* src/policy/read.c on foreign bytes: what is accepted has warnings, and decides. */
#include "policy/policy.h"
#include "fuzz.h"

static void decide(struct cg_pol *p, const char *method, const char *args)
{
        struct cg_pol_call call = { .server = *method == 't' ? "s" : "",
                                    .method = method,
                                    .tool = *method == 't' ? "t" : "",
                                    .args = args,
                                    .args_len = strlen(args),
                                    .front = "run" };
        struct cg_pol_verdict v = { .decision = CG_POL_NONE };

        cg_pol_decide(p, &call, false, &v, NULL);
        if (v.decision == CG_POL_ALLOW && !v.rule[0])
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        cg_auto_buf struct cg_buf b = { .max = (size_t)1 << 20 };
        struct cg_pol *p;
        struct cg_err err = { 0 };

        if (cg_pol_new(&p, NULL) < 0)
                return 0;
        if (cg_pol_add(p, "input", (const char *)data, size, &err) < 0) {
                if (!strstr(err.msg, "input") || !cg_pol_is_empty(p))
                        abort();
        } else {
                cg_pol_warnings(p, 0, &b, NULL);
                decide(p, CG_METHOD_CALL, "{\"x\":[\"/srv/a\",1,null],\"y\":{\"z\":true}}");
                decide(p, CG_METHOD_EXEC, "{\"program\":\"/bin/a\",\"argv\":[\"a\"],\"writable\":false}");
                decide(p, CG_METHOD_CONNECT, "{\"host\":\"a\",\"port\":1}");
        }
        cg_pol_free(p);
        return 0;
}
