/* Options of the commands that start kernels. See kernel_options.h. */
#include "cli/common/kernel_options.h"

#include "base/language.h"
#include "base/kernel_env.h"
#include "base/log.h"
#include "base/path.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/settings.h"

#define SERVES  (CG_CMD_RUN | CG_CMD_SERVE)
#define JUPYTER (CG_JUP_RUN | CG_JUP_INSTALL)
#define STARTS  (SERVES | JUPYTER)

/* Nobody may be there: a question must end. */
#define ELSEWHERE_MS 900000

/* The other machine waits no longer. */
#define MAX_DETACH_MS 3600000

#define ENV_HELP "a variable for the kernel, which inherits none; may be repeated"

/* In the order of the help. */
static const struct cg_opt table[] = {
        { CG_KOPT_CODE, 'c', "code", "CODE", CG_CMD_RUN,
          "a cell; may be repeated. These run before FILE, in the order given" },
        { CG_KOPT_FILE, 0, NULL, "FILE", CG_CMD_RUN,
          ".py     cells separated by lines \"# %%\" (percent format; [markdown] and [raw] cells are left out)\n"
          ".ipynb  the code cells of a notebook, format 4\n"
          "-       Python from standard input, separated like a .py file" },
        { CG_KOPT_SESSION, 0, NULL, "SESSION", CG_JUP_ATTACH,
          "id of the session, or its beginning: see cellgate jupyter list" },
        { CG_KOPT_FILE, 'f', "file", "FILE", CG_JUP_RUN, "the connection file" },
        { CG_KOPT_READY_FD, 0, "ready-fd", "FD", CG_JUP_RUN,
          "for programs: an inherited pipe or file, which gets a byte once clients can connect" },
        { CG_KOPT_USER, 0, "user", NULL, CG_JUP_INSTALL, "install for this user (default)" },
        { CG_KOPT_PREFIX, 0, "prefix", "DIR", CG_JUP_INSTALL, "install below DIR/share/jupyter" },
        { CG_KOPT_SYS_PREFIX, 0, "sys-prefix", NULL, CG_JUP_INSTALL,
          "install in the active virtual or conda environment" },
        { CG_KOPT_PROVISIONER, 0, "provisioner", "WHEN", CG_JUP_INSTALL,
          "whether the kernelspec names the kernel provisioner of the Python package cellgate, with which clients"
          " need not try to connect twice: always, never, or auto (default), which means where --prefix or"
          " --sys-prefix has the package. A Jupyter without the package refuses a kernelspec that names it" },
        { CG_KOPT_NAME, 0, "name", "NAME", CG_JUP_INSTALL, "name of the kernelspec (default: cellgate)" },
        { CG_KOPT_DISPLAY_NAME, 0, "display-name", "TEXT", CG_JUP_INSTALL,
          "name that Jupyter shows (default: \"Python (cellgate)\")" },
        { CG_KOPT_WORKSPACE, 0, "workspace", "DIR", SERVES,
          "the folder in which cells start and may write (default: the current folder)" },
        { CG_KOPT_WORKSPACE, 0, "workspace", "DIR", JUPYTER,
          "with --connect: the folder there in which cells start and may write" },
        { CG_KOPT_MCP, 0, "mcp", "FILE", STARTS,
          "MCP servers (programs, or URLs): JSON, the \"mcpServers\" object that MCP clients use."
          " ${VAR} is taken from the environment."
          " Cells import their tools: from mcptools.SERVER import TOOL" },
        { CG_KOPT_APPROVE, 0, "approve", "RULE", STARTS,
          "a rule for tool calls; may be repeated:\n"
          "  ask                ask the user\n"
          "  none               refuse\n"
          "  all                accept\n"
          "  filesystem.read_*  accept calls that match the pattern SERVER.TOOL; * matches any characters,"
          " ? one character\n"
          "  '!filesystem.*'    refuse calls that match\n"
          "  filesystem:resources/read, filesystem:prompts/get  accept reading resources and getting prompts"
          " of servers that match, which SERVER.TOOL does not; after a ! refuse it, as !SERVER.* does\n"
          "The order does not matter: a call that a ! pattern matches is refused, another one that a pattern"
          " matches is accepted, and ask, none or all decides about the rest" },
        { CG_KOPT_LAX_RULES, 0, "lax-rules", NULL, STARTS,
          "start although a ! rule matches no MCP server or none of its tools. Without it the start fails, since"
          " such a rule most likely has a typing error" },
        { CG_KOPT_POLICY, 0, "policy", "FILE", STARTS,
          "rules in a file (docs/policy.md), which also look at arguments, hosts and programs, and budgets; may be"
          " repeated: the strictest decision counts. What no file decides is left to --approve. Cells must not be"
          " able to write the file" },
        { CG_KOPT_ASK_TIMEOUT, 0, "ask-timeout", "SECONDS", CG_CMD_SERVE,
          "longest wait for the user's answer, after which a call is refused (default: 300; with --http 900)" },
        { CG_KOPT_PLAIN_RESULTS, 0, "plain-results", NULL, CG_CMD_SERVE,
          "results of cells are text and images only, without structuredContent" },
        { CG_KOPT_WAIT, 0, "wait", "SECONDS", CG_CMD_SERVE,
          "longest wait of a call for its cell, after which it is answered with the output so far and the cell goes"
          " on; less than what the MCP client waits (default: 45)" },
        { CG_KOPT_TOOLSETS, 0, "toolsets", "LIST", CG_CMD_SERVE,
          "tools that the agent gets: some of core, jobs, sessions, files, inspect, host, web with commas between"
          " (default: core,jobs); or approvals alone, for an MCP client that decides about calls of other sessions."
          " Without jobs a call waits for the end of its cell; with sessions the agent can have several kernels" },
        { CG_KOPT_WEB_SEARCH, 0, "web-search", "ADDRESS|TOOL", CG_CMD_SERVE,
          "with the toolset web: what web_search asks: a SearXNG server, such as https://search.example, or a tool of a"
          " server of --mcp, SERVER.TOOL or SERVER.TOOL:PARAMETER (default: query)" },
        { CG_KOPT_PRINT_CONFIG, 0, "print-config", "CLIENT", CG_CMD_SERVE,
          "start nothing: print what to put into the settings of claude, cursor, vscode, codex or another client"
          " (generic), with the other options of this command line and absolute paths" },
        { CG_KOPT_COMPAT, 0, "compat", "SERVER", CG_CMD_SERVE,
          "serve the tools of another server by its documented interface: context-forge, sandboxmcp or srt; may be"
          " repeated. Needs the Python package, and takes few of the other options (docs/surfaces.md)" },
        { CG_KOPT_HTTP, 0, "http", "ADDRESS", CG_CMD_SERVE,
          "serve MCP's Streamable HTTP in place of standard input and output: 127.0.0.1:PORT, ADDRESS:PORT, or unix:PATH;"
          " each session has a process and a kernel of its own (docs/mcp-http.md)" },
        { CG_KOPT_TOKEN_FILE, 0, "token-file", "FILE", CG_CMD_SERVE,
          "with --http: the file with the token that requests need, which is made if it is absent (default: in"
          " the state folder; a Unix socket needs none)" },
        { CG_KOPT_APPROVER_TOKEN, 0, "approver-token-file", "FILE", CG_CMD_SERVE,
          "with --http: the file with a second token, which is made if it is absent. Who sends this one gets the"
          " toolset approvals alone, and decides about the calls of this server's cells: not for the agent" },
        { CG_KOPT_OF_HTTP, 0, "tls-cert", "FILE", CG_CMD_SERVE,
          "with --http: serve https with this certificate, PEM" },
        { CG_KOPT_TLS_KEY, 0, "tls-key", "FILE", CG_CMD_SERVE,
          "with --tls-cert: its key, PEM, a file that only you or root can read" },
        { CG_KOPT_OF_HTTP, 0, "behind-proxy", NULL, CG_CMD_SERVE,
          "with --http: a proxy in front of this server has TLS; the way from the proxy to here is safe" },
        { CG_KOPT_OF_HTTP, 0, "public-url", "URL", CG_CMD_SERVE,
          "with --http: the URL under which clients reach the server, where that is not its address" },
        { CG_KOPT_OF_HTTP, 0, "oauth-issuer", "URL", CG_CMD_SERVE,
          "with --http: requests need a token of this authorization server of OAuth, in place of the token file;"
          " addresses other than loopback need this and TLS" },
        { CG_KOPT_OAUTH_CA, 0, "oauth-ca", "FILE", CG_CMD_SERVE,
          "with --oauth-issuer: the authorities that the issuer's certificate is checked by, PEM, in place of the"
          " system's" },
        { CG_KOPT_OF_HTTP, 0, "oauth-audience", "URI", CG_CMD_SERVE,
          "with --oauth-issuer: whom tokens must be for (default: the server's URL)" },
        { CG_KOPT_OF_HTTP, 0, "oauth-scope", "SCOPES", CG_CMD_SERVE,
          "with --oauth-issuer: what tokens must allow, names with spaces between" },
        { CG_KOPT_OF_HTTP, 0, "approver-scope", "SCOPES", CG_CMD_SERVE,
          "with --oauth-issuer: a token that allows these gets the toolset approvals alone, and decides about the"
          " calls of this server's cells" },
        { CG_KOPT_OF_HTTP, 0, "allow-origin", "URL", CG_CMD_SERVE,
          "with --http: web pages of https://HOST may use the server, beside those of this machine; may be"
          " repeated" },
        { CG_KOPT_OF_HTTP, 0, "sse", NULL, CG_CMD_SERVE,
          "with --http: serve the transport HTTP+SSE of MCP's revision 2024-11-05 as well, at /sse" },
        { CG_KOPT_MAX_SESSIONS, 0, "max-sessions", "N", CG_CMD_SERVE,
          "with --http: the most sessions at once; with the toolset sessions: those of an agent; up to 256"
          " (default: 32)" },
        { CG_KOPT_PER_CLIENT, 0, "max-sessions-per-client", "N", CG_CMD_SERVE,
          "the most of these for one client: an OAuth subject, or else a name that clients of the same token give"
          " themselves (default: 8)" },
        { CG_KOPT_IDLE, 0, "idle", "SECONDS", CG_CMD_SERVE,
          "with --http or the toolset sessions: a session ends after this time without a request, a cell or a"
          " question (default: 1800)" },
        { CG_KOPT_ENV, 0, "env", "NAME=VALUE", SERVES, ENV_HELP },
        { CG_KOPT_ENV, 0, "env", "NAME[=VALUE]", JUPYTER,
          ENV_HELP ". Without VALUE it is taken from the environment that Jupyter starts the kernel in" },
        { CG_KOPT_TIMEOUT, 0, "timeout", "SECONDS", CG_CMD_RUN,
          "longest time for each cell, without waits for approval (default: 0, no limit)" },
        { CG_KOPT_CONFIG, 0, "config", "FILE", STARTS,
          "values of these options from a file, JSON with their names as keys, and from variables such as"
          " CELLGATE_EXEC=ask (docs/configuration.md). Cells must not be able to write the file" },
        { CG_KOPT_SANDBOX, 0, "sandbox", "FILE", STARTS,
          "settings of the sandbox, JSON (docs/settings.md), or {...} itself; relative paths in it start at the workspace."
          " Default: cells may write in the workspace, read everything but credentials (~/.ssh, .env and"
          " others), and have no network" },
        { CG_KOPT_ALLOW_HOST, 0, "allow-host", "HOST", SERVES,
          "instead of --sandbox: the default settings, with access to HOST (example.org, *.example.org:443,"
          " 192.0.2.1); may be repeated" },
        { CG_KOPT_PROFILE, 0, "profile", "NAME", CG_CMD_RUN,
          "instead of --sandbox: settings by name; may be repeated. basic: no network, no programs, no files of"
          " people but the workspace, nothing to write but /tmp. These add to it: data_science (256 processes),"
          " network (hosts of --allow-host, others are asked about), filesystem (writes in the workspace)."
          " An import of a module that is not on their lists is an error, which is advice and no border" },
        { CG_KOPT_LIMIT, 0, "limit", "NAME=NUMBER", STARTS,
          "a limit of the kernel, instead of the one in the settings; may be repeated: memoryMb (default: half"
          " of the machine's memory), cores (such as 1.5), processes, openFiles, fileMb, outputMb (of one"
          " cell), cpuSeconds, wallSeconds" },
        { CG_KOPT_TIER, 0, "tier", "TIER", STARTS,
          "full (default), landlock or auto; landlock is weaker, for machines that forbid user namespaces"
          " (docs/settings.md, Tiers)" },
        { CG_KOPT_EXEC, 0, "exec", "MODE", STARTS,
          "whether cells may start programs: allow (default), ask (the user, each time) or deny (docs/settings.md,"
          " Programs of cells)" },
        { CG_KOPT_LANGUAGE, 0, "language", "NAME", STARTS,
          "language of the cells: python (default), shell, node or jupyter:KERNEL (docs/languages.md)" },
        { CG_KOPT_NAMESPACE, 0, "namespace", "NAME", STARTS,
          "group of the sessions, for `cellgate session list` and `cellgate events` (default: default)" },
        { CG_KOPT_NODE, 0, "node", "FILE", STARTS,
          "the node of --language node, which cells can only read (default: the first of PATH)" },
        { CG_KOPT_AUDIT, 0, "audit", "MODE", STARTS,
          "record cells, calls, decisions and refusals in the audit log (`cellgate audit`): strict (what cannot be"
          " recorded does not happen) or best-effort (default: off; docs/audit.md)" },
        { CG_KOPT_AUDIT_KEY, 0, "audit-key", "FILE", STARTS,
          "with --audit: the key that signs the log, 64 hexadecimal digits in a file of mode 0600 (default: one that"
          " the log has made). A log has one key" },
        { CG_KOPT_AUDIT_HEAD, 0, "audit-head", "URL|FILE", STARTS,
          "with --audit: where each signed head of the log goes as well: an http or https URL that gets it by POST,"
          " or a file to append it to (docs/audit.md)" },
        { CG_KOPT_DECIDE_ELSEWHERE, 0, "decide-elsewhere", NULL, STARTS,
          "let your other terminals decide as well, with `cellgate approvals` (default: only here). Calls that no rule"
          " decides are asked about, and wait 15 minutes at most (mcp serve: --ask-timeout). Every program of yours"
          " that is in no sandbox can decide: not for agents that have a shell without one (docs/approvals.md)" },
        { CG_KOPT_DECIDE_BY_MCP, 0, "decide-by-mcp", NULL, STARTS,
          "the same for MCP clients to which you have given `cellgate mcp serve --toolsets approvals`. The client"
          " whose agent runs the cells must not be one of them" },
        { CG_KOPT_WEBHOOK, 0, "webhook", "URL", STARTS,
          "where others decide as well: when a question has waited for 10 s, its id, kind and session go to this http or"
          " https URL by POST, as JSON (docs/approvals.md)" },
        { CG_KOPT_NO_SANDBOX, 0, "no-sandbox", NULL, STARTS,
          "run the kernel without a sandbox: its code can do everything that you can" },
        { CG_KOPT_IMAGES, 0, "images", "DIR", SERVES,
          "folder for images, as cell1-1.png, made with the first image (default: images, in the current"
          " folder; mcp serve: in the workspace). No file is replaced, and no symbolic link followed" },
        { CG_KOPT_ARTIFACTS, 0, "artifacts", NULL, SERVES,
          "name the files that each cell made or changed, with their sizes, after its output (run --json: in its"
          " result). Searches all folders that cells can write, for 2 s at most" },
        { CG_KOPT_SIGN_ARTIFACTS, 0, "sign-artifacts", NULL, STARTS,
          "with --audit: sign the list of the files that each cell made or changed, with their SHA-256 at its end"
          " (`cellgate artifacts`, `cellgate verify`; docs/audit.md)" },
        { CG_KOPT_PRELOAD, 0, "preload", "LIST", CG_CMD_RUN | JUPYTER,
          "comma-separated modules to import before the kernel starts" },
        { CG_KOPT_KERNEL_ENV, 0, "kernel-env", "ENV", STARTS,
          "Python environment of the kernel, which cells can only read: a name that `cellgate env` has made, or"
          " a folder or its interpreter, with a slash in it (default: the built-in one)" },
        { CG_KOPT_JSON, 0, "json", NULL, CG_CMD_RUN,
          "for programs: events as JSON lines on standard output, decisions as JSON lines on standard input"
          " (docs/cli-json.md). Calls that no rule decides are asked about there; once standard input has"
          " ended, they are refused. Without CODE and FILE it runs the cells that standard input sends, until"
          " that ends" },
        { CG_KOPT_STAY, 0, "stay", NULL, CG_CMD_RUN,
          "with --json: after CODE and FILE, or an error in them, go on with the cells that standard input"
          " sends" },
        { CG_KOPT_SERVER_REQUESTS, 0, "server-requests", "KINDS", CG_CMD_RUN,
          "with --json: what MCP servers may ask the host for, which must answer: elicitation (forms), url"
          " (web pages), sampling, with commas between (default: nothing; docs/cli-json.md)" },
        { CG_KOPT_LINGER, 0, "linger", "SECONDS", JUPYTER,
          "time until the shared supervisor ends after its last kernel has ended (default: 600)" },
        { CG_KOPT_SPARES, 0, "spares", "N", JUPYTER,
          "number of kernels that are started in advance (default: 1)" },
        { CG_KOPT_ADDRESS, 0, "address", "DIR", CG_JUP_ATTACH | CG_JUP_LIST,
          "folder of the supervisor (default: those of this user's Jupyter kernels)" },
        { CG_KOPT_FILE, 'f', "file", "FILE", CG_JUP_ATTACH,
          "the connection file to make (default: in Jupyter's runtime folder)" },
        { CG_KOPT_JSON, 0, "json", NULL, CG_JUP_LIST, "print a JSON array" },
        { CG_KOPT_PRIVATE, 0, "private", NULL, STARTS,
          "start a supervisor for this command alone, which ends with it, instead of using the one that this user's"
          " commands share (`cellgate daemon`), as with CELLGATE_PRIVATE in the environment. run and mcp serve"
          " have one with --no-sandbox as well" },
        { CG_KOPT_CONNECT, 0, "connect", "COMMAND", STARTS,
          "run the cells on another machine, which has cellgate as well: COMMAND reaches it, such as \"ssh host\" or"
          " \"kubectl exec -i POD --\". --workspace and --kernel-env are names there (default: the folder in which"
          " COMMAND starts; mcp serve: required); give --connect first. MCP servers run here, and calls are asked about"
          " here. Not with --audit (docs/cluster.md)" },
        { CG_KOPT_SYNC, 0, "sync", "FOLDER", CG_CMD_RUN,
          "with --connect: copy FOLDER to the machine, in a new folder of --workspace, in which cells start, and what"
          " they change there back at the end. Hidden names are not copied, and names that are never written do not"
          " come back (docs/names.md); what has changed on both sides stays. Needs the Python package" },
        { CG_KOPT_DETACH, 0, "detach", "SECONDS", STARTS,
          "with --connect: for so long sessions wait on both sides when the connection is lost, and go on after"
          " another one (default: 30, in a job of a batch system 0; 0: they end, at most 3600)" },
        { CG_KOPT_LOG_LEVEL, 0, "log-level", "N", STARTS | CG_JUP_ATTACH,
          "messages on standard error: 0 errors, 1 warnings, 2 information (run: also calls that a rule"
          " accepted), 3 debugging (default: 1, run: 0). With more than the default, run and mcp serve have a"
          " private supervisor, whose messages are among them" },
        { CG_KOPT_HELP, 'h', "help", NULL, STARTS | CG_JUP_ATTACH | CG_JUP_LIST, "this text" },
};

