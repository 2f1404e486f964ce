/* The process of `cellgate node` that has the supervisor. See node.h. */
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/proc.h"
#include "base/text.h"
#include "cellgate.h"
#include "cli/common/listen.h"
#include "config.h"
#include "node/node.h"

/* For the supervisor and its zygote to start, and for an answer about its figures. */
#define START_MS  60000
#define STATUS_MS 3000
/* Between two starts of the process that reads HTTP. */
#define FRONT_MS 1000
/* Records of the log wait here while figures are asked for. */
#define LOG_PIPE       (1 << 20)
#define LINE_MAX_BYTES ((size_t)16 << 10)
/* Figures are used again for so long: what reads HTTP is not trusted to ask rarely. */
#define FRESH_MS 500
/* Some hundred sessions' memory takes time to count, which is left to them. */
#define STATUS_SHARE 20
#define STALE_MS     10000

struct node_monitor {
        const struct node_options *o;
        char dir[128];
        struct cg_proc supervisor, selftest, front;
        struct cg_client *client;
        int log, log_to; /* the pipe of the supervisor's log */
        struct cg_buf line;
        int signals, listener, control;
        int64_t front_ms; /* not before then is the front started again */
        struct node_state state;
        int64_t stale_ms; /* from then on it is too old */
        bool tested, draining, linked;
};

/* ------------------------------------------------------------------ the log */

/* @text: may have any bytes. */
static void write_record(const struct node_monitor *n, const char *time, const char *level, const char *from,
                         const char *text, size_t len)
{
        cg_auto_buf struct cg_buf shown = { .max = 16 * LINE_MAX_BYTES };
        cg_auto_json json_t *o = NULL;
        cg_auto_free char *out = NULL;

        cg_text_render_as(&shown, text, len, LINE_MAX_BYTES, CG_TEXT_LINE);
        o = json_pack("{s:s, s:s, s:s, s:s, s:s*}", "time", time, "level", level, "from", from, "text",
                      shown.data ?: "", "tenant", n->o->tenant);
        out = json_dumps(o, JSON_COMPACT);
        if (out)
                dprintf(2, "%s\n", out);
}

static void say_bytes(const struct node_monitor *n, const char *level, const char *text, size_t len)
{
        struct timespec now;
        struct tm tm;
        char date[32], time[48];

        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &tm);
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(time, sizeof(time), "%s.%03dZ", date, (int)(now.tv_nsec / 1000000));
        write_record(n, time, level, "node", text, len);
}

static void say(const struct node_monitor *n, const char *level, const char *text)
{
        say_bytes(n, level, text, strlen(text));
}

/* @what: a process, which has ended with @status. */
static void say_ended(const struct node_monitor *n, const char *what, int status)
{
        char how[100], text[200];

        cg_proc_describe(status, how, sizeof(how));
        snprintf(text, sizeof(text), "%s has ended: %s", what, how);
        say(n, "error", text);
}

/* "TIME LEVEL FROM: TEXT" as cg_log() writes it, or anything. */
static void on_line(const struct node_monitor *n, const char *line, size_t len)
{
        char time[32], level[16], from[32];
        int at = 0;

        if (sscanf(line, "%31[0-9TZ:.-] %15[a-z] %31[a-z0-9 -]: %n", time, level, from, &at) == 3 && at)
                write_record(n, time, level, from, line + at, len - (size_t)at);
        else
                say_bytes(n, "warn", line, len);
}

/* At most what the pipe holds: other work must go on. */
static void read_log(struct node_monitor *n)
{
        char *end;
        char text[4096];
        ssize_t got;

        for (size_t all = 0; all < LOG_PIPE && (got = read(n->log, text, sizeof(text))) > 0;
             all += (size_t)got) {
                cg_buf_add(&n->line, text, (size_t)got);
                while (n->line.len && (end = memchr(n->line.data, '\n', n->line.len))) {
                        *end = '\0';
                        on_line(n, n->line.data, (size_t)(end - n->line.data));
                        cg_buf_consume(&n->line, (size_t)(end + 1 - n->line.data));
                }
                if (n->line.len > LINE_MAX_BYTES) { /* of no program of ours */
                        on_line(n, n->line.data, n->line.len);
                        cg_buf_clear(&n->line);
                }
        }
}

/* ------------------------------------------------------------------ figures */

