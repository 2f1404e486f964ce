/*
 * libcellgate: MCP servers of sessions on another machine. They run here, below a tool server of
 * this client; the node gets the names and schemas of their tools. A call comes as FUNCTION_CALL,
 * and its bytes go to that tool server as they are: it asks about these bytes and then sends them
 * to the MCP server. In its eyes the library is the supervisor.
 *
 * Definitions, their secrets, questions and progress are between host and tool server alone. The
 * node learns when a decision is waited for, so that the cell's clock stands still, and the result.
 */
#include "client/internal.h"

#include <poll.h>
#include <sys/socket.h>
#include "base/installed.h"
#include "config.h"

/* The node writes modules, and starts nothing. */
#define ADD_MS 60000
/* The tool server ends its MCP servers in order first. */
#define END_MS 6000
/* The most bytes of arguments of the calls under way. */
#define ARGS_MAX ((size_t)64 << 20)
/* The most bytes of results that the node has not read. */
#define RESULTS_MAX ((size_t)2 * CG_MAX_TOOL_RESULT)

static const char out_of_memory[] = "this program is out of memory";

/* A call that the node has sent. */
struct host_call {
        struct host_call *next;
        uint64_t number, cell;
        uint64_t approval; /* of the question about it */
        size_t bytes;
};

struct host_tools {
        const struct host_tools_ops *ops;
        struct cg_zconn conn;
        struct cg_client *client;
        struct cg_proc proc;
        int life_fd, log_fd;
        uint64_t last_number; /* of questions, which the node's are not */
        char path[PATH_MAX];
};

static struct host_tools *tools_of(struct cg_zconn *conn)
{
        return (struct host_tools *)(void *)((char *)conn - offsetof(struct host_tools, conn));
}

/* ------------------------------------------------------------------ sending */

/* Takes @body. */
static int send_tools(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err)
{
        struct cg_out with_body = *out;
        cg_auto_free char *text = cg_json_text(body, &with_body.body_len);
        int r;

        json_decref(body);
        if (c->tools->conn.fd < 0 || c->tools->conn.ended)
                return cg_fail(err, CG_E_CLOSED,
                               "the tool server of this host has ended; its log may say why");
        with_body.body = text;
        r = cg_zconn_put(&c->tools->conn, &with_body, NULL, NULL, err);
        cg_zconn_flush(&c->tools->conn);
        if (cg_zconn_wants_out(&c->tools->conn))
                cg_client_wake(c);
        return r;
}

static void send_node(struct cg_session *s, uint16_t type, uint64_t id, json_t *body)
{
        struct cg_out out = { .type = type, .session = s->number, .id = id };

        cg_client_send(s->client, &out, body, NULL);
}

/* Without a tool server, a call fails with @why. */
static void fail_call(struct cg_session *s, uint64_t number, const char *why)
{
        struct cg_out out = { .type = CG_HOST_FUNCTION_RETURN,
                              .session = s->number,
                              .id = number,
                              .raw = why,
                              .raw_len = strlen(why),
                              .has_raw = true };

        cg_client_send(s->client, &out, json_pack("{s:s, s:s}", "status", "failed", "kind", "died"), NULL);
}

/* ------------------------------------------------------------------ calls of the node */

static struct host_call **find_call(struct cg_session *s, uint64_t number)
{
        struct host_call **p = &s->host_calls;

        while (*p && (*p)->number != number)
                p = &(*p)->next;
        return p;
}

/* The call that the host was asked about under the number @approval; NULL: none. */
static struct host_call *call_of(const struct cg_session *s, uint64_t approval)
{
        struct host_call *call = s->host_calls;

        while (call && (!approval || call->approval != approval))
                call = call->next;
        return call;
}

static bool drop_call(struct cg_session *s, uint64_t number)
{
        struct host_call **p = find_call(s, number), *call = *p;

        if (!call)
                return false;
        *p = call->next;
        free(call);
        return true;
}

