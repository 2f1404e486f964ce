/*
 * cellgate-relay: one side of a connection to a supervisor on another machine. See relay.h.
 *
 * `cellgate-relay`, which is `cellgate relay`: the node's side. The link is standard input and
 * output. Starts `cellgate-relay keep` and lends it these streams, or lends them to one that lost
 * its own; it ends when they are given back. In a job of a batch system, or where nobody is to wait
 * for another link, it is the relay itself.
 * `cellgate-relay keep`: the node's side, which outlives a link. Descriptors 0 to 2 are the
 * first link's. 3 is a socket of the process that lends them, which sends the host's line. Starts a
 * supervisor that ends with this process, or uses that of the node (`cellgate node`) whose folder
 * CELLGATE_NODE names.
 * `cellgate-relay host OPTIONS COMMAND...`, started by libcellgate: descriptors 0 and 1 are the
 * library's ends of lifeline and host wire, 2 the log, 3 gets {"ready": true, "node": {...}} or
 * {"error", "code"}. The link is the standard input and output of COMMAND.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "base/batch_job.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/path.h"
#include "base/text.h"
#include "base/user_env.h"
#include "base/wire.h"
#include "config.h"
#include "relay/relay.h"

/* For the host's line: it is sent when COMMAND has started. */
#define LINE_MS 60000
/* The supervisor ends so long after its relay. */
#define LINGER_MS 1
/* After a loss: for another link; between attempts, which begin anew after a link that held. */
#define DETACH_MS    30000
#define RETRY_MS     100
#define RETRY_MAX_MS 2000
#define HELD_MS      2000
/* Limit of one attempt, whose COMMAND may hang. */
#define ATTEMPT_MS 10000
/* The host chooses how long a node keeps its sessions, which are slots of a node. */
#define DETACH_MAX_MS 3600000
/* The same once the supervisor has ended: the host may notice the loss that much later. */
#define ENDED_MS (CG_LINK_LOST_MS + 5000)
/* For a process of this user that brings a link, and for the keeper of one that has ended. */
#define LEND_MS 1000
/* For COMMAND to end, once its input has. */
#define COMMAND_MS 10000
/* Descriptors of `host`. */
enum { LIFE_FD, WIRE_FD, LOG_FD, READY_FD };
/* And of `keep`. */
enum { LENT_FD = 3 };
#define TOKEN 32u
/* Characters and length of a link's name. */
#define LETTERS        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
#define NAME_MAX_BYTES ((size_t)16)

static json_t *versions(void)
{
        return json_pack("{s:i, s:i, s:s}", "relay", CG_LINK_VERSION, "wire", CG_WIRE_VERSION, "version",
                         CG_VERSION);
}

static int check_versions(const json_t *o, const char *here, const char *there, struct cg_err *err)
{
        json_int_t relay = json_integer_value(json_object_get(o, "relay")),
                   wire = json_integer_value(json_object_get(o, "wire"));

        if (relay == CG_LINK_VERSION && wire == CG_WIRE_VERSION)
                return 0;
        return cg_fail(err, CG_E_UNSUPPORTED,
                       "%s has cellgate " CG_VERSION " (wire %d, relay %d), and %s %.40s (wire %lld, relay "
                       "%lld): install the same version on both",
                       here, CG_WIRE_VERSION, CG_LINK_VERSION, there, cg_json_text_of(o, "version"),
                       (long long)wire, (long long)relay);
}

/* ------------------------------------------------------------------ beside the supervisor */

static int connect_in(const char *dir, const char *name, int *ret, struct cg_err *err)
{
        char path[160];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        return cg_connect_own(path, 5000, ret, err);
}

/* The folder of `cellgate node`; NULL: the supervisor is not one of a node. */
static const char *node_dir(void)
{
        return cg_text_or(getenv("CELLGATE_NODE"), NULL);
}

