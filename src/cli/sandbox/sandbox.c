/*
 * `cellgate sandbox`, also under the name `srt`: runs a command in a sandbox. Linked into the
 * front program, which must start within milliseconds: nothing here may need libcellgate.
 */
#include <stdarg.h>
#include <sys/socket.h>

#include "base/account.h"
#include "base/fd.h"
#include "base/ceilings.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/help.h"
#include "config.h"
#include "sandbox/command/command.h"
#include "sandbox/landlock_rules.h"

/* Most --hide options. */
#define HIDES_MAX 64

struct cli {
        const char *settings;     /* --settings; NULL: the default file */
        const char *text;         /* -c */
        const char *tier;         /* --tier; NULL: the settings' */
        const char *control_text; /* --control-fd */
        int control_fd;
        const char *control_socket; /* --control-socket; connected as control_fd */
        const char *control_id;     /* --control-id */
        bool report;                /* --report: control_fd gets denials as control_socket does */
        const char *base;           /* --base; NULL: the current folder */
        const char *hide;           /* the last --hide */
        const char *hides[HIDES_MAX + 1];
        size_t n_hides;
        bool debug;
        bool quiet;
        bool watch_files;
        int ask_seconds;
        bool explain, explain_json;
        char *const *argv;
};

/* Names in it may be of files that an earlier command made: none may act on the terminal. */
static int fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int fail(const char *fmt, ...)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        char text[16384];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        cg_text_render(&b, text, strlen(text), 16384);
        fprintf(stderr, "Error: %s\n", b.data ?: "");
        return 1;
}

/*
 * As srt: without its settings a command does not run with the defaults, which are other rules, not
 * stricter ones.
 */
static int refuse(const char *reason, const char *lost)
{
        fprintf(stderr, "Error: %s\nRefusing to run with the built-in defaults, which would drop %s.\n",
                reason, lost);
        return 1;
}

