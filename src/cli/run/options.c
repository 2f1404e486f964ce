/* `cellgate run`: its command line and its help. */
#include "cli/run/run.h"

#include <string.h>
#include "cli/common/opts.h"

const char cg_run_help[] =
        "Usage: cellgate run [OPTIONS] [-c CODE]... [FILE]\n"
        "\n"
        "Runs Python, cell by cell, in a sandboxed IPython kernel. All cells share one session; the first that\n"
        "fails ends the run.\n"
        "\n"
        "  -c, --code CODE     a cell; may be repeated. These run before FILE, in the order given\n"
        "  FILE                .py     cells split at lines \"# %%\" (percent format; [markdown] and [raw] cells\n"
        "                              are left out)\n"
        "                      .ipynb  the code cells of a notebook, format 4\n"
        "                      -       Python from standard input, split like a .py file\n"
        "\n"
        "  --workspace DIR     the folder that cells may write, and start in (default: the current folder)\n"
        "  --mcp FILE          MCP servers: JSON, the \"mcpServers\" object that MCP clients use. ${VAR} is taken\n"
        "                      from the environment. Cells then say: from mcptools.SERVER import TOOL\n"
        "  --approve RULE      which tool calls may run; may be repeated:\n"
        "                        ask                ask at the terminal (default where there is one)\n"
        "                        none               refuse (default where there is none)\n"
        "                        all                accept\n"
        "                        filesystem.read_*  accept what the pattern SERVER.TOOL matches; * stands for\n"
        "                                           any characters, ? for one\n"
        "                        '!filesystem.*'    refuse what it matches\n"
        "                      The order does not matter: any ! pattern that matches refuses, else any pattern\n"
        "                      that matches accepts, else ask, none or all decides\n"
        "  --env NAME=VALUE    a variable for the kernel, which inherits none; may be repeated\n"
        "  --timeout SECONDS   longest time for each cell, not counting waits for approval (default 0: no limit)\n"
        "  --sandbox FILE      the sandbox's settings, JSON as docs/settings.md says; relative paths in it start at\n"
        "                      the workspace. Without: the workspace may be written, all but credentials (~/.ssh,\n"
        "                      .env and the like) read, and there is no network\n"
        "  --allow-host HOST   instead of --sandbox: as without, but HOST can be reached: example.org,\n"
        "                      *.example.org:443, 192.0.2.1; may be repeated\n"
        "  --limit NAME=N      what the kernel may use, before what --sandbox says; may be repeated: memoryMb\n"
        "                      (default: half of the machine's), cores (such as 1.5), processes, openFiles,\n"
        "                      fileMb, outputMb (of a cell), cpuSeconds, wallSeconds\n"
        "  --tier TIER         full (the default), landlock, or auto; landlock is weaker, for machines that forbid user\n"
        "                      namespaces: docs/settings.md, Tiers\n"
        "  --no-sandbox        run the kernel without sandbox: its code can do all that you can\n"
        "  --images DIR        where images go (default images), as cell1-1.png: made when the first comes;\n"
        "                      no file is replaced, and a symbolic link is not followed\n"
        "  --preload LIST      comma-separated modules to import before the kernel starts\n"
        "  --kernel-env ENV    the environment that kernels run in: a name that `cellgate env` has made, or a folder\n"
        "                      (with a slash in it); cells only read it (default: the built-in one)\n"
        "  --json              be driven by a program: events as JSON lines on standard output, decisions as\n"
        "                      JSON lines on standard input (docs/cli-json.md). What no rule decides is asked\n"
        "                      there; once standard input has ended, it is refused. Without CODE and FILE it\n"
        "                      runs the cells that standard input sends, until that ends\n"
        "  --stay              with --json: do not end after CODE and FILE, or at an error in them, but go on with\n"
        "                      the cells that standard input sends\n"
        "  --log-level N       0 errors (default), 1 warnings, 2 information (also names each call that a rule\n"
        "                      accepted), 3 debugging\n"
        "  -h, --help          this text\n"
        "\n"
        "At a terminal means that standard input or standard error is one. A question shows server, tool and\n"
        "arguments, and takes: y yes; n no; r no, with a reason that the code is told; v show all of a long call;\n"
        "a yes, and always for this tool in this session. y and a are followed by three digits, new for each\n"
        "question, which it shows. Keys pressed before the question could be read are ignored. ^C cancels the cell that runs, a second ^C ends at once.\n"
        "\n"
        "With --sandbox or --allow-host a host that the settings do not decide is asked about as well: y yes once;\n"
        "s yes for this session; n no; d never in this session. Where nobody can be asked it is a no. What the\n"
        "sandbox refused is told on standard error, with what would allow it.\n"
        "\n"
        "Standard output gets what cells write to theirs, results, and where images were saved; standard error\n"
        "gets what cells write to theirs, tracebacks and messages. On a terminal control characters are shown as\n"
        "escapes, so that no cell can fake a question; elsewhere bytes pass as they are (so do not ask for\n"
        "approvals behind `| tee`). Tracebacks have colour there, unless NO_COLOR is set, and name FILE:LINE of a\n"
        ".py file. input() works at a terminal and with --json.\n"
        "\n"
        "Exit status: 0; 1 a cell raised; 2 command line, settings, or output that cannot be written; 3 the\n"
        "kernel died; 4 a tool call was refused and the cell did not catch that; 124 timeout; 130 cancelled; 141\n"
        "the reader of standard output has gone; 128 and the signal's number when a signal ended it, whatever\n"
        "became of the cell: 130 for SIGINT (^C), 143 for SIGTERM, 129 for SIGHUP. A cell that goes on asking after\n"
        "one is ended within seconds, but after ^C at a terminal, where you may answer or press it again.\n"
        "\n"
        "Example: cellgate run --mcp servers.json --approve 'filesystem.read_*' analysis.py\n";

