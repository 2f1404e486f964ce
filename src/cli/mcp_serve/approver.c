/*
 * `cellgate mcp serve --toolsets approvals`: another client than the agent's decides what waits in
 * the sessions of this user that allow it, as `cellgate approvals` does at a terminal. This process
 * has no kernel. Each call connects to the supervisors anew: they come and go, and decisions are
 * rare.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"
#include "cli/common/supervisors.h"

/* A supervisor that hangs must not hold up the others. */
#define ANSWER_MS 3000
/* The most characters of an approval, which is shown whole or not at all. */
#define MAX_SHOWN 4000000u

struct visit {
        enum cg_serve_tool tool;
        struct cg_client_options co;
        struct cg_answer *a;
        char *id, *digest, *decision, *reason;
        size_t n;          /* questions of the list */
        struct cg_err err; /* of the supervisors that have not got the question */
};

static void visit_fini(struct visit *v)
{
        free(v->id);
        free(v->digest);
        free(v->decision);
        free(v->reason);
}

/* Names and texts are the agent's: all but plain characters are escapes. */
static int add_line(struct visit *v, const json_t *o, struct cg_err *err)
{
        cg_auto_free char *line = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);

        if (!line)
                return cg_fail(err, CG_E_NOMEM, "approval");
        if (strlen(line) > MAX_SHOWN)
                return cg_fail(
                        err, CG_E_LIMIT,
                        "the approval has %zu characters, too many for this tool: `cellgate approvals show`"
                        " at a terminal shows it",
                        strlen(line));
        cg_answer_lines(v->a, line, strlen(line));
        return 0;
}

static int list(struct visit *v, struct cg_client *client, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        json_int_t more;
        char *text;
        json_t *q;
        size_t i;

        if (cg_client_approvals(client, &text, err) < 0)
                return -1;
        o = json_loads(text, JSON_ALLOW_NUL, NULL);
        cg_free(text);
        json_array_foreach(json_object_get(o, "approvals"), i, q) {
                if (add_line(v, q, err) < 0)
                        return -1;
                v->n++;
        }
        more = cg_reply_number(o, "more");
        if (more)
                cg_answer_note(v->a, "%lld more are not listed.", (long long)more);
        return 0;
}

static int show(struct visit *v, struct cg_client *client, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        char *text;

        if (cg_client_approval(client, v->id, &text, err) < 0)
                return -1;
        o = json_loads(text, JSON_ALLOW_NUL, NULL);
        cg_free(text);
        return add_line(v, o, err) < 0 ? -1 : 1;
}

static int decide(struct visit *v, struct cg_client *client, struct cg_err *err)
{
        bool accept = strcmp(v->decision, "accept") == 0;

        if (cg_client_decide(client, v->id, v->digest, accept,
                             accept ? NULL : v->reason ?: "refused by an approver", err) < 0)
                return -1;
        cg_answer_note(v->a, "%s.", accept ? "Accepted, once" : "Rejected");
        return 1;
}

/* Positive: it was this supervisor's question. */
static int visit_one(const char *address, void *data)
{
        static int (*const visits[])(struct visit *, struct cg_client *, struct cg_err *) = {
                [CG_SERVE_LIST_APPROVALS] = list,
                [CG_SERVE_SHOW_APPROVAL] = show,
                [CG_SERVE_DECIDE_APPROVAL] = decide,
        };
        struct visit *v = data;
        struct cg_client *client;
        struct cg_err err;
        int r;

        v->co.address = address;
        r = cg_client_open(&v->co, &client, &err);
        if (r == 0) {
                r = visits[v->tool](v, client, &err);
                cg_client_close(client);
        } else if (err.sys_errno == ENOENT || err.sys_errno == ECONNREFUSED) { /* it was killed */
                return 0;
        }
        if (r >= 0)
                return r;
        if (v->tool == CG_SERVE_LIST_APPROVALS)
                cg_answer_note(v->a, "The approvals of one supervisor are not known: %s", err.msg);
        else if (v->err.code != CG_E_INVAL && v->err.code != CG_E_LIMIT && v->err.code != CG_E_STATE)
                v->err = err;
        return 0;
}

static int read_args(struct visit *v, const char *args, struct cg_err *err)
{
        if (v->tool == CG_SERVE_LIST_APPROVALS)
                return 0;
        if (cg_serve_arg_string(args, "id", &v->id, err) < 0)
                return -1;
        cg_fail(&v->err, CG_E_NOTFOUND, "no approval %.40s waits: no supervisor is running", v->id);
        if (v->tool == CG_SERVE_SHOW_APPROVAL)
                return 0;
        if (cg_serve_arg_string(args, "digest", &v->digest, err) < 0 ||
            cg_serve_arg_string(args, "decision", &v->decision, err) < 0 ||
            cg_serve_arg_optional(args, "reason", &v->reason, err) < 0)
                return -1;
        if (strcmp(v->decision, "accept") != 0 && strcmp(v->decision, "reject") != 0)
                return cg_fail(err, CG_E_INVAL,
                               "the parameter \"decision\" must be \"accept\" or \"reject\"");
        return 0;
}

int cg_serve_approver(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a, struct cg_err *err)
{
        CG_CLEANUP(visit_fini)
        struct visit v = {
                .tool = job->tool,
                .a = a,
                .co = { .size = sizeof(v.co), .timeout_ms = ANSWER_MS, .place = s->sv->opts.place },
        };
        char name[sizeof(s->sv->proto.peer.client)];
        int r;

        pthread_mutex_lock(&s->sv->lock);
        memcpy(name, s->sv->proto.peer.client, sizeof(name));
        pthread_mutex_unlock(&s->sv->lock);
        v.co.approver = name;
        if (read_args(&v, job->args, err) < 0)
                return -1;
        r = cg_supervisors(visit_one, &v, err);
        if (r != 0)
                return r < 0 ? -1 : 0;
        if (v.tool == CG_SERVE_LIST_APPROVALS) {
                if (!v.n)
                        cg_answer_note(a, "Nothing waits that is decided here.");
                return 0;
        }
        *err = v.err;
        return -1;
}