/* Connects to the supervisor of a node, which is this user's. */
static int join(const char *dir, const json_t *o, int *life, int *wire, struct cg_err *err)
{
        if (json_is_string(json_object_get(o, "kernel_env")) || json_is_string(json_object_get(o, "preload")))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "the environment and the preloaded modules of kernels are those of `cellgate "
                               "node`");
        if (strlen(dir) > 80)
                return cg_fail(err, CG_E_LIMIT, "CELLGATE_NODE is longer than 80 bytes");
        if (connect_in(dir, "life.sock", life, err) < 0 || connect_in(dir, "host.sock", wire, err) < 0)
                return cg_err_prefix(err, "no node at CELLGATE_NODE");
        return 0;
}

/* Starts a supervisor for the host's options and connects to it. @dir: gets its folder. */
static int start(const json_t *o, int log, int *life, int *wire, char dir[128], struct cg_err *err)
{
        struct cg_client_options co = {
                .size = sizeof(co), .start = 1, .linger_ms = LINGER_MS, .log_fd = log
        };
        struct cg_client *client = NULL;
        char lock[160];
        int64_t level, spares;
        bool no_spare;
        int r;

        if ((r = cg_json_str(o, "kernel_env", NULL, &co.kernel_env, err)) < 0 ||
            (r = cg_json_str(o, "preload", NULL, &co.preload, err)) < 0 ||
            (r = cg_json_int(o, "log_level", 0, &level, err)) < 0 ||
            (r = cg_json_int(o, "spares", 0, &spares, err)) < 0 ||
            (r = cg_json_bool(o, "no_spare", false, &no_spare, err)) < 0 ||
            (r = cg_make_runtime_dir("cellgate", dir, 128, err)) < 0)
                return r;
        co.address = dir;
        co.log_level = (int)CG_MIN(level, 3);
        co.spares = (int)CG_MIN(spares, INT16_MAX);
        co.no_spare = no_spare;
        r = cg_client_open(&co, &client, err);
        if (r == 0)
                r = connect_in(dir, "life.sock", life, err);
        if (r == 0)
                r = connect_in(dir, "host.sock", wire, err);
        cg_client_close(client);
        snprintf(lock, sizeof(lock), "%s.lock", dir);
        unlink(lock);
        return r;
}

/* The node's side, which waits for another link where @listener is one. */
struct node_side {
        struct cg_link link; /* first */
        int lender;          /* the connection to the process whose streams the link has */
        char token[TOKEN + 1], name[NAME_MAX_BYTES + 1], path[160];
        uint64_t attempt; /* of the host: an older one comes too late */
        int64_t detach_ms;
};

/* Message of a process that lends its streams. */
struct loan {
        char token[TOKEN];
        uint64_t received, attempt;
};

static void node_fini(struct node_side *n)
{
        cg_link_fini(&n->link);
        if (n->link.listener >= 0)
                unlink(n->path);
        cg_closep_(&n->link.listener);
        cg_closep_(&n->lender);
}

static void fail_line(const struct cg_link *r, int code, const char *why)
{
        json_t *failed = versions();

        json_object_set_new(failed, "code", json_integer(code));
        json_object_set_new(failed, "error", json_string(why));
        cg_link_send_line(r, failed, NULL);
}

static int answer(const struct node_side *n, const char *cwd, const json_t *user_env, struct cg_err *err)
{
        json_t *o = versions();

        json_object_set_new(o, "cwd", json_string(cwd ?: "/"));
        json_object_set(o, "user_env", cg_json_unconst(user_env));
        if (n->link.renew)
                json_object_set_new(o, "resume", json_pack("{s:s, s:s}", "link", n->name, "token", n->token));
        return cg_link_send_line(&n->link, o, err);
}

