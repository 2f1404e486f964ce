/*
 * The Jupyter front: start, loop, end. Sockets are bound before anything slow is done; the session
 * is opened in a separate thread, so that clients can connect meanwhile and a blocked call does not
 * keep us from ending. Runs in `cellgate jupyter`.
 */

#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "jupyter/internal.h"

/* A kernel with the same connection file may just be ending. */
#define BIND_MS      5000
#define OUTPUT_BYTES ((size_t)64 << 20)
/* Longest wait for clients to read the last messages. */
#define LINGER_MS 1000

/* ------------------------------------------------------------------ sockets */

static int bind_sockets(struct front *f, struct cg_err *err)
{
        static const uint64_t cell = (uint64_t)32 << 20, small = (uint64_t)1 << 20;
        int64_t end_ms = cg_now_ms() + BIND_MS;
        int linger = LINGER_MS;

        for (enum cg_jchannel i = 0; i < CG_JCHANNELS; i++) {
                bool requests = i != CG_JIOPUB && i != CG_JHB;
                struct cg_zsock *owner = i == CG_JIOPUB ? &f->iopub.z : &f->sockets.z[i];

                if (i == CG_JIOPUB) /* the size is of what subscribers send */
                        f->sockets.socks[i] = cg_socket_new(f->sockets.ctx, ZMQ_XPUB, ZMQ_XPUB_MANUAL, 4096,
                                                            err);
                else /* HANDOVER: a client that comes back under its name gets its place back */
                        f->sockets.socks[i] = cg_socket_new(f->sockets.ctx, ZMQ_ROUTER, ZMQ_ROUTER_HANDOVER,
                                                            (int64_t)CG_JMSG_MAX_BYTES, err);
                if (!f->sockets.socks[i])
                        return -1;
                zmq_setsockopt(f->sockets.socks[i], ZMQ_LINGER, &linger, sizeof(linger));
                /*
                 * The first message of a client may be a cell, also one that is too large.
                 * Heartbeats and subscriptions are small. Over ipc only this user's programs can
                 * connect.
                 */
                if (!f->conn.ipc && cg_peers_init(&f->sockets.peers[i], f->sockets.ctx, f->sockets.socks[i],
                                                  owner, &f->zl, cg_jchannel_key(i), requests ? cell : small,
                                                  requests ? CG_JMSG_MAX_BYTES + small : small,
                                                  f->conn.curve_public != NULL, &f->o->log, err) < 0)
                        return -1;
                if (cg_jconn_bind(&f->conn, i, f->sockets.socks[i], end_ms, err) < 0)
                        return -1;
        }
        return cg_jconn_save(&f->conn, err);
}

