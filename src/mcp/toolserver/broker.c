/* The tool server's broker wire, its end, sessions and their servers: for its other files. */
#include "base/json.h"
#include "mcp/toolserver/toolserver.h"

int cg_ts_broker_send(struct ts *ts, const struct cg_out *out, struct cg_msg *frames, struct cg_err *err)
{
        struct cg_err mine;
        int r = frames ? cg_zlink_forward(&ts->broker, out, frames, &mine)
                       : cg_zlink_send(&ts->broker, out, &mine);
        if (r == 0)
                return 0;
        if (r == CG_TIMEOUT)
                r = cg_fail(&mine, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                            ts->broker.conn.queued);
        if (err)
                *err = mine;
        if (r == CG_E_CLOSED) /* this process is ending, or will when it has read the rest */
                return r;
        cg_log(&ts->log, CG_LOG_ERROR, "message to the supervisor is lost: %s", mine.msg);
        if (r != CG_E_LIMIT || !err) /* the supervisor would wait for this message */
                cg_ts_end(ts, 1);
        return r;
}

void cg_ts_broker_send_buf(struct ts *ts, const struct cg_out *out, const struct cg_buf *b)
{
        struct cg_out o = *out;

        o.body = b->data;
        o.body_len = b->len;
        if (b->failed) /* the supervisor would wait for this message */
                cg_ts_end(ts, 1);
        else
                cg_ts_broker_send(ts, &o, NULL, NULL);
}

void cg_ts_broker_send_text(struct ts *ts, const struct cg_out *out, const char *key, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };

        cg_buf_addf(&b, "{\"%s\":", key);
        cg_json_quote(&b, text, strlen(text));
        cg_buf_adds(&b, "}");
        cg_ts_broker_send_buf(ts, out, &b);
}

void cg_ts_broker_send_error(struct ts *ts, const struct cg_out *out, const struct cg_err *why)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };

        cg_buf_addf(&b, "{\"error\":{\"code\":%d,\"message\":", why->code);
        cg_json_quote(&b, why->msg, strlen(why->msg));
        cg_buf_adds(&b, "}}");
        cg_ts_broker_send_buf(ts, out, &b);
}

void cg_ts_end(struct ts *ts, int status)
{
        if (ts->ending)
                return;
        ts->ending = true;
        ts->exit_status = status;
        /* From the loop: the caller may be using a session. */
        uv_timer_start(&ts->end_timer, ts->on_end, 0, 0);
}

static void close_if_open(uv_handle_t *h)
{
        if (h->data && !uv_is_closing(h))
                uv_close(h, NULL);
}

void cg_ts_maybe_stop(struct ts *ts)
{
        if (!ts->ending || ts->sessions)
                return;
        if (!ts->broker.closing) {
                cg_zlink_close(&ts->broker, ts->on_broker_closed);
                close_if_open((uv_handle_t *)&ts->lifeline);
                close_if_open((uv_handle_t *)&ts->sigterm);
                close_if_open((uv_handle_t *)&ts->sigint);
                close_if_open((uv_handle_t *)&ts->end_timer);
                close_if_open((uv_handle_t *)&ts->progress);
                close_if_open((uv_handle_t *)&ts->call_progress);
                close_if_open((uv_handle_t *)&ts->held);
        }
}

struct ts_session *cg_ts_session_find(struct ts *ts, uint64_t number)
{
        for (struct ts_session *s = ts->sessions; s; s = s->next)
                if (s->number == number && !s->ending)
                        return s;
        return NULL;
}

struct ts_server *cg_ts_session_server(const struct ts_session *s, const char *server)
{
        struct ts_server *v = s->servers;

        while (v && strcmp(cg_mcp_client_name(v->client), server) != 0)
                v = v->next;
        return v;
}

struct cg_mcp_client *cg_ts_session_client(const struct ts_session *s, const char *server)
{
        const struct ts_server *v = cg_ts_session_server(s, server);

        return v ? v->client : NULL;
}
