/* Approval rules. Runs in the command `cellgate`. */
#include "cli/common/approve.h"

#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "base/util.h"

/* Far more than anybody writes; limits the memory of a script that generates rules by mistake. */
#define MAX_RULES 10000

struct rule {
        char *text; /* as it was given, or SERVER of an always rule */
        char *tool; /* always rule: the tool; else NULL */
        bool deny;
};

struct cg_approve {
        struct rule *rules;
        size_t n;
        bool base_given;
        enum cg_approve_answer base;
};

int cg_approve_new(struct cg_approve **ret, struct cg_err *err)
{
        struct cg_approve *a = calloc(1, sizeof(*a));

        if (!a)
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        *ret = a;
        return 0;
}

struct cg_approve *cg_approve_free(struct cg_approve *a)
{
        if (!a)
                return NULL;
        for (size_t i = 0; i < a->n; i++) {
                free(a->rules[i].text);
                free(a->rules[i].tool);
        }
        free(a->rules);
        free(a);
        return NULL;
}

static int push(struct cg_approve *a, const char *text, const char *tool, bool deny, struct cg_err *err)
{
        struct rule r = { .deny = deny };
        struct rule *grown;

        if (a->n >= MAX_RULES)
                return cg_fail(err, CG_E_LIMIT, "more than %d approval rules", MAX_RULES);
        grown = realloc(a->rules, (a->n + 1) * sizeof(*grown));
        if (grown)
                a->rules = grown;
        r.text = strdup(text);
        r.tool = tool ? strdup(tool) : NULL;
        if (!grown || !r.text || (tool && !r.tool)) {
                free(r.text);
                free(r.tool);
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        }
        a->rules[a->n++] = r;
        return 0;
}

int cg_approve_add(struct cg_approve *a, const char *rule, struct cg_err *err)
{
        const char *pattern = rule[0] == '!' ? rule + 1 : rule;
        const char *dot = strchr(pattern, '.');
        static const char *const words[] = {
                [CG_APPROVE_REFUSE] = "none", [CG_APPROVE_ACCEPT] = "all", [CG_APPROVE_ASK] = "ask"
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(words); i++) {
                if (strcmp(rule, words[i]) != 0)
                        continue;
                if (a->base_given && a->base != (enum cg_approve_answer)i)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "approval rule \"%s\" contradicts an earlier one: give one of ask, none and all",
                                rule);
                a->base_given = true;
                a->base = (enum cg_approve_answer)i;
                return 0;
        }
        /*
         * "filesystem" alone could mean a server or a tool: a rule about approvals must not be
         * guessed at.
         */
        if (!dot || dot == pattern || !dot[1])
                return cg_fail(err, CG_E_INVAL,
                               "approval rule \"%s\" is neither ask, none, all nor SERVER.TOOL such as "
                               "filesystem.read_* or !filesystem.*",
                               rule);
        return push(a, rule, NULL, rule[0] == '!', err);
}

void cg_approve_set_default(struct cg_approve *a, enum cg_approve_answer def)
{
        if (!a->base_given)
                a->base = def;
}

enum cg_approve_answer cg_approve_base(const struct cg_approve *a)
{
        return a->base;
}

int cg_approve_always(struct cg_approve *a, const char *server, const char *tool, struct cg_err *err)
{
        return push(a, server, tool, false, err);
}

void cg_approve_forget(struct cg_approve *a, const char *server)
{
        size_t n = 0;

        for (size_t i = 0; i < a->n; i++) {
                if (a->rules[i].tool && strcmp(a->rules[i].text, server) == 0) {
                        free(a->rules[i].text);
                        free(a->rules[i].tool);
                } else {
                        a->rules[n++] = a->rules[i];
                }
        }
        a->n = n;
}

/* Linear: on a mismatch only the last '*' takes one more character. */
bool cg_approve_glob(const char *pattern, size_t pattern_len, const char *text, size_t len)
{
        size_t p = 0, t = 0, star = SIZE_MAX, star_t = 0;

        while (t < len) {
                if (p < pattern_len && pattern[p] == '*') {
                        star = p++;
                        star_t = t;
                } else if (p < pattern_len && pattern[p] == '?') {
                        uint32_t cp;
                        size_t n = cg_utf8_next((const unsigned char *)text + t, len - t, &cp);

                        p++;
                        t += n ? n : 1; /* a character, not a byte */
                } else if (p < pattern_len && pattern[p] == text[t]) {
                        p++;
                        t++;
                } else if (star != SIZE_MAX) {
                        p = star + 1;
                        t = ++star_t;
                } else {
                        return false;
                }
        }
        while (p < pattern_len && pattern[p] == '*')
                p++;
        return p == pattern_len;
}

enum cg_approve_answer cg_approve_decide(const struct cg_approve *a, const char *server, const char *tool,
                                         const char **rule)
{
        const struct rule *accepting = NULL;

        if (rule)
                *rule = NULL;
        for (size_t i = 0; i < a->n; i++) {
                const struct rule *r = &a->rules[i];
                const char *pattern = r->text + r->deny;
                /* Names of servers have no dot (cg_mcp_check_name()), those of tools may. */
                const char *dot = strchr(pattern, '.');

                if (r->tool ? strcmp(r->text, server) != 0 || strcmp(r->tool, tool) != 0
                            : !dot ||
                                      !cg_approve_glob(pattern, (size_t)(dot - pattern), server,
                                                       strlen(server)) ||
                                      !cg_approve_glob(dot + 1, strlen(dot + 1), tool, strlen(tool)))
                        continue;
                if (r->deny) {
                        if (rule)
                                *rule = r->text;
                        return CG_APPROVE_REFUSE;
                }
                accepting = accepting ? accepting : r;
        }
        if (!accepting)
                return a->base;
        if (rule)
                *rule = accepting->tool ? "always" : accepting->text;
        return CG_APPROVE_ACCEPT;
}

bool cg_approve_is_plain(const char *s)
{
        return *s &&
               strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == strlen(s);
}

int cg_approve_explain(struct cg_buf *b, const char *server, const char *tool, const char *rule,
                       struct cg_err *err)
{
        int r = rule ? cg_buf_adds(b, "refused by the approval rule ", err)
                     : cg_buf_adds(b, "no approval rule allows ", err);

        if (r == 0 && rule)
                return cg_text_render(b, rule, strlen(rule), 0, err);
        if (r == 0)
                r = cg_text_render(b, server, strlen(server), 0, err);
        if (r == 0)
                r = cg_buf_adds(b, ".", err);
        if (r == 0)
                r = cg_text_render(b, tool, strlen(tool), 0, err);
        if (r == 0 && cg_approve_is_plain(server) && cg_approve_is_plain(tool))
                r = cg_buf_addf(b, err, " (--approve %s.%s would)", server, tool);
        return r;
}
