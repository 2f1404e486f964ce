/* cellgate-supervisor: one command beside cells: output, input, orders to its runner, its end. */
#include "supervisor/cells/command.h"

#include <sys/socket.h>
#include "base/fd.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/members.h"
#include "supervisor/limits/denials.h"
#include "supervisor/network/egress.h"

/* Bytes of output for the host of a command with a socket of its own; more is dropped. */
#define MAX_MESSAGES ((size_t)64 << 10)
/* Messages of output read of one command before others have their turn. */
#define OUTPUT_TURN 16
/* For the end of the whole sandbox, which ends what runs a command first. */
#define LOST_MS 1000
/* More than a terminal holds: its last output. Of a pipe, its size. */
#define TERMINAL_HOLDS ((size_t)1 << 20)

/* ------------------------------------------------------------------ end */

static void closed_one(struct command *c)
{
        if (--c->closing > 0)
                return;
        free(c->input.pending);
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

void cg_sup_command_free(struct command *c)
{
        cg_sup_job_end(&c->job);
        TAILQ_REMOVE(&c->ss->commands, c, entry);
        c->ss = NULL;
        c->kernel = NULL;
        cg_closep_(&c->spec);
        cg_closep_(&c->socket.fd);
        c->closing++; /* for the timer */
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
        close_watch(c, &c->orders);
        close_watch(c, &c->output);
        close_watch(c, &c->errors);
        close_watch(c, &c->input.watch);
        if (c->done)
                report_own(c);
        closed_one(c);
}

void cg_sup_command_event(struct command *c, struct cg_out *out, json_t *body)
{
        if (c->done) { /* errors are reported by the exit status */
                if (out->type == CG_HOST_COMMAND_OUTPUT && !(out->flags & CG_FLAG_STDERR))
                        c->out_full |= cg_buf_try_add(&c->out, out->raw, out->raw_len, NULL) < 0;
                json_decref(body);
                return;
        }
        if (!c->socket.own) {
                cg_sup_event_to_host(c->ss, out, body, NULL);
                return;
        }
        out->session = c->ss->number;
        out->id = CELL_NUMBER(c->id);
        out->flags |= CG_FLAG_OWN_WINDOW;
        c->socket.messages += out->raw_len;
        if (c->socket.messages > MAX_MESSAGES && out->type == CG_HOST_COMMAND_OUTPUT)
                return;
        cg_sup_host_send(cg_sup_host_of(c->ss, CELL_SLOT(c->id)), out, body);
}

void cg_sup_command_report_end(const struct command *c, const char *status, const char *why)
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

/* Sends the result, the command's last event. Later writers get SIGPIPE, or SIGHUP. */
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
        cg_sup_command_report_end(c, status, why);
        cg_closep_(&c->socket.fd);
        close_watch(c, &c->output);
        close_watch(c, &c->errors);
        close_watch(c, &c->input.watch);
        cg_sup_command_event(c, &out, body);
}

/* The same, but with what has stopped the command, if something has. */
static void finish_unless_stopped(struct command *c, const char *status, const char *why)
{
        if (c->status)
                finish(c, c->status, c->why);
        else
                finish(c, status, why);
}

void cg_sup_command_end_now(struct command *c, const char *status, const char *why)
{
        c->closing++; /* it may be freed: a host that reads too little is detached */
        if (c->done && !c->status) {
                c->status = status;
                snprintf(c->why, sizeof(c->why), "%s", why);
        }
        if (c->state != LEFT)
                finish_unless_stopped(c, status, why);
        if (c->ss)
                cg_sup_command_free(c);
        closed_one(c);
}

/* ------------------------------------------------------------------ output */

static bool has_room(const struct command *c)
{
        return c->socket.own || c->done || cg_sup_has_room(c->ss, CELL_SLOT(c->id));
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
                        cg_sup_command_event(c, &out, NULL);
        }
        return !w->active || !*left;
}

/* Reads what the program wrote before its end; background processes may go on writing. */
static size_t last_output(const struct command *c, const struct watch *w)
{
        int size = w->active ? fcntl(w->fd, F_GETPIPE_SZ) : 0;

        if (c->builtin)
                return SIZE_MAX;
        return size >= 0 ? (size_t)size : TERMINAL_HOLDS;
}

void cg_sup_command_pump(struct command *c)
{
        bool drained;

        c->closing++; /* it may be freed: a host that reads too little is detached */
        drained = read_output(c, &c->output, &c->last_output);
        drained = read_output(c, &c->errors, &c->last_errors) && drained;
        if (c->ss && c->state == ENDED && drained) {
                finish_unless_stopped(c, "ok", "");
                if (c->ss && (!c->orders.active || c->done)) /* nothing of it is left, or matters */
                        cg_sup_command_free(c);
        }
        if (c->ss) { /* without room, cg_sup_commands_room() goes on */
                cg_sup_watch_for(&c->output, has_room(c) ? UV_READABLE | UV_DISCONNECT : 0);
                cg_sup_watch_for(&c->errors, has_room(c) ? UV_READABLE | UV_DISCONNECT : 0);
        }
        closed_one(c);
}

