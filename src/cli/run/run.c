/*
 * `cellgate run`: runs cells in one session and follows their events. Runs in the command
 * `cellgate`, a host application.
 *
 * One thread, one poll(): events of the session, signals, and the output's own descriptor (answers
 * of a person or decisions of a program). text.c is the output for people, json.c the one for
 * programs.
 */
#include "cli/run/run.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "cli/common/config.h"
#include "cli/common/files.h"
#include "cli/common/rule_check.h"
#include "cli/common/webhook.h"
#include "cli/help.h"
#include "mcp/pins/accept.h"
#include "config.h"

/*
 * ^C. A signal handler has nothing but file scope. Before the session is open, and at the second
 * signal, the program just ends: the supervisor notices that by its lifeline and ends all the rest,
 * wherever this process was blocked. So does a signal after the end was reported, with the status
 * that was reported.
 */
static struct {
        /* the session is open: the first signal is read from the pipe */
        volatile sig_atomic_t armed;
        /* what the run ends with, once that was reported; -1: not yet */
        volatile sig_atomic_t status;
        volatile sig_atomic_t count;
        volatile sig_atomic_t first; /* the first signal */
        int pipe[2];
        const struct cg_run *run; /* set while armed */
} interrupt = { .status = -1, .pipe = { -1, -1 } };

/*
 * Longest time from a signal to the end of the run, where nobody can answer questions or the
 * program has to end. A cell that asks again after ^C is not ended otherwise; one that neither asks
 * nor ends is ended by the supervisor before this time.
 */
#define END_MS 4000
/* The same for a run that is blocked, e.g. because nobody reads its output. */
#define BLOCKED_S (END_MS / 1000 + 4)

static bool must_end(const struct cg_run *run, int sig)
{
        return sig != SIGINT || run->opts.json || !run->allow_stdin;
}

static void on_signal(int sig)
{
        int saved = errno;

        if (interrupt.status >= 0)
                _exit(interrupt.status);
        if (!interrupt.armed)
                _exit(128 + sig);
        if (interrupt.count++ > 0) {
                if (interrupt.run->output->abandon)
                        interrupt.run->output->abandon(interrupt.run);
                _exit(128 + (sig == SIGALRM ? interrupt.first : sig));
        }
        interrupt.first = sig;
        if (must_end(interrupt.run, sig))
                alarm(BLOCKED_S);
        if (write(interrupt.pipe[1], &(char){ (char)sig }, 1) < 0)
                _exit(128 + sig);
        errno = saved;
}

static int catch_signals(struct cg_err *err)
{
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
        struct sigaction sa = { .sa_handler = on_signal }, old;

        signal(SIGPIPE, SIG_IGN); /* seen as EPIPE, so that the session is ended in order */
        if (pipe2(interrupt.pipe, O_CLOEXEC | O_NONBLOCK) < 0)
                return cg_fail_errno(err, "pipe");
        for (size_t i = 0; i < CG_ARRAY_LEN(signals); i++)
                /* Ignored signals stay ignored: nohup, background jobs without job control. */
                if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
                        sigaction(signals[i], &sa, NULL);
        return 0;
}

/* ------------------------------------------------------------------ the loop */

static bool end_is_due(const struct cg_run *run)
{
        return run->end_ms && cg_now_ms() >= run->end_ms;
}

static bool signal_came(struct cg_run *run)
{
        unsigned char sig;

        if (read(interrupt.pipe[0], &sig, 1) != 1)
                return false;
        run->signal = sig;
        return true;
}

/* The status of a run that a signal ends is the signal's, whatever else happened. */
static bool ended_by_signal(struct cg_run *run)
{
        if (!run->signal && !signal_came(run))
                return false;
        run->status = 128 + run->signal;
        return true;
}

/*
 * Called once, after all other output. A host reads the end from the last line: that of a signal is
 * always the same, whether a cell ran or not. @err: set when @r is negative.
 */
