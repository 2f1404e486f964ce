/* `cellgate mcp serve`: its command line and its help. */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/util.h"
#include "cli/common/opts.h"

/* Long enough for a person who was elsewhere, short enough that a call does not hang for ever. */
#define ASK_TIMEOUT_MS 300000

const char cg_serve_help[] =
        "Usage: cellgate mcp serve [OPTIONS]\n"
        "\n"
        "An MCP server on standard input and output: an agent's Python in a sandboxed IPython kernel that keeps its state.\n"
        "\n"
        "Tools: execute_ipython_cell, register_mcp_server, install_package, reset. Cells call the tools of other MCP servers\n"
        "as Python functions; each such call must be allowed here.\n"
        "\n"
        "  --workspace DIR      the folder that cells may write, and start in (default: the current folder)\n"
        "  --mcp FILE           MCP servers: JSON, the \"mcpServers\" object that MCP clients use. ${VAR} is taken from the\n"
        "                       environment. Cells then say: from mcptools.SERVER import TOOL\n"
        "  --approve RULE       which tool calls may run; may be repeated:\n"
        "                         none                refuse (default)\n"
        "                         all                 accept, also what is said below about the server's own tools\n"
        "                         ask                 ask the person at the MCP client (elicitation); refuse where it cannot\n"
        "                         filesystem.read_*   accept what the pattern SERVER.TOOL matches; * any characters, ? one\n"
        "                         '!filesystem.*'     refuse what it matches\n"
        "                       The order does not matter: any ! pattern that matches refuses, else any pattern that\n"
        "                       matches accepts, else none, all or ask decides.\n"
        "                       Two of the server's own tools act outside the sandbox and need a rule as well:\n"
        "                         cellgate.register_mcp_server   starts a program of the agent's choice, as you\n"
        "                         cellgate.install_package       downloads a package (wheels only) for the kernel\n"
        "  --ask-timeout S      longest wait for an answer of that person; then it is a no (default 300)\n"
        "  --env NAME=VALUE     a variable for the kernel, which inherits none; may be repeated\n"
        "  --sandbox FILE       the sandbox's settings, JSON as docs/settings.md says; relative paths in it start at the workspace.\n"
        "                       Without: the workspace may be written, all but credentials (~/.ssh, .env and the like) read, and\n"
        "                       there is no network. With --approve ask the person is also asked about hosts that the settings\n"
        "                       do not decide; else they are refused. The agent is told what was refused and why\n"
        "  --allow-host HOST    instead of --sandbox: as without, but HOST can be reached: example.org, *.example.org:443; may be\n"
        "                       repeated\n"
        "  --limit NAME=N       what the kernel may use, before what --sandbox says; may be repeated: memoryMb, cores (such as 1.5),\n"
        "                       processes, openFiles, fileMb, outputMb of a cell, cpuSeconds, wallSeconds\n"
        "  --tier TIER          full (the default), landlock, or auto; landlock is weaker, for machines that forbid user namespaces\n"
        "  --no-sandbox         run the kernel without sandbox: its code can do all that you can\n"
        "  --images DIR         where images go (default: images in the workspace), as cell1-1.png; nothing is replaced\n"
        "  --kernel-env ENV     the environment that kernels run in: a name that `cellgate env` has made, or a folder (with a slash in\n"
        "                       it); cells only read it (default: the built-in one)\n"
        "  --log-level N        0 errors, 1 warnings (default), 2 information, 3 debugging; on standard error\n"
        "  -h, --help           this text\n"
        "\n"
        "Ends when standard input does. Exit status: 0; 2 command line or settings; 128 and the signal's number when a signal\n"
        "ended it.\n"
        "\n"
        "Example, in the settings of an MCP client: {\"mcpServers\": {\"cellgate\": {\"command\": \"cellgate\",\n"
        "  \"args\": [\"mcp\", \"serve\", \"--workspace\", \"/home/me/project\", \"--mcp\", \"servers.json\",\n"
        "           \"--approve\", \"filesystem.read_*\"]}}}\n";

enum { ASK_TIMEOUT = 2 };

static const struct cg_opt table[] = {
        { CG_KOPT_WORKSPACE, 0, "workspace", "DIR" },
        { CG_KOPT_MCP, 0, "mcp", "FILE" },
        { CG_KOPT_APPROVE, 0, "approve", "RULE" },
        { ASK_TIMEOUT, 0, "ask-timeout", "SECONDS" },
        { CG_KOPT_ENV, 0, "env", "NAME=VALUE" },
        { CG_KOPT_SANDBOX, 0, "sandbox", "FILE" },
        { CG_KOPT_ALLOW_HOST, 0, "allow-host", "HOST" },
        { CG_KOPT_LIMIT, 0, "limit", "NAME=NUMBER" },
        { CG_KOPT_TIER, 0, "tier", "TIER" },
        { CG_KOPT_NO_SANDBOX, 0, "no-sandbox", NULL },
        { CG_KOPT_IMAGES, 0, "images", "DIR" },
        { CG_KOPT_KERNEL_ENV, 0, "kernel-env", "ENV" },
        { CG_KOPT_LOG_LEVEL, 0, "log-level", "N" },
        { CG_KOPT_HELP, 'h', "help", NULL },
};

void cg_serve_options_fini(struct cg_serve_options *o)
{
        cg_kernel_options_fini(&o->kernel);
}

static int set_ask_timeout(struct cg_serve_options *o, const char *value, struct cg_err *err)
{
        int r = cg_opt_seconds("--ask-timeout", value, &o->ask_timeout_ms, err);

        if (r == 0 && o->ask_timeout_ms == 0)
                r = cg_fail(err, CG_E_INVAL,
                            "--ask-timeout must be more than 0: a question must end one day");
        return r;
}

static int apply(struct cg_serve_options *o, int id, const char *value, struct cg_err *err)
{
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r <= 0)
                return r;
        return id == ASK_TIMEOUT ? set_ask_timeout(o, value, err)
                                 : cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"", value);
}

int cg_serve_parse(int argc, char **argv, struct cg_serve_options *o, struct cg_err *err)
{
        struct cg_optscan scan = {
                .table = table, .n = CG_ARRAY_LEN(table), .argc = argc, .argv = argv, .i = 1
        };
        const char *value = NULL;
        int id, r = 0;

        *o = (struct cg_serve_options){ .ask_timeout_ms = ASK_TIMEOUT_MS };
        if (cg_kernel_options_init(&o->kernel, argc, err) < 0)
                return -1;
        o->kernel.log_level = CG_LOG_WARN;
        o->kernel.workspace = ".";
        cg_approve_set_default(o->kernel.approve, CG_APPROVE_REFUSE);
        while (r == 0 && !o->kernel.help && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END)
                r = id < 0 ? id : apply(o, id, value, err);
        return r < 0 || o->kernel.help ? r : cg_kernel_options_check(&o->kernel, err);
}
