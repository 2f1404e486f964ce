/*
 * cellgate-supervisor: refusals of sandboxes, reported to the sessions' hosts. They come from the
 * egress proxy (egress.c), from a sandbox's init, which answers denied system calls, and from the
 * kernel itself, whose reports are checked and marked as such.
 */
#include "supervisor/limits/denials.h"

#include "base/json.h"
#include "sandbox/command/denial.h"
#include "sandbox/names/names.h"
#include "sandbox/inside/access.h"
#include "supervisor/cells/clock.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"

/*
 * Limit of the bytes that the host has not read. Denials do not wait for the window, since those of
 * other sessions come the same way; a kernel that tries in a loop must not fill the memory of a
 * host that does not read.
 */
#define MAX_UNREAD (CG_EVENT_WINDOW + (1u << 20))
/* Reports at the end of a cell; further paths that each names; paths that are remembered. */
#define MAX_HELD 8
#define MAX_ALSO 3
#define MAX_TOLD 64

void cg_sup_denial_report(struct session *ss, uint64_t cell, json_t *denial)
{
        struct cg_out out = { .type = CG_HOST_DENIED, .id = cell };
        /* "server" only where an MCP server's own sandbox has refused it */
        const char *server = json_string_value(json_object_get(denial, "server"));
        cg_auto_buf struct cg_buf b = { .max = 32768 };

        ss->bounds.counted.denials += 1 + json_integer_value(json_object_get(denial, "untold"));
        if (!ss->host || ss->use.warming || ss->unread > MAX_UNREAD) {
                ss->denials.unreported += ss->host && !ss->use.warming;
                json_decref(denial);
                return;
        }
        if (ss->denials.unreported)
                cg_sup_notice(
                        ss,
                        "%llu denials were not reported one by one, because there were too many, or the session's events were not read",
                        (unsigned long long)ss->denials.unreported);
        ss->denials.unreported = 0;
        ss->denials.unreported += (uint64_t)json_integer_value(json_object_get(denial, "untold"));
        cg_denial_stamp(denial);
        if (server)
                cg_buf_addf(&b, "MCP server %s: ", server);
        cg_denial_sentence(denial, &b);
        if (cg_buf_end(&b, NULL) == 0)
                json_object_set_new(denial, "text", cg_sup_text_json(b.data ?: ""));
        cg_sup_event(ss, &out, denial, NULL);
}

