/*
 * The end of a kernel's calls: their answers, their withdrawal, and the end of the connection.
 * Runs in cellgate-toolserver.
 */
#include <stdarg.h>
#include "base/sha256_hex.h"
#include "mcp/client/failure.h"
#include "mcp/toolserver/call_internal.h"

#define MAX_REPORT 16384 /* bytes of the report of a call's end */

void cg_ts_send_kept(struct ts_session *s, uint64_t kernel, uint64_t id, const char *status, const char *kind,
                     const char *raw, size_t len)
{
        char body[128];
        struct cg_out out = { .type = CG_BROKER_KEPT,
                              .session = s->number,
                              .id = id,
                              .body = body,
                              .raw = raw,
                              .raw_len = len,
                              .has_raw = true };
        struct cg_err err;

        out.body_len = (size_t)snprintf(body, sizeof(body),
                                        "{\"kernel\":%llu,\"status\":\"%s\",\"kind\":\"%s\"}",
                                        (unsigned long long)kernel, status, kind);
        if (cg_ts_broker_send(s->ts, &out, NULL, &err) == CG_E_LIMIT && len)
                cg_ts_send_kept(s, kernel, id, "whole", "", "", 0);
}

static void call_free(struct ts_call *call)
{
        struct ts_kernel *k = call->kernel;

        CG_UNLINK(k->calls, call, next);
        k->n_calls -= call->place != KEEPING;
        k->args_waiting -= cg_frame_bytes(call->args).len;
        if (call->conversion)
                *call->conversion = NULL;
        free(call->server);
        free(call->tool);
        cg_frame_unref(call->args);
        free(call->progress.text);
        free(call->held);
        free(call);
}

void cg_ts_report_no_call(struct ts_session *s, uint64_t approval)
{
        struct cg_out out = { .type = CG_BROKER_CALL_ENDED, .session = s->number };
        cg_auto_buf struct cg_buf b = { .max = 100 };

        cg_buf_addf(&b, "{\"approval\":%llu,\"status\":\"cancelled\"}", (unsigned long long)approval);
        cg_ts_broker_send_buf(s->ts, &out, &b);
}

/* Writes the report of a call's end into @b; nothing, where that is done. @result may be NULL. */
static void add_report(struct ts_call *call, const char *status, const char *result, size_t len,
                       struct cg_buf *b)
{
        char sha256[CG_SHA256_HEX];

        if (!call->unreported)
                return;
        call->unreported = false;
        cg_buf_addf(b, "{\"approval\":%llu,\"cell\":%llu,\"status\":\"%s\",",
                    (unsigned long long)call->approval, (unsigned long long)call->cell, status);
        if (result && call->audited) {
                cg_sha256_hex(result, len, sha256);
                cg_buf_addf(b, "\"bytes\":%zu,\"sha256\":\"%s\",", len, sha256);
        }
        cg_ts_add_names(call, b);
        cg_buf_adds(b, "}");
}

static void send_report(struct ts_session *s, struct cg_buf *b)
{
        struct cg_out out = {
                .type = CG_BROKER_CALL_ENDED, .session = s->number, .body = b->data, .body_len = b->len
        };
        struct cg_err err;

        if (!b->len && !b->failed)
                return;
        if (cg_buf_end(b, &err) < 0 || cg_ts_broker_send(s->ts, &out, NULL, &err) < 0)
                cg_log(&s->ts->log, CG_LOG_WARN, "session %llu: the end of a call cannot be reported: %s",
                       (unsigned long long)s->number, err.msg);
}

void cg_ts_call_report(struct ts_call *call, const char *status, const char *result, size_t len)
{
        cg_auto_buf struct cg_buf b = { .max = MAX_REPORT };

        add_report(call, status, result, len, &b);
        send_report(call->kernel->session, &b);
}

void cg_ts_call_withdraw(struct ts_call *call, const char *why)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_ASK_CLOSED, .session = s->number, .id = call->ask };

        cg_ts_call_report(call, "cancelled", NULL, 0);
        if (call->place == KEEPING)
                cg_ts_send_kept(s, call->kernel->number, call->id, "whole", "", "", 0);
        else if (call->place == ASKING || call->place == AT_HOST)
                cg_ts_broker_send_text(s->ts, &out, "why", why);
        else if (call->req)
                cg_mcp_req_cancel(CG_STEAL(call->req), why);
}

static void on_link_closed(struct cg_zlink *z)
{
        struct ts_kernel *k = z->data;
        struct ts *ts = z->poll.loop->data;

        free(k->folder);
        free(k);
        cg_ts_maybe_stop(ts);
}

void cg_ts_kernel_detach(struct ts_session *s, const char *why)
{
        struct ts_kernel *k = s->kernel;

        if (!k)
                return;
        s->kernel = NULL;
        while (k->calls) {
                cg_ts_call_withdraw(k->calls, why);
                call_free(k->calls);
        }
        cg_kept_free_all(&k->kept);
        k->session = NULL;
        if (s->remote)
                free(k);
        else
                cg_zlink_close(&k->link, on_link_closed);
}