/* Sends each message back. */
static void heartbeat(struct cg_zsock *z)
{
        struct front *f = z->data;
        struct cg_peer *peer = NULL;
        bool first = true; /* the identity, which libzmq has added */
        zmq_msg_t m;
        int more = 1;

        for (; more; first = false) {
                zmq_msg_init(&m);
                if (zmq_msg_recv(&m, z->sock, ZMQ_DONTWAIT) < 0) {
                        zmq_msg_close(&m);
                        return;
                }
                more = zmq_msg_more(&m);
                if (!first)
                        peer = cg_peers_count_frame(&f->sockets.peers[CG_JHB], &m, peer);
                if (zmq_msg_send(&m, z->sock, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0)
                        zmq_msg_close(&m);
        }
}

/* The first subscriber. Clients have no earlier messages: for them the kernel starts now. */
static void joined(void *data)
{
        struct front *f = data;

        cg_iopub_status(&f->iopub, NULL, "starting");
        cg_shell_run(f);
}

static int watch_sockets(struct front *f, struct cg_err *err)
{
        static const cg_zsock_cb callbacks[CG_JCHANNELS] = { [CG_JSHELL] = cg_shell_readable,
                                                             [CG_JSTDIN] = cg_stdin_readable,
                                                             [CG_JCONTROL] = cg_control_readable,
                                                             [CG_JHB] = heartbeat };

        if (cg_iopub_init(&f->iopub, f->sockets.socks[CG_JIOPUB], &f->zl, &f->sign, &f->me, &f->o->log, err) <
            0)
                return -1;
        f->iopub.budget = f->o->output_bytes ?: OUTPUT_BYTES;
        f->iopub.on_joined = joined;
        f->iopub.data = f;
        for (int i = 0; i < CG_JCHANNELS; i++)
                if (callbacks[i] &&
                    cg_zsock_init(&f->sockets.z[i], &f->zl, f->sockets.socks[i], callbacks[i], f, err) < 0)
                        return -1;
        return 0;
}

static int watch_fd(struct front *f, uv_poll_t *h, int fd, uv_poll_cb cb, struct cg_err *err)
{
        int r = uv_poll_init(&f->loop, h, fd);

        h->data = f;
        if (r >= 0)
                r = uv_poll_start(h, UV_READABLE, cb);
        if (r < 0)
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        return 0;
}

/* ------------------------------------------------------------------ opening the session */

static void set_step(struct front *f, int step)
{
        atomic_store(&f->opener.step, step);
        uv_async_send(&f->opener.done);
}

/* Remarks are for the log and, in @text, for the first cell. */
static int check_rules(struct front *f, const char *report, struct cg_buf *text)
{
        cg_auto_buf struct cg_buf notes = { .max = CG_MAX_REPORT };
        int r = f->o->judge.check(f->o->judge.data, report, f->o->mcp, f->o->mcp_len, &notes, &f->opener.err);

        for (char *p = notes.data, *line; (line = strsep(&p, "\n")) && p;) {
                cg_log(&f->o->log, CG_LOG_WARN, "%s", line);
                cg_buf_addf(text, "[cellgate] Note: %s\n", line);
        }
        return r;
}

static int open_session(struct front *f)
{
        int r = cg_client_open(f->o->client, &f->client, &f->opener.err);

        if (r < 0)
                return r;
        if (cg_client_why_private(f->client))
                cg_log(&f->o->log, CG_LOG_WARN, "private supervisor, since none can be shared: %s",
                       cg_client_why_private(f->client));
        if (f->o->attach)
                return cg_session_attach(f->client, f->o->attach, &f->session, &f->opener.err);
        return cg_session_new(f->client, f->o->session, &f->session, &f->opener.err);
}

/* A thread of its own. */
static void *opener(void *arg)
{
        struct front *f = arg;
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *o = NULL;
        char *report = NULL;
        struct cg_err err;
        const char *name;
        json_t *one;
        int r;

        if (open_session(f) < 0) {
                set_step(f, -1);
                return NULL;
        }
        if (f->o->mcp) {
                set_step(f, OPEN);
                if (cg_session_add_mcp_servers(f->session, f->o->mcp, f->o->mcp_len, 0, &report, &err) < 0 ||
                    cg_json_object(report, strlen(report), "report", &o, &err) < 0)
                        cg_buf_addf(&text, "[cellgate] MCP servers are not available: %s\n", err.msg);
                json_object_foreach(o, name, one)
                        if (json_object_get(one, "error"))
                                cg_buf_addf(&text, "[cellgate] Not available: %s\n",
                                            json_string_value(json_object_get(one, "error")));
        }
        r = f->o->attach ? 0 : check_rules(f, report, &text);
        cg_free(report);
        if (r < 0) {
                set_step(f, -1);
                return NULL;
        }
        text.failed = 0; /* what there is room for is shown */
        f->mcp_failed = text.len ? cg_buf_steal(&text, NULL) : NULL;
        set_step(f, READY);
        return NULL;
}

static void end_with_error(struct front *f, const struct cg_err *why)
{
        f->end_err = *why;
        cg_shell_end(f, why->msg);
        cg_iopub_status(&f->iopub, NULL, "dead");
        cg_front_stop(f);
}

static void on_opened(uv_async_t *h)
{
        struct front *f = h->data;
        int step = atomic_load(&f->opener.step);
        struct cg_err err; /* f->opener_err is the thread's until step is negative */

        if (f->state == ENDING)
                return;
        if (step < 0) {
                /*
                 * If this program ended before it has replied, clients would only report a dead
                 * kernel, or start it again and again. So it stays, and reports why there is no
                 * kernel.
                 */
                if (f->o->attach || cg_info_without_kernel(f, f->opener.err.msg, NULL) < 0) {
                        end_with_error(f, &f->opener.err);
                } else {
                        f->state = FAILED;
                        cg_log(&f->o->log, CG_LOG_ERROR, "the kernel could not be started: %s",
                               f->opener.err.msg);
                }
        }
        if (f->state == OPENING && step >= OPEN) {
                if (cg_info_make(f, &err) < 0)
                        end_with_error(f, &err);
                else
                        f->state = OPEN;
        }
        if (f->state == OPEN && step >= READY) {
                int r = watch_fd(f, &f->events.session, cg_session_fd(f->session), cg_events_readable, &err);
                cg_auto_free char *path = f->o->announce ? realpath(f->conn.path, NULL) : NULL;

                if (r < 0)
                        end_with_error(f, &err);
                else
                        f->state = READY;
                if (r >= 0 && path && cg_write_all(1, path, strlen(path), NULL) == 0)
                        cg_write_all(1, "\n", 1, NULL);
        }
        if (f->state == ENDING)
                return;
        cg_control_early(f);
        cg_shell_run(f);
}

static int start_opener(struct front *f, struct cg_err *err)
{
        if (uv_async_init(&f->loop, &f->opener.done, on_opened) < 0)
                return cg_fail(err, CG_E_SYS, "event loop");
        f->opener.done.data = f;
        errno = pthread_create(&f->opener.thread, NULL, opener, f);
        if (errno)
                return cg_fail_errno(err, "thread");
        f->opener.runs = true;
        return 0;
}

/* ------------------------------------------------------------------ signals, parent process */

static void on_signal(uv_poll_t *h, int status, int events)
{
        struct front *f = h->data;
        struct signalfd_siginfo info;

        if (read(f->events.signal_fd, &info, sizeof(info)) != sizeof(info))
                return;
        if (info.ssi_signo == SIGINT && !f->o->attach)
                cg_local_interrupt(f);
        else
                cg_front_stop(f);
}

static void on_parent_end(uv_poll_t *h, int status, int events)
{
        cg_front_stop(h->data);
}

/* ------------------------------------------------------------------ start and end */

static void close_handle(uv_handle_t *h, void *arg)
{
        if (!uv_is_closing(h))
                uv_close(h, NULL);
}

static void warn_of_strangers(const struct front *f)
{
        const struct cg_jconn *c = &f->conn;

        if (!*c->key && c->curve_public)
                cg_log(&f->o->log, CG_LOG_WARN,
                       "%s: \"key\" is empty: messages are encrypted, but not signed", c->path);
        else if (!*c->key)
                cg_log(&f->o->log, CG_LOG_WARN,
                       c->ipc ? "%s: \"key\" is empty: every program of this user can run code in this kernel"
                              : "%s: \"key\" is empty: every user of this machine can run code in this kernel",
                       c->path);
        if (c->exposed && (*c->key || c->curve_public))
                cg_log(&f->o->log, CG_LOG_WARN,
                       "%s: other users can read or change this file, and so run code in this kernel: make it yours, with mode 600",
                       c->path);
}

static int start(struct front *f, struct cg_err *err)
{
        const rlim_t wanted = CG_JCHANNELS * CG_PEERS_MAX + 512;
        struct rlimit l;

        /* The file may be a pipe that nobody writes to: signals end the process meanwhile. */
        if (cg_jconn_load(&f->conn, f->o->connection_file, err) < 0 ||
            cg_jsign_init(&f->sign, f->conn.key, strlen(f->conn.key), err) < 0)
                return -1;
        warn_of_strangers(f);
        /* Blocked before the first thread starts, so that no library's thread gets them. */
        signal(SIGPIPE, SIG_IGN);
        if (cg_block_end_signals(NULL, &f->events.signal_fd, err) < 0)
                return -1;

        /* Each connection takes a descriptor; a login shell's limit may be too low. */
        if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < wanted) {
                l.rlim_cur = CG_MIN(l.rlim_max, wanted);
                setrlimit(RLIMIT_NOFILE, &l);
        }
        f->sockets.ctx = zmq_ctx_new();
        if (!f->sockets.ctx)
                return cg_fail(err, CG_E_NOMEM, "ZeroMQ");
        if (uv_loop_init(&f->loop) < 0 || uv_timer_init(&f->loop, &f->events.hold) < 0)
                return cg_fail(err, CG_E_SYS, "event loop");
        if (cg_zloop_init(&f->zl, &f->loop, err) < 0)
                return -1;
        f->events.hold.data = f;
        /*
         * The slowest step runs in its thread meanwhile, unless ipc sockets have to be bound
         * (cg_jconn_bind()).
         */
        if ((!f->conn.ipc && start_opener(f, err) < 0) || bind_sockets(f, err) < 0 ||
            watch_sockets(f, err) < 0 || (f->conn.ipc && start_opener(f, err) < 0) ||
            watch_fd(f, &f->events.signals, f->events.signal_fd, on_signal, err) < 0)
                return -1;
        if (f->o->ready_fd > 0) { /* a reader that has gone does not matter */
                cg_write_all(f->o->ready_fd, "\n", 1, NULL);
                close(f->o->ready_fd);
        }
        if (f->o->parent <= 1)
                return 0;
        f->events.parent_fd = cg_pidfd_open(f->o->parent, err);
        if (f->events.parent_fd < 0)
                return cg_err_prefix(err, "the program that started this kernel has ended");
        return watch_fd(f, &f->events.parent, f->events.parent_fd, on_parent_end, err);
}