enum { CODE = 2, TIMEOUT, JSON, STAY };

static const struct cg_opt table[] = {
        { CODE, 'c', "code", "CODE" },
        { CG_KOPT_WORKSPACE, 0, "workspace", "DIR" },
        { CG_KOPT_MCP, 0, "mcp", "FILE" },
        { CG_KOPT_APPROVE, 0, "approve", "RULE" },
        { CG_KOPT_ENV, 0, "env", "NAME=VALUE" },
        { TIMEOUT, 0, "timeout", "SECONDS" },
        { CG_KOPT_SANDBOX, 0, "sandbox", "FILE" },
        { CG_KOPT_ALLOW_HOST, 0, "allow-host", "HOST" },
        { CG_KOPT_LIMIT, 0, "limit", "NAME=NUMBER" },
        { CG_KOPT_TIER, 0, "tier", "TIER" },
        { CG_KOPT_NO_SANDBOX, 0, "no-sandbox", NULL },
        { JSON, 0, "json", NULL },
        { STAY, 0, "stay", NULL },
        { CG_KOPT_IMAGES, 0, "images", "DIR" },
        { CG_KOPT_PRELOAD, 0, "preload", "LIST" },
        { CG_KOPT_KERNEL_ENV, 0, "kernel-env", "ENV" },
        { CG_KOPT_LOG_LEVEL, 0, "log-level", "N" },
        { CG_KOPT_HELP, 'h', "help", NULL },
};

void cg_run_options_fini(struct cg_run_options *o)
{
        cg_cells_fini(&o->cells);
        cg_kernel_options_fini(&o->kernel);
}

static int set_file(struct cg_run_options *o, const char *value, struct cg_err *err)
{
        if (o->file)
                return cg_fail(err, CG_E_INVAL, "one FILE can be run at a time: %s and %s were given",
                               o->file, value);
        o->file = value;
        return 0;
}

static int apply(struct cg_run_options *o, int id, const char *value, struct cg_err *err)
{
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r <= 0)
                return r;
        switch (id) {
        case CODE:
                return cg_cells_add(&o->cells, value, strlen(value), "-c", err);
        case TIMEOUT:
                return cg_opt_seconds("--timeout", value, &o->timeout_ms, err);
        case JSON:
                o->json = true;
                return 0;
        case STAY:
                o->stay = true;
                return 0;
        default:
                return set_file(o, value, err);
        }
}

static int check_together(struct cg_run_options *o, struct cg_err *err)
{
        if (o->json && o->file && strcmp(o->file, "-") == 0)
                return cg_fail(err, CG_E_INVAL,
                               "--json reads decisions from standard input, so FILE cannot be `-`");
        if (o->json && o->kernel.images)
                return cg_fail(err, CG_E_INVAL,
                               "--images saves nothing with --json: images are in the events");
        if (cg_kernel_options_check(&o->kernel, err) < 0)
                return -1;
        if (o->stay && !o->json)
                return cg_fail(err, CG_E_INVAL, "--stay waits for cells on standard input: it needs --json");
        o->stay = o->stay || (o->json && !o->file && !o->cells.n);
        if (!o->file && !o->cells.n && !o->json)
                return cg_fail(err, CG_E_INVAL, "nothing to run: give -c CODE or FILE; --help says more");
        return 0;
}

int cg_run_parse(int argc, char **argv, struct cg_run_options *o, struct cg_err *err)
{
        struct cg_optscan scan = {
                .table = table, .n = CG_ARRAY_LEN(table), .argc = argc, .argv = argv, .i = 1
        };
        const char *value = NULL;
        int id, r = 0;

        *o = (struct cg_run_options){ .cells = CG_CELLS_EMPTY };
        if (cg_kernel_options_init(&o->kernel, argc, err) < 0)
                return -1;
        while (r == 0 && !o->kernel.help && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END)
                r = id < 0 ? id : apply(o, id, value, err);
        if (r < 0 || o->kernel.help)
                return r;
        return check_together(o, err);
}
