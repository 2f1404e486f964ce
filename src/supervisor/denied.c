/*
 * cellgate-supervisor: what sandboxes refused, told to the sessions' hosts. It comes from the
 * egress proxy (egress.c), from a sandbox's init, which answers denied system calls, and from the
 * kernel itself, whose word is checked and marked as its own.
 */
#include "supervisor/supervisor.h"

#include <string.h>
#include "base/util.h"
#include "sandbox/notify/access.h"
#include "sandbox/command/denial.h"

/*
 * Bytes that the host has not read. What is denied waits for no window: others' events come the
 * same way, and a kernel that tries again and again must not fill the memory of a host that does
 * not read.
 */
#define MAX_UNREAD (CG_EVENT_WINDOW + (1u << 20))

static bool is_full(struct session *ss)
{
        if (ss->unread > MAX_UNREAD) {
                ss->denied_untold++;
                return true;
        }
        if (ss->denied_untold)
                session_notice(
                        ss,
                        "%llu denials were not told one by one, because there were too many, or the session's events were not read",
                        (unsigned long long)ss->denied_untold);
        ss->denied_untold = 0;
        return false;
}

void session_denied(struct session *ss, uint64_t cell, json_t *denial)
{
        struct cg_out out = { .type = CG_HOST_DENIED, .id = cell };
        cg_auto_buf struct cg_buf b = { .max = 32768 };

        if (!ss->host || ss->warming || is_full(ss)) {
                json_decref(denial);
                return;
        }
        ss->denied_untold += (uint64_t)json_integer_value(json_object_get(denial, "untold"));
        cg_denial_stamp(denial);
        if (cg_denial_sentence(denial, &b, NULL) == 0)
                json_object_set_new(denial, "text", text_json(b.data ? b.data : ""));
        session_event(ss, &out, denial, NULL);
}

/* ------------------------------------------------------------------ no network */

/* What would help, as whoever reads it can do it; NULL: what cg_access_words() says. */
static const char *network_how(const struct session *ss)
{
        const char *front = json_string_value(json_object_get(ss->options, "front"));

        if (json_object_get(ss->options, "settings") || !front)
                return NULL;
        if (strcmp(front, "mcp") == 0)
                return "whoever starts `cellgate mcp serve` names hosts with --allow-host HOST; Python packages come by the tool install_package";
        if (strcmp(front, "jupyter") == 0)
                return "network.allowedDomains of a settings file, which `cellgate jupyter install --sandbox FILE` names";
        return NULL;
}

static void set_how(const struct session *ss, json_t *denial)
{
        if (network_how(ss))
                json_object_set_new(denial, "how", json_string(network_how(ss)));
}

/*
 * Once in a session is enough: programs try again and again. A traceback that says the same comes
 * later than the attempt itself. Takes @o.
 */
static void no_network(struct session *ss, json_t *o)
{
        if (!ss || ss->no_network_told || ss->no_network) {
                json_decref(o);
                return;
        }
        set_how(ss, o);
        ss->no_network = o;
        if (!cells_running(ss))
                denied_cell_ended(ss, 0);
}

void denied_cell_ended(struct session *ss, uint64_t cell)
{
        json_t *o = CG_STEAL(ss->no_network);

        if (!o)
                return;
        ss->no_network_told = true;
        session_denied(ss, cell, o);
}

/* ------------------------------------------------------------------ system calls */

static void hear(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_sandbox_denial d;
        int r;

        while ((r = cg_denial_recv(w->fd, &d)) == 0) {
                json_t *o = cg_denial_of_call(&d, false);

                if (o && d.rule == CG_ACCESS_NO_NETWORK)
                        no_network(k->session, o);
                else if (o && k->session)
                        session_denied(k->session, cells_running(k->session), o);
                else
                        json_decref(o);
        }
        if (r == CG_CLOSED)
                uv_poll_stop(&w->poll);
}

int denied_open(struct kernel *k, int fd, struct cg_err *err)
{
        return watch_start(k->sup, &k->denied, fd, hear, k, err);
}

void denied_hear(struct kernel *k)
{
        if (k && k->denied.active)
                hear(&k->denied);
}

