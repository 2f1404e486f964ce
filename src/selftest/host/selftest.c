/*
 * `cellgate selftest`: tries to get out of a sandbox of this machine, and reports the outcome of
 * each attempt. The attempts are made by cellgate-selftest (src/selftest/inside), a program of its
 * own that runs inside; this program prepares the scene and counts.
 */
#include "selftest/host/selftest.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/installed.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "config.h"

#define MAX_PATTERNS 64
#define MAX_LOG      (4u << 20)
/* Longest wait for the next attempt's line; the program inside gives each ten seconds. */
#define LINE_MS    60000
#define NAME_WIDTH 26
#define OPEN_FD    70 /* left open on purpose: the sandbox must close it */

enum { CG_SELFTEST_OPTION_IDS };

static const struct cg_opt table[] = { CG_SELFTEST_OPTION_ROWS };

struct selftest {
        const char *only[MAX_PATTERNS + 1];
        size_t n_only;
        bool list, bare, help;
        bool weak; /* the landlock tier */
        struct cg_report report;
        struct cg_attempt_list attempts;
        struct cg_scene scene;
        sigset_t old_mask;
        int signals; /* signalfd of those that end the run */
};

/* ---- layers of this machine's sandbox: attempts of missing layers are skipped */
static int find_layers(struct selftest *s, struct cg_err *err)
{
        char path[PATH_MAX];
        const char *const argv[] = { CG_INSTALLED(CG_BINDIR "/cellgate"),
                                     "sandbox",
                                     "--explain=json",
                                     "--settings",
                                     cg_scene_path(&s->scene, "settings.json", path),
                                     NULL };
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;

        if (cg_selftest_output(argv, &text, err) < 0 ||
            cg_json_object(text, strlen(text), "--explain", &o, err) < 0)
                return -1;
        s->weak = strcmp(json_string_value(json_object_get(o, "tier")) ?: "full", "landlock") == 0;
        s->report.weak = s->weak;
        cg_scene_add_layers(&s->scene.text, o);
        return cg_buf_end(&s->scene.text, err);
}