static int on_call(struct cg_session *s, const struct cg_event *e, struct cg_err *err)
{
        struct cg_out out = { .type = CG_BROKER_CALL,
                              .session = s->number,
                              .id = e->approval,
                              .raw = e->args,
                              .raw_len = e->args_len,
                              .has_raw = true };
        struct host_call *call;
        size_t n = 0, bytes = e->args_len;
        json_t *body;

        for (call = s->host_calls; call; call = call->next, n++)
                bytes += call->bytes;
        if (n >= CG_MAX_CALLS || bytes > ARGS_MAX)
                return cg_fail(err, CG_E_PROTO, "the node asks more than a host accepts");
        body = json_loadb(e->json, e->json_len, 0, NULL);
        call = body ? calloc(1, sizeof(*call)) : NULL;
        if (!call) {
                json_decref(body);
                return cg_fail(err, CG_E_NOMEM, "call");
        }
        *call = (struct host_call){
                .next = s->host_calls, .number = e->approval, .cell = e->cell, .bytes = e->args_len
        };
        s->host_calls = call;
        s->uncredited += e->cost;
        if (!*e->tool)
                json_object_del(body, "tool");
        if (send_tools(s->client, &out, body, NULL) < 0) { /* @err would end the connection to the node */
                drop_call(s, e->approval);
                fail_call(s, e->approval, "the tool server of the host has ended");
        }
        return 0;
}

static bool on_closed(struct cg_session *s, struct cg_event *e)
{
        struct cg_out out = { .type = CG_BROKER_CALL_CANCEL, .session = s->number, .id = e->approval };
        const struct approval *a = s->approvals;

        if (!drop_call(s, e->approval))
                return true;
        send_tools(s->client, &out, NULL, NULL);
        while (a && a->about != e->approval)
                a = a->next;
        if (a)
                e->approval = a->id;
        return a != NULL;
}

static void on_result(struct cg_session *s, struct cg_msg *m)
{
        struct cg_client *c = s->client;
        struct cg_out out = { .type = CG_HOST_FUNCTION_RETURN, .session = s->number, .id = m->id };

        if (!drop_call(s, m->id) || c->broken)
                return;
        if (c->conn.queued > RESULTS_MAX) {
                cg_client_break(c, CG_E_PROTO, "the node does not read the results of its calls");
                return;
        }
        out.body = cg_msg_body(m, &out.body_len);
        if (cg_zconn_put_frames(&c->conn, &out, m, NULL) == 0)
                cg_zconn_flush(&c->conn);
        if (cg_zconn_wants_out(&c->conn))
                cg_client_wake(c);
}

/* ------------------------------------------------------------------ events of the tool server */

/* Gives the host an event of @type, with @body (taken) and the raw frames of @m. */
static struct approval *give(struct cg_session *s, struct cg_msg *m, uint16_t type, uint64_t id, json_t *body)
{
        cg_auto_msg struct cg_msg x = { .spec = m->spec, .type = type, .id = id, .n_frames = m->n_frames };
        size_t len = 0;
        cg_auto_free char *text = cg_json_text(body, &len);
        struct cg_event *e;

        json_decref(body);
        x.frames[0] = text ? cg_frame_new(len) : NULL;
        if (!x.frames[0])
                return NULL;
        memcpy(x.frames[0]->data, text, len);
        for (size_t i = 1; i < m->n_frames; i++)
                x.frames[i] = CG_STEAL(m->frames[i]);
        e = cg_event_from_message(&x);
        if (!e)
                return NULL;
        e->of_host = true;
        cg_session_push(s, e);
        return s->approvals && s->approvals->id == id ? s->approvals : NULL;
}

/* The node's clock for the cell of a call stands still while questions about it wait. */
static void tell_waits(struct cg_session *s, uint64_t call)
{
        const struct approval *a = s->approvals;

        while (a && a->about != call)
                a = a->next;
        if (call)
                send_node(s, CG_HOST_DECISION, call,
                          json_pack("{s:b, s:b}", "accept", !a, "waits", a != NULL));
}