/* Takes one connection of @n->link.listener. CG_TIMEOUT: it brings no link. */
static int take_loan(struct node_side *n, struct cg_err *err)
{
        const struct timeval limit = { .tv_sec = LEND_MS / 1000 };
        struct cg_link t = { .in = -1, .out = -1 };
        int fds[3] = { -1, -1, -1 };
        size_t n_fds = CG_ARRAY_LEN(fds);
        cg_auto_fd int lender = accept4(n->link.listener, NULL, NULL, SOCK_CLOEXEC);
        struct loan loan;
        json_t *o;

        if (lender < 0)
                return CG_TIMEOUT;
        setsockopt(lender, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        if (cg_recv_fds(lender, &loan, sizeof(loan), fds, &n_fds, err) == sizeof(loan) && n_fds == 3 &&
            memcmp(loan.token, n->token, TOKEN) == 0 && loan.attempt > n->attempt) {
                t.out = fds[1];
                n->attempt = loan.attempt;
                if (cg_link_resume(&n->link, fds[0], fds[1], loan.received, &t.got, err) == 0) {
                        dup2(fds[2], LOG_FD);
                        close(fds[2]);
                        cg_closep_(&n->lender);
                        n->lender = cg_steal_fd(&lender);
                        o = versions();
                        json_object_set_new(o, "received", json_integer((json_int_t)n->link.received));
                        return cg_link_send_line(&n->link, o, NULL) < 0 ? CG_TIMEOUT : 0;
                }
                fail_line(&t, CG_E_PROTO, err->msg);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(fds); i++)
                cg_closep_(&fds[i]);
        return CG_TIMEOUT;
}

static int renew_node(struct cg_link *r, bool lost, struct cg_err *err)
{
        struct node_side *n = (struct node_side *)(void *)r;
        int64_t wait_ms = n->detach_ms + CG_LINK_LOST_MS, end = cg_now_ms() + wait_ms, left;
        bool ended = r->end_ms != 0;
        int ret;

        if (!lost)
                return take_loan(n, err);
        cg_closep_(&r->in);
        cg_closep_(&r->out);
        cg_closep_(&n->lender);
        if (ended)
                end = CG_MIN(end, cg_now_ms() + ENDED_MS);
        while ((left = end - cg_now_ms()) > 0) {
                struct pollfd p[] = { { .fd = r->listener, .events = POLLIN },
                                      { .fd = ended ? -1 : r->channels[CG_LINK_LIFE].fd,
                                        .events = POLLRDHUP } };

                if (poll(p, CG_ARRAY_LEN(p), (int)left) < 0 && errno != EINTR)
                        return cg_fail_errno(err, "poll");
                if (p[1].revents) {
                        ended = true;
                        end = CG_MIN(end, cg_now_ms() + ENDED_MS);
                }
                ret = p[0].revents ? take_loan(n, err) : CG_TIMEOUT;
                if (ret != CG_TIMEOUT)
                        return ret;
        }
        return cg_fail(err, CG_E_CLOSED, "the host has not come back within %lld s",
                       (long long)wait_ms / 1000);
}

/*
 * The socket of a keeper by its link's name, of which a host sends nothing but letters and digits:
 * that of `cellgate node`, or of the folder of a supervisor, both of this user.
 */
static int link_path(const char *name, char path[160], struct cg_err *err)
{
        const char *dir = node_dir();
        char parent[100];

        if (!dir && cg_runtime_parent("cellgate", parent, sizeof(parent), err) < 0)
                return -1;
        if (!dir && !cg_make_own_dir(parent))
                return cg_fail(err, CG_E_UNSUPPORTED, "%s is not a folder of this user alone", parent);
        if (!*name || strlen(name) > NAME_MAX_BYTES || name[strspn(name, LETTERS)])
                return cg_fail(err, CG_E_PROTO, "a link's name has 1 to %zu letters and digits",
                               NAME_MAX_BYTES);
        if (dir)
                snprintf(path, 160, "%.80s/link-%s.sock", dir, name);
        else
                snprintf(path, 160, "%s/%s/link.sock", parent, name);
        return 0;
}

/* For the next link of this session. @own: the folder of its supervisor; NULL: it is a node's. */
static int listen_for_links(struct node_side *n, const char *own, struct cg_err *err)
{
        /* No number of a process: one that was killed leaves its socket. */
        if (cg_random_hex(n->token, TOKEN / 2, err) < 0 ||
            cg_random_hex(n->name, NAME_MAX_BYTES / 2, err) < 0)
                return err->code;
        if (own)
                snprintf(n->name, sizeof(n->name), "%.*s", (int)NAME_MAX_BYTES, cg_path_base(own));
        if (link_path(n->name, n->path, err) < 0) {
                dprintf(LOG_FD, "cellgate relay: a lost link ends its sessions: %s\n", err->msg);
                return 0;
        }
        if (cg_listen_unix(n->path, 4, &n->link.listener, err) < 0)
                return err->code;
        fcntl(n->link.listener, F_SETFL, O_NONBLOCK);
        n->link.renew = renew_node;
        return 0;
}

/* The node's side. @o: the host's line. */
static int keep(struct node_side *n, const json_t *o, struct cg_err *err)
{
        const char *dir = node_dir();
        int life = -1, wire = -1, log[2] = { -1, LOG_FD }, code = 0;
        cg_auto_json json_t *user_env = NULL;
        char own[128], here[PATH_MAX];
        const char *cwd = getcwd(here, sizeof(here));

        if (dir) {
                code = join(dir, o, &life, &wire, err);
        } else {
                /* The supervisor outlives the first link, whose log it would keep. */
                if (n->detach_ms > 0 && pipe2(log, O_CLOEXEC) < 0)
                        code = cg_fail_errno(err, "pipe");
                else
                        code = start(o, log[1], &life, &wire, own, err);
                n->link.log = log[0];
                if (log[1] != LOG_FD)
                        close(log[1]);
        }
        if (code == 0 && n->detach_ms > 0)
                code = listen_for_links(n, dir ? NULL : own, err);
        if (code == 0)
                code = cg_user_env(environ, cwd, &user_env, err);
        if (code < 0) {
                fail_line(&n->link, code, err->msg);
                cg_closep_(&life);
                cg_closep_(&wire);
                return 0; /* the host says it */
        }
        code = answer(n, cwd, user_env, err);
        if (code < 0)
                return code;
        return cg_link_run(&n->link, life, wire, err);
}

static void leave_streams(void)
{
        cg_auto_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        for (int fd = 0; fd < LOG_FD; fd++)
                dup2(null, fd);
}

/*
 * The streams, of which @in is one, are another process's from here on; waits until it gives them
 * back, or hangs while nobody is left at their other end.
 */
static void lend(int to, int in)
{
        cg_auto_fd int own = fcntl(in, F_DUPFD_CLOEXEC, LENT_FD + 1);
        struct pollfd p[] = { { .fd = to, .events = POLLIN }, { .fd = own, .events = POLLRDHUP } };

        leave_streams();
        while (poll(p, CG_ARRAY_LEN(p), -1) < 0 && errno == EINTR)
                ;
        if (!p[0].revents)
                cg_wait_fd(to, POLLIN, LEND_MS, NULL);
}

/* Lends the streams to the process that keeps the session of an earlier link. */
static int resume_node(const struct cg_link *r, const json_t *o, struct cg_err *err)
{
        const char *token = cg_json_text_of(json_object_get(o, "resume"), "token");
        const char *name = cg_json_text_of(json_object_get(o, "resume"), "link");
        struct loan loan = { .received = (uint64_t)json_integer_value(json_object_get(o, "received")),
                             .attempt = (uint64_t)json_integer_value(json_object_get(o, "attempt")) };
        const int fds[] = { r->in, r->out, LOG_FD };
        cg_auto_fd int to = -1;
        char path[160];
        int code = link_path(name, path, err);

        memcpy(loan.token, token, CG_MIN(strlen(token), TOKEN));
        if (code < 0) {
                fail_line(r, code, err->msg);
                return 0; /* the host says it */
        }
        if (cg_connect_own(path, LEND_MS, &to, err) == 0 &&
            cg_send_fds(to, &loan, sizeof(loan), fds, CG_ARRAY_LEN(fds), err) == 0)
                lend(to, r->in);
        else if (err->sys_errno == ENOENT || err->sys_errno == ECONNREFUSED)
                fail_line(r, CG_E_CLOSED, "its session has ended");
        return 0; /* without a line the host tries again */
}

/* Starts the process that keeps the session, with the host's line @o, and lends it the streams. */
static int start_keeper(const json_t *o, struct cg_err *err)
{
        static const char *const argv[] = { "cellgate-relay", "keep", NULL };
        int fds[2] = { -1, -1 }, code;
        struct cg_proc_fd table[] = { { 0, 0 }, { 1, 1 }, { LOG_FD, LOG_FD }, { -1, LENT_FD } };
        struct cg_proc_spec spec = CG_PROC_SPEC("/proc/self/exe", argv, environ, table, .new_session = true);
        struct cg_proc proc = CG_PROC_NONE;
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "line");
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return cg_fail_errno(err, "socketpair");
        table[3].fd = fds[1];
        code = cg_proc_spawn(&spec, &proc, err);
        close(fds[1]);
        if (code == 0)
                code = cg_write_all(fds[0], text, len, err);
        shutdown(fds[0], SHUT_WR);
        if (code == 0)
                lend(fds[0], 0);
        close(fds[0]);
        return code;
}

