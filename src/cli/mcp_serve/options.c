/* `cellgate mcp serve`: its command line. */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/installed.h"
#include "base/json.h"
#include "config.h"

/* Long enough for a person who was elsewhere, short enough that a call does not hang for ever. */
#define ASK_TIMEOUT_MS 300000
/* Over HTTP a client may come back, and the call does not hang. */
#define HTTP_ASK_TIMEOUT_MS 900000
/* Clients give up a call after 60 s or 120 s, whatever progress they get. */
#define WAIT_MS 45000
/* Limits of sessions that calls can make. */
#define IDLE_MS        ((int64_t)1800 * 1000)
#define MAX_SESSIONS   32
#define MAX_PER_CLIENT 8

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

static int check_client(const char *client, struct cg_err *err)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(formats); i++)
                if (strcmp(formats[i].client, client) == 0)
                        return 0;
        return cg_fail(err, CG_E_INVAL,
                       "--print-config must be claude, cursor, vscode, codex or generic, not \"%s\"", client);
}

static int positive(const char *option, const char *what, const char *value, int64_t *ret_ms,
                    struct cg_err *err)
{
        if (cg_opt_seconds(option, value, ret_ms, err) < 0)
                return -1;
        if (*ret_ms == 0)
                return cg_fail(err, CG_E_INVAL, "%s must be more than 0: it is how long %s may wait", option,
                               what);
        return 0;
}

static int apply(struct cg_serve_options *o, int id, const char *value, struct cg_err *err)
{
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r <= 0)
                return r;
        switch (id) {
        case CG_KOPT_PRINT_CONFIG:
                o->print_config = value;
                return check_client(value, err);
        case CG_KOPT_COMPAT:
                o->compat = true;
                return 0;
        case CG_KOPT_PLAIN_RESULTS:
                o->plain = true;
                return 0;
        case CG_KOPT_TOOLSETS:
                return cg_serve_read_toolsets(value, &o->toolsets, err);
        case CG_KOPT_WEB_SEARCH:
                o->web_search = value;
                return 0;
        case CG_KOPT_ASK_TIMEOUT:
                return positive("--ask-timeout", "a question", value, &o->ask_timeout_ms, err);
        case CG_KOPT_WAIT:
                return positive("--wait", "a call", value, &o->wait_ms, err);
        case CG_KOPT_HTTP:
                o->http = value;
                if (strncmp(value, "unix:", 5) == 0 && value[5])
                        o->kernel.http.socket = value + 5;
                return 0;
        case CG_KOPT_APPROVER_TOKEN:
                o->kernel.http.approver_token = value;
                o->of_http = !o->id_begin[0];
                return 0;
        case CG_KOPT_TOKEN_FILE:
                o->kernel.http.token_file = value;
                o->of_http = !o->id_begin[0];
                return 0;
        case CG_KOPT_TLS_KEY:
                o->kernel.http.tls_key = value;
                o->of_http = !o->id_begin[0];
                return 0;
        case CG_KOPT_OAUTH_CA:
                o->kernel.http.oauth_ca = value;
                o->of_http = true;
                return 0;
        case CG_KOPT_OF_HTTP:
                o->of_http = true;
                return 0;
        case CG_KOPT_MAX_SESSIONS:
                o->of_sessions = true;
                return cg_opt_int("--max-sessions", value, 1, CG_SERVE_MAX_SESSIONS, &o->max_sessions, err);
        case CG_KOPT_PER_CLIENT:
                o->of_sessions = true;
                return cg_opt_int("--max-sessions-per-client", value, 1, CG_SERVE_MAX_SESSIONS,
                                  &o->max_per_client, err);
        case CG_KOPT_IDLE:
                o->of_sessions = true;
                return positive("--idle", "a session", value, &o->idle_ms, err);
        default:
                return cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"", value);
        }
}