/* ------------------------------------------------------------------ the kernel's word */

/* As for system calls: a flood tells nothing that its beginning did not. */
#define SAID_BURST      64
#define SAID_PER_SECOND 8

static bool may_say(struct session *ss)
{
        int64_t now = cg_now_ms();

        if (!ss->denied_filled_ms)
                ss->denied_tokens = SAID_BURST * 1000;
        else
                ss->denied_tokens += (now - ss->denied_filled_ms) * SAID_PER_SECOND;
        if (ss->denied_tokens > SAID_BURST * 1000)
                ss->denied_tokens = SAID_BURST * 1000;
        ss->denied_filled_ms = now;
        if (ss->denied_tokens < 1000) {
                ss->denied_untold++;
                return false;
        }
        ss->denied_tokens -= 1000;
        return true;
}

/*
 * What it said, as far as it can be true; the words are ours, so that a kernel cannot advise
 * anybody to anything.
 */
static int read_said(const struct session *ss, const json_t *said, json_t **ret, struct cg_err *err)
{
        const char *operation = "", *name = "", *setting = NULL, *what = "";
        bool by_settings = json_object_get(ss->options, "settings") != NULL;
        int64_t error = 0, port = 0, pid = 0;
        struct cg_access_words w;
        enum cg_access_rule rule;
        bool network;
        int r = cg_json_str(said, "operation", "", &operation, err);

        network = r == 0 && strcmp(operation, "network-outbound") == 0;
        if (r == 0)
                r = cg_json_str(said, "rule", "", &name, err);
        if (r == 0)
                r = cg_json_str(said, "setting", NULL, &setting, err);
        if (r == 0)
                r = cg_json_str(said, network ? "host" : "path", "", &what, err);
        if (r == 0)
                r = cg_json_int(said, "errno", 0, &error, err);
        if (r == 0)
                r = cg_json_int(said, "port", 0, &port, err);
        if (r == 0)
                r = cg_json_int(said, "pid", 0, &pid, err);
        if (r < 0)
                return r;
        rule = cg_access_rule_named(name);
        if (!rule || !*what || (!network && cg_access_of_operation(operation) < 0) ||
            (setting && !cg_access_is_setting(setting)) || error < 0 || error > 4095 || port < 0 ||
            port > 65535 || pid < 0 || pid > INT32_MAX)
                return cg_fail(err, CG_E_PROTO, "DENIED that makes no sense");
        cg_access_words(rule, setting, what, by_settings, &w);
        if (rule == CG_ACCESS_NO_NETWORK && network_how(ss))
                w.how = network_how(ss);
        *ret = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s, s:{s:I, s:s}}", "operation", operation,
                         network ? "host" : "path", what, "rule", w.rule, "why", w.why, "how", w.how,
                         "source", "kernel", "process", "pid", (json_int_t)pid, "name", "python");
        if (*ret && network) {
                json_object_set_new(*ret, "port", json_integer(port));
                json_object_set_new(*ret, "protocol", json_string("direct"));
        }
        if (*ret && error && strerrorname_np((int)error))
                json_object_set_new(*ret, "errno", json_string(strerrorname_np((int)error)));
        return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "denial");
}

/* A traceback that tells of the network has told it to whoever reads. */
static json_t *denial_of_traceback(struct session *ss, json_t *denial)
{
        if (strcmp(json_string_value(json_object_get(denial, "operation")) ?: "", "network-outbound") == 0) {
                json_decref(CG_STEAL(ss->no_network));
                ss->no_network_told = true;
        }
        return denial;
}

void denied_said(struct session *ss, const struct cg_msg *m)
{
        cg_auto_json json_t *said = NULL;
        json_t *denial = NULL;
        struct cg_err err;
        size_t len;
        const char *text = cg_msg_raw(m, 0, &len);

        if (cg_json_object(text, len, "DENIED", &said, &err) < 0 || read_said(ss, said, &denial, &err) < 0)
                kernel_violation(ss->kernel, err.msg);
        else if (may_say(ss))
                session_denied(ss, m->id, denial_of_traceback(ss, CG_STEAL(denial)));
        json_decref(denial);
}
