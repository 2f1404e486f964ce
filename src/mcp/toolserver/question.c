/*
 * What MCP servers ask the host for: forwarded to the supervisor, and its answers back. Runs in
 * cellgate-toolserver. A kernel sees none of it: nothing of this is on its wire.
 */
#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/toolserver.h"

static void add_body(const struct ts_session *s, const void *call, const char *server, const char *method,
                     struct cg_buf *b)
{
        uint64_t kernel = cg_ts_kernel_number(s->kernel), approval = 0, cell = 0;

        if (call)
                cg_ts_call_numbers(call, &kernel, &approval, &cell);
        cg_buf_addf(b, "{\"kernel\":%llu,\"cell\":%llu,", (unsigned long long)kernel,
                    (unsigned long long)cell);
        if (approval)
                cg_buf_addf(b, "\"call\":%llu,", (unsigned long long)approval);
        cg_buf_addf(b, "\"method\":\"%s\",\"server\":", method);
        cg_json_quote(b, server, strlen(server));
        cg_buf_adds(b, "}");
}

int cg_ts_question(void *data, void *call, const char *server, const char *method, struct cg_slice params,
                   uint64_t *number, struct cg_err *err)
{
        struct ts_session *s = data;
        struct cg_out out = { .type = CG_BROKER_SERVER_REQUEST,
                              .session = s->number,
                              .raw = params.p,
                              .raw_len = params.len,
                              .has_raw = true };
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        int r;

        if (!s->kernel)
                return cg_fail(err, CG_E_STATE, "the session has no kernel");
        /* The other half is for answers: they must not be lost. */
        if (s->ts->broker.conn.queued > CG_MCP_MAX_BROKER_QUEUE / 2)
                return cg_fail(err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                               s->ts->broker.conn.queued);
        add_body(s, call, server, method, &b);
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        out.id = ++s->ts->last_ask;
        out.body = b.data;
        out.body_len = b.len;
        r = cg_ts_broker_send(s->ts, &out, NULL, err);
        if (r < 0)
                return r;
        *number = out.id;
        return 0;
}

void cg_ts_question_closed(void *data, uint64_t number, const char *why)
{
        const struct ts_session *s = data;
        struct cg_out out = { .type = CG_BROKER_ASK_CLOSED, .session = s->number, .id = number };

        cg_ts_broker_send_text(s->ts, &out, "why", why);
}

int cg_ts_question_answered(struct ts_session *s, const struct cg_msg *m, const json_t *body,
                            struct cg_err *err)
{
        const char *action, *why, *raw;
        size_t len;

        if (cg_json_str(body, "action", "", &action, err) < 0 || cg_json_str(body, "why", "", &why, err) < 0)
                return CG_E_PROTO;
        raw = cg_msg_raw(m, 0, &len);
        for (const struct ts_server *v = s->servers; v; v = v->next)
                if (cg_mcp_client_answer(v->client, m->id, *action ? NULL : raw, len,
                                         strcmp(action, "decline") == 0 ? "decline" : "cancel", why))
                        return 0;
        /* It crossed with ASK_CLOSED. */
        cg_log(&s->ts->log, CG_LOG_DEBUG, "session %llu: answer %llu is to no question that waits",
               (unsigned long long)s->number, (unsigned long long)m->id);
        return 0;
}
