/*
 * `cellgate selftest`: tries to get out of a sandbox of this machine, and says for each attempt what came of it. The attempts are made
 * by cellgate-selftest (src/selftest), a program of its own that runs inside; this makes what they are about, and counts.
 */
#include "cli/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "cli/cli.h"
#include "cli/opts.h"
#include "config.h"

#define HELPER CG_LIBEXECDIR "/cellgate-selftest"
#define MAX_LIST (1u << 20)
#define MAX_PATTERNS 64
/* Longest wait for the next attempt's line; the program inside gives each ten seconds. */
#define LINE_MS 60000
#define OPEN_FD 70 /* left open on purpose: the sandbox must close it */

static const char help[] =
        "Usage: cellgate selftest [OPTIONS]\n\n"
        "Tries to get out of a sandbox, here and now: some hundred attempts to read, write, reach or become what a sandbox\n"
        "must keep away, each in a throw-away scene. Needs no network and no rights. One line for each:\n\n"
        "  ok    it was denied (or, for what must be possible: it is)\n"
        "  HOLE  it was not denied\n"
        "  FAIL  something that must be possible is not, or an attempt could not be made\n"
        "  skip  it cannot be tried on this machine; the line says why\n\n"
        "      --only PATTERN  only attempts whose name matches, as of files: 'proxy-*'. May be given several times\n"
        "      --list          do not try anything: name, layer that holds it, what is tried\n"
        "      --json          one JSON object a line, and one for the sum\n"
        "  -q, --quiet         only what is not ok, and the sum\n"
        "      --no-sandbox    make the attempts without a sandbox: most then are holes, which shows that they would notice one\n"
        "  -h, --help          this text\n\n"
        "Exit status: 0 everything holds; 1 a HOLE or a FAIL; 2 command line, or the attempts could not be made.\n";

enum { ONLY = 2, LIST, JSON, QUIET, BARE, HELP };

static const struct cg_opt table[] = {
        {ONLY, 0, "only", "PATTERN"}, {LIST, 0, "list", NULL},       {JSON, 0, "json", NULL},
        {QUIET, 'q', "quiet", NULL},  {BARE, 0, "no-sandbox", NULL}, {HELP, 'h', "help", NULL},
};

struct selftest {
        const char *only[MAX_PATTERNS + 1];
        size_t n_only;
        bool list, bare, help;
        struct cg_report report;
        struct cg_attempt_list attempts;
        struct cg_scene scene;
        sigset_t old_mask;
        int signals; /* what would end this before it has cleaned up */
};

bool cg_selftest_matches(const char *const *only, const char *name)
{
        if (!*only)
                return true;
        for (; *only; only++) {
                if (fnmatch(*only, name, 0) == 0)
                        return true;
        }
        return false;
}

/* ---- the report */
static const struct {
        const char *word, *name, *say;
} outcomes[CG_N_OUTCOMES] = {
        [CG_OUT_HELD] = {"ok", "held", "denied"},      [CG_OUT_HOLE] = {"HOLE", "hole", "not denied"},
        [CG_OUT_WORKS] = {"ok", "works", "possible"},  [CG_OUT_FAILS] = {"FAIL", "fails", "not possible"},
        [CG_OUT_SKIP] = {"skip", "skip", "not tried"},
};

static void print_json(json_t *o)
{
        cg_auto_free char *text = NULL;
        size_t len;

        text = o ? cg_json_text(o, &len) : NULL;
        if (text)
                puts(text);
        json_decref(o);
}

static void line_json(const struct cg_attempt_line *a, const char *where, enum cg_outcome o, const char *note)
{
        json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", a->name, "where", where, "group", a->group, "kind",
                              a->allow ? "allow" : "deny", "what", a->what, "outcome", outcomes[o].name, "withoutSandbox",
                              *a->bare ? a->bare : "all");

        if (j && *a->layer)
                json_object_set_new(j, "layer", json_string(a->layer));
        if (j && *note)
                json_object_set_new(j, "note", json_string(note));
        print_json(j);
}