/* As struct cg_client_options; 0: not at all. */
static int64_t detach_of(const json_t *o, int64_t def)
{
        int64_t ms = json_integer_value(json_object_get(o, "detach_ms"));

        return ms ? CG_MIN(CG_MAX(ms, 0), DETACH_MAX_MS) : def;
}

static int node(struct cg_err *err)
{
        CG_CLEANUP(node_fini)
        struct node_side n = { .link = { .in = 0, .out = 1, .listener = -1 }, .lender = -1 };
        cg_auto_json json_t *o = NULL;
        int code = cg_link_read_line(&n.link, -1, LINE_MS, &o, err), on = 1;

        if (code < 0)
                return code;
        /* stunnel's pipes are connections, where a small message would wait 40 ms for an answer. */
        (void)setsockopt(1, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        code = check_versions(o, "the node", "the host", err);
        if (code < 0) {
                fail_line(&n.link, code, err->msg);
                return 0; /* the host says it */
        }
        if (json_object_get(o, "resume"))
                return resume_node(&n.link, o, err);
        /* A job of a batch system leaves no process behind. */
        return detach_of(o, cg_in_batch_job() ? 0 : DETACH_MS) ? start_keeper(o, err) : keep(&n, o, err);
}

/* `keep` */
static int kept(struct cg_err *err)
{
        CG_CLEANUP(node_fini)
        struct node_side n = { .link = { .in = fcntl(0, F_DUPFD_CLOEXEC, LENT_FD + 1),
                                         .out = fcntl(1, F_DUPFD_CLOEXEC, LENT_FD + 1),
                                         .listener = -1 },
                               .lender = LENT_FD };
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        size_t len;

        prctl(PR_SET_NAME, "cellgate-keeper", 0, 0, 0); /* it was started as /proc/self/exe */
        fcntl(LENT_FD, F_SETFD, FD_CLOEXEC);
        leave_streams();
        cg_buf_init(&n.link.got, CG_LINK_LINE_MAX);
        if (cg_read_fd(LENT_FD, "the host's line", CG_LINK_LINE_MAX, &text, &len, err) < 0 ||
            cg_json_object(text, len, "the host's line", &o, err) < 0)
                return err->code;
        n.detach_ms = detach_of(o, DETACH_MS);
        return keep(&n, o, err);
}

/* ------------------------------------------------------------------ beside the host */

struct host_side {
        struct cg_link link; /* first */
        char **words;
        struct cg_proc proc;
        json_t *resume; /* as the node has said; NULL: it does not wait */
        int64_t detach_ms, since_ms, retry_ms;
        uint64_t attempt;
};

static int spawn(char **words, struct cg_link *r, struct cg_proc *proc, struct cg_err *err)
{
        int to[2] = { -1, -1 }, from[2] = { -1, -1 }, code;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { LOG_FD, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(words[0], words, environ, fds,
                                                .search_path = getenv("PATH") ?: "/usr/bin:/bin",
                                                .die_with_parent = true);

        if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0) {
                cg_fail_errno(err, "pipe");
                cg_closep_(&to[0]);
                cg_closep_(&to[1]);
                return -1;
        }
        fds[0].fd = to[0];
        fds[1].fd = from[1];
        code = cg_proc_spawn(&spec, proc, err);
        close(to[0]);
        close(from[1]);
        r->out = to[1];
        r->in = from[0];
        if (code < 0)
                return cg_err_prefix(err, "%s", words[0]);
        return 0;
}

/* Ends COMMAND of a link that is lost or over. */
static void end_command(struct host_side *h, int64_t ms)
{
        cg_closep_(&h->link.in);
        cg_closep_(&h->link.out);
        if (h->proc.pidfd >= 0 && cg_proc_wait(&h->proc, ms, NULL, NULL) != 0)
                cg_proc_end(&h->proc, false, 1000);
        h->proc = CG_PROC_NONE;
}

/* One attempt. CG_TIMEOUT: others may have success; negative: the node has ended the session. */
static int try_again(struct host_side *h, int64_t timeout_ms, struct cg_err *err)
{
        cg_auto_link struct cg_link t = { .in = -1, .out = -1 };
        cg_auto_json json_t *o = versions(), *node = NULL;
        int64_t received;
        int code;

        json_object_set(o, "resume", h->resume);
        json_object_set_new(o, "received", json_integer((json_int_t)h->link.received));
        json_object_set_new(o, "attempt", json_integer((json_int_t)++h->attempt));
        if (spawn(h->words, &t, &h->proc, err) < 0 || cg_link_send_line(&t, json_incref(o), err) < 0 ||
            cg_link_read_line(&t, LIFE_FD, timeout_ms, &node, err) < 0)
                return CG_TIMEOUT;
        if (json_object_get(node, "error"))
                return cg_fail(err, CG_E_CLOSED, "the node: %.800s", cg_json_text_of(node, "error"));
        if ((code = check_versions(node, "this host", "the node", err)) < 0 ||
            (code = cg_json_int(node, "received", -1, &received, err)) < 0)
                return code;
        code = cg_link_resume(&h->link, t.in, t.out, (uint64_t)received, &t.got, err);
        if (code == 0)
                t.in = t.out = -1;
        return code;
}

static int renew_host(struct cg_link *r, bool lost, struct cg_err *err)
{
        struct host_side *h = (struct host_side *)(void *)r;
        int64_t end = cg_now_ms() + h->detach_ms, left;
        int code = cg_fail(err, CG_E_CLOSED, "the connection has ended");

        /* A node that ends each link at once does not keep this machine busy. */
        h->retry_ms = cg_now_ms() - h->since_ms > HELD_MS ? RETRY_MS : CG_MIN(h->retry_ms * 2, RETRY_MAX_MS);
        for (; (left = end - cg_now_ms()) > 0; h->retry_ms = CG_MIN(h->retry_ms * 2, RETRY_MAX_MS)) {
                end_command(h, 0);
                if (cg_wait_fd(LIFE_FD, POLLRDHUP, CG_MIN(h->retry_ms, left), err) == 0)
                        return cg_fail(err, CG_E_CLOSED, "the host has ended");
                code = try_again(h, CG_MIN(CG_MAX(end - cg_now_ms(), RETRY_MAX_MS), ATTEMPT_MS), err);
                h->since_ms = cg_now_ms();
                if (code != CG_TIMEOUT)
                        return code;
        }
        return cg_err_prefix(err, "no other connection within %lld s", (long long)h->detach_ms / 1000);
}

/* Exchanges first lines, and reports to the library. */
static int greet(struct host_side *h, const char *options, struct cg_err *err)
{
        struct cg_link *r = &h->link;
        cg_auto_json json_t *o = NULL, *node = NULL;
        cg_auto_free char *text = NULL;
        size_t len;
        int code = cg_json_object(options, strlen(options), "options", &o, err);

        if (code < 0)
                return code;
        json_object_update_new(o, versions());
        code = cg_link_send_line(r, json_incref(o), err);
        /* After EPIPE: the other side may have sent its reason before it ended. */
        if ((code < 0 && err->sys_errno != EPIPE) ||
            (code = cg_link_read_line(r, LIFE_FD, INT32_MAX, &node, err)) < 0)
                return code;
        if (json_object_get(node, "error"))
                return cg_fail(err, CG_MIN((int)json_integer_value(json_object_get(node, "code")), -1),
                               "the node: %.800s", cg_json_text_of(node, "error"));
        code = check_versions(node, "this host", "the node", err);
        if (code < 0)
                return code;
        h->resume = json_incref(json_object_get(node, "resume"));
        h->detach_ms = detach_of(o, DETACH_MS);
        /* It is sent back: no longer than a line that COMMAND takes at once. */
        if (h->detach_ms && strlen(cg_json_text_of(h->resume, "token")) == TOKEN &&
            strlen(cg_json_text_of(h->resume, "link")) <= NAME_MAX_BYTES && json_object_size(h->resume) == 2)
                r->renew = renew_host;
        json_object_del(node, "resume");
        json_decref(o);
        o = json_pack("{s:b, s:O}", "ready", true, "node", node);
        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "node");
        return cg_write_all(READY_FD, text, len, err);
}

