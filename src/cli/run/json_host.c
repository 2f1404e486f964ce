/*
 * Lines of the host of `cellgate run --json`: decisions, answers, functions and variables. Those
 * about cells are in json.c, those about commands and files in json_beside.c.
 */
#include "base/json.h"
#include "cli/run/json_int.h"
#include "cli/run/run.h"

struct json *cg_json_of(const struct cg_run *run)
{
        return run->output_data;
}

void cg_json_forget(struct json *j, uint64_t approval)
{
        for (size_t i = 0; i < j->n_asked; i++)
                if (cg_event_approval(j->asked[i]) == approval) {
                        cg_event_free(j->asked[i]);
                        j->asked[i] = j->asked[--j->n_asked];
                        return;
                }
}

int cg_json_input_error(struct cg_run *run, const char *text, struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_answer(&l, "input_error", cg_json_of(run)->line_id, cg_json_of(run)->line);
        cg_json_line_text(&l, "text", text);
        return cg_json_line_end(run, &l, err);
}

int cg_json_outcome(struct cg_run *run, int r, const struct cg_err *why, struct cg_err *err)
{
        return r < 0 ? cg_json_input_error(run, why->msg, err) : 0;
}

/* The outcome of a decision. One that was not accepted may be given again. */
static int decided(struct cg_run *run, json_int_t n, int r, const struct cg_err *why, struct cg_err *err)
{
        if (r == 0) /* not before: a connection with that number waits on */
                cg_json_forget(cg_json_of(run), (uint64_t)n);
        return cg_json_outcome(run, r, why, err);
}

int cg_json_decide(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const char *reason = NULL;
        struct cg_err why;
        json_int_t n;
        int accept, r;

        if (json_unpack(cg_json_unconst(o), "{s:I, s:b, s?s !}", "approval", &n, "accept", &accept, "reason",
                        &reason) < 0 ||
            n < 1)
                return cg_json_input_error(
                        run,
                        "a decision is {\"approval\": NUMBER, \"accept\": true or false} and, if refused, "
                        "\"reason\": TEXT",
                        err);
        if (accept)
                r = cg_approval_accept(run->session, (uint64_t)n, &why);
        else
                r = cg_approval_reject(run->session, (uint64_t)n, reason, &why);
        return decided(run, n, r, &why, err);
}

int cg_json_decide_egress(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const char *const words[] = {
                [CG_EGRESS_ALLOW_ONCE] = "allow_once",
                [CG_EGRESS_ALLOW_SESSION] = "allow_session",
                [CG_EGRESS_DENY_ONCE] = "deny_once",
                [CG_EGRESS_DENY_SESSION] = "deny_session",
        };
        const char *word = "", *reason = NULL;
        size_t decision = 0;
        struct cg_err why;
        json_int_t n;
        int r = json_unpack(cg_json_unconst(o), "{s:I, s:s, s?s !}", "approval", &n, "egress", &word,
                            "reason", &reason);

        while (decision < CG_ARRAY_LEN(words) && strcmp(words[decision], word) != 0)
                decision++;
        if (r < 0 || n < 1 || decision == CG_ARRAY_LEN(words))
                return cg_json_input_error(
                        run,
                        "a decision about a connection is {\"approval\": NUMBER, \"egress\": \"allow_once\","
                        " \"allow_session\", \"deny_once\" or \"deny_session\"} and, if refused, \"reason\": TEXT",
                        err);
        r = cg_egress_decide(run->session, (uint64_t)n, (enum cg_egress_decision)decision, reason, &why);
        return decided(run, n, r, &why, err);
}

/* The answer to what an MCP server asks for; one that is not accepted may be given again. */
int cg_json_answer_server(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        json_t *result = NULL;
        struct cg_err why;
        int decline = 0;
        json_int_t n;

        if (json_unpack(cg_json_unconst(o), "{s:I, s?o, s?b !}", "approval", &n, "result", &result, "decline",
                        &decline) < 0 ||
            n < 1 || json_object_size(o) != 2 || !(decline || json_is_object(result)))
                return cg_json_input_error(
                        run,
                        "an answer to server_request is {\"approval\": NUMBER, \"result\": {...}} or"
                        " {\"approval\": NUMBER, \"decline\": true}",
                        err);
        if (decline)
                return decided(run, n, cg_server_request_decline(run->session, (uint64_t)n, &why), &why, err);
        text = json_dumps(result, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "answer");
        return decided(run, n, cg_server_request_answer(run->session, (uint64_t)n, text, &why), &why, err);
}

/* The answer to a function_call; one that is not accepted may be given again. */
int cg_json_function_return(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const struct {
                const char *name;
                enum cg_function_outcome outcome;
        } outcomes[] = { { "value", CG_FUNCTION_VALUE },
                         { "result", CG_FUNCTION_RESULT },
                         { "error", CG_FUNCTION_ERROR },
                         { "refuse", CG_FUNCTION_REFUSED } };
        cg_auto_free char *text = NULL;
        const json_t *v = NULL;
        json_t *back = NULL;
        struct cg_err why;
        size_t i = 0;
        json_int_t n;
        int r = json_unpack(cg_json_unconst(o), "{s:I, s:o !}", "approval", &n, "return", &back);

        while (i < CG_ARRAY_LEN(outcomes) && !(v = json_object_get(back, outcomes[i].name)))
                i++;
        if (r < 0 || n < 1 || !v || json_object_size(back) != 1 ||
            (outcomes[i].outcome >= CG_FUNCTION_ERROR && !json_is_string(v)))
                return cg_json_input_error(
                        run,
                        "an answer to function_call is {\"approval\": NUMBER, \"return\": {\"value\": JSON}}, or in place of"
                        " \"value\" a \"result\": {...}, an \"error\": TEXT or \"refuse\": TEXT",
                        err);
        if (outcomes[i].outcome >= CG_FUNCTION_ERROR) {
                r = cg_function_return(run->session, (uint64_t)n, outcomes[i].outcome, json_string_value(v),
                                       json_string_length(v), &why);
        } else {
                text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "answer");
                r = cg_function_return(run->session, (uint64_t)n, outcomes[i].outcome, text, strlen(text),
                                       &why);
        }
        return decided(run, n, r, &why, err);
}