/* ---- the run */
static void in_child(const struct selftest *s, const char *const *argv, char *const *envp, int out)
{
        char path[PATH_MAX];
        int slave = s->scene.terminal < 0 ? open("/dev/null", O_RDWR) : -1, file, log;

        sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
        setsid();
        if (slave < 0)
                slave = open(s->scene.terminal_name, O_RDWR);
        if (s->scene.terminal >= 0)
                ioctl(slave, TIOCSCTTY, 0);
        /* Without a sandbox attempts may change mounts: these must not be the machine's. */
        if (s->bare && geteuid() == 0 &&
            (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
                _exit(98);
        file = open(cg_scene_path(&s->scene, "out/private.txt", path), O_RDONLY);
        log = open(cg_scene_path(&s->scene, "log", path), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (dup2(slave, 0) < 0 || dup2(out, 1) < 0 || dup2(log, 2) < 0 || dup2(file, OPEN_FD) < 0 ||
            chdir(cg_scene_path(&s->scene, "work", path)) < 0)
                _exit(98);
        close_range(3, OPEN_FD - 1, 0);
        execve(argv[0], (char *const *)(uintptr_t)argv, envp);
        _exit(99);
}

/* Starts the program inside, with the names of the due attempts; @out: its standard output. */
static int start(struct selftest *s, pid_t *pid, int *out, struct cg_err *err)
{
        char settings[PATH_MAX], scene[PATH_MAX], folder[PATH_MAX], folders[CG_SCENE_SEARCH_MAX];
        char env[5][CG_SCENE_SEARCH_MAX + 100];
        char *envp[] = { env[0], env[1], env[2], env[3], s->bare ? env[4] : NULL, NULL };
        const char *const in_sandbox[] = { CG_INSTALLED(CG_BINDIR "/cellgate"), "sandbox", "--settings",
                                           cg_scene_path(&s->scene, "settings.json", settings), "--" };
        cg_auto_free const char **argv = calloc(s->attempts.n + 16, sizeof(*argv));
        const char *port = strstr(s->scene.text.data, "\nport_proxy=");
        size_t n = 0;
        int fds[2];

        if (!argv || pipe2(fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        if (!s->bare) {
                memcpy(argv, in_sandbox, sizeof(in_sandbox));
                n = CG_ARRAY_LEN(in_sandbox);
        }
        argv[n++] = CG_INSTALLED(CG_SELFTEST_HELPER);
        argv[n++] = cg_scene_path(&s->scene, "scene", scene);
        argv[n++] = "command";
        for (size_t i = 0; i < s->attempts.n; i++)
                if (s->attempts.v[i].due)
                        argv[n++] = s->attempts.v[i].name;
        snprintf(env[0], sizeof(env[0]), "HOME=%s", cg_scene_path(&s->scene, "home", folder));
        snprintf(env[1], sizeof(env[1]), "PATH=%s", cg_scene_search_path(&s->scene, folders));
        snprintf(env[2], sizeof(env[2]), "CELLGATE_SELFTEST_SECRET=%s", s->scene.secret);
        snprintf(env[3], sizeof(env[3]), "XDG_RUNTIME_DIR=%s", cg_scene_path(&s->scene, "work/run", folder));
        snprintf(env[4], sizeof(env[4]), "HTTP_PROXY=http://127.0.0.1:%d", port ? atoi(port + 12) : 0);
        *pid = fork();
        if (*pid == 0)
                in_child(s, argv, envp, fds[1]);
        close(fds[1]);
        *out = fds[0];
        if (*pid < 0) {
                close(fds[0]);
                return cg_fail_errno(err, "a process for the attempts");
        }
        return 0;
}

static int read_lines(struct selftest *s, int fd, struct cg_err *err)
{
        struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = s->signals, .events = POLLIN } };
        char buf[8192];
        size_t n = 0;

        for (;;) {
                int ready = poll(fds, CG_ARRAY_LEN(fds), LINE_MS);
                ssize_t r;
                char *eol;

                if (ready < 0)
                        return cg_fail_errno(err, "waiting for the attempts");
                if (ready == 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "no outcome of an attempt for a minute");
                if (fds[1].revents)
                        return cg_fail(err, CG_E_CLOSED, "interrupted");
                r = read(fd, buf + n, sizeof(buf) - 1 - n);
                if (r <= 0)
                        return 0;
                n += (size_t)r;
                buf[n] = '\0';
                while ((eol = memchr(buf, '\n', n))) {
                        *eol = '\0';
                        if (cg_report_take(&s->report, &s->attempts, "sandbox", buf) < 0)
                                return cg_fail(err, CG_E_PROTO, "the attempts sent an unknown line: %.100s",
                                               buf);
                        n -= (size_t)(eol + 1 - buf);
                        memmove(buf, eol + 1, n);
                }
                if (n == sizeof(buf) - 1)
                        return cg_fail(err, CG_E_LIMIT, "a line of the attempts is too long");
        }
}

/* The sandbox logs its denials there. Shown only after a failure of the run itself. */
static void show_log(const struct selftest *s)
{
        cg_auto_free char *text = NULL;
        cg_auto_buf struct cg_buf safe = { .max = 65536 };
        char path[PATH_MAX];
        size_t len;

        if (cg_read_file(cg_scene_path(&s->scene, "log", path), MAX_LOG, &text, &len, NULL) < 0)
                return;
        cg_text_render(&safe, text, CG_MIN(len, 4000), 0);
        if (cg_buf_end(&safe, NULL) == 0 && safe.len)
                fprintf(stderr, "%s\n", safe.data);
}

static int check_signals(const struct selftest *s, struct cg_err *err)
{
        struct pollfd p = { .fd = s->signals, .events = POLLIN };

        if (poll(&p, 1, 0) == 1)
                return cg_fail(err, CG_E_CLOSED, "interrupted");
        return 0;
}

static int run_command(struct selftest *s, struct cg_err *err)
{
        char why[1100] = "the program that makes the attempts ended before this one";
        struct cg_err problem = { 0 };
        size_t due = cg_attempts_due(&s->attempts, false), left = 0;
        int fd = -1, status = 0;
        pid_t pid = -1;

        if (due == 0)
                return 0;
        if (start(s, &pid, &fd, err) < 0)
                return -1;
        if (read_lines(s, fd, &problem) < 0) {
                snprintf(why, sizeof(why), "%s", problem.msg);
                kill(pid, SIGKILL); /* which ends a sandbox and all in it */
        }
        close(fd);
        waitpid(pid, &status, 0);
        for (size_t i = 0; i < s->attempts.n; i++)
                left += s->attempts.v[i].due;
        if (left == due && !check_signals(s, err)) {
                show_log(s);
                return cg_fail(err, CG_E_STATE,
                               "the sandbox does not start (cellgate doctor lists what is missing): %s", why);
        }
        if (cg_report_missing(&s->report, &s->attempts, "sandbox", why) > 0)
                show_log(s);
        return 0;
}

/* ---- the command */
static int read_options(struct selftest *s, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(LIST, struct selftest, list),
                CG_OPT_PLACE(JSON, struct selftest, report.json),
                CG_OPT_PLACE(QUIET, struct selftest, report.quiet),
                CG_OPT_PLACE(TIER, struct selftest, scene.tier),
                CG_OPT_PLACE(BARE, struct selftest, bare),
                CG_OPT_PLACE(HELP, struct selftest, help),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, 0, argc, argv, 1);
        const char *value, *tier;
        int id;

        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), s, &value, err)) > CG_OPT_END) {
                if (id != ONLY)
                        return cg_fail(err, CG_E_INVAL, "\"%s\": it takes options only; --help lists them",
                                       value);
                if (s->n_only == MAX_PATTERNS)
                        return cg_fail(err, CG_E_LIMIT, "more than %d times --only", MAX_PATTERNS);
                s->only[s->n_only++] = value;
        }
        tier = s->scene.tier;
        if (id == CG_OPT_END && tier &&
            (strlen(tier) > 30 || tier[strspn(tier, "abcdefghijklmnopqrstuvwxyz:")]))
                return cg_fail(err, CG_E_INVAL, "--tier: \"%.50s\" is not a tier", tier);
        return id;
}

