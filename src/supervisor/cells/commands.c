/*
 * cellgate-supervisor: commands that hosts run beside cells. They run in the sandbox of the
 * session's kernel, but not through the kernel: its command server (inside/commands.h) starts
 * them, with pipes or a terminal whose other ends are here.
 *
 *      waiting     there is no sandbox yet, or the command server has much to do
 *      started     asked of the command server
 *      ended       the program has ended, and its last output waits for room in the host's window
 *      left        the host has the result, and input and output are closed; processes that the
 *                  program left behind still run
 *
 * Programs can stop and kill the server and the runners, so that no wait for these is without end.
 */
#include "supervisor/cells/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "sandbox/inside/commands.h"
#include "supervisor/core/audit.h"
#include "supervisor/limits/costs.h"
#include "supervisor/limits/denials.h"
#include "supervisor/network/egress.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/members.h"
#include "supervisor/core/shell.h"
#include "supervisor/core/state.h"

/* Commands of a session; also those whose program has ended and left processes behind. */
#define MAX_COMMANDS 64
/* Requests that the command server has not taken yet. */
#define MAX_UNTAKEN 8
/* Bytes of output for the host of a command with a socket of its own; more is dropped. */
#define MAX_MESSAGES ((size_t)64 << 10)
/* Messages of output read of one command before others have their turn. */
#define OUTPUT_TURN 16

/* For the end of the whole sandbox, which ends what runs a command first. */
#define LOST_MS 1000
/* For a runner that ends its processes. */
#define END_MS (CG_COMMAND_END_MS + 1000)
/* For the server to be ready, or to take a request. */
#define SERVER_MS 10000
/* Servers that end one after the other before they are ready. */
#define SERVER_ATTEMPTS 3
/* More than a terminal holds: its last output. Of a pipe, its size. */
#define TERMINAL_HOLDS ((size_t)1 << 20)

enum state { WAITING, STARTED, ENDED, LEFT };

struct command {
        TAILQ_ENTRY(command) entry;
        struct session *ss;
        struct kernel *kernel; /* NULL: waiting, or being freed */
        uint64_t id;           /* as in struct cell */
        enum state state;
        bool terminal, has_input, builtin;
        bool begun; /* the runner has reported */
        struct queued_job job;
        /*
         * It is a file operation of a host with its input or output through @socket (-1: given to
         * it). Its events are not the session's, and its other output is error messages.
         */
        bool own_socket, socket_is_input;
        int socket;
        size_t messages; /* bytes */
        int64_t timeout_ms;
        int spec;                            /* until it is started; else -1 */
        struct watch orders, output, errors; /* a terminal: output has both */
        size_t last_output, last_errors;     /* ended: what is still read at most */
        struct watch input;                  /* writable end; active as long as it is open */
        bool input_open;                     /* @input has been set */
        char *pending;                       /* input that the program has not read yet: @n_pending */
        size_t n_pending, pending_at;        /* bytes from @pending_at on */
        bool input_ended;                    /* closed once pending is written */
        uv_timer_t timer;
        int closing;        /* handles whose close callback is still to come, 1 for the command itself */
        const char *status; /* why it was ended from here; NULL: it was not */
        struct cg_command_report end;
        char why[200];
        /* For operations of the supervisor itself, which have no host and no number. */
        void (*done)(void *data, const char *out, size_t len, const char *why);
        void *done_data;
        struct cg_buf out;
        bool out_full;
};

struct cg_commands {
        struct kernel *kernel;
        int init;            /* cg_sandbox_child.commands_fd */
        struct watch server; /* not active: none */
        bool ready;
        unsigned untaken;
        unsigned attempts; /* servers that have ended before they were ready */
        uv_timer_t timer;  /* for the server's next sign of life */
        bool closed;
        int closing; /* closed: handles whose close callback is still to come */
};

/* ------------------------------------------------------------------ the end of a command */

static void closed_one(struct command *c)
{
        if (--c->closing > 0)
                return;
        free(c->pending);
        free(c);
}

static void on_watch_closed(struct watch *w)
{
        closed_one(w->data);
}

static void on_timer_closed(uv_handle_t *h)
{
        closed_one(h->data);
}

static void close_watch(struct command *c, struct watch *w)
{
        c->closing += cg_sup_watch_close(w, on_watch_closed);
}

