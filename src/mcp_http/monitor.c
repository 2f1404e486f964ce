/*
 * The monitor of cellgate-mcp-http: opens the address, starts the front and the processes of its
 * sessions, and ends them. It reads nothing that comes from the network, but for the front's two
 * messages.
 */
#include "mcp_http/monitor.h"

#include <nettle/memops.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/proc.h"
#include "base/text.h"
#include "cli/common/listen.h"
#include "config.h"
#include "mcp/server.h"

#define BACKLOG 128
/* From SIGTERM to SIGKILL: a session ends its kernel, its MCP servers and its supervisor. */
#define END_MS       10000
#define FRONT_END_MS 2000
/* Between two looks at the certificate's files. */
#define TLS_MS 10000

struct hf_child {
        struct cg_proc proc; /* pidfd -1: a free place */
        uint64_t session;
        int64_t kill_ms; /* 0: it has not been asked to end */
};

struct hf_monitor {
        const struct hf_options *o;
        const struct cg_log *log;
        int sig, control, verifier_fd; /* verifier_fd -1: no OAuth */
        struct cg_proc front, verifier;
        struct hf_child *children;
        size_t n; /* places: those that end count as well */
        /* Sessions that wait for a place, oldest first; room for as many as the front may have. */
        uint64_t *waiting;
        size_t n_waiting;
        int status;
        bool ending, bound; /* bound: the socket's path is ours */
        struct stat tls[2]; /* the certificate's file and the key's, as they were read */
        int64_t tls_ms;     /* when to look at them again; 0: there are none */
};

/* ---- session processes */

static void tell(struct hf_monitor *m, enum hf_type type, uint64_t session, const char *why, int fd)
{
        struct hf_msg msg = { .type = type, .session = session };
        struct cg_err err;

        snprintf(msg.why, sizeof(msg.why), "%s", why);
        if (m->control >= 0 && cg_send_fds(m->control, &msg, sizeof(msg), &fd, fd >= 0, &err) < 0)
                cg_log(m->log, CG_LOG_ERROR, "front: %s", err.msg);
}

/* The environment with one more variable, before others of its name. */
static char **with_variable(char *text)
{
        size_t n = 0;
        char **env;

        while (environ[n])
                n++;
        env = calloc(n + 2, sizeof(*env));
        if (env) {
                env[0] = text;
                memcpy(env + 1, environ, n * sizeof(*env));
        }
        return env;
}

static char *const approver_words[] = { (char *)(uintptr_t) "cellgate", (char *)(uintptr_t) "mcp",
                                        (char *)(uintptr_t) "serve",
                                        (char *)(uintptr_t) "--toolsets=approvals", NULL };

static int start_child(struct hf_monitor *m, struct hf_child *c, uint64_t session, struct cg_err *err)
{
        cg_auto_fd int ours = -1, theirs = -1;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { 2, 2 } };
        char name[64];
        cg_auto_free char **env = with_variable(name);
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_BINDIR "/cellgate"),
                                                session & CG_HF_APPROVER ? approver_words : m->o->words, env,
                                                fds, .new_session = true);
        const char *kind = "";
        int pair[2];

        if (session & CG_HF_STATELESS)
                kind = m->verifier_fd < 0 ? "sn" : "s";
        snprintf(name, sizeof(name), CG_MCPD_HTTP_SESSION "=%08" PRIx64 "%s", session, kind);
        if (!env)
                return cg_fail(err, CG_E_NOMEM, "session");
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "socket of a session");
        ours = pair[0];
        theirs = fds[0].fd = fds[1].fd = pair[1];
        if (cg_proc_spawn(&spec, &c->proc, err) < 0)
                return -1;
        c->session = session;
        c->kill_ms = 0;
        tell(m, HF_OPENED, session, "", ours);
        return 0;
}

static void open_session(struct hf_monitor *m, uint64_t session)
{
        struct cg_err err;
        size_t i = 0;

        while (i < m->n && m->children[i].proc.pidfd >= 0)
                i++;
        if (i == m->n && m->n_waiting < m->o->setup.max_sessions) {
                m->waiting[m->n_waiting++] = session;
                return;
        }
        if (m->ending || i == m->n)
                cg_fail(&err, CG_E_LIMIT, "%s",
                        m->ending ? "the server is being stopped" : "too many sessions are ending");
        else if (start_child(m, &m->children[i], session, &err) == 0)
                return;
        tell(m, HF_ENDED, session, err.msg, -1);
}

