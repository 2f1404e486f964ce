/* `cellgate jupyter`: finds its subcommand. Runs in the command `cellgate`. */
#include "cli/jupyter/jupyter.h"

#include <string.h>
#include <unistd.h>
#include "base/util.h"

static const struct {
        const char *name;
        enum cg_kernel_command command;
        int (*run)(struct cg_jup_options *o, bool *hangs, struct cg_err *err);
} commands[] = {
        { "run", CG_JUP_RUN, cg_jup_run },
        { "install", CG_JUP_INSTALL, cg_jup_install },
        { "attach", CG_JUP_ATTACH, cg_jup_attach },
        { "list", CG_JUP_LIST, cg_jup_list },
};

static const char help[] =
        "Usage: cellgate jupyter COMMAND [OPTIONS]\n"
        "\n"
        "A Jupyter kernel: Python in a sandbox, tool calls of MCP servers only with approval.\n"
        "\n"
        "  install    installs a kernelspec, so that Jupyter offers this kernel\n"
        "  run        the kernel itself, which Jupyter starts\n"
        "  attach     opens a running session to Jupyter clients\n"
        "  list       lists open sessions\n"
        "\n"
        "See cellgate jupyter COMMAND --help.\n";

static int run_command(size_t i, int argc, char **argv)
{
        char name[32] = "jupyter ";
        struct cg_jup_options o;
        struct cg_err err;
        int r = cg_jup_parse(argc, argv, commands[i].command, &o, &err);
        int status = CG_EXIT_OK;
        bool hangs = false;

        strcat(name, commands[i].name);
        if (r == 0 && o.kernel.help)
                status = cg_jup_help(commands[i].command);
        else if (r < 0 || commands[i].run(&o, &hangs, &err) < 0)
                status = cg_cli_fail(name, &err);
        if (hangs)
                _exit(status);
        cg_jup_options_fini(&o);
        return status;
}

int cg_cli_jupyter(int argc, char **argv)
{
        struct cg_err err;

        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
                return cg_cli_print(help);
        for (size_t i = 0; argc > 1 && i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return run_command(i, argc - 1, argv + 1);
        if (argc > 1)
                cg_fail(&err, CG_E_INVAL,
                        "there is no command \"jupyter %s\": use install, run, attach or list", argv[1]);
        else
                cg_fail(&err, CG_E_INVAL,
                        "which one? There are install, run, attach and list; --help says more");
        return cg_cli_fail("jupyter", &err);
}