/* Reports the end of an operation of the supervisor's own. */
static void report_own(struct command *c)
{
        const char *why = NULL;

        if (c->status)
                why = c->why;
        else if (c->out_full)
                why = "its output is too long";
        else if (c->end.type != CG_COMMAND_ENDED || c->end.signal)
                why = "it was killed in the sandbox";
        else if (c->end.exit_code)
                why = strerror(c->end.exit_code);
        c->done(c->done_data, c->out.data ?: "", c->out.len, why);
        cg_buf_fini(&c->out);
}

/* Its sockets close, which ends all that is left of it. */
static void command_free(struct command *c)
{
        cg_sup_job_end(&c->job);
        TAILQ_REMOVE(&c->ss->commands, c, entry);
        c->ss = NULL;
        c->kernel = NULL;
        cg_closep_(&c->spec);
        cg_closep_(&c->socket);
        c->closing++; /* for the timer */
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
        close_watch(c, &c->orders);
        close_watch(c, &c->output);
        close_watch(c, &c->errors);
        close_watch(c, &c->input);
        if (c->done)
                report_own(c);
        closed_one(c);
}

static void send_event(struct command *c, struct cg_out *out, json_t *body)
{
        if (c->done) { /* errors are reported by the exit status */
                if (out->type == CG_HOST_COMMAND_OUTPUT && !(out->flags & CG_FLAG_STDERR))
                        c->out_full |= cg_buf_try_add(&c->out, out->raw, out->raw_len, NULL) < 0;
                json_decref(body);
                return;
        }
        if (!c->own_socket) {
                cg_sup_event_to_host(c->ss, out, body, NULL);
                return;
        }
        out->session = c->ss->number;
        out->id = CELL_NUMBER(c->id);
        out->flags |= CG_FLAG_OWN_WINDOW;
        c->messages += out->raw_len;
        if (c->messages > MAX_MESSAGES && out->type == CG_HOST_COMMAND_OUTPUT)
                return;
        cg_sup_host_send(cg_sup_host_of(c->ss, CELL_SLOT(c->id)), out, body);
}

static void report_end(const struct command *c, const char *status, const char *why)
{
        char text[300];

        if (c->builtin)
                return;
        if (c->end.signal)
                snprintf(text, sizeof(text), "signal %d %s", (int)c->end.signal, why);
        else if (c->end.exit_code)
                snprintf(text, sizeof(text), "exit status %d %s", (int)c->end.exit_code, why);
        else
                snprintf(text, sizeof(text), "%s", why);
        if (strcmp(status, "ok") == 0 && (c->end.signal || c->end.exit_code))
                status = "error";
        cg_sup_bus_execution(c->ss, c->id, "command", status, text);
}

/*
 * Sends the result: the command's last event. What writes output after it gets SIGPIPE, or SIGHUP
 * of the terminal.
 */
static void finish(struct command *c, const char *status, const char *why)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_RESULT, .id = c->id };
        json_t *body;

        /* The command's denials come before its end; a host that reads too little is detached. */
        /* cppcheck-suppress nullPointerRedundantCheck */
        cg_sup_egress_drain(c->ss->sup);
        if (c->ss)
                cg_sup_denials_drain(c->ss->kernel);
        if (!c->ss)
                return;
        body = json_pack("{s:s, s:o}", "status", status, "text", cg_sup_text_json(why));
        if (c->end.type == CG_COMMAND_ENDED && c->end.signal)
                json_object_set_new(body, "signal", json_integer(c->end.signal));
        else if (c->end.type == CG_COMMAND_ENDED)
                json_object_set_new(body, "exit_code", json_integer(c->end.exit_code));
        c->state = LEFT;
        cg_sup_job_end(&c->job);
        report_end(c, status, why);
        cg_closep_(&c->socket);
        close_watch(c, &c->output);
        close_watch(c, &c->errors);
        close_watch(c, &c->input);
        send_event(c, &out, body);
}

/* The same, but with what has stopped the command, if something has. */
static void finish_unless_stopped(struct command *c, const char *status, const char *why)
{
        if (c->status)
                finish(c, c->status, c->why);
        else
                finish(c, status, why);
}

/* It can end no other way than this: no report of its end comes. */
static void end_now(struct command *c, const char *status, const char *why)
{
        c->closing++; /* it may be freed: a host that reads too little is detached */
        if (c->done && !c->status) {
                c->status = status;
                snprintf(c->why, sizeof(c->why), "%s", why);
        }
        if (c->state != LEFT)
                finish_unless_stopped(c, status, why);
        if (c->ss)
                command_free(c);
        closed_one(c);
}

/* ------------------------------------------------------------------ output */

static bool has_room(const struct command *c)
{
        return c->own_socket || c->done || cg_sup_has_room(c->ss, CELL_SLOT(c->id));
}