/* Takes the waiting session @i. */
static uint64_t take_waiting(struct hf_monitor *m, size_t i)
{
        uint64_t session = m->waiting[i];

        m->n_waiting--;
        memmove(m->waiting + i, m->waiting + i + 1, (m->n_waiting - i) * sizeof(*m->waiting));
        return session;
}

static void end_child(struct hf_child *c)
{
        if (c->proc.pidfd < 0 || c->kill_ms)
                return;
        cg_pidfd_kill(c->proc.pidfd, SIGTERM);
        c->kill_ms = cg_now_ms() + END_MS;
}

static void end_all(struct hf_monitor *m, int status)
{
        if (!m->ending)
                m->status = status;
        m->ending = true;
        for (size_t i = 0; i < m->n; i++)
                end_child(&m->children[i]);
}

static void reap(struct hf_monitor *m, struct hf_child *c)
{
        char how[64], why[CG_HF_MAX_WHY];
        int status;

        if (cg_proc_wait(&c->proc, 0, &status, NULL) != 0)
                return;
        cg_proc_describe(status, how, sizeof(how));
        snprintf(
                why, sizeof(why),
                "the session has ended (%s)%s: variables and imports are lost; send initialize for a new one",
                how, m->ending ? ", because the server is being stopped" : "");
        if (!c->kill_ms)
                cg_log(m->log, CG_LOG_WARN, "the process of a session has ended: %s", how);
        tell(m, HF_ENDED, c->session, why, -1);
        *c = (struct hf_child){ .proc = CG_PROC_NONE };
        if (m->n_waiting)
                open_session(m, take_waiting(m, 0));
}

/* ---- the front and the verifier */

/* The front says what a session is for; the token, whether its owner may. */
static const char not_yours[] = "the token is not of the kind of this session";

static bool is_second_token(const struct hf_monitor *m, const char *token)
{
        size_t len = strlen(m->o->approver);

        return len && strlen(token) == len && memeql_sec(token, m->o->approver, len);
}

static bool is_of_approver(uint64_t session)
{
        return session & CG_HF_APPROVER;
}

static void lose(struct hf_monitor *m, int *fd, const char *what)
{
        if (!m->ending)
                cg_log(m->log, CG_LOG_ERROR, "the process that %s has ended", what);
        cg_closep_(fd);
        end_all(m, 1);
}

/* The verifier answers; when it has not read what others asked, nobody waits for it. */
static void ask_verifier(struct hf_monitor *m, const struct hf_ask *ask)
{
        static const char busy[] = "too many tokens are being checked: send the request again";
        struct hf_msg no = { .type = HF_CHECK, .session = ask->session, .status = 503 };

        if (cg_send_fds(m->verifier_fd, ask, cg_hf_ask_size(ask), NULL, 0, NULL) == 0)
                return;
        strcpy(no.why, busy);
        if (ask->type == HF_OPEN)
                tell(m, HF_ENDED, ask->session, busy, -1);
        else
                cg_send_fds(m->control, &no, sizeof(no), NULL, 0, NULL);
}

/* Returns false when no message is left. */
static bool on_verifier(struct hf_monitor *m)
{
        struct hf_msg msg;
        size_t n_fds = 0;
        struct cg_err err;
        ssize_t n = cg_recv_fds(m->verifier_fd, &msg, sizeof(msg), NULL, &n_fds, &err);

        if (n < 0 && err.sys_errno == EAGAIN)
                return false;
        if (n != sizeof(msg)) {
                lose(m, &m->verifier_fd, "checks tokens");
                return false;
        }
        if (msg.type == HF_CHECK && m->control >= 0)
                cg_send_fds(m->control, &msg, sizeof(msg), NULL, 0, NULL);
        else if (msg.type == HF_OPEN && msg.status)
                tell(m, HF_ENDED, msg.session, msg.why, -1);
        else if (msg.type == HF_OPEN && cg_hf_is_approver(msg.owner) != is_of_approver(msg.session))
                tell(m, HF_ENDED, msg.session, not_yours, -1);
        else if (msg.type == HF_OPEN)
                open_session(m, msg.session);
        return true;
}

