/*
 * cellgate-relay: one side of a connection to a supervisor on another machine. See relay.h.
 *
 * `cellgate-relay`, which is `cellgate relay`: the node's side. The link is standard input and
 * output. Starts a supervisor that ends with this process, or uses that of the node (`cellgate
 * node`) whose folder CELLGATE_NODE names.
 * `cellgate-relay host OPTIONS COMMAND...`, started by libcellgate: descriptors 0 and 1 are the
 * library's ends of lifeline and host wire, 2 the log, 3 gets {"ready": true, "node": {...}} or
 * {"error", "code"}. The link is the standard input and output of COMMAND.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/proc.h"
#include "base/user_env.h"
#include "base/util.h"
#include "base/wire.h"
#include "config.h"
#include "relay/relay.h"

extern char **environ;

/* For the host's line: it is sent when COMMAND has started. */
#define LINE_MS 60000
/* The supervisor ends so long after its relay. */
#define LINGER_MS 1
/* For COMMAND to end, once its input has. */
#define COMMAND_MS 10000
/* Descriptors of `host`. */
enum { LIFE_FD, WIRE_FD, LOG_FD, READY_FD };

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
        return cg_connect_unix(path, 5000, ret, err);
}

/* Connects to the supervisor of a node, which is this user's. */
static int join(const char *dir, const json_t *o, int *life, int *wire, struct cg_err *err)
{
        struct ucred cred;
        socklen_t len = sizeof(cred);

        if (json_is_string(json_object_get(o, "kernel_env")) || json_is_string(json_object_get(o, "preload")))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "the environment and the preloaded modules of kernels are those of `cellgate "
                               "node`");
        if (strlen(dir) > 80)
                return cg_fail(err, CG_E_LIMIT, "CELLGATE_NODE is longer than 80 bytes");
        if (connect_in(dir, "life.sock", life, err) < 0 || connect_in(dir, "host.sock", wire, err) < 0)
                return cg_err_prefix(err, "no node at CELLGATE_NODE");
        if (getsockopt(*life, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != geteuid())
                return cg_fail(err, CG_E_INVAL, "the node at %s is another user's", dir);
        return 0;
}

/* Starts a supervisor for the host's options and connects to it. */
static int start(const json_t *o, int *life, int *wire, struct cg_err *err)
{
        struct cg_client_options co = { .size = sizeof(co), .start = 1, .linger_ms = LINGER_MS, .log_fd = 2 };
        struct cg_client *client = NULL;
        char dir[128], lock[160];
        int64_t level, spares;
        bool no_spare;
        int r;

        if ((r = cg_json_str(o, "kernel_env", NULL, &co.kernel_env, err)) < 0 ||
            (r = cg_json_str(o, "preload", NULL, &co.preload, err)) < 0 ||
            (r = cg_json_int(o, "log_level", 0, &level, err)) < 0 ||
            (r = cg_json_int(o, "spares", 0, &spares, err)) < 0 ||
            (r = cg_json_bool(o, "no_spare", false, &no_spare, err)) < 0 ||
            (r = cg_make_runtime_dir("cellgate", dir, sizeof(dir), err)) < 0)
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

static int answer(const struct cg_link *r, struct cg_err *err)
{
        json_t *o = versions();
        char here[PATH_MAX];
        const char *cwd = getcwd(here, sizeof(here));

        json_object_set_new(o, "cwd", json_string(cwd ?: "/"));
        json_object_set_new(o, "user_env", cg_user_env(environ, cwd));
        return cg_link_send_line(r, o, err);
}

static int node(struct cg_err *err)
{
        cg_auto_link struct cg_link r = { .host = false, .in = 0, .out = 1 };
        cg_auto_json json_t *o = NULL;
        const char *dir = getenv("CELLGATE_NODE");
        int life = -1, wire = -1, code;

        code = cg_link_read_line(&r, -1, LINE_MS, &o, err);
        if (code < 0)
                return code;
        if ((code = check_versions(o, "the node", "the host", err)) < 0 ||
            (code = dir && *dir ? join(dir, o, &life, &wire, err) : start(o, &life, &wire, err)) < 0) {
                json_t *failed = versions();

                json_object_set_new(failed, "code", json_integer(code));
                json_object_set_new(failed, "error", json_string(err->msg));
                cg_link_send_line(&r, failed, NULL);
                cg_closep_(&life);
                cg_closep_(&wire);
                return 0; /* the host says it */
        }
        code = answer(&r, err);
        if (code < 0)
                return code;
        return cg_link_run(&r, life, wire, err);
}

/* ------------------------------------------------------------------ beside the host */

static int spawn(char **words, struct cg_link *r, struct cg_proc *proc, struct cg_err *err)
{
        int to[2] = { -1, -1 }, from[2] = { -1, -1 }, code;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { LOG_FD, 2 } };
        struct cg_proc_spec spec = { .path = words[0],
                                     .search_path = getenv("PATH") ?: "/usr/bin:/bin",
                                     .argv = words,
                                     .envp = environ,
                                     .fds = fds,
                                     .n_fds = CG_ARRAY_LEN(fds),
                                     .die_with_parent = true };

        if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        fds[0].fd = to[0];
        fds[1].fd = from[1];
        code = cg_proc_spawn(&spec, proc, err);
        close(to[0]);
        close(from[1]);
        r->out = to[1];
        r->in = from[0];
        return code < 0 ? cg_err_prefix(err, "%s", words[0]) : 0;
}