/* Reads what is there and fits into the host's window, at most *@left. False: more may be there. */
static bool read_output(struct command *c, struct watch *w, size_t *left)
{
        char data[CG_MAX_STREAM];

        for (int i = 0; i < OUTPUT_TURN && c->ss && w->active && *left && has_room(c); i++) {
                struct cg_out out = { .type = CG_HOST_COMMAND_OUTPUT,
                                      .id = c->id,
                                      .flags = w == &c->errors ? CG_FLAG_STDERR : 0,
                                      .raw = data,
                                      .has_raw = true };
                ssize_t n = read(w->fd, data, CG_MIN(*left, sizeof(data)));

                if (n < 0 && errno == EAGAIN)
                        return true;
                if (n == 0 || (n < 0 && errno != EINTR)) /* EIO: a terminal without processes */
                        close_watch(c, w);
                out.raw_len = CG_MAX(n, 0);
                *left -= c->state == ENDED ? out.raw_len : 0;
                if (n > 0)
                        send_event(c, &out, NULL);
        }
        return !w->active || !*left;
}

/* What the program may have written before its end: background processes may go on writing. */
static size_t last_output(const struct command *c, const struct watch *w)
{
        int size = w->active ? fcntl(w->fd, F_GETPIPE_SZ) : 0;

        if (c->builtin)
                return SIZE_MAX;
        return size >= 0 ? (size_t)size : TERMINAL_HOLDS;
}

/* Moves output to the host; after the program's end, the result follows the last of it. */
static void pump(struct command *c)
{
        bool drained;

        c->closing++; /* it may be freed: a host that reads too little is detached */
        drained = read_output(c, &c->output, &c->last_output);
        drained = read_output(c, &c->errors, &c->last_errors) && drained;
        if (c->ss && c->state == ENDED && drained) {
                finish_unless_stopped(c, "ok", "");
                if (c->ss && (!c->orders.active || c->done)) /* nothing of it is left, or matters */
                        command_free(c);
        }
        if (c->ss) { /* without room, cg_sup_commands_room() goes on */
                cg_sup_watch_for(&c->output, has_room(c) ? UV_READABLE | UV_DISCONNECT : 0);
                cg_sup_watch_for(&c->errors, has_room(c) ? UV_READABLE | UV_DISCONNECT : 0);
        }
        closed_one(c);
}

static void on_output(struct watch *w)
{
        pump(w->data);
}

void cg_sup_commands_room(struct session *ss)
{
        struct command *c, *next;

        for (c = TAILQ_FIRST(&ss->commands); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->state == STARTED || c->state == ENDED)
                        pump(c);
        }
}

/* ------------------------------------------------------------------ input */

/* Reports that the program has got, or will never get, @n bytes. */
static void taken(struct command *c, size_t n)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_TAKEN,
                              .session = c->ss->number,
                              .id = CELL_NUMBER(c->id) };

        if (n)
                cg_sup_host_send(cg_sup_host_of(c->ss, CELL_SLOT(c->id)), &out,
                                 json_pack("{s:I}", "bytes", (json_int_t)n));
}

static void write_input(struct command *c)
{
        size_t done = 0;

        if (!c->input_open || !c->pending)
                return;
        while (c->input.active && done < c->n_pending) {
                ssize_t n = write(c->input.fd, c->pending + c->pending_at + done, c->n_pending - done);

                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0 && errno != EINTR) /* the program reads no more */
                        close_watch(c, &c->input);
                done += CG_MAX(n, 0);
        }
        if (!c->input.active)
                done = c->n_pending;
        c->n_pending -= done;
        c->pending_at = c->n_pending ? c->pending_at + done : 0;
        if (c->input_ended && !c->n_pending && c->input.active) {
                /* The end of a terminal's input is a character. */
                if (c->terminal)
                        c->input_ended = write(c->input.fd, "\4", 1) < 0 && errno == EAGAIN;
                else
                        close_watch(c, &c->input);
        }
        cg_sup_watch_for(&c->input, c->n_pending || c->input_ended ? UV_WRITABLE : 0);
        taken(c, done);
}

static void on_writable(struct watch *w)
{
        write_input(w->data);
}

/* ------------------------------------------------------------------ the command server */

static void start_waiting(struct cg_commands *cs);

static void closed_one_of_server(struct cg_commands *cs)
{
        if (--cs->closing > 0)
                return;
        cg_closep_(&cs->init);
        free(cs);
}

static void on_server_timer_closed(uv_handle_t *h)
{
        closed_one_of_server(h->data);
}

