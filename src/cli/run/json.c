/*
 * `cellgate run --json`: events as lines on standard output, cells and decisions as lines on
 * standard input. docs/cli-json.md is its description. Runs in the command `cellgate`; the program
 * at the other end is the host, and trusted, but its lines are checked all the same: one that is
 * not understood decides nothing.
 *
 * Every line is ASCII and one JSON object. Text from a kernel or an MCP server is in separate
 * members ("content", "arguments", "text"), so that it can never set a member of ours.
 */
#include "cli/run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "cli/common/args.h"
#include "cli/run/cell_queue.h"
#include "cli/run/json_beside.h"
#include "cli/run/json_line.h"
#include "cli/common/denials.h"
#include "cli/common/pretty.h"

/* A cell of the largest size, in JSON that escapes little of it. */
#define MAX_LINE ((size_t)CG_MAX_CODE + CG_MAX_BODY)
/* Up to this size a call's arguments are described in full; at a terminal the limit is lower. */
#define SHOW_WHOLE ((size_t)64 << 10)
#define SHOW_WIDTH 100
/* Requests about variables under way. */
#define MAX_VARIABLES 64
/* Ten years, as for --timeout. */
#define MAX_SECONDS 315360000.0

/*
 * A request that waits for the host's decision. Calls and connections share one series of numbers.
 */
struct asked {
        uint64_t id;
        enum cg_event_type type; /* of the event that asked */
};

/* A request about variables that has not been answered. */
struct asked_variables {
        uint64_t number, line;
        char *id; /* JSON text, or NULL */
};

struct json {
        struct cg_buf in; /* an unfinished line */
        uint64_t line;    /* lines read */
        bool skipping;    /* the rest of a line that is too long */
        bool eof;
        struct asked *asked;
        size_t n_asked;
        int64_t question;   /* number of the last input_request */
        bool question_open; /* it has been neither answered nor taken back */
        struct cg_cell_queue queue;
        /* of the queue; NULL: no cell, or one of the command line */
        struct cg_queued_cell *running;
        bool stay;             /* the run goes on when no cell is left */
        bool failed;           /* the last cell that has ended did not end well */
        bool ending;           /* the host has announced that it sends no more cells */
        bool not_run_reported; /* report_not_run() was called */
        char *line_id;         /* the id in the host's line that is being handled, or NULL */
        uint64_t reset_line;   /* of a reset that was done but not yet reported; 0: none */
        char *reset_id;
        struct cg_beside *beside; /* commands and file operations */
        struct asked_variables variables[MAX_VARIABLES];
        size_t n_variables;
};

static const char input_ended[] = "the host's input has ended: nobody can approve";

static struct json *json_of(const struct cg_run *run)
{
        return run->output_data;
}

/* ------------------------------------------------------------------ events */

static void forget_asked(struct json *j, uint64_t approval)
{
        for (size_t i = 0; i < j->n_asked; i++)
                if (j->asked[i].id == approval) {
                        j->asked[i] = j->asked[--j->n_asked];
                        return;
                }
}

/* The host's input has ended, or the run was interrupted. */
static int refuse(struct cg_run *run, struct asked a, const char *why, struct cg_err *err)
{
        if (a.type == CG_EVENT_SERVER_REQUEST) {
                int r = cg_server_request_decline(run->session, a.id, err);

                return r == CG_E_NOTFOUND ? 0 : r;
        }
        if (a.type == CG_EVENT_FUNCTION_CALL) {
                int r = cg_function_return(run->session, a.id, CG_FUNCTION_REFUSED, why, strlen(why), err);

                return r == CG_E_NOTFOUND ? 0 : r;
        }
        if (a.type == CG_EVENT_EGRESS_REQUEST)
                return cg_run_answer_egress(run, a.id, CG_EGRESS_DENY_ONCE, why, err);
        return cg_run_answer(run, a.id, false, why, err);
}

static void add_call(struct cg_json_line *l, const struct cg_event *e)
{
        const char *args;
        size_t len;

        cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
        cg_json_line_string(l, "server", cg_event_server(e), strlen(cg_event_server(e)));
        if (*cg_event_method(e))
                cg_json_line_string(l, "method", cg_event_method(e), strlen(cg_event_method(e)));
        cg_json_line_string(l, "tool", cg_event_tool(e), strlen(cg_event_tool(e)));
        args = cg_event_arguments(e, &len);
        cg_json_line_object(l, "arguments", args, len);
}

/* Text of a call or connection that is safe to print, the same as at the terminal. */
static void add_shown(struct cg_json_line *l, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 8 };
        struct cg_call call = { .cell = cg_event_cell(e) };
        bool cut = false;

        if (l->r < 0)
                return;
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                l->r = cg_connection_text(cg_event_json(e, NULL), &b, &l->err);
        } else {
                call.server = cg_event_server(e);
                call.tool = cg_event_tool(e);
                call.method = cg_event_method(e);
                call.args = cg_event_arguments(e, &call.args_len);
                l->r = cg_call_show(&call, SHOW_WIDTH, call.args_len <= SHOW_WHOLE, &b, &cut, &l->err);
        }
        cg_json_line_string(l, "shown", b.data ? b.data : "", b.len);
        cg_json_line_bool(l, "shown_whole", !cut);
}

