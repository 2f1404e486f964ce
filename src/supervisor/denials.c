/*
 * cellgate-supervisor: refusals of sandboxes, reported to the sessions' hosts. They come from the
 * egress proxy (egress.c), from a sandbox's init, which answers denied system calls, and from the
 * kernel itself, whose reports are checked and marked as such.
 */
#include "supervisor/denials.h"

#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "sandbox/command/denial.h"
#include "sandbox/notify/access.h"
#include "supervisor/clock.h"
#include "supervisor/host_link.h"
#include "supervisor/kernel.h"
#include "supervisor/kernel_link.h"
#include "supervisor/members.h"
#include "supervisor/state.h"

/*
 * Limit of the bytes that the host has not read. Denials do not wait for the window, since those of
 * other sessions come the same way; a kernel that tries in a loop must not fill the memory of a
 * host that does not read.
 */
#define MAX_UNREAD (CG_EVENT_WINDOW + (1u << 20))

void cg_sup_denial_report(struct session *ss, uint64_t cell, json_t *denial)
{
        struct cg_out out = { .type = CG_HOST_DENIED, .id = cell };
        cg_auto_buf struct cg_buf b = { .max = 32768 };

        ss->counted.denials += 1 + json_integer_value(json_object_get(denial, "untold"));
        if (!ss->host || ss->warming || ss->unread > MAX_UNREAD) {
                ss->denials_unreported += ss->host && !ss->warming;
                json_decref(denial);
                return;
        }
        if (ss->denials_unreported)
                cg_sup_notice(
                        ss,
                        "%llu denials were not reported one by one, because there were too many, or the session's events were not read",
                        (unsigned long long)ss->denials_unreported);
        ss->denials_unreported = 0;
        ss->denials_unreported += (uint64_t)json_integer_value(json_object_get(denial, "untold"));
        cg_denial_stamp(denial);
        if (cg_denial_sentence(denial, &b, NULL) == 0)
                json_object_set_new(denial, "text", cg_sup_text_json(b.data ? b.data : ""));
        cg_sup_event(ss, &out, denial, NULL);
}

bool cg_sup_denial_report_some(struct session *ss, uint64_t cell, json_t *denial, struct rate *rate)
{
        if (cg_sup_rate_take(rate)) {
                cg_sup_denial_report(ss, cell, denial);
                return true;
        }
        ss->denials_unreported++;
        ss->counted.denials++;
        json_decref(denial);
        return false;
}

/* ------------------------------------------------------------------ no network */

/* Advice that the user of this front end can follow; NULL: that of cg_access_words(). */
static const char *network_how(const struct session *ss)
{
        const char *front = json_string_value(json_object_get(ss->options, "front"));

        if (ss->settings || !front)
                return NULL;
        if (strcmp(front, "mcp") == 0)
                return "whoever starts `cellgate mcp serve` names hosts with --allow-host HOST; Python packages come by the tool install_package";
        if (strcmp(front, "jupyter") == 0)
                return "network.allowedDomains of a settings file, which `cellgate jupyter install --sandbox FILE` names";
        return NULL;
}

/*
 * Stores the report that there is no network (takes @o). It is sent once in a session, since
 * programs retry, and at the end of the cell, since a traceback that reports the same comes after
 * the attempt.
 */
static void no_network(struct session *ss, json_t *o)
{
        if (!ss || ss->no_network_reported || ss->no_network) {
                json_decref(o);
                return;
        }
        if (network_how(ss))
                json_object_set_new(o, "how", json_string(network_how(ss)));
        ss->no_network = o;
        if (!cg_sup_running_cell(ss))
                cg_sup_denials_cell_ended(ss, 0);
}

void cg_sup_denials_cell_ended(struct session *ss, uint64_t cell)
{
        json_t *o = CG_STEAL(ss->no_network);

        if (!o)
                return;
        ss->no_network_reported = true;
        cg_sup_denial_report(ss, cell, o);
}

/* ------------------------------------------------------------------ system calls */

static void on_reports(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_sandbox_denial d;
        int r;

        while ((r = cg_denial_recv(w->fd, &d)) == 0) {
                json_t *o = cg_denial_of_call(&d, false);

                if (o && d.rule == CG_ACCESS_NO_NETWORK)
                        no_network(k->session, o);
                else if (o && k->session)
                        cg_sup_denial_report(k->session, cg_sup_running_cell(k->session), o);
                else
                        json_decref(o);
        }
        if (r == CG_CLOSED)
                uv_poll_stop(&w->poll);
}

int cg_sup_denials_open(struct kernel *k, int fd, struct cg_err *err)
{
        return cg_sup_watch_start(k->sup, &k->denied, fd, on_reports, k, err);
}

void cg_sup_denials_drain(struct kernel *k)
{
        if (k && k->denied.active)
                on_reports(&k->denied);
}

/* ------------------------------------------------------------------ reports of the kernel */

/* Checks a report of the kernel. The sentences are ours, so that a kernel cannot give advice. */
static int read_denial(const struct session *ss, const json_t *report, json_t **ret, struct cg_err *err)
{
        const char *operation = "", *name = "", *setting = NULL, *what = "";
        int64_t error = 0, port = 0, pid = 0;
        struct cg_access_words w;
        enum cg_access_rule rule;
        bool network;
        int r = cg_json_str(report, "operation", "", &operation, err);

        network = r == 0 && strcmp(operation, "network-outbound") == 0;
        if (r == 0)
                r = cg_json_str(report, "rule", "", &name, err);
        if (r == 0)
                r = cg_json_str(report, "setting", NULL, &setting, err);
        if (r == 0)
                r = cg_json_str(report, network ? "host" : "path", "", &what, err);
        if (r == 0)
                r = cg_json_int(report, "errno", 0, &error, err);
        if (r == 0)
                r = cg_json_int(report, "port", 0, &port, err);
        if (r == 0)
                r = cg_json_int(report, "pid", 0, &pid, err);
        if (r < 0)
                return r;
        rule = cg_access_rule_named(name);
        if (!rule || !*what || (!network && cg_access_of_operation(operation) < 0) ||
            (setting && !cg_access_is_setting(setting)) || error < 0 || error > 4095 || port < 0 ||
            port > 65535 || pid < 0 || pid > INT32_MAX)
                return cg_fail(err, CG_E_PROTO, "malformed DENIED");
        cg_access_words(rule, setting, what, ss->settings != NULL, &w);
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

void cg_sup_denial_from_kernel(struct session *ss, const struct cg_msg *m)
{
        cg_auto_json json_t *report = NULL, *denial = NULL;
        const char *operation;
        struct cg_err err;
        bool network;
        size_t len;
        const char *text = cg_msg_raw(m, 0, &len);

        if (cg_json_object(text, len, "DENIED", &report, &err) < 0 ||
            read_denial(ss, report, &denial, &err) < 0) {
                cg_sup_kernel_violation(ss->kernel, err.msg);
                return;
        }
        operation = json_string_value(json_object_get(denial, "operation"));
        network = operation && strcmp(operation, "network-outbound") == 0;
        /* A traceback about the network replaces the report at the end of the cell. */
        if (cg_sup_denial_report_some(ss, m->id, CG_STEAL(denial), &ss->kernel_denials) && network) {
                json_decref(CG_STEAL(ss->no_network));
                ss->no_network_reported = true;
        }
}