static void server_closed(struct watch *w)
{
        struct cg_commands *cs = w->data;

        if (cs->closed)
                closed_one_of_server(cs);
        else /* commands that wait are asked of another server */
                start_waiting(cs);
}

/* Ends commands that wait, or that were requested and that no runner has reported about. */
static void end_unstarted(struct cg_commands *cs, enum state state, const char *why)
{
        struct session *ss = cs->kernel->session;
        struct command *c, *next;

        for (c = ss ? TAILQ_FIRST(&ss->commands) : NULL; c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->ss && c->state == state && !c->begun) /* NULL: its host was detached meanwhile */
                        end_now(c, "error", why);
        }
}

/* @why: why no other can be started; NULL: it can. */
static void server_gone(struct cg_commands *cs, const char *why)
{
        if (!cs->ready && ++cs->attempts >= SERVER_ATTEMPTS && !why)
                why = "processes in the sandbox stop or kill what starts commands; reset the session";
        cs->ready = false;
        cs->untaken = 0;
        uv_timer_stop(&cs->timer);
        if (why) {
                cs->attempts = 0;
                end_unstarted(cs, WAITING, why);
        }
        cg_sup_watch_close(&cs->server, server_closed);
}

static void on_server_silent(uv_timer_t *t)
{
        struct cg_commands *cs = t->data;

        end_unstarted(cs, STARTED, "processes in the sandbox have stopped what starts commands");
        server_gone(cs, NULL);
}

/* Its readiness or failure, then a byte for each command that it has taken. */
static void on_server(struct watch *w)
{
        struct cg_commands *cs = w->data;
        struct cg_command_server_ready ready;
        ssize_t n = recv(w->fd, &ready, sizeof(ready), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        ready.err.msg[sizeof(ready.err.msg) - 1] = '\0';
        if (n == 1 && cs->ready) {
                cs->untaken -= cs->untaken > 0;
        } else if (n == (ssize_t)sizeof(ready) && ready.ok && !cs->ready) {
                cs->ready = true;
                cs->attempts = 0;
        } else {
                server_gone(cs, n == (ssize_t)sizeof(ready) ? ready.err.msg : NULL);
                return;
        }
        if (cs->untaken)
                cg_sup_timer_start(&cs->timer, on_server_silent, SERVER_MS);
        else
                uv_timer_stop(&cs->timer);
        start_waiting(cs);
}

static int start_server(struct cg_commands *cs, struct cg_err *err)
{
        cg_auto_fd int ours = -1, theirs = -1;
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "commands");
        ours = pair[0];
        theirs = pair[1];
        if (cg_send_fds(cs->init, "s", 1, &theirs, 1, err) < 0)
                return -1;
        cs->ready = false;
        cg_sup_timer_start(&cs->timer, on_server_silent, SERVER_MS);
        return cg_sup_watch_start(cs->kernel->sup, &cs->server, cg_steal_fd(&ours), on_server, cs, err);
}

/* ------------------------------------------------------------------ starting */

/* Its stopped processes end with the sandbox. */
static void on_lost(uv_timer_t *t)
{
        struct command *c = t->data;

        if (c->state == ENDED) /* the result follows the last output */
                close_watch(c, &c->orders);
        else
                end_now(c, "error", "processes in the sandbox have stopped or killed what runs this command");
}

/* Takes the other end of the program's terminal. */
static int take_terminal(struct command *c, int *fd, struct cg_err *err)
{
        int copy = fcntl(*fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0 || fcntl(copy, F_SETFL, O_RDWR | O_NONBLOCK) < 0) {
                cg_closep_(&copy);
                return cg_fail_errno(err, "terminal");
        }
        if (cg_sup_watch_start(c->ss->sup, &c->input, copy, on_writable, c, err) < 0)
                return -1;
        c->input_open = true;
        return cg_sup_watch_start(c->ss->sup, &c->output, cg_steal_fd(fd), on_output, c, err);
}