static void report_end(struct cg_run *run, int r, struct cg_err *err)
{
        if (ended_by_signal(run) && r == 0 && run->opts.json)
                r = cg_fail(err, CG_E_CLOSED, "ended by SIG%s", sigabbrev_np(run->signal));
        if (r < 0)
                run->output->failed(run, err, run->status);
        interrupt.status = run->status;
}

/* After SIGINT, SIGTERM or SIGHUP: cancels the cell; no further one is started. */
static int interrupted(struct cg_run *run, struct cg_err *err)
{
        if (!signal_came(run))
                return 0;
        if (must_end(run, run->signal))
                run->end_ms = cg_now_ms() + END_MS;
        run->output->interrupted(run);
        return cg_session_cancel(run->session, run->cell, err);
}

/*
 * One event for each poll(): a cell can send events faster than they are shown, and signals and the
 * output's descriptor have to be read meanwhile.
 */
static int take_event(struct cg_run *run, struct cg_err *err)
{
        struct cg_event *e;
        int r = cg_session_next_event(run->session, 0, &e, err);

        if (r == CG_TIMEOUT)
                return 0;
        if (r == CG_CLOSED)
                return cg_fail(err, CG_E_CLOSED, "the session has ended");
        if (r < 0)
                return r;
        return cg_run_event(run, e, false, err);
}

static int wait_once(struct cg_run *run, struct cg_err *err)
{
        struct pollfd p[] = { { .fd = interrupt.pipe[0], .events = POLLIN },
                              { .fd = -1, .events = POLLIN },
                              { .fd = -1, .events = POLLIN },
                              { .fd = run->wake_fd, .events = POLLIN },
                              { .fd = -1 } };
        int64_t left = run->end_ms - cg_now_ms();
        bool events_too;
        int r, timeout_ms;

        if (end_is_due(run))
                return cg_fail(err, CG_E_CLOSED,
                               "the cell did not end after the signal: its kernel is ended");
        run->output->wait(run, &p[1].fd, &events_too, &timeout_ms);
        if (run->screen.tty[2] && (timeout_ms < 0 || timeout_ms > 1000))
                timeout_ms = 1000;
        if (run->end_ms && (timeout_ms < 0 || timeout_ms > left))
                timeout_ms = left > 0 ? (int)left : 0;
        if (events_too)
                p[2].fd = cg_session_fd(run->session);
        if (run->opts.json) /* reports that the host reads no more: its link to here has ended */
                p[4].fd = STDOUT_FILENO;
        r = poll(p, CG_ARRAY_LEN(p), timeout_ms);
        if (r < 0 && errno == EINTR)
                return 0;
        if (r < 0)
                return cg_fail_errno(err, "poll");
        if (r == 0 && run->output->tick)
                return run->output->tick(run, err);
        if (p[4].revents)
                run->screen.error = EPIPE;
        if (p[0].revents && interrupted(run, err) < 0)
                return -1;
        if (p[1].revents && run->output->readable(run, err) < 0)
                return -1;
        if (p[2].revents && !run->done && !end_is_due(run) && take_event(run, err) < 0)
                return -1;
        return p[3].revents ? run->output->woken(run, err) : 0;
}

static int output_failed(struct cg_run *run, struct cg_err *err)
{
        if (run->screen.error == EPIPE) {
                run->status = CG_EXIT_PIPE;
                return 0;
        }
        errno = run->screen.error;
        cg_fail_errno(err, "cannot write to standard %s", run->screen.error_fd == 2 ? "error" : "output");
        run->status = CG_EXIT_USAGE;
        return -1;
}

