/* cellgate-cli, all of `cellgate` but front.c: finds the subcommand. A client of libcellgate. */
#include "base/buf.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "config.h"
#include "vcs.h"

/* Does not return but with an error. */
static int exec_other(const char *path, const char *name, char *const *words)
{
        struct cg_err err;

        execv(path, words);
        cg_fail_errno(&err, "%s", path);
        return cg_cli_fail(name, &err);
}

/* Commands of the front, which only `help COMMAND` looks for here. */
static int exec_front(int argc, char **argv)
{
        char *const words[] = { (char *)(uintptr_t) "cellgate", argv[0], argc > 1 ? argv[1] : NULL, NULL };

        return exec_other(CG_INSTALLED(CG_BINDIR "/cellgate"), argv[0], words);
}

/* SQLite is linked to that program only. */
static int audit(int argc, char **argv)
{
        return exec_other(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-audit"), argv[0], argv);
}

static int relay(int argc, char **argv)
{
        if (argc > 1 && strcmp(argv[1], "--help") == 0)
                return cg_cli_print(CG_HELP_RELAY);
        return exec_other(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-relay"), "relay", argv);
}

/* libmicrohttpd is linked to that program only. */
static int node(int argc, char **argv)
{
        return exec_other(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-node"), "node", argv);
}

static const struct cg_cli_command commands[] = {
        { "run", cg_cli_run, "run Python cells, a .py file or a notebook" },
        { "approvals", cg_cli_approvals,
          "questions that wait in other terminals: list, show, accept, reject, watch" },
        { "artifacts", audit, NULL },
        { "audit", audit,
          "the log of what audited sessions did; `artifacts`, `verify`: the files that they signed" },
        { "config", cg_cli_config, "configuration files (--config): show what they set, print their schema" },
        { "daemon", cg_cli_daemon, "the supervisors that commands share: status, stop" },
        { "events", cg_cli_events, "what happens in the sessions of all programs of this user" },
        { "job", cg_cli_jobs, "cells and commands of all programs: list, cancel; also session and queue" },
        { "session", cg_cli_jobs, NULL },
        { "queue", cg_cli_jobs, NULL },
        { "runtimes", cg_cli_runtimes, "the languages that sessions can have" },
        { "env", cg_cli_env, "Python environments for kernels: create, add packages, list, remove" },
        { "gen", cg_cli_gen, "generate typed Python modules for the tools of an MCP server" },
        { "jupyter", cg_cli_jupyter, "a Jupyter kernel: install, run, attach, list" },
        { "mcp", cg_cli_mcp, "MCP: serve (an agent runs Python in a sandboxed kernel), login, logout" },
        { "node", node, "serve sessions to other machines: slots, an end in order, figures" },
        { "policy", cg_cli_policy, "policy files: check them, and show what they decide" },
        { "relay", relay, "the far end of `--connect`, on another machine" },
        { "doctor", exec_front, "check what sandboxes need on this machine, and how to get missing parts" },
        { "selftest", cg_cli_selftest, "try to get out of a sandbox on this machine, in about 1,700 ways" },
        { "sandbox", exec_front,
          "run any command in a sandbox, by a settings file of sandbox-runtime (srt)" },
        { "sandboxmcp", cg_cli_sandboxmcp, NULL },
        { "verify", audit, NULL },
};

static int help(void)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_buf_adds(
                &b,
                "Usage: cellgate COMMAND [OPTIONS]\n\n"
                "Runs an agent's Python in a sandboxed kernel; MCP tool calls run only with approval.\n\n");
        for (size_t i = 0; i < CG_ARRAY_LEN(commands); i++)
                if (commands[i].what)
                        cg_buf_addf(&b, "  %-10s %s\n", commands[i].name, commands[i].what);
        cg_buf_adds(&b, "  --help     this text; `cellgate help COMMAND`: of one command\n"
                        "  --version  the version; `cellgate version`: also how this program was built\n");
        return cg_cli_print_buf(&b);
}

static int version(void)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_buf_addf(&b,
                    "cellgate " CG_VERSION "\n"
                    "commit      " CG_VCS "\n"
                    "build       " CG_FEATURES "\n"
                    "built with  " CG_BUILT_WITH "\n"
                    "python      %s, %s\n"
                    "kernels     %s\n",
                    cg_kernel_env_own_version((char[16]){ "" }), CG_INSTALLED(CG_PYTHON),
                    cg_kernel_env_default((char[PATH_MAX]){ "" }));
        return cg_cli_print_buf(&b);
}

static int run(int argc, char **argv)
{
        const char *best = NULL, *dot = strrchr(argv[0], '.');
        size_t least = 3; /* further away, a suggestion is a guess */
        struct cg_err err;

        for (size_t i = 0; i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[0], commands[i].name) == 0)
                        return commands[i].run(argc, argv);
        for (size_t i = 0; i < CG_ARRAY_LEN(commands); i++) {
                size_t d = cg_text_distance(argv[0], commands[i].name, NULL);

                if (d < least && d < strlen(commands[i].name)) {
                        least = d;
                        best = commands[i].name;
                }
        }
        if (strcmp(argv[0], "-c") == 0 || (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".ipynb") == 0)))
                cg_fail(&err, CG_E_INVAL, "there is no command \"%s\": did you mean cellgate run %s?",
                        argv[0], argv[0]);
        else if (best)
                cg_fail(&err, CG_E_INVAL, "there is no command \"%s\": did you mean %s?", argv[0], best);
        else
                cg_fail(&err, CG_E_INVAL, "there is no command \"%s\": --help lists the commands", argv[0]);
        return cg_cli_fail("", &err);
}

int main(int argc, char **argv)
{
        char *words[8] = { NULL };
        int n = 0;

        if (argc < 2) {
                help();
                return CG_EXIT_USAGE;
        }
        if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
                return help();
        if (strcmp(argv[1], "--version") == 0) {
                char line[64];

                snprintf(line, sizeof(line), "cellgate %s\n", cg_version());
                return cg_cli_print(line);
        }
        if (strcmp(argv[1], "help") == 0 && argc == 2)
                return help();
        if (strcmp(argv[1], "help") == 0) { /* `help mcp serve` is `mcp serve --help` */
                for (; n < argc - 2 && n < 6; n++)
                        words[n] = argv[n + 2];
                words[n] = (char *)(uintptr_t) "--help";
                return run(n + 1, words);
        }
        if (strcmp(argv[1], "version") == 0 && argc == 2)
                return version();
        return run(argc - 1, argv + 1);
}