static void on_orders(struct watch *w)
{
        struct command *c = w->data;
        struct cg_command_report report = { .type = 0 };
        cg_auto_fd int fd = -1;
        size_t n_fds = 1;
        struct cg_err err;
        ssize_t n = cg_recv_fds(w->fd, &report, sizeof(report), &fd, &n_fds, &err);
        bool whole = n == (ssize_t)sizeof(report);

        if (n < 0 && err.sys_errno == EAGAIN)
                return;
        if (whole && report.type == CG_COMMAND_STARTED && !c->begun && c->terminal == (n_fds == 1)) {
                c->begun = true;
                if (c->terminal && take_terminal(c, &fd, &err) < 0)
                        end_now(c, "error", err.msg);
                else
                        write_input(c);
        } else if (whole && report.type == CG_COMMAND_ENDED && c->begun && c->state == STARTED) {
                c->end = report;
                c->state = ENDED;
                cg_sup_job_end(&c->job);
                c->last_output = last_output(c, &c->output);
                c->last_errors = last_output(c, &c->errors);
                pump(c);
        } else if (whole && report.type == CG_COMMAND_FAILED && !c->begun) {
                report.err.msg[sizeof(report.err.msg) - 1] = '\0';
                end_now(c, "error", report.err.msg);
        } else { /* nothing of it is left, or its runner was killed from inside */
                close_watch(c, &c->orders);
                if (c->state == STARTED)
                        cg_sup_timer_start(&c->timer, on_lost, LOST_MS);
                else if (c->state == LEFT)
                        command_free(c);
        }
}

/*
 * Pipes for the program's input and output: *theirs are its ends. Sockets for a file operation:
 * unlike pipes, other processes inside cannot open them through /proc, and write in its place.
 */
static int make_pipes(struct command *c, int theirs[3], struct cg_err *err)
{
        struct watch *watches[] = { &c->input, &c->output, &c->errors };
        watch_cb callbacks[] = { on_writable, on_output, on_output };

        for (size_t i = 0; i < 3; i++) {
                int fds[2], mine = i == 0;

                if (c->socket >= 0 && i == (c->socket_is_input ? 0 : 1)) {
                        theirs[i] = cg_steal_fd(&c->socket);
                        continue;
                }
                if (i == 0 && !c->has_input) {
                        theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                        if (theirs[0] < 0)
                                return cg_fail_errno(err, "/dev/null");
                        continue;
                }
                if (c->builtin ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0
                               : pipe2(fds, O_CLOEXEC) < 0)
                        return cg_fail_errno(err, "pipes of a command");
                theirs[i] = fds[!mine];
                if (fcntl(fds[mine], F_SETFL, O_NONBLOCK) < 0) {
                        close(fds[mine]);
                        return cg_fail_errno(err, "pipes of a command");
                }
                if (cg_sup_watch_start(c->ss->sup, watches[i], fds[mine], callbacks[i], c, err) < 0)
                        return -1;
        }
        c->input_open = true;
        return 0;
}

/* @fds: those of the request, which the caller closes. */
static int request(struct cg_commands *cs, struct command *c, int fds[CG_COMMAND_FDS], struct cg_err *err)
{
        int pair[2], r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "commands");
        fds[CG_COMMAND_ORDERS_FD] = pair[1];
        if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0) {
                r = cg_fail_errno(err, "commands");
                close(pair[0]);
                return r;
        }
        if ((r = cg_sup_watch_start(c->ss->sup, &c->orders, pair[0], on_orders, c, err)) < 0 ||
            (!c->terminal && (r = make_pipes(c, fds + CG_COMMAND_STDIN_FD, err)) < 0))
                return r;
        return cg_send_fds(cs->server.fd, (char[]){ CG_COMMAND_REQUEST }, 1, fds,
                           c->terminal ? CG_COMMAND_STDIN_FD : CG_COMMAND_FDS, err);
}

static int start(struct cg_commands *cs, struct command *c, struct cg_err *err)
{
        int fds[CG_COMMAND_FDS] = { c->spec, -1, -1, -1, -1 };
        int r = request(cs, c, fds, err);

        for (size_t i = 0; i < CG_COMMAND_FDS; i++)
                cg_closep_(&fds[i]);
        c->spec = -1;
        if (r < 0)
                return r;
        cs->untaken++;
        cg_sup_timer_start(&cs->timer, on_server_silent, SERVER_MS);
        c->kernel = cs->kernel;
        c->state = STARTED;
        if (!c->builtin)
                cg_sup_bus_execution(c->ss, c->id, "command", NULL, "");
        write_input(c);
        return 0;
}

static void start_waiting(struct cg_commands *cs)
{
        struct session *ss = cs->kernel->session;
        struct command *c, *next;
        struct cg_err err;
        bool any = false;

        if (!ss || cs->closed)
                return;
        for (c = TAILQ_FIRST(&ss->commands); c; c = TAILQ_NEXT(c, entry))
                any |= c->state == WAITING && c->job.state != JOB_WAITS;
        if (!any)
                return;
        if (!cs->server.active && cs->server.fd < 0 && start_server(cs, &err) < 0) {
                uv_timer_stop(&cs->timer);
                end_unstarted(cs, WAITING, err.msg);
                return;
        }
        for (c = TAILQ_FIRST(&ss->commands); c && cs->ready && cs->untaken < MAX_UNTAKEN; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->ss && c->state == WAITING && c->job.state != JOB_WAITS && start(cs, c, &err) < 0)
                        end_now(c, "error", err.msg);
        }
}

