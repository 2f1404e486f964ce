/*
 * cellgate-supervisor: the command server of a sandbox (inside/commands.h), which starts the
 * commands of a session whose turn it is. Where it ends, another one is started.
 */
#include <sys/socket.h>
#include "base/fd.h"
#include "supervisor/cells/command.h"
#include "supervisor/cells/commands.h"
#include "supervisor/core/kernel.h"

/* Requests that the command server has not taken yet. */
#define MAX_UNTAKEN 8
/* For the server to be ready, or to take a request. */
#define SERVER_MS 10000
/* Servers that end one after the other before they are ready. */
#define SERVER_ATTEMPTS 3

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
static void end_unstarted(struct cg_commands *cs, enum command_state state, const char *why)
{
        struct session *ss = cs->kernel->session;
        struct command *c, *next;

        for (c = ss ? TAILQ_FIRST(&ss->commands) : NULL; c; c = next) {
                next = TAILQ_NEXT(c, entry);
                if (c->ss && c->state == state && !c->begun) /* NULL: its host was detached meanwhile */
                        cg_sup_command_end_now(c, "error", why);
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

static int start(struct cg_commands *cs, struct command *c, struct cg_err *err)
{
        int fds[CG_COMMAND_FDS] = { c->spec, -1, -1, -1, -1 };
        int r = cg_sup_command_connect(c, fds, err);

        if (r == 0)
                r = cg_send_fds(cs->server.fd, (char[]){ CG_COMMAND_REQUEST }, 1, fds,
                                c->terminal ? CG_COMMAND_STDIN_FD : CG_COMMAND_FDS, err);
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
        cg_sup_command_write_input(c);
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
                        cg_sup_command_end_now(c, "error", err.msg);
        }
}

void cg_sup_commands_start(struct session *ss)
{
        if (ss->kernel && ss->kernel->commands)
                start_waiting(ss->kernel->commands);
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
                        cg_sup_command_end_now(c, status, why);
        }
        cs->closed = true;
        cg_sup_watch_close(&cs->server, server_closed);
        cs->closing = 1 + (cs->server.fd >= 0);
        uv_close((uv_handle_t *)&cs->timer, on_server_timer_closed);
}