struct cg_optscan cg_kernel_options_scan(unsigned commands, int argc, char **argv)
{
        return CG_OPT_SCAN(table, commands, argc, argv, 1);
}

static int default_log_level(enum cg_kernel_command command)
{
        return command == CG_CMD_RUN ? CG_LOG_ERROR : CG_LOG_WARN;
}

int cg_kernel_options_init(struct cg_kernel_options *o, enum cg_kernel_command command, int argc, char **argv,
                           struct cg_optscan *scan, struct cg_err *err)
{
        *scan = cg_kernel_options_scan(command, argc, argv);
        *o = (struct cg_kernel_options){
                .command = command,
                .log_level = default_log_level(command),
                .env_by_name = command & JUPYTER,
        };
        if (cg_approve_new(&o->approve, err) < 0)
                return -1;
        /* As many places as words on the command line. */
        o->env = calloc((size_t)argc + 1, sizeof(*o->env));
        o->hosts = calloc((size_t)argc + 1, sizeof(*o->hosts));
        o->policies = calloc((size_t)argc + 1, sizeof(*o->policies));
        if (command == CG_CMD_SERVE)
                cg_approve_set_front(o->approve, "mcp serve");
        else if (command & JUPYTER)
                cg_approve_set_front(o->approve, "jupyter");
        if (!o->env || !o->hosts || !o->policies)
                return cg_fail(err, CG_E_NOMEM, "options");
        return 0;
}