static const struct {
        const char *name, *type, *help, *key;
        double scale;
} figures[] = {
        { "sessions", "gauge", "Open sessions.", "sessions", 1 },
        { "slots", "gauge", "Sessions that can be open at once.", "slots", 1 },
        { "spares", "gauge", "Sessions that are kept ready.", "spares", 1 },
        { "memory_bytes", "gauge", "Memory of all processes; shared pages count once.", "memory_bytes", 1 },
        { "memory_limits_bytes", "gauge", "Memory limits of open sessions, added up.", "limits_bytes", 1 },
        { "questions_waiting", "gauge", "Questions that wait for a client's answer.", "questions", 1 },
        { "draining", "gauge", "1: no more sessions open, and the node ends.", "draining", 1 },
        { "sessions_started_total", "counter", "Sessions that have opened.", "started", 1 },
        { "sessions_refused_total", "counter", "Sessions and connections refused: no slot, or draining.",
          "refused", 1 },
        { "session_start_seconds{quantile=\"0.5\"}", "summary", "From a client's request to the answer.",
          "start_p50_ms", 1e-3 },
        { "session_start_seconds{quantile=\"0.99\"}", NULL, NULL, "start_p99_ms", 1e-3 },
};

static void add_figures(const struct node_monitor *n, const json_t *status, struct cg_buf *b)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(figures); i++) {
                const json_t *v = json_object_get(status, figures[i].key);
                double value = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
                int bare = (int)strcspn(figures[i].name, "{");
                const char *labels = figures[i].name + bare;

                if (figures[i].type)
                        cg_buf_addf(b, "# HELP cellgate_%.*s %s\n# TYPE cellgate_%.*s %s\n", bare,
                                    figures[i].name, figures[i].help, bare, figures[i].name, figures[i].type);
                cg_buf_addf(b, "cellgate_%.*s", bare, figures[i].name);
                if (n->o->tenant && *labels)
                        cg_buf_addf(b, "{tenant=\"%s\",%s", n->o->tenant, labels + 1);
                else if (n->o->tenant)
                        cg_buf_addf(b, "{tenant=\"%s\"}", n->o->tenant);
                else
                        cg_buf_adds(b, labels);
                cg_buf_addf(b, " %.15g\n", value * figures[i].scale);
        }
}

static void renew_state(struct node_monitor *n)
{
        cg_auto_buf struct cg_buf b = { .max = sizeof(n->state.metrics) - 1 };
        cg_auto_json json_t *o = NULL;
        int64_t since = cg_now_ms();
        char *text = NULL;

        if (cg_client_status(n->client, &text, NULL) == 0)
                o = json_loads(text, 0, NULL);
        cg_free(text);
        n->state = (struct node_state){ .live = o != NULL };
        add_figures(n, o, &b);
        if (cg_buf_end(&b, NULL) == 0)
                memcpy(n->state.metrics, b.data, b.len);
        n->stale_ms = cg_now_ms();
        n->stale_ms += CG_MIN(CG_MAX((n->stale_ms - since) * STATUS_SHARE, FRESH_MS), STALE_MS);
}

static void answer_front(struct node_monitor *n)
{
        char byte;
        ssize_t got = recv(n->control, &byte, 1, MSG_DONTWAIT);

        if (got <= 0) {
                if (got == 0 || errno != EAGAIN)
                        cg_closep_(&n->control);
                return;
        }
        if (cg_now_ms() >= n->stale_ms)
                renew_state(n);
        n->state.ready = n->state.live && n->tested && !n->draining;
        send(n->control, &n->state, sizeof(n->state), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ------------------------------------------------------------------ processes */

static int start_front(struct node_monitor *n, struct cg_err *err)
{
        static const char *const argv[] = { "cellgate-node", "--front", NULL };
        int p[2];
        struct cg_proc_fd fds[] = {
                { -1, 0 }, { -1, 1 }, { n->log_to, 2 }, { -1, NODE_CONTROL }, { n->listener, NODE_LISTENER }
        };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-node"), argv, NULL, fds,
                                                .cwd = "/", .die_with_parent = true);
        int r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
                return cg_fail_errno(err, "socketpair");
        fds[3].fd = p[1];
        n->control = p[0];
        n->front_ms = cg_now_ms() + FRONT_MS;
        listen(n->listener, SOMAXCONN); /* the last front may have shut it down */
        r = cg_proc_spawn(&spec, &n->front, err);
        close(p[1]);
        if (r < 0)
                return cg_err_prefix(err, "--http");
        return 0;
}

/*
 * A dozen ways out of a kernel and out of a command, tried on this machine in two seconds. They
 * start in a new folder: the one that a command starts in is searched for files that it may not
 * write, and a service starts in /. Without ":freeze" the landlock tier refuses such commands.
 */
static int start_selftest(struct node_monitor *n, struct cg_err *err)
{
        char tier[32], folder[sizeof(n->dir) + 16];
        const char *const argv[] = { "cellgate",   "selftest", "--quiet", "--tier", tier,     "--only",
                                     "kernel-fo*", "--only",   "unix-*",  "--only", "proc-*", NULL };
        struct cg_proc_fd fds[] = { { -1, 0 }, { n->log_to, 1 }, { n->log_to, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_BINDIR "/cellgate"), argv, environ, fds,
                                                .cwd = folder);

        snprintf(tier, sizeof(tier), "%s%s", n->o->tier, strcmp(n->o->tier, "full") == 0 ? "" : ":freeze");
        snprintf(folder, sizeof(folder), "%s/selftest", n->dir);
        if (mkdir(folder, 0700) < 0)
                return cg_fail_errno(err, "%s", folder);
        return cg_proc_spawn(&spec, &n->selftest, err); /* it ends by itself, and removes its files */
}

static int wait_until_served(int fd, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        size_t len;
        int r = cg_read_fd_within(fd, "supervisor's answer", 65536, START_MS, &text, &len, err);

        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "the supervisor did not start within %d s",
                               START_MS / 1000);
        if (r < 0 || cg_json_object(text, len, "supervisor's answer", &o, err) < 0)
                return -1;
        if (json_is_true(json_object_get(o, "ready")))
                return 0;
        return cg_fail(err, CG_E_SYS, "the supervisor did not start: %s", cg_json_text_of(o, "error"));
}

