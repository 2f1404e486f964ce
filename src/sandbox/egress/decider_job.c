/* A question of the relay: its end, its answer, and the event for the host. */
#include "sandbox/egress/decider_int.h"

#include "base/fd.h"

static void on_poll_closed(uv_handle_t *h)
{
        free(h);
}

void cg_decider_job_stop_connecting(struct job *j, bool keep_fd)
{
        if (j->poll) {
                uv_close((uv_handle_t *)j->poll, on_poll_closed);
                j->poll = NULL;
        }
        if (!keep_fd)
                cg_closep_(&j->fd);
}

void cg_decider_job_free(struct job *j)
{
        LIST_REMOVE(j, entry);
        cg_decider_job_stop_connecting(j, false);
        if (j->box)
                j->box->n_jobs--;
        free(j);
}

void cg_decider_job_drop(struct job *j)
{
        j->state = CANCELLED;
        j->question = NULL;
        cg_decider_job_stop_connecting(j, false);
        if (!j->looking_up)
                cg_decider_job_free(j);
}

/* ---- events */

const char *const cg_egress_protocols[CG_EGRESS_KINDS] = {
        [CG_EGRESS_HTTP] = "http",
        [CG_EGRESS_CONNECT] = "connect",
        [CG_EGRESS_SOCKS] = "socks",
        [CG_EGRESS_RAW_HTTP] = "http-proxy",
        [CG_EGRESS_RAW_SOCKS] = "socks-proxy",
};

/* Text that may have been cut in the middle of a character. */
static json_t *text_or_null(const char *s)
{
        size_t n = strlen(s);
        json_t *j = NULL;

        for (size_t cut = 0; n && !j && cut < 4 && cut < n; cut++)
                j = json_stringn(s, n - cut);
        return j ?: json_null();
}

void cg_decider_job_report(struct job *j, enum cg_egress_result result, const char *why)
{
        bool allowed = result != CG_EGRESS_DENIED && result != CG_EGRESS_DENIED_ADDRESS &&
                       result != CG_EGRESS_DENIED_TUNNEL;
        char line[CG_AUTHORITY_MAX + CG_POLICY_REASON_MAX + 64], address[CG_ADDR_TEXT] = "";
        json_t *m;

        if (!j->box || (allowed && !cg_policy_options(j->box->policy)->all_events))
                return;
        if (allowed && j->n_addrs && j->at < j->n_addrs && !j->to_proxy)
                cg_addr_text(&j->addrs[j->at], address);
        m = json_pack("{s:s, s:I, s:s, s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o}", "type", "decision",
                      "sandbox", j->box->sandbox, "operation", "network-outbound", "protocol",
                      cg_egress_protocols[j->kind], "host", j->host.text, "port", (int)j->port, "allowed",
                      allowed, "list", text_or_null(j->list), "rule", text_or_null(j->rule), "why",
                      text_or_null(why), "address", text_or_null(address));
        if (!m)
                return;
        if (!allowed) {
                snprintf(line, sizeof(line), "deny network-outbound %s:%u (%s)", j->host.text, j->port, why);
                json_object_set_new(m, "how", text_or_null(j->answer.extra));
                json_object_set_new(m, "line", text_or_null(line));
        } else if (result == CG_EGRESS_UNREACHABLE) {
                json_object_set_new(m, "error", text_or_null(why));
        }
        cg_decider_send_host(j->d, m);
}

/* ---- answers */

bool cg_decider_job_send_answer(struct job *j)
{
        struct decider *d = j->d;
        struct cg_err err;
        int r = cg_egress_msg_send(d->relay, &j->answer, &j->fd, j->fd >= 0, &err);

        if (r == CG_TIMEOUT)
                return false;
        if (r < 0)
                cg_decider_end(d, 1);
        cg_decider_job_free(j);
        return true;
}

void cg_decider_job_answer(struct job *j, enum cg_egress_result result, const char *why)
{
        struct cg_egress_msg *m = &j->answer;
        char to[CG_AUTHORITY_MAX];

        cg_decider_job_stop_connecting(j,
                                       result == CG_EGRESS_CONNECTED || result == CG_EGRESS_CONNECTED_PROXY);
        j->question = NULL;
        j->state = ANSWERING;
        m->type = CG_EGRESS_ANSWER;
        m->box = j->box->number;
        m->id = j->id;
        m->result = (uint8_t)result;
        snprintf(m->text, sizeof(m->text), "%s", why);
        /* extra: how to allow the connection, or the credentials for a proxy, set before. */
        if (result != CG_EGRESS_CONNECTED_PROXY)
                m->extra[0] = '\0';
        cg_host_authority(&j->host, j->port, 0, to, sizeof(to));
        if (result == CG_EGRESS_DENIED && strcmp(j->list, "deniedDomains") == 0)
                snprintf(m->extra, sizeof(m->extra), "remove \"%s\" from network.deniedDomains", j->rule);
        else if (result == CG_EGRESS_DENIED)
                snprintf(m->extra, sizeof(m->extra), "add \"%s\" to network.allowedDomains", to);
        else if (result == CG_EGRESS_DENIED_ADDRESS)
                snprintf(m->extra, sizeof(m->extra),
                         "add the address that it resolves to, with :%u, to network.allowedDomains", j->port);
        else if (result == CG_EGRESS_DENIED_TUNNEL)
                snprintf(m->extra, sizeof(m->extra), "remove network.refuseOpaqueTunnels");
        cg_decider_job_report(j, result, why);
        cg_decider_job_send_answer(j);
}

bool cg_decider_job_refuse(struct job *j)
{
        struct cg_decision dec;

        cg_policy_decide(j->box->policy, &j->host, j->port, &dec);
        if (dec.verdict != CG_VERDICT_DENY || (!dec.list && strcmp(j->list, "answers") == 0))
                return false;
        snprintf(j->list, sizeof(j->list), "%s", dec.list ?: "");
        snprintf(j->rule, sizeof(j->rule), "%s", dec.rule ?: "");
        cg_decider_job_answer(j, CG_EGRESS_DENIED, dec.why);
        return true;
}
