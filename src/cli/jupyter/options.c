/* `cellgate jupyter`: its command lines and their help. */
#include "cli/jupyter/jupyter.h"

#include <stdlib.h>
#include <string.h>
#include "base/util.h"
#include "cli/common/opts.h"

#define KERNEL_OPTIONS \
        "  --mcp FILE           MCP servers: JSON, the \"mcpServers\" object that MCP clients use. ${VAR} is taken\n" \
        "                       from the environment. Cells then say: from mcptools.SERVER import TOOL\n" \
        "  --approve RULE       which tool calls may run; may be repeated: ask (default: the person at the notebook),\n" \
        "                       none, all, SERVER.TOOL with * and ? as in filesystem.read_*, '!SERVER.TOOL' refuses\n" \
        "  --kernel-env ENV     the environment that kernels run in: a name that `cellgate env` has made, or a folder (with a\n" \
        "                       slash in it); cells only read it (default: the built-in one)\n" \
        "  --preload LIST       comma-separated modules that every kernel finds imported already\n" \
        "  --env NAME[=VALUE]   a variable for the kernel, which inherits none; without VALUE it is taken from the\n" \
        "                       environment that the kernel is started in. May be repeated\n" \
        "  --sandbox FILE       the sandbox's settings, as docs/settings.md says (default: the workspace may be written,\n" \
        "                       no network). Hosts that they do not decide are asked about in the notebook\n" \
        "  --limit NAME=N       what the kernel may use, before what --sandbox says; may be repeated: memoryMb, cores (such as\n" \
        "                       1.5), processes, openFiles, fileMb, outputMb of a cell, cpuSeconds, wallSeconds\n" \
        "  --tier TIER          full (the default), landlock, or auto; landlock is weaker, for machines that forbid user\n" \
        "                       namespaces\n" \
        "  --no-sandbox         run it without: its code can do all that you can\n" \
        "  --linger SECONDS     the shared supervisor stays so long after its last kernel (default 600)\n" \
        "  --spares N           kernels kept ready ahead (default 1)\n" \
        "  --log-level N        0 errors, 1 warnings (default), 2 information, 3 debugging; on standard error\n"

static const char help_install[] =
        "Usage: cellgate jupyter install [--user | --prefix DIR | --sys-prefix] [OPTIONS]\n"
        "\n"
        "Installs a kernelspec, so that Jupyter offers this kernel.\n"
        "\n"
        "  --user               for this user (default)\n"
        "  --prefix DIR         below DIR/share/jupyter\n"
        "  --sys-prefix         in the active virtual or conda environment\n"
        "  --name N             name of the kernelspec (default cellgate)\n"
        "  --display-name S     what Jupyter shows (default \"Python (cellgate)\")\n" KERNEL_OPTIONS
        "  -h, --help           this text\n";

static const char help_run[] =
        "Usage: cellgate jupyter run -f CONNECTION_FILE [OPTIONS]\n"
        "\n"
        "A Jupyter kernel: what a kernelspec's argv starts. The working folder is the workspace. A connection file that\n"
        "does not exist is made, with free ports and a fresh key, and removed at the end.\n"
        "\n"
        "  -f, --file FILE      the connection file\n" KERNEL_OPTIONS "  -h, --help           this text\n"
        "\n"
        "Options of ipykernel's (--Class.trait=VALUE, --profile and the like) and further words, which clients add for a kernel\n"
        "named python3, are passed over; a line on standard error names them. Where nbclient runs a whole notebook (it says so by\n"
        "--HistoryManager.hist_file=:memory:), a kernel that dies is not replaced: this program ends, and no further cell runs.\n"
        "\n"
        "SIGINT interrupts the running cell; SIGTERM or SIGHUP ends the kernel in order, with exit status 0, as\n"
        "a client's shutdown request does.\n";

static const char help_attach[] =
        "Usage: cellgate jupyter attach SESSION [OPTIONS]\n"
        "\n"
        "Opens a running session to Jupyter clients, prints the connection file's path, and serves until interrupted or the\n"
        "session ends. Then, for example: jupyter console --existing PATH\n"
        "\n"
        "  SESSION              its id, or the beginning of it: cellgate jupyter list\n"
        "  --address DIR        folder of its supervisor (default: those of this user's Jupyter kernels)\n"
        "  -f, --file FILE      the connection file to make (default: in Jupyter's runtime folder)\n"
        "  --log-level N        0 errors, 1 warnings (default), 2 information, 3 debugging; on standard error\n"
        "  -h, --help           this text\n";