static int on_decision(struct cg_session *s, const struct approval *a, const struct cg_out *decision,
                       json_t *body, struct cg_err *err)
{
        const struct host_call *call = *find_call(s, a->about);
        struct cg_out out = *decision;
        uint64_t about = a->about;
        bool declined;
        int r;

        out.session = s->number;
        out.id = a->asked;
        switch (decision->type) {
        case CG_HOST_DECISION:
                out.type = CG_BROKER_ASK_DECISION;
                json_object_set_new(body, "approval", json_integer((json_int_t)a->id));
                json_object_set_new(body, "cell", json_integer(call ? (json_int_t)call->cell : 0));
                break;
        case CG_HOST_EGRESS_DECISION:
                out.type = CG_BROKER_EGRESS_DECISION;
                break;
        default:
                out.type = CG_BROKER_SERVER_ANSWER;
                declined = json_is_true(json_object_get(body, "decline"));
                json_decref(body);
                body = declined ? json_pack("{s:s, s:s}", "action", "decline", "why", "the host declined")
                                : json_object();
                break;
        }
        r = send_tools(s->client, &out, body, err);
        if (r < 0) /* it can still be decided */
                return r;
        cg_session_forget_approval(s, decision->id);
        tell_waits(s, about);
        return 0;
}

/* Refuses a question that cannot be given to the host, so that its call does not wait for ever. */
static void refuse_ungiven(struct cg_session *s, uint16_t type, const struct approval *a)
{
        struct cg_out out = { .type = CG_HOST_DECISION };
        struct cg_err err = { .code = CG_E_NOMEM };
        json_t *body = json_pack("{s:b, s:s, s:s, s:b}", "accept", false, "reason", out_of_memory, "answer",
                                 "no", "decline", true);

        if (type == CG_HOST_EGRESS_REQUEST)
                out.type = CG_HOST_EGRESS_DECISION;
        if (type == CG_HOST_SERVER_REQUEST)
                out = (struct cg_out){ .type = CG_HOST_SERVER_ANSWER, .raw = "", .has_raw = true };
        /* CG_E_CLOSED: calls of a tool server that has ended have failed already. */
        if ((!body || on_decision(s, a, &out, body, &err) < 0) && err.code != CG_E_CLOSED)
                cg_client_break(s->client, CG_E_NOMEM, out_of_memory);
}

/* A question about @call, or one that comes while it runs; NULL: neither. Takes @body. */
static void give_question(struct cg_session *s, struct cg_msg *m, uint16_t type, json_t *body,
                          struct host_call *call)
{
        uint64_t number = CG_FIRST_HOST_NUMBER + ++s->client->tools->last_number;
        uint64_t asked = m->id, about = call ? call->number : 0;
        struct approval *a;

        json_object_del(body, "kernel");
        if (type == CG_HOST_APPROVAL_REQUEST)
                call->approval = number;
        a = give(s, m, type, number, body);
        if (!a) {
                refuse_ungiven(s, type, &(struct approval){ .id = number, .asked = asked, .about = about });
                return;
        }
        a->asked = asked;
        a->about = about;
        tell_waits(s, about);
}

static void on_ask(struct cg_session *s, struct cg_msg *m, json_t *body)
{
        uint64_t number = (uint64_t)json_integer_value(json_object_get(body, "call"));
        struct host_call *call = *find_call(s, number);

        if (!call) { /* it crossed with CALL_CANCEL */
                json_decref(body);
                return;
        }
        json_object_del(body, "call");
        json_object_set_new(body, "cell", json_integer((json_int_t)call->cell));
        give_question(s, m, CG_HOST_APPROVAL_REQUEST, body, call);
}

static void on_ask_closed(struct cg_session *s, struct cg_msg *m, json_t *body)
{
        const struct approval *a = s->approvals;
        uint64_t about, number;

        while (a && a->asked != m->id)
                a = a->next;
        if (!a) {
                json_decref(body);
                return;
        }
        about = a->about;
        number = a->id;
        give(s, m, CG_HOST_APPROVAL_CLOSED, number, body);
        cg_session_forget_approval(s, number); /* also where memory was short */
        tell_waits(s, about);
}

/* Modules of servers that the node has, made anew. Nobody waits for the answer. */
static void renew_modules(struct cg_session *s, const json_t *body)
{
        const char *name;
        json_t *text;

        json_object_foreach(json_object_get(body, "tools"), name, text) {
                if (json_object_get(s->servers, name) && json_string_length(text) <= CG_MAX_FUNCTIONS_TEXT)
                        send_node(s, CG_HOST_SERVERS_ADD, ++s->client->next_request,
                                  json_pack("{s:{s:{s:O}}}", "servers", name, "host_tools", text));
        }
}

