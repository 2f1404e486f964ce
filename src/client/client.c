/*
 * libcellgate: the connection to a supervisor.
 *
 * Threads: one mutex guards all state and the connection. The library's thread sleeps on its
 * socket, the lifeline and an eventfd, and reads; any thread may send under the lock. What the
 * socket has no room for is left to the library's thread.
 */
#include "client/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/kernel_env.h"
#include "config.h"

#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_LINGER_MS  600000
/* A private supervisor ends its MCP servers in order first, which may take 6 s. */
#define CLOSE_MS 10000
/*
 * Requests have numbers above those of cells, so that a FAILED says which of the two it is about.
 */
#define FIRST_REQUEST (UINT64_C(1) << 32)
/* Messages and reads before the lifeline gets a look. */
#define BURST 64

extern char **environ;

CG_API const char *cg_version(void)
{
        return CG_VERSION;
}

CG_API void cg_free(void *p)
{
        free(p);
}

/* ------------------------------------------------------------------ sending */

static void wake(struct cg_client *c)
{
        uint64_t one = 1;

        if (write(c->wake_fd, &one, sizeof(one)) < 0)
                return; /* full means that it is awake already */
}

static int put_json(struct cg_client *c, const struct cg_out *o, json_t *body, struct cg_err *err)
{
        struct cg_out out = *o;
        cg_auto_free char *text = cg_json_text(body, &out.body_len);

        json_decref(body);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "message");
        out.body = text;
        return cg_zconn_put(&c->conn, &out, NULL, NULL, err);
}

int client_send(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err)
{
        int r;

        if (c->broken) {
                json_decref(body);
                if (err)
                        *err = c->broken_err;
                return CG_E_CLOSED;
        }
        r = body ? put_json(c, out, body, err) : cg_zconn_put(&c->conn, out, NULL, NULL, err);
        if (r == 0)
                cg_zconn_flush(&c->conn);
        if (cg_zconn_wants_out(&c->conn))
                wake(c);
        return r;
}

static void abs_deadline(struct timespec *t, int64_t timeout_ms)
{
        clock_gettime(CLOCK_MONOTONIC, t);
        t->tv_sec += timeout_ms / 1000;
        t->tv_nsec += (timeout_ms % 1000) * 1000000;
        if (t->tv_nsec >= 1000000000) {
                t->tv_nsec -= 1000000000;
                t->tv_sec++;
        }
}

static void unlink_request(struct cg_client *c, struct request *r)
{
        for (struct request **p = &c->requests; *p; p = &(*p)->next) {
                if (*p == r) {
                        *p = r->next;
                        return;
                }
        }
}

static int request_outcome(struct cg_client *c, struct request *q, int64_t timeout_ms, struct cg_err *err)
{
        if (!q->done && c->broken) {
                if (err)
                        *err = c->broken_err;
                return CG_E_CLOSED;
        }
        if (!q->done)
                return cg_fail(err, CG_E_TIMEDOUT, "the supervisor did not answer within %lld ms",
                               (long long)timeout_ms);
        if (q->failed) {
                if (err)
                        *err = q->err;
                return q->err.code;
        }
        return 0;
}

int client_request(struct cg_client *c, uint16_t type, uint64_t session, json_t *body, int64_t timeout_ms,
                   struct cg_session *opening, char **ret_body, struct cg_err *err)
{
        struct cg_out out = { .type = type, .session = session };
        struct request q = { .opening = opening };
        struct timespec end;
        int r;

        abs_deadline(&end, timeout_ms);
        pthread_mutex_lock(&c->lock);
        out.id = q.id = ++c->next_request;
        q.next = c->requests;
        c->requests = &q;
        r = client_send(c, &out, body, err);
        while (r == 0 && !q.done && !c->broken)
                if (pthread_cond_timedwait(&c->cond, &c->lock, &end) == ETIMEDOUT)
                        break;
        unlink_request(c, &q);
        if (r == 0)
                r = request_outcome(c, &q, timeout_ms, err);
        pthread_mutex_unlock(&c->lock);
        if (r == 0 && ret_body)
                *ret_body = q.body;
        else
                free(q.body);
        return r;
}

/*
 * ------------------------------------------------------------------ receiving: the library's
 * thread
 */