int cg_sup_commands_open(struct kernel *k, int fd, struct cg_err *err)
{
        struct cg_commands *cs = calloc(1, sizeof(*cs));

        if (!cs) {
                close(fd);
                return cg_fail(err, CG_E_NOMEM, "commands");
        }
        cs->kernel = k;
        cs->init = fd;
        cs->server.fd = -1;
        uv_timer_init(&k->sup->loop, &cs->timer);
        cs->timer.data = cs;
        k->commands = cs;
        start_waiting(cs);
        return 0;
}

void cg_sup_commands_close(struct kernel *k, struct session *ss, const char *status, const char *why)
{
        struct cg_commands *cs = k->commands;
        struct command *c, *next;

        if (!cs)
                return;
        k->commands = NULL;
        for (c = ss ? TAILQ_FIRST(&ss->commands) : NULL; c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->kernel == k)
                        end_now(c, status, why);
        }
        cs->closed = true;
        cg_sup_watch_close(&cs->server, server_closed);
        cs->closing = 1 + (cs->server.fd >= 0);
        uv_close((uv_handle_t *)&cs->timer, on_server_timer_closed);
}

void cg_sup_commands_end_all(struct session *ss, const char *status, const char *why)
{
        struct command *c, *next;

        for (c = TAILQ_FIRST(&ss->commands); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->ss && !c->done) /* those end with their cells */
                        end_now(c, status, why);
        }
}

void cg_sup_commands_member_gone(struct session *ss, uint16_t slot)
{
        struct command *c, *next;

        for (c = TAILQ_FIRST(&ss->commands); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (!c->ss || CELL_SLOT(c->id) != slot || c->done)
                        continue;
                if (c->state == STARTED || c->state == ENDED)
                        report_end(c, "cancelled", "its client has disconnected");
                command_free(c);
        }
}

/* ------------------------------------------------------------------ requests */