/* Runs one cell to its result. Negative: the run cannot go on; run->status is how it ends. */
static int run_cell(struct cg_run *run, const struct cg_cell *cell, struct cg_err *err)
{
        struct cg_execute_options o = { .size = sizeof(o),
                                        .timeout_ms = run->opts.timeout_ms,
                                        .allow_stdin = run->allow_stdin,
                                        .artifacts = cell->artifacts || run->opts.kernel.artifacts };
        cg_auto_buf struct cg_buf extra = { .max = 65536 };
        int r;

        if (cell->timeout_ms >= 0)
                o.timeout_ms = cell->timeout_ms;
        if (cell->variables)
                o.extra = "{\"variables\":true}";
        /* Tracebacks name the file and its lines. */
        if (cell->line && run->opts.file && strcmp(run->opts.file, "-") != 0) {
                cg_buf_adds(&extra, "{\"metadata\":{\"cellgate\":{\"file\":");
                cg_json_quote(&extra, run->opts.file, strlen(run->opts.file));
                cg_buf_addf(&extra, ",\"line\":%zu}}}", cell->line);
                if (cg_buf_end(&extra, NULL) == 0)
                        o.extra = extra.data;
        }
        run->done = false;
        run->started_ms = cg_now_ms();
        /* any failure below means that the session or the supervisor has ended */
        run->status = CG_EXIT_KERNEL_DIED;
        r = cg_session_execute(run->session, cell->code, cell->len, &o, &run->cell, err);
        if (r >= 0 && run->output->started)
                r = run->output->started(run, err);
        while (r >= 0 && !run->done && !run->screen.error)
                r = wait_once(run, err);
        if (run->screen.error)
                r = output_failed(run, err);
        /*
         * Also where the cell has caught the KeyboardInterrupt or ended meanwhile, or the
         * supervisor was ended by the same signal.
         */
        ended_by_signal(run);
        return r;
}

/* The cells of the command line, up to the first that does not end well; then those of the host. */
static void run_cells(struct cg_run *run)
{
        const struct cg_cell *cell = NULL;
        struct cg_err err;
        bool wait = false;
        int r = 0;

        for (run->index = 0; run->index < run->opts.cells.n && r == 0; run->index++) {
                r = run_cell(run, &run->opts.cells.v[run->index], &err);
                if (run->status != CG_EXIT_OK)
                        break;
        }
        if (r == 0 && run->output->next && !run->signal && !run->screen.error) {
                r = run->output->next(run, &cell, &wait, &err);
                if (run->opts.stay)
                        run->status = CG_EXIT_OK;
        }
        /* A failed cell of the host neither ends the run nor sets the exit status. */
        while (r == 0 && (cell || wait) && !run->signal && !run->screen.error) {
                if (cell) {
                        r = run_cell(run, cell, &err);
                } else { /* no cell runs: wait for the host or an event of the session */
                        run->cell = 0;
                        run->done = false;
                        run->status = CG_EXIT_KERNEL_DIED;
                        r = wait_once(run, &err);
                        if (run->screen.error)
                                r = output_failed(run, &err);
                        else if (r == 0)
                                run->status = CG_EXIT_OK;
                }
                if (r == 0 && !run->signal && !run->screen.error) {
                        run->status = CG_EXIT_OK;
                        r = run->output->next(run, &cell, &wait, &err);
                }
        }
        report_end(run, r, &err);
        cg_screen_clear(&run->screen);
}

/* ------------------------------------------------------------------ setting up */

/* Servers are added in a thread of their own, so that progress is shown meanwhile. */
struct adding {
        struct cg_session *session;
        const char *text;
        size_t len;
        int done_fd;
        char *report;
        int r;
        struct cg_err err;
};

static void *add_in_thread(void *data)
{
        struct adding *a = data;
        uint64_t one = 1;

        a->r = cg_session_add_mcp_servers(a->session, a->text, a->len, 0, &a->report, &a->err);
        if (write(a->done_fd, &one, sizeof(one)) < 0)
                _exit(1); /* an eventfd's counter cannot be full */
        return NULL;
}

/*
 * Adds the servers, and handles events until the thread has ended. A signal ends the process, since
 * the thread's call cannot be cancelled.
 */
