/*
 * `cellgate jupyter`: rules about tool calls, and what a person at a notebook is shown. Same text
 * as at a terminal.
 */
#include "cli/jupyter/jupyter.h"

#include "base/installed.h"
#include "base/json.h"
#include "cli/common/args.h"
#include "cli/common/rule_check.h"
#include "config.h"

/* Notebooks break longer lines at any letter. */
#define WIDTH 60
/* Lines of a view of a call. */
#define VIEW_LINES 40
#define PART_LINES 150
#define REASON     "           any other text refuses and is the reason: "

static enum cg_front_answer decide(void *data, const struct cg_event *e, struct cg_buf *why)
{
        struct cg_pol_call call = cg_call_of(e);
        struct cg_approve_verdict v;

        switch (cg_approve_judge(data, &call, &v)) {
        case CG_APPROVE_ACCEPT:
                cg_approve_explain_verdict(why, &call, &v, cg_approve_explain);
                return CG_FRONT_ACCEPT;
        case CG_APPROVE_ASK:
                return CG_FRONT_ASK;
        default:
                cg_approve_explain_verdict(why, &call, &v, cg_approve_explain);
                return CG_FRONT_REFUSE;
        }
}

static void accepted(void *data, const struct cg_event *e)
{
        struct cg_pol_call call = cg_call_of(e);

        cg_approve_accepted(data, &call);
}

static void refused(void *data, const struct cg_event *e)
{
        struct cg_pol_call call = cg_call_of(e);

        cg_approve_refused(data, &call);
}

static int check(void *data, const char *report, const char *mcp, size_t mcp_len, struct cg_buf *notes,
                 struct cg_err *err)
{
        cg_auto_json json_t *servers = json_loadb(mcp, mcp_len, JSON_ALLOW_NUL, NULL);
        cg_auto_json json_t *known = cg_rules_known(report, servers);

        cg_approve_set_servers(data, servers, CG_INSTALLED(CG_BINDIR "/cellgate"));
        return cg_rules_check(data, known, notes, err);
}

static bool may_last(void *data, const struct cg_event *e)
{
        return cg_approve_may_last(cg_event_method(e), cg_call_subject(e));
}

static bool may_repeat(void *data, const struct cg_event *e)
{
        return may_last(data, e) && cg_approve_has_arguments(cg_event_method(e));
}

static int show(void *data, const struct cg_event *e, size_t part, bool all_shown, const char *digits,
                bool *last, struct cg_buf *text)
{
        struct cg_call_view view = { .width = WIDTH, .lines = part ? PART_LINES : VIEW_LINES, .part = part };
        struct cg_call call = cg_call_asked(e);

        cg_buf_addf(text, "[cellgate] This cell wants to %s:\n", cg_call_words(call.method)->title);
        cg_call_show(&call, &view, text);
        *last = view.last;
        if (part && view.parts > 1)
                cg_buf_addf(text, "[cellgate] Part %zu of %zu.\n", part, view.parts);
        else if (!view.last)
                cg_buf_adds(text, "[cellgate] Not all is shown. Yes counts once all was shown.\n");
        if (!view.last && !all_shown) {
                cg_buf_addf(text, "[cellgate] v shows %s, n no",
                            part ? "the next part" : "everything in parts");
        } else {
                cg_buf_addf(text, "[cellgate] Allow? y%s yes, n no", digits);
                if (may_repeat(data, e))
                        cg_buf_addf(text, ",\n           s%s always with the same arguments", digits);
                if (may_last(data, e))
                        cg_buf_addf(text, ",\n           a%s always for %s in this session", digits,
                                    cg_call_words(call.method)->scope);
        }
        cg_buf_adds(text, ";\n" REASON);
        return cg_buf_end(text, NULL);
}

static void nobody(void *data, const struct cg_event *e, struct cg_buf *why)
{
        cg_approve_explain(why, cg_event_server(e), cg_event_method(e), cg_call_subject(e), NULL);
        cg_buf_adds(
                why,
                "; nobody could be asked, since the notebook client shows no questions (allow_stdin) or the cell has"
                " ended. Install the kernel with such a rule: cellgate jupyter install --approve RULE");
}

static void always(void *data, const struct cg_event *e, bool same)
{
        struct cg_pol_call call = cg_call_of(e);

        if (same)
                cg_approve_always_same(data, &call, NULL);
        else
                cg_approve_always(data, cg_event_server(e), cg_event_method(e), cg_call_subject(e), NULL);
}

struct cg_front_judge cg_jup_judge(struct cg_approve *rules)
{
        return (struct cg_front_judge){ .data = rules,
                                        .decide = decide,
                                        .check = check,
                                        .show = show,
                                        .may_last = may_last,
                                        .nobody = nobody,
                                        .may_repeat = may_repeat,
                                        .always = always,
                                        .accepted = accepted,
                                        .refused = refused };
}
