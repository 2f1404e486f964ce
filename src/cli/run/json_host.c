/*
 * Lines of the host of `cellgate run --json`: decisions, answers, functions and variables. Those
 * about cells are in json.c, those about commands and files in json_beside.c.
 */
#include <stdlib.h>
#include <string.h>
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

/* "approval": the number of what is decided; 0: none. */
static uint64_t number_of(const json_t *o)
{
        json_int_t n = json_integer_value(json_object_get(o, "approval"));

        return n > 0 ? (uint64_t)n : 0;
}

/* The outcome of a decision. One that was not accepted may be given again. */
static int decided(struct cg_run *run, uint64_t n, int r, const struct cg_err *why, struct cg_err *err)
{
        if (r == 0)
                cg_json_forget(cg_json_of(run), n); /* not before: a connection with that number waits on */
        return cg_json_outcome(run, r, why, err);
}

int cg_json_decide(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *accept = json_object_get(o, "accept");
        const json_t *reason = json_object_get(o, "reason");
        size_t members = 2 + (reason != NULL);
        struct cg_err why;
        uint64_t n = number_of(o);
        int r;

        if (!n || !json_is_boolean(accept) || json_object_size(o) != members ||
            (reason && !json_is_string(reason)))
                return cg_json_input_error(
                        run,
                        "a decision is {\"approval\": NUMBER, \"accept\": true or false} and, if refused, "
                        "\"reason\": TEXT",
                        err);
        if (json_is_true(accept))
                r = cg_approval_accept(run->session, n, &why);
        else
                r = cg_approval_reject(run->session, n, json_string_value(reason), &why);
        return decided(run, n, r, &why, err);
}

int cg_json_decide_egress(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *reason = json_object_get(o, "reason");
        static const char *const words[] = {
                [CG_EGRESS_ALLOW_ONCE] = "allow_once",
                [CG_EGRESS_ALLOW_SESSION] = "allow_session",
                [CG_EGRESS_DENY_ONCE] = "deny_once",
                [CG_EGRESS_DENY_SESSION] = "deny_session",
        };
        const char *word = json_string_value(json_object_get(o, "egress"));
        size_t members = 2 + (reason != NULL), decision = 0;
        struct cg_err why;
        uint64_t n = number_of(o);
        int r;

        while (word && decision < CG_ARRAY_LEN(words) && strcmp(words[decision], word) != 0)
                decision++;
        if (!n || !word || decision == CG_ARRAY_LEN(words) || json_object_size(o) != members ||
            (reason && !json_is_string(reason)))
                return cg_json_input_error(
                        run,
                        "a decision about a connection is {\"approval\": NUMBER, \"egress\": \"allow_once\","
                        " \"allow_session\", \"deny_once\" or \"deny_session\"} and, if refused, \"reason\": TEXT",
                        err);
        r = cg_egress_decide(run->session, n, (enum cg_egress_decision)decision, json_string_value(reason),
                             &why);
        return decided(run, n, r, &why, err);
}

/* The answer to what an MCP server asks for; one that is not accepted may be given again. */
int cg_json_answer_server(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *result = json_object_get(o, "result");
        bool decline = !result && json_is_true(json_object_get(o, "decline"));
        cg_auto_free char *text = NULL;
        struct cg_err why;
        uint64_t n = number_of(o);

        if (!n || json_object_size(o) != 2 || !(decline || json_is_object(result)))
                return cg_json_input_error(
                        run,
                        "an answer to server_request is {\"approval\": NUMBER, \"result\": {...}} or"
                        " {\"approval\": NUMBER, \"decline\": true}",
                        err);
        if (decline)
                return decided(run, n, cg_server_request_decline(run->session, n, &why), &why, err);
        text = json_dumps(result, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "answer");
        return decided(run, n, cg_server_request_answer(run->session, n, text, &why), &why, err);
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
        const json_t *back = json_object_get(o, "return"), *v = NULL;
        cg_auto_free char *text = NULL;
        struct cg_err why;
        size_t i = 0;
        uint64_t n = number_of(o);
        int r;

        while (i < CG_ARRAY_LEN(outcomes) && !(v = json_object_get(back, outcomes[i].name)))
                i++;
        if (!n || json_object_size(o) != 2 || !v || json_object_size(back) != 1 ||
            (outcomes[i].outcome >= CG_FUNCTION_ERROR && !json_is_string(v)))
                return cg_json_input_error(
                        run,
                        "an answer to function_call is {\"approval\": NUMBER, \"return\": {\"value\": JSON}}, or in place of"
                        " \"value\" a \"result\": {...}, an \"error\": TEXT or \"refuse\": TEXT",
                        err);
        if (outcomes[i].outcome >= CG_FUNCTION_ERROR) {
                r = cg_function_return(run->session, n, outcomes[i].outcome, json_string_value(v),
                                       json_string_length(v), &why);
        } else {
                text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "answer");
                r = cg_function_return(run->session, n, outcomes[i].outcome, text, strlen(text), &why);
        }
        return decided(run, n, r, &why, err);
}

/* Functions of the host. The event is written once cells can call them. */
int cg_json_add_functions(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *name = json_object_get(o, "name"), *tools = json_object_get(o, "tools"),
                     *ask = json_object_get(o, "ask"), *id = json_object_get(o, "id");
        size_t members = 2 + (ask != NULL) + (id != NULL);
        struct cg_functions_options opts = { .size = sizeof(opts), .ask = json_is_true(ask) };
        cg_auto_free char *text = NULL, *report = NULL;
        struct cg_buf l;
        struct cg_err why;

        if (!json_is_string(name) || !json_is_array(tools) || (ask && !json_is_boolean(ask)) ||
            (id && !cg_json_of(run)->line_id) || json_object_size(o) != members)
                return cg_json_input_error(
                        run,
                        "to add functions is {\"add_functions\": {\"name\": TEXT, \"tools\": [...]}}, with \"ask\": true or"
                        " false, and \"id\", where wanted",
                        err);
        text = json_dumps(tools, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "functions");
        if (cg_session_add_functions(run->session, json_string_value(name), text, strlen(text), &opts,
                                     &report, &why) < 0)
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
        const json_t *text = json_object_get(o, "input"), *question = json_object_get(o, "question");
        size_t members = 1 + (question != NULL);
        struct cg_err why;
        int r;

        if (!(json_is_string(text) || json_is_null(text)) || (question && !json_is_integer(question)) ||
            json_object_size(o) != members)
                return cg_json_input_error(
                        run,
                        "an answer to input_request is {\"input\": TEXT}, or null for end of file, and, to answer no other"
                        " one, its \"question\": NUMBER",
                        err);
        if (question && !(j->question_open && json_integer_value(question) == j->question))
                return cg_json_input_error(
                        run, "no input_request with this question number waits for an answer (any more)",
                        err);
        r = cg_session_input(run->session, json_string_value(text), json_string_length(text), &why);
        if (r == 0)
                j->question_open = false;
        return cg_json_outcome(run, r, &why, err);
}
