/* `cellgate jupyter`: its command lines; finds the subcommand. */
#include "cli/jupyter/jupyter.h"

#include "cli/common/config.h"
#include "cli/help.h"

static void options_fini(struct cg_jup_options *o)
{
        cg_kernel_options_fini(&o->kernel);
        json_decref(o->words);
        free(o->ignored);
        o->words = NULL;
        o->ignored = NULL;
}

static int apply(struct cg_jup_options *o, enum cg_kernel_command command, int id, const char *value,
                 struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(CG_KOPT_FILE, struct cg_jup_options, file),
                CG_OPT_PLACE(CG_KOPT_USER, struct cg_jup_options, user),
                CG_OPT_PLACE(CG_KOPT_PREFIX, struct cg_jup_options, prefix),
                CG_OPT_PLACE(CG_KOPT_SYS_PREFIX, struct cg_jup_options, sys_prefix),
                CG_OPT_PLACE(CG_KOPT_NAME, struct cg_jup_options, name),
                CG_OPT_PLACE(CG_KOPT_DISPLAY_NAME, struct cg_jup_options, display_name),
                CG_OPT_PLACE(CG_KOPT_ADDRESS, struct cg_jup_options, address),
                CG_OPT_PLACE(CG_KOPT_JSON, struct cg_jup_options, json),
                CG_OPT_PLACE_SECONDS(CG_KOPT_LINGER, "--linger", struct cg_jup_options, linger_ms),
                CG_OPT_PLACE_INT(CG_KOPT_SPARES, "--spares", struct cg_jup_options, spares, 0, 16),
        };
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r > 0)
                r = cg_opt_store(places, CG_ARRAY_LEN(places), id, value, o, err);
        if (r <= 0)
                return r;
        switch (id) {
        case CG_KOPT_READY_FD:
                if (cg_opt_int("--ready-fd", value, 3, INT_MAX, &o->ready_fd, err) < 0)
                        return -1;
                if (fcntl(o->ready_fd, F_SETFD, FD_CLOEXEC) < 0)
                        return cg_fail_errno(err, "--ready-fd %s", value);
                return 0;
        case CG_KOPT_PROVISIONER:
                o->provisioner = value;
                if (strcmp(value, "auto") == 0 || strcmp(value, "always") == 0 || strcmp(value, "never") == 0)
                        return 0;
                return cg_fail(err, CG_E_INVAL, "--provisioner %s: use auto, always or never", value);
        default:
                if (command != CG_JUP_ATTACH || o->session)
                        return cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"", value);
                o->session = value;
                return 0;
        }
}

/*
 * An option of ipykernel's, which clients add for a kernel named python3: --Class.trait, or one of
 * its short names but for --config, which is ours. What else is unknown is most likely a misspelled
 * option of ours.
 */