static void end_program(struct command *c, const char *status, const char *why)
{
        struct cg_command_order order = { .type = CG_COMMAND_END };

        if (c->status || (c->state == ENDED && !c->orders.active))
                return;
        if (!c->orders.active) {
                end_now(c, status, why);
                return;
        }
        if (c->state == STARTED) { /* else it has ended by itself, and this ends what is left */
                c->status = status;
                snprintf(c->why, sizeof(c->why), "%s", why);
        }
        if (send(c->orders.fd, &order, sizeof(order), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                errno = 0; /* its end is reported, or it is stopped */
        cg_sup_timer_start(&c->timer, on_lost, END_MS);
}

static void on_timeout(uv_timer_t *t)
{
        struct command *c = t->data;

        if (c->state == LEFT)
                command_free(c);
        else if (c->done)
                end_now(c, "timeout", "it took too long");
        else
                end_program(c, "timeout", "the command took longer than its time limit");
}

static struct command *find(struct session *ss, uint64_t id)
{
        struct command *c;

        TAILQ_FOREACH(c, &ss->commands, entry)
                if (c->id == id && !c->done)
                        break;
        return c;
}

/* The file that the command server reads: its head, and the texts as the host sent them. */
static int make_file(struct command *c, const struct cg_command_spec *spec, const char *texts,
                     struct cg_err *err)
{
        cg_auto_fd int fd = memfd_create("cellgate-command", MFD_CLOEXEC);

        if (fd < 0)
                return cg_fail_errno(err, "memfd_create");
        if (cg_write_all(fd, (const char *)spec, sizeof(*spec), err) < 0 ||
            cg_write_all(fd, texts, spec->text_len, err) < 0)
                return -1;
        c->spec = cg_steal_fd(&fd);
        return 0;
}

static int make_spec(struct command *c, const json_t *body, const char *texts, size_t len, struct cg_err *err)
{
        int64_t argc, envc, rows, columns;
        struct cg_command_spec spec;

        if (cg_json_bool(body, "builtin", false, &c->builtin, err) < 0 ||
            cg_json_int(body, "argc", 0, &argc, err) < 0 || cg_json_int(body, "envc", 0, &envc, err) < 0 ||
            cg_json_int(body, "rows", 0, &rows, err) < 0 ||
            cg_json_int(body, "columns", 0, &columns, err) < 0)
                return -1;
        if (argc < 1 || argc > CG_MAX_COMMAND_TEXT || envc < 0 || envc > CG_MAX_COMMAND_TEXT || rows < 0 ||
            rows > UINT16_MAX || columns < 0 || columns > UINT16_MAX || !rows != !columns)
                return cg_fail(err, CG_E_INVAL, "a command needs arguments, and a terminal rows and columns");
        spec = (struct cg_command_spec){ .argc = (uint32_t)argc,
                                         .envc = (uint32_t)envc,
                                         .builtin = c->builtin,
                                         .terminal = rows > 0,
                                         .rows = (uint16_t)rows,
                                         .columns = (uint16_t)columns,
                                         .text_len = (uint32_t)len };
        c->terminal = rows > 0;
        c->has_input |= c->terminal;
        return make_file(c, &spec, texts, err);
}

/* Its turn has come. Its time begins: it did not while it waited for others. */
static void on_job(void *data)
{
        struct command *c = data;

        if (c->timeout_ms > 0)
                cg_sup_timer_start(&c->timer, on_timeout, (uint64_t)c->timeout_ms);
        if (c->ss->kernel && c->ss->kernel->commands)
                start_waiting(c->ss->kernel->commands);
}

/*
 * It starts when it can. Operations on files are no jobs: they are short, and a cell that ends
 * waits for one.
 */
static void enqueue(struct session *ss, struct command *c)
{
        c->last_output = c->last_errors = SIZE_MAX;
        c->ss = ss;
        c->closing = 1;
        uv_timer_init(&ss->sup->loop, &c->timer);
        c->timer.data = c;
        cg_sup_job_init(&c->job, ss, true, on_job, c);
        TAILQ_INSERT_TAIL(&ss->commands, c, entry);
        if (!c->builtin && !cg_sup_job_take(&c->job))
                return;
        if (c->timeout_ms > 0)
                cg_sup_timer_start(&c->timer, on_timeout, (uint64_t)c->timeout_ms);
        if (ss->kernel && ss->kernel->commands)
                start_waiting(ss->kernel->commands);
}

static int read_exec(struct session *ss, struct command *c, uint64_t id, const struct cg_msg *m,
                     const json_t *body, struct cg_err *err)
{
        const struct command *o;
        size_t len, n = 0;
        const char *texts = cg_msg_raw(m, 0, &len);
        int r;

        TAILQ_FOREACH(o, &ss->commands, entry)
                n += !o->done;
        if (n >= MAX_COMMANDS) {
                cg_sup_jobs_refuse(
                        ss, n, "commands of the session run or wait already, or have left processes that run",
                        err);
                return CG_E_LIMIT;
        }
        if ((r = cg_json_int(body, "timeout_ms", 0, &c->timeout_ms, err)) < 0 ||
            (r = cg_json_bool(body, "input", false, &c->has_input, err)) < 0 ||
            (r = make_spec(c, body, texts, len, err)) < 0)
                return r;
        if (c->own_socket) {
                c->socket_is_input = c->has_input;
                c->has_input = false;
                if (c->socket < 0 || c->terminal)
                        return cg_fail(err, CG_E_PROTO, "the command's socket is missing");
        }
        if (c->has_input && !(c->pending = malloc(CG_MAX_COMMAND_INPUT)))
                return cg_fail(err, CG_E_NOMEM, "command");
        return cg_sup_audit_request(ss, id, m, err);
}

void cg_sup_commands_exec(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct command *c = calloc(1, sizeof(*c)), refused = { .ss = ss, .id = id, .socket = -1 };
        struct cg_out failed = { .type = CG_HOST_COMMAND_RESULT, .id = id };
        cg_auto_json json_t *body = NULL;
        cg_auto_fd int fd = -1;
        int64_t socket = 0;
        struct cg_err err;
        int r = cg_msg_json(m, &body, &err);

        if (r >= 0)
                r = cg_json_int(body, "socket", 0, &socket, &err);
        refused.own_socket = r >= 0 && socket > 0;
        if (refused.own_socket)
                fd = cg_sup_host_socket(cg_sup_host_of(ss, CELL_SLOT(id)), (uint64_t)socket);
        if (c)
                *c = (struct command){ .spec = -1,
                                       .socket = cg_steal_fd(&fd),
                                       .own_socket = refused.own_socket };
        if (r >= 0)
                r = c ? read_exec(ss, c, id, m, body, &err) : cg_fail(&err, CG_E_NOMEM, "command");
        if (r < 0) {
                if (c) {
                        cg_closep_(&c->spec);
                        cg_closep_(&c->socket);
                        free(c->pending);
                }
                free(c);
                send_event(&refused, &failed,
                           json_pack("{s:s, s:o}", "status", "error", "text", cg_sup_text_json(err.msg)));
                return;
        }
        c->id = id;
        cg_sup_costs_shared(ss);
        ss->used = ss->ever_used = true;
        enqueue(ss, c);
}

void cg_sup_commands_own(struct session *ss, const char *texts, size_t len, uint32_t argc, size_t max,
                         int64_t timeout_ms,
                         void (*done)(void *data, const char *out, size_t len, const char *why), void *data)
{
        struct cg_command_spec spec = { .argc = argc, .builtin = true, .text_len = (uint32_t)len };
        struct command *c = calloc(1, sizeof(*c));
        struct cg_err err;

        if (!c) {
                done(data, "", 0, "out of memory");
                return;
        }
        *c = (struct command){ .spec = -1,
                               .socket = -1,
                               .builtin = true,
                               .timeout_ms = timeout_ms,
                               .done = done,
                               .done_data = data };
        cg_buf_init(&c->out, max);
        if (make_file(c, &spec, texts, &err) < 0) {
                free(c);
                done(data, "", 0, err.msg);
                return;
        }
        enqueue(ss, c);
}

void cg_sup_commands_end_own(struct session *ss, const void *data, const char *why)
{
        struct command *c;

        TAILQ_FOREACH(c, &ss->commands, entry)
                if (c->done && c->done_data == data)
                        break;
        if (c)
                end_now(c, "cancelled", why);
}

void cg_sup_commands_input(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct command *c = find(ss, id);
        const char *data;
        size_t len;

        data = cg_msg_raw(m, 0, &len);
        if (!c || !c->has_input)
                return;                                  /* it has ended meanwhile */
        if (len > CG_MAX_COMMAND_INPUT - c->n_pending) { /* a host that does not count what was taken */
                end_program(c, "error", "more input than the host may send at once");
                return;
        }
        if (len > CG_MAX_COMMAND_INPUT - c->n_pending - c->pending_at) {
                memmove(c->pending, c->pending + c->pending_at, c->n_pending);
                c->pending_at = 0;
        }
        memcpy(c->pending + c->pending_at + c->n_pending, data, len);
        c->n_pending += len;
        c->input_ended |= len == 0;
        write_input(c);
}

void cg_sup_commands_control(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct cg_command_order order = { .type = CG_COMMAND_SIGNAL };
        struct command *c = find(ss, id);
        cg_auto_json json_t *body = NULL;
        int64_t sig, rows, columns;

        if (!c || cg_msg_json(m, &body, NULL) < 0 || cg_json_int(body, "signal", 0, &sig, NULL) < 0 ||
            cg_json_int(body, "rows", 0, &rows, NULL) < 0 ||
            cg_json_int(body, "columns", 0, &columns, NULL) < 0)
                return;
        if (c->state != STARTED)
                return;
        if (sig > 0 && sig < NSIG) {
                order.signal = (int32_t)sig;
                if (send(c->orders.fd, &order, sizeof(order), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                        errno = 0; /* its end is reported */
        }
        if (c->terminal && c->output.active && rows > 0 && rows <= UINT16_MAX && columns > 0 &&
            columns <= UINT16_MAX) {
                struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns };

                ioctl(c->output.fd, TIOCSWINSZ, &size);
        }
}

bool cg_sup_commands_cancel(struct session *ss, uint64_t id)
{
        struct command *c = find(ss, id);

        if (!c)
                return false;
        if (c->state == ENDED || c->state == LEFT) /* the rest of its output, and what it has left behind */
                end_now(c, "cancelled", "cancelled");
        else
                end_program(c, "cancelled", "cancelled");
        return true;
}

void cg_sup_commands_list(const struct session *ss, json_t *list)
{
        const struct command *c;
        char id[CG_JOB_ID];

        TAILQ_FOREACH(c, &ss->commands, entry) {
                if (c->builtin || c->job.state == JOB_NONE)
                        continue;
                cg_sup_job_id(ss, c->id, id);
                json_array_append_new(list,
                                      json_pack("{s:s, s:s, s:s, s:I}", "id", id, "kind", "command", "state",
                                                c->job.state == JOB_WAITS ? "waiting" : "running", "ms",
                                                (json_int_t)(cg_now_ms() - c->job.since_ms)));
        }
}
