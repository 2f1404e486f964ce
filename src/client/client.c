/* libcellgate: starting a supervisor, or finding one, and opening and closing a client. */
#include "client/internal.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "base/batch_job.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "config.h"

#define DEFAULT_TIMEOUT_MS 30000
#define DEFAULT_LINGER_MS  600000
/* In a batch job: batch systems may overlook detached processes when they end it. */
#define JOB_LINGER_MS 5000
/* A private supervisor ends its MCP servers in order first, which may take 6 s. */
#define CLOSE_MS 10000
/* A shared supervisor that listens answers at once or hangs; then a private one is started. */
#define SHARED_ANSWER_MS 5000
/* The most bytes of a report about the start. */
#define READY_MAX ((size_t)2 << 20)

CG_API const char *cg_version(void)
{
        return CG_VERSION;
}

CG_API void cg_free(void *p)
{
        free(p);
}

/* ------------------------------------------------------------------ opening */

/* *node: what a node's relay says of it. */
static int read_ready(int fd, int64_t timeout_ms, json_t **node, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        size_t len;
        int r = cg_read_fd_within(fd, "supervisor's answer", READY_MAX, timeout_ms, &text, &len, err);

        if (r == CG_TIMEOUT && node)
                return cg_fail(err, CG_E_TIMEDOUT, "no relay of cellgate answered within %lld ms",
                               (long long)timeout_ms);
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
        if (node)
                *node = json_incref(json_object_get(o, "node"));
        if (json_is_true(json_object_get(o, "ready")))
                return 0;
        return cg_fail(err, (int)json_integer_value(json_object_get(o, "code")) ?: CG_E_SYS,
                       "the %s did not start: %s", node ? "connection" : "supervisor",
                       json_string_value(json_object_get(o, "error")) ?: "no reason given");
}

static int n_spares(const struct cg_client_options *o)
{
        return o->no_spare ? 0 : CG_MAX(o->spares, 1);
}