/* The members of a result, whether the cell has run or was dropped from the queue. */
static void add_result(struct cg_json_line *l, enum cg_status status, int64_t execution_count, bool refused,
                       const char *text, size_t len)
{
        const char *name = cg_status_name(status);

        cg_json_line_string(l, "status", name, strlen(name));
        cg_json_line_int(l, "execution_count", execution_count);
        cg_json_line_bool(l, "refused", refused);
        cg_json_line_string(l, "text", text, len);
}

static void add_variables(struct cg_json_line *l, const struct cg_event *e)
{
        cg_auto_json json_t *content = NULL;
        cg_auto_free char *text = NULL;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (l->r < 0 || len <= 2)
                return;
        content = json_loadb(json, len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(json_object_get(content, "variables")))
                return;
        text = json_dumps(json_object_get(content, "variables"), JSON_COMPACT);
        if (!text)
                l->r = cg_fail(&l->err, CG_E_NOMEM, "variables");
        else
                cg_json_line_object(l, "variables", text, strlen(text));
}

static void add_costs(struct cg_json_line *l, const struct cg_event *e)
{
        struct cg_costs c = { .size = sizeof(c) };
        cg_auto_buf struct cg_buf b = { .max = 1024 };

        if (l->r < 0 || cg_event_costs(e, &c) < 0)
                return;
        const struct {
                const char *name;
                int64_t value;
        } members[] = {
                { "wall_us", c.wall_us },           { "cpu_us", c.cpu_us },
                { "memory_bytes", c.memory_bytes }, { "written_bytes", c.written_bytes },
                { "tool_calls", c.tool_calls },     { "commands", c.commands },
                { "connections", c.connections },   { "denials", c.denials },
        };
        l->r = cg_buf_addf(&b, &l->err, "{\"shared\":%s", c.shared ? "true" : "false");
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                if (l->r == 0 && members[i].value >= 0)
                        l->r = cg_buf_addf(&b, &l->err, ",\"%s\":%" PRId64, members[i].name,
                                           members[i].value);
        if (l->r == 0)
                l->r = cg_buf_adds(&b, "}", &l->err);
        if (l->r == 0)
                cg_json_line_json(l, "costs", b.data);
}

/*
 * Members after type and cell; each type of event has its few. @question: the number of the last
 * question of input().
 */
static void add_members(struct cg_json_line *l, const struct cg_event *e, int64_t question)
{
        const char *text, *json;
        size_t len, json_len;

        text = cg_event_text(e, &len);
        json = cg_event_json(e, &json_len);
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                cg_json_line_string(l, "name", cg_event_is_stderr(e) ? "stderr" : "stdout", 6);
                cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_EXECUTE_RESULT:
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_CLEAR_OUTPUT:
        case CG_EVENT_ERROR:
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_INPUT_REQUEST:
        case CG_EVENT_INPUT_CLOSED:
                cg_json_line_int(l, "question", question);
                if (cg_event_type(e) == CG_EVENT_INPUT_REQUEST)
                        cg_json_line_object(l, "content", json, json_len);
                else
                        cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                add_call(l, e);
                add_shown(l, e);
                break;
        case CG_EVENT_FUNCTION_CALL:
                add_call(l, e);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_object(l, "content", json, json_len);
                add_shown(l, e);
                break;
        case CG_EVENT_PROGRESS:
                cg_json_line_string(l, "text", text, len);
                if (json_len > 2) /* of a call */
                        cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_DENIED:
                cg_json_line_string(l, "text", text, len);
                cg_json_line_object(l, "content", json, json_len);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_json_line_int(l, "approval", (int64_t)cg_event_approval(e));
                cg_json_line_string(l, "text", text, len);
                break;
        case CG_EVENT_RESULT:
                add_result(l, cg_event_status(e), cg_event_execution_count(e), cg_event_refused(e), text,
                           len);
                add_costs(l, e);
                break;
        default:
                cg_json_line_string(l, "text", text, len);
                break;
        }
}

/*
 * The host's id of the cell that runs; NULL: the event is of no cell or an earlier one, or there is
 * no id.
 */
static const char *id_of(const struct cg_run *run, uint64_t cell)
{
        const struct cg_queued_cell *c = json_of(run)->running;

        return c && cell && cell == run->cell ? c->id : NULL;
}

static int write_event(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        struct cg_json_line l;
        const char *artifacts;
        size_t len;

        cg_json_line_begin(&l, cg_event_type_name(cg_event_type(e)), cg_event_cell(e));
        cg_json_line_json(&l, "id", id_of(run, cg_event_cell(e)));
        add_members(&l, e, json_of(run)->question);
        if (cg_event_type(e) == CG_EVENT_RESULT && json_of(run)->running &&
            json_of(run)->running->cell.variables)
                add_variables(&l, e);
        artifacts = cg_event_artifacts(e, &len);
        if (artifacts)
                cg_json_line_object(&l, "artifacts", artifacts, len);
        return cg_json_line_end(run, &l, err);
}

