/*
 * `cellgate selftest` in kernels. One session has the scene's settings, and runs the program that a
 * command's sandbox runs; another has the default policy and an MCP server, and tries from within
 * its process what only a kernel can try (python_stubs/cellgate_kernel/ selftest.py). This process
 * is the host of both: it decides about calls by their text, and checks which calls reached the
 * tool.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "base/wire.h"
#include "cli/common/cli.h"
#include "selftest/host/selftest.h"
#include "config.h"

#define MAX_HELPER (32u << 20)
#define MAX_OUT    (1u << 20)
#define EVENT_MS   60000
#define CELL_MS    120000

/*
 * Name, layer, who succeeds without it (enum cg_bare), expected number of calls of the tool,
 * whether an approval request is expected, Python, and description. F(wire, message, body, raw)
 * forges a message; the numbers of messages come from the wires' own tables.
 */
#define KERNEL_ATTEMPTS(X) \
        X("kernel-call-allowed", "", "none", 1, 1, "selftest.allowed", "a tool call that the host approves") \
        X("kernel-call-refused", "approval", "all", 0, 1, "selftest.refused", \
          "a tool call that the host refuses") \
        X("kernel-call-raw", "approval", "all", 0, 1, "selftest.raw", "the same past the generated modules") \
        X("kernel-call-twice", "approval", "all", 1, 1, "selftest.again", \
          "an approval used for a second call") \
        X("kernel-call-changed", "approval", "none", 1, 1, "selftest.changed", \
          "arguments changed after the question") \
        X("kernel-bad-server", "approval", "none", 0, 0, \
          "selftest.bad('nosuch', 'mark', b'{\"text\": \"allow:@NAME@\"}')", \
          "a server that the host did not define") \
        X("kernel-bad-tool", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'nosuch', b'{\"text\": \"allow:@NAME@\"}')", \
          "a tool that the server does not list") \
        X("kernel-bad-tool-newline", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark\\n', b'{\"text\": \"allow:@NAME@\"}')", \
          "a tool's name with more behind it") \
        X("kernel-bad-two-objects", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{} {\"text\": \"allow:@NAME@\"}')", "two objects as arguments") \
        X("kernel-bad-smuggled", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{}\\n{\"jsonrpc\": \"2.0\", \"id\": 9, \"method\": \"tools/call\"}')", \
          "a second request behind the arguments") \
        X("kernel-bad-members", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{\"text\": \"allow:@NAME@\"}, \"name\": \"x\"')", \
          "members of the request behind the arguments") \
        X("kernel-bad-depth", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{\"text\": ' + b'[' * 100000)", "arguments as deep as a stack") \
        X("kernel-bad-number", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{\"text\": ' + b'9' * 5000 + b'}')", \
          "a number that hosts cannot read") \
        X("kernel-bad-surrogate", "approval", "none", 0, 0, \
          "selftest.bad('canary', 'mark', b'{\"text\": \"allow:@NAME@\\\\ud800\"}')", \
          "text that hosts cannot print") \
        X("kernel-forge-decision", "wire", "none", 0, 1, "F(1, DECISION, b'{\"accept\":true}')", \
          "the host's decision, forged") \
        X("kernel-forge-ask-decision", "wire", "none", 0, 1, "F(4, ASK_DECISION, b'{\"accept\":true}')", \
          "the supervisor's decision, forged") \
        X("kernel-forge-result", "wire", "none", 0, 1, "F(3, CALL_RESULT, b'{\"status\":\"ok\"}', b'{}')", \
          "the tool server's result, forged") \
        X("kernel-forge-servers", "wire", "none", 0, 1, "F(1, SERVERS_ADD, b'{\"servers\":{}}')", \
          "an MCP server of its own, defined to the supervisor") \
        X("kernel-forge-broker", "wire", "none", 0, 1, "F(4, SERVERS, b'{\"servers\":{}}')", \
          "the same, to the tool server") \
        X("kernel-forge-cell", "wire", "none", 0, 1, "F(1, EXECUTE, b'{}', b'print(1)')", \
          "a cell of another session") \
        X("kernel-forge-egress", "wire", "none", 0, 1, \
          "F(1, EGRESS_DECISION, b'{\"decision\":\"session\"}')", "a decision about the network, forged") \
        X("kernel-forge-version", "wire", "none", 0, 1, "selftest.forge(selftest.message(9, 2, 12))", \
          "a message of another version") \
        X("kernel-forge-unknown", "wire", "none", 0, 1, "F(2, 4242)", "an unknown message") \
        X("kernel-forge-garbage", "wire", "none", 0, 1, "selftest.forge(b'\\xff' * 1000)", "garbage") \
        X("kernel-forge-endless", "wire", "none", 0, 1, \
          "selftest.forge(bytes([2]) + (2**60).to_bytes(8, 'big') + b'x')", "a message without an end") \
        X("kernel-modules", "mount|landlock", "all", 0, 0, "selftest.modules", \
          "changing the modules that stand for tools") \
        X("kernel-runtime", "mount|landlock", "root", 0, 0, "selftest.runtime", \
          "changing the Python that later kernels run") \
        X("kernel-packages", "mount|landlock", "machine", 0, 0, "selftest.site", \
          "changing the packages that later kernels import") \
        X("kernel-server-program", "mount|landlock", "all", 0, 0, "selftest.server_program", \
          "changing the program of an MCP server, which lies in the workspace") \
        X("kernel-folders", "mount", "all", 0, 0, "selftest.folders", "the sockets of supervisors") \
        X("kernel-descriptors", "descriptors", "none", 0, 0, "selftest.descriptors", \
          "files that somebody else had open") \
        X("kernel-processes", "pid", "all", 0, 0, "selftest.others", "zygote, supervisor and other kernels") \
        X("kernel-kill-init", "pid|landlock", "none", 0, 0, "selftest.kill_init", "ending pid 1") \
        X("kernel-host-memory", "environment", "none", 0, 0, "selftest.in_memory(PATTERN)", \
          "the host's environment, in memory") \
        X("kernel-other-session", "mount", "all", 0, 0, "selftest.private_file(OTHER)", \
          "another session's /tmp") \
        X("kernel-own-tmp", "mount", "all", 0, 0, "selftest.own_file(OWN)", "the host's /tmp")

struct attempt {
        const char *python;
        unsigned marks;
        bool may_ask;
};

static const struct cg_attempt_line kernel_lines[] = {
#define X(n, l, b, m, a, p, w) \
        { .name = n, \
          .group = "in a kernel", \
          .layer = l, \
          .bare = b, \
          .what = w, \
          .allow = sizeof(l) == 1, \
          .kernel = true },
        KERNEL_ATTEMPTS(X)
#undef X
};
const struct cg_attempt_table cg_attempts_kernel = { kernel_lines, CG_ARRAY_LEN(kernel_lines) };

static const struct attempt attempts[] = {
#define X(n, l, b, m, a, p, w) { .python = p, .marks = m, .may_ask = a },
        KERNEL_ATTEMPTS(X)
#undef X
};

struct host {
        struct cg_scene *scene;
        struct cg_attempt_list *list;
        struct cg_report *report;
        int signals;
        /*
         * of the program that a command's sandbox runs as well: "kernel", or "default" for one
         * without settings
         */
        const char *where;
        struct cg_session *session;
        /* of the cell that runs */
        struct cg_buf out;
        char died[600], error[600];
        unsigned asked, once;
        uint64_t later, waiting;
        void (*on_text)(struct host *h);
};

/* ---- one cell */
static void decide(struct host *h, uint64_t approval, bool yes)
{
        if (yes)
                cg_approval_accept(h->session, approval, NULL);
        else
                cg_approval_reject(h->session, approval, "selftest", NULL);
}

/* The prefix of a call's text selects the decision; calls without one are refused. */
static void on_approval(struct host *h, const struct cg_event *e)
{
        size_t len;
        const char *args = cg_event_arguments(e, &len), *text;
        cg_auto_json json_t *o = NULL;

        h->asked++;
        text = cg_json_object(args, len, "arguments", &o, NULL) == 0
                       ? json_string_value(json_object_get(o, "text"))
                       : NULL;
        if (text && strncmp(text, "later:", 6) == 0)
                h->later = cg_event_approval(e);
        else if (text && strncmp(text, "wait:", 5) == 0)
                h->waiting = cg_event_approval(e);
        else
                decide(h, cg_event_approval(e),
                       h->scene->bare || !text ? h->scene->bare
                                               : (strncmp(text, "allow:", 6) == 0 ||
                                                  (strncmp(text, "once:", 5) == 0 && h->once++ == 0)));
}

static void on_stream(struct host *h, const struct cg_event *e)
{
        size_t len;
        const char *text = cg_event_text(e, &len);

        if (cg_event_is_stderr(e)) {
                snprintf(h->error, sizeof(h->error), "%.*s", (int)(len < 500 ? len : 500), text);
                return;
        }
        cg_buf_add(&h->out, text, len, NULL);
        if (h->later && h->out.data && strstr(h->out.data, "changed\n")) {
                decide(h, h->later, true);
                h->later = 0;
        }
        if (h->on_text)
                h->on_text(h);
}

static void on_error(struct host *h, const struct cg_event *e)
{
        size_t len;
        const char *text = cg_event_json(e, &len);
        cg_auto_json json_t *o = NULL;
        const char *name = NULL, *value = NULL;

        if (cg_json_object(text, len, "error", &o, NULL) == 0 &&
            cg_json_str(o, "ename", "", &name, NULL) == 0 && cg_json_str(o, "evalue", "", &value, NULL) == 0)
                snprintf(h->error, sizeof(h->error), "%.100s: %.400s", name, value);
}

/* 1: the cell has ended. */
static int on_event(struct host *h, const struct cg_event *e)
{
        size_t len;

        switch (cg_event_type(e)) {
        case CG_EVENT_APPROVAL_REQUEST:
                on_approval(h, e);
                return 0;
        case CG_EVENT_STREAM:
                on_stream(h, e);
                return 0;
        case CG_EVENT_ERROR:
                on_error(h, e);
                return 0;
        case CG_EVENT_RESULT:
                /* Not CG_EVENT_KERNEL_DIED: that may come when the next cell runs already. */
                if (cg_event_status(e) == CG_STATUS_KERNEL_DIED)
                        snprintf(h->died, sizeof(h->died), "%s", cg_event_text(e, &len));
                return 1;
        default:
                return 0;
        }
}

static int next_event(const struct host *h, struct cg_event **ret, struct cg_err *err)
{
        int r = cg_session_next_event(h->session, 0, ret, err);

        while (r == CG_TIMEOUT) {
                struct pollfd fds[] = { { .fd = cg_session_fd(h->session), .events = POLLIN },
                                        { .fd = h->signals, .events = POLLIN } };
                int n = poll(fds, CG_ARRAY_LEN(fds), EVENT_MS);

                if (n == 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "the kernel said nothing for a minute");
                if (fds[1].revents)
                        return cg_fail(err, CG_E_CLOSED, "interrupted");
                r = cg_session_next_event(h->session, 0, ret, err);
        }
        return r == CG_CLOSED ? cg_fail(err, CG_E_CLOSED, "the session ended") : r;
}

static int run_cell(struct host *h, const char *code, struct cg_err *err)
{
        const struct cg_execute_options opts = { .size = sizeof(opts), .timeout_ms = CELL_MS };
        int over = 0;

        cg_buf_fini(&h->out);
        cg_buf_init(&h->out, MAX_OUT);
        h->died[0] = h->error[0] = '\0';
        h->asked = h->once = 0;
        h->later = h->waiting = 0;
        if (cg_session_execute(h->session, code, strlen(code), &opts, NULL, err) < 0)
                return -1;
        while (!over) {
                struct cg_event *e = NULL;

                if (next_event(h, &e, err) < 0)
                        return -1;
                over = on_event(h, e);
                cg_event_free(e);
        }
        if (h->waiting)
                decide(h, h->waiting, false);
        return 0;
}

/* ---- the program inside, which also runs in a command's sandbox */
static int copy_helper(const struct cg_scene *s, struct cg_err *err)
{
        cg_auto_free char *program = NULL;
        char path[PATH_MAX];
        cg_auto_fd int fd = -1;
        size_t len;

        if (cg_read_file(CG_SELFTEST_HELPER, MAX_HELPER, &program, &len, err) < 0)
                return -1;
        fd = open(cg_scene_path(s, "work/cellgate-selftest", path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0755);
        return fd < 0 ? cg_fail_errno(err, "%s", path) : cg_write_all(fd, program, len, err);
}

/* The scene with this session's layers: the first line of each name counts. */
static int write_scene(struct host *h, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = 32768 };
        cg_auto_json json_t *o = NULL;
        const char *info = cg_session_info(h->session);
        char path[PATH_MAX];
        cg_auto_fd int fd = open(cg_scene_path(h->scene, "work/scene", path),
                                 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        json_t *layer;
        size_t i;
        int r;

        if (fd < 0)
                return cg_fail_errno(err, "%s", path);
        if (cg_json_object(info, strlen(info), "session", &o, err) < 0)
                return -1;
        r = cg_buf_adds(&text, "layers=", err);
        json_array_foreach(json_object_get(o, "layers"), i, layer)
        {
                if (r == 0 && json_is_string(layer))
                        r = cg_buf_addf(&text, err, "%s ", json_string_value(layer));
        }
        if (r == 0)
                r = cg_buf_addf(&text, err, "proxy environment descriptors session\n%s", h->scene->text.data);
        return r == 0 ? cg_write_all(fd, text.data, text.len, err) : r;
}

/* Reports the complete lines that have come so far. */
static void take_lines(struct host *h)
{
        char *eol;

        while (h->out.len && (eol = memchr(h->out.data, '\n', h->out.len))) {
                size_t n = (size_t)(eol + 1 - h->out.data);

                *eol = '\0';
                if (cg_report_take(h->report, h->list, h->where, h->out.data) < 0)
                        snprintf(h->error, sizeof(h->error), "the attempts said something else: %.100s",
                                 h->out.data);
                cg_buf_consume(&h->out, n);
        }
}

static int run_helper(struct host *h, struct cg_err *err)
{
        cg_auto_buf struct cg_buf code = { .max = 65536 };
        int r = cg_buf_adds(
                &code, "import subprocess\nsubprocess.run(['./cellgate-selftest', 'scene', 'kernel'", err);

        for (size_t i = 0; i < h->list->n && r == 0; i++) {
                if (h->list->v[i].due)
                        r = cg_buf_addf(&code, err, ", '%s'", h->list->v[i].name);
        }
        if (r < 0 || cg_buf_adds(&code, "], stdin=subprocess.DEVNULL).returncode", err) < 0)
                return -1;
        h->on_text = take_lines;
        r = run_cell(h, code.data, err);
        h->on_text = NULL;
        return r;
}

/*
 * If the scene is in a folder that kernels have a private copy of, only its workspace exists
 * inside: denials would prove nothing.
 */
static void skip_what_is_not_there(struct host *h)
{
        if (strncmp(h->scene->dir, "/tmp/", 5) != 0 && strncmp(h->scene->dir, "/var/tmp/", 9) != 0)
                return;
        for (size_t i = 0; i < h->list->n; i++) {
                struct cg_attempt_line *a = &h->list->v[i];

                if (!a->due || strcmp(a->group, "files outside") != 0)
                        continue;
                a->due = false;
                cg_report_line(h->report, a, "kernel", CG_OUT_SKIP,
                               "kernels have a /tmp of their own, and HOME, where the scene would "
                               "be seen, cannot be written");
        }
}

/* Makes the due attempts in a new session. */
static int run_session(struct host *h, struct cg_client *client, const char *settings, const char *where,
                       struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts) };
        char work[PATH_MAX];
        struct cg_err problem = { 0 };
        int r;

        if (copy_helper(h->scene, err) < 0)
                return -1;
        h->where = where;
        opts.workspace = cg_scene_path(h->scene, "work", work);
        opts.settings = settings;
        if (cg_session_new(client, &opts, &h->session, err) < 0)
                return -1;
        skip_what_is_not_there(h);
        r = write_scene(h, err);
        if (r == 0 && run_helper(h, &problem) < 0)
                cg_report_missing(h->report, h->list, where, problem.msg);
        else if (r == 0)
                cg_report_missing(h->report, h->list, where,
                                  h->died[0]    ? h->died
                                  : h->error[0] ? h->error
                                                : "it was not made");
        h->session = cg_session_free(h->session);
        return r;
}

static int with_settings(struct host *h, struct cg_client *client, struct cg_err *err)
{
        cg_auto_free char *settings = NULL;
        char path[PATH_MAX];
        size_t len;

        if (cg_attempts_due(h->list, true) == 0)
                return 0;
        if (cg_read_file(cg_scene_path(h->scene, "settings.json", path), 65536, &settings, &len, err) < 0)
                return -1;
        return run_session(h, client, settings, "kernel", err);
}

/* Names are protected in a kernel that has no settings, too. */
static int without_settings(struct host *h, struct cg_client *client, struct cg_err *err)
{
        size_t n = 0;

        cg_attempts_due(h->list, true);
        for (size_t i = 0; i < h->list->n; i++) {
                h->list->v[i].due &= strcmp(h->list->v[i].group, "names") == 0;
                n += h->list->v[i].due;
        }
        return n ? run_session(h, client, NULL, "default", err) : 0;
}

/* ---- from within the process */
static int add_server(struct host *h, struct cg_err *err)
{
        char marks[PATH_MAX], script[PATH_MAX];
        /* The script is in the workspace: it must become read-only. */
        cg_auto_json json_t *o = json_pack(
                "{s:{s:s, s:[s,s,s,s], s:{s:s}}}", "canary", "command", "/bin/sh", "args",
                cg_scene_path(h->scene, "work/server/run.sh", script), "selftest", "--mcp-server",
                cg_scene_path(h->scene, "marks", marks), "env", "CELLGATE_SELFTEST_SECRET", h->scene->secret);
        cg_auto_free char *text = NULL;
        size_t len;

        text = o ? cg_json_text(o, &len) : NULL;
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        return cg_session_add_mcp_servers(h->session, text, len, 0, NULL, err);
}

/* Number of calls that reached the tool with this name. */
static unsigned count_marks(const struct host *h, const char *name)
{
        cg_auto_free char *text = NULL;
        char path[PATH_MAX];
        unsigned n = 0;
        size_t len;

        if (cg_read_file(cg_scene_path(h->scene, "marks", path), MAX_OUT, &text, &len, NULL) < 0)
                return 0;
        for (const char *p = text; (p = strstr(p, name)); p += strlen(name))
                n += p > text && p[-1] == ':' && p[strlen(name)] == '\n';
        return n;
}

/* The report of the cell itself counts only if nothing else shows a hole. */
static void judge(struct host *h, const struct cg_attempt_line *a, const struct attempt *try,
                  const char *own_tmp)
{
        char *line = h->out.len ? strrchr(h->out.data, '\t') : NULL, note[700] = "";
        unsigned marks = count_marks(h, a->name);
        enum cg_outcome good = a->allow ? CG_OUT_WORKS : CG_OUT_HELD,
                        bad = a->allow ? CG_OUT_FAILS : CG_OUT_HOLE, o = CG_OUT_FAILS;

        if (marks != try->marks) {
                snprintf(note, sizeof(note), "the tool was reached %u times, where %u is right", marks,
                         try->marks);
                o = bad;
        } else if (h->asked && !try->may_ask) {
                snprintf(note, sizeof(note), "the host was asked about it");
                o = bad;
        } else if (unlink(own_tmp) == 0) {
                snprintf(note, sizeof(note), "%s is on the host", own_tmp);
                o = bad;
        } else if (h->died[0]) {
                /*
                 * A kernel that breaks a wire's rules is ended; otherwise the attempt was not made.
                 */
                snprintf(note, sizeof(note), "%s", h->died);
                o = strcmp(a->layer, "wire") == 0 ? CG_OUT_HELD : CG_OUT_FAILS;
        } else if (!line) {
                snprintf(note, sizeof(note), "%s", h->error[0] ? h->error : "it was not made");
        } else {
                snprintf(note, sizeof(note), "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
                *line = '\0';
                line = strrchr(h->out.data, '\n') ? strrchr(h->out.data, '\n') + 1 : h->out.data;
                o = strcmp(line, a->allow ? "works" : "held") == 0 ? good
                    : strcmp(line, "hole") == 0                    ? CG_OUT_HOLE
                                                                   : CG_OUT_FAILS;
        }
        cg_report_line(h->report, a, "kernel", o, note);
}

/*
 * A file that another session writes into its /tmp. The name is new in each run, since without a
 * sandbox it is in the real /tmp.
 */
static void other_file(const struct host *h, char path[64])
{
        snprintf(path, 64, "/tmp/cellgate-selftest-%.16s-other", h->scene->secret);
}

static int run_python(struct host *h, const struct cg_attempt_line *a, const struct attempt *try,
                      struct cg_err *err)
{
        cg_auto_buf struct cg_buf code = { .max = 65536 };
        char own[64], other[64];
        size_t last = strlen(h->scene->secret) - 1;

        snprintf(own, sizeof(own), "/tmp/cellgate-selftest-%.16s", h->scene->secret);
        other_file(h, other);
        /* The pattern does not match itself in memory: its last letter is a set. */
        if (cg_buf_addf(
                    &code, err,
                    "from cellgate_kernel import selftest\n"
                    "OWN, OTHER, PATTERN = '%s', '%s', 'SELFTEST_SECRE[T]=%.*s[%c]'\n"
                    "DECISION, ASK_DECISION, CALL_RESULT, SERVERS_ADD, SERVERS, EXECUTE, EGRESS_DECISION = %d, %d, %d, %d, %d, %d, %d\n"
                    "def F(wire, kind, *more): return selftest.forge(selftest.message(%d, wire, kind, *more))\n"
                    "selftest.run('%s', %s)\n",
                    own, other, (int)last, h->scene->secret, h->scene->secret[last], CG_HOST_DECISION,
                    CG_BROKER_ASK_DECISION, CG_TOOL_CALL_RESULT, CG_HOST_SERVERS_ADD, CG_BROKER_SERVERS,
                    CG_HOST_EXECUTE, CG_HOST_EGRESS_DECISION, CG_WIRE_VERSION, a->name, try->python) < 0)
                return -1;
        if (run_cell(h, code.data, err) < 0)
                return -1;
        judge(h, a, try, own);
        return 0;
}

static bool any_wanted(const struct cg_attempt_list *l)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(attempts); i++) {
                if (cg_attempt_named(l, kernel_lines[i].name)->wanted)
                        return true;
        }
        return false;
}

/* Not made without a sandbox, where it would succeed. */
static bool is_harmful(const struct cg_attempt_line *a)
{
        return strcmp(a->name, "kernel-kill-init") == 0;
}

/* A second session with a file that the first must not see. */
static int other_session(struct host *h, struct cg_client *client, struct cg_session **ret,
                         struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts) };
        struct host other = { .scene = h->scene, .signals = h->signals };
        char path[PATH_MAX], file[64], code[128];
        int r;

        opts.workspace = cg_scene_path(h->scene, "other", path);
        opts.sandbox = h->scene->bare ? CG_SANDBOX_OFF : CG_SANDBOX_ON;
        if (mkdir(path, 0755) < 0)
                return cg_fail_errno(err, "%s", path);
        if (cg_session_new(client, &opts, ret, err) < 0)
                return -1;
        other.session = *ret;
        other_file(h, file);
        snprintf(code, sizeof(code), "open('%s', 'w').write('x')", file);
        r = run_cell(&other, code, err);
        cg_buf_fini(&other.out);
        return r;
}

static int from_within(struct host *h, struct cg_client *client, struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts) };
        struct cg_session *other = NULL;
        char path[PATH_MAX], file[64];
        int r;

        if (!any_wanted(h->list))
                return 0;
        opts.workspace = cg_scene_path(h->scene, "work", path);
        opts.sandbox = h->scene->bare ? CG_SANDBOX_OFF : CG_SANDBOX_ON;
        if (cg_session_new(client, &opts, &h->session, err) < 0)
                return -1;
        r = add_server(h, err) < 0 ? -1 : other_session(h, client, &other, err);
        for (size_t i = 0; i < CG_ARRAY_LEN(attempts) && r == 0; i++) {
                const struct cg_attempt_line *a = cg_attempt_named(h->list, kernel_lines[i].name);

                if (a->wanted && h->scene->bare && is_harmful(a))
                        cg_report_line(h->report, a, "kernel", CG_OUT_SKIP,
                                       "without a sandbox it would do harm");
                else if (a->wanted)
                        r = run_python(h, a, &attempts[i], err);
        }
        other_file(h, file);
        if (h->scene->bare)
                unlink(file);
        cg_session_free(other);
        h->session = cg_session_free(h->session);
        return r;
}

int cg_selftest_kernel(struct cg_scene *s, struct cg_attempt_list *l, struct cg_report *report, int signals,
                       struct cg_err *err)
{
        const struct cg_client_options opts = { .size = sizeof(opts), .no_spare = 1 };
        struct host h = { .scene = s, .list = l, .report = report, .signals = signals };
        struct cg_client *client = NULL;
        char home[PATH_MAX];
        int r;

        if (cg_attempts_due(l, true) == 0 && !any_wanted(l))
                return 0;
        /* The supervisor's environment, which kernels must not see. */
        setenv("HOME", cg_scene_path(s, "home", home), 1);
        setenv("XDG_RUNTIME_DIR", cg_scene_path(s, "work/run", home), 1);
        setenv("CELLGATE_SELFTEST_SECRET", s->secret, 1);
        if (cg_client_open(&opts, &client, err) < 0)
                return -1;
        r = s->bare ? 0 : with_settings(&h, client, err);
        if (r == 0 && !s->bare)
                r = without_settings(&h, client, err);
        if (r == 0)
                r = from_within(&h, client, err);
        cg_buf_fini(&h.out);
        cg_client_close(client);
        return r;
}