bool cg_sup_denial_report_some(struct session *ss, uint64_t cell, json_t *denial, struct rate *rate)
{
        if (cg_sup_rate_take(rate)) {
                cg_sup_denial_report(ss, cell, denial);
                return true;
        }
        ss->denials.unreported++;
        ss->bounds.counted.denials++;
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

/* ------------------------------------------------------------------ once in a cell */

static bool is_network(const json_t *o)
{
        return strcmp(cg_json_text_of(o, "operation"), "network-outbound") == 0;
}

/* Adds @n to a number of @o, which is absent if it is 0. */
static void add_to(json_t *o, const char *key, json_int_t n)
{
        if (n)
                json_object_set_new(o, key, json_integer(n + json_integer_value(json_object_get(o, key))));
}

static bool is_name(const json_t *o)
{
        return strncmp(cg_json_text_of(o, "why"), CG_ACCESS_NAME_WHY, strlen(CG_ACCESS_NAME_WHY)) == 0;
}

/* One rule, or names that programs outside obey: one report. */
static bool is_same_kind(const json_t *held, const json_t *o)
{
        bool same = strcmp(cg_json_text_of(held, "rule"), cg_json_text_of(o, "rule")) == 0 &&
                    strcmp(cg_json_text_of(held, "how"), cg_json_text_of(o, "how")) == 0;

        return strcmp(cg_json_text_of(held, "operation"), cg_json_text_of(o, "operation")) == 0 &&
               (same || (is_name(held) && is_name(o)));
}

/* The words of a report of several names. */
static void set_words_of_names(json_t *o)
{
        const json_t *also = json_object_get(o, "also"), *path;
        cg_auto_buf struct cg_buf how = { .max = 4096 };
        char name[300];
        size_t i;

        cg_buf_addf(&how, "add \"%s\"", cg_names_of(cg_json_text_of(o, "path")));
        json_array_foreach(also, i, path) {
                snprintf(name, sizeof(name), "\"%s\"", cg_names_of(json_string_value(path)));
                if (how.data && !strstr(how.data, name))
                        cg_buf_addf(&how, ", %s", name);
        }
        cg_buf_addf(&how, "%s to cellgate.writableNames of a settings file",
                    json_object_get(o, "more") ? " and the names of the others" : "");
        if (cg_buf_end(&how, NULL) == 0)
                json_object_set_new(o, "how", json_string(how.data));
        json_object_set_new(o, "rule", json_string("names (built in)"));
        json_object_set_new(o, "why", json_string(CG_ACCESS_NAME_WHY "these names"));
}

/* Adds the path of @o to those of @held, which a rule of the same kind has refused. */
static void add_path(json_t *held, const json_t *o)
{
        json_t *paths = json_object_get(held, "paths"), *also = json_object_get(held, "also");
        const char *path = cg_json_text_of(o, "path");

        add_to(held, "untold", json_integer_value(json_object_get(o, "untold")));
        if (strcmp(cg_json_text_of(held, "rule"), cg_json_text_of(o, "rule")) != 0)
                json_object_set_new(held, "several", json_true());
        if (!*path || json_object_get(paths, path))
                return;
        if (json_object_size(paths) < MAX_TOLD)
                json_object_set_new(paths, path, json_true());
        if (json_array_size(also) < MAX_ALSO)
                json_array_append_new(also, json_string(path));
        else
                add_to(held, "more", 1);
}

/*
 * Stores the report of a file or of the missing network (takes @o) for the end of the cell:
 * programs retry, try many paths, and report by themselves what the traceback of the cell explains
 * later. Reports of one kind become one.
 */
static void hold(struct session *ss, json_t *o)
{
        json_t *held, *process = json_object_get(o, "process");
        size_t i;

        if (strcmp(cg_json_text_of(process, "name"), "cellgate-kernel") == 0)
                json_object_set_new(process, "name", json_string("python")); /* as in its own reports */
        if (!ss) {
                json_decref(o);
                return;
        }
        if (is_network(o) && network_how(ss))
                json_object_set_new(o, "how", json_string(network_how(ss)));
        if (!cg_sup_running_cell(ss)) {
                cg_sup_denial_report(ss, 0, o);
                return;
        }
        if (!ss->denials.held)
                ss->denials.held = json_array();
        json_array_foreach(ss->denials.held, i, held) {
                if (!is_same_kind(held, o))
                        continue;
                add_path(held, o);
                json_decref(o);
                return;
        }
        if (json_array_size(ss->denials.held) < MAX_HELD) {
                json_object_set_new(o, "also", json_array());
                json_object_set_new(o, "paths", json_pack("{s:b}", cg_json_text_of(o, "path"), true));
                json_array_append_new(ss->denials.held, o);
                return;
        }
        ss->denials.unreported++;
        json_decref(o);
}

/* A traceback explains @o, which is reported at once: it is not reported again. */
static void set_told(struct session *ss, const json_t *o)
{
        if (is_network(o)) {
                ss->denials.network_told = true;
                return;
        }
        if (!ss->denials.told)
                ss->denials.told = json_object();
        if (json_object_size(ss->denials.told) < MAX_TOLD)
                json_object_set_new(ss->denials.told, cg_json_text_of(o, "path"),
                                    json_string(cg_json_text_of(o, "operation")));
}

static bool is_told(const struct session *ss, const json_t *o, const char *path)
{
        return strcmp(cg_json_text_of(ss->denials.told, path), cg_json_text_of(o, "operation")) == 0;
}

/* Removes the paths that were told. False: none is left. */
static bool keep_untold(const struct session *ss, json_t *o)
{
        json_t *also = json_object_get(o, "also");

        json_object_del(o, "paths");
        if (is_network(o)) {
                json_object_del(o, "also");
                return !ss->denials.network_told;
        }
        for (size_t i = json_array_size(also); i-- > 0;)
                if (is_told(ss, o, json_string_value(json_array_get(also, i))))
                        json_array_remove(also, i);
        if (*cg_json_text_of(o, "path") && is_told(ss, o, cg_json_text_of(o, "path"))) {
                if (!json_array_size(also))
                        return false;
                json_object_set(o, "path", json_array_get(also, 0));
                json_array_remove(also, 0);
        }
        if (!json_array_size(also))
                json_object_del(o, "also");
        return true;
}

void cg_sup_denials_cell_ended(struct session *ss, uint64_t cell)
{
        cg_auto_json json_t *held = CG_STEAL(ss->denials.held);
        json_t *o;
        size_t i;

        json_array_foreach(held, i, o) {
                if (!keep_untold(ss, o))
                        continue;
                if (json_object_get(o, "several"))
                        set_words_of_names(o);
                json_object_del(o, "several");
                ss->bounds.counted.denials += json_array_size(json_object_get(o, "also")) +
                                              (uint64_t)json_integer_value(json_object_get(o, "more"));
                cg_sup_denial_report(ss, cell, json_incref(o));
        }
        json_decref(CG_STEAL(ss->denials.told));
        ss->denials.network_told = false;
}

/* ------------------------------------------------------------------ system calls */

static void on_reports(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_sandbox_denial d;
        int r;

        while ((r = cg_denial_recv(w->fd, &d)) == 0) {
                json_t *o = cg_denial_of_call(&d, false, k->session && k->session->settings);

                /* With "exec": "deny" all programs have one reason; others have their own. */
                if (o && (d.rule ? d.access != CG_ACCESS_EXEC
                                 : strcmp(cg_json_text_of(o, "operation"), "exec") == 0))
                        hold(k->session, o);
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

/*
 * The beginning of @text that a report may have, as those of init: longer ones could not be sent,
 * nor the reports of others that are joined with them.
 */
static size_t reported_length(const char *text)
{
        size_t n = strnlen(text, sizeof(((struct cg_sandbox_denial *)0)->path) - 1);

        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
                n--; /* not within a character */
        return n;
}

/* Checks a report of the kernel. The sentences are ours, so that a kernel cannot give advice. */
static int read_denial(const struct session *ss, const json_t *report, json_t **ret, struct cg_err *err)
{
        const char *operation = "", *name = "", *setting = NULL, *what = "";
        int64_t error = 0, port = 0, pid = 0;
        struct cg_access_words w;
        enum cg_access_rule rule;
        bool network, socket, output = json_is_true(json_object_get(report, "output"));
        int r = cg_json_str(report, "operation", "", &operation, err);

        if (r < 0)
                return r;
        network = strcmp(operation, "network-outbound") == 0;
        socket = strcmp(operation, "socket") == 0;
        if ((r = cg_json_str(report, "rule", "", &name, err)) < 0 ||
            (r = cg_json_str(report, "setting", NULL, &setting, err)) < 0 ||
            (r = cg_json_str(report, network ? "host" : "path", "", &what, err)) < 0 ||
            (r = cg_json_int(report, "errno", 0, &error, err)) < 0 ||
            (r = cg_json_int(report, "port", 0, &port, err)) < 0 ||
            (r = cg_json_int(report, "pid", 0, &pid, err)) < 0)
                return r;
        rule = cg_access_rule_named(name);
        if (!rule || !*what || (!network && *what != '/') ||
            (!network && !socket && cg_access_of_operation(operation) < 0) ||
            (setting && !cg_access_is_setting(setting)) || error < 0 || error > 4095 || port < 0 ||
            port > 65535 || pid < 0 || pid > INT32_MAX)
                return cg_fail(err, CG_E_PROTO, "malformed DENIED");
        cg_access_words(rule, setting, what, ss->settings != NULL, &w);
        if (rule == CG_ACCESS_NO_NETWORK && network_how(ss))
                w.how = network_how(ss);
        *ret = json_pack("{s:s, s:s%, s:s, s:s, s:s?, s:s}", "operation", operation,
                         network ? "host" : "path", what, reported_length(what), "rule", w.rule, "why", w.why,
                         "how", w.how, "source", output ? "output" : "kernel");
        if (*ret && !output)
                json_object_set_new(*ret, "process",
                                    json_pack("{s:I, s:s}", "pid", (json_int_t)pid, "name", "python"));
        if (*ret && network) {
                json_object_set_new(*ret, "port", json_integer(port));
                json_object_set_new(*ret, "protocol", json_string("direct"));
        }
        if (*ret && error && strerrorname_np((int)error))
                json_object_set_new(*ret, "errno", json_string(strerrorname_np((int)error)));
        return cg_made(*ret, "denial", err);
}

void cg_sup_denial_from_kernel(struct session *ss, const struct cg_msg *m)
{
        cg_auto_json json_t *report = NULL, *denial = NULL;
        struct cg_err err;
        size_t len;
        const char *text = cg_msg_raw(m, 0, &len);

        if (cg_json_object(text, len, "DENIED", &report, &err) < 0 ||
            read_denial(ss, report, &denial, &err) < 0) {
                cg_sup_kernel_violation(ss->kernel, err.msg);
                return;
        }
        cg_sup_denials_drain(ss->kernel); /* init's own report is the better one */
        if (strcmp(cg_json_text_of(denial, "source"), "kernel") == 0) {
                if (cg_sup_denial_report_some(ss, m->id, json_incref(denial), &ss->denials.kernel))
                        set_told(ss, denial);
        } else if (cg_sup_rate_take(&ss->denials.kernel)) {
                hold(ss, CG_STEAL(denial));
        } else {
                ss->denials.unreported++;
        }
}
