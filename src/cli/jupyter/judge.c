/*
 * `cellgate jupyter`: rules about tool calls, and what a person at a notebook is shown. Same text
 * as at a terminal.
 */
#include "cli/jupyter/jupyter.h"

#include <inttypes.h>
#include <string.h>
#include "base/json.h"
#include "cli/common/args.h"
#include "cli/common/rule_check.h"

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
                return CG_FRONT_ACCEPT;
        case CG_APPROVE_ASK:
                return CG_FRONT_ASK;
        default:
                cg_approve_explain_verdict(why, &call, &v, cg_approve_explain, NULL);
                return CG_FRONT_REFUSE;
        }
}

static void refused(void *data, const struct cg_event *e)
{
        struct cg_pol_call call = cg_call_of(e);

        cg_approve_refused(data, &call);
}

static int check(void *data, const char *report, const char *mcp, size_t mcp_len, struct cg_buf *notes,
                 struct cg_err *err)
{
        cg_auto_json json_t *servers = mcp ? json_loadb(mcp, mcp_len, JSON_ALLOW_NUL, NULL) : NULL;
        cg_auto_json json_t *known = cg_rules_known(report, servers);

        return known ? cg_rules_check(data, known, notes, err) : cg_fail(err, CG_E_NOMEM, "approval rules");
}

static bool may_last(void *data, const struct cg_event *e)
{
        (void)data;
        return cg_approve_may_last(cg_event_method(e), cg_call_subject(e));
}

static int show(void *data, const struct cg_event *e, size_t part, bool all_shown, const char *digits,
                bool *last, struct cg_buf *text)
{
        struct cg_call_view view = { .width = WIDTH, .lines = part ? PART_LINES : VIEW_LINES, .part = part };
        struct cg_call call = { .server = cg_event_server(e),
                                .tool = cg_event_tool(e),
                                .method = cg_event_method(e),
                                .cell = cg_event_cell(e) };
        int r;

        call.args = cg_event_arguments(e, &call.args_len);
        r = cg_buf_try_addf(text, NULL, "[cellgate] This cell wants to %s:\n", cg_call_title(&call));
        if (r == 0)
                r = cg_call_show(&call, &view, text, NULL);
        *last = view.last;
        if (r == 0 && part && view.parts > 1)
                r = cg_buf_try_addf(text, NULL, "[cellgate] Part %zu of %zu.\n", part, view.parts);
        else if (r == 0 && !view.last)
                r = cg_buf_try_adds(text, "[cellgate] Not all is shown. Yes counts once all was shown.\n",
                                    NULL);
        if (r < 0)
                return r;
        if (!view.last && !all_shown)
                return cg_buf_try_addf(text, NULL, "[cellgate] v shows %s, n no;\n" REASON,
                                       part ? "the next part" : "everything in parts");
        if (!may_last(data, e))
                return cg_buf_try_addf(text, NULL, "[cellgate] Allow? y%s yes, n no;\n" REASON, digits);
        return cg_buf_try_addf(text, NULL,
                               "[cellgate] Allow? y%s yes, n no,\n"
                               "           a%s always for %s in this session;\n" REASON,
                               digits, digits, cg_approve_scope(call.method));
}

static void nobody(void *data, const struct cg_event *e, struct cg_buf *why)
{
        (void)data;
        cg_approve_explain(why, cg_event_server(e), cg_event_method(e), cg_call_subject(e), NULL, NULL);
        cg_buf_try_adds(
                why,
                "; nobody could be asked, since the notebook client shows no questions (allow_stdin) or the cell has"
                " ended. Install the kernel with such a rule: cellgate jupyter install --approve RULE",
                NULL);
}

static void always(void *data, const struct cg_event *e)
{
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
                                        .always = always,
                                        .refused = refused };
}
