/*
 * cellgate-supervisor: commands that hosts run beside cells. They run in the sandbox of the
 * session's kernel, but not through the kernel: its command server (command_server.c) starts
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

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/json.h"
#include "supervisor/cells/command.h"
#include "supervisor/core/audit.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/members.h"
#include "supervisor/limits/costs.h"

/* Commands of a session; also those whose program has ended and left processes behind. */
#define MAX_COMMANDS 64
/* For a runner that ends its processes. */
#define END_MS (CG_COMMAND_END_MS + 1000)

void cg_sup_commands_room(struct session *ss)
{
        struct command *c, *next;

        for (c = TAILQ_FIRST(&ss->commands); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->state == STARTED || c->state == ENDED)
                        cg_sup_command_pump(c);
        }
}

void cg_sup_commands_end_all(struct session *ss, const char *status, const char *why)
{
        struct command *c, *next;

        for (c = TAILQ_FIRST(&ss->commands); c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->ss && !c->done) /* those end with their cells */
                        cg_sup_command_end_now(c, status, why);
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
                        cg_sup_command_report_end(c, "cancelled", "its client has disconnected");
                cg_sup_command_free(c);
        }
}

/* ------------------------------------------------------------------ requests */

/* A failure needs no report: the runner has ended, which on_orders() sees, or hangs. */
static void send_order(const struct command *c, struct cg_command_order order)
{
        if (send(c->orders.fd, &order, sizeof(order), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                errno = 0;
}

static void end_program(struct command *c, const char *status, const char *why)
{
        if (c->status || (c->state == ENDED && !c->orders.active))
                return;
        if (!c->orders.active) {
                cg_sup_command_end_now(c, status, why);
                return;
        }
        if (c->state == STARTED) { /* else it has ended by itself, and this ends what is left */
                c->status = status;
                snprintf(c->why, sizeof(c->why), "%s", why);
        }
        send_order(c, (struct cg_command_order){ .type = CG_COMMAND_END });
        cg_sup_timer_start(&c->timer, cg_sup_command_lost, END_MS);
}

static void on_timeout(uv_timer_t *t)
{
        struct command *c = t->data;

        if (c->state == LEFT)
                cg_sup_command_free(c);
        else if (c->done)
                cg_sup_command_end_now(c, "timeout", "it took too long");
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
        cg_sup_commands_start(c->ss);
}

/*
 * Copies @made, of which the caller frees what it has when this fails. It starts when it can.
 * Operations on files are no jobs: short, and an ending cell waits.
 */
static int enqueue(const struct command *made, struct cg_err *err)
{
        struct session *ss = made->ss;
        struct command *c = malloc(sizeof(*c));

        if (!c)
                return cg_fail(err, CG_E_NOMEM, "command");
        *c = *made;
        c->last_output = c->last_errors = SIZE_MAX;
        c->closing = 1;
        uv_timer_init(&ss->sup->loop, &c->timer);
        c->timer.data = c;
        cg_sup_job_init(&c->job, ss, true, on_job, c);
        TAILQ_INSERT_TAIL(&ss->commands, c, entry);
        if (c->builtin || cg_sup_job_take(&c->job))
                on_job(c);
        return 0;
}

static int read_exec(struct command *c, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const struct command *o;
        size_t len, n = 0;
        const char *texts = cg_msg_raw(m, 0, &len);
        int64_t socket;

        if (cg_msg_json(m, &body, err) < 0 || cg_json_int(body, "socket", 0, &socket, err) < 0)
                return -1;
        c->socket.own = socket > 0;
        if (c->socket.own)
                c->socket.fd = cg_sup_host_socket(cg_sup_host_of(c->ss, CELL_SLOT(c->id)), (uint64_t)socket);
        TAILQ_FOREACH(o, &c->ss->commands, entry)
                n += !o->done;
        if (n >= MAX_COMMANDS) {
                cg_sup_jobs_refuse(
                        c->ss, n,
                        "commands of the session run or wait already, or have left processes that run", err);
                return -1;
        }
        if (cg_json_int(body, "timeout_ms", 0, &c->timeout_ms, err) < 0 ||
            cg_json_bool(body, "input", false, &c->has_input, err) < 0 ||
            make_spec(c, body, texts, len, err) < 0)
                return -1;
        if (c->socket.own) {
                c->socket.is_input = c->has_input;
                c->has_input = false;
                if (c->socket.fd < 0 || c->terminal)
                        return cg_fail(err, CG_E_PROTO, "the command's socket is missing");
        }
        if (c->has_input && !(c->input.pending = malloc(CG_MAX_COMMAND_INPUT)))
                return cg_fail(err, CG_E_NOMEM, "command");
        return cg_sup_audit_request(c->ss, c->id, m, err);
}

void cg_sup_commands_exec(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct command made = { .ss = ss, .id = id, .spec = -1, .socket = { .fd = -1 } };
        struct cg_out failed = { .type = CG_HOST_COMMAND_RESULT, .id = id };
        struct cg_err err;

        if (read_exec(&made, m, &err) == 0) {
                cg_sup_costs_shared(ss);
                ss->use.kernel = ss->use.ever = true;
                if (enqueue(&made, &err) == 0)
                        return;
        }
        cg_closep_(&made.spec);
        cg_closep_(&made.socket.fd);
        free(made.input.pending);
        cg_sup_command_event(&made, &failed,
                             json_pack("{s:s, s:o}", "status", "error", "text", cg_sup_text_json(err.msg)));
}

void cg_sup_commands_own(struct session *ss, const char *texts, size_t len, uint32_t argc, size_t max,
                         int64_t timeout_ms,
                         void (*done)(void *data, const char *out, size_t len, const char *why), void *data)
{
        struct cg_command_spec spec = { .argc = argc, .builtin = true, .text_len = (uint32_t)len };
        struct command made = { .ss = ss,
                                .spec = -1,
                                .socket = { .fd = -1 },
                                .builtin = true,
                                .timeout_ms = timeout_ms,
                                .done = done,
                                .done_data = data,
                                .out = { .max = max } };
        struct cg_err err;

        if (make_file(&made, &spec, texts, &err) == 0 && enqueue(&made, &err) == 0)
                return;
        cg_closep_(&made.spec);
        done(data, "", 0, err.msg);
}

void cg_sup_commands_end_own(struct session *ss, const void *data, const char *why)
{
        struct command *c;

        TAILQ_FOREACH(c, &ss->commands, entry)
                if (c->done && c->done_data == data)
                        break;
        if (c)
                cg_sup_command_end_now(c, "cancelled", why);
}

void cg_sup_commands_input(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct command *c = find(ss, id);
        const char *data;
        size_t len;

        data = cg_msg_raw(m, 0, &len);
        if (!c || !c->has_input)
                return;                                        /* it has ended meanwhile */
        if (len > CG_MAX_COMMAND_INPUT - c->input.n_pending) { /* a host that does not count what was taken */
                end_program(c, "error", "more input than the host may send at once");
                return;
        }
        if (len > CG_MAX_COMMAND_INPUT - c->input.n_pending - c->input.at) {
                memmove(c->input.pending, c->input.pending + c->input.at, c->input.n_pending);
                c->input.at = 0;
        }
        memcpy(c->input.pending + c->input.at + c->input.n_pending, data, len);
        c->input.n_pending += len;
        c->input.ended |= len == 0;
        cg_sup_command_write_input(c);
}

void cg_sup_commands_control(struct session *ss, uint64_t id, const struct cg_msg *m)
{
        struct command *c = find(ss, id);
        cg_auto_json json_t *body = NULL;
        int64_t sig, rows, columns;

        if (!c || c->state != STARTED || cg_msg_json(m, &body, NULL) < 0 ||
            cg_json_int(body, "signal", 0, &sig, NULL) < 0 || cg_json_int(body, "rows", 0, &rows, NULL) < 0 ||
            cg_json_int(body, "columns", 0, &columns, NULL) < 0)
                return;
        if (sig > 0 && sig < NSIG)
                send_order(c, (struct cg_command_order){ .type = CG_COMMAND_SIGNAL, .signal = (int32_t)sig });
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
                cg_sup_command_end_now(c, "cancelled", "cancelled");
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
