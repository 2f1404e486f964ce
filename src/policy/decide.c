/* The decision of all files together, budgets, and calls that were refused before: see policy.h. */
#include "base/call_args.h"
#include "base/path.h"
#include "base/text.h"
#include "policy/internal.h"

#define MINUTE_MS 60000
#define REPEATED  "; this same call was refused before in this session: repeating it does not help"

struct judgement {
        struct cg_pol *policy;
        const struct cg_pol_call *call;
        struct cg_pol_verdict *verdict;
        struct cg_pol_rule *by; /* rule that decided; NULL: none, or a default */
        struct cg_buf *trace;   /* or NULL */
        bool unreadable;
};

bool cg_pol_is_empty(const struct cg_pol *p)
{
        return p->n == 0;
}

bool cg_pol_is_about(const struct cg_pol *p, const char *method)
{
        bool exec = strcmp(method, CG_METHOD_EXEC) == 0;

        for (size_t i = 0; i < p->n; i++) {
                const struct cg_pol_file *f = &p->files[i];

                for (size_t k = 0; k < f->n_rules + f->n_budgets; k++) {
                        const struct cg_pol_rule *r = k < f->n_rules ? &f->rules[k]
                                                                     : &f->budgets[k - f->n_rules];

                        if (exec ? r->exec != NULL : r->host != NULL)
                                return true;
                }
        }
        return false;
}

unsigned cg_pol_cells_per_minute(const struct cg_pol *p)
{
        unsigned least = 0;

        for (size_t i = 0; i < p->n; i++) {
                unsigned n = p->files[i].cells_per_minute;

                if (n && (!least || n < least))
                        least = n;
        }
        return least;
}

static void name_rule(const struct cg_pol_file *f, const char *kind, size_t number, const char *id,
                      char ret[CG_POL_RULE_MAX])
{
        if (id)
                snprintf(ret, CG_POL_RULE_MAX, "%s %zu (%.80s) of %.100s", kind, number, id,
                         cg_path_base(f->name));
        else
                snprintf(ret, CG_POL_RULE_MAX, "%s %zu of %.100s", kind, number, cg_path_base(f->name));
}

/* Takes the decision of a file, if it is stricter than what the others say. */
static void take(struct judgement *d, const struct cg_pol_file *f, struct cg_pol_rule *rule,
                 enum cg_pol_decision decision)
{
        struct cg_pol_verdict *v = d->verdict;

        if (decision <= v->decision)
                return;
        *v = (struct cg_pol_verdict){ .decision = decision, .text = rule ? rule->text : NULL };
        d->by = rule;
        if (rule)
                name_rule(f, "rule", (size_t)(rule - f->rules) + 1, rule->id, v->rule);
        else
                snprintf(v->rule, sizeof(v->rule), "the default of %.200s", cg_path_base(f->name));
}

static void trace_rule(const struct judgement *d, const struct cg_pol_file *f, const char *kind,
                       size_t number, const char *id, enum cg_pol_match m, const char *why)
{
        static const char *const words[] = { [CG_MATCH_NO] = "does not match",
                                             [CG_MATCH_UNCLEAR] = "is unclear",
                                             [CG_MATCH_YES] = "matches" };
        char name[CG_POL_RULE_MAX];

        if (!d->trace)
                return;
        name_rule(f, kind, number, id, name);
        cg_buf_try_addf(d->trace, NULL, "%s %s%s%s\n", name, words[m], *why ? ": " : "", why);
}

/* The first rule that matches decides. An unclear one that asks leaves it to later ones to deny. */
static void decide_file(struct judgement *d, struct cg_pol_file *f)
{
        struct cg_pol_rule *asks = NULL;

        for (size_t i = 0; i < f->n_rules; i++) {
                struct cg_pol_rule *rule = &f->rules[i];
                char why[CG_POL_RULE_MAX] = "";
                enum cg_pol_match m = cg_pol_matches(rule, d->call, d->unreadable, why);

                trace_rule(d, f, "rule", i + 1, rule->id, m, why);
                if (m == CG_MATCH_UNCLEAR && rule->decision == CG_POL_ASK && !asks)
                        asks = rule;
                if (m == CG_MATCH_YES || (m == CG_MATCH_UNCLEAR && rule->decision == CG_POL_DENY)) {
                        if (asks && rule->decision < CG_POL_DENY)
                                rule = asks;
                        take(d, f, rule, rule->decision);
                        return;
                }
        }
        if (asks && f->base < CG_POL_DENY)
                take(d, f, asks, CG_POL_ASK);
        else
                take(d, f, NULL, f->base);
}

/* ---- budgets */

/*
 * What the budget has counted up to now, of the session, this cell or this minute. Threads of
 * earlier cells, and between cells, count for the last one: taking turns gives nothing anew.
 */
static void begin(struct cg_pol_rule *b, const struct cg_pol_call *call)
{
        bool over = (b->per == CG_PER_CELL && call->cell > b->cell) ||
                    (b->per == CG_PER_MINUTE && call->now_ms - b->since_ms >= MINUTE_MS);

        if (!over && b->n)
                return;
        if (over) {
                b->n = 0;
                b->total = 0;
        }
        b->cell = CG_MAX(call->cell, b->cell);
        b->since_ms = call->now_ms;
}

