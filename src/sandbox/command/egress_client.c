/* A command's connection to its egress proxy. Runs in the keeper. */
#include "sandbox/command/egress_client.h"

#include <sys/socket.h>

#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "config.h"
#include "sandbox/egress/client.h"

#define BOX 1 /* the proxy serves one sandbox */

void cg_egress_client_init(struct cg_egress_client *c, const int ports[2], json_t *policy, int secrets,
                           int ask_fd, struct cg_denial_log *denials)
{
        *c = (struct cg_egress_client){ .ports = { ports[0], ports[1] },
                                        .policy = policy,
                                        .secrets = secrets,
                                        .ask_fd = ask_fd,
                                        .denials = denials };
}

static void close_ports(struct cg_egress_client *c)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(c->ports); i++)
                cg_closep_(&c->ports[i]);
}

void cg_egress_client_fini(struct cg_egress_client *c)
{
        close_ports(c);
        c->egress = cg_egress_free(c->egress);
        json_decref(c->policy);
        c->policy = NULL;
        cg_closep_(&c->secrets);
}

void cg_egress_client_poll(const struct cg_egress_client *c, struct pollfd fds[CG_EGRESS_CLIENT_FDS])
{
        fds[0] = (struct pollfd){ .fd = c->ports[0], .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = c->ports[1], .events = POLLIN };
        fds[2] = (struct pollfd){ .fd = c->egress ? cg_egress_fd(c->egress) : -1, .events = POLLIN };
}

/* Logs a decision in the wording of srt. */
static void debug_decision(const struct cg_egress_client *c, const json_t *event)
{
        static const struct {
                const char *list, *text[2];
        } rules[] = { { "answers", { "User denied", "User allowed" } },
                      { "allowedDomains", { "Allowed by config rule", "Allowed by config rule" } },
                      { "deniedDomains", { "Denied by config rule", "Denied by config rule" } } };
        const char *protocol = cg_json_text_of(event, "protocol"), *list = cg_json_text_of(event, "list"),
                   *host = cg_json_text_of(event, "host");
        const char *error = json_string_value(json_object_get(event, "error"));
        bool allowed = json_is_true(json_object_get(event, "allowed")),
             socks = strncmp(protocol, "socks", 5) == 0;
        int port = (int)json_integer_value(json_object_get(event, "port"));
        const char *rule = "No matching rule, denying";

        if (c->denials->settings->network.strict_allowlist)
                rule = "No matching config rule, denying";
        for (size_t i = 0; i < CG_ARRAY_LEN(rules); i++)
                if (strcmp(list, rules[i].list) == 0)
                        rule = rules[i].text[allowed];
        if (!host[0]) /* a request without a host; the denial has the reason */
                return;
        if (socks)
                cg_denial_log_debug(c->denials, "Connection request to %s:%d", host, port);
        cg_denial_log_debug(c->denials, "%s: %s:%d", rule, host, port);
        if (!allowed)
                cg_denial_log_debug(c->denials, "%s blocked to %s:%d",
                                    strcmp(protocol, "http") == 0 ? "HTTP request" : "Connection", host,
                                    port);
        else if (socks)
                cg_denial_log_debug(c->denials, "Connection allowed to %s:%d", host, port);
        if (!error)
                return;
        if (socks)
                cg_denial_log_debug(c->denials, "SOCKS connect to %s:%d failed: %s", host, port, error);
        else
                cg_denial_log_debug(c->denials, "%s failed: %s",
                                    strcmp(protocol, "http") == 0 ? "Proxy request" : "CONNECT tunnel",
                                    error);
}

static void answer(struct cg_egress_client *c, json_int_t id, enum cg_egress_answer what, const char *why)
{
        struct cg_err err = { 0 };

        if (c->egress && cg_egress_answer(c->egress, id, what, why, &err) < 0)
                dprintf(2, "cellgate sandbox: network: %s\n", err.msg);
}

void cg_egress_client_stop_asking(struct cg_egress_client *c)
{
        if (c->ask_fd < 0)
                return;
        c->ask_fd = -1;
        json_object_del(c->policy, "ask");
        cg_egress_client_change(c, json_incref(c->policy));
}