static const char help_list[] =
        "Usage: cellgate jupyter list [OPTIONS]\n"
        "\n"
        "Lists the sessions that are open.\n"
        "\n"
        "  --address DIR        folder of a supervisor (default: those of this user's Jupyter kernels)\n"
        "  --json               as a JSON array\n"
        "  -h, --help           this text\n";

enum { FILE_ = 2, USER, PREFIX, SYS_PREFIX, NAME, DISPLAY_NAME, LINGER, SPARES, ADDRESS, JSON };

#define KERNEL (CG_JUP_RUN | CG_JUP_INSTALL)

static const struct {
        struct cg_opt opt;
        unsigned commands;
} all[] = {
        { { FILE_, 'f', "file", "FILE" }, CG_JUP_RUN | CG_JUP_ATTACH },
        { { USER, 0, "user", NULL }, CG_JUP_INSTALL },
        { { PREFIX, 0, "prefix", "DIR" }, CG_JUP_INSTALL },
        { { SYS_PREFIX, 0, "sys-prefix", NULL }, CG_JUP_INSTALL },
        { { NAME, 0, "name", "NAME" }, CG_JUP_INSTALL },
        { { DISPLAY_NAME, 0, "display-name", "TEXT" }, CG_JUP_INSTALL },
        { { CG_KOPT_MCP, 0, "mcp", "FILE" }, KERNEL },
        { { CG_KOPT_APPROVE, 0, "approve", "RULE" }, KERNEL },
        { { CG_KOPT_PRELOAD, 0, "preload", "LIST" }, KERNEL },
        { { CG_KOPT_KERNEL_ENV, 0, "kernel-env", "ENV" }, KERNEL },
        { { CG_KOPT_ENV, 0, "env", "NAME[=VALUE]" }, KERNEL },
        { { CG_KOPT_SANDBOX, 0, "sandbox", "FILE" }, KERNEL },
        { { CG_KOPT_LIMIT, 0, "limit", "NAME=NUMBER" }, KERNEL },
        { { CG_KOPT_TIER, 0, "tier", "TIER" }, KERNEL },
        { { CG_KOPT_NO_SANDBOX, 0, "no-sandbox", NULL }, KERNEL },
        { { LINGER, 0, "linger", "SECONDS" }, KERNEL },
        { { SPARES, 0, "spares", "N" }, KERNEL },
        { { CG_KOPT_LOG_LEVEL, 0, "log-level", "N" }, KERNEL | CG_JUP_ATTACH },
        { { ADDRESS, 0, "address", "DIR" }, CG_JUP_ATTACH | CG_JUP_LIST },
        { { JSON, 0, "json", NULL }, CG_JUP_LIST },
        { { CG_KOPT_HELP, 'h', "help", NULL }, KERNEL | CG_JUP_ATTACH | CG_JUP_LIST },
};

const char *cg_jup_help(enum cg_jup_command command)
{
        return command == CG_JUP_RUN       ? help_run
               : command == CG_JUP_INSTALL ? help_install
               : command == CG_JUP_ATTACH  ? help_attach
                                           : help_list;
}

void cg_jup_options_fini(struct cg_jup_options *o)
{
        cg_kernel_options_fini(&o->kernel);
        free(o->words);
        free(o->ignored);
        o->words = o->ignored = NULL;
}

static int set_session(struct cg_jup_options *o, enum cg_jup_command command, const char *value,
                       struct cg_err *err)
{
        if (command != CG_JUP_ATTACH || o->session)
                return cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"", value);
        o->session = value;
        return 0;
}

static int apply(struct cg_jup_options *o, enum cg_jup_command command, int id, const char *value,
                 struct cg_err *err)
{
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r <= 0)
                return r;
        switch (id) {
        case FILE_:
                o->file = value;
                return 0;
        case USER:
                o->user = true;
                return 0;
        case PREFIX:
                o->prefix = value;
                return 0;
        case SYS_PREFIX:
                o->sys_prefix = true;
                return 0;
        case NAME:
                o->name = value;
                return 0;
        case DISPLAY_NAME:
                o->display_name = value;
                return 0;
        case LINGER:
                return cg_opt_seconds("--linger", value, &o->linger_ms, err);
        case SPARES:
                return cg_opt_int("--spares", value, 0, 16, &o->spares, err);
        case ADDRESS:
                o->address = value;
                return 0;
        case JSON:
                o->json = true;
                return 0;
        default:
                return set_session(o, command, value, err);
        }
}

/*
 * Options that are repeated in a kernelspec's argv. Paths must not depend on the folder in which
 * Jupyter starts the kernel.
 */
