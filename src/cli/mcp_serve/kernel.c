/*
 * `cellgate mcp serve`: the session of libcellgate that a worker owns: its start with the MCP
 * servers of the command line and of the agent, and its end.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/ceilings.h"
#include "base/json.h"
#include "cli/common/rule_check.h"

/* The egress proxy takes no longer limit than a day. */
#define MAX_ASK_MS 86000000

void cg_serve_close(struct cg_serve_session *s)
{
        struct cg_session *kernel = s->session;

        pthread_mutex_lock(&s->sv->lock);
        s->session = NULL;
        s->cell = 0;
        pthread_mutex_unlock(&s->sv->lock);
        cg_serve_drop_asks(s);
        s->client = cg_client_close(s->client);
        cg_session_free(kernel);
        free(s->lost);
        s->lost = NULL;
        s->end.death_reported = false;
}

static void report_unavailable(struct cg_serve_session *s, const char *name, const char *why)
{
        struct cg_err err;

        cg_fail(&err, CG_E_STATE, "the MCP server \"%s\" is not there: %s", name, why);
        cg_log(&s->sv->log, CG_LOG_ERROR, "%s", err.msg);
        cg_serve_send_message(s, CG_MCPD_LOG_ERROR, err.msg);
        cg_serve_remark(s, err.msg);
}

/* Reports to the agent which servers did not start. Returns their tools (cg_rules_known()). */
static json_t *add_servers(struct cg_serve_session *s, json_t *servers)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *o = NULL;
        char *report = NULL;
        struct cg_err err, late;
        const char *name;
        json_t *one, *known;
        size_t len;

        if (s->lost || !json_object_size(servers) || !(text = cg_json_text(servers, &len)))
                return cg_rules_known(NULL, servers);
        if (cg_session_add_mcp_servers(s->session, text, len, 0, &report, &err) < 0 ||
            cg_json_object(report, strlen(report), "report", &o, &err) < 0) {
                cg_log(&s->sv->log, CG_LOG_ERROR, "no MCP server is there: %s", err.msg);
                cg_fail(&late, CG_E_STATE, "no MCP server is there: %s", err.msg);
                cg_serve_send_message(s, CG_MCPD_LOG_ERROR, late.msg);
                cg_serve_remark(s, late.msg);
        }
        json_object_foreach(o, name, one)
                if (json_object_get(one, "error"))
                        report_unavailable(s, name, json_string_value(json_object_get(one, "error")));
        known = cg_rules_known(report, servers);
        cg_free(report);
        return known;
}

/*
 * Checks the approval rules once, when the configured servers have been added. If one that refuses
 * matches nothing, this program ends.
 */
static int check_rules(struct cg_serve_session *s, json_t *known, struct cg_err *err)
{
        cg_auto_buf struct cg_buf notes = { .max = CG_MAX_REPORT };
        json_t *own;
        int r = 0;

        pthread_mutex_lock(&s->sv->policy);
        if (s->sv->rules_checked) {
                pthread_mutex_unlock(&s->sv->policy);
                return 0;
        }
        s->sv->rules_checked = true;
        /* Rules decide about these tools only: one about another tool would decide nothing. */
        own = json_pack("[s, s]", cg_serve_tool_defs[CG_SERVE_REGISTER].name,
                        cg_serve_tool_defs[CG_SERVE_INSTALL].name);
        json_object_set_new(known, "cellgate", own);
        r = cg_rules_check(s->approve, known, &notes, err);
        pthread_mutex_unlock(&s->sv->policy);
        for (char *p = notes.data, *line; (line = strsep(&p, "\n")) && p;)
                cg_log(&s->sv->log, CG_LOG_WARN, "%s", line);
        if (r < 0) {
                pthread_mutex_lock(&s->sv->lock);
                s->sv->refused = *err;
                pthread_mutex_unlock(&s->sv->lock);
                cg_serve_wake(s->sv->io_fd);
        }
        return r;
}

static bool is_refused(struct cg_serve_session *s, struct cg_err *err)
{
        CG_HOLD(&s->sv->lock);

        if (s->sv->refused.code < 0)
                *err = s->sv->refused;
        return s->sv->refused.code < 0;
}

int cg_serve_open(struct cg_serve_session *s, struct cg_err *err)
{
        const char *paths[] = { NULL, NULL };
        struct cg_client_options co = { .size = sizeof(co) };
        struct cg_session_options so = { .size = sizeof(so),
                                         .front = CG_FRONT_MCP,
                                         .workspace = s->sv->workspace,
                                         .working_dir = s->given.folder,
                                         .env = s->sv->opts.kernel.env,
                                         .python_path = paths,
                                         .settings = s->sv->settings };
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };
        cg_auto_json json_t *known = NULL, *more = NULL;
        struct cg_session *kernel;

        if (is_refused(s, err) || cg_serve_session_prepare(s, err) < 0)
                return -1;
        paths[0] = s->packages.path;
        if (cg_kernel_options_session(&s->sv->opts.kernel, s->sv->workspace, &hides, &so, err) < 0)
                return -1;
        if (s->given.language)
                so.language = s->given.language;
        cg_limit_options(&s->limits, &so);
        /* If the client cannot ask its user, each question is refused with that reason. */
        pthread_mutex_lock(&s->sv->lock);
        if (s->sv->proto.peer.can_ask)
                so.server_requests |= CG_SERVER_REQUEST_ELICITATION;
        if (s->sv->proto.peer.can_open)
                so.server_requests |= CG_SERVER_REQUEST_URL;
        pthread_mutex_unlock(&s->sv->lock);
        so.ask_egress = cg_approve_base(s->approve) == CG_APPROVE_ASK ||
                        cg_pol_is_about(cg_approve_policy(s->approve), CG_METHOD_CONNECT);
        if (so.ask_egress) /* ask.c has a shorter limit, and reports it */
                so.approval_timeout_ms = cg_serve_sooner(s->sv->opts.ask_timeout_ms + 5000, MAX_ASK_MS);
        cg_kernel_options_client(&s->sv->opts.kernel, &co);
        co.no_spare = !co.share;
        if (cg_client_open(&co, &s->client, err) < 0)
                return -1;
        if (cg_client_why_private(s->client))
                cg_log(&s->sv->log, CG_LOG_WARN, "private supervisor, since none can be shared: %s",
                       cg_client_why_private(s->client));
        if (cg_session_new(s->client, &so, &kernel, err) < 0) {
                s->client = cg_client_close(s->client);
                return -1;
        }
        pthread_mutex_lock(&s->sv->lock);
        s->session = kernel;
        pthread_mutex_unlock(&s->sv->lock);
        pthread_mutex_lock(&s->sv->policy);
        cg_approve_new_session(s->approve);
        pthread_mutex_unlock(&s->sv->policy);
        known = add_servers(s, s->sv->configured);
        if (known && check_rules(s, known, err) < 0) {
                cg_serve_close(s);
                return -1;
        }
        more = add_servers(s, s->registered);
        return 0;
}

int cg_serve_ensure_open(struct cg_serve_session *s, struct cg_answer *a, struct cg_err *err)
{
        cg_serve_drain(s);
        if (s->lost) {
                cg_answer_note(
                        a,
                        "The session had ended (%s), so this ran in a new one: variables and imports are lost.",
                        s->lost);
                cg_serve_close(s);
        }
        return s->session ? 0 : cg_serve_open(s, err);
}