static void on_output(struct watch *w)
{
        cg_sup_command_pump(w->data);
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

void cg_sup_command_write_input(struct command *c)
{
        size_t done = 0;

        if (!c->input.open || !c->input.pending)
                return;
        while (c->input.watch.active && done < c->input.n_pending) {
                ssize_t n = write(c->input.watch.fd, c->input.pending + c->input.at + done,
                                  c->input.n_pending - done);

                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0 && errno != EINTR) /* the program reads no more */
                        close_watch(c, &c->input.watch);
                done += CG_MAX(n, 0);
        }
        if (!c->input.watch.active)
                done = c->input.n_pending;
        c->input.n_pending -= done;
        c->input.at = c->input.n_pending ? c->input.at + done : 0;
        if (c->input.ended && !c->input.n_pending && c->input.watch.active) {
                /* The end of a terminal's input is a character. */
                if (c->terminal)
                        c->input.ended = write(c->input.watch.fd, "\4", 1) < 0 && errno == EAGAIN;
                else
                        close_watch(c, &c->input.watch);
        }
        cg_sup_watch_for(&c->input.watch, c->input.n_pending || c->input.ended ? UV_WRITABLE : 0);
        taken(c, done);
}

static void on_writable(struct watch *w)
{
        cg_sup_command_write_input(w->data);
}

/* ------------------------------------------------------------------ its runner */

void cg_sup_command_lost(uv_timer_t *t)
{
        struct command *c = t->data;

        if (c->state == ENDED) /* the result follows the last output */
                close_watch(c, &c->orders);
        else
                cg_sup_command_end_now(
                        c, "error", "processes in the sandbox have stopped or killed what runs this command");
}

/* Takes the other end of the program's terminal. */
static int take_terminal(struct command *c, int *fd, struct cg_err *err)
{
        int copy = fcntl(*fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0 || fcntl(copy, F_SETFL, O_RDWR | O_NONBLOCK) < 0) {
                cg_closep_(&copy);
                return cg_fail_errno(err, "terminal");
        }
        if (cg_sup_watch_start(c->ss->sup, &c->input.watch, copy, on_writable, c, err) < 0)
                return -1;
        c->input.open = true;
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
                        cg_sup_command_end_now(c, "error", err.msg);
                else
                        cg_sup_command_write_input(c);
        } else if (whole && report.type == CG_COMMAND_ENDED && c->begun && c->state == STARTED) {
                c->end = report;
                c->state = ENDED;
                cg_sup_job_end(&c->job);
                c->last_output = last_output(c, &c->output);
                c->last_errors = last_output(c, &c->errors);
                cg_sup_command_pump(c);
        } else if (whole && report.type == CG_COMMAND_FAILED && !c->begun) {
                report.err.msg[sizeof(report.err.msg) - 1] = '\0';
                cg_sup_command_end_now(c, "error", report.err.msg);
        } else { /* nothing of it is left, or its runner was killed from inside */
                close_watch(c, &c->orders);
                if (c->state == STARTED)
                        cg_sup_timer_start(&c->timer, cg_sup_command_lost, LOST_MS);
                else if (c->state == LEFT)
                        cg_sup_command_free(c);
        }
}

/*
 * Pipes for the program's input and output: *theirs are its ends. Sockets for a file operation:
 * unlike pipes, other processes inside cannot open them through /proc, and write in its place.
 */
static int make_pipes(struct command *c, int theirs[3], struct cg_err *err)
{
        struct watch *watches[] = { &c->input.watch, &c->output, &c->errors };
        watch_cb callbacks[] = { on_writable, on_output, on_output };

        for (size_t i = 0; i < 3; i++) {
                int fds[2], mine = i == 0;

                if (c->socket.fd >= 0 && i == (c->socket.is_input ? 0 : 1)) {
                        theirs[i] = cg_steal_fd(&c->socket.fd);
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
        c->input.open = true;
        return 0;
}

int cg_sup_command_connect(struct command *c, int fds[CG_COMMAND_FDS], struct cg_err *err)
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
        r = cg_sup_watch_start(c->ss->sup, &c->orders, pair[0], on_orders, c, err);
        if (r < 0 || c->terminal)
                return r;
        return make_pipes(c, fds + CG_COMMAND_STDIN_FD, err);
}
