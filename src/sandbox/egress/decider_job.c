/*
 * A question of the relay: when it is done with, what is answered, and what the host hears of it.
 */
#include "sandbox/egress/decider_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

static void on_poll_closed(uv_handle_t *h)
{
        free(h);
}

void eg_job_stop_connecting(struct job *j, bool keep_fd)
{
        if (j->poll) {
                uv_close((uv_handle_t *)j->poll, on_poll_closed);
                j->poll = NULL;
        }
        if (!keep_fd)
                cg_closep_(&j->fd);
}

void eg_job_free(struct job *j)
{
        struct job **p = &j->d->jobs;

        while (*p && *p != j)
                p = &(*p)->next;
        if (*p)
                *p = j->next;
        eg_job_stop_connecting(j, false);
        if (j->box)
                j->box->n_jobs--;
        free(j);
}

void eg_job_drop(struct job *j)
{
        j->state = CANCELLED;
        j->question = NULL;
        eg_job_stop_connecting(j, false);
        if (!j->looking_up)
                eg_job_free(j);
}

/* ---- events */

const char *const eg_protocols[EG_KINDS] = {
        [EG_HTTP] = "http",           [EG_CONNECT] = "connect",       [EG_SOCKS] = "socks",
        [EG_RAW_HTTP] = "http-proxy", [EG_RAW_SOCKS] = "socks-proxy",
};

static void how_to_allow(const struct job *j, enum eg_result result, char *buf, size_t size)
{
        char to[CG_AUTHORITY_MAX];

        buf[0] = '\0';
        cg_host_authority(&j->host, j->port, 0, to, sizeof(to));
        if (result == EG_DENIED && strcmp(j->list, "deniedDomains") == 0)
                snprintf(buf, size, "remove \"%s\" from network.deniedDomains", j->rule);
        else if (result == EG_DENIED)
                snprintf(buf, size, "add \"%s\" to network.allowedDomains", to);
        else if (result == EG_DENIED_ADDRESS)
                snprintf(buf, size,
                         "add the address that it resolves to, with :%u, to network.allowedDomains", j->port);
        else if (result == EG_DENIED_TUNNEL)
                snprintf(buf, size, "remove network.refuseOpaqueTunnels");
}

/* Text that may have been cut in the middle of a character. */
static json_t *text_or_null(const char *s)
{
        size_t n = strlen(s);
        json_t *j = NULL;

        for (size_t cut = 0; n && !j && cut < 4 && cut < n; cut++)
                j = json_stringn(s, n - cut);
        return j ? j : json_null();
}

void eg_job_report(struct job *j, enum eg_result result, const char *why)
{
        bool allowed = result != EG_DENIED && result != EG_DENIED_ADDRESS && result != EG_DENIED_TUNNEL;
        char line[CG_AUTHORITY_MAX + CG_POLICY_REASON_MAX + 64], address[CG_ADDR_TEXT] = "";
        json_t *m;

        if (!j->box || (allowed && !cg_policy_options(j->box->policy)->all_events))
                return;
        if (allowed && j->n_addrs && j->at < j->n_addrs && !j->to_proxy)
                cg_addr_text(&j->addrs[j->at], address);
        m = json_pack("{s:s, s:I, s:s, s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o}", "type", "decision",
                      "sandbox", j->box->sandbox, "operation", "network-outbound", "protocol",
                      eg_protocols[j->kind], "host", j->host.text, "port", (int)j->port, "allowed", allowed,
                      "list", text_or_null(j->list), "rule", text_or_null(j->rule), "why", text_or_null(why),
                      "address", text_or_null(address));
        if (!m)
                return;
        if (!allowed) {
                snprintf(line, sizeof(line), "deny network-outbound %s:%u (%s)", j->host.text, j->port, why);
                json_object_set_new(m, "how", text_or_null(j->answer.extra));
                json_object_set_new(m, "line", text_or_null(line));
        } else if (result == EG_UNREACHABLE) {
                json_object_set_new(m, "error", text_or_null(why));
        }
        eg_decider_tell(j->d, m);
}

/* ---- answers */

bool eg_job_send_answer(struct job *j)
{
        struct decider *d = j->d;
        struct cg_err err;
        int r = eg_send(d->relay, &j->answer, &j->fd, j->fd >= 0 ? 1 : 0, &err);

        if (r == CG_TIMEOUT)
                return false;
        if (r < 0)
                eg_decider_end(d, 1);
        eg_job_free(j);
        return true;
}

void eg_job_answer(struct job *j, enum eg_result result, const char *why)
{
        struct eg_msg *m = &j->answer;

        eg_job_stop_connecting(j, result == EG_CONNECTED || result == EG_CONNECTED_PROXY);
        j->question = NULL;
        j->state = ANSWERING;
        m->type = EG_ANSWER;
        m->box = j->box->number;
        m->id = j->id;
        m->result = (uint8_t)result;
        snprintf(m->text, sizeof(m->text), "%s", why);
        if (result != EG_CONNECTED_PROXY)
                how_to_allow(j, result, m->extra, sizeof(m->extra));
        eg_job_report(j, result, why);
        eg_job_send_answer(j);
}
