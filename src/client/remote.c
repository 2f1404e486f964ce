/*
 * libcellgate: a supervisor on another machine (struct cg_client_options, connect). The link is a
 * process of its own (src/relay). The node is not trusted with tools: definitions of MCP servers
 * are not sent to it, and what the host approves is the very bytes that it then carries out.
 */
#include "client/internal.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include "base/call_args.h"
#include "base/installed.h"
#include "config.h"
#include "policy/policy.h"

/* Words of the command that starts the link. */
#define MAX_WORDS 64
/* Commands among which is chosen, attempts beyond their number, and the longest wait before one. */
#define MAX_COMMANDS 64
#define AGAIN        2
#define JITTER_MS    300u
/* The most bytes of a node's events that wait; it should keep to the window. */
#define UNREAD_MAX (2 * CG_EVENT_WINDOW + CG_MAX_DISPLAY + (64u << 20))
/* The most questions and calls that wait, and the most bytes of calls that are asked about. */
#define MAX_CALLS 256
#define CALLS_MAX ((size_t)64 << 20)

static unsigned random_below(unsigned n)
{
        unsigned x = 0;

        return getrandom(&x, sizeof(x), 0) < 0 ? 0 : x % n;
}

/* Separates commands at the words ";". Returns their number; negative: too many, or words. */
static int split(const char *const *connect, const char **words, const char *const **commands,
                 struct cg_err *err)
{
        int n = 1;

        commands[0] = words;
        for (size_t i = 0; connect[i]; i++) {
                bool ends = strcmp(connect[i], ";") == 0;

                if (i >= MAX_COMMANDS * MAX_WORDS || (ends && n == MAX_COMMANDS))
                        return cg_fail(err, CG_E_LIMIT, "connect has at most %d commands", MAX_COMMANDS);
                words[i] = ends ? NULL : connect[i];
                if (ends)
                        commands[n++] = words + i + 1;
        }
        return n;
}

int cg_remote_open(const struct cg_client_options *o,
                   int (*open)(const struct cg_client_options *o, struct cg_client **ret, struct cg_err *err),
                   struct cg_client **ret, struct cg_err *err)
{
        cg_auto_free const char **words = calloc(MAX_COMMANDS * MAX_WORDS + 1, sizeof(*words));
        const char *const *commands[MAX_COMMANDS];
        struct cg_client_options one = *o;
        int n = words ? split(o->connect, words, commands, err) : cg_fail(err, CG_E_NOMEM, "connect");
        int first, r = n;

        if (n <= 0)
                return n;
        first = (int)random_below((unsigned)n);
        for (int i = 0; i < n + AGAIN; i++) {
                one.connect = commands[(first + i) % n];
                r = open(&one, ret, err);
                if (r == CG_E_BUSY)
                        poll(NULL, 0, (int)random_below(JITTER_MS)); /* others were refused with us */
                else if (n == 1 || (r != CG_E_CLOSED && r != CG_E_TIMEDOUT && r != CG_E_SYS))
                        break;
        }
        return r;
}

/* The words of the relay's command line from @n on; negative: too many. */
static int add_words(const char **argv, size_t n, const char *const *command, struct cg_err *err)
{
        size_t given = 0, len;

        while (command[given])
                given++;
        if (!given || given > MAX_WORDS)
                return cg_fail(err, CG_E_INVAL, "connect has %zu words: a command has 1 to %d", given,
                               MAX_WORDS);
        memcpy(argv + n, command, given * sizeof(*argv));
        /* As `ssh host /opt/cellgate/bin/cellgate relay`, in words or in one for a shell. */
        len = strlen(command[given - 1]);
        if (len >= 5 && strcmp(command[given - 1] + len - 5, "relay") == 0)
                return 0;
        argv[n + given] = "cellgate";
        argv[n + given + 1] = "relay";
        return 0;
}