void cg_kernel_options_fini(struct cg_kernel_options *o)
{
        o->approve = cg_approve_free(o->approve);
        free(CG_STEAL(o->kernel_env));
        free(CG_STEAL(o->connect.command));
        free(CG_STEAL(o->audit.key_file));
        free(CG_STEAL(o->audit.head_to));
        free(o->env);
        free(o->hosts);
        free(o->policies);
        o->env = o->hosts = o->policies = NULL;
}

static bool is_url(const char *text)
{
        return strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
}

#define LIMITS_ "memoryMb, cores, processes, openFiles, fileMb, outputMb, cpuSeconds, wallSeconds"

int cg_limit_read(struct cg_sandbox_limits *l, const char *value, struct cg_err *err)
{
        size_t len = strcspn(value, "=");
        const char *number = value[len] ? value + len + 1 : "", *wrong;
        char *end = NULL;
        double figure;

        if (!len || !number[0] || strspn(number, "0123456789.") != strlen(number))
                return cg_fail(err, CG_E_INVAL, "--limit needs NAME=NUMBER such as memoryMb=512, not \"%s\"",
                               value);
        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                const char *name = cg_limit_setting(i);

                if (strlen(name) != len || memcmp(name, value, len) != 0)
                        continue;
                figure = strtod(number, &end);
                wrong = *end ? "Expected number" : cg_limit_set(l, i, figure);
                if (wrong)
                        return cg_fail(err, CG_E_INVAL, "--limit %s: %s", value, wrong);
                return 0;
        }
        return cg_fail(err, CG_E_INVAL, "--limit %s: there is no such limit; limits: " LIMITS_, value);
}