/* Waits for the last messages, at most LINGER_MS. */
static void close_sockets(struct front *f)
{
        cg_jconn_release(&f->conn);
        for (int i = 0; i < CG_JCHANNELS; i++) {
                cg_peers_fini(&f->sockets.peers[i]);
                if (f->sockets.socks[i])
                        zmq_close(f->sockets.socks[i]);
        }
        if (f->sockets.ctx)
                zmq_ctx_term(f->sockets.ctx);
}

/* True if the opener thread has ended. It may hang in a call of the library. */
static bool join_opener(struct front *f)
{
        int step = atomic_load(&f->opener.step);
        struct timespec now;

        if (!f->opener.runs)
                return true;
        if (step == READY || step < 0)
                return pthread_join(f->opener.thread, NULL) == 0;
        clock_gettime(CLOCK_REALTIME, &now);
        return pthread_timedjoin_np(f->opener.thread, NULL, &now) == 0;
}

/*
 * false: not all was freed. The opener thread may still run; or the client waits for the end of
 * this process to start the next kernel, while the old one may run its atexit functions for a
 * second: the supervisor ends it after our exit.
 */
static bool tear_down(struct front *f)
{
        f->state = ENDING;
        if (f->restarting || !join_opener(f)) {
                close_sockets(f);
                cg_jconn_fini(&f->conn);
                return false;
        }
        if (f->zl.loop) {
                cg_iopub_close(&f->iopub);
                for (int i = 0; i < CG_JCHANNELS; i++) {
                        cg_peers_close(&f->sockets.peers[i]);
                        cg_zsock_close(&f->sockets.z[i]);
                }
                cg_zloop_close(&f->zl);
                uv_walk(&f->loop, close_handle, NULL);
                while (uv_run(&f->loop, UV_RUN_DEFAULT))
                        ;
                uv_loop_close(&f->loop);
        }
        f->session = cg_session_free(f->session);
        f->client = cg_client_close(f->client);
        close_sockets(f);
        cg_shell_free(f);
        cg_stdin_free(f);
        free(f->info.content);
        free(f->mcp_failed);
        cg_secrets_fini(&f->secrets);
        cg_jconn_fini(&f->conn);
        cg_jsign_fini(&f->sign);
        cg_closep_(&f->events.signal_fd);
        cg_closep_(&f->events.parent_fd);
        free(f);
        return true;
}