static bool is_ipykernels(const char *word)
{
        static const char *const names[] = {
                "profile", "profile-dir", "ipython-dir", "matplotlib", "pylab",     "gui",  "colors",
                "theme",   "cache-size",  "ext",         "logfile",    "logappend", "ip",   "hb",
                "shell",   "iopub",       "stdin",       "control",    "transport", "user", "debug",
                "quick",   "quiet",       "no-stdout",   "no-stderr"
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

/* The next option. Those that `run` ignores are remembered, and logged once the log is open. */
static int next_word(struct cg_optscan *scan, struct cg_jup_options *o, const char **value,
                     struct cg_err *err)
{
        int id;

        if (scan->command != CG_JUP_RUN)
                return cg_opt_next(scan, value, err);
        do {
                for (; scan->i < scan->argc && !scan->dashes && is_ipykernels(scan->argv[scan->i]); scan->i++)
                        /*
                         * nbclient, which runs a notebook to its end, gives this to each kernel.
                         * Our history is in memory: the option is not ignored.
                         */
                        if (strcmp(scan->argv[scan->i], "--HistoryManager.hist_file=:memory:") == 0)
                                o->runs_notebook = true;
                        else
                                o->ignored[o->n_ignored++] = scan->argv[scan->i];
                id = cg_opt_next(scan, value, err);
                if (id == CG_OPT_ARG)
                        o->ignored[o->n_ignored++] = *value;
        } while (id == CG_OPT_ARG);
        return id;
}

static int parse(int argc, char **argv, enum cg_kernel_command command, struct cg_jup_options *o,
                 struct cg_err *err)
{
        struct cg_optscan scan;
        const char *value = NULL;
        int id;

        *o = (struct cg_jup_options){ .spares = 1, .provisioner = "auto" };
        if (cg_kernel_options_init(&o->kernel, command, argc, argv, &scan, err) < 0)
                return -1;
        cg_approve_set_default(o->kernel.approve, CG_APPROVE_ASK);
        o->words = json_array();
        o->ignored = calloc((size_t)argc + 1, sizeof(*o->ignored));
        if (!o->words || !o->ignored)
                return cg_fail(err, CG_E_NOMEM, "options");
        while (!o->kernel.help && (id = next_word(&scan, o, &value, err)) != CG_OPT_END) {
                if (id < 0 || apply(o, command, id, value, err) < 0)
                        return -1;
                /* A kernelspec's argv repeats the options that `run` has as well. */
                if (command == CG_JUP_INSTALL && scan.found && scan.found->commands & CG_JUP_RUN &&
                    cg_kernel_options_word(o->words, scan.found, value, o->kernel.connect.command != NULL,
                                           err) < 0)
                        return -1;
        }
        if (o->kernel.help)
                return 0;
        if (cg_kernel_options_check(&o->kernel, err) < 0)
                return -1;
        if (o->user + !!o->prefix + o->sys_prefix > 1)
                return cg_fail(err, CG_E_INVAL, "give one of --user, --prefix and --sys-prefix");
        if (command == CG_JUP_RUN && !o->file)
                return cg_fail(err, CG_E_INVAL, "which connection file? -f FILE");
        if (command == CG_JUP_ATTACH && !o->session)
                return cg_fail(err, CG_E_INVAL,
                               "which session? `cellgate jupyter list` shows the open sessions");
        return 0;
}

/* ---- the subcommands */

static const struct {
        const char *name;
        enum cg_kernel_command command;
        int (*run)(struct cg_jup_options *o, bool *hangs, struct cg_err *err);
        const char *help;
} commands[] = {
        { "run", CG_JUP_RUN, cg_jup_run, CG_HELP_JUPYTER_RUN },
        { "install", CG_JUP_INSTALL, cg_jup_install, CG_HELP_JUPYTER_INSTALL },
        { "attach", CG_JUP_ATTACH, cg_jup_attach, CG_HELP_JUPYTER_ATTACH },
        { "list", CG_JUP_LIST, cg_jup_list, CG_HELP_JUPYTER_LIST },
};

/* argv[0]: its name */
static int run_command(int argc, char **argv)
{
        char name[32] = "jupyter ";
        struct cg_jup_options o;
        struct cg_err err;
        int r, status = CG_EXIT_OK;
        bool hangs = false;
        size_t i = 0;

        while (strcmp(argv[0], commands[i].name) != 0)
                i++;
        r = parse(argc, argv, commands[i].command, &o, &err);
        strcat(name, commands[i].name);
        if (r == 0 && o.kernel.help)
                status = cg_kernel_options_help(commands[i].command, commands[i].help);
        else if (r < 0 || commands[i].run(&o, &hangs, &err) < 0)
                status = cg_cli_fail(name, &err);
        if (hangs)
                _exit(status);
        options_fini(&o);
        return status;
}

int cg_cli_jupyter(int argc, char **argv)
{
        struct cg_err err;

        if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
                return cg_cli_print(CG_HELP_JUPYTER);
        for (size_t i = 0; argc > 1 && i < CG_ARRAY_LEN(commands); i++)
                if (strcmp(argv[1], commands[i].name) == 0)
                        return cg_config_run("jupyter", commands[i].command, argc - 1, argv + 1, run_command);
        if (argc > 1)
                cg_fail(&err, CG_E_INVAL,
                        "there is no command \"jupyter %s\": use install, run, attach or list", argv[1]);
        else
                cg_fail(&err, CG_E_INVAL,
                        "which one? There are install, run, attach and list; --help says more");
        return cg_cli_fail("jupyter", &err);
}
