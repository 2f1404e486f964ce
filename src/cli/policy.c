/* `cellgate policy`: checks policy files, shows what they decide. Runs in `cellgate`. */
#include <time.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/common/args.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "policy/policy.h"

enum { CHECK = 1, TEST = 2, EXPLAIN = 4 };
enum policy_option { CG_POLICY_OPTION_IDS };

static const struct cg_opt table[] = { CG_POLICY_OPTION_ROWS };

static const char *const decisions[] = {
        [CG_POL_NONE] = "none", [CG_POL_ALLOW] = "allow", [CG_POL_ASK] = "ask", [CG_POL_DENY] = "deny"
};

static const char *text_of(const json_t *o, const char *key, const char *def)
{
        const char *text = json_string_value(json_object_get(o, key));

        return text ?: def;
}

/* The members of a question about a program that CALL leaves out. */
static json_t *question_of(const json_t *o)
{
        json_t *q = json_deep_copy(o);

        if (q && !json_object_get(q, "argv"))
                json_object_set_new(q, "argv", json_pack("[s]", text_of(o, "program", "")));
        if (q && !json_object_get(q, "writable"))
                json_object_set_new(q, "writable", json_false());
        return q;
}

/* Decides about the call @o. @trace may be NULL. */
static int decide(struct cg_pol *p, const json_t *o, struct cg_pol_verdict *v, struct cg_buf *trace,
                  struct cg_err *err)
{
        bool exec = json_object_get(o, "program"), connect = json_object_get(o, "host");
        struct cg_pol_call call = { .server = text_of(o, "server", ""),
                                    .tool = text_of(o, "tool", ""),
                                    .front = text_of(o, "front", "run"),
                                    .client = text_of(o, "client", NULL),
                                    .session = text_of(o, "session", NULL),
                                    .cell = (uint64_t)json_integer_value(json_object_get(o, "cell")),
                                    .time_s = time(NULL),
                                    .now_ms = cg_now_ms() };
        cg_auto_json json_t *question = NULL, *empty = json_object();
        json_t *args = json_object_get(o, "arguments");
        cg_auto_free char *text = NULL;

        if (!exec && !connect && !*call.server)
                return cg_fail(err, CG_E_INVAL, "a call has server, program or host");
        if (exec) {
                call.method = CG_METHOD_EXEC;
                args = question = question_of(o);
        } else if (connect) {
                call.method = CG_METHOD_CONNECT;
                args = cg_json_unconst(o);
        } else {
                call.method = text_of(o, "method", CG_METHOD_CALL);
        }
        /* A text is taken as it is: for arguments that are no object. */
        if (json_is_string(args))
                text = strdup(json_string_value(args));
        else
                text = cg_json_text(args ?: empty, NULL);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "call");
        call.args = text;
        call.args_len = strlen(text);
        *v = (struct cg_pol_verdict){ .decision = CG_POL_NONE };
        cg_pol_decide(p, &call, false, v, trace);
        return 0;
}

static int check(struct cg_pol *p, struct cg_buf *b, struct cg_err *err)
{
        if (cg_pol_warnings(p, time(NULL), b, err) < 0)
                return -1;
        if (!b->len)
                cg_buf_adds(b, "no errors, no warnings\n");
        return 0;
}

static void add_verdict(struct cg_buf *b, const struct cg_pol_verdict *v)
{
        cg_buf_adds(b, decisions[v->decision]);
        if (v->rule[0]) {
                cg_buf_adds(b, " by ");
                cg_name_render(b, v->rule);
        }
}

