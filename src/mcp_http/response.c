/* Responses of HTTP, and exchanges that wait for their session. In cellgate-mcp-http's front. */
#include "mcp_http/exchange.h"

#include "base/ceilings.h"

#define EVENT_BLOCK ((size_t)32 << 10)

/* ---- responses */

static void add_cors(const struct hf_exchange *x, struct MHD_Response *r)
{
        if (!x->origin)
                return;
        MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
        MHD_add_response_header(r, "Access-Control-Expose-Headers", SESSION_HEADER ", WWW-Authenticate");
        MHD_add_response_header(r, "Vary", "Origin");
}

enum MHD_Result cg_hf_respond(const struct hf_exchange *x, unsigned status, struct MHD_Response *r)
{
        enum MHD_Result result = MHD_NO;

        if (!r)
                return MHD_NO;
        add_cors(x, r);
        result = MHD_queue_response(x->c, status, r);
        MHD_destroy_response(r);
        return result;
}

enum MHD_Result cg_hf_respond_empty(const struct hf_exchange *x, unsigned status)
{
        return cg_hf_respond(
                x, status,
                MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result cg_hf_respond_json(const struct hf_exchange *x, unsigned status, char *text, size_t len,
                                   const char *header, const char *value)
{
        struct MHD_Response *r = text ? MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE)
                                      : NULL;

        if (!r) {
                free(text);
                return MHD_NO;
        }
        MHD_add_response_header(r, "Content-Type", "application/json");
        if (header)
                MHD_add_response_header(r, header, value);
        return cg_hf_respond(x, status, r);
}

enum MHD_Result cg_hf_refuse_request(const struct hf_exchange *x, struct cg_slice id, unsigned status,
                                     int code, const char *why)
{
        static const struct {
                unsigned status;
                const char *header, *value;
        } more[] = {
                { MHD_HTTP_SERVICE_UNAVAILABLE, "Retry-After", "5" },
                { MHD_HTTP_TOO_MANY_REQUESTS, "Retry-After", "1" },
                { MHD_HTTP_METHOD_NOT_ALLOWED, "Allow", "GET, POST, DELETE, OPTIONS" },
        };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY };
        char challenge[sizeof(x->f->setup.challenge) + 64];
        size_t i = 0;
        char *text;
        size_t len;

        if (cg_rpc_add_error(&b, id, code, why, NULL) < 0)
                return MHD_NO;
        while (i < CG_ARRAY_LEN(more) && more[i].status != status)
                i++;
        text = cg_buf_steal(&b, &len);
        if (status == MHD_HTTP_UNAUTHORIZED || x->token_error) {
                snprintf(challenge, sizeof(challenge), "%s%s", x->f->setup.challenge, x->token_error ?: "");
                return cg_hf_respond_json(x, status, text, len, "WWW-Authenticate", challenge);
        }
        if (i < CG_ARRAY_LEN(more))
                return cg_hf_respond_json(x, status, text, len, more[i].header, more[i].value);
        return cg_hf_respond_json(x, status, text, len, NULL, NULL);
}

enum MHD_Result cg_hf_refuse(const struct hf_exchange *x, unsigned status, int code, const char *why)
{
        return cg_hf_refuse_request(x, CG_SLICE_NONE, status, code, why);
}

/* ---- waiting */

void cg_hf_suspend(struct hf_exchange *x)
{
        x->suspended = true;
        MHD_suspend_connection(x->c);
}

void cg_hf_wake(void *data)
{
        struct hf_exchange *x = data;

        if (x->suspended)
                MHD_resume_connection(x->c);
        x->suspended = false;
}

void cg_hf_attach(struct hf_exchange *x, struct hf_stream *st)
{
        struct hf_exchange *before = st->reader;

        if (before) { /* a client that has not noticed that its connection is broken opens another one */
                before->stream = NULL;
                cg_hf_wake(before);
        }
        st->reader = x;
        st->wake = cg_hf_wake;
        st->since_ms = cg_now_ms();
        st->over = false;
        x->stream = st;
}

static ssize_t read_events(void *data, uint64_t pos, char *buf, size_t max)
{
        struct hf_exchange *x = data;
        ssize_t n;

        if (x->conn->gone || !x->stream)
                return MHD_CONTENT_READER_END_WITH_ERROR;
        n = cg_hf_stream_read(x->stream, buf, max);
        if (n == 0)
                cg_hf_suspend(x);
        if (n < 0)
                return n == -1 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
        return n;
}

enum MHD_Result cg_hf_send_events(struct hf_exchange *x)
{
        struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BLOCK, read_events,
                                                                   x, NULL);

        if (!r)
                return MHD_NO;
        MHD_add_response_header(r, "Content-Type", "text/event-stream");
        MHD_add_response_header(r, "Cache-Control", "no-cache, no-transform");
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
        return cg_hf_respond(x, MHD_HTTP_OK, r);
}

enum MHD_Result cg_hf_proceed(struct hf_exchange *x)
{
        struct hf_stream *st = x->stream;
        char *text;

        if (x->conn->gone || st->slow)
                return MHD_NO;
        if (st->begun)
                return cg_hf_send_events(x);
        if (!st->answer) {
                cg_hf_suspend(x);
                return MHD_YES;
        }
        text = CG_STEAL(st->answer);
        if (st->kind == HF_INITIALIZE && st->session)
                return cg_hf_respond_json(x, MHD_HTTP_OK, text, st->answer_len, SESSION_HEADER,
                                          st->session->id);
        return cg_hf_respond_json(x, st->status ?: MHD_HTTP_OK, text, st->answer_len, NULL, NULL);
}