/* Lines as srt has them. */
static void debug_line(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void debug_line(const struct cli *cli, const char *fmt, ...)
{
        cg_auto_buf struct cg_buf safe = { .max = 1u << 20 };
        cg_auto_free char *text = NULL;
        va_list ap;

        if (!cli->debug)
                return;
        va_start(ap, fmt);
        if (vasprintf(&text, fmt, ap) < 0)
                text = NULL;
        va_end(ap);
        if (!text)
                return;
        cg_text_render(&safe, text, strlen(text), 65536);
        fprintf(stderr, "[SandboxDebug] %s\n", safe.data ?: "");
}

#define FILE_RULES "this file's rules (its denyRead, allowRead and credential entries included)"

static int load_settings(const struct cli *cli, const char *home, struct cg_settings **ret)
{
        cg_auto_free char *text = NULL;
        char path[PATH_MAX], reason[PATH_MAX + 1100];
        struct cg_err err = { 0 };
        size_t len;

        if (cli->settings)
                snprintf(path, sizeof(path), "%s", cli->settings);
        else
                snprintf(path, sizeof(path), "%s/.srt-settings.json", home ?: "");
        if (cg_read_file(path, CG_MAX_SETTINGS, &text, &len, &err) < 0) {
                if (err.sys_errno == ENOENT && !cli->settings) {
                        debug_line(cli, "No config found at %s, using default config", path);
                        if (cg_settings_default(ret, &err) < 0)
                                return fail("%s", err.msg);
                        return 0;
                }
                if (err.sys_errno == ENOENT) {
                        snprintf(reason, sizeof(reason), "%s does not exist.", path);
                        return refuse(reason, "the rules --settings asked for");
                }
                snprintf(reason, sizeof(reason), "%s could not be read (%s).", path,
                         err.sys_errno ? strerrorname_np(err.sys_errno) : err.msg);
                return refuse(reason, FILE_RULES);
        }
        if (!text[strspn(text, " \t\r\n\f\v")]) {
                snprintf(reason, sizeof(reason), "%s is empty. Delete it, or put a config in it.", path);
                return refuse(reason, FILE_RULES);
        }
        if (cg_settings_parse(text, len, path, CG_SETTINGS_LENIENT, ret, &err) < 0)
                return refuse(err.msg, FILE_RULES);
        if ((*ret)->unknown)
                fprintf(stderr, "Warning: %s: \"%s\" is not a setting, and is ignored\n", path,
                        (*ret)->unknown);
        return 0;
}

enum { NEXT = -1 }; /* any other value is an exit status */

static int print(const char *text)
{
        return cg_write_all(1, text, strlen(text), NULL) < 0;
}

/*
 * Whether the only word is a line for a shell, as srt takes all of its words. A program whose name
 * has blanks is still run as such.
 */
static bool is_shell_line(const char *word)
{
        const char *path = getenv("PATH");
        char file[PATH_MAX];

        if (!strpbrk(word, " \t\n") || access(word, F_OK) == 0)
                return false;
        for (const char *p = path; p && *p && !strchr(word, '/'); p += *p == ':') {
                size_t n = strcspn(p, ":");

                if (n && snprintf(file, sizeof(file), "%.*s/%s", (int)n, p, word) < (int)sizeof(file) &&
                    access(file, F_OK) == 0)
                        return false;
                p += n;
        }
        return true;
}

#define ASK_SECONDS 60 /* the default time for an answer */

/* Options with a value: a word of its own, or in the same one after "=", of -c and -s without that. */
static const struct text_option {
        const char *name, *usage;
        size_t offset; /* of the value in struct cli */
} text_options[] = {
        { "-c", "-c <command>", offsetof(struct cli, text) },
        { "-s", "-s, --settings <path>", offsetof(struct cli, settings) },
        { "--settings", "-s, --settings <path>", offsetof(struct cli, settings) },
        { "--tier", "--tier <tier>", offsetof(struct cli, tier) },
        { "--control-fd", "--control-fd <fd>", offsetof(struct cli, control_text) },
        { "--control-socket", "--control-socket <path>", offsetof(struct cli, control_socket) },
        { "--control-id", "--control-id <id>", offsetof(struct cli, control_id) },
        { "--base", "--base <folder>", offsetof(struct cli, base) },
        { "--hide", "--hide <file>", offsetof(struct cli, hide) },
};

static const struct flag_option {
        const char *name, *other;
        size_t offset; /* of its bool */
} flag_options[] = {
        { "-d", "--debug", offsetof(struct cli, debug) },
        { "-q", "--quiet", offsetof(struct cli, quiet) },
        { "--report", "", offsetof(struct cli, report) },
        { "--watch-files", "", offsetof(struct cli, watch_files) },
        { "--explain", "--explain=json", offsetof(struct cli, explain) },
};

/* The error in the value of an option that has a form; NULL: none. */
static const char *take_value(struct cli *cli, const char *value)
{
        if (value == cli->control_text) {
                if (strlen(value) >= 9 || value[strspn(value, "0123456789")] || atoi(value) < 3)
                        return "option '--control-fd <fd>' argument is invalid. must be an integer file"
                               " descriptor >= 3 (0-2 are stdin, stdout and stderr).";
                cli->control_fd = atoi(value);
        }
        if (value == cli->base && value[0] != '/')
                return "option '--base <folder>' argument is invalid. must be an absolute path.";
        if (value == cli->hide) {
                if (value[0] != '/' || cli->n_hides == HIDES_MAX)
                        return "option '--hide <file>' argument is invalid. must be an absolute path, at most 64 times.";
                cli->hides[cli->n_hides++] = value;
        }
        return NULL;
}

/* Option number *i, and its value. NEXT; else the exit status. */
static int read_option(struct cli *cli, char **argv, int *i)
{
        const char *w = argv[*i], *value, *wrong;
        char *end = NULL;
        long n = ASK_SECONDS;

        for (const struct flag_option *o = flag_options; o < flag_options + CG_ARRAY_LEN(flag_options); o++)
                if (strcmp(w, o->name) == 0 || strcmp(w, o->other) == 0) {
                        *(bool *)((char *)cli + o->offset) = true;
                        cli->explain_json |= strcmp(w, "--explain=json") == 0;
                        return NEXT;
                }
        for (const struct text_option *o = text_options; o < text_options + CG_ARRAY_LEN(text_options); o++) {
                value = w + strlen(o->name);
                if (strncmp(w, o->name, strlen(o->name)) != 0 || (w[1] == '-' && *value && *value != '='))
                        continue;
                if (!*value)
                        value = argv[++*i];
                else if (w[1] == '-')
                        value++;
                if (!value)
                        return fail("option '%s' argument missing", o->usage);
                memcpy((char *)cli + o->offset, &value, sizeof(value));
                wrong = take_value(cli, value);
                if (wrong)
                        return fail("%s", wrong);
                return NEXT;
        }
        if (strcmp(w, "-h") == 0 || strcmp(w, "--help") == 0)
                return print(CG_HELP_SANDBOX);
        if (strcmp(w, "-V") == 0 || strcmp(w, "--version") == 0)
                return print(CG_VERSION "\n");
        if (strcmp(w, "--ask") == 0 || strncmp(w, "--ask=", 6) == 0) {
                if (w[5])
                        n = strtol(w + 6, &end, 10);
                if (w[5] && (end == w + 6 || *end || n < 1 || n > 86400))
                        return fail("option '--ask=<seconds>' argument is invalid. must be 1 to 86400.");
                cli->ask_seconds = (int)n;
                return NEXT;
        }
        return fail("unknown option '%.200s' (--help lists them; a command that starts with - follows --)",
                    w);
}

/* Options end where the command starts: all further words are the command's. */
static int read_options(struct cli *cli, int argc, char **argv)
{
        bool dashes = false;
        int i = 1, r;

        for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
                if (strcmp(argv[i], "--") == 0) {
                        dashes = true;
                        i++;
                        break;
                }
                r = read_option(cli, argv, &i);
                if (r != NEXT)
                        return r;
        }
        cli->argv = argv + i;
        if (!cli->text && !dashes && i + 1 == argc && is_shell_line(argv[i]))
                cli->text = argv[i];
        if (!cli->text && i >= argc && !cli->explain)
                return fail("No command specified. Use -c <command> or provide command arguments.");
        return NEXT;
}

