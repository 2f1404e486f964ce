/*
 * cellgate-supervisor: the egress proxy of its kernels, one process, started when the first session
 * with a network opens. It decides by the session's settings; connections that they do not decide
 * become questions to the host, and refusals are reported.
 */
#include "supervisor/network/egress.h"

#include "base/installed.h"
#include "base/json.h"
#include "config.h"
#include "sandbox/egress/client.h"
#include "sandbox/settings/environ.h"
#include "supervisor/ask/asks.h"
#include "supervisor/limits/denials.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/network/masks.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* The longest time that the proxy accepts. */
#define ASK_MAX_MS (24 * 60 * 60 * 1000)

struct egress {
        struct cg_egress *proxy; /* NULL: not needed so far, or it has ended */
        uv_poll_t poll;
        bool polling;
};

int cg_sup_egress_new(struct sup *s, struct cg_err *err)
{
        s->egress = calloc(1, sizeof(*s->egress));
        return cg_made(s->egress, "egress proxy", err);
}

/* ------------------------------------------------------------------ a session's settings */

/* Some settings need processes that only `cellgate sandbox` has. */
static int check_supported(const struct cg_settings *s, struct cg_err *err)
{
        if (s->network.all_unix_sockets)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "network.allowAllUnixSockets works for `cellgate sandbox` only: list what a kernel "
                        "may use in network.allowUnixSockets");
        if (s->own.violation_log)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "cellgate.violationLog works for `cellgate sandbox` only; a session reports denials "
                        "as events");
        return 0;
}

/* Sets the kernel's environment, with the proxy's variables unless the network is off. */
static int set_env(struct session *ss, struct cg_err *err)
{
        const struct cg_settings *s = ss->settings;
        const json_t *from = json_object_get(ss->options, "env"), *v;
        struct cg_environ_options eo = { .http_port = CG_PROXY_HTTP_PORT, .socks_port = CG_PROXY_SOCKS_PORT };
        cg_auto_environ struct cg_environ env = { 0 };
        cg_auto_free char **list = calloc(json_array_size(from) + 1, sizeof(*list));
        size_t i;
        int r;

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "session");
        if (s->own.network_off)
                eo = (struct cg_environ_options){ .http_port = 0 };
        json_array_foreach(from, i, v)
                list[i] = (char *)(uintptr_t)json_string_value(v);
        r = cg_environ_make(s, list, &eo, &env, err);
        if (r < 0)
                return r;
        json_decref(ss->egress.env);
        ss->egress.env = json_array();
        for (i = 0; i < env.n; i++)
                json_array_append_new(ss->egress.env, json_string(env.v[i]));
        return 0;
}

/* Sets the policy that the proxy enforces. @ask: hosts that no rule names are asked about. */
static int set_policy(struct session *ss, bool ask, struct cg_err *err)
{
        int64_t timeout_ms = ss->approval_timeout_ms;
        int r = cg_egress_policy(ss->settings, environ, &ss->egress.policy, err);

        if (r < 0)
                return r;
        /*
         * Names come from untrusted code: a name that resolves to a private network is refused
         * unless the settings allow it.
         */
        if (!ss->settings->own.private_addresses)
                json_object_del(ss->egress.policy, "privateAddresses");
        if (!ask)
                return 0;
        json_object_set_new(ss->egress.policy, "ask", json_true());
        /*
         * As with tool calls: without a limit by the host, a question stays open until it is
         * answered or the connection is given up.
         */
        json_object_set_new(ss->egress.policy, "askTimeoutMs",
                            json_integer(timeout_ms > 0 ? CG_MIN(timeout_ms, ASK_MAX_MS) : ASK_MAX_MS));
        return 0;
}