static int start_supervisor(struct node_monitor *n, struct cg_err *err)
{
        const struct node_options *o = n->o;
        struct cg_client_options co = { .size = sizeof(co), .address = n->dir, .timeout_ms = STATUS_MS };
        char slots[16], client[16], memory[16], drain[24], spares[16], level[16];
        const char *argv[24] = { "cellgate-supervisor",
                                 "--dir",
                                 n->dir,
                                 "--slots",
                                 slots,
                                 "--client-slots",
                                 client,
                                 "--drain-ms",
                                 drain,
                                 "--spares",
                                 spares,
                                 "--log-level",
                                 level };
        cg_auto_free char *env = NULL;
        cg_auto_fd int ready = -1;
        size_t i = 13;
        int p[2], r;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { n->log_to, 2 }, { -1, 3 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-supervisor"), argv,
                                                environ, fds, .new_session = true, .die_with_parent = true);

        snprintf(slots, sizeof(slots), "%d", o->slots);
        snprintf(client, sizeof(client), "%d", o->client_slots);
        snprintf(memory, sizeof(memory), "%d", o->memory_mib);
        snprintf(drain, sizeof(drain), "%lld", (long long)o->drain_ms);
        snprintf(spares, sizeof(spares), "%d", o->spares);
        snprintf(level, sizeof(level), "%d", o->log_level);
        if (o->kernel_env && cg_kernel_env_find(o->kernel_env, &env, err) < 0)
                return -1;
        if (env) {
                argv[i++] = "--kernel-env";
                argv[i++] = env;
        }
        if (o->preload) {
                argv[i++] = "--preload";
                argv[i++] = o->preload;
        }
        if (o->memory_mib) {
                argv[i++] = "--memory";
                argv[i++] = memory;
        }
        if (cg_make_runtime_dir("cellgate", n->dir, sizeof(n->dir), err) < 0)
                return -1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
                return cg_fail_errno(err, "socketpair");
        ready = p[0];
        fds[3].fd = p[1];
        r = cg_proc_spawn(&spec, &n->supervisor, err);
        close(p[1]);
        if (r < 0 || wait_until_served(ready, err) < 0)
                return -1;
        if (cg_client_open(&co, &n->client, err) < 0)
                return -1;
        renew_state(n); /* the first count is short, while there are no sessions */
        return 0;
}

/* The link of a node that has ended is replaced. */
static int make_link(struct node_monitor *n, struct cg_err *err)
{
        const char *path = n->o->link;
        cg_auto_fd int other = -1;
        char name[128];
        struct stat st;

        snprintf(name, sizeof(name), "%s/life.sock", path);
        if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
                return cg_fail(err, CG_E_EXISTS, "--link %s: there is something else", path);
        if (cg_connect_unix_now(name, &other, NULL) == 0)
                return cg_fail(err, CG_E_EXISTS, "--link %s: another node is there", path);
        snprintf(name, sizeof(name), "%s.%d", path, (int)getpid());
        if (lstat(name, &st) == 0 && S_ISLNK(st.st_mode)) /* a node of this number was killed here */
                unlink(name);
        if (symlink(n->dir, name) < 0)
                return cg_fail_errno(err, "--link %s", name);
        if (rename(name, path) < 0) {
                cg_fail_errno(err, "--link %s", path);
                unlink(name);
                return err->code;
        }
        n->linked = true;
        return 0;
}

static int open_log(struct node_monitor *n, struct cg_err *err)
{
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0 || fcntl(p[0], F_SETFL, O_NONBLOCK) < 0)
                return cg_fail_errno(err, "pipe");
        fcntl(p[1], F_SETPIPE_SZ, LOG_PIPE); /* an ordinary user's share may be used up */
        n->log = p[0];
        n->log_to = p[1];
        return 0;
}

