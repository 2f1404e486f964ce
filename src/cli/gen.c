/*
 * `cellgate gen`: typed Python modules for the tools of one MCP server. Runs in the command
 * `cellgate`; tool lists come from a server or a file and are untrusted: src/codegen puts them into
 * Python, report.c shows them to a person.
 */
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/report.h"
#include "codegen/codegen.h"
#include "mcp/mcp_list.h"

static const char help[] =
        "Usage: cellgate gen NAME --out DIR --tools FILE [--verbose]\n"
        "       cellgate gen NAME --out DIR [--timeout SECONDS] [--verbose] -- COMMAND [ARG]...\n"
        "\n"
        "Writes the Python package DIR/NAME/ with one typed module for each tool of the MCP server called NAME.\n"
        "An older package of the same server is replaced at once; should anything fail, it stays as it is.\n"
        "(`cellgate run --mcp` does this by itself.)\n"
        "\n"
        "  NAME                 the server's name, as tool calls will name it. The folder's name is a Python\n"
        "                       name made of it\n"
        "  --out DIR            where the package goes; made if it is missing, but not the folders above it\n"
        "  --tools FILE         the tools: JSON, the answer to tools/list or its list of tools; - for standard\n"
        "                       input\n"
        "  -- COMMAND [ARG]...  starts this MCP server (stdio) and asks it. Of the environment it gets HOME LANG\n"
        "                       LC_* LOGNAME PATH SHELL TERM TMPDIR USER; more with: -- env NAME=VALUE COMMAND\n"
        "  --timeout SECONDS    longest wait for the server's start and answer (default 60)\n"
        "  -v, --verbose        also tell what is typed less closely than the server's schemas say, and what\n"
        "                       the server writes to its standard error\n"
        "  -h, --help           this text\n"
        "\n"
        "Tools that were rejected are named on standard error, with the reason; the others have their module all\n"
        "the same. Exit status: 0; 1 a tool was rejected; 2 command line, no usable tool list, or a package that\n"
        "cannot be written.\n"
        "\n"
        "Example: cellgate gen filesystem --out mcptools -- npx -y @modelcontextprotocol/server-filesystem /tmp\n";

enum { OUT = 2, TOOLS, TIMEOUT, VERBOSE, HELP };

static const struct cg_opt table[] = {
        { OUT, 0, "out", "DIR" },
        { TOOLS, 0, "tools", "FILE" },
        { TIMEOUT, 0, "timeout", "SECONDS" },
        { VERBOSE, 'v', "verbose", NULL },
        { HELP, 'h', "help", NULL },
};

struct gen {
        const char *name, *out, *tools;
        char **command; /* NULL-terminated; the words after "--" */
        int64_t timeout_ms;
        bool verbose, help;
};

static int set_name(struct gen *g, const char *value, struct cg_err *err)
{
        if (g->name)
                return cg_fail(err, CG_E_INVAL,
                               "one server at a time: %s and %s were given; a COMMAND stands behind --",
                               g->name, value);
        g->name = value;
        return 0;
}

static int apply(struct gen *g, int id, const char *value, struct cg_err *err)
{
        switch (id) {
        case OUT:
                g->out = value;
                return 0;
        case TOOLS:
                g->tools = value;
                return 0;
        case TIMEOUT:
                return cg_opt_seconds("--timeout", value, &g->timeout_ms, err);
        case VERBOSE:
                g->verbose = true;
                return 0;
        case HELP:
                g->help = true;
                return 0;
        default:
                return set_name(g, value, err);
        }
}

static int check(const struct gen *g, struct cg_err *err)
{
        if (!g->name)
                return cg_fail(err, CG_E_INVAL, "which server? Give its NAME; --help says more");
        if (!g->out)
                return cg_fail(err, CG_E_INVAL, "--out DIR is missing: where does the package go?");
        if (!g->tools == !g->command)
                return cg_fail(err, CG_E_INVAL,
                               "give either --tools FILE or -- COMMAND, to say where the tools come from");
        return 0;
}