static void on_session_message(struct cg_session *s, struct cg_msg *m)
{
        json_t *body = NULL;
        uint64_t cell, number;
        struct cg_err err;
        char why[500];

        if (m->type == CG_BROKER_CALL_RESULT) {
                on_result(s, m);
                return;
        }
        if (cg_msg_json(m, &body, &err) < 0) { /* a question in it would wait for ever */
                cg_client_break(s->client, err.code, err.msg);
                return;
        }
        cell = (uint64_t)json_integer_value(json_object_get(body, "cell"));
        switch (m->type) {
        case CG_BROKER_ASK:
                on_ask(s, m, body);
                return;
        case CG_BROKER_SERVER_REQUEST:
                number = (uint64_t)json_integer_value(json_object_get(body, "call"));
                give_question(s, m, CG_HOST_SERVER_REQUEST, body, call_of(s, number));
                return;
        case CG_BROKER_EGRESS_ASK:
                give_question(s, m, CG_HOST_EGRESS_REQUEST, body, NULL);
                return;
        case CG_BROKER_ASK_CLOSED:
                on_ask_closed(s, m, body);
                return;
        case CG_BROKER_NOTICE:
                give(s, m, CG_HOST_NOTICE, 0, body);
                return;
        case CG_BROKER_DENIED:
                give(s, m, CG_HOST_DENIED, 0, body);
                return;
        case CG_BROKER_PROGRESS:
                give(s, m, CG_HOST_PROGRESS, 0, body);
                return;
        case CG_BROKER_CALL_PROGRESS:
                json_object_del(body, "kernel");
                json_object_del(body, "cell");
                if (s->unread > CG_EVENT_WINDOW)
                        break;
                give(s, m, CG_HOST_PROGRESS, cell, body);
                return;
        case CG_BROKER_SERVERS_DONE:
                renew_modules(s, body);
                break;
        case CG_BROKER_KERNEL_VIOLATION:
                snprintf(why, sizeof(why), "the node broke a rule of calls: %.400s",
                         cg_json_text_of(body, "what"));
                cg_client_break(s->client, CG_E_PROTO, why);
                break;
        default:
                break;
        }
        json_decref(body);
}

/* Lock held, as for all that follows. */
static void on_message(struct cg_zconn *conn, struct cg_msg *m)
{
        struct cg_client *c = tools_of(conn)->client;
        struct cg_session *s = c->sessions;

        if (m->type == CG_BROKER_SERVERS_DONE && m->id) {
                cg_client_answer(c, m);
                return;
        }
        while (s && s->number != m->session)
                s = s->next;
        if (s && s->servers && !s->closed && !c->broken)
                on_session_message(s, m);
}

static void on_end(struct cg_zconn *conn, const struct cg_err *err)
{
        struct cg_client *c = tools_of(conn)->client;
        struct cg_event *e;

        cg_client_fail_requests(c, "the tool server of this host has ended; its log may say why");
        for (struct cg_session *s = c->sessions; s; s = s->next) {
                if (!s->servers)
                        continue;
                while (s->host_calls) {
                        uint64_t number = s->host_calls->number;

                        drop_call(s, number);
                        fail_call(s, number, "the tool server of the host has ended");
                }
                e = cg_event_text_new(CG_EVENT_NOTICE, "the tool server of this host has ended: tools of MCP "
                                                       "servers are gone until a new connection is made");
                if (e)
                        cg_session_push(s, e);
        }
}

/* ------------------------------------------------------------------ the session's end */

static void on_session_end(struct cg_session *s)
{
        struct cg_out out = { .type = CG_BROKER_DETACH, .session = s->number };

        if (!s->servers)
                return;
        while (s->host_calls)
                drop_call(s, s->host_calls->number);
        json_decref(CG_STEAL(s->servers));
        send_tools(s->client, &out, json_pack("{s:b}", "keep_servers", false), NULL);
}

/* ------------------------------------------------------------------ the process */

static void serve(struct cg_client *c, short revents)
{
        struct cg_zconn *conn = &c->tools->conn;

        if (revents & POLLOUT)
                cg_zconn_flush(conn);
        do
                cg_zconn_read(conn, 64, true);
        while (conn->again && !conn->ended);
        cg_zconn_opened(conn);
}