static int start(struct node_monitor *n, struct cg_err *err)
{
        char where[CG_AUTHORITY_MAX] = "";
        uint16_t port = n->o->port;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGCHLD);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
            (n->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
                return cg_fail_errno(err, "signals");
        if (open_log(n, err) < 0 ||
            (n->o->http && cg_listen_tcp("--http", &n->o->host, &port, &n->listener, err) < 0) ||
            start_supervisor(n, err) < 0 || (n->o->link && make_link(n, err) < 0) ||
            (n->o->http && start_front(n, err) < 0) || start_selftest(n, err) < 0)
                return -1;
        if (n->o->http)
                cg_host_authority(&n->o->host, port, 0, where, sizeof(where));
        printf("{\"node\": \"%s\", \"http\": \"%s\"}\n", n->dir, where);
        if (fflush(stdout))
                return cg_fail_errno(err, "standard output");
        return 0;
}

/* ------------------------------------------------------------------ the loop */

static void on_signal(struct node_monitor *n)
{
        struct signalfd_siginfo info;

        while (read(n->signals, &info, sizeof(info)) == sizeof(info)) {
                if (info.ssi_signo == SIGCHLD) {
                        /* Orphans of clients: this may be the first process of a container. */
                        const pid_t own[] = { n->supervisor.pid, n->selftest.pid, n->front.pid };

                        cg_proc_reap_children(own, CG_ARRAY_LEN(own));
                        continue;
                }
                n->draining = true;
                n->stale_ms = 0;
                cg_pidfd_kill(n->supervisor.pidfd, (int)info.ssi_signo);
        }
}

static void on_selftest(struct node_monitor *n)
{
        int status = 0;

        if (cg_proc_wait(&n->selftest, 0, &status, NULL) != 0)
                return;
        n->selftest = CG_PROC_NONE;
        read_log(n); /* what it has found */
        n->tested = status == 0;
        if (!n->tested)
                say(n, "error",
                    "not ready: attempts to get out of a sandbox of this machine have succeeded or could not "
                    "be made (`cellgate selftest`)");
}

static void on_front(struct node_monitor *n)
{
        struct cg_err err;
        int status = 0;

        if (n->front.pidfd >= 0 && cg_proc_wait(&n->front, 0, &status, NULL) == 0) {
                n->front = CG_PROC_NONE;
                cg_closep_(&n->control);
                say_ended(n, "the process that answers --http", status);
        }
        if (n->o->http && n->front.pidfd < 0 && cg_now_ms() >= n->front_ms && start_front(n, &err) < 0)
                say(n, "error", err.msg);
}

/* Until the supervisor has ended: its exit status. */
static int loop(struct node_monitor *n)
{
        int status;

        for (;;) {
                struct pollfd fds[] = { { n->signals, POLLIN, 0 },
                                        { n->supervisor.pidfd, POLLIN, 0 },
                                        { n->log, POLLIN, 0 },
                                        { n->control, POLLIN, 0 },
                                        { n->selftest.pidfd, POLLIN, 0 },
                                        { n->front.pidfd, POLLIN, 0 } };

                poll(fds, CG_ARRAY_LEN(fds), n->o->http && n->front.pidfd < 0 ? FRONT_MS : -1);
                read_log(n);
                on_signal(n);
                if (cg_proc_wait(&n->supervisor, 0, &status, NULL) == 0) {
                        n->supervisor = CG_PROC_NONE;
                        return status;
                }
                if (n->selftest.pidfd >= 0)
                        on_selftest(n);
                if (n->control >= 0)
                        answer_front(n);
                on_front(n);
        }
}

int cg_node_run(const struct node_options *o)
{
        struct node_monitor n = { .o = o,
                                  .supervisor = CG_PROC_NONE,
                                  .selftest = CG_PROC_NONE,
                                  .front = CG_PROC_NONE,
                                  .log = -1,
                                  .log_to = -1,
                                  .line = { .max = 2 * LINE_MAX_BYTES },
                                  .signals = -1,
                                  .listener = -1,
                                  .control = -1 };
        struct cg_err err;
        int r = start(&n, &err), status = -1;

        if (r == 0)
                status = loop(&n);
        else
                say(&n, "error", err.msg);
        cg_proc_end(&n.selftest, false, 5000); /* it removes its files */
        cg_proc_end(&n.front, false, 0);
        cg_client_close(n.client);
        cg_proc_end(&n.supervisor, false, 5000);
        if (n.log >= 0)
                read_log(&n);
        if (r == 0 && (status || !n.draining))
                say_ended(&n, "the supervisor", status);
        if (n.linked)
                unlink(o->link);
        if (n.dir[0])
                cg_remove_tree(n.dir, NULL);
        cg_buf_fini(&n.line);
        return r < 0 || status || !n.draining;
}
