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

static const struct cg_opt table[] = { CG_KERNEL_OPTION_ROWS };

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
        /* An existing file is not opened before the check: it may be a FIFO, or a dangling link. */
        fd = open(o->audit.head, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && (errno != EEXIST || access(o->audit.head, W_OK) < 0))
                return cg_fail_errno(err, "--audit-head %s", o->audit.head);
        cg_closep_(&fd);
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