static void give_event(struct cg_client *c, uint64_t number, struct cg_event *e)
{
        struct cg_session *s;

        if (!e)
                return;
        for (s = c->sessions; s && s->number != number; s = s->next)
                ;
        if (s)
                session_push(s, e);
        else
                cg_event_free(e);
}

static void answer_request(struct cg_client *c, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct request *q;
        const char *text;

        for (q = c->requests; q && q->id != m->id; q = q->next)
                ;
        if (!q && m->type == CG_HOST_FAILED && m->session && m->id < FIRST_REQUEST)
                give_event(
                        c, m->session,
                        event_text_new(CG_EVENT_SESSION_CLOSED, "the session had ended when the cell came"));
        /* nobody waits for it any more: it must not stay open */
        if (!q && m->type == CG_HOST_SESSION_OPENED) {
                struct cg_out end = { .type = CG_HOST_SESSION_END,
                                      .session = m->session,
                                      .id = ++c->next_request };

                client_send(c, &end, NULL, NULL);
        }
        if (!q || q->done)
                return; /* its thread gave up waiting */
        if (m->type == CG_HOST_SESSION_OPENED && q->opening) {
                q->opening->number = m->session;
                q->opening->next = c->sessions;
                c->sessions = q->opening;
        }
        if (m->type == CG_HOST_FAILED) {
                q->failed = true;
                if (cg_msg_json(m, &body, &q->err) == 0) {
                        int code = (int)json_integer_value(json_object_get(body, "code"));

                        cg_fail(&q->err, code < 0 ? code : CG_E_PROTO, "%s",
                                json_string_value(json_object_get(body, "message"))
                                        ?: "the supervisor gave no reason");
                        q->err.sys_errno = (int)json_integer_value(json_object_get(body, "errno"));
                }
        } else {
                text = cg_msg_body(m, &q->len);
                q->body = calloc(1, q->len + 1);
                if (q->body)
                        memcpy(q->body, text, q->len);
                q->failed = !q->body;
                if (q->failed)
                        cg_fail(&q->err, CG_E_NOMEM, "answer");
        }
        q->done = true;
        pthread_cond_broadcast(&c->cond);
}

static bool is_answer(uint16_t type)
{
        return type == CG_HOST_WELCOME || type == CG_HOST_SESSION_OPENED || type == CG_HOST_SERVERS_ADDED ||
               type == CG_HOST_SESSIONS || type == CG_HOST_DONE || type == CG_HOST_FAILED;
}

static void break_connection(struct cg_client *c, int code, const char *why)
{
        if (c->broken)
                return;
        c->broken = true;
        cg_fail(&c->broken_err, code, "%s", why);
        session_close_all(c, why);
        pthread_cond_broadcast(&c->cond);
}

/* The lock is held but for the making of events, which may be large. */
static void on_message(struct cg_zconn *conn, struct cg_msg *m)
{
        struct cg_client *c = (struct cg_client *)(void *)((char *)conn - offsetof(struct cg_client, conn));
        struct cg_event *e;

        if (c->read_err.code)
                return;
        if (is_answer(m->type)) {
                answer_request(c, m);
                return;
        }
        pthread_mutex_unlock(&c->lock);
        e = event_from_message(m);
        pthread_mutex_lock(&c->lock);
        if (e)
                give_event(c, m->session, e);
        else
                cg_fail(&c->read_err, CG_E_PROTO, "%s could not be read", m->spec->name);
}

static void on_end(struct cg_zconn *conn, const struct cg_err *err)
{
        struct cg_client *c = (struct cg_client *)(void *)((char *)conn - offsetof(struct cg_client, conn));

        if (!c->read_err.code)
                c->read_err = *err;
}

static void read_socket(struct cg_client *c)
{
        do
                cg_zconn_read(&c->conn, BURST, true);
        while (c->conn.again && !c->conn.ended && !c->read_err.code);
        cg_zconn_opened(&c->conn);
        /*
         * The end alone says nothing: the lifeline tells whether the supervisor has ended, and the
         * log why.
         */
        if (c->read_err.code && c->read_err.code != CG_E_CLOSED)
                break_connection(c, c->read_err.code, c->read_err.msg);
}