static int run_all(struct selftest *s, struct cg_err *err)
{
        /* From here on signals must not end the process before it has cleaned up. */
        if (cg_block_end_signals(&s->old_mask, &s->signals, err) < 0 ||
            cg_scene_make(&s->scene, s->bare, err) < 0 || cg_scene_write_settings(&s->scene, err) < 0)
                return -1;
        if (!s->bare && find_layers(s, err) < 0)
                return -1;
        if (cg_scene_write(&s->scene, err) < 0 || run_command(s, err) < 0 || check_signals(s, err) < 0)
                return -1;
        if (!s->weak && cg_selftest_kernel(&s->scene, &s->attempts, &s->report, s->signals, err) < 0)
                return -1;
        cg_scene_after(&s->scene, &s->report, &s->attempts);
        return 0;
}

int cg_cli_selftest(int argc, char **argv)
{
        const struct cg_attempt_table tables[] = { cg_attempts_kernel, cg_attempts_after };
        struct selftest s = { .n_only = 0 };
        struct cg_err err = { 0 };
        int r;

        if (argc > 1 && strcmp(argv[1], "--canary") == 0)
                return cg_canary_main();
        if (argc == 3 && strcmp(argv[1], "--mcp-server") == 0)
                return cg_selftest_mcp_main(argv[2]);
        if (read_options(&s, argc, argv, &err) < 0)
                return cg_cli_fail("selftest", &err);
        if (s.help)
                return cg_opt_help(table, CG_ARRAY_LEN(table), 0, CG_HELP_SELFTEST);
        s.report.width = NAME_WIDTH;
        r = cg_attempts_load(&s.attempts, tables, CG_ARRAY_LEN(tables), s.only, &err);
        if (r == 0 && s.list) {
                r = cg_attempts_print(&s.attempts, &s.report);
        } else if (r == 0) {
                r = run_all(&s, &err);
                cg_scene_end(&s.scene);
                if (r == 0)
                        r = cg_report_sum(&s.report);
        }
        cg_attempts_free(&s.attempts);
        if (r < 0)
                return cg_cli_fail("selftest", &err);
        return r;
}