/* The answer to a line about variables. */
static int write_variables(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        struct json *j = json_of(run);
        struct asked_variables a;
        struct cg_json_line l;
        const char *content;
        size_t i = 0, len;
        int r;

        while (i < j->n_variables && j->variables[i].number != cg_event_cell(e))
                i++;
        if (i == j->n_variables)
                return 0;
        a = j->variables[i];
        j->variables[i] = j->variables[--j->n_variables];
        content = cg_event_json(e, &len);
        cg_json_line_begin(&l, "variables", 0);
        cg_json_line_json(&l, "id", a.id);
        cg_json_line_int(&l, "line", (int64_t)a.line);
        cg_json_line_object(&l, "content", content, len);
        r = cg_json_line_end(run, &l, err);
        free(a.id);
        return r;
}

static int json_event(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct json *j = json_of(run);
        bool asks = cg_event_type(e) == CG_EVENT_INPUT_REQUEST;
        int r;

        if (cg_event_type(e) == CG_EVENT_COMMAND_OUTPUT || cg_event_type(e) == CG_EVENT_COMMAND_RESULT) {
                r = cg_beside_event(j->beside, e, err);
                cg_event_free(e);
                return r;
        }
        if (cg_event_type(e) == CG_EVENT_REPLY) {
                r = write_variables(run, e, err);
                cg_event_free(e);
                return r;
        }
        j->question += asks;
        j->question_open = asks || (j->question_open && cg_event_type(e) != CG_EVENT_INPUT_CLOSED &&
                                    !(cg_event_type(e) == CG_EVENT_RESULT && cg_event_cell(e) == run->cell));
        r = write_event(run, e, err);
        if (cg_event_type(e) == CG_EVENT_APPROVAL_CLOSED)
                forget_asked(j, cg_event_approval(e));
        if (r == 0 && asks && j->eof)
                r = cg_session_input(run->session, NULL, 0, err);
        if (cg_event_type(e) == CG_EVENT_RESULT && cg_event_cell(e) == run->cell)
                j->failed = cg_event_status(e) != CG_STATUS_OK;
        cg_run_result(run, e);
        cg_event_free(e);
        return r;
}

static int json_decided(struct cg_run *run, const struct cg_event *e, bool accept, const char *why,
                        struct cg_err *err)
{
        struct cg_json_line l;

        cg_json_line_begin(&l, "approval_decided", cg_event_cell(e));
        cg_json_line_json(&l, "id", id_of(run, cg_event_cell(e)));
        cg_json_line_bool(&l, "accept", accept);
        if (why)
                cg_json_line_string(&l, "reason", why, strlen(why));
        add_call(&l, e);
        return cg_json_line_end(run, &l, err);
}

static int json_ask(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct json *j = json_of(run);
        struct asked a = { cg_event_approval(e), cg_event_type(e) }, *grown;
        int r;

        if (j->eof) {
                r = refuse(run, a, input_ended, err);
                if (r == 0 && a.type == CG_EVENT_APPROVAL_REQUEST) /* DENIED reports connections */
                        r = json_decided(run, e, false, input_ended, err);
        } else {
                grown = realloc(j->asked, (j->n_asked + 1) * sizeof(*grown));
                if (grown) {
                        j->asked = grown;
                        j->asked[j->n_asked++] = a;
                }
                r = grown ? write_event(run, e, err) : cg_fail(err, CG_E_NOMEM, "approvals");
        }
        cg_event_free(e);
        return r;
}

/* ------------------------------------------------------------------ the host's lines */

/* Reports that the current line was not understood or came too late. It has decided nothing. */
static int input_error(struct cg_run *run, const char *text, struct cg_err *err)
{
        struct cg_json_line l;

        cg_json_line_begin(&l, "input_error", 0);
        cg_json_line_json(&l, "id", json_of(run)->line_id);
        cg_json_line_int(&l, "line", (int64_t)json_of(run)->line);
        cg_json_line_string(&l, "text", text, strlen(text));
        return cg_json_line_end(run, &l, err);
}

/* A host's mistake is answered by an input_error; only a lost session ends the run. */
static int outcome(struct cg_run *run, int r, const struct cg_err *why, struct cg_err *err)
{
        return r < 0 ? input_error(run, why->msg, err) : 0;
}