/* It has one session, whose kernel never starts. */
static int check_approver(struct cg_serve_options *o, struct cg_err *err)
{
        /* No session has a workspace, by which the file could be checked. */
        if (o->kernel.config)
                return cg_fail(err, CG_E_INVAL, "--toolsets approvals takes no --config");
        if (o->http)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--toolsets approvals is for standard input and output: over HTTP the agent's token"
                        " would be good for it; give --approver-token-file to the server whose calls are"
                        " decided");
        o->place = o->place ?: "mcp";
        o->new_sessions = false;
        o->idle_ms = 0;
        return 0;
}

/* Cells on another machine have no use for tools that act on this one. */
static int check_connect(const struct cg_serve_options *o, struct cg_err *err)
{
        if (o->kernel.workspace[0] != '/')
                return cg_fail(err, CG_E_INVAL,
                               "--connect needs --workspace DIR, the absolute path of a folder of the other "
                               "machine");
        if (o->toolsets & (CG_SERVE_HOST | CG_SERVE_WEB))
                return cg_fail(err, CG_E_INVAL,
                               "--toolsets host and web act on this machine: not with --connect");
        if (o->kernel.http.approver_token)
                return cg_fail(err, CG_E_INVAL,
                               "--approver-token-file is not for --connect: only the client itself decides "
                               "about a session of another machine");
        return 0;
}

/* Clients with the second token of this HTTP server decide as well. */
static void add_place(struct cg_serve_options *o)
{
        if (!o->place)
                return;
        if (o->kernel.deciders.approvers)
                snprintf(o->places, sizeof(o->places), "%s,", o->kernel.deciders.approvers);
        snprintf(o->places + strlen(o->places), sizeof(o->places) - strlen(o->places), "%s", o->place);
        o->kernel.deciders.approvers = o->places;
}

int cg_serve_parse(int argc, char **argv, struct cg_serve_options *o, struct cg_err *err)
{
        const char *value = getenv(CG_MCPD_HTTP_SESSION);
        struct cg_optscan scan;
        int id;

        *o = (struct cg_serve_options){ .ask_timeout_ms = ASK_TIMEOUT_MS,
                                        .wait_ms = WAIT_MS,
                                        .idle_ms = IDLE_MS,
                                        .max_sessions = MAX_SESSIONS,
                                        .max_per_client = MAX_PER_CLIENT,
                                        .toolsets = CG_SERVE_CORE | CG_SERVE_JOBS };
        if (cg_kernel_options_init(&o->kernel, CG_CMD_SERVE, argc, argv, &scan, err) < 0)
                return -1;
        o->kernel.workspace = ".";
        if (value) {
                o->ask_timeout_ms = HTTP_ASK_TIMEOUT_MS;
                snprintf(o->id_begin, sizeof(o->id_begin), "%s", value);
                o->new_sessions = strchr(value + strlen(o->id_begin), 's') != NULL;
                o->by_name = strchr(value + strlen(o->id_begin), 'n') != NULL;
                o->place = getenv(CG_MCPD_HTTP_PLACE);
        }
        cg_approve_set_default(o->kernel.approve, CG_APPROVE_REFUSE);
        while (!o->kernel.help && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END)
                if (id < 0 || apply(o, id, value, err) < 0)
                        return -1;
        if (o->kernel.help)
                return 0;
        if (o->toolsets & CG_SERVE_APPROVALS)
                return check_approver(o, err);
        if (o->kernel.connect.command && check_connect(o, err) < 0)
                return -1;
        add_place(o);
        if (cg_kernel_options_shares(&o->kernel))
                cg_approve_set_default(o->kernel.approve, CG_APPROVE_ASK);
        if (o->of_http && !o->http)
                return cg_fail(err, CG_E_INVAL,
                               "an option that is for --http only is given without it: --help says \"with "
                               "--http\" of these");
        if (o->of_sessions && !o->http && !o->id_begin[0] && !(o->toolsets & CG_SERVE_SESSIONS))
                return cg_fail(
                        err, CG_E_INVAL,
                        "--max-sessions, --max-sessions-per-client and --idle are for --http or the toolset "
                        "sessions only");
        if (!(o->toolsets & CG_SERVE_SESSIONS) && !o->new_sessions)
                o->idle_ms = 0;
        if (o->http && o->print_config)
                return cg_fail(err, CG_E_INVAL,
                               "--print-config is for standard input and output: not with --http");
        return cg_kernel_options_check(&o->kernel, err);
}