static int add_and_show(struct cg_run *run, struct adding *a, struct cg_err *err)
{
        struct pollfd p[] = { { .events = POLLIN },
                              { .fd = cg_session_fd(run->session), .events = POLLIN },
                              { .fd = interrupt.pipe[0], .events = POLLIN } };
        struct cg_event *e;
        pthread_t thread;
        int r = 0;

        a->session = run->session;
        a->done_fd = eventfd(0, EFD_CLOEXEC);
        if (a->done_fd < 0)
                return cg_fail_errno(err, "eventfd");
        errno = pthread_create(&thread, NULL, add_in_thread, a);
        if (errno) {
                close(a->done_fd);
                return cg_fail_errno(err, "thread");
        }
        p[0].fd = a->done_fd;
        while (!p[0].revents && r >= 0) {
                if (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno != EINTR) {
                        r = cg_fail_errno(err, "poll");
                        break;
                }
                if (ended_by_signal(run)) {
                        report_end(run, 0, err);
                        _exit(run->status);
                }
                if (!p[1].revents)
                        continue;
                r = cg_session_next_event(run->session, 0, &e, err);
                if (r == CG_CLOSED)
                        p[1].fd = -1; /* the thread's call reports why */
                else if (r == 0)
                        r = cg_run_event(run, e, false, err);
        }
        pthread_join(thread, NULL);
        close(a->done_fd);
        if (r < 0)
                return r;
        if (a->r < 0)
                *err = a->err;
        return a->r;
}

/*
 * At a terminal: shows what has changed in the servers' tools, and adds the servers again when
 * something was accepted, for modules with the new texts.
 */
static int accept_changes(struct cg_run *run, struct adding *a, struct cg_err *err)
{
        cg_auto_json json_t *report = NULL;
        const char *server;
        size_t accepted = 0;
        json_t *one;
        int r = 0;

        if (run->opts.json || !run->screen.tty[2] || !isatty(0) ||
            cg_json_object(a->report, strlen(a->report), "report", &report, NULL) < 0)
                return 0;
        json_object_foreach(report, server, one) {
                const json_t *pins = json_object_get(one, "pins");
                struct cg_accept q = { .server = server,
                                       .file = json_string_value(json_object_get(pins, "file")) };

                if (r == 0 && json_array_size(json_object_get(pins, "changed")))
                        r = cg_accept_tools(&q, err);
                accepted += q.accepted;
        }
        if (r < 0 || !accepted)
                return r;
        cg_free(a->report);
        a->report = NULL;
        return add_and_show(run, a, err);
}

/* Says which approval rules match nothing. */
static int check_rules(struct cg_run *run, const char *report, struct cg_err *err)
{
        cg_auto_buf struct cg_buf notes = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *known = cg_rules_known(report, NULL);
        int r = cg_rules_check(run->opts.kernel.approve, known, &notes, err);

        for (char *p = notes.data, *line; (line = strsep(&p, "\n")) && p;)
                if (run->output->note(run, line, r < 0 ? NULL : err) < 0)
                        r = -1;
        return r;
}

static int add_servers(struct cg_run *run, struct cg_err *err)
{
        struct adding a = { .text = run->servers, .len = run->servers_len };
        cg_auto_json json_t *servers = NULL;
        int r;

        if (!run->opts.kernel.mcp)
                return check_rules(run, NULL, err);
        servers = json_loadb(run->servers, run->servers_len, JSON_ALLOW_NUL, NULL);
        cg_approve_set_servers(run->opts.kernel.approve, servers, CG_INSTALLED(CG_BINDIR "/cellgate"));
        if (add_and_show(run, &a, err) < 0 || accept_changes(run, &a, err) < 0) {
                cg_free(a.report);
                return cg_err_prefix(err, "%s", run->opts.kernel.mcp);
        }
        r = run->output->servers(run, a.report, err);
        if (r >= 0)
                r = check_rules(run, a.report, err);
        cg_free(a.report);
        return r;
}