#define PLACE(id_, member) CG_OPT_PLACE(id_, struct cg_kernel_options, member)

/* CG_E_INVAL: a value that is known without files to be wrong. */
static int check_value(const struct cg_kernel_options *o, int id, const char *value, struct cg_err *err)
{
        switch (id) {
        case CG_KOPT_TIER:
                return cg_tier_parse(value, &(struct cg_tier_choice){ .deny_rules = CG_DENY_RULES_REFUSE },
                                     err);
        case CG_KOPT_EXEC:
                if (strcmp(value, "allow") == 0 || strcmp(value, "ask") == 0 || strcmp(value, "deny") == 0)
                        return 0;
                return cg_fail(err, CG_E_INVAL, "--exec must be allow, ask or deny, not \"%s\"", value);
        case CG_KOPT_LANGUAGE:
                return cg_language_check(value, err) < 0 ? CG_E_INVAL : 0;
        case CG_KOPT_AUDIT:
                if (strcmp(value, "strict") == 0 || strcmp(value, "best-effort") == 0)
                        return 0;
                return cg_fail(err, CG_E_INVAL, "--audit must be strict or best-effort, not \"%s\"", value);
        case CG_KOPT_WEBHOOK:
                if (is_url(value))
                        return 0;
                return cg_fail(err, CG_E_INVAL, "--webhook must be an http or https URL, not \"%s\"", value);
        case CG_KOPT_ENV:
                if (*value && *value != '=' && (o->env_by_name || strchr(value, '=')))
                        return 0;
                return cg_fail(err, CG_E_INVAL, "--env needs %sNAME=VALUE, not \"%s\"",
                               o->env_by_name ? "NAME or " : "", value);
        case CG_KOPT_ALLOW_HOST:
                return cg_settings_check_host(value, err);
        default:
                return 0;
        }
}