/* Returns false when no message is left. */
static bool on_front(struct hf_monitor *m)
{
        struct hf_ask msg;
        size_t n_fds = 0;
        struct cg_err err;
        ssize_t n = cg_recv_fds(m->control, &msg, sizeof(msg), NULL, &n_fds, &err);

        if (n < 0 && err.sys_errno == EAGAIN)
                return false;
        if (!cg_hf_ask_is_whole(&msg, n)) {
                lose(m, &m->control, "reads the network");
                return false;
        }
        if (m->verifier_fd >= 0 && (msg.type == HF_OPEN || msg.type == HF_CHECK))
                ask_verifier(m, &msg);
        else if (msg.type == HF_OPEN && is_of_approver(msg.session) && !is_second_token(m, msg.token))
                tell(m, HF_ENDED, msg.session, not_yours, -1);
        else if (msg.type == HF_OPEN)
                open_session(m, msg.session);
        for (size_t i = 0; msg.type == HF_CLOSE && i < m->n; i++)
                if (m->children[i].session == msg.session)
                        end_child(&m->children[i]);
        for (size_t i = 0; msg.type == HF_CLOSE && i < m->n_waiting; i++)
                if (m->waiting[i] == msg.session)
                        take_waiting(m, i);
        return true;
}

/* The proxies of HTTP, by which the verifier reaches the issuer. */
static void proxies(char *ret[9])
{
        size_t n = 0;

        for (char **e = environ; *e && n < 8; e++) {
                const char *end = strchr(*e, '=');

                if (end && end - *e >= 6 && strncasecmp(end - 6, "_proxy", 6) == 0)
                        ret[n++] = *e;
        }
}

/* Starts this program with @option, and sends it @setup. *sock (returns): its control socket. */
static int start_part(const char *option, struct cg_proc *proc, const void *setup, size_t size,
                      const int *listener, int *sock, struct cg_err *err)
{
        char *argv[] = { (char *)(uintptr_t) "cellgate-mcp-http", (char *)(uintptr_t)option, NULL };
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { 2, 2 }, { -1, CG_HF_CONTROL } };
        char *env[9] = { NULL };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-mcp-http"), argv, env,
                                                fds, .new_session = true, .die_with_parent = true);
        cg_auto_fd int theirs = -1;
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return cg_fail_errno(err, "socket of %s", option);
        *sock = pair[0];
        if (!listener)
                proxies(env);
        theirs = fds[3].fd = pair[1];
        if (cg_proc_spawn(&spec, proc, err) < 0)
                return -1;
        return cg_send_fds(*sock, setup, size, listener, listener != NULL, err);
}

static int start_parts(struct hf_monitor *m, int listener, struct cg_err *err)
{
        const struct hf_options *o = m->o;

        if (start_part("--front", &m->front, &o->setup, sizeof(o->setup), &listener, &m->control, err) < 0)
                return -1;
        if (!o->verifier.issuer[0])
                return 0;
        return start_part("--verifier", &m->verifier, &o->verifier, sizeof(o->verifier), NULL,
                          &m->verifier_fd, err);
}

/* ---- the address */

