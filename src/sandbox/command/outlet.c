/* The way out. Runs in the keeper. */
#include "sandbox/command/outlet.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "config.h"
#include "sandbox/command/ask.h"
#include "sandbox/egress/client.h"
#include "sandbox/egress/policy.h"

#define BOX 1 /* the proxy serves one sandbox */

/* First of the names that the environment has, or NULL. */
static const char *from_env(char *const *env, const char *const *names)
{
        for (; *names; names++) {
                size_t n = strlen(*names);

                for (char *const *p = env; *p; p++) {
                        if (!strncmp(*p, *names, n) && (*p)[n] == '=' && (*p)[n + 1])
                                return *p + n + 1;
                }
        }
        return NULL;
}

/* The proxies that the caller itself uses: a machine behind one has no other way out. */
static json_t *parent_from_env(char *const *env)
{
        static const char *const http[] = { "HTTP_PROXY", "http_proxy", NULL },
                                 *const https[] = { "HTTPS_PROXY", "https_proxy", NULL },
                                 *const no[] = { "NO_PROXY", "no_proxy", NULL };
        const char *h = from_env(env, http), *s = from_env(env, https), *n = from_env(env, no);

        if (!h && !s)
                return NULL;
        return json_pack("{s:s*, s:s*, s:s*}", "http", h, "https", s, "noProxy", n);
}

int cg_outlet_policy(const struct cg_settings *s, char *const *env, json_t **ret, struct cg_err *err)
{
        /* By name: keys that we do not know are not the proxy's either. */
        static const char *const keys[] = { "allowedDomains",
                                            "deniedDomains",
                                            "deniedDomainReasons",
                                            "strictAllowlist",
                                            "deniedResolvedAddresses",
                                            "httpProxyPort",
                                            "socksProxyPort",
                                            "mitmProxy",
                                            "parentProxy",
                                            "refuseOpaqueTunnels",
                                            "requireHostMatch",
                                            "stripResponseHeaders" };
        const json_t *net = json_object_get(s->root, "network");
        cg_auto_json json_t *o = json_object();
        struct cg_policy *check = NULL;
        int e;

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++) {
                json_t *v = json_object_get(net, keys[i]);

                if (v)
                        json_object_set(o, keys[i], v);
        }
        if (!s->network.has_parent) {
                json_t *parent = parent_from_env(env);

                if (parent)
                        json_object_set_new(o, "parentProxy", parent);
        }
        /*
         * As srt: a name that is allowed may lead into a private network, where
         * deniedResolvedAddresses does not say otherwise.
         */
        json_object_set_new(o, "privateAddresses", json_true());
        e = cg_policy_new(o, &check, err);
        cg_policy_free(check);
        if (e < 0)
                return cg_err_prefix(err, "network");
        *ret = CG_STEAL(o);
        return 0;
}

void cg_outlet_init(struct cg_outlet *o, const int ports[2], json_t *policy, int secrets,
                    struct cg_violations *violations)
{
        *o = (struct cg_outlet){ .ports = { ports[0], ports[1] },
                                 .policy = policy,
                                 .secrets = secrets,
                                 .violations = violations };
}

static void close_ports(struct cg_outlet *o)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(o->ports); i++)
                cg_closep_(&o->ports[i]);
}

void cg_outlet_fini(struct cg_outlet *o)
{
        close_ports(o);
        o->egress = cg_egress_free(o->egress);
        json_decref(o->policy);
        o->policy = NULL;
        cg_closep_(&o->secrets);
}

void cg_outlet_poll(const struct cg_outlet *o, struct pollfd fds[CG_OUTLET_FDS])
{
        fds[0] = (struct pollfd){ .fd = o->ports[0], .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = o->ports[1], .events = POLLIN };
        fds[2] = (struct pollfd){ .fd = o->egress ? cg_egress_fd(o->egress) : -1, .events = POLLIN };
}

/*
 * The listeners are the proxy's alone from here on, so that its end is a closed port and not a wait
 * without end.
 */
static void start(struct cg_outlet *o)
{
        struct cg_err err = { 0 };
        int e = cg_egress_start(CG_LIBEXECDIR "/cellgate-egress", &o->egress, &err);

        if (e == 0)
                e = cg_egress_open(o->egress, BOX, o->policy, o->secrets, o->ports, CG_ARRAY_LEN(o->ports),
                                   &err);
        if (e < 0)
                dprintf(2, "cellgate sandbox: no network: %s\n", err.msg);
        close_ports(o);
        cg_closep_(&o->secrets);
}

static const char *text_of(const json_t *o, const char *key)
{
        const char *s = json_string_value(json_object_get(o, key));

        return s ? s : "";
}