/* It may have arguments and quotes: a shell reads it, and appends the words of the relay. */
static int set_connect(struct cg_kernel_options *o, const char *value, struct cg_err *err)
{
        size_t len = strlen(value);
        bool whole = len > 6 && strcmp(value + len - 6, " relay") == 0;

        if (o->kernel_env)
                return cg_fail(err, CG_E_INVAL,
                               "give --connect before --kernel-env, which is then an environment there");
        free(CG_STEAL(o->connect.command));
        if (cg_asprintf(&o->connect.command, "--connect", err, "exec %s%s", value, whole ? "" : " \"$@\"") <
            0)
                return -1;
        memcpy(o->connect.words,
               (const char *[]){ "/bin/sh", "-c", o->connect.command, whole ? NULL : "sh", NULL },
               sizeof(o->connect.words));
        return 0;
}

int cg_kernel_options_apply(struct cg_kernel_options *o, int id, const char *value, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                PLACE(CG_KOPT_WORKSPACE, workspace),
                PLACE(CG_KOPT_MCP, mcp),
                PLACE(CG_KOPT_CONFIG, config),
                PLACE(CG_KOPT_SANDBOX, sandbox),
                PLACE(CG_KOPT_TIER, tier),
                PLACE(CG_KOPT_EXEC, exec),
                PLACE(CG_KOPT_LANGUAGE, language),
                PLACE(CG_KOPT_NAMESPACE, namespace),
                PLACE(CG_KOPT_NODE, node),
                PLACE(CG_KOPT_AUDIT, audit.mode),
                PLACE(CG_KOPT_AUDIT_KEY, audit.key),
                PLACE(CG_KOPT_AUDIT_HEAD, audit.head),
                PLACE(CG_KOPT_DECIDE_ELSEWHERE, deciders.elsewhere),
                PLACE(CG_KOPT_WEBHOOK, deciders.webhook),
                PLACE(CG_KOPT_NO_SANDBOX, no_sandbox),
                PLACE(CG_KOPT_IMAGES, images),
                PLACE(CG_KOPT_ARTIFACTS, artifacts),
                PLACE(CG_KOPT_SIGN_ARTIFACTS, audit.sign_artifacts),
                PLACE(CG_KOPT_PRELOAD, preload),
                PLACE(CG_KOPT_PRIVATE, private),
                PLACE(CG_KOPT_HELP, help),
                CG_OPT_PLACE_INT(CG_KOPT_LOG_LEVEL, "--log-level", struct cg_kernel_options, log_level, 0, 3),
        };
        int r = check_value(o, id, value, err);

        if (r < 0)
                return r;
        r = cg_opt_store(places, CG_ARRAY_LEN(places), id, value, o, err);
        if (r <= 0)
                return r;
        switch (id) {
        case CG_KOPT_APPROVE:
                return cg_approve_add(o->approve, value, err);
        case CG_KOPT_DECIDE_BY_MCP:
                o->deciders.approvers = "mcp";
                return 0;
        case CG_KOPT_LAX_RULES:
                cg_approve_set_lax(o->approve);
                return 0;
        case CG_KOPT_POLICY:
                o->policies[o->n.policies++] = value;
                return 0;
        case CG_KOPT_ENV:
                o->env[o->n.env++] = value;
                return 0;
        case CG_KOPT_ALLOW_HOST:
                o->hosts[o->n.hosts++] = value;
                return 0;
        case CG_KOPT_PROFILE:
                return cg_profile_add(value, &o->profiles, err);
        case CG_KOPT_LIMIT:
                return cg_limit_read(&o->limits, value, err);
        case CG_KOPT_CONNECT:
                return set_connect(o, value, err);
        case CG_KOPT_DETACH:
                if (cg_opt_seconds("--detach", value, &o->connect.detach_ms, err) < 0)
                        return CG_E_INVAL;
                if (o->connect.detach_ms > MAX_DETACH_MS)
                        return cg_fail(err, CG_E_INVAL, "--detach is at most %d seconds",
                                       MAX_DETACH_MS / 1000);
                o->connect.detach_ms = o->connect.detach_ms ?: -1;
                return 0;
        case CG_KOPT_KERNEL_ENV:
                free(CG_STEAL(o->kernel_env));
                if (o->connect.command) {
                        o->kernel_env = strdup(value);
                        return cg_made(o->kernel_env, "--kernel-env", err);
                }
                if (cg_kernel_env_find(value, &o->kernel_env, err) < 0)
                        return -1;
                return cg_kernel_env_check(o->kernel_env, err);
        default:
                return 1;
        }
}