static bool lifeline_ended(int fd)
{
        char b[64];
        ssize_t n = recv(fd, b, sizeof(b), MSG_DONTWAIT);

        return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void *client_thread(void *arg)
{
        struct cg_client *c = arg;

        pthread_mutex_lock(&c->lock);
        while (!c->stop) {
                struct pollfd p[] = { { .fd = c->conn.ended ? -1 : c->conn.fd,
                                        .events = cg_zconn_wants_out(&c->conn) ? POLLIN | POLLOUT : POLLIN },
                                      { .fd = c->wake_fd, .events = POLLIN },
                                      { .fd = c->broken ? -1 : c->life_fd, .events = POLLIN } };
                uint64_t n;

                pthread_mutex_unlock(&c->lock);
                if (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno != EINTR)
                        abort(); /* bad arguments only: our own fault */
                if (p[1].revents && read(c->wake_fd, &n, sizeof(n)) < 0)
                        n = 0;
                pthread_mutex_lock(&c->lock);
                if (p[0].revents & POLLOUT)
                        cg_zconn_flush(&c->conn);
                if (!c->broken && p[0].revents & ~POLLOUT)
                        read_socket(c);
                if (p[2].revents && lifeline_ended(c->life_fd)) {
                        read_socket(c); /* what it said last */
                        break_connection(c, CG_E_CLOSED, "the supervisor has ended; its log may say why");
                }
        }
        pthread_mutex_unlock(&c->lock);
        return NULL;
}

/* ------------------------------------------------------------------ opening */

static int read_ready(int fd, struct cg_client *c, int64_t timeout_ms, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        size_t len;
        int r = cg_read_fd_within(fd, "supervisor's answer", 65536, timeout_ms, &text, &len, err);

        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "the supervisor did not start within %lld ms",
                               (long long)timeout_ms);
        if (r < 0)
                return -1;
        if (!len)
                return cg_fail(err, CG_E_CLOSED,
                               "the supervisor ended while it started; its log (standard error) says why");
        if (cg_json_object(text, len, "supervisor's answer", &o, err) < 0)
                return CG_E_PROTO;
        if (json_is_true(json_object_get(o, "ready")))
                return 0;
        return cg_fail(err, (int)json_integer_value(json_object_get(o, "code")) ?: CG_E_SYS,
                       "the supervisor did not start: %s",
                       json_string_value(json_object_get(o, "error")) ?: "no reason given");
}

/*
 * Starts a supervisor for c->dir and waits until it serves. @extra: further arguments,
 * NULL-terminated.
 */
static int start_supervisor(struct cg_client *c, const struct cg_client_options *o, int log_fd,
                            const char *const *extra, struct cg_err *err)
{
        const char *path = o->supervisor ? o->supervisor : CG_LIBEXECDIR "/cellgate-supervisor";
        char level[16], spares[16];
        const char *argv[20] = {
                "cellgate-supervisor", "--dir", c->dir, "--log-level", level, "--spares", spares
        };
        cg_auto_free char *env = NULL;
        cg_auto_fd int rd = -1, wr = -1;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { log_fd, 2 }, { -1, 3 } };
        struct cg_proc_spec spec = { .path = path,
                                     .argv = (char *const *)(uintptr_t)argv,
                                     .envp = environ,
                                     .fds = fds,
                                     .n_fds = CG_ARRAY_LEN(fds),
                                     .new_session = true };
        size_t n = 7;
        int p[2];

        snprintf(level, sizeof(level), "%d", o->log_level);
        snprintf(spares, sizeof(spares), "%d", o->no_spare ? 0 : o->spares > 0 ? o->spares : 1);
        while (*extra)
                argv[n++] = *extra++;
        if (o->kernel_env && cg_kernel_env_find(o->kernel_env, &env, err) < 0)
                return -1;
        if (env) {
                argv[n++] = "--kernel-env";
                argv[n++] = env;
        }
        if (o->preload) {
                argv[n++] = "--preload";
                argv[n++] = o->preload;
        }
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        rd = p[0];
        wr = p[1];
        fds[3].fd = wr;
        if (fcntl(fds[2].fd, F_GETFD) < 0)
                fds[2].fd = -1; /* a host without standard error */
        if (cg_proc_spawn(&spec, &c->proc, err) < 0)
                return cg_err_prefix(err, "cannot start the supervisor");
        close(cg_steal_fd(&wr));
        return read_ready(rd, c, c->timeout_ms, err);
}

