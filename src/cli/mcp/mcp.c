/* `cellgate mcp`: finds the command. */
#include <string.h>
#include "base/err.h"
#include "base/util.h"
#include "cli/common/cli.h"
#include "cli/mcp/mcp.h"

int cg_cli_mcp(int argc, char **argv)
{
        static const struct cg_cli_command commands[] = {
                { "serve", cg_cli_mcp_serve, NULL },   { "login", cg_cli_mcp_login, NULL },
                { "logout", cg_cli_mcp_logout, NULL }, { "accept", cg_cli_mcp_accept, NULL },
                { "add", cg_cli_mcp_servers, NULL },   { "list", cg_cli_mcp_servers, NULL },
                { "show", cg_cli_mcp_servers, NULL },  { "remove", cg_cli_mcp_servers, NULL },
                { "tools", cg_cli_mcp_servers, NULL }, { "call", cg_cli_mcp_servers, NULL },
        };
        struct cg_err err;

        for (size_t i = 0; argc > 1 && i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return commands[i].run(argc - 1, argv + 1);
        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
                return cg_cli_print(
                        "Usage: cellgate mcp serve [OPTIONS]\n"
                        "       cellgate mcp login NAME [OPTIONS]\n"
                        "       cellgate mcp logout NAME [OPTIONS]\n"
                        "       cellgate mcp accept NAME [TOOL] [OPTIONS]\n"
                        "       cellgate mcp add NAME [OPTIONS] URL | -- COMMAND [ARG]...\n"
                        "       cellgate mcp list | show NAME | remove NAME | tools NAME | call NAME TOOL [JSON]\n"
                        "\n"
                        "  serve   is an MCP server that lets an agent run Python in a sandboxed kernel\n"
                        "  login   signs in at an MCP server that wants OAuth\n"
                        "  logout  removes what `login` has stored\n"
                        "  accept  shows how tools of a server have changed, and accepts them\n"
                        "  add     defines a server in a file for `cellgate run --mcp`\n"
                        "  list, show, remove  the definitions in that file\n"
                        "  tools   lists the tools of a server and whether they are accepted\n"
                        "  call    calls one tool\n"
                        "\n"
                        "Each has a --help of its own.\n");
        if (argc > 1)
                cg_fail(&err, CG_E_INVAL,
                        "there is no \"mcp %s\": cellgate mcp --help lists mcp serve and the others",
                        argv[1]);
        else
                cg_fail(&err, CG_E_INVAL, "which one? cellgate mcp --help lists the commands");
        return cg_cli_fail("mcp", &err);
}