static int decide(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *id = json_object_get(o, "approval"), *accept = json_object_get(o, "accept");
        const json_t *reason = json_object_get(o, "reason");
        size_t members = 2 + (reason != NULL);
        struct cg_err why;
        uint64_t n;
        int r;

        if (!json_is_integer(id) || json_integer_value(id) <= 0 || !json_is_boolean(accept) ||
            json_object_size(o) != members || (reason && !json_is_string(reason)))
                return input_error(
                        run,
                        "a decision is {\"approval\": NUMBER, \"accept\": true or false} and, if refused, "
                        "\"reason\": TEXT",
                        err);
        n = (uint64_t)json_integer_value(id);
        r = json_is_true(accept) ? cg_approval_accept(run->session, n, &why)
                                 : cg_approval_reject(run->session, n, json_string_value(reason), &why);
        if (r == 0)
                forget_asked(json_of(run), n); /* not before: a connection with that number waits on */
        return outcome(run, r, &why, err);
}

static int decide_egress(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *id = json_object_get(o, "approval"), *reason = json_object_get(o, "reason");
        static const char *const words[] = {
                [CG_EGRESS_ALLOW_ONCE] = "allow_once",
                [CG_EGRESS_ALLOW_SESSION] = "allow_session",
                [CG_EGRESS_DENY_ONCE] = "deny_once",
                [CG_EGRESS_DENY_SESSION] = "deny_session",
        };
        const char *word = json_string_value(json_object_get(o, "egress"));
        size_t members = 2 + (reason != NULL), decision = 0;
        struct cg_err why;
        uint64_t n;
        int r;

        while (word && decision < CG_ARRAY_LEN(words) && strcmp(words[decision], word) != 0)
                decision++;
        if (!json_is_integer(id) || json_integer_value(id) <= 0 || !word || decision == CG_ARRAY_LEN(words) ||
            json_object_size(o) != members || (reason && !json_is_string(reason)))
                return input_error(
                        run,
                        "a decision about a connection is {\"approval\": NUMBER, \"egress\": \"allow_once\","
                        " \"allow_session\", \"deny_once\" or \"deny_session\"} and, if refused, \"reason\": TEXT",
                        err);
        n = (uint64_t)json_integer_value(id);
        r = cg_egress_decide(run->session, n, (enum cg_egress_decision)decision, json_string_value(reason),
                             &why);
        if (r == 0)
                forget_asked(json_of(run), n);
        return outcome(run, r, &why, err);
}

/* The answer to what an MCP server asks for; one that is not accepted may be given again. */
static int answer_server(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *id = json_object_get(o, "approval"), *result = json_object_get(o, "result");
        cg_auto_free char *text = result ? json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        struct cg_err why;
        uint64_t n;
        int r;

        if (!json_is_integer(id) || json_integer_value(id) <= 0 || json_object_size(o) != 2 ||
            (result ? !json_is_object(result) : !json_is_true(json_object_get(o, "decline"))))
                return input_error(
                        run,
                        "an answer to server_request is {\"approval\": NUMBER, \"result\": {...}} or"
                        " {\"approval\": NUMBER, \"decline\": true}",
                        err);
        if (result && !text)
                return cg_fail(err, CG_E_NOMEM, "answer");
        n = (uint64_t)json_integer_value(id);
        r = text ? cg_server_request_answer(run->session, n, text, &why)
                 : cg_server_request_decline(run->session, n, &why);
        if (r == 0)
                forget_asked(json_of(run), n);
        return outcome(run, r, &why, err);
}

/* The answer to a function_call; one that is not accepted may be given again. */
static int function_return(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const struct {
                const char *name;
                enum cg_function_outcome outcome;
        } outcomes[] = { { "value", CG_FUNCTION_VALUE },
                         { "result", CG_FUNCTION_RESULT },
                         { "error", CG_FUNCTION_ERROR },
                         { "refuse", CG_FUNCTION_REFUSED } };
        const json_t *id = json_object_get(o, "approval"), *back = json_object_get(o, "return"), *v = NULL;
        cg_auto_free char *text = NULL;
        struct cg_err why;
        size_t i = 0;
        uint64_t n;
        int r;

        while (i < CG_ARRAY_LEN(outcomes) && !(v = json_object_get(back, outcomes[i].name)))
                i++;
        if (!json_is_integer(id) || json_integer_value(id) <= 0 || json_object_size(o) != 2 || !v ||
            json_object_size(back) != 1 || (outcomes[i].outcome >= CG_FUNCTION_ERROR && !json_is_string(v)))
                return input_error(
                        run,
                        "an answer to function_call is {\"approval\": NUMBER, \"return\": {\"value\": JSON}}, or in place of"
                        " \"value\" a \"result\": {...}, an \"error\": TEXT or \"refuse\": TEXT",
                        err);
        n = (uint64_t)json_integer_value(id);
        if (outcomes[i].outcome >= CG_FUNCTION_ERROR) {
                r = cg_function_return(run->session, n, outcomes[i].outcome, json_string_value(v),
                                       json_string_length(v), &why);
        } else {
                text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
                if (!text)
                        return cg_fail(err, CG_E_NOMEM, "answer");
                r = cg_function_return(run->session, n, outcomes[i].outcome, text, strlen(text), &why);
        }
        if (r == 0)
                forget_asked(json_of(run), n);
        return outcome(run, r, &why, err);
}