/* Starts a supervisor for c->dir and waits until it serves. @extra: arguments, NULL-terminated. */
static int start_supervisor(struct cg_client *c, const struct cg_client_options *o, int log_fd,
                            const char *const *extra, struct cg_err *err)
{
        cg_auto_free char **few = o->share ? cg_shared_environ() : NULL;
        const char *path = o->supervisor ?: CG_INSTALLED(CG_LIBEXECDIR "/cellgate-supervisor");
        char level[16], spares[16];
        const char *argv[24] = {
                "cellgate-supervisor", "--dir", c->dir, "--log-level", level, "--spares", spares
        };
        cg_auto_free char *env = NULL;
        cg_auto_fd int theirs = -1;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { log_fd, 2 }, { -1, 3 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(path, argv, few ?: environ, fds, .new_session = true);
        size_t n = 7;
        int p[2];

        if (o->share && !few)
                return cg_fail(err, CG_E_NOMEM, "environment");
        snprintf(level, sizeof(level), "%d", o->log_level);
        snprintf(spares, sizeof(spares), "%d", n_spares(o));
        while (*extra)
                argv[n++] = *extra++;
        if (o->kernel_env && cg_kernel_env_find(o->kernel_env, &env, err) < 0)
                return -1;
        const char *const given[][2] = { { "--kernel-env", env },
                                         { "--audit-key", o->audit_key },
                                         { "--audit-head", o->audit_head },
                                         { "--preload", o->preload } };

        for (size_t i = 0; i < CG_ARRAY_LEN(given); i++) {
                if (!given[i][1])
                        continue;
                argv[n++] = given[i][0];
                argv[n++] = given[i][1];
        }
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
                return cg_fail_errno(err, "socketpair");
        c->start_fd = p[0];
        theirs = p[1];
        fds[3].fd = theirs;
        if (fcntl(fds[2].fd, F_GETFD) < 0)
                fds[2].fd = -1; /* a host without standard error */
        if (cg_proc_spawn(&spec, &c->proc, err) < 0)
                return cg_err_prefix(err, "cannot start the supervisor");
        close(cg_steal_fd(&theirs));
        return read_ready(c->start_fd, c->timeout_ms, NULL, err);
}

static int read_token(struct cg_client *c, char token[33], struct cg_err *err)
{
        const char *where = c->node ? "the node" : c->dir;
        int64_t end = cg_now_ms() + c->answer_ms;
        size_t n = 0;

        while (n < 33) {
                char line[33];
                ssize_t got;

                if (cg_wait_fd(c->life_fd, POLLIN, CG_MAX(end - cg_now_ms(), 0), err) != 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "the supervisor at %s does not answer", where);
                got = recv(c->life_fd, line, sizeof(line) - n, MSG_DONTWAIT);
                if (got < 0 && (errno == EAGAIN || errno == EINTR))
                        continue;
                if (got <= 0)
                        return cg_fail(
                                err, CG_E_CLOSED,
                                "the supervisor at %s refused this process (it serves its own user only, and if it is shared, only processes "
                                "with its limits and rights)",
                                where);
                memcpy(token + n, line, (size_t)got);
                n += (size_t)got;
        }
        token[32] = '\0';
        return 0;
}

static int get_token(struct cg_client *c, char token[33], struct cg_err *err)
{
        char path[160];

        snprintf(path, sizeof(path), "%s/life.sock", c->dir);
        /* The supervisor receives code and secrets: it must run as this user. */
        if (cg_connect_own(path, c->answer_ms, &c->life_fd, err) < 0)
                return cg_err_prefix(err, "no supervisor at %s", c->dir);
        return read_token(c, token, err);
}

static int connect_supervisor(struct cg_client *c, const struct cg_client_options *opts, const char *token,
                              struct cg_err *err)
{
        cg_auto_free char *body = NULL;
        cg_auto_json json_t *o = NULL;
        char path[160];
        int fd, r;

        if (strlen(opts->place ?: "") > 100 || strlen(opts->approver ?: "") > 100)
                return cg_fail(err, CG_E_INVAL, "place and approver have at most 100 bytes");
        snprintf(path, sizeof(path), "%s/host.sock", c->dir);
        fd = cg_steal_fd(&c->node_fd);
        if ((fd < 0 && cg_connect_own(path, c->answer_ms, &fd, err) < 0) ||
            cg_client_connected(c, fd, err) < 0)
                return -1;
        r = cg_client_request(c, CG_HOST_HELLO, 0,
                              json_pack("{s:s, s:s*, s:s*}", "token", token, "place", opts->place, "approver",
                                        opts->approver),
                              c->answer_ms, NULL, &body, err);
        if (r >= 0)
                r = cg_json_object(body, strlen(body), "WELCOME", &o, err);
        if (r == 0 && c->node && json_object_get(o, "busy"))
                r = cg_fail(err, CG_E_BUSY, "%.500s", cg_json_text_of(o, "busy"));
        return r;
}

/*
 * ------------------------------------------------------------------ a supervisor that several
 * clients share
 */

/*
 * The parent folder may be writable by others, such as /tmp: files next to the address are used
 * only when this user owns them.
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
 * A name that a supervisor makes in its folder: sockets host.sock, life.sock, brokerN, kN, tN, fN,
 * and folders of sessions sN, of kernels tmpN and of its zygote preload-X.
 */
static bool is_supervisors(const char *name)
{
        static const char *const beginnings[] = { "broker", "k", "t", "f", "s", "tmp" };

        if (strcmp(name, "host.sock") == 0 || strcmp(name, "life.sock") == 0 ||
            strncmp(name, "preload-", strlen("preload-")) == 0)
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
 * Removes the files of a supervisor that was killed. The host chooses the address: a folder with
 * any other file in it is left as it is.
 */
static int remove_leftovers(const char *dir, struct cg_err *err)
{
        cg_auto_dir DIR *d = NULL;
        struct stat st;
        struct dirent *e;

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
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s holds %.100s, which is not of a supervisor: use an address that does not exist yet",
                        dir, e->d_name);
        }
        return cg_remove_tree(dir, err);
}

static int start_shared(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        char linger[32];
        const char *const extra[] = { "--linger-ms", linger, "--detach", o->share ? "--alike" : NULL, NULL };
        cg_auto_fd int log = -1;
        int r;

        snprintf(linger, sizeof(linger), "%lld", (long long)cg_ms_or(o->linger_ms, DEFAULT_LINGER_MS));
        /*
         * Nothing listens at the address and we hold the lock: existing files are those of a
         * supervisor that was killed.
         */
        r = remove_leftovers(c->dir, err);
        if (r < 0)
                return r;
        if (o->log_fd <= 0) {
                r = open_beside(c, ".log", &log, err);
                if (r < 0)
                        return r;
                /* Appending: the supervisor empties a log that has become too long. */
                if (ftruncate(log, 0) < 0 || fcntl(log, F_SETFL, O_APPEND) < 0)
                        return cg_fail_errno(err, "%s.log", c->dir);
        }
        r = start_supervisor(c, o, log >= 0 ? log : o->log_fd, extra, err);
        if (c->proc.pidfd >= 0) /* the process that was started has detached the supervisor, and ends */
                cg_proc_wait(&c->proc, c->timeout_ms, NULL, NULL);
        c->proc = CG_PROC_NONE;
        return r;
}

