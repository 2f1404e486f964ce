/*
 * `cellgate mcp serve`: the tool explain_denial. It tries nothing: files and programs are looked up
 * in the sandbox's plan, by the kernel as for its own denials; calls of tools in the rules of
 * --approve and --policy. Runs in a session's worker.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

static void list_refusals(const struct cg_serve_session *s, struct cg_answer *a)
{
        size_t n = json_array_size(s->out.refusals);

        if (!n)
                cg_answer_note(a, "Nothing was refused in this session.");
        else
                cg_answer_note(a, "The last refusals, the newest first:");
        while (n--)
                cg_answer_note(a, "%s", json_string_value(json_array_get(s->out.refusals, n)));
}

/* The lists of the settings, and what rules say about a host that these do not name. */
static int explain_host(struct cg_serve_session *s, const char *what, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *all = json_loads(s->sv->settings, 0, NULL), *args = NULL;
        const json_t *network = json_object_get(all, "network");
        cg_auto_free char *allowed = cg_json_text(json_object_get(network, "allowedDomains"), NULL),
                          *denied = cg_json_text(json_object_get(network, "deniedDomains"), NULL),
                          *text = NULL;
        bool ask = cg_approve_base(s->approve) == CG_APPROVE_ASK ||
                   cg_pol_is_about(cg_approve_policy(s->approve), CG_METHOD_CONNECT);
        size_t len = strcspn(what, ":");

        args = json_pack("{s:s%, s:i}", "host", what, len, "port", what[len] ? atoi(what + len + 1) : 443);
        text = cg_json_text(args, NULL);
        if (!text)
                return cg_fail(err, CG_E_INVAL, "the parameter \"what\" of a connection is HOST:PORT");
        cg_buf_addf(
                b,
                "Connections go through the proxy that HTTP_PROXY names. It allows network.allowedDomains, %s,"
                " without network.deniedDomains, %s. Another host: ",
                allowed ?: "[]", denied ?: "[]");
        if (ask)
                cg_serve_explain_call(
                        s,
                        &(struct cg_pol_call){
                                .server = "", .method = CG_METHOD_CONNECT, .tool = "", .args = text },
                        what, b);
        else
                cg_buf_addf(b,
                            "host is not on the allow list; to allow it: --allow-host, or add \"%s\" to"
                            " network.allowedDomains",
                            what);
        return 0;
}

static bool asks_about_programs(const struct cg_serve_session *s)
{
        cg_auto_json json_t *info = json_loads(cg_session_info(s->session), 0, NULL);
        const char *exec = json_string_value(json_object_get(info, "exec"));

        return exec && strcmp(exec, "ask") == 0;
}

static int explain_program(struct cg_serve_session *s, const char *what, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *question = json_pack("{s:s, s:s, s:[s], s:b}", "command", what, "program", what,
                                                  "argv", what, "writable", 0);
        cg_auto_free char *text = cg_json_text(question, NULL);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "program");
        cg_serve_explain_call(
                s,
                &(struct cg_pol_call){ .server = "", .method = CG_METHOD_EXEC, .tool = text, .args = text },
                what, b);
        return 0;
}

/* The cell that asks the kernel. */
static int make_cell(struct cg_job *job, const char *operation, const char *what, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };

        cg_buf_addf(&b,
                    "exec('from cellgate_kernel import denials; denials.sys.stdout.write(denials.why(o, w))',"
                    " {'o': \"%s\", 'w': ",
                    operation);
        cg_json_quote(&b, what, strlen(what));
        cg_buf_adds(&b, "})");
        if (cg_buf_end(&b, err) < 0)
                return -1;
        job->code = cg_buf_steal(&b, NULL);
        return 1;
}

int cg_serve_explain(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        static const char *const operations[] = { "tool-call", "network-outbound", "file-read", "file-write",
                                                  "exec" };
        cg_auto_free char *operation = NULL, *what = NULL, *server = NULL;
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        const char *dot;
        size_t i = 0;
        bool asked;

        if (cg_serve_arg_optional(job->args, "operation", &operation, err) < 0 ||
            cg_serve_arg_optional(job->args, "what", &what, err) < 0)
                return -1;
        if (!operation && !what) {
                list_refusals(s, a);
                return 0;
        }
        if (!operation || !what)
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" is missing",
                               what ? "operation" : "what");
        while (i < CG_ARRAY_LEN(operations) && strcmp(operations[i], operation) != 0)
                i++;
        if (i == CG_ARRAY_LEN(operations))
                return cg_fail(err, CG_E_INVAL,
                               "the parameter \"operation\" must be file-read, file-write, exec,"
                               " network-outbound or tool-call");
        dot = strchr(what, '.');
        if (i == 0 && !dot)
                return cg_fail(err, CG_E_INVAL, "the parameter \"what\" of a tool-call is SERVER.TOOL");
        asked = i == 4 && asks_about_programs(s);
        if ((i > 1 && !asked) || (i == 1 && !s->sv->settings))
                return make_cell(job, operation, what, err);
        if (asked && explain_program(s, what, &b, err) < 0)
                return -1;
        if (i == 1 && explain_host(s, what, &b, err) < 0)
                return -1;
        if (i == 0) {
                server = strndup(what, (size_t)(dot - what));
                cg_serve_explain_call(s,
                                      &(struct cg_pol_call){ .server = server ?: "",
                                                             .method = CG_METHOD_CALL,
                                                             .tool = dot + 1,
                                                             .args = "{}" },
                                      what, &b);
        }
        if (cg_buf_end(&b, err) < 0)
                return -1;
        cg_answer_note(a, "%s", b.data ?: "");
        return 0;
}