static struct pollfd polled(const struct cg_client *c)
{
        const struct cg_zconn *conn = &c->tools->conn;

        return (struct pollfd){ .fd = conn->ended ? -1 : conn->fd,
                                .events = (short)(POLLIN | (cg_zconn_wants_out(conn) ? POLLOUT : 0)) };
}

int cg_tools_new(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err)
{
        static const struct host_tools_ops ops = { serve,     polled,      send_tools,    on_call,
                                                   on_closed, on_decision, on_session_end };
        struct host_tools *t = calloc(1, sizeof(*t));
        char path[PATH_MAX];

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "tool server");
        t->ops = &ops;
        t->client = c;
        t->conn = CG_ZCONN_NONE;
        t->proc = CG_PROC_NONE;
        t->life_fd = -1;
        t->log_fd = fcntl(o->log_fd > 0 ? o->log_fd : 2, F_DUPFD_CLOEXEC, 3);
        snprintf(t->path, sizeof(t->path), "%s",
                 cg_installed_with(o->supervisor, path, CG_LIBEXECDIR "/cellgate-toolserver"));
        c->tools = t;
        return 0;
}

void cg_tools_free(struct cg_client *c)
{
        struct host_tools *t = CG_STEAL(c->tools);

        if (!t)
                return;
        cg_closep_(&t->life_fd);
        if (t->proc.pidfd >= 0 && cg_proc_wait(&t->proc, END_MS, NULL, NULL) != 0)
                cg_proc_end(&t->proc, true, 0);
        cg_zconn_fini(&t->conn);
        cg_closep_(&t->log_fd);
        free(t);
}

static int start(struct host_tools *t, struct cg_err *err)
{
        static const struct cg_zconn_ops ops = { on_message, on_end };
        const char *argv[] = { "cellgate-toolserver", NULL };
        int life[2] = { -1, -1 }, wire[2] = { -1, -1 }, r;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { t->log_fd, 2 }, { -1, 3 }, { -1, 4 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(t->path, argv, environ, fds, .new_session = true);

        if (t->proc.pidfd >= 0)
                return 0;
        if (!t->client->dir[0] &&
            cg_make_runtime_dir("cellgate", t->client->dir, sizeof(t->client->dir), err) < 0)
                return -1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, wire) < 0 ||
            pipe2(life, O_CLOEXEC) < 0) {
                r = cg_fail_errno(err, "tool server");
        } else {
                fds[3].fd = wire[1];
                fds[4].fd = life[0];
                r = cg_proc_spawn(&spec, &t->proc, err);
        }
        cg_closep_(&wire[1]);
        cg_closep_(&life[0]);
        t->life_fd = life[1];
        if (r < 0) {
                cg_closep_(&wire[0]);
                return cg_err_prefix(err, "tool server"), r;
        }
        cg_client_wake(t->client); /* its thread is to wait for the socket */
        return cg_zconn_init(&t->conn, wire[0], &cg_wire_broker, CG_ROLE_TOOLSERVER, SIZE_MAX, &ops, err);
}

/* ------------------------------------------------------------------ adding servers */

/* Starts the tool server and tells it of the session, once. */
static int attach(struct cg_session *s, char dir[PATH_MAX], struct cg_err *err)
{
        struct cg_client *c = s->client;
        struct cg_out out = { .type = CG_BROKER_ATTACH, .session = s->number };
        int r;
        CG_HOLD(&c->lock);

        r = s->closed ? cg_fail(err, CG_E_CLOSED, "the session has ended") : start(c->tools, err);
        snprintf(dir, PATH_MAX, "%s/%llx", c->dir, (unsigned long long)s->number);
        if (r == 0 && !s->servers) {
                r = mkdir(dir, 0700) < 0 ? cg_fail_errno(err, "%s", dir) : 0;
                s->servers = r == 0 ? json_object() : NULL;
                if (r == 0)
                        r = send_tools(c, &out, json_pack("{s:b}", "remote", true), err);
        }
        return r;
}