int cg_kernel_options_word(json_t *words, const struct cg_opt *o, const char *value, bool there,
                           struct cg_err *err)
{
        cg_auto_free char *path = NULL;
        json_t *word;

        if (o->id == CG_KOPT_KERNEL_ENV && !there && cg_kernel_env_find(value, &path, err) < 0)
                return -1;
        if (((o->id == CG_KOPT_WORKSPACE || o->id == CG_KOPT_NODE) && !there) || o->id == CG_KOPT_MCP ||
            (o->id == CG_KOPT_SANDBOX && value[0] != '{') || o->id == CG_KOPT_CONFIG ||
            o->id == CG_KOPT_POLICY || o->id == CG_KOPT_AUDIT_KEY ||
            (o->id == CG_KOPT_AUDIT_HEAD && !is_url(value))) {
                path = realpath(value, NULL);
                if (!path)
                        return cg_fail_errno(err, "--%s %s", o->name, value);
        }
        if (o->id == CG_KOPT_IMAGES && value[0] != '/')
                return cg_fail(err, CG_E_INVAL, "--images %s must be an absolute path here", value);
        /* One word each, so that a value that begins with a dash stays a value. */
        if (o->value)
                word = json_sprintf("--%s=%s", o->name, path ?: value);
        else
                word = json_sprintf("--%s", o->name);
        if (json_array_append_new(words, word) < 0)
                return cg_fail(err, CG_E_NOMEM, "options (they must be UTF-8)");
        return 0;
}

int cg_kernel_options_help(enum cg_kernel_command command, const char *text)
{
        return cg_opt_help(table, CG_ARRAY_LEN(table), command, text);
}