/*
 * True when nobody listens at the address. A slow supervisor, or one of another user, is not
 * absent: its folder must not be removed.
 */
static bool is_absent(const struct cg_err *err)
{
        return err->code == CG_E_SYS && (err->sys_errno == ENOENT || err->sys_errno == ECONNREFUSED);
}

static int give_err(struct cg_err *err, const struct cg_err *from)
{
        if (err)
                *err = *from;
        return from->code;
}

/* Connects to the supervisor at c->dir, or starts one unless somebody else is doing so. */
static int find_or_start(struct cg_client *c, const struct cg_client_options *o, char token[33],
                         struct cg_err *err)
{
        cg_auto_fd int lock = -1;
        struct cg_err mine = { 0 };
        int r;

        if (get_token(c, token, &mine) == 0)
                return 0;
        cg_closep_(&c->life_fd);
        if (!is_absent(&mine))
                return give_err(err, &mine);
        r = open_beside(c, ".lock", &lock, err);
        if (r < 0)
                return r;
        r = cg_lock_fd(lock, c->timeout_ms, NULL, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT,
                               "another process has held %s.lock for %lld ms: it is starting a supervisor "
                               "there, or hangs (`fuser` shows the process)",
                               c->dir, (long long)c->timeout_ms);
        if (r < 0 || get_token(c, token, &mine) == 0)
                return r;
        cg_closep_(&c->life_fd);
        if (!is_absent(&mine))
                return give_err(err, &mine);
        r = start_shared(c, o, err);
        if (r < 0)
                return r;
        return get_token(c, token, err);
}

/* Starts a supervisor, or finds the one at the given address, and connects. */
static int find_and_connect(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        static const char *const private[] = { "--private", NULL };
        char token[33];
        int r;

        if (o->connect) {
                if ((r = cg_tools_new(c, o, err)) < 0 || (r = cg_remote_start(c, o, err)) < 0 ||
                    (r = read_ready(c->start_fd, c->timeout_ms, &c->node, err)) < 0 ||
                    (r = read_token(c, token, err)) < 0)
                        return r;
                return connect_supervisor(c, o, token, err);
        }
        if (o->address) {
                if (snprintf(c->dir, sizeof(c->dir), "%s", o->address) >= (int)sizeof(c->dir) - 16)
                        return cg_fail(err, CG_E_LIMIT, "address is too long");
        } else if (cg_make_runtime_dir("cellgate", c->dir, sizeof(c->dir), err) < 0) {
                return -1;
        } else if (start_supervisor(c, o, o->log_fd > 0 ? o->log_fd : 2, private, err) < 0) {
                if (c->proc.pidfd < 0)
                        cg_remove_tree(c->dir, NULL);
                return -1;
        }
        if (o->address && o->start)
                r = find_or_start(c, o, token, err);
        else
                r = get_token(c, token, err);
        cg_closep_(&c->start_fd);
        if (r < 0)
                return r;
        return connect_supervisor(c, o, token, err);
}

static int open_client(const struct cg_client_options *o, struct cg_client **ret, struct cg_err *err)
{
        struct cg_client *c = calloc(1, sizeof(*c));
        pthread_condattr_t attr;
        sigset_t all, old;
        char path[160];
        int r;

        if (!c)
                return cg_fail(err, CG_E_NOMEM, "client");
        c->proc = CG_PROC_NONE;
        c->life_fd = c->start_fd = c->node_fd = c->approvals_fd = c->events_fd = -1;
        c->next_request = CG_FIRST_REQUEST;
        pthread_mutex_init(&c->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&c->cond, &attr);
        pthread_condattr_destroy(&attr);
        pthread_cond_init(&c->reader.done, NULL);
        c->reader.epoll = epoll_create1(EPOLL_CLOEXEC);
        c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        c->conn = CG_ZCONN_NONE;
        c->shared = o->address;
        c->timeout_ms = cg_ms_or(o->timeout_ms, DEFAULT_TIMEOUT_MS);
        c->answer_ms = o->share ? CG_MIN(c->timeout_ms, SHARED_ANSWER_MS) : c->timeout_ms;
        if (c->wake_fd < 0 || c->reader.epoll < 0) {
                cg_client_close(c);
                return cg_fail(err, CG_E_NOMEM, "client");
        }

        /* Signals of the host belong to the host's own threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        r = find_and_connect(c, o, err);
        cg_closep_(&c->start_fd);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (r < 0) {
                cg_client_close(c);
                return err && err->code ? err->code : r;
        }

        /* A private supervisor must accept no other clients: its sockets are removed now. */
        if (!o->address && !o->connect) {
                snprintf(path, sizeof(path), "%s/host.sock", c->dir);
                unlink(path);
                snprintf(path, sizeof(path), "%s/life.sock", c->dir);
                unlink(path);
        }
        *ret = c;
        return 0;
}

