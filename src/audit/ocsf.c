/*
 * `cellgate audit --ocsf`. Runs in cellgate-audit. The class says what a record is about; the
 * record itself is in `unmapped`.
 */
#include "audit/ocsf.h"

#include "base/json.h"
#include "base/text.h"
#include "config.h"

#define SCHEMA "1.5.0"
#define OTHER  99 /* activity */

enum shape { BASE, APP, SCRIPT, PROCESS, API, FINDING, SYSTEM };
enum severity { INFORMATIONAL = 1, LOW = 2, MEDIUM = 3, HIGH = 4 };

static const struct event_class {
        const char *kind;
        int uid, activity;
        enum shape shape; /* the attributes that it requires */
        enum severity severity;
} classes[] = {
        { "session.opened", 6002, 3, APP, INFORMATIONAL },      /* start */
        { "session.reset", 6002, 5, APP, INFORMATIONAL },       /* restart */
        { "session.ended", 6002, 4, APP, INFORMATIONAL },       /* stop */
        { "kernel.died", 6002, 4, APP, MEDIUM },                /* stop */
        { "servers.added", 6002, 6, APP, INFORMATIONAL },       /* enable */
        { "cell.started", 1009, 1, SCRIPT, INFORMATIONAL },     /* execute */
        { "command.started", 1007, 1, PROCESS, INFORMATIONAL }, /* launch */
        { "command.ended", 1007, 2, PROCESS, INFORMATIONAL },   /* terminate */
        { "cell.ended", 6003, OTHER, API, INFORMATIONAL },
        { "question", 6003, OTHER, API, INFORMATIONAL },
        { "call.ended", 6003, OTHER, API, INFORMATIONAL },
        { "function.called", 6003, OTHER, API, INFORMATIONAL },
        { "denied", 2004, 1, FINDING, MEDIUM },            /* create */
        { "log.rotated", 1008, 5, SYSTEM, INFORMATIONAL }, /* rotate */
        { "log.started", 1008, 6, SYSTEM, INFORMATIONAL }, /* start */
        { "log.gap", 1008, OTHER, SYSTEM, HIGH },
        { "", 0, OTHER, BASE, INFORMATIONAL }, /* all else */
};

static const char *text(const json_t *o, const char *name)
{
        const char *s = json_string_value(json_object_get(o, name));

        return cg_text_or(s, NULL);
}

/* @event: the body, or the question or event in it. */
static void add_shape(json_t *o, enum shape shape, const struct cg_audit_record *r, const json_t *body,
                      const json_t *event)
{
        const char *tool = text(event, "tool") ?: text(event, "method") ?: text(event, "host");
        cg_auto_free char *words = cg_json_text(json_object_get(body, "words") ?: body, NULL);
        const char *name = NULL;
        char host[256] = "unknown";
        json_t *v = NULL;

        gethostname(host, sizeof(host) - 1);
        if (shape == SCRIPT || shape == PROCESS || shape == SYSTEM)
                json_object_set_new(o, "device", json_pack("{s:i, s:s}", "type_id", 0, "hostname", host));
        if (shape == APP) {
                name = "app";
                v = json_pack("{s:s, s:s}", "name", "cellgate session", "uid", r->session);
        } else if (shape == SCRIPT) { /* 3: Python */
                name = "script";
                v = json_pack("{s:i, s:{s:s}}", "type_id", 3, "script_content", "value",
                              text(body, "code") ?: "");
        } else if (shape == PROCESS) {
                name = "process";
                v = json_pack("{s:s, s:s}", "uid", r->session, "cmd_line", words ?: "");
        } else if (shape == API) {
                json_object_set_new(o, "src_endpoint",
                                    json_pack("{s:s, s:s}", "name", host, "uid", r->session));
                name = "api";
                v = json_pack("{s:s, s:{s:s}}", "operation", tool ?: r->kind, "service", "name",
                              text(event, "server") ?: "cellgate");
        } else if (shape == FINDING) {
                name = "finding_info";
                v = json_pack("{s:O, s:s}", "uid", json_object_get(json_object_get(o, "metadata"), "uid"),
                              "title", text(event, "line") ?: "denied");
        }
        if (name)
                json_object_set_new(o, name, v);
}

json_t *cg_audit_ocsf(const struct cg_audit_record *r, json_t *body)
{
        const json_t *event = json_object_get(body, "question") ?: json_object_get(body, "event") ?: body;
        const char *decision = text(body, "decision"), *status = text(event, "status");
        const struct event_class *c = classes;
        char hash[2 * CG_AUDIT_HASH + 1];
        json_t *o;

        while (c->kind[0] && strcmp(c->kind, r->kind) != 0)
                c++;
        cg_hex(hash, r->hash, CG_AUDIT_HASH);
        o = json_pack("{s:i, s:i, s:i, s:s, s:i, s:i, s:I, s:{s:s, s:s, s:I, s:s, s:[s], s:{s:s, s:s, s:s}},"
                      " s:{s:s, s:{s:s}}, s:{s:O}}",
                      "class_uid", c->uid, "category_uid", c->uid / 1000, "activity_id", c->activity,
                      "activity_name", r->kind, "type_uid", c->uid * 100 + c->activity, "severity_id",
                      c->severity, "time", (json_int_t)(r->time_us / 1000), "metadata", "version", SCHEMA,
                      "uid", hash, "sequence", (json_int_t)r->seq, "event_code", r->kind, "profiles",
                      "security_control", "product", "name", "cellgate", "vendor_name", "cellgate", "version",
                      CG_VERSION, "actor", "app_name", "cellgate", "session", "uid", r->session, "unmapped",
                      "body", body);
        if (!o)
                return NULL;
        add_shape(o, c->shape, r, body, event);
        if (status)
                json_object_set_new(o, "status_id", json_integer(strcmp(status, "ok") == 0 ? 1 : 2));
        if (decision && strcmp(decision, "answered") != 0)
                json_object_set_new(o, "action_id", json_integer(strcmp(decision, "accept") == 0 ? 1 : 2));
        return o;
}