static int host(const char *options, char **words, struct cg_err *err)
{
        struct host_side h = { .link = { .host = true, .in = -1, .out = -1, .listener = -1 },
                               .words = words,
                               .proc = CG_PROC_NONE,
                               .retry_ms = RETRY_MS,
                               .since_ms = cg_now_ms() };
        cg_auto_json json_t *failed = NULL;
        cg_auto_free char *text = NULL;
        size_t len;
        int code = spawn(words, &h.link, &h.proc, err), ended;

        if (code == 0)
                code = greet(&h, options, err);
        if (code < 0) {
                failed = json_pack("{s:i, s:s}", "code", code, "error", err->msg);
                text = cg_json_text(failed, &len);
                if (text)
                        cg_write_all(READY_FD, text, len, NULL);
        }
        close(READY_FD);
        ended = code < 0 ? 0 : cg_link_run(&h.link, LIFE_FD, WIRE_FD, err);
        end_command(&h, code || ended ? 0 : COMMAND_MS);
        json_decref(h.resume);
        cg_link_fini(&h.link);
        return ended; /* the library says why it could not start */
}

int main(int argc, char **argv)
{
        struct cg_err err;
        int r;

        signal(SIGPIPE, SIG_IGN);
        if (argc > 3 && strcmp(argv[1], "host") == 0)
                r = host(argv[2], argv + 3, &err);
        else if (argc == 2 && strcmp(argv[1], "keep") == 0)
                r = kept(&err);
        else if (argc == 1)
                r = node(&err);
        else
                r = cg_fail(&err, CG_E_INVAL, "it takes no arguments: see --help");
        if (r < 0)
                fprintf(stderr, "cellgate relay: %s\n", err.msg);
        return r < 0;
}
