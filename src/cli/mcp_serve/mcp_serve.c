/*
 * `cellgate mcp serve`: an MCP server on standard input and output. Runs in the command `cellgate`,
 * a host application of libcellgate.
 *
 * This is the I/O thread: it never waits for anything but its descriptors, so that whatever the
 * worker does, pings are answered and cancellations carried out. Standard output is moved away at
 * the start: only this file can write to it.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/path.h"
#include "base/proc.h"
#include "cli/common/cli.h"
#include "cli/common/config.h"
#include "cli/common/webhook.h"
#include "cli/help.h"
#include "cli/mcp_serve/texts.h"
#include "sandbox/settings/settings.h"
#include "config.h"

#define READ_SIZE ((size_t)64 << 10)
/* A pipe that poll() calls writable takes this much without blocking: POSIX promises no more. */
#define WRITE_SIZE ((size_t)PIPE_BUF)
/*
 * The end of standard input. Calls that came before it may finish for a moment: so `printf ... |
 * cellgate mcp serve` answers. Clients send SIGTERM after 2 s, which ends us in order as well.
 */
#define FINISH_MS 1500
#define FLUSH_MS  500
#define GONE_MS   4000

struct io {
        struct cg_serve *sv;
        int in, out, sig;
        struct cg_lines lines;
        struct cg_buf writing; /* out of sv->out, being written */
        size_t written;
        bool eof; /* of standard input */
        /* standard output was closed, or an error of our own: end */
        bool broken;
        int64_t end_ms; /* after eof: when to give up what still runs */
        int signal;     /* that ends us; 0: none */
};

/* ------------------------------------------------------------------ reading */

static bool has_jobs(const struct cg_serve *sv)
{
        const struct cg_serve_session *s;

        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (!TAILQ_EMPTY(&s->jobs))
                        return true;
        return false;
}

static void wake_workers(struct cg_serve *sv)
{
        struct cg_serve_session *s;

        TAILQ_FOREACH(s, &sv->sessions, entry)
                cg_serve_wake(s->work_fd);
}

static int on_message(void *data, const struct cg_mcpd_in *in, struct cg_err *err)
{
        struct cg_serve *sv = data;
        const char *busy = has_jobs(sv) ? "{\"busy\":true}" : "{\"busy\":false}";
        struct cg_serve_session *s;

        switch (in->kind) {
        case CG_MCPD_CALL:
                return cg_serve_call(sv, in, err);
        case CG_MCPD_CANCEL:
                cg_serve_cancel(sv, in->id, false);
                return 0;
        case CG_MCPD_GONE_CLIENT:
                cg_serve_cancel(sv, in->id, true);
                return 0;
        case CG_MCPD_BACK:
                cg_serve_back(sv, in->id);
                return 0;
        case CG_MCPD_RESOURCES:
                return cg_serve_list_resources(sv, in, err);
        case CG_MCPD_READ:
                return cg_serve_read_resource(sv, in, err);
        case CG_MCPD_TASK_GET:
        case CG_MCPD_TASK_UPDATE:
        case CG_MCPD_TASK_CANCEL:
                return cg_serve_task(sv, in, err);
        case CG_MCPD_BUSY:
                return cg_rpc_add_result(&sv->out, in->id, busy, strlen(busy), err);
        default: /* to a cancelled question, or to one of some session */
                TAILQ_FOREACH(s, &sv->sessions, entry)
                        if (cg_serve_answered(s, in))
                                break;
                return 0;
        }
}

static void read_input(struct io *io)
{
        struct cg_serve *sv = io->sv;
        struct cg_slice line;
        struct cg_err err;
        char *room;
        int r = cg_lines_room(&io->lines, READ_SIZE, &room, &err);

        if (r >= 0) {
                ssize_t n = read(io->in, room, READ_SIZE);

                if (n < 0 && (errno == EINTR || errno == EAGAIN))
                        return;
                io->eof = n <= 0;
                io->end_ms = cg_now_ms() + FINISH_MS;
                if (n > 0)
                        cg_lines_added(&io->lines, (size_t)n);
        }
        while (r >= 0) {
                CG_HOLD(&sv->lock);
                bool before = cg_serve_knows_client(sv);

                r = cg_lines_next(&io->lines, &line, &err);
                if (r == CG_TIMEOUT && io->eof)
                        r = cg_lines_rest(&io->lines, &line);
                if (r == CG_TIMEOUT)
                        return;
                if (r == CG_E_LIMIT)
                        r = cg_mcpd_line_too_long(&sv->out, err.msg, &err);
                else
                        r = cg_mcpd_line(&sv->proto, line, &sv->out, on_message, sv, &err);
                if (cg_serve_knows_client(sv) != before)
                        wake_workers(sv);
        }
        cg_log(&sv->log, CG_LOG_ERROR, "cannot go on: %s", err.msg);
        io->broken = true;
}