static int check_options(const struct cg_client_options *o, struct cg_err *err)
{
        if (o->address || o->start || o->share)
                return cg_fail(err, CG_E_INVAL,
                               "connect starts a supervisor of its own: not with address, start or share");
        if (o->audit_key || o->audit_head)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sessions of another machine are not in this machine's audit log: not with "
                               "connect");
        return 0;
}

int cg_remote_start(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        char path[PATH_MAX];
        const char *argv[MAX_WORDS + 6] = { "cellgate-relay", "host" };
        int life[2] = { -1, -1 }, wire[2] = { -1, -1 }, ready[2] = { -1, -1 };
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { o->log_fd > 0 ? o->log_fd : 2, 2 }, { -1, 3 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(
                cg_installed_with(o->supervisor, path, CG_LIBEXECDIR "/cellgate-relay"), argv, environ, fds,
                .new_session = true);
        cg_auto_free char *options = NULL;
        cg_auto_json json_t *list = json_pack("{s:s*, s:s*, s:i, s:i, s:b, s:I}", "kernel_env", o->kernel_env,
                                              "preload", o->preload, "log_level", o->log_level, "spares",
                                              o->spares, "no_spare", o->no_spare != 0, "detach_ms",
                                              (json_int_t)o->detach_ms);
        int r = check_options(o, err);

        if (r < 0 || (r = add_words(argv, 3, o->connect, err)) < 0)
                return r;
        options = cg_json_text(list, NULL);
        if (!options)
                return cg_fail(err, CG_E_INVAL, "kernel_env and preload must be UTF-8");
        argv[2] = options;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life) < 0 ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) < 0 ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready) < 0) {
                r = cg_fail_errno(err, "socketpair");
        } else {
                fds[0].fd = life[1];
                fds[1].fd = wire[1];
                fds[3].fd = ready[1];
                r = cg_proc_spawn(&spec, &c->proc, err);
        }
        cg_closep_(&life[1]);
        cg_closep_(&wire[1]);
        cg_closep_(&ready[1]);
        c->life_fd = life[0];
        c->start_fd = ready[0];
        c->node_fd = wire[0];
        if (r < 0)
                return cg_err_prefix(err, "cannot start the connection");
        return 0;
}

/* ------------------------------------------------------------------ sessions */

/* A value of a masked credential would be sent to the node, which replaces it on the way out. */
static bool has_masks(const json_t *settings)
{
        static const char *const lists[] = { "files", "envVars" };
        const json_t *credentials = json_object_get(settings, "credentials"), *one;
        size_t i;

        for (size_t n = 0; n < CG_ARRAY_LEN(lists); n++)
                json_array_foreach(json_object_get(credentials, lists[n]), i, one) {
                        if (strcmp(cg_json_text_of(one, "mode"), "mask") == 0)
                                return true;
                }
        return false;
}

int cg_remote_request(const struct cg_client *c, const struct cg_session_options *o, json_t *req,
                      struct cg_err *err)
{
        const char *cwd = cg_json_text_of(c->node, "cwd"), *workspace = o->workspace ?: "";
        char path[PATH_MAX];

        if (o->audit)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "the audit log of a session on another machine would be that machine's word: "
                               "not with connect");
        if (has_masks(json_object_get(req, "settings")))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "credentials with the mode \"mask\" would be sent to the other machine: not "
                               "with connect");
        if (snprintf(path, sizeof(path), "%s%s%s", workspace[0] == '/' ? "" : cwd, *workspace ? "/" : "",
                     workspace[0] == '/' ? workspace + 1 : workspace) >= (int)sizeof(path))
                return cg_fail(err, CG_E_LIMIT, "the workspace's path is too long");
        json_object_set_new(req, "server_requests", json_integer(0)); /* servers are the host's */
        json_object_set(req, "user_env", json_object_get(c->node, "user_env"));
        if (json_object_set_new(req, "workspace", json_string(path)) < 0)
                return cg_fail(err, CG_E_INVAL, "the workspace's path must be UTF-8");
        return 0;
}