int cg_sup_egress_apply_settings(struct session *ss, struct cg_err *err)
{
        const struct cg_settings *s = ss->settings;
        bool ask;
        int r;

        json_decref(CG_STEAL(ss->egress.policy));
        if (cg_json_bool(ss->options, "ask_egress", false, &ask, err) < 0)
                return -1;
        if (!s) /* cells have no network; the sandboxes of MCP servers may ask */
                return 0;
        if ((r = check_supported(s, err)) < 0 || (r = set_env(ss, err)) < 0 || s->own.network_off)
                return r;
        return set_policy(ss, ask, err);
}

/* ------------------------------------------------------------------ questions */

static void answer(const struct sup *s, uint64_t request, enum cg_egress_answer what, const char *reason)
{
        struct cg_err err;

        if (s->egress->proxy && cg_egress_answer(s->egress->proxy, (int64_t)request, what, reason, &err) < 0)
                cg_log(&s->log, CG_LOG_WARN, "egress proxy: %s", err.msg);
}

static void refuse(struct ask *a, bool timed_out, const char *why)
{
        answer(a->session->sup, a->number, CG_EGRESS_NO, why);
}

static void connection_decided(struct ask *a, const struct decision *d)
{
        answer(a->session->sup, a->number, cg_egress_answer_of(d->answer), cg_or_null(d->reason));
        cg_sup_ask_end(a);
}

/* The proxy has a time limit, and for each sandbox a lower limit of questions. */
static const struct ask_type connection_ask = { .kind = ASK_CONNECTION,
                                                .request = CG_HOST_EGRESS_REQUEST,
                                                .decision = CG_HOST_EGRESS_DECISION,
                                                .decided = connection_decided,
                                                .refuse = refuse,
                                                .among = ASK_CONNECTION,
                                                .max = 64,
                                                .unread = CG_EVENT_WINDOW + (1u << 20),
                                                .full = "too many questions wait for the host" };

/* A connection of the kernel to a host that no rule names. */
static void on_request(struct session *ss, const json_t *event, uint64_t request)
{
        json_t *body = json_pack("{s:O?, s:O?, s:O?, s:O?}", "host", json_object_get(event, "host"), "port",
                                 json_object_get(event, "port"), "protocol",
                                 json_object_get(event, "protocol"), "address",
                                 json_object_get(event, "address"));

        cg_sup_ask(&(struct ask){ .session = ss, .type = &connection_ask, .number = request, .body = body },
                   NULL);
}

/* ------------------------------------------------------------------ events of the proxy */

static void on_event(struct sup *s, json_t *event)
{
        const char *type = cg_json_text_of(event, "type");
        struct kernel *k = cg_sup_kernel_by_seq(
                s, (uint64_t)json_integer_value(json_object_get(event, "sandbox")));
        const char *text = cg_json_text_of(event, "message");
        uint64_t request = (uint64_t)json_integer_value(json_object_get(event, "id"));
        struct session *ss = k ? k->session : NULL;
        struct ask *a;

        if (strcmp(type, "error") == 0)
                cg_log(&s->log, CG_LOG_WARN, "egress proxy: %s", text);
        if (!ss || !ss->host)
                return;
        if (strcmp(type, "egress_request") == 0) {
                on_request(ss, event, request);
        } else if (strcmp(type, "egress_cancel") == 0) {
                a = cg_sup_ask_find(ss, request, ASK_CONNECTION);
                if (a)
                        cg_sup_ask_close(a, "no program waits for the connection any more");
        } else if (strcmp(type, "decision") == 0 && json_is_true(json_object_get(event, "allowed"))) {
                ss->bounds.counted.connections += !json_object_get(event, "error"); /* else: unreachable */
        } else if (strcmp(type, "decision") == 0) {
                json_object_del(event, "type");
                json_object_del(event, "sandbox");
                json_object_del(event, "allowed");
                json_object_set_new(event, "source", json_string("proxy"));
                cg_sup_denial_report(ss, 0, json_incref(event));
        } else if (strcmp(type, "error") == 0) {
                cg_sup_notice(ss, "network: %s", text);
        }
}