/* Exchanges first lines, and reports to the library. */
static int greet(struct cg_link *r, const char *options, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL, *node = NULL;
        cg_auto_free char *text = NULL;
        size_t len;
        int code = cg_json_object(options, strlen(options), "options", &o, err);

        if (code < 0)
                return code;
        json_object_update_new(o, versions());
        code = cg_link_send_line(r, json_incref(o), err);
        /* What has ended already may have said why. */
        if ((code < 0 && err->sys_errno != EPIPE) ||
            (code = cg_link_read_line(r, LIFE_FD, INT32_MAX, &node, err)) < 0)
                return code;
        if (json_object_get(node, "error"))
                return cg_fail(err, CG_MIN((int)json_integer_value(json_object_get(node, "code")), -1),
                               "the node: %.800s", cg_json_text_of(node, "error"));
        code = check_versions(node, "this host", "the node", err);
        if (code < 0)
                return code;
        json_decref(o);
        o = json_pack("{s:b, s:O}", "ready", true, "node", node);
        text = cg_json_text(o, &len);
        return text ? cg_write_all(READY_FD, text, len, err) : cg_fail(err, CG_E_NOMEM, "node");
}

static int host(const char *options, char **words, struct cg_err *err)
{
        cg_auto_link struct cg_link r = { .host = true, .in = -1, .out = -1 };
        struct cg_proc proc = CG_PROC_NONE;
        cg_auto_json json_t *failed = NULL;
        cg_auto_free char *text = NULL;
        size_t len;
        int code = spawn(words, &r, &proc, err), ended;

        if (code == 0)
                code = greet(&r, options, err);
        if (code < 0) {
                failed = json_pack("{s:i, s:s}", "code", code, "error", err->msg);
                text = cg_json_text(failed, &len);
                if (text)
                        cg_write_all(READY_FD, text, len, NULL);
        }
        close(READY_FD);
        ended = code < 0 ? 0 : cg_link_run(&r, LIFE_FD, WIRE_FD, err);
        cg_closep_(&r.in);
        cg_closep_(&r.out);
        if (proc.pidfd >= 0 && cg_proc_wait(&proc, code || ended ? 0 : COMMAND_MS, NULL, NULL) != 0)
                cg_proc_end(&proc, false, 1000);
        return ended; /* the library says why it could not start */
}

int main(int argc, char **argv)
{
        struct cg_err err;
        int r;

        signal(SIGPIPE, SIG_IGN);
        if (argc > 3 && strcmp(argv[1], "host") == 0)
                r = host(argv[2], argv + 3, &err);
        else if (argc == 1)
                r = node(&err);
        else
                r = cg_fail(&err, CG_E_INVAL, "it takes no arguments: see --help");
        if (r < 0)
                fprintf(stderr, "cellgate relay: %s\n", err.msg);
        return r < 0;
}