/* ------------------------------------------------------------------ writing */

static bool take_output(struct io *io)
{
        struct cg_serve *sv = io->sv;

        if (io->written < io->writing.len)
                return true;
        io->writing.len = io->written = 0;
        if (io->writing.cap > ((size_t)1 << 20))
                cg_buf_fini(&io->writing);
        CG_HOLD(&sv->lock);
        if (sv->out.len) {
                struct cg_buf empty = io->writing;

                io->writing = sv->out;
                sv->out = empty;
                pthread_cond_broadcast(&sv->room);
        }
        return io->writing.len > 0;
}

/* Standard output may be shared, so it may block: each write is small enough not to. */
static void write_output(struct io *io)
{
        size_t n = io->writing.len - io->written;
        const char *p = io->writing.data + io->written;
        ssize_t w;

        if (n > WRITE_SIZE)
                n = WRITE_SIZE;
        w = send(io->out, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (w < 0 && errno == ENOTSOCK)
                w = write(io->out, p, n);
        if (w > 0)
                io->written += (size_t)w;
        else if (w < 0 && errno != EINTR && errno != EAGAIN)
                io->broken = true;
}

/* Writes the rest, unless standard output was closed. */
static void flush_output(struct io *io)
{
        int64_t end = cg_now_ms() + FLUSH_MS;

        while (!io->broken && take_output(io)) {
                struct pollfd p = { .fd = io->out, .events = POLLOUT };
                int64_t left = end - cg_now_ms();

                if (left <= 0 || poll(&p, 1, (int)left) == 0)
                        return;
                write_output(io);
        }
}

/* ------------------------------------------------------------------ the loop */

static void loop(struct io *io)
{
        enum { SIG, WAKE, OUT, IN, N };
        struct pollfd p[N];
        int64_t next_ms;

        while (!io->broken && !io->signal) {
                struct signalfd_siginfo info;
                bool idle, refused, output, unread;

                pthread_mutex_lock(&io->sv->lock);
                next_ms = cg_serve_sooner(cg_serve_answer_due(io->sv, NULL), cg_serve_progress(io->sv));
                next_ms = cg_serve_sooner(next_ms, INT32_MAX);
                next_ms = cg_serve_sooner(next_ms, cg_serve_sessions_tick(io->sv));
                next_ms = cg_serve_sooner(next_ms, cg_serve_ask_by_result(io->sv));
                if (io->eof)
                        next_ms = cg_serve_sooner(next_ms, FINISH_MS / 10);
                idle = !has_jobs(io->sv) && !io->sv->out.len && io->written == io->writing.len;
                refused = io->sv->refused.code < 0;
                pthread_mutex_unlock(&io->sv->lock);
                if ((io->eof && (idle || cg_now_ms() >= io->end_ms)) || (refused && idle))
                        return;
                output = take_output(io);
                pthread_mutex_lock(&io->sv->lock);
                unread = io->sv->out.len + (io->writing.len - io->written) > CG_SERVE_STOP_READING;
                pthread_mutex_unlock(&io->sv->lock);
                p[SIG] = (struct pollfd){ .fd = io->sig, .events = POLLIN };
                p[WAKE] = (struct pollfd){ .fd = io->sv->io_fd, .events = POLLIN };
                /* Without events only the end of its reader is reported. */
                p[OUT] = (struct pollfd){ .fd = io->out, .events = output ? POLLOUT : 0 };
                p[IN] = (struct pollfd){ .fd = io->eof || unread ? -1 : io->in, .events = POLLIN };
                if (poll(p, N, (int)next_ms) < 0 && errno != EINTR)
                        return;
                if (p[SIG].revents && read(io->sig, &info, sizeof(info)) == sizeof(info))
                        io->signal = (int)info.ssi_signo;
                if (p[WAKE].revents)
                        cg_serve_woken(io->sv->io_fd);
                if (p[OUT].revents & (POLLERR | POLLHUP | POLLNVAL))
                        io->broken = true;
                else if (p[OUT].revents)
                        write_output(io);
                if (p[IN].revents)
                        read_input(io);
        }
}

/* ------------------------------------------------------------------ start and end */

/*
 * From here on descriptor 0 is empty and descriptor 1 is standard error, for this process, its
 * libraries and its children: a stray print cannot get between the messages.
 */
static int move_standard(struct io *io, struct cg_err *err)
{
        cg_auto_fd int null = -1;
        int fd;

        /* Open what is closed, so that no descriptor of ours gets a standard number. */
        do {
                fd = open("/dev/null", O_RDWR | O_CLOEXEC);
                if (fd < 0)
                        return cg_fail_errno(err, "/dev/null");
        } while (fd <= 2);
        close(fd);
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        io->in = fcntl(0, F_DUPFD_CLOEXEC, 3);
        io->out = fcntl(1, F_DUPFD_CLOEXEC, 3);
        if (null < 0 || io->in < 0 || io->out < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
                return cg_fail_errno(err, "standard input and output");
        return 0;
}

static void cond_init(pthread_cond_t *cond)
{
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(cond, &attr);
        pthread_condattr_destroy(&attr);
}

static bool all_gone(const struct cg_serve *sv)
{
        const struct cg_serve_session *s;

        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (s->life != CG_SERVE_GONE)
                        return false;
        return true;
}

static int serve(struct cg_serve *sv, struct io *io, struct cg_err *err)
{
        struct cg_serve_session *s;
        struct timespec end;
        int64_t end_ms;
        int r = 0;

        cg_lines_init(&io->lines, CG_SERVE_MAX_LINE);
        cg_buf_init(&io->writing, CG_SERVE_MAX_OUT);
        pthread_mutex_lock(&sv->lock);
        if (sv->own)
                r = cg_serve_session_start(sv->own, err);
        pthread_mutex_unlock(&sv->lock);
        if (r < 0)
                return -1;
        loop(io);
        if (!io->signal)
                flush_output(io);
        end_ms = cg_now_ms() + GONE_MS;
        end = (struct timespec){ .tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000 };
        pthread_mutex_lock(&sv->lock);
        sv->stop = true;
        pthread_cond_broadcast(&sv->room);
        wake_workers(sv);
        while (!all_gone(sv) && pthread_cond_timedwait(&sv->gone, &sv->lock, &end) == 0)
                ;
        if (!all_gone(sv)) {
                /*
                 * Blocked in the library, by a slow MCP server for example. Without us the
                 * supervisor ends it all.
                 */
                TAILQ_FOREACH(s, &sv->sessions, entry)
                        cg_packages_fini(&s->packages);
                _exit(io->signal ? 128 + io->signal : CG_EXIT_OK);
        }
        cg_serve_sessions_fini(sv);
        pthread_mutex_unlock(&sv->lock);
        flush_output(io); /* the last answers: of calls that were ended */
        cg_lines_fini(&io->lines);
        cg_buf_fini(&io->writing);
        if (sv->refused.code < 0) {
                *err = sv->refused;
                return -1;
        }
        return io->signal ? 128 + io->signal : CG_EXIT_OK;
}

/* ------------------------------------------------------------------ settings */

static int read_servers(struct cg_serve *sv, struct cg_err *err)
{
        cg_auto_json json_t *file = NULL, *servers = NULL;
        cg_auto_free char *text = NULL;
        size_t len;

        if (!sv->opts.kernel.mcp)
                return 0;
        if (cg_read_file(sv->opts.kernel.mcp, CG_MAX_SETTINGS, &text, &len, err) < 0 ||
            cg_json_object(text, len, sv->opts.kernel.mcp, &file, err) < 0)
                return -1;
        if (cg_json_mcp_servers(file, &servers, err) < 0)
                return cg_err_prefix(err, "%s", sv->opts.kernel.mcp);
        if (json_object_get(servers, "cellgate"))
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s: the server name \"cellgate\" is taken: approval rules mean the tools of cellgate"
                        " mcp serve by it",
                        sv->opts.kernel.mcp);
        json_decref(sv->configured);
        sv->configured = json_incref(servers);
        return 0;
}

/* On another machine it is not looked at. */
static int find_workspace(struct cg_serve *sv, struct cg_err *err)
{
        const char *given = sv->opts.kernel.workspace;

        sv->workspace = sv->opts.kernel.connect.command ? strdup(given) : realpath(given, NULL);
        if (!sv->workspace)
                return cg_fail_errno(err, "workspace %s", given);
        return 0;
}

static int set_up(struct cg_serve *sv, struct cg_err *err)
{
        const char *images = sv->opts.kernel.images ?: "images";
        cg_auto_settings struct cg_settings *settings = NULL;
        cg_auto_free char *cwd = NULL;

        sv->log = (struct cg_log){ .fd = 2, .level = sv->opts.kernel.log_level, .who = "mcp serve" };
        if (find_workspace(sv, err) < 0)
                return -1;
        sv->configured = json_object();
        sv->io_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (!sv->configured || sv->io_fd < 0)
                return cg_fail(err, CG_E_NOMEM, "server");
        if (cg_kernel_options_settings(&sv->opts.kernel, &sv->settings, err) < 0 ||
            cg_secrets_add_env(&sv->secrets, sv->opts.kernel.env, err) < 0 || read_servers(sv, err) < 0 ||
            cg_serve_add_own_servers(sv, err) < 0)
                return -1;
        cg_approve_set_servers(sv->opts.kernel.approve, sv->configured, CG_INSTALLED(CG_BINDIR "/cellgate"));
        /* Absolute paths for the agent, which does not know our working directory. */
        cwd = realpath(sv->opts.kernel.images || sv->opts.kernel.connect.command ? "." : sv->workspace, NULL);
        if (!cwd && images[0] != '/')
                return cg_fail_errno(err, "folder for images");
        if (images[0] == '/')
                sv->images = strdup(images);
        else if (asprintf(&sv->images, "%s/%s", cg_path_prefix(cwd), images) < 0)
                sv->images = NULL;
        if (!sv->images)
                return cg_fail(err, CG_E_NOMEM, "folder for images");
        sv->caps = sv->opts.kernel.limits;
        if (sv->settings &&
            cg_settings_parse(sv->settings, strlen(sv->settings), "settings", 0, &settings, err) < 0)
                return -1;
        if (settings)
                cg_limits_fill(&sv->caps, &settings->own.limits);
        if (sv->opts.new_sessions)
                return 0;
        if (cg_serve_session_new(sv, &sv->own, err) < 0)
                return -1;
        if (sv->opts.toolsets & CG_SERVE_APPROVALS)
                return 0;
        return cg_serve_session_prepare(sv->own, err);
}

static void tear_down(struct cg_serve *sv)
{
        cg_serve_sessions_fini(sv);
        while (!TAILQ_EMPTY(&sv->pending))
                cg_serve_remove_pending(sv, TAILQ_FIRST(&sv->pending));
        cg_secrets_fini(&sv->secrets);
        json_decref(sv->texts);
        json_decref(sv->configured);
        cg_buf_fini(&sv->out);
        if (sv->io_fd >= 0)
                close(sv->io_fd);
        free(sv->workspace);
        free(sv->images);
        free(sv->settings);
}

/* Finds mistakes that would make each session fail before the first one is opened. */
/* ipybox's server gives them to its kernels, without the prefix: cells would miss them unseen. */
static void report_kernel_env(const struct cg_serve *sv)
{
        static const char prefix[] = "KERNEL_ENV_";
        cg_auto_buf struct cg_buf names = { .max = 4096 };

        for (char *const *e = environ; *e; e++)
                if (strncmp(*e, prefix, sizeof(prefix) - 1) == 0)
                        cg_buf_addf(&names, " --env %.*s=...", (int)strcspn(*e + sizeof(prefix) - 1, "="),
                                    *e + sizeof(prefix) - 1);
        if (names.len)
                cg_log(&sv->log, CG_LOG_WARN, "variables KERNEL_ENV_... do not reach cells; to give them:%s",
                       names.data);
}

static int start_http(struct cg_serve *sv, int argc, char **argv, struct cg_err *err)
{
        if (find_workspace(sv, err) < 0)
                return -1;
        if (cg_kernel_options_settings(&sv->opts.kernel, &sv->settings, err) < 0 || read_servers(sv, err) < 0)
                return -1;
        report_kernel_env(sv);
        return cg_serve_http(argc, argv, err);
}

/*
 * Questions are numbered from here on, so that an answer for another connection's question is none
 * here. A double has such numbers exactly.
 */
static int draw_first_ask(struct cg_serve *sv, struct cg_err *err)
{
        uint64_t random;

        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
                return cg_fail_errno(err, "random numbers");
        sv->last_ask = random >> 16;
        return 0;
}

static void io_fini(struct io *io)
{
        cg_closep_(&io->in);
        cg_closep_(&io->out);
        cg_closep_(&io->sig);
}

/* Returns the exit status, or negative. */
static int run(struct cg_serve *sv, struct cg_err *err)
{
        CG_CLEANUP(io_fini) struct io io = { .sv = sv, .in = -1, .out = -1, .sig = -1 };
        cg_auto_free char *instructions = NULL, *tools = NULL;
        struct cg_client_options co = { .size = sizeof(co) };
        const char *names[CG_SERVE_N_TOOLS + 1];
        struct cg_mcpd_info info = { .name = "cellgate",
                                     .title = "cellgate",
                                     .version = cg_version(),
                                     .tool_names = names,
                                     .templates = CG_SERVE_TEMPLATES_JSON,
                                     .logs = true,
                                     .tasks = !(sv->opts.toolsets & CG_SERVE_APPROVALS) };

        if (set_up(sv, err) < 0 || draw_first_ask(sv, err) < 0 || move_standard(&io, err) < 0 ||
            cg_block_end_signals(NULL, &io.sig, err) < 0)
                return -1;
        signal(SIGPIPE, SIG_IGN); /* seen as EPIPE */
        if (isatty(io.in))
                cg_log(&sv->log, CG_LOG_WARN,
                       "waiting for the messages of an MCP client, which starts this program itself;"
                       " Ctrl-D ends it (docs/mcp-serve.md)");
        if (sv->opts.kernel.no_sandbox)
                cg_log(&sv->log, CG_LOG_WARN,
                       "no sandbox: the agent's code can do all that you can, with or without approval");
        if (!sv->opts.id_begin[0]) /* cellgate-mcp-http was started with a line about it */
                report_kernel_env(sv);
        info.tools = tools = cg_serve_tools(sv, names);
        info.instructions = instructions = cg_serve_instructions(sv);
        if (!instructions || !tools)
                return cg_fail(err, CG_E_NOMEM, "server");
        cg_kernel_options_client(&sv->opts.kernel, &co);
        if (cg_webhook_start(sv->opts.kernel.deciders.webhook, &co, err) < 0)
                return -1;
        cg_mcpd_init(&sv->proto, &info);
        return serve(sv, &io, err);
}

static int run_command(int argc, char **argv)
{
        struct cg_serve sv = { .io_fd = -1,
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .policy = PTHREAD_MUTEX_INITIALIZER };
        struct cg_err err;
        int r = cg_serve_parse(argc, argv, &sv.opts, &err);

        TAILQ_INIT(&sv.pending);
        TAILQ_INIT(&sv.sessions);
        TAILQ_INIT(&sv.held);
        cg_buf_init(&sv.out, CG_SERVE_MAX_OUT);
        cond_init(&sv.room);
        cond_init(&sv.gone);
        if (r >= 0 && sv.opts.kernel.help)
                r = cg_kernel_options_help(CG_CMD_SERVE, CG_HELP_MCP_SERVE);
        else if (r >= 0 && sv.opts.print_config)
                r = cg_serve_print_config(sv.opts.print_config, argc, argv, &err);
        else if (r >= 0 && sv.opts.compat)
                r = cg_serve_compat(argc, argv, &err);
        else if (r >= 0 && sv.opts.http)
                r = start_http(&sv, argc, argv, &err);
        else if (r >= 0)
                r = run(&sv, &err);
        if (r < 0)
                r = cg_cli_fail("mcp serve", &err);
        tear_down(&sv);
        pthread_cond_destroy(&sv.room);
        pthread_cond_destroy(&sv.gone);
        cg_kernel_options_fini(&sv.opts.kernel);
        return r;
}

int cg_cli_mcp_serve(int argc, char **argv)
{
        return cg_config_run("mcp serve", CG_CMD_SERVE, argc, argv, run_command);
}