int cg_remote_ask_functions(struct cg_session *s, const char *name, struct cg_err *err)
{
        struct asked_functions *a = calloc(1, sizeof(*a));

        if (!a || !(a->name = strdup(name))) {
                free(a);
                return cg_fail(err, CG_E_NOMEM, "functions");
        }
        CG_HOLD(&s->client->lock);
        a->next = s->asked;
        s->asked = a;
        return 0;
}

void cg_remote_free(struct cg_session *s)
{
        json_decref(s->servers);
        while (s->asked) {
                struct asked_functions *a = s->asked;

                s->asked = a->next;
                free(a->name);
                free(a);
        }
}

/* ------------------------------------------------------------------ events */

static bool is_hex(const char *text)
{
        size_t len = strlen(text);

        return len && len % 2 == 0 && strspn(text, "0123456789abcdef") == len;
}

static int check_artifacts(const struct cg_event *e, struct cg_err *err)
{
        cg_auto_json json_t *o = json_loadb(e->artifacts, e->artifacts_len, 0, NULL);
        const json_t *files = json_object_get(o, "files"), *why = json_object_get(o, "truncated"), *f;
        size_t i;

        if (!json_is_array(files) || (why && !json_is_string(why)))
                return cg_fail(err, CG_E_PROTO, "the node sent a list of files that is none");
        json_array_foreach(cg_json_unconst(files), i, f) {
                const json_t *sum = json_object_get(f, "sha256");
                bool named = json_is_string(json_object_get(f, "path")) ||
                             (!json_object_get(f, "path") && is_hex(cg_json_text_of(f, "path_hex")));

                if (!named || !json_is_integer(json_object_get(f, "size")) || (sum && !json_is_string(sum)))
                        return cg_fail(err, CG_E_PROTO, "the node sent a file's entry that is none");
        }
        return 0;
}

/* Members of a node's events that hosts read without looking whether they are there. */
static int check_members(const struct cg_event *e, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        const json_t *code, *signal;
        const char *host, *protocol;
        int64_t port;

        if (e->type == CG_EVENT_RESULT && e->artifacts)
                return check_artifacts(e, err);
        if (e->type != CG_EVENT_EGRESS_REQUEST && e->type != CG_EVENT_COMMAND_RESULT)
                return 0;
        if (cg_json_object(e->json, e->json_len, "event", &o, err) < 0)
                return CG_E_PROTO;
        if (e->type == CG_EVENT_EGRESS_REQUEST) {
                if (cg_json_str(o, "host", NULL, &host, err) < 0 || !host ||
                    cg_json_str(o, "protocol", NULL, &protocol, err) < 0 || !protocol ||
                    cg_json_int(o, "port", -1, &port, err) < 0 || port < 0 || port > UINT16_MAX)
                        return cg_fail(err, CG_E_PROTO, "the node asked about a connection to no host");
                return 0;
        }
        code = json_object_get(o, "exit_code");
        signal = json_object_get(o, "signal");
        if ((code && !json_is_integer(code)) || (signal && !json_is_integer(signal)))
                return cg_fail(err, CG_E_PROTO, "the node sent a command's end that is none");
        return 0;
}

int cg_remote_check_report(const char *name, const char *text, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        const json_t *tools, *tool;
        size_t i;

        if (cg_json_object(text, strlen(text), "report", &o, err) < 0)
                return CG_E_PROTO;
        tools = json_object_get(json_object_get(o, name), "tools");
        if (!json_is_array(tools))
                return cg_fail(err, CG_E_PROTO, "the node has not added the functions: %.300s",
                               cg_json_text_of(json_object_get(o, name), "error"));
        json_array_foreach(cg_json_unconst(tools), i, tool) {
                if (!json_is_string(json_object_get(tool, "tool")) ||
                    !json_is_string(json_object_get(tool, "status")))
                        return cg_fail(err, CG_E_PROTO, "the node sent a report that is none");
        }
        return 0;
}