/* Adds the members that come from the supervisor where servers run below it. */
static void add_context(const struct cg_session *s, json_t *def, const char *dir)
{
        char here[PATH_MAX];

        if (json_object_get(def, "command") && !json_is_string(json_object_get(def, "cwd"))) {
                json_object_set_new(def, "cwd", json_string(dir));
                json_object_set_new(def, "base", json_string(getcwd(here, sizeof(here)) ?: "/"));
        }
        if (s->ask_s)
                json_object_set_new(def, "ask", json_integer(s->ask_s));
}

/* The node's modules of @name. @tools NULL: there are none, and importing them says so. */
static int add_at_node(struct cg_session *s, const char *name, json_t *tools, struct cg_err *err)
{
        cg_auto_free char *answer = NULL;
        cg_auto_json json_t *report = NULL;
        json_t *def = tools ? json_pack("{s:O}", "host_tools", tools)
                            : json_pack("{s:s}", "invalid", "it did not start");
        const char *why;
        int r;

        pthread_mutex_lock(&s->client->lock);
        if (tools && s->servers)
                json_object_set_new(s->servers, name, json_true());
        pthread_mutex_unlock(&s->client->lock);
        r = cg_client_request(s->client, CG_HOST_SERVERS_ADD, s->number,
                              json_pack("{s:{s:o}, s:i}", "servers", name, def, "timeout_ms", ADD_MS),
                              ADD_MS + 6000, NULL, &answer, err);
        if (r < 0 || cg_json_object(answer, strlen(answer), "SERVERS_ADDED", &report, err) < 0)
                return -1;
        why = cg_json_text_of(json_object_get(report, name), "error");
        if (*why)
                return cg_fail(err, CG_E_PROTO, "the node: %s", why);
        return 0;
}

/* Changes the report where a server has no modules at the node. */
static int add_all_at_node(struct cg_session *s, const json_t *servers, const json_t *answer, json_t *report,
                           struct cg_err *err)
{
        const char *name;
        json_t *def;

        json_object_foreach(cg_json_unconst(servers), name, def) {
                json_t *tools = json_object_get(json_object_get(answer, "tools"), name);
                struct cg_err why = { 0 };

                if (tools && json_string_length(tools) > CG_MAX_FUNCTIONS_TEXT) {
                        cg_fail(&why, CG_E_LIMIT,
                                "its tools' definitions have %zu bytes: with connect at most %u",
                                json_string_length(tools), CG_MAX_FUNCTIONS_TEXT);
                        add_at_node(s, name, NULL, NULL);
                } else if (add_at_node(s, name, tools, &why) == 0 || !tools) {
                        continue;
                }
                if (why.code == CG_E_CLOSED)
                        return cg_fail(err, CG_E_CLOSED, "%s", why.msg);
                json_object_set_new(report, name, json_pack("{s:s}", "error", why.msg));
        }
        return 0;
}

int cg_tools_add(struct cg_session *s, json_t *servers, int64_t timeout_ms, int64_t longest_ms, char **ret,
                 struct cg_err *err)
{
        cg_auto_json json_t *definitions = servers, *answer = NULL;
        cg_auto_free char *body = NULL;
        json_t *error, *def;
        const char *name;
        char dir[PATH_MAX];
        int r = attach(s, dir, err);

        if (r < 0)
                return r;
        json_object_foreach(definitions, name, def)
                add_context(s, def, dir);
        r = cg_client_request_tools(s->client, CG_BROKER_SERVERS, s->number,
                                    json_pack("{s:O, s:s, s:I, s:I}", "servers", definitions, "out", dir,
                                              "timeout_ms", (json_int_t)timeout_ms, "server_requests",
                                              (json_int_t)s->server_requests),
                                    longest_ms, &body, err);
        if (r < 0)
                return r;
        if (cg_json_object(body, strlen(body), "SERVERS_DONE", &answer, err) < 0)
                return CG_E_PROTO;
        error = json_object_get(answer, "error");
        r = add_all_at_node(s, definitions, answer, json_object_get(answer, "report"), err);
        if (r < 0)
                return r;
        if (error)
                return cg_fail(err, (int)json_integer_value(json_object_get(error, "code")) ?: CG_E_PROTO,
                               "%s", cg_json_text_of(error, "message"));
        *ret = cg_json_text(json_object_get(answer, "report"), NULL);
        return cg_made(*ret, "report", err);
}