static void on_poll_closed(uv_handle_t *h)
{
        struct sup *s = h->data;

        s->egress->polling = false;
}

static void close_proxy(struct sup *s)
{
        uv_poll_stop(&s->egress->poll);
        uv_close((uv_handle_t *)&s->egress->poll, on_poll_closed);
        s->egress->proxy = cg_egress_free(s->egress->proxy);
        s->children[CG_CHILD_EGRESS] = 0;
}

void cg_sup_egress_drain(struct sup *s)
{
        struct cg_err err;
        json_t *event;
        int r = CG_TIMEOUT;

        while (s->egress->proxy && (r = cg_egress_next(s->egress->proxy, &event, &err)) == 0) {
                on_event(s, event);
                json_decref(event);
        }
        if (!s->egress->proxy || r == CG_TIMEOUT)
                return;

        /* The proxy has ended. Every sandbox's port is closed: programs are refused at once. */
        close_proxy(s);
        if (s->stopping)
                return;
        cg_log(&s->log, CG_LOG_ERROR, "the egress proxy has ended");
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = s->sessions[i];

                if (!ss || !ss->kernel || !ss->kernel->has_egress)
                        continue;
                ss->kernel->has_egress = false;
                cg_sup_asks_close(ss, ASK_CONNECTION, "the egress proxy has ended");
                if (ss->host)
                        cg_sup_notice(
                                ss,
                                "the egress proxy has ended: this kernel has no network any more; reset the session");
        }
}

static void on_readable(uv_poll_t *h, int status, int events)
{
        cg_sup_egress_drain(h->data);
}

/* ------------------------------------------------------------------ kernels */

static int start_proxy(struct sup *s, struct cg_err *err)
{
        struct egress *e = s->egress;
        int r;

        if (e->proxy)
                return 0;
        if (e->polling)
                return cg_fail(err, CG_E_STATE, "the egress proxy has just ended; try again");
        r = cg_egress_start(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-egress"), &e->proxy, err);
        if (r < 0)
                return r;
        uv_poll_init(&s->loop, &e->poll, cg_egress_fd(e->proxy));
        e->poll.data = s;
        e->polling = true;
        s->children[CG_CHILD_EGRESS] = cg_egress_pid(e->proxy);
        uv_poll_start(&e->poll, UV_READABLE | UV_DISCONNECT, on_readable);
        return 0;
}

static int open_in_proxy(struct kernel *k, const int *ports, size_t n, struct cg_err *err)
{
        cg_auto_json json_t *policy = json_copy(k->session->egress.policy);
        int r;

        if (!policy)
                return cg_fail(err, CG_E_NOMEM, "policy");
        r = start_proxy(k->sup, err);
        if (r < 0)
                return r;
        if (k->masks.inject)
                json_object_set(policy, "inject", k->masks.inject);
        return cg_egress_open(k->sup->egress->proxy, (int64_t)k->seq, policy, k->secrets, ports, n, err);
}

int cg_sup_egress_open(struct kernel *k, const int *ports, size_t n, struct cg_err *err)
{
        int r = open_in_proxy(k, ports, n, err);

        cg_sup_masks_free(k); /* the proxy has them, or there is no proxy */
        k->has_egress = r == 0;
        if (r < 0)
                return cg_err_prefix(err, "egress proxy");
        return 0;
}

void cg_sup_egress_close(struct kernel *k)
{
        struct cg_err err;

        if (!k->has_egress || !k->sup->egress->proxy)
                return;
        k->has_egress = false;
        if (cg_egress_close(k->sup->egress->proxy, (int64_t)k->seq, &err) < 0)
                cg_log(&k->sup->log, CG_LOG_WARN, "egress proxy: %s", err.msg);
}

void cg_sup_egress_stop(struct sup *s)
{
        if (s->egress->proxy)
                close_proxy(s);
}