void cg_report_line(struct cg_report *r, const struct cg_attempt_line *a, const char *where, enum cg_outcome o, const char *note)
{
        bool bad = o == CG_OUT_HOLE || o == CG_OUT_FAILS, kernel = !strcmp(where, "kernel");

        r->n[o]++;
        if (r->json) {
                line_json(a, where, o, note);
        } else if (bad || !r->quiet) {
                printf("%-4s %s%-*s %s%s%s", outcomes[o].word, kernel ? "kernel:" : "", (int)r->width - (kernel ? 7 : 0), a->name,
                       outcomes[o].say, *note ? ": " : "", note);
                if (bad)
                        printf("  (%s)", a->what);
                printf("\n");
        }
        fflush(stdout);
}

static int sum(const struct cg_report *r)
{
        size_t held = r->n[CG_OUT_HELD] + r->n[CG_OUT_WORKS], holes = r->n[CG_OUT_HOLE], failed = r->n[CG_OUT_FAILS],
               skipped = r->n[CG_OUT_SKIP], all = held + holes + failed + skipped;

        if (r->json)
                print_json(json_pack("{s:b, s:I, s:I, s:I, s:I, s:I}", "sum", 1, "attempts", (json_int_t)all, "held", (json_int_t)held,
                                     "holes", (json_int_t)holes, "failed", (json_int_t)failed, "skipped", (json_int_t)skipped));
        else if (failed)
                printf("\n%zu attempts: %zu held, %zu holes, %zu skipped, %zu failed\n", all, held, holes, skipped, failed);
        else
                printf("\n%zu attempts: %zu held, %zu holes, %zu skipped\n", all, held, holes, skipped);
        return fflush(stdout) ? CG_EXIT_USAGE : holes || failed ? 1 : 0;
}

/* ---- which attempts there are */
static int run_to_text(char *const *argv, size_t max, char **ret, struct cg_err *err)
{
        struct cg_proc p = CG_PROC_NONE;
        struct cg_proc_spec spec = {.path = argv[0], .argv = argv, .envp = environ};
        int out[2], status = 0, e;
        size_t len;

        if (pipe2(out, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        spec.fds = (const struct cg_proc_fd[]){{-1, 0}, {out[1], 1}, {2, 2}};
        spec.n_fds = 3;
        e = cg_proc_spawn(&spec, &p, err);
        close(out[1]);
        if (e == 0)
                e = cg_read_fd(out[0], argv[0], max, ret, &len, err);
        close(out[0]);
        if (p.pid && cg_proc_wait(&p, 10000, &status, err) != 0)
                cg_proc_end(&p, false, 0);
        return e == 0 && status ? cg_fail(err, CG_E_SYS, "%s failed", argv[0]) : e;
}

static int parse_attempt(char *line, struct cg_attempt_line *a)
{
        char *field[7], *save = NULL;
        size_t n = 0;

        /* Fields may be empty: strsep(), not strtok(). */
        for (save = line; save && n < CG_ARRAY_LEN(field); n++)
                field[n] = strsep(&save, "\t");
        if (n != CG_ARRAY_LEN(field))
                return -1;
        *a = (struct cg_attempt_line){.name = field[0], .group = field[1], .allow = !strcmp(field[2], "allow"), .layer = field[3],
                                      .bare = field[4], .kernel = strcmp(field[5], "command") != 0,
                                      .command = strcmp(field[5], "kernel") != 0, .what = field[6]};
        return 0;
}

static int load_attempts(struct selftest *s, struct cg_err *err)
{
        static char *const argv[] = {(char *)HELPER, (char *)"--list", NULL};
        struct cg_attempt_list *l = &s->attempts;
        char *save = NULL;
        size_t lines = 1;

        if (run_to_text(argv, MAX_LIST, &l->text, err) < 0)
                return -1;
        for (const char *p = l->text; *p; p++)
                lines += *p == '\n';
        l->v = calloc(lines, sizeof(*l->v));
        if (!l->v)
                return cg_fail(err, CG_E_NOMEM, "attempts");
        for (char *line = strtok_r(l->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                struct cg_attempt_line *a = &l->v[l->n];

                if (parse_attempt(line, a) < 0)
                        return cg_fail(err, CG_E_PROTO, "%s speaks another language: is cellgate installed completely?", HELPER);
                a->wanted = cg_selftest_matches(s->only, a->name);
                if (strlen(a->name) + 1 > s->report.width)
                        s->report.width = strlen(a->name) + 1;
                l->n++;
        }
        return 0;
}

static int print_list(struct selftest *s)
{
        for (size_t i = 0; i < s->attempts.n; i++) {
                const struct cg_attempt_line *a = &s->attempts.v[i];

                if (!a->wanted)
                        continue;
                if (s->report.json)
                        print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b}", "name", a->name, "group", a->group, "kind",
                                             a->allow ? "allow" : "deny", "layer", a->layer, "withoutSandbox", a->bare, "what", a->what,
                                             "kernel", (int)a->kernel));
                else
                        printf("%-5s %-*s %-20s %s\n", a->allow ? "allow" : "deny", (int)s->report.width, a->name, a->layer, a->what);
        }
        return fflush(stdout) ? CG_EXIT_USAGE : 0;
}

