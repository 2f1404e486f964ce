/*
 * Options of `cellgate run`, `mcp serve` and `jupyter`: one table with their help, made of
 * options/kernel.txt. Those about kernels are read and passed to a session here, the others by the
 * commands themselves. Runs in the command `cellgate`.
 */
#pragma once

#include <jansson.h>
#include "cellgate.h"
#include "cli/common/approve.h"
#include "cli/common/files.h"
#include "cli/common/opts.h"
#include "cli/option_tables.h"
#include "sandbox/limit.h"

/* Bits of struct cg_opt.commands. */
enum cg_kernel_command {
        CG_CMD_RUN = 1,
        CG_CMD_SERVE = 2,
        CG_JUP_RUN = 4,
        CG_JUP_INSTALL = 8,
        CG_JUP_ATTACH = 16,
        CG_JUP_LIST = 32,
};

enum cg_kernel_opt { CG_KERNEL_OPTION_IDS };

/* --connect: the command that reaches another machine. */
struct cg_connect_options {
        char *command;        /* for a shell; NULL: this machine */
        const char *words[5]; /* of the shell */
        int64_t detach_ms;    /* as in struct cg_client_options */
};

/* Files of --http, which cells must not reach. */
struct cg_http_options {
        const char *token_file, *approver_token, *tls_key, *oauth_ca, *socket;
};

struct cg_audit_options {
        const char *mode;         /* NULL: no audit log */
        const char *key, *head;   /* as given */
        char *key_file, *head_to; /* without links; once the session's options are read */
        bool sign_artifacts;      /* of all cells */
};

/* Who else decides. */
struct cg_decider_options {
        bool elsewhere;        /* other terminals, */
        const char *approvers; /* and clients at these places; NULL: none */
        const char *webhook;
};

/* How many of each were given. */
struct cg_option_counts {
        size_t env, hosts, policies;
};

struct cg_kernel_options {
        enum cg_kernel_command command;
        struct cg_approve *approve;
        const char **env;   /* NULL-terminated; the strings are argv's, one is @profiles' */
        const char **hosts; /* of --allow-host; the same */
        const char **policies;
        struct cg_option_counts n;
        struct cg_profiles profiles;
        bool env_by_name; /* NAME alone is allowed: the command's own variable */
        const char *workspace, *mcp, *config, *sandbox, *images, *preload, *tier, *exec, *language, *node,
                *namespace;
        struct cg_connect_options connect;
        struct cg_http_options http;
        struct cg_audit_options audit;
        struct cg_decider_options deciders;
        char *kernel_env; /* a folder, without symlinks; NULL: the built-in one */
        struct cg_sandbox_limits limits;
        int log_level;
        bool no_sandbox, help;
        bool artifacts; /* results name files that cells made or changed */
        bool private;   /* a supervisor of its own */
};

/* A scan of the words of @argv, after the first, with the options of @commands (bits). */
struct cg_optscan cg_kernel_options_scan(unsigned commands, int argc, char **argv);

/*
 * Begins to read a command line: @scan goes through the words of @argv. Call
 * cg_kernel_options_fini() also when it fails.
 */
int cg_kernel_options_init(struct cg_kernel_options *o, enum cg_kernel_command command, int argc, char **argv,
                           struct cg_optscan *scan, struct cg_err *err);
void cg_kernel_options_fini(struct cg_kernel_options *o);

/* Sets the limit of the @value "NAME=NUMBER". CG_E_INVAL. */
int cg_limit_read(struct cg_sandbox_limits *l, const char *value, struct cg_err *err);

/* 0; negative: CG_E_INVAL; 1: the command itself reads this option. Borrows @value. */
int cg_kernel_options_apply(struct cg_kernel_options *o, int id, const char *value, struct cg_err *err);
/*
 * Appends the option @o with @value to the words of a command line that another program will run in
 * another folder: paths are absolute, but for those of another machine (@there). CG_E_INVAL,
 * CG_E_NOTFOUND or CG_E_SYS: there is no such file.
 */
int cg_kernel_options_word(json_t *words, const struct cg_opt *o, const char *value, bool there,
                           struct cg_err *err);
/* Prints the help on standard output; see cg_opt_help(). */
int cg_kernel_options_help(enum cg_kernel_command command, const char *text);
/* Others than this command decide, too: what no rule decides waits for them. */
static inline bool cg_kernel_options_shares(const struct cg_kernel_options *o)
{
        return o->deciders.elsewhere || o->deciders.approvers;
}

/* CG_E_INVAL when they contradict each other. */
int cg_kernel_options_check(const struct cg_kernel_options *o, struct cg_err *err);

/* Sets the preloaded modules, environment and log of @co, and whether it shares a supervisor. */
void cg_kernel_options_client(const struct cg_kernel_options *o, struct cg_client_options *co);

/*
 * The settings of --sandbox, --profile or --allow-host; *ret as of cg_settings_file_read(). Reads
 * the files of --policy as well: which of them cells could write depends on the settings. Where
 * these have rules about programs, --exec is "ask" from now on. Once, before a session is opened.
 */
int cg_kernel_options_settings(struct cg_kernel_options *o, char **ret, struct cg_err *err);

#define CG_KERNEL_HIDES 6

/*
 * The files of --mcp, --sandbox, --config, --token-file, --approver-token-file and --tls-key. Cells
 * could write the first two in the workspace, which would change what the next kernel may do; who
 * reads the others gets secrets, can be a client of the server, decide about its calls, or be it.
 */
struct cg_kernel_hides {
        char *files[CG_KERNEL_HIDES];
        const char *list[CG_KERNEL_HIDES + 1];
};

/*
 * Sets sandbox, tier, limits and hidden files of @so. @workspace: NULL is the current folder. Fills
 * @hides, which @so points into; also when it fails, cg_kernel_hides_fini().
 */
int cg_kernel_options_session(const struct cg_kernel_options *o, const char *workspace,
                              struct cg_kernel_hides *hides, struct cg_session_options *so,
                              struct cg_err *err);
void cg_kernel_hides_fini(struct cg_kernel_hides *hides);
/* Sets the limits of @so, which override those of the settings. */
void cg_limit_options(const struct cg_sandbox_limits *l, struct cg_session_options *so);