static void exceeded(struct cg_pol_verdict *v, const struct cg_pol_file *f, const struct cg_pol_rule *b,
                     bool readable, double value)
{
        static const char *const pers[] = { "for the session", "for each cell", "for each minute" };
        int n;

        *v = (struct cg_pol_verdict){ .decision = CG_POL_DENY, .text = b->text };
        n = snprintf(v->rule, sizeof(v->rule), "budget %.60s of %.60s: ", b->id, cg_path_base(f->name));
        if (!readable)
                snprintf(v->rule + n, sizeof(v->rule) - (size_t)n, "%.60s is no number of at least 0",
                         b->sum.pointer);
        else if (b->n >= b->calls)
                snprintf(v->rule + n, sizeof(v->rule) - (size_t)n, "all of %lld calls %s are used",
                         (long long)b->calls, pers[b->per]);
        else
                snprintf(v->rule + n, sizeof(v->rule) - (size_t)n, "%g of %g %s are used, this call has %g",
                         b->total, b->max, pers[b->per], value);
}

/* @count: adds the call; else only compares. */
static void spend(struct judgement *d, struct cg_pol_file *f, bool count)
{
        for (size_t i = 0; i < f->n_budgets; i++) {
                struct cg_pol_rule *b = &f->budgets[i];
                char why[CG_POL_RULE_MAX] = "";
                enum cg_pol_match m = cg_pol_matches(b, d->call, d->unreadable, why);
                double value = 0;
                bool readable = !b->sum.tokens || cg_pol_number(&b->sum, d->call, &value);

                if (!count)
                        trace_rule(d, f, "budget", i + 1, b->id, m, why);
                if (m == CG_MATCH_NO)
                        continue;
                begin(b, d->call);
                if (count) {
                        b->n++;
                        b->total += value;
                        continue;
                }
                if (readable && b->n < b->calls && (!b->sum.tokens || b->total + value <= b->max))
                        continue;
                exceeded(d->verdict, f, b, readable, value);
                return;
        }
}

/* ---- calls that were refused before */

/* Two calls with one hash: one of them is refused, which their author could have had without. */
uint64_t cg_pol_key(const struct cg_pol_call *call)
{
        uint64_t h = cg_fnv1a(CG_FNV1A, call->server, strlen(call->server) + 1);

        h = cg_fnv1a(h, call->method, strlen(call->method) + 1);
        h = cg_fnv1a(h, call->tool, strlen(call->tool) + 1);
        return cg_fnv1a(h, call->args ?: "", call->args_len);
}

static bool was_refused(const struct cg_pol *p, uint64_t hash)
{
        size_t n = CG_MIN(p->n_refused, CG_POL_REFUSED_MAX);

        for (size_t i = 0; i < n; i++)
                if (p->refused[i] == hash)
                        return true;
        return false;
}

void cg_pol_refuse(struct cg_pol *p, uint64_t key)
{
        if (!was_refused(p, key))
                p->refused[p->n_refused++ % CG_POL_REFUSED_MAX] = key;
}

int cg_pol_explain(struct cg_buf *b, const struct cg_pol_verdict *v, bool mute, struct cg_err *err)
{
        if (v->rule[0] && !mute && v->decision != CG_POL_ALLOW)
                cg_buf_adds(b, "refused by ");
        cg_text_render_as(b, v->rule, strlen(v->rule), 0, CG_TEXT_LINE);
        if (mute)
                cg_buf_adds(b, " asks the user, but nobody can be asked here");
        if (v->text) {
                cg_buf_adds(b, ": ");
                cg_text_render(b, v->text, strlen(v->text), 0);
        }
        if (v->repeated)
                cg_buf_adds(b, REPEATED);
        return cg_buf_end(b, err);
}

/* ---- all */

void cg_pol_decide(struct cg_pol *p, const struct cg_pol_call *call, bool firm, struct cg_pol_verdict *v,
                   struct cg_buf *trace)
{
        struct cg_pol_verdict given = *v;
        struct judgement d = { .policy = p, .call = call, .verdict = v, .trace = trace };

        if (p->n && strcmp(call->method, CG_METHOD_EXEC) != 0 && strcmp(call->method, CG_METHOD_CONNECT) != 0)
                d.unreadable = cg_check_call_args(call->args, call->args_len, NULL) < 0;
        *v = (struct cg_pol_verdict){ .decision = CG_POL_NONE };
        for (size_t i = 0; i < p->n; i++)
                decide_file(&d, &p->files[i]);
        if (v->decision == CG_POL_NONE || (firm && v->decision < CG_POL_DENY)) {
                *v = given;
                d.by = NULL;
        }
        if (v->decision >= CG_POL_ASK && !call->again && p->n_refused)
                v->repeated = was_refused(p, cg_pol_key(call));
        if (v->decision == CG_POL_DENY)
                cg_pol_refuse(p, cg_pol_key(call));
        if (v->decision == CG_POL_ASK && v->repeated)
                *v = (struct cg_pol_verdict){ .decision = CG_POL_DENY,
                                              .rule = "an earlier answer of the user",
                                              .repeated = true };
        if (call->again)
                return;
        for (size_t i = 0; i < p->n && v->decision < CG_POL_DENY; i++)
                spend(&d, &p->files[i], false);
        for (size_t i = 0; i < p->n && v->decision < CG_POL_DENY; i++)
                spend(&d, &p->files[i], true);
        if (v->decision == CG_POL_ALLOW && d.by) {
                d.by->granted = true;
                d.by->granted_cell = call->cell;
        }
}