/* Functions of the host. The event is written once cells can call them. */
static int add_functions(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        const json_t *name = json_object_get(o, "name"), *tools = json_object_get(o, "tools"),
                     *ask = json_object_get(o, "ask"), *id = json_object_get(o, "id");
        size_t members = 2 + (ask != NULL) + (id != NULL);
        struct cg_functions_options opts = { .size = sizeof(opts), .ask = json_is_true(ask) };
        cg_auto_free char *text = NULL, *report = NULL;
        struct cg_json_line l;
        struct cg_err why;

        if (!json_is_string(name) || !json_is_array(tools) || (ask && !json_is_boolean(ask)) ||
            (id && !json_of(run)->line_id) || json_object_size(o) != members)
                return input_error(
                        run,
                        "to add functions is {\"add_functions\": {\"name\": TEXT, \"tools\": [...]}}, with \"ask\": true or"
                        " false, and \"id\", where wanted",
                        err);
        text = json_dumps(tools, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "functions");
        if (cg_session_add_functions(run->session, json_string_value(name), text, strlen(text), &opts,
                                     &report, &why) < 0)
                return input_error(run, why.msg, err);
        cg_json_line_begin(&l, "functions_added", 0);
        cg_json_line_json(&l, "id", json_of(run)->line_id);
        cg_json_line_int(&l, "line", (int64_t)json_of(run)->line);
        cg_json_line_object(&l, "functions", report, strlen(report));
        return cg_json_line_end(run, &l, err);
}

/* The answer is a REPLY. */
static int ask_variables(struct cg_run *run, const char *type, const char *const *members, const json_t *o,
                         struct cg_err *err)
{
        struct json *j = json_of(run);
        cg_auto_json json_t *content = json_object();
        const json_t *timeout = json_object_get(o, "timeout"), *id = json_object_get(o, "id"), *v;
        struct cg_request_options opts = { .size = sizeof(opts) };
        size_t n = (timeout != NULL) + (id != NULL);
        double seconds = json_number_value(timeout);
        cg_auto_free char *text = NULL;
        struct asked_variables *a;
        struct cg_err why;

        for (; *members; members++) {
                v = json_object_get(o, *members);
                n += v != NULL;
                if (v && json_object_set(content, *members, (json_t *)(uintptr_t)v) < 0)
                        return cg_fail(err, CG_E_NOMEM, "variables");
        }
        if (!json_is_object(o) || json_object_size(o) != n || (id && !j->line_id) ||
            (timeout && (!json_is_number(timeout) || !(seconds >= 0) || seconds > MAX_SECONDS)))
                return input_error(
                        run,
                        "about variables are {\"set_variables\": {\"variables\": {NAME: JSON}}} and {\"get_variables\": "
                        "{\"names\": [NAME], \"lossy\": false}}, with \"id\" and \"timeout\" (seconds), where wanted",
                        err);
        if (j->ending)
                return input_error(run, "no request about variables is accepted after {\"end\"}", err);
        if (j->n_variables == MAX_VARIABLES)
                return input_error(run, "64 requests about variables are under way: wait for an answer", err);
        opts.timeout_ms = seconds > 0 && seconds < 0.001 ? 1 : (int64_t)(seconds * 1000);
        text = json_dumps(content, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "variables");
        a = &j->variables[j->n_variables];
        *a = (struct asked_variables){ .line = j->line };
        if (cg_session_request(run->session, type, text, strlen(text), &opts, &a->number, &why) < 0)
                return input_error(run, why.msg, err);
        a->id = CG_STEAL(j->line_id);
        j->n_variables++;
        j->stay = true;
        return 0;
}

static int set_variables(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const char *const members[] = { "variables", NULL };

        return ask_variables(run, "set_variables", members, o, err);
}

static int get_variables(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        static const char *const members[] = { "names", "lossy", NULL };

        return ask_variables(run, "get_variables", members, o, err);
}

static int cancel(struct cg_run *run, const json_t *cell, struct cg_err *err)
{
        struct cg_err why;

        if (!json_is_integer(cell) || json_integer_value(cell) < 0)
                return input_error(
                        run,
                        "to cancel is {\"cancel\": NUMBER}, the number of a cell, or 0 for the one that runs",
                        err);
        return outcome(run, cg_session_cancel(run->session, (uint64_t)json_integer_value(cell), &why), &why,
                       err);
}

/* An answer that names its question is never given to a later one. */
static int give_input(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = json_of(run);
        const json_t *text = json_object_get(o, "input"), *question = json_object_get(o, "question");
        size_t members = 1 + (question != NULL);
        struct cg_err why;
        int r;

        if (!(json_is_string(text) || json_is_null(text)) || (question && !json_is_integer(question)) ||
            json_object_size(o) != members)
                return input_error(
                        run,
                        "an answer to input_request is {\"input\": TEXT}, or null for end of file, and, to answer no other"
                        " one, its \"question\": NUMBER",
                        err);
        if (question && !(j->question_open && json_integer_value(question) == j->question))
                return input_error(
                        run, "no input_request with this question number waits for an answer (any more)",
                        err);
        r = cg_session_input(run->session, json_string_value(text), json_string_length(text), &why);
        if (r == 0)
                j->question_open = false;
        return outcome(run, r, &why, err);
}