/* Functions of the host. The event is written once cells can call them. */
int cg_json_add_functions(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct cg_functions_options opts = { .size = sizeof(opts) };
        cg_auto_free char *text = NULL, *report = NULL;
        json_t *tools = NULL, *id = NULL;
        const char *name;
        struct cg_buf l;
        struct cg_err why;
        int ask = 0;

        if (json_unpack(cg_json_unconst(o), "{s:s, s:o, s?b, s?o !}", "name", &name, "tools", &tools, "ask",
                        &ask, "id", &id) < 0 ||
            !json_is_array(tools) || (id && !cg_json_of(run)->line_id))
                return cg_json_input_error(
                        run,
                        "to add functions is {\"add_functions\": {\"name\": TEXT, \"tools\": [...]}}, with \"ask\": true or"
                        " false, and \"id\", where wanted",
                        err);
        opts.ask = ask;
        text = json_dumps(tools, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "functions");
        if (cg_session_add_functions(run->session, name, text, strlen(text), &opts, &report, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        cg_json_line_answer(&l, "functions_added", cg_json_of(run)->line_id, cg_json_of(run)->line);
        cg_json_line_object(&l, "functions", report, strlen(report));
        return cg_json_line_end(run, &l, err);
}

/* The answer is a REPLY. */
static int ask_variables(struct cg_run *run, const char *type, const char *const *members, const json_t *o,
                         struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        cg_auto_json json_t *content = json_object();
        const json_t *timeout = json_object_get(o, "timeout"), *id = json_object_get(o, "id"), *v;
        struct cg_request_options opts = { .size = sizeof(opts) };
        size_t n = (timeout != NULL) + (id != NULL);
        cg_auto_free char *text = NULL;
        struct asked_variables *a;
        struct cg_err why;

        for (; *members; members++) {
                v = json_object_get(o, *members);
                n += v != NULL;
                if (v && json_object_set(content, *members, cg_json_unconst(v)) < 0)
                        return cg_fail(err, CG_E_NOMEM, "variables");
        }
        if (!json_is_object(o) || json_object_size(o) != n || (id && !j->line_id) ||
            cg_cell_timeout(timeout, &opts.timeout_ms, NULL) < 0)
                return cg_json_input_error(
                        run,
                        "about variables are {\"set_variables\": {\"variables\": {NAME: JSON}}} and {\"get_variables\": "
                        "{\"names\": [NAME], \"lossy\": false}}, with \"id\" and \"timeout\" (seconds), where wanted",
                        err);
        if (j->ending)
                return cg_json_input_error(run, "no request about variables is accepted after {\"end\"}",
                                           err);
        if (j->n_variables == CG_JSON_MAX_VARIABLES)
                return cg_json_input_error(
                        run, "64 requests about variables are under way: wait for an answer", err);
        text = json_dumps(content, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "variables");
        a = &j->variables[j->n_variables];
        *a = (struct asked_variables){ .line = j->line };
        if (cg_session_request(run->session, type, text, strlen(text), &opts, &a->number, &why) < 0)
                return cg_json_input_error(run, why.msg, err);
        a->id = CG_STEAL(j->line_id);
        j->n_variables++;
        j->stay = true;
        return 0;
}

int cg_json_set_variables(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const char *const members[] = { "variables", NULL };

        return ask_variables(run, "set_variables", members, o, err);
}

int cg_json_get_variables(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const char *const members[] = { "names", "lossy", NULL };

        return ask_variables(run, "get_variables", members, o, err);
}

int cg_json_cancel(struct cg_run *run, const json_t *cell, struct cg_err *err)
{
        struct cg_err why;

        if (!json_is_integer(cell) || json_integer_value(cell) < 0)
                return cg_json_input_error(
                        run,
                        "to cancel is {\"cancel\": NUMBER}, the number of a cell, or 0 for the one that runs",
                        err);
        return cg_json_outcome(run, cg_session_cancel(run->session, (uint64_t)json_integer_value(cell), &why),
                               &why, err);
}

/* An answer that names its question is never given to a later one. */
int cg_json_give_input(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = cg_json_of(run);
        json_int_t question = -1;
        json_t *text = NULL;
        struct cg_err why;
        int r;

        if (json_unpack(cg_json_unconst(o), "{s:o, s?I !}", "input", &text, "question", &question) < 0 ||
            !(json_is_string(text) || json_is_null(text)))
                return cg_json_input_error(
                        run,
                        "an answer to input_request is {\"input\": TEXT}, or null for end of file, and, to answer no other"
                        " one, its \"question\": NUMBER",
                        err);
        if (json_object_get(o, "question") && !(j->question_open && question == j->question))
                return cg_json_input_error(
                        run, "no input_request with this question number waits for an answer (any more)",
                        err);
        r = cg_session_input(run->session, json_string_value(text), json_string_length(text), &why);
        if (r == 0)
                j->question_open = false;
        return cg_json_outcome(run, r, &why, err);
}
