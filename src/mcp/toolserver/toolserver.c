/*
 * cellgate-toolserver: speaks with MCP servers for every session of one supervisor.
 *
 * Started by the supervisor with exec: --log-level N; descriptor 2 is the log, 3 the socket of the
 * broker wire, 4 the lifeline. Only this process and the host know the definitions of MCP servers
 * with their secrets. When the lifeline or the broker wire closes, or on SIGTERM, every MCP server
 * is ended in order, and then this process. Its parent, which the supervisor has started, is its
 * guard (guard.c), which ends all that is left of the MCP servers.
 */
#include <getopt.h>
#include <signal.h>
#include "base/json.h"
#include "mcp/toolserver/guard.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/toolserver.h"

#define FD_BROKER   3
#define FD_LIFELINE 4

/* ---- the end */

static void on_end_timer(uv_timer_t *t)
{
        struct ts *ts = t->data;
        struct ts_session *s = ts->sessions;

        /* Ending a session may free it at once, and no other. */
        while (s) {
                struct ts_session *next = s->next;

                cg_ts_session_end(s, false);
                s = next;
        }
        cg_ts_maybe_stop(ts);
}

static void on_broker_closed(struct cg_zlink *z)
{
        struct ts *ts = z->data;

        cg_ts_maybe_stop(ts);
}

static void on_lifeline(uv_poll_t *h, int status, int events)
{
        struct ts *ts = h->data;
        char buf[64];
        ssize_t n = read(FD_LIFELINE, buf, sizeof(buf));

        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return;
        uv_poll_stop(h);
        cg_log(&ts->log, CG_LOG_INFO, "the supervisor is gone");
        cg_ts_end(ts, 0);
}

static void on_signal(uv_signal_t *h, int sig)
{
        cg_ts_end(h->data, 0);
}

/* ---- the broker wire */

static int attach(struct ts *ts, const struct cg_msg *m, const json_t *body, struct cg_err *err)
{
        const char *path = NULL;
        struct ts_session *s;
        bool remote;
        int r = cg_json_str(body, "path", NULL, &path, err);

        if (r < 0 || (r = cg_json_bool(body, "remote", false, &remote, err)) < 0)
                return r;
        if (!path == !remote)
                return cg_fail(err, CG_E_PROTO, "ATTACH without a path");
        s = cg_ts_session_get(ts, m->session, err);
        if (!s)
                return CG_E_NOMEM;
        cg_ts_kernel_detach(s, "another kernel took its place");
        s->remote = remote;
        return cg_ts_kernel_attach(s, m->id, path, err);
}

static void on_attach(struct ts *ts, const struct cg_msg *m, const json_t *body)
{
        struct cg_out out = { .type = CG_BROKER_ATTACHED, .session = m->session, .id = m->id };
        struct cg_err err;

        if (attach(ts, m, body, &err) == 0) {
                cg_ts_broker_send(ts, &out, NULL, NULL);
                return;
        }
        err.msg[sizeof(err.msg) / 2] = '\0'; /* escaped, it must fit the body */
        cg_log(&ts->log, CG_LOG_ERROR, "session %llu: %s", (unsigned long long)m->session, err.msg);
        cg_ts_broker_send_error(ts, &out, &err);
}

static int on_broker_message(struct ts *ts, struct cg_msg *m, struct cg_err *err)
{
        struct cg_out detached = { .type = CG_BROKER_DETACHED, .session = m->session, .id = m->id };
        struct ts_session *s = cg_ts_session_find(ts, m->session);
        cg_auto_json json_t *body = NULL;
        const char *reason, *answer;
        int64_t approval, cell, kernel;
        bool keep, accept, timed_out, report, audited;
        int r;

        if (m->type == CG_BROKER_SERVERS) {
                s = cg_ts_session_get(ts, m->session, err);
                if (!s)
                        return CG_E_NOMEM;
                cg_ts_session_add(s, m);
                return 0;
        }
        if (m->type == CG_BROKER_CALL || m->type == CG_BROKER_CALL_CANCEL) {
                if (s && s->remote && m->type == CG_BROKER_CALL)
                        cg_ts_kernel_call(s, m);
                else if (s && s->remote)
                        cg_ts_kernel_cancel(s, m->id);
                return 0;
        }
        r = cg_msg_json(m, &body, err);
        if (r < 0)
                return r;
        switch (m->type) {
        case CG_BROKER_ATTACH:
                on_attach(ts, m, body);
                return 0;
        case CG_BROKER_DETACH:
                r = cg_json_bool(body, "keep_servers", false, &keep, err);
                if (r < 0)
                        return r;
                if (s && !keep) {
                        s->detach_id = m->id;
                        cg_ts_session_end(s, true);
                        return 0;
                }
                if (s)
                        cg_ts_kernel_detach(s, "the session's kernel has ended");
                cg_ts_broker_send(ts, &detached, NULL, NULL);
                return 0;
        case CG_BROKER_ASK_DECISION:
                if (cg_json_bool(body, "accept", false, &accept, err) < 0 ||
                    cg_json_str(body, "reason", "", &reason, err) < 0 ||
                    cg_json_bool(body, "timed_out", false, &timed_out, err) < 0 ||
                    cg_json_bool(body, "audited", false, &audited, err) < 0 ||
                    cg_json_bool(body, "report", audited, &report, err) < 0 ||
                    cg_json_int(body, "approval", 0, &approval, err) < 0 ||
                    cg_json_int(body, "cell", 0, &cell, err) < 0)
                        return err->code;
                if (s)
                        cg_ts_call_decide(s, m->id, (uint64_t)approval, (uint64_t)cell, accept, timed_out,
                                          report, audited, reason);
                return 0;
        case CG_BROKER_EGRESS_DECISION:
                if (cg_json_str(body, "answer", "", &answer, err) < 0 ||
                    cg_json_str(body, "reason", NULL, &reason, err) < 0)
                        return err->code;
                if (s)
                        cg_ts_box_decided(s, m->id, answer, reason);
                return 0;
        case CG_BROKER_SERVER_ANSWER:
                return s ? cg_ts_question_answered(s, m, body, err) : 0;
        case CG_BROKER_CALL_RESULT:
                if (s)
                        cg_ts_call_returned(s, m, body);
                return 0;
        case CG_BROKER_KEEP:
                r = cg_json_int(body, "kernel", 0, &kernel, err);
                if (r < 0)
                        return r;
                if (s)
                        cg_ts_keep(s, (uint64_t)kernel, m);
                return 0;
        default:
                return cg_fail(err, CG_E_PROTO, "%s is not expected", m->spec->name);
        }
}