#define CONTROL_ID_MAX 1024

/* A command whose host has ended does not run. */
static int connect_control(struct cli *cli)
{
        static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=+";
        char line[CONTROL_ID_MAX + 64];
        struct cg_err err = { 0 };
        int len;

        if (cli->control_id && (!cli->control_socket || strlen(cli->control_id) > CONTROL_ID_MAX ||
                                cli->control_id[strspn(cli->control_id, plain)]))
                return fail(
                        "option '--control-id <id>' argument is invalid. it needs --control-socket, and must be at most 1024 "
                        "letters, digits and characters of _-./:=+");
        if (!cli->control_socket || cli->explain)
                return 0;
        if (cli->control_fd >= 0)
                return fail("--control-fd and --control-socket exclude each other");
        len = snprintf(line, sizeof(line), "{\"type\":\"start\",\"id\":\"%s\"}\n", cli->control_id ?: "");
        if (cg_connect_unix_now(cli->control_socket, &cli->control_fd, &err) == 0 &&
            send(cli->control_fd, line, (size_t)len, MSG_NOSIGNAL) == len)
                return 0;
        return fail(
                "--control-socket: %.400s. Refusing to run the command without the control channel it asks for.",
                err.msg[0] ? err.msg : strerror(errno));
}

/* A control channel that cannot work is an error before anything is made. */
static int check_control(const struct cli *cli)
{
        int flags = O_RDONLY, type = 0;
        socklen_t size = sizeof(type);

        if ((cli->ask_seconds || cli->report) &&
            (getsockopt(cli->control_fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM))
                return fail(
                        "--ask and --report need --control-fd with a stream socket, or --control-socket: questions, answers and denials go "
                        "through it. Nobody is asked at the terminal, which the command can write to.");
        if (cli->control_fd >= 0)
                flags = fcntl(cli->control_fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_WRONLY)
                return 0;
        return fail("--control-fd %d is not usable: %s. Refusing to run the command without the control "
                    "channel it asks for.",
                    cli->control_fd, flags < 0 ? strerror(errno) : "it cannot be read");
}

static void debug_hosts(const char *name, const struct cg_strs *hosts, const char *between)
{
        fprintf(stderr, "  \"%s\": [", name);
        for (size_t i = 0; i < hosts->n; i++)
                fprintf(stderr, "%s\n    \"%s\"", cg_sep(i, ","), hosts->v[i]);
        fprintf(stderr, "%s]%s\n", hosts->n ? "\n  " : "", between);
}

static int explain(const struct cli *cli, const struct cg_command *c, int fd)
{
        cg_auto_buf struct cg_buf out;
        struct cg_err err = { 0 };

        cg_buf_init(&out, 64u << 20);
        if (cg_command_explain(c, cli->explain_json, &out, &err) < 0)
                return fail("%s", err.msg);
        if (cg_write_all(fd, out.data, out.len, &err) < 0)
                return fail("%s", err.msg);
        return 0;
}

/* --debug: what is about to run, and its sandbox. */
static void debug_start(const struct cli *cli, const struct cg_command *c)
{
        static const char plain[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
        const struct cg_path_list *list = &c->settings->filesystem.allow_write;
        cg_auto_buf struct cg_buf b = { .max = 1u << 20 };
        char path[PATH_MAX];

        if (!cli->debug)
                return;
        if (cli->text)
                debug_line(cli, "Command string mode (-c): %s", cli->text);
        /* For people: quotes in an argument are not quoted themselves. */
        for (char *const *arg = cli->argv; !cli->text && *arg; arg++) {
                const char *quote = **arg && !(*arg)[strspn(*arg, plain)] ? "" : "'";

                cg_buf_addf(&b, "%s%s%s%s", arg == cli->argv ? "" : " ", quote, *arg, quote);
        }
        if (!cli->text)
                debug_line(cli, "Original command: %s", b.data ?: "");
        debug_line(cli, "{");
        debug_hosts("allowedHosts", &c->settings->network.allowed, ",");
        debug_hosts("deniedHosts", &c->settings->network.denied, "");
        fputs("}\n", stderr);
        for (size_t i = 0; i < list->n; i++) {
                if (cg_path_absolute(&c->base, list->v[i].path, path, NULL) < 0)
                        continue;
                cg_path_strip_all(path);
                debug_line(cli, "[Sandbox Linux] Processing write path: %s -> %s", list->v[i].path, path);
                if (access(path, F_OK) < 0)
                        debug_line(cli, "[Sandbox Linux] Skipping non-existent write path: %s", path);
        }
        if (cli->control_fd >= 0)
                debug_line(cli, "Listening for config updates on fd %d", cli->control_fd);
        explain(cli, c, 2);
}

static int run(const struct cli *cli, struct cg_command *c)
{
        cg_auto_buf struct cg_buf folders = { .max = 32768 };
        struct cg_err err = { 0 };
        bool writes = c->rules.off;
        int status;

        for (size_t i = 0; i < c->rules.n; i++)
                writes = writes || c->rules.v[i].kind == CG_RULE_ALLOW_WRITE;
        if (cli->explain)
                return explain(cli, c, 1);
        if (c->masks.warnings.len)
                fputs(c->masks.warnings.data, stderr);
        cg_rules_say_path_folders(&c->rules, "the command", &folders);
        if (cg_buf_end(&folders, NULL) == 0 && folders.len)
                fprintf(stderr, "cellgate sandbox: %s\n", folders.data);
        if (c->fell_back)
                fprintf(stderr,
                        "cellgate sandbox: user namespaces are not available here: this runs in the weaker landlock tier, as \"auto\" "
                        "allows (`cellgate doctor` says why)\n");
        if (c->sb->grants && writes)
                fprintf(stderr,
                        "cellgate sandbox: the landlock tier protects what programs outside obey (docs/names.md) only where it is now: new "
                        "files of such names can be made in folders that are not frozen\n");
        if (c->sb->grants && c->sb->grants->n_unheld)
                fprintf(stderr,
                        "cellgate sandbox: %zu denials of writing do not hold in this tier, as \":accept\" allows (--explain lists "
                        "them)\n",
                        c->sb->grants->n_unheld);
        debug_start(cli, c);
        status = cg_command_run(c, &err);
        if (err.code < 0)
                fail("%s", err.msg);
        return status;
}

int cg_cli_sandbox(int argc, char **argv)
{
        struct cli cli = { .control_fd = -1, .debug = getenv("SRT_DEBUG") != NULL };
        struct cg_command_options opts = { .env = environ };
        struct cg_settings *settings = NULL;
        struct cg_command *c = NULL;
        struct cg_err err = { 0 };
        char cwd[PATH_MAX], file[2 * PATH_MAX];
        static char account[PATH_MAX];
        const char *home = getenv("HOME");
        int status;

        /* A closed standard stream would be given away to the next file that is opened here. */
        for (int fd = 0; fd <= 2; fd++) {
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
                        return 1;
        }
        status = read_options(&cli, argc, argv);
        if (status != NEXT)
                return status;
        if (!getcwd(cwd, sizeof(cwd)) || cwd[0] != '/')
                return fail("the working folder was removed, or is not accessible");
        opts.cwd = cwd;
        if (home && home[0] == '/')
                opts.home = home;
        else if (cg_account_home(account))
                opts.home = account;
        if (cli.settings) {
                bool whole = cli.settings[0] == '/';

                if (snprintf(file, sizeof(file), "%s%s%s", whole ? "" : cwd, whole ? "" : "/",
                             cli.settings) >= (int)sizeof(file))
                        return fail("the path of the settings file is too long");
                opts.settings = file;
        } else if (opts.home) {
                opts.settings = "~/.srt-settings.json";
        }
        opts.shell_text = cli.text;
        opts.argv = cli.argv;
        opts.tier = cli.tier;
        opts.only_plan = cli.explain;
        opts.debug = cli.debug;
        opts.quiet = cli.quiet;
        opts.watch_files = cli.watch_files;
        opts.ask_seconds = cli.ask_seconds;
        if (connect_control(&cli) != 0 || check_control(&cli) != 0 ||
            load_settings(&cli, opts.home, &settings) != 0)
                return 1;
        opts.control_fd = cli.control_fd;
        opts.control_socket = (cli.control_socket || cli.report) && cli.control_fd >= 0;
        opts.report = cli.report;
        opts.base = cli.base;
        opts.hides = cli.hides;
        debug_line(&cli, "Initializing sandbox...");
        if (cg_command_new(settings, &opts, &c, &err) < 0)
                return fail("%s", err.msg);
        status = run(&cli, c);
        cg_command_free(c);
        return status;
}