/* A socket that a server left behind when it was killed is replaced. */
static int listen_path(const char *path, int *ret, struct cg_err *err)
{
        cg_auto_fd int other = -1;
        struct stat st;

        if (cg_connect_unix_now(path, &other, err) == 0)
                return cg_fail(err, CG_E_EXISTS, "--http unix:%s: another server listens there", path);
        if (err->sys_errno == ECONNREFUSED && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
                unlink(path);
        if (cg_listen_unix(path, BACKLOG, ret, err) < 0)
                return cg_err_prefix(err, "--http");
        return 0;
}

static int open_address(struct hf_options *o, int *listener, struct cg_err *err)
{
        char where[CG_AUTHORITY_MAX], uri[CG_AUTHORITY_MAX + 16], token[PATH_MAX];
        bool oauth = o->verifier.issuer[0] != '\0';
        uint16_t port = o->port;

        strcpy(o->setup.challenge, "Bearer realm=\"cellgate\"");
        if (o->path) {
                if ((oauth && cg_hf_oauth(o, o->public_url, err) < 0) ||
                    listen_path(o->path, listener, err) < 0)
                        return -1;
                printf("MCP server on unix:%s, at http://localhost/mcp%s%s\n", o->path,
                       oauth ? ", for requests with tokens of " : "", o->verifier.issuer);
                return 0;
        }
        if ((o->tls_cert && cg_hf_tls(o->tls_cert, o->tls_key, &o->setup.tls, err) < 0) ||
            (!oauth && cg_hf_token(o->token_file, token, o->setup.token, err) < 0) ||
            cg_listen_tcp("--http", &o->host, &port, listener, err) < 0)
                return -1;
        cg_host_authority(&o->host, port, 0, where, sizeof(where));
        snprintf(uri, sizeof(uri), "%s://%s/mcp", o->tls_cert ? "https" : "http", where);
        if (!oauth) {
                printf("MCP server at %s, for requests with the token in %s\n", uri, token);
                return 0;
        }
        if (cg_hf_oauth(o, uri, err) < 0)
                return -1;
        printf("MCP server at %s, for requests with tokens of %s\n", uri, o->verifier.issuer);
        return 0;
}

/* Clients with the second token decide about calls of this server's sessions. */
static int open_place(struct hf_options *o, struct cg_err *err)
{
        char place[4 + 2 * 8 + 1] = "mcp:", path[PATH_MAX];

        unsetenv(CG_MCPD_HTTP_PLACE);
        if (!o->approver_token && !o->verifier.approver_scope[0])
                return 0;
        if (o->approver_token && cg_hf_approver(o, path, err) < 0)
                return -1;
        if (cg_random_hex(place + 4, 8, err) < 0 || setenv(CG_MCPD_HTTP_PLACE, place, 1) < 0)
                return cg_fail_errno(err, "place of approvers");
        if (o->approver_token)
                printf("Who has the token in %s decides about its calls\n", path);
        return 0;
}

/* ---- the certificate */

/* New connections get the new one. What is wrong with it is reported once. */
static void renew(struct hf_monitor *m)
{
        cg_auto_free struct hf_renewal *r = NULL;
        struct cg_err err;

        m->tls_ms = cg_now_ms() + TLS_MS;
        if (!cg_hf_tls_changed(m->o->tls_cert, m->o->tls_key, m->tls))
                return;
        r = calloc(1, sizeof(*r));
        if (!r)
                return;
        r->type = HF_TLS;
        if (cg_hf_tls_check_hidden(m->o->tls_key, &err) < 0 ||
            cg_hf_tls(m->o->tls_cert, m->o->tls_key, &r->tls, &err) < 0 ||
            cg_send_fds(m->control, r, sizeof(*r), NULL, 0, &err) < 0)
                cg_log(m->log, CG_LOG_ERROR, "the certificate is not renewed, the former one is in use: %s",
                       err.msg);
        explicit_bzero(r->tls.key, sizeof(r->tls.key));
}

/* ---- the loop */

static int64_t wait_ms(const struct hf_monitor *m)
{
        int64_t first = m->tls_ms && !m->ending ? m->tls_ms : INT64_MAX, now = cg_now_ms();

        for (size_t i = 0; i < m->n; i++)
                if (m->children[i].kill_ms && m->children[i].kill_ms < first)
                        first = m->children[i].kill_ms;
        if (first == INT64_MAX)
                return -1;
        return first > now ? first - now : 0;
}

static bool has_children(const struct hf_monitor *m)
{
        for (size_t i = 0; i < m->n; i++)
                if (m->children[i].proc.pidfd >= 0)
                        return true;
        return false;
}

static int loop(struct hf_monitor *m, struct cg_err *err)
{
        enum { SIG, CONTROL, VERIFIER, FIRST };
        cg_auto_free struct pollfd *p = calloc(m->n + FIRST, sizeof(*p));

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "monitor");
        while (!m->ending || has_children(m)) {
                struct signalfd_siginfo info;

                p[SIG] = (struct pollfd){ .fd = m->sig, .events = POLLIN };
                p[CONTROL] = (struct pollfd){ .fd = m->control, .events = POLLIN };
                p[VERIFIER] = (struct pollfd){ .fd = m->verifier_fd, .events = POLLIN };
                for (size_t i = 0; i < m->n; i++)
                        p[FIRST + i] = (struct pollfd){ .fd = m->children[i].proc.pidfd, .events = POLLIN };
                if (poll(p, m->n + FIRST, (int)wait_ms(m)) < 0 && errno != EINTR)
                        return cg_fail_errno(err, "poll");
                /* First: it may say that a session was to end, which has ended meanwhile. */
                while (p[CONTROL].revents && on_front(m))
                        ;
                while (p[VERIFIER].revents && on_verifier(m))
                        ;
                for (size_t i = 0; i < m->n; i++) {
                        struct hf_child *c = &m->children[i];

                        if (p[FIRST + i].revents)
                                reap(m, c);
                        if (!c->kill_ms || cg_now_ms() < c->kill_ms)
                                continue;
                        cg_pidfd_kill(c->proc.pidfd, SIGKILL);
                        c->kill_ms = INT64_MAX;
                }
                if (m->tls_ms && cg_now_ms() >= m->tls_ms && !m->ending)
                        renew(m);
                if (p[SIG].revents && read(m->sig, &info, sizeof(info)) == sizeof(info))
                        end_all(m, 128 + (int)info.ssi_signo);
        }
        return 0;
}