/* Serves until the end. */
static int serve(struct front *f, struct cg_err *err)
{
        if (cg_jidentity_init(&f->me, err) < 0 ||
            (f->o->session && cg_secrets_add_env(&f->secrets, f->o->session->env, err) < 0) ||
            start(f, err) < 0)
                return -1;
        while (f->state != ENDING)
                uv_run(&f->loop, UV_RUN_DEFAULT);
        /* requests that have no reply yet get an error */
        cg_shell_end(f, "the kernel was shut down");
        cg_control_early(f);
        if (f->end_err.code < 0)
                *err = f->end_err;
        return f->end_err.code;
}

int cg_front_run(const struct cg_front_options *o, bool *hangs, struct cg_err *err)
{
        struct front *f = calloc(1, sizeof(*f));
        int r;

        *hangs = false;
        if (!f)
                return cg_fail(err, CG_E_NOMEM, "front");
        f->o = o;
        f->events.signal_fd = f->events.parent_fd = -1;
        TAILQ_INIT(&f->main.waiting);
        TAILQ_INIT(&f->control.queue.waiting);
        TAILQ_INIT(&f->in_flight);
        TAILQ_INIT(&f->control.early);
        TAILQ_INIT(&f->questions.open);
        TAILQ_INIT(&f->questions.asked);
        r = serve(f, err);
        *hangs = !tear_down(f);
        return r;
}