static int open_session(struct cg_run *run, struct cg_session_options *so, struct cg_err *err)
{
        const struct cg_kernel_options *o = &run->opts.kernel;
        struct cg_client_options co = { .size = sizeof(co) };

        if (o->no_sandbox)
                cg_screen_note(&run->screen,
                               "no sandbox: the cells' code can do all that you can, with or without "
                               "approval");
        cg_kernel_options_client(o, &co);
        co.no_spare = !co.share;
        if (cg_webhook_start(o->deciders.webhook, &co, err) < 0 || cg_client_open(&co, &run->client, err) < 0)
                return -1;
        if (cg_client_why_private(run->client))
                cg_screen_note(&run->screen, "private supervisor, since none can be shared: %s",
                               cg_client_why_private(run->client));
        return cg_session_new(run->client, so, &run->session, err);
}

/* Reads and checks the files before anything is started, then opens the session. */
static int set_up(struct cg_run *run, struct cg_err *err)
{
        struct cg_kernel_options *o = &run->opts.kernel;
        struct cg_session_options so = { .size = sizeof(so), .workspace = o->workspace, .env = o->env };
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };

        if (cg_kernel_options_settings(o, &run->settings, err) < 0 ||
            cg_mcp_file_read(o->mcp, &run->servers, &run->servers_len, err) < 0)
                return -1;
        if ((run->opts.json ? cg_run_json_init(run, err) : cg_run_text_init(run, err)) < 0)
                return -1;
        so.settings = run->settings;
        so.ask_egress = run->can_ask || cg_pol_is_about(cg_approve_policy(o->approve), CG_METHOD_CONNECT);
        so.server_requests = run->opts.server_requests;
        if (cg_kernel_options_session(o, o->workspace, &hides, &so, err) < 0 ||
            open_session(run, &so, err) < 0)
                return -1;
        interrupt.run = run;
        interrupt.armed = 1; /* before the host can know of the run */
        if (run->output->opened && run->output->opened(run, err) < 0)
                return -1;
        return add_servers(run, err);
}

static int run_all(struct cg_run *run)
{
        struct cg_run_sync sync = { .fd = -1 };
        struct cg_err err;

        cg_screen_init(&run->screen);
        if (catch_signals(&err) < 0)
                return cg_cli_fail("run", &err);
        if (!run->opts.cells.n && !run->opts.stay) {
                cg_screen_note(&run->screen, "%s has no code cells: nothing was run", run->opts.file);
                return CG_EXIT_OK;
        }
        if ((run->opts.sync && cg_run_sync_start(&run->opts, &sync, &err) < 0) || set_up(run, &err) < 0) {
                run->status = CG_EXIT_USAGE;
                if (run->output)
                        report_end(run, -1, &err);
                else
                        cg_cli_fail("run", &err);
        } else {
                run_cells(run);
        }
        if (run->output && run->output->leave && run->output->leave(run))
                _exit(run->status); /* the supervisor ends all the rest */
        run->session = cg_session_free(run->session);
        run->client = cg_client_close(run->client);
        if (cg_run_sync_end(&sync, &err) < 0) {
                cg_cli_fail("run", &err);
                run->status = run->status ?: CG_EXIT_USAGE;
        }
        if (run->output)
                run->output->free(run);
        free(run->settings);
        free(run->servers);
        return run->status;
}

static int run_command(int argc, char **argv)
{
        struct cg_run run = { .status = CG_EXIT_OK, .wake_fd = -1 };
        struct cg_err err;
        int status, r = cg_run_parse(argc, argv, &run.opts, &err);

        if (r >= 0 && run.opts.kernel.help)
                status = cg_kernel_options_help(CG_CMD_RUN, CG_HELP_RUN);
        else if (r < 0 || (run.opts.file && cg_cells_add_file(&run.opts.cells, run.opts.file,
                                                              &run.opts.kernel.language, &err) < 0))
                status = cg_cli_fail("run", &err);
        else
                status = run_all(&run);
        cg_run_options_fini(&run.opts);
        return status;
}

int cg_cli_run(int argc, char **argv)
{
        return cg_config_run("run", CG_CMD_RUN, argc, argv, run_command);
}