static int start_private(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        static const char *const extra[] = { "--private", NULL };

        if (cg_make_runtime_dir("cellgate", c->dir, sizeof(c->dir), err) < 0)
                return -1;
        if (start_supervisor(c, o, o->log_fd > 0 ? o->log_fd : 2, extra, err) == 0)
                return 0;
        if (c->proc.pidfd < 0)
                cg_remove_tree(c->dir, NULL);
        return -1;
}

/* Whoever answers is told everything: it must be a supervisor of this user. */
static bool same_user(int fd)
{
        struct ucred cred;
        socklen_t len = sizeof(cred);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

static int get_token(struct cg_client *c, char token[33], struct cg_err *err)
{
        char path[160];
        size_t n = 0;
        int64_t end = cg_now_ms() + c->timeout_ms;

        snprintf(path, sizeof(path), "%s/life.sock", c->dir);
        if (cg_connect_unix(path, true, &c->life_fd, err) < 0)
                return cg_err_prefix(err, "no supervisor at %s", c->dir);
        if (!same_user(c->life_fd))
                return cg_fail(err, CG_E_INVAL, "the supervisor at %s is another user's", c->dir);
        while (n < 33) {
                char line[33];
                ssize_t got;

                if (cg_wait_fd(c->life_fd, POLLIN, end - cg_now_ms() > 0 ? end - cg_now_ms() : 0, err) != 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "the supervisor at %s does not answer", c->dir);
                got = recv(c->life_fd, line, sizeof(line) - n, MSG_DONTWAIT);
                if (got < 0 && (errno == EAGAIN || errno == EINTR))
                        continue;
                if (got <= 0)
                        return cg_fail(
                                err, CG_E_CLOSED,
                                "the supervisor at %s refused this process (it serves its own user only)",
                                c->dir);
                memcpy(token + n, line, (size_t)got);
                n += (size_t)got;
        }
        token[32] = '\0';
        return 0;
}

static int say_hello(struct cg_client *c, const char *token, struct cg_err *err)
{
        cg_auto_free char *body = NULL;
        cg_auto_json json_t *o = NULL;
        int r = client_request(c, CG_HOST_HELLO, 0, json_pack("{s:s}", "token", token), c->timeout_ms, NULL,
                               &body, err);

        if (r < 0)
                return r;
        return cg_json_object(body, strlen(body), "WELCOME", &o, err);
}

static int connect_supervisor(struct cg_client *c, const char *token, struct cg_err *err)
{
        static const struct cg_zconn_ops ops = { on_message, on_end };
        char path[160];
        int fd;

        snprintf(path, sizeof(path), "%s/host.sock", c->dir);
        /* What we send is bounded by the requests and cells themselves. */
        if (cg_connect_unix(path, true, &fd, err) < 0 ||
            cg_zconn_init(&c->conn, fd, &cg_wire_host, CG_ROLE_SUPERVISOR, SIZE_MAX, &ops, err) < 0)
                return -1;
        if (pthread_create(&c->thread, NULL, client_thread, c) != 0)
                return cg_fail(err, CG_E_SYS, "cannot start a thread");
        c->have_thread = true;
        return say_hello(c, token, err);
}

/*
 * ------------------------------------------------------------------ a supervisor that several
 * clients share
 */

static void drop_lifeline(struct cg_client *c)
{
        if (c->life_fd >= 0)
                close(cg_steal_fd(&c->life_fd));
}

/*
 * The folder above may be anybody's, such as /tmp: our files beside the address are ours, or we do
 * not use them.
 */
static int open_beside(const struct cg_client *c, const char *suffix, int *ret, struct cg_err *err)
{
        char path[160];
        struct stat st;
        cg_auto_fd int fd = -1;

        snprintf(path, sizeof(path), "%s%s", c->dir, suffix);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "%s", path);
        if (st.st_uid != geteuid() || !S_ISREG(st.st_mode) || st.st_nlink != 1)
                return cg_fail(err, CG_E_INVAL,
                               "%s is not a file of yours with one name; remove it, or use another address",
                               path);
        *ret = cg_steal_fd(&fd);
        return 0;
}

/*
 * A name that a supervisor makes in its folder: sockets host.sock, life.sock, brokerN, kN, tN, and
 * sessions' folders sN.
 */
