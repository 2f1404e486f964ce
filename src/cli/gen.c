/*
 * `cellgate gen`: typed Python modules for the tools of one MCP server. Runs in the command
 * `cellgate`; tool lists come from a server or a file and are untrusted: src/codegen puts them into
 * Python, report.c shows them to a person.
 */
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/report.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "codegen/codegen.h"
#include "mcp/client/mcp_list.h"

enum { CG_GEN_OPTION_IDS };

static const struct cg_opt table[] = { CG_GEN_OPTION_ROWS };

struct gen {
        const char *name, *out, *tools;
        char **command; /* NULL-terminated; the words after "--" */
        int64_t timeout_ms;
        bool verbose;
};

/* Return: 0; HELP; negative. */
static int parse(struct gen *g, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(OUT, struct gen, out),
                CG_OPT_PLACE(TOOLS, struct gen, tools),
                CG_OPT_PLACE(VERBOSE, struct gen, verbose),
                CG_OPT_PLACE_SECONDS(TIMEOUT, "--timeout", struct gen, timeout_ms),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, 0, argc, argv, 1);
        const char *value = NULL;
        int id;

        while (!g->command &&
               (id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), g, &value, err)) != CG_OPT_END) {
                if (id < 0 || id == HELP)
                        return id;
                if (scan.dashes)
                        g->command = argv + scan.i - 1;
                else if (g->name)
                        return cg_fail(err, CG_E_INVAL,
                                       "one server at a time: %s and %s were given; a COMMAND follows --",
                                       g->name, value);
                else
                        g->name = value;
        }
        if (!g->name)
                return cg_fail(err, CG_E_INVAL, "NAME is missing: the server's name; see --help");
        if (!g->out)
                return cg_fail(err, CG_E_INVAL, "--out DIR is missing: the folder for the package");
        if (!g->tools == !g->command)
                return cg_fail(err, CG_E_INVAL,
                               "give the source of the tools: either --tools FILE or -- COMMAND");
        return 0;
}

static int ask_server(const struct gen *g, char **ret, size_t *len, struct cg_err *err)
{
        cg_auto_json json_t *args = json_array(), *definition = NULL;
        struct cg_log log = { .fd = 2, .level = CG_LOG_DEBUG, .who = "server" };

        for (char **word = g->command + 1; *word; word++)
                if (json_array_append_new(args, json_string(*word)) < 0)
                        return cg_fail(err, CG_E_INVAL, "the server's command line must be UTF-8");
        definition = json_pack("{s:s, s:O}", "command", g->command[0], "args", args);
        if (!definition)
                return cg_fail(err, CG_E_INVAL, "the server's command line must be UTF-8");
        return cg_mcp_list_tools(g->name, definition, g->timeout_ms, g->verbose ? &log : NULL, ret, len, err);
}

/* Summary on standard output, details on standard error. */
static int print_report(const struct gen *g, const char *report_text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 }, package = { .max = 4096 };
        struct cg_report_counts counts = { 0, 0, 0 };
        struct cg_screen screen;
        struct cg_slice report, name;
        struct cg_err err;
        size_t n;
        int r;

        cg_screen_init(&screen);
        if (cg_json_object_slice(report_text, strlen(report_text), &report, NULL) < 0 ||
            !cg_json_find(report, "package", &name) || cg_json_string(name, &package, NULL) < 0) {
                cg_fail(&err, CG_E_PROTO, "the report about the package in %s cannot be read", g->out);
                return cg_cli_fail("gen", &err);
        }
        cg_report_print(&screen, g->name, report, g->verbose, &counts);
        n = counts.full + counts.degraded;
        cg_buf_addf(&b, "%s/%s: %zu tool%s", g->out, package.data, n, cg_cli_s((long long)n));
        if (counts.degraded)
                cg_buf_addf(&b, ", %zu typed less closely than the schema%s", counts.degraded,
                            g->verbose ? "" : " (--verbose says how)");
        if (counts.rejected)
                cg_buf_addf(&b, "; %zu rejected", counts.rejected);
        cg_buf_adds(&b, "\n");
        r = cg_cli_print_buf(&b);
        return r == CG_EXIT_OK && counts.rejected ? CG_EXIT_RAISED : r;
}

static int generate(const struct gen *g)
{
        struct cg_codegen_options o = { .server = g->name, .out_dir = g->out, .root_package = true };
        char package[CG_CODEGEN_PACKAGE_SIZE];
        cg_auto_free char *tools = NULL, *report = NULL;
        const char *source = g->tools;
        struct cg_err err;
        size_t len;
        int r;

        /* The name first: no server has to be started for a name that is not valid. */
        if (cg_codegen_package_name(g->name, package, sizeof(package), &err) < 0) {
                cg_err_prefix(&err, "%s", g->name);
                return cg_cli_fail("gen", &err);
        }
        if (!source) {
                source = g->command[0];
                r = ask_server(g, &tools, &len, &err);
        } else if (strcmp(source, "-") == 0) {
                source = "standard input";
                r = cg_read_fd(0, source, CG_MAX_TOOL_RESULT, &tools, &len, &err);
        } else {
                r = cg_read_file(source, CG_MAX_TOOL_RESULT, &tools, &len, &err);
        }
        if (r < 0)
                return cg_cli_fail("gen", &err);
        if (cg_codegen(&o, tools, len, &report, &err) < 0) {
                /* Lines and columns count in the list of tools, which the message begins with. */
                if (err.code == CG_E_PARSE)
                        cg_err_prefix(&err, "%s", source);
                return cg_cli_fail("gen", &err);
        }
        return print_report(g, report);
}

int cg_cli_gen(int argc, char **argv)
{
        struct gen g = { .name = NULL };
        struct cg_err err;
        int r = parse(&g, argc, argv, &err);

        if (r < 0)
                return cg_cli_fail("gen", &err);
        return r == HELP ? cg_opt_help(table, CG_ARRAY_LEN(table), 0, CG_HELP_GEN) : generate(&g);
}
