/* Limits as JSON. Runs in the zygote, the supervisor, and the keeper of a command. */
#include "sandbox/settings/limit_json.h"

#include <math.h>
#include <stdio.h>

#include "sandbox/plan.h"

static json_t *number(double v)
{
        return v == floor(v) ? json_integer((json_int_t)v) : json_real(v);
}

json_t *cg_limits_json(const struct cg_sandbox_limits *l, const enum cg_limit_by by[CG_LIMITS])
{
        json_t *o = json_object();

        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                uint64_t v = cg_limit_get(l, i);
                json_t *one;

                if (!v || v == CG_PLAN_NO_LIMIT)
                        continue;
                one = json_pack("{s:o, s:s, s:s, s:s}", "value", number(cg_limit_figure(l, i)), "unit",
                                cg_limit_unit(i), "by", cg_limit_by_name(by[i]), "scope",
                                cg_limit_scope(i, by[i]));
                if (one && by[i] == CG_BY_AFFINITY)
                        json_object_set_new(one, "cpus", json_integer((json_int_t)((v + 999) / 1000)));
                if (json_object_set_new(o, cg_limit_name(i), one) < 0) {
                        json_decref(o);
                        return NULL;
                }
        }
        return o;
}

json_t *cg_limit_denial(const struct cg_sandbox_limits *l, enum cg_limit limit, enum cg_limit_said said,
                        enum cg_limit_by by, const char *what)
{
        char reached[128], why[300], how[64], rule[64];

        cg_limit_why(l, limit, by, reached, sizeof(reached));
        cg_limit_how(limit, said, how, sizeof(how));
        cg_limit_where(limit, said, rule, sizeof(rule));
        if (what)
                snprintf(why, sizeof(why), "%s: %s", reached, what);
        else
                snprintf(why, sizeof(why), "%s", reached);
        return json_pack("{s:s, s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "operation", "limit", "limit",
                         cg_limit_name(limit), "value", number(cg_limit_figure(l, limit)), "unit",
                         cg_limit_unit(limit), "layer", cg_limit_by_name(by), "scope",
                         cg_limit_scope(limit, by), "rule", rule, "why", why, "how", how, "source",
                         "sandbox");
}