static bool is_supervisors(const char *name)
{
        static const char *const beginnings[] = { "broker", "k", "t", "s" };

        if (strcmp(name, "host.sock") == 0 || strcmp(name, "life.sock") == 0)
                return true;
        for (size_t i = 0; i < CG_ARRAY_LEN(beginnings); i++) {
                size_t n = strlen(beginnings[i]);

                if (strncmp(name, beginnings[i], n) == 0 && name[n] &&
                    strspn(name + n, "0123456789") == strlen(name + n))
                        return true;
        }
        return false;
}

/*
 * What a supervisor left that was killed is removed. The address is the host's word: a folder with
 * anything else in it stays as it is.
 */
static int remove_leftovers(const char *dir, struct cg_err *err)
{
        struct stat st;
        struct dirent *e;
        DIR *d;

        if (lstat(dir, &st) < 0)
                return errno == ENOENT ? 0 : cg_fail_errno(err, "%s", dir);
        if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
                return cg_fail(err, CG_E_INVAL, "%s must be a folder of yours with mode 0700, or not exist",
                               dir);
        d = opendir(dir);
        if (!d)
                return cg_fail_errno(err, "%s", dir);
        while ((e = readdir(d))) {
                if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || is_supervisors(e->d_name))
                        continue;
                cg_fail(err, CG_E_INVAL,
                        "%s holds %.100s, which is no supervisor's: use an address that does not exist yet",
                        dir, e->d_name);
                closedir(d);
                return CG_E_INVAL;
        }
        closedir(d);
        return cg_remove_tree(dir, err);
}

static int start_shared(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        char linger[32];
        const char *const extra[] = { "--linger-ms", linger, "--detach", NULL };
        cg_auto_fd int log = -1;
        int r;

        snprintf(linger, sizeof(linger), "%lld",
                 (long long)(o->linger_ms > 0 ? o->linger_ms : DEFAULT_LINGER_MS));
        /*
         * Nobody listens there, and the lock is ours: what lies there was left by one that was
         * killed.
         */
        r = remove_leftovers(c->dir, err);
        if (r == 0 && o->log_fd <= 0)
                r = open_beside(c, ".log", &log, err);
        if (r == 0 && log >= 0 && ftruncate(log, 0) < 0)
                r = cg_fail_errno(err, "%s.log", c->dir);
        if (r == 0)
                r = start_supervisor(c, o, log >= 0 ? log : o->log_fd, extra, err);
        if (c->proc.pidfd >= 0) /* the one that was started has ended, or is about to */
                cg_proc_wait(&c->proc, c->timeout_ms, NULL, NULL);
        c->proc = CG_PROC_NONE;
        return r;
}

/*
 * Nobody listens there. One that is slow, or another user's, is there: its folder must not be taken
 * away.
 */
static bool is_absent(const struct cg_err *err)
{
        return err->code == CG_E_SYS && (err->sys_errno == ENOENT || err->sys_errno == ECONNREFUSED);
}

/* flock() knows no deadline, and whoever holds the lock may be a stopped process. */
static int lock_start(const struct cg_client *c, int fd, struct cg_err *err)
{
        int64_t end = cg_now_ms() + c->timeout_ms;

        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK && errno != EINTR)
                        return cg_fail_errno(err, "%s.lock", c->dir);
                if (cg_now_ms() >= end)
                        return cg_fail(
                                err, CG_E_TIMEDOUT,
                                "another process has held %s.lock for %lld ms: it is starting a supervisor "
                                "there, or hangs (`fuser` tells which it is)",
                                c->dir, (long long)c->timeout_ms);
                poll(NULL, 0, 20);
        }
        return 0;
}

static int give_err(struct cg_err *err, const struct cg_err *from)
{
        if (err)
                *err = *from;
        return from->code;
}

/*
 * Connects to the supervisor at c->dir; where there is none, starts one, unless somebody else is
 * doing so.
 */
static int find_or_start(struct cg_client *c, const struct cg_client_options *o, char token[33],
                         struct cg_err *err)
{
        cg_auto_fd int lock = -1;
        struct cg_err mine = { 0 };
        int r;