int cg_kernel_options_check(const struct cg_kernel_options *o, struct cg_err *err)
{
        if (o->n.policies && o->no_sandbox)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--policy and --no-sandbox contradict each other: without a sandbox cells can change"
                        " the file, and this program");
        if (o->command & JUPYTER && o->workspace && !o->connect.command)
                return cg_fail(err, CG_E_INVAL,
                               "--workspace is for --connect: here it is the folder of the notebook");
        if (o->connect.detach_ms && !o->connect.command)
                return cg_fail(err, CG_E_INVAL, "--detach is for --connect");
        if (o->connect.command && (o->audit.mode || cg_kernel_options_shares(o)))
                return cg_fail(
                        err, CG_E_INVAL,
                        "--connect cannot be combined with --audit, --decide-elsewhere and other clients that "
                        "decide: the audit log and the others are on this machine");
        if ((o->audit.key || o->audit.head) && !o->audit.mode)
                return cg_fail(err, CG_E_INVAL, "--%s needs --audit",
                               o->audit.key ? "audit-key" : "audit-head");
        if (o->audit.sign_artifacts && (!o->audit.mode || o->no_sandbox))
                return cg_fail(
                        err, CG_E_INVAL,
                        o->audit.mode
                                ? "--sign-artifacts needs a sandbox: without one cells can sign files themselves"
                                : "--sign-artifacts needs --audit, whose key signs");
        if (o->deciders.webhook && !cg_kernel_options_shares(o))
                return cg_fail(err, CG_E_INVAL,
                               "--webhook needs --decide-elsewhere: else nothing waits for others");
        if (cg_kernel_options_shares(o) && (o->no_sandbox || o->private))
                return cg_fail(err, CG_E_INVAL,
                               "%s needs a sandbox and the shared supervisor: leave out --%s",
                               o->deciders.elsewhere ? "--decide-elsewhere" : "that others decide",
                               o->no_sandbox ? "no-sandbox" : "private");
        if (o->sandbox && o->no_sandbox)
                return cg_fail(err, CG_E_INVAL, "--sandbox and --no-sandbox contradict each other");
        if (o->n.hosts && o->no_sandbox)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--allow-host and --no-sandbox contradict each other: without a sandbox every host"
                        " can be reached");
        if (o->profiles.bits && (o->sandbox || o->no_sandbox))
                return cg_fail(err, CG_E_INVAL, "--profile and --%s contradict each other",
                               o->sandbox ? "sandbox" : "no-sandbox");
        if (o->profiles.bits && o->n.hosts && !(o->profiles.bits & CG_PROFILE_NETWORK))
                return cg_fail(err, CG_E_INVAL, "--allow-host needs --profile network beside other profiles");
        if (o->n.hosts && o->sandbox)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--allow-host takes the place of --sandbox: name the host in network.allowedDomains"
                        " of %s instead",
                        o->sandbox);
        return 0;
}

void cg_kernel_options_client(const struct cg_kernel_options *o, struct cg_client_options *co)
{
        const char *private = getenv("CELLGATE_PRIVATE"), *comma = strrchr(o->deciders.approvers ?: "", ',');

        /* --webhook reads the list that is for others. */
        if (!o->deciders.elsewhere)
                co->place = comma ? comma + 1 : o->deciders.approvers;
        co->preload = o->preload;
        co->kernel_env = o->kernel_env;
        co->audit_key = o->audit.key_file;
        co->audit_head = o->audit.head_to;
        co->log_level = o->log_level;
        co->connect = o->connect.command ? o->connect.words : NULL;
        co->detach_ms = o->connect.detach_ms;
        co->share = !o->private && !(private && *private) && !o->connect.command;
        /* Cells without a sandbox could end a supervisor, and with it the sessions of others. */
        if (!(o->command & JUPYTER) && (o->no_sandbox || o->log_level > default_log_level(o->command)))
                co->share = 0;
}

/* Files of the audit log, which cells must not reach: what they wrote would be evidence. */
static int check_audit(struct cg_kernel_options *o, const char *workspace, const struct cg_settings *s,
                       struct cg_err *err)
{
        int fd;

        if (o->audit.key && !o->audit.key_file &&
            cg_own_file_check("audit-key", o->audit.key, workspace, s, &o->audit.key_file, err) < 0)
                return -1;
        if (!o->audit.head || o->audit.head_to)
                return 0;
        if (is_url(o->audit.head)) {
                o->audit.head_to = strdup(o->audit.head);
                return cg_made(o->audit.head_to, "--audit-head", err);
        }
        fd = open(o->audit.head, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "--audit-head %s", o->audit.head);
        close(fd);
        return cg_own_file_check("audit-head", o->audit.head, workspace, s, &o->audit.head_to, err);
}

/* The file of --config and .env beside it: the next start obeys both. */
static int check_config(const struct cg_kernel_options *o, const char *workspace, const struct cg_settings *s,
                        struct cg_err *err)
{
        char folder[PATH_MAX], dotenv[PATH_MAX + 8];
        cg_auto_free char *real = NULL, *beside = NULL;

        if (cg_own_file_check("config", o->config, workspace, s, &real, err) < 0)
                return -1;
        cg_path_parent(real, folder);
        snprintf(dotenv, sizeof(dotenv), "%s/.env", folder);
        if (access(dotenv, F_OK) < 0)
                return 0;
        return cg_own_file_check("config", dotenv, workspace, s, &beside, err);
}

/*
 * A cell that can read the token could be its own client, and accept what it asks for; one that can
 * replace the socket could be the server for others, or with another authority the issuer.
 */
