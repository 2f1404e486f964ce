/* Rules of policy files that never decide: see policy.h. */
#include "policy/internal.h"

/* Every text that @later matches, @earlier matches too; NULL: any. */
static bool covers(const char *earlier, const char *later)
{
        if (!earlier || (later && strcmp(earlier, later) == 0))
                return true;
        /* A '*' of @later is matched only by a '*' of @earlier; a '?' there may not match it. */
        return later && !strchr(earlier, '?') && cg_pol_glob(earlier, strlen(earlier), later, strlen(later));
}

/* True if @earlier decides about every call that @later is about. */
static bool hides(const struct cg_pol_rule *earlier, const struct cg_pol_rule *later)
{
        if (earlier->n_conditions || earlier->fronts || earlier->client || earlier->session ||
            earlier->until_s || earlier->grant != CG_GRANT_SESSION || earlier->exec || later->exec ||
            !earlier->host != !later->host || (earlier->port && earlier->port != later->port))
                return false;
        if (earlier->method && (!later->method || strcmp(earlier->method, later->method) != 0))
                return false;
        return covers(earlier->server, later->server) && covers(earlier->tool, later->tool) &&
               covers(earlier->host, later->host);
}

static bool has_a_front(const json_t *fronts)
{
        return cg_pol_has_front(fronts, "run") || cg_pol_has_front(fronts, "mcp serve") ||
               cg_pol_has_front(fronts, "jupyter") || cg_pol_has_front(fronts, "api");
}

static int warn(const struct cg_pol_file *f, size_t i, int64_t time_s, struct cg_buf *b, struct cg_err *err)
{
        const struct cg_pol_rule *rule = &f->rules[i];

        if (!has_a_front(rule->fronts))
                return cg_buf_try_addf(
                        b, err,
                        "%s: /rules/%zu can never match: front is none of run, mcp serve, jupyter, api\n",
                        f->name, i);
        if (rule->until_s && time_s >= rule->until_s)
                return cg_buf_try_addf(b, err, "%s: /rules/%zu can never match: its time is over\n", f->name,
                                       i);
        for (size_t k = 0; k < i; k++)
                if (hides(&f->rules[k], rule))
                        return cg_buf_try_addf(
                                b, err,
                                "%s: /rules/%zu can never match: /rules/%zu matches the same calls before\n",
                                f->name, i, k);
        return 0;
}

int cg_pol_warnings(const struct cg_pol *p, int64_t time_s, struct cg_buf *b, struct cg_err *err)
{
        for (size_t i = 0; i < p->n; i++)
                for (size_t k = 0; k < p->files[i].n_rules; k++)
                        if (warn(&p->files[i], k, time_s, b, err) < 0)
                                return -1;
        return 0;
}