        if (get_token(c, token, &mine) == 0)
                return 0;
        drop_lifeline(c);
        if (!is_absent(&mine))
                return give_err(err, &mine);
        r = open_beside(c, ".lock", &lock, err);
        if (r == 0)
                r = lock_start(c, lock, err);
        if (r < 0 || get_token(c, token, &mine) == 0)
                return r;
        drop_lifeline(c);
        if (!is_absent(&mine))
                return give_err(err, &mine);
        r = start_shared(c, o, err);
        return r < 0 ? r : get_token(c, token, err);
}

/* Nobody else shall find a private supervisor: its sockets have served their purpose. */
static void hide_sockets(struct cg_client *c)
{
        char path[160];

        snprintf(path, sizeof(path), "%s/host.sock", c->dir);
        unlink(path);
        snprintf(path, sizeof(path), "%s/life.sock", c->dir);
        unlink(path);
}

static struct cg_client *client_new(void)
{
        struct cg_client *c = calloc(1, sizeof(*c));
        pthread_condattr_t attr;

        if (!c)
                return NULL;
        c->proc = CG_PROC_NONE;
        c->life_fd = -1;
        c->next_request = FIRST_REQUEST;
        pthread_mutex_init(&c->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&c->cond, &attr);
        pthread_condattr_destroy(&attr);
        c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        c->conn = CG_ZCONN_NONE;
        return c;
}

/* Signals of the host belong to the host's own threads. */
static int open_with_signals_blocked(struct cg_client *c, const struct cg_client_options *o,
                                     struct cg_err *err)
{
        char token[33];
        sigset_t all, old;
        int r = 0;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        if (!o->address)
                r = start_private(c, o, err);
        else if (snprintf(c->dir, sizeof(c->dir), "%s", o->address) >= (int)sizeof(c->dir) - 16)
                r = cg_fail(err, CG_E_LIMIT, "address is too long");
        if (r == 0)
                r = o->address && o->start ? find_or_start(c, o, token, err) : get_token(c, token, err);
        if (r == 0)
                r = connect_supervisor(c, token, err);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return r;
}

static int open_client(const struct cg_client_options *o, struct cg_client **ret, struct cg_err *err)
{
        struct cg_client *c = client_new();
        int r;

        if (!c || c->wake_fd < 0) {
                cg_client_close(c);
                return cg_fail(err, CG_E_NOMEM, "client");
        }
        c->shared = o->address;
        c->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
        r = open_with_signals_blocked(c, o, err);
        if (r < 0) {
                cg_client_close(c);
                return err && err->code ? err->code : r;
        }
        if (!o->address)
                hide_sockets(c);
        *ret = c;
        return 0;
}

CG_API int cg_client_open(const struct cg_client_options *opts, struct cg_client **ret, struct cg_err *err)
{
        struct cg_client_options o = { 0 };
        int r, attempts = 3;

        if (opts && (opts->size < sizeof(size_t) || opts->size > sizeof(o)))
                return cg_fail(err, CG_E_INVAL, "set opts->size to sizeof(struct cg_client_options)");
        if (opts)
                memcpy(&o, opts, opts->size);
        do
                r = open_client(&o, ret, err);
        /* it ended, having waited long enough, as we came */
        while (r == CG_E_CLOSED && o.address && o.start && --attempts);
        return r;
}

CG_API struct cg_client *cg_client_close(struct cg_client *c)
{
        if (!c)
                return NULL;
        if (c->have_thread) {
                pthread_mutex_lock(&c->lock);
                break_connection(c, CG_E_CLOSED, "the client was closed");
                c->stop = true;
                pthread_mutex_unlock(&c->lock);
                wake(c);
                pthread_join(c->thread, NULL);
        }
        if (c->life_fd >= 0)
                close(c->life_fd);
        if (c->proc.pidfd >= 0) {
                if (cg_proc_wait(&c->proc, CLOSE_MS, NULL, NULL) != 0)
                        cg_proc_end(&c->proc, true, 0);
                cg_remove_tree(c->dir, NULL); /* it has done so already, unless it was killed */
        }
        cg_zconn_fini(&c->conn);
        if (c->wake_fd >= 0)
                close(c->wake_fd);
        pthread_cond_destroy(&c->cond);
        pthread_mutex_destroy(&c->lock);
        for (struct cg_session *s = c->sessions; s; s = s->next)
                s->client = NULL;
        free(c);
        return NULL;
}