/* Positive: a decision differs. */
static int run_cases(struct cg_pol *p, const char *file, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *cases = NULL;
        cg_auto_free char *text = NULL;
        struct cg_pol_verdict v;
        json_error_t why;
        size_t len, i, wrong = 0;
        const json_t *one;

        if (cg_read_file(file, CG_MAX_SETTINGS, &text, &len, err) < 0)
                return -1;
        cases = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
        if (!cases)
                return cg_fail(err, CG_E_PARSE, "%s: a list is expected: %s", file, why.text);
        if (!json_is_array(cases))
                return cg_fail(err, CG_E_PARSE, "%s: a list is expected", file);
        json_array_foreach(cases, i, one) {
                const char *expect = text_of(one, "expect", "");

                if (decide(p, json_object_get(one, "call"), &v, NULL, err) < 0)
                        return cg_err_prefix(err, "%s: /%zu", file, i);
                if (strcmp(expect, decisions[v.decision]) == 0)
                        continue;
                wrong++;
                cg_buf_addf(b, "/%zu: ", i);
                add_verdict(b, &v);
                cg_buf_addf(b, ", expected: %s\n", expect);
        }
        cg_buf_addf(b, "%zu calls, %zu as expected\n", json_array_size(cases),
                    json_array_size(cases) - wrong);
        return wrong > 0;
}

static int explain(struct cg_pol *p, const char *call, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf trace = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *o = NULL;
        struct cg_pol_verdict v;

        if (cg_json_object(call, strlen(call), "--call", &o, err) < 0 || decide(p, o, &v, &trace, err) < 0)
                return -1;
        cg_buf_fail(b, trace.failed);
        cg_text_render(b, trace.data, trace.len, 0);
        add_verdict(b, &v);
        if (v.text) {
                cg_buf_adds(b, ": ");
                cg_name_render(b, v.text);
        }
        cg_buf_adds(b, "\n");
        return 0;
}

static int add_file(struct cg_pol *p, const char *file, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if (cg_read_file(file, CG_MAX_SETTINGS, &text, &len, err) < 0)
                return -1;
        return cg_pol_add(p, file, text, len, err);
}

/* @words: files, of `test` the cases last. */
static int run(unsigned what, const char **words, size_t n, const char *call, struct cg_buf *b,
               struct cg_err *err)
{
        cg_auto_pol struct cg_pol *p = NULL;

        if (cg_pol_new(&p, err) < 0)
                return -1;
        for (size_t i = 0; i < n - (what == TEST); i++)
                if (add_file(p, words[i], err) < 0)
                        return -1;
        if (what == CHECK)
                return check(p, b, err);
        return what == TEST ? run_cases(p, words[n - 1], b, err) : explain(p, call, b, err);
}

static int parse(int argc, char **argv, unsigned what, const char **words, size_t *n, const char **call,
                 struct cg_err *err)
{
        struct cg_optscan scan = CG_OPT_SCAN(table, what, argc, argv, 2);
        const char *value;
        int id;

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "arguments");
        while ((id = cg_opt_next(&scan, &value, err)) > 0) {
                if (id == HELP)
                        return id;
                if (id == CALL)
                        *call = value;
                else
                        words[(*n)++] = value;
        }
        if (id < 0)
                return id;
        if (*n < (what == TEST ? 2u : 1u) || (what == EXPLAIN && !*call))
                return cg_fail(err, CG_E_INVAL, "an argument is missing; --help lists them");
        return 0;
}

int cg_cli_policy(int argc, char **argv)
{
        static const char *const names[] = { "check", "test", "explain" };
        cg_auto_free const char **words = calloc((size_t)argc + 1, sizeof(*words));
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        const char *call = NULL;
        struct cg_err err;
        size_t n = 0;
        int what = cg_opt_command(names, CG_ARRAY_LEN(names), ~0u, argc, argv, &err), r = what, printed;

        if (what > 0)
                r = parse(argc, argv, (unsigned)what, words, &n, &call, &err);
        if (what == 0 || r > 0)
                return cg_cli_print(CG_HELP_POLICY);
        if (r == 0)
                r = run((unsigned)what, words, n, call, &b, &err);
        if (r < 0)
                return cg_cli_fail("policy", &err);
        printed = cg_cli_print_buf(&b);
        return printed == CG_EXIT_OK && r > 0 ? CG_EXIT_RAISED : printed;
}
