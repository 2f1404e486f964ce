/* `cellgate mcp accept`: a person accepts what has changed in a server's tools. */
#include <stdio.h>
#include <unistd.h>
#include "base/util.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/mcp/mcp.h"
#include "mcp/pins/accept.h"

enum { NAME = 2, TOOL, YES, HELP };

static const struct cg_opt table[] = {
        { NAME, 0, NULL, "NAME", 0, "the server's name in the file of MCP servers" },
        { TOOL, 0, NULL, "TOOL", 0, "only this tool (default: all that have changed)" },
        { YES, 'y', "yes", NULL, 0,
          "accept without a question what is shown; with TOOL also what is too long to be shown" },
        { HELP, 'h', "help", NULL, 0, "this text" },
};

static int help(void)
{
        return cg_opt_help(
                table, CG_ARRAY_LEN(table), 0,
                "Usage: cellgate mcp accept NAME [TOOL] [--yes]\n"
                "\n"
                "Shows how tools of the MCP server NAME have changed since they were accepted, and asks\n"
                "whether the change is accepted. Until then these tools are not called. The tools of a\n"
                "server that is new are accepted when it is used for the first time.\n"
                "\n",
                "\n"
                "Sessions that run call an accepted tool at once; their generated modules have its new\n"
                "text from the next session on.\n"
                "\n"
                "Exit status: 0; 1 something was not accepted; 2 command line, no terminal, or the pins of\n"
                "the server's tools cannot be read or written.\n");
}

/* Return: 0; HELP; negative. */
static int parse(struct cg_accept *a, int argc, char **argv, struct cg_err *err)
{
        struct cg_optscan scan = CG_OPT_SCAN(table, 0, argc, argv, 1);
        const char *value = NULL;
        int id;

        while ((id = cg_opt_next(&scan, &value, err)) != CG_OPT_END) {
                if (id == HELP || id < 0)
                        return id;
                if (id == YES)
                        a->yes = true;
                else if (!a->server)
                        a->server = value;
                else if (!a->tool)
                        a->tool = value;
                else
                        return cg_fail(err, CG_E_INVAL, "one tool at a time: %s and %s were given", a->tool,
                                       value);
        }
        if (!a->server)
                return cg_fail(err, CG_E_INVAL, "NAME is missing: the server's name; see --help");
        if (!a->yes && !(isatty(0) && isatty(2)))
                return cg_fail(err, CG_E_STATE,
                               "there is no terminal to ask at: --yes accepts without a question");
        return 0;
}

int cg_cli_mcp_accept(int argc, char **argv)
{
        struct cg_accept a = { .server = NULL };
        struct cg_err err;
        int r = parse(&a, argc, argv, &err);

        if (r == HELP)
                return help();
        if (r < 0 || cg_accept_tools(&a, &err) < 0)
                return cg_cli_fail("mcp accept", &err);
        if (!a.waiting) {
                cg_fail(&err, CG_E_NOTFOUND, "no tool of MCP server \"%s\" waits for acceptance", a.server);
                return cg_cli_fail("mcp accept", &err);
        }
        printf("%zu of %zu accepted\n", a.accepted, a.waiting);
        return a.accepted == a.waiting ? CG_EXIT_OK : CG_EXIT_RAISED;
}
