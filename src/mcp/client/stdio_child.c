/*
 * A child process that speaks in lines: a stdio server. Linked into the tool server and the command
 * line.
 *
 * The child leads a session and process group of its own, so that wrappers (npx, uvx) and what they
 * start can be ended whole.
 */
#include "mcp/client/transport.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/proc.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/client/failure.h"
#include "mcp/jsonrpc.h"
#include "mcp/client/strays.h"

#define READ_SIZE    ((size_t)64 << 10)
#define ERR_LINE_MAX ((size_t)16 << 10)
/* Longest line of a sandbox: the entries of its settings. */
#define CONTROL_LINE_MAX ((size_t)128 << 10)
/* Names of servers are cut to this length in front of each logged line. */
#define NAME_SHOWN 40

enum phase {
        RUNNING,
        CLOSING, /* standard input is closed: it should end by itself */
        TERM,    /* SIGTERM was sent to the group */
        KILL,    /* SIGKILL was */
        REAPED,  /* it is gone; what it had started is being killed */
        DONE,    /* handles are being closed */
};

struct cg_stdio_ends {
        bool exited, in, out, err, control;
};

struct cg_stdio {
        struct cg_transport base;
        const struct cg_mcp_def *def;
        const struct cg_log *log;
        struct cg_server_log *server_log;
        struct cg_transport_cbs cbs;
        void *data;
        struct cg_proc proc;
        uv_pipe_t in, out, errp, control;
        uv_poll_t pid_poll, stray_poll;
        uv_timer_t timer;
        struct cg_strays strays;
        unsigned open_handles;
        struct cg_lines lines, err_lines, control_lines;
        size_t unread; /* by it, of what it was sent */
        enum phase phase;
        bool polled, stray_polled; /* these are handles */
        bool controlled;           /* so is control: its sandbox is at the other end */
        struct cg_stdio_ends ended;
        bool silent; /* its start failed: no callbacks */
        int status;
        struct cg_buf err_kept; /* the last lines on standard error, safe to show */
        struct cg_buf words;    /* of last_words() */
};

static void go_on(struct cg_stdio *s);

/* ---- its output */

static void keep_words(struct cg_stdio *s, struct cg_slice line)
{
        struct cg_buf *kept = &s->err_kept;
        cg_auto_buf struct cg_buf b = { .max = 0 };
        const char *end;
        size_t n, quarter = kept->max / 4;

        if (!cg_json_trim(line).len || cg_server_log_render(s->def, line, &b) < 0)
                return;
        n = CG_MIN(b.len, CG_MCP_STDERR_LINE);
        while (n && n < b.len && ((unsigned char)b.data[n] & 0xc0) == 0x80)
                n--;                         /* not in the middle of a character */
        if (kept->len + n + 1 > kept->max) { /* so much at once that few lines move the rest */
                end = memchr(kept->data + quarter, '\n', kept->len - quarter);
                cg_buf_consume(kept, end ? (size_t)(end + 1 - kept->data) : kept->len);
        }
        if (cg_buf_try_add(kept, b.data, n, NULL) == 0)
                cg_buf_try_adds(kept, "\n", NULL);
}

/* Each line is marked as the server's, so that none reads like one of ours. */
static const char *last_words(struct cg_transport *t)
{
        struct cg_stdio *s = (struct cg_stdio *)t;
        const char *name = strlen(s->def->name) <= NAME_SHOWN ? s->def->name : "the server";
        const char *first, *end, *line;
        size_t shown = 0;

        cg_buf_clear(&s->words);
        if (!s->err_kept.len)
                return "";
        first = end = s->err_kept.data + s->err_kept.len;
        while (first > s->err_kept.data) {
                size_t len;

                for (line = first - 1; line > s->err_kept.data && line[-1] != '\n'; line--)
                        ;
                len = (size_t)(first - line);
                shown += CG_MIN(len, CG_MCP_STDERR_SHOWN_LINE) + strlen(name) + 4;
                if (shown > CG_MCP_STDERR_SHOWN)
                        break;
                first = line;
        }
        cg_buf_addf(&s->words, CG_MCP_HOST_ONLY "; the last it wrote to standard error%s:",
                    first > s->err_kept.data ? " (more is in the log of --log-level 1)" : "");
        for (line = first; line < end; line += strcspn(line, "\n") + 1) {
                size_t len = strcspn(line, "\n"), n = len;

                if (n > CG_MCP_STDERR_SHOWN_LINE)
                        for (n = CG_MCP_STDERR_SHOWN_LINE; n && ((unsigned char)line[n] & 0xc0) == 0x80; n--)
                                ;
                cg_buf_addf(&s->words, "\n[%s] ", name);
                cg_buf_add(&s->words, line, n);
        }
        return cg_buf_str(&s->words);
}