static int check_http(const struct cg_kernel_options *o, const char *workspace, const struct cg_settings *s,
                      struct cg_err *err)
{
        const struct {
                const char *option, *path;
        } files[] = { { "token-file", o->http.token_file },
                      { "approver-token-file", o->http.approver_token },
                      { "tls-key", o->http.tls_key },
                      { "oauth-ca", o->http.oauth_ca },
                      { "http", o->http.socket } };

        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++)
                if (files[i].path &&
                    cg_own_folder_check(files[i].option, files[i].path, workspace, s, err) < 0)
                        return -1;
        return 0;
}

static int read_policies(struct cg_kernel_options *o, const struct cg_settings *s, struct cg_err *err)
{
        /* The folder in which Jupyter will start a kernel is not known yet. */
        const char *workspace = o->workspace ?: ".";
        struct cg_pol *p = cg_approve_policy(o->approve);
        enum cg_exec exec = CG_EXEC_ALLOW;
        const char *set = o->exec;
        bool allowed;

        cg_approve_set_namespace(o->approve, o->namespace);
        if (o->command == CG_JUP_INSTALL ||
            o->connect.command) /* cells on another machine write nothing here */
                workspace = NULL;
        if (o->config && o->command != CG_JUP_INSTALL &&
            check_config(o, workspace ?: ".", s, err) < 0) /* with --connect, too: cells may have been here */
                return -1;
        if (workspace && (check_audit(o, workspace, s, err) < 0 || check_http(o, workspace, s, err) < 0))
                return -1;
        for (size_t i = 0; i < o->n.policies; i++) {
                cg_auto_free char *text = NULL;
                size_t len;

                if (cg_policy_file_read(o->policies[i], workspace, s, &text, &len, err) < 0 ||
                    cg_pol_add(p, o->policies[i], text, len, err) < 0)
                        return -1;
        }
        if (!cg_pol_is_about(p, CG_METHOD_EXEC))
                return 0;
        if (!set && !(s && s->own.exec))
                set = o->exec = "ask";
        if (set)
                allowed = strcmp(set, "allow") == 0;
        else
                allowed = cg_exec_rules_mode(s->own.exec, &exec, err) < 0 || exec == CG_EXEC_ALLOW;
        if (allowed)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--policy has rules about programs, but exec is \"allow\", so nothing would be asked"
                        " about: leave it out, or make it \"ask\"");
        return 0;
}

int cg_kernel_options_settings(struct cg_kernel_options *o, char **ret, struct cg_err *err)
{
        cg_auto_settings struct cg_settings *s = NULL;
        cg_auto_free char *text = NULL;

        if (cg_settings_file_read(o->sandbox, &text, err) < 0)
                return -1;
        if (o->profiles.bits &&
            cg_settings_for_profiles(o->profiles.bits, o->hosts, o->kernel_env, &text, err) < 0)
                return -1;
        if (o->profiles.bits)
                o->env[o->n.env++] = o->profiles.variable;
        if (!text && cg_settings_for_hosts(o->hosts, &text, err) < 0)
                return -1;
        if ((text && cg_settings_parse(text, strlen(text), "settings", 0, &s, err) < 0) ||
            read_policies(o, s, err) < 0)
                return -1;
        *ret = CG_STEAL(text);
        return 0;
}

int cg_kernel_options_session(const struct cg_kernel_options *o, const char *workspace,
                              struct cg_kernel_hides *hides, struct cg_session_options *so,
                              struct cg_err *err)
{
        const char *const files[CG_KERNEL_HIDES] = {
                o->mcp, o->sandbox, o->config, o->http.token_file, o->http.approver_token, o->http.tls_key
        };
        size_t n = 0;

        *hides = (struct cg_kernel_hides){ .list = { NULL } };
        for (size_t i = 0; i < CG_KERNEL_HIDES && !o->no_sandbox && !o->connect.command; i++) {
                if (cg_mcp_file_find(files[i], workspace, &hides->files[i], err) < 0)
                        return -1;
                if (hides->files[i])
                        hides->list[n++] = hides->files[i];
        }
        so->hide = hides->list;
        so->sandbox = o->no_sandbox ? CG_SANDBOX_OFF : CG_SANDBOX_ON;
        so->tier = o->tier;
        so->exec = o->exec;
        so->language = o->language;
        so->namespace_name = o->namespace;
        so->node = o->node;
        so->audit = o->audit.mode;
        so->sign_artifacts = o->audit.sign_artifacts;
        so->deciders = o->deciders.elsewhere ? CG_DECIDERS_USER : CG_DECIDERS_HOST;
        so->approvers = o->deciders.approvers;
        if (cg_kernel_options_shares(o))
                so->approval_timeout_ms = ELSEWHERE_MS;
        cg_limit_options(&o->limits, so);
        return 0;
}

void cg_kernel_hides_fini(struct cg_kernel_hides *hides)
{
        for (size_t i = 0; i < CG_KERNEL_HIDES; i++)
                free(hides->files[i]);
}

void cg_limit_options(const struct cg_sandbox_limits *l, struct cg_session_options *so)
{
#define X(id, field, scale, name, setting, unit, words) so->field = l->field;
        CG_LIMITS_TABLE(X)
#undef X
        so->cli_hints = 1;
}