/* ---- what holds here: the attempts of a layer that this machine's sandbox has not are skipped, and say so */
static int find_layers(struct selftest *s, struct cg_err *err)
{
        char path[PATH_MAX];
        char *const argv[] = {(char *)(CG_BINDIR "/cellgate"), (char *)"sandbox", (char *)"--explain=json", (char *)"--settings",
                              (char *)cg_scene_path(&s->scene, "settings.json", path), NULL};
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        cg_auto_buf struct cg_buf layers;
        json_t *layer;
        size_t i;

        cg_buf_init(&layers, 4096);
        if (run_to_text(argv, MAX_LIST, &text, err) < 0 || cg_json_object(text, strlen(text), "--explain", &o, err) < 0)
                return -1;
        json_array_foreach(json_object_get(o, "layers"), i, layer) {
                const char *name = json_string_value(layer);

                if (name && cg_buf_addf(&layers, err, "%s ", name) < 0)
                        return -1;
        }
        return cg_scene_set(&s->scene, err, "layers=%s proxy environment descriptors session", layers.data ? layers.data : "");
}

/* ---- the run */
static void in_child(const struct selftest *s, char *const *argv, char *const *envp, int out)
{
        char path[PATH_MAX];
        int slave = s->scene.terminal < 0 ? open("/dev/null", O_RDWR) : -1, file;

        sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
        setsid();
        if (slave < 0)
                slave = open(s->scene.terminal_name, O_RDWR);
        if (s->scene.terminal >= 0)
                ioctl(slave, TIOCSCTTY, 0);
        /* What attempts change of mounts, where nothing stops them, is nobody else's. */
        if (s->bare && geteuid() == 0 && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
                _exit(98);
        file = open(cg_scene_path(&s->scene, "out/private.txt", path), O_RDONLY);
        if (dup2(slave, 0) < 0 || dup2(out, 1) < 0 || dup2(file, OPEN_FD) < 0 || chdir(cg_scene_path(&s->scene, "work", path)) < 0)
                _exit(98);
        close_range(3, OPEN_FD - 1, 0);
        execve(argv[0], argv, envp);
        _exit(99);
}

/* The command, its environment, and the names of the attempts that are wanted. */
static char **command_of(const struct selftest *s, char path[2][PATH_MAX])
{
        static char *const in_sandbox[] = {(char *)(CG_BINDIR "/cellgate"), (char *)"sandbox", (char *)"--settings", NULL, (char *)"--"};
        char **argv = calloc(s->attempts.n + 16, sizeof(*argv));
        size_t n = 0;

        if (!argv)
                return NULL;
        if (!s->bare) {
                memcpy(argv, in_sandbox, sizeof(in_sandbox));
                argv[3] = (char *)cg_scene_path(&s->scene, "settings.json", path[0]);
                n = CG_ARRAY_LEN(in_sandbox);
        }
        argv[n++] = (char *)HELPER;
        argv[n++] = (char *)cg_scene_path(&s->scene, "scene", path[1]);
        argv[n++] = (char *)"command";
        for (size_t i = 0; i < s->attempts.n; i++) {
                if (s->attempts.v[i].wanted && s->attempts.v[i].command)
                        argv[n++] = (char *)(uintptr_t)s->attempts.v[i].name;
        }
        return argv;
}

static int start(struct selftest *s, pid_t *pid, int *out, struct cg_err *err)
{
        char path[2][PATH_MAX], home[PATH_MAX], env[4][PATH_MAX + 100];
        char *envp[] = {env[0], env[1], env[2], s->bare ? env[3] : NULL, NULL};
        cg_auto_free char **argv = command_of(s, path);
        const char *port = strstr(s->scene.text.data, "\nport_proxy=");
        int fds[2];

        snprintf(env[0], sizeof(env[0]), "HOME=%s", cg_scene_path(&s->scene, "home", home));
        snprintf(env[1], sizeof(env[1]), "PATH=%.4000s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
        snprintf(env[2], sizeof(env[2]), "CELLGATE_SELFTEST_SECRET=%s", s->scene.secret);
        snprintf(env[3], sizeof(env[3]), "HTTP_PROXY=http://127.0.0.1:%d", port ? atoi(port + 12) : 0);
        if (!argv || pipe2(fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
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

static struct cg_attempt_line *attempt_named(struct selftest *s, const char *name)
{
        for (size_t i = 0; i < s->attempts.n; i++) {
                if (!strcmp(s->attempts.v[i].name, name))
                        return &s->attempts.v[i];
        }
        return NULL;
}

/* NAME <tab> OUTCOME <tab> NOTE, from inside. A name that was asked for counts once; anything else is not ours. */
static int take_line(struct selftest *s, char *line, bool *seen)
{
        char *save = line, *name = strsep(&save, "\t"), *word = strsep(&save, "\t");
        struct cg_attempt_line *a = attempt_named(s, name);
        enum cg_outcome o = 0;

        while (word && o < CG_N_OUTCOMES && strcmp(outcomes[o].name, word) != 0)
                o++;
        if (!a || !word || !save || o == CG_N_OUTCOMES || !a->wanted || seen[a - s->attempts.v])
                return -1;
        seen[a - s->attempts.v] = true;
        cg_report_line(&s->report, a, "sandbox", o, save);
        return 0;
}

static int wait_for_line(const struct selftest *s, int fd, struct cg_err *err)
{
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = s->signals, .events = POLLIN}};
        int n = poll(fds, CG_ARRAY_LEN(fds), LINE_MS);

        if (n < 0)
                return cg_fail_errno(err, "waiting for the attempts");
        if (n == 0)
                return cg_fail(err, CG_E_TIMEDOUT, "the attempts said nothing for a minute");
        return fds[1].revents ? cg_fail(err, CG_E_CLOSED, "interrupted") : 0;
}

static int read_lines(struct selftest *s, int fd, bool *seen, struct cg_err *err)
{
        char buf[8192];
        size_t n = 0;

        for (;;) {
                ssize_t r;
                char *eol;

                if (wait_for_line(s, fd, err) < 0)
                        return -1;
                r = read(fd, buf + n, sizeof(buf) - 1 - n);
                if (r <= 0)
                        return 0;
                n += (size_t)r;
                buf[n] = '\0';
                while ((eol = memchr(buf, '\n', n))) {
                        *eol = '\0';
                        if (take_line(s, buf, seen) < 0)
                                return cg_fail(err, CG_E_PROTO, "the attempts said something else: %.100s", buf);
                        n -= (size_t)(eol + 1 - buf);
                        memmove(buf, eol + 1, n);
                }
                if (n == sizeof(buf) - 1)
                        return cg_fail(err, CG_E_LIMIT, "a line of the attempts is too long");
        }
}

/* What said nothing was not tried: never a success. */
static void fail_unseen(struct selftest *s, const bool *seen, const char *why)
{
        for (size_t i = 0; i < s->attempts.n; i++) {
                const struct cg_attempt_line *a = &s->attempts.v[i];

                if (a->wanted && a->command && !seen[i])
                        cg_report_line(&s->report, a, "sandbox", CG_OUT_FAILS, why);
        }
}

static int run_command(struct selftest *s, struct cg_err *err)
{
        cg_auto_free bool *seen = calloc(s->attempts.n + 1, sizeof(*seen));
        char why[1100] = "the program that makes the attempts ended before this one";
        struct cg_err problem = {0};
        bool any = false;
        int fd = -1, status = 0;
        pid_t pid = -1;

        for (size_t i = 0; i < s->attempts.n; i++)
                any |= s->attempts.v[i].wanted && s->attempts.v[i].command;
        if (!any)
                return 0;
        if (!seen)
                return cg_fail(err, CG_E_NOMEM, "attempts");
        if (start(s, &pid, &fd, err) < 0)
                return -1;
        if (read_lines(s, fd, seen, &problem) < 0) {
                snprintf(why, sizeof(why), "%s", problem.msg);
                kill(pid, SIGKILL); /* which ends a sandbox and all in it */
        }
        close(fd);
        waitpid(pid, &status, 0);
        fail_unseen(s, seen, why);
        return 0;
}

/* ---- the command */
static int apply(struct selftest *s, int id, const char *value, struct cg_err *err)
{
        switch (id) {
        case ONLY:
                if (s->n_only == MAX_PATTERNS)
                        return cg_fail(err, CG_E_LIMIT, "more than %d times --only", MAX_PATTERNS);
                s->only[s->n_only++] = value;
                return 0;
        case LIST:
                s->list = true;
                return 0;
        case JSON:
                s->report.json = true;
                return 0;
        case QUIET:
                s->report.quiet = true;
                return 0;
        case BARE:
                s->bare = true;
                return 0;
        case HELP:
                s->help = true;
                return 0;
        default:
                return cg_fail(err, CG_E_INVAL, "\"%s\": it takes options only; --help lists them", value);
        }
}

static int read_options(struct selftest *s, int argc, char **argv, struct cg_err *err)
{
        struct cg_optscan scan = {.table = table, .n = CG_ARRAY_LEN(table), .argc = argc, .argv = argv, .i = 1};
        const char *value;
        int id;

        while ((id = cg_opt_next(&scan, &value, err)) > 0) {
                if (apply(s, id, value, err) < 0)
                        return -1;
        }
        return id;
}

/* From here on there is something to clean up. */
static int hold_signals(struct selftest *s, struct cg_err *err)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &set, &s->old_mask) < 0)
                return cg_fail_errno(err, "signals");
        s->signals = signalfd(-1, &set, SFD_CLOEXEC);
        return s->signals < 0 ? cg_fail_errno(err, "signals") : 0;
}