/*
 * ---- --print-config CLIENT: what to paste into the settings of an MCP client, so that it starts
 * this program with the options of this command line. Starts nothing.
 */

/* The words of the command line after the program, without --print-config. */
static int add_options(json_t *args, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt workspace = { .id = CG_KOPT_WORKSPACE,
                                                 .name = "workspace",
                                                 .value = "DIR" };
        struct cg_kernel_options scratch;
        struct cg_optscan scan;
        const char *value;
        bool has_workspace = false, there = false;
        int id, r = cg_kernel_options_init(&scratch, CG_CMD_SERVE, argc, argv, &scan, err);

        while (r >= 0 && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END) {
                has_workspace |= id == CG_KOPT_WORKSPACE;
                there |= id == CG_KOPT_CONNECT;
                if (id != CG_KOPT_PRINT_CONFIG)
                        r = cg_kernel_options_word(args, scan.found, value, there, err);
        }
        cg_kernel_options_fini(&scratch);
        if (r >= 0 && !has_workspace)
                r = cg_kernel_options_word(args, &workspace, ".", false, err);
        return r;
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
        if (puts("") < 0 || fflush(stdout))
                return cg_fail_errno(err, "standard output");
        return 0;
}

/*
 * ---- --http: hands the command line over to cellgate-mcp-http, its options before "--" and those
 * of each session, unchanged, behind it. Limits of sessions are for both, since calls can make more
 * in a process, the files that cells must not read, since a session hides them, and the tier, which
 * /health names.
 */

/* Room for the words of both programs, and NULL. */
#define MORE_WORDS 6

int cg_serve_http(int argc, char **argv, struct cg_err *err)
{
        const char *program = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-mcp-http"), *value;
        static const char *const middle[] = { "--", "cellgate", "mcp", "serve" };
        size_t max = (size_t)argc * 2 + MORE_WORDS, n = 1, n_rest = 0;
        cg_auto_free const char **words = calloc(max, sizeof(*words)), **rest = calloc(max, sizeof(*rest));
        struct cg_kernel_options scratch;
        struct cg_optscan scan;
        int id, first, r = cg_kernel_options_init(&scratch, CG_CMD_SERVE, argc, argv, &scan, err);

        if (!words || !rest)
                r = cg_fail(err, CG_E_NOMEM, "options");
        else
                words[0] = "cellgate-mcp-http";
        for (first = scan.i; r == 0 && (id = cg_opt_next(&scan, &value, err)) > CG_OPT_END; first = scan.i) {
                bool both = id == CG_KOPT_MAX_SESSIONS || id == CG_KOPT_PER_CLIENT || id == CG_KOPT_IDLE ||
                            id == CG_KOPT_TOKEN_FILE || id == CG_KOPT_APPROVER_TOKEN ||
                            id == CG_KOPT_TLS_KEY || id == CG_KOPT_TIER;
                bool ours = id == CG_KOPT_HTTP || id == CG_KOPT_OF_HTTP || id == CG_KOPT_OAUTH_CA;

                if (id == CG_KOPT_NO_SANDBOX) {
                        words[n++] = "--tier";
                        words[n++] = "none";
                }
                for (; first < scan.i; first++) {
                        if (ours || both)
                                words[n++] = argv[first];
                        if (!ours)
                                rest[n_rest++] = argv[first];
                }
        }
        cg_kernel_options_fini(&scratch);
        if (r < 0)
                return r;
        memcpy(words + n, middle, sizeof(middle));
        memcpy(words + n + CG_ARRAY_LEN(middle), rest, n_rest * sizeof(*rest));
        execv(program, (char *const *)(uintptr_t)words);
        if (errno == ENOENT)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "--http is not in this installation, which was built without libmicrohttpd and "
                        "GnuTLS (docs/install.md)");
        return cg_fail_errno(err, "%s", program);
}