/* All that was kept, where the log has not had it line by line. */
static void log_words(const struct cg_stdio *s)
{
        char text[CG_MCP_STDERR_LINE + 1];
        size_t n, shown;

        if (!s->err_kept.len || !s->log || s->log->level >= CG_LOG_INFO)
                return;
        for (const char *line = s->err_kept.data; *line; line += n + 1) {
                n = strcspn(line, "\n");
                shown = CG_MIN(n, CG_MCP_STDERR_LINE);
                memcpy(text, line, shown);
                text[shown] = '\0';
                cg_log(s->log, CG_LOG_WARN, "MCP server %s: stderr: %s", s->def->name, text);
        }
}

static void serve_lines(struct cg_stdio *s)
{
        struct cg_slice line;
        struct cg_err err;
        size_t n;
        int r;

        /* A callback may end the child: the rest of its output is dropped then. */
        while (s->phase == RUNNING) {
                r = cg_lines_next(&s->lines, &line, &err);
                if (r == CG_TIMEOUT)
                        break;
                if (r < 0)
                        s->cbs.too_long(s->data, 0, err.msg);
                else
                        s->cbs.line(s->data, line, 0, false);
        }
        /* Half a message is no answer: the request fails with the server's end, and its reason. */
        if (s->phase == RUNNING && s->ended.out && cg_lines_rest(&s->lines, &line) == 0 &&
            cg_json_skip(line.p, line.len, CG_JSON_WALK_DEPTH, &n, NULL) == 0)
                s->cbs.line(s->data, line, 0, false);
}

static void serve_err_lines(struct cg_stdio *s)
{
        static const char cut[] = "[a line of more than 16 kB]";
        struct cg_slice line;
        int r;

        while ((r = cg_lines_next(&s->err_lines, &line, NULL)) != CG_TIMEOUT) {
                if (r < 0)
                        line = (struct cg_slice){ .p = cut, .len = sizeof(cut) - 1 };
                keep_words(s, line);
                cg_server_log_line(s->server_log, CG_LOG_INFO, "stderr", line);
        }
        if (s->ended.err && cg_lines_rest(&s->err_lines, &line) == 0) {
                keep_words(s, line);
                cg_server_log_line(s->server_log, CG_LOG_INFO, "stderr", line);
        }
}

static void serve_control_lines(struct cg_stdio *s)
{
        struct cg_slice line;
        int r;

        while (s->phase < DONE && (r = cg_lines_next(&s->control_lines, &line, NULL)) != CG_TIMEOUT)
                if (r == 0 && !s->silent && line.len)
                        s->cbs.sandbox(s->data, line, s->phase != RUNNING);
}

static void alloc_from(struct cg_lines *l, uv_buf_t *buf)
{
        char *p;

        *buf = uv_buf_init(NULL, 0); /* libuv reads it as ENOBUFS */
        if (cg_lines_room(l, READ_SIZE, &p, NULL) == 0)
                *buf = uv_buf_init(p, READ_SIZE);
}

static void on_out_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
        alloc_from(&((struct cg_stdio *)h->data)->lines, buf);
}

static void on_err_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
        alloc_from(&((struct cg_stdio *)h->data)->err_lines, buf);
}

static void on_control_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
        alloc_from(&((struct cg_stdio *)h->data)->control_lines, buf);
}