static const struct cg_log *log_of(const struct ts_kernel *k)
{
        return &k->session->ts->log;
}

static int send_result(struct ts_kernel *k, uint64_t id, const char *status, const char *kind,
                       const char *raw, size_t len, struct cg_err *err)
{
        char body[96];
        const struct ts_session *s = k->session;
        struct cg_out out = { .type = s->remote ? CG_BROKER_CALL_RESULT : CG_TOOL_CALL_RESULT,
                              .session = s->remote ? s->number : 0,
                              .id = id,
                              .body = body,
                              .raw = raw,
                              .raw_len = len,
                              .has_raw = true };
        int r;

        out.body_len = (size_t)snprintf(body, sizeof(body), "{\"status\":\"%s\"%s%s%s}", status,
                                        *kind ? ",\"kind\":\"" : "", kind, *kind ? "\"" : "");
        if (s->remote)
                return cg_ts_broker_send(s->ts, &out, NULL, err);
        r = cg_zlink_send(&k->link, &out, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                               k->link.conn.queued);
        return r;
}

void cg_ts_kernel_answer(struct ts_kernel *k, uint64_t id, const char *status, const char *kind,
                         const char *raw, size_t len)
{
        char text[256];
        struct cg_err err;
        int r = send_result(k, id, status, kind, raw, len, &err);

        /* closed: the kernel is ending, and its DETACH is on the way */
        if (r == 0 || r == CG_E_CLOSED)
                return;
        cg_log(log_of(k), CG_LOG_WARN,
               "session %llu: result of call %llu (%zu bytes) cannot be delivered: %s",
               (unsigned long long)k->session->number, (unsigned long long)id, len, err.msg);
        snprintf(text, sizeof(text), "the result (%zu bytes) could not be delivered: %.100s", len, err.msg);
        if (send_result(k, id, "failed", "too_large", text, strlen(text), &err) == 0)
                return;
        cg_log(log_of(k), CG_LOG_ERROR, "session %llu: its kernel reads no results; its connection is closed",
               (unsigned long long)k->session->number);
        cg_ts_kernel_detach(k->session, "the kernel does not read");
}

/*
 * The failure of a call as its cell gets it, in @text. The host gets the rest, once for each
 * reason: a cell can make a call fail again and again.
 */
static void separate_failure(struct ts_call *call, char *text, size_t size)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_NOTICE, .session = s->number };
        struct ts_server *v = cg_ts_session_server(s, call->server);
        const struct cg_mcp_def *def = v ? cg_mcp_client_def(v->client) : NULL;
        const char *rest = strchr(text, CG_MCP_HOST_ONLY[0]);
        uint64_t digest = rest ? cg_fnv1a(CG_FNV1A, rest, strlen(rest)) : 0;
        cg_auto_free char *all = rest ? strdup(text) : NULL;

        cg_auto_buf struct cg_buf denied = { .max = 4096 };
        bool more = cg_mcp_failure_for_cell(def, text, size);
        size_t n = strlen(text);

        if (v && v->box && call->place == RUNNING)
                cg_ts_box_add_denials(v->box, call->denials_before, &denied);
        if (denied.len && !denied.failed)
                snprintf(text + n, size - n, "\n%s", denied.data);
        if (!more || !all || (v && v->failure_noticed == digest))
                return;
        if (v)
                v->failure_noticed = digest;
        cg_mcp_failure_for_host(def, all);
        cg_ts_broker_send_text(s->ts, &out, "text", all);
}

void cg_ts_call_end(struct ts_call *call, const char *status, const char *raw, size_t len)
{
        struct ts_kernel *k = call->kernel;
        struct ts_session *s = k->session;
        char text[CG_TS_FAILURE];
        uint64_t id = call->id;
        const char *kind = call->kind;
        bool keeping = call->place == KEEPING, audited = call->audited;
        cg_auto_buf struct cg_buf report = { .max = MAX_REPORT };

        add_report(call, status, strcmp(status, "failed") == 0 ? NULL : raw, len, &report);
        if (audited) /* its record precedes that of the cell's end */
                send_report(s, &report);
        if (!keeping && strcmp(status, "failed") == 0) {
                snprintf(text, sizeof(text), "%.*s", (int)len, raw);
                separate_failure(call, text, sizeof(text));
                raw = text;
                len = strlen(text);
        }
        call_free(call);
        if (!keeping)
                cg_ts_kernel_answer(k, id, status, kind, raw, len);
        else if (strcmp(kind, "kept") == 0)
                cg_ts_send_kept(s, k->number, id, status, kind, raw, len);
        else
                cg_ts_send_kept(s, k->number, id, "whole", "", "", 0);
        if (!audited) /* the cell need not wait while the supervisor reads it */
                send_report(s, &report);
}

void cg_ts_call_fail(struct ts_call *call, const char *fmt, ...)
{
        char text[CG_TS_FAILURE];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (!*call->kind)
                call->kind = "unavailable";
        cg_ts_call_end(call, "failed", text, strlen(text));
}