static int repeat(struct cg_jup_options *o, int id, const char *value, struct cg_err *err)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(all); i++) {
                if (all[i].opt.id != id || (all[i].commands & KERNEL) != KERNEL)
                        continue;
                o->words[o->n_words++] = all[i].opt.name;
                if (all[i].opt.value)
                        o->words[o->n_words++] = value;
        }
        (void)err;
        return 0;
}

static int check_together(const struct cg_jup_options *o, enum cg_jup_command command, struct cg_err *err)
{
        if (cg_kernel_options_check(&o->kernel, err) < 0)
                return -1;
        if ((o->user ? 1 : 0) + (o->prefix ? 1 : 0) + (o->sys_prefix ? 1 : 0) > 1)
                return cg_fail(err, CG_E_INVAL, "give one of --user, --prefix and --sys-prefix");
        if (command == CG_JUP_RUN && !o->file)
                return cg_fail(err, CG_E_INVAL, "which connection file? -f FILE");
        if (command == CG_JUP_ATTACH && !o->session)
                return cg_fail(err, CG_E_INVAL,
                               "which session? cellgate jupyter list shows those that are open");
        return 0;
}

/*
 * An option of ipykernel's, which clients add for a kernel named python3: --Class.trait, or one of
 * its short names. What else is unknown is most likely a misspelled option of ours.
 */
static bool is_ipykernels(const char *word)
{
        static const char *const names[] = {
                "profile", "profile-dir", "ipython-dir", "config",    "matplotlib", "pylab",     "gui",
                "colors",  "theme",       "cache-size",  "ext",       "logfile",    "logappend", "ip",
                "hb",      "shell",       "iopub",       "stdin",     "control",    "transport", "user",
                "debug",   "quick",       "quiet",       "no-stdout", "no-stderr"
        };
        size_t len = strcspn(word, "=");

        if (strncmp(word, "--", 2) != 0)
                return false;
        if (word[2] >= 'A' && word[2] <= 'Z' && memchr(word, '.', len))
                return true;
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (strlen(names[i]) == len - 2 && memcmp(names[i], word + 2, len - 2) == 0)
                        return true;
        return false;
}

/*
 * nbclient, which runs a notebook to its end, gives it to each kernel. Our history is in memory:
 * there is nothing to pass over.
 */
static bool is_fulfilled(const char *word)
{
        return strcmp(word, "--HistoryManager.hist_file=:memory:") == 0;
}

/*
 * The next option. Those that `run` ignores are remembered, and logged once the kernel's log is
 * open.
 */
static int next_word(struct cg_optscan *scan, struct cg_jup_options *o, enum cg_jup_command command,
                     const char **value, struct cg_err *err)
{
        int id;

        do {
                for (; command == CG_JUP_RUN && scan->i < scan->argc && !scan->dashes &&
                       is_ipykernels(scan->argv[scan->i]);
                     scan->i++)
                        if (is_fulfilled(scan->argv[scan->i]))
                                o->runs_notebook = true;
                        else
                                o->ignored[o->n_ignored++] = scan->argv[scan->i];
                id = cg_opt_next(scan, value, err);
                if (command == CG_JUP_RUN && id == CG_OPT_ARG)
                        o->ignored[o->n_ignored++] = *value;
        } while (command == CG_JUP_RUN && id == CG_OPT_ARG);
        return id;
}

int cg_jup_parse(int argc, char **argv, enum cg_jup_command command, struct cg_jup_options *o,
                 struct cg_err *err)
{
        struct cg_opt table[CG_ARRAY_LEN(all)];
        struct cg_optscan scan = { .table = table, .argc = argc, .argv = argv, .i = 1 };
        const char *value = NULL;
        int id, r = 0;

        *o = (struct cg_jup_options){ .spares = 1 };
        for (size_t i = 0; i < CG_ARRAY_LEN(all); i++)
                if (all[i].commands & command)
                        table[scan.n++] = all[i].opt;
        if (cg_kernel_options_init(&o->kernel, argc, err) < 0)
                return -1;
        o->kernel.log_level = CG_LOG_WARN;
        o->kernel.env_by_name = true;
        cg_approve_set_default(o->kernel.approve, CG_APPROVE_ASK);
        o->words = calloc((size_t)argc * 2 + 2, sizeof(*o->words));
        o->ignored = calloc((size_t)argc + 1, sizeof(*o->ignored));
        if (!o->words || !o->ignored)
                return cg_fail(err, CG_E_NOMEM, "options");
        while (r == 0 && !o->kernel.help && (id = next_word(&scan, o, command, &value, err)) != CG_OPT_END) {
                r = id < 0 ? id : apply(o, command, id, value, err);
                if (r == 0)
                        r = repeat(o, id, value, err);
        }
        return r < 0 || o->kernel.help ? r : check_together(o, command, err);
}
