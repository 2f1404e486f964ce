/* `cellgate mcp serve`: register_mcp_server, by which the agent adds MCP servers to its session. */
#include "cli/mcp_serve/mcp_serve.h"

#include <stdarg.h>
#include "base/json.h"
#include "mcp/client/def.h"

#define LISTED_TOOLS 300u

static void add_line(struct cg_answer *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_line(struct cg_answer *a, const char *fmt, ...)
{
        cg_auto_free char *line = NULL;
        va_list ap;

        va_start(ap, fmt);
        if (vasprintf(&line, fmt, ap) < 0)
                line = NULL;
        va_end(ap);
        if (line)
                cg_answer_lines(a, line, strlen(line));
}

static void list_tools(struct cg_answer *a, const char *name, const char *report)
{
        cg_auto_json json_t *o = json_loads(report ?: "{}", JSON_ALLOW_NUL, NULL);
        json_t *server = json_object_get(o, name), *tools = json_object_get(server, "tools"), *tool;
        const char *package = json_string_value(json_object_get(server, "package"));
        size_t i;

        add_line(a, "Registered \"%s\". Its tools, to be imported as `from %s%s import TOOL`:", name,
                 package && strncmp(package, "mcptools.", 9) == 0 ? "" : "mcptools.", package ?: name);
        json_array_foreach(tools, i, tool) {
                const char *module = json_string_value(json_object_get(tool, "module"));
                const char *original = json_string_value(json_object_get(tool, "tool"));
                const char *status = json_string_value(json_object_get(tool, "status"));

                if (i == LISTED_TOOLS) {
                        add_line(a, "and %zu more", json_array_size(tools) - i);
                        return;
                }
                if (module && *module)
                        add_line(a, "%s", module);
                else if (original)
                        add_line(a, "%s: not usable (%s)", original, status ?: "no module was generated");
        }
}

/* Earlier approvals and pending answers are about the former program of this name. */
static void forget_server(struct cg_serve_session *s, const char *name)
{
        cg_serve_refuse_calls(s, name);
        cg_approve_forget(s->approve, name);
}

int cg_serve_register(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        struct cg_slice args = { job->args, strlen(job->args) }, v = { 0 };
        cg_auto_json json_t *params = NULL, *one = NULL;
        cg_auto_free char *name = NULL, *text = NULL;
        char *report = NULL;
        size_t len;
        bool same;
        int r;

        if (cg_serve_arg_string(job->args, "server_name", &name, err) < 0 || cg_mcp_check_name(name, err) < 0)
                return -1;
        if (strcmp(name, "cellgate") == 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "the name \"cellgate\" is taken: approval rules mean this server's own tools by it");
        if (cg_json_member(args, "server_params", &v, err) < 0)
                return -1;
        if (!v.p)
                return cg_fail(err, CG_E_INVAL, "the parameter \"server_params\" is missing");
        if (cg_json_object(v.p, v.len, "server_params", &params, err) < 0 ||
            !cg_serve_allowed(s, job, a, err))
                return -1;
        one = json_pack("{s:O}", name, params);
        if (one)
                text = cg_json_text(one, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "MCP server %s", name);
        same = json_equal(params,
                          json_object_get(s->registered, name) ?: json_object_get(s->sv->configured, name));
        if (!same)
                forget_server(s, name);
        if (cg_serve_ensure_open(s, a, err) < 0)
                return -1;
        r = cg_session_add_mcp_servers(s->session, text, len, 0, &report, err);
        if (!same)
                forget_server(s, name); /* questions asked about the former program meanwhile */
        if (r >= 0 && json_object_set(s->registered, name, params) == 0)
                list_tools(a, name, report);
        cg_free(report);
        return r;
}