/* False when the caller cannot be asked any more. */
static bool send_line(struct cg_egress_client *c, json_t *event)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if (c->ask_fd < 0)
                return false;
        json_object_del(event, "sandbox");
        text = cg_json_text(event, &len);
        if (text)
                text[len++] = '\n'; /* in the place of the NUL */
        /* The keeper never waits for a caller that does not read. */
        if (text && send(c->ask_fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
                return true;
        dprintf(2,
                "cellgate sandbox: --ask: the control descriptor takes no more questions; hosts on no list are refused\n");
        cg_egress_client_stop_asking(c);
        return false;
}

static void ask(struct cg_egress_client *c, json_t *event)
{
        json_int_t id = json_integer_value(json_object_get(event, "id"));

        cg_denial_log_debug(c->denials, "No matching rule, asking user: %s:%d",
                            cg_json_text_of(event, "host"),
                            (int)json_integer_value(json_object_get(event, "port")));
        if (!send_line(c, event))
                answer(c, id, CG_EGRESS_NO, "nobody can be asked");
}

bool cg_egress_client_answer(struct cg_egress_client *c, const char *line, size_t len)
{
        cg_auto_json json_t *m = NULL;
        const char *reason;

        if (c->ask_fd < 0 || cg_json_object(line, len, "answer", &m, NULL) < 0 ||
            strcmp(cg_json_text_of(m, "type"), "answer") != 0)
                return false;
        reason = json_string_value(json_object_get(m, "reason"));
        answer(c, json_integer_value(json_object_get(m, "id")),
               cg_egress_answer_of(cg_json_text_of(m, "decision")), reason ?: "refused by the user");
        return true;
}

void cg_egress_client_read_events(struct cg_egress_client *c)
{
        struct cg_err err = { 0 };
        json_t *event;
        int r;

        if (!c->egress)
                return;
        while ((r = cg_egress_next(c->egress, &event, &err)) == 0) {
                const char *type = cg_json_text_of(event, "type");

                if (strcmp(type, "decision") == 0) {
                        debug_decision(c, event);
                        if (!json_is_true(json_object_get(event, "allowed"))) {
                                json_object_del(event, "type");
                                json_object_del(event, "sandbox");
                                json_object_set_new(event, "source", json_string("proxy"));
                                cg_denial_log_add(c->denials, json_incref(event));
                        }
                } else if (strcmp(type, "egress_request") == 0) {
                        ask(c, event);
                } else if (strcmp(type, "egress_cancel") == 0) {
                        send_line(c, event);
                } else if (strcmp(type, "error") == 0) {
                        dprintf(2, "cellgate sandbox: network: %s\n", cg_json_text_of(event, "message"));
                }
                json_decref(event);
        }
        if (r == CG_TIMEOUT)
                return;
        if (r >= 0)
                snprintf(err.msg, sizeof(err.msg), "it has closed the connection");
        dprintf(2, "cellgate sandbox: the egress proxy has ended: no network any more: %s\n", err.msg);
        c->egress = cg_egress_free(c->egress);
}

void cg_egress_client_dispatch(struct cg_egress_client *c, const struct pollfd fds[CG_EGRESS_CLIENT_FDS])
{
        struct cg_err err = { 0 };
        int r;

        if (fds[2].revents)
                cg_egress_client_read_events(c);
        if ((!fds[0].revents && !fds[1].revents) || c->ports[0] < 0)
                return;
        r = cg_egress_start(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-egress"), &c->egress, &err);
        if (r == 0)
                r = cg_egress_open(c->egress, BOX, c->policy, c->secrets, c->ports, CG_ARRAY_LEN(c->ports),
                                   &err);
        if (r < 0)
                dprintf(2, "cellgate sandbox: no network: %s\n", err.msg);
        /* From here on only the proxy has the listeners: at its end connections are refused. */
        close_ports(c);
        cg_closep_(&c->secrets);
}

void cg_egress_client_change(struct cg_egress_client *c, json_t *policy)
{
        struct cg_err err = { 0 };

        json_decref(c->policy);
        c->policy = policy;
        if (c->egress && cg_egress_change(c->egress, BOX, policy, &err) < 0)
                dprintf(2, "cellgate sandbox: network: %s\n", err.msg);
}
