/*
 * `cellgate selftest` in kernels. One session has the scene's settings, and runs the program that a
 * command's sandbox runs; another has the default policy and an MCP server, and makes from within
 * its process (python_stubs/cellgate_kernel/selftest.py) attempts that only a kernel can make. This
 * process is the host of both: it decides about calls by their text, and checks which calls reached
 * the tool.
 */
#include <poll.h>

#include "base/fd.h"
#include "base/installed.h"
#include "base/language.h"
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
static const struct cg_attempt_line kernel_lines[] = {
#define TRY(name_, layer_, bare_, calls_, may_ask_, python_, what_) \
        { \
                .name = name_, .group = "in a kernel", .layer = layer_, .bare = bare_, .what = what_, \
                .allow = sizeof(layer_) == 1, .kernel = true, .python = python_, .calls = calls_, \
                .may_ask = may_ask_ \
        }
        TRY("kernel-call-allowed", "", "none", 1, true, "selftest.allowed",
            "a tool call that the host approves"),
        TRY("kernel-call-refused", "approval", "all", 0, true, "selftest.refused",
            "a tool call that the host refuses"),
        TRY("kernel-call-raw", "approval", "all", 0, true, "selftest.raw",
            "the same past the generated modules"),
        TRY("kernel-call-twice", "approval", "all", 1, true, "selftest.again",
            "an approval used for a second call"),
        TRY("kernel-call-changed", "approval", "none", 1, true, "selftest.changed",
            "arguments changed after the question"),
        TRY("kernel-bad-server", "approval", "none", 0, false,
            "selftest.bad('nosuch', 'mark', b'{\"text\": \"allow:@NAME@\"}')",
            "a server that the host did not define"),
        TRY("kernel-bad-tool", "approval", "none", 0, false,
            "selftest.bad('canary', 'nosuch', b'{\"text\": \"allow:@NAME@\"}')",
            "a tool that the server does not list"),
        TRY("kernel-bad-tool-newline", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark\\n', b'{\"text\": \"allow:@NAME@\"}')",
            "a tool's name followed by other text"),
        TRY("kernel-bad-two-objects", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{} {\"text\": \"allow:@NAME@\"}')", "two objects as arguments"),
        TRY("kernel-bad-smuggled", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{}\\n{\"jsonrpc\": \"2.0\", \"id\": 9, \"method\": \"tools/call\"}')",
            "a second request after the arguments"),
        TRY("kernel-bad-members", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{\"text\": \"allow:@NAME@\"}, \"name\": \"x\"')",
            "members of the request after the arguments"),
        TRY("kernel-bad-depth", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{\"text\": ' + b'[' * 100000)", "arguments as deep as a stack"),
        TRY("kernel-bad-number", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{\"text\": ' + b'9' * 5000 + b'}')",
            "a number that hosts cannot read"),
        TRY("kernel-bad-exponent", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{\"text\": \"allow:@NAME@\", \"n\": 1e999}')",
            "a number that hosts read as infinity"),
        TRY("kernel-bad-surrogate", "approval", "none", 0, false,
            "selftest.bad('canary', 'mark', b'{\"text\": \"allow:@NAME@\\\\ud800\"}')",
            "text that hosts cannot print"),
        TRY("kernel-forge-decision", "wire", "none", 0, true, "F(1, DECISION, b'{\"accept\":true}')",
            "the host's decision, forged"),
        TRY("kernel-forge-ask-decision", "wire", "none", 0, true, "F(4, ASK_DECISION, b'{\"accept\":true}')",
            "the supervisor's decision, forged"),
        TRY("kernel-forge-result", "wire", "none", 0, true,
            "F(3, CALL_RESULT, b'{\"status\":\"ok\"}', b'{}')", "the tool server's result, forged"),
        TRY("kernel-forge-servers", "wire", "none", 0, true, "F(1, SERVERS_ADD, b'{\"servers\":{}}')",
            "an MCP server of its own, defined to the supervisor"),
        TRY("kernel-forge-broker", "wire", "none", 0, true, "F(4, SERVERS, b'{\"servers\":{}}')",
            "the same, to the tool server"),
        TRY("kernel-forge-cell", "wire", "none", 0, true, "F(1, EXECUTE, b'{}', b'print(1)')",
            "a cell of another session"),
        TRY("kernel-forge-egress", "wire", "none", 0, true,
            "F(1, EGRESS_DECISION, b'{\"decision\":\"session\"}')", "a decision about the network, forged"),
        TRY("kernel-forge-version", "wire", "none", 0, true, "selftest.forge(selftest.message(9, 2, 12))",
            "a message of another version"),
        TRY("kernel-forge-unknown", "wire", "none", 0, true, "F(2, 4242)", "an unknown message"),
        TRY("kernel-forge-garbage", "wire", "none", 0, true, "selftest.forge(b'\\xff' * 1000)", "garbage"),
        TRY("kernel-forge-endless", "wire", "none", 0, true,
            "selftest.forge(bytes([2]) + (2**60).to_bytes(8, 'big') + b'x')", "a message without an end"),
        TRY("kernel-modules", "mount|landlock", "all", 0, false, "selftest.modules",
            "changing the modules of tools"),
        TRY("kernel-runtime", "mount|landlock", "root", 0, false, "selftest.runtime",
            "changing the Python that later kernels run"),
        TRY("kernel-packages", "mount|landlock", "machine", 0, false, "selftest.site",
            "changing the packages that later kernels import"),
        TRY("kernel-server-program", "mount|landlock", "all", 0, false, "selftest.server_program",
            "changing the program of an MCP server in the workspace"),
        TRY("kernel-folders", "mount", "all", 0, false, "selftest.folders", "the sockets of supervisors"),
        TRY("kernel-descriptors", "descriptors", "none", 0, false, "selftest.descriptors",
            "open files of another process"),
        TRY("kernel-processes", "pid", "all", 0, false, "selftest.others",
            "zygote, supervisor and other kernels"),
        TRY("kernel-kill-init", "pid|landlock", "none", 0, false, "selftest.kill_init", "ending pid 1"),
        TRY("kernel-host-memory", "environment", "none", 0, false, "selftest.in_memory(PATTERN)",
            "the host's environment, in memory"),
        TRY("kernel-other-session", "mount", "all", 0, false, "selftest.private_file(OTHER)",
            "another session's /tmp"),
        TRY("kernel-exec", "exec", "all", 0, true, "selftest.program", "programs that the host refuses"),
        TRY("kernel-exec-changed", "exec", "none", 0, true, "selftest.program_changed",
            "other arguments than the host approved"),
        TRY("kernel-own-tmp", "mount", "all", 0, false, "selftest.own_file(OWN)", "the host's /tmp"),
#undef TRY
};
const struct cg_attempt_table cg_attempts_kernel = { kernel_lines, CG_ARRAY_LEN(kernel_lines) };

struct kernel_host {
        struct cg_scene *scene;
        struct cg_attempt_list *list;
        struct cg_report *report;
        int signals;
        /* of the program, as of a command's sandbox: "kernel", or "default" without settings */
        const char *where;
        struct cg_session *session;
        /* of the cell that runs */
        struct cg_buf out;
        char died[600], error[600];
        unsigned asked, once;
        uint64_t later, waiting;
        void (*on_text)(struct kernel_host *h);
};

/* ---- one cell */
static void decide(struct kernel_host *h, uint64_t approval, bool yes)
{
        if (yes)
                cg_approval_accept(h->session, approval, NULL);
        else
                cg_approval_reject(h->session, approval, "selftest", NULL);
}

static bool is_allowed(struct kernel_host *h, const char *text)
{
        return strncmp(text, "allow:", 6) == 0 || (strncmp(text, "once:", 5) == 0 && h->once++ == 0);
}

/*
 * The prefix of a call's text, or of a program's first argument, selects the decision; what has
 * none is refused.
 */
static void on_approval(struct kernel_host *h, const struct cg_event *e)
{
        size_t len;
        const char *args = cg_event_arguments(e, &len), *text;
        cg_auto_json json_t *o = NULL;

        h->asked++;
        cg_json_object(args, len, "arguments", &o, NULL);
        text = json_string_value(json_object_get(o, "text"));
        if (strcmp(cg_event_method(e), "exec") == 0)
                text = json_string_value(json_array_get(json_object_get(o, "argv"), 1));
        if (text && strncmp(text, "later:", 6) == 0)
                h->later = cg_event_approval(e);
        else if (text && strncmp(text, "wait:", 5) == 0)
                h->waiting = cg_event_approval(e);
        else
                decide(h, cg_event_approval(e), h->scene->bare || (text && is_allowed(h, text)));
}

static void on_stream(struct kernel_host *h, const struct cg_event *e)
{
        size_t len;
        const char *text = cg_event_text(e, &len);

        if (cg_event_is_stderr(e)) {
                snprintf(h->error, sizeof(h->error), "%.*s", (int)CG_MIN(len, 500), text);
                return;
        }
        cg_buf_try_add(&h->out, text, len, NULL);
        if (h->later && h->out.data && strstr(h->out.data, "changed\n")) {
                decide(h, h->later, true);
                h->later = 0;
        }
        if (h->on_text)
                h->on_text(h);
}

/* 1: the cell has ended. */
static int on_event(struct kernel_host *h, const struct cg_event *e)
{
        const char *name = NULL, *value = NULL, *text;
        cg_auto_json json_t *o = NULL;
        size_t len;

        switch (cg_event_type(e)) {
        case CG_EVENT_APPROVAL_REQUEST:
                on_approval(h, e);
                return 0;
        case CG_EVENT_STREAM:
                on_stream(h, e);
                return 0;
        case CG_EVENT_ERROR:
                text = cg_event_json(e, &len);
                if (cg_json_object(text, len, "error", &o, NULL) == 0 &&
                    cg_json_str(o, "ename", "", &name, NULL) == 0 &&
                    cg_json_str(o, "evalue", "", &value, NULL) == 0)
                        snprintf(h->error, sizeof(h->error), "%.100s: %.400s", name, value);
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

static int next_event(const struct kernel_host *h, struct cg_event **ret, struct cg_err *err)
{
        int r = cg_session_next_event(h->session, 0, ret, err);

        while (r == CG_TIMEOUT) {
                struct pollfd fds[] = { { .fd = cg_session_fd(h->session), .events = POLLIN },
                                        { .fd = h->signals, .events = POLLIN } };
                int n = poll(fds, CG_ARRAY_LEN(fds), EVENT_MS);

                if (n == 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "no event of the kernel for a minute");
                if (fds[1].revents)
                        return cg_fail(err, CG_E_CLOSED, "interrupted");
                r = cg_session_next_event(h->session, 0, ret, err);
        }
        if (r == CG_CLOSED)
                return cg_fail(err, CG_E_CLOSED, "the session ended");
        return r;
}

static int run_cell(struct kernel_host *h, const char *code, struct cg_err *err)
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
        size_t len;

        if (cg_read_file(CG_INSTALLED(CG_SELFTEST_HELPER), MAX_HELPER, &program, &len, err) < 0)
                return -1;
        return cg_write_cache(cg_scene_path(s, "work/cellgate-selftest", path), program, len, 0755, err);
}

/* The scene with this session's layers: the first line of each name counts. */
static int write_scene(struct kernel_host *h, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = 32768 };
        cg_auto_json json_t *o = NULL;
        const char *info = cg_session_info(h->session);
        char path[PATH_MAX];

        if (cg_json_object(info, strlen(info), "session", &o, err) < 0)
                return -1;
        cg_scene_add_layers(&text, o);
        cg_buf_adds(&text, h->scene->text.data);
        if (cg_buf_end(&text, err) < 0)
                return -1;
        return cg_write_cache(cg_scene_path(h->scene, "work/scene", path), text.data, text.len, 0644, err);
}

/* Reports the complete lines that have come so far. */
static void take_lines(struct kernel_host *h)
{
        char *eol;

        while (h->out.len && (eol = memchr(h->out.data, '\n', h->out.len))) {
                size_t n = (size_t)(eol + 1 - h->out.data);

                *eol = '\0';
                if (cg_report_take(h->report, h->list, h->where, h->out.data) < 0)
                        snprintf(h->error, sizeof(h->error), "the attempts sent an unknown line: %.100s",
                                 h->out.data);
                cg_buf_consume(&h->out, n);
        }
}

/*
 * If the scene is in a folder that kernels have a private copy of, only its workspace exists
 * inside: denials would prove nothing.
 */
static void skip_what_is_not_there(struct kernel_host *h)
{
        if (strncmp(h->scene->dir, "/tmp/", 5) != 0 && strncmp(h->scene->dir, "/var/tmp/", 9) != 0)
                return;
        for (size_t i = 0; i < h->list->n; i++) {
                struct cg_attempt_line *a = &h->list->v[i];

                if (!a->due || strcmp(a->group, "files outside") != 0)
                        continue;
                a->due = false;
                cg_report_line(h->report, a, h->where, CG_OUT_SKIP,
                               "kernels have a /tmp of their own, and HOME, where the scene would "
                               "be seen, cannot be written");
        }
}

/* How a cell of a language runs the program with the attempts; what is around each name. */
static const struct cell_form {
        const char *language, *begin, *before, *after, *end;
} cell_forms[] = {
        { "python", "import subprocess\nsubprocess.run(['./cellgate-selftest', 'scene', 'kernel'", ", '", "'",
          "], stdin=subprocess.DEVNULL).returncode" },
        { "shell", "./cellgate-selftest scene kernel", " ", "", " </dev/null" },
        { "node", "require('child_process').spawnSync('./cellgate-selftest', ['scene', 'kernel'", ", '", "'",
          "], {stdio: ['ignore', 'inherit', 'inherit']}).status" },
};

/* Makes the due attempts in a new session. */
static int run_session(struct kernel_host *h, struct cg_client *client, const char *settings,
                       const char *where, const struct cell_form *form, struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts),
                                           .settings = settings,
                                           .language = form->language };
        cg_auto_buf struct cg_buf code = { .max = 65536 };
        struct cg_err problem = { 0 };
        char work[PATH_MAX];
        const char *why = "it was not made";
        int r;

        if (copy_helper(h->scene, err) < 0)
                return -1;
        opts.workspace = cg_scene_path(h->scene, "work", work);
        if (cg_session_new(client, &opts, &h->session, err) < 0)
                return -1;
        h->where = where;
        skip_what_is_not_there(h);
        r = write_scene(h, err);
        cg_buf_adds(&code, form->begin);
        for (size_t i = 0; i < h->list->n; i++)
                if (h->list->v[i].due)
                        cg_buf_addf(&code, "%s%s%s", form->before, h->list->v[i].name, form->after);
        cg_buf_adds(&code, form->end);
        if (r >= 0)
                r = cg_buf_end(&code, err);
        if (r >= 0) {
                h->on_text = take_lines;
                if (run_cell(h, code.data, &problem) < 0)
                        why = problem.msg;
                else if (h->died[0])
                        why = h->died;
                else if (h->error[0])
                        why = h->error;
                h->on_text = NULL;
                cg_report_missing(h->report, h->list, where, why);
        }
        h->session = cg_session_free(h->session);
        return r;
}

/* ---- from within the process */
static int add_server(struct kernel_host *h, struct cg_err *err)
{
        char marks[PATH_MAX], script[PATH_MAX], code[PATH_MAX];
        /* The script is in the workspace: it must become read-only. */
        cg_auto_json json_t *o = json_pack("{s:{s:s, s:[s], s:[s,s,s,s,s], s:{s:s}}}", "canary", "command",
                                           "/bin/sh", "code", cg_scene_path(h->scene, "work/server", code),
                                           "args", cg_scene_path(h->scene, "work/server/run.sh", script),
                                           CG_INSTALLED(CG_LIBEXECDIR "/cellgate-cli"), "selftest",
                                           "--mcp-server", cg_scene_path(h->scene, "marks", marks), "env",
                                           "CELLGATE_SELFTEST_SECRET", h->scene->secret);
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        return cg_session_add_mcp_servers(h->session, text, len, 0, NULL, err);
}

/* Number of calls that reached the tool with this name. */
static unsigned count_marks(const struct kernel_host *h, const char *name)
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

/*
 * A file that another session writes into its /tmp. The name is new in each run, since without a
 * sandbox it is in the real /tmp.
 */
static void other_file(const struct kernel_host *h, char path[64])
{
        snprintf(path, 64, "/tmp/cellgate-selftest-%.16s-other", h->scene->secret);
}

/* The report of the cell itself counts only if nothing else shows a hole. */
static int run_python(struct kernel_host *h, const struct cg_attempt_line *a, struct cg_err *err)
{
        cg_auto_buf struct cg_buf code = { .max = 65536 };
        enum cg_outcome bad = a->allow ? CG_OUT_FAILS : CG_OUT_HOLE, o = CG_OUT_FAILS;
        char own[64], other[64], text[100], *line;
        const char *note = text;
        size_t last = strlen(h->scene->secret) - 1;
        unsigned calls;

        snprintf(own, sizeof(own), "/tmp/cellgate-selftest-%.16s", h->scene->secret);
        other_file(h, other);
        /* The pattern does not match itself in memory: its last letter is a set. */
        cg_buf_addf(
                &code,
                "from cellgate_kernel import selftest\n"
                "OWN, OTHER, PATTERN = '%s', '%s', 'SELFTEST_SECRE[T]=%.*s[%c]'\n"
                "DECISION, ASK_DECISION, CALL_RESULT, SERVERS_ADD, SERVERS, EXECUTE, EGRESS_DECISION = %d, %d, %d, %d, %d, %d, %d\n"
                "def F(wire, kind, *more): return selftest.forge(selftest.message(%d, wire, kind, *more))\n"
                "selftest.run('%s', %s)\n",
                own, other, (int)last, h->scene->secret, h->scene->secret[last], CG_HOST_DECISION,
                CG_BROKER_ASK_DECISION, CG_TOOL_CALL_RESULT, CG_HOST_SERVERS_ADD, CG_BROKER_SERVERS,
                CG_HOST_EXECUTE, CG_HOST_EGRESS_DECISION, CG_WIRE_VERSION, a->name, a->python);
        if (cg_buf_end(&code, err) < 0 || run_cell(h, code.data, err) < 0)
                return -1;

        line = h->out.len ? strrchr(h->out.data, '\t') : NULL;
        calls = count_marks(h, a->name);
        if (calls != a->calls) {
                snprintf(text, sizeof(text), "the tool was reached %u times, where %u is right", calls,
                         a->calls);
                o = bad;
        } else if (h->asked && !a->may_ask) {
                note = "the host was asked about it";
                o = bad;
        } else if (unlink(own) == 0) {
                snprintf(text, sizeof(text), "%s is on the host", own);
                o = bad;
        } else if (h->died[0]) {
                /* A kernel that breaks a wire's rules is ended; others were not tried. */
                note = h->died;
                o = strcmp(a->layer, "wire") == 0 ? CG_OUT_HELD : CG_OUT_FAILS;
        } else if (!line) {
                note = cg_text_or(h->error, "it was not made");
        } else {
                note = line + 1;
                line[1 + strcspn(note, "\n")] = *line = '\0';
                line = strrchr(h->out.data, '\n') ? strrchr(h->out.data, '\n') + 1 : h->out.data;
                if (strcmp(line, "works") == 0 && a->allow)
                        o = CG_OUT_WORKS;
                else if (strcmp(line, "held") == 0 && !a->allow)
                        o = CG_OUT_HELD;
                else if (strcmp(line, "hole") == 0)
                        o = CG_OUT_HOLE;
        }
        cg_report_line(h->report, a, "kernel", o, note);
        return 0;
}

static bool any_wanted(const struct cg_attempt_list *l)
{
        for (size_t i = 0; i < l->n; i++)
                if (l->v[i].python && l->v[i].wanted)
                        return true;
        return false;
}

/* A second session with a file that the first must not see. */
static int other_session(struct kernel_host *h, struct cg_client *client, struct cg_session **ret,
                         struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts) };
        struct kernel_host other = { .scene = h->scene, .signals = h->signals };
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

static int from_within(struct kernel_host *h, struct cg_client *client, struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts) };
        struct cg_session *other = NULL;
        char path[PATH_MAX], file[64];
        int r;

        if (!any_wanted(h->list))
                return 0;
        opts.workspace = cg_scene_path(h->scene, "work", path);
        opts.sandbox = h->scene->bare ? CG_SANDBOX_OFF : CG_SANDBOX_ON;
        opts.exec = h->scene->bare ? "allow" : "ask";
        if (cg_session_new(client, &opts, &h->session, err) < 0)
                return -1;
        r = add_server(h, err) < 0 ? -1 : other_session(h, client, &other, err);
        for (size_t i = 0; i < h->list->n && r == 0; i++) {
                const struct cg_attempt_line *a = &h->list->v[i];

                if (!a->python || !a->wanted)
                        continue;
                if (h->scene->bare && strcmp(a->name, "kernel-kill-init") == 0)
                        cg_report_line(h->report, a, "kernel", CG_OUT_SKIP,
                                       "without a sandbox it would do harm");
                else
                        r = run_python(h, a, err);
        }
        other_file(h, file);
        if (h->scene->bare)
                unlink(file);
        cg_session_free(other);
        h->session = cg_session_free(h->session);
        return r;
}

/* As cg_attempts_due(), of these groups only. */
static size_t due_of(struct cg_attempt_list *l, const char *const *groups)
{
        size_t n = 0;

        cg_attempts_due(l, true);
        for (size_t i = 0; i < l->n; i++) {
                const char *const *g = groups;

                while (*g && strcmp(l->v[i].group, *g) != 0)
                        g++;
                l->v[i].due &= *g != NULL;
                n += l->v[i].due;
        }
        return n;
}

int cg_selftest_kernel(struct cg_scene *s, struct cg_attempt_list *l, struct cg_report *report, int signals,
                       struct cg_err *err)
{
        const struct cg_client_options opts = { .size = sizeof(opts), .no_spare = 1 };
        static const char *const names[] = { "names", NULL };
        /* In other languages. */
        static const char *const reached[] = { "files outside", "protected files", "hidden files",
                                               "the proxy",     "sockets",         NULL };
        struct kernel_host h = { .scene = s, .list = l, .report = report, .signals = signals };
        struct cg_client *client = NULL;
        cg_auto_free char *settings = NULL;
        char *program = NULL;
        char path[PATH_MAX], folders[CG_SCENE_SEARCH_MAX];
        size_t due = cg_attempts_due(l, true), len;
        int r = 0;

        if (due == 0 && !any_wanted(l))
                return 0;
        /* The supervisor's environment, which kernels must not see. */
        setenv("HOME", cg_scene_path(s, "home", path), 1);
        setenv("XDG_RUNTIME_DIR", cg_scene_path(s, "work/run", path), 1);
        setenv("PATH", cg_scene_search_path(s, folders), 1);
        setenv("CELLGATE_SELFTEST_SECRET", s->secret, 1);
        if (cg_client_open(&opts, &client, err) < 0)
                return -1;
        if (!s->bare && due) {
                r = cg_read_file(cg_scene_path(s, "settings.json", path), 65536, &settings, &len, err);
                if (r == 0)
                        r = run_session(&h, client, settings, "kernel", &cell_forms[0], err);
        }
        /* Names are protected in a kernel that has no settings, too. */
        if (!s->bare && r == 0 && due_of(l, names))
                r = run_session(&h, client, NULL, "default", &cell_forms[0], err);
        for (size_t i = 1; i < CG_ARRAY_LEN(cell_forms) && !s->bare && r == 0; i++)
                if (due_of(l, reached) &&
                    cg_language_find(cell_forms[i].language, NULL, &program, NULL) == 0) {
                        free(CG_STEAL(program));
                        r = run_session(&h, client, settings, cell_forms[i].language, &cell_forms[i], err);
                }
        if (r == 0)
                r = from_within(&h, client, err);
        cg_buf_fini(&h.out);
        cg_client_close(client);
        return r;
}
