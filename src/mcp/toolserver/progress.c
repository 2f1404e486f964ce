/*
 * Tells the host what a call is, and what its server says about its progress: the last value, at
 * most so often as the host can use it. Runs in cellgate-toolserver.
 */
#include <math.h>
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/call_internal.h"

/* As short as the value allows. */
static void add_number(struct cg_buf *b, const char *before, double value)
{
        char text[32];

        snprintf(text, sizeof(text), "%.15g", value);
        if (strtod(text, NULL) != value)
                snprintf(text, sizeof(text), "%.17g", value);
        cg_buf_addf(b, "%s%s", before, text);
}

void cg_ts_add_names(const struct ts_call *call, struct cg_buf *b)
{
        /* Not for others: hosts decide about tools by their names. */
        const char *tool = call->method == CG_MCP_TOOLS_CALL ? call->tool : "";

        cg_buf_adds(b, "\"server\":");
        cg_json_quote(b, call->server, strlen(call->server));
        cg_buf_addf(b, ",\"method\":\"%s\",\"tool\":", cg_mcp_methods[call->method].name);
        cg_json_quote(b, tool, strlen(tool));
}

static void add_progress(const struct ts_call *call, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf text = { .max = CG_MCP_MAX_PROGRESS_TEXT * 3 }, shown = { .max = 8192 };

        cg_buf_addf(b, "{\"kernel\":%llu,\"call\":%llu,\"cell\":%llu,",
                    (unsigned long long)call->kernel->number, (unsigned long long)call->approval,
                    (unsigned long long)call->cell);
        cg_ts_add_names(call, b);
        if (!isnan(call->progress.last.progress))
                add_number(b, ",\"progress\":", call->progress.last.progress);
        if (!isnan(call->progress.last.total))
                add_number(b, ",\"total\":", call->progress.last.total);
        if (call->progress.text && cg_json_string(cg_slice_of(call->progress.text), &text, NULL) == 0 &&
            text.len) {
                cg_text_render_as(&shown, text.data, text.len, CG_MCP_SHOW_PROGRESS_TEXT, CG_TEXT_LINE);
                cg_buf_fail(b, shown.failed);
                cg_buf_adds(b, ",\"message\":");
                cg_json_quote(b, cg_buf_str(&shown), shown.len);
        }
        cg_buf_adds(b, "}");
}

void cg_ts_send_progress(struct ts_call *call)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_CALL_PROGRESS, .session = s->number };
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_err err;

        if (s->ts->broker.conn.queued > CG_MCP_MAX_BROKER_QUEUE / 2)
                return;
        add_progress(call, &b);
        if (b.failed)
                return;
        call->progress.waits = false;
        call->progress.ms = cg_now_ms();
        out.body = b.data;
        out.body_len = b.len;
        cg_ts_broker_send(s->ts, &out, NULL, &err);
}

static void on_progress_timer(uv_timer_t *t)
{
        const struct ts *ts = t->data;
        bool any = false;

        for (const struct ts_session *s = ts->sessions; s; s = s->next) {
                for (struct ts_call *call = s->kernel ? s->kernel->calls : NULL; call; call = call->next) {
                        if (call->progress.waits &&
                            cg_now_ms() - call->progress.ms >= CG_MCP_CALL_PROGRESS_MS)
                                cg_ts_send_progress(call);
                        any |= call->progress.waits;
                }
        }
        if (!any)
                uv_timer_stop(t);
}

void cg_ts_call_progress(void *data, const struct cg_mcp_progress *p)
{
        struct ts_call *call = data;
        uv_timer_t *timer = &call->kernel->session->ts->call_progress;
        bool keep = p->message.len && p->message.len <= CG_MCP_MAX_PROGRESS_TEXT;

        free(call->progress.text);
        call->progress.text = keep ? strndup(p->message.p, p->message.len) : NULL;
        call->progress.last = *p;
        call->progress.last.message = CG_SLICE_NONE;
        call->progress.waits = true;
        if (cg_now_ms() - call->progress.ms >= CG_MCP_CALL_PROGRESS_MS)
                cg_ts_send_progress(call);
        if (call->progress.waits && !uv_is_active((uv_handle_t *)timer))
                uv_timer_start(timer, on_progress_timer, CG_MCP_CALL_PROGRESS_MS, CG_MCP_CALL_PROGRESS_MS);
}