/* Tries again if the supervisor ended while we connected, its linger time being over. */
static int open_at(const struct cg_client_options *o, struct cg_client **ret, struct cg_err *err)
{
        int r, attempts = 3;

        if (o->connect)
                return cg_remote_open(o, open_client, ret, err);
        do
                r = open_client(o, ret, err);
        while (r == CG_E_CLOSED && o->address && o->start && --attempts);
        return r;
}

CG_API int cg_client_open(const struct cg_client_options *opts, struct cg_client **ret, struct cg_err *err)
{
        struct cg_client_options o = { 0 };
        struct cg_err why = { 0 };
        char address[128];
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_client_options", err) < 0)
                return CG_E_INVAL;
        if (!o.share || o.address) {
                o.share = 0;
                return open_at(&o, ret, err);
        }

        if (o.log_level < 1) /* for all clients the same, since warnings are of use to some */
                o.log_level = 1;
        o.spares = n_spares(&o);
        if (o.linger_ms <= 0)
                o.linger_ms = cg_in_batch_job() ? JOB_LINGER_MS : DEFAULT_LINGER_MS;
        if (cg_shared_address(&o, address, sizeof(address), &why) == 0) {
                o.address = address;
                o.start = 1;
                if (open_at(&o, ret, &why) == 0) {
                        (*ret)->found = true;
                        return 0;
                }
        }
        if (opts) /* as the host has given them */
                memcpy(&o, opts, opts->size);
        o.share = 0;
        r = open_at(&o, ret, err);
        if (r < 0)
                return r;
        (*ret)->why_private = strdup(why.msg);
        return 0;
}

CG_API const char *cg_client_why_private(const struct cg_client *c)
{
        return c->why_private;
}

CG_API int cg_client_status(struct cg_client *c, char **ret, struct cg_err *err)
{
        return cg_client_request(c, CG_HOST_STATUS, 0, NULL, c->timeout_ms, NULL, ret, err);
}

CG_API int cg_client_stop(struct cg_client *c, int force, struct cg_err *err)
{
        return cg_client_request(c, CG_HOST_STOP, 0, json_pack("{s:b}", "force", force), c->timeout_ms, NULL,
                                 NULL, err);
}

CG_API struct cg_client *cg_client_close(struct cg_client *c)
{
        if (!c)
                return NULL;
        if (c->have_thread) {
                pthread_mutex_lock(&c->lock);
                cg_client_break(c, CG_E_CLOSED, "the client was closed");
                c->stop = true;
                pthread_mutex_unlock(&c->lock);
                cg_client_wake(c);
                pthread_join(c->thread, NULL);
        }
        cg_tools_free(c);
        cg_closep_(&c->life_fd);
        if (c->proc.pidfd >= 0) {
                if (cg_proc_wait(&c->proc, CLOSE_MS, NULL, NULL) != 0)
                        cg_proc_end(&c->proc, true, 0);
                if (c->dir[0]) /* the supervisor removes it itself unless it was killed */
                        cg_remove_tree(c->dir, NULL);
        }
        cg_zconn_fini(&c->conn);
        cg_closep_(&c->wake_fd);
        cg_closep_(&c->reader.epoll);
        cg_closep_(&c->approvals_fd);
        cg_closep_(&c->events_fd);
        pthread_cond_destroy(&c->reader.done);
        pthread_cond_destroy(&c->cond);
        pthread_mutex_destroy(&c->lock);
        for (struct cg_session *s = c->sessions; s; s = s->next)
                s->client = NULL;
        cg_closep_(&c->node_fd);
        json_decref(c->node);
        free(c->why_private);
        free(c);
        return NULL;
}