/* ------------------------------------------------------------------ cells, interrupts, resets */

/* A cell that was in the queue ends without having run. Takes @c. */
static int drop(struct cg_run *run, struct cg_queued_cell *c, const char *why, struct cg_err *err)
{
        struct cg_json_line l;
        int r;

        cg_json_line_begin(&l, "result", 0);
        cg_json_line_json(&l, "id", c->id);
        cg_json_line_int(&l, "line", (int64_t)c->line);
        add_result(&l, CG_STATUS_CANCELLED, 0, false, why, strlen(why));
        r = cg_json_line_end(run, &l, err);
        cg_queued_cell_free(c);
        return r;
}

static int drop_all(struct cg_run *run, const char *why, struct cg_err *err)
{
        struct cg_queued_cell *c;
        int r = 0;

        while (r == 0 && (c = cg_cell_queue_take(&json_of(run)->queue, NULL)))
                r = drop(run, c, why, err);
        return r;
}

static int execute(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = json_of(run);
        struct cg_err why;

        if (j->ending)
                return input_error(run, "no cell is accepted after {\"end\"}", err);
        if (cg_cell_queue_add(&j->queue, o, j->line, &why) < 0)
                return input_error(run, why.msg, err);
        j->stay = true;
        return 0;
}

/* true, {} or an object with no other member than @name. */
static bool is_plain(const json_t *v, const char *name)
{
        return json_is_true(v) ||
               (json_is_object(v) && json_object_size(v) == (json_object_get(v, name) != NULL));
}

static int interrupt_cell(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = json_of(run);
        const json_t *id = json_object_get(o, "id"), *all = json_object_get(o, "all");
        cg_auto_free char *name = id ? cg_cell_id(id) : NULL;
        struct cg_queued_cell *c;
        struct cg_err why;

        if (!(is_plain(o, "id") || is_plain(o, "all")) || (id && !name) || (all && !json_is_true(all)))
                return input_error(run,
                                   "to interrupt is {\"interrupt\": {}}, {\"interrupt\": {\"id\": ID}} or "
                                   "{\"interrupt\": {\"all\": true}}",
                                   err);
        if (all && drop_all(run, "interrupted before it ran", err) < 0)
                return -1;
        if (name && !(j->running && j->running->id && strcmp(j->running->id, name) == 0)) {
                c = cg_cell_queue_take(&j->queue, name);
                return c ? drop(run, c, "interrupted before it ran", err)
                         : input_error(run, "no cell with this id runs or waits", err);
        }
        if (!run->cell || run->done)
                return all ? 0 : input_error(run, "no cell runs", err);
        return outcome(run, cg_session_cancel(run->session, run->cell, &why), &why, err);
}

static int write_reset(struct cg_run *run, struct cg_err *err)
{
        struct json *j = json_of(run);
        struct cg_json_line l;

        cg_json_line_begin(&l, "reset", 0);
        cg_json_line_json(&l, "id", j->reset_id);
        cg_json_line_int(&l, "line", (int64_t)j->reset_line);
        free(j->reset_id);
        j->reset_id = NULL;
        j->reset_line = 0;
        return cg_json_line_end(run, &l, err);
}

/*
 * The kernel is replaced now. The answer is written once the events of the old kernel's cell are.
 */
static int reset(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        struct json *j = json_of(run);
        const json_t *id = json_object_get(o, "id");
        char *name = id ? cg_cell_id(id) : NULL;
        struct cg_err why;
        int r;

        if (!is_plain(o, "id") || (id && !name)) {
                free(name);
                return input_error(run, "to reset is {\"reset\": {}} or {\"reset\": {\"id\": ID}}", err);
        }
        r = j->reset_line ? write_reset(run, err) : 0; /* each one is answered */
        if (r == 0)
                r = drop_all(run, "the kernel was reset before it ran", err);
        if (r == 0 && cg_session_reset(run->session, 0, &why) < 0) {
                free(name);
                return input_error(run, why.msg, err);
        }
        free(j->reset_id);
        j->reset_id = name;
        j->reset_line = j->line;
        return r;
}

static int end(struct cg_run *run, const json_t *o, struct cg_err *err)
{
        if (!is_plain(o, ""))
                return input_error(run, "to end is {\"end\": {}}", err);
        json_of(run)->ending = true;
        return 0;
}

/* Reports that cells of the command line were not run, once. */
static int report_not_run(struct cg_run *run, struct cg_err *err)
{
        static const char text[] = "a cell of the command line failed: the cells after it are not run";
        struct cg_json_line l;

        json_of(run)->not_run_reported = true;
        if (!json_of(run)->failed || run->index + 1 >= run->opts.cells.n)
                return 0;
        cg_json_line_begin(&l, "notice", 0);
        cg_json_line_string(&l, "text", text, strlen(text));
        return cg_json_line_end(run, &l, err);
}