static int run_all(struct selftest *s, struct cg_err *err)
{
        if (hold_signals(s, err) < 0)
                return -1;
        if (cg_scene_make(&s->scene, s->bare, err) < 0 || cg_scene_write_settings(&s->scene, err) < 0)
                return -1;
        if (!s->bare && find_layers(s, err) < 0)
                return -1;
        if (cg_scene_write(&s->scene, err) < 0 || run_command(s, err) < 0)
                return -1;
        cg_scene_after(&s->scene, &s->report, s->only);
        return 0;
}

static int fail(const struct cg_err *err)
{
        return cg_cli_fail("selftest", err);
}

int cg_cli_selftest(int argc, char **argv)
{
        struct selftest s = {.n_only = 0};
        struct cg_err err = {0};
        int e;

        if (argc > 1 && !strcmp(argv[1], "--canary"))
                return cg_canary_main();
        if (read_options(&s, argc, argv, &err) < 0)
                return fail(&err);
        if (s.help)
                return cg_cli_print(help);
        e = load_attempts(&s, &err);
        if (e == 0 && s.list) {
                e = print_list(&s);
        } else if (e == 0) {
                e = run_all(&s, &err);
                cg_scene_end(&s.scene);
                if (e == 0)
                        e = sum(&s.report);
        }
        free(s.attempts.v);
        free(s.attempts.text);
        return e < 0 ? fail(&err) : e;
}