static int parse(struct gen *g, int argc, char **argv, struct cg_err *err)
{
        struct cg_optscan scan = {
                .table = table, .n = CG_ARRAY_LEN(table), .argc = argc, .argv = argv, .i = 1
        };
        const char *value = NULL;
        int id, r = 0;

        *g = (struct gen){ .name = NULL };
        while (r == 0 && !g->help && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END) {
                if (id == CG_OPT_ARG && scan.dashes) {
                        g->command = argv + scan.i - 1;
                        break;
                }
                r = id < 0 ? id : apply(g, id, value, err);
        }
        return r < 0 || g->help ? r : check(g, err);
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

static int get_tools(const struct gen *g, char **ret, size_t *len, struct cg_err *err)
{
        if (!g->tools)
                return ask_server(g, ret, len, err);
        if (strcmp(g->tools, "-") == 0)
                return cg_read_fd(0, "standard input", CG_MAX_TOOL_RESULT, ret, len, err);
        return cg_read_file(g->tools, CG_MAX_TOOL_RESULT, ret, len, err);
}

/* Summary on standard output, details on standard error. */
static int tell(const struct gen *g, const char *report_text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 }, package = { .max = 4096 };
        struct cg_report_counts counts = { 0, 0, 0 };
        struct cg_screen screen;
        struct cg_slice report, name;
        size_t n;
        int r;

        cg_screen_init(&screen);
        if (cg_json_object_slice(report_text, strlen(report_text), &report, NULL) < 0 ||
            !cg_json_find(report, "package", &name) || cg_json_string(name, &package, NULL) < 0)
                return CG_EXIT_USAGE;
        cg_report_tell(&screen, g->name, report, g->verbose, &counts);
        n = counts.full + counts.degraded;
        cg_buf_addf(&b, NULL, "%s/%s: %zu %s", g->out, package.data, n, n == 1 ? "tool" : "tools");
        if (counts.degraded)
                cg_buf_addf(&b, NULL, ", %zu typed less closely than the schema%s", counts.degraded,
                            g->verbose ? "" : " (--verbose says how)");
        if (counts.rejected)
                cg_buf_addf(&b, NULL, "; %zu rejected", counts.rejected);
        cg_buf_adds(&b, "\n", NULL);
        r = cg_cli_print(b.data);
        return r != CG_EXIT_OK ? r : counts.rejected ? CG_EXIT_RAISED : CG_EXIT_OK;
}

static int generate(const struct gen *g)
{
        struct cg_codegen_options o = { .server = g->name, .out_dir = g->out };
        char package[CG_CODEGEN_PACKAGE_SIZE];
        cg_auto_free char *tools = NULL, *report = NULL;
        struct cg_err err;
        size_t len;

        /* The name first: a server need not be started to find that nothing can be called so. */
        if (cg_codegen_package_name(g->name, package, sizeof(package), &err) < 0) {
                cg_err_prefix(&err, "%s", g->name);
                return cg_cli_fail("gen", &err);
        }
        if (get_tools(g, &tools, &len, &err) < 0)
                return cg_cli_fail("gen", &err);
        if (cg_codegen(&o, tools, len, &report, &err) < 0) {
                /* Lines and columns count in the list of tools: whose it is comes first. */
                if (err.code == CG_E_PARSE)
                        cg_err_prefix(&err, "%s",
                                      !g->tools                    ? g->command[0]
                                      : strcmp(g->tools, "-") == 0 ? "standard input"
                                                                   : g->tools);
                return cg_cli_fail("gen", &err);
        }
        return tell(g, report);
}

int cg_cli_gen(int argc, char **argv)
{
        struct cg_err err;
        struct gen g;

        if (parse(&g, argc, argv, &err) < 0)
                return cg_cli_fail("gen", &err);
        return g.help ? cg_cli_print(help) : generate(&g);
}