/* Called between two cells. */
static int json_next(struct cg_run *run, const struct cg_cell **cell, bool *wait, struct cg_err *err)
{
        struct json *j = json_of(run);
        /*
         * A reset has dropped what was queued before it: what is queued now is for the new kernel.
         */
        bool failed = j->running && j->running->stop_on_error && j->failed && !j->reset_line;
        int r = 0;

        j->running = cg_queued_cell_free(j->running);
        if (failed)
                r = drop_all(run, "not run: an earlier cell failed", err);
        if (r == 0 && j->reset_line)
                r = write_reset(run, err);
        if (r == 0 && j->stay && !j->not_run_reported)
                r = report_not_run(run, err);
        j->running = j->stay && r == 0 ? cg_cell_queue_take(&j->queue, NULL) : NULL;
        *cell = j->running ? &j->running->cell : NULL;
        *wait = j->stay && ((!j->ending && !j->eof) || cg_beside_busy(j->beside) || j->n_variables);
        return r;
}

static int json_started(struct cg_run *run, struct cg_err *err)
{
        const struct cg_queued_cell *c = json_of(run)->running;
        struct cg_json_line l;

        if (!c)
                return 0;
        cg_json_line_begin(&l, "started", run->cell);
        cg_json_line_json(&l, "id", c->id);
        cg_json_line_int(&l, "line", (int64_t)c->line);
        return cg_json_line_end(run, &l, err);
}

/* A line about commands or files. */
static int beside(struct cg_run *run, const char *name, const json_t *v, struct cg_err *err)
{
        struct json *j = json_of(run);
        struct cg_err why;

        if (j->ending)
                return input_error(run, "no command and no file operation is accepted after {\"end\"}", err);
        if (cg_beside_take(j->beside, name, v, j->line, &why) < 0)
                return input_error(run, why.msg, err);
        j->stay = true;
        return 0;
}

static int take_line(struct cg_run *run, const char *text, size_t len, struct cg_err *err)
{
        static const struct {
                const char *name;
                int (*take)(struct cg_run *run, const json_t *v, struct cg_err *err);
        } commands[] = {
                { "execute", execute },
                { "interrupt", interrupt_cell },
                { "reset", reset },
                { "end", end },
                { "cancel", cancel },
                { "add_functions", add_functions },
                { "set_variables", set_variables },
                { "get_variables", get_variables },
        };
        cg_auto_json json_t *o = NULL;
        struct cg_err why;
        const char *name;
        size_t i = 0;
        json_t *v;
        int r;

        if (strspn(text, " \t\r") == len)
                return 0;
        if (cg_json_object(text, len, "the line", &o, &why) < 0)
                return input_error(run, why.msg, err);
        if (json_object_get(o, "approval") && json_object_get(o, "egress"))
                return decide_egress(run, o, err);
        if (json_object_get(o, "approval") && json_object_get(o, "return"))
                return function_return(run, o, err);
        if (json_object_get(o, "approval") && (json_object_get(o, "result") || json_object_get(o, "decline")))
                return answer_server(run, o, err);
        if (json_object_get(o, "approval"))
                return decide(run, o, err);
        if (json_object_get(o, "input"))
                return give_input(run, o, err);
        name = json_object_size(o) == 1 ? json_object_iter_key(json_object_iter(o)) : "";
        v = json_object_get(o, name);
        while (i < CG_ARRAY_LEN(commands) && strcmp(commands[i].name, name) != 0)
                i++;
        if (i < CG_ARRAY_LEN(commands) || cg_beside_takes(name)) {
                json_of(run)->line_id = cg_cell_id(json_object_get(v, "id"));
                r = i < CG_ARRAY_LEN(commands) ? commands[i].take(run, v, err) : beside(run, name, v, err);
                free(json_of(run)->line_id);
                json_of(run)->line_id = NULL;
                return r;
        }
        return input_error(
                run,
                "the line is none of {\"execute\"}, {\"interrupt\"}, {\"reset\"}, {\"end\"}, {\"approval\", \"accept\"}, "
                "{\"approval\", \"egress\"}, {\"approval\", \"result\"}, {\"approval\", \"return\"}, {\"add_functions\"}, {\"set_variables\"}, {\"get_variables\"}, {\"cancel\"}, {\"input\"}, and those about commands "
                "(\"exec\"...) and files (\"file_list\"...)",
                err);
}

/* Takes what was read up to a newline, or the end of file. */
static int end_line(struct cg_run *run, struct cg_err *err)
{
        struct json *j = json_of(run);
        int r;

        j->line++;
        if (j->skipping)
                r = input_error(run, "the line is too long", err);
        else
                r = j->in.len ? take_line(run, j->in.data, j->in.len, err) : 0;
        j->skipping = false;
        cg_buf_consume(&j->in, j->in.len);
        return r;
}