static void on_broker_msg(struct cg_zlink *z, struct cg_msg *m)
{
        struct ts *ts = z->data;
        struct cg_err err;

        if (ts->ending || on_broker_message(ts, m, &err) == 0)
                return;
        cg_log(&ts->log, CG_LOG_ERROR, "the supervisor broke the rules of the wire: %s", err.msg);
        cg_ts_end(ts, 1);
}

static void on_broker_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct ts *ts = z->data;

        if (err->code == CG_E_CLOSED)
                cg_log(&ts->log, CG_LOG_INFO, "the supervisor is gone");
        else
                cg_log(&ts->log, CG_LOG_ERROR, "the supervisor broke the rules of the wire: %s", err->msg);
        cg_ts_end(ts, err->code != CG_E_CLOSED);
}

/* ---- the beginning */

static int watch_signal(struct ts *ts, uv_signal_t *h, int sig)
{
        int r = uv_signal_init(&ts->loop, h);

        if (r < 0)
                return r;
        h->data = ts;
        return uv_signal_start(h, on_signal, sig);
}

/* The data pointer of a handle is set once the handle exists. Returns an error of libuv. */
static int init_handles(struct ts *ts)
{
        uv_timer_t *const timers[] = { &ts->end_timer, &ts->progress, &ts->call_progress, &ts->held };
        int r;

        for (size_t i = 0; i < CG_ARRAY_LEN(timers); i++) {
                uv_timer_init(&ts->loop, timers[i]); /* cannot fail */
                timers[i]->data = ts;
        }
        r = watch_signal(ts, &ts->sigterm, SIGTERM);
        if (r < 0)
                return r;
        r = watch_signal(ts, &ts->sigint, SIGINT);
        if (r < 0)
                return r;
        r = uv_poll_init(&ts->loop, &ts->lifeline, FD_LIFELINE);
        if (r < 0)
                return r;
        ts->lifeline.data = ts;
        return uv_poll_start(&ts->lifeline, UV_READABLE, on_lifeline);
}

static int run(struct ts *ts, struct cg_err *err)
{
        static const struct cg_out ready = { .type = CG_BROKER_TOOLD_READY, .body = "{}", .body_len = 2 };
        int r = uv_loop_init(&ts->loop);

        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        ts->loop.data = ts;
        r = init_handles(ts);
        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        r = cg_zlink_take(&ts->broker, &ts->loop, FD_BROKER, &cg_wire_broker, CG_ROLE_SUPERVISOR,
                          CG_MCP_MAX_BROKER_QUEUE, on_broker_msg, on_broker_end, ts, err);
        if (r < 0)
                return r;
        r = cg_ts_broker_send(ts, &ready, NULL, err);
        if (r < 0)
                return r;
        uv_run(&ts->loop, UV_RUN_DEFAULT);
        if (uv_loop_close(&ts->loop) < 0)
                cg_log(&ts->log, CG_LOG_ERROR, "the event loop was left with open handles");
        return 0;
}

static int usage(void)
{
        fputs("usage: cellgate-toolserver --log-level N\n"
              "Started by cellgate-supervisor; 3 is the broker wire's socket, 4 the lifeline.\n",
              stderr);
        return 2;
}

static bool fd_is_open(int fd)
{
        return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "log-level", required_argument, NULL, 'l' },
                { NULL, 0, NULL, 0 },
        };
        struct ts ts = { .log = { .fd = 2, .level = CG_LOG_WARN, .who = "toolserver" },
                         .on_end = on_end_timer,
                         .on_broker_closed = on_broker_closed };
        struct cg_err err;
        int c, r;

        while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (c == 'l')
                        ts.log.level = (int)strtol(optarg, NULL, 10);
                else
                        return usage();
        }
        if (optind != argc || !fd_is_open(FD_BROKER) || !fd_is_open(FD_LIFELINE))
                return usage();
        signal(SIGPIPE, SIG_IGN);
        r = cg_guard_stay_behind(&err);
        if (r >= 0) {
                ts.unrecorded = json_object();
                r = run(&ts, &err);
                json_decref(ts.unrecorded);
        }
        if (r < 0) {
                cg_log(&ts.log, CG_LOG_ERROR, "%s", err.msg);
                return 1;
        }
        return ts.exit_status;
}