int cg_remote_check(const struct cg_event *e, struct cg_err *err)
{
        bool program = e->type == CG_EVENT_APPROVAL_REQUEST && strcmp(e->method, CG_METHOD_EXEC) == 0;
        struct cg_err why;

        if ((cg_event_asks(e) || e->type == CG_EVENT_APPROVAL_CLOSED) && e->approval >= CG_FIRST_HOST_NUMBER)
                return cg_fail(err, CG_E_PROTO, "the node used a number of this host's questions");
        if ((e->type == CG_EVENT_APPROVAL_REQUEST && !program) || e->type == CG_EVENT_SERVER_REQUEST)
                return cg_fail(err, CG_E_PROTO,
                               "the node asked about a tool, although tools are not its own");
        if ((program && cg_json_check_object(e->args, e->args_len, CG_JSON_DEPTH, &why) < 0) ||
            (e->type == CG_EVENT_FUNCTION_CALL && cg_check_call_args(e->args, e->args_len, &why) < 0))
                return cg_fail(err, CG_E_PROTO, "the node sent arguments that are none: %.300s", why.msg);
        return check_members(e, err);
}

/*
 * A number is used once: else an answer to the question that a person has read would be one to
 * another, which came with the same number.
 */
static int check_numbers(struct cg_session *s, const struct cg_event *e, struct cg_err *err)
{
        size_t n = 0, bytes = e->args_len;

        if (!cg_event_asks(e))
                return 0;
        for (const struct approval *a = s->approvals; a; a = a->next) {
                n++;
                bytes += a->call ? a->call->args_len : 0;
        }
        if (n >= MAX_CALLS || bytes > CALLS_MAX)
                return cg_fail(err, CG_E_PROTO, "the node asks more than a host accepts");
        if (e->approval <= s->last_number)
                return cg_fail(err, CG_E_PROTO, "the node used the number of a question again");
        s->last_number = e->approval;
        return 0;
}

int cg_remote_push(struct cg_session *s, struct cg_event *e, struct cg_err *err)
{
        const struct asked_functions *asked = s->asked;
        struct cg_event *q;
        int r = check_numbers(s, e, err);

        if (r == 0 && s->unread + e->cost > UNREAD_MAX)
                r = cg_fail(err, CG_E_PROTO, "the node sent more than a host accepts");
        if (r < 0) {
                cg_event_free(e);
                return r;
        }
        if (e->type == CG_EVENT_FUNCTION_CALL && json_object_get(s->servers, e->server)) {
                r = CG_TOOLS_OPS(s->client)->call(s, e, err);
                cg_event_free(e);
                return r;
        }
        if (e->type == CG_EVENT_APPROVAL_CLOSED && !CG_TOOLS_OPS(s->client)->closed(s, e)) {
                s->uncredited += e->cost;
                cg_event_free(e);
                return 0;
        }
        while (e->type == CG_EVENT_FUNCTION_CALL && asked && strcmp(asked->name, e->server) != 0)
                asked = asked->next;
        if (e->type != CG_EVENT_FUNCTION_CALL || !asked) {
                cg_session_push(s, e);
                return 0;
        }
        q = cg_event_question_about(e);
        if (!q) {
                cg_event_free(e);
                return cg_fail(err, CG_E_NOMEM, "question");
        }
        cg_session_push(s, q);
        if (s->approvals && s->approvals->id == e->approval)
                s->approvals->call = e;
        else /* the session has ended */
                cg_event_free(e);
        return 0;
}

bool cg_remote_accept(struct cg_session *s, uint64_t approval)
{
        struct approval *a = cg_session_approval(s, approval);
        struct cg_event *call;

        call = a ? CG_STEAL(a->call) : NULL;
        if (!call)
                return false;
        cg_session_forget_approval(s, approval);
        cg_session_push(s, call);
        return true;
}