/* Fail closed: without the host nothing can be approved. */
static int end_input(struct cg_run *run, struct cg_err *err)
{
        struct json *j = json_of(run);
        int r = j->in.len ? end_line(run, err) : 0;

        j->eof = true;
        cg_beside_input_ended(j->beside);
        while (j->n_asked && r == 0)
                r = refuse(run, j->asked[--j->n_asked], input_ended, err);
        if (r == 0)
                (void)cg_session_input(run->session, NULL, 0, NULL); /* fails where no cell waits for input */
        return r;
}

static int json_readable(struct cg_run *run, struct cg_err *err)
{
        struct json *j = json_of(run);
        char chunk[65536];
        ssize_t n = read(0, chunk, sizeof(chunk));
        int r = 0;

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0)
                return end_input(run, err);
        for (ssize_t i = 0; i < n && r == 0;) {
                char *newline = memchr(chunk + i, '\n', (size_t)(n - i));
                ssize_t len = newline ? newline - chunk - i : n - i;

                if (!j->skipping && cg_buf_add(&j->in, chunk + i, (size_t)len, NULL) < 0)
                        j->skipping = true;
                if (newline)
                        r = end_line(run, err);
                i += len + 1;
        }
        return r;
}

/* ------------------------------------------------------------------ start, loop and end */

/* The first line: version and session. */
static int json_opened(struct cg_run *run, struct cg_err *err)
{
        const char *id = cg_session_id(run->session), *info = cg_session_info(run->session);
        struct cg_json_line l;

        cg_json_line_begin(&l, "session", 0);
        cg_json_line_string(&l, "version", cg_version(), strlen(cg_version()));
        cg_json_line_string(&l, "session", id, strlen(id));
        cg_json_line_object(&l, "info", info, strlen(info));
        return cg_json_line_end(run, &l, err);
}

static int json_servers(struct cg_run *run, const char *report, struct cg_err *err)
{
        struct cg_json_line l;

        cg_json_line_begin(&l, "mcp_servers", 0);
        cg_json_line_object(&l, "servers", report, strlen(report));
        return cg_json_line_end(run, &l, err);
}

static void json_interrupted(struct cg_run *run)
{
        struct json *j = json_of(run);

        while (j->n_asked)
                refuse(run, j->asked[--j->n_asked], "cancelled", NULL);
}

static void json_wait(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms)
{
        *fd = json_of(run)->eof ? -1 : 0;
        *events_too = true;
        *timeout_ms = -1;
}

static int json_tick(struct cg_run *run, struct cg_err *err)
{
        (void)run;
        (void)err;
        return 0;
}

static void json_failed(struct cg_run *run, const struct cg_err *err, int status)
{
        struct cg_json_line l;

        cg_json_line_begin(&l, "failed", 0);
        cg_json_line_int(&l, "status", status);
        cg_json_line_string(&l, "text", err->msg, strlen(err->msg));
        cg_json_line_end(run, &l, NULL);
        cg_cli_fail("run", err);
}

static int json_woken(struct cg_run *run, struct cg_err *err)
{
        return cg_beside_woken(json_of(run)->beside, err);
}

static bool json_leave(struct cg_run *run)
{
        return cg_beside_abandon(json_of(run)->beside);
}

static void json_free(struct cg_run *run)
{
        struct json *j = json_of(run);

        cg_buf_fini(&j->in);
        cg_cell_queue_fini(&j->queue);
        cg_queued_cell_free(j->running);
        cg_beside_free(j->beside);
        while (j->n_variables)
                free(j->variables[--j->n_variables].id);
        free(j->reset_id);
        free(j->asked);
        free(j);
        run->output_data = NULL;
}

static const struct cg_run_output json_output = {
        .opened = json_opened,
        .servers = json_servers,
        .event = json_event,
        .decided = json_decided,
        .next = json_next,
        .started = json_started,
        .ask = json_ask,
        .interrupted = json_interrupted,
        .wait = json_wait,
        .readable = json_readable,
        .tick = json_tick,
        .woken = json_woken,
        .leave = json_leave,
        .failed = json_failed,
        .free = json_free,
};

int cg_run_json_init(struct cg_run *run, struct cg_err *err)
{
        struct json *j = calloc(1, sizeof(*j));

        if (!j)
                return cg_fail(err, CG_E_NOMEM, "run");
        if (cg_beside_new(run, &j->beside, err) < 0) {
                free(j);
                return -1;
        }
        run->wake_fd = cg_beside_fd(j->beside);
        cg_buf_init(&j->in, MAX_LINE);
        cg_cell_queue_init(&j->queue);
        j->stay = run->opts.stay;
        j->not_run_reported = !run->opts.cells.n;
        run->output_data = j;
        run->output = &json_output;
        run->allow_stdin = true;
        run->can_ask = true;
        /* lines for a program, also when a person looks on: they are ASCII */
        run->screen.tty[1] = false;
        cg_approve_set_default(run->opts.kernel.approve, CG_APPROVE_ASK);
        return 0;
}