static int run(struct hf_monitor *m, struct hf_options *o, int *listener, struct cg_err *err)
{
        if (cg_block_end_signals(NULL, &m->sig, err) < 0)
                return -1;
        m->n = 2 * (size_t)o->setup.max_sessions;
        m->children = calloc(m->n, sizeof(*m->children));
        m->waiting = calloc(o->setup.max_sessions, sizeof(*m->waiting));
        if (!m->children || !m->waiting)
                return cg_fail_errno(err, "monitor");
        for (size_t i = 0; i < m->n; i++)
                m->children[i].proc = CG_PROC_NONE;
        if (o->tls_cert) { /* first: what changes while they are read is read again */
                cg_hf_tls_changed(o->tls_cert, o->tls_key, m->tls);
                m->tls_ms = cg_now_ms() + TLS_MS;
        }
        if (open_address(o, listener, err) < 0 || open_place(o, err) < 0 ||
            start_parts(m, *listener, err) < 0)
                return -1;
        /* Only the front accepts: without it a client is refused, and does not wait. */
        m->bound = o->path != NULL;
        explicit_bzero(o->setup.tls.key, sizeof(o->setup.tls.key));
        close(cg_steal_fd(listener));
        if (fflush(stdout))
                return cg_fail_errno(err, "standard output");
        return loop(m, err);
}

int cg_hf_monitor(struct hf_options *o, const struct cg_log *log)
{
        struct hf_monitor m = { .o = o,
                                .log = log,
                                .sig = -1,
                                .control = -1,
                                .verifier_fd = -1,
                                .front = CG_PROC_NONE,
                                .verifier = CG_PROC_NONE };
        cg_auto_fd int listener = -1;
        struct cg_err err;

        if (run(&m, o, &listener, &err) < 0) {
                cg_log(log, CG_LOG_ERROR, "%s", err.msg);
                m.status = 2;
        }
        cg_closep_(&m.control); /* the front sends what it has, and ends */
        if (m.front.pidfd >= 0 && cg_proc_wait(&m.front, FRONT_END_MS, NULL, NULL) != 0)
                cg_proc_end(&m.front, false, 0);
        cg_closep_(&m.verifier_fd);
        if (m.verifier.pidfd >= 0)
                cg_proc_end(&m.verifier, false, 0);
        if (m.bound)
                unlink(o->path);
        cg_closep_(&m.sig);
        free(m.children);
        free(m.waiting);
        return m.status;
}