static void on_control(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
        struct cg_stdio *s = h->data;

        if (n > 0) {
                cg_lines_added(&s->control_lines, (size_t)n);
                serve_control_lines(s);
        } else if (n < 0) {
                uv_read_stop(h);
                s->ended.control = true;
                if (s->phase == RUNNING)
                        s->cbs.sandbox(s->data, CG_SLICE_NONE, false);
                go_on(s);
        }
}

static bool send_sandbox(struct cg_transport *t, const char *line, size_t len)
{
        struct cg_stdio *s = (struct cg_stdio *)t;
        int fd = -1;

        return s->controlled && !s->ended.control && s->phase < DONE &&
               uv_fileno((uv_handle_t *)&s->control, &fd) == 0 &&
               send(fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len;
}

static void on_out(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
        struct cg_stdio *s = h->data;

        if (n == 0)
                return;
        if (n > 0) {
                cg_lines_added(&s->lines, (size_t)n);
                /* read and dropped, so that the child is not blocked in a write and can end */
                if (s->phase != RUNNING) {
                        cg_lines_fini(&s->lines);
                        cg_lines_init(&s->lines, CG_MCP_MAX_LINE);
                        return;
                }
        } else {
                s->ended.out = true;
                uv_read_stop(h);
        }
        serve_lines(s);
        if (s->ended.out)
                go_on(s);
}

static void on_err(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
        struct cg_stdio *s = h->data;

        if (n == 0)
                return;
        if (n > 0) {
                cg_lines_added(&s->err_lines, (size_t)n);
        } else {
                s->ended.err = true;
                uv_read_stop(h);
        }
        serve_err_lines(s);
        if (s->ended.err)
                go_on(s);
}

/* ---- its input */

struct write {
        uv_write_t req;
        char *text;
        size_t cost;
};

static void on_written(uv_write_t *req, int status)
{
        struct write *w = (struct write *)req;
        struct cg_stdio *s = req->data;

        s->unread -= w->cost;
        free(w->text);
        free(w);
        if (status < 0 && status != UV_ECANCELED && s->phase == RUNNING) {
                s->ended.in = true;
                go_on(s);
        }
}

static size_t unread(const struct cg_transport *t)
{
        return ((const struct cg_stdio *)t)->unread;
}

static int send_message(struct cg_transport *t, const struct cg_mcp_msg *m, struct cg_err *err)
{
        struct cg_stdio *s = (struct cg_stdio *)t;
        uv_buf_t buf = uv_buf_init(m->text + m->skip, (unsigned)(m->len - m->skip));
        struct write *w;
        int r;

        if (s->phase != RUNNING || s->ended.in) {
                free(m->text);
                return cg_fail(err, CG_E_CLOSED, "it does not listen any more");
        }
        if (s->unread > CG_MCP_MAX_SENDQ) {
                free(m->text);
                return cg_fail(err, CG_E_LIMIT, "it does not read its standard input");
        }
        w = calloc(1, sizeof(*w));
        if (!w) {
                free(m->text);
                return cg_fail(err, CG_E_NOMEM, "request");
        }
        w->text = m->text;
        w->req.data = s;
        w->cost = m->len - m->skip + CG_MCP_SEND_COST;
        s->unread += w->cost;
        r = uv_write(&w->req, (uv_stream_t *)&s->in, &buf, 1, on_written);
        if (r == 0)
                return 0;
        s->unread -= w->cost;
        free(w->text);
        free(w);
        return cg_fail(err, CG_E_SYS, "write: %s", uv_strerror(r));
}

/* ---- its end */

static void on_closed(uv_handle_t *h)
{
        struct cg_stdio *s = h->data;

        if (--s->open_handles)
                return;
        cg_lines_fini(&s->lines);
        cg_lines_fini(&s->err_lines);
        cg_lines_fini(&s->control_lines);
        cg_buf_fini(&s->err_kept);
        cg_buf_fini(&s->words);
        cg_strays_fini(&s->strays);
        if (!s->silent)
                s->cbs.gone(s->data);
        free(s);
}

static void close_handle(uv_handle_t *h)
{
        if (!uv_is_closing(h))
                uv_close(h, on_closed);
}

static void close_all(struct cg_stdio *s)
{
        s->phase = DONE;
        close_handle((uv_handle_t *)&s->in);
        close_handle((uv_handle_t *)&s->out);
        close_handle((uv_handle_t *)&s->errp);
        if (s->controlled)
                close_handle((uv_handle_t *)&s->control);
        if (s->polled)
                close_handle((uv_handle_t *)&s->pid_poll);
        if (s->stray_polled)
                close_handle((uv_handle_t *)&s->stray_poll);
        close_handle((uv_handle_t *)&s->timer);
}

static void on_stray_end(uv_poll_t *h, int status, int events)
{
        struct cg_stdio *s = h->data;

        if (cg_strays_gone(&s->strays) && s->phase == REAPED)
                close_all(s);
}

static void on_timer(uv_timer_t *t);

/*
 * The leader has exited and is not reaped: its number, which is the group's, cannot be reused, so
 * the rest of the group can be killed by it.
 */
static void finish(struct cg_stdio *s)
{
        if (kill(-s->proc.pid, SIGKILL) < 0 && s->ended.exited)
                cg_log(s->log, CG_LOG_DEBUG, "MCP server %s: nothing left to kill", s->def->name);
        /*
         * Before its descriptor is closed: closing the handle takes the descriptor's number out of
         * the loop, and another server's pipe may have that number by then.
         */
        close_handle((uv_handle_t *)&s->pid_poll);
        cg_proc_wait(&s->proc, 0, NULL, NULL);
        if (s->proc.pidfd >= 0) /* not even SIGKILL ended it */
                close(s->proc.pidfd);
        /* Kills the processes that the child had started, and waits for their end. */
        s->phase = REAPED;
        cg_strays_kill(&s->strays);
        if (cg_strays_gone(&s->strays) || uv_poll_init(s->timer.loop, &s->stray_poll, s->strays.epfd) < 0) {
                close_all(s);
                return;
        }
        s->stray_polled = true;
        s->stray_poll.data = s;
        s->open_handles++;
        uv_poll_start(&s->stray_poll, UV_READABLE, on_stray_end);
        uv_timer_start(&s->timer, on_timer, CG_MCP_GRACE_MS, 0);
}

static bool all_over(const struct cg_stdio *s)
{
        return s->ended.exited && s->ended.out && s->ended.err && (!s->controlled || s->ended.control);
}

static void enter(struct cg_stdio *s, enum phase phase)
{
        bool leaves = s->phase == RUNNING;

        s->phase = phase;
        if (!s->ended.exited)
                cg_strays_gather(&s->strays, s->proc.pid);
        if (phase == TERM)
                kill(-s->proc.pid, SIGTERM);
        if (phase == KILL)
                kill(-s->proc.pid, SIGKILL);
        uv_timer_start(&s->timer, on_timer, CG_MCP_GRACE_MS, 0);
        if (phase >= CLOSING)
                close_handle((uv_handle_t *)&s->in);
        /* Before another one is started, whose questions may have the same numbers. */
        if (leaves && s->controlled && !s->ended.control)
                s->cbs.sandbox(s->data, CG_SLICE_NONE, false);
}

static void tell_ended(struct cg_stdio *s)
{
        char how[CG_MCP_STDERR_SHOWN + 256], status[64];

        if (s->ended.exited) {
                cg_proc_describe(s->status, status, sizeof(status));
                snprintf(how, sizeof(how), "it ended (%s)%s", status, last_words(&s->base));
        } else {
                snprintf(how, sizeof(how), "it closed its standard %s%s", s->ended.out ? "output" : "input",
                         last_words(&s->base));
        }
        log_words(s);
        enter(s, TERM);
        s->cbs.ended(s->data, how);
}

/* Called after every event: takes the next step towards the end of the child. */
static void go_on(struct cg_stdio *s)
{
        if (s->phase >= REAPED)
                return;
        if (s->phase == RUNNING && (s->ended.exited || s->ended.out || s->ended.in)) {
                if (!all_over(s)) {
                        /* Exit, last output and the ends of the pipes arrive in any order. */
                        if (!uv_is_active((uv_handle_t *)&s->timer))
                                uv_timer_start(&s->timer, on_timer, CG_MCP_DRAIN_MS, 0);
                        return;
                }
                tell_ended(s);
        }
        if (s->phase != RUNNING && (all_over(s) || (s->phase == KILL && s->ended.exited)))
                finish(s);
}

static void on_timer(uv_timer_t *t)
{
        struct cg_stdio *s = t->data;

        switch (s->phase) {
        case RUNNING:
                tell_ended(s);
                break;
        case CLOSING:
                enter(s, TERM);
                break;
        case TERM:
                enter(s, KILL);
                break;
        case KILL:
                cg_log(s->log, CG_LOG_ERROR, "MCP server %s: process %d does not end even by SIGKILL",
                       s->def->name, (int)s->proc.pid);
                finish(s);
                return;
        case REAPED:
                cg_log(s->log, CG_LOG_ERROR, "MCP server %s: what it started does not end even by SIGKILL",
                       s->def->name);
                close_all(s);
                return;
        case DONE:
                return;
        }
        go_on(s);
}

static void on_exit_seen(uv_poll_t *h, int status, int events)
{
        struct cg_stdio *s = h->data;
        siginfo_t si = { .si_pid = 0 };

        uv_poll_stop(h);
        s->ended.exited = true;
        s->status = 0; /* as of waitpid(), without reaping */
        if (waitid(P_PID, (id_t)s->proc.pid, &si, WEXITED | WNOWAIT | WNOHANG) == 0)
                s->status = si.si_code == CLD_EXITED ? si.si_status << 8 : si.si_status;
        go_on(s);
}

/*
 * Closes its standard input, SIGTERM to the group after 2 s, SIGKILL after 2 more; each step early
 * when it has ended.
 */
static void end(struct cg_transport *t)
{
        struct cg_stdio *s = (struct cg_stdio *)t;

        if (s->phase != RUNNING)
                return;
        enter(s, CLOSING);
        go_on(s);
}

/* ---- its start */

struct pipes {
        int in[2], out[2], err[2];
        int control[2]; /* a socket pair: ours, its sandbox's */
};

static void pipes_close(struct pipes *p)
{
        int *fds[] = { p->in, p->out, p->err, p->control };

        for (size_t i = 0; i < CG_ARRAY_LEN(fds); i++)
                for (int k = 0; k < 2; k++)
                        if (fds[i][k] >= 0)
                                close(fds[i][k]);
}

/* Settings of a sandbox in the definition: in memory, to appear in no list of processes. */
static int settings_fd(const struct cg_mcp_def *def, struct cg_err *err)
{
        int fd = memfd_create("sandbox-settings", MFD_CLOEXEC);

        if (fd < 0)
                return cg_fail_errno(err, "settings of the sandbox");
        if (cg_write_all(fd, def->sandbox_text, strlen(def->sandbox_text), err) < 0) {
                close(fd);
                return err ? err->code : CG_E_SYS;
        }
        return fd;
}

static int spawn(struct cg_stdio *s, const struct pipes *p, struct cg_err *err)
{
        struct cg_proc_fd fds[] = {
                { p->in[0], 0 }, { p->out[1], 1 }, { p->err[1], 2 }, { -1, -1 }, { -1, -1 }
        };
        struct cg_proc_spec spec = {
                .path = s->def->sandbox ?: s->def->command,
                .search_path = s->def->search_path ?: "",
                .argv = s->def->argv,
                .envp = s->def->envp,
                .cwd = s->def->cwd,
                .fds = fds,
                .n_fds = 3,
                .new_session = true,
                .die_with_parent = true,
        };
        cg_auto_fd int settings = -1;
        int r;

        if (s->def->sandbox_text) {
                settings = settings_fd(s->def, err);
                if (settings < 0)
                        return CG_E_SYS;
                fds[spec.n_fds++] = (struct cg_proc_fd){ settings, CG_MCP_SANDBOX_FD };
        }
        if (p->control[1] >= 0)
                fds[spec.n_fds++] = (struct cg_proc_fd){ p->control[1], CG_MCP_CONTROL_FD };
        r = cg_proc_spawn(&spec, &s->proc, err);
        if (r < 0 && s->def->cwd)
                cg_err_prefix(err, "working folder %s", s->def->cwd);
        return r;
}

/* Each descriptor belongs to its handle from then on. */
static int open_pipe(uv_pipe_t *h, int *fd)
{
        int r = uv_pipe_open(h, *fd);

        if (r == 0)
                *fd = -1;
        return r;
}

static int watch(struct cg_stdio *s, uv_loop_t *loop, struct pipes *p, struct cg_err *err)
{
        int r;

        /* These cannot fail; the poll handle is the exception and comes last. */
        uv_pipe_init(loop, &s->in, 0);
        uv_pipe_init(loop, &s->out, 0);
        uv_pipe_init(loop, &s->errp, 0);
        uv_timer_init(loop, &s->timer);
        s->in.data = s->out.data = s->errp.data = s->timer.data = s->pid_poll.data = s;
        s->open_handles = 4;
        if (p->control[0] >= 0) {
                uv_pipe_init(loop, &s->control, 0);
                s->control.data = s;
                s->controlled = true;
                s->open_handles++;
        }
        r = uv_poll_init(loop, &s->pid_poll, s->proc.pidfd);
        if (r == 0) {
                s->polled = true;
                s->open_handles++;
        }
        if (r < 0 || (r = uv_poll_start(&s->pid_poll, UV_READABLE, on_exit_seen)) < 0 ||
            (r = open_pipe(&s->in, &p->in[1])) < 0 || (r = open_pipe(&s->out, &p->out[0])) < 0 ||
            (r = open_pipe(&s->errp, &p->err[0])) < 0 ||
            (s->controlled && (r = open_pipe(&s->control, &p->control[0])) < 0) ||
            (s->controlled &&
             (r = uv_read_start((uv_stream_t *)&s->control, on_control_alloc, on_control)) < 0) ||
            (r = uv_read_start((uv_stream_t *)&s->out, on_out_alloc, on_out)) < 0 ||
            (r = uv_read_start((uv_stream_t *)&s->errp, on_err_alloc, on_err)) < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        return 0;
}

int cg_stdio_start(const struct cg_transport_options *o, struct cg_transport **ret, struct cg_err *err)
{
        static const struct cg_transport_ops ops = { .send = send_message,
                                                     .unread = unread,
                                                     .last_words = last_words,
                                                     .send_sandbox = send_sandbox,
                                                     .end = end };
        CG_CLEANUP(pipes_close)
        struct pipes p = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
        cg_auto_free struct cg_stdio *s = calloc(1, sizeof(*s));
        struct cg_stdio *self;
        int r;

        if (!s)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        s->base.ops = &ops;
        s->def = o->def;
        s->log = o->log->log;
        s->server_log = o->log;
        s->cbs = *o->cbs;
        s->data = o->data;
        s->proc = CG_PROC_NONE;
        cg_strays_init(&s->strays);
        cg_lines_init(&s->lines, CG_MCP_MAX_LINE);
        cg_lines_init(&s->err_lines, ERR_LINE_MAX);
        cg_lines_init(&s->control_lines, CONTROL_LINE_MAX);
        cg_buf_init(&s->err_kept, CG_MCP_STDERR_KEPT);
        cg_buf_init(&s->words, CG_MCP_STDERR_SHOWN + 128);
        if (pipe2(p.in, O_CLOEXEC) < 0 || pipe2(p.out, O_CLOEXEC) < 0 || pipe2(p.err, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        if (s->def->reports && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p.control) < 0)
                return cg_fail_errno(err, "socketpair");
        r = spawn(s, &p, err);
        if (r < 0)
                return r;
        self = CG_STEAL(s); /* libuv frees it from here on */
        r = watch(self, o->loop, &p, err);
        if (r < 0) {
                self->silent = true;
                close_all(self);
                cg_proc_end(&self->proc, true, 0);
                return r;
        }
        *ret = &self->base;
        return 0;
}
