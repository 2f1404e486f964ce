/* `cellgate mcp`: finds the command; and `accept`, of what has changed in a server's tools. */
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "cli/mcp/mcp.h"
#include "mcp/pins/accept.h"

enum { CG_MCP_ACCEPT_OPTION_IDS };

static const struct cg_opt table[] = { CG_MCP_ACCEPT_OPTION_ROWS };

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

static int accept_tools(int argc, char **argv)
{
        struct cg_accept a = { .server = NULL };
        struct cg_err err;
        int r = parse(&a, argc, argv, &err);

        if (r == HELP)
                return cg_opt_help(table, CG_ARRAY_LEN(table), 0, CG_HELP_MCP_ACCEPT);
        if (r < 0 || cg_accept_tools(&a, &err) < 0)
                return cg_cli_fail("mcp accept", &err);
        if (!a.waiting) {
                cg_fail(&err, CG_E_NOTFOUND, "no tool of MCP server \"%s\" waits for acceptance", a.server);
                return cg_cli_fail("mcp accept", &err);
        }
        printf("%zu of %zu accepted\n", a.accepted, a.waiting);
        return a.accepted == a.waiting ? CG_EXIT_OK : CG_EXIT_RAISED;
}

/* ---- the commands */

int cg_cli_mcp(int argc, char **argv)
{
        static const struct cg_cli_command commands[] = {
                { "serve", cg_cli_mcp_serve, NULL },   { "login", cg_cli_mcp_login, NULL },
                { "logout", cg_cli_mcp_login, NULL },  { "accept", accept_tools, NULL },
                { "add", cg_cli_mcp_servers, NULL },   { "list", cg_cli_mcp_servers, NULL },
                { "show", cg_cli_mcp_servers, NULL },  { "remove", cg_cli_mcp_servers, NULL },
                { "tools", cg_cli_mcp_servers, NULL }, { "call", cg_cli_mcp_servers, NULL },
        };
        struct cg_err err;

        for (size_t i = 0; argc > 1 && i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
                return cg_cli_print(CG_HELP_MCP);
        if (argc > 1)
                cg_fail(&err, CG_E_INVAL,
                        "there is no \"mcp %s\": cellgate mcp --help lists mcp serve and the others",
                        argv[1]);
        else
                cg_fail(&err, CG_E_INVAL, "which one? cellgate mcp --help lists the commands");
        return cg_cli_fail("mcp", &err);
}