/* What became of a request or connection, in srt's words. */
static void debug_decision(const struct cg_outlet *o, const json_t *event)
{
        const char *protocol = text_of(event, "protocol"), *list = text_of(event, "list"),
                   *host = text_of(event, "host");
        const char *error = json_string_value(json_object_get(event, "error"));
        bool allowed = json_is_true(json_object_get(event, "allowed")),
             socks = strncmp(protocol, "socks", 5) == 0;
        int port = (int)json_integer_value(json_object_get(event, "port"));
        const char *rule = !strcmp(list, "answers")          ? allowed ? "User allowed" : "User denied"
                           : !strcmp(list, "allowedDomains") ? "Allowed by config rule"
                           : !strcmp(list, "deniedDomains")  ? "Denied by config rule"
                           : o->violations->settings->network.strict_allowlist
                                   ? "No matching config rule, denying"
                                   : "No matching rule, denying";

        if (!host[0]) /* no request that has a host; the denial says why */
                return;
        if (socks)
                cg_violations_debug(o->violations, "Connection request to %s:%d", host, port);
        cg_violations_debug(o->violations, "%s: %s:%d", rule, host, port);
        if (!allowed)
                cg_violations_debug(o->violations, "%s blocked to %s:%d",
                                    !strcmp(protocol, "http") ? "HTTP request" : "Connection", host, port);
        else if (socks)
                cg_violations_debug(o->violations, "Connection allowed to %s:%d", host, port);
        if (!error)
                return;
        if (socks)
                cg_violations_debug(o->violations, "SOCKS connect to %s:%d failed: %s", host, port, error);
        else
                cg_violations_debug(o->violations, "%s failed: %s",
                                    !strcmp(protocol, "http") ? "Proxy request" : "CONNECT tunnel", error);
}

static void decided(struct cg_outlet *o, json_t *event)
{
        debug_decision(o, event);
        if (json_is_true(json_object_get(event, "allowed")))
                return;
        json_object_del(event, "type");
        json_object_del(event, "sandbox");
        json_object_set_new(event, "source", json_string("proxy"));
        cg_violations_add(o->violations, json_incref(event));
}

static void answer(struct cg_outlet *o, json_int_t id, enum cg_egress_answer what, const char *why)
{
        struct cg_err err = { 0 };

        if (o->egress && cg_egress_answer(o->egress, id, what, why, &err) < 0)
                dprintf(2, "cellgate sandbox: network: %s\n", err.msg);
}

static void asked(struct cg_outlet *o, const json_t *event)
{
        const char *why = "nobody can be asked";

        cg_violations_debug(o->violations, "No matching rule, asking user: %s:%d", text_of(event, "host"),
                            (int)json_integer_value(json_object_get(event, "port")));
        if (!o->ask || !cg_ask_add(o->ask, event, &why))
                answer(o, json_integer_value(json_object_get(event, "id")), CG_EGRESS_NO, why);
}

void cg_outlet_answer(struct cg_outlet *o, bool give_up)
{
        enum cg_egress_answer what;
        json_int_t id;

        if (!o->ask)
                return;
        while (give_up && (id = cg_ask_give_up(o->ask)))
                answer(o, id, CG_EGRESS_NO, "the question was broken off");
        while (!give_up && cg_ask_read(o->ask, &id, &what))
                answer(o, id, what, "refused at the terminal");
}

void cg_outlet_hear(struct cg_outlet *o)
{
        struct cg_err err = { 0 };
        json_t *event;
        int e;

        if (!o->egress)
                return;
        while ((e = cg_egress_next(o->egress, &event, &err)) == 0) {
                const char *type = text_of(event, "type");

                if (!strcmp(type, "decision"))
                        decided(o, event);
                else if (!strcmp(type, "egress_request"))
                        asked(o, event);
                else if (!strcmp(type, "egress_cancel") && o->ask)
                        cg_ask_cancel(o->ask, json_integer_value(json_object_get(event, "id")));
                else if (!strcmp(type, "error"))
                        dprintf(2, "cellgate sandbox: network: %s\n", text_of(event, "message"));
                json_decref(event);
        }
        if (e == CG_TIMEOUT)
                return;
        dprintf(2, "cellgate sandbox: the egress proxy has ended: no network any more%s%s\n",
                e < 0 ? ": " : "", e < 0 ? err.msg : "");
        o->egress = cg_egress_free(o->egress);
}

void cg_outlet_work(struct cg_outlet *o, const struct pollfd fds[CG_OUTLET_FDS])
{
        if (fds[2].revents)
                cg_outlet_hear(o);
        if ((fds[0].revents || fds[1].revents) && o->ports[0] >= 0)
                start(o);
}

void cg_outlet_change(struct cg_outlet *o, json_t *policy)
{
        struct cg_err err = { 0 };

        json_decref(o->policy);
        o->policy = policy;
        if (o->egress && cg_egress_change(o->egress, BOX, policy, &err) < 0)
                dprintf(2, "cellgate sandbox: network: %s\n", err.msg);
}
