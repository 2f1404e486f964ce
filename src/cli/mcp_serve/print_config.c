/*
 * `cellgate mcp serve --print-config CLIENT`: what to paste into the settings of an MCP client, so
 * that it starts this program with the options of this command line. Starts nothing.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <stdio.h>
#include <string.h>
#include "base/installed.h"
#include "base/json.h"
#include "base/util.h"
#include "config.h"

static const struct {
        const char *client, *where, *member; /* member: of the servers; NULL: TOML */
} formats[] = {
        { "claude", ".mcp.json in the project's folder (Claude Code), or claude_desktop_config.json",
          "mcpServers" },
        { "cursor", "~/.cursor/mcp.json, or .cursor/mcp.json in the project's folder", "mcpServers" },
        { "vscode", ".vscode/mcp.json in the project's folder", "servers" },
        { "codex", "~/.codex/config.toml", NULL },
        { "generic", "the settings of the MCP client", "mcpServers" },
};

int cg_serve_check_client(const char *client, struct cg_err *err)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(formats); i++)
                if (strcmp(formats[i].client, client) == 0)
                        return 0;
        return cg_fail(err, CG_E_INVAL,
                       "--print-config must be claude, cursor, vscode, codex or generic, not \"%s\"", client);
}

/* The words of the command line after the program, without --print-config. */
static int add_options(json_t *args, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt workspace = { .id = CG_KOPT_WORKSPACE,
                                                 .name = "workspace",
                                                 .value = "DIR" };
        struct cg_kernel_options scratch;
        struct cg_optscan scan;
        const char *value;
        bool has_workspace = false;
        int id, r = cg_kernel_options_init(&scratch, CG_CMD_SERVE, argc, argv, &scan, err);

        while (r == 0 && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END) {
                has_workspace |= id == CG_KOPT_WORKSPACE;
                if (id != CG_KOPT_PRINT_CONFIG)
                        r = cg_kernel_options_word(args, scan.found, value, err);
        }
        cg_kernel_options_fini(&scratch);
        return r < 0 || has_workspace ? r : cg_kernel_options_word(args, &workspace, ".", err);
}

int cg_serve_print_config(const char *client, int argc, char **argv, struct cg_err *err)
{
        const char *program = CG_INSTALLED(CG_BINDIR "/cellgate");
        cg_auto_json json_t *args = json_pack("[s, s]", "mcp", "serve"), *all = NULL;
        size_t i = 0;

        while (strcmp(formats[i].client, client) != 0)
                i++;
        if (!args)
                return cg_fail(err, CG_E_NOMEM, "options");
        if (add_options(args, argc, argv, err) < 0)
                return -1;
        fprintf(stderr, "Put this into %s:\n", formats[i].where);
        if (formats[i].member) {
                all = json_pack("{s: {s: {s:s, s:s, s:O}}}", formats[i].member, "cellgate", "type", "stdio",
                                "command", program, "args", args);
                if (!all || json_dumpf(all, stdout, JSON_INDENT(2)) < 0)
                        return cg_fail(err, CG_E_NOMEM, "the configuration (paths must be UTF-8)");
        } else { /* strings of JSON are strings of TOML */
                all = json_string(program);
                printf("[mcp_servers.cellgate]\ncommand = ");
                if (!all || json_dumpf(all, stdout, JSON_ENCODE_ANY) < 0 || printf("\nargs = ") < 0 ||
                    json_dumpf(args, stdout, 0) < 0)
                        return cg_fail(err, CG_E_NOMEM, "the configuration (paths must be UTF-8)");
        }
        return puts("") < 0 || fflush(stdout) ? cg_fail_errno(err, "standard output") : 0;
}
